/* differences.c -- the judge's gradients against central differences of its forward
 * pass, all in double: step 1e-5, tolerance 1e-6. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

/* An execution in doubles, packed. */
struct point {
    const foci_plan    *plan;
    const struct trial *t;
    double             *x[4]; /* q, k, v, parameters */
    int64_t             n[4];
    double             *g, *o;
    int64_t             n_o;
};

static const char *const names[4] = { "dq", "dk", "dv", "dparams" };

static foci_io io_of(const struct point *p)
{
    const struct trial *t = p->t;
    return (foci_io){
        FOCI_SIZED(foci_io), .q = p->x[0],    .k = p->x[1],
        .v = p->x[2],        .o = p->o,       .len_q = t->len_q,
        .len_k = t->len_k,   .docs = t->docs, .n_docs = t->docs ? t->p.max_docs : 0,
        .mask = t->mask,     .bias = t->bias
    };
}

/* sum of g o */
static double loss(const struct point *p)
{
    const foci_io         io = io_of(p);
    const struct ref_call call = {
        .plan = p->plan, .io = &io, .type = REF_F64, .params = p->x[3]
    };
    double sum = 0;

    assert_int_equal(ref_run(&call), FOCI_OK);
    for (int64_t i = 0; i < p->n_o; i++)
        sum += p->g[i] * p->o[i];
    return sum;
}

/* Keys of memory take no gradient though the loss depends on them. */
static bool is_memory(const foci_problem *p, int which, int64_t i)
{
    const int64_t dim = which == 1 ? p->dim_qk : p->dim_v;
    return (which == 1 || which == 2) && i / dim / p->kv_heads % p->len_k < p->memory;
}

static void check(const struct point *p, double *const grad[4])
{
    static const double step = 1e-5;

    for (int w = 0; w < 4; w++)
        for (int64_t i = 0; i < p->n[w]; i++) {
            double *const x = &p->x[w][i], at = *x;
            *x = at + step;
            const double up = loss(p);
            *x = at - step;
            const double down = loss(p);
            *x = at;
            double want = (up - down) / (2 * step);
            if (is_memory(&p->t->p, w, i)) want = 0;
            if (!(fabs(grad[w][i] - want) <= 1e-6 * fmax(1, fabs(want))))
                trial_fail(p->plan, p->t, names[w], i, grad[w][i], want);
        }
}

static double *widen(const void *from, int64_t n)
{
    double *x = test_alloc((size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = ref_load(FOCI_F32, from, i);
    return x;
}

static void run_case(foci_ctx *ctx, const char *spec, const foci_problem *problem,
                     unsigned gives, uint64_t seed)
{
    foci_plan          *plan = test_plan(ctx, spec, problem);
    const foci_problem *p = &plan->p;
    struct trial        t = trial_make(plan, spec, seed, gives);
    const int64_t       queries = p->batch * p->len_q * p->heads;
    const int64_t       keys = p->batch * p->len_k * p->kv_heads;
    struct point        at = { .plan = plan,
                               .t = &t,
                               .n_o = queries * p->dim_v,
                               .n = { queries * p->dim_qk, keys * p->dim_qk, keys * p->dim_v,
                                      plan->n_floats } };
    const void         *from[4] = { t.q, t.k, t.v, t.params };
    double             *grad[4];

    for (int w = 0; w < 4; w++) {
        at.x[w] = widen(from[w], at.n[w]);
        grad[w] = test_alloc((size_t)at.n[w], sizeof **grad);
    }
    at.g = widen(t.g, at.n_o);
    at.o = test_alloc((size_t)at.n_o, sizeof *at.o);

    const foci_io         io = io_of(&at);
    const foci_grads      grads = { FOCI_SIZED(foci_grads), .d_o = at.g, .dq = grad[0],
                                    .dk = grad[1], .dv = grad[2] };
    const struct ref_call call = { .plan = plan,
                                   .io = &io,
                                   .grads = &grads,
                                   .type = REF_F64,
                                   .params = at.x[3],
                                   .dparams = grad[3] };
    assert_int_equal(ref_run(&call), FOCI_OK);
    check(&at, grad);

    for (int w = 0; w < 4; w++) {
        free(at.x[w]);
        free(grad[w]);
    }
    free(at.g);
    free(at.o);
    trial_free(&t);
    foci_plan_free(plan);
}

static void differences(void **state)
{
    static const struct {
        foci_problem p;
        unsigned     gives;
    } kinds[] = {
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2, .len_q = 5, .len_k = 5,
            .dim_qk = 3, .dim_v = 2, .flags = FOCI_TRAIN },
          0 },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 4, .kv_heads = 2, .len_q = 3,
            .len_k = 6, .dim_qk = 2, .memory = 2, .flags = FOCI_TRAIN | FOCI_CAUSAL },
          0 },
        { { FOCI_SIZED(foci_problem), .batch = 2, .heads = 2, .kv_heads = 1, .len_q = 4,
            .len_k = 4, .dim_qk = 2, .dim_v = 3,
            .flags = FOCI_TRAIN | FOCI_MASK | FOCI_BIAS },
          TRIAL_LENS },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 1, .len_q = 7, .len_k = 7,
            .dim_qk = 2, .max_docs = 3, .flags = FOCI_TRAIN | FOCI_CAUSAL },
          TRIAL_DOCS },
    };
    foci_ctx *ctx = test_ctx("portable", 1);
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
    const struct CMUnitTest tests[] = { cmocka_unit_test(differences) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
