/* Byte-pair encoding without merging.
 *
 * Merges happen in order of rank: pl__bpe_add_merge refuses files in which a merge could make room
 * for one of lower rank. So the state of any stretch of text after rank r depends on that stretch
 * alone as long as no merge has crossed its ends, and hence:
 *
 *     tokens t1 .. tk are the encoding of their bytes
 *     exactly if each ti is the encoding of its own bytes and, for each neighbours ti, ti+1, no merge
 *     ever crosses the boundary between them when the bytes of the two are encoded.
 *
 * The second condition concerns two tokens only (can_meet). The encoder therefore looks for the one
 * chain of tokens that can meet, from the left, longest first, stepping back where it gets stuck. A
 * beginning of the text has one encoding too, so at each position there is one possible chain that
 * leads there: a position left without success is never tried again, which bounds the work by
 * positions times prefixes of one token. No heap, no list of symbols; mostly one look-up per piece.
 *
 * Compared with the definition, carried out literally, in tests/unit/test_bpe.c. */
#include "text/bpe.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

void pl__bpe_layout(pl_bpe *bpe, pl_arena *arena, size_t n_edges)
{
    size_t n_pairs = 4;

    bpe->pairs_shift = 62;
    while (n_pairs < 2 * (size_t)bpe->n_merges) {
        n_pairs *= 2;
        bpe->pairs_shift--;
    }
    bpe->tokens = pl_arena_array(arena, (size_t)bpe->n_tokens, sizeof bpe->tokens[0], 0);
    bpe->merges = pl_arena_array(arena, (size_t)bpe->n_merges, sizeof bpe->merges[0], 0);
    bpe->shorter = pl_arena_array(arena, (size_t)bpe->n_tokens, sizeof bpe->shorter[0], 0);
    bpe->byte_ranks = pl_arena_array(arena, 256 * 256, sizeof bpe->byte_ranks[0], 0);
    bpe->leave_ranks = pl_arena_array(arena, 256 * 256, sizeof bpe->leave_ranks[0], 0);
    bpe->n_pairs = n_pairs;
    bpe->pairs = pl_arena_array(arena, n_pairs, sizeof bpe->pairs[0], 0);
    pl__trie_layout(&bpe->trie, arena, (uint32_t)bpe->n_tokens, n_edges);
}

void pl__bpe_init(pl_bpe *bpe)
{
    memset(bpe->pairs, 0xFF, bpe->n_pairs * sizeof bpe->pairs[0]);
    for (size_t i = 0; i < 256 * 256; i++)
        bpe->byte_ranks[i] = bpe->leave_ranks[i] = PL_NO_RANK;
    pl__trie_init(&bpe->trie);
}

static inline uint64_t hash_pair(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
}

/* The slot of the pair's merge, or the empty slot where it would be. */
static inline uint32_t *find_pair(const pl_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t hash = hash_pair(left, right);
    uint32_t tag = (uint32_t)(hash >> 24 & 0xFF), mask = UINT32_MAX >> (bpe->pairs_shift - 32);
    uint32_t i = (uint32_t)(hash >> bpe->pairs_shift);

    for (;; i = (i + 1) & mask) {
        uint32_t slot = bpe->pairs[i];

        if (slot == UINT32_MAX)
            return &bpe->pairs[i];
        if (slot >> 24 == tag) {
            const pl_merge *m = &bpe->merges[slot & 0xFFFFFF];

            if (m->left == left && m->right == right)
                return &bpe->pairs[i];
        }
    }
}

static inline int32_t rank_of_pair(const pl_bpe *bpe, int32_t left, int32_t right)
{
    uint32_t slot = *find_pair(bpe, left, right);

    return slot == UINT32_MAX ? PL_NO_RANK : (int32_t)(slot & 0xFFFFFF);
}

static inline bool crosses(int32_t rank, int32_t left_until, int32_t right_until)
{
    return rank < left_until && rank <= right_until;
}

/* Whether no merge of a rank below `limit` crosses the boundary between the two when their bytes
 * are encoded together. Both are encodings of their own bytes.
 *
 * What borders the boundary is at first single bytes, at last the whole tokens. Each symbol there
 * lasts from the rank that made it up to the rank that takes it into its successor (left_until,
 * right_until). A merge of the two that border at a time crosses if its rank lies before both. If
 * it equals left_until, left is the second of two equal symbols and its partner, further left,
 * comes first; if it equals right_until, the crossing pair is the leftmost and wins.
 *
 * The bytes are asked first, being one look-up and the most frequent obstacle; the rest is run
 * through backwards, from the whole tokens, because that is how they are linked. */
static inline bool can_meet(const pl_bpe *bpe, int32_t left, int32_t right, int32_t limit)
{
    const pl_token *l = &bpe->tokens[left], *r = &bpe->tokens[right];
    int32_t left_until = limit, right_until = limit;
    int32_t byte_rank = bpe->byte_ranks[l->last << 8 | r->first];

    if (byte_rank < limit && crosses(byte_rank, l->last_until, r->first_until))
        return false;
    while (l->made_by >= 0 || r->made_by >= 0) {
        /* Most symbols are in no merge on that side, or only in late ones: saves the look-up. */
        if (l->first_as_left < left_until && r->first_as_right <= right_until &&
            crosses(rank_of_pair(bpe, left, right), left_until, right_until))
            return false;
        if (l->made_by > r->made_by) {
            left_until = l->made_by;
            left = l->right;
            l = &bpe->tokens[left];
        } else {
            right_until = r->made_by;
            right = r->left;
            r = &bpe->tokens[right];
        }
    }
    return true;
}

