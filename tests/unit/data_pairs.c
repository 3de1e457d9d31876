/* data_pairs.c -- pairs, labelled texts and images: what is in the file is in the batches,
 * once, and batches hold what fits. */
#include <math.h>
#include <stdio.h>

#include "support/datasets.h"
#include "support/files.h"

enum { N = 500 };

/* Pairs of sentences of "x" and "y" whose lengths say which line they are in. */
struct corpus {
    char source[N * 40], target[N * 40], table[N * 80];
    int  length[N][2];
};

static void write_corpus(struct corpus *c)
{
    char *s = c->source, *t = c->target, *both = c->table;

    for (int i = 0; i < N; i++) {
        const int n = c->length[i][1] = 1 + i * 7 % 30,
                  m = c->length[i][0] = i * 11 % 27;
        char a[40], b[40];
        memset(a, 'x', (size_t)n);
        memset(b, 'y', (size_t)m);
        a[n] = b[m] = 0;
        s += sprintf(s, "%s\n", a);
        t += sprintf(t, "%s\n", b);
        both += sprintf(both, "%s\t%s\n", a, b);
    }
}

struct scene {
    foci_ctx       *ctx;
    foci_tokenizer *tok;
    struct corpus   corpus;
    int             seen[N];
};

static int set_up(void **state)
{
    struct scene *s = test_alloc(1, sizeof *s);

    s->ctx = test_ctx(NULL, 2);
    s->tok = datasets_tokenizer(s->ctx, "bytes", "");
    write_corpus(&s->corpus);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;

    foci_tokenizer_free(s->tok);
    foci_ctx_free(s->ctx);
    free(s);
    return 0;
}

static foci_data *open_text(struct scene *x, struct source *s, struct source *t,
                            foci_data_options o)
{
    foci_reader r = source_reader(s), other = source_reader(t);
    foci_data  *d = NULL;

    o.source = &r;
    o.target = t->text ? &other : NULL;
    o.tokenizer = x->tok;
    if (foci_data_open(x->ctx, &o, &d)) fail_msg("%s", foci_errmsg(x->ctx));
    return d;
}

/* Either two files (target not NULL) or a table. */
static foci_data *open_corpus(struct scene *x, bool table, struct source sources[2],
                              foci_data_options o)
{
    const struct corpus *c = &x->corpus;
    const char          *text = table ? c->table : c->source;

    sources[0] = (struct source){ .text = text, .bytes = (int64_t)strlen(text) };
    sources[1] = (struct source){ .text = table ? NULL : c->target };
    if (!table) sources[1].bytes = (int64_t)strlen(c->target);
    return open_text(x, &sources[0], &sources[1], o);
}

static int32_t special(struct scene *x, foci_special which)
{
    return foci_tokenizer_special(x->tok, which);
}

/* A row is the pair that its number says, whole. */
static void check_pair(struct scene *x, const foci_batch *b, int64_t r, bool reverse)
{
    const int32_t bos = special(x, FOCI_SPECIAL_BOS),
                  eos = special(x, FOCI_SPECIAL_EOS);
    const int64_t  i = b->examples[r];
    const int32_t *ids = b->ids + r * b->len, *labels = b->labels + r * b->len;
    const int32_t *source = b->source_ids + r * b->source_len;
    const int      n = x->corpus.length[i][!reverse], m = x->corpus.length[i][reverse];
    const int32_t  a = foci_tokenizer_id(x->tok, reverse ? "y" : "x", 1);
    const int32_t  z = foci_tokenizer_id(x->tok, reverse ? "x" : "y", 1);

    assert_in_range(i, 0, N - 1);
    x->seen[i]++;
    assert_int_equal(b->source_lens[r], n + 1);
    assert_int_equal(b->lens[r], m + 1);
    for (int64_t t = 0; t < b->source_len; t++)
        assert_int_equal(source[t], t < n ? a : t == n ? eos : 0);
    for (int64_t t = 0; t < b->len; t++) {
        assert_int_equal(ids[t], t > m ? 0 : t ? z : bos);
        assert_int_equal(labels[t], t > m ? -1 : t == m ? eos : z);
    }
}

