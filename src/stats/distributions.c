/* distributions.c -- Student's t, the normal and the beta distribution.
 *
 *     P(|T| > t) = I_x(df/2, 1/2),  x = df / (df + t^2)
 *
 * The incomplete beta function I_x(a, b) is x^a y^b / B(a, b), y = 1 - x, times a continued
 * fraction (DiDonato and Morris, "Algorithm 708", 1992, equation 9).  The factor in front is
 * written as deviations from its maximum (Loader, "Fast and Accurate Computation of Binomial
 * Probabilities", 2000): logarithms of the gamma function, whose difference it is, would
 * leave few digits where a is large.  y is passed on for the same reason.
 *
 * Quantiles are found by Newton's method on the logarithms of t and of the share, where the
 * curve bends one way only, kept inside an interval that holds the solution.
 */
#include <float.h>
#include <math.h>

#include "stats/stats.h"

static const double pi = 3.14159265358979323846;

/*
 * The incomplete beta function
 */

/* log(gamma(z + 1)) - log(sqrt(2 pi z) (z/e)^z). */
static double stirling_error(double z)
{
    const double s = 1 / (z * z);

    if (z < 16) return log(tgamma(z + 1)) - (z + 0.5) * log(z) + z - 0.5 * log(2 * pi);
    return (1.0 / 12 -
            s * (1.0 / 360 -
                 s * (1.0 / 1260 -
                      s * (1.0 / 1680 - s * (1.0 / 1188 - s * (691.0 / 360360 -
                                                               s * (1.0 / 156))))))) /
           z;
}

/* x log(x/m) + m - x, without the loss of digits where x is near m. */
static double deviance(double x, double m)
{
    const double u = (m - x) / x;

    if (fabs(u) > 0.1) return x * (u - log(m / x));
    /* log(1 + u) = 2 atanh(v), and u = 2 v / (1 - v). */
    const double v = u / (2 + u);
    double       power = v, sum = v * v / (1 - v);

    for (int k = 3; k < 20; k += 2) {
        power *= v * v;
        sum -= power / k;
    }
    return 2 * x * sum;
}

/* x^a y^b / B(a, b), x + y = 1. */
static double beta_factor(double x, double y, double a, double b)
{
    const double n = a + b;

    return sqrt(a / n * b / (2 * pi)) *
           exp(stirling_error(n) - stirling_error(a) - stirling_error(b) -
               deviance(a, n * x) - deviance(b, n * y));
}

/* The continued fraction, by the method of Lentz, for x up to about the mean. */
static double beta_fraction(double x, double y, double a, double b)
{
    enum { MOST = 1 << 20 };
    double bottom = a / (a + 1) * (a * y - b * x + 1);
    double c = bottom, d = 0, value = bottom;

    for (int m = 1; m < MOST; m++) {
        const double i = m, before = a + 2 * i - 1;
        const double top =
            (a + i - 1) * (a + b + i - 1) * i * (b - i) * x * x / (before * before);

        bottom = i + i * (b - i) * x / before +
                 (a + i) * (a * y - b * x + 1 + i * (1 + y)) / (a + 2 * i + 1);
        d = 1 / (bottom + top * d);
        c = bottom + top / c;
        value *= c * d;
        if (fabs(c * d - 1) <= DBL_EPSILON) break;
    }
    return 1 / value;
}

/* I_x(a, b), x + y = 1. */
static double beta_share(double x, double y, double a, double b)
{
    if (x <= 0) return 0;
    if (y <= 0) return 1;
    if ((b + 1) * x > (a + 1) * y)
        return 1 - beta_factor(y, x, b, a) * beta_fraction(y, x, b, a);
    return beta_factor(x, y, a, b) * beta_fraction(x, y, a, b);
}

double foci_beta_cdf(double x, double a, double b)
{
    if (!(a > 0 && b > 0 && x >= 0 && x <= 1) || isinf(a) || isinf(b)) return NAN;
    return beta_share(x, 1 - x, a, b);
}

/*
 * Student's t
 */

/* From here on t is normal to the last digit that shows. */
static bool is_normal(double df) { return df > 1e16; }

/* B(df/2, 1/2), df small. */
static double half_beta(double df)
{
    return tgamma(df / 2) * sqrt(pi) / tgamma(df / 2 + 0.5);
}

double t_tail(double t, double df)
{
    if (is_normal(df)) return erfc(t / sqrt(2)) / 2;
    const double r = t / sqrt(df), s = r * r;

    /* x^a / (a B(a, b)): what follows in the series is x times smaller. */
    if (r > 1e8) return df > 100 ? 0 : pow(r, -df) / (df * half_beta(df));
    return beta_share(1 / (1 + s), s / (1 + s), df / 2, 0.5) / 2;
}

/* P(0 < T < t). */
static double t_middle(double t, double df)
{
    if (is_normal(df)) return erf(t / sqrt(2)) / 2;
    const double r = t / sqrt(df), s = r * r;

    return beta_share(s / (1 + s), 1 / (1 + s), 0.5, df / 2) / 2;
}

/* The density at t, times t. */
static double t_slope(double t, double df)
{
    if (is_normal(df)) return t * exp(-t * t / 2) / sqrt(2 * pi);
    const double r = t / sqrt(df), s = r * r;

    if (r > 1e8) return df * t_tail(t, df);
    return beta_factor(1 / (1 + s), s / (1 + s), df / 2, 0.5);
}

double foci_t_cdf(double t, double df)
{
    if (isnan(t) || !(df > 0)) return NAN;
    if (isinf(t)) return t > 0;
    return t < 0         ? t_tail(-t, df)
           : fabs(t) < 1 ? 0.5 + t_middle(t, df)
                         : 1 - t_tail(t, df);
}

/* The t > 0 whose tail, or with `middle` whose middle, is `share`. */
static double t_find(double share, bool middle, double df)
{
    double low = -800, high = 720, s = 0; /* of log(t) */

    for (int step = 0; step < 200 && high - low > DBL_EPSILON * fabs(s); step++) {
        const double t = exp(s);
        const double found = middle ? t_middle(t, df) : t_tail(t, df);
        const double slope = t_slope(t, df) / found;
        double       next;

        if ((found < share) == middle)
            low = s;
        else
            high = s;
        next = s + (log(share) - log(found)) / (middle ? slope : -slope);
        if (next == s) break;
        if (!(next > low && next < high)) next = low + (high - low) / 2;
        if (fabs(next - s) <= DBL_EPSILON * fabs(s)) break;
        s = next;
    }
    return s > 709 ? INFINITY : exp(s); /* about where doubles end */
}

double foci_t_quantile(double p, double df)
{
    if (!(p >= 0 && p <= 1) || !(df > 0)) return NAN;
    if (p == 0 || p == 1) return p > 0 ? INFINITY : -INFINITY;
    if (p == 0.5) return 0;
    const double tail = p < 0.5 ? p : 1 - p;
    const double t =
        tail < 0.25 ? t_find(tail, false, df) : t_find(0.5 - tail, true, df);
    return p < 0.5 ? -t : t;
}

double foci_normal_quantile(double p) { return foci_t_quantile(p, INFINITY); }