pl_status pl__bpe_add_merge(pl_bpe *bpe, int32_t rank, pl_merge merge, int32_t made, pl_error *err)
{
    pl_token *left = &bpe->tokens[merge.left], *right = &bpe->tokens[merge.right];
    pl_token *result = &bpe->tokens[made];
    uint32_t *slot = find_pair(bpe, merge.left, merge.right);

    if (*slot != UINT32_MAX)
        return pl_error_set(err, PL_ERR_CORRUPT, "same pair as in merge %u", *slot & 0xFFFFFF);
    if (result->first_as_left != PL_NO_RANK || result->first_as_right != PL_NO_RANK)
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "makes token %d, which an earlier merge uses (merges must come in the "
                            "order in which they were learned)",
                            made);
    if (left->made_by == PL_TOKEN_NOT_MADE || right->made_by == PL_TOKEN_NOT_MADE)
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "uses token %d, which is no byte and which no earlier merge yields",
                            left->made_by == PL_TOKEN_NOT_MADE ? merge.left : merge.right);
    if (left->first_as_left == PL_NO_RANK)
        left->first_as_left = rank;
    if (right->first_as_right == PL_NO_RANK)
        right->first_as_right = rank;
    bpe->merges[rank] = merge;
    *slot = (uint32_t)(hash_pair(merge.left, merge.right) >> 24 & 0xFF) << 24 | (uint32_t)rank;
    if (left->made_by == PL_TOKEN_BYTE) {
        int32_t *leave = &bpe->leave_ranks[left->last << 8 | right->first];

        if (right->made_by == PL_TOKEN_BYTE)
            bpe->byte_ranks[left->last << 8 | right->first] = rank;
        if (*leave == PL_NO_RANK)
            *leave = rank;
    }
    /* Another merge may have made it already, or its bytes may come out otherwise. */
    if (result->made_by == PL_TOKEN_NOT_MADE && can_meet(bpe, merge.left, merge.right, rank)) {
        result->made_by = rank;
        result->left = merge.left;
        result->right = merge.right;
        result->first_until = left->made_by == PL_TOKEN_BYTE ? rank : left->first_until;
        result->last_until = right->made_by == PL_TOKEN_BYTE ? rank : right->last_until;
    }
    return PL_OK;
}

/* Whether no token at all can follow `token` where the text goes on with next[0 .. n_next), n_next
 * > 0: their bytes at the boundary would merge before anything to the right could take next[0]
 * away. Spares dead ends in runs of one character. */
static inline bool is_blocked(const pl_bpe *bpe, int32_t token, const uint8_t *next, size_t n_next)
{
    int32_t rank = bpe->byte_ranks[bpe->tokens[token].last << 8 | next[0]];

    return rank < bpe->tokens[token].last_until &&
           (n_next == 1 || rank <= bpe->leave_ranks[next[0] << 8 | next[1]]);
}

static inline bool is_dead(const uint64_t *dead, size_t at)
{
    return dead[at / 64] >> (at % 64) & 1;
}

/* Answers of can_meet within one piece, each slot the last of its hash: 31 bits of one id, 32 of
 * the other, the answer below. Runs of a character ask the same few questions all along. */
enum { MEMO_BITS = 8, MEMO_MIN_BYTES = 128 };

static bool can_meet_memo(const pl_bpe *bpe, uint64_t *memo, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right << 1;
    uint64_t *slot = &memo[hash_pair(left, right) >> (64 - MEMO_BITS)];

    if ((*slot | 1) != (key | 1))
        *slot = key | can_meet(bpe, left, right, PL_NO_RANK);
    return *slot & 1;
}

/* The chain of tokens that begins with `token` or a shorter one; see the top of the file. `memo` is
 * NULL where the piece is too short to be worth it. */
static size_t find_chain(const pl_bpe *bpe, const uint8_t *text, size_t n_bytes, int32_t token,
                         uint64_t *dead, uint64_t *memo, int32_t *ids)
{
    size_t at = 0, n_ids = 0, n_matched;

    for (;;) {
        for (; token >= 0; token = bpe->shorter[token]) {
            size_t end = at + bpe->tokens[token].n_bytes;

            if (end < n_bytes &&
                (is_dead(dead, end) || is_blocked(bpe, token, text + end, n_bytes - end)))
                continue;
            if (n_ids == 0 || (memo ? can_meet_memo(bpe, memo, ids[n_ids - 1], token)
                                    : can_meet(bpe, ids[n_ids - 1], token, PL_NO_RANK)))
                break;
        }
        if (token >= 0) {
            ids[n_ids++] = token;
            at += bpe->tokens[token].n_bytes;
            if (at == n_bytes)
                return n_ids;
            token = pl__trie_longest(&bpe->trie, text + at, n_bytes - at, &n_matched);
        } else {
            assert(n_ids > 0); /* every byte is a token, so there is an encoding */
            dead[at / 64] |= 1ull << (at % 64);
            token = ids[--n_ids];
            at -= bpe->tokens[token].n_bytes;
            token = bpe->shorter[token];
        }
    }
}

size_t pl__bpe_encode(const pl_bpe *bpe, const uint8_t *text, size_t n_bytes, uint64_t *dead,
                      int32_t *ids)
{
    uint64_t memo[1 << MEMO_BITS];
    size_t n_matched = 0;
    int32_t token = pl__trie_longest(&bpe->trie, text, n_bytes, &n_matched);

    if (n_matched == n_bytes) {
        ids[0] = token;
        return 1;
    }
    memset(dead, 0, pl__bpe_dead_words(n_bytes) * sizeof dead[0]);
    if (n_bytes < MEMO_MIN_BYTES)
        return find_chain(bpe, text, n_bytes, token, dead, NULL, ids);
    memset(memo, 0xFF, sizeof memo);
    return find_chain(bpe, text, n_bytes, token, dead, memo, ids);
}
