/* layer.c -- a whole layer: learn to give back the token before, then decode.
 *
 * One head looks at the token before, two have query and key projections that are drawn
 * and never change, one learns all of its own.  Only what is trained has gradients.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <foci/layer.h>

enum { LEN = 50, WIDTH = 32, COUNT = LEN * WIDTH, STEPS = 60 };

static const char spec[] =
    "1*fixed(previous) + 2*softmax frozen(orthogonal) + 1*softmax";
static float x[COUNT], y[COUNT], dy[COUNT], token[WIDTH];

/* The mean square difference to the rows before; its gradient goes to dy. */
static double loss(void)
{
    double sum = 0;
    for (int i = WIDTH; i < COUNT; i++) {
        const double d = (double)y[i] - (double)x[i - WIDTH];
        dy[i] = (float)(2 * d / LEN);
        sum += d * d;
    }
    return sum / COUNT;
}

int main(void)
{
    foci_ctx          *ctx = NULL;
    foci_layer        *layer = NULL;
    foci_pool         *pool = NULL;
    foci_state        *state = NULL;
    foci_layer_problem p = { FOCI_SIZED(foci_layer_problem), .batch = 1, .len = LEN };
    p.flags = FOCI_CAUSAL | FOCI_TRAIN;
    p.heads = 4;
    p.width = p.value_dim = WIDTH;
    if (foci_ctx_create(NULL, &ctx) || foci_layer_create(ctx, spec, &p, &layer) ||
        foci_pool_create(foci_layer_plan(layer), 4, &pool) ||
        foci_state_create(pool, &state))
        return fprintf(stderr, "%s\n", foci_errmsg(ctx));
    for (int i = 0; i < COUNT; i++)
        x[i] = sinf((float)(i * i % 1009));

    const size_t  n = (size_t)foci_layer_params(layer) * sizeof(float);
    float        *params = malloc(n), *dparams = malloc(n);
    foci_layer_io io = { FOCI_SIZED(foci_layer_io), .x = x, .y = y, .params = params };
    io.work = aligned_alloc(64, foci_layer_work_bytes(layer));
    io.saved = aligned_alloc(64, foci_layer_saved_bytes(layer));
    const foci_layer_grads g = { FOCI_SIZED(foci_layer_grads), .dy = dy,
                                 .dparams = dparams };

    int failed = foci_layer_init(layer, 1, params) != FOCI_OK;
    for (int step = 0; step <= STEPS && !failed; step++) {
        failed = foci_layer_forward(layer, &io) != FOCI_OK;
        const double l = loss();
        if (step % 20 == 0) printf("step %2d  loss %.4f\n", step, l);
        if (step == STEPS) break;
        memset(dparams, 0, n); /* foci_layer_backward() adds */
        if (foci_layer_backward(layer, &io, &g)) failed = 1;
        for (size_t i = 0; i < n / sizeof *params; i++)
            params[i] -= 0.1f * dparams[i];
    }
    if (!(loss() < 0.02)) failed = 1;

    /* Token by token, through a state, it is the same. */
    foci_layer_step_io one = { FOCI_SIZED(foci_layer_step_io), .states = &state,
                               .n_states = 1, .y = token, .params = params };
    one.work = aligned_alloc(64, foci_layer_step_bytes(layer, pool, 1, 1, LEN));
    for (int i = 0; i < LEN && !failed; i++) {
        one.x = &x[(size_t)i * WIDTH];
        if (foci_layer_step(layer, pool, &one)) failed = 1;
        for (int t = 0; t < WIDTH; t++)
            if (!(fabsf(token[t] - y[i * WIDTH + t]) < 1e-4f)) failed = 1;
    }
    puts(failed ? "something is wrong" : "decoding gives the same");

    void *const blocks[] = { params, dparams, io.work, io.saved, one.work };
    for (int i = 0; i < 5; i++)
        free(blocks[i]);
    foci_state_free(state);
    foci_pool_free(pool);
    foci_layer_free(layer);
    foci_ctx_free(ctx);
    return failed;
}
