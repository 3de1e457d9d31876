/* data_text.c -- running text and documents: every token is predicted once, whatever the
 * windows, rows, blocks and orders are.
 *
 * The text has the words w1, w2, w3 ..., so that a token says where it stands.
 */
#include <math.h>
#include <stdio.h>

#include "support/datasets.h"

enum { MOST_WORDS = 700, PER_LINE = 9 };

struct world {
    foci_ctx       *ctx;
    foci_tokenizer *words;
    char            text[8 * MOST_WORDS];
    int32_t         place[MOST_WORDS + 32]; /* of each id: 0, 1, 2 ...; -1: no word */
};

/* n words, nine in a line; every third line is an empty one in `paragraphs`. */
static void write_words(char *text, int n, bool paragraphs)
{
    for (int i = 0; i < n; i++) {
        const bool ends = i % PER_LINE == PER_LINE - 1 || i == n - 1;
        text += sprintf(text, "w%d%s", i, ends ? "\n" : " ");
        if (paragraphs && ends && i / PER_LINE % 3 == 2) text += sprintf(text, "\n");
    }
    *text = 0;
}

static int set_up(void **state)
{
    struct world *w = test_alloc(1, sizeof *w);

    w->ctx = test_ctx(NULL, 2);
    write_words(w->text, MOST_WORDS, false);
    w->words = datasets_tokenizer(w->ctx, "words", w->text);
    assert_in_range(foci_tokenizer_size(w->words), MOST_WORDS, MOST_WORDS + 32);
    for (int i = 0; i < MOST_WORDS + 32; i++)
        w->place[i] = -1;
    for (int i = 0; i < MOST_WORDS; i++) {
        char      name[16];
        const int bytes = snprintf(name, sizeof name, "w%d", i);
        w->place[foci_tokenizer_id(w->words, name, bytes)] = i;
    }
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    foci_tokenizer_free(w->words);
    foci_ctx_free(w->ctx);
    free(w);
    return 0;
}

/* Over a text of n words. */
static foci_data *open_words(struct world *w, int n, struct source *s,
                             foci_data_options o)
{
    foci_data  *data = NULL;
    foci_reader r = source_reader(s);

    write_words(w->text, n, o.documents == FOCI_DATA_DOCUMENTS_PARAGRAPHS);
    *s = (struct source){ .text = w->text, .bytes = (int64_t)strlen(w->text) };
    o.source = &r;
    o.tokenizer = w->words;
    if (foci_data_open(w->ctx, &o, &data))
        fail_msg("%d words: %s", n, foci_errmsg(w->ctx));
    return data;
}

/*
 * Every token once
 */

struct tally {
    int seen[MOST_WORDS];
    int ends, rows, labels;
};

/* Labels that follow their tokens: where both are words, the label is the next one. */
static void count_labels(struct world *w, const foci_batch *b, struct tally *y)
{
    for (int64_t i = 0; i < b->n_labels; i++) {
        const int64_t at = b->label_at[i];
        const int32_t id = b->ids[at], label = b->labels[at];

        assert_true(label >= 0);
        assert_true(at % b->len < b->lens[at / b->len]);
        if (i) assert_true(b->label_at[i - 1] < at);
        if (w->place[label] >= 0)
            y->seen[w->place[label]]++;
        else
            y->ends++;
        if (w->place[label] >= 0 && w->place[id] >= 0)
            assert_int_equal(w->place[label], w->place[id] + 1);
        y->labels++;
    }
    for (int64_t i = 0; i < b->batch * b->len; i++)
        if (i % b->len >= b->lens[i / b->len]) {
            assert_int_equal(b->labels[i], -1);
            assert_int_equal(b->ids[i], 0);
        }
    y->rows += (int)b->batch;
}

static void check_tally(const struct tally *y, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (y->seen[i] != 1)
            fail_msg("%s, %d words: w%d comes %d times", what, n, i, y->seen[i]);
    assert_int_equal(y->ends, (n + PER_LINE - 1) / PER_LINE);
}

