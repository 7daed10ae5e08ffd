/* Finding fixed strings in a text that arrives byte by byte, holding back no more than must be.
 *
 * Each pattern is matched by its own Knuth-Morris-Pratt automaton, so the work per byte is bounded on average
 * whatever the text is. What is held back is the longest beginning of a pattern that the text now ends with;
 * since it is the beginning of a pattern, it need not be stored. */
#ifndef PL_TEXT_DSML_SCAN_H
#define PL_TEXT_DSML_SCAN_H

#include <stdbool.h>

#include "plimsoll/status.h"

enum { PL_DSML_MAX_PATTERN = 32, PL_DSML_MAX_PATTERNS = 10 };

typedef struct pl_dsml_pattern {
    const char *text;
    uint8_t n, matched;
    uint8_t fall_back[PL_DSML_MAX_PATTERN]; /* [k-1]: longest border of the first k bytes */
} pl_dsml_pattern;

typedef struct pl_dsml_scan {
    pl_dsml_pattern patterns[PL_DSML_MAX_PATTERNS];
    unsigned n_patterns;
    unsigned active;    /* bit i: pattern i is looked for */
    unsigned longest;   /* the pattern that has matched most */
    uint64_t firsts[4]; /* bit b: an active pattern begins with byte b */
    uint64_t steps;     /* comparisons so far: for the test of linear time */
} pl_dsml_scan;

/* What a byte leads to: first `held` (n_held bytes) is no longer held back, then perhaps the byte itself; or
 * pattern `match` ends here. */
typedef struct pl_dsml_step {
    const char *held;
    size_t n_held;
    bool byte_too;
    int match; /* -1: none. Where several end here, the longest */
} pl_dsml_step;

/* `texts` are not copied; each is 1 to PL_DSML_MAX_PATTERN bytes long. All patterns are active. */
void pl__dsml_scan_init(pl_dsml_scan *scan, const char *const *texts, unsigned n);

/* Looks for these patterns from here on. What was held back is forgotten. */
void pl__dsml_scan_look_for(pl_dsml_scan *scan, unsigned active);

/* A match forgets everything held back, so the scan begins anew behind it. */
pl_dsml_step pl__dsml_scan_push(pl_dsml_scan *scan, char byte);

/* The end of the text: what is held back is released. */
pl_dsml_step pl__dsml_scan_flush(pl_dsml_scan *scan);

#endif
