/* routing.c -- queries see the keys of their own cluster.
 *
 *     argmax    cluster of x = t of the largest x^.mu_t
 *     topk      mu_t takes the `take` queries and the `take` keys nearest to it
 *     x_ij      = s q^_i.k^_j, rows x^ with mean 0 and variance 1
 *
 * Roy, Saffar, Vaswani and Grangier, "Efficient content-based sparse attention with
 * routing transformers" (2021).  Centroids mu move towards the rows they have, by
 * foci_params_advance(), and have no gradient.  Of topk, a query taken by several gets
 * the mean of the outputs.  Time O(n clusters dim) and the squares of the clusters'
 * sizes times dim, memory O(n).
 */
#include <math.h>
#include <stdio.h>

#include "mech/mech.h"

enum { CLUSTERS, PICK, TAKE, LAMBDA };
enum { ARGMAX, TOPK };

enum { MOST_CLUSTERS = 1 << 20 };

static const foci_arg_def args[] = {
    [CLUSTERS] = { .name = "clusters",
                   .follows = FOCI_FOLLOWS_ROOT,
                   .max = MOST_CLUSTERS,
                   .help = "centroids; 0: the square root of the length, rounded up" },
    [PICK] = { .name = "pick",
               .choices = "argmax|topk",
               .help = "rows choose their centroid, or centroids their rows" },
    [TAKE] = { .name = "take",
               .max = INT32_MAX,
               .help = "rows that a centroid of topk takes; 0: length / clusters" },
    [LAMBDA] = { .name = "lambda",
                 .preset = 0.999,
                 .max = 1,
                 .real = true,
                 .help = "share of a centroid that stays when it moves" },
};

static int64_t clusters_of(const foci_mech *m)
{
    const int64_t given = foci_arg_int(m, CLUSTERS), len = m->dims.planned;

    if (given) return given;
    int64_t root = (int64_t)sqrt((double)len);
    while (root * root < len)
        root++;
    return root > 1 ? root : 1;
}

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    const char *reason = NULL;

    if (m->causal && m->arg[PICK] == TOPK)
        reason = "topk cannot be causal: later tokens crowd out earlier ones";
    else if (m->causal && !(m->arg[CLUSTERS] > 0))
        reason =
            "a causal problem needs a number of clusters: it may not depend on how "
            "many tokens follow";
    if (!reason) return false;
    snprintf(why, cap, "%s", reason);
    return true;
}

static void mu_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)arg;
    shape[0] = clusters_of(m);
    shape[1] = m->dims.qk;
}

static const foci_tensor_def tensors[] = {
    { .name = "mu",
      .help = "centroids",
      .n_dims = 2,
      .shape = mu_shape,
      .init = FOCI_INIT_NORMAL,
      .value = 1,
      .stream = 4,
      .keep = FOCI_KEEP_MOVED },
};

static void order(const foci_mech *m, foci_order *order)
{
    order->label = FOCI_LABEL_NEAREST;
    if (m->arg[PICK] != TOPK) return;
    order->topk = foci_arg_int(m, TAKE);
    if (!order->topk) order->topk = m->dims.len / clusters_of(m);
    if (!order->topk) order->topk = 1;
}

static double ema_decay(const foci_mech *m) { return m->arg[LAMBDA]; }

const foci_mech_def mech_routing = {
    FOCI_SIZED(foci_mech_def),
    .name = "routing",
    .summary = "softmax over the keys of the same cluster",
    .formula = "j: argmax_t q^_i.mu_t = argmax_t k^_j.mu_t",
    .source = "Roy et al., Routing transformers, 2021",
    .cost = "time n clusters dim + squares of cluster sizes dim, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .map = FOCI_MAP_STANDARD,
    .stochastic = true,
    .by_length = true,
    .refuse = refuse,
    .order = order,
    .ema_decay = ema_decay,
};
