/* The arena: two cursors over one block, one with ASAN's red zones and one without.
 *
 * Sizes are rounded up to PL_ARENA_ALIGN, so that the sum of the pieces is the size of the block wherever no
 * piece asks for more alignment: formulas in the plan stay simple. Nothing is freed one by one. */
#include "base/arena.h"

#include <assert.h>

#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define PL_ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PL_ARENA_ASAN 1
#endif
#endif

#ifdef PL_ARENA_ASAN
#include <sanitizer/asan_interface.h>
enum { RED_ZONE_BYTES = PL_ARENA_ALIGN };
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)   ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
enum { RED_ZONE_BYTES = 0 };
#endif

void pl_arena_init(pl_arena *a, void *base, size_t capacity)
{
    assert(base);
    *a = (pl_arena){.base = base, .capacity = capacity};
    ASAN_POISON_MEMORY_REGION(base, capacity);
}

void pl_arena_init_dry(pl_arena *a)
{
    *a = (pl_arena){.capacity = SIZE_MAX};
}

void pl_arena_fini(pl_arena *a)
{
    if (a->base)
        ASAN_UNPOISON_MEMORY_REGION(a->base, a->capacity);
    *a = (pl_arena){0};
}

bool pl_arena_is_dry(const pl_arena *a)
{
    return !a->base;
}

static bool round_up(size_t *x, size_t align)
{
    if (*x > SIZE_MAX - (align - 1))
        return false;
    *x = (*x + align - 1) & ~(align - 1);
    return true;
}

/* Advances *cursor over padding, piece and red zone; *begin is where the piece starts. */
static bool advance(size_t *cursor, size_t bytes, size_t align, size_t red_zone, size_t *begin)
{
    size_t c = *cursor;

    if (!round_up(&c, align))
        return false;
    *begin = c;
    if (bytes > SIZE_MAX - c)
        return false;
    c += bytes;
    if (!round_up(&c, PL_ARENA_ALIGN) || red_zone > SIZE_MAX - c)
        return false;
    *cursor = c + red_zone;
    return true;
}

static void *fail(pl_arena *a, size_t bytes)
{
    if (!a->failed) {
        a->failed = true;
        a->failed_bytes = bytes;
    }
    return NULL;
}

void *pl_arena_alloc(pl_arena *a, size_t bytes, size_t align)
{
    size_t used = a->used, planned = a->planned, begin, planned_begin;

    assert((align & (align - 1)) == 0 && align <= PL_ARENA_MAX_ALIGN);
    if (align < PL_ARENA_ALIGN)
        align = PL_ARENA_ALIGN;
    if (a->failed)
        return NULL;
    if (!advance(&planned, bytes, align, 0, &planned_begin) ||
        !advance(&used, bytes, align, RED_ZONE_BYTES, &begin))
        return fail(a, SIZE_MAX);
    if (used > a->capacity)
        return fail(a, bytes);
    a->used = used;
    a->planned = planned;
    a->peak = used > a->peak ? used : a->peak;
    a->p_peak = planned > a->p_peak ? planned : a->p_peak;
    if (!a->base)
        return NULL;
    assert(((uintptr_t)a->base & (align - 1)) == 0);
    ASAN_UNPOISON_MEMORY_REGION(a->base + begin, bytes);
    return a->base + begin;
}

void *pl_arena_array(pl_arena *a, size_t n, size_t element_bytes, size_t align)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, element_bytes, &bytes))
        return fail(a, SIZE_MAX);
    return pl_arena_alloc(a, bytes, align);
}

pl_arena_mark pl_arena_begin(const pl_arena *a)
{
    return (pl_arena_mark){a->used, a->planned};
}

void pl_arena_end(pl_arena *a, pl_arena_mark mark)
{
    assert(mark.used <= a->used && mark.planned <= a->planned);
    if (a->base)
        ASAN_POISON_MEMORY_REGION(a->base + mark.used, a->used - mark.used);
    a->used = mark.used;
    a->planned = mark.planned;
}

pl_status pl_arena_check(const pl_arena *a, const char *what, pl_error *err)
{
    if (!a->failed)
        return PL_OK;
    if (a->failed_bytes == SIZE_MAX)
        return pl_error_set(err, PL_ERR_OVERFLOW, "%s: size overflows", what);
    return pl_error_set(err, PL_ERR_NOMEM,
                        "%s: block too small (got %zu bytes, %zu used, want %zu more)", what,
                        a->capacity, a->used, a->failed_bytes);
}

size_t pl_arena_used_bytes(const pl_arena *a)
{
    return a->used;
}

size_t pl_arena_peak_bytes(const pl_arena *a)
{
    return a->peak;
}

size_t pl_arena_planned_bytes(const pl_arena *a)
{
    return a->planned;
}

size_t pl_arena_planned_peak_bytes(const pl_arena *a)
{
    return a->p_peak;
}
