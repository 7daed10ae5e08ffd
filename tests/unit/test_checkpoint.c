/* Checkpoint folders: every storage of specification section 1.3 is told by its tensors, and every way in
 * which files, index, names, types and shapes can disagree is refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "support/check.h"
#include "support/configs.h"
#include "support/fake_checkpoint.h"
#include "support/scratch.h"

static pl_status open_fake(const fake_checkpoint *f, pl_checkpoint **c, pl_error *err)
{
    char dir[SCRATCH_PATH_BYTES];
    pl_status s;

    scratch_create(dir);
    fake_write(f, dir);
    s = pl_checkpoint_open(dir, c, err);
    if (s != PL_OK) {
        assert_null(*c);
        /* The message starts with a path in the folder; tests look at what follows. */
        assert_int_equal(strncmp(err->msg, dir, strlen(dir)), 0);
        memmove(err->msg, err->msg + strlen(dir), strlen(err->msg + strlen(dir)) + 1);
    }
    scratch_remove(dir); /* open files stay readable */
    return s;
}

/* Opens and closes a fake that must be accepted; frees it. */
static pl_checkpoint *open_good(fake_checkpoint *f)
{
    pl_checkpoint *c;
    pl_error err;

    check_ok(open_fake(f, &c, &err), &err);
    fake_free(f);
    return c;
}

static void refuse(fake_checkpoint *f, pl_status status, const char *want, const char *also)
{
    pl_checkpoint *c;
    pl_error err;
    pl_status s = open_fake(f, &c, &err);

    if (s == PL_OK)
        pl_checkpoint_close(c);
    check_error(s, status, &err, want, also, NULL);
    fake_free(f);
}

static void check_note(const pl_checkpoint *c, const char *fragment)
{
    for (int32_t i = 0; i < pl_checkpoint_n_notes(c); i++)
        if (strstr(pl_checkpoint_note(c, i), fragment))
            return;
    fail_msg("no note says '%s' (%d notes, first '%s')", fragment, pl_checkpoint_n_notes(c),
             pl_checkpoint_n_notes(c) ? pl_checkpoint_note(c, 0) : "");
}

/* ---- what is accepted */

static void instruct(void **state)
{
    pl_checkpoint *c = open_good(fake_create("pico", false));
    const pl_storage *s = pl_checkpoint_storage(c);
    const char *reason = "?";

    assert_int_equal(s->scale, PL_DTYPE_F8_E8M0);
    assert_false(s->experts_fp8);
    assert_int_equal(s->expert_scale, PL_DTYPE_F8_E8M0);
    assert_true(s->has_mtp);
    assert_false(s->has_copies);
    assert_int_equal(pl_checkpoint_drafter(c, &reason), PL_DRAFTER_MTP);
    assert_null(reason);
    assert_int_equal(pl_checkpoint_n_notes(c), 0);
    assert_int_equal(pl_checkpoint_n_shards(c), 6);
    assert_string_equal(pl_checkpoint_shard_name(c, 0), "model-00001-of-00006.safetensors");
    assert_int_equal(pl_checkpoint_config(c)->hidden_size, 128);
    pl_checkpoint_close(c);
}

static void single_file(void **state)
{
    fake_checkpoint *f = fake_create("pico", false);
    pl_checkpoint *c;

    f->sharded = false;
    c = open_good(f);
    assert_int_equal(pl_checkpoint_n_shards(c), 1);
    assert_string_equal(pl_checkpoint_shard_name(c, 0), "model.safetensors");
    assert_int_equal(pl_checkpoint_n_notes(c), 0);
    pl_checkpoint_close(c);
}

static void base(void **state)
{
    pl_checkpoint *c = open_good(fake_create("pico-base", false));
    const pl_storage *s = pl_checkpoint_storage(c);
    int n_copies = 0;

    assert_int_equal(s->scale, PL_DTYPE_F32);
    assert_true(s->experts_fp8);
    assert_int_equal(s->expert_scale, PL_DTYPE_F32);
    assert_true(s->has_mtp);
    assert_true(s->has_copies);
    for (int64_t i = 0; i < pl_checkpoint_n_tensors(c); i++)
        n_copies += pl_checkpoint_tensor_at(c, i).role == PL_ROLE_COPY;
    assert_int_equal(n_copies, 2);
    assert_int_equal(pl_checkpoint_n_notes(c), 0);
    pl_checkpoint_close(c);
}

