/* linear_decay.c -- powers of the decay of each head, and sums of them. */
#include <math.h>

#include "engine/linear/linear_chunk.h"

double linear_lambda(const struct linear *x, int64_t h)
{
    const struct plan_group *g = x->stage->group;

    if (g->mech.def->n_tensors && g->param0[0] >= 0)
        return 1 / (1 + exp(-(double)x->io->params[g->param0[0] + h]));
    return g->mech.def->decay(&g->mech, h, g->heads);
}

static void make_decay(const struct linear *x, int64_t h, struct decay *d)
{
    double power = 1, before = 0; /* lam^t and lam^(t - 1) */

    d->lam = linear_lambda(x, h);
    for (int t = 0; t <= CHUNK; t++) {
        d->power[t] = (float)power;
        d->slope[t] = (float)(t * before);
        before = power;
        power *= d->lam;
    }
    for (int key = 0; key < CHUNK; key++)
        for (int lane = 0; lane < CHUNK; lane++) {
            const int t = lane - key;
            d->mask[key * CHUNK + lane] = t >= 0      ? d->power[t]
                                          : x->causal ? 0
                                                      : d->power[-t];
        }
}

void linear_decay_carve(struct linear *x, struct arena *a)
{
    if (!x->l->decays) return;
    x->decay = arena_alloc(a, x->heads, sizeof *x->decay);
    float *mask = arena_alloc(a, x->heads * CHUNK * CHUNK, sizeof *mask);
    for (int64_t h = 0; a->base && h < x->heads; h++) {
        x->decay[h].mask = mask + h * CHUNK * CHUNK;
        make_decay(x, h, &x->decay[h]);
    }
}

double linear_geometric_sum(double lam, int64_t n)
{
    if (n <= 0) return 0;
    if (lam >= 1) return (double)n;
    return lam > 0 ? expm1((double)n * log(lam)) / (lam - 1) : 1;
}

double linear_decay_sum(const struct linear *x, const struct feature_chunk *c, int lane)
{
    const double  lam = x->decay ? x->decay[c->h].lam : 1;
    const int64_t nk = c->seq->s.nk, at = c->pos + lane;
    const double  after = linear_geometric_sum(lam, nk - max64(at + 1, 0));

    if (x->causal) return linear_geometric_sum(lam, at + 1);
    if (at < 0) return pow(lam, (double)-at) * after;
    return linear_geometric_sum(lam, at + 1) + lam * after;
}

int64_t linear_visible(const struct linear *x, const struct feature_chunk *c, int lane)
{
    return x->causal ? max64(0, c->pos + lane + 1) : c->seq->s.nk;
}
