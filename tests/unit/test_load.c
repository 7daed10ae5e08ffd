/* Reading weights by many workers and both ways: the same bytes as one thread reads, the same first error, and no
 * checkpoint that changes under its reader. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/weights.h"
#include "support/check.h"
#include "support/fake_checkpoint.h"
#include "support/scratch.h"

struct loaded {
    pl_checkpoint *checkpoint;
    void *memory;
    pl_weights *weights;
    pl_load_report report;
};

static pl_status load(const char *dir, pl_load_mode mode, int n_workers, struct loaded *l,
                      pl_error *err)
{
    pl_load_params p = {.layout = PL_WEIGHT_TILES, .mode = mode};
    pl_status s;

    memset(l, 0, sizeof *l);
    check_ok(pl_checkpoint_open(dir, &l->checkpoint, err), err);
    l->memory = aligned_alloc(64, (pl_weights_bytes(l->checkpoint) + 63) / 64 * 64);
    memset(l->memory, 0xA5, pl_weights_bytes(l->checkpoint));
    if (n_workers > 0)
        check_ok(
            pl_pool_create(&(pl_pool_params){.n_workers = n_workers, .no_pin = true}, &p.pool, err),
            err);
    s = pl_weights_load_as(l->checkpoint, l->memory, &p, &l->weights, &l->report, err);
    pl_pool_destroy(p.pool);
    return s;
}

static void unload(struct loaded *l)
{
    pl_weights_close(l->weights);
    pl_checkpoint_close(l->checkpoint);
    free(l->memory);
}

/* Views of both stores, byte by byte. */
static void check_same(const struct loaded *a, const struct loaded *b)
{
    const pl_weights_plan plan = pl_weights_plan_checkpoint(a->checkpoint);

    for (int32_t i = 0; i < plan.n_slots; i++) {
        pl_weight_view v = pl_weights_view(a->weights, i), w = pl_weights_view(b->weights, i);
        size_t bytes = (size_t)(v.rows * v.cols);

        assert_int_equal(v.layout, w.layout);
        assert_int_equal(v.format, w.format);
        bytes = v.format == PL_WEIGHT_FP4    ? bytes / 2
                : v.format == PL_WEIGHT_BF16 ? 2 * bytes
                : v.format == PL_WEIGHT_F32  ? 4 * bytes
                : v.format == PL_WEIGHT_I64  ? 8 * bytes
                                             : bytes;
        assert_memory_equal(v.data, w.data, bytes);
        if (v.format == PL_WEIGHT_FP4)
            assert_memory_equal(v.scale, w.scale, (size_t)(v.rows * v.cols / 32));
    }
}

/* A checkpoint with values, one FP8 matrix with a NaN in its last row. */
static fake_checkpoint *make(char *dir)
{
    fake_checkpoint *f = fake_create("nano", true);
    fake_tensor *t = fake_find(f, "layers.1.attn.wq_b.weight");

    for (size_t i = 0; i < f->n; i++)
        for (uint64_t k = 0; strcmp(f->tensors[i].dtype, "F8_E4M3") == 0 && k < f->tensors[i].bytes;
             k++)
            if ((f->tensors[i].data[k] & 0x7F) == 0x7F)
                f->tensors[i].data[k] = 0x7E;
    t->data[t->bytes - 1] = 0x7F;
    scratch_create(dir);
    fake_write(f, dir);
    return f;
}

