/* Encoding and decoding against the golden files of the reference library.
 *
 * The small vocabulary is always compared. PL_REAL_TOKENIZER=FILE names the tokenizer.json of the
 * release, which is not stored here; with it the same is done for that one. */
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/lines.h"
#include "support/random_text.h"
#include "support/sha256.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

/* One vocabulary and where its golden files lie. */
typedef struct subject {
    const char *folder; /* below PL_GOLDEN_DIR */
    pl_tokenizer *tokenizer;
    pl_encoder *encoder;
} subject;

static subject mini = {.folder = "tokenizer/mini"}, real = {.folder = "tokenizer"};

static void open_subject(subject *s, const char *path)
{
    pl_error err;

    check_ok(pl_tokenizer_open(path, &s->tokenizer, &err), &err);
    assert_int_equal(pl_encoder_create(0, &s->encoder), PL_OK);
}

static int open_both(void **state)
{
    const char *path = getenv("PL_REAL_TOKENIZER");
    char mini_path[1024];

    snprintf(mini_path, sizeof mini_path, "%s/%s", getenv("PL_GOLDEN_DIR"), mini.folder);
    open_subject(&mini, mini_path); /* a folder: tokenizer.json in it is found */
    if (path)
        open_subject(&real, path);
    else
        printf("PL_REAL_TOKENIZER is not set: only the small vocabulary is compared\n");
    return 0;
}

static int close_both(void **state)
{
    for (int i = 0; i < 2; i++) {
        subject *s = i ? &real : &mini;

        pl_tokenizer_close(s->tokenizer);
        pl_encoder_destroy(s->encoder);
    }
    return 0;
}

/* The subject of this test; skips it where there is none. */
static subject *subject_of(void **state)
{
    subject *s = *state;

    if (!s->tokenizer)
        skip();
    return s;
}

static json_t *lines_of(const subject *s, const char *name)
{
    char path[64];

    snprintf(path, sizeof path, "%s/%s", s->folder, name);
    return golden_lines(path);
}

static void check_ids(const subject *s, const char *what, const char *text, size_t n,
                      pl_encode_mode mode, const json_t *want)
{
    size_t n_want, n_got, room = 3 * n + 1;
    int32_t *wanted = json_ids(want, &n_want), *got = malloc(room * sizeof *got);
    pl_error err;

    check_ok(pl_tokenizer_encode(s->tokenizer, s->encoder, text, n, mode, got, room, &n_got, &err),
             &err);
    for (size_t i = 0; i < n_want || i < n_got; i++)
        if (n_got != n_want || got[i] != wanted[i])
            fail_msg("%s: %zu ids, want %zu; number %zu is %d, want %d", what, n_got, n_want, i,
                     i < n_got ? got[i] : -1, i < n_want ? wanted[i] : -1);
    free(wanted);
    free(got);
}

static void check_text(const char *what, const char *got, size_t n_got, const json_t *want)
{
    if (n_got != json_string_length(want))
        fail_msg("%s: %zu bytes, want %zu", what, n_got, json_string_length(want));
    check_same_bytes(what, got, json_string_value(want), n_got);
}

static void cases(void **state)
{
    const subject *s = subject_of(state);
    json_t *rows = lines_of(s, "cases.jsonl"), *row;
    size_t i, n_plain = 0;

    json_array_foreach(rows, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        const json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids");
        const json_t *plain = json_object_get(row, "ids_plain");

        check_ids(s, name, json_string_value(text), json_string_length(text),
                  PL_ENCODE_ADDED_TOKENS, ids);
        check_ids(s, name, json_string_value(text), json_string_length(text), PL_ENCODE_PLAIN,
                  plain ? plain : ids);
        n_plain += plain != NULL;
    }
    assert_int_equal(i, 368);
    assert_true(n_plain > 20);
    json_decref(rows);
}

static void invalid_utf8(void **state)
{
    const subject *s = subject_of(state);
    json_t *rows = lines_of(s, "invalid_utf8.jsonl"), *row;
    size_t i;

    json_array_foreach(rows, i, row)
    {
        const char *hex = json_string_value(json_object_get(row, "hex"));
        char bytes[64];
        size_t n = strlen(hex) / 2;

        for (size_t k = 0; k < n; k++) {
            unsigned byte;

            sscanf(hex + 2 * k, "%2x", &byte);
            bytes[k] = (char)byte;
        }
        check_ids(s, hex, bytes, n, PL_ENCODE_ADDED_TOKENS, json_object_get(row, "ids"));
    }
    assert_int_equal(i, 16);
    json_decref(rows);
}

