/* memformer.h -- slots that tokens read and every segment writes: what its files share.
 *
 *     o_i = sum over t of softmax(s q_i.m_t) m_t
 *     m_t <- y/|y|,  y = m' + beta_t,  m' = softmax((s/tau) m_t.[m_t; K]) [m_t; V]
 *
 * Wu et al., "Memformer" (2022).  Slots do not depend on each other within a segment,
 * so in the writing they are the lanes of a block: an online softmax that starts with
 * the slot's own logit and value and then takes the tokens.  For a segment that is not
 * complete yet, decoding keeps the sums of this softmax beside the slots.
 */
#ifndef FOCI_MEMFORMER_H
#define FOCI_MEMFORMER_H

#include "engine/engine.h"
#include "engine/shared/few_rows.h"
#include "state/state.h"

/* Groups of sequences, at most, that each sum a gradient of beta of their own. */
enum { MEMFORMER_GROUPS = 16 };

/* One execution of one stage. */
struct memformer {
    const foci_plan      *plan;
    struct execution      exec; /* zero in dry runs */
    const foci_problem   *p;
    const struct stage   *stage;
    const struct kernels *k;
    const foci_io        *io;
    const foci_grads     *g; /* backward */
    foci_memformer        r;
    float                 scale, write_scale;
    float                *f, *write_f; /* [LANES] the same for logits in base 2 */
    int     d, ld, slots, padded;      /* padded: slots in whole blocks of lanes */
    size_t  el;                        /* bytes of an element */
    int64_t heads, head0, kv_heads, kv0, per_kv;
    int64_t max_seqs, n_seqs, groups;

    struct seq *seqs;
    double     *dbeta;        /* [groups][heads][slots][d] */
    float *dk_rows, *dv_rows; /* [kv_heads][batch len][ld], where several heads share */

    char  *scratch; /* [threads] of scratch_bytes */
    size_t scratch_bytes;
};

/* Scratch of one thread. */
struct memformer_scratch {
    float *m, *mt; /* slots [padded][ld], and by blocks of lanes [padded / 64][d][64] */
    float *max, *sum;     /* [padded] of the softmax of the writing */
    float *ot;            /* [padded / 64][d][64] its values */
    float *y;             /* [padded][ld] */
    float *q, *k, *v;     /* [LANES][ld] */
    float *qt, *out;      /* [d][LANES] */
    float *s, *ds;        /* [max(LANES, slots)][LANES] */
    float *share, *delta; /* [LANES] */

    /* Backward. */
    float *before;        /* [segments][slots][ld] slots before each segment */
    float *norms, *sizes; /* [segments][slots] log2 of the sums of the writing; |y| */
    float *norm, *y_dot;  /* [padded] of one segment: that log2; dots for the softmax */
    float *d_slots, *next; /* [slots][ld] gradients before and after a segment */
    float *dyt;            /* as mt */
    float *g, *gt;         /* [LANES][ld], [d][LANES] */
    float *dk, *dv;        /* [LANES][ld] */
};

/* Rows of one head of a sequence, with their distances in elements.  o NULL: no
 * queries. */
struct memformer_rows {
    const char *q, *k, *v;
    char       *o;
    int64_t     q_step, k_step, v_step, o_step;
};

/* memformer.c */
void memformer_geometry(struct memformer *x, const foci_plan *plan,
                        const struct stage *s);
void memformer_scratch_carve(const struct memformer *x, struct arena *a, bool backward,
                             struct memformer_scratch *r);
void memformer_thread_scratch(const struct memformer *x, int thread, bool backward,
                              struct memformer_scratch *r);
/* Fill f and write_f. */
void                  memformer_factors(struct memformer *x);
const float          *memformer_beta(const struct memformer *x, int64_t h);
struct memformer_rows memformer_rows_of(const struct memformer *x, const struct seq *s,
                                        int64_t h);

/* memformer_forward.c */
/* r->m = the slots at the start of a sequence. */
void memformer_start(const struct memformer *x, int64_t h, struct memformer_scratch *r);
/* Slots [padded][ld] to blocks of lanes [padded / 64][d][64]. */
void memformer_transpose(const struct memformer *x, const float *rows,
                         float *transposed);
/* The writing of a segment: begin, add n tokens from row i on, end.  norms and sizes
 * [slots] may be NULL. */
void memformer_begin_segment(const struct memformer *x, struct memformer_scratch *r);
void memformer_write(const struct memformer *x, const struct memformer_rows *rows,
                     int64_t i, int64_t n, struct memformer_scratch *r);
void memformer_end_segment(const struct memformer *x, int64_t h,
                           struct memformer_scratch *r, float *norms, float *sizes);
/* Read and write n tokens from row i on, the first of which is at position pos of its
 * sequence.  Tokens before position `written` are written. */
void memformer_tokens(const struct memformer *x, const struct memformer_rows *rows,
                      int64_t h, int64_t pos, int64_t i, int64_t n, int64_t written,
                      struct memformer_scratch *r);
struct few_keys memformer_few_keys(const struct memformer *x, const float *slots);
struct key_tile memformer_key_tile(const struct memformer      *x,
                                   const struct memformer_rows *rows, int64_t j, int n,
                                   struct memformer_scratch *r);

/* memformer_backward.c: all gradients of head h of a sequence. */
void memformer_backward(const struct memformer *x, int64_t group, const struct seq *s,
                        int64_t h, struct memformer_scratch *r);

#endif
