/* The presets as what they differ in from the keys that all models share (specification section 1). */
#include "support/configs.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

static const char common[] =
    "{'architectures': ['DeepseekV4ForCausalLM'], 'model_type': 'deepseek_v4', 'vocab_size': "
    "129280,"
    "'max_position_embeddings': 1048576, 'bos_token_id': 0, 'eos_token_id': 1,"
    "'tie_word_embeddings': false, 'head_dim': 512, 'qk_rope_head_dim': 64,"
    "'num_key_value_heads': 1, 'o_lora_rank': 1024, 'sliding_window': 128, 'hidden_act': 'silu',"
    "'index_n_heads': 64, 'index_head_dim': 128, 'n_shared_experts': 1, 'num_experts_per_tok': 6,"
    "'num_hash_layers': 3, 'scoring_func': 'sqrtsoftplus', 'norm_topk_prob': true,"
    "'topk_method': 'noaux_tc', 'swiglu_limit': 10.0, 'num_nextn_predict_layers': 1, 'hc_mult': 4,"
    "'hc_sinkhorn_iters': 20, 'hc_eps': 1e-6, 'rms_norm_eps': 1e-6, 'rope_theta': 10000,"
    "'compress_rope_theta': 160000, 'attention_bias': false, 'attention_dropout': 0.0,"
    "'torch_dtype': 'bfloat16', 'transformers_version': '4.57.1', 'expert_dtype': 'fp4',"
    "'rope_scaling': {'type': 'yarn', 'factor': 16, 'original_max_position_embeddings': 65536,"
    "                 'beta_fast': 32, 'beta_slow': 1},"
    "'quantization_config': {'quant_method': 'fp8', 'fmt': 'e4m3', 'activation_scheme': 'dynamic',"
    "                        'scale_fmt': 'ue8m0', 'weight_block_size': [128, 128]}}";

static const struct {
    const char *name, *keys;
    int32_t first[8]; /* the first ratios; then 4, 128 in turn, the last layer 4 */
    int32_t n_first;
} models[] = {
    {"flash",
     "{'hidden_size': 4096, 'num_hidden_layers': 43, 'num_attention_heads': 64, 'q_lora_rank': "
     "1024,"
     "'o_groups': 8, 'index_topk': 512, 'n_routed_experts': 256, 'moe_intermediate_size': 2048,"
     "'routed_scaling_factor': 1.5}",
     {0, 0},
     2},
    {"pro",
     "{'hidden_size': 7168, 'num_hidden_layers': 61, 'num_attention_heads': 128,"
     "'q_lora_rank': 1536, 'o_groups': 16, 'index_topk': 1024, 'n_routed_experts': 384,"
     "'moe_intermediate_size': 3072, 'routed_scaling_factor': 2.5}",
     {128, 128},
     2},
    {"nano",
     "{'hidden_size': 128, 'num_hidden_layers': 5, 'num_attention_heads': 4, 'q_lora_rank': 128,"
     "'o_groups': 2, 'o_lora_rank': 128, 'index_n_heads': 4, 'index_topk': 8, 'n_routed_experts': "
     "8,"
     "'num_experts_per_tok': 2, 'moe_intermediate_size': 128, 'vocab_size': 512,"
     "'num_hash_layers': 2, 'routed_scaling_factor': 1.5}",
     {0, 4, 128, 4, 128},
     5},
    {"pico", /* the smallest with every type of layer, for tests that write many checkpoints */
     "{'hidden_size': 128, 'num_hidden_layers': 3, 'num_attention_heads': 1, 'q_lora_rank': 128,"
     "'o_groups': 1, 'o_lora_rank': 128, 'index_n_heads': 1, 'index_topk': 8, 'n_routed_experts': "
     "2,"
     "'num_experts_per_tok': 1, 'moe_intermediate_size': 128, 'vocab_size': 8,"
     "'num_hash_layers': 1, 'routed_scaling_factor': 1.5}",
     {0, 4, 128},
     3},
    {"micro",
     "{'hidden_size': 256, 'num_hidden_layers': 7, 'num_attention_heads': 8, 'q_lora_rank': 128,"
     "'o_groups': 8, 'o_lora_rank': 128, 'index_n_heads': 8, 'index_topk': 16,"
     "'n_routed_experts': 16, 'num_experts_per_tok': 3, 'moe_intermediate_size': 128,"
     "'vocab_size': 1024, 'num_hash_layers': 3, 'routed_scaling_factor': 1.5, 'swiglu_limit': 2.5}",
     {0, 0},
     2},
    {"mini-pro",
     "{'hidden_size': 384, 'num_hidden_layers': 6, 'num_attention_heads': 6, 'q_lora_rank': 256,"
     "'o_groups': 3, 'o_lora_rank': 128, 'index_n_heads': 6, 'index_topk': 12,"
     "'n_routed_experts': 12, 'num_experts_per_tok': 4, 'moe_intermediate_size': 256,"
     "'vocab_size': 768, 'num_hash_layers': 3, 'routed_scaling_factor': 2.5, 'swiglu_limit': 2.0}",
     {128, 128, 4, 128, 4, 4},
     6},
};

