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
#include "cli/cpu_report.h"
#include "cli/json_out.h"
#include "cli/memory_line.h"
#include "cli/token_list.h"
#include "cli/verify.h"

struct options {
    const char *batch, *chunk, *threads, *k, *level, *against;
    int64_t requests, prompt_tokens, max_tokens, mixed, seconds, seed;
    uint64_t memory;
    double memory_utilization;
    bool full, json;
};

#define FIELD(name) offsetof(struct options, name)

/* clang-format off */
static const pl_option table[] = {
    {"--batch", PL_OPTION_STRING, "LIST", "requests at once; default: 1,2,4,8 (the first of a list is the reference's)", FIELD(batch)},
    {"--max-num-batched-tokens", PL_OPTION_STRING, "LIST", "tokens of a step; default: 512,33,5; with --full: 512,64,33,5,1", FIELD(chunk)},
    {"--threads", PL_OPTION_STRING, "LIST", "workers; default: all cores that may be used, 1, one more", FIELD(threads)},
    {"--num-speculative-tokens", PL_OPTION_STRING, "LIST", "drafts; default: 0,1,2,4; with --full: 0,1,2,3,4,8; 0 without an mtp block", FIELD(k)},
    {"--level", PL_OPTION_STRING, "LIST", "levels; default: the one in use, then all others that run here", FIELD(level)},
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
    pl_verify_case *cases;
    int n_cases, n_skipped;
    pl_verify_result *reference, *other;
    int n_run[PL_VERIFY_AXES], n_differing[PL_VERIFY_AXES];
    int first; /* index of the case that differed first; -1 */
    pl_verify_parting parting;
    pl_verify_place place;
    pl_verify_engine engine;
    const char *no_drafts; /* why there is no axis of drafts */
} verify;

/* ---- axes */

static pl_status parse_values(const char *option, const char *text, int low, int high,
                              pl_verify_values *v, pl_error *err)
{
    const pl_token_list_rules rules = {.max_ids = PL_VERIFY_MAX_VALUES};
    int32_t *values = NULL;
    size_t n = 0;
    pl_status s;

    PL_TRY(pl_token_list_parse(option, text, strlen(text), &rules, &values, &n, err));
    s = PL_OK;
    v->n = (int)n;
    for (size_t i = 0; i < n && s == PL_OK; i++) {
        v->value[i] = values[i];
        if (values[i] < low || values[i] > high)
            s = pl_error_set(err, PL_ERR_INVALID, "%s: out of range (got %d, want %d to %d)",
                             option, values[i], low, high);
        for (size_t before = 0; before < i && s == PL_OK; before++)
            if (values[before] == values[i])
                s = pl_error_set(err, PL_ERR_INVALID, "%s: given twice (got %d)", option,
                                 values[i]);
    }
    free(values);
    return s;
}

static pl_status parse_levels(const struct options *o, char *text, pl_verify_axes *a, pl_error *err)
{
    char *rest = NULL;

    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        pl_level level;

        PL_TRY(pl_level_parse(word, &level, err));
        PL_CHECK(a->n_levels < PL_LEVEL_COUNT, err, "--level: too many (got '%s')", o->level);
        for (int i = 0; i < a->n_levels; i++)
            PL_CHECK(strcmp(a->level[i], word) != 0, err, "--level: given twice (got %s)", word);
        a->level[a->n_levels++] = pl_level_name(level);
    }
    PL_CHECK(a->n_levels > 0, err, "--level: empty (want names as of 'plimsoll cpu')");
    return PL_OK;
}

static void default_levels(const pl_cpu_report *r, pl_verify_axes *a)
{
    a->level[a->n_levels++] = pl_level_name(r->choice.level);
    for (int i = PL_LEVEL_SCALAR; i < PL_LEVEL_F64; i++)
        if (i != (int)r->choice.level && r->levels[i].built && r->levels[i].supported &&
            r->levels[i].test == PL_CPU_TEST_PASSED)
            a->level[a->n_levels++] = pl_level_name((pl_level)i);
}

static pl_status choose_machine_axes(const struct options *o, pl_verify_axes *a, pl_error *err)
{
    pl_cpu_report r;
    pl_status s = pl_cpu_report_init(&r, NULL, getenv("PL_CPU"), err);

    if (s == PL_OK && o->level) {
        char *text = strdup(o->level);

        s = text ? parse_levels(o, text, a, err)
                 : pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory");
        free(text);
    } else if (s == PL_OK) {
        default_levels(&r, a);
    }
    if (s == PL_OK && o->threads) {
        s = parse_values("--threads", o->threads, 1, 4096, &a->threads, err);
    } else if (s == PL_OK) {
        const int n = r.default_threads;

        a->threads =
            n > 1 ? (pl_verify_values){{n, 1, n + 1}, 3} : (pl_verify_values){{1, 2, 3}, 3};
    }
    pl_cpu_report_fini(&r);
    return s;
}

