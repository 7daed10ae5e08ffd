/* Level f64: the compressor keeps raw rows, 128 or 8 of them, and pools them when a block is full, as
 * the reference does (specification sections 3.6, 3.7).
 *
 * State: kv [rows][width], then score [rows][width]; for ratio 4 rows 0..3 are the window before. */
#include "ops/f64/f64.h"

#include <string.h>

typedef struct shape {
    int64_t rows, width;
} shape;

static shape shape_of(int32_t ratio, int32_t dim)
{
    return ratio == 4 ? (shape){8, 2 * dim} : (shape){ratio, dim};
}

uint64_t pl__f64_compress_state_bytes(int32_t ratio, int32_t dim)
{
    shape s = shape_of(ratio, dim);
    return 2 * sizeof(double) * (uint64_t)(s.rows * s.width);
}

void pl__f64_compress_reset(void *state, int32_t ratio, int32_t dim)
{
    shape s = shape_of(ratio, dim);
    double *v = state;

    for (int64_t i = 0; i < s.rows * s.width; i++) {
        v[i] = 0;
        v[s.rows * s.width + i] = -INFINITY;
    }
}

/* Softmax over n rows of one channel, then the weighted sum of their values. */
static double pool(const pl_op_env *env, int n, const double *kv, const double *score)
{
    double e[PL_WINDOW], max = score[0], den = 0, sum = 0;

    for (int i = 1; i < n; i++)
        max = score[i] > max ? score[i] : max;
    for (int i = 0; i < n; i++) {
        e[i] = pl__f64_acc(env, pl_exp_f64(pl__f64_acc(env, score[i] - max)));
        den += e[i];
    }
    den = pl__f64_acc(env, den);
    for (int i = 0; i < n; i++)
        sum += pl__f64_acc(env, pl__f64_acc(env, e[i] / den) * kv[i]);
    return pl__f64_act(env, sum);
}

/* The finished entry's channel c from a full state. */
static double emit(const pl_op_env *env, const pl_compress_args *a, const double *kv,
                   const double *score, int64_t c)
{
    shape s = shape_of(a->ratio, a->dim);
    /* Ratios 4 and 128 fill 8 rows and all; the initialiser is for readers that cannot know so. */
    double k[PL_WINDOW] = {0}, z[PL_WINDOW] = {0};

    for (int64_t r = 0; r < s.rows; r++) {
        int64_t column = a->ratio == 4 && r >= 4 ? a->dim + c : c;
        k[r] = kv[r * s.width + column];
        z[r] = score[r * s.width + column];
    }
    return pool(env, (int)s.rows, k, z);
}

/* One token's row into channels c, c + dim (ratio 4) or c of the state. */
static void push(const pl_op_env *env, const pl_compress_args *a, const pl_compress_job *job,
                 int64_t t, int64_t first, double *kv, double *score)
{
    shape s = shape_of(a->ratio, a->dim);
    int64_t phase = (job->start + t) % a->ratio, row = a->ratio == 4 ? 4 + phase : phase;

    for (int64_t half = 0; half < s.width; half += a->dim)
        for (int64_t c = half + first; c < half + first + PL_COMPRESS_TILE; c++) {
            double gate = ((const double *)job->gate)[t * s.width + c];

            kv[row * s.width + c] = ((const double *)job->kv)[t * s.width + c];
            score[row * s.width + c] =
                pl__f64_acc(env, gate + pl__f64_weight(&a->ape, phase * s.width + c));
        }
}

/* Rows 4..7 become the window before. */
static void shift(const pl_compress_args *a, int64_t first, double *v)
{
    int64_t width = 2 * a->dim;

    for (int64_t r = 0; r < 4; r++)
        for (int64_t half = 0; half < width; half += a->dim)
            memcpy(v + r * width + half + first, v + (4 + r) * width + half + first,
                   PL_COMPRESS_TILE * sizeof *v);
}

void pl__f64_compress(const pl_op_env *env, const pl_compress_args *a, int64_t begin, int64_t end)
{
    shape s = shape_of(a->ratio, a->dim);
    int64_t tiles = a->dim / PL_COMPRESS_TILE;

    for (int64_t u = begin; u < end; u++) {
        const pl_compress_job *job = &a->jobs[u / tiles];
        int64_t first = u % tiles * PL_COMPRESS_TILE;
        double *kv = job->state, *score = kv + s.rows * s.width, *out = job->pooled;

        for (int64_t t = 0; t < job->n; t++) {
            push(env, a, job, t, first, kv, score);
            if ((job->start + t + 1) % a->ratio)
                continue;
            for (int64_t c = first; c < first + PL_COMPRESS_TILE; c++)
                out[c] = emit(env, a, kv, score, c);
            out += a->dim;
            if (a->ratio == 4) {
                shift(a, first, kv);
                shift(a, first, score);
            }
        }
    }
}

void pl__f64_key_store(const pl_op_env *env, const pl_key_store_args *a, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++)
        pl__f64_index_row(env, &a->angles, r, (const double *)a->y + r * PL_INDEX_DIM,
                          (double *)pl_rows_data(a->dest[r].rows, a->dest[r].index));
}
