/* linear_back_rows.c -- what rows are divided by and its gradient; gradients of rows out
 * of chunks. */
#include <math.h>
#include <string.h>

#include "engine/linear_back.h"

/*
 * Sums of decays
 */

/* d/dlam of 1 + lam + ... of n terms: the sum of t lam^(t - 1). */
static double series_slope(double lam, int64_t n)
{
    const double e = 1 - lam, k = (double)n, few = 1e-4;

    if (n <= 1) return 0;
    if (k * e < few) return k * (k - 1) * (0.5 - e * (k - 2) / 3);
    return (1 - pow(lam, k - 1) * (1 + (k - 1) * e)) / (e * e);
}

static double series(double lam, int64_t n)
{
    if (n <= 0) return 0;
    return lam < 1 ? (1 - pow(lam, (double)n)) / (1 - lam) : (double)n;
}

/* Of what linear_fade() says. */
static double fade_slope(const struct linear *x, const struct chunk *c, int lane)
{
    const double  lam = x->decay[c->h].lam;
    const int64_t at = c->pos + lane, after = c->seq->s.nk - at - 1;

    if (x->causal) return series_slope(lam, at + 1);
    if (at < 0) {
        const double  way = (double)-at;
        const int64_t nk = c->seq->s.nk;
        return way * pow(lam, way - 1) * series(lam, nk) +
               pow(lam, way) * series_slope(lam, nk);
    }
    return series_slope(lam, at + 1) + series(lam, after) +
           lam * series_slope(lam, after);
}

/*
 * Divisors
 */

/* What lane i is divided by, with its sign, in the units of its features; 0: empty. */
static float divisor(const struct back *b, const struct back_room *r,
                     const struct chunk *c, int i)
{
    const struct linear *x = &b->x;
    const float          saved = b->saved[linear_saved_at(x, c) + i];
    float                den = (float)x->l->eps;

    if (x->logs && !b->by_feature)
        return saved == INFINITY ? 0 : expf(saved - r->q.top[i]);
    if (!x->lane_logs || saved == 0) return saved;
    for (int t = 0; t < x->m; t++)
        den += r->q.t.f[t * CHUNK + i] * r->z[t * CHUNK + i];
    return den;
}

/* Gradient of the divisor, given d_o.o; the square root of decays has one of its own. */
static float slope_of(const struct back *b, struct back_room *r, const struct chunk *c,
                      int i, float by, float delta)
{
    const struct linear *x = &b->x;

    if (!x->divides) return 0;
    if (x->l->norm == FOCI_NORM_RETNET) {
        const double fade = linear_fade(x, c, i), t = sqrt(fade);

        if (fabsf(by) <= (float)t) {
            if (b->learns) r->d_lam -= (double)delta * fade_slope(x, c, i) / (2 * fade);
            return 0;
        }
    }
    return -delta / by;
}

void back_load_rows(const struct back *b, struct back_room *r, const struct chunk *c)
{
    const struct linear *x = &b->x;
    const bool           retnet = x->l->norm == FOCI_NORM_RETNET;
    _Alignas(64) float   delta[CHUNK] = { 0 };

    if (x->divides) {
        linear_load_q(x, c, x->io->o, &x->p->o, x->dv, x->ldv, r->fade);
        x->k->row_dot(delta, r->n, r->fade, x->ldv, CHUNK, x->dv);
    }
    memset(r->r, 0, CHUNK * sizeof *r->r);
    for (int i = c->r0; i < c->r1; i++) {
        const float by = divisor(b, r, c, i), part = retnet ? fabsf(by) : by;
        float      *row = r->n + (int64_t)i * x->ldv;

        if (by != 0) r->r[i] = slope_of(b, r, c, i, by, delta[i]);
        if (by == 0)
            memset(row, 0, (size_t)x->ldv * sizeof *row);
        else if (by != 1)
            back_scale(row, x->ldv, 1 / part);
    }
}

/*
 * Out
 */

static char *at(const struct linear *x, void *base, const foci_layout *l, int64_t b,
                int64_t row, int64_t head)
{
    const int64_t offset = b * l->batch + row * l->row + head * l->head;
    return (char *)base + (size_t)offset * foci_dtype_bytes(x->p->dtype);
}

/* Lines of n rows of d elements, which will be read, or written. */
static void ask_read(const struct linear *x, const char *rows, int64_t step, int n,
                     int d)
{
    enum { LINE = 64 };
    const int64_t el = (int64_t)foci_dtype_bytes(x->p->dtype);

    for (int i = 0; i < n; i++, rows += step * el)
        for (int64_t t = 0; t < d * el; t += LINE)
            __builtin_prefetch(rows + t, 0, 2);
}

static void ask_write(const struct linear *x, const char *rows, int64_t step, int n,
                      int d)
{
    enum { LINE = 64 };
    const int64_t el = (int64_t)foci_dtype_bytes(x->p->dtype);

    for (int i = 0; i < n; i++, rows += step * el)
        for (int64_t t = 0; t < d * el; t += LINE)
            __builtin_prefetch(rows + t, 1, 2);
}

