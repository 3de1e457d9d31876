/* mechanism.h -- what a mechanism has to say about itself.
 *
 * A mechanism is data plus its definition.  The same descriptor drives planning,
 * the engines, the double-precision judge, the tests and the command's `list`; a
 * program adds one of its own by foci_mechanism_register().  A field left zero
 * means "not that".
 */
#ifndef FOCI_MECHANISM_H
#define FOCI_MECHANISM_H

#include <stdbool.h>

#include "foci/foci.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Queries and keys of a tile; most arguments and tensors a mechanism can have. */
enum { FOCI_TILE = 64, FOCI_MAX_ARGS = 12, FOCI_MAX_TENSORS = 16 };
enum { FOCI_MAX_LEVELS = 16 }; /* of slots */

/* Half open; empty when end <= begin. */
typedef struct foci_range {
    int64_t begin, end;
} foci_range;

/* The key tiles of one query tile, being listed. */
typedef struct foci_tile_list foci_tile_list;

/* List every tile that meets `hull`; those inside `core` need no mask.  Clips to the
 * keys there are, and merges with what is listed already. */
FOCI_API void foci_tiles_cover(foci_tile_list *out, foci_range hull, foci_range core);

/* Bit t is set where j0 + t lies in r. */
static inline uint64_t foci_bits_in(foci_range r, int64_t j0)
{
    const int64_t b = r.begin > j0 ? r.begin - j0 : 0;
    const int64_t e = r.end - j0 < FOCI_TILE ? r.end - j0 : (int64_t)FOCI_TILE;
    if (e <= b) return 0;
    return (~UINT64_C(0) >> (FOCI_TILE - (e - b))) << b;
}

/* How an argument that is left 0 follows from the length of the sequence.  Arguments of
 * causal mechanisms may not depend on the length of one sequence; in a layer they follow
 * from its context length instead. */
typedef enum foci_follows {
    FOCI_FOLLOWS_NONE,
    FOCI_FOLLOWS_LEN, /* the length */
    FOCI_FOLLOWS_ROOT /* its root, rounded up */
} foci_follows;

typedef struct foci_arg_def {
    const char *name;
    double      preset, min, max; /* exact for whole numbers up to 2^53; preset NAN:
                                   * must be given */
    const char *help;
    const char *choices; /* "elu|relu|poly": the value is the index; max is implied */
    bool        real;    /* fractions allowed */
    bool mech; /* takes a mechanism as its value, by default the one in choices */
    const char *preset_word; /* stands for the preset, which may then be out of bounds */
    foci_follows follows;    /* what 0 stands for in a layer */
} foci_arg_def;

/* Widths of a head (qk, v, x) and lengths of the sequence: `len` keys and `len_q`
 * queries.  The plan and its tensors are made for `planned` keys, of which a sequence
 * may have fewer. */
typedef struct foci_dims {
    int64_t qk, v, x, len, len_q, planned;
} foci_dims;

/* A mechanism with its arguments: see below. */
typedef struct foci_mech foci_mech;

/* How a tensor starts. */
typedef enum foci_init {
    FOCI_INIT_CONST,
    FOCI_INIT_NORMAL,
    FOCI_INIT_ORTHOGONAL,
    FOCI_INIT_UNIFORM,  /* from 0 to value; nothing is drawn where that is 0 */
    FOCI_INIT_SINUSOID, /* row p: sin, cos of p / 10000^(2t/d), t = 0, 1, ... */
    FOCI_INIT_ROWS      /* directions of random features; value is a foci_rows */
} foci_init;

/* What a tensor is to a score source (FOCI_SOURCE_TABLE and so on).  Sources find their
 * tensors by this, in whatever order these are. */
