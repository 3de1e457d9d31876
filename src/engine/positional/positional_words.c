/* positional_words.c -- the seven patterns of words: outputs. */
#include <string.h>

#include "engine/positional/positional_words.h"

struct word_scan word_scan_of(const struct positional      *x,
                              const struct positional_head *at,
                              struct positional_scratch    *r)
{
    const foci_pattern p = at->kind.pattern;

    return (struct word_scan){ .x = x,
                               .at = at,
                               .r = r,
                               .words =
                                   x->io->words + at->s->b * x->p->len_q + at->s->q0,
                               .reverse = p == FOCI_PATTERN_NEXT ||
                                          p == FOCI_PATTERN_RIGHT ||
                                          (p == FOCI_PATTERN_START && !x->causal) };
}

int64_t word_scan_count(const struct word_scan *w)
{
    return (int64_t)w->words[w->at->s->nk - 1] + 1;
}

/* The word that starts at row i, or with `ends` the word that ends there. */
static struct positional_word word_at(const struct word_scan *w, int64_t i, bool ends)
{
    int64_t n = 1;

    if (!ends) {
        while (i + n < w->at->s->nk && w->words[i + n] == w->words[i])
            n++;
        return (struct positional_word){ i, n };
    }
    while (i - n >= 0 && w->words[i - n] == w->words[i])
        n++;
    return (struct positional_word){ i - n + 1, n };
}

bool word_scan_next(const struct word_scan *w, bool backward,
                    struct positional_word *word)
{
    const bool    ascending = w->reverse == backward;
    const int64_t len = w->at->s->nk;
    int64_t       i = ascending ? 0 : len - 1;

    if (word->n) i = ascending ? word->i + word->n : word->i - 1;
    if (i < 0 || i >= len) return false;
    *word = word_at(w, i, !ascending);
    return true;
}

void word_scan_factors(double *factor, int64_t t, int n)
{
    for (int i = 0; i < n; i++)
        factor[i] = 1 / (double)(t + i + 1);
}

void word_scan_zero(const struct word_scan *w, double *v, int n)
{
    memset(v, 0, (size_t)n * (size_t)w->x->ldv * sizeof *v);
}

/* r->word = the mean of a word. */
static void mean_of(const struct word_scan *w, const struct positional_word *word)
{
    word_scan_zero(w, w->r->word, 1);
    for (int64_t t = 0; t < word->n; t += ROWS) {
        const int n = (int)min64(ROWS, word->n - t);

        positional_load_v(w->x, w->at, word->i + t, n, w->r->tile);
        word_scan_factors(w->r->factor, t, n);
        w->x->k->mean_rows(w->r->tile, w->x->ldv, w->r->tile, w->x->ldv, n, w->x->ldv,
                           w->r->factor, w->r->word);
    }
}

/* All rows of a word take v; NULL: zero. */
static void positional_words_fill(const struct word_scan       *w,
                                  const struct positional_word *word, const double *v)
{
    const int ld = w->x->ldv, rows = (int)min64(ROWS, word->n);

    for (int64_t t = 0; t < rows; t++)
        for (int c = 0; c < ld; c++)
            w->r->tile[t * ld + c] = v ? (float)v[c] : 0;
    for (int64_t t = 0; t < word->n; t += ROWS)
        positional_store_o(w->x, w->at, word->i + t, (int)min64(ROWS, word->n - t),
                           w->r->tile);
}

/* mean[0] takes in v, the mean of word number m, from 1. */
static void add_word(const struct word_scan *w, const double *v, int64_t m)
{
    const double a = positional_mean_factor(m);

    for (int c = 0; c < w->x->ldv; c++)
        w->r->mean[c] += a * (v[c] - w->r->mean[c]);
}

static void global_mean(const struct word_scan *w)
{
    const struct positional_word all = { 0, w->at->s->nk };
    struct positional_word       word = { 0 };

    word_scan_zero(w, w->r->mean, 1);
    for (int64_t m = 1; word_scan_next(w, false, &word); m++) {
        mean_of(w, &word);
        add_word(w, w->r->word, m);
    }
    positional_words_fill(w, &all, w->r->mean);
}

/* Causal rows o = by u + offset, with u the running mean of the word so far (offset
 * NULL: o = u).  r->word is the mean of the whole word then. */