static void base_without_copies(void **state)
{
    fake_checkpoint *f = fake_create("pico-base", false);
    pl_checkpoint *c;

    fake_remove(f, "mtp.0.emb.tok_emb.weight");
    fake_remove(f, "mtp.0.head.weight");
    c = open_good(f);
    assert_false(pl_checkpoint_storage(c)->has_copies);
    pl_checkpoint_close(c);
}

/* A scale of the other type has other bytes; the shape stays. */
static void swap_scales(fake_checkpoint *f, const char *part, const char *dtype)
{
    for (size_t i = 0; i < f->n; i++) {
        fake_tensor *t = &f->tensors[i];
        if (strstr(t->name, ".scale") && strstr(t->name, part))
            fake_retype(t, dtype, t->shape[0], t->shape[1]);
    }
}

/* FP8 experts with E8M0 scales, expert_dtype dropped: a third party's repack. */
static void fp8_repack(void **state)
{
    fake_checkpoint *f = fake_create("pico-base", false);
    pl_checkpoint *c;

    fake_set_config(f, config_text_with("pico", "expert_dtype", NULL));
    swap_scales(f, "", "F8_E8M0");
    fake_remove(f, "mtp.0.emb.tok_emb.weight");
    fake_remove(f, "mtp.0.head.weight");
    c = open_good(f);
    assert_true(pl_checkpoint_storage(c)->experts_fp8);
    assert_int_equal(pl_checkpoint_storage(c)->expert_scale, PL_DTYPE_F8_E8M0);
    assert_int_equal(pl_checkpoint_storage(c)->scale, PL_DTYPE_F8_E8M0);
    check_note(c, "expert_dtype in config.json says fp4, the tensors are FP8");
    pl_checkpoint_close(c);
}

static pl_status find_scale(void *user, const pl_tensor_spec *spec,
                            const pl_checkpoint_tensor *tensor, pl_error *err)
{
    if (strcmp(spec->name, "layers.1.attn.wkv.scale") == 0)
        *(pl_dtype *)user = spec->dtype;
    assert_string_equal(spec->name, tensor->name);
    assert_int_equal(spec->dtype, tensor->dtype);
    assert_int_equal(pl_tensor_spec_bytes(spec), tensor->bytes);
    return PL_OK;
}

/* Scales of linears outside of the experts each say what they are. */
static void scales_of_both_types(void **state)
{
    fake_checkpoint *f = fake_create("pico", false);
    pl_dtype found = PL_DTYPE_COUNT;
    pl_checkpoint *c;
    pl_error err;

    swap_scales(f, "layers.1.attn.wkv", "F32");
    c = open_good(f);
    check_ok(pl_checkpoint_each(c, find_scale, &found, &err), &err);
    assert_int_equal(found, PL_DTYPE_F32);
    assert_int_equal(pl_checkpoint_storage(c)->scale, PL_DTYPE_F8_E8M0);
    pl_checkpoint_close(c);
}

/* A repack that left mtp.0 alone: blocks may differ, and a note says so. */
static void blocks_stored_differently(void **state)
{
    fake_checkpoint *f = fake_create("pico", false);
    pl_checkpoint *c;
    pl_dtype found = PL_DTYPE_COUNT;
    pl_error err;

    for (size_t i = 0; i < f->n; i++) {
        fake_tensor *t = &f->tensors[i];
        if (strncmp(t->name, "layers.", 7) == 0 && strstr(t->name, ".experts."))
            fake_retype(t, strstr(t->name, ".scale") ? "F32" : "F8_E4M3",
                        strstr(t->name, ".scale") ? 1 : 128, strstr(t->name, ".scale") ? 1 : 128);
    }
    c = open_good(f);
    assert_true(pl_checkpoint_storage(c)->experts_fp8);
    assert_int_equal(pl_checkpoint_storage(c)->expert_scale, PL_DTYPE_F32);
    check_note(c, "the routed experts of mtp.0 are stored otherwise");
    check_ok(pl_checkpoint_each(c, find_scale, &found, &err), &err);
    pl_checkpoint_close(c);
}

