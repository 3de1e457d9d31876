/* concentration.c -- how evenly heads spread their weights.
 *
 *     S = |a|_1 / (sqrt(n) |a|_2)
 *
 * of the n weights of a row: 1 where all have the same size, 1 / sqrt(n) where one of them
 * has it all.  It needs no weights that are positive or sum to 1, as entropy does.  Computed
 * of a / max|a|, so that no square overflows or vanishes.
 */
#include <math.h>

#include "foci/analyse.h"
#include "layer/layer.h"

double foci_concentration(const float *weights, int64_t n)
{
    double most = 0, sum = 0, squares = 0;

    for (int64_t j = 0; j < n; j++)
        most = fmax(most, fabs((double)weights[j]));
    if (!(most > 0)) return NAN;
    for (int64_t j = 0; j < n; j++) {
        const double a = fabs((double)weights[j]) / most;
        sum += a;
        squares += a * a;
    }
    return sum / sqrt((double)n * squares);
}

/* Keys that the problem shows to row i of sequence b. */
static int64_t keys_of(const foci_problem *p, const foci_io *io, int64_t b, int64_t i)
{
    const int64_t n = io->len_k ? io->len_k[b] : p->len_k;

    if (!(p->flags & FOCI_FLAG_CAUSAL)) return n;
    const int64_t before = i + 1 + p->len_k - p->len_q;
    return before < n ? before : n;
}

static double mean_of(const foci_problem *p, const foci_io *io, const float *weights,
                      int64_t h)
{
    double  sum = 0;
    int64_t rows = 0;

    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t n = io->len_q ? io->len_q[b] : p->len_q;
        for (int64_t i = 0; i < n; i++) {
            const float *row = weights + ((b * p->heads + h) * p->len_q + i) * p->len_k;
            const double s = foci_concentration(row, keys_of(p, io, b, i));
            if (isnan(s)) continue;
            sum += s;
            rows++;
        }
    }
    return rows ? sum / (double)rows : NAN;
}

static foci_status concentration_check(const foci_layer *layer, const foci_layer_io *io,
                                       const foci_problem *p)
{
    const double all = (double)p->batch * (double)p->heads * (double)p->len_q;

    if (io->docs)
        return ctx_fail(layer->ctx, FOCI_ERR_UNSUP,
                        "the concentration of packed documents is not offered");
    return all * (double)p->len_k > 0x1p40
               ? ctx_fail(layer->ctx, FOCI_ERR_ARG,
                          "%.3g weights are too many: give shorter sequences",
                          all * (double)p->len_k)
               : FOCI_OK;
}

foci_status foci_layer_concentration(const foci_layer *layer, const foci_layer_io *io,
                                     double *heads)
{
    foci_problem p = { FOCI_SIZED(foci_problem) };
    foci_io      of_heads = { FOCI_SIZED(foci_io) };

    if (!layer || !heads)
        return ctx_fail(layer ? layer->ctx : NULL, FOCI_ERR_ARG,
                        "foci_layer_concentration: %s is NULL",
                        layer ? "heads" : "the layer");
    TRY(foci_plan_get_problem(layer->plan, &p));
    TRY(foci_layer_heads(layer, io, &of_heads));
    TRY(concentration_check(layer, io, &p));
    const size_t n = (size_t)(p.batch * p.heads * p.len_q * p.len_k);
    float       *weights = ctx_alloc(layer->ctx, n, sizeof *weights);
    if (!weights) return FOCI_ERR_MEMORY;
    const foci_status status = foci_ref_weights(layer->plan, &of_heads, weights);
    for (int64_t h = 0; !status && h < p.heads; h++)
        heads[h] = mean_of(&p, &of_heads, weights, h);
    ctx_free(layer->ctx, weights, n, sizeof *weights);
    return status;
}
