/* heads.c -- foci_heads_add() a block at a time is foci_heads_add_weights() of all weights, in
 * memory that grows with the length; S is what theory says; singular values are known ones. */
#include <math.h>
#include <string.h>

#include "analyse/spectrum.h"
#include "foci/analyse.h"
#include "support/trial.h"

enum { HEADS = 2 };

/* Singular values of Q diag R, Q and R with orthonormal columns. */
static void singular_values(void **state)
{
    enum { M = 9, N = 5 };
    static const double want[N] = { 0, 1e-3, 1, 2, 7 };
    struct rng          r;
    double              q[M * N], t[N * N], a[M * N], work[M + 5 * N], sigma[N];

    (void)state;
    rng_seed(&r, 3, 0);
    rng_haar(&r, M, N, q);
    rng_haar(&r, N, N, t);
    for (int i = 0; i < M * N; i++) {
        a[i] = 0;
        for (int s = 0; s < N; s++)
            a[i] += q[i / N * N + s] * want[s] * t[i % N * N + s];
    }
    spectrum_singular(a, M, N, work, sigma);
    for (int s = 0; s < N; s++)
        assert_true(fabs(sigma[s] - want[s]) < 1e-14);
}

static foci_heads *open_heads(foci_ctx *ctx, int64_t heads, int64_t rows)
{
    const foci_heads_options o = { FOCI_SIZED(foci_heads_options), .heads = heads,
                                   .top = 3, .rows = rows };
    foci_heads              *h;

    assert_int_equal(foci_heads_create(ctx, &o, &h), FOCI_OK);
    return h;
}

static void same_number(const char *spec, const char *what, double a, double b)
{
    if (memcmp(&a, &b, sizeof a) != 0 && !(isnan(a) && isnan(b)))
        fail_msg("%s: %s is %.17g in blocks, %.17g at once", spec, what, a, b);
}

static void same_heads(const char *spec, const foci_heads *a, const foci_heads *b)
{
    for (int64_t i = 0; i < HEADS; i++) {
        foci_head x = { FOCI_SIZED(foci_head) }, y = { FOCI_SIZED(foci_head) };

        assert_int_equal(foci_heads_get(a, i, &x), FOCI_OK);
        assert_int_equal(foci_heads_get(b, i, &y), FOCI_OK);
        assert_int_equal(x.rows, y.rows);
        assert_int_equal(x.zero, y.zero);
        for (int f = 0; f < FOCI_HEAD_FIGURES; f++) {
            same_number(spec, foci_head_figure_name(f), x.figures[f], y.figures[f]);
            assert_true(isnan(x.figures[f]) == (foci_heads_reason(a, i, f) != NULL));
        }
        for (int64_t j = 0; j < HEADS; j++)
            same_number(spec, "likeness", foci_heads_likeness(a, i, j),
                        foci_heads_likeness(b, i, j));
    }
}

/* The rows of a mechanism, by several threads, are those of its matrix. */
static void check_spec(foci_ctx *ctx, foci_ctx *threads, const char *spec,
                       uint32_t flags)
{
    const foci_problem problem = { FOCI_SIZED(foci_problem),
                                   .batch = 2,
                                   .heads = HEADS,
                                   .len_q = 12,
                                   .len_k = 12,
                                   .dim_qk = 4,
                                   .dim_v = 3,
                                   .flags = flags };
    foci_plan         *plan = trial_plan(threads, spec, &problem);

    (void)ctx;
    if (!plan) return;
    struct trial t = trial_make(plan, spec, 5, 0);
    foci_io      io = trial_io(&t);
    foci_heads  *a = open_heads(threads, HEADS, 0), *b = open_heads(ctx, HEADS, 0);
    const size_t one = HEADS * 12 * 12;
    float       *w = test_alloc(2 * one, sizeof *w);
    const bool   has = trial_has_weights(plan);

    assert_int_equal(foci_heads_add(a, plan, &io), has ? FOCI_OK : FOCI_ERR_UNSUP);
    if (has) {
        assert_int_equal(foci_ref_weights(plan, &io, w), FOCI_OK);
        for (int s = 0; s < 2; s++)
            assert_int_equal(foci_heads_add_weights(b, w + (size_t)s * one, 12, 12,
                                                    (flags & FOCI_FLAG_CAUSAL) != 0),
                             FOCI_OK);
        same_heads(spec, a, b);
    }
    free(w);
    foci_heads_free(a);
    foci_heads_free(b);
    trial_free(&t);
    foci_plan_free(plan);
}

