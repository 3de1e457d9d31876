/* tokenizer_file.c -- tokenizer.json: saved, loaded, refused with a reason. */
#define _XOPEN_SOURCE 700

#include <stdio.h>
#include <unistd.h>

#include "support/texts.h"

static void test_save_and_load(void **state)
{
    char      folder[] = "/tmp/foci-tokenizer-XXXXXX", path[64];
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    for (int k = 0; k < N_TEXT_KINDS; k++) {
        foci_tokenizer *t = train_text(ctx, text_kinds[k], text_prose), *u;
        assert_int_equal(foci_tokenizer_save(t, k % 2 ? path : folder), FOCI_OK);
        if (foci_tokenizer_load(ctx, k % 3 ? path : folder, &u))
            fail_msg("%s: %s", text_kinds[k], foci_errmsg(ctx));
        expect_same_tokenizer(t, u);
        foci_tokenizer_free(t);
        foci_tokenizer_free(u);
    }
    assert_int_equal(unlink(path), 0);
    foci_tokenizer *t;
    assert_int_equal(foci_tokenizer_load(ctx, folder, &t), FOCI_ERR_FILE);
    assert_null(t);
    assert_int_equal(rmdir(folder), 0);
    foci_ctx_free(ctx);
}

static void test_fingerprint(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);
    uint64_t  seen[N_TEXT_KINDS];

    (void)state;
    for (int k = 0; k < N_TEXT_KINDS; k++) {
        foci_tokenizer *t = train_text(ctx, text_kinds[k], text_prose);
        seen[k] = foci_tokenizer_fingerprint(t);
        for (int i = 0; i < k; i++)
            assert_true(seen[i] != seen[k]);
        foci_tokenizer_free(t);
    }
    /* The same tokens, merged in another order. */
    foci_tokenizer *a = train_text(ctx, "bpe:262", "ab ab ab cd cd");
    foci_tokenizer *b = train_text(ctx, "bpe:262", "ab ab cd cd cd");
    assert_true(foci_tokenizer_fingerprint(a) != foci_tokenizer_fingerprint(b));
    foci_tokenizer_free(a);
    foci_tokenizer_free(b);
    foci_ctx_free(ctx);
}

/*
 * What is refused
 */

/* Read `json` with one text in it replaced by another; NULL: as it is. */
static foci_status read_changed(foci_ctx *ctx, const char *json, const char *old,
                                const char *new, foci_tokenizer **t)
{
    const char  *at = old ? strstr(json, old) : json;
    const size_t n_old = old ? strlen(old) : 0, n_new = old ? strlen(new) : 0;

    if (!at) fail_msg("the file has no '%s'", old);
    char *changed = test_alloc(strlen(json) + n_new + 1, 1);
    memcpy(changed, json, (size_t)(at - json));
    if (n_new) memcpy(changed + (at - json), new, n_new);
    strcpy(changed + (at - json) + n_new, at + n_old);
    const foci_status status =
        foci_tokenizer_parse(ctx, "a.json", changed, strlen(changed), t);
    free(changed);
    return status;
}

struct refusal {
    const char *old, *new;
    foci_status status;
    const char *reason; /* a part of the message */
};

static void expect_refusals(const char *kind, const char *text,
                            const struct refusal *list, size_t n)
{
    foci_ctx       *ctx = test_ctx(NULL, 1);
    foci_tokenizer *t = train_text(ctx, kind, text), *u;
    size_t          bytes;
    const char     *json = foci_tokenizer_json(t, &bytes);
    char           *whole = test_alloc(bytes + 1, 1);

    memcpy(whole, json, bytes);
    for (size_t i = 0; i < n; i++) {
        const struct refusal *r = &list[i];
        const foci_status     status = read_changed(ctx, whole, r->old, r->new, &u);
        if (status != r->status)
            fail_msg("%s: '%s' gave '%s': %s", kind, r->new, foci_status_text(status),
                     foci_errmsg(ctx));
        if (status) assert_null(u);
        if (status && !strstr(foci_errmsg(ctx), r->reason))
            fail_msg("%s: '%s' was refused with '%s', expected '%s'", kind, r->new,
                     foci_errmsg(ctx), r->reason);
        if (status) assert_int_equal(strncmp(foci_errmsg(ctx), "a.json: ", 8), 0);
        foci_tokenizer_free(u);
    }
    free(whole);
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
}

#define BYTE_LEVEL "{\"type\": \"ByteLevel\""
#define PAD        "{\"id\": 0, \"content\": \"<pad>\", \"single_word\": false"

