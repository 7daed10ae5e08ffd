/* Prefixes of texts that were run, to begin other requests with: a tree of blocks in a region of fixed size.
 *
 * A block is 128 tokens behind its parent, with the compressed entries and indexer keys of these positions. All texts that
 * begin alike share their blocks. Some blocks also have a state: window keys and compressors at their end, from which
 * a sequence can go on. A state is some ten times as large as a block, so there are fewer of them.
 *
 * Blocks are found by the XXH3-128 of their tokens and their parent's key; the tokens and the parent are then compared,
 * so that keys that collide find nothing wrong. Blocks and states are slots of one size each: nothing is fragmented.
 * Where no slot is free, the one not used for longest goes; of blocks always one without children. What is found is
 * copied within the call that finds it, so nothing is held between calls, and nobody has anything to give back.
 *
 * Source: specification sections 4.2 to 4.7; docs/MEMORY.md 1. */
#ifndef PL_CACHE_PREFIX_H
#define PL_CACHE_PREFIX_H

#include <xxhash.h>

#include "cache/snapshot.h"

enum {
    PL_PREFIX_BLOCK = 128,
    PL_PREFIX_BLOCKS_PER_STATE = 8,
    PL_PREFIX_MAX_BLOCKS = 1 << 24,
};

/* Neighbours in a list, -1: none. */
typedef struct pl_prefix_link {
    int32_t before, after;
} pl_prefix_link;

typedef struct pl_prefix_block {
    XXH128_hash_t key;
    int32_t parent; /* -1: the text begins here */
    int32_t n_children;
    int32_t chained;     /* next of the same bucket, or next free block; -1: none */
    int32_t state;       /* its slot; -1: none */
    int32_t n_settled;   /* of the state */
    bool passing;        /* the state is of a text that goes on, and began nobody else's */
    pl_prefix_link used; /* all blocks, the last used first: parents before their children */
    pl_prefix_link kept; /* those with a state, the last used first */
    int32_t tokens[PL_PREFIX_BLOCK];
} pl_prefix_block;

typedef struct pl_prefix_ends {
    int32_t first, last;
} pl_prefix_ends;

/* Slots that a region of so many bytes has, and what each takes. */
typedef struct pl_prefix_size {
    int32_t n_blocks, n_states;
    uint64_t block_bytes, state_bytes; /* of a slot's contents */
} pl_prefix_size;

typedef struct pl_prefix {
    pl_prefix_size size; /* n_blocks is 0: there is no cache */
    int32_t max_draft;
    pl_prefix_block *blocks;
    int32_t *buckets;     /* [n_blocks] first block of each; -1: none */
    int32_t *free_states; /* [n_states] a stack */
    uint8_t *contents, *states;
    XXH128_hash_t root; /* stands for a parent where a text begins */
    int32_t free_block, n_free_states;
    pl_prefix_ends used, kept;
    int32_t n_used, n_kept; /* blocks, states */
} pl_prefix;

/* The least that a cache takes: a block and a state. */
uint64_t pl_prefix_min_bytes(const pl_state_shape *shape);

/* As many slots as `bytes` hold; none below the least. */
pl_prefix_size pl_prefix_size_of(const pl_state_shape *shape, uint64_t bytes);

/* What they take with their records: at most the `bytes` that gave them. */
uint64_t pl_prefix_bytes(const pl_prefix_size *size);

/* Carves a cache; a dry run counts. Contents need pl_prefix_init. */
void pl_prefix_layout(pl_prefix *p, pl_arena *arena, const pl_state_shape *shape,
                      const pl_prefix_size *size);

/* Empties it. Prefixes are those of a checkpoint, a version of the numerics and the geometry of s. */
void pl_prefix_init(pl_prefix *p, const pl_snapshot_id *id, const pl_state *s);

/* Makes s the longest prefix of at most n of the tokens that has a state, at all its ranks, and returns its length; 0: s is
 * as it was. *n_known: tokens whose blocks are there, with a state or without. */
int32_t pl_prefix_restore(pl_prefix *p, const pl_snapshot_tokens *tokens, int32_t n, pl_state *s,
                          int32_t *n_known);

/* How a state is stored. */
typedef struct pl_prefix_mark {
    bool
        passing; /* a later one of the same text replaces it, unless it began another request meanwhile */
    int32_t n_replaced; /* positions of the one that this one replaces; 0: none */
} pl_prefix_mark;

/* Stores the first n positions of s, whose tokens these are: n is a multiple of 128, n_settled <= n <= s->n and s->n - n
 * is at most max_draft. Where slots are short, what others stored goes; false where that was not enough. */
bool pl_prefix_store(pl_prefix *p, const pl_snapshot_tokens *tokens, int32_t n, const pl_state *s,
                     const pl_prefix_mark *mark);

#endif
