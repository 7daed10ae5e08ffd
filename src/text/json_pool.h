/* Memory of one call: pieces are taken one by one and given back all at once. */
#ifndef PL_TEXT_JSON_POOL_H
#define PL_TEXT_JSON_POOL_H

#include <stddef.h>

/* {0} is an empty pool. */
typedef struct pl_json_pool {
    struct pl_json_chunk *chunks;
    size_t left;  /* bytes free at the end of the first chunk */
    size_t bytes; /* taken from the heap so far */
} pl_json_pool;

/* n elements, zeroed, aligned for any type; NULL when memory is short or the product overflows. */
void *pl_json_pool_take(pl_json_pool *pool, size_t n, size_t element_bytes);

/* Gives everything back; the pool is empty then. */
void pl_json_pool_fini(pl_json_pool *pool);

#endif
