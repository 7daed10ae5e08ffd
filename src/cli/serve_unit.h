/* `plimsoll serve --unit`: the same server as a systemd unit. */
#ifndef PL_CLI_SERVE_UNIT_H
#define PL_CLI_SERVE_UNIT_H

#include <stdint.h>

#include "plimsoll/status.h"

typedef struct pl_serve_unit {
    int argc;
    char **argv; /* "serve" and what stands behind it, as typed */
    /* Arguments that name files, or NULL: written as absolute paths. Pointers into argv. */
    const char *files[4];
    uint64_t total_bytes, charged_bytes; /* of the plan */
    uint64_t prefix_cache_bytes;
    int32_t max_model_len;
    int64_t drain_seconds, n_connections;
} pl_serve_unit;

/* Writes the unit to standard output. */
pl_status pl_serve_print_unit(const pl_serve_unit *unit, pl_error *err);

#endif
