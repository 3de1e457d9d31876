/* golden.c -- the interpreter against vectors that owe it nothing.
 *
 *     golden [DIRECTORY [PATTERN]]
 *
 * Every mechanism and every modifier must have a file, which is a test of its name;
 * README.md has the format.  PATTERN chooses tests ("l*").  All is computed in double,
 * so that agreement to 1e-10 can be asked for; what the interpreter gives as floats, to
 * 1e-6.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden/lines.h"
#include "ref/ref.h"

#ifndef GOLDEN_DIR
#define GOLDEN_DIR "tests/golden"
#endif

static const char *directory = GOLDEN_DIR;

enum { MAX_LISTS = 4, MAX_FILES = 256 };

/* The lists of a case; how many. */
static int lists_of(const struct lines *c, foci_list lists[MAX_LISTS])
{
    int n = 0;

    for (int t = 0; t < c->n; t++) {
        if (strncmp(c->key[t], "list ", 5) != 0) continue;
        assert_true(n < MAX_LISTS);
        foci_list *list = &lists[n++];
        double    *x = numbers(c->values[t], &list->count);
        int64_t   *data = test_alloc((size_t)list->count + 1, sizeof *data);
        for (int64_t i = 0; i < list->count; i++)
            data[i] = (int64_t)x[i];
        list->name = c->key[t] + 5;
        list->data = data;
        free(x);
    }
    return n;
}

static foci_problem problem_of(const struct lines *c)
{
    foci_problem p = { FOCI_SIZED(foci_problem), .flags = FOCI_FLAG_TRAIN };
    const char  *text;

    assert_int_equal(foci_problem_parse(NULL, need(c, "problem"), &p), FOCI_OK);
    if ((text = text_of(c, "kv_heads"))) p.kv_heads = atoi(text);
    if ((text = text_of(c, "memory"))) p.memory = atoi(text);
    if ((text = text_of(c, "dim_x"))) p.dim_x = atoi(text);
    if ((text = text_of(c, "seed"))) p.seed = strtoull(text, NULL, 10);
    if ((text = text_of(c, "dropout"))) p.dropout = strtod(text, NULL);
    if ((text = text_of(c, "docs"))) {
        int64_t n;
        free(numbers(text, &n));
        p.max_docs = n - 1;
    }
    const char *keys[] = { "mask_extents", "bias_extents" };
    for (int t = 0; t < 2; t++) {
        if (!(text = text_of(c, keys[t]))) continue;
        p.flags |= t == 0 ? FOCI_FLAG_MASK : FOCI_FLAG_BIAS;
        char *end;
        p.mask_batch = strtol(text, &end, 10);
        p.mask_heads = strtol(end, NULL, 10);
    }
    return p;
}

/* Parameters of a plan in one array; the case has no others. */
static double *params_of(const struct lines *c, const foci_plan *plan)
{
    double *params =
        test_alloc((size_t)foci_plan_param_floats(plan) + 1, sizeof *params);
    int given = 0;

    for (int t = 0; t < c->n; t++)
        given += strncmp(c->key[t], "param ", 6) == 0;
    if (given > foci_plan_param_count(plan))
        fail_msg("case %s: %d tensors, where %s has %d", text_of(c, "case"), given,
                 text_of(c, "spec"), foci_plan_param_count(plan));
    for (int t = 0; t < foci_plan_param_count(plan); t++) {
        foci_param param = { FOCI_SIZED(foci_param) };
        char       key[96];
        assert_int_equal(foci_plan_param(plan, t, &param), FOCI_OK);
        snprintf(key, sizeof key, "param %s", param.name);
        double *values = exactly(c, key, param.count);
        memcpy(params + param.offset, values, (size_t)param.count * sizeof *values);
        free(values);
    }
    return params;
}

/* The tensors are those that the seed of the case draws; unknown ones are NaN. */
static void compare_drawn(const char *file, const struct lines *c,
                          const foci_plan *plan, const double *params)
{
    const uint64_t seed = strtoull(need(c, "drawn"), NULL, 10);
    const double   single = 1e-6;
    float *drawn = test_alloc((size_t)foci_plan_param_floats(plan) + 1, sizeof *drawn);

    assert_int_equal(foci_params_init(plan, seed, drawn), FOCI_OK);
    for (int64_t t = 0; t < foci_plan_param_floats(plan); t++) {
        if (isnan(params[t]) && isnan(drawn[t])) continue;
        if (!(fabs((double)drawn[t] - params[t]) <= single * fmax(1, fabs(params[t]))))
            fail_msg("%s.txt, %s: parameter %lld starts as %.9g, not %.17g", file,
                     text_of(c, "case"), (long long)t, (double)drawn[t], params[t]);
    }
    free(drawn);
}

/* Everything of one execution that has to be freed. */
struct execution {
    foci_io    io;
    foci_grads grads;
    double    *q, *k, *v, *x, *g, *o, *lse, *dq, *dk, *dv, *dx, *params, *dparams;
    float     *weights, *bias, *dbias;
    int64_t    n_bias;
    uint8_t   *mask;
    int32_t   *len_q, *len_k, *docs, *words;
};

