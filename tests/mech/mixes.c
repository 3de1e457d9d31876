/* mixes.c -- groups of heads in one call: each gives the bits it gives alone, whatever
 * runs beside it, in any order and for any number of threads. */
#include <math.h>
#include <omp.h>
#include <stdio.h>

#include "support/trial.h"

enum { MOST = 4 }; /* groups of a mix */

struct mix {
    int64_t     heads[MOST];
    const char *spec[MOST];
};

static const struct mix mixes[] = {
    { { 7, 1 }, { "fixed", "softmax" } },
    { { 4, 4 }, { "fixed", "softmax sink" } },
    { { 2, 4, 2 }, { "fixed(left)", "local(window=20) rope", "linear" } },
    { { 2, 2, 2, 2 },
      { "fixed(end, words=1)", "retention", "lightconv(width=3)", "relu2 alibi" } },
    { { 4, 2, 2 },
      { "lsh(buckets=8, rounds=2)", "segmented(length=9, back=1, integrate=second)",
        "pooled(block=8, levels=2)" } },
    { { 2, 2, 4 },
      { "performer(features=24)", "softmax t5", "strided(stride=6) logn" } },
    { { 2, 2, 2, 2 }, { "softmax shaw", "softmax temper", "l2norm", "xl txl" } },
};

/* These read hidden states, to whose gradient groups add in turn. */
static const struct mix of_x[] = {
    { { 2, 2 }, { "dynconv(width=3)", "softmax" } },
    { { 2, 3, 1 }, { "dynconv(width=5)", "routed(local(window=9))", "fixed" } },
    { { 1, 2, 1 },
      { "routed(softmax, routes=3)", "linear(kernel=taylor)", "dynconv(width=4)" } },
};

enum { N_MIXES = sizeof mixes / sizeof *mixes, N_OF_X = sizeof of_x / sizeof *of_x };

static int n_groups(const struct mix *m)
{
    int n = 0;
    while (n < MOST && m->heads[n])
        n++;
    return n;
}

static void write_spec(const struct mix *m, char spec[SPEC_CAP])
{
    size_t used = 0;
    for (int g = 0; g < n_groups(m); g++)
        used += (size_t)snprintf(spec + used, SPEC_CAP - used, "%s%d*%s",
                                 g ? " + " : "", (int)m->heads[g], m->spec[g]);
}

static foci_problem shape(const struct mix *m, int kind)
{
    static const foci_problem kinds[] = {
        { FOCI_SIZED(foci_problem), .batch = 2, .len_q = 130, .len_k = 130,
          .dim_qk = 16, .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL },
        { FOCI_SIZED(foci_problem), .batch = 1, .len_q = 200, .len_k = 200,
          .dim_qk = 16, .dim_v = 24, .max_docs = 3, .flags = FOCI_FLAG_TRAIN },
        { FOCI_SIZED(foci_problem), .batch = 2, .len_q = 150, .len_k = 150,
          .dim_qk = 32, .dtype = FOCI_BF16, .flags = FOCI_FLAG_TRAIN },
        { FOCI_SIZED(foci_problem), .batch = 1, .len_q = 700, .len_k = 700,
          .dim_qk = 16, .flags = FOCI_FLAG_CAUSAL },
    };
    foci_problem p = kinds[kind];
    bool         even = true;

    for (int g = 0; g < n_groups(m); g++) {
        p.heads += m->heads[g];
        even = even && m->heads[g] % 2 == 0;
    }
    if (even && kind % 2) p.kv_heads = p.heads / 2; /* two heads share keys */
    return p;
}

enum { KINDS = 4 };

static unsigned gives(int kind)
{
    return kind == 0 ? TRIAL_LENS : kind == 1 ? TRIAL_DOCS : 0;
}

