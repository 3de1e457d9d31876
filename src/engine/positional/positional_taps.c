/* positional_taps.c -- convolutions: rows as weighted sums of their neighbours.
 *
 *     o_i = sum over t of w_t v_(i + t - left),   w = softmax(W), or softmax(W x_i)
 *
 * for each run of a value's elements; values outside the sequence are zero.  Constant
 * weights need no scratch but the window of rows at the ends of a sequence.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/positional/positional_taps.h"

bool positional_is_taps(const foci_positional *p)
{
    return p->pattern == FOCI_PATTERN_TAPS || p->pattern == FOCI_PATTERN_TAPS_OF_X;
}

int64_t positional_tap_count(const struct positional *x)
{
    return positional_is_taps(&x->kind) ? x->kind.parts * x->kind.width : 0;
}

bool positional_taps_of_x(const struct positional *x)
{
    return x->kind.pattern == FOCI_PATTERN_TAPS_OF_X;
}

static struct positional_conv open_conv(const struct positional      *x,
                                        const struct positional_head *at, int64_t part,
                                        struct positional_scratch *r)
{
    const foci_positional *kind = &x->kind;
    const int64_t          size = positional_taps_of_x(x) ? x->p->dim_x : 1;
    struct positional_conv c = { .x = x,
                                 .at = *at,
                                 .r = r,
                                 .width = (int)kind->width,
                                 .first = (at->h * kind->parts + part) * kind->width };

    assert(kind->width <= MAX_TAPS);
    c.w = x->io->params + x->stage->group->param0[0] + c.first * size;
    c.left = x->causal ? c.width - 1 : (c.width + 2) / 2 - 1;
    c.at.width = (int)(x->dv / kind->parts);
    c.at.ld = (int)round_up(c.at.width, 16);
    c.at.column = part * c.at.width;
    return c;
}

void positional_conv_window(const struct positional_conv *c, int64_t first, int n,
                            bool grad, float *to)
{
    const int64_t begin = max64(first, 0), end = min64(first + n, c->at.s->nk);

    memset(to, 0, (size_t)n * (size_t)c->at.ld * sizeof *to);
    if (end <= begin) return;
    to += (begin - first) * c->at.ld;
    if (grad)
        positional_load_do(c->x, &c->at, begin, (int)(end - begin), to);
    else
        positional_load_v(c->x, &c->at, begin, (int)(end - begin), to);
}

void positional_softmax(float *z, int n)
{
    float  top = -INFINITY;
    double sum = 0;

    for (int t = 0; t < n; t++)
        if (!(z[t] <= top)) top = z[t];
    for (int t = 0; t < n; t++)
        sum += (double)(z[t] = expf(z[t] - top));
    for (int t = 0; t < n; t++)
        z[t] = (float)((double)z[t] / sum);
}

/* Floats of a row of weights or of W transposed. */
static int width_pad(int width) { return (int)round_up(width, 16); }

void positional_conv_transpose(const struct positional_conv *c)
{
    const int64_t d = c->x->p->dim_x, ld = width_pad(c->width);
    float        *to = c->r->w_cols;

    for (int64_t e = 0; e < d; e++)
        for (int t = 0; t < ld; t++)
            to[e * ld + t] = t < c->width ? c->w[t * d + e] : 0;
}

void positional_load_x(const struct positional *x, const struct seq *s, int64_t i,
                       int n, float *to)
{
    const foci_layout *l = &x->p->x;
    const int64_t      at = s->b * l->batch + (s->q0 + i) * l->row;

    x->k->load_rows(to, x->ldx, (const char *)x->io->x + (size_t)at * x->el, l->row,
                    (int)x->p->dtype, n, (int)x->p->dim_x);
}

int64_t positional_conv_weights(const struct positional_conv *c, int64_t i, int n)
{
    const struct positional *x = c->x;
    const int                ld = width_pad(c->width);

    positional_load_x(x, c->at.s, i, n, c->r->x_rows);
    x->k->gemm_f32(c->r->taps, ld, c->r->x_rows, x->ldx, 1, c->r->w_cols, ld, n, ld,
                   (int)x->p->dim_x, 0);
    for (int64_t t = 0; t < n; t++)
        positional_softmax(c->r->taps + t * ld, c->width);
    return ld;
}

bool positional_conv_in_place(const struct positional_conv *c, int64_t i, int n,
                              int left)
{
    const foci_dtype dtype = c->x->p->dtype;

    return i >= left && i - left + n + c->width - 1 <= c->at.s->nk &&
           c->at.width == c->at.ld && (dtype == FOCI_F32 || c->width <= TAPS_WIDTH);
}

/* Kernel `roll` for the columns that it has a form for, kernel `taps` for the
 * others. */
static void weigh_rows(const struct positional_conv *c, char *o, int64_t ldo,
                       const char *v, int64_t ldv, int dtype, int n, const float *taps,
                       int64_t ldw)
{
    const struct kernels *k = c->x->k;
    const int64_t         size = dtype == FOCI_F32 ? 4 : 2;
    const int             d = c->at.ld, non_temporal = c->x->non_temporal;
    int                   done = 0;

    if (!ldw) done = k->roll(o, ldo, v, ldv, dtype, n, d, taps, c->width, non_temporal);
    if (done == d) return;
    k->taps(o + done * size, ldo, v + done * size, ldv, dtype, n, d - done, taps, ldw,
            c->width, non_temporal);
}

