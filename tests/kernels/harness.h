/* checkkern: every kernel of every level on generated problems.
 *
 * A problem is a line of text, "linear_fp8:e8m0 m=5 n=48 k=512 seed=7": the operator, then what its contract leaves
 * open, and a seed for the contents. The same line gives the same buffers everywhere, so a failure is repeated by
 * passing its line to --problem. Level scalar is judged against a sum in double, written in the plainest way
 * in the operator's file; every other level has to have the bits of scalar.
 *
 * Buffers end at an unreadable page, in a second round they begin behind one. Signals that a kernel
 * raises are that problem's failure, and so is a floating-point environment that it leaves changed. */
#ifndef PL_TESTS_KERNELS_HARNESS_H
#define PL_TESTS_KERNELS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "ops/ops.h"

enum { KERN_PROBLEM_BYTES = 256, KERN_WHY_BYTES = 256 };

/* One operator and kind of operand. */
typedef struct kern_op {
    const char *name;
    /* Writes problem `i` of those that `seed` stands for; false past the last one. */
    bool (*problem)(const struct kern_op *op, int i, uint64_t seed, char *text);
    /* Runs it at `ops` and judges; false: `why` says what is wrong. *judged counts the values compared. */
    bool (*check)(const struct kern_op *op, const char *problem, const pl_ops *ops, char *why,
                  int64_t *judged);
    int kind; /* the operator file's own */
} kern_op;

/* Lists end with a NULL name. */
extern const kern_op kern_linear_ops[];
extern const kern_op kern_attention_ops[];
extern const kern_op kern_cache_ops[];
extern const kern_op kern_compress_ops[];
extern const kern_op kern_route_ops[];
extern const kern_op kern_sparse_ops[];
extern const kern_op kern_streams_ops[];
extern const kern_op kern_varlen_ops[];

/* ---- problem lines */

/* The number behind "key=", or `otherwise`. A line with a key that is not among those asked for is refused by
 * kern_check_keys, so that a misspelt one does not pass for its default. */
int64_t kern_int(const char *problem, const char *key, int64_t otherwise);
/* Copies the word behind "key=" into `word` (16 bytes), or `otherwise`. */
const char *kern_word(const char *problem, const char *key, const char *otherwise, char *word);
/* `keys` is a list like " m n k "; false: `why` names the one that is not in it. */
bool kern_check_keys(const char *problem, const char *keys, char *why);

/* ---- random numbers: splitmix64, so that a line means the same on every machine */

typedef struct kern_random {
    uint64_t state;
} kern_random;

uint64_t kern_u64(kern_random *r);
int64_t kern_below(kern_random *r, int64_t n); /* 0 .. n-1 */

/* ---- guarded buffers */

/* `bytes` at a multiple of `align`, as near to the unreadable page as that allows; filled with 0xA5. Freed by the
 * harness when the problem is done. */
void *kern_alloc(size_t bytes, size_t align);

/* Makes a buffer read-only (inputs, before the kernel runs). */
void kern_protect(const void *buffer);

#endif
