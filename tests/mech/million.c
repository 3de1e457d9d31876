/* million.c -- patterns of a million tokens in floats, against their definition in doubles
 * at some rows: sums of cubes that long would have lost all digits of a float. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

enum { N = 1000000, DIM = 2 };

enum pattern { LEFT, RIGHT, END, START, N_PATTERNS };
static const char *const names[] = { "left", "right", "end", "start" };

/* Weight of place j for row i of n, before it is divided by the sum. */
static double cube(enum pattern p, double i, double j, double n)
{
    const double x = p == LEFT || p == END ? j + 1 : n - j;

    if ((p == LEFT && j > i - 2) || (p == RIGHT && j < i + 2)) return 0;
    return x * x * x;
}

/* The sum of the first m cubes. */
static double cubes(double m) { return m * (m + 1) / 2 * (m * (m + 1) / 2); }

static double weight(enum pattern p, int64_t row, int64_t j, bool causal)
{
    const double i = (double)row, n = causal ? i + 1 : N;
    const double w = cube(p, i, (double)j, n);

    if (w == 0 || (causal && j > row)) return 0;
    return w / cubes(p == LEFT ? i - 1 : p == RIGHT ? n - i - 2 : n);
}

/* Rows of o, and of dv, by their definition. */
static void check_row(const foci_plan *plan, const struct trial *t,
                      const struct result *r, enum pattern p, int64_t row)
{
    const bool   causal = t->p.flags & FOCI_CAUSAL;
    const float *v = t->v, *g = t->g;
    double       o[DIM] = { 0 }, dv[DIM] = { 0 };

    for (int64_t j = 0; j < N; j++) {
        const double takes = weight(p, row, j, causal),
                     gives = weight(p, j, row, causal);
        for (int c = 0; c < DIM; c++) {
            o[c] += takes * (double)v[j * DIM + c];
            dv[c] += gives * (double)g[j * DIM + c];
        }
    }
    for (int c = 0; c < DIM; c++) {
        const int64_t at = row * DIM + c;
        if (!(fabs(r->x[PART_O][at] - o[c]) <= 1e-5))
            trial_fail(plan, t, "o", at, r->x[PART_O][at], o[c]);
        if (!(fabs(r->x[PART_DV][at] - dv[c]) <= 1e-5 * fmax(1, fabs(dv[c]))))
            trial_fail(plan, t, "dv", at, r->x[PART_DV][at], dv[c]);
    }
}

/* Means that are not near 0, which would hide how far off they are. */
static void lift(struct trial *t)
{
    float *v = t->v, *g = t->g;

    for (int64_t i = 0; i < (int64_t)N * DIM; i++) {
        v[i] = 0.5F + 0.5F * v[i];
        g[i] = 0.5F + 0.5F * g[i];
    }
}

static void million(void **state)
{
    static const int64_t rows[] = { 0, 1, 2, 3, 64, 1000, 65535, N / 2, N - 3, N - 1 };
    foci_ctx            *ctx = test_ctx(NULL, 2);

    (void)state;
    for (int i = 0; i < 2 * N_PATTERNS; i++) {
        const enum pattern pattern = (enum pattern)(i / 2);
        const bool         causal = i % 2;
        const foci_problem p = { FOCI_SIZED(foci_problem),
                                 .batch = 1,
                                 .heads = 1,
                                 .len_q = N,
                                 .len_k = N,
                                 .dim_qk = DIM,
                                 .flags = FOCI_TRAIN |
                                          (causal ? (uint32_t)FOCI_CAUSAL : 0) };
        char               spec[SPEC_CAP];

        if (causal && pattern == RIGHT) continue; /* sees nothing */
        snprintf(spec, sizeof spec, "fixed(%s)", names[pattern]);
        foci_plan   *plan = test_plan(ctx, spec, &p);
        struct trial t = trial_make(plan, spec, 1, 0);
        lift(&t);
        struct result r = trial_run(plan, &t);
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++)
            check_row(plan, &t, &r, pattern, rows[j]);
        result_free(&r);
        trial_free(&t);
        foci_plan_free(plan);
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(million) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
