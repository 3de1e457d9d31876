/* logits.c -- the logits of one row, and the way back.
 *
 *     x_ij = cap(f_i (u_i . w_j) + bias_ij),   cap(x) = c tanh(x / c)
 *     f_i  = scale * numbers of the head * row factors(keys visible to i)
 *
 * where u and w are the rows of q and k, or their unit vectors under a modifier
 * that says so.  Norms are floored at 1e-12, so that a zero row has logits 0.
 */
#include <math.h>

#include "ref/ref.h"

static const double least_norm = 1e-12;

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t t = 0; t < n; t++)
        sum += a[t] * b[t];
    return sum;
}

static void prepare_rows(const struct ref_head *h, int64_t n, const double *x, double *u)
{
    for (int64_t i = 0; i < n; i++) {
        const double *row = x + i * h->dqk;
        const double  norm = sqrt(dot(row, row, h->dqk));
        const double  by = !h->unit ? 1 : norm < least_norm ? least_norm : norm;
        for (int64_t t = 0; t < h->dqk; t++)
            u[i * h->dqk + t] = ref_word(h->words, row[t] / by);
    }
}

void ref_prepare(struct ref_head *h)
{
    const foci_mech *m = h->mech;

    h->unit = false;
    h->cap = 0;
    h->sink = -1;
    for (size_t t = 0; t < m->n_mods; t++) {
        if (m->mods[t].def->does & FOCI_MOD_UNIT) h->unit = true;
        if (m->mods[t].def->does & FOCI_MOD_CAP) h->cap = m->mods[t].arg[0];
        if (m->mods[t].def->does & FOCI_MOD_SINK) h->sink = (int)t;
    }
    h->scale = h->unit ? 1 : 1 / sqrt((double)h->dqk);
    for (size_t t = 0; t < m->n_mods; t++)
        if (m->mods[t].def->does & FOCI_MOD_SCALE) h->scale = m->mods[t].arg[0];

    prepare_rows(h, h->nq, h->q, h->uq);
    prepare_rows(h, h->nk, h->k, h->uk);
}

/* Bit t: does query i see key j0 + t?  The last query stands at the last key.  A
 * mechanism's mask speaks of positions from 0 on; a query before the first key sees
 * nothing by it. */
static uint64_t sees(const struct ref_head *h, int64_t i, int64_t j0)
{
    const foci_mech_def *def = h->mech->def;
    const int64_t        place = i + h->nk - h->nq;
    uint64_t             seen = ~UINT64_C(0);

    if (def->mask) seen = place < 0 ? 0 : def->mask(h->mech, place, j0);
    if (h->causal) seen &= foci_bits_in((foci_range){ 0, place + 1 }, j0);
    for (int64_t j = j0; h->mask && j < min64(j0 + FOCI_TILE, h->nk); j++)
        if (!h->mask[i * h->ld + j]) seen &= ~(UINT64_C(1) << (j - j0));
    return seen;
}

void ref_logits(const struct ref_head *h, int64_t i, struct ref_row *r)
{
    const foci_mech *m = h->mech;
    uint64_t         seen = 0;

    r->visible = 0;
    for (int64_t j = 0; j < h->nk; j++) {
        if (j % FOCI_TILE == 0) seen = sees(h, i, j);
        r->seen[j] = seen >> j % FOCI_TILE & 1;
        r->visible += r->seen[j];
    }

    r->row = 1;
    for (size_t t = 0; t < m->n_mods; t++)
        if (m->mods[t].def->row_factor && r->visible > 0)
            r->row *= m->mods[t].def->row_factor(&m->mods[t], r->visible);
    r->f = h->scale * r->row;
    for (size_t t = 0; t < m->n_mods; t++)
        if (m->mods[t].def->does & FOCI_MOD_FACTOR) r->f *= h->number[t];
    r->n = m->def->count ? m->def->count(m) : 0;
    if (r->n == 0) r->n = (double)r->visible;

    for (int64_t j = 0; j < h->nk; j++) {
        if (!r->seen[j]) continue;
        r->dot[j] = dot(h->uq + i * h->dqk, h->uk + j * h->dqk, h->dqk);
        double x = r->f * r->dot[j];
        if (h->bias) x += (double)h->bias[i * h->ld + j];
        const double level = h->cap > 0 ? tanh(x / h->cap) : 0;
        r->x[j] = h->cap > 0 ? h->cap * level : x;
        r->slope[j] = 1 - level * level;
    }
}

void ref_logits_back(const struct ref_head *h, int64_t i, const struct ref_row *r,
                     const double *dx, double *duq, double *duk, double *dnumber)
{
    const foci_mech *m = h->mech;
    double           df = 0;

    for (int64_t j = 0; j < h->nk; j++) {
        if (!r->seen[j]) continue;
        const double ds = ref_word(h->words, dx[j] * r->slope[j]);
        df += ds * r->dot[j];
        for (int64_t t = 0; t < h->dqk; t++) {
            duq[i * h->dqk + t] += r->f * ds * h->uk[j * h->dqk + t];
            duk[j * h->dqk + t] += r->f * ds * h->uq[i * h->dqk + t];
        }
    }

    /* The derivative of f by one number is the product of all the others. */
    for (size_t t = 0; t < m->n_mods; t++) {
        if (!(m->mods[t].def->does & FOCI_MOD_FACTOR)) continue;
        double others = h->scale * r->row;
        for (size_t u = 0; u < m->n_mods; u++)
            if (u != t && m->mods[u].def->does & FOCI_MOD_FACTOR)
                others *= h->number[u];
        dnumber[t] += df * others;
    }
}

/* u = x / |x|:  dx = (du - u (u . du)) / |x|, and x / least below the floor. */
void ref_prepare_back(const struct ref_head *h, int64_t n, const double *x,
                      const double *du, double *dx)
{
    for (int64_t i = 0; i < n; i++) {
        const double *row = x + i * h->dqk, *g = du + i * h->dqk;
        double       *to = dx + i * h->dqk;
        const double  norm = sqrt(dot(row, row, h->dqk));
        const bool    floored = norm < least_norm;
        const double  along = floored ? 0 : dot(row, g, h->dqk) / (norm * norm);

        for (int64_t t = 0; t < h->dqk; t++) {
            if (!h->unit)
                to[t] += g[t];
            else
                to[t] += (g[t] - row[t] * along) / (floored ? least_norm : norm);
        }
    }
}
