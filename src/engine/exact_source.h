/* exact_source.h -- logits that do not come from pairs of q and k, on the exact engine.
 *
 * Where q and k are no source, a tile of scores is what the sources make of it; where
 * they are one, the others come as a bias.  Sources that are products of rows, factors
 * and nets, are one product: their rows lie side by side.  Its keys are parameters: all
 * sequences share them, and each head has its own.
 *
 *     table    R[i][j]                  rows of R, turned over
 *     factors  R1[i] . R2[j]            queries R1[i], keys R2[j]
 *     net      h_i W2[][j] + b2[j]      queries h_i = relu(x_i W1 + b1), keys W2[][j]
 *     outer    a_i[j / n] b_i[j % n]    two such nets, made for every block
 *
 * All functions do nothing where there are no such sources.
 */
#ifndef FOCI_EXACT_SOURCE_H
#define FOCI_EXACT_SOURCE_H

#include "plan/plan.h"

struct exact;
struct block;

/* Sources by the number of their flag. */
enum { OF_QK, OF_TABLE, OF_FACTORS, OF_NET, OF_OUTER, N_SOURCES };

/* out = relu(x W1 + b1) W2 + b2: where the tensors of all heads begin, and widths. */
struct source_net {
    int64_t w1, b1, w2, b2;
    int     x, inside, out;
};

struct sources {
    unsigned from;           /* flags FOCI_SOURCE but that of q and k; 0: none */
    bool     qk;             /* q and k are a source too */
    bool     frozen;         /* R has no gradient */
    int64_t  max;            /* rows and columns of R */
    int64_t  r, r1, r2, mix; /* offsets of tensors */

    struct source_net net, a, b;
    int               rank; /* elements of a row that are factors */
    int     w, w_pad, ldw;  /* of a row: with those of the net; 0: no product */
    int     ldx;
    int64_t tiles; /* of keys */

    /* Of an execution: the weights of sources, [heads]; keys, [heads][tiles] pieces by
     * rows and to be summed over keys, and whether one is not finite. */
    double (*share)[N_SOURCES];
    char    *keys, *sum;
    size_t   size;
    uint8_t *bad;
};

/* Scratch of one thread. */
struct source_room {
    float *rows; /* [LANES][ldw] */
    void  *q;    /* [w_pad][LANES] packed */
    float *x;    /* [LANES][ldx] hidden states, */
    float *xt;   /* [dim_x][LANES] turned over */
    float *h;    /* [inside][LANES] */
    float *ab;   /* [runs + n][LANES] of outer: a times its weight, then b */
    float *tile; /* [LANES][TILE] */

    /* Backward: gradients of the logits of a tile, of what comes out of a layer as
     * columns and as rows, and 64 rows of those of its weights. */
    float *ds, *d_out, *turned, *strip;
    float *inside; /* r->h as rows */
    float *columns; /* [per_kv][tiles][TILE][LANES] ds of one tile of keys and all blocks,
                     * where several sequences add to R */
};

/* exact_source.c */
void exact_source_geometry(struct exact *x);
/* With so many pairs in one head of a sequence. */
void               exact_source_cost(const struct exact *x, double pairs, foci_cost *c);
void               exact_source_take(struct exact *x, struct arena *a, bool back);
struct source_room exact_source_room(const struct exact *x, bool back, struct arena *a);
/* What of an execution is made first, and what tile by tile, so many in all. */
void    exact_source_open(const struct exact *x);
int64_t exact_source_tiles(const struct exact *x);
void    exact_source_make(const struct exact *x, int64_t at, struct source_room *r);
/* Whether scores, or biases, are made by sources. */
bool exact_source_scores(const struct exact *x);
bool exact_source_biases(const struct exact *x);
/* Whether hidden states are read. */
bool exact_source_nets(const struct exact *x);
/* The weight of a source for head h, counted in the stage. */
double exact_source_share(const struct exact *x, int64_t h, int source);

/* The weights of the sources `from` by logits `mix`; NULL: all alike. */
void exact_source_shares(unsigned from, const float *mix, double share[N_SOURCES]);

/* Keys of head h from j0 on as floats, tile[TILE][ldw]; a tile of them as an operand. */
void exact_source_keys(const struct exact *x, int64_t h, int64_t j0, float *tile);
struct operand exact_source_operand(const struct exact *x, int64_t h, int64_t t);
/* Rows of R and of R1, for head h of the stage and a position. */
const float *exact_source_table(const struct exact *x, int64_t h, int64_t pos);
const float *exact_source_factor(const struct exact *x, int64_t h, int64_t pos);

/* Hidden states of a block, into r->x and r->xt; its rows, into r->rows (with their
 * weights) and r->ab; rows packed as columns, after which they are spoilt; all of it. */
void exact_source_x(const struct exact *x, const struct block *b, struct source_room *r);
void exact_source_rows(const struct exact *x, const struct block *b,
                       struct source_room *r);
void exact_source_pack(const struct exact *x, float *rows, void *cols);
void exact_source_begin(const struct exact *x, const struct block *b,
                        struct source_room *r);
