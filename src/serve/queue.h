/* Who comes next: by priority, then whose client has had the least, then who came first. Everything under the server's lock.
 *
 * docs/SERVING.md says what a client is and what it is charged. */
#ifndef PL_SERVE_QUEUE_H
#define PL_SERVE_QUEUE_H

#include "serve/job.h"

struct MHD_Connection;

/* Its key where there are several, else its address. */
pl_client_id pl_client_id_of(const pl_serve *s, int key, struct MHD_Connection *connection);

/* Lets an accepted job wait, as one of its client's; false where memory is out. */
bool pl_queue_enter_locked(pl_serve *s, pl_job *job);

/* A job that entered has ended. */
void pl_queue_leave_locked(pl_serve *s, pl_job *job);

/* Tokens that were run for it. */
void pl_queue_charge_locked(pl_job *job, int64_t n_tokens);

/* Of those that wait and those of the list `running` with completions left to submit: who comes next; NULL: nobody. */
pl_job *pl_queue_next_locked(const pl_serve *s, pl_job *running);

/* Out of those that wait; false where it is not among them. */
bool pl_queue_take_locked(pl_serve *s, pl_job *job);

#endif