/* A tensor that not every mechanism reads, and room for its gradient. */
static double *maybe(const struct lines *c, const char *key, int64_t n, double **grad)
{
    if (!text_of(c, key)) return NULL;
    *grad = test_alloc((size_t)n + 1, sizeof **grad);
    return exactly(c, key, n);
}

/* Mask and bias of the problem. */
static void execution_pairs(struct execution *e, const struct lines *c)
{
    const char *mask = text_of(c, "mask"), *bias = text_of(c, "bias");
    int64_t     n;

    if (mask) {
        double *x = numbers(mask, &n);
        e->mask = test_alloc((size_t)n + 1, 1);
        for (int64_t t = 0; t < n; t++)
            e->mask[t] = x[t] != 0;
        free(x);
    }
    if (bias) {
        double *x = numbers(bias, &n);
        e->bias = test_alloc((size_t)n + 1, sizeof(float));
        e->dbias = test_alloc((size_t)n + 1, sizeof(float));
        e->n_bias = n;
        for (int64_t t = 0; t < n; t++)
            e->bias[t] = (float)x[t];
        free(x);
    }
}

static uint64_t dropout_seed(const struct lines *c)
{
    const char *text = text_of(c, "dropout");
    return text ? strtoull(strchr(text, ' ') + 1, NULL, 10) : 0;
}

static void execution_make(struct execution *e, const struct lines *c,
                           const foci_plan *plan)
{
    const foci_problem *p = &plan->p;
    const int64_t       rows = p->batch * p->len_q * p->heads;
    const int64_t       keys = p->batch * p->len_k * p->kv_heads;

    e->dv = test_alloc((size_t)(keys * p->dim_v) + 1, sizeof(double));
    e->q = maybe(c, "q", rows * p->dim_qk, &e->dq);
    e->k = maybe(c, "k", keys * p->dim_qk, &e->dk);
    e->v = exactly(c, "v", keys * p->dim_v);
    e->x = maybe(c, "x", p->batch * p->len_q * p->dim_x, &e->dx);
    e->g = exactly(c, "g", rows * p->dim_v);
    e->o = test_alloc((size_t)(rows * p->dim_v) + 1, sizeof(double));
    e->lse = test_alloc((size_t)rows + 1, sizeof(double));
    e->weights = test_alloc((size_t)(rows * p->len_k) + 1, sizeof(float));
    e->params = params_of(c, plan);
    e->dparams = test_alloc((size_t)plan->n_floats + 1, sizeof(double));
    e->len_q = whole(text_of(c, "len_q"));
    e->len_k = whole(text_of(c, "len_k"));
    e->docs = whole(text_of(c, "docs"));
    e->words = whole(text_of(c, "words"));
    execution_pairs(e, c);
    e->io = (foci_io){ FOCI_SIZED(foci_io), .q = e->q,
                       .k = e->k,           .v = e->v,
                       .x = e->x,           .o = e->o,
                       .len_q = e->len_q,   .len_k = e->len_k,
                       .docs = e->docs,     .n_docs = p->max_docs,
                       .words = e->words,   .mask = e->mask,
                       .bias = e->bias,     .dropout_seed = dropout_seed(c) };
    e->grads = (foci_grads){ FOCI_SIZED(foci_grads),
                             .d_o = e->g,
                             .dq = e->dq,
                             .dk = e->dk,
                             .dv = e->dv,
                             .dx = e->dx,
                             .dbias = e->dbias };
}

static void execution_free(struct execution *e)
{
    void *const all[] = { e->q,       e->k,       e->v,    e->x,     e->g,    e->o,
                          e->lse,     e->dq,      e->dk,   e->dv,    e->dx,   e->params,
                          e->dparams, e->weights, e->bias, e->dbias, e->mask, e->len_q,
                          e->len_k,   e->docs,    e->words };
    for (size_t t = 0; t < sizeof all / sizeof *all; t++)
        free(all[t]);
}

static void compare_params(const char *file, const struct lines *c,
                           const foci_plan *plan, const double *dparams,
                           double tolerance)
{
    for (int t = 0; t < foci_plan_param_count(plan); t++) {
        foci_param param = { FOCI_SIZED(foci_param) };
        char       key[96];
        assert_int_equal(foci_plan_param(plan, t, &param), FOCI_OK);
        snprintf(key, sizeof key, "dparam %s", param.name);
        compare(file, c, key, dparams + param.offset, tolerance);
    }
}

