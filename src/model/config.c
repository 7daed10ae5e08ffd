/* Reading config.json: jansson parses, one table per kind of value checks.
 *
 * What the format leaves open is a number with a range; what this program relies on (head size, window,
 * quantisation, activation) is a fixed value and anything else is refused by name. Unknown keys are
 * ignored: configs carry training and library keys without effect on inference. What numbers must be to each
 * other is config_check.c; what the tensors say is checked in checkpoint_check.c. */
#include "model/config.h"

#include <float.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file_text.h"
#include "model/config_check.h"

/* The official files have 2 KiB. jansson needs up to 50 bytes of heap per byte of text, so that this also
 * bounds what a hostile file can make us allocate. */
enum { CONFIG_MAX_BYTES = 1 << 20 };

struct reader {
    const char *name; /* of the file, for errors */
    const json_t *root;
    pl_config *config;
    pl_error *err;
};

/* A value as the user wrote it, cut to fit an error message. */
struct shown {
    char text[64];
};

static struct shown show(const json_t *value)
{
    struct shown s = {"no value"};

    if (value) {
        size_t n = json_dumpb(value, s.text, sizeof s.text - 4,
                              JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
        if (n > sizeof s.text - 4)
            memcpy(s.text + sizeof s.text - 4, "...", 4);
        else
            s.text[n] = 0;
    }
    return s;
}

/* Looks up "key" or "object.key". */
static const json_t *find(const struct reader *r, const char *path)
{
    const char *dot = strchr(path, '.');
    char object[32];

    if (!dot)
        return json_object_get(r->root, path);
    snprintf(object, sizeof object, "%.*s", (int)(dot - path), path);
    return json_object_get(json_object_get(r->root, object), dot + 1);
}

static pl_status need(const struct reader *r, const char *path, const json_t **value)
{
    *value = find(r, path);
    if (!*value)
        return pl_error_set(r->err, PL_ERR_INVALID, "%s: %s: key is missing", r->name, path);
    return PL_OK;
}

/* ---- values that must be exactly one thing */

struct fixed {
    const char *path;
    const char *json; /* the only value accepted, as compact JSON */
};

static const struct fixed fixed_values[] = {
    {"quantization_config.quant_method", "\"fp8\""},
    {"quantization_config.fmt", "\"e4m3\""},
    {"quantization_config.activation_scheme", "\"dynamic\""},
    {"quantization_config.scale_fmt", "\"ue8m0\""},
    {"quantization_config.weight_block_size", "[128,128]"},
    {"head_dim", "512"},
    {"qk_rope_head_dim", "64"},
    {"num_key_value_heads", "1"},
    {"sliding_window", "128"},
    {"index_head_dim", "128"},
    {"hc_mult", "4"},
    {"n_shared_experts", "1"},
    {"hidden_act", "\"silu\""},
    {"scoring_func", "\"sqrtsoftplus\""},
    {"topk_method", "\"noaux_tc\""},
    {"norm_topk_prob", "true"},
    {"tie_word_embeddings", "false"},
    {"attention_bias", "false"},
};

static pl_status check_fixed(const struct reader *r)
{
    for (size_t i = 0; i < sizeof fixed_values / sizeof fixed_values[0]; i++) {
        const struct fixed *f = &fixed_values[i];
        struct shown got = show(find(r, f->path));

        if (strcmp(got.text, f->json) != 0)
            return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                                "%s: %s: not supported (got %s, want %s)", r->name, f->path,
                                got.text, f->json);
    }
    return PL_OK;
}

static pl_status check_model_type(const struct reader *r)
{
    const json_t *value = json_object_get(r->root, "model_type");
    const char *type = json_string_value(value);

    if (type && strcmp(type, "deepseek_v4") == 0)
        return PL_OK;
    if (type && strcmp(type, "deepseek_v41") == 0)
        return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                            "%s: model_type: DeepSeek-V4.1 is another architecture and not "
                            "supported (got \"deepseek_v41\", want \"deepseek_v4\")",
                            r->name);
    return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                        "%s: model_type: not supported (got %s, want \"deepseek_v4\")", r->name,
                        show(value).text);
}

