/* safetensors headers: what the format allows is read, every rule broken is refused with file, tensor, field
 * and byte. Headers are copied to blocks of exactly their size, so that ASAN sees a read past the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/safetensors.h"
#include "support/check.h"

struct seen {
    int n;
    char log[2048]; /* "name dtype [shape] begin-end; " */
};

static pl_status log_entry(void *user, const pl_safetensors_entry *e, pl_error *err)
{
    struct seen *s = user;
    size_t at = strlen(s->log);

    assert_int_equal(strlen(e->name), e->name_length);
    s->n++;
    at += (size_t)snprintf(s->log + at, sizeof s->log - at, "%s %s [", e->name,
                           pl_dtype_name(e->dtype));
    for (int32_t i = 0; i < e->rank && at < sizeof s->log; i++)
        at += (size_t)snprintf(s->log + at, sizeof s->log - at, "%s%lld", i ? "," : "",
                               (long long)e->shape[i]);
    if (at < sizeof s->log)
        snprintf(s->log + at, sizeof s->log - at, "] %llu-%llu; ", (unsigned long long)e->begin,
                 (unsigned long long)e->end);
    return PL_OK;
}

static pl_status parse(const char *header, size_t n, uint64_t data_bytes, struct seen *seen,
                       pl_error *err)
{
    char *copy = malloc(n ? n : 1);
    pl_status s;

    memcpy(copy, header, n);
    memset(seen, 0, sizeof *seen);
    s = pl_safetensors_parse("m.st", copy, n, data_bytes, log_entry, seen, NULL, err);
    free(copy);
    return s;
}

#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void valid_headers_are_read(void **state)
{
    static const struct {
        const char *header;
        uint64_t data_bytes;
        const char *log;
    } cases[] = {
        {"{}", 0, ""},
        {"{ }   \n", 0, ""},
        {"{\"__metadata__\":{}}", 0, ""},
        {"{\"__metadata__\":{\"format\":\"pt\",\"a\\n\":\"\\u00e9\"}," T("a", "BF16", "[2,3]",
                                                                         "[0,12]") "}   ",
         12, "a BF16 [2,3] 0-12; "},
        {"{" T("a", "F32", "[]", "[0,4]") "," T("b", "I64", "[1]", "[4,12]") "}", 12,
         "a F32 [] 0-4; b I64 [1] 4-12; "},
        /* data in another order than the header, an empty tensor between */
        {"{" T("b", "I8", "[3]", "[2,5]") "," T("e", "F32", "[0,7]",
                                                "[2,2]") "," T("a", "F8_E4M3", "[2]", "[0,2]") "}",
         5, "b I8 [3] 2-5; e F32 [0,7] 2-2; a F8_E4M3 [2] 0-2; "},
        {"{\n\t\"a\" : { \"data_offsets\" : [ 0 , 1 ] , \"shape\" : [ 1 ] , \"dtype\" : "
         "\"F8_E8M0\" } }",
         1, "a F8_E8M0 [1] 0-1; "},
        {"{" T("\\u0061\\ud83d\\ude00\xc3\xa9", "I8", "[1]", "[0,1]") "}", 1,
         "a\xf0\x9f\x98\x80\xc3\xa9 I8 [1] 0-1; "},
        {"{" T("a", "I8", "[1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "a I8 [1,1,1,1,1,1,1,1] 0-1; "},
    };
    struct seen seen;
    pl_error err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_ok(parse(cases[i].header, strlen(cases[i].header), cases[i].data_bytes, &seen, &err),
                 &err);
        assert_string_equal(seen.log, cases[i].log);
    }
}

struct bad {
    const char *header;
    uint64_t data_bytes;
    pl_status status;
    const char *want, *also;
};

static void check_bad(const struct bad *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct seen seen;
        pl_error err;
        pl_status s =
            parse(cases[i].header, strlen(cases[i].header), cases[i].data_bytes, &seen, &err);

        print_message("%s\n", cases[i].header);
        check_error(s, cases[i].status, &err, "m.st: ", cases[i].want, cases[i].also, NULL);
        assert_null(strchr(err.msg, '\n'));
    }
}

