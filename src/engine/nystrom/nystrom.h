/* nystrom.h -- softmax attention through a few landmarks: what its files share.
 *
 *     O = F Z (B V) + convolution of V,   Z = C^+
 *     F = softmax(s Q K~^T),  C = softmax(s Q~ K~^T),  B = softmax(s Q~ K^T)
 *
 * Xiong et al., "Nystromformer" (2021).  Landmark t of m of a sequence is the mean of
 * rows floor(t n/m) to floor((t + 1) n/m) - 1; m is never more than the queries or the
 * keys.  Rows are cut into chunks whose sums are added in order, so that results do not
 * depend on the number of threads.  All products are f32: the inverse can be large, and
 * would multiply the rounding of bf16.
 */
#ifndef FOCI_NYSTROM_H
#define FOCI_NYSTROM_H

#include "engine/engine.h"
#include "engine/nystrom/nystrom_inverse.h"
#include "engine/shared/few_rows.h"

enum {
    NYSTROM_CHUNK = 1024, /* rows of a sequence in one job */
    NYSTROM_RUNS = 8,     /* landmarks in one job of means */
    NYSTROM_BAND = 16,    /* rows of the convolution at a time */
    NYSTROM_SHARED = 256  /* from so many landmarks on, all threads share one inverse */
};

struct nystrom_seq {
    struct seq s;
    int64_t    m, at;          /* landmarks, and those of the sequences before */
    int64_t    q_sums, k_sums; /* rows of sums of chunks before */
};

/* Rows (or landmarks) from `first` on of a sequence. */
struct nystrom_chunk {
    int64_t seq, first, n;
    int64_t at; /* rows of sums before: each chunk has m */
};

struct nystrom_chunks {
    struct nystrom_chunk *chunk; /* [max] */
    int64_t               n, max, max_sums;
};

/* One execution of one stage. */
struct nystrom {
    const foci_plan      *plan;
    struct execution      exec; /* zero in dry runs */
    const foci_problem   *p;
    const struct stage   *stage;
    const struct kernels *k;
    const foci_io        *io;
    const foci_grads     *g; /* backward */
    foci_nystrom          l;
    float                 scale;
    int                   dq, dv, ldq, ldv;
    size_t                el; /* bytes of an element */
    int64_t               heads, head0, kv_heads, kv0, per_kv;
    int64_t               max_seqs, n_seqs;
    int64_t               max_landmarks;  /* of all sequences */
    int64_t               n_landmarks;    /* of one, at most */
    bool                  shared_inverse; /* all threads work on one */

    struct seq           *plain;
    struct nystrom_seq   *seqs;
    struct nystrom_chunks queries, keys, runs;
    float                *f; /* [LANES] scale in base 2 */

    /* Saved, [heads] or, of mk, [kv_heads] times [max_landmarks] rows: means, log2 of
     * the sums of B's weights, B V and Z (B V). */
    float *mq, *mk, *norm, *bv, *y;

    /* Sums of chunks, [heads][max_sums] rows: forward of B; backward of dY and of the
     * gradients of mk, of the gradients of mq. */
    float *part_m, *part_l, *part_v, *part_k, *part_q;

    /* Backward: [heads][max_landmarks] rows of gradients, and dots for those of B. */
    float *dmq, *dmk, *dy, *dbv, *delta;
    float *dq_rows; /* [heads][batch len_q][ldq], before those of the means are added */
    double *dw;     /* [heads][max of queries][width] */
    float  *taps;   /* [heads][width + 2 NYSTROM_BAND], zeros on either side */

    float  *matrices; /* one piece, or one for each thread */
    int64_t matrix_floats;
    char   *scratch; /* [threads] pieces */
    size_t  scratch_bytes;
};

/* Scratch of one thread. */
struct nystrom_scratch {
    float  *q, *g, *k, *v; /* [LANES][ldq], [LANES][ldv] */
    float  *qt, *gt;       /* [dq][LANES], [dv][LANES] */
    float  *s, *ds;        /* [max(LANES, n_landmarks)][LANES] */
    float  *ot, *dqt;      /* [dv][LANES], [dq][LANES] */
    float  *rows;          /* [LANES][ldv] */
    float  *window;        /* [LANES + width][ldv], of a convolution */
    float  *vec[4];        /* [LANES] */
    double *sum;           /* [ldq] */
};

