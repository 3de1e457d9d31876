/* linear.c -- attention by kernels that are products of features, row by row.
 *
 *     o_i = sum over j of n_ij lam^|i-j| v_j / D_i
 *
 *     none   D = 1                    sum      D = eps + sum of r_ij lam^|i-j|
 *     count  D = keys visible         retnet   D = t max(|sum of r_ij lam^|i-j|| / t, 1),
 *                                              t = sqrt(sum of lam^|i-j|)
 *     feature  n_ij = sum over c of f_c(q_i) g_c(k_j) / sum over t of g_c(k_t),  D = 1
 *
 * where n are weights as pairs.c has them and r the same, but never rotated.  A row whose
 * D is 0, or below 1e-300 where weights have signs, is empty.
 */
#include <math.h>
#include <stdlib.h>

#include "ref/linear.h"

static const double least_divisor = 1e-300;

/* Half a unit in the last place of a word, relative, is at most half of this. */
static double unit_of(const struct ref_linear *x)
{
    switch (x->type) {
    case FOCI_F32: return 0x1p-23;
    case FOCI_BF16: return 0x1p-7;
    default: return 0;
    }
}

/*
 * One row
 */

static void see(struct ref_linear *x, int64_t i)
{
    const int64_t place = i + x->nk - x->nq;

    x->n = x->causal ? max64(0, min64(place + 1, x->nk)) : x->nk;
    for (int64_t j = 0; j < x->n; j++)
        x->fade[j] = x->l.decays ? pow(x->lam, fabs((double)(place - j))) : 1;
}

/* 0: the row is empty. */
static double divisor_of(const struct ref_linear *x)
{
    const double least = linear_signed(&x->l) ? least_divisor : 0;
    double       sum = 0, fades = 0;

    for (int64_t j = 0; j < x->n; j++) {
        ref_add(x, &sum, x->plain[j] * x->fade[j]);
        ref_add(x, &fades, x->fade[j]);
    }
    if (!x->n) return 0;
    switch (x->l.norm) {
    case FOCI_LINEAR_NORM_SUM:
        if (x->l.eps > 0) sum += x->l.eps * exp(-x->unit);
        return fabs(sum) <= least ? 0 : sum;
    case FOCI_LINEAR_NORM_COUNT: return (double)x->n;
    case FOCI_LINEAR_NORM_RETNET: return fmax(fabs(sum), sqrt(fades));
    default: return 1;
    }
}

static void weigh(struct ref_linear *x, int64_t i)
{
    x->unit = ref_pair_unit(x, i);
    for (int64_t j = 0; j < x->n; j++)
        ref_pair(x, i, j);
    x->divisor = divisor_of(x);
    for (int64_t j = 0; j < x->n; j++)
        x->a[j] = x->divisor == 0
                      ? 0
                      : ref_operand(x, x->rotated[j]) * x->fade[j] / x->divisor;
}

/* From da, divided already, to the gradients of pairs, where along = sum of a da. */
static void weigh_back(struct ref_linear *x, int64_t i, double along)
{
    const double dd = ref_sum(x, -along / x->divisor); /* of the divisor */
    double       sum = 0, dsum = 0, dfades = 0;

    for (int64_t j = 0; j < x->n; j++)
        ref_add(x, &sum, x->plain[j] * x->fade[j]);
    if (x->l.norm == FOCI_LINEAR_NORM_SUM) dsum = dd;
    if (x->l.norm == FOCI_LINEAR_NORM_RETNET) {
        if (fabs(sum) == x->divisor)
            dsum = sum < 0 ? -dd : dd;
        else
            dfades = dd / (2 * x->divisor);
    }
    for (int64_t j = 0; j < x->n; j++) {
        const double dn = x->da[j];
        x->drotated[j] = x->rope ? ref_operand(x, dn * x->fade[j]) : 0;
        x->dplain[j] = ref_operand(x, ((x->rope ? 0 : dn) + dsum) * x->fade[j]);
        x->dfade[j] = dn * x->rotated[j] + dsum * x->plain[j] + dfades;
        ref_pair_back(x, i, j);
    }
}

