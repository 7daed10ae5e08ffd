/* config.json: the published values read right, and every rule of specification sections 1.3 and 1.4 and
 * of dspark section 2 refused with file, key, value and what would be right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/config.h"
#include "support/check.h"
#include "support/configs.h"

static void flash_is_read(void **state)
{
    pl_config c = config_preset("flash");

    assert_int_equal(c.vocab_size, 129280);
    assert_int_equal(c.hidden_size, 4096);
    assert_int_equal(c.n_layers, 43);
    assert_int_equal(c.n_heads, 64);
    assert_int_equal(c.q_lora_rank, 1024);
    assert_int_equal(c.o_groups, 8);
    assert_int_equal(c.o_lora_rank, 1024);
    assert_int_equal(c.index_n_heads, 64);
    assert_int_equal(c.index_topk, 512);
    assert_int_equal(c.n_experts, 256);
    assert_int_equal(c.n_experts_per_tok, 6);
    assert_int_equal(c.moe_intermediate_size, 2048);
    assert_int_equal(c.n_hash_layers, 3);
    assert_int_equal(c.max_position_embeddings, 1048576);
    assert_int_equal(c.bos_token_id, 0);
    assert_int_equal(c.eos_token_id, 1);
    assert_int_equal(c.hc_sinkhorn_iters, 20);
    assert_int_equal(c.n_nextn_layers, 1);
    assert_true(c.routed_scaling_factor == 1.5f);
    assert_true(c.swiglu_limit == 10.0f);
    assert_true(c.rms_norm_eps == 1e-6f);
    assert_true(c.hc_eps == 1e-6f);
    assert_true(c.rope_theta == 10000.0);
    assert_true(c.compress_rope_theta == 160000.0);
    assert_true(c.yarn_factor == 16.0);
    assert_true(c.yarn_original_max_position == 65536.0);
    assert_true(c.yarn_beta_fast == 32.0);
    assert_true(c.yarn_beta_slow == 1.0);
    assert_int_equal(c.n_ratios, 44);
    assert_int_equal(c.compress_ratio[1], 0);
    assert_int_equal(c.compress_ratio[2], 4);
    assert_int_equal(c.compress_ratio[41], 128);
    assert_int_equal(c.compress_ratio[42], 4);
    assert_int_equal(c.compress_ratio[43], 0);
    assert_false(c.expert_dtype_fp8);
    assert_false(c.has_dspark_keys);
    c = config_preset("pro-base");
    assert_true(c.expert_dtype_fp8);
    assert_int_equal(c.index_topk, 1024);
    assert_int_equal(c.compress_ratio[0], 128);
}

static void refresh_is_read(void **state)
{
    pl_config c = config_preset("flash-0731");

    assert_true(c.has_dspark_keys);
    assert_int_equal(c.n_ratios, 46);
    assert_int_equal(c.dspark_block_size, 5);
    assert_int_equal(c.dspark_noise_token_id, 128799);
    assert_int_equal(c.dspark_markov_rank, 256);
    assert_int_equal(c.n_dspark_target_layers, 3);
    assert_int_equal(c.dspark_target_layer[0], 40);
    assert_int_equal(c.dspark_target_layer[2], 42);
}

struct change {
    const char *preset, *path;
    const char *value; /* NULL: the key is removed */
    pl_status status;
    const char *want; /* in the message, besides the key */
};

static void check_changes(const struct change *changes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct change *ch = &changes[i];
        char *text = config_text_with(ch->preset, ch->path, ch->value);
        pl_config c;
        pl_error err;
        pl_status s = pl_config_parse("dir/config.json", text, strlen(text), &c, &err);

        print_message("%s = %s\n", ch->path, ch->value ? ch->value : "(removed)");
        if (ch->status == PL_OK)
            check_ok(s, &err);
        else
            check_error(s, ch->status, &err, "dir/config.json: ", ch->path, ch->want, NULL);
        free(text);
    }
}

#define CHECK(table) check_changes(table, sizeof table / sizeof table[0])

