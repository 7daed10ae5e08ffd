/* Synthetic checkpoints byte for byte: against the oracle's digests and over every way to cut the work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/synth.h"
#include "model/synth_recipe.h"
#include "support/check.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/sha256.h"
#include "support/synth.h"
#include "synth_digests.h"

static const pl_synth_write_options two_threads = {.n_threads = 2};

/* ---- digests */

static void check_files(const char *folder, const struct digest *files)
{
    for (; files->file; files++)
        check_digest(folder, files->file, files->sha256);
}

static void golden_checkpoints_are_the_oracles(void **state)
{
    static const struct {
        const char *golden, *preset;
        const struct digest *others;
    } cases[] = {
        {"nano.exact.safetensors", "nano", nano_digests},
        {"micro.exact.safetensors", "micro", micro_digests},
        {"nano-base.exact.safetensors", "nano", nano_base_digests},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        golden *g = golden_open(cases[i].golden);
        char folder[SCRATCH_PATH_BYTES];
        pl_synth *s;

        assert_string_equal(golden_metadata(g, "preset"), cases[i].preset);
        s = synth_create(cases[i].preset, golden_metadata(g, "overrides"),
                         strtoull(golden_metadata(g, "seed"), NULL, 10));
        golden_close(g);
        scratch_create(folder);
        synth_write_to(s, folder, &two_threads);
        check_golden_shards(folder, cases[i].golden, pl_synth_n_shards(s));
        check_files(folder, cases[i].others);
        assert_int_equal(count_entries(folder), pl_synth_n_shards(s) + 2);
        pl_synth_destroy(s);
        scratch_remove(folder);
    }
}

static void mini_pro_is_the_oracles_for_small_and_large_seeds(void **state)
{
    static const struct {
        uint64_t seed;
        const struct digest *files;
    } cases[] = {
        {7001, mini_pro_7001_digests},
        {(UINT64_C(1) << 33) + 1, mini_pro_2_33_digests},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pl_synth *s = synth_create("mini-pro", NULL, cases[i].seed);
        char folder[SCRATCH_PATH_BYTES];

        scratch_create(folder);
        synth_write_to(s, folder, &two_threads);
        check_files(folder, cases[i].files);
        pl_synth_destroy(s);
        scratch_remove(folder);
    }
}

/* Odd vocabularies and expert counts, no mtp, Base, the largest seed, a config with every kind of text, the
 * block drafter. */
static void unusual_checkpoints_are_the_oracles(void **state)
{
    for (size_t i = 0; i < sizeof whole_digests / sizeof whole_digests[0]; i++) {
        const struct whole *w = &whole_digests[i];
        pl_synth_config_options o = synth_options(w->preset, w->overrides);
        char folder[SCRATCH_PATH_BYTES], path[2 * SCRATCH_PATH_BYTES], hex[SHA256_HEX_BYTES];
        pl_synth *s;
        sha256 sum;

        o.dspark = w->dspark;
        s = synth_create_from(&o, w->seed);
        scratch_create(folder);
        synth_write_to(s, folder, &two_threads);
        sha256_init(&sum);
        snprintf(path, sizeof path, "%s/config.json", folder);
        sha256_add_file(&sum, path);
        snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
        sha256_add_file(&sum, path);
        for (size_t k = 0; k < pl_synth_n_shards(s); k++) {
            snprintf(path, sizeof path, "%s/model-%05zu-of-%05zu.safetensors", folder, k + 1,
                     pl_synth_n_shards(s));
            sha256_add_file(&sum, path);
        }
        sha256_end(&sum, hex);
        if (strcmp(hex, w->sha256) != 0)
            fail_msg("case %zu: got digest %s, want %s", i, hex, w->sha256);
        pl_synth_destroy(s);
        scratch_remove(folder);
    }
}

/* ---- runs */

static bool keep_spec(void *user, const pl_tensor_spec *spec)
{
    pl_tensor_spec **at = user;

    *(*at)++ = *spec;
    return true;
}

