/* A systemd unit for a server: the command line as typed, less what the plan has decided. The plan is made here and now; in
 * the unit its total is the line and its charged bytes are the group's limit, so the server that systemd starts has the
 * same plan, and either keeps it or does not start. */
#include "cli/serve_unit.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

enum { N_FILES = sizeof((pl_serve_unit *)0)->files / sizeof(char *) };

/* How systemd reads a word: % and $ begin what it replaces. */
static void put(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"' || text[i] == '\\')
            putchar('\\');
        if (text[i] == '%' || text[i] == '$')
            putchar(text[i]);
        putchar(text[i]);
    }
}

/* One that the plan has decided: dropped, with its value where that is a word of its own. */
static bool is_decided(const char *arg, bool *value_follows)
{
    static const char *const names[] = {"--memory", "--memory-utilization", "--max-model-len",
                                        "--prefix-cache-memory", "--unit"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t n = strlen(names[i]);

        if (strncmp(arg, names[i], n) == 0 && (!arg[n] || arg[n] == '=')) {
            *value_follows = !arg[n] && strcmp(arg, "--unit") != 0;
            return true;
        }
    }
    return false;
}

/* Everything that can fail, before a byte is written. */
static pl_status check(const pl_serve_unit *u, pl_error *err)
{
    char path[PATH_MAX];

    for (int i = 0; i < u->argc; i++)
        PL_CHECK(!strpbrk(u->argv[i], "\n\r"), err,
                 "--unit: a line break in an argument (want none)");
    for (size_t i = 0; i < N_FILES; i++)
        PL_CHECK(!u->files[i] || realpath(u->files[i], path), err, "--unit: %s: not found (got %s)",
                 u->files[i], strerror(errno));
    return PL_OK;
}

static void put_argument(const pl_serve_unit *u, const char *arg)
{
    const size_t n = strlen(arg);
    char path[PATH_MAX];

    printf(" \"");
    for (size_t i = 0; i < N_FILES; i++)
        if (u->files[i] && u->files[i] >= arg && u->files[i] <= arg + n &&
            realpath(u->files[i], path)) {
            put(arg, (size_t)(u->files[i] - arg));
            put(path, strlen(path));
            putchar('"');
            return;
        }
    put(arg, n);
    putchar('"');
}

static void put_command(const pl_serve_unit *u, const char *self, size_t n)
{
    printf("ExecStart=\"");
    put(self, n);
    putchar('"');
    for (int i = 0; i < u->argc; i++) {
        bool value_follows = false;

        if (is_decided(u->argv[i], &value_follows))
            i += value_follows;
        else
            put_argument(u, u->argv[i]);
    }
    printf(" \"--memory\" \"%" PRIu64 "\" \"--max-model-len\" \"%" PRId32
           "\" \"--prefix-cache-memory\" \"%" PRIu64 "\"\n",
           u->total_bytes, u->max_model_len, u->prefix_cache_bytes);
}

pl_status pl_serve_print_unit(const pl_serve_unit *u, pl_error *err)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self);

    PL_CHECK(n > 0 && n < (ssize_t)sizeof self, err, "--unit: this program's path is not known");
    PL_TRY(check(u, err));
    puts("# Written by plimsoll serve --unit. MemoryMax is what the plan charges a control group; "
         "with another\n"
         "# model, other options or another version, write it anew.\n"
         "[Unit]\n"
         "Description=Plimsoll, an inference server\n"
         "After=network.target\n\n"
         "[Service]\n"
         "Type=exec");
    put_command(u, self, (size_t)n);
    printf("MemoryMax=%" PRIu64 "\n"
           "MemorySwapMax=0\n"
           "LimitNOFILE=%" PRId64 "\n"
           "TimeoutStopSec=%" PRId64 "\n",
           u->charged_bytes, u->n_connections + 8192, u->drain_seconds + 15);
    puts("Restart=on-failure\n"
         "# A key for clients: PLIMSOLL_API_KEY=... in this file.\n"
         "EnvironmentFile=-/etc/plimsoll.env\n"
         "DynamicUser=yes\n"
         "UMask=0077\n"
         "NoNewPrivileges=yes\n"
         "CapabilityBoundingSet=\n"
         "ProtectSystem=strict\n"
         "ProtectHome=read-only\n"
         "PrivateTmp=yes\n"
         "PrivateDevices=yes\n"
         "ProtectClock=yes\n"
         "ProtectControlGroups=yes\n"
         "ProtectKernelLogs=yes\n"
         "ProtectKernelModules=yes\n"
         "ProtectKernelTunables=yes\n"
         "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX\n"
         "RestrictNamespaces=yes\n"
         "RestrictRealtime=yes\n"
         "LockPersonality=yes\n"
         "MemoryDenyWriteExecute=yes\n"
         "SystemCallArchitectures=native\n\n"
         "[Install]\n"
         "WantedBy=multi-user.target");
    PL_CHECK(fflush(stdout) == 0, err, "standard output: write failed");
    return PL_OK;
}
