/* The rows of the tensor list, shared by tensors_table.c, which has them, and tensors.c, which walks over them.
 *
 * Source: specification section 9.2. */
#ifndef PL_MODEL_TENSORS_TABLE_H
#define PL_MODEL_TENSORS_TABLE_H

#include "model/tensors.h"

/* A size of a tensor; the comment gives Flash's. */
enum pl__tensor_dim {
    PL__DIM_NONE,   /* no second dimension */
    PL__DIM_1,      /* 1 */
    PL__DIM_3,      /* 3 */
    PL__DIM_V,      /* 129280 */
    PL__DIM_D,      /* 4096 */
    PL__DIM_4D,     /* flattened residual streams */
    PL__DIM_TAPS,   /* D times the tapped layers of a DSpark drafter: 12288 */
    PL__DIM_CONF,   /* D + rank of the Markov head: 4352 */
    PL__DIM_MARKOV, /* 256 */
    PL__DIM_HC,     /* 24 */
    PL__DIM_S,      /* 4 */
    PL__DIM_H,      /* 64 */
    PL__DIM_HEAD,   /* 512 */
    PL__DIM_HQ,     /* H*512 */
    PL__DIM_QR,     /* 1024 */
    PL__DIM_GR,     /* G*R */
    PL__DIM_GROUP,  /* H/G*512 inputs of wo_a: 4096 */
    PL__DIM_RATIO,  /* 4 or 128 */
    PL__DIM_COMP,   /* coff*512 */
    PL__DIM_ICOMP,  /* coff*128 */
    PL__DIM_IDIM,   /* 128 */
    PL__DIM_IH,     /* 64 */
    PL__DIM_IHQ,    /* index heads * 128: 8192 */
    PL__DIM_E,      /* 256 */
    PL__DIM_TOPK,   /* 6 */
    PL__DIM_I,      /* 2048 */
    PL__DIM_COUNT
};

enum pl__tensor_form {
    PL__FORM_BF16,
    PL__FORM_F32,
    PL__FORM_I64,
    PL__FORM_FP8,    /* .weight and .scale */
    PL__FORM_EXPERT, /* the same for each routed expert, in the storage of experts */
};

enum pl__tensor_when {
    PL__ALWAYS,
    PL__COMPRESSED, /* ratio 4 or 128 */
    PL__INDEXED,    /* ratio 4 */
    PL__HASHED,     /* the first n_hash_layers */
    PL__LEARNED,    /* the others */
};

struct pl__tensor_row {
    pl_tensor_kind kind;
    enum pl__tensor_form form;
    const char *name; /* behind the block's prefix; of an expert, its matrix */
    enum pl__tensor_dim rows, cols;
    enum pl__tensor_when when;
};

struct pl__tensor_rows {
    const struct pl__tensor_row *row;
    size_t n;
};

/* Of the whole model. */
extern const struct pl__tensor_rows pl__embed_tensors, pl__end_tensors;

/* Of every block; of an mtp block beside, and the copies that Base has there; of the first and last stage of a DSpark drafter. */
extern const struct pl__tensor_rows pl__block_tensors, pl__mtp_tensors, pl__copy_tensors,
    pl__first_stage_tensors, pl__last_stage_tensors;

#endif
