/* roll.c -- convolutions with few weights that all rows share: each row is read once.
 *
 * A row is added to every sum that it is part of, one for each weight; the sums rotate
 * through registers and the one that a row completes is stored.  Bound by the products, so
 * bf16 rows are not converted through memory: even and odd elements are separated by a
 * shift and a mask.
 *
 * The including file defines
 *     vf roll_pairs(vf low, vf high)    lanes of both as bf16, interleaved
 */

/* Weights that there is a form for; those that registers hold, with sums of two vectors each. */
enum {
    ROLL_MOST = 7,
    ROLL_WIDTH = VF_LEN == 16 ? ROLL_MOST : 3,
    ROLL_COLS = 2 * VF_LEN
};

/* Where sums go, and rows come from. */
struct ISA(roll) {
    char       *o;
    const char *v;
    int64_t     to, from; /* bytes from row to row */
    int         n, far;
};

INLINE void ISA(roll_get)(const char *p, int dtype, vf *x)
{
    if (dtype == FOCI_BF16) {
        vf_unpair_bf16(p, x, x + 1);
        return;
    }
    x[0] = vf_from(p, dtype);
    x[1] = vf_from(p + VF_LEN * (dtype == FOCI_F32 ? 4 : 2), dtype);
}

INLINE void ISA(roll_put)(char *p, int dtype, int far, const vf *x)
{
    float *const  at = (float *)(void *)p;
    const int64_t next = dtype == FOCI_F32 ? VF_LEN : VF_LEN / 2;

    if (dtype == FOCI_BF16 && far) {
        vf_stream(at, roll_pairs(x[0], x[1]));
    } else if (dtype == FOCI_BF16) {
        vf_storeu(at, roll_pairs(x[0], x[1]));
    } else if (far && dtype == FOCI_F32) {
        vf_stream(at, x[0]);
        vf_stream(at + next, x[1]);
    } else if (far) {
        vf_stream_16(at, dtype, x[0], x[1]);
    } else {
        vf_to(at, dtype, x[0]);
        vf_to(at + next, dtype, x[1]);
    }
}

/* All rows of two vectors, by W weights. */
INLINE void ISA(roll_rows)(const struct ISA(roll) * a, const float *w, const int W,
                           const int dtype)
{
    const int rows = a->n + W - 1, bytes = ROLL_COLS * (dtype == FOCI_F32 ? 4 : 2);
    vf        sum[ROLL_MOST][2], x[2];

    UNROLL(8)
    for (int t = 0; t < W; t++)
        sum[t][0] = sum[t][1] = vf_zero();
    for (int i = 0; i < rows; i += W) {
        UNROLL(8)
        for (int r = 0; r < W; r++) {
            const char *const row = a->v + (i + r) * a->from;

            if (i + r >= rows) return;
            prefetch_bytes(row, rows * a->from, bytes);
            ISA(roll_get)(row, dtype, x);
            sum[r][0] = sum[r][1] = vf_zero();
            UNROLL(8)
            for (int t = 0; t < W; t++) {
                vf *const s = sum[(r + W - t) % W];

                s[0] = vf_fma(vf_set1(w[t]), x[0], s[0]);
                s[1] = vf_fma(vf_set1(w[t]), x[1], s[1]);
            }
            if (i + r < W - 1) continue;
            char *const out = a->o + (i + r - W + 1) * a->to;
            ISA(roll_put)(out, dtype, a->far, sum[(r + 1) % W]);
        }
    }
}

INLINE void ISA(roll_of)(const struct ISA(roll) * a, const float *w, const int W,
                         int dtype)
{
    switch (dtype) {
    case FOCI_F32: ISA(roll_rows)(a, w, W, FOCI_F32); break;
    case FOCI_BF16: ISA(roll_rows)(a, w, W, FOCI_BF16); break;
    default: ISA(roll_rows)(a, w, W, FOCI_F16); break;
    }
}

static int ISA(roll)(void *o, int64_t ldo, const void *v, int64_t ldv, int dtype, int n,
                     int d, const float *w, int width, int far)
{
    const int size = dtype == FOCI_F32 ? 4 : 2, step = ROLL_COLS * size;
    struct ISA(roll) a = { o, v, ldo * size, ldv * size, n, far };
    int c = 0;

    a.far = far && ((uintptr_t)o | (uintptr_t)a.to) % sizeof(vf) == 0;
    if (width > ROLL_WIDTH) return 0;
    for (; c + ROLL_COLS <= d; c += ROLL_COLS, a.o += step, a.v += step)
        switch (width) {
        case 3: ISA(roll_of)(&a, w, 3, dtype); break;
        case 5: ISA(roll_of)(&a, w, 5, dtype); break;
        case 7: ISA(roll_of)(&a, w, 7, dtype); break;
        default: return 0;
        }
    return c;
}
