/* The safetensors file of a trace: which tensors, of what type, where.
 *
 * Everything is known before the first token runs, so that rows are written where they belong as they are
 * made. Names are those of the oracle's golden files; all positions are stored. */
#ifndef PL_MODEL_TRACE_LAYOUT_H
#define PL_MODEL_TRACE_LAYOUT_H

#include "model/trace.h"
#include "model/weights.h"

typedef enum pl_trace_type {
    PL_TRACE_I64,
    PL_TRACE_F32,
    PL_TRACE_BF16,
    PL_TRACE_TYPE_COUNT
} pl_trace_type;

typedef struct pl_trace_tensor {
    char name[64];
    pl_trace_type type;
    int rank;
    int64_t shape[3];
    int64_t cols; /* of a row: the product of shape behind the first */
    uint64_t row_bytes;
    uint64_t offset; /* in the file */
} pl_trace_tensor;

/* Tensors besides the taps. Those of a layer come once per layer. */
typedef enum pl_trace_extra {
    PL_TRACE_SUMS = PL_TAP_COUNT,
    PL_TRACE_ENTRIES,
    PL_TRACE_INDEX_ENTRIES,
    PL_TRACE_PER_LAYER,
} pl_trace_extra;

typedef enum pl_trace_global {
    PL_TRACE_TOKENS,
    PL_TRACE_POSITIONS,
    PL_TRACE_Q_POSITIONS,
    PL_TRACE_LOGITS,
    PL_TRACE_MTP_POSITIONS,
    PL_TRACE_MTP_LOGITS,
    PL_TRACE_MTP_STREAMS,
    PL_TRACE_GLOBAL_COUNT,
} pl_trace_global;

typedef struct pl_trace_layout {
    int32_t n_layers;
    uint64_t file_bytes;
    char *header; /* the 8 bytes of length and the JSON; malloc */
    uint64_t header_bytes;
    pl_trace_tensor global[PL_TRACE_GLOBAL_COUNT]; /* name "" where there is none */
    pl_trace_tensor (*layer)[PL_TRACE_PER_LAYER];  /* [n_layers], malloc */
} pl_trace_layout;

/* For T tokens. Fails with NOMEM alone; the caller frees with _fini in any case. */
pl_status pl_trace_layout_init(pl_trace_layout *l, const pl_config *config, bool has_mtp,
                               const pl_ops *ops, int32_t T, pl_error *err) PL_MUST_CHECK;
void pl_trace_layout_fini(pl_trace_layout *l);

#endif