static void without_mtp(void **state)
{
    fake_checkpoint *f = fake_create("pico", false);
    const char *reason = NULL;
    pl_checkpoint *c;

    for (size_t i = f->n; i-- > 0;)
        if (strncmp(f->tensors[i].name, "mtp.", 4) == 0)
            fake_remove(f, f->tensors[i].name);
    fake_set_config(f, config_text_with("pico", "num_nextn_predict_layers", "0"));
    c = open_good(f);
    assert_int_equal(pl_checkpoint_drafter(c, &reason), PL_DRAFTER_NONE);
    assert_non_null(strstr(reason, "no drafter"));
    assert_false(pl_checkpoint_storage(c)->has_mtp);
    assert_int_equal(pl_checkpoint_n_notes(c), 0);
    pl_checkpoint_close(c);
}

/* Section 1.4: without e_proj the main stack is served and the drafter's tensors are not loaded. */
static void unknown_drafter(void **state)
{
    fake_checkpoint *f = fake_create("pico", false);
    const char *reason = NULL;
    pl_checkpoint *c;

    fake_remove(f, "mtp.0.e_proj.weight");
    fake_remove(f, "mtp.0.e_proj.scale");
    c = open_good(f);
    assert_int_equal(pl_checkpoint_drafter(c, &reason), PL_DRAFTER_NONE);
    assert_non_null(strstr(reason, "no mtp.0.e_proj"));
    assert_false(pl_checkpoint_storage(c)->has_mtp);
    check_note(c, "config.json names a drafter, but");
    for (int64_t i = 0; i < pl_checkpoint_n_tensors(c); i++) {
        pl_checkpoint_tensor t = pl_checkpoint_tensor_at(c, i);
        assert_int_equal(t.role == PL_ROLE_DRAFTER, strncmp(t.name, "mtp.", 4) == 0);
    }
    pl_checkpoint_close(c);
}

static void dspark(void **state)
{
    fake_checkpoint *f = fake_create("pico-0731", false);
    const char *reason = NULL;
    pl_checkpoint *c = open_good(f);

    assert_int_equal(pl_checkpoint_drafter(c, &reason), PL_DRAFTER_DSPARK);
    assert_non_null(strstr(reason, "DSpark"));
    assert_int_equal(pl_checkpoint_storage(c)->n_dspark_stages, 3);
    assert_false(pl_checkpoint_storage(c)->has_mtp);
    assert_int_equal(pl_checkpoint_n_notes(c), 0);
    pl_checkpoint_close(c);
}

static void dspark_disagreements(void **state)
{
    fake_checkpoint *f = fake_create("pico-0731", false);
    pl_checkpoint *c;

    fake_set_config(f, config_text_with("pico-0731", "compress_ratios", "[0,4,128,0,0]"));
    refuse(f, PL_ERR_INVALID, "/config.json: compress_ratios: does not fit the drafter",
           "(got 2 entries behind the layers, want one for each of its 3 stages)");
    f = fake_create("pico-0731", false);
    fake_set_config(f, config_text("pico"));
    refuse(f, PL_ERR_INVALID, "/config.json: dspark_block_size: key is missing", NULL);
    /* It is not loaded, so that a hole in it is only noted. */
    f = fake_create("pico-0731", false);
    fake_remove(f, "mtp.1.attn.wq_a.weight");
    fake_retype(fake_find(f, "mtp.2.attn.wkv.weight"), "I8", 2, 2);
    c = open_good(f);
    check_note(c,
               "1 tensors missing, 1 of another type or shape, the first mtp.1.attn.wq_a.weight");
    pl_checkpoint_close(c);
    f = fake_create("pico-0731", false);
    for (size_t i = f->n; i-- > 0;)
        if (strncmp(f->tensors[i].name, "mtp.", 4) == 0)
            fake_remove(f, f->tensors[i].name);
    c = open_good(f);
    assert_int_equal(pl_checkpoint_drafter(c, NULL), PL_DRAFTER_NONE);
    check_note(c, "config.json names a drafter, but the checkpoint has no drafter");
    pl_checkpoint_close(c);
}

/* ---- tensors that are refused */

static void missing_tensors_are_named(void **state)
{
    static const char *const names[] = {
        "embed.weight",
        "layers.0.attn.wq_a.scale",
        "layers.0.attn.wq_a.weight",
        "layers.0.ffn.gate.tid2eid",
        "layers.1.ffn.gate.bias",
        "layers.1.attn.indexer.compressor.ape",
        "layers.2.ffn.experts.1.w3.scale",
        "layers.2.ffn.experts.0.w1.weight",
        "hc_head_scale",
        "mtp.0.e_proj.weight",
        "mtp.0.h_proj.scale",
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fake_checkpoint *f = fake_create("pico", false);
        char want[128];

        fake_remove(f, names[i]);
        snprintf(want, sizeof want, ": %s: tensor is missing (1 missing)", names[i]);
        refuse(f, PL_ERR_CORRUPT, want, NULL);
    }
}

