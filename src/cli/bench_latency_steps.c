/* Steps of a model, made and timed.
 *
 * A sample is PL_LATENCY_GROUP steps in a row from the same position, so that the share of tokens that finish an entry is
 * the true one; before each sample the states are set back to it. Figures are taken without the clock on operators;
 * where the time goes is asked in one more sample. Prefill runs once, under the clock, which costs it two readings a
 * tile of milliseconds. */
#include <string.h>

#include "base/error.h"
#include "cli/bench_latency.h"

enum { BARRIER_ROUNDS = 2001, SEED = 1 };

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static int32_t token_of(const pl_latency *l, int64_t seq, int64_t position)
{
    return (int32_t)(mix((uint64_t)seq << 32 ^ (uint64_t)position) %
                     (uint64_t)l->config->vocab_size);
}

void pl_latency_visit(void *user, const pl_tap_view *view)
{
    pl_latency *l = user;
    int32_t *ids = view->data;
    uint64_t seen[64] = {0}; /* of up to 4096 experts, as bits */

    if (view->tap != PL_TAP_FFN_IDS)
        return;
    for (int64_t t = 1; l->equal_experts && t < view->rows; t++)
        memcpy(ids + t * view->cols, ids, (size_t)view->cols * sizeof *ids);
    for (int64_t i = 0; i < view->rows * view->cols; i++) {
        const uint32_t e = (uint32_t)ids[i] % 4096;

        l->experts_touched += !(seen[e / 64] >> e % 64 & 1);
        seen[e / 64] |= (uint64_t)1 << e % 64;
    }
}

static double now(const pl_latency *l)
{
    return l->clock.now_ns(l->clock.user);
}

static double probe(pl_latency *l, pl_bench_limit limit)
{
    const int n = l->n_probes[limit], most = (int)(sizeof l->probes[0] / sizeof l->probes[0][0]);
    const double rate = pl_bench_probe(&l->bench, &l->clock, limit, false, n);

    if (n < most)
        l->probes[limit][l->n_probes[limit]++] = rate;
    return rate;
}

/* Read and multiply-add rates, before or after a figure. */
struct rates {
    double read, fma;
};

static struct rates probe_both(pl_latency *l)
{
    return (struct rates){probe(l, PL_BENCH_READ), probe(l, pl_bench_product_limit(&l->bench, 2))};
}

static void nothing(void *user, int64_t tile, int worker) {}

double pl_latency_barrier_ns(pl_latency *l)
{
    const int64_t tiles = 4 * (int64_t)pl_pool_n_workers(l->bench.exec.pool);
    double ns[BARRIER_ROUNDS];

    for (int i = 0; i < BARRIER_ROUNDS; i++) {
        const double begin = now(l);
        pl_pool_run(l->bench.exec.pool, tiles, nothing, NULL);
        ns[i] = now(l) - begin;
    }
    return pl_bench_median(ns, BARRIER_ROUNDS);
}

/* ---- rows */

static pl_latency_row *add_row(pl_latency *l, const pl_latency_row *like, const char *part)
{
    pl_latency_row *r = &l->rows[l->n_rows];

    if (l->n_rows == PL_LATENCY_MAX_ROWS)
        return NULL;
    l->n_rows++;
    *r = *like;
    r->part = part;
    return r;
}

/* The share of the limit that leaves the least time, of the mean of what was probed. */
static void judge(pl_latency *l, pl_latency_row *r, struct rates a, struct rates b, double tokens)
{
    const double read = (a.read + b.read) / 2, fma = (a.fma + b.fma) / 2, ns = 1e6 * r->ms;
    const double read_ns = r->bytes_touched / read, fma_ns = r->flops / fma;

    r->read_rate = read;
    r->fma_rate = fma;
    r->limit = read_ns > fma_ns ? PL_BENCH_READ : pl_bench_product_limit(&l->bench, 2);
    r->limit_rate = read_ns > fma_ns ? read : fma;
    r->percent = ns > 0 ? 100 * (read_ns > fma_ns ? read_ns : fma_ns) / ns : 0;
    r->tokens_per_s = ns > 0 ? 1e9 * tokens / ns : 0;
}

/* What the clock says of `steps` steps that took `ns` together. */
static void take_profile(const pl_latency *l, pl_latency_row *r, double ns, int64_t steps)
{
    const pl_profile *p = l->profile;

    r->has_profile = true;
    r->regions_per_layer = (double)p->regions / (double)(steps * l->config->n_layers);
    r->barrier_percent = 100 * (double)p->regions * l->barrier_ns / ns;
    r->idle_percent = 100 * (p->region_ns - p->busy_ns / p->n_workers) / ns;
    r->between_ms = 1e-6 * (ns - p->wall_ns) / (double)steps;
    for (int op = 0; op < PL_PROFILE_COUNT; op++)
        r->op_ms[op] = 1e-6 * p->op[op].wall_ns / (double)steps;
}

