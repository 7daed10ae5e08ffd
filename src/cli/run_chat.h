/* A conversation on a terminal: what `plimsoll run MODEL` is without a prompt. */
#ifndef PL_CLI_RUN_CHAT_H
#define PL_CLI_RUN_CHAT_H

#include "plimsoll/chat.h"
#include "plimsoll/engine.h"

/* Length of a conversation in tokens where nobody asks for another. */
enum { PL_RUN_CHAT_LEN = 8192 };

/* Bytes a conversation of max_model_len tokens may hold beside the engine: part of the plan. */
uint64_t pl_run_chat_bytes(int max_model_len);

/* Reads standard input line by line until it ends or /quit, and answers each on standard output as the answer is
 * made. `ask` has the sampling; its tokens and callback are set here, and max_tokens 0 means what is left.
 * Ctrl-C ends an answer, not the conversation. UNSUPPORTED without a tokenizer. */
pl_status pl_run_chat(pl_engine *engine, const pl_request_params *ask, pl_error *err) PL_MUST_CHECK;

#endif
