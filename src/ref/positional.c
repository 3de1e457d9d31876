/* positional.c -- rows that are sums of others by their places: weights written out.
 *
 * Patterns of tokens, or of words, whose tokens share their word's weight; causal rows are
 * the last of the pattern on the tokens up to them.  Taps are softmaxes of learned numbers,
 * of which places beyond the ends keep their share.
 */
#include <math.h>
#include <stdlib.h>

#include "ref/ref.h"

struct ref_positional {
    const struct ref_part *p;
    foci_positional        what;
    bool                   causal;
    int64_t                n, dv, dim_x, memory, left;
    double                *a;          /* [n] weights of a row */
    double                *by;         /* [n] the same by word */
    int64_t               *tokens;     /* [n] of each word */
    double                *tap, *dtap; /* [width] */
};

/* Before they are divided by their sum: place j of n for row i. */
static double cube(foci_pattern pattern, int64_t i, int64_t j, int64_t n)
{
    switch (pattern) {
    case FOCI_PATTERN_CURRENT: return j == i;
    case FOCI_PATTERN_PREVIOUS: return j == i - 1;
    case FOCI_PATTERN_NEXT: return j == i + 1;
    case FOCI_PATTERN_LEFT: return j <= i - 2 ? pow((double)(j + 1), 3) : 0;
    case FOCI_PATTERN_RIGHT: return j >= i + 2 ? pow((double)(n - j), 3) : 0;
    case FOCI_PATTERN_END: return pow((double)(j + 1), 3);
    case FOCI_PATTERN_START: return pow((double)(n - j), 3);
    default: return 0;
    }
}

/* Row i of the pattern on n places. */
static void pattern_row(const struct ref_positional *x, int64_t i, int64_t n, double *a)
{
    double sum = 0;

    for (int64_t j = 0; j < n; j++) {
        a[j] = cube(x->what.pattern, i, j, n);
        sum += a[j];
    }
    for (int64_t j = 0; j < n; j++)
        a[j] = sum > 0 ? a[j] / sum : x->what.self && j == i;
}

static int64_t word_of(const struct ref_positional *x, int64_t i)
{
    return x->what.words ? x->p->word_of[i] : i;
}

static void see_pattern(const struct ref_positional *x, int64_t i)
{
    const int64_t n = x->causal ? i + 1 : x->n, words = word_of(x, n - 1) + 1;

    pattern_row(x, word_of(x, i), words, x->by);
    for (int64_t w = 0; w < words; w++)
        x->tokens[w] = 0;
    for (int64_t j = 0; j < n; j++)
        x->tokens[word_of(x, j)]++;
    for (int64_t j = 0; j < x->n; j++)
        x->a[j] = j < n ? x->by[word_of(x, j)] / (double)x->tokens[word_of(x, j)] : 0;
}

static bool of_x(const struct ref_positional *x)
{
    return x->what.pattern == FOCI_PATTERN_TAPS_OF_X;
}

/* Where the logit of tap t of a part comes from. */
static int64_t logit_at(const struct ref_positional *x, int64_t part, int64_t t)
{
    return ref_tensor(x->p, -1, 0) +
           (part * x->what.width + t) * (of_x(x) ? x->dim_x : 1);
}

static void see_taps(const struct ref_positional *x, int64_t i, int64_t part)
{
    const double *params = x->p->call->params;

    for (int64_t t = 0; t < x->what.width; t++) {
        const int64_t at = logit_at(x, part, t);
        x->tap[t] =
            of_x(x) ? ref_dot(REF_F64, params + at, x->p->x + i * x->dim_x, x->dim_x)
                    : params[at];
    }
    ref_softmax(x->tap, x->what.width);
    for (int64_t j = 0; j < x->n; j++)
        x->a[j] = 0;
    for (int64_t t = 0; t < x->what.width; t++) {
        const int64_t j = i + t - x->left;
        if (j >= 0 && j < x->n) x->a[j] = x->tap[t];
    }
}

