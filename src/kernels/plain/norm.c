/* norm.c -- normalisation of rows, forward and backward. */

static void norm_rows(void *out, float *stats, const void *in, int dtype, int n, int d,
                      const struct norm *how)
{
    for (int64_t i = 0; i < n; i++) {
        float mean = 0.0f, variance = 0.0f;

        for (int c = 0; c < d && !how->rms; c++)
            mean += element(in, i * d + c, dtype);
        mean /= (float)d;
        for (int c = 0; c < d; c++) {
            const float x = element(in, i * d + c, dtype) - mean;
            variance += x * x;
        }
        const float by = 1.0f / sqrtf(variance / (float)d + how->eps);
        for (int c = 0; c < d; c++) {
            const float z = (element(in, i * d + c, dtype) - mean) * by;
            set_element(out, i * d + c, dtype,
                        z * (how->gain ? how->gain[c] : 1.0f) +
                            (how->bias ? how->bias[c] : 0.0f));
        }
        if (!stats) continue;
        stats[2 * i] = mean;
        stats[2 * i + 1] = by;
    }
}

static void norm_back(void *dx, const void *dy, const void *x, const void *more,
                      const float *stats, int dtype, int n, int d,
                      const struct norm *how, float *dgain, float *dbias)
{
    for (int64_t i = 0; i < n; i++) {
        const float mean = stats[2 * i], by = stats[2 * i + 1];
        float       g_mean = 0.0f, gz_mean = 0.0f;

        for (int c = 0; c < d; c++) {
            const float y = element(dy, i * d + c, dtype);
            const float g = y * (how->gain ? how->gain[c] : 1.0f);
            const float z = (element(x, i * d + c, dtype) - mean) * by;

            g_mean += g;
            gz_mean += g * z;
            if (dgain) dgain[c] += y * z;
            if (dbias) dbias[c] += y;
        }
        g_mean = how->rms ? 0.0f : g_mean / (float)d;
        gz_mean /= (float)d;
        for (int c = 0; c < d && dx; c++) {
            const float y = element(dy, i * d + c, dtype);
            const float g = y * (how->gain ? how->gain[c] : 1.0f);
            const float z = (element(x, i * d + c, dtype) - mean) * by;

            set_element(dx, i * d + c, dtype,
                        by * (g - g_mean - z * gz_mean) +
                            (more ? element(more, i * d + c, dtype) : 0.0f));
        }
    }
}
