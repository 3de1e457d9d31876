/* rows.c -- apart from the rest, which has other things of the names in layer/layer.h. */
#include "support/rows.h"

#include "layer/layer.h"

void rows_find(const foci_layer *layer, const foci_layer_io *io, const void *rows[3])
{
    struct layer_pass x;

    rows[0] = rows[1] = rows[2] = NULL;
    if (!layer->saved_bytes) return;
    layer_open(layer, io, NULL, &x);
    const foci_io plan = layer_plan_io(&x);
    rows[0] = plan.q;
    rows[1] = plan.k;
    rows[2] = plan.v;
}