typedef enum foci_role {
    FOCI_ROLE_NONE,
    FOCI_ROLE_R,  /* FOCI_SOURCE_TABLE: R */
    FOCI_ROLE_R1, /* FOCI_SOURCE_FACTORS: R1 */
    FOCI_ROLE_R2,
    FOCI_ROLE_W1, /* FOCI_SOURCE_NET: W1 */
    FOCI_ROLE_B1,
    FOCI_ROLE_W2,
    FOCI_ROLE_B2,
    FOCI_ROLE_W1A, /* FOCI_SOURCE_OUTER: W1 of the net of a */
    FOCI_ROLE_B1A,
    FOCI_ROLE_W2A,
    FOCI_ROLE_B2A,
    FOCI_ROLE_W1B, /* the same of b */
    FOCI_ROLE_B1B,
    FOCI_ROLE_W2B,
    FOCI_ROLE_B2B,
    FOCI_ROLE_MIX /* with several sources: a logit for each, in the order of the flags; the
                   * softmax of these weighs the sources.  None: they weigh the same */
} foci_role;

/* Rows of FOCI_INIT_ROWS. All but the first kind are blocks of d orthogonal rows; the
 * name says how long a row is. */
typedef enum foci_rows {
    FOCI_ROWS_NORMAL, /* independent normals */
    FOCI_ROWS_CHI,    /* as long as a vector of d independent normals */
    FOCI_ROWS_SQRT,   /* sqrt(d) */
    FOCI_ROWS_UNIT    /* 1 */
} foci_rows;

/* A tensor that each head of the mechanism owns. */
typedef struct foci_tensor_def {
    const char *name;
    const char *help;
    int         n_dims; /* of one head; 0: a number */
    /* NULL when n_dims is 0.  `arg` are the arguments of the tensor's owner, which may
     * be a modifier.  A tensor with an extent of 0 is left out. */
    void (*shape)(const foci_mech *m, const double *arg, int64_t *shape);
    foci_init init;
    double    value; /* the constant, the variance of normals, the width of uniforms */
    int preset; /* FOCI_INIT_CONST: 1 + index of the argument with the constant; 0: value */
    double (*value_of)(const foci_mech *m, const double *arg); /* in place of value */
    /* FOCI_INIT_CONST: one constant a head, counted in its group */
    double (*by_head)(const foci_mech *m, int64_t head, int64_t heads);
    uint32_t  stream;    /* of the seed */
    bool      by_rounds; /* entry r of the first axis is drawn from stream + r */
    foci_keep keep;
    bool (*frozen)(const foci_mech *m, const double *arg); /* true: in place of keep */
    foci_role role; /* of a score source's tensor */
} foci_tensor_def;

/* A list of whole numbers that the caller gives when planning (foci_problem.lists), for
 * instance which blocks see each other. */
typedef struct foci_list_def {
    const char *name, *help;
    int64_t (*count)(const foci_mech *m); /* entries; -1: any number, or none */
    int64_t (*most)(const foci_mech *m);  /* entries are 0 to this */
    bool sorted; /* a set: the mechanism gets the numbers in ascending order */
} foci_list_def;

/* The engine that computes a mechanism. */
typedef enum foci_engine {
    FOCI_ENGINE_EXACT,  /* weights of all visible pairs, in tiles of queries and keys */
    FOCI_ENGINE_LINEAR, /* products of features, in chunks with a running state */
    FOCI_ENGINE_POSITIONAL, /* weights that depend on positions (or on x) alone */
    FOCI_ENGINE_ROUTED, /* an inner mechanism on several sets of keys, mixed by gates */
    FOCI_ENGINE_NYSTROM,  /* two softmaxes around a small matrix of landmarks */
    FOCI_ENGINE_MEMFORMER /* a memory of slots, read and updated segment by segment */
} foci_engine;

/* What a mechanism reads. */
enum {
    FOCI_READ_Q = 1,
    FOCI_READ_K = 2,
    FOCI_READ_V = 4,
    FOCI_READ_X = 8,
    FOCI_READ_WORDS = 16
};

/* FOCI_ENGINE_EXACT: the weights of a row with logits x. */
typedef enum foci_weigh {
    FOCI_WEIGH_SOFTMAX, /* e^x / sum e^x */
    FOCI_WEIGH_L2NORM,  /* e^x / sqrt(sum e^2x) */
    FOCI_WEIGH_RELU2    /* relu(x)^2 / n, n = divisor() or the keys visible */
} foci_weigh;

