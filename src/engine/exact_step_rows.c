/* exact_step_rows.c -- rows of queries in a step, and what they make of some keys. */
#include <math.h>
#include <string.h>

#include "engine/exact_pack.h"
#include "engine/exact_step.h"

/* The factor of q.k of a row, with its share among sources, without the base of the
 * exponent. */
static double factor_of(const struct stepping *x, int64_t h, double share,
                        int64_t visible)
{
    const struct score *s = x->score;
    double              f = x->dq ? s->scale * share : 1;

    for (int i = 0; i < s->n_factors; i++)
        f *= (double)x->step->io->params[s->factor[i] + h];
    for (int i = 0; i < s->n_rows; i++)
        f *= s->row[i]->def->row_factor(s->row[i], visible);
    return f;
}

/* Tensors of head h of the stage, by their place among the parameters. */
static const float *shaw_keys(const struct stepping *x, int64_t h)
{
    return x->step->io->params + x->score->shaw_k + h * (2 * x->score->clip + 1) * x->dq;
}

static const float *shaw_values(const struct stepping *x, int64_t h)
{
    return x->step->io->params + x->score->shaw_v + h * (2 * x->score->clip + 1) * x->dv;
}

static const float *txl_rows(const struct stepping *x, int64_t h)
{
    return x->step->io->params + x->score->txl_r +
           h * x->stage->group->mech.dims.len * x->dq;
}

/* What products with tables of places want of row i, and what is added to it. */
static void add_places(const struct stepping *x, const struct queries *r, int64_t h,
                       int64_t i, float *q)
{
    const float *params = x->step->io->params;

    if (r->by_place) {
        double sum = 0;
        for (int c = 0; c < x->dq; c++)
            sum += (double)q[c] * (double)shaw_keys(x, h)[c];
        r->far[i] = (float)sum;
        memcpy(r->by_place + i * x->ldq, q, (size_t)x->ldq * sizeof *q);
    }
    if (!r->by_distance) return;
    float *far = r->by_distance + i * x->ldq;
    memcpy(far, q, (size_t)x->ldq * sizeof *q);
    for (int c = 0; c < x->dq; c++) {
        far[c] += params[x->score->txl_w + h * x->dq + c];
        q[c] += params[x->score->txl_u + h * x->dq + c];
    }
}

void step_turn(const struct stepping *x, int64_t place, float *row)
{
    const double *speed = ((const struct exact_pool *)x->step->pool->own[x->g])->speed;
    const int     half = x->dq / 2;

    for (int t = 0; t < half; t++) {
        const double angle = (double)place * speed[t];
        row[x->score->rope_half ? t : 2 * t] = (float)cos(angle);
        row[x->score->rope_half ? t + half : 2 * t + 1] = (float)sin(angle);
    }
}

void step_project_row(const struct stepping *x, int64_t head, bool keys,
                      const float *wide, float *to)
{
    const float *by = x->step->io->params + x->stage->group->param0[keys] +
                      head * x->given * (int64_t)x->dq;

    memset(to, 0, (size_t)x->ldq * sizeof *to);
    for (int t = 0; t < x->given; t++)
        for (int c = 0; c < x->dq; c++)
            to[c] += wide[t] * by[(int64_t)t * x->dq + c];
}

