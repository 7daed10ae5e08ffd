/* Quantisers with power-of-two scales, and the test that lets integer units stand in for a chain.
 *
 * The maximum is taken over the bit patterns of |x|, which order like the values and put infinities
 * and NaNs on top. Dividing by 2^e is a multiplication by 2^-e: both are exact or land far below half
 * of the smallest code. Written for clarity; the vector forms live with their levels. */
#include "ops/quant.h"

#include <assert.h>
#include <string.h>

#include "base/numfmt.h"

enum { BF16_INF = 0x7F80, BF16_NAN = 0x7FC0, E4M3_NAN = 0x7F, SCALE_NAN = 255 };

/* What tells the two formats apart. */
typedef struct format {
    float floor;    /* smallest amax */
    float inv_qmax; /* fp32(1 / qmax) */
} format;

static const format e4m3_format = {1e-4f, 1.0f / 448.0f};
static const format e2m1_format = {0x1.8p-124f, 1.0f / 6.0f};

/* The e8m0 byte of a block with this finite amax. */
static uint8_t scale_byte(float amax, const format *f)
{
    float a = amax > f->floor ? amax : f->floor;
    uint32_t u = pl_f32_bits(a * f->inv_qmax);

    return (uint8_t)((u >> 23) + ((u & 0x7FFFFFu) != 0));
}

/* 2^(127 - byte), the inverse of a scale; byte is 1..253. */
static float inverse_scale(uint8_t byte)
{
    return pl_f32_from_bits((uint32_t)(254 - byte) << 23);
}

/* SCALE_NAN for a lost block. */
static uint8_t block_scale(const uint16_t *x, int32_t block, const format *f)
{
    uint16_t top = 0;

    for (int32_t i = 0; i < block; i++) {
        uint16_t a = x[i] & 0x7FFF;
        top = a > top ? a : top;
    }
    return top >= BF16_INF ? SCALE_NAN : scale_byte(pl_bf16_to_f32(top), f);
}

static uint8_t e4m3_code(uint16_t x, float inverse)
{
    return pl_f32_to_e4m3(pl_bf16_to_f32(x) * inverse);
}

static uint8_t e2m1_code(uint16_t x, float inverse)
{
    return pl_f32_to_e2m1(pl_bf16_to_f32(x) * inverse);
}

void pl_quant_e4m3(const uint16_t *x, int64_t n, int32_t block, uint8_t *codes, uint8_t *scale)
{
    assert((block == 64 || block == 128) && n % block == 0);
    for (int64_t b = 0; b < n / block; b++, x += block, codes += block) {
        scale[b] = block_scale(x, block, &e4m3_format);
        if (scale[b] == SCALE_NAN) {
            memset(codes, E4M3_NAN, (size_t)block);
            continue;
        }
        for (int32_t i = 0; i < block; i++)
            codes[i] = e4m3_code(x[i], inverse_scale(scale[b]));
    }
}

void pl_quant_e2m1(const uint16_t *x, int64_t n, uint8_t *packed, uint8_t *scale)
{
    assert(n % PL_E2M1_GROUP == 0);
    for (int64_t g = 0; g < n / PL_E2M1_GROUP; g++) {
        scale[g] = block_scale(x, PL_E2M1_GROUP, &e2m1_format);
        for (int32_t i = 0; i < PL_E2M1_GROUP; i += 2, x += 2, packed++) {
            float inverse = inverse_scale(scale[g]);
            *packed = scale[g] == SCALE_NAN
                          ? 0
                          : (uint8_t)(e2m1_code(x[0], inverse) | e2m1_code(x[1], inverse) << 4);
        }
    }
}

void pl_quant_e4m3_fake(const uint16_t *x, int64_t n, int32_t block, uint16_t *out)
{
    assert((block == 64 || block == 128) && n % block == 0);
    for (int64_t at = 0; at < n; at += block) {
        uint8_t byte = block_scale(x + at, block, &e4m3_format);
        for (int64_t i = at; i < at + block; i++)
            out[i] = byte == SCALE_NAN
                         ? BF16_NAN
                         : pl_f32_to_bf16(pl_e4m3_to_f32(e4m3_code(x[i], inverse_scale(byte))) *
                                          pl_e8m0_to_f32(byte));
    }
}