/* The same where every feature has its own sum. */
static void weigh_features(struct ref_linear *x, int64_t i)
{
    const struct ref_features *f = &x->q, *g = &x->k;

    for (int64_t c = 0; c < x->m; c++) {
        x->top[c] = -INFINITY;
        x->sum[c] = 0;
        for (int64_t j = 0; j < x->n; j++)
            x->top[c] = fmax(x->top[c], g->rounded_log[j * x->m + c]);
        for (int64_t j = 0; j < x->n; j++)
            x->sum[c] += g->rounded[j * x->m + c] *
                         exp(g->rounded_log[j * x->m + c] - x->top[c]);
    }
    x->divisor = x->n > 0;
    for (int64_t j = 0; j < x->n; j++) {
        double sum = 0;
        for (int64_t c = 0; c < x->m; c++) {
            const int64_t r = j * x->m + c;
            x->share[r] =
                x->sum[c] == 0
                    ? 0
                    : g->rounded[r] * exp(g->rounded_log[r] - x->top[c]) / x->sum[c];
            ref_add(x, &sum,
                    f->rounded[i * x->m + c] * exp(f->rounded_log[i * x->m + c]) *
                        x->share[r]);
        }
        x->a[j] = ref_operand(x, sum);
    }
}

static void features_back(struct ref_linear *x, int64_t i)
{
    const struct ref_features *f = &x->q, *g = &x->k;

    for (int64_t c = 0; c < x->m; c++) {
        const int64_t r = i * x->m + c;
        const double  grown = exp(f->rounded_log[r]), own = f->rounded[r] * grown;
        double        mean = 0;

        for (int64_t j = 0; j < x->n; j++)
            ref_add(x, &mean, x->share[j * x->m + c] * x->da[j]);
        mean *= 1 + (c % 2 ? unit_of(x) : -unit_of(x)); /* as in backward_row() */
        ref_add(x, &f->dvalue[r], mean * grown);
        ref_add(x, &f->dlog[r], mean * own);
        for (int64_t j = 0; j < x->n && x->sum[c] != 0; j++) {
            const int64_t t = j * x->m + c;
            const double  d = ref_operand(x, own * (x->da[j] - mean));
            ref_add(x, &g->dlog[t], x->share[t] * d);
            ref_add(x, &g->dvalue[t],
                    exp(g->rounded_log[t] - x->top[c]) / x->sum[c] * d);
        }
    }
}

/*
 * All rows
 */

static void forward_row(struct ref_linear *x, int64_t i, double *o)
{
    const double *v = x->p->v;

    see(x, i);
    if (x->l.norm == FOCI_LINEAR_NORM_FEATURE)
        weigh_features(x, i);
    else
        weigh(x, i);
    for (int64_t t = 0; t < x->dv; t++) {
        o[t] = 0;
        for (int64_t j = 0; j < x->n && x->divisor != 0; j++)
            ref_add(x, &o[t], x->a[j] * ref_operand(x, v[j * x->dv + t]));
    }
}

/* From g to the gradients of weights and values, both divided. */
static void values_back(struct ref_linear *x, const double *g)
{
    for (int64_t t = 0; t < x->dv; t++)
        x->dn[t] = ref_operand(x, g[t] / x->divisor);
    for (int64_t j = 0; j < x->n; j++) {
        x->da[j] = 0;
        for (int64_t t = 0; t < x->dv; t++) {
            const double v = ref_operand(x, x->p->v[j * x->dv + t]);
            ref_add(x, &x->da[j], x->dn[t] * v);
            if (j >= x->memory)
                ref_add(x, &x->p->dv[j * x->dv + t], x->a[j] * x->divisor * x->dn[t]);
        }
    }
}

/* lam^far has slope far lam^(far - 1).  With bf16 operands every term may be off by half
 * a unit in the last place; `noise` is the variance of their sum. */