/* What is applied to rows of q and k before their product. */
typedef enum foci_map {
    FOCI_MAP_NONE,
    FOCI_MAP_PROJECT, /* q times tensor 0, k times tensor 1, both [d][r]; the scale is
                       * 1/sqrt(r) */
    FOCI_MAP_STANDARD /* mean 0 and variance 1 over the row, 1e-5 added to the variance */
} foci_map;

/* Slots: rows of keys and values that summarise runs of them. Queries attend to slots and
 * keys in one softmax. */
typedef struct foci_slots {
    int64_t run_len; /* keys of a run; the last may be short */
    int64_t tail;    /* 0: one slot a run, the mean of its keys and of its values; else
                      * slots are copies of the last `tail` rows of each run */
    bool    count_bias; /* log(number of keys in the mean) is added to its logit */
    int64_t learned; /* not 0: so many slots a run, sums of its keys by tensor 0 and of
                      * its values by tensor 1 (left out: 0 too), [learned][run_len]; a
                      * run that is short takes the first columns; no other level */
    bool    all;     /* every query sees all of them; slot_mask() says so too */
} foci_slots;

/* FOCI_ENGINE_EXACT: where logits come from; several flags add up. i and j are positions
 * of query and key, x_i is a row of the hidden states. */
enum {
    FOCI_SOURCE_QK = 1,      /* s q_i.k_j, changed as modifiers say */
    FOCI_SOURCE_TABLE = 2,   /* R[i][j] */
    FOCI_SOURCE_FACTORS = 4, /* R1[i].R2[j] */
    FOCI_SOURCE_NET = 8,     /* (relu(x_i W1 + b1) W2 + b2)[j] */
    FOCI_SOURCE_OUTER = 16   /* a_i[floor(j/n)] b_i[j mod n], both nets like that, b n
                              * long */
};

/* FOCI_ENGINE_POSITIONAL: the weights of row i, up to a factor that makes their sum one. */
typedef enum foci_pattern {
    FOCI_PATTERN_CURRENT,  /* j = i */
    FOCI_PATTERN_PREVIOUS, /* j = i - 1 */
    FOCI_PATTERN_NEXT,     /* j = i + 1 */
    FOCI_PATTERN_LEFT,     /* (j + 1)^3, j <= i - 2 */
    FOCI_PATTERN_RIGHT,    /* (N - j)^3, j >= i + 2 */
    FOCI_PATTERN_END,      /* (j + 1)^3 */
    FOCI_PATTERN_START,    /* (N - j)^3; causal: N = i + 1 */
    FOCI_PATTERN_TAPS, /* w_t, j = i + t - left; tensor 0 has logits W [parts][width] */
    FOCI_PATTERN_TAPS_OF_X /* the same with logits W x_i, W [parts width][dim_x] */
} foci_pattern;

typedef struct foci_positional {
    foci_pattern pattern;
    bool    words; /* positions are those of words, whose tokens share one weight */
    bool    self;  /* a row that would be empty takes itself (its word) */
    int64_t width; /* taps */
    int64_t parts; /* runs of the value's elements, each with its own taps */
} foci_positional;

/* FOCI_ENGINE_NYSTROM: landmarks, which are means of runs of queries and of keys. */
typedef struct foci_nystrom {
    int64_t count; /* landmarks at most; never more than queries or keys */
    int64_t iters; /* iterations for the pseudoinverse; 0: the exact one */
    int64_t width; /* of the kernel, tensor 0, of a convolution of the values that is added
                    * to the output; 0: none */
} foci_nystrom;

/* FOCI_ENGINE_MEMFORMER: tensor 0 is beta [slots][d]. */
typedef struct foci_memformer {
    int64_t slots, segment;
    double  tau;
} foci_memformer;

