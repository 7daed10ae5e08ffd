/* Where results differ, inside of the model: the same tokens traced under both settings, the two files compared by layer
 * and, within one, in the order of computing.
 *
 * Only level, threads, chunk and checkpoint reach a trace. What company, drafts or the engine's bookkeeping alone changes
 * leaves equal traces, and that is told. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/verify.h"
#include "model/checkpoint.h"
#include "model/trace_file.h"
#include "model/trace_layout.h"

enum { FOLDER_BYTES = 4096, FILE_BYTES = FOLDER_BYTES + 16 };

/* *layout becomes that of the file, for the caller to free. */
static pl_status trace_loaded(const pl_verify_setting *s, const pl_weights *weights,
                              const char *out, const int32_t *tokens, int32_t n,
                              pl_trace_layout *layout, pl_error *err)
{
    const pl_pool_params params = {.n_workers = s->threads};
    const pl_ops *ops;
    pl_level level;
    pl_pool *pool;
    pl_status status;

    PL_TRY(pl_level_parse(s->level, &level, err));
    ops = pl_ops_at(level, PL_MODE_REC);
    PL_CHECK(ops, err, "level: %s is not in this build", s->level);
    PL_TRY(pl_trace_layout_init(layout, pl_weights_config(weights),
                                pl_weights_slots(weights)->has_mtp, ops, n, err));
    PL_TRY(pl_pool_create(&params, &pool, err));
    status = pl_trace_write(out, weights, ops, pool, tokens, n, s->chunk, err);
    pl_pool_destroy(pool);
    return status;
}

static pl_status trace_to(const pl_verify_setting *s, const char *out, const int32_t *tokens,
                          int32_t n, pl_trace_layout *layout, pl_error *err)
{
    pl_checkpoint *checkpoint;
    pl_weights *weights;
    uint64_t bytes;
    void *memory;
    pl_status status;

    PL_TRY(pl_checkpoint_open(s->path, &checkpoint, err));
    bytes = pl_weights_bytes(checkpoint);
    memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    status = memory ? pl_weights_load(checkpoint, memory, &weights, err)
                    : pl_error_set(err, PL_ERR_NOMEM,
                                   "%s: no memory for its weights (got none of %llu bytes)",
                                   s->path, (unsigned long long)bytes);
    pl_checkpoint_close(checkpoint);
    if (status == PL_OK) {
        status = trace_loaded(s, weights, out, tokens, n, layout, err);
        pl_weights_close(weights);
    }
    free(memory);
    return status;
}

/* ---- comparing */

/* Headers name the level, so that tensors may lie elsewhere in the other file. */
typedef struct traces {
    pl_trace_layout layout[2];
    const uint8_t *data[2]; /* mapped */
} traces;

static pl_status map_file(const char *path, uint64_t bytes, const uint8_t **data, pl_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *at = MAP_FAILED;

    if (fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == bytes)
        at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0)
        (void)close(fd);
    if (at == MAP_FAILED)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot be read back (want %llu bytes)", path,
                            (unsigned long long)bytes);
    *data = at;
    return PL_OK;
}

static bool compare_tensor(const traces *t, const pl_trace_tensor *x, const pl_trace_tensor *y,
                           int32_t layer, pl_verify_place *place)
{
    static const uint64_t widths[PL_TRACE_TYPE_COUNT] = {
        [PL_TRACE_I64] = 8, [PL_TRACE_F32] = 4, [PL_TRACE_BF16] = 2};
    const uint64_t width = widths[x->type], bytes = (uint64_t)x->shape[0] * x->row_bytes;
    const uint8_t *data[2] = {t->data[0] + x->offset, t->data[1] + y->offset};
    uint64_t at = 0;

    if (!x->name[0] || memcmp(data[0], data[1], bytes) == 0)
        return false;
    while (memcmp(data[0] + at, data[1] + at, width) == 0)
        at += width;
    place->found = true;
    place->layer = layer;
    snprintf(place->tensor, sizeof place->tensor, "%s", x->name);
    place->element = (int64_t)(at / width);
    place->position = (int64_t)(at / x->row_bytes);
    for (int f = 0; f < 2; f++) {
        uint64_t value = 0;

        memcpy(&value, data[f] + at, width);
        snprintf(place->bits[f], sizeof place->bits[f], "0x%0*llx", (int)(2 * width),
                 (unsigned long long)value);
    }
    return true;
}