void step_load(const struct stepping *x, struct piece *p, const struct room *room)
{
    const int             rows = p->b->rows, dtype = (int)x->plan->p.dtype;
    const int64_t         first = p->b->seq->row0 + p->b->row0 / x->per_kv;
    const bool            wide = exact_projects(&x->e);
    const struct queries *r = &p->rows;
    int32_t               list[BUNDLE];
    struct mapped         mapped;

    step_source_load(x, p);
    memset(r->q, 0, (size_t)(x->bundle * x->ldq) * sizeof *r->q);
    for (int i = 0; i < rows; i++) {
        list[i] = (int32_t)(p->b->seq->row0 + (p->b->row0 + i) / x->per_kv - first);
        float *q = r->q + (int64_t)i * x->ldq;

        if (!x->dq) continue;
        x->k->load_rows(wide ? room->wide : q, wide ? x->ld_given : x->ldq,
                        (const char *)x->step->io->q +
                            row_of(x, p, i) * (size_t)x->given * x->el,
                        x->given, dtype, 1, x->given);
        if (wide) step_project_row(x, head_of(x, p, i), false, room->wide, q);
    }
    exact_map(&x->e, r->q, rows, (struct places){ first, list }, false, &mapped);
    for (int i = 0; i < rows; i++) {
        const int64_t h = head_of(x, p, i);
        float        *q = r->q + (int64_t)i * x->ldq;

        add_places(x, r, h, i, q);
        const float f =
            (float)factor_of(x, h, x->e.from.from ? r->from.share[i][OF_QK] : 1,
                             x->counts ? x->visible[known_at(x, p, i)] : 0);
        for (int j = 0; j < LANES; j++)
            r->f[(int64_t)i * LANES + j] = f;
    }
    if (x->bf16 && x->dq)
        x->k->store_rows(r->words, x->ldq, FOCI_BF16, r->q, x->ldq, 1.0f,
                         (int)x->bundle, x->ldq);
}

/*
 * Logits
 */

static int64_t key_at(const struct meeting *m, int j)
{
    return m->list ? m->list[j] : m->j0 + j;
}

/* Shaw's table: keys at least `clip` back share its first row; those before key *from
 * are such, and *n from there on have rows of their own, one after another. */
static void near_keys(const struct stepping *x, const struct meeting *m, int64_t place,
                      int *from, int *n)
{
    *from = (int)min64(m->n, max64(0, place - x->score->clip - m->j0));
    *n = (int)max64(0, min64(m->n - *from, place - m->j0 - *from + 1));
}

/* The row of Shaw's tables for a key at or before `place`. */
static int64_t clipped(const struct stepping *x, int64_t place, int64_t j)
{
    return max64(0, j - place + x->score->clip);
}

static void add_shaw(const struct stepping *x, const struct piece *p,
                     const struct room *r, const struct meeting *m, int row, float *s)
{
    const int64_t h = head_of(x, p, row), place = place_of(x, p->b, row);
    const float  *q = p->rows.by_place + (int64_t)row * x->ldq;
    const float  *table = shaw_keys(x, h);
    int           from = m->n, n = 0;

    if (!m->list) near_keys(x, m, place, &from, &n);
    if (n)
        x->k->dots_f32(r->near, q, x->ldq, 1,
                       table + clipped(x, place, m->j0 + from) * x->dq, x->dq, FOCI_F32,
                       n, x->dq);
    for (int j = 0; j < n; j++)
        s[from + j] += r->near[j];
    for (int j = 0; j < from; j++) {
        const int64_t c = clipped(x, place, key_at(m, j));
        r->near[0] = p->rows.far[row];
        if (c)
            x->k->dots_f32(r->near, q, x->ldq, 1, table + c * x->dq, x->dq, FOCI_F32, 1,
                           x->dq);
        s[j] += r->near[0];
    }
}

/* Rows of the table by distance: the last key has the first of them. */
static void add_txl(const struct stepping *x, const struct piece *p,
                    const struct room *r, const struct meeting *m, int row, float *s)
{
    const int64_t h = head_of(x, p, row), place = place_of(x, p->b, row);
    const int     n = (int)min64(m->n, place - m->j0 + 1);

    if (n <= 0) return;
    x->k->dots_f32(r->near, p->rows.by_distance + (int64_t)row * x->ldq, x->ldq, 1,
                   txl_rows(x, h) + (place - m->j0 - n + 1) * x->dq, x->dq, FOCI_F32, n,
                   x->dq);
    for (int j = 0; j < n; j++)
        s[j] += r->near[n - 1 - j];
}

