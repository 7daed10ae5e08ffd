/* One loop per kind of value; each finds the first bad element and leaves the words to one place. */
#include "model/weight_values.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/numfmt.h"

enum { E8M0_NAN = 255 };

/* Index of the first bad element, n where there is none. */
static size_t bad_e8m0(const uint8_t *codes, size_t n)
{
    const uint8_t *bad = memchr(codes, E8M0_NAN, n);

    return bad ? (size_t)(bad - codes) : n;
}

/* Bits of the finite floats above zero are 1 .. 0x7F7FFFFF, the others wrap around. */
static size_t bad_f32_scale(const uint32_t *bits, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bits[i] - 1 >= 0x7F7FFFFFu)
            return i;
    return n;
}

static size_t bad_expert(const int64_t *ids, size_t n, int64_t n_experts)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_experts)
            return i;
    return n;
}

static pl_status refuse(const pl_checkpoint *checkpoint, const pl_checkpoint_tensor *tensor,
                        uint64_t element, const char *what, pl_error *err)
{
    const int64_t cols = tensor->rank == 2 ? tensor->shape[1] : 1;

    return pl_error_set(err, PL_ERR_CORRUPT, "%s/%s: %s[%" PRIu64 ", %" PRIu64 "]: %s",
                        pl_checkpoint_path(checkpoint),
                        pl_checkpoint_shard_name(checkpoint, tensor->shard), tensor->name,
                        element / (uint64_t)cols, element % (uint64_t)cols, what);
}

pl_status pl__check_values(const pl_checkpoint *checkpoint, const pl_tensor_spec *spec,
                           const pl_checkpoint_tensor *tensor, uint64_t from, const void *data,
                           size_t bytes, pl_error *err)
{
    const int32_t n_experts = pl_checkpoint_config(checkpoint)->n_experts;
    const size_t size = pl_dtype_bytes(tensor->dtype), n = bytes / size;
    const uint64_t first = from / size;
    char what[128];
    size_t bad;

    if (spec->is_scale && tensor->dtype == PL_DTYPE_F8_E8M0) {
        bad = bad_e8m0(data, n);
        snprintf(what, sizeof what, "scale is NaN (got E8M0 byte 255, want 0..254)");
    } else if (spec->is_scale) {
        bad = bad_f32_scale(data, n);
        if (bad < n)
            snprintf(what, sizeof what,
                     "scale is no positive number (got %g, want a finite one above 0)",
                     (double)pl_f32_from_bits(((const uint32_t *)data)[bad]));
    } else if (spec->kind == PL_TENSOR_GATE_TID2EID) {
        bad = bad_expert(data, n, n_experts);
        if (bad < n)
            snprintf(what, sizeof what, "no such expert (got %" PRId64 ", want 0..%" PRId32 ")",
                     ((const int64_t *)data)[bad], n_experts - 1);
    } else {
        return PL_OK;
    }
    return bad == n ? PL_OK : refuse(checkpoint, tensor, first + bad, what, err);
}
