/* Weights in memory: every byte where its slot says, in exactly the memory that was planned, bad values
 * refused by element; and digests that depend on what a checkpoint holds, not on how it is cut. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "model/digest.h"
#include "model/weights.h"
#include "ops/tile.h"
#include "support/check.h"
#include "support/configs.h"
#include "support/fake_checkpoint.h"
#include "support/scratch.h"

struct loaded {
    fake_checkpoint *fake;
    pl_checkpoint *checkpoint;
    void *memory;
    pl_weights *weights;
    pl_weight_layout layout; /* asked for */
    int n_tiled, n_rows;     /* matrices of linear layers seen by check_slot */
};

static pl_checkpoint *open_fake(const fake_checkpoint *f)
{
    char dir[SCRATCH_PATH_BYTES];
    pl_checkpoint *c;
    pl_error err;

    scratch_create(dir);
    fake_write(f, dir);
    check_ok(pl_checkpoint_open(dir, &c, &err), &err);
    scratch_remove(dir);
    return c;
}

static pl_status load(struct loaded *l, fake_checkpoint *fake, pl_error *err)
{
    uint64_t bytes;

    l->fake = fake;
    l->checkpoint = open_fake(fake);
    bytes = pl_weights_bytes(l->checkpoint);
    l->memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(l->memory);
    memset(l->memory, 0xA5, bytes); /* what is not read must not pass for zeros */
    l->n_tiled = l->n_rows = 0;
    return pl_weights_load_as(l->checkpoint, l->memory, &(pl_load_params){.layout = l->layout},
                              &l->weights, NULL, err);
}

static void unload(struct loaded *l)
{
    pl_weights_close(l->weights);
    pl_checkpoint_close(l->checkpoint);
    free(l->memory);
    fake_free(l->fake);
}

/* Whether the matrix has to be in tiles, from the contract's words alone. */
static bool wants_tiles(const struct loaded *l, const char *name, const pl_weight_view *v,
                        const fake_tensor *t)
{
    if (l->layout != PL_WEIGHT_TILES || v->format == PL_WEIGHT_F32 || v->format == PL_WEIGHT_I64 ||
        v->rows == 1 || v->rows % 16 != 0 || v->cols % 128 != 0 || strstr(name, "embed"))
        return false;
    for (uint64_t i = 0; i < t->bytes; i++)
        if (v->format != PL_WEIGHT_BF16 && v->format != PL_WEIGHT_FP4 &&
            (t->data[i] & 0x7F) == 0x7F)
            return false;
    return true;
}

/* Data of a view, and of FP4's scales, compared with a file's, element by element where tiled. */
static void check_data(const char *name, const pl_weight_view *v, const fake_tensor *t)
{
    const uint8_t *got = v->data;

    if (v->layout == PL_WEIGHT_ROWS) {
        check_same_bytes(name, v->data, t->data, t->bytes);
        return;
    }
    for (int64_t r = 0; r < v->rows; r++)
        for (int64_t k = 0; k < v->cols; k++) {
            int64_t file = r * v->cols + k;
            int64_t at = r / 16 * 16 * v->cols + pl_tile_index(v->format, r % 16, k);
            if (v->format == PL_WEIGHT_BF16)
                assert_memory_equal(got + 2 * at, t->data + 2 * file, 2);
            else if (v->format == PL_WEIGHT_FP4)
                assert_int_equal(got[at / 2] >> at % 2 * 4 & 15,
                                 t->data[file / 2] >> file % 2 * 4 & 15);
            else
                assert_int_equal(got[at], t->data[file]);
        }
}

static void check_scales(const char *name, const pl_weight_view *v, const fake_tensor *t)
{
    const int64_t groups = v->cols / 32;

    if (v->layout == PL_WEIGHT_ROWS || v->format != PL_WEIGHT_FP4) {
        check_same_bytes(name, v->scale, t->data, t->bytes);
        return;
    }
    for (int64_t r = 0; r < v->rows; r++)
        for (int64_t g = 0; g < groups; g++)
            assert_int_equal(((const uint8_t *)v->scale)[r / 16 * 16 * groups + g * 16 + r % 16],
                             t->data[r * groups + g]);
}

