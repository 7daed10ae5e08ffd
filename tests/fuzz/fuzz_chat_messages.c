/* Conversations: any JSON is encoded or refused with a proper error, twice with the same outcome. The segments make up
 * the prompt and alternate, markup is made of the encoding's tokens alone, the prompt is UTF-8. The first byte chooses
 * the options. */
#include <string.h>

#include "fuzz.h"
#include "plimsoll/chat.h"
#include "text/chat_tokens.h"
#include "text/utf8.h"

static const char *const tokens[] = {
    PL_TOK_BOS,    PL_TOK_EOS,   PL_TOK_USER,      PL_TOK_ASSISTANT, PL_TOK_LATEST_REMINDER,
    PL_TOK_DSML,   PL_TOK_QUERY, PL_TOK_AUTHORITY, PL_TOK_DOMAIN,    PL_TOK_THINK_BEGIN,
    PL_TOK_ACTION, PL_TOK_TITLE, PL_TOK_READ_URL,  PL_TOK_THINK_END,
};

static void check_tokens(pl_prompt_segment s)
{
    while (s.n_bytes) {
        size_t n = 0;
        for (size_t i = 0; i < sizeof tokens / sizeof tokens[0] && n == 0; i++)
            if (s.n_bytes >= strlen(tokens[i]) && memcmp(s.text, tokens[i], strlen(tokens[i])) == 0)
                n = strlen(tokens[i]);
        FUZZ_CHECK(n > 0);
        s.text += n;
        s.n_bytes -= n;
    }
}

static void check_prompt(const pl_prompt *p, bool trusted)
{
    size_t n, at = 0;
    const char *text = pl_prompt_text(p, &n);

    FUZZ_CHECK(pl__utf8_valid_bytes((const uint8_t *)text, n) == n && text[n] == 0);
    for (size_t i = 0; i < pl_prompt_n_segments(p); i++) {
        pl_prompt_segment s = pl_prompt_get_segment(p, i);
        FUZZ_CHECK(s.text == text + at && s.n_bytes > 0);
        FUZZ_CHECK(i == 0 || s.markup != pl_prompt_get_segment(p, i - 1).markup);
        if (s.markup && !trusted)
            check_tokens(s);
        at += s.n_bytes;
    }
    FUZZ_CHECK(at == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_chat_options options = pl_chat_options_default(), read;
    unsigned bits = size ? data[0] : 0;
    const char *json = size ? (const char *)data + 1 : "";
    size_t n = size ? size - 1 : 0, n_text, n_again;
    const char *text, *text_again;
    pl_prompt *p, *q;
    pl_error err = {0}, again = {0};
    pl_status status;

    options.mode = bits & 1 ? PL_CHAT_MODE_CHAT : PL_CHAT_MODE_THINKING;
    options.revision = bits & 2 ? PL_CHAT_0731 : PL_CHAT_V4;
    options.effort = (pl_chat_effort)((bits >> 2 & 3) % 3);
    options.drop_thinking = !(bits & 16);
    options.add_bos = !(bits & 32);
    options.trust_special_tokens = bits & 64;
    options.max_prompt_bytes = bits & 128 ? 1000 : (size_t)1 << 24;
    read = options;
    status = pl_chat_options_read(json, n, &read, &err);
    if (status != PL_OK)
        fuzz_check_error(status, &err);
    status = pl_chat_encode(json, n, &options, &p, &err);
    FUZZ_CHECK(pl_chat_encode(json, n, &options, &q, &again) == status);
    if (status != PL_OK) {
        fuzz_check_error(status, &err);
        FUZZ_CHECK(!p && !q && strcmp(err.msg, again.msg) == 0);
        return 0;
    }
    check_prompt(p, options.trust_special_tokens);
    text = pl_prompt_text(p, &n_text);
    text_again = pl_prompt_text(q, &n_again);
    FUZZ_CHECK(n_text == n_again && n_text <= options.max_prompt_bytes);
    FUZZ_CHECK(memcmp(text, text_again, n_text) == 0);
    pl_prompt_destroy(p);
    pl_prompt_destroy(q);
    return 0;
}