static void every_mechanism(void **state)
{
    foci_ctx *ctx = test_ctx("portable", 1), *threads = test_ctx("portable", 3);
    char      spec[SPEC_CAP];

    (void)state;
    specs_register(ctx);
    specs_register(threads);
    for (int i = 0; specs_next(ctx, i, spec); i++) {
        check_spec(ctx, threads, spec, 0);
        check_spec(ctx, threads, spec, FOCI_FLAG_CAUSAL);
    }
    foci_ctx_free(threads);
    foci_ctx_free(ctx);
}

/*
 * Long sequences
 */

struct peak {
    int64_t held, most;
};

static void *peak_alloc(void *user, void *old, size_t old_bytes, size_t new_bytes)
{
    struct peak *p = user;
    void *new = default_alloc(NULL, old, old_bytes, new_bytes);

    p->held += (int64_t)new_bytes - (int64_t)(old ? old_bytes : 0);
    if (p->held > p->most) p->most = p->held;
    return new;
}

/* One head of long sequences, some of its rows or all. */
static foci_status long_head(foci_ctx *ctx, const char *spec, int64_t n, int64_t heads,
                             int64_t rows, foci_head *head)
{
    const foci_problem p = { FOCI_SIZED(foci_problem), .heads = heads, .len_q = n,
                             .dim_qk = 2, .flags = FOCI_FLAG_CAUSAL };
    foci_plan         *plan = test_plan(ctx, spec, &p);
    foci_heads        *h = open_heads(ctx, heads, rows);
    const size_t       count = (size_t)(n * heads * 2);
    float             *x = test_alloc(count, sizeof *x);
    float             *params =
        test_alloc((size_t)foci_plan_param_floats(plan) + 1, sizeof *params);
    const foci_io io = { FOCI_SIZED(foci_io), .q = x, .k = x, .v = x, .params = params };

    assert_int_equal(foci_params_init(plan, 1, params), FOCI_OK);
    for (size_t i = 0; i < count; i++)
        x[i] = sinf((float)i);
    const foci_status status = foci_heads_add(h, plan, &io);
    if (!status) assert_int_equal(foci_heads_get(h, 0, head), FOCI_OK);
    free(x);
    free(params);
    foci_heads_free(h);
    foci_plan_free(plan);
    return status;
}

static void long_sequences(void **state)
{
    enum { LONG = 65536, ROWS = 64 };
    struct peak        peak = { 0 };
    const foci_options o = { FOCI_SIZED(foci_options), .threads = 1,
                             .alloc = peak_alloc, .user = &peak };
    foci_ctx          *ctx;
    foci_head          head = { FOCI_SIZED(foci_head) };

    (void)state;
    assert_int_equal(foci_ctx_create(&o, &ctx), FOCI_OK);
    assert_int_equal(long_head(ctx, "fixed(pattern=left)", LONG, 1, ROWS, &head),
                     FOCI_OK);
    assert_int_equal(head.rows, ROWS);
    assert_true(head.figures[FOCI_HEAD_LEFT] > 1 - 1e-5);
    assert_true(isnan(head.figures[FOCI_HEAD_EFFECTIVE_RANK]));
    assert_true(peak.most < (int64_t)LONG * LONG / 64);
    /* Rows that depend on one another would all have to be there. */
    assert_int_equal(long_head(ctx, "segmented(integrate=second)", LONG, 2, ROWS, &head),
                     FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "depend on one another"));
    foci_ctx_free(ctx);
}

