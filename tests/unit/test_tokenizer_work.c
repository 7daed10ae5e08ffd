/* Encoding takes time linear in the text, whatever it holds.
 *
 * Time is counted in basic blocks, not seconds: this executable has its own copy of src/text,
 * compiled so that every block calls __sanitizer_cov_trace_pc. The same text always gives the same
 * count, and a text that is expensive shows on any machine, however loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/random_text.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

void __sanitizer_cov_trace_pc(void);

static uint64_t n_blocks;

void __sanitizer_cov_trace_pc(void)
{
    n_blocks++;
}

static const char english[] =
    "The mill stood at the bend of the river, where the water ran slow and brown past the willows. "
    "Nobody in the village could remember who had built it; the oldest of them only knew that the "
    "wheel had been turning when they were children. \"It will turn when I am gone,\" said the "
    "miller, "
    "and he was right.\n\nIn 1873 a railway came. It brought coal, newspapers (three days late), "
    "and "
    "a schoolmaster named Fletcher who measured everything: the depth of the pond, 4.2 metres; the "
    "height of the weir; the number of sacks that were carted off between Monday and Saturday. He "
    "wrote it all down, and that is how we know.\n";

enum { LARGE = 1 << 20, SMALL = LARGE / 8 };

typedef struct kind {
    const char *name, *unit; /* the text is the unit, repeated; */
    code_block random;       /* or, without one, random characters of this block */
} kind;

static const kind kinds[] = {
    {"one letter", "a", {0}},
    {"spaces", " ", {0}},
    {"one digit", "7", {0}},
    {"one combining mark", "\xCC\x81", {0}},
    {"line breaks", "\r\n", {0}},
    {"spaces and letters", "    x", {0}},
    {"punctuation", "!", {0}},
    {"controls", "\x01", {0}},
    {"beginnings of an added token", "<｜place▁holder▁no▁", {0}},
    {"not UTF-8", "\xF0\x9F\xA7", {0}},
    {"random letters", NULL, {'a', 'z'}},
    {"random digits", NULL, {'0', '9'}},
    {"random combining marks", NULL, {0x300, 0x36F}},
    {"random ideographs", NULL, {0x4E00, 0x9FA5}},
};

static pl_tokenizer *tokenizer;
static pl_encoder *encoder;

static int set_up(void **state)
{
    char path[1024];
    pl_error err;

    snprintf(path, sizeof path, "%s/tokenizer/mini", getenv("PL_GOLDEN_DIR"));
    check_ok(pl_tokenizer_open(path, &tokenizer, &err), &err);
    return pl_encoder_create(0, &encoder);
}

static int tear_down(void **state)
{
    pl_tokenizer_close(tokenizer);
    pl_encoder_destroy(encoder);
    return 0;
}

static size_t fill(const kind *k, char *text, size_t n)
{
    random_source r = {1};
    size_t at = 0, unit = k->unit ? strlen(k->unit) : 4;

    while (at + unit <= n) {
        if (k->unit)
            memcpy(text + at, k->unit, unit);
        at +=
            k->unit
                ? unit
                : put_utf8(k->random.first + random_below(&r, k->random.last - k->random.first + 1),
                           text + at);
    }
    return at;
}

/* Blocks for each byte of a text of this kind. */
static double work(const kind *k, size_t n_bytes)
{
    char *text = malloc(n_bytes + 4);
    int32_t *ids = malloc(3 * n_bytes * sizeof *ids);
    size_t n = fill(k, text, n_bytes), n_ids;
    pl_error err;

    n_blocks = 0;
    check_ok(pl_tokenizer_encode(tokenizer, encoder, text, n, PL_ENCODE_ADDED_TOKENS, ids,
                                 3 * n_bytes, &n_ids, &err),
             &err);
    assert_true(n_ids > 0 && n_blocks > 0);
    free(text);
    free(ids);
    return (double)n_blocks / (double)n;
}

static void every_text_is_linear(void **state)
{
    const kind plain = {"English", english, {0}};
    double per_english_byte = work(&plain, LARGE);
    bool failed = false;

    print_message("English: %.1f blocks a byte\n", per_english_byte);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        double large = work(&kinds[i], LARGE), small = work(&kinds[i], SMALL);

        print_message("%s: %.1f blocks a byte, %.2f times English\n", kinds[i].name, large,
                      large / per_english_byte);
        if (large > 3 * per_english_byte || large > 1.05 * small + 1) {
            print_error("%s: %.1f blocks a byte in a megabyte, %.1f in an eighth of it\n",
                        kinds[i].name, large, small);
            failed = true;
        }
    }
    assert_false(failed);
}

/* After a reservation nothing is allocated; without one, memory stays within what the header says. */
static void memory_of_the_encoder_is_bounded(void **state)
{
    const kind letters = {"one letter", "a", {0}}, broken = {"not UTF-8", "\xFF", {0}};

    for (int i = 0; i < 2; i++) {
        size_t limit = (i ? 16 : 5) * (size_t)SMALL, n_ids;
        char *text = malloc(SMALL);
        pl_encoder *e;
        pl_error err;

        assert_int_equal(pl_encoder_create(0, &e), PL_OK);
        check_ok(pl_tokenizer_encode(tokenizer, e, text, fill(i ? &broken : &letters, text, SMALL),
                                     PL_ENCODE_PLAIN, NULL, 0, &n_ids, &err),
                 &err);
        assert_true(pl_encoder_memory_bytes(e) > 4 * (size_t)SMALL &&
                    pl_encoder_memory_bytes(e) <= limit);
        pl_encoder_destroy(e);
        assert_int_equal(pl_encoder_create(SMALL, &e), PL_OK);
        if (!i) {
            size_t reserved = pl_encoder_memory_bytes(e);

            check_ok(pl_tokenizer_encode(tokenizer, e, text, fill(&letters, text, SMALL),
                                         PL_ENCODE_PLAIN, NULL, 0, &n_ids, &err),
                     &err);
            assert_int_equal(pl_encoder_memory_bytes(e), reserved);
        }
        pl_encoder_destroy(e);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_text_is_linear),
        cmocka_unit_test(memory_of_the_encoder_is_bounded),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
