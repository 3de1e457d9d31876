/* tokenizer.c -- training of tokenizers: kinds, sizes, pieces of text, threads. */
#include "support/texts.h"

static void test_kinds(void **state)
{
    static const char *const bad[] = { "",
                                       "byte",
                                       "bpe",
                                       "bpe:",
                                       "bpe:259",
                                       "bpe:x",
                                       "bpe:-",
                                       "bytes:9",
                                       "bpe:1e3",
                                       "words:5",
                                       "chars:",
                                       "bpe:10000001",
                                       "bpe:99999999999999999999" };
    foci_ctx                *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        foci_tokenizer *t;
        assert_int_equal(foci_tokenizer_check(ctx, bad[i]), FOCI_ERR_ARG);
        assert_non_null(strstr(foci_errmsg(ctx), "accepted are"));
        assert_int_equal(foci_tokenizer_train(ctx, bad[i], NULL, NULL, 0, &t),
                         FOCI_ERR_ARG);
        assert_null(t);
    }
    for (int i = 0; i < N_TEXT_KINDS; i++)
        assert_int_equal(foci_tokenizer_check(ctx, text_kinds[i]), FOCI_OK);
    foci_ctx_free(ctx);
}

static void expect_token(const foci_tokenizer *t, int32_t id, const char *text)
{
    int64_t     bytes;
    const char *seen = foci_tokenizer_token(t, id, &bytes);
    assert_non_null(seen);
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(seen, text, (size_t)bytes);
    assert_int_equal(foci_tokenizer_id(t, text, bytes), id);
}

static void test_special(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int i = 0; i < N_TEXT_KINDS; i++) {
        foci_tokenizer_info info = { FOCI_SIZED(foci_tokenizer_info) };
        foci_tokenizer     *t = train_text(ctx, text_kinds[i], text_prose);
        const bool          knows_all = text_kinds[i][0] == 'b';

        assert_int_equal(foci_tokenizer_get_info(t, &info), FOCI_OK);
        assert_int_equal(strncmp(text_kinds[i], info.kind, strlen(info.kind)), 0);
        assert_int_equal(info.tokens, foci_tokenizer_size(t));
        assert_int_equal(info.added, knows_all ? 4 : 5);
        assert_true(info.fingerprint == foci_tokenizer_fingerprint(t));

        assert_int_equal(foci_tokenizer_special(t, FOCI_SPECIAL_PAD), 0);
        assert_int_equal(foci_tokenizer_special(t, FOCI_SPECIAL_BOS), 1);
        assert_int_equal(foci_tokenizer_special(t, FOCI_SPECIAL_EOS), 2);
        assert_int_equal(foci_tokenizer_special(t, FOCI_SPECIAL_UNK),
                         knows_all ? -1 : 3);
        assert_int_equal(foci_tokenizer_special(t, FOCI_SPECIAL_MASK),
                         knows_all ? 3 : 4);
        assert_int_equal(foci_tokenizer_special(t, FOCI_SPECIAL_COUNT), -1);
        expect_token(t, 0, "<pad>");
        expect_token(t, 2, "<eos>");
        assert_true(foci_tokenizer_is_special(t, 1));
        assert_false(foci_tokenizer_is_special(t, (int32_t)info.tokens - 1));
        assert_false(foci_tokenizer_is_special(t, -1));
        int64_t bytes;
        assert_null(foci_tokenizer_token(t, (int32_t)info.tokens, &bytes));
        assert_int_equal(foci_tokenizer_id(t, "zzz", 3), -1);
        foci_tokenizer_free(t);
    }
    foci_ctx_free(ctx);
}

static void test_sizes(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    foci_tokenizer *t = train_text(ctx, "words:7", "b b a c c c d\n");
    assert_int_equal(foci_tokenizer_size(t), 7);
    expect_token(t, 5, "c");
    expect_token(t, 6, "b");
    foci_tokenizer_free(t);
    t = train_text(ctx, "chars:7", "ccbba");
    assert_int_equal(foci_tokenizer_size(t), 7);
    expect_token(t, 5, "b");
    expect_token(t, 6, "c");
    foci_tokenizer_free(t);

    /* The pair (a, b) occurs three times; then (blank, ab) and (ab, c) twice, and the
     * blank has the smaller id. */
    t = train_text(ctx, "bpe:261", "abc abc abd\n");
    assert_int_equal(foci_tokenizer_size(t), 261);
    expect_token(t, 260, "ab");
    foci_tokenizer_free(t);
    t = train_text(ctx, "bpe:9999", "abc abc abd\n");
    expect_token(t, 261, " ab");
    assert_int_equal(foci_tokenizer_size(t), 262);
    foci_tokenizer_free(t);
    t = train_text(ctx, "bpe:260", "abc abc abd\n");
    assert_int_equal(foci_tokenizer_size(t), 260);
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
}

