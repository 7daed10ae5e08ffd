/* Linear layers of the vector levels: what a level has to supply, and the driver that all of them share.
 *
 * The driver knows jobs, tiles, shards and scratch; the kernels know one block of 128 columns. A level gives a
 * pl_simd_linear and gets the four operators of ops/linear.h with exactly the bits of level scalar.
 *
 * Inputs are prepared once: 128 floats or 64 pairs of bf16 a block and token, times a power of two of the kernel's
 * choice that it takes back before the block's scale is applied. Then
 *
 *     up to `few` tokens    weights are expanded in registers and shared by the tokens
 *     more                  a block of a tile is expanded to floats, [128][16], and multiplied with up to
 *                           PL_SIMD_CHUNK tokens before the next
 *
 * The kernels run with FTZ, and with DAZ off where the kind says so: expanded weights may be denormal floats that
 * stand for normal values (docs/KERNELS.md). */
#ifndef PL_OPS_SIMD_LINEAR_H
#define PL_OPS_SIMD_LINEAR_H

#include "ops/ops.h"

enum {
    PL_SIMD_FEW = 5, /* at most so many tokens in registers */
    PL_SIMD_GROUP =
        12, /* at most so many tokens of a panel kernel; all levels' numbers divide PL_SIMD_CHUNK */
    PL_SIMD_CHUNK = 96,      /* tokens that share an expanded block */
    PL_SIMD_PANEL = 16,      /* tiles that share prepared inputs */
    PL_SIMD_PANEL_TILES = 2, /* at most so many tiles of a panel kernel */
    PL_SIMD_IN_FLIGHT = 4    /* at most so many tiles of a kernel for few tokens */
};

/* Block b of n tiles, for `n` tokens and blocks 0 .. n_blocks - 1, counted from the pointers given:
 * acc = fma(p_b, xs * ws, acc), blocks ascending. */
typedef struct pl_simd_few {
    const uint8_t *w[PL_SIMD_IN_FLIGHT];  /* tile blocks, one behind the other (ops/tile.h) */
    const uint8_t *gs[PL_SIMD_IN_FLIGHT]; /* FP4: its scales, [blocks][4][16] e8m0 */
    const float *ws[PL_SIMD_IN_FLIGHT];   /* [blocks] weight scale of a block */
    const float *x;                       /* [blocks][tokens][x_words] */
    const float *xs;                      /* [blocks][tokens] */
    float *acc;                           /* [tiles][tokens][16] */
    int64_t n_blocks;
    /* Kernels for exact groups: [blocks][4], 0 where the chain has to run, else what prepare_exact gave, and what it
     * made (simd/fp4_group.h). */
    const uint8_t *digits;
    const struct pl_fp4_group *group;
} pl_simd_few;
typedef void pl_simd_few_fn(const pl_simd_few *a);

/* 32 codes of a group that permits it (quant.h), prepared for integers; returns the digits that they need, 2 or 3. */
typedef int pl_simd_prepare_exact_fn(const uint8_t *codes, struct pl_fp4_group *out);

/* One block of one or two tiles, expanded, for `n` tokens. */
typedef struct pl_simd_panel {
    const float *w[PL_SIMD_PANEL_TILES];  /* what `expand` made */
    const float *gs[PL_SIMD_PANEL_TILES]; /* FP4: [4][16] */
    float ws[PL_SIMD_PANEL_TILES];
    const float *x;  /* [tokens][x_words] */
    const float *xs; /* [tokens] */
    float *acc;      /* token t's sums at acc + t * acc_stride, 16 of each tile */
    int64_t acc_stride;
} pl_simd_panel;
typedef void pl_simd_panel_fn(const pl_simd_panel *a);

/* One kind of product: storage of the weights and of the inputs. */
typedef struct pl_simd_kind {
    bool keeps_denormals; /* DAZ off inside */
    int few;              /* tokens that the first form takes, 1 .. PL_SIMD_FEW */
    int group;            /* tokens that a panel kernel takes, 1 .. PL_SIMD_GROUP */
    int panel_tiles;      /* tiles that it takes, 1 .. PL_SIMD_PANEL_TILES */
    int x_words; /* floats that 128 prepared inputs take: 128, or 64 that hold bf16 pairs */
    /* 128 e4m3 codes or bf16 numbers to `x_words` words. */
    void (*prepare)(const void *x, float *out);
    /* By number of tokens - 1 and tiles - 1; NULL where that many tiles are not taken at once, one always is. */
    pl_simd_few_fn *few_tokens[PL_SIMD_FEW][PL_SIMD_IN_FLIGHT];
    /* FP4: kernels for one token of which some groups are exact, by tiles - 1 as few_tokens; NULL: there is none. */
    pl_simd_few_fn *exact_token[PL_SIMD_IN_FLIGHT];
    pl_simd_prepare_exact_fn *prepare_exact;
    /* A block of a tile to at most 128 x 16 floats, FP4's group scales (else NULL) to floats. */
    void (*expand)(const uint8_t *w, const uint8_t *gs, float *out, float *gs_out);
    /* By number of tokens - 1 and tiles - 1. */
    pl_simd_panel_fn *panel[PL_SIMD_GROUP][PL_SIMD_PANEL_TILES];
    pl_linear_fn *scalar; /* for tiles with NaN codes */
} pl_simd_kind;

/* The operator: units begin .. end of the job by kernels of `kind`. */
void pl__simd_linear(const pl_simd_kind *kind, const pl_op_env *env, const pl_linear_job *job,
                     int64_t begin, int64_t end);

/* Bytes of scratch; constant up to K = 12,500 or so, where it is PL_SIMD_SCRATCH_BYTES at most. */
enum { PL_SIMD_SCRATCH_BYTES = 272 * 1024 };
uint64_t pl__simd_linear_scratch_bytes(int64_t max_k);

#endif
