/* plimsoll bench latency: a model's steps against what this machine can do.
 *
 * Opens the model as an engine does, but without one: here the figures say which step runs, and how often. What memory it
 * takes is summed up and compared with the machine's before anything is read. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/topology.h"
#include "cli/bench_latency.h"
#include "model/weights.h"
#include "ops/level.h"

enum { MAX_LIST = 32, STORE_BYTES = 256 << 20, ROOM = 128 };

struct list {
    int64_t v[MAX_LIST];
    int n;
};

struct options {
    bool json;
    const char *level, *prefill, *contexts, *batches, *depths, *svg, *load;
    int64_t threads, max_tokens, batch_context;
    double seconds;
};

struct session {
    const struct options *o;
    struct list prefill, contexts, batches, depths;
    int64_t batch_context;
    bool shows; /* progress, on a terminal */
    pl_checkpoint *checkpoint;
    pl_weights *weights;
    pl_pool *pool;
    pl_level level;
    pl_latency l;
};

/* ---- lists */

/* "1,16,4k,1M": ascending, 1024 for k. */
static pl_status parse_list(const char *option, const char *text, int64_t least, int64_t most,
                            struct list *list, pl_error *err)
{
    const char *at = text;

    list->n = 0;
    do {
        char *end;
        long long v = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;

        PL_CHECK(v >= 0 && v <= 1 << 30, err, "%s: no list of numbers (got '%s', want 1k,16k)",
                 option, text);
        if (*end == 'k' || *end == 'K' || *end == 'm' || *end == 'M')
            v *= *end++ == 'k' || end[-1] == 'K' ? 1 << 10 : 1 << 20;
        PL_CHECK((*end == ',' || !*end) && v >= least && v <= most, err,
                 "%s: a number of '%s' (got %lld, want %" PRId64 " to %" PRId64 ")", option, text,
                 v, least, most);
        PL_CHECK(list->n < MAX_LIST && (list->n == 0 || v > list->v[list->n - 1]), err,
                 "%s: '%s' (want up to %d numbers, ascending)", option, text, MAX_LIST);
        list->v[list->n++] = v;
        at = *end ? end + 1 : end;
    } while (*at);
    return PL_OK;
}

/* 1k, 2k, .. as far as the model goes. */
static void default_contexts(int64_t most, struct list *list)
{
    for (int64_t c = 1024; c <= most && list->n < MAX_LIST - 1; c *= 2)
        list->v[list->n++] = c;
    if (!list->n)
        list->v[list->n++] = most / 128 * 128;
}

/* Steps need some room behind the last: all the model has means as much as leaves that. */
static void leave_room(struct list *list, int64_t deepest)
{
    if (list->v[list->n - 1] > deepest)
        list->v[list->n - 1] = deepest;
    if (list->n > 1 && list->v[list->n - 1] <= list->v[list->n - 2])
        list->n--;
}

static pl_status check_boundaries(const char *option, const struct list *list, pl_error *err)
{
    for (int i = 0; i < list->n; i++)
        PL_CHECK(list->v[i] % 128 == 0, err,
                 "%s: where states are injected (got %" PRId64 ", want multiples of 128)", option,
                 list->v[i]);
    return PL_OK;
}

static pl_status read_lists(struct session *s, pl_error *err)
{
    const pl_config *c = pl_checkpoint_config(s->checkpoint);
    const int64_t all = c->max_position_embeddings, deepest = (all - ROOM) / 128 * 128;
    const struct options *o = s->o;

    PL_CHECK(deepest >= 128, err, "model: positions (got %" PRId64 ", want at least 256)", all);
    if (o->contexts)
        PL_TRY(parse_list("--contexts", o->contexts, 0, all, &s->contexts, err));
    else
        default_contexts(all, &s->contexts);
    leave_room(&s->contexts, deepest);
    PL_TRY(check_boundaries("--contexts", &s->contexts, err));
    if (!o->prefill)
        for (int64_t n = 512; n <= 2048 && (n == 512 || n <= all); n *= 4)
            s->prefill.v[s->prefill.n++] = n < all ? n : all;
    else if (strcmp(o->prefill, "0") != 0)
        PL_TRY(parse_list("--prefill", o->prefill, 1, all, &s->prefill, err));
    PL_TRY(parse_list("--batches", o->batches, 1, PL_LATENCY_MAX_BATCH, &s->batches, err));
    PL_TRY(parse_list("--depths", o->depths, 0, PL_LATENCY_MAX_K, &s->depths, err));
    s->batch_context = o->batch_context < deepest ? o->batch_context : deepest;
    PL_CHECK(s->batch_context % 128 == 0, err,
             "--batch-context: (got %" PRId64 ", want a multiple of 128)", s->batch_context);
    return PL_OK;
}

