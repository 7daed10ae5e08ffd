/* What plimsoll bench serve makes of a run: figures of all requests that succeeded, differences of the server's counters, its memory,
 * the load and the environment, in one JSON object. Definitions: docs/PERFORMANCE.md. What the server did not tell is
 * left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/cpu.h"
#include "base/error.h"
#include "cli/bench_serve_run.h"
#include "cli/commit.h"
#include "plimsoll/version.h"

enum { MAX_POSITIONS = 16 };

const char *pl_bench_metric_name(int metric)
{
    static const char *const names[PL_BENCH_N_METRICS] = {"ttft", "tpot", "itl", "e2el"};

    return names[metric];
}

/* Values of a metric over all requests that succeeded; malloc. */
static double *gather(const pl_bench_run *b, int metric, size_t *n)
{
    size_t room = 1;
    double *v;

    for (int64_t i = 0; i < b->o->n_prompts; i++)
        room += 1 + b->request[i].n_gaps;
    v = malloc(room * sizeof *v);
    *n = 0;
    for (int64_t i = 0; v && i < b->o->n_prompts; i++) {
        const pl_bench_request *r = &b->request[i];

        if (!r->ok)
            continue;
        if (metric == PL_BENCH_TTFT)
            v[(*n)++] = r->first - r->start;
        else if (metric == PL_BENCH_TPOT && r->output_tokens > 1)
            v[(*n)++] = (r->last - r->first) / (double)(r->output_tokens - 1);
        else if (metric == PL_BENCH_E2EL)
            v[(*n)++] = r->last - r->start;
        for (size_t g = 0; metric == PL_BENCH_ITL && g < r->n_gaps; g++)
            v[(*n)++] = r->gaps[g];
    }
    return v;
}

static void set_real(json_t *root, const char *head, const char *name, const char *tail, double v)
{
    char key[64];

    snprintf(key, sizeof key, "%s%s%s", head, name, tail);
    json_object_set_new(root, key, json_real(v));
}

static pl_status add_metrics(const pl_bench_run *b, json_t *root, pl_error *err)
{
    for (int m = 0; m < PL_BENCH_N_METRICS; m++) {
        size_t n;
        double *v = gather(b, m, &n);
        pl_bench_summary s;

        if (!v)
            return pl_error_set(err, PL_ERR_NOMEM, "bench serve: out of memory for results");
        s = pl_bench_summarise(v, n);
        free(v);
        set_real(root, "mean_", pl_bench_metric_name(m), "_ms", s.mean);
        set_real(root, "median_", pl_bench_metric_name(m), "_ms", s.median);
        set_real(root, "std_", pl_bench_metric_name(m), "_ms", s.std);
        set_real(root, "p99_", pl_bench_metric_name(m), "_ms", s.p99);
    }
    return PL_OK;
}

static double difference(const pl_bench_run *b, const char *name, const char *label)
{
    const double after = b->after ? pl_bench_counter(b->after, name, label) : -1,
                 before = b->before ? pl_bench_counter(b->before, name, label) : -1;

    return after < 0 ? -1 : after - (before < 0 ? 0 : before);
}

static void add_drafts(const pl_bench_run *b, json_t *root)
{
    const double drafts = difference(b, "vllm:spec_decode_num_drafts_total", NULL),
                 drafted = difference(b, "vllm:spec_decode_num_draft_tokens_total", NULL),
                 accepted = difference(b, "vllm:spec_decode_num_accepted_tokens_total", NULL);
    json_t *rates;

    if (drafts <= 0 || drafted <= 0 || accepted < 0)
        return;
    set_real(root, "spec_decode_acceptance_", "rate", "", 100 * accepted / drafted);
    set_real(root, "spec_decode_acceptance_", "length", "", 1 + accepted / drafts);
    set_real(root, "spec_decode_num_", "drafts", "", drafts);
    set_real(root, "spec_decode_", "draft_tokens", "", drafted);
    set_real(root, "spec_decode_", "accepted_tokens", "", accepted);
    rates = json_array();
    for (int i = 0; i < MAX_POSITIONS; i++) {
        char label[32];
        double at;

        snprintf(label, sizeof label, "position=\"%d\"", i);
        at = difference(b, "vllm:spec_decode_num_accepted_tokens_per_pos_total", label);
        if (at < 0)
            break;
        json_array_append_new(rates, json_real(at / drafts));
    }
    json_object_set_new(root, "spec_decode_per_position_acceptance_rates", rates);
}

