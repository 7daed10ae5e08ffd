/* Tokens are tried in the order of their bytes: where one fails, all that begin alike fail with it. Inside strings and
 * texts most tokens change nothing; which, is known beforehand. */
#include "serve/mask.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES_PER_ID = 8 };

/* ---- the vocabulary */

uint64_t pl_vocabulary_bytes(int32_t vocab_size)
{
    return (uint64_t)vocab_size * BYTES_PER_ID + 4096;
}

static const char *bytes_of(const pl_vocabulary *v, int32_t id, size_t *n)
{
    const char *text = pl_tokenizer_token(v->tokenizer, id, n);

    if (!text)
        *n = 0;
    return text;
}

static bool has_bit(const uint32_t *mask, int32_t id)
{
    return mask[id / 32] >> (id & 31) & 1;
}

static void set_bit(uint32_t *mask, int32_t id)
{
    mask[id / 32] |= 1u << (id & 31);
}

static void clear_bit(uint32_t *mask, int32_t id)
{
    mask[id / 32] &= ~(1u << (id & 31));
}

static int compare(const void *a, const void *b, void *user)
{
    const pl_vocabulary *v = user;
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    size_t n_x, n_y;
    const char *t_x = bytes_of(v, x, &n_x), *t_y = bytes_of(v, y, &n_y);
    const size_t n = n_x < n_y ? n_x : n_y;
    const int order = n ? memcmp(t_x, t_y, n) : 0;

    if (order)
        return order;
    return n_x != n_y ? (n_x > n_y) - (n_x < n_y) : (x > y) - (x < y);
}

static void classify(pl_vocabulary *v, int32_t id)
{
    bool string = true, text = true;
    size_t n;
    const char *bytes = bytes_of(v, id, &n);

    for (size_t i = 0; i < n; i++) {
        const unsigned char b = (unsigned char)bytes[i];

        string = string && b >= 0x20 && b != '"' && b != '\\' && b != 0xEF;
        text = text && b != '<' && b != 0xEF;
    }
    if (n > 0 && !pl_tokenizer_is_special(v->tokenizer, id)) {
        if (string)
            set_bit(v->string, id);
        if (text)
            set_bit(v->text, id);
    }
    v->longest = (int32_t)n > v->longest ? (int32_t)n : v->longest;
}

static void share(pl_vocabulary *v)
{
    for (int32_t i = 1; i < v->n; i++) {
        size_t n_a, n_b, n = 0;
        const char *a = bytes_of(v, v->sorted[i - 1], &n_a), *b = bytes_of(v, v->sorted[i], &n_b);

        while (n < n_a && n < n_b && n < UINT8_MAX && a[n] == b[n])
            n++;
        v->shared[i] = (uint8_t)n;
    }
}

/* Without single bytes an end could not always be reached. */
static bool has_bytes(const pl_vocabulary *v)
{
    bool found[256] = {false};

    for (int32_t id = 0; id < v->n; id++) {
        size_t n;
        const char *bytes = bytes_of(v, id, &n);
        if (n == 1 && !pl_tokenizer_is_special(v->tokenizer, id))
            found[(unsigned char)bytes[0]] = true;
    }
    for (int b = 0x20; b < 0x7F; b++)
        if (!found[b])
            return false;
    return found['\n'] && found[0xEF] && found[0xBD] && found[0x9C];
}

bool pl_vocabulary_init(pl_vocabulary *v, const pl_tokenizer *tokenizer, int32_t vocab_size)
{
    const int32_t n = pl_tokenizer_vocab_size(tokenizer);

    *v = (pl_vocabulary){.tokenizer = tokenizer, .n = n < vocab_size ? n : vocab_size};
    v->n_words = (vocab_size + 31) / 32;
    v->sorted = malloc((size_t)v->n * sizeof *v->sorted);
    v->shared = calloc((size_t)v->n, 1);
    v->string = calloc((size_t)v->n_words, sizeof *v->string);
    v->text = calloc((size_t)v->n_words, sizeof *v->text);
    if (!v->sorted || !v->shared || !v->string || !v->text)
        return false;
    for (int32_t i = 0; i < v->n; i++) {
        v->sorted[i] = i;
        classify(v, i);
    }
    qsort_r(v->sorted, (size_t)v->n, sizeof *v->sorted, compare, v);
    share(v);
    v->whole = has_bytes(v);
    return true;
}

void pl_vocabulary_fini(pl_vocabulary *v)
{
    free(v->sorted);
    free(v->shared);
    free(v->string);
    free(v->text);
    *v = (pl_vocabulary){0};
}

/* ---- masks */

/* Bytes of the token that fit; all of them: *s is the state behind it. */
static size_t fit(const pl_mask_run *r, int32_t id, pl_form_state *s)
{
    size_t n, i = 0;
    const char *bytes = bytes_of(r->vocabulary, id, &n);

    while (i < n && pl_form_push(&r->form, s, (unsigned char)bytes[i]))
        i++;
    return i;
}

typedef struct trial {
    const pl_form_state *from;
    const uint32_t *same; /* tokens that change nothing; NULL: none are known */
    int32_t most;         /* the distance that may be left; -1: any */
    bool may_stay;        /* the distance may be what it is */
} trial;

