/* Building the trie. The number of edges is known beforehand (the vocabulary is sorted), so the
 * table never grows. It is at most five eighths full: the vocabulary of V4 then takes 4 MiB, not 8,
 * and a miss still looks at three slots on average. */
#include "text/trie.h"

#include <assert.h>
#include <string.h>

void pl__trie_layout(pl_trie *trie, pl_arena *arena, uint32_t n_tokens, size_t n_edges)
{
    assert(n_edges < PL_TRIE_MAX_NODES);
    trie->n_tokens = n_tokens;
    trie->n_slots = 4;
    trie->shift = 30;
    while ((uint64_t)trie->n_slots * 5 < (uint64_t)n_edges * 8) {
        trie->n_slots *= 2;
        trie->shift--;
    }
    trie->slots = pl_arena_array(arena, trie->n_slots, sizeof trie->slots[0], 0);
}

void pl__trie_init(pl_trie *trie)
{
    memset(trie->slots, 0xFF, trie->n_slots * sizeof trie->slots[0]);
    memset(trie->first, 0xFF, sizeof trie->first);
    trie->n_nodes = trie->n_tokens;
}

static void add_edge(pl_trie *trie, int32_t node, uint8_t byte, int32_t child)
{
    uint32_t key = (uint32_t)node << 8 | byte;
    uint32_t i = pl__trie_slot(trie, key);

    while (trie->slots[i] != UINT64_MAX)
        i = (i + 1) & (trie->n_slots - 1);
    trie->slots[i] = (uint64_t)(uint32_t)child << 32 | key;
}

int32_t pl__trie_add(pl_trie *trie, const uint8_t *bytes, size_t n_bytes, int32_t id)
{
    int32_t node = -1, prefix = -1;

    for (size_t i = 0; i < n_bytes; i++) {
        int32_t child = i == 0 ? trie->first[bytes[0]] : pl__trie_child(trie, node, bytes[i]);

        if (child < 0) {
            child = i + 1 == n_bytes ? id : (int32_t)trie->n_nodes++;
            if (i == 0)
                trie->first[bytes[0]] = child;
            else
                add_edge(trie, node, bytes[i], child);
        } else if ((uint32_t)child < trie->n_tokens) {
            prefix = child;
        }
        node = child;
    }
    return prefix;
}
