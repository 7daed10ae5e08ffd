/* The lists of `bench latency`: which prompts, contexts, batches and depths its figures are of.
 *
 * Read from the command line and held against what the model can do. Contexts lie where states may be injected; the last
 * leaves room for the steps behind it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/bench_latency.h"

/* "1,16,4k,1M": ascending, 1024 for k. */
static pl_status parse_list(const char *option, const char *text, int64_t least, int64_t most,
                            pl_latency_list *list, pl_error *err)
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
        PL_CHECK(list->n < PL_LATENCY_MAX_LIST && (list->n == 0 || v > list->v[list->n - 1]), err,
                 "%s: '%s' (want up to %d numbers, ascending)", option, text, PL_LATENCY_MAX_LIST);
        list->v[list->n++] = v;
        at = *end ? end + 1 : end;
    } while (*at);
    return PL_OK;
}

/* 1k, 2k, .. as far as the model goes. */
static void default_contexts(int64_t most, pl_latency_list *list)
{
    for (int64_t c = 1024; c <= most && list->n < PL_LATENCY_MAX_LIST - 1; c *= 2)
        list->v[list->n++] = c;
    if (!list->n)
        list->v[list->n++] = most / 128 * 128;
}

/* Steps need some room behind the last: all the model has means as much as leaves that. */
static void leave_room(pl_latency_list *list, int64_t deepest)
{
    if (list->v[list->n - 1] > deepest)
        list->v[list->n - 1] = deepest;
    if (list->n > 1 && list->v[list->n - 1] <= list->v[list->n - 2])
        list->n--;
}

static pl_status check_boundaries(const char *option, const pl_latency_list *list, pl_error *err)
{
    for (int i = 0; i < list->n; i++)
        PL_CHECK(list->v[i] % 128 == 0, err,
                 "%s: where states are injected (got %" PRId64 ", want multiples of 128)", option,
                 list->v[i]);
    return PL_OK;
}

/* What an engine that chooses by itself may choose from. */
static void all_depths(pl_latency_list *list)
{
    for (list->n = 0; list->n <= PL_LATENCY_MAX_K; list->n++)
        list->v[list->n] = list->n;
}

pl_status pl_latency_read_lists(const pl_latency_texts *o, const pl_config *c, pl_latency_lists *l,
                                pl_error *err)
{
    const int64_t all = c->max_position_embeddings;
    const int64_t deepest = (all - PL_LATENCY_ROOM) / 128 * 128;

    *l = (pl_latency_lists){.auto_depth = strcmp(o->depths, "auto") == 0};
    PL_CHECK(deepest >= 128, err, "model: positions (got %" PRId64 ", want at least 256)", all);
    if (o->contexts)
        PL_TRY(parse_list("--contexts", o->contexts, 0, all, &l->contexts, err));
    else
        default_contexts(all, &l->contexts);
    leave_room(&l->contexts, deepest);
    PL_TRY(check_boundaries("--contexts", &l->contexts, err));
    if (!o->prefill)
        for (int64_t n = 512; n <= 2048 && (n == 512 || n <= all); n *= 4)
            l->prefill.v[l->prefill.n++] = n < all ? n : all;
    else if (strcmp(o->prefill, "0") != 0)
        PL_TRY(parse_list("--prefill", o->prefill, 1, all, &l->prefill, err));
    PL_TRY(parse_list("--batches", o->batches, 1, PL_LATENCY_MAX_BATCH, &l->batches, err));
    if (l->auto_depth)
        all_depths(&l->depths);
    else
        PL_TRY(parse_list("--depths", o->depths, 0, PL_LATENCY_MAX_K, &l->depths, err));
    l->batch_context = o->batch_context < deepest ? o->batch_context : deepest;
    PL_CHECK(l->batch_context % 128 == 0, err,
             "--batch-context: (got %" PRId64 ", want a multiple of 128)", l->batch_context);
    return PL_OK;
}

int64_t pl_latency_last_of(const pl_latency_list *list)
{
    return list->n ? list->v[list->n - 1] : 0;
}
