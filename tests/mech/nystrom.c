/* nystrom.c -- as many landmarks as tokens give softmax attention back, and so many that
 * all threads invert together agree with the judge as few do. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "ref/inverse.h"
#include "support/trial.h"

/* Inverses of hundreds of landmarks take seconds: the short form has one length and one
 * spec for which threads share an inverse. */
static bool brief(void) { return getenv("FOCI_TEST_SHORT"); }

static foci_problem problem_of(int64_t n, uint32_t flags)
{
    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .batch = 1,
                           .heads = 2,
                           .kv_heads = 1,
                           .len_q = n,
                           .len_k = n,
                           .dim_qk = 8,
                           .dim_v = 5,
                           .flags = flags };
}

/*
 * C C^+ C = C, whatever its rank
 */

/* Of C, the weights of a head, in doubles.  us and v: C V = U s, and V.  The engine leaves
 * out singular values that are n roundings of the largest, or less, as it finds them: about
 * that limit, within a factor of two, it may do either.  inverse is C^+ of all that it may
 * keep. */
struct weights {
    int64_t n;
    double *c, *inverse, *us, *v; /* [n][n] */
    double *s, limit;             /* [n] */
};

static void invert(struct weights *w)
{
    const int64_t n = w->n;

    memset(w->inverse, 0, (size_t)(n * n) * sizeof *w->inverse);
    for (int64_t t = 0; t < n; t++) {
        double square = 0;
        for (int64_t i = 0; i < n; i++)
            square += w->us[i * n + t] * w->us[i * n + t];
        w->s[t] = sqrt(square);
        w->limit = fmax(w->limit, (double)n * (double)FLT_EPSILON * w->s[t]);
    }
    for (int64_t t = 0; t < n; t++)
        for (int64_t e = 0; w->s[t] > w->limit / 2 && e < n * n; e++)
            w->inverse[e] +=
                w->v[e / n * n + t] * w->us[e % n * n + t] / (w->s[t] * w->s[t]);
}

static struct weights weights_of(const foci_plan *plan, const struct trial *t, int64_t h)
{
    const int64_t  n = plan->p.len_k, nn = n * n;
    float         *a = test_alloc((size_t)(plan->p.heads * nn), sizeof *a);
    double        *c = test_alloc((size_t)((REF_INVERSE_ROOM + 2) * nn), sizeof *c);
    double        *scratch = c + 2 * nn;
    struct weights w = { .n = n,
                         .c = c,
                         .inverse = c + nn,
                         .us = scratch,
                         .v = scratch + nn,
                         .s = scratch + 2 * nn };
    const foci_io  io = trial_io(t);

    assert_int_equal(foci_ref_weights(plan, &io, a), FOCI_OK);
    for (int64_t e = 0; e < nn; e++)
        c[e] = (double)a[h * nn + e];
    free(a);
    ref_inverse(&(struct ref_inverse){
        .type = REF_F64, .m = n, .c = c, .z = w.inverse, .scratch = scratch });
    invert(&w);
    return w;
}

static void weights_free(struct weights *w) { free(w->c); }

/* y_i = sum_j a_ij^2 x_j */
static void add_squares(int64_t n, const double *a, const double *x, double *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = 0;
        for (int64_t j = 0; j < n; j++)
            y[i] += a[i * n + j] * a[i * n + j] * x[j];
    }
}

/* y_i = sum of |us_it (v_t . x)| over what may be left out */
static void add_lost(const struct weights *w, const double *x, double *y)
{
    const int64_t n = w->n;

    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t t = 0; t < n; t++) {
        double along = 0;
        if (w->s[t] > 2 * w->limit) continue;
        for (int64_t j = 0; j < n; j++)
            along += w->v[j * n + t] * x[j];
        for (int64_t i = 0; i < n; i++)
            y[i] += fabs(w->us[i * n + t] * along);
    }
}

/* How far C C^+ (C x) may be from C x, of which room has the squares.  What C^+ is rounded
 * by goes to the result times C and C x, and as draws add up: by their squares.  So does
 * what sums over n are rounded by, n times. */
