/* recur.c -- the state of linear attention, updated by one token. */

static void recur(double *s, int64_t lds, const double *decay, const float *g,
                  const float *v, double *o, const float *f, int m)
{
    for (int i = 0; i < m; i++, s += lds)
        for (int64_t c = 0; c < lds; c++) {
            if (g) s[c] = decay[i] * s[c] + (double)g[i] * (double)v[c];
            if (f) o[c] += (double)f[i] * s[c];
        }
}

static void carry(double *s, int64_t lds, const double *decay, float *x, int64_t ldx,
                  int m)
{
    for (int i = 0; i < m; i++, s += lds, x += ldx)
        for (int64_t c = 0; c < lds; c++) {
            s[c] = decay[i] * s[c] + (double)x[c];
            x[c] = (float)s[c];
        }
}

/* e^(a - b), 0 where a is -inf whatever b is. */
static float exp_above(float a, float b) { return a == -INFINITY ? 0.0f : expf(a - b); }

static int log_key(float *l, float *c, float *factor, const float *top, int m)
{
    int moved = 0;

    for (int i = 0; i < m; i++) {
        factor[i] = 1.0f;
        if (top[i] > c[i] + 8.0f) {
            factor[i] = exp_above(c[i], top[i]);
            c[i] = top[i];
            moved = 1;
        }
        l[i] = exp_above(l[i], c[i]);
    }
    return moved;
}

static float log_query(float *l, const float *c, int m)
{
    float h = -INFINITY;

    for (int i = 0; i < m; i++) {
        l[i] += c[i];
        if (l[i] > h) h = l[i];
    }
    for (int i = 0; i < m; i++)
        l[i] = exp_above(l[i], h);
    return h;
}
