/* positional_words.c -- the seven patterns, of words.
 *
 * A word stands for the mean u of its tokens, and all of its tokens take the same row.
 * Causal rows know their own word only as far as themselves; running means of its tokens
 * are what they take it for.  Words are counted along the scan, as rows are in
 * positional_scan.c.
 */
#include <string.h>

#include "engine/positional.h"

/* Rows i to i + n of the sequence. */
struct word {
    int64_t i, n;
};

/* One head of a sequence, being scanned. */
struct walk {
    const struct positional *x;
    const struct place      *at;
    struct positional_room  *r;
    const int32_t           *words; /* of the sequence */
    bool                     back;
};

static struct walk walk_of(const struct positional *x, const struct place *at,
                           struct positional_room *r)
{
    const foci_pattern p = at->what.pattern;

    return (struct walk){ .x = x,
                          .at = at,
                          .r = r,
                          .words = x->io->words + at->s->b * x->p->len_q + at->s->q0,
                          .back = p == FOCI_PATTERN_NEXT || p == FOCI_PATTERN_RIGHT ||
                                  (p == FOCI_PATTERN_START && !x->causal) };
}

static int64_t count_words(const struct walk *w)
{
    return (int64_t)w->words[w->at->s->nk - 1] + 1;
}

/* The word whose first row is i, or, upward false, whose last row is i. */
static struct word word_at(const struct walk *w, int64_t i, bool upward)
{
    int64_t n = 1;

    if (upward) {
        while (i + n < w->at->s->nk && w->words[i + n] == w->words[i])
            n++;
        return (struct word){ i, n };
    }
    while (i - n >= 0 && w->words[i - n] == w->words[i])
        n++;
    return (struct word){ i - n + 1, n };
}

/* Start with a word of no rows: along the scan, or against it. */
static bool next_word(const struct walk *w, bool against, struct word *word)
{
    const bool    upward = w->back == against;
    const int64_t len = w->at->s->nk;
    int64_t       i = upward ? 0 : len - 1;

    if (word->n) i = upward ? word->i + word->n : word->i - 1;
    if (i < 0 || i >= len) return false;
    *word = word_at(w, i, upward);
    return true;
}

static double mean_factor(int64_t m)
{
    const double n = (double)m;
    return 4 * n / ((n + 1) * (n + 1));
}

/* Factors 1/(t + 1) of plain running means. */
static void set_plain(double *a, int64_t t, int n)
{
    for (int i = 0; i < n; i++)
        a[i] = 1 / (double)(t + i + 1);
}

/*
 * Vectors of a head, ldv long.  In the room, state[0 .. 3] are means of words; part is the
 * mean inside a word.
 */

static void zero(const struct walk *w, double *v, int n)
{
    memset(v, 0, (size_t)n * (size_t)w->x->ldv * sizeof *v);
}

/* The mean of a word, in part. */
static void mean_of(const struct walk *w, const struct word *word)
{
    zero(w, w->r->part, 1);
    for (int64_t t = 0; t < word->n; t += ROWS) {
        const int n = (int)min64(ROWS, word->n - t);

        positional_load_v(w->x, w->at, word->i + t, n, w->r->tile);
        set_plain(w->r->factor, t, n);
        w->x->k->mean_rows(w->r->tile, w->x->ldv, w->r->tile, w->x->ldv, n, w->x->ldv,
                           w->r->factor, w->r->part);
    }
}

/* All rows of a word take v; NULL: nothing. */
static void fill(const struct walk *w, const struct word *word, const double *v)
{
    const int ld = w->x->ldv, rows = (int)min64(ROWS, word->n);

    for (int64_t t = 0; t < rows; t++)
        for (int c = 0; c < ld; c++)
            w->r->tile[t * ld + c] = v ? (float)v[c] : 0;
    for (int64_t t = 0; t < word->n; t += ROWS)
        positional_store_o(w->x, w->at, word->i + t, (int)min64(ROWS, word->n - t),
                           w->r->tile);
}

/* state[0] takes v in as word number m, from 1. */
static void include(const struct walk *w, const double *v, int64_t m)
{
    const double a = mean_factor(m);

    for (int c = 0; c < w->x->ldv; c++)
        w->r->state[c] += a * (v[c] - w->r->state[c]);
}

static void whole(const struct walk *w)
{
    const struct word all = { 0, w->at->s->nk };
    struct word       word = { 0 };

    zero(w, w->r->state, 1);
    for (int64_t m = 1; next_word(w, false, &word); m++) {
        mean_of(w, &word);
        include(w, w->r->part, m);
    }
    fill(w, &all, w->r->state);
}

/* o = by part + base, of causal rows, where part are the running means of the word so far,
 * which stay in w->r->part. */
