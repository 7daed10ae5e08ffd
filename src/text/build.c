/* Packing a vocabulary: from arrays on the heap to one block that is laid out by a dry run first.
 *
 * Tokens are sorted by their bytes once: neighbours then tell how many nodes a trie will have, and
 * prefixes enter it before what they begin. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/tokenizer.h"

/* What the layout depends on beside the source. */
typedef struct builder {
    const char *name;
    const pl_source *source;
    /* Ids of tokens made by merges, then of the two kinds of added tokens; each by bytes. */
    int32_t *sorted;
    size_t n_sorted[3], n_edges[3];
    size_t n_bytes; /* of all tokens */
    pl_error *err;
} builder;

static int compare_bytes(const void *a, const void *b, void *tokens)
{
    const pl_source_token *x = (const pl_source_token *)tokens + *(const int32_t *)a;
    const pl_source_token *y = (const pl_source_token *)tokens + *(const int32_t *)b;
    size_t n = x->n_bytes < y->n_bytes ? x->n_bytes : y->n_bytes;
    int order = memcmp(x->bytes, y->bytes, n);

    return order ? order : (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

static size_t shared_prefix(const pl_source_token *a, const pl_source_token *b)
{
    size_t n = 0;

    while (n < a->n_bytes && n < b->n_bytes && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

/* Whether a token belongs to list 0 (merges), 1 or 2 (added). It can belong to two. */
static bool in_list(const pl_source_token *t, int list)
{
    return list == 0 ? t->by_merges : t->added && t->normalized == (list == 2);
}

static int32_t *list_ids(const builder *b, int list)
{
    size_t before = 0;

    for (int i = 0; i < list; i++)
        before += b->n_sorted[i];
    return b->sorted + before;
}

static pl_status sort_list(builder *b, int list)
{
    const pl_source_token *tokens = b->source->tokens;
    int32_t *ids = list_ids(b, list);
    size_t n = 0;

    for (int32_t id = 0; id < b->source->n_tokens; id++)
        if (in_list(&tokens[id], list))
            ids[n++] = id;
    qsort_r(ids, n, sizeof ids[0], compare_bytes, b->source->tokens);
    for (size_t i = 0; i < n; i++) {
        const pl_source_token *t = &tokens[ids[i]];
        size_t shared = i ? shared_prefix(&tokens[ids[i - 1]], t) : 0;

        if (i && shared == t->n_bytes)
            return pl_error_set(b->err, PL_ERR_CORRUPT, "%s: tokens %d and %d have the same bytes",
                                b->name, ids[i - 1], ids[i]);
        b->n_edges[list] += t->n_bytes - shared;
    }
    b->n_sorted[list] = n;
    if (b->n_edges[list] + (size_t)b->source->n_tokens >= PL_TRIE_MAX_NODES)
        return pl_error_set(b->err, PL_ERR_UNSUPPORTED,
                            "%s: vocabulary too large (got %zu trie nodes, want fewer than %d)",
                            b->name, b->n_edges[list] + (size_t)b->source->n_tokens,
                            PL_TRIE_MAX_NODES);
    return PL_OK;
}

static pl_status prepare(builder *b)
{
    const pl_source *s = b->source;

    /* A token can be in the first list and in one of the other two. */
    b->sorted = malloc(2 * (size_t)s->n_tokens * sizeof b->sorted[0]);
    if (!b->sorted)
        return pl_error_set(b->err, PL_ERR_NOMEM, "%s: out of memory while building the tokenizer",
                            b->name);
    for (int list = 0; list < 3; list++)
        PL_TRY(sort_list(b, list));
    for (int32_t id = 0; id < s->n_tokens; id++)
        b->n_bytes += s->tokens[id].n_bytes;
    return PL_OK;
}

/* Run dry and then for real. Fills in *t where all pieces lie; the first is for the tokenizer
 * itself, which is returned to be filled with *t. */
static pl_tokenizer *layout(const builder *b, pl_arena *arena, pl_tokenizer *t)
{
    size_t n_tokens = (size_t)b->source->n_tokens;
    pl_tokenizer *self = pl_arena_alloc(arena, sizeof *self, 0);

    t->bpe.n_tokens = b->source->n_tokens;
    t->bpe.n_merges = b->source->n_merges;
    pl__bpe_layout(&t->bpe, arena, b->n_edges[0]);
    for (int i = 0; i < 2; i++)
        pl__trie_layout(&t->added[i], arena, (uint32_t)n_tokens, b->n_edges[i + 1]);
    t->offsets = pl_arena_array(arena, n_tokens + 1, sizeof t->offsets[0], 0);
    t->bytes = pl_arena_array(arena, b->n_bytes, 1, 0);
    t->flags = pl_arena_array(arena, n_tokens, 1, 0);
    return self;
}

static pl_status allocate(const builder *b, pl_tokenizer **out)
{
    pl_tokenizer t = {0}, *self;
    void *block;

    pl_arena_init_dry(&t.arena);
    layout(b, &t.arena, &t);
    PL_TRY(pl_arena_check(&t.arena, b->name, b->err));
    t.block_bytes = pl_arena_peak_bytes(&t.arena);
    block = aligned_alloc(PL_ARENA_ALIGN, t.block_bytes);
    if (!block)
        return pl_error_set(b->err, PL_ERR_NOMEM,
                            "%s: no memory for the tokenizer (want %zu bytes)", b->name,
                            t.block_bytes);
    pl_arena_init(&t.arena, block, t.block_bytes);
    self = layout(b, &t.arena, &t);
    *self = t;
    *out = self;
    return pl_arena_check(&t.arena, b->name, b->err);
}

static void fill_tokens(const builder *b, pl_tokenizer *t)
{
    uint32_t offset = 0;

    for (int32_t id = 0; id < t->bpe.n_tokens; id++) {
        const pl_source_token *s = &b->source->tokens[id];

        memcpy(t->bytes + offset, s->bytes, s->n_bytes);
        t->offsets[id] = offset;
        offset += s->n_bytes;
        t->bpe.shorter[id] = -1;
        t->bpe.tokens[id] = (pl_token){
            .n_bytes = (uint16_t)s->n_bytes,
            .first = s->bytes[0],
            .last = s->bytes[s->n_bytes - 1],
            .made_by = s->by_merges && s->n_bytes == 1 ? PL_TOKEN_BYTE : PL_TOKEN_NOT_MADE,
            .left = -1,
            .right = -1,
            .first_until = PL_NO_RANK,
            .last_until = PL_NO_RANK,
            .first_as_left = PL_NO_RANK,
            .first_as_right = PL_NO_RANK,
        };
        t->flags[id] =
            (uint8_t)((s->added ? PL_TOKEN_ADDED : 0) | (s->special ? PL_TOKEN_SPECIAL : 0));
        if (s->n_bytes > t->max_token_bytes)
            t->max_token_bytes = s->n_bytes;
    }
    t->offsets[t->bpe.n_tokens] = offset;
}

static pl_status add_merges(const builder *b, pl_tokenizer *t)
{
    const pl_source *s = b->source;

    for (int32_t rank = 0; rank < s->n_merges; rank++) {
        pl_status status = pl__bpe_add_merge(&t->bpe, rank, s->merges[rank], s->made[rank], b->err);

        if (status != PL_OK) {
            pl_error_prefix(b->err, "%s: model.merges[%d]", b->name, rank);
            return status;
        }
    }
    return PL_OK;
}

/* Tokens that encoding never yields stay outside: they can still be decoded. With ignore_merges
 * they could be yielded, so a file that has both is not for us. */
static pl_status fill_tries(const builder *b, pl_tokenizer *t)
{
    for (size_t i = 0; i < b->n_sorted[0]; i++) {
        int32_t id = list_ids(b, 0)[i];
        pl_token_bytes token = pl__token_bytes(t, id);

        if (t->bpe.tokens[id].made_by != PL_TOKEN_NOT_MADE)
            t->bpe.shorter[id] = pl__trie_add(&t->bpe.trie, token.bytes, token.n, id);
        else if (b->source->ignore_merges)
            return pl_error_set(b->err, PL_ERR_UNSUPPORTED,
                                "%s: model.ignore_merges: not supported where merges do not make "
                                "all tokens (token %d)",
                                b->name, id);
    }
    for (int list = 1; list < 3; list++) {
        pl__trie_init(&t->added[list - 1]);
        for (size_t i = 0; i < b->n_sorted[list]; i++) {
            int32_t id = list_ids(b, list)[i];
            pl_token_bytes token = pl__token_bytes(t, id);

            pl__trie_add(&t->added[list - 1], token.bytes, token.n, id);
        }
    }
    return PL_OK;
}

static void find_roles(pl_tokenizer *t)
{
    static const char *const spelling[PL_TOKEN_ROLE_COUNT] = {
        [PL_TOKEN_BOS] = "<｜begin▁of▁sentence｜>",
        [PL_TOKEN_EOS] = "<｜end▁of▁sentence｜>",
        [PL_TOKEN_PAD] = "<｜▁pad▁｜>",
        [PL_TOKEN_USER] = "<｜User｜>",
        [PL_TOKEN_ASSISTANT] = "<｜Assistant｜>",
        [PL_TOKEN_THINK_BEGIN] = "<think>",
        [PL_TOKEN_THINK_END] = "</think>",
        [PL_TOKEN_DSML] = "｜DSML｜",
    };

    for (int role = 0; role < PL_TOKEN_ROLE_COUNT; role++) {
        int32_t id = pl_tokenizer_find(t, spelling[role], strlen(spelling[role]));

        t->role_ids[role] = id >= 0 && t->flags[id] & PL_TOKEN_ADDED ? id : -1;
    }
}

pl_status pl__tokenizer_build(const char *name, const pl_source *source, pl_tokenizer **out,
                              pl_error *err)
{
    builder b = {.name = name, .source = source, .err = err};
    pl_tokenizer *t = NULL;
    pl_status status = prepare(&b);

    if (status == PL_OK)
        status = allocate(&b, &t);
    if (status == PL_OK) {
        pl__bpe_init(&t->bpe);
        fill_tokens(&b, t);
        status = add_merges(&b, t);
    }
    if (status == PL_OK)
        status = fill_tries(&b, t);
    if (status == PL_OK) {
        find_roles(t);
        pl__char_table_init(&t->chars);
    } else {
        pl_tokenizer_close(t);
        t = NULL;
    }
    free(b.sorted);
    *out = t;
    return status;
}
