/* exact_source_back.c -- gradients of logits that do not come from pairs of q and k.
 *
 * A tile of keys meets blocks in order, and a job has the same tile of every sequence, so
 * that what sequences share, R and the keys of products, is summed in order by one
 * thread.  Rows of blocks are summed in parts, as dq is.  Then the blocks of a head go
 * through its nets, again in order.
 */
#include <math.h>
#include <string.h>

#include "engine/exact_pack.h"
#include "engine/exact_tiles.h"

/*
 * Memory
 */

static int64_t ab_floats(const struct exact *x)
{
    return (int64_t)(x->from.a.out + x->from.b.out) * LANES;
}

static int64_t dq_floats(const struct exact *x) { return (int64_t)x->from.ldw * LANES; }

/* Where nets have their part of dh: of a block, [inside][LANES] one after another. */
static int64_t dh_floats(const struct exact *x)
{
    return (int64_t)(x->from.net.inside + x->from.a.inside + x->from.b.inside) * LANES;
}

/* Gradients of a head's nets, W1 to b2 of each (of `net` the first layer alone), then of
 * R1. */
static int64_t first_floats(const struct source_net *n)
{
    return (int64_t)n->inside * (n->x + 1);
}

static int64_t net_floats(const struct source_net *n)
{
    return first_floats(n) + (int64_t)n->out * (n->inside + 1);
}

static int64_t nets_floats(const struct exact *x)
{
    const struct sources *s = &x->from;
    return first_floats(&s->net) + net_floats(&s->a) + net_floats(&s->b) +
           x->p->len_q * s->rank;
}

void exact_source_take_back(const struct exact *x, int64_t parts, struct source_back *k,
                            struct arena *a)
{
    const struct sources *s = &x->from;
    const int64_t         blocks = x->heads * x->max_qt, tiles = exact_source_tiles(x);

    *k = (struct source_back){ .parts = parts };
    if (!s->from) return;
    k->cols_size = (size_t)s->ldw * LANES * (x->bf16 ? 2 : sizeof(float));
    k->cols = arena_take(a, blocks, k->cols_size);
    k->rows = arena_take(a, blocks, k->cols_size);
    k->ab = arena_take(a, blocks * ab_floats(x), sizeof *k->ab);
    k->dq = arena_take(a, parts * blocks * dq_floats(x), sizeof *k->dq);
    k->dab = arena_take(a, parts * blocks * ab_floats(x), sizeof *k->dab);
    k->dk = arena_take(a, tiles * TILE * s->ldw, sizeof *k->dk);
    k->db2 = arena_take(a, tiles * TILE, sizeof *k->db2);
    k->dtable = arena_take(a, parts * x->heads, sizeof *k->dtable);
    k->dh = arena_take(a, blocks * dh_floats(x), sizeof *k->dh);
    k->dnets = arena_take(a, x->heads * nets_floats(x), sizeof *k->dnets);
    k->dshare = arena_take(a, x->heads, sizeof *k->dshare);
    k->ones = arena_take(a, (int64_t)LANES * x->group, sizeof(float));
}

void exact_source_clear(const struct exact *x, const struct source_back *k)
{
    const size_t   rows = (size_t)exact_source_tiles(x) * TILE;
    const float    one = 1;
    const uint32_t word = 0x3f803f80; /* two ones */

    if (!x->from.from) return;
    memset(k->dk, 0, rows * (size_t)x->from.ldw * sizeof *k->dk);
    memset(k->db2, 0, rows * sizeof *k->db2);
    memset(k->dtable, 0, (size_t)(k->parts * x->heads) * sizeof *k->dtable);
    memset(k->dnets, 0, (size_t)(x->heads * nets_floats(x)) * sizeof *k->dnets);
    memset(k->dshare, 0, (size_t)x->heads * sizeof *k->dshare);
    for (int i = 0; i < LANES * x->group; i++)
        memcpy((char *)k->ones + 4 * (size_t)i, x->bf16 ? (const void *)&word : &one, 4);
}

