/* Stands for the compiler's header where a level's kernels are compiled for processors without it: SIMDe under the
 * names of the intrinsics, and here what SIMDe lacks or does with other bits.
 *
 *     lacking      _mm512_testn_epi16_mask, _mm512_cmpeq_epi16_mask, conversions of integers, _mm512_madd_epi16
 *     other bits   _mm512_fmadd_ps rounds twice; _mm512_dpbf16_ps sums in another order
 *
 * Both are written out as docs/NUMERICS.md 1 has them. */
#ifndef PL_TESTS_KERNELS_SIMDE_IMMINTRIN_H
#define PL_TESTS_KERNELS_SIMDE_IMMINTRIN_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <string.h>

#include "base/math.h"
#include "base/numfmt.h"

#define __mmask16 simde__mmask16
#define __mmask32 simde__mmask32

#define PL_EMULATED_FN static inline __attribute__((unused))

/* The lanes of a register. */
typedef struct pl__lanes {
    union {
        float f32[16];
        uint32_t u32[16];
        int32_t i32[16];
        uint16_t u16[32];
        int16_t i16[32];
        uint8_t u8[64];
    };
} pl__lanes;

#define PL_LANES(v)                      \
    ({                                   \
        pl__lanes lanes_;                \
        __typeof__(v) v_ = (v);          \
        memcpy(&lanes_, &v_, sizeof v_); \
        lanes_;                          \
    })

PL_EMULATED_FN simde__m512i pl__to_m512i(pl__lanes l)
{
    simde__m512i v;

    memcpy(&v, &l, sizeof v);
    return v;
}

PL_EMULATED_FN simde__m512 pl__to_m512(pl__lanes l)
{
    simde__m512 v;

    memcpy(&v, &l, sizeof v);
    return v;
}

PL_EMULATED_FN simde__m512 pl__fmadd_ps(simde__m512 a, simde__m512 b, simde__m512 c)
{
    pl__lanes x = PL_LANES(a), y = PL_LANES(b), z = PL_LANES(c);

    for (int i = 0; i < 16; i++)
        z.f32[i] = pl_fma_f32(x.f32[i], y.f32[i], z.f32[i]);
    return pl__to_m512(z);
}
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps pl__fmadd_ps

/* Odd first, each product and sum rounded once; flushes by itself, whatever MXCSR says. */
PL_EMULATED_FN simde__m512 pl__dpbf16_ps(simde__m512 c, pl__lanes a, pl__lanes b)
{
    pl__lanes z = PL_LANES(c);

    for (int i = 0; i < 16; i++)
        for (int odd = 1; odd >= 0; odd--)
            z.f32[i] = pl_fma_narrow(pl_bf16_to_f32(a.u16[2 * i + odd]),
                                     pl_bf16_to_f32(b.u16[2 * i + odd]), z.f32[i]);
    return pl__to_m512(z);
}
#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps(c, a, b) pl__dpbf16_ps((c), PL_LANES(a), PL_LANES(b))

PL_EMULATED_FN simde__mmask32 pl__testn_epi16_mask(simde__m512i a, simde__m512i b)
{
    pl__lanes x = PL_LANES(a), y = PL_LANES(b);
    simde__mmask32 k = 0;

    for (int i = 0; i < 32; i++)
        k |= (simde__mmask32)((x.u16[i] & y.u16[i]) == 0) << i;
    return k;
}
#undef _mm512_testn_epi16_mask
#define _mm512_testn_epi16_mask pl__testn_epi16_mask

PL_EMULATED_FN simde__mmask32 pl__cmpeq_epi16_mask(simde__m512i a, simde__m512i b)
{
    pl__lanes x = PL_LANES(a), y = PL_LANES(b);
    simde__mmask32 k = 0;

    for (int i = 0; i < 32; i++)
        k |= (simde__mmask32)(x.u16[i] == y.u16[i]) << i;
    return k;
}
#undef _mm512_cmpeq_epi16_mask
#define _mm512_cmpeq_epi16_mask pl__cmpeq_epi16_mask

/* n integers, each of `from` bytes, widened with zeros to `to` bytes. */
PL_EMULATED_FN simde__m512i pl__widen(pl__lanes v, int n, int from, int to)
{
    pl__lanes r = {0};

    for (int i = 0; i < n; i++)
        memcpy(r.u8 + i * to, v.u8 + i * from, (size_t)from);
    return pl__to_m512i(r);
}
#undef _mm512_cvtepu8_epi16
#define _mm512_cvtepu8_epi16(v) pl__widen(PL_LANES(v), 32, 1, 2)
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32(v) pl__widen(PL_LANES(v), 16, 1, 4)
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(v) pl__widen(PL_LANES(v), 16, 2, 4)

/* Sums of neighbours, in 32 bits. */
PL_EMULATED_FN simde__m512i pl__madd_epi16(simde__m512i a, simde__m512i b)
{
    pl__lanes x = PL_LANES(a), y = PL_LANES(b), z;

    for (int i = 0; i < 16; i++)
        z.i32[i] = x.i16[2 * i] * y.i16[2 * i] + x.i16[2 * i + 1] * y.i16[2 * i + 1];
    return pl__to_m512i(z);
}
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 pl__madd_epi16

PL_EMULATED_FN simde__m512 pl__cvtepi32_ps(simde__m512i a)
{
    pl__lanes x = PL_LANES(a);

    for (int i = 0; i < 16; i++)
        x.f32[i] = (float)x.i32[i];
    return pl__to_m512(x);
}
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps pl__cvtepi32_ps

#endif
