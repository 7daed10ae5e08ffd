/* Calls in which everything is right, in one arena each, so that a test can see that no byte of it changed. */
#ifndef PL_TESTS_PROVIDER_CALLS_H
#define PL_TESTS_PROVIDER_CALLS_H

#include <stdbool.h>

#include "plimsoll/provider.h"
#include "support/check.h"

typedef struct case_call {
    uint8_t *arena, *copy;
    size_t bytes, used;
    pl_provider_call call;
} case_call;

/* Sparse over 96 rows: [tokens][heads][512], lists of 64. */
case_call sparse_case(int64_t n_tokens, int64_t n_heads);

/* Packed sequences with these lengths, -1 at the end; bf16, value_dim wide. A sink where asked. */
case_call varlen_case(const int32_t *n_q, const int32_t *n_k, int64_t n_heads, int64_t n_kv_heads,
                      int64_t dim, int64_t value_dim, bool sink);

/* The same, 16 wide, keys in pages of 4 rows with a gap behind each; the last pages first, and one that nobody has. */
case_call paged_case(const int32_t *n_q, const int32_t *n_k, int64_t n_heads, int64_t n_kv_heads);

/* Sparse over 80 rows of a cache in pages of 16: a bf16 one of 512, V4 or V32 (PL_KV_..). A second one of the same form where
 * asked. seq_tokens 0: prefill, else decode; n_tokens is a multiple of it. */
case_call cache_case(pl_ops_context *context, int format, bool second_set, int32_t seq_tokens,
                     int64_t n_tokens, int64_t n_heads);
void case_free(case_call *c);

/* What is taken of the arena, and a piece behind it. */
size_t case_bytes(const case_call *c);

/* Remembers those bytes; and fails where one of them is another now. */
void case_remember(case_call *c);
void case_unchanged(const char *what, const case_call *c);

/* Room of the arena, aligned to 64. */
void *case_take(case_call *c, size_t bytes);

pl_ops_context *case_context(void);

/* Of one path of the build folder: "FOLDER/libprovider_NAME.so". Loads it. */
int add_provider(pl_providers *set, const char *folder, const char *name,
                 const pl_provider_pin *pin);

#endif
