/* The closed form of a request's cache: known numbers of the released models, and what is really carved. */
#include "cache/geometry.h"
#include "model/forward.h"
#include "support/check.h"
#include "support/configs.h"

static pl_cache_geometry geometry(const pl_config *c, const pl_ops *ops, int32_t len, int32_t draft)
{
    pl_forward_limits limits = {.max_len = len, .max_draft = draft};
    pl_state_shape shape = pl_forward_state_shape(c, ops, pl_storage_of_config(c).has_mtp, &limits);

    return pl_cache_geometry_of(&shape);
}

static uint64_t carved(const pl_config *c, const pl_ops *ops, int32_t len, int32_t draft)
{
    pl_forward_limits limits = {.max_len = len, .max_draft = draft};
    pl_state_shape shape = pl_forward_state_shape(c, ops, pl_storage_of_config(c).has_mtp, &limits);
    pl_state state;
    pl_arena arena;

    pl_arena_init_dry(&arena);
    pl_state_layout(&state, &arena, &shape);
    return pl_arena_planned_peak_bytes(&arena);
}

static void test_released_models(void **state)
{
    const pl_config flash = config_preset("flash"), pro = config_preset("pro");
    pl_cache_geometry g = geometry(&flash, pl_ops_scalar(), 1 << 20, 0);

    assert_int_equal(pl_cache_block_bytes(&g), 449824);
    /* 44 windows of 128 rows of 584; states of 21 CSA and 20 HCA layers, 120 KiB of the latter; the tables. */
    assert_int_equal(pl_cache_fixed_bytes(&g) - (44 * sizeof(pl_layer_state) + 63) / 64 * 64,
                     44 * 128 * 584 + 21 * (4 * 6 * 512 * 4 + 4 * 6 * 128 * 4) + 20 * 3 * 512 * 4);
    g = geometry(&pro, pl_ops_scalar(), 1 << 20, 0);
    assert_int_equal(pl_cache_block_bytes(&g), 644024);
}

/* One more block adds exactly the slope, whole blocks of 128 HCA rows being multiples of 64 only together. */
static void test_slope(void **state)
{
    const pl_config c = config_preset("flash");
    pl_cache_geometry a = geometry(&c, pl_ops_scalar(), 8 * 128, 0),
                      b = geometry(&c, pl_ops_scalar(), 16 * 128, 0);

    assert_int_equal(pl_cache_request_bytes(&b) - pl_cache_request_bytes(&a), 8 * 449824);
}

static void test_equals_what_is_carved(void **state)
{
    static const char *const presets[] = {"nano",  "micro", "mini-pro",
                                          "flash", "pro",   "flash-base"};
    static const int32_t lens[] = {2, 127, 128, 129, 1000, 65536};
    const pl_ops *const levels[] = {pl_ops_scalar(), pl_ops_f64(PL_MODE_REC)};

    for (size_t p = 0; p < sizeof presets / sizeof presets[0]; p++) {
        const pl_config c = config_preset(presets[p]);
        for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++)
            for (int l = 0; l < 2; l++)
                for (int32_t draft = 0; draft <= 3; draft += 3) {
                    pl_cache_geometry g = geometry(&c, levels[l], lens[i], draft);
                    assert_int_equal(pl_cache_request_bytes(&g),
                                     carved(&c, levels[l], lens[i], draft));
                }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_released_models),
        cmocka_unit_test(test_slope),
        cmocka_unit_test(test_equals_what_is_carved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
