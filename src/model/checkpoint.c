/* Opening a checkpoint folder: what is there, and that it is whole.
 *
 * The order is: config, index (announces tensors and their shards), shards (say what the tensors are),
 * check against the list. A folder without an index has one file, whose header announces and says.
 * What was found is handed out by checkpoint_access.c. */
#include "model/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/utf8.h"
#include "model/checkpoint_impl.h"

void pl__checkpoint_note(pl_checkpoint *c, const char *format, ...)
{
    va_list args;

    if (c->n_notes == PL_MAX_NOTES)
        return;
    va_start(args, format);
    vsnprintf(c->notes[c->n_notes], PL_NOTE_BYTES, format, args);
    va_end(args);
    pl_utf8_make_printable(c->notes[c->n_notes++]);
}

pl_status pl__checkpoint_file(const pl_checkpoint *c, const char *file, char *out, size_t capacity,
                              pl_error *err)
{
    int n = snprintf(out, capacity, "%s/%s", c->path, file);

    if (n < 0 || (size_t)n >= capacity)
        return pl_error_set(err, PL_ERR_INVALID, "%s: path is too long", c->path);
    return PL_OK;
}

/* Blocks have fewer than 64 tensors besides those of their experts. */
static uint64_t most_tensors(const pl_config *config)
{
    return (uint64_t)(config->n_layers + PL_MAX_MTP + 1) * (64 + 6 * (uint64_t)config->n_experts);
}

pl_status pl__checkpoint_add(pl_checkpoint *c, const char *where, const char *name, size_t length,
                             uint32_t *number, bool *added, pl_error *err)
{
    if (pl__names_add(&c->names, name, length, number, added) != PL_OK)
        return pl_error_set(err, PL_ERR_NOMEM, "%s: no memory for tensor names", where);
    if (c->names.n > most_tensors(&c->config))
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "%s: more tensors than the configuration can have (want at most "
                            "%" PRIu64 ")",
                            where, most_tensors(&c->config));
    if (*number >= c->max_tensors) {
        uint32_t max = c->max_tensors ? 2 * c->max_tensors : 128;
        struct pl__tensor *tensors = realloc(c->tensors, max * sizeof *tensors);
        if (!tensors)
            return pl_error_set(err, PL_ERR_NOMEM, "%s: no memory for %" PRIu32 " tensors", where,
                                max);
        c->tensors = tensors;
        c->max_tensors = max;
    }
    if (*added)
        c->tensors[*number] = (struct pl__tensor){0};
    return PL_OK;
}

/* ---- shards */

struct shard_reader {
    pl_checkpoint *c;
    const char *file;
    uint32_t shard;
};

/* The tensor's entry, after checking that the index agrees. */
static pl_status announced(const struct shard_reader *r, const pl_safetensors_entry *entry,
                           uint32_t *number, pl_error *err)
{
    pl_checkpoint *c = r->c;
    bool added;

    if (!c->is_sharded)
        return pl__checkpoint_add(c, r->file, entry->name, entry->name_length, number, &added, err);
    *number = pl__names_find(&c->names, entry->name, entry->name_length);
    if (*number == PL_NO_NAME)
        return pl_error_set_at(err, PL_ERR_CORRUPT, entry->pos,
                               "%s: %s: tensor is not in " PL_INDEX_FILE " at byte %" PRIu64,
                               r->file, entry->name, entry->pos);
    if (c->tensors[*number].shard != r->shard)
        return pl_error_set_at(err, PL_ERR_CORRUPT, entry->pos,
                               "%s: %s: tensor is in another file than " PL_INDEX_FILE
                               " says (got %s, want %s)",
                               r->file, entry->name, pl__names_get(&c->shard_names, r->shard),
                               pl__names_get(&c->shard_names, c->tensors[*number].shard));
    return PL_OK;
}

static pl_status take_entry(void *user, const pl_safetensors_entry *entry, pl_error *err)
{
    const struct shard_reader *r = user;
    struct pl__tensor *t;
    uint32_t number;

    PL_TRY(announced(r, entry, &number, err));
    t = &r->c->tensors[number];
    if (t->present)
        return pl_error_set_at(err, PL_ERR_CORRUPT, entry->pos,
                               "%s: %s: tensor stands twice at byte %" PRIu64, r->file, entry->name,
                               entry->pos);
    t->present = true;
    t->dtype = (uint8_t)entry->dtype;
    t->rank = entry->rank;
    t->shard = r->shard;
    t->begin = entry->begin;
    t->bytes = entry->end - entry->begin;
    for (int32_t i = 0; i < entry->rank; i++)
        t->shape[i] = entry->shape[i];
    return PL_OK;
}