/* Matrices of one inverse. */
struct nystrom_matrices {
    struct inverse inverse;
    float         *dz, *dc;
};

/* A head of a sequence whose matrix C is being inverted, by one thread or by all. */
struct nystrom_head {
    const struct nystrom     *x;
    const struct nystrom_seq *s;
    int64_t                   h;
    int                       thread;
    struct nystrom_matrices   all;
    float                    *z;
};

/* nystrom.c */
void                nystrom_thread_scratch(const struct nystrom *x, int thread,
                                           struct nystrom_scratch *r);
struct nystrom_head nystrom_head(const struct nystrom *x, int64_t seq, int64_t h,
                                 int thread, bool backward);
/* Run a job for every 64 landmarks of a head, which is its argument.  Run a phase of
 * jobs, one for each head: in parallel, or where all threads share an inverse one after
 * the other. */
void nystrom_blocks(struct nystrom_head *head, void (*job)(void *, int64_t, int));
void nystrom_heads(const struct nystrom *x, const struct phase *heads);

static inline foci_range nystrom_run(const struct nystrom_seq *s, int64_t t, int64_t n)
{
    return (foci_range){ t * n / s->m, (t + 1) * n / s->m };
}

/* The first of the rows of a sequence's landmarks among those of all sequences. */
static inline int64_t nystrom_row(const struct nystrom *x, const struct nystrom_seq *s,
                                  int64_t h)
{
    return h * x->max_landmarks + s->at;
}

/* Floats of the taps of a head. */
static inline int64_t nystrom_taps(const struct nystrom *x)
{
    return x->l.width + (int64_t)2 * NYSTROM_BAND;
}

/* Rows of a tensor from row i of a sequence on, as floats. */
void  nystrom_load(const struct nystrom *x, const void *base, const foci_layout *l,
                   int64_t b, int64_t row, int64_t head, int n, int d, int ld,
                   float *tile);
void *nystrom_address(const struct nystrom *x, void *base, const foci_layout *l,
                      int64_t b, int64_t row, int64_t head);

/* nystrom_forward.c */
void nystrom_forward(struct nystrom *x);
/* C and z of a head. */
void nystrom_invert(struct nystrom_head *head);
/* The means of a head of a sequence as keys and Z (B V) as values. */
struct few_keys nystrom_few_keys(const struct nystrom *x, const struct nystrom_seq *s,
                                 int64_t h);
/* n rows of q from row i on, and the same transposed. */
void nystrom_queries(const struct nystrom *x, const struct nystrom_seq *s, int64_t h,
                     int64_t i, int n, struct nystrom_scratch *r);
/* Landmarks t to t + n - 1 of a head as lanes: r->qt. */
void nystrom_lanes(const struct nystrom *x, const struct nystrom_seq *s, int64_t h,
                   int64_t t, int n, struct nystrom_scratch *r);
/* The keys and values of a tile. */
struct key_tile nystrom_key_tile(const struct nystrom *x, const struct nystrom_seq *s,
                                 int64_t kv, int64_t j, int n,
                                 struct nystrom_scratch *r);

/* nystrom_backward.c */
void nystrom_backward(struct nystrom *x);

/* nystrom_conv.c: add the convolution to n rows of o, its gradient to n rows of dv, and
 * to dw of a chunk.  r->g and r->gt are gradients of the block. */
void nystrom_conv(const struct nystrom *x, const struct nystrom_seq *s, int64_t h,
                  int64_t i, int n, float *rows, struct nystrom_scratch *r);
void nystrom_conv_dv(const struct nystrom *x, const struct nystrom_seq *s, int64_t h,
                     int64_t j, int n, float *rows, struct nystrom_scratch *r);
void nystrom_conv_dw(const struct nystrom *x, const struct nystrom_seq *s, int64_t h,
                     int64_t i, double *dw, struct nystrom_scratch *r);

#endif