static float *dq_of(const struct exact *x, const struct source_back *k, int64_t part,
                    int64_t at)
{
    return k->dq + (part * x->heads * x->max_qt + at) * dq_floats(x);
}

static float *dab_of(const struct exact *x, const struct source_back *k, int64_t part,
                     int64_t at)
{
    return k->dab + (part * x->heads * x->max_qt + at) * ab_floats(x);
}

void exact_source_begin_back(const struct exact *x, const struct source_back *k,
                             int64_t part, int64_t at)
{
    if (!x->from.from) return;
    memset(dq_of(x, k, part, at), 0, (size_t)dq_floats(x) * sizeof(float));
    memset(dab_of(x, k, part, at), 0, (size_t)ab_floats(x) * sizeof(float));
}

/*
 * Rows of a block
 */

bool exact_source_prepare(const struct exact *x, const struct block *b,
                          const struct source_back *k, uint64_t blind,
                          struct source_room *r)
{
    const struct sources *s = &x->from;

    if (!s->from) return true;
    exact_source_rows(x, b, r);
    if (ab_floats(x))
        memcpy(k->ab + b->at * ab_floats(x), r->ab,
               (size_t)ab_floats(x) * sizeof(float));
    if (!s->w) return true;
    char *rows = k->rows + (size_t)b->at * k->cols_size;
    for (int i = 0; i < LANES; i++)
        if (blind >> i & 1)
            memset(r->rows + (int64_t)i * s->ldw, 0, (size_t)s->ldw * sizeof(float));
    if (x->bf16)
        x->k->pack_pairs_bf16((uint32_t *)(void *)rows, r->rows, s->ldw, LANES,
                              s->w_pad);
    else
        memcpy(rows, r->rows, k->cols_size);
    const bool finite = exact_finite(x, r->rows, s->ldw, s->w, LANES);
    exact_source_pack(x, r->rows, k->cols + (size_t)b->at * k->cols_size);
    return finite;
}

void exact_source_again(const struct exact *x, const struct block *b, int64_t t, int n,
                        const struct source_back *k, struct source_room *r, float *s)
{
    exact_source_tile(x, b, t, n, k->cols + (size_t)b->at * k->cols_size,
                      k->ab + b->at * ab_floats(x), r->tile, s);
}

bool exact_source_floats(const struct exact *x)
{
    return x->from.from & (FOCI_SOURCE_TABLE | FOCI_SOURCE_OUTER);
}

bool exact_source_bad(const struct exact *x, const struct block *b, int64_t t)
{
    return x->from.w && x->from.bad[(b->h - x->head0) * x->from.tiles + t];
}

/*
 * A tile meets a block
 */

/* dR += ds[n][LANES], and its product with R, where sources are weighed. */
static void give_table(const struct exact *x, const struct block *b, int64_t t, int n,
                       int64_t part, const struct source_back *k, const float *ds,
                       float *tile, float *dparams)
{
    const struct sources *s = &x->from;
    const int64_t         h = b->h - x->head0;
    const float           share = (float)s->share[h][OF_TABLE];
    double                sum = 0;
    _Alignas(64) float    ones[LANES];

    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    x->k->store_cols(tile, TILE, FOCI_F32, ds, ones, LANES, n);
    for (int i = b->r0; i < b->r1; i++) {
        const float *r = exact_source_table(x, h, b->pos + i) + t * TILE;
        const float *d = tile + (int64_t)i * TILE;
        float       *to = dparams + (r - x->io->params);

        for (int j = 0; !s->frozen && j < n; j++)
            to[j] += share * d[j];
        for (int j = 0; s->mix >= 0 && j < n; j++)
            sum += (double)(d[j] * r[j]);
    }
    k->dtable[part * x->heads + h] += sum;
}

/* Whether several sequences, or several lots of them, add to R. */
static bool in_turns(const struct exact *x)
{
    return x->from.from & FOCI_SOURCE_TABLE && x->n_seqs > x->fold;
}

