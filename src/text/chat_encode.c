/* The encoder: turns to prompt.
 *
 * Each turn writes its own text, and behind it, where the model or a reminder speaks next, the tokens that hand
 * over. Nothing is checked here: chat_message.c has done that. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/chat_fixed.h"
#include "text/chat_prompt.h"
#include "text/chat_tokens.h"
#include "text/chat_turns.h"
#include "text/json_write.h"

typedef struct encoder {
    const pl_chat_options *options;
    pl_json_pool pool;
    pl_chat_turns turns;
    bool drop;           /* reasoning before the last user turn goes */
    ptrdiff_t last_user; /* its index, or -1 */
    pl_prompt *prompt;
} encoder;

/* ---- content ---- */

static void put_string(encoder *e, const pl_json_value *v)
{
    pl__prompt_put_content(e->prompt, v->text, v->n);
}

static void put_key(encoder *e, const pl_json_value *member)
{
    pl__prompt_put_content(e->prompt, member->key, member->key_bytes);
}

static void put_json(encoder *e, const pl_json_value *v)
{
    pl_json_write(pl__prompt_begin_content(e->prompt), v);
}

/* Parts are separated as the encoding separates the parts of a user turn. */
static void put_content(encoder *e, const pl_json_value *content)
{
    if (!content)
        return;
    if (content->kind == PL_JSON_STRING) {
        put_string(e, content);
        return;
    }
    for (const pl_json_value *part = content->first; part; part = part->next) {
        const pl_json_value *type = pl_json_value_get(part, "type");
        if (part != content->first)
            pl__prompt_put_fixed(e->prompt, "\n\n");
        if (pl_json_value_is(type, "text")) {
            put_string(e, pl_json_value_get(part, "text"));
        } else {
            pl__prompt_put_fixed(e->prompt, "[Unsupported ");
            put_string(e, type);
            pl__prompt_put_fixed(e->prompt, "]");
        }
    }
}

static void put_user_parts(encoder *e, const pl_chat_turn *turn)
{
    for (const pl_chat_part *part = turn->parts; part; part = part->next) {
        if (part != turn->parts)
            pl__prompt_put_fixed(e->prompt, "\n\n");
        if (part->is_result)
            pl__prompt_put_fixed(e->prompt, "<tool_result>");
        put_content(e, part->content);
        if (part->is_result)
            pl__prompt_put_fixed(e->prompt, "</tool_result>");
    }
}

static void put_tools_and_format(encoder *e, const pl_chat_turn *turn)
{
    if (turn->tools) {
        pl__prompt_put_fixed(e->prompt, pl__chat_tools_head);
        for (const pl_json_value *tool = turn->tools->first; tool; tool = tool->next) {
            if (tool != turn->tools->first)
                pl__prompt_put_fixed(e->prompt, "\n");
            put_json(e, pl_json_value_get(tool, "function"));
        }
        pl__prompt_put_fixed(e->prompt, pl__chat_tools_tail);
    }
    if (turn->response_format) {
        pl__prompt_put_fixed(e->prompt, pl__chat_format_head);
        put_json(e, turn->response_format);
    }
}

/* ---- calls ---- */

static void put_parameter_head(encoder *e)
{
    pl__prompt_put_fixed(e->prompt, "<" PL_TOK_DSML "parameter name=\"");
}

static void put_parameter_tail(encoder *e)
{
    pl__prompt_put_fixed(e->prompt, "</" PL_TOK_DSML "parameter>");
}

static void put_parameters(encoder *e, const pl_json_value *arguments)
{
    for (const pl_json_value *m = arguments->first; m; m = m->next) {
        if (m != arguments->first)
            pl__prompt_put_fixed(e->prompt, "\n");
        put_parameter_head(e);
        put_key(e, m);
        if (m->kind == PL_JSON_STRING) {
            pl__prompt_put_fixed(e->prompt, "\" string=\"true\">");
            put_string(e, m);
        } else {
            pl__prompt_put_fixed(e->prompt, "\" string=\"false\">");
            put_json(e, m);
        }
        put_parameter_tail(e);
    }
}

