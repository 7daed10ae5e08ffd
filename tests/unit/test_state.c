/* State of a sequence: its closed form, what a copy copies, what rewinding takes back. */
#include <stdlib.h>
#include <string.h>

#include "cache/state.h"
#include "support/check.h"

enum { MAX_RATIOS = 61 };

static uint64_t bytes_of(const pl_state_shape *shape)
{
    pl_arena arena;
    pl_state s;

    pl_arena_init_dry(&arena);
    pl_state_layout(&s, &arena, shape);
    return pl_arena_planned_peak_bytes(&arena);
}

/* ratios[n]: first, first, then 4 and 128 in turn. */
static pl_state_shape shape_of(int32_t *ratio, int32_t n, int32_t first, int32_t max_len)
{
    for (int32_t i = 0; i < n; i++)
        ratio[i] = i < 2 ? first : i % 2 ? 128 : 4;
    return (pl_state_shape){
        .ops = pl_ops_scalar(),
        .n_layers = n,
        .has_mtp = true,
        .ratio = ratio,
        .max_len = max_len,
        .max_draft = 2,
    };
}

/* The bytes per 128 tokens that the plan promises; rounding of pieces disappears over 1,024. */
static void bytes_per_token(void **unused)
{
    int32_t ratio[MAX_RATIOS];
    pl_state_shape flash = shape_of(ratio, 43, 0, 1024), longer = flash;

    longer.max_len = 2048;
    assert_int_equal(bytes_of(&longer) - bytes_of(&flash), 8 * 449824);
    flash = longer = shape_of(ratio, 61, 128, 1024);
    longer.max_len = 2048;
    assert_int_equal(bytes_of(&longer) - bytes_of(&flash), 8 * 644024);
}

static void fixed_bytes(void **unused)
{
    int32_t window[] = {0}, hca[] = {128};
    pl_state_shape shape = {.ops = pl_ops_scalar(), .n_layers = 1, .ratio = window, .max_len = 1};
    uint64_t alone = bytes_of(&shape);

    /* A ring of 128 rows; the list of layers, rounded up. */
    assert_in_range(alone, 128 * 584 + sizeof(pl_layer_state),
                    128 * 584 + sizeof(pl_layer_state) + 63);
    shape.max_draft = 3;
    assert_in_range(bytes_of(&shape) - alone, 3 * 584 - 63, 3 * 584 + 63);
    /* The running (max, denominator, numerator) instead of 128 rows. */
    shape = (pl_state_shape){.ops = pl_ops_scalar(), .n_layers = 1, .ratio = hca, .max_len = 1};
    assert_in_range(bytes_of(&shape) - alone, 3 * 512 * 4 + 584, 3 * 512 * 4 + 584 + 63);
}

typedef struct held {
    pl_state s;
    void *memory;
    size_t bytes;
} held;

static held make(const pl_state_shape *shape, uint8_t fill)
{
    held h;
    pl_arena arena;

    pl_arena_init_dry(&arena);
    pl_state_layout(&h.s, &arena, shape);
    h.bytes = pl_arena_peak_bytes(&arena);
    h.memory = aligned_alloc(64, (h.bytes + 63) / 64 * 64);
    pl_arena_init(&arena, h.memory, h.bytes);
    pl_state_layout(&h.s, &arena, shape);
    check_ok(pl_arena_check(&arena, "state", NULL), NULL);
    pl_state_reset(&h.s);
    for (int32_t l = 0; l < h.s.n_layers + h.s.has_mtp; l++) {
        pl_layer_state *layer = &h.s.layer[l];

        memset(layer->ring.base, fill, (size_t)layer->ring.page_bytes);
        if (layer->ratio) {
            memset(layer->entries.base, fill, 2 * (size_t)layer->entries.page_bytes);
            memset(layer->main.state, fill, 64);
            memset(layer->main.pending_kv, fill, 64);
        }
        if (layer->ratio == 4)
            memset(layer->keys.base, fill, 2 * (size_t)layer->keys.page_bytes);
    }
    return h;
}

static void copies(void **unused)
{
    int32_t ratio[] = {0, 4, 128};
    pl_state_shape shape = {
        .ops = pl_ops_scalar(),
        .n_layers = 3,
        .has_mtp = true,
        .ratio = ratio,
        .max_len = 256,
        .max_draft = 2,
    };
    held a = make(&shape, 0xAA), b = make(&shape, 0xBB);

    a.s.n = 150;
    a.s.n_settled = 149;
    a.s.n_mtp = 140;
    pl_state_copy(&b.s, &a.s);
    assert_int_equal(b.s.n, 150);
    assert_int_equal(b.s.n_settled, 149);
    assert_int_equal(b.s.n_mtp, 140);
    for (int32_t l = 0; l < 4; l++) {
        const pl_layer_state *from = &a.s.layer[l], *to = &b.s.layer[l];

        assert_ptr_not_equal(from->ring.base, to->ring.base);
        for (int32_t i = 0; i < 130; i++) {
            check_same_bytes("ring", pl_rows_data(&to->ring, i), pl_rows_data(&from->ring, i), 576);
            check_same_bytes("ring", pl_rows_scales(&to->ring, i), pl_rows_scales(&from->ring, i),
                             8);
        }
        for (int32_t i = 0; from->ratio && i < 150 / from->ratio; i++)
            check_same_bytes("entries", pl_rows_data(&to->entries, i),
                             pl_rows_data(&from->entries, i), 576);
        for (int32_t i = 0; from->ratio == 4 && i < 37; i++)
            check_same_bytes("keys", pl_rows_data(&to->keys, i), pl_rows_data(&from->keys, i), 64);
        if (from->ratio) {
            check_same_bytes("state", to->main.state, from->main.state, 64);
            check_same_bytes("pending", to->main.pending_kv, from->main.pending_kv, 64);
        }
    }
    free(a.memory);
    free(b.memory);
}

static void rewinding(void **unused)
{
    int32_t ratio[] = {4};
    pl_state_shape shape = {
        .ops = pl_ops_scalar(), .n_layers = 1, .ratio = ratio, .max_len = 256, .max_draft = 3};
    held a = make(&shape, 1);

    a.s.n = 12;
    a.s.n_settled = 9;
    pl_state_rewind(&a.s, 10);
    assert_int_equal(a.s.n, 10);
    assert_int_equal(a.s.n_settled, 9);
    pl_state_reset(&a.s);
    assert_int_equal(a.s.n, 0);
    assert_int_equal(a.s.n_settled, 0);
    free(a.memory);
}

/* Planar pages: every row of every page has bytes of its own, and none lies outside. */
static void rows_do_not_overlap(void **unused)
{
    uint8_t memory[3 * (4 * (576 + 8) + 24)] = {0};
    pl_rows rows = {memory, 4 * (576 + 8) + 24, 4, 576, 8};

    for (int64_t i = 0; i < 12; i++) {
        uint8_t *data = pl_rows_data(&rows, i), *scales = pl_rows_scales(&rows, i);

        assert_true(data >= memory && scales + 8 <= memory + sizeof memory);
        for (int k = 0; k < 576; k++)
            assert_int_equal(data[k]++, 0);
        for (int k = 0; k < 8; k++)
            assert_int_equal(scales[k]++, 0);
    }
    assert_ptr_equal(pl_rows_data(&rows, 5), memory + rows.page_bytes + 576);
    assert_ptr_equal(pl_rows_scales(&rows, 5), memory + rows.page_bytes + 4 * 576 + 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_per_token),
        cmocka_unit_test(fixed_bytes),
        cmocka_unit_test(copies),
        cmocka_unit_test(rewinding),
        cmocka_unit_test(rows_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
