/* plimsoll bench serve: load on a running OpenAI server, and the block of figures that vLLM's own command prints.
 *
 * Definitions are those of docs/PERFORMANCE.md. The server is only asked over HTTP; what it does not tell (drafts, memory)
 * is left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/cpu.h"
#include "base/error.h"
#include "cli/bench_dataset.h"
#include "cli/bench_serve.h"
#include "cli/commit.h"
#include "cli/input.h"
#include "plimsoll/version.h"

enum { MAX_CONCURRENCY = 1024, MAX_ANSWER_BYTES = 16 << 20, MAX_POSITIONS = 16, N_METRICS = 4 };

struct options {
    const char *url, *endpoint, *model, *file, *key_file, *save, *rate_text;
    int64_t n_prompts, input_len, output_len, vocab_size, concurrency, n_warmups, seed, timeout;
    double range_ratio, rate, temperature;
    bool ignore_eos, json, compare, allow_different;
};

static const char *const endpoints[] = {"completions", "chat", NULL};

#define FIELD(name) offsetof(struct options, name)

/* clang-format off */
static const pl_option table[] = {
    {"--url", PL_OPTION_STRING, "URL", "of the server; default: http://127.0.0.1:8000", FIELD(url)},
    {"--endpoint", PL_OPTION_CHOICE, "completions|chat", "default: completions", FIELD(endpoint), .choices = endpoints},
    {"--model", PL_OPTION_STRING, "NAME", "default: the first of /v1/models", FIELD(model)},
    {"--api-key-file", PL_OPTION_STRING, "FILE", "a key on its first line; or PLIMSOLL_API_KEY of the environment", FIELD(key_file)},
    {"--num-prompts", PL_OPTION_INT, "N", "default: 16", FIELD(n_prompts), 1, 1000000},
    {"--dataset", PL_OPTION_STRING, "FILE", "prompts of a JSON array or of JSON lines: strings, \"prompt\", or ShareGPT's \"conversations\"; default: random ids", FIELD(file)},
    {"--random-input-len", PL_OPTION_INT, "N", "tokens; default: 1024", FIELD(input_len), 1, 1 << 22},
    {"--random-output-len", PL_OPTION_INT, "N", "tokens, of a file's prompts the most; default: 128", FIELD(output_len), 1, 1 << 22},
    {"--random-range-ratio", PL_OPTION_FLOAT, "R", "lengths are uniform in N (1 - R) to N (1 + R); default: 0", FIELD(range_ratio), 0, 1},
    {"--random-vocab-size", PL_OPTION_INT, "N", "random ids lie below; default: 1000", FIELD(vocab_size), 1, INT32_MAX},
    {"--request-rate", PL_OPTION_STRING, "R|inf", "Poisson arrivals a second; default: inf, all at once", FIELD(rate_text)},
    {"--max-concurrency", PL_OPTION_INT, "N", "requests in flight; default: as many as there are, at most 1024", FIELD(concurrency), 1, MAX_CONCURRENCY},
    {"--num-warmups", PL_OPTION_INT, "N", "copies of the first request beforehand; default: 1", FIELD(n_warmups), 0, 10000},
    {"--temperature", PL_OPTION_FLOAT, "F", "default: 0", FIELD(temperature), 0, 100},
    {"--ignore-eos", PL_OPTION_FLAG, NULL, "also for a file's prompts", FIELD(ignore_eos)},
    {"--seed", PL_OPTION_INT, "N", "of prompts, lengths and arrivals; default: 0", FIELD(seed), 0, INT64_MAX},
    {"--timeout", PL_OPTION_INT, "S", "without a byte from the server; default: 3600", FIELD(timeout), 1, 1 << 20},
    {"--json", PL_OPTION_FLAG, NULL, "one JSON document", FIELD(json)},
    {"--save", PL_OPTION_STRING, "FILE", "the same document in a file", FIELD(save)},
    {"--compare", PL_OPTION_FLAG, NULL, "compare saved files A.json B.json ..; the first is the base", FIELD(compare)},
    {"--allow-different", PL_OPTION_FLAG, NULL, "compare although machine, model or load differ", FIELD(allow_different)},
    {NULL},
};
/* clang-format on */