/* A value that contradicts the tensors is no error: they decide. */
static pl_status check_expert_dtype(const struct reader *r)
{
    const json_t *value = json_object_get(r->root, "expert_dtype");
    const char *text = json_string_value(value);

    if (!value || (text && strcmp(text, "fp4") == 0))
        return PL_OK;
    if (text && strcmp(text, "fp8") == 0) {
        r->config->expert_dtype_fp8 = true;
        return PL_OK;
    }
    return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                        "%s: expert_dtype: not supported (got %s, want \"fp4\", \"fp8\" or no key)",
                        r->name, show(value).text);
}

/* ---- whole numbers */

struct whole {
    const char *key;
    size_t offset; /* of an int32_t in pl_config */
    int32_t min, max, multiple;
};

/* The upper bounds are far above any published model; they keep every product of sizes below 2^63, the
 * work on a hostile file small, and a position exact in a float (2^24). Quantised linear layers take
 * 128 inputs at a time, hence the multiples. */
static const struct whole whole_values[] = {
    {"vocab_size", offsetof(pl_config, vocab_size), 2, 1 << 24, 1},
    {"hidden_size", offsetof(pl_config, hidden_size), 128, 1 << 16, 128},
    {"num_hidden_layers", offsetof(pl_config, n_layers), 1, PL_MAX_LAYERS, 1},
    {"num_attention_heads", offsetof(pl_config, n_heads), 1, 1024, 1},
    {"q_lora_rank", offsetof(pl_config, q_lora_rank), 128, 1 << 16, 128},
    {"o_groups", offsetof(pl_config, o_groups), 1, 1024, 1},
    {"o_lora_rank", offsetof(pl_config, o_lora_rank), 1, 1 << 16, 1},
    {"index_n_heads", offsetof(pl_config, index_n_heads), 1, 1024, 1},
    {"index_topk", offsetof(pl_config, index_topk), 1, 1 << 16, 1},
    {"n_routed_experts", offsetof(pl_config, n_experts), 1, 2048, 1},
    {"num_experts_per_tok", offsetof(pl_config, n_experts_per_tok), 1, 64, 1},
    {"moe_intermediate_size", offsetof(pl_config, moe_intermediate_size), 128, 1 << 16, 128},
    {"num_hash_layers", offsetof(pl_config, n_hash_layers), 0, PL_MAX_LAYERS, 1},
    {"max_position_embeddings", offsetof(pl_config, max_position_embeddings), 1, 1 << 24, 1},
    {"bos_token_id", offsetof(pl_config, bos_token_id), 0, (1 << 24) - 1, 1},
    {"eos_token_id", offsetof(pl_config, eos_token_id), 0, (1 << 24) - 1, 1},
    {"hc_sinkhorn_iters", offsetof(pl_config, hc_sinkhorn_iters), 1, 1000, 1},
    {"num_nextn_predict_layers", offsetof(pl_config, n_nextn_layers), 0, PL_MAX_MTP, 1},
};

static const struct whole dspark_values[] = {
    {"dspark_block_size", offsetof(pl_config, dspark_block_size), 1, 64, 1},
    {"dspark_noise_token_id", offsetof(pl_config, dspark_noise_token_id), 0, (1 << 24) - 1, 1},
    {"dspark_markov_rank", offsetof(pl_config, dspark_markov_rank), 1, 1 << 16, 1},
};

static pl_status to_whole(const struct reader *r, const char *where, const json_t *value,
                          int32_t min, int32_t max, int32_t *out)
{
    json_int_t v = json_integer_value(value);

    if (!json_is_integer(value) || v < min || v > max)
        return pl_error_set(r->err, PL_ERR_INVALID,
                            "%s: %s: not a whole number in range (got %s, want %" PRId32
                            "..%" PRId32 ")",
                            r->name, where, show(value).text, min, max);
    *out = (int32_t)v;
    return PL_OK;
}

static pl_status read_wholes(const struct reader *r, const struct whole *table, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct whole *w = &table[i];
        int32_t *out = (int32_t *)((char *)r->config + w->offset);
        const json_t *value;

        PL_TRY(need(r, w->key, &value));
        PL_TRY(to_whole(r, w->key, value, w->min, w->max, out));
        if (*out % w->multiple != 0)
            return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                                "%s: %s: quantised layers come in blocks of 128 (got %" PRId32
                                ", want a multiple of %" PRId32 ")",
                                r->name, w->key, *out, w->multiple);
    }
    return PL_OK;
}

