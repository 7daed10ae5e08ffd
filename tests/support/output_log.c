/* The log of events, and the check that cuts do not change it. */
#include "support/output_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

static void put(output_log *log, const char *text, size_t n)
{
    if (log->n + n + 1 > log->capacity) {
        log->capacity = 2 * (log->n + n + 1);
        log->text = realloc(log->text, log->capacity);
    }
    memcpy(log->text + log->n, text, n);
    log->n += n;
    log->text[log->n] = 0;
}

void output_log_add(void *user, const pl_output_event *e)
{
    output_log *log = user;
    char head[160];
    bool run = e->kind == PL_OUTPUT_REASONING || e->kind == PL_OUTPUT_CONTENT ||
               e->kind == PL_OUTPUT_CALL_ARGUMENTS;

    if (run)
        assert_true(e->n_bytes > 0);
    if (log->open && run && log->kind == e->kind) {
        put(log, e->text, e->n_bytes);
        return;
    }
    if (log->open)
        put(log, "}", 1);
    log->open = run;
    log->kind = e->kind;
    switch (e->kind) {
    case PL_OUTPUT_REASONING:
        put(log, "R{", 2);
        break;
    case PL_OUTPUT_CONTENT:
        put(log, "C{", 2);
        break;
    case PL_OUTPUT_CALL_START:
        snprintf(head, sizeof head, "S%zu{%s:%.*s}", e->call, e->id, (int)e->n_bytes, e->text);
        put(log, head, strlen(head));
        return;
    case PL_OUTPUT_CALL_ARGUMENTS:
        snprintf(head, sizeof head, "A%zu{", e->call);
        put(log, head, strlen(head));
        break;
    case PL_OUTPUT_CALL_END:
        snprintf(head, sizeof head, "E%zu", e->call);
        put(log, head, strlen(head));
        return;
    case PL_OUTPUT_NOTE:
        snprintf(head, sizeof head, "N{%s@%llu:", pl_output_note_name(e->note),
                 (unsigned long long)e->position);
        put(log, head, strlen(head));
        put(log, e->text, e->n_bytes);
        put(log, "}", 1);
        return;
    case PL_OUTPUT_END:
        put(log, ".", 1);
        return;
    }
    put(log, e->text, e->n_bytes);
}

pl_output_parser *output_log_parser(pl_chat_mode mode, pl_output_sink *sink, void *user)
{
    pl_output_options options = pl_output_options_default();
    pl_output_parser *p = NULL;
    pl_error err = {0};

    options.mode = mode;
    options.id_prefix = "id";
    check_ok(pl_output_parser_create(&options, sink, user, &p, &err), &err);
    return p;
}

void output_log_feed(pl_output_parser *p, const char *text, size_t n)
{
    char *copy = malloc(n ? n : 1);

    memcpy(copy, text, n);
    assert_int_equal(pl_output_parser_feed(p, copy, n), PL_OK);
    free(copy);
}

output_log output_log_parse(pl_chat_mode mode, const char *text, size_t n, const size_t *sizes)
{
    output_log log = {0};
    pl_output_parser *p = output_log_parser(mode, output_log_add, &log);

    for (size_t at = 0; at < n;) {
        size_t piece = *sizes < n - at ? *sizes : n - at;
        output_log_feed(p, text + at, piece);
        at += piece;
        sizes += sizes[1] != 0;
    }
    assert_int_equal(pl_output_parser_finish(p), PL_OK);
    pl_output_parser_destroy(p);
    return log;
}

static void check_same_log(const output_log *got, const output_log *want, const char *how, size_t i,
                           size_t cut)
{
    if (got->n != want->n || memcmp(got->text, want->text, want->n) != 0)
        fail_msg("case %zu, %s %zu:\n%s\nwant\n%s", i, how, cut, got->text, want->text);
}

void output_log_check_cuts(pl_chat_mode mode, const char *text, size_t n, size_t i)
{
    static const size_t whole[] = {SIZE_MAX, 0}, bytes[] = {1, 0};
    output_log want = output_log_parse(mode, text, n, whole),
               got = output_log_parse(mode, text, n, bytes);
    uint64_t random = 0x9E3779B97F4A7C15u * (i + 1);

    check_same_log(&got, &want, "bytes", i, 1);
    free(got.text);
    for (size_t cut = 1; cut < n; cut++) {
        const size_t two[] = {cut, SIZE_MAX, 0};
        got = output_log_parse(mode, text, n, two);
        check_same_log(&got, &want, "cut at", i, cut);
        free(got.text);
    }
    for (size_t round = 0; round < 200; round++) {
        size_t sizes[65] = {0};
        for (size_t k = 0; k < 64; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            sizes[k] = 1 + (random >> 40) % (1 + (random >> 33) % 40);
        }
        got = output_log_parse(mode, text, n, sizes);
        check_same_log(&got, &want, "round", i, round);
        free(got.text);
    }
    free(want.text);
}