static void add_memory(const pl_bench_run *b, json_t *root)
{
    static const char *const keys[] = {"total_bytes", "peak_resident_bytes", "max_model_len",
                                       "max_num_seqs"};
    json_t *memory, *region;
    json_int_t cache = 0;
    size_t i;

    if (!b->plan)
        return;
    memory = json_object();
    for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (json_object_get(b->plan, keys[i]))
            json_object_set(memory, keys[i], json_object_get(b->plan, keys[i]));
    json_array_foreach(json_object_get(b->plan, "regions"), i, region)
    {
        const char *name = json_string_value(json_object_get(region, "name"));

        if (name && strncmp(name, "cache.", 6) == 0)
            cache += json_integer_value(json_object_get(region, "bytes"));
    }
    json_object_set_new(memory, "cache_bytes", json_integer(cache));
    json_object_set_new(
        memory, "cache_tokens",
        json_integer(json_integer_value(json_object_get(b->plan, "max_num_seqs")) *
                     json_integer_value(json_object_get(b->plan, "max_model_len"))));
    json_object_set_new(root, "memory", memory);
}

static void add_environment(const pl_bench_run *b, json_t *root)
{
    struct utsname kernel = {0};
    const char *fingerprint = "";
    json_t *e = json_object(), *command = json_pack("[s,s]", "plimsoll", "bench");
    pl_cpu cpu;

    pl_cpu_detect(&cpu, NULL);
    (void)uname(&kernel);
    for (int64_t i = 0; i < b->o->n_prompts && !*fingerprint; i++)
        fingerprint = b->request[i].fingerprint;
    for (int i = 0; i < b->argc; i++)
        json_array_append_new(command, json_string(b->argv[i]));
    json_object_set_new(e, "machine", json_string(cpu.name));
    json_object_set_new(e, "kernel", json_string(kernel.release));
    json_object_set_new(e, "compiler", json_string(__VERSION__));
    json_object_set_new(e, "version", json_string(PL_VERSION));
    json_object_set_new(e, "commit", json_string(PL_BUILD_COMMIT));
    json_object_set_new(e, "fingerprint", json_string(fingerprint));
    json_object_set_new(e, "model", json_string(b->model));
    json_object_set_new(e, "command", command);
    json_object_set_new(root, "environment", e);
}

static void add_load(const pl_bench_options *o, json_t *root)
{
    json_t *load = json_pack(
        "{s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:b}", "endpoint", o->endpoint, "dataset",
        o->file ? o->file : "random", "num_prompts", (json_int_t)o->n_prompts, "input_len",
        (json_int_t)o->input_len, "output_len", (json_int_t)o->output_len, "vocab_size",
        (json_int_t)o->vocab_size, "max_concurrency", (json_int_t)o->concurrency, "num_warmups",
        (json_int_t)o->n_warmups, "seed", (json_int_t)o->seed, "range_ratio", o->range_ratio,
        "request_rate", o->rate, "temperature", o->temperature, "ignore_eos", o->ignore_eos);

    json_object_set_new(root, "load", load);
}

static void add_counts(const pl_bench_run *b, json_t *root)
{
    json_int_t ok = 0, input = 0, output = 0;
    const char *failure = NULL;

    for (int64_t i = 0; i < b->o->n_prompts; i++) {
        const pl_bench_request *r = &b->request[i];

        if (!r->ok) {
            failure = failure ? failure : r->failure;
            continue;
        }
        ok++;
        input += r->input_tokens;
        output += r->output_tokens;
    }
    json_object_set_new(root, "completed", json_integer(ok));
    json_object_set_new(root, "failed", json_integer(b->o->n_prompts - ok));
    json_object_set_new(root, "first_failure", failure ? json_string(failure) : json_null());
    json_object_set_new(root, "duration", json_real(b->duration));
    json_object_set_new(root, "total_input_tokens", json_integer(input));
    json_object_set_new(root, "total_output_tokens", json_integer(output));
    set_real(root, "request_", "throughput", "", (double)ok / b->duration);
    set_real(root, "output_", "throughput", "", (double)output / b->duration);
    set_real(root, "total_token_", "throughput", "", (double)(input + output) / b->duration);
}

json_t *pl_bench_serve_results(const pl_bench_run *b, pl_error *err)
{
    json_t *root = json_object();

    if (!root) {
        (void)pl_error_set(err, PL_ERR_NOMEM, "bench serve: out of memory for results");
        return NULL;
    }
    add_counts(b, root);
    if (add_metrics(b, root, err) != PL_OK) {
        json_decref(root);
        return NULL;
    }
    add_drafts(b, root);
    add_memory(b, root);
    add_load(b->o, root);
    add_environment(b, root);
    return root;
}
