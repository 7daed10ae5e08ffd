/* Calls of operators that go on from something: compressor, indexer, caches; and of sampling. */
#include <string.h>

#include "model_op_calls.h"
#include "support/check.h"

enum { N = CALL_ROWS, HEADS = 3, PAGE = 4, PAGES = 3, SLOTS = PAGE * PAGES, VOCAB = 100 };

/* Two sequences of both sides of a window. */
CALL(compress)
{
    enum { ROWS = 7, C = 64 };
    pl_op_compress_seq *seqs = call_take(m, 2 * sizeof *seqs, false);
    pl_op_compress_args a = {4, C, call_take_f32(m, (size_t)4 * 2 * C), 2, seqs};

    for (int i = 0; i < 2; i++) {
        seqs[i] = (pl_op_compress_seq){.n = ROWS - i, .start = 0};
        seqs[i].state = call_take_out(m, (size_t)pl_op_compress_state_bytes(4, C));
        seqs[i].kv = call_take_f32(m, (size_t)ROWS * 2 * C);
        seqs[i].gate = call_take_f32(m, (size_t)ROWS * 2 * C);
        seqs[i].pooled = call_take_out(m, (size_t)C * 2);
        check_ok(pl_op_compress_reset(4, C, seqs[i].state, err), err);
    }
    if (f == CALL_OVERLAP)
        seqs[1].pooled = call_across(seqs[0].kv);
    else if (f == CALL_MISSING)
        seqs[1].pooled = NULL;
    else if (f == CALL_NEGATIVE)
        seqs[1].n = -1;
    else if (f == CALL_EMPTY)
        a.n_seqs = 0, a.seqs = NULL, a.ape = NULL;
    return pl_op_compress(call_ready(m, context, f), &a, err);
}

/* ---- indexer */

enum { INDEX_ROW = 68, INDEX_PAGE = PAGE * INDEX_ROW + 12 };

static pl_op_index_cache index_cache(call_memory *m, bool out)
{
    return (pl_op_index_cache){
        out ? call_take_out(m, PAGES * INDEX_PAGE)
            : memset(call_take(m, PAGES * INDEX_PAGE, false), m->poison, PAGES * INDEX_PAGE),
        PAGE, PAGES, INDEX_PAGE};
}

CALL(index_insert)
{
    pl_op_index_insert_args a = {.n = N};

    a.frequencies = call_take_frequencies(m);
    a.positions = call_take_ids(m, N, 1000);
    a.slots = call_take_ids(m, N, SLOTS);
    a.y = call_take_bf16(m, (size_t)N * 128, false);
    a.cache = index_cache(m, true);
    SPOIL(a, f, n, cache.data, y);
    if (f == CALL_EMPTY)
        a.cache.n_pages = 0;
    return pl_op_index_insert(call_ready(m, context, f), &a, err);
}

CALL(index_query)
{
    pl_op_index_query_args a = {.n = N, .n_heads = HEADS};

    a.frequencies = call_take_frequencies(m);
    a.positions = call_take_ids(m, N, 1000);
    a.q = call_take_bf16(m, (size_t)N * HEADS * 128, false);
    a.out = call_take_out(m, (size_t)N * HEADS * INDEX_ROW);
    SPOIL(a, f, n, out, q);
    return pl_op_index_query(call_ready(m, context, f), &a, err);
}

/* Rows behind those that a token sees are poison, so is the rest of the pages. */
CALL(index_topk)
{
    enum { SEEN = 9, TOP = 4, STRIDE = SEEN + 2 };
    pl_op_index_topk_args a = {.n = 2, .n_heads = HEADS, .topk = TOP, .factor = 0.25f};
    pl_op_index_cache cache = index_cache(m, false), *keys = call_take(m, sizeof *keys, false);
    const uint64_t bytes = pl_ops_workspace_bytes(context);
    uint8_t *query = call_take(m, (size_t)2 * HEADS * INDEX_ROW, false);
    int32_t *visible = call_take(m, 2 * sizeof *visible, false);

    for (int i = 0; i < SEEN; i++) {
        uint8_t *page = (uint8_t *)cache.data + (ptrdiff_t)i / PAGE * INDEX_PAGE;
        for (int d = 0; d < 64; d++)
            page[i % PAGE * 64 + d] = (uint8_t)call_next(m);
        memset(page + (size_t)PAGE * 64 + (size_t)i % PAGE * 4, 120 + i % 3, 4);
    }
    for (int i = 0; i < 2 * HEADS * INDEX_ROW; i++)
        query[i] = (uint8_t)(i % (HEADS * INDEX_ROW) < HEADS * 64 ? call_next(m) : 121);
    *keys = cache;
    visible[0] = SEEN;
    visible[1] = 3;
    a.query = query;
    a.w = call_take_bf16(m, 2 * HEADS, false);
    a.n_seqs = 1;
    a.keys = keys;
    a.n_visible = visible;
    a.selected = call_take_out(m, (size_t)2 * TOP * 4);
    a.n_selected = call_take_out(m, 2 * 4);
    a.scores = call_take_out(m, (size_t)2 * STRIDE * 4);
    a.scores_stride = STRIDE;
    assert_true(bytes <= sizeof m->workspace);
    memset(m->workspace, m->poison, sizeof m->workspace);
    SPOIL(a, f, n, selected, query);
    return pl_op_index_topk(call_ready(m, context, f), &a, m->workspace, bytes, err);
}

