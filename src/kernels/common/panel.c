/* panel.c -- rows of a by a packed panel of b, 64 columns, for large products.
 *
 * The micro-kernel is that of gemm.c plus prefetching.  With b in the second-level cache
 * six rows keep the multipliers busy, but the first rows of each new panel would miss there:
 * one cache line of the next panel is prefetched every four terms.  Lines of the result are
 * prefetched too, spread over the sum, since stores that miss occupy the fill buffers that b
 * needs.
 */

#if GEMM_VECS == 4

enum { PANEL_TERMS = 4 }; /* between two lines of b */

/* Lines of the result, row by row, one every `pace` times. */
struct ISA(lines) {
    const char *at;
    int64_t     next; /* bytes from the last line of a row to the next row */
    int         left, pace, wait;
};

INLINE void ISA(next_line)(struct ISA(lines) * x, const int V)
{
    if (--x->wait) return;
    x->wait = x->pace;
    if (!x->left) return;
    PREFETCH_WRITE(x->at);
    x->at += --x->left % V ? 64 : x->next;
}

/* R rows by four vectors. */
INLINE void ISA(panel_rows)(const struct panel_f32 *x, const float *a, int i,
                            const char *ahead, const int R)
{
    enum { V = 4 };
    const int64_t ra = x->ra, ca = x->ca;
    const float  *b = x->b;
    float *const  out = x->out + i * x->ldo;
    const int     slots = x->k / PANEL_TERMS, lines = R * V, step = x->twice ? 128 : 64;
    vf            sum[GEMM_MOST][GEMM_VECS];

    struct ISA(lines)
        write = { (const char *)out, 4 * (x->ldo - (V - 1) * (int64_t)VF_LEN), lines,
                  slots > lines ? slots / lines : 1, 1 };

    UNROLL(6)
    for (int r = 0; r < R; r++) {
        UNROLL(4)
        for (int v = 0; v < V; v++)
            sum[r][v] =
                x->sums ? vf_load(x->sums + (i + r) * x->lds + v * VF_LEN) : vf_zero();
    }
    for (int t = 0; t < slots; t++, ahead += step) {
        PREFETCH_L2(ahead);
        if (x->twice) PREFETCH_L2(ahead + 64);
        ISA(next_line)(&write, V);
        UNROLL(4)
        for (int u = 0; u < PANEL_TERMS; u++, a += ca, b += V * VF_LEN)
            ISA(gemm_term)(sum, a, ra, b, R, V);
    }
    for (int t = slots * PANEL_TERMS; t < x->k; t++, a += ca, b += V * VF_LEN)
        ISA(gemm_term)(sum, a, ra, b, R, V);
    UNROLL(6)
    for (int r = 0; r < R; r++) {
        UNROLL(4)
        for (int v = 0; v < V; v++)
            vf_store(out + r * x->ldo + v * VF_LEN, sum[r][v]);
    }
}

static void ISA(panel_f32)(const struct panel_f32 *x)
{
    const char   *ahead = x->ahead;
    const int64_t strip = x->k / PANEL_TERMS * (x->twice ? 128 : 64);
    int           i = 0;

    /* A rest of seven to ten rows is better halved than cut into six and few. */
    for (; x->m - i > 10 || x->m - i == 6; i += 6) {
        ISA(panel_rows)(x, x->a + i * x->ra, i, ahead, 6);
        ahead += strip;
    }
    while (i < x->m) {
        const int left = x->m - i, rows = left > 6 ? (left + 1) / 2 : left;

        switch (rows) {
        case 5: ISA(panel_rows)(x, x->a + i * x->ra, i, ahead, 5); break;
        case 4: ISA(panel_rows)(x, x->a + i * x->ra, i, ahead, 4); break;
        case 3: ISA(panel_rows)(x, x->a + i * x->ra, i, ahead, 3); break;
        case 2: ISA(panel_rows)(x, x->a + i * x->ra, i, ahead, 2); break;
        default: ISA(panel_rows)(x, x->a + i * x->ra, i, ahead, 1); break;
        }
        i += rows;
        ahead += strip;
    }
}

#else

static void ISA(panel_f32)(const struct panel_f32 *x)
{
    for (int i = 0; i < x->m && x->sums && x->sums != x->out; i++)
        memcpy(x->out + i * x->ldo, x->sums + i * x->lds, LANES * sizeof *x->out);
    ISA(gemm)
    (x->out, x->ldo, x->a, x->ra, x->ca, x->b, LANES, x->m, LANES, x->k,
     x->sums != NULL);
}

#endif
