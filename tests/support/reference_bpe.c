/* Repeatedly joins the pair of lowest rank, the leftmost of equal ones, until no pair has a merge. */
#include "support/reference_bpe.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/random_text.h"

struct reference_bpe {
    const json_t *vocab;
    json_t *ranks; /* "left right" -> rank */
};

reference_bpe *reference_bpe_open(const json_t *root)
{
    const json_t *model = json_object_get(root, "model"), *merge;
    reference_bpe *r = calloc(1, sizeof *r);
    size_t rank;

    r->vocab = json_object_get(model, "vocab");
    r->ranks = json_object();
    json_array_foreach(json_object_get(model, "merges"), rank, merge)
        json_object_set_new(r->ranks, json_string_value(merge), json_integer((json_int_t)rank));
    return r;
}

void reference_bpe_close(reference_bpe *r)
{
    json_decref(r->ranks);
    free(r);
}

size_t reference_alphabet(unsigned char byte, char out[2])
{
    uint32_t shifted = 0x100;

    for (uint32_t b = 0; b < 256; b++) {
        bool stands = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xFF && b != 0xAD);

        if (b == byte)
            return put_utf8(stands ? b : shifted, out);
        shifted += !stands;
    }
    return 0;
}

/* A symbol is a stretch of `text`, the piece in the byte alphabet. */
typedef struct symbols {
    char *text;
    size_t *begin; /* n + 1 */
    size_t n;
} symbols;

static json_int_t rank_at(const reference_bpe *r, const symbols *s, size_t i)
{
    size_t left = s->begin[i + 1] - s->begin[i], right = s->begin[i + 2] - s->begin[i + 1];
    char *key = malloc(left + right + 2);
    const json_t *rank;

    memcpy(key, s->text + s->begin[i], left);
    key[left] = ' ';
    memcpy(key + left + 1, s->text + s->begin[i + 1], right);
    rank = json_object_getn(r->ranks, key, left + 1 + right);
    free(key);
    return rank ? json_integer_value(rank) : -1;
}

static bool join_best(const reference_bpe *r, symbols *s)
{
    json_int_t best = -1;
    size_t at = 0;

    for (size_t i = 0; i + 1 < s->n; i++) {
        json_int_t rank = rank_at(r, s, i);

        if (rank >= 0 && (best < 0 || rank < best)) {
            best = rank;
            at = i;
        }
    }
    if (best < 0)
        return false;
    memmove(s->begin + at + 1, s->begin + at + 2, (s->n - at - 1) * sizeof s->begin[0]);
    s->n--;
    return true;
}

size_t reference_bpe_run(const reference_bpe *r, const char *piece, size_t n, int32_t *ids)
{
    symbols s = {malloc(2 * n), malloc((n + 1) * sizeof(size_t)), n};

    s.begin[0] = 0;
    for (size_t i = 0; i < n; i++)
        s.begin[i + 1] =
            s.begin[i] + reference_alphabet((unsigned char)piece[i], s.text + s.begin[i]);
    while (join_best(r, &s))
        ;
    for (size_t i = 0; i < s.n; i++) {
        const json_t *id =
            json_object_getn(r->vocab, s.text + s.begin[i], s.begin[i + 1] - s.begin[i]);

        if (!id)
            fail_msg("the merges make a token that is not in the vocabulary");
        ids[i] = (int32_t)json_integer_value(id);
    }
    free(s.text);
    free(s.begin);
    return s.n;
}
