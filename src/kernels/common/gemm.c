/* gemm.c -- a small product, c[m][n] (+)= a b, on operands in cache.
 *
 * Elements of a are broadcast from memory, so that their strides do not matter;
 * rows of b are vectors of n.  A block of six rows or more and a few vectors of
 * c stays in registers for the whole sum.  Sums run upward in t for every element of
 * c, whatever m and n are.
 *
 * The including file defines the arithmetic: GEMM_ELEM, the type of a and b; gemm_vec
 * and gemm_row(p), to load a vector of b; gemm_all(p), to broadcast an element of a;
 * gemm_mac(a, b, c), c + a b; GEMM_VECS, the width of a block in vectors, 2 or 4; and
 * GEMM_MOST, the rows of a block of two vectors or fewer.
 */

/* One term of R rows by V vectors. */
INLINE void ISA(gemm_term)(vf sum[GEMM_MOST][GEMM_VECS], const GEMM_ELEM *a, int64_t ra,
                           const GEMM_ELEM *b, const int R, const int V)
{
    gemm_vec row[GEMM_VECS];

    UNROLL(GEMM_VECS)
    for (int v = 0; v < V; v++)
        row[v] = gemm_row(b + v * VF_LEN);
    UNROLL(GEMM_MOST)
    for (int i = 0; i < R; i++) {
        const gemm_vec x = gemm_all(a + i * ra);
        UNROLL(GEMM_VECS)
        for (int v = 0; v < V; v++)
            sum[i][v] = gemm_mac(x, row[v], sum[i][v]);
    }
}

/* R rows by V vectors, both constant. */
INLINE void ISA(gemm_block)(float *c, int64_t ldc, const GEMM_ELEM *a, int64_t ra,
                            int64_t ca, const GEMM_ELEM *b, int64_t ldb, int k, int add,
                            const int R, const int V)
{
    vf sum[GEMM_MOST][GEMM_VECS];

    UNROLL(GEMM_MOST)
    for (int i = 0; i < R; i++) {
        UNROLL(GEMM_VECS)
        for (int v = 0; v < V; v++)
            sum[i][v] = add ? vf_load(c + i * ldc + v * VF_LEN) : vf_zero();
    }

    for (int t = 0; t < k; t++, a += ca, b += ldb)
        ISA(gemm_term)(sum, a, ra, b, R, V);

    UNROLL(GEMM_MOST)
    for (int i = 0; i < R; i++) {
        UNROLL(GEMM_VECS)
        for (int v = 0; v < V; v++)
            vf_store(c + i * ldc + v * VF_LEN, sum[i][v]);
    }
}

/* Fewer than six rows of V vectors. */
INLINE void ISA(gemm_rest)(float *c, int64_t ldc, const GEMM_ELEM *a, int64_t ra,
                           int64_t ca, const GEMM_ELEM *b, int64_t ldb, int m, int k,
                           int add, const int V)
{
    switch (m) {
    case 5: ISA(gemm_block)(c, ldc, a, ra, ca, b, ldb, k, add, 5, V); break;
    case 4: ISA(gemm_block)(c, ldc, a, ra, ca, b, ldb, k, add, 4, V); break;
    case 3: ISA(gemm_block)(c, ldc, a, ra, ca, b, ldb, k, add, 3, V); break;
    case 2: ISA(gemm_block)(c, ldc, a, ra, ca, b, ldb, k, add, 2, V); break;
    case 1: ISA(gemm_block)(c, ldc, a, ra, ca, b, ldb, k, add, 1, V); break;
    default: break;
    }
}

/* All rows of V vectors, R at a time, then what is left. */
INLINE void ISA(gemm_strip)(float *c, int64_t ldc, const GEMM_ELEM *a, int64_t ra,
                            int64_t ca, const GEMM_ELEM *b, int64_t ldb, int m, int k,
                            int add, const int R, const int V)
{
    for (; m >= R && !(R == 6 && m > 6 && m <= 10); m -= R, c += R * ldc, a += R * ra)
        ISA(gemm_block)(c, ldc, a, ra, ca, b, ldb, k, add, R, V);
    if (R == 6 && m > 6) { /* better halved than cut into six and few */
        const int half = (m + 1) / 2;

        ISA(gemm_rest)(c, ldc, a, ra, ca, b, ldb, half, k, add, V);
        m -= half, c += half * ldc, a += half * ra;
    } else if (m >= 6) {
        ISA(gemm_block)(c, ldc, a, ra, ca, b, ldb, k, add, 6, V);
        m -= 6, c += 6 * ldc, a += 6 * ra;
    }
    ISA(gemm_rest)(c, ldc, a, ra, ca, b, ldb, m, k, add, V);
}

INLINE void ISA(gemm)(float *c, int64_t ldc, const GEMM_ELEM *a, int64_t ra, int64_t ca,
                      const GEMM_ELEM *b, int64_t ldb, int m, int n, int k, int add)
{
    while (n > 0) {
        /* Five vectors are better cut into 3 + 2 than into 4 + 1.  Narrow strips take
         * more rows, or their sums would be too few to hide the latency. */
        int vecs = n / VF_LEN < GEMM_VECS ? n / VF_LEN : GEMM_VECS;

        if (GEMM_VECS == 4 && n == 5 * VF_LEN) vecs = 3;
        switch (vecs) {
#if GEMM_VECS == 4
        case 4: ISA(gemm_strip)(c, ldc, a, ra, ca, b, ldb, m, k, add, 6, 4); break;
        case 3: ISA(gemm_strip)(c, ldc, a, ra, ca, b, ldb, m, k, add, 6, 3); break;
        case 1: ISA(gemm_strip)(c, ldc, a, ra, ca, b, ldb, m, k, add, 12, 1); break;
#endif
        default:
            ISA(gemm_strip)(c, ldc, a, ra, ca, b, ldb, m, k, add, GEMM_MOST, 2);
            break;
        }
        n -= vecs * VF_LEN;
        c += vecs * VF_LEN;
        b += vecs * VF_LEN;
    }
}