/* ---- prefill */

/* Up to n tokens of sequence 0 from its position on; with `last` the last one wants logits. */
static void make_chunk(pl_latency *l, int64_t n, bool last)
{
    const int64_t start = l->states[0].n;

    for (int64_t i = 0; i < n; i++)
        l->tokens[i] = token_of(l, 0, start + i);
    l->seqs[0] = (pl_step_seq){.state = &l->states[0], .n = (int32_t)n};
    l->logit_rows[0] = (int32_t)n - 1;
    l->step = (pl_step){.n_tokens = (int32_t)n,
                        .tokens = l->tokens,
                        .n_seqs = 1,
                        .seqs = l->seqs,
                        .n_logits = last,
                        .logit_rows = l->logit_rows};
}

static pl_status time_head(pl_latency *l, const pl_latency_row *like, pl_error *err)
{
    double ns[PL_LATENCY_MAX_SAMPLES], spent = 0;
    pl_latency_row *r = add_row(l, like, "head");
    struct rates before;
    int n = 0;

    PL_CHECK(r, err, "bench latency: too many rows (want at most %d)", PL_LATENCY_MAX_ROWS);
    before = probe_both(l);
    while (n < PL_LATENCY_MAX_SAMPLES && (n < 3 || spent < l->budget_ns / 4)) {
        const double begin = now(l);
        PL_TRY(pl_forward_run_head(l->forward, &l->step, err));
        ns[n] = now(l) - begin;
        spent += ns[n++];
    }
    r->ms = 1e-6 * pl_bench_median(ns, n);
    r->spread = 100 * (ns[3 * (n - 1) / 4] - ns[(n - 1) / 4]) / (1e6 * r->ms);
    r->bytes_touched = (double)l->cost.head_bytes;
    r->cache_bytes = 0;
    r->flops = 2 * l->cost.head_weights * l->step.n_logits;
    r->has_profile = false;
    judge(l, r, before, probe_both(l), l->step.n_logits);
    return PL_OK;
}

/* The two parts together, beside the limits of the longer one's figure. */
static pl_status add_all(pl_latency *l, int layers, double tokens, pl_error *err)
{
    const pl_latency_row a = l->rows[layers], b = l->rows[layers + 1];
    pl_latency_row *r = add_row(l, &a, "all");
    struct rates rates = {a.read_rate, a.fma_rate};

    PL_CHECK(r, err, "bench latency: too many rows (want at most %d)", PL_LATENCY_MAX_ROWS);
    if (b.ms > a.ms)
        rates = (struct rates){b.read_rate, b.fma_rate};
    r->ms += b.ms;
    r->spread = a.spread > b.spread ? a.spread : b.spread;
    r->bytes_touched += b.bytes_touched;
    r->flops += b.flops;
    r->has_profile = false;
    judge(l, r, rates, rates, tokens);
    return PL_OK;
}

pl_status pl_latency_prefill(pl_latency *l, const int64_t *contexts, int n, pl_error *err)
{
    pl_latency_row sum = {.phase = "prefill", .batch = 1};
    double ns = 0;
    int64_t steps = 0;
    struct rates before = probe_both(l);

    pl_state_reset(&l->states[0]);
    l->equal_experts = false;
    pl_profile_reset(l->profile, pl_pool_n_workers(l->bench.exec.pool));
    pl_forward_set_profile(l->forward, l->profile);
    for (int i = 0; i < n; i++) {
        const int layers = l->n_rows;
        pl_latency_row *r;

        while (l->states[0].n < contexts[i]) {
            const int64_t at = l->states[0].n, left = contexts[i] - at;
            const int64_t m = left < l->max_tokens ? left : l->max_tokens;
            double begin;

            make_chunk(l, m, false);
            l->experts_touched = 0;
            begin = now(l);
            PL_TRY(pl_forward_run(l->forward, &l->step, err));
            ns += now(l) - begin;
            steps++;
            sum.bytes_touched += (double)l->cost.dense_bytes +
                                 (double)l->experts_touched * (double)l->cost.expert_bytes;
            for (int64_t t = at; t < at + m; t++) {
                sum.flops += pl_latency_token_flops(&l->cost, t);
                sum.cache_bytes += pl_latency_token_cache_bytes(&l->cost, t);
            }
        }
        sum.context = contexts[i];
        r = add_row(l, &sum, "layers");
        PL_CHECK(r, err, "bench latency: too many rows (want at most %d)", PL_LATENCY_MAX_ROWS);
        r->ms = 1e-6 * ns;
        take_profile(l, r, ns, steps);
        for (int op = 0; op < PL_PROFILE_COUNT; op++)
            r->op_ms[op] *= (double)steps; /* of the whole of it, as ms is */
        r->between_ms *= (double)steps;
        pl_forward_set_profile(l->forward, NULL);
        judge(l, r, before, probe_both(l), (double)contexts[i]);
        l->step.n_logits = 1;
        PL_TRY(time_head(l, &sum, err));
        PL_TRY(add_all(l, layers, (double)contexts[i], err));
        pl_forward_set_profile(l->forward, l->profile);
    }
    pl_forward_set_profile(l->forward, NULL);
    return PL_OK;
}

