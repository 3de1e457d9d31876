/* bleu.c -- BLEU of translations.
 *
 *     BLEU = 100 b exp( sum over n from 1 to 4 of  log(p_n) / 4 )
 *     b    = 1, or exp(1 - reference / length) for what is shorter than the reference
 *
 * p_n is the share of n-grams of words that the reference has too (Papineni, Roukos, Ward
 * and Zhu, "BLEU: a Method for Automatic Evaluation of Machine Translation", 2002).  An
 * order without a match counts as half a match, the next as a quarter, and so on
 * (smoothing "exp": Chen and Cherry, "A Systematic Comparison of Smoothing Techniques for
 * Sentence-Level BLEU", 2014, method 3).
 *
 * Words are those of mteval-v13a, by rules on ASCII that are applied one after the other
 * to the whole line; they are stated above the functions.  Bytes of other characters are
 * neither digits nor punctuation there, so the rules work on bytes.
 */
#include <math.h>
#include <string.h>

#include "text/ngrams.h"
#include "text/utf8.h"

#ifndef FOCI_VERSION
#define FOCI_VERSION "unversioned"
#endif

enum { ORDER = 4 };

/* The line in `from`; each rule writes the next one to `to` and swaps them. */
struct bleu_line {
    struct text_buffer from, to;
};

static void swap(struct bleu_line *l)
{
    const struct text_buffer was = l->from;
    l->from = l->to;
    l->to = was;
    l->to.used = 0;
}

static foci_status replace(struct bleu_line *l, const char *what, const char *with)
{
    const int64_t len = (int64_t)strlen(what);

    for (int64_t i = 0; i < l->from.used;) {
        const char *p = l->from.at + i;
        if (i + len <= l->from.used && memcmp(p, what, (size_t)len) == 0) {
            TRY(buffer_text(&l->to, with));
            i += len;
        } else {
            TRY(buffer_add(&l->to, p, 1));
            i++;
        }
    }
    swap(l);
    return FOCI_OK;
}

/*
 * Rules
 */

