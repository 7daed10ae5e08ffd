/* Tables by level, and their self-tests by name. A level stands in both only where the build has its kernels. */
#include "ops/level.h"

#include "ops/simd/selftest.h"

const pl_ops *pl_ops_at(pl_level level, pl_mode mode)
{
    switch (level) {
    case PL_LEVEL_SCALAR:
        return pl_ops_scalar();
    case PL_LEVEL_F64:
        return pl_ops_f64(mode);
#ifdef PL_HAVE_AVX2
    case PL_LEVEL_AVX2:
        return pl_ops_avx2();
#endif
#ifdef PL_HAVE_AVX512
    case PL_LEVEL_AVX512:
        return pl_ops_avx512();
    case PL_LEVEL_AVX512BF16:
        return pl_ops_avx512bf16();
#endif
    default:
        return NULL;
    }
}

pl_weight_layout pl_ops_layout(pl_level level)
{
    return level == PL_LEVEL_SCALAR || level == PL_LEVEL_F64 ? PL_WEIGHT_ROWS : PL_WEIGHT_TILES;
}

#define LINEAR_TESTS(of)                                                               \
    static pl_status of##_fp8(pl_error *err)                                           \
    {                                                                                  \
        return pl__simd_linear_selftest(pl_ops_##of(), PL_WEIGHT_FP8_F32, false, err); \
    }                                                                                  \
    static pl_status of##_fp8_a16(pl_error *err)                                       \
    {                                                                                  \
        return pl__simd_linear_selftest(pl_ops_##of(), PL_WEIGHT_FP8_E8M0, true, err); \
    }                                                                                  \
    static pl_status of##_fp4(pl_error *err)                                           \
    {                                                                                  \
        return pl__simd_linear_selftest(pl_ops_##of(), PL_WEIGHT_FP4, false, err);     \
    }                                                                                  \
    static pl_status of##_bf16(pl_error *err)                                          \
    {                                                                                  \
        return pl__simd_linear_selftest(pl_ops_##of(), PL_WEIGHT_BF16, false, err);    \
    }

#define LINEAR_ROWS(LEVEL, of)                                           \
    {.level = LEVEL, .name = "linear_fp8", .run = of##_fp8},             \
        {.level = LEVEL, .name = "linear_fp8_a16", .run = of##_fp8_a16}, \
        {.level = LEVEL, .name = "linear_fp4", .run = of##_fp4},         \
    {                                                                    \
        .level = LEVEL, .name = "linear_bf16", .run = of##_bf16          \
    }

#define ROWS_TEST(of, name, which)                                \
    static pl_status of##_##name(pl_error *err)                   \
    {                                                             \
        return pl__simd_rows_selftest(pl_ops_##of(), which, err); \
    }

#define ROWS_TESTS(of)                                \
    ROWS_TEST(of, attention, PL_SIMD_ATTENTION)       \
    ROWS_TEST(of, attention_varlen, PL_SIMD_VARLEN)   \
    ROWS_TEST(of, attention_sparse, PL_SIMD_SPARSE)   \
    ROWS_TEST(of, indexer, PL_SIMD_INDEXER)           \
    ROWS_TEST(of, hyper_connections, PL_SIMD_STREAMS) \
    ROWS_TEST(of, norm_rope, PL_SIMD_NORM)            \
    ROWS_TEST(of, experts, PL_SIMD_EXPERTS)           \
    ROWS_TEST(of, elementary, PL_SIMD_MAP)            \
    ROWS_TEST(of, compressor, PL_SIMD_COMPRESS)       \
    ROWS_TEST(of, caches, PL_SIMD_CACHE)

#define ROWS_ROWS(LEVEL, of)                                                          \
    {.level = LEVEL, .name = "attention", .run = of##_attention},                     \
        {.level = LEVEL, .name = "attention_varlen", .run = of##_attention_varlen},   \
        {.level = LEVEL, .name = "attention_sparse", .run = of##_attention_sparse},   \
        {.level = LEVEL, .name = "indexer", .run = of##_indexer},                     \
        {.level = LEVEL, .name = "hyper_connections", .run = of##_hyper_connections}, \
        {.level = LEVEL, .name = "norm_rope", .run = of##_norm_rope},                 \
        {.level = LEVEL, .name = "experts", .run = of##_experts},                     \
        {.level = LEVEL, .name = "elementary", .run = of##_elementary},               \
        {.level = LEVEL, .name = "compressor", .run = of##_compressor},               \
    {                                                                                 \
        .level = LEVEL, .name = "caches", .run = of##_caches                          \
    }

#ifdef PL_HAVE_AVX2
LINEAR_TESTS(avx2)
ROWS_TESTS(avx2)
#endif
#ifdef PL_HAVE_AVX512
LINEAR_TESTS(avx512)
LINEAR_TESTS(avx512bf16)
#endif

const pl_selftest pl_ops_selftests[] = {
#ifdef PL_HAVE_AVX2
    LINEAR_ROWS(PL_LEVEL_AVX2, avx2),
    ROWS_ROWS(PL_LEVEL_AVX2, avx2),
#endif
#ifdef PL_HAVE_AVX512
    LINEAR_ROWS(PL_LEVEL_AVX512, avx512),
    LINEAR_ROWS(PL_LEVEL_AVX512BF16, avx512bf16),
#endif
    {0},
};