static pl_status read_shard(pl_checkpoint *c, uint32_t shard, pl_error *err)
{
    const char *name = pl__names_get(&c->shard_names, shard);
    char file[4096];
    struct shard_reader r = {c, file, shard};
    bool headers_only = false;
    struct stat st;
    pl_status s;

    PL_TRY(pl__checkpoint_file(c, name, file, sizeof file, err));
    c->shards[shard].fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (c->shards[shard].fd < 0)
        return pl_error_set(err, errno == ENOENT ? PL_ERR_NOT_FOUND : PL_ERR_IO,
                            "%s: cannot open (got %s%s)", file, strerror(errno),
                            errno == EMFILE ? ", want a higher limit: ulimit -n" : "");
    if (fstat(c->shards[shard].fd, &st) != 0)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot look at it (got %s)", file,
                            strerror(errno));
    c->shards[shard].size = st.st_size;
    c->shards[shard].modified = st.st_mtim;
    s = pl_safetensors_read(file, c->shards[shard].fd, take_entry, &r, &c->shards[shard].data_begin,
                            &headers_only, err);
    c->headers_only |= headers_only;
    return s;
}

static pl_status check_all_present(const pl_checkpoint *c, pl_error *err)
{
    uint32_t n_absent = 0, first = 0;

    for (uint32_t i = c->names.n; i-- > 0;)
        if (!c->tensors[i].present) {
            n_absent++;
            first = i;
        }
    if (n_absent == 0)
        return PL_OK;
    return pl_error_set(err, PL_ERR_CORRUPT,
                        "%s/%s: %s: tensor is missing, though " PL_INDEX_FILE
                        " places it there (%" PRIu32 " missing in all files)",
                        c->path, pl__names_get(&c->shard_names, c->tensors[first].shard),
                        pl__names_get(&c->names, first), n_absent);
}

static pl_status read_shards(pl_checkpoint *c, pl_error *err)
{
    const uint32_t n = c->shard_names.n;

    c->shards = malloc((n ? n : 1) * sizeof *c->shards);
    if (!c->shards) {
        c->shard_names.n = 0; /* close() walks the shards by this count */
        return pl_error_set(err, PL_ERR_NOMEM, "%s: no memory for %" PRIu32 " files", c->path, n);
    }
    for (uint32_t i = 0; i < n; i++)
        c->shards[i] = (struct pl__shard){.fd = -1};
    for (uint32_t i = 0; i < n; i++)
        PL_TRY(read_shard(c, i, err));
    return check_all_present(c, err);
}

static pl_status find_files(pl_checkpoint *c, pl_error *err)
{
    char file[4096];
    uint32_t number;
    bool added;

    PL_TRY(pl__checkpoint_read_index(c, &c->is_sharded, err));
    if (c->is_sharded)
        return PL_OK;
    PL_TRY(pl__checkpoint_file(c, PL_SINGLE_FILE, file, sizeof file, err));
    if (access(file, F_OK) != 0 && errno != ENOENT)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot look at it (got %s)", file,
                            strerror(errno));
    if (access(file, F_OK) != 0)
        return pl_error_set(err, PL_ERR_NOT_FOUND,
                            "%s: no weights (want " PL_INDEX_FILE " or " PL_SINGLE_FILE ")",
                            c->path);
    if (pl__names_add(&c->shard_names, PL_SINGLE_FILE, strlen(PL_SINGLE_FILE), &number, &added) !=
        PL_OK)
        return pl_error_set(err, PL_ERR_NOMEM, "%s: no memory for file names", c->path);
    return PL_OK;
}

/* ---- opening and closing */

static pl_status open_folder(pl_checkpoint *c, pl_error *err)
{
    struct stat st;

    if (stat(c->path, &st) != 0)
        return pl_error_set(err, errno == ENOENT ? PL_ERR_NOT_FOUND : PL_ERR_IO,
                            "%s: cannot open (got %s)", c->path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return pl_error_set(err, PL_ERR_INVALID, "%s: not a checkpoint folder", c->path);
    PL_TRY(pl_config_read(c->path, &c->config, err));
    PL_TRY(find_files(c, err));
    PL_TRY(read_shards(c, err));
    return pl__checkpoint_check(c, err);
}

pl_status pl_checkpoint_open(const char *path, pl_checkpoint **out, pl_error *err)
{
    pl_checkpoint *c = calloc(1, sizeof *c);
    pl_status s;

    *out = NULL;
    if (!c)
        return pl_error_set(err, PL_ERR_NOMEM, "%s: no memory to open it", path);
    pl__names_init(&c->names);
    pl__names_init(&c->shard_names);
    c->path = strdup(path);
    if (c->path)
        s = open_folder(c, err);
    else
        s = pl_error_set(err, PL_ERR_NOMEM, "%s: no memory to open it", path);
    if (s == PL_OK)
        *out = c;
    else
        pl_checkpoint_close(c);
    return s;
}

void pl_checkpoint_close(pl_checkpoint *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; c->shards && i < c->shard_names.n; i++)
        if (c->shards[i].fd >= 0)
            close(c->shards[i].fd);
    free(c->shards);
    free(c->in_order);
    free(c->blocks);
    free(c->tensors);
    pl__names_fini(&c->names);
    pl__names_fini(&c->shard_names);
    free(c->path);
    free(c);
}
