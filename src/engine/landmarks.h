/* landmarks.h -- attention through means of queries and keys: what its files share.
 *
 *     O = F Z (B V) + convolution of V,   Z = C^+
 *     F = softmax(s Q K~^T),  C = softmax(s Q~ K~^T),  B = softmax(s Q~ K^T)
 *
 * Landmark t of m of a sequence is the mean of rows floor(t n/m) to floor((t+1) n/m); m is
 * never above the number of queries or of keys.  Rows are cut into chunks, each of which
 * has sums of its own that are added up in their order, so that nothing depends on the
 * number of threads.  All products are of floats: the inverse can be large, and what
 * halves of floats would round away comes back multiplied.
 */
#ifndef FOCI_LANDMARKS_H
#define FOCI_LANDMARKS_H

#include "engine/landmarks_inverse.h"
#include "engine/lanes.h"
#include "plan/plan.h"

enum {
    MARK_CHUNK = 1024, /* rows of a sequence that one job goes through */
    MARK_RUNS = 8,     /* landmarks whose means one job takes */
    MARK_BAND = 16,    /* rows of the convolution at a time */
    MARK_WIDE = 512    /* landmarks from which on threads share one inverse */
};

struct mark_seq {
    struct seq s;
    int64_t    m, at;          /* landmarks, and those of the sequences before */
    int64_t    q_sums, k_sums; /* rows of sums of chunks before */
};

/* Rows (or landmarks) from `first` on of a sequence. */
struct mark_chunk {
    int64_t seq, first, n;
    int64_t at; /* rows of sums before: each chunk has m */
};

struct mark_chunks {
    struct mark_chunk *chunk; /* [max] */
    int64_t            n, max, max_sums;
};

/* One execution of one stage. */
struct landmarks {
    const foci_plan      *plan;
    const foci_problem   *p;
    const struct stage   *stage;
    const struct kernels *k;
    const foci_io        *io;
    const foci_grads     *g; /* backward */
    foci_landmarks        l;
    float                 scale;
    int                   dq, dv, ldq, ldv;
    size_t                el; /* bytes of an element */
    int64_t               heads, head0, kv_heads, kv0, per_kv;
    int64_t               max_seqs, n_seqs, max_marks, count; /* count: of a sequence */
    bool                  wide;

    struct seq        *plain;
    struct mark_seq   *seqs;
    struct mark_chunks queries, keys, runs;
    float             *f; /* [LANES] scale in base 2 */

    /* Saved, [heads] or, of mk, [kv_heads] times [max_marks] rows: means, log2 of the sums
     * of B's weights, B V and Z (B V). */
    float *mq, *mk, *norm, *bv, *y;

    /* Sums of chunks, [heads][max_sums] rows: forward of B; backward of dY and of the
     * gradients of mk, of the gradients of mq. */
    float *part_m, *part_l, *part_v, *part_k, *part_q;

    /* Backward: [heads][max_marks] rows of gradients, and dots for those of B. */
    float *dmq, *dmk, *dy, *dbv, *delta;
    float *dq_rows; /* [heads][batch len_q][ldq], before those of the means are added */
    double *dw;     /* [heads][max of queries][width] */
    float  *taps;   /* [heads][width + 2 MARK_BAND], zeros on either side */

    float  *matrices; /* one piece, or one for each thread */
    int64_t matrix_floats;
    char   *scratch; /* [threads] pieces */
    size_t  scratch_bytes;
};

/* Of one thread. */
struct mark_room {
    float  *q, *g, *k, *v; /* [LANES][ldq], [LANES][ldv] */
    float  *qt, *gt;       /* [dq][LANES], [dv][LANES] */
    float  *s, *ds;        /* [max(LANES, count)][LANES] */
    float  *ot, *dqt;      /* [dv][LANES], [dq][LANES] */
    float  *rows;          /* [LANES][ldv] */
    float  *near;          /* [LANES + width][ldv], of a convolution */
    float  *vec[4];        /* [LANES] */
    double *sum;           /* [ldq] */
};

/* Matrices of one inverse. */
struct mark_matrices {
    struct inverse inverse;
    float         *dz, *dc;
};

/* A head of a sequence whose landmarks are being inverted, by one thread or by all. */
struct mark_head {
    const struct landmarks *x;
    const struct mark_seq  *s;
    int64_t                 h;
    int                     thread;
    struct mark_matrices    all;
    float                  *z;
};

/* landmarks.c */
void landmarks_room(const struct landmarks *x, int thread, struct mark_room *r);
struct mark_head landmarks_head(const struct landmarks *x, int64_t seq, int64_t h,
                                int thread, bool backward);
/* A job for every 64 landmarks; arg is the head.  A phase of jobs that invert, by all
 * threads each in its turn where that is how it goes. */
void landmarks_blocks(struct mark_head *head, void (*job)(void *, int64_t, int));
void landmarks_heads(const struct landmarks *x, const struct phase *heads);

static inline foci_range landmarks_run(const struct mark_seq *s, int64_t t, int64_t n)
{
    return (foci_range){ t * n / s->m, (t + 1) * n / s->m };
}

/* Row number i of what is saved for the landmarks of a sequence. */
static inline int64_t marks_at(const struct landmarks *x, const struct mark_seq *s,
                               int64_t h)
{
    return h * x->max_marks + s->at;
}

/* Rows of a tensor from row i of a sequence on, as floats. */
void  landmarks_load(const struct landmarks *x, const void *base, const foci_layout *l,
                     int64_t b, int64_t row, int64_t head, int n, int d, int ld,
                     float *tile);
void *landmarks_place(const struct landmarks *x, void *base, const foci_layout *l,
                      int64_t b, int64_t row, int64_t head);

/* landmarks_forward.c */
void landmarks_forward(struct landmarks *x);
/* C and z of a head. */
void landmarks_invert(struct mark_head *head);
/* The means of a head of a sequence as keys and Z (B V) as values. */
struct few landmarks_few(const struct landmarks *x, const struct mark_seq *s, int64_t h);
/* q rows of a block, and turned. */
void landmarks_queries(const struct landmarks *x, const struct mark_seq *s, int64_t h,
                       int64_t i, int n, struct mark_room *r);
/* Landmarks t to t + n of a head as lanes. */
void landmarks_lanes(const struct landmarks *x, const struct mark_seq *s, int64_t h,
                     int64_t t, int n, struct mark_room *r);
/* The keys and values of a tile. */
struct many landmarks_tile(const struct landmarks *x, const struct mark_seq *s,
                           int64_t kv, int64_t j, int n, struct mark_room *r);

/* landmarks_backward.c */
void landmarks_backward(struct landmarks *x);

/* landmarks_conv.c: to the n rows of o of a block, to those of dv, and to dw of a chunk;
 * r->v is room, r->g and r->gt are gradients of the block. */
void landmarks_conv(const struct landmarks *x, const struct mark_seq *s, int64_t h,
                    int64_t i, int n, float *rows, struct mark_room *r);
void landmarks_conv_dv(const struct landmarks *x, const struct mark_seq *s, int64_t h,
                       int64_t j, int n, float *rows, struct mark_room *r);
void landmarks_conv_dw(const struct landmarks *x, const struct mark_seq *s, int64_t h,
                       int64_t i, double *dw, struct mark_room *r);

#endif