typedef struct text {
    char *at;
    size_t n;
} text;

static bool append(void *user, const char *data, size_t n)
{
    text *t = user;
    char *larger = t->n + n < MAX_ANSWER_BYTES ? realloc(t->at, t->n + n + 1) : NULL;

    if (!larger)
        return false;
    memcpy(larger + t->n, data, n);
    t->at = larger;
    t->n += n;
    larger[t->n] = 0;
    return true;
}

typedef struct bench {
    const struct options *o;
    pl_http_target target;
    char *key, *model;
    pl_bench_request *request;
    double duration;
    char *before, *after; /* /metrics; NULL where there is none */
    json_t *plan;         /* /v1/plan; NULL */
} bench;

/* The body of a GET that was answered with 200, else NULL; malloc. */
static char *get(const bench *b, const char *path, pl_error *err)
{
    text t = {NULL, 0};
    pl_http_answer a = {.on_body = append, .user = &t};
    pl_status s = pl_http_exchange(&b->target, path, b->key, NULL, 60, &a, err);

    if (s == PL_OK && a.status != 200)
        s = pl_error_set(err, PL_ERR_IO, "%s: status %d (want 200)", path, a.status);
    if (s != PL_OK) {
        free(t.at);
        return NULL;
    }
    return t.at ? t.at : strdup("");
}

static json_t *get_json(const bench *b, const char *path, pl_error *err)
{
    char *body = get(b, path, err);
    json_t *root = body ? json_loads(body, 0, NULL) : NULL;

    if (body && !root)
        (void)pl_error_set(err, PL_ERR_CORRUPT, "%s: no JSON", path);
    free(body);
    return root;
}

static pl_status read_key(bench *b, pl_error *err)
{
    const char *from = getenv("PLIMSOLL_API_KEY");
    size_t n;

    if (b->o->key_file)
        PL_TRY(pl_input_read(b->o->key_file, 65536, &b->key, &n, err));
    else if (from && *from)
        b->key = strdup(from);
    if (!b->key)
        return PL_OK;
    b->key[strcspn(b->key, "\r\n")] = 0;
    for (const char *c = b->key; *c; c++)
        PL_CHECK(*c > ' ' && *c < 127, err, "api key: holds what no header may");
    PL_CHECK(b->key[0], err, "api key: empty");
    return PL_OK;
}

static pl_status find_model(bench *b, pl_error *err)
{
    json_t *models;
    const char *id;

    if (b->o->model) {
        b->model = strdup(b->o->model);
        return PL_OK;
    }
    models = get_json(b, "/v1/models", err);
    if (!models)
        return PL_ERR_IO;
    id = json_string_value(
        json_object_get(json_array_get(json_object_get(models, "data"), 0), "id"));
    b->model = id ? strdup(id) : NULL;
    json_decref(models);
    return b->model ? PL_OK
                    : pl_error_set(err, PL_ERR_IO, "/v1/models: no model (want --model NAME)");
}

static pl_status prepare(bench *b, pl_error *err)
{
    const struct options *o = b->o;
    pl_bench_dataset d = {.file = o->file,
                          .chat = strcmp(o->endpoint, "chat") == 0,
                          .ignore_eos = o->ignore_eos,
                          .input_len = o->input_len,
                          .output_len = o->output_len,
                          .vocab_size = o->vocab_size,
                          .range_ratio = o->range_ratio,
                          .temperature = o->temperature,
                          .seed = (uint64_t)o->seed};

    PL_TRY(pl_http_target_parse(o->url, &b->target, err));
    PL_TRY(read_key(b, err));
    PL_TRY(find_model(b, err));
    d.model = b->model;
    b->request = calloc((size_t)o->n_prompts, sizeof *b->request);
    if (!b->request)
        return pl_error_set(err, PL_ERR_NOMEM, "bench serve: out of memory for requests");
    PL_TRY(pl_bench_dataset_make(&d, b->request, (int)o->n_prompts, err));
    pl_bench_arrivals(b->request, (int)o->n_prompts, o->rate, (uint64_t)o->seed);
    return PL_OK;
}

