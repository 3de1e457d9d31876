/* avx512.c -- level "avx512": the bodies of kernels/common on 16 lanes. */
#include "simd/avx512.h"

#define ISA(name) name##_avx512
/* Four vectors of b by six rows: 24 sums, 4 + 1 operands of 32 registers. */
#define GEMM_VECS 4
#define GEMM_MOST 12
#include "kernels/common/table.c"

#include "kernels/common/decode_halves.c"

/* Rows of queries, HALVES_WIDTH columns at a time, of which even and odd ones stand apart. */
static void dots_of_bf16(float *s, const float *q, int64_t ldq, int rows,
                         const uint16_t *k, int64_t ldk, int n, int d)
{
    const int          all = rows == 1 ? 1 : rows <= 4 ? 4 : HALVES_ROWS;
    _Alignas(64) float halves[HALVES_ROWS * HALVES_WIDTH];

    for (int c0 = 0; c0 < d; c0 += HALVES_WIDTH) {
        const int wide = d - c0 < HALVES_WIDTH ? d - c0 : HALVES_WIDTH;

        for (int r = 0; r < all; r++)
            for (int c = 0; c < wide; c += 2 * VF_LEN) {
                const float *const at = q + r * ldq + c0 + c;
                float *const       to = halves + r * HALVES_WIDTH + c;
                const vf           a = vf_loadu(at);
                const vf b = wide - c > VF_LEN ? vf_loadu(at + VF_LEN) : vf_zero();

                vf_store(to, vf_unzip(a, b, 0));
                vf_store(to + VF_LEN, vf_unzip(a, b, 1));
            }
        halves_dots(s, halves, rows, k + c0, ldk, n, wide, c0 > 0);
    }
}

static void dots_any(float *s, const float *q, int64_t ldq, int rows, const void *k,
                     int64_t ldk, int dtype, int n, int d)
{
    if (dtype == FOCI_BF16)
        dots_of_bf16(s, q, ldq, rows, k, ldk, n, d);
    else
        dots_f32_avx512(s, q, ldq, rows, k, ldk, dtype, n, d);
}

static void sums_any(float *o, int64_t ldo, const float *w, int rows, const void *v,
                     int64_t ldv, int dtype, int n, int d)
{
    if (dtype == FOCI_BF16)
        halves_sums(o, ldo, w, rows, v, ldv, n, d);
    else
        sums_f32_avx512(o, ldo, w, rows, v, ldv, dtype, n, d);
}

void kernels_avx512(struct kernels *k)
{
    fill_avx512(k);
    k->dots_f32 = dots_any;
    k->sums_f32 = sums_any;
}
