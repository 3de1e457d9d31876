/* judged.c -- the public face of the judge: the same numbers as inside, rounded once
 * to the type of the tensors; weights; refusals; and the rounding itself. */
#include <math.h>

#include "support/trial.h"

/* Every number of two bytes comes back as it was, and what lies half way between two
 * goes to the even one. */
static void rounding(void **state)
{
    (void)state;
    for (int type = FOCI_BF16; type <= FOCI_F16; type++)
        for (uint32_t bits = 0; bits < 0x8000; bits++) {
            const uint16_t at[2] = { (uint16_t)bits, (uint16_t)(bits + 1) };
            const double   x = ref_load(type, at, 0), y = ref_load(type, at, 1);
            uint16_t       back;

            ref_store(type, &back, 0, x);
            if (isnan(x)) {
                assert_true(isnan(ref_load(type, &back, 0)));
                continue;
            }
            assert_int_equal(back, bits);
            ref_store(type, &back, 0, -x);
            assert_int_equal(back, bits | 0x8000);
            if (isinf(x) || isinf(y)) continue;

            const double half = x + (y - x) / 2;
            ref_store(type, &back, 0, half);
            assert_int_equal(back, bits + (bits & 1));
            ref_store(type, &back, 0, nextafter(half, 0));
            assert_int_equal(back, bits);
            ref_store(type, &back, 0, nextafter(half, INFINITY));
            assert_int_equal(back, bits + 1);

            assert_true(ref_round(type, x) == x && ref_round(type, -y) == -y);
            assert_true(ref_round(type, half) == (bits & 1 ? y : x));
            assert_true(ref_round(type, -nextafter(half, 0)) == -x);
            assert_true(ref_round(type, nextafter(half, INFINITY)) == y);
        }
    assert_true(ref_round(FOCI_F16, 65519) == 65504);
    assert_true(isinf(ref_round(FOCI_F16, 65520)));
    assert_true(isinf(ref_round(FOCI_BF16, -1e39)));
    assert_true(isinf(ref_round(FOCI_BF16, -INFINITY)));
    assert_true(isnan(ref_round(FOCI_F16, NAN)));
    assert_true(ref_round(FOCI_F32, 1 + 0x1p-25) == 1 &&
                signbit(ref_round(FOCI_F16, -0.0)));
}

static void same(const foci_plan *plan, const struct trial *t, int part,
                 const void *got, int type, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = ref_load(type, got, i), y = ref_round(type, want[i]);
        if (x != y) trial_fail(plan, t, part_names[part], i, x, y);
    }
}

static void run_case(foci_ctx *ctx, const char *spec, foci_dtype dtype, uint64_t seed)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .dtype = dtype,
                             .batch = 2,
                             .heads = 2,
                             .kv_heads = 1,
                             .len_q = 5,
                             .len_k = 7,
                             .dim_qk = 4,
                             .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL };
    foci_problem       square = p; /* for those that cannot be causal, or need it so */
    foci_plan         *plan = trial_plan(ctx, spec, &p);

    square.len_q = square.len_k;
    square.flags = seed % 2 ? FOCI_FLAG_TRAIN : p.flags;
    if (!plan) plan = trial_plan(ctx, spec, &square);
    if (!plan) return;
    struct trial  t = trial_make(plan, spec, seed, TRIAL_LENS);
    struct result want = trial_judge(plan, &t, false);
    const int     type = (int)dtype;
    void         *x[N_PARTS];

    for (int i = 0; i < N_PARTS; i++)
        x[i] = test_alloc((size_t)want.n[i], sizeof(float));
    foci_io io = trial_io(&t);
    io.o = x[PART_O];
    io.lse = want.n[PART_LSE] ? x[PART_LSE] : NULL;
    const foci_grads grads = { FOCI_SIZED(foci_grads), .d_o = t.g,
                               .dq = x[PART_DQ],       .dk = x[PART_DK],
                               .dv = x[PART_DV],       .dparams = x[PART_DPARAMS],
                               .dx = x[PART_DX] };
    assert_int_equal(foci_ref_forward(plan, &io), FOCI_OK);
    assert_int_equal(foci_ref_backward(plan, &io, &grads), FOCI_OK);
    for (int i = 0; i < N_PARTS; i++)
        same(plan, &t, i, x[i], i == PART_LSE || i == PART_DPARAMS ? FOCI_F32 : type,
             want.x[i], want.n[i]);

    /* Gradients of parameters are added to what is there. */
    assert_int_equal(foci_ref_backward(plan, &io, &grads), FOCI_OK);
    for (int64_t i = 0; i < want.n[PART_DPARAMS]; i++)
        want.x[PART_DPARAMS][i] *= 2;
    same(plan, &t, PART_DPARAMS, x[PART_DPARAMS], FOCI_F32, want.x[PART_DPARAMS],
         want.n[PART_DPARAMS]);

    for (int i = 0; i < N_PARTS; i++)
        free(x[i]);
    result_free(&want);
    trial_free(&t);
    foci_plan_free(plan);
}

