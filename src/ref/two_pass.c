/* two_pass.c -- attention in two passes: the second attends to the means of the first's results.
 *
 *     z_i = sum over slots t of b_it ybar_t,   O_i = (1 - gamma) y_i + gamma z_i
 *
 * where y is attention among keys alone, ybar_t the mean of y over the run of slot t, and
 * b_i the weights of row i among the slots' keys.  A row without slots has O_i = y_i.
 */
#include <math.h>

#include "ref/ref.h"

static void add(double *y, double by, const double *x, int64_t n)
{
    for (int64_t t = 0; t < n; t++)
        y[t] += by * x[t];
}

static double gamma_of(const struct ref_head *h)
{
    return h->p->call->params[ref_tensor(h->p, -1, 0)];
}

/* y, and as the values of slots its means.  `paths` gets, for each slot, the mean of
 * the weights that made its rows. */
static void first_look(struct ref_head *h)
{
    for (int64_t i = 0; i < h->nq; i++) {
        ref_see(h, i, &h->row);
        ref_attend(h, i, &h->row, h->y + i * h->dv);
        if (h->p->lse) h->p->lse[i] = h->row.lse == -INFINITY ? -INFINITY : 0;
        const int64_t    slot = i / h->levels[0].run_len;
        const foci_range run = ref_slot_keys(h, h->nk + slot);
        const double     share = 1 / (double)(run.end - run.begin);
        add(h->v + (h->nk + slot) * h->dv, share, h->y + i * h->dv, h->dv);
        if (h->paths) ref_spread(h, &h->row, share, h->paths + slot * h->nk);
    }
    for (int64_t t = h->nk * h->dv; t < h->cols * h->dv; t++)
        h->v[t] = ref_rounded(h->rounds, h->v[t]);
}

/* The weights of row i with o = A v: those of its first look, and through the slots
 * those of other rows. */
static void report_row(struct ref_head *h, int64_t i, double gamma)
{
    const struct ref_row *r = &h->row;
    const bool            has = r->visible > 0;

    for (int64_t c = h->nk; c < h->cols; c++)
        if (r->times[c])
            add(h->spread, gamma * r->a[c] * r->keep[c], h->paths + (c - h->nk) * h->nk,
                h->nk);
    ref_see(h, i, &h->row);
    ref_attend(h, i, &h->row, h->o);
    ref_spread(h, &h->row, has ? 1 - gamma : 1, h->spread);
    ref_report(h, i);
}

/* O_i; with a gradient, dy_i of the direct path, and what z_i brings. */
static void second_row(struct ref_head *h, int64_t i, double gamma)
{
    const struct ref_part *p = h->p;
    const double          *y = h->y + i * h->dv;
    double                *o = p->o + i * h->dv, *dy = h->dy + i * h->dv;

    ref_see_slots(h, i, &h->row);
    ref_attend(h, i, &h->row, h->o);
    const bool has = h->row.visible > 0;
    for (int64_t t = 0; t < h->dv; t++)
        o[t] = has ? (1 - gamma) * y[t] + gamma * h->o[t] : y[t];
    if (!p->g) {
        if (h->paths) report_row(h, i, gamma);
        return;
    }
    const double *g = p->g + i * h->dv;
    add(dy, has ? 1 - gamma : 1, g, h->dv);
    if (!has) return;
    double dgamma = 0;
    for (int64_t t = 0; t < h->dv; t++) {
        h->g[t] = ref_rounded(h->rounds, gamma * g[t]);
        dgamma += g[t] * (h->o[t] - y[t]);
    }
    p->dparams[ref_tensor(p, -1, 0)] += dgamma;
    ref_attend_back(h, i, &h->row, h->o, h->g);
}

/* Through ybar and the first look. */
static void first_look_back(struct ref_head *h)
{
    for (int64_t i = 0; i < h->nq; i++) {
        const int64_t    slot = h->nk + i / h->levels[0].run_len;
        const foci_range run = ref_slot_keys(h, slot);
        double          *dy = h->dy + i * h->dv;

        add(dy, 1 / (double)(run.end - run.begin), h->dv_cols + slot * h->dv, h->dv);
        ref_see(h, i, &h->row);
        for (int64_t t = 0; t < h->dv; t++)
            h->g[t] = ref_rounded(h->rounds, dy[t]);
        ref_attend(h, i, &h->row, h->o);
        ref_attend_back(h, i, &h->row, h->o, h->g);
    }
}

void ref_rows_two_pass(struct ref_head *h)
{
    const double gamma = gamma_of(h);

    first_look(h);
    for (int64_t i = h->p->rows.begin; i < h->p->rows.end; i += h->p->step)
        second_row(h, i, gamma);
    if (h->p->g) first_look_back(h);
}
