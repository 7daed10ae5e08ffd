/* Which depth of speculation would pay: what a step with k drafts costs, verifying and drafting, against the tokens that
 * it gives at a chance of acceptance.
 *
 * Drafting is done as an engine does it: the mtp block follows over the positions of the step, all of them kept, and feeds
 * its streams back for each further draft, whose token is the best of its logits. Chances are given and not measured:
 * what is accepted depends on the text, which synthetic contexts have none of. An engine measures both itself
 * (engine/depth.c); this shows what it will come to. */
#include "base/error.h"
#include "cli/bench_latency.h"

enum { SEED = 1 };

static const double acceptances[PL_LATENCY_ACCEPTANCES] = {0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95};

/* ---- drafting */

static void find_best(void *user, int64_t i, int worker)
{
    pl_latency *l = user;

    l->best[i] = pl_forward_argmax(l->forward, (int32_t)i);
}

/* The mtp block over n rows of each of the step's sequences, their logits for the last ones; `rows` as it takes them. */
static pl_status run_mtp(pl_latency *l, int32_t batch, int32_t n, bool logits, const void *streams,
                         pl_error *err)
{
    const int32_t n_tokens = batch * n;
    const pl_step step = {.n_tokens = n_tokens,
                          .tokens = l->tokens,
                          .n_seqs = batch,
                          .seqs = l->seqs,
                          .n_logits = logits ? batch : 0,
                          .logit_rows = l->logit_rows};

    for (int32_t s = 0; s < batch; s++) {
        l->seqs[s] = (pl_step_seq){.state = l->seqs[s].state, .first = s * n, .n = n};
        l->logit_rows[s] = s * n + n - 1;
    }
    PL_TRY(pl_forward_run_mtp(l->forward, &step, streams, l->stream_rows, err));
    if (logits)
        pl_pool_run(l->bench.exec.pool, batch, find_best, l);
    return PL_OK;
}

/* Behind a step of 1 + k tokens of each sequence. */
static pl_status draft(pl_latency *l, int32_t batch, int32_t k, pl_error *err)
{
    for (int32_t i = 0; i < l->step.n_tokens; i++)
        l->stream_rows[i] = i; /* any tokens will do for those that follow: the step's own */
    PL_TRY(run_mtp(l, batch, 1 + k, k > 0, pl_forward_streams(l->forward), err));
    for (int32_t d = 1; d < k; d++) {
        for (int32_t s = 0; s < batch; s++) {
            l->stream_rows[s] = l->logit_rows[s];
            l->tokens[s] = l->best[s];
        }
        PL_TRY(run_mtp(l, batch, 1, true, pl_forward_mtp_streams(l->forward), err));
    }
    for (int32_t s = 0; s < batch; s++)
        pl_state_rewind_mtp(l->seqs[s].state, l->seqs[s].state->n);
    return PL_OK;
}

/* One sample: the steps run too, drafting alone is timed. */
static pl_status draft_group(pl_latency *l, int64_t context, int32_t batch, int32_t k, double *ns,
                             pl_error *err)
{
    for (int32_t s = 0; s < batch; s++)
        PL_TRY(pl_forward_inject(l->forward, &l->states[1 + s], (int32_t)context, (int32_t)context,
                                 SEED, err));
    *ns = 0;
    for (int i = 0; i < PL_LATENCY_GROUP; i++) {
        double begin;

        pl_latency_make_step(l, 1, batch, k);
        PL_TRY(pl_forward_run(l->forward, &l->step, err));
        begin = l->clock.now_ns(l->clock.user);
        PL_TRY(draft(l, batch, k, err));
        *ns += l->clock.now_ns(l->clock.user) - begin;
    }
    return PL_OK;
}

/* The first sample only warms up. */
static pl_status time_drafts(pl_latency *l, int64_t context, int32_t batch, int32_t k, double *ms,
                             pl_error *err)
{
    double ns[PL_LATENCY_MAX_SAMPLES], spent = 0, warm;
    int n = 0;

    l->equal_experts = false;
    PL_TRY(draft_group(l, context, batch, k, &warm, err));
    while (n < PL_LATENCY_MAX_SAMPLES && (n < 3 || spent < l->budget_ns / 2)) {
        PL_TRY(draft_group(l, context, batch, k, &ns[n], err));
        spent += ns[n++];
    }
    *ms = 1e-6 * pl_bench_median(ns, n) / PL_LATENCY_GROUP;
    return PL_OK;
}

pl_status pl_latency_depth_cost(pl_latency *l, int64_t context, int32_t batch, int32_t k,
                                pl_error *err)
{
    pl_latency_depth *d = &l->depths[l->n_depths];

    PL_CHECK(l->n_depths < PL_LATENCY_MAX_DEPTHS, err,
             "bench latency: too many depths (want at most %d)", PL_LATENCY_MAX_DEPTHS);
    *d = (pl_latency_depth){.batch = batch, .k = k};
    PL_TRY(pl_latency_decode(l, 1, context, batch, k, false, err));
    d->verify_ms = l->rows[l->n_rows - 1].ms; /* of all parts */
    PL_TRY(time_drafts(l, context, batch, k, &d->draft_ms, err));
    l->n_depths++;
    return PL_OK;
}

/* ---- choosing */

/* Tokens of a step: the first, and each draft that is accepted. */
static double tokens_of(const pl_latency_depth *d, double acceptance)
{
    double sum = 1, chance = 1;

    for (int32_t i = 0; i < d->k; i++)
        sum += chance *= acceptance;
    return d->batch * sum;
}

static double rate_of(const pl_latency_depth *d, double acceptance)
{
    return 1e3 * tokens_of(d, acceptance) / (d->verify_ms + d->draft_ms);
}

pl_latency_choice pl_latency_choose_depth(const pl_latency_depth *depths, int n, double acceptance)
{
    const pl_latency_depth *best = depths;
    const double plain = 1e3 * depths->batch / depths->verify_ms;

    for (int i = 1; i < n; i++)
        if (rate_of(&depths[i], acceptance) > rate_of(best, acceptance))
            best = &depths[i];
    return (pl_latency_choice){.batch = best->batch,
                               .k = best->k,
                               .acceptance = acceptance,
                               .tokens_per_s = rate_of(best, acceptance),
                               .gain = rate_of(best, acceptance) / plain};
}

void pl_latency_choose_depths(pl_latency *l)
{
    for (int i = 0, n; i < l->n_depths; i += n) {
        for (n = 1; i + n < l->n_depths && l->depths[i + n].batch == l->depths[i].batch;)
            n++;
        for (int a = 0; a < PL_LATENCY_ACCEPTANCES; a++)
            l->choices[l->n_choices++] = pl_latency_choose_depth(&l->depths[i], n, acceptances[a]);
    }
}
