/* norm.c -- normalisation of rows, forward and backward.
 *
 * A row is read three times, the last two from the first-level cache: for the mean, for the
 * variance, and for the result.  Bound by reading and writing rows once.
 */

/* The sum of f(x) over a row, in four chains. */
struct ISA(norm_sum) {
    vf x[4];
};

INLINE void ISA(norm_clear)(struct ISA(norm_sum) * s)
{
    UNROLL(4)
    for (int i = 0; i < 4; i++)
        s->x[i] = vf_zero();
}

INLINE float ISA(norm_total)(const struct ISA(norm_sum) * s)
{
    return vf_sum(vf_add(vf_add(s->x[0], s->x[1]), vf_add(s->x[2], s->x[3])));
}

/* Elements from c on, the last of a row: lanes beyond it are 0. */
INLINE vf ISA(norm_deviation)(const char *row, int c, vf mean, const int some,
                              const int dtype)
{
    const vf x = vf_sub(ISA(row_get)(row, c, some, dtype), mean);
    return some ? vf_select(vm_bits((UINT64_C(1) << some) - 1, 0), x, vf_zero()) : x;
}

INLINE float ISA(norm_mean)(const char *row, int d, const int dtype)
{
    struct ISA(norm_sum) s;
    int c = 0;

    ISA(norm_clear)(&s);
    for (; c + 4 * VF_LEN <= d; c += 4 * VF_LEN) {
        UNROLL(4)
        for (int i = 0; i < 4; i++)
            s.x[i] = vf_add(s.x[i], ISA(row_get)(row, c + i * VF_LEN, 0, dtype));
    }
    for (; c + VF_LEN <= d; c += VF_LEN)
        s.x[0] = vf_add(s.x[0], ISA(row_get)(row, c, 0, dtype));
    if (c < d) s.x[1] = vf_add(s.x[1], ISA(row_get)(row, c, d - c, dtype));
    return ISA(norm_total)(&s) / (float)d;
}

/* The mean of squared deviations. */
INLINE float ISA(norm_variance)(const char *row, int d, float mean, const int dtype)
{
    const vf m = vf_set1(mean);
    struct ISA(norm_sum) s;
    int c = 0;

    ISA(norm_clear)(&s);
    for (; c + 4 * VF_LEN <= d; c += 4 * VF_LEN) {
        UNROLL(4)
        for (int i = 0; i < 4; i++) {
            const vf x = ISA(norm_deviation)(row, c + i * VF_LEN, m, 0, dtype);
            s.x[i] = vf_fma(x, x, s.x[i]);
        }
    }
    for (; c < d; c += VF_LEN) {
        const vf x = ISA(norm_deviation)(row, c, m, c + VF_LEN <= d ? 0 : d - c, dtype);
        s.x[0] = vf_fma(x, x, s.x[0]);
    }
    return ISA(norm_total)(&s) / (float)d;
}

INLINE vf ISA(norm_parameter)(const float *p, int c, float otherwise, const int some)
{
    return p ? ISA(row_get)((const char *)p, c, some, FOCI_F32) : vf_set1(otherwise);
}

INLINE void ISA(norm_put)(char *out, const char *row, int c, vf mean, vf by,
                          const struct norm *how, const int some, const int dtype)
{
    const vf gain = ISA(norm_parameter)(how->gain, c, 1.0f, some);
    const vf bias = ISA(norm_parameter)(how->bias, c, 0.0f, some);
    const vf x = vf_mul(vf_sub(ISA(row_get)(row, c, some, dtype), mean), by);

    ISA(row_put)(out, c, vf_fma(x, gain, bias), some, dtype);
}

INLINE void ISA(norm_type)(char *out, float *stats, const char *in, int n, int d,
                           const struct norm *how, const int dtype)
{
    for (int i = 0; i < n; i++) {
        const char *const row = ISA(row_of)(in, i, d, dtype);
        char *const       to = ISA(row_of)(out, i, d, dtype);
        const float       mean = how->rms ? 0.0f : ISA(norm_mean)(row, d, dtype);
        const float       variance = ISA(norm_variance)(row, d, mean, dtype);
        const float       by = 1.0f / sqrtf(variance + how->eps);
        const vf          m = vf_set1(mean), b = vf_set1(by);
        int               c = 0;

        for (; c + VF_LEN <= d; c += VF_LEN)
            ISA(norm_put)(to, row, c, m, b, how, 0, dtype);
        if (c < d) ISA(norm_put)(to, row, c, m, b, how, d - c, dtype);
        if (!stats) continue;
        stats[2 * i] = mean;
        stats[2 * i + 1] = by;
    }
}

static void ISA(norm_rows)(void *out, float *stats, const void *in, int dtype, int n,
                           int d, const struct norm *how)
{
    switch (dtype) {
    case FOCI_F32: ISA(norm_type)(out, stats, in, n, d, how, FOCI_F32); break;
    case FOCI_BF16: ISA(norm_type)(out, stats, in, n, d, how, FOCI_BF16); break;
    default: ISA(norm_type)(out, stats, in, n, d, how, FOCI_F16); break;
    }
}

