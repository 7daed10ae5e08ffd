/* A binary heap, worst entry on top: pushing n entries costs n comparisons and log k for those that
 * enter. Ties are decided by the entry number, so the order of pushing does not matter. */
#include "ops/topk.h"

#include <math.h>

static void swap(pl_topk *t, int32_t i, int32_t j)
{
    double score = t->score[i];
    int32_t entry = t->entry[i];

    t->score[i] = t->score[j], t->entry[i] = t->entry[j];
    t->score[j] = score, t->entry[j] = entry;
}

static bool worse(const pl_topk *t, int32_t i, int32_t j)
{
    return pl_topk_before(t->score[j], t->entry[j], t->score[i], t->entry[i]);
}

static void sift_down(pl_topk *t, int32_t i, int32_t n)
{
    for (;;) {
        int32_t child = 2 * i + 1;

        if (child >= n)
            return;
        if (child + 1 < n && worse(t, child + 1, child))
            child++;
        if (!worse(t, child, i))
            return;
        swap(t, i, child);
        i = child;
    }
}

void pl_topk_push(pl_topk *t, double score, int32_t entry)
{
    if (isnan(score))
        score = -INFINITY;
    if (t->n == t->max) {
        if (t->max == 0 || !pl_topk_before(score, entry, t->score[0], t->entry[0]))
            return;
        t->score[0] = score, t->entry[0] = entry;
        sift_down(t, 0, t->n);
        return;
    }
    t->score[t->n] = score, t->entry[t->n] = entry;
    for (int32_t i = t->n++; i > 0 && worse(t, i, (i - 1) / 2); i = (i - 1) / 2)
        swap(t, i, (i - 1) / 2);
}

void pl_topk_sort_by_score(pl_topk *t)
{
    for (int32_t n = t->n - 1; n > 0; n--) {
        swap(t, 0, n);
        sift_down(t, 0, n);
    }
}

/* Heap sort again, by entry. */
static void sift_down_entry(pl_topk *t, int32_t i, int32_t n)
{
    for (;;) {
        int32_t child = 2 * i + 1;

        if (child >= n)
            return;
        if (child + 1 < n && t->entry[child + 1] > t->entry[child])
            child++;
        if (t->entry[child] <= t->entry[i])
            return;
        swap(t, i, child);
        i = child;
    }
}

void pl_topk_sort_by_entry(pl_topk *t)
{
    for (int32_t i = t->n / 2 - 1; i >= 0; i--)
        sift_down_entry(t, i, t->n);
    for (int32_t n = t->n - 1; n > 0; n--) {
        swap(t, 0, n);
        sift_down_entry(t, 0, n);
    }
}