static void faults_are_counted(void **state)
{
    fake_checkpoint *f = fake_create("pico", false);

    fake_remove(f, "layers.0.attn.wq_b.weight");
    fake_remove(f, "layers.1.attn.wq_b.weight");
    fake_repeat(f, "norm.weight", "model.norm.weight");
    refuse(f, PL_ERR_CORRUPT,
           ": layers.0.attn.wq_b.weight: tensor is missing (2 missing, 1 unknown",
           "the first model.norm.weight)");
    f = fake_create("pico", false);
    fake_repeat(f, "norm.weight", "layers.3.attn_norm.weight");
    fake_repeat(f, "norm.weight", "layers.0.attn.compressor.ape"); /* layer 0 has no compressor */
    refuse(f, PL_ERR_CORRUPT,
           "/model-00005-of-00006.safetensors: layers.3.attn_norm.weight: tensor is "
           "not part of the model (2 unknown)",
           NULL);
    f = fake_create("pico", false);
    fake_retype(fake_find(f, "layers.0.attn.wq_b.weight"), "BF16", 512, 128);
    fake_retype(fake_find(f, "layers.1.attn.wq_b.weight"), "BF16", 512, 128);
    fake_remove(f, "norm.weight");
    refuse(f, PL_ERR_UNSUPPORTED,
           "/model-00002-of-00006.safetensors: layers.0.attn.wq_b.weight: dtype: "
           "not supported (got BF16, want F8_E4M3)",
           "2 tensors are wrong in all");
    /* instruct has no copies; Base's need both */
    f = fake_create("pico-base", false);
    fake_remove(f, "mtp.0.head.weight");
    refuse(f, PL_ERR_CORRUPT, "mtp.0.head.weight: tensor is missing", NULL);
    f = fake_create("pico", false);
    fake_repeat(f, "norm.weight", "mtp.1.norm.weight");
    refuse(f, PL_ERR_CORRUPT, "mtp.1.norm.weight: tensor is not part of the model", NULL);
}

