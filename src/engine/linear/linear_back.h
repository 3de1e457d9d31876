/* linear_back.h -- what the files of the linear engine's backward pass share. */
#ifndef FOCI_LINEAR_BACK_H
#define FOCI_LINEAR_BACK_H

#include "engine/linear/linear_chunk.h"

/* What is prefetched of the next chunk; GRADIENTS: rows that will be written, too. */
enum { PREFETCH_KEYS = 1, PREFETCH_QUERIES = 2, PREFETCH_GRADIENTS = 4 };

/* Halvings that split a chunk into single tokens. */
enum { LEVELS = 6 };

/* The sums that a point of a sequence needs: over the keys before it and the queries
 * after it; with bidirectional decay also over the keys after it and the queries before
 * it. */
enum { KEYS, QUERIES, KEYS_AFTER, QUERIES_BEFORE, N_SUMS };

struct linear_back_boundary {
    struct linear_sums of[N_SUMS];
};

/* One backward pass. */
struct linear_back {
    struct linear     x;
    const float      *saved;
    const foci_grads *g;

    bool intra;         /* chunks have weights of their own pairs */
    bool bidirectional; /* decay without causality */
    bool by_feature; /* FOCI_LINEAR_NORM_FEATURE: every feature is divided by its own sum */
    bool den_apart; /* denominators are no sums of the weights that numerators have: with
                     * by_feature, and under RoPE, where they have unrotated features */
    bool decay_grad; /* the decay takes a gradient */
    bool fused;      /* one kernel computes a whole chunk */
    bool sequential; /* a sequence is one job, segment after segment */
    int  n_sums;     /* of a boundary */

    int64_t            segment;    /* chunks */
    int64_t            max_segs;   /* segments of all sequences */
    int64_t            max_stored; /* segments of sequences that have several */
    int64_t            n_segs;
    int64_t           *seg0;    /* [max_seqs + 1] the first segment of a sequence */
    int64_t           *stored0; /* [max_seqs] where its boundaries are in `stored` */
    struct linear_sums stored;  /* [heads][max_stored][n_sums] */
    double            *d_lam;   /* [heads][max_segs] */
};

/* Chunks begin to end - 1 of sequence s: segment i of all. */
struct linear_back_segment {
    int64_t s, begin, end;
    int64_t i, stored; /* stored -1: the sequence has no other segment */
};

/* Scratch of one thread. */
struct linear_back_scratch {
    struct linear_keys    k;
    struct linear_queries q;

    float *n;             /* [64][ldv] d_o, divided */
    float *decayed;       /* [64][ldv] n or v with decay */
    float *r;             /* [64] gradients of the divisors */
    float *z, *dz;        /* [m_full][64] sums of keys that each lane sees; gradient */
    float *df, *dg, *tmp; /* [m_full][64] */
    float *a, *da;        /* [64][64] */
    float *dq, *dk, *dv;  /* [64][ld] */
    float *dv_tmp;        /* [64][ldv] */

    float *dk_all, *dv_all; /* [segment 64][ld] summed over heads that share keys */

    /* Operands of products: bf16 pairs, or floats (transposed in n_cols). */
    char *left, *right, *f_rows, *n_cols, *n_pairs;

    struct linear_sums before;         /* [segment] before each chunk: keys */
    struct linear_sums queries_before; /* the same of queries */
    struct linear_sums level;          /* [LEVELS] before parts of a chunk */
    struct linear_sums now;            /* in the units of a chunk */
    struct linear_sums single; /* [n_sums] boundary of a sequence of one segment */
    struct linear_sums carry, next;

    struct feature_chunk next_chunk; /* comes next; its rows are prefetched in parts, */
    int                  prefetched; /* so many so far, */
    unsigned             prefetches; /* PREFETCH_ flags */

    char *kernel; /* scratch of the fused kernel */

    double d_lam;
};

/* linear_back_pack.c: operands of the backward pass.  An operand A, element (i, t) at
 * at[i row + t col]. */
struct linear_operand_view {
    const void *at;
    int64_t     row, col;
};

