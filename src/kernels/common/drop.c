/* drop.c -- dropout masks, and their application to weights. */

/* Bits of keys[i] + at. */
INLINE uint64_t ISA(dropout_bits)(const uint64_t *keys, vu at, uint64_t bound)
{
    const vu by1 = vu_set1(UINT64_C(0xBF58476D1CE4E5B9));
    const vu by2 = vu_set1(UINT64_C(0x94D049BB133111EB)), least = vu_set1(bound);
    uint64_t bits = 0;

    UNROLL(16)
    for (int i = 0; i < LANES; i += VU_LEN) {
        vu z = vu_add(vu_loadu(keys + i), at);

        z = vu_mul(vu_fold(z, 30), by1);
        z = vu_mul(vu_fold(z, 27), by2);
        bits |= (uint64_t)vu_not_below(vu_fold(z, 31), least) << i;
    }
    return bits;
}

static void ISA(dropout_keys)(uint64_t *dropout_mask, int n, const uint64_t *keys,
                              uint64_t first, uint64_t bound)
{
    const uint64_t step = UINT64_C(0x9E3779B97F4A7C15);

    for (int j = 0; j < n; j++)
        dropout_mask[j] =
            ISA(dropout_bits)(keys, vu_set1(step * (first + (uint64_t)j)), bound);
}

/* Lanes are the columns here. */
static void ISA(dropout_rows)(uint64_t *dropout_mask, int n, const uint64_t *keys,
                              uint64_t first, uint64_t bound)
{
    uint64_t lanes[LANES];

    for (int j = 0; j < LANES; j++)
        lanes[j] = UINT64_C(0x9E3779B97F4A7C15) * (first + (uint64_t)j);
    for (int i = 0; i < n; i++)
        dropout_mask[i] = ISA(dropout_bits)(lanes, vu_set1(keys[i]), bound);
}

static void ISA(drop_f32)(float *w, int n, const uint64_t *dropout_mask)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i += VF_LEN) {
            float *const p = w + j * LANES + i;
            vf_store(p, vf_select(vm_bits(dropout_mask[j], i), vf_load(p), vf_zero()));
        }
}
