/* Writing a synthetic checkpoint: shard after shard, each cut into runs of about 1 MiB that any worker
 * makes and puts in place. A run depends on nothing but its place, so neither the number of threads nor
 * their order can show in the bytes. */
#include "model/synth.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/pool.h"
#include "model/synth_folder.h"
#include "model/synth_layout.h"
#include "model/synth_recipe.h"

enum {
    RUN_BYTES = 1 << 20,
    DISK_BLOCK = 4096,           /* what a file's last part may cost beyond its bytes */
    DISK_RESERVE = 1 << 20,      /* folder and metadata */
    SMALL_SHARD = 4 * RUN_BYTES, /* below this, more threads cost more than they give */
};

struct pl_synth {
    pl_config config;
    pl_synth_recipe recipe;
    pl_synth_layout layout;
    char *config_text;
    size_t config_bytes;
};

pl_status pl_synth_create(const pl_synth_config_options *options, uint64_t seed, pl_synth **out,
                          pl_error *err)
{
    pl_synth *s = calloc(1, sizeof *s);
    pl_storage storage;
    pl_status status;

    *out = NULL;
    if (!s)
        return pl_error_set(err, PL_ERR_NOMEM, "synth: out of memory");
    status = pl_synth_config_create(options, &s->config_text, &s->config_bytes, &s->config, err);
    if (status == PL_OK) {
        storage = pl_storage_of_config(&s->config);
        pl_synth_recipe_init(&s->recipe, &s->config, seed);
        status = pl_synth_layout_init(&s->layout, &s->config, &storage, err);
    }
    if (status != PL_OK) {
        pl_synth_destroy(s);
        return status;
    }
    *out = s;
    return PL_OK;
}

void pl_synth_destroy(pl_synth *s)
{
    if (!s)
        return;
    pl_synth_layout_fini(&s->layout);
    free(s->config_text);
    free(s);
}

size_t pl_synth_n_tensors(const pl_synth *s)
{
    return s->layout.n_tensors;
}

size_t pl_synth_n_shards(const pl_synth *s)
{
    return s->layout.n_shards;
}

uint64_t pl_synth_data_bytes(const pl_synth *s)
{
    return s->layout.data_bytes;
}

/* ---- one shard's data */

struct job {
    const pl_synth *synth;
    const pl_synth_write_options *options;
    const pl_synth_shard *shard;
    const char *path; /* of the folder */
    int fd;
    uint64_t data_at;    /* where the shard's data begins */
    uint64_t *first_run; /* of each tensor, and the number of all runs behind the last */
    char *buffer;        /* buffer_bytes per worker */
    size_t buffer_bytes;
    pthread_mutex_t lock; /* for what follows */
    uint64_t bytes_done;  /* of all shards */
    size_t shards_done;
    pl_status status; /* the first failure */
    pl_error err;
    atomic_bool stop; /* set with it */
};

/* Elements of a run: as many units as RUN_BYTES holds, at least one. */
static uint64_t run_elements(const pl_synth *s, const pl_tensor_spec *spec)
{
    const uint64_t unit = pl_synth_recipe_unit(&s->recipe, spec);
    const uint64_t n_units = RUN_BYTES / pl_dtype_bytes(spec->dtype) / unit;

    return n_units ? n_units * unit : unit;
}

static uint64_t n_elements(const pl_synth_tensor *t)
{
    return (t->end - t->begin) / pl_dtype_bytes(t->spec.dtype);
}

static void fail_job(struct job *j, pl_status status, const pl_error *err)
{
    pthread_mutex_lock(&j->lock);
    if (j->status == PL_OK) {
        j->status = status;
        j->err = *err;
    }
    pthread_mutex_unlock(&j->lock);
    atomic_store(&j->stop, true);
}

static void report_progress(struct job *j, uint64_t bytes)
{
    bool go_on = true;
    pl_error err;

    pthread_mutex_lock(&j->lock);
    j->bytes_done += bytes;
    if (j->options->progress)
        go_on = j->options->progress(j->options->user, j->bytes_done, j->shards_done);
    pthread_mutex_unlock(&j->lock);
    if (!go_on) {
        pl_error_set(&err, PL_ERR_CANCELLED, "%s: interrupted, the checkpoint is not complete",
                     j->path);
        fail_job(j, PL_ERR_CANCELLED, &err);
    }
}

