/* linear_back_den.c -- gradients of denominators that are not sums of the weights of
 * numerators: under RoPE, where denominators have unrotated features, and with
 * FOCI_LINEAR_NORM_FEATURE, where every feature is divided by its own sum.
 *
 * Both are sums z over the features of the keys that a lane sees, made lane by lane as
 * a recurrence z_i = lam z_(i-1) + g_i.  Gradients follow the same recurrence backward.
 */
#include "engine/linear/linear_back.h"

static float decay_of(const struct linear_back *b, const struct feature_chunk *c)
{
    const struct decay *d = linear_back_decay(b, c);
    return d ? (float)d->lam : 1;
}

/* Sums up to each lane, from that before the chunk on; those of keys after a lane. */
static void prefix(const float *g, float lam, int len, float run, float *z)
{
    for (int i = 0; i < len; i++)
        z[i] = run = lam * run + g[i];
}

static void add_suffix(const float *g, float lam, int len, float run, float *z)
{
    for (int i = len; i-- > 0;) {
        z[i] += run;
        run = lam * (run + g[i]);
    }
}

void linear_back_den_sums(const struct linear_back *b, struct linear_back_scratch *r,
                          const struct feature_chunk        *c,
                          const struct linear_back_boundary *m)
{
    const struct linear *x = &b->x;
    const float          lam = decay_of(b, c);
    const int            len = linear_back_length(c);

    for (int64_t t = 0; t < x->m; t++) {
        const float *g = r->k.t.f + t * CHUNK;
        float       *z = r->z + t * CHUNK, total = m->of[KEYS].total[t];

        for (int i = 0; i < CHUNK; i++)
            z[i] = total;
        if (b->intra) prefix(g, lam, len, total, z);
        if (b->bidirectional) add_suffix(g, lam, len, m->of[KEYS_AFTER].total[t], z);
    }
}

/* dz of a feature: under RoPE f r, and df += z r; with FOCI_LINEAR_NORM_FEATURE -f df/z. */
static void gradient_of_sum(const struct linear_back *b, struct linear_back_scratch *r,
                            int64_t t)
{
    const float *f = r->q.t.f + t * CHUNK, *z = r->z + t * CHUNK;
    float       *df = r->df + t * CHUNK, *dz = r->dz + t * CHUNK;

    for (int i = 0; i < CHUNK; i++) {
        if (b->by_feature) {
            dz[i] = z[i] == 0 ? 0 : -f[i] * df[i] / z[i];
            continue;
        }
        dz[i] = f[i] * r->r[i];
        df[i] += z[i] * r->r[i];
    }
}

/* Keys that queries at and after them see; `z` is made of them as prefix() does. */
static double keys_seen(const float *dz, const float *g, float lam, int len, float rho,
                        float before, bool decay_grad, float *dg)
{
    float  z[CHUNK];
    double slope = 0;

    if (decay_grad) prefix(g, lam, len, before, z);
    for (int i = len; i-- > 0;) {
        const float u = dz[i] + rho;

        dg[i] += u;
        rho = lam * u;
        if (decay_grad) slope += (double)u * (double)(i ? z[i - 1] : before);
    }
    return slope;
}

/* The same with the keys after each lane. */
static double keys_after(const float *dz, const float *g, float lam, int len, float rho,
                         float after, bool decay_grad, float *dg)
{
    float  z[CHUNK] = { 0 };
    double slope = 0;

    if (decay_grad) add_suffix(g, lam, len, after, z);
    for (int i = 0; i < len; i++) {
        dg[i] += lam * rho;
        if (decay_grad) slope += (double)rho * (double)(z[i] + g[i]);
        rho = lam * rho + dz[i];
    }
    return slope;
}

void linear_back_den(const struct linear_back *b, struct linear_back_scratch *r,
                     const struct feature_chunk *c, struct linear_back_boundary m)
{
    const struct linear *x = &b->x;
    const float          lam = decay_of(b, c);
    const int            len = linear_back_length(c);

    for (int64_t t = 0; t < x->m; t++) {
        const float *g = r->k.t.f + t * CHUNK, *dz = r->dz + t * CHUNK;
        float       *dg = r->dg + t * CHUNK;
        const float  rho = m.of[QUERIES].total[t], before = m.of[KEYS].total[t];

        gradient_of_sum(b, r, t);
        if (b->intra)
            r->d_lam += keys_seen(dz, g, lam, len, rho, before, b->decay_grad, dg);
        else
            for (int i = 0; i < CHUNK; i++)
                dg[i] += rho;
        if (b->bidirectional)
            r->d_lam += keys_after(dz, g, lam, len, m.of[QUERIES_BEFORE].total[t],
                                   m.of[KEYS_AFTER].total[t], b->decay_grad, dg);
    }
}

/* With all keys seen, the gradient of a feature's sum is that of its row. */
void linear_back_den_features(const struct linear *x, struct linear_sums keys,
                              struct linear_sums queries)
{
    for (int r = 0; r < x->m; r++) {
        const float *s = keys.rows + (int64_t)r * x->ldv;
        const float *q = queries.rows + (int64_t)r * x->ldv;
        double       dot = 0;

        for (int c = 0; c < x->dv; c++)
            dot += (double)s[c] * (double)q[c];
        queries.total[r] = keys.total[r] == 0 ? 0 : (float)(-dot / keys.total[r]);
    }
}
