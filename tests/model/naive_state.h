/* A sequence's state that keeps everything, to hold the true one against.
 *
 * One token a step, never a draft, windows that never wrap, and for each of the last positions what the compressors
 * were and what the step gave: going back means looking further up, nothing is replayed. */
#ifndef PL_TESTS_NAIVE_STATE_H
#define PL_TESTS_NAIVE_STATE_H

#include "support/model.h"

enum { NAIVE_KEPT = 64, NAIVE_PIECES = 64 };

typedef struct naive_state {
    test_model *m;
    pl_state *s;
    int32_t max_len;
    int32_t
        *tokens;    /* [max_len + 1], of the positions 0 .. s->n - 1 and behind them the next one */
    uint8_t *pools; /* [NAIVE_KEPT][pool_bytes]: compressors before position i, at i % NAIVE_KEPT */
    uint8_t *streams; /* [NAIVE_KEPT][stream_bytes]: of position i */
    float *logits;    /* [NAIVE_KEPT][vocab] */
    size_t pool_bytes, stream_bytes;
    struct {
        void *data;
        size_t bytes;
    } piece[NAIVE_PIECES]; /* all memory that holds contents */
    int n_pieces;
    void *owned[NAIVE_PIECES];
    int n_owned;
} naive_state;

/* m has limits without drafts; it is borrowed and may be shared. */
naive_state *naive_open(test_model *m, int32_t max_len);
void naive_close(naive_state *v);

void naive_reset(naive_state *v);
/* Of the same model and length. */
void naive_copy(naive_state *dst, const naive_state *src);

/* Runs the token at position s->n, which tokens[] has. */
void naive_append(naive_state *v);

/* Back to the first n positions; at most NAIVE_KEPT - 1 fewer. */
void naive_back(naive_state *v, int32_t n);

/* The mtp block over the positions that it has not done, each with the token behind it. */
void naive_follow(naive_state *v);

/* What the compressors of a layer were before position n. */
const void *naive_pool(const naive_state *v, int32_t n, int32_t layer, bool is_index);

const float *naive_logits(const naive_state *v, int32_t position);

#endif