static const char *path_of(const struct options *o)
{
    return strcmp(o->endpoint, "chat") == 0 ? "/v1/chat/completions" : "/v1/completions";
}

static pl_status warm_up(bench *b, int concurrency, pl_error *err)
{
    const int n = (int)b->o->n_warmups;
    pl_bench_request *r = calloc((size_t)n + 1, sizeof *r);
    double ignored;
    pl_status s;

    if (!r)
        return pl_error_set(err, PL_ERR_NOMEM, "bench serve: out of memory for warm-ups");
    for (int i = 0; i < n; i++)
        r[i].body = b->request[0].body;
    s = n ? pl_bench_send(&b->target, path_of(b->o), b->key, (int)b->o->timeout, r, n, concurrency,
                          &ignored, err)
          : PL_OK;
    for (int i = 0; i < n; i++) {
        if (s == PL_OK && !r[i].ok)
            s = pl_error_set(err, PL_ERR_IO, "warm-up: failed (got %s)", r[i].failure);
        free(r[i].gaps);
    }
    free(r);
    return s;
}

static pl_status measure(bench *b, pl_error *err)
{
    const int n = (int)b->o->n_prompts,
              bound = b->o->concurrency ? (int)b->o->concurrency : MAX_CONCURRENCY;

    PL_TRY(warm_up(b, bound, err));
    b->before = get(b, "/metrics", NULL);
    PL_TRY(pl_bench_send(&b->target, path_of(b->o), b->key, (int)b->o->timeout, b->request, n,
                         bound, &b->duration, err));
    b->after = get(b, "/metrics", NULL);
    b->plan = get_json(b, "/v1/plan", NULL);
    return PL_OK;
}

/* ---- results */

static const char *const metric_names[N_METRICS] = {"ttft", "tpot", "itl", "e2el"};

/* Values of a metric over all requests that succeeded; malloc. */
static double *gather(const bench *b, int metric, size_t *n)
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
        if (metric == 0)
            v[(*n)++] = r->first - r->start;
        else if (metric == 1 && r->output_tokens > 1)
            v[(*n)++] = (r->last - r->first) / (double)(r->output_tokens - 1);
        else if (metric == 3)
            v[(*n)++] = r->last - r->start;
        for (size_t g = 0; metric == 2 && g < r->n_gaps; g++)
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

static pl_status add_metrics(const bench *b, json_t *root, pl_error *err)
{
    for (int m = 0; m < N_METRICS; m++) {
        size_t n;
        double *v = gather(b, m, &n);
        pl_bench_summary s;

        if (!v)
            return pl_error_set(err, PL_ERR_NOMEM, "bench serve: out of memory for results");
        s = pl_bench_summarise(v, n);
        free(v);
        set_real(root, "mean_", metric_names[m], "_ms", s.mean);
        set_real(root, "median_", metric_names[m], "_ms", s.median);
        set_real(root, "std_", metric_names[m], "_ms", s.std);
        set_real(root, "p99_", metric_names[m], "_ms", s.p99);
    }
    return PL_OK;
}

static double difference(const bench *b, const char *name, const char *label)
{
    const double after = b->after ? pl_bench_counter(b->after, name, label) : -1,
                 before = b->before ? pl_bench_counter(b->before, name, label) : -1;

    return after < 0 ? -1 : after - (before < 0 ? 0 : before);
}

static void add_drafts(const bench *b, json_t *root)
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

static void add_memory(const bench *b, json_t *root)
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