static void pairs(void **state)
{
    struct scene *x = *state;

    for (int c = 0; c < 2 * 2 * 2 * 3; c++) {
        struct source sources[2];
        const bool    table = c % 2, once = c / 4 % 2, reverse = table && c / 2 % 2;
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .kind = FOCI_DATA_TRANSLATE,
                                      .len = 40,
                                      .reverse = reverse,
                                      .order = once ? FOCI_DATA_ORDER_ONCE
                                                    : FOCI_DATA_ORDER_SHUFFLED,
                                      .batch = c / 8 ? 16 : 0,
                                      .tokens = c / 8 < 2 ? 200 : 0,
                                      .multiple = c / 8 == 1 ? 8 : 0,
                                      .memory = c / 2 % 2 ? 3000 : 0 };
        foci_data              *d = open_corpus(x, table, sources, o);
        foci_batch              b = datasets_next(d);
        int64_t                 cells = 0, tokens = 0;

        memset(x->seen, 0, sizeof x->seen);
        for (; once ? b.batch > 0 : b.pass == 0; b = datasets_next(d)) {
            for (int64_t r = 0; r < b.batch; r++)
                check_pair(x, &b, r, reverse);
            if (o.batch) assert_in_range(b.batch, 1, 16);
            if (o.tokens) assert_in_range(b.batch * b.len, 1, 200);
            if (o.tokens) assert_in_range(b.batch * b.source_len, 1, 200);
            if (o.multiple) assert_int_equal((b.len | b.source_len) % 8, 0);
            cells += b.batch * (b.len + b.source_len);
            tokens += b.n_tokens;
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(x->seen[i], 1);
        /* In one block half of the positions would be padding in the order of the file:
         * lengths of the two sides have nothing to do with each other here. */
        if (!o.memory && !o.multiple)
            assert_true((double)tokens > 0.65 * (double)cells);
        foci_data_free(d);
    }
}

/* Too long ones are dropped in training and cut in an evaluation, and counted. */
static void too_long(void **state)
{
    struct scene *x = *state;

    for (int c = 0; c < 2; c++) {
        struct source           sources[2];
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .kind = FOCI_DATA_TRANSLATE,
                                      .batch = 8,
                                      .len = 21,
                                      .source_len = 26,
                                      .order = c ? FOCI_DATA_ORDER_ONCE
                                                 : FOCI_DATA_ORDER_SHUFFLED };
        foci_data              *d = open_corpus(x, true, sources, o);
        foci_data_info          info = { FOCI_SIZED(foci_data_info) };
        int                     longer = 0, cut = 0;

        for (int i = 0; i < N; i++)
            longer += x->corpus.length[i][0] > 20 || x->corpus.length[i][1] > 25;
        assert_int_equal(foci_data_get_info(d, &info), FOCI_OK);
        assert_int_equal(info.n_dropped, c ? 0 : longer);
        assert_int_equal(info.n_cut, c ? longer : 0);
        assert_int_equal(info.n_examples, c ? N : N - longer);
        for (foci_batch b = datasets_next(d); c && b.batch; b = datasets_next(d))
            for (int64_t r = 0; r < b.batch; r++) {
                const int    *length = x->corpus.length[b.examples[r]];
                const int32_t n = b.lens[r];
                assert_int_equal(n, length[0] > 20 ? 21 : length[0] + 1);
                assert_int_equal(b.source_lens[r], length[1] > 25 ? 26 : length[1] + 1);
                /* A sentence that is cut has no end, a source has. */
                const bool ends =
                    b.labels[r * b.len + n - 1] == special(x, FOCI_SPECIAL_EOS);
                assert_int_equal(ends, length[0] <= 20);
                assert_int_equal(b.source_ids[r * b.source_len + b.source_lens[r] - 1],
                                 special(x, FOCI_SPECIAL_EOS));
                cut += !ends || length[1] > 25;
            }
        if (c) assert_int_equal(cut, longer);
        foci_data_free(d);
    }
}

