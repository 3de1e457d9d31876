/* routes.c -- a mechanism on several sets of keys and values, summed by gates.
 *
 *     O_i = sum_j P_ij y_i^j,   P_i = softmax(W x_i)
 *
 * where y^j is the result of route j.  With `top`, the largest so many of the gates are
 * kept (ties to the smaller number) and the others are 0.  A sum of weights that were
 * normalised already has lse 0, or -inf where no route saw anything.
 */
#include <math.h>
#include <stdlib.h>

#include "ref/ref.h"

/* Gates of all rows and their gradients [nq][n], a route's result and the gradient it
 * gets [nq][dv], its lse [nq] and weights [nq][len_k]. */
struct route_scratch {
    double *gate, *dgate, *y, *g, *lse;
    float  *a;
};

static bool is_kept(const struct ref_routes *r, const double *z, int64_t j)
{
    int64_t larger = 0;
    for (int64_t t = 0; t < r->n; t++)
        larger += z[t] > z[j] || (z[t] == z[j] && t < j);
    return !r->top || larger < r->top;
}

static void find_gates(const struct ref_routes *r, const double *x, double *gate)
{
    const double *w = r->part.call->params + ref_tensor(&r->part, -1, 0);
    double        most = -INFINITY, sum = 0;
    double       *z = gate + r->n; /* the place of the next row's, which follow */

    for (int64_t j = 0; j < r->n; j++) {
        z[j] = 0;
        for (int64_t t = 0; t < r->dim_x; t++)
            z[j] += w[j * r->dim_x + t] * x[t];
        most = fmax(most, z[j]);
    }
    for (int64_t j = 0; j < r->n; j++) {
        gate[j] = is_kept(r, z, j) ? exp(z[j] - most) : 0;
        sum += gate[j];
    }
    for (int64_t j = 0; j < r->n; j++)
        gate[j] /= sum;
}

/* Through P = softmax(W x): dz_j = P_j (dP_j - sum of P dP). */
static void gates_back(const struct ref_routes *r, int64_t i,
                       const struct route_scratch *scratch)
{
    const int64_t at = ref_tensor(&r->part, -1, 0);
    const double *w = r->part.call->params + at, *x = r->x + i * r->dim_x;
    const double *p = scratch->gate + i * r->n, *dp = scratch->dgate + i * r->n;
    double       *dw = r->part.dparams + at, *dx = r->dx + i * r->dim_x, mean = 0;

    for (int64_t j = 0; j < r->n; j++)
        mean += p[j] * dp[j];
    for (int64_t j = 0; j < r->n; j++)
        for (int64_t t = 0; t < r->dim_x; t++) {
            dw[j * r->dim_x + t] += p[j] * (dp[j] - mean) * x[t];
            dx[t] += p[j] * (dp[j] - mean) * w[j * r->dim_x + t];
        }
}

/* The part of route j; its own gradient where `back`. */
static struct ref_part route(const struct ref_routes *r, int64_t j,
                             const struct route_scratch *scratch, bool back)
{
    struct ref_part one = r->part;

    one.mech = r->inner;
    one.param0 = r->param0;
    one.mod_param = r->mod_param;
    one.row = j * r->part.heads + r->part.row;
    one.o = scratch->y;
    one.g = back ? scratch->g : NULL;
    one.lse = scratch->lse;
    one.weights = r->part.weights && !r->part.g ? scratch->a : NULL;
    r->pick(r->user, j, &one);
    return one;
}

/* lse and weights of row i. */
static void report(const struct ref_routes *r, int64_t i, double gate,
                   const struct route_scratch *scratch)
{
    const int64_t ld = r->part.call->plan->p.len_k;

    if (r->part.lse && scratch->lse[i] != -INFINITY) r->part.lse[i] = 0;
    for (int64_t t = i * ld; r->part.weights && t < i * ld + r->part.seq->nk; t++)
        r->part.weights[t] += (float)(gate * (double)scratch->a[t]);
}

/* The results of route j, and what they bring to the gates' gradients. */
static foci_status forward(const struct ref_routes *r, int64_t j,
                           const struct route_scratch *scratch)
{
    const struct ref_part one = route(r, j, scratch, false);
    const int64_t         dv = one.call->plan->p.dim_v;

    TRY(ref_part_run(&one));
    for (int64_t i = 0; i < one.seq->nq; i++) {
        const double gate = scratch->gate[i * r->n + j], *y = scratch->y + i * dv;
        if (!r->part.g) report(r, i, gate, scratch);
        if (gate == 0) continue; /* not computed */
        for (int64_t t = 0; t < dv; t++)
            r->part.o[i * dv + t] += gate * y[t];
        for (int64_t t = 0; r->part.g && t < dv; t++)
            scratch->dgate[i * r->n + j] += r->part.g[i * dv + t] * y[t];
    }
    return FOCI_OK;
}

static foci_status backward(const struct ref_routes *r, int64_t j,
                            const struct route_scratch *scratch)
{
    const struct ref_part one = route(r, j, scratch, true);
    const int64_t         dv = one.call->plan->p.dim_v;

    for (int64_t t = 0; t < one.seq->nq * dv; t++)
        scratch->g[t] = ref_rounded(one.call->rounds,
                                    scratch->gate[t / dv * r->n + j] * r->part.g[t]);
    return ref_part_run(&one);
}

static foci_status routes_run(const struct ref_routes    *r,
                              const struct route_scratch *scratch)
{
    const int64_t nq = r->part.seq->nq, dv = r->part.call->plan->p.dim_v;

    for (int64_t i = 0; i < nq; i++)
        find_gates(r, r->x + i * r->dim_x, scratch->gate + i * r->n);
    for (int64_t t = 0; t < nq * dv; t++)
        r->part.o[t] = 0;
    for (int64_t j = 0; j < r->n; j++)
        TRY(forward(r, j, scratch));
    if (!r->part.g) return FOCI_OK;
    for (int64_t i = 0; i < nq; i++)
        gates_back(r, i, scratch);
    for (int64_t j = 0; j < r->n; j++)
        TRY(backward(r, j, scratch));
    return FOCI_OK;
}

/* find_gates() writes one row beyond. */
static struct route_scratch carve_scratch(const struct ref_routes *r, struct arena *a)
{
    const foci_problem *p = &r->part.call->plan->p;
    const int64_t       nq = r->part.seq->nq;

    return (struct route_scratch){
        .gate = ref_doubles(a, nq + 1, r->n),
        .dgate = ref_doubles(a, nq, r->n),
        .y = ref_doubles(a, nq, p->dim_v),
        .g = ref_doubles(a, nq, p->dim_v),
        .lse = ref_doubles(a, nq, 1),
        .a = arena_alloc(a, nq,
                         (size_t)(r->part.weights ? p->len_k : 0) * sizeof(float)),
    };
}

foci_status ref_routes_run(const struct ref_routes *r)
{
    struct arena a = { 0 };

    carve_scratch(r, &a);
    if (!arena_ok(&a)) return FOCI_ERR_MEMORY;
    char *memory = calloc(a.used + 1, 1);
    if (!memory) return FOCI_ERR_MEMORY;
    a = (struct arena){ .base = memory };
    const struct route_scratch scratch = carve_scratch(r, &a);
    const foci_status          status = routes_run(r, &scratch);
    free(memory);
    return status;
}
