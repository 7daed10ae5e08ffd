/* Taps into the forward pass: every named tensor can be read as it is made, and overwritten before it
 * is used.
 *
 * A hook is called on the engine's thread, between operators, with a view of the live buffer. Reading
 * is tracing; writing into streams, expert ids or selection is forcing. Without hooks a tap costs one
 * test. */
#ifndef PL_MODEL_TRACE_H
#define PL_MODEL_TRACE_H

#include "model/step.h"

enum { PL_TAP_LAYER_MTP = -1, PL_TAP_LAYER_NONE = -2 };

typedef enum pl_tap_kind {
    PL_TAP_KIND_ACT,  /* act [rows][cols] */
    PL_TAP_KIND_ACC,  /* acc [rows][cols] */
    PL_TAP_KIND_I32,  /* int32_t [rows][cols] */
    PL_TAP_KIND_ROWS, /* cache rows of 512 values */
} pl_tap_kind;

/* clang-format off */
/* name, kind, name behind "layers.N." in files; a row is a token, but for logits */
#define PL_TAP_MAP(X)                                                                     \
    X(ATTN_Q, ACT, "attn.q")           /* [n][H][512] after rotation */                   \
    X(ATTN_KV, ROWS, "attn.kv")        /* window keys of the step */                      \
    X(ATTN_SCORES, ACC, "attn.scores") /* [n][max_len / 4], only where wanted */          \
    X(ATTN_SEL, I32, "attn.sel")       /* [n][topk] ascending, -1 padded; may be forced */ \
    X(ATTN_O, ACT, "attn.o")           /* [n][H][512] before the inverse rotation */      \
    X(ATTN_OUT, ACT, "attn_out")       /* [n][D] */                                       \
    X(STREAMS_MID, ACT, "streams_mid") /* [n][4][D]; may be forced */                     \
    X(FFN_IDS, I32, "ffn.ids")         /* [n][k]; may be forced */                        \
    X(FFN_WEIGHTS, ACC, "ffn.weights") /* [n][k] */                                       \
    X(FFN_OUT, ACT, "ffn_out")         /* [n][D] */                                       \
    X(STREAMS, ACT, "streams")         /* [n][4][D] after the layer; may be forced */     \
    X(LOGITS, ACC, "logits")           /* [n_logits][V] */
/* clang-format on */

typedef enum pl_tap {
#define PL_TAP_ENUM(name, kind, text) PL_TAP_##name,
    PL_TAP_MAP(PL_TAP_ENUM)
#undef PL_TAP_ENUM
        PL_TAP_COUNT
} pl_tap;

typedef struct pl_tap_view {
    pl_tap tap;
    pl_tap_kind kind;
    int32_t layer; /* 0.., PL_TAP_LAYER_MTP, PL_TAP_LAYER_NONE */
    int64_t rows, cols;
    void *data;        /* the elements, without gaps; NULL for PL_TAP_KIND_ROWS */
    const pl_rows *kv; /* PL_TAP_KIND_ROWS: row t is token t */
    const pl_step *step;
    const pl_ops *ops; /* whose formats these are */
} pl_tap_view;

typedef struct pl_hooks {
    void *user;
    void (*visit)(void *user, const pl_tap_view *view);
    bool scores; /* also ATTN_SCORES (needs pl_forward_limits.want_scores); then all visible entries
                    are scored */
    uint32_t only; /* bits 1 << pl_tap of those to visit; 0: all. The others cost nothing */
} pl_hooks;

/* "attn.q", ...; never NULL. */
const char *pl_tap_name(pl_tap tap);
pl_tap_kind pl_tap_kind_of(pl_tap tap);

/* Elements of `view` from row `row` on as float. */
void pl_tap_get(const pl_tap_view *view, int64_t row, int64_t n_rows, float *out);

#endif