/* The view of `slot` holds the tensor(s) of that name, with this format and shape. */
static void check_slot(struct loaded *l, pl_slot slot, const char *name, pl_weight_format format,
                       int64_t rows, int64_t cols)
{
    const bool quantised = format >= PL_WEIGHT_FP8_E8M0;
    pl_weight_view v;
    char full[160];
    const fake_tensor *t;

    print_message("%s\n", name);
    assert_true(slot >= 0);
    v = pl_weights_view(l->weights, slot);
    assert_int_equal(v.format, format);
    assert_int_equal(v.rows, rows);
    assert_int_equal(v.cols, cols);
    assert_int_equal((uintptr_t)v.data % 64, 0);
    snprintf(full, sizeof full, "%s%s", name, quantised ? ".weight" : "");
    t = fake_find(l->fake, full);
    assert_int_equal(v.layout == PL_WEIGHT_TILES, wants_tiles(l, name, &v, t));
    *(v.layout == PL_WEIGHT_TILES ? &l->n_tiled : &l->n_rows) += 1;
    check_data(full, &v, t);
    if (!quantised) {
        assert_null(v.scale);
        return;
    }
    snprintf(full, sizeof full, "%s.scale", name);
    t = fake_find(l->fake, full);
    assert_int_equal((uintptr_t)v.scale % 64, 0);
    check_scales(full, &v, t);
}

static void check_block(struct loaded *l, const char *prefix, const pl_layer_slots *s,
                        pl_weight_format fp8, pl_weight_format expert)
{
    char name[128];

#define SLOT(slot, text, format, rows, cols)            \
    (snprintf(name, sizeof name, "%s%s", prefix, text), \
     check_slot(l, s->slot, name, format, rows, cols))
    SLOT(attn_norm, "attn_norm.weight", PL_WEIGHT_BF16, 1, 128);
    SLOT(ffn_norm, "ffn_norm.weight", PL_WEIGHT_BF16, 1, 128);
    SLOT(hc_attn_fn, "hc_attn_fn", PL_WEIGHT_F32, 24, 512);
    SLOT(hc_attn_base, "hc_attn_base", PL_WEIGHT_F32, 1, 24);
    SLOT(hc_attn_scale, "hc_attn_scale", PL_WEIGHT_F32, 1, 3);
    SLOT(hc_ffn_fn, "hc_ffn_fn", PL_WEIGHT_F32, 24, 512);
    SLOT(hc_ffn_base, "hc_ffn_base", PL_WEIGHT_F32, 1, 24);
    SLOT(hc_ffn_scale, "hc_ffn_scale", PL_WEIGHT_F32, 1, 3);
    SLOT(attn_sink, "attn.attn_sink", PL_WEIGHT_F32, 1, 1);
    SLOT(wq_a, "attn.wq_a", fp8, 128, 128);
    SLOT(q_norm, "attn.q_norm.weight", PL_WEIGHT_BF16, 1, 128);
    SLOT(wq_b, "attn.wq_b", fp8, 512, 128);
    SLOT(wkv, "attn.wkv", fp8, 512, 128);
    SLOT(kv_norm, "attn.kv_norm.weight", PL_WEIGHT_BF16, 1, 512);
    SLOT(wo_a, "attn.wo_a", fp8, 128, 512);
    SLOT(wo_b, "attn.wo_b", fp8, 128, 128);
    SLOT(gate, "ffn.gate.weight", PL_WEIGHT_BF16, 2, 128);
    SLOT(shared_w1, "ffn.shared_experts.w1", fp8, 128, 128);
    SLOT(shared_w2, "ffn.shared_experts.w2", fp8, 128, 128);
    SLOT(shared_w3, "ffn.shared_experts.w3", fp8, 128, 128);
    SLOT(expert_w1, "ffn.experts.0.w1", expert, 128, 128);
    SLOT(expert_w2, "ffn.experts.0.w2", expert, 128, 128);
    SLOT(expert_w3, "ffn.experts.0.w3", expert, 128, 128);
    SLOT(expert_w1 + 1, "ffn.experts.1.w1", expert, 128, 128);
    SLOT(expert_w2 + 1, "ffn.experts.1.w2", expert, 128, 128);
    SLOT(expert_w3 + 1, "ffn.experts.1.w3", expert, 128, 128);
    if (s->ratio != 0) {
        const int64_t coff = s->ratio == 4 ? 2 : 1;
        SLOT(comp_ape, "attn.compressor.ape", PL_WEIGHT_F32, s->ratio, coff * 512);
        SLOT(comp_wkv, "attn.compressor.wkv.weight", PL_WEIGHT_BF16, coff * 512, 128);
        SLOT(comp_wgate, "attn.compressor.wgate.weight", PL_WEIGHT_BF16, coff * 512, 128);
        SLOT(comp_norm, "attn.compressor.norm.weight", PL_WEIGHT_BF16, 1, 512);
    } else {
        assert_int_equal(s->comp_ape, PL_SLOT_NONE);
        assert_int_equal(s->comp_norm, PL_SLOT_NONE);
    }
    if (s->ratio == 4) {
        SLOT(index_wq_b, "attn.indexer.wq_b", fp8, 128, 128);
        SLOT(index_weights_proj, "attn.indexer.weights_proj.weight", PL_WEIGHT_BF16, 1, 128);
        SLOT(index_comp_ape, "attn.indexer.compressor.ape", PL_WEIGHT_F32, 4, 256);
        SLOT(index_comp_wkv, "attn.indexer.compressor.wkv.weight", PL_WEIGHT_BF16, 256, 128);
        SLOT(index_comp_wgate, "attn.indexer.compressor.wgate.weight", PL_WEIGHT_BF16, 256, 128);
        SLOT(index_comp_norm, "attn.indexer.compressor.norm.weight", PL_WEIGHT_BF16, 1, 128);
    } else {
        assert_int_equal(s->index_wq_b, PL_SLOT_NONE);
        assert_int_equal(s->index_comp_norm, PL_SLOT_NONE);
    }
    if (s->gate_tid2eid != PL_SLOT_NONE) {
        SLOT(gate_tid2eid, "ffn.gate.tid2eid", PL_WEIGHT_I64, 8, 1);
        assert_int_equal(s->gate_bias, PL_SLOT_NONE);
    } else {
        SLOT(gate_bias, "ffn.gate.bias", PL_WEIGHT_F32, 1, 2);
    }
#undef SLOT
}