static void what_is_not_v4_is_refused(void **state)
{
    static const struct change changes[] = {
        {"flash", "model_type", NULL, PL_ERR_UNSUPPORTED, "(got no value, want \"deepseek_v4\")"},
        {"flash", "model_type", "4", PL_ERR_UNSUPPORTED, "got 4"},
        {"flash", "model_type", "'deepseek_v3'", PL_ERR_UNSUPPORTED, "got \"deepseek_v3\""},
        {"flash", "model_type", "'deepseek_v41'", PL_ERR_UNSUPPORTED, "DeepSeek-V4.1 is another"},
        {"flash", "quantization_config", NULL, PL_ERR_UNSUPPORTED, "got no value, want \"fp8\""},
        {"flash", "quantization_config", "[1]", PL_ERR_UNSUPPORTED, "quant_method"},
        {"flash", "quantization_config.quant_method", "'awq'", PL_ERR_UNSUPPORTED, "want \"fp8\""},
        {"flash", "quantization_config.fmt", "'e5m2'", PL_ERR_UNSUPPORTED, "want \"e4m3\""},
        {"flash", "quantization_config.activation_scheme", "'static'", PL_ERR_UNSUPPORTED,
         "want \"dynamic\""},
        {"flash", "quantization_config.scale_fmt", NULL, PL_ERR_UNSUPPORTED,
         "got no value, want \"ue8m0\""},
        {"flash", "quantization_config.scale_fmt", "null", PL_ERR_UNSUPPORTED, "got null"},
        {"flash", "quantization_config.scale_fmt", "'float'", PL_ERR_UNSUPPORTED, "got \"float\""},
        {"flash", "quantization_config.weight_block_size", "[32, 32]", PL_ERR_UNSUPPORTED,
         "got [32,32], want [128,128]"},
        {"flash", "quantization_config.weight_block_size", "[128]", PL_ERR_UNSUPPORTED, "[128]"},
        {"flash", "expert_dtype", "'int4'", PL_ERR_UNSUPPORTED, "got \"int4\""},
        {"flash", "expert_dtype", "null", PL_ERR_UNSUPPORTED, "got null"},
        {"flash", "head_dim", "256", PL_ERR_UNSUPPORTED, "got 256, want 512"},
        {"flash", "head_dim", "512.0", PL_ERR_UNSUPPORTED, "got 512.0, want 512"},
        {"flash", "qk_rope_head_dim", "32", PL_ERR_UNSUPPORTED, "want 64"},
        {"flash", "num_key_value_heads", "8", PL_ERR_UNSUPPORTED, "want 1"},
        {"flash", "sliding_window", "4096", PL_ERR_UNSUPPORTED, "want 128"},
        {"flash", "index_head_dim", "64", PL_ERR_UNSUPPORTED, "want 128"},
        {"flash", "hc_mult", "2", PL_ERR_UNSUPPORTED, "want 4"},
        {"flash", "n_shared_experts", "2", PL_ERR_UNSUPPORTED, "want 1"},
        {"flash", "hidden_act", "'gelu'", PL_ERR_UNSUPPORTED, "want \"silu\""},
        {"flash", "scoring_func", "'sigmoid'", PL_ERR_UNSUPPORTED, "want \"sqrtsoftplus\""},
        {"flash", "topk_method", "'greedy'", PL_ERR_UNSUPPORTED, "want \"noaux_tc\""},
        {"flash", "norm_topk_prob", "false", PL_ERR_UNSUPPORTED, "want true"},
        {"flash", "tie_word_embeddings", "true", PL_ERR_UNSUPPORTED, "want false"},
        {"flash", "attention_bias", "true", PL_ERR_UNSUPPORTED, "want false"},
        {"flash", "rope_scaling.type", "'linear'", PL_ERR_UNSUPPORTED, "want \"yarn\""},
        {"flash", "rope_scaling", "null", PL_ERR_UNSUPPORTED, "want \"yarn\""},
        {"flash", "hidden_size", "4160", PL_ERR_UNSUPPORTED, "multiple of 128"},
        {"flash", "q_lora_rank", "192", PL_ERR_UNSUPPORTED, "multiple of 128"},
        {"flash", "moe_intermediate_size", "2080", PL_ERR_UNSUPPORTED, "multiple of 128"},
        {"nano", "o_lora_rank", "96", PL_ERR_UNSUPPORTED, "2 x 96 inputs of wo_b"},
        {"flash", "num_nextn_predict_layers", "2", PL_ERR_UNSUPPORTED, "want 0 or 1"},
    };
    CHECK(changes);
}

