/* Synthetic checkpoints for tests. */
#include "support/synth.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "support/check.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/sha256.h"

pl_synth_config_options synth_options(const char *preset, const char *overrides)
{
    return (pl_synth_config_options){.preset = preset,
                                     .overrides = overrides,
                                     .overrides_bytes = overrides ? strlen(overrides) : 0,
                                     .overrides_name = "overrides"};
}

pl_synth *synth_create_from(const pl_synth_config_options *o, uint64_t seed)
{
    pl_error err = {0};
    pl_synth *s;

    check_ok(pl_synth_create(o, seed, &s, &err), &err);
    return s;
}

pl_synth *synth_create(const char *preset, const char *overrides, uint64_t seed)
{
    pl_synth_config_options o = synth_options(preset, overrides);

    return synth_create_from(&o, seed);
}

void synth_write_to(const pl_synth *s, const char *folder, const pl_synth_write_options *o)
{
    pl_error err = {0};

    check_ok(pl_synth_write(s, folder, o, &err), &err);
}

void check_digest(const char *folder, const char *file, const char *want)
{
    char path[2 * SCRATCH_PATH_BYTES], hex[SHA256_HEX_BYTES];
    sha256 sum;

    snprintf(path, sizeof path, "%s/%s", folder, file);
    sha256_init(&sum);
    sha256_add_file(&sum, path);
    sha256_end(&sum, hex);
    if (strcmp(hex, want) != 0)
        fail_msg("%s: got digest %s, want %s", file, hex, want);
}

int count_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

/* The shards' digests are in the golden file's metadata. */
void check_golden_shards(const char *folder, const char *golden_name, size_t n_shards)
{
    golden *g = golden_open(golden_name);

    for (size_t i = 0; i < n_shards; i++) {
        char key[96];
        const char *want;

        snprintf(key, sizeof key, "sha256.model-%05zu-of-%05zu.safetensors", i + 1, n_shards);
        want = golden_metadata(g, key);
        if (!want)
            fail_msg("%s: no metadata %s", golden_name, key);
        check_digest(folder, key + strlen("sha256."), want);
    }
    golden_close(g);
}
