/* recall.h -- slots that tokens read and every segment writes: what its files share.
 *
 *     o_i = sum over t of softmax(s q_i.m_t) m_t
 *     m_t <- y/|y|,  y = m' + beta_t,  m' = softmax((s/tau) m_t.[m_t; K]) [m_t; V]
 *
 * Slots know nothing of each other, so they are the lanes of their own writing: each starts
 * from its own logit and itself, and takes tokens as they come.  What it has of a segment
 * that is not full yet is all that decoding keeps beside the slots.
 */
#ifndef FOCI_RECALL_H
#define FOCI_RECALL_H

#include "engine/lanes.h"
#include "plan/plan.h"
#include "state/state.h"

enum { RECALL_GROUPS = 16 }; /* of sequences, each with its own gradient of beta */

/* One execution of one stage. */
struct recall {
    const foci_plan      *plan;
    const foci_problem   *p;
    const struct stage   *stage;
    const struct kernels *k;
    const foci_io        *io;
    const foci_grads     *g; /* backward */
    foci_recall           r;
    float                 scale, write_scale;
    int         d, ld, slots, padded; /* slots: padded to whole blocks of lanes */
    size_t      el;
    int64_t     heads, head0, kv_heads, kv0, per_kv;
    int64_t     max_seqs, n_seqs, groups;
    struct seq *seqs;
    float      *f, *write_f; /* [LANES] in base 2 */

    double *dbeta;            /* [groups][heads][slots][d] */
    float *dk_rows, *dv_rows; /* [kv_heads][batch len][ld], where several heads share */

    char  *scratch; /* [threads] pieces */
    size_t scratch_bytes;
};

/* Of one thread. */
struct recall_room {
    float *m, *mt; /* slots [padded][ld], and by blocks of lanes [padded / 64][d][64] */
    float *top, *sum;     /* of the writing [padded] */
    float *ot;            /* likewise [padded / 64][d][64] */
    float *y;             /* [padded][ld] */
    float *q, *k, *v;     /* [LANES][ld] */
    float *qt, *out;      /* [d][LANES] */
    float *s, *ds;        /* [max(LANES, slots)][LANES] */
    float *share, *delta; /* [LANES] */

    /* Backward. */
    float *states;       /* [segments][slots][ld] before each */
    float *norms, *size; /* [segments][slots] log2 of the sums of writing; |y| */
    float *now, *next;   /* gradients of slots [slots][ld] */
    float *dyt;          /* as mt */
    float *g, *gt;       /* [LANES][ld], [d][LANES] */
    float *dk, *dv;      /* [LANES][ld] */
};

/* Rows of one head of a sequence, elements apart; o NULL: nobody reads. */
struct recall_rows {
    const char *q, *k, *v;
    char       *o;
    int64_t     q_step, k_step, v_step, o_step;
};

/* recall.c */
void recall_geometry(struct recall *x, const foci_plan *plan, const struct stage *s);
void recall_room_take(const struct recall *x, struct arena *a, bool backward,
                      struct recall_room *r);
void recall_room(const struct recall *x, int thread, bool backward,
                 struct recall_room *r);
/* f and write_f. */
void         recall_factors(struct recall *x);
const float *recall_beta(const struct recall *x, int64_t h);

/* recall_forward.c: slots as they start; the writing of a segment begins, takes n tokens
 * from row i on, and ends: norms and size, of slots, may be NULL. */
void recall_start(const struct recall *x, int64_t h, struct recall_room *r);
void recall_open(const struct recall *x, struct recall_room *r);
void recall_turn(const struct recall *x, const float *rows, float *turned);
void recall_write(const struct recall *x, const struct recall_rows *rows, int64_t i,
                  int64_t n, struct recall_room *r);
void recall_close(const struct recall *x, int64_t h, struct recall_room *r,
                  float *norms, float *size);
/* n tokens, of which the first is number pos of its sequence and row i; those before token
 * `written` are written. */
void recall_tokens(const struct recall *x, const struct recall_rows *rows, int64_t h,
                   int64_t pos, int64_t i, int64_t n, int64_t written,
                   struct recall_room *r);
struct few  recall_few(const struct recall *x, const float *slots);
struct many recall_tile(const struct recall *x, const struct recall_rows *rows,
                        int64_t j, int n, struct recall_room *r);

/* recall_backward.c: all that head h of a sequence gives. */
void recall_backward(const struct recall *x, int64_t group, const struct seq *s,
                     int64_t h, struct recall_room *r);
struct recall_rows recall_rows_of(const struct recall *x, const struct seq *s,
                                  int64_t h);

#endif
