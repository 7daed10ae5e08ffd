/* Text to ids: repair, cut out added tokens, split the rest, encode the pieces. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

/* Pieces up to this length need no memory of the encoder. */
enum { SHORT_PIECE = 128 };

struct pl_encoder {
    uint8_t *repaired; /* text that was not UTF-8, at most 3 bytes for one */
    size_t repaired_bytes;
    int32_t *ids; /* of a long piece, at most one a byte */
    uint64_t *dead;
    size_t piece_bytes; /* longest piece that ids and dead have room for */
};

static pl_status reserve_repaired(pl_encoder *e, size_t text_bytes)
{
    uint8_t *p;

    if (text_bytes > SIZE_MAX / 3)
        return PL_ERR_NOMEM;
    if (3 * text_bytes <= e->repaired_bytes)
        return PL_OK;
    p = realloc(e->repaired, 3 * text_bytes);
    if (!p)
        return PL_ERR_NOMEM;
    e->repaired = p;
    e->repaired_bytes = 3 * text_bytes;
    return PL_OK;
}

static pl_status reserve_piece(pl_encoder *e, size_t piece_bytes)
{
    int32_t *ids;
    uint64_t *dead;

    if (piece_bytes <= e->piece_bytes)
        return PL_OK;
    if (piece_bytes > SIZE_MAX / sizeof ids[0])
        return PL_ERR_NOMEM;
    ids = realloc(e->ids, piece_bytes * sizeof ids[0]);
    if (!ids)
        return PL_ERR_NOMEM;
    e->ids = ids;
    dead = realloc(e->dead, pl__bpe_dead_words(piece_bytes) * sizeof dead[0]);
    if (!dead)
        return PL_ERR_NOMEM;
    e->dead = dead;
    e->piece_bytes = piece_bytes;
    return PL_OK;
}

pl_status pl_encoder_create(size_t text_bytes, pl_encoder **out)
{
    pl_encoder *e = calloc(1, sizeof *e);

    *out = NULL;
    if (!e)
        return PL_ERR_NOMEM;
    if (reserve_piece(e, text_bytes) != PL_OK) {
        pl_encoder_destroy(e);
        return PL_ERR_NOMEM;
    }
    *out = e;
    return PL_OK;
}

void pl_encoder_destroy(pl_encoder *encoder)
{
    if (!encoder)
        return;
    free(encoder->repaired);
    free(encoder->ids);
    free(encoder->dead);
    free(encoder);
}

size_t pl_encoder_memory_bytes(const pl_encoder *encoder)
{
    size_t dead_words = encoder->piece_bytes ? pl__bpe_dead_words(encoder->piece_bytes) : 0;

    return sizeof *encoder + encoder->repaired_bytes +
           encoder->piece_bytes * sizeof encoder->ids[0] + dead_words * sizeof encoder->dead[0];
}

/* One call of pl_tokenizer_encode. */
typedef struct encoding {
    const pl_tokenizer *tokenizer;
    pl_encoder *encoder;
    const uint8_t *text;        /* well formed */
    const pl_text_range *plain; /* where no added tokens are recognised */
    size_t n_plain;
    int32_t *ids;
    size_t max_ids, n_ids;
} encoding;

static inline void put_id(encoding *c, int32_t id)
{
    if (c->n_ids < c->max_ids)
        c->ids[c->n_ids] = id;
    c->n_ids++;
}

static pl_status encode_piece(encoding *c, size_t begin, size_t end)
{
    int32_t short_ids[SHORT_PIECE], *ids = short_ids;
    uint64_t short_dead[SHORT_PIECE / 64 + 1], *dead = short_dead;
    size_t n;

    if (end - begin > SHORT_PIECE) {
        PL_TRY(reserve_piece(c->encoder, end - begin));
        ids = c->encoder->ids;
        dead = c->encoder->dead;
    }
    n = pl__bpe_encode(&c->tokenizer->bpe, c->text + begin, end - begin, dead, ids);
    for (size_t i = 0; i < n; i++)
        put_id(c, ids[i]);
    return PL_OK;
}

/* Text without added tokens. */
static pl_status encode_segment(encoding *c, size_t begin, size_t end)
{
    while (begin < end) {
        size_t piece_end = pl__pretokenize(&c->tokenizer->chars, c->text, begin, end);

        PL_TRY(encode_piece(c, begin, piece_end));
        begin = piece_end;
    }
    return PL_OK;
}

typedef struct added_match {
    int32_t id; /* -1: none */
    size_t begin, end;
} added_match;