/* A = in[rows][ld], summed over its first d columns. */
struct linear_operand_view linear_back_rows(const struct linear *x, void *to,
                                            const float *in, int64_t ld, int rows,
                                            int d);
/* B = in[rows][ld]. */
const void *linear_back_pairs(const struct linear *x, void *to, const float *in,
                              int64_t ld, int rows);
/* B = in^T of in[64][ld], summed over its first d columns. */
const void *linear_back_cols(const struct linear *x, void *to, const float *in,
                             int64_t ld, int d);
/* c[m][n] (+)= sum over t from t0 to t1 - 1 of a(i, t) b[t][n]. */
void linear_back_product(const struct linear *x, float *c, int64_t ldc,
                         struct linear_operand_view a, const void *b, int64_t ldb,
                         int m, int n, int t0, int t1, int add);
/* c[64][ldv] = the sum over features of g and sums. */
void linear_back_product_features(const struct linear *x, float *c,
                                  const struct linear_operand_at *g, const void *sums);

/* linear_back_rows.c */
/* n and r: divide d_o, and make the gradients of the divisors. */
void linear_back_divide_rows(const struct linear_back *b, struct linear_back_scratch *r,
                             const struct feature_chunk *c);
void linear_back_store_q(const struct linear_back         *b,
                         const struct linear_back_scratch *r,
                         const struct feature_chunk       *c);
void linear_back_store_k(const struct linear_back *b, const struct feature_chunk *c,
                         float *dk, float *dv);
/* Store r->dk and r->dv, or where heads share keys add them to the rows of the segment
 * that starts at position `from`. */
void linear_back_add_k(const struct linear_back *b, const struct linear_back_scratch *r,
                       const struct feature_chunk *c, int64_t from);

/* linear_back_prefetch.c: chunk t of the segment comes next, if there is one; prefetch
 * so many parts of it. */
void linear_back_prefetch_chunk(const struct linear_back   *b,
                                struct linear_back_scratch *r, int64_t h,
                                const struct linear_back_segment *p, int64_t t,
                                unsigned what);
void linear_back_prefetch(const struct linear_back *b, struct linear_back_scratch *r,
                          int parts);

/* linear_back_load.c */
/* Load keys, queries and d_o of a chunk, in units of the sums over keys, which are
 * rescaled to hold it.  false: without `force`, the chunk has to be split. */
bool linear_back_load(const struct linear_back *b, struct linear_back_scratch *r,
                      const struct feature_chunk        *c,
                      const struct linear_back_boundary *m, bool force);
/* The part of it that sums over queries need. */
void linear_back_load_queries(const struct linear_back *b, struct linear_back_scratch *r,
                              const struct feature_chunk        *c,
                              const struct linear_back_boundary *m);
/* s = by s + the sum over lanes of decay[64] f n; decay NULL: 1. */
void linear_back_add_queries(const struct linear_back *b, struct linear_back_scratch *r,
                             struct linear_sums s, float by, const float *decay);
/* s = by s + the sum over lanes of decay[64] g v. */
void linear_back_add_keys(const struct linear_back *b, struct linear_back_scratch *r,
                          struct linear_sums s, float by, const float *decay);

/* linear_back_chunk.c */
/* Gradients of a chunk.  The sums over queries become those of the chunk before it. */
void linear_back_chunk(const struct linear_back *b, struct linear_back_scratch *r,
                       const struct feature_chunk *c, struct linear_back_boundary m,
                       int level, int64_t from);
/* Gradients of a chunk whose sums are over the whole sequence. */
void linear_back_chunk_alone(const struct linear_back *b, struct linear_back_scratch *r,
                             const struct feature_chunk *c,
                             struct linear_back_boundary m, int64_t from);

/* linear_back_fused.c: a chunk by one kernel.  false: the chunk is short or not finite,
 * and nothing was done. */
bool linear_back_can_fuse(const struct linear_back *b);
bool linear_back_fused_chunk(const struct linear_back *b, struct linear_back_scratch *r,
                             const struct feature_chunk *c,
                             struct linear_back_boundary m);

/* linear_back_den.c: gradients of denominators, where these are apart. */
/* z: sums over the keys that each lane sees. */
void linear_back_den_sums(const struct linear_back *b, struct linear_back_scratch *r,
                          const struct feature_chunk        *c,
                          const struct linear_back_boundary *m);