/* Entry of table t for a key `back` tokens before its query. */
static int64_t entry_of(const struct stepping *x, int t, int64_t back)
{
    const struct exact_pool *own = x->step->pool->own[x->g];
    const foci_mod          *mod = x->score->table[t];

    return back < FAR ? own->entry[t][back] : mod->def->entry(mod, true, -back);
}

/* bias[LANES] by distance, or of means by how many keys they are of, added to another where
 * there is one; false: there is none. */
static bool fill_bias(const struct stepping *x, const struct meeting *m, int64_t place,
                      int64_t h, bool other, float *bias)
{
    const struct score *s = x->score;

    if (m->slots ? m->count == 0 : !s->slope && !s->n_tables) return other;
    if (!other) memset(bias, 0, LANES * sizeof *bias);
    for (int j = 0; m->slots && j < m->n; j++)
        bias[j] += m->count;
    if (m->slots) return true;
    if (s->slope) {
        const double by = s->slope->def->slope(s->slope, h, x->stage->group->heads);
        for (int j = 0; j < m->n; j++)
            bias[j] += (float)(-by * fabs((double)(place - key_at(m, j))));
    }
    for (int t = 0; t < s->n_tables; t++) {
        const float *table =
            x->step->io->params + s->table_at[t] + h * s->table_size[t];
        for (int j = 0; j < m->n; j++)
            if (key_at(m, j) <= place)
                bias[j] += table[entry_of(x, t, place - key_at(m, j))];
    }
    return true;
}

/* Exponents are in base 2. */
static double unit_of(const struct stepping *x)
{
    return x->kind == FOCI_RELU2 ? 1 : LOG2_E;
}

/* From products to logits in s[LANES], in base 2 where they are exponents; the result is
 * the factor that is still to be applied. */
static float logits(const struct stepping *x, const struct piece *p, struct room *r,
                    const struct meeting *m, int row, const uint64_t *seen, float *s)
{
    const double  unit = unit_of(x);
    const float   cap = (float)x->score->cap, *f = p->rows.f + (int64_t)row * LANES;
    const int64_t h = head_of(x, p, row), place = place_of(x, p->b, row);
    const bool    counted = m->each && x->kind != FOCI_RELU2;

    if (x->score->shaw_k >= 0) add_shaw(x, p, r, m, row, s);
    if (x->score->txl_r >= 0) add_txl(x, p, r, m, row, s);
    if (x->e.from.from)
        memcpy(x->dq ? r->bias : s, step_source(x, p, row, m->j0, m->n),
               LANES * sizeof *s);
    const bool bias = fill_bias(x, m, place, h, exact_source_biases(&x->e), r->bias);
    if (cap == 0 && !bias && !counted && *seen == ~UINT64_C(0))
        return (float)((double)f[0] * unit);
    x->k->modify(s, 1, f, (float)unit, cap, bias ? r->bias : NULL, LANES, seen);
    for (int j = 0; counted && j < m->n; j++)
        s[j] += m->each[j];
    return 1;
}

/*
 * Sums
 */

/* Values that are not finite reach only the rows that see them. */
static void careful_sums(const struct stepping *x, const char *v, int n, int rows,
                         const uint64_t *seen, const float *w, float *tile, float *o)
{
    x->k->load_rows(tile, x->ldo, v, x->dv, (int)x->plan->p.dtype, n, x->dv);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < n; j++)
            for (int c = 0; seen[r] >> j & 1 && c < x->dv; c++)
                o[(int64_t)r * x->ldo + c] +=
                    w[r * LANES + j] * tile[(int64_t)j * x->ldo + c];
}

static bool finite(const struct stepping *x, const char *v, int n, float *tile)
{
    _Alignas(64) float square[PAGE];
    bool               all = true;

    x->k->load_rows(tile, x->ldo, v, x->dv, (int)x->plan->p.dtype, n, x->dv);
    x->k->row_dot(square, tile, tile, x->ldo, n, x->dv);
    for (int j = 0; j < n; j++)
        all = all && isfinite(square[j]);
    return all;
}