/* A part of both files. */
static void parts_of_pairs(void **state)
{
    struct scene *x = *state;

    memset(x->seen, 0, sizeof x->seen);
    for (int p = 0; p < 4; p++) {
        struct source           sources[2];
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .kind = FOCI_DATA_TRANSLATE,
                                      .batch = 7,
                                      .len = 40,
                                      .order = FOCI_DATA_ORDER_ONCE,
                                      .part_begin = p / 4.0,
                                      .part_end = (p + 1) / 4.0,
                                      .memory = 2000 };
        foci_data              *d = open_corpus(x, false, sources, o);
        for (int pass = 0; pass < 2; pass++)
            for (foci_batch b = datasets_next(d); b.batch; b = datasets_next(d))
                for (int64_t r = 0; r < b.batch; r++)
                    check_pair(x, &b, r, false);
        foci_data_free(d);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(x->seen[i], 2);
}

/* The first lines of a part: those, and no others, whatever fits into memory. */
static void first_pairs(void **state)
{
    struct scene *x = *state;

    for (int c = 0; c < 8; c++) {
        struct source           sources[2];
        const bool              late = c / 2 % 2;
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .kind = FOCI_DATA_TRANSLATE,
                                      .batch = 7,
                                      .len = 40,
                                      .order = FOCI_DATA_ORDER_ONCE,
                                      .part_begin = late ? 0.5 : 0,
                                      .part_end = late ? 1 : 0,
                                      .examples = 100,
                                      .memory = c / 4 ? 2000 : 0 };
        foci_data              *d = open_corpus(x, c % 2, sources, o);
        int                     first = 0;

        memset(x->seen, 0, sizeof x->seen);
        for (int pass = 0; pass < 2; pass++)
            for (foci_batch b = datasets_next(d); b.batch; b = datasets_next(d))
                for (int64_t r = 0; r < b.batch; r++)
                    check_pair(x, &b, r, false);
        foci_data_free(d);
        while (!x->seen[first])
            first++;
        if (late)
            assert_in_range(first, N / 2 - 5, N / 2 + 5);
        else
            assert_int_equal(first, 0);
        for (int i = 0; i < N; i++)
            assert_int_equal(x->seen[i], i >= first && i < first + 100 ? 2 : 0);
    }
}

/*
 * Labels
 */

static const char opinions[] =
    "good\tyes\nbad\tno\nso\tmaybe\ngood\t\nbad\tnever\tever\n";

static void labels(void **state)
{
    static const int32_t    answers[] = { 1, 0, 2, 1, 0 };
    static const char      *texts[] = { "yes", "no", "maybe", "", "never\tever" };
    struct scene           *x = *state;
    struct source           s = { .text = opinions, .bytes = sizeof opinions - 1 };
    struct source           none = { 0 };
    const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                  .kind = FOCI_DATA_CLASSIFY, .batch = 2, .len = 20,
                                  .order = FOCI_DATA_ORDER_ONCE };
    foci_data              *d = open_text(x, &s, &none, o);
    int                     n = 0;

    assert_string_equal(foci_data_class(d, 0), "bad");
    assert_string_equal(foci_data_class(d, 1), "good");
    assert_string_equal(foci_data_class(d, 2), "so");
    assert_int_equal(foci_data_class_count(d), 3);
    assert_null(foci_data_class(d, 3));
    assert_null(foci_data_class(d, -1));
    for (foci_batch b = datasets_next(d); b.batch; b = datasets_next(d)) {
        assert_null(b.labels);
        assert_int_equal(b.n_labels, b.batch);
        for (int64_t r = 0; r < b.batch; r++, n++) {
            const int64_t i = b.examples[r];
            assert_int_equal(b.classes[r], answers[i]);
            assert_int_equal(b.lens[r], 1 + strlen(texts[i]));
            assert_int_equal(b.ids[r * b.len], special(x, FOCI_SPECIAL_BOS));
            for (int64_t t = 1; t < b.lens[r]; t++)
                assert_int_equal(b.ids[r * b.len + t],
                                 foci_tokenizer_id(x->tok, texts[i] + t - 1, 1));
        }
    }
    assert_int_equal(n, 5);
    foci_data_free(d);
}

