/* sums.c -- sums over rows. */

static void add_scaled(void *out, int type_out, const void *a, int type_a, float by,
                       const void *b, int type_b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        set_element(out, i, type_out,
                    by * element(a, i, type_a) + (b ? element(b, i, type_b) : 0.0f));
}

static void col_sums(float *out, const void *in, int64_t ld, int dtype, int n, int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++)
            out[c] += element(in, i * ld + c, dtype);
}
