/* linear_features.h -- feature maps of rows of queries and keys, 64 at a time. */
#ifndef FOCI_LINEAR_FEATURES_H
#define FOCI_LINEAR_FEATURES_H

#include "plan/moments.h"

#include "engine/linear/linear.h"

/* A chunk, or a part of one.  Its tokens are lanes from 0 on. */
struct feature_chunk {
    const struct linear_seq *seq;
    int64_t                  s;     /* number of the sequence */
    int64_t                  h, kv; /* head, and key/value head, within the stage */
    int64_t                  pos;   /* of lane 0 */
    int                      n;     /* lanes that have a key */
    int r0, r1; /* lanes with a query, which is number pos - pos0 + lane; equal: none */
};

/* Lanes that have a row: *begin to *end - 1. */
static inline void linear_lanes(const struct feature_chunk *c, bool keys, int *begin,
                                int *end)
{
    *begin = keys ? 0 : c->r0;
    *end = keys ? c->n : c->r1;
}

/* Rows of a chunk and their features. */
struct features {
    float *x;    /* [64][ldq] rows as floats, zero in lanes without one */
    float *cols; /* [ldq][64] x transposed; scratch of the maps */
    float *f;    /* [m_pad][64] */
    float *lane; /* [64] logs of rows, where lane_logs */
};

/* linear_maps.c: dispatch over foci_feature, and the maps that go element by
 * element. */

/* Features t->f of rows t->x.  Where `logs` these are logs, -inf in lanes without a
 * row; else 0 there.  With lane_logs the caller still has to multiply by e^lane, which
 * is e^-inf in lanes without a row. */
void linear_map(const struct linear *x, const struct feature_chunk *c, bool keys,
                struct features *t);
/* Gradient dx[64][ldq] of rows from df[m_pad][64] of features.  t->f are features as
 * scaled by the engine (e^(l - c), and so on) and df the gradient of these, or, where
 * `logs`, that gradient times f, which is the gradient of the logs.  Reads t->x;
 * overwrites df and t->cols; columns of dx from dq on are unspecified. */
void linear_map_back(const struct linear *x, const struct feature_chunk *c, bool keys,
                     const struct features *t, float *df, float *dx);
/* RoPE on features, for numerators: out = f rotated by position, or the inverse
 * rotation of gradients.  out may be f.  The two features of a pair share their c where
 * `logs`. */
void linear_rope(const struct linear *x, const struct feature_chunk *c, const float *f,
                 float *out, bool inverse);
/* Carve the tables of the maps, and fill them once sequences are known; a null arena
 * counts. */
void linear_maps_carve(struct linear *x, struct arena *a);
/* 0 in lanes that have a row, else -inf. */
void linear_set_logs(const struct feature_chunk *c, bool keys, float *lane);

/* linear_products.c: POWERS and PRODUCTS, of chunks and of one row to f[m]. */
void linear_products_carve(struct linear *x, struct arena *a);
void linear_products_map(const struct linear *x, const struct feature_chunk *c,
                         bool keys, struct features *t);
void linear_products_row(const struct linear *x, bool keys, const float *row, float *f);
void linear_products_back(const struct linear *x, bool keys, const struct features *t,
                          const float *df, float *dx);

/* linear_random.c: EXP and TRIG.  Projections come from the parameters, or where these
 * have no statistics (NaN) from q and k. */
void linear_random_carve(struct linear *x, struct arena *a);
void linear_random_map(const struct linear *x, const struct feature_chunk *c, bool keys,
                       struct features *t);
void linear_random_back(const struct linear *x, const struct feature_chunk *c,
                        bool keys, const struct features *t, float *df, float *dx);

/* linear_moments.c: second moments of q and k of one head, and the exponents of EXP
 * that follow from them. */
struct linear_stats {
    int64_t          ld;         /* of squares and sums */
    int64_t          n[2];       /* queries and keys added so far */
    float           *tile;       /* rows as loaded */
    double          *rows;       /* a few of them in double */
    double          *squares[2]; /* [dq][ld] sums of x x^T, upper triangle */
    double          *sums[2];    /* [ld] */
    struct moments   m;
    double          *scratch;
    struct exponents e;
};
void linear_stats_carve(const struct linear *x, struct arena *a, struct linear_stats *r);
void linear_stats_clear(const struct linear *x, struct linear_stats *r);
void linear_stats_add(const struct linear *x, const foci_io *io, const struct seq *s,
                      int64_t h, struct linear_stats *r);
void linear_stats_solve(const struct linear *x, struct linear_stats *r);

#endif
