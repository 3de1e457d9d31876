/* positional_taps.c -- convolutions: rows as weighed sums of their neighbours.
 *
 *     o_i = sum over t of w_t v_(i + t - left),   w = softmax(W), or softmax(W x_i)
 *
 * for each run of a value's elements.  A window of rows slides along the sequence; places
 * beyond its ends are zero.  Backward, the gradients of the logits of all rows are kept,
 * where x makes them, for the products with x and W.
 */
#include <math.h>
#include <string.h>

#include "engine/positional.h"

/* A run of elements of a head of a sequence. */
struct conv {
    const struct positional *x;
    struct place             at; /* with its columns */
    struct positional_room  *r;
    const float             *w; /* logits, or [width][dim_x] */
    int                      width, left;
    int64_t                  first; /* tap of the run among those of all heads */
};

/* Tiles of rows whose products are summed in floats. */
enum { TILES = 4 };

bool positional_is_taps(const foci_positional *p)
{
    return p->pattern == FOCI_PATTERN_TAPS || p->pattern == FOCI_PATTERN_TAPS_OF_X;
}

int64_t positional_taps_of(const struct positional *x)
{
    return positional_is_taps(&x->kind) ? x->kind.parts * x->kind.width : 0;
}

static bool of_x(const struct positional *x)
{
    return x->kind.pattern == FOCI_PATTERN_TAPS_OF_X;
}

static struct conv open_conv(const struct positional *x, const struct place *at,
                             int64_t part, struct positional_room *r)
{
    const foci_positional *what = &x->kind;
    const int64_t          size = of_x(x) ? x->p->dim_x : 1;
    struct conv            c = { .x = x,
                                 .at = *at,
                                 .r = r,
                                 .width = (int)what->width,
                                 .first = (at->h * what->parts + part) * what->width };

    c.w = x->io->params + x->stage->group->param0[0] + c.first * size;
    c.left = x->causal ? c.width - 1 : (c.width + 2) / 2 - 1;
    c.at.width = (int)(x->dv / what->parts);
    c.at.ld = (int)round_up(c.at.width, 16);
    c.at.column = part * c.at.width;
    return c;
}

/* Rows first to first + n of v or, with g, of the gradient; zero where there are none. */
static void load_window(const struct conv *c, int64_t first, int n, bool g, float *to)
{
    const int64_t begin = max64(first, 0), end = min64(first + n, c->at.s->nk);

    memset(to, 0, (size_t)n * (size_t)c->at.ld * sizeof *to);
    if (end <= begin) return;
    to += (begin - first) * c->at.ld;
    if (g)
        positional_load_g(c->x, &c->at, begin, (int)(end - begin), to);
    else
        positional_load_v(c->x, &c->at, begin, (int)(end - begin), to);
}

/* In place. */
static void softmax(float *z, int n)
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

static int width_pad(int width) { return (int)round_up(width, 16); }

/* W turned over, [dim_x][width], zero from width on. */
static void turn_over(const struct conv *c, float *to)
{
    const int64_t d = c->x->p->dim_x, ld = width_pad(c->width);

    for (int64_t e = 0; e < d; e++)
        for (int t = 0; t < ld; t++)
            to[e * ld + t] = t < c->width ? c->w[t * d + e] : 0;
}

static void load_x(const struct positional *x, const struct seq *s, int64_t i, int n,
                   float *to)
{
    const foci_layout *l = &x->p->x;
    const int64_t      at = s->b * l->batch + (s->q0 + i) * l->row;

    x->k->load_rows(to, x->ldx, (const char *)x->io->x + (size_t)at * x->el, l->row,
                    (int)x->p->dtype, n, (int)x->p->dim_x);
}

/* Weights of n rows from i on, where x makes them. */
static int64_t set_taps(const struct conv *c, int64_t i, int n)
{
    const struct positional *x = c->x;
    const int                ld = width_pad(c->width);

    load_x(x, c->at.s, i, n, c->r->xs);
    x->k->gemm_f32(c->r->taps, ld, c->r->xs, x->ldx, 1, c->r->net, ld, n, ld,
                   (int)x->p->dim_x, 0);
    for (int64_t t = 0; t < n; t++)
        softmax(c->r->taps + t * ld, c->width);
    return ld;
}

/* Whether the kernels take n rows from i on as they lie, with `left` rows before. */
static bool as_they_lie(const struct conv *c, int64_t i, int n, int left)
{
    const foci_dtype dtype = c->x->p->dtype;

    return i >= left && i - left + n + c->width - 1 <= c->at.s->nk &&
           c->at.width == c->at.ld && (dtype == FOCI_F32 || c->width <= TAPS_WIDTH);
}

