/* What one rank owns: the groups of attention heads, the experts, the rows of the shared expert and of the
 * vocabulary that its canonical shards stand for. The sole rank owns everything. */
#ifndef PL_MODEL_SHARE_H
#define PL_MODEL_SHARE_H

#include "comm/comm.h"
#include "model/config.h"

/* Ranges are begin .. end - 1; any may be empty. */
typedef struct pl_share {
    int rank, n_ranks;
    int32_t shard, shard_end; /* canonical shards, which are the groups of wo_a */
    int32_t head, n_heads;    /* the heads of these groups */
    int32_t expert, expert_end;
    int64_t inner,
        inner_end; /* rows of the shared expert's w1 and w3: its w2's blocks of these shards */
    int64_t vocab, vocab_end; /* rows of the head, whole tiles of 16 */
} pl_share;

/* Rank r of n has shards floor(r S / n) .. floor((r + 1) S / n) - 1; with more ranks than shards some have none and
 * only help with the vocabulary. */
pl_share pl__share_of(const pl_config *config, int rank, int n_ranks);

/* First item of canonical shard s of n_items: docs/NUMERICS.md 5. */
static inline int64_t pl__shard_begin(int64_t n_items, int32_t n_shards, int64_t s)
{
    return s * n_items / n_shards;
}

#endif