static int64_t last_of(const struct list *list)
{
    return list->n ? list->v[list->n - 1] : 0;
}

/* ---- memory */

static pl_forward_limits limits_of(const struct session *s)
{
    const pl_config *c = pl_checkpoint_config(s->checkpoint);
    const int32_t batch = (int32_t)last_of(&s->batches);
    const int32_t rows = batch * (1 + (int32_t)last_of(&s->depths));
    int64_t deepest = last_of(&s->contexts) + ROOM;

    deepest = deepest > s->batch_context + ROOM ? deepest : s->batch_context + ROOM;
    deepest = deepest > last_of(&s->prefill) ? deepest : last_of(&s->prefill);
    if (deepest > c->max_position_embeddings)
        deepest = c->max_position_embeddings;
    return (pl_forward_limits){
        .max_tokens = rows > s->o->max_tokens ? rows : (int32_t)s->o->max_tokens,
        .max_seqs = batch,
        .max_logits = rows,
        .max_len = (int32_t)deepest,
        .max_draft = (int32_t)last_of(&s->depths),
    };
}

/* The deep state first, then shallow ones for a batch. */
static void layout_states(struct session *s, pl_arena *arena, const pl_forward_limits *limits,
                          const pl_ops *ops, bool has_mtp, pl_state *states)
{
    const pl_config *c = pl_checkpoint_config(s->checkpoint);
    pl_state_shape shape = pl_forward_state_shape(c, ops, has_mtp, limits);
    pl_state scratch;

    for (int64_t i = 0; i <= last_of(&s->batches); i++) {
        pl_state_layout(states ? &states[i] : &scratch, arena, &shape);
        shape.max_len = (int32_t)s->batch_context + ROOM;
    }
}

static pl_status check_memory(uint64_t bytes, pl_error *err)
{
    pl_mem_machine m;

    PL_TRY(pl_mem_read_machine(&m, err));
    PL_CHECK(bytes <= m.limit_bytes, err,
             "bench latency: needs more memory than there is (got %" PRIu64 " bytes, want %" PRIu64
             "): fewer --batches or lower --contexts",
             m.limit_bytes, bytes);
    return PL_OK;
}

static pl_status open_model(struct session *s, pl_error *err)
{
    pl_latency *l = &s->l;
    const pl_ops *ops = pl_ops_at(s->level, PL_MODE_REC);
    const pl_config *c = pl_checkpoint_config(s->checkpoint);
    const pl_forward_limits limits = limits_of(s);
    const int n_workers = pl_pool_n_workers(s->pool);
    const bool has_mtp = pl_checkpoint_storage(s->checkpoint)->has_mtp;
    pl_load_params load = {.layout = pl_ops_layout(s->level), .pool = s->pool};
    uint64_t work, states;
    pl_arena arena;

    PL_TRY(pl_load_mode_parse(s->o->load, &load.mode, err));
    work = pl_forward_bytes(c, ops, has_mtp, n_workers, &limits);
    pl_arena_init_dry(&arena);
    layout_states(s, &arena, &limits, ops, has_mtp, NULL);
    states = pl_arena_peak_bytes(&arena);
    work = (work + 63) / 64 * 64;
    PL_TRY(
        check_memory(work + states + pl_weights_bytes(s->checkpoint) + STORE_BYTES / 8 * 9, err));
    PL_TRY(pl_mem_map(work + states, PL_MEM_HUGE | PL_MEM_TOUCH, &l->memory, err));
    PL_TRY(pl_mem_map(pl_weights_bytes(s->checkpoint), PL_MEM_HUGE | PL_MEM_TOUCH,
                      &l->weights_memory, err));
    PL_TRY(
        pl_weights_load_as(s->checkpoint, l->weights_memory.base, &load, &s->weights, NULL, err));
    PL_TRY(pl_forward_init(l->memory.base, s->weights, ops, s->pool, &limits, &l->forward, err));
    pl_arena_init(&arena, l->memory.base + work, states);
    layout_states(s, &arena, &limits, ops, has_mtp, l->states);
    PL_TRY(pl_arena_check(&arena, "bench latency", err));
    l->config = c;
    l->cost = pl_latency_cost_of(s->checkpoint, ops);
    l->max_tokens = (int32_t)s->o->max_tokens;
    return PL_OK;
}

/* ---- figures */

/* A batch of equal states, by copying the first. */
static pl_status inject_batch(struct session *s, pl_error *err)
{
    pl_state *states = s->l.states;
    const int32_t n = (int32_t)s->batch_context;

    PL_TRY(pl_forward_inject(s->l.forward, &states[1], 0, n, 1, err));
    for (int64_t i = 2; i <= last_of(&s->batches); i++) {
        pl_state_reset(&states[i]);
        pl_state_copy(&states[i], &states[1]);
    }
    return PL_OK;
}

