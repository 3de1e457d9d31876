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
enum { FOCI_TILE = 64, FOCI_MAX_ARGS = 12, FOCI_MAX_TENSORS = 8 };

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

typedef struct foci_arg_def {
    const char *name;
    double      preset, min, max; /* exact for whole numbers up to 2^53; preset NAN:
                                   * must be given */
    const char *help;
    const char *words; /* "elu|relu|poly": the value is the index; max is implied */
    bool        real;  /* fractions allowed */
    bool        mech;  /* takes a mechanism as its value, by default the one in words */
} foci_arg_def;

/* Widths of a head, and the length of the sequence. */
typedef struct foci_dims {
    int64_t qk, v, x, len;
} foci_dims;

/* A mechanism with its arguments: see below. */
typedef struct foci_mech foci_mech;

/* How a tensor starts. */
typedef enum foci_init {
    FOCI_INIT_CONST,
    FOCI_INIT_NORMAL,
    FOCI_INIT_ORTHOGONAL
} foci_init;

/* A tensor that each head of the mechanism owns. */
typedef struct foci_tensor_def {
    const char *name;
    const char *help;
    int         n_dims;                                /* of one head; 0: a number */
    void (*shape)(const foci_mech *m, int64_t *shape); /* NULL when n_dims is 0 */
    foci_init init;
    double    value; /* the constant, or the variance of normals */
    int preset; /* FOCI_INIT_CONST: 1 + index of the argument that has the constant; 0: value */
    uint32_t  stream; /* of the seed */
    foci_keep keep;
} foci_tensor_def;

/* The loops that compute it: over pairs in tiles, over chunks with a running state,
 * over positions alone. */
typedef enum foci_engine { FOCI_EXACT, FOCI_LINEAR, FOCI_POSITIONAL } foci_engine;

/* What a mechanism reads. */
enum {
    FOCI_READ_Q = 1,
    FOCI_READ_K = 2,
    FOCI_READ_V = 4,
    FOCI_READ_X = 8,
    FOCI_READ_WORDS = 16
};

/* How the exact engine turns the logits x of a row into weights. */
typedef enum foci_weigh {
    FOCI_SOFTMAX, /* e^x / sum e^x */
    FOCI_L2NORM,  /* e^x / sqrt(sum e^2x) */
    FOCI_RELU2    /* relu(x)^2 / n, n = `count` or the keys visible */
} foci_weigh;

typedef struct foci_mech_def {
    const char *name, *summary, *formula, *source;
    const char *cost; /* time and memory, for people */

    const foci_arg_def    *args;
    size_t                 n_args;
    const foci_tensor_def *tensors;
    size_t                 n_tensors;

    foci_engine engine;
    unsigned    reads;
    foci_weigh  weigh;
    bool        stochastic;           /* rows of weights sum to one, or are empty */
    const char *no_causal, *no_cross; /* why not; NULL: it can */

    /* relu2's n; NULL or 0: the keys visible. */
    double (*count)(const foci_mech *m);

    /* Bit t: does query i see key j0 + t?  NULL: all.  Queries are counted as keys
     * are: the last query stands at the last key. */
    uint64_t (*mask)(const foci_mech *m, int64_t i, int64_t j0);

    /* The key tiles that queries `rows` need, by foci_tiles_cover().  NULL: every
     * tile, each tested by mask(). */
    void (*tiles)(const foci_mech *m, foci_range rows, foci_tile_list *out);
} foci_mech_def;

/* What a modifier does.  The logits are
 *
 *     x_ij = cap( f_i (q_i . k_j) + bias_ij ),   f_i = scale * factors * row factor
 */
enum {
    FOCI_MOD_SCALE = 1,  /* argument 0 is the scale, in place of 1/sqrt(dim) */
    FOCI_MOD_FACTOR = 2, /* tensor 0, one number a head, multiplies the scale */
    FOCI_MOD_UNIT = 4,   /* q and k are divided by their norms; scale 1 */
    FOCI_MOD_CAP = 8,    /* argument 0 is c of c tanh(x/c) */
    FOCI_MOD_SINK = 16   /* tensor 0, one logit a head, adds e^sink to the sum */
};

/* A modifier with its arguments: see below. */
typedef struct foci_mod foci_mod;

typedef struct foci_mod_def {
    const char *name, *summary, *formula, *source;

    const foci_arg_def    *args;
    size_t                 n_args;
    const foci_tensor_def *tensors;
    size_t                 n_tensors;

    unsigned does;

    /* A factor for a row that sees `visible` keys; NULL: none. */
    double (*row_factor)(const foci_mod *mod, int64_t visible);

    /* Why it cannot follow this mechanism; NULL: it can. */
    const char *(*refuse)(const foci_mech_def *mech);
} foci_mod_def;

struct foci_mod { /* a modifier with its arguments */
    const foci_mod_def *def;
    double              arg[FOCI_MAX_ARGS];
};

struct foci_mech { /* a mechanism with its arguments */
    const foci_mech_def *def;
    double           arg[FOCI_MAX_ARGS]; /* defaults that depend on dims filled in */
    foci_dims        dims;
    const foci_mech *inner; /* of an argument that is a mechanism; NULL elsewhere */
    const foci_mod  *mods;
    size_t           n_mods;
};

/* Argument number a, one that is a whole number. */
static inline int64_t foci_arg_int(const foci_mech *m, int a)
{
    return (int64_t)m->arg[a];
}

/* Make `def`, which must outlive the context, known to specs planned on ctx.  Its
 * name must be new. */
FOCI_API foci_status foci_mechanism_register(foci_ctx *ctx, const foci_mech_def *def);

/* Mechanisms (those registered last) and modifiers by number; NULL beyond the last. */
FOCI_API const foci_mech_def *foci_mechanism(const foci_ctx *ctx, int i);
FOCI_API const foci_mod_def  *foci_modifier(const foci_ctx *ctx, int i);

/* Texts that stand for others in specs ("8L" for "8*softmax"); NULL beyond the last. */
FOCI_API const char *foci_alias(int i, const char **meaning);

#ifdef __cplusplus
}
#endif
#endif