#define CHECK(table)     check_bad(table, sizeof table / sizeof table[0])
#define ENTRY(fields)    "{\"a\":{" fields "}}"
#define SHAPE(shape)     "{" T("a", "I8", shape, "[0,1]") "}"
#define OFFSETS(offsets) "{" T("a", "I8", "[1]", offsets) "}"

static void broken_json_is_refused(void **state)
{
    static const struct bad cases[] = {
        {"", 0, PL_ERR_CORRUPT, "does not start with '{' at byte 8", NULL},
        {" {}", 0, PL_ERR_CORRUPT, "does not start with '{'", NULL},
        {"[]", 0, PL_ERR_CORRUPT, "does not start with '{'", NULL},
        {"{", 0, PL_ERR_CORRUPT, "tensor name: text is cut off (want '\"') at byte 9", NULL},
        {"{}x", 0, PL_ERR_CORRUPT, "got 'x', want the end) at byte 10", NULL},
        {"{}{}", 0, PL_ERR_CORRUPT, "want the end", NULL},
        {"{,}", 0, PL_ERR_CORRUPT, "got ',', want '\"'", NULL},
        {"{" T("a", "I8", "[1]", "[0,1]") ",}", 1, PL_ERR_CORRUPT, "got '}', want '\"'", NULL},
        {"{" T("a", "I8", "[1]", "[0,1]") " " T("b", "I8", "[1]", "[1,2]") "}", 2, PL_ERR_CORRUPT,
         "got '\"', want ',' or '}'", NULL},
        {"{a:1}", 0, PL_ERR_CORRUPT, "got 'a', want '\"'", NULL},
        {"{\"a\" {}}", 0, PL_ERR_CORRUPT, "got '{', want ':'", NULL},
        {"{\"a\":[]}", 0, PL_ERR_CORRUPT, "m.st: a: not valid JSON (got '[', want '{')", NULL},
        {"{\"a\":null}", 0, PL_ERR_CORRUPT, "got 'n', want '{'", NULL},
        {"{\"a", 0, PL_ERR_CORRUPT, "tensor name: string is not ended at byte 9", NULL},
        {"{\"a\\", 0, PL_ERR_CORRUPT, "invalid escape", NULL},
        {"{\"a\\x\":1}", 0, PL_ERR_CORRUPT, "invalid escape at byte 11", NULL},
        {"{\"a\\u12g4\":1}", 0, PL_ERR_CORRUPT, "invalid escape", NULL},
        {"{\"a\\u12", 0, PL_ERR_CORRUPT, "invalid escape", NULL},
        {"{\"a\\u0000\":1}", 0, PL_ERR_CORRUPT, "zero byte", NULL},
        {"{\"\\ud800\":1}", 0, PL_ERR_CORRUPT, "half a surrogate", NULL},
        {"{\"\\ud800\\u0041\":1}", 0, PL_ERR_CORRUPT, "half a surrogate", NULL},
        {"{\"\\udc00\":1}", 0, PL_ERR_CORRUPT, "half a surrogate", NULL},
        {"{\"a\nb\":1}", 0, PL_ERR_CORRUPT, "control byte (got 0x0a) at byte 11", NULL},
        {"{\"\x80\":1}", 0, PL_ERR_CORRUPT, "not UTF-8 (got byte 0x80)", NULL},
        {"{\"\xc0\xaf\":1}", 0, PL_ERR_CORRUPT, "not UTF-8", NULL},         /* overlong */
        {"{\"\xe0\x80\xaf\":1}", 0, PL_ERR_CORRUPT, "not UTF-8", NULL},     /* overlong */
        {"{\"\xf0\x80\x80\xaf\":1}", 0, PL_ERR_CORRUPT, "not UTF-8", NULL}, /* overlong */
        {"{\"\xed\xa0\x80\":1}", 0, PL_ERR_CORRUPT, "not UTF-8", NULL},     /* surrogate */
        {"{\"\xf4\x90\x80\x80\":1}", 0, PL_ERR_CORRUPT, "not UTF-8", NULL}, /* > 0x10FFFF */
        {"{\"\xf5\x80\x80\x80\":1}", 0, PL_ERR_CORRUPT, "not UTF-8", NULL},
        {"{\"\xe2\x82\":1}", 0, PL_ERR_CORRUPT, "not UTF-8", NULL}, /* cut */
        {"{\"\xe2\x82", 0, PL_ERR_CORRUPT, "not UTF-8", NULL},
    };
    CHECK(cases);
}

