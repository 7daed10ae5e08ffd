/* Synthetic checkpoints as files: which configurations there are, what --headers-only leaves out, what a loader
 * makes of the result, and the rules for the folder that is written to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "model/synth.h"
#include "model/synth_folder.h"
#include "model/weights.h"
#include "support/check.h"
#include "support/scratch.h"
#include "support/synth.h"

static const pl_synth_write_options two_threads = {.n_threads = 2};

/* ---- configurations */

static void check_refused(pl_synth_config_options o, pl_status want, const char *fragment)
{
    pl_error err = {0};
    pl_synth *s = (pl_synth *)&err;

    check_error(pl_synth_create(&o, 1, &s, &err), want, &err, fragment, NULL);
    assert_null(s);
}

static void wrong_configurations_are_refused(void **state)
{
    static const struct {
        const char *overrides;
        pl_status status;
        const char *want;
    } cases[] = {
        {"{", PL_ERR_CORRUPT, "overrides: not JSON"},
        {"[1]", PL_ERR_INVALID, "overrides: not a JSON object"},
        {"{\"a\": 1, \"a\": 2}", PL_ERR_CORRUPT, "duplicate"},
        {"{\"hidden_size\": 100}", PL_ERR_INVALID, "hidden_size"},
        {"{\"hidden_size\": 200}", PL_ERR_UNSUPPORTED, "hidden_size"},
        {"{\"compress_ratios\": [0, 4]}", PL_ERR_INVALID, "compress_ratios"},
        {"{\"compress_ratios\": [0, 4, 8, 4, 4, 0]}", PL_ERR_UNSUPPORTED, "compress_ratios[2]"},
        {"{\"num_experts_per_tok\": 9}", PL_ERR_INVALID, "num_experts_per_tok"},
        {"{\"expert_dtype\": \"int8\"}", PL_ERR_UNSUPPORTED, "expert_dtype"},
        {"{\"num_nextn_predict_layers\": 2}", PL_ERR_UNSUPPORTED, "num_nextn_predict_layers"},
    };
    pl_synth_config_options o = synth_options("nano", NULL);

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_refused(synth_options("nano", cases[i].overrides), cases[i].status, cases[i].want);
    check_refused(synth_options("mini", NULL), PL_ERR_INVALID, "--preset: unknown (got 'mini'");
    o.no_mtp = o.dspark = true;
    check_refused(o, PL_ERR_INVALID, "--dspark: contradicts --no-mtp");
    o.no_mtp = o.dspark = false;
    o.layers = 6;
    check_refused(o, PL_ERR_INVALID, "--layers: more than nano has (got 6, want at most 5");
    o.layers = 257;
    check_refused(o, PL_ERR_INVALID, "--layers: out of range");
    o.layers = 0;
    for (const char *const *bad = (const char *const[]){"", "4,", ",4", "4;128", "5", "-4", "4 ,4",
                                                        "+4", "4,99999999999999999999", NULL};
         *bad; bad++) {
        o.ratios = *bad;
        check_refused(o, PL_ERR_INVALID, "--ratios: not a list of compression ratios");
    }
}

static void options_cut_a_preset(void **state)
{
    pl_synth_config_options o = synth_options("flash", NULL);
    static const int32_t ratios[] = {4, 128, 0, 4, 128, 0};
    pl_error err = {0};
    pl_config c;
    size_t n;
    char *text;

    o.layers = 5;
    o.experts = 4;
    o.vocab = 1000;
    o.ratios = "4,128,0";
    o.base = true;
    o.no_mtp = true;
    check_ok(pl_synth_config_create(&o, &text, &n, &c, &err), &err);
    free(text);
    assert_int_equal(c.n_layers, 5);
    assert_int_equal(c.n_ratios, 6);
    check_same_bytes("ratios", c.compress_ratio, ratios, sizeof ratios);
    assert_int_equal(c.n_experts, 4);
    assert_int_equal(c.n_experts_per_tok, 4);
    assert_int_equal(c.vocab_size, 1000);
    assert_true(c.expert_dtype_fp8);
    assert_int_equal(c.n_nextn_layers, 0);
    assert_int_equal(c.n_hash_layers, 3);

    /* the overrides come last; more layers than the preset has need ratios */
    o.overrides = "{\"vocab_size\": 77}";
    o.overrides_bytes = strlen(o.overrides);
    o.layers = 50;
    check_ok(pl_synth_config_create(&o, &text, &n, &c, &err), &err);
    free(text);
    assert_int_equal(c.vocab_size, 77);
    assert_int_equal(c.n_layers, 50);
    assert_int_equal(c.compress_ratio[48], 4);
    assert_int_equal(c.compress_ratio[49], 128);
}

