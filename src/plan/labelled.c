/* labelled.c -- how many pairs labels make visible, for the counts of a plan.
 *
 * Labels by position are counted.  For labels by content, rows are assumed to spread evenly
 * over the labels; for floor hashes, to be standard normal.
 */
#include <math.h>
#include <stdlib.h>

#include "plan/plan.h"

/* Of longer sequences the first so many rows are counted. */
enum { MOST_COUNTED = 1 << 22 };

/* Pairs of nq queries and nk keys that a causal row may see. */
static double causal_pairs(double nq, double nk)
{
    return nq > nk ? nk * (nk + 1) / 2 : nq * (nk - nq) + nq * (nq + 1) / 2;
}

/* nq queries meet nk keys of their label. */
static void add_bucket(struct labelled *l, bool causal, double nq, double nk)
{
    const double pairs = causal ? causal_pairs(nq, nk) : nq * nk;
    const double tq = ceil(nq / FOCI_TILE), tk = ceil(nk / FOCI_TILE);
    const double met = causal ? causal_pairs(tq, tk) : tq * tk;
    const double full =
        causal ? met - tq : floor(nq / FOCI_TILE) * floor(nk / FOCI_TILE);

    l->pairs += pairs;
    l->met += pairs;
    l->full += fmax(full, 0);
    l->part += met - fmax(full, 0);
}

static int upward(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The labels of positions `rows`, sorted. */
static void sort_places(const foci_mech *m, foci_range rows, int64_t *place)
{
    for (int64_t i = rows.begin; i < rows.end; i++)
        place[i - rows.begin] = m->def->place(m, i);
    qsort(place, (size_t)(rows.end - rows.begin), sizeof *place, upward);
}

static foci_status count_places(foci_ctx *ctx, const foci_mech *m, struct labelled *l)
{
    const int64_t nk = min64(m->dims.len, MOST_COUNTED);
    const int64_t nq = min64(m->dims.len_q, nk);
    int64_t      *keys = ctx_alloc(ctx, (size_t)nk + 1, sizeof *keys);
    int64_t      *queries = ctx_alloc(ctx, (size_t)nq + 1, sizeof *queries);

    if (keys && queries) {
        sort_places(m, (foci_range){ 0, nk }, keys);
        sort_places(m, (foci_range){ nk - nq, nk }, queries);
        for (int64_t k = 0, q = 0, k1, q1; k < nk; k = k1, q = q1, l->labels++) {
            for (k1 = k; k1 < nk && keys[k1] == keys[k];)
                k1++;
            while (q < nq && queries[q] < keys[k])
                q++;
            for (q1 = q; q1 < nq && queries[q1] == keys[k];)
                q1++;
            add_bucket(l, m->causal, (double)(q1 - q), (double)(k1 - k));
        }
        const double times = nk ? (double)m->dims.len / (double)nk : 0;
        l->pairs *= times * times;
        l->met *= times * times;
        l->full *= times * times;
        l->part *= times * times;
    }
    const foci_status status = keys && queries ? FOCI_OK : FOCI_ERR_MEMORY;
    ctx_free(ctx, keys, (size_t)nk + 1, sizeof *keys);
    ctx_free(ctx, queries, (size_t)nq + 1, sizeof *queries);
    return status;
}

/* Labels there are, and what it costs a row to find its own. */
static double spread_over(const foci_mech *m, const foci_order *o, struct labelled *l)
{
    int64_t      shape[4] = { 0 };
    const double d = (double)m->dims.qk;

    m->def->tensors[0].shape(m, m->arg, shape);
    switch (o->label) {
    case FOCI_LABEL_NEAREST:
        l->labels = shape[0];
        l->row_flops = 2 * d * (double)l->labels;
        return (double)l->labels;
    case FOCI_LABEL_ANGULAR:
        l->labels = 2 * shape[2];
        l->row_flops = 2 * d * (double)(shape[0] * shape[2]);
        return (double)l->labels;
    default:
        l->row_flops = 2 * d * (double)max64(o->rounds, 1);
        return fmax(1, 2 * sqrt(acos(-1) * d) / o->width);
    }
}

static void expect(const foci_mech *m, const foci_order *o, struct labelled *l)
{
    const double nq = (double)m->dims.len_q, nk = (double)m->dims.len;
    const double rounds = (double)max64(o->rounds, 1);
    double       labels = fmax(1, spread_over(m, o, l));
    double       rows_q = nq / labels, rows_k = nk / labels;

    if (o->chunk) { /* every chunk meets itself and the one before */
        rows_q = fmin(nq, (double)o->chunk);
        rows_k = fmin(nk, 2 * (double)o->chunk);
        labels = rows_q > 0 ? nq / rows_q : 0;
    }
    if (o->topk) {
        rows_q = fmin(nq, (double)o->topk);
        rows_k = fmin(nk, (double)o->topk);
    }
    add_bucket(l, m->causal, rows_q, rows_k);
    l->pairs *= labels;
    l->met = rounds * l->pairs;
    l->full *= rounds * labels;
    l->part *= rounds * labels;

    /* A pair that several rounds show is seen once. */
    const double all = m->causal ? causal_pairs(nq, nk) : nq * nk;
    if (all > 0 && !o->topk) l->pairs = all * (1 - pow(1 - l->pairs / all, rounds));
}

foci_status labelled_make(foci_ctx *ctx, const foci_mech *m, const foci_order *o,
                          struct labelled *l)
{
    *l = (struct labelled){ 0 };
    if (!o->label) return FOCI_OK;
    if (o->label == FOCI_LABEL_PLACE) return count_places(ctx, m, l);
    expect(m, o, l);
    return FOCI_OK;
}