/* Where a tile has its sum for a block of positions, of one head of its key/value head. */
static float *strip_of(const struct exact *x, const struct source_room *r, int64_t h,
                       int64_t pos)
{
    return r->columns + (h % x->per_kv * x->from.tiles + pos / LANES) * TILE * LANES;
}

void exact_source_begin_tile(const struct exact *x, struct source_room *r)
{
    if (in_turns(x))
        memset(r->columns, 0,
               (size_t)(x->per_kv * x->from.tiles * TILE * LANES) * sizeof *r->columns);
}

void exact_source_end_tile(const struct exact *x, int64_t kv, int64_t t, int64_t part,
                           const struct source_back *k, struct source_room *r,
                           float *dparams)
{
    const int n = (int)min64(TILE, x->p->len_k - t * TILE);

    if (!in_turns(x) || !dparams) return;
    for (int64_t h = kv * x->per_kv; h < (kv + 1) * x->per_kv; h++)
        for (int64_t i = 0; i < x->p->len_q; i += LANES) {
            const struct block b = { .h = x->head0 + h,
                                     .pos = i,
                                     .r1 = (int)min64(LANES, x->p->len_q - i) };
            give_table(x, &b, t, n, part, k, strip_of(x, r, h, i), r->tile, dparams);
        }
}

/* Now, or with what other sequences bring. */
static void to_table(const struct exact *x, const struct source_met *m,
                     const struct source_back *k, const float *ds,
                     struct source_room *r, float *dparams)
{
    float *sum = strip_of(x, r, m->b->h - x->head0, m->b->pos);

    if (!in_turns(x)) {
        give_table(x, m->b, m->t, m->n, m->part, k, ds, r->tile, dparams);
        return;
    }
    for (int j = 0; j < m->n; j++)
        for (int i = m->b->r0; i < m->b->r1; i++)
            sum[j * LANES + i] += ds[j * LANES + i];
}

/* Of a, which has its weight, and of b. */
static void give_outer(const struct exact *x, const struct source_met *m,
                       const struct source_back *k, const float *ds)
{
    const int64_t half = (int64_t)x->from.a.out * LANES;
    const int     split = x->from.b.out;
    const float  *ab = k->ab + m->b->at * ab_floats(x);
    float        *dab = dab_of(x, k, m->part, m->b->at);

    for (int j = 0; j < m->n; j++) {
        const int64_t at = m->t * TILE + j;
        const int64_t a = at / split * LANES, b = half + at % split * LANES;
        for (int i = 0; i < LANES; i++) {
            dab[a + i] += ds[j * LANES + i] * ab[b + i];
            dab[b + i] += ds[j * LANES + i] * ab[a + i];
        }
    }
}

/* dq += keys ds. */
static void give_queries(const struct exact *x, const struct source_met *m,
                         const struct source_back *k)
{
    const struct sources *s = &x->from;
    const int64_t         h = m->b->h - x->head0;
    float                *dq = dq_of(x, k, m->part, m->b->at);
    const float          *words = m->words;
    struct operand        sum = exact_source_operand(x, h, m->t);
    struct cut            c = { 0 };

    sum = (struct operand){ sum.at, sum.col, sum.row };
    if (x->bf16)
        sum =
            exact_summed(x, s->sum + (size_t)(h * s->tiles + m->t) * s->size, s->w_pad);
    while (exact_cut(x, m->b, m->t, m->n, &c))
        exact_product(x, dq + c.lane, LANES, operand_from(sum, 0, c.j / x->per),
                      words + (int64_t)c.j / x->per * LANES + c.lane, LANES, s->w_pad,
                      LANES - c.lane, exact_padded(x, c.m) / x->per, 1);
}

