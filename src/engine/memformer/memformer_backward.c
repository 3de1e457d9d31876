/* memformer_backward.c -- gradients, from the last segment to the first.
 *
 * The slots before each segment are made again and kept, with the sums of their
 * writing.  The gradients of the slots after a segment give those of its keys, of its
 * values, of beta and of the slots before it, to which its queries add theirs.
 */
#include <math.h>
#include <string.h>

#include "engine/memformer/memformer.h"

/* The backward pass of one head of a sequence. */
struct memformer_back {
    const struct memformer   *x;
    struct memformer_scratch *r;
    const struct seq         *s;
    struct memformer_rows     rows;
    int64_t                   h, segments;
    double                   *dbeta; /* [slots][d] */
};

static size_t slots_floats(const struct memformer *x)
{
    return (size_t)x->slots * (size_t)x->ld;
}

static float *slots_before(const struct memformer_back *u, int64_t segment)
{
    return u->r->before + segment * (int64_t)slots_floats(u->x);
}

static void make_slots(const struct memformer_back *u)
{
    const struct memformer   *x = u->x;
    struct memformer_scratch *r = u->r;

    memformer_start(x, u->h, r);
    for (int64_t g = 0; g < u->segments; g++) {
        memcpy(slots_before(u, g), r->m, slots_floats(x) * sizeof *r->m);
        if (g + 1 == u->segments) break;
        memformer_begin_segment(x, r);
        memformer_write(x, &u->rows, g * x->r.segment, x->r.segment, r);
        memformer_end_segment(x, u->h, r, r->norms + g * x->slots,
                              r->sizes + g * x->slots);
    }
}

