/* data_errors.c -- what cannot be read or contradicts itself: a status, one line that says
 * what and where, readers closed, nothing left behind. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "support/datasets.h"
#include "support/files.h"

struct scene {
    foci_ctx       *ctx;
    foci_tokenizer *bytes, *words;
    struct source   source, target;
};

static int set_up(void **state)
{
    struct scene *x = test_alloc(1, sizeof *x);

    x->ctx = test_ctx(NULL, 1);
    x->bytes = datasets_tokenizer(x->ctx, "bytes", "");
    x->words = datasets_tokenizer(x->ctx, "words", "a b c\n");
    *state = x;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *x = *state;

    foci_tokenizer_free(x->bytes);
    foci_tokenizer_free(x->words);
    foci_ctx_free(x->ctx);
    free(x);
    return 0;
}

static struct source text_of(const char *text)
{
    return (struct source){ .text = text, .bytes = text ? (int64_t)strlen(text) : 0 };
}

/* Open x->source and, where it has a text, x->target. */
static foci_status open_scene(struct scene *x, foci_data_options o, foci_data **d)
{
    foci_reader r = source_reader(&x->source), t = source_reader(&x->target);

    t.name = "other.txt";
    o.size = sizeof o;
    if (!o.tokenizer && o.kind != FOCI_DATA_TASK && o.kind != FOCI_DATA_IMAGES)
        o.tokenizer = x->bytes;
    if (!o.batch && !o.tokens) o.batch = 2;
    if (!o.len && o.kind != FOCI_DATA_TASK) o.len = 8;
    o.source = x->source.text ? &r : NULL;
    o.target = x->target.text ? &t : NULL;
    const foci_status status = foci_data_open(x->ctx, &o, d);
    /* The caller's readers are closed ones now. */
    if (o.source) assert_null(r.read);
    if (o.target) assert_null(t.read);
    return status;
}

static void refuse(struct scene *x, const char *text, const char *other,
                   foci_data_options o, foci_status wanted, const char *reason)
{
    foci_data *d = (foci_data *)x;

    x->source = text_of(text);
    x->target = text_of(other);
    const foci_status status = open_scene(x, o, &d);
    if (status != wanted || !strstr(foci_errmsg(x->ctx), reason))
        fail_msg("status %d, \"%s\"; expected %d, \"%s\"", status, foci_errmsg(x->ctx),
                 wanted, reason);
    assert_null(d);
    assert_int_equal(x->source.closed, text != NULL);
    assert_int_equal(x->target.closed, other != NULL);
}

#define INIT(...)                                                                      \
    {                                                                                  \
        FOCI_SIZED(foci_data_options), __VA_ARGS__                                     \
    }
#define OPTIONS(...) ((foci_data_options)INIT(__VA_ARGS__))
#define PAIRS        .kind = FOCI_DATA_TRANSLATE
#define LABELS       .kind = FOCI_DATA_CLASSIFY

