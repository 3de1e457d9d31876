/* synthesizer.c -- softmax over logits that do not come from pairs of tokens.
 *
 *     random    R[i][j]                       frandom  R1[i].R2[j]
 *     dense     (relu(x_i W1 + b1) W2 + b2)[j]
 *     fdense    a_i[floor(j/n)] b_i[j mod n], two such nets of x_i
 *     vanilla   s q_i.k_j, in mixtures, weighed by the softmax of learned logits
 *
 * Tay, Bahri, Metzler, Juan, Zhao and Zheng, "Synthesizer: rethinking self-attention for
 * transformer models" (2021).  Lengths up to `max`; shorter ones take the first rows and
 * columns.  Time O(n^2 dim), memory O(max^2) for R.
 */
#include <math.h>
#include <stdio.h>

#include "mech/mech.h"

enum { KIND, MAX, HIDDEN, RANK, SPLIT };
enum {
    RANDOM,
    FIXED_RANDOM,
    DENSE,
    FDENSE,
    FRANDOM,
    RANDOM_DENSE,
    RANDOM_VANILLA,
    DENSE_VANILLA
};

static const foci_arg_def args[] = {
    [KIND] = { .name = "kind",
               .choices = "random|fixed_random|dense|fdense|frandom|random+dense|"
                          "random+vanilla|dense+vanilla",
               .help = "where the logits come from" },
    [MAX] = { .name = "max",
              .max = 1 << 20,
              .follows = FOCI_FOLLOWS_LEN,
              .help =
                  "tokens of a sequence at most; 0: those of the problem, not causal" },
    [HIDDEN] = { .name = "hidden",
                 .max = 65536,
                 .help = "width inside a net; 0: that of a head" },
    [RANK] = { .name = "rank", .preset = 8, .min = 1, .max = 65536, .help = "of frandom" },
    [SPLIT] = { .name = "split",
                .max = 1 << 20,
                .help = "length of fdense's b; 0: the square root of max, rounded up" },
};

static unsigned sources(const foci_mech *m)
{
    static const unsigned of_kind[] = {
        [RANDOM] = FOCI_SOURCE_TABLE,
        [FIXED_RANDOM] = FOCI_SOURCE_TABLE,
        [DENSE] = FOCI_SOURCE_NET,
        [FDENSE] = FOCI_SOURCE_OUTER,
        [FRANDOM] = FOCI_SOURCE_FACTORS,
        [RANDOM_DENSE] = FOCI_SOURCE_TABLE | FOCI_SOURCE_NET,
        [RANDOM_VANILLA] = FOCI_SOURCE_QK | FOCI_SOURCE_TABLE,
        [DENSE_VANILLA] = FOCI_SOURCE_QK | FOCI_SOURCE_NET,
    };
    return of_kind[foci_arg_int(m, KIND)];
}

static unsigned reads(const foci_mech *m)
{
    const unsigned from = sources(m);
    unsigned       reads = FOCI_READ_V;

    if (from & FOCI_SOURCE_QK) reads |= FOCI_READ_Q | FOCI_READ_K;
    if (from & (FOCI_SOURCE_NET | FOCI_SOURCE_OUTER)) reads |= FOCI_READ_X;
    return reads;
}

static int64_t most(const foci_mech *m)
{
    const int64_t max = foci_arg_int(m, MAX);
    if (max) return max;
    return m->dims.planned > 0 ? m->dims.planned : 1;
}

static int64_t hidden(const foci_mech *m)
{
    const int64_t given = foci_arg_int(m, HIDDEN);
    return given ? given : m->dims.qk;
}

/* n, and how many runs of n there are. */
static int64_t split(const foci_mech *m)
{
    const int64_t given = foci_arg_int(m, SPLIT), max = most(m);
    if (given) return given < max ? given : max;
    int64_t root = (int64_t)sqrt((double)max);
    while (root * root < max)
        root++;
    return root;
}

static int64_t runs(const foci_mech *m)
{
    const int64_t n = split(m);
    return (most(m) + n - 1) / n;
}

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    const int64_t max = foci_arg_int(m, MAX);

    if (m->causal && !max)
        snprintf(why, cap,
                 "a causal problem needs max: it may not depend on how many tokens "
                 "follow");
    else if (max && max < m->dims.planned)
        snprintf(why, cap, "max=%lld is less than the %lld tokens of the problem",
                 (long long)max, (long long)m->dims.planned);
    else
        return false;
    return true;
}

/*
 * Tensors, those of other kinds with an extent of 0
 */

static int64_t if_from(const foci_mech *m, unsigned source, int64_t n)
{
    return sources(m) & source ? n : 0;
}

static void r_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)arg;
    shape[0] = shape[1] = if_from(m, FOCI_SOURCE_TABLE, most(m));
}

static void factor_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    shape[0] = if_from(m, FOCI_SOURCE_FACTORS, most(m));
    shape[1] = (int64_t)arg[RANK];
}

