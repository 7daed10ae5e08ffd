/* The encoding's own sentences, byte for byte as in the golden encodings. */
#ifndef PL_TEXT_CHAT_FIXED_H
#define PL_TEXT_CHAT_FIXED_H

#include "plimsoll/chat.h"

/* What a reasoning effort puts before the first message; "" for nothing. */
const char *pl__chat_effort_text(pl_chat_revision revision, pl_chat_effort effort);

extern const char pl__chat_tools_head[], pl__chat_tools_tail[]; /* around the schemas, one a line */
extern const char pl__chat_format_head[];                       /* before the response format */

#endif
