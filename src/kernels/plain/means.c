/* means.c -- running means of rows, forward and backward. */

static void mean_rows(float *o, int64_t ldo, const float *v, int64_t ldv, int n, int d,
                      const double *a, double *mean)
{
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < d; c++) {
            mean[c] += a[i] * ((double)v[i * ldv + c] - mean[c]);
            o[i * ldo + c] = (float)mean[c];
        }
}

static void mean_back(float *dv, int64_t ldv, const float *g, int64_t ldg, int n, int d,
                      const double *a, double *sum)
{
    for (int64_t i = n - 1; i >= 0; i--)
        for (int c = 0; c < d; c++) {
            if (g) sum[c] += (double)g[i * ldg + c];
            dv[i * ldv + c] = (float)(a[i] * sum[c]);
            sum[c] *= 1 - a[i];
        }
}

static double power(int64_t x, int p)
{
    double y = 1;

    for (; p > 0; p--)
        y *= (double)x;
    return y;
}

static void cube_group(float *o, int64_t ldo, const float *v, int64_t ldv, int64_t m,
                       const struct cubes *f, double *state, int64_t lds)
{
    double among[4] = { 0 };

    for (int64_t i = m - 1; i >= 0; i--) { /* o may be v */
        double cubes = 0, sum = 0;

        for (int64_t j = 0; j <= i; j++)
            cubes += power(i + 1 - j, 3) * (double)v[j * ldv];
        for (int p = 0; p < 4; p++) {
            sum += (double)f->row[i][p] * state[p * lds];
            among[p] += power(m - i, p) * (double)v[i * ldv];
        }
        o[i * ldo] = (float)(sum + (double)f->row[i][4] * cubes);
    }
    for (int p = 3; p >= 0; p--) { /* those below are still of the rows before */
        double sum = f->in[p] * among[p];
        for (int r = 0; r <= p; r++)
            sum += f->from[p * (p + 1) / 2 + r] * state[r * lds];
        state[p * lds] = sum;
    }
}

static void cube_rows(float *o, int64_t ldo, const float *v, int64_t ldv, int n, int d,
                      const struct cubes *f, double *state)
{
    for (int64_t i = 0; i < n; i += CUBE_ROWS)
        for (int c = 0; c < d; c++)
            cube_group(o + i * ldo + c, ldo, v + i * ldv + c, ldv,
                       n - i < CUBE_ROWS ? n - i : CUBE_ROWS, f + i / CUBE_ROWS,
                       state + c, d);
}

static void cube_group_back(float *dv, int64_t ldv, const float *g, int64_t ldg,
                            int64_t m, const struct cubes *f, double *state, int64_t lds)
{
    double sum[4] = { 0 };

    for (int64_t j = 0; j < m; j++) {
        double back = 0;

        for (int64_t i = j; i < m; i++)
            back += power(i + 1 - j, 3) * (double)f->row[i][4] * (double)g[i * ldg];
        for (int p = 0; p < 4; p++)
            back += power(m - j, p) * f->in[p] * state[p * lds];
        for (int p = 0; p < 4; p++)
            sum[p] += (double)f->row[j][p] * (double)g[j * ldg];
        dv[j * ldv] = (float)back;
    }
    for (int r = 0; r < 4; r++) { /* those above are still of the rows after */
        for (int p = r; p < 4; p++)
            sum[r] += f->from[p * (p + 1) / 2 + r] * state[p * lds];
        state[r * lds] = sum[r];
    }
}

static void cube_back(float *dv, int64_t ldv, const float *g, int64_t ldg, int n, int d,
                      const struct cubes *f, double *state)
{
    for (int64_t i = (n - 1) / CUBE_ROWS * CUBE_ROWS; i >= 0; i -= CUBE_ROWS)
        for (int c = 0; c < d; c++)
            cube_group_back(dv + i * ldv + c, ldv, g + i * ldg + c, ldg,
                            n - i < CUBE_ROWS ? n - i : CUBE_ROWS, f + i / CUBE_ROWS,
                            state + c, d);
}
