/* Digests of bits, tied to PL_NUMERICS_VERSION: functions, formats, quantisers, tables and noise over
 * fixed inputs. Other tests say whether results are right; this one says whether any of them moved. A
 * difference here needs a new version and an entry in docs/NUMERICS.md 15, or a correction. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/math.h"
#include "base/philox.h"
#include "ops/hadamard.h"
#include "ops/quant.h"
#include "ops/rope_table.h"
#include "plimsoll/version.h"
#include "support/check.h"
#include "support/fpmode.h"

_Static_assert(PL_NUMERICS_VERSION == 1, "the digests below are those of version 1");

enum { N = 1 << 16 };

static uint32_t input_bits(uint32_t i)
{
    return i * 2654435761u;
}

static void check_digest(const char *what, const void *data, size_t bytes, uint64_t want)
{
    uint64_t got = XXH3_64bits(data, bytes);

    if (got != want)
        fail_msg("%s: digest 0x%016llx, version %d has 0x%016llx", what, (unsigned long long)got,
                 PL_NUMERICS_VERSION, (unsigned long long)want);
}

/* One NaN for all. */
static float canonical(float x)
{
    return x != x ? pl_f32_from_bits(0x7FC00000) : x;
}

static void functions(void **state)
{
    static const struct {
        const char *name;
        float (*f)(float);
        uint64_t want;
    } f32[] = {
        {"exp", pl_exp_f32, UINT64_C(0x6a071f9c5e18adb4)},
        {"log", pl_log_f32, UINT64_C(0x3fef6499a253313e)},
        {"sigmoid", pl_sigmoid_f32, UINT64_C(0x5800a6dd860d145f)},
        {"softplus", pl_softplus_f32, UINT64_C(0x29b02e8d4d5ee0ff)},
        {"tanh", pl_tanh_f32, UINT64_C(0x176136a4529f49c2)},
    };
    static const struct {
        const char *name;
        double (*f)(double);
        uint64_t want;
    } f64[] = {
        {"exp_f64", pl_exp_f64, UINT64_C(0x0bbf2550ab4ba69e)},
        {"log_f64", pl_log_f64, UINT64_C(0xf95a027662754507)},
        {"sigmoid_f64", pl_sigmoid_f64, UINT64_C(0x55950e4658ce10d1)},
        {"softplus_f64", pl_softplus_f64, UINT64_C(0x643121cc3fb11af4)},
        {"tanh_f64", pl_tanh_f64, UINT64_C(0x1d92cfb4e0fef32a)},
    };
    float *out = malloc(N * sizeof *out);
    double *out64 = malloc(2 * N * sizeof *out64);

    for (size_t k = 0; k < sizeof f32 / sizeof *f32; k++) {
        for (uint32_t i = 0; i < N; i++)
            out[i] = canonical(f32[k].f(pl_f32_from_bits(input_bits(i))));
        check_digest(f32[k].name, out, N * sizeof *out, f32[k].want);
    }
    for (size_t k = 0; k < sizeof f64 / sizeof *f64; k++) {
        for (uint32_t i = 0; i < N; i++) { /* 2^-20 .. 2^12, both signs */
            double x = ldexp(1 + (double)input_bits(i) * 0x1p-32, (int)(i % 32) - 20);
            double y = f64[k].f(i & 64 ? -x : x);
            out64[i] = y != y ? pl_f64_from_bits(UINT64_C(0x7FF8000000000000)) : y;
        }
        check_digest(f64[k].name, out64, N * sizeof *out64, f64[k].want);
    }
    for (uint32_t i = 0; i < N; i++)
        pl_sincos_f64((double)(float)(input_bits(i) & 0xFFFFFF) / (1 << i % 24), &out64[2 * i],
                      &out64[2 * i + 1]);
    check_digest("sincos", out64, 2 * N * sizeof *out64, UINT64_C(0x81b2ea62a4e38491));
    for (uint32_t i = 0; i < N; i++)
        out[i] = canonical(pl_fma_f32(pl_f32_from_bits(input_bits(i)),
                                      pl_f32_from_bits(input_bits(i + 7)),
                                      pl_f32_from_bits(input_bits(i + 31))));
    check_digest("fma", out, N * sizeof *out, UINT64_C(0x26a6a2133205a911));
    free(out);
    free(out64);
}

