/* Inside of the weight store, shared by weights.c (layout and access) and weights_load.c (reading). */
#ifndef PL_MODEL_WEIGHTS_IMPL_H
#define PL_MODEL_WEIGHTS_IMPL_H

#include "base/arena.h"
#include "model/weights.h"

struct pl_weights {
    pl_config config;
    pl_model_slots slots;
    pl_weight_view *views;
    int32_t n_slots;
    pl_weight_layout layout;
    pl_arena arena;
};

/* False for tensors that are in the files and not in memory. */
bool pl__weights_is_loaded(const pl_tensor_spec *spec);

/* Whether this is the matrix of a linear layer, in a shape that has tiles. */
bool pl__weights_may_be_tiled(const pl_tensor_spec *spec);

/* Bytes of 16 rows. */
uint64_t pl__weights_panel_bytes(const pl_tensor_spec *spec);

/* Reads everything into the carved store; where `weights` is NULL into the buffers alone. The same errors as pl_weights_load. */
pl_status pl__weights_read(const pl_checkpoint *checkpoint, pl_weights *weights,
                           const pl_load_params *params, uint64_t buffer_bytes,
                           pl_load_report *report, pl_error *err) PL_MUST_CHECK;

#endif
