/* layer.c -- a whole layer: learn to give back the token before, then decode.
 *
 * One head looks at the token before, two have query and key projections that are drawn
 * and never change, one learns all of its own.  Only what is trained has gradients.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <foci/layer.h>

enum { LEN = 50, WIDTH = 32, COUNT = LEN * WIDTH, STEPS = 60 };

static const char heads[] =
    "1*fixed(previous) + 2*softmax frozen(orthogonal) + 1*softmax";
static float x[COUNT], y[COUNT], dy[COUNT], token[WIDTH];

/* The mean square difference to the rows before; its gradient goes to dy. */
static double loss(void)
{
    double sum = 0;
    for (int i = WIDTH; i < COUNT; i++) {
        dy[i] = 2 * (y[i] - x[i - WIDTH]) / LEN;
        sum += pow(y[i] - x[i - WIDTH], 2);
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
    p.flags = FOCI_FLAG_CAUSAL | FOCI_FLAG_TRAIN;
    p.heads = 4;
    p.width = p.value_dim = WIDTH;
    if (foci_ctx_create(NULL, &ctx) || foci_layer_create(ctx, heads, &p, &layer) ||
        foci_pool_create(foci_layer_plan(layer), 4, &pool) ||
        foci_state_create(pool, &state))
        return fprintf(stderr, "%s\n", foci_errmsg(ctx));
    for (int i = 0; i < COUNT; i++)
        x[i] = sinf((float)(i * i % 1009));

    const size_t  n = (size_t)foci_layer_param_floats(layer);
    float        *w = malloc(n * sizeof *w), *dw = calloc(n, sizeof *dw);
    foci_layer_io io = { FOCI_SIZED(foci_layer_io), .x = x, .y = y, .params = w };
    const foci_layer_grads g = { FOCI_SIZED(foci_layer_grads), .dy = dy, .dparams = dw };
    io.work = aligned_alloc(64, foci_layer_work_bytes(layer));
    io.saved = aligned_alloc(64, foci_layer_saved_bytes(layer));
    int failed = foci_layer_params_init(layer, 1, w) != FOCI_OK;
    for (int step = 0; step <= STEPS && !failed; step++) {
        for (size_t i = 0; i < n; i++) /* foci_layer_backward() adds: from 0 again */
            w[i] -= 0.1f * dw[i], dw[i] = 0;
        if (foci_layer_forward(layer, &io)) failed = 1;
        const double l = loss();
        if (step % 20 == 0) printf("step %2d  loss %.4f\n", step, l);
        if (foci_layer_backward(layer, &io, &g)) failed = 1;
    }

    /* Token by token, through a state, it is the same. */
    foci_layer_step_io one = { FOCI_SIZED(foci_layer_step_io), .states = &state,
                               .n_states = 1, .y = token, .params = w };
    one.work = aligned_alloc(64, foci_layer_step_work_bytes(layer, pool, 1, 1, LEN));
    for (int i = 0; i < COUNT && !failed; i += WIDTH) {
        one.x = &x[i];
        if (foci_layer_step(layer, pool, &one)) failed = 1;
        for (int t = 0; t < WIDTH; t++)
            if (!(fabsf(token[t] - y[i + t]) < 1e-4f)) failed = 1;
    }
    if (!(loss() < 0.02)) failed = 1;
    puts(failed ? "something is wrong" : "decoding gives the same");
    free(w), free(dw), free(io.work), free(io.saved), free(one.work);
    foci_state_free(state);
    foci_pool_free(pool);
    foci_layer_free(layer);
    foci_ctx_free(ctx);
    return failed;
}
