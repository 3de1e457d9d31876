/* slots.c -- slots: means, or copies, of runs of keys and values.
 *
 *     kbar_t = sum of uk_j / n,   vbar_t = sum of v_j / n,   j in the run
 *
 * A copy is the mean of a run of one.  Means are of keys as the logits read them.
 */
#include "ref/ref.h"

void ref_slots_count(struct ref_head *h)
{
    const foci_mech *m = &h->mech;

    h->n_levels = m->def->slots ? m->def->slots(m, h->levels) : 0;
    h->second = m->def->second && m->def->second(m);
    h->first[0] = h->nk;
    for (int l = 0; l < h->n_levels; l++)
        h->first[l + 1] = h->first[l] + slots_of(&h->levels[l], h->nk);
    h->cols = h->first[h->n_levels];
}

int ref_slot_level(const struct ref_head *h, int64_t column)
{
    int l = 0;
    while (column >= h->first[l + 1])
        l++;
    return l;
}

foci_range ref_slot_keys(const struct ref_head *h, int64_t column)
{
    const int l = ref_slot_level(h, column);
    return slot_keys(&h->levels[l], column - h->first[l], h->nk);
}

/* Row `at` of x is the mean of rows `of`. */
static void average(double *x, int64_t dim, int64_t at, foci_range of)
{
    for (int64_t t = 0; t < dim; t++) {
        double sum = 0;
        for (int64_t j = of.begin; j < of.end; j++)
            sum += x[j * dim + t];
        x[at * dim + t] = sum / (double)(of.end - of.begin);
    }
}

/* And so are gradients shared out. */
static void share(double *dx, int64_t dim, int64_t at, foci_range to)
{
    for (int64_t j = to.begin; j < to.end; j++)
        for (int64_t t = 0; t < dim; t++)
            dx[j * dim + t] += dx[at * dim + t] / (double)(to.end - to.begin);
}

void ref_slots_fill(struct ref_head *h)
{
    for (int64_t c = h->nk; c < h->cols; c++) {
        const foci_range keys = ref_slot_keys(h, c);
        average(h->uk, h->dqk, c, keys);
        if (!h->second) average(h->v, h->dv, c, keys);
    }
}

void ref_slots_fold(struct ref_head *h)
{
    for (int64_t c = h->nk; c < h->cols; c++) {
        const foci_range keys = ref_slot_keys(h, c);
        share(h->duk, h->dqk, c, keys);
        if (!h->second) share(h->dv_cols, h->dv, c, keys);
    }
}
