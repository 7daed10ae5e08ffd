/* Shared by the two halves of the recipe: numbers from bytes, and the tensors made from other tensors.
 * Private to synth_recipe.c and synth_joint.c. */
#ifndef PL_MODEL_SYNTH_VALUES_H
#define PL_MODEL_SYNTH_VALUES_H

#include "model/synth_recipe.h"
#include "model/synth_stream.h"

enum {
    PL_SYNTH_BLOCK = 2048, /* elements converted at a time, on the stack */
    PL_SYNTH_TILE = 128,   /* rows and columns that share a scale of an FP8 matrix */
};

/* u of [-1, 1) */
static inline float pl_synth_u_of_i16(int16_t i)
{
    return (float)i / 32768.0f;
}

static inline float pl_synth_u_of_i32(int32_t i)
{
    return (float)(i >> 8) / 8388608.0f;
}

static inline float pl_synth_u_of_i8(int8_t i)
{
    return (float)i / 128.0f;
}

static inline uint64_t pl_synth_smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Elements first .. first + n - 1 of the tensors that fit other tensors. `s` is the tensor's own stream,
 * anywhere; e_proj's scales are made from the weight's. */
void pl__synth_fill_e_proj(const pl_synth_recipe *r, pl_synth_stream *s, uint64_t first, uint64_t n,
                           uint8_t *out);
void pl__synth_fill_e_proj_scales(const pl_synth_recipe *r, const pl_tensor_spec *spec,
                                  uint64_t first, uint64_t n, void *out);
void pl__synth_fill_tid2eid(const pl_synth_recipe *r, pl_synth_stream *s, uint64_t first,
                            uint64_t n, int64_t *out);
void pl__synth_fill_head(const pl_synth_recipe *r, pl_synth_stream *s, uint64_t first, uint64_t n,
                         uint16_t *out);
void pl__synth_fill_markov_w2(const pl_synth_recipe *r, const pl_tensor_spec *spec,
                              pl_synth_stream *s, uint64_t first, uint64_t n, uint16_t *out);

#endif
