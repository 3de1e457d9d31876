/* positional_taps_params.c -- gradients of the parameters of convolutions and of x. */
#include <string.h>

#include "engine/positional/positional_taps.h"

/* dW of constant taps, from their sums over the rows of each sequence. */
static void add_constant(const struct positional *x, float *dw)
{
    const int64_t taps = positional_tap_count(x) * x->heads, width = x->kind.width;
    const float  *w = x->io->params + x->stage->group->param0[0];

    for (int64_t t = 0; t < taps; t += width) {
        float now[MAX_TAPS], d[MAX_TAPS];

        memcpy(now, w + t, (size_t)width * sizeof *now);
        positional_softmax(now, (int)width);
        for (int64_t e = 0; e < width; e++) {
            double sum = 0;
            for (int64_t s = 0; s < x->n_seqs; s++)
                sum += x->sums[s * taps + t + e];
            d[e] = (float)sum;
        }
        positional_softmax_back(d, now, (int)width);
        for (int64_t e = 0; e < width; e++)
            dw[t + e] += d[e];
    }
}

/* dx of 64 rows += gradients of the logits of all heads by W. */
static void dx_job(void *arg, int64_t i, int thread)
{
    const struct positional *x = arg;
    const foci_layout       *l = &x->p->x;
    const int64_t            taps = x->heads * positional_tap_count(x),
                  blocks = div_up(x->p->len_q, ROWS);
    const int64_t b = i / blocks, row = i % blocks * ROWS;
    const int     n = (int)min64(ROWS, x->p->len_q - row), d = (int)x->p->dim_x;
    const size_t  at = (size_t)(b * l->batch + row * l->row) * x->el;
    struct positional_scratch r;

    positional_thread_scratch(x, thread, &r);
    x->k->load_rows(r.x_rows, x->ldx, (char *)x->g->dx + at, l->row, (int)x->p->dtype,
                    n, d);
    x->k->gemm_f32(r.x_rows, x->ldx, x->logits + (b * x->p->len_q + row) * taps, taps,
                   1, x->w_rows, x->ldx, n, x->ldx, (int)taps, 1);
    x->k->store_rows((char *)x->g->dx + at, l->row, (int)x->p->dtype, r.x_rows, x->ldx,
                     1.0f, n, d);
}

/* dW of one head += gradients of its logits, transposed, by x. */
static void dw_job(void *arg, int64_t h, int thread)
{
    const struct positional *x = arg;
    const int64_t            mine = positional_tap_count(x), taps = x->heads * mine;
    const int64_t            d = x->p->dim_x;
    float                   *sum = x->dw_rows + h * mine * x->ldx;
    float *dw = x->g->dparams + x->stage->group->param0[0] + h * mine * d;
    struct positional_scratch r;

    positional_thread_scratch(x, thread, &r);
    memset(sum, 0, (size_t)(mine * x->ldx) * sizeof *sum);
    for (int64_t s = 0; s < x->n_seqs; s++)
        for (int64_t i = 0; i < x->seqs[s].nq; i += ROWS) {
            const int     n = (int)min64(ROWS, x->seqs[s].nq - i);
            const int64_t row = x->seqs[s].b * x->p->len_q + x->seqs[s].q0 + i;

            positional_load_x(x, &x->seqs[s], i, n, r.x_rows);
            x->k->gemm_f32(sum, x->ldx, x->logits + row * taps + h * mine, 1, taps,
                           r.x_rows, x->ldx, (int)mine, x->ldx, n, 1);
        }
    for (int64_t t = 0; t < mine; t++)
        for (int64_t e = 0; e < d; e++)
            dw[t * d + e] += sum[t * x->ldx + e];
}

void positional_taps_params_backward(struct positional *x)
{
    const foci_plan *plan = x->plan;
    const int64_t    taps = x->heads * positional_tap_count(x), d = x->p->dim_x;

    if (!positional_taps_of_x(x)) {
        if (x->g->dparams) add_constant(x, x->g->dparams + x->stage->group->param0[0]);
        return;
    }
    for (int64_t t = 0; t < taps; t++)
        for (int64_t e = 0; e < x->ldx; e++)
            x->w_rows[t * x->ldx + e] =
                e < d ? x->io->params[x->stage->group->param0[0] + t * d + e] : 0;
    const struct phase phases[] = {
        { x->g->dx ? x->p->batch * div_up(x->p->len_q, ROWS) : 0, 1, dx_job, x },
        { x->g->dparams ? x->heads : 0, 1, dw_job, x },
    };
    phases_run(x->k, x->exec.shared, plan->ctx->threads, phases, 2);
}
