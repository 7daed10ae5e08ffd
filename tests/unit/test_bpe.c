/* The encoder without merging against merging, carried out literally. */
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/lines.h"
#include "support/random_text.h"
#include "support/reference_bpe.h"
#include "support/tiny_tokenizer.h"
#include "text/tokenizer.h"

enum { MAX_PIECE = 512 };

static void check_piece(const pl_tokenizer *t, const reference_bpe *r, const char *piece, size_t n)
{
    int32_t got[MAX_PIECE], want[MAX_PIECE];
    uint64_t dead[MAX_PIECE / 64 + 1];
    size_t n_got = pl__bpe_encode(&t->bpe, (const uint8_t *)piece, n, dead, got);
    size_t n_want = reference_bpe_run(r, piece, n, want);

    for (size_t i = 0; i < n_want || i < n_got; i++)
        if (n_got != n_want || got[i] != want[i])
            fail_msg("'%.*s': %zu tokens, want %zu; number %zu is %d, want %d", (int)n, piece,
                     n_got, n_want, i, i < n_got ? got[i] : -1, i < n_want ? want[i] : -1);
}

static void check_all_pieces(const char *const *merges, size_t n_merges, const char *letters,
                             size_t max_length)
{
    size_t n_letters = strlen(letters);
    json_t *root = tiny_tokenizer(merges, n_merges);
    reference_bpe *r = reference_bpe_open(root);
    pl_tokenizer *t;
    pl_error err;

    check_ok(open_tiny(root, &t, &err), &err);
    for (size_t length = 1, count = n_letters; length <= max_length; length++, count *= n_letters)
        for (size_t i = 0; i < count; i++) {
            char piece[32];

            for (size_t k = 0, rest = i; k < length; k++, rest /= n_letters)
                piece[k] = letters[rest % n_letters];
            check_piece(t, r, piece, length);
        }
    pl_tokenizer_close(t);
    reference_bpe_close(r);
    json_decref(root);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Runs of one letter are where the leftmost of equal pairs matters, across tokens too. */
static void runs_of_one_letter(void **state)
{
    static const char *const twos[] = {"a a"};
    static const char *const doubling[] = {"a a", "aa aa", "aaaa aaaa"};
    static const char *const odd[] = {"a a", "aa a", "aaa aa", "aa aa"};
    static const char *const mixed[] = {"a a", "b a", "aa b", "aa ba", "ba aa"};

    check_all_pieces(twos, COUNT(twos), "ab", 9);
    check_all_pieces(doubling, COUNT(doubling), "ab", 11);
    check_all_pieces(odd, COUNT(odd), "ab", 11);
    check_all_pieces(mixed, COUNT(mixed), "ab", 11);
}

/* Longest match is wrong for all of these, and stepping back is needed for some. */
static void overlapping_tokens(void **state)
{
    static const char *const abc[] = {"b c", "a b", "ab c"};
    static const char *const chain[] = {"a b", "ab a", "b a", "aba ba", "c ab", "cab ab"};
    static const char *const crossing[] = {"b b", "a bb", "c a", "ca bb", "bb c", "a b", "ab bc"};

    check_all_pieces(abc, COUNT(abc) - 1, "abc", 7);
    check_all_pieces(chain, COUNT(chain), "abc", 8);
    check_all_pieces(crossing, COUNT(crossing) - 2, "abc", 8);
}

enum { MAX_TOKEN = 20, MAX_GROWN = 64, CORPUS = 300 };

/* A text cut into tokens, as training sees it. */
typedef struct corpus {
    char tokens[CORPUS][MAX_TOKEN + 1];
    size_t n;
} corpus;

/* Joins all occurrences of a pair, from the left. */
static void join_pair(corpus *c, const char *left, const char *right)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n; n++) {
        bool pair =
            i + 1 < c->n && strcmp(c->tokens[i], left) == 0 && strcmp(c->tokens[i + 1], right) == 0;
        char joined[2 * MAX_TOKEN + 1];

        snprintf(joined, sizeof joined, "%s%s", c->tokens[i], pair ? c->tokens[i + 1] : "");
        i += pair ? 2 : 1;
        memcpy(c->tokens[n], joined, strlen(joined) + 1);
    }
    c->n = n;
}

/* A vocabulary trained on random text, with the next pair chosen at random among those that are
 * there. */
