/* Damaged checkpoints through the path that inspect and the server take: thousands of truncations and flipped
 * bits of headers, index, config and data. Each is refused with one printable line or is a checkpoint that
 * loads into exactly its plan; nothing else may happen. Worth most under the sanitizers. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/digest.h"
#include "model/weights.h"
#include "support/check.h"
#include "support/fake_checkpoint.h"
#include "support/scratch.h"

enum { N_FLIPS = 4000 };

struct folder {
    char dir[SCRATCH_PATH_BYTES];
    char file[SCRATCH_PATH_BYTES + 64]; /* the one that is damaged */
    int fd;
    size_t bytes;
};

static void make_folder(struct folder *f, const char *preset, bool sharded, const char *file)
{
    fake_checkpoint *fake = fake_create(preset, true);
    struct stat st;

    scratch_create(f->dir);
    fake->sharded = sharded;
    fake_write(fake, f->dir);
    fake_free(fake);
    snprintf(f->file, sizeof f->file, "%s/%s", f->dir, file);
    f->fd = open(f->file, O_RDWR);
    assert_int_equal(fstat(f->fd, &st), 0);
    f->bytes = (size_t)st.st_size;
}

static void remove_folder(struct folder *f)
{
    close(f->fd);
    scratch_remove(f->dir);
}

static uint8_t byte_at(const struct folder *f, size_t at)
{
    uint8_t b;

    assert_int_equal(pread(f->fd, &b, 1, (off_t)at), 1);
    return b;
}

static void set_byte(const struct folder *f, size_t at, uint8_t b)
{
    assert_int_equal(pwrite(f->fd, &b, 1, (off_t)at), 1);
}

static size_t header_bytes(const struct folder *f)
{
    uint64_t n;

    assert_int_equal(pread(f->fd, &n, 8, 0), 8);
    return 8 + n;
}

static void check_refusal(pl_status s, const pl_error *err)
{
    if (s != PL_ERR_INVALID && s != PL_ERR_UNSUPPORTED && s != PL_ERR_CORRUPT &&
        s != PL_ERR_NOT_FOUND)
        fail_msg("%s: %s", pl_status_name(s), err->msg);
    assert_int_equal(err->status, s);
    assert_true(err->msg[0] != 0);
    for (const char *p = err->msg; *p; p++)
        assert_true((unsigned char)*p >= 0x20 && *p != 0x7F);
}

/* Opens the folder, and loads it where it opens. */
static pl_status try(const struct folder *f)
{
    pl_checkpoint *c;
    pl_weights *w;
    pl_digest digest;
    pl_error err = {0};
    pl_status s = pl_checkpoint_open(f->dir, &c, &err);
    uint64_t bytes;
    void *memory;

    if (s != PL_OK) {
        assert_null(c);
        check_refusal(s, &err);
        return s;
    }
    check_ok(pl_checkpoint_header_digest(c, &digest, &err), &err);
    bytes = pl_weights_bytes(c);
    memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    s = pl_weights_load(c, memory, &w, &err);
    if (s == PL_OK)
        pl_weights_close(w);
    else
        check_refusal(s, &err);
    free(memory);
    pl_checkpoint_close(c);
    return s;
}

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s >> 16;
}

/* Flips one bit, and in every fourth round sets a byte that means something in JSON. */
static int flip(const struct folder *f, size_t from, size_t to, int n, uint64_t seed)
{
    static const char json[] = "\"{}[]:,\\0-9e. \n\xff";
    int n_accepted = 0;

    for (int i = 0; i < n; i++) {
        size_t at = from + next_random(&seed) % (to - from);
        uint8_t before = byte_at(f, at);

        if (i % 4 == 3)
            set_byte(f, at, (uint8_t)json[next_random(&seed) % (sizeof json - 1)]);
        else
            set_byte(f, at, before ^ (uint8_t)(1u << next_random(&seed) % 8));
        n_accepted += try(f) == PL_OK;
        set_byte(f, at, before);
    }
    assert_int_equal(try(f), PL_OK); /* all damage was undone */
    return n_accepted;
}

static void flipped_bits_of_a_header(void **state)
{
    static const char *const presets[] = {"pico", "pico-base"};

    for (size_t i = 0; i < 2; i++) {
        struct folder f;
        int n_accepted;

        make_folder(&f, presets[i], false, "model.safetensors");
        n_accepted = flip(&f, 0, header_bytes(&f), N_FLIPS / 2, 7 + i);
        /* Little of a header may change: its metadata and an offset's or name's twin in white space. */
        print_message("%s: %d of %d accepted\n", presets[i], n_accepted, N_FLIPS / 2);
        assert_true(n_accepted < N_FLIPS / 50);
        remove_folder(&f);
    }
}

static void flipped_bits_of_the_length(void **state)
{
    struct folder f;

    make_folder(&f, "pico", false, "model.safetensors");
    for (size_t bit = 0; bit < 64; bit++) {
        set_byte(&f, bit / 8, byte_at(&f, bit / 8) ^ (uint8_t)(1u << bit % 8));
        assert_int_equal(try(&f), PL_ERR_CORRUPT);
        set_byte(&f, bit / 8, byte_at(&f, bit / 8) ^ (uint8_t)(1u << bit % 8));
    }
    assert_int_equal(try(&f), PL_OK);
    remove_folder(&f);
}

static void flipped_bits_of_index_and_config(void **state)
{
    static const char *const files[] = {"model.safetensors.index.json", "config.json"};

    for (size_t i = 0; i < 2; i++) {
        struct folder f;

        make_folder(&f, "pico", true, files[i]);
        print_message("%s: %d of %d accepted\n", files[i],
                      flip(&f, 0, f.bytes, N_FLIPS / 4, 11 + i), N_FLIPS / 4);
        remove_folder(&f);
    }
}

/* Data is only looked at while it is loaded: any outcome but a bad one. */
static void flipped_bits_of_data(void **state)
{
    struct folder f;

    make_folder(&f, "pico-base", false, "model.safetensors");
    print_message("%d of 300 accepted\n", flip(&f, header_bytes(&f), f.bytes, 300, 13));
    remove_folder(&f);
}

/* Downwards, so that each cut shortens the one before. */
static void every_truncation(void **state)
{
    static const struct {
        const char *file;
        bool sharded;
    } files[] = {{"model.safetensors", false},
                 {"model.safetensors.index.json", true},
                 {"model-00003-of-00006.safetensors", true},
                 {"config.json", true}};

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct folder f;
        size_t from;

        make_folder(&f, "pico", files[i].sharded, files[i].file);
        from = strstr(files[i].file, ".json") ? f.bytes - 1 : header_bytes(&f) + 64;
        print_message("%s from %zu\n", files[i].file, from);
        for (size_t n = from / 8 * 8;; n -= 8) {
            assert_int_equal(ftruncate(f.fd, (off_t)n), 0);
            assert_int_equal(try(&f), PL_ERR_CORRUPT);
            if (n == 0)
                break;
        }
        remove_folder(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flipped_bits_of_a_header),
        cmocka_unit_test(flipped_bits_of_the_length),
        cmocka_unit_test(flipped_bits_of_index_and_config),
        cmocka_unit_test(flipped_bits_of_data),
        cmocka_unit_test(every_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
