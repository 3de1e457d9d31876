/* performer.c -- random features whose products estimate e^(s q.k).
 *
 *     favor+    e^(w.x - x.x/2)                    x = sqrt(s) q, y = sqrt(s) k
 *     favor++   e^(a w.w + sqrt(1-4a) w.x - x.x/2)
 *     sderf     the same with one a for each principal axis of x + y
 *     aderf     the same with x and y drawn towards each other: Bx x, By y
 *     trig      e^(x.x/2) [cos w.x, sin w.x]
 *     hyp       e^(-x.x/2) [e^(w.x), e^(-w.x)]
 *
 * Choromanski et al., "Rethinking attention with Performers" (2021); Likhosherstov et
 * al., "Chefs' random tables" (2022, favor++) and "Dense-exponential random features"
 * (2023, sderf and aderf, FAVOR#); Rahimi and Recht, "Random features for large-scale
 * kernel machines" (2007, trig).  Time O(n m dim), memory O(m dim), m features.
 */
#include <math.h>
#include <stdio.h>

#include "mech/mech.h"

enum { KIND, FEATURES, ORTHO, ROWS, A, KERNEL, REDRAW };
enum { FAVOR, FAVOR2, SDERF, ADERF, TRIG, HYP };

static const double auto_a = 1; /* a number that a cannot be */

static const foci_arg_def args[] = {
    [KIND] = { .name = "kind",
               .choices = "favor+|favor++|sderf|aderf|trig|hyp",
               .help = "the features" },
    [FEATURES] = { .name = "features",
                   .max = 1 << 16,
                   .help = "rows of omega; 0: twice the width" },
    [ORTHO] = { .name = "ortho",
                .preset = 1,
                .max = 1,
                .help = "1: rows are orthogonal, as many as fit" },
    [ROWS] = { .name = "rows",
               .choices = "chi|sqrt|unit",
               .help = "lengths of orthogonal rows; unit ones are biased" },
    [A] = { .name = "a",
            .preset = auto_a,
            .min = -1e6,
            .max = 0.12,
            .real = true,
            .preset_word = "auto",
            .help = "of favor++; auto: from q and k, or calibrated" },
    [KERNEL] = { .name = "kernel",
                 .choices = "exp|gaussian",
                 .help = "what is estimated: e^(x.y), or e^(-|x-y|^2/2)" },
    [REDRAW] = { .name = "redraw",
                 .max = INT32_MAX,
                 .help = "training steps between fresh draws; 0: never" },
};

static int64_t features_of(const foci_mech *m)
{
    const int64_t given = foci_arg_int(m, FEATURES);
    return given ? given : 2 * m->dims.qk;
}

static foci_moments moments_of(const foci_mech *m)
{
    if (m->arg[KIND] == SDERF) return FOCI_MOMENTS_SYMMETRIC;
    if (m->arg[KIND] == ADERF) return FOCI_MOMENTS_PAIR;
    return m->arg[KIND] == FAVOR2 && m->arg[A] == auto_a ? FOCI_MOMENTS_NORM
                                                         : FOCI_MOMENTS_NONE;
}

static void linear(const foci_mech *m, foci_linear *l)
{
    l->feature = m->arg[KIND] == TRIG ? FOCI_FEATURE_TRIG : FOCI_FEATURE_EXP;
    l->norm = FOCI_LINEAR_NORM_SUM;
    l->both = m->arg[KIND] == HYP;
    l->gaussian = m->arg[KERNEL] > 0;
    l->moments = moments_of(m);
    l->a = m->arg[KIND] == FAVOR2 && m->arg[A] != auto_a ? m->arg[A] : 0;
    l->redraw = foci_arg_int(m, REDRAW);
}

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    if (m->arg[A] == auto_a || m->arg[KIND] == FAVOR2) return false;
    snprintf(why, cap, "a belongs to kind=favor++");
    return true;
}

static void omega_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)arg;
    shape[0] = features_of(m);
    shape[1] = m->dims.qk;
}

static double omega_rows(const foci_mech *m, const double *arg)
{
    (void)m;
    return arg[ORTHO] > 0 ? FOCI_ROWS_CHI + arg[ROWS] : FOCI_ROWS_NORMAL;
}

static void a_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)arg;
    shape[0] = moments_of(m) ? m->dims.qk : 0;
}

static void square_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)arg;
    shape[0] = shape[1] = moments_of(m) > FOCI_MOMENTS_NORM ? m->dims.qk : 0;
}

static void steps_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)m;
    shape[0] = arg[REDRAW] > 0;
}

/* NaN until calibrated. */
static double unknown(const foci_mech *m, const double *arg)
{
    (void)m;
    (void)arg;
    return (double)NAN;
}

#define STATISTIC(n, s, text)                                                          \
    {                                                                                  \
        .name = n, .help = text, .n_dims = (s) == a_shape ? 1 : 2, .shape = (s),       \
        .value_of = unknown, .keep = FOCI_KEEP_MOVED                                   \
    }

static const foci_tensor_def tensors[] = {
    { .name = "omega",
      .help = "directions w of the features",
      .n_dims = 2,
      .shape = omega_shape,
      .init = FOCI_INIT_ROWS,
      .value_of = omega_rows,
      .stream = 0,
      .keep = FOCI_KEEP_MOVED },
    STATISTIC("A", a_shape, "factors of w_t^2; NaN: found in q and k"),
    STATISTIC("Bx", square_shape, "of queries"),
    STATISTIC("By", square_shape, "of keys"),
    STATISTIC("Cx", square_shape, "of squares of queries"),
    STATISTIC("Cy", square_shape, "of squares of keys"),
    { .name = "steps",
      .help = "training steps so far",
      .n_dims = 1,
      .shape = steps_shape,
      .keep = FOCI_KEEP_MOVED },
};

const foci_mech_def mech_performer = {
    FOCI_SIZED(foci_mech_def),
    .name = "performer",
    .summary = "random features that estimate softmax attention",
    .formula = "A_ij ~ 1/m sum_r f(w_r, q_i) g(w_r, k_j), of mean e^(s q_i.k_j)",
    .source = "Choromanski et al., Rethinking attention with Performers, 2021",
    .cost = "time n m dim, memory m dim, m features",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_LINEAR,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .stochastic = true,
    .refuse = refuse,
    .linear = linear,
};
