/* layer_gate.c -- activations and gates of gau and conv, between products and plan.
 *
 * gau (Hua et al., "Transformer quality in linear time", 2022): v = silu(w),
 * q = silu(z) gamma_q + beta_q, k likewise, and heads are multiplied by silu(u).
 * conv (Wu et al., "Pay less attention with lightweight and dynamic convolutions",
 * 2019): v = a sigmoid(b), a and b the two halves of the heads of u.
 */
#include <math.h>

#include "layer/layer.h"

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

static float silu(float x) { return x * sigmoid(x); }

static float silu_slope(float x)
{
    const float s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

/* Row number `row` of all runs of x, as queries count. */
static int64_t row_at(const struct layer_pass *x, int64_t i)
{
    int64_t r = 0;

    while (i >= x->runs[r].n)
        i -= x->runs[r++].n;
    return x->runs[r].q + i;
}

/* Rows in floats: number `slot` of those that a thread has. */
struct view {
    const struct layer_pass *x;
    int64_t                  row;
    float                   *scratch;
};

static struct view view_of(const struct layer_pass *x, int64_t i, int thread)
{
    return (struct view){ x, row_at(x, i), layer_scratch(x, thread) };
}

static float *get(const struct view *v, const struct layer_view *all, enum place place,
                  int64_t head, int slot)
{
    const struct layer_pass *x = v->x;
    float                   *out = v->scratch + slot * x->row_floats;

    x->layer->ctx->kernels.load_rows(
        out, x->row_floats, view_at(x->layer, &all[place], head, v->row),
        all[place].row, (int)x->layer->p.dtype, 1, (int)x->layer->places[place].dim);
    return out;
}

static void put(const struct view *v, const struct layer_view *all, enum place place,
                int64_t head, const float *row)
{
    const struct layer_pass *x = v->x;

    x->layer->ctx->kernels.store_rows(view_at(x->layer, &all[place], head, v->row),
                                      all[place].row, (int)x->layer->p.dtype, row,
                                      x->row_floats, 1, 1,
                                      (int)x->layer->places[place].dim);
}

static void run_rows(struct layer_pass *x, void (*job)(void *arg, int64_t i, int thread))
{
    const foci_ctx *ctx = x->layer->ctx;
    int64_t         rows = 0;

    for (int64_t i = 0; i < x->n_runs; i++)
        rows += x->runs[i].n;
    const struct phase all = { rows, 8, job, x };
    phases_run(&ctx->kernels, false,
               jobs_threads(ctx->threads, rows,
                            16 * (double)rows * (double)x->layer->p.value_dim),
               &all, 1);
}

/*
 * Forward
 */

static const float *tensor(const struct layer_pass *x, int which)
{
    return layer_tensor(x->layer, x->layer->gamma[which], x->io.params);
}

static void gau_job(void *arg, int64_t i, int thread)
{
    struct layer_pass         *x = arg;
    const struct view          v = view_of(x, i, thread);
    const struct layer_buffer *places = x->layer->places;
    float                     *w = get(&v, x->at, PLACE_W, 0, 0);

    for (int64_t c = 0; !x->active && c < places[PLACE_W].dim; c++)
        w[c] = silu(w[c]);
    put(&v, x->at, PLACE_V, 0, w);
    if (!places[PLACE_Z].heads) return;
    float *z = get(&v, x->at, PLACE_Z, 0, 1), *to = v.scratch + 2 * x->row_floats;
    for (int64_t c = 0; !x->active && c < places[PLACE_Z].dim; c++)
        z[c] = silu(z[c]);
    for (int which = 0; which < 2; which++) {
        const enum place place = which ? PLACE_K : PLACE_Q;
        const float     *gamma = tensor(x, 2 * which), *beta = tensor(x, 2 * which + 1);

        if (!places[place].heads) continue;
        for (int64_t c = 0; c < places[place].dim; c++)
            to[c] = z[c] * gamma[c] + beta[c];
        put(&v, x->at, place, 0, to);
    }
}

static void conv_job(void *arg, int64_t i, int thread)
{
    struct layer_pass *x = arg;
    const struct view  v = view_of(x, i, thread);
    const int64_t      heads = x->layer->p.kv_heads;

    for (int64_t h = 0; h < heads; h++) {
        float       *a = get(&v, x->at, PLACE_U, h, 0);
        const float *b = get(&v, x->at, PLACE_U, heads + h, 1);
        for (int64_t c = 0; c < x->layer->p.value_dim; c++)
            a[c] *= sigmoid(b[c]);
        put(&v, x->at, PLACE_V, h, a);
    }
}

void layer_gate(struct layer_pass *x)
{
    if (x->layer->p.kind == FOCI_LAYER_GAU) run_rows(x, gau_job);
    if (x->layer->p.kind == FOCI_LAYER_CONV) run_rows(x, conv_job);
}

static void out_job(void *arg, int64_t i, int thread)
{
    struct layer_pass *x = arg;
    const struct view  v = view_of(x, i, thread);
    float             *o = get(&v, x->at, PLACE_O, 0, 0);
    const float       *u = get(&v, x->at, PLACE_U, 0, 1);

    for (int64_t c = 0; c < x->layer->p.value_dim; c++)
        o[c] *= x->active ? u[c] : silu(u[c]);
    put(&v, x->at, PLACE_H, 0, o);
}

void layer_gate_out(struct layer_pass *x)
{
    if (x->layer->p.kind == FOCI_LAYER_GAU) run_rows(x, out_job);
}

/*
 * Backward
 */

static void out_back_job(void *arg, int64_t i, int thread)
{
    struct layer_pass *x = arg;
    const struct view  v = view_of(x, i, thread);
    float             *dh = get(&v, x->d, PLACE_H, 0, 0);
    float             *o = get(&v, x->at, PLACE_O, 0, 1);
    const float       *u = get(&v, x->at, PLACE_U, 0, 2);

    for (int64_t c = 0; c < x->layer->p.value_dim; c++) {
        o[c] *= dh[c] * silu_slope(u[c]);
        dh[c] *= silu(u[c]);
    }
    put(&v, x->d, PLACE_U, 0, o);
    put(&v, x->d, PLACE_O, 0, dh);
}

void layer_gate_out_back(struct layer_pass *x)
{
    if (x->layer->p.kind == FOCI_LAYER_GAU) run_rows(x, out_back_job);
}

static void gau_back_job(void *arg, int64_t i, int thread)
{
    struct layer_pass         *x = arg;
    const struct view          v = view_of(x, i, thread);
    const struct layer_buffer *places = x->layer->places;
    float                     *dv = get(&v, x->d, PLACE_V, 0, 0);
    const float               *w = get(&v, x->at, PLACE_W, 0, 1);

    for (int64_t c = 0; c < places[PLACE_W].dim; c++)
        dv[c] *= silu_slope(w[c]);
    put(&v, x->d, PLACE_W, 0, dv);
    if (!places[PLACE_Z].heads) return;
    const float *z = get(&v, x->at, PLACE_Z, 0, 1);
    float       *dz = v.scratch + 2 * x->row_floats;
    for (int64_t c = 0; c < places[PLACE_Z].dim; c++)
        dz[c] = 0;
    for (int which = 0; which < 2; which++) {
        const enum place place = which ? PLACE_K : PLACE_Q;
        const float     *gamma = tensor(x, 2 * which);

        if (!places[place].heads) continue;
        const float *d = get(&v, x->d, place, 0, 0);
        for (int64_t c = 0; c < places[place].dim; c++)
            dz[c] += d[c] * gamma[c] * silu_slope(z[c]);
    }
    put(&v, x->d, PLACE_Z, 0, dz);
}

/* Of gamma and beta: one thread has some columns and goes through all rows. */
static void gamma_job(void *arg, int64_t i, int thread)
{
    struct layer_pass *x = arg;
    const foci_layer  *layer = x->layer;
    const int          which = (int)(i % 2);
    const int64_t      col = i / 2 * FOCI_TILE;
    const enum place   place = which ? PLACE_K : PLACE_Q;
    const int          cols = (int)min64(FOCI_TILE, layer->p.head_dim - col);
    const size_t       el = foci_dtype_bytes(layer->p.dtype);
    float             *z = layer_scratch(x, thread), *d = z + x->row_floats;
    double             gamma[FOCI_TILE] = { 0 }, beta[FOCI_TILE] = { 0 };

    if (!layer->places[place].heads) return;
    for (int64_t r = 0; r < x->n_runs; r++)
        for (int64_t t = 0; t < x->runs[r].n; t++) {
            const int64_t row = x->runs[r].q + t;
            layer->ctx->kernels.load_rows(
                z, FOCI_TILE, view_at(layer, &x->at[PLACE_Z], 0, row) + (size_t)col * el,
                x->at[PLACE_Z].row, (int)layer->p.dtype, 1, cols);
            layer->ctx->kernels.load_rows(
                d, FOCI_TILE, view_at(layer, &x->d[place], 0, row) + (size_t)col * el,
                x->d[place].row, (int)layer->p.dtype, 1, cols);
            for (int c = 0; c < cols; c++) {
                gamma[c] += (double)(d[c] * silu(z[c]));
                beta[c] += (double)d[c];
            }
        }
    const int *at = which ? layer->gamma + 2 : layer->gamma;
    float     *to = x->g.dparams + layer->params[at[0]].offset + col;
    for (int c = 0; c < cols; c++)
        to[c] += (float)gamma[c];
    to = x->g.dparams + layer->params[at[1]].offset + col;
    for (int c = 0; c < cols; c++)
        to[c] += (float)beta[c];
}

static void conv_back_job(void *arg, int64_t i, int thread)
{
    struct layer_pass *x = arg;
    const struct view  v = view_of(x, i, thread);
    const int64_t      heads = x->layer->p.kv_heads;

    for (int64_t h = 0; h < heads; h++) {
        float       *d = get(&v, x->d, PLACE_V, h, 0);
        float       *a = get(&v, x->at, PLACE_U, h, 1);
        const float *b = get(&v, x->at, PLACE_U, heads + h, 2);
        for (int64_t c = 0; c < x->layer->p.value_dim; c++) {
            const float s = sigmoid(b[c]);
            a[c] *= d[c] * s * (1 - s);
            d[c] *= s;
        }
        put(&v, x->d, PLACE_U, h, d);
        put(&v, x->d, PLACE_U, heads + h, a);
    }
}

void layer_gate_back(struct layer_pass *x)
{
    const foci_layer *layer = x->layer;

    if (layer->p.kind == FOCI_LAYER_CONV) run_rows(x, conv_back_job);
    if (layer->p.kind != FOCI_LAYER_GAU) return;
    run_rows(x, gau_back_job);
    const struct phase sums = { 2 * div_up(layer->p.head_dim, FOCI_TILE), 1, gamma_job,
                                x };
    if (x->g.dparams && layer->places[PLACE_Z].heads)
        phases_run(&layer->ctx->kernels, false, layer->ctx->threads, &sums, 1);
}
