/* plimsoll run: prompts in, text or tokens out.
 *
 * The order is that of cost: what is wrong with the options, the prompts or the plan is told before a weight is
 * read. The line is drawn (RLIMIT_DATA) before the engine takes its memory. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/memory_line.h"
#include "cli/run_chat.h"
#include "cli/run_results.h"

enum { DEFAULT_SEQS = 8, DEFAULT_MAX_TOKENS = 256 };

struct options {
    pl_engine_options engine;
    double memory_utilization, temperature, top_p, min_p;
    double repetition_penalty, frequency_penalty, presence_penalty;
    int64_t max_tokens, min_tokens, top_k, seed;
    bool ignore_eos, json, stats;
    bool chat; /* no prompt, and someone sits at the terminal */
    pl_run_prompts prompts;
};

static pl_status add_prompt(void *options, const char *name, const char *value, pl_error *err)
{
    return pl_run_prompts_add(&((struct options *)options)->prompts, name, value, err);
}

#define OFFSET(field) offsetof(struct options, field)
#define PROMPT(option, what, text)                                                              \
    {                                                                                           \
        .name = option, .kind = PL_OPTION_CALL, .value = what, .help = text, .call = add_prompt \
    }
#define NUMBER(option, what, field, low, high, text)                                    \
    {                                                                                   \
        .name = option, .kind = PL_OPTION_INT, .value = what, .help = text, .min = low, \
        .max = high, .offset = OFFSET(field)                                            \
    }
#define REAL(option, field, low, high, text)                                             \
    {                                                                                    \
        .name = option, .kind = PL_OPTION_FLOAT, .value = "F", .help = text, .min = low, \
        .max = high, .offset = OFFSET(field)                                             \
    }
#define FLAG(option, field, text)                                                     \
    {                                                                                 \
        .name = option, .kind = PL_OPTION_FLAG, .help = text, .offset = OFFSET(field) \
    }

/* clang-format off */
static const pl_option table[] = {
    PROMPT("--prompt", "TEXT", "a text to go on from; the token that begins a text is put in front"),
    PROMPT("--chat", "TEXT", "what a user says, as a conversation in thinking mode"),
    PROMPT("--tokens", "IDS", "token ids, 1,2,3, as they are"),
    PROMPT("--tokens-file", "FILE", "the same from a file, commas or white space between them"),
    NUMBER("--max-tokens", "N", max_tokens, 1, INT32_MAX, "most tokens of an answer; default: 256, in a conversation what is left"),
    NUMBER("--min-tokens", "N", min_tokens, 0, INT32_MAX, "no stop token before so many; default: 0"),
    REAL("--temperature", temperature, 0, 1000, "0, the default, takes the largest logit"),
    NUMBER("--top-k", "K", top_k, 0, INT32_MAX, "choose among the K most likely; default: 0, off"),
    REAL("--top-p", top_p, 0, 1, "choose among the most likely of this mass; default: 1, off"),
    REAL("--min-p", min_p, 0, 1, "least probability, as a share of the largest; default: 0, off"),
    REAL("--repetition-penalty", repetition_penalty, 0, 1000, "default: 1, off"),
    REAL("--frequency-penalty", frequency_penalty, -1000, 1000, "default: 0, off"),
    REAL("--presence-penalty", presence_penalty, -1000, 1000, "default: 0, off"),
    NUMBER("--seed", "S", seed, 0, INT64_MAX, "of the noise that a temperature draws; default: 0"),
    FLAG("--ignore-eos", ignore_eos, "the end token is like any other"),
    FLAG("--json", json, "print one JSON document"),
    FLAG("--stats", stats, "tokens, speed, peak memory against the plan, and what became of drafts, on standard error"),
    PL_ENGINE_OPTION_ROWS(struct options, engine, "longest prompt + --max-tokens", "the prompts given, at most 8", "0"),
    REAL("--memory-utilization", memory_utilization, 0, 1,
         "the line as a share of this machine's or control group's memory; default: 0.9"),
    {0},
};
/* clang-format on */

