/* messages.c -- after a failed call there is a reason, its own, on the thread that failed. */
#include "test.h"

#include <pthread.h>

#include "foci/analyse.h"
#include "foci/layer.h"

enum { LEN = 4, DIM = 4 };

/* Every call that fails replaces the message by one of its own. */
#define FAILS(ctx, call, says)                                                         \
    do {                                                                               \
        foci_plan *stale;                                                              \
        assert_int_not_equal(foci_plan_create(ctx, "stale", &small, &stale), FOCI_OK); \
        assert_int_not_equal(call, FOCI_OK);                                           \
        if (!strstr(foci_errmsg(ctx), says))                                           \
            fail_msg("\"%s\" does not say \"%s\"", foci_errmsg(ctx), says);            \
    } while (0)

static const foci_problem small = { FOCI_SIZED(foci_problem), .len_q = LEN,
                                    .dim_qk = DIM, .flags = FOCI_FLAG_CAUSAL };

static void plans(void **state)
{
    foci_ctx    *ctx = *state;
    foci_plan   *plan = test_plan(ctx, "softmax sink", &small);
    foci_io      io = { FOCI_SIZED(foci_io) };
    foci_grads   grads = { FOCI_SIZED(foci_grads) };
    foci_param   param = { FOCI_SIZED(foci_param) };
    foci_problem p = { .size = 1 };
    foci_cost    cost = { .size = SIZE_MAX };
    float        weights[LEN * LEN];
    double       errors[1];
    foci_pool   *pool;
    foci_state  *s;
    foci_step_io step = { FOCI_SIZED(foci_step_io), .n_states = -1 };

    FAILS(ctx, foci_plan_param(plan, 1, &param), "parameter tensor 1: this plan has 1");
    FAILS(ctx, foci_plan_get_problem(plan, &p), "foci_problem.size is 1");
    FAILS(ctx, foci_plan_cost(plan, &cost), "foci_cost.size is");
    FAILS(ctx, foci_plan_cost(plan, NULL), "foci_cost: the pointer is NULL");
    FAILS(ctx, foci_params_init(plan, 1, NULL), "params is NULL");
    FAILS(ctx, foci_forward(plan, &io), "io.o is NULL");
    FAILS(ctx, foci_forward(plan, NULL), "foci_io: the pointer is NULL");
    FAILS(ctx, foci_backward(plan, &io, NULL), "grads is NULL");
    FAILS(ctx, foci_backward(plan, &io, &grads), "io.o is NULL");
    FAILS(ctx, foci_params_advance(plan, &io, NULL), "io.o is NULL");
    FAILS(ctx, foci_io_check(plan, &io, NULL, NULL, 0), "io.o is NULL");
    FAILS(ctx, foci_ref_forward(plan, &io), "io.o is NULL");
    FAILS(ctx, foci_ref_weights(plan, &io, NULL), "weights is NULL");
    FAILS(ctx, foci_ref_weights(plan, &io, weights), "io.q is NULL");
    FAILS(ctx, foci_softmax_errors(plan, &io, NULL), "errors is NULL");
    FAILS(ctx, foci_softmax_errors(plan, &io, errors), "io.o is NULL");
    FAILS(ctx, foci_pool_create(plan, -1, &pool), "pages is -1");
    FAILS(ctx, foci_pool_create(plan, 1, NULL), "pool is NULL");
    assert_int_equal(foci_pool_create(plan, 1, &pool), FOCI_OK);
    FAILS(ctx, foci_state_create(pool, NULL), "state is NULL");
    FAILS(ctx, foci_step(pool, &step), "n_states is -1");
    FAILS(ctx, foci_step(pool, NULL), "foci_step_io: the pointer is NULL");
    FAILS(ctx, foci_state_restore(pool, "", 0, &s), "state");
    foci_pool_free(pool);
    foci_plan_free(plan);
}

