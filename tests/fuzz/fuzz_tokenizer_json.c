/* tokenizer.json: any bytes make a tokenizer or a proper error; a tokenizer that was made keeps its promises. */
#include <string.h>

#include "fuzz.h"
#include "plimsoll/text.h"

/* What goes in comes out. */
static void check_round_trip(const pl_tokenizer *t, pl_encoder *encoder, const char *text,
                             pl_encode_mode mode)
{
    size_t n = strlen(text), n_ids, n_back;
    int32_t ids[128];
    char back[128];
    pl_error err;

    FUZZ_CHECK(pl_tokenizer_encode(t, encoder, text, n, mode, ids, 128, &n_ids, &err) == PL_OK);
    FUZZ_CHECK(n_ids <= n);
    FUZZ_CHECK(pl_tokenizer_decode(t, ids, n_ids, 0, back, sizeof back, &n_back, &err) == PL_OK);
    FUZZ_CHECK(n_back == n && memcmp(back, text, n) == 0);
}

static void check_tokenizer(const pl_tokenizer *t)
{
    static const char text[] = "The cat, aaaaaaab <bos> 1234 中文\n\n  <user>x abcabcababab";
    int32_t n_tokens = pl_tokenizer_vocab_size(t);
    pl_encoder *encoder;

    FUZZ_CHECK(n_tokens >= 256);
    FUZZ_CHECK(pl_encoder_create(0, &encoder) == PL_OK);
    check_round_trip(t, encoder, text, PL_ENCODE_ADDED_TOKENS);
    check_round_trip(t, encoder, text, PL_ENCODE_PLAIN);
    pl_encoder_destroy(encoder);
    for (int32_t id = 0; id < n_tokens; id++) {
        size_t n;

        FUZZ_CHECK(pl_tokenizer_token(t, id, &n) && n > 0);
        FUZZ_CHECK(3 * n + 3 <= pl_text_stream_max_bytes(t));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_error err = {0};
    pl_tokenizer *t;
    pl_status status = pl_tokenizer_open_memory("x.json", (const char *)data, size, &t, &err);

    if (status == PL_OK) {
        check_tokenizer(t);
    } else {
        FUZZ_CHECK(!t);
        fuzz_check_error(status, &err);
    }
    pl_tokenizer_close(t);
    return 0;
}
