/* plimsoll bench latency: a model's steps against what this machine can do. The command, and the order of its figures. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/topology.h"
#include "cli/bench_latency.h"
#include "ops/level.h"

struct options {
    bool json;
    const char *level, *svg, *load;
    pl_latency_texts texts;
    int64_t threads, max_tokens;
    double seconds;
};

struct run {
    const struct options *o;
    bool shows; /* progress, on a terminal */
    pl_latency_session session;
};

/* ---- figures */

/* A batch of equal states, by copying the first. */
static pl_status inject_batch(pl_latency *l, const pl_latency_lists *lists, pl_error *err)
{
    pl_state *states = l->states;

    PL_TRY(pl_forward_inject(l->forward, &states[1], 0, (int32_t)lists->batch_context, 1, err));
    for (int64_t i = 2; i <= pl_latency_last_of(&lists->batches); i++) {
        pl_state_reset(&states[i]);
        pl_state_copy(&states[i], &states[1]);
    }
    return PL_OK;
}

/* Which figure is being made, on a terminal. */
static void show(const struct run *r, const char *phase, int64_t context, int64_t batch, int64_t k)
{
    if (r->shows)
        fprintf(stderr,
                "\r\033[Kmeasuring %s, %" PRId64 " tokens, batch %" PRId64 ", drafts %" PRId64,
                phase, context, batch, k);
}

static pl_status measure_contexts(struct run *r, pl_error *err)
{
    const pl_latency_lists *lists = &r->session.lists;
    pl_latency *l = &r->session.l;
    int32_t reached = 0;

    show(r, "prefill", pl_latency_last_of(&lists->prefill), 1, 0);
    if (lists->prefill.n)
        PL_TRY(pl_latency_prefill(l, lists->prefill.v, lists->prefill.n, err));
    for (int i = 0; i < lists->contexts.n; i++) {
        const int32_t at = (int32_t)lists->contexts.v[i];

        show(r, "decode", at, 1, 0);
        PL_TRY(pl_forward_inject(l->forward, &l->states[0], reached, at, 1, err));
        reached = at;
        PL_TRY(pl_latency_decode(l, 0, at, 1, 0, false, err));
    }
    return PL_OK;
}

/* One sequence with each number of drafts, twice: with experts as they come, and with equal ones. */
static pl_status measure_depths(struct run *r, pl_error *err)
{
    const pl_latency_lists *lists = &r->session.lists;

    for (int i = 0; i < lists->depths.n; i++)
        for (int equal = 0; lists->depths.v[i] && equal < 2; equal++) {
            show(r, "verify", lists->batch_context, 1, lists->depths.v[i]);
            PL_TRY(pl_latency_decode(&r->session.l, 1, lists->batch_context, 1,
                                     (int32_t)lists->depths.v[i], equal, err));
        }
    return PL_OK;
}

static pl_status measure_batches(struct run *r, pl_error *err)
{
    const pl_latency_lists *lists = &r->session.lists;
    pl_latency *l = &r->session.l;

    PL_TRY(inject_batch(l, lists, err));
    for (int i = 0; i < lists->batches.n; i++) {
        const int32_t batch = (int32_t)lists->batches.v[i];

        for (int k = 0; lists->auto_depth && k < lists->depths.n; k++) {
            show(r, "drafts", lists->batch_context, batch, k);
            PL_TRY(pl_latency_depth_cost(l, lists->batch_context, batch, k, err));
        }
        if (lists->auto_depth)
            continue;
        show(r, "decode", lists->batch_context, batch, 0);
        PL_TRY(pl_latency_decode(l, 1, lists->batch_context, batch, 0, false, err));
    }
    if (lists->auto_depth)
        pl_latency_choose_depths(l);
    else
        PL_TRY(measure_depths(r, err));
    return PL_OK;
}

static pl_status measure(struct run *r, pl_error *err)
{
    pl_latency *l = &r->session.l;
    const pl_hooks hooks = {.user = l, .visit = pl_latency_visit, .only = 1u << PL_TAP_FFN_IDS};
    pl_status status;

    pl_forward_set_hooks(l->forward, &hooks);
    l->barrier_ns = pl_latency_barrier_ns(l);
    status = measure_contexts(r, err);
    if (status == PL_OK)
        status = measure_batches(r, err);
    pl_forward_set_hooks(l->forward, NULL);
    if (r->shows)
        fprintf(stderr, "\r\033[K");
    return status;
}

static pl_status report(struct run *run, const char *path, pl_error *err)
{
    pl_latency *l = &run->session.l;
    pl_latency_report r = {.model = path,
                           .level = pl_level_name(run->session.level),
                           .threads = pl_pool_n_workers(run->session.pool),
                           .n_layers = l->config->n_layers,
                           .n_experts = l->config->n_experts,
                           .barrier_ns = l->barrier_ns,
                           .rows = l->rows,
                           .n = l->n_rows,
                           .depths = l->depths,
                           .n_depths = l->n_depths,
                           .choices = l->choices,
                           .n_choices = l->n_choices};

    for (int k = 0; k < PL_BENCH_LIMIT_COUNT; k++) {
        r.limits.one[k] = pl_bench_probe(&l->bench, &l->clock, (pl_bench_limit)k, true, 0);
        r.limits.all[k] = l->n_probes[k]
                              ? pl_bench_median(l->probes[k], l->n_probes[k])
                              : pl_bench_probe(&l->bench, &l->clock, (pl_bench_limit)k, false, 0);
    }
    if (run->o->svg)
        PL_TRY(pl_latency_write_svg(run->o->svg, &r, err));
    if (run->o->json)
        pl_latency_write_json(stdout, &r);
    else
        pl_latency_print(stdout, &r);
    return PL_OK;
}

