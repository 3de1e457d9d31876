/* layer_made.c -- parameters of a plan as its layer has them.
 *
 * They are the layer's last floats, but for R of txl, a row for each distance, which a
 * layer makes of its WR: R = waves WR, with the sinusoidal encoding of distances for waves
 * (Dai et al., "Transformer-XL", 2019, section 3.3).
 */
#include <math.h>

#include "ref/layer.h"

enum { OF_R = 2 }; /* the third tensor of txl */

/* The group whose R starts at this float of the plan; -1: none. */
static int maker(const struct ref_pass *x, int64_t offset)
{
    const struct spec *spec = &x->plan->spec;

    for (int g = 0; g < spec->n_groups; g++)
        for (size_t i = 0; i < spec->groups[g].mech.n_mods; i++)
            if (spec->groups[g].mech.mods[i].def->does & FOCI_MOD_TXL &&
                spec->groups[g].mod_param[i][OF_R] == offset)
                return g;
    return -1;
}

void ref_made_count(struct ref_pass *x)
{
    const foci_layer *layer = x->call->layer;

    x->own = foci_layer_param_count(layer) - x->plan->n_params;
    x->own_floats = foci_layer_param_floats(layer) - x->plan->n_floats;
    for (int i = 0; i < x->plan->n_params; i++)
        if (maker(x, x->plan->params[i].offset) >= 0) {
            x->own++;
            x->own_floats += x->plan->params[i].count;
        }
}

static double wave(const struct ref_pass *x, int64_t distance, int64_t c)
{
    const double width = (double)x->p.width;
    const double angle = (double)distance / pow(10000, (double)(c - c % 2) / width);

    return c % 2 ? cos(angle) : sin(angle);
}

/* Element e of row `row` of head h is made of column h dim + e of WR. */
static void make(const struct ref_pass *x, int g, const struct param *r, bool back)
{
    const int64_t rows = r->shape[1], dim = r->shape[2], cols = r->shape[0] * dim;
    const int64_t at = ref_offset(x, ref_find(x, g, "WR"));

    for (int64_t t = 0; t < r->count; t++) {
        const int64_t col = t / dim / rows * dim + t % dim, row = t / dim % rows;
        for (int64_t c = 0; c < x->p.width; c++) {
            const int64_t w = at + c * cols + col;
            if (back)
                x->call->dparams[w] += wave(x, row, c) * x->dplan[r->offset + t];
            else
                x->plan_params[r->offset + t] += wave(x, row, c) * x->call->params[w];
        }
    }
}

static void each(const struct ref_pass *x, bool back)
{
    int64_t stored = x->own_floats;

    for (int i = 0; i < x->plan->n_params; i++) {
        const struct param *p = &x->plan->params[i];
        const int           g = maker(x, p->offset);

        if (g >= 0) {
            make(x, g, p, back);
            continue;
        }
        for (int64_t t = p->offset; t < p->offset + p->count; t++, stored++)
            if (back)
                x->call->dparams[stored] += x->dplan[t];
            else
                x->plan_params[t] = x->call->params[stored];
    }
}

void ref_made_fill(const struct ref_pass *x) { each(x, false); }

void ref_made_back(const struct ref_pass *x)
{
    if (x->call->dparams) each(x, true);
}