static void layers(void **state)
{
    foci_ctx                *ctx = *state;
    const foci_layer_problem p = { FOCI_SIZED(foci_layer_problem), .len = LEN,
                                   .width = DIM };
    foci_layer              *layer;
    foci_layer_io            io = { FOCI_SIZED(foci_layer_io) };
    foci_layer_grads         grads = { FOCI_SIZED(foci_layer_grads) };
    foci_param               param = { FOCI_SIZED(foci_param) };
    float                    x[LEN * DIM] = { 0 };

    assert_int_equal(foci_layer_create(ctx, NULL, &p, &layer), FOCI_OK);
    FAILS(ctx, foci_layer_create(ctx, NULL, &p, NULL), "nowhere to put the layer");
    FAILS(ctx, foci_layer_param(layer, 99, &param), "parameter tensor 99");
    FAILS(ctx, foci_layer_params_init(layer, 1, NULL), "params is NULL");
    FAILS(ctx, foci_layer_frozen_get(layer, 0, x), "tensor 0 of this layer is not");
    FAILS(ctx, foci_layer_forward(layer, &io), "io.x is NULL");
    FAILS(ctx, foci_layer_forward(layer, NULL), "foci_layer_io: the pointer is NULL");
    FAILS(ctx, foci_layer_backward(layer, &io, NULL), "grads is NULL");
    FAILS(ctx, foci_layer_backward(layer, &io, &grads), "io.x is NULL");
    FAILS(ctx, foci_ref_layer_forward(layer, &io), "io.x is NULL");
    FAILS(ctx, foci_sinusoid(0, -1, 1, 10000, x) ? FOCI_ERR_ARG : FOCI_OK, "");
    assert_non_null(strstr(foci_errmsg(NULL), "foci_sinusoid: rows -1"));

    char *work = test_alloc(foci_layer_work_bytes(layer), 1);
    io = (foci_layer_io){ FOCI_SIZED(foci_layer_io), .x = x, .y = x, .params = x,
                          .work = work };
    FAILS(ctx, foci_layer_forward(layer, &io), "io.y overlaps io.x");
    free(work);
    foci_layer_free(layer);
}

/* Without a plan there is no context; the message is there all the same. */
static void nothing(void **state)
{
    foci_plan *plan;

    (void)state;
    assert_int_equal(foci_forward(NULL, NULL), FOCI_ERR_ARG);
    assert_string_equal(foci_errmsg(NULL), "the plan is NULL");
    assert_int_equal(foci_plan_create(NULL, "softmax", &small, &plan), FOCI_ERR_ARG);
    assert_string_equal(foci_errmsg(NULL), "foci_plan_create: the context is NULL");
}

/* A context has its own messages, also one at the address of another. */
static void contexts(void **state)
{
    foci_ctx  *other = test_ctx(NULL, 1);
    foci_plan *plan;

    assert_int_not_equal(foci_plan_create(other, "bad", &small, &plan), FOCI_OK);
    assert_non_null(strstr(foci_errmsg(other), "bad"));
    assert_string_equal(foci_errmsg(*state), "");
    foci_ctx_free(other);
    for (int i = 0; i < 10; i++) {
        other = test_ctx(NULL, 1);
        assert_string_equal(foci_errmsg(other), "");
        foci_ctx_free(other);
    }
}

/* Threads that fail differently on one plan. */
struct caller {
    foci_plan  *plan;
    foci_ctx   *ctx;
    bool        missing_q;
    const char *wrong; /* NULL: every message was its own */
};

static void *fail_often(void *arg)
{
    enum { TIMES = 2000 };
    struct caller *c = arg;
    float          x[LEN * DIM] = { 0 }, o[LEN * DIM];
    const foci_io  io = { FOCI_SIZED(foci_io), .q = c->missing_q ? NULL : x,
                          .k = c->missing_q ? x : NULL, .v = x, .o = o };

    for (int i = 0; i < TIMES && !c->wrong; i++) {
        const char *says = c->missing_q ? "io.q is NULL" : "io.k is NULL";
        if (foci_forward(c->plan, &io) != FOCI_ERR_ARG)
            c->wrong = "no failure";
        else if (!strstr(foci_errmsg(c->ctx), says))
            c->wrong = "another's message";
    }
    return NULL;
}

static void threads(void **state)
{
    foci_plan    *plan = test_plan(*state, "softmax", &small);
    struct caller callers[2] = { { plan, *state, true, NULL },
                                 { plan, *state, false, NULL } };
    pthread_t     thread[2];

    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, fail_often, &callers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++)
        if (callers[i].wrong) fail_msg("thread %d: %s", i, callers[i].wrong);
    foci_plan_free(plan);
}

static int setup(void **state)
{
    *state = test_ctx(NULL, 1);
    return 0;
}

static int teardown(void **state)
{
    foci_ctx_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans),   cmocka_unit_test(layers),
        cmocka_unit_test(nothing), cmocka_unit_test(contexts),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
