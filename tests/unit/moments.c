/* moments.c -- exponents of random features: what makes their estimates true, and best. */
#include <math.h>
#include <string.h>

#include "plan/moments.h"
#include "test.h"

enum { D = 5, ROWS = 40 };

static void near(double got, double want, double within)
{
    if (!(fabs(got - want) <= within)) fail_msg("%.12g, want %.12g", got, want);
}

/*
 * Eigenvalues
 */

/* a = sum of values[t] v_t v_t^T, vectors are orthonormal, values go up, and the largest
 * entry of a vector is positive. */
static void check_eigen(int64_t d, const double *a, const double *values,
                        const double *v)
{
    for (int64_t i = 0; i < d; i++) {
        double most = 0;

        if (i) assert_true(values[i - 1] <= values[i]);
        for (int64_t t = 0; t < d; t++)
            if (fabs(v[i * d + t]) > fabs(most)) most = v[i * d + t];
        assert_true(most > 0);
        for (int64_t j = 0; j < d; j++) {
            double one = 0, same = 0;
            for (int64_t t = 0; t < d; t++) {
                one += v[i * d + t] * v[j * d + t];
                same += values[t] * v[t * d + i] * v[t * d + j];
            }
            near(one, i == j, 1e-13);
            near(same, a[i * d + j], 1e-13);
        }
    }
}

static void test_eigen(void **state)
{
    struct rng r;

    (void)state;
    rng_seed(&r, 1, 0);
    for (int rank = 0; rank <= 8; rank++) {
        enum { N = 8 };
        double x[N * N] = { 0 }, a[N * N] = { 0 }, spoilt[N * N], values[N], v[N * N];

        for (int t = 0; t < rank * N; t++)
            x[t] = rng_normal(&r);
        for (int t = 0; t < rank; t++)
            for (int i = 0; i < N; i++)
                for (int j = 0; j < N; j++)
                    a[i * N + j] += x[t * N + i] * x[t * N + j] * (t % 3 ? 0.3 : -0.1);
        memcpy(spoilt, a, sizeof a);
        eigen_symmetric(N, spoilt, values, v);
        check_eigen(N, a, values, v);
    }
}

/* [[2, 1], [1, 2]] has 1 along (1, -1) and 3 along (1, 1). */
static void test_eigen_by_hand(void **state)
{
    double a[] = { 2, 1, 1, 2 }, values[2], v[4];

    (void)state;
    eigen_symmetric(2, a, values, v);
    near(values[0], 1, 1e-15);
    near(values[1], 3, 1e-15);
    near(fabs(v[0]), sqrt(0.5), 1e-15);
    near(v[0] + v[1], 0, 1e-15);
    near(v[2], sqrt(0.5), 1e-15);
    near(v[3], sqrt(0.5), 1e-15);
}

/*
 * Data
 */

struct data {
    double         x[ROWS * D], y[ROWS * D];
    double         xx[D * D], yy[D * D], mx[D], my[D];
    struct moments m;
};

static void average(const double *x, int rows, double *xx, double *mean)
{
    for (int i = 0; i < rows; i++)
        for (int a = 0; a < D; a++) {
            mean[a] += x[i * D + a] / rows;
            for (int b = 0; b < D; b++)
                xx[a * D + b] += x[i * D + a] * x[i * D + b] / rows;
        }
}

/* Wide along some axes and narrow along others, and not about 0. */
static void make(struct data *s, int rows)
{
    struct rng r;

    memset(s, 0, sizeof *s);
    rng_seed(&r, 3, 0);
    for (int i = 0; i < rows; i++) {
        const double shared = rng_normal(&r);
        for (int c = 0; c < D; c++) {
            s->x[i * D + c] = (0.2 + 0.4 * c) * rng_normal(&r) + 0.3 * c * shared;
            s->y[i * D + c] = (1.4 - 0.3 * c) * rng_normal(&r) + 0.1;
        }
    }
    average(s->x, rows, s->xx, s->mx);
    average(s->y, rows, s->yy, s->my);
    s->m = (struct moments){ D, s->xx, s->yy, s->mx, s->my };
}

struct found {
    double           a[D], bx[D * D], by[D * D], cx[D * D], cy[D * D];
    struct exponents e;
};

static void solve(foci_moments kind, const struct data *s, struct found *f)
{
    double room[6 * D * D + D];

    assert_true(moments_scratch(D) <= 6 * D * D + D);
    f->e = (struct exponents){ f->a, f->bx, f->by, f->cx, f->cy };
    moments_solve(kind, &s->m, room, &f->e);
}

