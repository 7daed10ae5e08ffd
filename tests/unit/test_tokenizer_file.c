/* tokenizer.json: everything that could change ids and is not implemented must be refused by name. */
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/tiny_tokenizer.h"
#include "text/source.h"

static const char *const merges[] = {"a b", "ab c", "u s"};

typedef struct refusal {
    const char *path, *value; /* what is changed; NULL value: removed */
    pl_status status;
    const char *words[2];
} refusal;

static const refusal refusals[] = {
    /* structure */
    {"model", NULL, PL_ERR_CORRUPT, {"model: missing"}},
    {"model", "[]", PL_ERR_UNSUPPORTED, {"model: not supported (got an array, want an object)"}},
    {"model.type",
     "'WordPiece'",
     PL_ERR_UNSUPPORTED,
     {"model.type", "got \"WordPiece\", want BPE"}},
    {"model.type", NULL, PL_ERR_CORRUPT, {"model.type: missing"}},
    {"model.dropout", "0.1", PL_ERR_UNSUPPORTED, {"model.dropout", "got 0.1, want null"}},
    {"model.unk_token", "'<unk>'", PL_ERR_UNSUPPORTED, {"model.unk_token"}},
    {"model.continuing_subword_prefix",
     "'##'",
     PL_ERR_UNSUPPORTED,
     {"got \"##\", want null or \"\""}},
    {"model.end_of_word_suffix", "'</w>'", PL_ERR_UNSUPPORTED, {"model.end_of_word_suffix"}},
    {"model.byte_fallback", "true", PL_ERR_UNSUPPORTED, {"model.byte_fallback", "got true"}},
    {"model.surprise", "1", PL_ERR_UNSUPPORTED, {"model.surprise: unknown key"}},
    {"version", "'2.0'", PL_ERR_UNSUPPORTED, {"version", "want 1.0"}},
    {"truncation", "{'max_length': 5}", PL_ERR_UNSUPPORTED, {"truncation"}},
    {"padding", "{}", PL_ERR_UNSUPPORTED, {"padding"}},
    {"normalizer", "{'type': 'NFC'}", PL_ERR_UNSUPPORTED, {"normalizer.type"}},
    {"normalizer.normalizers[0]",
     "{'type': 'NFC'}",
     PL_ERR_UNSUPPORTED,
     {"got 1 steps, want none"}},
    {"decoder.type", "'Metaspace'", PL_ERR_UNSUPPORTED, {"decoder.type"}},
    {"decoder", "null", PL_ERR_UNSUPPORTED, {"decoder"}},
    {"post_processor.type", "'TemplateProcessing'", PL_ERR_UNSUPPORTED, {"post_processor.type"}},
    {"pre_tokenizer", "null", PL_ERR_UNSUPPORTED, {"pre_tokenizer"}},
    {"pre_tokenizer.type", "'ByteLevel'", PL_ERR_UNSUPPORTED, {"pre_tokenizer.type"}},
    {"pre_tokenizer.pretokenizers[1]", NULL, PL_ERR_UNSUPPORTED, {"got 3 steps"}},
    {"pre_tokenizer.pretokenizers[1]", "7", PL_ERR_CORRUPT, {"pretokenizers[1]: not an object"}},
    {"pre_tokenizer.pretokenizers[3].use_regex", "true", PL_ERR_UNSUPPORTED, {"[3].use_regex"}},
    {"pre_tokenizer.pretokenizers[3].use_regex", NULL, PL_ERR_CORRUPT, {"[3].use_regex: missing"}},
    {"pre_tokenizer.pretokenizers[3].add_prefix_space",
     "true",
     PL_ERR_UNSUPPORTED,
     {"[3].add_pre"}},
    {"pre_tokenizer.pretokenizers[0].behavior", "'Removed'", PL_ERR_UNSUPPORTED, {"[0].behavior"}},
    {"pre_tokenizer.pretokenizers[0].invert", "true", PL_ERR_UNSUPPORTED, {"[0].invert"}},
    {"pre_tokenizer.pretokenizers[0].pattern",
     "{'String': ' '}",
     PL_ERR_UNSUPPORTED,
     {"got String"}},
    {"pre_tokenizer.pretokenizers[0].pattern",
     "{}",
     PL_ERR_UNSUPPORTED,
     {"got no key, want Regex"}},
    {"pre_tokenizer.pretokenizers[0].pattern.Regex",
     "'\\\\p{N}'",
     PL_ERR_UNSUPPORTED,
     {"pretokenizers[0].pattern.Regex: unknown split pattern", "got '\\p{N}'"}},
    {"pre_tokenizer.pretokenizers[2].pattern.Regex",
     "'\\\\s+'",
     PL_ERR_UNSUPPORTED,
     {"[2].pattern"}},
    /* vocabulary */
    {"model.vocab.a", NULL, PL_ERR_CORRUPT, {"id out of range (got 262, want 0..261 for 262"}},
    {"model.vocab.a", "98", PL_ERR_CORRUPT, {"model.vocab: id 98 is given twice"}},
    {"model.vocab.a", "-1", PL_ERR_CORRUPT, {"id out of range (got -1, want 0..262"}},
    {"model.vocab.a", "263", PL_ERR_CORRUPT, {"id out of range (got 263, want 0..262"}},
    {"model.vocab.a", "4294967393", PL_ERR_CORRUPT, {"id out of range (got 4294967393"}},
    {"model.vocab.a", "'97'", PL_ERR_CORRUPT, {"model.vocab: id is not a whole number"}},
    {"model.vocab.a", "97.0", PL_ERR_CORRUPT, {"model.vocab: id is not a whole number"}},
    {"model.vocab.中",
     "263",
     PL_ERR_UNSUPPORTED,
     {"token 263 is not spelled in the byte alphabet"}},
    /* added tokens */
    {"added_tokens", "{}", PL_ERR_UNSUPPORTED, {"added_tokens"}},
    {"added_tokens[1]", "'x'", PL_ERR_CORRUPT, {"added_tokens[1]: not an object"}},
    {"added_tokens[1].content", "''", PL_ERR_CORRUPT, {"added_tokens[1]: empty content"}},
    {"added_tokens[1].content", NULL, PL_ERR_CORRUPT, {"added_tokens[1].content: missing"}},
    {"added_tokens[1].lstrip",
     "true",
     PL_ERR_UNSUPPORTED,
     {"added_tokens[1].lstrip", "want false"}},
    {"added_tokens[1].rstrip", "true", PL_ERR_UNSUPPORTED, {"added_tokens[1].rstrip"}},
    {"added_tokens[1].single_word", "true", PL_ERR_UNSUPPORTED, {"added_tokens[1].single_word"}},
    {"added_tokens[1].special", NULL, PL_ERR_CORRUPT, {"added_tokens[1].special: missing"}},
    {"added_tokens[1].id", "259", PL_ERR_CORRUPT, {"added_tokens[1]: id 259 is given twice"}},
    {"added_tokens[1].id", "97", PL_ERR_CORRUPT, {"added_tokens[1]: id 97 is given twice"}},
    {"added_tokens[1].id", "1.5", PL_ERR_UNSUPPORTED, {"added_tokens[1].id", "want a number"}},
    {"added_tokens[1].content",
     "'a'",
     PL_ERR_CORRUPT,
     {"'a' has two ids (got 260, in model.vocab 97"}},
    {"added_tokens[1].content",
     "'<bos>'",
     PL_ERR_CORRUPT,
     {"tokens 259 and 260 have the same bytes"}},
    /* merges */
    {"model.merges[1]", "'ab'", PL_ERR_CORRUPT, {"model.merges[1]: not a pair"}},
    {"model.merges[1]", "'a b c'", PL_ERR_CORRUPT, {"model.merges[1]: not a pair"}},
    {"model.merges[1]", "' ab'", PL_ERR_CORRUPT, {"model.merges[1]: not a pair"}},
    {"model.merges[1]", "['ab']", PL_ERR_CORRUPT, {"model.merges[1]: not a pair"}},
    {"model.merges[1]", "['ab', 3]", PL_ERR_CORRUPT, {"model.merges[1]: not a pair"}},
    {"model.merges[1]", "7", PL_ERR_CORRUPT, {"model.merges[1]: not a pair"}},
    {"model.merges[1]", "'ab q'", PL_ERR_CORRUPT, {"model.merges[1]: 'abq' is not in model.vocab"}},
    {"model.merges[1]", "'xy c'", PL_ERR_CORRUPT, {"model.merges[1]: 'xy' is not in model.vocab"}},
    {"model.merges[1]", "'ab xy'", PL_ERR_CORRUPT, {"model.merges[1]: 'xy' is not in model.vocab"}},
};

