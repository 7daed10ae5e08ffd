/* plimsoll bench serve: percentiles to exact values, answers and streams in every cut, counters, arrivals. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "cli/bench_serve.h"

static void percentiles_are_interpolated(void **state)
{
    const double v[] = {1, 2, 4, 8};
    double seconds[] = {0.004, 0.001, 0.003, 0.002};
    pl_bench_summary s;

    assert_true(pl_bench_percentile(v, 4, 0) == 1);
    assert_true(pl_bench_percentile(v, 4, 50) == 3);
    assert_true(pl_bench_percentile(v, 4, 100) == 8);
    assert_true(fabs(pl_bench_percentile(v, 4, 99) - 7.88) < 1e-12);
    assert_true(pl_bench_percentile(v, 1, 99) == 1);
    assert_true(pl_bench_percentile(v, 0, 99) == 0);
    s = pl_bench_summarise(seconds, 4);
    assert_true(fabs(s.mean - 2.5) < 1e-12);
    assert_true(fabs(s.median - 2.5) < 1e-12);
    assert_true(fabs(s.p99 - 3.97) < 1e-12);
    assert_true(fabs(s.std - sqrt(1.25)) < 1e-12);
}

/* ---- answers */

typedef struct body {
    char at[256];
    size_t n;
} body;

static bool keep(void *user, const char *data, size_t n)
{
    body *b = user;

    assert_true(b->n + n < sizeof b->at);
    memcpy(b->at + b->n, data, n);
    b->n += n;
    return true;
}

static const char chunked[] =
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: "
    "chunked\r\n\r\n5\r\nhello\r\nB;x=1\r\n, all of it\r\n0\r\nT: 1\r\n\r\n",
                  plain[] = "HTTP/1.0 404 No\ncontent-length: 3\n\nno!more";

static void answers_in_every_cut(void **state)
{
    for (size_t cut = 0; cut <= sizeof chunked - 1; cut++) {
        body b = {{0}, 0};
        pl_http_answer a = {.on_body = keep, .user = &b};
        pl_error err;

        assert_int_equal(pl_http_answer_push(&a, chunked, cut, &err), PL_OK);
        assert_true(cut == sizeof chunked - 1 || !pl_http_answer_is_whole(&a));
        assert_int_equal(pl_http_answer_push(&a, chunked + cut, sizeof chunked - 1 - cut, &err),
                         PL_OK);
        assert_true(a.done && a.status == 200);
        assert_int_equal(b.n, 16);
        assert_memory_equal(b.at, "hello, all of it", 16);
    }
}

static void answers_with_a_length(void **state)
{
    body b = {{0}, 0};
    pl_http_answer a = {.on_body = keep, .user = &b};
    pl_error err;

    assert_int_equal(pl_http_answer_push(&a, plain, sizeof plain - 1, &err), PL_OK);
    assert_true(a.done && a.status == 404);
    assert_int_equal(b.n, 3);
}

static void hostile_answers(void **state)
{
    static const char *const bad[] = {
        "SSH-2.0\r\n",
        "HTTP/1.1 2x0 OK\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    };
    pl_http_answer long_line = {0};
    pl_error err;
    char *text = malloc(5000);

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        pl_http_answer a = {0};

        assert_int_equal(pl_http_answer_push(&a, bad[i], strlen(bad[i]), &err), PL_ERR_CORRUPT);
    }
    assert_non_null(text);
    memset(text, 'a', 5000);
    assert_int_equal(pl_http_answer_push(&long_line, text, 5000, &err), PL_ERR_CORRUPT);
    free(text);
}

/* ---- streams */

static double tick(void *user)
{
    return *(double *)user += 1;
}

static const char events[] =
    ": hello\r\n\r\n"
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n"
    "data: {\"system_fingerprint\":\"f1\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
    "data:{\"choices\":[{\"text\":\"bc\"}]}\n\n"
    "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"d\"}}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5}}\n\n"
    "data: [DONE]\n\n";

static void streams_in_every_cut(void **state)
{
    for (size_t cut = 0; cut <= sizeof events - 1; cut++) {
        pl_bench_request r = {0};
        double time = 10;
        pl_bench_stream s = {.request = &r, .now = tick, .user = &time};

        assert_true(pl_bench_stream_push(&s, events, cut));
        assert_true(pl_bench_stream_push(&s, events + cut, sizeof events - 1 - cut));
        assert_true(s.done && s.counted && s.n_events == 3);
        assert_true(r.first == 11 && r.last == 13 && r.n_gaps == 2);
        assert_true(r.gaps[0] == 1 && r.gaps[1] == 1);
        assert_int_equal(r.input_tokens, 7);
        assert_int_equal(r.output_tokens, 5);
        assert_string_equal(r.fingerprint, "f1");
        free(r.gaps);
        free(s.line);
    }
}

