/* Digests of taps. */
#include "support/record.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static recorded *find(recorder *r, const pl_state *state)
{
    for (int i = 0; i < r->n_seqs; i++)
        if (r->seqs[i].state == state)
            return &r->seqs[i];
    fail_msg("a step holds a sequence that is not recorded");
    return NULL;
}

/* Row `row` of the view into the digest of token t of the step. */
static void add(recorder *r, const pl_tap_view *view, int64_t row, int32_t t)
{
    bool mtp = view->layer == PL_TAP_LAYER_MTP;
    const pl_step *step = view->step;
    int32_t s = 0, position;
    uint64_t *digest;
    recorded *seq;

    while (t >= step->seqs[s].first + step->seqs[s].n)
        s++;
    seq = find(r, step->seqs[s].state);
    position = (mtp ? seq->state->n_mtp : seq->state->n) + t - step->seqs[s].first;
    digest = (mtp ? seq->mtp_digest : seq->digest) + position;
    if (view->tap == PL_TAP_ATTN_Q && view->layer <= 0)
        *digest = 0; /* the token's first tap */
    pl_tap_get(view, row, 1, r->row);
    *digest = XXH3_64bits_withSeed(r->row, (size_t)view->cols * sizeof *r->row, *digest);
}

static void visit(void *user, const pl_tap_view *view)
{
    bool logits = view->tap == PL_TAP_LOGITS;

    for (int64_t i = 0; i < view->rows; i++)
        add(user, view, i, logits ? view->step->logit_rows[i] : (int32_t)i);
}

recorder *recorder_open(test_model *m, pl_state *const *states, int n_states)
{
    size_t longest = (size_t)m->config->n_heads * PL_HEAD_DIM;
    recorder *r = calloc(1, sizeof *r);

    if ((size_t)m->config->vocab_size > longest)
        longest = (size_t)m->config->vocab_size;
    if (PL_HC_MULT * (size_t)m->config->hidden_size > longest)
        longest = PL_HC_MULT * (size_t)m->config->hidden_size;
    r->row = malloc(longest * sizeof *r->row);
    r->n_seqs = n_states;
    r->seqs = calloc((size_t)n_states, sizeof *r->seqs);
    for (int i = 0; i < n_states; i++)
        r->seqs[i] = (recorded){
            .state = states[i],
            .digest = calloc((size_t)m->limits.max_len, sizeof(uint64_t)),
            .mtp_digest = calloc((size_t)m->limits.max_len, sizeof(uint64_t)),
        };
    r->hooks = (pl_hooks){r, visit, false};
    pl_forward_set_hooks(m->forward, &r->hooks);
    return r;
}

void recorder_close(test_model *m, recorder *r)
{
    pl_forward_set_hooks(m->forward, NULL);
    for (int i = 0; i < r->n_seqs; i++) {
        free(r->seqs[i].digest);
        free(r->seqs[i].mtp_digest);
    }
    free(r->seqs);
    free(r->row);
    free(r);
}

void recorder_check_same(const char *what, const uint64_t *got, const uint64_t *want, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("%s: other bits at position %d", what, i);
}
