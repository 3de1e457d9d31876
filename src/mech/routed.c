/* routed.c -- a mixture over routes: several sets of keys and values, and gates.
 *
 *     o_i = sum_r P_ir attention(q_i, K^r, V^r),   P_i = softmax_r(W x_i)
 *
 * Every head has `routes` sets of keys and values; the hidden state x of a token says
 * how much it takes from each.  With `top` only the largest gates count, and they are
 * made to sum to one again.  The inner attention is any mechanism; its modifiers stand
 * with it.  After the mixtures of Shazeer et al., "Outrageously large neural networks"
 * (2017), with attentions for experts.  Costs the inner mechanism times routes.
 */
#include <stdio.h>

#include "mech/mech.h"

enum { INNER, ROUTES, TOP };

static const foci_arg_def args[] = {
    [INNER] = { .name = "inner",
                .choices = "softmax",
                .mech = true,
                .help = "the mechanism of every route" },
    [ROUTES] = { .name = "routes",
                 .preset = 2,
                 .min = 1,
                 .max = 64,
                 .help = "sets of keys and values of a head" },
    [TOP] = { .name = "top", .max = 64, .help = "gates kept for a token; 0: all" },
};

static int64_t routes(const foci_mech *m) { return foci_arg_int(m, ROUTES); }

static int64_t top_routes(const foci_mech *m) { return foci_arg_int(m, TOP); }

static void shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    shape[0] = (int64_t)arg[ROUTES];
    shape[1] = m->dims.x;
}

static double variance(const foci_mech *m, const double *arg)
{
    (void)arg;
    return m->dims.x ? 1 / (double)m->dims.x : 0;
}

static const foci_tensor_def tensors[] = {
    { .name = "Wr",
      .help = "from a hidden state to the logits of the gates",
      .n_dims = 2,
      .shape = shape,
      .init = FOCI_INIT_NORMAL,
      .value_of = variance,
      .stream = 6,
      .keep = FOCI_KEEP_TRAINED },
};

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    if (m->inner->def->engine == FOCI_ENGINE_ROUTED)
        snprintf(why, cap, "routes inside of routes are not offered");
    else if (!m->dims.x)
        snprintf(why, cap, "the gates read hidden states x, and dim_x is 0");
    else if (m->arg[TOP] > m->arg[ROUTES])
        snprintf(why, cap, "top=%g is more than the %g routes", m->arg[TOP],
                 m->arg[ROUTES]);
    else
        return false;
    return true;
}

const foci_mech_def mech_routed = {
    FOCI_SIZED(foci_mech_def),
    .name = "routed",
    .summary =
        "a mixture of attentions to several sets of keys, by gates of each token",
    .formula = "o_i = sum_r softmax_r(W x_i) attention(q_i, K^r, V^r)",
    .source = "after Shazeer et al., Outrageously large neural networks, 2017",
    .cost = "the inner mechanism times routes",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_ROUTED,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V | FOCI_READ_X,
    .refuse = refuse,
    .routes = routes,
    .top_routes = top_routes,
};
