/* The form an answer must have, byte by byte: a JSON object, or tool calls, behind the reasoning where there is some.
 *
 * Calls name tools that were given, their parameters are properties of the tool, each at most once, those required all
 * there; values are text or JSON as the property's type says, and not held against its schema otherwise. Source:
 * docs/CHAT.md, specification section 7.3. */
#ifndef PL_SERVE_FORM_H
#define PL_SERVE_FORM_H

#include "serve/fields.h"
#include "serve/json_machine.h"

enum {
    PL_CALLS_MAX_TOOLS = 63,
    PL_CALLS_MAX_PARAMETERS = 31, /* of a tool */
    PL_CALLS_MAX_NAME = 64
};

typedef struct pl_calls_parameter {
    char name[PL_CALLS_MAX_NAME];
    uint8_t n_name;
    bool as_text, as_json; /* at least one */
} pl_calls_parameter;

typedef struct pl_calls_tool {
    char name[PL_CALLS_MAX_NAME];
    uint8_t n_name;
    int n_parameters;
    pl_calls_parameter *parameters; /* owned */
    uint32_t required;              /* bit i: parameter i */
} pl_calls_tool;

typedef struct pl_calls {
    pl_calls_tool tools[PL_CALLS_MAX_TOOLS];
    int n_tools;
    bool one; /* call, no more */
    uint64_t bytes;
} pl_calls;

/* From the `tools` of a request; only the one of that name where `name` is not NULL. NULL with *fault where there is none
 * of that name, or what cannot be enforced. */
pl_calls *pl_calls_create(const json_t *tools, const char *name, bool one, pl_fault *fault);
void pl_calls_destroy(pl_calls *calls);

typedef struct pl_form {
    bool thinking;         /* it begins inside the reasoning */
    bool json;             /* an object */
    const pl_calls *calls; /* calls; beside `json` either of them. Borrowed */
} pl_form;

typedef struct pl_form_state {
    uint8_t phase, bar, tool;
    bool forced; /* pl_mask_run's */
    uint16_t at; /* bytes of a tag that were read */
    uint32_t used;
    uint64_t possible; /* tags that it can be */
    pl_json_machine json;
} pl_form_state;

pl_form_state pl_form_begin(const pl_form *form);

/* False where the byte may not come; the state is then of no use. */
bool pl_form_push(const pl_form *form, pl_form_state *s, unsigned char byte);

/* Bytes of the shortest end; 0: the form is complete and nothing may follow. Where it is more than 0 some byte makes it
 * less. */
int32_t pl_form_distance(const pl_form *form, const pl_form_state *s);

/* No byte makes the distance larger by more than this. */
int32_t pl_form_max_growth(const pl_form *form);

typedef enum pl_form_place {
    PL_FORM_ELSEWHERE,
    PL_FORM_IN_STRING, /* what has no quote, backslash, control character nor byte EF changes nothing */
    PL_FORM_IN_TEXT /* what has no < nor byte EF changes nothing */
} pl_form_place;

pl_form_place pl_form_place_of(const pl_form_state *s);

#endif
