/* Options of an engine. */
#include "cli/engine_options.h"

#include <string.h>

#include "base/error.h"

const char *const pl_engine_options_loads[] = {"auto", "direct", "buffered", NULL};
const char *const pl_engine_options_samplings[] = {"shared-noise", "rejection", NULL};

pl_status pl_engine_options_kv_dtype(void *options, const char *name, const char *value,
                                     pl_error *err)
{
    if (strcmp(value, "auto") == 0 || strcmp(value, "fp8") == 0 || strcmp(value, "fp8_ds_mla") == 0)
        return PL_OK;
    return pl_error_set(err, PL_ERR_UNSUPPORTED,
                        "%s: the model was trained with FP8 caches and gives other results with "
                        "any other type (got '%s', want auto, fp8 or fp8_ds_mla)",
                        name, value);
}

pl_engine_params pl_engine_options_params(const pl_engine_options *o)
{
    pl_engine_params p = pl_engine_params_default();

    p.threads = (int)o->threads;
    p.level = o->level;
    p.load = o->load;
    p.memory_bytes = o->memory;
    p.kv_cache_memory_bytes = o->kv_cache_memory;
    if (o->prefix_cache_memory != PL_PREFIX_CACHE_REST)
        p.prefix_cache_memory_bytes = o->prefix_cache_memory;
    p.max_model_len = (int)o->max_model_len;
    if (o->max_num_seqs)
        p.max_num_seqs = (int)o->max_num_seqs;
    if (o->max_num_batched_tokens)
        p.max_num_batched_tokens = (int)o->max_num_batched_tokens;
    p.adapt_speculative_tokens = o->num_speculative_tokens == PL_OPTION_AUTO;
    p.num_speculative_tokens =
        p.adapt_speculative_tokens ? PL_MAX_SPECULATIVE : (int)o->num_speculative_tokens;
    if (o->draft_sampling && strcmp(o->draft_sampling, "rejection") == 0)
        p.draft_sampling = PL_DRAFT_REJECTION;
    p.ranks = (int)o->ranks;
    return p;
}