static pl_request_params request_of(const struct options *o, const pl_run_prompt *prompt)
{
    pl_request_params p = pl_request_params_default();

    p.tokens = prompt->tokens;
    p.n_tokens = prompt->n_tokens;
    p.max_tokens = (int32_t)o->max_tokens;
    p.min_tokens = (int32_t)o->min_tokens;
    p.temperature = (float)o->temperature;
    p.top_k = (int32_t)o->top_k;
    p.top_p = (float)o->top_p;
    p.min_p = (float)o->min_p;
    p.repetition_penalty = (float)o->repetition_penalty;
    p.frequency_penalty = (float)o->frequency_penalty;
    p.presence_penalty = (float)o->presence_penalty;
    p.seed = (uint64_t)o->seed;
    p.ignore_eos = o->ignore_eos;
    return p;
}

/* ---- the plan */

static pl_status model_of(const char *path, const pl_engine_params *params, pl_engine_model *model,
                          pl_error *err)
{
    pl_engine_params open = *params;
    pl_plan *plan;

    open.max_model_len = 0;
    open.memory_bytes = open.kv_cache_memory_bytes = 0;
    PL_TRY(pl_plan_create(path, &open, &plan, err));
    *model = pl_plan_model_of(plan);
    pl_plan_destroy(plan);
    return PL_OK;
}

static void fill_defaults(const struct options *o, const pl_engine_model *model,
                          pl_engine_params *p)
{
    const int n = o->chat ? 1 : o->prompts.n;
    const int64_t len =
        o->chat ? PL_RUN_CHAT_LEN : pl_run_prompts_longest(&o->prompts) + o->max_tokens;

    if (!o->engine.max_num_seqs)
        p->max_num_seqs = n < DEFAULT_SEQS ? n : DEFAULT_SEQS;
    if (!o->engine.max_model_len)
        p->max_model_len =
            len < model->max_position_embeddings ? (int)len : model->max_position_embeddings;
}

/* What a run of so many places holds for its prompts, and where there are more of them, for results that were taken. */
static uint64_t held_bytes(const struct options *o, int64_t places, int64_t max_model_len)
{
    const int64_t longest = o->max_tokens < max_model_len ? o->max_tokens : max_model_len;
    uint64_t held = pl_run_prompts_bytes(&o->prompts);

    if (o->prompts.n > places)
        held += (uint64_t)o->prompts.n * (uint64_t)longest * (sizeof(int32_t) + sizeof(float));
    return held;
}

static uint64_t region_bytes(const pl_plan *plan, const char *name)
{
    for (int i = 0; i < pl_plan_n_regions(plan); i++)
        if (strcmp(pl_plan_region_at(plan, i).name, name) == 0)
            return pl_plan_region_at(plan, i).bytes;
    return 0;
}

/* The plan is that of `plimsoll plan`, which knows of no prompts: they have to fit into its region. */
static pl_status check_prompts_fit(const struct options *o, const pl_plan *plan, pl_error *err)
{
    const pl_plan_totals t = pl_plan_totals_of(plan);
    const uint64_t held = held_bytes(o, t.max_num_seqs, t.max_model_len);
    const uint64_t planned = region_bytes(plan, "heap.prompts");
    const uint64_t place = (uint64_t)t.max_model_len * sizeof(int32_t);
    int64_t n = t.max_num_seqs;

    if (held <= planned)
        return PL_OK;
    while (held_bytes(o, n, t.max_model_len) > planned + (uint64_t)(n - t.max_num_seqs) * place)
        n++;
    return pl_error_set(err, PL_ERR_LIMIT,
                        "run: %d prompts and their results are more than heap.prompts of the plan "
                        "(got %" PRIu64 " bytes, want at most %" PRIu64
                        "); would fit: fewer prompts, or --max-num-seqs %" PRId64 " instead of %d",
                        o->prompts.n, held, planned, n, t.max_num_seqs);
}

static pl_status check_plan(const struct options *o, const pl_plan *plan, pl_error *err)
{
    PL_TRY(pl_plan_check_fits(plan, err));
    PL_TRY(check_prompts_fit(o, plan, err));
    for (int i = 0; i < o->prompts.n; i++) {
        pl_request_params p = request_of(o, &o->prompts.prompt[i]);
        pl_status s = pl_plan_check_request(plan, &p, err);
        if (s != PL_OK) {
            pl_error_prefix(err, "prompt %d", i + 1);
            return s;
        }
    }
    if (pl_plan_note(plan)[0])
        fprintf(stderr, "plimsoll: plan: %s\n", pl_plan_note(plan));
    return pl_memory_line_draw(plan, err);
}

