/* The tree of prefixes: its slots, its lists, and the two walks over it.
 *
 * One list holds all blocks by their last use, and a block always stands behind its parent in it: a walk moves the blocks
 * it met to the front, the deepest first, and a new block is put right behind its parent. So the last block of
 * the list never has children and can go, and whoever is about to add a child keeps its parent by looking whether that
 * one is the last. How large they are is prefix_size.c. Nothing here knows requests; engine/prefix.c decides what is stored. */
#define XXH_STATIC_LINKING_ONLY
#include "cache/prefix.h"

#include <assert.h>
#include <string.h>

#include "cache/prefix_impl.h"

/* ---- lists */

static pl_prefix_link *used_of(pl_prefix *p, int32_t i)
{
    return &p->blocks[i].used;
}

static pl_prefix_link *kept_of(pl_prefix *p, int32_t i)
{
    return &p->blocks[i].kept;
}

typedef pl_prefix_link *link_of(pl_prefix *p, int32_t i);

/* Behind `before`; -1: in front. */
static void insert(pl_prefix *p, pl_prefix_ends *list, link_of *of, int32_t i, int32_t before)
{
    const int32_t after = before < 0 ? list->first : of(p, before)->after;

    *of(p, i) = (pl_prefix_link){before, after};
    *(before < 0 ? &list->first : &of(p, before)->after) = i;
    *(after < 0 ? &list->last : &of(p, after)->before) = i;
}

static void take_out(pl_prefix *p, pl_prefix_ends *list, link_of *of, int32_t i)
{
    const pl_prefix_link l = *of(p, i);

    *(l.before < 0 ? &list->first : &of(p, l.before)->after) = l.after;
    *(l.after < 0 ? &list->last : &of(p, l.after)->before) = l.before;
}

static void to_front(pl_prefix *p, pl_prefix_ends *list, link_of *of, int32_t i)
{
    take_out(p, list, of, i);
    insert(p, list, of, i, -1);
}

/* The block and all before it in the text are now the last used. */
static void touch(pl_prefix *p, int32_t i)
{
    for (; i >= 0; i = p->blocks[i].parent)
        to_front(p, &p->used, used_of, i);
}

/* ---- keys */

void pl_prefix_init(pl_prefix *p, const pl_snapshot_id *id, const pl_state *s)
{
    const uint64_t numbers[] = {id->numerics_version, PL_PREFIX_BLOCK, p->size.block_bytes,
                                p->size.state_bytes};
    XXH3_state_t hash;

    (void)XXH3_128bits_reset(&hash);
    (void)XXH3_128bits_update(&hash, numbers, sizeof numbers);
    for (int32_t l = 0; l < s->n_layers; l++)
        (void)XXH3_128bits_update(&hash, &s->layer[l].ratio, sizeof s->layer[l].ratio);
    (void)XXH3_128bits_update(&hash, id->checkpoint, strlen(id->checkpoint));
    p->root = XXH3_128bits_digest(&hash);
    p->used = p->kept = (pl_prefix_ends){-1, -1};
    p->n_used = p->n_kept = p->n_free_states = 0;
    p->free_block = -1;
    for (int32_t i = p->size.n_blocks - 1; i >= 0; i--) {
        p->buckets[i] = -1;
        p->blocks[i].chained = p->free_block;
        p->free_block = i;
    }
    for (int32_t i = p->size.n_states - 1; i >= 0; i--)
        p->free_states[p->n_free_states++] = i;
}

/* Tokens of a block, and what they are behind. */
typedef struct place {
    XXH128_hash_t key;
    int32_t parent;
    int32_t tokens[PL_PREFIX_BLOCK];
} place;

/* The place of block i of a text below `parent`. */
static void find_place(const pl_prefix *p, const pl_snapshot_tokens *t, int32_t i, int32_t parent,
                       place *at)
{
    XXH3_state_t hash;
    XXH128_canonical_t above;

    for (int32_t k = 0; k < PL_PREFIX_BLOCK; k++) {
        const int32_t position = i * PL_PREFIX_BLOCK + k;

        at->tokens[k] = position < t->n_first ? t->first[position] : t->rest[position - t->n_first];
    }
    at->parent = parent;
    XXH128_canonicalFromHash(&above, parent < 0 ? p->root : p->blocks[parent].key);
    (void)XXH3_128bits_reset(&hash);
    (void)XXH3_128bits_update(&hash, above.digest, sizeof above.digest);
    (void)XXH3_128bits_update(&hash, at->tokens, sizeof at->tokens);
    at->key = XXH3_128bits_digest(&hash);
}