/* Nothing, one character, one word. */
static void test_little_text(void **state)
{
    static const char *const texts[] = { "", "a", "\n", "aaaa", " ", "a\n\n", "\xff" };
    foci_ctx                *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int k = 0; k < N_TEXT_KINDS; k++) {
            foci_tokenizer *t = train_text(ctx, text_kinds[k], texts[i]);
            int64_t         n;
            int32_t        *ids = ids_of(t, texts[i], (int64_t)strlen(texts[i]), 0, &n);
            for (int64_t j = 0; j < n; j++)
                assert_true(ids[j] >= 0 && ids[j] < foci_tokenizer_size(t));
            free(ids);
            foci_tokenizer_free(t);
        }
    foci_tokenizer *t;
    assert_int_equal(foci_tokenizer_train(ctx, "bpe:300", NULL, NULL, 0, &t), FOCI_OK);
    assert_int_equal(foci_tokenizer_size(t), 260);
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
}

/* The pieces that a reader gives, and the number of threads, change nothing. */
static void test_pieces_and_threads(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1), *more = test_ctx(NULL, 5);

    (void)state;
    for (int k = 0; k < N_TEXT_KINDS; k++) {
        foci_tokenizer *t = train_text(ctx, text_kinds[k], text_prose), *other;
        for (int64_t piece = 1; piece < 200; piece += 66) {
            struct memory_text m = { .text = text_prose,
                                     .bytes = sizeof text_prose - 1,
                                     .piece = piece };
            const foci_reader  reader = memory_reader(&m);
            assert_int_equal(
                foci_tokenizer_train(more, text_kinds[k], NULL, &reader, 1, &other),
                FOCI_OK);
            expect_same_tokenizer(t, other);
            foci_tokenizer_free(other);
        }
        foci_tokenizer_free(t);
    }
    foci_ctx_free(ctx);
    foci_ctx_free(more);
}

/* A line longer than what is read at once counts as the same words on short lines. */
static void test_long_line(void **state)
{
    static const char part[] =
        " the quick brown fox, it's said: jumps over 13 lazy dogs";
    const int64_t len = sizeof part - 1, times = 200000;
    foci_ctx     *ctx = test_ctx(NULL, 3);
    char         *line = test_alloc((size_t)(len * times), 1);
    char         *lines = test_alloc((size_t)((len + 1) * times), 1);

    (void)state;
    for (int64_t i = 0; i < times; i++) {
        memcpy(line + i * len, part, (size_t)len);
        memcpy(lines + i * (len + 1), part, (size_t)len);
        lines[i * (len + 1) + len] = '\n';
    }
    for (int k = 2; k < 4; k++) {
        foci_tokenizer *a = train_on(ctx, text_kinds[k], line, len * times);
        foci_tokenizer *b = train_on(ctx, text_kinds[k], lines, (len + 1) * times);
        expect_same_tokenizer(a, b);
        foci_tokenizer_free(a);
        foci_tokenizer_free(b);
    }
    free(line);
    free(lines);
    foci_ctx_free(ctx);
}

static void test_reader_fails(void **state)
{
    struct memory_text m = {
        .text = text_prose, .bytes = sizeof text_prose - 1, .piece = 10, .fails = 50
    };
    foci_reader     reader = memory_reader(&m);
    foci_ctx       *ctx = test_ctx(NULL, 1);
    foci_tokenizer *t;

    (void)state;
    assert_int_equal(foci_tokenizer_train(ctx, "words", NULL, &reader, 1, &t),
                     FOCI_ERR_FILE);
    assert_null(t);
    assert_string_equal(foci_errmsg(ctx),
                        "memory: cannot be read: the memory is on fire");
    reader.name = NULL;
    reader.error = NULL;
    assert_int_equal(foci_tokenizer_train(ctx, "words", NULL, &reader, 1, &t),
                     FOCI_ERR_FILE);
    assert_string_equal(foci_errmsg(ctx), "text: cannot be read: its reader failed");
    reader.read = NULL;
    assert_int_equal(foci_tokenizer_train(ctx, "words", NULL, &reader, 1, &t),
                     FOCI_ERR_ARG);
    assert_int_equal(foci_reader_open(ctx, "/no/such/file", &reader), FOCI_ERR_FILE);
    assert_int_equal(foci_reader_open(ctx, "/", &reader), FOCI_ERR_FILE);
    assert_string_equal(foci_errmsg(ctx), "/: cannot be read: Is a directory");
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_little_text),
        cmocka_unit_test(test_pieces_and_threads),
        cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_reader_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
