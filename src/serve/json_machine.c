/* States are named after what they wait for. A container's kind is a bit on a stack that fits a word, so that a machine is
 * copied like a number. */
#include "serve/json_machine.h"

#include <stddef.h>

enum { MAX_SPACE = 128, MAX_DIGITS = 18, MAX_FRACTION = 40, MAX_EXPONENT = 2 };

typedef enum state {
    OBJECT,       /* the brace of an object */
    VALUE,        /* a value */
    VALUE_OR_END, /* behind [ */
    KEY_OR_END,   /* behind { */
    KEY,          /* behind the comma of an object */
    COLON,
    STRING,
    ESCAPE,
    HEX_1, /* four digits of an escape to come */
    HEX_2,
    HEX_2_D, /* behind a d: a surrogate or not */
    HEX_3,
    HEX_4,
    HIGH_3, /* of a high surrogate */
    HIGH_4,
    PAIR, /* the backslash of the low one, and on */
    PAIR_U,
    PAIR_D,
    PAIR_C,
    DIGIT, /* behind a minus */
    ZERO,
    WHOLE,
    FRACTION_DIGIT,
    FRACTION,
    EXPONENT_SIGN,
    EXPONENT_DIGIT,
    EXPONENT,
    WORD,
    AFTER, /* a value is complete */
    N_STATES
} state;

/* Bytes to the end of the value being read, without those that close containers; words count apart. */
static const uint8_t rest[N_STATES] = {
    [OBJECT] = 2,         [VALUE] = 1,  [KEY] = 4,    [COLON] = 2,          [STRING] = 1,
    [ESCAPE] = 2,         [HEX_1] = 5,  [HEX_2] = 4,  [HEX_2_D] = 4,        [HEX_3] = 3,
    [HEX_4] = 2,          [HIGH_3] = 9, [HIGH_4] = 8, [PAIR] = 7,           [PAIR_U] = 6,
    [PAIR_D] = 5,         [PAIR_C] = 4, [DIGIT] = 1,  [FRACTION_DIGIT] = 1, [EXPONENT_SIGN] = 1,
    [EXPONENT_DIGIT] = 1,
};

pl_json_machine pl_json_machine_value(void)
{
    return (pl_json_machine){.state = VALUE};
}

pl_json_machine pl_json_machine_object(void)
{
    return (pl_json_machine){.state = OBJECT};
}

static bool is_digit(unsigned char b)
{
    return b >= '0' && b <= '9';
}

static bool is_hex(unsigned char b)
{
    return is_digit(b) || ((b | 32) >= 'a' && (b | 32) <= 'f');
}

static bool in_object(const pl_json_machine *m)
{
    return m->depth && (m->objects >> (m->depth - 1) & 1);
}

static bool go(pl_json_machine *m, state s)
{
    m->state = (uint8_t)s;
    return true;
}

static bool go_if(pl_json_machine *m, bool condition, state s)
{
    return condition && go(m, s);
}

/* ---- strings */

static bool begin_string(pl_json_machine *m, bool in_key)
{
    m->in_key = in_key;
    m->bar = 0;
    return go(m, STRING);
}

static bool push_string(pl_json_machine *m, unsigned char b)
{
    if (b == '"') {
        const bool was_key = m->in_key;
        m->in_key = 0;
        return go(m, was_key ? COLON : AFTER);
    }
    if (b == '\\')
        return go(m, ESCAPE);
    if (b < 0x20 || (m->bar == 2 && b == 0x9C))
        return false;
    m->bar = b == 0xEF ? 1 : m->bar == 1 && b == 0xBD ? 2 : 0;
    return true;
}

static bool push_escape(pl_json_machine *m, unsigned char b)
{
    m->bar = 0;
    switch (b) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return go(m, STRING);
    case 'u':
        return go(m, HEX_1);
    default:
        return false;
    }
}

static bool push_hex(pl_json_machine *m, unsigned char b)
{
    const unsigned char low = b | 32;

    switch ((state)m->state) {
    case HEX_1:
        return go_if(m, is_hex(b), low == 'd' ? HEX_2_D : HEX_2);
    case HEX_2:
        return go_if(m, is_hex(b), HEX_3);
    case HEX_2_D:
        return is_digit(b) && b < '8' ? go(m, HEX_3)
                                      : go_if(m, is_digit(b) || low == 'a' || low == 'b', HIGH_3);
    case HEX_3:
        return go_if(m, is_hex(b), HEX_4);
    case HEX_4:
        return go_if(m, is_hex(b), STRING);
    case HIGH_3:
        return go_if(m, is_hex(b), HIGH_4);
    case HIGH_4:
        return go_if(m, is_hex(b), PAIR);
    case PAIR:
        return go_if(m, b == '\\', PAIR_U);
    case PAIR_U:
        return go_if(m, b == 'u', PAIR_D);
    case PAIR_D:
        return go_if(m, low == 'd', PAIR_C);
    default:
        return go_if(m, low >= 'c' && low <= 'f', HEX_3);
    }
}

/* ---- containers */

static bool open_container(pl_json_machine *m, bool object)
{
    if (m->depth == PL_JSON_MACHINE_DEPTH)
        return false;
    m->objects &= ~((uint64_t)1 << m->depth);
    m->objects |= (uint64_t)object << m->depth;
    m->depth++;
    return go(m, object ? KEY_OR_END : VALUE_OR_END);
}

