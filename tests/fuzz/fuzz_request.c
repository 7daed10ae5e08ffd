/* Requests: any bytes are fields or a refusal that can be sent; what is taken lies within the limits that docs/SERVING.md names; an
 * enforced form can be completed from everywhere, and what comes of a JSON form parses. The first byte: chat or completion. */
#include <string.h>

#include "base/utf8.h"
#include "fuzz.h"
#include "serve/fields.h"
#include "serve/form.h"

enum { MAX_WALK = 6000 };

static void check_fault(const pl_fault *f)
{
    char printable[sizeof f->text];

    FUZZ_CHECK(f->http == 400 && strcmp(f->type, "invalid_request_error") == 0);
    FUZZ_CHECK(f->text[0] && memchr(f->text, 0, sizeof f->text));
    FUZZ_CHECK(memchr(f->param, 0, sizeof f->param));
    memcpy(printable, f->text, sizeof printable);
    pl_utf8_make_printable(printable);
    FUZZ_CHECK(strcmp(printable, f->text) == 0);
}

static void check_fields(const pl_fields *f)
{
    const pl_request_params *p = &f->params;

    FUZZ_CHECK(f->n >= 1 && f->n <= PL_SERVE_MAX_N && f->priority > INT32_MIN);
    FUZZ_CHECK(p->max_tokens >= 0 && p->min_tokens >= 0);
    FUZZ_CHECK(p->max_tokens == 0 || p->min_tokens <= p->max_tokens);
    FUZZ_CHECK(p->temperature >= 0 && p->top_p >= 0 && p->top_p <= 1 && p->top_k >= 0);
    FUZZ_CHECK(f->n_top >= 0 && f->n_top <= PL_SERVE_MAX_TOP);
    FUZZ_CHECK(f->n_prompt_top >= f->n_prompt_logprobs && f->n_prompt_top <= PL_SERVE_MAX_TOP);
    FUZZ_CHECK(!f->prompt_logprobs || !f->stream);
    FUZZ_CHECK(!f->echo_only || (f->echo && f->kind == PL_FIELDS_COMPLETION));
    FUZZ_CHECK(f->n_stop >= 0 && f->n_stop <= PL_SERVE_MAX_STOPS);
    for (int i = 0; i < f->n_stop; i++)
        FUZZ_CHECK(f->stop_bytes[i] >= 1 && f->stop_bytes[i] <= PL_SERVE_MAX_STOP_BYTES);
    FUZZ_CHECK(p->n_stop_ids >= 0 && p->n_stop_ids <= PL_SERVE_MAX_LIST);
    for (int32_t i = 0; i < p->n_stop_ids; i++)
        FUZZ_CHECK(p->stop_ids[i] >= 0);
    FUZZ_CHECK(p->n_logit_bias >= 0 && p->n_logit_bias <= PL_SERVE_MAX_LIST);
    for (int32_t i = 0; i < p->n_logit_bias; i++)
        FUZZ_CHECK(p->logit_bias[i].token >= 0 && p->logit_bias[i].bias >= -100 &&
                   p->logit_bias[i].bias <= 100);
    FUZZ_CHECK(!(f->json_form && f->calls_form) && memchr(f->unknown, 0, sizeof f->unknown));
}

/* A byte that brings the end nearer; -1: none does. */
static int nearer(const pl_form *form, const pl_form_state *s, int32_t distance,
                  pl_form_state *next)
{
    for (int b = 0; b < 256; b++) {
        *next = *s;
        if (pl_form_push(form, next, (unsigned char)b) && pl_form_distance(form, next) < distance)
            return b;
    }
    return -1;
}

/* Some bytes of the request first, so that the end is sought from many places, then the shortest way out. */
static void walk(const pl_form *form, const uint8_t *bytes, size_t n)
{
    static const char closed[] = "nothing may follow";
    pl_form_state s = pl_form_begin(form), next;
    int32_t distance = pl_form_distance(form, &s);
    char text[MAX_WALK];
    size_t n_text = 0;

    for (size_t i = 0; i < n && n_text < MAX_WALK / 4; i++) {
        next = s;
        if (distance > 0 && pl_form_push(form, &next, bytes[i])) {
            const int32_t behind = pl_form_distance(form, &next);
            FUZZ_CHECK(behind >= 0 && behind - distance <= pl_form_max_growth(form));
            s = next;
            distance = behind;
            text[n_text++] = (char)bytes[i];
        }
    }
    while (distance > 0 && n_text < MAX_WALK) {
        const int b = nearer(form, &s, distance, &next);
        FUZZ_CHECK(b >= 0);
        s = next;
        distance = pl_form_distance(form, &s);
        text[n_text++] = (char)b;
    }
    FUZZ_CHECK(distance > 0 || !pl_form_push(form, &s, (unsigned char)closed[0]));
    if (distance == 0 && form->json && !form->calls && !form->thinking) {
        json_t *value = json_loadb(text, n_text, JSON_ALLOW_NUL, NULL);
        FUZZ_CHECK(json_is_object(value));
        json_decref(value);
    }
}

static void check_form(const pl_fields *f, const uint8_t *bytes, size_t n)
{
    const json_t *tools = json_object_get(f->root, "tools");
    pl_calls *calls = NULL;
    pl_fault fault = {0};
    pl_form form;

    if (f->calls_form || (json_array_size(tools) > 0 && !f->without_tools)) {
        calls = pl_calls_create(tools, f->call_name, f->one_call, &fault);
        if (!calls) {
            check_fault(&fault);
            return;
        }
        FUZZ_CHECK(calls->n_tools >= 1 && calls->n_tools <= PL_CALLS_MAX_TOOLS);
    }
    form = (pl_form){.thinking = f->thinking, .json = f->json_form, .calls = calls};
    walk(&form, bytes, n);
    pl_calls_destroy(calls);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const pl_fields_kind kind = size && data[0] & 1 ? PL_FIELDS_COMPLETION : PL_FIELDS_CHAT;
    const char *json = size ? (const char *)data + 1 : "";
    const size_t n = size ? size - 1 : 0;
    pl_fields f;
    pl_fault fault = {0};

    if (!pl_fields_parse(kind, json, n, &f, &fault)) {
        check_fault(&fault);
        FUZZ_CHECK(!f.root && !f.params.stop_ids && !f.params.logit_bias && f.n_stop == 0);
        return 0;
    }
    check_fields(&f);
    if (f.json_form || f.calls_form)
        check_form(&f, (const uint8_t *)json, n);
    pl_fields_free(&f);
    return 0;
}
