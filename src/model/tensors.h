/* The list of tensors a configuration implies: specification section 9.2 as code, once.
 *
 * The checkpoint check, the closed-form plan and `synth` walk the same list. */
#ifndef PL_MODEL_TENSORS_H
#define PL_MODEL_TENSORS_H

#include "model/config.h"

enum { PL_TENSOR_NAME_BYTES = 96, PL_TENSOR_MAX_RANK = 2 };

/* Element types of a safetensors file that a V4 checkpoint may hold. */
typedef enum pl_dtype {
    PL_DTYPE_BF16,
    PL_DTYPE_F32,
    PL_DTYPE_F8_E4M3,
    PL_DTYPE_F8_E8M0,
    PL_DTYPE_I8, /* two e2m1 codes a byte */
    PL_DTYPE_I64,
    PL_DTYPE_COUNT
} pl_dtype;

const char *pl_dtype_name(pl_dtype dtype); /* "BF16", ... as in the file */
bool pl_dtype_from_name(const char *name, size_t length, pl_dtype *dtype);
size_t pl_dtype_bytes(pl_dtype dtype); /* per element */

/* Every distinct tensor of a block, of the model's ends, and of mtp. A quantised weight and its scale
 * are one kind: `is_scale` tells them apart. */
typedef enum pl_tensor_kind {
    PL_TENSOR_EMBED,
    PL_TENSOR_NORM, /* final norm; of mtp.0 too */
    PL_TENSOR_HEAD,
    PL_TENSOR_HC_HEAD_FN,
    PL_TENSOR_HC_HEAD_BASE,
    PL_TENSOR_HC_HEAD_SCALE,
    PL_TENSOR_ATTN_NORM,
    PL_TENSOR_FFN_NORM,
    PL_TENSOR_HC_ATTN_FN,
    PL_TENSOR_HC_ATTN_BASE,
    PL_TENSOR_HC_ATTN_SCALE,
    PL_TENSOR_HC_FFN_FN,
    PL_TENSOR_HC_FFN_BASE,
    PL_TENSOR_HC_FFN_SCALE,
    PL_TENSOR_ATTN_SINK,
    PL_TENSOR_WQ_A,
    PL_TENSOR_Q_NORM,
    PL_TENSOR_WQ_B,
    PL_TENSOR_WKV,
    PL_TENSOR_KV_NORM,
    PL_TENSOR_WO_A,
    PL_TENSOR_WO_B,
    PL_TENSOR_COMP_APE,
    PL_TENSOR_COMP_WKV,
    PL_TENSOR_COMP_WGATE,
    PL_TENSOR_COMP_NORM,
    PL_TENSOR_INDEX_WQ_B,
    PL_TENSOR_INDEX_WEIGHTS_PROJ,
    PL_TENSOR_INDEX_COMP_APE,
    PL_TENSOR_INDEX_COMP_WKV,
    PL_TENSOR_INDEX_COMP_WGATE,
    PL_TENSOR_INDEX_COMP_NORM,
    PL_TENSOR_GATE,
    PL_TENSOR_GATE_TID2EID,
    PL_TENSOR_GATE_BIAS,
    PL_TENSOR_SHARED_W1,
    PL_TENSOR_SHARED_W2,
    PL_TENSOR_SHARED_W3,
    PL_TENSOR_EXPERT_W1,
    PL_TENSOR_EXPERT_W2,
    PL_TENSOR_EXPERT_W3,
    PL_TENSOR_E_PROJ,
    PL_TENSOR_H_PROJ,
    PL_TENSOR_ENORM,
    PL_TENSOR_HNORM,
    PL_TENSOR_COPY_EMBED, /* Base only: copies under mtp.0, accepted and not loaded */
    PL_TENSOR_COPY_HEAD,
    PL_TENSOR_MAIN_PROJ, /* DSpark only (dspark specification section 6), not loaded */
    PL_TENSOR_MAIN_NORM,
    PL_TENSOR_MARKOV_W1,
    PL_TENSOR_MARKOV_W2,
    PL_TENSOR_CONFIDENCE,
    PL_TENSOR_KIND_COUNT
} pl_tensor_kind;

/* `layer` values beside 0..n_layers-1: PL_LAYER_MTP - s is stage s of a DSpark drafter. */
enum { PL_LAYER_GLOBAL = -1, PL_LAYER_MTP = -2 };

typedef struct pl_tensor_spec {
    char name[PL_TENSOR_NAME_BYTES];
    pl_tensor_kind kind;
    bool is_scale;
    int32_t layer;  /* 0..n_layers-1, PL_LAYER_GLOBAL, PL_LAYER_MTP or, for stages, below */
    int32_t expert; /* 0..E-1 for routed experts, else -1 */
    int32_t shard;  /* 0-based shard of the official layout (section 9.1) */
    pl_dtype dtype;
    int32_t rank;
    int64_t shape[PL_TENSOR_MAX_RANK];
} pl_tensor_spec;

/* How quantised tensors are stored; told by the tensors of a checkpoint (section 1.3). */
typedef struct pl_storage {
    pl_dtype scale;        /* of FP8 linears: PL_DTYPE_F8_E8M0 or PL_DTYPE_F32 */
    bool experts_fp8;      /* routed experts F8_E4M3 instead of packed FP4 */
    pl_dtype expert_scale; /* of FP8 experts: as `scale`; of FP4 experts always PL_DTYPE_F8_E8M0 */
    bool has_mtp;          /* an mtp.0 block as in section 9.2 */
    bool has_copies; /* Base, and only with has_mtp: mtp.0.emb.tok_emb.weight, ...head.weight */
    int32_t n_dspark_stages; /* stages mtp.0.. of a DSpark drafter; not together with has_mtp */
} pl_storage;

/* What a checkpoint made for this configuration holds: Base's layout for expert_dtype "fp8", a drafter
 * as its keys say. */
pl_storage pl_storage_of_config(const pl_config *config);

/* Calls `visit` for every tensor: embed, the layers ascending, norm, head and hc_head, mtp; inside a block
 * the experts follow their shared matrix, w1 then w2 then w3, and a scale its weight. Stops early when
 * `visit` returns false, and then returns false. `spec` is valid during the call. Allocates nothing. */
typedef bool pl_tensor_visit(void *user, const pl_tensor_spec *spec);
bool pl_tensors_each(const pl_config *config, const pl_storage *storage, pl_tensor_visit *visit,
                     void *user);

/* The tensors of one block only: `layer` as in pl_tensor_spec, PL_LAYER_GLOBAL for the model's ends. For
 * checkpoints whose blocks are stored differently. */
bool pl_tensors_each_in(const pl_config *config, const pl_storage *storage, int32_t layer,
                        pl_tensor_visit *visit, void *user);

/* Number of shards of the official layout: embed, one per layer, head, one per drafter block. */
int32_t pl_tensors_n_shards(const pl_config *config, const pl_storage *storage);

/* Exact bytes of one tensor. Cannot overflow for a configuration that pl_config_parse accepted. */
uint64_t pl_tensor_spec_bytes(const pl_tensor_spec *spec);

#endif
