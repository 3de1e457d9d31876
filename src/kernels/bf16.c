/* bf16.c -- level "avx512bf16": bf16 products by AVX512-BF16, and the packing of their
 * operands. */
#include <string.h>

#include "foci/mechanism.h"
#include "kernels/kernels.h"
#include "simd/avx512bf16.h"

#include "simd/act.h"

#define ISA(name) name##_bf16

/* The same block as for floats (avx512.c). */
typedef vw      gemm_vec;
INLINE gemm_vec gemm_row(const uint32_t *p) { return vw_load(p); }
INLINE gemm_vec gemm_all(const uint32_t *p) { return vw_set1(*p); }
INLINE vf       gemm_mac(gemm_vec a, gemm_vec b, vf c) { return vw_dot(a, b, c); }
#define GEMM_ELEM uint32_t
#define GEMM_VECS 4
#define GEMM_MOST 12
#include "kernels/common/gemm.c"

#include "kernels/common/lazy.c"
#include "kernels/common/slope.c"

INLINE vf roll_pairs(vf low, vf high) { return (vf)vw_pair(low, high); }
#include "kernels/common/roll.c"

/* Rows of activations, rounded by one instruction. */
#define VF_PUT   vw_to
#define VF_PUT_N vw_to_n
#include "kernels/common/row.c"

#include "kernels/common/epilogue.c"
#include "kernels/common/loss.c"
#include "kernels/common/norm.c"

static void gemm_pairs(float *c, int64_t ldc, const uint32_t *a, int64_t ra, int64_t ca,
                       const uint32_t *b, int64_t ldb, int m, int n, int k, int add)
{
    gemm_bf16(c, ldc, a, ra, ca, b, ldb, m, n, k, add);
}

/*
 * Packing
 */

/* Columns c to c + 32 of row i as pairs; rows from n and columns from ld are 0. */
INLINE vw row_pairs(const float *in, int64_t ld, int n, int i, int64_t c)
{
    const float *const p = in + i * ld + c;

    if (i >= n) return vw_set1(0);
    return vw_row(vf_load(p), c + 16 < ld ? vf_load(p + 16) : vf_zero());
}

static void pack_cols(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    for (int i = 0; i < LANES; i += 16)
        for (int c = 0; c < d; c += 32) {
            vf x[VF_LEN];

            UNROLL(16)
            for (int r = 0; r < 16; r++)
                x[r] = (vf)row_pairs(in, ld, n, i + r, c);
            vf_transpose(x);
            UNROLL(16)
            for (int t = 0; t < 16; t++)
                if (c + 2 * t < d) vw_store(out + (c / 2 + t) * LANES + i, (vw)x[t]);
        }
}

static void pack_rows(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    const int pairs = d / 2;

    for (int i = 0; i < LANES; i++, out += pairs)
        for (int t = 0; t < pairs; t += 16) {
            const vw x = row_pairs(in, ld, n, i, 2 * t);

            if (pairs - t >= 16)
                vw_storeu(out + t, x);
            else
                vw_store_n(out + t, x, pairs - t);
        }
}

/* Rows 2t and 2t+1 of `width` columns, rows of the result `width` apart. */
INLINE void pack_row_pairs(uint32_t *out, const float *in, int64_t ld, int n, int width)
{
    for (int i = 0; i < LANES; i += 2, in += 2 * ld, out += width)
        for (int c = 0; c < width; c += 16) {
            const vf low = i < n ? vf_load(in + c) : vf_zero();
            const vf high = i + 1 < n ? vf_load(in + ld + c) : vf_zero();

            if (width - c >= 16)
                vw_storeu(out + c, vw_pair(low, high));
            else
                vw_store_n(out + c, vw_pair(low, high), width - c);
        }
}

static void pack_pairs(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    (void)d;
    pack_row_pairs(out, in, ld, n, (int)ld);
}

static void pack_sum(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    pack_row_pairs(out, in, ld, n, d);
}

/*
 * The same from bf16 as they are stored
 */

