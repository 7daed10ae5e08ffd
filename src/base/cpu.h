/* What this processor can execute, and which level of kernels that allows.
 *
 * A feature counts only where the processor has it and the operating system saves its registers: both CPUID
 * and XCR0 are asked. Compiler helpers are not used, since they know fewer features than we need. */
#ifndef PL_BASE_CPU_H
#define PL_BASE_CPU_H

#include <stdbool.h>

#include "plimsoll/status.h"

/* X(symbol, name, CPUID leaf, subleaf, register 0..3 = eax..edx, bit, registers that must be saved) */
#define PL_CPU_FEATURES(X)                               \
    X(SSE2, "sse2", 1, 0, 3, 26, NONE)                   \
    X(AVX, "avx", 1, 0, 2, 28, YMM)                      \
    X(FMA, "fma", 1, 0, 2, 12, YMM)                      \
    X(F16C, "f16c", 1, 0, 2, 29, YMM)                    \
    X(MOVBE, "movbe", 1, 0, 2, 22, NONE)                 \
    X(LZCNT, "lzcnt", 0x80000001, 0, 2, 5, NONE)         \
    X(BMI1, "bmi1", 7, 0, 1, 3, NONE)                    \
    X(BMI2, "bmi2", 7, 0, 1, 8, NONE)                    \
    X(AVX2, "avx2", 7, 0, 1, 5, YMM)                     \
    X(AVX512F, "avx512f", 7, 0, 1, 16, ZMM)              \
    X(AVX512DQ, "avx512dq", 7, 0, 1, 17, ZMM)            \
    X(AVX512CD, "avx512cd", 7, 0, 1, 28, ZMM)            \
    X(AVX512BW, "avx512bw", 7, 0, 1, 30, ZMM)            \
    X(AVX512VL, "avx512vl", 7, 0, 1, 31, ZMM)            \
    X(AVX512_VBMI, "avx512_vbmi", 7, 0, 2, 1, ZMM)       \
    X(AVX512_VNNI, "avx512_vnni", 7, 0, 2, 11, ZMM)      \
    X(AVX512_BF16, "avx512_bf16", 7, 1, 0, 5, ZMM)       \
    X(AVX512_FP16, "avx512_fp16", 7, 0, 3, 23, ZMM)      \
    X(AVX_VNNI, "avx_vnni", 7, 1, 0, 4, YMM)             \
    X(AVX_VNNI_INT8, "avx_vnni_int8", 7, 1, 3, 4, YMM)   \
    X(AVX_NE_CONVERT, "avx_ne_convert", 7, 1, 3, 5, YMM) \
    X(AMX_TILE, "amx_tile", 7, 0, 3, 24, TILE)           \
    X(AMX_INT8, "amx_int8", 7, 0, 3, 25, TILE)           \
    X(AMX_BF16, "amx_bf16", 7, 0, 3, 22, TILE)           \
    X(AMX_FP16, "amx_fp16", 7, 1, 0, 21, TILE)

typedef enum pl_cpu_feature {
#define PL_CPU_FEATURE_ENUM(symbol, ...) PL_CPU_##symbol,
    PL_CPU_FEATURES(PL_CPU_FEATURE_ENUM)
#undef PL_CPU_FEATURE_ENUM
        PL_CPU_FEATURE_COUNT,
} pl_cpu_feature;

/* Sets of kernels, each a superset of the one before; f64 stands apart: it is the tests' reference. */
typedef enum pl_level {
    PL_LEVEL_SCALAR,     /* x86-64 as it always was */
    PL_LEVEL_AVX2,       /* AVX2 FMA F16C BMI1 BMI2 LZCNT MOVBE */
    PL_LEVEL_AVX512,     /* F BW VL DQ CD */
    PL_LEVEL_AVX512BF16, /* BF16 VNNI */
    PL_LEVEL_F64,
    PL_LEVEL_COUNT,
} pl_level;

typedef struct pl_cpu {
    char vendor[13]; /* "GenuineIntel"; "" where CPUID says nothing */
    char name[49];   /* marketing name, printable, without blanks at either end; may be "" */
    int family, model, stepping;
    uint64_t features; /* bit 1 << pl_cpu_feature: usable */
    uint64_t
        unsaved; /* the processor has it, but the system or hypervisor does not save its registers */
    pl_level level; /* highest that all features allow; never F64 */
} pl_cpu;

typedef struct pl_cpuid_words {
    uint32_t r[4]; /* eax, ebx, ecx, edx */
} pl_cpuid_words;

/* Where CPUID is read from; tests put recorded processors here. */
typedef struct pl_cpu_source {
    pl_cpuid_words (*cpuid)(void *user, uint32_t leaf, uint32_t subleaf);
    uint64_t (*xcr0)(void *user); /* called only where CPUID says OSXSAVE */
    void *user;
} pl_cpu_source;

/* Fills *cpu; NULL reads this processor. */
void pl_cpu_detect(pl_cpu *cpu, const pl_cpu_source *source);

bool pl_cpu_has(const pl_cpu *cpu, pl_cpu_feature feature);
const char *pl_cpu_feature_name(pl_cpu_feature feature);

/* Bits of the features that `level` needs, those of the levels below it included. */
uint64_t pl_level_features(pl_level level);

/* "scalar", "avx2", "avx512", "avx512bf16", "f64". */
const char *pl_level_name(pl_level level);

/* INVALID for an unknown name, with the known ones in the text. */
PL_MUST_CHECK pl_status pl_level_parse(const char *name, pl_level *level, pl_error *err);

/* Bits 1 << pl_level of the levels that this build has kernels for; scalar and f64 always. */
unsigned pl_level_built(void);

/* Writes what `cpu` lacks for `level`: "avx512f, avx512bw", or with "(not saved by the system)" behind a
 * name; "" where nothing is missing. Returns `text`. */
const char *pl_level_missing(const pl_cpu *cpu, pl_level level, char *text, size_t size);

#endif