static void streams_that_fail(void **state)
{
    static const char *const bad[] = {"data: {\"error\":{\"message\":\"x\"}}\n", "data: {\n",
                                      "data: 3\n"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        pl_bench_request r = {0};
        double time = 0;
        pl_bench_stream s = {.request = &r, .now = tick, .user = &time};

        assert_false(pl_bench_stream_push(&s, bad[i], strlen(bad[i])));
        assert_true(s.failed);
        free(s.line);
    }
}

static void counters_are_summed(void **state)
{
    static const char text[] = "# TYPE a_total counter\na_total{m=\"x\",position=\"0\"} 3\n"
                               "a_total{m=\"x\",position=\"1\"} 4.5\na_total_more 9\nb 2";

    assert_true(pl_bench_counter(text, "a_total", NULL) == 7.5);
    assert_true(pl_bench_counter(text, "a_total", "position=\"1\"") == 4.5);
    assert_true(pl_bench_counter(text, "a_total", "position=\"2\"") == -1);
    assert_true(pl_bench_counter(text, "b", NULL) == 2);
    assert_true(pl_bench_counter(text, "c", NULL) == -1);
}

static void arrivals_have_their_rate(void **state)
{
    enum { N = 4000 };
    pl_bench_request *r = calloc(N, sizeof *r), *again = calloc(N, sizeof *again);

    assert_non_null(r);
    assert_non_null(again);
    pl_bench_arrivals(r, N, 8, 3);
    pl_bench_arrivals(again, N, 8, 3);
    assert_true(r[0].arrival == 0);
    for (int i = 1; i < N; i++) {
        assert_true(r[i].arrival > r[i - 1].arrival);
        assert_true(r[i].arrival == again[i].arrival);
    }
    assert_true(fabs(r[N - 1].arrival - N / 8.0) < 0.1 * N / 8.0);
    pl_bench_arrivals(r, N, 0, 3);
    assert_true(r[N - 1].arrival == 0);
    free(r);
    free(again);
}

static void targets(void **state)
{
    pl_http_target t;
    pl_error err;

    assert_int_equal(pl_http_target_parse("http://localhost:80/api/", &t, &err), PL_OK);
    assert_string_equal(t.host, "localhost");
    assert_string_equal(t.port, "80");
    assert_string_equal(t.prefix, "/api");
    assert_false(t.tls);
    assert_int_equal(pl_http_target_parse("https://a", &t, &err), PL_OK);
    assert_true(t.tls);
    assert_string_equal(t.port, "443");
    assert_int_equal(pl_http_target_parse("https://[::1]:8443/b", &t, &err), PL_OK);
    assert_string_equal(t.host, "::1");
    assert_string_equal(t.port, "8443");
    assert_string_equal(t.prefix, "/b");
    assert_int_equal(pl_http_target_parse("http://[::1]", &t, &err), PL_OK);
    assert_string_equal(t.port, "80");
    assert_int_equal(pl_http_target_parse("http://[::1", &t, &err), PL_ERR_INVALID);
    assert_int_equal(pl_http_target_parse("http://[::1]8", &t, &err), PL_ERR_INVALID);
    assert_int_equal(pl_http_target_parse("http://[]:8", &t, &err), PL_ERR_INVALID);
    assert_int_equal(pl_http_target_parse("http://me@a", &t, &err), PL_ERR_INVALID);
    assert_int_equal(pl_http_target_parse("ftp://a", &t, &err), PL_ERR_INVALID);
    assert_int_equal(pl_http_target_parse("http://:80", &t, &err), PL_ERR_INVALID);
    assert_int_equal(pl_http_target_parse("http://a:8x", &t, &err), PL_ERR_INVALID);
    assert_int_equal(pl_http_target_parse("http://a/b c", &t, &err), PL_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_interpolated),
        cmocka_unit_test(answers_in_every_cut),
        cmocka_unit_test(answers_with_a_length),
        cmocka_unit_test(hostile_answers),
        cmocka_unit_test(streams_in_every_cut),
        cmocka_unit_test(streams_that_fail),
        cmocka_unit_test(counters_are_summed),
        cmocka_unit_test(arrivals_have_their_rate),
        cmocka_unit_test(targets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
