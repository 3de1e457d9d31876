/* exact_source.h -- score sources other than q.k: logits made of parameters, or of each
 * token by a small net.
 *
 *     table    R[i][j]                  R transposed, one tile at a time
 *     factors  R1[i] . R2[j]            queries R1[i], keys R2[j]
 *     net      h_i W2[][j] + b2[j]      queries h_i = relu(x_i W1 + b1), keys W2[][j]
 *     outer    a_i[j / n] b_i[j % n]    two such nets, evaluated for each block
 *
 * Without a q.k term the sources alone give the scores; with one they are added to it
 * as a bias.  Factors and nets are products of rows, so their rows are concatenated
 * into one product.  Its keys are parameters: sequences share them, heads do not.
 *
 * Functions do nothing where a mechanism has no such source.
 */
#ifndef FOCI_EXACT_SOURCE_H
#define FOCI_EXACT_SOURCE_H

#include "plan/plan.h"

struct exact;
struct exact_block;

/* Score sources.  The value is the bit number in the flags FOCI_SOURCE_. */
enum { SOURCE_QK, SOURCE_TABLE, SOURCE_FACTORS, SOURCE_NET, SOURCE_OUTER, N_SOURCES };

/* out = relu(x W1 + b1) W2 + b2: where the tensors of all heads begin among the
 * parameters, and widths. */
struct source_net {
    int64_t w1, b1, w2, b2;
    int     x, hidden, out;
};

struct sources {
    unsigned kinds;          /* flags FOCI_SOURCE_ without that of q.k; 0: none */
    bool     qk;             /* q.k is a source too */
    bool     frozen;         /* R has no gradient */
    int64_t  max;            /* rows and columns of R */
    int64_t  r, r1, r2, mix; /* offsets of tensors among the parameters */

    struct source_net net, a, b;
    int               rank; /* elements of a row that are factors */
    int w, w_pad, ldw; /* widths of a row, factors and net together; 0: no product */
    int ldx;           /* of a row of hidden states */
    int64_t tiles;     /* of keys of a head */

    /* Made by the execution. */
    double (*weight)[N_SOURCES]; /* [heads] of each source */
    char    *keys, *sum;         /* [heads][tiles] by rows; to be summed over keys */
    size_t   size;               /* of a tile */
    uint8_t *nonfinite;          /* [heads][tiles] a key is not finite */
};

/* Scratch of one thread. */
struct source_scratch {
    float *rows; /* [LANES][ldw] */
    void  *q;    /* [w_pad][LANES] packed */
    float *x;    /* [LANES][ldx] hidden states */
    float *xt;   /* [dim_x][LANES] transposed */
    float *h;    /* [hidden][LANES] */
    float *ab;   /* [a.out + b.out][LANES] of outer: a times its weight, then b */
    float *tile; /* [LANES][TILE] */

    /* Backward. */
    float *ds; /* [TILE][LANES] gradients of the logits of a tile */
    float *d_out,
        *transposed; /* gradients of a layer's output, as columns and as rows */
    float *strip;    /* 64 rows of gradients of a layer's weights */
    float *hidden;   /* h as rows */
    float *columns; /* [per_kv][tiles][TILE][LANES] ds of one tile of keys and all blocks,
                     * where several sequences add to R */
};

/*
 * Geometry, memory and weights (exact_source.c)
 */

void exact_source_geometry(struct exact *x);
/* Cost of so many pairs in one head of a sequence. */
void exact_source_cost(const struct exact *x, double pairs, foci_cost *c);
void exact_source_carve(struct exact *x, struct arena *a, bool back);
struct source_scratch exact_source_scratch(const struct exact *x, bool back,
                                           struct arena *a);
/* Shape of a tensor of the mechanism. */
void exact_source_shape(const foci_mech *m, foci_role role, int64_t shape[2]);

/* Weights of the sources of all heads, once for an execution.  Keys are then packed in
 * exact_source_tiles() jobs. */
void    exact_source_prepare(const struct exact *x);
int64_t exact_source_tiles(const struct exact *x);
void exact_source_pack_keys(const struct exact *x, int64_t at, struct source_scratch *r);

/* Whether the sources give the scores; whether they are a bias; whether they read
 * hidden states. */
bool exact_source_scores(const struct exact *x);
bool exact_source_biases(const struct exact *x);
bool exact_source_nets(const struct exact *x);

/* The weight of a source for head h of the stage.  Weights are the softmax of the
 * logits `mix`; NULL: all alike. */
double exact_source_weight(const struct exact *x, int64_t h, int source);
void   exact_source_weights(unsigned kinds, const float *mix, double weight[N_SOURCES]);

/* Whether all sequences have the same weights of attention.  Those of equal length are
 * then folded, that is computed together: at most so many by the plan, and so many in
 * an execution. */
bool    exact_shares_weights(const struct exact *x);
int64_t exact_fold_max(const struct exact *x);
int64_t exact_find_fold(const struct exact *x);

/*
 * Rows, keys and tiles of scores (exact_source_tile.c)
 */

/* Keys of head h from j0 on as floats, tile[TILE][ldw]; tile t of them packed. */
void exact_source_keys(const struct exact *x, int64_t h, int64_t j0, float *tile);
struct operand exact_source_operand(const struct exact *x, int64_t h, int64_t t);
/* The rows of R and of R1 for head h of the stage and a position. */
const float *exact_source_table(const struct exact *x, int64_t h, int64_t pos);
const float *exact_source_factor(const struct exact *x, int64_t h, int64_t pos);

/* Of a block: its hidden states, into r->x and r->xt; its rows times the weights of
 * their sources, into r->rows and r->ab; rows packed as columns, which overwrites
 * `rows`; and all of these in order. */
void exact_source_x(const struct exact *x, const struct exact_block *b,
                    struct source_scratch *r);
void exact_source_rows(const struct exact *x, const struct exact_block *b,
                       struct source_scratch *r);
void exact_source_pack_rows(const struct exact *x, float *rows, void *cols);
void exact_source_begin(const struct exact *x, const struct exact_block *b,
                        struct source_scratch *r);
/* s[n][LANES] = logits of tile t, from packed queries q and from ab; tile[LANES][TILE]
 * is scratch. */
void exact_source_tile(const struct exact *x, const struct exact_block *b, int64_t t,
                       int n, const void *q, const float *ab, float *tile, float *s);

/*
 * Layers of the nets (exact_source_net.c).  Rows are lanes: columns in[in][LANES]
 * become out[out][LANES] by w[in][out].
 */

struct net_layer {
    const struct kernels *k;
    const float          *w, *b;
    int                   in, out;
};
void net_layer_apply(const struct net_layer *l, const float *in, float *out);
void net_layer_back(const struct net_layer *l, const float *d_out, float *d_in,
                    bool add);
/* dw[in][out] += in^T d_out and db += d_out, from rows in[LANES][ld] and columns d_out. */
void net_layer_params(const struct net_layer *l, const float *in, int64_t ld,
                      const float *d_out, struct source_scratch *r, float *dw,
                      float *db);
/* The first layer of a net of head h, and the second. */
struct net_layer exact_net_first(const struct exact *x, const struct source_net *n,
                                 int64_t h);
struct net_layer exact_net_second(const struct exact *x, const struct source_net *n,
                                  int64_t h);
/* relu(x W1 + b1), from r->xt to r->h. */
void exact_net_hidden(const struct exact *x, const struct source_net *n, int64_t h,
                      struct source_scratch *r);

#endif
