/* hadamard.c -- Walsh-Hadamard transforms of 16 rows at once, rows as lanes.
 *
 * H of n is H of radix r on neighbours, then H of r on elements r apart, and so on; the order
 * of these steps is free.  r is as large as the registers allow, so that 1024 elements go
 * through the cache three times.  Neighbours come first: the first two steps then stay in a
 * part that fits into the first-level cache, and elements far apart, which map to few of its
 * sets, are processed a few at a time.
 */

/* Elements in registers: half of those there are; and of a part. */
enum { HADAMARD_MOST = VF_LEN, HADAMARD_PART = 256 };

/* Elements whose number has the bit `half`, from those that do not. */
INLINE void ISA(hadamard_bit)(vf *x, const int r, const int half)
{
    UNROLL(16)
    for (int i = 0; i < r; i++)
        if (!(i & half)) {
            const vf a = x[i], b = x[i | half];
            x[i] = vf_add(a, b);
            x[i | half] = vf_sub(a, b);
        }
}

INLINE void ISA(hadamard_few)(vf *x, const int r)
{
    if (r > 8) ISA(hadamard_bit)(x, r, 8);
    if (r > 4) ISA(hadamard_bit)(x, r, 4);
    if (r > 2) ISA(hadamard_bit)(x, r, 2);
    if (r > 1) ISA(hadamard_bit)(x, r, 1);
}

/* Where the first step of a transform reads. */
struct ISA(hadamard_in) {
    const float   *in;
    const int32_t *from;
    const float   *factor;
    int            n, folds;
};

enum { HADAMARD_PLAIN, HADAMARD_FACTORS, HADAMARD_PLACES, HADAMARD_FOLDS };

INLINE vf ISA(hadamard_at)(const struct ISA(hadamard_in) * y, int t, const int form)
{
    if (form == HADAMARD_PLAIN) return vf_load(y->in + t * FEW_LANES);
    if (form == HADAMARD_FACTORS)
        return vf_mul(vf_set1(y->factor[t]), vf_load(y->in + t * FEW_LANES));

    vf sum = vf_mul(vf_set1(y->factor[t]), vf_load(y->in + y->from[t] * FEW_LANES));
    if (form == HADAMARD_FOLDS)
        for (int i = t + y->n; i < y->n * y->folds; i += y->n)
            sum = vf_fma(vf_set1(y->factor[i]), vf_load(y->in + y->from[i] * FEW_LANES),
                         sum);
    return sum;
}

/* r elements from t on, the first step. */
INLINE void ISA(hadamard_first)(float *out, const struct ISA(hadamard_in) * y, int t,
                                const int r, const int form)
{
    vf x[HADAMARD_MOST];

    UNROLL(16)
    for (int i = 0; i < r; i++)
        x[i] = ISA(hadamard_at)(y, t + i, form);
    ISA(hadamard_few)(x, r);
    UNROLL(16)
    for (int i = 0; i < r; i++)
        vf_store(out + (t + i) * FEW_LANES, x[i]);
}

/* r elements `size` apart, of all n. */
INLINE void ISA(hadamard_step)(float *x, int n, int size, const int r)
{
    for (int start = 0; start < n; start += size * r)
        for (int j = start; j < start + size; j++) {
            vf e[HADAMARD_MOST];

            UNROLL(16)
            for (int i = 0; i < r; i++)
                e[i] = vf_load(x + (j + i * size) * FEW_LANES);
            ISA(hadamard_few)(e, r);
            UNROLL(16)
            for (int i = 0; i < r; i++)
                vf_store(x + (j + i * size) * FEW_LANES, e[i]);
        }
}

/* From transforms of `size` elements to those of n. */
static void ISA(hadamard_steps)(float *x, int n, int size)
{
    for (int r; size < n; size *= r) {
        r = n / size < HADAMARD_MOST ? n / size : HADAMARD_MOST;
        switch (r) {
        case 2: ISA(hadamard_step)(x, n, size, 2); break;
        case 4: ISA(hadamard_step)(x, n, size, 4); break;
        case 8: ISA(hadamard_step)(x, n, size, 8); break;
        default: ISA(hadamard_step)(x, n, size, HADAMARD_MOST); break;
        }
    }
}

INLINE void ISA(hadamard_form)(float    *out, const struct ISA(hadamard_in) * y,
                               const int form)
{
    const int most = HADAMARD_MOST;
    const int part = y->n < HADAMARD_PART ? y->n : HADAMARD_PART;

    if (y->n < most) {
        for (int t = 0; t < y->n; t++)
            ISA(hadamard_first)(out, y, t, 1, form);
        ISA(hadamard_steps)(out, y->n, 1);
        return;
    }
    for (int start = 0; start < y->n; start += part) {
        for (int t = start; t < start + part; t += most)
            ISA(hadamard_first)(out, y, t, HADAMARD_MOST, form);
        ISA(hadamard_steps)(out + start * FEW_LANES, part, most);
    }
    ISA(hadamard_steps)(out, y->n, part);
}