static void store_parts(const struct walk *w, const struct word *word, double by,
                        const double *base)
{
    const int ld = w->x->ldv;

    zero(w, w->r->part, 1);
    for (int64_t t = 0; t < word->n; t += ROWS) {
        const int n = (int)min64(ROWS, word->n - t);

        positional_load_v(w->x, w->at, word->i + t, n, w->r->tile);
        set_plain(w->r->factor, t, n);
        w->x->k->mean_rows(w->r->tile, ld, w->r->tile, ld, n, ld, w->r->factor,
                           w->r->part);
        for (int64_t i = 0; base && i < n; i++)
            for (int c = 0; c < ld; c++)
                w->r->tile[i * ld + c] =
                    (float)(by * (double)w->r->tile[i * ld + c] + base[c]);
        positional_store_o(w->x, w->at, word->i + t, n, w->r->tile);
    }
}

/* Patterns that look at words before: `lag` of them are skipped, and further ones count as
 * a mean or, with lag 1, not at all. */
static void lagged(const struct walk *w, int lag)
{
    struct word word = { 0 };
    double     *before = w->r->state + w->x->ldv; /* the word before */

    zero(w, w->r->state, 2);
    for (int64_t m = 0; next_word(w, false, &word); m++) {
        mean_of(w, &word);
        if (m < lag && w->at->what.self && w->x->causal)
            store_parts(w, &word, 1, NULL);
        else if (m < lag)
            fill(w, &word, w->at->what.self ? w->r->part : NULL);
        else
            fill(w, &word, lag == 0 ? w->r->part : lag == 1 ? before : w->r->state);
        if (m > 0) include(w, before, m);
        memcpy(before, w->r->part, (size_t)w->x->ldv * sizeof *before);
    }
}

/* A causal row and its own word: alone, at the end of the others, or before them. */
static void own_word(const struct walk *w)
{
    const int          ld = w->x->ldv;
    const foci_pattern p = w->at->what.pattern;
    struct word        word = { 0 };
    double            *base = w->r->base;
    struct cubes       f;
    const struct walk  up = { w->x, w->at, w->r, w->words, false };

    zero(w, w->r->state, 4);
    for (int64_t m = 0; next_word(&up, false, &word); m++) {
        const double a = mean_factor(m + 1);

        if (p == FOCI_PATTERN_END) {
            for (int c = 0; c < ld; c++)
                base[c] = (1 - a) * w->r->state[c];
            store_parts(w, &word, a, base);
            include(w, w->r->part, m + 1);
        } else if (p == FOCI_PATTERN_START) {
            positional_cubes(&f, m, 1);
            for (int c = 0; c < ld; c++) {
                base[c] = 0;
                for (int r = 0; r < 4; r++)
                    base[c] += f.from[6 + r] * w->r->state[r * ld + c];
            }
            store_parts(w, &word, f.in[3], base);
            for (int c = 0; c < ld; c++)
                w->r->tile[c] = (float)w->r->part[c];
            w->x->k->cube_rows(w->r->tile, ld, w->r->tile, ld, 1, ld, &f, w->r->state);
        } else {
            store_parts(w, &word, 1, NULL);
        }
    }
}

void words_forward(const struct positional *x, const struct place *at,
                   struct positional_room *r)
{
    const struct walk w = walk_of(x, at, r);
    const struct word all = { 0, at->s->nk };

    switch (at->what.pattern) {
    case FOCI_PATTERN_PREVIOUS: lagged(&w, 1); break;
    case FOCI_PATTERN_LEFT: lagged(&w, 2); break;
    case FOCI_PATTERN_NEXT:
    case FOCI_PATTERN_RIGHT:
        if (!x->causal)
            lagged(&w, at->what.pattern == FOCI_PATTERN_NEXT ? 1 : 2);
        else if (at->what.self)
            own_word(&w);
        else
            fill(&w, &all, NULL);
        break;
    case FOCI_PATTERN_CURRENT:
        if (x->causal)
            own_word(&w);
        else
            lagged(&w, 0);
        break;
    default:
        if (x->causal)
            own_word(&w);
        else
            whole(&w);
        break;
    }
}

/*
 * Backward: words from the last of the scan to the first
 */

/* The sum of the gradients of a word's rows. */
static void sum_of(const struct walk *w, const struct word *word, double *sum)
{
    zero(w, sum, 1);
    for (int64_t t = 0; t < word->n; t += ROWS) {
        const int n = (int)min64(ROWS, word->n - t);

        positional_load_g(w->x, w->at, word->i + t, n, w->r->tile);
        for (int64_t i = 0; i < n; i++)
            for (int c = 0; c < w->x->ldv; c++)
                sum[c] += (double)w->r->tile[i * w->x->ldv + c];
    }
}

/* All tokens of a word take an equal share of du. */
static void spread(const struct walk *w, const struct word *word, const double *du)
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

/* Through the running means of a word's tokens: rows took `by` of theirs, and part is the
 * gradient of the mean of them all. */
static void parts_back(const struct walk *w, const struct word *word, double by)
{
    const int ld = w->x->ldv;

    for (int64_t t = (word->n - 1) / ROWS * ROWS; t >= 0; t -= ROWS) {
        const int n = (int)min64(ROWS, word->n - t);

        positional_load_g(w->x, w->at, word->i + t, n, w->r->tile);
        for (int64_t c = 0; c < (int64_t)n * ld; c++)
            w->r->tile[c] = (float)(by * (double)w->r->tile[c]);
        set_plain(w->r->factor, t, n);
        w->x->k->mean_back(w->r->tile, ld, w->r->tile, ld, n, ld, w->r->factor,
                           w->r->part);
        positional_store_dv(w->x, w->at, word->i + t, n, w->r->tile);
    }
}

