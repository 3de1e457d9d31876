/* exact_source_back.h -- gradients of score sources other than q.k.
 *
 * A job has the same tile of keys of every sequence and meets their blocks in order, so
 * that gradients that sequences share, of R and of the keys of products, are summed in
 * order by one thread.  Gradients of the rows of blocks are summed in parts, as dq is.
 * The blocks of a head then go through its nets, again in order.
 */
#ifndef FOCI_EXACT_SOURCE_BACK_H
#define FOCI_EXACT_SOURCE_BACK_H

#include "engine/exact/exact_product.h"

struct source_back {
    int64_t parts;
    char   *cols, *rows; /* [heads][max.qt] queries, as columns and as rows */
    size_t  cols_size;
    float  *ab;                   /* [heads][max.qt][a.out + b.out][LANES] */
    float  *dq;                   /* [parts][heads][max.qt][ldw][LANES] */
    float  *dab;                  /* [parts] gradients of ab */
    float  *dk;                   /* [heads][tiles][TILE][ldw] */
    double *db2;                  /* [heads][tiles][TILE] */
    double *dtable;               /* [parts][heads] gradient of the weight of R */
    float  *dh;                   /* [heads][max.qt][hidden of all nets][LANES] */
    float  *dnets;                /* [heads] of the parameters that only queries read */
    double (*dweight)[N_SOURCES]; /* [heads] */
    void *ones;                   /* [LANES][granule], packed */
};

/* A tile of keys and a block, and the gradients ds[n][LANES] of their logits. */
struct source_tile {
    const struct exact_block *b;
    int64_t                   t, part;
    int                       n;
    const uint64_t *seen;  /* visible pairs, where an operand is not finite; or NULL */
    const float    *ds;    /* as floats, where exact_source_wants_floats() */
    const void     *rows;  /* as floats, or bf16 */
    const void     *pairs; /* as floats, or bf16 pairs of two keys */
};

/*
 * Tiles (exact_source_back.c)
 */

void exact_source_back_carve(const struct exact *x, int64_t parts,
                             struct source_back *k, struct arena *a);
void exact_source_back_clear(const struct exact *x, const struct source_back *k);
/* Pack the rows of a block, zero in lanes whose bit of `blind` is set; false: some are
 * not finite. */
bool exact_source_back_queries(const struct exact *x, const struct exact_block *b,
                               const struct source_back *k, uint64_t blind,
                               struct source_scratch *r);
/* Zero the sums of a part for block number `at`. */
void exact_source_back_begin(const struct exact *x, const struct source_back *k,
                             int64_t part, int64_t at);
/* The logits of a tile once more. */
void exact_source_back_scores(const struct exact *x, const struct exact_block *b,
                              int64_t t, int n, const struct source_back *k,
                              struct source_scratch *r, float *s);
bool exact_source_wants_floats(const struct exact *x);
/* Whether a key of the tile is not finite. */
bool exact_source_nonfinite(const struct exact *x, const struct exact_block *b,
                            int64_t t);

/* A job calls the first before it takes a tile of all sequences, and the last after it;
 * kv is a key/value head of the stage. */
void exact_source_back_tile_begin(const struct exact *x, struct source_scratch *r);
void exact_source_back_tile(const struct exact *x, const struct source_tile *m,
                            const struct source_back *k, struct source_scratch *r,
                            float *dparams);
void exact_source_back_tile_end(const struct exact *x, int64_t kv, int64_t t,
                                int64_t part, const struct source_back *k,
                                struct source_scratch *r, float *dparams);
/* A block has met all keys: add up its parts, those whose begun[part heads max.qt] is
 * set. */
void exact_source_back_finish(const struct exact *x, const struct exact_block *b,
                              const struct source_back *k, const uint8_t *begun);

/*
 * Nets (exact_source_net_back.c)
 */

/* The blocks of a head, in order: gradients of hidden values and, unless dparams is
 * NULL, of parameters. */
void exact_source_back_head(const struct exact *x, int64_t head,
                            const struct source_back *k, struct source_scratch *r,
                            float *dparams);
/* Add the share of block number qt of all heads to dx. */
void exact_source_back_dx(const struct exact *x, int64_t qt, const struct source_back *k,
                          struct source_scratch *r, void *dx);
/* Gradients of the logits of the weights of sources of head h; d_qk is the gradient of
 * the weight of q.k. */
void exact_source_back_weights(const struct exact *x, const struct source_back *k,
                               int64_t h, double d_qk, float *dparams);

/*
 * Sizes that the files share
 */

static inline int64_t source_ab_floats(const struct exact *x)
{
    return (int64_t)(x->source.a.out + x->source.b.out) * LANES;
}

static inline int64_t source_dq_floats(const struct exact *x)
{
    return (int64_t)x->source.ldw * LANES;
}

/* Of a block, the hidden values of all nets one after the other. */
static inline int64_t source_dh_floats(const struct exact *x)
{
    const struct sources *s = &x->source;
    return (int64_t)(s->net.hidden + s->a.hidden + s->b.hidden) * LANES;
}

/* Gradients of the first layer of a net; of all of it. */
static inline int64_t source_first_floats(const struct source_net *n)
{
    return (int64_t)n->hidden * (n->x + 1);
}

static inline int64_t source_net_floats(const struct source_net *n)
{
    return source_first_floats(n) + (int64_t)n->out * (n->hidden + 1);
}

/* Gradients of a head's nets, W1 to b2 of each (of `net` the first layer alone), then
 * of R1. */
static inline int64_t source_nets_floats(const struct exact *x)
{
    const struct sources *s = &x->source;
    return source_first_floats(&s->net) + source_net_floats(&s->a) +
           source_net_floats(&s->b) + x->p->len_q * s->rank;
}

static inline float *source_dq_of(const struct exact *x, const struct source_back *k,
                                  int64_t part, int64_t at)
{
    return k->dq + (part * x->heads * x->max.qt + at) * source_dq_floats(x);
}

static inline float *source_dab_of(const struct exact *x, const struct source_back *k,
                                   int64_t part, int64_t at)
{
    return k->dab + (part * x->heads * x->max.qt + at) * source_ab_floats(x);
}

#endif