static bool close_container(pl_json_machine *m, unsigned char b)
{
    if (!m->depth || b != (in_object(m) ? '}' : ']'))
        return false;
    m->depth--;
    return go(m, AFTER);
}

static bool push_after(pl_json_machine *m, unsigned char b)
{
    if (b == ',')
        return go_if(m, m->depth > 0, in_object(m) ? KEY : VALUE);
    return close_container(m, b);
}

/* ---- values */

static bool begin_word(pl_json_machine *m, const char *left)
{
    m->word = left;
    return go(m, WORD);
}

static bool begin_value(pl_json_machine *m, unsigned char b)
{
    m->n_digits = 1;
    switch (b) {
    case '{':
    case '[':
        return open_container(m, b == '{');
    case '"':
        return begin_string(m, false);
    case 't':
        return begin_word(m, "rue");
    case 'f':
        return begin_word(m, "alse");
    case 'n':
        return begin_word(m, "ull");
    case '-':
        return go(m, DIGIT);
    case '0':
        return go(m, ZERO);
    default:
        return go_if(m, is_digit(b), WHOLE);
    }
}

/* One more digit, where there may be `most`. */
static bool digit(pl_json_machine *m, int most)
{
    return m->n_digits++ < most;
}

static bool number_goes_on(pl_json_machine *m, unsigned char b)
{
    if (b == '.' && (m->state == ZERO || m->state == WHOLE)) {
        m->n_digits = 0;
        return go(m, FRACTION_DIGIT);
    }
    if ((b | 32) == 'e' && m->state != EXPONENT) {
        m->n_digits = 0;
        return go(m, EXPONENT_SIGN);
    }
    return push_after(m, b);
}

static bool push_number(pl_json_machine *m, unsigned char b)
{
    if (!is_digit(b))
        return m->state == EXPONENT_SIGN && (b == '+' || b == '-') ? go(m, EXPONENT_DIGIT)
               : m->state == DIGIT || m->state == FRACTION_DIGIT || m->state == EXPONENT_SIGN ||
                       m->state == EXPONENT_DIGIT
                   ? false
                   : number_goes_on(m, b);
    switch ((state)m->state) {
    case DIGIT:
        return go(m, b == '0' ? ZERO : WHOLE);
    case ZERO:
        return false;
    case WHOLE:
        return digit(m, MAX_DIGITS);
    case FRACTION_DIGIT:
    case FRACTION:
        return digit(m, MAX_FRACTION) && go(m, FRACTION);
    default:
        return digit(m, MAX_EXPONENT) && go(m, EXPONENT);
    }
}

static bool push_word(pl_json_machine *m, unsigned char b)
{
    if (b != (unsigned char)*m->word)
        return false;
    m->word++;
    return *m->word ? true : go(m, AFTER);
}

/* ---- the machine */

static bool is_space(unsigned char b)
{
    return b == ' ' || b == '\n' || b == '\r' || b == '\t';
}

/* White space stands between tokens; it ends a number. Behind the whole value there is none. */
static bool takes_space(const pl_json_machine *m)
{
    switch ((state)m->state) {
    case VALUE:
    case VALUE_OR_END:
    case KEY_OR_END:
    case KEY:
    case COLON:
        return true;
    case AFTER:
    case ZERO:
    case WHOLE:
    case FRACTION:
    case EXPONENT:
        return m->depth > 0;
    default:
        return false;
    }
}

static bool push_space(pl_json_machine *m)
{
    if (m->n_space == MAX_SPACE)
        return false;
    m->n_space++;
    if (m->state >= ZERO && m->state <= EXPONENT)
        m->state = AFTER;
    return true;
}

bool pl_json_machine_push(pl_json_machine *m, unsigned char b)
{
    if (is_space(b) && takes_space(m))
        return push_space(m);
    m->n_space = 0;
    switch ((state)m->state) {
    case OBJECT:
        return b == '{' && open_container(m, true);
    case VALUE:
        return begin_value(m, b);
    case VALUE_OR_END:
        return b == ']' ? close_container(m, b) : begin_value(m, b);
    case KEY_OR_END:
        return b == '}' ? close_container(m, b) : b == '"' && begin_string(m, true);
    case KEY:
        return b == '"' && begin_string(m, true);
    case COLON:
        return go_if(m, b == ':', VALUE);
    case STRING:
        return push_string(m, b);
    case ESCAPE:
        return push_escape(m, b);
    case WORD:
        return push_word(m, b);
    case AFTER:
        return push_after(m, b);
    default:
        return m->state < DIGIT ? push_hex(m, b) : push_number(m, b);
    }
}

int pl_json_machine_distance(const pl_json_machine *m)
{
    int n = rest[m->state] + m->depth;

    if (m->in_key)
        n += 2; /* a colon and a digit */
    if (m->state == WORD)
        for (const char *c = m->word; *c; c++)
            n++;
    return n;
}

bool pl_json_machine_may_end(const pl_json_machine *m)
{
    return pl_json_machine_distance(m) == 0;
}

bool pl_json_machine_in_string(const pl_json_machine *m)
{
    return m->state == STRING && m->bar == 0;
}
