/* Digests: one pass over the data in file order collects a hash per tensor, one over the names in sorted
 * order makes the result. */
#include "model/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/error.h"

enum { BUFFER_BYTES = 1 << 20 };

static const char checkpoint_tag[] = "plimsoll checkpoint digest 1\n";
static const char header_tag[] = "plimsoll header digest 1\n";

struct item {
    pl_checkpoint_tensor tensor;
    XXH128_canonical_t hash; /* of the bytes */
};

struct job {
    const pl_checkpoint *checkpoint;
    struct item *items;
    size_t n;
    XXH3_state_t *state;
    uint8_t *buffer;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->tensor.name, ((const struct item *)b)->tensor.name);
}

static int by_file(const void *a, const void *b)
{
    const pl_checkpoint_tensor *x = &((const struct item *)a)->tensor;
    const pl_checkpoint_tensor *y = &((const struct item *)b)->tensor;

    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void add_u32(XXH3_state_t *state, uint32_t v)
{
    const uint8_t b[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};

    XXH3_128bits_update(state, b, sizeof b);
}

static void add_text(XXH3_state_t *state, const char *text)
{
    add_u32(state, (uint32_t)strlen(text));
    XXH3_128bits_update(state, text, strlen(text));
}

static void combine(struct job *j, bool with_bytes, pl_digest *digest)
{
    const char *tag = with_bytes ? checkpoint_tag : header_tag;
    XXH128_canonical_t canonical;

    qsort(j->items, j->n, sizeof *j->items, by_name);
    XXH3_128bits_reset(j->state);
    XXH3_128bits_update(j->state, tag, strlen(tag));
    for (size_t i = 0; i < j->n; i++) {
        const pl_checkpoint_tensor *t = &j->items[i].tensor;
        add_text(j->state, t->name);
        add_text(j->state, pl_dtype_name(t->dtype));
        add_u32(j->state, (uint32_t)t->rank);
        for (int32_t d = 0; d < t->rank; d++) {
            add_u32(j->state, (uint32_t)t->shape[d]);
            add_u32(j->state, (uint32_t)((uint64_t)t->shape[d] >> 32));
        }
        if (with_bytes)
            XXH3_128bits_update(j->state, j->items[i].hash.digest, sizeof j->items[i].hash.digest);
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(j->state));
    for (size_t i = 0; i < sizeof canonical.digest; i++)
        snprintf(digest->text + 2 * i, 3, "%02x", canonical.digest[i]);
}

static pl_status hash_bytes(struct job *j, pl_error *err)
{
    uint64_t done = 0, total = 0;

    for (size_t i = 0; i < j->n; i++)
        total += j->items[i].tensor.bytes;
    qsort(j->items, j->n, sizeof *j->items, by_file);
    pl_checkpoint_report(j->checkpoint, 0, total);
    for (size_t i = 0; i < j->n; i++) {
        struct item *item = &j->items[i];
        XXH3_128bits_reset(j->state);
        for (uint64_t at = 0; at < item->tensor.bytes;) {
            uint64_t left = item->tensor.bytes - at;
            size_t n = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
            PL_TRY(pl_checkpoint_read(j->checkpoint, &item->tensor, at, j->buffer, n, err));
            XXH3_128bits_update(j->state, j->buffer, n);
            at += n;
            done += n;
            pl_checkpoint_report(j->checkpoint, done, total);
        }
        XXH128_canonicalFromHash(&item->hash, XXH3_128bits_digest(j->state));
    }
    return PL_OK;
}

static pl_status run(const pl_checkpoint *checkpoint, bool with_bytes, pl_digest *digest,
                     pl_error *err)
{
    struct job j = {.checkpoint = checkpoint, .n = (size_t)pl_checkpoint_n_tensors(checkpoint)};
    pl_status s = PL_OK;

    j.items = malloc((j.n ? j.n : 1) * sizeof *j.items);
    j.state = XXH3_createState();
    j.buffer = with_bytes ? malloc(BUFFER_BYTES) : NULL;
    if (!j.items || !j.state || (with_bytes && !j.buffer))
        s = pl_error_set(err, PL_ERR_NOMEM, "%s: no memory for the digest of %zu tensors",
                         pl_checkpoint_path(checkpoint), j.n);
    for (size_t i = 0; s == PL_OK && i < j.n; i++)
        j.items[i].tensor = pl_checkpoint_tensor_at(checkpoint, (int64_t)i);
    if (s == PL_OK && with_bytes)
        s = hash_bytes(&j, err);
    if (s == PL_OK)
        combine(&j, with_bytes, digest);
    XXH3_freeState(j.state);
    free(j.buffer);
    free(j.items);
    return s;
}

pl_status pl_checkpoint_header_digest(const pl_checkpoint *checkpoint, pl_digest *digest,
                                      pl_error *err)
{
    return run(checkpoint, false, digest, err);
}

pl_status pl_checkpoint_digest(const pl_checkpoint *checkpoint, pl_digest *digest, pl_error *err)
{
    return run(checkpoint, true, digest, err);
}