static void test_steps_refused(void **state)
{
    static const struct refusal list[] = {
        { "\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", FOCI_ERR_UNSUP,
          "normalizer is NFC" },
        { "\"truncation\": null", "\"truncation\": {\"max_length\": 8}", FOCI_ERR_UNSUP,
          "truncation is given" },
        { "\"padding\": null", "\"padding\": {}", FOCI_ERR_UNSUP, "padding is given" },
        { "\"post_processor\": null", "\"post_processor\": {\"type\": \"ByteLevel\"}",
          FOCI_OK, "" },
        { "\"pre_tokenizer\": " BYTE_LEVEL,
          "\"pre_tokenizer\": {\"type\": \"Whitespace\"", FOCI_ERR_UNSUP,
          "pre_tokenizer Whitespace and decoder ByteLevel" },
        { "\"decoder\": " BYTE_LEVEL, "\"decoder\": {\"type\": \"Fuse\"",
          FOCI_ERR_UNSUP, "decoder is Fuse" },
        { "\"pre_tokenizer\": " BYTE_LEVEL ", \"add_prefix_space\": false",
          "\"pre_tokenizer\": " BYTE_LEVEL, FOCI_ERR_FILE, "no add_prefix_space" },
        { "\"type\": \"BPE\"", "\"type\": \"Unigram\"", FOCI_ERR_UNSUP,
          "model Unigram" },
        { "    \"type\": \"BPE\",\n", "", FOCI_OK, "" },
        { "\"model\"", "\"modal\"", FOCI_ERR_FILE, "no model with a vocabulary" },
        { "\"vocab\": {", "\"vocab\": [], \"x\": {", FOCI_ERR_FILE, "no model" },
        { "\"dropout\": null", "\"dropout\": 0.1", FOCI_ERR_UNSUP, "dropout is not 0" },
        { "\"dropout\": null", "\"dropout\": 0.0", FOCI_OK, "" },
        { "\"byte_fallback\": false", "\"byte_fallback\": true", FOCI_ERR_UNSUP,
          "byte_fallback is true" },
        { "\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"##\"",
          FOCI_ERR_UNSUP, "continuing_subword_prefix is ##" },
        { "\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"",
          FOCI_ERR_UNSUP, "end_of_word_suffix is </w>" },
        { "{", "{{", FOCI_ERR_FILE, "is not JSON" },
        { "{", "1, {", FOCI_ERR_FILE, "is not JSON: more than one value" },
        { "\"version\"", "\"truncation\": null, \"version\"", FOCI_ERR_FILE,
          "is not JSON: duplicate" },
    };
    (void)state;
    expect_refusals("bpe:300", text_prose, list, sizeof list / sizeof *list);
}

static void test_tokens_refused(void **state)
{
    static const struct refusal list[] = {
        { "\"!\": 4", "\"!\": \"4\"", FOCI_ERR_FILE,
          "the id of token '!' is not a whole number" },
        { "\"!\": 4", "\"!\": -1", FOCI_ERR_FILE, "token '!' has id -1" },
        { "\"!\": 4", "\"!\": 99999", FOCI_ERR_FILE, "token '!' has id 99999" },
        { "\"!\": 4", "\"!\": 5", FOCI_ERR_FILE, "is that of another one too" },
        { "\"!\": 4", "\"!\": 300", FOCI_OK, "" },
        { "\"!\": 4", "\"!\": 4, \"\": 300", FOCI_OK, "" },
        { "\"unk_token\": null", "\"unk_token\": \"?!\"", FOCI_ERR_FILE,
          "unk_token '?!' is not in the vocabulary" },
        { "\"unk_token\": null", "\"unk_token\": \"<pad>\"", FOCI_OK, "" },
        { "\"added_tokens\": [", "\"added_tokens\": 1, \"x\": [", FOCI_ERR_FILE,
          "added_tokens is not a list" },
        { "\"added_tokens\": [", "\"added_tokens\": [1, ", FOCI_ERR_FILE,
          "has no content or no id" },
        { PAD, "{\"id\": 0, \"content\": \"\", \"single_word\": false", FOCI_ERR_FILE,
          "'' has 0 bytes" },
        { PAD, "{\"id\": 0, \"content\": \"<pad>\", \"single_word\": true",
          FOCI_ERR_UNSUP, "'<pad>' is a single_word" },
        { PAD, "{\"id\": 7, \"content\": \"<pad>\", \"single_word\": false",
          FOCI_ERR_FILE, "'<pad>' has id 7, and 0 in the vocabulary" },
        { PAD, "{\"id\": 301, \"content\": \"<new>\", \"single_word\": false",
          FOCI_ERR_FILE, "it has to be 300" },
        { PAD, "{\"id\": 300, \"content\": \"<new>\", \"single_word\": false", FOCI_OK,
          "" },
        { PAD, "{\"id\": 0, \"content\": \"<pad>\"}, {\"id\": 0, \"content\": \"<pad>\"",
          FOCI_ERR_FILE, "'<pad>' is listed twice" },
    };
    (void)state;
    expect_refusals("bpe:300", text_prose, list, sizeof list / sizeof *list);
}

