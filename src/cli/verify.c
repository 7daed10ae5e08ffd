/* plimsoll verify: whether a checkpoint gives the same bits on this machine under every setting that may not change them.
 *
 * The reference is each request alone, at the level in use, in one chunk, without drafts; results are compared by tokens,
 * bits of log-probabilities, and the digest of all logits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/memory_line.h"
#include "cli/verify.h"

struct options {
    pl_verify_lists lists;
    const char *against;
    int64_t requests, prompt_tokens, max_tokens, mixed, seconds, seed;
    uint64_t memory;
    double memory_utilization;
    bool full, json;
};

#define FIELD(name) offsetof(struct options, name)

/* clang-format off */
static const pl_option table[] = {
    {"--batch", PL_OPTION_STRING, "LIST", "requests at once; default: 1,2,4,8 (the first of a list is the reference's)", FIELD(lists.batch)},
    {"--max-num-batched-tokens", PL_OPTION_STRING, "LIST", "tokens of a step; default: 512,33,5; with --full: 512,64,33,5,1", FIELD(lists.chunk)},
    {"--threads", PL_OPTION_STRING, "LIST", "workers; default: all cores that may be used, 1, one more", FIELD(lists.threads)},
    {"--num-speculative-tokens", PL_OPTION_STRING, "LIST", "drafts; default: 0,1,2,4; with --full: 0,1,2,3,4,8; 0 without an mtp block", FIELD(lists.k)},
    {"--level", PL_OPTION_STRING, "LIST", "levels; default: the one in use, then all others that run here", FIELD(lists.level)},
    {"--against", PL_OPTION_STRING, "OTHER", "also compare with another checkpoint of the same shape", FIELD(against)},
    {"--requests", PL_OPTION_INT, "N", "default: 8", FIELD(requests), 1, 4096},
    {"--prompt-tokens", PL_OPTION_INT, "N", "of the longest prompt; default: 160, past the window and a compressed block", FIELD(prompt_tokens), 1, 1 << 20},
    {"--max-tokens", PL_OPTION_INT, "N", "after each prompt; default: 16", FIELD(max_tokens), 1, 1 << 20},
    {"--mixed", PL_OPTION_INT, "N", "draws of all axes together; default: 8", FIELD(mixed), 0, 10000},
    {"--full", PL_OPTION_FLAG, NULL, "every combination, and without a limit of time", FIELD(full)},
    {"--seconds", PL_OPTION_INT, "S", "begin no case later than this; default: 600", FIELD(seconds), 1, 1 << 30},
    {"--seed", PL_OPTION_INT, "N", "of prompts and draws; default: 0", FIELD(seed), 0, INT64_MAX},
    {"--memory", PL_OPTION_BYTES, "BYTES", "the line", FIELD(memory), 1},
    {"--memory-utilization", PL_OPTION_FLOAT, "F", "the line as a share of what there is; default: 0.9", FIELD(memory_utilization), 0, 1},
    {"--json", PL_OPTION_FLAG, NULL, "one JSON document", FIELD(json)},
    {NULL},
};
/* clang-format on */

typedef struct verify {
    const struct options *o;
    pl_verify_axes axes;
    pl_verify_work work;
    pl_verify_result *reference, *other;
    pl_verify_outcome found;
    pl_verify_engine engine;
} verify;

/* The plan knows the model without reading it. */
static pl_status look_at_model(const char *path, pl_engine_model *model, bool *has_mtp,
                               pl_error *err)
{
    pl_engine_params p = pl_engine_params_default();
    pl_plan *plan = NULL, *drafting = NULL;
    pl_error ignored;

    p.max_model_len = 2;
    PL_TRY(pl_plan_create(path, &p, &plan, err));
    *model = pl_plan_model_of(plan);
    p.num_speculative_tokens = 1;
    *has_mtp = pl_plan_create_like(plan, &p, &drafting, &ignored) == PL_OK;
    pl_plan_destroy(drafting);
    pl_plan_destroy(plan);
    return PL_OK;
}

static pl_status prepare(verify *v, const char *path, pl_error *err)
{
    const struct options *o = v->o;
    pl_engine_model model;
    bool has_mtp;

    PL_TRY(look_at_model(path, &model, &has_mtp, err));
    PL_CHECK(o->prompt_tokens + o->max_tokens <= model.max_position_embeddings, err,
             "--prompt-tokens: too many with --max-tokens (got %lld and %lld, want at most %d "
             "together)",
             (long long)o->prompt_tokens, (long long)o->max_tokens, model.max_position_embeddings);
    v->axes.path = path;
    v->axes.against = o->against;
    if (!has_mtp && !o->lists.k)
        v->axes.no_drafts = "the checkpoint has no mtp block to draft with";
    if (o->prompt_tokens <= PL_VERIFY_HIT)
        v->axes.no_hits = "no prompt has more than the 128 tokens that a cache holds at least";
    PL_TRY(pl_verify_axes_choose(&o->lists, o->full, &v->axes, err));
    v->found.no_drafts = v->axes.no_drafts;
    v->found.no_hits = v->axes.no_hits;
    v->found.n_requests = (int)o->requests;
    v->work.max_tokens = (int32_t)o->max_tokens;
    v->work.memory_utilization = o->memory_utilization;
    v->work.memory_bytes = o->memory;
    for (int i = 0; i < v->axes.batch.n; i++)
        if (v->axes.batch.value[i] > v->work.max_batch)
            v->work.max_batch = v->axes.batch.value[i];
    PL_TRY(pl_verify_work_init(&v->work, (int)o->requests, (int32_t)o->prompt_tokens,
                               model.vocab_size, (uint64_t)o->seed, err));
    PL_TRY(pl_verify_matrix(&v->axes, (int)o->mixed, o->full, (uint64_t)o->seed, &v->found.cases,
                            &v->found.n_cases, err));
    v->reference = calloc((size_t)o->requests, sizeof *v->reference);
    v->other = calloc((size_t)o->requests, sizeof *v->other);
    if (!v->reference || !v->other)
        return pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory for results");
    return PL_OK;
}

