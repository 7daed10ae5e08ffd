/* The checked entries of the indexer: keys into a cache, queries to the same form, scores and the choice of rows. With fewer
 * tokens than workers a token's rows are shared out in parts, whose best are merged by the total order: the choice does
 * not depend on it. */
#include <inttypes.h>
#include <string.h>

#include "attention/arrays.h"
#include "base/error.h"
#include "plimsoll/model_ops.h"

enum {
    CODES = PL_INDEX_DIM / 2,
    SCALES = PL_INDEX_DIM / 32,
    ROW = CODES + SCALES,
    MAX_HEADS = 1024,
    MAX_TOP = 4096,
    MAX_SEQS = 1024,
    LAST_POSITION = (1 << 24) - 1,
    MAX_ROWS = 1 << 29, /* four positions a row fit a position's 31 bits */
    HEAP_BYTES = MAX_TOP * (int)(sizeof(double) + sizeof(int32_t)),
    BEST_BYTES = MAX_TOP * (int)(sizeof(float) + sizeof(int32_t)) + (int)sizeof(int32_t),
};

_Static_assert(HEAP_BYTES % 64 == 0 && HEAP_BYTES + BEST_BYTES <= (int)PL_VARLEN_SCRATCH_BYTES,
               "workspace");

static pl_status check_cache(const char *name, const pl_op_index_cache *c, pl_rows *rows,
                             pl_extent *extent, pl_error *err)
{
    int64_t page = (int64_t)c->page_size * ROW, bytes = page;

    PL_CHECK(c->page_size >= 1, err, "%s.page_size: no page (got %d, want 1 or more)", name,
             c->page_size);
    PL_CHECK(c->n_pages >= 0, err, "%s.n_pages: negative (got %" PRId64 ", want 0 or more)", name,
             c->n_pages);
    PL_CHECK(c->page_bytes == 0 || c->page_bytes >= page, err,
             "%s.page_bytes: pages overlap (got %" PRId64 ", want 0, or %" PRId64 " or more)", name,
             c->page_bytes, page);
    PL_CHECK(c->n_pages == 0 || c->data, err, "%s.data: missing (got NULL, want a pointer)", name);
    page = c->page_bytes ? c->page_bytes : page;
    PL_CHECK(pl__reach(c->n_pages, page, &bytes) &&
                 (uint64_t)bytes <= UINTPTR_MAX - (uintptr_t)c->data &&
                 c->n_pages <= MAX_ROWS / c->page_size,
             err, "%s.n_pages: too many (got %" PRId64 ", want up to %d)", name, c->n_pages,
             MAX_ROWS / c->page_size);
    *rows = (pl_rows){c->data, page, c->page_size, CODES, SCALES};
    *extent = pl__extent_of(name, c->n_pages ? c->data : NULL, bytes, 1);
    return PL_OK;
}

static pl_array of_extent(const pl_extent *e, int kind)
{
    return (pl_array){
        e->name, (const void *)e->begin, e->end > e->begin, (int64_t)(e->end - e->begin), 1, kind,
        NULL};
}

/* ---- keys and queries */

typedef struct rows_run {
    const pl_ops *ops;
    const float *freq;
    const int32_t *position, *slots;
    const uint16_t *x;
    pl_rows rows;
    int64_t n, units;
    int32_t n_heads;
    uint8_t *out;
} rows_run;

static void form_angles(const rows_run *r, int64_t t, float *cosines, float *sines)
{
    const pl_rope_angles_args a = {r->freq, r->position + t, cosines, sines};
    const pl_op_env env = {.mode = PL_MODE_REC};

    r->ops->rope_angles(&env, &a, 0, 1);
}

