/* The strings that are single tokens and that the chat encoding gives a meaning.
 *
 * The bars are U+FF5C, the gaps in the first two U+2581. Source: specification section 7.1. */
#ifndef PL_TEXT_CHAT_TOKENS_H
#define PL_TEXT_CHAT_TOKENS_H

#define PL_TOK_BOS             "<｜begin▁of▁sentence｜>"
#define PL_TOK_EOS             "<｜end▁of▁sentence｜>"
#define PL_TOK_USER            "<｜User｜>"
#define PL_TOK_ASSISTANT       "<｜Assistant｜>"
#define PL_TOK_LATEST_REMINDER "<｜latest_reminder｜>"
#define PL_TOK_THINK_BEGIN     "<think>"
#define PL_TOK_THINK_END       "</think>"
#define PL_TOK_DSML            "｜DSML｜"
#define PL_TOK_ACTION          "<｜action｜>"
#define PL_TOK_QUERY           "<｜query｜>"
#define PL_TOK_AUTHORITY       "<｜authority｜>"
#define PL_TOK_DOMAIN          "<｜domain｜>"
#define PL_TOK_TITLE           "<｜title｜>"
#define PL_TOK_READ_URL        "<｜read_url｜>"

#endif
