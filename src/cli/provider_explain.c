/* plimsoll provider explain: who takes a call, and why the others do not. Nothing is computed. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/json_out.h"
#include "cli/provider.h"
#include "cli/provider_call.h"
#include "plimsoll/ops.h"

struct options {
    bool json, sink, native, causal, capture, second_set;
    const char *op, *type, *backend, *cache;
    int64_t page_size, seq_tokens, tokens, keys, heads, kv_heads, dim, value_dim, indices;
    double softcap;
};

static const char *const ops[] = {"attention_varlen", "attention_sparse", "attention_sparse_decode",
                                  NULL};
static const char *const caches[] = {"bf16", "v4", "v32", NULL};
static const char *const types[] = {"bf16", "fp16", "fp32", NULL};

#define COUNT(name_, field, help_)                                             \
    {                                                                          \
        .name = (name_), .kind = PL_OPTION_INT, .value = "N", .help = (help_), \
        .offset = offsetof(struct options, field), .min = 0, .max = INT32_MAX  \
    }
#define FLAG(name_, field, help_)                                 \
    {                                                             \
        .name = (name_), .kind = PL_OPTION_FLAG, .help = (help_), \
        .offset = offsetof(struct options, field)                 \
    }

static const pl_option table[] = {
    FLAG("--json", json, "print one JSON document"),
    {.name = "--backend",
     .kind = PL_OPTION_STRING,
     .value = "NAME",
     .help = "a provider by name, never overridden; default auto: the first whose contract holds",
     .offset = offsetof(struct options, backend)},
    {.name = "--op",
     .kind = PL_OPTION_CHOICE,
     .value = "attention_varlen|attention_sparse|attention_sparse_decode",
     .help = "the operator; default attention_varlen",
     .offset = offsetof(struct options, op),
     .choices = ops},
    {.name = "--dtype",
     .kind = PL_OPTION_CHOICE,
     .value = "bf16|fp16|fp32",
     .help = "of q, k, v and out; default bf16",
     .offset = offsetof(struct options, type),
     .choices = types},
    COUNT("--tokens", tokens, "queries, one sequence; default 512"),
    COUNT("--keys", keys, "keys, or rows of the cache; default 512"),
    COUNT("--heads", heads, "query heads; default 64"),
    COUNT("--kv-heads", kv_heads, "key heads; default those of q"),
    COUNT("--head-dim", dim, "width of keys; default 128, sparse 512"),
    COUNT("--value-dim", value_dim, "width of values; default 128, sparse 512"),
    COUNT("--indices", indices, "length of each list, sparse; default 512"),
    {.name = "--cache",
     .kind = PL_OPTION_CHOICE,
     .value = "bf16|v4|v32",
     .help = "rows of the cache, sparse; default bf16",
     .offset = offsetof(struct options, cache),
     .choices = caches},
    COUNT("--page-size", page_size, "keys in pages of so many; default 0: none, v4 and v32 64"),
    COUNT("--seq-tokens", seq_tokens, "queries of a sequence, decode; default 1"),
    FLAG("--second-set", second_set, "with a second cache and lists like the first, sparse"),
    FLAG("--sink", sink, "with a sink for each head"),
    FLAG("--native-sink", native, "the sink is to join inside of the kernel"),
    FLAG("--causal", causal, "with a causal mask"),
    FLAG("--capture-unknown", capture, "nobody says whether the call is recorded into a graph"),
    {.name = "--softcap",
     .kind = PL_OPTION_FLOAT,
     .value = "F",
     .help = "soft cap of scores; 0 and below, the default: none",
     .offset = offsetof(struct options, softcap),
     .min = -1000000,
     .max = 1000000},
    {0},
};

/* Place of a word; the first where there is none. */
static int place_of(const char *word, const char *const *list)
{
    for (int i = 0; word && list[i]; i++)
        if (strcmp(word, list[i]) == 0)
            return i;
    return 0;
}

static pl_provider_ask ask_of(const struct options *o)
{
    int op = place_of(o->op, ops), format = place_of(o->cache, caches);
    bool sparse = op != PL_PROVIDER_VARLEN;
    pl_provider_ask a = {.op = (pl_provider_op)op,
                         .format = sparse ? format : 0,
                         .page_size = o->page_size || !sparse || !format ? o->page_size : 64,
                         .seq_tokens = o->seq_tokens,
                         .second_set = o->second_set,
                         .type = PL_TENSOR_BF16,
                         .tokens = o->tokens,
                         .keys = o->keys,
                         .heads = o->heads,
                         .kv_heads = o->kv_heads >= 0 ? o->kv_heads : o->heads,
                         .dim = o->dim >= 0 ? o->dim
                                : sparse    ? (format == PL_KV_V32 ? 576 : 512)
                                            : 128,
                         .value_dim = o->value_dim >= 0 ? o->value_dim
                                      : sparse          ? 512
                                                        : 128,
                         .n_indices = o->indices,
                         .sink = o->sink || o->native,
                         .native_sink = o->native,
                         .causal = o->causal,
                         .capture_unknown = o->capture,
                         .softcap = o->softcap};

    a.type = (pl_tensor_type)(PL_TENSOR_BF16 + place_of(o->type, types));
    return a;
}

