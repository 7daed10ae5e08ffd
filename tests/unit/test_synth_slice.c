/* Layers of the released size: four layers of Flash, 1.3 GB, against the digests in a golden file. Nothing
 * is written to the disk: the shards are made and hashed run by run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/synth.h"
#include "model/synth_layout.h"
#include "model/synth_recipe.h"
#include "support/check.h"
#include "support/golden.h"
#include "support/sha256.h"
#include "synth_digests.h"

enum { RUN_BYTES = 4 << 20 };

static void add_tensor(sha256 *sum, const pl_synth_recipe *r, const pl_tensor_spec *spec, void *run)
{
    const size_t width = pl_dtype_bytes(spec->dtype);
    const uint64_t unit = pl_synth_recipe_unit(r, spec);
    const uint64_t n = pl_tensor_spec_bytes(spec) / width, step = RUN_BYTES / width / unit * unit;

    for (uint64_t at = 0; at < n; at += step) {
        uint64_t m = n - at < step ? n - at : step;

        pl_synth_recipe_fill(r, spec, at, m, run);
        sha256_add(sum, run, m * width);
    }
}

static void check_shard(const pl_synth_layout *layout, const pl_synth_recipe *r, size_t shard,
                        const golden *g, void *run)
{
    const pl_synth_shard *s = &layout->shard[shard];
    char key[96], hex[SHA256_HEX_BYTES], *header;
    pl_error err = {0};
    sha256 sum;
    size_t n;

    sha256_init(&sum);
    check_ok(pl_synth_layout_header(layout, shard, false, &header, &n, &err), &err);
    sha256_add(&sum, header, n);
    free(header);
    for (size_t i = 0; i < s->n; i++)
        add_tensor(&sum, r, &layout->tensor[s->first + i].spec, run);
    sha256_end(&sum, hex);
    snprintf(key, sizeof key, "sha256.%s", s->file);
    assert_non_null(golden_metadata(g, key));
    if (strcmp(hex, golden_metadata(g, key)) != 0)
        fail_msg("%s: got digest %s, want %s", s->file, hex, golden_metadata(g, key));
}

static void check_text(const char *text, size_t n, const struct digest *want)
{
    char hex[SHA256_HEX_BYTES];
    sha256 sum;

    sha256_init(&sum);
    sha256_add(&sum, text, n);
    sha256_end(&sum, hex);
    if (strcmp(hex, want->sha256) != 0)
        fail_msg("%s: got digest %s, want %s", want->file, hex, want->sha256);
}

static int64_t number(const golden *g, const char *key)
{
    return strtoll(golden_metadata(g, key), NULL, 10);
}

static void flash_slice_is_the_oracles(void **state)
{
    golden *g = golden_open("flash4.exact.safetensors");
    const char *overrides = golden_metadata(g, "overrides");
    pl_synth_config_options o = {.preset = "flash",
                                 .layers = number(g, "layers"),
                                 .experts = number(g, "experts"),
                                 .vocab = number(g, "vocab"),
                                 .overrides = overrides,
                                 .overrides_bytes = strlen(overrides),
                                 .overrides_name = "overrides"};
    void *run = aligned_alloc(64, RUN_BYTES);
    pl_synth_layout layout;
    pl_synth_recipe recipe;
    pl_storage storage;
    pl_config config;
    pl_error err = {0};
    size_t n;
    char *text;

    assert_string_equal(golden_metadata(g, "preset"), "flash-slice");
    check_ok(pl_synth_config_create(&o, &text, &n, &config, &err), &err);
    check_text(text, n, &flash4_digests[0]);
    free(text);
    storage = pl_storage_of_config(&config);
    check_ok(pl_synth_layout_init(&layout, &config, &storage, &err), &err);
    check_ok(pl_synth_layout_index(&layout, &text, &n, &err), &err);
    check_text(text, n, &flash4_digests[1]);
    free(text);
    pl_synth_recipe_init(&recipe, &config, (uint64_t)number(g, "seed"));
    assert_int_equal(layout.n_shards, 7);
    for (size_t i = 0; i < layout.n_shards; i++)
        check_shard(&layout, &recipe, i, g, run);
    pl_synth_layout_fini(&layout);
    free(run);
    golden_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flash_slice_is_the_oracles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