/* s[n][LANES] of tile t, by queries q[w_pad][LANES] and by ab. */
void exact_source_tile(const struct exact *x, const struct block *b, int64_t t, int n,
                       const void *q, const float *ab, float *tile, float *s);

/* Whether rows of weights are the same for every sequence; where they are, sequences of equal length are
 * taken together: so many at the most, by the plan; and in an execution. */
bool    exact_common(const struct exact *x);
int64_t exact_fold_most(const struct exact *x);
int64_t exact_fold(const struct exact *x);

/* exact_source_net.c: out[out][LANES] of columns in[in][LANES], w[in][out]; and the way
 * back. */
struct layer {
    const struct kernels *k;
    const float          *w, *b;
    int                   in, out;
};
void layer_apply(const struct layer *l, const float *in, float *out);
void layer_back(const struct layer *l, const float *d_out, float *d_in, bool add);
/* dw[in][out] += in^T d_out, db += d_out, of rows in[LANES][ld] and columns d_out. */
void layer_params(const struct layer *l, const float *in, int64_t ld,
                  const float *d_out, struct source_room *r, float *dw, float *db);
/* Both layers of head h: net->x columns to what is inside, and to what comes out. */
struct layer exact_net_first(const struct exact *x, const struct source_net *n,
                             int64_t h);
struct layer exact_net_second(const struct exact *x, const struct source_net *n,
                              int64_t h);
/* relu(x W1 + b1), from r->xt to r->h. */
void exact_net_inside(const struct exact *x, const struct source_net *n, int64_t h,
                      struct source_room *r);

/* exact_source_back.c */
struct source_back {
    int64_t parts;
    char   *cols, *rows; /* [heads][max_qt] pieces: queries as columns and as rows */
    size_t  cols_size;
    float  *ab;                  /* [heads][max_qt][runs + n][LANES] */
    float  *dq;                  /* [parts][heads][max_qt][ldw][LANES] */
    float  *dab;                 /* [parts] of ab */
    float  *dk;                  /* [heads][tiles][TILE][ldw] */
    double *db2;                 /* [heads][tiles][TILE] */
    double *dtable;              /* [parts][heads] of the weight of R */
    float  *dh;                  /* [heads][max_qt][inside of all nets][LANES] */
    float  *dnets;               /* [heads] of the parameters that only queries read */
    double (*dshare)[N_SOURCES]; /* [heads] */
    void *ones;                  /* [LANES][group] as products read them */
};

/* A tile of keys has met a block: gradients of its logits. */
struct source_met {
    const struct block *b;
    int64_t             t, part;
    int                 n;
    const uint64_t *seen;  /* of hidden pairs where something is not finite; or NULL */
    const float    *ds;    /* [n][LANES] as floats, where they are wanted, */
    const void     *rows;  /* as floats or bf16, */
    const void     *words; /* and as floats or words of two keys */
};

void exact_source_take_back(const struct exact *x, int64_t parts, struct source_back *k,
                            struct arena *a);
void exact_source_clear(const struct exact *x, const struct source_back *k);
/* The rows of a block, zero in lanes whose bit of `blind` is set; false: some are not
 * finite. */
bool exact_source_prepare(const struct exact *x, const struct block *b,
                          const struct source_back *k, uint64_t blind,
                          struct source_room *r);
/* Zero the sums of a part for block number `at`. */
void exact_source_begin_back(const struct exact *x, const struct source_back *k,
                             int64_t part, int64_t at);
/* The logits of a tile once more. */
void exact_source_again(const struct exact *x, const struct block *b, int64_t t, int n,
                        const struct source_back *k, struct source_room *r, float *s);
/* Whether gradients of logits are wanted as floats; whether keys of a tile are not
 * finite. */
bool exact_source_floats(const struct exact *x);
bool exact_source_bad(const struct exact *x, const struct block *b, int64_t t);
/* Before and after a job meets the same tile of all sequences; head kv of the stage. */
void exact_source_begin_tile(const struct exact *x, struct source_room *r);
void exact_source_end_tile(const struct exact *x, int64_t kv, int64_t t, int64_t part,
                           const struct source_back *k, struct source_room *r,
                           float *dparams);
void exact_source_meet(const struct exact *x, const struct source_met *m,
                       const struct source_back *k, struct source_room *r,
                       float *dparams);
/* A block has met all keys: add up its parts; met[part heads max_qt] as for dq. */
void exact_source_finish(const struct exact *x, const struct block *b,
                         const struct source_back *k, const uint8_t *met);
/* The blocks of a head, in order: gradients of parameters, where they are wanted, and of
 * what is inside nets. */
void exact_source_head(const struct exact *x, int64_t head, const struct source_back *k,
                       struct source_room *r, float *dparams);
/* dx += what block number qt of all heads brings. */
void exact_source_dx(const struct exact *x, int64_t qt, const struct source_back *k,
                     struct source_room *r, void *dx);
/* Gradients of mixtures; d_qk is that of the weight of q and k, for head h. */
void exact_source_mix(const struct exact *x, const struct source_back *k, int64_t h,
                      double d_qk, float *dparams);

#endif