/*
 * Rows, masks, refusals
 */

struct told {
    int64_t rows, keys, most;
    double  s;
};

static int take(void *user, const foci_head_row *row)
{
    struct told *t = user;

    t->rows++;
    t->keys += row->keys;
    t->s += row->figures[FOCI_HEAD_CONCENTRATION];
    return t->rows == t->most;
}

/* Rows are told until no more are wanted, and zero rows are not. */
static void rows_are_told(void **state)
{
    static const float a[] = { 1, 0, 0, 0, 0, 0, 0.5F, 0.25F, 0.25F };
    foci_ctx          *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int most = 1; most < 4; most++) {
        struct told              t = { .most = most };
        const foci_heads_options o = { FOCI_SIZED(foci_heads_options), .heads = 1,
                                       .rank = -1, .row = take, .user = &t };
        foci_heads              *h;
        foci_head                head = { FOCI_SIZED(foci_head) };

        assert_int_equal(foci_heads_create(ctx, &o, &h), FOCI_OK);
        assert_string_equal(foci_heads_reason(h, 0, FOCI_HEAD_TOP),
                            "nothing was looked at");
        assert_int_equal(foci_heads_add_weights(h, a, 3, 3, 1), FOCI_OK);
        assert_int_equal(foci_heads_get(h, 0, &head), FOCI_OK);
        assert_int_equal(t.rows, most < 2 ? 1 : 2);
        assert_int_equal(t.keys, most < 2 ? 1 : 4);
        assert_int_equal(head.zero, 1);
        assert_string_equal(foci_heads_reason(h, 0, FOCI_HEAD_NUMERICAL_RANK),
                            "ranks were not asked for");
        assert_non_null(foci_heads_reason(h, 1, 0));
        assert_non_null(foci_heads_reason(h, 0, FOCI_HEAD_FIGURES));
        foci_heads_free(h);
    }
    foci_ctx_free(ctx);
}