/* The rows of Shaw's table of values, by the weights w[LANES] of their keys. */
static void add_shaw_values(const struct stepping *x, const struct meeting *m,
                            int64_t place, int64_t h, const float *w, float *o)
{
    const float *table = shaw_values(x, h);
    int          from = m->n, n = 0;
    float        all = 0;

    if (!m->list) near_keys(x, m, place, &from, &n);
    if (n)
        x->k->sums_f32(o, x->ldo, w + from, 1,
                       table + clipped(x, place, m->j0 + from) * x->dv, x->dv, FOCI_F32,
                       n, x->dv);
    for (int j = 0; j < from; j++) {
        const int64_t c = clipped(x, place, key_at(m, j));
        if (c)
            x->k->sums_f32(o, x->ldo, w + j, 1, table + c * x->dv, x->dv, FOCI_F32, 1,
                           x->dv);
        else
            all += w[j];
    }
    if (all != 0) x->k->sums_f32(o, x->ldo, &all, 1, table, x->dv, FOCI_F32, 1, x->dv);
}

/* From logits to weights, with what was summed brought to their reference. */
static void weigh(const struct stepping *x, const struct piece *p, struct room *r,
                  const struct meeting *m, int first, int rows, const uint64_t *seen)
{
    const struct sums *sums = &p->sums;
    const double       unit = unit_of(x);

    for (int i = 0; i < rows; i++) {
        const int  row = first + i;
        float     *s = r->s + (int64_t)i * LANES, *o = sums->o + (int64_t)row * x->ldo;
        const bool plain = x->plain && !m->slots && !m->each && seen[i] == ~UINT64_C(0);
        const float by = plain ? (float)((double)p->rows.f[(int64_t)row * LANES] * unit)
                               : logits(x, p, r, m, row, &seen[i], s);
        const float shrink =
            x->k->weigh_row(s, by, &sums->m[row], &sums->l[row], x->kind);
        for (int c = 0; shrink != 1 && c < x->dv; c++)
            o[c] *= shrink;
        if (x->score->shaw_v >= 0)
            add_shaw_values(x, m, place_of(x, p->b, row), head_of(x, p, row), s, o);
    }
}

/* q.k of rows first to first + rows. */
static void products(const struct stepping *x, const struct piece *p, struct room *r,
                     const struct meeting *m, int first, int rows)
{
    if (x->bf16)
        x->k->dots_bf16(r->s, p->rows.words + (int64_t)first * x->ldq / 2, x->ldq / 2,
                        rows, (const void *)m->k, x->dq, m->n, x->dq);
    else
        x->k->dots_f32(r->s, p->rows.q + (int64_t)first * x->ldq, x->ldq, rows, m->k,
                       x->dq, (int)x->plan->p.dtype, m->n, x->dq);
}

void step_meet(const struct stepping *x, const struct piece *p, struct room *r,
               const struct meeting *m, int first, int rows, const uint64_t *seen)
{
    const uint64_t there = foci_bits_in((foci_range){ 0, m->n }, 0);
    const int      dtype = (int)x->plan->p.dtype;
    float         *o = p->sums.o + (int64_t)first * x->ldo;
    uint64_t       every = there;

    for (int i = 0; i < rows; i++)
        every &= seen[i];
    if (x->dq) products(x, p, r, m, first, rows);
    weigh(x, p, r, m, first, rows, seen);
    if (every != there && !finite(x, m->v, m->n, r->tile))
        careful_sums(x, m->v, m->n, rows, seen, r->s, r->tile, o);
    else if (x->bf16)
        x->k->sums_bf16(o, x->ldo, r->s, rows, (const void *)m->v, x->dv, m->n, x->dv);
    else
        x->k->sums_f32(o, x->ldo, r->s, rows, m->v, x->dv, dtype, m->n, x->dv);
}
