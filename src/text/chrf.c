/* chrf.c -- chrF2 of translations.
 *
 * n-grams of 1 to 6 characters, white space left out.  Precision and recall are averaged
 * over the orders that both texts have, and then
 *
 *     chrF = 100 (1 + b^2) P R / (b^2 P + R),  b = 2
 *
 * Popovic, "chrF: character n-gram F-score for automatic MT evaluation", 2015; averaged
 * as sacrebleu does (Post, "A Call for Clarity in Reporting BLEU Scores", 2018).
 */
#include "text/ngrams.h"
#include "text/utf8.h"

#ifndef FOCI_VERSION
#define FOCI_VERSION "unversioned"
#endif

enum { ORDER = 6 };

static foci_status read_chars(struct sequence *s, const foci_string *text)
{
    const char *p = text->text;
    uint32_t    c;

    for (int64_t at = 0; at < text->bytes;) {
        at += utf8_next(p + at, p + text->bytes, &c);
        if (c == UTF8_BAD) c = UTF8_UNKNOWN;
        if (!is_separator(c)) TRY(sequence_add(s, (int32_t)c));
    }
    return sequence_close(s);
}

static foci_status count(const foci_string *translation, const foci_string *reference,
                         struct sequence *a, struct sequence *b,
                         foci_chrf_counts *counts)
{
    TRY(read_chars(a, translation));
    TRY(read_chars(b, reference));
    TRY(ngrams_match(a, b, ORDER, counts->match));
    for (int n = 1; n <= ORDER; n++) {
        const int64_t wanted = ngrams_count(b->n, n);
        /* What no reference could have is not held against a translation. */
        if (wanted) counts->translation[n - 1] += ngrams_count(a->n, n);
        counts->reference[n - 1] += wanted;
    }
    return FOCI_OK;
}

foci_status foci_chrf_add(foci_ctx *ctx, foci_string translation, foci_string reference,
                          foci_chrf_counts *counts)
{
    TRY(check_texts(ctx, &translation, &reference, counts));
    struct sequence   a = { .ctx = ctx }, b = { .ctx = ctx };
    foci_chrf_counts  sum = *counts;
    const foci_status status = count(&translation, &reference, &a, &b, &sum);

    sequence_free(&a);
    sequence_free(&b);
    if (!status) *counts = sum;
    return status;
}

double foci_chrf_score(const foci_chrf_counts *counts)
{
    double precision = 0, recall = 0;
    int    orders = 0;

    for (int i = 0; i < ORDER; i++) {
        if (counts->translation[i] <= 0 || counts->reference[i] <= 0) continue;
        const double match = (double)counts->match[i];
        precision += match / (double)counts->translation[i];
        recall += match / (double)counts->reference[i];
        orders++;
    }
    if (!orders || precision + recall <= 0) return 0;
    precision /= orders;
    recall /= orders;
    return 100 * 5 * precision * recall / (4 * precision + recall);
}

const char *foci_chrf_signature(void)
{
    return "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:foci-" FOCI_VERSION;
}
