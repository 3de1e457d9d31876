/* linear_back.h -- what the files of the linear engine's backward pass share. */
#ifndef FOCI_LINEAR_BACK_H
#define FOCI_LINEAR_BACK_H

#include "engine/linear.h"

/* Parts in which the rows of a chunk to come are asked for, and what is. */
enum { BACK_PARTS = 8 };
enum { ASK_KEYS = 1, ASK_QUERIES = 2, ASK_GRADIENTS = 4 };

/* Halvings that take a chunk apart into single tokens. */
enum { LEVELS = 6 };

/* Sums that meet at a point of a sequence: over the keys before it and the queries after
 * it; with decay both ways also over the keys after it and the queries before it. */
enum { KEYS, QUERIES, KEYS_AFTER, QUERIES_BEFORE, N_SUMS };

struct meeting {
    struct sums_of of[N_SUMS];
};

struct back {
    struct linear     x;
    const float      *saved;
    const foci_grads *g;

    bool near;       /* pairs inside a chunk are summed as pairs */
    bool two;        /* decay both ways */
    bool by_feature; /* every feature is divided by its own sum */
    bool apart;      /* what divides is not the sum of the weights that o is made of: of
                      * each feature its sum, or features that are not turned */
    bool learns;     /* the decay takes a gradient */
    bool whole;      /* one kernel does a whole chunk */
    bool in_line;    /* a sequence is one piece of work, segment after segment */
    int  n_sums;

    int64_t        segment;   /* chunks */
    int64_t        max_segs;  /* segments of all sequences */
    int64_t        max_slots; /* of them those of sequences that have several */
    int64_t        n_segs;
    int64_t       *seg0;  /* [max_seqs + 1] the first segment of a sequence */
    int64_t       *slot0; /* [max_seqs] and its slot */
    struct sums_of slots; /* [heads][max_slots][n_sums] */
    double        *d_lam; /* [heads][max_segs] */
};

/* What a thread computes with. */
struct back_room {
    struct keys    k;
    struct queries q;
    float         *n;      /* [64][ldv] d_o, divided */
    float         *fade;   /* [64][ldv] n or v with decay */
    float         *r;      /* [64] gradients of what rows are divided by */
    float         *z, *dz; /* [m_room][64] sums of keys each lane sees; gradient */
    float         *df, *dg, *more;  /* [m_room][64] */
    float         *a, *da;          /* [64][64] */
    float         *dq, *dk, *dv;    /* [64][ld] */
    float         *dv_more;         /* [64][ldv] */
    float         *dk_all, *dv_all; /* [segment 64][ld] summed over heads */

    /* Operands as products take them: words, or floats turned over. */
    char *left, *right, *f_rows, *n_cols, *n_pairs;

    struct sums_of before;  /* [segment] before each chunk: keys */
    struct sums_of before2; /* and queries */
    struct sums_of level;   /* [LEVELS] before pieces of a chunk */
    struct sums_of now;     /* in the units of a chunk */
    struct sums_of own;     /* [n_sums] of a sequence of one segment */
    struct sums_of carry, next;

    struct chunk ahead; /* that comes next, whose rows are asked for in parts */
    int          asked; /* of these */
    unsigned     asks;  /* ASK_ bits */

    char *whole; /* scratch of the kernel that does a whole chunk */

    double d_lam;
};

/* linear_back_words.c: operands.  A first one, element (i, t) at at[i row + t col]. */
struct side {
    const void *at;
    int64_t     row, col;
};

/* in[rows][ld], summed over its first d columns. */
struct side back_rows(const struct linear *x, void *to, const float *in, int64_t ld,
                      int rows, int d);
/* The second operand: the same, summed over its rows; in[64][ld], turned over, summed over
 * its first d columns. */
const void *back_pairs(const struct linear *x, void *to, const float *in, int64_t ld,
                       int rows);
const void *back_cols(const struct linear *x, void *to, const float *in, int64_t ld,
                      int d);