/* ---- real numbers */

struct real {
    const char *path;
    size_t offset;
    bool is_double;
    double min, max;
    bool is_whole;
};

static const struct real real_values[] = {
    {"routed_scaling_factor", offsetof(pl_config, routed_scaling_factor), false, FLT_MIN, 1e6},
    {"swiglu_limit", offsetof(pl_config, swiglu_limit), false, FLT_MIN, FLT_MAX},
    {"rms_norm_eps", offsetof(pl_config, rms_norm_eps), false, FLT_MIN, 1},
    {"hc_eps", offsetof(pl_config, hc_eps), false, FLT_MIN, 1},
    {"rope_theta", offsetof(pl_config, rope_theta), true, 1.5, 1e12},
    {"compress_rope_theta", offsetof(pl_config, compress_rope_theta), true, 1.5, 1e12},
    {"rope_scaling.factor", offsetof(pl_config, yarn_factor), true, 1, 1e6},
    {"rope_scaling.original_max_position_embeddings",
     offsetof(pl_config, yarn_original_max_position), true, 1, 1 << 24, true},
    {"rope_scaling.beta_fast", offsetof(pl_config, yarn_beta_fast), true, 1e-3, 1e6},
    {"rope_scaling.beta_slow", offsetof(pl_config, yarn_beta_slow), true, 1e-3, 1e6},
};

static pl_status read_reals(const struct reader *r)
{
    for (size_t i = 0; i < sizeof real_values / sizeof real_values[0]; i++) {
        const struct real *f = &real_values[i];
        void *out = (char *)r->config + f->offset;
        const json_t *value;
        double v;

        PL_TRY(need(r, f->path, &value));
        v = json_number_value(value);
        if (!json_is_number(value) || !isfinite(v) || v < f->min || v > f->max ||
            (f->is_whole && floor(v) != v))
            return pl_error_set(
                r->err, PL_ERR_INVALID, "%s: %s: not a %snumber in range (got %s, want %g..%g)",
                r->name, f->path, f->is_whole ? "whole " : "", show(value).text, f->min, f->max);
        if (f->is_double)
            *(double *)out = v;
        else
            *(float *)out = (float)v;
    }
    return PL_OK;
}

/* Rotary scaling is YaRN or nothing we know; newer tools spell the key `rope_type`. */
static pl_status check_rope_type(const struct reader *r)
{
    const json_t *scaling, *type;

    PL_TRY(need(r, "rope_scaling", &scaling));
    type = json_object_get(scaling, "type");
    if (!type)
        type = json_object_get(scaling, "rope_type");
    if (json_is_string(type) && strcmp(json_string_value(type), "yarn") == 0)
        return PL_OK;
    return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                        "%s: rope_scaling.type: not supported (got %s, want \"yarn\")", r->name,
                        show(type).text);
}

/* ---- lists */

static pl_status read_ratios(const struct reader *r)
{
    pl_config *c = r->config;
    const json_t *list;
    size_t n;

    PL_TRY(need(r, "compress_ratios", &list));
    if (!json_is_array(list))
        return pl_error_set(r->err, PL_ERR_INVALID, "%s: compress_ratios: not a list (got %s)",
                            r->name, show(list).text);
    n = json_array_size(list);
    if (n < (size_t)c->n_layers || n > (size_t)c->n_layers + PL_MAX_MTP)
        return pl_error_set(r->err, PL_ERR_INVALID,
                            "%s: compress_ratios: wrong length (got %zu, want one per layer and "
                            "mtp block, %" PRId32 "..%" PRId32 ")",
                            r->name, n, c->n_layers, c->n_layers + PL_MAX_MTP);
    c->n_ratios = (int32_t)n;
    for (int32_t i = 0; i < c->n_ratios; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        json_int_t v = json_integer_value(value);
        bool main_stack = i < c->n_layers;

        if (!json_is_integer(value) || !(v == 0 || (main_stack && (v == 4 || v == 128))))
            return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                                "%s: compress_ratios[%" PRId32 "]: not supported (got %s, want %s)",
                                r->name, i, show(value).text,
                                main_stack ? "0, 4 or 128" : "0 for an mtp block");
        c->compress_ratio[i] = (int32_t)v;
    }
    return PL_OK;
}

