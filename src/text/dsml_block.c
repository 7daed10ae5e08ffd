/* The parser inside a block of tool calls (specification section 7.3):
 *
 *     <｜DSML｜tool_calls>
 *     <｜DSML｜invoke name="F">
 *     <｜DSML｜parameter name="K" string="true">text</｜DSML｜parameter>
 *     </｜DSML｜invoke>
 *     </｜DSML｜tool_calls>
 *
 * A call is told of as soon as its name is known, and its arguments as they come. So that nothing is lost when it
 * turns out malformed, the model's text since the last complete call is kept; it is then emitted as text, and the
 * parser looks for the next block. That text is not searched again, which keeps the time linear: only the
 * beginning of a tag that did not fit is, since it may begin another.
 *
 * White space between tags is forgiven, and noted; all else must be as above. */
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "text/chat_tokens.h"
#include "text/json_write.h"
#include "text/output_parser.h"

#define OPEN  "<" PL_TOK_DSML
#define CLOSE "</" PL_TOK_DSML

/* ---- choices ---- */

static void choose(pl_output_parser *p, pl_output_state state, const char *a, const char *b)
{
    p->choice = (pl_output_choice){.texts = {a, b}, .possible = 3};
    p->state = state;
}

/* Returns the text that is complete, 0 or 1; -1: none yet; -2: neither fits. */
static int choice_push(pl_output_choice *c, char byte)
{
    for (unsigned i = 0; i < 2; i++)
        if ((c->possible >> i & 1) && c->texts[i][c->matched] != byte)
            c->possible &= ~(1u << i);
    if (!c->possible)
        return -2;
    c->matched++;
    for (int i = 0; i < 2; i++)
        if ((c->possible >> i & 1) && c->texts[i][c->matched] == 0)
            return i;
    return -1;
}

/* ---- giving up ---- */

/* The call is malformed. The last `n_back` bytes read may begin something else and are read again as text. */
static void give_up(pl_output_parser *p, pl_output_note note, const char *text, size_t n,
                    size_t n_back)
{
    char again[PL_DSML_MAX_PATTERN];

    pl__output_note(p, note, text, n);
    p->call_open = false;
    p->raw.n -= n_back;
    memcpy(again, p->raw.bytes + p->raw.n, n_back);
    pl_json_buffer_put(pl__output_run(p, p->text_kind), p->raw.bytes, p->raw.n);
    pl_json_buffer_clear(&p->raw);
    pl__output_enter_text(p);
    for (size_t i = 0; i < n_back; i++)
        pl__output_text_byte(p, again[i]);
}

static void malformed(pl_output_parser *p, const char *why, size_t n_back)
{
    give_up(p, PL_NOTE_MALFORMED, why, strlen(why), n_back);
}

/* ---- calls ---- */

static pl_json_buffer *arguments(pl_output_parser *p)
{
    return pl__output_run(p, PL_OUTPUT_CALL_ARGUMENTS);
}

/* What follows a tag: the tags that may come inside or outside of a call. */
static void expect_tag(pl_output_parser *p, bool bracket, bool in_call, bool named)
{
    p->state = bracket ? PL_STATE_BRACKET : PL_STATE_SPACE;
    p->in_call = in_call;
    p->named = named;
    p->between = false;
    pl_json_buffer_clear(&p->space);
}

static void expect_attribute(pl_output_parser *p, bool is_parameter)
{
    p->state = PL_STATE_ATTRIBUTE_SPACE;
    p->is_parameter = is_parameter;
    pl_json_buffer_clear(&p->space);
    pl_json_buffer_clear(&p->name);
}

void pl__dsml_block_enter(pl_output_parser *p, const char *tag)
{
    pl_json_buffer_clear(&p->raw);
    pl_json_buffer_put_text(&p->raw, tag);
    if (*tag != '\n')
        pl__output_note(p, PL_NOTE_LOOSE_SPACING, tag, strlen(tag));
    expect_tag(p, true, false, false);
}

/* Calls end the reasoning, whether or not the model said so. */
static void leave_reasoning(pl_output_parser *p)
{
    if (p->text_kind == PL_OUTPUT_REASONING)
        pl__output_note_once(p, PL_NOTE_UNCLOSED_REASONING);
    p->text_kind = PL_OUTPUT_CONTENT;
}

