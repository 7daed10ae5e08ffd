/* The options that every command with an engine has, `plan` among them: one table, so that equal options mean
 * equal plans. */
#ifndef PL_CLI_ENGINE_OPTIONS_H
#define PL_CLI_ENGINE_OPTIONS_H

#include "cli/options.h"
#include "plimsoll/engine.h"

typedef struct pl_engine_options {
    int64_t threads, max_model_len, max_num_seqs, max_num_batched_tokens, num_speculative_tokens;
    int64_t ranks;
    uint64_t memory, kv_cache_memory;
    uint64_t prefix_cache_memory; /* PL_PREFIX_CACHE_REST: not given */
    const char *level, *load, *draft_sampling;
} pl_engine_options;

/* 0 and NULL: not given, but for what says otherwise. */
static inline pl_engine_options pl_engine_options_none(void)
{
    return (pl_engine_options){.prefix_cache_memory = PL_PREFIX_CACHE_REST};
}

pl_status pl_engine_options_kv_dtype(void *options, const char *name, const char *value,
                                     pl_error *err);

extern const char *const pl_engine_options_loads[], *const pl_engine_options_samplings[];

/* Rows of a command's table; `type` is its struct, `field` its pl_engine_options. */
#define PL_ENGINE_OPTION_AT(type, field, member) \
    (offsetof(type, field) + offsetof(pl_engine_options, member))
/* clang-format off */
#define PL_ENGINE_OPTION_ROWS(type, field, default_len, default_seqs, default_prefix)                \
    {.name = "--threads", .kind = PL_OPTION_INT, .value = "N",                                       \
     .help = "workers; default: physical cores that may be used",                                    \
     .offset = PL_ENGINE_OPTION_AT(type, field, threads), .min = 1, .max = 4096},                    \
    {.name = "--level", .kind = PL_OPTION_STRING, .value = "L",                                      \
     .help = "level of kernels, as 'plimsoll cpu' lists them; default: the best that is sound",      \
     .offset = PL_ENGINE_OPTION_AT(type, field, level)},                                             \
    {.name = "--memory", .kind = PL_OPTION_BYTES, .value = "BYTES",                                  \
     .help = "the line: everything together, in bytes or as 64GiB",                                  \
     .offset = PL_ENGINE_OPTION_AT(type, field, memory), .min = 1},                                  \
    {.name = "--kv-cache-memory-bytes", .kind = PL_OPTION_BYTES, .value = "BYTES",                   \
     .help = "a line for the caches alone",                                                          \
     .offset = PL_ENGINE_OPTION_AT(type, field, kv_cache_memory), .min = 1},                         \
    {.name = "--prefix-cache-memory", .kind = PL_OPTION_BYTES, .value = "BYTES",                     \
     .help = "beginnings of texts, kept for others; 0: off; default: " default_prefix, \
     .offset = PL_ENGINE_OPTION_AT(type, field, prefix_cache_memory), .max = 1LL << 60},             \
    {.name = "--max-model-len", .kind = PL_OPTION_INT, .value = "N",                                 \
     .help = "tokens of one request; default: " default_len,                                         \
     .offset = PL_ENGINE_OPTION_AT(type, field, max_model_len), .min = 2, .max = INT32_MAX},         \
    {.name = "--max-num-seqs", .kind = PL_OPTION_INT, .value = "N",                                  \
     .help = "requests that run at once; default: " default_seqs,                                    \
     .offset = PL_ENGINE_OPTION_AT(type, field, max_num_seqs), .min = 1, .max = 65536},              \
    {.name = "--max-num-batched-tokens", .kind = PL_OPTION_INT, .value = "N",                        \
     .help = "tokens of one step, also the prefill chunk; default: 512",                             \
     .offset = PL_ENGINE_OPTION_AT(type, field, max_num_batched_tokens), .min = 1, .max = 1 << 20},  \
    {.name = "--num-speculative-tokens", .kind = PL_OPTION_INT_OR_AUTO, .value = "K|auto",           \
     .help = "drafts in a step, 0 to 8, or auto: as many as pay; no bit changes; default: 0", \
     .offset = PL_ENGINE_OPTION_AT(type, field, num_speculative_tokens), .min = 0,                   \
     .max = PL_MAX_SPECULATIVE},                                                                     \
    {.name = "--draft-sampling", .kind = PL_OPTION_CHOICE, .value = "HOW",        \
     .help = "shared-noise, or rejection: samples depend on drafts and company; default: shared-noise", \
     .offset = PL_ENGINE_OPTION_AT(type, field, draft_sampling), .choices = pl_engine_options_samplings}, \
    {.name = "--ranks", .kind = PL_OPTION_INT, .value = "N",                                         \
     .help = "executors in this process, each with its share of the model; no bit changes; default: 1", \
     .offset = PL_ENGINE_OPTION_AT(type, field, ranks), .min = 1, .max = 64},                        \
    {.name = "--kv-cache-dtype", .kind = PL_OPTION_CALL, .value = "TYPE",                            \
     .help = "auto, fp8, fp8_ds_mla: all the same, the model's own format",                          \
     .call = pl_engine_options_kv_dtype},                                                            \
    {.name = "--load", .kind = PL_OPTION_CHOICE, .value = "auto|direct|buffered",                           \
     .help = "how weights are read; direct: past the page cache; default: auto, whichever is better", \
     .offset = PL_ENGINE_OPTION_AT(type, field, load), .choices = pl_engine_options_loads}
/* clang-format on */

/* Parameters from options; what was not given keeps the library's default. */
pl_engine_params pl_engine_options_params(const pl_engine_options *o);

#endif
