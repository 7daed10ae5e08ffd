/* plimsoll inspect as a command, and the sums it prints: exit statuses, streams, the published counts and the
 * bytes per token of specification section 9.4. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "model/census.h"
#include "support/check.h"
#include "support/configs.h"
#include "support/fake_checkpoint.h"
#include "support/scratch.h"

/* ---- sums */

static pl_census census_of(const char *preset)
{
    pl_config config = config_preset(preset);
    pl_storage storage = pl_storage_of_config(&config);

    return pl_census_config(&config, &storage);
}

static void published_bytes_per_token(void **state)
{
    static const struct {
        const char *preset;
        double dense, experts, total, unit; /* GB, and one of the last digit printed there */
    } want[] = {
        {"flash", 7.77, 3.45, 11.2, 0.01},      {"pro", 26.8, 12.8, 39.7, 0.1},
        {"flash-base", 7.77, 6.49, 14.3, 0.01}, {"pro-base", 26.8, 24.2, 51.0, 0.1},
        {"flash-0731", 7.77, 3.45, 11.2, 0.01}, /* the same main stack */
    };

    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        pl_census c = census_of(want[i].preset);
        double dense = (double)c.token_dense_bytes / 1e9;
        double experts = (double)c.token_expert_bytes / 1e9;

        print_message("%s: %.4f + %.4f\n", want[i].preset, dense, experts);
        assert_true(fabs(dense - want[i].dense) <= want[i].unit / 2);
        assert_true(fabs(experts - want[i].experts) <= want[i].unit / 2);
        assert_true(fabs(dense + experts - want[i].total) <= 0.05 + 1e-9);
    }
}

static void published_counts(void **state)
{
    pl_census c = census_of("flash");

    assert_true(c.parameters == 284332240471); /* section 1.2 */
    assert_true(c.main.n + c.mtp.n == 69187);
    assert_true(c.mtp.n == 1575);
    assert_true(c.main.bytes + c.mtp.bytes == 159609485896);
    assert_true(c.by_dtype[PL_DTYPE_I8].bytes == 141733920768);
    c = census_of("pro");
    assert_true(c.parameters == 1572997201763);
    c = census_of("flash-base");
    assert_true(c.copies.n == 2);
    assert_true(c.copies.bytes == 2118123520);
    assert_true(c.parameters == 284332240471);
    c = census_of("flash-0731");
    assert_true(c.drafter.n == 4705);
    assert_true(c.drafter.bytes == 10862838300);
    assert_true(c.mtp.n == 0);
}

static void checkpoint_counts_as_its_config(void **state)
{
    static const char *const presets[] = {"pico", "pico-base", "pico-0731"};

    for (size_t i = 0; i < 3; i++) {
        fake_checkpoint *f = fake_create(presets[i], false);
        char dir[SCRATCH_PATH_BYTES];
        pl_census want = census_of(presets[i]), got;
        pl_checkpoint *c;
        pl_error err;

        scratch_create(dir);
        fake_write(f, dir);
        check_ok(pl_checkpoint_open(dir, &c, &err), &err);
        got = pl_census_checkpoint(c);
        assert_memory_equal(&got, &want, sizeof got);
        pl_checkpoint_close(c);
        scratch_remove(dir);
        fake_free(f);
    }
}

/* ---- the command */

struct result {
    int status;
    char out[32768], err[2048];
};

static size_t take(FILE *f, char *text, size_t size)
{
    size_t n;

    rewind(f);
    n = fread(text, 1, size - 1, f);
    text[n] = 0;
    fclose(f);
    return n;
}

static void run(struct result *r, const char *dir, const char *option)
{
    const char *argv[] = {"inspect", dir, option, NULL};
    int out = dup(1), err = dup(2);
    FILE *to_out = tmpfile(), *to_err = tmpfile();

    fflush(stdout);
    dup2(fileno(to_out), 1);
    dup2(fileno(to_err), 2);
    r->status = pl_command_inspect.run(option ? 3 : 2, (char **)argv);
    fflush(stdout);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    take(to_out, r->out, sizeof r->out);
    take(to_err, r->err, sizeof r->err);
}

/* Writes the fake, runs the command over it, frees the fake. */
static void inspect(struct result *r, fake_checkpoint *f, const char *option)
{
    char dir[SCRATCH_PATH_BYTES];

    scratch_create(dir);
    fake_write(f, dir);
    run(r, dir, option);
    scratch_remove(dir);
    fake_free(f);
}

