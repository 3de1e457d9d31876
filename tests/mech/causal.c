/* causal.c -- the future does not leak: what comes after a query changes not one bit
 * of its output, and a prefix is computed as if it were all there is.  Sums over features
 * take chunks of 64 tokens in units that all of them have a say in: the last bits of rows
 * in the chunk where the change begins may differ. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

static foci_problem problem_of(int64_t n, foci_dtype dtype)
{
    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .dtype = dtype,
                           .batch = 2,
                           .heads = 2,
                           .kv_heads = 1,
                           .len_q = n,
                           .len_k = n,
                           .dim_qk = 16,
                           .dim_v = 24,
                           .flags = FOCI_FLAG_CAUSAL };
}

/* Which changes of units and of order may bring, relative to results. */
static double last_bits(foci_dtype dtype) { return dtype == FOCI_F32 ? 2e-5 : 0.1; }

/* Rows [0, rows) of o, and lse, equal in both. */
static void same_rows(const foci_plan *plan, const struct trial *t, const char *what,
                      const struct result *x, int64_t len_x, const struct result *y,
                      int64_t len_y, int64_t rows, double tolerance)
{
    const int64_t per_row = t->p.heads * t->p.dim_v;
    const double  size = fmax(1, rms(y->x[PART_O], y->n[PART_O]));

    for (int64_t b = 0; b < t->p.batch; b++)
        for (int64_t i = 0; i < rows * per_row; i++) {
            const double u = x->x[PART_O][b * len_x * per_row + i];
            const double v = y->x[PART_O][b * len_y * per_row + i];
            if (!(fabs(u - v) <= tolerance * fmax(size, fabs(v))))
                trial_fail(plan, t, what, i, u, v);
        }
    for (int64_t h = 0; x->n[PART_LSE] && h < t->p.batch * t->p.heads; h++)
        for (int64_t i = 0; i < rows; i++) {
            const double u = x->x[PART_LSE][h * len_x + i];
            const double v = y->x[PART_LSE][h * len_y + i];
            if (u != v && !(u - v <= tolerance && v - u <= tolerance))
                trial_fail(plan, t, what, i, u, v);
        }
}

/* Keys and values from row j on become others. */
static void change_from(struct trial *t, int64_t j, uint64_t seed)
{
    const foci_problem *p = &t->p;
    struct rng          r;

    rng_seed(&r, seed, 5);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = j; i < p->len_k; i++)
            for (int64_t h = 0; h < p->kv_heads; h++) {
                for (int64_t c = 0; t->k && c < p->dim_qk; c++)
                    ref_store((int)p->dtype, t->k, trial_at(&p->k, b, i, h, c),
                              9 * rng_normal(&r));
                for (int64_t c = 0; c < p->dim_v; c++)
                    ref_store((int)p->dtype, t->v, trial_at(&p->v, b, i, h, c),
                              9 * rng_normal(&r));
            }
}

static void run_changes(foci_ctx *ctx, const char *spec, foci_dtype dtype, uint64_t seed)
{
    static const int64_t from[] = { 199, 130, 128, 127, 65, 64, 63, 17, 1, 0 };
    const foci_problem   p = problem_of(200, dtype);
    foci_plan           *plan = trial_plan(ctx, spec, &p);
    if (!plan) return;
    struct trial  t = trial_make(plan, spec, seed, 0);
    struct result before = trial_run(plan, &t);

    for (size_t f = 0; f < sizeof from / sizeof *from; f++) {
        if (test_sanitized() && f != seed % (sizeof from / sizeof *from)) continue;
        change_from(&t, from[f], seed + f);
        struct result after = trial_run(plan, &t);
        const int64_t same =
            trial_is_linear(plan) ? from[f] / FOCI_TILE * FOCI_TILE : from[f];
        same_rows(plan, &t, "o after a change of later keys", &after, 200, &before, 200,
                  same, 0);
        same_rows(plan, &t, "o after a change of later keys", &after, 200, &before, 200,
                  from[f], last_bits(dtype));
        result_free(&after);
    }
    result_free(&before);
    trial_free(&t);
    foci_plan_free(plan);
}

