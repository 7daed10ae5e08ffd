/* Results of a run on standard output. Nothing is gathered: each is written piece by piece from where it lies. */
#include "cli/run_results.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "cli/json_out.h"

typedef void put_fn(void *user, const char *text, size_t n_bytes);

static bool is_stop(const pl_run_result *r, int32_t i)
{
    return r->state == PL_REQUEST_STOPPED && i == r->n_tokens - 1;
}

/* The text without the stop token and without special tokens. */
static pl_status put_text(const pl_tokenizer *t, const pl_run_result *r, put_fn *put, void *user,
                          pl_error *err)
{
    size_t max = pl_text_stream_max_bytes(t), n;
    pl_text_stream stream = {0};
    char *piece = malloc(max + 3), end[3];
    pl_status s = PL_OK;

    if (!piece)
        return pl_error_set(err, PL_ERR_NOMEM, "run: out of memory for the text");
    for (int32_t i = 0; i < r->n_tokens && s == PL_OK; i++) {
        /* A model may have more ids than its tokenizer; those have no text. */
        if (is_stop(r, i) || r->tokens[i] >= pl_tokenizer_vocab_size(t))
            continue;
        s = pl_text_stream_push(t, &stream, r->tokens[i], PL_DECODE_SKIP_SPECIAL, piece, max, &n,
                                err);
        if (s == PL_OK)
            put(user, piece, n);
    }
    n = pl_text_stream_flush(&stream, end);
    if (s == PL_OK)
        put(user, end, n);
    free(piece);
    return s;
}

static void put_json(void *user, const char *text, size_t n_bytes)
{
    pl_out_string_piece(user, text, n_bytes);
}

static void put_plain(void *user, const char *text, size_t n_bytes)
{
    (void)fwrite(text, 1, n_bytes, user);
}

static void ids_json(pl_out *j, const char *key, const int32_t *ids, int32_t n)
{
    pl_out_open(j, key, '<');
    for (int32_t i = 0; i < n; i++)
        pl_out_int(j, NULL, ids[i]);
    pl_out_close(j, '<');
}

static void counts_json(pl_out *j, const char *key, const uint64_t *counts, int n)
{
    pl_out_open(j, key, '<');
    for (int i = 0; i < n; i++)
        pl_out_uint(j, NULL, counts[i]);
    pl_out_close(j, '<');
}

static void speculation_json(pl_out *j, const pl_speculation *s, int k)
{
    pl_out_uint(j, "steps", s->steps);
    counts_json(j, "drafted", s->drafted, k);
    counts_json(j, "accepted", s->accepted, k);
    pl_out_fixed(j, "acceptance", pl_speculation_acceptance(s), 6);
    pl_out_fixed(j, "mean_length", pl_speculation_mean_length(s), 6);
}

static pl_status result_json(pl_out *j, const pl_tokenizer *t, const pl_run_result *r, int k,
                             pl_error *err)
{
    pl_status s = PL_OK;

    pl_out_open(j, NULL, '{');
    ids_json(j, "prompt_tokens", r->prompt->tokens, r->prompt->n_tokens);
    ids_json(j, "tokens", r->tokens, r->n_tokens);
    if (t) {
        pl_out_string_begin(j, "text");
        s = put_text(t, r, put_json, j, err);
        pl_out_string_end(j);
    } else {
        pl_out_null(j, "text");
    }
    pl_out_open(j, "logprobs", '<');
    for (int32_t i = 0; i < r->n_tokens; i++)
        pl_out_float(j, NULL, r->logprobs[i]);
    pl_out_close(j, '<');
    pl_out_string(j, "finish_reason", r->state == PL_REQUEST_STOPPED ? "stop" : "length");
    pl_out_string(j, "digest", r->digest);
    pl_out_int(j, "cached_tokens", r->n_cached);
    if (k) {
        pl_out_open(j, "speculation", '{');
        speculation_json(j, &r->speculation, k);
        pl_out_close(j, '{');
    }
    pl_out_close(j, '{');
    return s;
}

typedef struct usage {
    uint64_t prompt, completion, cached;
} usage;

static usage usage_of(const pl_run_results *r)
{
    usage u = {0};

    for (int i = 0; i < r->n; i++) {
        u.prompt += (uint64_t)r->result[i].prompt->n_tokens;
        u.completion += (uint64_t)r->result[i].n_tokens;
        u.cached += (uint64_t)r->result[i].n_cached;
    }
    return u;
}

static void usage_json(pl_out *j, const pl_run_results *r)
{
    const usage u = usage_of(r);

    pl_out_open(j, "usage", '{');
    pl_out_uint(j, "prompt_tokens", u.prompt);
    pl_out_uint(j, "completion_tokens", u.completion);
    pl_out_open(j, "prompt_tokens_details", '{');
    pl_out_uint(j, "cached_tokens", u.cached);
    pl_out_close(j, '{');
    pl_out_close(j, '{');
}