/* The mix of a case, or NULL where its mechanisms refuse the problem. */
static foci_plan *plan_mix(foci_ctx *ctx, const struct mix *m, int kind)
{
    const foci_problem p = shape(m, kind);
    char               spec[SPEC_CAP];

    write_spec(m, spec);
    return trial_plan(ctx, spec, &p);
}

static struct trial draw(const foci_plan *plan, const struct mix *m, int kind)
{
    char spec[SPEC_CAP];

    write_spec(m, spec);
    return trial_make(plan, spec, (uint64_t)(2 * kind), gives(kind));
}

/*
 * One group of a mix
 */

/* Parameters of group a of one plan, for group b of another that is the same. */
static void copy_params(const foci_plan *from, int a, const float *x,
                        const foci_plan *to, int b, float *y)
{
    int at = 0;

    for (int i = 0; i < from->n_params; i++) {
        if (from->params[i].group != a) continue;
        while (to->params[at].group != b)
            at++;
        assert_int_equal(from->params[i].count, to->params[at].count);
        memcpy(y + to->params[at].offset, x + from->params[i].offset,
               (size_t)from->params[i].count * sizeof *y);
        at++;
    }
}

static void *head_of(const struct trial *t, void *x, const foci_layout *l, int64_t head)
{
    return x ? (char *)x + (size_t)(head * l->head) * foci_dtype_bytes(t->p.dtype)
             : NULL;
}

/* Its heads as they lie in the tensors of the mix; params are to be freed. */
static struct trial trial_of(const foci_plan *mix, const struct trial *t, int i,
                             const char *spec, const foci_plan *alone)
{
    const struct plan_group *g = &mix->spec.groups[i];
    struct trial             one = *t;

    snprintf(one.spec, sizeof one.spec, "%s", spec);
    one.p = alone->p;
    one.q = head_of(t, t->q, &t->p.q, g->head0);
    one.k = head_of(t, t->k, &t->p.k, g->kv0);
    one.v = head_of(t, t->v, &t->p.v, g->kv0);
    one.g = head_of(t, t->g, &t->p.o, g->head0);
    one.params = test_alloc((size_t)alone->n_floats, sizeof *one.params);
    copy_params(mix, i, t->params, alone, 0, one.params);
    return one;
}

static foci_plan *plan_group(foci_ctx *ctx, const foci_plan *mix, int i,
                             const char *spec)
{
    const struct plan_group *g = &mix->spec.groups[i];
    foci_problem             p = mix->p;

    p.heads = g->heads;
    p.kv_heads = g->kv_heads;
    p.lists = NULL;
    p.n_lists = 0;
    return test_plan(ctx, spec, &p);
}

/* Heads of rows [..][heads][dim], as they are in those of all. */
static void same_heads(const foci_plan *plan, const struct trial *t, enum part part,
                       const struct result *got, const struct result *want,
                       int64_t head0, int64_t heads, int64_t all, int64_t dim)
{
    if (!got->n[part] || !want->n[part]) return;
    assert_int_equal(got->n[part] * heads, want->n[part] * all);
    for (int64_t i = 0; i < want->n[part]; i++) {
        const int64_t row = i / dim / heads, h = i / dim % heads;
        const double  x = got->x[part][(row * all + head0 + h) * dim + i % dim];
        if (memcmp(&x, &want->x[part][i], sizeof x) != 0)
            trial_fail(plan, t, part_names[part], i, x, want->x[part][i]);
    }
}

static void same_params(const foci_plan *mix, int g, const struct result *got,
                        const foci_plan *alone, const struct trial *t,
                        const struct result *want)
{
    int64_t at = 0;

    for (int i = 0; want->n[PART_DPARAMS] && i < mix->n_params; i++)
        for (int64_t e = 0; mix->params[i].group == g && e < mix->params[i].count; e++) {
            const double x = got->x[PART_DPARAMS][mix->params[i].offset + e];
            const double y = want->x[PART_DPARAMS][at++];
            if (memcmp(&x, &y, sizeof x) != 0)
                trial_fail(alone, t, part_names[PART_DPARAMS], at - 1, x, y);
        }
}