/* First plain range that ends behind `at`; n_plain where there is none. */
static size_t find_range(const encoding *c, size_t at)
{
    size_t low = 0, high = c->n_plain;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (c->plain[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The leftmost added token in text[begin .. end), at its place the longest. */
static added_match find_added(const encoding *c, const pl_trie *trie, size_t begin, size_t end)
{
    size_t range = find_range(c, begin), at = begin;

    while (at < end) {
        bool limited = range < c->n_plain && c->plain[range].begin < end;
        size_t limit = limited ? c->plain[range].begin : end;

        for (; at < limit; at++) {
            size_t n_bytes = 0;
            int32_t id;

            if (trie->first[c->text[at]] < 0)
                continue;
            id = pl__trie_longest(trie, c->text + at, limit - at, &n_bytes);
            if (id >= 0)
                return (added_match){id, at, at + n_bytes};
        }
        if (!limited)
            break;
        at = c->plain[range++].end;
    }
    return (added_match){-1, end, end};
}

/* Cuts out the added tokens of list `list` and then of the later ones in what is left. */
static pl_status encode_stretch(encoding *c, int list, size_t begin, size_t end)
{
    if (list == 2)
        return encode_segment(c, begin, end);
    while (begin < end) {
        added_match m = find_added(c, &c->tokenizer->added[list], begin, end);

        PL_TRY(encode_stretch(c, list + 1, begin, m.begin));
        if (m.id >= 0)
            put_id(c, m.id);
        begin = m.end;
    }
    return PL_OK;
}

/* Points c->text at well-formed text, a repaired copy where it must. */
static pl_status repair(encoding *c, const char *text, size_t *n_bytes)
{
    const uint8_t *bytes = (const uint8_t *)text;
    size_t valid = pl__utf8_valid_bytes(bytes, *n_bytes);
    pl_text_stream stream = {0};
    uint8_t *out;

    c->text = bytes;
    if (valid == *n_bytes)
        return PL_OK;
    PL_TRY(reserve_repaired(c->encoder, *n_bytes));
    out = c->encoder->repaired;
    memcpy(out, bytes, valid);
    valid += pl__utf8_push(&stream, bytes + valid, *n_bytes - valid, out + valid);
    *n_bytes = valid + pl__utf8_flush(&stream, out + valid);
    c->text = out;
    return PL_OK;
}

/* Runs an encoding from list `list` on. */
static pl_status run(encoding *c, int list, size_t text_bytes, size_t *n_ids, pl_error *err)
{
    pl_status status = encode_stretch(c, list, 0, text_bytes);

    *n_ids = c->n_ids;
    if (status == PL_ERR_NOMEM)
        return pl_error_set(err, status, "tokenizer: no memory for a text of %zu bytes",
                            text_bytes);
    return status;
}

pl_status pl_tokenizer_encode(const pl_tokenizer *tokenizer, pl_encoder *encoder, const char *text,
                              size_t text_bytes, pl_encode_mode mode, int32_t *ids, size_t max_ids,
                              size_t *n_ids, pl_error *err)
{
    encoding c = {.tokenizer = tokenizer, .encoder = encoder, .ids = ids, .max_ids = max_ids};

    *n_ids = 0;
    if (repair(&c, text, &text_bytes) != PL_OK)
        return pl_error_set(err, PL_ERR_NOMEM, "tokenizer: no memory for a text of %zu bytes",
                            text_bytes);
    return run(&c, mode == PL_ENCODE_PLAIN ? 2 : 0, text_bytes, n_ids, err);
}

static pl_status check_ranges(const pl_text_range *plain, size_t n_plain, size_t text_bytes,
                              pl_error *err)
{
    for (size_t i = 0; i < n_plain; i++) {
        size_t from = i ? plain[i - 1].end : 0;

        PL_CHECK(plain[i].begin >= from && plain[i].end > plain[i].begin &&
                     plain[i].end <= text_bytes,
                 err,
                 "tokenizer: plain range %zu is not in order (got %zu..%zu, want a stretch of "
                 "%zu..%zu)",
                 i, plain[i].begin, plain[i].end, from, text_bytes);
    }
    return PL_OK;
}

pl_status pl_tokenizer_encode_ranges(const pl_tokenizer *tokenizer, pl_encoder *encoder,
                                     const char *text, size_t text_bytes,
                                     const pl_text_range *plain, size_t n_plain, int32_t *ids,
                                     size_t max_ids, size_t *n_ids, pl_error *err)
{
    encoding c = {tokenizer, encoder, (const uint8_t *)text, plain, n_plain, ids, max_ids, 0};
    size_t valid = pl__utf8_valid_bytes(c.text, text_bytes);

    *n_ids = 0;
    PL_TRY(check_ranges(plain, n_plain, text_bytes, err));
    if (valid < text_bytes)
        return pl_error_set_at(err, PL_ERR_INVALID, valid,
                               "tokenizer: text is not UTF-8 (at byte %zu of %zu)", valid,
                               text_bytes);
    return run(&c, 0, text_bytes, n_ids, err);
}
