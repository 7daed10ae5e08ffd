/* Log-probabilities as JSON: of what was chosen and of what a prompt says. Of the HTTP thread. */
#ifndef PL_SERVE_LOGPROBS_H
#define PL_SERVE_LOGPROBS_H

#include "serve/job.h"

/* Chat's {"content": [..]} of tokens begin .. end - 1. */
json_t *pl_choice_logprobs_chat(const pl_job_choice *c, int32_t begin, int32_t end);

/* Those of completions, of the echoed tokens of the prompt where `echo` says so, then of tokens begin .. end - 1. Text
 * offsets begin at *offset, which moves on. */
json_t *pl_choice_logprobs_completion(const pl_job_choice *c, bool echo, int32_t begin, int32_t end,
                                      int64_t *offset);

/* vLLM's prompt_logprobs: an entry a token, null for the first, else an object by token id. All must be told. */
json_t *pl_prompt_logprobs(const pl_job *job, int prompt);

#endif