/* Taps of all columns: by `roll` those of which it has a form. */
static void weigh_rows(const struct conv *c, char *o, int64_t ldo, const char *v,
                       int64_t ldv, int dtype, int n, const float *taps, int64_t ldw)
{
    const struct kernels *k = c->x->k;
    const int64_t         size = dtype == FOCI_F32 ? 4 : 2;
    const int             d = c->at.ld, far = c->x->streams;
    int                   done = 0;

    if (!ldw) done = k->roll(o, ldo, v, ldv, dtype, n, d, taps, c->width, far);
    if (done == d) return;
    k->taps(o + done * size, ldo, v + done * size, ldv, dtype, n, d - done, taps, ldw,
            c->width, far);
}

/* Sums of v to o or, back, of the gradient to dv. */
static void convolve(const struct conv *c, int64_t i, int n, bool back,
                     const float *taps, int64_t ldw)
{
    const struct positional *x = c->x;
    const int                left = back ? c->width - 1 - c->left : c->left;
    const foci_layout       *v = back ? &x->p->o : &x->p->v;
    const foci_layout       *o = back ? &x->p->v : &x->p->o;

    if (as_they_lie(c, i, n, left) && !(back && x->dv_rows)) {
        char *to =
            back ? positional_dv_at(x, &c->at, i) : positional_o_at(x, &c->at, i);
        const char *from = back ? positional_g_at(x, &c->at, i - left)
                                : positional_v_at(x, &c->at, i - left);

        weigh_rows(c, to, o->row, from, v->row, (int)x->p->dtype, n, taps, ldw);
        return;
    }
    load_window(c, i - left, n + c->width - 1, back, c->r->window);
    x->k->taps(c->r->tile, c->at.ld, c->r->window, c->at.ld, FOCI_F32, n, c->at.ld,
               taps, ldw, c->width, 0);
    if (back)
        positional_store_dv(x, &c->at, i, n, c->r->tile);
    else
        positional_store_o(x, &c->at, i, n, c->r->tile);
}

static void forward_run(const struct conv *c)
{
    turn_over(c, c->r->net);
    for (int64_t i = 0; i < c->at.s->nk; i += ROWS) {
        const int     n = (int)min64(ROWS, c->at.s->nk - i);
        const int64_t ldw = set_taps(c, i, n);

        convolve(c, i, n, false, c->r->taps, ldw);
    }
}

/* The run of a number, from those of the first head on. */
static struct conv run_of(const struct positional *x, const struct place *at,
                          int64_t part, struct positional_room *r)
{
    const int64_t      parts = at->what.parts;
    const struct place one = positional_beside(x, at, part / parts);

    return open_conv(x, &one, part % parts, r);
}

/* Weights of all runs that are the same for all rows, in r->taps; backward from the last
 * to the first. */
static void constant_taps(const struct positional *x, const struct place *at,
                          int64_t runs, bool back, struct positional_room *r)
{
    for (int64_t part = 0; part < runs; part++) {
        const struct conv c = run_of(x, at, part, r);
        float            *w = r->taps + part * c.width;

        for (int t = 0; t < c.width; t++)
            w[t] = c.w[back ? c.width - 1 - t : t];
        softmax(w, c.width);
    }
}

/* Heads take turns, as their rows lie; where weights are made of x, what makes them is
 * too much to take turns with. */
void taps_forward(const struct positional *x, const struct place *at, int64_t heads,
                  struct positional_room *r)
{
    const int64_t runs = heads * at->what.parts, width = at->what.width;

    for (int64_t part = 0; part < runs && of_x(x); part++) {
        const struct conv c = run_of(x, at, part, r);
        forward_run(&c);
    }
    if (of_x(x)) return;
    constant_taps(x, at, runs, false, r);
    for (int64_t i = 0; i < at->s->nk; i += ROWS)
        for (int64_t part = 0; part < runs; part++) {
            const struct conv c = run_of(x, at, part, r);
            convolve(&c, i, (int)min64(ROWS, at->s->nk - i), false,
                     r->taps + part * width, 0);
        }
}

/*
 * Backward
 */

/* From weights and their gradients to those of the logits, in place. */
static void softmax_back(float *dw, const float *w, int n)
{
    double mean = 0;

    for (int t = 0; t < n; t++)
        mean += (double)w[t] * (double)dw[t];
    for (int t = 0; t < n; t++)
        dw[t] = (float)((double)w[t] * ((double)dw[t] - mean));
}

