/* The tree of prefixes against states of known bytes: what comes back is what was stored, whatever went meanwhile. */
#include <stdlib.h>
#include <string.h>

#include "cache/prefix.h"
#include "support/check.h"
#include "support/prefix_check.h"

enum { LEN = 128 * 12, DRAFTS = 3 };

static int32_t ratios[] = {0, 4, 128};

static pl_state_shape shape_of(int32_t max_draft)
{
    return (pl_state_shape){.ops = pl_ops_scalar(),
                            .n_layers = 3,
                            .has_mtp = true,
                            .ratio = ratios,
                            .max_len = LEN + 64,
                            .max_draft = max_draft};
}

typedef struct held {
    void *memory;
    size_t bytes;
} held;

static held take(pl_arena *dry)
{
    held h = {.bytes = (pl_arena_peak_bytes(dry) + 63) / 64 * 64};

    h.memory = aligned_alloc(64, h.bytes);
    assert_non_null(h.memory);
    memset(h.memory, 0, h.bytes);
    return h;
}

static held make_state(pl_state *s, const pl_state_shape *shape)
{
    pl_arena a;
    held h;

    pl_arena_init_dry(&a);
    pl_state_layout(s, &a, shape);
    h = take(&a);
    pl_arena_init(&a, h.memory, h.bytes);
    pl_state_layout(s, &a, shape);
    pl_state_reset(s);
    return h;
}

static const pl_snapshot_id id = {7, "checkpoint"};

static held make_cache(pl_prefix *p, const pl_state_shape *shape, const pl_prefix_size *z,
                       const pl_state *s)
{
    pl_arena a;
    held h;

    pl_arena_init_dry(&a);
    pl_prefix_layout(p, &a, shape, z);
    assert_int_equal(pl_arena_planned_peak_bytes(&a), pl_prefix_bytes(z));
    h = take(&a);
    pl_arena_init(&a, h.memory, h.bytes);
    pl_prefix_layout(p, &a, shape, z);
    pl_prefix_init(p, &id, s);
    check_prefix(p);
    return h;
}

/* What a state has at position i depends on all tokens up to it: here a number made of them. */
static uint32_t number_of(const int32_t *tokens, int32_t n)
{
    uint32_t x = 1;

    for (int32_t i = 0; i < n; i++)
        x = x * 1664525u + (uint32_t)tokens[i] + 1013904223u;
    return x;
}

static void fill_row(const pl_rows *rows, int64_t i, uint32_t number)
{
    memset(pl_rows_data(rows, i), (int)(number >> 24), (size_t)rows->data_bytes);
    memset(pl_rows_scales(rows, i), (int)(number >> 16 & 255), (size_t)rows->scale_bytes);
}

static void fill_compressor(const pl_state *s, pl_compressor_state *c, uint32_t settled,
                            uint32_t all)
{
    const size_t row = (size_t)pl_compressor_width(c->ratio, c->dim) * (size_t)s->ops->acc_bytes;

    memset(c->state, (int)(settled >> 24), s->ops->compress_state_bytes(c->ratio, c->dim));
    for (int32_t i = 0; i < s->n - s->n_settled; i++) {
        memset((uint8_t *)c->pending_kv + (size_t)i * row, (int)(all >> 24) + i, row);
        memset((uint8_t *)c->pending_gate + (size_t)i * row, (int)(all >> 16 & 255) + i, row);
    }
}