/* Slots that leave this remainder, in the order of the list: of two rows for one slot the later stays. */
static void insert_unit(void *user, int64_t unit, int worker)
{
    const rows_run *r = user;
    float cosines[PL_ROPE_PAIRS], sines[PL_ROPE_PAIRS];
    const pl_op_env env = {.mode = PL_MODE_REC};

    for (int64_t i = 0; i < r->n; i++) {
        const pl_row_dest dest = {&r->rows, r->slots[i]};
        const pl_key_store_args a = {r->x + i * PL_INDEX_DIM, {cosines, sines}, &dest};

        if (r->slots[i] < 0 || r->slots[i] % r->units != unit)
            continue;
        form_angles(r, i, cosines, sines);
        r->ops->key_store(&env, &a, 0, 1);
    }
}

pl_status pl_op_index_insert(pl_ops_context *context, const pl_op_index_insert_args *args,
                             pl_error *err)
{
    const pl_op_index_insert_args *a = args;
    rows_run r = {0};
    pl_extent e;

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(pl__check_range("n", a->n, 0, INT32_MAX, err));
    PL_TRY(check_cache("cache", &a->cache, &r.rows, &e, err));
    {
        const pl_array arrays[] = {
            {"frequencies", a->frequencies, a->n > 0, PL_ROPE_PAIRS, 4, PL_ARRAY_IN, NULL},
            {"positions", a->positions, a->n, 1, 4, PL_ARRAY_IN, NULL},
            {"slots", a->slots, a->n, 1, 4, PL_ARRAY_IN, NULL},
            {"y", a->y, a->n, PL_INDEX_DIM, 2, PL_ARRAY_IN, NULL},
            of_extent(&e, PL_ARRAY_OUT),
        };
        PL_TRY(pl__check_arrays(arrays, 5, err));
    }
    PL_TRY(pl__check_ids("positions", a->positions, a->n, 0, LAST_POSITION, err));
    PL_TRY(
        pl__check_ids("slots", a->slots, a->n, -1, a->cache.n_pages * a->cache.page_size - 1, err));
    r.ops = context->ops;
    r.freq = a->frequencies;
    r.position = a->positions;
    r.slots = a->slots;
    r.x = a->y;
    r.n = a->n;
    r.units = context->n_workers < a->n ? context->n_workers : a->n;
    pl__context_run(context, r.units, insert_unit, &r);
    return PL_OK;
}

static void query_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const rows_run *r = args;
    float cosines[PL_ROPE_PAIRS], sines[PL_ROPE_PAIRS];
    const pl_op_env env = {.mode = PL_MODE_REC};

    for (int64_t t = begin; t < end; t++) {
        const int64_t page = (int64_t)r->n_heads * ROW;
        const pl_index_query_args a = {r->n_heads,
                                       r->x + t * r->n_heads * PL_INDEX_DIM,
                                       {cosines, sines},
                                       {r->out + t * page, page, r->n_heads, CODES, SCALES}};

        form_angles(r, t, cosines, sines);
        r->ops->index_query(&env, &a, 0, r->n_heads);
    }
}

