/* scores.h -- checkers of what makes weights and gradients of scores. */
#ifndef FOCI_TESTS_KERN_SCORES_H
#define FOCI_TESTS_KERN_SCORES_H

#include "kern/run.h"

static const int key_counts[] = { 64, 1, 2, 3, 7, 63, 128 };

/* Scores of n keys: some kind of numbers, nothing but -inf, or holes of -inf with
 * one lane all -inf and a NaN in another. */
enum { DARK = N_DATA, HOLES, N_SCORES };

static void fill_scores(struct run *r, float *s, int n, int scores)
{
    for (int x = 0; x < n * LANES; x++) {
        s[x] = draw(r, scores < N_DATA ? (enum data)scores : NORMAL) * 4.0f;
        if (scores == DARK || (scores == HOLES && below(r, 2))) s[x] = -INFINITY;
        if (scores == HOLES && x % LANES == 9) s[x] = -INFINITY;
    }
    if (scores == HOLES && !r->bench) s[(n - 1) * LANES + 5] = NAN;
}

static void name_scores(struct run *r, int n, int kind, int scores, const char *what)
{
    snprintf(r->label, sizeof r->label, "%d keys, kind %d, scores %d%s", n, kind,
             scores, what);
    r->is_flops = false;
}

/* Rows of bias as a tile of their own, or of an array that goes back one step a row. */
static void try_modify(struct run *r, int n, int scores, int form)
{
    const float unit = 1.44269504f, c = form & 1 ? 30.0f : 0.0f;

    name_scores(r, n, form, scores, "");
    r->work = 8.0 * n * LANES;
    float *const       s = inout(r, (int64_t)n * LANES, NORMAL);
    float *const       f = floats(r, LANES, NORMAL);
    const int64_t      ldb = form & 8 ? -1 : LANES;
    const float *const rows =
        form & 2 ? floats(r, ldb < 0 ? n + LANES - 1 : (int64_t)n * LANES, NORMAL)
                 : NULL;
    const float *const bias = rows && ldb < 0 ? rows + n - 1 : rows;
    uint64_t *const    seen = take(r, (size_t)n * sizeof *seen, false, BYTES);

    fill_scores(r, s, n, scores);
    for (int j = 0; j < n; j++)
        seen[j] = bits(r);
    for (int i = 0; i < LANES && r->bench; i++)
        f[i] = 0.5f;

    /* f s + bias is rounded once or twice, x / c twice at most, tanh within EXP plus
     * what the exponential of 2x makes of that, and its slope is at most 1. */
    for (int x = 0; x < n * LANES; x++) {
        const double fs = (double)f[x % LANES] * (double)s[x];
        const double b = bias ? (double)bias[x / LANES * ldb + x % LANES] : 0.0;
        const double y = c != 0.0f ? 30.0 * tanh((fs + b) / 30.0) : fs + b;

        if (isfinite(fs) && !r->bench)
            allow(r, s, x,
                  (double)unit * (2 * E * (fabs(fs) + fabs(b)) + (4 * EXP) * fabs(y)));
    }
    while (next(r))
        r->k->modify(s, n, f, unit, c, bias, ldb, form & 4 ? seen : NULL);
}

static void check_modify(struct run *r)
{
    static const int forms[] = { 4, 7, 0, 1, 2, 3, 5, 6, 10, 15 };

    for (int i = 0; i < cases(r, 1, COUNT(key_counts)); i++)
        for (int scores = 0; scores < cases(r, 1, N_SCORES); scores++)
            for (int form = 0; form < cases(r, 2, COUNT(forms)); form++)
                try_modify(r, key_counts[i], scores, forms[form]);
}

/* How the running rows stand before: nothing seen, something seen that the scores
 * will exceed in some lanes, much more than they will ever reach, or a reference
 * that the caller holds still. */
enum { FRESH, CLOSE, ABOVE, STILL, N_STATES };

struct running {
    float *f, *m, *l, *shrink;
};

static struct running running(struct run *r, int state, int form)
{
    static const float levels[] = { -INFINITY, -6.0f, 1e5f, 20.0f };
    struct running     x = {
            .m = inout(r, LANES, NORMAL),
            .l = inout(r, LANES, NORMAL),
            .shrink = inout(r, LANES, NORMAL),
    };

    for (int i = 0; i < LANES; i++) {
        x.m[i] = i % 7 == 6 && state != STILL ? -INFINITY
                                              : levels[state] + (float)(i % 3) * 3.0f;
        x.l[i] = x.m[i] == -INFINITY ? 0.0f : 1.5f + (float)i;
    }
    if (form == 0) return x;
    x.f = floats(r, LANES, NORMAL);
    for (int i = 0; i < LANES && form == 1; i++)
        x.f[i] = 0.01f + fabsf(x.f[i]);
    return x;
}

