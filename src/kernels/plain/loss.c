/* loss.c -- cross-entropy of a row of logits, and its gradient. */

static void loss_row(void *out, int dtype, float *s, int d, struct loss_row *r)
{
    float most = -INFINITY, sum = 0.0f, all = 0.0f;

    r->best = 0;
    for (int c = 0; c < d; c++) {
        if (r->bias) s[c] += r->bias[c];
        if (s[c] > most) most = s[c], r->best = c;
        all += s[c];
    }
    const double hit = (double)most - (double)s[r->label];
    const double spread = (double)most - (double)all / d;
    const double part = (double)r->smoothing;

    for (int c = 0; c < d; c++) {
        const float e = expf(s[c] - most);

        sum += e;
        if (out) s[c] = e;
    }
    r->loss = log((double)sum) + (1 - part) * hit + (part > 0 ? part * spread : 0);
    if (!out) return;

    const float by = r->scale / sum, off = -r->scale * r->smoothing / (float)d;
    for (int c = 0; c < d; c++) {
        float x = s[c] * by + off;

        if (c == r->label) x -= r->scale * (1.0f - r->smoothing);
        set_element(out, c, dtype, x);
    }
}
