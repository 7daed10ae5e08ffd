/* What the calls of plimsoll/text.h promise beside right ids: sizes, refusals, memory, threads. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/random_text.h"
#include "support/scratch.h"
#include "support/tiny_tokenizer.h"
#include "text/tokenizer.h"

enum { BOS = 259, THINK, USER, USER_X }; /* added tokens of the vocabulary below */

static pl_tokenizer *t;
static pl_encoder *encoder;

static int set_up(void **state)
{
    static const char *const merges[] = {"a b", "ab c", "u s"};
    json_t *root = tiny_tokenizer(merges, 3);
    pl_error err;

    check_ok(open_tiny(root, &t, &err), &err);
    json_decref(root);
    return pl_encoder_create(0, &encoder);
}

static int tear_down(void **state)
{
    pl_tokenizer_close(t);
    pl_encoder_destroy(encoder);
    return 0;
}

static void check_encoded(const char *text, pl_encode_mode mode, const int32_t *want, size_t n_want)
{
    int32_t ids[64];
    size_t n;
    pl_error err;

    check_ok(pl_tokenizer_encode(t, encoder, text, strlen(text), mode, ids, 64, &n, &err), &err);
    assert_int_equal(n, n_want);
    assert_memory_equal(ids, want, n * sizeof ids[0]);
}

#define CHECK_ENCODED(text, mode, ...)                                    \
    do {                                                                  \
        static const int32_t want_[] = {__VA_ARGS__};                     \
        check_encoded(text, mode, want_, sizeof want_ / sizeof want_[0]); \
    } while (0)

/* Added tokens: leftmost, longest, wherever they stand; the kind not to be normalized goes first. */
static void added_tokens(void **state)
{
    CHECK_ENCODED("abc<bos>", PL_ENCODE_ADDED_TOKENS, 257, BOS);
    CHECK_ENCODED("abc<bos>", PL_ENCODE_PLAIN, 257, '<', 'b', 'o', 's', '>');
    CHECK_ENCODED("<user>xy<user>", PL_ENCODE_ADDED_TOKENS, USER_X, 'y', USER);
    CHECK_ENCODED("<<bos><bo<think>", PL_ENCODE_ADDED_TOKENS, '<', BOS, '<', 'b', 'o', THINK);
    CHECK_ENCODED("", PL_ENCODE_ADDED_TOKENS);
}

static void kinds_of_added_tokens_have_an_order(void **state)
{
    json_t *root = tiny_tokenizer(NULL, 0);
    pl_tokenizer *two;
    int32_t ids[8];
    size_t n;
    pl_error err;

    /* "xy" (to be normalized) and "yz" (not) overlap in "xyz": the second is looked for first. */
    change(root, "added_tokens[0].content", "'yz'");
    change(root, "added_tokens[2].content", "'xy'");
    check_ok(open_tiny(root, &two, &err), &err);
    check_ok(
        pl_tokenizer_encode(two, encoder, "xyzxy", 5, PL_ENCODE_ADDED_TOKENS, ids, 8, &n, &err),
        &err);
    assert_int_equal(n, 3);
    assert_int_equal(ids[0], 'x');
    assert_int_equal(ids[1], pl_tokenizer_find(two, "yz", 2));
    assert_int_equal(ids[2], pl_tokenizer_find(two, "xy", 2));
    pl_tokenizer_close(two);
    json_decref(root);
}

static void plain_ranges(void **state)
{
    static const char text[] = "<user><bos>a<user>xb<think>";
    const pl_text_range inside[] = {{6, 12}, {18, 19}}, all[] = {{0, 27}},
                        cut[] = {{7, 8}, {26, 27}};
    static const int32_t want_inside[] = {USER, '<',  'b', 'o', 's',  '>',
                                          'a',  USER, 'x', 'b', THINK};
    static const int32_t want_cut[] = {USER, '<', 'b', 'o', 's', '>', 'a', USER_X,
                                       'b',  '<', 't', 'h', 'i', 'n', 'k', '>'};
    int32_t ids[64], plain[64];
    size_t n, n_plain;
    pl_error err;

    check_ok(pl_tokenizer_encode_ranges(t, encoder, text, 27, inside, 2, ids, 64, &n, &err), &err);
    assert_int_equal(n, sizeof want_inside / sizeof want_inside[0]);
    assert_memory_equal(ids, want_inside, sizeof want_inside);
    check_ok(pl_tokenizer_encode_ranges(t, encoder, text, 27, cut, 2, ids, 64, &n, &err), &err);
    assert_int_equal(n, sizeof want_cut / sizeof want_cut[0]);
    assert_memory_equal(ids, want_cut, sizeof want_cut);
    check_ok(pl_tokenizer_encode_ranges(t, encoder, text, 27, all, 1, ids, 64, &n, &err), &err);
    check_ok(pl_tokenizer_encode(t, encoder, text, 27, PL_ENCODE_PLAIN, plain, 64, &n_plain, &err),
             &err);
    assert_int_equal(n, n_plain);
    assert_memory_equal(ids, plain, n * sizeof ids[0]);
    check_ok(pl_tokenizer_encode_ranges(t, encoder, text, 27, NULL, 0, ids, 64, &n, &err), &err);
    assert_int_equal(n, 6);
}

