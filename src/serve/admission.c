/* From a body to a job that can run: fields, tokens, checks, and all the memory it takes until its answer is sent. A job
 * that is let in never fails for want of memory or for what it asks; what is not needed afterwards is freed here.
 *
 * Runs on the preparing thread. Tokens are prompt.c's; whether there is a place in the queue, prepare.c's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "serve/job.h"

static bool out_of_memory(pl_fault *fault)
{
    return pl_fault_set(fault, 500, "", "out of memory");
}

bool pl_serve_check_model(const pl_serve *s, const char *model, pl_fault *fault)
{
    const char *name = s->params.model_name;

    if (!model || strcmp(model, name) == 0)
        return true;
    return pl_fault_set(fault, 404, "model", "model: '%.100s' is not served (want '%s')", model,
                        name);
}

/* ---- forms */

static bool has_form(const pl_job *job)
{
    return job->fields.json_form || job->fields.calls_form;
}

/* An answer that must be JSON may still be a call, where there are tools. */
static bool read_calls(pl_job *job, pl_fault *fault)
{
    const pl_fields *f = &job->fields;
    const json_t *tools = json_object_get(f->root, "tools");
    const char *param = f->json_form ? "response_format" : "tool_choice";

    if (!has_form(job))
        return true;
    if (!pl_job_need_tokenizer(job, "messages", fault))
        return false;
    if (!job->serve->vocabulary.whole)
        return pl_fault_set(fault, 400, param,
                            "%s: cannot be enforced, the vocabulary is too large or lacks single "
                            "bytes",
                            param);
    if (!f->calls_form && (f->without_tools || json_array_size(tools) == 0))
        return true;
    job->calls = pl_calls_create(tools, f->call_name, f->one_call, fault);
    return job->calls != NULL;
}

static bool init_mask(const pl_job *job, pl_job_choice *c)
{
    const pl_form form = {.thinking = job->output_mode == PL_CHAT_MODE_THINKING,
                          .json = job->fields.json_form,
                          .calls = job->calls};

    if (!has_form(job))
        return true;
    c->mask = malloc(sizeof *c->mask);
    if (c->mask)
        pl_mask_run_init(c->mask, &job->serve->vocabulary, &form, c->max_tokens,
                         pl_engine_model_of(job->serve->engine).eos_token_id);
    return c->mask != NULL;
}

/* ---- checks and memory */

/* The engine's words for what is wrong, under the names that clients know. */
static bool refuse_params(const pl_job *job, const pl_error *err, pl_fault *fault)
{
    static const char stop_ids[] = "stop_ids:";
    pl_error renamed = *err;

    if (strncmp(err->msg, "tokens:", 7) == 0)
        return pl_fault_from_error(fault, job->kind == PL_FIELDS_CHAT ? "messages" : "prompt", err);
    if (strncmp(err->msg, stop_ids, sizeof stop_ids - 1) == 0)
        (void)snprintf(renamed.msg, sizeof renamed.msg, "stop_token_ids:%.*s",
                       (int)(sizeof renamed.msg - 16), err->msg + sizeof stop_ids - 1);
    return pl_fault_from_error(fault, NULL, &renamed);
}

static bool check_prompts(pl_job *job, pl_fault *fault)
{
    const pl_plan *plan = pl_engine_plan(job->serve->engine);
    pl_request_params params = job->fields.params;
    pl_error err;

    for (int i = 0; i < job->n_prompts; i++) {
        params.tokens = job->prompts[i].tokens;
        params.n_tokens = job->prompts[i].n;
        if (pl_plan_check_request(plan, &params, &err) != PL_OK)
            return refuse_params(job, &err, fault);
    }
    return true;
}

/* Bytes a choice keeps for each of its tokens. What a rendered answer takes comes on top: text, or JSON with
 * numbers. */
static uint64_t bytes_per_token(const pl_fields *f)
{
    const uint64_t entries = f->logprobs ? 1 + (uint64_t)f->n_top : 0;

    return sizeof(int32_t) + sizeof(float) + sizeof(pl_token_logprob) * (uint64_t)f->n_top +
           (f->stream ? 0 : 24 + 256 * entries);
}

/* The same for a token of a prompt; each completion has the whole list, a chat one for all. */
static uint64_t bytes_per_prompt_token(const pl_fields *f)
{
    enum { ENTRY_BYTES = 768 }; /* an object of JSON with three members, and its text */
    const uint64_t n_top = (uint64_t)f->n_prompt_top;
    const uint64_t lists = f->kind == PL_FIELDS_CHAT ? 1 : (uint64_t)f->n;

    if (!pl_fields_tell_prompt(f))
        return sizeof(int32_t);
    return sizeof(int32_t) + sizeof(pl_prompt_told) + sizeof(pl_token_logprob) * n_top +
           lists * ENTRY_BYTES * (1 + n_top);
}

