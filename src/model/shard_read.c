/* Direct reads go through a second description of a file that is open already: what is read is the file whose
 * header was checked, whatever its name stands for by now. */
#include "model/shard_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "model/checkpoint_impl.h"

enum {
    MAX_PARTS = 64, /* of one call that reads rows */
    LINE = 64,
    SAMPLED_SHARDS = 64,
    SAMPLED_PAGES = 16, /* of each */
};

pl_status pl_load_mode_parse(const char *name, pl_load_mode *mode, pl_error *err)
{
    static const char *const names[] = {"auto", "direct", "buffered"};

    for (int i = 0; i < 3; i++)
        if (strcmp(name ? name : "auto", names[i]) == 0) {
            *mode = (pl_load_mode)i;
            return PL_OK;
        }
    return pl_error_set(err, PL_ERR_INVALID,
                        "load: unknown way to read (got '%s', want auto, direct or buffered)",
                        name);
}

static pl_status shard_error(const pl_checkpoint *c, uint32_t shard, const char *what, int number,
                             pl_error *err)
{
    return pl_error_set(err, PL_ERR_IO, "%s/%s: %s (got %s)", c->path,
                        pl__names_get(&c->shard_names, shard), what, strerror(number));
}

pl_status pl__shards_unchanged(const pl_checkpoint *c, pl_error *err)
{
    struct stat st;

    for (uint32_t i = 0; i < c->shard_names.n; i++) {
        const struct pl__shard *s = &c->shards[i];

        if (fstat(s->fd, &st) != 0)
            return shard_error(c, i, "cannot look at it", errno, err);
        if (st.st_size != s->size || st.st_mtim.tv_sec != s->modified.tv_sec ||
            st.st_mtim.tv_nsec != s->modified.tv_nsec)
            return pl_error_set(err, PL_ERR_IO,
                                "%s/%s: changed while it was being read (got %" PRId64
                                " bytes, want the %" PRId64 " of before, unmodified)",
                                c->path, pl__names_get(&c->shard_names, i), (int64_t)st.st_size,
                                s->size);
    }
    return PL_OK;
}

/* ---- which way */

static int open_direct(const pl_checkpoint *c, uint32_t shard)
{
    char name[64];

    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", c->shards[shard].fd);
    return open(name, O_RDONLY | O_CLOEXEC | O_DIRECT);
}

/* 0, or why not: some file systems take the flag and refuse the read. */
static int try_direct(const pl_checkpoint *c, uint32_t shard)
{
    _Alignas(PL_READ_ALIGN) uint8_t block[PL_READ_ALIGN];
    int fd = open_direct(c, shard), error = 0;

    if (fd < 0)
        return errno;
    if (pread(fd, block, sizeof block, 0) < 0)
        error = errno;
    close(fd);
    return error;
}

/* Adds pages of a file to those asked for, and those of them that are in memory. */
static void sample(const struct pl__shard *s, int *asked, int *cached)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), n_pages = (uint64_t)s->size / page;
    uint8_t *map;

    if (n_pages == 0)
        return;
    map = mmap(NULL, (size_t)s->size, PROT_READ, MAP_SHARED, s->fd, 0);
    if (map == MAP_FAILED)
        return;
    for (uint64_t i = 0; i < SAMPLED_PAGES; i++) {
        unsigned char in = 0;

        if (mincore(map + i * n_pages / SAMPLED_PAGES * page, page, &in) != 0)
            continue;
        ++*asked;
        *cached += in & 1;
    }
    munmap(map, (size_t)s->size);
}

static bool is_cached(const pl_checkpoint *c)
{
    const uint32_t n = c->shard_names.n, looks = n < SAMPLED_SHARDS ? n : SAMPLED_SHARDS;
    int asked = 0, cached = 0;

    for (uint32_t i = 0; i < looks; i++)
        sample(&c->shards[(uint64_t)i * n / looks], &asked, &cached);
    return asked > 0 && 2 * cached >= asked;
}

pl_status pl__load_decide(const pl_checkpoint *c, pl_load_mode mode, bool *direct,
                          const char **reason, pl_error *err)
{
    int error = 0;
    uint32_t shard;

    PL_TRY(pl__shards_unchanged(c, err));
    *direct = false;
    *reason = "asked for";
    if (mode == PL_LOAD_BUFFERED)
        return PL_OK;
    for (shard = 0; shard < c->shard_names.n && error == 0; shard++)
        error = try_direct(c, shard);
    if (error && mode == PL_LOAD_DIRECT)
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "%s/%s: its file system has no direct reads (got %s, want --load "
                            "buffered or auto)",
                            c->path, pl__names_get(&c->shard_names, shard - 1), strerror(error));
    if (error) {
        *reason = "the file system has no direct reads";
        return PL_OK;
    }
    if (mode == PL_LOAD_AUTO && is_cached(c)) {
        *reason = "the files are in the page cache";
        return PL_OK;
    }
    if (mode == PL_LOAD_AUTO)
        *reason = "the files are not in the page cache";
    *direct = true;
    return PL_OK;
}

