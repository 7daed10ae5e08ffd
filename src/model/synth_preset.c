/* The presets as JSON and what the options do to them.
 *
 * Presets are text because the result is text: keys keep the order in which they are first named here,
 * a key of the overrides replaces the value in place or is appended. Sizes of flash and pro are the
 * released ones (specification sections 1.1, 1.2). Whether the outcome makes sense is for
 * pl_config_parse to say. */
#include "model/synth_preset.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "model/pyjson.h"

static const char common_keys[] =
    "{\"architectures\": [\"DeepseekV4ForCausalLM\"], \"model_type\": \"deepseek_v4\","
    " \"vocab_size\": 129280, \"max_position_embeddings\": 1048576,"
    " \"bos_token_id\": 0, \"eos_token_id\": 1, \"tie_word_embeddings\": false,"
    " \"head_dim\": 512, \"qk_rope_head_dim\": 64, \"num_key_value_heads\": 1,"
    " \"o_lora_rank\": 1024, \"sliding_window\": 128, \"hidden_act\": \"silu\","
    " \"index_n_heads\": 64, \"index_head_dim\": 128, \"n_shared_experts\": 1,"
    " \"num_experts_per_tok\": 6, \"num_hash_layers\": 3, \"scoring_func\": \"sqrtsoftplus\","
    " \"norm_topk_prob\": true, \"topk_method\": \"noaux_tc\", \"swiglu_limit\": 10.0,"
    " \"num_nextn_predict_layers\": 1, \"hc_mult\": 4, \"hc_sinkhorn_iters\": 20,"
    " \"hc_eps\": 1e-6, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000,"
    " \"compress_rope_theta\": 160000, \"attention_bias\": false, \"attention_dropout\": 0.0,"
    " \"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.57.1\","
    " \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 16,"
    " \"original_max_position_embeddings\": 65536, \"beta_fast\": 32, \"beta_slow\": 1},"
    " \"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\","
    " \"activation_scheme\": \"dynamic\", \"scale_fmt\": \"ue8m0\","
    " \"weight_block_size\": [128, 128]},"
    " \"expert_dtype\": \"fp4\"}";

struct preset {
    const char *name;
    const char *keys; /* on top of the common ones */
    /* Ratios of the layers: `first` two, then 4 and 128 in turn; or the list in `ratios`. */
    int first;
    const char *ratios;
    int markov_rank, noise_token; /* of the block drafter; token -3: the third from the end */
};

enum { DSPARK_STAGES = 3 };