/* One pass of an evaluation, or of training. */
static struct tally one_pass(struct world *w, foci_data *data, bool once)
{
    struct tally  y = { 0 };
    foci_batch    b = datasets_next(data);
    const int64_t pass = b.pass;

    for (; once ? b.batch > 0 : b.pass == pass; b = datasets_next(data))
        count_labels(w, &b, &y);
    return y;
}

static void each_token_once(void **state)
{
    static const int             sizes[] = { 1, 2, 9, 10, 63, 64, 65, 700 };
    static const int             lens[] = { 1, 2, 7, 64, 1000 };
    static const foci_data_order orders[] = { FOCI_DATA_ORDER_SHUFFLED,
                                              FOCI_DATA_ORDER_SEGMENTS,
                                              FOCI_DATA_ORDER_ONCE,
                                              FOCI_DATA_ORDER_ONCE_SEGMENTS };
    struct world                *w = *state;

    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (size_t l = 0; l < sizeof lens / sizeof *lens; l++)
            for (int c = 0; c < 4 * 3 * 2; c++) {
                struct source           s;
                const foci_data_options o = {
                    FOCI_SIZED(foci_data_options), .order = orders[c % 4],
                    .batch = 1 + 2 * (c / 4 % 3),  .len = lens[l],
                    .seed = (uint64_t)c,           .memory = c / 12 ? 300 : 0
                };
                foci_data   *d = open_words(w, sizes[n], &s, o);
                struct tally y = one_pass(w, d, c % 4 > 1);
                check_tally(&y, sizes[n], "windows");
                foci_data_free(d);
            }
}

/* Of the tokens of a row only the last `stride` are predicted, but in the first one. */
static void strides(void **state)
{
    struct world *w = *state;

    for (int stride = 1; stride <= 16; stride += 5) {
        struct source           s;
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .order = FOCI_DATA_ORDER_ONCE, .batch = 3,
                                      .len = 16, .stride = stride };
        foci_data              *d = open_words(w, 200, &s, o);
        struct tally            y = one_pass(w, d, true);
        check_tally(&y, 200, "stride");

        foci_batch b = datasets_next(d);
        assert_int_equal(b.labels[0], b.ids[1]);
        for (int64_t i = b.len; i < 3 * b.len; i++) {
            const bool predicted = i % b.len >= 16 - stride;
            assert_int_equal(b.labels[i] >= 0, predicted);
        }
        /* The row before is seen again. */
        for (int64_t i = 0; i + stride < b.len; i++)
            assert_int_equal(b.ids[b.len + i], b.ids[i + stride]);
        foci_data_free(d);
    }
}

/* Row b goes on where row b of the batch before ended. */
static void segments_carry(void **state)
{
    struct world           *w = *state;
    struct source           s;
    const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                  .order = FOCI_DATA_ORDER_SEGMENTS, .batch = 4,
                                  .len = 10 };
    foci_data              *d = open_words(w, 433, &s, o);
    int32_t                 last[4] = { 0 };

    for (int n = 0; n < 40; n++) {
        const foci_batch b = datasets_next(d);
        assert_int_equal(b.carries, b.index > 0);
        assert_int_equal(b.batch, 4);
        for (int64_t r = 0; r < b.batch; r++) {
            if (!b.lens[r]) continue;
            if (b.carries) assert_int_equal(b.ids[r * b.len], last[r]);
            last[r] = b.labels[r * b.len + b.lens[r] - 1];
        }
    }
    foci_data_free(d);
}

/* Windows come in another order in every pass, cut elsewhere. */
static void passes_differ(void **state)
{
    struct world           *w = *state;
    struct source           s;
    const foci_data_options o = { FOCI_SIZED(foci_data_options), .batch = 1, .len = 16 };
    foci_data              *d = open_words(w, 600, &s, o);
    int                     same = 0, in_order = 0, last = -1, n = 0;
    int                     begins[2][128];

    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(foci_data_rewind(d, pass), FOCI_OK);
        for (n = 0; n < 30; n++) {
            const foci_batch b = datasets_next(d);
            begins[pass][n] = w->place[b.labels[0]];
            in_order += begins[pass][n] > last;
            last = begins[pass][n];
        }
    }
    for (int i = 0; i < n; i++)
        same += begins[0][i] == begins[1][i];
    assert_in_range(same, 0, 4);
    assert_in_range(in_order, 15, 45);
    foci_data_free(d);
}

