/* Chains and regions: every unit of every operator runs once, behind all that it may read, in as few regions as promised.
 * The operators here do nothing but look. */
#include <stdatomic.h>
#include <stdlib.h>

#include "ops/run.h"
#include "support/check.h"

enum { MAX_ROWS = 130, HEADS = 64, OUTPUTS = 5, MATRIX_ROWS = 50, LINKS = 6 };

/* Of each link of the chain under test: how often a unit ran, how many units of a row are done. */
struct seen {
    _Atomic int hits[LINKS][MAX_ROWS * HEADS];
    _Atomic int done[LINKS][MAX_ROWS];
    _Atomic int early; /* units that ran before what they read */
};

static struct seen *seen;
static const int per[LINKS] = {1, OUTPUTS, 1, HEADS, HEADS, 1};

/* Link k's units [begin, end). Of the link before, heads read the same head where that counts in heads, else the row. */
static void look(int k, int64_t begin, int64_t end)
{
    for (int64_t u = begin; u < end; u++) {
        const int64_t row = u / per[k];

        if (k == 4)
            atomic_fetch_add(&seen->early, atomic_load(&seen->hits[3][u]) != 1);
        else if (k > 0)
            atomic_fetch_add(&seen->early, atomic_load(&seen->done[k - 1][row]) != per[k - 1]);
        atomic_fetch_add(&seen->hits[k][u], 1);
        atomic_fetch_add(&seen->done[k][row], 1);
    }
}

#define FAKE(name, k)                                                                       \
    static void name(const pl_op_env *e, const pl_##name##_args *a, int64_t b, int64_t end) \
    {                                                                                       \
        look(k, b, end);                                                                    \
    }
FAKE(hc_post, 0)
FAKE(hc_dots, 1)
FAKE(hc_pre, 2)
FAKE(q_norm_rope, 3)
FAKE(unrope, 4)

/* y[t] counts the units that were run for token t; x tells which token it is. */
static void linear(const pl_op_env *env, const pl_linear_job *job, int64_t begin, int64_t end)
{
    for (int32_t t = 0; t < job->n; t++) {
        const int32_t row = *(const int32_t *)((const char *)job->x + t * job->x_stride);

        atomic_fetch_add((_Atomic int *)(void *)((char *)job->y + t * job->y_stride),
                         (int)(end - begin));
        atomic_fetch_add(&seen->early, atomic_load(&seen->done[4][row]) != HEADS);
    }
}

static const pl_ops fakes = {
    .hc_post = hc_post,
    .hc_dots = hc_dots,
    .hc_pre = hc_pre,
    .q_norm_rope = q_norm_rope,
    .unrope = unrope,
    .linear_bf16 = linear,
};

static int32_t x[MAX_ROWS];
static _Atomic int y[MAX_ROWS];

static pl_linear_job job_of(int32_t n)
{
    return (pl_linear_job){
        .w = {.format = PL_WEIGHT_BF16, .rows = MATRIX_ROWS, .cols = 1 << 20},
        .n_rows = MATRIX_ROWS,
        .x = x,
        .x_stride = sizeof x[0],
        .n = n,
        .y = y,
        .y_stride = sizeof y[0],
    };
}

/* Sizes are large on purpose: nothing is too little to share. */
static void fill(pl_chain *c, int64_t n)
{
    const pl_linear_job job = job_of((int32_t)n);
    const pl_weight_view fn = {.rows = OUTPUTS - 1, .cols = 1 << 20};

    pl_chain_begin(c, n);
    pl_chain_hc_post(c, &(pl_hc_post_args){.dim = 1 << 20});
    pl_chain_hc_dots(c, &(pl_hc_dots_args){.fn = fn});
    pl_chain_hc_pre(c, &(pl_hc_pre_args){.dim = 1 << 20});
    pl_chain_q_norm_rope(c, &(pl_q_norm_rope_args){.n_heads = HEADS});
    pl_chain_unrope(c, &(pl_unrope_args){.n_heads = HEADS});
    pl_chain_linear(c, &job);
}

static struct {
    pl_exec x;
    pl_op_env env[64];
} on;

static void open_pool(int n_workers)
{
    pl_error err;

    assert_int_equal(
        pl_pool_create(&(pl_pool_params){.n_workers = n_workers, .no_pin = true}, &on.x.pool, &err),
        PL_OK);
    on.x.ops = &fakes;
    on.x.env = on.env;
    on.x.profile = aligned_alloc(64, (pl_profile_bytes(n_workers) + 63) / 64 * 64);
    assert_non_null(on.x.profile);
}

static void close_pool(void)
{
    pl_pool_destroy(on.x.pool);
    free(on.x.profile);
}

static void start(int n_workers)
{
    for (int32_t t = 0; t < MAX_ROWS; t++) {
        x[t] = t;
        atomic_store(&y[t], 0);
    }
    free(seen);
    seen = calloc(1, sizeof *seen);
    assert_non_null(seen);
    pl_profile_reset(on.x.profile, n_workers);
}

static void check_all_ran(int64_t n)
{
    assert_int_equal(seen->early, 0);
    for (int64_t t = 0; t < MAX_ROWS; t++) {
        for (int k = 0; k < 5; k++)
            for (int64_t u = 0; u < per[k]; u++)
                assert_int_equal(seen->hits[k][t * per[k] + u], t < n);
        assert_int_equal(y[t], t < n ? (MATRIX_ROWS + PL_TILE_ROWS - 1) / PL_TILE_ROWS : 0);
    }
}

static void every_unit_once_and_in_order(void **unused)
{
    static const int workers[] = {1, 2, 3, 16};
    static const int32_t rows[] = {1, 2, 3, 5, 6, 31, 32, 33, MAX_ROWS};
    pl_chain c;

    for (size_t w = 0; w < sizeof workers / sizeof workers[0]; w++) {
        open_pool(workers[w]);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            start(workers[w]);
            fill(&c, rows[i]);
            pl_chain_run(&on.x, &c);
            assert_int_equal(c.n_links, 0);
            check_all_ran(rows[i]);
            assert_int_equal(on.x.profile->op[PL_PROFILE_unrope].calls, 1);
        }
        close_pool();
    }
}

