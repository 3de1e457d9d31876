/* positional_taps_back.c -- gradients of values, and of the weights, of convolutions.
 *
 * With weights made of x, the gradients of the logits of all rows are kept for the
 * products with x and W (positional_taps_params.c).  With constant weights dv is a
 * convolution too, with the taps reversed, and the gradient of the weights is summed
 * over all rows.
 */
#include <string.h>

#include "engine/positional/positional_taps.h"

/* Tiles of rows whose products are summed in f32 before they are added to doubles. */
enum { F32_TILES = 4 };

/* The gradients of the logits of n rows from i on. */
static void keep_logits(const struct positional_conv *c, int64_t i, int n, int64_t ldw)
{
    const struct positional *x = c->x;
    const struct seq        *s = c->at.s;
    const int64_t            taps = x->heads * positional_tap_count(x);

    for (int64_t t = 0; t < n; t++) {
        float *dw = c->r->dots + t * c->width;

        positional_softmax_back(dw, c->r->taps + t * ldw, c->width);
        memcpy(x->logits + (s->b * x->p->len_q + s->q0 + i + t) * taps + c->first, dw,
               (size_t)c->width * sizeof *dw);
    }
}

/* Store the rows of the window that no later block adds to, and move the others to its
 * front. */
static void slide_window(const struct positional_conv *c, int64_t first, int done,
                         int rows)
{
    const int64_t begin = max64(first, 0), end = min64(first + done, c->at.s->nk);
    const size_t  row = (size_t)c->at.ld * sizeof(float);

    if (begin < end)
        positional_store_dv(c->x, &c->at, begin, (int)(end - begin),
                            c->r->dv_window + (begin - first) * c->at.ld);
    memmove(c->r->dv_window, c->r->dv_window + (int64_t)done * c->at.ld,
            (size_t)(rows - done) * row);
    memset(c->r->dv_window + (int64_t)(rows - done) * c->at.ld, 0, (size_t)done * row);
}

static void backward_run(const struct positional_conv *c)
{
    const struct positional *x = c->x;
    const int                rows = ROWS + c->width - 1;
    int64_t                  i = 0;

    positional_conv_transpose(c);
    memset(c->r->dv_window, 0, (size_t)rows * (size_t)c->at.ld * sizeof(float));
    for (; i < c->at.s->nk; i += ROWS) {
        const int     n = (int)min64(ROWS, c->at.s->nk - i);
        const int64_t ldw = positional_conv_weights(c, i, n);

        positional_load_do(x, &c->at, i, n, c->r->tile);
        positional_conv_window(c, i - c->left, n + c->width - 1, false, c->r->window);
        x->k->taps_back(c->r->dv_window, c->r->tile, c->at.ld, n, c->at.ld, c->r->taps,
                        ldw, c->width);
        x->k->taps_dots(c->r->dots, c->width, c->r->tile, c->r->window, c->at.ld, n,
                        c->at.ld, c->width);
        keep_logits(c, i, n, ldw);
        slide_window(c, i - c->left, ROWS, rows);
    }
    slide_window(c, i - c->left, c->width - 1, rows);
}

/* Products of g and v of n rows from i on, added to lanes. */
static void sum_products(const struct positional_conv *c, int64_t i, int n, float *lanes)
{
    const struct positional *x = c->x;

    if (positional_conv_in_place(c, i, n, c->left)) {
        x->k->taps_sums(lanes, positional_do_at(x, &c->at, i), x->p->o.row,
                        positional_v_at(x, &c->at, i - c->left), x->p->v.row,
                        (int)x->p->dtype, n, c->at.ld, c->width);
        return;
    }
    positional_load_do(x, &c->at, i, n, c->r->tile);
    positional_conv_window(c, i - c->left, n + c->width - 1, false, c->r->window);
    x->k->taps_sums(lanes, c->r->tile, c->at.ld, c->r->window, c->at.ld, FOCI_F32, n,
                    c->at.ld, c->width);
}

/* Add the lanes of all runs to their sums, and clear them. */
static void add_lanes(const struct positional *x, const struct positional_head *at,
                      int64_t taps, struct positional_scratch *r)
{
    const int64_t all = x->heads * positional_tap_count(x);
    double *sums = x->sums + (at->s - x->seqs) * all + at->h * positional_tap_count(x);

    for (int64_t t = 0; t < taps; t++)
        for (int e = 0; e < TAPS_LANES; e++)
            sums[t] += (double)r->lanes[t * TAPS_LANES + e];
    memset(r->lanes, 0, (size_t)(taps * TAPS_LANES) * sizeof *r->lanes);
}

static void backward_constant(const struct positional      *x,
                              const struct positional_head *at, int64_t runs,
                              struct positional_scratch *r)
{
    const int64_t width = at->kind.width, n_all = at->s->nk;

    positional_constant_taps(x, at, runs, true, r);
    memset(r->lanes, 0, (size_t)(runs * width * TAPS_LANES) * sizeof *r->lanes);
    for (int64_t i = 0; i < n_all; i += ROWS) {
        const int n = (int)min64(ROWS, n_all - i);

        for (int64_t part = 0; part < runs; part++) {
            const struct positional_conv c = positional_conv_of(x, at, part, r);

            if (x->g->dv)
                positional_convolve(&c, i, n, true, r->taps + part * width, 0);
            if (x->g->dparams)
                sum_products(&c, i, n, r->lanes + part * width * TAPS_LANES);
        }
        if (i / ROWS % F32_TILES == F32_TILES - 1 || i + ROWS >= n_all)
            add_lanes(x, at, runs * width, r);
    }
}

void positional_taps_backward(const struct positional      *x,
                              const struct positional_head *at, int64_t heads,
                              struct positional_scratch *r)
{
    const int64_t runs = heads * at->kind.parts;

    if (!positional_taps_of_x(x)) {
        backward_constant(x, at, runs, r);
        return;
    }
    for (int64_t part = 0; part < runs; part++) {
        const struct positional_conv c = positional_conv_of(x, at, part, r);
        backward_run(&c);
    }
}
