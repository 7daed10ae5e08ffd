/* The line of memory, for commands that run a model: chosen before the plan, drawn before the engine takes its
 * memory, tightened once it has. */
#ifndef PL_CLI_MEMORY_LINE_H
#define PL_CLI_MEMORY_LINE_H

#include "plimsoll/engine.h"

/* Of --memory-utilization where it was not given: 0.9 then, unless there is a --memory. */
#define PL_MEMORY_LINE_DEFAULT (-1.0)

/* params->memory_bytes, or else `utilization` of what there is; nobody may ask for more than that, nor for two lines. */
pl_status pl_memory_line_choose(double utilization, pl_engine_params *params,
                                pl_error *err) PL_MUST_CHECK;

/* Room for the plan, and for addresses that parsing leaves. */
pl_status pl_memory_line_draw(const pl_plan *plan, pl_error *err) PL_MUST_CHECK;

/* From now on no more than the plan, or than there is and `growth_bytes`: what is planned but not yet held. */
pl_status pl_memory_line_tighten(const pl_plan *plan, uint64_t growth_bytes,
                                 pl_error *err) PL_MUST_CHECK;

#endif
