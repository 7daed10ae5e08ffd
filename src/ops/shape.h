/* Numbers that the checkpoint format fixes: caches, operators and kernels rely on them. */
#ifndef PL_OPS_SHAPE_H
#define PL_OPS_SHAPE_H

enum {
    PL_HEAD_DIM = 512, /* of a query head, of the one shared key = value, of a compressed entry */
    PL_ROPE_DIM = 64,  /* its last dims, rotated in 32 adjacent pairs */
    PL_ROPE_PAIRS = PL_ROPE_DIM / 2,
    PL_NOPE_DIM = PL_HEAD_DIM - PL_ROPE_DIM, /* 448, kept as e4m3 in blocks of PL_KV_BLOCK */
    PL_KV_BLOCK = 64,
    PL_INDEX_DIM = 128,
    PL_WINDOW = 128,
    PL_HC_MULT = 4,
    PL_HC_OUT = (2 + PL_HC_MULT) * PL_HC_MULT, /* 24: pre, post and the 4x4 mix */
    PL_QUANT_BLOCK = 128,  /* K-block of quantised activations and of every dot product */
    PL_TILE_ROWS = 16,     /* output rows that a linear layer is split by */
    PL_COMPRESS_TILE = 64, /* channels that a compressor is split by */
};

#endif
