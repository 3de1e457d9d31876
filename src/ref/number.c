/* number.c -- numbers of every element type, to and from double. */
#include <math.h>
#include <string.h>

#include "ref/ref.h"

/* Shape of a small floating-point format with a sign bit. */
struct format {
    int digits;     /* of the fraction that are stored */
    int least, top; /* exponents of the smallest and largest normal numbers */
};

static const struct format bf16 = { 7, -126, 127 }, f16 = { 10, -14, 15 };

static double unpack(struct format f, uint16_t bits)
{
    const int    exponents = f.top - f.least + 1; /* of normal numbers */
    const int    field = (bits & 0x7fff) >> f.digits;
    const double fraction = ldexp(bits & ((1 << f.digits) - 1), -f.digits);
    double       value;

    if (field == 0)
        value = ldexp(fraction, f.least);
    else if (field <= exponents)
        value = ldexp(1 + fraction, field - 1 + f.least);
    else
        value = fraction == 0 ? INFINITY : NAN;
    return bits & 0x8000 ? -value : value;
}

static uint16_t pack(struct format f, double value)
{
    const unsigned sign = signbit(value) ? 0x8000 : 0;
    const unsigned infinite = (unsigned)(f.top - f.least + 2) << f.digits;

    if (isnan(value)) return (uint16_t)(sign | infinite | 1u << (f.digits - 1));
    value = fabs(value);
    if (value == 0) return (uint16_t)sign;
    if (isinf(value)) return (uint16_t)(sign | infinite);

    int e;
    (void)frexp(value, &e);
    if (--e < f.least) e = f.least; /* 2^e <= value, or the format's finest grid */
    if (e > f.top) return (uint16_t)(sign | infinite);

    /* Whole steps of the grid.  A carry into the next power of two is a carry
     * into the exponent field, up to and including infinity. */
    const unsigned steps = (unsigned)nearbyint(ldexp(value, f.digits - e));
    return (uint16_t)(sign | (((unsigned)(e - f.least) << f.digits) + steps));
}

double ref_load(int type, const void *p, int64_t i)
{
    switch (type) {
    case FOCI_F32: return ((const float *)p)[i];
    case FOCI_BF16: return unpack(bf16, ((const uint16_t *)p)[i]);
    case FOCI_F16: return unpack(f16, ((const uint16_t *)p)[i]);
    default: return ((const double *)p)[i];
    }
}

void ref_store(int type, void *p, int64_t i, double value)
{
    switch (type) {
    case FOCI_F32: ((float *)p)[i] = (float)value; break;
    case FOCI_BF16: ((uint16_t *)p)[i] = pack(bf16, value); break;
    case FOCI_F16: ((uint16_t *)p)[i] = pack(f16, value); break;
    default: ((double *)p)[i] = value; break;
    }
}

/* Yardsticks round very many numbers.  Those that are normal in the format lose the last
 * bits of their double.  Half of the last bit that stays is added before, a little less
 * where that is even; it carries up to the exponent. */
static bool round_bits(struct format f, double *value)
{
    const int drop = 52 - f.digits;
    uint64_t  bits;
    int       e;

    (void)frexp(*value, &e);
    if (!isfinite(*value) || e - 1 < f.least || e - 1 >= f.top) return false;
    memcpy(&bits, value, sizeof bits);
    bits += (UINT64_C(1) << (drop - 1)) - 1 + (bits >> drop & 1);
    bits = bits >> drop << drop;
    memcpy(value, &bits, sizeof bits);
    return true;
}

double ref_round(int type, double value)
{
    double scratch;

    if (type == REF_F64) return value;
    if (type == FOCI_F32) return (float)value;
    if (round_bits(type == FOCI_BF16 ? bf16 : f16, &value)) return value;
    ref_store(type, &scratch, 0, value);
    return ref_load(type, &scratch, 0);
}
