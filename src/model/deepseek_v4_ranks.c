/* Where ranks meet: in each layer three sums of canonical shards (wo_b, the shared expert's w2, the routed experts),
 * and once the logits.
 *
 * A sum is formed by every rank alike, from the parts of all shards, in the order of docs/NUMERICS.md 5: what travels
 * are parts, never sums of some ranks. The sole rank does not take its sums apart: its operators add shards
 * in the same order themselves. */
#include "model/deepseek_v4.h"

#include "comm/comm.h"

static bool is_alone(const pl_forward *f)
{
    return f->share.n_ranks == 1;
}

static int64_t part_bytes(const pl_forward *f)
{
    return (int64_t)f->step->n_tokens * f->config->hidden_size * f->exec.ops->acc_bytes;
}

int32_t pl__linear_shards(const pl_forward *f, pl_linear_job whole, pl_linear_job *jobs)
{
    const pl_share *own = &f->share;

    whole.n_shards = f->config->o_groups;
    if (is_alone(f)) {
        jobs[0] = whole;
        return 1;
    }
    whole.out = PL_LINEAR_ACC;
    whole.y_stride = whole.n_rows * f->exec.ops->acc_bytes;
    for (int32_t s = own->shard; s < own->shard_end; s++) {
        whole.one_shard = s + 1;
        whole.y = (uint8_t *)f->ws.part + s * part_bytes(f);
        jobs[s - own->shard] = whole;
    }
    return own->shard_end - own->shard;
}

/* b without its bands, which are those of the shards, of shard_bytes columns each. */
static void gather_by_shard(pl_forward *f, pl_comm_bands b, int64_t shard_bytes)
{
    for (int r = 0; r <= f->share.n_ranks; r++)
        b.begin[r] = pl__share_of(f->config, r, f->share.n_ranks).shard * shard_bytes;
    pl_comm_all_gather(f->comm, &b);
}

void pl__add_shards(pl_forward *f, int64_t n_items, const void *shared, void *y)
{
    int32_t S = f->config->o_groups;

    if (is_alone(f))
        return;
    gather_by_shard(f, (pl_comm_bands){f->ws.part, 1, S * part_bytes(f), {0}}, part_bytes(f));
    pl_run_shard_sum(&f->exec,
                     &(pl_shard_sum_args){
                         .dim = f->config->hidden_size,
                         .n_shards = S,
                         .n_items = n_items,
                         .part = f->ws.part,
                         .part_bytes = part_bytes(f),
                         .shared = shared,
                         .y = y,
                     },
                     f->step->n_tokens);
}

void pl__gather_groups(pl_forward *f)
{
    int64_t bytes = (int64_t)f->config->o_lora_rank * f->exec.ops->act_bytes;

    /* Else a shard's blocks are just its own group's columns; the others' are quantised for nothing. */
    if (!is_alone(f) && f->config->o_lora_rank % PL_QUANT_BLOCK != 0)
        gather_by_shard(
            f, (pl_comm_bands){f->ws.z, f->step->n_tokens, f->config->o_groups * bytes, {0}},
            bytes);
}

void pl__gather_logits(pl_forward *f)
{
    int64_t acc = f->exec.ops->acc_bytes;
    pl_comm_bands b = {f->ws.logits, f->step->n_logits, f->config->vocab_size * acc, {0}};

    if (is_alone(f))
        return;
    for (int r = 0; r < f->share.n_ranks; r++)
        b.begin[r] = pl__share_of(f->config, r, f->share.n_ranks).vocab * acc;
    b.begin[f->share.n_ranks] = b.row_bytes;
    pl_comm_all_gather(f->comm, &b);
}

static void add_own_experts(pl_forward *f)
{
    const pl_config *c = f->config;
    pl_workspace *ws = &f->ws;

    pl_run_moe_parts(&f->exec,
                     &(pl_moe_parts_args){
                         .dim = c->hidden_size,
                         .top_k = c->n_experts_per_tok,
                         .n_experts = c->n_experts,
                         .n_shards = c->o_groups,
                         .shard = f->share.shard,
                         .shard_end = f->share.shard_end,
                         .y = ws->y,
                         .rows = ws->token_rows,
                         .ids = ws->token_ids,
                         .part = ws->part,
                         .part_bytes = part_bytes(f),
                     },
                     f->step->n_tokens);
}

void pl__add_experts(pl_forward *f)
{
    const pl_config *c = f->config;
    pl_workspace *ws = &f->ws;
    int64_t pairs = ws->expert_begin[c->n_experts];
    uint8_t *shared = (uint8_t *)ws->y + pairs * c->hidden_size * f->exec.ops->act_bytes;

    if (!is_alone(f)) {
        pl__add_shards(f, c->moe_intermediate_size / PL_QUANT_BLOCK, NULL, shared);
        add_own_experts(f);
        pl__add_shards(f, c->n_experts, shared, ws->out);
        return;
    }
    pl_chain_moe_sum(&ws->rows, &(pl_moe_sum_args){
                                    .dim = c->hidden_size,
                                    .top_k = c->n_experts_per_tok,
                                    .n_experts = c->n_experts,
                                    .n_shards = c->o_groups,
                                    .y = ws->y,
                                    .rows = ws->token_rows,
                                    .ids = ws->token_ids,
                                    .shared = shared,
                                    .f = ws->out,
                                });
}
