/* From rows of logits to tokens: summaries on all workers, sampling one row after another, then bookkeeping and
 * callbacks on the calling thread. */
#include "engine/internal.h"

static const void *row_of(const pl_engine *e, int64_t i)
{
    return (const uint8_t *)pl_forward_logits(e->forward) +
           i * pl__engine_config(e)->vocab_size * e->plan->shape.ops->acc_bytes;
}

static pl_choice choice_of(const pl_request *r)
{
    return (pl_choice){
        .params = &r->params,
        .eos = pl__request_eos(r),
        .output = pl__request_outputs(r),
        .n_output = r->n_output,
        .noise = {.seed = r->params.seed,
                  .position = (uint32_t)(r->params.n_tokens + r->n_output),
                  .choice = r->params.choice,
                  .purpose = PL_PURPOSE_TOKEN},
    };
}

/* Each row belongs to a request of its own, so their digests are fed side by side. */
static void summarise_row(void *user, int64_t i, int worker)
{
    pl_engine *e = user;
    pl__row *row = &e->parts.rows[i];

    row->summary =
        pl_logits_summarise(e->plan->shape.ops, row_of(e, i), pl__engine_config(e)->vocab_size,
                            &e->parts.row_requests[i]->digest);
    row->token = row->summary.best;
}

static void sample_rows(void *user, int64_t tile, int worker)
{
    pl_engine *e = user;
    pl_sampler *s = &e->parts.sampler;
    const pl_ops *ops = e->plan->shape.ops;

    for (int32_t i = 0; i < e->n_rows; i++) {
        pl_choice c = choice_of(e->parts.row_requests[i]);
        pl__row *row = &e->parts.rows[i];

        if (!pl_choice_is_plain(&c)) {
            ops->acc_get(row_of(e, i), s->vocab, s->l);
            row->token = pl_sample(s, &c);
        }
        row->logprob = pl_logits_logprob(ops, row_of(e, i), &row->summary, row->token);
    }
}

static bool ends_request(const pl_request *r, int32_t token)
{
    if (token == pl__request_eos(r))
        return true;
    for (int32_t i = 0; i < r->params.n_stop_ids; i++)
        if (token == r->params.stop_ids[i])
            return true;
    return false;
}

static void append(pl_engine *e, pl_request *r, const pl__row *row)
{
    pl__request_outputs(r)[r->n_output] = row->token;
    pl__request_logprobs(r)[r->n_output] = row->logprob;
    r->n_output++;
    if (ends_request(r, row->token))
        r->state = PL_REQUEST_STOPPED;
    else if (r->n_output == r->max_output)
        r->state = PL_REQUEST_LENGTH;
    if (r->state != PL_REQUEST_RUNNING) {
        pl__list_remove(r);
        pl__list_append(&e->ended, r);
    }
}

static void tell(const pl_engine *e, pl_request *r, const pl__row *row)
{
    const pl_token_event event = {row->token, row->logprob, r->n_output - 1};

    if (r->params.on_token && !r->cancelled)
        r->params.on_token(r->params.user, r, &event);
}

void pl__choose(pl_engine *e)
{
    if (!e->n_rows)
        return;
    pl_pool_run(e->pool, e->n_rows, summarise_row, e);
    pl_pool_run(e->pool, 1, sample_rows, e);
    for (int32_t i = 0; i < e->n_rows; i++)
        append(e, e->parts.row_requests[i], &e->parts.rows[i]);
    for (int32_t i = 0; i < e->n_rows; i++)
        tell(e, e->parts.row_requests[i], &e->parts.rows[i]);
}
