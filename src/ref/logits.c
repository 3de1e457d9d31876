/* logits.c -- the logits of one row, and the way back.
 *
 *     x_ij = cap(z_ij + bias_ij) + log(times j is seen),   cap(x) = c tanh(x / c)
 *     z_ij = f_i s_ij, or the sum of it and of other sources, each as `mix` says
 *     s_ij = u_i . w_j + u_i . aK[clip(rel)] + U . w_j + (u_i + W) . R[-rel]
 *     f_i  = scale * numbers of the head * row factors(columns visible to i)
 *
 * where u and w are the rows of q and k as maps.c leaves them, rel = j - (place of i),
 * and the bias is the sum of what is given, of tables and slopes by rel, and of the log
 * of a slot's keys.  Slots have no place, so nothing that reads rel is asked of them.
 */
#include <math.h>

#include "ref/ref.h"

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t t = 0; t < n; t++)
        sum += a[t] * b[t];
    return sum;
}

/* y += by x */
static void add(double *y, double by, const double *x, int64_t n)
{
    for (int64_t t = 0; t < n; t++)
        y[t] += by * x[t];
}

static void read_modifier(struct ref_head *h, int t)
{
    const foci_mod *mod = &h->mech.mods[t];
    const unsigned  does = mod->def->does;

    if (does & FOCI_MOD_UNIT) h->unit = true;
    if (does & FOCI_MOD_CAP) h->cap = mod->arg[0];
    if (does & FOCI_MOD_SINK) h->sink = ref_tensor(h->p, t, 0);
    if (does & FOCI_MOD_ROPE) h->rope = mod;
    if (does & FOCI_MOD_SHAW) {
        h->clip = (int64_t)mod->arg[0];
        h->shaw_k = ref_tensor(h->p, t, 0);
        h->shaw_v = ref_tensor(h->p, t, 1);
    }
    if (does & FOCI_MOD_TXL) {
        h->txl_u = ref_tensor(h->p, t, 0);
        h->txl_w = ref_tensor(h->p, t, 1);
        h->txl_r = ref_tensor(h->p, t, 2);
    }
}

void ref_modifiers(struct ref_head *h)
{
    const foci_mech *m = &h->mech;

    h->sink = h->shaw_k = h->shaw_v = h->txl_u = h->txl_w = h->txl_r = -1;
    for (size_t t = 0; t < m->n_mods; t++)
        read_modifier(h, (int)t);
    h->scale = h->unit ? 1 : 1 / sqrt((double)h->du);
    for (size_t t = 0; t < m->n_mods; t++)
        if (m->mods[t].def->does & FOCI_MOD_SCALE) h->scale = m->mods[t].arg[0];
}

/* Distances go from 1 - nk to nq - 1. */
static int64_t rel_of(const struct ref_head *h, int64_t i, int64_t j)
{
    return j - (i + h->nk - h->nq);
}

void ref_distances(struct ref_head *h)
{
    const foci_mech *m = &h->mech;

    for (int64_t rel = 1 - h->nk; rel < h->nq; rel++)
        for (size_t t = 0; t < m->n_mods; t++) {
            const foci_mod *mod = &m->mods[t];
            double         *to = &h->far[rel + h->nk - 1];
            if (mod->def->does & FOCI_MOD_SLOPE)
                *to -=
                    mod->def->slope(mod, h->p->index, h->p->heads) * fabs((double)rel);
            if (mod->def->does & FOCI_MOD_TABLE)
                *to += h->p->call->params[ref_tensor(h->p, (int)t, 0) +
                                          mod->def->entry(mod, h->causal, rel)];
        }
}

void ref_distances_back(const struct ref_head *h)
{
    const foci_mech *m = &h->mech;

    for (int64_t rel = 1 - h->nk; rel < h->nq; rel++)
        for (size_t t = 0; t < m->n_mods; t++) {
            const foci_mod *mod = &m->mods[t];
            if (mod->def->does & FOCI_MOD_TABLE)
                h->p->dparams[ref_tensor(h->p, (int)t, 0) +
                              mod->def->entry(mod, h->causal, rel)] +=
                    h->dfar[rel + h->nk - 1];
        }
}

/* The rows of Shaw's and Transformer-XL's tables, as offsets; -1: none. */
static int64_t shaw_row(const struct ref_head *h, int64_t table, int64_t rel,
                        int64_t dim)
{
    if (table < 0) return -1;
    return table + (max64(-h->clip, min64(rel, h->clip)) + h->clip) * dim;
}

static int64_t txl_row(const struct ref_head *h, int64_t rel)
{
    return h->txl_r < 0 ? -1 : h->txl_r - rel * h->dqk;
}

int64_t ref_value_row(const struct ref_head *h, int64_t i, int64_t j)
{
    return j < h->nk ? shaw_row(h, h->shaw_v, rel_of(h, i, j), h->dv) : -1;
}

/* Element c of a query and of a vector that is added to it, which round as one; at -1:
 * none is. */
static double brought(const struct ref_head *h, const double *q, int64_t at, int64_t c)
{
    return ref_rounded(h->rounds, at < 0 ? q[c] : q[c] + h->p->call->params[at + c]);
}

static double param_word(const struct ref_head *h, int64_t at)
{
    return ref_rounded(h->rounds, h->p->call->params[at]);
}

