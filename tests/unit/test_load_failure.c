/* A disk that fails in the middle of a file: loading says which file, which tensor and where, whoever reads and
 * whichever way, and leaves nothing open. The program's own pread stands before the C library's. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "model/weights.h"
#include "support/check.h"
#include "support/fake_checkpoint.h"
#include "support/scratch.h"

/* Reads of this byte of this file fail; -1: none. Set while nobody reads. */
static _Atomic int64_t bad_byte = -1, failed_at = -1;
static ino_t bad_file;

/* Where this one is not called nothing fails, and so the test does. */
ssize_t pread(int fd, void *to, size_t n, off_t from)
{
    struct stat st;

    if (bad_byte >= from && bad_byte - from < (int64_t)n && fstat(fd, &st) == 0 &&
        st.st_ino == bad_file) {
        failed_at = from;
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, to, n, from);
}

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static pl_checkpoint_tensor find(const pl_checkpoint *c, const char *name)
{
    for (int64_t i = 0; i < pl_checkpoint_n_tensors(c); i++)
        if (strcmp(pl_checkpoint_tensor_at(c, i).name, name) == 0)
            return pl_checkpoint_tensor_at(c, i);
    fail_msg("no tensor %s", name);
    return (pl_checkpoint_tensor){0};
}

/* What is told of the tensor `name`, whose byte `at` cannot be read. */
static void fail_once(const char *dir, const char *name, uint64_t at, pl_load_mode mode,
                      int n_workers)
{
    const int before = open_files();
    pl_load_params p = {.layout = PL_WEIGHT_TILES, .mode = mode};
    pl_checkpoint *c;
    pl_checkpoint_tensor t;
    pl_weights *w;
    pl_error err;
    char where[SCRATCH_PATH_BYTES + 128];
    struct stat st;
    void *memory;
    pl_status s;

    check_ok(pl_checkpoint_open(dir, &c, &err), &err);
    t = find(c, name);
    memory = aligned_alloc(64, (pl_weights_bytes(c) + 63) / 64 * 64);
    if (n_workers > 0)
        check_ok(pl_pool_create(&(pl_pool_params){.n_workers = n_workers, .no_pin = true}, &p.pool,
                                &err),
                 &err);
    (void)snprintf(where, sizeof where, "%s/%s", dir, pl_checkpoint_shard_name(c, t.shard));
    assert_int_equal(stat(where, &st), 0);
    bad_file = st.st_ino;
    failed_at = -1;
    bad_byte = (int64_t)(t.begin + at);
    s = pl_weights_load_as(c, memory, &p, &w, NULL, &err);
    bad_byte = -1;
    if (s == PL_ERR_UNSUPPORTED && mode == PL_LOAD_DIRECT) {
        print_message("no direct reads here: %s\n", err.msg);
    } else {
        assert_true(failed_at >= 0);
        (void)snprintf(where, sizeof where, "cannot read at byte %" PRId64 " (got ", failed_at);
        check_error(s, PL_ERR_IO, &err, pl_checkpoint_shard_name(c, t.shard), name, where,
                    strerror(EIO), NULL);
        assert_null(w);
        /* The same disk, repaired: nothing of the failure is left. */
        check_ok(pl_weights_load_as(c, memory, &p, &w, NULL, &err), &err);
        pl_weights_close(w);
    }
    pl_pool_destroy(p.pool);
    pl_checkpoint_close(c);
    free(memory);
    assert_int_equal(open_files(), before);
}

static void the_place_is_told_and_nothing_stays_open(void **state)
{
    static const char *const names[] = {"layers.2.attn.wq_b.weight", "embed.weight",
                                        "layers.1.ffn.experts.1.w1.weight",
                                        "layers.2.attn.wq_b.scale"};
    static const pl_load_mode modes[] = {PL_LOAD_BUFFERED, PL_LOAD_DIRECT};
    char dir[SCRATCH_PATH_BYTES];
    fake_checkpoint *f = fake_create("nano", true);

    /* Values that a repaired disk loads: no NaN codes. */
    for (size_t i = 0; i < f->n; i++)
        for (uint64_t k = 0; strcmp(f->tensors[i].dtype, "F8_E4M3") == 0 && k < f->tensors[i].bytes;
             k++)
            if ((f->tensors[i].data[k] & 0x7F) == 0x7F)
                f->tensors[i].data[k] = 0x7E;
    scratch_create(dir);
    fake_write(f, dir);
    for (int i = 0; i < 4; i++)
        for (int m = 0; m < 2; m++)
            for (int n = 0; n < 4; n += 3)
                /* A scale shares its block of direct reads with others, of which the first is told. */
                if (i < 3 || modes[m] == PL_LOAD_BUFFERED)
                    fail_once(dir, names[i], fake_find(f, names[i])->bytes / 2, modes[m], n);
    fake_free(f);
    scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_place_is_told_and_nothing_stays_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
