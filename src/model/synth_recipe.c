/* Synthetic tensors, element by element.
 *
 * Notation: u is a number of [-1, 1) made from 1, 2 or 4 bytes of the stream. Vectors and BF16 matrices
 * are mean + amp * u; quantised matrices are random codes whose scales give the rows the wanted gain; what
 * must fit another tensor is made in synth_joint.c. Multiplications and additions are rounded one by
 * one: the bytes are part of the contract, so the order of every operation is as well. */
#include "model/synth_values.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/numfmt.h"

enum { FP4_GROUP = 32 };

/* rms of the random codes' values, and by how much the scales' jitter over {1/2, 1, 2} raises it */
static const double fp8_rms = 258.66, fp4_rms = 2.926, jitter_rms = 1.32;

static int32_t greatest_common_divisor(int32_t a, int32_t b)
{
    while (b) {
        int32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void pl_synth_recipe_init(pl_synth_recipe *r, const pl_config *config, uint64_t seed)
{
    r->config = config;
    r->seed = seed;
    /* Coprime to V, so that following the bigrams visits every token. */
    r->bigram_step = (int32_t)(0.382 * config->vocab_size);
    if (r->bigram_step == 0)
        r->bigram_step = 1;
    while (greatest_common_divisor(r->bigram_step, config->vocab_size) != 1)
        r->bigram_step--;
    for (int b = 0; b < 256; b++)
        r->e4m3_of_byte[b] = pl_f32_to_e4m3(3.5f * (float)(int8_t)b);
}

/* ---- what distribution a tensor has */

typedef struct uniform {
    float mean, amp;
} uniform;

static uniform uniform_of(const pl_synth_recipe *r, const pl_tensor_spec *spec)
{
    const double root3 = sqrt(3.0), d = r->config->hidden_size;

    switch (spec->kind) {
    case PL_TENSOR_KV_NORM:
        return (uniform){1.4f, 0.3f};
    case PL_TENSOR_NORM:
    case PL_TENSOR_ATTN_NORM:
    case PL_TENSOR_FFN_NORM:
    case PL_TENSOR_Q_NORM:
    case PL_TENSOR_ENORM:
    case PL_TENSOR_HNORM:
    case PL_TENSOR_MAIN_NORM:
    case PL_TENSOR_COMP_NORM:
    case PL_TENSOR_INDEX_COMP_NORM:
        return (uniform){1.0f, 0.25f};
    case PL_TENSOR_HC_ATTN_FN:
    case PL_TENSOR_HC_FFN_FN:
    case PL_TENSOR_HC_HEAD_FN:
        return (uniform){0.0f, (float)(root3 / sqrt((double)spec->shape[1]))};
    case PL_TENSOR_HC_ATTN_SCALE:
    case PL_TENSOR_HC_FFN_SCALE:
    case PL_TENSOR_HC_HEAD_SCALE:
        return (uniform){0.6f, 0.3f};
    case PL_TENSOR_ATTN_SINK:
        return (uniform){2.0f, 3.5f};
    case PL_TENSOR_COMP_APE:
    case PL_TENSOR_INDEX_COMP_APE:
        return (uniform){0.0f, 0.8f};
    case PL_TENSOR_COMP_WGATE:
    case PL_TENSOR_INDEX_COMP_WGATE:
    case PL_TENSOR_GATE:
        return (uniform){0.0f, (float)(1.5 * root3 / sqrt(d))};
    case PL_TENSOR_COMP_WKV:
    case PL_TENSOR_INDEX_COMP_WKV:
    case PL_TENSOR_INDEX_WEIGHTS_PROJ:
        return (uniform){0.0f, (float)(root3 / sqrt(d))};
    case PL_TENSOR_GATE_BIAS:
        return (uniform){8.08f, 0.4f};
    case PL_TENSOR_EMBED:
    case PL_TENSOR_MARKOV_W1:
        return (uniform){0.0f, (float)root3};
    case PL_TENSOR_CONFIDENCE:
        return (uniform){0.0f, (float)(0.6 * sqrt(3.0 / (double)spec->shape[1]))};
    default:
        assert(!"every vector and BF16 matrix has its case");
        return (uniform){0.0f, 0.0f};
    }
}

/* rms of a quantised matrix's row times sqrt(K) */
static double gain_of(pl_tensor_kind kind)
{
    switch (kind) {
    case PL_TENSOR_WO_B:
        return 0.8;
    case PL_TENSOR_SHARED_W1:
    case PL_TENSOR_SHARED_W3:
    case PL_TENSOR_EXPERT_W1:
    case PL_TENSOR_EXPERT_W3:
        return 1.1;
    case PL_TENSOR_SHARED_W2:
    case PL_TENSOR_EXPERT_W2:
    case PL_TENSOR_H_PROJ:
        return 0.35;
    default:
        return 1.0;
    }
}

/* ---- vectors and BF16 matrices */

/* 64-wide blocks of a cache entry get different scales: 1/2, 1, 2, 1/2, ... */
static bool has_block_scales(const pl_tensor_spec *spec)
{
    return spec->kind == PL_TENSOR_KV_NORM || spec->kind == PL_TENSOR_COMP_NORM ||
           spec->kind == PL_TENSOR_INDEX_COMP_NORM;
}

static float block_scale(uint64_t i)
{
    static const float scale[3] = {0.5f, 1.0f, 2.0f};

    return scale[i / 64 % 3];
}

static void fill_bf16(const pl_synth_recipe *r, const pl_tensor_spec *spec, pl_synth_stream *s,
                      uint64_t first, uint64_t n, uint16_t *out)
{
    const uniform d = uniform_of(r, spec);
    const bool scaled = has_block_scales(spec);
    int16_t raw[PL_SYNTH_BLOCK];

    pl_synth_stream_seek(s, 2 * first);
    for (uint64_t at = 0; at < n; at += PL_SYNTH_BLOCK) {
        size_t m = (size_t)pl_synth_smaller(PL_SYNTH_BLOCK, n - at);

        pl_synth_stream_read(s, raw, 2 * m);
        if (scaled)
            for (size_t i = 0; i < m; i++)
                out[at + i] = pl_f32_to_bf16((d.mean + d.amp * pl_synth_u_of_i16(raw[i])) *
                                             block_scale(first + at + i));
        else
            for (size_t i = 0; i < m; i++)
                out[at + i] = pl_f32_to_bf16(d.mean + d.amp * pl_synth_u_of_i16(raw[i]));
    }
}

/* `out` is also where the raw bytes are read to. */
static void read_u32(pl_synth_stream *s, uint64_t first, uint64_t n, float *out)
{
    pl_synth_stream_seek(s, 4 * first);
    pl_synth_stream_read(s, out, 4 * n);
    for (uint64_t i = 0; i < n; i++) {
        int32_t raw;

        memcpy(&raw, &out[i], sizeof raw);
        out[i] = pl_synth_u_of_i32(raw);
    }
}

static void fill_f32(const pl_synth_recipe *r, const pl_tensor_spec *spec, pl_synth_stream *s,
                     uint64_t first, uint64_t n, float *out)
{
    const uniform d = uniform_of(r, spec);

    read_u32(s, first, n, out);
    for (uint64_t i = 0; i < n; i++)
        out[i] = d.mean + d.amp * out[i];
}

/* The 4x4 part starts near the identity: its diagonal is raised. */
static void fill_hc_base(const pl_tensor_spec *spec, pl_synth_stream *s, uint64_t first, uint64_t n,
                         float *out)
{
    read_u32(s, first, n, out);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = first + i;

        out[i] = 0.5f * out[i];
        if (spec->shape[0] == PL_HC_OUT && at >= 2 * PL_HC_MULT) {
            out[i] *= 2.0f;
            if ((at - 2 * PL_HC_MULT) % (PL_HC_MULT + 1) == 0)
                out[i] += 1.5f;
        }
    }
}

/* ---- quantised matrices */

static void fill_e4m3(const pl_synth_recipe *r, pl_synth_stream *s, uint64_t first, uint64_t n,
                      uint8_t *out)
{
    pl_synth_stream_seek(s, first);
    pl_synth_stream_read(s, out, n);
    for (uint64_t i = 0; i < n; i++)
        out[i] = r->e4m3_of_byte[out[i]];
}

/* The whole number nearest to log2(x), x > 0 and normal. A tie would need x = 2^(k + 1/2), which no
 * double is. */
static int nearest_log2(double x)
{
    int e;
    double m = frexp(x, &e); /* 1/2 <= m < 1 */

    return m * m > 0.5 ? e : e - 1;
}

static bool is_fp4(const pl_tensor_spec *spec)
{
    return spec->kind == PL_TENSOR_EXPERT_W1 || spec->kind == PL_TENSOR_EXPERT_W2 ||
           spec->kind == PL_TENSOR_EXPERT_W3;
}

/* Exponents base - 1, base, base + 1. F32 scales mark FP8 experts, so E8M0 ones of experts are FP4's. */
static void fill_e8m0_scales(const pl_tensor_spec *spec, pl_synth_stream *s, uint64_t first,
                             uint64_t n, uint8_t *out)
{
    const bool fp4 = is_fp4(spec);
    const double k = (double)(spec->shape[1] * (fp4 ? FP4_GROUP : PL_SYNTH_TILE));
    const double rms = (fp4 ? fp4_rms : fp8_rms) * jitter_rms;
    const int base = nearest_log2(gain_of(spec->kind) / (sqrt(k) * rms));

    pl_synth_stream_seek(s, first);
    pl_synth_stream_read(s, out, n);
    for (uint64_t i = 0; i < n; i++)
        out[i] = (uint8_t)(base + out[i] % 3 - 1 + 127);
}

static void fill_f32_scales(const pl_tensor_spec *spec, pl_synth_stream *s, uint64_t first,
                            uint64_t n, float *out)
{
    const double k = (double)(spec->shape[1] * PL_SYNTH_TILE);
    const float middle = (float)(gain_of(spec->kind) / (sqrt(k) * fp8_rms));

    read_u32(s, first, n, out);
    for (uint64_t i = 0; i < n; i++)
        out[i] = middle * (1.0f + 0.6f * out[i]);
}

/* ---- the one entry */

uint64_t pl_synth_recipe_unit(const pl_synth_recipe *r, const pl_tensor_spec *spec)
{
    if (spec->kind == PL_TENSOR_E_PROJ && !spec->is_scale)
        return (uint64_t)PL_SYNTH_TILE * (uint64_t)r->config->hidden_size;
    if (spec->kind == PL_TENSOR_GATE_TID2EID)
        return (uint64_t)r->config->n_experts_per_tok;
    return 1;
}

/* Copies are made, not read back: the tensor they repeat, under its own name. */
static pl_tensor_spec original_of(const pl_tensor_spec *spec)
{
    pl_tensor_spec s = *spec;

    if (spec->kind == PL_TENSOR_COPY_EMBED) {
        s.kind = PL_TENSOR_EMBED;
        snprintf(s.name, sizeof s.name, "embed.weight");
    } else if (spec->kind == PL_TENSOR_COPY_HEAD) {
        s.kind = PL_TENSOR_HEAD;
        snprintf(s.name, sizeof s.name, "head.weight");
    }
    return s;
}

void pl_synth_recipe_fill(const pl_synth_recipe *r, const pl_tensor_spec *spec, uint64_t first,
                          uint64_t n, void *out)
{
    const pl_tensor_spec t = original_of(spec);
    pl_synth_stream s;

    pl_synth_stream_init(&s, r->seed, t.name);
    if (t.kind == PL_TENSOR_HEAD)
        pl__synth_fill_head(r, &s, first, n, out);
    else if (t.kind == PL_TENSOR_MARKOV_W2)
        pl__synth_fill_markov_w2(r, &t, &s, first, n, out);
    else if (t.kind == PL_TENSOR_GATE_TID2EID)
        pl__synth_fill_tid2eid(r, &s, first, n, out);
    else if (t.kind == PL_TENSOR_HC_ATTN_BASE || t.kind == PL_TENSOR_HC_FFN_BASE ||
             t.kind == PL_TENSOR_HC_HEAD_BASE)
        fill_hc_base(&t, &s, first, n, out);
    else if (t.kind == PL_TENSOR_E_PROJ && t.is_scale)
        pl__synth_fill_e_proj_scales(r, &t, first, n, out);
    else if (t.kind == PL_TENSOR_E_PROJ)
        pl__synth_fill_e_proj(r, &s, first, n, out);
    else if (t.is_scale && t.dtype == PL_DTYPE_F32)
        fill_f32_scales(&t, &s, first, n, out);
    else if (t.is_scale)
        fill_e8m0_scales(&t, &s, first, n, out);
    else if (t.dtype == PL_DTYPE_F8_E4M3)
        fill_e4m3(r, &s, first, n, out);
    else if (t.dtype == PL_DTYPE_I8) {
        pl_synth_stream_seek(&s, first);
        pl_synth_stream_read(&s, out, n);
    } else if (t.dtype == PL_DTYPE_BF16)
        fill_bf16(r, &t, &s, first, n, out);
    else
        fill_f32(r, &t, &s, first, n, out);
}
