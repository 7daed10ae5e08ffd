/* Ranks: executors that each own a share of a model, and what they say to each other.
 *
 * Every rank runs the same program over its own buffers. Nothing is shared but through a collective, and all
 * ranks call the same collectives in the same order with the same extents. A collective moves bytes and adds
 * nothing up: sums are formed by operators, in the order of docs/NUMERICS.md 5, from parts that every rank
 * then has. So the bits do not depend on how bytes travel, nor on the number of ranks.
 *
 * Here all ranks are threads of one process; docs/ARCHITECTURE.md tells what is different between hosts. */
#ifndef PL_COMM_COMM_H
#define PL_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "plimsoll/status.h"

enum { PL_MAX_RANKS = 64 };

typedef struct pl_ranks pl_ranks; /* all ranks of this process */
typedef struct pl_comm pl_comm;   /* one rank's end; used by that rank alone */

/* What one rank does. */
typedef void pl_rank_fn(void *user, pl_comm *comm);

/* n - 1 threads beside the caller, not pinned, asleep between runs. On failure *out is NULL: INVALID for n
 * outside 1 .. PL_MAX_RANKS, NOMEM where a thread cannot be made. */
pl_status pl_ranks_create(int n, pl_ranks **out, pl_error *err) PL_MUST_CHECK;

/* NULL is fine. No run may be in progress. */
void pl_ranks_destroy(pl_ranks *ranks);

int pl_ranks_count(const pl_ranks *ranks);

/* Every rank calls fn once, all at the same time; returns when all are done, their writes visible to the
 * caller. Allocates nothing and cannot fail. */
void pl_ranks_run(pl_ranks *ranks, pl_rank_fn *fn, void *user);

/* Closed forms for the memory plan, as pl_pool_heap_bytes and pl_pool_stacks_bytes. */
size_t pl_ranks_heap_bytes(int n);
size_t pl_ranks_stacks_bytes(int n);

int pl_comm_rank(const pl_comm *comm); /* 0 .. n_ranks - 1 */
int pl_comm_n_ranks(const pl_comm *comm);

/* A matrix of bytes of which every rank has a copy, and made a band of columns. */
typedef struct pl_comm_bands {
    void *base; /* this rank's copy */
    int64_t n_rows, row_bytes;
    int64_t
        begin[PL_MAX_RANKS + 1]; /* rank r made bytes begin[r] .. begin[r + 1] - 1 of every row */
} pl_comm_bands;

/* Completes this rank's copy with the bands of all others. All ranks pass the same values, but for base; copies
 * must not overlap. When it returns, this rank may overwrite its own band. */
void pl_comm_all_gather(pl_comm *comm, const pl_comm_bands *bands);

#endif
