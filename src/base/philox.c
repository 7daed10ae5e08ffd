/* Philox4x32-10: ten rounds of two 32 x 32 multiplications over a counter, keyed by the seed. One block
 * serves four neighbouring tokens. Choosing and filtering candidates is the sampler's work. */
#include "base/philox.h"

#include "base/math.h"

void pl_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        uint64_t a = UINT64_C(0xD2511F53) * x0, b = UINT64_C(0xCD9E8D57) * x2;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x1 = (uint32_t)b;
        x3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

/* Never 0 or 1, so both logarithms of the noise are finite. */
static double uniform_of_word(uint32_t word)
{
    return ((double)word + 0.5) * 0x1p-32;
}

static float gumbel_of_word(uint32_t word)
{
    return (float)-pl_log_f64(-pl_log_f64(uniform_of_word(word)));
}

static void draw_block(const pl_noise *noise, uint32_t block, uint32_t out[4])
{
    const uint32_t key[2] = {(uint32_t)noise->seed, (uint32_t)(noise->seed >> 32)};
    const uint32_t counter[4] = {block, noise->position, (uint32_t)noise->purpose, noise->choice};

    pl_philox4x32(counter, key, out);
}

void pl_gumbel_fill(const pl_noise *noise, uint32_t first, int64_t n, float *out)
{
    uint32_t block[4], have = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t token = first + (uint32_t)i;
        if (!have || token % 4 == 0) {
            draw_block(noise, token / 4, block);
            have = 1;
        }
        out[i] = gumbel_of_word(block[token % 4]);
    }
}

float pl_gumbel(const pl_noise *noise, uint32_t token)
{
    float g;

    pl_gumbel_fill(noise, token, 1, &g);
    return g;
}

double pl_uniform(const pl_noise *noise)
{
    uint32_t block[4];

    draw_block(noise, 0, block);
    return uniform_of_word(block[0]);
}
