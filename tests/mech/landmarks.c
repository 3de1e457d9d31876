/* landmarks.c -- as many landmarks as tokens give softmax attention back, and so many that
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

/* Of C, the weights of a head, in doubles. */
struct weights {
    int64_t n;
    double *c, *inverse; /* [n][n] */
    double  dropped;     /* singular values up to here are left out */
};

/* The engine leaves out what is n roundings of the largest, or less, as it finds it: one
 * about there it may keep or leave, and both are in the bound. */
static struct weights weights_of(const foci_plan *plan, const struct trial *t, int64_t h)
{
    const int64_t  n = plan->p.len_k, nn = n * n;
    float         *a = test_alloc((size_t)(plan->p.heads * nn), sizeof *a);
    double        *room = test_alloc((size_t)(REF_INVERSE_ROOM * nn), sizeof *room);
    struct weights w = { .n = n,
                         .c = test_alloc((size_t)nn, sizeof *w.c),
                         .inverse = test_alloc((size_t)nn, sizeof *w.inverse) };
    const foci_io  io = trial_io(t);
    double         most = 0;

    assert_int_equal(foci_ref_weights(plan, &io, a), FOCI_OK);
    for (int64_t e = 0; e < nn; e++)
        w.c[e] = (double)a[h * nn + e];
    ref_inverse(&(struct ref_inverse){
        .type = REF_F64, .m = n, .c = w.c, .z = w.inverse, .room = room });
    /* C V = U s and V, by columns, are what is left there. */
    double *us = room, *v = room + nn, *square = room + 2 * nn;
    for (int64_t e = 0; e < n; e++)
        square[e] = 0;
    for (int64_t e = 0; e < nn; e++)
        square[e % n] += us[e] * us[e];
    for (int64_t e = 0; e < n; e++)
        most = fmax(most, square[e]);
    w.dropped = 2 * (double)n * (double)FLT_EPSILON * sqrt(most);
    memset(w.inverse, 0, (size_t)nn * sizeof *w.inverse);
    for (int64_t e = 0; e < n; e++)
        for (int64_t i = 0; 4 * sqrt(square[e]) > w.dropped && i < nn; i++)
            w.inverse[i] += v[i / n * n + e] * us[i % n * n + e] / square[e];
    free(a);
    free(room);
    return w;
}

static void weights_free(struct weights *w)
{
    free(w->c);
    free(w->inverse);
}

/* y = |a| |x| */
static void sizes(int64_t n, const double *a, const double *x, double *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = 0;
        for (int64_t j = 0; j < n; j++)
            y[i] += fabs(a[i * n + j]) * fabs(x[j]);
    }
}

/* How far rows of C C^+ (C v) may be from C v.  Each factor is off by some roundings of its
 * elements, which the product of their sizes carries to the result; and what is left out
 * takes its singular value times |v| with it. */
static double bound(const struct weights *w, const double *v, double *room)
{
    enum { ROUNDINGS = 8 };
    double *y = room, *zy = y + w->n, *all = zy + w->n, most = 0, square = 0;

    sizes(w->n, w->c, v, y);
    sizes(w->n, w->inverse, y, zy);
    sizes(w->n, w->c, zy, all);
    for (int64_t i = 0; i < w->n; i++) {
        most = fmax(most, all[i]);
        square += v[i] * v[i];
    }
    return ROUNDINGS * (double)FLT_EPSILON / 2 * most + w->dropped * sqrt(square);
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
        for (int64_t j = 0; j < n; j++)
            v[j] = ref_load(FOCI_F32, t->v, trial_at(&p->v, 0, j, 0, c));
        const double most = bound(&w, v, v + n);
        for (int64_t i = 0; i < n; i++) {
            const int64_t e = (i * p->heads + h) * p->dim_v + c;
            const double  off = fabs(got->x[PART_O][e] - want->x[PART_O][e]);
            if (!(off <= most))
                trial_fail(plan, t, "o", e, got->x[PART_O][e], want->x[PART_O][e]);
        }
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
        const foci_problem p = problem_of(brief() ? 258 : 270, FOCI_TRAIN);
        foci_plan         *a = trial_plan(one, specs[i], &p),
                  *b = trial_plan(three, specs[i], &p);
        struct trial  t = trial_make(a, specs[i], i, 0);
        struct result got = trial_run(a, &t), more = trial_run(b, &t);
        struct result want = trial_judge(a, &t, false),
                      words = trial_judge(a, &t, true);

        trial_close(a, &t, &got, &want, &words);
        trial_equal(b, &t, "three threads", &more, &got);
        result_free(&got);
        result_free(&more);
        result_free(&want);
        result_free(&words);
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
