/* Weights in memory, reached through slots.
 *
 * The forward pass names a weight by its slot and asks for a view each time it runs an operator. It
 * never sees a file, an offset or a layout decision: re-tiled copies, copies per NUMA node and experts
 * streamed from disk change what stands behind a slot and nothing else. */
#ifndef PL_MODEL_WEIGHTS_H
#define PL_MODEL_WEIGHTS_H

#include "base/pool.h"
#include "model/checkpoint.h"
#include "model/shard_read.h"
#include "ops/weight_view.h"

typedef struct pl_weights pl_weights;

/* Index of a weight (a matrix together with its scales, or a vector); PL_SLOT_NONE where a layer has
 * no such weight. */
typedef int32_t pl_slot;
enum { PL_SLOT_NONE = -1 };

/* Slots of one block; PL_SLOT_NONE where the layer's type has no such weight. */
typedef struct pl_layer_slots {
    int32_t ratio; /* 0, 4, 128 */
    pl_slot attn_norm, ffn_norm;
    pl_slot hc_attn_fn, hc_attn_base, hc_attn_scale;
    pl_slot hc_ffn_fn, hc_ffn_base, hc_ffn_scale;
    pl_slot attn_sink, wq_a, q_norm, wq_b, wkv, kv_norm, wo_a, wo_b;
    pl_slot comp_ape, comp_wkv, comp_wgate, comp_norm;
    pl_slot index_wq_b, index_weights_proj;
    pl_slot index_comp_ape, index_comp_wkv, index_comp_wgate, index_comp_norm;
    pl_slot gate, gate_tid2eid, gate_bias;
    pl_slot shared_w1, shared_w2, shared_w3;
    pl_slot expert_w1, expert_w2, expert_w3; /* of expert 0; expert e is slot + e */
} pl_layer_slots;

typedef struct pl_model_slots {
    pl_slot embed, norm, head, hc_head_fn, hc_head_base, hc_head_scale;
    bool has_mtp;
    pl_layer_slots mtp; /* with the slots below; valid where has_mtp */
    pl_slot mtp_e_proj, mtp_h_proj, mtp_enorm, mtp_hnorm, mtp_norm;
    pl_slot mtp_hc_head_fn, mtp_hc_head_base, mtp_hc_head_scale;
    pl_layer_slots layer[PL_MAX_LAYERS];
} pl_model_slots;

/* What the memory is made of; the same in every build. */
typedef struct pl_weights_plan {
    uint64_t tensor_bytes;  /* as in the files, without what is not loaded */
    uint64_t padding_bytes; /* each weight and each scale starts at a multiple of 64 */
    uint64_t table_bytes;   /* slots and views; their padding included */
    uint64_t bytes;         /* the sum */
    uint64_t buffer_bytes;  /* beside it while loading: what one worker reads into */
    int32_t n_slots;
} pl_weights_plan;

/* From a configuration alone, and for an open checkpoint. One code path makes both and the carving. */
pl_weights_plan pl_weights_plan_config(const pl_config *config, const pl_storage *storage);
pl_weights_plan pl_weights_plan_checkpoint(const pl_checkpoint *checkpoint);

/* Bytes that pl_weights_load will carve, exactly: the caller plans and supplies the memory. Equal to the plan's,
 * except that ASAN builds add red zones. */
uint64_t pl_weights_bytes(const pl_checkpoint *checkpoint);

/* Of a read; larger ones gain nothing, smaller ones cost calls. */
enum { PL_LOAD_CHUNK_BYTES = 512 << 10 };

/* Bytes of the read buffers for so many workers. */
uint64_t pl_weights_buffers_bytes(const pl_weights_plan *plan, int n_workers);

typedef struct pl_load_params {
    pl_weight_layout layout;
    pl_load_mode mode;
    pl_pool *pool; /* NULL: the calling thread alone. What is loaded does not depend on it */
    void *buffers; /* pl_weights_buffers_bytes, unused afterwards; NULL: the heap, for a while */
} pl_load_params;

typedef struct pl_load_report {
    bool direct;
    const char *reason; /* why that way; static text */
    uint64_t bytes;
} pl_load_report;

/* Reads every weight into `memory` (pl_weights_bytes, 64-byte aligned, borrowed until close) and
 * checks the values that section 1.3 says to refuse (E8M0 255; F32 scales NaN, infinite, zero,
 * negative) and expert ids of tid2eid: CORRUPT, naming file, tensor and element. On the heap there is a list of the
 * tensors until it returns. A file that is shorter than its header says, or that has changed since it was
 * opened: IO. `checkpoint` may be closed afterwards. On failure *out is NULL.
 *
 * With PL_WEIGHT_TILES the matrices of linear layers become tiles as each 16 rows have been read; a matrix
 * that has no whole tiles, or a NaN among its FP8 codes, stays in rows, as its view says. So do the embedding, which
 * is read by token, and all that is no linear layer. `report` may be NULL. */
pl_status pl_weights_load_as(const pl_checkpoint *checkpoint, void *memory,
                             const pl_load_params *params, pl_weights **out, pl_load_report *report,
                             pl_error *err) PL_MUST_CHECK;

/* Reads the same bytes the same way into the buffers and does nothing with them: what loading is measured against. */
pl_status pl_weights_read_only(const pl_checkpoint *checkpoint, const pl_load_params *params,
                               pl_load_report *report, pl_error *err) PL_MUST_CHECK;

/* The same as pl_weights_load_as, buffered, in rows, by the calling thread. */
pl_status pl_weights_load(const pl_checkpoint *checkpoint, void *memory, pl_weights **out,
                          pl_error *err) PL_MUST_CHECK;

/* Ends the use of `memory`; NULL is fine. */
void pl_weights_close(pl_weights *weights);

const pl_config *pl_weights_config(const pl_weights *weights);
/* The layout asked for; some matrices may be in rows all the same. */
pl_weight_layout pl_weights_layout(const pl_weights *weights);
const pl_model_slots *pl_weights_slots(const pl_weights *weights);

/* Never fails for a slot other than PL_SLOT_NONE. The view is valid until close. */
pl_weight_view pl_weights_view(const pl_weights *weights, pl_slot slot);

#endif
