/* /metrics: Prometheus' text format. Names are vLLM's where the meaning is the same, plimsoll:.. where it is our own. */
#include <stdio.h>
#include <stdlib.h>

#include "serve/http.h"

/* Upper bounds in seconds. */
static const double bounds[PL_SERVE_BUCKETS] = {0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
                                                1,     2,     5,    10,   30,   60,  300, 1800};

void pl_serve_observe_locked(pl_serve_histogram *h, double seconds)
{
    int i = 0;

    while (i < PL_SERVE_BUCKETS && seconds > bounds[i])
        i++;
    h->count[i]++;
    h->sum += seconds;
}

static void head(FILE *to, const char *name, const char *type, const char *help)
{
    (void)fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void value(FILE *to, const char *model, const char *name, const char *type, const char *help,
                  double v)
{
    head(to, name, type, help);
    (void)fprintf(to, "%s{model_name=\"%s\"} %.17g\n", name, model, v);
}

static void histogram(FILE *to, const char *model, const char *name, const char *help,
                      const pl_serve_histogram *h)
{
    uint64_t n = 0;

    head(to, name, "histogram", help);
    for (int i = 0; i < PL_SERVE_BUCKETS; i++) {
        n += h->count[i];
        (void)fprintf(to, "%s_bucket{model_name=\"%s\",le=\"%g\"} %llu\n", name, model, bounds[i],
                      (unsigned long long)n);
    }
    n += h->count[PL_SERVE_BUCKETS];
    (void)fprintf(to, "%s_bucket{model_name=\"%s\",le=\"+Inf\"} %llu\n", name, model,
                  (unsigned long long)n);
    (void)fprintf(to, "%s_sum{model_name=\"%s\"} %.9g\n%s_count{model_name=\"%s\"} %llu\n", name,
                  model, h->sum, name, model, (unsigned long long)n);
}

static void finishes(FILE *to, const char *model, const pl_serve_counters *c)
{
    head(to, "vllm:request_success_total", "counter", "Completions that ended, by reason.");
    for (int i = PL_FINISH_STOP; i <= PL_FINISH_LENGTH; i++)
        (void)fprintf(to,
                      "vllm:request_success_total{model_name=\"%s\",finished_reason=\"%s\"} %llu\n",
                      model, pl_finish_name((pl_finish)i), (unsigned long long)c->finished[i]);
}

/* The engine computes attention with the built-in kernels alone, in every layer of every step. */
static void providers(FILE *to, const char *m, const pl_serve_counters *c)
{
    static const char name[] = "plimsoll:provider_calls_total";

    head(to, name, "counter", "Steps whose attention a provider computed, by reason.");
    (void)fprintf(to, "%s{model_name=\"%s\",provider=\"builtin\",reason=\"direct\"} %llu\n", name,
                  m, (unsigned long long)c->engine.steps);
}

static void counters(FILE *to, const char *m, const pl_serve_counters *c)
{
    value(to, m, "vllm:num_requests_running", "gauge", "Completions being made.", c->n_running);
    value(to, m, "vllm:num_requests_waiting", "gauge", "Completions that wait.", c->n_waiting);
    value(to, m, "vllm:prompt_tokens_total", "counter", "Tokens of prompts that were started.",
          (double)c->prompt_tokens);
    value(to, m, "vllm:generation_tokens_total", "counter", "Tokens chosen.",
          (double)c->generation_tokens);
    value(to, m, "vllm:prefix_cache_queries_total", "counter",
          "Tokens of prompts looked up in the prefix cache.", (double)c->engine.prefix_queries);
    value(to, m, "vllm:prefix_cache_hits_total", "counter", "Of them, those found: not run.",
          (double)c->engine.prefix_hits);
    finishes(to, m, c);
    value(to, m, "plimsoll:requests_ok_total", "counter", "Requests answered in full.",
          (double)c->requests_ok);
    value(to, m, "plimsoll:requests_refused_total", "counter", "Requests refused.",
          (double)c->requests_refused);
    value(to, m, "plimsoll:requests_cancelled_total", "counter",
          "Requests ended by their client, a limit, a drain or a failure.",
          (double)c->requests_cancelled);
    value(to, m, "vllm:num_preemptions_total", "counter",
          "Requests that gave their place to one of higher priority.",
          (double)c->engine.preemptions);
    value(to, m, "plimsoll:engine_steps_total", "counter", "Steps of the engine.",
          (double)c->engine.steps);
    providers(to, m, c);
    value(to, m, "plimsoll:engine_prefill_seconds_total", "counter", "Time on prompts.",
          c->engine.prefill_s);
    value(to, m, "plimsoll:engine_decode_seconds_total", "counter", "Time on chosen tokens.",
          c->engine.decode_s);
}

/* Every draft of one token or more counts once: those that have a first position. */
static void speculation(FILE *to, const char *m, const pl_speculation *s)
{
    static const char per_position[] = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
    uint64_t drafted = 0, accepted = 0;

    for (int i = 0; i < PL_MAX_SPECULATIVE; i++) {
        drafted += s->drafted[i];
        accepted += s->accepted[i];
    }
    value(to, m, "vllm:spec_decode_num_drafts_total", "counter", "Steps of requests with drafts.",
          (double)s->drafted[0]);
    value(to, m, "vllm:spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.",
          (double)drafted);
    value(to, m, "vllm:spec_decode_num_accepted_tokens_total", "counter",
          "Of them, those accepted.", (double)accepted);
    head(to, per_position, "counter", "Tokens accepted, by their position in the draft.");
    for (int i = 0; i < PL_MAX_SPECULATIVE && s->drafted[i]; i++)
        (void)fprintf(to, "%s{model_name=\"%s\",position=\"%d\"} %llu\n", per_position, m, i,
                      (unsigned long long)s->accepted[i]);
}

static void depths(FILE *to, const char *m, const pl_engine_stats *s)
{
    static const char steps[] = "plimsoll:spec_decode_steps_by_depth_total";

    value(to, m, "plimsoll:spec_decode_depth", "gauge", "Drafts that a request gets now.",
          s->depth);
    head(to, steps, "counter", "Steps of choosing requests, by drafts that each was to have.");
    for (int k = 0; k <= PL_MAX_SPECULATIVE; k++)
        if (s->depth_steps[k])
            (void)fprintf(to, "%s{model_name=\"%s\",depth=\"%d\"} %llu\n", steps, m, k,
                          (unsigned long long)s->depth_steps[k]);
}

char *pl_serve_metrics(pl_serve *s, size_t *n)
{
    const char *m = s->params.model_name;
    pl_serve_counters c;
    pl_serve_histogram ttft, tpot, e2e;
    uint64_t held;
    int n_exchanges;
    char *text = NULL;
    FILE *to = open_memstream(&text, n);

    if (!to)
        return NULL;
    pthread_mutex_lock(&s->lock);
    c = s->counters;
    ttft = s->ttft;
    tpot = s->tpot;
    e2e = s->e2e;
    held = s->held_bytes;
    n_exchanges = s->n_exchanges;
    pthread_mutex_unlock(&s->lock);
    counters(to, m, &c);
    speculation(to, m, &c.engine.speculation);
    depths(to, m, &c.engine);
    value(to, m, "plimsoll:request_memory_bytes", "gauge", "Held for bodies, prompts and answers.",
          (double)held);
    value(to, m, "plimsoll:http_exchanges", "gauge", "Requests of HTTP being answered.",
          n_exchanges);
    histogram(to, m, "vllm:time_to_first_token_seconds", "From arrival to the first token.", &ttft);
    histogram(to, m, "vllm:request_time_per_output_token_seconds",
              "Mean time between tokens of a request.", &tpot);
    histogram(to, m, "vllm:e2e_request_latency_seconds", "From arrival to the last token.", &e2e);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