static void check_model(struct loaded *l, pl_weight_format fp8, pl_weight_format expert)
{
    const pl_model_slots *m = pl_weights_slots(l->weights);

    check_slot(l, m->embed, "embed.weight", PL_WEIGHT_BF16, 8, 128);
    check_slot(l, m->norm, "norm.weight", PL_WEIGHT_BF16, 1, 128);
    check_slot(l, m->head, "head.weight", PL_WEIGHT_BF16, 8, 128);
    check_slot(l, m->hc_head_fn, "hc_head_fn", PL_WEIGHT_F32, 4, 512);
    check_slot(l, m->hc_head_base, "hc_head_base", PL_WEIGHT_F32, 1, 4);
    check_slot(l, m->hc_head_scale, "hc_head_scale", PL_WEIGHT_F32, 1, 1);
    assert_int_equal(m->layer[0].ratio, 0);
    assert_int_equal(m->layer[1].ratio, 4);
    assert_int_equal(m->layer[2].ratio, 128);
    assert_true(m->layer[0].gate_tid2eid != PL_SLOT_NONE);
    assert_int_equal(m->layer[3].wq_a, PL_SLOT_NONE);
    check_block(l, "layers.0.", &m->layer[0], fp8, expert);
    check_block(l, "layers.1.", &m->layer[1], fp8, expert);
    check_block(l, "layers.2.", &m->layer[2], fp8, expert);
    assert_true(m->has_mtp);
    assert_int_equal(m->mtp.ratio, 0);
    check_block(l, "mtp.0.", &m->mtp, fp8, expert);
    check_slot(l, m->mtp_e_proj, "mtp.0.e_proj", fp8, 128, 128);
    check_slot(l, m->mtp_h_proj, "mtp.0.h_proj", fp8, 128, 128);
    check_slot(l, m->mtp_enorm, "mtp.0.enorm.weight", PL_WEIGHT_BF16, 1, 128);
    check_slot(l, m->mtp_hnorm, "mtp.0.hnorm.weight", PL_WEIGHT_BF16, 1, 128);
    check_slot(l, m->mtp_norm, "mtp.0.norm.weight", PL_WEIGHT_BF16, 1, 128);
    check_slot(l, m->mtp_hc_head_fn, "mtp.0.hc_head_fn", PL_WEIGHT_F32, 4, 512);
    check_slot(l, m->mtp_hc_head_base, "mtp.0.hc_head_base", PL_WEIGHT_F32, 1, 4);
    check_slot(l, m->mtp_hc_head_scale, "mtp.0.hc_head_scale", PL_WEIGHT_F32, 1, 1);
}