/*
 * What is asked of exponents
 */

/* (B^T (1 - 4A)^-1 B')[i][j] */
static double between(const struct found *f, const double *b, const double *other,
                      int i, int j)
{
    double sum = 0;
    for (int t = 0; t < D; t++)
        sum += b[t * D + i] * other[t * D + j] / (1 - 4 * f->a[t]);
    return sum;
}

static void check_unbiased(const struct found *f)
{
    for (int i = 0; i < D; i++) {
        assert_true(f->a[i] <= 0);
        for (int j = 0; j < D; j++) {
            near(between(f, f->bx, f->by, i, j), i == j, 1e-9);
            near(f->cx[i * D + j], -between(f, f->bx, f->bx, i, j) / 2, 1e-9);
            near(f->cy[i * D + j], -between(f, f->by, f->by, i, j) / 2, 1e-9);
        }
    }
}

static double square(const double *c, const double *x)
{
    double sum = 0;
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++)
            sum += x[i] * c[i * D + j] * x[j];
    return sum;
}

/* Mean over all pairs of log E f^2 g^2, in closed form for w normal. */
static double log_moment(const struct found *f, const struct data *s)
{
    double all = 0, mean = 0;

    for (int t = 0; t < D; t++)
        all += log(1 - 4 * f->a[t]) - log(1 - 8 * f->a[t]) / 2;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < ROWS; j++) {
            const double *x = s->x + i * D, *y = s->y + j * D;
            double        sum = 2 * square(f->cx, x) + 2 * square(f->cy, y);

            for (int t = 0; t < D; t++) {
                double b = 0;
                for (int c = 0; c < D; c++)
                    b += f->bx[t * D + c] * x[c] + f->by[t * D + c] * y[c];
                sum += 2 * b * b / (1 - 8 * f->a[t]);
            }
            mean += sum / (ROWS * ROWS);
        }
    return all + mean;
}

static const foci_moments kinds[] = { FOCI_MOMENTS_NORM, FOCI_MOMENTS_SYMMETRIC,
                                      FOCI_MOMENTS_PAIR };

static void test_unbiased(void **state)
{
    struct data  s;
    struct found f;

    (void)state;
    make(&s, ROWS);
    for (int k = 0; k < 3; k++) {
        solve(kinds[k], &s, &f);
        check_unbiased(&f);
    }
    /* Fewer rows than elements. */
    make(&s, 2);
    for (int k = 0; k < 3; k++) {
        solve(kinds[k], &s, &f);
        for (int i = 0; i < D; i++)
            for (int j = 0; j < D; j++)
                near(between(&f, f.bx, f.by, i, j), i == j, 1e-6);
    }
}

/* Each kind knows more than the one before it. */
static void test_order(void **state)
{
    struct data  s;
    struct found f;
    double       before;

    (void)state;
    make(&s, ROWS);
    memset(&f, 0, sizeof f);
    for (int i = 0; i < D; i++) {
        f.bx[i * D + i] = f.by[i * D + i] = 1;
        f.cx[i * D + i] = f.cy[i * D + i] = -0.5;
    }
    before = log_moment(&f, &s);
    for (int k = 0; k < 3; k++) {
        solve(kinds[k], &s, &f);
        const double now = log_moment(&f, &s);
        if (!(now < before)) fail_msg("kind %d: %.9g after %.9g", k, now, before);
        before = now;
    }
}

/* B and C that a diagonal A near the one found would have, axes as they are. */
static void set_a(struct found *f, const struct found *best, int t, double a)
{
    const double by = sqrt((1 - 4 * a) / (1 - 4 * best->a[t]));

    f->a[t] = a;
    for (int c = 0; c < D; c++) {
        f->bx[t * D + c] = best->bx[t * D + c] * by;
        f->by[t * D + c] = best->by[t * D + c] * by;
    }
}

static void test_best_a(void **state)
{
    struct data  s;
    struct found best, f;

    (void)state;
    make(&s, ROWS);
    solve(FOCI_MOMENTS_SYMMETRIC, &s, &best);
    const double least = log_moment(&best, &s);
    for (int t = 0; t < D; t++)
        for (int way = -1; way <= 1; way += 2) {
            f = best;
            set_a(&f, &best, t, best.a[t] * (1 + 0.05 * way));
            check_unbiased(&f);
            assert_true(log_moment(&f, &s) > least);
        }
    solve(FOCI_MOMENTS_NORM, &s, &best);
    for (int way = -1; way <= 1; way += 2) {
        f = best;
        for (int t = 0; t < D; t++)
            set_a(&f, &best, t, best.a[t] * (1 + 0.05 * way));
        check_unbiased(&f);
        assert_true(log_moment(&f, &s) > log_moment(&best, &s));
    }
}

