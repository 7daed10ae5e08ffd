/* The list of tensors as data: which a block has, of which form and size, and when.
 *
 * Rows speak in symbols (D, qr, I, ...); tensors.c resolves them for a block and spells names. */
#include "model/tensors_table.h"

#define N_OF(table) (sizeof(table) / sizeof(table)[0])

static const struct pl__tensor_row embed_rows[] = {
    {PL_TENSOR_EMBED, PL__FORM_BF16, "embed.weight", PL__DIM_V, PL__DIM_D, PL__ALWAYS},
};

static const struct pl__tensor_row end_rows[] = {
    {PL_TENSOR_NORM, PL__FORM_BF16, "norm.weight", PL__DIM_D, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_HEAD, PL__FORM_BF16, "head.weight", PL__DIM_V, PL__DIM_D, PL__ALWAYS},
    {PL_TENSOR_HC_HEAD_FN, PL__FORM_F32, "hc_head_fn", PL__DIM_S, PL__DIM_4D, PL__ALWAYS},
    {PL_TENSOR_HC_HEAD_BASE, PL__FORM_F32, "hc_head_base", PL__DIM_S, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_HC_HEAD_SCALE, PL__FORM_F32, "hc_head_scale", PL__DIM_1, PL__DIM_NONE, PL__ALWAYS},
};

/* clang-format off */
static const struct pl__tensor_row block_rows[] = {
    {PL_TENSOR_ATTN_NORM, PL__FORM_BF16, "attn_norm.weight", PL__DIM_D, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_FFN_NORM, PL__FORM_BF16, "ffn_norm.weight", PL__DIM_D, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_HC_ATTN_FN, PL__FORM_F32, "hc_attn_fn", PL__DIM_HC, PL__DIM_4D, PL__ALWAYS},
    {PL_TENSOR_HC_ATTN_BASE, PL__FORM_F32, "hc_attn_base", PL__DIM_HC, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_HC_ATTN_SCALE, PL__FORM_F32, "hc_attn_scale", PL__DIM_3, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_HC_FFN_FN, PL__FORM_F32, "hc_ffn_fn", PL__DIM_HC, PL__DIM_4D, PL__ALWAYS},
    {PL_TENSOR_HC_FFN_BASE, PL__FORM_F32, "hc_ffn_base", PL__DIM_HC, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_HC_FFN_SCALE, PL__FORM_F32, "hc_ffn_scale", PL__DIM_3, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_ATTN_SINK, PL__FORM_F32, "attn.attn_sink", PL__DIM_H, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_WQ_A, PL__FORM_FP8, "attn.wq_a", PL__DIM_QR, PL__DIM_D, PL__ALWAYS},
    {PL_TENSOR_Q_NORM, PL__FORM_BF16, "attn.q_norm.weight", PL__DIM_QR, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_WQ_B, PL__FORM_FP8, "attn.wq_b", PL__DIM_HQ, PL__DIM_QR, PL__ALWAYS},
    {PL_TENSOR_WKV, PL__FORM_FP8, "attn.wkv", PL__DIM_HEAD, PL__DIM_D, PL__ALWAYS},
    {PL_TENSOR_KV_NORM, PL__FORM_BF16, "attn.kv_norm.weight", PL__DIM_HEAD, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_WO_A, PL__FORM_FP8, "attn.wo_a", PL__DIM_GR, PL__DIM_GROUP, PL__ALWAYS},
    {PL_TENSOR_WO_B, PL__FORM_FP8, "attn.wo_b", PL__DIM_D, PL__DIM_GR, PL__ALWAYS},
    {PL_TENSOR_COMP_APE, PL__FORM_F32, "attn.compressor.ape", PL__DIM_RATIO, PL__DIM_COMP, PL__COMPRESSED},
    {PL_TENSOR_COMP_WKV, PL__FORM_BF16, "attn.compressor.wkv.weight", PL__DIM_COMP, PL__DIM_D, PL__COMPRESSED},
    {PL_TENSOR_COMP_WGATE, PL__FORM_BF16, "attn.compressor.wgate.weight", PL__DIM_COMP, PL__DIM_D, PL__COMPRESSED},
    {PL_TENSOR_COMP_NORM, PL__FORM_BF16, "attn.compressor.norm.weight", PL__DIM_HEAD, PL__DIM_NONE, PL__COMPRESSED},
    {PL_TENSOR_INDEX_WQ_B, PL__FORM_FP8, "attn.indexer.wq_b", PL__DIM_IHQ, PL__DIM_QR, PL__INDEXED},
    {PL_TENSOR_INDEX_WEIGHTS_PROJ, PL__FORM_BF16, "attn.indexer.weights_proj.weight", PL__DIM_IH, PL__DIM_D, PL__INDEXED},
    {PL_TENSOR_INDEX_COMP_APE, PL__FORM_F32, "attn.indexer.compressor.ape", PL__DIM_RATIO, PL__DIM_ICOMP, PL__INDEXED},
    {PL_TENSOR_INDEX_COMP_WKV, PL__FORM_BF16, "attn.indexer.compressor.wkv.weight", PL__DIM_ICOMP, PL__DIM_D, PL__INDEXED},
    {PL_TENSOR_INDEX_COMP_WGATE, PL__FORM_BF16, "attn.indexer.compressor.wgate.weight", PL__DIM_ICOMP, PL__DIM_D, PL__INDEXED},
    {PL_TENSOR_INDEX_COMP_NORM, PL__FORM_BF16, "attn.indexer.compressor.norm.weight", PL__DIM_IDIM, PL__DIM_NONE, PL__INDEXED},
    {PL_TENSOR_GATE, PL__FORM_BF16, "ffn.gate.weight", PL__DIM_E, PL__DIM_D, PL__ALWAYS},
    {PL_TENSOR_GATE_TID2EID, PL__FORM_I64, "ffn.gate.tid2eid", PL__DIM_V, PL__DIM_TOPK, PL__HASHED},
    {PL_TENSOR_GATE_BIAS, PL__FORM_F32, "ffn.gate.bias", PL__DIM_E, PL__DIM_NONE, PL__LEARNED},
    {PL_TENSOR_SHARED_W1, PL__FORM_FP8, "ffn.shared_experts.w1", PL__DIM_I, PL__DIM_D, PL__ALWAYS},
    {PL_TENSOR_EXPERT_W1, PL__FORM_EXPERT, "w1", PL__DIM_I, PL__DIM_D, PL__ALWAYS},
    {PL_TENSOR_SHARED_W2, PL__FORM_FP8, "ffn.shared_experts.w2", PL__DIM_D, PL__DIM_I, PL__ALWAYS},
    {PL_TENSOR_EXPERT_W2, PL__FORM_EXPERT, "w2", PL__DIM_D, PL__DIM_I, PL__ALWAYS},
    {PL_TENSOR_SHARED_W3, PL__FORM_FP8, "ffn.shared_experts.w3", PL__DIM_I, PL__DIM_D, PL__ALWAYS},
    {PL_TENSOR_EXPERT_W3, PL__FORM_EXPERT, "w3", PL__DIM_I, PL__DIM_D, PL__ALWAYS},
};
/* clang-format on */

