/* The prompts of a run: what the command line says, as tokens. */
#ifndef PL_CLI_RUN_PROMPTS_H
#define PL_CLI_RUN_PROMPTS_H

#include "plimsoll/chat.h"
#include "plimsoll/engine.h"

enum { PL_RUN_MAX_PROMPTS = 4096 };

typedef enum pl_run_prompt_kind {
    PL_RUN_TEXT,
    PL_RUN_CHAT,
    PL_RUN_TOKENS,
    PL_RUN_TOKENS_FILE,
    PL_RUN_INPUT, /* a text from standard input */
} pl_run_prompt_kind;

typedef struct pl_run_prompt {
    pl_run_prompt_kind kind;
    const char *value; /* of the option, borrowed; of PL_RUN_INPUT owned */
    pl_prompt *chat;   /* of PL_RUN_CHAT, until it is tokenized */
    int32_t *tokens;
    int32_t n_tokens;
} pl_run_prompt;

typedef struct pl_run_prompts {
    pl_run_prompt *prompt;
    int n;
} pl_run_prompts;

/* For the option table: one more prompt; INVALID beyond PL_RUN_MAX_PROMPTS. */
pl_status pl_run_prompts_add(pl_run_prompts *p, const char *option, const char *value,
                             pl_error *err) PL_MUST_CHECK;

/* Standard input as the one prompt, a text; INVALID where it is empty or holds a zero byte. */
pl_status pl_run_prompts_add_input(pl_run_prompts *p, pl_error *err) PL_MUST_CHECK;

/* Makes the tokens. Texts need DIR/tokenizer.json: NOT_FOUND where there is none. */
pl_status pl_run_prompts_read(pl_run_prompts *p, const char *dir, const pl_engine_model *model,
                              pl_error *err) PL_MUST_CHECK;

int32_t pl_run_prompts_longest(const pl_run_prompts *p);

/* Bytes held for the tokens. */
uint64_t pl_run_prompts_bytes(const pl_run_prompts *p);

void pl_run_prompts_free(pl_run_prompts *p);

#endif
