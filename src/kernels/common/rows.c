/* rows.c -- load and store rows of the caller's tensors as tiles of floats. */

/* One row of each, dtype constant. */
INLINE void ISA(load_row)(float *out, int64_t ld_out, const char *in, int d,
                          const int dtype)
{
    const int bytes = dtype == FOCI_F32 ? 4 : 2;
    int64_t   c = 0;

    for (; c + VF_LEN <= d; c += VF_LEN)
        vf_storeu(out + c, vf_from(in + c * bytes, dtype));
    for (; c + VF_LEN <= ld_out; c += VF_LEN) {
        const vf x = c < d ? vf_from_n(in + c * bytes, dtype, (int)(d - c)) : vf_zero();
        vf_storeu(out + c, x);
    }
    if (c == ld_out) return;

    const vf x = c < d ? vf_from_n(in + c * bytes, dtype, (int)(d - c)) : vf_zero();
    vf_to_n(out + c, FOCI_F32, x, (int)(ld_out - c));
}

static void ISA(load_rows)(float *out, int64_t ld_out, const void *in, int64_t ld_in,
                           int dtype, int n, int d)
{
    const char   *row = in;
    const int64_t step = ld_in * (dtype == FOCI_F32 ? 4 : 2);

    for (int i = 0; i < n; i++, row += step, out += ld_out)
        switch (dtype) {
        case FOCI_F32: ISA(load_row)(out, ld_out, row, d, FOCI_F32); break;
        case FOCI_BF16: ISA(load_row)(out, ld_out, row, d, FOCI_BF16); break;
        default: ISA(load_row)(out, ld_out, row, d, FOCI_F16); break;
        }
}

/* A line of the cache at a time, wherever it begins. */
static void ISA(load_rows_prefetch)(float *out, int64_t ld_out, const void *in,
                                    int64_t ld_in, int dtype, int n, int d, int ahead)
{
    const int     size = dtype == FOCI_F32 ? 4 : 2;
    const int64_t step = ld_in * size;
    const char   *row = in;

    for (int i = 0; i < n; i++, row += step, out += ld_out) {
        prefetch_bytes(row, step * ahead, d * size);
        ISA(load_rows)(out, ld_out, row, ld_in, dtype, 1, d);
    }
}

INLINE void ISA(store_row)(char *out, const float *in, float scale, int d,
                           const int dtype)
{
    const int bytes = dtype == FOCI_F32 ? 4 : 2;
    const vf  by = vf_set1(scale);
    int       c = 0;

    for (; c + VF_LEN <= d; c += VF_LEN)
        vf_to(out + c * bytes, dtype, vf_mul(vf_loadu(in + c), by));
    if (c < d) {
        const vf x = vf_from_n(in + c, FOCI_F32, d - c);
        vf_to_n(out + c * bytes, dtype, vf_mul(x, by), d - c);
    }
}

static void ISA(store_rows)(void *out, int64_t ld_out, int dtype, const float *in,
                            int64_t ld_in, float scale, int n, int d)
{
    char         *row = out;
    const int64_t step = ld_out * (dtype == FOCI_F32 ? 4 : 2);

    for (int i = 0; i < n; i++, row += step, in += ld_in)
        switch (dtype) {
        case FOCI_F32: ISA(store_row)(row, in, scale, d, FOCI_F32); break;
        case FOCI_BF16: ISA(store_row)(row, in, scale, d, FOCI_BF16); break;
        default: ISA(store_row)(row, in, scale, d, FOCI_F16); break;
        }
}

static void ISA(store_rows_by)(void *out, int64_t ld_out, int dtype, const float *in,
                               int64_t ld_in, const float *factor, int n, int d)
{
    char         *row = out;
    const int64_t step = ld_out * (dtype == FOCI_F32 ? 4 : 2);

    for (int i = 0; i < n; i++, row += step, in += ld_in)
        ISA(store_rows)(row, ld_out, dtype, in, ld_in, factor[i], 1, d);
}

/* Whether rows of d elements are whole vectors on their boundaries. */
INLINE int ISA(on_boundaries)(const void *rows, int64_t ld, int dtype, int d)
{
    const int whole = dtype == FOCI_F32 ? VF_LEN : 2 * VF_LEN;

    return (uintptr_t)rows % sizeof(vf) == 0 && ld % whole == 0 && d % whole == 0;
}

