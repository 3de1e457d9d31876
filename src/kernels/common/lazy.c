/* lazy.c -- the running reference of a softmax with lazy rescaling, queries as lanes.
 *
 * The reference m moves only when a maximum exceeds it by more than 8.  Weights 2^(t - m)
 * then reach 2^8 at most, a factor that numerator and denominator share, and the caller
 * rarely has to rescale its partial sums.
 */

/* Vectors that go down the keys together; more would not fit into registers. */
enum { GROUP = VF_LEN == 16 ? 4 : 2, GROUP_LANES = GROUP * VF_LEN };

/* Whether multiplication by f keeps the order of the scores of a lane. */
enum factor { F_NONE, F_POSITIVE, F_ANY };

INLINE enum factor ISA(factor_kind)(const float *f)
{
    if (!f) return F_NONE;
    for (int i = 0; i < LANES; i += VF_LEN)
        if (!vm_all(vf_gt(vf_load(f + i), vf_zero()))) return F_ANY;
    return F_POSITIVE;
}

/* top[64] = maxima of t.  NaN is passed over here; its weight will tell.  Positive
 * factors commute with the maximum, rounding included. */
INLINE void ISA(tops)(float *top, const float *s, int n, const float *f,
                      const enum factor kind)
{
    for (int i = 0; i < LANES; i += GROUP_LANES) {
        vf x[GROUP], by[GROUP];

        UNROLL(4)
        for (int v = 0; v < GROUP; v++) {
            x[v] = vf_set1(-INFINITY);
            by[v] = kind == F_NONE ? vf_set1(1.0f) : vf_load(f + i + v * VF_LEN);
        }
        for (int j = 0; j < n; j++) {
            UNROLL(4)
            for (int v = 0; v < GROUP; v++) {
                const vf t = vf_load(s + j * LANES + i + v * VF_LEN);
                x[v] = vf_max(kind == F_ANY ? vf_mul(t, by[v]) : t, x[v]);
            }
        }
        UNROLL(4)
        for (int v = 0; v < GROUP; v++)
            vf_store(top + i + v * VF_LEN,
                     kind == F_POSITIVE ? vf_mul(x[v], by[v]) : x[v]);
    }
}

/* Move the references that lag more than 8 behind; the result is 1 if any did.  A
 * lane at -inf that has now seen a score starts from nothing, by a factor of 0.
 * l shrinks as what it sums: weights, or their squares. */
INLINE int ISA(move)(const float *s, int n, const float *f, float *m, float *l,
                     float *shrink, int kind)
{
    _Alignas(64) float top[LANES];
    int                moved = 0;

    if (!shrink) return 0;
    switch (ISA(factor_kind)(f)) {
    case F_NONE: ISA(tops)(top, s, n, f, F_NONE); break;
    case F_POSITIVE: ISA(tops)(top, s, n, f, F_POSITIVE); break;
    default: ISA(tops)(top, s, n, f, F_ANY); break;
    }
    for (int i = 0; i < LANES; i += VF_LEN)
        moved |= vm_any(vf_gt(vf_load(top + i), vf_add(vf_load(m + i), vf_set1(8.0f))));
    if (!moved) return 0;

    for (int i = 0; i < LANES; i += VF_LEN) {
        const vf old = vf_load(m + i), now = vf_load(top + i);
        const vm far = vf_gt(now, vf_add(old, vf_set1(8.0f)));
        const vf by = vf_select(far, vf_exp2(vf_sub(old, now)), vf_set1(1.0f));

        vf_store(shrink + i, by);
        vf_store(l + i, vf_mul(vf_load(l + i),
                               kind == FOCI_WEIGH_L2NORM ? vf_mul(by, by) : by));
        vf_store(m + i, vf_select(far, now, old));
    }
    return 1;
}

/* The reference to subtract: 0 in place of -inf, so that -inf - -inf is never formed. */
INLINE vf ISA(base)(const float *m)
{
    const vf x = vf_load(m);
    return vf_select(vf_eq(x, vf_set1(-INFINITY)), vf_zero(), x);
}
