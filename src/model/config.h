/* config.json of a checkpoint, checked: every number a later part sizes memory by is bounded here.
 *
 * Source: deepseek_v4 specification sections 1.1-1.4; the drafter's keys: dspark section 2. */
#ifndef PL_MODEL_CONFIG_H
#define PL_MODEL_CONFIG_H

#include <stdbool.h>

#include "ops/shape.h"
#include "plimsoll/status.h"

enum {
    PL_MAX_LAYERS = 256, /* main stack; with the trailing mtp entries PL_MAX_RATIOS */
    PL_MAX_MTP = 8,
    PL_MAX_RATIOS = PL_MAX_LAYERS + PL_MAX_MTP,
};

/* What drafts the checkpoint can make. */
typedef enum pl_drafter {
    PL_DRAFTER_NONE,
    PL_DRAFTER_MTP,    /* one mtp.0 block with e_proj and h_proj (section 6) */
    PL_DRAFTER_DSPARK, /* block drafter of the 0731 and 0813 refreshes: recognised, not loaded */
} pl_drafter;

typedef struct pl_config {
    int32_t vocab_size;
    int32_t hidden_size; /* D */
    int32_t n_layers;    /* main stack */
    int32_t n_heads;     /* H */
    int32_t q_lora_rank; /* qr */
    int32_t o_groups;    /* G: H % G == 0; also the number S of canonical shards */
    int32_t o_lora_rank; /* R */
    int32_t index_n_heads;
    int32_t index_topk;
    int32_t n_experts; /* E routed experts */
    int32_t n_experts_per_tok;
    int32_t moe_intermediate_size; /* I */
    int32_t n_hash_layers; /* layers 0..n-1 route by token id; may exceed n_layers (cut models) */
    int32_t max_position_embeddings;
    int32_t bos_token_id, eos_token_id;
    int32_t hc_sinkhorn_iters;
    int32_t n_nextn_layers; /* num_nextn_predict_layers, 0 or 1; meaningless with dspark keys */
    float routed_scaling_factor;
    float swiglu_limit;
    float rms_norm_eps;
    float hc_eps;
    double rope_theta;
    double compress_rope_theta;
    double yarn_factor;
    double yarn_original_max_position;
    double yarn_beta_fast, yarn_beta_slow;

    int32_t n_ratios; /* n_layers + what follows for mtp */
    int32_t
        compress_ratio[PL_MAX_RATIOS]; /* 0, 4 or 128 of each layer, then of the mtp blocks (0) */

    bool expert_dtype_fp8; /* what config.json says ("fp8"); the tensors decide, not this */

    bool has_dspark_keys; /* the refreshes: also selects their chat encoding */
    int32_t dspark_block_size;
    int32_t dspark_noise_token_id;
    int32_t dspark_markov_rank;
    int32_t n_dspark_target_layers;
    int32_t dspark_target_layer[PL_MAX_MTP];
} pl_config;

/* Parses `text` (length bytes, need not end in 0). `name` stands for the file in errors. Refuses what
 * section 1.3 and 1.4 say to refuse with PL_ERR_UNSUPPORTED, impossible numbers with PL_ERR_INVALID,
 * broken JSON with PL_ERR_CORRUPT; the message names file, key, value and what would be right. */
pl_status pl_config_parse(const char *name, const char *text, size_t length, pl_config *config,
                          pl_error *err) PL_MUST_CHECK;

/* Reads DIR/config.json, or the file itself when `path` is one. */
pl_status pl_config_read(const char *path, pl_config *config, pl_error *err) PL_MUST_CHECK;

#endif
