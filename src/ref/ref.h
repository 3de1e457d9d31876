/* ref.h -- the judge: attention by its written-out formulas, in double precision.
 *
 * It reads plans and descriptors only, never what an engine made of them, and
 * walks one row of one head at a time, so it needs memory of order n, not n^2.
 * Tests call it with tensors of doubles (REF_F64), where nothing is rounded.
 */
#ifndef FOCI_REF_H
#define FOCI_REF_H

#include "plan/plan.h"

/* The type of an element: a foci_dtype, or this. */
enum { REF_F64 = FOCI_F16 + 1 };

double ref_load(int type, const void *p, int64_t i);
/* Rounds to nearest even; what is too large becomes infinite, NaN stays NaN. */
void ref_store(int type, void *p, int64_t i, double value);
/* The number of that type nearest to value. */
double ref_round(int type, double value);

static inline double ref_word(bool words, double value)
{
    return words ? ref_round(FOCI_BF16, value) : value;
}

/* An execution.  Tensors of io and grads have elements of `type` and the layouts
 * of the plan; io->lse, io->params and grads->dparams are not looked at. */
struct ref_call {
    const foci_plan  *plan;
    const foci_io    *io;
    const foci_grads *grads; /* NULL: forward only */
    int               type;
    const double     *params;  /* [n_floats] */
    double           *lse;     /* [batch][heads][len_q], or NULL */
    double           *dparams; /* [n_floats], added to; or NULL */
    float            *weights; /* [batch][heads][len_q][len_k], or NULL */

    /* Round the operands of every product to bf16 first, and what backward reads of
     * o to the plan's type: how far off that is, is the yardstick of engines that
     * do the same. */
    bool words;
};

foci_status ref_run(const struct ref_call *call);

/*
 * One head of one sequence
 */

struct ref_head {
    const foci_mech *mech;
    bool             causal;
    int64_t          nq, nk, dqk, dv;
    const double    *q, *k, *v; /* [nq][dqk], [nk][dqk], [nk][dv] */
    const double    *number;    /* [n_mods] a modifier's tensor of this head */
    const uint8_t   *mask;      /* [nq][ld]; NULL: none */
    const float     *bias;      /* likewise */
    int64_t          ld;
    bool             words; /* as in ref_call */

    /* By ref_prepare(): q and k as the logits read them, and what the modifiers
     * say of all rows alike. */
    double *uq, *uk; /* [nq][dqk], [nk][dqk] */
    bool    unit;
    double  scale;
    double  cap;  /* 0: none */
    int     sink; /* the modifier that is one, or -1 */
};

/* One row of attention.  Arrays are [nk] and hold nothing where seen is 0. */
struct ref_row {
    uint8_t *seen;
    double  *dot;   /* uq_i . uk_j */
    double  *x;     /* logits */
    double  *slope; /* of the cap */
    double  *a;     /* weights: o_i = sum_j a_j v_j */
    int64_t  visible;
    double   row;    /* product of the row factors */
    double   f;      /* x_j = cap(f dot_j + bias_j) */
    double   a_sink; /* weight that the sink took */
    double   lse;    /* log of the divisor; -inf where it would be 0 */
    double   n;      /* what relu2 divides by */
};

void ref_prepare(struct ref_head *h);

/* All of row i but a, a_sink and lse. */
void ref_logits(const struct ref_head *h, int64_t i, struct ref_row *r);

/* And those. */
void ref_weigh(const struct ref_head *h, struct ref_row *r);

/* dx[nk] of the logits, from da[nk] of the weights and mean = sum_j a_j da_j, which
 * is g_i . o_i.  The result is the gradient of the sink's logit. */
double ref_weigh_back(const struct ref_head *h, const struct ref_row *r,
                      const double *da, double mean, double *dx);

/* Adds what dx of row i brings to duq and duk, gradients of uq and uk, and to
 * dnumber[n_mods]. */
void ref_logits_back(const struct ref_head *h, int64_t i, const struct ref_row *r,
                     const double *dx, double *duq, double *duk, double *dnumber);

/* Adds to dx[n][dqk], gradient of rows x of q or k, what du of their prepared form
 * brings. */
void ref_prepare_back(const struct ref_head *h, int64_t n, const double *x,
                      const double *du, double *dx);

#endif