/* The state of a text at n, the last n_pending positions of which the compressors have not read. */
static void run_text(pl_state *s, const int32_t *tokens, int32_t n, int32_t n_pending)
{
    const uint32_t settled = number_of(tokens, n - n_pending);
    uint32_t number = 0;

    s->n = s->n_mtp = n;
    s->n_settled = n - n_pending;
    for (int32_t l = 0; l < s->n_layers + s->has_mtp; l++) {
        pl_layer_state *layer = &s->layer[l];

        for (int32_t i = 0; i < n; i++) {
            number =
                i ? number * 1664525u + (uint32_t)tokens[i] + 1013904223u : number_of(tokens, 1);
            fill_row(&layer->ring, i % s->ring_rows, number + (uint32_t)l);
            if (layer->ratio && (i + 1) % layer->ratio == 0)
                fill_row(&layer->entries, i / layer->ratio, number + (uint32_t)l);
            if (layer->ratio == 4 && (i + 1) % 4 == 0)
                fill_row(&layer->keys, i / 4, number - (uint32_t)l);
        }
        if (layer->ratio)
            fill_compressor(s, &layer->main, settled, settled + (uint32_t)l);
        if (layer->ratio == 4)
            fill_compressor(s, &layer->index, settled, settled - (uint32_t)l);
    }
}

/* All of a state at n as packed bytes; the mtp block's row of the last position is no part of it. */
static void check_same_state(const pl_state *got, const pl_state *want, int32_t n)
{
    const pl_pack_span span = {.n = n, .n_settled = got->n_settled, .n_mtp = n - 1};

    assert_int_equal(got->n, n);
    assert_int_equal(got->n_mtp, n);
    assert_true(want->n_settled <= n && got->n_settled == want->n_settled);
    for (int part = 0; part < PL_PACK_COUNT; part++) {
        const size_t bytes = (size_t)pl_pack_bytes(want, (pl_pack)part, &span);
        uint8_t *a = calloc(bytes + 1, 1), *b = calloc(bytes + 1, 1);

        assert_true(a && b);
        pl_pack_save(got, (pl_pack)part, &span, a);
        pl_pack_save(want, (pl_pack)part, &span, b);
        check_same_bytes("part", a, b, bytes);
        free(a);
        free(b);
    }
}

/* Tokens of one of many texts, which begin alike by halves: text i and i ^ 1 share the most. */
static void write_text(int32_t *tokens, int32_t n, uint32_t which)
{
    for (int32_t i = 0; i < n; i++) {
        const uint32_t block = (uint32_t)i / 128;

        tokens[i] = (int32_t)(block * 1000 + (uint32_t)i % 7 +
                              10 * (block < 4 ? which >> (3 - block) : which));
    }
}

static void sizes(void **state)
{
    for (int32_t k = 0; k < 9; k += 4) {
        const pl_state_shape shape = shape_of(k);
        const uint64_t least = pl_prefix_min_bytes(&shape);
        pl_prefix_size z = pl_prefix_size_of(&shape, least - 1);

        assert_int_equal(z.n_blocks, 0);
        assert_int_equal(pl_prefix_bytes(&z), 0);
        for (uint64_t bytes = least; bytes < 40 * least; bytes += 1 + bytes / 37) {
            pl_prefix_size again, more;

            z = pl_prefix_size_of(&shape, bytes);
            assert_true(z.n_blocks >= 1 && z.n_states >= 1);
            assert_true(pl_prefix_bytes(&z) <= bytes);
            more = z;
            more.n_blocks++;
            assert_true(pl_prefix_bytes(&more) > bytes);
            again = pl_prefix_size_of(&shape, pl_prefix_bytes(&z));
            assert_int_equal(again.n_blocks, z.n_blocks);
            assert_int_equal(again.n_states, z.n_states);
            assert_true(z.n_states == 1 || z.n_blocks >= 8 * z.n_states);
        }
        z = pl_prefix_size_of(&shape, UINT64_MAX);
        assert_int_equal(z.n_blocks, PL_PREFIX_MAX_BLOCKS);
    }
}