static void drafter_keys_fit_a_cut_model(void **state)
{
    pl_synth_config_options o = synth_options("flash", NULL);
    pl_error err = {0};
    pl_config c;
    size_t n;
    char *text;

    o.dspark = true;
    check_ok(pl_synth_config_create(&o, &text, &n, &c, &err), &err);
    free(text);
    assert_int_equal(c.n_ratios, 46);
    assert_int_equal(c.dspark_markov_rank, 256);
    assert_int_equal(c.dspark_noise_token_id, 128799);
    assert_int_equal(c.n_dspark_target_layers, 3);
    assert_int_equal(c.dspark_target_layer[0], 40);
    o.layers = 2;
    o.vocab = 1000;
    check_ok(pl_synth_config_create(&o, &text, &n, &c, &err), &err);
    free(text);
    assert_int_equal(c.n_ratios, 5);
    assert_int_equal(c.dspark_noise_token_id, 997);
    assert_int_equal(c.n_dspark_target_layers, 2);
    assert_int_equal(c.dspark_target_layer[1], 1);
}

/* ---- headers only */

static void headers_only_has_the_released_shapes_and_no_data(void **state)
{
    static const struct {
        const char *preset;
        bool base, dspark;
        size_t n_tensors, n_shards;
        uint64_t bytes;
    } cases[] = {
        /* specification section 9.1; dspark specification section 6 */
        {"flash", false, false, 69187, 46, 159609485896},
        {"flash", true, false, 69189, 46, 294673469000},
        {"flash", false, true, 72317, 48, 166878536440},
        {"pro", false, false, 145116, 64, 864704792696},
        {"pro", true, false, 145118, 64, 1606032540792},
        {"pro", false, true, 149782, 66, 892727580904},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pl_synth_config_options o = synth_options(cases[i].preset, NULL);
        char folder[SCRATCH_PATH_BYTES], path[2 * SCRATCH_PATH_BYTES], start[256];
        uint64_t apparent = 0, on_disk = 0, headers = 0;
        pl_synth *s;

        o.base = cases[i].base;
        o.dspark = cases[i].dspark;
        s = synth_create_from(&o, 1);
        assert_int_equal(pl_synth_n_tensors(s), cases[i].n_tensors);
        assert_int_equal(pl_synth_n_shards(s), cases[i].n_shards);
        assert_int_equal(pl_synth_data_bytes(s), cases[i].bytes);
        scratch_create(folder);
        synth_write_to(s, folder, &(pl_synth_write_options){.headers_only = true});
        for (size_t k = 0; k < cases[i].n_shards; k++) {
            struct stat st;
            uint64_t length;
            FILE *f;

            snprintf(path, sizeof path, "%s/model-%05zu-of-%05zu.safetensors", folder, k + 1,
                     cases[i].n_shards);
            f = fopen(path, "rb");
            assert_non_null(f);
            assert_int_equal(fread(&length, 8, 1, f), 1);
            assert_non_null(fgets(start, 80, f));
            fclose(f);
            assert_memory_equal(
                start,
                "{\"__metadata__\":{\"format\":\"pt\",\"" PL_SAFETENSORS_HEADERS_ONLY
                "\":\"true\"},\"",
                60);
            assert_int_equal(stat(path, &st), 0);
            apparent += (uint64_t)st.st_size;
            on_disk += (uint64_t)st.st_blocks * 512;
            headers += 8 + length;
        }
        assert_int_equal(apparent, cases[i].bytes + headers);
        assert_in_range(on_disk, headers, headers + cases[i].n_shards * 65536);
        pl_synth_destroy(s);
        scratch_remove(folder);
    }
}

/* ---- what a loader makes of it */

static void check_loads(const pl_synth *s, const char *folder, pl_drafter drafter)
{
    pl_checkpoint *c;
    pl_weights *w;
    pl_error err = {0};
    void *memory;

    check_ok(pl_checkpoint_open(folder, &c, &err), &err);
    assert_true(pl_checkpoint_has_data(c));
    assert_int_equal(pl_checkpoint_n_tensors(c), pl_synth_n_tensors(s));
    assert_int_equal(pl_checkpoint_drafter(c, NULL), drafter);
    memory = aligned_alloc(64, (pl_weights_bytes(c) + 63) & ~(size_t)63);
    check_ok(pl_weights_load(c, memory, &w, &err), &err);
    pl_weights_close(w);
    free(memory);
    pl_checkpoint_close(c);
}

