/* Longest-match lookup of byte strings: a trie whose edges lie in one hash table.
 *
 * A node that ends a token has the token's id as its number; other nodes are numbered from the
 * vocabulary's size on. So one 8-byte slot per edge is all there is to read. */
#ifndef PL_TEXT_TRIE_H
#define PL_TEXT_TRIE_H

#include "base/arena.h"

enum { PL_TRIE_MAX_NODES = (1 << 24) - 1 }; /* node numbers have 24 bits, the last means none */

typedef struct pl_trie {
    uint64_t *slots; /* parent << 8 | byte in the low half, child in the high; ~0 is empty */
    uint32_t n_slots;
    uint32_t shift;     /* of the hash */
    uint32_t n_tokens;  /* ids below this are tokens; this one is the root */
    uint32_t n_nodes;   /* numbers used so far, tokens included */
    int32_t first[256]; /* child of the root, -1 where there is none */
} pl_trie;

/* Lays out a trie for `n_edges` edges (nodes but the root) and ids below `n_tokens`. */
void pl__trie_layout(pl_trie *trie, pl_arena *arena, uint32_t n_tokens, size_t n_edges);

/* Empties it; its memory is there now. */
void pl__trie_init(pl_trie *trie);

/* Adds a token (n_bytes > 0). Strings must come in ascending order of their bytes, without repeats,
 * so that prefixes come first. Returns the id of the longest proper prefix that is a token, or -1. */
int32_t pl__trie_add(pl_trie *trie, const uint8_t *bytes, size_t n_bytes, int32_t id);

static inline uint32_t pl__trie_slot(const pl_trie *trie, uint32_t key)
{
    return key * 0x9E3779B1u >> trie->shift;
}

/* The child of `node` by `byte`, or -1. */
static inline int32_t pl__trie_child(const pl_trie *trie, int32_t node, uint8_t byte)
{
    uint32_t key = (uint32_t)node << 8 | byte;

    for (uint32_t i = pl__trie_slot(trie, key);; i = (i + 1) & (trie->n_slots - 1)) {
        uint64_t slot = trie->slots[i];

        if ((uint32_t)slot == key)
            return (int32_t)(slot >> 32);
        if (slot == UINT64_MAX)
            return -1;
    }
}

/* The longest token that text[0 .. n) begins with, or -1; *n_matched is its length. n > 0. */
static inline int32_t pl__trie_longest(const pl_trie *trie, const uint8_t *text, size_t n,
                                       size_t *n_matched)
{
    int32_t node = trie->first[text[0]], best = -1;
    size_t at = 1;

    for (; node >= 0; at++) {
        if ((uint32_t)node < trie->n_tokens) {
            best = node;
            *n_matched = at;
        }
        if (at == n)
            break;
        node = pl__trie_child(trie, node, text[at]);
    }
    return best;
}

#endif
