/* Results of plimsoll bench serve as the block that vLLM's own command prints: same rows, same order, and below them memory
 * and environment. */
#include <stdio.h>

#include "cli/bench_serve_run.h"

static void line(const json_t *root, const char *label, const char *key, int digits)
{
    const json_t *v = json_object_get(root, key);

    if (json_is_number(v))
        printf("%-40s %.*f\n", label, digits, json_number_value(v));
}

static void print_times(const json_t *root)
{
    static const char *const labels[PL_BENCH_N_METRICS] = {"TTFT", "TPOT", "ITL", "E2EL"};
    static const char *const kinds[][2] = {
        {"Mean", "mean_"}, {"Median", "median_"}, {"P99", "p99_"}};

    for (int m = 0; m < PL_BENCH_N_METRICS; m++)
        for (int i = 0; i < 3; i++) {
            char label[48], key[48];

            snprintf(label, sizeof label, "%s %s (ms):", kinds[i][0], labels[m]);
            snprintf(key, sizeof key, "%s%s_ms", kinds[i][1], pl_bench_metric_name(m));
            line(root, label, key, 2);
        }
}

void pl_bench_serve_print(const pl_bench_options *o, const json_t *root)
{
    const json_t *memory = json_object_get(root, "memory"),
                 *rates = json_object_get(root, "spec_decode_per_position_acceptance_rates"), *v;
    size_t i;

    printf("Serving Benchmark Result\n");
    line(root, "Successful requests:", "completed", 0);
    line(root, "Failed requests:", "failed", 0);
    if (o->concurrency)
        printf("%-40s %lld\n", "Maximum request concurrency:", (long long)o->concurrency);
    if (o->rate > 0)
        printf("%-40s %.2f\n", "Request rate configured (RPS):", o->rate);
    line(root, "Benchmark duration (s):", "duration", 2);
    line(root, "Total input tokens:", "total_input_tokens", 0);
    line(root, "Total generated tokens:", "total_output_tokens", 0);
    line(root, "Request throughput (req/s):", "request_throughput", 2);
    line(root, "Output token throughput (tok/s):", "output_throughput", 2);
    line(root, "Total token throughput (tok/s):", "total_token_throughput", 2);
    print_times(root);
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
