/* Chunks of the heap, carved from front to back. Chunks double up to 1 MiB, so that the slack stays
 * below what was asked for; larger pieces get a chunk of their own. */
#include "text/json_pool.h"

#include <stdint.h>
#include <stdlib.h>

struct pl_json_chunk {
    struct pl_json_chunk *next;
    size_t n_bytes;
    _Alignas(max_align_t) char bytes[];
};

enum { FIRST_CHUNK = 4096, LARGEST_CHUNK = 1 << 20 };

static struct pl_json_chunk *add_chunk(pl_json_pool *pool, size_t need)
{
    size_t n = pool->chunks ? 2 * pool->chunks->n_bytes : FIRST_CHUNK;
    struct pl_json_chunk *chunk;

    if (n > LARGEST_CHUNK)
        n = LARGEST_CHUNK;
    if (n < need)
        n = need;
    if (n > SIZE_MAX - sizeof *chunk)
        return NULL;
    chunk = calloc(1, sizeof *chunk + n);
    if (!chunk)
        return NULL;
    *chunk = (struct pl_json_chunk){.next = pool->chunks, .n_bytes = n};
    pool->chunks = chunk;
    pool->left = n;
    pool->bytes += sizeof *chunk + n;
    return chunk;
}

void *pl_json_pool_take(pl_json_pool *pool, size_t n, size_t element_bytes)
{
    const size_t align = _Alignof(max_align_t);
    size_t bytes;
    char *piece;

    if (__builtin_mul_overflow(n, element_bytes, &bytes) || bytes > SIZE_MAX - align)
        return NULL;
    bytes = (bytes + align - 1) / align * align;
    if (bytes > pool->left && !add_chunk(pool, bytes))
        return NULL;
    piece = pool->chunks->bytes + (pool->chunks->n_bytes - pool->left);
    pool->left -= bytes;
    return piece;
}

void pl_json_pool_fini(pl_json_pool *pool)
{
    while (pool->chunks) {
        struct pl_json_chunk *next = pool->chunks->next;
        free(pool->chunks);
        pool->chunks = next;
    }
    *pool = (pl_json_pool){0};
}