/*
 * Documents
 */

static void documents(void **state)
{
    struct world *w = *state;

    for (int c = 0; c < 2 * 2 * 2 * 3; c++) {
        struct source           s;
        const bool              once = c / 4 % 2;
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .documents = c % 2
                                                       ? FOCI_DATA_DOCUMENTS_LINES
                                                       : FOCI_DATA_DOCUMENTS_PARAGRAPHS,
                                      .order = once ? FOCI_DATA_ORDER_ONCE
                                                    : FOCI_DATA_ORDER_SHUFFLED,
                                      .batch = 3,
                                      .len = (int[]){ 4, 10, 50 }[c / 8],
                                      .pack = c / 2 % 2 };
        foci_data              *d = open_words(w, 400, &s, o);
        struct tally            y = { 0 };
        foci_batch              b = datasets_next(d);
        for (; once ? b.batch > 0 : b.pass == 0; b = datasets_next(d))
            count_labels(w, &b, &y);
        for (int i = 0; i < 400; i++)
            assert_int_equal(y.seen[i], 1);
        assert_int_equal(y.ends, c % 2 ? 45 : 15); /* <eos> behind each */
        foci_data_free(d);
    }
}

/* Documents of a pack begin anew, and lie one behind the other. */
static void packs(void **state)
{
    struct world           *w = *state;
    struct source           s;
    const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                  .documents = FOCI_DATA_DOCUMENTS_LINES,
                                  .batch = 4,
                                  .len = 20,
                                  .pack = 1,
                                  .words = 1,
                                  .order = FOCI_DATA_ORDER_ONCE };
    foci_data              *d = open_words(w, 90, &s, o);
    foci_batch              b = datasets_next(d);

    assert_int_equal(b.batch, 1);
    assert_int_equal(b.len, 80);
    assert_int_equal(b.n_docs, 8); /* of ten tokens each: <bos> and nine words */
    assert_int_equal(b.lens[0], 80);
    for (int64_t t = 0; t < b.n_docs; t++) {
        assert_int_equal(b.docs[t], 10 * t);
        assert_int_equal(b.examples[t], t);
        for (int32_t i = 0; i < 10; i++) {
            assert_int_equal(b.positions[10 * t + i], i);
            assert_int_equal(b.words[10 * t + i], i);
        }
    }
    assert_int_equal(b.docs[8], 80);
    b = datasets_next(d);
    assert_int_equal(b.n_docs, 2);
    assert_int_equal(b.docs[2], 20);
    assert_int_equal(b.lens[0], 20);
    for (int64_t i = 20; i < 80; i++)
        assert_int_equal(b.labels[i], -1);
    foci_data_free(d);
}

/*
 * Hidden tokens
 */

struct hidden {
    int chosen, masked, kept, other, all;
};

static void count_hidden(struct world *w, const foci_batch *b, struct hidden *h)
{
    const int32_t mask = foci_tokenizer_special(w->words, FOCI_SPECIAL_MASK);

    for (int64_t r = 0; r < b->batch; r++) {
        int in_row = 0, words = 0;
        for (int64_t i = r * b->len; i < r * b->len + b->lens[r]; i++) {
            const int32_t id = b->ids[i], label = b->labels[i];
            words += w->place[label >= 0 ? label : id] >= 0;
            if (label < 0) continue;
            in_row++;
            assert_true(w->place[label] >= 0); /* never a special one */
            assert_true(id == mask || w->place[id] >= 0);
            h->masked += id == mask;
            h->kept += id == label;
            h->other += id != mask && id != label;
        }
        assert_true(in_row > 0 || !words);
        h->chosen += in_row;
        h->all += words;
    }
}

