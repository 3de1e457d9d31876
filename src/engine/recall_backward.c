/* recall_backward.c -- slots backward through all segments.
 *
 * The slots before each segment are made again and kept, with the sums of their writing.
 * From the last segment on, the gradients of slots after a segment become those of its
 * keys, of its values, of beta and of the slots before it, to which its queries add theirs.
 */
#include <math.h>
#include <string.h>

#include "engine/recall.h"

/* A head of a sequence on its way back. */
struct unroll {
    const struct recall *x;
    struct recall_room  *r;
    const struct seq    *s;
    struct recall_rows   rows;
    int64_t              h, segments;
    double              *dbeta; /* [slots][d] */
};

static size_t state_floats(const struct recall *x)
{
    return (size_t)x->slots * (size_t)x->ld;
}

static float *state_at(const struct unroll *u, int64_t segment)
{
    return u->r->states + segment * (int64_t)state_floats(u->x);
}

static void make_states(const struct unroll *u)
{
    const struct recall *x = u->x;
    struct recall_room  *r = u->r;

    recall_start(x, u->h, r);
    for (int64_t g = 0; g < u->segments; g++) {
        memcpy(state_at(u, g), r->m, state_floats(x) * sizeof *r->m);
        if (g + 1 == u->segments) break;
        recall_open(x, r);
        recall_write(x, &u->rows, g * x->r.segment, x->r.segment, r);
        recall_close(x, u->h, r, r->norms + g * x->slots, r->size + g * x->slots);
    }
}

