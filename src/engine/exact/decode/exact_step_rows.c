/* exact_step_rows.c -- decoding: rows of queries, and how they attend to a few keys. */
#include <math.h>
#include <string.h>

#include "engine/exact/decode/exact_step.h"
#include "engine/exact/exact_map.h"

/* The factor of q.k of a row, times its weight among score sources, without the unit of
 * logits. */
static double factor_of(const struct exact_step *x, int64_t h, double weight,
                        int64_t visible)
{
    const struct score *s = x->e.score;
    double              f = x->e.d.q ? s->scale * weight : 1;

    for (int i = 0; i < s->n_factors; i++)
        f *= (double)x->step->io->params[s->factor[i] + h];
    for (int i = 0; i < s->n_rows; i++)
        f *= s->row[i]->def->row_factor(s->row[i], visible);
    return f;
}

const float *step_shaw_keys(const struct exact_step *x, int64_t h)
{
    return x->step->io->params + x->e.score->shaw_k +
           h * (2 * x->e.score->clip + 1) * x->e.d.q;
}

/* Save the queries that meet tables of positions, and add their vectors. */
static void save_positions(const struct exact_step *x, const struct step_queries *r,
                           int64_t h, int64_t i, float *q)
{
    const float *params = x->step->io->params;

    if (r->by_place) {
        double sum = 0;
        for (int c = 0; c < x->e.d.q; c++)
            sum += (double)q[c] * (double)step_shaw_keys(x, h)[c];
        r->far[i] = (float)sum;
        memcpy(r->by_place + i * x->e.d.ldq, q, (size_t)x->e.d.ldq * sizeof *q);
    }
    if (!r->by_distance) return;
    float *far = r->by_distance + i * x->e.d.ldq;
    memcpy(far, q, (size_t)x->e.d.ldq * sizeof *q);
    for (int c = 0; c < x->e.d.q; c++) {
        far[c] += params[x->e.score->txl_w + h * x->e.d.q + c];
        q[c] += params[x->e.score->txl_u + h * x->e.d.q + c];
    }
}

void step_cos_sin(const struct exact_step *x, int64_t pos, float *row)
{
    const double *frequency =
        ((const struct exact_pool *)x->step->pool->own[x->g])->frequency;
    const int half = x->e.d.q / 2;

    for (int t = 0; t < half; t++) {
        const double angle = (double)pos * frequency[t];
        row[x->e.score->rope_half ? t : 2 * t] = (float)cos(angle);
        row[x->e.score->rope_half ? t + half : 2 * t + 1] = (float)sin(angle);
    }
}

void step_project_row(const struct exact_step *x, int64_t head, bool keys,
                      const float *input, float *to)
{
    const float *by = x->step->io->params + x->e.stage->group->param0[keys] +
                      head * x->e.d.in * (int64_t)x->e.d.q;

    memset(to, 0, (size_t)x->e.d.ldq * sizeof *to);
    for (int t = 0; t < x->e.d.in; t++)
        for (int c = 0; c < x->e.d.q; c++)
            to[c] += input[t] * by[(int64_t)t * x->e.d.q + c];
}

void step_load(const struct exact_step *x, struct step_piece *p,
               const struct step_scratch *scratch)
{
    const int                  rows = p->b->rows, dtype = (int)x->e.plan->p.dtype;
    const int64_t              first = p->b->seq->row0 + p->b->row0 / x->per_kv;
    const bool                 input = exact_has_project(&x->e);
    const struct step_queries *r = &p->rows;
    int32_t                    list[BUNDLE];
    struct mapped              mapped;

    step_source_load(x, p);
    memset(r->q, 0, (size_t)(x->bundle * x->e.d.ldq) * sizeof *r->q);
    for (int i = 0; i < rows; i++) {
        list[i] = (int32_t)(p->b->seq->row0 + (p->b->row0 + i) / x->per_kv - first);
        float *q = r->q + (int64_t)i * x->e.d.ldq;

        if (!x->e.d.q) continue;
        x->e.k->load_rows(input ? scratch->input : q, input ? x->e.d.ld_in : x->e.d.ldq,
                          (const char *)x->step->io->q +
                              row_of(x, p, i) * (size_t)x->e.d.in * x->el,
                          x->e.d.in, dtype, 1, x->e.d.in);
        if (input) step_project_row(x, head_of(x, p, i), false, scratch->input, q);
    }
    exact_map(&x->e, r->q, rows, (struct positions){ first, list }, false, &mapped);
    for (int i = 0; i < rows; i++) {
        const int64_t h = head_of(x, p, i);
        float        *q = r->q + (int64_t)i * x->e.d.ldq;

        save_positions(x, r, h, i, q);
        const float f = (float)factor_of(
            x, h, x->e.source.kinds ? r->source.weight[i][SOURCE_QK] : 1,
            x->counts ? x->visible[row_index(x, p, i)] : 0);
        for (int j = 0; j < LANES; j++)
            r->f[(int64_t)i * LANES + j] = f;
    }
    if (x->dots_bf16 && x->e.d.q)
        x->e.k->store_rows(r->pairs, x->e.d.ldq, FOCI_BF16, r->q, x->e.d.ldq, 1.0f,
                           (int)x->bundle, x->e.d.ldq);
}

