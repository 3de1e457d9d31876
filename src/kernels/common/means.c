/* means.c -- running means of rows in double precision, forward and backward.
 *
 * A group of columns stays in registers while the rows stream by.  Bound by reading and
 * writing the rows.
 */

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

        prefetch_row(v, ldv, n, V * VD_LEN);
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

        if (g) prefetch_row(g + i * ldg, ldg, -n, V * VD_LEN);
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

/* Means by powers of the distance, m rows together.  Of the means before them a row takes
 * four shares; what is among the rows goes by sums of sums, which hold x^3 = x + 6 C(x+1, 3)
 * of the distance x without a difference, and in so few rows lose nothing in floats. */

/* Columns of states as floats. */
INLINE vf ISA(means_as_floats)(vd low, vd high)
{
    _Alignas(64) float x[VF_LEN];

    vd_to(x, low);
    vd_to(x + VD_LEN, high);
    return vf_load(x);
}

INLINE void ISA(means_as_doubles)(vd to[2], vf from)
{
    _Alignas(64) float x[VF_LEN];

    vf_store(x, from);
    to[0] = vd_from(x);
    to[1] = vd_from(x + VD_LEN);
}

/* Two vectors of each of four states. */
INLINE void ISA(states_load)(vd a[4][2], const double *state, int d)
{
    UNROLL(8)
    for (int i = 0; i < 8; i++)
        a[i / 2][i % 2] = vd_load(state + i / 2 * d + i % 2 * VD_LEN);
}

INLINE void ISA(states_store)(double *state, int d, vd a[4][2])
{
    UNROLL(8)
    for (int i = 0; i < 8; i++)
        vd_store(state + i / 2 * d + i % 2 * VD_LEN, a[i / 2][i % 2]);
}

/* Sums over rows so far: of them, of those sums, and so on. */
struct ISA(sums) {
    vf s1, s2, s3, s4;
};

/* One row more; the result is the sum by cubes of the distance. */
INLINE vf ISA(sums_add)(struct ISA(sums) * s, vf x)
{
    s->s1 = vf_add(s->s1, x);
    s->s2 = vf_add(s->s2, s->s1);
    const vf cubes = vf_fma(vf_set1(6), s->s4, s->s2);
    s->s3 = vf_add(s->s3, s->s2);
    s->s4 = vf_add(s->s4, s->s3);
    return cubes;
}

INLINE void ISA(cube_group)(float *o, int64_t ldo, const float *v, int64_t ldv, int m,
                            int ahead, const struct cubes *f, vd a[4][2])
{
    struct ISA(sums) s = { vf_zero(), vf_zero(), vf_zero(), vf_zero() };
    vf before[4], squares = vf_zero(), cubes = vf_zero();
    vd by[4][2];

    UNROLL(4)
    for (int p = 0; p < 4; p++)
        before[p] = ISA(means_as_floats)(a[p][0], a[p][1]);
    for (int i = 0; i < m; i++, o += ldo, v += ldv) {
        const float *const row = f->row[i];

        prefetch_row(v, ldv, ahead, VF_LEN);
        squares = s.s3;
        cubes = ISA(sums_add)(&s, vf_loadu(v));
        vf y = vf_mul(vf_set1(row[4]), cubes);
        UNROLL(4)
        for (int p = 0; p < 4; p++)
            y = vf_fma(vf_set1(row[p]), before[p], y);
        vf_storeu(o, y);
    }
    squares = vf_add(squares, s.s3); /* x^2 = C(x, 2) + C(x + 1, 2) */
    ISA(means_as_doubles)(by[0], s.s1);
    ISA(means_as_doubles)(by[1], s.s2);
    ISA(means_as_doubles)(by[2], squares);
    ISA(means_as_doubles)(by[3], cubes);
    UNROLL(4)
    for (int p = 3; p >= 0; p--) /* those below are still of the rows before */
        for (int c = 0; c < 2; c++) {
            vd sum = vd_mul(vd_set1(f->in[p]), by[p][c]);
            for (int r = 0; r <= p; r++)
                sum = vd_fma(vd_set1(f->from[p * (p + 1) / 2 + r]), a[r][c], sum);
            a[p][c] = sum;
        }
}

static void ISA(cube_rows)(float *o, int64_t ldo, const float *v, int64_t ldv, int n,
                           int d, const struct cubes *f, double *state)
{
    for (int c = 0; c < d; c += VF_LEN) {
        vd a[4][2];

        ISA(states_load)(a, state + c, d);
        for (int64_t i = 0; i < n; i += CUBE_ROWS) {
            const int                 m = n - i < CUBE_ROWS ? (int)(n - i) : CUBE_ROWS;
            const struct cubes *const by = f + i / CUBE_ROWS;
            float *const              to = o + i * ldo + c;

            ISA(cube_group)(to, ldo, v + i * ldv + c, ldv, m, n, by, a);
        }
        ISA(states_store)(state + c, d, a);
    }
}

INLINE void ISA(cube_group_back)(float *dv, int64_t ldv, const float *g, int64_t ldg,
                                 int m, int ahead, const struct cubes *f, vd a[4][2])
{
    struct ISA(sums) s = { vf_zero(), vf_zero(), vf_zero(), vf_zero() };
    vf after[4], sum[4];
    vd by[4][2];

    UNROLL(4)
    for (int p = 0; p < 4; p++) {
        const vd in = vd_set1(f->in[p]);
        after[p] = ISA(means_as_floats)(vd_mul(in, a[p][0]), vd_mul(in, a[p][1]));
        sum[p] = vf_zero();
    }
    for (int64_t i = m - 1; i >= 0; i--) {
        const float *const row = f->row[i];
        const vf           x = vf_loadu(g + i * ldg), far = vf_set1((float)(m - i));

        prefetch_row(g + i * ldg, ldg, ahead, VF_LEN);
        vf y = vf_fma(after[3], far, after[2]);
        y = vf_fma(y, far, after[1]);
        y = vf_fma(y, far, after[0]);
        vf_storeu(dv + i * ldv,
                  vf_add(y, ISA(sums_add)(&s, vf_mul(vf_set1(row[4]), x))));
        UNROLL(4)
        for (int p = 0; p < 4; p++)
            sum[p] = vf_fma(vf_set1(row[p]), x, sum[p]);
    }
    UNROLL(4)
    for (int r = 0; r < 4; r++)
        ISA(means_as_doubles)(by[r], sum[r]);
    UNROLL(4)
    for (int r = 0; r < 4; r++) /* those above are still of the rows after */
        for (int c = 0; c < 2; c++) {
            vd before = by[r][c];
            for (int p = r; p < 4; p++)
                before = vd_fma(vd_set1(f->from[p * (p + 1) / 2 + r]), a[p][c], before);
            a[r][c] = before;
        }
}

static void ISA(cube_back)(float *dv, int64_t ldv, const float *g, int64_t ldg, int n,
                           int d, const struct cubes *f, double *state)
{
    for (int c = 0; c < d; c += VF_LEN) {
        vd a[4][2];

        ISA(states_load)(a, state + c, d);
        for (int64_t i = (n - 1) / CUBE_ROWS * CUBE_ROWS; i >= 0; i -= CUBE_ROWS) {
            const int                 m = n - i < CUBE_ROWS ? (int)(n - i) : CUBE_ROWS;
            const struct cubes *const by = f + i / CUBE_ROWS;
            float *const              to = dv + i * ldv + c;

            ISA(cube_group_back)(to, ldv, g + i * ldg + c, ldg, m, -n, by, a);
        }
        ISA(states_store)(state + c, d, a);
    }
}