/* dk += ds queries, and sums of ds for the net's last bias. */
static void give_keys(const struct exact *x, const struct source_met *m,
                      const struct source_back *k, float *sums)
{
    const struct sources *s = &x->from;
    const int64_t         tile = (m->b->h - x->head0) * s->tiles + m->t;
    const struct operand  ds = { m->rows, LANES / x->per, 1 };
    const float          *q = (const void *)(k->rows + (size_t)m->b->at * k->cols_size);
    float                *dk = k->dk + tile * TILE * s->ldw;
    struct cut            c = { 0 };

    while (exact_cut(x, m->b, m->t, m->n, &c)) {
        const int rows = exact_padded(x, c.m), from = c.lane / x->per;
        const int deep = (LANES - c.lane) / x->per;

        exact_product(x, dk + (int64_t)c.j * s->ldw, s->ldw, operand_from(ds, c.j, from),
                      q + (int64_t)from * s->ldw, s->ldw, rows, s->ldw, deep, 1);
        if (!s->net.inside) continue;
        exact_product(x, sums, x->group, operand_from(ds, c.j, from), k->ones, x->group,
                      rows, x->group, deep, 0);
        for (int j = 0; j < c.m; j++)
            k->db2[tile * TILE + c.j + j] += (double)sums[(int64_t)j * x->group];
    }
}

/* The same pair by pair, where 0 times what is hidden would not be 0. */
static void give_pairs(const struct exact *x, const struct source_met *m,
                       const struct source_back *k, const float *ds,
                       struct source_room *r)
{
    const struct sources *s = &x->from;
    const int64_t         tile = (m->b->h - x->head0) * s->tiles + m->t;
    float                *dq = dq_of(x, k, m->part, m->b->at);
    float                *dk = k->dk + tile * TILE * s->ldw;

    exact_source_keys(x, m->b->h - x->head0, m->t * TILE, r->rows);
    for (int j = 0; j < m->n; j++)
        for (int i = 0; i < LANES; i++)
            for (int c = 0; m->seen[j] >> i & 1 && c < s->w; c++)
                dq[c * LANES + i] +=
                    ds[j * LANES + i] * r->rows[(int64_t)j * s->ldw + c];
    exact_source_rows(x, m->b, r);
    for (int j = 0; j < m->n; j++)
        for (int i = 0; i < LANES; i++) {
            if (!(m->seen[j] >> i & 1)) continue;
            for (int c = 0; c < s->w; c++)
                dk[(int64_t)j * s->ldw + c] +=
                    ds[j * LANES + i] * r->rows[(int64_t)i * s->ldw + c];
            k->db2[tile * TILE + j] += (double)ds[j * LANES + i];
        }
}

/* ds[n][LANES] with zeros for hidden pairs. */
static void keep_seen(const struct exact *x, const struct source_met *m, float *ds)
{
    if (x->bf16)
        x->k->load_rows(ds, LANES, m->rows, LANES, FOCI_BF16, m->n, LANES);
    else
        memcpy(ds, m->rows, (size_t)m->n * LANES * sizeof *ds);
    x->k->drop_f32(ds, m->n, m->seen);
}

void exact_source_meet(const struct exact *x, const struct source_met *m,
                       const struct source_back *k, struct source_room *r,
                       float *dparams)
{
    const struct sources *s = &x->from;
    const float          *ds = m->ds;

    if (!s->from) return;
    if (m->seen) {
        keep_seen(x, m, r->ds);
        ds = r->ds;
    }
    if (s->from & FOCI_SOURCE_TABLE && dparams) to_table(x, m, k, ds, r, dparams);
    if (s->from & FOCI_SOURCE_OUTER) give_outer(x, m, k, ds);
    if (!s->w) return;
    if (m->seen) {
        give_pairs(x, m, k, ds, r);
        return;
    }
    give_queries(x, m, k);
    give_keys(x, m, k, r->tile);
}

