/* CPUID and XGETBV, read into a set of features, and the ladder of levels built on it. */
#include "base/cpu.h"

#include <cpuid.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum { STATE_NONE, STATE_YMM, STATE_ZMM, STATE_TILE };

/* Bits of XCR0. Each set of registers needs all of its parts saved. */
static const uint64_t state_bits[] = {
    [STATE_NONE] = 0,
    [STATE_YMM] = 0x6,      /* XMM, upper YMM */
    [STATE_ZMM] = 0xE6,     /* those, opmask, upper ZMM, ZMM16..31 */
    [STATE_TILE] = 0x60000, /* tile configuration, tile data */
};

static const struct feature {
    const char *name;
    uint32_t leaf, subleaf;
    uint8_t reg, bit, state;
} features[PL_CPU_FEATURE_COUNT] = {
#define PL_CPU_FEATURE_ROW(symbol, name, leaf, subleaf, reg, bit, state) \
    [PL_CPU_##symbol] = {name, leaf, subleaf, reg, bit, STATE_##state},
    PL_CPU_FEATURES(PL_CPU_FEATURE_ROW)
#undef PL_CPU_FEATURE_ROW
};

#define BIT(symbol) (1ull << PL_CPU_##symbol)

static const struct {
    const char *name;
    uint64_t features;
} levels[PL_LEVEL_COUNT] = {
    [PL_LEVEL_SCALAR] = {"scalar", BIT(SSE2)},
    [PL_LEVEL_AVX2] = {"avx2", BIT(AVX) | BIT(AVX2) | BIT(FMA) | BIT(F16C) | BIT(BMI1) | BIT(BMI2) |
                                   BIT(LZCNT) | BIT(MOVBE)},
    [PL_LEVEL_AVX512] = {"avx512", BIT(AVX512F) | BIT(AVX512BW) | BIT(AVX512VL) | BIT(AVX512DQ) |
                                       BIT(AVX512CD)},
    [PL_LEVEL_AVX512BF16] = {"avx512bf16", BIT(AVX512_BF16) | BIT(AVX512_VNNI)},
    [PL_LEVEL_F64] = {"f64", BIT(SSE2)},
};

static pl_cpuid_words this_cpuid(void *user, uint32_t leaf, uint32_t subleaf)
{
    pl_cpuid_words w = {{0, 0, 0, 0}};

    __cpuid_count(leaf, subleaf, w.r[0], w.r[1], w.r[2], w.r[3]);
    return w;
}

static uint64_t this_xcr0(void *user)
{
    uint32_t low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static const pl_cpu_source this_cpu = {this_cpuid, this_xcr0, NULL};

/* A leaf above the highest one answers with another leaf's words on Intel: zeros instead. */
static pl_cpuid_words read_leaf(const pl_cpu_source *s, uint32_t leaf, uint32_t subleaf)
{
    uint32_t range = leaf & 0x80000000u;
    uint32_t max = s->cpuid(s->user, range, 0).r[0];

    if (max < leaf || (max & 0x80000000u) != range ||
        (leaf == 7 && subleaf > 0 && s->cpuid(s->user, 7, 0).r[0] < subleaf))
        return (pl_cpuid_words){{0, 0, 0, 0}};
    return s->cpuid(s->user, leaf, subleaf);
}

static void read_names(pl_cpu *cpu, const pl_cpu_source *s)
{
    pl_cpuid_words w = read_leaf(s, 0, 0);
    char name[49] = "", *p = name;
    size_t n;

    memcpy(cpu->vendor, &w.r[1], 4);
    memcpy(cpu->vendor + 4, &w.r[3], 4);
    memcpy(cpu->vendor + 8, &w.r[2], 4);
    for (uint32_t i = 0; i < 3; i++) {
        w = read_leaf(s, 0x80000002u + i, 0);
        memcpy(name + 16 * i, w.r, 16);
    }
    for (char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7E)
            *c = '?';
    p += strspn(p, " ");
    for (n = strlen(p); n > 0 && p[n - 1] == ' '; n--)
        p[n - 1] = 0;
    memcpy(cpu->name, p, n + 1);
}

/* The extended fields count for base family 15, and the extended model for family 6 too. */
static void read_signature(pl_cpu *cpu, const pl_cpu_source *s)
{
    uint32_t eax = read_leaf(s, 1, 0).r[0], family = eax >> 8 & 15, model = eax >> 4 & 15;

    if (family == 6 || family == 15)
        model |= (eax >> 16 & 15) << 4;
    if (family == 15)
        family += eax >> 20 & 255;
    cpu->family = (int)family;
    cpu->model = (int)model;
    cpu->stepping = (int)(eax & 15);
}

void pl_cpu_detect(pl_cpu *cpu, const pl_cpu_source *source)
{
    const pl_cpu_source *s = source ? source : &this_cpu;
    bool osxsave = read_leaf(s, 1, 0).r[2] >> 27 & 1;
    uint64_t xcr0 = osxsave ? s->xcr0(s->user) : 0;

    memset(cpu, 0, sizeof *cpu);
    read_names(cpu, s);
    read_signature(cpu, s);
    for (int i = 0; i < PL_CPU_FEATURE_COUNT; i++) {
        const struct feature *f = &features[i];
        uint64_t need = state_bits[f->state];
        if (!(read_leaf(s, f->leaf, f->subleaf).r[f->reg] >> f->bit & 1))
            continue;
        if ((xcr0 & need) == need)
            cpu->features |= 1ull << i;
        else
            cpu->unsaved |= 1ull << i;
    }
    cpu->level = PL_LEVEL_SCALAR;
    for (pl_level l = PL_LEVEL_AVX2; l <= PL_LEVEL_AVX512BF16; l++) {
        uint64_t need = pl_level_features(l);
        if ((cpu->features & need) == need)
            cpu->level = l;
    }
}

bool pl_cpu_has(const pl_cpu *cpu, pl_cpu_feature feature)
{
    return cpu->features >> feature & 1;
}

const char *pl_cpu_feature_name(pl_cpu_feature feature)
{
    return features[feature].name;
}

uint64_t pl_level_features(pl_level level)
{
    uint64_t need = levels[level].features;

    if (level == PL_LEVEL_F64)
        return need;
    for (int l = 0; l < (int)level; l++)
        need |= levels[l].features;
    return need;
}

const char *pl_level_name(pl_level level)
{
    return levels[level].name;
}

pl_status pl_level_parse(const char *name, pl_level *level, pl_error *err)
{
    for (int l = 0; l < PL_LEVEL_COUNT; l++) {
        if (strcmp(name, levels[l].name) == 0) {
            *level = (pl_level)l;
            return PL_OK;
        }
    }
    return pl_error_set(
        err, PL_ERR_INVALID,
        "level: unknown name (got '%s', want scalar, avx2, avx512, avx512bf16 or f64)", name);
}

unsigned pl_level_built(void)
{
    unsigned built = 1u << PL_LEVEL_SCALAR | 1u << PL_LEVEL_F64;

#ifdef PL_HAVE_AVX2
    built |= 1u << PL_LEVEL_AVX2;
#endif
#ifdef PL_HAVE_AVX512
    built |= 1u << PL_LEVEL_AVX512;
#endif
#ifdef PL_HAVE_AVX512BF16
    built |= 1u << PL_LEVEL_AVX512BF16;
#endif
    return built;
}

const char *pl_level_missing(const pl_cpu *cpu, pl_level level, char *text, size_t size)
{
    uint64_t missing = pl_level_features(level) & ~cpu->features;
    size_t n = 0;

    text[0] = 0;
    for (int i = 0; i < PL_CPU_FEATURE_COUNT && n < size; i++)
        if (missing >> i & 1)
            n += (size_t)snprintf(text + n, size - n, "%s%s%s", n ? ", " : "", features[i].name,
                                  cpu->unsaved >> i & 1 ? " (not saved by the system)" : "");
    return text;
}
