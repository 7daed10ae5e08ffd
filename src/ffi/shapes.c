/* The readers of shapes.h. They look at types, lengths and strides, never at what a tensor holds. */
#include "ffi/shapes.h"

#include <inttypes.h>

const pl_ffi_type pl__ffi_bf16 = {PL_DL_BFLOAT, 16}, pl__ffi_fp32 = {PL_DL_FLOAT, 32},
                  pl__ffi_int32 = {PL_DL_INT, 32}, pl__ffi_bytes = {PL_DL_UINT, 8};

enum { V4_ROW_BYTES = 584, V32_ROW_BYTES = 656 };

void pl__ffi_check_type(pl_ffi_call *c, const char *name, const pl_ffi_tensor *t, pl_ffi_type type,
                        const char *want)
{
    if (t->type_code != type.code || t->type_bits != type.bits)
        pl__ffi_fail(c, PL_FFI_TYPE_ERROR,
                     "%s: wrong element type (got code %d with %d bits, want %s)", name,
                     t->type_code, t->type_bits, want);
}

pl_ffi_tensor pl__ffi_rows(pl_ffi_call *c, const char *name, int n_dims, bool may_be_none)
{
    pl_ffi_tensor t = pl__ffi_tensor(c, name, n_dims, may_be_none);
    int last = t.n_dims - 1;

    if (c->failed || last < 0)
        return t;
    if (t.shape[last] > 1 && t.strides[last] != 1)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "%s: the last dimension has gaps (got a stride of %" PRId64 ", want 1)", name,
                     t.strides[last]);
    for (int i = 0; i <= last && !c->failed; i++)
        if (t.shape[i] > INT32_MAX)
            pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "%s: too long (got %" PRId64 ", want at most %d)",
                         name, t.shape[i], INT32_MAX);
    return t;
}

void pl__ffi_same(pl_ffi_call *c, const char *what, int64_t got, int64_t want)
{
    if (got != want)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "%s: lengths differ (got %" PRId64 ", want %" PRId64 ")", what, got, want);
}

int32_t pl__ffi_int32_of(pl_ffi_call *c, const char *name)
{
    int64_t v = pl__ffi_int(c, name);

    if (v != (int32_t)v)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "%s: out of range (got %" PRId64 ", want 32 bits)",
                     name, v);
    return (int32_t)v;
}

float *pl__ffi_stats(pl_ffi_call *c, const char *name, int64_t first, int64_t second)
{
    pl_ffi_tensor t = pl__ffi_tensor(c, name, 2, true);

    if (c->failed || !t.n_dims)
        return NULL;
    pl__ffi_check_type(c, name, &t, pl__ffi_fp32, "fp32");
    if (!c->failed && (t.shape[0] != first || t.shape[1] != second))
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "%s: wrong shape (got [%" PRId64 "][%" PRId64 "], want [%" PRId64 "][%" PRId64
                     "])",
                     name, t.shape[0], t.shape[1], first, second);
    if (!c->failed && ((t.shape[1] > 1 && t.strides[1] != 1) ||
                       (t.shape[0] > 1 && t.shape[1] && t.strides[0] != t.shape[1])))
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "%s: has gaps (got strides, want none)", name);
    return t.data;
}

static bool is_of(const pl_ffi_tensor *t, pl_ffi_type type)
{
    if (type.code == PL_DL_UINT && (t->type_code == PL_DL_E4M3 || t->type_code == PL_DL_E8M0))
        return t->type_bits == type.bits;
    return t->type_code == type.code && t->type_bits == type.bits;
}

void *pl__ffi_packed(pl_ffi_call *c, const char *name, pl_ffi_type type, int n_dims, int64_t *shape,
                     bool may_be_none)
{
    pl_ffi_tensor t = pl__ffi_rows(c, name, n_dims, may_be_none);
    int64_t stride = 1, n = 1;

    if (c->failed || !t.n_dims)
        return NULL;
    if (!is_of(&t, type))
        pl__ffi_fail(c, PL_FFI_TYPE_ERROR,
                     "%s: wrong element type (got code %d with %d bits, want %d with %d)", name,
                     t.type_code, t.type_bits, type.code, type.bits);
    for (int i = 0; i < n_dims && !c->failed; i++) {
        if (shape[i] >= 0 && t.shape[i] != shape[i])
            pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                         "%s: wrong length of dimension %d (got %" PRId64 ", want %" PRId64 ")",
                         name, i, t.shape[i], shape[i]);
        shape[i] = t.shape[i];
        n *= t.shape[i] != 0;
    }
    for (int i = n_dims - 1; i >= 0 && !c->failed && n; stride *= t.shape[i--])
        if (t.shape[i] > 1 && t.strides[i] != stride)
            pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                         "%s: has gaps (got a stride of %" PRId64 ", want %" PRId64 ")", name,
                         t.strides[i], stride);
    return t.data;
}