static void random_texts_written_out(void **state)
{
    const subject *s = subject_of(state);

    for (int f = 0; f < 2; f++) {
        json_t *rows = lines_of(s, f ? "random_new_first.jsonl" : "random_first.jsonl"), *row;
        size_t i;

        json_array_foreach(rows, i, row)
        {
            const json_t *text = json_object_get(row, "text");

            check_ids(s, f ? "new" : "random", json_string_value(text), json_string_length(text),
                      PL_ENCODE_ADDED_TOKENS, json_object_get(row, "ids"));
        }
        json_decref(rows);
    }
}

static void sha256_add_u32(sha256 *s, uint32_t v)
{
    uint8_t bytes[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};

    sha256_add(s, bytes, 4);
}

/* The digests of one digest file, computed. */
typedef struct digests {
    sha256 texts, ids, ends, chunk;
    size_t n_ids;
} digests;

static void add_text(const subject *s, digests *d, const char *text, size_t n)
{
    int32_t ids[RANDOM_TEXT_BYTES];
    uint32_t ends[RANDOM_TEXT_BYTES], n_ends = 0;
    size_t n_ids;
    pl_error err;

    check_ok(pl_tokenizer_encode(s->tokenizer, s->encoder, text, n, PL_ENCODE_ADDED_TOKENS, ids,
                                 RANDOM_TEXT_BYTES, &n_ids, &err),
             &err);
    for (size_t at = 0; at < n; ends[n_ends++] = (uint32_t)at)
        at = pl__pretokenize(&s->tokenizer->chars, (const uint8_t *)text, at, n);
    sha256_add_u32(&d->texts, (uint32_t)n);
    sha256_add(&d->texts, text, n);
    sha256_add_u32(&d->ids, (uint32_t)n_ids);
    sha256_add_u32(&d->chunk, (uint32_t)n_ids);
    for (size_t i = 0; i < n_ids; i++) {
        sha256_add_u32(&d->ids, (uint32_t)ids[i]);
        sha256_add_u32(&d->chunk, (uint32_t)ids[i]);
    }
    sha256_add_u32(&d->ends, n_ends);
    for (uint32_t i = 0; i < n_ends; i++)
        sha256_add_u32(&d->ends, ends[i]);
    d->n_ids += n_ids;
}

static void check_digest(sha256 *d, const json_t *want, const char *what)
{
    char hex[SHA256_HEX_BYTES];

    sha256_end(d, hex);
    if (strcmp(hex, json_string_value(want)) != 0)
        fail_msg("%s: digest %s, want %s", what, hex, json_string_value(want));
}

static void check_digest_file(const subject *s, const char *name)
{
    char path[64], what[96], text[RANDOM_TEXT_BYTES];
    code_block blocks[128];
    random_source r;
    size_t count, chunk, n_blocks;
    json_t *file, *list;
    digests d = {.n_ids = 0};

    snprintf(path, sizeof path, "%s/%s", s->folder, name);
    file = golden_json(path);
    r.state = (uint64_t)json_integer_value(json_object_get(file, "seed"));
    count = (size_t)json_integer_value(json_object_get(file, "count"));
    chunk = (size_t)json_integer_value(json_object_get(file, "chunk"));
    list = json_object_get(file, "blocks");
    n_blocks = json_array_size(list);
    assert_true(n_blocks > 0 && n_blocks <= 128 && count >= 1000 && chunk > 0);
    for (size_t i = 0; i < n_blocks; i++) {
        const json_t *b = json_array_get(list, i);

        blocks[i].first = (uint32_t)json_integer_value(json_array_get(b, 0));
        blocks[i].last = (uint32_t)json_integer_value(json_array_get(b, 1));
    }
    sha256_init(&d.texts);
    sha256_init(&d.ids);
    sha256_init(&d.ends);
    for (size_t i = 0; i < count; i++) {
        if (i % chunk == 0)
            sha256_init(&d.chunk);
        add_text(s, &d, text, random_text(&r, blocks, (uint32_t)n_blocks, text));
        if (i % chunk == chunk - 1 || i == count - 1) {
            snprintf(what, sizeof what, "%s: ids of texts %zu..%zu", name, i / chunk * chunk, i);
            check_digest(&d.chunk, json_array_get(json_object_get(file, "chunk_sha256"), i / chunk),
                         what);
        }
    }
    check_digest(&d.texts, json_object_get(file, "texts_sha256"), "texts");
    check_digest(&d.ends, json_object_get(file, "ends_sha256"), "piece ends");
    check_digest(&d.ids, json_object_get(file, "sha256"), "ids");
    assert_int_equal(d.n_ids, json_integer_value(json_object_get(file, "ids_total")));
    json_decref(file);
}

