/* A call once more in double precision, from the inputs as they are, one row at a time: what providers are judged by. */
#ifndef PL_PROVIDER_ORACLE_H
#define PL_PROVIDER_ORACLE_H

#include "plimsoll/provider.h"

enum { PL_ORACLE_MAX_DIM = 576 };

typedef struct pl_oracle_row {
    double out[PL_ORACLE_MAX_DIM];    /* sum of P v, the sink in the denominator where asked */
    double weight[PL_ORACLE_MAX_DIM]; /* sum of P |v| */
    double lse;                       /* natural, without sinks; -infinity without keys */
    double max_logit;                 /* -infinity without keys */
    double reach;                     /* scale * the largest sum of |q_j k_j| */
} pl_oracle_row;

/* Row of a token and head; with_sink: the call's sink joins. The call passed a gate. */
void pl__oracle_row(const pl_provider_call *call, int64_t token, int64_t head, int with_sink,
                    pl_oracle_row *row);

/* Element i of an array of numbers, in elements from its beginning. */
double pl__oracle_number(const pl_tensor *t, int64_t i);

#endif