static pl_status read_target_layers(const struct reader *r)
{
    pl_config *c = r->config;
    const json_t *list;
    size_t n;

    PL_TRY(need(r, "dspark_target_layer_ids", &list));
    n = json_array_size(list);
    if (n < 1 || n > PL_MAX_MTP)
        return pl_error_set(r->err, PL_ERR_INVALID,
                            "%s: dspark_target_layer_ids: wrong length (got %s, want a list of "
                            "1..%d layers)",
                            r->name, show(list).text, PL_MAX_MTP);
    c->n_dspark_target_layers = (int32_t)n;
    for (int32_t i = 0; i < c->n_dspark_target_layers; i++) {
        char where[48];

        snprintf(where, sizeof where, "dspark_target_layer_ids[%" PRId32 "]", i);
        PL_TRY(to_whole(r, where, json_array_get(list, (size_t)i),
                        i == 0 ? 0 : c->dspark_target_layer[i - 1] + 1, c->n_layers - 1,
                        &c->dspark_target_layer[i]));
    }
    return PL_OK;
}

/* The refreshes carry all four keys or none. */
static pl_status read_dspark(const struct reader *r)
{
    pl_config *c = r->config;
    const size_t n = sizeof dspark_values / sizeof dspark_values[0];

    c->has_dspark_keys = json_object_get(r->root, "dspark_target_layer_ids") != NULL;
    for (size_t i = 0; i < n; i++)
        if (json_object_get(r->root, dspark_values[i].key))
            c->has_dspark_keys = true;
    if (!c->has_dspark_keys)
        return PL_OK;
    PL_TRY(read_wholes(r, dspark_values, n));
    return read_target_layers(r);
}

static pl_status read_all(const struct reader *r)
{
    PL_TRY(check_model_type(r));
    PL_TRY(check_fixed(r));
    PL_TRY(check_expert_dtype(r));
    PL_TRY(check_rope_type(r));
    PL_TRY(read_wholes(r, whole_values, sizeof whole_values / sizeof whole_values[0]));
    PL_TRY(read_reals(r));
    PL_TRY(read_ratios(r));
    PL_TRY(read_dspark(r));
    return pl__config_check(r->name, r->config, r->err);
}

pl_status pl_config_parse(const char *name, const char *text, size_t length, pl_config *config,
                          pl_error *err)
{
    struct reader r = {.name = name, .config = config, .err = err};
    json_error_t json_err;
    json_t *root;
    pl_status s;

    memset(config, 0, sizeof *config);
    if (length > CONFIG_MAX_BYTES)
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "%s: too large for a config (got %zu bytes, want at most %d)", name,
                            length, CONFIG_MAX_BYTES);
    root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &json_err);
    if (!root) {
        if (json_error_code(&json_err) == json_error_out_of_memory)
            return pl_error_set(err, PL_ERR_NOMEM, "%s: no memory to parse it", name);
        return pl_error_set_at(err, PL_ERR_CORRUPT, (uint64_t)json_err.position,
                               "%s: not valid JSON, line %d, column %d: %s", name, json_err.line,
                               json_err.column, json_err.text);
    }
    r.root = root;
    if (json_is_object(root))
        s = read_all(&r);
    else
        s = pl_error_set(err, PL_ERR_CORRUPT, "%s: not a config (got %s, want a JSON object)", name,
                         show(root).text);
    json_decref(root);
    return s;
}

/* ---- the file */

pl_status pl_config_read(const char *path, pl_config *config, pl_error *err)
{
    char file[4096];
    char *text = NULL;
    size_t length = 0;
    struct stat st;
    pl_status s;
    int n;

    n = snprintf(file, sizeof file, "%s%s", path,
                 stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? "/config.json" : "");
    if (n < 0 || (size_t)n >= sizeof file)
        return pl_error_set(err, PL_ERR_INVALID, "%s: path is too long", path);
    s = pl_file_text_read(file, CONFIG_MAX_BYTES, &text, &length, err);
    if (s == PL_OK)
        s = pl_config_parse(file, text, length, config, err);
    free(text);
    return s;
}
