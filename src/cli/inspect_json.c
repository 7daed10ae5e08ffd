/* `plimsoll inspect --json`. What is unknown or absent is null. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/error.h"
#include "cli/inspect_report.h"

static json_t *whole(uint64_t v)
{
    return json_integer((json_int_t)v);
}

/* Names from files are UTF-8, a path need not be. */
static json_t *text_or_null(const char *text)
{
    json_t *value = text ? json_string(text) : NULL;

    return value ? value : json_null();
}

static json_t *architecture_json(const pl_config *c)
{
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}",
        "model_type", "deepseek_v4", "vocab_size", c->vocab_size, "hidden_size", c->hidden_size,
        "num_hidden_layers", c->n_layers, "num_attention_heads", c->n_heads, "head_dim",
        PL_HEAD_DIM, "q_lora_rank", c->q_lora_rank, "o_groups", c->o_groups, "o_lora_rank",
        c->o_lora_rank, "n_routed_experts", c->n_experts, "num_experts_per_tok",
        c->n_experts_per_tok, "moe_intermediate_size", c->moe_intermediate_size, "index_n_heads",
        c->index_n_heads, "index_topk", c->index_topk, "sliding_window", PL_WINDOW,
        "max_position_embeddings", c->max_position_embeddings);
}

static json_t *layers_with(const pl_config *c, int32_t ratio)
{
    json_t *list = json_array();

    for (int32_t l = 0; l < c->n_layers; l++)
        if (c->compress_ratio[l] == ratio)
            json_array_append_new(list, json_integer(l));
    return list;
}

static json_t *layers_json(const pl_config *c)
{
    return json_pack("{s:i, s:o, s:o, s:o, s:i}", "count", c->n_layers, "swa", layers_with(c, 0),
                     "csa", layers_with(c, 4), "hca", layers_with(c, 128), "hash_routed",
                     c->n_hash_layers);
}

static json_t *tensors_json(const pl_inspect_report *r)
{
    const pl_census *c = &r->census;

    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "total",
                     json_integer(pl_checkpoint_n_tensors(r->checkpoint)), "main",
                     json_integer(c->main.n), "mtp", json_integer(c->mtp.n), "copies",
                     json_integer(c->copies.n), "drafter", json_integer(c->drafter.n));
}

static json_t *bytes_json(const pl_census *c)
{
    json_t *by_dtype = json_object();
    uint64_t total = 0;

    for (int i = 0; i < PL_DTYPE_COUNT; i++) {
        json_object_set_new(by_dtype, pl_dtype_name((pl_dtype)i), whole(c->by_dtype[i].bytes));
        total += c->by_dtype[i].bytes;
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "total", whole(total), "main",
                     whole(c->main.bytes), "mtp", whole(c->mtp.bytes), "copies",
                     whole(c->copies.bytes), "drafter", whole(c->drafter.bytes), "by_dtype",
                     by_dtype);
}

static json_t *drafter_json(const pl_inspect_report *r)
{
    const char *reason;
    pl_drafter d = pl_checkpoint_drafter(r->checkpoint, &reason);
    const pl_storage *s = pl_checkpoint_storage(r->checkpoint);
    const pl_census_part *part = d == PL_DRAFTER_MTP ? &r->census.mtp : &r->census.drafter;
    int blocks = s->has_mtp ? 1 : (int)s->n_dspark_stages;

    return json_pack("{s:s, s:b, s:o, s:i, s:o, s:o}", "kind", pl_inspect_drafter_name(d),
                     "can_draft", d == PL_DRAFTER_MTP, "reason", text_or_null(reason), "blocks",
                     blocks, "tensors", json_integer(part->n), "bytes", whole(part->bytes));
}

static json_t *problems_json(const pl_checkpoint *c)
{
    json_t *list = json_array();

    for (int32_t i = 0; i < pl_checkpoint_n_notes(c); i++)
        json_array_append_new(list, json_string(pl_checkpoint_note(c, i)));
    return list;
}

static json_t *tensor_list_json(const pl_checkpoint *c)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < pl_checkpoint_n_tensors(c); i++) {
        pl_checkpoint_tensor t = pl_checkpoint_tensor_at(c, i);
        json_t *shape = json_array();
        for (int32_t d = 0; d < t.rank; d++)
            json_array_append_new(shape, json_integer(t.shape[d]));
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:o, s:o, s:s}", "name", t.name,
                                              "dtype", pl_dtype_name(t.dtype), "shape", shape,
                                              "bytes", whole(t.bytes), "file",
                                              text_or_null(pl_checkpoint_shard_name(c, t.shard)),
                                              "role", pl_inspect_role_name(t.role)));
    }
    return list;
}

static json_t *report_json(const pl_inspect_report *r)
{
    const pl_checkpoint *c = r->checkpoint;
    const pl_storage *s = pl_checkpoint_storage(c);
    const pl_census *n = &r->census;
    json_t *root = json_pack(
        "{s:o, s:o, s:s, s:b, s:{s:s, s:s, s:s}, s:o, s:o, s:i, s:o, s:o, s:{s:o, s:o, s:o}, s:o,"
        "s:s, s:o, s:o, s:o}",
        "path", text_or_null(pl_checkpoint_path(c)), "architecture",
        architecture_json(pl_checkpoint_config(c)), "variant", r->variant, "refresh",
        pl_checkpoint_config(c)->has_dspark_keys, "storage", "experts", r->experts, "expert_scale",
        pl_dtype_name(s->expert_scale), "scale", pl_dtype_name(s->scale), "layers",
        layers_json(pl_checkpoint_config(c)), "parameters", whole(n->parameters), "files",
        (int)pl_checkpoint_n_shards(c), "tensors", tensors_json(r), "bytes", bytes_json(n),
        "bytes_per_token", "dense", whole(n->token_dense_bytes), "experts",
        whole(n->token_expert_bytes), "total", whole(n->token_dense_bytes + n->token_expert_bytes),
        "drafter", drafter_json(r), "header_digest", r->header_digest.text, "digest",
        text_or_null(r->has_digest ? r->digest.text : NULL), "digest_reason",
        text_or_null(r->has_digest ? NULL : r->no_digest), "problems", problems_json(c));

    if (root && r->list_tensors)
        json_object_set_new(root, "tensor_list", tensor_list_json(c));
    return root;
}

pl_status pl_inspect_report_write_json(const pl_inspect_report *r, FILE *to, pl_error *err)
{
    json_t *root = report_json(r);
    pl_status s = PL_OK;

    if (!root)
        return pl_error_set(err, PL_ERR_NOMEM, "inspect: no memory for the report");
    if (json_dumpf(root, to, JSON_INDENT(2)) != 0 || fputc('\n', to) == EOF)
        s = pl_error_set(err, PL_ERR_IO, "standard output: write failed (got %s)", strerror(errno));
    json_decref(root);
    return s;
}