static void compare_all(const char *file, const struct lines *c, const foci_plan *plan,
                        const struct execution *e)
{
    const double        exact = 1e-10, single = 1e-6, six_decimals = 6e-7;
    const foci_problem *p = &plan->p;
    const int64_t       pairs = p->batch * p->heads * p->len_q * p->len_k;

    compare(file, c, "o", e->o, exact);
    if (text_of(c, "lse")) compare(file, c, "lse", e->lse, exact);
    if (e->q) compare(file, c, "dq", e->dq, exact);
    if (e->k) compare(file, c, "dk", e->dk, exact);
    compare(file, c, "dv", e->dv, exact);
    if (e->x) compare(file, c, "dx", e->dx, exact);
    if (e->bias) compare_floats(file, c, "dbias", e->dbias, e->n_bias, single);
    compare_params(file, c, plan, e->dparams, exact);
    if (text_of(c, "a")) compare_floats(file, c, "a", e->weights, pairs, single);
    if (text_of(c, "printed_o")) compare(file, c, "printed_o", e->o, six_decimals);
    if (text_of(c, "printed_a"))
        compare_floats(file, c, "printed_a", e->weights, pairs, six_decimals);
}

static float *floats(const double *x, int64_t n)
{
    float *y = test_alloc((size_t)n + 1, sizeof *y);
    for (int64_t t = 0; t < n; t++)
        y[t] = (float)x[t];
    return y;
}

/* Statistics of the batch, which the engine finds in single precision. */
static void compare_calibrated(const char *file, const struct lines *c,
                               const foci_plan *plan, const struct execution *e)
{
    const foci_problem *p = &plan->p;
    const double        tolerance = 1e-5;
    float              *params = floats(e->params, plan->n_floats);
    float              *q = floats(e->q, p->batch * p->len_q * p->heads * p->dim_qk);
    float              *k = floats(e->k, p->batch * p->len_k * p->kv_heads * p->dim_qk);
    char               *work = test_alloc(foci_plan_work_bytes(plan), 1);
    foci_io             io = e->io;

    io.q = q;
    io.k = k;
    io.params = params;
    io.work = work;
    assert_int_equal(foci_params_calibrate(plan, &io, params), FOCI_OK);
    for (int t = 0; t < foci_plan_param_count(plan); t++) {
        foci_param param = { FOCI_SIZED(foci_param) };
        char       key[96];
        assert_int_equal(foci_plan_param(plan, t, &param), FOCI_OK);
        snprintf(key, sizeof key, "calibrated %s", param.name);
        if (text_of(c, key))
            compare_floats(file, c, key, params + param.offset, param.count, tolerance);
    }
    free(params);
    free(q);
    free(k);
    free(work);
}

static bool is_calibrated(const struct lines *c)
{
    for (int t = 0; t < c->n; t++)
        if (strncmp(c->key[t], "calibrated ", 11) == 0) return true;
    return false;
}

static void judge(const char *file, const struct lines *c, struct ref_call *call)
{
    const foci_status status = ref_run(call);
    if (status)
        fail_msg("%s.txt, %s: %s/%s: %s", file, text_of(c, "case"), text_of(c, "spec"),
                 text_of(c, "problem"), foci_status_text(status));
}

static void run_case(void *ctx, const char *file, const struct lines *c)
{
    foci_problem     p = problem_of(c);
    foci_list        lists[MAX_LISTS];
    struct execution e = { 0 };

    p.n_lists = lists_of(c, lists);
    p.lists = lists;
    foci_plan *plan = test_plan(ctx, need(c, "spec"), &p);
    for (int64_t t = 0; t < p.n_lists; t++)
        free((void *)lists[t].data);

    execution_make(&e, c, plan);
    /* Weights are asked for only where a case has them: not every mechanism does. */
    const bool      weights = text_of(c, "a") || text_of(c, "printed_a");
    struct ref_call call = { .plan = plan,
                             .io = &e.io,
                             .type = REF_F64,
                             .params = e.params,
                             .lse = text_of(c, "lse") ? e.lse : NULL,
                             .weights = weights ? e.weights : NULL };
    judge(file, c, &call);
    call.grads = &e.grads;
    call.dparams = e.dparams;
    judge(file, c, &call);
    compare_all(file, c, plan, &e);
    if (text_of(c, "drawn")) compare_drawn(file, c, plan, e.params);
    if (is_calibrated(c)) compare_calibrated(file, c, plan, &e);

    execution_free(&e);
    foci_plan_free(plan);
}

/* The file that is the state's name. */
static void run_file(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    each_case(directory, *state, run_case, ctx);
    foci_ctx_free(ctx);
}

static struct CMUnitTest test_of(const char *name)
{
    return (struct CMUnitTest){ name, run_file, NULL, NULL, (void *)name };
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[MAX_FILES]; /* those without a name are passed over */
    int                      n = 0;

    for (int t = 0; mech_list[t] && n < MAX_FILES - 3; t++)
        tests[n++] = test_of(mech_list[t]->name);
    for (int t = 0; mod_list[t] && n < MAX_FILES - 3; t++)
        tests[n++] = test_of(mod_list[t]->name);
    tests[n++] = test_of("problems");
    tests[n++] = test_of("dropout");
    tests[n++] = test_of("mixes");

    if (argc > 1) directory = argv[1];
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