static void impossible_numbers_are_refused(void **state)
{
    static const struct change changes[] = {
        {"flash", "vocab_size", "0", PL_ERR_INVALID, "got 0, want 2..16777216"},
        {"flash", "vocab_size", "16777217", PL_ERR_INVALID, "got 16777217"},
        {"flash", "vocab_size", "'129280'", PL_ERR_INVALID, "got \"129280\""},
        {"flash", "vocab_size", "129280.0", PL_ERR_INVALID, "got 129280.0"},
        {"flash", "vocab_size", "true", PL_ERR_INVALID, "got true"},
        {"flash", "hidden_size", "-4096", PL_ERR_INVALID, "got -4096"},
        {"flash", "hidden_size", "9223372036854775807", PL_ERR_INVALID, "got 9223372036854775807"},
        {"flash", "num_hidden_layers", "0", PL_ERR_INVALID, "want 1..256"},
        {"flash", "num_hidden_layers", "257", PL_ERR_INVALID, "want 1..256"},
        {"flash", "num_attention_heads", "65", PL_ERR_INVALID, "multiple of 8"},
        {"flash", "num_attention_heads", "4", PL_ERR_INVALID, "multiple of 8"},
        {"flash", "index_topk", "0", PL_ERR_INVALID, "want 1..65536"},
        {"flash", "index_n_heads", "0", PL_ERR_INVALID, "want 1..1024"},
        {"flash", "o_groups", "0", PL_ERR_INVALID, "want 1..1024"},
        {"flash", "n_routed_experts", "2049", PL_ERR_INVALID, "want 1..2048"},
        {"flash", "num_experts_per_tok", "65", PL_ERR_INVALID, "want 1..64"},
        {"nano", "num_experts_per_tok", "9", PL_ERR_INVALID, "got 9, want at most 8"},
        {"nano", "num_hash_layers", "257", PL_ERR_INVALID, "want 0..256"},
        {"flash", "max_position_embeddings", "16777217", PL_ERR_INVALID, "want 1..16777216"},
        {"flash", "hc_sinkhorn_iters", "0", PL_ERR_INVALID, "want 1..1000"},
        {"nano", "bos_token_id", "512", PL_ERR_INVALID, "got 512, want less than 512"},
        {"nano", "eos_token_id", "512", PL_ERR_INVALID, "got 512, want less than 512"},
        {"flash", "eos_token_id", "[1]", PL_ERR_INVALID, "got [1]"},
        {"flash", "routed_scaling_factor", "0", PL_ERR_INVALID, "got 0"},
        {"flash", "routed_scaling_factor", "-1.5", PL_ERR_INVALID, "got -1.5"},
        {"flash", "swiglu_limit", "null", PL_ERR_INVALID, "got null"},
        {"flash", "swiglu_limit", "1e39", PL_ERR_INVALID, "got 1e39"},
        {"flash", "swiglu_limit", "1e-40", PL_ERR_INVALID, "got 1e-40"},
        {"flash", "rms_norm_eps", "0.0", PL_ERR_INVALID, "got 0.0"},
        {"flash", "hc_eps", "1e-39", PL_ERR_INVALID, "got 1e-39"},
        {"flash", "hc_eps", "'1e-6'", PL_ERR_INVALID, "got \"1e-6\""},
        {"flash", "rope_theta", "1", PL_ERR_INVALID, "got 1,"},
        {"flash", "compress_rope_theta", "-1", PL_ERR_INVALID, "got -1"},
        {"flash", "rope_scaling.factor", "0.5", PL_ERR_INVALID, "got 0.5"},
        {"flash", "rope_scaling.factor", NULL, PL_ERR_INVALID, "key is missing"},
        {"flash", "rope_scaling.original_max_position_embeddings", "65536.5", PL_ERR_INVALID,
         "not a whole number in range (got 65536.5, want 1..1.67772e+07)"},
        {"flash", "rope_scaling.original_max_position_embeddings", "0", PL_ERR_INVALID, "got 0"},
        {"flash", "rope_scaling.beta_fast", "1", PL_ERR_INVALID, "not above beta_slow"},
        {"flash", "rope_scaling.beta_slow", "0", PL_ERR_INVALID, "got 0"},
        {"flash", "compress_ratios", "[]", PL_ERR_INVALID, "got 0, want one per layer"},
        {"flash", "compress_ratios", "4", PL_ERR_INVALID, "not a list (got 4)"},
        {"nano", "compress_ratios", "[0,4,128,4,128]", PL_ERR_INVALID, "5 layers and 1 mtp block"},
        {"nano", "compress_ratios", "[0,4,128,4,128,0,0]", PL_ERR_INVALID, "got 7"},
        {"nano", "compress_ratios", "[0,4,128,4,128,4]", PL_ERR_UNSUPPORTED,
         "[5]: not supported (got 4, want 0 for an mtp block)"},
        {"nano", "compress_ratios", "[0,4,64,4,128,0]", PL_ERR_UNSUPPORTED,
         "[2]: not supported (got 64, want 0, 4 or 128)"},
        {"nano", "compress_ratios", "[0,4,'4',4,128,0]", PL_ERR_UNSUPPORTED, "[2]"},
    };
    CHECK(changes);
}