static void same_group(foci_ctx *ctx, const struct mix *m, int i, const foci_plan *mix,
                       const struct trial *t, const struct result *got)
{
    const foci_problem      *p = &mix->p;
    const struct plan_group *g = &mix->spec.groups[i];
    foci_plan               *alone = plan_group(ctx, mix, i, m->spec[i]);
    struct trial             one = trial_of(mix, t, i, m->spec[i], alone);
    struct result            want = trial_run(alone, &one);
    const int64_t            q0 = g->head0, q = g->heads, k0 = g->kv0, k = g->kv_heads;

    same_heads(alone, &one, PART_O, got, &want, q0, q, p->heads, p->dim_v);
    same_heads(alone, &one, PART_LSE, got, &want, q0, q, p->heads, p->len_q);
    same_heads(alone, &one, PART_DQ, got, &want, q0, q, p->heads, p->dim_qk);
    same_heads(alone, &one, PART_DK, got, &want, k0, k, p->kv_heads, p->dim_qk);
    same_heads(alone, &one, PART_DV, got, &want, k0, k, p->kv_heads, p->dim_v);
    same_params(mix, i, got, alone, &one, &want);
    result_free(&want);
    free(one.params);
    foci_plan_free(alone);
}

/* The plan with so many threads gives what its groups give one by one, with one. */
static bool run_case(foci_ctx *one, foci_ctx *many, const struct mix *m, int kind)
{
    foci_plan *plan = plan_mix(many, m, kind);

    if (!plan) return false;
    struct trial  t = draw(plan, m, kind);
    struct result got = trial_run(plan, &t);
    for (int g = 0; g < n_groups(m); g++)
        same_group(one, m, g, plan, &t, &got);
    result_free(&got);
    trial_free(&t);
    foci_plan_free(plan);
    return true;
}

static void groups(void **state)
{
    static const int threads[] = { 1, 2, 7 };
    struct levels    one = levels_make(1);
    int              n = 0;

    (void)state;
    for (int c = 0; c < 3; c++) {
        struct levels many = levels_make(threads[c]);
        for (int i = 0; i < N_MIXES + N_OF_X; i++)
            for (int kind = c; kind < KINDS; kind += 2) {
                const int level = (i + kind) % one.n;
                n += run_case(one.ctx[level], many.ctx[level],
                              i < N_MIXES ? &mixes[i] : &of_x[i - N_MIXES], kind);
            }
        levels_free(&many);
    }
    assert_true(n >= 4 * (N_MIXES + N_OF_X)); /* few are refused */
    levels_free(&one);
}

/* Threads that are more than the cores change places all the time. */
static void many_times(void **state)
{
    foci_ctx *one = test_ctx(NULL, 1), *many = test_ctx(NULL, 16);

    (void)state;
    for (int i = 0; i < N_MIXES; i++) {
        foci_plan    *first = plan_mix(one, &mixes[i], 0);
        foci_plan    *plan = plan_mix(many, &mixes[i], 0);
        struct trial  t = draw(first, &mixes[i], 0);
        struct result want = trial_run(first, &t);
        for (int rep = 0; rep < (getenv("FOCI_TEST_SHORT") ? 2 : 12); rep++) {
            struct result got = trial_run(plan, &t);
            trial_equal(plan, &t, "16 threads", &got, &want);
            result_free(&got);
        }
        result_free(&want);
        trial_free(&t);
        foci_plan_free(plan);
        foci_plan_free(first);
    }
    foci_ctx_free(one);
    foci_ctx_free(many);
}

