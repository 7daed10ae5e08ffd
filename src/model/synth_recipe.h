/* The values of synthetic tensors: any run of elements of any tensor, alone.
 *
 * Written so that the model behaves like a trained one where it matters to a test: activations keep
 * their scale through the layers, cache blocks and weight tiles differ in scale, routing is spread, and
 * drafts are accepted now and then. Every value is exact fp32 arithmetic on the tensor's own byte
 * stream (model/synth_stream.h), so another implementation can make the same bytes. */
#ifndef PL_MODEL_SYNTH_RECIPE_H
#define PL_MODEL_SYNTH_RECIPE_H

#include "model/tensors.h"

typedef struct pl_synth_recipe {
    const pl_config *config; /* borrowed */
    uint64_t seed;
    int32_t bigram_step;       /* the likeliest token after v is often v + bigram_step */
    uint8_t e4m3_of_byte[256]; /* code of 3.5 times the byte read as int8 */
} pl_synth_recipe;

void pl_synth_recipe_init(pl_synth_recipe *r, const pl_config *config, uint64_t seed);

/* Runs handed to pl_synth_recipe_fill start at multiples of this many elements and, unless they reach
 * the tensor's end, are multiples of it long: 1 for most tensors. */
uint64_t pl_synth_recipe_unit(const pl_synth_recipe *r, const pl_tensor_spec *spec);

/* Writes elements first .. first + n - 1 of the tensor, as they stand in the file, to `out` (aligned for
 * the tensor's type). Pure: callable from any number of threads. */
void pl_synth_recipe_fill(const pl_synth_recipe *r, const pl_tensor_spec *spec, uint64_t first,
                          uint64_t n, void *out);

#endif