static pl_status plan_run(const char *path, struct options *o, pl_engine_params *p, pl_error *err)
{
    pl_engine_model model;
    pl_plan *plan;
    pl_status s;

    PL_TRY(pl_memory_line_choose(o->memory_utilization, p, err));
    PL_TRY(model_of(path, p, &model, err));
    PL_TRY(pl_run_prompts_read(&o->prompts, path, &model, err));
    fill_defaults(o, &model, p);
    if (o->chat)
        p->program_heap_bytes = pl_run_chat_bytes(p->max_model_len);
    PL_TRY(pl_plan_create(path, p, &plan, err));
    s = check_plan(o, plan, err);
    pl_plan_destroy(plan);
    return s;
}

/* ---- running */

/* Takes what a request gave; `copy` where its place is needed. */
static pl_status take_result(pl_run_result *r, bool copy, pl_error *err)
{
    const int32_t *tokens = pl_request_tokens(r->request, &r->n_tokens);
    const float *logprobs = pl_request_logprobs(r->request, &r->n_tokens);
    const size_t n = (size_t)r->n_tokens;

    r->state = pl_request_state_of(r->request);
    pl_request_digest(r->request, r->digest);
    r->speculation = pl_request_stats_of(r->request).speculation;
    r->n_cached = pl_request_stats_of(r->request).cached_tokens;
    r->tokens = (int32_t *)tokens;
    r->logprobs = (float *)logprobs;
    if (!copy)
        return PL_OK;
    r->tokens = malloc(n * sizeof *r->tokens);
    r->logprobs = malloc(n * sizeof *r->logprobs);
    if (!r->tokens || !r->logprobs)
        return pl_error_set(err, PL_ERR_NOMEM, "run: out of memory for a result");
    memcpy(r->tokens, tokens, n * sizeof *r->tokens);
    memcpy(r->logprobs, logprobs, n * sizeof *r->logprobs);
    pl_request_release(r->request);
    r->request = NULL;
    return PL_OK;
}

static bool has_ended(const pl_run_result *r)
{
    return r->request && pl_request_state_of(r->request) > PL_REQUEST_RUNNING;
}

static pl_status submit_some(pl_engine *e, const struct options *o, pl_run_results *r, int *n,
                             pl_error *err)
{
    while (*n < r->n) {
        pl_request_params p = request_of(o, r->result[*n].prompt);
        pl_status s = pl_engine_submit(e, &p, &r->result[*n].request, err);
        if (s == PL_ERR_AGAIN)
            return PL_OK; /* a later step makes room */
        PL_TRY(s);
        ++*n;
    }
    return PL_OK;
}

/* Results are printed when all are there; on a terminal one sees meanwhile that they come. */
static void show_tokens(pl_engine_stats stats)
{
    fprintf(stderr, "\r%llu tokens of prompts, %llu of answers",
            (unsigned long long)stats.prefill_tokens, (unsigned long long)stats.decode_tokens);
}

static pl_status run_prompts(pl_engine *e, const struct options *o, pl_run_results *r,
                             pl_error *err)
{
    const bool copy = r->n > pl_plan_totals_of(pl_engine_plan(e)).max_num_seqs;
    const bool shows = isatty(STDERR_FILENO);
    int n_submitted = 0;
    bool busy = true;

    while (busy || n_submitted < r->n) {
        PL_TRY(submit_some(e, o, r, &n_submitted, err));
        PL_TRY(pl_engine_step(e, &busy, err));
        if (shows)
            show_tokens(pl_engine_stats_of(e));
        for (int i = 0; copy && i < n_submitted; i++)
            if (has_ended(&r->result[i]))
                PL_TRY(take_result(&r->result[i], true, err));
    }
    if (shows)
        fprintf(stderr, "\r\033[K");
    for (int i = 0; !copy && i < r->n; i++)
        PL_TRY(take_result(&r->result[i], false, err));
    return PL_OK;
}

static void free_results(pl_run_results *r)
{
    for (int i = 0; i < r->n; i++)
        if (!r->result[i].request) {
            free(r->result[i].tokens);
            free(r->result[i].logprobs);
        }
    free(r->result);
}