static void mix_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)arg;
    shape[0] = foci_arg_int(m, KIND) >= RANDOM_DENSE ? 2 : 0;
}

#define NET(suffix, source, columns)                                                   \
    static void w1##suffix(const foci_mech *m, const double *arg, int64_t *shape)      \
    {                                                                                  \
        (void)arg;                                                                     \
        shape[0] = if_from(m, source, m->dims.x);                                      \
        shape[1] = hidden(m);                                                          \
    }                                                                                  \
    static void b1##suffix(const foci_mech *m, const double *arg, int64_t *shape)      \
    {                                                                                  \
        (void)arg;                                                                     \
        shape[0] = if_from(m, source, hidden(m));                                      \
    }                                                                                  \
    static void w2##suffix(const foci_mech *m, const double *arg, int64_t *shape)      \
    {                                                                                  \
        (void)arg;                                                                     \
        shape[0] = if_from(m, source, hidden(m));                                      \
        shape[1] = (columns)(m);                                                       \
    }                                                                                  \
    static void b2##suffix(const foci_mech *m, const double *arg, int64_t *shape)      \
    {                                                                                  \
        (void)arg;                                                                     \
        shape[0] = if_from(m, source, (columns)(m));                                   \
    }

NET(_dense, FOCI_SOURCE_NET, most)
NET(_a, FOCI_SOURCE_OUTER, runs)
NET(_b, FOCI_SOURCE_OUTER, split)

static double of_x(const foci_mech *m, const double *arg)
{
    (void)arg;
    return m->dims.x > 0 ? 1 / (double)m->dims.x : 0;
}

static double of_hidden(const foci_mech *m, const double *arg)
{
    (void)arg;
    return 1 / (double)hidden(m);
}

static double of_rank(const foci_mech *m, const double *arg)
{
    (void)m;
    return 1 / sqrt(arg[RANK]);
}

static bool is_fixed(const foci_mech *m, const double *arg)
{
    (void)m;
    return arg[KIND] == FIXED_RANDOM;
}

#define DRAWN(is, n, s, variance, text)                                                \
    {                                                                                  \
        .name = n, .help = text, .n_dims = 2, .shape = (s), .init = FOCI_INIT_NORMAL,  \
        .value = 1, .value_of = (variance), .stream = 5, .keep = FOCI_KEEP_TRAINED,    \
        .role = FOCI_ROLE_##is                                                         \
    }
#define ZERO(is, n, s, text)                                                           \
    {                                                                                  \
        .name = n, .help = text, .n_dims = 1, .shape = (s), .stream = 5,               \
        .keep = FOCI_KEEP_TRAINED, .role = FOCI_ROLE_##is                              \
    }

static const foci_tensor_def tensors[] = {
    { .name = "R",
      .help = "logits by position",
      .n_dims = 2,
      .shape = r_shape,
      .init = FOCI_INIT_NORMAL,
      .value = 1,
      .stream = 5,
      .keep = FOCI_KEEP_TRAINED,
      .frozen = is_fixed,
      .role = FOCI_ROLE_R },
    DRAWN(R1, "R1", factor_shape, of_rank, "factor of rows"),
    DRAWN(R2, "R2", factor_shape, of_rank, "factor of columns"),
    DRAWN(W1, "W1", w1_dense, of_x, "first layer of the net"),
    ZERO(B1, "b1", b1_dense, "its bias"),
    DRAWN(W2, "W2", w2_dense, of_hidden, "second layer"),
    ZERO(B2, "b2", b2_dense, "its bias"),
    DRAWN(W1A, "W1a", w1_a, of_x, "first layer of a's net"),
    ZERO(B1A, "b1a", b1_a, "its bias"),
    DRAWN(W2A, "W2a", w2_a, of_hidden, "second layer"),
    ZERO(B2A, "b2a", b2_a, "its bias"),
    DRAWN(W1B, "W1b", w1_b, of_x, "first layer of b's net"),
    ZERO(B1B, "b1b", b1_b, "its bias"),
    DRAWN(W2B, "W2b", w2_b, of_hidden, "second layer"),
    ZERO(B2B, "b2b", b2_b, "its bias"),
    ZERO(MIX, "mix", mix_shape, "logits of the sources' weights"),
};

const foci_mech_def mech_synthesizer = {
    FOCI_SIZED(foci_mech_def),
    .name = "synthesizer",
    .summary = "softmax over logits that are learned or made by each token alone",
    .formula = "A = softmax(R), or of a net of x_i, or mixtures",
    .source = "Tay et al., Synthesizer: rethinking self-attention, 2021",
    .cost = "time n^2 dim, memory max^2 for R",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_V,
    .stochastic = true,
    .no_cross = "a row is its position",
    .refuse = refuse,
    .reads_of = reads,
    .sources = sources,
};
