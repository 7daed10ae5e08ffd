/* One message of a conversation, its fields checked. */
#ifndef PL_TEXT_CHAT_MESSAGE_H
#define PL_TEXT_CHAT_MESSAGE_H

#include "text/chat_turns.h"

/* Checks message `index` and fills *turn; content, also of users and tools, is in turn->content, and the
 * id that a tool message answers in *call_id. */
pl_status pl__chat_message_read(const pl_json_value *message, size_t index, pl_chat_turn *turn,
                                const pl_json_value **call_id, pl_error *err) PL_MUST_CHECK;

/* Checks a list of tools in OpenAI's form; `where` names it. */
pl_status pl__chat_tools_check(const pl_json_value *tools, const char *where,
                               pl_error *err) PL_MUST_CHECK;

/* Checks a response format. *out is NULL where there is nothing to demand: null, or {"type": "text"} if
 * `text_is_none` (as in requests). */
pl_status pl__chat_format_check(const pl_json_value *format, bool text_is_none, const char *where,
                                const pl_json_value **out, pl_error *err) PL_MUST_CHECK;

/* NULL for null. */
const pl_json_value *pl__chat_unless_null(const pl_json_value *value);

#endif
