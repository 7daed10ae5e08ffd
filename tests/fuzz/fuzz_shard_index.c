/* model.safetensors.index.json: what is accepted places every tensor in a file of the folder. */
#include <string.h>

#include "fuzz.h"
#include "model/checkpoint_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_checkpoint *c = calloc(1, sizeof *c);
    pl_error err = {0};
    pl_status status;

    FUZZ_CHECK(c);
    c->config.n_layers = 1;
    c->config.n_experts = 8;
    pl__names_init(&c->names);
    pl__names_init(&c->shard_names);
    status = pl__checkpoint_parse_index(c, "index.json", (const char *)data, size, &err);
    if (status != PL_OK) {
        fuzz_check_error(status, &err);
        FUZZ_CHECK(err.pos <= size);
    } else {
        FUZZ_CHECK(c->names.n > 0 && c->shard_names.n > 0);
    }
    for (uint32_t i = 0; i < c->shard_names.n; i++)
        FUZZ_CHECK(pl__names_find(&c->shard_names, pl__names_get(&c->shard_names, i),
                                  strlen(pl__names_get(&c->shard_names, i))) == i);
    for (uint32_t i = 0; status == PL_OK && i < c->names.n; i++) {
        const char *name = pl__names_get(&c->names, i), *file;

        FUZZ_CHECK(pl__names_find(&c->names, name, strlen(name)) == i);
        FUZZ_CHECK(c->tensors[i].shard < c->shard_names.n);
        file = pl__names_get(&c->shard_names, c->tensors[i].shard);
        FUZZ_CHECK(file[0] && !strchr(file, '/') && strcmp(file, "..") != 0);
    }
    pl_checkpoint_close(c);
    return 0;
}
