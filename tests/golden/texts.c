/* texts.c -- tokenizers and scores agree with what other libraries make of the same
 * texts: text/cases.json, by text/make.py. */
#include "test.h"

#include <jansson.h>
#include <math.h>

#include "foci/text.h"

#define FOLDER "tests/golden/text/"

static json_t *cases;

static int open_cases(void **state)
{
    json_error_t error;

    (void)state;
    cases = json_load_file(FOLDER "cases.json", JSON_ALLOW_NUL, &error);
    if (!cases) fail_msg("cases.json: %s at line %d", error.text, error.line);
    return 0;
}

static int close_cases(void **state)
{
    (void)state;
    json_decref(cases);
    return 0;
}

static foci_string string_of(const json_t *value)
{
    return (foci_string){ json_string_value(value), (int64_t)json_string_length(value) };
}

static foci_tokenizer *file_of(foci_ctx *ctx, const json_t *c)
{
    const json_t   *file = json_object_get(c, "file");
    foci_tokenizer *t = NULL;

    if (foci_tokenizer_parse(ctx, json_string_value(json_object_get(c, "name")),
                             json_string_value(file), json_string_length(file), &t))
        fail_msg("%s", foci_errmsg(ctx));
    return t;
}

/*
 * Ids and texts
 */

static void expect_ids(const char *name, const json_t *line, const json_t *expected,
                       const int32_t *ids, int64_t n)
{
    if (n != (int64_t)json_array_size(expected))
        fail_msg("%s: '%s' becomes %d ids, expected %d", name, json_string_value(line),
                 (int)n, (int)json_array_size(expected));
    for (int64_t i = 0; i < n; i++) {
        const json_int_t id = json_integer_value(json_array_get(expected, (size_t)i));
        if (ids[i] != id)
            fail_msg("%s: '%s', token %d is %d, expected %d", name,
                     json_string_value(line), (int)i, (int)ids[i], (int)id);
    }
}

static void expect_text(const foci_tokenizer *t, const char *name, const int32_t *ids,
                        int64_t n, unsigned flags, const json_t *expected)
{
    foci_decoder d = { FOCI_SIZED(foci_decoder) };
    int64_t      bytes;
    char         text[1024];

    assert_int_equal(foci_decode(t, &d, ids, n,
                                 flags | FOCI_DECODE_END | FOCI_DECODE_REPLACE, text,
                                 sizeof text, &bytes),
                     FOCI_OK);
    const foci_string s = string_of(expected);
    if (bytes != s.bytes || memcmp(text, s.text, (size_t)bytes) != 0)
        fail_msg("%s: decoded to '%.*s', expected '%s'", name, (int)bytes, text, s.text);
}

/* All lines at once, as they are and with special tokens as ordinary text. */
static void expect_case(const foci_tokenizer *t, const json_t *c)
{
    enum { MOST = 64, IDS = 4096 };
    const char   *name = json_string_value(json_object_get(c, "name"));
    const json_t *lines = json_object_get(cases, "lines");
    const size_t  n = json_array_size(lines);
    foci_string   texts[MOST];
    int64_t       offsets[MOST + 1];
    int32_t       ids[IDS];
    foci_encoder *e;

    assert_true(n > 0 && n <= MOST);
    for (size_t i = 0; i < n; i++)
        texts[i] = string_of(json_array_get(lines, i));
    assert_int_equal(foci_encoder_create(t, &e), FOCI_OK);
    assert_true(foci_encoder_most(e, texts, (int64_t)n) <= IDS);

    for (unsigned plain = 0; plain < 2; plain++) {
        assert_int_equal(foci_encode(e, texts, (int64_t)n,
                                     plain ? FOCI_ENCODE_PLAIN : 0, ids, IDS, offsets),
                         FOCI_OK);
        const json_t *lists = json_object_get(c, plain ? "plain" : "ids");
        for (size_t i = 0; i < n; i++)
            expect_ids(name, json_array_get(lines, i), json_array_get(lists, i),
                       ids + offsets[i], offsets[i + 1] - offsets[i]);
        for (size_t i = 0; i < n && !plain; i++) {
            const int32_t *line = ids + offsets[i];
            const int64_t  len = offsets[i + 1] - offsets[i];
            expect_text(t, name, line, len, 0,
                        json_array_get(json_object_get(c, "text"), i));
            expect_text(t, name, line, len, FOCI_DECODE_SPECIALS,
                        json_array_get(json_object_get(c, "whole"), i));
        }
    }
    foci_encoder_free(e);
}

