/* compare.c -- how near an engine has to come to the judge.
 *
 * Errors are root mean squares over a whole tensor.  Products of f32 must agree to
 * 2e-6 of the result in the forward and 1e-5 in the backward pass.  Products of bf16
 * may be off by twice what rounding their operands once is off, and results of two
 * bytes by the rounding of the result.
 *
 * Sums over features divide by what may be small and add up what may cancel, by the kernel
 * and not by its logits; so do inverses, and what goes through many segments may grow.  So
 * there the judge's own error with every operand and every sum rounded to f32 is the
 * yardstick of f32 too: twice that is allowed on top.
 *
 * Two things loosen that, and are asked for only where they can occur.  Where a
 * result is small because large terms cancel (the gradient of q where a query sees one
 * key is 0), an error relative to it says nothing: `terms` is the size of what was
 * added up, and a few units in the last place of that are allowed.  And of few numbers
 * the roundings may add up otherwise than the yardstick's.  Problems of 64 rows and
 * more with logits of order 1 get neither.
 */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

double rms(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return n ? sqrt(sum / (double)n) : 0;
}

static double rms_apart(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] != y[i]) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return n ? sqrt(sum / (double)n) : 0;
}

/* What rounding to the type of the result does to x. */
static double rms_rounding(int type, const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double off = x[i] - ref_round(type, x[i]);
        if (isfinite(off)) sum += off * off;
    }
    return n ? sqrt(sum / (double)n) : 0;
}

void trial_fail(const foci_plan *plan, const struct trial *t, const char *what,
                int64_t index, double got, double want)
{
    static const char *const types[] = { "f32", "bf16", "f16" };
    const foci_problem      *p = &t->p;
    char                     problem[128];
    const char              *level = "?", *name, *state;

    foci_problem_print(p, problem, sizeof problem);
    for (int i = 0; (name = foci_cpu_level(plan->ctx, i, &state)); i++)
        if (strcmp(state, "chosen") == 0) level = name;
    fail_msg("%s/%s/%s%s, seed %llu, level %s%s%s%s%s%s: %s[%lld] is %.9g, not %.9g "
             "(%d ulps of f32)",
             t->spec, problem, types[p->dtype], p->flags & FOCI_FLAG_FAST ? "fast" : "",
             (unsigned long long)t->seed, level, t->len_q ? ", lengths" : "",
             t->docs ? ", documents" : "", t->mask ? ", mask" : "",
             t->bias ? ", bias" : "", p->memory ? ", memory" : "", what,
             (long long)index, got, want,
             (int)fmin(1e9, fabs(got - want) / (fmax(fabs(want), 1e-30) * 0x1p-23)));
}

void trial_equal(const foci_plan *plan, const struct trial *t, const char *what,
                 const struct result *got, const struct result *want)
{
    for (int part = 0; part < N_PARTS; part++) {
        assert_int_equal(got->n[part], want->n[part]);
        for (int64_t i = 0; i < got->n[part]; i++) {
            if (memcmp(&got->x[part][i], &want->x[part][i], sizeof(double)) == 0)
                continue;
            char text[96];
            snprintf(text, sizeof text, "%s: %s", what, part_names[part]);
            trial_fail(plan, t, text, i, got->x[part][i], want->x[part][i]);
        }
    }
}

/* The length of a typical row of a tensor, and of the shortest that is not zero. */
struct lengths {
    double typical, least;
};

static struct lengths lengths_of(int type, const void *x, const foci_layout *l,
                                 int64_t batch, int64_t rows, int64_t heads, int64_t dim)
{
    struct lengths s = { 0, INFINITY };

    for (int64_t b = 0; x && b < batch; b++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t h = 0; h < heads; h++) {
                double sum = 0;
                for (int64_t c = 0; c < dim; c++) {
                    const double e = ref_load(type, x, trial_at(l, b, i, h, c));
                    sum += e * e;
                }
                s.typical += sum;
                if (sum > 0 && sum < s.least) s.least = sum;
            }
    const double n = fmax(1, (double)(batch * rows * heads));
    return (struct lengths){ sqrt(s.typical / n), sqrt(s.least) };
}

/* The largest factors of q.k there can be, of rows as they are and of rows divided by
 * their norms. */
struct factors {
    double plain, unit;
};

