/* call_sums.c -- outputs of several calls, added up in f32 and rounded once. */
#include "engine/shared/call_sums.h"

#include <math.h>
#include <string.h>

void call_sums_each_row(const struct call_sums *s,
                        void (*job)(void *arg, int64_t i, int thread), void *arg)
{
    phases_run(s->k, s->shared, s->plan->ctx->threads,
               &(struct phase){ s->rows, SUM_ROWS, job, arg }, 1);
}

void call_sums_valid(const foci_plan *plan, const foci_io *io, bool queries,
                     struct seq *seqs, uint8_t *valid)
{
    const int64_t len = queries ? plan->p.len_q : plan->p.len_k;
    const int64_t n = plan_seqs(plan, io, seqs);

    memset(valid, 0, (size_t)(plan->p.batch * len));
    for (int64_t i = 0; i < n; i++) {
        const struct seq *s = &seqs[i];
        memset(valid + s->b * len + (queries ? s->q0 : s->k0), 1,
               (size_t)(queries ? s->nq : s->nk));
    }
}

/* One pass over rows. */
struct call_sums_pass {
    const struct call_sums *s;
    char                   *rows;
    const foci_layout      *l;
    int                     d;
    const float            *by;
    int64_t                 step;
    bool                    first;
};

static void add_job(void *arg, int64_t i, int thread)
{
    const struct call_sums_pass *a = arg;
    const struct call_sums      *s = a->s;
    const int                    d = a->d;

    (void)thread;
    for (int64_t h = 0; s->valid[i] && h < s->heads; h++) {
        const float        f = a->by ? a->by[(i * s->heads + h) * a->step] : 1;
        float             *sum = s->sum + (i * s->heads + h) * d;
        const char        *row = a->rows + call_sums_at(s, a->l, i, s->head0 + h);
        _Alignas(64) float part[SUM_COLUMNS];

        for (int c = 0; c < d; c += SUM_COLUMNS) {
            const int m = (int)min64(SUM_COLUMNS, d - c);
            s->k->load_rows(part, SUM_COLUMNS, row + (size_t)c * s->el, d,
                            (int)s->plan->p.dtype, 1, m);
            for (int t = 0; t < m; t++)
                sum[c + t] = (a->first ? 0 : sum[c + t]) + (f == 0 ? 0 : f * part[t]);
        }
    }
}

void call_sums_add(const struct call_sums *s, const char *from, const foci_layout *l,
                   int d, const float *by, int64_t step, bool first)
{
    struct call_sums_pass a = { s, (char *)from, l, d, by, step, first };
    call_sums_each_row(s, add_job, &a);
}

static void store_job(void *arg, int64_t i, int thread)
{
    const struct call_sums_pass *a = arg;
    const struct call_sums      *s = a->s;
    const int                    d = a->d;

    (void)thread;
    for (int64_t h = 0; h < s->heads; h++) {
        char *row = a->rows + call_sums_at(s, a->l, i, s->head0 + h);
        if (s->valid[i])
            s->k->store_rows(row, d, (int)s->plan->p.dtype,
                             s->sum + (i * s->heads + h) * d, d, 1.0f, 1, d);
        else
            memset(row, 0, (size_t)d * s->el);
    }
}

void call_sums_store(const struct call_sums *s, char *to, const foci_layout *l, int d)
{
    struct call_sums_pass a = { .s = s, .rows = to, .l = l, .d = d };
    call_sums_each_row(s, store_job, &a);
}

void call_sums_lse(const struct call_sums *s, const float *lse, float *out, bool first)
{
    const foci_problem *p = &s->plan->p;

    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = s->head0; h < s->head0 + s->heads; h++)
            for (int64_t i = 0; i < p->len_q; i++) {
                const int64_t t = (b * p->heads + h) * p->len_q + i;
                if (first) out[t] = -INFINITY;
                if (lse[t] != -INFINITY) out[t] = 0;
            }
}