/* Which figure is being made, on a terminal. */
static void show(const struct session *s, const char *phase, int64_t context, int64_t batch,
                 int64_t k)
{
    if (s->shows)
        fprintf(stderr,
                "\r\033[Kmeasuring %s, %" PRId64 " tokens, batch %" PRId64 ", drafts %" PRId64,
                phase, context, batch, k);
}

static pl_status measure(struct session *s, pl_error *err)
{
    pl_latency *l = &s->l;
    int32_t reached = 0;

    l->barrier_ns = pl_latency_barrier_ns(l);
    show(s, "prefill", s->prefill.n ? s->prefill.v[s->prefill.n - 1] : 0, 1, 0);
    if (s->prefill.n)
        PL_TRY(pl_latency_prefill(l, s->prefill.v, s->prefill.n, err));
    for (int i = 0; i < s->contexts.n; i++) {
        const int32_t at = (int32_t)s->contexts.v[i];

        show(s, "decode", at, 1, 0);
        PL_TRY(pl_forward_inject(l->forward, &l->states[0], reached, at, 1, err));
        reached = at;
        PL_TRY(pl_latency_decode(l, 0, at, 1, 0, false, err));
    }
    PL_TRY(inject_batch(s, err));
    for (int i = 0; i < s->batches.n; i++) {
        show(s, "decode", s->batch_context, s->batches.v[i], 0);
        PL_TRY(pl_latency_decode(l, 1, s->batch_context, (int32_t)s->batches.v[i], 0, false, err));
    }
    for (int i = 0; i < s->depths.n; i++)
        for (int equal = 0; s->depths.v[i] && equal < 2; equal++) {
            show(s, "verify", s->batch_context, 1, s->depths.v[i]);
            PL_TRY(
                pl_latency_decode(l, 1, s->batch_context, 1, (int32_t)s->depths.v[i], equal, err));
        }
    if (s->shows)
        fprintf(stderr, "\r\033[K");
    return PL_OK;
}

static pl_status report(struct session *s, const char *path, pl_error *err)
{
    pl_latency *l = &s->l;
    pl_latency_report r = {.model = path,
                           .level = pl_level_name(s->level),
                           .threads = pl_pool_n_workers(s->pool),
                           .n_layers = l->config->n_layers,
                           .n_experts = l->config->n_experts,
                           .barrier_ns = l->barrier_ns,
                           .rows = l->rows,
                           .n = l->n_rows};

    for (int k = 0; k < PL_BENCH_LIMIT_COUNT; k++) {
        r.limits.one[k] = pl_bench_probe(&l->bench, &l->clock, (pl_bench_limit)k, true, 0);
        r.limits.all[k] = l->n_probes[k]
                              ? pl_bench_median(l->probes[k], l->n_probes[k])
                              : pl_bench_probe(&l->bench, &l->clock, (pl_bench_limit)k, false, 0);
    }
    if (s->o->svg)
        PL_TRY(pl_latency_write_svg(s->o->svg, &r, err));
    if (s->o->json)
        pl_latency_write_json(stdout, &r);
    else
        pl_latency_print(stdout, &r);
    return PL_OK;
}

static pl_status take_profile_memory(pl_latency *l, int n_workers, pl_error *err)
{
    l->profile = aligned_alloc(64, (pl_profile_bytes(n_workers) + 63) / 64 * 64);
    l->states = calloc(1 + PL_LATENCY_MAX_BATCH, sizeof *l->states);
    if (!l->profile || !l->states)
        return pl_error_set(err, PL_ERR_NOMEM, "bench latency: out of memory");
    pl_profile_reset(l->profile, n_workers);
    return PL_OK;
}

static pl_status run_session(struct session *s, const char *path, pl_error *err)
{
    pl_latency *l = &s->l;
    const pl_hooks hooks = {.user = l, .visit = pl_latency_visit, .only = 1u << PL_TAP_FFN_IDS};

    s->shows = isatty(STDERR_FILENO);
    PL_TRY(pl_bench_choose_level(s->o->level, &s->level, err));
    PL_CHECK(s->level != PL_LEVEL_F64, err, "--level: f64 is not there to be fast (want another)");
    PL_TRY(pl_checkpoint_open(path, &s->checkpoint, err));
    PL_TRY(read_lists(s, err));
    if (!pl_checkpoint_has_data(s->checkpoint))
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "%s: holds headers without data: there is nothing to run", path);
    PL_TRY(pl_pool_create(&(pl_pool_params){.n_workers = (int)s->o->threads, .pin_caller = true},
                          &s->pool, err));
    PL_TRY(take_profile_memory(l, pl_pool_n_workers(s->pool), err));
    PL_TRY(open_model(s, err));
    l->clock = pl_bench_wall_clock();
    l->budget_ns = 1e9 * s->o->seconds;
    PL_TRY(pl_bench_open(&l->bench, s->level, s->pool, STORE_BYTES, err));
    pl_forward_set_hooks(l->forward, &hooks);
    PL_TRY(measure(s, err));
    return report(s, path, err);
}