static void decay_back(struct ref_linear *x, int64_t i)
{
    for (int64_t j = 0; j < x->n && x->l.decays; j++) {
        const double far = fabs((double)(i + x->nk - x->nq - j));
        if (far == 0) continue;
        const double term = x->dfade[j] * far * pow(x->lam, far - 1);
        x->dlam += term;
        x->noise += unit_of(x) / 2 * term * (unit_of(x) / 2 * term);
    }
}

static void backward_row(struct ref_linear *x, int64_t i, const double *o,
                         const double *g)
{
    const int type = x->type == REF_F64 ? REF_F64 : (int)x->p->call->plan->p.dtype;
    double    along = 0, squares = 0;

    if (x->divisor == 0) return;
    values_back(x, g);
    for (int64_t t = 0; t < x->dv; t++) {
        const double term = g[t] * ref_round(type, o[t]);
        ref_add(x, &along, term);
        squares += term * term;
    }
    /* Where it cancels all else, as in a row of one key, being off must show: four roundings,
     * of g, a, v and o, make a unit. */
    along += unit_of(x) * sqrt(squares);
    if (x->l.norm == FOCI_LINEAR_NORM_FEATURE) {
        features_back(x, i);
        return;
    }
    weigh_back(x, i, along);
    decay_back(x, i);
}

static void report(const struct ref_linear *x, int64_t i)
{
    float *const to = x->p->weights ? ref_weights_at(x->p, i) : NULL;

    if (x->p->lse) x->p->lse[i] = x->divisor == 0 ? -INFINITY : 0;
    for (int64_t j = 0; to && j < x->nk; j++)
        to[j] = (float)(j < x->n ? x->a[j] : 0);
}

static void bring_home(const struct ref_linear *x)
{
    for (int64_t i = 0; x->written && i < x->nq; i++)
        ref_features_back(x, &x->q, i);
    for (int64_t j = x->memory; x->written && j < x->nk; j++)
        ref_features_back(x, &x->k, j);
    if (x->theta >= 0)
        x->p->dparams[x->theta] += (x->dlam + sqrt(x->noise)) * x->lam * (1 - x->lam);
}

static foci_status linear_run(struct ref_linear *x)
{
    TRY(ref_exponents(x));
    if (x->written) {
        ref_features_fill(x, &x->q);
        ref_features_fill(x, &x->k);
    }
    for (int64_t i = x->p->rows.begin; i < x->p->rows.end; i += x->p->step) {
        double *o = x->p->o + i * x->dv;
        forward_row(x, i, o);
        if (x->p->g)
            backward_row(x, i, o, x->p->g + i * x->dv);
        else
            report(x, i);
    }
    if (x->p->g) bring_home(x);
    return FOCI_OK;
}

/*
 * Opening
 */

static void read_modifiers(struct ref_linear *x)
{
    const foci_mech *m = x->p->mech;

    x->scale = 1 / sqrt((double)x->dqk);
    for (size_t t = 0; t < m->n_mods; t++) {
        if (m->mods[t].def->does & FOCI_MOD_SCALE) x->scale = m->mods[t].arg[0];
        if (m->mods[t].def->does & FOCI_MOD_ROPE) x->rope = &m->mods[t];
    }
}

static void read_decay(struct ref_linear *x)
{
    const foci_mech *m = x->p->mech;

    x->theta = -1;
    if (!x->l.decays) return;
    x->theta = ref_tensor(x->p, -1, 0);
    x->lam = x->theta < 0 ? m->def->decay(m, x->p->index, x->p->heads)
                          : 1 / (1 + exp(-x->p->call->params[x->theta]));
}

static struct ref_linear open_head(const struct ref_part *p)
{
    const foci_problem *pr = &p->call->plan->p;
    struct ref_linear   x = { .p = p,
                              .l = linear_of(p->mech),
                              .causal = (pr->flags & FOCI_FLAG_CAUSAL) != 0,
                              .type = ref_operand_type(p->call),
                              .nq = p->seq->nq,
                              .nk = p->seq->nk,
                              .dqk = pr->dim_qk,
                              .dv = ref_dim_v(p->call),
                              .memory = ref_memory(p) };

