/* linear.c -- kernels that are products of features, so that n^2 becomes n.
 *
 *     w_ij = phi(q_i).phi(k_j),   o_i = sum_j w_ij v_j / sum_j w_ij
 *
 * Katharopoulos, Vyas, Pappas and Fleuret, "Transformers are RNNs: fast autoregressive
 * transformers with linear attention" (2020).  phi is elu(x) + 1 there.  poly and taylor
 * are (c + s q.k)^p and the start of the series of e^(s q.k), whose features are all
 * products of so many elements; powers and cos are taken element by element.
 * Time O(n m dim) with m features, memory O(m dim).
 */
#include <stdio.h>

#include "mech/mech.h"

enum { KERNEL, POWER, CONST, ORDER, NORMALISE, EPS };
enum { ELU, RELU, POLY, TAYLOR, POWERS, COS };

enum { MOST_FEATURES = 1 << 16 };

static const foci_arg_def args[] = {
    [KERNEL] = { .name = "kernel",
                 .choices = "elu|relu|poly|taylor|powers|cos",
                 .help = "what becomes of queries and keys" },
    [POWER] = { .name = "power",
                .preset = 2,
                .min = 1,
                .max = FOCI_MAX_ORDER,
                .help = "p of poly's (const + s q.k)^p" },
    [CONST] = { .name = "const",
                .preset = 1,
                .max = 1e6,
                .real = true,
                .help = "what poly adds to s q.k" },
    [ORDER] = { .name = "order",
                .preset = 2,
                .min = 1,
                .max = FOCI_MAX_ORDER,
                .help = "the last power of taylor, and of powers" },
    [NORMALISE] = { .name = "normalise",
                    .preset = 1,
                    .max = 1,
                    .help = "1: rows are divided by their sums" },
    [EPS] = { .name = "eps", .max = 1e6, .real = true, .help = "added to the sums" },
};

/* poly: binomial(p, r) c^(p - r); taylor: 1/r!. */
static void set_shares(const foci_mech *m, foci_linear *l)
{
    const bool poly = m->arg[KERNEL] == POLY;
    double     share = 1;

    l->order = (int)foci_arg_int(m, poly ? POWER : ORDER);
    for (int r = 0; r <= l->order; r++) {
        l->coeff[r] = share;
        share *= poly ? (double)(l->order - r) / (r + 1) : 1.0 / (r + 1);
    }
    for (int r = 0; poly && r <= l->order; r++)
        for (int t = r; t < l->order; t++)
            l->coeff[r] *= m->arg[CONST];
}

static void linear(const foci_mech *m, foci_linear *l)
{
    static const foci_feature features[] = {
        [ELU] = FOCI_FEATURE_ELU,       [RELU] = FOCI_FEATURE_RELU,
        [POLY] = FOCI_FEATURE_PRODUCTS, [TAYLOR] = FOCI_FEATURE_PRODUCTS,
        [POWERS] = FOCI_FEATURE_POWERS, [COS] = FOCI_FEATURE_COS,
    };

    l->feature = features[foci_arg_int(m, KERNEL)];
    l->norm = m->arg[NORMALISE] > 0 ? FOCI_LINEAR_NORM_SUM : FOCI_LINEAR_NORM_NONE;
    l->eps = m->arg[EPS];
    if (l->feature == FOCI_FEATURE_PRODUCTS) set_shares(m, l);
    if (l->feature == FOCI_FEATURE_POWERS) l->order = (int)foci_arg_int(m, ORDER);
}

/* Products of at most p of d elements: binomial(d + p, p), or more than the most. */
static int64_t count_products(int64_t d, int64_t p)
{
    int64_t n = 1;
    for (int64_t r = 1; r <= p && n <= MOST_FEATURES; r++)
        n = n * (d + r) / r;
    return n;
}

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    const bool    poly = m->arg[KERNEL] == POLY;
    const int64_t order = foci_arg_int(m, poly ? POWER : ORDER);

    if (!poly && m->arg[KERNEL] != TAYLOR) return false;
    if (count_products(m->dims.qk, order) <= MOST_FEATURES) return false;
    snprintf(why, cap,
             "products of up to %d of %d elements are more than %d features; take a "
             "smaller %s or width",
             (int)order, (int)m->dims.qk, MOST_FEATURES, poly ? "power" : "order");
    return true;
}

const foci_mech_def mech_linear = {
    FOCI_SIZED(foci_mech_def),
    .name = "linear",
    .summary = "linear attention: kernels that are products of features",
    .formula = "A_ij = phi(q_i).phi(k_j) / sum_j phi(q_i).phi(k_j)",
    .source = "Katharopoulos et al., Transformers are RNNs, 2020",
    .cost = "time n m dim, memory m dim, m features",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .engine = FOCI_ENGINE_LINEAR,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .stochastic = true,
    .refuse = refuse,
    .linear = linear,
};