/* Columns c to c + 32 of a row of d. */
INLINE vw stored_pairs(const uint16_t *row, int c, int d)
{
    if (d - c >= 32) return vw_stored(row + c);
    return c < d ? vw_stored_n(row + c, d - c) : vw_set1(0);
}

static void pack_cols_stored(uint32_t *out, const uint16_t *in, int64_t ld, int n,
                             int d, int wide)
{
    for (int i = 0; i < LANES; i += 16)
        for (int c = 0; c < wide; c += 32) {
            vf x[VF_LEN];

            UNROLL(16)
            for (int r = 0; r < 16; r++)
                x[r] =
                    i + r < n ? (vf)stored_pairs(in + (i + r) * ld, c, d) : vf_zero();
            vf_transpose(x);
            UNROLL(16)
            for (int t = 0; t < 16; t++)
                if (c + 2 * t < wide) vw_store(out + (c / 2 + t) * LANES + i, (vw)x[t]);
        }
}

static void pack_rows_stored(uint32_t *out, const uint16_t *in, int64_t ld, int n,
                             int d, int wide)
{
    const int pairs = wide / 2;

    for (int i = 0; i < LANES; i++, in += ld, out += pairs)
        for (int t = 0; t < pairs; t += 16) {
            const vw x = i < n ? stored_pairs(in, 2 * t, d) : vw_set1(0);

            if (pairs - t >= 16)
                vw_storeu(out + t, x);
            else
                vw_store_n(out + t, x, pairs - t);
        }
}

/* The first n of 16 pairs, none where n is below 1. */
INLINE void store_up_to(uint32_t *p, vw x, int n)
{
    if (n >= 16)
        vw_storeu(p, x);
    else if (n > 0)
        vw_store_n(p, x, n);
}

static void pack_sum_stored(uint32_t *out, const uint16_t *in, int64_t ld, int n, int d,
                            int wide)
{
    for (int i = 0; i < LANES; i += 2, in += 2 * ld, out += wide)
        for (int c = 0; c < wide; c += 32) {
            const vw low = i < n ? stored_pairs(in, c, d) : vw_set1(0);
            const vw high = i + 1 < n ? stored_pairs(in + ld, c, d) : vw_set1(0);

            store_up_to(out + c, vw_zip_low(low, high), wide - c);
            store_up_to(out + c + 16, vw_zip_high(low, high), wide - c - 16);
        }
}

/* Sixteen rows at a time; those that are not there are the last one again. */
static void squares(float *out, const uint16_t *in, int64_t ld, int n, int d)
{
    for (int i = 0; i < n; i += 16) {
        vf                 sum[16];
        _Alignas(64) float some[16];

        UNROLL(16)
        for (int r = 0; r < 16; r++) {
            const uint16_t *const row = in + (i + r < n ? i + r : n - 1) * ld;

            sum[r] = vf_zero();
            for (int c = 0; c < d; c += 32) {
                const vw x = stored_pairs(row, c, d);
                sum[r] = vw_dot(x, x, sum[r]);
            }
        }
        vf_store(some, vf_sums(sum));
        memcpy(out + i, some, (size_t)(n - i < 16 ? n - i : 16) * sizeof *out);
    }
}

/*
 * Weights
 */

enum { VECS = LANES / VF_LEN };

/* Weights of one vector of scores. */
INLINE vf weights(const float *s, vf by, vf base, const int scaled, const int kind)
{
    const vf x = vf_load(s);
    const vf t = scaled ? vf_mul(x, by) : x;

    if (kind == FOCI_WEIGH_RELU2) {
        const vf y = vf_max(vf_zero(), t);
        return vf_mul(y, y);
    }
    return vf_exp2_fast(vf_sub(t, base));
}

/* Pass 2: pairs of two keys, and sums by a dot product with ones, or with the pairs
 * themselves where squares are summed. */