pl_status pl_op_index_query(pl_ops_context *context, const pl_op_index_query_args *args,
                            pl_error *err)
{
    const pl_op_index_query_args *a = args;
    rows_run r = {0};

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(pl__check_range("n", a->n, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("n_heads", a->n_heads, 1, MAX_HEADS, err));
    {
        const int64_t heads = a->n_heads;
        const pl_array arrays[] = {
            {"frequencies", a->frequencies, a->n > 0, PL_ROPE_PAIRS, 4, PL_ARRAY_IN, NULL},
            {"positions", a->positions, a->n, 1, 4, PL_ARRAY_IN, NULL},
            {"q", a->q, a->n, heads * PL_INDEX_DIM, 2, PL_ARRAY_IN, NULL},
            {"out", a->out, a->n, heads * ROW, 1, PL_ARRAY_OUT, NULL},
        };
        PL_TRY(pl__check_arrays(arrays, 4, err));
    }
    PL_TRY(pl__check_ids("positions", a->positions, a->n, 0, LAST_POSITION, err));
    r.ops = context->ops;
    r.freq = a->frequencies;
    r.position = a->positions;
    r.x = a->q;
    r.n_heads = a->n_heads;
    r.out = a->out;
    pl__context_rows(context, a->n, 16 * PL_INDEX_DIM * (int64_t)a->n_heads, query_rows, &r);
    return PL_OK;
}

/* ---- the choice */

/* The workspace, for W workers: W heaps, then lists of W parts: rows, scores, and how many there are. */
typedef struct topk_run {
    const pl_ops *ops;
    const pl_op_index_topk_args *args;
    uint8_t *heaps;
    int32_t *best, *n_best; /* [W][topk], [W] */
    float *best_score;
    int64_t token, n_parts; /* of the token that is shared out */
} topk_run;

/* Part p of n_parts of token t's rows; the operator writes list p of those from `place` on. */
static void score_part(const topk_run *r, int64_t t, int64_t p, int64_t n_parts, int64_t place,
                       int worker)
{
    const pl_op_index_topk_args *a = r->args;
    const int64_t page = (int64_t)a->n_heads * ROW;
    const int32_t zero = 0, position = 4 * a->n_visible[t] - 1;
    const pl_op_index_cache *c = &a->keys[a->seq_of ? a->seq_of[t] : 0];
    const pl_attention_seq seq = {
        .keys = {c->data, c->page_bytes ? c->page_bytes : (int64_t)c->page_size * ROW, c->page_size,
                 CODES, SCALES}};
    const pl_op_env env = {.mode = PL_MODE_REC, .scratch = r->heaps + (int64_t)worker * HEAP_BYTES};
    const pl_index_topk_args one = {
        .n_heads = a->n_heads,
        .topk = a->topk,
        .n_parts = (int32_t)n_parts,
        .query = {(uint8_t *)(uintptr_t)a->query + t * page, page, a->n_heads, CODES, SCALES},
        .w = a->w + t * a->n_heads,
        .factor = a->factor,
        .seqs = &seq,
        .seq_of = &zero,
        .position = &position,
        .best = r->best + place * a->topk,
        .best_score = r->best_score + place * a->topk,
        .n_best = r->n_best + place,
        .scores = a->scores ? a->scores + t * a->scores_stride : NULL};

    r->ops->index_topk(&env, &one, p, p + 1);
}

static void whole_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const topk_run *r = args;
    const int32_t topk = r->args->topk;

    for (int64_t t = begin; t < end; t++) {
        int32_t *to = r->args->selected + t * topk;

        score_part(r, t, 0, 1, worker, worker);
        for (int32_t i = 0; i < topk; i++)
            to[i] = i < r->n_best[worker] ? r->best[(int64_t)worker * topk + i] : -1;
        r->args->n_selected[t] = r->n_best[worker];
    }
}

static void part_unit(void *user, int64_t unit, int worker)
{
    const topk_run *r = user;

    score_part(r, r->token, unit, r->n_parts, 0, worker);
}

static void merge_unit(void *user, int64_t unit, int worker)
{
    const topk_run *r = user;
    const pl_op_index_topk_args *a = r->args;
    const pl_op_env env = {.mode = PL_MODE_REC, .scratch = r->heaps + (int64_t)worker * HEAP_BYTES};
    const pl_index_merge_args m = {a->topk,
                                   (int32_t)r->n_parts,
                                   r->best_score,
                                   r->best,
                                   r->n_best,
                                   a->selected + r->token * a->topk,
                                   a->n_selected + r->token};

    r->ops->index_merge(&env, &m, 0, 1);
}