static pl_status choose_axes(verify *v, const char *path, bool has_mtp, pl_error *err)
{
    const struct options *o = v->o;
    pl_verify_axes *a = &v->axes;

    a->path = path;
    a->against = o->against;
    PL_TRY(choose_machine_axes(o, a, err));
    PL_TRY(parse_values("--batch", o->batch ? o->batch : "1,2,4,8", 1, 4096, &a->batch, err));
    PL_TRY(parse_values("--max-num-batched-tokens",
                        o->chunk  ? o->chunk
                        : o->full ? "512,64,33,5,1"
                                  : "512,33,5",
                        1, 1 << 20, &a->chunk, err));
    if (!has_mtp && !o->k)
        v->no_drafts = "the checkpoint has no mtp block to draft with";
    return parse_values("--num-speculative-tokens",
                        o->k           ? o->k
                        : v->no_drafts ? "0"
                        : o->full      ? "0,1,2,3,4,8"
                                       : "0,1,2,4",
                        0, PL_MAX_SPECULATIVE, &a->k, err);
}

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
    PL_TRY(choose_axes(v, path, has_mtp, err));
    v->work.max_tokens = (int32_t)o->max_tokens;
    v->work.memory_utilization = o->memory_utilization;
    v->work.memory_bytes = o->memory;
    for (int i = 0; i < v->axes.batch.n; i++)
        if (v->axes.batch.value[i] > v->work.max_batch)
            v->work.max_batch = v->axes.batch.value[i];
    PL_TRY(pl_verify_work_init(&v->work, (int)o->requests, (int32_t)o->prompt_tokens,
                               model.vocab_size, (uint64_t)o->seed, err));
    PL_TRY(pl_verify_matrix(&v->axes, (int)o->mixed, o->full, (uint64_t)o->seed, &v->cases,
                            &v->n_cases, err));
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

static void print_setting(FILE *to, const pl_verify_setting *s)
{
    (void)fprintf(to, "%s%sbatch %d, chunk %d, threads %d, k %d, level %s",
                  s->preempts ? "preempting, " : "", s->restores ? "from snapshots, " : "",
                  s->batch, s->chunk, s->threads, s->k, s->level);
}

static void show_progress(const verify *v, int i)
{
    if (!isatty(STDERR_FILENO))
        return;
    (void)fprintf(stderr, "\r\033[Kverify: %d of %d: ", i + 1, v->n_cases);
    print_setting(stderr, &v->cases[i].setting);
    (void)fflush(stderr);
}

static void judge(verify *v, int i)
{
    const pl_verify_axis axis = v->cases[i].axis;
    const pl_verify_parting p = pl_verify_compare(v->reference, v->other, v->work.n);

    v->n_run[axis]++;
    if (p.request < 0)
        return;
    v->n_differing[axis]++;
    if (v->first >= 0)
        return;
    v->first = i;
    v->parting = p;
}

