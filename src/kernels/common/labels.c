/* labels.c -- arg-max of scores, and comparison of the labels of lanes with those of keys. */

INLINE void ISA(best_all)(const float *s, int n, int first, float *most, float *next,
                          float *at, const int both)
{
    for (int i = 0; i < LANES; i += VF_LEN) {
        vf top = vf_load(most + i), second = vf_load(next + i),
           number = vf_load(at + i);

        for (int j = 0; j < n; j++) {
            const vf x = vf_load(s + j * LANES + i), y = both ? vf_abs(x) : x;
            const vm more = vf_gt(y, top);
            const vf id = vf_set1((float)(first + j) + (both ? 1.0f : 0.0f));

            second = vf_select(more, top, vf_max(y, second));
            top = vf_select(more, y, top);
            number = vf_select(more, both ? vf_copysign(id, x) : id, number);
        }
        vf_store(most + i, top);
        vf_store(next + i, second);
        vf_store(at + i, number);
    }
}

static void ISA(best)(const float *s, int n, int first, int both, float *most,
                      float *next, float *at)
{
    if (both)
        ISA(best_all)(s, n, first, most, next, at, 1);
    else
        ISA(best_all)(s, n, first, most, next, at, 0);
}

static void ISA(match)(uint64_t *seen, const int32_t *lane, const int32_t *key, int n)
{
    for (int j = 0; j < n; j++) {
        uint64_t bits = 0;

        UNROLL(8)
        for (int i = 0; i < LANES; i += VF_LEN)
            bits |= vm_mask(vm_equal(lane + i, key[j])) << i;
        seen[j] = bits;
    }
}