static struct factors largest_factors(const foci_plan *plan, const struct trial *t)
{
    struct factors most = { 0, 0 };

    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct plan_group *group = &plan->spec.groups[g];
        for (int64_t h = 0; h < group->heads; h++) {
            double f = 1 / sqrt((double)mech_width(&group->mech));
            bool   unit = false;
            for (size_t m = 0; m < group->mech.n_mods; m++) {
                const foci_mod *mod = &group->mech.mods[m];
                if (mod->def->does & FOCI_MOD_UNIT) {
                    f = 1;
                    unit = true;
                }
                if (mod->def->does & FOCI_MOD_SCALE) f = fabs(mod->arg[0]);
            }
            for (size_t m = 0; m < group->mech.n_mods; m++) {
                const foci_mod *mod = &group->mech.mods[m];
                if (mod->def->does & FOCI_MOD_FACTOR)
                    f *= fabs((double)t->params[group->mod_param[m][0] + h]);
                if (mod->def->row_factor)
                    f *= fabs(mod->def->row_factor(mod, t->p.len_k));
            }
            if (unit)
                most.unit = fmax(most.unit, f);
            else
                most.plain = fmax(most.plain, f);
        }
    }
    return most;
}

/* The length of a typical row of d floats of a tensor of parameters; 0: there is none. */
static double row_length(const foci_plan *plan, const struct trial *t, int64_t at,
                         int64_t d)
{
    for (int i = 0; at >= 0 && i < plan->n_params; i++) {
        const struct param *p = &plan->params[i];
        double              sum = 0;
        if (p->offset != at) continue;
        for (int64_t e = 0; e < p->count; e++)
            sum += (double)t->params[at + e] * (double)t->params[at + e];
        return sqrt(sum * (double)d / (double)p->count);
    }
    return 0;
}

/* What tables of positions add to queries, keys and values. */
static void add_tables(const foci_plan *plan, const struct trial *t, struct lengths *q,
                       struct lengths *k, struct lengths *v)
{
    const int64_t d = t->p.dim_qk;

    for (int i = 0; i < plan->spec.n_groups; i++) {
        const struct score *s = &plan->stages[i].score;
        q->typical +=
            row_length(plan, t, s->txl_u, d) + row_length(plan, t, s->txl_w, d);
        k->typical +=
            row_length(plan, t, s->shaw_k, d) + row_length(plan, t, s->txl_r, d);
        v->typical += row_length(plan, t, s->shaw_v, t->p.dim_v);
    }
}

static void lengthen(struct lengths *s, double by) { s->typical *= fmax(1, by); }

/* What learned matrices make of queries, keys and values. */
static void multiply(const foci_plan *plan, const struct trial *t, struct lengths *q,
                     struct lengths *k, struct lengths *v)
{
    for (int i = 0; i < plan->spec.n_groups; i++) {
        const struct stage *s = &plan->stages[i];
        const int64_t      *at = s->group->param0;

        if (s->score.map == FOCI_MAP_PROJECT) {
            const int64_t d = mech_width(&s->group->mech);
            lengthen(q, row_length(plan, t, at[0], d));
            lengthen(k, row_length(plan, t, at[1], d));
        }
        if (!stage_learned(s)) continue;
        lengthen(k, row_length(plan, t, at[0], s->levels[0].slots.run_len));
        lengthen(v, row_length(plan, t, at[at[1] >= 0], s->levels[0].slots.run_len));
    }
}

/* The size of the terms that make up each part, per element.  The result is that of
 * the logits: their relative errors become absolute ones of log weights. */