/* Ranges hide added tokens and nothing else: words go across their ends. */
static void plain_ranges_do_not_cut_words(void **state)
{
    const pl_text_range middle[] = {{1, 2}};
    int32_t ids[8];
    size_t n;
    pl_error err;

    check_ok(pl_tokenizer_encode_ranges(t, encoder, "abc", 3, middle, 1, ids, 8, &n, &err), &err);
    assert_int_equal(n, 1);
    assert_int_equal(ids[0], 257);
}

static void bad_plain_ranges(void **state)
{
    static const pl_text_range bad[][2] = {
        {{0, 0}, {1, 2}}, {{0, 2}, {1, 3}}, {{2, 3}, {0, 1}}, {{0, 1}, {1, 5}}, {{2, 1}, {3, 4}}};
    size_t n;
    pl_error err;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_error(pl_tokenizer_encode_ranges(t, encoder, "abcd", 4, bad[i], 2, NULL, 0, &n, &err),
                    PL_ERR_INVALID, &err, "plain range", NULL);
    check_error(pl_tokenizer_encode_ranges(t, encoder, "ab\xFF", 3, NULL, 0, NULL, 0, &n, &err),
                PL_ERR_INVALID, &err, "not UTF-8 (at byte 2 of 3)", NULL);
    assert_int_equal(err.pos, 2);
}

static void counting_and_short_buffers(void **state)
{
    static const char text[] = "abc abx<bos>\xFF";
    int32_t ids[16], again[16];
    char out[32], again_out[32];
    size_t n, n_again, n_bytes;
    pl_error err;

    check_ok(pl_tokenizer_encode(t, encoder, text, 13, PL_ENCODE_ADDED_TOKENS, ids, 16, &n, &err),
             &err);
    assert_int_equal(n, 8); /* abc, space, ab, x, <bos>, three bytes of U+FFFD */
    for (size_t room = 0; room < n; room++) {
        memset(again, 0x55, sizeof again);
        check_ok(pl_tokenizer_encode(t, encoder, text, 13, PL_ENCODE_ADDED_TOKENS,
                                     room ? again : NULL, room, &n_again, &err),
                 &err);
        assert_int_equal(n_again, n);
        assert_memory_equal(again, ids, room * sizeof ids[0]);
        assert_int_equal(again[room], 0x55555555);
    }
    check_ok(pl_tokenizer_decode(t, ids, n, 0, out, sizeof out, &n_bytes, &err), &err);
    assert_int_equal(n_bytes, 15);
    for (size_t room = 0; room < n_bytes; room++) {
        memset(again_out, 0x55, sizeof again_out);
        check_ok(pl_tokenizer_decode(t, ids, n, 0, room ? again_out : NULL, room, &n_again, &err),
                 &err);
        assert_int_equal(n_again, n_bytes);
        assert_memory_equal(again_out, out, room);
        assert_int_equal(again_out[room], 0x55);
    }
}

static void stream_waits_for_room(void **state)
{
    pl_text_stream stream = {0};
    char out[64];
    size_t n;
    pl_error err;

    check_ok(pl_text_stream_push(t, &stream, 0xE4, 0, out, sizeof out, &n, &err), &err);
    assert_int_equal(n, 0);
    for (int i = 0; i < 3; i++) { /* "<bos>" releases a U+FFFD and itself */
        check_ok(pl_text_stream_push(t, &stream, BOS, 0, out, 7, &n, &err), &err);
        assert_int_equal(n, 8);
    }
    check_ok(pl_text_stream_push(t, &stream, BOS, 0, out, 8, &n, &err), &err);
    assert_int_equal(n, 8);
    assert_memory_equal(out, "\xEF\xBF\xBD<bos>", 8);
    assert_int_equal(pl_text_stream_flush(&stream, out), 0);
}

