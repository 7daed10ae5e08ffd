/* How many slots a cache of prefixes has in so many bytes, and where they lie.
 *
 * A region is divided into one part for blocks and one for states, PL_PREFIX_BLOCKS_PER_STATE of the former for each of
 * the latter; what is left over goes to blocks. What stands in the slots is prefix.c's matter. */
#include "cache/prefix_impl.h"

static uint64_t up(uint64_t bytes)
{
    return pl__prefix_slot_bytes(bytes);
}

uint64_t pl_prefix_bytes(const pl_prefix_size *z)
{
    const uint64_t blocks = (uint64_t)z->n_blocks, states = (uint64_t)z->n_states;

    return up(blocks * sizeof(pl_prefix_block)) + up(blocks * sizeof(int32_t)) +
           up(states * sizeof(int32_t)) + blocks * up(z->block_bytes) + states * up(z->state_bytes);
}

static pl_prefix_size slots_of(const pl_state_shape *shape)
{
    /* The longest that a part can be: drafts of a whole step pending. */
    const pl_pack_span block = {.n = PL_PREFIX_BLOCK, .n_settled = PL_PREFIX_BLOCK};
    const pl_pack_span state = {.n = PL_PREFIX_BLOCK,
                                .n_settled = PL_PREFIX_BLOCK - shape->max_draft};

    return (pl_prefix_size){
        .block_bytes = pl_pack_bytes_of(shape, PL_PACK_ENTRIES, &block) +
                       pl_pack_bytes_of(shape, PL_PACK_KEYS, &block),
        .state_bytes = pl_pack_bytes_of(shape, PL_PACK_WINDOW, &state) +
                       pl_pack_bytes_of(shape, PL_PACK_POOLS, &state) +
                       pl_pack_bytes_of(shape, PL_PACK_PENDING, &state),
    };
}

uint64_t pl_prefix_min_bytes(const pl_state_shape *shape)
{
    pl_prefix_size z = slots_of(shape);

    z.n_blocks = z.n_states = 1;
    return pl_prefix_bytes(&z);
}

pl_prefix_size pl_prefix_size_of(const pl_state_shape *shape, uint64_t bytes)
{
    pl_prefix_size z = slots_of(shape);
    const uint64_t block = up(z.block_bytes) + sizeof(pl_prefix_block) + sizeof(int32_t);
    const uint64_t state = up(z.state_bytes) + sizeof(int32_t);
    const uint64_t most = PL_PREFIX_MAX_BLOCKS / PL_PREFIX_BLOCKS_PER_STATE;
    uint64_t n;

    if (bytes < pl_prefix_min_bytes(shape))
        return z;
    n = bytes / (PL_PREFIX_BLOCKS_PER_STATE * block + state);
    /* Guesses that leave out what rounds up are a slot or two too many. */
    z.n_states = (int32_t)(n < 1 ? 1 : n > most ? most : n);
    z.n_blocks = z.n_states * PL_PREFIX_BLOCKS_PER_STATE;
    while (z.n_states > 1 && pl_prefix_bytes(&z) > bytes) {
        z.n_states--;
        z.n_blocks -= PL_PREFIX_BLOCKS_PER_STATE;
    }
    n = (bytes - (uint64_t)z.n_states * state) / block;
    z.n_blocks = (int32_t)(n < PL_PREFIX_MAX_BLOCKS ? n : PL_PREFIX_MAX_BLOCKS);
    while (z.n_blocks > 1 && pl_prefix_bytes(&z) > bytes)
        z.n_blocks--;
    return z;
}

void pl_prefix_layout(pl_prefix *p, pl_arena *a, const pl_state_shape *shape,
                      const pl_prefix_size *z)
{
    const size_t blocks = (size_t)z->n_blocks, states = (size_t)z->n_states;

    *p = (pl_prefix){.size = *z, .max_draft = shape->max_draft};
    p->blocks = pl_arena_array(a, blocks, sizeof *p->blocks, 0);
    p->buckets = pl_arena_array(a, blocks, sizeof *p->buckets, 0);
    p->free_states = pl_arena_array(a, states, sizeof *p->free_states, 0);
    p->contents = pl_arena_array(a, blocks, (size_t)up(z->block_bytes), 0);
    p->states = pl_arena_array(a, states, (size_t)up(z->state_bytes), 0);
}