/* Calls from threads of a program's own, and from tasks of them. */
static void inside(void **state)
{
    enum { CALLS = 3 };
    foci_ctx     *ctx = test_ctx(NULL, 3);
    const int     levels = omp_get_max_active_levels();
    struct result got[2 * CALLS];

    (void)state;
    for (int i = 0; i < N_MIXES; i++) {
        foci_plan    *plan = plan_mix(ctx, &mixes[i], 0);
        struct trial  t = draw(plan, &mixes[i], 0);
        struct result want = trial_run(plan, &t);

        omp_set_max_active_levels(1 + i % 2); /* without and with teams of their own */
#pragma omp          parallel for num_threads(CALLS)
        for (int c = 0; c < CALLS; c++)
            got[c] = trial_run(plan, &t);
#pragma omp parallel num_threads(CALLS)
#pragma omp          single
        for (int c = CALLS; c < 2 * CALLS; c++) {
#pragma omp task
            got[c] = trial_run(plan, &t);
        }
        for (int c = 0; c < 2 * CALLS; c++) {
            trial_equal(plan, &t, "inside", &got[c], &want);
            result_free(&got[c]);
        }
        result_free(&want);
        trial_free(&t);
        foci_plan_free(plan);
    }
    omp_set_max_active_levels(levels);
    foci_ctx_free(ctx);
}

/*
 * Order
 */

/* A tensor of the problem with its heads from `by` on first, and the others after. */
static void *turned(const foci_problem *p, const void *from, const foci_layout *l,
                    int64_t rows, int64_t heads, int64_t dim, int64_t by)
{
    const int64_t n = trial_at(l, p->batch - 1, rows - 1, heads - 1, dim);
    void         *to = from ? test_alloc((size_t)n, sizeof(float)) : NULL;

    for (int64_t b = 0; to && b < p->batch; b++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t c = 0; c < dim; c++)
                    ref_store((int)p->dtype, to, trial_at(l, b, i, h, c),
                              ref_load((int)p->dtype, from,
                                       trial_at(l, b, i, (h + by) % heads, c)));
    return to;
}

/* What was [..][heads][dim] with the first heads last, as it was. */
static void turn_back(struct result *r, enum part part, int64_t heads, int64_t dim,
                      int64_t by)
{
    const int64_t n = r->n[part];
    double       *x = test_alloc((size_t)n, sizeof *x);

    for (int64_t i = 0; i < n; i++) {
        const int64_t row = i / dim / heads, h = i / dim % heads;
        x[(row * heads + (h + by) % heads) * dim + i % dim] = r->x[part][i];
    }
    if (n) memcpy(r->x[part], x, (size_t)n * sizeof *x);
    free(x);
}

static void turn_params(const foci_plan *from, const foci_plan *to, const float *x,
                        float *y)
{
    copy_params(from, 0, x, to, 1, y);
    copy_params(from, 1, x, to, 0, y);
}

static void turn_result(const foci_plan *plan, const foci_plan *other, struct result *r,
                        int64_t by, int64_t kv_by)
{
    const foci_problem *p = &plan->p;
    float              *x = test_alloc((size_t)plan->n_floats, sizeof *x);
    float              *y = test_alloc((size_t)plan->n_floats, sizeof *y);

    turn_back(r, PART_O, p->heads, p->dim_v, by);
    turn_back(r, PART_LSE, p->heads, p->len_q, by);
    turn_back(r, PART_DQ, p->heads, p->dim_qk, by);
    turn_back(r, PART_DK, p->kv_heads, p->dim_qk, kv_by);
    turn_back(r, PART_DV, p->kv_heads, p->dim_v, kv_by);
    for (int64_t i = 0; i < r->n[PART_DPARAMS]; i++)
        x[i] = (float)r->x[PART_DPARAMS][i];
    turn_params(other, plan, x, y);
    for (int64_t i = 0; i < r->n[PART_DPARAMS]; i++)
        r->x[PART_DPARAMS][i] = (double)y[i];
    free(x);
    free(y);
}

