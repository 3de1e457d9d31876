/* defaults.c -- what fields that are left 0 stand for, and outputs that lie where they must
 * not. */
#include "test.h"

#include "foci/layer.h"

enum { LEN = 5, HEADS = 2, DIM = 4, ALL = 2 * LEN * HEADS * DIM };

/* A problem with only what must be given is one sequence of one head, and is computed. */
static void forgotten(void **state)
{
    const foci_problem p = { FOCI_SIZED(foci_problem), .len_q = LEN, .dim_qk = DIM };
    foci_problem       whole = { FOCI_SIZED(foci_problem) };
    foci_plan         *plan = test_plan(*state, "softmax", &p);

    assert_int_equal(foci_plan_get_problem(plan, &whole), FOCI_OK);
    assert_int_equal(whole.dtype, FOCI_F32);
    assert_int_equal(whole.batch, 1);
    assert_int_equal(whole.heads, 1);
    assert_int_equal(whole.kv_heads, 1);
    assert_int_equal(whole.len_k, LEN);
    assert_int_equal(whole.dim_v, DIM);
    assert_int_equal(whole.mask_batch, 1);
    assert_int_equal(whole.mask_heads, 1);
    assert_int_equal(whole.o.row, DIM);

    float         q[LEN * DIM], o[LEN * DIM];
    char         *work = test_alloc(foci_plan_work_bytes(plan), 1);
    const foci_io io = { FOCI_SIZED(foci_io), .q = q, .k = q, .v = q, .o = o,
                         .work = work };
    for (int i = 0; i < LEN * DIM; i++)
        q[i] = (float)i, o[i] = -1;
    assert_int_equal(foci_forward(plan, &io), FOCI_OK);
    for (int i = 0; i < LEN * DIM; i++)
        assert_true(o[i] >= 0 && o[i] <= LEN * DIM);
    free(work);
    foci_plan_free(plan);
}

/* What must be given is missed. */
static void missing(void **state)
{
    const struct {
        foci_problem p;
        const char  *says;
    } bad[] = {
        { { FOCI_SIZED(foci_problem), .dim_qk = DIM }, "len_q is 0: it may be 1 to" },
        { { FOCI_SIZED(foci_problem), .len_q = LEN }, "dim_qk is 0: it may be 1 to" },
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        foci_plan *plan;
        assert_int_equal(foci_plan_create(*state, "softmax", &bad[i].p, &plan),
                         FOCI_ERR_ARG);
        assert_non_null(strstr(foci_errmsg(*state), bad[i].says));
    }
    foci_layer              *layer;
    const foci_layer_problem l = { FOCI_SIZED(foci_layer_problem), .width = 8 };
    assert_int_equal(foci_layer_create(*state, NULL, &l, &layer), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(*state), "len is 0: it may be 1 to"));
}

static void layers(void **state)
{
    const foci_layer_problem p = { FOCI_SIZED(foci_layer_problem), .len = 3,
                                   .width = 8 };
    foci_layer_problem       whole = { FOCI_SIZED(foci_layer_problem) };
    foci_layer              *layer;

    assert_int_equal(foci_layer_create(*state, NULL, &p, &layer), FOCI_OK);
    assert_int_equal(foci_layer_get_problem(layer, &whole), FOCI_OK);
    assert_int_equal(whole.batch, 1);
    assert_int_equal(whole.heads, 1);
    assert_int_equal(whole.kv_heads, 1);
    assert_int_equal(whole.head_dim, 8);
    assert_int_equal(whole.width_source, 8);
    foci_layer_free(layer);
}

#define B FOCI_BROADCAST

