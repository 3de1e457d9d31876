/* means.c -- running means of rows, and back. */

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

enum { CUBES = 14 };

static void cube_rows(float *o, int64_t ldo, const float *v, int64_t ldv, int n, int d,
                      const double *f, double *state)
{
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < d; c++) {
            const double *by = f + i * CUBES;

            for (int p = 3; p >= 0; p--) { /* those below are still of the row before */
                double sum = by[p] * (double)v[i * ldv + c];
                for (int r = 0; r <= p; r++)
                    sum += by[4 + p * (p + 1) / 2 + r] * state[r * d + c];
                state[p * d + c] = sum;
            }
            o[i * ldo + c] = (float)state[3 * d + c];
        }
}

static void cube_back(float *dv, int64_t ldv, const float *g, int64_t ldg, int n, int d,
                      const double *f, double *state)
{
    for (int64_t i = n - 1; i >= 0; i--)
        for (int c = 0; c < d; c++) {
            const double *by = f + i * CUBES;
            double        sum = 0;

            state[3 * d + c] += (double)g[i * ldg + c];
            for (int p = 0; p < 4; p++)
                sum += by[p] * state[p * d + c];
            for (int r = 0; r < 4; r++) { /* those above are still of the row after */
                double before = 0;
                for (int p = r; p < 4; p++)
                    before += by[4 + p * (p + 1) / 2 + r] * state[p * d + c];
                state[r * d + c] = before;
            }
            dv[i * ldv + c] = (float)sum;
        }
}