/* ---- sampling */

/* What pl_op_sample_workspace_bytes asks for; its contents are nobody's. */
static void *take_workspace(call_memory *m, uint64_t bytes)
{
    void *p;

    m->used = (m->used + 63) / 64 * 64;
    p = call_take(m, (size_t)bytes, true);
    memset(p, m->poison, (size_t)bytes);
    return p;
}

CALL(gumbel)
{
    struct {
        int32_t n;
        float *out;
    } a = {77, call_take_out(m, 77 * 4)};

    if (f == CALL_EMPTY)
        a.n = 0;
    a.n = f == CALL_NEGATIVE ? -1 : a.n;
    a.out = f == CALL_MISSING || f == CALL_EMPTY ? NULL : a.out;
    if (f == CALL_OVERLAP) /* no input that it could lie across */
        a.out = (float *)(void *)((uint8_t *)a.out + 1);
    return pl_op_gumbel(call_ready(m, context, f), 7, 3, 0, 5, a.n, a.out, err);
}

CALL(penalise)
{
    pl_op_penalise_args a = {.vocab = VOCAB, .repetition = 1.5f, .frequency = 0.5f, .presence = 1};
    const uint64_t bytes = pl_op_sample_workspace_bytes(VOCAB);
    void *workspace = take_workspace(m, bytes);
    pl_status status;

    a.logits = call_take_f32(m, VOCAB);
    a.n_bias = a.n_prompt = a.n_output = N;
    a.bias_tokens = call_take_ids(m, N, VOCAB);
    a.bias = call_take_f32(m, N);
    a.prompt = call_take_ids(m, N, VOCAB);
    a.output = call_take_ids(m, N, 3);
    a.out = call_take_out(m, VOCAB * 4);
    SPOIL(a, f, n_output, out, logits);
    status = pl_op_penalise(call_ready(m, context, f), &a, workspace, bytes, err);
    if (f == CALL_RIGHT)
        memset(workspace, 0, (size_t)bytes);
    return status;
}

CALL(log_softmax)
{
    struct {
        int32_t n;
        const float *logits;
        float *out;
    } a = {N, call_take_f32(m, (size_t)N * VOCAB), NULL};

    a.out = call_take_out(m, (size_t)N * VOCAB * 4);
    SPOIL(a, f, n, out, logits);
    return pl_op_log_softmax(call_ready(m, context, f), a.n, VOCAB, a.logits, a.out, err);
}

/* Logits of ids that may not be chosen are poison. */
CALL(sample)
{
    pl_op_sample_args a = {.vocab = VOCAB, .temperature = 0.7f, .top_k = 9, .top_p = 0.9f};
    const uint64_t bytes = pl_op_sample_workspace_bytes(VOCAB);
    void *workspace = take_workspace(m, bytes);
    uint32_t *allowed = call_take(m, (VOCAB + 31) / 32 * sizeof *allowed, false);
    float *logits = call_take_f32(m, VOCAB);
    pl_status status;

    memset(allowed, 0, (VOCAB + 31) / 32 * sizeof *allowed);
    for (int i = 0; i < VOCAB; i++) {
        if (i % 3)
            allowed[i / 32] |= 1u << i % 32;
        else
            memset(logits + i, m->poison, sizeof *logits);
    }
    a.min_p = 0.01f;
    a.allowed = allowed;
    a.logits = logits;
    a.token = call_take_out(m, 4);
    a.probabilities = call_take_out(m, VOCAB * 4);
    SPOIL(a, f, vocab, probabilities, logits);
    if (f == CALL_MISSING)
        a.token = NULL;
    status = pl_op_sample(call_ready(m, context, f), &a, workspace, bytes, err);
    if (f == CALL_RIGHT)
        memset(workspace, 0, (size_t)bytes);
    return status;
}

/* ---- caches of keys */

enum { V4_PAGE = PAGE * 584 + 24, V32_PAGE = PAGE * 656 + 24 };

