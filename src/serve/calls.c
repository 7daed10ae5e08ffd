/* Tools of a request, as far as enforced calls need them: names, names of parameters, and whether those are text. */
#include <stdlib.h>
#include <string.h>

#include "serve/form.h"

/* Names stand in tags, between quotes. */
static bool is_name(const char *name)
{
    const size_t n = name ? strlen(name) : 0;

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] <= 0x20 || (unsigned char)name[i] >= 0x7F ||
            strchr("\"<>\\", name[i]))
            return false;
    return n > 0 && n <= PL_CALLS_MAX_NAME;
}

static bool refuse(pl_fault *fault, const char *what, const char *name, const char *want)
{
    return pl_fault_set(fault, 400, "tools",
                        "tools: %s (got '%.80s', want %s where calls are enforced)", what,
                        name ? name : "none", want);
}

static void read_type(pl_calls_parameter *p, const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));

    p->as_text = !type || strcmp(type, "string") == 0;
    p->as_json = !type || strcmp(type, "string") != 0;
}

static bool is_required(const json_t *schema, const char *name)
{
    const json_t *list = json_object_get(schema, "required");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text && strcmp(text, name) == 0)
            return true;
    }
    return false;
}

static bool add_parameters(pl_calls *c, pl_calls_tool *t, const json_t *schema, pl_fault *fault)
{
    json_t *properties = json_object_get(schema, "properties"), *value;
    const size_t n = json_object_size(properties);
    const char *name;

    if (n > PL_CALLS_MAX_PARAMETERS)
        return refuse(fault, "too many properties of a function", t->name, "at most 31");
    t->parameters = calloc(n + 1, sizeof *t->parameters);
    if (!t->parameters)
        return pl_fault_set(fault, 500, "", "out of memory");
    c->bytes += (n + 1) * sizeof *t->parameters;
    json_object_foreach(properties, name, value)
    {
        pl_calls_parameter *p = &t->parameters[t->n_parameters];

        if (!is_name(name))
            return refuse(fault, "not a name of a property", name, "1 to 64 plain characters");
        memcpy(p->name, name, strlen(name));
        p->n_name = (uint8_t)strlen(name);
        read_type(p, value);
        t->required |= (uint32_t)is_required(schema, name) << t->n_parameters++;
    }
    return true;
}

static bool add_tool(pl_calls *c, const json_t *tool, const char *only, pl_fault *fault)
{
    const json_t *function = json_object_get(tool, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    pl_calls_tool *t = &c->tools[c->n_tools];

    if (only && (!name || strcmp(only, name) != 0))
        return true;
    if (!is_name(name))
        return refuse(fault, "not a name of a function", name, "1 to 64 plain characters");
    for (int i = 0; i < c->n_tools; i++)
        if (c->tools[i].n_name == strlen(name) && memcmp(c->tools[i].name, name, strlen(name)) == 0)
            return refuse(fault, "a function twice", name, "each once");
    if (c->n_tools == PL_CALLS_MAX_TOOLS)
        return refuse(fault, "too many functions", name, "at most 63");
    memcpy(t->name, name, strlen(name));
    t->n_name = (uint8_t)strlen(name);
    c->n_tools++;
    return add_parameters(c, t, json_object_get(function, "parameters"), fault);
}

pl_calls *pl_calls_create(const json_t *tools, const char *name, bool one, pl_fault *fault)
{
    pl_calls *c = calloc(1, sizeof *c);
    bool ok = true;

    if (!c) {
        (void)pl_fault_set(fault, 500, "", "out of memory");
        return NULL;
    }
    c->one = one;
    c->bytes = sizeof *c;
    for (size_t i = 0; i < json_array_size(tools) && ok; i++)
        ok = add_tool(c, json_array_get(tools, i), name, fault);
    if (ok && c->n_tools == 0)
        ok = name ? pl_fault_set(fault, 400, "tool_choice",
                                 "tool_choice: no tool of that name (got '%.80s')", name)
                  : pl_fault_set(fault, 400, "tool_choice", "tool_choice: there are no tools");
    if (ok)
        return c;
    pl_calls_destroy(c);
    return NULL;
}

void pl_calls_destroy(pl_calls *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_tools; i++)
        free(c->tools[i].parameters);
    free(c);
}
