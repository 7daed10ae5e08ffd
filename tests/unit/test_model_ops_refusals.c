/* What the public operators around attention refuse: the text names the argument, its value and what would be right, and
 * nothing has been written. Those of rows: test_model_ops_rows.c. */
#include "plimsoll/model_ops.h"

#include <math.h>
#include <string.h>

#include "support/contexts.h"

#define REFUSE(change, call, ...)                                                 \
    do {                                                                          \
        change;                                                                   \
        check_error(call, PL_ERR_INVALID, &err, __VA_ARGS__, (const char *)NULL); \
    } while (0)

/* Everything that outputs may point to. */
static _Alignas(64) uint8_t memory[1 << 16];

static void check_untouched(void)
{
    for (size_t i = 0; i < sizeof memory; i++)
        assert_int_equal(memory[i], 0x11);
}

static void *at(size_t offset)
{
    return memory + offset;
}

static void streams(void **state)
{
    pl_ops_context *c = contexts_scalar();
    pl_op_hc_pre_args a = {.n = 1,
                           .dim = 8,
                           .rms_eps = 0,
                           .hc_eps = 0,
                           .sinkhorn_iters = 1,
                           .fn = at(0),
                           .base = at(4096),
                           .scale = at(4352),
                           .x = at(5000),
                           .dots = at(8192),
                           .y = at(9000),
                           .post = at(10000),
                           .comb = at(11000)};
    pl_op_hc_post_args b = {1, 8, at(0), at(1000), at(2000), at(3000)};
    pl_op_hc_head_args h = {1, 8, 0, 0, at(0), at(4096), at(4352), at(5000), at(8192), at(9000)};
    pl_error err;

    memset(memory, 0x11, sizeof memory);
    REFUSE((void)0, pl_op_hc_pre(NULL, &a, &err), "context");
    REFUSE(a.sinkhorn_iters = 0, pl_op_hc_pre(c, &a, &err), "sinkhorn_iters", "0", "1 .. 1000");
    REFUSE((a.sinkhorn_iters = 2, a.hc_eps = -1), pl_op_hc_pre(c, &a, &err), "hc_eps", "-1");
    REFUSE((a.hc_eps = 0, a.dim = 0), pl_op_hc_pre(c, &a, &err), "dim", "0");
    REFUSE((a.dim = 8, a.dots = at(5000)), pl_op_hc_pre(c, &a, &err), "dots", "overlaps x");
    REFUSE((a.dots = at(8192), a.y = at(8192)), pl_op_hc_pre(c, &a, &err), "overlaps y");
    REFUSE(b.x = at(2), pl_op_hc_post(c, &b, &err), "x", "overlaps f");
    REFUSE((b.x = at(3000), b.comb = at(2002)), pl_op_hc_post(c, &b, &err), "comb", "aligned");
    REFUSE(h.fn = NULL, pl_op_hc_head(c, &h, &err), "fn: missing");
    check_untouched();
    pl_ops_context_destroy(c);
}

static void compressor(void **state)
{
    pl_ops_context *c = contexts_scalar();
    pl_op_compress_seq seqs[2] = {{at(0), at(20000), at(30000), 4, 0, at(8000)},
                                  {at(10000), at(20000), at(30000), 4, 0, at(17000)}};
    pl_op_compress_args a = {4, 64, at(40000), 2, seqs};
    pl_error err;

    memset(memory, 0x11, sizeof memory);
    REFUSE(a.ratio = 8, pl_op_compress(c, &a, &err), "ratio", "8", "4 or 128");
    REFUSE((a.ratio = 4, a.dim = 65), pl_op_compress(c, &a, &err), "dim", "65", "64");
    REFUSE((a.dim = 64, seqs[1].n = -1), pl_op_compress(c, &a, &err), "seqs[1].n", "-1");
    REFUSE((seqs[1].n = 4, seqs[1].start = -5), pl_op_compress(c, &a, &err), "seqs[1].start", "-5");
    REFUSE((seqs[1].start = 0, seqs[1].state = at(4)), pl_op_compress(c, &a, &err), "seqs.state",
           "overlaps");
    REFUSE((seqs[1].state = at(10000), seqs[1].pooled = NULL), pl_op_compress(c, &a, &err),
           "seqs.pooled: missing");
    REFUSE(seqs[1].pooled = at(40000), pl_op_compress(c, &a, &err), "seqs.pooled", "overlaps ape");
    REFUSE((void)0, pl_op_compress_reset(5, 64, at(0), &err), "ratio", "5");
    REFUSE((void)0, pl_op_compress_reset(4, 64, at(1), &err), "state");
    check_untouched();
    pl_ops_context_destroy(c);
}