static void every_weight_is_in_its_slot(void **state)
{
    struct loaded l = {0};
    pl_error err;

    check_ok(load(&l, fake_create("pico", true), &err), &err);
    check_model(&l, PL_WEIGHT_FP8_E8M0, PL_WEIGHT_FP4);
    assert_int_equal(pl_weights_config(l.weights)->vocab_size, 8);
    unload(&l);
    check_ok(load(&l, fake_create("pico-base", true), &err), &err);
    check_model(&l, PL_WEIGHT_FP8_F32, PL_WEIGHT_FP8_F32);
    unload(&l);
}

static void remove_nan_codes(fake_checkpoint *f)
{
    for (size_t i = 0; i < f->n; i++)
        for (uint64_t b = 0; strcmp(f->tensors[i].dtype, "F8_E4M3") == 0 && b < f->tensors[i].bytes;
             b++)
            if ((f->tensors[i].data[b] & 0x7F) == 0x7F)
                f->tensors[i].data[b] ^= 1;
}

/* Every weight where it was, in tiles; a NaN code in its last row keeps one matrix in rows. */
static void linear_layers_may_be_tiled(void **state)
{
    static const char *const presets[] = {"pico", "pico-base"};

    for (int i = 0; i < 2; i++) {
        struct loaded l = {.layout = PL_WEIGHT_TILES};
        pl_weight_format fp8 = i ? PL_WEIGHT_FP8_F32 : PL_WEIGHT_FP8_E8M0;
        fake_checkpoint *f = fake_create(presets[i], true);
        fake_tensor *t = fake_find(f, "layers.1.attn.wq_b.weight");
        pl_error err;

        remove_nan_codes(f);
        t->data[t->bytes - 1] = 0xFF;
        check_ok(load(&l, f, &err), &err);
        check_model(&l, fp8, i ? fp8 : PL_WEIGHT_FP4);
        assert_true(l.n_tiled > 40);
        assert_int_equal(
            pl_weights_view(l.weights, pl_weights_slots(l.weights)->layer[1].wq_b).layout,
            PL_WEIGHT_ROWS);
        assert_int_equal(
            pl_weights_view(l.weights, pl_weights_slots(l.weights)->layer[1].wq_a).layout,
            PL_WEIGHT_TILES);
        unload(&l);
    }
}

/* A matrix longer than what is read at once is taken back from tiles when a NaN comes late. */
static void late_nan_takes_tiles_back(void **state)
{
    struct loaded l = {.layout = PL_WEIGHT_TILES};
    fake_checkpoint *f = fake_create("micro", true);
    fake_tensor *t = fake_find(f, "layers.0.attn.wq_b.weight");
    pl_weight_view v;
    pl_error err;

    assert_true(t->bytes > 1 << 18);
    remove_nan_codes(f);
    t->data[t->bytes - 3] = 0x7F;
    check_ok(load(&l, f, &err), &err);
    v = pl_weights_view(l.weights, pl_weights_slots(l.weights)->layer[0].wq_b);
    assert_int_equal(v.layout, PL_WEIGHT_ROWS);
    check_same_bytes("wq_b", v.data, t->data, t->bytes);
    v = pl_weights_view(l.weights, pl_weights_slots(l.weights)->layer[1].wq_b);
    assert_int_equal(v.layout, PL_WEIGHT_TILES);
    check_data("wq_b", &v, fake_find(f, "layers.1.attn.wq_b.weight"));
    unload(&l);
}

static void drafter_that_is_not_run_is_left_out(void **state)
{
    struct loaded l = {0};
    pl_error err;

    check_ok(load(&l, fake_create("pico-0731", true), &err), &err);
    assert_false(pl_weights_slots(l.weights)->has_mtp);
    assert_int_equal(pl_weights_slots(l.weights)->mtp.wq_a, PL_SLOT_NONE);
    assert_int_equal(pl_weights_slots(l.weights)->mtp_e_proj, PL_SLOT_NONE);
    unload(&l);
}

/* ---- the plan */

static void plan_of_the_published_models(void **state)
{
    static const struct {
        const char *preset;
        uint64_t tensor_bytes; /* specification section 9.1; Base without its copies */
    } want[] = {
        {"flash", 159609485896},
        {"pro", 864704792696},
        {"flash-base", 292555345480},
        {"pro-base", 1602325824632},
        {"flash-0731", 166878536440 - 10862838300},
        {"pro-0813", 892727580904 - 41979375900},
    };

    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        pl_config config = config_preset(want[i].preset);
        pl_storage storage = pl_storage_of_config(&config);
        pl_weights_plan p = pl_weights_plan_config(&config, &storage);

        assert_int_equal(p.tensor_bytes, want[i].tensor_bytes);
        assert_int_equal(p.bytes, p.tensor_bytes + p.padding_bytes + p.table_bytes);
        /* Tensors smaller than 64 bytes or of no multiple: a few per block. */
        assert_true(p.padding_bytes < 64 * 1024);
        assert_int_equal(p.table_bytes % 64, 0);
        assert_true(p.table_bytes < 8 << 20);
    }
}

