/* routed_gates.c -- gates of a mixture of attentions, and their gradients. */
#include <assert.h>
#include <math.h>

#include "engine/routed/routed.h"

/* Keep the k largest gates, of equal ones the first, and make them sum to one. */
static void keep_topk(double *gate, int64_t n, int64_t k)
{
    double sum = 0;

    for (int64_t left = n; left > k; left--) {
        int64_t least = -1;
        for (int64_t t = 0; t < n; t++)
            if (gate[t] >= 0 && (least < 0 || gate[t] <= gate[least])) least = t;
        gate[least] = -1;
    }
    for (int64_t t = 0; t < n; t++)
        sum += gate[t] < 0 ? 0 : gate[t];
    for (int64_t t = 0; t < n; t++)
        gate[t] = gate[t] < 0 ? 0 : gate[t] / sum;
}

/* z[n] = W x, in double, so that rounding makes no ties and breaks none. */
static void gate_logits(const foci_plan *plan, int64_t n, const float *w, const char *x,
                        double *z)
{
    const int64_t      d = plan->p.dim_x;
    const size_t       el = foci_dtype_bytes(plan->p.dtype);
    _Alignas(64) float part[SUM_COLUMNS];

    for (int64_t t = 0; t < n; t++)
        z[t] = 0;
    for (int64_t c = 0; c < d; c += SUM_COLUMNS) {
        const int m = (int)min64(SUM_COLUMNS, d - c);
        plan->ctx->kernels.load_rows(part, SUM_COLUMNS, x + (size_t)c * el, d,
                                     (int)plan->p.dtype, 1, m);
        for (int64_t t = 0; t < n; t++)
            for (int i = 0; i < m; i++)
                z[t] += (double)part[i] * (double)w[t * d + c + i];
    }
}

void routed_gates(const foci_plan *plan, const struct stage *s, const float *params,
                  const char *x, int64_t h, double *gate)
{
    const int64_t n = s->n_inner, topk = mech_top_routes(&s->group->mech);
    const float  *w = params + s->group->param0[0] + h * n * plan->p.dim_x;
    double        max = -INFINITY, sum = 0;

    assert(n <= MAX_ROUTES);
    gate_logits(plan, n, w, x, gate);
    for (int64_t t = 0; t < n; t++)
        max = fmax(max, gate[t]);
    for (int64_t t = 0; t < n; t++)
        sum += gate[t] = exp(gate[t] - max);
    for (int64_t t = 0; t < n; t++)
        gate[t] /= sum;
    if (topk && topk < n) keep_topk(gate, n, topk);
}

static void gates_job(void *arg, int64_t i, int thread)
{
    const struct routed *r = arg;
    const char *x = (const char *)r->io->x + call_sums_at(&r->all, &r->p->x, i, 0);

    (void)thread;
    for (int64_t h = 0; r->all.valid[i] && h < r->all.heads; h++) {
        double z[MAX_ROUTES] = { 0 };

        routed_gates(r->plan, r->stage, r->io->params, x, h, z);
        for (int64_t t = 0; t < r->n; t++)
            r->gates[(i * r->all.heads + h) * r->n + t] = (float)z[t];
    }
}

void routed_make_gates(struct routed *r) { call_sums_each_row(&r->all, gates_job, r); }

/*
 * Gradients
 */

/* r->dz: from gradients of gates to those of their logits. */
static void softmax_back(const struct routed *r)
{
    for (int64_t i = 0; i < r->all.rows * r->all.heads; i++) {
        const float *gate = r->gates + i * r->n;
        float       *dz = r->dz + i * r->n;
        double       mean = 0;

        if (!r->all.valid[i / r->all.heads]) continue;
        for (int64_t t = 0; t < r->n; t++)
            mean += (double)gate[t] * (double)dz[t];
        for (int64_t t = 0; t < r->n; t++)
            dz[t] = (float)((double)gate[t] * ((double)dz[t] - mean));
    }
}

/* Where gradients of the gates go. */
struct routed_grads {
    const struct routed *r;
    float               *dw;
    char                *dx;
};

/* dW += sum of dz x, for some columns of a row of W. */
static void weights_job(void *arg, int64_t i, int thread)
{
    const struct routed_grads *k = arg;
    const struct routed       *r = k->r;
    const int64_t              d = r->p->dim_x, chunks = div_up(d, SUM_COLUMNS);
    const int64_t              c = i % chunks * SUM_COLUMNS, ht = i / chunks;
    const int                  m = (int)min64(SUM_COLUMNS, d - c);
    double                     sum[SUM_COLUMNS] = { 0 };
    _Alignas(64) float         part[SUM_COLUMNS];

    (void)thread;
    for (int64_t row = 0; row < r->all.rows; row++) {
        const double z =
            r->all.valid[row] ? (double)r->dz[row * r->all.heads * r->n + ht] : 0;
        if (z == 0) continue;
        r->all.k->load_rows(part, SUM_COLUMNS,
                            (const char *)r->io->x +
                                call_sums_at(&r->all, &r->p->x, row, 0) +
                                (size_t)c * r->all.el,
                            d, (int)r->p->dtype, 1, m);
        for (int t = 0; t < m; t++)
            sum[t] += z * (double)part[t];
    }
    for (int t = 0; t < m; t++)
        k->dw[ht * d + c + t] += (float)sum[t];
}

/* dx += W^T dz, of all heads. */
static void x_job(void *arg, int64_t i, int thread)
{
    const struct routed_grads *k = arg;
    const struct routed       *r = k->r;
    const int64_t              d = r->p->dim_x, n = r->all.heads * r->n;
    const float               *w = r->io->params + r->group->param0[0];

    (void)thread;
    for (int64_t c = 0; r->all.valid[i] && c < d; c += SUM_COLUMNS) {
        const int m = (int)min64(SUM_COLUMNS, d - c);
        char     *to =
            k->dx + call_sums_at(&r->all, &r->p->x, i, 0) + (size_t)c * r->all.el;
        _Alignas(64) float part[SUM_COLUMNS];

        r->all.k->load_rows(part, SUM_COLUMNS, to, d, (int)r->p->dtype, 1, m);
        for (int64_t t = 0; t < n; t++)
            for (int e = 0; e < m; e++)
                part[e] += r->dz[i * n + t] * w[t * d + c + e];
        r->all.k->store_rows(to, d, (int)r->p->dtype, part, SUM_COLUMNS, 1.0f, 1, m);
    }
}

void routed_gates_backward(const struct routed *r, const foci_grads *g)
{
    const int64_t       jobs = div_up(r->p->dim_x, SUM_COLUMNS) * r->all.heads * r->n;
    struct routed_grads k = { r, g->dparams, g->dx };

    softmax_back(r);
    if (k.dw) {
        k.dw += r->group->param0[0];
        phases_run(r->all.k, r->all.shared, r->plan->ctx->threads,
                   &(struct phase){ jobs, 1, weights_job, &k }, 1);
    }
    if (k.dx) call_sums_each_row(&r->all, x_job, &k);
}
