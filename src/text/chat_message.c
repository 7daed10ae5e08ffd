/* Checks of messages. Everything that the encoder relies on is checked here, so that it cannot fail later;
 * what it does not look at (names, refusals, masks, annotations) may be anything.
 *
 * The errors name message and field, since the person who reads them wrote the request. */
#include "text/chat_message.h"

#include <stdio.h>

#include "base/error.h"
#include "text/chat_tokens.h"

static const struct {
    const char *name;
    pl_chat_role role;
} roles[] = {
    {"system", PL_ROLE_SYSTEM}, {"developer", PL_ROLE_DEVELOPER},
    {"user", PL_ROLE_USER},     {"assistant", PL_ROLE_ASSISTANT},
    {"tool", PL_ROLE_TOOL},     {"latest_reminder", PL_ROLE_LATEST_REMINDER},
};

static const struct {
    const char *name, *token;
} tasks[] = {
    {"action", PL_TOK_ACTION}, {"query", PL_TOK_QUERY}, {"authority", PL_TOK_AUTHORITY},
    {"domain", PL_TOK_DOMAIN}, {"title", PL_TOK_TITLE}, {"read_url", PL_TOK_READ_URL},
};

static pl_status refuse(const char *where, const char *field, const char *what,
                        const pl_json_value *got, const char *want, pl_error *err)
{
    char words[PL_JSON_WORDS_BYTES];

    return pl_error_set(err, PL_ERR_INVALID, "%s%s: %s (got %s, want %s)", where, field, what,
                        pl_json_value_words(got, words), want);
}

const pl_json_value *pl__chat_unless_null(const pl_json_value *value)
{
    return value && value->kind == PL_JSON_NULL ? NULL : value;
}

/* ---- content ---- */

/* A list of parts. Other parts than text are refused but in results, where the encoding has words for
 * them. */
static pl_status check_parts(const pl_json_value *content, const char *where, bool in_result,
                             pl_error *err)
{
    size_t i = 0;

    for (const pl_json_value *part = content->first; part; part = part->next, i++) {
        const pl_json_value *type = pl_json_value_get(part, "type");
        const pl_json_value *text = pl_json_value_get(part, "text");
        char words[PL_JSON_WORDS_BYTES], field[96];
        snprintf(field, sizeof field, ".content[%zu]", i);
        if (part->kind != PL_JSON_OBJECT)
            return refuse(where, field, "is no content part", part, "an object", err);
        if (!type || type->kind != PL_JSON_STRING)
            return refuse(where, field, "has no type", type, "\"type\": \"text\"", err);
        if (pl_json_value_is(type, "text")) {
            if (!text || text->kind != PL_JSON_STRING)
                return refuse(where, field, "has no text", text, "a string", err);
        } else if (!in_result) {
            return pl_error_set(err, PL_ERR_UNSUPPORTED,
                                "%s%s.type: not supported (got %s, want text)", where, field,
                                pl_json_value_words(type, words));
        }
    }
    return PL_OK;
}

/* Assistants and systems may say nothing; users and tools may leave the field out. */
static pl_status check_content(const pl_json_value *message, const char *where, pl_chat_turn *turn,
                               pl_error *err)
{
    const pl_json_value *content = pl_json_value_get(message, "content");
    bool may_be_null = turn->role == PL_ROLE_ASSISTANT || turn->role == PL_ROLE_SYSTEM;
    bool may_lack = may_be_null || turn->role == PL_ROLE_USER || turn->role == PL_ROLE_TOOL;

    if (!content && !may_lack)
        return refuse(where, ".content", "is missing", content, "text", err);
    if (content && content->kind == PL_JSON_NULL && may_be_null)
        content = NULL;
    if (content && content->kind != PL_JSON_STRING && content->kind != PL_JSON_ARRAY)
        return refuse(where, ".content", "is no text", content, "a string or text parts", err);
    if (content && content->n == 0 && turn->role == PL_ROLE_DEVELOPER)
        return refuse(where, ".content", "is empty", content, "text", err);
    if (content && content->kind == PL_JSON_ARRAY)
        PL_TRY(check_parts(content, where, turn->role == PL_ROLE_TOOL, err));
    turn->content = content;
    return PL_OK;
}