/* Labels (hash buckets, clusters): a query sees the keys that have its label. */
typedef enum foci_label {
    FOCI_LABEL_NONE,
    FOCI_LABEL_PLACE,   /* place(), by position */
    FOCI_LABEL_NEAREST, /* t of the largest x.c_t; tensor 0 is c [labels][d] */
    FOCI_LABEL_ANGULAR, /* of the largest of [xR, -xR]; tensor 0 is R [rounds][d][n] */
    FOCI_LABEL_FLOOR    /* floor((x.a + b)/width); tensors 1 and 2 are a [rounds][d] and
                         * b [rounds] */
} foci_label;

/* How rows are labelled and sorted.  Labels are of rows after the mechanism's map and
 * before any modifier; ties go to the smaller label. */
typedef struct foci_order {
    foci_label label;
    int64_t    rounds; /* a key is seen if labels agree in at least one */
    double     width;
    bool weigh_repeats; /* the weight of a key counts once for each round that agrees */
    bool shared_qk; /* keys are the normalised queries; a token sees itself only where it
                     * sees nothing else */
    int64_t chunk;  /* not 0: rows sorted by label and position are cut into chunks of
                     * so many, and a query sees its chunk and the one before */
    int64_t topk; /* not 0: each label takes the `topk` queries and the `topk` keys that
                   * are nearest to it; the outputs of a query are averaged over the
                   * labels that took it */
} foci_order;

/*
 * The linear engine: the weight of a pair is a product of features,
 *
 *     w_ij = sum over r of f_r(q_i) g_r(k_j)   times decay^|i - j|
 *
 * so that sums over keys serve all queries.  s is the scale, which `scale` changes.
 */
typedef enum foci_feature {
    FOCI_FEATURE_ROW,      /* x itself: w = s q.k */
    FOCI_FEATURE_ONE,      /* 1: weights that know nothing of q and k */
    FOCI_FEATURE_ELU,      /* x + 1 above 0, e^x below; not scaled */
    FOCI_FEATURE_RELU,     /* max(x, 0); not scaled */
    FOCI_FEATURE_COS,      /* cos x; not scaled */
    FOCI_FEATURE_POWERS,   /* 1, and (sqrt(s) x)^r element by element, r = 1 to order */
    FOCI_FEATURE_PRODUCTS, /* of up to `order` elements: w = sum coeff[r] (s q.k)^r */
    FOCI_FEATURE_SOFTMAX,  /* e^x; of queries divided by its sum over the row */
    FOCI_FEATURE_EXP,      /* e^(projections): below */
    FOCI_FEATURE_TRIG /* e^(x.x/2) [cos(Wx), sin(Wx)], x = sqrt(s) q or sqrt(s) k */
} foci_feature;

/* What the weights of a row are divided by.  A row with divisor 0 (below 1e-30 where
 * weights can be negative) is empty: its output is zero. */
typedef enum foci_linear_norm {
    FOCI_LINEAR_NORM_NONE,
    FOCI_LINEAR_NORM_SUM,     /* their sum, plus eps */
    FOCI_LINEAR_NORM_COUNT,   /* the keys visible */
    FOCI_LINEAR_NORM_FEATURE, /* every feature by its sum over the keys visible */
    FOCI_LINEAR_NORM_RETNET   /* t = sqrt(sum of the decays), then max(|sum / t|, 1) */
} foci_linear_norm;

/* FOCI_FEATURE_EXP, with w a row of tensor 0, W [m][d], x = sqrt(s) q, y = sqrt(s) k:
 *
 *     f = e^(w.Aw + w.Bx x + x.Cx x),   g = e^(w.Aw + w.By y + y.Cy y)
 *
 * A is a diagonal.  What A to Cy are: */
typedef enum foci_moments {
    FOCI_MOMENTS_NONE,      /* A = a, Bx = By = sqrt(1 - 4a), Cx = Cy = -1/2 */
    FOCI_MOMENTS_NORM,      /* the same, each head with its own a from mean |x + y|^2;
                             * tensor 1 is A [d] */
    FOCI_MOMENTS_SYMMETRIC, /* from the mean of (x + y)(x + y)^T; tensors 1 to 5 are A [d]
                             * and Bx, By, Cx, Cy [d][d] */
    FOCI_MOMENTS_PAIR       /* from those of x x^T and y y^T; likewise */
} foci_moments;
/* Where tensor 1 is NaN, executions compute the statistics from the q and k of each
 * sequence, which causal ones may not. foci_params_calibrate() fills the tensors. */