static void test_merges_refused(void **state)
{
    static const struct refusal list[] = {
        { "\"merges\": [", "\"merges\": {}, \"x\": [", FOCI_ERR_FILE,
          "no list of merges" },
        { "\"a b\"", "\"a  b\"", FOCI_ERR_FILE, "merge 0 is not two tokens" },
        { "\"a b\"", "\"ab\"", FOCI_ERR_FILE, "merge 0 is not two tokens" },
        { "\"a b\"", "[\"a\", \"b\", \"c\"]", FOCI_ERR_FILE, "merge 0 is not two" },
        { "\"a b\"", "[\"a\", 1]", FOCI_ERR_FILE, "merge 0 is not two tokens" },
        { "\"a b\"", "7", FOCI_ERR_FILE, "merge 0 is not two tokens" },
        { "\"a b\"", "[\"a\", \"b\"]", FOCI_OK, "" },
        { "\"a b\"", "\"a b\", \"a b\"", FOCI_OK, "" },
        { "\"a b\"", "\"b a\"", FOCI_ERR_FILE, "merge 0 joins 'b' and 'a'" },
        { "\"a b\"", "\"a zz\"", FOCI_ERR_FILE, "merge 0 joins 'a' and 'zz'" },
        { "\"a b\"", "\"a \"", FOCI_ERR_FILE, "merge 0 joins 'a' and ''" },
        { "\"a b\"", "\"a \\u3042\"", FOCI_ERR_FILE, "merge 0 joins" },
    };
    (void)state;
    expect_refusals("bpe:261", "ab ab", list, sizeof list / sizeof *list);
}

static void test_other_kinds_refused(void **state)
{
    static const struct refusal chars[] = {
        { "\"merges\": [\n    ]", "\"merges\": [\"a b\"]", FOCI_ERR_UNSUP,
          "pre_tokenizer is none" },
        { "\"ignore_merges\": false", "\"ignore_merges\": true", FOCI_ERR_UNSUP,
          "ignore_merges is true" },
        { "\"fuse_unk\": false", "\"fuse_unk\": true", FOCI_ERR_UNSUP,
          "fuse_unk is true" },
        { "\"unk_token\": \"<unk>\"", "\"unk_token\": null", FOCI_OK, "" },
    };
    static const struct refusal words[] = {
        { "\"unk_token\": \"<unk>\"", "\"unk_token\": null", FOCI_ERR_FILE,
          "unk_token '' is not in the vocabulary" },
        { "\"decoder\": null", "\"decoder\": {\"type\": \"WordPiece\"}", FOCI_ERR_UNSUP,
          "decoder WordPiece" },
    };
    (void)state;
    expect_refusals("chars", "ab", chars, sizeof chars / sizeof *chars);
    expect_refusals("words", "ab", words, sizeof words / sizeof *words);
}

/* Cut short anywhere it is refused in one line, and nothing is read beyond its end. */
static void test_truncated(void **state)
{
    foci_ctx       *ctx = test_ctx(NULL, 1);
    foci_tokenizer *t = train_text(ctx, "bpe:300", text_prose), *u;
    size_t          bytes;
    const char     *json = foci_tokenizer_json(t, &bytes);

    (void)state;
    for (size_t n = 0; n < bytes - 1; n += 100) {
        char *part = malloc(n + (n == 0)); /* without a byte to spare */
        assert_non_null(part);
        memcpy(part, json, n);
        assert_int_equal(foci_tokenizer_parse(ctx, "cut", part, n, &u), FOCI_ERR_FILE);
        assert_null(u);
        assert_non_null(strstr(foci_errmsg(ctx), "cut: is not JSON"));
        free(part);
    }
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
}

/* One token, and bytes that have none: what is unknown is left out. */
static void test_one_token(void **state)
{
    static const char json[] =
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, "
        "\"decoder\": {\"type\": \"ByteLevel\"}, "
        "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}";
    foci_ctx       *ctx = test_ctx(NULL, 1);
    foci_tokenizer *t;
    int64_t         n;

    (void)state;
    assert_int_equal(foci_tokenizer_parse(ctx, "one", json, strlen(json), &t), FOCI_OK);
    assert_int_equal(foci_tokenizer_size(t), 1);
    assert_int_equal(foci_tokenizer_special(t, FOCI_SPECIAL_PAD), -1);
    int32_t *ids = ids_of(t, "banana a", 8, 0, &n);
    assert_int_equal(n, 4);
    assert_int_equal(ids[3], 0);
    free(ids);
    foci_tokenizer_free(t);

    assert_int_equal(
        foci_tokenizer_parse(ctx, "none", "{\"model\": {\"vocab\": {}}}", 24, &t),
        FOCI_ERR_UNSUP);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save_and_load),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_steps_refused),
        cmocka_unit_test(test_tokens_refused),
        cmocka_unit_test(test_merges_refused),
        cmocka_unit_test(test_other_kinds_refused),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_one_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
