/* modify.c -- scale, bias, cap and mask of scores. */

INLINE vf ISA(logit)(vf s, vf f, vf bias, float unit, float c, const int capped)
{
    const vf x = vf_fma(f, s, bias);

    if (!capped) return vf_mul(x, vf_set1(unit));
    return vf_mul(vf_tanh(vf_mul(x, vf_set1(1.0f / c))), vf_set1(unit * c));
}

INLINE void ISA(modify_all)(float *s, int n, const float *f, float unit, float c,
                            const float *bias, int64_t ldb, const uint64_t *seen,
                            const int capped)
{
    for (int j = 0; j < n; j++, s += LANES) {
        const uint64_t bits = seen ? seen[j] : UINT64_MAX;

        for (int i = 0; i < LANES; i += VF_LEN) {
            const vf b = bias ? vf_loadu(bias + j * ldb + i) : vf_zero();
            const vf x = ISA(logit)(vf_load(s + i), vf_load(f + i), b, unit, c, capped);

            vf_store(s + i, vf_select(vm_bits(bits, i), x, vf_set1(-INFINITY)));
        }
    }
}

static void ISA(modify)(float *s, int n, const float *f, float unit, float c,
                        const float *bias, int64_t ldb, const uint64_t *seen)
{
    if (c != 0.0f)
        ISA(modify_all)(s, n, f, unit, c, bias, ldb, seen, 1);
    else
        ISA(modify_all)(s, n, f, unit, c, bias, ldb, seen, 0);
}