static void ids_outside_the_vocabulary(void **state)
{
    static const int32_t bad[] = {-1, 263, INT32_MAX, INT32_MIN};
    pl_text_stream stream = {0};
    size_t n;
    pl_error err;

    assert_int_equal(pl_tokenizer_vocab_size(t), 263);
    for (size_t i = 0; i < 4; i++) {
        char got[32];

        snprintf(got, sizeof got, "got id %d, want 0..262", bad[i]);
        check_error(pl_tokenizer_decode(t, &bad[i], 1, 0, NULL, 0, &n, &err), PL_ERR_INVALID, &err,
                    got, NULL);
        check_error(pl_text_stream_push(t, &stream, bad[i], 0, NULL, 0, &n, &err), PL_ERR_INVALID,
                    &err, got, NULL);
        assert_null(pl_tokenizer_token(t, bad[i], &n));
        assert_int_equal(n, 0);
        assert_false(pl_tokenizer_is_special(t, bad[i]));
    }
    assert_int_equal(pl_tokenizer_role_id(t, PL_TOKEN_ROLE_COUNT), -1);
    assert_int_equal(pl_tokenizer_role_id(t, PL_TOKEN_BOS), -1); /* <bos> is not its spelling */
    assert_int_equal(pl_tokenizer_role_id(t, PL_TOKEN_THINK_BEGIN), THINK);
    assert_int_equal(pl_tokenizer_find(t, "<bos", 4), -1);
}

/* One thread's share: many texts, each compared with what one thread alone found. */
typedef struct share {
    uint64_t seed, sum;
} share;

static void *encode_many(void *user)
{
    static const code_block blocks[] = {{'a', 'c'}, {' ', ' '}, {0x4E00, 0x4E20}, {'<', '>'}};
    share *s = user;
    random_source r = {s->seed};
    pl_encoder *own;

    s->sum = 0;
    if (pl_encoder_create(0, &own) != PL_OK)
        return NULL;
    for (int i = 0; i < 2000; i++) {
        char text[RANDOM_TEXT_BYTES];
        int32_t ids[RANDOM_TEXT_BYTES];
        size_t n = random_text(&r, blocks, 4, text), n_ids;

        if (pl_tokenizer_encode(t, own, text, n, PL_ENCODE_ADDED_TOKENS, ids, RANDOM_TEXT_BYTES,
                                &n_ids, NULL) != PL_OK)
            break;
        for (size_t k = 0; k < n_ids; k++)
            s->sum = s->sum * 31 + (uint64_t)ids[k] + 1;
    }
    pl_encoder_destroy(own);
    return NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    share alone[4], together[4];
    pthread_t threads[4];

    for (int i = 0; i < 4; i++) {
        alone[i].seed = together[i].seed = (uint64_t)i;
        encode_many(&alone[i]);
        assert_true(alone[i].sum != 0);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, &together[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(together[i].sum == alone[i].sum);
    }
}

static void open_reads_files_and_folders(void **state)
{
    char folder[SCRATCH_PATH_BYTES], path[SCRATCH_PATH_BYTES + 32];
    json_t *root = tiny_tokenizer(NULL, 0);
    char *text = json_dumps(root, 0);
    pl_tokenizer *opened;
    pl_error err;

    scratch_create(folder);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    check_error(pl_tokenizer_open(folder, &opened, &err), PL_ERR_NOT_FOUND, &err,
                "/tokenizer.json: cannot open", NULL);
    assert_null(opened);
    scratch_put(folder, "tokenizer.json", text);
    for (int i = 0; i < 2; i++) {
        check_ok(pl_tokenizer_open(i ? path : folder, &opened, &err), &err);
        assert_int_equal(pl_tokenizer_vocab_size(opened), 260);
        pl_tokenizer_close(opened);
    }
    scratch_remove(folder);
    free(text);
    json_decref(root);
    pl_tokenizer_close(NULL);
    pl_encoder_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(added_tokens),
        cmocka_unit_test(kinds_of_added_tokens_have_an_order),
        cmocka_unit_test(plain_ranges),
        cmocka_unit_test(plain_ranges_do_not_cut_words),
        cmocka_unit_test(bad_plain_ranges),
        cmocka_unit_test(counting_and_short_buffers),
        cmocka_unit_test(stream_waits_for_room),
        cmocka_unit_test(ids_outside_the_vocabulary),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(open_reads_files_and_folders),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
