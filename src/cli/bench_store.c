/* What calls work on: a store that all matrices are taken from, and pieces that live for one row.
 *
 * The store is made so that every weight format reads sound values in it: of each 16 bits the high byte is that
 * of a bf16 around 1, and no byte is the NaN of e4m3. Kernels take the same time for all values but those. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/bench.h"

enum {
    FILL_BYTES = 1 << 20,
    MAX_K = 32768,
    MAX_KEYS = 1 << 15,
    MAX_TOPK = 1 << 12,
    MAX_EXPERTS = 1024,
};

int64_t pl_bench_word(const char *shape, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = shape; *at;) {
        const size_t n = strcspn(at, " ");

        if (n > length && strncmp(at, word, length) == 0 && at[length] >= '0' &&
            at[length] <= '9') {
            char *end;
            long long v = strtoll(at + length, &end, 10);
            return end == at + n ? v : 0;
        }
        at += n;
        at += strspn(at, " ");
    }
    return 0;
}

pl_status pl_bench_check_shape(const pl_bench_op *op, const char *shape, pl_error *err)
{
    char word[32];

    for (const char *at = op->words; *at;) {
        const size_t n = strcspn(at, " ");
        int64_t v;

        PL_CHECK(n < sizeof word, err, "bench ops: %s: a word is too long", op->name);
        memcpy(word, at, n);
        word[n] = 0;
        v = pl_bench_word(shape, word);
        PL_CHECK(v >= 1 && v <= 1 << 24, err,
                 "--shape: no shape of %s (got '%s', want numbers behind each of %s, as in '%s')",
                 op->name, shape, op->words, op->shapes[0]);
        at += n;
        at += strspn(at, " ");
    }
    return PL_OK;
}

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

struct filling {
    const pl_mem *memory;
    uint64_t mask, ones; /* of 8 bytes */
};

static void fill_share(void *user, int64_t tile, int worker)
{
    const struct filling *f = user;
    uint64_t begin = (uint64_t)tile * FILL_BYTES, end = begin + FILL_BYTES;

    end = end < f->memory->bytes ? end : f->memory->bytes;
    for (; begin + 8 <= end; begin += 8) {
        const uint64_t v = (mix(begin) & f->mask) | f->ones;
        memcpy(f->memory->base + begin, &v, sizeof v);
    }
}

static void fill(const pl_bench *b, const pl_mem *m, uint64_t mask, uint64_t ones)
{
    struct filling f = {m, mask, ones};

    pl_pool_run(b->exec.pool, (int64_t)((m->bytes + FILL_BYTES - 1) / FILL_BYTES), fill_share, &f);
}

pl_status pl_bench_open(pl_bench *b, pl_level level, pl_pool *pool, uint64_t store_bytes,
                        pl_error *err)
{
    const pl_ops_shape shape = {
        .max_k = MAX_K, .topk = MAX_TOPK, .max_keys = MAX_KEYS, .n_experts = MAX_EXPERTS};
    const pl_ops *ops = pl_ops_at(level, PL_MODE_REC);
    pl_arena arena;

    *b = (pl_bench){.level = level, .err = err};
    PL_CHECK(ops && level != PL_LEVEL_F64, err,
             "--level: %s is not there to be fast (want another one)", pl_level_name(level));
    b->exec.pool = pool;
    pl_arena_init_dry(&arena);
    pl_exec_layout(&b->exec, &arena, ops, pl_pool_n_workers(pool), &shape);
    PL_TRY(pl_mem_map(pl_arena_peak_bytes(&arena), PL_MEM_HUGE | PL_MEM_TOUCH, &b->work, err));
    pl_arena_init(&arena, b->work.base, b->work.bytes);
    pl_exec_layout(&b->exec, &arena, ops, pl_pool_n_workers(pool), &shape);
    PL_TRY(pl_mem_map(store_bytes, PL_MEM_HUGE, &b->store, err));
    PL_TRY(pl_mem_map(store_bytes / 8, PL_MEM_HUGE, &b->scales, err));
    fill(b, &b->store, 0x83BF83BF83BF83BFu, 0x3C003C003C003C00u);
    fill(b, &b->scales, 0x0303030303030303u, 0x7C7C7C7C7C7C7C7Cu);
    return PL_OK;
}

void pl_bench_release(pl_bench *b)
{
    while (b->n_pieces > 0)
        pl_mem_unmap(&b->piece[--b->n_pieces]);
    b->failed = false;
}

void pl_bench_close(pl_bench *b)
{
    pl_bench_release(b);
    pl_mem_unmap(&b->store);
    pl_mem_unmap(&b->scales);
    pl_mem_unmap(&b->work);
}

void *pl_bench_take(pl_bench *b, uint64_t bytes)
{
    pl_mem *m = &b->piece[b->n_pieces];

    if (b->failed)
        return NULL;
    if (b->n_pieces == PL_BENCH_MAX_PIECES) {
        b->failed = true;
        (void)pl_error_set(b->err, PL_ERR_INTERNAL, "bench: more than %d pieces for a row",
                           PL_BENCH_MAX_PIECES);
        return NULL;
    }
    if (pl_mem_map(bytes > 0 ? bytes : 1, PL_MEM_HUGE | PL_MEM_TOUCH, m, b->err) != PL_OK) {
        b->failed = true;
        return NULL;
    }
    b->n_pieces++;
    return m->base;
}

uint16_t *pl_bench_bf16(pl_bench *b, int64_t n)
{
    uint16_t *v = pl_bench_take(b, 2 * (uint64_t)n);

    for (int64_t i = 0; v && i < n; i++)
        v[i] = (uint16_t)((mix((uint64_t)i) & 0x83FF) | 0x3C00);
    return v;
}

float *pl_bench_f32(pl_bench *b, int64_t n)
{
    float *v = pl_bench_take(b, 4 * (uint64_t)n);

    for (int64_t i = 0; v && i < n; i++)
        v[i] = (float)(int64_t)(mix((uint64_t)i) >> 40) / 8388608.0f - 1.0f;
    return v;
}

uint8_t *pl_bench_scale_bytes(pl_bench *b, int64_t n)
{
    uint8_t *v = pl_bench_take(b, (uint64_t)n);

    for (int64_t i = 0; v && i < n; i++)
        v[i] = (uint8_t)(124 + (mix((uint64_t)i) & 3));
    return v;
}

static uint8_t *part_of(pl_bench *b, const pl_mem *m, uint64_t bytes, int64_t round)
{
    const uint64_t step = (bytes + 63) / 64 * 64;

    if (step > m->bytes) {
        b->failed = true;
        (void)pl_error_set(b->err, PL_ERR_INVALID,
                           "bench ops: a matrix is larger than the store (got %" PRIu64
                           " bytes, want at most %" PRIu64 ")",
                           bytes, m->bytes);
        return NULL;
    }
    return m->base + (uint64_t)round % (m->bytes / step) * step;
}

uint8_t *pl_bench_codes(pl_bench *b, uint64_t bytes, int64_t round)
{
    return part_of(b, &b->store, bytes, round);
}

uint8_t *pl_bench_scales(pl_bench *b, uint64_t bytes, int64_t round)
{
    return part_of(b, &b->scales, bytes, round);
}

pl_bench_limit pl_bench_product_limit(const pl_bench *b, int64_t m)
{
    if (m == 1)
        return PL_BENCH_READ;
    return b->level == PL_LEVEL_AVX512BF16 ? PL_BENCH_BF16 : PL_BENCH_FP32;
}
