/* Touching the disk with care: nothing of the user's is overwritten by accident, nothing half-written
 * can pass for a result.
 *
 * An earlier result is known by its config.json: the text is ours down to the indentation, no published
 * checkpoint has the same bytes. A marker inside the files would cost the byte-for-byte equality with
 * the oracle. */
#include "model/synth_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"

static pl_status io_error(pl_error *err, const char *path, const char *what)
{
    return pl_error_set(err, PL_ERR_IO, "%s: %s (got %s)", path, what, strerror(errno));
}

/* "model-00001-of-00046.safetensors", with any number of digits */
static bool is_shard(const char *name)
{
    int end = 0;

    return sscanf(name, "model-%*[0-9]-of-%*[0-9].safetensors%n", &end) == 0 && end > 0 &&
           name[end] == 0;
}

static bool is_ours(const char *name)
{
    return is_shard(name) || strcmp(name, PL_SYNTH_CONFIG_FILE) == 0 ||
           strcmp(name, PL_SYNTH_INDEX_FILE) == 0 || strcmp(name, PL_SYNTH_TEMPORARY) == 0;
}

/* ---- what lies there */

struct survey {
    int n_entries; /* leftovers not counted */
    char example[256];
    uint64_t freed_bytes; /* on disk, by removing what is_ours */
};

/* Calls `visit` for every entry of the folder; stops when it fails. */
typedef pl_status visit_entry(int folder, const char *path, const char *name, void *user,
                              pl_error *err);
static pl_status each_entry(int folder, const char *path, visit_entry *visit, void *user,
                            pl_error *err)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    pl_status status = PL_OK;
    struct dirent *entry;

    if (!dir) {
        io_error(err, path, "cannot list the folder");
        if (copy >= 0)
            close(copy);
        return PL_ERR_IO;
    }
    for (errno = 0; status == PL_OK && (entry = readdir(dir)); errno = 0)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = visit(folder, path, entry->d_name, user, err);
    if (status == PL_OK && errno)
        status = io_error(err, path, "cannot list the folder");
    closedir(dir);
    return status;
}

static pl_status survey_entry(int folder, const char *path, const char *name, void *user,
                              pl_error *err)
{
    struct survey *s = user;
    struct stat st;

    if (strcmp(name, PL_SYNTH_TEMPORARY) != 0 && s->n_entries++ == 0)
        snprintf(s->example, sizeof s->example, "%s", name);
    if (is_ours(name) && fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink == 1)
        s->freed_bytes += (uint64_t)st.st_blocks * 512;
    return PL_OK;
}

/* Whether the folder's config.json has exactly these bytes. */
static bool has_same_config(int folder, const char *config, size_t config_bytes)
{
    int fd = openat(folder, PL_SYNTH_CONFIG_FILE, O_RDONLY | O_CLOEXEC);
    char *text = malloc(config_bytes + 1);
    bool same = false;

    if (fd >= 0 && text) {
        size_t n = 0;
        ssize_t got;

        while ((got = read(fd, text + n, config_bytes + 1 - n)) > 0)
            n += (size_t)got;
        same = n == config_bytes && memcmp(text, config, n) == 0;
    }
    free(text);
    if (fd >= 0)
        close(fd);
    return same;
}

static pl_status check_contents(int folder, const char *path, const char *config,
                                size_t config_bytes, bool force, uint64_t *freed_bytes,
                                pl_error *err)
{
    struct survey s = {0};

    PL_TRY(each_entry(folder, path, survey_entry, &s, err));
    *freed_bytes = s.freed_bytes;
    if (s.n_entries == 0 || force || has_same_config(folder, config, config_bytes))
        return PL_OK;
    return pl_error_set(err, PL_ERR_INVALID,
                        "%s: folder is not empty (got %d entries such as '%s', want a new or empty "
                        "folder, one with the same config.json, or --force)",
                        path, s.n_entries, s.example);
}

/* ---- room */

/* Numbers of the file system that holds `path`, or will: of the nearest folder that exists. */
static pl_status stat_file_system(const char *path, struct statvfs *fs, pl_error *err)
{
    char *at = strdup(path);
    pl_status status = PL_OK;

    if (!at)
        return pl_error_set(err, PL_ERR_NOMEM, "%s: out of memory", path);
    while (statvfs(*at ? at : ".", fs) != 0) {
        char *slash = strrchr(at, '/');

        if (errno != ENOENT || !*at) {
            status = io_error(err, path, "cannot read the free space");
            break;
        }
        if (!slash)
            *at = 0;
        else if (slash == at)
            at[1] = 0;
        else
            *slash = 0;
    }
    free(at);
    return status;
}

