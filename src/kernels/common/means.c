/* means.c -- running means of rows, in doubles, and the way back.
 *
 * A group of columns stays in registers while the rows go by.  Bound by reading and
 * writing them.
 */

/* Ask for the row `rows` further on, which the next call will want: rows of several heads
 * are too far apart for the hardware to look ahead. */
INLINE void ISA(ask_row)(const float *row, int64_t ld, int64_t rows, int floats)
{
    enum { LINE = 16 };
    const uintptr_t at = (uintptr_t)row + (uintptr_t)(ld * rows) * sizeof *row;

    UNROLL(4)
    for (int c = 0; c < floats; c += LINE)
        __builtin_prefetch((const void *)(at + (uintptr_t)c * sizeof *row), 0, 2);
}

/* Vectors of columns that stay: enough for their chains of two operations to overlap. */
enum { MEANS = VF_LEN == 16 ? 8 : 4 };

INLINE void ISA(mean_cols)(float *o, int64_t ldo, const float *v, int64_t ldv, int n,
                           const double *a, double *mean, const int V)
{
    vd m[MEANS];

    UNROLL(8)
    for (int c = 0; c < V; c++)
        m[c] = vd_load(mean + c * VD_LEN);
    for (int i = 0; i < n; i++, o += ldo, v += ldv) {
        const vd by = vd_set1(a[i]), rest = vd_set1(1 - a[i]);

        ISA(ask_row)(v, ldv, n, V * VD_LEN);
        UNROLL(8)
        for (int c = 0; c < V; c++) {
            m[c] = vd_fma(rest, m[c], vd_mul(by, vd_from(v + c * VD_LEN)));
            vd_to(o + c * VD_LEN, m[c]);
        }
    }
    UNROLL(8)
    for (int c = 0; c < V; c++)
        vd_store(mean + c * VD_LEN, m[c]);
}

static void ISA(mean_rows)(float *o, int64_t ldo, const float *v, int64_t ldv, int n,
                           int d, const double *a, double *mean)
{
    int c = 0;

    for (; c + MEANS * VD_LEN <= d; c += MEANS * VD_LEN)
        ISA(mean_cols)(o + c, ldo, v + c, ldv, n, a, mean + c, MEANS);
    for (; c < d; c += VD_LEN)
        ISA(mean_cols)(o + c, ldo, v + c, ldv, n, a, mean + c, 1);
}

INLINE void ISA(mean_back_cols)(float *dv, int64_t ldv, const float *g, int64_t ldg,
                                int n, const double *a, double *sum, const int V)
{
    vd s[MEANS];

    UNROLL(8)
    for (int c = 0; c < V; c++)
        s[c] = vd_load(sum + c * VD_LEN);
    for (int64_t i = n - 1; i >= 0; i--) {
        const vd by = vd_set1(a[i]), rest = vd_set1(1 - a[i]), one = vd_set1(1);

        if (g) ISA(ask_row)(g + i * ldg, ldg, -n, V * VD_LEN);
        UNROLL(8)
        for (int c = 0; c < V; c++) {
            if (g) s[c] = vd_fma(one, vd_from(g + i * ldg + c * VD_LEN), s[c]);
            vd_to(dv + i * ldv + c * VD_LEN, vd_mul(by, s[c]));
            s[c] = vd_mul(rest, s[c]);
        }
    }
    UNROLL(8)
    for (int c = 0; c < V; c++)
        vd_store(sum + c * VD_LEN, s[c]);
}

static void ISA(mean_back)(float *dv, int64_t ldv, const float *g, int64_t ldg, int n,
                           int d, const double *a, double *sum)
{
    int c = 0;

    for (; c + MEANS * VD_LEN <= d; c += MEANS * VD_LEN)
        ISA(mean_back_cols)(dv + c, ldv, g ? g + c : NULL, ldg, n, a, sum + c, MEANS);
    for (; c < d; c += VD_LEN)
        ISA(mean_back_cols)(dv + c, ldv, g ? g + c : NULL, ldg, n, a, sum + c, 1);
}

