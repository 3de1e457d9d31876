/* execute.c -- executions that are refused: what foci_io_check() says of them, and that
 * forward and backward do not begin. */
#include "test.h"

enum { N = 3, WIDTH = 4, SAVED = 1 << 12 };

/* A call with all that its plan needs. */
struct call {
    foci_ctx  *ctx;
    foci_plan *plan;
    foci_io    io;
    foci_grads grads;
    float      x[N * WIDTH], o[N * WIDTH];
    char      *work; /* as much as its threads need */
    _Alignas(64) char saved[SAVED];
};

static struct call *call_make(const char *spec, uint32_t flags, int64_t max_docs)
{
    struct call       *c = test_alloc(1, sizeof *c);
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 1,
                             .len_q = N,
                             .len_k = N,
                             .dim_qk = WIDTH,
                             .flags = flags,
                             .max_docs = max_docs };

    c->ctx = test_ctx(NULL, 1);
    c->plan = test_plan(c->ctx, spec, &p);
    c->work = test_alloc(foci_plan_work_bytes(c->plan) + 64, 1);
    assert_in_range(foci_plan_saved_bytes(c->plan), 0, sizeof c->saved);
    c->io =
        (foci_io){ FOCI_SIZED(foci_io), .q = c->x,       .k = c->x,        .v = c->x,
                   .o = c->o,           .work = c->work, .saved = c->saved };
    c->grads = (foci_grads){ FOCI_SIZED(foci_grads), .d_o = c->x };
    return c;
}

static void call_free(struct call *c)
{
    foci_plan_free(c->plan);
    foci_ctx_free(c->ctx);
    free(c->work);
    free(c);
}

/* Refused with a sentence that holds `says`, and nothing is written. */
static void expect(struct call *c, const foci_grads *grads, const char *says)
{
    char text[256] = "";

    c->o[0] = 77;
    assert_int_equal(foci_io_check(c->plan, &c->io, grads, text, sizeof text),
                     FOCI_ERR_ARG);
    if (!strstr(text, says)) fail_msg("\"%s\" does not say \"%s\"", text, says);
    if (grads)
        assert_int_equal(foci_backward(c->plan, &c->io, grads), FOCI_ERR_ARG);
    else
        assert_int_equal(foci_forward(c->plan, &c->io), FOCI_ERR_ARG);
    assert_true(c->o[0] == 77);
}

static void expect_good(struct call *c)
{
    char text[256] = "";
    if (foci_io_check(c->plan, &c->io, &c->grads, text, sizeof text))
        fail_msg("%s", text);
}

static void tensors(void **state)
{
    struct call *c = call_make("softmax sink", FOCI_FLAG_TRAIN, 0);
    const float  sink = 0;

    (void)state;
    c->io.params = &sink;
    expect_good(c);
    const struct {
        const void **at;
        const char  *says;
    } needed[] = {
        { &c->io.q, "io.q is NULL" },
        { &c->io.k, "io.k is NULL" },
        { &c->io.v, "io.v is NULL" },
        { (const void **)&c->io.params, "1 parameters" },
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        const void *was = *needed[i].at;
        *needed[i].at = NULL;
        expect(c, NULL, needed[i].says);
        *needed[i].at = was;
    }
    c->io.work = c->work + 4;
    expect(c, NULL, "io.work is not 64-byte aligned");
    c->io.work = c->work;
    c->io.saved = c->work + 4;
    expect(c, NULL, "io.saved is not 64-byte aligned");
    c->io.saved = NULL;
    c->io.work = NULL;
    expect(c, NULL, "io.work is NULL");
    c->io.work = c->work;
    c->io.saved = NULL;
    expect(c, &c->grads, "io.saved is NULL");
    c->io.saved = c->saved;
    c->grads.d_o = NULL;
    expect(c, &c->grads, "grads.d_o is NULL");
    c->grads.d_o = c->x;
    expect_good(c);
    c->io.o = NULL;
    assert_int_equal(foci_forward(c->plan, &c->io), FOCI_ERR_ARG);
    call_free(c);
}