/* state: dM, then the sums of the two words that come later in the scan. */
static void lagged_back(const struct walk *w, int lag)
{
    const int   ld = w->x->ldv;
    struct word word = { 0 };
    double     *dm = w->r->state, *later = dm + ld, *last = later + ld;

    zero(w, w->r->state, 3);
    for (int64_t m = count_words(w); next_word(w, true, &word); m--) {
        const double a = mean_factor(m);
        const bool   takes_self = m - 1 < lag && w->at->what.self;

        sum_of(w, &word, w->r->part);
        for (int c = 0; c < ld; c++) {
            const double mine = w->r->part[c];
            const double self = takes_self && !w->x->causal ? mine : 0;
            const double from = lag == 0 ? mine : lag == 1 ? later[c] : last[c];

            dm[c] += from;
            w->r->part[c] = (lag == 2 ? a : 1) * dm[c] + self;
            dm[c] = lag == 2 ? (1 - a) * dm[c] : 0; /* whatever it was */
            last[c] = later[c];
            later[c] = mine;
        }
        if (takes_self && w->x->causal)
            parts_back(w, &word, 1);
        else
            spread(w, &word, w->r->part);
    }
}

static void whole_back(const struct walk *w)
{
    const int         ld = w->x->ldv;
    const struct word all = { 0, w->at->s->nk };
    struct word       word = { 0 };
    double           *dm = w->r->state;

    sum_of(w, &all, dm);
    for (int64_t m = count_words(w); next_word(w, true, &word); m--) {
        const double a = mean_factor(m);

        for (int c = 0; c < ld; c++) {
            w->r->part[c] = a * dm[c];
            dm[c] *= 1 - a;
        }
        spread(w, &word, w->r->part);
    }
}

/* Gradients of the four means: from those after a word to those before it. */
static void cubes_before(const struct walk *w, const struct cubes *f)
{
    const int ld = w->x->ldv;
    double   *da = w->r->state;

    for (int c = 0; c < ld; c++)
        for (int r = 0; r < 4; r++) {
            double before = f->from[6 + r] * w->r->base[c];
            for (int p = r; p < 4; p++)
                before += f->from[p * (p + 1) / 2 + r] * da[p * ld + c];
            da[r * ld + c] = before;
        }
}

static void own_word_back(const struct walk *w)
{
    const int          ld = w->x->ldv;
    const foci_pattern p = w->at->what.pattern;
    const struct walk  up = { w->x, w->at, w->r, w->words, false };
    struct word        word = { 0 };
    struct cubes       f;

    zero(w, w->r->state, 4);
    for (int64_t m = count_words(w); next_word(&up, true, &word); m--) {
        const double a = mean_factor(m);

        zero(w, w->r->part, 1);
        if (p == FOCI_PATTERN_END) {
            sum_of(w, &word, w->r->base);
            for (int c = 0; c < ld; c++) {
                w->r->part[c] = a * w->r->state[c];
                w->r->state[c] = (1 - a) * (w->r->state[c] + w->r->base[c]);
            }
            parts_back(w, &word, a);
        } else if (p == FOCI_PATTERN_START) {
            sum_of(w, &word, w->r->base);
            positional_cubes(&f, m - 1, 1);
            for (int c = 0; c < ld; c++)
                for (int r = 0; r < 4; r++)
                    w->r->part[c] += f.in[r] * w->r->state[r * ld + c];
            cubes_before(w, &f);
            parts_back(w, &word, f.in[3]);
        } else {
            parts_back(w, &word, 1);
        }
    }
}

static void nothing_back(const struct walk *w)
{
    const struct word all = { 0, w->at->s->nk };

    zero(w, w->r->part, 1);
    spread(w, &all, w->r->part);
}

void words_backward(const struct positional *x, const struct place *at,
                    struct positional_room *r)
{
    const struct walk w = walk_of(x, at, r);

    switch (at->what.pattern) {
    case FOCI_PATTERN_PREVIOUS: lagged_back(&w, 1); break;
    case FOCI_PATTERN_LEFT: lagged_back(&w, 2); break;
    case FOCI_PATTERN_NEXT:
    case FOCI_PATTERN_RIGHT:
        if (!x->causal)
            lagged_back(&w, at->what.pattern == FOCI_PATTERN_NEXT ? 1 : 2);
        else if (at->what.self)
            own_word_back(&w);
        else
            nothing_back(&w);
        break;
    case FOCI_PATTERN_CURRENT:
        if (x->causal)
            own_word_back(&w);
        else
            lagged_back(&w, 0);
        break;
    default:
        if (x->causal)
            own_word_back(&w);
        else
            whole_back(&w);
        break;
    }
}