static void plan_is_what_is_carved(void **state)
{
    static const char *const presets[] = {"pico", "pico-base", "pico-0731", "nano"};
    bool red_zones;
    pl_arena probe;

    pl_arena_init_dry(&probe);
    (void)pl_arena_alloc(&probe, 64, 0);
    red_zones = pl_arena_used_bytes(&probe) != pl_arena_planned_bytes(&probe);
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        fake_checkpoint *f = fake_create(presets[i], false);
        pl_config config = config_preset(presets[i]);
        pl_storage storage = pl_storage_of_config(&config);
        pl_checkpoint *c = open_fake(f);
        pl_weights_plan a = pl_weights_plan_config(&config, &storage);
        pl_weights_plan b = pl_weights_plan_checkpoint(c);

        assert_memory_equal(&a, &b, sizeof a);
        assert_true(a.n_slots > 0);
        if (red_zones)
            assert_true(pl_weights_bytes(c) > b.bytes);
        else
            assert_int_equal(pl_weights_bytes(c), b.bytes);
        pl_checkpoint_close(c);
        fake_free(f);
    }
}

/* ---- values */

static void refuse_value(const char *preset, const char *name, size_t at, const void *value,
                         size_t n, const char *want, const char *also)
{
    struct loaded l = {0};
    fake_checkpoint *f = fake_create(preset, true);
    pl_error err;

    print_message("%s: %s\n", name, want);
    memcpy(fake_find(f, name)->data + at, value, n);
    check_error(load(&l, f, &err), PL_ERR_CORRUPT, &err, name, want, also, NULL);
    assert_null(l.weights);
    unload(&l);
}

static void refuse_f32(const char *name, uint32_t bits, const char *got)
{
    char want[64];

    snprintf(want, sizeof want, "scale is no positive number (got %s,", got);
    refuse_value("pico-base", name, 4 * (name[0] == 'l' ? 3 : 0), &bits, 4, want,
                 name[0] == 'l' ? "[0, 3]: " : "[0, 0]: ");
}

static void values_that_no_checkpoint_may_hold(void **state)
{
    static const char wo_a[] = "layers.0.attn.wo_a.scale"; /* [1, 4] */
    const int64_t too_large = 2, negative = -1;

    refuse_value("pico", "layers.2.ffn.experts.1.w1.scale", 127 * 4 + 2, "\xff", 1,
                 "[127, 2]: scale is NaN (got E8M0 byte 255, want 0..254)",
                 "/model-00004-of-00006.safetensors: ");
    refuse_value("pico", "mtp.0.e_proj.scale", 0, "\xff", 1, "[0, 0]: scale is NaN", NULL);
    refuse_f32(wo_a, 0x00000000, "0");
    refuse_f32(wo_a, 0x80000000, "-0");
    refuse_f32(wo_a, 0xbf800000, "-1");
    refuse_f32(wo_a, 0x7f800000, "inf");
    refuse_f32(wo_a, 0xff800000, "-inf");
    refuse_f32(wo_a, 0x7fc00000, "nan");
    refuse_f32("mtp.0.ffn.experts.1.w2.scale", 0x7f800001, "nan");
    refuse_value("pico", "layers.0.ffn.gate.tid2eid", 7 * 8, &too_large, 8,
                 "[7, 0]: no such expert (got 2, want 0..1)", NULL);
    refuse_value("pico", "layers.0.ffn.gate.tid2eid", 0, &negative, 8, "no such expert (got -1",
                 NULL);
}

/* The extremes that are legal. */
static void odd_values_are_accepted(void **state)
{
    const uint32_t smallest = 1, largest = 0x7f7fffff;
    struct loaded l = {0};
    fake_checkpoint *f = fake_create("pico", true);
    pl_error err;

    memcpy(fake_find(f, "layers.0.attn.wo_a.scale")->data, "\x00\xfe", 2);
    memcpy(fake_find(f, "layers.0.attn_norm.weight")->data, "\xff\xff", 2);
    memcpy(fake_find(f, "layers.0.attn.wkv.weight")->data, "\xff", 1);
    check_ok(load(&l, f, &err), &err);
    unload(&l);
    f = fake_create("pico-base", true);
    memcpy(fake_find(f, "layers.0.attn.wo_a.scale")->data, &smallest, 4);
    memcpy(fake_find(f, "layers.0.attn.wo_a.scale")->data + 4, &largest, 4);
    check_ok(load(&l, f, &err), &err);
    unload(&l);
}

