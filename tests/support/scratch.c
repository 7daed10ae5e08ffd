/* Scratch folders. */
#include "support/scratch.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/check.h"

void scratch_create(char path[SCRATCH_PATH_BYTES])
{
    const char *top = getenv("TMPDIR");

    snprintf(path, SCRATCH_PATH_BYTES, "%s/plimsoll-test-XXXXXX", top && *top ? top : "/tmp");
    if (!mkdtemp(path))
        fail_msg("%s: cannot create a folder", path);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}

void scratch_remove(const char *path)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        fail_msg("%s: cannot remove", path);
}

void scratch_write(const char *folder, const char *name, const void *bytes, size_t n)
{
    char path[2 * SCRATCH_PATH_BYTES];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "wb");
    if (!f || (n > 0 && fwrite(bytes, 1, n, f) != n) || fclose(f) != 0)
        fail_msg("%s: cannot write", path);
}

void scratch_put(const char *folder, const char *name, const char *text)
{
    scratch_write(folder, name, text, strlen(text));
}
