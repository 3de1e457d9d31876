/* linear.h -- kernels that are products of features: what their files share.
 *
 * A row is walked pair by pair: weights w_ij come from closed forms where there are any,
 * else from features that are written out for every row, f = value e^log.  Features that are
 * rotated (rope) or rounded are always written out.
 *
 * Rounding is to bf16 or, for problems in f32, to floats; then sums are rounded too, after
 * every term: the error of this is the yardstick for engines that compute in f32.  Divisors
 * use features that are not rounded: rounding errors that they would share with products are
 * not shared in engines, which sum features times values.
 */
#ifndef FOCI_REF_LINEAR_H
#define FOCI_REF_LINEAR_H

#include "ref/ref.h"

/* Features of the rows of q or k, [rows][m], and gradients of what makes them. */
struct ref_features {
    const double *x;  /* [rows][dqk] as given */
    double       *dx; /* added to */
    int64_t       rows;
    int64_t       place; /* of row 0 */
    double        root;  /* what scales x */
    double       *value, *log, *dvalue, *dlog;
    double       *rounded, *rounded_log; /* value and log, rounded */
    double       *along;                 /* [directions][dqk]: w B */
    const double *quad;                  /* C [dqk][dqk] */
    bool          queries;               /* else keys */
};

/* Exponents of features e^(w.Aw + w.By + y.Cy): A a diagonal [d], the others [d][d]. */
struct ref_exponents {
    double *a, *bx, *by, *cx, *cy;
};

/* Means over rows: x x^T and y y^T [d][d], x and y [d]. */
struct ref_moments {
    int64_t d;
    double *xx, *yy, *x, *y;
};

struct ref_linear {
    const struct ref_part *p;
    foci_linear            l;
    const foci_mod        *rope;
    bool                   causal, written, logs;
    int                    type; /* of rounding; REF_F64: nothing is rounded */
    int64_t                nq, nk, dqk, dv, m;
    int64_t                memory; /* leading keys that take no gradient */
    double                 scale, length, lam;
    int64_t                theta; /* the parameter that lam comes from; -1: none */

    struct ref_features  q, k;
    const double        *omega; /* [directions][dqk] */
    int64_t              directions;
    struct ref_exponents e;
    struct ref_moments   means;
    double              *scratch; /* of ref_moments_solve() */

    /* One row: keys up to `n` are seen. */
    int64_t n;
    double  unit;            /* plain and rotated are in units e^unit */
    double *plain, *rotated; /* w_ij without the decay: of divisors, of outputs */
    double *fade;            /* the decay */
    double *a, *da;          /* weights */
    double *dplain, *drotated, *dfade;
    double *share;     /* [nk][m] of a feature's sum */
    double *top, *sum; /* [m] such sums, in units e^top */
    double *dn;        /* [dv] gradient of the output, divided */
    double  divisor, dlam, noise;
};

/* An operand of a product, and a sum, as rounded. */
static inline double ref_operand(const struct ref_linear *x, double value)
{
    return x->type == REF_F64 ? value : ref_round(x->type, value);
}

static inline double ref_sum(const struct ref_linear *x, double value)
{
    return x->type == FOCI_F32 ? (double)(float)value : value;
}

static inline void ref_add(const struct ref_linear *x, double *sum, double term)
{
    *sum = ref_sum(x, *sum + term);
}

/* exponents.c: the exponents, from parameters or from q and k. */
foci_status ref_exponents(struct ref_linear *x);

/* best_exponents.c: the ones that estimate best; doubles of scratch that this needs. */
void ref_moments_solve(foci_moments kind, const struct ref_moments *m, double *scratch,
                       struct ref_exponents *e);
int64_t ref_moments_scratch(int64_t d);

/* features.c */
int64_t ref_features_count(const foci_mech *m, const foci_linear *l, int64_t d);
void    ref_features_fill(const struct ref_linear *x, struct ref_features *f);
/* Adds to dx of row i. */
void ref_features_back(const struct ref_linear *x, const struct ref_features *f,
                       int64_t i);

/* pairs.c: w_ij, as features or a formula has it, to x->plain and x->rotated, which are
 * one without rope; the way back from x->dplain and x->drotated. */
void ref_pair(const struct ref_linear *x, int64_t i, int64_t j);
void ref_pair_back(const struct ref_linear *x, int64_t i, int64_t j);
/* The largest log of a product of features of row i. */
double ref_pair_unit(const struct ref_linear *x, int64_t i);

#endif