/* Many rows: workers meet once. One row: behind outputs, heads and the matrix. */
static void workers_meet_as_seldom_as_promised(void **unused)
{
    pl_chain c;

    open_pool(2);
    start(2);
    fill(&c, 4);
    pl_chain_run(&on.x, &c);
    assert_int_equal(on.x.profile->regions, 1);
    start(2);
    fill(&c, 1);
    pl_chain_run(&on.x, &c);
    check_all_ran(1);
    assert_int_equal(on.x.profile->regions, 2 + 1);
    start(2);
    fill(&c, 0);
    pl_chain_run(&on.x, &c);
    assert_int_equal(on.x.profile->regions, 0);
    close_pool();
}

enum { N_MARKS = 77 };

static void mark(const pl_exec *x_, int worker, const void *user, int64_t begin, int64_t end)
{
    _Atomic int *at = (_Atomic int *)(uintptr_t)user;

    for (int64_t u = begin; u < end; u++)
        atomic_fetch_add(&at[u], 1);
}

/* Two chains, a piece and a list of layers in one region; the layers' tokens read nothing of the chains. */
static void side_by_side(void **unused)
{
    static const int workers[] = {1, 2, 5};
    static _Atomic int marks[N_MARKS];
    pl_chain rows, heads;

    for (size_t w = 0; w < sizeof workers / sizeof workers[0]; w++) {
        pl_linear_job jobs[3] = {job_of(7), job_of(0), job_of(9)};

        open_pool(workers[w]);
        start(workers[w]);
        for (int32_t t = 0; t < MAX_ROWS; t++) {
            atomic_store(&seen->done[2][t], 1);
            atomic_store(&seen->done[4][t], HEADS);
        }
        pl_chain_begin(&rows, 11);
        pl_chain_hc_post(&rows, &(pl_hc_post_args){.dim = 1 << 20});
        pl_chain_hc_dots(&rows, &(pl_hc_dots_args){.fn = {.rows = OUTPUTS - 1, .cols = 1 << 20}});
        pl_chain_begin(&heads, 3);
        pl_chain_q_norm_rope(&heads, &(pl_q_norm_rope_args){.n_heads = HEADS});
        pl_run_together(&on.x, &(pl_together){
                                   .chains = (pl_chain *const[]){&rows, &heads},
                                   .n_chains = 2,
                                   .pieces = &(pl_piece){mark, marks, N_MARKS, 1 << 20},
                                   .n_pieces = 1,
                                   .jobs = jobs,
                                   .n_jobs = 3,
                               });
        for (int64_t u = 0; u < N_MARKS; u++)
            assert_int_equal(marks[u], w + 1);
        assert_int_equal(seen->early, 0);
        assert_int_equal(rows.n_links + heads.n_links, 0);
        for (int64_t t = 0; t < MAX_ROWS; t++) {
            assert_int_equal(seen->hits[0][t], t < 11);
            for (int64_t u = 0; u < OUTPUTS; u++)
                assert_int_equal(seen->hits[1][t * OUTPUTS + u], t < 11);
            for (int64_t u = 0; u < HEADS; u++)
                assert_int_equal(seen->hits[3][t * HEADS + u], t < 3);
            assert_int_equal(y[t], 4 * (t < 7) + 4 * (t < 9));
        }
        assert_int_equal(on.x.profile->regions, workers[w] > 1);
        close_pool();
    }
}

/* What is too little for two tiles stays on the calling thread. */
static void little_is_not_shared(void **unused)
{
    pl_chain c;

    open_pool(4);
    start(4);
    pl_chain_begin(&c, 8);
    pl_chain_hc_post(&c, &(pl_hc_post_args){.dim = 8});
    pl_chain_run(&on.x, &c);
    assert_int_equal(on.x.profile->regions, 0);
    for (int64_t t = 0; t < MAX_ROWS; t++)
        assert_int_equal(seen->hits[0][t], t < 8);
    pl_run_attention(&on.x, &(pl_attention_args){.n_heads = 0}, 8);
    assert_int_equal(on.x.profile->op[PL_PROFILE_attention].calls, 0);
    close_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_unit_once_and_in_order),
        cmocka_unit_test(workers_meet_as_seldom_as_promised),
        cmocka_unit_test(side_by_side),
        cmocka_unit_test(little_is_not_shared),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    free(seen);
    return failed;
}
