/* band.c -- reorder between scores by key and bands by distance (skew and unskew).
 *
 * Lane r of a vector takes its value from r rows further on.  This is done in as many steps
 * as r has bits: step b moves the lanes whose bit b is set by 2^b rows.  Rows stream through
 * and step b remembers its last 2^b rows, so that everything stays in registers; the loop over
 * eight rows makes the indices of that memory constants.
 */
struct ISA(delay) {
    vf one[1], two[2], four[4], eight[8];
};

/* Row u of eight goes in; what comes out began VF_LEN - 1 rows ago. */
INLINE vf ISA(delayed)(struct ISA(delay) * d, vf x, const int u)
{
    const vf a = vf_select(vm_bits(0xaaaa, 0), x, d->one[0]);
    const vf b = vf_select(vm_bits(0xcccc, 0), a, d->two[u % 2]);
    const vf c = vf_select(vm_bits(0xf0f0, 0), b, d->four[u % 4]);
    const vf e = VF_LEN == 16 ? vf_select(vm_bits(0xff00, 0), c, d->eight[u]) : c;

    d->one[0] = x;
    d->two[u % 2] = a;
    d->four[u % 4] = b;
    d->eight[u] = c;
    return e;
}

INLINE struct ISA(delay) ISA(delay_none)(void)
{
    struct ISA(delay) d;

    d.one[0] = vf_zero();
    UNROLL(8)
    for (int i = 0; i < 8; i++)
        d.two[i % 2] = d.four[i % 4] = d.eight[i] = vf_zero();
    return d;
}

static void ISA(skew)(float *s, const float *low, const float *high, int n)
{
    for (int i = 0; i < LANES; i += VF_LEN) {
        const float *in = low + i * LANES + i;
        struct ISA(delay) d = ISA(delay_none)();

        for (int j = LANES + VF_LEN - 1; j > 0; j -= 8, in += 8 * LANES) {
            if (j == LANES + VF_LEN - 1 - (LANES - i)) in = high + i;
            UNROLL(8)
            for (int u = 0; u < 8; u++) {
                const vf     x = ISA(delayed)(&d, vf_load(in + u * LANES), u);
                float *const out = s + (j - u) * LANES + i;

                if (j - u < n) vf_store(out, vf_add(vf_load(out), x));
            }
        }
    }
}

/* Row r of the band needs keys from LANES + i - r on, the next VF_LEN of them. */
static void ISA(unskew_f32)(float *band, const float *ds)
{
    for (int i = 0; i < LANES; i += VF_LEN) {
        const float *in = ds + (i + 1) * LANES + i;
        float       *out = band + (LANES + VF_LEN - 2) * LANES + i;
        struct ISA(delay) d = ISA(delay_none)();

        for (int row = 0; row < LANES + VF_LEN; row += 8) {
            UNROLL(8)
            for (int u = 0; u < 8; u++, in += LANES, out -= LANES) {
                const int to = LANES + VF_LEN - 2 - (row + u);

                if (to < 0) continue;
                const vf x = ISA(delayed)(&d, vf_load(in), u);
                if (to < LANES) vf_store(out, x);
            }
        }
    }
}

/* Keys a vector apart are added up at the same alignment, c keys into each; the sums
 * of all c are then read shifted against each other. */
INLINE void ISA(diagonals_all)(float *sums, const char *ds, const int dtype, int n,
                               uint64_t lanes)
{
    enum { VECS = LANES / VF_LEN, ROW = 2 * LANES + VF_LEN };
    const int          size = dtype == FOCI_F32 ? 4 : 2;
    _Alignas(64) float part[VF_LEN][ROW];

    for (int c = 0; c < VF_LEN; c++) {
        vf sum[2 * VECS - 1];

        UNROLL(16)
        for (int e = 0; e < 2 * VECS - 1; e++)
            sum[e] = vf_zero();
        UNROLL(8)
        for (int a = 0; a < VECS; a++) {
            const int j = a * VF_LEN + c;

            UNROLL(8)
            for (int v = 0; v < VECS && j < n; v++) {
                const vf x = vf_from(ds + (j * LANES + v * VF_LEN) * size, dtype);
                sum[v - a + VECS - 1] =
                    vf_add(sum[v - a + VECS - 1],
                           vf_select(vm_bits(lanes, v * VF_LEN), x, vf_zero()));
            }
        }
        vf_store(part[c], vf_zero());
        UNROLL(16)
        for (int e = 0; e < 2 * VECS - 1; e++)
            vf_store(part[c] + (e + 1) * VF_LEN, sum[e]);
        vf_store(part[c] + 2 * LANES, vf_zero());
    }
    for (int k = 0; k < 2 * LANES; k += VF_LEN) {
        vf sum = vf_loadu(sums + k);

        for (int c = 0; c < VF_LEN; c++)
            sum = vf_add(sum, vf_loadu(part[c] + k + c));
        vf_storeu(sums + k, sum);
    }
}

static void ISA(diagonals)(float *sums, const void *ds, int dtype, int n, uint64_t lanes)
{
    switch (dtype) {
    case FOCI_F32: ISA(diagonals_all)(sums, ds, FOCI_F32, n, lanes); break;
    case FOCI_BF16: ISA(diagonals_all)(sums, ds, FOCI_BF16, n, lanes); break;
    default: ISA(diagonals_all)(sums, ds, FOCI_F16, n, lanes); break;
    }
}
