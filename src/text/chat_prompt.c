/* The prompt's text and its segments. A segment's kind is the opposite of its neighbour's, so that only the
 * ends need to be kept; text put in one kind after the other is what decides where they fall. */
#include "text/chat_prompt.h"

#include <stdlib.h>
#include <string.h>

#include "text/chat_tokens.h"

static size_t n_ends(const pl_prompt *p)
{
    return p->ends.n / sizeof(size_t);
}

static size_t end_of(const pl_prompt *p, size_t i)
{
    size_t end;

    memcpy(&end, p->ends.bytes + i * sizeof end, sizeof end);
    return end;
}

/* The end of the last segment is not stored: it is the end of the text. */
static void enter(pl_prompt *p, bool markup)
{
    bool now = p->first_is_markup ^ (n_ends(p) & 1);

    if (p->text.n == 0)
        p->first_is_markup = markup;
    else if (now != markup)
        pl_json_buffer_put(&p->ends, &p->text.n, sizeof p->text.n);
}

void pl__prompt_put_token(pl_prompt *p, const char *token)
{
    enter(p, true);
    pl_json_buffer_put_text(&p->text, token);
}

void pl__prompt_put_content(pl_prompt *p, const char *text, size_t n)
{
    if (n == 0)
        return;
    enter(p, false);
    pl_json_buffer_put(&p->text, text, n);
}

pl_json_buffer *pl__prompt_begin_content(pl_prompt *p)
{
    enter(p, false);
    return &p->text;
}

void pl__prompt_put_fixed(pl_prompt *p, const char *text)
{
    static const char *const tokens[] = {PL_TOK_THINK_BEGIN, PL_TOK_THINK_END, PL_TOK_DSML};

    while (*text) {
        const char *next = NULL, *token = NULL;
        for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
            const char *found = strstr(text, tokens[i]);
            if (found && (!next || found < next)) {
                next = found;
                token = tokens[i];
            }
        }
        if (!token) {
            pl__prompt_put_content(p, text, strlen(text));
            return;
        }
        pl__prompt_put_content(p, text, (size_t)(next - text));
        pl__prompt_put_token(p, token);
        text = next + strlen(token);
    }
}

void pl_prompt_destroy(pl_prompt *prompt)
{
    if (!prompt)
        return;
    pl_json_buffer_fini(&prompt->text);
    pl_json_buffer_fini(&prompt->ends);
    free(prompt);
}

const char *pl_prompt_text(const pl_prompt *prompt, size_t *n_bytes)
{
    *n_bytes = prompt->text.n;
    return prompt->text.bytes;
}

size_t pl_prompt_n_segments(const pl_prompt *prompt)
{
    if (prompt->text.n == 0)
        return 0;
    return prompt->all_markup ? 1 : n_ends(prompt) + 1;
}

pl_chat_mode pl_prompt_output_mode(const pl_prompt *prompt)
{
    const size_t n = strlen(PL_TOK_THINK_BEGIN);
    bool ends_with_markup = prompt->first_is_markup ^ (n_ends(prompt) & 1);

    if (ends_with_markup && prompt->text.n >= n &&
        memcmp(prompt->text.bytes + prompt->text.n - n, PL_TOK_THINK_BEGIN, n) == 0)
        return PL_CHAT_MODE_THINKING;
    return PL_CHAT_MODE_CHAT;
}

pl_prompt_segment pl_prompt_get_segment(const pl_prompt *prompt, size_t i)
{
    size_t begin = 0, end = prompt->text.n;
    bool markup = prompt->all_markup;

    if (!prompt->all_markup) {
        begin = i ? end_of(prompt, i - 1) : 0;
        end = i < n_ends(prompt) ? end_of(prompt, i) : end;
        markup = prompt->first_is_markup ^ (i & 1);
    }
    return (pl_prompt_segment){prompt->text.bytes + begin, end - begin, markup};
}

size_t pl_prompt_plain_ranges(const pl_prompt *prompt, pl_text_range *ranges)
{
    size_t n = 0, at = 0;

    for (size_t i = 0; i < pl_prompt_n_segments(prompt); i++) {
        const pl_prompt_segment s = pl_prompt_get_segment(prompt, i);

        if (!s.markup && s.n_bytes)
            ranges[n++] = (pl_text_range){at, at + s.n_bytes};
        at += s.n_bytes;
    }
    return n;
}
