/* extremes.c -- huge logits, equal keys, shifted keys, logits of -inf, huge and tiny
 * norms. */
#include <math.h>

#include "support/trial.h"

static foci_problem problem_of(foci_dtype dtype, uint32_t flags)
{
    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .dtype = dtype,
                           .batch = 1,
                           .heads = 2,
                           .kv_heads = 1,
                           .len_q = 70,
                           .len_k = 130,
                           .dim_qk = 16,
                           .dim_v = 8,
                           .flags = FOCI_FLAG_TRAIN | flags };
}

/* x <- x a + b[column] for every row of a packed tensor. */
static void change(int type, void *x, int64_t n, int64_t dim, double a, const double *b)
{
    for (int64_t i = 0; x && i < n; i++)
        ref_store(type, x, i, a * ref_load(type, x, i) + (b ? b[i % dim] : 0));
}

static int64_t n_q(const foci_problem *p)
{
    return p->batch * p->len_q * p->heads * p->dim_qk;
}
static int64_t n_k(const foci_problem *p)
{
    return p->batch * p->len_k * p->kv_heads * p->dim_qk;
}

/* A plan of the spec, and the problem it can be on: with as many queries as keys if it has
 * to be, and not causal. */
static foci_plan *plan_of(foci_ctx *ctx, const char *spec, foci_problem *p)
{
    foci_plan *plan = trial_plan(ctx, spec, p);

    if (plan) return plan;
    p->len_q = p->len_k;
    plan = trial_plan(ctx, spec, p);
    if (plan) return plan;
    p->flags &= ~(uint32_t)FOCI_FLAG_CAUSAL;
    return trial_plan(ctx, spec, p);
}

/* Powers of e that are rotated in pairs meet features that others are divided by: where
 * one is e^1000 times the other, so is the quotient. */
static bool is_unbounded(const foci_plan *plan)
{
    const foci_mech *m = &plan->spec.groups[0].mech;

    while (m->inner)
        m = m->inner;
    return m->def->engine == FOCI_ENGINE_LINEAR && trial_does(plan, FOCI_MOD_ROPE) &&
           linear_of(m).feature == FOCI_FEATURE_EXP;
}

/* Logits of up to 1e4 and more, of both signs: nothing overflows, and averages stay
 * among the values. */
static void run_huge(foci_ctx *ctx, const char *spec, foci_dtype dtype, uint64_t seed)
{
    foci_problem p = problem_of(dtype, FOCI_FLAG_CAUSAL);
    foci_plan   *plan = plan_of(ctx, spec, &p);
    if (!plan) return;
    if (is_unbounded(plan)) {
        foci_plan_free(plan);
        return;
    }
    struct trial t = trial_make(plan, spec, seed, 0);

    change((int)dtype, t.q, n_q(&t.p), p.dim_qk, 60, NULL);
    change((int)dtype, t.k, n_k(&t.p), p.dim_qk, 60, NULL);
    struct result got = trial_run(plan, &t);
    for (int part = 0; part < N_PARTS; part++)
        for (int64_t i = 0; i < got.n[part]; i++) {
            const double x = got.x[part][i];
            if (!isfinite(x) && !(part == PART_LSE && x == -INFINITY))
                trial_fail(plan, &t, part_names[part], i, x, 0);
            if (part == PART_O && mech_stochastic(&plan->spec.groups[0].mech) &&
                fabs(x) > 6)
                trial_fail(plan, &t, "an average", i, x, 6);
        }
    result_free(&got);
    trial_free(&t);
    foci_plan_free(plan);
}

/* Whether some modifier tells keys apart by where they stand. */
static bool has_places(const foci_mech *m)
{
    for (size_t i = 0; i < m->n_mods; i++)
        if (m->mods[i].def->does & (FOCI_MOD_ROPE | FOCI_MOD_TABLE | FOCI_MOD_SLOPE |
                                    FOCI_MOD_SHAW | FOCI_MOD_TXL))
            return true;
    return false;
}