static void random_texts_by_digest(void **state)
{
    const subject *s = subject_of(state);

    check_digest_file(s, "random_digest.json");
    check_digest_file(s, "random_new_digest.json");
}

static void check_stream(const subject *s, const json_t *row, const int32_t *ids, size_t n_ids)
{
    const json_t *pieces = json_object_get(row, "stream");
    pl_text_stream stream = {0};
    char *text = malloc(pl_text_stream_max_bytes(s->tokenizer)), last[3];
    pl_error err;

    assert_int_equal(json_array_size(pieces), n_ids);
    for (size_t i = 0; i < n_ids; i++) {
        size_t n;

        check_ok(pl_text_stream_push(s->tokenizer, &stream, ids[i], 0, text,
                                     pl_text_stream_max_bytes(s->tokenizer), &n, &err),
                 &err);
        check_text("stream", text, n, json_array_get(pieces, i));
    }
    check_text("flush", last, pl_text_stream_flush(&stream, last), json_object_get(row, "flush"));
    free(text);
}

/* Streamed with special tokens skipped: the sum must be the text decoded at once. */
static void check_skipping_stream(const subject *s, const json_t *row, const int32_t *ids,
                                  size_t n_ids)
{
    const json_t *want = json_object_get(row, "text_skip_special");
    pl_text_stream stream = {0};
    char *text = malloc(json_string_length(want) + pl_text_stream_max_bytes(s->tokenizer) + 3);
    size_t n_text = 0, n;
    pl_error err;

    for (size_t i = 0; i < n_ids; i++) {
        check_ok(pl_text_stream_push(s->tokenizer, &stream, ids[i], PL_DECODE_SKIP_SPECIAL,
                                     text + n_text, pl_text_stream_max_bytes(s->tokenizer), &n,
                                     &err),
                 &err);
        n_text += n;
        assert_true(n_text <= json_string_length(want));
    }
    n_text += pl_text_stream_flush(&stream, text + n_text);
    check_text("stream, special skipped", text, n_text, want);
    free(text);
}

static void check_decoded(const subject *s, const char *what, const int32_t *ids, size_t n_ids,
                          unsigned flags, const json_t *want)
{
    char text[4096];
    size_t n;
    pl_error err;

    check_ok(pl_tokenizer_decode(s->tokenizer, ids, n_ids, flags, text, sizeof text, &n, &err),
             &err);
    assert_true(n <= sizeof text);
    check_text(what, text, n, want);
}

static void decoding(void **state)
{
    const subject *s = subject_of(state);
    json_t *rows = lines_of(s, "decode.jsonl"), *row;
    size_t i;

    json_array_foreach(rows, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        const char *hex = json_string_value(json_object_get(row, "hex"));
        size_t n_ids, n;
        int32_t *ids = json_ids(json_object_get(row, "ids"), &n_ids);
        char raw[4096];
        pl_error err;

        check_decoded(s, name, ids, n_ids, 0, json_object_get(row, "text"));
        check_decoded(s, name, ids, n_ids, PL_DECODE_SKIP_SPECIAL,
                      json_object_get(row, "text_skip_special"));
        check_ok(
            pl_tokenizer_decode(s->tokenizer, ids, n_ids, PL_DECODE_RAW, raw, sizeof raw, &n, &err),
            &err);
        assert_int_equal(n, strlen(hex) / 2);
        for (size_t k = 0; k < n; k++) {
            char pair[3];

            snprintf(pair, sizeof pair, "%02x", (uint8_t)raw[k]);
            assert_memory_equal(pair, hex + 2 * k, 2);
        }
        check_stream(s, row, ids, n_ids);
        check_skipping_stream(s, row, ids, n_ids);
        free(ids);
    }
    assert_int_equal(i, 63);
    json_decref(rows);
}