static void face(void **state)
{
    foci_ctx *ctx = test_ctx("portable", 1);
    char      spec[SPEC_CAP];

    (void)state;
    specs_register(ctx);
    for (int i = 0; specs_next(ctx, i, spec); i++)
        run_case(ctx, spec, (foci_dtype)(i % 3), (uint64_t)i);
    foci_ctx_free(ctx);
}

/* Rows of the weights that are computed by themselves are those of the matrix a. */
static void check_slices(const foci_plan *plan, const foci_io *io, const float *a)
{
    const foci_problem *p = &plan->p;
    struct ref_weigher  w;
    float              *rows = test_alloc((size_t)(p->len_q * p->len_k), sizeof *rows);

    assert_int_equal(ref_weigher_open(&w, plan, io), FOCI_OK);
    for (int64_t i = 0; i < p->batch * p->heads; i++)
        for (int64_t n = 1; n <= p->len_q; n += 3)
            for (int64_t first = 0; first < p->len_q; first += n) {
                const struct ref_slice s = { i / p->heads,
                                             i % p->heads,
                                             { first, min64(first + n, p->len_q) },
                                             n % 3 + 1 };
                assert_int_equal(ref_weigher_run(&w, &s, rows), FOCI_OK);
                for (int64_t row = first; row < s.rows.end; row += s.step)
                    assert_memory_equal(rows + (row - first) / s.step * p->len_k,
                                        a + (i * p->len_q + row) * p->len_k,
                                        (size_t)p->len_k * sizeof *rows);
            }
    ref_weigher_close(&w);
    free(rows);
}

/* o = A v, where A is what foci_ref_weights() says, dropout and slots included. */
static void run_weights(foci_ctx *ctx, const char *spec, uint32_t flags, uint64_t seed)
{
    const foci_problem problem = { FOCI_SIZED(foci_problem),
                                   .batch = 2,
                                   .heads = 2,
                                   .kv_heads = 1,
                                   .len_q = 9,
                                   .len_k = 9,
                                   .dim_qk = 4,
                                   .dim_v = 3,
                                   .dropout = seed % 2 ? 0.25 : 0,
                                   .flags = flags };
    foci_problem       other = problem; /* for those that form no weights to drop */
    foci_plan         *plan = trial_plan(ctx, spec, &problem);

    other.dropout = 0;
    if (!plan) plan = trial_plan(ctx, spec, &other);
    if (!plan) return;
    const foci_problem *p = &plan->p;
    struct trial        t = trial_make(plan, spec, seed, TRIAL_LENS);
    const int64_t       rows = p->batch * p->heads * p->len_q;
    float              *a = test_alloc((size_t)(rows * p->len_k), sizeof *a);
    float              *o = test_alloc((size_t)(rows * p->dim_v), sizeof *o);
    foci_io             io = trial_io(&t);
    const bool          has = trial_has_weights(plan);

    io.o = o;
    assert_int_equal(foci_ref_forward(plan, &io), FOCI_OK);
    assert_int_equal(foci_ref_weights(plan, &io, a), has ? FOCI_OK : FOCI_ERR_UNSUP);
    if (!has) assert_non_null(strstr(foci_errmsg(ctx), "has no matrix of weights"));
    for (int64_t i = 0; has && i < rows * p->dim_v; i++) {
        const int64_t c = i % p->dim_v, h = i / p->dim_v % p->heads;
        const int64_t row = i / p->dim_v / p->heads % p->len_q;
        const int64_t b = i / p->dim_v / p->heads / p->len_q;
        const float  *weight = a + ((b * p->heads + h) * p->len_q + row) * p->len_k;
        double        sum = 0, size = 1;
        for (int64_t j = 0; j < p->len_k; j++) {
            const double term = (double)weight[j] *
                                ref_load(FOCI_F32, t.v, trial_at(&p->v, b, j, 0, c));
            sum += term;
            size += fabs(term);
        }
        if (!(fabs((double)o[i] - sum) <= 1e-5 * size))
            trial_fail(plan, &t, "o", i, (double)o[i], sum);
    }
    if (has) check_slices(plan, &io, a);
    free(a);
    free(o);
    trial_free(&t);
    foci_plan_free(plan);
}