/* Within four standard deviations. */
static void about(int seen, double share, int of)
{
    const double mean = share * of, spread = 4 * sqrt(mean * (1 - share));
    if (fabs(seen - mean) > spread)
        fail_msg("%d of %d, expected %.1f +- %.1f", seen, of, mean, spread);
}

static void hides(void **state)
{
    struct world           *w = *state;
    struct source           s;
    struct hidden           h = { 0 };
    const foci_data_options o = { FOCI_SIZED(foci_data_options), .kind = FOCI_DATA_MLM,
                                  .batch = 4, .len = 64 };
    foci_data              *d = open_words(w, 700, &s, o);

    for (foci_batch b = datasets_next(d); b.pass < 60; b = datasets_next(d))
        count_hidden(w, &b, &h);
    assert_int_equal(h.all, 60 * 700);
    about(h.chosen, 0.15, h.all);
    about(h.masked, 0.8, h.chosen);
    about(h.other, 0.1 * 699 / 700, h.chosen);
    about(h.kept, 0.1 + 0.1 / 700, h.chosen);
    foci_data_free(d);
}

/* In an evaluation always the same, and every token stands in one row. */
static void hides_alike(void **state)
{
    struct world           *w = *state;
    struct source           s;
    const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                  .kind = FOCI_DATA_MLM,
                                  .batch = 4,
                                  .len = 64,
                                  .order = FOCI_DATA_ORDER_ONCE,
                                  .seed = 3 };
    foci_data              *d = open_words(w, 300, &s, o);
    uint64_t                sums[2] = { 0, 0 };
    int                     seen[300] = { 0 };

    for (int pass = 0; pass < 2; pass++)
        for (foci_batch b = datasets_next(d); b.batch; b = datasets_next(d)) {
            foci_batch same = b;
            same.pass = 0;
            sums[pass] = sums[pass] * 31 + datasets_sum(&same);
            for (int64_t i = 0; i < b.batch * b.len && !pass; i++) {
                const int32_t id = b.labels[i] >= 0 ? b.labels[i] : b.ids[i];
                if (w->place[id] >= 0) seen[w->place[id]]++;
            }
        }
    assert_int_equal(sums[0], sums[1]);
    for (int i = 0; i < 300; i++)
        assert_int_equal(seen[i], 1);
    foci_data_free(d);
}

/*
 * Counts
 */

/* Words and characters of the text, whatever the tokens are; é has two bytes, and the
 * characters of kind `chars` that were not trained on are unknown. */
static void spells(void **state)
{
    static const char *const texts[] = {
        "caf\xc3\xa9 au lait\nno  sugar \n\n\xe2\x82\xac 3\n", "caf\xc3\xa9 au\nlait",
        " ", "\n", "a"
    };
    static const int words[] = { 11, 4, 0, 1, 1 }, chars[] = { 29, 12, 1, 1, 1 };
    static const char *const kinds[] = { "bytes", "chars", "words", "bpe:300" };
    struct world            *w = *state;

    for (int t = 0; t < 5; t++)
        for (int c = 0; c < 4 * 2 * 2 * 2; c++) {
            const bool      lines = c / 4 % 2;
            foci_tokenizer *tok = datasets_tokenizer(
                w->ctx, kinds[c % 4], c / 8 % 2 ? texts[t] : "a a au au\n");
            struct source s = { .text = texts[t], .bytes = (int64_t)strlen(texts[t]) };
            foci_reader   r = source_reader(&s);
            foci_data    *d = NULL;
            int64_t       sums[2] = { 0, 0 };
            const foci_data_options o = {
                FOCI_SIZED(foci_data_options),
                .source = &r,
                .tokenizer = tok,
                .batch = 2,
                .len = 3,
                .order = c / 16 ? FOCI_DATA_ORDER_ONCE_SEGMENTS : FOCI_DATA_ORDER_ONCE,
                .documents = lines ? FOCI_DATA_DOCUMENTS_LINES : FOCI_DATA_DOCUMENTS_NONE
            };
            if (lines && c / 16) {
                foci_tokenizer_free(tok);
                continue;
            }
            const foci_status status = foci_data_open(w->ctx, &o, &d);
            if (status && t == 2 && c % 4 == 2) { /* a blank is no word, and no token */
                foci_tokenizer_free(tok);
                continue;
            }
            assert_int_equal(status, FOCI_OK);
            for (foci_batch b = datasets_next(d); b.batch; b = datasets_next(d)) {
                sums[0] += b.n_words;
                sums[1] += b.n_chars;
            }
            /* A line has an end, also where the file ends before it. */
            const int end = lines && texts[t][strlen(texts[t]) - 1] != '\n';
            if (sums[0] != words[t] + end || sums[1] != chars[t] + end)
                fail_msg("text %d, case %d: %lld words and %lld characters", t, c,
                         (long long)sums[0], (long long)sums[1]);
            foci_data_free(d);
            foci_tokenizer_free(tok);
        }
}

