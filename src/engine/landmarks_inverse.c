/* landmarks_inverse.c -- the pseudo-inverse of a square matrix, and the way back.
 *
 * By an iteration of the third order,
 *
 *     Z_0 = C^T / c,   Z' = Z T3 / 4,   T3 = 13 - Y T2,  T2 = 15 - Y T1,  T1 = 7 - Y
 *
 * with Y = C Z and c the largest column sum, for rows sum to one; or exactly, by rotations
 * of pairs of columns until all are orthogonal: C V = U s, so Z = V s^-2 (U s)^T.  Rotations
 * go in rounds of pairs that have nothing in common, so that threads can share them.
 */
#include "engine/landmarks_inverse.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    BLOCK = 64, /* rows and columns of a product at a time */
    DEPTH = 256 /* and of its sum */
};

int64_t inverse_kept(int64_t iters, bool keeps)
{
    return keeps ? iters + 1 : min64(iters, 1) + 1;
}

/* Y, T1, T2, T3, five more on the way back; exactly: U and V in doubles. */
int64_t inverse_room(int64_t iters, bool backward)
{
    if (!iters) return 4;
    return backward ? 9 : 4;
}

static size_t bytes_of(const struct inverse *x)
{
    return (size_t)x->m * (size_t)x->ld * sizeof(float);
}

static float *room_at(const struct inverse *x, int i)
{
    return x->room + (int64_t)i * x->m * x->ld;
}