static void start_call(pl_output_parser *p)
{
    char id[PL_OUTPUT_MAX_PREFIX + 24];

    leave_reasoning(p);
    if (p->calls_done)
        pl__output_note_once(p, PL_NOTE_TEXT_AFTER_CALLS);
    snprintf(id, sizeof id, "%s%zu", p->id_prefix, p->n_calls);
    pl__output_emit(p, (pl_output_event){
                           .kind = PL_OUTPUT_CALL_START,
                           .text = p->name.bytes,
                           .n_bytes = p->name.n,
                           .call = p->n_calls,
                           .id = id,
                       });
    p->n_calls++;
    p->call_open = true;
    p->n_keys = 0;
    pl_json_buffer_clear(&p->keys);
    expect_tag(p, false, true, true);
}

static void end_call(pl_output_parser *p)
{
    pl_json_buffer_put_text(arguments(p), p->n_keys ? "}" : "{}");
    pl__output_emit(p, (pl_output_event){.kind = PL_OUTPUT_CALL_END, .call = p->n_calls - 1});
    p->call_open = false;
    pl_json_buffer_clear(&p->raw);
    expect_tag(p, false, false, false);
    p->between = true;
}

static void end_block(pl_output_parser *p)
{
    leave_reasoning(p);
    pl_json_buffer_clear(&p->raw);
    p->calls_done = true;
    pl__output_enter_text(p);
}

/* ---- parameters ---- */

/* Remembers the key just read; false where this call has it already. */
static bool add_key(pl_output_parser *p)
{
    uint64_t hash = XXH3_64bits(p->name.n ? p->name.bytes : "", p->name.n);

    for (size_t i = 0; i < p->n_keys; i++) {
        p->scan.steps++;
        if (p->key_index[i].hash == hash && p->key_index[i].n == p->name.n &&
            (p->name.n == 0 ||
             memcmp(p->keys.bytes + p->key_index[i].begin, p->name.bytes, p->name.n) == 0))
            return false;
    }
    p->key_index[p->n_keys].hash = hash;
    p->key_index[p->n_keys].begin = (uint32_t)p->keys.n;
    p->key_index[p->n_keys].n = (uint32_t)p->name.n;
    p->n_keys++;
    pl_json_buffer_put(&p->keys, p->name.bytes, p->name.n);
    return true;
}

static void end_key(pl_output_parser *p)
{
    if (p->n_keys == PL_OUTPUT_MAX_PARAMETERS)
        malformed(p, "more than 1024 parameters", 1);
    else if (!add_key(p))
        give_up(p, PL_NOTE_DUPLICATE, p->name.bytes, p->name.n, 1);
    else
        choose(p, PL_STATE_TYPE, "true\">", "false\">");
}

static void start_value(pl_output_parser *p, bool is_string)
{
    pl_json_buffer *out = arguments(p);

    pl_json_buffer_put_text(out, p->n_keys == 1 ? "{" : ", ");
    pl_json_write_string(out, p->name.bytes, p->name.n);
    pl_json_buffer_put_text(out, is_string ? ": \"" : ": ");
    p->value_is_string = is_string;
    p->value_begin = p->raw.n;
    p->state = PL_STATE_VALUE;
    pl__dsml_scan_look_for(&p->scan, 1u << PL_SCAN_VALUE_END | 1u << PL_SCAN_VALUE_END_BARE |
                                         1u << PL_SCAN_EOS);
}

static bool is_json(const char *text, size_t n)
{
    pl_json_pool pool = {0};
    const pl_json_value *value;
    pl_status status = pl_json_value_parse(&pool, "", text, n, &value, NULL);

    pl_json_pool_fini(&pool);
    return status != PL_ERR_INVALID;
}

static void end_value(pl_output_parser *p)
{
    size_t n = p->raw.n - p->value_begin - strlen(CLOSE "parameter");

    if (p->value_is_string)
        pl_json_buffer_put_char(arguments(p), '"');
    else if (!is_json(p->raw.bytes + p->value_begin, n))
        pl__output_note(p, PL_NOTE_NOT_JSON, p->name.bytes, p->name.n);
    expect_tag(p, true, true, false);
}

static void value_byte(pl_output_parser *p, char byte)
{
    pl_dsml_step step = pl__dsml_scan_push(&p->scan, byte);
    pl_json_buffer *out = arguments(p);

    if (p->value_is_string) {
        pl_json_write_escaped(out, step.held, step.n_held);
        pl_json_write_escaped(out, &byte, step.byte_too);
    } else {
        pl_json_buffer_put(out, step.held, step.n_held);
        pl_json_buffer_put(out, &byte, step.byte_too);
    }
    if (step.match == PL_SCAN_VALUE_END)
        end_value(p);
    else if (step.match == PL_SCAN_EOS)
        malformed(p, "message ends in a value", strlen(PL_TOK_EOS));
    else if (step.match == PL_SCAN_VALUE_END_BARE)
        malformed(p, "no '<' before the end of a value", 1);
}

/* ---- tags ---- */

static bool is_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

