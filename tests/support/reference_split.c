/* Three patterns one after the other, each piece a subject of its own, as the README of the golden
 * files says. Nothing here knows what the patterns mean. */
#include "support/reference_split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/lines.h"

enum { N_PATTERNS = 3 };

struct reference_split {
    pcre2_code *code[N_PATTERNS];
    pcre2_match_data *match;
};

static bool classes_are_known(void)
{
    char version[32] = "";

    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    if (atoi(version) >= 14 && atoi(version) <= 16)
        return true;
    printf("PCRE2 has Unicode %s: not compared with it (want 14 to 16)\n", version);
    return false;
}

reference_split *reference_split_open(void)
{
    json_t *sets, *patterns;
    reference_split *r;

    if (!classes_are_known())
        return NULL;
    r = calloc(1, sizeof *r);
    sets = golden_json("tokenizer/pcre2_patterns.json");
    patterns = json_object_get(sets, "full");
    assert_int_equal(json_array_size(patterns), N_PATTERNS);
    for (size_t i = 0; i < N_PATTERNS; i++) {
        const json_t *p = json_array_get(patterns, i);
        int error;
        PCRE2_SIZE at;

        r->code[i] = pcre2_compile((PCRE2_SPTR)json_string_value(p), json_string_length(p),
                                   PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
        assert_non_null(r->code[i]);
        pcre2_jit_compile(r->code[i], PCRE2_JIT_COMPLETE); /* may be missing: only slower */
    }
    r->match = pcre2_match_data_create(1, NULL);
    json_decref(sets);
    return r;
}

void reference_split_close(reference_split *r)
{
    for (size_t i = 0; r && i < N_PATTERNS; i++)
        pcre2_code_free(r->code[i]);
    if (r)
        pcre2_match_data_free(r->match);
    free(r);
}

/* Cuts the piece text[begin .. end) with patterns number `i` and later. */
static size_t cut(reference_split *r, int i, const char *text, size_t begin, size_t end,
                  size_t *ends)
{
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(r->match);
    size_t n = 0, at = begin;

    if (i == N_PATTERNS) {
        ends[0] = end;
        return 1;
    }
    while (at < end) {
        int rc = pcre2_match(r->code[i], (PCRE2_SPTR)text + begin, end - begin, at - begin,
                             PCRE2_NO_UTF_CHECK, r->match, NULL);
        size_t match_begin = end, match_end = end;

        if (rc >= 0) {
            match_begin = begin + found[0];
            match_end = begin + found[1];
        } else if (rc != PCRE2_ERROR_NOMATCH) {
            fail_msg("PCRE2 failed with %d", rc);
        }
        if (match_begin > at)
            n += cut(r, i + 1, text, at, match_begin, ends + n);
        if (match_end > match_begin)
            n += cut(r, i + 1, text, match_begin, match_end, ends + n);
        at = match_end;
    }
    return n;
}

size_t reference_split_run(reference_split *r, const char *text, size_t n, size_t *ends)
{
    return n ? cut(r, 0, text, 0, n, ends) : 0;
}