static void refuses_by_name(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *r = &refusals[i];
        json_t *root = tiny_tokenizer(merges, 3);
        pl_tokenizer *t;
        pl_error err = {0};
        pl_status status;

        change(root, r->path, r->value);
        status = open_tiny(root, &t, &err);
        if (status != r->status || !err.msg[0])
            fail_msg("%s = %s: status %s: %s", r->path, r->value ? r->value : "(removed)",
                     pl_status_name(status), err.msg);
        check_error(status, r->status, &err, "tiny.json: ", r->words[0], r->words[1], NULL);
        assert_null(t);
        json_decref(root);
    }
}

/* Every one of the 256 byte tokens is needed. */
static void refuses_a_missing_byte(void **state)
{
    json_t *root = tiny_tokenizer(merges, 3), *vocab = at_path(root, "model.vocab");
    pl_tokenizer *t;
    pl_error err;

    json_object_del(vocab, "Ġ"); /* the space; its id goes to a token that nothing makes */
    json_object_set_new(vocab, "qq", json_integer(' '));
    check_error(open_tiny(root, &t, &err), PL_ERR_UNSUPPORTED, &err, "no token for byte 0x20",
                NULL);
    json_decref(root);
}

/* Listed twice, <bos> makes the number of entries right; the gap shows all the same. */
static void refuses_a_gap(void **state)
{
    json_t *root = tiny_tokenizer(merges, 3);
    pl_tokenizer *t;
    pl_error err;

    change(root, "model.vocab.<bos>", "259");
    change(root, "model.vocab.us", NULL);
    change(root, "model.merges[2]", NULL);
    check_error(open_tiny(root, &t, &err), PL_ERR_CORRUPT, &err, "no token has id 258",
                "ids go to 262", NULL);
    json_decref(root);
}

