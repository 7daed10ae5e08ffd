/* Which settings plimsoll verify compares with its reference.
 *
 * One axis at a time names the culprit; mixed cases find what only meets in combinations. What is measured under a
 * setting is not known here. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/philox.h"
#include "cli/verify.h"

enum { MAX_CASES = 100000 };

const char *pl_verify_axis_name(pl_verify_axis axis)
{
    static const char *const names[PL_VERIFY_AXES] = {
        "checkpoint", "batch",      "chunk",    "threads", "speculation",
        "level",      "preemption", "snapshot", "prefix",  "mixed"};

    return names[axis];
}

/* A number from 0 on with digits of their own for each axis. */
static int64_t n_combinations(const pl_verify_axes *a)
{
    return (int64_t)a->batch.n * a->chunk.n * a->threads.n * a->k.n * a->n_levels;
}

static pl_verify_setting combination(const pl_verify_axes *a, int64_t i)
{
    pl_verify_setting s = {.path = a->path};

    /* Company last: it needs no other engine. */
    s.batch = a->batch.value[i % a->batch.n];
    i /= a->batch.n;
    s.k = a->k.value[i % a->k.n];
    i /= a->k.n;
    s.chunk = a->chunk.value[i % a->chunk.n];
    i /= a->chunk.n;
    s.threads = a->threads.value[i % a->threads.n];
    i /= a->threads.n;
    s.level = a->level[i];
    return s;
}

static int n_changed(const pl_verify_setting *s, const pl_verify_setting *reference)
{
    return (s->batch != reference->batch) + (s->k != reference->k) +
           (s->chunk != reference->chunk) + (s->threads != reference->threads) +
           (strcmp(s->level, reference->level) != 0) + s->preempts + (s->begins != 0);
}

typedef struct list {
    pl_verify_case *at;
    int n;
} list;

static void add(list *l, pl_verify_axis axis, const pl_verify_setting *s)
{
    l->at[l->n++] = (pl_verify_case){axis, *s};
}

static void add_single(list *l, const pl_verify_axes *a)
{
    const pl_verify_setting reference = combination(a, 0);
    pl_verify_setting s = reference;

    for (int i = 1; i < a->batch.n; i++, s = reference) {
        s.batch = a->batch.value[i];
        add(l, PL_VERIFY_BATCH, &s);
    }
    for (int i = 1; i < a->chunk.n; i++, s = reference) {
        s.chunk = a->chunk.value[i];
        add(l, PL_VERIFY_CHUNK, &s);
    }
    for (int i = 1; i < a->threads.n; i++, s = reference) {
        s.threads = a->threads.value[i];
        add(l, PL_VERIFY_THREADS, &s);
    }
    for (int i = 1; i < a->k.n; i++, s = reference) {
        s.k = a->k.value[i];
        add(l, PL_VERIFY_SPECULATION, &s);
    }
    for (int i = 1; i < a->n_levels; i++, s = reference) {
        s.level = a->level[i];
        add(l, PL_VERIFY_LEVEL, &s);
    }
    s.preempts = true;
    add(l, PL_VERIFY_PREEMPTION, &s);
    s = reference;
    s.begins = PL_VERIFY_SNAPSHOT;
    add(l, PL_VERIFY_SNAPSHOT, &s);
    s.begins = PL_VERIFY_PREFIX;
    if (!a->no_hits)
        add(l, PL_VERIFY_PREFIX, &s);
}

/* Settings that differ from the reference in two axes at least. */
static void add_mixed(list *l, const pl_verify_axes *a, int n_mixed, uint64_t seed)
{
    const pl_verify_setting reference = combination(a, 0);
    const int64_t n = n_combinations(a);

    for (uint32_t i = 0; n_mixed > 0 && i < 1000; i++) {
        const uint32_t counter[4] = {i, 0, 1, 0}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
        uint32_t out[4];
        pl_verify_setting s;

        pl_philox4x32(counter, key, out);
        s = combination(a, (int64_t)(out[0] % (uint64_t)n));
        s.preempts = out[1] % 4 == 0;
        if (out[2] % 4 == 0)
            s.begins = PL_VERIFY_SNAPSHOT;
        else if (out[2] % 4 == 1 && !a->no_hits)
            s.begins = PL_VERIFY_PREFIX;
        if (n_changed(&s, &reference) < 2)
            continue;
        add(l, PL_VERIFY_MIXED, &s);
        n_mixed--;
    }
}

static void add_all(list *l, const pl_verify_axes *a)
{
    const pl_verify_setting reference = combination(a, 0);

    for (int64_t i = 0; i < n_combinations(a); i++) {
        const pl_verify_setting s = combination(a, i);

        if (n_changed(&s, &reference) >= 2)
            add(l, PL_VERIFY_MIXED, &s);
    }
}

pl_status pl_verify_matrix(const pl_verify_axes *axes, int n_mixed, bool full, uint64_t seed,
                           pl_verify_case **cases, int *n, pl_error *err)
{
    const int64_t product = n_combinations(axes),
                  room = 5 + 4 * PL_VERIFY_MAX_VALUES + PL_LEVEL_COUNT + (full ? product : n_mixed);
    const pl_verify_setting reference = combination(axes, 0);
    list l = {NULL, 0};

    *cases = NULL;
    *n = 0;
    PL_CHECK(room <= MAX_CASES, err, "verify: too many combinations (got %lld, want at most %d)",
             (long long)product, MAX_CASES);
    l.at = malloc((size_t)room * sizeof *l.at);
    if (!l.at)
        return pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory for %lld cases",
                            (long long)room);
    add(&l, PL_VERIFY_BATCH, &reference);
    if (axes->against) {
        pl_verify_setting other = reference;

        other.path = axes->against;
        add(&l, PL_VERIFY_CHECKPOINT, &other);
    }
    add_single(&l, axes);
    if (full)
        add_all(&l, axes);
    else
        add_mixed(&l, axes, n_mixed, seed);
    *cases = l.at;
    *n = l.n;
    return PL_OK;
}
