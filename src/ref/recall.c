/* recall.c -- slots that tokens read and every full segment writes, unrolled over time.
 *
 *     o_i = sum_t softmax_t(s q_i.m_t) m_t
 *     m_t <- y/|y|,  y = m' + beta_t,  m' = softmax((s/tau) m_t.[m_t; K]) [m_t; V]
 *
 * Slots start as beta_t/|beta_t|.  Where y is 0 the slot stays as it was.  Writing goes on
 * for as long as tokens follow that read what was written.
 */
#include <math.h>
#include <stdlib.h>

#include "ref/ref.h"

struct recall {
    const struct ref_part *p;
    foci_memformer         r;
    int                    operand, sum; /* types of operands and of sums */
    int64_t                n, d, segments, memory;
    double                 scale;
    int64_t                beta;

    double *q, *k, *v;      /* as products read them */
    double *slots;          /* [segments][slots][d], before each */
    double *m;              /* [slots][d] of one segment, as products read them */
    double *dslots, *dnext; /* [slots][d] */
    double *a, *da;         /* [1 + segment], or [slots] */
    double *y, *dy;         /* [d] */
};

static void round_all(const struct recall *x, const double *from, int64_t n, double *to)
{
    for (int64_t t = 0; t < n; t++)
        to[t] = ref_round(x->operand, from[t]);
}

static double length(const struct recall *x, const double *y)
{
    double sum = 0;
    for (int64_t e = 0; e < x->d; e++)
        sum += y[e] * y[e];
    return sqrt(sum);
}

/* dx += (dy - u (u.dy)) / |x|, where u = x/|x| */
static void unit_back(const struct recall *x, const double *u, double norm,
                      const double *dy, double *dx)
{
    const double along = ref_dot(x->sum, u, dy, x->d);

    for (int64_t e = 0; e < x->d; e++)
        dx[e] = ref_round(x->sum, dx[e] + (dy[e] - u[e] * along) / norm);
}

static double *slots_at(const struct recall *x, int64_t segment)
{
    return x->slots + segment * x->r.slots * x->d;
}

static foci_range tokens_of(const struct recall *x, int64_t segment)
{
    const int64_t from = segment * x->r.segment;
    return (foci_range){ from, min64(from + x->r.segment, x->n) };
}

/*
 * Reading
 */

static void read_weights(const struct recall *x, int64_t i)
{
    for (int64_t t = 0; t < x->r.slots; t++)
        x->a[t] = x->scale * ref_dot(x->sum, x->q + i * x->d, x->m + t * x->d, x->d);
    ref_softmax(x->a, x->r.slots);
    round_all(x, x->a, x->r.slots, x->a);
}

static void read(const struct recall *x, int64_t i)
{
    double *o = x->p->o + i * x->d;

    read_weights(x, i);
    for (int64_t e = 0; e < x->d; e++)
        o[e] = 0;
    for (int64_t t = 0; t < x->r.slots; t++)
        ref_add_row(x->sum, o, x->a[t], x->m + t * x->d, x->d);
}

static void read_back(const struct recall *x, int64_t i)
{
    const double *g = x->p->g + i * x->d;
    double       *dq = x->p->dq + i * x->d;

    read_weights(x, i);
    for (int64_t t = 0; t < x->r.slots; t++) {
        x->da[t] = ref_dot(x->sum, g, x->m + t * x->d, x->d);
        ref_add_row(x->sum, x->dslots + t * x->d, x->a[t], g, x->d);
    }
    ref_softmax_back(x->a, x->da, x->r.slots);
    for (int64_t t = 0; t < x->r.slots; t++) {
        const double d = x->scale * ref_round(x->operand, x->da[t]);
        ref_add_row(x->sum, dq, d, x->m + t * x->d, x->d);
        ref_add_row(x->sum, x->dslots + t * x->d, d, x->q + i * x->d, x->d);
    }
}

/*
 * Writing
 */

/* The weights of slot t: of itself, then of the tokens; y = m' + beta. */
static void write_weights(const struct recall *x, int64_t t, foci_range of)
{
    const double *m = x->m + t * x->d, s = x->scale / x->r.tau;
    const int64_t n = of.end - of.begin;

    x->a[0] = s * ref_dot(x->sum, m, m, x->d);
    for (int64_t j = 0; j < n; j++)
        x->a[1 + j] = s * ref_dot(x->sum, m, x->k + (of.begin + j) * x->d, x->d);
    ref_softmax(x->a, n + 1);
    round_all(x, x->a, n + 1, x->a);
    for (int64_t e = 0; e < x->d; e++)
        x->y[e] = x->p->call->params[x->beta + t * x->d + e];
    ref_add_row(x->sum, x->y, x->a[0], m, x->d);
    for (int64_t j = 0; j < n; j++)
        ref_add_row(x->sum, x->y, x->a[1 + j], x->v + (of.begin + j) * x->d, x->d);
}

static void write(const struct recall *x, int64_t t, foci_range of, const double *old,
                  double *to)
{
    write_weights(x, t, of);
    const double norm = length(x, x->y);
    for (int64_t e = 0; e < x->d; e++)
        to[e] = ref_round(x->sum, norm == 0 ? old[e] : x->y[e] / norm);
}