/* Classes of the training set in the order that is given; another label is an error. */
static void given_classes(void **state)
{
    static const char *const names[] = { "so", "good", "bad", "other" };
    static const int32_t     answers[] = { 1, 2, 0, 1, 2 };
    struct scene            *x = *state;
    foci_data_options        o = { FOCI_SIZED(foci_data_options),
                                   .kind = FOCI_DATA_CLASSIFY,
                                   .batch = 5,
                                   .len = 20,
                                   .classes = names,
                                   .n_classes = 4 };
    struct source s = { .text = opinions, .bytes = sizeof opinions - 1 }, none = { 0 };
    foci_data    *d = open_text(x, &s, &none, o);
    foci_reader   r;

    const foci_batch b = datasets_next(d);
    for (int64_t i = 0; i < 5; i++)
        assert_int_equal(b.classes[i], answers[b.examples[i]]);
    for (int i = 0; i < 4; i++)
        assert_string_equal(foci_data_class(d, i), names[i]);
    foci_data_free(d);

    s = (struct source){ .text = opinions, .bytes = sizeof opinions - 1 };
    r = source_reader(&s);
    o.n_classes = 2;
    o.source = &r;
    o.tokenizer = x->tok;
    assert_int_equal(foci_data_open(x->ctx, &o, &d), FOCI_ERR_FILE);
    assert_string_equal(foci_errmsg(x->ctx),
                        "set.txt, line 2: has the label 'bad', which is none of the 2 "
                        "classes that are known, 'good' and so on");
}

/*
 * Images
 */

static struct bytes array(const char *descr, const char *shape, const void *data,
                          size_t n)
{
    char header[160];

    snprintf(header, sizeof header,
             "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape);
    return files_npy(1, header, data, n);
}

static foci_status open_images(struct scene *x, const struct bytes *pixels,
                               const struct bytes *answers, foci_data_options o,
                               foci_data **d)
{
    static struct source s[2];
    foci_reader          r[2];

    s[0] = (struct source){ .text = (const char *)pixels->data,
                            .bytes = (int64_t)pixels->n };
    s[1] = (struct source){ .text = (const char *)answers->data,
                            .bytes = (int64_t)answers->n };
    r[0] = source_reader(&s[0]);
    r[1] = source_reader(&s[1]);
    r[1].name = "other.txt";
    o.kind = FOCI_DATA_IMAGES;
    o.source = &r[0];
    o.target = &r[1];
    const foci_status status = foci_data_open(x->ctx, &o, d);
    if (status) assert_int_equal(s[0].closed, 1);
    if (status) assert_int_equal(s[1].closed, 1);
    return status;
}

/* Three images of 4 x 6 pixels and two channels: pixel (y, x, c) of image i is
 * 100 i + 20 y + 3 x + c, in the type that is asked for. */
static struct bytes three_images(const char *descr)
{
    unsigned char data[3 * 48 * 8];
    size_t        n = 0;

    for (int i = 0; i < 3 * 48; i++) {
        const int value = i / 48 * 100 + i % 48 / 12 * 20 + i % 12 / 2 * 3 + i % 2;
        if (!strcmp(descr, "|u1")) data[n++] = (unsigned char)(value & 255);
        if (!strcmp(descr, ">i2")) {
            data[n++] = (unsigned char)(value >> 8);
            data[n++] = (unsigned char)value;
        }
        if (!strcmp(descr, "<f8")) {
            const double real = value;
            memcpy(data + n, &real, sizeof real);
            n += sizeof real;
        }
    }
    return array(descr, "(3, 4, 6, 2)", data, n);
}

static void images(void **state)
{
    static const char *const descrs[] = { ">i2", "<f8" };
    const struct bytes       answers =
        array("<i8", "(3,)", "\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0", 24);
    struct scene *x = *state;

    for (int c = 0; c < 4; c++) {
        const struct bytes      pixels = three_images(descrs[c % 2]);
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .batch = 2,
                                      .order = FOCI_DATA_ORDER_ONCE,
                                      .patch = 2,
                                      .shift = 10,
                                      .scale = 0.5,
                                      .memory = c / 2 ? 100 : 0 };
        foci_data              *d = NULL;
        foci_data_info          info = { FOCI_SIZED(foci_data_info) };
        int                     n = 0;

        if (open_images(x, &pixels, &answers, o, &d))
            fail_msg("%s", foci_errmsg(x->ctx));
        assert_int_equal(foci_data_get_info(d, &info), FOCI_OK);
        assert_int_equal(info.n_classes, 3);
        assert_int_equal(info.patch_width, 8);
        assert_int_equal(info.grid_rows, 2);
        assert_int_equal(info.grid_cols, 3);
        assert_int_equal(info.len, 6);
        for (foci_batch b = datasets_next(d); b.batch; b = datasets_next(d))
            for (int64_t r = 0; r < b.batch; r++, n++) {
                const int i = (int)b.examples[r];
                assert_int_equal(b.classes[r], i == 0 ? 2 : i == 1 ? 0 : 1);
                assert_int_equal(b.len, 6);
                for (int p = 0; p < 6; p++)
                    for (int v = 0; v < 8; v++) {
                        const int y = p / 3 * 2 + v / 4, at = p % 3 * 2 + v % 4 / 2;
                        const int value = 100 * i + 20 * y + 3 * at + v % 2;
                        assert_int_equal(b.patch_rows[p], p / 3);
                        assert_int_equal(b.patch_cols[p], p % 3);
                        assert_true(b.patches[(r * 6 + p) * 8 + v] ==
                                    (float)(value - 10) / 2);
                    }
            }
        assert_int_equal(n, 3);
        foci_data_free(d);
    }
}

