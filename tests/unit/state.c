/* state.c -- calls on pools and states that are refused, with the reason, and change
 * nothing. */
#include "test.h"

enum { WIDTH = 4 };

struct world {
    foci_ctx   *ctx;
    foci_plan  *plan;
    foci_pool  *pool, *other;
    foci_state *state, *alien;
    float       x[256 * WIDTH], o[256 * WIDTH];
    char       *work; /* as much as its threads need */
};

static int make(void **state)
{
    struct world      *w = test_alloc(1, sizeof *w);
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 1,
                             .len_q = 1,
                             .len_k = 1,
                             .dim_qk = WIDTH,
                             .flags = FOCI_FLAG_CAUSAL };

    w->ctx = test_ctx(NULL, 1);
    w->plan = test_plan(w->ctx, "softmax", &p);
    assert_int_equal(foci_pool_create(w->plan, 2, &w->pool), FOCI_OK);
    assert_int_equal(foci_pool_create(w->plan, 0, &w->other), FOCI_OK);
    assert_int_equal(foci_state_create(w->pool, &w->state), FOCI_OK);
    assert_int_equal(foci_state_create(w->other, &w->alien), FOCI_OK);
    assert_true(foci_step_work_bytes(w->pool, 1, 1, 1) < SIZE_MAX);
    w->work = test_alloc(foci_step_work_bytes(w->pool, 1, 1, 1), 1);
    *state = w;
    return 0;
}

static int release(void **state)
{
    struct world *w = *state;
    foci_state_free(w->state);
    foci_state_free(w->alien);
    foci_pool_free(w->pool);
    foci_pool_free(w->other);
    foci_plan_free(w->plan);
    foci_ctx_free(w->ctx);
    free(w->work);
    free(w);
    return 0;
}

/* A step that is good. */
static foci_step_io good(struct world *w)
{
    return (foci_step_io){ FOCI_SIZED(foci_step_io),
                           .states = &w->state,
                           .n_states = 1,
                           .q = w->x,
                           .k = w->x,
                           .v = w->x,
                           .o = w->o,
                           .work = w->work };
}

static void expect(struct world *w, foci_step_io io, foci_status status,
                   const char *says)
{
    assert_int_equal(foci_step(w->pool, &io), status);
    if (!strstr(foci_errmsg(w->ctx), says))
        fail_msg("\"%s\" does not say \"%s\"", foci_errmsg(w->ctx), says);
    assert_int_equal(foci_state_len(w->state), 0);
    assert_int_equal(foci_pool_free_count(w->pool), 2);
}

static void steps(void **state)
{
    struct world *w = *state;
    foci_step_io  io = good(w);
    foci_state   *none = NULL;
    const int32_t minus = -1, many = 129;

    io.size = 0;
    expect(w, io, FOCI_ERR_ARG, "io.size is 0");
    io = good(w);
    io.n_states = -1;
    expect(w, io, FOCI_ERR_ARG, "n_states is -1");
    io = good(w);
    io.states = NULL;
    expect(w, io, FOCI_ERR_ARG, "states is NULL");
    io = good(w);
    io.states = &none;
    expect(w, io, FOCI_ERR_ARG, "states[0] is NULL");
    io.states = &w->alien;
    expect(w, io, FOCI_ERR_ARG, "states[0] is of another pool");
    io = good(w);
    io.k = NULL;
    expect(w, io, FOCI_ERR_ARG, "k of the step is NULL");
    io = good(w);
    io.v = NULL;
    expect(w, io, FOCI_ERR_ARG, "v of the step is NULL");
    io = good(w);
    io.q = NULL;
    expect(w, io, FOCI_ERR_ARG, "q of the step is NULL");
    io = good(w);
    io.work = NULL;
    expect(w, io, FOCI_ERR_ARG, "work is NULL");
    io.work = w->work + 4;
    expect(w, io, FOCI_ERR_ARG, "work is not 64-byte aligned");
    io = good(w);
    io.o = w->x + WIDTH - 1;
    expect(w, io, FOCI_ERR_ARG, "io.o overlaps io.q");
    io = good(w);
    io.tokens = &minus;
    expect(w, io, FOCI_ERR_ARG, "tokens[0] is -1");
    io.tokens = &many; /* no row of the input is read */
    expect(w, io, FOCI_ERR_FULL, "needs 3 pages, and 2 of 2 are free");
    assert_int_equal(foci_step(NULL, &io), FOCI_ERR_ARG);
    assert_int_equal(foci_step(w->pool, NULL), FOCI_ERR_ARG);

    io = good(w);
    io.n_states = 0;
    assert_int_equal(foci_step(w->pool, &io), FOCI_OK);
    assert_int_equal(foci_state_len(w->state), 0);
    io = good(w);
    assert_int_equal(foci_step(w->pool, &io), FOCI_OK);
    assert_int_equal(foci_state_len(w->state), 1);
}

