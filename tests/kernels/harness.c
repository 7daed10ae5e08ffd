/* Guarded buffers, problem lines and random numbers of checkkern. */
#include "kernels/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/run.h"

/* ---- problem lines */

static const char *value_of(const char *problem, const char *key)
{
    size_t n = strlen(key);

    for (const char *p = strchr(problem, ' '); p; p = strchr(p, ' ')) {
        p += strspn(p, " ");
        if (strncmp(p, key, n) == 0 && p[n] == '=')
            return p + n + 1;
    }
    return NULL;
}

int64_t kern_int(const char *problem, const char *key, int64_t otherwise)
{
    const char *v = value_of(problem, key);

    return v ? strtoll(v, NULL, 10) : otherwise;
}

const char *kern_word(const char *problem, const char *key, const char *otherwise, char *word)
{
    const char *v = value_of(problem, key);

    snprintf(word, 16, "%.*s", v ? (int)strcspn(v, " ") : 15, v ? v : otherwise);
    return word;
}

bool kern_check_keys(const char *problem, const char *keys, char *why)
{
    for (const char *p = strchr(problem, ' '); p; p = strchr(p, ' ')) {
        char spaced[32];
        p += strspn(p, " ");
        snprintf(spaced, sizeof spaced, " %.*s ", (int)strcspn(p, "= "), p);
        if (*p && !strstr(keys, spaced)) {
            snprintf(why, KERN_WHY_BYTES, "unknown key (got '%s', want one of%s)", spaced, keys);
            return false;
        }
    }
    return true;
}

/* ---- random numbers */

uint64_t kern_u64(kern_random *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

int64_t kern_below(kern_random *r, int64_t n)
{
    return (int64_t)(kern_u64(r) % (uint64_t)n);
}

/* ---- guarded buffers */

enum { MAX_BUFFERS = 32 };

static struct {
    uint8_t *map;
    size_t map_bytes, page;
    uint8_t *data;
} buffers[MAX_BUFFERS];
static int n_buffers;
static bool guard_before;

void kern_guard_before(bool before)
{
    guard_before = before;
}

void *kern_alloc(size_t bytes, size_t align)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + align + page - 1) / page * page;
    uint8_t *map =
        mmap(NULL, inner + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *data;

    if (map == MAP_FAILED || n_buffers == MAX_BUFFERS || mprotect(map, page, PROT_NONE) ||
        mprotect(map + page + inner, page, PROT_NONE)) {
        fprintf(stderr, "checkkern: no memory for a buffer of %zu bytes\n", bytes);
        exit(3);
    }
    memset(map + page, 0xA5, inner);
    data = guard_before ? map + page : map + page + (inner - bytes) / align * align;
    buffers[n_buffers].map = map;
    buffers[n_buffers].map_bytes = inner + 2 * page;
    buffers[n_buffers].page = page;
    buffers[n_buffers++].data = data;
    return data;
}

void kern_protect(const void *buffer)
{
    for (int i = 0; i < n_buffers; i++)
        if (buffers[i].data == buffer)
            (void)mprotect(buffers[i].map + buffers[i].page,
                           buffers[i].map_bytes - 2 * buffers[i].page, PROT_READ);
}

void kern_free_all(void)
{
    while (n_buffers > 0) {
        n_buffers--;
        munmap(buffers[n_buffers].map, buffers[n_buffers].map_bytes);
    }
}