/* The gradients of the weights of n rows from i on, to where they are kept. */
static void keep_logits(const struct conv *c, int64_t i, int n, int64_t ldw)
{
    const struct positional *x = c->x;
    const struct seq        *s = c->at.s;
    const int64_t            taps = x->heads * positional_taps_of(x);

    for (int64_t t = 0; t < n; t++) {
        float *dw = c->r->dots + t * c->width;

        softmax_back(dw, c->r->taps + t * ldw, c->width);
        memcpy(x->logits + (s->b * x->p->len_q + s->q0 + i + t) * taps + c->first, dw,
               (size_t)c->width * sizeof *dw);
    }
}

/* Rows of the window that no later block adds to go out; the others move to its front. */
static void slide(const struct conv *c, int64_t first, int done, int rows)
{
    const int64_t begin = max64(first, 0), end = min64(first + done, c->at.s->nk);
    const size_t  row = (size_t)c->at.ld * sizeof(float);

    if (begin < end)
        positional_store_dv(c->x, &c->at, begin, (int)(end - begin),
                            c->r->slide + (begin - first) * c->at.ld);
    memmove(c->r->slide, c->r->slide + (int64_t)done * c->at.ld,
            (size_t)(rows - done) * row);
    memset(c->r->slide + (int64_t)(rows - done) * c->at.ld, 0, (size_t)done * row);
}

static void backward_run(const struct conv *c)
{
    const struct positional *x = c->x;
    const int                rows = ROWS + c->width - 1;
    int64_t                  i = 0;

    turn_over(c, c->r->net);
    memset(c->r->slide, 0, (size_t)rows * (size_t)c->at.ld * sizeof(float));
    for (; i < c->at.s->nk; i += ROWS) {
        const int     n = (int)min64(ROWS, c->at.s->nk - i);
        const int64_t ldw = set_taps(c, i, n);

        positional_load_g(x, &c->at, i, n, c->r->tile);
        load_window(c, i - c->left, n + c->width - 1, false, c->r->window);
        x->k->taps_back(c->r->slide, c->r->tile, c->at.ld, n, c->at.ld, c->r->taps, ldw,
                        c->width);
        x->k->taps_dots(c->r->dots, c->width, c->r->tile, c->r->window, c->at.ld, n,
                        c->at.ld, c->width);
        keep_logits(c, i, n, ldw);
        slide(c, i - c->left, ROWS, rows);
    }
    slide(c, i - c->left, c->width - 1, rows);
}

/* Products of g and v of n rows from i on, added to lanes. */
static void sum_products(const struct conv *c, int64_t i, int n, float *lanes)
{
    const struct positional *x = c->x;

    if (as_they_lie(c, i, n, c->left)) {
        x->k->taps_sums(lanes, positional_g_at(x, &c->at, i), x->p->o.row,
                        positional_v_at(x, &c->at, i - c->left), x->p->v.row,
                        (int)x->p->dtype, n, c->at.ld, c->width);
        return;
    }
    positional_load_g(x, &c->at, i, n, c->r->tile);
    load_window(c, i - c->left, n + c->width - 1, false, c->r->window);
    x->k->taps_sums(lanes, c->r->tile, c->at.ld, c->r->window, c->at.ld, FOCI_F32, n,
                    c->at.ld, c->width);
}

/* Lanes of all runs to their sums; the lanes start again. */
static void add_lanes(const struct positional *x, const struct place *at, int64_t taps,
                      struct positional_room *r)
{
    const int64_t all = x->heads * positional_taps_of(x);
    double *sums = x->sums + (at->s - x->seqs) * all + at->h * positional_taps_of(x);

    for (int64_t t = 0; t < taps; t++)
        for (int e = 0; e < TAPS_LANES; e++)
            sums[t] += (double)r->lanes[t * TAPS_LANES + e];
    memset(r->lanes, 0, (size_t)(taps * TAPS_LANES) * sizeof *r->lanes);
}

/* Weights that are the same for all rows: dv is a convolution too, from the other side, and
 * products of rows are summed over all of them. */
