/* Scratch of the vector levels' hyper-connections. */
#ifndef PL_OPS_SIMD_STREAMS_H
#define PL_OPS_SIMD_STREAMS_H

enum {
    PL_SIMD_STREAMS_TOKENS = 64,       /* that share a widened panel of weights */
    PL_SIMD_STREAMS_BYTES = 18 * 1024, /* of one worker */
};

#endif