static double sizes_of_terms(const foci_plan *plan, const struct trial *t,
                             double terms[N_PARTS])
{
    const foci_problem *p = &t->p;
    const int           type = (int)p->dtype;
    struct lengths      q =
        lengths_of(type, t->q, &p->q, p->batch, p->len_q, p->heads, p->dim_qk);
    struct lengths k =
        lengths_of(type, t->k, &p->k, p->batch, p->len_k, p->kv_heads, p->dim_qk);
    struct lengths v =
        lengths_of(type, t->v, &p->v, p->batch, p->len_k, p->kv_heads, p->dim_v);
    const struct lengths g =
        lengths_of(type, t->g, &p->o, p->batch, p->len_q, p->heads, p->dim_v);
    const struct factors f = largest_factors(plan, t);
    multiply(plan, t, &q, &k, &v);
    add_tables(plan, t, &q, &k, &v);
    /* A key adds up what heads, and queries where there are more of them, bring it. */
    const double per_key = fmax(1, (double)p->len_q / fmax(1, (double)p->len_k));
    const double share = sqrt((double)p->heads / (double)p->kv_heads * per_key);
    const double root_d = sqrt((double)p->dim_qk), root_v = sqrt((double)p->dim_v);
    const double dx = g.typical * v.typical; /* gradient of a logit */
    const double x = fmax(f.unit, f.plain * q.typical * k.typical);

    terms[PART_O] = v.typical / root_v;
    terms[PART_LSE] = 1 + x;
    terms[PART_DQ] = dx / root_d * fmax(f.unit / q.least, f.plain * k.typical);
    terms[PART_DK] = share * dx / root_d * fmax(f.unit / k.least, f.plain * q.typical);
    terms[PART_DV] = share * g.typical / root_v;
    terms[PART_DX] = dx;
    terms[PART_DBIAS] = dx;
    /* Gradients of the logits of a row sum to about 0, so this bound is not tight.
     * The share was measured, not derived: equal keys needed 0.06. */
    terms[PART_DPARAMS] = 0.2 * dx * (1 + x) * sqrt((double)(p->batch * p->len_q));
    return x / root_d;
}

/* Empty rows must be empty, and nothing may be infinite or NaN. */
static void check_finite(const foci_plan *plan, const struct trial *t, int part,
                         const struct result *got, const struct result *want)
{
    for (int64_t i = 0; i < got->n[part]; i++) {
        const double x = got->x[part][i], y = want->x[part][i];
        if (isfinite(x) ? !isfinite(y) : x != y)
            trial_fail(plan, t, part_names[part], i, x, y);
    }
}

/* Where the two differ most; equal infinities do not. */
static int64_t worst(const double *x, const double *y, int64_t n)
{
    int64_t at = 0;
    double  most = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] != y[i] && fabs(x[i] - y[i]) > most) most = fabs(x[at = i] - y[i]);
    return at;
}

void trial_close(const foci_plan *plan, const struct trial *t, const struct result *got,
                 const struct result *want, const struct result *rounded)
{
    trial_close_within(plan, t, 1, got, want, rounded);
}

/* What all parts are measured by. */
struct measure {
    bool linear, yard, is_fast, rounds, squares;
    bool plain; /* the documented errors of FOCI_FLAG_FAST are those of logits of order 1 */
    double rows, logits, slack, terms[N_PARTS];
    double steps; /* roundings of a feature, of which the yardstick has one */
    double whole; /* the weights of a row, summed, at most */
    double lucky; /* times a yardstick of one number may be too short */
    double draws; /* that it has at most */
};

/* A product of r elements is rounded r - 1 times, its coefficient once, and both
 * together once more. */
static double steps_of(const foci_plan *plan)
{
    double most = 1;

    for (int g = 0; g < plan->spec.n_groups; g++)
        for (const foci_mech *m = &plan->spec.groups[g].mech; m; m = m->inner)
            if (m->def->engine == FOCI_ENGINE_LINEAR)
                most = fmax(most, linear_of(m).order + 1);
    return most;
}

static bool weighs(const foci_plan *plan, foci_weigh kind)
{
    for (int g = 0; g < plan->spec.n_groups; g++)
        for (const foci_mech *m = &plan->spec.groups[g].mech; m; m = m->inner)
            if (m->def->engine == FOCI_ENGINE_EXACT && m->def->weigh == kind)
                return true;
    return false;
}

/* Weights of softmax sum to 1.  Those of l2norm have squares that do, so that n of them sum
 * to up to sqrt(n), and they do where keys are equal: as many times the terms of softmax
 * are added up, and as much is left where they cancel. */
static double whole_of(const foci_plan *plan)
{
    return weighs(plan, FOCI_WEIGH_L2NORM) ? sqrt(fmax(1, (double)plan->p.len_k)) : 1;
}

static const double strict[N_PARTS] = { 2e-6, 2e-6, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5 };
static const double fast[N_PARTS] = { 4e-3, 4e-3, 1e-2, 1e-2, 1e-2, 1e-2, 1e-2, 1e-2 };
static const double rounding[] = {
    [FOCI_F32] = 0, [FOCI_BF16] = 0x1p-9, [FOCI_F16] = 0x1p-12
};

static bool is_tensor(int part)
{
    return part != PART_LSE && part != PART_DPARAMS && part != PART_DBIAS;
}

