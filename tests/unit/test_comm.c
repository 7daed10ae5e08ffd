/* Ranks of one process: everybody runs, everybody gets everybody's bands, however many ranks there are. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "support/check.h"

enum { ROWS = 5, MAX_BYTES = 3 * PL_MAX_RANKS, ROUNDS = 20 };

typedef struct job {
    _Atomic uint64_t seen; /* bit r: rank r has run */
    _Atomic int wrong;
    int round;
} job;

static uint8_t value(int round, int row, int64_t column)
{
    return (uint8_t)(round * 31 + row * 7 + column * 13 + 1);
}

/* Rank r makes r % 3 columns: some none. */
static void set_bands(pl_comm_bands *b, int n)
{
    for (int r = 0; r < n; r++)
        b->begin[r + 1] = b->begin[r] + r % 3;
    b->n_rows = ROWS;
    b->row_bytes = b->begin[n];
}

static void gather(void *user, pl_comm *comm)
{
    job *j = user;
    int rank = pl_comm_rank(comm), n = pl_comm_n_ranks(comm);
    uint8_t copy[ROWS * MAX_BYTES];
    pl_comm_bands b = {.base = copy};

    set_bands(&b, n);
    atomic_fetch_or(&j->seen, (uint64_t)1 << rank);
    /* Twice, so that a rank may be a round ahead of another. */
    for (int again = 0; again < 2; again++) {
        memset(copy, 0, sizeof copy);
        for (int row = 0; row < ROWS; row++)
            for (int64_t i = b.begin[rank]; i < b.begin[rank + 1]; i++)
                copy[row * b.row_bytes + i] = value(j->round + again, row, i);
        pl_comm_all_gather(comm, &b);
        for (int row = 0; row < ROWS; row++)
            for (int64_t i = 0; i < b.row_bytes; i++)
                if (copy[row * b.row_bytes + i] != value(j->round + again, row, i))
                    atomic_fetch_add(&j->wrong, 1);
    }
}

static void all_have_everything(void **state)
{
    static const int counts[] = {1, 2, 3, 8, PL_MAX_RANKS};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        int n = counts[i];
        pl_ranks *ranks;
        pl_error err;

        check_ok(pl_ranks_create(n, &ranks, &err), &err);
        assert_int_equal(pl_ranks_count(ranks), n);
        for (int round = 0; round < ROUNDS; round++) {
            job j = {.round = round};

            pl_ranks_run(ranks, gather, &j);
            assert_int_equal(j.wrong, 0);
            assert_true(j.seen == (n == 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1));
        }
        pl_ranks_destroy(ranks);
    }
}

static void counts_are_checked(void **state)
{
    pl_ranks *ranks;
    pl_error err;

    check_error(pl_ranks_create(0, &ranks, &err), PL_ERR_INVALID, &err, "got 0", NULL);
    check_error(pl_ranks_create(PL_MAX_RANKS + 1, &ranks, &err), PL_ERR_INVALID, &err, "want 1 to",
                NULL);
    assert_null(ranks);
    pl_ranks_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_have_everything),
        cmocka_unit_test(counts_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