static void pools(void **state)
{
    struct world *w = *state;
    foci_problem  p = { FOCI_SIZED(foci_problem),
                        .batch = 1,
                        .heads = 1,
                        .len_q = 1,
                        .len_k = 1,
                        .dim_qk = WIDTH,
                        .flags = FOCI_FLAG_CAUSAL | FOCI_FLAG_BIAS };
    foci_pool    *pool = w->pool;

    assert_int_equal(foci_pool_grow(w->pool, -1), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(w->ctx), "pages is -1"));
    assert_int_equal(foci_pool_grow(w->pool, INT64_MAX), FOCI_ERR_ARG);
    assert_int_equal(foci_pool_grow(NULL, 1), FOCI_ERR_ARG);
    assert_int_equal(foci_pool_page_count(w->pool), 2);

    foci_plan *biased = test_plan(w->ctx, "softmax", &p);
    assert_int_equal(foci_pool_create(biased, 1, &pool), FOCI_ERR_UNSUP);
    assert_null(pool);
    assert_non_null(strstr(foci_errmsg(w->ctx), "no place in a decoding state"));
    assert_int_equal(foci_pool_create(NULL, 1, &pool), FOCI_ERR_ARG);
    assert_int_equal(foci_pool_create(biased, 1, NULL), FOCI_ERR_ARG);
    foci_plan_free(biased);
}

static void states(void **state)
{
    struct world *w = *state;
    foci_state   *made = w->state;
    char          saved[512];

    assert_int_equal(foci_state_truncate(w->state, -1), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(w->ctx), "len is -1"));
    assert_int_equal(foci_state_truncate(w->state, 1), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(w->ctx), "a state of 0 tokens"));
    assert_int_equal(foci_state_truncate(NULL, 0), FOCI_ERR_ARG);
    assert_int_equal(foci_state_create(NULL, &made), FOCI_ERR_ARG);
    assert_int_equal(foci_state_create(w->pool, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_state_copy(NULL, &made), FOCI_ERR_ARG);
    assert_int_equal(foci_state_copy(w->state, NULL), FOCI_ERR_ARG);

    const foci_step_io io = good(w);
    assert_int_equal(foci_step(w->pool, &io), FOCI_OK);
    const size_t n = foci_state_save(w->state, NULL, 0);
    assert_in_range(n, 1, sizeof saved);
    memset(saved, 7, sizeof saved);
    assert_int_equal(foci_state_save(w->state, saved, n - 1), n);
    assert_int_equal(saved[0], 7); /* too little room: not begun */
    assert_int_equal(foci_state_save(w->state, saved, n), n);
    assert_int_equal(foci_state_restore(w->other, saved, n, &made), FOCI_ERR_FULL);
    assert_null(made);
    assert_non_null(strstr(foci_errmsg(w->ctx), "needs 1 pages, and 0 are free"));
    assert_int_equal(foci_state_restore(w->pool, NULL, 0, &made), FOCI_ERR_ARG);
    assert_int_equal(foci_state_restore(NULL, saved, n, &made), FOCI_ERR_ARG);
    assert_int_equal(foci_state_restore(w->pool, saved, n, NULL), FOCI_ERR_ARG);
}

