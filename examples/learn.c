/* learn.c -- forward and backward: find by gradient descent the temperatures that
 * attention with another set of them was computed with.
 *
 * `temper` gives each head a factor of its logits, which starts at 1.  The outputs to
 * be matched are made with 2, 3, 4 and 5; the loss is the mean square difference.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <foci/foci.h>

enum { HEADS = 4, LEN = 100, DIM = 16, COUNT = LEN * HEADS * DIM, STEPS = 40 };

static float q[COUNT], k[COUNT], v[COUNT], o[COUNT], goal[COUNT], d_o[COUNT];

/* The mean square difference; its gradient goes to d_o. */
static double loss(void)
{
    double sum = 0;
    for (int i = 0; i < COUNT; i++) {
        const double d = (double)o[i] - (double)goal[i];
        d_o[i] = (float)(2 * d / COUNT);
        sum += d * d;
    }
    return sum / COUNT;
}

int main(void)
{
    foci_ctx    *ctx;
    foci_plan   *plan;
    foci_problem p = { FOCI_SIZED(foci_problem), .flags = FOCI_FLAG_TRAIN };
    if (foci_ctx_create(NULL, &ctx) || foci_problem_parse(ctx, "h4n100d16c", &p) ||
        foci_plan_create(ctx, "softmax temper", &p, &plan)) {
        fprintf(stderr, "%s\n", foci_errmsg(ctx));
        return 1;
    }
    for (int i = 0; i < COUNT; i++) {
        q[i] = sinf((float)(7 * i));
        k[i] = cosf((float)(i * i % 1001));
        v[i] = sinf((float)(i * i % 997));
    }
    float   params[HEADS] = { 2, 3, 4, 5 }, dparams[HEADS];
    foci_io io = { FOCI_SIZED(foci_io), .q = q, .k = k, .v = v, .o = o };
    io.params = params;
    io.work = aligned_alloc(64, foci_plan_work_bytes(plan));
    io.saved = aligned_alloc(64, foci_plan_saved_bytes(plan));
    const foci_grads grads = { FOCI_SIZED(foci_grads), .d_o = d_o, .dparams = dparams };

    int failed = foci_forward(plan, &io) != FOCI_OK;
    memcpy(goal, o, sizeof goal);
    foci_params_init(plan, 0, params); /* all 1 */
    for (int step = 0; step <= STEPS && !failed; step++) {
        failed = foci_forward(plan, &io) != FOCI_OK;
        const double l = loss();
        if (step % 10 == 0)
            printf("step %2d  loss %.1e  factors %.3f %.3f %.3f %.3f\n", step, l,
                   (double)params[0], (double)params[1], (double)params[2],
                   (double)params[3]);
        memset(dparams, 0, sizeof dparams); /* foci_backward() adds */
        if (foci_backward(plan, &io, &grads)) failed = 1;
        for (int h = 0; h < HEADS; h++)
            params[h] -= 300 * dparams[h];
    }
    for (int h = 0; h < HEADS; h++)
        if (!(fabsf(params[h] - (float)(h + 2)) < 0.01f)) failed = 1;

    free(io.work);
    free(io.saved);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
    return failed;
}
