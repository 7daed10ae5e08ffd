/* Start-up self-tests, and the choice of the level that kernels run at.
 *
 * A level is used only where its self-tests pass on this very processor: compilers, emulators, hypervisors
 * and errata have all produced wrong bits before. Each folder that owns code of a level lists its tests in a
 * constant array; whoever starts the engine passes all arrays here. */
#ifndef PL_BASE_SELFTEST_H
#define PL_BASE_SELFTEST_H

#include "base/cpu.h"
#include "plimsoll/status.h"

typedef struct pl_selftest {
    pl_level level;
    const char *name; /* "chain": what is tested */
    /* A failure is told, but does not bar the level: for corners that no model reaches and that an emulator
     * of processors is known to get wrong. */
    bool only_warns;
    /* Runs in the environment of base/fpenv.h, allocates nothing, takes well under a millisecond. A failure
     * is INTERNAL and says which case gave which bits. */
    pl_status (*run)(pl_error *err);
} pl_selftest;

/* Constant arrays of tests, each ended by a NULL name; the list ends with NULL. */
typedef const pl_selftest *const *pl_selftest_list;

/* The tests of this folder: the arithmetic that the scalar level is made of. */
extern const pl_selftest pl_base_selftests[];

/* Runs all tests of `level` and of the levels below it; those of scalar for f64. *warning (may be NULL) gets
 * the first failure of a test that only warns, else status PL_OK and an empty text. */
PL_MUST_CHECK pl_status pl_selftest_run(pl_selftest_list tests, pl_level level, pl_error *warning,
                                        pl_error *err);

typedef enum pl_level_reason {
    PL_LEVEL_BEST,       /* highest that is built, supported and sound */
    PL_LEVEL_OPTION,     /* asked for on the command line */
    PL_LEVEL_ENVIRONMENT /* asked for by PL_CPU */
} pl_level_reason;

typedef struct pl_level_choice {
    pl_level level;
    pl_level_reason reason;
    char note[PL_ERROR_MSG_BYTES];    /* why a higher level is not used, or "" */
    char warning[PL_ERROR_MSG_BYTES]; /* of the self-tests, or ""; logged too */
} pl_level_choice;

/* Chooses among the levels in `built` (pl_level_built()). `option` (of --level) goes before `environment` (PL_CPU); NULL or "" means none was
 * given. A request only lowers: a level that the processor lacks or that is not built is UNSUPPORTED, with the
 * possible ones in the text; one whose self-test fails is INTERNAL. Without a request the best level whose
 * self-tests pass is taken and a failing higher one is logged; INTERNAL where not even scalar passes. */
PL_MUST_CHECK pl_status pl_level_choose(const pl_cpu *cpu, unsigned built, const char *option,
                                        const char *environment, pl_selftest_list tests,
                                        pl_level_choice *choice, pl_error *err);

#endif