INLINE void ISA(stream_row)(char *out, const float *in, int d, const int dtype)
{
    if (dtype == FOCI_F32) {
        for (int c = 0; c < d; c += VF_LEN)
            vf_stream((float *)(void *)out + c, vf_loadu(in + c));
        return;
    }
    for (int c = 0; c < d; c += 2 * VF_LEN)
        vf_stream_16(out + c * 2, dtype, vf_loadu(in + c), vf_loadu(in + c + VF_LEN));
}

static void ISA(stream_rows)(void *out, int64_t ld_out, int dtype, const float *in,
                             int64_t ld_in, int n, int d)
{
    char         *row = out;
    const int64_t step = ld_out * (dtype == FOCI_F32 ? 4 : 2);

    if (!ISA(on_boundaries)(out, ld_out, dtype, d)) {
        ISA(store_rows)(out, ld_out, dtype, in, ld_in, 1.0f, n, d);
        return;
    }
    for (int i = 0; i < n; i++, row += step, in += ld_in) {
        if (ld_in > d) prefetch_row(in, ld_in, n, d); /* others are in a cache */
        switch (dtype) {
        case FOCI_F32: ISA(stream_row)(row, in, d, FOCI_F32); break;
        case FOCI_BF16: ISA(stream_row)(row, in, d, FOCI_BF16); break;
        default: ISA(stream_row)(row, in, d, FOCI_F16); break;
        }
    }
}

static void ISA(copy_rows)(void *out, int64_t to, const void *in, int64_t from, int n,
                           int bytes)
{
    enum { WHOLE = VF_LEN * 4 };
    const bool far =
        (uintptr_t)out % WHOLE == 0 && to % WHOLE == 0 && bytes % WHOLE == 0;
    const char *row = in;
    char       *o = out;

    for (int i = 0; i < n; i++, o += to, row += from) {
        if (!far) {
            memcpy(o, row, (size_t)bytes);
            continue;
        }
        prefetch_bytes(row, from * n, bytes);
        for (int c = 0; c < bytes; c += WHOLE)
            vf_stream((float *)(void *)(o + c),
                      vf_loadu((const float *)(const void *)(row + c)));
    }
}

/* Lanes i0 to i0 + rows of columns c0 to c0 + width, both at most VF_LEN, as rows. */
INLINE void ISA(store_square)(char *out, int64_t step, const float *in, vf factor,
                              int rows, int width, const int dtype)
{
    vf x[VF_LEN];

    UNROLL(16)
    for (int c = 0; c < VF_LEN; c++)
        x[c] = c < width ? vf_mul(vf_load(in + c * LANES), factor) : vf_zero();
    vf_transpose(x);
    if (rows == VF_LEN && width == VF_LEN) {
        UNROLL(16)
        for (int i = 0; i < VF_LEN; i++)
            vf_to(out + i * step, dtype, x[i]);
        return;
    }

    float part[VF_LEN][VF_LEN];
    UNROLL(16)
    for (int i = 0; i < VF_LEN; i++)
        vf_storeu(part[i], x[i]);
    for (int i = 0; i < rows; i++)
        if (width == VF_LEN)
            vf_to(out + i * step, dtype, vf_loadu(part[i]));
        else
            vf_to_n(out + i * step, dtype, vf_loadu(part[i]), width);
}

INLINE void ISA(store_squares)(char *out, int64_t step, const float *in,
                               const float *factor, int n, int d, const int dtype)
{
    const int bytes = dtype == FOCI_F32 ? 4 : 2;

    for (int i = 0; i < n; i += VF_LEN) {
        const vf  by = vf_load(factor + i);
        const int rows = n - i < VF_LEN ? n - i : VF_LEN;

        for (int c = 0; c < d; c += VF_LEN) {
            const float *const from = in + c * LANES + i;
            char *const        to = out + i * step + c * bytes;
            const int          cols = d - c < VF_LEN ? d - c : VF_LEN;
            ISA(store_square)(to, step, from, by, rows, cols, dtype);
        }
    }
}