static const struct preset presets[] = {
    /* every ratio in five layers, hash routing on the first two */
    {"nano",
     "{\"hidden_size\": 128, \"num_hidden_layers\": 5, \"num_attention_heads\": 4,"
     " \"q_lora_rank\": 128, \"o_groups\": 2, \"o_lora_rank\": 128, \"index_n_heads\": 4,"
     " \"index_topk\": 8, \"n_routed_experts\": 8, \"num_experts_per_tok\": 2,"
     " \"moe_intermediate_size\": 128, \"vocab_size\": 512, \"num_hash_layers\": 2,"
     " \"routed_scaling_factor\": 1.5, \"compress_ratios\": []}",
     0, "0,4,128,4,128", 64, -3},
    /* the first seven layers of Flash in small; a low swiglu_limit so that it is reached */
    {"micro",
     "{\"hidden_size\": 256, \"num_hidden_layers\": 7, \"num_attention_heads\": 8,"
     " \"q_lora_rank\": 128, \"o_groups\": 8, \"o_lora_rank\": 128, \"index_n_heads\": 8,"
     " \"index_topk\": 16, \"n_routed_experts\": 16, \"num_experts_per_tok\": 3,"
     " \"moe_intermediate_size\": 128, \"vocab_size\": 1024, \"num_hash_layers\": 3,"
     " \"routed_scaling_factor\": 1.5, \"swiglu_limit\": 2.5, \"compress_ratios\": []}",
     0, NULL, 64, -3},
    /* the layer order of Pro, odd sizes */
    {"mini-pro",
     "{\"hidden_size\": 384, \"num_hidden_layers\": 6, \"num_attention_heads\": 6,"
     " \"q_lora_rank\": 256, \"o_groups\": 3, \"o_lora_rank\": 128, \"index_n_heads\": 6,"
     " \"index_topk\": 12, \"n_routed_experts\": 12, \"num_experts_per_tok\": 4,"
     " \"moe_intermediate_size\": 256, \"vocab_size\": 768, \"num_hash_layers\": 3,"
     " \"routed_scaling_factor\": 2.5, \"swiglu_limit\": 2.0, \"compress_ratios\": []}",
     0, "128,128,4,128,4,4", 64, -3},
    {"flash",
     "{\"hidden_size\": 4096, \"num_hidden_layers\": 43, \"num_attention_heads\": 64,"
     " \"q_lora_rank\": 1024, \"o_groups\": 8, \"index_topk\": 512, \"n_routed_experts\": 256,"
     " \"moe_intermediate_size\": 2048, \"routed_scaling_factor\": 1.5, \"compress_ratios\": []}",
     0, NULL, 256, 128799},
    {"pro",
     "{\"hidden_size\": 7168, \"num_hidden_layers\": 61, \"num_attention_heads\": 128,"
     " \"q_lora_rank\": 1536, \"o_groups\": 16, \"index_topk\": 1024, \"n_routed_experts\": 384,"
     " \"moe_intermediate_size\": 3072, \"routed_scaling_factor\": 2.5, \"compress_ratios\": []}",
     128, NULL, 512, 128799},
};

enum { N_PRESETS = sizeof presets / sizeof presets[0] };

const char *const pl_synth_presets[] = {"nano", "micro", "mini-pro", "flash", "pro", NULL};