/* Any cut of a tensor at its units gives the bytes of the whole tensor. */
static void check_cuts(const pl_synth_recipe *r, const pl_tensor_spec *spec)
{
    const size_t width = pl_dtype_bytes(spec->dtype), bytes = pl_tensor_spec_bytes(spec);
    const uint64_t n = bytes / width, unit = pl_synth_recipe_unit(r, spec);
    const uint64_t steps[] = {unit, 7 * unit, n / 3 / unit * unit};
    uint8_t *whole = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    uint8_t *part = aligned_alloc(64, (bytes + 63) & ~(size_t)63);

    pl_synth_recipe_fill(r, spec, 0, n, whole);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (steps[i] == 0 || n / steps[i] > 500)
            continue;
        memset(part, 0xA5, bytes);
        for (uint64_t at = 0; at < n; at += steps[i])
            pl_synth_recipe_fill(r, spec, at, n - at < steps[i] ? n - at : steps[i],
                                 part + at * width);
        check_same_bytes(spec->name, part, whole, bytes);
    }
    free(part);
    free(whole);
}

static void cuts_do_not_show(void **state)
{
    for (int i = 0; i < 3; i++) {
        pl_synth_config_options o =
            synth_options("nano", "{\"hidden_size\": 256, \"n_routed_experts\": 2}");
        pl_tensor_spec *specs = calloc(1000, sizeof *specs), *end = specs;
        pl_synth_recipe r;
        pl_storage storage;
        pl_config config;
        pl_error err = {0};
        size_t text_bytes;
        char *text;

        o.base = i == 1;
        o.dspark = i == 2;
        check_ok(pl_synth_config_create(&o, &text, &text_bytes, &config, &err), &err);
        storage = pl_storage_of_config(&config);
        pl_synth_recipe_init(&r, &config, 11);
        pl_tensors_each(&config, &storage, keep_spec, &end);
        for (const pl_tensor_spec *s = specs; s < end; s++)
            if (s->layer == PL_LAYER_GLOBAL || s->layer == 1 || s->layer <= PL_LAYER_MTP)
                check_cuts(&r, s);
        free(text);
        free(specs);
    }
}

static void threads_do_not_show(void **state)
{
    pl_synth *s = synth_create("flash",
                               "{\"num_hidden_layers\": 1, \"compress_ratios\": [4, 0], "
                               "\"n_routed_experts\": 1, \"num_experts_per_tok\": 1, "
                               "\"num_nextn_predict_layers\": 0, \"vocab_size\": 999, "
                               "\"num_attention_heads\": 8, \"index_n_heads\": 8}",
                               3);
    char one[SCRATCH_PATH_BYTES], five[SCRATCH_PATH_BYTES];

    scratch_create(one);
    scratch_create(five);
    synth_write_to(s, one, &(pl_synth_write_options){.n_threads = 1});
    synth_write_to(s, five, &(pl_synth_write_options){.n_threads = 5});
    for (int i = 1; i <= 3; i++) {
        char path[2 * SCRATCH_PATH_BYTES], name[64], hex[SHA256_HEX_BYTES];
        sha256 sum;

        snprintf(name, sizeof name, "model-%05d-of-00003.safetensors", i);
        snprintf(path, sizeof path, "%s/%s", one, name);
        sha256_init(&sum);
        sha256_add_file(&sum, path);
        sha256_end(&sum, hex);
        check_digest(five, name, hex);
    }
    pl_synth_destroy(s);
    scratch_remove(one);
    scratch_remove(five);
}

/* No bigram step is coprime to 2 and below 0.382 x 2: the recipe must still end. */
static void the_smallest_vocabulary_works(void **state)
{
    pl_synth *s = synth_create("nano", "{\"vocab_size\": 2}", 1);
    char folder[SCRATCH_PATH_BYTES];

    scratch_create(folder);
    synth_write_to(s, folder, &two_threads);
    scratch_remove(folder);
    pl_synth_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_checkpoints_are_the_oracles),
        cmocka_unit_test(mini_pro_is_the_oracles_for_small_and_large_seeds),
        cmocka_unit_test(unusual_checkpoints_are_the_oracles),
        cmocka_unit_test(cuts_do_not_show),
        cmocka_unit_test(threads_do_not_show),
        cmocka_unit_test(the_smallest_vocabulary_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
