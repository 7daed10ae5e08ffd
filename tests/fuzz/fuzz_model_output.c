/* Model output: any bytes, cut into any pieces, give one message; complete calls without a note have arguments that
 * are a JSON object; without calls no text is lost; the time is linear. The first byte chooses the mode and the pieces. */
#include <string.h>

#include "fuzz.h"
#include "plimsoll/chat.h"
#include "text/chat_tokens.h"
#include "text/json_value.h"
#include "text/output_parser.h"
#include "text/utf8.h"

/* Passes events on and checks their order. */
typedef struct watch {
    pl_output_message *message;
    size_t n_calls;
    bool open, ended, not_json;
} watch;

static void see(void *user, const pl_output_event *e)
{
    watch *w = user;

    FUZZ_CHECK(!w->ended);
    FUZZ_CHECK(pl__utf8_valid_bytes((const uint8_t *)e->text, e->n_bytes) == e->n_bytes);
    if (e->kind == PL_OUTPUT_CALL_START) {
        FUZZ_CHECK(!w->open && e->call == w->n_calls);
        w->n_calls++;
        w->open = true;
    }
    if (e->kind == PL_OUTPUT_CALL_ARGUMENTS || e->kind == PL_OUTPUT_CALL_END)
        FUZZ_CHECK(w->open && e->call == w->n_calls - 1);
    if (e->kind == PL_OUTPUT_NOTE && (e->note == PL_NOTE_MALFORMED || e->note == PL_NOTE_DUPLICATE))
        w->open = false;
    if (e->kind == PL_OUTPUT_CALL_END)
        w->open = false;
    if (e->kind == PL_OUTPUT_CONTENT || e->kind == PL_OUTPUT_REASONING)
        FUZZ_CHECK(!w->open && e->n_bytes > 0);
    w->not_json |= e->kind == PL_OUTPUT_NOTE && e->note == PL_NOTE_NOT_JSON;
    w->ended = e->kind == PL_OUTPUT_END;
    pl_output_message_add(w->message, e);
}

/* Parses in pieces whose sizes come from `seed`; 0: in one. */
static watch parse(pl_chat_mode mode, const char *text, size_t n, uint64_t seed)
{
    pl_output_options options = pl_output_options_default();
    watch w = {0};
    pl_output_parser *p;
    pl_error err = {0};

    options.mode = mode;
    FUZZ_CHECK(pl_output_message_create(&w.message, &err) == PL_OK);
    FUZZ_CHECK(pl_output_parser_create(&options, see, &w, &p, &err) == PL_OK);
    for (size_t at = 0, piece; at < n; at += piece) {
        seed = seed ? seed * 6364136223846793005u + 1442695040888963407u : 0;
        piece = seed ? 1 + (seed >> 40) % 24 : n;
        piece = piece < n - at ? piece : n - at;
        FUZZ_CHECK(pl_output_parser_feed(p, text + at, piece) == PL_OK);
    }
    FUZZ_CHECK(pl_output_parser_finish(p) == PL_OK);
    FUZZ_CHECK(pl__output_parser_steps(p) <= 32 * (uint64_t)n + 1000);
    FUZZ_CHECK(w.ended && pl_output_message_check(w.message, &err) == PL_OK);
    pl_output_parser_destroy(p);
    return w;
}

static void check_arguments(const watch *w)
{
    for (size_t i = 0; i < pl_output_message_n_calls(w->message); i++) {
        pl_output_call call = pl_output_message_get_call(w->message, i);
        pl_json_pool pool = {0};
        const pl_json_value *v;
        pl_error err = {0};
        if (call.complete && !w->not_json)
            FUZZ_CHECK(pl_json_value_parse(&pool, "", call.arguments, call.arguments_bytes, &v,
                                           &err) == PL_OK ||
                       strstr(err.msg, "too deep"));
        pl_json_pool_fini(&pool);
    }
}

static bool skip(const char **at, const char *end, const char *token)
{
    size_t n = strlen(token);

    if ((size_t)(end - *at) < n || memcmp(*at, token, n) != 0)
        return false;
    *at += n;
    return true;
}

/* Without a tag that opens calls, the message is the text without its end tokens and its first </think>. */
static void check_plain(const watch *w, bool thinking, const char *text, size_t n)
{
    size_t n_reasoning, n_content, r = 0, c = 0;
    const char *reasoning = pl_output_message_reasoning(w->message, &n_reasoning);
    const char *content = pl_output_message_content(w->message, &n_content);
    const char *end = text + n;

    if (memmem(text, n, "<" PL_TOK_DSML "tool_calls", strlen("<" PL_TOK_DSML "tool_calls")))
        return;
    while (text < end) {
        if (skip(&text, end, PL_TOK_EOS) || (thinking && skip(&text, end, PL_TOK_THINK_END))) {
            thinking = false;
        } else if (thinking) {
            FUZZ_CHECK(r < n_reasoning && reasoning[r] == *text);
            r++;
            text++;
        } else {
            FUZZ_CHECK(c < n_content && content[c] == *text);
            c++;
            text++;
        }
    }
    FUZZ_CHECK(r == n_reasoning && c == n_content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_chat_mode mode = size && data[0] & 1 ? PL_CHAT_MODE_CHAT : PL_CHAT_MODE_THINKING;
    const char *text = size ? (const char *)data + 1 : "";
    size_t n = size ? size - 1 : 0, n_whole, n_pieces;
    watch whole = parse(mode, text, n, 0), pieces = parse(mode, text, n, size ? data[0] | 1u : 1);
    char *a, *b;
    pl_error err = {0};
    pl_status status = pl_output_message_conforms(whole.message, "output", &err);

    if (status != PL_OK)
        fuzz_check_error(status, &err);
    FUZZ_CHECK(pl_output_message_json(whole.message, true, &a, &n_whole, &err) == PL_OK);
    FUZZ_CHECK(pl_output_message_json(pieces.message, true, &b, &n_pieces, &err) == PL_OK);
    FUZZ_CHECK(n_whole == n_pieces && memcmp(a, b, n_whole) == 0);
    check_arguments(&whole);
    if (pl__utf8_valid_bytes((const uint8_t *)text, n) == n)
        check_plain(&whole, mode == PL_CHAT_MODE_THINKING, text, n);
    free(a);
    free(b);
    pl_output_message_destroy(whole.message);
    pl_output_message_destroy(pieces.message);
    return 0;
}
