/* plimsoll provider stats: counters by provider and reason. Of a running server with --url; else of dry runs of calls that
 * production makes, which says beforehand what would take which path. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/http_client.h"
#include "cli/json_out.h"
#include "cli/provider.h"
#include "cli/provider_call.h"

struct options {
    bool json;
    const char *url, *key_file, *ca_file;
};

static const pl_option table[] = {
    {.name = "--json",
     .kind = PL_OPTION_FLAG,
     .help = "print one JSON document",
     .offset = offsetof(struct options, json)},
    {.name = "--url",
     .kind = PL_OPTION_STRING,
     .value = "URL",
     .help = "read the counters of the server there, as http://127.0.0.1:8000",
     .offset = offsetof(struct options, url)},
    PL_HTTP_CLIENT_KEY_ROW(struct options),
    PL_HTTP_CLIENT_CA_ROW(struct options),
    {0},
};

/* Shapes of consumers: MAGI-2 at both sizes and on eight ranks, DeepSeek-V4 Flash and Pro, one rank of eight, a short query. */
static const pl_provider_ask production[] = {
    {PL_PROVIDER_VARLEN, PL_TENSOR_BF16, 14808, 14808, 24, 24, 128, 128, 0, true, false, false,
     false, -1},
    {PL_PROVIDER_VARLEN, PL_TENSOR_BF16, 57816, 57816, 24, 24, 128, 128, 0, true, false, false,
     false, -1},
    {PL_PROVIDER_VARLEN, PL_TENSOR_BF16, 57816, 57816, 3, 3, 128, 128, 0, true, false, false, false,
     -1},
    {PL_PROVIDER_VARLEN, PL_TENSOR_BF16, 8, 8, 24, 24, 128, 128, 0, true, false, false, false, -1},
    {PL_PROVIDER_SPARSE, PL_TENSOR_BF16, 8195, 65536, 64, 1, 512, 512, 640, true, true, false,
     false, 0},
    {PL_PROVIDER_SPARSE, PL_TENSOR_BF16, 8195, 65536, 128, 1, 512, 512, 1152, true, true, false,
     false, 0},
    {PL_PROVIDER_SPARSE, PL_TENSOR_BF16, 8195, 65536, 8, 1, 512, 512, 640, true, true, false, false,
     0},
    {PL_PROVIDER_SPARSE, PL_TENSOR_BF16, 1, 65536, 64, 1, 512, 512, 640, true, true, false, true,
     0},
};

enum { N_PRODUCTION = sizeof production / sizeof production[0], MAX_COUNTS = 256 };

typedef struct count {
    char provider[32], reason[32];
    uint64_t calls;
} count;

typedef struct counts {
    count at[MAX_COUNTS];
    int n;
    char line[512]; /* of the server's text, as it comes */
    size_t n_line;
} counts;

static pl_status dry_runs(const pl_provider_table *t, counts *c, pl_error *err)
{
    for (int k = 0; k < N_PRODUCTION; k++) {
        pl_provider_asked asked;
        PL_TRY(pl_provider_ask_make(t->set, &production[k], &asked, err));
        for (int i = 0; i < pl_providers_count(t->set); i++) {
            pl_provider_outcome outcome;
            pl_error why;
            if (pl_provider_run(t->set, i, &asked.call, &outcome, &why) != PL_OK)
                continue; /* refused, and counted */
        }
        pl_provider_ask_free(&asked);
    }
    for (int i = 0; i < pl_providers_count(t->set); i++)
        for (int r = 0; r < PL_PROVIDER_N_REASONS; r++) {
            uint64_t n = pl_providers_calls(t->set, i, (pl_provider_reason)r, 1);
            count *to = &c->at[c->n];
            if (n == 0 || c->n == MAX_COUNTS)
                continue;
            (void)snprintf(to->provider, sizeof to->provider, "%s",
                           pl_providers_record(t->set, i)->name);
            (void)snprintf(to->reason, sizeof to->reason, "%s",
                           pl_provider_reason_name((pl_provider_reason)r));
            to->calls = n;
            c->n++;
        }
    return PL_OK;
}

/* Text of a label of the line; false where there is none, or more than fits. */
static bool label(const char *line, const char *name, char to[32])
{
    const char *at = strstr(line, name), *end;

    if (!at)
        return false;
    at += strlen(name);
    end = strchr(at, '"');
    if (!end || end - at > 31)
        return false;
    (void)snprintf(to, 32, "%.*s", (int)(end - at), at);
    return true;
}