/* Opened, but never loaded as zeros. */
static void check_refuses_to_load(const char *folder)
{
    pl_checkpoint *c;
    pl_weights *w;
    pl_error err = {0};
    bool told = false;
    void *memory;

    check_ok(pl_checkpoint_open(folder, &c, &err), &err);
    assert_false(pl_checkpoint_has_data(c));
    for (int32_t i = 0; i < pl_checkpoint_n_notes(c); i++)
        told |= strstr(pl_checkpoint_note(c, i), "no data") != NULL;
    assert_true(told);
    memory = aligned_alloc(64, (pl_weights_bytes(c) + 63) & ~(size_t)63);
    check_error(pl_weights_load(c, memory, &w, &err), PL_ERR_UNSUPPORTED, &err, folder,
                "shapes only", "--headers-only", NULL);
    assert_null(w);
    free(memory);
    pl_checkpoint_close(c);
}

static void the_loader_takes_what_is_written(void **state)
{
    static const struct {
        const char *preset;
        bool base, dspark, no_mtp;
        pl_drafter drafter;
    } cases[] = {
        {"nano", false, false, false, PL_DRAFTER_MTP},
        {"nano", true, false, false, PL_DRAFTER_MTP},
        {"nano", false, true, false, PL_DRAFTER_DSPARK},
        {"nano", false, false, true, PL_DRAFTER_NONE},
        {"micro", false, false, false, PL_DRAFTER_MTP},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pl_synth_config_options o = synth_options(cases[i].preset, NULL);
        char folder[SCRATCH_PATH_BYTES];
        pl_synth *s;

        o.base = cases[i].base;
        o.dspark = cases[i].dspark;
        o.no_mtp = cases[i].no_mtp;
        s = synth_create_from(&o, 1);
        scratch_create(folder);
        synth_write_to(s, folder, &two_threads);
        check_loads(s, folder, cases[i].drafter);
        synth_write_to(s, folder, &(pl_synth_write_options){.headers_only = true});
        check_refuses_to_load(folder);
        pl_synth_destroy(s);
        scratch_remove(folder);
    }
}

/* ---- the folder */

static void parents_are_created(void **state)
{
    pl_synth *s = synth_create("nano", NULL, 1);
    char top[SCRATCH_PATH_BYTES], deep[2 * SCRATCH_PATH_BYTES];

    scratch_create(top);
    snprintf(deep, sizeof deep, "%s/a//b/c/", top);
    synth_write_to(s, deep, &(pl_synth_write_options){.headers_only = true});
    assert_int_equal(count_entries(deep), 10);
    scratch_remove(top);
    pl_synth_destroy(s);
}

