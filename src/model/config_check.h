/* What belongs together in config.json. */
#ifndef PL_MODEL_CONFIG_CHECK_H
#define PL_MODEL_CONFIG_CHECK_H

#include "model/config.h"

/* Heads and groups, experts, rope, mtp blocks and token ids. `name` stands for the file in errors: INVALID for what cannot be,
 * UNSUPPORTED for what is refused, as pl_config_parse says. */
pl_status pl__config_check(const char *name, const pl_config *config, pl_error *err) PL_MUST_CHECK;

#endif