static void take_line(counts *c)
{
    static const char metric[] = "plimsoll:provider_calls_total{";
    const char *value = strrchr(c->line, ' ');
    count *to = &c->at[c->n];

    if (strncmp(c->line, metric, sizeof metric - 1) != 0 || !value || c->n == MAX_COUNTS ||
        !label(c->line, ",provider=\"", to->provider) || !label(c->line, ",reason=\"", to->reason))
        return;
    to->calls = strtoull(value + 1, NULL, 10);
    c->n++;
}

static bool take_body(void *user, const char *data, size_t n)
{
    counts *c = user;

    for (size_t i = 0; i < n; i++) {
        if (data[i] == '\n') {
            c->line[c->n_line] = 0;
            take_line(c);
            c->n_line = 0;
        } else if (c->n_line < sizeof c->line - 1) {
            c->line[c->n_line++] = data[i];
        }
    }
    return true;
}

static pl_status read_server(const struct options *o, counts *c, pl_error *err)
{
    pl_http_answer answer = {.on_body = take_body, .user = c};
    pl_http_client client;
    pl_status s;

    PL_TRY(pl_http_client_open(&client, o->url, o->key_file, o->ca_file, err));
    s = pl_http_exchange(&client.target, "/metrics", client.key, NULL, 30, &answer, err);
    pl_http_client_close(&client);
    PL_TRY(s);
    if (answer.status != 200)
        return pl_error_set(err, PL_ERR_IO, "%s: no counters (got status %d, want 200)", o->url,
                            answer.status);
    if (c->n == 0)
        return pl_error_set(err, PL_ERR_IO,
                            "%s: no counters of providers (want plimsoll:provider_calls_total)",
                            o->url);
    return PL_OK;
}

static void print_json(const struct options *o, const counts *c)
{
    pl_out j;

    pl_out_begin(&j, stdout);
    pl_out_open(&j, NULL, '{');
    pl_out_string(&j, "source", o->url ? o->url : "dry runs");
    pl_out_string(&j, "unit", o->url ? "steps" : "calls");
    pl_out_open(&j, "counters", '[');
    for (int i = 0; i < c->n; i++) {
        pl_out_open(&j, NULL, '{');
        pl_out_string(&j, "provider", c->at[i].provider);
        pl_out_string(&j, "reason", c->at[i].reason);
        pl_out_uint(&j, "calls", c->at[i].calls);
        pl_out_close(&j, '{');
    }
    pl_out_close(&j, '[');
    pl_out_close(&j, '{');
    pl_out_end(&j);
}

static void print(const struct options *o, const counts *c)
{
    if (o->json) {
        print_json(o, c);
        return;
    }
    printf("%-31s %-16s %s\n", "provider", "reason",
           o->url ? "steps of the server" : "dry runs of production's calls");
    for (int i = 0; i < c->n; i++)
        printf("%-31s %-16s %llu\n", c->at[i].provider, c->at[i].reason,
               (unsigned long long)c->at[i].calls);
}

static int run(int argc, char **argv)
{
    const char *args[PL_PROVIDER_MAX - 1] = {0};
    struct options o = {0};
    pl_provider_table t = {0};
    pl_status status;
    pl_error err = {0};
    counts c = {.n = 0};
    int exit_status;

    if (!pl_options_parse(&pl_command_provider_stats, argc, argv, &o, args, &exit_status))
        return exit_status;
    if (o.url && args[0]) {
        status =
            pl_error_set(&err, PL_ERR_INVALID,
                         "--url: a server has its own providers (got '%s' beside it)", args[0]);
    } else if (o.url) {
        status = read_server(&o, &c, &err);
    } else {
        status = pl_provider_table_open(&t, args, PL_PROVIDER_MAX - 1, NULL, &err);
        if (status == PL_OK)
            status = dry_runs(&t, &c, &err);
    }
    pl_provider_table_close(&t);
    if (status != PL_OK)
        return pl_report_error(&err);
    print(&o, &c);
    return PL_EXIT_OK;
}

const pl_command pl_command_provider_stats = {
    .name = "provider stats",
    .usage = "[LIB.so]... [options]",
    .summary = "counters by provider and reason: a server's, or of dry runs",
    .details =
        "With --url the counters of a running server: a step whose attention a provider computed "
        "counts\nonce. Without, every library and the built-in provider are asked about eight "
        "calls "
        "that\nproduction makes (MAGI-2, DeepSeek-V4), in dry runs that touch no memory.\n\n"
        "docs/PROVIDERS.md lists the reasons.",
    .options = table,
    .max_args = PL_PROVIDER_MAX - 1,
    .run = run,
};