static bool space_is(const pl_output_parser *p, const char *want)
{
    return p->space.n == strlen(want) && memcmp(p->space.bytes, want, p->space.n) == 0;
}

static void start_tag(pl_output_parser *p)
{
    if (p->in_call)
        choose(p, PL_STATE_TAG, OPEN "parameter", CLOSE "invoke>");
    else
        choose(p, PL_STATE_TAG, OPEN "invoke", CLOSE "tool_calls>");
}

/* The encoder writes an empty line where a call has no parameters. Between calls, the white space before a tag
 * is nobody's text. */
static void end_tag(pl_output_parser *p, int which)
{
    if (!space_is(p, "\n") && !(p->named && space_is(p, "\n\n")))
        pl__output_note(p, PL_NOTE_LOOSE_SPACING, p->space.bytes, p->space.n);
    if (p->between) {
        p->raw.n -= p->space.n;
        memmove(p->raw.bytes, p->raw.bytes + p->space.n, p->raw.n);
    }
    if (which == 0)
        expect_attribute(p, p->in_call);
    else if (p->in_call)
        end_call(p);
    else
        end_block(p);
}

static void start_name(pl_output_parser *p)
{
    if (!space_is(p, " "))
        pl__output_note(p, PL_NOTE_LOOSE_SPACING, p->space.bytes, p->space.n);
    p->state = p->is_parameter ? PL_STATE_KEY : PL_STATE_NAME;
    pl__dsml_scan_look_for(&p->scan, 1u << (p->is_parameter ? PL_SCAN_KEY_END : PL_SCAN_NAME_END) |
                                         1u << PL_SCAN_TAG | 1u << PL_SCAN_CLOSE_TAG);
}

static void name_byte(pl_output_parser *p, char byte)
{
    pl_dsml_step step = pl__dsml_scan_push(&p->scan, byte);

    pl_json_buffer_put(&p->name, step.held, step.n_held);
    pl_json_buffer_put(&p->name, &byte, step.byte_too);
    if (p->name.n > PL_OUTPUT_MAX_NAME)
        malformed(p, "name is longer than 1024 bytes", 1);
    else if (step.match == PL_SCAN_NAME_END)
        start_call(p);
    else if (step.match == PL_SCAN_KEY_END)
        end_key(p);
    else if (step.match >= 0)
        malformed(p, "tag inside a name", strlen(step.match == PL_SCAN_TAG ? OPEN : CLOSE));
}

static void choice_byte(pl_output_parser *p, char byte)
{
    size_t n_back = p->choice.matched + 1;
    int which = choice_push(&p->choice, byte);

    if (which == -2)
        malformed(p, p->state == PL_STATE_TAG ? "no tag that may stand here" : "bad attribute",
                  n_back);
    else if (which >= 0 && p->state == PL_STATE_TAG)
        end_tag(p, which);
    else if (which >= 0 && p->state == PL_STATE_ATTRIBUTE)
        start_name(p);
    else if (which >= 0)
        start_value(p, which == 0);
}

/* White space, or the first byte of what follows it. */
static void space_byte(pl_output_parser *p, char byte)
{
    if (is_space(byte)) {
        pl_json_buffer_put_char(&p->space, byte);
        return;
    }
    if (p->state == PL_STATE_SPACE)
        start_tag(p);
    else
        choose(p, PL_STATE_ATTRIBUTE, "name=\"", "name=\"");
    choice_byte(p, byte);
}

void pl__dsml_block_byte(pl_output_parser *p, char byte)
{
    pl_json_buffer_put_char(&p->raw, byte);
    if (p->raw.failed != PL_OK)
        return;
    if (p->raw.n > p->options.max_call_bytes) {
        malformed(p, "call is too long", 1);
        return;
    }
    switch (p->state) {
    case PL_STATE_BRACKET:
        if (byte == '>')
            p->state = PL_STATE_SPACE;
        else
            malformed(p, "no '>' at the end of a tag", 1);
        return;
    case PL_STATE_SPACE:
    case PL_STATE_ATTRIBUTE_SPACE:
        space_byte(p, byte);
        return;
    case PL_STATE_TAG:
    case PL_STATE_ATTRIBUTE:
    case PL_STATE_TYPE:
        choice_byte(p, byte);
        return;
    case PL_STATE_NAME:
    case PL_STATE_KEY:
        name_byte(p, byte);
        return;
    case PL_STATE_VALUE:
        value_byte(p, byte);
        return;
    case PL_STATE_TEXT:
        return;
    }
}

void pl__dsml_block_finish(pl_output_parser *p)
{
    pl__output_note(p, PL_NOTE_TRUNCATED, p->raw.bytes, p->raw.n);
}