static void name_running(struct run *r, int n, int kind, int scores, int state, int form)
{
    char what[32];

    snprintf(what, sizeof what, ", state %d%s", state, form ? ", factors" : "");
    name_scores(r, n, kind, scores, r->bench && form ? ", factors" : what);
}

/* The exponents t - m are made by the same two roundings in every level and m is
 * compared exactly, so that what is left is the error of 2^x, for squares twice, and
 * n + 2 roundings of a sum of positive numbers. */
static void try_weigh_f32(struct run *r, int n, int kind, int scores, int state,
                          int form)
{
    name_running(r, n, kind, scores, state, form);
    r->work = 8.0 * n * LANES;
    float *const         s = inout(r, (int64_t)n * LANES, NORMAL);
    const struct running x = running(r, state, form);
    int *const           moved = output(r, 1, sizeof *moved, BYTES);

    fill_scores(r, s, n, scores);
    allow_share(r, s, EXP + 2 * E);
    allow_share(r, x.l, 2 * (EXP + 2 * E) + 2 * (n + 2) * E);
    allow_share(r, x.shrink, EXP + 2 * E);
    while (next(r))
        *moved = r->k->weigh_f32(s, n, x.f, x.m, x.l, state == STILL ? NULL : x.shrink,
                                 kind);
}

typedef void (*try_weigh)(struct run *r, int n, int kind, int scores, int state,
                          int form);

static void check_weigh(struct run *r, try_weigh try)
{
    for (int i = 0; i < cases(r, 1, COUNT(key_counts)); i++)
        for (int kind = FOCI_WEIGH_SOFTMAX; kind <= FOCI_WEIGH_RELU2; kind++)
            for (int scores = 0; scores < cases(r, 1, N_SCORES); scores++)
                for (int state = 0; state < cases(r, 1, N_STATES); state++)
                    for (int form = 0; form < cases(r, 2, 3); form++)
                        if (state != STILL || scores == 0)
                            try(r, key_counts[i], kind, scores, state, form);
}

static void check_weigh_f32(struct run *r) { check_weigh(r, try_weigh_f32); }

/* l must be the sum of the very weights in p[k][64]. */
static void check_sums(const struct run *r, const uint16_t *p, int k,
                       const float *before, const struct running *x, int moved, int kind)
{
    for (int i = 0; i < LANES; i++) {
        const double by = moved ? (double)x->shrink[i] : 1.0;
        double want = (double)before[i] * (kind == FOCI_WEIGH_L2NORM ? by * by : by);

        for (int j = 0; j < 2 * k && kind != FOCI_WEIGH_RELU2; j++) {
            const double w = (double)of_bf16(p[(j / 2 * LANES + i) * 2 + j % 2]);
            want += kind == FOCI_WEIGH_L2NORM ? w * w : w;
        }
        if (isnan(want) && isnan(x->l[i])) continue;
        if (fabs((double)x->l[i] - want) > (2 * k + 3) * E * want + (double)FLT_MIN)
            fail_msg("%s, %s: %s, lane %d: l is %.9g, the weights sum to %.9g",
                     r->level, r->label, kernel_names[r->id], i, (double)x->l[i], want);
    }
}

static void try_weigh_bf16(struct run *r, int n, int kind, int scores, int state,
                           int form)
{
    const int k = (n + 1) / 2 + (r->bench ? 0 : below(r, 3));
    float     before[LANES];

    name_running(r, n, kind, scores, state, form);
    r->work = 6.0 * n * LANES;
    float *const         s = floats(r, (int64_t)n * LANES, NORMAL);
    uint32_t *const      p = output(r, (int64_t)k * LANES, sizeof *p, HALVES);
    const struct running x = running(r, state, form);
    int *const           moved = output(r, 1, sizeof *moved, BYTES);

    fill_scores(r, s, n, scores);
    allow_share(r, p, BF16);
    allow_share(r, x.l, 2 * BF16);
    allow_share(r, x.shrink, EXP + 2 * E);
    while (next(r)) {
        if (!r->bench) memcpy(before, x.l, sizeof before);
        *moved = r->k->weigh_bf16(s, p, n, k, x.f, x.m, x.l,
                                  state == STILL ? NULL : x.shrink, kind);
        if (!r->bench) check_sums(r, (const uint16_t *)p, k, before, &x, *moved, kind);
    }
}

static void check_weigh_bf16(struct run *r) { check_weigh(r, try_weigh_bf16); }