static void metadata_is_checked(void **state)
{
    static const struct bad cases[] = {
        {"{\"__metadata__\":[]}", 0, PL_ERR_CORRUPT, "m.st: __metadata__: ", "want '{'"},
        {"{\"__metadata__\":{\"a\":1}}", 0, PL_ERR_CORRUPT, "__metadata__: ", "want '\"'"},
        {"{\"__metadata__\":{\"a\":\"\xff\"}}", 0, PL_ERR_CORRUPT, "__metadata__: ", "not UTF-8"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, PL_ERR_CORRUPT,
         "__metadata__: stands twice", NULL},
    };
    CHECK(cases);
}

static void fields_of_a_tensor(void **state)
{
    static const struct bad cases[] = {
        {ENTRY(""), 0, PL_ERR_CORRUPT, "m.st: a: key is missing", NULL},
        {ENTRY("\"dtype\":\"I8\",\"shape\":[1]"), 1, PL_ERR_CORRUPT, "m.st: a: key is missing",
         NULL},
        {ENTRY("\"dtype\":\"I8\",\"dtype\":\"I8\""), 1, PL_ERR_CORRUPT,
         "m.st: a: dtype: key stands twice at byte", NULL},
        {ENTRY("\"shape\":[1],\"data_offsets\":[0,1],\"shape\":[1]"), 1, PL_ERR_CORRUPT,
         "shape: key stands twice", NULL},
        {ENTRY("\"data_offsets\":[0,1],\"data_offsets\":[0,1]"), 1, PL_ERR_CORRUPT,
         "data_offsets: key stands twice", NULL},
        {ENTRY("\"stride\":[1]"), 1, PL_ERR_CORRUPT, "m.st: a: stride: unknown key", NULL},
        {ENTRY("\"a_key_that_is_much_longer_than_any_the_format_knows\":[1]"), 1, PL_ERR_CORRUPT,
         "too long", NULL},
        {ENTRY("\"dtype\":7"), 1, PL_ERR_CORRUPT, "dtype: not valid JSON (got '7', want '\"')",
         NULL},
        {ENTRY("\"dtype\":\"F16\""), 1, PL_ERR_UNSUPPORTED, "m.st: a: dtype: not an element type",
         "got F16"},
        {ENTRY("\"dtype\":\"bf16\""), 1, PL_ERR_UNSUPPORTED, "got bf16", NULL},
        {ENTRY("\"dtype\":\"\""), 1, PL_ERR_UNSUPPORTED, "dtype: ", NULL},
    };
    CHECK(cases);
}

