/* Ids to text, at once and token by token. */
#include <string.h>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

static pl_status check_id(const pl_tokenizer *t, int32_t id, pl_error *err)
{
    if (id >= 0 && id < t->bpe.n_tokens)
        return PL_OK;
    return pl_error_set(err, PL_ERR_INVALID, "tokenizer: no such token (got id %d, want 0..%d)", id,
                        t->bpe.n_tokens - 1);
}

static bool is_skipped(const pl_tokenizer *t, int32_t id, unsigned flags)
{
    return flags & PL_DECODE_SKIP_SPECIAL && t->flags[id] & PL_TOKEN_SPECIAL;
}

/* Output that counts on when the buffer is full. */
typedef struct text_sink {
    char *text;
    size_t max, n;
} text_sink;

static void put(text_sink *sink, const uint8_t *bytes, size_t n)
{
    if (sink->n < sink->max)
        memcpy(sink->text + sink->n, bytes, n < sink->max - sink->n ? n : sink->max - sink->n);
    sink->n += n;
}

/* Repairs through a small buffer: a token can release three times its bytes. */
static void put_repaired(text_sink *sink, pl_text_stream *stream, const uint8_t *bytes, size_t n)
{
    enum { PART = 64 };
    uint8_t out[3 * PART + 3];

    for (size_t at = 0; at < n; at += PART) {
        size_t part = n - at < PART ? n - at : PART;

        put(sink, out, pl__utf8_push(stream, bytes + at, part, out));
    }
}

pl_status pl_tokenizer_decode(const pl_tokenizer *tokenizer, const int32_t *ids, size_t n_ids,
                              unsigned flags, char *text, size_t max_bytes, size_t *n_bytes,
                              pl_error *err)
{
    text_sink sink = {text, max_bytes, 0};
    pl_text_stream stream = {0};
    uint8_t last[3];

    *n_bytes = 0;
    for (size_t i = 0; i < n_ids; i++) {
        pl_token_bytes t;

        PL_TRY(check_id(tokenizer, ids[i], err));
        if (is_skipped(tokenizer, ids[i], flags))
            continue;
        t = pl__token_bytes(tokenizer, ids[i]);
        if (flags & PL_DECODE_RAW)
            put(&sink, t.bytes, t.n);
        else
            put_repaired(&sink, &stream, t.bytes, t.n);
    }
    put(&sink, last, pl__utf8_flush(&stream, last));
    *n_bytes = sink.n;
    return PL_OK;
}

pl_status pl_text_stream_push(const pl_tokenizer *tokenizer, pl_text_stream *stream, int32_t id,
                              unsigned flags, char *text, size_t max_bytes, size_t *n_bytes,
                              pl_error *err)
{
    pl_text_stream counting = *stream;
    pl_token_bytes t;

    *n_bytes = 0;
    PL_TRY(check_id(tokenizer, id, err));
    if (is_skipped(tokenizer, id, flags))
        return PL_OK;
    t = pl__token_bytes(tokenizer, id);
    *n_bytes = pl__utf8_push(&counting, t.bytes, t.n, NULL);
    if (*n_bytes <= max_bytes)
        pl__utf8_push(stream, t.bytes, t.n, (uint8_t *)text);
    return PL_OK;
}

size_t pl_text_stream_flush(pl_text_stream *stream, char text[3])
{
    return pl__utf8_flush(stream, (uint8_t *)text);
}

size_t pl_text_stream_max_bytes(const pl_tokenizer *tokenizer)
{
    return 3 * (size_t)tokenizer->max_token_bytes + 3;
}
