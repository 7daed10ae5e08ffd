/* The conditions of a call, in their order. */
#ifndef PL_PROVIDER_GATE_H
#define PL_PROVIDER_GATE_H

#include "base/error.h"
#include "provider/provider.h"

/* How exact the gate is: as a provider's contract says, or as the built-in operators need it on the public path, where nobody
 * has to ask, nothing is recorded, and arrays may be empty and lists without lengths. */
typedef enum pl_gate_kind { PL_GATE_CONTRACT, PL_GATE_PUBLIC } pl_gate_kind;

pl_provider_reason pl__provider_gate(const pl_provider_entry *e, const pl_provider_call *call,
                                     pl_gate_kind kind, pl_error *detail);

/* ---- for the files of the gate */

typedef struct pl_gate {
    const pl_provider_entry *e;
    const pl_provider_claims *c;
    const pl_provider_call *call;
    bool public;
    pl_error *detail;
} pl_gate;

#define FAIL(g, reason, ...) \
    ((void)pl_error_set((g)->detail, PL_ERR_UNSUPPORTED, __VA_ARGS__), PL_PROVIDER_##reason)

enum { PL_GATE_SHAPE = 128 };

/* "type 1 [3, 64, 512]". */
const char *pl__gate_shape(const pl_tensor *t, char to[PL_GATE_SHAPE]);

/* n_dims of numbers on q's device whose last dimension is adjacent and no row of which overlaps the next; without gaps where the
 * record wants it. */
bool pl__gate_rows(const pl_gate *g, const pl_tensor *t, int32_t n_dims);

/* Keys, values, lists, lengths, pages, a second set. q was looked at. */
pl_provider_reason pl__gate_keys(const pl_gate *g);

#endif
