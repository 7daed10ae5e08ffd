/* A conversation as the encoding sees it: checked messages, tool results folded into user turns. */
#ifndef PL_TEXT_CHAT_TURNS_H
#define PL_TEXT_CHAT_TURNS_H

#include "text/json_value.h"

typedef enum pl_chat_role {
    PL_ROLE_SYSTEM,
    PL_ROLE_DEVELOPER,
    PL_ROLE_USER,
    PL_ROLE_ASSISTANT,
    PL_ROLE_TOOL, /* in messages only: in turns it has become a part of a user turn */
    PL_ROLE_LATEST_REMINDER,
} pl_chat_role;

/* Text of a user turn, or the result of a call. */
typedef struct pl_chat_part pl_chat_part;
struct pl_chat_part {
    pl_chat_part *next;
    bool is_result;
    const pl_json_value *content; /* NULL, a string, or an array of checked parts */
    const pl_json_value *call_id; /* of a result: NULL or a string */
};

typedef struct pl_chat_turn {
    pl_chat_role role;
    const pl_json_value *content; /* not of users: NULL, a string, or an array of checked parts */
    const pl_json_value *reasoning, *tool_calls, *tools,
        *response_format; /* NULL where there is none */
    const char *task;     /* its token, or NULL */
    bool open;            /* assistant: the message goes on, no end token */
    pl_chat_part *parts;  /* of users */
    pl_chat_part **last_part;
    size_t n_results;
} pl_chat_turn;

typedef struct pl_chat_turns {
    pl_chat_turn *turns;
    size_t n;
} pl_chat_turns;

/* Checks `document` (an array of messages, or an object with "messages" and perhaps "tools" and
 * "response_format") and folds it. Everything lies in `pool` or in the document. */
pl_status pl__chat_turns_read(pl_json_pool *pool, const pl_json_value *document, pl_chat_turns *out,
                              pl_error *err) PL_MUST_CHECK;

/* Puts the results of each user turn in the order of the calls before it. */
pl_status pl__chat_turns_sort_results(pl_json_pool *pool, pl_chat_turns *turns,
                                      pl_error *err) PL_MUST_CHECK;

/* Whether any turn brings tools. */
bool pl__chat_turns_have_tools(const pl_chat_turns *turns);

/* Index of the last user or developer turn; -1 where there is none. */
ptrdiff_t pl__chat_turns_last_user(const pl_chat_turns *turns);

/* Removes the developer turns before the last user turn: what goes when reasoning is dropped. */
void pl__chat_turns_drop(pl_chat_turns *turns);

#endif
