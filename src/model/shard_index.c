/* model.safetensors.index.json: {"metadata": {..}, "weight_map": {TENSOR: FILE, ..}}, tens of megabytes for
 * large models, hence pulled and not built. Whether the shards agree is found while they are read. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file_text.h"
#include "model/checkpoint_impl.h"
#include "model/json_pull.h"
#include "model/safetensors.h"

/* A shard lies in the folder itself: a path would reach files that are not the checkpoint's. */
static bool is_plain_name(const char *file)
{
    return file[0] && !strchr(file, '/') && strcmp(file, ".") != 0 && strcmp(file, "..") != 0;
}

static pl_status read_mapping(pl_checkpoint *c, pl_json *j)
{
    char tensor[PL_SAFETENSORS_NAME_BYTES], file[PL_FILE_NAME_BYTES];
    size_t tensor_length, file_length, at = pl__json_here(j);
    uint32_t number, shard;
    bool added, new_shard;
    pl_status s;

    s = pl__json_key(j, tensor, sizeof tensor, &tensor_length);
    if (s != PL_OK) {
        pl_error_prefix(j->err, "weight_map");
        return s;
    }
    s = pl__json_text(j, file, sizeof file, &file_length);
    if (s == PL_OK && !is_plain_name(file))
        s = pl__json_fail(j, PL_ERR_CORRUPT, at, "not a file of the folder (got '%s')", file);
    if (s == PL_OK)
        s = pl__checkpoint_add(c, PL_INDEX_FILE, tensor, tensor_length, &number, &added, j->err);
    if (s == PL_OK && !added)
        s = pl__json_fail(j, PL_ERR_CORRUPT, at, "tensor stands twice");
    if (s == PL_OK &&
        pl__names_add(&c->shard_names, file, file_length, &shard, &new_shard) != PL_OK)
        s = pl_error_set(j->err, PL_ERR_NOMEM, "no memory for file names");
    if (s == PL_OK && c->shard_names.n > PL_MAX_SHARDS)
        s = pl__json_fail(j, PL_ERR_CORRUPT, at, "too many files (want at most %d)", PL_MAX_SHARDS);
    if (s != PL_OK) {
        pl_error_prefix(j->err, "weight_map: %s", tensor);
        return s;
    }
    c->tensors[number].shard = shard;
    return PL_OK;
}

static pl_status read_weight_map(pl_checkpoint *c, pl_json *j)
{
    uint64_t n = 0;
    bool more;

    PL_TRY(pl__json_take(j, '{'));
    for (;;) {
        PL_TRY(pl__json_next(j, '}', &n, &more));
        if (!more)
            return PL_OK;
        PL_TRY(read_mapping(c, j));
    }
}

/* total_size is informative: writers count in their own ways, so it makes a note at most. */
static pl_status read_metadata(pl_checkpoint *c, pl_json *j)
{
    char key[256];
    uint64_t n = 0;
    bool more;

    if (pl__json_peek(j) != '{')
        return pl__json_skip(j);
    PL_TRY(pl__json_take(j, '{'));
    for (;;) {
        PL_TRY(pl__json_next(j, '}', &n, &more));
        if (!more)
            return PL_OK;
        PL_TRY(pl__json_key(j, key, sizeof key, NULL));
        int c0 = pl__json_peek(j);
        if (strcmp(key, "total_size") == 0 && c0 >= '0' && c0 <= '9') {
            pl_json before = *j;
            before.err = NULL;
            if (pl__json_whole(&before, &c->total_size) == PL_OK) {
                j->at = before.at;
                continue;
            }
            c->total_size = 0;
        }
        PL_TRY(pl__json_skip(j));
    }
}

static pl_status read_members(pl_checkpoint *c, pl_json *j)
{
    bool more, has_map = false, has_metadata = false;
    uint64_t n = 0;
    char key[256];

    PL_TRY(pl__json_take(j, '{'));
    for (;;) {
        PL_TRY(pl__json_next(j, '}', &n, &more));
        if (!more)
            break;
        const size_t at = pl__json_here(j);
        PL_TRY(pl__json_key(j, key, sizeof key, NULL));
        bool *seen = strcmp(key, "weight_map") == 0 ? &has_map
                     : strcmp(key, "metadata") == 0 ? &has_metadata
                                                    : NULL;
        if (seen && *seen)
            return pl__json_fail(j, PL_ERR_CORRUPT, at, "%s: key stands twice", key);
        if (seen)
            *seen = true;
        PL_TRY(seen == &has_map        ? read_weight_map(c, j)
               : seen == &has_metadata ? read_metadata(c, j)
                                       : pl__json_skip(j));
    }
    PL_TRY(pl__json_end(j));
    if (c->names.n == 0)
        return pl_error_set(j->err, PL_ERR_CORRUPT, "weight_map: missing or empty");
    return PL_OK;
}

pl_status pl__checkpoint_parse_index(pl_checkpoint *c, const char *name, const char *text,
                                     size_t length, pl_error *err)
{
    pl_json j = {.text = text, .length = length, .err = err};
    pl_status s = read_members(c, &j);

    if (s != PL_OK)
        pl_error_prefix(err, "%s", name);
    return s;
}

pl_status pl__checkpoint_read_index(pl_checkpoint *c, bool *found, pl_error *err)
{
    char file[4096], *text = NULL;
    size_t length = 0;
    pl_error reason;
    pl_status s;

    *found = false;
    PL_TRY(pl__checkpoint_file(c, PL_INDEX_FILE, file, sizeof file, err));
    s = pl_file_text_read(file, PL_MAX_INDEX_BYTES, &text, &length, &reason);
    if (s == PL_ERR_NOT_FOUND)
        return PL_OK;
    if (s != PL_OK)
        return pl_error_set(err, s, "%s", reason.msg);
    *found = true;
    if (s == PL_OK)
        s = pl__checkpoint_parse_index(c, file, text, length, err);
    free(text);
    return s;
}