void exact_source_finish(const struct exact *x, const struct block *b,
                         const struct source_back *k, const uint8_t *met)
{
    const int64_t blocks = x->heads * x->max_qt;
    float        *dq = k->dq ? dq_of(x, k, 0, b->at) : NULL;
    float        *dab = k->dab ? dab_of(x, k, 0, b->at) : NULL;

    for (int64_t part = 1; x->from.from && part < k->parts; part++) {
        if (!met[part * blocks]) continue;
        for (int64_t i = 0; i < dq_floats(x); i++)
            dq[i] += dq_of(x, k, part, b->at)[i];
        for (int64_t i = 0; i < ab_floats(x); i++)
            dab[i] += dab_of(x, k, part, b->at)[i];
    }
}

/*
 * Through the nets
 */

/* The sum of the products of n columns of gradients and what they are of.  Lanes that saw
 * nothing have no gradient, whatever stands in them. */
static double dot(const float *d, const float *of, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n * LANES; i++)
        sum += d[i] != 0 ? (double)d[i] * (double)of[i] : 0;
    return sum;
}

/* Whether lane i of n columns has a gradient. */
static bool any_of(const float *d, int64_t n, int i)
{
    bool any = false;

    for (int64_t c = 0; c < n; c++)
        any = any || d[c * LANES + i] != 0;
    return any;
}

/* And their hidden states must not count either. */
static void forget_unused(const struct exact *x, const float *dq, const float *dab,
                          struct source_room *r)
{
    const struct sources *s = &x->from;

    if (exact_finite(x, r->x, s->ldx, (int)x->p->dim_x, LANES)) return;
    for (int i = 0; i < LANES; i++)
        if (!any_of(dq, s->ldw, i) && !any_of(dab, s->a.out + s->b.out, i))
            memset(r->x + (int64_t)i * s->ldx, 0, (size_t)s->ldx * sizeof *r->x);
    x->k->pack_cols_f32(r->xt, r->x, s->ldx, LANES, (int)x->p->dim_x);
}

/* What is inside a net in r->h, and its gradient d: through relu, to the first layer. */
static void first_back(const struct exact *x, const struct source_net *n, int64_t h,
                       struct source_room *r, float *d, float *dnet)
{
    const struct layer first = exact_net_first(x, n, h);

    for (int64_t i = 0; i < (int64_t)n->inside * LANES; i++)
        d[i] = r->h[i] > 0 ? d[i] : 0;
    layer_params(&first, r->x, x->from.ldx, d, r, dnet,
                 dnet + (int64_t)n->x * n->inside);
}

/* One of the nets of outer, from the gradient in r->d_out of what comes out. */
static void net_back(const struct exact *x, const struct source_net *n, int64_t h,
                     struct source_room *r, float *d, float *dnet)
{
    const struct layer second = exact_net_second(x, n, h);
    const int64_t      ld = round_up(n->inside, 16);
    float             *dw2 = dnet + first_floats(n);
    _Alignas(64) float ones[LANES];

    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    layer_back(&second, r->d_out, d, false);
    x->k->store_cols(r->inside, ld, FOCI_F32, r->h, ones, LANES, n->inside);
    layer_params(&second, r->inside, ld, r->d_out, r, dw2,
                 dw2 + (int64_t)n->inside * n->out);
    first_back(x, n, h, r, d, dnet);
}

static void outer_back(const struct exact *x, int64_t h, const struct source_back *k,
                       int64_t at, struct source_room *r, float *dnets)
{
    const struct sources *s = &x->from;
    const float       *da = dab_of(x, k, 0, at), *db = da + (int64_t)s->a.out * LANES;
    const struct layer second = exact_net_second(x, &s->a, h);
    float             *d = k->dh + at * dh_floats(x) + (int64_t)s->net.inside * LANES;
    const float        share = (float)s->share[h][OF_OUTER];

    exact_net_inside(x, &s->a, h, r);
    layer_apply(&second, r->h, r->d_out);
    k->dshare[h][OF_OUTER] += dot(da, r->d_out, s->a.out);
    for (int64_t i = 0; i < (int64_t)s->a.out * LANES; i++)
        r->d_out[i] = share * da[i];
    net_back(x, &s->a, h, r, d, dnets);
    exact_net_inside(x, &s->b, h, r);
    memcpy(r->d_out, db, (size_t)s->b.out * LANES * sizeof *db);
    net_back(x, &s->b, h, r, d + (int64_t)s->a.inside * LANES,
             dnets + net_floats(&s->a));
}

