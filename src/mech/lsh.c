/* lsh.c -- queries see the keys that fall into their bucket of a hash.
 *
 *     angular   h(x) = t of the largest of [xR, -xR], R[dim][buckets/2] normal
 *     floor     h(x) = floor((x.a + b) / width), a[dim] normal, b uniform
 *
 * Kitaev, Kaiser and Levskaya, "Reformer" (2020); the angular hash is that of Andoni et
 * al. (2015), the other that of Datar et al. (2004).  With several rounds, each with a
 * hash of its own, a key is seen if it shares a bucket in at least one, in one softmax
 * over the union.  Shared: keys are the unit vectors of the queries.  Time O(n log n)
 * to sort and the squares of the buckets' sizes times dim, memory O(n).
 */
#include <stdio.h>

#include "mech/mech.h"

enum { HASH, BUCKETS, ROUNDS, WIDTH, OFFSET, DEDUP, SHARED, CHUNK };
enum { ANGULAR, FLOOR };

enum { MOST_BUCKETS = 1 << 20, MOST_ROUNDS = 64 };

static const foci_arg_def args[] = {
    [HASH] = { .name = "hash", .choices = "angular|floor", .help = "which hash" },
    [BUCKETS] = { .name = "buckets",
                  .preset = 64,
                  .min = 2,
                  .max = MOST_BUCKETS,
                  .help = "of angular, an even number" },
    [ROUNDS] = { .name = "rounds",
                 .preset = 1,
                 .min = 1,
                 .max = MOST_ROUNDS,
                 .help = "independent hashes" },
    [WIDTH] = { .name = "width",
                .preset = 1,
                .min = 1e-30,
                .max = 1e30,
                .real = true,
                .help = "of a bucket of floor" },
    [OFFSET] = { .name = "offset", .preset = 1, .max = 1, .help = "0: b of floor is 0" },
    [DEDUP] = { .name = "dedup",
                .preset = 1,
                .max = 1,
                .help = "0: a key weighs as often as it shares a bucket" },
    [SHARED] = { .name = "shared",
                 .max = 1,
                 .help =
                     "1: keys are the unit vectors of the queries, and a token sees "
                     "itself only where it sees nothing else" },
    [CHUNK] = { .name = "chunk",
                .max = INT32_MAX,
                .help = "not 0: sorted by bucket and cut into chunks of so many, a "
                        "query sees its chunk and the one before" },
};

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    const char *reason = NULL;

    if (m->arg[HASH] == ANGULAR && foci_arg_int(m, BUCKETS) % 2)
        reason = "buckets must be even: half of them are the opposites of the others";
    else if (m->arg[SHARED] > 0 && m->dims.len != m->dims.len_q)
        reason = "shared keys are the queries: it needs as many queries as keys";
    else if (m->arg[CHUNK] > 0 && !(m->arg[SHARED] > 0))
        reason = "chunk needs shared=1: queries and keys are sorted as one";
    else if (m->arg[CHUNK] > 0 && m->causal)
        reason = "chunk cannot be causal: later tokens move the chunks of earlier ones";
    if (!reason) return false;
    snprintf(why, cap, "%s", reason);
    return true;
}

static void r_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    shape[0] = (int64_t)arg[ROUNDS];
    shape[1] = m->dims.qk;
    shape[2] = arg[HASH] == ANGULAR ? (int64_t)arg[BUCKETS] / 2 : 0;
}

static void a_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    shape[0] = (int64_t)arg[ROUNDS];
    shape[1] = arg[HASH] == FLOOR ? m->dims.qk : 0;
}

static void b_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)m;
    shape[0] = arg[HASH] == FLOOR ? (int64_t)arg[ROUNDS] : 0;
}

static double b_width(const foci_mech *m, const double *arg)
{
    (void)m;
    return arg[OFFSET] > 0 ? arg[WIDTH] : 0;
}

/* Round r is drawn from stream 2000 + r. */
enum { STREAM = 2000 };

static const foci_tensor_def tensors[] = {
    { .name = "R",
      .help = "projections of angular",
      .n_dims = 3,
      .shape = r_shape,
      .init = FOCI_INIT_NORMAL,
      .value = 1,
      .stream = STREAM,
      .by_rounds = true },
    { .name = "a",
      .help = "projections of floor",
      .n_dims = 2,
      .shape = a_shape,
      .init = FOCI_INIT_NORMAL,
      .value = 1,
      .stream = STREAM,
      .by_rounds = true },
    { .name = "b",
      .help = "offsets of floor",
      .n_dims = 1,
      .shape = b_shape,
      .init = FOCI_INIT_UNIFORM,
      .value_of = b_width,
      .stream = STREAM,
      .by_rounds = true },
};

static void order(const foci_mech *m, foci_order *order)
{
    order->label = m->arg[HASH] == ANGULAR ? FOCI_LABEL_ANGULAR : FOCI_LABEL_FLOOR;
    order->rounds = foci_arg_int(m, ROUNDS);
    order->width = m->arg[WIDTH];
    order->weigh_repeats = !(m->arg[DEDUP] > 0);
    order->shared_qk = m->arg[SHARED] > 0;
    order->chunk = foci_arg_int(m, CHUNK);
}

const foci_mech_def mech_lsh = {
    FOCI_SIZED(foci_mech_def),
    .name = "lsh",
    .summary = "softmax over the keys in the same bucket of a hash",
    .formula = "j: h_r(q_i) = h_r(k_j) in at least one round r",
    .source = "Kitaev et al., Reformer: the efficient transformer, 2020",
    .cost = "time n log n + squares of bucket sizes dim, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .stochastic = true,
    .refuse = refuse,
    .order = order,
};