static const struct pl__tensor_row mtp_rows[] = {
    {PL_TENSOR_E_PROJ, PL__FORM_FP8, "e_proj", PL__DIM_D, PL__DIM_D, PL__ALWAYS},
    {PL_TENSOR_H_PROJ, PL__FORM_FP8, "h_proj", PL__DIM_D, PL__DIM_D, PL__ALWAYS},
    {PL_TENSOR_ENORM, PL__FORM_BF16, "enorm.weight", PL__DIM_D, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_HNORM, PL__FORM_BF16, "hnorm.weight", PL__DIM_D, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_NORM, PL__FORM_BF16, "norm.weight", PL__DIM_D, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_HC_HEAD_FN, PL__FORM_F32, "hc_head_fn", PL__DIM_S, PL__DIM_4D, PL__ALWAYS},
    {PL_TENSOR_HC_HEAD_BASE, PL__FORM_F32, "hc_head_base", PL__DIM_S, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_HC_HEAD_SCALE, PL__FORM_F32, "hc_head_scale", PL__DIM_1, PL__DIM_NONE, PL__ALWAYS},
};

static const struct pl__tensor_row copy_rows[] = {
    {PL_TENSOR_COPY_EMBED, PL__FORM_BF16, "emb.tok_emb.weight", PL__DIM_V, PL__DIM_D, PL__ALWAYS},
    {PL_TENSOR_COPY_HEAD, PL__FORM_BF16, "head.weight", PL__DIM_V, PL__DIM_D, PL__ALWAYS},
};

static const struct pl__tensor_row first_stage_rows[] = {
    {PL_TENSOR_MAIN_PROJ, PL__FORM_FP8, "main_proj", PL__DIM_D, PL__DIM_TAPS, PL__ALWAYS},
    {PL_TENSOR_MAIN_NORM, PL__FORM_BF16, "main_norm.weight", PL__DIM_D, PL__DIM_NONE, PL__ALWAYS},
};

static const struct pl__tensor_row last_stage_rows[] = {
    {PL_TENSOR_NORM, PL__FORM_BF16, "norm.weight", PL__DIM_D, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_HC_HEAD_FN, PL__FORM_F32, "hc_head_fn", PL__DIM_S, PL__DIM_4D, PL__ALWAYS},
    {PL_TENSOR_HC_HEAD_BASE, PL__FORM_F32, "hc_head_base", PL__DIM_S, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_HC_HEAD_SCALE, PL__FORM_F32, "hc_head_scale", PL__DIM_1, PL__DIM_NONE, PL__ALWAYS},
    {PL_TENSOR_MARKOV_W1, PL__FORM_BF16, "markov_head.markov_w1.weight", PL__DIM_V, PL__DIM_MARKOV,
     PL__ALWAYS},
    {PL_TENSOR_MARKOV_W2, PL__FORM_BF16, "markov_head.markov_w2.weight", PL__DIM_V, PL__DIM_MARKOV,
     PL__ALWAYS},
    {PL_TENSOR_CONFIDENCE, PL__FORM_BF16, "confidence_head.proj.weight", PL__DIM_1, PL__DIM_CONF,
     PL__ALWAYS},
};

const struct pl__tensor_rows pl__embed_tensors = {embed_rows, N_OF(embed_rows)};
const struct pl__tensor_rows pl__end_tensors = {end_rows, N_OF(end_rows)};
const struct pl__tensor_rows pl__block_tensors = {block_rows, N_OF(block_rows)};
const struct pl__tensor_rows pl__mtp_tensors = {mtp_rows, N_OF(mtp_rows)};
const struct pl__tensor_rows pl__copy_tensors = {copy_rows, N_OF(copy_rows)};
const struct pl__tensor_rows pl__first_stage_tensors = {first_stage_rows, N_OF(first_stage_rows)};
const struct pl__tensor_rows pl__last_stage_tensors = {last_stage_rows, N_OF(last_stage_rows)};
