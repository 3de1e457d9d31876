/* holds.c -- what a state holds: no more than tokens to come need, and nothing when it is
 * gone. */
#include <math.h>

#include "support/world.h"

/* A sequence of any length, of which only the state matters. */
struct stretch {
    foci_ctx   *ctx;
    foci_plan  *plan;
    foci_pool  *pool;
    foci_state *state;
    float      *params, *rows, *o;
    void       *work;
};

enum { STRIDE = 50 }; /* tokens of its steps */

static struct stretch stretch_make(const char *spec, int64_t planned)
{
    struct stretch s = { .ctx = test_ctx(NULL, 1) };
    foci_problem   p = world_shapes[0];
    struct rng     r;

    kept_register(s.ctx);
    p.len_q = p.len_k = planned;
    p.dim_v = p.dim_qk;
    s.plan = test_plan(s.ctx, spec, &p);
    s.params = test_alloc((size_t)foci_plan_param_floats(s.plan), sizeof *s.params);
    assert_int_equal(foci_params_init(s.plan, 1, s.params), FOCI_OK);
    assert_int_equal(foci_pool_create(s.plan, 0, &s.pool), FOCI_OK);
    assert_int_equal(foci_state_create(s.pool, &s.state), FOCI_OK);
    s.rows = test_alloc(STRIDE * HEADS * 16, sizeof *s.rows);
    s.o =
        world_must_attend(s.plan) ? test_alloc(STRIDE * HEADS * 16, sizeof *s.o) : NULL;
    s.work = test_alloc(1, foci_step_work_bytes(s.pool, 1, STRIDE, 1 << 13));
    rng_seed(&r, 5, 5);
    for (int i = 0; i < STRIDE * HEADS * 16; i++)
        s.rows[i] = (float)rng_normal(&r);
    return s;
}

static foci_status stretch_step(struct stretch *s, int32_t n)
{
    const foci_step_io io = { FOCI_SIZED(foci_step_io),
                              .states = &s->state,
                              .n_states = 1,
                              .tokens = &n,
                              .q = s->rows,
                              .k = s->rows,
                              .v = s->rows,
                              .o = s->o,
                              .params = s->params,
                              .work = s->work };
    foci_status        status;

    while ((status = foci_step(s->pool, &io)) == FOCI_ERR_FULL)
        assert_int_equal(foci_pool_grow(s->pool, 1), FOCI_OK);
    return status;
}

static void stretch_to(struct stretch *s, int64_t len)
{
    for (int64_t at; (at = foci_state_len(s->state)) < len;)
        if (stretch_step(s, (int32_t)min64(STRIDE, len - at)))
            fail_msg("%s", foci_errmsg(s->ctx));
}

static void stretch_free(struct stretch *s)
{
    foci_state_free(s->state);
    assert_int_equal(foci_pool_free_count(s->pool), foci_pool_page_count(s->pool));
    foci_pool_free(s->pool);
    foci_plan_free(s->plan);
    free(s->params);
    free(s->rows);
    free(s->o);
    free(s->work);
    foci_ctx_free(s->ctx);
}

static int64_t pages_of(const struct stretch *s)
{
    return foci_pool_page_count(s->pool) - foci_pool_free_count(s->pool);
}

/* A state holds what the mechanism still needs: pages of 64 rows, of tokens or of slots,
 * and tables of labels, at most; it may be longer than what was planned. */