INLINE void weigh_all(const float *s, uint32_t *p, int n, int k, const float *f,
                      const float *m, float *l, const int scaled, const int kind)
{
    const vw ones = vw_ones();
    vf       base[VECS], by[VECS], sum[VECS];

    UNROLL(4)
    for (int v = 0; v < VECS; v++) {
        base[v] = base_bf16(m + v * VF_LEN);
        by[v] = scaled ? vf_load(f + v * VF_LEN) : vf_zero();
        sum[v] = vf_load(l + v * VF_LEN);
    }
    for (int j = 0; j < n; j += 2, s += 2 * LANES, p += LANES) {
        const int last = j + 1 == n;

        UNROLL(4)
        for (int v = 0; v < VECS; v++) {
            const float *const x = s + v * VF_LEN;
            const vf           low = weights(x, by[v], base[v], scaled, kind);
            const vf           high =
                last ? vf_zero() : weights(x + LANES, by[v], base[v], scaled, kind);
            const vw w = vw_pair(low, high);

            vw_store(p + v * VF_LEN, w);
            if (kind != FOCI_WEIGH_RELU2)
                sum[v] = vw_dot(w, kind == FOCI_WEIGH_L2NORM ? w : ones, sum[v]);
        }
    }
    memset(p, 0, (size_t)(k - (n + 1) / 2) * LANES * sizeof *p);
    if (kind == FOCI_WEIGH_RELU2) return;
    UNROLL(4)
    for (int v = 0; v < VECS; v++)
        vf_store(l + v * VF_LEN, sum[v]);
}

INLINE void weigh_kind(const float *s, uint32_t *p, int n, int k, const float *f,
                       const float *m, float *l, const int kind)
{
    if (f)
        weigh_all(s, p, n, k, f, m, l, 1, kind);
    else
        weigh_all(s, p, n, k, f, m, l, 0, kind);
}

static int weigh(const float *s, uint32_t *p, int n, int k, const float *f, float *m,
                 float *l, float *shrink, int kind)
{
    int moved = 0;

    if (kind != FOCI_WEIGH_RELU2) moved = move_bf16(s, n, f, m, l, shrink, kind);
    switch (kind) {
    case FOCI_WEIGH_SOFTMAX: weigh_kind(s, p, n, k, f, m, l, FOCI_WEIGH_SOFTMAX); break;
    case FOCI_WEIGH_L2NORM: weigh_kind(s, p, n, k, f, m, l, FOCI_WEIGH_L2NORM); break;
    default: weigh_kind(s, p, n, k, f, m, l, FOCI_WEIGH_RELU2); break;
    }
    return moved;
}

/*
 * And back
 */

/* 32 lanes of one key: w and ds as rows of bf16; the result is ds. */
INLINE vw slope_row(const float *s, const float *dp, const struct slope r[2],
                    uint16_t *w, uint16_t *ds, const int kind, const int capped)
{
    vf       d0 = vf_load(dp), d1 = vf_load(dp + 16);
    const vf w0 = slope_bf16(vf_load(s), &d0, r[0], kind, capped, 1);
    const vf w1 = slope_bf16(vf_load(s + 16), &d1, r[1], kind, capped, 1);
    const vw d = vw_row(d0, d1);

    vw_store(w, vw_row(w0, w1));
    vw_store(ds, d);
    return d;
}

INLINE void grad_all(const float *s, const float *dp, int n, int k,
                     const struct grad_rows *rows, uint16_t *w, uint16_t *ds,
                     uint32_t *p, const int kind, const int capped)
{
    for (int i = 0; i < LANES; i += 32) {
        const struct slope r[2] = { slope_load_bf16(rows, i),
                                    slope_load_bf16(rows, i + 16) };

        for (int j = 0; j < n; j += 2) {
            const int x = j * LANES + i, y = x + LANES;
            const vw  low = slope_row(s + x, dp + x, r, w + x, ds + x, kind, capped);
            vw        high = vw_set1(0);

            if (j + 1 < n)
                high = slope_row(s + y, dp + y, r, w + y, ds + y, kind, capped);
            vw_store(p + j / 2 * LANES + i, vw_zip_low(low, high));
            vw_store(p + j / 2 * LANES + i + 16, vw_zip_high(low, high));
        }
    }

    const int    done = (n + 1) / 2;
    const size_t left = (size_t)(2 * k - n) * LANES;
    memset(w + n * LANES, 0, left * sizeof *w);
    memset(ds + n * LANES, 0, left * sizeof *ds);
    memset(p + done * LANES, 0, (size_t)(k - done) * LANES * sizeof *p);
}