/* What goes in comes out, whatever the text, in both modes. */
static void round_trip(void **state)
{
    static const code_block all[] = {{0, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF},
                                     {0, 0x7F},   {0x3C, 0x3C},     {0xFF5C, 0xFF5C}};
    const subject *s = subject_of(state);
    random_source r = {11};

    for (int i = 0; i < 20000; i++) {
        char text[RANDOM_TEXT_BYTES], back[RANDOM_TEXT_BYTES];
        int32_t ids[RANDOM_TEXT_BYTES];
        size_t n = random_text(&r, all, sizeof all / sizeof all[0], text), n_ids, n_back;
        pl_error err;

        check_ok(pl_tokenizer_encode(s->tokenizer, s->encoder, text, n, (pl_encode_mode)(i % 2),
                                     ids, RANDOM_TEXT_BYTES, &n_ids, &err),
                 &err);
        check_ok(pl_tokenizer_decode(s->tokenizer, ids, n_ids, 0, back, sizeof back, &n_back, &err),
                 &err);
        assert_int_equal(n_back, n);
        check_same_bytes("text", back, text, n);
    }
}

/* Every token is found by its bytes, and what encoding yields for them is that token. */
static void every_token_is_itself(void **state)
{
    const subject *s = subject_of(state);
    int32_t n_tokens = pl_tokenizer_vocab_size(s->tokenizer);

    for (int32_t id = 0; id < n_tokens; id += 1 + n_tokens / 3000) {
        size_t n, n_ids;
        const char *bytes = pl_tokenizer_token(s->tokenizer, id, &n);
        bool added = s->tokenizer->flags[id] & PL_TOKEN_ADDED;
        uint64_t dead[8];
        int32_t ids[512];

        assert_true(n > 0 && n < 512);
        assert_int_equal(pl_tokenizer_find(s->tokenizer, bytes, n), id);
        if (added) {
            pl_error err;

            check_ok(pl_tokenizer_encode(s->tokenizer, s->encoder, bytes, n, PL_ENCODE_ADDED_TOKENS,
                                         ids, 512, &n_ids, &err),
                     &err);
        } else {
            n_ids = pl__bpe_encode(&s->tokenizer->bpe, (const uint8_t *)bytes, n, dead, ids);
        }
        assert_true(n_ids == 1 && ids[0] == id);
    }
}

static void example_of_the_specification(void **state)
{
    static const char text[] = "<｜User｜>你好<｜Assistant｜><think>推理</think>答案"
                               "<｜end▁of▁sentence｜>";
    const subject *s = subject_of(state);
    json_t *want =
        json_pack("[i,i,i,i,i,i,i,i]", 128803, 30594, 128804, 128821, 36101, 128822, 7624, 1);

    check_ids(s, "specification 7.1", text, strlen(text), PL_ENCODE_ADDED_TOKENS, want);
    json_decref(want);
    assert_int_equal(pl_tokenizer_vocab_size(s->tokenizer), 129280);
}

static void roles(void **state)
{
    static const char *const spelling[] = {"<｜begin▁of▁sentence｜>",
                                           "<｜end▁of▁sentence｜>",
                                           "<｜▁pad▁｜>",
                                           "<｜User｜>",
                                           "<｜Assistant｜>",
                                           "<think>",
                                           "</think>",
                                           "｜DSML｜"};
    const subject *s = subject_of(state);

    for (int role = 0; role < PL_TOKEN_ROLE_COUNT; role++) {
        int32_t id = pl_tokenizer_role_id(s->tokenizer, (pl_token_role)role);

        assert_int_equal(id,
                         pl_tokenizer_find(s->tokenizer, spelling[role], strlen(spelling[role])));
        assert_int_equal(pl_tokenizer_is_special(s->tokenizer, id), role <= PL_TOKEN_PAD);
    }
    assert_int_equal(pl_tokenizer_role_id(s->tokenizer, PL_TOKEN_BOS), 0);
    assert_int_equal(pl_tokenizer_role_id(s->tokenizer, PL_TOKEN_EOS), 1);
}

#define FOR_BOTH(test)                                         \
    {#test ", small vocabulary", test, NULL, NULL, &mini},     \
    {                                                          \
#test ", released vocabulary", test, NULL, NULL, &real \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOR_BOTH(cases),
        FOR_BOTH(invalid_utf8),
        FOR_BOTH(random_texts_written_out),
        FOR_BOTH(random_texts_by_digest),
        FOR_BOTH(decoding),
        FOR_BOTH(round_trip),
        FOR_BOTH(every_token_is_itself),
        FOR_BOTH(roles),
        cmocka_unit_test_prestate(example_of_the_specification, &real),
    };
    return cmocka_run_group_tests(tests, open_both, close_both);
}