static void compare(const traces *t, pl_verify_place *place)
{
    const pl_trace_layout *x = &t->layout[0], *y = &t->layout[1];

    /* The order of computing; sums repeat what the streams say. */
    static const int order[] = {PL_TAP_ATTN_KV, PL_TRACE_ENTRIES,   PL_TRACE_INDEX_ENTRIES,
                                PL_TAP_ATTN_Q,  PL_TAP_ATTN_SCORES, PL_TAP_ATTN_SEL,
                                PL_TAP_ATTN_O,  PL_TAP_ATTN_OUT,    PL_TAP_STREAMS_MID,
                                PL_TAP_FFN_IDS, PL_TAP_FFN_WEIGHTS, PL_TAP_FFN_OUT,
                                PL_TAP_STREAMS};
    static const int behind[] = {PL_TRACE_LOGITS, PL_TRACE_MTP_STREAMS, PL_TRACE_MTP_LOGITS};

    for (int32_t layer = 0; layer < x->n_layers && !place->found; layer++)
        for (size_t i = 0; i < sizeof order / sizeof order[0] && !place->found; i++)
            (void)compare_tensor(t, &x->layer[layer][order[i]], &y->layer[layer][order[i]], layer,
                                 place);
    for (size_t i = 0; i < sizeof behind / sizeof behind[0] && !place->found; i++)
        (void)compare_tensor(t, &x->global[behind[i]], &y->global[behind[i]], -1, place);
}

static bool same_tensor(const pl_trace_tensor *x, const pl_trace_tensor *y)
{
    return strcmp(x->name, y->name) == 0 && x->type == y->type && x->shape[0] == y->shape[0] &&
           x->row_bytes == y->row_bytes;
}

static bool same_shapes(const pl_trace_layout *x, const pl_trace_layout *y)
{
    bool same = x->n_layers == y->n_layers;

    for (int i = 0; i < PL_TRACE_GLOBAL_COUNT; i++)
        same = same && same_tensor(&x->global[i], &y->global[i]);
    for (int32_t l = 0; same && l < x->n_layers; l++)
        for (int i = 0; i < PL_TRACE_PER_LAYER; i++)
            same = same && same_tensor(&x->layer[l][i], &y->layer[l][i]);
    return same;
}

static pl_status compare_files(traces *t, char path[2][FILE_BYTES], pl_verify_place *place,
                               pl_error *err)
{
    pl_status status = PL_OK;

    PL_CHECK(same_shapes(&t->layout[0], &t->layout[1]), err,
             "--against: a checkpoint of other shapes");
    for (int f = 0; f < 2 && status == PL_OK; f++)
        status = map_file(path[f], t->layout[f].file_bytes, &t->data[f], err);
    if (status == PL_OK)
        compare(t, place);
    for (int f = 0; f < 2; f++)
        if (t->data[f])
            (void)munmap((void *)(uintptr_t)t->data[f], t->layout[f].file_bytes);
    return status;
}

pl_status pl_verify_locate(const pl_verify_setting *a, const pl_verify_setting *b,
                           const int32_t *tokens, int32_t n, pl_verify_place *place, pl_error *err)
{
    const char *base = getenv("TMPDIR");
    char folder[FOLDER_BYTES], path[2][FILE_BYTES];
    traces t = {0};
    pl_status status;

    *place = (pl_verify_place){.layer = -1};
    PL_CHECK(snprintf(folder, sizeof folder, "%s/plimsoll-verify-XXXXXX", base ? base : "/tmp") <
                 (int)sizeof folder,
             err, "TMPDIR: too long");
    if (!mkdtemp(folder))
        return pl_error_set(err, PL_ERR_IO, "%s: cannot be created; see TMPDIR", folder);
    for (int f = 0; f < 2; f++)
        snprintf(path[f], sizeof path[f], "%s/%d", folder, f);
    status = trace_to(a, path[0], tokens, n, &t.layout[0], err);
    if (status == PL_OK)
        status = trace_to(b, path[1], tokens, n, &t.layout[1], err);
    if (status == PL_OK)
        status = compare_files(&t, path, place, err);
    for (int f = 0; f < 2; f++)
        pl_trace_layout_fini(&t.layout[f]);
    for (int f = 0; f < 2; f++)
        (void)unlink(path[f]);
    (void)rmdir(folder);
    return status;
}