/* The key of one text in the record of another: compared tokens and parents tell them apart. */
static void colliding_keys_find_nothing(void **state)
{
    const pl_state_shape shape = shape_of(0);
    const pl_prefix_size z = pl_prefix_size_of(&shape, pl_prefix_min_bytes(&shape));
    static int32_t a[256], b[256];
    const pl_snapshot_tokens text_a = {a, NULL, 256}, text_b = {b, NULL, 256};
    const pl_prefix_mark mark = {0};
    XXH128_hash_t key;
    pl_state s, got;
    pl_prefix p;
    held hs = make_state(&s, &shape), hg = make_state(&got, &shape),
         hp = make_cache(&p, &shape, &z, &s);
    int32_t n_known;

    assert_int_equal(z.n_blocks, 1);
    write_text(a, 256, 1);
    memcpy(b, a, sizeof a);
    b[127]++;
    run_text(&s, b, 128, 0);
    assert_true(pl_prefix_store(&p, &text_b, 128, &s, &mark));
    key = p.blocks[p.used.first].key;
    run_text(&s, a, 128, 0);
    assert_true(pl_prefix_store(&p, &text_a, 128, &s, &mark));
    assert_int_equal(p.n_used, 1);
    assert_int_equal(pl_prefix_restore(&p, &text_b, 128, &got, &n_known), 0);
    p.blocks[p.used.first].key = key;
    assert_int_equal(pl_prefix_restore(&p, &text_b, 128, &got, &n_known), 0);
    assert_int_equal(n_known, 0);
    /* The same tokens below another parent. */
    memcpy(p.blocks[p.used.first].tokens, b, 128 * sizeof *b);
    assert_int_equal(pl_prefix_restore(&p, &text_b, 128, &got, &n_known), 128);
    p.blocks[p.used.first].parent = 0;
    assert_int_equal(pl_prefix_restore(&p, &text_b, 128, &got, &n_known), 0);
    free(hs.memory);
    free(hg.memory);
    free(hp.memory);
}

/* Other tokens, other numerics, another checkpoint: other keys. */
static void keys_are_of_a_model(void **state)
{
    const pl_state_shape shape = shape_of(0);
    const pl_prefix_size z = pl_prefix_size_of(&shape, pl_prefix_min_bytes(&shape));
    const pl_snapshot_id others[] = {{8, "checkpoint"}, {7, "checkpoinu"}};
    XXH128_hash_t root;
    pl_state s;
    pl_prefix p;
    held hs = make_state(&s, &shape), hp = make_cache(&p, &shape, &z, &s);

    root = p.root;
    for (int i = 0; i < 2; i++) {
        pl_prefix_init(&p, &others[i], &s);
        assert_false(XXH128_isEqual(root, p.root));
    }
    pl_prefix_init(&p, &id, &s);
    assert_true(XXH128_isEqual(root, p.root));
    free(hs.memory);
    free(hp.memory);
}

/* A text longer than the cache is not stored, and what was there stays. */
static void too_long_a_text(void **state)
{
    const pl_state_shape shape = shape_of(0);
    pl_prefix_size z = pl_prefix_size_of(&shape, pl_prefix_min_bytes(&shape));
    static int32_t a[512];
    const pl_snapshot_tokens text = {a, NULL, 512};
    const pl_prefix_mark mark = {0};
    pl_state s, got;
    pl_prefix p;
    held hs = make_state(&s, &shape), hg = make_state(&got, &shape), hp;
    int32_t n_known;

    z.n_blocks = 3;
    hp = make_cache(&p, &shape, &z, &s);
    write_text(a, 512, 1);
    run_text(&s, a, 384, 0);
    assert_true(pl_prefix_store(&p, &text, 384, &s, &mark));
    run_text(&s, a, 512, 0);
    assert_false(pl_prefix_store(&p, &text, 512, &s, &mark));
    assert_int_equal(p.n_used, 3);
    assert_int_equal(pl_prefix_restore(&p, &text, 512, &got, &n_known), 384);
    check_prefix(&p);
    free(hs.memory);
    free(hg.memory);
    free(hp.memory);
}