static void numbers_and_shapes(void **state)
{
    static const struct bad cases[] = {
        {SHAPE("[-1]"), 1, PL_ERR_CORRUPT, "m.st: a: shape: ", "got '-', want a whole number"},
        {SHAPE("[+1]"), 1, PL_ERR_CORRUPT, "got '+', want a whole number", NULL},
        {SHAPE("[1.0]"), 1, PL_ERR_CORRUPT, "not a whole number", NULL},
        {SHAPE("[1e0]"), 1, PL_ERR_CORRUPT, "not a whole number", NULL},
        {SHAPE("[1E0]"), 1, PL_ERR_CORRUPT, "not a whole number", NULL},
        {SHAPE("[01]"), 1, PL_ERR_CORRUPT, "leading zero", NULL},
        {SHAPE("[00]"), 1, PL_ERR_CORRUPT, "leading zero", NULL},
        {SHAPE("[0x1]"), 1, PL_ERR_CORRUPT, "got 'x'", NULL},
        {SHAPE("[9223372036854775808]"), 1, PL_ERR_CORRUPT, "too large (want below 2^63)", NULL},
        {SHAPE("[18446744073709551617]"), 1, PL_ERR_CORRUPT, "too large", NULL},
        {SHAPE("[1,]"), 1, PL_ERR_CORRUPT, "got ']', want a whole number", NULL},
        {SHAPE("[1 1]"), 1, PL_ERR_CORRUPT, "want ',' or ']'", NULL},
        {SHAPE("1"), 1, PL_ERR_CORRUPT, "want '['", NULL},
        {SHAPE("[\"1\"]"), 1, PL_ERR_CORRUPT, "want a whole number", NULL},
        {SHAPE("[1,1,1,1,1,1,1,1,1]"), 1, PL_ERR_CORRUPT, "too many dimensions (want at most 8)",
         NULL},
        {SHAPE("[9223372036854775807,3]"), 1, PL_ERR_CORRUPT, "m.st: a: shape: too many elements",
         NULL},
        {SHAPE("[4294967296,4294967296]"), 1, PL_ERR_CORRUPT, "shape: too many elements", NULL},
        /* 2^64 + 1 bytes would pass for 1 if the product wrapped */
        {SHAPE("[274177,67280421310721]"), 1, PL_ERR_CORRUPT, "shape: too many elements", NULL},
        {SHAPE("[2]"), 1, PL_ERR_CORRUPT,
         "data_offsets: size differs from dtype and shape (got 1 bytes, want 2)", NULL},
        {SHAPE("[0]"), 1, PL_ERR_CORRUPT, "(got 1 bytes, want 0)", NULL},
        {"{" T("a", "F32", "[1]", "[0,1]") "}", 1, PL_ERR_CORRUPT, "(got 1 bytes, want 4)", NULL},
    };
    CHECK(cases);
}

static void offsets(void **state)
{
    static const struct bad cases[] = {
        {OFFSETS("[1,0]"), 1, PL_ERR_CORRUPT, "m.st: a: data_offsets: reversed (got [1, 0]", NULL},
        {OFFSETS("[0]"), 1, PL_ERR_CORRUPT, "data_offsets: wrong length", NULL},
        {OFFSETS("[]"), 1, PL_ERR_CORRUPT, "data_offsets: wrong length", NULL},
        {OFFSETS("[0,1,1]"), 1, PL_ERR_CORRUPT, "data_offsets: wrong length", NULL},
        {OFFSETS("[0,2]"), 1, PL_ERR_CORRUPT, "outside the file (got end 2, want at most 1)", NULL},
        {OFFSETS("[0,9223372036854775807]"), 1, PL_ERR_CORRUPT, "outside the file", NULL},
        {OFFSETS("[0,18446744073709551615]"), 1, PL_ERR_CORRUPT,
         "data_offsets: number is too large", NULL},
        {OFFSETS("[0,-1]"), 1, PL_ERR_CORRUPT, "want a whole number", NULL},
        {"{" T("a", "I8", "[1]", "[1,2]") "}", 2, PL_ERR_CORRUPT,
         "m.st: a: data_offsets: leave a gap behind", "(got begin 1, want 0)"},
        {"{" T("a", "I8", "[1]", "[0,1]") "," T("b", "I8", "[1]", "[2,3]") "}", 3, PL_ERR_CORRUPT,
         "m.st: b: data_offsets: leave a gap behind the tensor before it (got begin 2, want 1)",
         NULL},
        {"{" T("a", "I8", "[2]", "[0,2]") "," T("b", "I8", "[2]", "[1,3]") "}", 3, PL_ERR_CORRUPT,
         "m.st: b: data_offsets: overlap the tensor before it (got begin 1, want 2)", NULL},
        {"{" T("a", "I8", "[1]", "[0,1]") "," T("b", "I8", "[1]", "[0,1]") "}", 1, PL_ERR_CORRUPT,
         "data_offsets: overlap", NULL},
        /* found though the header is out of order */
        {"{" T("b", "I8", "[2]", "[1,3]") "," T("a", "I8", "[2]", "[0,2]") "}", 3, PL_ERR_CORRUPT,
         "m.st: b: data_offsets: overlap", NULL},
        {"{" T("a", "I8", "[1]", "[0,1]") "}", 2, PL_ERR_CORRUPT,
         "data is longer than its tensors (got 2 bytes, want 1)", NULL},
        {"{}", 1, PL_ERR_CORRUPT, "data is longer than its tensors (got 1 bytes, want 0)", NULL},
    };
    CHECK(cases);
}