static double rate(uint64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

static void engine_json(pl_out *j, const pl_engine *e, const pl_memory_report *m)
{
    const pl_engine_stats s = pl_engine_stats_of(e);
    const pl_numerics_report n = pl_engine_numerics(e);
    const pl_plan_totals t = pl_plan_totals_of(pl_engine_plan(e));

    pl_out_open(j, "speculation", '{');
    pl_out_int(j, "k", t.num_speculative_tokens);
    pl_out_string(j, "sampling", pl_draft_sampling_name(t.draft_sampling));
    speculation_json(j, &s.speculation, t.num_speculative_tokens);
    pl_out_bool(j, "auto", s.adapts_depth);
    pl_out_int(j, "depth", s.depth);
    counts_json(j, "depth_steps", s.depth_steps, t.num_speculative_tokens + 1);
    pl_out_close(j, '{');
    pl_out_open(j, "memory", '{');
    pl_out_uint(j, "plan_bytes", m->plan_bytes);
    pl_out_uint(j, "peak_resident_bytes", m->peak_resident_bytes);
    pl_out_close(j, '{');
    pl_out_open(j, "timing", '{');
    pl_out_fixed(j, "load_s", s.load_s, 6);
    pl_out_string(j, "load_mode", s.load_mode);
    pl_out_string(j, "load_reason", s.load_reason);
    pl_out_fixed(j, "prefill_s", s.prefill_s, 6);
    pl_out_fixed(j, "decode_s", s.decode_s, 6);
    pl_out_fixed(j, "prefill_tokens_per_s", rate(s.prefill_tokens, s.prefill_s), 3);
    pl_out_fixed(j, "decode_tokens_per_s", rate(s.decode_tokens, s.decode_s), 3);
    pl_out_close(j, '{');
    pl_out_open(j, "numerics", '{');
    pl_out_int(j, "version", n.version);
    pl_out_int(j, "class", n.numerics_class);
    pl_out_string(j, "level", n.level);
    pl_out_string(j, "checkpoint", n.checkpoint);
    pl_out_close(j, '{');
}

pl_status pl_run_results_write_json(const pl_run_results *r, pl_error *err)
{
    const pl_tokenizer *t = pl_engine_tokenizer(r->engine);
    const int k = pl_plan_totals_of(pl_engine_plan(r->engine)).num_speculative_tokens;
    pl_memory_report memory;
    pl_out j;

    /* Before a byte is written: with a failure standard output stays empty. */
    PL_TRY(pl_engine_memory(r->engine, &memory, err));
    pl_out_begin(&j, stdout);
    pl_out_open(&j, NULL, '{');
    pl_out_open(&j, "results", '[');
    for (int i = 0; i < r->n; i++)
        PL_TRY(result_json(&j, t, &r->result[i], k, err));
    pl_out_close(&j, '[');
    usage_json(&j, r);
    engine_json(&j, r->engine, &memory);
    pl_out_close(&j, '{');
    pl_out_end(&j);
    return PL_OK;
}

pl_status pl_run_results_print(const pl_run_results *r, pl_error *err)
{
    const pl_tokenizer *t = pl_engine_tokenizer(r->engine);

    for (int i = 0; i < r->n; i++) {
        const pl_run_result *one = &r->result[i];

        if (r->n > 1)
            printf("%s--- %d ---\n", i ? "\n" : "", i + 1);
        if (t)
            PL_TRY(put_text(t, one, put_plain, stdout, err));
        for (int32_t k = 0; !t && k < one->n_tokens; k++)
            printf("%s%d", k ? "," : "", one->tokens[k]);
        printf("\n");
    }
    return PL_OK;
}

/* `tokens`: what steps of decoding gave, without each request's first. */
static void print_drafts(const pl_speculation *s, uint64_t tokens, pl_draft_sampling sampling)
{
    uint64_t drafted = 0, accepted = 0;

    for (int i = 0; i < PL_MAX_SPECULATIVE; i++) {
        drafted += s->drafted[i];
        accepted += s->accepted[i];
    }
    fprintf(stderr, "%" PRIu64 " of %" PRIu64 " drafts accepted, by position", accepted, drafted);
    for (int i = 0; i < PL_MAX_SPECULATIVE && s->drafted[i]; i++)
        fprintf(stderr, "%s %.2f", i ? "," : "", (double)s->accepted[i] / (double)s->drafted[i]);
    fprintf(stderr, "; mean length %.2f, %.2f tokens a step%s\n", pl_speculation_mean_length(s),
            s->steps ? (double)tokens / (double)s->steps : 0.0,
            sampling == PL_DRAFT_REJECTION ? "; rejection sampling" : "");
}

/* How often each number of drafts was chosen. */
static void print_depths(const pl_engine_stats *s)
{
    fprintf(stderr, "drafts a step, chosen by measurement:");
    for (int k = 0; k <= PL_MAX_SPECULATIVE; k++)
        if (s->depth_steps[k])
            fprintf(stderr, " %d in %" PRIu64 " steps,", k, s->depth_steps[k]);
    fprintf(stderr, " now %d\n", s->depth);
}

pl_status pl_run_results_print_stats(const pl_run_results *r, pl_error *err)
{
    const pl_engine_stats s = pl_engine_stats_of(r->engine);
    const pl_plan_totals t = pl_plan_totals_of(pl_engine_plan(r->engine));
    const usage u = usage_of(r);
    pl_memory_report m;

    PL_TRY(pl_engine_memory(r->engine, &m, err));
    /* What was answered comes first, wherever the two streams go. */
    (void)fflush(stdout);
    fprintf(stderr,
            "%" PRIu64 " prompt tokens at %.1f tokens/s, %" PRIu64
            " tokens at %.1f tokens/s; peak memory %.1f MB of %.1f MB planned\n",
            u.prompt, rate(s.prefill_tokens, s.prefill_s), u.completion,
            rate(s.decode_tokens, s.decode_s), (double)m.peak_resident_bytes / 1e6,
            (double)m.plan_bytes / 1e6);
    if (t.num_speculative_tokens > 0)
        print_drafts(&s.speculation, u.completion - (uint64_t)r->n, t.draft_sampling);
    if (s.adapts_depth)
        print_depths(&s);
    return PL_OK;
}
