/* Values that no checkpoint may hold, looked for while it is loaded. */
#ifndef PL_MODEL_WEIGHT_VALUES_H
#define PL_MODEL_WEIGHT_VALUES_H

#include "model/checkpoint.h"

/* Checks `bytes` bytes of the tensor's data from byte `from` on (both whole elements): scales as specification
 * section 1.3 says, and the expert ids of tid2eid. Every other tensor passes. CORRUPT names file, tensor
 * and element. */
pl_status pl__check_values(const pl_checkpoint *checkpoint, const pl_tensor_spec *spec,
                           const pl_checkpoint_tensor *tensor, uint64_t from, const void *data,
                           size_t bytes, pl_error *err) PL_MUST_CHECK;

#endif