static void check_accepted(const char *path, const char *value)
{
    static const char text[] = "abc us<bos> <user>x";
    static const int32_t want[] = {257, ' ', 258, 259, ' ', 262};
    json_t *root = tiny_tokenizer(merges, 3);
    pl_encoder *encoder;
    pl_tokenizer *t;
    int32_t ids[32];
    size_t n;
    pl_error err;

    if (path)
        change(root, path, value);
    check_ok(open_tiny(root, &t, &err), &err);
    assert_int_equal(pl_encoder_create(0, &encoder), PL_OK);
    check_ok(pl_tokenizer_encode(t, encoder, text, strlen(text), PL_ENCODE_ADDED_TOKENS, ids, 32,
                                 &n, &err),
             &err);
    assert_int_equal(n, 6);
    assert_memory_equal(ids, want, sizeof want);
    pl_encoder_destroy(encoder);
    pl_tokenizer_close(t);
    json_decref(root);
}

/* Other ways to write the same tokenizer. */
static void accepts_what_means_the_same(void **state)
{
    check_accepted(NULL, NULL);
    check_accepted("normalizer", "null");
    check_accepted("normalizer", NULL);
    check_accepted("post_processor", "null");
    check_accepted("truncation", NULL);
    check_accepted("model.ignore_merges", "false");
    check_accepted("model.ignore_merges", "true"); /* all tokens are made by merges */
    check_accepted("model.continuing_subword_prefix", "''");
    check_accepted("model.fuse_unk", "true");
    check_accepted("model.merges[1]", "['ab', 'c']");
    check_accepted("decoder.trim_offsets", NULL);
    check_accepted("post_processor.use_regex", "false");
    check_accepted("added_tokens[0].lstrip", NULL);
    /* in both lists with one id and one spelling, as the released file has its first three */
    check_accepted("model.vocab.<bos>", "259");
}

