/* convert.c -- arrays of any type, order and byte order, to packed floats or
 * int32.
 *
 * An array is walked in C order by runs along its last axis.  The values of a run
 * go through a small buffer of doubles, which hold every type exactly but 64-bit
 * integers; those beyond 2^53 are rounded twice on their way to a float, an error
 * of less than 2^-28 of half a unit in the last place.
 */
#include <math.h>
#include <string.h>

#include "file/format.h"

enum { RUN = 256 };

static uint64_t load_bits(const unsigned char *p, size_t bytes, bool little)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes; i++)
        bits |= (uint64_t)p[little ? i : bytes - 1 - i] << (8 * i);
    return bits;
}

static double from_f32_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double from_f16_bits(uint32_t bits)
{
    const int    exponent = (int)(bits >> 10 & 31);
    const double fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;

    if (exponent == 31) return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

static double from_f64_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double from_bits(foci_eltype type, uint64_t bits)
{
    switch (type) {
    case FOCI_ELTYPE_BOOL: return bits != 0;
    case FOCI_ELTYPE_I8: return (int8_t)bits;
    case FOCI_ELTYPE_I16: return (int16_t)bits;
    case FOCI_ELTYPE_I32: return (int32_t)bits;
    case FOCI_ELTYPE_I64: return (double)(int64_t)bits;
    case FOCI_ELTYPE_U8:
    case FOCI_ELTYPE_U16:
    case FOCI_ELTYPE_U32:
    case FOCI_ELTYPE_U64: return (double)bits;
    case FOCI_ELTYPE_F16: return from_f16_bits((uint32_t)bits);
    case FOCI_ELTYPE_BF16: return from_f32_bits((uint32_t)bits << 16);
    case FOCI_ELTYPE_F32: return from_f32_bits((uint32_t)bits);
    case FOCI_ELTYPE_F64: return from_f64_bits(bits);
    }
    return 0;
}

/* A walk over the elements in C order; `at` is the index of the next one. */
struct convert_walk {
    const foci_array *a;
    int64_t           stride[FOCI_MAX_DIMS]; /* in elements */
    int64_t           at[FOCI_MAX_DIMS];
};

static struct convert_walk walk_begin(const foci_array *a)
{
    struct convert_walk w = { .a = a };
    int64_t             step = 1;
    for (int k = 0; k < a->n_dims; k++) {
        const int axis = a->fortran ? k : a->n_dims - 1 - k;
        w.stride[axis] = step;
        step *= a->shape[axis] ? a->shape[axis] : 1;
    }
    return w;
}

/* The next values, up to RUN of them and within one run of the last axis; the
 * result is their number. */
static int64_t walk_next(struct convert_walk *w, double *out)
{
    const foci_array *a = w->a;
    const size_t      bytes = eltype_bytes(a->type);
    const bool        little = host_is_little() != (a->swapped != 0);
    const int         last = a->n_dims - 1;
    int64_t           n = 1, step = 0, first = 0;

    for (int k = 0; k <= last; k++)
        first += w->at[k] * w->stride[k];
    if (last >= 0) {
        n = min64(a->shape[last] - w->at[last], RUN);
        step = w->stride[last];
    }

    const unsigned char *p = (const unsigned char *)a->data + (size_t)first * bytes;
    for (int64_t i = 0; i < n; i++)
        out[i] = from_bits(a->type,
                           load_bits(p + (size_t)(i * step) * bytes, bytes, little));

    if (last >= 0) w->at[last] += n;
    for (int k = last; k > 0 && w->at[k] == a->shape[k]; k--) {
        w->at[k] = 0;
        w->at[k - 1]++;
    }
    return n;
}

void foci_array_to_f32(const foci_array *array, float *out)
{
    if (array->type == FOCI_ELTYPE_F32 && !array->fortran && !array->swapped) {
        if (array->count) memcpy(out, array->data, (size_t)array->count * sizeof *out);
        return;
    }
    struct convert_walk w = walk_begin(array);
    double              run[RUN];
    for (int64_t done = 0; done < array->count;) {
        const int64_t n = walk_next(&w, run);
        for (int64_t i = 0; i < n; i++)
            out[done++] = (float)run[i];
    }
}

foci_status foci_array_to_i32(const foci_array *array, int32_t *out)
{
    if (!array || (array->count && !out))
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_array_to_i32: %s is NULL",
                        array ? "out" : "the array");
    struct convert_walk w = walk_begin(array);
    double              run[RUN];
    for (int64_t done = 0; done < array->count;) {
        const int64_t n = walk_next(&w, run);
        for (int64_t i = 0; i < n; i++) {
            if (!(run[i] >= INT32_MIN && run[i] <= INT32_MAX) || run[i] != trunc(run[i]))
                return ctx_fail(NULL, FOCI_ERR_ARG,
                                "%s: element %lld is %g: a whole number that fits into "
                                "32 bits is wanted",
                                array->name, (long long)done, run[i]);
            out[done++] = (int32_t)run[i];
        }
    }
    return FOCI_OK;
}
