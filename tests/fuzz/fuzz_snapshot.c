/* A sequence's snapshot: what is accepted has the sizes that its counts give, and restoring it stays inside the state.
 *
 * The checksum is set right first, or nothing would come behind it. Inputs are a snapshot's header, what follows is
 * the input again, as often as needed. */
#define XXH_STATIC_LINKING_ONLY
#include <stddef.h>
#include <string.h>
#include <xxhash.h>

#include "cache/snapshot.h"
#include "fuzz.h"

enum { MAX_LEN = 160, ROOM = 1 << 20 };

static const int32_t ratios[] = {0, 4, 128};
static const pl_snapshot_id id = {1, "c0ffee"};

static pl_state make(void **memory)
{
    const pl_state_shape shape = {pl_ops_scalar(), 3, true, ratios, MAX_LEN, 3};
    pl_arena arena;
    pl_state s;

    pl_arena_init_dry(&arena);
    pl_state_layout(&s, &arena, &shape);
    *memory = aligned_alloc(64, (pl_arena_peak_bytes(&arena) + 63) / 64 * 64);
    FUZZ_CHECK(*memory);
    pl_arena_init(&arena, *memory, pl_arena_peak_bytes(&arena));
    pl_state_layout(&s, &arena, &shape);
    pl_state_reset(&s);
    return s;
}

static void set_checksum(uint8_t *data, size_t bytes)
{
    XXH128_canonical_t sum;
    const size_t at = offsetof(pl_snapshot_header, checksum);

    memset(data + at, 0, 16);
    XXH128_canonicalFromHash(&sum, XXH3_128bits(data, bytes));
    memcpy(data + at, sum.digest, 16);
}

/* The size that the header names, where the room has it: what is not there is the input over again. */
static size_t fill(uint8_t *to, const uint8_t *data, size_t size)
{
    pl_snapshot_header h;
    size_t bytes = size;

    if (size >= sizeof h) {
        memcpy(&h, data, sizeof h);
        if (h.total_bytes >= sizeof h && h.total_bytes <= ROOM)
            bytes = (size_t)h.total_bytes;
    }
    for (size_t i = 0; i < bytes; i++)
        to[i] = data[i % size];
    if (bytes >= sizeof h)
        set_checksum(to, bytes);
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes, *again;
    void *memory;
    pl_state s;
    pl_error err = {0};
    const uint8_t *tokens;
    pl_status status;
    int32_t n = -1;
    size_t n_bytes;

    if (size == 0 || size > ROOM)
        return 0;
    s = make(&memory);
    bytes = malloc(ROOM);
    FUZZ_CHECK(bytes);
    n_bytes = fill(bytes, data, size);
    status = pl_snapshot_check(&s, &id, bytes, n_bytes, &n, &tokens, &err);
    if (status != PL_OK) {
        fuzz_check_error(status, &err);
    } else {
        FUZZ_CHECK(n >= 0 && n <= MAX_LEN);
        FUZZ_CHECK(tokens + 4 * (size_t)n <= bytes + n_bytes);
        pl_snapshot_restore(&s, bytes);
        FUZZ_CHECK(s.n == n && pl_snapshot_bytes(&s) == n_bytes);
        /* Saved again it can be restored again. */
        again = malloc(n_bytes);
        FUZZ_CHECK(again);
        pl_snapshot_save(
            &s, &id, &(pl_snapshot_tokens){(const int32_t *)(const void *)tokens, NULL, n}, again);
        FUZZ_CHECK(pl_snapshot_check(&s, &id, again, n_bytes, &n, &tokens, &err) == PL_OK);
        free(again);
    }
    free(bytes);
    free(memory);
    return 0;
}