/* Elements of the longest products that can be features. */
enum { FOCI_MAX_ORDER = 8 };

typedef struct foci_linear {
    foci_feature     feature;
    foci_linear_norm norm;
    int              order;
    double           coeff[FOCI_MAX_ORDER + 1];
    double           eps;
    bool   cosine;   /* RELU: times cos and sin of pi i/(2 length), i the position */
    double length;   /* 0: that of the sequence */
    bool   both;     /* EXP: -w is a row beside every row w */
    bool   gaussian; /* EXP, TRIG: the kernel is e^(-|x - y|^2/2): f is multiplied by
                      * e^(-x.x/2), g by e^(-y.y/2) */
    foci_moments moments;
    double       a;
    bool    decays; /* by decay(), or by tensor 0, if that is there: 1/(1 + e^-theta) */
    int64_t redraw; /* training steps after which foci_params_advance() draws tensor
                     * 0 anew; the last tensor counts them; 0: never */
} foci_linear;

/* A field left zero means "not that".  `size` also says which version of this header the
 * arrays below were compiled with. */
typedef struct foci_mech_def {
    size_t      size;
    const char *name, *summary, *formula, *source;
    const char *cost; /* time and memory, for people */

    const foci_arg_def    *args;
    size_t                 n_args;
    const foci_tensor_def *tensors;
    size_t                 n_tensors;
    const foci_list_def   *list; /* NULL: none */

    foci_engine engine;
    unsigned    reads;
    foci_weigh  weigh;
    foci_map    map;
    bool        stochastic; /* rows of weights sum to one, or are empty, by default */
    bool        by_length;  /* masks depend on dims.len */
    const char *no_causal,
        *no_cross; /* why it cannot be causal, or cross; NULL: it can */

    /* true: these arguments, or this problem, are refused, and `why` gets the reason. */
    bool (*refuse)(const foci_mech *m, char *why, size_t cap);

    /* In place of `reads`, where they depend on arguments. */
    unsigned (*reads_of)(const foci_mech *m);

    /* FOCI_ENGINE_EXACT: flags FOCI_SOURCE, whose tensors have a role; NULL:
     * FOCI_SOURCE_QK.  FOCI_MAP_PROJECT: the width r. */
    unsigned (*sources)(const foci_mech *m);
    int64_t (*width)(const foci_mech *m);

    /* FOCI_ENGINE_POSITIONAL, of a head counted in its group; FOCI_ENGINE_NYSTROM;
     * FOCI_ENGINE_MEMFORMER. */
    void (*positional)(const foci_mech *m, int64_t head, foci_positional *p);
    void (*nystrom)(const foci_mech *m, foci_nystrom *n);
    void (*memformer)(const foci_mech *m, foci_memformer *s);

    /* FOCI_ENGINE_LINEAR: fill what is not zero; the number of features follows from it. */
    void (*linear)(const foci_mech *m, foci_linear *l);
    double (*decay)(const foci_mech *m, int64_t head, int64_t heads);

    /* FOCI_WEIGH_RELU2: n; NULL or 0: the keys visible. */
    double (*divisor)(const foci_mech *m);

    /* Bit t: does query i see key j0 + t?  NULL: all.  Queries are counted as keys
     * are: the last query stands at the last key. */
    uint64_t (*mask)(const foci_mech *m, int64_t i, int64_t j0);

    /* The key tiles that queries `rows` need, by foci_tiles_cover().  NULL: every
     * tile, each tested by mask(). */
    void (*tiles)(const foci_mech *m, foci_range rows, foci_tile_list *out);

    /* Slots: the levels, and mask() and tiles() for the slots of each.  The engine hides
     * slots that have keys after a causal query. */
    int (*slots)(const foci_mech *m, foci_slots levels[FOCI_MAX_LEVELS]);
    uint64_t (*slot_mask)(const foci_mech *m, int level, int64_t i, int64_t s0);
    void (*slot_tiles)(const foci_mech *m, int level, foci_range rows,
                       foci_tile_list *out);

    /* Labels: a query sees the keys with its label in addition to those of mask(), which
     * must not include them.  Without a mask it sees these alone. */
    void (*order)(const foci_mech *m, foci_order *order);
    int64_t (*place)(const foci_mech *m, int64_t i);

    /* FOCI_LABEL_NEAREST: foci_params_advance() makes tensor 0 an exponential moving
     * average with this decay.  NULL: it does not move. */
    double (*ema_decay)(const foci_mech *m);

    /* Leading keys that take no gradient.  Bit t of stop(): key j0 + t takes none
     * from query i. */
    int64_t (*memory)(const foci_mech *m);
    uint64_t (*stop)(const foci_mech *m, int64_t i, int64_t j0);

    /* The first key that decoding still needs for tokens from n on; NULL: all.  Keys
     * before it are needed for ever in ranges for which pinned() is true.
     * first_slot() is the same for the slots of a level. */
    int64_t (*first_key)(const foci_mech *m, int64_t n);
    bool (*pinned)(const foci_mech *m, foci_range keys);
    int64_t (*first_slot)(const foci_mech *m, int level, int64_t n);

    /* Sets of keys and values of a head; NULL: one. */
    int64_t (*routes)(const foci_mech *m);

    /* With routes: how many gates of a token count, the largest ones (top-k).  NULL or 0:
     * all. */
    int64_t (*top_routes)(const foci_mech *m);

    /* true: outputs are averaged over runs of slots(level 0).run_len, attended to once
     * more by the means of keys, and mixed in by tensor 0. */
    bool (*two_pass)(const foci_mech *m);
} foci_mech_def;