INLINE void grad_kind(const float *s, const float *dp, int n, int k,
                      const struct grad_rows *r, uint16_t *w, uint16_t *ds, uint32_t *p,
                      const int kind)
{
    if (r->c != 0.0f)
        grad_all(s, dp, n, k, r, w, ds, p, kind, 1);
    else
        grad_all(s, dp, n, k, r, w, ds, p, kind, 0);
}

static void grad(const float *s, const float *dp, int n, int k,
                 const struct grad_rows *r, uint16_t *w, uint16_t *ds, uint32_t *p)
{
    switch (r->kind) {
    case FOCI_WEIGH_SOFTMAX:
        grad_kind(s, dp, n, k, r, w, ds, p, FOCI_WEIGH_SOFTMAX);
        break;
    case FOCI_WEIGH_L2NORM:
        grad_kind(s, dp, n, k, r, w, ds, p, FOCI_WEIGH_L2NORM);
        break;
    default: grad_kind(s, dp, n, k, r, w, ds, p, FOCI_WEIGH_RELU2); break;
    }
}

/*
 * Distances
 */

/* As in common/band.c, on two vectors' worth of lanes at a time, the second taken from
 * rows that are as many further on. */
struct delay_pairs {
    vw one[1], two[2], four[4], eight[8];
};

INLINE vw delayed_pairs(struct delay_pairs *d, vw x, const int u)
{
    const vw a = vw_select(0xaaaaaaaa, x, d->one[0]);
    const vw b = vw_select(0xcccccccc, a, d->two[u % 2]);
    const vw c = vw_select(0xf0f0f0f0, b, d->four[u % 4]);
    const vw e = vw_select(0xff00ff00, c, d->eight[u]);

    d->one[0] = x;
    d->two[u % 2] = a;
    d->four[u % 4] = b;
    d->eight[u] = c;
    return e;
}

/* One row more; what comes out goes to row `to`, if there is one.  Rows come from the
 * last to the first, so that a pair is complete with its even one. */
INLINE void unskew_row(struct delay_pairs *d, const uint16_t *in, uint16_t *rows,
                       uint32_t *pairs, int to, vw *odd, const int u)
{
    const vw out = delayed_pairs(d, vw_halves(in, in + VF_LEN * LANES + VF_LEN), u);

    if (to >= LANES) return;
    vw_store(rows + to * LANES, out);
    if (u % 2 == 1) {
        *odd = out;
        return;
    }
    vw_store(pairs + to / 2 * LANES, vw_zip_low(out, *odd));
    vw_store(pairs + to / 2 * LANES + VF_LEN, vw_zip_high(out, *odd));
}

static void unskew(uint16_t *rows, uint32_t *pairs, const uint16_t *ds)
{
    for (int i = 0; i < LANES; i += 32) {
        const uint16_t    *in = ds + (i + 1) * LANES + i;
        int                to = LANES + VF_LEN - 2;
        struct delay_pairs d;
        vw                 odd = vw_set1(0);

        d.one[0] = odd;
        UNROLL(8)
        for (int r = 0; r < 8; r++)
            d.two[r % 2] = d.four[r % 4] = d.eight[r] = odd;
        for (; to >= 0; to -= 8, in += 8 * LANES) {
            UNROLL(8)
            for (int u = 0; u < 8; u++)
                if (u < 7 || to >= 8)
                    unskew_row(&d, in + u * LANES, rows + i, pairs + i, to - u, &odd, u);
        }
    }
}

/*
 * Dropping weights
 */

static void drop_rows(uint16_t *w, int n, const uint64_t *dropout_mask)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i += 32)
            vw_store(
                w + j * LANES + i,
                vw_stored_where(w + j * LANES + i, (uint32_t)(dropout_mask[j] >> i)));
}

static void drop_pairs(uint32_t *w, int n, const uint64_t *dropout_mask)
{
    for (int j = 0; j < n; j += 2, w += LANES) {
        const uint64_t high = j + 1 < n ? dropout_mask[j + 1] : UINT64_MAX;

        for (int i = 0; i < LANES; i += 16)
            vw_store(w + i, vw_halves_where(vw_load(w + i), vm_bits(dropout_mask[j], i),
                                            vm_bits(high, i)));
    }
}

