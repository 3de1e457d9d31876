/* positional_words_back.c -- the seven patterns of words: gradients, from the last word
 * of the scan to the first. */
#include <string.h>

#include "engine/positional/positional_words.h"

/* The sum of the gradients of a word's rows. */
static void sum_gradients(const struct word_scan *w, const struct positional_word *word,
                          double *sum)
{
    word_scan_zero(w, sum, 1);
    for (int64_t t = 0; t < word->n; t += ROWS) {
        const int n = (int)min64(ROWS, word->n - t);

        positional_load_do(w->x, w->at, word->i + t, n, w->r->tile);
        for (int64_t i = 0; i < n; i++)
            for (int c = 0; c < w->x->ldv; c++)
                sum[c] += (double)w->r->tile[i * w->x->ldv + c];
    }
}

/* All tokens of a word take an equal share of du. */
static void spread(const struct word_scan *w, const struct positional_word *word,
                   const double *du)
{
    const int    ld = w->x->ldv, rows = (int)min64(ROWS, word->n);
    const double share = 1 / (double)word->n;

    for (int64_t t = 0; t < rows; t++)
        for (int c = 0; c < ld; c++)
            w->r->tile[t * ld + c] = (float)(share * du[c]);
    for (int64_t t = 0; t < word->n; t += ROWS)
        positional_store_dv(w->x, w->at, word->i + t, (int)min64(ROWS, word->n - t),
                            w->r->tile);
}

/* Backward through the running means of a word's tokens: rows took `by` of theirs, and
 * r->word is the gradient of the mean of the whole word. */
static void running_back(const struct word_scan *w, const struct positional_word *word,
                         double by)
{
    const int ld = w->x->ldv;

    for (int64_t t = (word->n - 1) / ROWS * ROWS; t >= 0; t -= ROWS) {
        const int n = (int)min64(ROWS, word->n - t);

        positional_load_do(w->x, w->at, word->i + t, n, w->r->tile);
        for (int64_t c = 0; c < (int64_t)n * ld; c++)
            w->r->tile[c] = (float)(by * (double)w->r->tile[c]);
        word_scan_factors(w->r->factor, t, n);
        w->x->k->mean_back(w->r->tile, ld, w->r->tile, ld, n, ld, w->r->factor,
                           w->r->word);
        positional_store_dv(w->x, w->at, word->i + t, n, w->r->tile);
    }
}

/* mean: dM, then the gradients of the two words that come later in the scan. */
static void lagged_back(const struct word_scan *w, int lag)
{
    const int              ld = w->x->ldv;
    struct positional_word word = { 0 };
    double                *dm = w->r->mean, *later = dm + ld, *last = later + ld;

    word_scan_zero(w, w->r->mean, 3);
    for (int64_t m = word_scan_count(w); word_scan_next(w, true, &word); m--) {
        const double a = positional_mean_factor(m);
        const bool   takes_self = m - 1 < lag && w->at->kind.self;

        sum_gradients(w, &word, w->r->word);
        for (int c = 0; c < ld; c++) {
            const double mine = w->r->word[c];
            const double self = takes_self && !w->x->causal ? mine : 0;
            const double from = lag == 0 ? mine : lag == 1 ? later[c] : last[c];

            dm[c] += from;
            w->r->word[c] = (lag == 2 ? a : 1) * dm[c] + self;
            dm[c] = lag == 2 ? (1 - a) * dm[c] : 0; /* even if it was not finite */
            last[c] = later[c];
            later[c] = mine;
        }
        if (takes_self && w->x->causal)
            running_back(w, &word, 1);
        else
            spread(w, &word, w->r->word);
    }
}

static void global_mean_back(const struct word_scan *w)
{
    const int                    ld = w->x->ldv;
    const struct positional_word all = { 0, w->at->s->nk };
    struct positional_word       word = { 0 };
    double                      *dm = w->r->mean;

    sum_gradients(w, &all, dm);
    for (int64_t m = word_scan_count(w); word_scan_next(w, true, &word); m--) {
        const double a = positional_mean_factor(m);

        for (int c = 0; c < ld; c++) {
            w->r->word[c] = a * dm[c];
            dm[c] *= 1 - a;
        }
        spread(w, &word, w->r->word);
    }
}

/* Gradients of the four means: from those after a word to those before it. */
static void cubes_before(const struct word_scan *w, const struct cubes *f)
{
    const int ld = w->x->ldv;
    double   *da = w->r->mean;

    for (int c = 0; c < ld; c++)
        for (int r = 0; r < 4; r++) {
            double before = f->from[6 + r] * w->r->offset[c];
            for (int p = r; p < 4; p++)
                before += f->from[p * (p + 1) / 2 + r] * da[p * ld + c];
            da[r * ld + c] = before;
        }
}

static void causal_word_back(const struct word_scan *w)
{
    const int              ld = w->x->ldv;
    const foci_pattern     p = w->at->kind.pattern;
    const struct word_scan forward = { w->x, w->at, w->r, w->words, false };
    struct positional_word word = { 0 };
    struct cubes           f;

    word_scan_zero(w, w->r->mean, 4);
    for (int64_t m = word_scan_count(w); word_scan_next(&forward, true, &word); m--) {
        const double a = positional_mean_factor(m);

        word_scan_zero(w, w->r->word, 1);
        if (p == FOCI_PATTERN_END) {
            sum_gradients(w, &word, w->r->offset);
            for (int c = 0; c < ld; c++) {
                w->r->word[c] = a * w->r->mean[c];
                w->r->mean[c] = (1 - a) * (w->r->mean[c] + w->r->offset[c]);
            }
            running_back(w, &word, a);
        } else if (p == FOCI_PATTERN_START) {
            sum_gradients(w, &word, w->r->offset);
            positional_cubes(&f, m - 1, 1);
            for (int c = 0; c < ld; c++)
                for (int r = 0; r < 4; r++)
                    w->r->word[c] += f.in[r] * w->r->mean[r * ld + c];
            cubes_before(w, &f);
            running_back(w, &word, f.in[3]);
        } else {
            running_back(w, &word, 1);
        }
    }
}

static void no_words_back(const struct word_scan *w)
{
    const struct positional_word all = { 0, w->at->s->nk };

    word_scan_zero(w, w->r->word, 1);
    spread(w, &all, w->r->word);
}

void positional_words_backward(const struct positional      *x,
                               const struct positional_head *at,
                               struct positional_scratch    *r)
{
    const struct word_scan w = word_scan_of(x, at, r);

    switch (at->kind.pattern) {
    case FOCI_PATTERN_PREVIOUS: lagged_back(&w, 1); break;
    case FOCI_PATTERN_LEFT: lagged_back(&w, 2); break;
    case FOCI_PATTERN_NEXT:
    case FOCI_PATTERN_RIGHT:
        if (!x->causal)
            lagged_back(&w, at->kind.pattern == FOCI_PATTERN_NEXT ? 1 : 2);
        else if (at->kind.self)
            causal_word_back(&w);
        else
            no_words_back(&w);
        break;
    case FOCI_PATTERN_CURRENT:
        if (x->causal)
            causal_word_back(&w);
        else
            lagged_back(&w, 0);
        break;
    default:
        if (x->causal)
            causal_word_back(&w);
        else
            global_mean_back(&w);
        break;
    }
}