/* Bx K and K^-1 By keep the estimate true, for K = 1 + h e_i e_j^T + h e_j e_i^T; C follow. */
static void shake(struct found *f, int i, int j, double h)
{
    double grown[D * D], shrunk[D * D];

    memcpy(grown, f->bx, sizeof grown);
    memcpy(shrunk, f->by, sizeof shrunk);
    for (int t = 0; t < D; t++) {
        const double g = i == j ? 1 + 2 * h : 1 - h * h;

        grown[t * D + i] += h * f->bx[t * D + j];
        grown[t * D + j] += h * f->bx[t * D + i];
        if (i == j) {
            shrunk[t * D + i] = f->by[t * D + i] / g;
        } else {
            shrunk[t * D + i] = (f->by[t * D + i] - h * f->by[t * D + j]) / g;
            shrunk[t * D + j] = (f->by[t * D + j] - h * f->by[t * D + i]) / g;
        }
    }
    memcpy(f->bx, grown, sizeof grown);
    memcpy(f->by, shrunk, sizeof shrunk);
    for (int a = 0; a < D; a++)
        for (int b = 0; b < D; b++) {
            f->cx[a * D + b] = -between(f, f->bx, f->bx, a, b) / 2;
            f->cy[a * D + b] = -between(f, f->by, f->by, a, b) / 2;
        }
}

static void test_best_pair(void **state)
{
    struct data  s;
    struct found best, f;

    (void)state;
    make(&s, ROWS);
    solve(FOCI_MOMENTS_PAIR, &s, &best);
    const double least = log_moment(&best, &s);
    for (int i = 0; i < D; i++)
        for (int j = i; j < D; j++)
            for (int way = -1; way <= 1; way += 2) {
                f = best;
                shake(&f, i, j, 0.03 * way);
                check_unbiased(&f);
                if (!(log_moment(&f, &s) > least))
                    fail_msg("%d, %d, %d: %.12g, and %.12g found", i, j, way,
                             log_moment(&f, &s), least);
            }
}

static void test_numbers(void **state)
{
    double           xx[] = { 3.535534, 0, 0, 0 }, yy[4] = { 0 }, zero[2] = { 0 };
    double           a[2], b[16], room[26];
    struct moments   m = { 2, xx, yy, zero, zero };
    struct exponents e = { a, b, b + 4, b + 8, b + 12 };

    (void)state;
    near(moments_best(3.535534 / 2), -0.526708, 1e-6);
    near(moments_best(0), 0, 0);
    near(moments_best(-1), 0, 0);
    moments_solve(FOCI_MOMENTS_NORM, &m, room, &e);
    near(a[0], -0.526708, 1e-6);
    near(a[1], a[0], 0);
    near(b[0], sqrt(1 - 4 * a[0]), 1e-15);
    near(b[1], 0, 0);
    near(b[8], -0.5, 0);

    /* rho (2 zz rho + d + 2 zz) = d where a is best, rho = 1/(1 - 8a). */
    for (double zz = 1e-6; zz < 1e6; zz *= 7) {
        const double rho = 1 / (1 - 8 * moments_best(zz / 3));
        near(rho * (2 * zz * rho + 3 + 2 * zz) / 3, 1, 1e-9);
    }
}

/* What is not finite, and nothing at all, leave numbers that can be used. */
static void test_edges(void **state)
{
    static const double odd[] = { (double)NAN, (double)INFINITY, 0, 1e-200 };
    struct data         s;
    struct found        f;

    (void)state;
    for (int k = 0; k < 3; k++)
        for (size_t t = 0; t < sizeof odd / sizeof *odd; t++) {
            memset(&s, 0, sizeof s);
            for (int i = 0; i < D * D; i++)
                s.xx[i] = s.yy[i] = odd[t];
            s.m = (struct moments){ D, s.xx, s.yy, s.mx, s.my };
            solve(kinds[k], &s, &f);
            check_unbiased(&f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eigen),    cmocka_unit_test(test_eigen_by_hand),
        cmocka_unit_test(test_unbiased), cmocka_unit_test(test_order),
        cmocka_unit_test(test_best_a),   cmocka_unit_test(test_best_pair),
        cmocka_unit_test(test_numbers),  cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
