/* Caches of keys in the public form, checked. */
#ifndef PL_ATTENTION_KV_H
#define PL_ATTENTION_KV_H

#include "attention/check.h"

/* What `cache` is to the kernels, and the bytes that it takes; `name` stands before the fields in texts. */
pl_status pl__kv_rows(const char *name, const pl_kv_cache *cache, pl_cache_rows *rows,
                      pl_extent *extent, pl_error *err) PL_MUST_CHECK;

#endif