/* dr1[len_q][rank] */
static void factors_back(const struct exact *x, const struct block *b,
                         const struct source_back *k, const float *dq, float *dr1)
{
    const int64_t h = b->h - x->head0;
    const float   share = (float)x->from.share[h][OF_FACTORS];
    const int     rank = x->from.rank;

    for (int i = b->r0; i < b->r1; i++) {
        const float *row = exact_source_factor(x, h, b->pos + i);

        for (int c = 0; c < rank; c++) {
            const float d = dq[c * LANES + i];
            dr1[(b->pos + i) * rank + c] += share * d;
            if (d != 0) k->dshare[h][OF_FACTORS] += (double)d * (double)row[c];
        }
    }
}

static void block_back(const struct exact *x, const struct block *b,
                       const struct source_back *k, struct source_room *r, float *dnets)
{
    const struct sources *s = &x->from;
    const int64_t         h = b->h - x->head0, first = first_floats(&s->net);
    const int64_t         both = net_floats(&s->a) + net_floats(&s->b);
    const float          *dq = dq_of(x, k, 0, b->at);
    float                *dh = k->dh + b->at * dh_floats(x);

    if (exact_source_nets(x)) {
        exact_source_x(x, b, r);
        forget_unused(x, dq, dab_of(x, k, 0, b->at), r);
    }
    if (s->rank) factors_back(x, b, k, dq, dnets + first + both);
    if (s->net.inside) {
        const float *d = dq + (int64_t)s->rank * LANES;
        const float  share = (float)s->share[h][OF_NET];

        exact_net_inside(x, &s->net, h, r);
        k->dshare[h][OF_NET] += dot(d, r->h, s->net.inside);
        for (int64_t i = 0; i < (int64_t)s->net.inside * LANES; i++)
            dh[i] = share * d[i];
        first_back(x, &s->net, h, r, dh, dnets);
    }
    if (s->a.out) outer_back(x, h, k, b->at, r, dnets + first);
}

static const float *add_to(float *to, const float *d, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += d[i];
    return d + n;
}

/* What the blocks of a head came to, added once. */
static void add_nets(const struct exact *x, int64_t h, const float *d, float *dparams)
{
    const struct sources          *s = &x->from;
    const struct source_net *const nets[] = { &s->net, &s->a, &s->b };

    for (int i = 0; i < 3; i++) {
        const struct source_net *n = nets[i];
        const int64_t            first = (int64_t)n->x * n->inside,
                      second = (int64_t)n->inside * n->out;

        if (!n->inside) continue;
        d = add_to(dparams + n->w1 + h * first, d, first);
        d = add_to(dparams + n->b1 + h * n->inside, d, n->inside);
        if (i == 0) continue;
        d = add_to(dparams + n->w2 + h * second, d, second);
        d = add_to(dparams + n->b2 + h * n->out, d, n->out);
    }
    if (s->rank)
        add_to(dparams + (exact_source_factor(x, h, 0) - x->io->params), d,
               x->p->len_q * s->rank);
}

/* Gradients of R2, W2 and b2 of a head. */
static void keys_back(const struct exact *x, int64_t h, const struct source_back *k,
                      float *dparams)
{
    const struct sources *s = &x->from;
    const int64_t         tile0 = h * s->tiles * TILE;
    const float           share = (float)s->share[h][OF_NET];

    for (int64_t j = 0; s->rank && j < x->p->len_k; j++)
        for (int c = 0; c < s->rank; c++)
            dparams[s->r2 + (exact_source_factor(x, h, j) - x->io->params - s->r1) + c] +=
                k->dk[(tile0 + j) * s->ldw + c];
    for (int64_t j = 0; s->net.inside && j < x->p->len_k; j++) {
        const int64_t b2 = s->net.b2 + h * s->net.out + j;
        const double  sum = k->db2[tile0 + j];

        for (int c = 0; c < s->net.inside; c++)
            dparams[s->net.w2 + (h * s->net.inside + c) * s->net.out + j] +=
                k->dk[(tile0 + j) * s->ldw + s->rank + c];
        dparams[b2] += share * (float)sum;
        k->dshare[h][OF_NET] += sum * (double)x->io->params[b2];
    }
}