static void names(void **state)
{
    static const struct bad cases[] = {
        {"{" T("a", "I8", "[1]", "[0,1]") "," T("b", "I8", "[1]", "[1,2]") "," T("a", "I8", "[1]",
                                                                                 "[2,3]") "}",
         3, PL_ERR_CORRUPT, "m.st: a: tensor stands twice, at bytes 9 and", NULL},
        {"{" T("a", "I8", "[1]", "[0,1]") "," T("\\u0061", "I8", "[1]", "[1,2]") "}", 2,
         PL_ERR_CORRUPT, "m.st: a: tensor stands twice", NULL},
    };
    char header[1024], name[300];
    struct seen seen;
    pl_error err;

    CHECK(cases);
    memset(name, 'n', sizeof name);
    for (size_t n = 254; n <= 256; n++) {
        snprintf(header, sizeof header,
                 "{\"%.*s\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", (int)n,
                 name);
        pl_status s = parse(header, strlen(header), 1, &seen, &err);
        if (n <= 255)
            check_ok(s, &err);
        else
            check_error(s, PL_ERR_CORRUPT, &err, "too long (want at most 255)", NULL);
    }
}

/* Every prefix of a good header is refused, and never read past. */
static void every_truncation_is_refused(void **state)
{
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"}," T(
        "a\\u00e9", "BF16", "[2,3]", "[0,12]") "," T("b", "F32", "[1]", "[12,16]") "}";
    struct seen seen;
    pl_error err;

    check_ok(parse(header, sizeof header - 1, 16, &seen, &err), &err);
    for (size_t n = 0; n < sizeof header - 1; n++) {
        check_error(parse(header, n, 16, &seen, &err), PL_ERR_CORRUPT, &err, "m.st: ", NULL);
        assert_true(err.pos <= 8 + n);
    }
}

static pl_status refuse_second(void *user, const pl_safetensors_entry *e, pl_error *err)
{
    if (++*(int *)user == 2)
        return pl_error_set(err, PL_ERR_CANCELLED, "enough");
    return PL_OK;
}

static void visitor_can_end_the_reading(void **state)
{
    static const char header[] = "{" T("a", "I8", "[1]", "[0,1]") "," T(
        "b", "I8", "[1]", "[1,2]") "," T("c", "I8", "[1]", "[2,3]") "}";
    pl_error err;
    int n = 0;

    assert_int_equal(
        pl_safetensors_parse("m", header, sizeof header - 1, 3, refuse_second, &n, NULL, &err),
        PL_ERR_CANCELLED);
    assert_string_equal(err.msg, "enough");
    assert_int_equal(n, 2);
}