/* Few numbers, or one larger than all others, may round worse than most do, and what lies
 * near the middle of two goes either way. */
static double of_result(const struct trial *t, int part, double finite,
                        const struct result *want)
{
    if (!is_tensor(part) || t->p.dtype == FOCI_F32) return 0;
    return 1.1 * fmax(rounding[t->p.dtype] * finite,
                      rms_rounding((int)t->p.dtype, want->x[part], want->n[part]));
}

/* Of roundings of few numbers, those of one execution may be several times another's. */
static double few_times(const struct measure *m, int64_t n)
{
    return m->lucky / sqrt(fmax(1, fmin(m->draws, (double)n)));
}

static double bound_exact(const struct trial *t, const struct measure *m, int part,
                          double finite, const struct result *want, double off)
{
    const int64_t n = want->n[part];
    const double  terms = m->terms[part], logits = m->logits;
    const double  summed = terms * (is_tensor(part) ? m->whole : 1);
    const bool    typical =
        is_tensor(part) && m->rows >= 64 && logits < 4 && finite > 0.01 * summed;
    const double yard = m->rounds ? off : 0;
    double       bound = strict[part] * finite + 2 * yard;

    bound += of_result(t, part, finite, want);
    if (!typical) {
        /* A logit x off by a unit in its last place makes its weight off by |x|
         * of them: what cancels is left with that. */
        bound += strict[part] * logits / 4 * finite;
        bound += 3e-7 * (1 + logits) * summed;
        bound += few_times(m, n) * yard;
        if (m->rounds) bound += 0x1p-7 * terms / fmax(1, m->rows);
        /* A weight of relu2 may be larger than 1, and a square is off by twice what its
         * root is.  So of o six half units: two of q and of k, one of the weight and of
         * the value; of dv the same, and of dq and dk q, k, g, v, their product and
         * the row that this multiplies. */
        if (m->rounds && m->squares) bound += 6 * 0x1p-9 * finite / fmax(1, m->rows);
    }
    if (m->rounds && part == PART_DPARAMS) bound += fast[part] * finite;
    /* Each number is one pair's, and an operand may be off by half a unit. */
    if (m->rounds && part == PART_DBIAS) bound += 0x1p-9 * finite;
    /* A sum of rounded weights is off by half a unit at most. */
    if (m->rounds && part == PART_LSE) bound += 0x1p-9;
    /* What is documented is a mean over many numbers. */
    if (m->is_fast && m->plain && logits < 4 && m->rows >= 64)
        bound = fmin(bound, fast[part] * (finite + terms));

    /* A yardstick is one draw of roundings, and may be a lucky one where a single
     * number is larger than all others, as where hardly a pair is seen. */
    if (m->rounds && (m->slack > 1 || finite < 0.03 * terms))
        bound += 0x1p-8 * (1 + logits) * finite;
    return bound;
}

static double bound_yard(const struct trial *t, const struct measure *m, int part,
                         double finite, const struct result *want, double off)
{
    const int64_t n = want->n[part];
    const double  yard = m->steps * off;
    double        bound = strict[part] * finite + (2 + few_times(m, n)) * yard;

    /* Of two features, a weight and a value each may be off by half a unit, and a
     * yardstick of very few numbers may be a lucky one. */
    if (m->rounds) bound += 4 * 0x1p-8 * finite / fmax(1, m->rows);
    if (m->rounds && part == PART_DPARAMS) bound += fast[part] * finite;
    /* Nor does that of f32 tell what cancels of very few. */
    bound += 0x1p-22 * m->terms[part] / fmax(1, m->rows);
    /* Logits cancel as in bound_exact(), of equal keys altogether. */
    if (!m->linear && finite < 0.01 * m->terms[part])
        bound += 3e-7 * (1 + m->logits) * m->terms[part];
    return bound + of_result(t, part, finite, want);
}

static double rms_finite(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(x[i])) sum += x[i] * x[i];
    return sqrt(sum / (double)n);
}

static double bound_of(const struct trial *t, const struct measure *m, int part,
                       const struct result *want, double off)
{
    const double finite = rms_finite(want->x[part], want->n[part]); /* or -inf: lse */
    return m->slack *
           (m->yard ? bound_yard : bound_exact)(t, m, part, finite, want, off);
}

/* Roundings of a row are draws of their own.  But what an inverse makes of them lies along
 * the one direction in which its matrix is nearest to singular, so that all rows of a head
 * have one draw together. */