void positional_convolve(const struct positional_conv *c, int64_t i, int n, bool back,
                         const float *taps, int64_t ldw)
{
    const struct positional *x = c->x;
    const int                left = back ? c->width - 1 - c->left : c->left;
    const foci_layout       *v = back ? &x->p->o : &x->p->v;
    const foci_layout       *o = back ? &x->p->v : &x->p->o;

    if (positional_conv_in_place(c, i, n, left) && !(back && x->dv_rows)) {
        char *to =
            back ? positional_dv_at(x, &c->at, i) : positional_o_at(x, &c->at, i);
        const char *from = back ? positional_do_at(x, &c->at, i - left)
                                : positional_v_at(x, &c->at, i - left);

        weigh_rows(c, to, o->row, from, v->row, (int)x->p->dtype, n, taps, ldw);
        return;
    }
    positional_conv_window(c, i - left, n + c->width - 1, back, c->r->window);
    x->k->taps(c->r->tile, c->at.ld, c->r->window, c->at.ld, FOCI_F32, n, c->at.ld,
               taps, ldw, c->width, 0);
    if (back)
        positional_store_dv(x, &c->at, i, n, c->r->tile);
    else
        positional_store_o(x, &c->at, i, n, c->r->tile);
}

static void forward_run(const struct positional_conv *c)
{
    positional_conv_transpose(c);
    for (int64_t i = 0; i < c->at.s->nk; i += ROWS) {
        const int     n = (int)min64(ROWS, c->at.s->nk - i);
        const int64_t ldw = positional_conv_weights(c, i, n);

        positional_convolve(c, i, n, false, c->r->taps, ldw);
    }
}

static struct positional_head head_after(const struct positional      *x,
                                         const struct positional_head *at, int64_t n)
{
    return n ? positional_head_of(x, at->s - x->seqs, at->h + n) : *at;
}

struct positional_conv positional_conv_of(const struct positional      *x,
                                          const struct positional_head *at,
                                          int64_t part, struct positional_scratch *r)
{
    const int64_t                parts = at->kind.parts;
    const struct positional_head one = head_after(x, at, part / parts);

    return open_conv(x, &one, part % parts, r);
}

void positional_constant_taps(const struct positional      *x,
                              const struct positional_head *at, int64_t runs,
                              bool reversed, struct positional_scratch *r)
{
    for (int64_t part = 0; part < runs; part++) {
        const struct positional_conv c = positional_conv_of(x, at, part, r);
        float                       *w = r->taps + part * c.width;

        for (int t = 0; t < c.width; t++)
            w[t] = c.w[reversed ? c.width - 1 - t : t];
        positional_softmax(w, c.width);
    }
}

/* With constant weights blocks of rows go through all heads, whose rows are adjacent.
 * With weights made of x a head goes through all rows, since W transposed is too large
 * to keep for all heads. */
void positional_taps_forward(const struct positional      *x,
                             const struct positional_head *at, int64_t heads,
                             struct positional_scratch *r)
{
    const int64_t runs = heads * at->kind.parts, width = at->kind.width;

    for (int64_t part = 0; part < runs && positional_taps_of_x(x); part++) {
        const struct positional_conv c = positional_conv_of(x, at, part, r);
        forward_run(&c);
    }
    if (positional_taps_of_x(x)) return;
    positional_constant_taps(x, at, runs, false, r);
    for (int64_t i = 0; i < at->s->nk; i += ROWS)
        for (int64_t part = 0; part < runs; part++) {
            const struct positional_conv c = positional_conv_of(x, at, part, r);
            positional_convolve(&c, i, (int)min64(ROWS, at->s->nk - i), false,
                                r->taps + part * width, 0);
        }
}

void positional_softmax_back(float *dw, const float *w, int n)
{
    double mean = 0;

    for (int t = 0; t < n; t++)
        mean += (double)w[t] * (double)dw[t];
    for (int t = 0; t < n; t++)
        dw[t] = (float)((double)w[t] * ((double)dw[t] - mean));
}

void positional_taps_carve(struct positional *x, bool backward, struct arena *a)
{
    const int64_t taps = x->heads * positional_tap_count(x);

    if (!taps || !backward) return;
    if (positional_taps_of_x(x)) {
        x->logits =
            arena_alloc(a, x->p->batch * x->p->len_q, (size_t)taps * sizeof(float));
        x->w_rows = arena_alloc(a, taps * x->ldx, sizeof *x->w_rows);
        x->dw_rows = arena_alloc(a, taps * x->ldx, sizeof *x->dw_rows);
        if (a->base)
            memset(x->logits, 0,
                   (size_t)(x->p->batch * x->p->len_q * taps) * sizeof *x->logits);
        return;
    }
    x->sums = arena_alloc(a, x->max_seqs * taps, sizeof *x->sums);
    if (a->base) memset(x->sums, 0, (size_t)(x->max_seqs * taps) * sizeof *x->sums);
}

void positional_taps_scratch_carve(const struct positional *x, struct arena *a,
                                   struct positional_scratch *r)
{
    const int64_t width = x->kind.width, pad = width_pad((int)width);

    if (!positional_tap_count(x)) return;
    r->window = arena_alloc(a, (ROWS + width - 1) * x->ldv, sizeof *r->window);
    r->dv_window = arena_alloc(a, (ROWS + width - 1) * x->ldv, sizeof *r->dv_window);
    r->lanes = arena_alloc(
        a, positional_taps_of_x(x) ? 0 : x->heads * positional_tap_count(x) * TAPS_LANES,
        sizeof *r->lanes);
    r->dots = arena_alloc(a, ROWS * width, sizeof *r->dots);
    r->taps = arena_alloc(a, max64(ROWS * pad, x->heads * positional_tap_count(x)),
                          sizeof *r->taps);
    r->w_cols = arena_alloc(a, positional_taps_of_x(x) ? x->p->dim_x * pad : 0,
                            sizeof *r->w_cols);
    r->x_rows = arena_alloc(a, positional_taps_of_x(x) ? (int64_t)ROWS * x->ldx : 0,
                            sizeof *r->x_rows);
}