static json_t *inspect_json(fake_checkpoint *f)
{
    static struct result r;
    json_error_t err;
    json_t *root;

    inspect(&r, f, "--json");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.err, "");
    root = json_loads(r.out, JSON_REJECT_DUPLICATES, &err);
    if (!root)
        fail_msg("%s: %s", err.text, r.out);
    return root;
}

static const json_t *at(const json_t *root, const char *object, const char *key)
{
    const json_t *v = json_object_get(object ? json_object_get(root, object) : root, key);

    if (!v)
        fail_msg("no %s.%s", object ? object : "", key);
    return v;
}

static void json_tells_everything(void **state)
{
    json_t *j = inspect_json(fake_create("pico", true));
    pl_census c = census_of("pico");

    assert_string_equal(json_string_value(at(j, NULL, "variant")), "instruct");
    assert_string_equal(json_string_value(at(j, "architecture", "model_type")), "deepseek_v4");
    assert_int_equal(json_integer_value(at(j, "architecture", "num_hidden_layers")), 3);
    assert_int_equal(json_integer_value(json_array_get(at(j, "layers", "csa"), 0)), 1);
    assert_int_equal(json_integer_value(json_array_get(at(j, "layers", "hca"), 0)), 2);
    assert_int_equal(json_integer_value(at(j, "tensors", "total")), 195);
    assert_int_equal(json_integer_value(at(j, "tensors", "mtp")), c.mtp.n);
    assert_int_equal(json_integer_value(at(j, "bytes", "total")), c.main.bytes + c.mtp.bytes);
    assert_int_equal(json_integer_value(json_object_get(at(j, "bytes", "by_dtype"), "F8_E8M0")),
                     c.by_dtype[PL_DTYPE_F8_E8M0].bytes);
    assert_int_equal(json_integer_value(at(j, "bytes_per_token", "total")),
                     c.token_dense_bytes + c.token_expert_bytes);
    assert_string_equal(json_string_value(at(j, "drafter", "kind")), "mtp");
    assert_true(json_is_true(at(j, "drafter", "can_draft")));
    assert_true(json_is_null(at(j, "drafter", "reason")));
    assert_int_equal(json_string_length(at(j, NULL, "digest")), 32);
    assert_int_equal(json_string_length(at(j, NULL, "header_digest")), 32);
    assert_true(json_is_null(at(j, NULL, "digest_reason")));
    assert_int_equal(json_array_size(at(j, NULL, "problems")), 0);
    json_decref(j);
}

static void variants_are_told_apart(void **state)
{
    fake_checkpoint *f = fake_create("pico-base", false);
    json_t *j;

    /* Zeros are no F32 scales, but inspect looks at headers. */
    j = inspect_json(fake_create("pico-base", false));
    assert_string_equal(json_string_value(at(j, NULL, "variant")), "base");
    assert_int_equal(json_integer_value(at(j, "tensors", "copies")), 2);
    json_decref(j);
    for (size_t i = 0; i < f->n; i++)
        if (strstr(f->tensors[i].name, ".scale"))
            fake_retype(&f->tensors[i], "F8_E8M0", f->tensors[i].shape[0], f->tensors[i].shape[1]);
    j = inspect_json(f);
    assert_string_equal(json_string_value(at(j, NULL, "variant")), "fp8-e8m0");
    json_decref(j);
    j = inspect_json(fake_create("pico-0731", false));
    assert_string_equal(json_string_value(at(j, NULL, "variant")), "instruct");
    assert_true(json_is_true(at(j, NULL, "refresh")));
    assert_string_equal(json_string_value(at(j, "drafter", "kind")), "dspark");
    assert_true(json_is_false(at(j, "drafter", "can_draft")));
    assert_int_equal(json_integer_value(at(j, "drafter", "blocks")), 3);
    assert_int_equal(json_integer_value(at(j, "drafter", "tensors")),
                     census_of("pico-0731").drafter.n);
    assert_non_null(strstr(json_string_value(at(j, "drafter", "reason")), "DSpark"));
    json_decref(j);
}

static void text_is_for_people(void **state)
{
    static struct result r;
    fake_checkpoint *f = fake_create("pico", false);

    f->metadata = "{\"total_size\": 5}";
    inspect(&r, f, NULL);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.err, "");
    assert_non_null(strstr(r.out, "variant        instruct: experts FP4 with F8_E8M0 scales"));
    assert_non_null(strstr(r.out, "  CSA          1: 1\n"));
    assert_non_null(strstr(r.out, "tensors        195 in 6 files, "));
    assert_non_null(strstr(r.out, "drafter        mtp: can draft\n"));
    assert_non_null(
        strstr(r.out, "problems       total_size in model.safetensors.index.json is 5,"));
    inspect(&r, fake_create("pico", false), "--tensors");
    assert_non_null(strstr(r.out, "\nlayers.0.attn.wq_b.weight F8_E4M3 [512, 128] 65536 "
                                  "model-00002-of-00006.safetensors model\n"));
    assert_non_null(strstr(r.out, "problems       none\n"));
}

