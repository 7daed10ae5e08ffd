/* Text to tokens and back, at once and token by token.
 *
 * A tokenizer is immutable after open and may be used by any number of threads; each thread brings
 * its own pl_encoder. Texts are bytes with a length: they may hold 0 and need not end in one. Ids
 * are 0 .. pl_tokenizer_vocab_size() - 1.
 *
 * Outputs are the caller's. A function that fills a buffer reports how much there is in all
 * (`n_ids`, `n_bytes`), writes no more than fits, and succeeds either way: compare the two, as with
 * snprintf. A buffer of size 0 may be NULL and asks for the size alone.
 *
 * Source: deepseek_v4 specification section 7.1. */
#ifndef PL_PLIMSOLL_TEXT_H
#define PL_PLIMSOLL_TEXT_H

#include <stdbool.h>

#include "plimsoll/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_tokenizer pl_tokenizer;

/* Reads a `tokenizer.json`, or DIR/tokenizer.json where `path` is a folder. Accepts byte-level BPE
 * with the split patterns of DeepSeek-V3 and V4 and nothing else: whatever could change ids and is
 * not implemented is refused with PL_ERR_UNSUPPORTED, contradictions in the file with
 * PL_ERR_CORRUPT; the message names file, key and what is wrong. On success the tokenizer is one
 * block of memory that never grows (pl_tokenizer_memory_bytes). */
PL_API pl_status pl_tokenizer_open(const char *path, pl_tokenizer **out,
                                   pl_error *err) PL_MUST_CHECK;

/* The same from `json` (json_bytes long, not kept). `name` stands for the file in errors. */
PL_API pl_status pl_tokenizer_open_memory(const char *name, const char *json, size_t json_bytes,
                                          pl_tokenizer **out, pl_error *err) PL_MUST_CHECK;

/* NULL is allowed. */
PL_API void pl_tokenizer_close(pl_tokenizer *tokenizer);

/* Number of ids: BPE and added tokens together. */
PL_API int32_t pl_tokenizer_vocab_size(const pl_tokenizer *tokenizer);

/* Bytes the open tokenizer holds. */
PL_API size_t pl_tokenizer_memory_bytes(const pl_tokenizer *tokenizer);

/* The bytes of a token, valid until close, not 0-terminated, perhaps part of a character only; NULL
 * for an id outside the vocabulary. */
PL_API const char *pl_tokenizer_token(const pl_tokenizer *tokenizer, int32_t id, size_t *n_bytes);

/* Id of the token with exactly these bytes, an added one before others; -1 where there is none.
 * Looks at every token: for start-up, not for a loop. */
PL_API int32_t pl_tokenizer_find(const pl_tokenizer *tokenizer, const char *text, size_t n_bytes);

/* Whether `skip special tokens` drops the id. False for `<think>` and `<｜User｜>`, as in the file. */
PL_API bool pl_tokenizer_is_special(const pl_tokenizer *tokenizer, int32_t id);

/* Added tokens a program asks for by role. */
typedef enum pl_token_role {
    PL_TOKEN_BOS,         /* <｜begin▁of▁sentence｜> */
    PL_TOKEN_EOS,         /* <｜end▁of▁sentence｜> */
    PL_TOKEN_PAD,         /* <｜▁pad▁｜> */
    PL_TOKEN_USER,        /* <｜User｜> */
    PL_TOKEN_ASSISTANT,   /* <｜Assistant｜> */
    PL_TOKEN_THINK_BEGIN, /* <think> */
    PL_TOKEN_THINK_END,   /* </think> */
    PL_TOKEN_DSML,        /* ｜DSML｜ */
    PL_TOKEN_ROLE_COUNT
} pl_token_role;

/* -1 where the file has no such added token. */
PL_API int32_t pl_tokenizer_role_id(const pl_tokenizer *tokenizer, pl_token_role role);

/* Working memory of pl_tokenizer_encode; one per thread, for any tokenizer. It grows with the texts
 * it is given and never shrinks: to at most 5 bytes per byte of the longest text, 16 if that is not
 * UTF-8. */
typedef struct pl_encoder pl_encoder;

