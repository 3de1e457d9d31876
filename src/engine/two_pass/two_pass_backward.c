/* two_pass_backward.c -- attention in two passes: gradients, through the means
 * first. */
#include "engine/two_pass/two_pass.h"

/* One backward pass. */
struct two_pass_back {
    const struct two_pass *s;
    const char            *d_o;
    char                  *dk;
};

/* dz = gamma d_o of a head, and dgamma = the sum of d_o (z - y) over rows that see a
 * run. */
static void gamma_job(void *arg, int64_t h, int thread)
{
    const struct two_pass_back *k = arg;
    const struct two_pass      *s = k->s;
    const foci_problem         *p = &s->outer->p;
    const int                   d = (int)p->dim_v, dtype = (int)p->dtype;
    const int64_t               head = s->all.head0 + h;
    double                      sum = 0;

    (void)thread;
    for (int64_t i = 0; i < s->all.rows; i++) {
        const size_t       at = call_sums_at(&s->all, &s->plan.p.o, i, head);
        const char        *g = k->d_o + call_sums_at(&s->all, &p->o, i, head);
        const float        f = s->valid[i] ? s->gamma[i * s->all.heads + h] : 0;
        const bool         sees = s->valid[i] && two_pass_sees_run(s, i);
        _Alignas(64) float x[SUM_COLUMNS], y[SUM_COLUMNS], z[SUM_COLUMNS];

        for (int c = 0; c < d; c += SUM_COLUMNS) {
            const int    m = (int)min64(SUM_COLUMNS, d - c);
            const size_t to = (size_t)c * s->all.el;
            s->all.k->load_rows(x, SUM_COLUMNS, g + to, d, dtype, 1, m);
            s->all.k->load_rows(y, SUM_COLUMNS, s->y + at + to, d, dtype, 1, m);
            s->all.k->load_rows(z, SUM_COLUMNS, s->z + at + to, d, dtype, 1, m);
            for (int t = 0; sees && t < m; t++)
                sum += (double)x[t] * ((double)z[t] - (double)y[t]);
            for (int t = 0; t < m; t++)
                x[t] = f == 0 ? 0 : f * x[t];
            s->all.k->store_rows(s->dz + at + to, d, dtype, x, SUM_COLUMNS, 1.0f, 1, m);
        }
    }
    s->d_gamma[h] = sum;
}

/* dk has the gradient of the first pass: add that of the copies. */
static void add_keys_job(void *arg, int64_t i, int thread)
{
    const struct two_pass_back *k = arg;
    const struct two_pass      *s = k->s;
    const foci_problem         *p = &s->outer->p;
    const struct plan_group    *g = s->stage->group;
    const int64_t               per = g->heads / g->kv_heads, d = p->dim_qk;

    (void)thread;
    if (!s->valid[i] || s->position[i] < s->stage->memory) return;
    for (int64_t kv = 0; kv < g->kv_heads; kv++) {
        char *to = k->dk + call_sums_at(&s->all, &p->k, i, g->kv0 + kv);
        for (int64_t c = 0; c < d; c += SUM_COLUMNS) {
            const int          m = (int)min64(SUM_COLUMNS, d - c);
            const size_t       skip = (size_t)c * s->all.el;
            _Alignas(64) float sum[SUM_COLUMNS], part[SUM_COLUMNS];

            s->all.k->load_rows(sum, SUM_COLUMNS, to + skip, d, (int)p->dtype, 1, m);
            for (int64_t h = kv * per; h < (kv + 1) * per; h++) {
                const char *from =
                    s->dk + call_sums_at(&s->all, &s->plan2.p.k, i, g->head0 + h);
                s->all.k->load_rows(part, SUM_COLUMNS, from + skip, d, (int)p->dtype, 1,
                                    m);
                for (int t = 0; t < m; t++)
                    sum[t] += part[t];
            }
            s->all.k->store_rows(to + skip, d, (int)p->dtype, sum, SUM_COLUMNS, 1.0f, 1,
                                 m);
        }
    }
}

/* dy += (1 - gamma) d_o, where dy has the gradient through the means. */
static void add_direct(struct two_pass *s, const char *d_o)
{
    const int d = (int)s->outer->p.dim_v;

    call_sums_add(&s->all, s->dy, &s->plan.p.o, d, NULL, 0, true);
    for (int64_t i = 0; i < s->all.rows * s->all.heads; i++)
        s->gamma[i] = 1 - s->gamma[i];
    call_sums_add(&s->all, d_o, &s->outer->p.o, d, s->gamma, 1, false);
    call_sums_store(&s->all, s->dy, &s->plan.p.o, d);
}

void two_pass_backward(const struct execution *exec, const struct stage *stage,
                       const foci_io *io, const float *saved, const foci_grads *g)
{
    const foci_plan *plan = exec->plan;
    struct two_pass  s;
    const int        d = (int)plan->p.dim_qk;

    two_pass_begin(&s, exec, stage, io, (float *)saved, true);
    struct two_pass_back k = { &s, g->d_o, g->dk };
    phases_run(s.all.k, exec->shared, plan->ctx->threads,
               &(struct phase){ s.all.heads, 1, gamma_job, &k }, 1);

    const struct execution first = { .plan = &s.plan, .shared = exec->shared };
    const struct execution means = { .plan = &s.plan2, .shared = exec->shared };
    const foci_io          two = two_pass_second_io(&s), one = two_pass_first_io(&s);
    foci_grads             mine = *g;
    struct call_sums       dq = s.all;
    dq.sum = s.dq;
    mine.d_o = s.dz;
    mine.dk = s.dk;
    mine.dv = s.dy;
    engine_exact.backward(&means, &s.means, &two, s.saved_z, &mine);
    if (g->dq) call_sums_add(&dq, g->dq, &plan->p.q, d, NULL, 0, true);

    add_direct(&s, g->d_o);
    mine = *g;
    mine.d_o = s.dy;
    engine_exact.backward(&first, &s.first, &one, s.saved_y, &mine);
    if (g->dq) {
        call_sums_add(&dq, g->dq, &plan->p.q, d, NULL, 0, false);
        call_sums_store(&dq, g->dq, &plan->p.q, d);
    }
    if (g->dk) call_sums_each_row(&s.all, add_keys_job, &k);
    for (int64_t h = 0; g->dparams && h < s.all.heads; h++)
        g->dparams[stage->group->param0[0] + h] += (float)s.d_gamma[h];
}
