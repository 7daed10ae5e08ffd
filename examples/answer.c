/* Goes on from a text: answer MODEL TEXT. README.md shows this program as it is; the tests build it with pkg-config. */
#include <plimsoll/engine.h>
#include <stdio.h>

static void print(void *file, const char *text, size_t n_bytes)
{
    fwrite(text, 1, n_bytes, file);
}

int main(int argc, char **argv)
{
    pl_engine_params params = pl_engine_params_default();
    pl_engine *engine = NULL;
    pl_error err = {0, 0, "want MODEL and TEXT"};
    int ok;

    params.memory_bytes = 1 << 30; /* the line: a plan above it is refused before loading */
    ok = argc == 3 && pl_engine_open(argv[1], &params, &engine, &err) == PL_OK &&
         pl_engine_complete(engine, argv[2], NULL, print, stdout, &err) == PL_OK;
    if (!ok)
        fprintf(stderr, "answer: %s\n", err.msg);
    pl_engine_close(engine);
    return !ok;
}
