/* Sums over the tensors of a configuration or a checkpoint: counts, bytes, parameters, and what one decoded
 * token reads (specification sections 9.1 and 9.4). */
#ifndef PL_MODEL_CENSUS_H
#define PL_MODEL_CENSUS_H

#include "model/checkpoint.h"

typedef struct pl_census_part {
    int64_t n;
    uint64_t bytes;
} pl_census_part;

typedef struct pl_census {
    pl_census_part main;    /* everything outside of mtp */
    pl_census_part mtp;     /* the mtp.0 block */
    pl_census_part copies;  /* Base's, under mtp.0 */
    pl_census_part drafter; /* mtp.* that is not loaded */
    pl_census_part by_dtype[PL_DTYPE_COUNT];
    uint64_t parameters; /* of the main stack, without scales and tid2eid */

    /* Weights read for one token at batch 1: of the routed experts those chosen, of embed and tid2eid one
     * row, all the rest once; mtp not. */
    uint64_t token_dense_bytes;
    uint64_t token_expert_bytes;
} pl_census;

/* `storage` as for pl_tensors_each. */
pl_census pl_census_config(const pl_config *config, const pl_storage *storage);
pl_census pl_census_checkpoint(const pl_checkpoint *checkpoint);

#endif
