/* A clock on every operator: how often each ran, how long the step waited for it, how busy the workers were.
 *
 * pl_exec.profile points at one while somebody wants to know; NULL, the normal case, costs a test for each operator of a
 * step. It changes no bit. The memory is the caller's, and nothing is allocated while it runs. */
#ifndef PL_OPS_PROFILE_H
#define PL_OPS_PROFILE_H

#include "base/pool.h"

/* Names of pl_run_* functions; linear layers by what their weights are, since one run may hold several kinds. */
/* clang-format off */
#define PL_PROFILE_MAP(X)                                                                      \
    X(embed)                                                                                   \
    X(hc_dots) X(hc_pre) X(hc_post) X(hc_head) X(mtp_join) X(rms_norm) X(rope_angles)          \
    X(q_norm_rope) X(unrope) X(quantise) X(kv_store) X(attention) X(compress) X(key_store)     \
    X(index_query) X(index_topk) X(index_merge) X(route) X(route_weights) X(swiglu) X(moe_sum) \
    X(moe_parts) X(shard_sum) X(linear_bf16) X(linear_fp8) X(linear_fp8_a16) X(linear_fp4)
/* clang-format on */

typedef enum pl_profile_op {
#define PL_PROFILE_ENUM(name) PL_PROFILE_##name,
    PL_PROFILE_MAP(PL_PROFILE_ENUM)
#undef PL_PROFILE_ENUM
        PL_PROFILE_COUNT
} pl_profile_op;

enum {
    PL_PROFILE_LINEAR = PL_PROFILE_linear_bf16,
};

typedef struct pl_profile_entry {
    int64_t calls; /* runs that held it */
    /* Until the last worker was done. A run of several operators is shared out by what its workers spent on each. */
    double wall_ns;
} pl_profile_entry;

/* One worker's; on cache lines of its own. */
typedef struct pl_profile_worker {
    double busy_ns;
    double op_ns[PL_PROFILE_COUNT]; /* of the run that is going on */
    char apart[128];
} pl_profile_worker;

typedef struct pl_profile {
    pl_profile_entry op[PL_PROFILE_COUNT];
    int64_t
        regions; /* runs that were handed to several workers: each ends with all of them meeting */
    double wall_ns, region_ns; /* of all runs, of those regions alone */
    double busy_ns;            /* of all workers within regions */
    int n_workers;
    pl_profile_worker worker[];
} pl_profile;

/* What a profile for so many workers takes. */
size_t pl_profile_bytes(int n_workers);

/* Sets everything to 0. */
void pl_profile_reset(pl_profile *p, int n_workers);

/* "linear_fp8", "attention", ... */
const char *pl_profile_name(pl_profile_op op);

double pl__profile_now(void);

/* pl_pool_run under the clock. Tiles fill in op_ns themselves. */
void pl__profile_run(pl_profile *p, pl_pool *pool, int64_t n_tiles, pl_pool_fn *fn, void *user);

#endif