static pl_status run_and_print(pl_engine *e, const struct options *o, pl_error *err)
{
    pl_run_results r = {.engine = e, .n = o->prompts.n};
    pl_status s;

    r.result = calloc((size_t)r.n, sizeof *r.result);
    if (!r.result)
        return pl_error_set(err, PL_ERR_NOMEM, "run: out of memory for the results");
    for (int i = 0; i < r.n; i++)
        r.result[i].prompt = &o->prompts.prompt[i];
    s = run_prompts(e, o, &r, err);
    if (s == PL_OK)
        s = o->json ? pl_run_results_write_json(&r, err) : pl_run_results_print(&r, err);
    if (s == PL_OK && o->stats)
        s = pl_run_results_print_stats(&r, err);
    free_results(&r);
    return s;
}

static pl_status converse(pl_engine *e, const struct options *o, pl_error *err)
{
    const pl_run_prompt none = {0};
    const pl_request_params p = request_of(o, &none);

    return pl_run_chat(e, &p, err);
}

/* A line on the terminal that overwrites itself; files and pipes get none. */
static void show_progress(void *user, uint64_t done, uint64_t total)
{
    int *shown = user, percent = total ? (int)(100.0 * (double)done / (double)total) : 100;

    if (percent == *shown)
        return;
    *shown = percent;
    fprintf(stderr, "\rreading weights %d %%%s", percent, done == total ? "\r\033[K" : "");
}

static pl_status run_model(const char *path, struct options *o, pl_error *err)
{
    pl_engine_params p = pl_engine_options_params(&o->engine);
    pl_engine *e = NULL;
    int shown = -1;
    pl_status s;

    o->chat = o->prompts.n == 0 && isatty(STDIN_FILENO);
    PL_CHECK(
        !o->chat || !o->json, err,
        "run: --json: not in a conversation (want --prompt, --chat, --tokens or --tokens-file)");
    if (o->prompts.n == 0 && !o->chat)
        PL_TRY(pl_run_prompts_add_input(&o->prompts, err));
    if (o->max_tokens == 0 && !o->chat)
        o->max_tokens = DEFAULT_MAX_TOKENS;
    PL_TRY(plan_run(path, o, &p, err));
    if (isatty(STDERR_FILENO)) {
        p.on_load = show_progress;
        p.on_load_user = &shown;
    }
    s = pl_engine_open(path, &p, &e, err);
    if (s == PL_OK)
        s = pl_memory_line_tighten(pl_engine_plan(e), 0, err);
    if (s == PL_OK)
        s = o->chat ? converse(e, o, err) : run_and_print(e, o, err);
    pl_engine_close(e);
    return s;
}

static int run(int argc, char **argv)
{
    struct options o = {
        .engine = pl_engine_options_none(),
        .memory_utilization = PL_MEMORY_LINE_DEFAULT,
        .top_p = 1,
        .repetition_penalty = 1,
    };
    const char *args[1];
    pl_error err = {0};
    int status;
    pl_status s;

    if (pl_options_parse(&pl_command_run, argc, argv, &o, args, &status)) {
        s = run_model(args[0], &o, &err);
        status = s == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
    }
    pl_run_prompts_free(&o.prompts);
    return status;
}

const pl_command pl_command_run = {
    .name = "run",
    .usage = "MODEL (--prompt TEXT | --chat TEXT | --tokens IDS | --tokens-file FILE)... [options]",
    .summary = "answer prompts: text or tokens out",
    .details =
        "A prompt option may be repeated: the sequences then run together, and the results come "
        "in\n"
        "their order. An answer depends on its prompt and options alone, not on what runs beside "
        "it.\n"
        "Without a prompt option, standard input is one, as if given to --prompt; on a terminal\n"
        "there is a conversation instead, which Ctrl-D ends.\n"
        "Without a tokenizer.json in MODEL, ids are printed in place of text.\n\n"
        "Memory is planned first ('plimsoll plan' with the same options prints the plan) and drawn "
        "as\n"
        "a line that the kernel enforces. A plan above the line is refused with exit status 1.\n\n"
        "examples:\n"
        "  plimsoll run models/demo --prompt 'Once upon a time' --max-tokens 40\n"
        "  plimsoll run /tmp/nano --tokens 1,2,3 --max-tokens 8 --json",
    .options = table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