/* UTF-8 of at most `text_bytes` will need no further allocation; 0 reserves nothing. */
PL_API pl_status pl_encoder_create(size_t text_bytes, pl_encoder **out) PL_MUST_CHECK;
PL_API void pl_encoder_destroy(pl_encoder *encoder);

/* Bytes it holds now. */
PL_API size_t pl_encoder_memory_bytes(const pl_encoder *encoder);

typedef enum pl_encode_mode {
    PL_ENCODE_ADDED_TOKENS, /* added tokens, special or not, are recognised anywhere in the text */
    PL_ENCODE_PLAIN,        /* none are: for text from strangers */
} pl_encode_mode;

/* Ids of `text`; no BOS is put in front. What is not UTF-8 counts as U+FFFD, one for each maximal
 * part of an ill-formed sequence. Time is linear in the text whatever it holds. A text of n bytes
 * has at most n ids, 3 n if it is not UTF-8. Fails only with PL_ERR_NOMEM. */
PL_API pl_status pl_tokenizer_encode(const pl_tokenizer *tokenizer, pl_encoder *encoder,
                                     const char *text, size_t text_bytes, pl_encode_mode mode,
                                     int32_t *ids, size_t max_ids, size_t *n_ids,
                                     pl_error *err) PL_MUST_CHECK;

/* Bytes begin .. end - 1 of a text. */
typedef struct pl_text_range {
    size_t begin, end;
} pl_text_range;

/* The same for a text that has both, markup and what strangers wrote: added tokens are recognised
 * except where one would take a byte of a `plain` range (n_plain of them, not empty, ascending, not
 * overlapping). All else does not see the ranges, so ids of a text without added tokens in them are
 * those of the whole text. The text must be UTF-8: PL_ERR_INVALID with the position of the first
 * byte that is not. */
PL_API pl_status pl_tokenizer_encode_ranges(const pl_tokenizer *tokenizer, pl_encoder *encoder,
                                            const char *text, size_t text_bytes,
                                            const pl_text_range *plain, size_t n_plain,
                                            int32_t *ids, size_t max_ids, size_t *n_ids,
                                            pl_error *err) PL_MUST_CHECK;

/* Flags of decoding, to be or-ed. */
enum {
    PL_DECODE_SKIP_SPECIAL = 1, /* special tokens contribute nothing */
    PL_DECODE_RAW = 2,          /* the tokens' bytes as they are, even where they are not UTF-8 */
};

/* Text of `ids`: their bytes in a row, what is not UTF-8 replaced by U+FFFD as above (unless
 * PL_DECODE_RAW). An id outside the vocabulary is PL_ERR_INVALID. */
PL_API pl_status pl_tokenizer_decode(const pl_tokenizer *tokenizer, const int32_t *ids,
                                     size_t n_ids, unsigned flags, char *text, size_t max_bytes,
                                     size_t *n_bytes, pl_error *err) PL_MUST_CHECK;

/* Decoding token by token. What comes out is always whole characters: bytes that may still begin
 * one are held back, and everything emitted, with the flush at the end, is what pl_tokenizer_decode
 * gives. Set to {0} to begin; the fields are private. */
typedef struct pl_text_stream {
    unsigned char held[3];
    unsigned char n_held, n_missing, low, high;
} pl_text_stream;

/* Text that token `id` releases. Takes PL_DECODE_SKIP_SPECIAL; a skipped token changes nothing. The
 * stream moves on only if *n_bytes <= max_bytes; pl_text_stream_max_bytes always suffices. */
PL_API pl_status pl_text_stream_push(const pl_tokenizer *tokenizer, pl_text_stream *stream,
                                     int32_t id, unsigned flags, char *text, size_t max_bytes,
                                     size_t *n_bytes, pl_error *err) PL_MUST_CHECK;

/* What the end of the text releases: a U+FFFD for held bytes (3 bytes of `text`), or nothing.
 * Returns the bytes written; the stream is as at the beginning. */
PL_API size_t pl_text_stream_flush(pl_text_stream *stream, char text[3]);

/* No push releases more than this. */
PL_API size_t pl_text_stream_max_bytes(const pl_tokenizer *tokenizer);

#ifdef __cplusplus
}
#endif
#endif