static void options(void **state)
{
    static const struct {
        foci_data_options o;
        const char       *reason;
    } wrong[] = {
        { INIT(.kind = (foci_data_kind)9), "kind=9: a data set takes 0 to 5" },
        { INIT(.order = (foci_data_order)4), "order=4" },
        { INIT(.documents = (foci_data_documents)-1), "documents=" },
        { INIT(.too_long = (foci_data_long)7), "too_long=7" },
        { INIT(.split = (foci_data_split)3), "split=3" },
        { INIT(.batch = -1), "batch=-1" },
        { INIT(.len = -5), "len=-5: a data set takes 1 to 2147483647" },
        { INIT(.source_len = -5), "source_len=-5" },
        { INIT(.tokens = INT64_MAX), "tokens=9223372036854775807" },
        { INIT(.tokens = 7), "tokens=7: a row of 8 does not fit" },
        { INIT(.multiple = -1), "multiple=-1" },
        { INIT(.batch = INT32_MAX, .len = 1 << 20), "a batch has at most 2147483647" },
        { INIT(.stride = 1), "stride is given, which is for one pass" },
        { INIT(.stride = 9, .order = FOCI_DATA_ORDER_ONCE), "stride=9" },
        { INIT(.pack = 1), "pack is given" },
        { INIT(.pack = 1, .tokens = 80, .documents = FOCI_DATA_DOCUMENTS_LINES),
          "tokens beside pack" },
        { INIT(.order = FOCI_DATA_ORDER_SEGMENTS,
               .documents = FOCI_DATA_DOCUMENTS_LINES),
          "an order of segments is given" },
        { INIT(LABELS, .documents = FOCI_DATA_DOCUMENTS_LINES), "documents is given" },
        { INIT(.mask = 1), "mask=1: the share" },
        { INIT(.mask = -0.1), "mask=-0.1" },
        { INIT(.scale = (double)INFINITY), "numbers are needed" },
        { INIT(.part_begin = 0.5), "part 0.5 to 0: a part begins" },
        { INIT(.part_begin = 0.5, .part_end = 0.4), "part 0.5 to 0.4" },
        { INIT(.part_end = 1.5), "part 0 to 1.5" },
        { INIT(.part_end = (double)NAN), "part 0 to " },
        { INIT(.reverse = 1), "reverse is given, which is for translate only" },
        { INIT(.task = "mqar"), "a task is given" },
        { INIT(LABELS, .n_classes = -1), "n_classes=-1" },
        { INIT(.kind = FOCI_DATA_TASK, .task = "mqar"), "a source is given" },
        { INIT(.kind = FOCI_DATA_IMAGES), "images need labels" },
    };
    struct scene *x = *state;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(x, "text\n", NULL, wrong[i].o, FOCI_ERR_ARG, wrong[i].reason);
    refuse(x, NULL, NULL, OPTIONS(.len = 8), FOCI_ERR_ARG, "there is no source");
    refuse(x, "text\n", "other\n", OPTIONS(.len = 8), FOCI_ERR_ARG, "a target is given");
}

