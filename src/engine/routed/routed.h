/* routed.h -- a mixture of attentions: what its files share.
 *
 *     o_i = sum_r P_ir y_ir,   P_i = softmax_r(W x_i)
 *
 * with y_r the inner mechanism on set r of keys and values.  With `top` all but the
 * largest gates of a row are 0 and the rest sum to one; which they are counts as
 * constant in the gradient.  Routes run one after the other, each with all threads.
 */
#ifndef FOCI_ROUTED_H
#define FOCI_ROUTED_H

#include "engine/engine.h"
#include "engine/shared/call_sums.h"

enum { MAX_ROUTES = 64 };

/* One execution of one stage. */
struct routed {
    struct call_sums         all; /* of its rows of queries */
    const foci_plan         *plan;
    const foci_problem      *p;
    const struct stage      *stage;
    const struct plan_group *group;
    const foci_io           *io;
    int64_t                  n; /* routes */
    int                      dv;

    /* Saved, or in work memory where nothing is saved: gates [rows][heads][n], and the
     * outputs of routes, laid out as p.o of their plans. */
    float *gates;
    char  *y;
    size_t y_bytes; /* of one route */
    float *inner_saved;

    struct seq *seqs;
    uint8_t    *valid;
    float      *lse;        /* [batch][heads of the problem][len_q] */
    char       *d_y;        /* gradient of one route's output */
    float      *dz;         /* [rows][heads][n] of gates, then of their logits */
    char       *inner_work; /* of the inner plans */
};

/* routed_gates.c */
/* gate[routes] of head h of the stage for the hidden state x. */
void routed_gates(const foci_plan *plan, const struct stage *s, const float *params,
                  const char *x, int64_t h, double *gate);
/* The gates of all rows. */
void routed_make_gates(struct routed *r);
/* dW and dx, from r->dz. */
void routed_gates_backward(const struct routed *r, const foci_grads *g);

#endif