/* ---- reading */

uint64_t pl_reader_buffer_bytes(uint64_t n)
{
    return (n + 3 * PL_READ_ALIGN - 1) / PL_READ_ALIGN * PL_READ_ALIGN;
}

void pl_reader_close(pl_reader *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
}

pl_status pl_reader_direct(pl_reader *r, const pl_checkpoint_tensor *tensor, uint64_t at, size_t n,
                           const uint8_t **data, pl_error *err)
{
    const uint64_t from = tensor->begin + at, first = from / PL_READ_ALIGN * PL_READ_ALIGN;
    const uint64_t end = (from + n + PL_READ_ALIGN - 1) / PL_READ_ALIGN * PL_READ_ALIGN;
    const size_t wanted = (size_t)(from - first) + n;

    PL_CHECK(at <= tensor->bytes && n <= tensor->bytes - at, err,
             "%s: read outside the tensor (got %" PRIu64 " + %zu, want at most %" PRIu64 ")",
             tensor->name, at, n, tensor->bytes);
    if (r->fd < 0 || r->shard != tensor->shard) {
        pl_reader_close(r);
        r->shard = tensor->shard;
        r->fd = open_direct(r->checkpoint, (uint32_t)tensor->shard);
        if (r->fd < 0)
            return shard_error(r->checkpoint, (uint32_t)tensor->shard,
                               "cannot open for direct reads", errno, err);
    }
    *data = r->buffer + (from - first);
    for (size_t done = 0; done < wanted;) {
        ssize_t got =
            pread(r->fd, r->buffer + done, (size_t)(end - first) - done, (off_t)(first + done));
        if (got < 0 && errno == EINTR)
            continue;
        /* A part of a block is the end of the file. */
        if (got <= 0 || (got % PL_READ_ALIGN != 0 && done + (size_t)got < wanted))
            return pl_error_set(
                err, PL_ERR_IO, "%s/%s: %s: cannot read at byte %" PRIu64 " (got %s)",
                r->checkpoint->path, pl_checkpoint_shard_name(r->checkpoint, tensor->shard),
                tensor->name, first + done, got < 0 ? strerror(errno) : "end of file");
        done += (size_t)got;
    }
    return PL_OK;
}

/* ---- rows through the page cache */

uint64_t pl_reader_row_gap(uint64_t row_bytes)
{
    return row_bytes % PL_READ_ALIGN == 0 ? LINE : 0;
}

/* Where the next bytes go, from `done` of n on: up to MAX_PARTS rows, the first of which may have begun. */
static int list_rows(struct iovec *part, size_t done, size_t n, size_t row_bytes, size_t gap,
                     uint8_t *to)
{
    int n_parts = 0;

    while (done < n && n_parts < MAX_PARTS) {
        const size_t row = done / row_bytes, in_row = done % row_bytes;

        part[n_parts++] = (struct iovec){to + row * (row_bytes + gap) + in_row, row_bytes - in_row};
        done += row_bytes - in_row;
    }
    return n_parts;
}

pl_status pl_reader_rows(const pl_reader *r, const pl_checkpoint_tensor *tensor, uint64_t at,
                         size_t n, size_t row_bytes, size_t gap, uint8_t *to, pl_error *err)
{
    const pl_checkpoint *c = r->checkpoint;
    struct iovec part[MAX_PARTS];

    if (!gap)
        return pl_checkpoint_read(c, tensor, at, to, n, err);
    PL_CHECK(at <= tensor->bytes && n <= tensor->bytes - at && n % row_bytes == 0, err,
             "%s: read outside the tensor or its rows (got %" PRIu64
             " + %zu, want rows of %zu up to "
             "%" PRIu64 ")",
             tensor->name, at, n, row_bytes, tensor->bytes);
    for (size_t done = 0; done < n;) {
        const int n_parts = list_rows(part, done, n, row_bytes, gap, to);
        const ssize_t got =
            preadv(c->shards[tensor->shard].fd, part, n_parts, (off_t)(tensor->begin + at + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return pl_error_set(
                err, PL_ERR_IO, "%s/%s: %s: cannot read at byte %" PRIu64 " (got %s)", c->path,
                pl_checkpoint_shard_name(c, tensor->shard), tensor->name, tensor->begin + at + done,
                got < 0 ? strerror(errno) : "end of file");
        done += (size_t)got;
    }
    return PL_OK;
}
