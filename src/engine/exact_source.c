/* exact_source.c -- logits from parameters and from nets of each token: what is packed of
 * them, and tiles of scores. */
#include <math.h>
#include <string.h>

#include "engine/exact_pack.h"
#include "engine/exact_score.h"
#include "engine/exact_tiles.h"

/* Sums of values, of all sequences that are taken together, that stay in the cache. */
enum { FOLD_BYTES = 256 << 10 };

/*
 * Widths and memory
 */

static void shape_of(const struct exact *x, int tensor, int64_t shape[2])
{
    const foci_mech *m = &x->stage->group->mech;

    shape[0] = shape[1] = 0;
    m->def->tensors[tensor].shape(m, m->arg, shape);
}

static struct source_net net_at(const struct exact *x, int first)
{
    const int64_t *at = x->stage->group->param0 + first;
    int64_t        one[2], two[2];

    shape_of(x, first, one);
    shape_of(x, first + 2, two);
    return (struct source_net){ at[0],       at[1],       at[2],      at[3],
                                (int)one[0], (int)one[1], (int)two[1] };
}

void exact_source_geometry(struct exact *x)
{
    const foci_mech *m = &x->stage->group->mech;
    const int64_t   *at = x->stage->group->param0;
    const unsigned   from = mech_sources(m);
    struct sources  *s = &x->from;
    int64_t          shape[2];

    *s = (struct sources){ .qk = from & FOCI_SOURCE_QK,
                           .from = from & ~(unsigned)FOCI_SOURCE_QK };
    if (!s->from) return;
    s->r = at[FOCI_AT_R];
    s->r1 = at[FOCI_AT_R1];
    s->r2 = at[FOCI_AT_R2];
    s->mix = at[FOCI_AT_MIX];
    s->tiles = div_up(x->p->len_k, TILE);
    s->ldx = (int)round_up(x->p->dim_x, 16);
    if (s->from & FOCI_SOURCE_TABLE) {
        const foci_tensor_def *r = &m->def->tensors[FOCI_AT_R];
        shape_of(x, FOCI_AT_R, shape);
        s->max = shape[1];
        s->frozen = r->keep != FOCI_TRAINED || (r->frozen && r->frozen(m, m->arg));
    }
    if (s->from & FOCI_SOURCE_FACTORS) {
        shape_of(x, FOCI_AT_R1, shape);
        s->rank = (int)shape[1];
    }
    if (s->from & FOCI_SOURCE_NET) s->net = net_at(x, FOCI_AT_W1);
    if (s->from & FOCI_SOURCE_OUTER) {
        s->a = net_at(x, FOCI_AT_W1A);
        s->b = net_at(x, FOCI_AT_W1B);
    }
    s->w = s->rank + s->net.inside;
    s->w_pad = (int)round_up(s->w, x->bf16 ? x->k->depth : 1);
    s->ldw = (int)round_up(s->w, x->group);
    s->size = (size_t)(x->bf16 ? s->w_pad * 2 : s->ldw * (int)sizeof(float)) * TILE;
}

/* Multiplications of a row in a net. */
static double net_work(const struct source_net *n, bool second)
{
    return (double)n->inside * ((double)n->x + (second ? (double)n->out : 0));
}

void exact_source_cost(const struct exact *x, double pairs, foci_cost *c)
{
    const struct sources *s = &x->from;
    const double          heads = (double)x->heads, batch = (double)x->p->batch;
    const double          rows = batch * heads * (double)x->p->len_q;
    const double          net =
        net_work(&s->net, false) + net_work(&s->a, true) + net_work(&s->b, true);
    const double tables = (double)div_up(x->p->batch, exact_fold_most(x));

    if (!s->from) return;
    c->forward_flops += 2 * (batch * heads * pairs * (double)s->w + rows * net);
    c->backward_flops +=
        2 * (batch * heads * pairs * 3 * (double)s->w + rows * 3 * net);
    if (!(s->from & FOCI_SOURCE_TABLE)) return;
    c->forward_bytes += tables * heads * pairs * sizeof(float);
    c->backward_bytes += tables * heads * pairs * 3 * sizeof(float);
}

void exact_source_take(struct exact *x, struct arena *a, bool back)
{
    struct sources *s = &x->from;
    const int64_t   pieces = exact_source_tiles(x);

    if (!s->from) return;
    s->share = arena_take(a, x->heads, sizeof *s->share);
    s->keys = arena_take(a, pieces, s->size);
    s->sum = back && x->bf16 ? arena_take(a, pieces, s->size) : NULL;
    s->bad = arena_take(a, pieces, 1);
}