static bool exists(const char *folder, const char *name)
{
    char path[2 * SCRATCH_PATH_BYTES];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void what_lies_in_the_folder_is_kept(void **state)
{
    static const pl_synth_write_options sparse = {.headers_only = true};
    static const pl_synth_write_options force = {.headers_only = true, .force = true};
    pl_synth *nano = synth_create("nano", NULL, 1),
             *other = synth_create("nano", "{\"vocab_size\": 256}", 1);
    char folder[SCRATCH_PATH_BYTES];
    pl_error err = {0};

    scratch_create(folder);
    scratch_put(folder, "notes.txt", "mine");
    check_error(pl_synth_write(nano, folder, &sparse, &err), PL_ERR_INVALID, &err, folder,
                "got 1 entries such as 'notes.txt'", "--force", NULL);
    assert_int_equal(count_entries(folder), 1);

    /* a real checkpoint's weights, its config.json still missing */
    scratch_put(folder, "model-00001-of-00002.safetensors", "weights");
    check_error(pl_synth_write(nano, folder, &sparse, &err), PL_ERR_INVALID, &err, "got 2 entries",
                NULL);
    assert_true(exists(folder, "model-00001-of-00002.safetensors"));

    /* forced: the checkpoint goes, other files stay */
    synth_write_to(nano, folder, &force);
    assert_false(exists(folder, "model-00001-of-00002.safetensors"));
    assert_int_equal(count_entries(folder), 11);
    check_digest(folder, "notes.txt",
                 "3fd30542fe3f61b14bd4a4b2dc0b6fb30fa6f63ebce52dd1778aaa8c4dc02cff");

    /* the same options again need no force, others do */
    synth_write_to(nano, folder, &sparse);
    check_error(pl_synth_write(other, folder, &sparse, &err), PL_ERR_INVALID, &err,
                "got 11 entries", NULL);
    synth_write_to(other, folder, &force);
    pl_synth_destroy(nano);
    pl_synth_destroy(other);
    scratch_remove(folder);
}

static void a_file_is_no_folder(void **state)
{
    pl_synth *s = synth_create("nano", NULL, 1);
    char folder[SCRATCH_PATH_BYTES], path[2 * SCRATCH_PATH_BYTES];
    pl_error err = {0};

    scratch_create(folder);
    scratch_put(folder, "file", "x");
    snprintf(path, sizeof path, "%s/file", folder);
    check_error(pl_synth_write(s, path, &two_threads, &err), PL_ERR_INVALID, &err, "not a folder",
                NULL);
    scratch_remove(folder);
    pl_synth_destroy(s);
}

static void a_full_disk_is_found_before_anything_changes(void **state)
{
    char folder[SCRATCH_PATH_BYTES], deep[2 * SCRATCH_PATH_BYTES];
    pl_error err = {0};
    int fd;

    scratch_create(folder);
    snprintf(deep, sizeof deep, "%s/a/b", folder);
    check_error(pl_synth_folder_open(deep, "{}", 2, INT64_MAX, false, &fd, &err), PL_ERR_IO, &err,
                deep, "not enough room on the disk", "want 9223372036854775807", NULL);
    assert_int_equal(fd, -1);
    assert_int_equal(count_entries(folder), 0);

    scratch_put(folder, "config.json", "{}");
    scratch_put(folder, "model.safetensors.index.json", "{}");
    check_error(pl_synth_folder_open(folder, "{}", 2, INT64_MAX, false, &fd, &err), PL_ERR_IO, &err,
                "not enough room", NULL);
    assert_int_equal(count_entries(folder), 2);
    scratch_remove(folder);
}

struct stopper {
    uint64_t at, seen;
    size_t shards;
    bool went_back;
};

static bool stop_at(void *user, uint64_t bytes_done, size_t shards_done)
{
    struct stopper *s = user;

    if (bytes_done <= s->seen)
        s->went_back = true; /* no assertion here: this may be a worker's thread */
    s->seen = bytes_done;
    s->shards = shards_done;
    return bytes_done < s->at;
}

static void an_interrupted_run_leaves_nothing_that_looks_whole(void **state)
{
    pl_synth *s = synth_create("nano", NULL, 1);
    const uint64_t total = pl_synth_data_bytes(s);
    struct stopper stopper = {.at = UINT64_MAX};
    pl_synth_write_options o = {.n_threads = 2, .progress = stop_at, .user = &stopper};
    char folder[SCRATCH_PATH_BYTES];
    pl_error err = {0};

    scratch_create(folder);
    synth_write_to(s, folder, &o);
    assert_int_equal(stopper.seen, total);
    assert_int_equal(stopper.shards, 7);
    assert_false(stopper.went_back);

    /* again over the whole one, stopped in the middle: the index is gone, whole shards may stay */
    stopper = (struct stopper){.at = total / 2};
    check_error(pl_synth_write(s, folder, &o, &err), PL_ERR_CANCELLED, &err, "interrupted", NULL);
    assert_false(exists(folder, "model.safetensors.index.json"));
    assert_false(exists(folder, "model-00008-of-00008.safetensors"));
    assert_false(exists(folder, PL_SYNTH_TEMPORARY));
    assert_true(exists(folder, "model-00001-of-00008.safetensors"));
    assert_int_equal(count_entries(folder), 1 + stopper.shards);

    /* and finished by the next run, past the leftover of a killed one */
    scratch_put(folder, PL_SYNTH_TEMPORARY, "half");
    synth_write_to(s, folder, &two_threads);
    check_golden_shards(folder, "nano.exact.safetensors", 8);
    assert_int_equal(count_entries(folder), 10);
    pl_synth_destroy(s);
    scratch_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_configurations_are_refused),
        cmocka_unit_test(options_cut_a_preset),
        cmocka_unit_test(drafter_keys_fit_a_cut_model),
        cmocka_unit_test(headers_only_has_the_released_shapes_and_no_data),
        cmocka_unit_test(the_loader_takes_what_is_written),
        cmocka_unit_test(parents_are_created),
        cmocka_unit_test(what_lies_in_the_folder_is_kept),
        cmocka_unit_test(a_file_is_no_folder),
        cmocka_unit_test(a_full_disk_is_found_before_anything_changes),
        cmocka_unit_test(an_interrupted_run_leaves_nothing_that_looks_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