/* The tensor that has this run: the last one whose first run is not above it. */
static size_t tensor_of_run(const struct job *j, uint64_t run)
{
    size_t low = 0, high = j->shard->n;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (j->first_run[middle] <= run)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void make_run(void *user, int64_t run, int worker)
{
    struct job *j = user;
    const size_t i = tensor_of_run(j, (uint64_t)run);
    const pl_synth_tensor *t = &j->synth->layout.tensor[j->shard->first + i];
    const size_t element_bytes = pl_dtype_bytes(t->spec.dtype);
    const uint64_t n_run = run_elements(j->synth, &t->spec);
    const uint64_t first = ((uint64_t)run - j->first_run[i]) * n_run;
    const uint64_t left = n_elements(t) - first, n = left < n_run ? left : n_run;
    char *buffer = j->buffer + (size_t)worker * j->buffer_bytes;
    pl_status status;
    pl_error err;

    if (atomic_load(&j->stop))
        return;
    pl_synth_recipe_fill(&j->synth->recipe, &t->spec, first, n, buffer);
    status = pl_synth_write_all(j->fd, j->path, buffer, n * element_bytes,
                                j->data_at + t->begin + first * element_bytes, &err);
    if (status == PL_OK)
        report_progress(j, n * element_bytes);
    else
        fail_job(j, status, &err);
}

/* Cuts the shard into runs and sizes the workers' buffers. */
static pl_status plan_runs(struct job *j, int n_workers, pl_error *err)
{
    uint64_t n_runs = 0, largest = 0;

    j->first_run = calloc(j->shard->n + 1, sizeof *j->first_run);
    if (!j->first_run)
        return pl_error_set(err, PL_ERR_NOMEM, "synth: out of memory");
    for (size_t i = 0; i < j->shard->n; i++) {
        const pl_synth_tensor *t = &j->synth->layout.tensor[j->shard->first + i];
        const uint64_t n = run_elements(j->synth, &t->spec);
        const uint64_t bytes = n * pl_dtype_bytes(t->spec.dtype);

        j->first_run[i] = n_runs;
        n_runs += (n_elements(t) + n - 1) / n;
        largest = bytes > largest ? bytes : largest;
    }
    j->first_run[j->shard->n] = n_runs;
    j->buffer_bytes = (largest + 63) & ~(size_t)63;
    j->buffer = aligned_alloc(64, (size_t)n_workers * j->buffer_bytes);
    if (!j->buffer)
        return pl_error_set(err, PL_ERR_NOMEM, "synth: out of memory");
    return PL_OK;
}

/* Claims the disk space at once, where the file system can: a full disk shows before the work. */
static pl_status claim_space(const struct job *j, uint64_t bytes, pl_error *err)
{
    if (fallocate(j->fd, 0, 0, (off_t)bytes) != 0 &&
        (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
        return pl_error_set(err, PL_ERR_IO, "%s: cannot get disk space for a shard (got %s)",
                            j->path, strerror(errno));
    return PL_OK;
}

static pl_status fill_shard(struct job *j, pl_pool *pool, pl_error *err)
{
    pl_status status = plan_runs(j, pl_pool_n_workers(pool), err);

    if (status == PL_OK)
        status = claim_space(j, j->data_at + j->shard->data_bytes, err);
    if (status == PL_OK && j->shard->data_bytes < SMALL_SHARD)
        for (uint64_t run = 0; run < j->first_run[j->shard->n]; run++)
            make_run(j, (int64_t)run, 0);
    else if (status == PL_OK)
        pl_pool_run(pool, (int64_t)j->first_run[j->shard->n], make_run, j);
    free(j->buffer);
    free(j->first_run);
    j->buffer = NULL;
    j->first_run = NULL;
    if (status == PL_OK && j->status != PL_OK) {
        status = j->status;
        if (err)
            *err = j->err;
    }
    return status;
}

/* A hole of the data's size. */
static pl_status stretch_shard(const struct job *j, pl_error *err)
{
    if (ftruncate(j->fd, (off_t)(j->data_at + j->shard->data_bytes)) != 0)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot make a sparse file (got %s)", j->path,
                            strerror(errno));
    return PL_OK;
}

static pl_status write_shard(struct job *j, int folder, size_t shard, pl_pool *pool, pl_error *err)
{
    const pl_synth_layout *layout = &j->synth->layout;
    pl_status status;
    char *header;
    size_t n;

    j->shard = &layout->shard[shard];
    PL_TRY(pl_synth_layout_header(layout, shard, j->options->headers_only, &header, &n, err));
    j->data_at = n;
    status = pl_synth_folder_create_file(folder, j->path, &j->fd, err);
    if (status != PL_OK) {
        free(header);
        return status;
    }
    status = pl_synth_write_all(j->fd, j->path, header, n, 0, err);
    free(header);
    if (status == PL_OK)
        status = pool ? fill_shard(j, pool, err) : stretch_shard(j, err);
    if (status != PL_OK) {
        pl_synth_folder_drop_file(folder, j->fd);
        return status;
    }
    return pl_synth_folder_finish_file(folder, j->path, j->fd, j->shard->file, err);
}

/* ---- the folder */

/* What the new files take on the disk. */
static pl_status measure(const pl_synth *s, const pl_synth_write_options *o, size_t index_bytes,
                         uint64_t *bytes, pl_error *err)
{
    *bytes = s->config_bytes + index_bytes + 2 * DISK_BLOCK + DISK_RESERVE;
    for (size_t i = 0; i < s->layout.n_shards; i++) {
        char *header;
        size_t n;

        PL_TRY(pl_synth_layout_header(&s->layout, i, o->headers_only, &header, &n, err));
        free(header);
        *bytes += n + DISK_BLOCK + (o->headers_only ? 0 : s->layout.shard[i].data_bytes);
    }
    return PL_OK;
}

/* No pool for sparse files: there is nothing to make. */
static pl_status create_pool(const pl_synth_write_options *o, pl_pool **pool, pl_error *err)
{
    *pool = NULL;
    if (o->headers_only)
        return PL_OK;
    return pl_pool_create(&(pl_pool_params){.n_workers = o->n_threads, .no_pin = true}, pool, err);
}

static pl_status write_shards(struct job *j, int folder, pl_error *err)
{
    pl_status status;
    pl_pool *pool;

    PL_TRY(create_pool(j->options, &pool, err));
    status = PL_OK;
    for (size_t i = 0; i < j->synth->layout.n_shards && status == PL_OK; i++) {
        status = write_shard(j, folder, i, pool, err);
        j->shards_done++;
    }
    pl_pool_destroy(pool);
    return status;
}

/* The order matters: config.json tells whose folder this is, the index says that it is complete. */
static pl_status write_files(const pl_synth *s, int folder, const char *path,
                             const pl_synth_write_options *o, const char *index, size_t index_bytes,
                             pl_error *err)
{
    struct job j = {.synth = s, .options = o, .path = path};

    PL_TRY(pl_synth_folder_put(folder, path, PL_SYNTH_CONFIG_FILE, s->config_text, s->config_bytes,
                               err));
    pthread_mutex_init(&j.lock, NULL);
    atomic_init(&j.stop, false);
    pl_status status = write_shards(&j, folder, err);
    pthread_mutex_destroy(&j.lock);
    PL_TRY(status);
    PL_TRY(pl_synth_folder_put(folder, path, PL_SYNTH_INDEX_FILE, index, index_bytes, err));
    if (fsync(folder) != 0 && errno != EINVAL && errno != ENOTSUP)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot write the folder (got %s)", path,
                            strerror(errno));
    return PL_OK;
}

pl_status pl_synth_write(const pl_synth *s, const char *path, const pl_synth_write_options *o,
                         pl_error *err)
{
    uint64_t need_bytes;
    pl_status status;
    size_t index_bytes;
    char *index;
    int folder;

    PL_TRY(pl_synth_layout_index(&s->layout, &index, &index_bytes, err));
    status = measure(s, o, index_bytes, &need_bytes, err);
    if (status == PL_OK)
        status = pl_synth_folder_open(path, s->config_text, s->config_bytes, need_bytes, o->force,
                                      &folder, err);
    if (status == PL_OK) {
        status = write_files(s, folder, path, o, index, index_bytes, err);
        close(folder);
    }
    free(index);
    return status;
}