static void add_environment(const bench *b, json_t *root, int argc, char **argv)
{
    struct utsname kernel = {0};
    const char *fingerprint = "";
    json_t *e = json_object(), *command = json_pack("[s,s]", "plimsoll", "bench");
    pl_cpu cpu;

    pl_cpu_detect(&cpu, NULL);
    (void)uname(&kernel);
    for (int64_t i = 0; i < b->o->n_prompts && !*fingerprint; i++)
        fingerprint = b->request[i].fingerprint;
    for (int i = 0; i < argc; i++)
        json_array_append_new(command, json_string(argv[i]));
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

static void add_load(const struct options *o, json_t *root)
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

static void add_counts(const bench *b, json_t *root)
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

static void line(const json_t *root, const char *label, const char *key, int digits)
{
    const json_t *v = json_object_get(root, key);

    if (json_is_number(v))
        printf("%-40s %.*f\n", label, digits, json_number_value(v));
}

static void print(const bench *b, const json_t *root)
{
    static const char *const labels[N_METRICS] = {"TTFT", "TPOT", "ITL", "E2EL"};
    const json_t *memory = json_object_get(root, "memory"),
                 *rates = json_object_get(root, "spec_decode_per_position_acceptance_rates"), *v;
    size_t i;

    printf("Serving Benchmark Result\n");
    line(root, "Successful requests:", "completed", 0);
    line(root, "Failed requests:", "failed", 0);
    if (b->o->concurrency)
        printf("%-40s %lld\n", "Maximum request concurrency:", (long long)b->o->concurrency);
    if (b->o->rate > 0)
        printf("%-40s %.2f\n", "Request rate configured (RPS):", b->o->rate);
    line(root, "Benchmark duration (s):", "duration", 2);
    line(root, "Total input tokens:", "total_input_tokens", 0);
    line(root, "Total generated tokens:", "total_output_tokens", 0);
    line(root, "Request throughput (req/s):", "request_throughput", 2);
    line(root, "Output token throughput (tok/s):", "output_throughput", 2);
    line(root, "Total token throughput (tok/s):", "total_token_throughput", 2);
    for (int m = 0; m < N_METRICS; m++) {
        static const char *const kinds[][2] = {
            {"Mean", "mean_"}, {"Median", "median_"}, {"P99", "p99_"}};

        for (i = 0; i < 3; i++) {
            char label[48], key[48];

            snprintf(label, sizeof label, "%s %s (ms):", kinds[i][0], labels[m]);
            snprintf(key, sizeof key, "%s%s_ms", kinds[i][1], metric_names[m]);
            line(root, label, key, 2);
        }
    }
    line(root, "Acceptance rate (%):", "spec_decode_acceptance_rate", 2);
    line(root, "Acceptance length:", "spec_decode_acceptance_length", 2);
    line(root, "Drafts:", "spec_decode_num_drafts", 0);
    line(root, "Draft tokens:", "spec_decode_draft_tokens", 0);
    line(root, "Accepted tokens:", "spec_decode_accepted_tokens", 0);
    json_array_foreach(rates, i, v)
        printf("  position %zu:%*s %.2f\n", i, 26, "", 100 * json_number_value(v));
    line(memory, "Planned memory (bytes):", "total_bytes", 0);
    line(memory, "Peak resident memory (bytes):", "peak_resident_bytes", 0);
    line(memory, "KV cache (bytes):", "cache_bytes", 0);
    line(memory, "KV cache (tokens):", "cache_tokens", 0);
    printf("\nEnvironment\n");
    (void)json_dumpf(json_object_get(root, "environment"), stdout, JSON_INDENT(2));
    printf("\n");
}

static pl_status report(const bench *b, int argc, char **argv, pl_error *err)
{
    json_t *root = json_object();
    pl_status s;

    add_counts(b, root);
    s = add_metrics(b, root, err);
    add_drafts(b, root);
    add_memory(b, root);
    add_load(b->o, root);
    add_environment(b, root, argc, argv);
    if (s == PL_OK && b->o->save && json_dump_file(root, b->o->save, JSON_INDENT(2)) != 0)
        s = pl_error_set(err, PL_ERR_IO, "%s: cannot be written", b->o->save);
    if (s == PL_OK && b->o->json) {
        (void)json_dumpf(root, stdout, JSON_INDENT(2));
        printf("\n");
    } else if (s == PL_OK) {
        print(b, root);
    }
    json_decref(root);
    return s;
}

static void fini(bench *b)
{
    for (int64_t i = 0; b->request && i < b->o->n_prompts; i++) {
        free(b->request[i].body);
        free(b->request[i].gaps);
    }
    free(b->request);
    free(b->key);
    free(b->model);
    free(b->before);
    free(b->after);
    json_decref(b->plan);
}

static pl_status parse_rate(struct options *o, pl_error *err)
{
    char *end;

    if (!o->rate_text || strcmp(o->rate_text, "inf") == 0)
        return PL_OK;
    o->rate = strtod(o->rate_text, &end);
    PL_CHECK(*end == 0 && o->rate > 1e-6 && o->rate < 1e6, err,
             "--request-rate: no rate (got '%s', want a number above 0, or inf)", o->rate_text);
    return PL_OK;
}

static pl_status serve(struct options *o, int argc, char **argv, bool *all_ok, pl_error *err)
{
    bench b = {.o = o};
    pl_status s = parse_rate(o, err);

    if (s == PL_OK)
        s = prepare(&b, err);
    if (s == PL_OK)
        s = measure(&b, err);
    if (s == PL_OK)
        s = report(&b, argc, argv, err);
    *all_ok = s == PL_OK;
    for (int64_t i = 0; s == PL_OK && i < o->n_prompts; i++)
        *all_ok = *all_ok && b.request[i].ok;
    fini(&b);
    return s;
}

static int run(int argc, char **argv)
{
    struct options o = {.url = "http://127.0.0.1:8000",
                        .endpoint = "completions",
                        .n_prompts = 16,
                        .input_len = 1024,
                        .output_len = 128,
                        .vocab_size = 1000,
                        .n_warmups = 1,
                        .timeout = 3600};
    const char *args[64] = {NULL};
    pl_error err = {0};
    bool all_ok = true;
    int status, n = 0;
    pl_status s;

    if (!pl_options_parse(&pl_command_bench_serve, argc, argv, &o, args, &status))
        return status;
    while (n < 64 && args[n])
        n++;
    if (o.compare)
        s = pl_bench_compare(args, n, o.allow_different, o.json, &err);
    else if (n > 0)
        s = pl_error_set(&err, PL_ERR_INVALID, "bench serve: files without --compare (got '%s')",
                         args[0]);
    else
        s = serve(&o, argc, argv, &all_ok, &err);
    if (s != PL_OK)
        return pl_report_error(&err);
    return all_ok ? PL_EXIT_OK : PL_EXIT_NO;
}

const pl_command pl_command_bench_serve = {
    .name = "bench serve",
    .usage = "[--url URL] [options] | --compare A.json B.json ..",
    .summary = "load on a running OpenAI server: throughput, TTFT, TPOT, ITL, acceptance, memory",
    .details =
        "Streams requests and prints the figures of vLLM's 'bench serve' (docs/PERFORMANCE.md says "
        "how\n"
        "each is defined). Exit status 1 where a request failed; 3 where the server cannot be "
        "reached.\n"
        "Drafts and memory are read from the server's /metrics and /v1/plan where it has them.\n\n"
        "examples:\n"
        "  plimsoll bench serve --num-prompts 4 --random-input-len 512 --save a.json\n"
        "  plimsoll bench serve --compare a.json b.json a2.json",
    .options = table,
    .min_args = 0,
    .max_args = 64,
    .run = run,
};