/* Each stride that is 0 follows from those inside it; what was planned plans again. */
static void strides(void **state)
{
    static const struct {
        foci_layout given, filled;
    } cases[] = {
        { { 0, 0, 0 }, { 40, 8, 4 } },      { { 0, 0, 6 }, { 60, 12, 6 } },
        { { 0, 9, 0 }, { 45, 9, 4 } },      { { 99, 0, 0 }, { 99, 8, 4 } },
        { { 0, 4, 20 }, { 40, 4, 20 } },    { { B, 0, 0 }, { B, 8, 4 } },
        { { 0, 0, B }, { 20, 4, B } },      { { 0, B, 0 }, { 8, B, 4 } },
        { { B, B, B }, { B, B, B } },       { { 3, 2, 1 }, { 3, 2, 1 } },
        { { 200, 40, 4 }, { 200, 40, 4 } },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        foci_problem p = { FOCI_SIZED(foci_problem),
                           .batch = 2,
                           .heads = HEADS,
                           .len_q = LEN,
                           .dim_qk = DIM,
                           .q = cases[i].given };
        for (int again = 0; again < 2; again++) {
            foci_plan *plan = test_plan(*state, "softmax", &p);
            assert_int_equal(foci_plan_get_problem(plan, &p), FOCI_OK);
            assert_memory_equal(&p.q, &cases[i].filled, sizeof p.q);
            foci_plan_free(plan);
        }
    }
}

/* Strides that were filled in and outputs leave each row a place. */
static void overlapping_rows(void **state)
{
    static const struct {
        foci_layout q, o;
        const char *says;
    } bad[] = {
        { .q = { 0, 4, 0 }, .says = "q: with strides" },
        { .q = { 7, 0, 0 }, .says = "q: with strides" },
        { .q = { 0, -1, 0 }, .says = "q.row is -1" },
        { .o = { B, 0, 0 }, .says = "o: with strides 0, 8, 4" },
        { .o = { 0, B, 0 }, .says = "o: with strides" },
        { .o = { 0, 0, B }, .says = "o: with strides" },
        { .o = { 40, 8, 3 }, .says = "o: with strides 40, 8, 3" },
        { .o = { 40, 7, 4 }, .says = "o: with strides" },
        { .o = { 39, 8, 4 }, .says = "o: with strides" },
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const foci_problem p = { FOCI_SIZED(foci_problem),
                                 .batch = 2,
                                 .heads = HEADS,
                                 .len_q = LEN,
                                 .dim_qk = DIM,
                                 .q = bad[i].q,
                                 .o = bad[i].o };
        foci_plan         *plan;
        assert_int_equal(foci_plan_create(*state, "softmax", &p, &plan), FOCI_ERR_ARG);
        if (!strstr(foci_errmsg(*state), bad[i].says))
            fail_msg("%s; expected: %s", foci_errmsg(*state), bad[i].says);
    }
}

/* A call with memory for every tensor. */
struct call {
    foci_plan *plan;
    float      memory[8][ALL];
    char      *work, *saved;
    foci_io    io;
    foci_grads g;
};

static struct call *call_make(foci_ctx *ctx, const char *spec, foci_problem p)
{
    struct call *c = test_alloc(1, sizeof *c);

    memset(c, 0, sizeof *c);
    c->plan = test_plan(ctx, spec, &p);
    c->work = test_alloc(foci_plan_work_bytes(c->plan), 1);
    c->saved = test_alloc(foci_plan_saved_bytes(c->plan), 1);
    c->io = (foci_io){ FOCI_SIZED(foci_io),   .q = c->memory[0], .k = c->memory[1],
                       .v = c->memory[2],     .o = c->memory[3], .work = c->work,
                       .params = c->memory[0] };
    c->io.saved = foci_plan_saved_bytes(c->plan) ? c->saved : NULL;
    c->g = (foci_grads){ FOCI_SIZED(foci_grads), .d_o = c->memory[4],
                         .dq = c->memory[5], .dk = c->memory[6], .dv = c->memory[7] };
    return c;
}

static void call_free(struct call *c)
{
    foci_plan_free(c->plan);
    free(c->work);
    free(c->saved);
    free(c);
}

static const foci_problem shape = {
    FOCI_SIZED(foci_problem), .batch = 2, .heads = HEADS, .len_q = LEN, .dim_qk = DIM,
    .flags = FOCI_FLAG_TRAIN
};

static void refused(foci_ctx *ctx, const struct call *c, bool backward, const char *says)
{
    char         text[200] = "";
    foci_status  status = backward ? foci_backward(c->plan, &c->io, &c->g)
                                   : foci_forward(c->plan, &c->io);
    const size_t n = strlen(says);

    assert_int_equal(status, FOCI_ERR_ARG);
    if (strncmp(foci_errmsg(ctx), says, n) != 0)
        fail_msg("%s; expected: %s", foci_errmsg(ctx), says);
    status = foci_io_check(c->plan, &c->io, backward ? &c->g : NULL, text, sizeof text);
    assert_int_equal(status, FOCI_ERR_ARG);
    assert_string_equal(text, foci_errmsg(ctx));
}

