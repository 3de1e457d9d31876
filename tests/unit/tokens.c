/* tokens.c -- text to ids, to words, and back. */
#include "support/texts.h"

/*
 * Text to ids and back
 */

static char *decoded(const foci_tokenizer *t, const int32_t *ids, int64_t n,
                     unsigned flags, int64_t *bytes)
{
    foci_decoder d = { FOCI_SIZED(foci_decoder) };

    assert_int_equal(foci_decode(t, &d, ids, n, flags, NULL, 0, bytes), FOCI_OK);
    char *text = test_alloc((size_t)*bytes + 1, 1);
    d = (foci_decoder){ FOCI_SIZED(foci_decoder) }; /* of no ids it has changed too */
    assert_int_equal(foci_decode(t, &d, ids, n, flags, text, *bytes, bytes), FOCI_OK);
    return text;
}

/* Any bytes, each a few times, and all of them by chance. */
static void fill_bytes(struct rng *r, char *text, int64_t n)
{
    static const char *const some[] = { "the ",  " of",  "a",        "'s",   "\n",
                                        "\xc3",  "\x9f", "\xe1\xba", "\xbf", "<eos>",
                                        "<unk>", "  ",   "\xff" };
    for (int64_t i = 0; i < n;) {
        const char   *s = some[rng_below(r, sizeof some / sizeof *some)];
        const char    byte = (char)rng_below(r, 256);
        const bool    any = rng_below(r, 4) == 0;
        const int64_t len = any ? 1 : (int64_t)strlen(s);
        if (i + len > n) break;
        memcpy(text + i, any ? &byte : s, (size_t)len);
        i += len;
    }
}

/* Kinds bytes and bpe give back what they were given. */
static void test_lossless(void **state)
{
    enum { LEN = 200 };
    static const char *const lossless[] = { "bytes", "bpe:300", "bpe:1000" };
    foci_ctx                *ctx = test_ctx(NULL, 1);
    struct rng               r;

    (void)state;
    rng_seed(&r, 1, 0);
    for (int k = 0; k < 3; k++) {
        foci_tokenizer *t = train_text(ctx, lossless[k], text_prose);
        for (int round = 0; round < 50; round++) {
            char    text[LEN] = { 0 };
            int64_t n, bytes;
            fill_bytes(&r, text, LEN);
            for (unsigned flags = 0; flags < 2; flags++) {
                int32_t *ids = ids_of(t, text, LEN, flags, &n);
                char    *back =
                    decoded(t, ids, n, FOCI_DECODE_SPECIALS | FOCI_DECODE_END, &bytes);
                assert_int_equal(bytes, LEN);
                assert_memory_equal(back, text, LEN);
                free(back);
                free(ids);
            }
        }
        foci_tokenizer_free(t);
    }
    foci_ctx_free(ctx);
}

/* Token by token the text is the same, every piece whole characters where the text is
 * UTF-8, and nothing is held back longer than it has to be. */
static void test_streaming(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int k = 0; k < N_TEXT_KINDS; k++) {
        foci_tokenizer *t = train_text(ctx, text_kinds[k], text_prose);
        int64_t         n, whole, used = 0;
        int32_t        *ids = ids_of(t, text_prose, sizeof text_prose - 1, 0, &n);
        char           *text = decoded(t, ids, n, FOCI_DECODE_END, &whole);
        foci_decoder    d = { FOCI_SIZED(foci_decoder) };

        for (int64_t i = 0; i < n; i++) {
            char    piece[256];
            int64_t bytes;
            assert_int_equal(
                foci_decode(t, &d, ids + i, 1, 0, piece, sizeof piece, &bytes), FOCI_OK);
            assert_true(used + bytes <= whole);
            assert_memory_equal(piece, text + used, (size_t)bytes);
            assert_true(bytes == 0 || (piece[0] & 0xc0) != 0x80);
            assert_true(d.n_held < 3);
            used += bytes;
        }
        assert_int_equal(used, whole);
        free(text);
        free(ids);
        foci_tokenizer_free(t);
    }
    foci_ctx_free(ctx);
}

