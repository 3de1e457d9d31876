/* alloc.c -- the n-th allocation fails, for every n, in everything of layers that
 * allocates; and executions allocate nothing. */
#include "support/failing.h"
#include "support/layers.h"
#include "support/sized.h"

static foci_ctx *make_ctx(void)
{
    static const foci_options options = { FOCI_SIZED(foci_options), .threads = 1,
                                          .alloc = sized_alloc };
    foci_ctx                 *ctx = NULL;

    assert_int_equal(foci_ctx_create(&options, &ctx), FOCI_OK);
    return ctx;
}

/* What is tried once; it cleans up after itself. */
struct scene {
    foci_ctx                 *ctx;
    const char               *spec;
    const foci_layer_problem *p;
    foci_layer               *layer;
    const foci_layer_io      *io;
    const foci_layer_grads   *grads;
    float                    *params;
};

typedef foci_status scene_fn(struct scene *s);

/* Once alone and once with all that follow; the result is the number of allocations. */
static int64_t every_failure(scene_fn *play, struct scene *s)
{
    failing_at(0, false);
    assert_int_equal(play(s), FOCI_OK);
    const int64_t needed = failing_count(), before = failing_live();

    for (int ever = 0; ever < 2; ever++)
        for (int64_t n = 1; n <= needed; n++) {
            ctx_fail(s->ctx, FOCI_OK, "%s", "");
            failing_at(n, ever);
            const foci_status status = play(s);
            failing_at(0, false);
            assert_int_equal(failing_live(), before);
            assert_int_equal(status, FOCI_ERR_MEMORY);
        }
    assert_int_equal(play(s), FOCI_OK);
    assert_int_equal(failing_live(), before);
    return needed;
}

static const foci_layer_problem attention = { FOCI_SIZED(foci_layer_problem),
                                              .batch = 2,
                                              .len = 9,
                                              .width = 16,
                                              .heads = 4,
                                              .biases = 1,
                                              .flags =
                                                  FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL };
static const foci_layer_problem gau = { FOCI_SIZED(foci_layer_problem),
                                        .kind = FOCI_LAYER_GAU,
                                        .batch = 1,
                                        .len = 5,
                                        .width = 8,
                                        .heads = 1,
                                        .head_dim = 4,
                                        .flags = FOCI_FLAG_TRAIN };
static const foci_layer_problem conv = { FOCI_SIZED(foci_layer_problem),
                                         .kind = FOCI_LAYER_CONV,
                                         .batch = 1,
                                         .len = 5,
                                         .width = 8,
                                         .heads = 2,
                                         .flags = FOCI_FLAG_TRAIN };

static const struct {
    const char               *spec;
    const foci_layer_problem *p;
} all[] = {
    { "softmax", &attention },
    { "2*fixed + 2*softmax txl", &attention },
    { "2*softmax frozen(orthogonal) + 2*softmax frozen(hadamard)", &attention },
    { "4*softmax frozen(gaussian, sample=block, tie=1)", &attention },
    { "relu2", &gau },
    { "dynconv", &conv },
};

enum { N_ALL = sizeof all / sizeof *all };

static foci_status play_create(struct scene *s)
{
    foci_layer       *layer = (foci_layer *)s;
    const foci_status status = foci_layer_create(s->ctx, s->spec, s->p, &layer);

    if (status) {
        assert_null(layer);
        assert_true(strlen(foci_errmsg(s->ctx)) > 5);
    }
    foci_layer_free(layer);
    return status;
}

static foci_status play_init(struct scene *s)
{
    return foci_layer_params_init(s->layer, 5, s->params);
}

static foci_status play_forward(struct scene *s)
{
    return foci_ref_layer_forward(s->layer, s->io);
}

static foci_status play_backward(struct scene *s)
{
    return foci_ref_layer_backward(s->layer, s->io, s->grads);
}

static void making(void **state)
{
    struct scene s = { .ctx = make_ctx() };

    (void)state;
    for (int i = 0; i < N_ALL; i++) {
        s.spec = all[i].spec;
        s.p = all[i].p;
        assert_true(every_failure(play_create, &s) > 4);
        s.layer = layers_make(s.ctx, s.spec, s.p);
        s.params =
            test_alloc((size_t)foci_layer_param_floats(s.layer), sizeof *s.params);
        assert_true(every_failure(play_init, &s) > 0);
        free(s.params);
        foci_layer_free(s.layer);
    }
    foci_ctx_free(s.ctx);
    assert_int_equal(failing_live(), 0);
}

/* Written out, and given; a transform becomes a matrix only if there is room for one. */
static foci_status play_frozen(struct scene *s)
{
    TRY(foci_layer_frozen_get(s->layer, 0, s->params));
    foci_layer *layer;
    TRY(foci_layer_create(s->ctx, s->spec, s->p, &layer));
    const foci_status status = foci_layer_frozen_set(layer, 0, s->params);
    foci_layer_free(layer);
    return status;
}

static void frozen(void **state)
{
    struct scene s = { .ctx = make_ctx(),
                       .spec = "softmax frozen(hadamard)",
                       .p = &attention };
    foci_param   param;

    (void)state;
    s.layer = layers_make(s.ctx, s.spec, s.p);
    assert_int_equal(layers_find(s.layer, "Wq", &param), 0);
    s.params = test_alloc((size_t)param.count, sizeof *s.params);
    assert_true(every_failure(play_frozen, &s) > 0);
    free(s.params);
    foci_layer_free(s.layer);
    foci_ctx_free(s.ctx);
}

/* The judge allocates; layers do not. */
static void executions(void **state)
{
    foci_ctx *ctx = make_ctx();

    (void)state;
    for (int i = 0; i < N_ALL; i++) {
        foci_layer       *layer = layers_make(ctx, all[i].spec, all[i].p);
        struct layer_case c = layers_draw(layer, all[i].spec, 1, LAYER_LENS);
        const size_t      n = (size_t)(c.p.batch * c.p.len * c.p.width);
        foci_layer_io     io = layer_case_io(&c);
        float            *dparams =
            test_alloc((size_t)foci_layer_param_floats(layer), sizeof *dparams);
        float *dx = test_alloc(n, sizeof *dx);
        io.y = test_alloc(n, sizeof(float));
        io.work = test_alloc(foci_layer_work_bytes(layer), 1);
        io.saved = test_alloc(foci_layer_saved_bytes(layer), 1);
        const foci_layer_grads g = { FOCI_SIZED(foci_layer_grads), .dy = c.dy, .dx = dx,
                                     .dparams = dparams };

        failing_at(0, false);
        assert_int_equal(foci_layer_forward(layer, &io), FOCI_OK);
        assert_int_equal(foci_layer_backward(layer, &io, &g), FOCI_OK);
        assert_int_equal(failing_count(), 0);
        struct scene s = { .ctx = ctx, .layer = layer, .io = &io, .grads = &g };
        assert_true(every_failure(play_forward, &s) > 3);
        assert_true(every_failure(play_backward, &s) > 3);
        free(io.y);
        free(io.work);
        free(io.saved);
        free(dx);
        free(dparams);
        layer_case_free(&c);
        foci_layer_free(layer);
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(making),
        cmocka_unit_test(frozen),
        cmocka_unit_test(executions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
