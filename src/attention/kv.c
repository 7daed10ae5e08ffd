/* The checked entries of caches: insert, gather, pack, unpack. Rows are worked on by slot, so that a slot that is named
 * twice has the later row whatever the workers. Layouts: ops/cache_rows.h. */
#include "attention/kv.h"

#include <inttypes.h>
#include <string.h>

#include "attention/arrays.h"
#include "base/error.h"

pl_status pl__kv_rows(const char *name, const pl_kv_cache *c, pl_cache_rows *rows,
                      pl_extent *extent, pl_error *err)
{
    int64_t page, bytes;

    PL_CHECK((unsigned)c->format <= PL_KV_V32, err, "%s.format: unknown (got %d, want 0 .. 2)",
             name, (int)c->format);
    PL_CHECK(c->format == PL_KV_BF16 ? c->head_dim == 512 || c->head_dim == 576
                                     : c->head_dim == (c->format == PL_KV_V4 ? 512 : 576),
             err, "%s.head_dim: not that of the format (got %d, want %s)", name, c->head_dim,
             c->format == PL_KV_BF16 ? "512 or 576"
             : c->format == PL_KV_V4 ? "512"
                                     : "576");
    PL_CHECK(c->page_size >= 1, err, "%s.page_size: no page (got %d, want 1 or more)", name,
             c->page_size);
    PL_CHECK(c->n_pages >= 0, err, "%s.n_pages: negative (got %" PRId64 ", want 0 or more)", name,
             c->n_pages);
    page = c->page_size * pl_cache_row_bytes((pl_cache_format)c->format, c->head_dim);
    bytes = page;
    PL_CHECK(c->page_bytes == 0 || c->page_bytes >= page, err,
             "%s.page_bytes: pages overlap (got %" PRId64 ", want 0, or %" PRId64 " or more)", name,
             c->page_bytes, page);
    page = c->page_bytes ? c->page_bytes : page;
    PL_CHECK(c->format != PL_KV_BF16 || page % 2 == 0, err,
             "%s.page_bytes: not aligned (got %" PRId64 ", want a multiple of 2)", name, page);
    PL_CHECK(c->n_pages == 0 ||
                 (c->data && ((uintptr_t)c->data % 2 == 0 || c->format != PL_KV_BF16)),
             err, "%s.data: missing or not aligned (got %p, want %s)", name, c->data,
             c->format == PL_KV_BF16 ? "a multiple of 2" : "a pointer");
    PL_CHECK(pl__reach(c->n_pages, page, &bytes) &&
                 (uint64_t)bytes <= UINTPTR_MAX - (uintptr_t)c->data,
             err, "%s.n_pages: reaches past the end of memory (got %" PRId64 ", want fewer)", name,
             c->n_pages);
    *rows = (pl_cache_rows){(pl_cache_format)c->format, c->head_dim, c->data, page, c->page_size,
                            c->n_pages * c->page_size};
    *extent = pl__extent_of(name, c->n_pages ? c->data : NULL, bytes, 1);
    return PL_OK;
}

enum { ROW_STEPS = 1024 }; /* of a row, in multiply-adds or so */

typedef struct job {
    const pl_ops *ops;
    pl_cache_move_args move; /* x: not of parts */
    int64_t n, units;
    pl_kv_parts parts;
} job;

static pl_status check_job(const pl_ops_context *context, const pl_kv_cache *cache, int64_t n,
                           const int32_t *slots, job *j, pl_extent e[2], pl_error *err)
{
    PL_CHECK(context != NULL, err, "context: missing (got NULL, want one that was created)");
    PL_CHECK(cache != NULL, err, "cache: missing (got NULL, want a pointer)");
    PL_CHECK(n >= 0 && n <= INT32_MAX, err, "n: out of range (got %" PRId64 ", want 0 .. %d)", n,
             INT32_MAX);
    PL_TRY(pl__kv_rows("cache", cache, &j->move.rows, &e[0], err));
    PL_CHECK(n == 0 || (slots && (uintptr_t)slots % sizeof *slots == 0), err,
             "slots: missing or not aligned (got %p, want a multiple of 4)", (const void *)slots);
    for (int64_t i = 0; i < n; i++)
        PL_CHECK(slots[i] >= -1 && slots[i] < j->move.rows.n, err,
                 "slots[%" PRId64 "]: no such slot (got %d, want -1 .. %" PRId64 ")", i, slots[i],
                 j->move.rows.n - 1);
    e[1] = pl__extent_of("slots", slots, n, sizeof *slots);
    j->ops = context->ops;
    j->n = n;
    j->move.slots = slots;
    j->units = context->n_workers < n ? context->n_workers : n;
    return PL_OK;
}