/*
 * Decoding: as common/decode.c, on pairs
 */

/* Columns c to c + 32 of key j; keys that are not there are the last one again.  Whole: all
 * keys and columns are there. */
INLINE vw key_pairs(const uint16_t *k, int j, int keys, int64_t ldk, int c, int d,
                    const int whole, const int prefetch)
{
    const uint16_t *const p = k + (whole || j < keys ? j : keys - 1) * ldk + c;

    if (prefetch) PREFETCH_FAR(p);
    return !whole && d - c < 32 ? vw_stored_n(p, d - c) : vw_stored(p);
}

/* R rows against K = 16 / R keys: sixteen sums, reduced together.  One row or two go
 * through the keys in the order in which they lie. */
INLINE void dots_group(float *s, const uint32_t *q, int64_t ldq, const uint16_t *k,
                       int64_t ldk, int keys, int d, const int R, const int whole)
{
    const int          K = 16 / R;
    vf                 sum[16];
    _Alignas(64) float out[16];

    UNROLL(16)
    for (int i = 0; i < 16; i++)
        sum[i] = vf_zero();
    if (R <= 2) {
        UNROLL(16)
        for (int j = 0; j < K; j++)
            for (int c = 0; c < d; c += 32) {
                const vw y = key_pairs(k, j, keys, ldk, c, d, whole, R > 1);
                UNROLL(2)
                for (int r = 0; r < R; r++) {
                    const vw x = vw_load(q + r * ldq + c / 2);
                    sum[r * K + j] = vw_dot(y, x, sum[r * K + j]);
                }
            }
    } else {
        for (int c = 0; c < d; c += 32) {
            vw x[8];

            UNROLL(8)
            for (int r = 0; r < R; r++)
                x[r] = vw_load(q + r * ldq + c / 2);
            UNROLL(16)
            for (int j = 0; j < K; j++) {
                const vw y = key_pairs(k, j, keys, ldk, c, d, whole, 1);
                UNROLL(8)
                for (int r = 0; r < R; r++)
                    sum[r * K + j] = vw_dot(y, x[r], sum[r * K + j]);
            }
        }
    }
    vf_store(out, vf_sums(sum));
    for (int r = 0; r < R; r++)
        memcpy(s + r * LANES, out + r * K, (size_t)(keys < K ? keys : K) * sizeof *s);
}

INLINE void dots_rows(float *s, const uint32_t *q, int64_t ldq, const uint16_t *k,
                      int64_t ldk, int n, int d, const int R)
{
    const int K = 16 / R;

    for (int j = 0; j < n; j += K, k += K * ldk)
        if (n - j >= K && d % 32 == 0)
            dots_group(s + j, q, ldq, k, ldk, K, d, R, 1);
        else
            dots_group(s + j, q, ldq, k, ldk, n - j, d, R, 0);
}

/* Up to four rows meet so many keys two at a time, so that what they read is near to the
 * order in which it lies; the last two find it in the first-level cache.  They prefetch once
 * more all the same: not every prefetch is executed, and steps are slower without. */
enum { KEYS = 16 };

INLINE void dots_wide(float *s, const uint32_t *q, int64_t ldq, int rows,
                      const uint16_t *k, int64_t ldk, int n, int d)
{
    if (rows == 1) {
        dots_rows(s, q, ldq, k, ldk, n, d, 1);
    } else if (rows > 4) {
        dots_rows(s, q, ldq, k, ldk, n, d, 8);
    } else {
        for (int j = 0; j < n; j += KEYS, s += KEYS, k += KEYS * ldk) {
            const int keys = n - j < KEYS ? n - j : KEYS;
            dots_rows(s, q, ldq, k, ldk, keys, d, 2);
            dots_rows(s + 2 * LANES, q + 2 * ldq, ldq, k, ldk, keys, d, 2);
        }
    }
}