/* Rows of attention that suit the scores: the normaliser lies just above them. */
static struct grad_rows grad_rows(struct run *r, const float *s, int n, int kind,
                                  int form)
{
    float *const f = floats(r, LANES, NORMAL), *const norm = floats(r, LANES, NORMAL);

    for (int i = 0; i < LANES; i++) {
        float top = -INFINITY;
        for (int j = 0; j < n; j++)
            top = fmaxf(top, (form & 1 ? f[i] : 1.0f) * s[j * LANES + i]);
        norm[i] = top == -INFINITY ? INFINITY : top + 0.5f;
        if (kind == FOCI_WEIGH_RELU2) norm[i] = 1.0f / (float)(i + 1);
    }
    return (struct grad_rows){
        .f = form & 1 ? f : NULL,
        .norm = norm,
        .delta = floats(r, LANES, NORMAL),
        .c = form & 2 ? 30.0f : 0.0f,
        .unit = 1.44269504f,
        .kind = kind,
    };
}

/* A bound of ds: each factor has at most three roundings, w its own error or counts
 * as zero, and the differences dp - delta and 1 - x^2 are taken at the size of their
 * terms. */
static double grad_bound(const struct grad_rows *g, int i, double s, double dp,
                         double error)
{
    const double t = (g->f ? (double)g->f[i] : 1.0) * s;
    const double x = g->c != 0.0f ? t / ((double)g->unit * (double)g->c) : 0.0;
    const double norm = (double)g->norm[i], delta = fabs((double)g->delta[i]);
    const double cap = 1.0 + x * x;
    const double share = 2.0 * error + 16.0 * E;

    if (t == -INFINITY) return 0.0;
    if (g->kind == FOCI_WEIGH_RELU2)
        return 2.0 * fmax(t, 0.0) * norm * fabs(dp) * cap * share;
    return (exp2(fmin(t - norm, 8.0)) * share + (double)FLT_MIN) * (fabs(dp) + delta) *
           cap;
}

static void try_grad_f32(struct run *r, int n, int kind, int scores, int form)
{
    name_scores(r, n, kind, scores, form & 2 ? ", cap" : "");
    r->work = 16.0 * n * LANES;
    float *const s = inout(r, (int64_t)n * LANES, NORMAL);
    float *const dp = inout(r, (int64_t)n * LANES, NORMAL);

    fill_scores(r, s, n, scores);
    const struct grad_rows g = grad_rows(r, s, n, kind, form);

    allow_share(r, s, EXP + 4 * E);
    for (int x = 0; x < n * LANES; x++)
        allow(r, dp, x, grad_bound(&g, x % LANES, (double)s[x], (double)dp[x], EXP));
    while (next(r))
        r->k->grad_f32(s, dp, n, &g);
}

static void try_grad_bf16(struct run *r, int n, int kind, int scores, int form)
{
    const int     k = (n + 1) / 2 + (r->bench ? 0 : below(r, 3));
    const int64_t size = (int64_t)k * LANES;

    name_scores(r, n, kind, scores, form & 2 ? ", cap" : "");
    r->work = 16.0 * n * LANES;
    float *const s = floats(r, (int64_t)n * LANES, NORMAL);
    float *const dp = floats(r, (int64_t)n * LANES, NORMAL);

    fill_scores(r, s, n, scores);
    const struct grad_rows g = grad_rows(r, s, n, kind, form);
    uint16_t *const        w = output(r, 2 * size, sizeof *w, HALVES);
    uint16_t *const        ds = output(r, 2 * size, sizeof *ds, HALVES);
    uint32_t *const        p = output(r, size, sizeof *p, HALVES);

    allow_share(r, w, BF16);
    allow_share(r, ds, BF16);
    allow_share(r, p, BF16);
    for (int x = 0; x < n * LANES; x++) {
        const int    i = x % LANES, j = x / LANES;
        const double b = grad_bound(&g, i, (double)s[x], (double)dp[x], EXP_FAST);

        allow(r, ds, x, b);
        allow(r, p, (j / 2 * LANES + i) * 2 + j % 2, b);
    }
    while (next(r))
        r->k->grad_bf16(s, dp, n, k, &g, w, ds, p);
}

typedef void (*try_grad)(struct run *r, int n, int kind, int scores, int form);

static void check_grad(struct run *r, try_grad try)
{
    for (int i = 0; i < cases(r, 1, COUNT(key_counts)); i++)
        for (int kind = FOCI_WEIGH_SOFTMAX; kind <= FOCI_WEIGH_RELU2; kind++)
            for (int scores = 0; scores < cases(r, 1, N_SCORES); scores++)
                for (int form = 0; form < cases(r, 1, 4); form++)
                    try(r, key_counts[i], kind, scores, form);
}

static void check_grad_f32(struct run *r) { check_grad(r, try_grad_f32); }
static void check_grad_bf16(struct run *r) { check_grad(r, try_grad_bf16); }

#endif