static void same_bytes_whoever_reads(void **state)
{
    static const struct {
        pl_load_mode mode;
        int n_workers;
    } ways[] = {{PL_LOAD_BUFFERED, 1},
                {PL_LOAD_BUFFERED, 3},
                {PL_LOAD_DIRECT, 0},
                {PL_LOAD_DIRECT, 4},
                {PL_LOAD_AUTO, 2}};
    char dir[SCRATCH_PATH_BYTES];
    fake_checkpoint *f = make(dir);
    struct loaded one, other;
    pl_weight_view v;
    pl_error err;

    check_ok(load(dir, PL_LOAD_BUFFERED, 0, &one, &err), &err);
    assert_false(one.report.direct);
    v = pl_weights_view(one.weights, pl_weights_slots(one.weights)->layer[1].wq_b);
    assert_int_equal(v.layout, PL_WEIGHT_ROWS); /* the NaN */
    assert_memory_equal(v.data, fake_find(f, "layers.1.attn.wq_b.weight")->data,
                        (size_t)(v.rows * v.cols));
    v = pl_weights_view(one.weights, pl_weights_slots(one.weights)->layer[2].wq_b);
    assert_int_equal(v.layout, PL_WEIGHT_TILES);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        pl_status s = load(dir, ways[i].mode, ways[i].n_workers, &other, &err);

        if (s == PL_ERR_UNSUPPORTED && ways[i].mode == PL_LOAD_DIRECT) {
            print_message("no direct reads here: %s\n", err.msg);
        } else {
            check_ok(s, &err);
            assert_true(ways[i].mode == PL_LOAD_AUTO ||
                        other.report.direct == (ways[i].mode == PL_LOAD_DIRECT));
            assert_int_equal(other.report.bytes, one.report.bytes);
            check_same(&one, &other);
        }
        unload(&other);
    }
    unload(&one);
    fake_free(f);
    scratch_remove(dir);
}

/* Two tensors are wrong; whoever comes first to which, the first of the list is told. */
static void first_error_is_told(void **state)
{
    char dir[SCRATCH_PATH_BYTES];
    fake_checkpoint *f = make(dir);
    struct loaded l;
    pl_error err;

    fake_find(f, "layers.4.attn.wq_b.scale")->data[0] = 255;
    fake_find(f, "layers.2.attn.wq_b.scale")->data[0] = 255;
    fake_write(f, dir);
    for (int n = 0; n < 5; n++) {
        check_error(load(dir, PL_LOAD_BUFFERED, n, &l, &err), PL_ERR_CORRUPT, &err,
                    "layers.2.attn.wq_b.scale", "255", NULL);
        assert_null(l.weights);
        unload(&l);
    }
    fake_free(f);
    scratch_remove(dir);
}

/* Cuts the file of a tensor, or sets its time where `size` is negative. */
static void change(const char *dir, const char *shard, int64_t size)
{
    char file[SCRATCH_PATH_BYTES + 128];

    (void)snprintf(file, sizeof file, "%s/%s", dir, shard);
    if (size >= 0)
        assert_int_equal(truncate(file, size), 0);
    else
        assert_int_equal(utimensat(AT_FDCWD, file, (struct timespec[]){{1, 0}, {1, 0}}, 0), 0);
}

/* After it was opened: shorter, or only written to. */
static void changed_files_are_refused(void **state)
{
    static const int64_t sizes[] = {4096, -1};
    char dir[SCRATCH_PATH_BYTES];
    pl_error err;

    for (int i = 0; i < 2; i++) {
        fake_checkpoint *f = make(dir);
        const pl_load_params p = {.layout = PL_WEIGHT_TILES, .mode = PL_LOAD_BUFFERED};
        pl_checkpoint *c;
        pl_weights *w;
        void *memory;

        check_ok(pl_checkpoint_open(dir, &c, &err), &err);
        memory = aligned_alloc(64, (pl_weights_bytes(c) + 63) / 64 * 64);
        change(dir, pl_checkpoint_shard_name(c, 0), sizes[i]);
        check_error(pl_weights_load_as(c, memory, &p, &w, NULL, &err), PL_ERR_IO, &err,
                    "changed while it was being read", NULL);
        assert_null(w);
        pl_checkpoint_close(c);
        free(memory);
        fake_free(f);
        scratch_remove(dir);
    }
}