/* Widths that are common are constants: there is no time for counting columns. */
static void dots(float *s, const uint32_t *q, int64_t ldq, int rows, const uint16_t *k,
                 int64_t ldk, int n, int d)
{
    if (d == 128 && ldq == 64)
        dots_wide(s, q, 64, rows, k, ldk, n, 128);
    else if (d == 64 && ldq == 32)
        dots_wide(s, q, 32, rows, k, ldk, n, 64);
    else
        dots_wide(s, q, ldq, rows, k, ldk, n, d);
}

/* 32 columns of a row, `some` of them there (0: all). */
INLINE vw value_pairs(const uint16_t *v, int some, const int prefetch)
{
    if (prefetch) PREFETCH_FAR(v);
    return some ? vw_stored_n(v, some) : vw_stored(v);
}

/* C times 32 columns of R rows.  Two keys are one pair. */
INLINE void sums_cols(float *o, int64_t ldo, const uint32_t *w, const uint16_t *v,
                      int64_t ldv, int n, int some, const int R, const int C)
{
    vf low[8], high[8]; /* [R][C] */

    UNROLL(8)
    for (int i = 0; i < R * C; i++)
        low[i] = high[i] = vf_zero();
    for (int t = 0; t < (n + 1) / 2; t++, v += 2 * ldv) {
        UNROLL(4)
        for (int c = 0; c < C; c++) {
            const vw a = value_pairs(v + c * 32, some, R > 1);
            const vw b = 2 * t + 1 == n ? vw_set1(0)
                                        : value_pairs(v + ldv + c * 32, some, R > 1);
            const vw x = vw_mix_low(a, b), y = vw_mix_high(a, b);

            UNROLL(8)
            for (int r = 0; r < R; r++) {
                const vw by = vw_set1(w[r * LANES / 2 + t]);
                low[r * C + c] = vw_dot(x, by, low[r * C + c]);
                high[r * C + c] = vw_dot(y, by, high[r * C + c]);
            }
        }
    }
    UNROLL(8)
    for (int i = 0; i < R * C; i++) {
        float *const to = o + i / C * ldo + i % C * 32;
        vf_storeu(to, vf_add(vf_loadu(to), vf_unmix(low[i], high[i], 0)));
        vf_storeu(to + 16, vf_add(vf_loadu(to + 16), vf_unmix(low[i], high[i], 1)));
    }
}

/* C chunks of columns at a time, what is left, one. */
INLINE void sums_rows(float *o, int64_t ldo, const uint32_t *w, const uint16_t *v,
                      int64_t ldv, int n, int d, const int R, const int C)
{
    int c = 0;

    for (; n == KEYS && c + 32 * C <= d; c += 32 * C)
        sums_cols(o + c, ldo, w, v + c, ldv, KEYS, 0, R, C);
    for (; c < d; c += 32)
        sums_cols(o + c, ldo, w, v + c, ldv, n, d - c < 32 ? d - c : 0, R, 1);
}

/* Some keys at a time, as in the products. */
INLINE void sums_wide(float *o, int64_t ldo, const float *w, int rows,
                      const uint16_t *v, int64_t ldv, int n, int d, const int C)
{
    _Alignas(64) uint32_t pairs[8 * LANES / 2];
    const uint32_t       *p = pairs;
    const int             all = rows == 1 ? 1 : rows <= 4 ? 4 : 8;

    for (int i = 0; i < all * LANES; i += 32)
        vw_store(pairs + i / 2, vw_row(vf_load(w + i), vf_load(w + i + 16)));
    for (int j = 0; j < n; j += KEYS, p += KEYS / 2, v += KEYS * ldv) {
        const int keys = n - j < KEYS ? n - j : KEYS;

        if (rows == 1) {
            sums_rows(o, ldo, p, v, ldv, keys, d, 1, C);
        } else if (rows > 4) {
            sums_rows(o, ldo, p, v, ldv, keys, d, 8, 1);
        } else {
            sums_rows(o, ldo, p, v, ldv, keys, d, 2, C);
            sums_rows(o + 2 * ldo, ldo, p + LANES, v, ldv, keys, d, 2, C);
        }
    }
}

