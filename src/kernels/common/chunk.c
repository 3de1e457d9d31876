/* chunk.c -- linear attention: masked weights within a chunk, sums over it, and features that
 * are exponentials. */

/* Lanes i to i + VF_LEN that see key j, of those below the diagonal. */
INLINE vm ISA(seen_from)(int j, int i)
{
    return vm_bits(j < LANES ? UINT64_MAX << j : 0, i);
}

INLINE vf ISA(near_one)(const float *a, const float *by, int j, int i, const int both)
{
    const vf x = vf_load(a + j * LANES + i);
    const vf w = by ? vf_mul(x, vf_load(by + j * LANES + i)) : x;

    return both ? w : vf_select(ISA(seen_from)(j, i), w, vf_zero());
}

INLINE void ISA(near_all)(float *a, int n, const float *by, const int both, float *sum)
{
    for (int i = 0; i < LANES; i += VF_LEN) {
        vf total = vf_load(sum + i);

        for (int j = 0; j < n; j++) {
            const vf w = ISA(near_one)(a, by, j, i, both);
            vf_store(a + j * LANES + i, w);
            total = vf_add(total, w);
        }
        vf_store(sum + i, total);
    }
}

static void ISA(near_f32)(float *a, int n, const float *by, int both, float *sum)
{
    if (both)
        ISA(near_all)(a, n, by, 1, sum);
    else
        ISA(near_all)(a, n, by, 0, sum);
}

static void ISA(row_sums)(float *out, const float *x, int rows, const float *by)
{
    for (int r = 0; r < rows; r++, x += LANES) {
        vf sum = vf_zero();

        UNROLL(8)
        for (int i = 0; i < LANES; i += VF_LEN)
            sum = by ? vf_fma(vf_load(x + i), vf_load(by + i), sum)
                     : vf_add(sum, vf_load(x + i));
        out[r] += vf_sum(sum);
    }
}

static void ISA(row_tops)(float *top, const float *x, int rows)
{
    for (int r = 0; r < rows; r++, x += LANES) {
        vf most = vf_set1(-INFINITY);

        UNROLL(8)
        for (int i = 0; i < LANES; i += VF_LEN)
            most = vf_max(vf_load(x + i), most);
        top[r] = vf_most(most);
    }
}

/* e^x, as a power of 2. */
INLINE vf ISA(power)(vf x) { return vf_exp2(vf_mul(x, vf_set1(1.44269504088896f))); }

static void ISA(exp_rows)(float *x, int rows, const float *base)
{
    for (int r = 0; r < rows; r++, x += LANES) {
        const vf from = vf_set1(base[r] == -INFINITY ? 0.0f : base[r]);

        UNROLL(8)
        for (int i = 0; i < LANES; i += VF_LEN)
            vf_store(x + i, ISA(power)(vf_sub(vf_load(x + i), from)));
    }
}

static void ISA(exp_cols)(float *x, int rows, const float *add, float *top)
{
    for (int i = 0; i < LANES; i += VF_LEN) {
        vf most = vf_set1(-INFINITY);

        for (int r = 0; r < rows; r++) {
            const vf t = vf_load(x + r * LANES + i);
            most = vf_max(add ? vf_add(t, vf_set1(add[r])) : t, most);
        }
        vf_store(top + i, most);
        const vf from = ISA(base)(top + i);
        for (int r = 0; r < rows; r++) {
            const vf t = vf_load(x + r * LANES + i);
            vf_store(x + r * LANES + i,
                     ISA(power)(vf_sub(add ? vf_add(t, vf_set1(add[r])) : t, from)));
        }
    }
}

/* Times 0 everything is 0, unless it is not finite. */
static int ISA(all_finite)(const float *x, int64_t n)
{
    vf sum = vf_zero();

    for (int64_t i = 0; i < n; i += VF_LEN)
        sum = vf_fma(vf_loadu(x + i), vf_zero(), sum);
    return vm_all(vf_eq(sum, vf_zero()));
}
