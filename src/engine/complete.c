/* Text in, text out, in one call: what most programs that embed the engine want first.
 *
 * Made of public functions alone: the text is encoded behind the model's BOS, submitted as one request, and every token goes
 * through a text stream that holds back what is not yet a whole character. Its memory is taken before the first step.
 * Several texts at once, choices and log-probabilities are the business of requests. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/internal.h"

typedef struct completion {
    const pl_tokenizer *tokenizer;
    pl_text_fn *on_text;
    void *user;
    pl_text_stream stream;
    char *piece;
    size_t piece_bytes;
    pl_status status;
    pl_error *err;
} completion;

static void on_token(void *user, pl_request *request, const pl_token_event *event)
{
    completion *c = user;
    size_t n = 0;

    if (c->status == PL_OK)
        c->status =
            pl_text_stream_push(c->tokenizer, &c->stream, event->token, PL_DECODE_SKIP_SPECIAL,
                                c->piece, c->piece_bytes, &n, c->err);
    if (c->status == PL_OK && n > 0)
        c->on_text(c->user, c->piece, n);
    else if (c->status != PL_OK)
        pl_request_cancel(request);
}

/* BOS and the ids of `text`, as many as a request could have and one more, which submitting refuses with its own words. */
static pl_status encode(const pl_engine *e, const char *text, int32_t **ids, int32_t *n_ids,
                        pl_error *err)
{
    const size_t bytes = strlen(text);
    const size_t longest = (size_t)pl_plan_totals_of(e->plan).max_model_len + 1;
    const size_t max = bytes < longest / 3 ? 3 * bytes + 1 : longest;
    pl_encoder *encoder = NULL;
    pl_status s = PL_ERR_NOMEM;
    size_t n = 0;

    *ids = malloc((max + 1) * sizeof **ids);
    if (*ids && pl_encoder_create(bytes, &encoder) == PL_OK) {
        (*ids)[0] = pl_engine_model_of(e).bos_token_id;
        s = pl_tokenizer_encode(e->tokenizer, encoder, text, bytes, PL_ENCODE_ADDED_TOKENS,
                                *ids + 1, max, &n, err);
    } else
        pl_error_set(err, s, "complete: out of memory for a text of %zu bytes", bytes);
    pl_encoder_destroy(encoder);
    *n_ids = (int32_t)(n < max ? n : max) + 1;
    return s;
}

static pl_status run(pl_engine *e, completion *c, const pl_request_params *ask, pl_error *err)
{
    pl_request *request;
    bool busy = true;
    pl_status s;
    char rest[3];
    size_t n;

    PL_TRY(pl_engine_submit(e, ask, &request, err));
    do
        s = pl_engine_step(e, &busy, err);
    while (s == PL_OK && pl_request_state_of(request) <= PL_REQUEST_RUNNING);
    pl_request_release(request);
    if (s == PL_OK)
        s = c->status;
    n = s == PL_OK ? pl_text_stream_flush(&c->stream, rest) : 0;
    if (n > 0)
        c->on_text(c->user, rest, n);
    return s;
}

pl_status pl_engine_complete(pl_engine *e, const char *text, const pl_request_params *params,
                             pl_text_fn *on_text, void *user, pl_error *err)
{
    pl_request_params ask = params ? *params : pl_request_params_default();
    completion c = {.tokenizer = e->tokenizer, .on_text = on_text, .user = user, .err = err};
    int32_t *ids = NULL;
    pl_status s;

    if (!e->tokenizer)
        return pl_error_set(err, PL_ERR_STATE, "complete: the checkpoint has no tokenizer.json");
    if (ask.tokens || ask.on_token)
        return pl_error_set(
            err, PL_ERR_INVALID, "complete: params.%s is set (want NULL: the text is %s)",
            ask.tokens ? "tokens" : "on_token", ask.tokens ? "the prompt" : "told to on_text");
    c.piece_bytes = pl_text_stream_max_bytes(e->tokenizer);
    c.piece = malloc(c.piece_bytes);
    s = c.piece ? encode(e, text, &ids, &ask.n_tokens, err)
                : pl_error_set(err, PL_ERR_NOMEM, "complete: out of memory for a token's text");
    ask.tokens = ids;
    ask.on_token = on_token;
    ask.user = &c;
    if (s == PL_OK)
        s = run(e, &c, &ask, err);
    free(c.piece);
    free(ids);
    return s;
}