/* Parses JSON written with single quotes, which the texts here use to stay readable in C. */
static json_t *parse(const char *text)
{
    char *copy = strdup(text);
    json_error_t err;
    json_t *value;

    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    value = json_loads(copy, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &err);
    if (!value)
        fail_msg("'%s': %s", copy, err.text);
    free(copy);
    return value;
}

static void merge(json_t *into, const char *text)
{
    json_t *keys = parse(text);

    json_object_update(into, keys);
    json_decref(keys);
}

static json_t *ratios(size_t model, int64_t n_layers, int64_t n_mtp)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < n_layers; i++) {
        int64_t behind = i - models[model].n_first;
        json_array_append_new(list, json_integer(behind < 0        ? models[model].first[i]
                                                 : behind % 2 == 0 ? 4
                                                                   : 128));
    }
    for (int64_t i = 0; i < n_mtp; i++)
        json_array_append_new(list, json_integer(0));
    return list;
}

static json_t *build(const char *preset)
{
    const char *refresh = strstr(preset, "-0");
    const size_t length = refresh                   ? (size_t)(refresh - preset)
                          : strstr(preset, "-base") ? strlen(preset) - 5
                                                    : strlen(preset);

    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        json_t *root;
        int64_t n, vocab;

        if (strlen(models[m].name) != length || memcmp(models[m].name, preset, length) != 0)
            continue;
        root = parse(common);
        merge(root, models[m].keys);
        n = json_integer_value(json_object_get(root, "num_hidden_layers"));
        vocab = json_integer_value(json_object_get(root, "vocab_size"));
        json_object_set_new(root, "compress_ratios", ratios(m, n, refresh ? 3 : 1));
        if (strstr(preset, "-base"))
            merge(root, "{'expert_dtype': 'fp8'}");
        if (refresh) {
            int rank = m == 0 ? 256 : m == 1 ? 512 : 64;
            int64_t noise = m < 2 ? 128799 : vocab - 3;
            json_t *keys = json_pack("{s:i, s:i, s:I, s:[I,I,I]}", "dspark_block_size", 5,
                                     "dspark_markov_rank", rank, "dspark_noise_token_id",
                                     (json_int_t)noise, "dspark_target_layer_ids",
                                     (json_int_t)(n - 3), (json_int_t)(n - 2), (json_int_t)(n - 1));
            json_object_update(root, keys);
            json_decref(keys);
        }
        return root;
    }
    fail_msg("no preset %s", preset);
    return NULL;
}

static char *dump(json_t *root)
{
    char *text = json_dumps(root, JSON_INDENT(1));

    json_decref(root);
    return text;
}

char *config_text(const char *preset)
{
    return dump(build(preset));
}

char *config_text_with(const char *preset, const char *path, const char *value)
{
    json_t *root = build(preset), *object = root;
    const char *dot = strchr(path, '.');

    if (dot) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        object = json_object_get(root, name);
        path = dot + 1;
    }
    if (value)
        json_object_set_new(object, path, parse(value));
    else
        json_object_del(object, path);
    return dump(root);
}

pl_config config_preset(const char *preset)
{
    char *text = config_text(preset);
    pl_config config;
    pl_error err;

    check_ok(pl_config_parse(preset, text, strlen(text), &config, &err), &err);
    free(text);
    return config;
}