static double dot(const float *a, const float *b, int d)
{
    double sum = 0;
    for (int c = 0; c < d; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

/* dx = (dy - n (n.dy)) / size, n = x / size: from a gradient of n to that of x. */
static void unit_back(const float *n, double size, const float *dy, float *dx, int d)
{
    const double along = dot(n, dy, d);

    for (int c = 0; c < d; c++)
        dx[c] = (float)(((double)dy[c] - (double)n[c] * along) / size);
}

/*
 * Writing
 */

/* Slot t: dy, to r->y, of beta and of the slot itself; norm and delta of what it saw. */
static void slot_back(const struct unroll *u, int64_t segment, int t)
{
    const struct recall *x = u->x;
    struct recall_room  *r = u->r;
    const int64_t        at = (int64_t)t * x->ld;
    const double         size = (double)r->size[segment * x->slots + t];
    const float *m = state_at(u, segment) + at, *after = state_at(u, segment + 1) + at;
    const float *beta = recall_beta(x, u->h) + t * x->d;
    float       *dy = r->y + at, *now = r->now + at;

    if (size == 0) {
        memcpy(now, r->next + at, (size_t)x->d * sizeof *now);
        memset(dy, 0, (size_t)x->d * sizeof *dy);
        r->top[t] = INFINITY;
        r->sum[t] = 0;
        return;
    }
    unit_back(after, size, r->next + at, dy, x->d);
    r->top[t] = r->norms[segment * x->slots + t];
    const double along = size * dot(dy, after, x->d) - dot(dy, beta, x->d);
    const double own = (double)x->write_f[0] * dot(m, m, x->d);
    const double w = exp2(own - (double)r->top[t]);
    const double ds = 2 * (double)x->write_scale * w * (dot(dy, m, x->d) - along);

    r->sum[t] = (float)along;
    for (int c = 0; c < x->d; c++) {
        now[c] = (float)(w * (double)dy[c] + ds * (double)m[c]);
        u->dbeta[t * x->d + c] += (double)dy[c];
    }
}

static float *shared_row(const struct unroll *u, float *rows, int64_t j)
{
    const struct recall *x = u->x;
    const int64_t        len = x->p->len_k, kv = u->h / x->per_kv;

    return rows + ((kv * x->p->batch + u->s->b) * len + u->s->k0 + j) * x->ld;
}

/* n rows of gradients; the leading keys take none. */
static void store_tile(const struct unroll *u, void *base, const foci_layout *l,
                       int64_t j, int n, float *rows)
{
    const struct recall *x = u->x;
    const int64_t        held = max64(0, min64(n, x->stage->memory - j));
    const int64_t        kv = x->kv0 + u->h / x->per_kv;

    if (!base) return;
    memset(rows, 0, (size_t)(held * x->ld) * sizeof *rows);
    x->k->store_rows((char *)base + (size_t)(u->s->b * l->batch +
                                             (u->s->k0 + j) * l->row + kv * l->head) *
                                        x->el,
                     l->row, (int)x->p->dtype, rows, x->ld, 1.0f, n, x->d);
}

static void add_slots(const struct unroll *u, int64_t segment, const struct many *tile,
                      float *dk, float *dv)
{
    const struct recall *x = u->x;
    struct recall_room  *r = u->r;

    for (int t = 0; t < x->slots; t += LANES) {
        const int64_t            at = (int64_t)t * x->ld;
        const struct lanes_block b = { state_at(u, segment) + at, r->y + at,
                                       r->mt + (int64_t)t * x->d,
                                       r->dyt + (int64_t)t * x->d,
                                       (int)min64(LANES, x->slots - t) };
        lanes_gather_back(x->k, tile, x->write_f, x->write_scale, &b, r->top + t,
                          r->sum + t, r->s, r->ds, dk, dv, r->now + at);
    }
}

/* The keys and values of n tokens from j on; of a segment that was not written nothing
 * comes but zeros. */
static void tile_back(const struct unroll *u, int64_t segment, int64_t j, int n,
                      bool written)
{
    const struct recall *x = u->x;
    struct recall_room  *r = u->r;
    const bool           shared = x->per_kv > 1;
    float               *dk = shared ? shared_row(u, x->dk_rows, j) : r->dk;
    float               *dv = shared ? shared_row(u, x->dv_rows, j) : r->dv;

    if (u->h % x->per_kv == 0) {
        memset(dk, 0, (size_t)n * (size_t)x->ld * sizeof *dk);
        memset(dv, 0, (size_t)n * (size_t)x->ld * sizeof *dv);
    }
    if (written) {
        const struct many tile = recall_tile(x, &u->rows, j, n, r);
        add_slots(u, segment, &tile, dk, dv);
    }
    if (u->h % x->per_kv + 1 < x->per_kv) return;
    store_tile(u, x->g->dk, &x->p->k, j, n, dk);
    store_tile(u, x->g->dv, &x->p->v, j, n, dv);
}

static foci_range tokens_of(const struct unroll *u, int64_t segment)
{
    const int64_t from = segment * u->x->r.segment;
    return (foci_range){ from, min64(from + u->x->r.segment, u->s->nk) };
}

static void write_back(const struct unroll *u, int64_t segment)
{
    const struct recall *x = u->x;
    struct recall_room  *r = u->r;
    const foci_range     of = tokens_of(u, segment);
    const bool           written = segment + 1 < u->segments;

    memset(r->now, 0, state_floats(x) * sizeof *r->now);
    for (int t = x->slots; t < x->padded; t++) {
        r->top[t] = INFINITY;
        r->sum[t] = 0;
    }
    for (int t = 0; written && t < x->slots; t++)
        slot_back(u, segment, t);
    if (written) {
        memcpy(r->m, state_at(u, segment), state_floats(x) * sizeof *r->m);
        recall_turn(x, r->m, r->mt);
        recall_turn(x, r->y, r->dyt);
    }
    for (int64_t j = of.begin; j < of.end; j += LANES)
        tile_back(u, segment, j, (int)min64(LANES, of.end - j), written);
}

/*
 * Reading
 */

static void load(const struct recall *x, const char *base, int64_t step, int64_t i,
                 int n, float *rows, float *turned)
{
    x->k->load_rows(rows, x->ld, base + (size_t)(i * step) * x->el, step,
                    (int)x->p->dtype, n, x->d);
    x->k->pack_cols_f32(turned, rows, x->ld, n, x->d);
}

static void block_back(const struct unroll *u, int64_t segment, int64_t i, int n)
{
    const struct recall     *x = u->x;
    struct recall_room      *r = u->r;
    const foci_layout       *o = &x->p->o, *q = &x->p->q;
    const int64_t            head = x->head0 + u->h, b = u->s->b, row = u->s->q0 + i;
    const struct few         few = recall_few(x, state_at(u, segment));
    const struct lanes_block block = { r->q, r->g, r->qt, r->gt, n };

    load(x, u->rows.q, u->rows.q_step, i, n, r->q, r->qt);
    load(x,
         (const char *)x->g->d_o +
             (size_t)(b * o->batch + row * o->row + head * o->head) * x->el,
         o->row, 0, n, r->g, r->gt);
    lanes_read_back(x->k, &few, x->f, x->scale, &block, r->s, r->ds, r->now, r->now,
                    r->out);
    if (!x->g->dq) return;
    for (int t = 0; t < LANES; t++)
        r->share[t] = 1;
    x->k->store_cols((char *)x->g->dq +
                         (size_t)(b * q->batch + row * q->row + head * q->head) * x->el,
                     q->row, (int)x->p->dtype, r->out, r->share, n, x->d);
}

static void read_back(const struct unroll *u, int64_t segment)
{
    const foci_range of = tokens_of(u, segment);

    for (int64_t i = of.begin; i < of.end; i += LANES)
        block_back(u, segment, i, (int)min64(LANES, of.end - i));
}

/* Slots start as beta/|beta|. */
static void start_back(const struct unroll *u)
{
    const struct recall *x = u->x;

    for (int t = 0; t < x->slots; t++) {
        const float *beta = recall_beta(x, u->h) + t * x->d;
        const double size = sqrt(dot(beta, beta, x->d));
        float       *dy = u->r->y + (int64_t)t * x->ld;

        if (size == 0) continue;
        unit_back(u->r->states + (int64_t)t * x->ld, size,
                  u->r->now + (int64_t)t * x->ld, dy, x->d);
        for (int c = 0; c < x->d; c++)
            u->dbeta[t * x->d + c] += (double)dy[c];
    }
}

void recall_backward(const struct recall *x, int64_t group, const struct seq *s,
                     int64_t h, struct recall_room *r)
{
    const struct unroll u = { .x = x,
                              .r = r,
                              .s = s,
                              .rows = recall_rows_of(x, s, h),
                              .h = h,
                              .segments = div_up(s->nq, x->r.segment),
                              .dbeta =
                                  x->dbeta + (group * x->heads + h) * x->slots * x->d };

    make_states(&u);
    memset(r->y, 0, (size_t)x->padded * (size_t)x->ld * sizeof *r->y);
    for (int64_t g = u.segments; g-- > 0;) {
        write_back(&u, g);
        read_back(&u, g);
        float *const now = r->now;
        r->now = r->next;
        r->next = now;
    }
    float *const now = r->now;
    r->now = r->next;
    r->next = now;
    start_back(&u);
}
