/* What a checkpoint that was opened holds: its parts, its tensors one by one or in the order of the list, their bytes.
 *
 * Nothing is checked again but what a caller asks for: opening has compared everything with the list. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "model/checkpoint_impl.h"

/* One read; larger ones gain nothing and would make progress reports rare. */
enum { READ_BYTES = 8 << 20 };

const char *pl_checkpoint_path(const pl_checkpoint *c)
{
    return c->path;
}

const pl_config *pl_checkpoint_config(const pl_checkpoint *c)
{
    return &c->config;
}

const pl_storage *pl_checkpoint_storage(const pl_checkpoint *c)
{
    return &c->storage;
}

pl_drafter pl_checkpoint_drafter(const pl_checkpoint *c, const char **reason)
{
    if (reason)
        *reason = c->no_drafts;
    return c->drafter;
}

int64_t pl_checkpoint_n_tensors(const pl_checkpoint *c)
{
    return c->names.n;
}

pl_checkpoint_tensor pl_checkpoint_tensor_at(const pl_checkpoint *c, int64_t index)
{
    const struct pl__tensor *t = &c->tensors[index];
    pl_checkpoint_tensor out = {
        .name = pl__names_get(&c->names, (uint32_t)index),
        .role = (pl_tensor_role)t->role,
        .dtype = (pl_dtype)t->dtype,
        .rank = t->rank,
        .shard = (int32_t)t->shard,
        .begin = c->shards[t->shard].data_begin + t->begin,
        .bytes = t->bytes,
    };

    memcpy(out.shape, t->shape, sizeof out.shape);
    return out;
}

int32_t pl_checkpoint_n_shards(const pl_checkpoint *c)
{
    return (int32_t)c->shard_names.n;
}

const char *pl_checkpoint_shard_name(const pl_checkpoint *c, int32_t shard)
{
    return pl__names_get(&c->shard_names, (uint32_t)shard);
}

int32_t pl_checkpoint_n_notes(const pl_checkpoint *c)
{
    return c->n_notes;
}

const char *pl_checkpoint_note(const pl_checkpoint *c, int32_t index)
{
    return c->notes[index];
}

struct each {
    const pl_checkpoint *c;
    uint32_t at;
    pl_checkpoint_visit *visit;
    void *user;
    pl_error *err;
    pl_status status;
};

static bool each_spec(void *user, const pl_tensor_spec *spec)
{
    struct each *e = user;
    pl_checkpoint_tensor tensor;
    pl_tensor_spec actual = *spec;

    assert(e->at < e->c->n_in_order);
    tensor = pl_checkpoint_tensor_at(e->c, e->c->in_order[e->at++]);
    actual.dtype = tensor.dtype;
    e->status = e->visit(e->user, &actual, &tensor, e->err);
    return e->status == PL_OK;
}

pl_status pl_checkpoint_each(const pl_checkpoint *c, pl_checkpoint_visit *visit, void *user,
                             pl_error *err)
{
    struct each e = {c, 0, visit, user, err, PL_OK};

    (void)pl__checkpoint_walk(c, each_spec, &e);
    return e.status;
}

/* ---- data */

bool pl_checkpoint_has_data(const pl_checkpoint *c)
{
    return !c->headers_only;
}

pl_status pl_checkpoint_read(const pl_checkpoint *c, const pl_checkpoint_tensor *tensor,
                             uint64_t from, void *to, size_t bytes, pl_error *err)
{
    const int fd = c->shards[tensor->shard].fd;

    PL_CHECK(from <= tensor->bytes && bytes <= tensor->bytes - from, err,
             "%s: read outside the tensor (got %" PRIu64 " + %zu, want at most %" PRIu64 ")",
             tensor->name, from, bytes, tensor->bytes);
    if (c->headers_only)
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "%s: checkpoint has shapes only, made by 'plimsoll synth "
                            "--headers-only' (got no data, want weights)",
                            c->path);
    for (size_t done = 0; done < bytes;) {
        size_t want = bytes - done < READ_BYTES ? bytes - done : READ_BYTES;
        ssize_t got = pread(fd, (char *)to + done, want, (off_t)(tensor->begin + from + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return pl_error_set(
                err, PL_ERR_IO, "%s/%s: %s: cannot read at byte %" PRIu64 " (got %s)", c->path,
                pl_checkpoint_shard_name(c, tensor->shard), tensor->name,
                tensor->begin + from + done, got < 0 ? strerror(errno) : "end of file");
        done += (size_t)got;
    }
    return PL_OK;
}

void pl_checkpoint_on_progress(pl_checkpoint *c, pl_checkpoint_progress *progress, void *user)
{
    c->progress = progress;
    c->progress_user = user;
}

void pl_checkpoint_report(const pl_checkpoint *c, uint64_t done, uint64_t total)
{
    if (c->progress)
        c->progress(c->progress_user, done, total);
}
