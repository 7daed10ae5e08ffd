/* plimsoll provider: picks what is asked of providers of attention, and lists them. */
#include "cli/provider.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/json_out.h"
#include "cli/kinds.h"

static const pl_command *const kinds[] = {
    /* One a line. */
    /* clang-format off */
    &pl_command_provider_list,
    &pl_command_provider_check,
    &pl_command_provider_stats,
    &pl_command_provider_explain,
    /* clang-format on */
};

enum { MAX_LIBRARIES = PL_PROVIDER_MAX - 1 };

pl_status pl_provider_table_open(pl_provider_table *t, const char *const *args, int n,
                                 const pl_provider_pin *pin, pl_error *err)
{
    const pl_ops_params params = {.n_workers = 1, .no_pin = 1};
    char path[4096];
    int index;

    *t = (pl_provider_table){0};
    PL_TRY(pl_ops_context_create(&params, &t->context, err));
    PL_TRY(pl_providers_create(t->context, &t->set, err));
    for (int i = 0; i < n && args[i]; i++) {
        if (access(args[i], R_OK) != 0)
            return pl_error_set(err, PL_ERR_NOT_FOUND, "%s: no such library", args[i]);
        /* A name without a slash would be looked for where the system's libraries are. */
        (void)snprintf(path, sizeof path, "%s%s", strchr(args[i], '/') ? "" : "./", args[i]);
        PL_TRY(pl_providers_add(t->set, path, pin, 1, &index, err));
    }
    return PL_OK;
}

void pl_provider_table_close(pl_provider_table *t)
{
    pl_providers_destroy(t->set);
    pl_ops_context_destroy(t->context);
    *t = (pl_provider_table){0};
}

/* ---- list */

struct options {
    bool json;
};

static const pl_option table[] = {
    {.name = "--json",
     .kind = PL_OPTION_FLAG,
     .help = "print one JSON document",
     .offset = offsetof(struct options, json)},
    {0},
};

static const char *layout_name(pl_lse_layout layout)
{
    return layout == PL_LSE_HT ? "HT" : layout == PL_LSE_TH ? "TH" : "undeclared";
}

static void print_range(pl_out *j, const char *key, int32_t min, int32_t max, int32_t step)
{
    pl_out_open(j, key, '<');
    pl_out_int(j, NULL, min);
    pl_out_int(j, NULL, max);
    pl_out_int(j, NULL, step);
    pl_out_close(j, '<');
}

static void print_words(pl_out *j, const char *key, const char *const names[3], uint32_t bits)
{
    pl_out_open(j, key, '<');
    for (int i = 0; i < 3; i++)
        if (bits & 1u << i)
            pl_out_string(j, NULL, names[i]);
    pl_out_close(j, '<');
}

static void print_claims(pl_out *j, int op, const pl_provider_claims *c)
{
    static const char *const roundings[] = {"fp32", "rounded", "truncated"},
                             *const types[] = {"bf16", "fp16", "fp32"},
                             *const caches[] = {"bf16", "v4", "v32"};

    pl_out_open(j, NULL, '{');
    pl_out_string(j, "operator", pl_provider_op_name((pl_provider_op)op));
    pl_out_string(j, "function", c->function);
    print_words(j, "types", types, c->types >> PL_TENSOR_BF16);
    pl_out_int(j, "device", c->device);
    pl_out_bool(j, "capture", c->capture);
    pl_out_int(j, "heads", c->heads);
    pl_out_int(j, "heads_max", c->heads_max);
    print_range(j, "dims", c->dim_min, c->dim_max, c->dim_step);
    print_range(j, "value_dims", c->value_min, c->value_max, c->value_step);
    pl_out_int(j, "index_multiple", c->index_multiple);
    pl_out_bool(j, "contiguous", c->contiguous);
    pl_out_bool(j, "pages", c->pages);
    if (op != PL_PROVIDER_VARLEN) {
        print_words(j, "caches", caches, c->caches);
        pl_out_bool(j, "second_set", c->second_set);
    }
    pl_out_bool(j, "causal", c->causal);
    pl_out_bool(j, "window", c->window);
    pl_out_bool(j, "softcap", c->softcap);
    pl_out_float(j, "softcap_off", c->softcap_off);
    pl_out_string(j, "sink", c->sink_native ? "native" : "none");
    pl_out_bool(j, "sink_in_lse", c->sink_in_lse);
    pl_out_string(j, "lse_base", c->lse_base2 ? "2" : "e");
    pl_out_string(j, "lse_layout", layout_name(c->lse_layout));
    pl_out_string(j, "lse_empty", c->lse_empty_positive ? "+inf" : "-inf");
    pl_out_int(j, "min_query", c->min_query);
    pl_out_string(j, "probabilities", roundings[c->probabilities]);
    pl_out_int(j, "pad_heads", c->pad_heads);
    pl_out_bool(j, "copies", c->copies);
    pl_out_uint(j, "workspace_bytes", c->workspace_fixed);
    pl_out_uint(j, "workspace_bytes_per_worker", c->workspace_per_worker);
    pl_out_uint(j, "transient_bytes_per_token", c->transient_per_token);
    pl_out_close(j, '{');
}