static void ISA(hadamard)(float *out, const float *in, const int32_t *from,
                          const float *factor, int n, int folds)
{
    for (int lane = 0; lane < FEW_LANES; lane += VF_LEN) {
        const struct ISA(hadamard_in) y = { in + lane, from, factor, n, folds };
        float *const to = out + lane;

        if (folds > 1)
            ISA(hadamard_form)(to, &y, HADAMARD_FOLDS);
        else if (from)
            ISA(hadamard_form)(to, &y, HADAMARD_PLACES);
        else if (factor)
            ISA(hadamard_form)(to, &y, HADAMARD_FACTORS);
        else
            ISA(hadamard_form)(to, &y, HADAMARD_PLAIN);
    }
}

/*
 * Rows to lanes and back, by squares
 */

INLINE vf ISA(transpose_load_row)(const char *in, int i, int n, int width,
                                  const int dtype)
{
    if (i >= n) return vf_zero();
    return width == VF_LEN ? vf_from(in, dtype) : vf_from_n(in, dtype, width);
}

INLINE void ISA(transpose_load_squares)(float *out, const char *in, int64_t step, int n,
                                        int d, const int dtype)
{
    const int bytes = dtype == FOCI_F32 ? 4 : 2;

    for (int lane = 0; lane < FEW_LANES; lane += VF_LEN, in += VF_LEN * step)
        for (int c = 0; c < d; c += VF_LEN) {
            const int width = d - c < VF_LEN ? d - c : VF_LEN;
            vf        x[VF_LEN];

            UNROLL(16)
            for (int i = 0; i < VF_LEN; i++)
                x[i] = ISA(transpose_load_row)(in + i * step + c * bytes, lane + i, n,
                                               width, dtype);
            vf_transpose(x);
            UNROLL(16)
            for (int i = 0; i < VF_LEN; i++)
                if (i < width) vf_store(out + (c + i) * FEW_LANES + lane, x[i]);
        }
}

static void ISA(transpose_load)(float *out, const void *in, int64_t ld, int dtype,
                                int n, int d)
{
    switch (dtype) {
    case FOCI_F32: ISA(transpose_load_squares)(out, in, 4 * ld, n, d, FOCI_F32); break;
    case FOCI_BF16:
        ISA(transpose_load_squares)(out, in, 2 * ld, n, d, FOCI_BF16);
        break;
    default: ISA(transpose_load_squares)(out, in, 2 * ld, n, d, FOCI_F16); break;
    }
}

/* Columns c to c + width of in, at most VF_LEN, as rows. */
INLINE void ISA(transpose_square)(vf *x, const float *in, int width)
{
    UNROLL(16)
    for (int c = 0; c < VF_LEN; c++)
        x[c] = c < width ? vf_load(in + c * FEW_LANES) : vf_zero();
    vf_transpose(x);
}

INLINE void ISA(transpose_store_squares)(char *out, int64_t step, const float *in,
                                         int n, int d, const int dtype)
{
    const int bytes = dtype == FOCI_F32 ? 4 : 2;

    for (int lane = 0; lane < n; lane += VF_LEN, out += VF_LEN * step)
        for (int c = 0; c < d; c += VF_LEN) {
            const int width = d - c < VF_LEN ? d - c : VF_LEN;
            vf        x[VF_LEN];

            ISA(transpose_square)(x, in + c * FEW_LANES + lane, width);
            UNROLL(16)
            for (int i = 0; i < VF_LEN; i++) {
                char *const to = out + i * step + c * bytes;

                if (lane + i >= n) continue;
                if (width == VF_LEN)
                    vf_to(to, dtype, x[i]);
                else
                    vf_to_n(to, dtype, x[i], width);
            }
        }
}

static void ISA(transpose_store)(void *out, int64_t ld, int dtype, const float *in,
                                 int n, int d)
{
    switch (dtype) {
    case FOCI_F32: ISA(transpose_store_squares)(out, 4 * ld, in, n, d, FOCI_F32); break;
    case FOCI_BF16:
        ISA(transpose_store_squares)(out, 2 * ld, in, n, d, FOCI_BF16);
        break;
    default: ISA(transpose_store_squares)(out, 2 * ld, in, n, d, FOCI_F16); break;
    }
}

static void ISA(transpose_add)(float *out, int64_t ld, const float *in,
                               const float *factor, int n, int d)
{
    for (int lane = 0; lane < n; lane += VF_LEN, out += VF_LEN * ld)
        for (int c = 0; c < d; c += VF_LEN) {
            const int width = d - c < VF_LEN ? d - c : VF_LEN;
            const vf  by =
                factor ? vf_from_n(factor + c, FOCI_F32, width) : vf_set1(1.0f);
            vf x[VF_LEN];

            ISA(transpose_square)(x, in + c * FEW_LANES + lane, width);
            UNROLL(16)
            for (int i = 0; i < VF_LEN; i++) {
                float *const to = out + i * ld + c;

                if (lane + i >= n) continue;
                if (width == VF_LEN)
                    vf_storeu(to, vf_fma(by, x[i], vf_loadu(to)));
                else
                    vf_to_n(to, FOCI_F32,
                            vf_fma(by, x[i], vf_from_n(to, FOCI_F32, width)), width);
            }
        }
}

static void ISA(add_rows)(float *out, const float *in, const float *factor, int d)
{
    for (int c = 0; c < d; c++, out += FEW_LANES, in += FEW_LANES) {
        UNROLL(2)
        for (int lane = 0; lane < FEW_LANES; lane += VF_LEN)
            vf_store(out + lane, vf_fma(vf_set1(factor[c]), vf_load(in + lane),
                                        vf_load(out + lane)));
    }
}
