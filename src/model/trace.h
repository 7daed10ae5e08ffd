/* Taps into the forward pass: every named tensor can be read as it is made, and overwritten before it
 * is used.
 *
 * A hook is called on the engine thread, between operators, with a view of the live buffer. Reading is
 * tracing; writing into the streams, the expert ids or the selection is forcing. Without a hook taps
 * cost one test. */
#ifndef PL_MODEL_TRACE_H
#define PL_MODEL_TRACE_H

#include "model/step.h"

enum { PL_TAP_LAYER_MTP = -1, PL_TAP_LAYER_NONE = -2 };

/* name, kind, golden name behind "layers.N." */
#define PL_TAP_MAP(X)                                                                       \
    X(STREAMS_IN, ACT, "streams_in")   /* [n][4][D] before the layer */                     \
    X(ATTN_Q, ACT, "attn.q")           /* [n][H][512] after rotation */                     \
    X(ATTN_KV, ROWS, "attn.kv")        /* row t: token t's window key */                    \
    X(ATTN_SCORES, ACC, "attn.scores") /* [n][max], where wanted */                         \
    X(ATTN_SEL, I32, "attn.sel")       /* [n][topk], ascending, -1 padded; may be forced */ \
    X(ATTN_O, ACT, "attn.o")           /* [n][H][512] before the inverse rotation */        \
    X(ATTN_OUT, ACT, "attn_out")       /* [n][D] */                                         \
    X(STREAMS_MID, ACT, "streams_mid") /* [n][4][D]; may be forced */                       \
    X(FFN_IDS, I32, "ffn.ids")         /* [n][top_k]; may be forced */                      \
    X(FFN_WEIGHTS, ACC, "ffn.weights") /* [n][top_k] */                                     \
    X(FFN_OUT, ACT, "ffn_out")         /* [n][D] */                                         \
    X(STREAMS, ACT, "streams")         /* [n][4][D]; may be forced */                       \
    X(LOGITS, ACC, "logits")           /* [n_logits][V] */

typedef enum pl_tap {
#define PL_TAP_ENUM(name, kind, text) PL_TAP_##name,
    PL_TAP_MAP(PL_TAP_ENUM)
#undef PL_TAP_ENUM
        PL_TAP_COUNT
} pl_tap;

typedef enum pl_tap_kind {
    PL_TAP_KIND_ACT,
    PL_TAP_KIND_ACC,
    PL_TAP_KIND_I32,
    PL_TAP_KIND_ROWS
} pl_tap_kind;

typedef struct pl_tap_view {
    pl_tap tap;
    pl_tap_kind kind;
    int32_t layer; /* 0.., PL_TAP_LAYER_MTP, PL_TAP_LAYER_NONE */
    int64_t rows, cols;
    void *data;        /* [rows][cols] without gaps; NULL for ROWS */
    const pl_rows *kv; /* ROWS */
    const pl_step *step;
} pl_tap_view;

typedef struct pl_hooks {
    void *user;
    void (*visit)(void *user, const pl_tap_view *view);
    bool want_scores; /* give ATTN_SCORES; all visible keys are then scored */
} pl_hooks;

const char *pl_tap_name(pl_tap tap);

#endif
