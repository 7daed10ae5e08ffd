/* The evaluator of closed forms: recursive descent over the text, every step checked for overflow. */
#include "plan/formula.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"

enum { MAX_DEPTH = 32 };

struct parser {
    const char *text, *p;
    int depth;
    pl_error *err;
};

static pl_status eval_sum(struct parser *s, uint64_t *value);

static pl_status fail(const struct parser *s, pl_status status, const char *what)
{
    return pl_error_set_at(s->err, status, (uint64_t)(s->p - s->text),
                           "formula: %s (at byte %zu of '%s')", what, (size_t)(s->p - s->text),
                           s->text);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool take(struct parser *s, char c)
{
    while (*s->p == ' ')
        s->p++;
    if (*s->p != c)
        return false;
    s->p++;
    return true;
}

/* Letters, digits and "_.-" from a letter on; 0 where there is no word. */
static size_t word_length(const char *p)
{
    size_t n = 0;

    if (!is_letter(p[0]))
        return 0;
    while (is_letter(p[n]) || is_digit(p[n]) || p[n] == '_' || p[n] == '.')
        n++;
    return n;
}

static pl_status multiply(const struct parser *s, uint64_t *value, uint64_t by)
{
    if (__builtin_mul_overflow(*value, by, value))
        return fail(s, PL_ERR_OVERFLOW, "product is too large");
    return PL_OK;
}

static pl_status eval_number(struct parser *s, uint64_t *value)
{
    if (!is_digit(*s->p))
        return fail(s, PL_ERR_INVALID, "a number is missing");
    for (*value = 0; is_digit(*s->p) || (*s->p == '_' && is_digit(s->p[1])); s->p++) {
        if (*s->p == '_')
            continue;
        if (__builtin_mul_overflow(*value, 10u, value) ||
            __builtin_add_overflow(*value, (uint64_t)(*s->p - '0'), value))
            return fail(s, PL_ERR_OVERFLOW, "number is too large");
    }
    return PL_OK;
}

static pl_status eval_up(struct parser *s, uint64_t *value)
{
    uint64_t align, over;

    PL_TRY(eval_sum(s, value));
    if (!take(s, ','))
        return fail(s, PL_ERR_INVALID, "',' is missing");
    PL_TRY(eval_sum(s, &align));
    if (!take(s, ')'))
        return fail(s, PL_ERR_INVALID, "')' is missing");
    if (align == 0)
        return fail(s, PL_ERR_INVALID, "multiple of 0");
    over = *value % align;
    if (over && __builtin_add_overflow(*value, align - over, value))
        return fail(s, PL_ERR_OVERFLOW, "sum is too large");
    return PL_OK;
}

/* The words behind a factor; units multiply. */
static pl_status eval_words(struct parser *s, uint64_t *value)
{
    static const char units[][4] = {"KiB", "MiB", "GiB", "TiB"};
    size_t n;

    for (;;) {
        while (*s->p == ' ')
            s->p++;
        n = word_length(s->p);
        if (n == 0)
            return PL_OK;
        for (unsigned u = 0; u < 4; u++)
            if (n == 3 && memcmp(s->p, units[u], 3) == 0)
                PL_TRY(multiply(s, value, 1ull << (10 * (u + 1))));
        s->p += n;
    }
}

static pl_status eval_factor(struct parser *s, uint64_t *value)
{
    if (++s->depth > MAX_DEPTH)
        return fail(s, PL_ERR_INVALID, "nested too deep");
    if (take(s, '(')) {
        PL_TRY(eval_sum(s, value));
        if (!take(s, ')'))
            return fail(s, PL_ERR_INVALID, "')' is missing");
    } else if (strncmp(s->p, "up(", 3) == 0) {
        s->p += 3;
        PL_TRY(eval_up(s, value));
    } else {
        PL_TRY(eval_number(s, value));
    }
    s->depth--;
    return eval_words(s, value);
}

static pl_status eval_product(struct parser *s, uint64_t *value)
{
    uint64_t by;

    PL_TRY(eval_factor(s, value));
    for (;;) {
        if (take(s, '*')) {
            PL_TRY(eval_factor(s, &by));
            PL_TRY(multiply(s, value, by));
        } else if (take(s, '/')) {
            PL_TRY(eval_factor(s, &by));
            if (by == 0 || *value % by != 0)
                return fail(s, PL_ERR_INVALID, "division leaves a remainder");
            *value /= by;
        } else {
            return PL_OK;
        }
    }
}

static pl_status eval_sum(struct parser *s, uint64_t *value)
{
    uint64_t other;

    PL_TRY(eval_product(s, value));
    for (;;) {
        if (take(s, '+')) {
            PL_TRY(eval_product(s, &other));
            if (__builtin_add_overflow(*value, other, value))
                return fail(s, PL_ERR_OVERFLOW, "sum is too large");
        } else if (take(s, '-')) {
            PL_TRY(eval_product(s, &other));
            if (__builtin_sub_overflow(*value, other, value))
                return fail(s, PL_ERR_INVALID, "difference is negative");
        } else {
            return PL_OK;
        }
    }
}

pl_status pl_formula_eval(const char *text, uint64_t *value, pl_error *err)
{
    struct parser s = {text, text, 0, err};

    PL_TRY(eval_sum(&s, value));
    if (*s.p)
        return fail(&s, PL_ERR_INVALID, "text behind the end");
    return PL_OK;
}
