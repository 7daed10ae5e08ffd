/* Byte-pair encoding of one piece of text.
 *
 * Defined by the merges: repeatedly join the neighbouring pair of lowest rank, of equal pairs the
 * leftmost, until none is left. Computed otherwise, in time linear in the piece; see bpe.c. */
#ifndef PL_TEXT_BPE_H
#define PL_TEXT_BPE_H

#include "plimsoll/text.h"
#include "text/trie.h"

/* Values of pl_token.made_by beside ranks. */
enum { PL_TOKEN_BYTE = -1, PL_TOKEN_NOT_MADE = -2 };

enum { PL_TOKEN_MAX_BYTES = UINT16_MAX };

/* What a step of the encoder asks of a token: 32 bytes, half a cache line. */
typedef struct pl_token {
    uint16_t n_bytes;
    uint8_t first, last; /* its bytes at the ends */
    int32_t made_by;     /* rank of the last merge when its own bytes are encoded; or as above */
    int32_t left, right; /* the pair of that merge */
    int32_t first_until, last_until; /* rank of the merge that takes that byte; or PL_NO_RANK */
    int32_t first_as_left, first_as_right; /* lowest rank of a merge with it on that side */
} pl_token;

enum { PL_NO_RANK = INT32_MAX };

typedef struct pl_merge {
    int32_t left, right;
} pl_merge;

typedef struct pl_bpe {
    pl_token *tokens;
    int32_t *shorter;    /* of each token, the longest one that is a proper prefix of it, or -1 */
    pl_merge *merges;    /* by rank */
    uint32_t *pairs;     /* hash table: 8 bits of the hash, 24 of the rank; ~0 is empty */
    int32_t *byte_ranks; /* [256][256]: of the merge of two single bytes, or PL_NO_RANK */
    int32_t
        *leave_ranks; /* the same: lowest rank of a merge of a byte and what begins with a byte */
    int32_t n_tokens, n_merges;
    size_t n_pairs; /* slots */
    uint32_t pairs_shift;
    pl_trie trie; /* the tokens that encoding can yield */
} pl_bpe;

enum { PL_BPE_MAX_MERGES = (1 << 24) - 1 };

/* Lays out everything but what pl__trie_layout does, which it calls with `n_edges`. n_tokens and
 * n_merges are set and at most PL_BPE_MAX_MERGES. */
void pl__bpe_layout(pl_bpe *bpe, pl_arena *arena, size_t n_edges);

/* Empties the tables, the trie's too; their memory is there now. */
void pl__bpe_init(pl_bpe *bpe);

/* Enters merge number `rank`, which makes token `made`; ranks ascend from 0. Before the first,
 * single bytes are PL_TOKEN_BYTE, all others PL_TOKEN_NOT_MADE, the ranks in tokens PL_NO_RANK.
 * PL_ERR_CORRUPT for a pair that has a merge already, PL_ERR_UNSUPPORTED for an order that training
 * does not give (see bpe.c). */
pl_status pl__bpe_add_merge(pl_bpe *bpe, int32_t rank, pl_merge merge, int32_t made,
                            pl_error *err) PL_MUST_CHECK;

/* Words of `dead` for a piece. */
static inline size_t pl__bpe_dead_words(size_t n_bytes)
{
    return n_bytes / 64 + 1;
}

/* Encodes text[0 .. n_bytes), n_bytes > 0. `ids` has room for n_bytes ids, `dead` for
 * pl__bpe_dead_words; what they hold does not matter. Returns the number of ids. Every byte value
 * must be a token. */
size_t pl__bpe_encode(const pl_bpe *bpe, const uint8_t *text, size_t n_bytes, uint64_t *dead,
                      int32_t *ids);

#endif
