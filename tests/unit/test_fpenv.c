/* The floating-point environment: what is set inside, and that the caller's comes back exactly. */
#include <fenv.h>
#include <pthread.h>
#include <xmmintrin.h>

#include "base/fpenv.h"
#include "base/numfmt.h"
#include "support/check.h"

/* Not inlined: the compiler may move arithmetic over a write to the control register. */
__attribute__((noinline)) static uint32_t multiply(uint32_t a, uint32_t b)
{
    volatile float x = pl_f32_from_bits(a), y = pl_f32_from_bits(b);
    return pl_f32_bits(x * y);
}

__attribute__((noinline)) static uint32_t add(uint32_t a, uint32_t b)
{
    volatile float x = pl_f32_from_bits(a), y = pl_f32_from_bits(b);
    return pl_f32_bits(x + y);
}

__attribute__((noinline)) static uint32_t divide(uint32_t a, uint32_t b)
{
    volatile float x = pl_f32_from_bits(a), y = pl_f32_from_bits(b);
    return pl_f32_bits(x / y);
}

enum {
    ONE = 0x3F800000,
    HALF = 0x3F000000,
    MIN_NORMAL = 0x00800000,
    DENORMAL = 0x00400000,
    INFINITE = 0x7F800000,
};

static void denormals_flush_inside_only(void **state)
{
    pl_fpenv saved;
    uint32_t out_inside, in_inside;

    assert_int_equal(multiply(MIN_NORMAL, HALF), DENORMAL);
    assert_false(pl_fpenv_is_set());
    saved = pl_fpenv_begin();
    assert_true(pl_fpenv_is_set());
    out_inside = multiply(MIN_NORMAL, HALF);
    in_inside = divide(ONE, DENORMAL);
    pl_fpenv_end(saved);
    assert_int_equal(out_inside, 0);
    assert_int_equal(in_inside, INFINITE);
    assert_int_equal(multiply(MIN_NORMAL, HALF), DENORMAL);
    assert_false(pl_fpenv_is_set());
}

/* 1 + 2^-24 is a tie: nearest even goes down, upward goes up. */
static void rounding_is_nearest_inside_and_the_callers_after(void **state)
{
    pl_fpenv saved;
    uint32_t inside, after;

    fesetround(FE_UPWARD);
    saved = pl_fpenv_begin();
    inside = add(ONE, 0x33800000);
    pl_fpenv_end(saved);
    after = add(ONE, 0x33800000);
    assert_int_equal(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    assert_int_equal(inside, ONE);
    assert_int_equal(after, ONE + 1);
}

static void every_bit_of_the_callers_is_restored(void **state)
{
    unsigned before = _mm_getcsr();

    for (unsigned bit = 0; bit < 16; bit++) {
        unsigned mine = (before | 0x1F80u) ^ (1u << bit), after;
        pl_fpenv saved;

        _mm_setcsr(mine);
        saved = pl_fpenv_begin();
        divide(ONE, 0); /* raises a flag inside */
        pl_fpenv_end(saved);
        after = _mm_getcsr();
        _mm_setcsr(before);
        assert_int_equal(after, mine);
    }
}

static void begins_nest(void **state)
{
    pl_fpenv outer = pl_fpenv_begin(), inner = pl_fpenv_begin();

    pl_fpenv_end(inner);
    assert_true(pl_fpenv_is_set());
    pl_fpenv_end(outer);
    assert_false(pl_fpenv_is_set());
}

static void sticky_flags_do_not_matter(void **state)
{
    pl_fpenv saved = pl_fpenv_begin();

    divide(ONE, 0);
    assert_true(_mm_getcsr() & 0x3F);
    assert_true(pl_fpenv_is_set());
    pl_fpenv_end(saved);
}

static void no_unmasked_exception_inside(void **state)
{
    unsigned before = _mm_getcsr();
    pl_fpenv saved;
    uint32_t r;

    _mm_setcsr(before & ~0x1F80u); /* any exception would kill the test */
    saved = pl_fpenv_begin();
    r = divide(ONE, 0);
    pl_fpenv_end(saved);
    _mm_setcsr(before);
    assert_int_equal(r, INFINITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(denormals_flush_inside_only),
        cmocka_unit_test(rounding_is_nearest_inside_and_the_callers_after),
        cmocka_unit_test(every_bit_of_the_callers_is_restored),
        cmocka_unit_test(begins_nest),
        cmocka_unit_test(sticky_flags_do_not_matter),
        cmocka_unit_test(no_unmasked_exception_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