static void test_held_back(void **state)
{
    foci_ctx       *ctx = test_ctx(NULL, 1);
    foci_tokenizer *t = train_text(ctx, "bytes", "");
    foci_decoder    d = { FOCI_SIZED(foci_decoder) };
    int64_t         bytes;
    char            text[8];
    const int32_t   first = 4 + 0xe1, second = 4 + 0xba, last = 4 + 0xbf,
                  letter = 4 + 'x';

    (void)state;
    assert_int_equal(foci_decode(t, &d, &first, 1, 0, text, 8, &bytes), FOCI_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(foci_decode(t, &d, &second, 1, 0, text, 8, &bytes), FOCI_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(d.n_held, 2);

    foci_decoder other = d; /* too little room changes nothing */
    assert_int_equal(foci_decode(t, &other, &last, 1, 0, text, 2, &bytes), FOCI_OK);
    assert_int_equal(bytes, 3);
    assert_memory_equal(&other, &d, sizeof d);
    assert_int_equal(foci_decode(t, &other, &last, 1, 0, text, 3, &bytes), FOCI_OK);
    assert_memory_equal(text, "\xe1\xba\xbf", 3);

    other = d; /* what is no character is given out as it is, or replaced */
    assert_int_equal(foci_decode(t, &other, &letter, 1, 0, text, 8, &bytes), FOCI_OK);
    assert_int_equal(bytes, 3);
    assert_memory_equal(text, "\xe1\xbax", 3);
    assert_int_equal(foci_decode(t, &d, NULL, 0, FOCI_DECODE_END | FOCI_DECODE_REPLACE,
                                 text, 8, &bytes),
                     FOCI_OK);
    assert_int_equal(bytes, 3);
    assert_memory_equal(text, "\xef\xbf\xbd", 3);

    const int32_t none = 260;
    assert_int_equal(foci_decode(t, &d, &none, 1, 0, text, 8, &bytes), FOCI_ERR_ARG);
    assert_string_equal(foci_errmsg(ctx),
                        "id 0 is 260; this tokenizer has ids from 0 to 259");
    d.n_held = 9;
    assert_int_equal(foci_decode(t, &d, &last, 1, 0, text, 8, &bytes), FOCI_ERR_ARG);
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
}

/* Ill-formed sequences are one character each, as Python's errors="replace" has it. */
static void test_ill_formed(void **state)
{
    static const char text[] = "a\xe1\xba"
                               "b\xff\xf0\x9f\x98"
                               "c\xed\xa0\x80";
    static const int  expected[] = { 'a', 0, 'b', 0, 0, 'c', 0, 0, 0 };
    foci_ctx         *ctx = test_ctx(NULL, 1);
    foci_tokenizer   *t = train_text(ctx, "chars", "abc\xff");
    const int32_t     replaced = foci_tokenizer_id(t, "\xef\xbf\xbd", 3);
    int64_t           n;
    int32_t          *ids = ids_of(t, text, sizeof text - 1, 0, &n);

    (void)state;
    assert_true(replaced > 4);
    assert_int_equal(n, sizeof expected / sizeof *expected);
    for (int64_t i = 0; i < n; i++) {
        const char c = (char)expected[i];
        assert_int_equal(ids[i], c ? foci_tokenizer_id(t, &c, 1) : replaced);
    }
    free(ids);
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
}

static void test_many_texts(void **state)
{
    enum { N = 5000 };
    static foci_string texts[N];
    static int64_t     offsets[N + 1], again[N + 1];
    foci_ctx          *ctx = test_ctx(NULL, 1), *more = test_ctx(NULL, 7);
    struct rng         r;

    (void)state;
    rng_seed(&r, 3, 0);
    for (int i = 0; i < N; i++) {
        const int64_t at = rng_below(&r, (int64_t)sizeof text_prose - 1);
        texts[i] = (foci_string){ text_prose + at,
                                  rng_below(&r, (int64_t)sizeof text_prose - at) };
    }
    texts[7].bytes = texts[N - 1].bytes = 0;
    texts[7].text = NULL;
    for (int k = 0; k < N_TEXT_KINDS; k++) {
        foci_tokenizer *t = train_text(ctx, text_kinds[k], text_prose);
        foci_tokenizer *u = train_text(more, text_kinds[k], text_prose);
        foci_encoder   *e, *f;
        assert_int_equal(foci_encoder_create(t, &e), FOCI_OK);
        assert_int_equal(foci_encoder_create(u, &f), FOCI_OK);
        const int64_t most = foci_encoder_most(e, texts, N);
        int32_t      *a = test_alloc((size_t)most, sizeof *a);
        int32_t      *b = test_alloc((size_t)most, sizeof *b);
        assert_int_equal(foci_encode(e, texts, N, 0, a, most, offsets), FOCI_OK);
        assert_int_equal(foci_encode(f, texts, N, 0, b, most, again), FOCI_OK);
        assert_memory_equal(offsets, again, sizeof offsets);
        assert_memory_equal(a, b, (size_t)offsets[N] * sizeof *a);

        int64_t  n; /* one alone, by an encoder that saw no other */
        int32_t *one = ids_of(t, texts[11].text, texts[11].bytes, 0, &n);
        assert_int_equal(n, offsets[12] - offsets[11]);
        assert_memory_equal(one, a + offsets[11], (size_t)n * sizeof *a);
        free(one);

        assert_int_equal(foci_encode(e, texts, N, 0, a, most - 1, offsets),
                         FOCI_ERR_ARG);
        assert_int_equal(foci_encode(e, texts, N, 2, a, most, offsets), FOCI_ERR_ARG);
        assert_int_equal(foci_encode(e, texts, 0, 0, NULL, 0, offsets), FOCI_OK);
        assert_int_equal(offsets[0], 0);
        free(a);
        free(b);
        foci_encoder_free(e);
        foci_encoder_free(f);
        foci_tokenizer_free(t);
        foci_tokenizer_free(u);
    }
    foci_ctx_free(ctx);
    foci_ctx_free(more);
}

/* No text at all is an empty one. */
static void test_scores_of_nothing(void **state)
{
    const foci_string texts[] = { { NULL, 0 }, { "", 0 }, { "ein Haus", 8 } };
    foci_ctx         *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            const double     want = i == 2 && k == 2 ? 100 : 0;
            foci_bleu_counts bleu = { 0 };
            foci_chrf_counts chrf = { 0 };
            assert_int_equal(foci_bleu_add(ctx, texts[i], texts[k], &bleu), FOCI_OK);
            assert_int_equal(foci_chrf_add(ctx, texts[i], texts[k], &chrf), FOCI_OK);
            assert_true(foci_chrf_score(&chrf) == want);
        }
    foci_ctx_free(ctx);
}

/* A million bytes without a place to cut: quadratic time would be an hour. */
static void test_long_words(void **state)
{
    enum { LEN = 1 << 20 };
    static const char *const unit[] = {
        "a", "ab", "'", " ", "<", "<pa", "\x80", "\n", "\xe1\xba\xbf", "x1"
    };
    const int64_t len = test_sanitized() ? LEN / 16 : LEN;
    foci_ctx     *ctx = test_ctx(NULL, 1);
    char         *text = test_alloc(LEN, 1);

    (void)state;
    for (size_t u = 0; u < sizeof unit / sizeof *unit; u++) {
        for (int64_t i = 0; i < len; i++)
            text[i] = unit[u][i % (int64_t)strlen(unit[u])];
        for (int k = 0; k < 4; k++) {
            foci_tokenizer *t = train_on(ctx, text_kinds[k], text, len);
            int64_t         n, bytes;
            int32_t        *ids = ids_of(t, text, len, 0, &n);
            char           *back = decoded(t, ids, n, FOCI_DECODE_END, &bytes);
            if (k == 0 || k == 3) {
                assert_int_equal(bytes, len);
                assert_memory_equal(back, text, (size_t)len);
            }
            free(back);
            free(ids);
            foci_tokenizer_free(t);
        }
    }
    free(text);
    foci_ctx_free(ctx);
}

/*
 * Words
 */

static void expect_words(const foci_tokenizer *t, const char *text, const char *expected)
{
    foci_word_state s = { FOCI_SIZED(foci_word_state) };
    int64_t         n;
    int32_t        *ids = ids_of(t, text, (int64_t)strlen(text), 0, &n), words[64];

    assert_true(n <= 64);
    assert_int_equal(foci_token_words(t, ids, n, &s, words), FOCI_OK);
    assert_int_equal(n, strlen(expected));
    for (int64_t i = 0; i < n; i++)
        if (words[i] != expected[i] - '0')
            fail_msg("'%s': token %d is of word %d, expected %c", text, (int)i,
                     (int)words[i], expected[i]);
    free(ids);
}

static void test_words(void **state)
{
    foci_ctx       *ctx = test_ctx(NULL, 1);
    foci_tokenizer *t = train_text(ctx, "bytes", "");

    (void)state;
    expect_words(t, "ab cd", "00111");
    expect_words(t, " ab  c\n", "0001112");
    expect_words(t, "a<eos>b c", "01233");
    expect_words(t, "<bos><bos>", "01");
    expect_words(t, "\xc3\x9f \xc3\x9f", "00111");
    foci_tokenizer_free(t);
    t = train_text(ctx, "words", "the cat sat");
    expect_words(t, "the dog  sat", "012");
    foci_tokenizer_free(t);
    t = train_text(ctx, "chars", "the cat");
    expect_words(t, "th? c?t", "0001111");
    foci_tokenizer_free(t);
    t = train_text(ctx, "bpe:999", "thinking thinking is nice is nice");
    expect_words(t, "thinking is nicer", "0122");
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
}

/* From 0, never falling, by 1 at most; and the same in any pieces. */
static void test_words_in_pieces(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int k = 0; k < N_TEXT_KINDS; k++) {
        foci_tokenizer *t = train_text(ctx, text_kinds[k], text_prose);
        int64_t         n;
        int32_t        *ids = ids_of(t, text_prose, sizeof text_prose - 1, 0, &n);
        int32_t        *all = test_alloc((size_t)n, sizeof *all), one = 0;
        foci_word_state s = { FOCI_SIZED(foci_word_state) },
                        p = { FOCI_SIZED(foci_word_state) };

        assert_int_equal(foci_token_words(t, ids, n, &s, all), FOCI_OK);
        for (int64_t i = 0; i < n; i++) {
            assert_int_equal(foci_token_words(t, ids + i, 1, &p, &one), FOCI_OK);
            assert_int_equal(one, all[i]);
            assert_true(i ? all[i] - all[i - 1] <= 1 && all[i] >= all[i - 1]
                          : all[i] == 0);
        }
        const int32_t bad = -1;
        assert_int_equal(foci_token_words(t, &bad, 1, &p, &one), FOCI_ERR_ARG);
        assert_memory_equal(&s, &p, sizeof s);
        free(all);
        free(ids);
        foci_tokenizer_free(t);
    }
    foci_ctx_free(ctx);
}

