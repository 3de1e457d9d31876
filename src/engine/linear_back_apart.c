/* linear_back_apart.c -- gradients of what rows are divided by, where that is not the sum
 * of the weights their outputs are made of: under `rope`, whose denominators have features
 * that are not turned, and where every feature is divided by its own sum.
 *
 * Both are sums z of features of the keys that a lane sees, made lane by lane as a
 * recurrence, z_i = lam z_(i-1) + g_i, and gradients go back the same way.
 */
#include "engine/linear_back.h"

static float decay_of(const struct back *b, const struct chunk *c)
{
    const struct decay *d = back_decay(b, c);
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

void back_prefix(const struct back *b, struct back_room *r, const struct chunk *c,
                 const struct meeting *m)
{
    const struct linear *x = &b->x;
    const float          lam = decay_of(b, c);
    const int            len = back_length(c);

    for (int64_t t = 0; t < x->m; t++) {
        const float *g = r->k.t.f + t * CHUNK;
        float       *z = r->z + t * CHUNK, total = m->of[KEYS].total[t];

        for (int i = 0; i < CHUNK; i++)
            z[i] = total;
        if (b->near) prefix(g, lam, len, total, z);
        if (b->two) add_suffix(g, lam, len, m->of[KEYS_AFTER].total[t], z);
    }
}

/* dz of a feature: under rope f r, and df takes z r; else -f df/z. */
static void gradient_of_sum(const struct back *b, struct back_room *r, int64_t t)
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
                        float before, bool learns, float *dg)
{
    float  z[CHUNK];
    double slope = 0;

    if (learns) prefix(g, lam, len, before, z);
    for (int i = len; i-- > 0;) {
        const float u = dz[i] + rho;

        dg[i] += u;
        rho = lam * u;
        if (learns) slope += (double)u * (double)(i ? z[i - 1] : before);
    }
    return slope;
}

/* And keys after them. */
static double keys_after(const float *dz, const float *g, float lam, int len, float rho,
                         float after, bool learns, float *dg)
{
    float  z[CHUNK] = { 0 };
    double slope = 0;

    if (learns) add_suffix(g, lam, len, after, z);
    for (int i = 0; i < len; i++) {
        dg[i] += lam * rho;
        if (learns) slope += (double)rho * (double)(z[i] + g[i]);
        rho = lam * rho + dz[i];
    }
    return slope;
}

void back_apart(const struct back *b, struct back_room *r, const struct chunk *c,
                struct meeting m)
{
    const struct linear *x = &b->x;
    const float          lam = decay_of(b, c);
    const int            len = back_length(c);

    for (int64_t t = 0; t < x->m; t++) {
        const float *g = r->k.t.f + t * CHUNK, *dz = r->dz + t * CHUNK;
        float       *dg = r->dg + t * CHUNK;
        const float  rho = m.of[QUERIES].total[t], before = m.of[KEYS].total[t];

        gradient_of_sum(b, r, t);
        if (b->near)
            r->d_lam += keys_seen(dz, g, lam, len, rho, before, b->learns, dg);
        else
            for (int i = 0; i < CHUNK; i++)
                dg[i] += rho;
        if (b->two)
            r->d_lam += keys_after(dz, g, lam, len, m.of[QUERIES_BEFORE].total[t],
                                   m.of[KEYS_AFTER].total[t], b->learns, dg);
    }
}