struct told {
    uint64_t done, total;
    int n;
};

static void tell(void *user, uint64_t done, uint64_t total)
{
    struct told *t = user;

    assert_true(done >= t->done);
    assert_true(t->n > 0 || done == 0);
    t->done = done;
    t->total = total;
    t->n++;
}

static void progress_is_told(void **state)
{
    fake_checkpoint *f = fake_create("pico", true);
    pl_checkpoint *c = open_fake(f);
    void *memory = aligned_alloc(64, (pl_weights_bytes(c) + 63) / 64 * 64);
    pl_weights *w;
    struct told told = {0};
    pl_error err;

    pl_checkpoint_on_progress(c, tell, &told);
    check_ok(pl_weights_load(c, memory, &w, &err), &err);
    assert_true(told.n > 2);
    assert_int_equal(told.done, told.total);
    assert_int_equal(told.total, pl_weights_plan_checkpoint(c).tensor_bytes);
    pl_weights_close(w);
    check_error(pl_weights_load(c, (char *)memory + 8, &w, &err), PL_ERR_INVALID, &err,
                "not aligned", NULL);
    pl_checkpoint_close(c);
    free(memory);
    fake_free(f);
}

/* ---- digests */

static void digests(const fake_checkpoint *f, pl_digest *all, pl_digest *header)
{
    pl_checkpoint *c = open_fake(f);
    pl_error err;

    check_ok(pl_checkpoint_digest(c, all, &err), &err);
    check_ok(pl_checkpoint_header_digest(c, header, &err), &err);
    assert_int_equal(strlen(all->text), 32);
    assert_string_not_equal(all->text, header->text);
    pl_checkpoint_close(c);
}

static void digest_is_of_the_contents(void **state)
{
    fake_checkpoint *f = fake_create("pico", true);
    fake_tensor *t, first;
    pl_digest a, b, ha, hb;

    digests(f, &a, &ha);
    digests(f, &b, &hb);
    assert_string_equal(a.text, b.text);
    f->sharded = false; /* cut otherwise, and in another order */
    first = f->tensors[0];
    memmove(f->tensors, f->tensors + 1, (f->n - 1) * sizeof first);
    f->tensors[f->n - 1] = first;
    digests(f, &b, &hb);
    assert_string_equal(a.text, b.text);
    assert_string_equal(ha.text, hb.text);
    t = fake_find(f, "mtp.0.enorm.weight");
    t->data[t->bytes - 1] ^= 1;
    digests(f, &b, &hb);
    assert_string_not_equal(a.text, b.text);
    assert_string_equal(ha.text, hb.text);
    t->data[t->bytes - 1] ^= 1;
    fake_retype(fake_find(f, "layers.0.attn.wkv.scale"), "F32", 4, 1);
    digests(f, &b, &hb);
    assert_string_not_equal(a.text, b.text);
    assert_string_not_equal(ha.text, hb.text);
    fake_free(f);
}

/* The byte stream of digest.h, written out by other code and hashed there. */
static void digest_is_the_documented_one(void **state)
{
    fake_checkpoint *f = fake_create("pico", false); /* every byte 0 */
    pl_digest all, header;

    for (size_t i = 0; i < f->n; i++) /* scales of 0 are legal as E8M0 */
        assert_null(f->tensors[i].data);
    digests(f, &all, &header);
    assert_string_equal(header.text, "63dbe5bf8b613c2980231b059cf1c300");
    assert_string_equal(all.text, "2e928a46f99ac6f63871f30869b53e1d");
    fake_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_weight_is_in_its_slot),
        cmocka_unit_test(linear_layers_may_be_tiled),
        cmocka_unit_test(late_nan_takes_tiles_back),
        cmocka_unit_test(drafter_that_is_not_run_is_left_out),
        cmocka_unit_test(plan_of_the_published_models),
        cmocka_unit_test(plan_is_what_is_carved),
        cmocka_unit_test(values_that_no_checkpoint_may_hold),
        cmocka_unit_test(odd_values_are_accepted),
        cmocka_unit_test(progress_is_told),
        cmocka_unit_test(digest_is_of_the_contents),
        cmocka_unit_test(digest_is_the_documented_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
