/* Reading a completion while it grows: its text in pieces that stop strings can no longer take back, and its tokens
 * as JSON. Of the HTTP thread. */
#ifndef PL_SERVE_CHOICE_H
#define PL_SERVE_CHOICE_H

#include "serve/job.h"

/* What there was when it was looked at. */
typedef struct pl_look {
    int32_t n_tokens, n_text;
    uint64_t safe_bytes;
    pl_finish finish;
    bool prompt_told; /* or nobody asked what the model says of the prompt */
} pl_look;

typedef struct pl_view {
    const pl_job_choice *choice;
    const pl_tokenizer *tokenizer; /* NULL: there is no text */
    pl_text_stream stream;
    int32_t n_read;   /* tokens */
    uint64_t n_given; /* bytes of text */
    char *pending;    /* decoded and not safe yet */
    size_t n_pending, max_pending;
    bool ended;
} pl_view;

typedef void pl_view_put(void *user, const char *text, size_t n_bytes);

/* False where memory is out. */
bool pl_view_init(pl_view *v, const pl_job_choice *choice);
void pl_view_free(pl_view *v);

/* Takes the lock. */
pl_look pl_view_look(const pl_view *v);

/* Reads on up to token `end` <= look->n_tokens, or to the end of the text where that is all and the choice has
 * finished; v->ended says so. */
void pl_view_read(pl_view *v, const pl_look *look, int32_t end, pl_view_put *put, void *user);

json_t *pl_choice_token_ids(const int32_t *tokens, int32_t n);

/* Text of ids, as a string. */
json_t *pl_choice_text(const pl_tokenizer *t, const int32_t *tokens, int32_t n, unsigned flags);

#endif