/* A drafter's tensors may have any name; one that forges rows or drives a terminal stays a name. */
static void names_from_files_stay_on_their_line(void **state)
{
    static struct result r;
    fake_checkpoint *f = fake_create("pico-0731", false);

    fake_repeat(f, "mtp.0.main_norm.weight", "mtp.0.\\u001b[2J\\nx\\u009b1m\\u00e9");
    inspect(&r, f, "--tensors");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, "\nmtp.0.?[2J?x??1m\u00e9 BF16 [128] 256 "));
    assert_null(strchr(r.out, '\x1b'));
}

/* However long the file's name is: JSON and text carry the same. */
static void problems_are_whole(void **state)
{
    fake_checkpoint *f = fake_create("pico-0731", false);
    fake_tensor *t = fake_find(f, "mtp.2.markov_head.markov_w1.weight");
    const char *note;
    json_t *j;

    memset(t->file, 'f', sizeof t->file - 1);
    fake_retype(t, "BF16", 1234567, 1);
    t->rank = 8;
    for (int i = 2; i < 8; i++)
        t->shape[i] = 1;
    j = inspect_json(f);
    assert_int_equal(json_array_size(at(j, NULL, "problems")), 1);
    note = json_string_value(json_array_get(at(j, NULL, "problems"), 0));
    assert_non_null(strstr(note, ": mtp.2.markov_head.markov_w1.weight: shape: differs from the "
                                 "configuration (got [1234567, 1, 1, 1, 1, 1, 1, 1], want ["));
    assert_string_equal(note + strlen(note) - 2, "])");
    json_decref(j);
}

/* Above 1 GiB the data is read only when asked for. The embedding here is a hole of 2 GiB. */
static void much_data_is_not_read_unasked(void **state)
{
    fake_checkpoint *f = fake_create("pico", false);
    json_t *j;

    fake_set_config(f, config_text_with("pico", "vocab_size", "8388608"));
    fake_retype(fake_find(f, "embed.weight"), "BF16", 8388608, 128);
    fake_retype(fake_find(f, "head.weight"), "BF16", 8388608, 128);
    fake_retype(fake_find(f, "layers.0.ffn.gate.tid2eid"), "I64", 8388608, 1);
    j = inspect_json(f);
    assert_true(json_is_null(at(j, NULL, "digest")));
    assert_non_null(strstr(json_string_value(at(j, NULL, "digest_reason")), "--digest reads them"));
    assert_int_equal(json_string_length(at(j, NULL, "header_digest")), 32);
    json_decref(j);
}

static void refusal_is_one_line_and_status_2(void **state)
{
    static struct result r;
    fake_checkpoint *f = fake_create("pico", false);

    fake_remove(f, "layers.0.attn.wq_b.scale");
    inspect(&r, f, "--json");
    assert_int_equal(r.status, 2);
    assert_string_equal(r.out, "");
    assert_int_equal(strncmp(r.err, "plimsoll: ", 10), 0);
    assert_non_null(strstr(r.err, ": layers.0.attn.wq_b.scale: tensor is missing"));
    assert_ptr_equal(strchr(r.err, '\n'), r.err + strlen(r.err) - 1);
    f = fake_create("pico", false);
    fake_set_config(f, config_text_with("pico", "model_type", "'deepseek_v41'"));
    inspect(&r, f, NULL);
    assert_int_equal(r.status, 2);
    assert_string_equal(r.out, "");
    assert_non_null(strstr(r.err, "DeepSeek-V4.1"));
    run(&r, "/no/such/folder", NULL);
    assert_int_equal(r.status, 2);
    assert_string_equal(r.out, "");
    run(&r, "/no/such/folder", "--jsn");
    assert_int_equal(r.status, 2);
    assert_non_null(strstr(r.err, "unknown option (got '--jsn')"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_bytes_per_token),
        cmocka_unit_test(published_counts),
        cmocka_unit_test(checkpoint_counts_as_its_config),
        cmocka_unit_test(json_tells_everything),
        cmocka_unit_test(variants_are_told_apart),
        cmocka_unit_test(text_is_for_people),
        cmocka_unit_test(names_from_files_stay_on_their_line),
        cmocka_unit_test(problems_are_whole),
        cmocka_unit_test(much_data_is_not_read_unasked),
        cmocka_unit_test(refusal_is_one_line_and_status_2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