static void backward_constant(const struct positional *x, const struct place *at,
                              int64_t runs, struct positional_room *r)
{
    const int64_t width = at->what.width, n_all = at->s->nk;

    constant_taps(x, at, runs, true, r);
    memset(r->lanes, 0, (size_t)(runs * width * TAPS_LANES) * sizeof *r->lanes);
    for (int64_t i = 0; i < n_all; i += ROWS) {
        const int n = (int)min64(ROWS, n_all - i);

        for (int64_t part = 0; part < runs; part++) {
            const struct conv c = run_of(x, at, part, r);

            if (x->g->dv) convolve(&c, i, n, true, r->taps + part * width, 0);
            if (x->g->dparams)
                sum_products(&c, i, n, r->lanes + part * width * TAPS_LANES);
        }
        if (i / ROWS % TILES == TILES - 1 || i + ROWS >= n_all)
            add_lanes(x, at, runs * width, r);
    }
}

void taps_backward(const struct positional *x, const struct place *at, int64_t heads,
                   struct positional_room *r)
{
    const int64_t runs = heads * at->what.parts;

    if (!of_x(x)) {
        backward_constant(x, at, runs, r);
        return;
    }
    for (int64_t part = 0; part < runs; part++) {
        const struct conv c = run_of(x, at, part, r);
        backward_run(&c);
    }
}

/* dW of constant taps, from their sums over the rows of each sequence. */
static void add_constant(const struct positional *x, float *dw)
{
    const int64_t taps = positional_taps_of(x) * x->heads, width = x->kind.width;
    const float  *w = x->io->params + x->stage->group->param0[0];

    for (int64_t t = 0; t < taps; t += width) {
        float now[MAX_TAPS], d[MAX_TAPS];

        memcpy(now, w + t, (size_t)width * sizeof *now);
        softmax(now, (int)width);
        for (int64_t e = 0; e < width; e++) {
            double sum = 0;
            for (int64_t s = 0; s < x->n_seqs; s++)
                sum += x->sums[s * taps + t + e];
            d[e] = (float)sum;
        }
        softmax_back(d, now, (int)width);
        for (int64_t e = 0; e < width; e++)
            dw[t + e] += d[e];
    }
}

/* dx of 64 rows: all taps of all heads by the rows of W. */
static void dx_job(void *arg, int64_t i, int thread)
{
    const struct positional *x = arg;
    const foci_layout       *l = &x->p->x;
    const int64_t            taps = x->heads * positional_taps_of(x),
                  blocks = div_up(x->p->len_q, ROWS);
    const int64_t b = i / blocks, row = i % blocks * ROWS;
    const int     n = (int)min64(ROWS, x->p->len_q - row), d = (int)x->p->dim_x;
    const size_t  at = (size_t)(b * l->batch + row * l->row) * x->el;
    struct positional_room r;

    positional_room_of(x, thread, &r);
    x->k->load_rows(r.xs, x->ldx, (char *)x->g->dx + at, l->row, (int)x->p->dtype, n, d);
    x->k->gemm_f32(r.xs, x->ldx, x->logits + (b * x->p->len_q + row) * taps, taps, 1,
                   x->net_rows, x->ldx, n, x->ldx, (int)taps, 1);
    x->k->store_rows((char *)x->g->dx + at, l->row, (int)x->p->dtype, r.xs, x->ldx,
                     1.0f, n, d);
}

/* dW of one head: rows of x by the gradients of its logits. */
static void dw_job(void *arg, int64_t h, int thread)
{
    const struct positional *x = arg;
    const int64_t            mine = positional_taps_of(x), taps = x->heads * mine;
    const int64_t            d = x->p->dim_x;
    float                   *sum = x->net_sums + h * mine * x->ldx;
    float *dw = x->g->dparams + x->stage->group->param0[0] + h * mine * d;
    struct positional_room r;

    positional_room_of(x, thread, &r);
    memset(sum, 0, (size_t)(mine * x->ldx) * sizeof *sum);
    for (int64_t s = 0; s < x->n_seqs; s++)
        for (int64_t i = 0; i < x->seqs[s].nq; i += ROWS) {
            const int     n = (int)min64(ROWS, x->seqs[s].nq - i);
            const int64_t row = x->seqs[s].b * x->p->len_q + x->seqs[s].q0 + i;

            load_x(x, &x->seqs[s], i, n, r.xs);
            x->k->gemm_f32(sum, x->ldx, x->logits + row * taps + h * mine, 1, taps,
                           r.xs, x->ldx, (int)mine, x->ldx, n, 1);
        }
    for (int64_t t = 0; t < mine; t++)
        for (int64_t e = 0; e < d; e++)
            dw[t * d + e] += sum[t * x->ldx + e];
}