static double draws_of(const foci_plan *plan, const struct measure *m)
{
    if (!trial_is(plan, FOCI_ENGINE_NYSTROM)) return m->rows;
    return (double)(plan->p.batch * plan->p.heads);
}

/* Elements of a row of a part; of what has no rows, one. */
static int64_t width_of(const struct trial *t, int part)
{
    switch (part) {
    case PART_O:
    case PART_DV: return t->p.dim_v;
    case PART_DQ:
    case PART_DK: return t->p.dim_qk;
    case PART_DX: return t->p.dim_x;
    default: return 1;
    }
}

/* Roundings are relative, so that a row has a share in the mean of their squares as large
 * as its own square s.  Rows of shares s are as many draws as (sum of s)^2 / (sum of s^2)
 * equal ones would be: a row that is larger than all others together is hardly more than
 * one, as where features are rotated in pairs and divisors are not. */
static double draws_among(const struct measure *m, const struct trial *t, int part,
                          const struct result *want)
{
    const int64_t n = want->n[part], width = width_of(t, part);
    double        sum = 0, squares = 0;

    for (int64_t i = 0; i < n; i += width) {
        double s = 0;
        for (int64_t c = i; c < i + width; c++)
            if (isfinite(want->x[part][c])) s += want->x[part][c] * want->x[part][c];
        sum += s;
        squares += s * s;
    }
    const double rows = squares > 0 ? sum / squares * sum : 1;
    return fmin(m->draws, rows);
}

/* Of few draws a yardstick is a lucky one now and then, and more of them tell: the
 * gradient of a temperature adds up what all rows bring, of both signs.  What eight times
 * as many say is near what all would, and a number is hardly ever off by more than twice
 * that. */
static double bound_again(const foci_plan *plan, const struct trial *t,
                          const struct measure *m, int part, const struct result *want)
{
    struct measure drawn = *m;
    double         off[N_PARTS];

    trial_roundings(plan, t, off);
    drawn.lucky = 2;
    drawn.draws = draws_among(m, t, part, want);
    return bound_of(t, &drawn, part, want, off[part]);
}

/* Where the judge's own rounding is the yardstick, in f32 too. */
static bool has_yard(const foci_plan *plan)
{
    return trial_is_linear(plan) || trial_is(plan, FOCI_ENGINE_NYSTROM) ||
           trial_is(plan, FOCI_ENGINE_MEMFORMER);
}

static bool is_rounded(const foci_problem *p)
{
    return p->dtype != FOCI_F32 || p->flags & FOCI_FLAG_FAST;
}

bool trial_needs_words(const foci_plan *plan)
{
    return has_yard(plan) || is_rounded(&plan->p);
}

void trial_close_within(const foci_plan *plan, const struct trial *t, double slack,
                        const struct result *got, const struct result *want,
                        const struct result *rounded)
{
    const foci_problem *p = &t->p;
    struct measure      m = { .linear = trial_is_linear(plan),
                              .yard = has_yard(plan),
                              .is_fast = (p->flags & FOCI_FLAG_FAST) != 0,
                              .plain = !strpbrk(t->spec, " ("),
                              .slack = slack,
                              .lucky = 6 };

    m.rounds = is_rounded(p);
    m.rows = (double)(p->batch * p->heads * min64(p->len_q, p->len_k));
    m.draws = draws_of(plan, &m);
    m.logits = sizes_of_terms(plan, t, m.terms);
    m.steps = steps_of(plan);
    m.whole = whole_of(plan);
    m.squares = weighs(plan, FOCI_WEIGH_RELU2);
    for (int part = 0; part < N_PARTS; part++) {
        const int64_t n = want->n[part];
        if (n == 0) continue;
        check_finite(plan, t, part, got, want);

        const double off = rms_apart(rounded->x[part], want->x[part], n);
        const double error = rms_apart(got->x[part], want->x[part], n);
        double       bound = bound_of(t, &m, part, want, off);
        if (error > bound && draws_among(&m, t, part, want) < 64 && rounded != want)
            bound = bound_again(plan, t, &m, part, want);
        if (error <= bound) continue;
        const int64_t at = worst(got->x[part], want->x[part], n);
        print_error("rms error %.3g, %.3g of the result; allowed %.3g\n", error,
                    error / rms_finite(want->x[part], n), bound);
        trial_fail(plan, t, part_names[part], at, got->x[part][at], want->x[part][at]);
    }
}