/* A string that is no JSON object goes as it is, as one parameter named "arguments". */
static pl_status put_arguments(encoder *e, const pl_json_value *arguments, pl_error *err)
{
    pl_json_pool pool = {0};
    const pl_json_value *object = arguments;
    pl_status status = PL_OK;

    if (arguments->kind == PL_JSON_STRING)
        status = pl_json_value_parse(&pool, "", arguments->text, arguments->n, &object, NULL);
    if (status == PL_OK && object->kind == PL_JSON_OBJECT) {
        put_parameters(e, object);
    } else if (status != PL_ERR_NOMEM) {
        put_parameter_head(e);
        pl__prompt_put_fixed(e->prompt, "arguments\" string=\"true\">");
        put_string(e, arguments);
        put_parameter_tail(e);
    }
    pl_json_pool_fini(&pool);
    return status == PL_ERR_NOMEM ? pl_error_set(err, status, "arguments: out of memory") : PL_OK;
}

static pl_status put_calls(encoder *e, const pl_json_value *calls, pl_error *err)
{
    if (!calls || calls->n == 0)
        return PL_OK;
    pl__prompt_put_fixed(e->prompt, "\n\n<" PL_TOK_DSML "tool_calls>\n");
    for (const pl_json_value *call = calls->first; call; call = call->next) {
        const pl_json_value *function = pl_json_value_get(call, "function");
        pl__prompt_put_fixed(e->prompt, "<" PL_TOK_DSML "invoke name=\"");
        put_string(e, pl_json_value_get(function, "name"));
        pl__prompt_put_fixed(e->prompt, "\">\n");
        PL_TRY(put_arguments(e, pl_json_value_get(function, "arguments"), err));
        pl__prompt_put_fixed(e->prompt, "\n</" PL_TOK_DSML "invoke>\n");
    }
    pl__prompt_put_fixed(e->prompt, "</" PL_TOK_DSML "tool_calls>");
    return PL_OK;
}

/* ---- turns ---- */

static bool is_thinking(const encoder *e)
{
    return e->options->mode == PL_CHAT_MODE_THINKING;
}

/* The answer to a task has no reasoning part. */
static pl_status put_assistant(encoder *e, size_t i, pl_error *err)
{
    const pl_chat_turn *turn = &e->turns.turns[i];
    bool answers_task = i > 0 && turn[-1].task;
    bool open = turn->open || (e->options->continue_last && i + 1 == e->turns.n);

    if (is_thinking(e) && !answers_task && (!e->drop || (ptrdiff_t)i > e->last_user)) {
        put_content(e, turn->reasoning);
        pl__prompt_put_token(e->prompt, PL_TOK_THINK_END);
    }
    put_content(e, turn->content);
    PL_TRY(put_calls(e, turn->tool_calls, err));
    if (!open)
        pl__prompt_put_token(e->prompt, PL_TOK_EOS);
    return PL_OK;
}

static pl_status put_turn(encoder *e, size_t i, pl_error *err)
{
    const pl_chat_turn *turn = &e->turns.turns[i];

    switch (turn->role) {
    case PL_ROLE_DEVELOPER:
        pl__prompt_put_token(e->prompt, PL_TOK_USER);
        /* fall through */
    case PL_ROLE_SYSTEM:
        put_content(e, turn->content);
        put_tools_and_format(e, turn);
        return PL_OK;
    case PL_ROLE_USER:
        pl__prompt_put_token(e->prompt, PL_TOK_USER);
        put_user_parts(e, turn);
        return PL_OK;
    case PL_ROLE_LATEST_REMINDER:
        pl__prompt_put_token(e->prompt, PL_TOK_LATEST_REMINDER);
        put_content(e, turn->content);
        return PL_OK;
    case PL_ROLE_ASSISTANT:
        return put_assistant(e, i, err);
    case PL_ROLE_TOOL:
        break;
    }
    return pl_error_set(err, PL_ERR_INTERNAL, "messages: tool message among the turns");
}