/* From dtap, the gradients of the taps, to those of their logits. */
static void taps_back(const struct ref_positional *x, int64_t i, int64_t part)
{
    const struct ref_part *p = x->p;

    ref_softmax_back(x->tap, x->dtap, x->what.width);
    for (int64_t t = 0; t < x->what.width; t++) {
        const int64_t at = logit_at(x, part, t);
        if (!of_x(x)) {
            p->dparams[at] += x->dtap[t];
            continue;
        }
        ref_add_row(REF_F64, p->dparams + at, x->dtap[t], p->x + i * x->dim_x, x->dim_x);
        ref_add_row(REF_F64, p->dx + i * x->dim_x, x->dtap[t], p->call->params + at,
                    x->dim_x);
    }
}

/* Columns of a part of row i, whose weights are set. */
static void forward_row(const struct ref_positional *x, int64_t i, foci_range c)
{
    double *o = x->p->o + i * x->dv;

    for (int64_t e = c.begin; e < c.end; e++) {
        o[e] = 0;
        for (int64_t j = 0; j < x->n; j++)
            if (x->a[j] != 0) o[e] += x->a[j] * x->p->v[j * x->dv + e];
    }
}

static void backward_row(const struct ref_positional *x, int64_t i, foci_range c)
{
    const double *g = x->p->g + i * x->dv, *v = x->p->v;

    for (int64_t e = c.begin; e < c.end; e++)
        for (int64_t j = x->memory; j < x->n; j++)
            if (x->a[j] != 0) x->p->dv[j * x->dv + e] += x->a[j] * g[e];
    for (int64_t t = 0; t < x->what.width; t++) {
        const int64_t j = i + t - x->left;
        x->dtap[t] = 0;
        for (int64_t e = c.begin; j >= 0 && j < x->n && e < c.end; e++)
            x->dtap[t] += g[e] * v[j * x->dv + e];
    }
}

static void report(const struct ref_positional *x, int64_t i)
{
    float *const to = x->p->weights ? ref_weights_at(x->p, i) : NULL;

    for (int64_t j = 0; to && j < x->n; j++)
        to[j] = (float)x->a[j];
}

static void one_row(const struct ref_positional *x, int64_t i)
{
    const int64_t parts = x->what.width ? x->what.parts : 1, per = x->dv / parts;

    for (int64_t part = 0; part < parts; part++) {
        const foci_range c = { part * per, (part + 1) * per };
        if (x->what.width)
            see_taps(x, i, part);
        else
            see_pattern(x, i);
        forward_row(x, i, c);
        if (x->p->g) {
            backward_row(x, i, c);
            if (x->what.width) taps_back(x, i, part);
        } else if (part == 0) {
            report(x, i);
        }
    }
}

foci_status ref_positional_run(const struct ref_part *p)
{
    const foci_problem   *pr = &p->call->plan->p;
    struct ref_positional x = { .p = p,
                                .causal = (pr->flags & FOCI_FLAG_CAUSAL) != 0,
                                .n = p->seq->nk,
                                .dv = ref_dim_v(p->call),
                                .dim_x = pr->dim_x,
                                .memory = ref_memory(p) };

    if (p->seq->nq != p->seq->nk) return FOCI_ERR_ARG;
    p->mech->def->positional(p->mech, p->index, &x.what);
    x.left = x.causal ? x.what.width - 1 : x.what.width / 2;
    const size_t n = (size_t)x.n + 1, width = (size_t)x.what.width + 1;
    double      *rows = calloc(2 * n + 2 * width, sizeof *rows);
    x.tokens = calloc(n, sizeof *x.tokens);
    if (rows && x.tokens) {
        x.a = rows;
        x.by = rows + n;
        x.tap = rows + 2 * n;
        x.dtap = x.tap + width;
        for (int64_t i = p->rows.begin; i < p->rows.end; i += p->step)
            one_row(&x, i);
    }
    const bool ok = rows && x.tokens;
    free(rows);
    free(x.tokens);
    return ok ? FOCI_OK : FOCI_ERR_MEMORY;
}
