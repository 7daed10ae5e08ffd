/* Answers to plimsoll bench serve: any bytes, cut into any pieces, give one status, one body and one count of events, or one refusal; a
 * body is no longer than what came. */
#include <string.h>

#include "cli/bench_serve.h"
#include "fuzz.h"

typedef struct outcome {
    pl_http_answer answer;
    pl_bench_request request;
    pl_bench_stream stream;
    pl_status status;
    size_t n_body;
    uint64_t hash;
} outcome;

static double no_time(void *user)
{
    return 0;
}

static bool take(void *user, const char *data, size_t n)
{
    outcome *o = user;

    for (size_t i = 0; i < n; i++)
        o->hash = (o->hash ^ (unsigned char)data[i]) * 1099511628211u;
    o->n_body += n;
    (void)pl_bench_stream_push(&o->stream, data, n);
    return true;
}

/* In pieces whose sizes come from `seed`; 0: in one. */
static void push(outcome *o, const char *data, size_t n, uint64_t seed)
{
    pl_error err = {0};

    *o = (outcome){.answer = {.on_body = take}, .stream = {.now = no_time}};
    o->answer.user = o;
    o->stream.request = &o->request;
    for (size_t at = 0, piece; at < n && o->status == PL_OK; at += piece) {
        seed = seed ? seed * 6364136223846793005u + 1442695040888963407u : 0;
        piece = seed ? 1 + (seed >> 40) % 24 : n;
        piece = piece < n - at ? piece : n - at;
        o->status = pl_http_answer_push(&o->answer, data + at, piece, &err);
    }
    if (o->status != PL_OK)
        fuzz_check_error(o->status, &err);
    FUZZ_CHECK(o->n_body <= n && o->request.n_gaps <= n);
    FUZZ_CHECK(memchr(o->request.fingerprint, 0, sizeof o->request.fingerprint));
    free(o->stream.line);
    free(o->request.gaps);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    outcome whole, pieces;

    push(&whole, (const char *)data, size, 0);
    push(&pieces, (const char *)data, size, size + 1);
    FUZZ_CHECK(whole.status == pieces.status && whole.answer.status == pieces.answer.status);
    FUZZ_CHECK(whole.answer.done == pieces.answer.done);
    FUZZ_CHECK(pl_http_answer_is_whole(&whole.answer) == pl_http_answer_is_whole(&pieces.answer));
    FUZZ_CHECK(whole.n_body == pieces.n_body && whole.hash == pieces.hash);
    FUZZ_CHECK(whole.stream.n_events == pieces.stream.n_events);
    FUZZ_CHECK(whole.stream.done == pieces.stream.done &&
               whole.stream.failed == pieces.stream.failed);
    FUZZ_CHECK(whole.request.output_tokens == pieces.request.output_tokens);
    return 0;
}