void taps_finish(struct positional *x)
{
    const foci_plan *plan = x->plan;
    const int64_t    taps = x->heads * positional_taps_of(x), d = x->p->dim_x;

    if (!of_x(x)) {
        if (x->g->dparams) add_constant(x, x->g->dparams + x->stage->group->param0[0]);
        return;
    }
    for (int64_t t = 0; t < taps; t++)
        for (int64_t e = 0; e < x->ldx; e++)
            x->net_rows[t * x->ldx + e] =
                e < d ? x->io->params[x->stage->group->param0[0] + t * d + e] : 0;
    const struct phase phases[] = {
        { x->g->dx ? x->p->batch * div_up(x->p->len_q, ROWS) : 0, 1, dx_job, x },
        { x->g->dparams ? x->heads : 0, 1, dw_job, x },
    };
    phases_run(x->k, plan->shared, plan->ctx->threads, phases, 2);
}

void taps_take(struct positional *x, bool backward, struct arena *a)
{
    const int64_t taps = x->heads * positional_taps_of(x);

    if (!taps || !backward) return;
    if (of_x(x)) {
        x->logits =
            arena_take(a, x->p->batch * x->p->len_q, (size_t)taps * sizeof(float));
        x->net_rows = arena_take(a, taps * x->ldx, sizeof *x->net_rows);
        x->net_sums = arena_take(a, taps * x->ldx, sizeof *x->net_sums);
        if (a->base)
            memset(x->logits, 0,
                   (size_t)(x->p->batch * x->p->len_q * taps) * sizeof *x->logits);
        return;
    }
    x->sums = arena_take(a, x->max_seqs * taps, sizeof *x->sums);
    if (a->base) memset(x->sums, 0, (size_t)(x->max_seqs * taps) * sizeof *x->sums);
}

void taps_room(const struct positional *x, struct arena *a, struct positional_room *r)
{
    const int64_t width = x->kind.width, pad = width_pad((int)width);

    if (!positional_taps_of(x)) return;
    r->window = arena_take(a, (ROWS + width - 1) * x->ldv, sizeof *r->window);
    r->slide = arena_take(a, (ROWS + width - 1) * x->ldv, sizeof *r->slide);
    r->lanes =
        arena_take(a, of_x(x) ? 0 : x->heads * positional_taps_of(x) * TAPS_LANES,
                   sizeof *r->lanes);
    r->dots = arena_take(a, ROWS * width, sizeof *r->dots);
    r->taps = arena_take(a, max64(ROWS * pad, x->heads * positional_taps_of(x)),
                         sizeof *r->taps);
    r->net = arena_take(a, of_x(x) ? x->p->dim_x * pad : 0, sizeof *r->net);
    r->xs = arena_take(a, of_x(x) ? (int64_t)ROWS * x->ldx : 0, sizeof *r->xs);
}

/*
 * Token by token: the last width - 1 values of the head are kept
 */

size_t taps_state_bytes(const struct positional *x)
{
    return (size_t)(x->kind.width - 1) * (size_t)x->ldv * sizeof(float);
}

/* v joins the rows kept, of which the oldest is dropped; o is their sum. */
void taps_token(const struct positional *x, const float *params, int64_t h, float *kept,
                const float *v, const float *xs, float *o, struct positional_room *r)
{
    const foci_positional *p = &x->kind;
    const int64_t          width = p->width, d = x->p->dim_x, each = x->dv / p->parts;
    const float           *w = params + x->stage->group->param0[0];

    for (int64_t part = 0; part < p->parts; part++) {
        const int64_t first = (h * p->parts + part) * width;

        for (int64_t t = 0; o && t < width; t++) {
            double z = of_x(x) ? 0 : (double)w[first + t];
            for (int64_t e = 0; of_x(x) && e < d; e++)
                z += (double)w[(first + t) * d + e] * (double)xs[e];
            r->taps[t] = (float)z;
        }
        if (o) softmax(r->taps, (int)width);
        for (int64_t c = part * each; o && c < (part + 1) * each; c++) {
            float sum = r->taps[width - 1] * v[c];
            for (int64_t t = 0; t < width - 1; t++)
                sum += r->taps[t] * kept[t * x->ldv + c];
            o[c] = sum;
        }
    }
    if (width < 2) return;
    memmove(kept, kept + x->ldv, (size_t)(width - 2) * (size_t)x->ldv * sizeof *kept);
    memcpy(kept + (width - 2) * x->ldv, v, (size_t)x->ldv * sizeof *kept);
}