/* Reading asks for nothing of the caller's to change. */
static const char *where(const struct linear *x, const void *base, const foci_layout *l,
                         int64_t b, int64_t row, int64_t head)
{
    return at(x, (void *)base, l, b, row, head);
}

static void ask_keys(const struct back *b, const struct chunk *c, int r0, int n,
                     bool give)
{
    const struct linear *x = &b->x;
    const foci_problem  *p = x->p;
    const struct seq    *s = &c->seq->s;
    const int64_t        row = s->k0 + c->pos + r0, h = x->kv0 + c->kv;

    ask_read(x, where(x, x->io->k, &p->k, s->b, row, h), p->k.row, n, x->dq);
    ask_read(x, where(x, x->io->v, &p->v, s->b, row, h), p->v.row, n, x->dv);
    if (!give || x->per_kv > 1) return;
    if (b->g->dk)
        ask_write(x, where(x, b->g->dk, &p->k, s->b, row, h), p->k.row, n, x->dq);
    if (b->g->dv)
        ask_write(x, where(x, b->g->dv, &p->v, s->b, row, h), p->v.row, n, x->dv);
}

static void ask_queries(const struct back *b, const struct chunk *c, int r0, int n,
                        bool give)
{
    const struct linear *x = &b->x;
    const foci_problem  *p = x->p;
    const struct seq    *s = &c->seq->s;
    const int64_t        row = s->q0 + c->pos - c->seq->pos0 + r0, h = x->head0 + c->h;

    ask_read(x, where(x, x->io->q, &p->q, s->b, row, h), p->q.row, n, x->dq);
    ask_read(x, where(x, b->g->d_o, &p->o, s->b, row, h), p->o.row, n, x->dv);
    if (x->divides)
        ask_read(x, where(x, x->io->o, &p->o, s->b, row, h), p->o.row, n, x->dv);
    if (give && b->g->dq)
        ask_write(x, where(x, b->g->dq, &p->q, s->b, row, h), p->q.row, n, x->dq);
}

void back_ask(const struct back *b, struct back_room *r)
{
    const struct chunk *c = &r->ahead;
    const int           rows = CHUNK / BACK_PARTS, r0 = r->asked * rows;

    if (r->asked >= BACK_PARTS) return;
    r->asked++;
    const int  q0 = (int)max64(r0, c->r0);
    const bool give = r->asks & ASK_GRADIENTS;
    if (r->asks & ASK_KEYS) ask_keys(b, c, r0, (int)min64(r0 + rows, c->n) - r0, give);
    if (r->asks & ASK_QUERIES)
        ask_queries(b, c, q0, (int)min64(r0 + rows, c->r1) - q0, give);
}

void back_store_q(const struct back *b, const struct back_room *r, const struct chunk *c)
{
    const struct linear *x = &b->x;
    const foci_layout   *l = &x->p->q;
    const int64_t        row = c->seq->s.q0 + c->pos - c->seq->pos0 + c->r0;

    if (!b->g->dq) return;
    x->k->store_rows(at(x, b->g->dq, l, c->seq->s.b, row, x->head0 + c->h), l->row,
                     (int)x->p->dtype, r->dq + (int64_t)c->r0 * x->ldq, x->ldq, 1.0f,
                     c->r1 - c->r0, x->dq);
}

/* Leading keys take no gradient. */
static void clear_memory(const struct linear *x, const struct chunk *c, float *d, int ld)
{
    for (int j = 0; j < c->n && c->pos + j < x->stage->memory; j++)
        memset(d + (int64_t)j * ld, 0, (size_t)ld * sizeof *d);
}

void back_store_k(const struct back *b, const struct chunk *c, float *dk, float *dv)
{
    const struct linear *x = &b->x;
    const struct seq    *s = &c->seq->s;
    const foci_problem  *p = x->p;
    const int64_t        row = s->k0 + c->pos, h = x->kv0 + c->kv;

    clear_memory(x, c, dk, x->ldq);
    clear_memory(x, c, dv, x->ldv);
    if (b->g->dk)
        x->k->store_rows(at(x, b->g->dk, &p->k, s->b, row, h), p->k.row, (int)p->dtype,
                         dk, x->ldq, 1.0f, c->n, x->dq);
    if (b->g->dv)
        x->k->store_rows(at(x, b->g->dv, &p->v, s->b, row, h), p->v.row, (int)p->dtype,
                         dv, x->ldv, 1.0f, c->n, x->dv);
}

void back_give_k(const struct back *b, const struct back_room *r, const struct chunk *c,
                 int64_t from)
{
    const struct linear *x = &b->x;
    const int64_t        row = c->pos - from;

    if (x->per_kv == 1) {
        back_store_k(b, c, r->dk, r->dv);
        return;
    }
    back_sum(r->dk_all + row * x->ldq, r->dk, (int64_t)c->n * x->ldq);
    back_sum(r->dv_all + row * x->ldv, r->dv, (int64_t)c->n * x->ldv);
}