static json_t *random_vocabulary(random_source *r, size_t n_letters, size_t n_merges)
{
    static corpus c;
    char merges[MAX_GROWN][MAX_TOKEN + 2], made[MAX_GROWN][MAX_TOKEN + 1];
    const char *list[MAX_GROWN];
    size_t n = 0;

    c.n = CORPUS;
    for (size_t i = 0; i < c.n; i++) {
        c.tokens[i][0] = (char)('a' + random_below(r, (uint32_t)n_letters));
        c.tokens[i][1] = 0;
    }
    for (size_t tries = 0; n < n_merges && tries < 50 * n_merges && c.n > 1; tries++) {
        size_t at = random_below(r, (uint32_t)c.n - 1);
        char left[MAX_TOKEN + 1], right[MAX_TOKEN + 1];
        bool known = false;

        snprintf(left, sizeof left, "%s", c.tokens[at]);
        snprintf(right, sizeof right, "%s", c.tokens[at + 1]);
        snprintf(made[n], sizeof made[n], "%.10s%.10s", left, right);
        for (size_t i = 0; i < n; i++)
            known = known || strcmp(made[i], made[n]) == 0;
        if (known || strlen(left) > MAX_TOKEN / 2 || strlen(right) > MAX_TOKEN / 2)
            continue; /* one merge for each token, so that every order is accepted */
        snprintf(merges[n], sizeof merges[n], "%.10s %.10s", left, right);
        list[n] = merges[n];
        n++;
        join_pair(&c, left, right);
    }
    return tiny_tokenizer(list, n);
}

static void random_vocabularies(void **state)
{
    random_source r = {99};

    for (int round = 0; round < 400; round++) {
        size_t n_letters = 1 + random_below(&r, 4);
        json_t *root = random_vocabulary(&r, n_letters, 2 + random_below(&r, MAX_GROWN - 2));
        reference_bpe *reference = reference_bpe_open(root);
        pl_tokenizer *t;
        pl_error err;

        check_ok(open_tiny(root, &t, &err), &err);
        for (int i = 0; i < 42; i++) {
            char piece[300];
            size_t n = 1 + random_below(&r, i < 40 ? 96 : sizeof piece); /* long ones use a memo */

            for (size_t k = 0; k < n; k++)
                piece[k] = (char)('a' + random_below(&r, (uint32_t)n_letters));
            check_piece(t, reference, piece, n);
        }
        pl_tokenizer_close(t);
        reference_bpe_close(reference);
        json_decref(root);
    }
}

/* Tokens that end in the middle of words, of the trained vocabulary put together anyhow. */
static void trained_vocabulary(void **state)
{
    json_t *root = golden_json("tokenizer/mini/tokenizer.json");
    reference_bpe *reference = reference_bpe_open(root);
    char *text = json_dumps(root, 0);
    random_source r = {5};
    pl_tokenizer *t;
    pl_error err;

    check_ok(pl_tokenizer_open_memory("mini", text, strlen(text), &t, &err), &err);
    for (int i = 0; i < 4000; i++) {
        char piece[MAX_PIECE];
        size_t n = 0, n_parts = 2 + random_below(&r, 9);

        for (size_t k = 0; k < n_parts; k++) {
            int32_t id = (int32_t)random_below(&r, 2000);
            size_t n_bytes;
            const char *bytes = pl_tokenizer_token(t, id, &n_bytes);
            size_t from = random_below(&r, (uint32_t)n_bytes);

            memcpy(piece + n, bytes + from, n_bytes - from);
            n += n_bytes - from;
        }
        check_piece(t, reference, piece, n);
    }
    pl_tokenizer_close(t);
    reference_bpe_close(reference);
    json_decref(root);
    free(text);
}

static void check_refused(const char *const *merges, size_t n, pl_status want, const char *words)
{
    json_t *root = tiny_tokenizer(merges, n);
    pl_tokenizer *t;
    pl_error err;
    pl_status status = open_tiny(root, &t, &err);

    check_error(status, want, &err, "tiny.json: model.merges[", words, NULL);
    assert_null(t);
    json_decref(root);
}

/* Orders for which the encoder's reasoning would not hold. */
static void orders_that_training_does_not_give(void **state)
{
    static const char *const early[] = {"ab c", "a b"};
    static const char *const remade[] = {"b c", "a bc", "d abc", "a b", "ab c"};
    static const char *const twice[] = {"a b", "c d", "a b"};
    static const char *const crossed[] = {"b c", "a b", "ab c", "abc d"};

    check_refused(early, COUNT(early), PL_ERR_UNSUPPORTED, "[0]: uses token 257");
    check_refused(remade, COUNT(remade), PL_ERR_UNSUPPORTED, "[4]: makes token 257");
    check_refused(twice, COUNT(twice), PL_ERR_CORRUPT, "[2]: same pair as in merge 0");
    check_refused(crossed, COUNT(crossed), PL_ERR_UNSUPPORTED, "[3]: uses token 258");
}

/* Two ways to one token are fine as long as nothing uses it in between. */
static void token_with_two_merges(void **state)
{
    static const char *const merges[] = {"a b", "b c", "ab c", "a bc"};

    check_all_pieces(merges, COUNT(merges), "abc", 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_of_one_letter),
        cmocka_unit_test(overlapping_tokens),
        cmocka_unit_test(random_vocabularies),
        cmocka_unit_test(trained_vocabulary),
        cmocka_unit_test(orders_that_training_does_not_give),
        cmocka_unit_test(token_with_two_merges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
