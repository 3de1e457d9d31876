/* maps.c -- what becomes of a row of q or k before the two meet, and the way back.
 *
 *     project    x times a tensor, if the mechanism says so
 *     standard   (x - mean) / sqrt(variance + 1e-5), if the mechanism says so
 *     shared     x / |x|, if keys are the unit vectors of the queries
 *     unit       x / |x|, if a modifier says so
 *     rotate     pairs of elements, by angles that grow with the place
 *
 * in this order.  Norms are floored at 1e-12, so that a zero row stays zero.
 */
#include <math.h>
#include <string.h>

#include "ref/ref.h"

enum map { PROJECT, STANDARD, SHARED, UNIT, ROTATE };

static const double least_norm = 1e-12, least_variance = 1e-5;

static bool applies(const struct ref_head *h, bool key, enum map step)
{
    switch (step) {
    case PROJECT: return h->mech.def->map == FOCI_MAP_PROJECT;
    case STANDARD: return h->mech.def->map == FOCI_MAP_STANDARD;
    case SHARED: return key && h->order.shared_qk;
    case UNIT: return h->unit;
    case ROTATE: return h->rope != NULL;
    }
    return false;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t t = 0; t < n; t++)
        sum += a[t] * b[t];
    return sum;
}

static double mean(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t t = 0; t < n; t++)
        sum += x[t];
    return sum / (double)n;
}

static double deviation(const double *x, int64_t n)
{
    const double m = mean(x, n);
    double       sum = 0;
    for (int64_t t = 0; t < n; t++)
        sum += (x[t] - m) * (x[t] - m);
    return sqrt(sum / (double)n + least_variance);
}

static void standard(const double *x, int64_t n, double *y)
{
    const double m = mean(x, n), s = deviation(x, n);
    for (int64_t t = 0; t < n; t++)
        y[t] = (x[t] - m) / s;
}

/* dx = (dy - mean(dy) - y mean(y dy)) / s */
static void standard_back(const double *x, const double *y, const double *dy, int64_t n,
                          double *dx)
{
    const double s = deviation(x, n), m = mean(dy, n),
                 along = dot(y, dy, n) / (double)n;
    for (int64_t t = 0; t < n; t++)
        dx[t] = (dy[t] - m - y[t] * along) / s;
}

static void unit(const double *x, int64_t n, double *y)
{
    const double norm = sqrt(dot(x, x, n));
    for (int64_t t = 0; t < n; t++)
        y[t] = x[t] / (norm < least_norm ? least_norm : norm);
}

/* dx = (dy - y (y . dy)) / |x|, and dy / least below the floor. */
static void unit_back(const double *x, const double *dy, int64_t n, double *dx)
{
    const double norm = sqrt(dot(x, x, n));
    const bool   floored = norm < least_norm;
    const double along = floored ? 0 : dot(x, dy, n) / (norm * norm);

    for (int64_t t = 0; t < n; t++)
        dx[t] = (dy[t] - x[t] * along) / (floored ? least_norm : norm);
}

/* Back is the same with the sign of the angles rotated. */
static void rotate(const foci_mod *rope, double place, const double *x, int64_t n,
                   double *y)
{
    const double base = rope->arg[0];
    const bool   halves = rope->arg[1] != 0;

    for (int64_t t = 0; t < n / 2; t++) {
        const int64_t a = halves ? t : 2 * t, b = halves ? t + n / 2 : 2 * t + 1;
        const double  angle = place * pow(base, -2 * (double)t / (double)n);
        y[a] = cos(angle) * x[a] - sin(angle) * x[b];
        y[b] = sin(angle) * x[a] + cos(angle) * x[b];
    }
}

void ref_map_open(struct ref_head *h)
{
    for (int key = 0; key < 2; key++) {
        const int64_t at = ref_tensor(h->p, -1, (size_t)key);
        for (int64_t t = 0; h->project[key] && t < h->dqk * h->du; t++)
            h->project[key][t] = ref_rounded(h->rounds, h->p->call->params[at + t]);
    }
}