/* ---- cases */

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void show_progress(const verify *v, int i)
{
    if (!isatty(STDERR_FILENO))
        return;
    (void)fprintf(stderr, "\r\033[Kverify: %d of %d: ", i + 1, v->found.n_cases);
    pl_verify_print_setting(stderr, &v->found.cases[i].setting);
    (void)fflush(stderr);
}

static void judge(verify *v, int i)
{
    const pl_verify_axis axis = v->found.cases[i].axis;
    const pl_verify_parting p = pl_verify_compare(v->reference, v->other, v->work.n);

    v->found.n_run[axis]++;
    if (p.request < 0)
        return;
    v->found.n_differing[axis]++;
    if (v->found.first >= 0)
        return;
    v->found.first = i;
    v->found.parting = p;
}

static pl_status run_cases(verify *v, pl_verify_engine *e, pl_error *err)
{
    const double begin = now();

    show_progress(v, 0);
    PL_TRY(pl_verify_run(e, &v->work, &v->found.cases[0].setting, v->reference, err));
    for (int i = 1; i < v->found.n_cases; i++) {
        pl_status s;

        if (!v->o->full && now() - begin > (double)v->o->seconds) {
            v->found.n_skipped = v->found.n_cases - i;
            break;
        }
        show_progress(v, i);
        s = pl_verify_run(e, &v->work, &v->found.cases[i].setting, v->other, err);
        if (s == PL_OK)
            judge(v, i);
        pl_verify_results_fini(v->other, v->work.n);
        v->other = calloc((size_t)v->work.n, sizeof *v->other);
        PL_TRY(s);
        if (!v->other)
            return pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory for results");
    }
    return PL_OK;
}

/* The prompt of the request that differs, and the reference's tokens up to the one in question. */
static pl_status locate(verify *v, pl_error *err)
{
    const pl_verify_prompt *prompt;
    const pl_verify_result *r;
    int32_t *tokens, n_more;
    pl_status s;

    if (v->found.first < 0)
        return PL_OK;
    prompt = &v->work.prompt[v->found.parting.request];
    r = &v->reference[v->found.parting.request];
    n_more = v->found.parting.token < r->n ? v->found.parting.token : r->n;
    tokens = malloc(((size_t)prompt->n + (size_t)n_more) * sizeof *tokens);
    if (!tokens)
        return pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory for a trace");
    memcpy(tokens, prompt->tokens, (size_t)prompt->n * sizeof *tokens);
    memcpy(tokens + prompt->n, r->tokens, (size_t)n_more * sizeof *tokens);
    s = pl_verify_locate(&v->found.cases[0].setting, &v->found.cases[v->found.first].setting,
                         tokens, prompt->n + n_more, &v->found.place, err);
    free(tokens);
    return s;
}

static pl_status verify_model(const char *path, const struct options *o, bool *same, pl_error *err)
{
    verify v = {.o = o, .found.first = -1};
    pl_status s = prepare(&v, path, err);

    if (s == PL_OK)
        s = run_cases(&v, &v.engine, err);
    if (isatty(STDERR_FILENO))
        (void)fprintf(stderr, "\r\033[K");
    pl_verify_engine_close(&v.engine);
    if (s == PL_OK)
        s = locate(&v, err);
    v.found.counts = v.engine.counts;
    if (s == PL_OK && o->json)
        pl_verify_report_json(&v.found);
    else if (s == PL_OK)
        pl_verify_report_text(&v.found);
    *same = v.found.first < 0;
    pl_verify_results_fini(v.reference, v.work.n);
    pl_verify_results_fini(v.other, v.work.n);
    free(v.found.cases);
    pl_verify_work_fini(&v.work);
    return s;
}

static int run(int argc, char **argv)
{
    struct options o = {.requests = 8,
                        .prompt_tokens = 160,
                        .max_tokens = 16,
                        .mixed = 8,
                        .seconds = 600,
                        .memory_utilization = PL_MEMORY_LINE_DEFAULT};
    const char *args[1];
    pl_error err = {0};
    bool same;
    int status;

    if (!pl_options_parse(&pl_command_verify, argc, argv, &o, args, &status))
        return status;
    if (verify_model(args[0], &o, &same, &err) != PL_OK)
        return pl_report_error(&err);
    return same ? PL_EXIT_OK : PL_EXIT_NO;
}

const pl_command pl_command_verify = {
    .name = "verify",
    .usage = "MODEL [options]",
    .summary = "whether this machine gives the same bits under every setting",
    .details =
        "Runs the same requests, greedy and sampled, alone and then with other batches, chunks,\n"
        "threads, drafts and levels, preempted, begun from snapshots and from hits of the cache "
        "of\n"
        "prefixes (--prompt-tokens above 128), one axis at a time and\n"
        "mixed; compares tokens, log-probabilities and the digest of all logits. Exit status 1 "
        "where\n"
        "anything differs; the first differing layer, tensor and element are then looked for by\n"
        "tracing (files in TMPDIR, removed again).\n"
        "A value that stands first in its list is the reference's. Level f64 is other "
        "arithmetic:\n"
        "comparing with it has to differ, and shows that this command can say so.\n\n"
        "examples:\n"
        "  plimsoll verify models/demo\n"
        "  plimsoll verify models/demo --level avx2,scalar --batch 1,3 --json",
    .options = table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