/* Parameters of a shorter plan: of each head's tensor the first rows, where it has rows
 * for positions. */
static float *first_params(const foci_plan *plan, const foci_plan *part,
                           const float *params)
{
    float *first = test_alloc((size_t)part->n_floats + 1, sizeof *first);

    for (int i = 0; i < part->n_params; i++) {
        const struct param *to = &part->params[i], *from = &plan->params[i];
        const int64_t n = to->count / to->shape[0], all = from->count / to->shape[0];

        for (int64_t h = 0; h < to->shape[0]; h++)
            memcpy(first + to->offset + h * n, params + from->offset + h * all,
                   (size_t)n * sizeof *first);
    }
    return first;
}

static int32_t *first_words(const foci_problem *p, int64_t n, const int32_t *words)
{
    int32_t *first = test_alloc((size_t)(p->batch * n), sizeof *first);

    for (int64_t b = 0; b < p->batch; b++)
        memcpy(first + b * n, words + b * p->len_q, (size_t)n * sizeof *first);
    return first;
}

/* A trial of the first n rows of another; batch entries lie further apart. */
static void run_prefix(foci_ctx *ctx, const char *spec, foci_dtype dtype, int64_t n,
                       uint64_t seed)
{
    const foci_problem whole = problem_of(200, dtype);
    foci_plan         *plan = trial_plan(ctx, spec, &whole);
    if (!plan) return;
    foci_problem part = problem_of(n, dtype);
    part.q = plan->p.q;
    part.k = plan->p.k;
    part.v = plan->p.v;
    part.o = plan->p.o;
    part.x = plan->p.x;
    foci_plan *short_plan = trial_plan(ctx, spec, &part);
    /* Tensors and lists as long as the sequence are others. */
    if (short_plan->n_floats != plan->n_floats || plan->spec.groups[0].list) {
        foci_plan_free(short_plan);
        foci_plan_free(plan);
        return;
    }
    struct trial  t = trial_make(plan, spec, seed, 0);
    struct result all = trial_run(plan, &t);
    struct trial  first = t;
    first.p = short_plan->p;
    first.params = first_params(plan, short_plan, t.params);
    if (t.words) first.words = first_words(&t.p, n, t.words);
    struct result some = trial_run(short_plan, &first);

    /* Panels of keys may end elsewhere, so the last bits may differ. */
    same_rows(plan, &t, "o of a prefix", &some, n, &all, 200, n, last_bits(dtype));
    result_free(&all);
    result_free(&some);
    free(first.params);
    if (t.words) free(first.words);
    trial_free(&t);
    foci_plan_free(short_plan);
    foci_plan_free(plan);
}

static bool can_be_causal(foci_ctx *ctx, const char *spec)
{
    const foci_problem p = problem_of(3, FOCI_F32);
    foci_plan         *plan = trial_plan(ctx, spec, &p);
    foci_plan_free(plan);
    return plan != NULL;
}

static void causal(void **state)
{
    struct levels l = levels_make(1);
    char          spec[SPEC_CAP];

    (void)state;
    for (int i = 0; specs_next(l.ctx[0], i, spec); i++) {
        if (!can_be_causal(l.ctx[0], spec)) continue;
        foci_ctx        *ctx = l.ctx[i % l.n];
        const foci_dtype dtype = i / 3 % 2 ? FOCI_BF16 : FOCI_F32;
        run_changes(ctx, spec, dtype, (uint64_t)i);
        run_prefix(ctx, spec, dtype, 1 + i * 37 % 199, (uint64_t)i);
        run_prefix(ctx, spec, FOCI_F32, 64 * (1 + i % 3), (uint64_t)i);
    }
    levels_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(causal) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