void pl_provider_choice_json(pl_out *j, const pl_providers *set, const pl_provider_choice *c)
{
    pl_out_string(j, "provider", pl_providers_record(set, c->provider)->name);
    pl_out_open(j, "candidates", '[');
    for (int i = 0; i < c->n; i++) {
        pl_out_open(j, NULL, '{');
        pl_out_string(j, "name", pl_providers_record(set, c->candidate[i].provider)->name);
        pl_out_string(j, "reason", pl_provider_reason_name(c->candidate[i].reason));
        pl_out_string(j, "detail", c->candidate[i].detail);
        pl_out_close(j, '{');
    }
    pl_out_close(j, '[');
}

void pl_provider_choice_text(const pl_providers *set, const pl_provider_choice *c)
{
    printf("%s\n", pl_providers_record(set, c->provider)->name);
    for (int i = 0; i < c->n; i++)
        printf("  %-31s %-16s %s\n", pl_providers_record(set, c->candidate[i].provider)->name,
               pl_provider_reason_name(c->candidate[i].reason),
               c->candidate[i].detail[0] ? c->candidate[i].detail
                                         : pl_provider_reason_text(c->candidate[i].reason));
}

static void print_json(const pl_providers *set, const pl_provider_choice *c)
{
    pl_out j;

    pl_out_begin(&j, stdout);
    pl_out_open(&j, NULL, '{');
    pl_provider_choice_json(&j, set, c);
    pl_out_close(&j, '{');
    pl_out_end(&j);
}

/* Exit status 1 where the chosen provider's contract does not hold: the call would take the public path. */
static int explain(const struct options *o, const pl_provider_table *t)
{
    pl_provider_ask ask = ask_of(o);
    pl_provider_asked asked;
    pl_provider_choice choice;
    pl_error err = {0};
    int status = PL_EXIT_NO;

    if (pl_provider_ask_make(t->set, &ask, &asked, &err) != PL_OK)
        return pl_report_error(&err);
    pl_provider_choose(t->set, o->backend, &asked.call, &choice);
    pl_provider_ask_free(&asked);
    if (choice.provider < 0) {
        (void)pl_error_set(&err, PL_ERR_INVALID,
                           "--backend: no such provider (got '%s'); see 'plimsoll provider list'",
                           o->backend);
        return pl_report_error(&err);
    }
    for (int i = 0; i < choice.n; i++)
        if (choice.candidate[i].provider == choice.provider &&
            choice.candidate[i].reason == PL_PROVIDER_DIRECT)
            status = PL_EXIT_OK;
    if (o->json)
        print_json(t->set, &choice);
    else
        pl_provider_choice_text(t->set, &choice);
    return status;
}

static int run(int argc, char **argv)
{
    struct options o = {.tokens = 512,
                        .keys = 512,
                        .heads = 64,
                        .kv_heads = -1,
                        .dim = -1,
                        .value_dim = -1,
                        .indices = 512};
    const char *args[PL_PROVIDER_MAX - 1] = {0};
    pl_provider_table t;
    pl_error err = {0};
    int status;

    if (!pl_options_parse(&pl_command_provider_explain, argc, argv, &o, args, &status))
        return status;
    status = pl_provider_table_open(&t, args, PL_PROVIDER_MAX - 1, NULL, &err) == PL_OK
                 ? explain(&o, &t)
                 : pl_report_error(&err);
    pl_provider_table_close(&t);
    return status;
}

const pl_command pl_command_provider_explain = {
    .name = "provider explain",
    .usage = "[LIB.so]... [options]",
    .summary = "who takes a call, and why the others do not",
    .details =
        "Makes every check of a call of these shapes, without memory behind it, for each library "
        "and the\nbuilt-in provider. Exit status 1 where the chosen provider's contract does not "
        "hold.\n\nexamples:\n"
        "  plimsoll provider explain libother.so --heads 24 --sink\n"
        "  plimsoll provider explain libother.so --op attention_sparse --backend other\n\n"
        "docs/PROVIDERS.md lists the reasons.",
    .options = table,
    .max_args = PL_PROVIDER_MAX - 1,
    .run = run,
};