static void print_json(const pl_providers *set)
{
    pl_out j;

    pl_out_begin(&j, stdout);
    pl_out_open(&j, NULL, '{');
    pl_out_open(&j, "providers", '[');
    for (int i = 0; i < pl_providers_count(set); i++) {
        const pl_provider_record *r = pl_providers_record(set, i);
        bool usable = r->reason == PL_PROVIDER_DIRECT;
        pl_out_open(&j, NULL, '{');
        pl_out_string(&j, "name", r->name);
        pl_out_string(&j, "version", r->version);
        pl_out_string(&j, "path", r->path);
        pl_out_string(&j, "fingerprint", r->fingerprint);
        pl_out_bool(&j, "usable", usable);
        pl_out_string(&j, "reason", pl_provider_reason_name(r->reason));
        pl_out_string(&j, "problem", r->problem);
        pl_out_open(&j, "operators", '[');
        for (int op = 0; usable && op < PL_PROVIDER_N_OPS; op++)
            if (r->op[op].present)
                print_claims(&j, op, &r->op[op]);
        pl_out_close(&j, '[');
        pl_out_close(&j, '{');
    }
    pl_out_close(&j, '[');
    pl_out_close(&j, '{');
    pl_out_end(&j);
}

static void print_text(const pl_providers *set)
{
    for (int i = 0; i < pl_providers_count(set); i++) {
        const pl_provider_record *r = pl_providers_record(set, i);
        printf("%s %s  %s\n", r->name, r->version[0] ? r->version : "-",
               r->reason == PL_PROVIDER_DIRECT ? r->fingerprint : "");
        if (r->reason != PL_PROVIDER_DIRECT) {
            printf("  not usable, %s: %s\n", pl_provider_reason_name(r->reason), r->problem);
            continue;
        }
        for (int op = 0; op < PL_PROVIDER_N_OPS; op++) {
            const pl_provider_claims *c = &r->op[op];
            if (c->present)
                printf("  %-23s %s, dims %d .. %d, sink %s, LSE base %s [%s], transient %llu bytes "
                       "a token\n",
                       pl_provider_op_name((pl_provider_op)op),
                       c->heads ? "fixed heads" : "any heads", c->dim_min, c->dim_max,
                       c->sink_native ? "native" : "corrected", c->lse_base2 ? "2" : "e",
                       layout_name(c->lse_layout), (unsigned long long)c->transient_per_token);
        }
    }
}

static int run_list(int argc, char **argv)
{
    const char *args[MAX_LIBRARIES] = {0};
    struct options o = {0};
    pl_provider_table t;
    pl_error err = {0};
    int status;

    if (!pl_options_parse(&pl_command_provider_list, argc, argv, &o, args, &status))
        return status;
    if (pl_provider_table_open(&t, args, MAX_LIBRARIES, NULL, &err) != PL_OK) {
        status = pl_report_error(&err);
    } else {
        if (o.json)
            print_json(t.set);
        else
            print_text(t.set);
        status = PL_EXIT_OK;
    }
    pl_provider_table_close(&t);
    return status;
}

const pl_command pl_command_provider_list = {
    .name = "provider list",
    .usage = "[LIB.so]... [options]",
    .summary = "the built-in provider and libraries, with what they claim",
    .details =
        "A library that cannot be used is listed with the reason. Loading a library runs its "
        "code.\n\ndocs/PROVIDERS.md says what the claims mean.",
    .options = table,
    .max_args = MAX_LIBRARIES,
    .run = run_list,
};

/* ---- the command */

static int run(int argc, char **argv)
{
    return pl_run_kind(&pl_command_provider, "do", kinds, sizeof kinds / sizeof kinds[0], argc,
                       argv);
}

const pl_command pl_command_provider = {
    .name = "provider",
    .usage = "KIND [options]",
    .summary = "providers of attention: list, check, counters, who takes a call",
    .run = run,
};
