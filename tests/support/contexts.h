/* One call of a public operator through contexts of every kind, and random operands for it. */
#ifndef PL_TESTS_CONTEXTS_H
#define PL_TESTS_CONTEXTS_H

#include "plimsoll/ops.h"
#include "support/check.h"

/* Runs `call` with level scalar, with the best level and one worker, with three, and on a caller's threads, in a
 * floating-point environment that is not the operators'. Fails where the call does, where out's bytes are not those of the first,
 * and where the environment has changed. out[bytes] holds 0xA5 before each call and the result afterwards. */
void contexts_run(pl_status (*call)(pl_ops_context *context, void *user, pl_error *err), void *user,
                  void *out, size_t bytes);

/* A context of level scalar with one worker; the caller destroys it. */
pl_ops_context *contexts_scalar(void);

/* Numbers of either sign between 2^-5 and 2; every call goes on with *state. */
void contexts_bf16(uint32_t *state, uint16_t *x, size_t n);
void contexts_f32(uint32_t *state, float *x, size_t n);

#endif
