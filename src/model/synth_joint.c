/* Tensors that must fit others: e_proj and its scales, tid2eid, and the two matrices that make bigrams
 * likely (head.weight; markov_w2 of the block drafter). Everything else is in synth_recipe.c. */
#include "model/synth_values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/numfmt.h"

/* ---- mtp e_proj: 0.8 I + noise, quantised as a converter would */

typedef struct e_proj {
    uint64_t d;
    float amp;
    bool f32_scale;
} e_proj;

static inline float e_proj_value(const e_proj *p, uint8_t byte, bool diagonal)
{
    float w = p->amp * pl_synth_u_of_i8((int8_t)byte);

    return diagonal ? w + 0.8f : w;
}

/* Scale of the tile whose top left element is (row, column); `e8m0` gets the byte of a power of two. */
static float e_proj_scale(const e_proj *p, pl_synth_stream *s, uint64_t row, uint64_t column,
                          uint8_t *e8m0)
{
    float amax = 0x1p-100f;
    uint32_t bits;
    uint8_t raw[PL_SYNTH_TILE];

    for (uint64_t i = row; i < row + PL_SYNTH_TILE; i++) {
        pl_synth_stream_seek(s, i * p->d + column);
        pl_synth_stream_read(s, raw, PL_SYNTH_TILE);
        for (uint64_t j = 0; j < PL_SYNTH_TILE; j++) {
            float w = fabsf(e_proj_value(p, raw[j], i == column + j));
            amax = w > amax ? w : amax;
        }
    }
    if (p->f32_scale)
        return amax / 448.0f;
    /* 2^ceil(log2(amax / 448)), read from the bits (section 0.4) */
    bits = pl_f32_bits(amax * (float)(1.0 / 448));
    *e8m0 = (uint8_t)((bits >> 23) + ((bits & 0x7FFFFFu) != 0));
    return pl_f32_from_bits((uint32_t)*e8m0 << 23);
}

static e_proj e_proj_of(const pl_synth_recipe *r, bool f32_scale)
{
    const double d = r->config->hidden_size;

    return (e_proj){(uint64_t)r->config->hidden_size, (float)(0.35 * sqrt(3.0 / d)), f32_scale};
}

/* Whole bands of 128 rows; the random bytes are turned into codes in place. */
void pl__synth_fill_e_proj(const pl_synth_recipe *r, pl_synth_stream *s, uint64_t first, uint64_t n,
                           uint8_t *out)
{
    const e_proj p = e_proj_of(r, r->config->expert_dtype_fp8);
    const uint64_t top = first / p.d, bottom = (first + n) / p.d;

    pl_synth_stream_seek(s, first);
    pl_synth_stream_read(s, out, n);
    for (uint64_t band = top; band < bottom; band += PL_SYNTH_TILE)
        for (uint64_t column = 0; column < p.d; column += PL_SYNTH_TILE) {
            uint8_t byte = 0;
            const float scale = e_proj_scale(&p, s, band, column, &byte);

            for (uint64_t i = band; i < band + PL_SYNTH_TILE; i++)
                for (uint64_t j = column; j < column + PL_SYNTH_TILE; j++) {
                    uint8_t *code = &out[(i - top) * p.d + j];
                    *code = pl_f32_to_e4m3(e_proj_value(&p, *code, i == j) / scale);
                }
        }
}

void pl__synth_fill_e_proj_scales(const pl_synth_recipe *r, const pl_tensor_spec *spec,
                                  uint64_t first, uint64_t n, void *out)
{
    const e_proj p = e_proj_of(r, spec->dtype == PL_DTYPE_F32);
    const uint64_t columns = (uint64_t)spec->shape[1];
    pl_synth_stream s; /* of the weight */

    pl_synth_stream_init(&s, r->seed, "mtp.0.e_proj.weight");
    for (uint64_t i = 0; i < n; i++) {
        uint8_t byte = 0;
        const float scale = e_proj_scale(&p, &s, (first + i) / columns * PL_SYNTH_TILE,
                                         (first + i) % columns * PL_SYNTH_TILE, &byte);
        if (p.f32_scale)
            ((float *)out)[i] = scale;
        else
            ((uint8_t *)out)[i] = byte;
    }
}

/* ---- hash routing: the positions of the k smallest of E random numbers, earlier ones first on ties */

enum { KEY_SHIFT = 32 };