static void drafter_keys_are_checked(void **state)
{
    static const struct change changes[] = {
        {"nano-0731", "dspark_block_size", NULL, PL_ERR_INVALID, "key is missing"},
        {"nano-0731", "dspark_noise_token_id", NULL, PL_ERR_INVALID, "key is missing"},
        {"nano-0731", "dspark_markov_rank", NULL, PL_ERR_INVALID, "key is missing"},
        {"nano-0731", "dspark_target_layer_ids", NULL, PL_ERR_INVALID, "key is missing"},
        {"nano-0731", "dspark_block_size", "0", PL_ERR_INVALID, "want 1..64"},
        {"nano-0731", "dspark_markov_rank", "0", PL_ERR_INVALID, "want 1..65536"},
        {"nano-0731", "dspark_noise_token_id", "512", PL_ERR_INVALID, "want less than 512"},
        {"nano-0731", "dspark_target_layer_ids", "[]", PL_ERR_INVALID, "wrong length"},
        {"nano-0731", "dspark_target_layer_ids", "3", PL_ERR_INVALID, "wrong length"},
        {"nano-0731", "dspark_target_layer_ids", "[0,1,5]", PL_ERR_INVALID, "[2]: not a whole"},
        {"nano-0731", "dspark_target_layer_ids", "[-1,1,2]", PL_ERR_INVALID, "got -1, want 0..4"},
        {"nano-0731", "dspark_target_layer_ids", "[1,1,2]", PL_ERR_INVALID, "got 1, want 2..4"},
        {"nano-0731", "num_nextn_predict_layers", "3", PL_OK, NULL},
    };
    /* One key alone: the message is about the missing ones. */
    char *text = config_text_with("nano", "dspark_target_layer_ids", "[2,3,4]");
    pl_config c;
    pl_error err;

    CHECK(changes);
    check_error(pl_config_parse("c", text, strlen(text), &c, &err), PL_ERR_INVALID, &err,
                "c: dspark_block_size: key is missing", NULL);
    free(text);
}

static void missing_keys_are_named(void **state)
{
    static const char *const keys[] = {
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "q_lora_rank",
        "o_groups",
        "o_lora_rank",
        "index_n_heads",
        "index_topk",
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "num_hash_layers",
        "max_position_embeddings",
        "bos_token_id",
        "eos_token_id",
        "hc_sinkhorn_iters",
        "num_nextn_predict_layers",
        "routed_scaling_factor",
        "swiglu_limit",
        "rms_norm_eps",
        "hc_eps",
        "rope_theta",
        "compress_rope_theta",
        "compress_ratios",
        "rope_scaling",
    };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct change ch = {"flash", keys[i], NULL, PL_ERR_INVALID, "key is missing"};
        if (strcmp(keys[i], "rope_scaling") == 0)
            ch.want = "rope_scaling: key is missing";
        check_changes(&ch, 1);
    }
}