/* Each label of bytes spells what its byte begins or ends. */
static void spells_each(void **state)
{
    struct world     *w = *state;
    static const char text[] = "ab \xc3\xa9\n";
    static const int  words[] = { 0, 1, 0, 0, 1, 1 }, chars[] = { 1, 1, 1, 1, 0, 1 };
    foci_tokenizer   *tok = datasets_tokenizer(w->ctx, "bytes", text);
    struct source     s = { .text = text, .bytes = sizeof text - 1 };
    foci_reader       r = source_reader(&s);
    foci_data        *d = NULL;
    const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                  .source = &r,
                                  .tokenizer = tok,
                                  .batch = 1,
                                  .len = 1,
                                  .order = FOCI_DATA_ORDER_ONCE };

    assert_int_equal(foci_data_open(w->ctx, &o, &d), FOCI_OK);
    for (int i = 0; i < 6; i++) {
        const foci_batch b = datasets_next(d);
        assert_int_equal(b.n_words, words[i]);
        assert_int_equal(b.n_chars, chars[i]);
    }
    foci_data_free(d);
    foci_tokenizer_free(tok);
}

/*
 * Parts
 */

/* Parts of a text share its words out. */
static void parts(void **state)
{
    struct world *w = *state;
    int           seen[MOST_WORDS] = { 0 };

    for (int p = 0; p < 10; p++) {
        struct source           s;
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .order = FOCI_DATA_ORDER_ONCE,
                                      .batch = 3,
                                      .len = 16,
                                      .part_begin = p / 10.0,
                                      .part_end = (p + 1) / 10.0,
                                      .memory = p % 2 ? 200 : 0 };
        foci_data              *d = open_words(w, 700, &s, o);
        struct tally            y = one_pass(w, d, true);
        int                     here = 0;
        for (int i = 0; i < 700; i++) {
            seen[i] += y.seen[i];
            here += y.seen[i];
        }
        assert_in_range(here, 50, 90);
        foci_data_free(d);
    }
    for (int i = 0; i < 700; i++)
        assert_int_equal(seen[i], 1);
}

/* The first lines of a text: what a file that ends there would have. */
static void first_lines(void **state)
{
    static const char long_text[] = "ab\ncd\nef\ngh\n", short_text[] = "ab\ncd\n";
    struct world     *w = *state;
    foci_tokenizer   *tok = datasets_tokenizer(w->ctx, "bytes", "");

    for (int documents = 0; documents < 3; documents++) {
        uint64_t sums[2];
        for (int c = 0; c < 2; c++) {
            const char       *text = c ? short_text : long_text;
            struct source     s = { .text = text, .bytes = (int64_t)strlen(text) };
            foci_reader       r = source_reader(&s);
            foci_data_options o = {
                FOCI_SIZED(foci_data_options),
                .source = &r,
                .tokenizer = tok,
                .order = FOCI_DATA_ORDER_ONCE,
                .documents = (foci_data_documents)documents,
                .batch = 2,
                .len = 8,
                .examples = c ? 0 : 2,
            };
            foci_data *d = NULL;
            if (foci_data_open(w->ctx, &o, &d)) fail_msg("%s", foci_errmsg(w->ctx));
            const foci_batch b = datasets_next(d);
            sums[c] = datasets_sum(&b);
            assert_int_equal(datasets_next(d).batch, 0);
            foci_data_free(d);
        }
        assert_int_equal(sums[0], sums[1]);
    }
    foci_tokenizer_free(tok);
}

