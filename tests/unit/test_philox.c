/* Philox4x32-10 against its published vectors, and the noise built on it: addressing, range, distribution. */
#include <math.h>
#include <stdbool.h>

#include "base/philox.h"
#include "support/check.h"
#include "support/fpmode.h"

static void published_vectors(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } v[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        uint32_t out[4];
        pl_philox4x32(v[i].counter, v[i].key, out);
        check_same_bytes("philox", out, v[i].want, sizeof out);
    }
}

/* By the text of docs/NUMERICS.md 13, with the C library's logarithm. */
static double want_gumbel(const pl_noise *n, uint32_t token)
{
    const uint32_t counter[4] = {token >> 2, n->position, n->purpose, n->choice};
    const uint32_t key[2] = {(uint32_t)n->seed, (uint32_t)(n->seed >> 32)};
    uint32_t out[4];

    pl_philox4x32(counter, key, out);
    return -log(-log(((double)out[token & 3] + 0.5) / 4294967296.0));
}

static void noise_is_addressed_by_all_of_its_counter(void **state)
{
    pl_noise base = {.seed = UINT64_C(0x123456789abcdef0), .position = 77, .choice = 3};
    pl_noise other[5] = {base, base, base, base, base};
    float row[64], part[64];

    other[0].seed ^= 1;
    other[1].seed ^= UINT64_C(1) << 63;
    other[2].position++;
    other[3].choice++;
    other[4].purpose = (pl_purpose)1;
    pl_gumbel_fill(&base, 0, 64, row);
    for (uint32_t t = 0; t < 64; t++) {
        double want = want_gumbel(&base, t);
        assert_true(fabs((double)row[t] - want) <= 1e-7 * fmax(1, fabs(want)));
        assert_true(pl_gumbel(&base, t) == row[t]);
        for (int i = 0; i < 5; i++)
            assert_true(pl_gumbel(&other[i], t) != row[t]);
    }
    for (uint32_t first = 0; first < 9; first++) { /* unaligned starts and odd lengths */
        pl_gumbel_fill(&base, first, 17, part);
        check_same_f32("part", part, row + first, 17);
    }
    pl_gumbel_fill(&base, 129277, 3, part);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(fabs((double)part[i] - want_gumbel(&base, 129277 + i)) < 1e-5);
}

/* Mean 0.5772, variance 1.6449; half of the values lie below -ln ln 2. */
static void noise_has_the_gumbel_distribution(void **state)
{
    enum { ROWS = 64, N = 4096 };
    static float row[N];
    double sum = 0, square = 0;
    int below = 0;

    for (uint32_t p = 0; p < ROWS; p++) {
        const pl_noise noise = {.seed = 42, .position = p};
        pl_gumbel_fill(&noise, 0, N, row);
        for (int i = 0; i < N; i++) {
            assert_true(row[i] >= PL_GUMBEL_MIN && row[i] <= PL_GUMBEL_MAX);
            sum += (double)row[i];
            square += (double)row[i] * (double)row[i];
            below += (double)row[i] < 0.36651292058166435;
        }
    }
    sum /= ROWS * N;
    square = square / (ROWS * N) - sum * sum;
    assert_true(fabs(sum - 0.5772156649) < 0.01);
    assert_true(fabs(square - 1.6449340668) < 0.03);
    assert_true(fabs((double)below / (ROWS * N) - 0.5) < 0.004);
}

static void bounds_of_the_noise(void **state)
{
    assert_true((float)-log(-log(0.5 / 4294967296.0)) == PL_GUMBEL_MIN);
    assert_true((float)-log(-log1p(-0.5 / 4294967296.0)) == PL_GUMBEL_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),
        cmocka_unit_test(noise_is_addressed_by_all_of_its_counter),
        cmocka_unit_test(noise_has_the_gumbel_distribution),
        cmocka_unit_test(bounds_of_the_noise),
    };
    return RUN_IN_BOTH_FPMODES(tests);
}
