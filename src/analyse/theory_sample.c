/* theory_sample.c -- the concentration of random weights by Monte-Carlo.
 *
 * Where few keys have nearly all of the weight a plain sample misses them: e^x of a logit x
 * with standard deviation gamma has its mean at gamma and its second moment at 2 gamma
 * standard deviations above the mean of x.  So draws come from another law (importance
 * sampling) and are weighed by the ratio of the two:
 *
 *     exp        normal around gamma or 2 gamma, half each
 *     relu2      t < -1: exponential beyond 0, with the rate |t|
 *     linear     features that have one of two values: 1 - ratio or 1 + ratio, with a ratio
 *                above 1 rather 0 or 1 + ratio^2, the latter in one of 1 + ratio^2 cases
 *     decay      any of the n keys, or one by its weight, half each
 *
 * and else from the normal law itself.  The error of S = m1 / sqrt(m2) is that of the mean of
 * a / m1 - a^2 / (2 m2) (delta method), over a second run of the same draws, so that it keeps
 * its digits where all weights are nearly the same.
 */
#include <inttypes.h>
#include <math.h>

#include "analyse/theory.h"
#include "core/core.h"

enum { STREAM = (1 << 20) + 1 };

struct sampler {
    const foci_concentration_law *law;
    double                        t;     /* beta / gamma */
    double                        scale; /* S over that of what is drawn */
    /* One weight and its square, each over a number that makes both moderate. */
    void (*draw)(const struct sampler *s, struct rng *r, double *a, double *square);
};

static void draw_exp(const struct sampler *s, struct rng *r, double *a, double *square)
{
    const double g = s->law->gamma, centre = rng_uniform(r) < 0.5 ? g : 2 * g;
    const double z = centre + rng_normal(r);
    /* Densities around gamma and 2 gamma over that around 0. */
    const double one = g * z - g * g / 2, two = 2 * g * z - 2 * g * g;

    *a = 2 / (1 + exp(two - one));
    *square = 2 / (1 + exp(one - two));
}

static void draw_normal(const struct sampler *s, struct rng *r, double *a,
                        double *square)
{
    const double x = (s->t + rng_normal(r)) / fmax(1, fabs(s->t));

    if (s->law->kind == FOCI_CONCENTRATION_RELU2)
        *a = x > 0 ? x * x : 0;
    else
        *a = fabs(x);
    *square = *a * *a;
}

static void draw_tail(const struct sampler *s, struct rng *r, double *a, double *square)
{
    const double x = -log(rng_uniform(r)), weight = exp(-x * x / (2 * s->t * s->t));

    *a = weight * x * x;
    *square = *a * x * x;
}

static void draw_linear(const struct sampler *s, struct rng *r, double *a,
                        double *square)
{
    const foci_concentration_law *law = s->law;
    const double                  ratio = law->ratio, small = fmax(1 - ratio, 0);
    const double                  large = ratio < 1 ? 1 + ratio : 1 + ratio * ratio;
    const double share = ratio < 1 ? 0.5 : 1 / large; /* of the large ones */
    double       sum = 0;

    for (int64_t i = 0; i < law->dim; i++)
        sum += (law->q ? law->q[i] : 1) * (rng_uniform(r) < share ? large : small);
    *a = sum;
    *square = sum * sum;
}

static void draw_decay(const struct sampler *s, struct rng *r, double *a, double *square)
{
    const double n = (double)s->law->n, u = -log(s->law->lambda);
    const double all = -expm1(-n * u),
                 first = -expm1(-u); /* 1 - lambda^n, 1 - lambda */
    double j;

    if (rng_uniform(r) < 0.5)
        j = floor(n * rng_uniform(r));
    else
        j = floor(-log1p(-all * rng_uniform(r)) / u);
    j = fmin(j, n - 1);
    const double weight = pow(s->law->lambda, j);
    *a = 2 * weight / (1 + n * weight * first / all);
    *square = *a * weight;
}

static void open_sampler(struct sampler *s, const foci_concentration_law *law)
{
    const double t = law->beta / law->gamma, pi = 3.14159265358979323846;

    *s = (struct sampler){ .law = law, .t = t, .scale = 1, .draw = draw_normal };
    if (law->kind == FOCI_CONCENTRATION_LINEAR) s->draw = draw_linear;
    if (law->kind == FOCI_CONCENTRATION_DECAY) s->draw = draw_decay;
    if (law->kind == FOCI_CONCENTRATION_EXP) {
        s->draw = draw_exp; /* over e^(gamma^2 / 2), and e^(2 gamma^2) */
        s->scale = exp(law->gamma * law->gamma / 2 - law->gamma * law->gamma);
    }
    if (law->kind == FOCI_CONCENTRATION_RELU2 && t < -1) {
        s->draw = draw_tail; /* over phi(t) / |t|^3, and phi(t) / |t|^5 */
        s->scale = exp(-t * t / 4) / sqrt(sqrt(2 * pi) * -t);
    }
}

static void sample(const struct sampler *s, int64_t draws, uint64_t seed,
                   double *result, double *error)
{
    struct rng r;
    double     one = 0, two = 0, spread = 0, a, square;

    rng_seed(&r, seed, STREAM);
    for (int64_t i = 0; i < draws; i++) {
        s->draw(s, &r, &a, &square);
        one += a / (double)draws;
        two += square / (double)draws;
    }
    rng_seed(&r, seed, STREAM);
    for (int64_t i = 0; i < draws; i++) {
        s->draw(s, &r, &a, &square);
        const double far = a / one - square / (2 * two) - 0.5;
        spread += far * far / (double)(draws - 1);
    }
    *result = s->scale * (one / sqrt(two)); /* NaN: nothing but zeros */
    *error = *result * sqrt(spread / (double)draws);
}

foci_status foci_concentration_sample(const foci_concentration_law *given, int64_t draws,
                                      uint64_t seed, double *s, double *error)
{
    foci_concentration_law law;
    struct sampler         sampler;

    TRY(theory_read("foci_concentration_sample", given, s, &law));
    if (!error)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_concentration_sample: error is NULL");
    if (draws < 2)
        return ctx_fail(NULL, FOCI_ERR_ARG, "draws is %" PRId64 "; it takes 2 or more",
                        draws);
    if (law.kind == FOCI_CONCENTRATION_LINEAR && law.mean)
        return ctx_fail(NULL, FOCI_ERR_UNSUP,
                        "a covariance says nothing of the law of features; "
                        "foci_concentration_sample takes independent ones");
    *error = 0;
    if (law.kind == FOCI_CONCENTRATION_DECAY && law.lambda == 1) {
        *s = 1;
        return FOCI_OK;
    }
    if (law.kind < FOCI_CONCENTRATION_LINEAR && theory_constant(&law, s))
        return FOCI_OK;
    open_sampler(&sampler, &law);
    sample(&sampler, draws, seed, s, error);
    return FOCI_OK;
}
