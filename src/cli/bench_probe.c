/* Limits of this machine: how fast memory is read, how many multiply-adds there are.
 *
 * Multiply-adds are those that the level's kernels are made of: fused ones of its widest registers, independent
 * chains in registers, enough of them to hide their latency. Bandwidth does not depend on the level: 256-bit
 * loads with prefetch where the processor has them. Functions carry their own target, since this
 * file belongs to no level. */
#include <immintrin.h>

#include "cli/bench.h"

enum {
    TILES_PER_WORKER = 4,
    CHAIN_ROUNDS = 100000,
    READ_BYTES = 16 << 20, /* of a tile */
    PREFETCH_BYTES = 2048,
    SAMPLES = 3,
};

static float chain_sse2(float x)
{
    __m128 s[8], a = _mm_set1_ps(x), c = _mm_set1_ps(1 - x);

    for (int i = 0; i < 8; i++)
        s[i] = _mm_set1_ps((float)i);
    for (int r = 0; r < CHAIN_ROUNDS; r++)
        for (int i = 0; i < 8; i++)
            s[i] = _mm_add_ps(_mm_mul_ps(s[i], a), c);
    for (int i = 1; i < 8; i++)
        s[0] = _mm_add_ps(s[0], s[i]);
    return _mm_cvtss_f32(s[0]);
}

__attribute__((target("avx2,fma"))) static float chain_avx2(float x)
{
    __m256 s[10], a = _mm256_set1_ps(x), c = _mm256_set1_ps(1 - x);

    for (int i = 0; i < 10; i++)
        s[i] = _mm256_set1_ps((float)i);
    for (int r = 0; r < CHAIN_ROUNDS; r++)
        for (int i = 0; i < 10; i++)
            s[i] = _mm256_fmadd_ps(s[i], a, c);
    for (int i = 1; i < 10; i++)
        s[0] = _mm256_add_ps(s[0], s[i]);
    return _mm256_cvtss_f32(s[0]);
}

__attribute__((target("avx512f"))) static float chain_avx512(float x)
{
    __m512 s[16], a = _mm512_set1_ps(x), c = _mm512_set1_ps(1 - x);

    for (int i = 0; i < 16; i++)
        s[i] = _mm512_set1_ps((float)i);
    for (int r = 0; r < CHAIN_ROUNDS; r++)
        for (int i = 0; i < 16; i++)
            s[i] = _mm512_fmadd_ps(s[i], a, c);
    for (int i = 1; i < 16; i++)
        s[0] = _mm512_add_ps(s[0], s[i]);
    return _mm512_cvtss_f32(s[0]);
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static float chain_bf16(float x)
{
    __m512 s[16];
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(x), _mm512_set1_ps(1 - x));

    for (int i = 0; i < 16; i++)
        s[i] = _mm512_set1_ps((float)i);
    for (int r = 0; r < CHAIN_ROUNDS; r++)
        for (int i = 0; i < 16; i++)
            s[i] = _mm512_dpbf16_ps(s[i], a, a);
    for (int i = 1; i < 16; i++)
        s[0] = _mm512_add_ps(s[0], s[i]);
    return _mm512_cvtss_f32(s[0]);
}

struct chain {
    float (*run)(float x);
    double flops;
};

static struct chain chain_of(pl_level level, pl_bench_limit limit)
{
    switch (level) {
    case PL_LEVEL_AVX2:
        return (struct chain){chain_avx2, 2.0 * 8 * 10 * CHAIN_ROUNDS};
    case PL_LEVEL_AVX512BF16:
        if (limit == PL_BENCH_BF16)
            return (struct chain){chain_bf16, 2.0 * 32 * 16 * CHAIN_ROUNDS};
        return (struct chain){chain_avx512, 2.0 * 16 * 16 * CHAIN_ROUNDS};
    case PL_LEVEL_AVX512:
        return (struct chain){chain_avx512, 2.0 * 16 * 16 * CHAIN_ROUNDS};
    default:
        return (struct chain){chain_sse2, 2.0 * 4 * 8 * CHAIN_ROUNDS};
    }
}

