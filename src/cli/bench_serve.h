/* plimsoll bench serve: its load, what it times, and the numbers made of that. */
#ifndef PL_CLI_BENCH_SERVE_H
#define PL_CLI_BENCH_SERVE_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/http_client.h"
#include "cli/options.h"

/* ---- numbers */

typedef struct pl_bench_summary {
    double mean, median, p99, std; /* milliseconds; 0 of none */
    size_t n;
} pl_bench_summary;

/* Percentiles with linear interpolation between neighbours, p in percent; `sorted` ascends. 0 of none. */
double pl_bench_percentile(const double *sorted, size_t n, double p);

/* Of seconds, which it sorts. std is that of the population. */
pl_bench_summary pl_bench_summarise(double *seconds, size_t n);

/* ---- requests */

typedef struct pl_bench_request {
    char *body;     /* JSON, malloc */
    double arrival; /* seconds after the start */
    bool ok;
    double start, first, last; /* seconds; of the request, its first and last text */
    double *gaps;              /* between texts, malloc */
    size_t n_gaps, max_gaps;
    int64_t input_tokens,
        output_tokens; /* as the server counts; output: events with text where it does not */
    char failure[PL_ERROR_MSG_BYTES];
    char fingerprint[128];
} pl_bench_request;

/* Events of a stream, given bytes as they come. */
typedef struct pl_bench_stream {
    pl_bench_request *request;
    double (*now)(void *user);
    void *user;
    char *line;
    size_t n_line, max_line;
    bool done, failed; /* [DONE] was read; an event was an error or no JSON */
    int64_t n_events;
    bool counted; /* the server told usage */
} pl_bench_stream;

/* A pl_http_body_fn over a pl_bench_stream. Lines above 4 MiB fail. The caller frees `line`. */
bool pl_bench_stream_push(void *stream, const char *data, size_t n);

/* Poisson arrivals at `rate` a second; 0: all at once. A function of seed. */
void pl_bench_arrivals(pl_bench_request *r, int n, double rate, uint64_t seed);

/* Sends them all, at most `concurrency` at once. Failures are told in the requests. NOMEM alone fails. */
pl_status pl_bench_send(const pl_http_target *t, const char *path, const char *key, int timeout_s,
                        pl_bench_request *r, int n, int concurrency, double *duration,
                        pl_error *err) PL_MUST_CHECK;

/* Sum of a counter's samples in Prometheus text; with `label` (position="0") only of lines that have it. -1 where there
 * is none. */
double pl_bench_counter(const char *text, const char *name, const char *label);

/* ---- saved results */

/* Prints them side by side; INVALID where environment or load differ and `any` is false. */
pl_status pl_bench_compare(const char *const *path, int n, bool any, bool as_json,
                           pl_error *err) PL_MUST_CHECK;

extern const pl_command pl_command_bench_serve;

#endif
