/* What answers are made of, streamed or whole. */
#ifndef PL_SERVE_BODY_H
#define PL_SERVE_BODY_H

#include "serve/choice.h"

/* {"id", "object", "created", "model", "system_fingerprint"}; the caller's. */
json_t *pl_body_head(const pl_job *job, const char *object);
json_t *pl_body_usage(const pl_job *job);
json_t *pl_body_error(const pl_fault *fault);

/* The OpenAI word for it. */
json_t *pl_body_finish(pl_finish finish, bool has_calls);

/* A parser of what one choice of a chat writes; NULL where memory is out. */
pl_output_parser *pl_body_parser(const pl_job_choice *c, pl_output_sink *sink, void *user);

/* Text that completions put in front where echo is asked for. */
json_t *pl_body_echo(const pl_job_choice *c);

/* The whole answer of a job that has ended, malloc'ed; NULL where memory is out. */
char *pl_body_answer(pl_job *job);

/* Compact JSON, malloc'ed; drops `value`. NULL where memory is out. */
char *pl_body_text(json_t *value);

#endif