int pl__ffi_no_workspace(const char *name, const pl_ffi_any *args, int32_t n_args,
                         pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin(name, args, n_args, 1, result);

    (void)pl__ffi_opaque(&c, "context");
    if (!c.failed)
        *result = (pl_ffi_any){.type_index = PL_FFI_INT};
    return pl__ffi_end(&c);
}

/* From pages of rows to what pl_kv_cache can say; row and page strides in elements. */
static void place_rows(pl_ffi_call *c, const char *name, const pl_ffi_tensor *t, int64_t row_stride,
                       int64_t page_stride, pl_kv_cache *cache)
{
    int64_t row = t->shape[t->n_dims - 1], bytes = t->type_bits / 8;
    int64_t n_pages = cache->n_pages, page = cache->page_size;

    if (row_stride == row || page <= 1) {
        cache->page_bytes = page_stride;
    } else if (bytes == 2 && (n_pages <= 1 || page_stride == page * row_stride)) {
        cache->n_pages = n_pages * page;
        cache->page_size = 1;
        cache->page_bytes = row_stride;
    } else {
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "%s: gaps between rows of a page (got a stride of %" PRId64 ", want %" PRId64
                     ")",
                     name, row_stride, row);
    }
    /* Where there is one page at most, its distance means nothing. */
    if (cache->n_pages <= 1)
        cache->page_bytes = 0;
    else if (cache->page_bytes < 1 || cache->page_bytes > INT64_MAX / 2)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "%s: rows or pages overlap (got a stride of %" PRId64 ", want more than 0)",
                     name, cache->page_bytes);
    else
        cache->page_bytes *= bytes;
}

bool pl__ffi_cache(pl_ffi_call *c, const char *name, bool may_be_none, pl_kv_cache *cache)
{
    pl_ffi_tensor t = pl__ffi_rows(c, name, 0, may_be_none);
    int last = t.n_dims - 1;
    int64_t row, page;
    bool bf16;

    *cache = (pl_kv_cache){.page_size = 1};
    if (c->failed || last < 0)
        return false;
    row = t.shape[last];
    bf16 = t.type_code == PL_DL_BFLOAT && t.type_bits == 16;
    if (!bf16 && (t.type_bits != 8 || (t.type_code != PL_DL_UINT && t.type_code != PL_DL_INT &&
                                       t.type_code != PL_DL_E4M3)))
        pl__ffi_fail(c, PL_FFI_TYPE_ERROR,
                     "%s: wrong element type (got code %d with %d bits, want bf16, uint8, int8 or "
                     "e4m3)",
                     name, t.type_code, t.type_bits);
    else if (bf16 ? last < 1 : last != 3)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "%s: number of dimensions is wrong (got %d, want %s)",
                     name, last + 1, bf16 ? "2, 3 or 4" : "4");
    else if (last > 1 && t.shape[last - 1] != 1)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "%s: number of key heads is wrong (got %" PRId64 ", want 1)", name,
                     t.shape[last - 1]);
    else if (bf16 ? row != 512 && row != 576 : row != V4_ROW_BYTES && row != V32_ROW_BYTES)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "%s: no such row (got %" PRId64 ", want %s)", name, row,
                     bf16 ? "512 or 576 numbers" : "584 or 656 bytes");
    if (c->failed)
        return false;
    cache->format = bf16 ? PL_KV_BF16 : row == V4_ROW_BYTES ? PL_KV_V4 : PL_KV_V32;
    cache->head_dim = bf16 ? (int32_t)row : row == V4_ROW_BYTES ? 512 : 576;
    cache->data = t.data;
    page = last == 3 ? t.shape[1] : 1;
    cache->page_size = page ? (int32_t)page : 1;
    cache->n_pages = page ? t.shape[0] : 0;
    place_rows(c, name, &t, last == 3 ? t.strides[1] : t.strides[0], t.strides[0], cache);
    return !c->failed;
}
