/* plimsoll bench: what a row of the table is, how one is registered, timed and judged.
 *
 * An operator adds itself with one entry: a name, the shapes that a default run measures, and a function that
 * makes a call ready from a shape:
 *
 *     static pl_status prepare(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err)
 *     {
 *         const int64_t t = pl_bench_word(shape, "t"), d = pl_bench_word(shape, "d");
 *         struct my_call *c = pl_bench_take(b, sizeof *c);
 *         void *x = pl_bench_bf16(b, t * d);
 *
 *         if (b->failed)
 *             return PL_OK;                     the caller tells that memory is missing
 *         ...
 *         *w = (pl_bench_work){.run = run, .user = c, .bytes = .., .flops = .., .limit = PL_BENCH_FP32};
 *         return PL_OK;
 *     }
 *     const pl_bench_op pl_bench_my_op = {"my_op", shapes, "t d", prepare};
 *
 * and a line in bench_table.c. What it takes is given back after the row. */
#ifndef PL_CLI_BENCH_H
#define PL_CLI_BENCH_H

#include <stdio.h>

#include "base/meminfo.h"
#include "cli/options.h"
#include "ops/run.h"

typedef enum pl_bench_limit {
    PL_BENCH_READ, /* of memory, GB/s */
    PL_BENCH_FP32, /* multiply-adds of the level, GFLOP/s */
    PL_BENCH_BF16, /* the same of bf16 pairs; at levels without such an instruction that of FP32 */
    PL_BENCH_LIMIT_COUNT
} pl_bench_limit;

/* "read", "fp32", "bf16". */
const char *pl_bench_limit_name(pl_bench_limit limit);

/* One call, ready to be made again and again. `round` counts them up: calls that should find their weights in
 * memory and not in a cache take others each time. */
typedef struct pl_bench_work {
    void (*run)(void *user, int64_t round);
    void *user;
    int64_t units;        /* of the shape in one call; 0 means 1 */
    double bytes, flops;  /* of one unit; bytes of weights are those of the file */
    pl_bench_limit limit; /* what binds it */
    uint64_t working_set; /* bytes that calls go over before they come back to the first */
} pl_bench_work;

enum { PL_BENCH_MAX_PIECES = 48 };

typedef struct pl_bench {
    pl_exec exec;
    pl_level level;
    pl_mem store, scales, work;        /* weights' codes, weights' scales, workers' scratch */
    pl_mem piece[PL_BENCH_MAX_PIECES]; /* of the row being measured */
    int n_pieces;
    bool failed; /* a piece was refused */
    pl_error *err;
} pl_bench;

typedef struct pl_bench_op {
    const char *name;
    const char *const
        *shapes;       /* NULL-terminated: what a default run measures, the most telling first */
    const char *words; /* that a shape has to have, each with a whole number from 1 on: "m n k" */
    pl_status (*prepare)(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err);
} pl_bench_op;

/* NULL-terminated. */
extern const pl_bench_op *const pl_bench_ops[];

/* ---- for prepare */

/* The number behind a word of a shape: "k" of "m1 n8192 k4096" is 4096. 0 where it has none. */
int64_t pl_bench_word(const char *shape, const char *word);

/* Zeros, 64-byte aligned, until the row is done. NULL, and b->failed, where there is no memory. */
void *pl_bench_take(pl_bench *b, uint64_t bytes);

/* n values between -2 and 2, and e8m0 bytes of scales around 1. */
uint16_t *pl_bench_bf16(pl_bench *b, int64_t n);
float *pl_bench_f32(pl_bench *b, int64_t n);
uint8_t *pl_bench_scale_bytes(pl_bench *b, int64_t n);

/* `bytes` of the store for round `round`: any format can be read there, and rounds go over all of it. NULL, and
 * b->failed with the reason, where it is larger than the store. */
uint8_t *pl_bench_codes(pl_bench *b, uint64_t bytes, int64_t round);
uint8_t *pl_bench_scales(pl_bench *b, uint64_t bytes, int64_t round);

/* What a matrix product is bound by: reading at one row, else the level's multiply-add peak. */
pl_bench_limit pl_bench_product_limit(const pl_bench *b, int64_t m);

/* ---- for whoever runs the table */

/* The level of that name, or the best that is sound. */
pl_status pl_bench_choose_level(const char *name, pl_level *level, pl_error *err) PL_MUST_CHECK;

/* A store of `store_bytes`, scratch for every operator of the table. The caller closes whatever the result. */
pl_status pl_bench_open(pl_bench *b, pl_level level, pl_pool *pool, uint64_t store_bytes,
                        pl_error *err) PL_MUST_CHECK;
void pl_bench_release(pl_bench *b); /* the pieces of a row */
void pl_bench_close(pl_bench *b);

/* Whether `shape` is one of `op`; INVALID otherwise. */
pl_status pl_bench_check_shape(const pl_bench_op *op, const char *shape,
                               pl_error *err) PL_MUST_CHECK;

/* ---- time */

typedef struct pl_bench_clock {
    double (*now_ns)(void *user);
    void *user;
} pl_bench_clock;

pl_bench_clock pl_bench_wall_clock(void);

typedef struct pl_bench_time {
    double ns;     /* of one call, the median */
    double spread; /* distance of the quartiles in percent of it */
    int samples;
} pl_bench_time;

/* Calls again and again for about `budget_ns`: once to warm up, then at least three samples of at least a
 * millisecond each, or one call. A call of more than half a second is its own warming up and is made twice at least. */
pl_bench_time pl_bench_measure(const pl_bench_clock *clock, const pl_bench_work *w,
                               double budget_ns);

/* Sorts; the median of n values, 0 of none. */
double pl_bench_median(double *values, int n);

/* ---- limits of the machine */

/* Bandwidth or multiply-add rate of one thread, or of all workers; `round` chooses what part of the store is
 * read. Takes some 10 ms. */
double pl_bench_probe(pl_bench *b, const pl_bench_clock *clock, pl_bench_limit limit,
                      bool one_thread, int64_t round);

/* ---- results */

typedef struct pl_bench_row {
    const char *op, *shape;
    const char *level;
    int threads;
    bool cold;
    double ns, gbps, gflops; /* of one unit */
    pl_bench_limit limit;
    double limit_rate; /* probed before and after, the mean */
    double percent;    /* gbps or gflops of it */
    double spread;
} pl_bench_row;

typedef struct pl_bench_limits {
    double one[PL_BENCH_LIMIT_COUNT], all[PL_BENCH_LIMIT_COUNT];
} pl_bench_limits;

/* The arithmetic of a row. */
pl_bench_row pl_bench_judge(const pl_bench_op *op, const char *shape, const pl_bench_work *w,
                            const pl_bench_time *time, double limit_rate, uint64_t cold_bytes);

/* From which working set on a row is cold: 512 MiB or 8 times the last-level cache, whichever is less. */
uint64_t pl_bench_cold_bytes(uint64_t llc_bytes);

void pl_bench_print(FILE *to, const pl_bench_limits *limits, const pl_bench_row *rows, int n);
void pl_bench_write_json(FILE *to, const pl_bench_limits *limits, const pl_bench_row *rows, int n);

extern const pl_command pl_command_bench_ops, pl_command_bench_latency, pl_command_bench_load;

#endif
