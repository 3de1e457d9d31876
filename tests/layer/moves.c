/* moves.c -- tensors that mechanisms move or find themselves, from hidden states: as the
 * plan does it from the rows that these project to. */
#include <math.h>
#include <stdio.h>

#include "support/layers.h"

enum { LEN = 30, WIDTH = 16, HEADS = 4, DIM = 4, BATCH = 2 };

/* Rows of queries or keys, [batch][row][head][dim], of all groups. */
static float *projected(const foci_layer *layer, const struct layer_case *c, char which)
{
    float     *out = test_alloc((size_t)BATCH * LEN * HEADS * DIM, sizeof *out);
    foci_group g = { FOCI_SIZED(foci_group) };
    const bool mix = foci_plan_group_count(foci_layer_plan(layer)) > 1;

    for (int i = 0; i < foci_plan_group_count(foci_layer_plan(layer)); i++) {
        (void)foci_plan_group(foci_layer_plan(layer), i, &g);
        const int64_t cols = g.heads * DIM;
        foci_param    w;
        char          name[32];

        if (mix)
            snprintf(name, sizeof name, "%d.W%c", i, which);
        else
            snprintf(name, sizeof name, "W%c", which);
        if (layers_find(layer, name, &w) < 0) continue;
        for (int64_t at = 0; at < BATCH * LEN * cols; at++) {
            const int64_t row = at / cols, col = at % cols;
            double        sum = 0;
            for (int64_t t = 0; t < WIDTH; t++)
                sum += ref_load(FOCI_F32, c->x, row * WIDTH + t) *
                       (double)c->params[w.offset + t * cols + col];
            out[(row * HEADS + g.head0) * DIM + col] = (float)sum;
        }
    }
    return out;
}

typedef foci_status move_plan(const foci_plan *plan, const foci_io *io, float *params);
typedef foci_status move_layer(const foci_layer *layer, const foci_layer_io *io,
                               float *params);

/* The plan's parameters from the layer's, by name; those that a layer makes stay 0. */
static float *plan_params(const foci_layer *layer, const struct layer_case *c,
                          const foci_plan *plan)
{
    float *params = test_alloc((size_t)plan->n_floats + 1, sizeof *params);

    for (int i = 0; i < plan->n_params; i++) {
        const struct param *p = &plan->params[i];
        foci_param          from;
        if (layers_find(layer, p->name, &from) >= 0)
            memcpy(params + p->offset, c->params + from.offset,
                   (size_t)p->count * sizeof *params);
    }
    return params;
}

static void compare(const foci_layer *layer, const struct layer_case *c,
                    const foci_plan *plan, const float *got, const float *want)
{
    int moved = 0;

    for (int i = 0; i < plan->n_params; i++) {
        const struct param *p = &plan->params[i];
        foci_param          at;
        if (layers_find(layer, p->name, &at) < 0) continue;
        for (int64_t t = 0; t < p->count; t++) {
            const double x = (double)got[at.offset + t],
                         y = (double)want[p->offset + t];
            if (isnan(x) && isnan(y)) continue;
            if (!(fabs(x - y) <= 1e-4 * (1 + fabs(y))))
                layers_fail(layer, c, p->name, t, x, y);
            moved += y != (double)c->params[at.offset + t];
        }
    }
    assert_true(moved > 0);
    for (int i = 0; i < layers_own(layer); i++) { /* of the layer's own, none */
        foci_param own = { FOCI_SIZED(foci_param) };
        assert_int_equal(foci_layer_param(layer, i, &own), FOCI_OK);
        assert_memory_equal(got + own.offset, c->params + own.offset,
                            (size_t)own.count * sizeof *got);
    }
}

static void run_case(foci_ctx *ctx, const char *spec, move_layer *by_layer,
                     move_plan *by_plan)
{
    const foci_layer_problem l = { FOCI_SIZED(foci_layer_problem),
                                   .batch = BATCH,
                                   .len = LEN,
                                   .width = WIDTH,
                                   .heads = HEADS,
                                   .flags = FOCI_FLAG_CAUSAL };
    const foci_problem       p = { FOCI_SIZED(foci_problem),
                                   .batch = BATCH,
                                   .heads = HEADS,
                                   .len_q = LEN,
                                   .len_k = LEN,
                                   .dim_qk = DIM,
                                   .flags = FOCI_FLAG_CAUSAL };
    foci_layer              *layer = layers_make(ctx, spec, &l);
    foci_plan               *plan = test_plan(ctx, spec, &p);
    struct layer_case        c = layers_draw(layer, spec, 2, 0);
    const size_t             n = (size_t)foci_layer_param_floats(layer);

    /* Statistics that a trial found once more become unknown. */
    if (by_plan == foci_params_calibrate)
        assert_int_equal(foci_layer_params_init(layer, 2, c.params), FOCI_OK);
    float *q = projected(layer, &c, 'q'), *k = projected(layer, &c, 'k');
    float *want = plan_params(layer, &c, plan);
    float *got = test_alloc(n, sizeof *got),
          *y = test_alloc((size_t)BATCH * LEN, WIDTH * sizeof *y);
    memcpy(got, c.params, n * sizeof *got);

    const foci_io io = { FOCI_SIZED(foci_io),
                         .q = q,
                         .k = k,
                         .v = k,
                         .o = y,
                         .params = want,
                         .work = test_alloc(foci_plan_work_bytes(plan), 1) };
    foci_layer_io layer_io = layer_case_io(&c);
    layer_io.y = y;
    layer_io.work = test_alloc(foci_layer_work_bytes(layer), 1);
    assert_int_equal(by_plan(plan, &io, want), FOCI_OK);
    assert_int_equal(by_layer(layer, &layer_io, got), FOCI_OK);
    compare(layer, &c, plan, got, want);
    free(io.work);
    free(layer_io.work);
    free(q);
    free(k);
    free(y);
    free(want);
    free(got);
    layer_case_free(&c);
    foci_plan_free(plan);
    foci_layer_free(layer);
}

static void advance(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    run_case(ctx, "routing(clusters=3)", foci_layer_params_advance, foci_params_advance);
    run_case(ctx, "1*fixed + 3*routing(clusters=3)", foci_layer_params_advance,
             foci_params_advance);
    run_case(ctx, "2*softmax txl + 2*routing(clusters=3)", foci_layer_params_advance,
             foci_params_advance);
    run_case(ctx, "2*fixed + 2*performer(redraw=1)", foci_layer_params_advance,
             foci_params_advance);
    foci_ctx_free(ctx);
}

static void calibrate(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    run_case(ctx, "performer(favor++)", foci_layer_params_calibrate,
             foci_params_calibrate);
    run_case(ctx, "2*softmax txl + 2*performer(favor++)", foci_layer_params_calibrate,
             foci_params_calibrate);
    run_case(ctx, "performer(sderf)", foci_layer_params_calibrate,
             foci_params_calibrate);
    run_case(ctx, "performer(aderf)", foci_layer_params_calibrate,
             foci_params_calibrate);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advance),
        cmocka_unit_test(calibrate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