static pl_status run_session(struct run *r, const char *path, pl_error *err)
{
    const struct options *o = r->o;
    pl_latency_session *s = &r->session;

    r->shows = isatty(STDERR_FILENO);
    PL_TRY(pl_bench_choose_level(o->level, &s->level, err));
    PL_CHECK(s->level != PL_LEVEL_F64, err, "--level: f64 is not there to be fast (want another)");
    PL_TRY(pl_checkpoint_open(path, &s->checkpoint, err));
    PL_TRY(pl_latency_read_lists(&o->texts, pl_checkpoint_config(s->checkpoint), &s->lists, err));
    PL_CHECK(!s->lists.auto_depth || pl_checkpoint_storage(s->checkpoint)->has_mtp, err,
             "--depths: auto wants a model that drafts (got %s, which has no mtp block)", path);
    if (!pl_checkpoint_has_data(s->checkpoint))
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "%s: holds headers without data: there is nothing to run", path);
    s->max_tokens = o->max_tokens;
    s->load_mode = o->load;
    PL_TRY(pl_latency_open(s, (int)o->threads, err));
    s->l.budget_ns = 1e9 * o->seconds;
    PL_TRY(measure(r, err));
    return report(r, path, err);
}

static const char *const loads[] = {"auto", "direct", "buffered", NULL};

#define OFFSET(field) offsetof(struct options, field)

static const pl_option table[] = {
    {"--json", PL_OPTION_FLAG, NULL, "print one JSON document", OFFSET(json)},
    {"--svg", PL_OPTION_STRING, "FILE", "also draw the figures", OFFSET(svg)},
    {"--prefill", PL_OPTION_STRING, "512,2k",
     "prompts, run once: figures at each length; 0: none; default: 512,2k", OFFSET(texts.prefill)},
    {"--contexts", PL_OPTION_STRING, "1k,4k",
     "where one sequence decodes; default: 1k, 2k, 4k .. as the model allows",
     OFFSET(texts.contexts)},
    {"--batches", PL_OPTION_STRING, "1,16", "sequences that decode together; default: 1,4,16,64",
     OFFSET(texts.batches)},
    {"--depths", PL_OPTION_STRING, "0,4|auto",
     "drafts to verify with a token, up to 8; auto: all, for each of --batches, with what drafting "
     "costs, and the depth that would pay; default: 0,1,2,3,4",
     OFFSET(texts.depths)},
    {"--batch-context", PL_OPTION_INT, "N", "where batches and drafts stand; default: 4096",
     OFFSET(texts.batch_context), 0, 1 << 30},
    {"--max-num-batched-tokens", PL_OPTION_INT, "N", "tokens of a step of prefill; default: 512",
     OFFSET(max_tokens), 1, 1 << 13},
    {"--level", PL_OPTION_STRING, "L",
     "level of kernels, as 'plimsoll cpu' lists them; default: the best that is sound",
     OFFSET(level)},
    {"--threads", PL_OPTION_INT, "N", "workers; default: physical cores that may be used",
     OFFSET(threads), 1, PL_POOL_MAX_WORKERS},
    {"--load", PL_OPTION_CHOICE, "auto|direct|buffered", "how weights are read; default: auto",
     OFFSET(load), .choices = loads},
    {"--seconds", PL_OPTION_FLOAT, "S", "time of a figure, three samples at least; default: 1",
     OFFSET(seconds), 0, 600},
    {0},
};

static int run(int argc, char **argv)
{
    struct options o = {
        .seconds = 1,
        .texts = {.batches = "1,4,16,64", .depths = "0,1,2,3,4", .batch_context = 4096},
        .max_tokens = 512};
    struct run *r;
    const char *args[1];
    pl_error err = {0};
    pl_status status;
    int exit_status;

    if (!pl_options_parse(&pl_command_bench_latency, argc, argv, &o, args, &exit_status))
        return exit_status;
    r = calloc(1, sizeof *r);
    if (!r)
        return pl_report_error(
            (pl_error_set(&err, PL_ERR_NOMEM, "bench latency: out of memory"), &err));
    r->o = &o;
    status = run_session(r, args[0], &err);
    pl_latency_close(&r->session);
    free(r);
    return status == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_bench_latency = {
    .name = "bench latency",
    .usage = "MODEL [options]",
    .summary = "steps of a model: prefill, decode, verification, in % of the limit that binds",
    .details =
        "prefill is timed over the whole prompt. decode is one token for each sequence, verify "
        "one\n"
        "token and k drafts, all of them kept; 'equal experts' sends all tokens of a step to the\n"
        "experts of the first. Contexts of decode and verify are synthetic: caches are filled "
        "with\n"
        "random rows, as many as that position has, so that a million tokens need no prefill.\n\n"
        "layers are the embedding and the blocks, head is the rest up to logits, all the sum. "
        "Bytes\n"
        "are the weights touched, as in the file, caches apart; operations those of products and\n"
        "attention. Reading of memory and multiply-adds are probed before and after each figure, "
        "and\n"
        "a figure is the share of the one that would take longer. Of layers it is also said which\n"
        "operators the time went to (in one more sample, under a clock), how many parallel "
        "regions\n"
        "a layer has, what they would cost empty, and how long workers waited for each other.\n\n"
        "--depths auto also drafts, as an engine does, and says for several chances of acceptance "
        "which\n"
        "depth gives the most tokens a second: what --num-speculative-tokens auto would come "
        "to.\n\n"
        "A slice is as good as the model: plimsoll synth S --preset flash --layers 2 --ratios "
        "4,128",
    .options = table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
