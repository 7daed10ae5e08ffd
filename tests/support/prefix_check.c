/* Invariants of cache/prefix.h, counted anew from its records. */
#include "support/prefix_check.h"

#include <stdbool.h>
#include <stdlib.h>

#include "support/check.h"

/* Numbers the blocks in use by their place in the list. */
static int32_t *places_of(const pl_prefix *p)
{
    int32_t *place = malloc((size_t)p->size.n_blocks * sizeof *place), n = 0, before = -1;

    assert_non_null(place);
    for (int32_t i = 0; i < p->size.n_blocks; i++)
        place[i] = -1;
    for (int32_t i = p->used.first; i >= 0; i = p->blocks[i].used.after) {
        assert_int_equal(place[i], -1);
        assert_int_equal(p->blocks[i].used.before, before);
        place[i] = n++;
        before = i;
    }
    assert_int_equal(p->used.last, before);
    assert_int_equal(n, p->n_used);
    return place;
}

static void check_tree(const pl_prefix *p, const int32_t *place)
{
    int32_t *n_children = calloc((size_t)p->size.n_blocks, sizeof *n_children);

    assert_non_null(n_children);
    for (int32_t i = p->used.first; i >= 0; i = p->blocks[i].used.after) {
        const int32_t parent = p->blocks[i].parent;

        if (parent < 0)
            continue;
        assert_true(place[parent] >= 0 && place[parent] < place[i]);
        n_children[parent]++;
    }
    for (int32_t i = p->used.first; i >= 0; i = p->blocks[i].used.after)
        assert_int_equal(p->blocks[i].n_children, n_children[i]);
    free(n_children);
}

static void check_buckets(const pl_prefix *p, const int32_t *place)
{
    int32_t n = 0, n_free = 0;

    for (int32_t b = 0; b < p->size.n_blocks; b++)
        for (int32_t i = p->buckets[b]; i >= 0; i = p->blocks[i].chained, n++) {
            assert_true(place[i] >= 0);
            assert_int_equal(p->blocks[i].key.low64 % (uint64_t)p->size.n_blocks, b);
        }
    assert_int_equal(n, p->n_used);
    for (int32_t i = p->free_block; i >= 0; i = p->blocks[i].chained, n_free++)
        assert_int_equal(place[i], -1);
    assert_int_equal(n_free, p->size.n_blocks - p->n_used);
}

static void check_states(const pl_prefix *p, const int32_t *place)
{
    bool *taken = calloc((size_t)p->size.n_states, sizeof *taken);
    int32_t n = 0, n_with = 0;

    assert_non_null(taken);
    for (int32_t i = 0; i < p->n_free_states; i++) {
        assert_false(taken[p->free_states[i]]);
        taken[p->free_states[i]] = true;
    }
    for (int32_t i = p->kept.first; i >= 0; i = p->blocks[i].kept.after, n++) {
        assert_true(place[i] >= 0);
        assert_in_range(p->blocks[i].state, 0, p->size.n_states - 1);
        assert_false(taken[p->blocks[i].state]);
        taken[p->blocks[i].state] = true;
    }
    for (int32_t i = p->used.first; i >= 0; i = p->blocks[i].used.after)
        n_with += p->blocks[i].state >= 0;
    assert_int_equal(n, p->n_kept);
    assert_int_equal(n, n_with);
    assert_int_equal(n + p->n_free_states, p->size.n_states);
    free(taken);
}

void check_prefix(pl_prefix *p)
{
    int32_t *place = places_of(p);

    check_tree(p, place);
    check_buckets(p, place);
    check_states(p, place);
    free(place);
}