static void test_sizes(void **state)
{
    enum { LEN = 6000, PLANNED = 200 };
    static const struct {
        const char *spec;
        int64_t     least, most; /* pages */
        int64_t     table; /* bytes for each token, twice for what doubling wastes */
    } cases[] = {
        { "softmax", 94, 94, 0 },
        { "2*local(window=64) + 2*softmax", 94, 94, 0 },
        { "local(window=64)", 2, 3, 0 },
        { "local(window=20, dilation=10)", 4, 5, 0 },
        { "blocklocal(block=100)", 1, 3, 0 },
        { "segmented(length=64)", 0, 1, 0 },
        { "segmented(length=64, back=2)", 2, 3, 0 },
        { "segmented(length=64, integrate=summary)", 2, 3, 0 },
        { "segmented(length=64, integrate=second)", 2, 3, 0 },
        { "global(window=64, first=3)", 3, 4, 0 },
        { "bigbird(block=64, random=0)", 3, 4, 0 },
        { "bigbird(block=64)", 94, 94, 0 },
        { "strided(stride=50)", 94, 94, 2 * 8 },
        { "sparse_fixed(stride=50, summary=2)", 4 + 0, 4 + 2, 0 },
        { "pooled(block=16)", 6, 7, 0 },
        { "pooled(block=8, levels=3)", 1, 5, 0 },
        { "lsh(buckets=8, rounds=3)", 94, 94, 2 * 3 * 8 * HEADS },
        { "routing(clusters=8)", 94, 94, 2 * 8 * HEADS },
        { "xl(memory=64)", 94, 94, 0 },
        { "performer(features=8)", 0, 1, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stretch s = stretch_make(cases[i].spec, PLANNED);
        stretch_to(&s, LEN);
        const int64_t pages = pages_of(&s);
        const size_t  most = (size_t)pages * foci_pool_page_bytes(s.pool) +
                            (size_t)(LEN * cases[i].table + 8192);
        if (pages < cases[i].least || pages > cases[i].most)
            fail_msg("%s holds %lld pages", cases[i].spec, (long long)pages);
        if (foci_state_bytes(s.state) > most)
            fail_msg("%s holds %zu bytes, more than %zu", cases[i].spec,
                     foci_state_bytes(s.state), most);
        stretch_free(&s);
    }
}

/* A ring is no longer for twice the tokens, and its table of pages neither. */
static void test_ring(void **state)
{
    struct stretch s = stretch_make("local(window=100)", 10);

    (void)state;
    stretch_to(&s, 2000);
    const size_t bytes = foci_state_bytes(s.state);
    stretch_to(&s, 4000);
    assert_true(foci_state_bytes(s.state) <= bytes + foci_pool_page_bytes(s.pool));
    assert_int_equal(foci_state_truncate(s.state, 1000), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(s.ctx), "1000"));
    assert_int_equal(foci_state_len(s.state), 4000);
    assert_int_equal(foci_state_truncate(s.state, 3999), FOCI_OK);
    foci_state_reset(s.state);
    assert_int_equal(foci_state_len(s.state), 0);
    assert_int_equal(pages_of(&s), 0);
    stretch_to(&s, 300);
    stretch_free(&s);
}

/* Slots that are not needed are let go with the page that they would be written into; a
 * state is not cut back to where that page is the open one. */
static void test_open_slots(void **state)
{
    struct stretch s = stretch_make("test_blind", 10);

    (void)state;
    stretch_to(&s, 300); /* 150 slots, of which the first 128 are gone */
    assert_int_equal(foci_state_truncate(s.state, 200), FOCI_ERR_UNSUP);
    assert_int_equal(foci_state_len(s.state), 300);
    assert_int_equal(foci_state_truncate(s.state, 270), FOCI_OK);
    stretch_to(&s, 300);
    assert_int_equal(pages_of(&s), 5 + 1);
    stretch_free(&s);
}

/* Tables by distance end where the plan did. */
static void test_limits(void **state)
{
    struct stretch s = stretch_make("softmax txl", 60);

    (void)state;
    stretch_to(&s, 60);
    assert_int_equal(stretch_step(&s, 1), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(s.ctx), "planned for 60"));
    assert_int_equal(foci_state_len(s.state), 60);
    stretch_free(&s);
}

/* Sums cannot forget tokens, and positions turn features up to a length. */
static void test_sums(void **state)
{
    struct stretch s = stretch_make("cosformer(length=70)", 60);

    (void)state;
    stretch_to(&s, 70);
    assert_int_equal(stretch_step(&s, 1), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(s.ctx), "length=70"));
    assert_int_equal(foci_state_truncate(s.state, 69), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(s.ctx), "cannot be cut back to 69"));
    assert_int_equal(foci_state_truncate(s.state, 9), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(s.ctx), "keeps sums over all of them"));
    assert_int_equal(foci_state_len(s.state), 70);
    foci_state_reset(s.state);
    assert_int_equal(stretch_step(&s, 1), FOCI_OK);
    stretch_free(&s);

    s = stretch_make("performer(sderf)", 60);
    assert_int_equal(stretch_step(&s, 1), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(s.ctx), "calibrate"));
    assert_int_equal(foci_state_len(s.state), 0);
    stretch_free(&s);
}

