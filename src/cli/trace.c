/* plimsoll trace: every tensor of a forward pass, in a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/token_list.h"
#include "model/checkpoint.h"
#include "model/trace_file.h"

enum { LONGEST_ID = 11 }; /* bytes of an id and its separator, for the size of a file */

struct options {
    const char *tokens_file, *level, *mode, *out;
    int64_t threads, max_step;
};

static const char *const modes[] = {"ref", "rec", "exact", NULL};

#define FIELD(name) offsetof(struct options, name)

static const pl_option table[] = {
    {"--tokens-file", PL_OPTION_STRING, "F",
     "token ids of one sequence, separated by commas or white space", FIELD(tokens_file)},
    {"--level", PL_OPTION_STRING, "L", "scalar, avx2, avx512, avx512bf16 or f64 (default f64)",
     FIELD(level)},
    {"--mode", PL_OPTION_CHOICE, "M",
     "ref, rec or exact (default rec; levels but f64 have rec alone)", FIELD(mode),
     .choices = modes},
    {"-o", PL_OPTION_STRING, "OUT", "the safetensors file to write", FIELD(out)},
    {"--max-num-batched-tokens", PL_OPTION_INT, "N",
     "tokens of one step (default 128); bits do not depend on it", FIELD(max_step), 1, 1 << 20},
    {"--threads", PL_OPTION_INT, "N", "workers (default: one per core)", FIELD(threads), 1,
     PL_POOL_MAX_WORKERS},
    {NULL},
};

static pl_status choose_ops(const struct options *o, const pl_ops **ops, pl_error *err)
{
    pl_mode mode = PL_MODE_REF;
    pl_level level;

    PL_TRY(pl_level_parse(o->level, &level, err));
    while (mode < PL_MODE_EXACT && strcmp(modes[mode], o->mode) != 0)
        mode++;
    if (level != PL_LEVEL_F64 && mode != PL_MODE_REC)
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "--mode: level %s has one mode (got %s, want rec, or --level f64)",
                            o->level, o->mode);
    *ops = pl_ops_at(level, mode);
    if (!*ops)
        return pl_error_set(err, PL_ERR_UNSUPPORTED, "--level: %s is not in this build", o->level);
    return PL_OK;
}

static pl_status trace(const pl_weights *weights, const pl_ops *ops, const struct options *o,
                       pl_error *err)
{
    pl_pool_params params = {.n_workers = (int)o->threads};
    pl_token_list_rules rules = {.max_ids =
                                     (size_t)pl_weights_config(weights)->max_position_embeddings};
    int32_t *tokens;
    size_t n;
    pl_pool *pool;
    pl_status s;

    PL_TRY(pl_token_list_read(o->tokens_file, rules.max_ids * LONGEST_ID + 4096, &rules, &tokens,
                              &n, err));
    s = pl_pool_create(&params, &pool, err);
    if (s == PL_OK) {
        s = pl_trace_write(o->out, weights, ops, pool, tokens, (int32_t)n, (int32_t)o->max_step,
                           err);
        pl_pool_destroy(pool);
    }
    free(tokens);
    return s;
}

static pl_status load_and_trace(const char *path, const struct options *o, pl_error *err)
{
    pl_checkpoint *checkpoint;
    pl_weights *weights;
    const pl_ops *ops;
    uint64_t bytes;
    void *memory;
    pl_status s;

    PL_CHECK(o->tokens_file, err, "--tokens-file: missing (want a file of token ids)");
    PL_CHECK(o->out, err, "-o: missing (want the name of the file to write)");
    PL_TRY(choose_ops(o, &ops, err));
    PL_TRY(pl_checkpoint_open(path, &checkpoint, err));
    bytes = pl_weights_bytes(checkpoint);
    memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    s = memory ? pl_weights_load(checkpoint, memory, &weights, err)
               : pl_error_set(err, PL_ERR_NOMEM,
                              "%s: no memory for its weights (got none of %llu "
                              "bytes)",
                              path, (unsigned long long)bytes);
    pl_checkpoint_close(checkpoint);
    if (s == PL_OK) {
        s = trace(weights, ops, o, err);
        pl_weights_close(weights);
    }
    free(memory);
    return s;
}

static int run(int argc, char **argv)
{
    struct options o = {.level = "f64", .mode = "rec", .max_step = 128};
    const char *args[1];
    pl_error err = {0};
    int status;

    if (!pl_options_parse(&pl_command_trace, argc, argv, &o, args, &status))
        return status;
    return load_and_trace(args[0], &o, &err) == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_trace = {
    .name = "trace",
    .usage = "MODEL --tokens-file F -o OUT [options]",
    .summary = "every tensor of a forward pass in a file, for comparison with a reference",
    .details =
        "Tensors are named as in the golden files of tests/oracle and hold all positions; "
        "those of\n"
        "the mtp block, which pairs a position with the token after it, hold one less. bf16 "
        "values\n"
        "are stored as BF16 (in mode exact as F32), ids as I64 with -1 for none.\n\n"
        "Modes: ref rounds wherever the reference does; rec keeps fp32 in the query norm and the\n"
        "index scores, as all levels do; exact rounds and quantises nothing.",
    .options = table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
