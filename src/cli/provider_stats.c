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
    bool json, explain;
    const char *url, *key_file, *ca_file;
};

static const pl_option table[] = {
    {.name = "--json",
     .kind = PL_OPTION_FLAG,
     .help = "print one JSON document",
     .offset = offsetof(struct options, json)},
    {.name = "--explain",
     .kind = PL_OPTION_FLAG,
     .help = "also who takes each of these calls by itself (auto), and why the others do not",
     .offset = offsetof(struct options, explain)},
    {.name = "--url",
     .kind = PL_OPTION_STRING,
     .value = "URL",
     .help = "read the counters of the server there, as http://127.0.0.1:8000",
     .offset = offsetof(struct options, url)},
    PL_HTTP_CLIENT_KEY_ROW(struct options),
    PL_HTTP_CLIENT_CA_ROW(struct options),
    {0},
};

enum { MAX_COUNTS = 256 };

typedef struct count {
    char provider[32], reason[32];
    uint64_t calls;
} count;

typedef struct counts {
    count at[MAX_COUNTS];
    int n;
    pl_provider_choice choices[PL_PROVIDER_N_PRODUCTION];
    char line[512]; /* of the server's text, as it comes */
    size_t n_line;
} counts;

static pl_status dry_runs(const pl_provider_table *t, counts *c, pl_error *err)
{
    for (int k = 0; k < PL_PROVIDER_N_PRODUCTION; k++) {
        pl_provider_asked asked;
        PL_TRY(pl_provider_ask_make(t->set, &pl_provider_production_calls[k].ask, &asked, err));
        pl_provider_choose(t->set, NULL, &asked.call, &c->choices[k]);
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

/* Who takes each call. */
static void explain_json(pl_out *j, const pl_providers *set, const counts *c)
{
    pl_out_open(j, "calls", '[');
    for (int k = 0; k < PL_PROVIDER_N_PRODUCTION; k++) {
        pl_out_open(j, NULL, '{');
        pl_out_string(j, "call", pl_provider_production_calls[k].name);
        pl_provider_choice_json(j, set, &c->choices[k]);
        pl_out_close(j, '{');
    }
    pl_out_close(j, '[');
}

static void explain_text(const pl_providers *set, const counts *c)
{
    for (int k = 0; k < PL_PROVIDER_N_PRODUCTION; k++) {
        printf("\n%s: ", pl_provider_production_calls[k].name);
        pl_provider_choice_text(set, &c->choices[k]);
    }
}

static void print_json(const struct options *o, const pl_providers *set, const counts *c)
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
    if (o->explain)
        explain_json(&j, set, c);
    pl_out_close(&j, '{');
    pl_out_end(&j);
}

static void print(const struct options *o, const pl_providers *set, const counts *c)
{
    if (o->json) {
        print_json(o, set, c);
        return;
    }
    printf("%-31s %-16s %s\n", "provider", "reason",
           o->url ? "steps of the server" : "dry runs of production's calls");
    for (int i = 0; i < c->n; i++)
        printf("%-31s %-16s %llu\n", c->at[i].provider, c->at[i].reason,
               (unsigned long long)c->at[i].calls);
    if (o->explain)
        explain_text(set, c);
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
    if (o.url && o.explain) {
        status = pl_error_set(&err, PL_ERR_INVALID,
                              "--explain: not of a server, which computes with its own kernels "
                              "(got --url beside it)");
    } else if (o.url && args[0]) {
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
    if (status == PL_OK)
        print(&o, t.set, &c);
    pl_provider_table_close(&t);
    return status == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_provider_stats = {
    .name = "provider stats",
    .usage = "[LIB.so]... [options]",
    .summary = "counters by provider and reason: a server's, or of dry runs",
    .details =
        "With --url the counters of a running server: a step whose attention a provider computed "
        "counts\nonce. Without, every library and the built-in provider are asked about eleven "
        "calls that\nproduction makes (MAGI-2, DeepSeek-V4), in dry runs that touch no memory.\n\n"
        "docs/PROVIDERS.md lists the reasons.",
    .options = table,
    .max_args = PL_PROVIDER_MAX - 1,
    .run = run,
};
