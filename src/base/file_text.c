/* Reading a whole file. Its size bounds the memory before anything is read, and a file that grows or shrinks meanwhile is an
 * error. What is no regular file is refused: a pipe would wait, a device has no end. */
#include "base/file_text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static pl_status read_all(const char *path, int fd, char *text, size_t n_bytes, pl_error *err)
{
    size_t done = 0;

    /* One byte more is asked for than there should be. */
    while (done <= n_bytes) {
        ssize_t got = read(fd, text + done, n_bytes + 1 - done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return pl_error_set(err, PL_ERR_IO, "%s: cannot read (got %s)", path, strerror(errno));
        if (got == 0)
            break;
        done += (size_t)got;
    }
    if (done != n_bytes)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot read (got a %s file than before)", path,
                            done < n_bytes ? "shorter" : "longer");
    text[n_bytes] = 0;
    return PL_OK;
}

static pl_status read_open(const char *path, int fd, size_t max_bytes, char **text, size_t *n_bytes,
                           pl_error *err)
{
    struct stat st;
    pl_status s;

    if (fstat(fd, &st) != 0)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot read (got %s)", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return pl_error_set(err, PL_ERR_INVALID, "%s: not a regular file", path);
    if ((uint64_t)st.st_size > max_bytes)
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "%s: too large (got %" PRId64 " bytes, want at most %zu)", path,
                            (int64_t)st.st_size, max_bytes);
    *text = malloc((size_t)st.st_size + 1);
    if (!*text)
        return pl_error_set(err, PL_ERR_NOMEM, "%s: no memory for %" PRId64 " bytes", path,
                            (int64_t)st.st_size);
    s = read_all(path, fd, *text, (size_t)st.st_size, err);
    if (s != PL_OK) {
        free(*text);
        *text = NULL;
        return s;
    }
    *n_bytes = (size_t)st.st_size;
    return PL_OK;
}

pl_status pl_file_text_read(const char *path, size_t max_bytes, char **text, size_t *n_bytes,
                            pl_error *err)
{
    /* A pipe without a writer must not hang. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    pl_status s;

    *text = NULL;
    *n_bytes = 0;
    if (fd < 0)
        return pl_error_set(err, errno == ENOENT || errno == ENOTDIR ? PL_ERR_NOT_FOUND : PL_ERR_IO,
                            "%s: cannot open (got %s)", path, strerror(errno));
    s = read_open(path, fd, max_bytes, text, n_bytes, err);
    close(fd);
    return s;
}
