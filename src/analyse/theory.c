/* theory.c -- the concentration S = E|a| / sqrt(E a^2) of random weights, in closed form.
 *
 * With t = beta / gamma, Phi and phi the normal distribution and its density:
 *
 *     exp        e^(-gamma^2 / 2)
 *     relu2      I_2 / sqrt(I_4),   I_p = E max(t + z, 0)^p,   I_0 = Phi, I_1 = t Phi + phi,
 *                I_(p+1) = t I_p + p I_(p-1) by parts
 *     identity   (2 phi(t) + |t| erf(|t| / sqrt 2)) / sqrt(1 + t^2)
 *     linear     1 / sqrt(1 + q'C q / (q.mean)^2), C the covariance
 *     decay      sqrt(tanh(n u / 2) / (n tanh(u / 2))),   u = -log lambda
 *
 * The last is sqrt((1 - lambda^n) (1 + lambda) / (n (1 - lambda) (1 + lambda^n))) without
 * its differences.  For t < 0 those of relu2 cancel: at t = -20 five digits are left of
 * sixteen.  Then the recurrence goes backwards, as a continued fraction of positive terms,
 *
 *     r_p = I_p / I_(p-1) = p / (|t| + r_(p+1)),   I_0 = phi / (|t| + r_1)
 *
 * which loses nothing (Gautschi, "Computational aspects of three-term recurrence relations",
 * 1967); its first terms are the asymptotic series in 1 / t^2.
 */
#include <inttypes.h>
#include <math.h>

#include "analyse/theory.h"
#include "core/core.h"

static const double pi = 3.14159265358979323846;

/*
 * What the caller gives
 */

static foci_status check_normal(const foci_concentration_law *law)
{
    if (!isfinite(law->beta))
        return ctx_fail(NULL, FOCI_ERR_ARG,
                        "law.beta is %g; it takes any finite number", law->beta);
    if (!isfinite(law->gamma) || law->gamma < 0)
        return ctx_fail(NULL, FOCI_ERR_ARG, "law.gamma is %g; it takes 0 or more",
                        law->gamma);
    return FOCI_OK;
}

static foci_status check_features(const foci_concentration_law *law)
{
    if (law->dim < 1 || law->dim > INT32_MAX)
        return ctx_fail(NULL, FOCI_ERR_ARG, "law.dim is %" PRId64 "; it takes 1 to %d",
                        law->dim, INT32_MAX);
    if (!law->mean != !law->covariance)
        return ctx_fail(NULL, FOCI_ERR_ARG, "law.%s is NULL; it goes with law.%s",
                        law->mean ? "covariance" : "mean",
                        law->mean ? "mean" : "covariance");
    for (int64_t i = 0; i < law->dim; i++) {
        if (law->q && !(law->q[i] >= 0 && isfinite(law->q[i])))
            return ctx_fail(NULL, FOCI_ERR_ARG,
                            "law.q[%" PRId64 "] is %g; it takes 0 or more", i,
                            law->q[i]);
        if (law->mean && !(law->mean[i] >= 0 && isfinite(law->mean[i])))
            return ctx_fail(NULL, FOCI_ERR_ARG,
                            "law.mean[%" PRId64 "] is %g; it takes 0 or more", i,
                            law->mean[i]);
    }
    if (!law->mean && !(law->ratio >= 0 && isfinite(law->ratio)))
        return ctx_fail(NULL, FOCI_ERR_ARG, "law.ratio is %g; it takes 0 or more",
                        law->ratio);
    return FOCI_OK;
}

static foci_status check_decay(const foci_concentration_law *law)
{
    if (!(law->lambda >= 0 && law->lambda <= 1))
        return ctx_fail(NULL, FOCI_ERR_ARG, "law.lambda is %g; it takes 0 to 1",
                        law->lambda);
    if (law->n < 1)
        return ctx_fail(NULL, FOCI_ERR_ARG, "law.n is %" PRId64 "; it takes 1 or more",
                        law->n);
    return FOCI_OK;
}

foci_status theory_read(const char *call, const foci_concentration_law *given,
                        const double *s, foci_concentration_law *law)
{
    if (!s) return ctx_fail(NULL, FOCI_ERR_ARG, "%s: s is NULL", call);
    TRY(sized_in(NULL, "foci_concentration_law", law, given, sizeof *law));
    switch (law->kind) {
    case FOCI_CONCENTRATION_EXP:
    case FOCI_CONCENTRATION_RELU2:
    case FOCI_CONCENTRATION_IDENTITY: return check_normal(law);
    case FOCI_CONCENTRATION_LINEAR: return check_features(law);
    case FOCI_CONCENTRATION_DECAY: return check_decay(law);
    default: break;
    }
    return ctx_fail(NULL, FOCI_ERR_ARG, "law.kind is %d; it takes 0 to %d",
                    (int)law->kind, FOCI_CONCENTRATION_COUNT - 1);
}

