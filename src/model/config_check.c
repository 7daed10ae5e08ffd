/* What the numbers of a configuration must be to each other; config.c has read each in its range. */
#include "model/config_check.h"

#include <inttypes.h>

#include "base/error.h"

struct numbers {
    const char *name; /* of the file, for errors */
    const pl_config *config;
    pl_error *err;
};

static pl_status check_token(const struct numbers *r, const char *key, int32_t id)
{
    if (id < r->config->vocab_size)
        return PL_OK;
    return pl_error_set(r->err, PL_ERR_INVALID,
                        "%s: %s: not in the vocabulary (got %" PRId32 ", want less than %" PRId32
                        ")",
                        r->name, key, id, r->config->vocab_size);
}

static pl_status check_shapes(const struct numbers *r)
{
    const pl_config *c = r->config;

    if (c->n_heads % c->o_groups != 0)
        return pl_error_set(r->err, PL_ERR_INVALID,
                            "%s: num_attention_heads: not divided by o_groups (got %" PRId32
                            " heads, want a multiple of %" PRId32 ")",
                            r->name, c->n_heads, c->o_groups);
    if ((int64_t)c->o_groups * c->o_lora_rank % 128 != 0)
        return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                            "%s: o_lora_rank: quantised layers come in blocks of 128 (got %" PRId32
                            " x %" PRId32 " inputs of wo_b, want a multiple of 128)",
                            r->name, c->o_groups, c->o_lora_rank);
    if (c->n_experts_per_tok > c->n_experts)
        return pl_error_set(r->err, PL_ERR_INVALID,
                            "%s: num_experts_per_tok: more than there are (got %" PRId32
                            ", want at most %" PRId32 ")",
                            r->name, c->n_experts_per_tok, c->n_experts);
    if (!(c->yarn_beta_fast > c->yarn_beta_slow))
        return pl_error_set(r->err, PL_ERR_INVALID,
                            "%s: rope_scaling.beta_fast: not above beta_slow (got %g, want more "
                            "than %g)",
                            r->name, c->yarn_beta_fast, c->yarn_beta_slow);
    return PL_OK;
}

/* Without the drafter's keys the entries behind the main stack are those of num_nextn_predict_layers;
 * with them that key is known to be wrong, and the checkpoint's stages are compared instead. */
static pl_status check_mtp(const struct numbers *r)
{
    const pl_config *c = r->config;
    int32_t trailing = c->n_ratios - c->n_layers;

    if (c->has_dspark_keys)
        return PL_OK;
    if (c->n_nextn_layers > 1)
        return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                            "%s: num_nextn_predict_layers: not supported (got %" PRId32
                            ", want 0 or 1)",
                            r->name, c->n_nextn_layers);
    if (trailing > 1 || trailing < c->n_nextn_layers)
        return pl_error_set(r->err, PL_ERR_INVALID,
                            "%s: compress_ratios: wrong length (got %" PRId32 ", want %" PRId32
                            " layers and %" PRId32 " mtp block)",
                            r->name, c->n_ratios, c->n_layers, c->n_nextn_layers);
    return PL_OK;
}

static pl_status check_tokens(const struct numbers *r)
{
    const pl_config *c = r->config;

    PL_TRY(check_token(r, "bos_token_id", c->bos_token_id));
    PL_TRY(check_token(r, "eos_token_id", c->eos_token_id));
    if (c->has_dspark_keys)
        PL_TRY(check_token(r, "dspark_noise_token_id", c->dspark_noise_token_id));
    return PL_OK;
}

pl_status pl__config_check(const char *name, const pl_config *config, pl_error *err)
{
    const struct numbers r = {name, config, err};

    PL_TRY(check_shapes(&r));
    PL_TRY(check_mtp(&r));
    return check_tokens(&r);
}