/* ---- decoding and verification */

void pl_latency_make_step(pl_latency *l, int first, int32_t batch, int32_t k)
{
    int32_t n = 0;

    for (int32_t s = 0; s < batch; s++) {
        pl_state *state = &l->states[first + s];

        l->seqs[s] = (pl_step_seq){.state = state, .first = n, .n = 1 + k, .n_draft = k};
        for (int32_t i = 0; i <= k; i++, n++) {
            l->tokens[n] = token_of(l, s, state->n + i);
            l->logit_rows[n] = n;
        }
    }
    l->step = (pl_step){.n_tokens = n,
                        .tokens = l->tokens,
                        .n_seqs = batch,
                        .seqs = l->seqs,
                        .logit_rows = l->logit_rows};
}

/* One sample, under a clock on operators where there is one: all drafts are kept. */
static pl_status run_group(pl_latency *l, int first, int64_t context, int32_t batch, int32_t k,
                           pl_profile *profile, double *ns, pl_error *err)
{
    for (int32_t s = 0; s < batch; s++)
        PL_TRY(pl_forward_inject(l->forward, &l->states[first + s], (int32_t)context,
                                 (int32_t)context, SEED, err));
    *ns = 0;
    l->experts_touched = 0;
    for (int i = 0; i < PL_LATENCY_GROUP; i++) {
        double begin;

        pl_latency_make_step(l, first, batch, k);
        pl_forward_set_profile(l->forward, profile);
        begin = now(l);
        PL_TRY(pl_forward_run(l->forward, &l->step, err));
        *ns += now(l) - begin;
        pl_forward_set_profile(l->forward, NULL);
    }
    return PL_OK;
}

static void count_step(pl_latency *l, pl_latency_row *r)
{
    r->bytes_touched = (double)l->cost.dense_bytes +
                       (double)l->experts_touched / PL_LATENCY_GROUP * (double)l->cost.expert_bytes;
    for (int32_t i = 0; i <= r->k; i++) {
        r->flops += r->batch * pl_latency_token_flops(&l->cost, r->context + i);
        r->cache_bytes += r->batch * pl_latency_token_cache_bytes(&l->cost, r->context + i);
    }
}

pl_status pl_latency_decode(pl_latency *l, int first, int64_t context, int32_t batch, int32_t k,
                            bool equal_experts, pl_error *err)
{
    const pl_latency_row like = {.phase = k ? "verify" : "decode",
                                 .context = context,
                                 .batch = batch,
                                 .k = k,
                                 .synthetic = context > 0,
                                 .equal_experts = equal_experts};
    double ns[PL_LATENCY_MAX_SAMPLES], spent = 0, warm, clocked;
    const int layers = l->n_rows;
    pl_latency_row *r = add_row(l, &like, "layers");
    struct rates before;
    int n = 0;

    PL_CHECK(r, err, "bench latency: too many rows (want at most %d)", PL_LATENCY_MAX_ROWS);
    l->equal_experts = equal_experts;
    PL_TRY(run_group(l, first, context, batch, k, NULL, &warm, err));
    count_step(l, r);
    before = probe_both(l);
    while (n < PL_LATENCY_MAX_SAMPLES && (n < 3 || spent < l->budget_ns)) {
        PL_TRY(run_group(l, first, context, batch, k, NULL, &ns[n], err));
        spent += ns[n++];
    }
    r->ms = 1e-6 * pl_bench_median(ns, n) / PL_LATENCY_GROUP;
    r->spread = 100 * (ns[3 * (n - 1) / 4] - ns[(n - 1) / 4]) / (1e6 * r->ms * PL_LATENCY_GROUP);
    judge(l, r, before, probe_both(l), batch * (1.0 + k));
    pl_profile_reset(l->profile, pl_pool_n_workers(l->bench.exec.pool));
    PL_TRY(run_group(l, first, context, batch, k, l->profile, &clocked, err));
    take_profile(l, r, clocked, PL_LATENCY_GROUP);
    l->step.n_logits = l->step.n_tokens;
    PL_TRY(time_head(l, &like, err));
    return add_all(l, layers, batch * (1.0 + k), err);
}