/* ---- tools and formats ---- */

pl_status pl__chat_tools_check(const pl_json_value *tools, const char *where, pl_error *err)
{
    size_t i = 0;

    if (tools->kind != PL_JSON_ARRAY)
        return refuse(where, "", "is no list of tools", tools, "an array", err);
    for (const pl_json_value *tool = tools->first; tool; tool = tool->next, i++) {
        const pl_json_value *type = pl_json_value_get(tool, "type");
        const pl_json_value *function = pl_json_value_get(tool, "function");
        const pl_json_value *name = pl_json_value_get(function, "name");
        char words[PL_JSON_WORDS_BYTES], field[96];
        snprintf(field, sizeof field, "[%zu]", i);
        if (tool->kind != PL_JSON_OBJECT)
            return refuse(where, field, "is no tool", tool, "an object", err);
        if (type && !pl_json_value_is(type, "function"))
            return pl_error_set(err, PL_ERR_UNSUPPORTED,
                                "%s%s.type: not supported (got %s, want function)", where, field,
                                pl_json_value_words(type, words));
        if (!function || function->kind != PL_JSON_OBJECT)
            return refuse(where, field, "has no function", function, "\"function\": {..}", err);
        if (!name || name->kind != PL_JSON_STRING || name->n == 0)
            return refuse(where, field, "has no function.name", name, "a string", err);
    }
    return PL_OK;
}

pl_status pl__chat_format_check(const pl_json_value *format, bool text_is_none, const char *where,
                                const pl_json_value **out, pl_error *err)
{
    *out = pl__chat_unless_null(format);
    if (!*out)
        return PL_OK;
    if (format->kind != PL_JSON_OBJECT)
        return refuse(where, "", "is no response format", format, "an object", err);
    if (format->n == 0 ||
        (text_is_none && pl_json_value_is(pl_json_value_get(format, "type"), "text")))
        *out = NULL;
    return PL_OK;
}

/* Only system and developer messages have a place for these in the prompt. */
static pl_status check_extras(const pl_json_value *message, const char *where, pl_chat_turn *turn,
                              pl_error *err)
{
    const pl_json_value *tools = pl__chat_unless_null(pl_json_value_get(message, "tools"));
    const pl_json_value *format = pl_json_value_get(message, "response_format");
    bool has_place = turn->role == PL_ROLE_SYSTEM || turn->role == PL_ROLE_DEVELOPER;
    char field[96];

    snprintf(field, sizeof field, "%s.response_format", where);
    PL_TRY(pl__chat_format_check(format, false, field, &turn->response_format, err));
    if (turn->response_format && !has_place)
        return refuse(where, ".response_format", "is in the wrong message", format,
                      "it in a system or developer message", err);
    if (!tools)
        return PL_OK;
    snprintf(field, sizeof field, "%s.tools", where);
    PL_TRY(pl__chat_tools_check(tools, field, err));
    if (tools->n == 0)
        return PL_OK;
    if (!has_place)
        return refuse(where, ".tools", "are in the wrong message", tools,
                      "them in a system or developer message", err);
    turn->tools = tools;
    return PL_OK;
}

/* ---- assistants ---- */

static pl_status check_calls(const pl_json_value *calls, const char *where, pl_error *err)
{
    size_t i = 0;

    if (calls->kind != PL_JSON_ARRAY)
        return refuse(where, ".tool_calls", "is no list of calls", calls, "an array", err);
    for (const pl_json_value *call = calls->first; call; call = call->next, i++) {
        const pl_json_value *function = pl_json_value_get(call, "function");
        const pl_json_value *name = pl_json_value_get(function, "name");
        const pl_json_value *arguments = pl_json_value_get(function, "arguments");
        char field[96];
        snprintf(field, sizeof field, ".tool_calls[%zu]", i);
        if (!function || function->kind != PL_JSON_OBJECT)
            return refuse(where, field, "has no function", function, "\"function\": {..}", err);
        if (!name || name->kind != PL_JSON_STRING)
            return refuse(where, field, "has no function.name", name, "a string", err);
        if (!arguments || (arguments->kind != PL_JSON_STRING && arguments->kind != PL_JSON_OBJECT))
            return refuse(where, field, "has no function.arguments", arguments,
                          "a string of JSON or an object", err);
    }
    return PL_OK;
}

