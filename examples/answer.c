/* Goes on from a text: answer MODEL TEXT. README.md shows this program as it is; the tests build it with pkg-config. */
#include <plimsoll/engine.h>
#include <stdio.h>
#include <string.h>

static void print_token(void *engine, pl_request *request, const pl_token_event *event)
{
    size_t n;
    const char *text = pl_tokenizer_token(pl_engine_tokenizer(engine), event->token, &n);

    fwrite(text, 1, n, stdout);
    (void)request;
}

int main(int argc, char **argv)
{
    pl_engine_params params = pl_engine_params_default();
    pl_request_params ask = pl_request_params_default();
    pl_error err = {0};
    pl_engine *engine = NULL;
    pl_encoder *encoder = NULL;
    pl_request *request;
    int32_t ids[512];
    size_t n = 0;
    int ok;

    params.max_num_seqs = 1;
    params.max_model_len = 1024;
    params.memory_bytes = (uint64_t)1
                          << 30; /* the line: a plan above it is refused before loading */
    ok = argc == 3 && pl_engine_open(argv[1], &params, &engine, &err) == PL_OK &&
         pl_encoder_create(0, &encoder) == PL_OK &&
         pl_tokenizer_encode(pl_engine_tokenizer(engine), encoder, argv[2], strlen(argv[2]),
                             PL_ENCODE_ADDED_TOKENS, ids + 1, 511, &n, &err) == PL_OK;
    ids[0] = ok ? pl_engine_model_of(engine).bos_token_id : 0;
    ask.tokens = ids;
    ask.n_tokens = n < 511 ? (int32_t)n + 1 : 512;
    ask.max_tokens = 24;
    ask.on_token = print_token;
    ask.user = engine;
    ok = ok && pl_engine_submit(engine, &ask, &request, &err) == PL_OK &&
         pl_engine_run(engine, &err) == PL_OK;
    if (!ok)
        fprintf(stderr, "answer: %s\n", argc == 3 ? err.msg : "want MODEL and TEXT");
    pl_encoder_destroy(encoder);
    pl_engine_close(engine);
    return ok ? 0 : 1;
}