/* From dnext of the slots after the segment to dslots of those before. */
static void write_back(const struct recall *x, int64_t t, foci_range of,
                       const double *now)
{
    const struct ref_part *p = x->p;
    const double          *m = x->m + t * x->d, s = x->scale / x->r.tau;
    const double          *dnext = x->dnext + t * x->d;
    double                *dm = x->dslots + t * x->d;
    const int64_t          n = of.end - of.begin;

    write_weights(x, t, of);
    const double norm = length(x, x->y);
    if (norm == 0) {
        ref_add_row(x->sum, dm, 1, dnext, x->d);
        return;
    }
    for (int64_t e = 0; e < x->d; e++)
        x->dy[e] = 0;
    unit_back(x, now, norm, dnext, x->dy);
    ref_add_row(REF_F64, p->dparams + x->beta + t * x->d, 1, x->dy, x->d);
    round_all(x, x->dy, x->d, x->dy);
    x->da[0] = ref_dot(x->sum, x->dy, m, x->d);
    ref_add_row(x->sum, dm, x->a[0], x->dy, x->d);
    for (int64_t j = 0; j < n; j++) {
        const int64_t at = (of.begin + j) * x->d;
        x->da[1 + j] = ref_dot(x->sum, x->dy, x->v + at, x->d);
        if (of.begin + j >= x->memory)
            ref_add_row(x->sum, p->dv + at, x->a[1 + j], x->dy, x->d);
    }
    ref_softmax_back(x->a, x->da, n + 1);
    ref_add_row(x->sum, dm, 2 * s * ref_round(x->operand, x->da[0]), m, x->d);
    for (int64_t j = 0; j < n; j++) {
        const int64_t at = (of.begin + j) * x->d;
        const double  d = s * ref_round(x->operand, x->da[1 + j]);
        ref_add_row(x->sum, dm, d, x->k + at, x->d);
        if (of.begin + j >= x->memory) ref_add_row(x->sum, p->dk + at, d, m, x->d);
    }
}

/*
 * All segments
 */

static void start(const struct recall *x)
{
    const double *beta = x->p->call->params + x->beta;

    for (int64_t t = 0; t < x->r.slots; t++) {
        const double norm = length(x, beta + t * x->d);
        for (int64_t e = t * x->d; e < (t + 1) * x->d; e++)
            x->slots[e] = norm == 0 ? 0 : ref_round(x->sum, beta[e] / norm);
    }
}

static void start_back(const struct recall *x)
{
    const double *beta = x->p->call->params + x->beta;

    for (int64_t t = 0; t < x->r.slots; t++) {
        const double norm = length(x, beta + t * x->d);
        if (norm > 0)
            unit_back(x, x->slots + t * x->d, norm, x->dslots + t * x->d,
                      x->p->dparams + x->beta + t * x->d);
    }
}

static void forward(const struct recall *x)
{
    start(x);
    for (int64_t u = 0; u < x->segments; u++) {
        const foci_range of = tokens_of(x, u);
        round_all(x, slots_at(x, u), x->r.slots * x->d, x->m);
        for (int64_t i = of.begin; i < of.end; i++)
            read(x, i);
        for (int64_t t = 0; u + 1 < x->segments && t < x->r.slots; t++)
            write(x, t, of, slots_at(x, u) + t * x->d, slots_at(x, u + 1) + t * x->d);
    }
}

static void backward(struct recall *x)
{
    const int64_t all = x->r.slots * x->d;

    for (int64_t u = x->segments; u-- > 0;) {
        const foci_range of = tokens_of(x, u);
        double *const    next = x->dslots;

        x->dslots = x->dnext;
        x->dnext = next;
        for (int64_t e = 0; e < all; e++)
            x->dslots[e] = 0;
        round_all(x, slots_at(x, u), all, x->m);
        for (int64_t t = 0; u + 1 < x->segments && t < x->r.slots; t++)
            write_back(x, t, of, slots_at(x, u + 1) + t * x->d);
        for (int64_t i = of.begin; i < of.end; i++)
            read_back(x, i);
    }
    start_back(x);
}

static void carve_all(struct recall *x, struct arena *a)
{
    const int64_t longest = 1 + max64(x->r.slots, min64(x->r.segment, x->n));

    x->q = ref_doubles(a, x->n, x->d);
    x->k = ref_doubles(a, x->n, x->d);
    x->v = ref_doubles(a, x->n, x->d);
    x->slots = ref_doubles(a, (x->segments + 1) * x->r.slots, x->d);
    x->m = ref_doubles(a, x->r.slots, x->d);
    x->dslots = ref_doubles(a, x->r.slots, x->d);
    x->dnext = ref_doubles(a, x->r.slots, x->d);
    x->a = ref_doubles(a, longest, 1);
    x->da = ref_doubles(a, longest, 1);
    x->y = ref_doubles(a, x->d, 1);
    x->dy = ref_doubles(a, x->d, 1);
}

static void recall_run(struct recall *x)
{
    round_all(x, x->p->q, x->n * x->d, x->q);
    round_all(x, x->p->k, x->n * x->d, x->k);
    round_all(x, x->p->v, x->n * x->d, x->v);
    forward(x);
    if (x->p->g) backward(x);
}

foci_status ref_recall_run(const struct ref_part *p)
{
    struct recall x = { .p = p,
                        .operand = ref_operand_type(p->call),
                        .n = p->seq->nq,
                        .d = p->call->plan->p.dim_qk,
                        .memory = ref_memory(p),
                        .scale = ref_scale(p),
                        .beta = ref_tensor(p, -1, 0) };
    struct arena  a = { 0 };

    if (p->seq->nq != p->seq->nk) return FOCI_ERR_ARG;
    p->mech->def->memformer(p->mech, &x.r);
    x.sum = x.operand == REF_F64 ? REF_F64 : FOCI_F32;
    x.segments = div_up(x.n, x.r.segment);
    carve_all(&x, &a);
    if (!arena_ok(&a)) return FOCI_ERR_MEMORY;
    char *memory = calloc(a.used + 1, 1);
    if (!memory) return FOCI_ERR_MEMORY;
    a = (struct arena){ .base = memory };
    carve_all(&x, &a);
    recall_run(&x);
    free(memory);
    return FOCI_OK;
}