static void run(const struct inverse *x, int64_t n, void (*job)(void *, int64_t, int),
                void *arg)
{
    if (x->wide) {
        phases_run(x->k, x->shared, x->threads, &(struct phase){ n, 1, job, arg }, 1);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        job(arg, i, 0);
}

/*
 * Products
 */

/* to = unit I + by a b, a turned over where `turned`; to += that where `add`. */
struct product {
    const struct inverse *x;
    float                *to;
    double                unit;
    float                 by;
    const float          *a;
    bool                  turned;
    const float          *b;
    bool                  add;
};

static void product_block(const struct product *p, int row, int n, int col, int cols)
{
    const struct inverse *x = p->x;
    _Alignas(64) float    sum[BLOCK * BLOCK];
    const int64_t         ra = p->turned ? 1 : x->ld, ca = p->turned ? x->ld : 1;

    for (int t = 0; t < x->m; t += DEPTH)
        x->k->gemm_f32(sum, BLOCK, p->a + row * ra + t * ca, ra, ca,
                       p->b + (int64_t)t * x->ld + col, x->ld, n, cols,
                       (int)min64(DEPTH, x->m - t), t > 0);
    for (int i = 0; i < n; i++) {
        float *to = p->to + (int64_t)(row + i) * x->ld + col;
        for (int j = 0; j < cols; j++)
            to[j] = (p->add ? to[j] : 0) + p->by * sum[i * BLOCK + j];
        if (row + i >= col && row + i < col + cols) to[row + i - col] += (float)p->unit;
    }
}

static void product_job(void *arg, int64_t i, int thread)
{
    const struct product *p = arg;
    const int             row = (int)i * BLOCK, wide = (int)round_up(p->x->m, 16);

    (void)thread;
    for (int col = 0; col < wide; col += BLOCK)
        product_block(p, row, (int)min64(BLOCK, p->x->m - row), col,
                      (int)min64(BLOCK, wide - col));
}

static void multiply(const struct inverse *x, struct product p)
{
    p.x = x;
    run(x, div_up(x->m, BLOCK), product_job, &p);
}

static void product(const struct inverse *x, float *to, const float *a, const float *b)
{
    multiply(x, (struct product){ .to = to, .by = 1, .a = a, .b = b });
}

/* to = unit I - a b */
static void less_product(const struct inverse *x, float *to, double unit,
                         const float *a, const float *b)
{
    multiply(x, (struct product){ .to = to, .unit = unit, .by = -1, .a = a, .b = b });
}

/* to = by a^T b */
static void turned_product(const struct inverse *x, float *to, float by, const float *a,
                           const float *b)
{
    multiply(x, (struct product){ .to = to, .by = by, .a = a, .turned = true, .b = b });
}

struct two {
    const struct inverse *x;
    const float          *from;
    float                *to;
    float                 unit;
};

static void turn_job(void *arg, int64_t row, int thread)
{
    const struct two *t = arg;

    (void)thread;
    for (int j = 0; j < t->x->m; j++)
        t->to[row * t->x->ld + j] = t->from[(int64_t)j * t->x->ld + row];
    for (int j = t->x->m; j < t->x->ld; j++)
        t->to[row * t->x->ld + j] = 0;
}

static void turn(const struct inverse *x, const float *from, float *to)
{
    run(x, x->m, turn_job, &(struct two){ .x = x, .from = from, .to = to });
}

/* to = unit I - from */
static void less_job(void *arg, int64_t row, int thread)
{
    const struct two *t = arg;
    const float      *from = t->from + row * t->x->ld;
    float            *to = t->to + row * t->x->ld;

    (void)thread;
    for (int j = 0; j < t->x->ld; j++)
        to[j] = -from[j];
    to[row] += t->unit;
}

static void less(const struct inverse *x, float unit, const float *from, float *to)
{
    run(x, x->m, less_job,
        &(struct two){ .x = x, .from = from, .to = to, .unit = unit });
}

/*
 * The iteration
 */

/* The column with the largest sum, the first of several. */
static int heaviest(const struct inverse *x, double *sum)
{
    int best = 0;

    *sum = -INFINITY;
    for (int c = 0; c < x->m; c += BLOCK) {
        const int n = (int)min64(BLOCK, x->m - c);
        double    s[BLOCK] = { 0 };
        for (int i = 0; i < x->m; i++)
            for (int j = 0; j < n; j++)
                s[j] += (double)x->c[(int64_t)i * x->ld + c + j];
        for (int j = 0; j < n; j++)
            if (!(s[j] <= *sum)) *sum = s[j], best = c + j;
    }
    return best;
}

enum { Y, T1, T2, T3, OLD_DZ, DY, DT, MORE, TURNED };

static void make_steps(const struct inverse *x, const float *z)
{
    product(x, room_at(x, Y), x->c, z);
    less(x, 7, room_at(x, Y), room_at(x, T1));
    less_product(x, room_at(x, T2), 15, room_at(x, Y), room_at(x, T1));
    less_product(x, room_at(x, T3), 13, room_at(x, Y), room_at(x, T2));
}

static float *z_at(const struct inverse *x, int64_t i)
{
    return x->z + (x->keeps ? i : i % 2) * x->m * x->ld;
}

static float *iterate(const struct inverse *x)
{
    double sum;

    (void)heaviest(x, &sum);
    turn(x, x->c, z_at(x, 0));
    for (int64_t t = 0; t < (int64_t)x->m * x->ld; t++)
        z_at(x, 0)[t] = (float)((double)z_at(x, 0)[t] / sum);
    for (int64_t i = 0; i < x->iters; i++) {
        make_steps(x, z_at(x, i));
        multiply(x, (struct product){ .to = z_at(x, i + 1),
                                      .by = 0.25f,
                                      .a = z_at(x, i),
                                      .b = room_at(x, T3) });
    }
    return z_at(x, x->iters);
}

/* to += by a b^T */
static void add_product(const struct inverse *x, float *to, float by, const float *a,
                        const float *b)
{
    turn(x, b, room_at(x, TURNED));
    multiply(x, (struct product){
                    .to = to, .by = by, .a = a, .b = room_at(x, TURNED), .add = true });
}

/* From dz of Z' to dz of Z, adding to dc. */
static void step_back(const struct inverse *x, const float *z, float *dz, float *dc)
{
    float *y = room_at(x, Y), *dy = room_at(x, DY), *dt = room_at(x, DT);
    float *more = room_at(x, MORE), *old = room_at(x, OLD_DZ);

    make_steps(x, z);
    memcpy(old, dz, bytes_of(x));
    memset(dz, 0, bytes_of(x));
    memset(dy, 0, bytes_of(x));
    add_product(x, dz, 0.25f, old, room_at(x, T3));
    turned_product(x, dt, 0.25f, z, old); /* dT3 */
    add_product(x, dy, -1, dt, room_at(x, T2));
    turned_product(x, more, -1, y, dt); /* dT2 */
    add_product(x, dy, -1, more, room_at(x, T1));
    multiply(x, (struct product){ /* less dT1 */
                                  .to = dy,
                                  .by = 1,
                                  .a = y,
                                  .turned = true,
                                  .b = more,
                                  .add = true });
    add_product(x, dc, 1, dy, z);
    multiply(x,
             (struct product){
                 .to = dz, .by = 1, .a = x->c, .turned = true, .b = dy, .add = true });
}

/* Z_0 = C^T / sum */
static void start_back(const struct inverse *x, const float *dz, float *dc)
{
    double    sum, along = 0;
    const int column = heaviest(x, &sum);

    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->m; j++) {
            const double d = (double)dz[j * x->ld + i];
            dc[i * x->ld + j] += (float)(d / sum);
            along += d * (double)x->c[i * x->ld + j];
        }
    for (int64_t i = 0; i < x->m; i++)
        dc[i * x->ld + column] -= (float)(along / (sum * sum));
}

/*
 * Exactly
 */

/* Columns are rows here: u[m][m] of C V, v[m][m]. */
struct rotations {
    const struct inverse *x;
    double               *u, *v;
    int64_t               round, around; /* around: m, made even */
    bool                  turned; /* some pair of this sweep was not orthogonal */
};