/* What follows the turn where an assistant or a reminder comes next, or nothing. */
static void put_transition(encoder *e, size_t i)
{
    const pl_chat_turn *turn = &e->turns.turns[i];
    bool think = is_thinking(e);

    if (i + 1 < e->turns.n && turn[1].role != PL_ROLE_ASSISTANT &&
        turn[1].role != PL_ROLE_LATEST_REMINDER)
        return;
    if (turn->task) {
        if (strcmp(turn->task, PL_TOK_ACTION) == 0) {
            pl__prompt_put_token(e->prompt, PL_TOK_ASSISTANT);
            pl__prompt_put_token(e->prompt, think ? PL_TOK_THINK_BEGIN : PL_TOK_THINK_END);
        }
        pl__prompt_put_token(e->prompt, turn->task);
        return;
    }
    if (turn->role != PL_ROLE_USER && turn->role != PL_ROLE_DEVELOPER)
        return;
    think = think && (!e->drop || (ptrdiff_t)i >= e->last_user);
    pl__prompt_put_token(e->prompt, PL_TOK_ASSISTANT);
    pl__prompt_put_token(e->prompt, think ? PL_TOK_THINK_BEGIN : PL_TOK_THINK_END);
}

static pl_status put_turns(encoder *e, pl_error *err)
{
    if (e->options->continue_last && e->turns.turns[e->turns.n - 1].role != PL_ROLE_ASSISTANT)
        return pl_error_set(err, PL_ERR_INVALID,
                            "messages: the last one cannot be continued (want an assistant's)");
    e->drop = e->options->drop_thinking && !pl__chat_turns_have_tools(&e->turns);
    if (is_thinking(e) && e->drop)
        pl__chat_turns_drop(&e->turns);
    e->last_user = pl__chat_turns_last_user(&e->turns);
    if (e->options->add_bos)
        pl__prompt_put_token(e->prompt, PL_TOK_BOS);
    if (is_thinking(e))
        pl__prompt_put_fixed(e->prompt,
                             pl__chat_effort_text(e->options->revision, e->options->effort));
    for (size_t i = 0; i < e->turns.n; i++) {
        PL_TRY(put_turn(e, i, err));
        put_transition(e, i);
    }
    return PL_OK;
}

/* ---- the call ---- */

static pl_status encode(encoder *e, const char *json, size_t json_bytes, pl_error *err)
{
    const pl_json_value *document;
    pl_prompt *p = e->prompt;

    PL_TRY(pl_json_value_parse(&e->pool, "conversation", json, json_bytes, &document, err));
    PL_TRY(pl__chat_turns_read(&e->pool, document, &e->turns, err));
    PL_TRY(pl__chat_turns_sort_results(&e->pool, &e->turns, err));
    PL_TRY(put_turns(e, err));
    pl_json_buffer_put_char(&p->text, 0);
    if (p->text.failed == PL_ERR_LIMIT)
        return pl_error_set(err, PL_ERR_LIMIT,
                            "prompt: too long (got more, want at most %zu bytes)",
                            e->options->max_prompt_bytes);
    if (p->text.failed != PL_OK || p->ends.failed != PL_OK)
        return pl_error_set(err, PL_ERR_NOMEM, "prompt: out of memory");
    p->text.n--; /* the 0 is not of the text */
    return PL_OK;
}

pl_status pl_chat_encode(const char *json, size_t json_bytes, const pl_chat_options *options,
                         pl_prompt **out, pl_error *err)
{
    encoder e = {.options = options};
    pl_status status;

    *out = NULL;
    e.prompt = calloc(1, sizeof *e.prompt);
    if (!e.prompt)
        return pl_error_set(err, PL_ERR_NOMEM, "prompt: out of memory");
    e.prompt->text.max_bytes =
        options->max_prompt_bytes < SIZE_MAX ? options->max_prompt_bytes + 1 : SIZE_MAX;
    e.prompt->ends.max_bytes = SIZE_MAX;
    e.prompt->all_markup = options->trust_special_tokens;
    status = encode(&e, json, json_bytes, err);
    pl_json_pool_fini(&e.pool);
    if (status == PL_OK)
        *out = e.prompt;
    else
        pl_prompt_destroy(e.prompt);
    return status;
}