/* Masks and biases are there if they were planned. */
static void masks(void **state)
{
    static const uint8_t mask[N * N];
    static const float   bias[N * N];
    struct call         *without = call_make("softmax", 0, 0);
    struct call *with = call_make("softmax", FOCI_FLAG_MASK | FOCI_FLAG_BIAS, 0);

    (void)state;
    without->io.mask = mask;
    expect(without, NULL, "planned without FOCI_FLAG_MASK");
    without->io.mask = NULL;
    without->io.bias = bias;
    expect(without, NULL, "planned without FOCI_FLAG_BIAS");
    without->io.bias = NULL;
    expect(without, &without->grads, "planned without FOCI_FLAG_TRAIN");
    with->io.bias = bias;
    expect(with, NULL, "io.mask is NULL");
    with->io.mask = mask;
    with->io.bias = NULL;
    expect(with, NULL, "io.bias is NULL");
    call_free(without);
    call_free(with);
}

static void lengths(void **state)
{
    struct call  *c = call_make("softmax", FOCI_FLAG_TRAIN, 2);
    int32_t       len = N + 1;
    int32_t       docs[] = { 0, 2, N };
    const int32_t bad[][3] = { { -1, 2, N }, { 0, 2, 1 }, { 0, 2, N + 1 } };

    (void)state;
    for (int i = 0; i < 2; i++, len = -1) {
        c->io.len_q = &len;
        expect(c, NULL, "len_q[0] is");
        c->io.len_q = NULL;
        c->io.len_k = &len;
        expect(c, NULL, "len_k[0] is");
        c->io.len_k = NULL;
    }
    c->io.docs = docs;
    c->io.n_docs = 2;
    expect_good(c);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        c->io.docs = bad[i];
        expect(c, NULL, "never fall");
    }
    c->io.docs = docs;
    c->io.n_docs = 3;
    expect(c, NULL, "n_docs is 3: this plan takes 0 to 2");
    c->io.n_docs = -1;
    expect(c, NULL, "n_docs is -1");
    c->io.n_docs = 2;
    len = 1;
    c->io.len_k = &len;
    expect(c, NULL, "docs and lengths are both given");
    call_free(c);
}

/* Structs of other versions, and none. */
static void calls(void **state)
{
    struct call *c = call_make("softmax", FOCI_FLAG_TRAIN, 0);
    char         text[256];
    foci_cost    cost = { .size = 0 };
    foci_plan   *plan;

    (void)state;
    c->io.size = 0;
    expect(c, NULL, "foci_io.size is 0: start the struct with FOCI_SIZED(foci_io)");
    c->io.size = sizeof c->io + 1;
    expect(c, NULL, "FOCI_SIZED");
    c->io.size = sizeof c->io;
    c->grads.size = 0;
    expect(c, &c->grads, "foci_grads.size is 0");
    c->grads.size = sizeof c->grads;
    assert_int_equal(foci_io_check(c->plan, NULL, NULL, text, sizeof text),
                     FOCI_ERR_ARG);
    assert_string_equal(text, "foci_io: the pointer is NULL");
    assert_int_equal(foci_io_check(NULL, &c->io, NULL, text, sizeof text), FOCI_ERR_ARG);
    assert_string_equal(text, "the plan is NULL");
    assert_int_equal(foci_forward(c->plan, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_backward(c->plan, &c->io, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_plan_cost(c->plan, &cost), FOCI_ERR_ARG);
    assert_int_equal(foci_plan_cost(c->plan, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_plan_create(c->ctx, "softmax", NULL, &plan), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(c->ctx), "problem is NULL"));
    assert_int_equal(foci_plan_create(NULL, "softmax", NULL, &plan), FOCI_ERR_ARG);
    assert_null(plan);
    assert_int_equal(foci_plan_create(c->ctx, "softmax", NULL, NULL), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(c->ctx), "nowhere to put the plan"));
    call_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors),
        cmocka_unit_test(masks),
        cmocka_unit_test(lengths),
        cmocka_unit_test(calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