/* s_ij */
static double product(const struct ref_head *h, int64_t i, int64_t j)
{
    const double *q = h->uq + i * h->du, *k = h->uk + j * h->du;
    const int64_t u = j < h->nk ? h->txl_u : -1;
    double        s = 0;

    for (int64_t c = 0; c < h->du; c++)
        s += brought(h, q, u, c) * k[c];
    if (j >= h->nk) return s;
    const int64_t rel = rel_of(h, i, j);
    const int64_t ak = shaw_row(h, h->shaw_k, rel, h->dqk), r = txl_row(h, rel);
    if (ak >= 0) s += dot(q, h->p->call->params + ak, h->dqk);
    for (int64_t c = 0; r >= 0 && c < h->dqk; c++)
        s += brought(h, q, h->txl_w, c) * param_word(h, r + c);
    return s;
}

static double bias_of(const struct ref_head *h, int64_t i, int64_t j)
{
    if (j < h->nk) {
        const double given = h->p->bias ? (double)h->p->bias[i * h->ld + j] : 0;
        return given + h->far[rel_of(h, i, j) + h->nk - 1];
    }
    const foci_range keys = ref_slot_keys(h, j);
    return h->levels[ref_slot_level(h, j)].count_bias
               ? log((double)(keys.end - keys.begin))
               : 0;
}

static void set_factors(const struct ref_head *h, struct ref_row *r)
{
    const foci_mech *m = &h->mech;

    r->factor = 1;
    for (size_t t = 0; t < m->n_mods; t++)
        if (m->mods[t].def->row_factor && r->visible > 0)
            r->factor *= m->mods[t].def->row_factor(&m->mods[t], r->visible);
    r->f = h->scale * r->factor;
    for (size_t t = 0; t < m->n_mods; t++)
        if (m->mods[t].def->does & FOCI_MOD_FACTOR)
            r->f *= h->p->call->params[ref_tensor(h->p, (int)t, 0)];
    r->n = m->def->divisor ? m->def->divisor(m) : 0;
    if (r->n == 0) r->n = (double)r->visible;
}

void ref_logits(const struct ref_head *h, int64_t i, struct ref_row *r)
{
    const double pairs = ref_sources_pairs(h);

    set_factors(h, r);
    if (r->visible > 0) ref_sources_fill(h, i);
    for (int64_t j = 0; j < h->cols; j++) {
        if (!r->times[j]) continue;
        r->s[j] = pairs > 0 ? product(h, i, j) : 0;
        const double x =
            pairs * r->f * r->s[j] + ref_sources_sum(h, j) + bias_of(h, i, j);
        const double level = h->cap > 0 ? tanh(x / h->cap) : 0;
        r->x[j] = h->cap > 0 ? h->cap * level : x;
        if (r->times[j] > 1) r->x[j] += log((double)r->times[j]);
        r->slope[j] = 1 - level * level;
    }
}

/* Through s_ij: ds is its gradient. */
static void product_back(const struct ref_head *h, int64_t i, int64_t j, double ds,
                         bool held)
{
    double       *dparams = h->p->dparams;
    const double *q = h->uq + i * h->du, *k = h->uk + j * h->du;
    double       *dq = h->duq + i * h->du, *dk = h->duk + j * h->du;
    const int64_t u = j < h->nk ? h->txl_u : -1;

    add(dq, ds, k, h->du);
    for (int64_t c = 0; !held && c < h->du; c++)
        dk[c] += ds * brought(h, q, u, c);
    if (j >= h->nk) return;
    const int64_t rel = rel_of(h, i, j);
    const int64_t ak = shaw_row(h, h->shaw_k, rel, h->dqk), r = txl_row(h, rel);
    if (ak >= 0) {
        add(dq, ds, h->p->call->params + ak, h->dqk);
        add(dparams + ak, ds, q, h->dqk);
    }
    if (u >= 0) add(dparams + u, ds, k, h->dqk);
    for (int64_t c = 0; r >= 0 && c < h->dqk; c++) {
        const double far = param_word(h, r + c);
        dq[c] += ds * far;
        dparams[h->txl_w + c] += ds * far;
        dparams[r + c] += ds * brought(h, q, h->txl_w, c);
    }
}

/* The derivative of f by one number is the product of all the others. */
static void factors_back(const struct ref_head *h, const struct ref_row *r, double df)
{
    const foci_mech *m = &h->mech;

    for (size_t t = 0; t < m->n_mods; t++) {
        if (!(m->mods[t].def->does & FOCI_MOD_FACTOR)) continue;
        double others = h->scale * r->factor;
        for (size_t u = 0; u < m->n_mods; u++)
            if (u != t && m->mods[u].def->does & FOCI_MOD_FACTOR)
                others *= h->p->call->params[ref_tensor(h->p, (int)u, 0)];
        h->p->dparams[ref_tensor(h->p, (int)t, 0)] += df * others;
    }
}

void ref_logits_back(const struct ref_head *h, int64_t i, const struct ref_row *r)
{
    const double pairs = ref_sources_pairs(h);
    double       df = 0;

    for (int64_t j = 0; h->sources != FOCI_SOURCE_QK && j < h->nk; j++)
        h->dgiven[j] = 0;
    for (int64_t j = 0; j < h->cols; j++) {
        if (!r->times[j]) continue;
        const double exact = r->dx[j] * r->slope[j];
        const double d = ref_rounded(h->rounds, exact);
        df += d * r->s[j];
        if (pairs > 0) product_back(h, i, j, pairs * r->f * d, r->held[j]);
        if (j >= h->nk) continue;
        if (h->sources != FOCI_SOURCE_QK) h->dgiven[j] = exact;
        h->dfar[rel_of(h, i, j) + h->nk - 1] += exact;
        if (h->p->dbias) h->p->dbias[i * h->ld + j] += exact;
    }
    factors_back(h, r, pairs * df);
    if (h->sources != FOCI_SOURCE_QK) {
        if (h->sources & FOCI_SOURCE_QK) h->dmix[0] += r->f * df;
        ref_sources_back(h, i);
    }
}