/* Tensor 0 projects queries, tensor 1 keys. */
static void project(const struct ref_head *h, bool key, const double *x, double *y)
{
    const double *u = h->project[key];

    for (int64_t r = 0; r < h->du; r++) {
        y[r] = 0;
        for (int64_t t = 0; t < h->dqk; t++)
            y[r] += x[t] * u[t * h->du + r];
    }
}

static void project_back(const struct ref_head *h, bool key, const double *x,
                         const double *dy, double *dx)
{
    const double *u = h->project[key];
    double       *du = h->p->dparams + ref_tensor(h->p, -1, key);

    for (int64_t t = 0; t < h->dqk; t++)
        dx[t] = 0;
    for (int64_t r = 0; r < h->du; r++) {
        const double d = ref_rounded(h->rounds, dy[r]);
        for (int64_t t = 0; t < h->dqk; t++) {
            dx[t] += d * u[t * h->du + r];
            du[t * h->du + r] += x[t] * d;
        }
    }
}

static void forward(const struct ref_head *h, bool key, enum map step, int64_t place,
                    const double *x, double *y)
{
    switch (step) {
    case PROJECT: project(h, key, x, y); break;
    case STANDARD: standard(x, h->du, y); break;
    case SHARED:
    case UNIT: unit(x, h->du, y); break;
    case ROTATE: rotate(h->rope, (double)place, x, h->du, y); break;
    }
}

static void backward(const struct ref_head *h, bool key, enum map step, int64_t place,
                     const double *x, const double *y, const double *dy, double *dx)
{
    switch (step) {
    case PROJECT: project_back(h, key, x, dy, dx); break;
    case STANDARD: standard_back(x, y, dy, h->du, dx); break;
    case SHARED:
    case UNIT: unit_back(x, dy, h->du, dx); break;
    case ROTATE: rotate(h->rope, -(double)place, dy, h->du, dx); break;
    }
}

/* Row s of h->maps is what step s starts from; the last one is the result. */
static const double *walk(const struct ref_head *h, bool key, int64_t place,
                          const double *x)
{
    const size_t bytes = (size_t)h->dqk * sizeof *x;

    memcpy(h->maps, x, bytes);
    for (int s = 0; s < REF_MAPS; s++) {
        double *from = h->maps + s * h->dqk, *to = from + h->dqk;
        if (applies(h, key, (enum map)s))
            forward(h, key, (enum map)s, place, from, to);
        else
            memcpy(to, from, bytes);
    }
    return h->maps + REF_MAPS * h->dqk;
}

void ref_map(const struct ref_head *h, bool key, int64_t place, const double *x,
             double *u)
{
    memcpy(u, walk(h, key, place, x), (size_t)h->du * sizeof *u);
}

void ref_map_back(const struct ref_head *h, bool key, int64_t place, const double *x,
                  const double *du, double *dx)
{
    const size_t bytes = (size_t)h->dqk * sizeof *dx;
    double      *dy = h->maps + (REF_MAPS + 1) * h->dqk, *less = dy + h->dqk;

    walk(h, key, place, x);
    memcpy(dy, du, (size_t)h->du * sizeof *dy);
    for (int s = REF_MAPS; s-- > 0;) {
        const double *from = h->maps + s * h->dqk;
        if (!applies(h, key, (enum map)s)) continue;
        backward(h, key, (enum map)s, place, from, from + h->dqk, dy, less);
        memcpy(dy, less, bytes);
    }
    for (int64_t t = 0; dx && t < h->dqk; t++)
        dx[t] += dy[t];
}

void ref_map_own(const struct ref_head *h, const double *x, double *u)
{
    if (applies(h, false, STANDARD))
        standard(x, h->dqk, u);
    else
        memcpy(u, x, (size_t)h->dqk * sizeof *u);
}
