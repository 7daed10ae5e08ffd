/* What the engine's thread knows: shared by scheduler.c, which submits and steps, outcome.c, which takes what comes of
 * that, and watch.c, which sees who is gone or late. Nothing here is of another thread. */
#ifndef PL_SERVE_LOOP_H
#define PL_SERVE_LOOP_H

#include "serve/job.h"

typedef struct pl_serve_loop {
    pl_serve *serve;
    pl_engine *engine;
    const pl_tokenizer *tokenizer;
    char *piece; /* text of a token */
    size_t piece_bytes;
    pl_job *running; /* submitted at least in part */
    int n_live, max_live, max_preempted;
    double watched;
    double drain_began; /* 0: no drain */
} pl_serve_loop;

/* ---- outcome.c */

/* What the engine calls for a token of an answer and of a prompt (plimsoll/engine.h); user is the pl_job_choice. */
void pl_outcome_token(void *user, pl_request *request, const pl_token_event *event);
void pl_outcome_prompt_token(void *user, pl_request *request, const pl_token_event *event);

/* Between two steps: ends the completions that have ended, those of jobs that were cancelled, and jobs whose last
 * completion that was. */
void pl_outcome_settle(pl_serve_loop *l);

/* Ends a list of jobs of which nothing runs. Takes the list and the engine's references. */
void pl_outcome_end_all(pl_serve_loop *l, pl_job *list);

/* ---- watch.c, under the server's lock */

/* Marks as cancelled whose client is gone, who runs too long, and everybody when a drain has lasted long enough. Looks 20
 * times a second at most. */
void pl_watch_locked(pl_serve_loop *l);

/* Jobs that were cancelled before they ran, out of the queue into a list of their own. */
pl_job *pl_watch_take_cancelled_locked(pl_serve *s);

/* A drain is over: nobody waits for an answer any more, or for too long to read it. */
bool pl_watch_is_drained_locked(const pl_serve_loop *l);

#endif