/* A token that merges do not make can be decoded; with ignore_merges it could be encoded too. */
static void tokens_that_merges_do_not_make(void **state)
{
    json_t *root = tiny_tokenizer(merges, 3);
    pl_tokenizer *t;
    char out[8];
    int32_t id = 263, ids[8];
    size_t n;
    pl_encoder *encoder;
    pl_error err;

    change(root, "model.vocab.qq", "263");
    check_ok(open_tiny(root, &t, &err), &err);
    check_ok(pl_tokenizer_decode(t, &id, 1, 0, out, sizeof out, &n, &err), &err);
    assert_int_equal(n, 2);
    assert_memory_equal(out, "qq", 2);
    assert_int_equal(pl_encoder_create(0, &encoder), PL_OK);
    check_ok(pl_tokenizer_encode(t, encoder, "qq", 2, PL_ENCODE_PLAIN, ids, 8, &n, &err), &err);
    assert_int_equal(n, 2);
    pl_encoder_destroy(encoder);
    pl_tokenizer_close(t);
    change(root, "model.ignore_merges", "true");
    check_error(open_tiny(root, &t, &err), PL_ERR_UNSUPPORTED, &err, "model.ignore_merges", "263",
                NULL);
    json_decref(root);
}

static void refuses_what_is_not_json(void **state)
{
    static const char *const texts[] = {
        "", "{", "[1", "{\"a\": 1, \"a\": 2}", "{\"version\": \"\xFF\"}", "nul", "{} {}"};
    pl_tokenizer *t;
    pl_error err;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        check_error(pl_tokenizer_open_memory("x.json", texts[i], strlen(texts[i]), &t, &err),
                    PL_ERR_CORRUPT, &err, "x.json: not JSON: ", "line ", NULL);
    check_error(pl_tokenizer_open_memory("x.json", "[]", 2, &t, &err), PL_ERR_CORRUPT, &err,
                "x.json: not a JSON object", NULL);
    check_error(pl_tokenizer_open_memory("x.json", "{}", 2, &t, &err), PL_ERR_CORRUPT, &err,
                "x.json: added_tokens: missing", NULL);
}

/* Lengths and counts are refused before anything is parsed. */
static void refuses_files_that_are_too_large(void **state)
{
    size_t n = PL_SOURCE_MAX_BYTES + 1;
    char *text = malloc(n);
    pl_tokenizer *t;
    pl_error err;

    memset(text, ' ', n);
    check_error(pl_tokenizer_open_memory("x.json", text, n, &t, &err), PL_ERR_UNSUPPORTED, &err,
                "too long (got 67108865 bytes, want at most 67108864)", NULL);
    memset(text, '[', PL_SOURCE_MAX_VALUES);
    check_error(pl_tokenizer_open_memory("x.json", text, PL_SOURCE_MAX_VALUES, &t, &err),
                PL_ERR_UNSUPPORTED, &err, "too many JSON values (want fewer than 4194304)", NULL);
    /* separators inside strings are no values */
    memset(text, ',', n);
    text[0] = '"';
    memcpy(text + 100, "\\\",", 3);
    text[PL_SOURCE_MAX_VALUES + 4] = '"';
    check_error(pl_tokenizer_open_memory("x.json", text, PL_SOURCE_MAX_VALUES + 5, &t, &err),
                PL_ERR_CORRUPT, &err, "not JSON", NULL);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(refuses_a_missing_byte),
        cmocka_unit_test(refuses_a_gap),
        cmocka_unit_test(accepts_what_means_the_same),
        cmocka_unit_test(tokens_that_merges_do_not_make),
        cmocka_unit_test(refuses_what_is_not_json),
        cmocka_unit_test(refuses_files_that_are_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