/* Two groups the other way round, with the tensors of their heads. */
static void order(void **state)
{
    static const struct mix pairs[][2] = {
        { { { 6, 2 }, { "fixed", "softmax sink" } },
          { { 2, 6 }, { "softmax sink", "fixed" } } },
        { { { 2, 4 }, { "lightconv(width=5)", "linear" } },
          { { 4, 2 }, { "linear", "lightconv(width=5)" } } },
        { { { 4, 2 }, { "routing(clusters=4)", "local(window=7) t5" } },
          { { 2, 4 }, { "local(window=7) t5", "routing(clusters=4)" } } },
    };
    foci_ctx *ctx = test_ctx(NULL, 2);

    (void)state;
    for (int i = 0; i < 3 * KINDS; i++) {
        const struct mix   *m = pairs[i / KINDS];
        foci_plan          *plan = plan_mix(ctx, &m[0], i % KINDS);
        foci_plan          *other = plan_mix(ctx, &m[1], i % KINDS);
        struct trial        t = draw(plan, &m[0], i % KINDS), u = t;
        const foci_problem *p = &plan->p;
        const int64_t       by = plan->spec.groups[1].head0;
        const int64_t       kv_by = plan->spec.groups[1].kv0;

        u.q = turned(p, t.q, &p->q, p->len_q, p->heads, p->dim_qk, by);
        u.k = turned(p, t.k, &p->k, p->len_k, p->kv_heads, p->dim_qk, kv_by);
        u.v = turned(p, t.v, &p->v, p->len_k, p->kv_heads, p->dim_v, kv_by);
        u.g = turned(p, t.g, &p->o, p->len_q, p->heads, p->dim_v, by);
        u.params = test_alloc((size_t)plan->n_floats, sizeof *u.params);
        turn_params(plan, other, t.params, u.params);

        struct result want = trial_run(plan, &t), got = trial_run(other, &u);
        turn_result(plan, other, &got, by, kv_by);
        trial_equal(plan, &t, "the other way round", &got, &want);
        result_free(&want);
        result_free(&got);
        free(u.q);
        free(u.k);
        free(u.v);
        free(u.g);
        free(u.params);
        trial_free(&t);
        foci_plan_free(plan);
        foci_plan_free(other);
    }
    foci_ctx_free(ctx);
}

/*
 * What groups have in common
 */

/* The gradient that all groups add to is the sum of theirs. */
static void check_sum(foci_ctx *ctx, const struct mix *m, const foci_plan *plan,
                      const struct trial *t, enum part part)
{
    struct result got = trial_run(plan, t);
    const int64_t n = got.n[part];
    double       *sum = test_alloc((size_t)n, sizeof *sum), most = 0;

    assert_true(n > 0);
    for (int g = 0; g < n_groups(m); g++) {
        foci_plan    *alone = plan_group(ctx, plan, g, m->spec[g]);
        struct trial  one = trial_of(plan, t, g, m->spec[g], alone);
        struct result part_of = trial_run(alone, &one);
        for (int64_t i = 0; i < part_of.n[part]; i++)
            sum[i] += part_of.x[part][i];
        result_free(&part_of);
        free(one.params);
        foci_plan_free(alone);
    }
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(sum[i]));
    assert_true(most > 0);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got.x[part][i] - sum[i]) <= 1e-6 * most))
            trial_fail(plan, t, part_names[part], i, got.x[part][i], sum[i]);
    free(sum);
    result_free(&got);
}