/* Four means by VD_LEN columns: 4 states, and 14 factors that are loaded as they come. */
INLINE void ISA(cube_cols)(float *o, int64_t ldo, const float *v, int64_t ldv, int n,
                           const double *f, double *state, int64_t lds, const int V)
{
    vd a[4][2];

    UNROLL(4)
    for (int p = 0; p < 4; p++)
        for (int c = 0; c < V; c++)
            a[p][c] = vd_load(state + p * lds + c * VD_LEN);
    for (int i = 0; i < n; i++, o += ldo, v += ldv, f += 14) {
        ISA(ask_row)(v, ldv, n, V * VD_LEN);
        UNROLL(2)
        for (int c = 0; c < V; c++) {
            const vd x = vd_from(v + c * VD_LEN);
            const vd a0 = a[0][c], a1 = a[1][c], a2 = a[2][c];

            a[0][c] = vd_fma(vd_set1(f[4]), a0, vd_mul(vd_set1(f[0]), x));
            a[1][c] = vd_fma(vd_set1(f[6]), a1,
                             vd_fma(vd_set1(f[5]), a0, vd_mul(vd_set1(f[1]), x)));
            a[2][c] =
                vd_fma(vd_set1(f[9]), a2,
                       vd_fma(vd_set1(f[8]), a1,
                              vd_fma(vd_set1(f[7]), a0, vd_mul(vd_set1(f[2]), x))));
            a[3][c] = vd_fma(
                vd_set1(f[13]), a[3][c],
                vd_fma(vd_set1(f[12]), a2,
                       vd_fma(vd_set1(f[11]), a1,
                              vd_fma(vd_set1(f[10]), a0, vd_mul(vd_set1(f[3]), x)))));
            vd_to(o + c * VD_LEN, a[3][c]);
        }
    }
    UNROLL(4)
    for (int p = 0; p < 4; p++)
        for (int c = 0; c < V; c++)
            vd_store(state + p * lds + c * VD_LEN, a[p][c]);
}

static void ISA(cube_rows)(float *o, int64_t ldo, const float *v, int64_t ldv, int n,
                           int d, const double *f, double *state)
{
    int c = 0;

    for (; c + 2 * VD_LEN <= d; c += 2 * VD_LEN)
        ISA(cube_cols)(o + c, ldo, v + c, ldv, n, f, state + c, d, 2);
    for (; c < d; c += VD_LEN)
        ISA(cube_cols)(o + c, ldo, v + c, ldv, n, f, state + c, d, 1);
}

INLINE void ISA(cube_back_cols)(float *dv, int64_t ldv, const float *g, int64_t ldg,
                                int n, const double *f, double *state, int64_t lds,
                                const int V)
{
    vd a[4][2];

    UNROLL(4)
    for (int p = 0; p < 4; p++)
        for (int c = 0; c < V; c++)
            a[p][c] = vd_load(state + p * lds + c * VD_LEN);
    f += (int64_t)(n - 1) * 14;
    for (int64_t i = n - 1; i >= 0; i--, f -= 14) {
        ISA(ask_row)(g + i * ldg, ldg, -n, V * VD_LEN);
        UNROLL(2)
        for (int c = 0; c < V; c++) {
            const vd a0 = a[0][c], a1 = a[1][c], a2 = a[2][c];
            const vd a3 =
                vd_fma(vd_set1(1), vd_from(g + i * ldg + c * VD_LEN), a[3][c]);

            vd_to(dv + i * ldv + c * VD_LEN,
                  vd_fma(vd_set1(f[3]), a3,
                         vd_fma(vd_set1(f[2]), a2,
                                vd_fma(vd_set1(f[1]), a1, vd_mul(vd_set1(f[0]), a0)))));
            a[0][c] =
                vd_fma(vd_set1(f[10]), a3,
                       vd_fma(vd_set1(f[7]), a2,
                              vd_fma(vd_set1(f[5]), a1, vd_mul(vd_set1(f[4]), a0))));
            a[1][c] = vd_fma(vd_set1(f[11]), a3,
                             vd_fma(vd_set1(f[8]), a2, vd_mul(vd_set1(f[6]), a1)));
            a[2][c] = vd_fma(vd_set1(f[12]), a3, vd_mul(vd_set1(f[9]), a2));
            a[3][c] = vd_mul(vd_set1(f[13]), a3);
        }
    }
    UNROLL(4)
    for (int p = 0; p < 4; p++)
        for (int c = 0; c < V; c++)
            vd_store(state + p * lds + c * VD_LEN, a[p][c]);
}

static void ISA(cube_back)(float *dv, int64_t ldv, const float *g, int64_t ldg, int n,
                           int d, const double *f, double *state)
{
    int c = 0;

    for (; c + 2 * VD_LEN <= d; c += 2 * VD_LEN)
        ISA(cube_back_cols)(dv + c, ldv, g + c, ldg, n, f, state + c, d, 2);
    for (; c < d; c += VD_LEN)
        ISA(cube_back_cols)(dv + c, ldv, g + c, ldg, n, f, state + c, d, 1);
}