static bool adds_to_values(foci_ctx *ctx, const char *spec)
{
    struct spec s;
    bool        adds = false;

    assert_int_equal(spec_parse(ctx, spec, &s), FOCI_OK);
    for (size_t i = 0; i < s.groups[0].mech.n_mods; i++)
        adds = adds || s.groups[0].mech.mods[i].def->does & FOCI_MOD_SHAW;
    spec_free(ctx, &s);
    return adds;
}

static void weights(void **state)
{
    foci_ctx *ctx = test_ctx("portable", 1);
    char      spec[SPEC_CAP];

    (void)state;
    specs_register(ctx);
    for (int i = 0; specs_next(ctx, i, spec); i++) {
        if (adds_to_values(ctx, spec)) continue;
        run_weights(ctx, spec, 0, (uint64_t)i);
        run_weights(ctx, spec, FOCI_FLAG_CAUSAL, (uint64_t)i);
    }
    foci_ctx_free(ctx);
}

static void refusals(void **state)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 1,
                             .len_q = 2,
                             .len_k = 2,
                             .dim_qk = 2,
                             .flags = FOCI_FLAG_TRAIN };
    foci_ctx          *ctx = test_ctx("portable", 1);
    foci_plan         *plan = test_plan(ctx, "softmax", &p);
    float              x[4] = { 0 }, o[4], a[4];
    const int32_t      too_long = 3;
    const foci_io      good = { FOCI_SIZED(foci_io), .q = x, .k = x, .v = x, .o = o };
    foci_io            bad = good;

    (void)state;
    assert_int_equal(foci_ref_forward(plan, &good), FOCI_OK);
    assert_int_equal(foci_ref_forward(plan, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_ref_backward(plan, &good, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_ref_weights(plan, &good, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_ref_weights(plan, &good, a), FOCI_OK);
    bad.o = NULL;
    assert_int_equal(foci_ref_forward(plan, &bad), FOCI_ERR_ARG);
    assert_int_equal(foci_ref_weights(plan, &bad, a), FOCI_OK);
    bad.k = NULL;
    assert_int_equal(foci_ref_weights(plan, &bad, a), FOCI_ERR_ARG);
    bad = good;
    bad.len_k = &too_long;
    assert_int_equal(foci_ref_forward(plan, &bad), FOCI_ERR_ARG);
    bad = good;
    bad.size = 8;
    assert_int_equal(foci_ref_forward(plan, &bad), FOCI_ERR_ARG);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

/* Rows that are queries and keys at once: as many of both, planned or given. */
static void paired(void **state)
{
    static const char spec[] = "segmented(length=2, integrate=second)";
    foci_problem      p = { FOCI_SIZED(foci_problem),
                            .batch = 1,
                            .heads = 1,
                            .len_q = 3,
                            .len_k = 3,
                            .dim_qk = 1 };
    foci_ctx         *ctx = test_ctx("portable", 1);
    foci_plan        *plan = test_plan(ctx, spec, &p), *none;
    float             x[3] = { 0 }, o[3], gamma = 0.5F;
    const int32_t     two = 2;
    foci_io           io = {
                  FOCI_SIZED(foci_io), .q = x, .k = x, .v = x, .o = o, .params = &gamma
    };
    char text[128] = "";

    (void)state;
    assert_int_equal(foci_ref_forward(plan, &io), FOCI_OK);
    io.len_q = &two;
    assert_int_equal(foci_ref_forward(plan, &io), FOCI_ERR_ARG);
    assert_int_equal(foci_io_check(plan, &io, NULL, text, sizeof text), FOCI_ERR_ARG);
    assert_non_null(strstr(text, "2 queries and 3 keys"));
    io.len_k = &two;
    assert_int_equal(foci_ref_forward(plan, &io), FOCI_OK);
    p.len_q = 2;
    assert_int_equal(foci_plan_create(ctx, spec, &p, &none), FOCI_ERR_UNSUP);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding), cmocka_unit_test(face),   cmocka_unit_test(weights),
        cmocka_unit_test(refusals), cmocka_unit_test(paired),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