static void sums(float *o, int64_t ldo, const float *w, int rows, const uint16_t *v,
                 int64_t ldv, int n, int d)
{
    if (d == 128 && ldv == 128 && ldo == 128)
        sums_wide(o, 128, w, rows, v, 128, n, 128, 4);
    else if (d == 64 && ldv == 64 && ldo == 64)
        sums_wide(o, 64, w, rows, v, 64, n, 64, 2);
    else
        sums_wide(o, ldo, w, rows, v, ldv, n, d, 4);
}

/*
 * Linear attention
 */

/* One vector of weights of key j for lanes i to i + 16, 0 from key n on. */
INLINE vf near_one(const float *a, int n, const float *by, int j, int i, const int both)
{
    if (j >= n) return vf_zero();
    const vf x = vf_load(a + j * LANES + i);
    const vf w = by ? vf_mul(x, vf_load(by + j * LANES + i)) : x;

    return both ? w
                : vf_select(vm_bits(j < LANES ? UINT64_MAX << j : 0, i), w, vf_zero());
}

INLINE void near_all(const float *a, uint32_t *p, int n, int k, const float *by,
                     const int both, float *sum)
{
    for (int i = 0; i < LANES; i += VF_LEN) {
        vf total = vf_load(sum + i);

        for (int t = 0; t < k; t++) {
            const vf low = near_one(a, n, by, 2 * t, i, both);
            const vf high = near_one(a, n, by, 2 * t + 1, i, both);

            vw_store(p + t * LANES + i, vw_pair(low, high));
            total = vf_add(vf_add(total, low), high);
        }
        vf_store(sum + i, total);
    }
}

static void near_pairs(const float *a, uint32_t *p, int n, int k, const float *by,
                       int both, float *sum)
{
    if (both)
        near_all(a, p, n, k, by, 1, sum);
    else
        near_all(a, p, n, k, by, 0, sum);
}

/*
 * The peak, as in common/peak.c
 */

static double peak(float *c, const uint32_t *a, const uint32_t *b, int64_t rounds)
{
    enum { SUMS = 16 };
    const vw x[2] = { vw_load(a), vw_load(a + VF_LEN) };
    const vw y[2] = { vw_load(b), vw_load(b + VF_LEN) };
    vf       sum[SUMS];

    UNROLL(16)
    for (int i = 0; i < SUMS; i++)
        sum[i] = vf_load(c + i * VF_LEN);
    for (int64_t r = 0; r < rounds; r++) {
        UNROLL(16)
        for (int i = 0; i < SUMS; i++)
            sum[i] = vw_dot(x[i % 2], y[i / 2 % 2], sum[i]);
    }
    UNROLL(16)
    for (int i = 0; i < SUMS; i++)
        vf_store(c + i * VF_LEN, sum[i]);
    return 4.0 * SUMS * VF_LEN * (double)rounds;
}

void kernels_bf16(struct kernels *k)
{
    k->gemm_bf16 = gemm_pairs;
    k->peak_bf16 = peak;
    k->pack_cols_bf16 = pack_cols;
    k->pack_rows_bf16 = pack_rows;
    k->pack_pairs_bf16 = pack_pairs;
    k->pack_sum_bf16 = pack_sum;
    k->pack_cols_from_bf16 = pack_cols_stored;
    k->pack_rows_from_bf16 = pack_rows_stored;
    k->pack_sum_from_bf16 = pack_sum_stored;
    k->squares_bf16 = squares;
    k->weigh_bf16 = weigh;
    k->grad_bf16 = grad;
    k->unskew_bf16 = unskew;
    k->drop_rows_bf16 = drop_rows;
    k->drop_pairs_bf16 = drop_pairs;
    k->dots_bf16 = dots;
    k->sums_bf16 = sums;
    k->near_bf16 = near_pairs;
    k->roll = roll_bf16;
    k->gemm_epilogue = gemm_epilogue_bf16;
    k->gemm_epilogue_back = gemm_epilogue_back_bf16;
    k->loss_row = loss_row_bf16;
    k->norm_rows = norm_rows_bf16;
    k->norm_back = norm_back_bf16;
    k->has_bf16 = true;
    k->few_bf16 = 8;
}