static int32_t *bucket_of(const pl_prefix *p, const XXH128_hash_t *key)
{
    return &p->buckets[key->low64 % (uint64_t)p->size.n_blocks];
}

/* -1: not there. */
static int32_t look_up(const pl_prefix *p, const place *at)
{
    int32_t i = *bucket_of(p, &at->key);

    for (; i >= 0; i = p->blocks[i].chained) {
        const pl_prefix_block *b = &p->blocks[i];

        if (XXH128_isEqual(b->key, at->key) && b->parent == at->parent &&
            memcmp(b->tokens, at->tokens, sizeof at->tokens) == 0)
            break;
    }
    return i;
}

/* ---- slots */

static void drop_state(pl_prefix *p, int32_t i)
{
    take_out(p, &p->kept, kept_of, i);
    p->free_states[p->n_free_states++] = p->blocks[i].state;
    p->blocks[i].state = -1;
    p->n_kept--;
}

static void drop_block(pl_prefix *p, int32_t i)
{
    pl_prefix_block *b = &p->blocks[i];
    int32_t *at = bucket_of(p, &b->key);

    assert(b->n_children == 0);
    if (b->state >= 0)
        drop_state(p, i);
    while (*at != i)
        at = &p->blocks[*at].chained;
    *at = b->chained;
    take_out(p, &p->used, used_of, i);
    if (b->parent >= 0)
        p->blocks[b->parent].n_children--;
    b->chained = p->free_block;
    p->free_block = i;
    p->n_used--;
}

/* A new block without contents; -1 where only its parents are left to go. */
static int32_t add_block(pl_prefix *p, const place *at)
{
    pl_prefix_block *b;
    int32_t i;

    if (p->free_block < 0) {
        if (p->used.last == at->parent)
            return -1;
        drop_block(p, p->used.last);
    }
    i = p->free_block;
    b = &p->blocks[i];
    p->free_block = b->chained;
    *b = (pl_prefix_block){
        .key = at->key, .parent = at->parent, .chained = *bucket_of(p, &at->key), .state = -1};
    memcpy(b->tokens, at->tokens, sizeof b->tokens);
    *bucket_of(p, &at->key) = i;
    if (at->parent >= 0)
        p->blocks[at->parent].n_children++;
    insert(p, &p->used, used_of, i, at->parent);
    p->n_used++;
    return i;
}

/* A slot for the state of block i, which has none. */
static void add_state(pl_prefix *p, int32_t i)
{
    if (!p->n_free_states)
        drop_state(p, p->kept.last);
    p->blocks[i].state = p->free_states[--p->n_free_states];
    insert(p, &p->kept, kept_of, i, -1);
    p->n_kept++;
}

/* ---- contents */

static uint8_t *block_at(const pl_prefix *p, int32_t i)
{
    return p->contents + (uint64_t)i * pl__prefix_slot_bytes(p->size.block_bytes);
}

static uint8_t *state_at(const pl_prefix *p, int32_t i)
{
    return p->states + (uint64_t)p->blocks[i].state * pl__prefix_slot_bytes(p->size.state_bytes);
}

static pl_pack_span span_of_block(int32_t i)
{
    const int32_t end = (i + 1) * PL_PREFIX_BLOCK;

    return (pl_pack_span){.begin = i * PL_PREFIX_BLOCK, .n = end, .n_settled = end, .n_mtp = end};
}

static const pl_pack block_parts[] = {PL_PACK_ENTRIES, PL_PACK_KEYS};
static const pl_pack state_parts[] = {PL_PACK_WINDOW, PL_PACK_POOLS, PL_PACK_PENDING};

#define N_OF(list) ((int)(sizeof(list) / sizeof *(list)))

static void save(const pl_state *s, const pl_pack *parts, int n, const pl_pack_span *span,
                 uint8_t *to)
{
    for (int i = 0; i < n; i++) {
        pl_pack_save(s, parts[i], span, to);
        to += pl_pack_bytes(s, parts[i], span);
    }
}

static void load(pl_state *s, const pl_pack *parts, int n, const pl_pack_span *span,
                 const uint8_t *from)
{
    for (int i = 0; i < n; i++) {
        pl_pack_load(s, parts[i], span, from);
        from += pl_pack_bytes(s, parts[i], span);
    }
}