static pl_status check_room(const char *path, uint64_t need_bytes, uint64_t freed_bytes,
                            pl_error *err)
{
    struct statvfs fs;
    uint64_t room;

    PL_TRY(stat_file_system(path, &fs, err));
    if (fs.f_blocks == 0) /* a file system without such numbers */
        return PL_OK;
    if (__builtin_mul_overflow((uint64_t)fs.f_bavail, (uint64_t)fs.f_frsize, &room) ||
        __builtin_add_overflow(room, freed_bytes, &room))
        room = UINT64_MAX;
    if (room < need_bytes)
        return pl_error_set(err, PL_ERR_IO,
                            "%s: not enough room on the disk (got %" PRIu64 " bytes free, want "
                            "%" PRIu64 ")",
                            path, room, need_bytes);
    return PL_OK;
}

/* ---- making way */

static pl_status remove_file(int folder, const char *path, const char *name, pl_error *err)
{
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT)
        return PL_OK;
    io_error(err, name, "cannot remove the earlier file");
    pl_error_prefix(err, "%s", path);
    return PL_ERR_IO;
}

static pl_status remove_entry(int folder, const char *path, const char *name, void *user,
                              pl_error *err)
{
    return is_ours(name) ? remove_file(folder, path, name, err) : PL_OK;
}

/* mkdir -p */
static pl_status make_folders(const char *path, pl_error *err)
{
    char *at = strdup(path);
    pl_status status = PL_OK;

    if (!at)
        return pl_error_set(err, PL_ERR_NOMEM, "%s: out of memory", path);
    for (char *p = at; status == PL_OK && *p; p++) {
        char *end = p + strcspn(p, "/");
        char saved = *end;

        *end = 0;
        if (*at && mkdir(at, 0777) != 0 && errno != EEXIST)
            status = io_error(err, at, "cannot create the folder");
        *end = saved;
        p = saved ? end : end - 1;
    }
    free(at);
    return status;
}

pl_status pl_synth_folder_open(const char *path, const char *config, size_t config_bytes,
                               uint64_t need_bytes, bool force, int *fd, pl_error *err)
{
    uint64_t freed_bytes = 0;
    pl_status status = PL_OK;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    *fd = -1;
    if (folder < 0 && errno == ENOTDIR)
        return pl_error_set(err, PL_ERR_INVALID, "%s: not a folder (want the name of one)", path);
    if (folder < 0 && errno != ENOENT)
        return io_error(err, path, "cannot open the folder");
    if (folder >= 0)
        status = check_contents(folder, path, config, config_bytes, force, &freed_bytes, err);
    if (status == PL_OK)
        status = check_room(path, need_bytes, freed_bytes, err);
    if (status == PL_OK && folder >= 0) {
        status = remove_file(folder, path, PL_SYNTH_INDEX_FILE, err);
        if (status == PL_OK)
            status = each_entry(folder, path, remove_entry, NULL, err);
    } else if (status == PL_OK) {
        status = make_folders(path, err);
        if (status == PL_OK && (folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
            status = io_error(err, path, "cannot open the folder");
    }
    if (status != PL_OK && folder >= 0)
        close(folder);
    else
        *fd = folder;
    return status;
}

/* ---- files */

pl_status pl_synth_folder_create_file(int folder, const char *path, int *fd, pl_error *err)
{
    *fd = openat(folder, PL_SYNTH_TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return *fd < 0 ? io_error(err, path, "cannot create a file") : PL_OK;
}

void pl_synth_folder_drop_file(int folder, int fd)
{
    close(fd);
    unlinkat(folder, PL_SYNTH_TEMPORARY, 0);
}

pl_status pl_synth_folder_finish_file(int folder, const char *path, int fd, const char *name,
                                      pl_error *err)
{
    int failed = fsync(fd), saved = errno;

    if (close(fd) != 0 && !failed) {
        failed = -1;
        saved = errno;
    }
    if (!failed && renameat(folder, PL_SYNTH_TEMPORARY, folder, name) == 0)
        return PL_OK;
    errno = failed ? saved : errno;
    io_error(err, path, failed ? "cannot write" : "cannot rename a file");
    unlinkat(folder, PL_SYNTH_TEMPORARY, 0);
    return PL_ERR_IO;
}

pl_status pl_synth_write_all(int fd, const char *path, const void *bytes, size_t n, uint64_t offset,
                             pl_error *err)
{
    const char *at = bytes;

    while (n) {
        ssize_t got = pwrite(fd, at, n, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return io_error(err, path, "cannot write");
        at += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return PL_OK;
}

pl_status pl_synth_folder_put(int folder, const char *path, const char *name, const char *bytes,
                              size_t n, pl_error *err)
{
    pl_status status;
    int fd;

    PL_TRY(pl_synth_folder_create_file(folder, path, &fd, err));
    status = pl_synth_write_all(fd, path, bytes, n, 0, err);
    if (status != PL_OK) {
        pl_synth_folder_drop_file(folder, fd);
        return status;
    }
    return pl_synth_folder_finish_file(folder, path, fd, name, err);
}
