/* The split patterns, written out.
 *
 * Why not a regular-expression library: its character classes follow its own version of Unicode,
 * its speed follows whether a JIT may map executable pages, and each piece of the first pattern
 * costs three calls. The patterns are fixed, so a scanner is shorter than the repairs a library
 * would need; the tests hold it against PCRE2 on every golden text and on random Unicode.
 *
 * The first two patterns cut the text into regions: numbers, runs of CJK, and the rest. A region is
 * a subject of its own for the third pattern: a look-ahead must not see beyond it. So every look at
 * a character is told the region and sees "nothing" outside. N shares no character with the classes
 * of pattern 3, which is why pieces of pattern 1 need no third pass. */
#include "text/pretokenize.h"

#include <stdbool.h>

#include "text/utf8.h"

const char *const pl__split_patterns[PL_SPLIT_PATTERNS] = {
    "\\p{N}{1,3}",
    "[一-龥\xE3\x81\x80-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

typedef struct scanner {
    const pl_char_table *table;
    const uint8_t *text;
    size_t end;
    unsigned region; /* PL_CHAR_CJK in a region of pattern 2, else 0 */
} scanner;

typedef struct seen {
    unsigned class;
    bool outside; /* the segment or the region ends here; class is 0 */
    size_t next;
} seen;

static inline seen look(const scanner *s, size_t at)
{
    pl_utf8_char c;
    unsigned class;

    if (at >= s->end)
        return (seen){0, true, at};
    c = pl__utf8_char_at(s->text + at);
    class = pl__char_class(s->table, c.code_point);
    if ((class & (PL_CHAR_CJK | PL_CHAR_NUMBER)) != s->region)
        return (seen){0, true, at};
    return (seen){class, false, at + c.n_bytes};
}

/* First position from `at` on whose character has none of the bits in `mask`. */
static inline size_t skip(const scanner *s, size_t at, unsigned mask)
{
    for (seen c = look(s, at); c.class & mask; c = look(s, at))
        at = c.next;
    return at;
}

/* \p{N}{1,3}: a run is cut in threes from its beginning, and pieces are walked from there. */
static size_t number_end(const scanner *s, size_t at)
{
    for (int i = 0; i < 3 && at < s->end; i++) {
        pl_utf8_char c = pl__utf8_char_at(s->text + at);

        if (!(pl__char_class(s->table, c.code_point) & PL_CHAR_NUMBER))
            break;
        at += c.n_bytes;
    }
    return at;
}

/* \s*[\r\n]+ | \s+(?!\S) | \s+ where the first two kinds of piece do not begin. Greedy with
 * backtracking comes to: up to the run's last line break; else the run, without its last character
 * if something follows in the region and more than one is there. */
static size_t space_end(const scanner *s, size_t begin)
{
    size_t at = begin, last = begin, after_break = begin;
    seen c;

    for (c = look(s, at); c.class & PL_CHAR_SPACE; c = look(s, at)) {
        last = at;
        at = c.next;
        if (c.class & PL_CHAR_BREAK)
            after_break = at;
    }
    if (after_break > begin)
        return after_break;
    return c.outside || last == begin ? at : last;
}

/* Characters of no class (controls, unassigned, joiners) match nothing by themselves: they form a
 * piece up to where a match begins, and the last of them is taken by letters that follow. */
static size_t gap_end(const scanner *s, size_t at)
{
    for (;;) {
        seen c = look(s, at);

        if (c.outside || c.class & (PL_CHAR_LETTER | PL_CHAR_PUNCT | PL_CHAR_SPACE) ||
            look(s, c.next).class & PL_CHAR_LETTER)
            return at;
        at = c.next;
    }
}

size_t pl__pretokenize(const pl_char_table *table, const uint8_t *text, size_t begin, size_t end)
{
    unsigned class = pl__char_class(table, pl__utf8_char_at(text + begin).code_point);
    scanner s = {table, text, end, class & PL_CHAR_CJK};
    seen first, second;

    if (class & PL_CHAR_NUMBER)
        return number_end(&s, begin);
    first = look(&s, begin);
    if (class & PL_CHAR_LETTER) /* a mark as optional first character changes nothing */
        return skip(&s, first.next, PL_CHAR_LETTER);
    second = look(&s, first.next);
    if (class & PL_CHAR_ASCII_PUNCT && second.class & PL_CHAR_ASCII_ALPHA)
        return skip(&s, second.next, PL_CHAR_ASCII_ALPHA);
    if (!(class & (PL_CHAR_PUNCT | PL_CHAR_BREAK)) && second.class & PL_CHAR_LETTER)
        return skip(&s, second.next, PL_CHAR_LETTER);
    if (class & PL_CHAR_PUNCT || (text[begin] == ' ' && second.class & PL_CHAR_PUNCT))
        return skip(&s, skip(&s, first.next, PL_CHAR_PUNCT), PL_CHAR_BREAK);
    if (class & PL_CHAR_SPACE)
        return space_end(&s, begin);
    return gap_end(&s, first.next);
}