/* The first images, which alone are measured. */
static void first_images(void **state)
{
    const struct bytes answers =
        array("<i8", "(3,)", "\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0", 24);
    struct scene *x = *state;
    double        shift[2];

    for (int c = 0; c < 2; c++) {
        const struct bytes      pixels = three_images("<f8");
        const foci_data_options o = { FOCI_SIZED(foci_data_options), .batch = 2,
                                      .order = FOCI_DATA_ORDER_ONCE, .n_classes = 3,
                                      .examples = c ? 2 : 0 };
        foci_data              *d = NULL;
        foci_data_info          info = { FOCI_SIZED(foci_data_info) };

        if (open_images(x, &pixels, &answers, o, &d))
            fail_msg("%s", foci_errmsg(x->ctx));
        assert_int_equal(foci_data_get_info(d, &info), FOCI_OK);
        assert_int_equal(info.n_examples, c ? 2 : 3);
        shift[c] = info.shift;
        foci_data_free(d);
    }
    assert_true(fabs(shift[0] - shift[1] - 50) < 1e-9); /* image i is 100 i brighter */
}

/* Mean 0 and variance 1, by numbers that another set can be given. */
static void standard_images(void **state)
{
    const struct bytes pixels = three_images("<f8");
    const struct bytes answers = array("|u1", "(3,)", "\0\1\0", 3);
    struct scene      *x = *state;
    foci_data         *d = NULL, *other = NULL;
    foci_data_info     info = { FOCI_SIZED(foci_data_info) };
    foci_data_options  o = { FOCI_SIZED(foci_data_options), .batch = 3,
                             .order = FOCI_DATA_ORDER_ONCE };
    double             sum = 0, squares = 0;

    assert_int_equal(open_images(x, &pixels, &answers, o, &d), FOCI_OK);
    const foci_batch b = datasets_next(d);
    for (int i = 0; i < 3 * 48; i++) {
        sum += (double)b.patches[i];
        squares += (double)b.patches[i] * (double)b.patches[i];
    }
    assert_true(fabs(sum) < 1e-4);
    assert_true(fabs(squares / (3 * 48) - 1) < 1e-6);
    assert_int_equal(foci_data_get_info(d, &info), FOCI_OK);
    o.shift = info.shift;
    o.scale = info.scale;
    assert_int_equal(open_images(x, &pixels, &answers, o, &other), FOCI_OK);
    const foci_batch c = datasets_next(other);
    assert_int_equal(datasets_sum(&b), datasets_sum(&c));
    foci_data_free(d);
    foci_data_free(other);
}