static pl_status check_flag(const pl_json_value *message, const char *where, const char *field,
                            bool *flag, pl_error *err)
{
    const pl_json_value *v = pl__chat_unless_null(pl_json_value_get(message, field + 1));

    if (v && v->kind != PL_JSON_TRUE && v->kind != PL_JSON_FALSE)
        return refuse(where, field, "is no truth value", v, "true or false", err);
    *flag |= v && v->kind == PL_JSON_TRUE;
    return PL_OK;
}

static pl_status check_assistant(const pl_json_value *message, const char *where,
                                 pl_chat_turn *turn, pl_error *err)
{
    static const char *const fields[] = {".reasoning_content", ".reasoning"};

    for (size_t i = 0; i < 2 && !turn->reasoning; i++) {
        turn->reasoning = pl__chat_unless_null(pl_json_value_get(message, fields[i] + 1));
        if (turn->reasoning && turn->reasoning->kind != PL_JSON_STRING)
            return refuse(where, fields[i], "is no text", turn->reasoning, "a string", err);
    }
    turn->tool_calls = pl__chat_unless_null(pl_json_value_get(message, "tool_calls"));
    if (turn->tool_calls)
        PL_TRY(check_calls(turn->tool_calls, where, err));
    PL_TRY(check_flag(message, where, ".wo_eos", &turn->open, err));
    return check_flag(message, where, ".prefix", &turn->open, err); /* DeepSeek's API calls it so */
}

/* ---- the message ---- */

static pl_status check_role(const pl_json_value *message, const char *where, pl_chat_role *role,
                            pl_error *err)
{
    const pl_json_value *v = pl_json_value_get(message, "role");

    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (pl_json_value_is(v, roles[i].name)) {
            *role = roles[i].role;
            return PL_OK;
        }
    }
    return refuse(where, ".role", v ? "unknown role" : "is missing", v,
                  "system, developer, user, assistant, tool, latest_reminder", err);
}

static pl_status check_task(const pl_json_value *message, const char *where, const char **token,
                            pl_error *err)
{
    const pl_json_value *v = pl__chat_unless_null(pl_json_value_get(message, "task"));

    if (!v)
        return PL_OK;
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
        if (pl_json_value_is(v, tasks[i].name)) {
            *token = tasks[i].token;
            return PL_OK;
        }
    }
    return refuse(where, ".task", "unknown task", v,
                  "action, query, authority, domain, title, read_url", err);
}

pl_status pl__chat_message_read(const pl_json_value *message, size_t index, pl_chat_turn *turn,
                                const pl_json_value **call_id, pl_error *err)
{
    char where[48];

    snprintf(where, sizeof where, "messages[%zu]", index);
    if (message->kind != PL_JSON_OBJECT)
        return refuse(where, "", "is no message", message, "an object", err);
    PL_TRY(check_role(message, where, &turn->role, err));
    PL_TRY(check_content(message, where, turn, err));
    PL_TRY(check_task(message, where, &turn->task, err));
    PL_TRY(check_extras(message, where, turn, err));
    if (turn->role == PL_ROLE_ASSISTANT)
        PL_TRY(check_assistant(message, where, turn, err));
    *call_id = NULL;
    if (turn->role == PL_ROLE_TOOL) {
        *call_id = pl__chat_unless_null(pl_json_value_get(message, "tool_call_id"));
        if (*call_id && (*call_id)->kind != PL_JSON_STRING)
            return refuse(where, ".tool_call_id", "is no id", *call_id, "a string", err);
    }
    return PL_OK;
}
