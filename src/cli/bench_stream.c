/* What plimsoll bench serve times and counts: events of a stream, percentiles, arrivals, counters of Prometheus text. Knows
 * no network. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/philox.h"
#include "cli/bench_serve.h"

enum { MAX_LINE_BYTES = 4 << 20, MAX_GAPS = 1 << 20 };

double pl_bench_percentile(const double *sorted, size_t n, double p)
{
    double at, below;

    if (n == 0)
        return 0;
    at = p / 100 * (double)(n - 1);
    below = floor(at);
    if ((size_t)below + 1 >= n)
        return sorted[n - 1];
    return sorted[(size_t)below] +
           (at - below) * (sorted[(size_t)below + 1] - sorted[(size_t)below]);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

pl_bench_summary pl_bench_summarise(double *seconds, size_t n)
{
    pl_bench_summary s = {.n = n};
    double squares = 0;

    if (n == 0)
        return s;
    qsort(seconds, n, sizeof *seconds, ascending);
    for (size_t i = 0; i < n; i++)
        s.mean += seconds[i] * 1e3 / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (seconds[i] * 1e3 - s.mean) * (seconds[i] * 1e3 - s.mean);
    s.std = sqrt(squares / (double)n);
    s.median = 1e3 * pl_bench_percentile(seconds, n, 50);
    s.p99 = 1e3 * pl_bench_percentile(seconds, n, 99);
    return s;
}

void pl_bench_arrivals(pl_bench_request *r, int n, double rate, uint64_t seed)
{
    double at = 0;

    for (int i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 2, 0},
                       key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
        uint32_t out[4];

        pl_philox4x32(counter, key, out);
        r[i].arrival = rate > 0 ? at : 0;
        if (rate > 0)
            at += -log(((double)out[0] + 0.5) / 4294967296.0) / rate;
    }
}

/* ---- events */

static const char *text_of(const json_t *choice)
{
    static const char *const keys[] = {"content", "reasoning_content", "reasoning"};
    const json_t *delta = json_object_get(choice, "delta");
    const char *text = json_string_value(json_object_get(choice, "text"));

    for (int i = 0; i < 3 && (!text || !*text); i++)
        text = json_string_value(json_object_get(delta, keys[i]));
    if ((!text || !*text) && json_array_size(json_object_get(delta, "tool_calls")) > 0)
        text = "tool";
    return text ? text : "";
}

static bool add_gap(pl_bench_request *r, double gap)
{
    if (r->n_gaps == r->max_gaps) {
        const size_t more = r->max_gaps ? 2 * r->max_gaps : 64;
        double *larger = more <= MAX_GAPS ? realloc(r->gaps, more * sizeof *larger) : NULL;

        if (!larger)
            return false;
        r->gaps = larger;
        r->max_gaps = more;
    }
    r->gaps[r->n_gaps++] = gap;
    return true;
}

static bool note_text(pl_bench_stream *s)
{
    pl_bench_request *r = s->request;
    const double now = s->now(s->user);
    bool fits = true;

    if (s->n_events++ == 0)
        r->first = now;
    else
        fits = add_gap(r, now - r->last);
    r->last = now;
    if (!s->counted)
        r->output_tokens = s->n_events;
    return fits;
}

static void note_usage(pl_bench_stream *s, const json_t *usage)
{
    if (!json_is_object(usage))
        return;
    s->counted = true;
    s->request->input_tokens = json_integer_value(json_object_get(usage, "prompt_tokens"));
    s->request->output_tokens = json_integer_value(json_object_get(usage, "completion_tokens"));
}

static bool take_event(pl_bench_stream *s, const char *data)
{
    const json_t *choices, *fingerprint;
    bool fine = true;
    json_t *root;

    if (strcmp(data, "[DONE]") == 0) {
        s->done = true;
        return true;
    }
    root = json_loads(data, 0, NULL);
    if (!json_is_object(root) || json_object_get(root, "error")) {
        json_decref(root);
        return false;
    }
    choices = json_object_get(root, "choices");
    fingerprint = json_object_get(root, "system_fingerprint");
    if (json_is_string(fingerprint) && !s->request->fingerprint[0]) {
        strncpy(s->request->fingerprint, json_string_value(fingerprint),
                sizeof s->request->fingerprint - 1);
    }
    if (text_of(json_array_get(choices, 0))[0])
        fine = note_text(s);
    note_usage(s, json_object_get(root, "usage"));
    json_decref(root);
    return fine;
}

static bool take_line(pl_bench_stream *s)
{
    const char *at = s->line;

    if (s->n_line && s->line[s->n_line - 1] == '\r')
        s->n_line--;
    s->line[s->n_line] = 0;
    s->n_line = 0;
    if (strncmp(at, "data:", 5) != 0 || s->done)
        return true; /* comments, other fields, the blank line behind an event */
    at += 5;
    return take_event(s, at + (*at == ' '));
}

static bool put_byte(pl_bench_stream *s, char c)
{
    if (s->n_line + 1 >= s->max_line) {
        const size_t more = s->max_line ? 2 * s->max_line : 1024;
        char *larger = more <= MAX_LINE_BYTES ? realloc(s->line, more) : NULL;

        if (!larger)
            return false;
        s->line = larger;
        s->max_line = more;
    }
    if (c == '\n')
        return take_line(s);
    s->line[s->n_line++] = c;
    return true;
}

bool pl_bench_stream_push(void *stream, const char *data, size_t n)
{
    pl_bench_stream *s = stream;

    for (size_t i = 0; i < n && !s->failed; i++)
        s->failed = !put_byte(s, data[i]);
    return !s->failed;
}

/* ---- counters */

double pl_bench_counter(const char *text, const char *name, const char *label)
{
    const size_t n_name = strlen(name);
    double sum = -1;

    for (const char *line = text; line && *line;) {
        const char *end = strchrnul(line, '\n'), *value = end;

        while (value > line && value[-1] != ' ')
            value--;
        if (strncmp(line, name, n_name) == 0 && (line[n_name] == '{' || line[n_name] == ' ') &&
            (!label || memmem(line, (size_t)(end - line), label, strlen(label))))
            sum = (sum < 0 ? 0 : sum) + strtod(value, NULL);
        line = *end ? end + 1 : end;
    }
    return sum;
}
