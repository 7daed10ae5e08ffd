/* `plimsoll inspect` for people. */
#include <inttypes.h>

#include "base/utf8.h"
#include "cli/inspect_report.h"

static void print_bytes(FILE *to, uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes / 1024;
    int u = 0;

    for (; v >= 1024 && u < 3; u++)
        v /= 1024;
    fprintf(to, "%" PRIu64 " bytes", bytes);
    if (bytes >= 1024)
        fprintf(to, " (%.2f %s)", v, units[u]);
}

/* "SWA  2: 0 1", one line per type of layer that occurs. */
static void print_layers(FILE *to, const pl_config *c)
{
    static const struct {
        int32_t ratio;
        const char *name;
    } types[] = {{0, "SWA"}, {4, "CSA"}, {128, "HCA"}};

    fprintf(to, "layers         %" PRId32 ", of which %" PRId32 " routed by token id\n",
            c->n_layers, c->n_hash_layers);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        int n = 0;
        for (int32_t l = 0; l < c->n_layers; l++)
            n += c->compress_ratio[l] == types[i].ratio;
        if (n == 0)
            continue;
        fprintf(to, "  %-12s %d:", types[i].name, n);
        for (int32_t l = 0; l < c->n_layers; l++)
            if (c->compress_ratio[l] == types[i].ratio)
                fprintf(to, " %" PRId32, l);
        fprintf(to, "\n");
    }
}

static void print_architecture(FILE *to, const pl_inspect_report *r)
{
    const pl_config *c = pl_checkpoint_config(r->checkpoint);
    const pl_storage *s = pl_checkpoint_storage(r->checkpoint);

    fprintf(to,
            "architecture   deepseek_v4, hidden %" PRId32 ", %" PRId32 " heads, %" PRId32
            " experts, %" PRId32 " a token, vocabulary %" PRId32 ", %" PRId32 " positions\n",
            c->hidden_size, c->n_heads, c->n_experts, c->n_experts_per_tok, c->vocab_size,
            c->max_position_embeddings);
    fprintf(to,
            "variant        %s%s: experts %s with %s scales, other linears FP8 with %s scales\n",
            r->variant, c->has_dspark_keys ? ", refresh of 0731 or 0813" : "", r->experts,
            pl_dtype_name(s->expert_scale), pl_dtype_name(s->scale));
    print_layers(to, c);
    fprintf(to, "parameters     %" PRIu64 " in the main stack\n", r->census.parameters);
}

static void print_part(FILE *to, const char *name, const pl_census_part *part)
{
    if (part->n == 0)
        return;
    fprintf(to, "  %-12s %" PRId64 ", ", name, part->n);
    print_bytes(to, part->bytes);
    fprintf(to, "\n");
}

static void print_tensors(FILE *to, const pl_inspect_report *r)
{
    const pl_census *c = &r->census;
    const int32_t n_files = pl_checkpoint_n_shards(r->checkpoint);
    pl_census_part all = {0};

    for (int i = 0; i < PL_DTYPE_COUNT; i++) {
        all.n += c->by_dtype[i].n;
        all.bytes += c->by_dtype[i].bytes;
    }
    fprintf(to, "tensors        %" PRId64 " in %" PRId32 " file%s, ", all.n, n_files,
            n_files == 1 ? "" : "s");
    print_bytes(to, all.bytes);
    fprintf(to, "\n");
    print_part(to, "main", &c->main);
    print_part(to, "mtp", &c->mtp);
    print_part(to, "copies", &c->copies);
    print_part(to, "drafter", &c->drafter);
    for (int i = 0; i < PL_DTYPE_COUNT; i++)
        print_part(to, pl_dtype_name((pl_dtype)i), &c->by_dtype[i]);
    fprintf(to, "per token      %.4g GB read: dense part %.4g GB, routed experts %.4g GB\n",
            (double)(c->token_dense_bytes + c->token_expert_bytes) / 1e9,
            (double)c->token_dense_bytes / 1e9, (double)c->token_expert_bytes / 1e9);
}

static void print_drafter(FILE *to, const pl_inspect_report *r)
{
    const char *reason;
    pl_drafter d = pl_checkpoint_drafter(r->checkpoint, &reason);

    fprintf(to, "drafter        %s: %s\n", pl_inspect_drafter_name(d),
            reason ? reason : "can draft");
}

static void print_problems(FILE *to, const pl_checkpoint *c)
{
    const int32_t n = pl_checkpoint_n_notes(c);

    fprintf(to, "problems       %s\n", n == 0 ? "none" : pl_checkpoint_note(c, 0));
    for (int32_t i = 1; i < n; i++)
        fprintf(to, "               %s\n", pl_checkpoint_note(c, i));
}

static void print_tensor_list(FILE *to, const pl_checkpoint *c)
{
    fprintf(to, "\n");
    for (int64_t i = 0; i < pl_checkpoint_n_tensors(c); i++) {
        pl_checkpoint_tensor t = pl_checkpoint_tensor_at(c, i);
        pl_utf8_print(to, t.name);
        fprintf(to, " %s [", pl_dtype_name(t.dtype));
        for (int32_t d = 0; d < t.rank; d++)
            fprintf(to, "%s%" PRId64, d ? ", " : "", t.shape[d]);
        fprintf(to, "] %" PRIu64 " ", t.bytes);
        pl_utf8_print(to, pl_checkpoint_shard_name(c, t.shard));
        fprintf(to, " %s\n", pl_inspect_role_name(t.role));
    }
}

void pl_inspect_report_print(const pl_inspect_report *r, FILE *to)
{
    fprintf(to, "checkpoint     ");
    pl_utf8_print(to, pl_checkpoint_path(r->checkpoint));
    fprintf(to, "\n");
    print_architecture(to, r);
    print_tensors(to, r);
    print_drafter(to, r);
    fprintf(to, "header digest  %s\n", r->header_digest.text);
    if (r->has_digest)
        fprintf(to, "digest         %s\n", r->digest.text);
    else
        fprintf(to, "digest         not made: %s\n", r->no_digest);
    print_problems(to, r->checkpoint);
    if (r->list_tensors)
        print_tensor_list(to, r->checkpoint);
}