static pl_status check_topk(const pl_op_index_topk_args *a, const pl_extent *space, pl_error *err)
{
    const int64_t heads = a->n_heads, n_scores = a->scores ? a->scores_stride : 0;
    pl_extent e;
    pl_rows rows;
    pl_array arrays[] = {
        {"query", a->query, a->n, heads * ROW, 1, PL_ARRAY_IN, NULL},
        {"w", a->w, a->n, heads, 2, PL_ARRAY_IN, NULL},
        {"seq_of", a->seq_of, a->n, 1, 4, PL_ARRAY_OPTIONAL, NULL},
        {"n_visible", a->n_visible, a->n, 1, 4, PL_ARRAY_IN, NULL},
        {"selected", a->selected, a->n, a->topk, 4, PL_ARRAY_OUT, NULL},
        {"n_selected", a->n_selected, a->n, 1, 4, PL_ARRAY_OUT, NULL},
        {"scores", a->scores, a->n, n_scores, 4, PL_ARRAY_OUT_OPTIONAL, NULL},
        of_extent(space, PL_ARRAY_OUT),
        {"keys", a->keys, a->n_seqs, sizeof *a->keys / 8, 8, PL_ARRAY_IN, NULL},
        {"keys.data", NULL, 0, 0, 1, PL_ARRAY_IN, NULL},
    };

    PL_TRY(pl__check_arrays(arrays, 9, err));
    PL_TRY(pl__check_ids("seq_of", a->seq_of, a->seq_of ? a->n : 0, 0, a->n_seqs - 1, err));
    for (int32_t s = 0; s < a->n_seqs; s++) {
        PL_TRY(check_cache("keys", &a->keys[s], &rows, &e, err));
        arrays[9] = of_extent(&e, PL_ARRAY_IN);
        PL_TRY(pl__check_arrays(arrays, 10, err));
    }
    for (int32_t t = 0; t < a->n; t++) {
        const pl_op_index_cache *c = &a->keys[a->seq_of ? a->seq_of[t] : 0];
        int64_t most = c->n_pages * c->page_size;

        most = a->scores && a->scores_stride < most ? a->scores_stride : most;
        PL_CHECK(a->n_visible[t] >= 0 && a->n_visible[t] <= most, err,
                 "n_visible[%d]: out of range (got %d, want 0 .. %" PRId64 ")", t, a->n_visible[t],
                 most);
    }
    return PL_OK;
}

static void open_run(topk_run *r, const pl_ops_context *c, const pl_op_index_topk_args *a,
                     void *workspace)
{
    const int64_t w = c->n_workers;

    *r = (topk_run){.ops = c->ops, .args = a, .heaps = workspace, .n_parts = w};
    r->best = (int32_t *)(void *)(r->heaps + w * HEAP_BYTES);
    r->best_score = (float *)(void *)(r->best + w * a->topk);
    r->n_best = (int32_t *)(void *)(r->best_score + w * a->topk);
}

pl_status pl_op_index_topk(pl_ops_context *context, const pl_op_index_topk_args *args,
                           void *workspace, uint64_t workspace_bytes, pl_error *err)
{
    const pl_op_index_topk_args *a = args;
    pl_extent space;
    topk_run r;

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(pl__check_workspace(context, workspace, workspace_bytes, &space, err));
    PL_TRY(pl__check_range("n", a->n, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("n_heads", a->n_heads, 1, MAX_HEADS, err));
    PL_TRY(pl__check_range("topk", a->topk, 1, MAX_TOP, err));
    PL_TRY(pl__check_number("factor", a->factor, 0, err));
    PL_TRY(pl__check_range("n_seqs", a->n_seqs, a->n > 0, MAX_SEQS, err));
    PL_TRY(pl__check_range("scores_stride", a->scores_stride, 0, PL_ARRAY_MAX_ROW, err));
    PL_TRY(check_topk(a, &space, err));
    open_run(&r, context, a, workspace);
    if (a->n >= context->n_workers) {
        pl__context_rows(context, a->n, 1 << 15, whole_rows, &r);
        return PL_OK;
    }
    for (r.token = 0; r.token < a->n; r.token++) {
        pl__context_run(context, r.n_parts, part_unit, &r);
        pl__context_run(context, 1, merge_unit, &r);
    }
    return PL_OK;
}