/*
 * Backward, with z = (x - mean) by and g = dy gain:
 *
 *     dx = more + by (g - mean of g - z (mean of g z))
 *
 * where RMS has no mean of g.
 */

/* A row of it. */
struct ISA(norm_row) {
    const char *dy, *x, *more;
    char       *dx;
    vf          mean, by;
};

/* g and z from column c on, 0 beyond the row. */
INLINE vf ISA(norm_g)(const struct ISA(norm_row) * r, int c, const struct norm *how,
                      const int some, const int dtype)
{
    return vf_mul(ISA(row_get)(r->dy, c, some, dtype),
                  ISA(norm_parameter)(how->gain, c, 1.0f, some));
}

INLINE vf ISA(norm_z)(const struct ISA(norm_row) * r, int c, const int some,
                      const int dtype)
{
    return vf_mul(ISA(norm_deviation)(r->x, c, r->mean, some, dtype), r->by);
}

INLINE void ISA(norm_add)(float *sum, int c, vf x, const int some)
{
    const vf all = vf_add(ISA(row_get)((const char *)sum, c, some, FOCI_F32), x);
    ISA(row_put)((char *)sum, c, all, some, FOCI_F32);
}

/* Sums of g and of g z, and the gradients of gain and bias. */
INLINE void ISA(norm_back_sums)(const struct ISA(norm_row) * r, int c, vf sums[2],
                                const struct norm *how, float *dgain, float *dbias,
                                const int some, const int dtype)
{
    const vf z = ISA(norm_z)(r, c, some, dtype);
    const vf g = ISA(norm_g)(r, c, how, some, dtype);
    const vf dy = ISA(row_get)(r->dy, c, some, dtype);

    sums[0] = vf_add(sums[0], g);
    sums[1] = vf_fma(g, z, sums[1]);
    if (dgain) ISA(norm_add)(dgain, c, vf_mul(dy, z), some);
    if (dbias) ISA(norm_add)(dbias, c, dy, some);
}

INLINE void ISA(norm_back_put)(const struct ISA(norm_row) * r, int c, const vf means[2],
                               const struct norm *how, const int some, const int dtype)
{
    const vf z = ISA(norm_z)(r, c, some, dtype);
    const vf g = ISA(norm_g)(r, c, how, some, dtype);
    vf       dx = vf_mul(r->by, vf_fnma(z, means[1], vf_sub(g, means[0])));

    if (r->more) dx = vf_add(dx, ISA(row_get)(r->more, c, some, dtype));
    ISA(row_put)(r->dx, c, dx, some, dtype);
}

INLINE void ISA(norm_back_type)(char *dx, const char *dy, const char *x,
                                const char *more, const float *stats, int n, int d,
                                const struct norm *how, float *dgain, float *dbias,
                                const int dtype)
{
    for (int i = 0; i < n; i++) {
        const struct ISA(norm_row) r = { .dy = ISA(row_of)(dy, i, d, dtype),
                                         .x = ISA(row_of)(x, i, d, dtype),
                                         .more = ISA(row_of)(more, i, d, dtype),
                                         .dx = ISA(row_of)(dx, i, d, dtype),
                                         .mean = vf_set1(stats[2 * i]),
                                         .by = vf_set1(stats[2 * i + 1]) };
        vf  sums[2] = { vf_zero(), vf_zero() };
        int c = 0;

        for (; c + VF_LEN <= d; c += VF_LEN)
            ISA(norm_back_sums)(&r, c, sums, how, dgain, dbias, 0, dtype);
        if (c < d) ISA(norm_back_sums)(&r, c, sums, how, dgain, dbias, d - c, dtype);
        if (!dx) continue;

        const vf means[2] = {
            how->rms ? vf_zero() : vf_set1(vf_sum(sums[0]) / (float)d),
            vf_set1(vf_sum(sums[1]) / (float)d),
        };
        for (c = 0; c + VF_LEN <= d; c += VF_LEN)
            ISA(norm_back_put)(&r, c, means, how, 0, dtype);
        if (c < d) ISA(norm_back_put)(&r, c, means, how, d - c, dtype);
    }
}

static void ISA(norm_back)(void *dx, const void *dy, const void *x, const void *more,
                           const float *stats, int dtype, int n, int d,
                           const struct norm *how, float *dgain, float *dbias)
{
    switch (dtype) {
    case FOCI_F32:
        ISA(norm_back_type)(dx, dy, x, more, stats, n, d, how, dgain, dbias, FOCI_F32);
        break;
    case FOCI_BF16:
        ISA(norm_back_type)(dx, dy, x, more, stats, n, d, how, dgain, dbias, FOCI_BF16);
        break;
    default:
        ISA(norm_back_type)(dx, dy, x, more, stats, n, d, how, dgain, dbias, FOCI_F16);
        break;
    }
}
