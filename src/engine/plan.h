/* The plan of an engine: what decides memory, and the table of regions that follows.
 *
 * One function lays an engine out (pl__engine_layout). Over dry arenas it is the plan; over mapped memory it is
 * the carving. */
#ifndef PL_ENGINE_PLAN_H
#define PL_ENGINE_PLAN_H

#include "base/cpu.h"
#include "cache/geometry.h"
#include "cache/prefix.h"
#include "engine/sampling.h"
#include "model/forward.h"
#include "plan/region.h"

enum {
    PL_PLAN_GROUPS = 10,     /* kinds of weights that get a region of their own */
    PL_PLAN_GROUP_SIZES = 8, /* different sizes that a group can have in different layers */
    PL_PLAN_TEXT_BYTES = 512,
    PL_MIN_MODEL_LEN = 2, /* a prompt token and a chosen one */
    /* Bounds of what is on the heap; tests hold them against what opening takes at its peak. The tokenizer's is
     * that of an open one: the 300 bytes or so that parsing takes for a while are given back before the
     * weights take more than that. */
    PL_HEADER_BYTES_PER_TENSOR = 384,
    PL_TOKENIZER_BYTES_PER_ID = 128,
    PL_OTHER_HEAP_BYTES = 3 << 20,
    /* Beside the prompts that run: of those that wait, and results that were taken. */
    PL_WAITING_BYTES = 2 << 20,
};

/* Bytes of one kind of weights: so many layers of each size. */
typedef struct pl_weight_group {
    uint64_t bytes;
    uint64_t layer_bytes; /* of the layer being counted */
    int32_t n_sizes;
    bool too_many; /* sizes; the formula is then the sum alone */
    struct {
        uint64_t bytes;
        int32_t n_layers;
    } size[PL_PLAN_GROUP_SIZES];
} pl_weight_group;

/* What a model's files say, as far as memory depends on it. */
typedef struct pl_model_shape {
    pl_config config;
    bool has_mtp;
    pl_weight_group group[PL_PLAN_GROUPS];
    int32_t counted_layer;
    pl_weights_plan weights;
    uint64_t n_tensors;
} pl_model_shape;

/* Everything that memory depends on. */
typedef struct pl_engine_shape {
    const pl_model_shape *model;
    const pl_ops *ops;
    int n_workers;
    int32_t max_num_seqs, max_queued, max_preempted;
    bool rejects;          /* drafts by rejection sampling */
    int32_t n_speculative; /* drafts asked for; limits.max_draft: those that a step has room for */
    uint64_t program_bytes, program_heap_bytes;
    uint64_t prefix_bytes; /* what a cache of prefixes may take; 0: there is none */
    pl_forward_limits limits;
} pl_engine_shape;

/* The pieces of an engine's work memory. */
typedef struct pl_engine_parts {
    void *forward;              /* for pl_forward_init */
    void *load_buffers;         /* for pl_weights_load_as */
    pl_request *requests;       /* [max_num_seqs + max_queued] */
    pl_state *states;           /* [n_ranks][max_num_seqs], those of a request a chain */
    int32_t *free_places;       /* [max_num_seqs] */
    int32_t *free_strips;       /* [max_num_seqs + max_preempted] */
    int32_t *outputs;           /* [max_num_seqs + max_preempted][max_len] */
    float *logprobs;            /* the same */
    int32_t *step_tokens;       /* [max_tokens] */
    pl_step_seq *step_seqs;     /* [max_seqs] */
    pl_request **step_requests; /* [max_seqs] whose they are */
    int32_t *first_row;         /* [max_seqs + 1] rows of logits of each */
    int32_t *logit_rows;        /* [max_logits] */
    struct pl__row *rows;       /* [max_logits] */
    /* Steps of the mtp block; NULL without drafts. */
    int32_t *draft_tokens, *draft_streams; /* [max_tokens] */
    pl_step_seq *draft_seqs;               /* [max_seqs] */
    int32_t *draft_logit_rows;             /* [max_seqs] */
    pl_request **draft_requests;           /* [max_seqs] whose logits they are */
    float *draft_probs; /* [max_num_seqs][max_draft][vocab], with rejection sampling only */
    pl_sampler sampler;
    pl_prefix prefix;
} pl_engine_parts;

struct pl_plan {
    pl_model_shape model;
    pl_engine_params params; /* with what was left open filled in */
    pl_level level;
    pl_engine_shape shape;
    pl_regions regions;
    pl_plan_totals totals;
    char advice[PL_PLAN_TEXT_BYTES], note[PL_PLAN_TEXT_BYTES];
};

/* The operators of a level. */
const pl_ops *pl__engine_ops(pl_level level);

/* From an open checkpoint, or from a configuration alone. */
pl_status pl__model_shape_of_checkpoint(const pl_checkpoint *checkpoint, pl_model_shape *m,
                                        pl_error *err) PL_MUST_CHECK;
void pl__model_shape_of_config(const pl_config *config, pl_model_shape *m);

/* Adds the regions of the weights. */
void pl__model_regions(const pl_model_shape *m, pl_regions *regions);

/* Lays out the work memory from `work` and the states from `cache`, adds all regions, parts outside of arenas
 * too. */
void pl__engine_layout(const pl_engine_shape *shape, pl_regions *regions, pl_arena *work,
                       pl_arena *cache, pl_engine_parts *parts);

/* The regions of a shape, by a dry run. INTERNAL where a closed form is wrong. */
pl_status pl__engine_plan_regions(const pl_engine_shape *shape, pl_regions *regions,
                                  pl_error *err) PL_MUST_CHECK;

/* Total of a shape's regions; of them the caches. */
pl_status pl__engine_bytes(const pl_engine_shape *shape, uint64_t *total, uint64_t *caches,
                           pl_error *err) PL_MUST_CHECK;

/* Fills plan->shape from params, choosing max_model_len where it is open; then totals and texts. */
pl_status pl__plan_fit(pl_plan *plan, pl_error *err) PL_MUST_CHECK;

/* plan_prefix.c: checks the parameter, and sets shape.prefix_bytes; to what the lines leave where that was asked. */
pl_status pl__plan_prefix(pl_plan *plan, pl_error *err) PL_MUST_CHECK;

/* Adds to a control group's charge what total_bytes bring with them: page tables, kernel stacks, sockets. */
void pl__plan_charge(const pl_plan *plan, pl_plan_totals *t);

/* The plan for an open checkpoint. The caller destroys *out. */
pl_status pl__plan_of_checkpoint(const pl_checkpoint *checkpoint, const pl_engine_params *params,
                                 pl_plan **out, pl_error *err) PL_MUST_CHECK;

#endif
