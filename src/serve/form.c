/* Outside of values a form is a row of tags, of which at most 63 can come at a place. They are compared byte by byte, all at
 * once; none begins another. The bar U+FF5C comes in tags and nowhere else, so that no value can look like one. */
#include "serve/form.h"

#include <string.h>

#define DSML       \
    "\xEF\xBD\x9C" \
    "DSML"         \
    "\xEF\xBD\x9C"
#define INVOKE "<" DSML "invoke name=\""

static const char open_calls[] = "\n\n<" DSML "tool_calls>\n" INVOKE, next_call[] = INVOKE;
static const char close_calls[] = "</" DSML "tool_calls>", close_call[] = "</" DSML "invoke>\n";
static const char close_value[] = "</" DSML "parameter>\n", think_end[] = "</think>";
static const char open_value[] = "<" DSML "parameter name=\"", name_end[] = "\">\n";
static const char text_end[] = "\" string=\"true\">", json_end[] = "\" string=\"false\">";

typedef enum phase {
    THINKING,
    EITHER, /* an object or calls */
    JSON,
    OPEN,
    NAME,
    BODY,  /* of a call: a parameter or its end */
    AFTER, /* a call: another or the end of all */
    TEXT_VALUE,
    JSON_VALUE,
    VALUE_END,
    END
} phase;

/* A tag: three texts in a row, the second of them a name. */
typedef struct tag {
    const char *first, *name, *last;
    int32_t n_first, n_name, n_last;
} tag;

static tag fixed(const char *text)
{
    return (tag){.first = text, .n_first = (int32_t)strlen(text), .name = "", .last = ""};
}

static int32_t tag_bytes(const tag *t)
{
    return t->n_first + t->n_name + t->n_last;
}

static char tag_byte(const tag *t, int32_t i)
{
    if (i < t->n_first)
        return t->first[i];
    i -= t->n_first;
    return i < t->n_name ? t->name[i] : t->last[i - t->n_name];
}

/* ---- what can come */

static const pl_calls_tool *tool_of(const pl_form *f, const pl_form_state *s)
{
    return &f->calls->tools[s->tool];
}

static tag parameter_tag(const pl_calls_parameter *p, bool as_text)
{
    const char *last = as_text ? text_end : json_end;

    return (tag){open_value,           p->name, last, (int32_t)sizeof open_value - 1, p->n_name,
                 (int32_t)strlen(last)};
}

/* Tag i of a phase. Of a body: parameters as text, then as JSON, by turns; then the end. */
static tag tag_at(const pl_form *f, const pl_form_state *s, int i)
{
    const pl_calls_tool *t;

    switch ((phase)s->phase) {
    case OPEN:
        return fixed(open_calls);
    case NAME:
        t = &f->calls->tools[i];
        return (tag){"", t->name, name_end, 0, t->n_name, (int32_t)sizeof name_end - 1};
    case BODY:
        t = tool_of(f, s);
        return i == 2 * t->n_parameters ? fixed(close_call)
                                        : parameter_tag(&t->parameters[i / 2], i % 2 == 0);
    case AFTER:
        return fixed(i ? next_call : close_calls);
    default:
        return fixed(close_value);
    }
}

static uint64_t possible_in_body(const pl_calls_tool *t, uint32_t used)
{
    uint64_t possible = 0;

    for (int i = 0; i < t->n_parameters; i++)
        if (!(used >> i & 1))
            possible |= (uint64_t)t->parameters[i].as_text << 2 * i |
                        (uint64_t)t->parameters[i].as_json << (2 * i + 1);
    if (!(t->required & ~used))
        possible |= (uint64_t)1 << 2 * t->n_parameters;
    return possible;
}

static bool enter(const pl_form *f, pl_form_state *s, phase p)
{
    s->phase = (uint8_t)p;
    s->at = s->bar = 0;
    s->possible = p == NAME                      ? ((uint64_t)1 << f->calls->n_tools) - 1
                  : p == BODY                    ? possible_in_body(tool_of(f, s), s->used)
                  : p == AFTER && !f->calls->one ? 3
                                                 : 1;
    return true;
}

static bool enter_answer(const pl_form *f, pl_form_state *s)
{
    s->json = pl_json_machine_object();
    return enter(f, s, f->json && f->calls ? EITHER : f->json ? JSON : OPEN);
}

pl_form_state pl_form_begin(const pl_form *form)
{
    pl_form_state s = {0};

    if (!form->thinking)
        (void)enter_answer(form, &s);
    return s;
}

/* ---- bytes */

/* Tag i is complete. */
static bool take(const pl_form *f, pl_form_state *s, int i)
{
    switch ((phase)s->phase) {
    case OPEN:
        return enter(f, s, NAME);
    case NAME:
        s->tool = (uint8_t)i;
        s->used = 0;
        return enter(f, s, BODY);
    case BODY:
        if (i == 2 * tool_of(f, s)->n_parameters)
            return enter(f, s, AFTER);
        s->used |= 1u << i / 2;
        s->json = pl_json_machine_value();
        return enter(f, s, i % 2 == 0 ? TEXT_VALUE : JSON_VALUE);
    case AFTER:
        return enter(f, s, i ? NAME : END);
    default:
        return enter(f, s, BODY);
    }
}

static bool push_tag(const pl_form *f, pl_form_state *s, unsigned char b)
{
    uint64_t left = 0;

    for (uint64_t rest = s->possible; rest; rest &= rest - 1) {
        const int i = __builtin_ctzll(rest);
        const tag t = tag_at(f, s, i);

        if ((unsigned char)tag_byte(&t, s->at) != b)
            continue;
        if (s->at + 1 == tag_bytes(&t))
            return take(f, s, i);
        left |= (uint64_t)1 << i;
    }
    s->possible = left;
    s->at++;
    return left != 0;
}