static void what_does_not_matter_is_accepted(void **state)
{
    static const struct change changes[] = {
        {"flash", "expert_dtype", NULL, PL_OK, NULL},
        {"flash", "architectures", NULL, PL_OK, NULL},
        {"flash", "torch_dtype", NULL, PL_OK, NULL},
        {"flash", "attention_dropout", "'x'", PL_OK, NULL},
        {"flash", "some_new_key", "{'a': [1, {'b': null}]}", PL_OK, NULL},
        {"flash", "rope_theta", "10000.0", PL_OK, NULL},
        {"nano", "compress_ratios", "[0,0,0,0,0,0]", PL_OK, NULL},
        {"nano", "num_hash_layers", "6", PL_OK, NULL}, /* the first layers of a larger model */
        {"nano", "num_nextn_predict_layers", "0", PL_OK, NULL}, /* ratios keep their last entry */
        {"flash", "rope_scaling",
         "{'rope_type': 'yarn', 'factor': 16, 'original_max_position_embeddings': 65536,"
         " 'beta_fast': 32, 'beta_slow': 1}",
         PL_OK, NULL},
    };
    CHECK(changes);
}

static void broken_json_is_refused(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", "not valid JSON"},
        {"{", "line 1"},
        {"[1,2]", "want a JSON object"},
        {"{\"model_type\": \"deepseek_v4\", \"model_type\": \"deepseek_v4\"}", "duplicate"},
        {"{\"model_type\": \"deepseek_v4\"} x", "not valid JSON"},
        {"{\"a\": 1e999}", "not valid JSON"},
        {"{\"a\": 99999999999999999999}", "not valid JSON"},
        {"{\"a\": NaN}", "not valid JSON"},
        {"{\"a\": \"\xff\"}", "not valid JSON"},
        {"{'a': 1}", "not valid JSON"},
    };
    pl_config c;
    pl_error err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_error(pl_config_parse("c.json", cases[i].text, strlen(cases[i].text), &c, &err),
                    PL_ERR_CORRUPT, &err, "c.json: ", cases[i].want, NULL);
}

static void text_need_not_end_in_zero(void **state)
{
    char *text = config_text("nano"), *copy;
    size_t n = strlen(text);
    pl_config c;
    pl_error err;

    copy = malloc(n); /* an address sanitizer sees a read behind it */
    memcpy(copy, text, n);
    check_ok(pl_config_parse("c", copy, n, &c, &err), &err);
    for (size_t cut = 0; cut < n - 1; cut += 7)
        check_error(pl_config_parse("c", copy, cut, &c, &err), PL_ERR_CORRUPT, &err, "c: ", NULL);
    free(copy);
    free(text);
}

static void write_file(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void files_and_folders(void **state)
{
    char dir[] = "/tmp/pl-config-XXXXXX", path[64], *text = config_text("nano");
    char *big = malloc((1 << 20) + 1);
    pl_config c;
    pl_error err;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/config.json", dir);
    check_error(pl_config_read(dir, &c, &err), PL_ERR_NOT_FOUND, &err, path, NULL);
    write_file(path, text, strlen(text));
    check_ok(pl_config_read(dir, &c, &err), &err);
    assert_int_equal(c.hidden_size, 128);
    check_ok(pl_config_read(path, &c, &err), &err);
    assert_int_equal(c.vocab_size, 512);
    memset(big, ' ', (1 << 20) + 1);
    memcpy(big, text, strlen(text));
    write_file(path, big, 1 << 20);
    check_ok(pl_config_read(dir, &c, &err), &err);
    write_file(path, big, (1 << 20) + 1);
    check_error(pl_config_read(dir, &c, &err), PL_ERR_CORRUPT, &err, path, "too large", NULL);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    check_error(pl_config_read(dir, &c, &err), PL_ERR_INVALID, &err, path, "not a regular", NULL);
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_error(pl_config_read(dir, &c, &err), PL_ERR_INVALID, &err, path, "not a regular", NULL);
    unlink(path);
    rmdir(dir);
    free(big);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flash_is_read),
        cmocka_unit_test(refresh_is_read),
        cmocka_unit_test(what_is_not_v4_is_refused),
        cmocka_unit_test(impossible_numbers_are_refused),
        cmocka_unit_test(drafter_keys_are_checked),
        cmocka_unit_test(missing_keys_are_named),
        cmocka_unit_test(what_does_not_matter_is_accepted),
        cmocka_unit_test(broken_json_is_refused),
        cmocka_unit_test(text_need_not_end_in_zero),
        cmocka_unit_test(files_and_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
