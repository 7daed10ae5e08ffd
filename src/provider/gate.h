/* The conditions of a call, in their order. */
#ifndef PL_PROVIDER_GATE_H
#define PL_PROVIDER_GATE_H

#include "provider/provider.h"

/* How exact the gate is: as a provider's contract says, or as the built-in operators need it on the public path, where nobody
 * has to ask, nothing is recorded, and arrays may be empty and lists without lengths. */
typedef enum pl_gate_kind { PL_GATE_CONTRACT, PL_GATE_PUBLIC } pl_gate_kind;

pl_provider_reason pl__provider_gate(const pl_provider_entry *e, const pl_provider_call *call,
                                     pl_gate_kind kind, pl_error *detail);

#endif