/*
 * Attending
 */

/* Non-finite values must reach only the rows that see them. */
static void nonfinite_sums(const struct exact_step *x, const char *v, int n, int rows,
                           const uint64_t *seen, const float *w, float *tile, float *o)
{
    x->e.k->load_rows(tile, x->ldo, v, x->e.d.v, (int)x->e.plan->p.dtype, n, x->e.d.v);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < n; j++)
            for (int c = 0; seen[r] >> j & 1 && c < x->e.d.v; c++)
                o[(int64_t)r * x->ldo + c] +=
                    w[r * LANES + j] * tile[(int64_t)j * x->ldo + c];
}

static bool finite(const struct exact_step *x, const char *v, int n, float *tile)
{
    _Alignas(64) float square[PAGE];
    bool               all = true;

    x->e.k->load_rows(tile, x->ldo, v, x->e.d.v, (int)x->e.plan->p.dtype, n, x->e.d.v);
    x->e.k->row_dot(square, tile, tile, x->ldo, n, x->e.d.v);
    for (int j = 0; j < n; j++)
        all = all && isfinite(square[j]);
    return all;
}

/* Logits to weights; sums so far are rescaled to the new reference. */
static void weigh(const struct exact_step *x, const struct step_piece *p,
                  struct step_scratch *r, const struct step_keys *m, int first,
                  int rows, const uint64_t *seen)
{
    const struct step_sums *sums = &p->sums;
    const double            unit = step_unit(x);

    for (int i = 0; i < rows; i++) {
        const int  row = first + i;
        float     *s = r->s + (int64_t)i * LANES, *o = sums->o + (int64_t)row * x->ldo;
        const bool plain = x->plain && !m->slots && !m->each && seen[i] == ~UINT64_C(0);
        const float by = plain ? (float)((double)p->rows.f[(int64_t)row * LANES] * unit)
                               : step_logits(x, p, r, m, row, &seen[i], s);
        const float shrink =
            x->e.k->weigh_row(s, by, &sums->m[row], &sums->l[row], x->e.kind);
        for (int c = 0; shrink != 1 && c < x->e.d.v; c++)
            o[c] *= shrink;
        if (x->e.score->shaw_v >= 0)
            step_shaw_values(x, m, position_of(x, p->b, row), head_of(x, p, row), s, o);
    }
}

/* q.k of rows first to first + rows. */
static void step_products(const struct exact_step *x, const struct step_piece *p,
                          struct step_scratch *r, const struct step_keys *m, int first,
                          int rows)
{
    if (x->dots_bf16)
        x->e.k->dots_bf16(r->s, p->rows.pairs + (int64_t)first * x->e.d.ldq / 2,
                          x->e.d.ldq / 2, rows, (const void *)m->k, x->e.d.q, m->n,
                          x->e.d.q);
    else
        x->e.k->dots_f32(r->s, p->rows.q + (int64_t)first * x->e.d.ldq, x->e.d.ldq,
                         rows, m->k, x->e.d.q, (int)x->e.plan->p.dtype, m->n, x->e.d.q);
}

void step_attend(const struct exact_step *x, const struct step_piece *p,
                 struct step_scratch *r, const struct step_keys *m, int first, int rows,
                 const uint64_t *seen)
{
    const uint64_t there = foci_bits_in((foci_range){ 0, m->n }, 0);
    const int      dtype = (int)x->e.plan->p.dtype;
    float         *o = p->sums.o + (int64_t)first * x->ldo;
    uint64_t       every = there;

    assert(rows <= KERNEL_ROWS && m->n <= PAGE);
    for (int i = 0; i < rows; i++)
        every &= seen[i];
    if (x->e.d.q) step_products(x, p, r, m, first, rows);
    weigh(x, p, r, m, first, rows, seen);
    if (every != there && !finite(x, m->v, m->n, r->tile))
        nonfinite_sums(x, m->v, m->n, rows, seen, r->s, r->tile, o);
    else if (x->dots_bf16)
        x->e.k->sums_bf16(o, x->ldo, r->s, rows, (const void *)m->v, x->e.d.v, m->n,
                          x->e.d.v);
    else
        x->e.k->sums_f32(o, x->ldo, r->s, rows, m->v, x->e.d.v, dtype, m->n, x->e.d.v);
}