struct source_room exact_source_room(const struct exact *x, bool back, struct arena *a)
{
    const struct sources *s = &x->from;
    const int             in = exact_source_nets(x) ? s->ldx : 0;
    const int64_t inside = max64(s->net.inside, max64(s->a.inside, s->b.inside));
    const int64_t wide =
        round_up(max64(inside, max64(s->a.out, s->b.out)), 16); /* rows of gradients */
    const bool         turns = back && s->from & FOCI_SOURCE_TABLE && x->max_seqs > 1;
    struct source_room r;

    r.rows = arena_take(a, LANES * (int64_t)s->ldw, sizeof(float));
    r.q = arena_take(a, LANES * (int64_t)s->ldw, sizeof(float));
    r.x = arena_take(a, LANES * (int64_t)in, sizeof(float));
    r.xt = arena_take(a, LANES * (int64_t)in, sizeof(float));
    r.h = arena_take(a, LANES * inside, sizeof(float));
    r.ab = arena_take(a, LANES * (int64_t)(s->a.out + s->b.out), sizeof(float));
    r.tile = arena_take(a, s->from ? (int64_t)LANES * TILE : 0, sizeof(float));
    r.ds = arena_take(a, s->from && back ? (int64_t)LANES * TILE : 0, sizeof(float));
    r.d_out = arena_take(a, back ? LANES * wide : 0, sizeof(float));
    r.turned = arena_take(a, back ? LANES * wide : 0, sizeof(float));
    r.strip = arena_take(a, back ? LANES * wide : 0, sizeof(float));
    r.inside = arena_take(a, back ? LANES * wide : 0, sizeof(float));
    r.columns =
        arena_take(a, turns ? x->per_kv * s->tiles * TILE * LANES : 0, sizeof(float));
    return r;
}

bool exact_source_nets(const struct exact *x)
{
    return x->from.from & (FOCI_SOURCE_NET | FOCI_SOURCE_OUTER);
}

bool exact_source_scores(const struct exact *x) { return x->from.from && !x->from.qk; }

bool exact_source_biases(const struct exact *x) { return x->from.from && x->from.qk; }

int64_t exact_source_tiles(const struct exact *x)
{
    return x->from.w ? x->heads * x->from.tiles : 0;
}

/*
 * Weights of sources
 */

double exact_source_share(const struct exact *x, int64_t h, int source)
{
    return x->from.share ? x->from.share[h][source] : 1;
}

/* A lone source counts whole; several by the softmax of their logits. */
void exact_source_shares(unsigned from, const float *mix, double share[N_SOURCES])
{
    double top = -INFINITY, sum = 0;
    int    n = 0;

    for (int s = 0; s < N_SOURCES; s++) {
        share[s] = from >> s & 1 ? (mix ? (double)mix[n++] : 0) : -INFINITY;
        top = fmax(top, share[s]);
    }
    for (int s = 0; s < N_SOURCES; s++) {
        share[s] = from >> s & 1 ? exp(share[s] - top) : 0;
        sum += share[s];
    }
    for (int s = 0; s < N_SOURCES; s++)
        share[s] /= sum;
}

/* The softmax of as many logits as there are sources. */
void exact_source_open(const struct exact *x)
{
    const struct sources *s = &x->from;
    const unsigned        from = s->from | (s->qk ? FOCI_SOURCE_QK : 0);
    const int             n = __builtin_popcount(from);

    for (int64_t h = 0; s->from && h < x->heads; h++)
        exact_source_shares(from, s->mix < 0 ? NULL : x->io->params + s->mix + h * n,
                            s->share[h]);
}

/*
 * Keys
 */

/* Keys of head h from j0 on as floats, tile[TILE][ldw]. */
void exact_source_keys(const struct exact *x, int64_t h, int64_t j0, float *tile)
{
    const struct sources *s = &x->from;
    const int             n = (int)min64(TILE, x->p->len_k - j0);
    const int64_t         max = s->net.out;
    const float          *params = x->io->params;

    memset(tile, 0, (size_t)TILE * (size_t)s->ldw * sizeof *tile);
    if (s->rank) {
        int64_t shape[2];
        shape_of(x, FOCI_AT_R2, shape);
        const float *r2 = params + s->r2 + (h * shape[0] + j0) * s->rank;
        for (int j = 0; j < n; j++)
            memcpy(tile + (int64_t)j * s->ldw, r2 + (int64_t)j * s->rank,
                   (size_t)s->rank * sizeof *tile);
    }
    const float *w2 = params + s->net.w2 + h * s->net.inside * max + j0;
    for (int c = 0; c < s->net.inside; c++)
        for (int j = 0; j < n; j++)
            tile[(int64_t)j * s->ldw + s->rank + c] = w2[c * max + j];
}