static void refuse_images(struct scene *x, struct bytes pixels, struct bytes answers,
                          foci_data_options o, const char *reason)
{
    foci_data *d = NULL;

    o.size = sizeof o;
    if (!o.batch) o.batch = 1;
    if (open_images(x, &pixels, &answers, o, &d) == FOCI_OK)
        fail_msg("opened, but \"%s\"", reason);
    assert_null(d);
    if (!strstr(foci_errmsg(x->ctx), reason))
        fail_msg("\"%s\" should speak of \"%s\"", foci_errmsg(x->ctx), reason);
}

static void bad_images(void **state)
{
    const struct bytes good = three_images("|u1"),
                       text = { .data = "not an array", .n = 12 };
    const struct bytes      answers = array("|u1", "(3,)", "\0\1\0", 3);
    const foci_data_options o = { .batch = 1 }, p4 = { .patch = 4 },
                            len = { .len = 23 };
    const foci_data_options two = { .n_classes = 1 },
                            part = { .part_begin = 0.4, .part_end = 0.5 };
    const float   odd[4] = { 1, NAN, 2, 3 };
    struct bytes  cut = good, more = good, fortran = good;
    struct scene *x = *state;

    cut.n--;
    more.data[more.n++] = 0;
    char *order = strstr((char *)fortran.data + 20, "False");
    memcpy(order, "True ", 5);
    refuse_images(x, text, answers, o, "is no array of NumPy");
    refuse_images(x, good, text, o, "other.txt: is no array");
    refuse_images(x, (struct bytes){ .n = 0 }, answers, o, "is no array");
    refuse_images(x, cut, answers, o, "ends in number 2 of the 3");
    refuse_images(x, more, answers, o, "more bytes than its header");
    refuse_images(x, fortran, answers, o, "Fortran order");
    refuse_images(x, answers, answers, o, "has 1 axes");
    refuse_images(x, array("|u1", "(0, 4, 6)", "", 0), answers, o, "has no images");
    refuse_images(x, good, good, o, "[3] labels are needed");
    refuse_images(x, good, array("|u1", "(2,)", "\0\1", 2), o, "[3] labels are needed");
    refuse_images(x, good, array("|i1", "(3,)", "\0\xff\0", 3), o, "label 1 is -1");
    refuse_images(x, good, array("<f2", "(3,)", "\0\0\0\x38\0\0", 6), o,
                  "no whole number");
    refuse_images(x, good, answers, two,
                  "label 1 is 1; classes are counted from 0, and");
    refuse_images(x, good, answers, p4, "patch=4: it does not divide images of 4 x 6");
    refuse_images(x, good, answers, len, "len=23: images have 24 patches");
    refuse_images(x, good, answers, part, "lies in the part");
    refuse_images(x, array("<f4", "(1, 2, 2)", odd, sizeof odd),
                  array("|u1", "(1,)", "\0", 1), o, "not a finite number");
    refuse_images(x, array("|u1", "(4000000000, 4000000000)", "", 0), answers, o,
                  "more bytes than can be counted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs),           cmocka_unit_test(too_long),
        cmocka_unit_test(parts_of_pairs),  cmocka_unit_test(first_pairs),
        cmocka_unit_test(labels),          cmocka_unit_test(given_classes),
        cmocka_unit_test(images),          cmocka_unit_test(first_images),
        cmocka_unit_test(standard_images), cmocka_unit_test(bad_images),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