static void missing(void **state)
{
    struct scene     *x = *state;
    foci_data        *d = NULL;
    foci_data_options o = { FOCI_SIZED(foci_data_options), .batch = 1, .len = 1 };
    foci_reader       r;
    foci_batch        b = { .size = 3 };
    foci_data_info    info = { .size = 0 };
    foci_floor        floor = { FOCI_SIZED(foci_floor) };

    x->source = text_of("abc\n");
    r = source_reader(&x->source);
    o.source = &r;
    assert_int_equal(foci_data_open(x->ctx, &o, &d), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(x->ctx), "text needs a tokenizer"));
    assert_int_equal(foci_data_open(x->ctx, NULL, &d), FOCI_ERR_ARG);
    assert_int_equal(foci_data_open(x->ctx, &o, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_data_open(NULL, &o, &d), FOCI_ERR_ARG);
    o.size = 4;
    assert_int_equal(foci_data_open(x->ctx, &o, &d), FOCI_ERR_ARG);
    assert_int_equal(foci_data_next(NULL, &b), FOCI_ERR_ARG);
    assert_int_equal(foci_data_rewind(NULL, 0), FOCI_ERR_ARG);
    assert_int_equal(foci_data_restore(NULL, "", 1), FOCI_ERR_ARG);
    assert_int_equal(foci_data_get_info(NULL, &info), FOCI_ERR_ARG);
    assert_null(foci_data_class(NULL, 0));
    assert_null(foci_data_slice(NULL, 0));
    assert_int_equal(foci_data_class_count(NULL), 0);
    assert_int_equal(foci_data_slice_count(NULL), 0);
    assert_int_equal(foci_data_floor_count(NULL), 0);

    x->source = text_of("abc\n");
    x->target = text_of(NULL);
    assert_int_equal(open_scene(x, OPTIONS(.len = 4), &d), FOCI_OK);
    assert_int_equal(foci_data_next(d, &b), FOCI_ERR_ARG);
    assert_int_equal(foci_data_next(d, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_data_rewind(d, -1), FOCI_ERR_ARG);
    assert_int_equal(foci_data_get_info(d, &info), FOCI_ERR_ARG);
    assert_int_equal(foci_data_floor(d, 0, 5, &floor), FOCI_ERR_ARG);
    assert_null(foci_data_slice(d, 0));
    assert_int_equal(foci_data_floor_count(d), 0);
    assert_int_equal(foci_data_task(d, NULL, 0), 0);
    foci_data_free(d);
    foci_data_free(NULL);
}

static void files(void **state)
{
    struct scene *x = *state;

    refuse(x, "", NULL, OPTIONS(.len = 4), FOCI_ERR_FILE,
           "set.txt: has nothing to learn");
    refuse(x, "\n\n", NULL,
           OPTIONS(.kind = FOCI_DATA_MLM, .documents = FOCI_DATA_DOCUMENTS_LINES),
           FOCI_ERR_FILE, "has nothing to learn");
    refuse(x, "", "", OPTIONS(PAIRS), FOCI_ERR_FILE, "set.txt: has nothing to learn");
    refuse(x, "", NULL, OPTIONS(LABELS), FOCI_ERR_FILE, "has nothing to learn");
    refuse(x, "a\tb\nc d\n", NULL, OPTIONS(PAIRS), FOCI_ERR_FILE,
           "set.txt, line 2: has no tab; every line is SOURCE<TAB>TARGET");
    refuse(x, "a\tb\tc\n", NULL, OPTIONS(PAIRS), FOCI_ERR_FILE, "more than one tab");
    refuse(x, "a\n\nb", "c\nd\n", OPTIONS(PAIRS), FOCI_ERR_FILE,
           "other.txt: ends after 2 lines, but set.txt has more");
    refuse(x, "a\nb\n", "c\nd\n\n", OPTIONS(PAIRS), FOCI_ERR_FILE,
           "set.txt: ends after 2 lines, but other.txt has more");
    refuse(x, "long one\tx\nlonger one\tx\n", NULL, OPTIONS(PAIRS), FOCI_ERR_FILE,
           "all 2 examples are longer than len=8");
    refuse(x, "a\tb\nlabel\n", NULL, OPTIONS(LABELS), FOCI_ERR_FILE,
           "set.txt, line 2: has no tab; every line is LABEL<TAB>TEXT");
    refuse(x, "a\tb\n\tb\n", NULL, OPTIONS(LABELS), FOCI_ERR_FILE,
           "line 2: has no label before its tab");
    refuse(x, "a\xff\tb\n", NULL, OPTIONS(LABELS), FOCI_ERR_FILE, "not UTF-8");
    refuse(x, "abc\n", NULL, OPTIONS(.part_begin = 0.9, .part_end = 0.95),
           FOCI_ERR_FILE, "in the part that is wanted");

    static const char *const twice[] = { "a", "b", "a" }, *const empty[] = { "a", "" };
    refuse(x, "a\tb\n", NULL, OPTIONS(LABELS, .classes = twice, .n_classes = 3),
           FOCI_ERR_ARG, "class 'a' is given twice");
    refuse(x, "a\tb\n", NULL, OPTIONS(LABELS, .classes = empty, .n_classes = 2),
           FOCI_ERR_ARG, "class 1 has no name");
}

/* One label that is a sentence, and too many of them. */
static void labels_that_are_none(void **state)
{
    enum { LINES = 65537 };
    struct scene *x = *state;
    char         *text = test_alloc(LINES, 16), *to = text;

    memset(text, 'a', 300);
    text[300] = '\t';
    refuse(x, text, NULL, OPTIONS(LABELS), FOCI_ERR_FILE, "has a label of 300 bytes");
    for (int i = 0; i < LINES; i++)
        to += sprintf(to, "%d\tx\n", i);
    refuse(x, text, NULL, OPTIONS(LABELS), FOCI_ERR_FILE,
           "line 65537: has another label than 65536 before it");
    free(text);
}

/* The smallest files there are. */
static void smallest(void **state)
{
    struct scene *x = *state;
    foci_data    *d = NULL;

    static const char *const texts[] = { "a", "\n", "a\n", "a\tb", "a\t\n" };
    for (int i = 0; i < 5; i++)
        for (int kind = FOCI_DATA_LM; kind <= FOCI_DATA_CLASSIFY; kind++) {
            if (kind >= FOCI_DATA_TRANSLATE && i < 3) continue;
            x->source = text_of(texts[i]);
            x->target = text_of(NULL);
            if (open_scene(x, OPTIONS(.kind = (foci_data_kind)kind), &d))
                fail_msg("text %d, kind %d: %s", i, kind, foci_errmsg(x->ctx));
            for (int n = 0; n < 3; n++) {
                const foci_batch b = datasets_next(d);
                assert_int_equal(b.batch, 1);
                assert_true(b.n_labels >= 1);
            }
            foci_data_free(d);
        }
}

/* A tokenizer of one word, which is never another one than that hidden. */
static void one_word(void **state)
{
    struct scene   *x = *state;
    foci_tokenizer *t = datasets_tokenizer(x->ctx, "words", "a\n");
    foci_data      *d = NULL;

    x->source = text_of("a a a a\n");
    x->target = text_of(NULL);
    assert_int_equal(open_scene(x, OPTIONS(.kind = FOCI_DATA_MLM, .tokenizer = t), &d),
                     FOCI_OK);
    for (int i = 0; i < 100; i++)
        assert_true(datasets_next(d).n_labels >= 1);
    foci_data_free(d);
    foci_tokenizer_free(t);
}

/*
 * Readers that fail
 */

/* At every byte, in every set: while it is opened, or later where it streams. */
static void readers_that_fail(void **state)
{
    struct scene *x = *state;
    int           later = 0;

    for (int i = 0; i < N_DATASETS; i++) {
        const struct dataset *set = &datasets[i];
        if (!set->source) continue;
        for (int64_t at = 1; at < 400; at += 13) {
            foci_data_options o = set->options;
            struct source   s[2] = { { .text = set->source }, { .text = set->target } };
            foci_reader     r[2];
            foci_data      *d = NULL;
            foci_tokenizer *t = set->tokenizer
                                    ? datasets_tokenizer(x->ctx, set->tokenizer, "a b")
                                    : NULL;
            for (int side = 0; side < 2; side++) {
                const int64_t bytes = side ? set->target_bytes : set->source_bytes;
                if (!s[side].text) continue;
                s[side].bytes = bytes ? bytes : (int64_t)strlen(s[side].text);
                r[side] = source_reader(&s[side]);
            }
            s[0].fails_at = at;
            o.tokenizer = t;
            o.source = &r[0];
            o.target = set->target ? &r[1] : NULL;
            foci_status status = foci_data_open(x->ctx, &o, &d);
            for (int n = 0; n < 60 && !status; n++) {
                foci_batch b = { FOCI_SIZED(foci_batch) };
                status = foci_data_next(d, &b);
                later += status != FOCI_OK;
            }
            if (at < s[0].bytes - 7) {
                assert_int_equal(status, FOCI_ERR_FILE);
                assert_string_equal(foci_errmsg(x->ctx),
                                    "set.txt: cannot be read: the test wants it so");
            }
            foci_data_free(d);
            assert_int_equal(s[0].closed, 1);
            foci_tokenizer_free(t);
        }
    }
    assert_true(later > 5);
}

/* What streams needs to go back, and is told when the file was changed meanwhile. */
static void streams(void **state)
{
    struct scene     *x = *state;
    const char       *text = datasets[1].source;
    foci_data_options o = { .batch = 2, .len = 8, .memory = 400 };
    foci_data        *d = NULL;
    foci_batch        b = { FOCI_SIZED(foci_batch) };
    foci_status       status = FOCI_OK;

    for (int c = 0; c < 3; c++) {
        x->source = text_of(text);
        x->target = text_of(NULL);
        x->source.no_rewind = c == 0;
        x->source.after_rewind = c == 1 ? 200 : c == 2 ? 0 : (int64_t)strlen(text);
        assert_int_equal(open_scene(x, o, &d), FOCI_OK);
        status = FOCI_OK;
        for (int n = 0; n < 200 && !status; n++)
            status = foci_data_next(d, &b);
        assert_int_equal(status, c < 2 ? FOCI_ERR_FILE : FOCI_OK);
        if (c == 0)
            assert_non_null(strstr(foci_errmsg(x->ctx), "from its start again"));
        if (c == 1) assert_non_null(strstr(foci_errmsg(x->ctx), "was changed"));
        if (c < 2) {
            assert_int_equal(foci_data_next(d, &b), FOCI_ERR_FILE);
            assert_non_null(strstr(foci_errmsg(x->ctx), "failed before"));
        }
        foci_data_free(d);
    }
    x->source = text_of(text);
    foci_reader r = source_reader(&x->source);
    r.rewind = NULL;
    o.size = sizeof o;
    o.tokenizer = x->bytes;
    o.source = &r;
    assert_int_equal(foci_data_open(x->ctx, &o, &d), FOCI_OK);
    for (status = FOCI_OK; !status;)
        status = foci_data_next(d, &b);
    assert_non_null(strstr(foci_errmsg(x->ctx), "its reader cannot go back"));
    foci_data_free(d);
}

/* A position in a file that has lost its end since. */
static void shrunk(void **state)
{
    struct scene           *x = *state;
    const char             *text = datasets[1].source;
    const foci_data_options o = { .batch = 2, .len = 8, .memory = 400 };
    foci_data              *d = NULL;
    char                    saved[1024];

    x->source = text_of(text);
    x->target = text_of(NULL);
    assert_int_equal(open_scene(x, o, &d), FOCI_OK);
    for (int n = 0; n < 30; n++)
        (void)datasets_next(d);
    const size_t bytes = foci_data_save(d, saved, sizeof saved);
    foci_data_free(d);
    x->source = text_of(text);
    x->source.bytes = 130;
    assert_int_equal(open_scene(x, o, &d), FOCI_OK);
    assert_int_equal(foci_data_restore(d, saved, bytes), FOCI_ERR_FILE);
    assert_non_null(strstr(foci_errmsg(x->ctx), "changed"));
    foci_data_free(d);
}

/* Real files: one that vanishes once it is open is still read, one that shrinks is not
 * taken for the same. */
static void vanishes(void **state)
{
    struct files *f = *state;
    foci_ctx     *ctx = f->ctx;
    FILE         *file = fopen(f->path, "w");
    foci_reader   r = { FOCI_SIZED(foci_reader) };
    foci_data    *d = NULL;
    foci_batch    b = { FOCI_SIZED(foci_batch) };

    for (int i = 0; i < 3000; i++)
        fprintf(file, "line %d of the text\n", i);
    assert_int_equal(fclose(file), 0);
    foci_tokenizer         *t = datasets_tokenizer(ctx, "bytes", "");
    const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                  .source = &r,
                                  .tokenizer = t,
                                  .batch = 16,
                                  .len = 64,
                                  .memory = 40000 };
    for (int c = 0; c < 2; c++) {
        foci_status status = FOCI_OK;
        assert_int_equal(foci_reader_open(ctx, f->path, &r), FOCI_OK);
        assert_int_equal(foci_data_open(ctx, &o, &d), FOCI_OK);
        if (c == 0) assert_int_equal(truncate(f->path, 30000), 0);
        if (c == 1) assert_int_equal(unlink(f->path), 0);
        for (int n = 0; n < 300 && !status; n++)
            status = foci_data_next(d, &b);
        assert_int_equal(status, c ? FOCI_OK : FOCI_ERR_FILE);
        if (!c) assert_non_null(strstr(foci_errmsg(ctx), "was changed"));
        foci_data_free(d);
    }
    assert_int_equal(foci_reader_open(ctx, f->path, &r), FOCI_ERR_FILE);
    foci_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options),
        cmocka_unit_test(missing),
        cmocka_unit_test(files),
        cmocka_unit_test(labels_that_are_none),
        cmocka_unit_test(smallest),
        cmocka_unit_test(one_word),
        cmocka_unit_test(readers_that_fail),
        cmocka_unit_test(streams),
        cmocka_unit_test(shrunk),
        cmocka_unit_test_setup_teardown(vanishes, files_set_up, files_tear_down),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
