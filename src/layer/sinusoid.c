/* sinusoid.c -- positions as waves.
 *
 * Vaswani et al., "Attention is all you need" (2017), section 3.5.  Angles are computed
 * in double precision.
 */
#include <math.h>

#include "layer/layer.h"

foci_status foci_sinusoid(int64_t first, int64_t rows, int64_t width, double base,
                          float *out)
{
    if (rows < 0 || width < 0 || !(base > 0) || !isfinite(base) ||
        (rows && width && (!out || rows > INT64_MAX / width)))
        return ctx_fail(
            NULL, FOCI_ERR_ARG,
            "foci_sinusoid: rows %lld, width %lld, base %g, out %s: extents "
            "are 0 or more, base is positive, and out has a place for all",
            (long long)rows, (long long)width, base, out ? "given" : "NULL");
    for (int64_t t = 0; t < width; t++) {
        const double speed = pow(base, -(double)(t - t % 2) / (double)width);
        for (int64_t i = 0; i < rows; i++) {
            const double angle = ((double)first + (double)i) * speed;
            out[i * width + t] = (float)(t % 2 ? cos(angle) : sin(angle));
        }
    }
    return FOCI_OK;
}