/* Rows of bf16 numbers. */
static pl_status check_x(job *j, const uint16_t *x, int64_t stride, pl_extent *e, pl_error *err)
{
    int64_t dim = j->move.rows.dim, n = dim, bytes = 0;

    PL_CHECK(j->n == 0 || (x && (uintptr_t)x % sizeof *x == 0), err,
             "x: missing or not aligned (got %p, want a multiple of 2)", (const void *)x);
    PL_CHECK(j->n < 2 || stride >= dim, err,
             "x_stride: rows overlap (got %" PRId64 ", want %" PRId64 " or more)", stride, dim);
    PL_CHECK(pl__reach(j->n, stride, &n) && !__builtin_mul_overflow(n, 2, &bytes) &&
                 (uint64_t)bytes <= UINTPTR_MAX - (uintptr_t)x,
             err, "x_stride: too large (got %" PRId64 ", want less)", stride);
    *e = pl__extent_of("x", j->n ? x : NULL, bytes, 1);
    j->move.x = (uint16_t *)(uintptr_t)x;
    j->move.x_stride = stride;
    return PL_OK;
}

static pl_status check_parts(job *j, const pl_kv_parts *p, pl_extent e[3], pl_error *err)
{
    const pl_cache_format format = j->move.rows.format;
    const int64_t coded = pl_cache_coded_dims(format);

    PL_CHECK(coded > 0, err, "cache.format: has no parts (got %d, want 1 or 2)", (int)format);
    PL_CHECK(p != NULL, err, "parts: missing (got NULL, want a pointer)");
    PL_CHECK(j->n == 0 || (p->codes && p->scales && p->rope), err,
             "parts: an array is missing (got codes %p, scales %p, rope %p, want three pointers)",
             (void *)p->codes, (void *)p->scales, (void *)p->rope);
    e[0] = pl__extent_of("parts.codes", p->codes, j->n * coded, 1);
    e[1] = pl__extent_of("parts.scales", p->scales, j->n * pl_cache_scale_bytes(format), 1);
    e[2] = pl__extent_of("parts.rope", p->rope, j->n * PL_ROPE_DIM, sizeof *p->rope);
    j->parts = *p;
    return PL_OK;
}

/* The unit that a slot belongs to: all rows for one slot go to one, in the order of the list. */
static int64_t unit_of(const job *j, int32_t slot)
{
    return (int64_t)((uint64_t)((uint32_t)slot * 2654435761u) * (uint64_t)j->units >> 32);
}

static void insert_unit(void *user, int64_t unit, int worker)
{
    const job *j = user;
    const pl_op_env env = {.mode = PL_MODE_REC};

    for (int64_t i = 0; i < j->n; i++)
        if (j->move.slots[i] >= 0 && unit_of(j, j->move.slots[i]) == unit)
            j->ops->cache_put(&env, &j->move, i, i + 1);
}

static void gather_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const job *j = args;
    const pl_op_env env = {.mode = PL_MODE_REC};

    j->ops->cache_get(&env, &j->move, begin, end);
}

static void copy(void *to, const void *from, int64_t bytes, bool in)
{
    memcpy(in ? to : (void *)(uintptr_t)from, in ? from : to, (size_t)bytes);
}

