/* exact_topk.c -- top-k labels: each takes the queries and the keys that are nearest to
 * it.
 *
 * Every label is a cell, and a query may be in several.  Sums are kept for each entry
 * of the lists, one sequence after the other, and the output of a row is the mean of
 * its entries. Backward, the entries of a sequence are computed once more: saving all
 * of them would take as much memory as there are entries, instead of their lists.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/exact/exact_score.h"
#include "engine/exact/order/exact_sweep.h"

/*
 * Entries
 */

/* The softmax of the entries of the current sequence. */
static void attend_entries(struct exact *x)
{
    struct order *o = x->order;

    if (o->visible) {
        memset(o->visible, 0, (size_t)(x->heads * o->sums_q) * sizeof *o->visible);
        order_cells(x, 0, false);
        sweep_count(x, 0);
    }
    order_start(x);
    order_cells(x, 0, false);
    sweep_forward(x, 0);
}

/* The factor of an entry's sum of values. */
static float factor_of(const struct exact *x, int64_t at)
{
    const struct order *o = x->order;
    const float         l = o->l[at];
    int64_t             visible[LANES] = { o->visible ? o->visible[at] : 0 };
    float               share[LANES];

    if (x->kind == FOCI_WEIGH_RELU2) {
        exact_shares(x, visible, share);
        return share[0] * (x->dropout.on ? x->dropout.scale : 1);
    }
    if (l == 0) return 0;
    return (x->dropout.on ? x->dropout.scale : 1) /
           (x->kind == FOCI_WEIGH_L2NORM ? sqrtf(l) : l);
}

/* The logarithm of the normaliser of an entry. */
static float norm_of(const struct exact *x, int64_t at)
{
    const struct order *o = x->order;
    const double        half = x->kind == FOCI_WEIGH_L2NORM ? 0.5 : 1;

    if (x->kind == FOCI_WEIGH_RELU2)
        return factor_of(x, at) / (x->dropout.on ? x->dropout.scale : 1);
    if (o->l[at] == 0) return INFINITY;
    return (float)((double)o->m[at] + log2((double)o->l[at]) * half);
}

static char *row_at(const struct exact *x, const void *base, const foci_layout *l,
                    int64_t h, int64_t i)
{
    const struct seq *s = &x->seqs[x->order->seq0].s;
    const int64_t     at =
        s->b * l->batch + (s->q0 + i) * l->row + (x->head0 + h) * l->head;

    return (char *)base + (size_t)at * foci_dtype_bytes(x->p->dtype);
}

/* Store the mean of the entries of each row. */
static void store_head(const struct exact *x, int64_t h, float *saved)
{
    const struct order     *o = x->order;
    const struct exact_seq *s = &x->seqs[o->seq0];
    const int64_t           first = order_q_row(x, s);
    float                  *mean = o->mean + h * x->p->len_q * x->d.ldv;
    const int32_t          *chosen = o->chosen + h * o->q_rows + first;
    float                  *lse = x->io->lse;

    if (lse) lse += (s->s.b * x->p->heads + x->head0 + h) * x->p->len_q + s->s.q0;
    memset(mean, 0, (size_t)(s->s.nq * x->d.ldv) * sizeof *mean);
    for (int64_t e = 0; e < o->labels * o->topk_q; e++) {
        const int64_t at = h * o->sums_q + e, i = o->list_q[h * o->entries_q + e];
        const float   by = factor_of(x, at);

        for (int c = 0; c < x->d.v; c++)
            mean[i * x->d.ldv + c] += by * o->o[at * x->d.ldv + c];
        if (lse && by != 0) lse[i] = 0;
    }
    for (int64_t i = 0; i < s->s.nq; i++) {
        const float share = chosen[i] ? 1 / (float)chosen[i] : 0;
        x->k->store_rows(row_at(x, x->io->o, &x->p->o, h, i), 0, (int)x->p->dtype,
                         mean + i * x->d.ldv, 0, share, 1, x->d.v);
        if (saved) saved[h * o->q_rows + first + i] = INFINITY;
    }
}

/* The argument of jobs, which are heads. */
struct topk_pass {
    struct exact *x;
    float        *saved;
    int64_t       head_of_kv; /* of the heads that share keys, the one at work */
};

static void store_job(void *arg, int64_t h, int thread)
{
    const struct topk_pass *t = arg;

    (void)thread;
    store_head(t->x, h, t->saved);
}

void topk_forward(struct exact *x, float *saved)
{
    struct topk_pass t = { .x = x, .saved = saved };

    for (int64_t i = 0; i < x->n.seqs; i++) {
        const int threads = exact_threads(x, x->heads, x->plan->cost.forward_flops);

        if (!x->seqs[i].s.nq) continue;
        topk_lists(x, i);
        topk_count_chosen(x);
        attend_entries(x);
        phases_run(x->k, x->exec.shared, threads,
                   &(struct phase){ x->heads, 1, store_job, &t }, 1);
    }
}