static void store_running(const struct word_scan *w, const struct positional_word *word,
                          double by, const double *offset)
{
    const int ld = w->x->ldv;

    word_scan_zero(w, w->r->word, 1);
    for (int64_t t = 0; t < word->n; t += ROWS) {
        const int n = (int)min64(ROWS, word->n - t);

        positional_load_v(w->x, w->at, word->i + t, n, w->r->tile);
        word_scan_factors(w->r->factor, t, n);
        w->x->k->mean_rows(w->r->tile, ld, w->r->tile, ld, n, ld, w->r->factor,
                           w->r->word);
        for (int64_t i = 0; offset && i < n; i++)
            for (int c = 0; c < ld; c++)
                w->r->tile[i * ld + c] =
                    (float)(by * (double)w->r->tile[i * ld + c] + offset[c]);
        positional_store_o(w->x, w->at, word->i + t, n, w->r->tile);
    }
}

/* Patterns that look at words before: lag 0 the own word, 1 the word before, 2 the mean
 * of all words at least 2 before. */
static void lagged(const struct word_scan *w, int lag)
{
    struct positional_word word = { 0 };
    double                *before = w->r->mean + w->x->ldv; /* the word before */

    word_scan_zero(w, w->r->mean, 2);
    for (int64_t m = 0; word_scan_next(w, false, &word); m++) {
        mean_of(w, &word);
        if (m < lag && w->at->kind.self && w->x->causal)
            store_running(w, &word, 1, NULL);
        else if (m < lag)
            positional_words_fill(w, &word, w->at->kind.self ? w->r->word : NULL);
        else
            positional_words_fill(w, &word,
                                  lag == 0   ? w->r->word
                                  : lag == 1 ? before
                                             : w->r->mean);
        if (m > 0) add_word(w, before, m);
        memcpy(before, w->r->word, (size_t)w->x->ldv * sizeof *before);
    }
}

/* Causal patterns that include the row's own word: alone, or with the mean of all
 * words. */
static void causal_word(const struct word_scan *w)
{
    const int              ld = w->x->ldv;
    const foci_pattern     p = w->at->kind.pattern;
    struct positional_word word = { 0 };
    double                *offset = w->r->offset;
    struct cubes           f;
    const struct word_scan forward = { w->x, w->at, w->r, w->words, false };

    word_scan_zero(w, w->r->mean, 4);
    for (int64_t m = 0; word_scan_next(&forward, false, &word); m++) {
        const double a = positional_mean_factor(m + 1);

        if (p == FOCI_PATTERN_END) {
            for (int c = 0; c < ld; c++)
                offset[c] = (1 - a) * w->r->mean[c];
            store_running(w, &word, a, offset);
            add_word(w, w->r->word, m + 1);
        } else if (p == FOCI_PATTERN_START) {
            positional_cubes(&f, m, 1);
            for (int c = 0; c < ld; c++) {
                offset[c] = 0;
                for (int r = 0; r < 4; r++)
                    offset[c] += f.from[6 + r] * w->r->mean[r * ld + c];
            }
            store_running(w, &word, f.in[3], offset);
            for (int c = 0; c < ld; c++)
                w->r->tile[c] = (float)w->r->word[c];
            w->x->k->cube_rows(w->r->tile, ld, w->r->tile, ld, 1, ld, &f, w->r->mean);
        } else {
            store_running(w, &word, 1, NULL);
        }
    }
}

void positional_words_forward(const struct positional      *x,
                              const struct positional_head *at,
                              struct positional_scratch    *r)
{
    const struct word_scan       w = word_scan_of(x, at, r);
    const struct positional_word all = { 0, at->s->nk };

    switch (at->kind.pattern) {
    case FOCI_PATTERN_PREVIOUS: lagged(&w, 1); break;
    case FOCI_PATTERN_LEFT: lagged(&w, 2); break;
    case FOCI_PATTERN_NEXT:
    case FOCI_PATTERN_RIGHT:
        if (!x->causal)
            lagged(&w, at->kind.pattern == FOCI_PATTERN_NEXT ? 1 : 2);
        else if (at->kind.self)
            causal_word(&w);
        else
            positional_words_fill(&w, &all, NULL);
        break;
    case FOCI_PATTERN_CURRENT:
        if (x->causal)
            causal_word(&w);
        else
            lagged(&w, 0);
        break;
    default:
        if (x->causal)
            causal_word(&w);
        else
            global_mean(&w);
        break;
    }
}