/* c[m][n] (+)= the sum over t from t0 to t1 of a(i, t) b[t][n]. */
void back_product(const struct linear *x, float *c, int64_t ldc, struct side a,
                  const void *b, int64_t ldb, int m, int n, int t0, int t1, int add);
/* c[64][ldv] = the sum over features of g and sums. */
void back_of_features(const struct linear *x, float *c, const struct across *g,
                      const void *sums);

/* linear_back_rows.c: d_o, divided, and the gradient of what divides. */
void back_load_rows(const struct back *b, struct back_room *r, const struct chunk *c);
/* Ask memory for some of the rows of the chunk that comes next, between products. */
void back_ask(const struct back *b, struct back_room *r);
void back_store_q(const struct back *b, const struct back_room *r,
                  const struct chunk *c);
/* To memory, or to the sums of the group that start at position `from`. */
void back_give_k(const struct back *b, const struct back_room *r, const struct chunk *c,
                 int64_t from);
void back_store_k(const struct back *b, const struct chunk *c, float *dk, float *dv);

/* linear_back_chunk.c: rows of a chunk, in units of the sums over keys, which move to hold
 * it.  false: without `whole`, it has to be taken apart. */
bool back_load(const struct back *b, struct back_room *r, const struct chunk *c,
               const struct meeting *m, bool whole);
/* Only what sums over queries need. */
void back_load_queries(const struct back *b, struct back_room *r, const struct chunk *c,
                       const struct meeting *m);
/* Gradients of a chunk.  Sums over queries after it, and over keys,
 * go on to be those of the chunk before. */
void back_chunk(const struct back *b, struct back_room *r, const struct chunk *c,
                struct meeting m, int level, int64_t from);
/* Of one whose sums are those of all chunks. */
void back_alone(const struct back *b, struct back_room *r, const struct chunk *c,
                struct meeting m, int64_t from);
/* s = by s + sum over the lanes of `fade` times features of queries and n; fade NULL: 1. */
void back_add_queries(const struct back *b, struct back_room *r, struct sums_of s,
                      float by, const float *fade);
/* And of keys and values. */
void back_add_keys(const struct back *b, struct back_room *r, struct sums_of s,
                   float by, const float *fade);
/* Where every feature is divided by its sum and nothing is causal. */
void back_finish_features(const struct linear *x, struct sums_of keys,
                          struct sums_of queries);

/* linear_back_whole.c: by one kernel.  false: the chunk is short or not finite, and nothing
 * was done. */
bool back_takes_whole(const struct back *b);
bool back_whole(const struct back *b, struct back_room *r, const struct chunk *c,
                struct meeting m);

/* linear_back_apart.c: gradients of what divides, where that is apart. */
void back_prefix(const struct back *b, struct back_room *r, const struct chunk *c,
                 const struct meeting *m);
void back_apart(const struct back *b, struct back_room *r, const struct chunk *c,
                struct meeting m);

/* linear_back_sums.c */
void back_times(const struct linear *x, struct sums_of s, float by);
/* Sums over queries, which are in units e^-top, to smaller units. */
void back_to_units(const struct linear *x, struct sums_of s, const float *top);
/* Of sums over queries in the same units. */
void   back_plus(const struct linear *x, struct sums_of to, struct sums_of from);
double back_dot(const struct linear *x, struct sums_of a, struct sums_of b);

/* n numbers, n a multiple of 16, in steps that compilers make vectors of. */
static inline void back_scale(float *x, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i += 16)
        for (int j = 0; j < 16; j++)
            x[i + j] *= by;
}

static inline void back_sum(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        for (int j = 0; j < 16; j++)
            to[i + j] += from[i + j];
}

/* Positions of a chunk. */
static inline int back_length(const struct chunk *c)
{
    return c->n > c->r1 ? c->n : c->r1;
}

static inline const struct decay *back_decay(const struct back *b, const struct chunk *c)
{
    return b->x.decay ? &b->x.decay[c->h] : NULL;
}

#endif