    read_modifiers(&x);
    read_decay(&x);
    x.m = ref_features_count(p->mech, &x.l, x.dqk);
    x.length = x.l.length > 0 ? x.l.length : (double)x.nk;
    x.logs = x.l.feature == FOCI_FEATURE_EXP || x.l.feature == FOCI_FEATURE_TRIG ||
             x.l.feature == FOCI_FEATURE_SOFTMAX;
    x.written =
        x.logs || x.rope || x.type != REF_F64 || x.l.norm == FOCI_LINEAR_NORM_FEATURE;
    if (x.l.feature == FOCI_FEATURE_EXP || x.l.feature == FOCI_FEATURE_TRIG) {
        x.omega = p->call->params + ref_tensor(p, -1, 0);
        x.directions = x.l.both || x.l.feature == FOCI_FEATURE_TRIG ? x.m / 2 : x.m;
    }
    const double root = sqrt(fabs(x.scale));
    x.q = (struct ref_features){ .x = p->q,
                                 .dx = p->dq,
                                 .rows = x.nq,
                                 .place = x.nk - x.nq,
                                 .root = x.scale < 0 ? -root : root,
                                 .queries = true };
    x.k = (struct ref_features){ .x = p->k, .dx = p->dk, .rows = x.nk, .root = root };
    x.means.d = x.dqk;
    return x;
}

static void carve_features(const struct ref_linear *x, struct ref_features *f,
                           struct arena *a)
{
    f->value = ref_doubles(a, f->rows, x->m);
    f->log = ref_doubles(a, f->rows, x->m);
    f->dvalue = ref_doubles(a, f->rows, x->m);
    f->dlog = ref_doubles(a, f->rows, x->m);
    f->rounded = f->value;
    f->rounded_log = f->log;
    if (x->type != REF_F64) {
        f->rounded = ref_doubles(a, f->rows, x->m);
        f->rounded_log = ref_doubles(a, f->rows, x->m);
    }
    f->along = ref_doubles(a, x->directions, x->dqk);
}

static void carve_exponents(struct ref_linear *x, struct arena *a)
{
    const int64_t d = x->dqk;

    x->e = (struct ref_exponents){ ref_doubles(a, d, 1), ref_doubles(a, d, d),
                                   ref_doubles(a, d, d), ref_doubles(a, d, d),
                                   ref_doubles(a, d, d) };
    if (!x->l.moments) return;
    x->means = (struct ref_moments){ d, ref_doubles(a, d, d), ref_doubles(a, d, d),
                                     ref_doubles(a, d, 1), ref_doubles(a, d, 1) };
    x->scratch = ref_doubles(a, ref_moments_scratch(d), 1);
}

static void carve_all(struct ref_linear *x, struct arena *a)
{
    double **const rows[] = { &x->plain, &x->rotated, &x->fade,     &x->a,
                              &x->da,    &x->dplain,  &x->drotated, &x->dfade };

    for (size_t t = 0; t < sizeof rows / sizeof *rows; t++)
        *rows[t] = ref_doubles(a, x->nk, 1);
    x->dn = ref_doubles(a, x->dv, 1);
    if (x->l.norm == FOCI_LINEAR_NORM_FEATURE) {
        x->share = ref_doubles(a, x->nk, x->m);
        x->top = ref_doubles(a, x->m, 1);
        x->sum = ref_doubles(a, x->m, 1);
    }
    if (x->written) {
        carve_features(x, &x->q, a);
        carve_features(x, &x->k, a);
    }
    if (x->l.feature == FOCI_FEATURE_EXP) carve_exponents(x, a);
}

foci_status ref_linear_run(const struct ref_part *p)
{
    struct ref_linear x = open_head(p);
    struct arena      a = { 0 };

    carve_all(&x, &a);
    if (!arena_ok(&a)) return FOCI_ERR_MEMORY;
    char *memory = calloc(a.used + 1, 1);
    if (!memory) return FOCI_ERR_MEMORY;
    a = (struct arena){ .base = memory };
    carve_all(&x, &a);
    const foci_status status = linear_run(&x);
    free(memory);
    return status;
}