/* A later state of a text takes the place of the one before, unless another text began there. */
static void passing_states(void **state)
{
    const pl_state_shape shape = shape_of(0);
    const pl_prefix_size z = pl_prefix_size_of(&shape, 20 * pl_prefix_min_bytes(&shape));
    static int32_t a[512];
    const pl_snapshot_tokens text = {a, NULL, 512};
    pl_state s, got;
    pl_prefix p;
    held hs = make_state(&s, &shape), hg = make_state(&got, &shape),
         hp = make_cache(&p, &shape, &z, &s);
    int32_t n_known;

    write_text(a, 512, 1);
    for (int32_t n = 128; n <= 512; n += 128) {
        const pl_prefix_mark mark = {.passing = true, .n_replaced = n - 128};

        run_text(&s, a, n, 0);
        assert_true(pl_prefix_store(&p, &text, n, &s, &mark));
        if (n == 256)
            assert_int_equal(pl_prefix_restore(&p, &text, 256, &got, &n_known), 256);
    }
    assert_int_equal(p.n_kept, 2);
    assert_int_equal(pl_prefix_restore(&p, &text, 384, &got, &n_known), 256);
    assert_int_equal(n_known, 384);
    assert_int_equal(pl_prefix_restore(&p, &text, 512, &got, &n_known), 512);
    check_prefix(&p);
    free(hs.memory);
    free(hg.memory);
    free(hp.memory);
}

/* Texts that share their beginnings stored and begun at random, more than there is room for. */
static void random_walks(void **state)
{
    const pl_state_shape shape = shape_of(DRAFTS);
    static int32_t tokens[LEN];
    pl_state s, got, want;
    held h[3] = {make_state(&s, &shape), make_state(&got, &shape), make_state(&want, &shape)};
    uint32_t x = 1;
    int n_hits = 0, n_pending_hits = 0;

    for (int round = 0; round < 6; round++) {
        pl_prefix_size z = pl_prefix_size_of(&shape, pl_prefix_min_bytes(&shape));
        pl_prefix p;
        held hp;

        z.n_blocks = 5 + 9 * round;
        z.n_states = 1 + 2 * round;
        hp = make_cache(&p, &shape, &z, &s);
        for (int i = 0; i < 150; i++) {
            const uint32_t which = (x = x * 1664525u + 1013904223u) >> 28;
            const int32_t n = 128 * (int32_t)(1 + (x >> 16) % 12), pending = (int32_t)(x >> 8) % 4;
            const pl_snapshot_tokens text = {tokens, tokens + 100, 100};
            const pl_prefix_mark mark = {.passing = x >> 9 & 1, .n_replaced = n - 128};
            const int32_t most = n - (int32_t)(x >> 10 & 1);
            int32_t n_known, n_found;

            write_text(tokens, n, which);
            n_found = pl_prefix_restore(&p, &text, most, &got, &n_known);
            assert_true(n_found <= n_known && n_known <= most);
            if (n_found) {
                run_text(&want, tokens, n_found, n_found - got.n_settled);
                check_same_state(&got, &want, n_found);
                n_hits++;
                n_pending_hits += got.n_settled < n_found;
            }
            run_text(&s, tokens, n, pending < DRAFTS ? pending : DRAFTS);
            if (pl_prefix_store(&p, &text, n, &s, &mark)) {
                assert_int_equal(pl_prefix_restore(&p, &text, n, &got, &n_known), n);
                run_text(&want, tokens, n, n - got.n_settled);
                check_same_state(&got, &want, n);
            } else {
                assert_true(n / 128 > z.n_blocks);
            }
            check_prefix(&p);
        }
        free(hp.memory);
    }
    assert_true(n_hits > 100 && n_pending_hits > 20);
    for (int i = 0; i < 3; i++)
        free(h[i].memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(colliding_keys_find_nothing),
        cmocka_unit_test(keys_are_of_a_model),
        cmocka_unit_test(too_long_a_text),
        cmocka_unit_test(passing_states),
        cmocka_unit_test(random_walks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