/* Rows of the slots 2, 9, 4, 11, 6 hold numbers, if they are to be read; all else is poison. */
static void *take_pages(call_memory *m, int64_t page, const int32_t *slots, bool v32)
{
    uint8_t *data =
        memset(call_take(m, (size_t)page * PAGES, false), m->poison, (size_t)page * PAGES);
    const float one = 1;

    for (int i = 0; i < N; i++) {
        uint8_t *at = data + slots[i] / PAGE * page;
        uint8_t *row = at + (ptrdiff_t)(slots[i] % PAGE) * (v32 ? 656 : 576);
        for (int d = 0; d < (v32 ? 512 : 448); d++)
            row[d] = (uint8_t)(call_next(m) % 0x70);
        for (int d = 0; d < 64; d++)
            memcpy(row + (v32 ? 528 : 448) + (ptrdiff_t)2 * d, &(uint16_t){0x3F80}, 2);
        if (v32)
            for (int b = 0; b < 4; b++)
                memcpy(row + 512 + (ptrdiff_t)4 * b, &one, sizeof one);
        else
            memset(at + PAGE * 576 + (ptrdiff_t)(slots[i] % PAGE) * 8, 126, 8);
    }
    return data;
}

typedef struct kv_call {
    pl_kv_cache cache;
    int64_t n;
    const int32_t *slots;
    uint16_t *x;
    int64_t stride;
    pl_kv_parts parts;
} kv_call;

CALL(kv_insert)
{
    kv_call a = {.n = N, .slots = call_take_ids(m, N, SLOTS), .stride = 600};

    a.x = call_take_bf16(m, (N - 1) * 600 + 512, false);
    for (int i = 0; i < N - 1; i++)
        memset(a.x + (ptrdiff_t)i * 600 + 512, m->poison, 88 * 2);
    a.cache = (pl_kv_cache){PL_KV_V4, 512, call_take_out(m, V4_PAGE * PAGES), PAGE, PAGES, V4_PAGE};
    SPOIL(a, f, n, cache.data, x);
    if (f == CALL_EMPTY)
        a.cache.n_pages = 0;
    return pl_kv_insert(call_ready(m, context, f), &a.cache, a.n, a.slots, a.x, a.stride, err);
}

static pl_status gather(call_memory *m, pl_ops_context *context, call_fault f, bool v32,
                        pl_error *err)
{
    const int32_t dim = v32 ? 576 : 512;
    const int64_t page = v32 ? V32_PAGE : V4_PAGE;
    kv_call a = {.n = N, .slots = call_take_ids(m, N, SLOTS), .stride = 600};

    a.cache = (pl_kv_cache){v32 ? PL_KV_V32 : PL_KV_V4,  dim, NULL, PAGE,
                            f == CALL_EMPTY ? 0 : PAGES, page};
    a.cache.data = take_pages(m, page, a.slots, v32);
    a.x = call_take_out(m, (size_t)N * 600 * 2);
    SPOIL(a, f, n, x, slots);
    return pl_kv_gather(call_ready(m, context, f), &a.cache, a.n, a.slots, a.x, a.stride, err);
}

CALL(kv_gather)
{
    return gather(m, context, f, false, err);
}

CALL(kv_gather_v32)
{
    return gather(m, context, f, true, err);
}

CALL(kv_pack)
{
    kv_call a = {.n = N, .slots = call_take_ids(m, N, SLOTS)};

    a.parts.codes = call_take(m, (size_t)N * 512, false);
    memset(a.parts.codes, 0x41, (size_t)N * 512);
    a.parts.scales = call_take_f32(m, (size_t)N * 4);
    a.parts.rope = call_take_bf16(m, (size_t)N * 64, false);
    a.cache =
        (pl_kv_cache){PL_KV_V32, 576, call_take_out(m, V32_PAGE * PAGES), PAGE, PAGES, V32_PAGE};
    SPOIL(a, f, n, cache.data, parts.codes);
    if (f == CALL_EMPTY)
        a.cache.n_pages = 0;
    return pl_kv_pack(call_ready(m, context, f), &a.cache, a.n, a.slots, &a.parts, err);
}

CALL(kv_unpack)
{
    kv_call a = {.n = N, .slots = call_take_ids(m, N, SLOTS)};

    a.cache = (pl_kv_cache){PL_KV_V4, 512, NULL, PAGE, f == CALL_EMPTY ? 0 : PAGES, V4_PAGE};
    a.cache.data = take_pages(m, V4_PAGE, a.slots, false);
    a.parts.codes = call_take_out(m, (size_t)N * 448);
    a.parts.scales = call_take_out(m, (size_t)N * 8);
    a.parts.rope = call_take_out(m, (size_t)N * 64 * 2);
    SPOIL(a, f, n, parts.codes, cache.data);
    return pl_kv_unpack(call_ready(m, context, f), &a.cache, a.n, a.slots, &a.parts, err);
}