/* Values 0, 1, 2 in turn, all with one key: their mean is 1, also when each is added to
 * so many that sums of floats would lose it. */
static void test_one_by_one(void **state)
{
    static const char *const specs[] = { "linear", "performer" };

    (void)state;
    for (int c = 0; c < 2; c++) {
        struct stretch     s = stretch_make(specs[c], 60);
        const int64_t      n = getenv("FOCI_TEST_LONG")    ? 999999
                               : getenv("FOCI_TEST_SHORT") ? 999
                                                           : 99999;
        float              v[HEADS * 16], o[HEADS * 16];
        const foci_step_io io = { FOCI_SIZED(foci_step_io),
                                  .states = &s.state,
                                  .n_states = 1,
                                  .q = s.rows,
                                  .k = s.rows,
                                  .v = v,
                                  .o = o,
                                  .params = s.params,
                                  .work = s.work };

        for (int64_t t = 0; t < n; t++) {
            for (int i = 0; i < HEADS * 16; i++)
                v[i] = (float)(t % 3);
            foci_status status;
            while ((status = foci_step(s.pool, &io)) == FOCI_ERR_FULL)
                assert_int_equal(foci_pool_grow(s.pool, 1), FOCI_OK);
            assert_int_equal(status, FOCI_OK);
        }
        for (int i = 0; i < HEADS * 16; i++)
            if (!(fabs((double)o[i] - 1) <= 2e-7))
                fail_msg("%s: %.9g after %lld tokens", specs[c], (double)o[i],
                         (long long)n);
        stretch_free(&s);
    }
}

/* Tokens that are only appended have labels too, and keys that are their queries. */
static void test_append_only(void **state)
{
    struct stretch s = stretch_make("lsh(buckets=8, shared=1)", 60);
    foci_step_io   io = { FOCI_SIZED(foci_step_io), .states = &s.state, .n_states = 1,
                          .v = s.rows };

    (void)state;
    assert_int_equal(foci_step(s.pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(s.ctx), "params"));
    io.params = s.params;
    assert_int_equal(foci_step(s.pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(s.ctx), "queries"));
    io.q = s.rows;
    assert_int_equal(foci_pool_grow(s.pool, 1), FOCI_OK);
    assert_int_equal(foci_step(s.pool, &io), FOCI_OK);
    assert_int_equal(foci_state_len(s.state), 1);
    stretch_free(&s);
}

/* Many sequences through one pool: its pages come back. */
static void test_many(void **state)
{
    foci_ctx     *ctx = test_ctx(NULL, 1);
    foci_problem  p = world_shapes[0];
    foci_plan    *plan = test_plan(ctx, "softmax", &p);
    const int64_t many = getenv("FOCI_TEST_LONG") ? 100000 : 2000;
    foci_pool    *pool;
    float         q[HEADS * 16] = { 1 }, v[HEADS * 24] = { 2 }, o[HEADS * 24];

    (void)state;
    assert_int_equal(foci_pool_create(plan, 8, &pool), FOCI_OK);
    void *work = test_alloc(1, foci_step_work_bytes(pool, 1, 1, 200));
    for (int64_t i = 0; i < many; i++) {
        foci_state        *s;
        const int          steps = i % 50 == 0 ? 130 : 3;
        const foci_step_io io = { FOCI_SIZED(foci_step_io),
                                  .states = &s,
                                  .n_states = 1,
                                  .q = q,
                                  .k = q,
                                  .v = v,
                                  .o = o,
                                  .work = work };
        assert_int_equal(foci_state_create(pool, &s), FOCI_OK);
        for (int t = 0; t < steps; t++)
            assert_int_equal(foci_step(pool, &io), FOCI_OK);
        assert_true(o[0] == 2);
        foci_state_free(s);
    }
    assert_int_equal(foci_pool_free_count(pool), 8);
    assert_int_equal(foci_pool_page_count(pool), 8);
    free(work);
    foci_pool_free(pool);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_ring),
        cmocka_unit_test(test_limits),     cmocka_unit_test(test_append_only),
        cmocka_unit_test(test_many),       cmocka_unit_test(test_sums),
        cmocka_unit_test(test_one_by_one), cmocka_unit_test(test_open_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