/* More than there can be has no size, and none that is too small. */
static void sizes(void **state)
{
    static const char *const specs[] = { "softmax rope",
                                         "lsh(buckets=4, rounds=3)",
                                         "linear rope",
                                         "routed(softmax, routes=2)",
                                         "segmented(length=4, integrate=second)",
                                         "fixed" };
    static const int64_t much[] = { -1, INT64_C(1) << 36, INT64_C(1) << 57, INT64_MAX };
    const foci_problem   p = { FOCI_SIZED(foci_problem),
                               .batch = 1,
                               .heads = 8,
                               .len_q = 1,
                               .len_k = 1,
                               .dim_qk = 1 << 12,
                               .dim_x = 1,
                               .flags = FOCI_FLAG_CAUSAL };
    foci_ctx            *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        foci_plan *plan = test_plan(ctx, specs[i], &p);
        foci_pool *pool;

        assert_int_equal(foci_pool_create(plan, 0, &pool), FOCI_OK);
        const size_t least = foci_step_work_bytes(pool, 1, 1, 1);
        assert_true(least > 0);
        for (size_t t = 0; t < sizeof much / sizeof *much; t++)
            for (int which = 1; which < 8; which++) {
                const size_t n = foci_step_work_bytes(pool, which & 1 ? much[t] : 1,
                                                      which & 2 ? much[t] : 1,
                                                      which & 4 ? much[t] : 1);
                assert_true(n >= least);
                if (t != 1) assert_true(n == SIZE_MAX);
            }
        foci_pool_free(pool);
        foci_plan_free(plan);
    }
    assert_true(foci_step_work_bytes(NULL, 1, 1, 1) == SIZE_MAX);
    foci_ctx_free(ctx);
}

enum { COPIES = 3, ROWS = 10, DIM_X = 2 };

/* Of those who share a page the last to write needs no copy of its own: a pool that is
 * grown page by page until a step of all of them is not refused has none left, in it and
 * in the pools inside. */
static void try_copies(foci_ctx *ctx, const char *spec)
{
    static const float x[4 * ROWS * WIDTH];
    const int32_t      prompt[] = { ROWS };
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 1,
                             .len_q = 1,
                             .len_k = 1,
                             .dim_qk = WIDTH,
                             .flags = FOCI_FLAG_CAUSAL,
                             .dim_x = DIM_X };
    foci_plan         *plan = test_plan(ctx, spec, &p);
    foci_state        *copy[COPIES];
    foci_pool         *pool;
    foci_status        status;
    int                grown = 0;

    assert_int_equal(foci_pool_create(plan, 0, &pool), FOCI_OK);
    assert_int_equal(foci_state_create(pool, &copy[0]), FOCI_OK);
    foci_step_io io = { FOCI_SIZED(foci_step_io),
                        .states = copy,
                        .n_states = 1,
                        .tokens = prompt,
                        .k = x,
                        .v = x,
                        .x = x };
    while ((status = foci_step(pool, &io)) == FOCI_ERR_FULL)
        assert_int_equal(foci_pool_grow(pool, 1), FOCI_OK);
    assert_int_equal(status, FOCI_OK);
    assert_int_equal(foci_pool_free_count(pool), 0);
    for (int i = 1; i < COPIES; i++)
        assert_int_equal(foci_state_copy(copy[0], &copy[i]), FOCI_OK);

    io.n_states = COPIES;
    io.tokens = NULL;
    for (; (status = foci_step(pool, &io)) == FOCI_ERR_FULL; grown++)
        assert_int_equal(foci_pool_grow(pool, 1), FOCI_OK);
    assert_int_equal(status, FOCI_OK);
    assert_int_equal(grown, COPIES - 1);
    assert_int_equal(foci_pool_free_count(pool), 0);
    assert_int_equal(foci_step(pool, &io), FOCI_OK); /* each has its own by now */

    for (int i = 0; i < COPIES; i++)
        foci_state_free(copy[i]);
    assert_int_equal(foci_pool_free_count(pool), foci_pool_page_count(pool));
    foci_pool_free(pool);
    foci_plan_free(plan);
}

static void copies(void **state)
{
    (void)state;
    foci_ctx *ctx = test_ctx(NULL, 1);
    try_copies(ctx, "softmax");
    try_copies(ctx, "routed(softmax, routes=2)");
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(steps, make, release),
        cmocka_unit_test_setup_teardown(pools, make, release),
        cmocka_unit_test_setup_teardown(states, make, release),
        cmocka_unit_test(sizes),
        cmocka_unit_test(copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