/* A whole square as bf16 with two columns in a lane, so that it holds twice as many. */
INLINE void ISA(store_pairs)(char *out, int64_t step, const float *in, vf factor)
{
    vf x[VF_LEN];

    UNROLL(16)
    for (int c = 0; c < VF_LEN; c++) {
        const float *const p = in + 2 * c * LANES;
        x[c] = vf_pair_bf16(vf_mul(vf_load(p), factor),
                            vf_mul(vf_load(p + LANES), factor));
    }
    vf_transpose(x);
    UNROLL(16)
    for (int i = 0; i < VF_LEN; i++)
        vf_to(out + i * step, FOCI_F32, x[i]);
}

/* Squares are stored in pairs; the remaining columns and rows one column to a lane. */
INLINE void ISA(store_bf16)(char *out, int64_t step, const float *in,
                            const float *factor, int n, int d)
{
    const int rows = n - n % VF_LEN, cols = d - d % (2 * VF_LEN);

    for (int i = 0; i < rows; i += VF_LEN) {
        const vf by = vf_load(factor + i);
        for (int c = 0; c < cols; c += 2 * VF_LEN) {
            char *const to = out + i * step + c * 2;
            ISA(store_pairs)(to, step, in + c * LANES + i, by);
        }
    }
    char *const right = out + cols * 2, *const below = out + rows * step;
    const float *const rest = in + cols * LANES;
    ISA(store_squares)(right, step, rest, factor, rows, d - cols, FOCI_BF16);
    factor += rows;
    ISA(store_squares)(below, step, in + rows, factor, n - rows, d, FOCI_BF16);
}

static void ISA(store_cols)(void *out, int64_t ld_out, int dtype, const float *in,
                            const float *factor, int n, int d)
{
    switch (dtype) {
    case FOCI_F32:
        ISA(store_squares)(out, 4 * ld_out, in, factor, n, d, FOCI_F32);
        break;
    case FOCI_BF16: ISA(store_bf16)(out, 2 * ld_out, in, factor, n, d); break;
    default: ISA(store_squares)(out, 2 * ld_out, in, factor, n, d, FOCI_F16); break;
    }
}

/* Squares of the tile, transposed.  Padding makes d a multiple of 16 in the tile,
 * though not in the result. */
static void ISA(pack_cols_f32)(float *out, const float *in, int64_t ld, int n, int d)
{
    for (int i = 0; i < LANES; i += VF_LEN)
        for (int c = 0; c < d; c += VF_LEN) {
            const int width = d - c < VF_LEN ? d - c : VF_LEN;
            vf        x[VF_LEN];

            UNROLL(16)
            for (int r = 0; r < VF_LEN; r++)
                x[r] = i + r < n ? vf_load(in + (i + r) * ld + c) : vf_zero();
            vf_transpose(x);
            UNROLL(16)
            for (int r = 0; r < VF_LEN; r++)
                if (r < width) vf_store(out + (c + r) * LANES + i, x[r]);
        }
}

static void ISA(shrink)(float *o, int rows, const float *factor)
{
    enum { VECS = LANES / VF_LEN };
    vf by[VECS];

    UNROLL(8)
    for (int v = 0; v < VECS; v++)
        by[v] = vf_load(factor + v * VF_LEN);
    for (int c = 0; c < rows; c++, o += LANES) {
        UNROLL(8)
        for (int v = 0; v < VECS; v++)
            vf_store(o + v * VF_LEN, vf_mul(vf_load(o + v * VF_LEN), by[v]));
    }
}

static void ISA(row_dot)(float *out, const float *a, const float *b, int64_t ld, int n,
                         int d)
{
    for (int i = 0; i < n; i++, a += ld, b += ld) {
        vf  sum = vf_zero();
        int c = 0;

        for (; c + VF_LEN <= d; c += VF_LEN)
            sum = vf_fma(vf_loadu(a + c), vf_loadu(b + c), sum);
        if (c < d)
            sum = vf_fma(vf_from_n(a + c, FOCI_F32, d - c),
                         vf_from_n(b + c, FOCI_F32, d - c), sum);
        out[i] = vf_sum(sum);
    }
}
