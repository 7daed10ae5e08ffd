/* From forms to masks of tokens: which tokens of a vocabulary keep an answer in its form.
 *
 * An answer that has begun with enough tokens left to end it does end in its form: where the rest of max_tokens is only
 * just enough, what does not lead to the end is masked too. */
#ifndef PL_SERVE_MASK_H
#define PL_SERVE_MASK_H

#include "serve/form.h"

/* The tokens in the order of their bytes. Immutable; for any number of threads. */
typedef struct pl_vocabulary {
    const pl_tokenizer *tokenizer;
    int32_t n, longest;      /* tokens; bytes of the longest */
    int32_t n_words;         /* of a mask */
    int32_t *sorted;         /* [n] */
    uint8_t *shared;         /* [n] bytes shared with the one before, at most 255 */
    uint32_t *string, *text; /* [n_words] tokens that change nothing there */
    bool whole;              /* every byte that tags and JSON need is a token */
} pl_vocabulary;

/* Bytes it takes for a model of so many ids. */
uint64_t pl_vocabulary_bytes(int32_t vocab_size);

/* False where memory is out. */
bool pl_vocabulary_init(pl_vocabulary *v, const pl_tokenizer *tokenizer, int32_t vocab_size);
void pl_vocabulary_fini(pl_vocabulary *v);

enum { PL_MASK_RING = 16 }; /* tokens that can be taken back cheaply: more than drafts of a step */

/* One answer being made. */
typedef struct pl_mask_run {
    const pl_vocabulary *vocabulary;
    pl_form form;
    int32_t max_tokens, eos;
    int32_t n, oldest; /* states behind oldest .. n tokens are there */
    pl_form_state state[PL_MASK_RING];
    int32_t token[PL_MASK_RING]; /* [i] leads to the state behind i + 1 tokens */
} pl_mask_run;

void pl_mask_run_init(pl_mask_run *r, const pl_vocabulary *v, const pl_form *form,
                      int32_t max_tokens, int32_t eos);

/* A pl_mask_fn; `run` is the pl_mask_run. */
void pl_mask_run_mask(void *run, const int32_t *output, int32_t n_output, uint32_t *mask);

/* Whether an end was forced on the answer, because max_tokens was nearly used up. */
bool pl_mask_run_forced(pl_mask_run *r, const int32_t *output, int32_t n_output);

#endif
