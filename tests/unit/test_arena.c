/* The arena: a dry run asks for exactly what carving takes, pieces never overlap, failures latch. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "support/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#endif

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

struct piece {
    uint8_t *p;
    size_t bytes, align;
    uint8_t fill;
};

/* A random program of pieces, marks and resets; deterministic in `seed`. Fills pieces when they have memory
 * and checks, before each reset and at the end, that all live ones still hold their fill. */
static void layout(pl_arena *a, uint32_t seed, uint8_t *base)
{
    struct piece live[64];
    pl_arena_mark marks[4];
    int n_live = 0, n_marks = 0, live_at[4];
    int n_steps = (int)(next_random(&seed) % 60);

    for (int i = 0; i <= n_steps; i++) {
        uint32_t what = next_random(&seed) % 8;
        if (what == 0 && n_marks < 4) {
            live_at[n_marks] = n_live;
            marks[n_marks++] = pl_arena_begin(a);
            continue;
        }
        if (i == n_steps || (what == 1 && n_marks > 0)) {
            for (int k = 0; k < n_live && base; k++)
                for (size_t b = 0; b < live[k].bytes; b++)
                    if (live[k].p[b] != live[k].fill)
                        fail_msg("seed %u: piece %d was overwritten", seed, k);
            if (i < n_steps) {
                n_live = live_at[--n_marks];
                pl_arena_end(a, marks[n_marks]);
            }
            continue;
        }
        struct piece *x = &live[n_live++];
        x->bytes = next_random(&seed) % (what == 2 ? 9000 : 200);
        x->align = (size_t)1 << (next_random(&seed) % 13);
        x->fill = (uint8_t)next_random(&seed);
        x->p = what == 3 ? pl_arena_array(a, x->bytes, 3, x->align)
                         : pl_arena_alloc(a, x->bytes, what == 4 ? 0 : x->align);
        x->bytes *= what == 3 ? 3 : 1;
        x->align = what == 4 || x->align < 64 ? 64 : x->align;
        if (!base) {
            assert_null(x->p);
            continue;
        }
        assert_non_null(x->p);
        assert_int_equal((uintptr_t)x->p % x->align, 0);
        memset(x->p, x->fill, x->bytes);
    }
}

static void dry_run_equals_carving(void **state)
{
    for (uint32_t seed = 0; seed < 5000; seed++) {
        pl_arena dry, real;
        pl_error err;
        size_t bytes;
        uint8_t *block;

        pl_arena_init_dry(&dry);
        layout(&dry, seed, NULL);
        check_ok(pl_arena_check(&dry, "dry", &err), &err);
        bytes = pl_arena_peak_bytes(&dry);
        block = aligned_alloc(4096, (bytes + 4096) / 4096 * 4096);
        pl_arena_init(&real, block, bytes);
        layout(&real, seed, block);
        check_ok(pl_arena_check(&real, "real", &err), &err);
        assert_int_equal(pl_arena_peak_bytes(&real), bytes);
        assert_int_equal(pl_arena_used_bytes(&real), pl_arena_used_bytes(&dry));
        assert_int_equal(pl_arena_planned_bytes(&real), pl_arena_planned_bytes(&dry));
        assert_int_equal(pl_arena_planned_peak_bytes(&real), pl_arena_planned_peak_bytes(&dry));
        pl_arena_fini(&real);
        free(block);
    }
}

static void one_byte_less_fails_and_latches(void **state)
{
    static _Alignas(64) uint8_t block[1024];
    pl_arena a;
    pl_error err;
    size_t need;

    pl_arena_init_dry(&a);
    pl_arena_alloc(&a, 100, 0);
    pl_arena_alloc(&a, 60, 0);
    need = pl_arena_peak_bytes(&a);
    assert_int_equal(pl_arena_planned_peak_bytes(&a), 192);

    pl_arena_init(&a, block, need - 1);
    assert_ptr_equal(pl_arena_alloc(&a, 100, 0), block);
    assert_null(pl_arena_alloc(&a, 60, 0));
    assert_null(pl_arena_alloc(&a, 1, 0)); /* would fit */
    check_error(pl_arena_check(&a, "cache", &err), PL_ERR_NOMEM, &err, "cache: block too small",
                "want 60 more", NULL);
    pl_arena_fini(&a);
}

static void overflow_is_an_error_not_a_small_number(void **state)
{
    pl_arena a;
    pl_error err;

    pl_arena_init_dry(&a);
    pl_arena_array(&a, SIZE_MAX / 2, 3, 0);
    check_error(pl_arena_check(&a, "x", &err), PL_ERR_OVERFLOW, &err, "x: size overflows", NULL);
    pl_arena_init_dry(&a);
    pl_arena_alloc(&a, SIZE_MAX - 10, 0);
    check_error(pl_arena_check(&a, "x", &err), PL_ERR_OVERFLOW, &err, "x: size overflows", NULL);
    pl_arena_init_dry(&a);
    pl_arena_alloc(&a, SIZE_MAX - 200, 0);
    pl_arena_alloc(&a, 150, 4096);
    check_error(pl_arena_check(&a, "x", &err), PL_ERR_OVERFLOW, &err, "x: size overflows", NULL);
}

static void planned_bytes_hold_no_red_zones(void **state)
{
    pl_arena a;

    pl_arena_init_dry(&a);
    for (int i = 0; i < 10; i++)
        pl_arena_alloc(&a, 65, 0);
    assert_int_equal(pl_arena_planned_bytes(&a), 1280);
    pl_arena_alloc(&a, 1, 4096);
    assert_int_equal(pl_arena_planned_bytes(&a), 4096 + 64);
#ifdef WITH_ASAN
    assert_true(pl_arena_used_bytes(&a) > pl_arena_planned_bytes(&a));
#else
    assert_int_equal(pl_arena_used_bytes(&a), pl_arena_planned_bytes(&a));
#endif
}

static void sanitizer_sees_the_gaps(void **state)
{
#ifdef WITH_ASAN
    static _Alignas(64) uint8_t block[2048];
    pl_arena_mark mark;
    pl_arena a;
    uint8_t *p, *q;

    pl_arena_init(&a, block, sizeof block);
    p = pl_arena_alloc(&a, 100, 0);
    mark = pl_arena_begin(&a);
    q = pl_arena_alloc(&a, 64, 0);
    assert_false(__asan_address_is_poisoned(p + 99));
    assert_true(__asan_address_is_poisoned(p + 100));
    assert_false(__asan_address_is_poisoned(q));
    assert_true(__asan_address_is_poisoned(q - 1));
    assert_true(__asan_address_is_poisoned(q + 64));
    pl_arena_end(&a, mark);
    assert_true(__asan_address_is_poisoned(q));
    assert_false(__asan_address_is_poisoned(p));
    pl_arena_fini(&a);
    assert_false(__asan_address_is_poisoned(q));
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dry_run_equals_carving),
        cmocka_unit_test(one_byte_less_fails_and_latches),
        cmocka_unit_test(overflow_is_an_error_not_a_small_number),
        cmocka_unit_test(planned_bytes_hold_no_red_zones),
        cmocka_unit_test(sanitizer_sees_the_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
