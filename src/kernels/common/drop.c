/* drop.c -- which weights are dropped, and dropping them. */

static void ISA(chances)(uint64_t *keep, int n, const uint64_t *keys, uint64_t first,
                         uint64_t bound)
{
    const uint64_t step = UINT64_C(0x9E3779B97F4A7C15);
    const vu       by1 = vu_set1(UINT64_C(0xBF58476D1CE4E5B9));
    const vu       by2 = vu_set1(UINT64_C(0x94D049BB133111EB)), least = vu_set1(bound);

    for (int j = 0; j < n; j++) {
        const vu at = vu_set1(step * (first + (uint64_t)j));
        uint64_t bits = 0;

        UNROLL(4)
        for (int i = 0; i < LANES; i += VU_LEN) {
            vu z = vu_add(vu_loadu(keys + i), at);

            z = vu_mul(vu_fold(z, 30), by1);
            z = vu_mul(vu_fold(z, 27), by2);
            bits |= (uint64_t)vu_not_below(vu_fold(z, 31), least) << i;
        }
        keep[j] = bits;
    }
}

static void ISA(drop_f32)(float *w, int n, const uint64_t *keep)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i += VF_LEN) {
            float *const p = w + j * LANES + i;
            vf_store(p, vf_select(vm_bits(keep[j], i), vf_load(p), vf_zero()));
        }
}
