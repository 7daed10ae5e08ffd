/* From messages to turns. The model knows no tool messages: their results stand in user turns, in the order
 * of the calls they answer (specification section 7.2).
 *
 * Two rules are the vendor's, odd as they look, since the model saw prompts made by them: user text never
 * joins a user turn that has a task, results do; and a user message that joins another loses its task. */
#include "text/chat_turns.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/chat_message.h"

/* ---- folding ---- */

static pl_status add_part(pl_json_pool *pool, pl_chat_turn *turn, bool is_result,
                          const pl_json_value *content, const pl_json_value *call_id, pl_error *err)
{
    pl_chat_part *part = pl_json_pool_take(pool, 1, sizeof *part);

    if (!part)
        return pl_error_set(err, PL_ERR_NOMEM, "messages: out of memory");
    *part = (pl_chat_part){NULL, is_result, content, call_id};
    *turn->last_part = part;
    turn->last_part = &part->next;
    turn->n_results += is_result;
    return PL_OK;
}

/* Adds the checked message to the last turn or as a new one. */
static pl_status fold(pl_json_pool *pool, pl_chat_turns *turns, const pl_chat_turn *message,
                      const pl_json_value *call_id, pl_error *err)
{
    pl_chat_turn *last = turns->n ? &turns->turns[turns->n - 1] : NULL;
    bool is_result = message->role == PL_ROLE_TOOL;

    if (!is_result && message->role != PL_ROLE_USER) {
        turns->turns[turns->n++] = *message;
        return PL_OK;
    }
    if (!last || last->role != PL_ROLE_USER || (last->task && !is_result)) {
        last = &turns->turns[turns->n++];
        last->role = PL_ROLE_USER;
        last->task = is_result ? NULL : message->task;
        last->last_part = &last->parts;
    }
    return add_part(pool, last, is_result, message->content, call_id, err);
}

/* Tools and format of a request belong to its leading system or developer message; without one, an empty
 * system message is put first. */
static pl_status add_request_extras(const pl_json_value *document, pl_chat_turns *turns,
                                    pl_error *err)
{
    const pl_json_value *tools = pl__chat_unless_null(pl_json_value_get(document, "tools"));
    const pl_json_value *format = pl_json_value_get(document, "response_format");
    pl_chat_turn *head;

    if (tools)
        PL_TRY(pl__chat_tools_check(tools, "tools", err));
    if (tools && tools->n == 0)
        tools = NULL;
    PL_TRY(pl__chat_format_check(format, true, "response_format", &format, err));
    if (!tools && !format)
        return PL_OK;
    head = &turns->turns[0];
    if (head->role != PL_ROLE_SYSTEM && head->role != PL_ROLE_DEVELOPER) {
        memmove(head + 1, head, turns->n * sizeof *head);
        turns->n++;
        *head = (pl_chat_turn){.role = PL_ROLE_SYSTEM};
    }
    if ((tools && head->tools) || (format && head->response_format))
        return pl_error_set(
            err, PL_ERR_INVALID,
            "%s: given twice (got it beside the messages and in messages[0], want one)",
            tools && head->tools ? "tools" : "response_format");
    head->tools = tools ? tools : head->tools;
    head->response_format = format ? format : head->response_format;
    return PL_OK;
}

/* Messages before the first that is none: reading stops there, so no more can become turns, and a list of
 * something else costs no memory for them. */
static size_t count_messages(const pl_json_value *messages)
{
    size_t n = 0;

    for (const pl_json_value *m = messages->first; m && m->kind == PL_JSON_OBJECT; m = m->next)
        n++;
    return n;
}

pl_status pl__chat_turns_read(pl_json_pool *pool, const pl_json_value *document, pl_chat_turns *out,
                              pl_error *err)
{
    const pl_json_value *messages = document;
    char words[PL_JSON_WORDS_BYTES];
    size_t i = 0;

    if (document->kind == PL_JSON_OBJECT)
        messages = pl_json_value_get(document, "messages");
    if (!messages || messages->kind != PL_JSON_ARRAY || messages->n == 0)
        return pl_error_set(
            err, PL_ERR_INVALID, "messages: there are none (got %s, want a list of messages)",
            messages && messages->kind == PL_JSON_ARRAY ? "an empty list"
                                                        : pl_json_value_words(messages, words));
    out->n = 0;
    out->turns = pl_json_pool_take(pool, count_messages(messages) + 1, sizeof *out->turns);
    if (!out->turns)
        return pl_error_set(err, PL_ERR_NOMEM, "messages: out of memory");
    for (const pl_json_value *m = messages->first; m; m = m->next, i++) {
        pl_chat_turn turn = {.role = PL_ROLE_SYSTEM};
        const pl_json_value *call_id;
        PL_TRY(pl__chat_message_read(m, i, &turn, &call_id, err));
        PL_TRY(fold(pool, out, &turn, call_id, err));
    }
    return document->kind == PL_JSON_OBJECT ? add_request_extras(document, out, err) : PL_OK;
}

