/* rows.c -- rows of attention from what they see to their output, and the way back. */
#include <math.h>

#include "ref/ref.h"

static void add(double *y, double by, const double *x, int64_t n)
{
    for (int64_t t = 0; t < n; t++)
        y[t] += by * x[t];
}

static void zero(double *x, int64_t n)
{
    for (int64_t t = 0; t < n; t++)
        x[t] = 0;
}

/* o_i = sum of a_j keep_j (v_j + aV) over the columns seen */
void ref_attend(const struct ref_head *h, int64_t i, struct ref_row *r, double *o)
{
    ref_logits(h, i, r);
    ref_weigh(h, r);
    ref_drop(h, i, r);
    zero(o, h->dv);
    for (int64_t j = 0; j < h->cols; j++) {
        r->a[j] = ref_rounded(h->rounds, r->a[j]);
        if (!r->times[j]) continue;
        const int64_t more = ref_value_row(h, i, j);
        const double  a = r->a[j] * r->keep[j];
        add(o, a, h->v + j * h->dv, h->dv);
        if (more >= 0) add(o, a, h->p->call->params + more, h->dv);
    }
}

/* The gradient of weight j, and what the weight brings to its value. */
static double value_back(const struct ref_head *h, int64_t i, int64_t j,
                         const struct ref_row *r, const double *g)
{
    const int64_t more = ref_value_row(h, i, j);
    const double *params = h->p->call->params;
    const double  a = r->a[j] * r->keep[j];
    double        da = 0;

    for (int64_t t = 0; t < h->dv; t++)
        da += g[t] * (h->v[j * h->dv + t] + (more < 0 ? 0 : params[more + t]));
    if (!r->held[j]) add(h->dv_cols + j * h->dv, a, g, h->dv);
    if (more >= 0) add(h->p->dparams + more, a, g, h->dv);
    return r->keep[j] * da;
}

void ref_attend_back(const struct ref_head *h, int64_t i, const struct ref_row *r,
                     const double *o, const double *g)
{
    const int type = h->rounds ? (int)h->p->call->plan->p.dtype : REF_F64;
    double    mean = 0;

    for (int64_t j = 0; j < h->cols; j++)
        if (r->times[j]) r->da[j] = value_back(h, i, j, r, g);
    for (int64_t t = 0; t < h->dv; t++)
        mean += g[t] * ref_round(type, o[t]);
    const double dsink = ref_weigh_back(h, r, mean);
    if (h->sink >= 0) h->p->dparams[h->sink] += dsink;
    if (r->visible > 0) ref_logits_back(h, i, r);
}

void ref_spread(const struct ref_head *h, const struct ref_row *r, double by, double *to)
{
    for (int64_t c = 0; c < h->cols; c++) {
        if (!r->times[c]) continue;
        const foci_range keys =
            c < h->nk ? (foci_range){ c, c + 1 } : ref_slot_keys(h, c);
        const double a = by * r->a[c] * r->keep[c];
        for (int64_t j = keys.begin; j < keys.end; j++)
            to[j] += c < h->nk ? a : a * ref_slot_share(h, true, c, j);
    }
}

void ref_report(const struct ref_head *h, int64_t i)
{
    float *const to = h->p->weights ? ref_weights_at(h->p, i) : NULL;

    for (int64_t j = 0; to && j < h->nk; j++)
        to[j] = (float)h->spread[j];
    zero(h->spread, h->nk);
}

void ref_rows_plain(struct ref_head *h)
{
    const struct ref_part *p = h->p;

    for (int64_t i = p->rows.begin; i < p->rows.end; i += p->step) {
        double *o = p->o + i * h->dv;
        ref_see(h, i, &h->row);
        ref_attend(h, i, &h->row, o);
        if (p->g) {
            ref_attend_back(h, i, &h->row, o, p->g + i * h->dv);
            continue;
        }
        if (p->lse) p->lse[i] = h->row.lse;
        ref_spread(h, &h->row, 1, h->spread);
        ref_report(h, i);
    }
}

/* Each label that took a query attends to the keys it took; the outputs are averaged. */
static void topk_row(struct ref_head *h, int64_t i)
{
    const struct ref_part *p = h->p;
    double                *o = p->o + i * h->dv;
    double                 labels = 0;

    for (int64_t t = 0; t < h->n_labels; t++)
        labels += h->topk_q[t * h->nq + i];
    zero(o, h->dv);
    if (p->lse) p->lse[i] = -INFINITY;
    for (int64_t c = 0; p->g && c < h->dv; c++)
        h->g[c] = ref_rounded(h->rounds, p->g[i * h->dv + c] / labels);
    for (int64_t t = 0; t < h->n_labels; t++) {
        if (!h->topk_q[t * h->nq + i]) continue;
        ref_see_topk(h, i, t, &h->row);
        ref_attend(h, i, &h->row, h->o);
        add(o, 1 / labels, h->o, h->dv);
        if (p->lse && h->row.lse != -INFINITY) p->lse[i] = 0;
        if (p->g)
            ref_attend_back(h, i, &h->row, h->o, h->g);
        else
            ref_spread(h, &h->row, 1 / labels, h->spread);
    }
    if (!p->g) ref_report(h, i);
}

void ref_rows_topk(struct ref_head *h)
{
    for (int64_t i = h->p->rows.begin; i < h->p->rows.end; i += h->p->step)
        topk_row(h, i);
}