/* Keys that are all the same are seen alike. */
static void run_flat(foci_ctx *ctx, const char *spec, uint64_t seed)
{
    foci_problem p = problem_of(FOCI_F32, FOCI_FLAG_CAUSAL);
    foci_plan   *plan = plan_of(ctx, spec, &p);
    if (!plan) return;
    struct trial t = trial_make(plan, spec, seed, 0);
    double       same[16];
    float       *a = test_alloc((size_t)(p.heads * p.len_q * p.len_k), sizeof *a);

    for (int c = 0; c < 16; c++)
        same[c] = trial_is_linear(plan) ? 0.02 * c : 0.1 * c - 0.5;
    change(FOCI_F32, t.k, n_k(&t.p), p.dim_qk, 0, same);
    /* Of one sign, or a kernel may be next to nothing for all keys at once. */
    for (int64_t i = 0; trial_is_linear(plan) && i < n_q(&t.p); i++)
        ((float *)t.q)[i] = fabsf(((float *)t.q)[i]);
    const foci_io        io = trial_io(&t);
    const foci_mech     *m = &plan->spec.groups[0].mech;
    const foci_mech_def *def = m->def;
    if (trial_has_weights(plan))
        assert_int_equal(foci_ref_weights(plan, &io, a), FOCI_OK);
    const bool by_place =
        trial_does(plan, FOCI_MOD_ROPE | FOCI_MOD_TABLE | FOCI_MOD_SLOPE |
                             FOCI_MOD_SHAW | FOCI_MOD_TXL);
    const foci_linear *l = &plan->stages[0].linear;
    const bool alike = !by_place && !def->slots && !def->order && !def->routes &&
                       !l->decays && !l->cosine && !def->memformer &&
                       !def->positional && !def->nystrom &&
                       mech_sources(m) == FOCI_SOURCE_QK;
    for (int64_t r = 0; alike && r < p.heads * p.len_q; r++) {
        double first = -1;
        for (int64_t j = 0; j < p.len_k; j++) {
            if (!trial_sees(plan, &t, 0, r / p.len_q, r % p.len_q, j)) continue;
            const double w = (double)a[r * p.len_k + j];
            if (first < 0) first = w;
            if (w != first && !has_places(&plan->spec.groups[0].mech))
                trial_fail(plan, &t, "weight of an equal key", j, w, first);
        }
    }
    struct result got = trial_run(plan, &t), want = trial_judge(plan, &t, false);
    struct result rounded = trial_judge(plan, &t, true);
    trial_close(plan, &t, &got, &want, &rounded);
    result_free(&got);
    result_free(&want);
    result_free(&rounded);
    free(a);
    trial_free(&t);
    foci_plan_free(plan);
}

static bool ignores_shifts(const foci_mech *m)
{
    foci_order order = { 0 };

    if (m->def->order) m->def->order(m, &order);
    if (order.label && order.label != FOCI_LABEL_PLACE) return false;
    /* A softmax over positions, of each feature. */
    if (m->def->engine == FOCI_ENGINE_LINEAR)
        return linear_of(m).norm == FOCI_LINEAR_NORM_FEATURE;
    if (m->inner && m->inner->def->engine == FOCI_ENGINE_LINEAR) return false;
    if (m->def->weigh != FOCI_WEIGH_SOFTMAX) return false;
    foci_slots levels[FOCI_MAX_LEVELS] = { 0 };
    if (m->def->slots && m->def->slots(m, levels) && levels[0].learned) return false;
    if (m->def->engine == FOCI_ENGINE_MEMFORMER) return false; /* a slot is a key too */
    for (size_t i = 0; i < m->n_mods; i++)
        if (m->mods[i].def->does &
            (FOCI_MOD_UNIT | FOCI_MOD_CAP | FOCI_MOD_SINK | FOCI_MOD_ROPE))
            return false;
    return true;
}

/* One vector added to all keys moves the logits of a row by one number, which softmax
 * does not see. */
static void run_shift(foci_ctx *ctx, const char *spec, uint64_t seed)
{
    foci_problem p = problem_of(FOCI_F32, 0);
    foci_plan   *plan = plan_of(ctx, spec, &p);
    if (!plan) return;
    struct trial t = trial_make(plan, spec, seed, 0);
    double       by[16];

    for (int c = 0; c < 16; c++)
        by[c] = c % 2 ? 0.5 : -0.25;
    if (ignores_shifts(&plan->spec.groups[0].mech)) {
        struct result judge = trial_judge(plan, &t, false), run = trial_run(plan, &t);
        change(FOCI_F32, t.k, n_k(&t.p), p.dim_qk, 1, by);
        struct result judge2 = trial_judge(plan, &t, false), run2 = trial_run(plan, &t);
        /* An inverse makes more of what is rounded, which the yardstick knows. */
        const bool    inverts = trial_is(plan, FOCI_ENGINE_NYSTROM);
        struct result rounded = trial_judge(plan, &t, true);
        trial_close_within(plan, &t, 2, &run2, &judge2, &rounded);
        for (int64_t i = 0; i < run.n[PART_O]; i++) {
            /* The sum of two floats is rounded: the keys moved by 2^-24 too. */
            if (!(fabs(judge2.x[PART_O][i] - judge.x[PART_O][i]) <= 1e-5))
                trial_fail(plan, &t, "shifted, by the judge", i, judge2.x[PART_O][i],
                           judge.x[PART_O][i]);
            if (!inverts && !(fabs(run2.x[PART_O][i] - run.x[PART_O][i]) <= 3e-5))
                trial_fail(plan, &t, "shifted", i, run2.x[PART_O][i], run.x[PART_O][i]);
        }
        result_free(&judge);
        result_free(&judge2);
        result_free(&rounded);
        result_free(&run);
        result_free(&run2);
    }
    trial_free(&t);
    foci_plan_free(plan);
}