/* Clears the token unless it fits. Returns how many of its bytes are enough to fail; 0: it does not. */
static size_t try_token(const pl_mask_run *r, const trial *t, int32_t id, uint32_t *mask)
{
    pl_form_state s = *t->from;
    size_t n, n_fit;

    if (t->same && has_bit(t->same, id)) {
        if (!t->may_stay)
            clear_bit(mask, id);
        return 0;
    }
    (void)bytes_of(r->vocabulary, id, &n);
    n_fit = n && !pl_tokenizer_is_special(r->vocabulary->tokenizer, id) ? fit(r, id, &s) : 0;
    if (n_fit == n && n > 0 && (t->most < 0 || pl_form_distance(&r->form, &s) <= t->most))
        return 0;
    clear_bit(mask, id);
    return n_fit < n && !pl_tokenizer_is_special(r->vocabulary->tokenizer, id) ? n_fit + 1 : 0;
}

static void try_all(const pl_mask_run *r, const trial *t, uint32_t *mask)
{
    const pl_vocabulary *v = r->vocabulary;
    size_t failed = 0;

    for (int32_t i = 0; i < v->n; i++) {
        if (failed && v->shared[i] >= failed)
            clear_bit(mask, v->sorted[i]);
        else
            failed = try_token(r, t, v->sorted[i], mask);
    }
    for (int32_t id = v->n; id < 32 * v->n_words; id++)
        clear_bit(mask, id);
}

static void keep_only(const pl_vocabulary *v, int32_t id, uint32_t *mask)
{
    const bool kept = id >= 0 && has_bit(mask, id);

    memset(mask, 0, (size_t)v->n_words * sizeof *mask);
    if (kept)
        set_bit(mask, id);
}

static void mask_from(const pl_mask_run *r, const pl_form_state *s, int32_t n_left, uint32_t *mask)
{
    const pl_vocabulary *v = r->vocabulary;
    const int32_t distance = pl_form_distance(&r->form, s);
    const pl_form_place place = pl_form_place_of(s);
    const int64_t growth = (int64_t)pl_form_max_growth(&r->form) * v->longest;
    const bool enough = n_left < distance || n_left > distance + growth;
    const trial t = {.from = s,
                     .same = place == PL_FORM_IN_STRING ? v->string
                             : place == PL_FORM_IN_TEXT ? v->text
                                                        : NULL,
                     .most = enough ? -1 : n_left - 1,
                     .may_stay = enough || distance < n_left};

    if (distance == 0)
        keep_only(v, r->eos, mask);
    else
        try_all(r, &t, mask);
}

/* ---- runs */

void pl_mask_run_init(pl_mask_run *r, const pl_vocabulary *v, const pl_form *form,
                      int32_t max_tokens, int32_t eos)
{
    *r = (pl_mask_run){.vocabulary = v, .form = *form, .max_tokens = max_tokens, .eos = eos};
    r->state[0] = pl_form_begin(form);
}

static pl_form_state *state_at(pl_mask_run *r, int32_t n)
{
    return &r->state[n % PL_MASK_RING];
}

/* Drafts that were taken back differ from what came instead. */
static void go_back(pl_mask_run *r, const int32_t *output, int32_t n)
{
    if (n < r->oldest) {
        r->n = r->oldest = 0;
        r->state[0] = pl_form_begin(&r->form);
        return;
    }
    if (n < r->n)
        r->n = n;
    for (int32_t i = r->oldest; i < r->n; i++)
        if (r->token[i % PL_MASK_RING] != output[i])
            r->n = i;
}

/* False where the tokens leave the form, as drafts behind an end do. */
static bool seek(pl_mask_run *r, const int32_t *output, int32_t n)
{
    go_back(r, output, n);
    while (r->n < n) {
        pl_form_state s = *state_at(r, r->n);
        const int32_t distance = pl_form_distance(&r->form, &s), token = output[r->n];
        size_t n_bytes;

        s.forced |= distance > 0 && distance == r->max_tokens - r->n;
        (void)bytes_of(r->vocabulary, token, &n_bytes);
        if (!n_bytes || pl_tokenizer_is_special(r->vocabulary->tokenizer, token) ||
            fit(r, token, &s) < n_bytes)
            return false;
        r->token[r->n++ % PL_MASK_RING] = token;
        *state_at(r, r->n) = s;
        if (r->n - r->oldest == PL_MASK_RING)
            r->oldest++;
    }
    return true;
}

void pl_mask_run_mask(void *run, const int32_t *output, int32_t n_output, uint32_t *mask)
{
    pl_mask_run *r = run;

    if (seek(r, output, n_output))
        mask_from(r, state_at(r, n_output), r->max_tokens - n_output, mask);
    else
        memset(mask, 0, (size_t)r->vocabulary->n_words * sizeof *mask);
}

/* The end token is in no form. */
bool pl_mask_run_forced(pl_mask_run *r, const int32_t *output, int32_t n_output)
{
    const bool in_form = seek(r, output, n_output);

    return state_at(r, r->n)->forced && (in_form || r->n > 0);
}