static void test_files(void **state)
{
    const json_t *list = json_object_get(cases, "tokenizers"), *c;
    foci_ctx     *ctx = test_ctx(NULL, 2);
    size_t        i;

    (void)state;
    assert_true(json_array_size(list) >= 10);
    json_array_foreach(list, i, c)
    {
        foci_tokenizer *t = file_of(ctx, c);
        expect_case(t, c);
        foci_tokenizer_free(t);
    }
    foci_ctx_free(ctx);
}

/* What we train on the same text is the same tokenizer. */
static void test_training(void **state)
{
    const json_t *list = json_object_get(cases, "tokenizers"), *c;
    foci_ctx     *ctx = test_ctx(NULL, 2);
    int           n = 0;
    size_t        i;

    (void)state;
    json_array_foreach(list, i, c)
    {
        const char *kind = json_string_value(json_object_get(c, "kind"));
        if (!kind) continue;
        const foci_tokenizer_options options = { FOCI_SIZED(foci_tokenizer_options),
                                                 .min_count = json_integer_value(
                                                     json_object_get(c, "min_count")) };
        foci_reader                  reader = { FOCI_SIZED(foci_reader) };
        foci_tokenizer              *t, *file = file_of(ctx, c);

        assert_int_equal(foci_reader_open(ctx, FOLDER "corpus.txt", &reader), FOCI_OK);
        if (foci_tokenizer_train(ctx, kind, &options, &reader, 1, &t))
            fail_msg("%s: %s", kind, foci_errmsg(ctx));
        expect_case(t, c);
        assert_true(foci_tokenizer_fingerprint(t) == foci_tokenizer_fingerprint(file));
        foci_reader_close(&reader);
        foci_tokenizer_free(t);
        foci_tokenizer_free(file);
        n++;
    }
    assert_int_equal(n, 5);
    foci_ctx_free(ctx);
}

/*
 * Scores
 */

static void expect_near(const char *what, double seen, double expected)
{
    if (!(fabs(seen - expected) <= 1e-9))
        fail_msg("%s is %.12g, expected %.12g", what, seen, expected);
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void add(foci_bleu_counts *sum, const foci_bleu_counts *c)
{
    for (int i = 0; i < 4; i++) {
        sum->match[i] += c->match[i];
        sum->total[i] += c->total[i];
    }
    sum->length += c->length;
    sum->reference += c->reference;
}

static void test_scores(void **state)
{
    const json_t    *all = json_object_get(cases, "scores"), *pair;
    foci_ctx        *ctx = test_ctx(NULL, 1);
    foci_bleu_counts sum = { .length = 0 };
    foci_chrf_counts chars = { .match = { 0 } };
    foci_bleu        bleu = { FOCI_SIZED(foci_bleu) };
    size_t           i;

    (void)state;
    json_array_foreach(json_object_get(all, "pairs"), i, pair)
    {
        const foci_string translation = string_of(json_object_get(pair, "translation"));
        const foci_string reference = string_of(json_object_get(pair, "reference"));
        foci_bleu_counts  one = { .length = 0 };
        foci_chrf_counts  one_chars = { .match = { 0 } };

        assert_int_equal(foci_bleu_add(ctx, translation, reference, &one), FOCI_OK);
        assert_int_equal(foci_chrf_add(ctx, translation, reference, &one_chars),
                         FOCI_OK);
        assert_int_equal(foci_chrf_add(ctx, translation, reference, &chars), FOCI_OK);
        add(&sum, &one);
        assert_int_equal(foci_bleu_score(&one, 1, &bleu), FOCI_OK);
        expect_near(reference.text, bleu.score, number(pair, "bleu"));
        expect_near(reference.text, foci_chrf_score(&one_chars), number(pair, "chrf"));
    }
    assert_true(i > 50);
    assert_int_equal(foci_bleu_score(&sum, 0, &bleu), FOCI_OK);
    expect_near("BLEU", bleu.score, number(all, "bleu"));
    expect_near("the brevity penalty", bleu.brevity, number(all, "brevity"));
    expect_near("the ratio", bleu.ratio, number(all, "ratio"));
    for (size_t n = 0; n < 4; n++)
        expect_near(
            "a precision", bleu.precision[n],
            json_number_value(json_array_get(json_object_get(all, "precisions"), n)));
    expect_near("chrF2", foci_chrf_score(&chars), number(all, "chrf"));
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_scores),
    };
    return cmocka_run_group_tests(tests, open_cases, close_cases);
}
