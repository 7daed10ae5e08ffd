/* Whether vcvtph2ps keeps denormal halves while MXCSR has DAZ, as processors do: the instruction is defined to ignore
 * DAZ. Exit status 0: it does; 1: they come out as zeros, which is how qemu 7.2 emulates it; 77: no F16C here.
 * Kernels that widen halves or e4m3 codes this way (simd/vec.h) give wrong bits there, and the self-test at start has
 * to notice. Deliberately without anything of the library: this is about the machine. */
#include <immintrin.h>
#include <stdio.h>

enum { DAZ = 0x40 };

__attribute__((target("avx,f16c"), noinline)) static int keeps_denormals(void)
{
    static const volatile unsigned short halves[8] = {0x0001, 0x8001, 0x03FF, 0x0400};
    static const float want[4] = {0x1p-24f, -0x1p-24f, 0x1.ff8p-15f, 0x1p-14f};
    unsigned short in[8];
    float out[8];
    unsigned saved = _mm_getcsr();
    int same = 1;

    for (int i = 0; i < 8; i++)
        in[i] = halves[i];
    _mm_setcsr(saved | DAZ);
    _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)in)));
    _mm_setcsr(saved);
    for (int i = 0; i < 4; i++) {
        printf("half 0x%04x: got %a, want %a\n", in[i], (double)out[i], (double)want[i]);
        same &= out[i] == want[i];
    }
    return same;
}

int main(void)
{
    if (!__builtin_cpu_supports("avx") || !__builtin_cpu_supports("avx2"))
        return 77; /* gcc 12 and clang 14 do not both know "f16c"; what has AVX2 has it */
    return keeps_denormals() ? 0 : 1;
}