static double bound(const struct weights *w, const double *x, double *scratch)
{
    enum { DEVIATIONS = 3 };
    const double each = DEVIATIONS * (1 + sqrt((double)w->n)) * (double)FLT_EPSILON / 2;
    double      *y = scratch, *zy = y + w->n, *all = zy + w->n;
    double       most = 0, largest = 0, lost = 0;

    add_squares(w->n, w->inverse, y, zy);
    add_squares(w->n, w->c, zy, all);
    add_lost(w, x, y);
    for (int64_t i = 0; i < w->n; i++) {
        most = fmax(most, all[i]);
        largest = fmax(largest, fabs(x[i]));
        lost = fmax(lost, y[i]);
    }
    return each * (sqrt(most) + largest) + lost;
}

static void check_head(const foci_plan *plan, const foci_plan *softmax,
                       const struct trial *t, int64_t h, const struct result *got,
                       const struct result *want)
{
    const foci_problem *p = &plan->p;
    const int64_t       n = p->len_k;
    struct weights      w = weights_of(softmax, t, h);
    double             *v = test_alloc((size_t)(4 * n), sizeof *v);

    for (int64_t c = 0; c < p->dim_v; c++) {
        const int64_t first = h * p->dim_v + c, step = p->heads * p->dim_v;
        for (int64_t i = 0; i < n; i++) {
            v[i] = ref_load(FOCI_F32, t->v, trial_at(&p->v, 0, i, 0, c));
            v[n + i] = pow(want->x[PART_O][first + i * step], 2);
        }
        const double most = bound(&w, v, v + n);
        for (int64_t e = first; e < n * step; e += step)
            if (!(fabs(got->x[PART_O][e] - want->x[PART_O][e]) <= most))
                trial_fail(plan, t, "o", e, got->x[PART_O][e], want->x[PART_O][e]);
    }
    free(v);
    weights_free(&w);
}

static void as_many_as_tokens(void **state)
{
    static const int64_t lengths[] = { 1, 2, 3, 7, 17, 64, 65, 257, 300 };
    const size_t         n = sizeof lengths / sizeof *lengths - brief();
    foci_ctx            *ctx = test_ctx(NULL, 2);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        foci_problem p = problem_of(lengths[i], 0);
        if (brief()) p.heads = 1;
        foci_plan    *a = trial_plan(ctx, "nystrom(landmarks=4096, iters=0)", &p);
        foci_plan    *b = trial_plan(ctx, "softmax", &p);
        struct trial  t = trial_make(b, "softmax", i, 0);
        struct result got = trial_run(a, &t), want = trial_judge(b, &t, false);

        for (int64_t h = 0; h < p.heads; h++)
            check_head(a, b, &t, h, &got, &want);
        result_free(&got);
        result_free(&want);
        trial_free(&t);
        foci_plan_free(a);
        foci_plan_free(b);
    }
    foci_ctx_free(ctx);
}

/* Forward and backward, the same bits for any number of threads. */
static void many(void **state)
{
    static const char *const specs[] = { "nystrom(landmarks=257, iters=2, conv=3)",
                                         "nystrom(landmarks=260, iters=1)" };
    const size_t             n = brief() ? 1 : 2;
    foci_ctx                *one = test_ctx(NULL, 1), *three = test_ctx(NULL, 3);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        const foci_problem p = problem_of(brief() ? 258 : 270, FOCI_FLAG_TRAIN);
        foci_plan         *a = trial_plan(one, specs[i], &p),
                  *b = trial_plan(three, specs[i], &p);
        struct trial  t = trial_make(a, specs[i], i, 0);
        struct result got = trial_run(a, &t), more = trial_run(b, &t);
        struct result want = trial_judge(a, &t, false),
                      rounded = trial_judge(a, &t, true);

        trial_close(a, &t, &got, &want, &rounded);
        trial_equal(b, &t, "three threads", &more, &got);
        result_free(&got);
        result_free(&more);
        result_free(&want);
        result_free(&rounded);
        trial_free(&t);
        foci_plan_free(a);
        foci_plan_free(b);
    }
    foci_ctx_free(one);
    foci_ctx_free(three);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_as_tokens),
        cmocka_unit_test(many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
