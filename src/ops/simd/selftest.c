/* One small problem for each storage of weights, through the operator table: both forms of the driver with every
 * number of tiles that a kernel takes, every code, scales from zero to large, FP4 groups that permit integers of two
 * and three digits and some that do not, bf16 products around the smallest normal number, and the bits of level
 * scalar as the answer. */
#include "ops/simd/selftest.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/numfmt.h"
#include "ops/quant.h"
#include "ops/simd/linear.h"
#include "ops/tile.h"

enum {
    ROWS = 5 * PL_TILE_ROWS,
    COLS = 256,
    TOKENS = 13,
    NB = COLS / PL_QUANT_BLOCK,
    GROUP = PL_E2M1_GROUP
};

typedef struct problem {
    _Alignas(64) uint8_t scratch[PL_SIMD_SCRATCH_BYTES];
    _Alignas(64) uint8_t w[2 * ROWS * COLS];
    union {
        float f32[NB];
        uint8_t e8m0[ROWS * COLS / 32];
    } scale;
    union {
        uint16_t act[TOKENS][COLS];
        _Alignas(16) uint8_t quantised[TOKENS][COLS + 16];
    } x;
    float want[TOKENS][ROWS], got[TOKENS][ROWS];
} problem;

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Codes of weights are 5 times the index modulo 256, so that all come; 0x7F and 0xFF, NaN, do not. The last of five tiles
 * has FP4 scales that are too large for a power of two to go into them. */
static void fill_weights(problem *p, pl_weight_format format, uint32_t *random)
{
    for (int i = 0; i < ROWS * COLS; i++) {
        uint8_t code = (uint8_t)(5 * i + i / 256);
        if (format == PL_WEIGHT_BF16) {
            uint16_t v = (uint16_t)(next(random) & 0x80FF) | 0x3E00;
            if (i / COLS % 3 == 2) /* rows around the smallest normal number */
                v = (uint16_t)(v & 0x807F) | (uint16_t)(i % 3 << 7);
            memcpy(p->w + 2 * i, &v, sizeof v);
        } else if (format != PL_WEIGHT_FP4) {
            p->w[i] = (code & 0x7F) == 0x7F ? code ^ 1 : code;
        } else if (i < ROWS * COLS / 2) {
            p->w[i] = code;
        }
    }
    if (format == PL_WEIGHT_FP8_F32)
        for (int i = 0; i < NB; i++)
            p->scale.f32[i] = 0x1.2aaaaap-3f * (float)(i + 1);
    else
        for (int i = 0; i < ROWS * COLS / 32; i++)
            p->scale.e8m0[i] = i % 37 ? (uint8_t)((i < ROWS * COLS / 40 ? 120 : 210) + i % 11) : 0;
}

/* Codes of a group's kind: any, which no integers hold; within 2^4 of each other; the largest among the smallest. */
static uint8_t narrowed(uint8_t code, int kind)
{
    if (kind % 3 == 0)
        return code;
    if (kind % 3 == 1)
        return (uint8_t)((code & 0xBF) | 0x20);
    return (code & 0x7F) > 0x74 ? code : code & 0x87;
}

static void fill_inputs(problem *p, bool quantised, uint32_t *random)
{
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < COLS; i++) {
            uint32_t r = next(random);
            uint8_t code = (uint8_t)r;
            if (quantised)
                p->x.quantised[t][i] = (code & 0x7F) == 0x7F ? 0 : narrowed(code, t + i / GROUP);
            else
                p->x.act[t][i] = (uint16_t)((r & 0x807F) | (120 + r / 256 % 12) << 7);
        }
    for (int t = 0; t < TOKENS && quantised; t++) {
        memset(p->x.quantised[t] + COLS, 0, sizeof p->x.quantised[t] - COLS);
        for (int b = 0; b < NB; b++) {
            p->x.quantised[t][COLS + b] = (uint8_t)(118 + t + b);
            for (int g = 0; g < PL_QUANT_BLOCK / GROUP; g++) {
                int32_t unit;
                if (pl_quant_group_is_exact(p->x.quantised[t] + b * PL_QUANT_BLOCK + g * GROUP,
                                            &unit))
                    p->x.quantised[t][COLS + NB + b] |= (uint8_t)(1u << g);
            }
        }
    }
}

static pl_status compare(const problem *p, int n, pl_error *err)
{
    for (int t = 0; t < n; t++)
        for (int o = 0; o < ROWS; o++) {
            uint32_t got = pl_f32_bits(p->got[t][o]), want = pl_f32_bits(p->want[t][o]);
            if (got != want)
                return pl_error_set(err, PL_ERR_INTERNAL,
                                    "linear: token %d of %d, row %d is wrong (got 0x%08x, want "
                                    "0x%08x)",
                                    t, n, o, got, want);
        }
    return PL_OK;
}

pl_status pl__simd_linear_selftest(const pl_ops *ops, pl_weight_format format, bool a16,
                                   pl_error *err)
{
    static const int tokens[] = {1, 2, 3, 4, 5, 6, 12, 13};
    const bool quantised = format != PL_WEIGHT_BF16 && !a16;
    const pl_ops *scalar = pl_ops_scalar();
    const bool fp8 = format != PL_WEIGHT_FP4 && format != PL_WEIGHT_BF16;
    uint32_t random = 1;
    problem p;
    pl_op_env env = {.scratch = p.scratch};
    pl_linear_job job = {.w = {format, ROWS, COLS, p.w, &p.scale, PL_WEIGHT_TILES},
                         .n_rows = ROWS,
                         .a16 = a16,
                         .x = &p.x,
                         .x_stride = quantised ? (int64_t)sizeof p.x.quantised[0]
                                               : (int64_t)sizeof p.x.act[0],
                         .n = TOKENS,
                         .out = PL_LINEAR_ACC,
                         .y = p.want,
                         .y_stride = sizeof p.want[0]};

    fill_weights(&p, format, &random);
    fill_inputs(&p, quantised, &random);
#define RUN(table)                                      \
    (format == PL_WEIGHT_BF16 ? (table)->linear_bf16    \
     : !fp8                   ? (table)->linear_fp4     \
     : a16                    ? (table)->linear_fp8_a16 \
                              : (table)->linear_fp8)(&env, &job, 0, ROWS / PL_TILE_ROWS)
    RUN(scalar);
    job.y = p.got;
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        job.n = tokens[i];
        RUN(ops);
        PL_TRY(compare(&p, job.n, err));
    }
    return PL_OK;
}