static const double orthogonal = 1e-14;
enum { SWEEPS = 60, SUMS = 8 };

static double dot(const double *a, const double *b, int64_t n)
{
    double  sum[SUMS] = { 0 }, all = 0;
    int64_t i = 0;

    for (; i + SUMS <= n; i += SUMS)
        for (int t = 0; t < SUMS; t++)
            sum[t] += a[i + t] * b[i + t];
    for (; i < n; i++)
        all += a[i] * b[i];
    for (int t = 0; t < SUMS; t++)
        all += sum[t];
    return all;
}

static void rotate(double *a, double *b, double cosine, double sine, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = a[i], y = b[i];
        a[i] = cosine * x - sine * y;
        b[i] = sine * x + cosine * y;
    }
}

/* Pair i of a round: of a ring of all but the last number those at the same distance from
 * one that moves on, which is paired with the last. */
static void rotate_job(void *arg, int64_t i, int thread)
{
    struct rotations *r = arg;
    const int64_t     m = r->x->m, ring = r->around - 1;
    int64_t           p = (r->round + i) % ring;
    int64_t           q = i ? (r->round + ring - i) % ring : ring;

    (void)thread;
    if (p >= m || q >= m) return;
    if (p > q) {
        const int64_t t = p;
        p = q;
        q = t;
    }
    double      *a = r->u + p * m, *b = r->u + q * m;
    const double aa = dot(a, a, m), bb = dot(b, b, m), ab = dot(a, b, m);

    if (!(fabs(ab) > orthogonal * sqrt(aa * bb))) return; /* NaN stays */
    const double zeta = (bb - aa) / (2 * ab);
    const double t = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    const double cosine = 1 / sqrt(1 + t * t), sine = cosine * t;
#pragma omp atomic write
    r->turned = true;
    rotate(a, b, cosine, sine, m);
    rotate(r->v + p * m, r->v + q * m, cosine, sine, m);
}

/* Columns of U s by 1/s^2, those of no weight by 0; then row i of Z is sum over t of
 * v[t][i] u[t]. */
static void divide_columns(const struct rotations *r)
{
    const int64_t m = r->x->m;
    double        most = 0;

    for (int64_t t = 0; t < m; t++)
        most = fmax(most, dot(r->u + t * m, r->u + t * m, m));
    const double least = sqrt(most) * (double)m * (double)FLT_EPSILON;
    for (int64_t t = 0; t < m; t++) {
        const double square = dot(r->u + t * m, r->u + t * m, m);
        const double by = square <= least * least ? 0 : 1 / square;
        for (int64_t i = 0; i < m; i++)
            r->u[t * m + i] *= by;
    }
}

static void gather_job(void *arg, int64_t row, int thread)
{
    const struct rotations *r = arg;
    const int64_t           m = r->x->m;
    float                  *z = r->x->z + row * r->x->ld;
    double                  sum[BLOCK];

    (void)thread;
    memset(z, 0, (size_t)r->x->ld * sizeof *z);
    for (int64_t c = 0; c < m; c += BLOCK) {
        const int64_t n = min64(BLOCK, m - c);
        memset(sum, 0, sizeof sum);
        for (int64_t t = 0; t < m; t++)
            for (int64_t i = 0; i < n; i++)
                sum[i] += r->v[t * m + row] * r->u[t * m + c + i];
        for (int64_t i = 0; i < n; i++)
            z[c + i] = (float)sum[i];
    }
}

static float *invert(const struct inverse *x)
{
    const int64_t    m = x->m;
    struct rotations r = { .x = x,
                           .u = (double *)(void *)room_at(x, 0),
                           .v = (double *)(void *)room_at(x, 2),
                           .around = m + m % 2,
                           .turned = true };

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < m; j++) {
            r.u[j * m + i] = (double)x->c[i * x->ld + j];
            r.v[j * m + i] = i == j;
        }
    for (int sweep = 0; sweep < SWEEPS && r.turned; sweep++) {
        r.turned = false;
        for (r.round = 0; r.round < r.around - 1; r.round++)
            run(x, r.around / 2, rotate_job, &r);
    }
    divide_columns(&r);
    run(x, m, gather_job, &r);
    return x->z;
}

float *inverse_make(const struct inverse *x)
{
    return x->iters ? iterate(x) : invert(x);
}

void inverse_back(const struct inverse *x, float *dz, float *dc)
{
    if (!x->iters) { /* -Z^T dZ Z^T */
        turned_product(x, room_at(x, 0), 1, x->z, dz);
        turn(x, x->z, room_at(x, 1));
        multiply(x, (struct product){
                        .to = dc, .by = -1, .a = room_at(x, 0), .b = room_at(x, 1) });
        return;
    }
    memset(dc, 0, bytes_of(x));
    for (int64_t i = x->iters; i-- > 0;)
        step_back(x, z_at(x, i), dz, dc);
    start_back(x, dz, dc);
}
