/* plimsoll bench serve: load on a running OpenAI server. Its options, and a run from the first question to the last: the model,
 * requests, warm-ups, the load between two readings of the server's counters.
 *
 * The server is only asked over HTTP. Requests are sent by bench_send.c; what a run comes to is bench_serve_results.c's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/bench_dataset.h"
#include "cli/bench_serve_run.h"

enum { MAX_CONCURRENCY = 1024 };

static const char *const endpoints[] = {"completions", "chat", NULL};

#define FIELD(name) offsetof(pl_bench_options, name)

/* clang-format off */
static const pl_option table[] = {
    {"--url", PL_OPTION_STRING, "URL", "of the server; default: http://127.0.0.1:8000", FIELD(url)},
    {"--endpoint", PL_OPTION_CHOICE, "completions|chat", "default: completions", FIELD(endpoint), .choices = endpoints},
    {"--model", PL_OPTION_STRING, "NAME", "default: the first of /v1/models", FIELD(model)},
    PL_HTTP_CLIENT_KEY_ROW(pl_bench_options),
    PL_HTTP_CLIENT_CA_ROW(pl_bench_options),
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

static json_t *get_json(const pl_bench_run *b, const char *path, pl_error *err)
{
    char *body = pl_http_client_get(&b->client, path, err);
    json_t *root = body ? json_loads(body, 0, NULL) : NULL;

    if (body && !root)
        (void)pl_error_set(err, PL_ERR_CORRUPT, "%s: no JSON", path);
    free(body);
    return root;
}

static pl_status find_model(pl_bench_run *b, pl_error *err)
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

static pl_status prepare(pl_bench_run *b, pl_error *err)
{
    const pl_bench_options *o = b->o;
    pl_bench_dataset d = {.file = o->file,
                          .chat = strcmp(o->endpoint, "chat") == 0,
                          .ignore_eos = o->ignore_eos,
                          .input_len = o->input_len,
                          .output_len = o->output_len,
                          .vocab_size = o->vocab_size,
                          .range_ratio = o->range_ratio,
                          .temperature = o->temperature,
                          .seed = (uint64_t)o->seed};

    PL_TRY(pl_http_client_open(&b->client, o->url, o->key_file, o->ca_file, err));
    PL_TRY(find_model(b, err));
    d.model = b->model;
    b->request = calloc((size_t)o->n_prompts, sizeof *b->request);
    if (!b->request)
        return pl_error_set(err, PL_ERR_NOMEM, "bench serve: out of memory for requests");
    PL_TRY(pl_bench_dataset_make(&d, b->request, (int)o->n_prompts, err));
    pl_bench_arrivals(b->request, (int)o->n_prompts, o->rate, (uint64_t)o->seed);
    return PL_OK;
}

static const char *path_of(const pl_bench_options *o)
{
    return strcmp(o->endpoint, "chat") == 0 ? "/v1/chat/completions" : "/v1/completions";
}

static pl_status warm_up(pl_bench_run *b, int concurrency, pl_error *err)
{
    const int n = (int)b->o->n_warmups;
    pl_bench_request *r = calloc((size_t)n + 1, sizeof *r);
    double ignored;
    pl_status s;

    if (!r)
        return pl_error_set(err, PL_ERR_NOMEM, "bench serve: out of memory for warm-ups");
    for (int i = 0; i < n; i++)
        r[i].body = b->request[0].body;
    s = n ? pl_bench_send(&b->client.target, path_of(b->o), b->client.key, (int)b->o->timeout, r, n,
                          concurrency, &ignored, err)
          : PL_OK;
    for (int i = 0; i < n; i++) {
        if (s == PL_OK && !r[i].ok)
            s = pl_error_set(err, PL_ERR_IO, "warm-up: failed (got %s)", r[i].failure);
        free(r[i].gaps);
    }
    free(r);
    return s;
}

static pl_status measure(pl_bench_run *b, pl_error *err)
{
    const int n = (int)b->o->n_prompts,
              bound = b->o->concurrency ? (int)b->o->concurrency : MAX_CONCURRENCY;

    PL_TRY(warm_up(b, bound, err));
    b->before = pl_http_client_get(&b->client, "/metrics", NULL);
    PL_TRY(pl_bench_send(&b->client.target, path_of(b->o), b->client.key, (int)b->o->timeout,
                         b->request, n, bound, &b->duration, err));
    b->after = pl_http_client_get(&b->client, "/metrics", NULL);
    b->plan = get_json(b, "/v1/plan", NULL);
    return PL_OK;
}

static pl_status report(const pl_bench_run *b, pl_error *err)
{
    json_t *root = pl_bench_serve_results(b, err);
    pl_status s = PL_OK;

    if (!root)
        return PL_ERR_NOMEM;
    if (b->o->save && json_dump_file(root, b->o->save, JSON_INDENT(2)) != 0)
        s = pl_error_set(err, PL_ERR_IO, "%s: cannot be written", b->o->save);
    if (s == PL_OK && b->o->json) {
        (void)json_dumpf(root, stdout, JSON_INDENT(2));
        printf("\n");
    } else if (s == PL_OK) {
        pl_bench_serve_print(b->o, root);
    }
    json_decref(root);
    return s;
}

static void fini(pl_bench_run *b)
{
    for (int64_t i = 0; b->request && i < b->o->n_prompts; i++) {
        free(b->request[i].body);
        free(b->request[i].gaps);
    }
    free(b->request);
    free(b->model);
    free(b->before);
    free(b->after);
    json_decref(b->plan);
    pl_http_client_close(&b->client);
}

static pl_status parse_rate(pl_bench_options *o, pl_error *err)
{
    char *end;

    if (!o->rate_text || strcmp(o->rate_text, "inf") == 0)
        return PL_OK;
    o->rate = strtod(o->rate_text, &end);
    PL_CHECK(*end == 0 && o->rate > 1e-6 && o->rate < 1e6, err,
             "--request-rate: no rate (got '%s', want a number above 0, or inf)", o->rate_text);
    return PL_OK;
}

static pl_status serve(pl_bench_options *o, int argc, char **argv, bool *all_ok, pl_error *err)
{
    pl_bench_run b = {.o = o, .argc = argc, .argv = argv};
    pl_status s = parse_rate(o, err);

    if (s == PL_OK)
        s = prepare(&b, err);
    if (s == PL_OK)
        s = measure(&b, err);
    if (s == PL_OK)
        s = report(&b, err);
    *all_ok = s == PL_OK;
    for (int64_t i = 0; s == PL_OK && i < o->n_prompts; i++)
        *all_ok = *all_ok && b.request[i].ok;
    fini(&b);
    return s;
}

static int run(int argc, char **argv)
{
    pl_bench_options o = {.url = "http://127.0.0.1:8000",
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
