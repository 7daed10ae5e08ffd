/* The bits of level scalar, whole: a digest of every tensor of a prompt, main stack and mtp block, for each
 * of the small models. Other tests say whether these bits are right; this one says whether any moved. A
 * difference needs a new PL_NUMERICS_VERSION and an entry in docs/NUMERICS.md 15, or a correction.
 *
 *     test_digest NAME LEVEL [print]
 *
 * Every level but f64 must have the same digests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "plimsoll/version.h"
#include "support/record.h"

_Static_assert(PL_NUMERICS_VERSION == 1, "the digests below are those of version 1");

enum { T = 141 };

static const struct {
    const char *name, *digest;
} expected[] = {
    {"nano", "5a623008fe9743d544ece93415d29fd9"},
    {"micro", "6ed266f7332525e4c75d27b31fcc59de"},
    {"nano-base", "c651c8594a159129210cd204e04f107d"},
};

static const char *model_name;
static const pl_ops *ops;
static bool print;

static void test_digest(void **unused)
{
    test_model *m = test_model_open(model_name, ops, (pl_forward_limits){.max_tokens = T}, 2);
    pl_state *state = test_state_new(m);
    recorder *r = recorder_open(m, &state, 1);
    int32_t tokens[T];
    uint64_t all[2 * T - 1];
    XXH128_hash_t h;
    char text[40];

    for (int32_t i = 0; i < T; i++)
        tokens[i] = (i * 193 + i / 7 * 31 + 5) % m->config->vocab_size;
    test_run(m, state, tokens, T, true);
    test_run_mtp(m, state, pl_forward_streams(m->forward), 0, tokens + 1, T - 1, true);
    memcpy(all, r->seqs[0].digest, T * sizeof *all);
    memcpy(all + T, r->seqs[0].mtp_digest, (T - 1) * sizeof *all);
    h = XXH3_128bits(all, sizeof all);
    snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
    recorder_close(m, r);
    test_state_free(state);
    test_model_close(m);
    if (print) {
        printf("%s %s\n", model_name, text);
        return;
    }
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        if (strcmp(expected[i].name, model_name) == 0) {
            assert_string_equal(text, expected[i].digest);
            return;
        }
    fail_msg("no digest of %s is known", model_name);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_digest)};
    pl_level level;

    assert_in_range(argc, 3, 4);
    model_name = argv[1];
    check_ok(pl_level_parse(argv[2], &level, NULL), NULL);
    ops = pl_ops_at(level, PL_MODE_REC);
    assert_non_null(ops);
    print = argc == 4;
    return cmocka_run_group_tests_name(argv[2], tests, NULL, NULL);
}