/* An output in the place of an input, or partly there, is refused for every engine; inputs
 * may be one tensor. */
static void overlapping_tensors(void **state)
{
    static const char *const specs[] = {
        "softmax",        "fixed",   "lightconv(width=3)",
        "linear",         "nystrom", "memformer(slots=2)",
        "local + 1*fixed"
    };

    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        struct call  *c = call_make(*state, specs[s], shape);
        const foci_io good = c->io;

        assert_int_equal(foci_forward(c->plan, &c->io), FOCI_OK);
        c->io.q = c->io.k = c->io.v;
        assert_int_equal(foci_forward(c->plan, &c->io), FOCI_OK);
        assert_int_equal(foci_backward(c->plan, &c->io, &c->g), FOCI_OK);
        c->io = good;
        c->io.o = c->memory[2];
        refused(*state, c, false, "io.o overlaps io.v");
        c->io.o = c->memory[2] + ALL - 1;
        refused(*state, c, false, "io.o overlaps io.v");
        c->io.o = c->memory[1] + 1;
        refused(*state, c, false, "io.o overlaps io.");
        c->io = good;
        c->g.dv = c->memory[3] + 1;
        refused(*state, c, true, "grads.dv overlaps io.o");
        c->g.dv = c->memory[4];
        refused(*state, c, true, "grads.dv overlaps grads.d_o");
        c->g.dv = c->memory[2];
        refused(*state, c, true, "grads.dv overlaps io.v");
        call_free(c);
    }
}

/* Tensors that are columns of one buffer share no element. */
static void columns(void **state)
{
    enum { ROW = 8 * HEADS * DIM };
    foci_problem p = shape;
    p.q = p.k = p.v = p.o = (foci_layout){ .row = ROW };
    struct call *c = call_make(*state, "softmax", p);
    float       *all = test_alloc((size_t)2 * LEN * ROW, sizeof *all);
    const int    one = HEADS * DIM;

    memset(all, 0, (size_t)2 * LEN * ROW * sizeof *all);
    c->io.q = all, c->io.k = all + one, c->io.v = all + 2 * one,
    c->io.o = all + 3 * one;
    c->g.d_o = all + 4 * one;
    c->g.dq = all + 5 * one, c->g.dk = all + 6 * one, c->g.dv = all + 7 * one;
    assert_int_equal(foci_forward(c->plan, &c->io), FOCI_OK);
    assert_int_equal(foci_backward(c->plan, &c->io, &c->g), FOCI_OK);
    c->io.o = all + 3 * one - 1;
    refused(*state, c, false, "io.o overlaps io.v");
    c->io.o = all + ROW - 1; /* its last column is the first of q, a row later */
    refused(*state, c, false, "io.o overlaps io.q");
    c->io.o = all + 3 * one;
    c->g.dk = all + 5 * one + 1;
    refused(*state, c, true, "grads.dk overlaps grads.dq");
    free(all);
    call_free(c);
}

/* Keys that all sequences share can be read, but have no gradient of one sequence. */
static void broadcast_gradients(void **state)
{
    foci_problem p = shape;
    p.k.batch = FOCI_BROADCAST;
    struct call *c = call_make(*state, "softmax", p);

    assert_int_equal(foci_forward(c->plan, &c->io), FOCI_OK);
    refused(*state, c, true,
            "grads.dk is wanted, and its rows overlap: strides 0, 8, 4");
    c->g.dk = NULL;
    assert_int_equal(foci_backward(c->plan, &c->io, &c->g), FOCI_OK);
    call_free(c);
}

static void saved_alignment(void **state)
{
    struct call *c = call_make(*state, "softmax", shape);

    c->io.saved = c->saved + 32;
    refused(*state, c, false, "io.saved is not 64-byte aligned");
    call_free(c);
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
        cmocka_unit_test(forgotten),        cmocka_unit_test(missing),
        cmocka_unit_test(layers),           cmocka_unit_test(strides),
        cmocka_unit_test(overlapping_rows), cmocka_unit_test(overlapping_tensors),
        cmocka_unit_test(columns),          cmocka_unit_test(broadcast_gradients),
        cmocka_unit_test(saved_alignment),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
