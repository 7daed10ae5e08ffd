/* A whole prompt traced into a safetensors file. */
#ifndef PL_MODEL_TRACE_FILE_H
#define PL_MODEL_TRACE_FILE_H

#include "model/forward.h"

/* Runs tokens[n] through the main stack in steps of at most max_step tokens, and (h_i, tokens[i + 1]) through
 * the mtp block where there is one, and writes every tensor to `path` (trace_layout.h). Memory does not grow
 * with the file; the file appears only when it is complete. Errors: INVALID for a token that is not in the
 * vocabulary or too many of them, IO, NOMEM. */
pl_status pl_trace_write(const char *path, const pl_weights *weights, const pl_ops *ops,
                         pl_pool *pool, const int32_t *tokens, int32_t n, int32_t max_step,
                         pl_error *err) PL_MUST_CHECK;

#endif