void exact_source_make(const struct exact *x, int64_t at, struct source_room *r)
{
    const struct sources *s = &x->from;
    const int64_t         h = at / s->tiles, j0 = at % s->tiles * TILE;
    const int             n = (int)min64(TILE, x->p->len_k - j0);

    exact_source_keys(x, h, j0, r->rows);
    s->bad[at] = !exact_finite(x, r->rows, s->ldw, s->w, n);
    exact_pack(x, r->rows, s->ldw, s->w_pad, n, s->keys, s->sum, s->size, (size_t)at);
}

/*
 * Rows of a block
 */

/* Hidden states of a block, as rows and turned over. */
static void load_x(const struct exact *x, const struct block *b, struct source_room *r)
{
    const foci_layout *l = &x->p->x;
    const struct seq  *s = &b->seq->s;
    const int          ld = x->from.ldx, d = (int)x->p->dim_x;
    const char        *rows = (const char *)x->io->x +
                       (size_t)(s->b * l->batch + (s->q0 + b->i0 + b->r0) * l->row) *
                           foci_dtype_bytes(x->p->dtype);

    memset(r->x, 0, (size_t)LANES * (size_t)ld * sizeof *r->x);
    x->k->load_rows(r->x + (int64_t)b->r0 * ld, ld, rows, l->row, (int)x->p->dtype,
                    b->r1 - b->r0, d);
    x->k->pack_cols_f32(r->xt, r->x, ld, LANES, d);
}

void exact_source_x(const struct exact *x, const struct block *b, struct source_room *r)
{
    if (exact_source_nets(x)) load_x(x, b, r);
}

const float *exact_source_factor(const struct exact *x, int64_t h, int64_t pos)
{
    int64_t shape[2];

    shape_of(x, FOCI_AT_R1, shape);
    return x->io->params + x->from.r1 + (h * shape[0] + pos) * shape[1];
}

static void fill(float *row, int n, float with)
{
    for (int i = 0; i < n; i++)
        row[i] = with;
}

void exact_source_rows(const struct exact *x, const struct block *b,
                       struct source_room *r)
{
    const struct sources *s = &x->from;
    const int64_t         h = b->h - x->head0;
    _Alignas(64) float    share[LANES];

    if (!s->from) return;
    exact_source_x(x, b, r);
    memset(r->rows, 0, (size_t)LANES * (size_t)s->ldw * sizeof *r->rows);
    for (int i = b->r0; s->rank && i < b->r1; i++) {
        const float *row = exact_source_factor(x, h, b->pos + i);
        const float  by = (float)s->share[h][OF_FACTORS];
        for (int c = 0; c < s->rank; c++)
            r->rows[(int64_t)i * s->ldw + c] = by * row[c];
    }
    if (s->net.inside) {
        fill(share, LANES, (float)s->share[h][OF_NET]);
        exact_net_inside(x, &s->net, h, r);
        x->k->store_cols(r->rows + s->rank, s->ldw, FOCI_F32, r->h, share, LANES,
                         s->net.inside);
    }
    if (!s->a.out) return;
    const struct layer a = exact_net_second(x, &s->a, h);
    const struct layer n = exact_net_second(x, &s->b, h);
    fill(share, LANES, (float)s->share[h][OF_OUTER]);
    exact_net_inside(x, &s->a, h, r);
    layer_apply(&a, r->h, r->ab);
    x->k->shrink(r->ab, s->a.out, share);
    exact_net_inside(x, &s->b, h, r);
    layer_apply(&n, r->h, r->ab + (int64_t)s->a.out * LANES);
}

/* What sources are multiplied by where they come as a bias. */
static float unit_of(const struct exact *x)
{
    return x->from.qk ? (float)exact_bias_unit(x) : 1;
}

void exact_source_pack(const struct exact *x, float *rows, void *cols)
{
    const struct sources *s = &x->from;
    const float           unit = unit_of(x);

    for (int64_t i = 0; unit != 1 && i < (int64_t)LANES * s->ldw; i++)
        rows[i] *= unit;
    if (!s->w) return;
    if (x->bf16)
        x->k->pack_cols_bf16(cols, rows, s->ldw, LANES, s->w_pad);
    else
        x->k->pack_cols_f32(cols, rows, s->ldw, LANES, s->w);
}

void exact_source_begin(const struct exact *x, const struct block *b,
                        struct source_room *r)
{
    if (!x->from.from) return;
    exact_source_rows(x, b, r);
    exact_source_pack(x, r->rows, r->q);
}

