/* Scratch of the vector levels' attention. */
#ifndef PL_OPS_SIMD_ATTENTION_H
#define PL_OPS_SIMD_ATTENTION_H

/* Of one worker; less than level scalar's. */
enum { PL_SIMD_ATTENTION_BYTES = 277 * 1024 };

#endif