static double dot(const float *a, const float *b, int d)
{
    double sum = 0;
    for (int c = 0; c < d; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

/* dx = (dy - n (n.dy)) / size: the gradient of x from that of n = x / size. */
static void unit_back(const float *n, double size, const float *dy, float *dx, int d)
{
    const double along = dot(n, dy, d);

    for (int c = 0; c < d; c++)
        dx[c] = (float)(((double)dy[c] - (double)n[c] * along) / size);
}

/*
 * Writing
 */

/* Slot t: dy to r->y, gradients of beta and through the slot's own logit and value;
 * norm and y_dot for the softmax over the tokens. */
static void slot_back(const struct memformer_back *u, int64_t segment, int64_t t)
{
    const struct memformer   *x = u->x;
    struct memformer_scratch *r = u->r;
    const int64_t             at = t * x->ld;
    const double              size = (double)r->sizes[segment * x->slots + t];
    const float              *m = slots_before(u, segment) + at,
                *after = slots_before(u, segment + 1) + at;
    const float *beta = memformer_beta(x, u->h) + (int64_t)t * x->d;
    float       *dy = r->y + at, *d_slots = r->d_slots + at;

    if (size == 0) {
        memcpy(d_slots, r->next + at, (size_t)x->d * sizeof *d_slots);
        memset(dy, 0, (size_t)x->d * sizeof *dy);
        r->norm[t] = INFINITY;
        r->y_dot[t] = 0;
        return;
    }
    unit_back(after, size, r->next + at, dy, x->d);
    r->norm[t] = r->norms[segment * x->slots + t];
    const double along = size * dot(dy, after, x->d) - dot(dy, beta, x->d);
    const double own = (double)x->write_f[0] * dot(m, m, x->d);
    const double w = exp2(own - (double)r->norm[t]);
    const double ds = 2 * (double)x->write_scale * w * (dot(dy, m, x->d) - along);

    r->y_dot[t] = (float)along;
    for (int c = 0; c < x->d; c++) {
        d_slots[c] = (float)(w * (double)dy[c] + ds * (double)m[c]);
        u->dbeta[t * x->d + c] += (double)dy[c];
    }
}

static float *shared_row(const struct memformer_back *u, float *rows, int64_t j)
{
    const struct memformer *x = u->x;
    const int64_t           len = x->p->len_k, kv = u->h / x->per_kv;

    return rows + ((kv * x->p->batch + u->s->b) * len + u->s->k0 + j) * x->ld;
}

/* Store n rows of gradients.  Keys of the memory take none. */
static void store_tile(const struct memformer_back *u, void *base, const foci_layout *l,
                       int64_t j, int n, float *rows)
{
    const struct memformer *x = u->x;
    const int64_t           held = max64(0, min64(n, x->stage->memory - j));
    const int64_t           kv = x->kv0 + u->h / x->per_kv;

    if (!base) return;
    memset(rows, 0, (size_t)(held * x->ld) * sizeof *rows);
    x->k->store_rows((char *)base + (size_t)(u->s->b * l->batch +
                                             (u->s->k0 + j) * l->row + kv * l->head) *
                                        x->el,
                     l->row, (int)x->p->dtype, rows, x->ld, 1.0f, n, x->d);
}

static void add_slots(const struct memformer_back *u, int64_t segment,
                      const struct key_tile *tile, float *dk, float *dv)
{
    const struct memformer   *x = u->x;
    struct memformer_scratch *r = u->r;

    for (int t = 0; t < x->slots; t += LANES) {
        const int64_t          at = (int64_t)t * x->ld;
        const struct few_block b = { slots_before(u, segment) + at, r->y + at,
                                     r->mt + (int64_t)t * x->d,
                                     r->dyt + (int64_t)t * x->d,
                                     (int)min64(LANES, x->slots - t) };
        few_queries_backward(x->k, tile, x->write_f, x->write_scale, &b, r->norm + t,
                             r->y_dot + t, r->s, r->ds, dk, dv, r->d_slots + at);
    }
}

/* Gradients of the keys and values of n tokens from j on: zero in the last segment,
 * which is not written. */
static void tile_back(const struct memformer_back *u, int64_t segment, int64_t j, int n,
                      bool written)
{
    const struct memformer   *x = u->x;
    struct memformer_scratch *r = u->r;
    const bool                shared = x->per_kv > 1;
    float                    *dk = shared ? shared_row(u, x->dk_rows, j) : r->dk;
    float                    *dv = shared ? shared_row(u, x->dv_rows, j) : r->dv;

    if (u->h % x->per_kv == 0) {
        memset(dk, 0, (size_t)n * (size_t)x->ld * sizeof *dk);
        memset(dv, 0, (size_t)n * (size_t)x->ld * sizeof *dv);
    }
    if (written) {
        const struct key_tile tile = memformer_key_tile(x, &u->rows, j, n, r);
        add_slots(u, segment, &tile, dk, dv);
    }
    if (u->h % x->per_kv + 1 < x->per_kv) return;
    store_tile(u, x->g->dk, &x->p->k, j, n, dk);
    store_tile(u, x->g->dv, &x->p->v, j, n, dv);
}

static foci_range tokens_of(const struct memformer_back *u, int64_t segment)
{
    const int64_t from = segment * u->x->r.segment;
    return (foci_range){ from, min64(from + u->x->r.segment, u->s->nk) };
}

static void write_back(const struct memformer_back *u, int64_t segment)
{
    const struct memformer   *x = u->x;
    struct memformer_scratch *r = u->r;
    const foci_range          of = tokens_of(u, segment);
    const bool                written = segment + 1 < u->segments;

    memset(r->d_slots, 0, slots_floats(x) * sizeof *r->d_slots);
    for (int t = x->slots; t < x->padded; t++) {
        r->norm[t] = INFINITY;
        r->y_dot[t] = 0;
    }
    for (int t = 0; written && t < x->slots; t++)
        slot_back(u, segment, t);
    if (written) {
        memcpy(r->m, slots_before(u, segment), slots_floats(x) * sizeof *r->m);
        memformer_transpose(x, r->m, r->mt);
        memformer_transpose(x, r->y, r->dyt);
    }
    for (int64_t j = of.begin; j < of.end; j += LANES)
        tile_back(u, segment, j, (int)min64(LANES, of.end - j), written);
}

/*
 * Reading
 */

static void load(const struct memformer *x, const char *base, int64_t step, int64_t i,
                 int n, float *rows, float *transposed)
{
    x->k->load_rows(rows, x->ld, base + (size_t)(i * step) * x->el, step,
                    (int)x->p->dtype, n, x->d);
    x->k->pack_cols_f32(transposed, rows, x->ld, n, x->d);
}

static void block_back(const struct memformer_back *u, int64_t segment, int64_t i, int n)
{
    const struct memformer   *x = u->x;
    struct memformer_scratch *r = u->r;
    const foci_layout        *o = &x->p->o, *q = &x->p->q;
    const int64_t             head = x->head0 + u->h, b = u->s->b, row = u->s->q0 + i;
    const struct few_keys     few = memformer_few_keys(x, slots_before(u, segment));
    const struct few_block    block = { r->q, r->g, r->qt, r->gt, n };

    load(x, u->rows.q, u->rows.q_step, i, n, r->q, r->qt);
    load(x,
         (const char *)x->g->d_o +
             (size_t)(b * o->batch + row * o->row + head * o->head) * x->el,
         o->row, 0, n, r->g, r->gt);
    few_keys_backward(x->k, &few, x->f, x->scale, &block, r->s, r->ds, r->d_slots,
                      r->d_slots, r->out);
    if (!x->g->dq) return;
    for (int t = 0; t < LANES; t++)
        r->share[t] = 1;
    x->k->store_cols((char *)x->g->dq +
                         (size_t)(b * q->batch + row * q->row + head * q->head) * x->el,
                     q->row, (int)x->p->dtype, r->out, r->share, n, x->d);
}

static void read_back(const struct memformer_back *u, int64_t segment)
{
    const foci_range of = tokens_of(u, segment);

    for (int64_t i = of.begin; i < of.end; i += LANES)
        block_back(u, segment, i, (int)min64(LANES, of.end - i));
}

/* Backward of the first slots, beta/|beta|. */
static void start_back(const struct memformer_back *u)
{
    const struct memformer *x = u->x;

    for (int64_t t = 0; t < x->slots; t++) {
        const float *beta = memformer_beta(x, u->h) + t * x->d;
        const double size = sqrt(dot(beta, beta, x->d));
        float       *dy = u->r->y + t * x->ld;

        if (size == 0) continue;
        unit_back(u->r->before + t * x->ld, size, u->r->d_slots + t * x->ld, dy, x->d);
        for (int c = 0; c < x->d; c++)
            u->dbeta[t * x->d + c] += (double)dy[c];
    }
}

/* Gradients before a segment are those after the one before it. */
static void swap_gradients(struct memformer_scratch *r)
{
    float *const d_slots = r->d_slots;

    r->d_slots = r->next;
    r->next = d_slots;
}

void memformer_backward(const struct memformer *x, int64_t group, const struct seq *s,
                        int64_t h, struct memformer_scratch *r)
{
    const struct memformer_back u = { .x = x,
                                      .r = r,
                                      .s = s,
                                      .rows = memformer_rows_of(x, s, h),
                                      .h = h,
                                      .segments = div_up(s->nq, x->r.segment),
                                      .dbeta = x->dbeta + (group * x->heads + h) *
                                                              x->slots * x->d };

    make_slots(&u);
    memset(r->y, 0, (size_t)x->padded * (size_t)x->ld * sizeof *r->y);
    for (int64_t g = u.segments; g-- > 0;) {
        write_back(&u, g);
        read_back(&u, g);
        swap_gradients(r);
    }
    swap_gradients(r);
    start_back(&u);
}