/* The mtp block's row of position n - 1 depends on the token behind it, which is another one in another text. It is left
 * out; zeros in its place make drafts worse and change no result (cache/pack.h). */
static pl_pack_span span_of_state(int32_t n, int32_t n_settled, const pl_state *s)
{
    return (pl_pack_span){.n = n, .n_settled = n_settled, .n_mtp = s->n_mtp < n ? s->n_mtp : n - 1};
}

/* ---- the two walks */

static void restore(const pl_prefix *p, int32_t at, int32_t n, pl_state *s)
{
    const pl_prefix_block *end = &p->blocks[at];
    const pl_pack_span span = {.n = n, .n_settled = end->n_settled, .n_mtp = n};

    pl_state_reset(s);
    for (; s; s = s->next_rank) {
        int32_t i = at;

        s->n = s->n_mtp = n;
        s->n_settled = end->n_settled;
        load(s, state_parts, N_OF(state_parts), &span, state_at(p, at));
        for (int32_t k = n / PL_PREFIX_BLOCK - 1; k >= 0; k--, i = p->blocks[i].parent) {
            const pl_pack_span block = span_of_block(k);

            load(s, block_parts, N_OF(block_parts), &block, block_at(p, i));
        }
    }
}

int32_t pl_prefix_restore(pl_prefix *p, const pl_snapshot_tokens *tokens, int32_t n, pl_state *s,
                          int32_t *n_known)
{
    const int32_t n_blocks = p->size.n_blocks ? n / PL_PREFIX_BLOCK : 0;
    int32_t last = -1, best = -1, n_best = 0;
    place at;

    *n_known = 0;
    for (int32_t i = 0; i < n_blocks; i++) {
        int32_t found;

        find_place(p, tokens, i, last, &at);
        found = look_up(p, &at);
        if (found < 0)
            break;
        last = found;
        *n_known = (i + 1) * PL_PREFIX_BLOCK;
        if (p->blocks[last].state >= 0) {
            best = last;
            n_best = *n_known;
        }
    }
    touch(p, last);
    if (best >= 0) {
        to_front(p, &p->kept, kept_of, best);
        p->blocks[best].passing = false;
        restore(p, best, n_best, s);
    }
    return n_best;
}

/* The block of the first n positions, with all before it; -1 where there was no room. */
static int32_t store_blocks(pl_prefix *p, const pl_snapshot_tokens *tokens, int32_t n,
                            const pl_state *s, const pl_prefix_mark *mark)
{
    int32_t last = -1;
    place at;

    for (int32_t i = 0; i < n / PL_PREFIX_BLOCK; i++) {
        const pl_pack_span span = span_of_block(i);
        int32_t found;

        find_place(p, tokens, i, last, &at);
        found = look_up(p, &at);
        if (found < 0) {
            found = add_block(p, &at);
            if (found < 0)
                return -1;
            save(s, block_parts, N_OF(block_parts), &span, block_at(p, found));
        } else {
            /* In front of what may have to go. */
            take_out(p, &p->used, used_of, found);
            insert(p, &p->used, used_of, found, last);
        }
        last = found;
        if (span.n == mark->n_replaced && p->blocks[last].passing && p->blocks[last].state >= 0)
            drop_state(p, last);
    }
    return last;
}

bool pl_prefix_store(pl_prefix *p, const pl_snapshot_tokens *tokens, int32_t n, const pl_state *s,
                     const pl_prefix_mark *mark)
{
    const pl_pack_span span = span_of_state(n, s->n_settled, s);
    int32_t at;

    assert(n > 0 && n % PL_PREFIX_BLOCK == 0 && s->n_settled <= n && n <= s->n);
    assert(s->n - n <= p->max_draft);
    if (n / PL_PREFIX_BLOCK > p->size.n_blocks)
        return false;
    at = store_blocks(p, tokens, n, s, mark);
    if (at < 0)
        return false;
    if (p->blocks[at].state >= 0) {
        to_front(p, &p->kept, kept_of, at);
        p->blocks[at].passing = p->blocks[at].passing && mark->passing;
        return true;
    }
    add_state(p, at);
    p->blocks[at].passing = mark->passing;
    p->blocks[at].n_settled = s->n_settled;
    save(s, state_parts, N_OF(state_parts), &span, state_at(p, at));
    return true;
}
