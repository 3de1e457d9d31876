/* exact_step_logits.c -- decoding: from products to logits, with the terms of the score
 * that depend on positions. */
#include <math.h>
#include <string.h>

#include "engine/exact/decode/exact_step.h"

static const float *shaw_values(const struct exact_step *x, int64_t h)
{
    return x->step->io->params + x->e.score->shaw_v +
           h * (2 * x->e.score->clip + 1) * x->e.d.v;
}

static const float *txl_rows(const struct exact_step *x, int64_t h)
{
    return x->step->io->params + x->e.score->txl_r +
           h * x->e.stage->group->mech.dims.len * x->e.d.q;
}

/*
 * Logits
 */

static int64_t key_at(const struct step_keys *m, int j)
{
    return m->list ? m->list[j] : m->j0 + j;
}

/* In Shaw's tables all keys at least `clip` before the row share the first vector:
 * those before key *from.  The *n keys from there on have consecutive vectors. */
static void near_keys(const struct exact_step *x, const struct step_keys *m,
                      int64_t pos, int *from, int *n)
{
    *from = (int)min64(m->n, max64(0, pos - x->e.score->clip - m->j0));
    *n = (int)max64(0, min64(m->n - *from, pos - m->j0 - *from + 1));
}

/* The row of Shaw's tables for a key at or before `pos`. */
static int64_t clipped(const struct exact_step *x, int64_t pos, int64_t j)
{
    return max64(0, j - pos + x->e.score->clip);
}

static void add_shaw(const struct exact_step *x, const struct step_piece *p,
                     const struct step_scratch *r, const struct step_keys *m, int row,
                     float *s)
{
    const int64_t h = head_of(x, p, row), pos = position_of(x, p->b, row);
    const float  *q = p->rows.by_place + (int64_t)row * x->e.d.ldq;
    const float  *table = step_shaw_keys(x, h);
    int           from = m->n, n = 0;

    if (!m->list) near_keys(x, m, pos, &from, &n);
    if (n)
        x->e.k->dots_f32(r->near, q, x->e.d.ldq, 1,
                         table + clipped(x, pos, m->j0 + from) * x->e.d.q, x->e.d.q,
                         FOCI_F32, n, x->e.d.q);
    for (int j = 0; j < n; j++)
        s[from + j] += r->near[j];
    for (int j = 0; j < from; j++) {
        const int64_t c = clipped(x, pos, key_at(m, j));
        r->near[0] = p->rows.far[row];
        if (c)
            x->e.k->dots_f32(r->near, q, x->e.d.ldq, 1, table + c * x->e.d.q, x->e.d.q,
                             FOCI_F32, 1, x->e.d.q);
        s[j] += r->near[0];
    }
}

/* The last key has the first row of R. */
static void add_txl(const struct exact_step *x, const struct step_piece *p,
                    const struct step_scratch *r, const struct step_keys *m, int row,
                    float *s)
{
    const int64_t h = head_of(x, p, row), pos = position_of(x, p->b, row);
    const int     n = (int)min64(m->n, pos - m->j0 + 1);

    if (n <= 0) return;
    x->e.k->dots_f32(r->near, p->rows.by_distance + (int64_t)row * x->e.d.ldq,
                     x->e.d.ldq, 1, txl_rows(x, h) + (pos - m->j0 - n + 1) * x->e.d.q,
                     x->e.d.q, FOCI_F32, n, x->e.d.q);
    for (int j = 0; j < n; j++)
        s[j] += r->near[n - 1 - j];
}

/* The entry of table t for a key `back` tokens before its query. */
static int64_t entry_of(const struct exact_step *x, int t, int64_t back)
{
    const struct exact_pool *own = x->step->pool->own[x->g];
    const foci_mod          *mod = x->e.score->table[t];

    return back < KNOWN_DISTANCES ? own->entry[t][back]
                                  : mod->def->entry(mod, true, -back);
}

/* bias[LANES] by distance, or of means by their number of keys, added to `other` where
 * there is one; false: there is none. */
static bool fill_bias(const struct exact_step *x, const struct step_keys *m,
                      int64_t pos, int64_t h, bool other, float *bias)
{
    const struct score *s = x->e.score;

    if (m->slots ? m->count == 0 : !s->slope && !s->n_tables) return other;
    if (!other) memset(bias, 0, LANES * sizeof *bias);
    for (int j = 0; m->slots && j < m->n; j++)
        bias[j] += m->count;
    if (m->slots) return true;
    if (s->slope) {
        const double by = s->slope->def->slope(s->slope, h, x->e.stage->group->heads);
        for (int j = 0; j < m->n; j++)
            bias[j] += (float)(-by * fabs((double)(pos - key_at(m, j))));
    }
    for (int t = 0; t < s->n_tables; t++) {
        const float *table =
            x->step->io->params + s->table_at[t] + h * s->table_size[t];
        for (int j = 0; j < m->n; j++)
            if (key_at(m, j) <= pos)
                bias[j] += table[entry_of(x, t, pos - key_at(m, j))];
    }
    return true;
}

float step_logits(const struct exact_step *x, const struct step_piece *p,
                  struct step_scratch *r, const struct step_keys *m, int row,
                  const uint64_t *seen, float *s)
{
    const double  unit = step_unit(x);
    const float   cap = (float)x->e.score->cap, *f = p->rows.f + (int64_t)row * LANES;
    const int64_t h = head_of(x, p, row), pos = position_of(x, p->b, row);
    const bool    counted = m->each && x->e.kind != FOCI_WEIGH_RELU2;

    if (x->e.score->shaw_k >= 0) add_shaw(x, p, r, m, row, s);
    if (x->e.score->txl_r >= 0) add_txl(x, p, r, m, row, s);
    if (x->e.source.kinds)
        memcpy(x->e.d.q ? r->bias : s, step_source(x, p, row, m->j0, m->n),
               LANES * sizeof *s);
    const bool bias = fill_bias(x, m, pos, h, exact_source_biases(&x->e), r->bias);
    if (cap == 0 && !bias && !counted && *seen == ~UINT64_C(0))
        return (float)((double)f[0] * unit);
    x->e.k->modify(s, 1, f, (float)unit, cap, bias ? r->bias : NULL, LANES, seen);
    for (int j = 0; counted && j < m->n; j++)
        s[j] += m->each[j];
    return 1;
}

void step_shaw_values(const struct exact_step *x, const struct step_keys *m,
                      int64_t pos, int64_t h, const float *w, float *o)
{
    const float *table = shaw_values(x, h);
    int          from = m->n, n = 0;
    float        all = 0;

    if (!m->list) near_keys(x, m, pos, &from, &n);
    if (n)
        x->e.k->sums_f32(o, x->ldo, w + from, 1,
                         table + clipped(x, pos, m->j0 + from) * x->e.d.v, x->e.d.v,
                         FOCI_F32, n, x->e.d.v);
    for (int j = 0; j < from; j++) {
        const int64_t c = clipped(x, pos, key_at(m, j));
        if (c)
            x->e.k->sums_f32(o, x->ldo, w + j, 1, table + c * x->e.d.v, x->e.d.v,
                             FOCI_F32, 1, x->e.d.v);
        else
            all += w[j];
    }
    if (all != 0)
        x->e.k->sums_f32(o, x->ldo, &all, 1, table, x->e.d.v, FOCI_F32, 1, x->e.d.v);
}