void exact_source_head(const struct exact *x, int64_t head, const struct source_back *k,
                       struct source_room *r, float *dparams)
{
    float *dnets = k->dnets + head * nets_floats(x);

    for (int64_t i = 0; i < exact_leads(x); i++) {
        const struct block b = exact_lead(x, head, i);
        block_back(x, &b, k, r, dnets);
    }
    if (!dparams) return;
    add_nets(x, head, dnets, dparams);
    keys_back(x, head, k, dparams);
}

/* xt (+)= gradients of x that a net brings. */
static const float *net_dx(const struct exact *x, const struct source_net *n, int64_t h,
                           const float *dh, float *xt, bool add)
{
    const struct layer first = exact_net_first(x, n, h);

    if (n->inside) layer_back(&first, dh, xt, add);
    return dh + (int64_t)n->inside * LANES;
}

void exact_source_dx(const struct exact *x, int64_t qt, const struct source_back *k,
                     struct source_room *r, void *dx)
{
    const struct sources *s = &x->from;
    const struct block    b = exact_block(x, 0, qt);
    const foci_layout    *l = &x->p->x;
    const int d = (int)x->p->dim_x, n = b.r1 - b.r0, dtype = (int)x->p->dtype;
    char     *rows = (char *)dx + (size_t)(b.seq->s.b * l->batch +
                                       (b.seq->s.q0 + b.i0 + b.r0) * l->row) *
                                  foci_dtype_bytes(x->p->dtype);
    float             *old = r->x + (int64_t)b.r0 * s->ldx;
    _Alignas(64) float ones[LANES];

    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    for (int64_t h = 0; h < x->heads; h++) {
        const float *dh = k->dh + (h * x->max_qt + qt) * dh_floats(x);

        dh = net_dx(x, &s->net, h, dh, r->xt, h > 0);
        dh = net_dx(x, &s->a, h, dh, r->xt, h > 0 || s->net.inside);
        net_dx(x, &s->b, h, dh, r->xt, true);
    }
    x->k->store_cols(r->x, s->ldx, FOCI_F32, r->xt, ones, LANES, d);
    x->k->load_rows(r->xt, s->ldx, rows, l->row, dtype, n, d);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++)
            old[(int64_t)i * s->ldx + c] += r->xt[(int64_t)i * s->ldx + c];
    x->k->store_rows(rows, l->row, dtype, old, s->ldx, 1.0f, n, d);
}

/* Through the softmax of the weights. */
void exact_source_mix(const struct exact *x, const struct source_back *k, int64_t h,
                      double d_qk, float *dparams)
{
    const struct sources *s = &x->from;
    const unsigned        from = s->from | (s->qk ? FOCI_SOURCE_QK : 0);
    const int             n = __builtin_popcount(from);
    double                mean = 0;
    int64_t               at = s->mix + h * n;

    if (!s->from || s->mix < 0 || !s->share) return;
    const double *share = s->share[h];
    k->dshare[h][OF_QK] = d_qk;
    for (int64_t part = 0; part < k->parts; part++)
        k->dshare[h][OF_TABLE] += k->dtable[part * x->heads + h];
    for (int i = 0; i < N_SOURCES; i++)
        mean += share[i] * k->dshare[h][i];
    for (int i = 0; i < N_SOURCES; i++)
        if (from >> i & 1)
            dparams[at++] += (float)(share[i] * (k->dshare[h][i] - mean));
}