bool theory_constant(const foci_concentration_law *law, double *s)
{
    /* The quotient overflows where gamma makes no difference either. */
    if (law->gamma > 0 && isfinite(law->beta / law->gamma)) return false;
    const bool none = law->kind == FOCI_CONCENTRATION_RELU2      ? law->beta <= 0
                      : law->kind == FOCI_CONCENTRATION_IDENTITY ? law->beta == 0
                                                                 : false;
    *s = none ? NAN : 1;
    return true;
}

void theory_norms(const foci_concentration_law *law, double *one, double *two)
{
    double sum = 0, squares = 0;

    for (int64_t i = 0; law->q && i < law->dim; i++) {
        sum += law->q[i];
        squares += law->q[i] * law->q[i];
    }
    *one = law->q ? sum : (double)law->dim;
    *two = sqrt(law->q ? squares : (double)law->dim);
}

/*
 * Closed forms
 */

static double relu2_below(double t)
{
    enum { TERMS = 400 }; /* at t = -1 sixteen digits take about 200 */
    const double u = -t;
    double       r = (sqrt(u * u + 4 * TERMS) - u) / 2, ratios[5] = { 0 };

    for (int p = TERMS; p >= 1; p--) {
        r = p / (u + r);
        if (p < 5) ratios[p] = r;
    }
    const double root = exp(-u * u / 4) / sqrt(sqrt(2 * pi) * (u + ratios[1]));
    return root * sqrt(ratios[1] * ratios[2] / (ratios[3] * ratios[4]));
}

static double relu2(double t)
{
    if (t < -1) return relu2_below(t);
    if (t > 1e8) return 1; /* 1 - 2 / t^2 */
    const double tt = t * t, below = erfc(-t / sqrt(2)) / 2;
    const double density = exp(-tt / 2) / sqrt(2 * pi);
    return ((1 + tt) * below + t * density) /
           sqrt((tt * tt + 6 * tt + 3) * below + t * (tt + 5) * density);
}

static double identity(double t)
{
    const double u = fabs(t);
    return (2 * exp(-u * u / 2) / sqrt(2 * pi) + u * erf(u / sqrt(2))) / hypot(1, u);
}

static foci_status linear(const foci_concentration_law *law, double *s)
{
    double mean = 0, variance = 0;

    if (!law->mean) {
        theory_norms(law, &mean, &variance);
        variance *= law->ratio;
        variance *= variance;
    }
    for (int64_t i = 0; law->mean && i < law->dim; i++) {
        const double qi = law->q ? law->q[i] : 1;
        mean += qi * law->mean[i];
        for (int64_t j = 0; j < law->dim; j++)
            variance +=
                qi * (law->q ? law->q[j] : 1) * law->covariance[i * law->dim + j];
    }
    if (!(variance >= 0))
        return ctx_fail(NULL, FOCI_ERR_ARG,
                        "law.covariance gives q.k the variance %g; it takes matrices "
                        "without negative eigenvalues",
                        variance);
    *s = mean > 0 ? mean / hypot(mean, sqrt(variance)) : NAN;
    return FOCI_OK;
}

static double decay(const foci_concentration_law *law)
{
    const double n = (double)law->n, u = -log(law->lambda);
    return u > 0 ? sqrt(tanh(n * u / 2) / (n * tanh(u / 2))) : 1;
}

foci_status foci_concentration_theory(const foci_concentration_law *given, double *s)
{
    foci_concentration_law law;

    TRY(theory_read("foci_concentration_theory", given, s, &law));
    switch (law.kind) {
    case FOCI_CONCENTRATION_LINEAR: return linear(&law, s);
    case FOCI_CONCENTRATION_DECAY: *s = decay(&law); return FOCI_OK;
    default: break;
    }
    if (theory_constant(&law, s)) return FOCI_OK;
    const double t = law.beta / law.gamma;
    *s = law.kind == FOCI_CONCENTRATION_EXP     ? exp(-law.gamma * law.gamma / 2)
         : law.kind == FOCI_CONCENTRATION_RELU2 ? relu2(t)
                                                : identity(t);
    return FOCI_OK;
}