/* A bias of -inf hides; a row of nothing else is empty. */
static void run_minus(foci_ctx *ctx, const char *spec, uint64_t seed)
{
    foci_problem p = problem_of(FOCI_F32, FOCI_FLAG_BIAS);
    foci_plan   *plan = plan_of(ctx, spec, &p);
    if (!plan) return;
    struct trial t = trial_make(plan, spec, seed, 0);

    for (int64_t i = 0; i < p.len_q; i++)
        for (int64_t j = 0; j < p.len_k; j++)
            if (i % 5 == 3 || (i + j) % 7 == 2 || j / 64 == i % 3)
                t.bias[i * p.len_k + j] = -INFINITY;
    struct result got = trial_run(plan, &t), want = trial_judge(plan, &t, false);
    trial_close(plan, &t, &got, &want, &want);
    result_free(&got);
    result_free(&want);
    trial_free(&t);
    foci_plan_free(plan);
}

static bool takes_norms(const foci_mech *m)
{
    for (size_t i = 0; i < m->n_mods; i++)
        if (m->mods[i].def->does & FOCI_MOD_UNIT) return true;
    return false;
}

/* Rows whose squares are beyond floats, and rows below the least norm. */
static void run_norms(foci_ctx *ctx, const char *spec, uint64_t seed)
{
    foci_problem p = problem_of(FOCI_F32, 0);
    foci_plan   *plan = plan_of(ctx, spec, &p);
    if (!plan) return;
    struct trial t = trial_make(plan, spec, seed, 0);

    if (takes_norms(&plan->spec.groups[0].mech)) {
        float *const  rows[] = { t.q, t.k };
        const int64_t n[] = { n_q(&t.p), n_k(&t.p) };
        for (int x = 0; x < 2; x++)
            for (int64_t i = 0; i < n[x]; i++)
                rows[x][i] *= i / p.dim_qk % 3 == 0   ? 1e25f
                              : i / p.dim_qk % 3 == 1 ? 1e-13f
                                                      : 1;
        struct result got = trial_run(plan, &t), want = trial_judge(plan, &t, false);
        trial_close(plan, &t, &got, &want, &want);
        result_free(&got);
        result_free(&want);
    }
    trial_free(&t);
    foci_plan_free(plan);
}

/* Where attention is peaked, gradients of logits all but cancel in a row, and what is left
 * of them times large logits is the gradient of a factor: a rounded output must not
 * drown it. */
static void run_peaked(foci_ctx *ctx, const char *spec, foci_dtype dtype, uint64_t seed,
                       struct result *want)
{
    foci_problem p = problem_of(dtype, FOCI_FLAG_CAUSAL);

    p.len_q = p.len_k = 512;
    p.dim_qk = p.dim_v = 64;
    foci_plan   *plan = trial_plan(ctx, spec, &p);
    struct trial t = trial_make(plan, spec, seed, 0);

    change((int)dtype, t.q, n_q(&t.p), p.dim_qk, 3, NULL);
    change((int)dtype, t.k, n_k(&t.p), p.dim_qk, 3, NULL);
    struct result got = trial_run(plan, &t);
    if (!want->x[PART_DPARAMS]) *want = trial_judge(plan, &t, false);
    for (int64_t i = 0; i < got.n[PART_DPARAMS]; i++) {
        const double x = got.x[PART_DPARAMS][i], y = want->x[PART_DPARAMS][i];
        if (!(fabs(x - y) <= 0.05 * fabs(y) + 0.1))
            trial_fail(plan, &t, "a gradient of a factor", i, x, y);
    }
    result_free(&got);
    trial_free(&t);
    foci_plan_free(plan);
}

static void peaked(void **state)
{
    static const char *const specs[] = {
        "softmax temper",       "softmax logn temper", "softmax temper sink",
        "softmax temper alibi", "l2norm temper",       "softmax qknorm(tau=60)"
    };
    struct levels l = levels_make(1);

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        struct result bf16 = { 0 }, f32 = { 0 }; /* the judge's: of all levels */

        for (int level = 0; specs_wanted(specs[i]) && level < l.n; level++) {
            run_peaked(l.ctx[level], specs[i], FOCI_BF16, i, &bf16);
            run_peaked(l.ctx[level], specs[i], FOCI_F32, i, &f32);
        }
        result_free(&bf16);
        result_free(&f32);
    }
    levels_free(&l);
}

static void extremes(void **state)
{
    const bool    brief = getenv("FOCI_TEST_SHORT") != NULL;
    struct levels l = levels_make(1);
    char          spec[SPEC_CAP];

    (void)state;
    for (int i = 0; specs_next(l.ctx[0], i, spec); i++)
        for (int level = 0; level < l.n; level++) {
            if ((brief || strchr(spec, ' ')) && level != i % l.n) continue;
            run_huge(l.ctx[level], spec, i % 2 ? FOCI_BF16 : FOCI_F32, (uint64_t)i);
            run_flat(l.ctx[level], spec, (uint64_t)i);
            run_shift(l.ctx[level], spec, (uint64_t)i);
            run_minus(l.ctx[level], spec, (uint64_t)i);
            run_norms(l.ctx[level], spec, (uint64_t)i);
        }
    levels_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(peaked),
                                        cmocka_unit_test(extremes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
