/* Shares of a model, by integer arithmetic from its configuration. Latent projections, compressors, the indexer, the
 * router, streams and caches are nobody's: every rank has them whole. They are small, and what is added up in
 * one chain cannot be taken apart (docs/NUMERICS.md 1). */
#include "model/share.h"

#include "ops/shape.h"

pl_share pl__share_of(const pl_config *c, int rank, int n_ranks)
{
    int32_t S = c->o_groups, heads = c->n_heads / S;
    int64_t blocks = ((int64_t)c->moe_intermediate_size + PL_QUANT_BLOCK - 1) / PL_QUANT_BLOCK;
    int64_t tiles = ((int64_t)c->vocab_size + PL_TILE_ROWS - 1) / PL_TILE_ROWS;
    pl_share s = {
        .rank = rank,
        .n_ranks = n_ranks,
        .shard = (int32_t)((int64_t)rank * S / n_ranks),
        .shard_end = (int32_t)((int64_t)(rank + 1) * S / n_ranks),
        .vocab = rank * tiles / n_ranks * PL_TILE_ROWS,
        .vocab_end = (rank + 1) * tiles / n_ranks * PL_TILE_ROWS,
    };

    s.head = s.shard * heads;
    s.n_heads = (s.shard_end - s.shard) * heads;
    s.expert = (int32_t)pl__shard_begin(c->n_experts, S, s.shard);
    s.expert_end = (int32_t)pl__shard_begin(c->n_experts, S, s.shard_end);
    s.inner = pl__shard_begin(blocks, S, s.shard) * PL_QUANT_BLOCK;
    s.inner_end = pl__shard_begin(blocks, S, s.shard_end) * PL_QUANT_BLOCK;
    if (s.vocab_end > c->vocab_size)
        s.vocab_end = c->vocab_size;
    return s;
}
