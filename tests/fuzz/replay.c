/* Runs a fuzz target over its committed corpus, without a fuzzer: replay DIR. Every file is fed whole and
 * cut short at sixteen places, each time so that it ends where the next byte cannot be read. What
 * happens to the inputs is the target's to check; after a crash the last line names the file. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

static int fail(const char *path, const char *what)
{
    printf("not ok 1 - corpus\n# %s: %s: %s\n", path, what, strerror(errno));
    return 1;
}

/* Feeds the first n bytes, placed flush against an unreadable page. */
static int feed(const char *path, const uint8_t *bytes, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (n + page - 1) / page * page;
    uint8_t *at =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED || mprotect(at + room, page, PROT_NONE) != 0)
        return fail(path, "no memory");
    if (n)
        memcpy(at + room - n, bytes, n);
    LLVMFuzzerTestOneInput(at + room - n, n);
    munmap(at, room + page);
    return 0;
}

static int feed_file(const char *path)
{
    enum { LIMIT = 1 << 20, CUTS = 16 };
    uint8_t *bytes = malloc(LIMIT);
    FILE *f = fopen(path, "rb");
    int status = 0;
    size_t n;

    printf("# %s\n", path);
    if (!bytes || !f)
        return fail(path, "cannot be opened");
    n = fread(bytes, 1, LIMIT, f);
    if (n == LIMIT || ferror(f))
        return fail(path, "too long, or unreadable");
    for (size_t cut = 0; cut <= CUTS && status == 0; cut++)
        status = feed(path, bytes, n * cut / CUTS);
    fclose(f);
    free(bytes);
    return status;
}

int main(int argc, char **argv)
{
    struct dirent *entry;
    size_t n_files = 0;
    DIR *dir;

    if (argc != 2)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..1\n");
    dir = opendir(argv[1]);
    if (!dir)
        return fail(argv[1], "cannot be opened");
    while ((entry = readdir(dir))) {
        char path[1024];
        int length = snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);

        if (entry->d_name[0] == '.' || length >= (int)sizeof path)
            continue;
        if (feed_file(path) != 0)
            return 1;
        n_files++;
    }
    closedir(dir);
    if (n_files == 0)
        return fail(argv[1], "no input in the corpus");
    printf("ok 1 - %zu inputs, whole and cut\n", n_files);
    return 0;
}
