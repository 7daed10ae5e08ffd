/* Closed forms of other engines' memory. Each row is written as a formula and evaluated by the evaluator of the plan, so
 * that text and number cannot differ.
 *
 * Sources: reports on those engines, collected in docs/MEMORY.md 6. The pages of vLLM's groups are checked against
 * a start-up log to the byte. What an engine does beyond these forms is not modelled. */
#include "plimsoll/reserve.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "plan/formula.h"

enum {
    HEADS = 64, /* heads that the kernels pad to */
    HEAD_DIM = 512,
    STREAMS = 4,     /* hyper-connections */
    ROW = 584,       /* fp8_ds_mla: 448 FP8, 64 bf16, 8 of scales */
    KEY = 132,       /* indexer key: 128 FP8, 4 of scale */
    WINDOW = 128,    /* tokens */
    PAGE_ALIGN = 576 /* bytes, of each layer's share of a page */
};

typedef struct table {
    pl_reserve_row *rows;
    int n;
    pl_status status;
    pl_error *err;
} table;

/* The first failure stays. */
static void add(table *t, const char *name, const char *format, ...) PL_PRINTF(3, 4);

static void add(table *t, const char *name, const char *format, ...)
{
    pl_reserve_row *r = &t->rows[t->n];
    va_list args;
    int n;

    if (t->status != PL_OK)
        return;
    (void)snprintf(r->name, sizeof r->name, "%s", name);
    va_start(args, format);
    n = vsnprintf(r->formula, sizeof r->formula, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof r->formula) {
        t->status = pl_error_set(t->err, PL_ERR_INTERNAL, "reserve: %s: formula is too long", name);
        return;
    }
    t->status = pl_formula_eval(r->formula, &r->bytes, t->err);
    if (t->status != PL_OK)
        pl_error_prefix(t->err, "reserve: %s", name);
    else
        t->n++;
}

static void add_padded(table *t, const pl_reserve_params *p)
{
    const int32_t tokens = p->max_num_batched_tokens;

    add(t, "padded.output", "%d tokens * %d heads * %d * 2", tokens, HEADS, HEAD_DIM);
    add(t, "padded.query", "%d tokens * %d heads * %d * 2", tokens, HEADS, HEAD_DIM);
    add(t, "padded.streams", "%d tokens * %d streams * %d * 2", tokens, STREAMS, p->hidden_size);
    if (p->n_csa_layers)
        add(t, "padded.index_scores", "%d tokens * up(up(%d, 4) / 4, 256) * 4", tokens,
            p->max_model_len);
}

/* Groups of pages of 256 tokens. A layer's share of each is rounded up on its own. */
static void add_vllm_pages(table *t, const pl_reserve_params *p)
{
    const int32_t more = p->n_layers - p->n_layers / 2, fewer = p->n_layers / 2;
    const int32_t csa = p->n_csa_layers, hca = p->n_hca_layers;

    if (csa || hca)
        add(t, "vllm.page.full",
            "%d layers * up(64 rows * %d, %d) + %d layers * up(2 rows * %d, %d) + %d layers * "
            "up(64 keys * %d, %d)",
            csa, ROW, PAGE_ALIGN, hca, ROW, PAGE_ALIGN, csa, KEY, PAGE_ALIGN);
    add(t, "vllm.page.window_1", "%d layers * up(64 rows * %d, %d)", more, ROW, PAGE_ALIGN);
    if (fewer)
        add(t, "vllm.page.window_2", "%d layers * up(64 rows * %d, %d)", fewer, ROW, PAGE_ALIGN);
    if (csa)
        add(t, "vllm.page.csa_state",
            "%d layers * up(4 rows * 8192, %d) + %d layers * up(4 rows * 2048, %d)", csa,
            PAGE_ALIGN, csa, PAGE_ALIGN);
    if (hca)
        add(t, "vllm.page.hca_state", "%d layers * up(8 rows * 4096, %d)", hca, PAGE_ALIGN);
}

static void add_vllm_sums(table *t, const pl_reserve_params *p)
{
    const int64_t csa = p->n_csa_layers, hca = p->n_hca_layers;
    const int64_t block = csa * 32 * (ROW + KEY) + hca * ROW;

    if (csa || hca) {
        add(t, "vllm.per_128_tokens", "%d layers * 32 rows * (%d + %d) + %d layers * %d",
            p->n_csa_layers, ROW, KEY, p->n_hca_layers, ROW);
        /* What is over is less than a byte a token. */
        add(t, "vllm.per_token",
            "(%d layers * 32 rows * (%d + %d) + %d layers * %d - %d over) / 128", p->n_csa_layers,
            ROW, KEY, p->n_hca_layers, ROW, (int)(block % 128));
    }
    add(t, "vllm.request_windows", "%d layers * %d rows * %d", p->n_layers, WINDOW, ROW);
    if (csa || hca)
        add(t, "vllm.request_states",
            "%d layers * 8 rows * (8192 + 2048) + %d layers * 128 rows * 4096", p->n_csa_layers,
            p->n_hca_layers);
}

static pl_status check(const pl_reserve_params *p, pl_error *err)
{
    PL_CHECK(p->n_layers >= 1 && p->n_csa_layers >= 0 && p->n_hca_layers >= 0 &&
                 (int64_t)p->n_csa_layers + p->n_hca_layers <= p->n_layers,
             err,
             "reserve: layers: out of range (got %d, of them %d of ratio 4 and %d of ratio 128, "
             "want at least 1 and no more of them than all)",
             p->n_layers, p->n_csa_layers, p->n_hca_layers);
    PL_CHECK(p->hidden_size >= 1, err,
             "reserve: hidden_size: out of range (got %d, want 1 or more)", p->hidden_size);
    PL_CHECK(p->max_model_len >= 1, err,
             "reserve: max_model_len: out of range (got %d, want 1 or more)", p->max_model_len);
    PL_CHECK(p->max_num_batched_tokens >= 1, err,
             "reserve: max_num_batched_tokens: out of range (got %d, want 1 or more)",
             p->max_num_batched_tokens);
    return PL_OK;
}

pl_status pl_reserve_rows(pl_reserve_kind kind, const pl_reserve_params *params,
                          pl_reserve_row rows[PL_RESERVE_MAX_ROWS], int *n, pl_error *err)
{
    table t = {.rows = rows, .status = PL_OK, .err = err};

    *n = 0;
    PL_CHECK(kind == PL_RESERVE_PADDED || kind == PL_RESERVE_VLLM, err,
             "reserve: unknown kind (got %d, want %d or %d)", (int)kind, PL_RESERVE_PADDED,
             PL_RESERVE_VLLM);
    PL_TRY(check(params, err));
    if (kind == PL_RESERVE_PADDED) {
        add_padded(&t, params);
    } else {
        add_vllm_pages(&t, params);
        add_vllm_sums(&t, params);
    }
    *n = t.status == PL_OK ? t.n : 0;
    return t.status;
}

const char *pl_reserve_kind_name(pl_reserve_kind kind)
{
    return kind == PL_RESERVE_PADDED ? "padded" : "vllm";
}