/* "\r\n", a mark of the byte order, no end of the last line: the same tokens. */
static void line_ends(void **state)
{
    static const char *const texts[] = { "ab\ncd\n", "ab\r\ncd\r\n",
                                         ("\xef\xbb\xbf"
                                          "ab\ncd\n") };
    struct world            *w = *state;
    foci_tokenizer          *tok = datasets_tokenizer(w->ctx, "bytes", "");
    uint64_t                 first = 0;

    for (int t = 0; t < 3; t++) {
        struct source           s = { .text = texts[t],
                                      .bytes = (int64_t)strlen(texts[t]),
                                      .each = 1 + t };
        foci_reader             r = source_reader(&s);
        foci_data              *d = NULL;
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .source = &r,
                                      .tokenizer = tok,
                                      .batch = 1,
                                      .len = 9,
                                      .order = FOCI_DATA_ORDER_ONCE };
        assert_int_equal(foci_data_open(w->ctx, &o, &d), FOCI_OK);
        const foci_batch b = datasets_next(d);
        if (!t) first = datasets_sum(&b);
        assert_int_equal(b.n_labels, 6);
        assert_int_equal(datasets_sum(&b), first);
        foci_data_free(d);
    }
    foci_tokenizer_free(tok);
}

/* A line of three million bytes without any end, read in pieces: each byte once. */
static void one_huge_line(void **state)
{
    enum { BYTES = 3000000 };
    struct world   *w = *state;
    char           *text = test_alloc(BYTES, 1);
    foci_tokenizer *tok = datasets_tokenizer(w->ctx, "bytes", "");

    for (int blanks = 0; blanks < 2; blanks++) {
        struct source           s = { .text = text, .bytes = BYTES, .each = 1 << 20 };
        foci_reader             r = source_reader(&s);
        foci_data              *d = NULL;
        int64_t                 labels = 0, at = 0;
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .source = &r,
                                      .tokenizer = tok,
                                      .batch = 8,
                                      .len = 4096,
                                      .order = FOCI_DATA_ORDER_ONCE,
                                      .memory = 4 << 20 };
        for (int i = 0; i < BYTES; i++)
            text[i] = blanks && i % 11 == 10 ? ' ' : (char)('a' + i % 7);
        assert_int_equal(foci_data_open(w->ctx, &o, &d), FOCI_OK);
        for (foci_batch b = datasets_next(d); b.batch; b = datasets_next(d)) {
            labels += b.n_labels;
            for (int64_t i = 0; i < b.n_labels; i++, at++) {
                const int32_t id = b.labels[b.label_at[i]];
                int64_t       bytes;
                if (*foci_tokenizer_token(tok, id, &bytes) != text[at])
                    fail_msg("byte %lld is another one", (long long)at);
            }
        }
        assert_int_equal(labels, BYTES);
        foci_data_free(d);
    }
    foci_tokenizer_free(tok);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_token_once), cmocka_unit_test(strides),
        cmocka_unit_test(segments_carry),  cmocka_unit_test(passes_differ),
        cmocka_unit_test(documents),       cmocka_unit_test(packs),
        cmocka_unit_test(hides),           cmocka_unit_test(hides_alike),
        cmocka_unit_test(spells),          cmocka_unit_test(spells_each),
        cmocka_unit_test(parts),           cmocka_unit_test(first_lines),
        cmocka_unit_test(line_ends),       cmocka_unit_test(one_huge_line),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
