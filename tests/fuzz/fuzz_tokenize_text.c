/* Text to ids: any bytes, against the definitions carried out literally (support/reference_*.h). */
#include <string.h>

#include "fuzz.h"
#include "support/reference_bpe.h"
#include "support/reference_split.h"
#include "support/tiny_tokenizer.h"
#include "text/utf8.h"

enum { MAX_TEXT = 200, MAX_REPAIRED = 3 * MAX_TEXT };

/* Runs of one letter, overlapping tokens, spaces in front, and parts of three-byte characters. */
static const char *const merges[] = {
    "a a",  "aa aa", "b c", "a b", "ab c", "Ġ a",  "Ġ Ġ", "ĠĠ ĠĠ", "t h", "th e",
    "Ġ th", "bc a",  "0 0", "1 2", "Ċ Ċ",  "ĊĊ Ċ", "ä ¸", "ä¸ Ń",  "Ì ģ", "Ìģ Ìģ",
};

static struct {
    json_t *root;
    reference_bpe *bpe;
    /* NULL without PL_GOLDEN_DIR, or with a PCRE2 that knows other classes */
    reference_split *split;
    pl_tokenizer *tokenizer;
    pl_encoder *encoder;
} the;

static void set_up(void)
{
    pl_error err;

    if (the.root)
        return;
    the.root = tiny_tokenizer(merges, sizeof merges / sizeof merges[0]);
    the.bpe = reference_bpe_open(the.root);
    the.split = getenv("PL_GOLDEN_DIR") ? reference_split_open() : NULL;
    FUZZ_CHECK(open_tiny(the.root, &the.tokenizer, &err) == PL_OK);
    FUZZ_CHECK(pl_encoder_create(0, &the.encoder) == PL_OK);
}

/* The ids of well-formed text without added tokens, by definition. */
static size_t reference_ids(const char *text, size_t n, int32_t *ids)
{
    size_t ends[MAX_REPAIRED], n_ends = reference_split_run(the.split, text, n, ends), n_ids = 0;

    for (size_t i = 0, at = 0; i < n_ends; at = ends[i++])
        n_ids += reference_bpe_run(the.bpe, text + at, ends[i] - at, ids + n_ids);
    return n_ids;
}

static size_t encode(const char *text, size_t n, pl_encode_mode mode, int32_t *ids, size_t room)
{
    size_t n_ids;
    pl_error err;

    FUZZ_CHECK(pl_tokenizer_encode(the.tokenizer, the.encoder, text, n, mode, ids, room, &n_ids,
                                   &err) == PL_OK);
    return n_ids;
}

/* Decoded at once and streamed, both must be the repaired text. */
static void check_decoded(const int32_t *ids, size_t n_ids, const char *want, size_t n_want)
{
    char text[MAX_REPAIRED + 64];
    pl_text_stream stream = {0};
    size_t n, n_streamed = 0;
    pl_error err;

    FUZZ_CHECK(pl_tokenizer_decode(the.tokenizer, ids, n_ids, 0, text, sizeof text, &n, &err) ==
               PL_OK);
    FUZZ_CHECK(n == n_want && memcmp(text, want, n) == 0);
    for (size_t i = 0; i < n_ids; i++) {
        FUZZ_CHECK(pl_text_stream_push(the.tokenizer, &stream, ids[i], 0, text + n_streamed,
                                       sizeof text - n_streamed, &n, &err) == PL_OK);
        n_streamed += n;
        FUZZ_CHECK(n_streamed <= n_want);
    }
    n_streamed += pl_text_stream_flush(&stream, text + n_streamed);
    FUZZ_CHECK(n_streamed == n_want && memcmp(text, want, n_want) == 0);
}

/* Ranges hide added tokens and nothing else. */
static void check_ranges(const char *text, size_t n, size_t begin, size_t end)
{
    const pl_text_range plain = {begin, end};
    int32_t ids[MAX_REPAIRED], bos = pl_tokenizer_find(the.tokenizer, "<bos>", 5);
    size_t n_ids, at = 0;
    pl_error err;

    FUZZ_CHECK(pl_tokenizer_encode_ranges(the.tokenizer, the.encoder, text, n, &plain, begin < end,
                                          ids, MAX_REPAIRED, &n_ids, &err) == PL_OK);
    check_decoded(ids, n_ids, text, n);
    for (size_t i = 0; i < n_ids; i++) {
        size_t n_bytes;

        pl_tokenizer_token(the.tokenizer, ids[i], &n_bytes);
        if (ids[i] >= bos)
            FUZZ_CHECK(begin == end || at + n_bytes <= begin || at >= end);
        at += n_bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int32_t ids[MAX_REPAIRED], want[MAX_REPAIRED];
    char repaired[MAX_REPAIRED + 3];
    pl_text_stream stream = {0};
    const char *text = (const char *)data;
    size_t n, n_ids;

    set_up();
    if (size > MAX_TEXT)
        return 0;
    n = pl__utf8_push(&stream, data, size, (uint8_t *)repaired);
    n += pl__utf8_flush(&stream, (uint8_t *)repaired + n);

    n_ids = encode(text, size, PL_ENCODE_PLAIN, ids, MAX_REPAIRED);
    FUZZ_CHECK(n_ids <= n);
    check_decoded(ids, n_ids, repaired, n);
    if (the.split)
        FUZZ_CHECK(reference_ids(repaired, n, want) == n_ids &&
                   memcmp(ids, want, n_ids * sizeof ids[0]) == 0);
    n_ids = encode(text, size, PL_ENCODE_ADDED_TOKENS, ids, MAX_REPAIRED);
    check_decoded(ids, n_ids, repaired, n);
    FUZZ_CHECK(encode(text, size, PL_ENCODE_ADDED_TOKENS, NULL, 0) == n_ids);
    for (size_t begin = 0; begin < n; begin += 7)
        check_ranges(repaired, n, begin, begin + (n - begin) / 3);
    return 0;
}