static void formats_and_quantisers(void **state)
{
    uint16_t *x = malloc(N * sizeof *x), *fake = malloc(N * sizeof *fake);
    uint8_t *codes = malloc(N), *scale = malloc(N);

    for (uint32_t i = 0; i < N; i++)
        fake[i] = pl_f32_to_bf16(pl_f32_from_bits(input_bits(i)));
    check_digest("bf16", fake, N * sizeof *fake, UINT64_C(0xf9d4c83703bd6b5e));
    for (uint32_t i = 0; i < N; i++)
        codes[i] = pl_f32_to_e4m3(pl_f32_from_bits((input_bits(i) & 0x83FFFFFFu) | 0x3C000000u));
    check_digest("e4m3 codes", codes, N, UINT64_C(0x9facf7b27ecd7c22));
    for (uint32_t i = 0; i < N;
         i++) { /* exponents drift from row to row; every 64th block is lost */
        uint32_t u = input_bits(i) >> 16, e = 60 + i / 1024 * 2 + (u >> 7) % 12;
        x[i] = (uint16_t)((u & 0x807F) | e << 7);
        if (i % 8192 == 77)
            x[i] = 0x7FC0;
    }
    pl_quant_e4m3(x, N, 128, codes, scale);
    check_digest("e4m3", codes, N, UINT64_C(0x105c34ea926a0b79));
    check_digest("e4m3 scales", scale, N / 128, UINT64_C(0x50fb8ea242ccf0e1));
    pl_quant_e2m1(x, N, codes, scale);
    check_digest("e2m1", codes, N / 2, UINT64_C(0x84325f655ffb9818));
    check_digest("e2m1 scales", scale, N / 32, UINT64_C(0x46e024d5af679ac2));
    pl_quant_e4m3_fake(x, N, 64, fake);
    check_digest("e4m3 fake", fake, N * sizeof *fake, UINT64_C(0x45d2d4f39f7fc3b6));
    free(x);
    free(fake);
    free(codes);
    free(scale);
}

static void tables_and_noise(void **state)
{
    const pl_rope_yarn yarn = {16, 65536, 32, 1};
    const pl_noise noise = {.seed = UINT64_C(0x9876543210), .position = 5, .choice = 1};
    float freq[64], row[64 * 64], *g = malloc(N * sizeof *g), x[128];

    pl_rope_table_freq(10000, NULL, freq);
    pl_rope_table_freq(160000, &yarn, freq + 32);
    check_digest("frequencies", freq, sizeof freq, UINT64_C(0x036d015aa27faf5a));
    for (int i = 0; i < 64; i++)
        pl_rope_table_row(freq + i % 2 * 32, i * i * 260, row + 64 * i, row + 64 * i + 32);
    check_digest("angles", row, sizeof row, UINT64_C(0x5bc7b2cb7170d32b));
    pl_gumbel_fill(&noise, 3, N, g);
    check_digest("gumbel", g, N * sizeof *g, UINT64_C(0x386bb25fd0708e73));
    for (uint32_t i = 0; i < 128; i++)
        x[i] = pl_bf16_to_f32((uint16_t)((input_bits(i) >> 16 & 0x80FF) | 0x3F00));
    pl_hadamard128(x);
    check_digest("hadamard", x, sizeof x, UINT64_C(0xd9c3c1ff3acad646));
    free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions),
        cmocka_unit_test(formats_and_quantisers),
        cmocka_unit_test(tables_and_noise),
    };
    return RUN_IN_BOTH_FPMODES(tests);
}