/* Keys that a mask hides do not count among n: with one left all weigh the same. */
static void masked_keys(void **state)
{
    static const uint8_t mask[] = { 1, 0, 0, 1 };
    static const float   x[4] = { 0 };
    const foci_problem   p = { FOCI_SIZED(foci_problem), .len_q = 2, .dim_qk = 2,
                               .flags = FOCI_FLAG_MASK };
    foci_ctx            *ctx = test_ctx(NULL, 1);
    foci_plan           *plan = test_plan(ctx, "softmax", &p);
    foci_heads          *h = open_heads(ctx, 1, 0);
    const foci_io io = { FOCI_SIZED(foci_io), .q = x, .k = x, .v = x, .mask = mask };
    foci_head     head = { FOCI_SIZED(foci_head) };

    (void)state;
    assert_int_equal(foci_heads_add(h, plan, &io), FOCI_OK);
    assert_int_equal(foci_heads_get(h, 0, &head), FOCI_OK);
    assert_true(fabs(head.figures[FOCI_HEAD_CONCENTRATION] - 1) < 1e-12);
    foci_heads_free(h);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

static void refusals(void **state)
{
    static const float a[4] = { 0 };
    const foci_problem p = { FOCI_SIZED(foci_problem), .heads = 2, .len_q = 4,
                             .dim_qk = 2 };
    foci_ctx          *ctx = test_ctx(NULL, 1);
    foci_plan         *plan = test_plan(ctx, "softmax", &p);
    foci_heads_options o = { FOCI_SIZED(foci_heads_options) };
    foci_heads        *h;
    foci_head          head = { FOCI_SIZED(foci_head) };
    const foci_io      io = { FOCI_SIZED(foci_io), .q = a, .k = a, .v = a };

    (void)state;
    assert_int_equal(foci_heads_create(ctx, &o, &h), FOCI_ERR_ARG);
    o.heads = 1;
    o.top = -1;
    assert_int_equal(foci_heads_create(ctx, &o, &h), FOCI_ERR_ARG);
    o.top = 0;
    assert_int_equal(foci_heads_create(ctx, &o, &h), FOCI_OK);
    assert_int_equal(foci_heads_add(h, plan, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "there are 2 heads where 1"));
    assert_int_equal(foci_heads_add_weights(h, a, 0, 2, 0), FOCI_ERR_ARG);
    assert_int_equal(foci_heads_get(h, 1, &head), FOCI_ERR_ARG);
    assert_true(isnan(foci_heads_likeness(h, 0, 1)));
    assert_null(foci_head_figure_name(FOCI_HEAD_FIGURES));
    foci_heads_free(h);
    foci_heads_free(NULL);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

/*
 * Theory
 */

struct spread_sums {
    double n, one, two;
};

static int add_row(void *user, const foci_head_row *row)
{
    struct spread_sums *t = user;
    const double        s = row->figures[FOCI_HEAD_CONCENTRATION];

    t->n += 1;
    t->one += s;
    t->two += s * s;
    return 0;
}

enum { KEYS = 8192, DRAWS = 16 };

/* Mean and standard error of S, of draws of keys whose logits have this mean and deviation. */
static struct spread_sums spread_of(foci_ctx *ctx, const char *spec, double beta,
                                    double gamma)
{
    const foci_problem       p = { FOCI_SIZED(foci_problem), .batch = DRAWS, .len_q = 1,
                                   .len_k = KEYS, .dim_qk = 2 };
    struct spread_sums       t = { 0 };
    const foci_heads_options o = { FOCI_SIZED(foci_heads_options), .heads = 1,
                                   .row = add_row, .user = &t };
    foci_plan               *plan = test_plan(ctx, spec, &p);
    float                   *k = test_alloc(2 * KEYS * DRAWS, sizeof *k), q[2 * DRAWS];
    foci_heads              *h;
    struct rng               r;

    rng_seed(&r, 7, 0);
    for (int i = 0; i < 2 * DRAWS; i++)
        q[i] = (float)(i % 2 ? beta : gamma);
    for (int i = 0; i < 2 * KEYS * DRAWS; i++)
        k[i] = i % 2 ? 1 : (float)rng_normal(&r);
    const foci_io io = { FOCI_SIZED(foci_io), .q = q, .k = k, .v = k };
    assert_int_equal(foci_heads_create(ctx, &o, &h), FOCI_OK);
    assert_int_equal(foci_heads_add(h, plan, &io), FOCI_OK);
    foci_heads_free(h);
    foci_plan_free(plan);
    free(k);
    t.one /= t.n;
    t.two = sqrt((t.two / t.n - t.one * t.one) / (t.n - 1));
    return t;
}

/* S of keys whose logits are normal, at the points of which theory has check values. */
static void keys_as_in_theory(void **state)
{
    static const struct {
        const char *spec;
        double      beta, s;
    } at[] = {
        { "softmax scale(1)", 0, 0.606531 }, { "softmax scale(1)", 2, 0.606531 },
        { "relu2 scale(1)", 0, 0.408248 },   { "relu2 scale(1)", 1, 0.612773 },
        { "relu2 scale(1)", -1, 0.205256 },  { "identity scale(1)", 0, 0.797885 },
        { "identity scale(1)", 1, 0.824933 }
    };
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        const struct spread_sums t = spread_of(ctx, at[i].spec, at[i].beta, 1);
        /* Of that many keys S is above its limit by a part of its own spread. */
        if (!(fabs(t.one - at[i].s) <= 4 * t.two + 0.005 * at[i].s))
            fail_msg("%s at %g: S is %g +- %g, %g in theory", at[i].spec, at[i].beta,
                     t.one, t.two, at[i].s);
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(singular_values),   cmocka_unit_test(every_mechanism),
        cmocka_unit_test(long_sequences),    cmocka_unit_test(rows_are_told),
        cmocka_unit_test(masked_keys),       cmocka_unit_test(refusals),
        cmocka_unit_test(keys_as_in_theory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
