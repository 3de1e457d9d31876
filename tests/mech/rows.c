/* rows.c -- what the rows of weights add up to, that hidden pairs weigh nothing, and
 * that o = A v. */
#include <math.h>

#include "support/trial.h"

/* The sum a row must have: of the weights, or of their squares for l2norm. */
static void check_sum(const foci_plan *plan, const struct trial *t, const foci_mech *m,
                      int64_t row, int64_t visible, const float *a)
{
    double sum = 0, squares = 0;

    for (int64_t j = 0; j < t->p.len_k; j++) {
        sum += (double)a[j];
        squares += (double)a[j] * (double)a[j];
    }
    const double tolerance = 1e-6;
    if (visible == 0) {
        if (sum != 0) trial_fail(plan, t, "weights of an empty row", row, sum, 0);
    } else if (trial_does(plan, FOCI_MOD_SINK)) {
        if (mech_stochastic(m) && !(sum < 1))
            trial_fail(plan, t, "weights beside a sink", row, sum, 1);
    } else if (mech_stochastic(m)) {
        /* Features may all be 0; logits have weights whatever they are. */
        const bool empty = m->def->engine == FOCI_ENGINE_LINEAR && squares == 0;
        if (!(fabs(sum - 1) < tolerance) && !empty)
            trial_fail(plan, t, "weights", row, sum, 1);
    } else if (m->def->weigh == FOCI_WEIGH_L2NORM) {
        if (!(fabs(squares - 1) < tolerance))
            trial_fail(plan, t, "squared weights", row, squares, 1);
    }
}

static void check_row(const foci_plan *plan, struct trial *t, int64_t b, int64_t h,
                      int64_t i, const float *a, const struct result *got)
{
    const foci_problem *p = &t->p;
    const foci_mech    *m = &plan->spec.groups[0].mech;
    const int64_t       row = (b * p->heads + h) * p->len_q + i;
    const int64_t       kv = h / (p->heads / p->kv_heads);
    int64_t             visible = 0;

    for (int64_t j = 0; j < p->len_k; j++) {
        const bool sees = trial_sees(plan, t, b, h, i, j);
        visible += sees;
        if (!sees && a[j] != 0)
            trial_fail(plan, t, "weight of a hidden pair", row, (double)a[j], 0);
    }
    check_sum(plan, t, m, row, visible, a);
    if (trial_does(plan, FOCI_MOD_SHAW)) return; /* o has more than A v */
    for (int64_t c = 0; c < p->dim_v; c++) {
        const int64_t at = ((b * p->len_q + i) * p->heads + h) * p->dim_v + c;
        double        sum = 0, size = 1;
        for (int64_t j = 0; j < p->len_k; j++) {
            const double term =
                (double)a[j] * ref_load(FOCI_F32, t->v, trial_at(&p->v, b, j, kv, c));
            sum += term;
            size += fabs(term);
        }
        if (!(fabs(sum - got->x[PART_O][at]) <= 2e-5 * size))
            trial_fail(plan, t, "o against A v", at, got->x[PART_O][at], sum);
    }
}

/* Outputs to compare with A v: the engine's.  Through an inverse roundings of floats grow
 * by its condition, which A does not tell; there they are the judge's, and the engine's
 * are near those by the yardstick that knows. */
static struct result outputs(const foci_plan *plan, const struct trial *t)
{
    struct result got = trial_run(plan, t);

    if (!trial_is(plan, FOCI_ENGINE_NYSTROM)) return got;
    struct result want = trial_judge(plan, t, false),
                  rounded = trial_judge(plan, t, true);
    trial_close(plan, t, &got, &want, &rounded);
    result_free(&got);
    result_free(&rounded);
    return want;
}

static void run_case(foci_ctx *ctx, const char *spec, const foci_problem *problem,
                     unsigned gives, uint64_t seed)
{
    foci_plan *plan = trial_plan(ctx, spec, problem);
    if (!plan) return;
    const foci_problem *p = &plan->p;
    struct trial        t = trial_make(plan, spec, seed, gives);
    struct result       got = outputs(plan, &t);
    const int64_t       rows = p->batch * p->heads * p->len_q;
    float              *a = test_alloc((size_t)(rows * p->len_k), sizeof *a);
    const foci_io       io = trial_io(&t);
    const bool          has = trial_has_weights(plan);

    assert_int_equal(foci_ref_weights(plan, &io, a), has ? FOCI_OK : FOCI_ERR_UNSUP);
    for (int64_t r = 0; has && r < rows; r++)
        check_row(plan, &t, r / p->len_q / p->heads, r / p->len_q % p->heads,
                  r % p->len_q, a + r * p->len_k, &got);
    free(a);
    result_free(&got);
    trial_free(&t);
    foci_plan_free(plan);
}

static void rows(void **state)
{
    static const struct {
        foci_problem p;
        unsigned     gives;
    } kinds[] = {
        { { FOCI_SIZED(foci_problem), .batch = 2, .heads = 2, .kv_heads = 1, .len_q = 20,
            .len_k = 70, .dim_qk = 4, .dim_v = 3, .flags = FOCI_FLAG_CAUSAL },
          TRIAL_LENS },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 1, .len_q = 40, .len_k = 40,
            .dim_qk = 4, .max_docs = 3 },
          TRIAL_DOCS },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2, .len_q = 33, .len_k = 20,
            .dim_qk = 4, .flags = FOCI_FLAG_MASK | FOCI_FLAG_BIAS, .mask_heads = 2 },
          0 },
        { { FOCI_SIZED(foci_problem), .batch = 2, .heads = 2, .len_q = 30, .len_k = 30,
            .dim_qk = 4, .flags = FOCI_FLAG_CAUSAL },
          TRIAL_LENS },
    };
    foci_ctx *ctx = test_ctx(NULL, 1);
    char      spec[SPEC_CAP];

    (void)state;
    specs_register(ctx);
    for (int i = 0; specs_next(ctx, i, spec); i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            run_case(ctx, spec, &kinds[k].p, kinds[k].gives, (uint64_t)i);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
