/* A prompt while it is written, and when it is done. */
#ifndef PL_TEXT_CHAT_PROMPT_H
#define PL_TEXT_CHAT_PROMPT_H

#include "plimsoll/chat.h"
#include "text/json_buffer.h"

struct pl_prompt {
    pl_json_buffer text;
    pl_json_buffer ends;  /* size_t each: where segment i ends */
    bool first_is_markup; /* segments alternate */
    bool all_markup;      /* the whole text is one markup segment */
};

/* Special token of the encoding. */
void pl__prompt_put_token(pl_prompt *p, const char *token);

/* Fixed text of ours, 0-terminated; DSML and think tokens in it are markup. */
void pl__prompt_put_fixed(pl_prompt *p, const char *text);

/* Text of others: no byte of it is markup. */
void pl__prompt_put_content(pl_prompt *p, const char *text, size_t n);

/* For writers that append content to a buffer themselves: that buffer. Nothing else may be put before they
 * are done. */
pl_json_buffer *pl__prompt_begin_content(pl_prompt *p);

#endif