/* Ends of lines go, with a hyphen before them, and four entities of SGML are resolved. */
static foci_status clean(struct bleu_line *l)
{
    static const char *const pairs[][2] = {
        { "<skipped>", "" }, { "-\n", "" },   { "\n", " " },   { "&quot;", "\"" },
        { "&amp;", "&" },    { "&lt;", "<" }, { "&gt;", ">" },
    };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        TRY(replace(l, pairs[i][0], pairs[i][1]));
    return FOCI_OK;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_stop(char c) { return c == '.' || c == ','; }

/* All punctuation but the apostrophe, comma, hyphen and full stop. */
static bool is_symbol(char c)
{
    return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' ||
           (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/* Blanks on both sides of a symbol. */
static foci_status part_symbols(struct bleu_line *l)
{
    for (int64_t i = 0; i < l->from.used; i++) {
        const char c = l->from.at[i], parted[] = { ' ', c, ' ' };
        TRY(is_symbol(c) ? buffer_add(&l->to, parted, 3) : buffer_add(&l->to, &c, 1));
    }
    swap(l);
    return FOCI_OK;
}

/* What two neighbouring characters become; 0: they stay, and the second is looked at as
 * the first of the next two. */
typedef int part_fn(char first, char second, char out[4]);

/* A stop behind what is no digit: "a." to "a . ". */
static int part_after(char first, char second, char out[4])
{
    if (is_digit(first) || !is_stop(second)) return 0;
    memcpy(out, (char[]){ first, ' ', second, ' ' }, 4);
    return 4;
}

/* A stop before what is no digit: ".a" to " . a". */
static int part_before(char first, char second, char out[4])
{
    if (!is_stop(first) || is_digit(second)) return 0;
    memcpy(out, (char[]){ ' ', first, ' ', second }, 4);
    return 4;
}

/* A hyphen behind a digit: "1-" to "1 - ". */
static int part_hyphen(char first, char second, char out[4])
{
    if (!is_digit(first) || second != '-') return 0;
    memcpy(out, (char[]){ first, ' ', second, ' ' }, 4);
    return 4;
}

static foci_status part_pairs(struct bleu_line *l, part_fn *part)
{
    char out[4];

    for (int64_t i = 0; i < l->from.used; i++) {
        const char *p = l->from.at + i;
        const int   n = i + 1 < l->from.used ? part(p[0], p[1], out) : 0;
        TRY(n ? buffer_add(&l->to, out, n) : buffer_add(&l->to, p, 1));
        i += n != 0;
    }
    swap(l);
    return FOCI_OK;
}

/* Without the white space at its end, between blanks. */
static foci_status take_line(struct bleu_line *l, const foci_string *text)
{
    const int64_t       n = utf8_repair(text->text, text->bytes, NULL);
    struct text_buffer *b = &l->from;
    int64_t             end = 1;
    uint32_t            c;

    b->used = 0;
    TRY(buffer_add(b, " ", 1));
    TRY(grow(b->ctx, &b->at, &b->cap, n + 2, 1));
    utf8_repair(text->text, text->bytes, b->at + 1);
    for (int64_t i = 1; i < n + 1;) {
        i += utf8_next(b->at + i, b->at + n + 1, &c);
        if (!is_separator(c)) end = i;
    }
    b->used = end;
    return buffer_add(b, " ", 1);
}

/* The words of a line, as numbers that equal words share. */
static foci_status take_words(struct bleu_line *l, struct dict *words,
                              struct sequence *s)
{
    const char *end = l->from.at + l->from.used, *word = l->from.at;
    uint32_t    c;

    for (const char *p = word, *next; p < end; p = next) {
        next = p + utf8_next(p, end, &c);
        if (!is_separator(c)) continue; /* the line ends with one */
        if (p > word) {
            struct dict_entry *e =
                dict_add(words, word, p - word, text_hash(word, p - word));
            if (!e) return FOCI_ERR_MEMORY;
            TRY(sequence_add(s, (int32_t)(e - words->entries)));
        }
        word = next;
    }
    return sequence_close(s);
}

static foci_status read_words(struct bleu_line *l, const foci_string *text,
                              struct dict *words, struct sequence *s)
{
    TRY(take_line(l, text));
    TRY(clean(l));
    TRY(part_symbols(l));
    TRY(part_pairs(l, part_after));
    TRY(part_pairs(l, part_before));
    TRY(part_pairs(l, part_hyphen));
    return take_words(l, words, s);
}

/*
 * Counts and scores
 */

struct comparison {
    struct bleu_line line;
    struct dict      words;
    struct sequence  translation, reference;
};

static foci_status compare(struct comparison *c, const foci_string *translation,
                           const foci_string *reference, foci_bleu_counts *counts)
{
    TRY(read_words(&c->line, translation, &c->words, &c->translation));
    TRY(read_words(&c->line, reference, &c->words, &c->reference));
    TRY(ngrams_match(&c->translation, &c->reference, ORDER, counts->match));
    for (int n = 1; n <= ORDER; n++)
        counts->total[n - 1] += ngrams_count(c->translation.n, n);
    counts->length += c->translation.n;
    counts->reference += c->reference.n;
    return FOCI_OK;
}

foci_status check_texts(foci_ctx *ctx, const foci_string *a, const foci_string *b,
                        const void *counts)
{
    if (ctx && counts && a->bytes >= 0 && b->bytes >= 0 && (a->text || !a->bytes) &&
        (b->text || !b->bytes))
        return FOCI_OK;
    return ctx_fail(
        ctx, FOCI_ERR_ARG,
        "comparing a translation takes a context, two texts and a place for "
        "counts");
}

foci_status foci_bleu_add(foci_ctx *ctx, foci_string translation, foci_string reference,
                          foci_bleu_counts *counts)
{
    TRY(check_texts(ctx, &translation, &reference, counts));
    struct comparison c = { .line = { { .ctx = ctx }, { .ctx = ctx } },
                            .words = { .ctx = ctx },
                            .translation = { .ctx = ctx },
                            .reference = { .ctx = ctx } };
    foci_bleu_counts  sum = *counts;
    const foci_status status = compare(&c, &translation, &reference, &sum);

    buffer_free(&c.line.from);
    buffer_free(&c.line.to);
    dict_free(&c.words);
    sequence_free(&c.translation);
    sequence_free(&c.reference);
    if (!status) *counts = sum;
    return status;
}

static double brevity(const foci_bleu_counts *c)
{
    if (c->length >= c->reference) return 1;
    if (c->length <= 0) return 0;
    return exp(1 - (double)c->reference / (double)c->length);
}

/* Precisions in percent; the result is how many orders count. */
static int precisions(const foci_bleu_counts *c, int sentence, double precision[ORDER])
{
    double halved = 1;
    int    orders = 0;

    for (int i = 0; i < ORDER && c->total[i] > 0; i++, orders++) {
        if (c->match[i] <= 0) halved /= 2;
        const double match = c->match[i] > 0 ? (double)c->match[i] : halved;
        precision[i] = 100 * match / (double)c->total[i];
    }
    return sentence ? orders : ORDER;
}

foci_status foci_bleu_score(const foci_bleu_counts *counts, int sentence,
                            foci_bleu *bleu)
{
    foci_bleu b = { FOCI_SIZED(foci_bleu) };
    double    sum = 0;
    bool      any = false;

    if (!counts) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_bleu_score: counts is NULL");
    b.brevity = brevity(counts);
    if (counts->reference > 0)
        b.ratio = (double)counts->length / (double)counts->reference;
    for (int i = 0; i < ORDER; i++)
        any = any || counts->match[i] > 0;

    const int orders = any ? precisions(counts, sentence, b.precision) : 0;
    for (int i = 0; i < orders; i++)
        sum +=
            log(b.precision[i]); /* of an order that no text is long enough for, -inf */
    if (orders) b.score = b.brevity * exp(sum / orders);
    return sized_out(NULL, "foci_bleu", bleu, &b, sizeof b);
}

const char *foci_bleu_signature(void)
{
    return "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:foci-" FOCI_VERSION;
}
