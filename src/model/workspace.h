/* The buffers of one step, carved once for the largest step.
 *
 * Names follow the specification. `act` and `acc` are the element kinds of ops/op.h. What only the
 * attention half, the expert half or the mtp join needs shares one region. */
#ifndef PL_MODEL_WORKSPACE_H
#define PL_MODEL_WORKSPACE_H

#include "comm/comm.h"
#include "model/forward.h"
#include "model/share.h"
#include "ops/run.h"
#include "plan/region.h"

/* One compressor's rows in this step, and the entries that become finished. */
typedef struct pl_compress_ws {
    void *kv, *gate;            /* acc [n][width] */
    void *pooled;               /* act [max_entries][dim] */
    int32_t *position;          /* [max_entries] of an entry's first token */
    void *cos, *sin;            /* acc [max_entries][32] */
    pl_row_dest *dest;          /* [max_entries] */
    pl_compress_job *job;       /* [max_seqs] */
    uint8_t *draft_state;       /* [max_seqs] states that run ahead over drafts */
    uint64_t draft_state_bytes; /* of one, a multiple of 64 */
} pl_compress_ws;

typedef struct pl_workspace {
    /* The step */
    int32_t *position;      /* [n] */
    int32_t *seq_of;        /* [n] */
    pl_attention_seq *seqs; /* [max_seqs] */
    pl_row_dest *step_dest; /* [n]: row t of `step` */
    void *cos[2], *sin[2];  /* acc [n][32]: plain table, compressed table */

    /* Both halves */
    void *X, *mtp_X;   /* act [n][4][D]: streams of the main stack, of the mtp block */
    void *m;           /* acc [n][25] */
    void *post, *comb; /* acc [n][4], [n][4][4] */
    void *x;           /* act [n][D]: the half's normed input */
    void *xq;          /* quantised x */
    void *out;         /* act [n][D]: the half's output */
    void *part;        /* acc [S][n][D]: sums of the canonical shards; NULL for the sole rank */

    /* Attention */
    void *qr;     /* act [n][q_lora_rank] */
    void *qrq;    /* quantised */
    void *q;      /* act [n][H][512]: queries, then outputs */
    void *kv;     /* act [n][512] */
    pl_rows step; /* this step's window keys */
    pl_compress_ws main, index;
    void *iq;         /* act [n][IH][128] */
    pl_rows iquery;   /* the same as keys */
    void *iw;         /* act [n][IH] */
    void *best_score; /* acc [best][topk] */
    int32_t *best, *n_best;
    int64_t max_best;     /* tokens times parts */
    int32_t *sel, *n_sel; /* [n][topk], [n] */
    void *scores;         /* acc [n][max_len / 4] where wanted */
    void *z;              /* act [n][G R] */
    void *zq;             /* quantised */

    /* Experts; rows of routed pairs first, then the shared expert's n */
    void *score;                       /* acc [n][E] */
    int32_t *ids;                      /* [n][k] */
    void *weight;                      /* acc [n][k] */
    int32_t *pair_token, *pair_weight; /* [n (k + 1)] */
    int32_t *token_rows, *token_ids;   /* [n][k] ascending expert */
    int32_t *token_fill;               /* [n] */
    int32_t *expert_begin;             /* [E + 2] first pair of an expert; then the shared one's */
    void *g, *u;                       /* act [n (k + 1)][I] */
    void *aq;                          /* quantised */
    void *y;                           /* act [n (k + 1)][D] */

    /* mtp */
    void *e, *h;   /* act [n][D], [n][4][D] */
    void *eq, *hq; /* quantised */

    /* Head */
    void *head_x; /* act [max_logits][D] */
    void *logits; /* acc [max_logits][V] */

    pl_linear_job *jobs; /* [max_jobs] */

    /* What the step's tokens go through next, and what can run beside it: compressors, indexer's, window keys. */
    pl_chain rows, side[3];
} pl_workspace;

/* One rank's pass; those of all ranks of the process are an array, and pl_forward_init gives out the first. */
struct pl_forward {
    pl_share share;
    pl_comm *comm;   /* during a step of several ranks */
    pl_ranks *ranks; /* of the first */
    const pl_config *config;
    const pl_weights *weights;
    const pl_model_slots *slots;
    pl_forward_limits limits;
    pl_exec exec;
    const pl_hooks *hooks;
    const pl_step *step;          /* the one being run */
    float freq[2][PL_ROPE_PAIRS]; /* plain, compressed */
    float index_factor;           /* 128^-0.5 * index_n_heads^-0.5 */
    pl_workspace ws;
};

/* Bytes from one quantised row of dim elements to the next. */
static inline int64_t pl__quant_row_bytes(const pl_ops *ops, int64_t dim)
{
    return (dim / PL_QUANT_BLOCK * ops->quant_block_bytes + 15) / 16 * 16;
}

static inline int pl__n_ranks(const pl_forward_limits *limits)
{
    return limits->n_ranks > 1 ? limits->n_ranks : 1;
}

/* Carves ws of every rank's pass, f[0 .. n_ranks - 1], and the workers' scratch, which ranks use in turn. f is NULL
 * in a dry run. `regions` may be NULL. */
void pl__workspace_layout(pl_forward *f, pl_arena *arena, pl_regions *regions,
                          const pl_config *config, const pl_ops *ops, bool has_mtp, int n_workers,
                          const pl_forward_limits *limits);

#endif