static void sums(void **state)
{
    static const struct mix biased = { { 2, 4, 2 },
                                       { "softmax", "local(window=30)", "relu2" } };
    foci_ctx               *ctx = test_ctx(NULL, 2);

    (void)state;
    for (int i = 0; i < N_OF_X; i++)
        for (int kind = 0; kind < 2; kind++) {
            foci_plan   *plan = plan_mix(ctx, &of_x[i], kind);
            struct trial t = draw(plan, &of_x[i], kind);
            check_sum(ctx, &of_x[i], plan, &t, PART_DX);
            trial_free(&t);
            foci_plan_free(plan);
        }
    foci_problem p = shape(&biased, 0);
    char         spec[SPEC_CAP];
    p.flags |= FOCI_FLAG_BIAS;
    p.mask_batch = p.mask_heads = 1;
    write_spec(&biased, spec);
    foci_plan   *plan = test_plan(ctx, spec, &p);
    struct trial t = trial_make(plan, spec, 5, 0);
    check_sum(ctx, &biased, plan, &t, PART_DBIAS);
    trial_free(&t);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

static float *weights_of(const foci_plan *plan, const struct trial *t)
{
    const foci_problem *p = &plan->p;
    const foci_io       io = trial_io(t);
    float              *w =
        test_alloc((size_t)(p->batch * p->heads * p->len_q * p->len_k), sizeof *w);

    assert_int_equal(foci_ref_weights(plan, &io, w), FOCI_OK);
    return w;
}

/* The weights of a head are those of its group alone. */
static void weights(void **state)
{
    static const struct mix all[] = {
        { { 7, 1 }, { "fixed", "softmax" } },
        { { 2, 2, 1 }, { "linear", "lightconv(width=3)", "local(window=5) rope" } },
    };
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int i = 0; i < 2; i++) {
        foci_problem p = shape(&all[i], 0);
        char         spec[SPEC_CAP];

        p.len_q = p.len_k = 20;
        write_spec(&all[i], spec);
        foci_plan    *plan = test_plan(ctx, spec, &p);
        struct trial  t = trial_make(plan, spec, 8, 0);
        const int64_t n = p.len_q * p.len_k;
        float        *got = weights_of(plan, &t);

        for (int g = 0; g < n_groups(&all[i]); g++) {
            foci_plan               *alone = plan_group(ctx, plan, g, all[i].spec[g]);
            struct trial             one = trial_of(plan, &t, g, all[i].spec[g], alone);
            float                   *want = weights_of(alone, &one);
            const struct plan_group *group = &plan->spec.groups[g];
            for (int64_t b = 0; b < p.batch; b++)
                assert_memory_equal(got + (b * p.heads + group->head0) * n,
                                    want + b * group->heads * n,
                                    (size_t)(group->heads * n) * sizeof *got);
            free(want);
            free(one.params);
            foci_plan_free(alone);
        }
        free(got);
        trial_free(&t);
        foci_plan_free(plan);
    }
    foci_ctx_free(ctx);
}

/* Counts that do not make up the heads, or cannot share keys. */
static void counts(void **state)
{
    static const struct {
        const char *spec;
        int64_t     heads, kv_heads;
        const char *says;
    } refused[] = {
        { "7*fixed + 1*softmax", 7, 0, "7" }, { "7*fixed + 1*softmax", 9, 0, "9" },
        { "fixed + softmax", 8, 0, "" },      { "8*fixed + softmax", 8, 0, "" },
        { "7*fixed + 1*softmax", 8, 4, "" },  { "8L", 4, 0, "4" },
    };
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const foci_problem p = { FOCI_SIZED(foci_problem),
                                 .batch = 1,
                                 .heads = refused[i].heads,
                                 .kv_heads = refused[i].kv_heads,
                                 .len_q = 4,
                                 .len_k = 4,
                                 .dim_qk = 4 };
        foci_plan         *plan = NULL;

        if (foci_plan_create(ctx, refused[i].spec, &p, &plan) == FOCI_OK)
            fail_msg("%s on %d heads is taken", refused[i].spec, (int)p.heads);
        if (!strstr(foci_errmsg(ctx), refused[i].says))
            fail_msg("%s: %s", refused[i].spec, foci_errmsg(ctx));
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups), cmocka_unit_test(many_times),
        cmocka_unit_test(inside), cmocka_unit_test(order),
        cmocka_unit_test(sums),   cmocka_unit_test(weights),
        cmocka_unit_test(counts),
    };
    return cmocka_run_group_tests_name("mixes", tests, NULL, NULL);
}