/* Row i of the parts into (in) or out of its slot. */
static void move_row(const job *j, int64_t i, bool in)
{
    int64_t coded = pl_cache_coded_dims(j->move.rows.format);
    int64_t scales = pl_cache_scale_bytes(j->move.rows.format);
    pl_cache_row row = pl_cache_row_at(&j->move.rows, j->move.slots[i]);

    copy(row.data, j->parts.codes + i * coded, coded, in);
    copy(row.scales, (uint8_t *)j->parts.scales + i * scales, scales, in);
    copy(row.tail, j->parts.rope + i * PL_ROPE_DIM, PL_ROPE_DIM * (int64_t)sizeof(uint16_t), in);
}

static void pack_unit(void *user, int64_t unit, int worker)
{
    const job *j = user;

    for (int64_t i = 0; i < j->n; i++)
        if (j->move.slots[i] >= 0 && unit_of(j, j->move.slots[i]) == unit)
            move_row(j, i, true);
}

static void unpack_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const job *j = args;
    int64_t coded = pl_cache_coded_dims(j->move.rows.format);
    int64_t scales = pl_cache_scale_bytes(j->move.rows.format);

    for (int64_t i = begin; i < end; i++) {
        if (j->move.slots[i] >= 0) {
            move_row(j, i, false);
            continue;
        }
        memset(j->parts.codes + i * coded, 0, (size_t)coded);
        memset((uint8_t *)j->parts.scales + i * scales, 0, (size_t)scales);
        memset(j->parts.rope + i * PL_ROPE_DIM, 0, PL_ROPE_DIM * sizeof(uint16_t));
    }
}

pl_status pl_kv_insert(pl_ops_context *context, const pl_kv_cache *cache, int64_t n,
                       const int32_t *slots, const uint16_t *x, int64_t x_stride, pl_error *err)
{
    pl_extent e[3];
    job j = {0};

    PL_TRY(check_job(context, cache, n, slots, &j, e, err));
    PL_TRY(check_x(&j, x, x_stride, &e[2], err));
    PL_TRY(pl__check_apart(&e[0], &e[1], err));
    PL_TRY(pl__check_apart(&e[0], &e[2], err));
    pl__context_run(context, j.units, insert_unit, &j);
    return PL_OK;
}

pl_status pl_kv_gather(pl_ops_context *context, const pl_kv_cache *cache, int64_t n,
                       const int32_t *slots, uint16_t *x, int64_t x_stride, pl_error *err)
{
    pl_extent e[3];
    job j = {0};

    PL_TRY(check_job(context, cache, n, slots, &j, e, err));
    PL_TRY(check_x(&j, x, x_stride, &e[2], err));
    PL_TRY(pl__check_apart(&e[2], &e[0], err));
    PL_TRY(pl__check_apart(&e[2], &e[1], err));
    pl__context_rows(context, n, ROW_STEPS, gather_rows, &j);
    return PL_OK;
}

pl_status pl_kv_pack(pl_ops_context *context, const pl_kv_cache *cache, int64_t n,
                     const int32_t *slots, const pl_kv_parts *parts, pl_error *err)
{
    pl_extent e[5];
    job j = {0};

    PL_TRY(check_job(context, cache, n, slots, &j, e, err));
    PL_TRY(check_parts(&j, parts, &e[2], err));
    for (int i = 1; i < 5; i++)
        PL_TRY(pl__check_apart(&e[0], &e[i], err));
    pl__context_run(context, j.units, pack_unit, &j);
    return PL_OK;
}

pl_status pl_kv_unpack(pl_ops_context *context, const pl_kv_cache *cache, int64_t n,
                       const int32_t *slots, const pl_kv_parts *parts, pl_error *err)
{
    pl_extent e[5];
    job j = {0};

    PL_TRY(check_job(context, cache, n, slots, &j, e, err));
    PL_TRY(check_parts(&j, parts, &e[2], err));
    for (int i = 2; i < 5; i++)
        for (int k = 0; k < i; k++)
            PL_TRY(pl__check_apart(&e[i], &e[k], err));
    pl__context_rows(context, n, ROW_STEPS, unpack_rows, &j);
    return PL_OK;
}