void pl_quant_e2m1_fake(const uint16_t *x, int64_t n, uint16_t *out)
{
    assert(n % PL_E2M1_GROUP == 0);
    for (int64_t at = 0; at < n; at += PL_E2M1_GROUP) {
        uint8_t byte = block_scale(x + at, PL_E2M1_GROUP, &e2m1_format);
        for (int64_t i = at; i < at + PL_E2M1_GROUP; i++)
            out[i] = byte == SCALE_NAN
                         ? BF16_NAN
                         : pl_f32_to_bf16(pl_e2m1_to_f32(e2m1_code(x[i], inverse_scale(byte))) *
                                          pl_e8m0_to_f32(byte));
    }
}

/* SCALE_NAN for a lost block. */
static uint8_t block_scale_f64(const double *x, int32_t block, const format *f)
{
    uint64_t top = 0;

    for (int32_t i = 0; i < block; i++) {
        uint64_t a = pl_f64_bits(x[i]) & ~PL_F64_SIGN;
        top = a > top ? a : top;
    }
    if (top >= pl_f64_bits(PL_F64_INF))
        return SCALE_NAN;
    return scale_byte((float)pl_f64_from_bits(top), f);
}

void pl_quant_e4m3_fake_f64(const double *x, int64_t n, int32_t block, double *out)
{
    assert((block == 64 || block == 128) && n % block == 0);
    for (int64_t at = 0; at < n; at += block) {
        uint8_t byte = block_scale_f64(x + at, block, &e4m3_format);
        double s = pl_e8m0_to_f64(byte);
        for (int64_t i = at; i < at + block; i++)
            out[i] =
                pl_f64_round_bf16((double)pl_e4m3_to_f32(pl_f32_to_e4m3((float)(x[i] / s))) * s);
    }
}

void pl_quant_e2m1_fake_f64(const double *x, int64_t n, double *out)
{
    assert(n % PL_E2M1_GROUP == 0);
    for (int64_t at = 0; at < n; at += PL_E2M1_GROUP) {
        uint8_t byte = block_scale_f64(x + at, PL_E2M1_GROUP, &e2m1_format);
        double s = pl_e8m0_to_f64(byte);
        for (int64_t i = at; i < at + PL_E2M1_GROUP; i++)
            out[i] =
                pl_f64_round_bf16((double)pl_e2m1_to_f32(pl_f32_to_e2m1((float)(x[i] / s))) * s);
    }
}

bool pl_quant_group_is_exact(const uint8_t *codes, int32_t *unit_log2)
{
    uint32_t sum = 0, bits = 0; /* in units of 2^-9: at most 32 * 229,376 */
    bool nan = false;

    for (int32_t i = 0; i < PL_E2M1_GROUP; i++) {
        uint32_t a = codes[i] & 0x7Fu;
        uint32_t v = a < 8 ? a : (8u + (a & 7u)) << ((a >> 3) - 1);
        nan |= a == E4M3_NAN;
        sum += v;
        bits |= v;
    }
    *unit_log2 = bits ? __builtin_ctz(bits) - 9 : 0;
    return !nan && 12 * (uint64_t)(bits ? sum >> __builtin_ctz(bits) : 0) <= 1u << 24;
}

void pl_quant_exact_groups(const uint8_t *codes, int64_t n, uint32_t *mask)
{
    assert(n % PL_E2M1_GROUP == 0);
    memset(mask, 0, (size_t)((n + 1023) / 1024) * sizeof *mask);
    for (int64_t g = 0; g < n / PL_E2M1_GROUP; g++) {
        int32_t unit;
        if (pl_quant_group_is_exact(codes + g * PL_E2M1_GROUP, &unit))
            mask[g / 32] |= 1u << (g % 32);
    }
}