static pl_status run_cases(verify *v, pl_verify_engine *e, pl_error *err)
{
    const double begin = now();

    show_progress(v, 0);
    PL_TRY(pl_verify_run(e, &v->work, &v->cases[0].setting, v->reference, err));
    for (int i = 1; i < v->n_cases; i++) {
        pl_status s;

        if (!v->o->full && now() - begin > (double)v->o->seconds) {
            v->n_skipped = v->n_cases - i;
            break;
        }
        show_progress(v, i);
        s = pl_verify_run(e, &v->work, &v->cases[i].setting, v->other, err);
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

    if (v->first < 0)
        return PL_OK;
    prompt = &v->work.prompt[v->parting.request];
    r = &v->reference[v->parting.request];
    n_more = v->parting.token < r->n ? v->parting.token : r->n;
    tokens = malloc(((size_t)prompt->n + (size_t)n_more) * sizeof *tokens);
    if (!tokens)
        return pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory for a trace");
    memcpy(tokens, prompt->tokens, (size_t)prompt->n * sizeof *tokens);
    memcpy(tokens + prompt->n, r->tokens, (size_t)n_more * sizeof *tokens);
    s = pl_verify_locate(&v->cases[0].setting, &v->cases[v->first].setting, tokens,
                         prompt->n + n_more, &v->place, err);
    free(tokens);
    return s;
}

/* ---- report */

static void setting_json(pl_out *j, const char *key, const pl_verify_setting *s)
{
    pl_out_open(j, key, '{');
    pl_out_string(j, "checkpoint", s->path);
    pl_out_int(j, "batch", s->batch);
    pl_out_int(j, "chunk", s->chunk);
    pl_out_int(j, "threads", s->threads);
    pl_out_int(j, "k", s->k);
    pl_out_bool(j, "preempts", s->preempts);
    pl_out_bool(j, "restores", s->restores);
    pl_out_string(j, "level", s->level);
    pl_out_close(j, '{');
}

static void difference_json(pl_out *j, const verify *v)
{
    if (v->first < 0) {
        pl_out_null(j, "first_difference");
        return;
    }
    pl_out_open(j, "first_difference", '{');
    pl_out_string(j, "axis", pl_verify_axis_name(v->cases[v->first].axis));
    if (v->place.found && v->place.layer >= 0)
        pl_out_int(j, "layer", v->place.layer);
    else
        pl_out_null(j, "layer");
    pl_out_string(j, "tensor", v->place.found ? v->place.tensor : v->parting.by);
    pl_out_int(j, "element", v->place.found ? v->place.element : v->parting.token);
    if (v->place.found) {
        pl_out_int(j, "position", v->place.position);
        pl_out_string(j, "reference_bits", v->place.bits[0]);
        pl_out_string(j, "other_bits", v->place.bits[1]);
    }
    pl_out_int(j, "request", v->parting.request);
    pl_out_int(j, "token", v->parting.token);
    pl_out_string(j, "by", v->parting.by);
    setting_json(j, "reference", &v->cases[0].setting);
    setting_json(j, "other", &v->cases[v->first].setting);
    pl_out_close(j, '{');
}

static void report_json(const verify *v)
{
    pl_out j;

    pl_out_begin(&j, stdout);
    pl_out_open(&j, NULL, '{');
    pl_out_open(&j, "axes", '[');
    for (int i = 0; i < PL_VERIFY_AXES; i++) {
        if (v->n_run[i] == 0)
            continue;
        pl_out_open(&j, NULL, '{');
        pl_out_string(&j, "axis", pl_verify_axis_name((pl_verify_axis)i));
        pl_out_int(&j, "cases", v->n_run[i]);
        pl_out_int(&j, "differing", v->n_differing[i]);
        pl_out_close(&j, '{');
    }
    pl_out_close(&j, '[');
    difference_json(&j, v);
    setting_json(&j, "reference", &v->cases[0].setting);
    pl_out_int(&j, "requests", v->work.n);
    pl_out_int(&j, "skipped_cases", v->n_skipped);
    pl_out_uint(&j, "preemptions", v->engine.n_preemptions);
    pl_out_uint(&j, "restored_tokens", v->engine.n_restored_tokens);
    pl_out_open(&j, "not_run", '[');
    if (v->no_drafts) {
        pl_out_open(&j, NULL, '{');
        pl_out_string(&j, "axis", "speculation");
        pl_out_string(&j, "reason", v->no_drafts);
        pl_out_close(&j, '{');
    }
    pl_out_close(&j, '[');
    pl_out_close(&j, '{');
    pl_out_end(&j);
}

static void report_difference(const verify *v)
{
    printf("first difference: request %d, token %d, by its %s\n  reference: ", v->parting.request,
           v->parting.token, v->parting.by);
    print_setting(stdout, &v->cases[0].setting);
    printf("\n  other:     ");
    print_setting(stdout, &v->cases[v->first].setting);
    if (v->cases[v->first].axis == PL_VERIFY_CHECKPOINT)
        printf(", checkpoint %s", v->cases[v->first].setting.path);
    if (!v->place.found)
        printf("\n  traces of it are equal: what differs is company, drafts or bookkeeping, not a "
               "tensor of the model\n");
    else
        printf("\n  first tensor: %s, element %lld, position %lld: %s, then %s\n", v->place.tensor,
               (long long)v->place.element, (long long)v->place.position, v->place.bits[0],
               v->place.bits[1]);
}

static void report_text(const verify *v)
{
    printf("reference: each request alone, ");
    print_setting(stdout, &v->cases[0].setting);
    printf("\n%-14s %6s %10s\n", "axis", "cases", "differing");
    for (int i = 0; i < PL_VERIFY_AXES; i++)
        if (v->n_run[i])
            printf("%-14s %6d %10d\n", pl_verify_axis_name((pl_verify_axis)i), v->n_run[i],
                   v->n_differing[i]);
    if (v->no_drafts)
        printf("not run: speculation: %s\n", v->no_drafts);
    if (v->n_skipped)
        printf("not run: %d cases, --seconds was over\n", v->n_skipped);
    if (v->first < 0)
        printf("same bits\n");
    else
        report_difference(v);
}

static pl_status verify_model(const char *path, const struct options *o, bool *same, pl_error *err)
{
    verify v = {.o = o, .first = -1};
    pl_status s = prepare(&v, path, err);

    if (s == PL_OK)
        s = run_cases(&v, &v.engine, err);
    if (isatty(STDERR_FILENO))
        (void)fprintf(stderr, "\r\033[K");
    pl_verify_engine_close(&v.engine);
    if (s == PL_OK)
        s = locate(&v, err);
    if (s == PL_OK && o->json)
        report_json(&v);
    else if (s == PL_OK)
        report_text(&v);
    *same = v.first < 0;
    pl_verify_results_fini(v.reference, v.work.n);
    pl_verify_results_fini(v.other, v.work.n);
    free(v.cases);
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
        "threads, drafts and levels, preempted, and begun from snapshots, one axis at a time and\n"
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