/* What a modifier does.  The logits are
 *
 *     x_ij = cap( f_i (q_i . k_j + r_ij) + bias_ij ),  f_i = scale * factors * row factor
 *
 * where rel = j - (position of query i), and the last query stands at the last key.
 */
enum {
    FOCI_MOD_SCALE = 1,   /* argument 0 is the scale, in place of 1/sqrt(dim) */
    FOCI_MOD_FACTOR = 2,  /* tensor 0, one number a head, multiplies the scale */
    FOCI_MOD_UNIT = 4,    /* rows of q and k are divided by their norms; scale 1 */
    FOCI_MOD_CAP = 8,     /* argument 0 is c of c tanh(x/c) */
    FOCI_MOD_SINK = 16,   /* tensor 0, one logit a head, adds e^sink to the sum */
    FOCI_MOD_ROPE = 32,   /* q and k are rotated by position; arguments 0 and 1 are base
                           * and layout (0: pairs of neighbours, 1: of halves) */
    FOCI_MOD_TABLE = 64,  /* bias: entry(rel) of tensor 0 */
    FOCI_MOD_SLOPE = 128, /* bias: -slope(head) |rel| */
    FOCI_MOD_SHAW = 256,  /* r = q_i . aK[c], and aV[c] is added to the value; c is rel
                           * clipped to argument 0 either way, plus that; tensors 0, 1 */
    FOCI_MOD_TXL = 512,   /* r = u . k_j + (q_i + w) . R[-rel]; tensors u, w, R */
    FOCI_MOD_FROZEN = 1024, /* a layer's Wq and Wk are drawn and never learn: kind,
                             * sample, tie and shared are arguments 0 to 3 */
    FOCI_MOD_INIT = 2048    /* how Wq and Wk start; argument 0 is the kind */
};

/* A modifier with its arguments: see below. */
typedef struct foci_mod foci_mod;