static void types_and_shapes_are_checked(void **state)
{
    static const struct {
        const char *name, *dtype;
        int64_t rows, cols;
        pl_status status;
        const char *want;
    } cases[] = {
        {"layers.0.ffn.experts.1.w1.scale", "F32", 128, 4, PL_ERR_UNSUPPORTED,
         "dtype: not supported (got F32, want F8_E8M0 as expert 0 of its block)"},
        {"layers.0.ffn.experts.0.w1.scale", "F32", 128, 4, PL_ERR_UNSUPPORTED,
         "dtype: not supported (got F32, want F8_E8M0)"},
        {"layers.0.ffn.experts.0.w1.scale", "F8_E8M0", 1, 1, PL_ERR_CORRUPT,
         "shape: differs from the configuration (got [1, 1], want [128, 4])"},
        {"layers.0.ffn.experts.0.w1.weight", "BF16", 128, 128, PL_ERR_UNSUPPORTED,
         "dtype: not supported (got BF16, want I8 or F8_E4M3)"},
        {"layers.0.ffn.experts.1.w2.weight", "F8_E4M3", 128, 128, PL_ERR_UNSUPPORTED,
         "(got F8_E4M3, want I8 as expert 0 of its block)"},
        {"layers.0.ffn.experts.1.w2.weight", "I8", 128, 128, PL_ERR_CORRUPT,
         "(got [128, 128], want [128, 64])"},
        {"layers.0.attn.wo_b.scale", "BF16", 1, 1, PL_ERR_UNSUPPORTED,
         "(got BF16, want F8_E8M0 or F32)"},
        {"layers.0.attn.wo_b.scale", "F32", 1, 2, PL_ERR_CORRUPT, "(got [1, 2], want [1, 1])"},
        {"layers.0.attn.wo_b.weight", "I8", 128, 64, PL_ERR_UNSUPPORTED, "(got I8, want F8_E4M3)"},
        {"norm.weight", "F32", 1, 128, PL_ERR_UNSUPPORTED, "(got F32, want BF16)"},
        {"norm.weight", "BF16", 1, 128, PL_ERR_CORRUPT, "(got [1, 128], want [128])"},
        {"layers.0.hc_attn_fn", "BF16", 24, 512, PL_ERR_UNSUPPORTED, "(got BF16, want F32)"},
        {"layers.0.ffn.gate.tid2eid", "I8", 8, 1, PL_ERR_UNSUPPORTED, "(got I8, want I64)"},
        {"embed.weight", "BF16", 8, 256, PL_ERR_CORRUPT, "(got [8, 256], want [8, 128])"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_checkpoint *f = fake_create("pico", false);
        char where[128];

        print_message("%s %s\n", cases[i].name, cases[i].dtype);
        fake_retype(fake_find(f, cases[i].name), cases[i].dtype, cases[i].rows, cases[i].cols);
        snprintf(where, sizeof where, "-of-00006.safetensors: %s: ", cases[i].name);
        refuse(f, cases[i].status, where, cases[i].want);
    }
}

/* ---- files and index */

static void index_and_shards_must_agree(void **state)
{
    fake_checkpoint *f = fake_create("pico", false);
    fake_tensor *t;

    fake_find(f, "layers.1.attn_norm.weight")->in_index = false;
    refuse(f, PL_ERR_CORRUPT,
           "/model-00003-of-00006.safetensors: layers.1.attn_norm.weight: tensor is "
           "not in model.safetensors.index.json at byte",
           NULL);
    /* The same tensor in two files: the index can name only one of them. */
    f = fake_create("pico", false);
    t = fake_repeat(f, "norm.weight", "norm.weight");
    strcpy(t->file, "model-00001-of-00006.safetensors");
    t->in_index = false;
    refuse(f, PL_ERR_CORRUPT,
           "/model-00001-of-00006.safetensors: norm.weight: tensor is in another file",
           "want model-00005-of-00006.safetensors");
    f = fake_create("pico", false);
    fake_repeat(f, "norm.weight", "norm.weight")->in_index = false;
    refuse(f, PL_ERR_CORRUPT, "/model-00005-of-00006.safetensors: norm.weight: tensor stands twice",
           NULL);
}

/* Writes the fake, replaces its index by `index` and opens it. */
static void refuse_index(const char *index, pl_status status, const char *want, const char *also)
{
    fake_checkpoint *f = fake_create("pico", false);
    char dir[SCRATCH_PATH_BYTES];
    pl_checkpoint *c;
    pl_error err;

    scratch_create(dir);
    print_message("%s\n", index);
    fake_write(f, dir);
    scratch_write(dir, "model.safetensors.index.json", index, strlen(index));
    check_error(pl_checkpoint_open(dir, &c, &err), status, &err, dir, want, also, NULL);
    assert_null(c);
    scratch_remove(dir);
    fake_free(f);
}

#define INDEX "/model.safetensors.index.json: "
#define SHARD "model-00001-of-00006.safetensors"

static void broken_indexes_are_refused(void **state)
{
    refuse_index("", PL_ERR_CORRUPT, INDEX, "want '{'");
    refuse_index("{}", PL_ERR_CORRUPT, INDEX, "weight_map: missing or empty");
    refuse_index("{\"weight_map\": {}}", PL_ERR_CORRUPT, INDEX, "missing or empty");
    refuse_index("{\"weight_map\": []}", PL_ERR_CORRUPT, INDEX, "want '{'");
    refuse_index("{\"weight_map\": {\"a\": 1}}", PL_ERR_CORRUPT,
                 INDEX "weight_map: a: ", "want '\"'");
    refuse_index("{\"weight_map\": {\"a\": \"" SHARD "\"}", PL_ERR_CORRUPT, INDEX, "cut off");
    refuse_index("{\"weight_map\": {\"a\": \"" SHARD "\"}} x", PL_ERR_CORRUPT, INDEX,
                 "want the end");
    refuse_index("{\"weight_map\": {\"a\": \"\"}}", PL_ERR_CORRUPT,
                 INDEX "weight_map: a: ", "not a file of the folder (got '')");
    refuse_index("{\"weight_map\": {\"a\": \"../m.safetensors\"}}", PL_ERR_CORRUPT, INDEX,
                 "not a file of the folder (got '../m.safetensors')");
    refuse_index("{\"weight_map\": {\"a\": \"/etc/passwd\"}}", PL_ERR_CORRUPT, INDEX,
                 "not a file of the folder");
    refuse_index("{\"weight_map\": {\"a\": \"..\"}}", PL_ERR_CORRUPT, INDEX,
                 "not a file of the folder");
    refuse_index("{\"weight_map\": {\"a\": \"" SHARD "\", \"a\": \"" SHARD "\"}}", PL_ERR_CORRUPT,
                 INDEX, "a: tensor stands twice");
    refuse_index("{\"weight_map\": {\"a\": \"" SHARD "\"}, \"weight_map\": {}}", PL_ERR_CORRUPT,
                 INDEX, "weight_map: key stands twice");
    refuse_index("{\"weight_map\": {\"a\": \"nowhere.safetensors\"}}", PL_ERR_NOT_FOUND,
                 "/nowhere.safetensors: cannot open", NULL);
    refuse_index("{\"weight_map\": {\"a\": \"config.json\"}}", PL_ERR_CORRUPT,
                 "/config.json: ", "header length is too large");
    refuse_index("{\"weight_map\": {\"embed.weight\": \"" SHARD "\", \"a\": \"" SHARD
                 "\", \"b\": \"" SHARD "\"}}",
                 PL_ERR_CORRUPT,
                 "/" SHARD ": a: tensor is missing, though model.safetensors.index.json "
                 "places it there (2 missing in all files)",
                 NULL);
    refuse_index("{\"weight_map\": {\"a\": \"" SHARD "\","
                 "\"embed.weight\": \"model-00002-of-00006.safetensors\"}}",
                 PL_ERR_CORRUPT, "/" SHARD ": embed.weight: tensor is in another file than",
                 "(got " SHARD ", want model-00002-of-00006.safetensors)");
}

static fake_checkpoint *with_index(const char *metadata, const char *end)
{
    fake_checkpoint *f = fake_create("pico", false);

    f->metadata = metadata;
    if (end)
        f->index_end = end;
    return f;
}

static void rest_of_the_index(void **state)
{
    static const char *const good[] = {
        "{}",
        "null",
        "{\"total_size\": 1.5}",
        "{\"total_size\": \"many\"}",
        "{\"total_size\": 0, \"x\": [{\"y\": [1.5e3, -2, 0.5E-7, true, false, null, {}, []]}]}",
    };
    static const char *const bad[] = {
        "[1,]", "{\"a\" 1}", "01", "-", "1.", "1e", "1e+", "tru", "[[}", "{\"a\":1", "\"a", "}",
    };
    char deep[128] = "";
    pl_checkpoint *c;

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        c = open_good(with_index(good[i], NULL));
        assert_int_equal(pl_checkpoint_n_notes(c), 0);
        pl_checkpoint_close(c);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuse(with_index(bad[i], NULL), PL_ERR_CORRUPT, INDEX, " at byte ");
    memset(deep, '[', 64);
    memset(deep + 64, ']', 63);
    refuse(with_index(deep, NULL), PL_ERR_CORRUPT, INDEX, "want ',' or ']'");
    memset(deep, '[', 65);
    refuse(with_index(deep, NULL), PL_ERR_CORRUPT, INDEX, "nested too deep (want at most 64)");
    pl_checkpoint_close(open_good(with_index(NULL, ", \"else\": {}}")));
    refuse(with_index(NULL, ", \"metadata\": {}}"), PL_ERR_CORRUPT, INDEX,
           "metadata: key stands twice");
    c = open_good(with_index("{\"total_size\": 12345}", NULL));
    check_note(c, "total_size in model.safetensors.index.json is 12345, the tensors have ");
    pl_checkpoint_close(c);
}

static void folders(void **state)
{
    fake_checkpoint *f = fake_create("pico", false);
    char dir[SCRATCH_PATH_BYTES], path[2048], link[2048];
    pl_checkpoint *c;
    pl_error err;

    scratch_create(dir);
    check_error(pl_checkpoint_open("/no/such/folder", &c, &err), PL_ERR_NOT_FOUND, &err,
                "/no/such/folder: cannot open", NULL);
    check_error(pl_checkpoint_open(dir, &c, &err), PL_ERR_NOT_FOUND, &err,
                "/config.json: cannot open", NULL);
    scratch_write(dir, "config.json", f->config, strlen(f->config));
    snprintf(path, sizeof path, "%s/config.json", dir);
    check_error(pl_checkpoint_open(path, &c, &err), PL_ERR_INVALID, &err, "not a checkpoint folder",
                NULL);
    check_error(pl_checkpoint_open(dir, &c, &err), PL_ERR_NOT_FOUND, &err, dir,
                "no weights (want model.safetensors.index.json or model.safetensors)", NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    check_error(pl_checkpoint_open(dir, &c, &err), PL_ERR_INVALID, &err,
                "/model.safetensors: not a regular file", NULL);
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* must not wait for a writer */
    check_error(pl_checkpoint_open(dir, &c, &err), PL_ERR_INVALID, &err, "not a regular file",
                NULL);
    unlink(path);
    /* Caches of downloads are folders of links. */
    f->sharded = false;
    fake_write(f, dir);
    snprintf(link, sizeof link, "%s/blob", dir);
    rename(path, link);
    assert_int_equal(symlink("blob", path), 0);
    check_ok(pl_checkpoint_open(dir, &c, &err), &err);
    pl_checkpoint_close(c);
    scratch_remove(dir);
    fake_free(f);
}

/* Data that a truncated download lacks is found from the headers. */
static void truncated_shard_is_refused(void **state)
{
    fake_checkpoint *f = fake_create("pico", false);
    char dir[SCRATCH_PATH_BYTES], path[2048];
    struct stat st;
    pl_checkpoint *c;
    pl_error err;

    scratch_create(dir);
    fake_write(f, dir);
    snprintf(path, sizeof path, "%s/model-00003-of-00006.safetensors", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    check_error(pl_checkpoint_open(dir, &c, &err), PL_ERR_CORRUPT, &err, path,
                "data_offsets: outside the file", NULL);
    assert_int_equal(truncate(path, st.st_size + 1), 0);
    check_error(pl_checkpoint_open(dir, &c, &err), PL_ERR_CORRUPT, &err, path,
                "data is longer than its tensors", NULL);
    scratch_remove(dir);
    fake_free(f);
}

static void data_is_read_where_it_lies(void **state)
{
    fake_checkpoint *f = fake_create("pico", true);
    const fake_tensor *want = fake_find(f, "layers.1.ffn.experts.1.w2.scale");
    char dir[SCRATCH_PATH_BYTES];
    uint8_t got[512];
    pl_checkpoint *c;
    pl_error err;

    scratch_create(dir);
    fake_write(f, dir);
    check_ok(pl_checkpoint_open(dir, &c, &err), &err);
    for (int64_t i = 0; i < pl_checkpoint_n_tensors(c); i++) {
        pl_checkpoint_tensor t = pl_checkpoint_tensor_at(c, i);
        if (strcmp(t.name, want->name) != 0)
            continue;
        assert_int_equal(t.bytes, sizeof got);
        check_ok(pl_checkpoint_read(c, &t, 0, got, sizeof got, &err), &err);
        check_same_bytes(t.name, got, want->data, sizeof got);
        check_ok(pl_checkpoint_read(c, &t, 500, got, 12, &err), &err);
        check_same_bytes(t.name, got, want->data + 500, 12);
        check_error(pl_checkpoint_read(c, &t, 500, got, 13, &err), PL_ERR_INVALID, &err,
                    "read outside the tensor", NULL);
    }
    pl_checkpoint_close(c);
    scratch_remove(dir);
    fake_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instruct),
        cmocka_unit_test(single_file),
        cmocka_unit_test(base),
        cmocka_unit_test(base_without_copies),
        cmocka_unit_test(fp8_repack),
        cmocka_unit_test(scales_of_both_types),
        cmocka_unit_test(blocks_stored_differently),
        cmocka_unit_test(without_mtp),
        cmocka_unit_test(unknown_drafter),
        cmocka_unit_test(dspark),
        cmocka_unit_test(dspark_disagreements),
        cmocka_unit_test(missing_tensors_are_named),
        cmocka_unit_test(faults_are_counted),
        cmocka_unit_test(types_and_shapes_are_checked),
        cmocka_unit_test(index_and_shards_must_agree),
        cmocka_unit_test(broken_indexes_are_refused),
        cmocka_unit_test(rest_of_the_index),
        cmocka_unit_test(folders),
        cmocka_unit_test(truncated_shard_is_refused),
        cmocka_unit_test(data_is_read_where_it_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