static const struct preset *find_preset(const char *name)
{
    for (int i = 0; i < N_PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

/* ---- compress_ratios */

/* Reads "4,128" into ratios[]; `where` names it in errors. */
static pl_status parse_ratios(const char *where, const char *text, int *ratios, int *n,
                              pl_error *err)
{
    const char *at = text;

    for (*n = 0;;) {
        char *end;
        long v = strtol(at, &end, 10);

        if (end == at || *at < '0' || *at > '9' || (v != 0 && v != 4 && v != 128) ||
            (*end && *end != ','))
            return pl_error_set(err, PL_ERR_INVALID,
                                "%s: not a list of compression ratios (got '%s', want 0, 4 or 128 "
                                "separated by commas)",
                                where, text);
        if (*n == PL_MAX_LAYERS)
            return pl_error_set(err, PL_ERR_INVALID, "%s: too many ratios (want at most %d)", where,
                                PL_MAX_LAYERS);
        ratios[(*n)++] = (int)v;
        if (!*end)
            return PL_OK;
        at = end + 1;
    }
}

/* Ratio of every layer, then 0 for the draft block. */
static pl_status make_ratios(const struct preset *preset, int n_preset_layers,
                             const pl_synth_config_options *o, json_t *root, pl_error *err)
{
    const int n_layers = o->layers ? (int)o->layers : n_preset_layers;
    const char *text = o->ratios ? o->ratios : preset->ratios;
    int ratios[PL_MAX_LAYERS], n = 0;
    json_t *list = json_object_get(root, "compress_ratios");
    int failed = 0;

    if (!o->ratios && n_layers > n_preset_layers)
        return pl_error_set(err, PL_ERR_INVALID,
                            "--layers: more than %s has (got %d, want at most %d, or --ratios)",
                            preset->name, n_layers, n_preset_layers);
    if (text)
        PL_TRY(parse_ratios("--ratios", text, ratios, &n, err));
    for (int i = 0; i < n_layers; i++) {
        int ratio = text ? ratios[i % n] : i < 2 ? preset->first : i % 2 == 0 ? 4 : 128;
        failed |= json_array_append_new(list, json_integer(ratio));
    }
    failed |= json_array_append_new(list, json_integer(0));
    failed |= json_object_set_new(root, "num_hidden_layers", json_integer(n_layers));
    return failed ? pl_error_set(err, PL_ERR_NOMEM, "config.json: out of memory") : PL_OK;
}

/* ---- the block drafter (dspark specification section 2) */

/* Before the overrides, which may say otherwise: null stands for "fits the rest". */
static pl_status add_dspark_keys(const struct preset *preset, json_t *root, pl_error *err)
{
    int failed = 0;

    failed |= json_object_set_new(root, "dspark_block_size", json_integer(5));
    failed |= json_object_set_new(root, "dspark_markov_rank", json_integer(preset->markov_rank));
    failed |= json_object_set_new(root, "dspark_noise_token_id", json_null());
    failed |= json_object_set_new(root, "dspark_target_layer_ids", json_null());
    return failed ? pl_error_set(err, PL_ERR_NOMEM, "config.json: out of memory") : PL_OK;
}

/* After the overrides. Values of wrong types are left for pl_config_parse to name. */
static pl_status fit_dspark_keys(const struct preset *preset, json_t *root, pl_error *err)
{
    const json_int_t n_layers = json_integer_value(json_object_get(root, "num_hidden_layers"));
    const json_int_t vocab = json_integer_value(json_object_get(root, "vocab_size"));
    json_t *ratios = json_object_get(root, "compress_ratios"), *targets;
    int failed = 0;

    if (json_is_array(ratios) && n_layers > 0 && json_array_size(ratios) >= (size_t)n_layers) {
        while (json_array_size(ratios) > (size_t)n_layers)
            failed |= json_array_remove(ratios, json_array_size(ratios) - 1);
        for (int i = 0; i < DSPARK_STAGES; i++)
            failed |= json_array_append_new(ratios, json_integer(0));
    }
    if (json_is_null(json_object_get(root, "dspark_noise_token_id"))) {
        const bool fixed = preset->noise_token >= 0 && preset->noise_token < vocab;

        failed |= json_object_set_new(root, "dspark_noise_token_id",
                                      json_integer(fixed        ? preset->noise_token
                                                   : vocab >= 3 ? vocab - 3
                                                                : -1));
    }
    if (json_is_null(json_object_get(root, "dspark_target_layer_ids"))) {
        targets = json_array();
        for (json_int_t l = n_layers < 3 ? 0 : n_layers - 3; targets && l < n_layers; l++)
            failed |= json_array_append_new(targets, json_integer(l));
        failed |= json_object_set_new(root, "dspark_target_layer_ids", targets);
    }
    return failed ? pl_error_set(err, PL_ERR_NOMEM, "config.json: out of memory") : PL_OK;
}

/* ---- options and overrides */

static int64_t get_integer(const json_t *root, const char *key)
{
    return json_integer_value(json_object_get(root, key));
}

static pl_status apply_options(const pl_synth_config_options *o, json_t *root, pl_error *err)
{
    int failed = 0;

    if (o->experts) {
        const int64_t k = get_integer(root, "num_experts_per_tok");

        failed |= json_object_set_new(root, "n_routed_experts", json_integer(o->experts));
        if (k > o->experts)
            failed |= json_object_set_new(root, "num_experts_per_tok", json_integer(o->experts));
    }
    if (o->vocab)
        failed |= json_object_set_new(root, "vocab_size", json_integer(o->vocab));
    if (o->no_mtp)
        failed |= json_object_set_new(root, "num_nextn_predict_layers", json_integer(0));
    return failed ? pl_error_set(err, PL_ERR_NOMEM, "config.json: out of memory") : PL_OK;
}

static pl_status apply_overrides(const pl_synth_config_options *o, json_t *root, pl_error *err)
{
    json_error_t where;
    json_t *keys;
    int failed;

    if (o->overrides) {
        keys = json_loadb(o->overrides, o->overrides_bytes, JSON_REJECT_DUPLICATES, &where);
        if (!keys)
            return pl_error_set_at(err, PL_ERR_CORRUPT, (uint64_t)where.position,
                                   "%s: not JSON: %s (line %d)", o->overrides_name, where.text,
                                   where.line);
        if (!json_is_object(keys)) {
            json_decref(keys);
            return pl_error_set(err, PL_ERR_INVALID, "%s: not a JSON object of config.json's keys",
                                o->overrides_name);
        }
        failed = json_object_update(root, keys);
        json_decref(keys);
        if (failed)
            return pl_error_set(err, PL_ERR_NOMEM, "config.json: out of memory");
    }
    if (o->base && json_object_set_new(root, "expert_dtype", json_string("fp8")) != 0)
        return pl_error_set(err, PL_ERR_NOMEM, "config.json: out of memory");
    return PL_OK;
}

static pl_status write_text(const json_t *root, char **text, size_t *text_bytes, pl_error *err)
{
    FILE *f = open_memstream(text, text_bytes);
    int failed;

    if (!f)
        return pl_error_set(err, PL_ERR_NOMEM, "config.json: out of memory");
    pl_pyjson_write(f, root);
    failed = ferror(f);
    if (fclose(f) != 0 || failed) {
        free(*text);
        *text = NULL;
        return pl_error_set(err, PL_ERR_NOMEM, "config.json: out of memory");
    }
    return PL_OK;
}

static pl_status make_text(const struct preset *preset, const pl_synth_config_options *o,
                           json_t *root, const json_t *keys, char **text, size_t *text_bytes,
                           pl_error *err)
{
    if (!root || !keys || json_object_update(root, (json_t *)keys) != 0)
        return pl_error_set(err, PL_ERR_NOMEM, "config.json: out of memory");
    PL_TRY(make_ratios(preset, (int)get_integer(root, "num_hidden_layers"), o, root, err));
    PL_TRY(apply_options(o, root, err));
    if (o->dspark)
        PL_TRY(add_dspark_keys(preset, root, err));
    PL_TRY(apply_overrides(o, root, err));
    if (o->dspark)
        PL_TRY(fit_dspark_keys(preset, root, err));
    return write_text(root, text, text_bytes, err);
}

pl_status pl_synth_config_create(const pl_synth_config_options *o, char **text, size_t *text_bytes,
                                 pl_config *config, pl_error *err)
{
    const struct preset *preset = find_preset(o->preset);
    json_t *root, *keys;
    pl_status status;

    *text = NULL;
    if (!preset)
        return pl_error_set(err, PL_ERR_INVALID,
                            "--preset: unknown (got '%s', want nano, micro, mini-pro, flash or "
                            "pro)",
                            o->preset);
    if (o->layers < 0 || o->layers > PL_MAX_LAYERS)
        return pl_error_set(err, PL_ERR_INVALID,
                            "--layers: out of range (got %" PRId64 ", want 1..%d)", o->layers,
                            PL_MAX_LAYERS);
    if (o->dspark && o->no_mtp)
        return pl_error_set(err, PL_ERR_INVALID,
                            "--dspark: contradicts --no-mtp (want one of the two)");
    root = json_loads(common_keys, 0, NULL);
    keys = json_loads(preset->keys, 0, NULL);
    status = make_text(preset, o, root, keys, text, text_bytes, err);
    json_decref(root);
    json_decref(keys);
    if (status == PL_OK)
        status = pl_config_parse("config.json of this checkpoint", *text, *text_bytes, config, err);
    if (status != PL_OK) {
        free(*text);
        *text = NULL;
    }
    return status;
}