typedef struct foci_mod_def {
    size_t      size; /* the fields that the library knows */
    const char *name, *summary, *formula, *source;

    const foci_arg_def    *args;
    size_t                 n_args;
    const foci_tensor_def *tensors;
    size_t                 n_tensors;

    unsigned does;

    /* A factor for a row that sees `visible` keys; NULL: none. */
    double (*row_factor)(const foci_mod *mod, int64_t visible);

    /* FOCI_MOD_TABLE and FOCI_MOD_SLOPE: heads are counted in their group. */
    int64_t (*entry)(const foci_mod *mod, bool causal, int64_t rel);
    double (*slope)(const foci_mod *mod, int64_t head, int64_t heads);

    /* Why it cannot follow this mechanism; NULL: it can. */
    const char *(*refuse)(const foci_mech *mech);
} foci_mod_def;

struct foci_mod { /* a modifier with its arguments */
    const foci_mod_def *def;
    double              arg[FOCI_MAX_ARGS];
};

struct foci_mech { /* a mechanism with its arguments */
    const foci_mech_def *def;
    double           arg[FOCI_MAX_ARGS]; /* defaults that depend on dims filled in */
    foci_dims        dims;
    bool             causal;
    uint64_t         seed;   /* of supports that are drawn: problem.seed */
    uint64_t         stream; /* added to the number of a stream: 2^32 times the group */
    const int64_t   *list;   /* given when planning, n_list entries; else NULL */
    int64_t          n_list;
    const foci_mech *inner; /* of an argument that is a mechanism; NULL elsewhere */
    const foci_mod  *mods;
    size_t           n_mods;
};

/* Argument number a, one that is a whole number. */
static inline int64_t foci_arg_int(const foci_mech *m, int a)
{
    return (int64_t)m->arg[a];
}

/* For supports that are drawn: stream number `stream` of a seed (docs/random.md), to
 * which a mechanism adds its own foci_mech.stream, and the next of its numbers, from 0
 * to n - 1.  They are the same everywhere. */
FOCI_API uint64_t foci_draw_begin(uint64_t seed, uint64_t stream);
FOCI_API int64_t  foci_draw_below(uint64_t *state, int64_t n);

/* A group of a plan's heads: which they are, of queries and of keys, and what they read
 * (FOCI_READ_Q and so on). */
typedef struct foci_group {
    size_t   size;
    int64_t  head0, heads;
    int64_t  kv0, kv_heads; /* each head of a mechanism with routes has several */
    unsigned reads;
    const foci_mech *mech; /* lives as long as the plan */
} foci_group;

/* The groups of a plan; one goes into the fields that group->size covers. */
FOCI_API int         foci_plan_group_count(const foci_plan *plan);
FOCI_API foci_status foci_plan_group(const foci_plan *plan, int index,
                                     foci_group *group);

/* Make a copy of `def` known to specs planned on ctx; what it points to must outlive the
 * context.  Its name must be new. */
FOCI_API foci_status foci_mechanism_register(foci_ctx *ctx, const foci_mech_def *def);

/* Mechanisms (those registered last) and modifiers. */
FOCI_API int                  foci_mechanism_count(const foci_ctx *ctx);
FOCI_API int                  foci_modifier_count(const foci_ctx *ctx);
FOCI_API const foci_mech_def *foci_mechanism(const foci_ctx *ctx, int i);
FOCI_API const foci_mod_def  *foci_modifier(const foci_ctx *ctx, int i);

/* Aliases in specs: "8L" stands for "8*softmax". */
FOCI_API int         foci_alias_count(void);
FOCI_API const char *foci_alias(int i, const char **meaning);

/* What a word that names no mechanism or modifier may have meant, as the end of a message:
 * "; the nearest is ..." where one is near, "; it is ... here" where the literature calls one
 * so, "" where nothing is near.  Characters written or needed, as snprintf(). */
FOCI_API int foci_name_hint(const foci_ctx *ctx, const char *word, char *out,
                            size_t cap);

/* How many letters of a misspelt word are to be inserted, deleted or replaced for a name,
 * whatever the capitals; 1 of a beginning of it too, -1 where too many are. */
FOCI_API int foci_name_distance(const char *word, const char *name);

#ifdef __cplusplus
}
#endif
#endif
