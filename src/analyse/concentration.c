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

foci_status foci_layer_concentration(const foci_layer *layer, const foci_layer_io *io,
                                     double *heads)
{
    foci_layer_problem p = { FOCI_SIZED(foci_layer_problem) };
    foci_heads        *h = NULL;

    if (!layer || !heads)
        return ctx_fail(layer ? layer->ctx : NULL, FOCI_ERR_ARG,
                        "foci_layer_concentration: %s is NULL",
                        layer ? "heads" : "the layer");
    TRY(foci_layer_get_problem(layer, &p));
    const foci_heads_options o = { FOCI_SIZED(foci_heads_options), .heads = p.heads,
                                   .top = 1, .rank = -1 };
    foci_status              status = foci_heads_create(layer->ctx, &o, &h);
    if (!status) status = foci_heads_add_layer(h, layer, io);
    for (int64_t i = 0; !status && i < p.heads; i++) {
        foci_head head = { FOCI_SIZED(foci_head) };
        status = foci_heads_get(h, i, &head);
        heads[i] = head.figures[FOCI_HEAD_CONCENTRATION];
    }
    foci_heads_free(h);
    return status;
}
