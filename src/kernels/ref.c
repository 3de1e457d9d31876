/* ref.c -- every kernel in plain C, simple enough to be trusted by reading.
 *
 * This is the table of machines without a better one, and the reference that tests/kern
 * holds all others to.  Sums run upward in float with one accumulator; bf16 is rounded to
 * nearest even and keeps denormals.  Nothing here should become clever: speed belongs to the
 * levels above.
 */
#include <math.h>
#include <string.h>

#include "foci/foci.h"
#include "foci/mechanism.h"
#include "foci/product.h"
#include "kernels/kernels.h"

/*
 * Numbers of 16 bits
 */

static uint32_t bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

static float from_bf16(uint32_t h) { return float_of(h << 16); }

static uint16_t to_bf16(float x)
{
    const uint32_t u = bits_of(x);

    if (isnan(x)) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float from_f16(uint16_t h)
{
    const float sign = h & 0x8000 ? -1.0f : 1.0f;
    const int   e = h >> 10 & 31, f = h & 1023;

    if (e == 31) return f ? NAN : sign * INFINITY;
    if (e == 0) return sign * ldexpf((float)f, -24);
    return sign * ldexpf((float)(f + 1024), e - 25);
}

static uint16_t to_f16(float x)
{
    const uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
    const float    a = fabsf(x);

    if (isnan(x)) return (uint16_t)(sign | 0x7e00);
    if (a >= 65520.0f) return (uint16_t)(sign | 0x7c00);

    /* Units of the last place: 2^-24 below 2^-14, then 2^(e-10).  rintf rounds to
     * nearest even; a carry into the next binade does the right thing by itself. */
    int e = -14;
    if (a >= 0x1p-14f) e = ilogbf(a);
    const int f = (int)rintf(ldexpf(a, 10 - e));
    return (uint16_t)(sign | ((e + 14) * 1024 + f));
}

static float element(const void *in, int64_t i, int dtype)
{
    switch (dtype) {
    case FOCI_BF16: {
        uint16_t h;
        memcpy(&h, (const char *)in + 2 * i, 2);
        return from_bf16(h);
    }
    case FOCI_F16: {
        uint16_t h;
        memcpy(&h, (const char *)in + 2 * i, 2);
        return from_f16(h);
    }
    default: {
        float x;
        memcpy(&x, (const char *)in + 4 * i, 4);
        return x;
    }
    }
}

static void set_element(void *out, int64_t i, int dtype, float x)
{
    if (dtype == FOCI_F32) {
        memcpy((char *)out + 4 * i, &x, 4);
    } else {
        const uint16_t h = dtype == FOCI_BF16 ? to_bf16(x) : to_f16(x);
        memcpy((char *)out + 2 * i, &h, 2);
    }
}

static uint32_t pair(float low, float high)
{
    return to_bf16(low) | (uint32_t)to_bf16(high) << 16;
}

/*
 * Numbers that several bodies make
 */

/* max(x, 0) that lets NaN through */
static float positive(float x) { return x <= 0.0f ? 0.0f : x; }

/* The weight of score t against reference m. */
static float weight(float t, float m, int kind)
{
    if (kind == FOCI_WEIGH_RELU2) return positive(t) * positive(t);
    return exp2f(t - (m == -INFINITY ? 0.0f : m));
}

/*
 * Bodies, by subject
 */

#include "kernels/plain/attend.c"
#include "kernels/plain/chunk.c"
#include "kernels/plain/decode.c"
#include "kernels/plain/epilogue.c"
#include "kernels/plain/features.c"
#include "kernels/plain/few.c"
#include "kernels/plain/grad.c"
#include "kernels/plain/labels.c"
#include "kernels/plain/linear.c"
#include "kernels/plain/loss.c"
#include "kernels/plain/means.c"
#include "kernels/plain/norm.c"
#include "kernels/plain/peak.c"
#include "kernels/plain/places.c"
#include "kernels/plain/products.c"
#include "kernels/plain/recur.c"
#include "kernels/plain/rows.c"
#include "kernels/plain/scores.c"
#include "kernels/plain/short_conv.c"
#include "kernels/plain/sums.c"
#include "kernels/plain/taps.c"
#include "kernels/plain/tiles.c"
#include "kernels/plain/update.c"

void kernels_ref(struct kernels *k)
{
    *k = (struct kernels){
#define KERNEL(name, result, args) .name = name,
#include "kernels/kernels.def"
#undef KERNEL
        .stream_end = stream_end,
        .has_bf16 = false,
        .few_bf16 = 0,
        .sum_by_rows = false,
        .depth = 2,
        .panel = 64,
    };
}
