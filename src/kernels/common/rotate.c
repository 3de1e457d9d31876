/* rotate.c -- rotary positions: pairs of elements rotated by angles. */

/* Neighbours are complex numbers; what is less than a vector goes through its ends. */
INLINE void ISA(rotate_pairs)(float *x, const float *t, int d, const int back)
{
    int c = 0;

    for (; c + VF_LEN <= d; c += VF_LEN)
        vf_storeu(x + c, vf_rotate(vf_loadu(x + c), vf_loadu(t + c), back));
    if (c < d) {
        const vf a = vf_from_n(x + c, FOCI_F32, d - c);
        const vf b = vf_from_n(t + c, FOCI_F32, d - c);
        vf_to_n(x + c, FOCI_F32, vf_rotate(a, b, back), d - c);
    }
}

INLINE void ISA(rotate_halves)(float *x, const float *t, int half, const int back)
{
    int c = 0;

    for (; c + VF_LEN <= half; c += VF_LEN) {
        const vf a = vf_loadu(x + c), b = vf_loadu(x + half + c);
        const vf re = vf_loadu(t + c), sine = vf_loadu(t + half + c);
        const vf im = back ? vf_sub(vf_zero(), sine) : sine;

        vf_storeu(x + c, vf_fnma(b, im, vf_mul(a, re)));
        vf_storeu(x + half + c, vf_fma(a, im, vf_mul(b, re)));
    }
    for (; c < half; c++) {
        const float a = x[c], b = x[half + c], re = t[c];
        const float im = back ? -t[half + c] : t[half + c];

        x[c] = a * re - b * im;
        x[half + c] = a * im + b * re;
    }
}

static void ISA(rotate)(float *x, int64_t ld, const float *cos_sin, int64_t ldt, int n,
                        int d, int half, int back)
{
    for (int i = 0; i < n; i++, x += ld, cos_sin += ldt) {
        if (half && back)
            ISA(rotate_halves)(x, cos_sin, d / 2, 1);
        else if (half)
            ISA(rotate_halves)(x, cos_sin, d / 2, 0);
        else if (back)
            ISA(rotate_pairs)(x, cos_sin, d, 1);
        else
            ISA(rotate_pairs)(x, cos_sin, d, 0);
    }
}