void linear_back_den(const struct linear_back *b, struct linear_back_scratch *r,
                     const struct feature_chunk *c, struct linear_back_boundary m);
/* rho of the whole sequence, with by_feature and nothing causal. */
void linear_back_den_features(const struct linear *x, struct linear_sums keys,
                              struct linear_sums queries);

/* linear_back_sums.c: sums over queries, whose units are e^-max_log. */
void   linear_back_sums_scale(const struct linear *x, struct linear_sums s, float by);
void   linear_back_sums_rescale(const struct linear *x, struct linear_sums s,
                                const float *max_log);
void   linear_back_sums_add(const struct linear *x, struct linear_sums to,
                            struct linear_sums from);
double linear_back_sums_dot(const struct linear *x, struct linear_sums a,
                            struct linear_sums b);

/* linear_back_segments.c: sums over segments, and these along a sequence. */
struct linear_back_segment linear_back_segment_at(const struct linear_back *b,
                                                  int64_t                   i);
/* The boundary of a segment for head h; of a sequence of one, the thread's own. */
struct linear_back_boundary linear_back_boundary(const struct linear_back         *b,
                                                 struct linear_back_scratch       *r,
                                                 int64_t                           h,
                                                 const struct linear_back_segment *p);
void                        linear_back_boundary_clear(const struct linear_back    *b,
                                                       struct linear_back_boundary *m);
bool linear_back_has_segments(const struct linear_back *b, int64_t s);
/* Add the keys of chunk t to s by the fused kernel; false: nothing was done. */
bool linear_back_fused_keys(const struct linear_back *b, struct linear_back_scratch *r,
                            int64_t h, const struct linear_back_segment *p, int64_t t,
                            struct linear_sums s);
/* Load the keys of chunk t, and prefetch those of the next. */
void linear_back_load_keys(const struct linear_back *b, struct linear_back_scratch *r,
                           int64_t h, const struct linear_back_segment *p, int64_t t,
                           struct linear_sums s);
/* The boundary sums of a segment alone. */
void linear_back_sum_keys(const struct linear_back *b, struct linear_back_scratch *r,
                          int64_t h, const struct linear_back_segment *p);
void linear_back_sum_queries(const struct linear_back *b, struct linear_back_scratch *r,
                             int64_t h, const struct linear_back_segment *p);
/* From sums of single segments to what each boundary needs. */
void linear_back_join_keys(const struct linear_back *b, struct linear_back_scratch *r,
                           int64_t h, int64_t s);
void linear_back_join_queries(const struct linear_back   *b,
                              struct linear_back_scratch *r, int64_t h, int64_t s);
/* lam^(len - 1 - lane): the decay of each lane up to the end of the chunk. */
const float *linear_back_decay_to_end(const struct linear_back   *b,
                                      const struct feature_chunk *c, float *decay);

/* linear_back_scan.c: gradients of a segment of a key/value head, for all heads that
 * share it, and of a whole sequence. */
void linear_back_run_segment(const struct linear_back *b, struct linear_back_scratch *r,
                             int64_t kv, const struct linear_back_segment *p);
void linear_back_run_sequence(const struct linear_back   *b,
                              struct linear_back_scratch *r, int64_t kv, int64_t s);

/* n floats, n a multiple of 16: a constant inner loop is what compilers vectorise. */
static inline void linear_back_scale(float *x, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i += 16)
        for (int j = 0; j < 16; j++)
            x[i + j] *= by;
}

static inline void linear_back_add(float *restrict to, const float *restrict from,
                                   int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        for (int j = 0; j < 16; j++)
            to[i + j] += from[i + j];
}

/* Positions of a chunk: lanes that have a key or a query. */
static inline int linear_back_length(const struct feature_chunk *c)
{
    return c->n > c->r1 ? c->n : c->r1;
}

static inline const struct decay *linear_back_decay(const struct linear_back   *b,
                                                    const struct feature_chunk *c)
{
    return b->x.decay ? &b->x.decay[c->h] : NULL;
}

#endif