static void smallest_of_row(pl_synth_stream *s, int64_t n_experts, int64_t k, int64_t *row)
{
    uint16_t keys[256];
    int64_t n_kept = 0;

    /* row[] holds key << 32 | expert, ascending, until the end: then only the expert. */
    for (int64_t e = 0; e < n_experts; e++) {
        int64_t at, entry;

        if (e % 256 == 0)
            pl_synth_stream_read(s, keys,
                                 2 * (size_t)pl_synth_smaller(256, (uint64_t)(n_experts - e)));
        entry = (int64_t)keys[e % 256] << KEY_SHIFT | e;
        if (n_kept == k && entry > row[k - 1])
            continue;
        for (at = n_kept < k ? n_kept++ : k - 1; at > 0 && row[at - 1] > entry; at--)
            row[at] = row[at - 1];
        row[at] = entry;
    }
    for (int64_t i = 0; i < k; i++)
        row[i] &= (INT64_C(1) << KEY_SHIFT) - 1;
}

void pl__synth_fill_tid2eid(const pl_synth_recipe *r, pl_synth_stream *s, uint64_t first,
                            uint64_t n, int64_t *out)
{
    const int64_t n_experts = r->config->n_experts, k = r->config->n_experts_per_tok;

    pl_synth_stream_seek(s, 2 * (uint64_t)n_experts * (first / (uint64_t)k));
    for (uint64_t i = 0; i < n; i += (uint64_t)k)
        smallest_of_row(s, n_experts, k, out + i);
}

/* ---- rows that lean towards an embedding: row v towards row v - bigram_step (mod V), plus noise */

typedef struct leaning {
    const char *embed; /* name of the embedding: BF16 [V][width], sqrt(3) * u */
    uint64_t width;
    float gain, noise_amp;
} leaning;

/* Elements whose embedding rows follow each other without a wrap. */
static void fill_leaning_run(const pl_synth_recipe *r, const leaning *l, pl_synth_stream *noise,
                             uint64_t embed_first, uint64_t n, uint16_t *out)
{
    const float embed_amp = (float)sqrt(3.0);
    int16_t raw_noise[PL_SYNTH_BLOCK], raw_embed[PL_SYNTH_BLOCK];
    pl_synth_stream embed;

    pl_synth_stream_init(&embed, r->seed, l->embed);
    pl_synth_stream_seek(&embed, 2 * embed_first);
    for (uint64_t at = 0; at < n; at += PL_SYNTH_BLOCK) {
        size_t m = (size_t)pl_synth_smaller(PL_SYNTH_BLOCK, n - at);

        pl_synth_stream_read(noise, raw_noise, 2 * m);
        pl_synth_stream_read(&embed, raw_embed, 2 * m);
        for (size_t i = 0; i < m; i++) {
            float e = pl_bf16_round(embed_amp * pl_synth_u_of_i16(raw_embed[i]));
            out[at + i] =
                pl_f32_to_bf16(e * l->gain + l->noise_amp * pl_synth_u_of_i16(raw_noise[i]));
        }
    }
}

static void fill_leaning(const pl_synth_recipe *r, const leaning *l, pl_synth_stream *s,
                         uint64_t first, uint64_t n, uint16_t *out)
{
    const uint64_t wrap = (uint64_t)r->bigram_step * l->width; /* here the embedding starts anew */
    const uint64_t total = (uint64_t)r->config->vocab_size * l->width;
    const uint64_t before = first < wrap ? pl_synth_smaller(n, wrap - first) : 0;

    pl_synth_stream_seek(s, 2 * first);
    if (before)
        fill_leaning_run(r, l, s, total - wrap + first, before, out);
    if (n > before)
        fill_leaning_run(r, l, s, first + before - wrap, n - before, out + before);
}

void pl__synth_fill_head(const pl_synth_recipe *r, pl_synth_stream *s, uint64_t first, uint64_t n,
                         uint16_t *out)
{
    const double d = r->config->hidden_size, lean = fmin(1.0, 7.5 / sqrt(d));
    const leaning l = {"embed.weight", (uint64_t)r->config->hidden_size, (float)(lean / sqrt(d)),
                       (float)sqrt((1 - lean * lean) * 3.0 / d)};

    fill_leaning(r, &l, s, first, n, out);
}

/* The bias after token u favours u + bigram_step: rows of w2 lean towards rows of w1. */
void pl__synth_fill_markov_w2(const pl_synth_recipe *r, const pl_tensor_spec *spec,
                              pl_synth_stream *s, uint64_t first, uint64_t n, uint16_t *out)
{
    const double rank = (double)spec->shape[1];
    const size_t prefix = strlen(spec->name) - strlen("w2.weight");
    char w1[PL_TENSOR_NAME_BYTES + 16];
    const leaning l = {w1, (uint64_t)spec->shape[1], (float)(7 / rank),
                       (float)(1.5 * sqrt(3 / rank))};

    snprintf(w1, sizeof w1, "%.*sw1.weight", (int)prefix, spec->name);
    fill_leaning(r, &l, s, first, n, out);
}
