/* exact_centroids.c -- centroids of routing move towards their rows.
 *
 *     c_t <- decay c_t + (1 - decay)/2 mean of its queries + (1 - decay)/2 mean of its keys
 *
 * over all sequences of the batch, with rows after the mechanism's own map.  Where a
 * centroid has no queries, or no keys, c_t takes the place of their mean.  Non-finite
 * rows are left out.  Sums are doubles, in the order of the rows.
 */
#include <math.h>
#include <string.h>

#include "engine/exact/order/exact_order.h"

/* Of one head: the sum of the rows of each label and their number, of queries first. */
struct centroid_sums {
    double *sum;   /* [2][labels][d.q] */
    double *count; /* [2][labels] */
};

static bool finite(const double *row, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        if (!isfinite(row[c])) return false;
    return true;
}

static void add_row(const struct exact *x, struct centroid_sums *m,
                    const struct exact_seq *s, int64_t set, bool keys, int64_t i,
                    int64_t label, struct label_scratch *r)
{
    const int64_t at = (keys ? x->order->labels : 0) + label;

    label_load_double(x, s, set, keys, i, r);
    if (!finite(r->exact, x->d.q)) return;
    for (int64_t c = 0; c < x->d.q; c++)
        m->sum[at * x->d.q + c] += r->exact[c];
    m->count[at]++;
}

/* The rows of one sequence, by their labels or by the lists of labels. */
static void add_seq(const struct exact *x, struct centroid_sums *m,
                    const struct exact_seq *s, int64_t set, struct label_scratch *r)
{
    const struct order *o = x->order;

    if (o->topk) {
        for (int64_t e = 0; e < o->labels * o->topk_q; e++)
            add_row(x, m, s, set, false, o->list_q[set * o->entries_q + e],
                    e / o->topk_q, r);
        for (int64_t e = 0; e < o->labels * o->topk_k; e++)
            add_row(x, m, s, set, true, o->list_k[set * o->entries_k + e],
                    e / o->topk_k, r);
        return;
    }
    for (int64_t i = 0; i < s->s.nq; i++)
        add_row(x, m, s, set, false, i,
                o->label_q[set * o->q_rows + order_q_row(x, s) + i], r);
    for (int64_t j = 0; j < s->s.nk; j++)
        add_row(x, m, s, set, true, j,
                o->label_k[set * o->k_rows + order_k_row(x, s) + j], r);
}

static void move_centroids(const struct exact *x, const struct centroid_sums *m,
                           int64_t set, double decay, float *params)
{
    const struct order *o = x->order;
    const int64_t       at = x->stage->group->param0[0] + set * o->labels * x->d.q;

    for (int64_t t = 0; t < o->labels; t++) {
        const double n[2] = { m->count[t], m->count[o->labels + t] };

        for (int64_t c = 0; c < x->d.q; c++) {
            const double old = (double)x->io->params[at + t * x->d.q + c];
            double       to = decay * old;

            for (int side = 0; side < 2; side++) {
                const double sum = m->sum[(side * o->labels + t) * x->d.q + c];
                to += (1 - decay) / 2 * (n[side] > 0 ? sum / n[side] : old);
            }
            params[at + t * x->d.q + c] =
                n[0] + n[1] > 0 ? (float)to : x->io->params[at + t * x->d.q + c];
        }
    }
}

/* All heads in parallel; sums is [heads] of struct centroid_sums. */
static void add_heads(struct exact *x, double *sums, int64_t each,
                      const struct exact_seq *s)
{
    const struct order *o = x->order;
    const int           threads =
        team_size(exact_threads(x, x->heads, x->plan->cost.forward_flops));

#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        struct arena         mine = { .base = o->scratch +
                                              (size_t)exact_thread() * o->scratch_bytes };
        struct label_scratch scratch = label_scratch(x, &mine);

#pragma omp for schedule(dynamic, 1)
        for (int64_t h = 0; h < x->heads; h++) {
            struct centroid_sums m = { sums + h * each,
                                       sums + h * each + 2 * o->labels * x->d.q };
            add_seq(x, &m, s, h, &scratch);
        }
    }
}

foci_status exact_advance(const foci_plan *plan, const struct stage *s,
                          const foci_io *io, float *params)
{
    const foci_mech *mech = &s->group->mech;
    struct exact     x;
    struct arena     a = { .base = io->work };

    if (!mech->def->ema_decay || s->order.label != FOCI_LABEL_NEAREST) return FOCI_OK;
    exact_geometry(&x, plan, s);
    x.io = io;
    if (!x.max.seqs) return FOCI_OK;
    exact_forward_carve(&x, &a, NULL);

    const int64_t each = 2 * x.order->labels * (x.d.q + 1);
    const size_t  n = (size_t)(x.heads * each);
    double       *sums = ctx_alloc(plan->ctx, n, sizeof *sums);
    if (!sums) return FOCI_ERR_MEMORY;
    if (!x.order->topk) order_labels(&x);
    for (int64_t i = 0; i < x.n.seqs; i++) {
        if (x.order->topk) topk_lists(&x, i);
        add_heads(&x, sums, each, &x.seqs[i]);
    }
    for (int64_t h = 0; h < x.heads; h++) {
        const struct centroid_sums m = { sums + h * each,
                                         sums + h * each + 2 * x.order->labels * x.d.q };
        move_centroids(&x, &m, h, mech->def->ema_decay(mech), params);
    }
    ctx_free(plan->ctx, sums, n, sizeof *sums);
    return FOCI_OK;
}