static void close_session(struct session *s)
{
    pl_bench_close(&s->l.bench);
    pl_weights_close(s->weights);
    pl_mem_unmap(&s->l.memory);
    pl_mem_unmap(&s->l.weights_memory);
    pl_pool_destroy(s->pool);
    pl_checkpoint_close(s->checkpoint);
    free(s->l.profile);
    free(s->l.states);
}

static const char *const loads[] = {"auto", "direct", "buffered", NULL};

#define OFFSET(field) offsetof(struct options, field)

static const pl_option table[] = {
    {"--json", PL_OPTION_FLAG, NULL, "print one JSON document", OFFSET(json)},
    {"--svg", PL_OPTION_STRING, "FILE", "also draw the figures", OFFSET(svg)},
    {"--prefill", PL_OPTION_STRING, "512,2k",
     "prompts, run once: figures at each length; 0: none; default: 512,2k", OFFSET(prefill)},
    {"--contexts", PL_OPTION_STRING, "1k,4k",
     "where one sequence decodes; default: 1k, 2k, 4k .. as the model allows", OFFSET(contexts)},
    {"--batches", PL_OPTION_STRING, "1,16", "sequences that decode together; default: 1,4,16,64",
     OFFSET(batches)},
    {"--depths", PL_OPTION_STRING, "0,4", "drafts to verify with a token; default: 0,1,2,3,4",
     OFFSET(depths)},
    {"--batch-context", PL_OPTION_INT, "N", "where batches and drafts stand; default: 4096",
     OFFSET(batch_context), 0, 1 << 30},
    {"--max-num-batched-tokens", PL_OPTION_INT, "N", "tokens of a step of prefill; default: 512",
     OFFSET(max_tokens), 1, 1 << 13},
    {"--level", PL_OPTION_STRING, "L",
     "level of kernels, as 'plimsoll cpu' lists them; default: the best that is sound",
     OFFSET(level)},
    {"--threads", PL_OPTION_INT, "N", "workers; default: physical cores that may be used",
     OFFSET(threads), 1, PL_POOL_MAX_WORKERS},
    {"--load", PL_OPTION_CHOICE, "auto|direct|buffered", "how weights are read; default: auto",
     OFFSET(load), .choices = loads},
    {"--seconds", PL_OPTION_FLOAT, "S", "time of a figure, three samples at least; default: 1",
     OFFSET(seconds), 0, 600},
    {0},
};

static int run(int argc, char **argv)
{
    struct options o = {.seconds = 1,
                        .batches = "1,4,16,64",
                        .depths = "0,1,2,3,4",
                        .max_tokens = 512,
                        .batch_context = 4096};
    struct session *s;
    const char *args[1];
    pl_error err = {0};
    pl_status status;
    int exit_status;

    if (!pl_options_parse(&pl_command_bench_latency, argc, argv, &o, args, &exit_status))
        return exit_status;
    s = calloc(1, sizeof *s);
    if (!s)
        return pl_report_error(
            (pl_error_set(&err, PL_ERR_NOMEM, "bench latency: out of memory"), &err));
    s->o = &o;
    status = run_session(s, args[0], &err);
    close_session(s);
    free(s);
    return status == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_bench_latency = {
    .name = "bench latency",
    .usage = "MODEL [options]",
    .summary = "steps of a model: prefill, decode, verification, in % of the limit that binds",
    .details =
        "prefill is timed over the whole prompt. decode is one token for each sequence, verify "
        "one\n"
        "token and k drafts, all of them kept; 'equal experts' sends all tokens of a step to the\n"
        "experts of the first. Contexts of decode and verify are synthetic: caches are filled "
        "with\n"
        "random rows, as many as that position has, so that a million tokens need no prefill.\n\n"
        "layers are the embedding and the blocks, head is the rest up to logits, all the sum. "
        "Bytes\n"
        "are the weights touched, as in the file, caches apart; operations those of products and\n"
        "attention. Reading of memory and multiply-adds are probed before and after each figure, "
        "and\n"
        "a figure is the share of the one that would take longer. Of layers it is also said which\n"
        "operators the time went to (in one more sample, under a clock), how many parallel "
        "regions\n"
        "a layer has, what they would cost empty, and how long workers waited for each other.\n\n"
        "A slice is as good as the model: plimsoll synth S --preset flash --layers 2 --ratios "
        "4,128",
    .options = table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