/* Any text up to `end`, whose first byte comes in it once. With the bar in it there is no way back. */
static bool push_text(pl_form_state *s, const char *end, int32_t bar_at, unsigned char b)
{
    if ((unsigned char)end[s->at] == b) {
        s->at++;
        s->bar = s->at == bar_at - 2 && bar_at ? 1 : s->at == bar_at - 1 && bar_at ? 2 : 0;
        return true;
    }
    if ((bar_at && s->at >= bar_at) || (s->bar == 2 && b == 0x9C))
        return false;
    s->bar = b == 0xEF ? 1 : s->bar == 1 && b == 0xBD ? 2 : 0;
    s->at = (unsigned char)end[0] == b;
    return true;
}

bool pl_form_push(const pl_form *f, pl_form_state *s, unsigned char b)
{
    switch ((phase)s->phase) {
    case THINKING:
        return push_text(s, think_end, 0, b) && (think_end[s->at] || enter_answer(f, s));
    case EITHER:
        return enter(f, s, b == '{' ? JSON : OPEN) && pl_form_push(f, s, b);
    case JSON:
        if (!pl_json_machine_push(&s->json, b))
            return false;
        return !pl_json_machine_may_end(&s->json) || enter(f, s, END);
    case TEXT_VALUE: /* the bar of its end is bytes 3 to 5 */
        return push_text(s, close_value, 5, b) && (close_value[s->at] || enter(f, s, BODY));
    case JSON_VALUE:
        if (b == '<' && pl_json_machine_may_end(&s->json))
            return enter(f, s, VALUE_END) && push_tag(f, s, b);
        return pl_json_machine_push(&s->json, b);
    case END:
        return false;
    default:
        return push_tag(f, s, b);
    }
}

/* ---- distances */

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* A parameter with the shortest value there is. */
static int32_t parameter_bytes(const pl_calls_parameter *p)
{
    const tag t = parameter_tag(p, p->as_text);

    return tag_bytes(&t) + !p->as_text + (int32_t)sizeof close_value - 1;
}

static int32_t body_distance(const pl_calls_tool *t, uint32_t used)
{
    int32_t n = (int32_t)(sizeof close_call - 1 + sizeof close_calls - 1);

    for (int i = 0; i < t->n_parameters; i++)
        if ((t->required & ~used) >> i & 1)
            n += parameter_bytes(&t->parameters[i]);
    return n;
}

static int32_t name_distance(const pl_calls *c)
{
    int32_t n = INT32_MAX;

    for (int i = 0; i < c->n_tools; i++)
        n = least(n, c->tools[i].n_name + (int32_t)sizeof name_end - 1 +
                         body_distance(&c->tools[i], 0));
    return n;
}

/* From behind tag i. */
static int32_t behind(const pl_form *f, const pl_form_state *s, int i)
{
    pl_form_state next = *s;

    (void)take(f, &next, i);
    switch ((phase)next.phase) {
    case NAME:
        return name_distance(f->calls);
    case TEXT_VALUE:
    case JSON_VALUE:
        return (next.phase == JSON_VALUE) + (int32_t)sizeof close_value - 1 +
               body_distance(tool_of(f, &next), next.used);
    case BODY:
        return body_distance(tool_of(f, &next), next.used);
    case AFTER:
        return (int32_t)sizeof close_calls - 1;
    default:
        return 0;
    }
}

static int32_t tags_distance(const pl_form *f, const pl_form_state *s)
{
    int32_t n = INT32_MAX;

    for (uint64_t rest = s->possible; rest; rest &= rest - 1) {
        const int i = __builtin_ctzll(rest);
        const tag t = tag_at(f, s, i);

        n = least(n, tag_bytes(&t) - s->at + behind(f, s, i));
    }
    return n;
}

static int32_t answer_distance(const pl_form *f)
{
    return f->json ? 2 : (int32_t)sizeof open_calls - 1 + name_distance(f->calls);
}

int32_t pl_form_distance(const pl_form *f, const pl_form_state *s)
{
    switch ((phase)s->phase) {
    case THINKING:
        return (int32_t)sizeof think_end - 1 - s->at + answer_distance(f);
    case EITHER:
        return answer_distance(f);
    case JSON:
        return pl_json_machine_distance(&s->json);
    case TEXT_VALUE:
        return (int32_t)sizeof close_value - 1 - s->at + body_distance(tool_of(f, s), s->used);
    case JSON_VALUE:
        return pl_json_machine_distance(&s->json) + (int32_t)sizeof close_value - 1 +
               body_distance(tool_of(f, s), s->used);
    case END:
        return 0;
    default:
        return tags_distance(f, s);
    }
}

/* The worst byte begins a whole call, or leads away from the shortest name. */
int32_t pl_form_max_growth(const pl_form *f)
{
    int32_t n = 8;

    if (!f->calls)
        return n;
    for (int i = 0; i < f->calls->n_tools; i++)
        n = body_distance(&f->calls->tools[i], 0) > n ? body_distance(&f->calls->tools[i], 0) : n;
    return n + answer_distance(&(pl_form){.calls = f->calls}) + 4 * PL_CALLS_MAX_NAME;
}

pl_form_place pl_form_place_of(const pl_form_state *s)
{
    switch ((phase)s->phase) {
    case THINKING:
    case TEXT_VALUE:
        return s->at == 0 && s->bar == 0 ? PL_FORM_IN_TEXT : PL_FORM_ELSEWHERE;
    case JSON:
    case JSON_VALUE:
        return pl_json_machine_in_string(&s->json) ? PL_FORM_IN_STRING : PL_FORM_ELSEWHERE;
    default:
        return PL_FORM_ELSEWHERE;
    }
}