/* ---- sorting results ---- */

/* A call's id and its place among the calls. */
typedef struct call_id {
    const pl_json_value *id;
    size_t place;
} call_id;

static int compare_text(const pl_json_value *x, const pl_json_value *y)
{
    size_t n = x->n < y->n ? x->n : y->n;
    int c = n ? memcmp(x->text, y->text, n) : 0;

    return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

static int compare_ids(const void *a, const void *b)
{
    const call_id *x = a, *y = b;
    int c = compare_text(x->id, y->id);

    return c ? c : x->place < y->place ? -1 : x->place > y->place;
}

/* The ids of a turn's calls, sorted; among equal ones the last counts. */
static pl_status list_ids(pl_json_pool *pool, const pl_json_value *calls, call_id **ids, size_t *n,
                          pl_error *err)
{
    size_t place = 0;

    *n = 0;
    *ids = pl_json_pool_take(pool, calls->n, sizeof **ids);
    if (!*ids)
        return pl_error_set(err, PL_ERR_NOMEM, "messages: out of memory");
    for (const pl_json_value *c = calls->first; c; c = c->next, place++) {
        const pl_json_value *id = pl_json_value_get(c, "id");
        if (!id || id->kind != PL_JSON_STRING || id->n == 0)
            id = pl_json_value_get(pl_json_value_get(c, "function"), "id");
        if (id && id->kind == PL_JSON_STRING && id->n)
            (*ids)[(*n)++] = (call_id){id, place};
    }
    qsort(*ids, *n, sizeof **ids, compare_ids);
    return PL_OK;
}

/* Results to no known call sort as to the first: the vendor's rule. */
static size_t place_of(const pl_json_value *id, const call_id *ids, size_t n)
{
    size_t low = 0, high = n;

    if (!id)
        return 0;
    while (low < high) { /* the first id above `id` */
        size_t middle = low + (high - low) / 2;
        if (compare_text(ids[middle].id, id) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low && compare_text(ids[low - 1].id, id) == 0 ? ids[low - 1].place : 0;
}

typedef struct placed_result {
    size_t place, order;
    const pl_json_value *content, *call_id;
} placed_result;

static int compare_placed(const void *a, const void *b)
{
    const placed_result *x = a, *y = b;

    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Results change places among themselves; text between them stays. */
static pl_status sort_turn(pl_json_pool *pool, pl_chat_turn *turn, const call_id *ids, size_t n_ids,
                           pl_error *err)
{
    placed_result *results = pl_json_pool_take(pool, turn->n_results, sizeof *results);
    size_t n = 0;

    if (!results)
        return pl_error_set(err, PL_ERR_NOMEM, "messages: out of memory");
    for (pl_chat_part *p = turn->parts; p; p = p->next) {
        if (p->is_result) {
            results[n] =
                (placed_result){place_of(p->call_id, ids, n_ids), n, p->content, p->call_id};
            n++;
        }
    }
    qsort(results, n, sizeof *results, compare_placed);
    n = 0;
    for (pl_chat_part *p = turn->parts; p; p = p->next) {
        if (p->is_result) {
            p->content = results[n].content;
            p->call_id = results[n].call_id;
            n++;
        }
    }
    return PL_OK;
}

pl_status pl__chat_turns_sort_results(pl_json_pool *pool, pl_chat_turns *turns, pl_error *err)
{
    call_id *ids = NULL;
    size_t n_ids = 0;

    for (size_t i = 0; i < turns->n; i++) {
        pl_chat_turn *t = &turns->turns[i];
        if (t->role == PL_ROLE_ASSISTANT && t->tool_calls && t->tool_calls->n)
            PL_TRY(list_ids(pool, t->tool_calls, &ids, &n_ids, err));
        else if (t->role == PL_ROLE_USER && t->n_results > 1 && n_ids)
            PL_TRY(sort_turn(pool, t, ids, n_ids, err));
    }
    return PL_OK;
}

/* ---- what is dropped ---- */

bool pl__chat_turns_have_tools(const pl_chat_turns *turns)
{
    for (size_t i = 0; i < turns->n; i++)
        if (turns->turns[i].tools)
            return true;
    return false;
}

ptrdiff_t pl__chat_turns_last_user(const pl_chat_turns *turns)
{
    for (size_t i = turns->n; i-- > 0;)
        if (turns->turns[i].role == PL_ROLE_USER || turns->turns[i].role == PL_ROLE_DEVELOPER)
            return (ptrdiff_t)i;
    return -1;
}

void pl__chat_turns_drop(pl_chat_turns *turns)
{
    ptrdiff_t last = pl__chat_turns_last_user(turns);
    size_t n = 0;

    for (size_t i = 0; i < turns->n; i++)
        if (turns->turns[i].role != PL_ROLE_DEVELOPER || (ptrdiff_t)i >= last)
            turns->turns[n++] = turns->turns[i];
    turns->n = n;
}
