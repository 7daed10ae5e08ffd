/* A call of each public operator around attention and of each of caches, over arrays in one piece of memory: what lies between
 * them, and what of them no argument names, is poison. */
#ifndef PL_TESTS_MODEL_OP_CALLS_H
#define PL_TESTS_MODEL_OP_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plimsoll/model_ops.h"

enum {
    CALL_ROWS = 5,
    CALL_MEMORY = 1 << 18,
    CALL_WORKSPACE = 3 * 576 << 10,
    CALL_MAX_ARRAYS = 24,
    CALL_GAP = 64
};

/* What is wrong with a call. EMPTY is right, but for operators that have no count of rows: no rows, no arrays. */
typedef enum call_fault {
    CALL_RIGHT,
    CALL_EMPTY,
    CALL_NEGATIVE, /* a count of -1 */
    CALL_OVERLAP,  /* an output that lies across an input */
    CALL_MISSING,  /* an output, or an input, that is NULL */
    CALL_NO_CONTEXT,
    CALL_FAULTS
} call_fault;

typedef struct call_array {
    size_t at, bytes;
    bool out;
} call_array;

typedef struct call_memory {
    _Alignas(64) uint8_t bytes[CALL_MEMORY];
    call_array arrays[CALL_MAX_ARRAYS];
    _Alignas(64) uint8_t workspace[CALL_WORKSPACE];
    uint8_t before[CALL_MEMORY]; /* as it was when the operator was called */
    int n_arrays;
    size_t used;
    uint32_t random;
    uint8_t poison;
} call_memory;

typedef struct op_call {
    const char *name;
    pl_status (*run)(call_memory *m, pl_ops_context *context, call_fault fault, pl_error *err);
    bool counts; /* has a count of rows */
} op_call;

extern const op_call op_calls[];
extern const int n_op_calls;

/* Poison everywhere; the same numbers come into the arrays of the next call whatever the poison. */
void call_open(call_memory *m, uint8_t poison);

/* ---- for calls: arrays, one behind the other with a gap between them */

uint32_t call_next(call_memory *m);
void *call_take(call_memory *m, size_t bytes, bool out);
void *call_take_out(call_memory *m, size_t bytes); /* 0xA5 */
uint16_t *call_take_bf16(call_memory *m, size_t n, bool out);
float *call_take_f32(call_memory *m, size_t n);
/* 2, 9, 16 .. modulo `below`. */
int32_t *call_take_ids(call_memory *m, size_t n, uint32_t below);
const float *call_take_frequencies(call_memory *m);

/* The moment before the operator runs; its context. */
pl_ops_context *call_ready(call_memory *m, pl_ops_context *context, call_fault fault);

/* Across the end of p's array, and never p exactly. */
void *call_across(const void *p);

#define SPOIL(a, fault, n, out, in)          \
    do {                                     \
        if ((fault) == CALL_EMPTY) {         \
            (a).n = 0;                       \
            (a).in = NULL;                   \
            (a).out = NULL;                  \
        } else if ((fault) == CALL_NEGATIVE) \
            (a).n = -1;                      \
        else if ((fault) == CALL_OVERLAP)    \
            (a).out = call_across((a).in);   \
        else if ((fault) == CALL_MISSING)    \
            (a).out = NULL;                  \
    } while (0)

#define CALL(op) \
    pl_status call_##op(call_memory *m, pl_ops_context *context, call_fault f, pl_error *err)

CALL(rms_norm);
CALL(quantise);
CALL(rope);
CALL(head_norm_rope);
CALL(hadamard);
CALL(map);
CALL(hc_pre);
CALL(hc_post);
CALL(hc_head);
CALL(compress);
CALL(index_insert);
CALL(index_query);
CALL(index_topk);
CALL(route);
CALL(route_learned);
CALL(swiglu);
CALL(swiglu7);
CALL(gumbel);
CALL(penalise);
CALL(log_softmax);
CALL(sample);
CALL(kv_insert);
CALL(kv_gather);
CALL(kv_gather_v32);
CALL(kv_pack);
CALL(kv_unpack);

#endif
