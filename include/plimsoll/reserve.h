/* What other engines take for DeepSeek-V4, in closed form: for whoever sizes one of them, or wants to compare.
 *
 * Two kinds. PADDED: transients of a step that a start-up profile without attention metadata does not see, so
 * that they have to be reserved by hand. VLLM: pages of the five cache groups in vLLM's layout, and what follows for a
 * token and a request. No number here says anything about Plimsoll's own memory; that is the plan
 * (plimsoll/engine.h). docs/MEMORY.md 6 says where each form comes from.
 *
 *     pl_reserve_params p = {.n_layers = 43, .n_csa_layers = 21, .n_hca_layers = 20, .hidden_size = 4096,
 *                            .max_model_len = 1048576, .max_num_batched_tokens = 8195};
 *     pl_reserve_row rows[PL_RESERVE_MAX_ROWS];
 *     int n;
 *     if (pl_reserve_rows(PL_RESERVE_PADDED, &p, rows, &n, &err) != PL_OK) ... */
#ifndef PL_PLIMSOLL_RESERVE_H
#define PL_PLIMSOLL_RESERVE_H

#include <stdint.h>

#include "plimsoll/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pl_reserve_kind { PL_RESERVE_PADDED, PL_RESERVE_VLLM } pl_reserve_kind;

typedef struct pl_reserve_params {
    int32_t n_layers;     /* of the main stack; each keeps a window */
    int32_t n_csa_layers; /* ratio 4, with an indexer */
    int32_t n_hca_layers; /* ratio 128 */
    int32_t hidden_size;
    int32_t max_model_len;          /* tokens */
    int32_t max_num_batched_tokens; /* of a step */
} pl_reserve_params;

enum { PL_RESERVE_MAX_ROWS = 12 };

typedef struct pl_reserve_row {
    char name[40];     /* "padded.output", "vllm.page.full", .. */
    char formula[176]; /* gives `bytes`; words in it only explain */
    uint64_t bytes;
} pl_reserve_row;

/* Fills rows[0 .. *n - 1]; rows for layers that the model has none of are left out. INVALID for numbers below 1 (layer
 * counts below 0, or more layers of a ratio than layers), OVERFLOW where a product is above 2^64 - 1; *n is 0
 * then. */
PL_API pl_status pl_reserve_rows(pl_reserve_kind kind, const pl_reserve_params *params,
                                 pl_reserve_row rows[PL_RESERVE_MAX_ROWS], int *n,
                                 pl_error *err) PL_MUST_CHECK;

/* "padded", "vllm". */
PL_API const char *pl_reserve_kind_name(pl_reserve_kind kind);

#ifdef __cplusplus
}
#endif
#endif