static int32_t longest_answer(const pl_job *job, int prompt)
{
    const int32_t room = pl_plan_totals_of(pl_engine_plan(job->serve->engine)).max_model_len -
                         job->prompts[prompt].n;

    return job->fields.params.max_tokens < room ? job->fields.params.max_tokens : room;
}

/* Everything until the answer is sent, in place of the body. */
static bool hold_memory(pl_job *job, pl_fault *fault)
{
    enum { FIXED_BYTES = 8192, CHOICE_BYTES = 4096 };
    const uint64_t of_choice = CHOICE_BYTES + (has_form(job) ? sizeof(pl_mask_run) : 0);
    uint64_t bytes = FIXED_BYTES + (job->calls ? job->calls->bytes : 0), held;

    for (int i = 0; i < job->n_prompts; i++)
        bytes += (uint64_t)job->prompts[i].n * bytes_per_prompt_token(&job->fields) +
                 (uint64_t)job->fields.n *
                     (of_choice + (uint64_t)longest_answer(job, i) * bytes_per_token(&job->fields));
    if (bytes > job->serve->params.request_memory_bytes)
        return pl_fault_set(fault, 400, "max_tokens",
                            "max_tokens: the answer needs more memory than requests may take (got "
                            "%llu bytes, want at most %llu: --request-memory)",
                            (unsigned long long)bytes,
                            (unsigned long long)job->serve->params.request_memory_bytes);
    held = job->held_bytes;
    free(job->body);
    job->body = NULL;
    pl_serve_give_back(job->serve, held);
    job->held_bytes = 0;
    if (!pl_serve_hold(job->serve, bytes))
        return pl_fault_set(fault, 429, "", "server: all memory for requests is in use");
    job->held_bytes = bytes;
    return true;
}

static bool init_choice(pl_job *job, int i, pl_fault *fault)
{
    pl_job_choice *c = &job->choices[i];
    const pl_fields *f = &job->fields;
    size_t n;

    c->job = job;
    c->index = i;
    c->prompt = i / f->n;
    c->max_tokens = f->echo_only ? 0 : longest_answer(job, c->prompt);
    n = (size_t)c->max_tokens + f->echo_only;
    c->tokens = malloc(n * sizeof *c->tokens);
    c->logprobs = malloc(n * sizeof *c->logprobs);
    c->top = f->n_top ? malloc(n * (size_t)f->n_top * sizeof *c->top) : NULL;
    pl_stop_init(&c->stop, f->stop, f->stop_bytes, f->n_stop);
    return (c->tokens && c->logprobs && (c->top || !f->n_top) && init_mask(job, c)) ||
           out_of_memory(fault);
}

static bool make_prompt_logprobs(pl_job *job, pl_fault *fault)
{
    const size_t n_top = (size_t)job->fields.n_prompt_top;

    for (int i = 0; i < job->n_prompts && pl_fields_tell_prompt(&job->fields); i++) {
        pl_job_prompt *p = &job->prompts[i];
        p->told = calloc((size_t)p->n, sizeof *p->told);
        p->top = n_top ? calloc((size_t)p->n * n_top, sizeof *p->top) : NULL;
        if (!p->told || (n_top && !p->top))
            return out_of_memory(fault);
    }
    return true;
}

static bool make_choices(pl_job *job, pl_fault *fault)
{
    job->n_choices = job->n_prompts * job->fields.n;
    job->choices = calloc((size_t)job->n_choices, sizeof *job->choices);
    if (!job->choices)
        return out_of_memory(fault);
    for (int i = 0; i < job->n_choices; i++)
        if (!init_choice(job, i, fault))
            return false;
    return true;
}

/* A seed nobody gave is drawn, and reported. It fits the integers of every client. */
static bool choose_seed(pl_fields *f, pl_fault *fault)
{
    uint32_t seed;

    if (f->has_seed)
        return true;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        return pl_fault_set(fault, 500, "", "seed: the system has no random numbers");
    f->params.seed = seed;
    return true;
}

bool pl_job_prepare(pl_job *job, pl_encoder *encoder, pl_fault *fault)
{
    if (!pl_fields_parse(job->kind, job->body, job->n_body, &job->fields, fault) ||
        !pl_serve_check_model(job->serve, job->fields.model, fault))
        return false;
    if (job->serve->params.fcfs && job->fields.priority != 0)
        return pl_fault_set(fault, 400, "priority",
                            "priority: this server takes requests as they come (got %d, want 0, or "
                            "serve --scheduling-policy priority)",
                            job->fields.priority);
    if (job->fields.params.max_tokens == 0)
        job->fields.params.max_tokens = INT32_MAX;
    return (job->kind == PL_FIELDS_CHAT
                ? read_calls(job, fault) && pl_job_encode_chat(job, encoder, fault)
                : pl_job_encode_completion(job, encoder, fault)) &&
           check_prompts(job, fault) && choose_seed(&job->fields, fault) &&
           hold_memory(job, fault) && make_prompt_logprobs(job, fault) && make_choices(job, fault);
}