static int read_sse2(const uint8_t *from)
{
    __m128i s[4] = {_mm_setzero_si128()};

    for (const uint8_t *p = from; p < from + READ_BYTES; p += 64) {
        _mm_prefetch((const char *)p + PREFETCH_BYTES, _MM_HINT_T0);
        for (int i = 0; i < 4; i++)
            s[i] = _mm_xor_si128(s[i], _mm_load_si128((const __m128i *)p + i));
    }
    return _mm_cvtsi128_si32(_mm_xor_si128(_mm_xor_si128(s[0], s[1]), _mm_xor_si128(s[2], s[3])));
}

__attribute__((target("avx2"))) static int read_avx2(const uint8_t *from)
{
    __m256i s[4] = {_mm256_setzero_si256()};

    for (const uint8_t *p = from; p < from + READ_BYTES; p += 128) {
        _mm_prefetch((const char *)p + PREFETCH_BYTES, _MM_HINT_T0);
        _mm_prefetch((const char *)p + PREFETCH_BYTES + 64, _MM_HINT_T0);
        for (int i = 0; i < 4; i++)
            s[i] = _mm256_xor_si256(s[i], _mm256_load_si256((const __m256i *)p + i));
    }
    s[0] = _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3]));
    return _mm_cvtsi128_si32(_mm256_castsi256_si128(s[0]));
}

struct probe {
    pl_bench *b;
    struct chain chain;
    bool reads, has_avx2;
    int64_t first; /* tile in the store */
    volatile float sink;
};

static void probe_tile(void *user, int64_t tile, int worker)
{
    struct probe *p = user;
    volatile float x = 0.999f;

    if (p->reads) {
        const int64_t n = (int64_t)(p->b->store.bytes / READ_BYTES);
        const uint8_t *from = p->b->store.base + (p->first + tile) % n * READ_BYTES;
        volatile int seen = p->has_avx2 ? read_avx2(from) : read_sse2(from);
        (void)seen;
    } else {
        volatile float seen = p->chain.run(x);
        (void)seen;
    }
}

static void probe_once(void *user, int64_t round)
{
    struct probe *p = user;
    const int64_t tiles = (int64_t)TILES_PER_WORKER * pl_pool_n_workers(p->b->exec.pool);

    p->first += tiles;
    pl_pool_run(p->b->exec.pool, tiles, probe_tile, p);
}

static void probe_alone(void *user, int64_t round)
{
    struct probe *p = user;

    p->first += TILES_PER_WORKER;
    for (int64_t t = 0; t < TILES_PER_WORKER; t++)
        probe_tile(p, t, 0);
}

double pl_bench_probe(pl_bench *b, const pl_bench_clock *clock, pl_bench_limit limit,
                      bool one_thread, int64_t round)
{
    const int tiles = TILES_PER_WORKER * (one_thread ? 1 : pl_pool_n_workers(b->exec.pool));
    struct probe p = {.b = b, .chain = chain_of(b->level, limit), .reads = limit == PL_BENCH_READ};
    double best[SAMPLES];
    pl_cpu cpu;

    pl_cpu_detect(&cpu, NULL);
    p.has_avx2 = pl_cpu_has(&cpu, PL_CPU_AVX2);
    p.first = round * tiles;
    for (int i = 0; i < SAMPLES; i++) {
        const double begin = clock->now_ns(clock->user);
        if (one_thread)
            probe_alone(&p, 0);
        else
            probe_once(&p, 0);
        best[i] = (p.reads ? (double)READ_BYTES : p.chain.flops) * tiles /
                  (clock->now_ns(clock->user) - begin);
    }
    return pl_bench_median(best, SAMPLES);
}
