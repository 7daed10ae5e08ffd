/* Options of the encoder: defaults, the form they have in documents, and the effort of OpenAI's clients. */
#include <string.h>

#include "base/error.h"
#include "plimsoll/chat.h"
#include "text/json_value.h"

pl_chat_options pl_chat_options_default(void)
{
    return (pl_chat_options){
        .revision = PL_CHAT_V4,
        .mode = PL_CHAT_MODE_THINKING,
        .effort = PL_CHAT_EFFORT_LOW,
        .drop_thinking = true,
        .add_bos = true,
        .max_prompt_bytes = (size_t)256 << 20,
    };
}

/* Names of an enum's values, in its order; "" is never matched. */
typedef struct names {
    const char *const *names;
    size_t n;
    const char *want;
} names;

static const char *const modes[] = {"chat", "thinking"};
static const char *const revisions[] = {"v4", "0731"};
static const char *const efforts[] = {"low", "high", "max"};
static const names mode_names = {modes, 2, "chat, thinking"};
static const names revision_names = {revisions, 2, "v4, 0731"};
static const names effort_names = {efforts, 3, "low, high, max"};

static pl_status read_name(const pl_json_value *v, const names *known, unsigned *value,
                           pl_error *err)
{
    char words[PL_JSON_WORDS_BYTES];

    for (size_t i = 0; i < known->n; i++) {
        if (pl_json_value_is(v, known->names[i])) {
            *value = (unsigned)i;
            return PL_OK;
        }
    }
    return pl_error_set(err, PL_ERR_INVALID, "options.%.*s: unknown value (got %s, want %s)",
                        (int)v->key_bytes, v->key, pl_json_value_words(v, words), known->want);
}

static pl_status read_flag(const pl_json_value *v, bool *flag, pl_error *err)
{
    char words[PL_JSON_WORDS_BYTES];

    if (v->kind != PL_JSON_TRUE && v->kind != PL_JSON_FALSE)
        return pl_error_set(err, PL_ERR_INVALID,
                            "options.%.*s: is no truth value (got %s, want true or false)",
                            (int)v->key_bytes, v->key, pl_json_value_words(v, words));
    *flag = v->kind == PL_JSON_TRUE;
    return PL_OK;
}

static bool has_key(const pl_json_value *member, const char *key)
{
    return member->key_bytes == strlen(key) && memcmp(member->key, key, member->key_bytes) == 0;
}

static pl_status read_option(const pl_json_value *v, pl_chat_options *o, pl_error *err)
{
    char words[PL_JSON_WORDS_BYTES];
    pl_json_value key;
    unsigned value;

    if (has_key(v, "thinking_mode")) {
        PL_TRY(read_name(v, &mode_names, &value, err));
        o->mode = (pl_chat_mode)value;
        return PL_OK;
    }
    if (has_key(v, "revision")) {
        PL_TRY(read_name(v, &revision_names, &value, err));
        o->revision = (pl_chat_revision)value;
        return PL_OK;
    }
    if (has_key(v, "reasoning_effort")) {
        value = PL_CHAT_EFFORT_LOW;
        if (v->kind != PL_JSON_NULL)
            PL_TRY(read_name(v, &effort_names, &value, err));
        o->effort = (pl_chat_effort)value;
        return PL_OK;
    }
    if (has_key(v, "drop_thinking"))
        return read_flag(v, &o->drop_thinking, err);
    if (has_key(v, "add_default_bos_token"))
        return read_flag(v, &o->add_bos, err);
    key = (pl_json_value){.kind = PL_JSON_STRING, .text = v->key, .n = v->key_bytes};
    return pl_error_set(err, PL_ERR_INVALID,
                        "options: unknown key (got %s, want thinking_mode, revision, "
                        "reasoning_effort, drop_thinking, add_default_bos_token)",
                        pl_json_value_words(&key, words));
}

static pl_status read_options(const pl_json_value *document, pl_chat_options *o, pl_error *err)
{
    const pl_json_value *options = pl_json_value_get(document, "options");
    char words[PL_JSON_WORDS_BYTES];

    if (!options || options->kind == PL_JSON_NULL)
        return PL_OK;
    if (options->kind != PL_JSON_OBJECT)
        return pl_error_set(err, PL_ERR_INVALID, "options: are no options (got %s, want an object)",
                            pl_json_value_words(options, words));
    for (const pl_json_value *v = options->first; v; v = v->next)
        PL_TRY(read_option(v, o, err));
    return PL_OK;
}

pl_status pl_chat_options_read(const char *json, size_t json_bytes, pl_chat_options *options,
                               pl_error *err)
{
    pl_json_pool pool = {0};
    const pl_json_value *document;
    pl_chat_options result = *options;
    pl_status status = pl_json_value_parse(&pool, "conversation", json, json_bytes, &document, err);

    if (status == PL_OK)
        status = read_options(document, &result, err);
    if (status == PL_OK)
        *options = result;
    pl_json_pool_fini(&pool);
    return status;
}

pl_status pl_chat_options_set_effort(pl_chat_options *options, const char *effort, pl_error *err)
{
    static const struct {
        const char *name;
        pl_chat_effort effort;
    } known[] = {
        {"minimal", PL_CHAT_EFFORT_LOW}, {"low", PL_CHAT_EFFORT_LOW},
        {"medium", PL_CHAT_EFFORT_LOW},  {"high", PL_CHAT_EFFORT_HIGH},
        {"xhigh", PL_CHAT_EFFORT_HIGH},  {"max", PL_CHAT_EFFORT_MAX},
    };

    if (strcmp(effort, "none") == 0) {
        options->mode = PL_CHAT_MODE_CHAT;
        return PL_OK;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(effort, known[i].name) == 0) {
            options->effort = known[i].effort;
            return PL_OK;
        }
    }
    return pl_error_set(
        err, PL_ERR_INVALID,
        "reasoning_effort: unknown value (got '%.64s', want none, minimal, low, medium, "
        "high, xhigh, max)",
        effort);
}