/*
 * Backward
 */

void topk_begin_back(struct exact *x)
{
    for (int64_t i = 0; i < x->n.seqs; i++) {
        topk_set_seq(x, i);
        if (x->seqs[i].s.nq) topk_count_chosen(x);
    }
}

/* Factors, normalisers and d_o . o of the entries of a head, and its share in the
 * gradient of the sink. */
static void prepare_head(const struct exact *x, int64_t h)
{
    const struct order      *o = x->order;
    const int64_t            first = order_q_row(x, &x->seqs[o->seq0]);
    const struct exact_block b = { .h = x->head0 + h };
    float                   *g = o->mean + h * x->p->len_q * x->d.ldv;

    for (int64_t e = 0; e < o->labels * o->topk_q; e++) {
        const int64_t at = h * o->sums_q + e, i = o->list_q[h * o->entries_q + e];
        const float   by = factor_of(x, at);
        float         plain[LANES], f[LANES], mul[LANES];
        int64_t       visible[LANES] = { o->visible ? o->visible[at] : 0 };
        double        delta = 0;

        x->k->load_rows(g, x->d.ldv, row_at(x, o->d_o, &x->p->o, h, i), 0,
                        (int)x->p->dtype, 1, x->d.v);
        order_scale_grad(x, g, 1 / (float)o->chosen[h * o->q_rows + first + i]);
        for (int c = 0; c < x->d.v; c++)
            delta += (double)g[c] * (double)(by * o->o[at * x->d.ldv + c]);
        exact_factors(x, &b, visible, plain, f, mul);
        o->rows[at] =
            (struct order_row){ plain[0], f[0], mul[0], norm_of(x, at), (float)delta };
        if (x->score->sink < 0 || o->rows[at].norm == INFINITY) continue;
        o->d_sink[h] -= exp2((double)x->io->params[x->score->sink + h] * LOG2_E -
                             (double)o->rows[at].norm) *
                        delta;
    }
}

/* Add the gradients of entries to those of their rows. */
static void add_head(const struct exact *x, int64_t h)
{
    const struct order     *o = x->order;
    const struct exact_seq *s = &x->seqs[o->seq0];
    const int64_t           kv = h / x->per_kv;

    for (int64_t e = 0; e < o->labels * o->topk_q; e++) {
        const int64_t i = order_q_row(x, s) + o->list_q[h * o->entries_q + e];
        const int64_t at = h * o->sums_q + e;
        for (int c = 0; c < x->d.q; c++)
            o->dq_rows[(h * o->q_rows + i) * x->d.ldq + c] +=
                o->rows[at].mul * o->dq[at * x->d.ldq + c];
    }
    for (int64_t e = 0; e < o->labels * o->topk_k; e++) {
        const int64_t j = order_k_row(x, s) + o->list_k[h * o->entries_k + e];
        const int64_t at = h * o->entries_k + e;
        for (int c = 0; c < x->d.q; c++)
            x->grads.dk[(kv * o->k_rows + j) * x->d.ldq + c] +=
                o->dk[at * x->d.ldq + c];
        for (int c = 0; c < x->d.v; c++)
            x->grads.dv[(kv * o->k_rows + j) * x->d.ldv + c] +=
                o->dv[at * x->d.ldv + c];
    }
}

static void prepare_job(void *arg, int64_t h, int thread)
{
    const struct topk_pass *t = arg;

    (void)thread;
    prepare_head(t->x, h);
}

static void add_job(void *arg, int64_t kv, int thread)
{
    const struct topk_pass *t = arg;

    (void)thread;
    add_head(t->x, kv * t->x->per_kv + t->head_of_kv);
}

void topk_backward(struct exact *x)
{
    struct order    *o = x->order;
    const size_t     size = sizeof(float), heads = (size_t)x->heads;
    const int        threads = exact_threads(x, x->heads, x->plan->cost.backward_flops);
    struct topk_pass t = { .x = x };

    memset(o->d_sink, 0, heads * sizeof *o->d_sink);
    for (int64_t i = 0; i < x->n.seqs; i++) {
        topk_set_seq(x, i);
        if (!x->seqs[i].s.nq) continue;
        attend_entries(x);
        memset(o->dq, 0, heads * (size_t)(o->entries_q * x->d.ldq) * size);
        memset(o->dk, 0, heads * (size_t)(o->entries_k * x->d.ldq) * size);
        memset(o->dv, 0, heads * (size_t)(o->entries_k * x->d.ldv) * size);
        phases_run(x->k, x->exec.shared, threads,
                   &(struct phase){ x->heads, 1, prepare_job, &t }, 1);
        order_cells(x, 0, true);
        sweep_backward(x, 0);
        /* Heads that share keys run one after the other. */
        for (t.head_of_kv = 0; t.head_of_kv < x->per_kv; t.head_of_kv++)
            phases_run(x->k, x->exec.shared, threads,
                       &(struct phase){ x->kv_heads, 1, add_job, &t }, 1);
    }
}