static void files_without_data_are_told(void **state)
{
    static const struct {
        const char *header;
        bool want;
    } cases[] = {
        {"{}", false},
        {"{\"__metadata__\":{\"format\":\"pt\"}}", false},
        {"{\"__metadata__\":{\"format\":\"plimsoll.headers_only\"}}", false},
        {"{\"__metadata__\":{\"plimsoll.headers_only2\":\"true\"}}", false},
        {"{\"__metadata__\":{\"format\":\"pt\", \"plimsoll.headers_only\" : \"true\"}}", true},
        {"{\"__metadata__\":{\"plimsoll.headers_only\":\"true\",\"z\":\"\"}}", true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct seen seen = {0};
        pl_error err = {0};
        bool headers_only = !cases[i].want;

        check_ok(pl_safetensors_parse("m", cases[i].header, strlen(cases[i].header), 0, log_entry,
                                      &seen, &headers_only, &err),
                 &err);
        assert_int_equal(headers_only, cases[i].want);
    }
}

static pl_status read_bytes(const void *bytes, size_t n, uint64_t *begin, pl_error *err)
{
    FILE *f = tmpfile();
    struct seen seen = {0};
    pl_status s;

    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fflush(f);
    s = pl_safetensors_read("m.st", fileno(f), log_entry, &seen, begin, NULL, err);
    fclose(f);
    return s;
}

static void length_in_front_is_checked(void **state)
{
    static const char file[] = "\x35\0\0\0\0\0\0\0{" T("a", "I8", "[1]", "[0,1]") "}d";
    char copy[sizeof file];
    uint64_t begin = 0;
    pl_error err;

    assert_int_equal(sizeof file - 1, 8 + 0x35 + 1);
    check_ok(read_bytes(file, sizeof file - 1, &begin, &err), &err);
    assert_int_equal(begin, 8 + 0x35);
    check_error(read_bytes(file, 0, &begin, &err), PL_ERR_CORRUPT, &err, "got 0 bytes", NULL);
    check_error(read_bytes(file, 7, &begin, &err), PL_ERR_CORRUPT, &err, "got 7 bytes", NULL);
    check_error(read_bytes(file, 8, &begin, &err), PL_ERR_CORRUPT, &err,
                "header is cut off (got 0 bytes, want 53)", NULL);
    check_error(read_bytes(file, sizeof file - 2, &begin, &err), PL_ERR_CORRUPT, &err,
                "m.st: a: data_offsets: outside the file", NULL);
    memcpy(copy, file, sizeof file);
    memcpy(copy, "\x01\xe1\xf5\x05\0\0\0\0", 8);
    check_error(read_bytes(copy, sizeof file - 1, &begin, &err), PL_ERR_CORRUPT, &err,
                "header length is too large (got 100000001, want at most 100000000)", NULL);
    memcpy(copy, "version https://git-lfs", 8);
    check_error(read_bytes(copy, sizeof file - 1, &begin, &err), PL_ERR_CORRUPT, &err,
                "a pointer of Git LFS", "git lfs pull", NULL);
    memcpy(copy, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    check_error(read_bytes(copy, sizeof file - 1, &begin, &err), PL_ERR_CORRUPT, &err, "too large",
                NULL);
    memcpy(copy, "\0\0\0\0\0\0\0\0", 8);
    check_error(read_bytes(copy, sizeof file - 1, &begin, &err), PL_ERR_CORRUPT, &err,
                "does not start with '{'", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_headers_are_read),
        cmocka_unit_test(broken_json_is_refused),
        cmocka_unit_test(metadata_is_checked),
        cmocka_unit_test(fields_of_a_tensor),
        cmocka_unit_test(numbers_and_shapes),
        cmocka_unit_test(offsets),
        cmocka_unit_test(names),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(visitor_can_end_the_reading),
        cmocka_unit_test(files_without_data_are_told),
        cmocka_unit_test(length_in_front_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