/*
 * Tiles of logits
 */

const float *exact_source_table(const struct exact *x, int64_t h, int64_t pos)
{
    return x->io->params + x->from.r + (h * x->from.max + pos) * x->from.max;
}

/* s[n][LANES] = by R, whose rows are turned over. */
static void table(const struct exact *x, const struct block *b, int64_t t, int n,
                  float by, float *tile, float *s)
{
    const float *r = exact_source_table(x, b->h - x->head0, b->pos + b->r0) + t * TILE;
    _Alignas(64) float factor[LANES];

    memset(tile, 0, (size_t)b->r0 * TILE * sizeof *tile);
    x->k->load_rows(tile + (int64_t)b->r0 * TILE, TILE, r, x->from.max, FOCI_F32,
                    b->r1 - b->r0, n);
    x->k->pack_cols_f32(s, tile, TILE, b->r1, n);
    if (by == 1) return;
    fill(factor, LANES, by);
    x->k->shrink(s, n, factor);
}

/* s[n][LANES] += by a b. */
static void outer(const struct exact *x, int64_t t, int n, float by, const float *ab,
                  float *s)
{
    const int    split = x->from.b.out;
    const float *second = ab + (int64_t)x->from.a.out * LANES;

    for (int j = 0; j < n; j++) {
        const int64_t at = t * TILE + j;
        const float  *a = ab + at / split * LANES, *b = second + at % split * LANES;
        for (int i = 0; i < LANES; i++)
            s[j * LANES + i] += by * a[i] * b[i];
    }
}

/* What is not a product; false: there is none. */
static bool base(const struct exact *x, const struct block *b, int64_t t, int n,
                 const float *ab, float *tile, float *s)
{
    const struct sources *from = &x->from;
    const double         *share = from->share[b->h - x->head0];
    const float           unit = unit_of(x);

    if (from->from == FOCI_SOURCE_FACTORS) return false;
    if (from->from & FOCI_SOURCE_TABLE)
        table(x, b, t, n, (float)share[OF_TABLE] * unit, tile, s);
    else
        memset(s, 0, (size_t)n * LANES * sizeof *s);
    if (from->from & FOCI_SOURCE_OUTER) outer(x, t, n, unit, ab, s);
    if (!(from->from & FOCI_SOURCE_NET)) return true;
    const float *b2 =
        x->io->params + from->net.b2 + (b->h - x->head0) * from->net.out + t * TILE;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            s[j * LANES + i] += (float)share[OF_NET] * unit * b2[j];
    return true;
}

struct operand exact_source_operand(const struct exact *x, int64_t h, int64_t t)
{
    const struct sources *s = &x->from;
    return (struct operand){ s->keys + (size_t)(h * s->tiles + t) * s->size,
                             x->bf16 ? s->w_pad / 2 : s->ldw, 1 };
}

void exact_source_tile(const struct exact *x, const struct block *b, int64_t t, int n,
                       const void *q, const float *ab, float *tile, float *s)
{
    const struct sources *from = &x->from;
    const bool            add = base(x, b, t, n, ab, tile, s);
    const float          *cols = q;
    struct cut            c = { 0 };

    if (!from->w) return;
    const struct operand keys = exact_source_operand(x, b->h - x->head0, t);
    while (exact_cut(x, b, t, n, &c))
        exact_product(x, s + (int64_t)c.j * LANES + c.lane, LANES,
                      operand_from(keys, c.j, 0), cols + c.lane, LANES,
                      exact_padded(x, c.m), LANES - c.lane, from->w_pad / x->per, add);
}

/*
 * Sequences that share their weights
 */

bool exact_common(const struct exact *x)
{
    const unsigned shared = FOCI_SOURCE_TABLE | FOCI_SOURCE_FACTORS;

    return x->from.from && !x->from.qk && !(x->from.from & ~shared);
}

int64_t exact_fold_most(const struct exact *x)
{
    const foci_problem *p = x->p;
    const bool          own = p->flags & (FOCI_MASK | FOCI_BIAS) && p->mask_batch > 1;
    const int64_t       bytes = (int64_t)sizeof(float) * x->ldv * LANES;

    if (!exact_common(x) || x->drops || own || p->max_docs) return 1;
    return max64(1, min64(p->batch, FOLD_BYTES / max64(bytes, 1)));
}

int64_t exact_fold(const struct exact *x)
{
    if (x->plan->gates) return 1;
    for (int64_t i = 1; i < x->n_seqs; i++)
        if (x->seqs[i].s.nk != x->seqs[0].s.nk) return 1;
    return min64(exact_fold_most(x), max64(1, x->n_seqs));
}