/* Of the same file, as if it had been cut short after the look at it: the reads themselves must notice. */
static void ends_of_files_are_noticed(void **state)
{
    char dir[SCRATCH_PATH_BYTES];
    fake_checkpoint *f = make(dir);
    pl_reader r = {.fd = -1, .shard = -1};
    pl_checkpoint_tensor t;
    pl_checkpoint *c;
    const uint8_t *data;
    pl_error err;
    pl_status s;

    check_ok(pl_checkpoint_open(dir, &c, &err), &err);
    t = pl_checkpoint_tensor_at(c, 0);
    for (int64_t i = 1; i < pl_checkpoint_n_tensors(c); i++)
        if (pl_checkpoint_tensor_at(c, i).begin > t.begin)
            t = pl_checkpoint_tensor_at(c, i);
    r.checkpoint = c;
    r.buffer = aligned_alloc(PL_READ_ALIGN, pl_reader_buffer_bytes(t.bytes));
    s = pl_reader_direct(&r, &t, 0, (size_t)t.bytes, &data, &err);
    if (s == PL_OK) { /* the last bytes of a file, which end within a block */
        assert_memory_equal(data, fake_find(f, t.name)->data, (size_t)t.bytes);
        change(dir, pl_checkpoint_shard_name(c, t.shard), (int64_t)(t.begin + t.bytes / 2));
        check_error(pl_reader_direct(&r, &t, 0, (size_t)t.bytes, &data, &err), PL_ERR_IO, &err,
                    t.name, "end of file", NULL);
    }
    change(dir, pl_checkpoint_shard_name(c, t.shard), (int64_t)(t.begin + t.bytes / 2));
    check_error(pl_checkpoint_read(c, &t, 0, r.buffer, (size_t)t.bytes, &err), PL_ERR_IO, &err,
                t.name, "end of file", NULL);
    pl_reader_close(&r);
    free(r.buffer);
    pl_checkpoint_close(c);
    fake_free(f);
    scratch_remove(dir);
}

/* More rows than one call takes, with gaps that keep what they hold; from the middle on; and up to where a file was cut. */
static void rows_are_read_with_gaps(void **state)
{
    enum { ROW = 48, GAP = 16, ROWS = 150, FIRST = 2 };
    char dir[SCRATCH_PATH_BYTES];
    fake_checkpoint *f = make(dir);
    static uint8_t got[ROWS * (ROW + GAP)];
    pl_checkpoint_tensor t = {0};
    pl_reader r = {.fd = -1};
    const uint8_t *want;
    pl_checkpoint *c;
    pl_error err;

    check_ok(pl_checkpoint_open(dir, &c, &err), &err);
    for (int64_t i = 0; i < pl_checkpoint_n_tensors(c) && t.bytes < (ROWS + FIRST) * ROW; i++)
        t = pl_checkpoint_tensor_at(c, i);
    assert_true(t.bytes >= (ROWS + FIRST) * ROW);
    want = fake_find(f, t.name)->data + FIRST * ROW;
    r.checkpoint = c;
    memset(got, 0xA5, sizeof got);
    check_ok(pl_reader_rows(&r, &t, FIRST * ROW, ROWS * ROW, ROW, GAP, got, &err), &err);
    for (int i = 0; i < ROWS; i++) {
        assert_memory_equal(got + i * (ROW + GAP), want + i * ROW, ROW);
        for (int k = 0; k < GAP; k++)
            assert_int_equal(got[i * (ROW + GAP) + ROW + k], 0xA5);
    }
    check_error(pl_reader_rows(&r, &t, t.bytes - ROW, 2 * ROW, ROW, GAP, got, &err), PL_ERR_INVALID,
                &err, t.name, "outside", NULL);
    change(dir, pl_checkpoint_shard_name(c, t.shard), (int64_t)(t.begin + 100 * ROW + 5));
    check_error(pl_reader_rows(&r, &t, FIRST * ROW, ROWS * ROW, ROW, GAP, got, &err), PL_ERR_IO,
                &err, t.name, "end of file", NULL);
    assert_int_equal(pl_reader_row_gap(2048), 0);
    assert_int_equal(pl_reader_row_gap(8192), 64);
    pl_checkpoint_close(c);
    fake_free(f);
    scratch_remove(dir);
}

static void modes_have_names(void **state)
{
    pl_load_mode mode;
    pl_error err;

    check_ok(pl_load_mode_parse(NULL, &mode, &err), &err);
    assert_int_equal(mode, PL_LOAD_AUTO);
    check_ok(pl_load_mode_parse("direct", &mode, &err), &err);
    assert_int_equal(mode, PL_LOAD_DIRECT);
    check_ok(pl_load_mode_parse("buffered", &mode, &err), &err);
    assert_int_equal(mode, PL_LOAD_BUFFERED);
    check_error(pl_load_mode_parse("fast", &mode, &err), PL_ERR_INVALID, &err, "fast", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_whoever_reads),  cmocka_unit_test(first_error_is_told),
        cmocka_unit_test(changed_files_are_refused), cmocka_unit_test(ends_of_files_are_noticed),
        cmocka_unit_test(rows_are_read_with_gaps),   cmocka_unit_test(modes_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