/* What is shown of the token of a text, by kind chars, and of single bytes. */
static void test_display(void **state)
{
    static const struct {
        const char *text, *shown;
    } chars[] = {
        { "a", "a" },
        { " ", "\xe2\x90\xa3" },
        { "\\", "\\\\" },
        { "<", "<" },
        { "\t", "\\t" },
        { "\x1b", "\\x1b" },
        { "\x7f", "\\x7f" },
        { "\xc2\x85", "\\u{85}" },            /* a control character */
        { "\xc2\xa0", "\\u{a0}" },            /* a blank */
        { "\xe2\x80\xae", "\\u{202e}" },      /* turns the direction of writing */
        { "\xef\xbb\xbf", "\\u{feff}" },      /* has no width */
        { "\xf0\x9f\xbf\xbe", "\\u{1fffe}" }, /* is no character */
        { "\xe2\x80\xbf", "\xe2\x80\xbf" },   /* between those that are not seen */
        { "\xd7\xa9", "\xd7\xa9" },           /* a Hebrew letter */
        { "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80" },
    };
    foci_ctx *ctx = test_ctx(NULL, 1);
    char      text[64];

    (void)state;
    for (size_t i = 0; i < sizeof chars / sizeof *chars; i++) {
        foci_tokenizer *t = train_text(ctx, "chars", chars[i].text);
        int64_t         n;
        int32_t *ids = ids_of(t, chars[i].text, (int64_t)strlen(chars[i].text), 0, &n);
        assert_int_equal(n, 1);
        const int bytes = foci_token_display(t, ids[0], text, sizeof text);
        assert_string_equal(text, chars[i].shown);
        assert_int_equal(bytes, strlen(text));
        assert_int_equal(foci_token_display(t, ids[0], NULL, 0), bytes);
        free(ids);
        foci_tokenizer_free(t);
    }
    foci_tokenizer *t = train_text(ctx, "bytes", "");
    assert_int_equal(foci_token_display(t, foci_tokenizer_id(t, "\xe2", 1), text, 4), 4);
    assert_string_equal(text, "\\xe");
    foci_token_display(t, foci_tokenizer_id(t, "\0", 1), text, sizeof text);
    assert_string_equal(text, "\\x00");
    foci_token_display(t, -7, text, sizeof text);
    assert_string_equal(text, "-7");
    foci_token_display(NULL, 12, text, sizeof text);
    assert_string_equal(text, "12");
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lossless),
        cmocka_unit_test(test_streaming),
        cmocka_unit_test(test_held_back),
        cmocka_unit_test(test_ill_formed),
        cmocka_unit_test(test_many_texts),
        cmocka_unit_test(test_scores_of_nothing),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_words_in_pieces),
        cmocka_unit_test(test_display),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