static void indexer(void **state)
{
    static const float freq[32] = {0};
    static int32_t positions[2] = {0, 1}, slots[2] = {0, 4}, visible[2] = {1, 5};
    static _Alignas(64) uint8_t workspace[1 << 20];
    pl_ops_context *c = contexts_scalar();
    pl_op_index_insert_args i = {2, freq, positions, slots, at(0), {at(4096), 4, 1, 0}};
    pl_op_index_query_args q = {2, 1, freq, positions, at(0), at(8000)};
    pl_op_index_cache cache = {at(4096), 4, 1, 0};
    pl_op_index_topk_args k = {.n = 2,
                               .n_heads = 1,
                               .topk = 2,
                               .factor = 1,
                               .query = at(0),
                               .w = at(1000),
                               .n_seqs = 1,
                               .keys = &cache,
                               .n_visible = visible,
                               .selected = at(12000),
                               .n_selected = at(13000)};
    const uint64_t bytes = pl_ops_workspace_bytes(c);
    pl_error err;

    assert_true(bytes <= sizeof workspace);
    memset(memory, 0x11, sizeof memory);
    REFUSE((void)0, pl_op_index_insert(c, &i, &err), "slots[1]", "4", "-1 .. 3");
    REFUSE((slots[1] = 3, positions[1] = -1), pl_op_index_insert(c, &i, &err), "positions[1]",
           "-1");
    REFUSE((positions[1] = 1, i.cache.page_bytes = 271), pl_op_index_insert(c, &i, &err),
           "cache.page_bytes", "271", "272");
    REFUSE((i.cache.page_bytes = 0, i.y = at(4096 + 270)), pl_op_index_insert(c, &i, &err), "cache",
           "overlaps y");
    REFUSE((i.y = at(0), i.cache.n_pages = INT64_MAX), pl_op_index_insert(c, &i, &err),
           "cache.n_pages");
    REFUSE(q.n_heads = 2000, pl_op_index_query(c, &q, &err), "n_heads", "2000", "1 .. 1024");
    REFUSE((q.n_heads = 1, q.out = at(511)), pl_op_index_query(c, &q, &err), "out", "overlaps q");
    REFUSE((void)0, pl_op_index_topk(c, &k, workspace, bytes, &err), "n_visible[1]", "5", "0 .. 4");
    REFUSE((visible[1] = 4, k.topk = 5000), pl_op_index_topk(c, &k, workspace, bytes, &err), "topk",
           "5000", "1 .. 4096");
    REFUSE((void)(k.topk = 2), pl_op_index_topk(c, &k, workspace, bytes - 1, &err),
           "workspace_bytes");
    REFUSE(k.n_seqs = 0, pl_op_index_topk(c, &k, workspace, bytes, &err), "n_seqs", "0");
    REFUSE((k.n_seqs = 1, k.selected = at(4100)), pl_op_index_topk(c, &k, workspace, bytes, &err),
           "selected", "overlaps keys");
    REFUSE((k.selected = at(12000), k.n_selected = (void *)workspace),
           pl_op_index_topk(c, &k, workspace, bytes, &err), "n_selected", "workspace");
    check_untouched();
    pl_ops_context_destroy(c);
}

static void experts(void **state)
{
    static int64_t table[2][2] = {{0, 1}, {2, 9}};
    static int32_t tokens[2] = {0, 1};
    pl_ops_context *c = contexts_scalar();
    pl_op_route_args r = {.n = 2,
                          .n_experts = 9,
                          .top_k = 2,
                          .scale = 1,
                          .logits = at(0),
                          .table = table[0],
                          .n_vocab = 2,
                          .tokens = tokens,
                          .scores = at(1000),
                          .ids = at(2000),
                          .weights = at(3000)};
    pl_op_swiglu_args g = {2, 8, 10, at(0), at(100), NULL, at(98)};
    pl_op_swiglu7_args s = {2, 8, PL_DTYPE_FP16, at(0), at(100), at(200)};
    pl_error err;

    memset(memory, 0x11, sizeof memory);
    REFUSE((void)0, pl_op_route(c, &r, &err), "table[1][1]", "9", "0 .. 8");
    REFUSE((table[1][1] = 8, tokens[0] = 2), pl_op_route(c, &r, &err), "tokens[0]", "2", "0 .. 1");
    REFUSE((tokens[0] = 0, r.top_k = 10), pl_op_route(c, &r, &err), "top_k", "10", "1 .. 9");
    REFUSE((r.top_k = 2, r.bias = at(500)), pl_op_route(c, &r, &err), "bias");
    REFUSE((r.bias = NULL, r.scores = at(4)), pl_op_route(c, &r, &err), "scores",
           "overlaps logits");
    REFUSE((void)0, pl_op_swiglu(c, &g, &err), "a", "overlaps u");
    REFUSE((g.a = at(0), g.limit = NAN), pl_op_swiglu(c, &g, &err), "limit", "nan");
    REFUSE((void)0, pl_op_swiglu7(c, &s, &err), "dtype", "1", "0 or 2");
    REFUSE((s.dtype = PL_DTYPE_BF16, s.a = at(0)), pl_op_swiglu7(c, &s, &err), "a", "overlaps g");
    REFUSE((void)0, pl_op_map(c, (pl_op_function)5, 1, at(0), at(4), &err), "function", "5");
    REFUSE((void)0, pl_op_map(c, PL_OP_EXP, 2, at(0), at(4), &err), "y", "overlaps x");
    REFUSE((void)0, pl_op_map(c, PL_OP_EXP, -1, at(0), at(0), &err), "n", "-1");
    check_untouched();
    pl_ops_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams),
        cmocka_unit_test(compressor),
        cmocka_unit_test(indexer),
        cmocka_unit_test(experts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
