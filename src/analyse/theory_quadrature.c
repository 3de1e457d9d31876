/* theory_quadrature.c -- the concentration of random weights by numerical integration.
 *
 * Moments of normal logits are integrals of
 *
 *     |t + z|^a e^(b z) phi(z),   t + z > 0
 *
 * whose logarithm is concave and bends by 1 at least: 13 beside its highest point it has
 * fallen by 84.  On both sides of that point goes the rule of tanh-sinh (Takahasi and Mori,
 * "Double exponential formulas for numerical integration", 1974), whose nodes crowd at the
 * ends, so that it sees a peak however narrow.  Logarithms of moments are kept: they leave
 * the range of double long before their ratio does.
 */
#include <inttypes.h>
#include <math.h>

#include "analyse/theory.h"
#include "core/core.h"

enum { MOST_KEYS = 1 << 24 };

struct integrand {
    double a, b, t;
    double top; /* the largest logarithm, taken from all */
};

static double logarithm(const struct integrand *f, double z)
{
    const double power = f->a > 0 ? f->a * log(fmax(f->t + z, 0)) : 0;
    return power + f->b * z - z * z / 2;
}

static double value(const struct integrand *f, double z)
{
    return exp(logarithm(f, z) - f->top);
}

/* The integral from `from`, over `length` of either sign. */
static double integrate(const struct integrand *f, double from, double length)
{
    enum { LEVELS = 9, END = 4 };
    const double pi = 3.14159265358979323846;
    double       sum = 0, last = 0;

    for (int level = 0; level < LEVELS; level++) {
        const int    nodes = END << level;
        const double step = 1.0 / (1 << level);
        /* From the second level on those between the nodes that there are. */
        for (int i = level ? 1 - nodes : -nodes; i <= nodes; i += level ? 2 : 1) {
            const double e = exp(pi * sinh(i * step)), place = 1 / (1 + e);
            const double weight = pi * cosh(i * step) * place * (1 - place);
            sum += weight * value(f, from + length * place);
        }
        const double now = sum * step * fabs(length);
        if (level > 3 && fabs(now - last) <= 1e-14 * now) return now;
        last = now;
    }
    return last;
}

/* log E[|t + z|^a e^(b z); t + z > 0], of a = 0 without that condition. */
static double log_moment(double a, double b, double t)
{
    const double     reach = 13, root = hypot(t, 2 * sqrt(a));
    struct integrand f = { .a = a, .b = b, .t = t };

    /* Where the derivative vanishes; there is no b with an a. */
    const double mode = a > 0 ? (t > 0 ? 2 * a / (t + root) : (root - t) / 2) : b;
    const double below = a > 0 ? fmin(reach, mode + t) : reach;

    f.top = logarithm(&f, mode);
    const double sum = integrate(&f, mode, reach) + integrate(&f, mode, -below);
    return f.top + log(sum / sqrt(2 * 3.14159265358979323846));
}

/* log(e^x + e^y) */
static double log_sum(double x, double y)
{
    return fmax(x, y) + log1p(exp(-fabs(x - y)));
}

/* log E|f|^p */
static double log_weight_moment(const foci_concentration_law *law, int p)
{
    const double t = law->beta / law->gamma;

    if (law->kind == FOCI_CONCENTRATION_EXP) return log_moment(0, p * law->gamma, 0);
    if (law->kind == FOCI_CONCENTRATION_RELU2) return log_moment(2 * p, 0, t);
    return log_sum(log_moment(p, 0, t), log_moment(p, 0, -t));
}

/* Features that are log-normal with the mean 1: e^(w z - w^2 / 2). */
static double linear(const foci_concentration_law *law)
{
    const double w = sqrt(log1p(law->ratio * law->ratio));
    const double one = exp(log_moment(0, w, 0) - w * w / 2);
    const double two = exp(log_moment(0, 2 * w, 0) - w * w);
    double       sum, norm;

    theory_norms(law, &sum, &norm);
    return sum * one / sqrt(norm * norm * (two - one * one) + sum * sum * one * one);
}

static double decay(const foci_concentration_law *law)
{
    double sum = 1, squares = 1; /* from the nearest key on */

    for (int64_t j = 1; j < law->n; j++) {
        const double a = pow(law->lambda, (double)j);
        if (a * (double)law->n < 1e-20 * sum) break;
        sum += a;
        squares += a * a;
    }
    return sum / sqrt((double)law->n * squares);
}

foci_status foci_concentration_quadrature(const foci_concentration_law *given, double *s)
{
    foci_concentration_law law;

    TRY(theory_read("foci_concentration_quadrature", given, s, &law));
    if (law.kind == FOCI_CONCENTRATION_LINEAR && law.mean)
        return ctx_fail(NULL, FOCI_ERR_UNSUP,
                        "a covariance says nothing of the law of features; "
                        "foci_concentration_quadrature takes independent ones");
    if (law.kind == FOCI_CONCENTRATION_DECAY && law.n > MOST_KEYS)
        return ctx_fail(NULL, FOCI_ERR_UNSUP,
                        "law.n is %" PRId64 "; foci_concentration_quadrature adds up "
                        "%d weights at most",
                        law.n, MOST_KEYS);
    if (law.kind == FOCI_CONCENTRATION_LINEAR)
        *s = linear(&law);
    else if (law.kind == FOCI_CONCENTRATION_DECAY)
        *s = decay(&law);
    else if (!theory_constant(&law, s))
        *s = exp(log_weight_moment(&law, 1) - log_weight_moment(&law, 2) / 2);
    return FOCI_OK;
}
