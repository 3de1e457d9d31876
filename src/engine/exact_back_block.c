/* exact_back_block.c -- blocks of queries in the backward pass: what is packed of them
 * before they meet keys, and what becomes of their sums. */
#include <math.h>
#include <string.h>

#include "engine/exact_back.h"
#include "engine/exact_pack.h"
#include "engine/exact_score.h"
#include "engine/exact_shaw.h"
#include "engine/exact_tiles.h"
#include "engine/exact_txl.h"

/* Where the packed rows of a block lie: with those of all others, or the thread's. */
static size_t piece_of(const struct back *k, int64_t block)
{
    return exact_natural(&k->x) ? (size_t)block : (size_t)exact_thread();
}

float *back_dqt_of(const struct back *k, int64_t part, int64_t block)
{
    const struct exact *x = &k->x;

    if (!exact_natural(x)) return k->dqt + (int64_t)exact_thread() * x->ldq * LANES;
    return k->dqt + (part * x->heads * x->max_qt + block) * x->ldq * LANES;
}

static uint8_t *met(const struct back *k, int64_t part, int64_t block)
{
    return k->met + part * k->x.heads * k->x.max_qt + block;
}

/* Whether something that multiplies the products of q and k is learned, or the sink. */
static bool has_factors(const struct exact *x)
{
    return x->score->n_factors || (exact_source_biases(x) && x->from.mix >= 0);
}

static bool learns(const struct exact *x)
{
    return has_factors(x) || x->score->sink >= 0;
}

/* Gradients of relu2 have no delta, and those of capped logits need not add up to 0. */
bool back_wants_sums(const struct exact *x)
{
    return has_factors(x) && x->kind != FOCI_RELU2 && !(x->score->cap > 0) &&
           !x->stage->order.label;
}

struct row_sums *back_sums_of(const struct back *k, int64_t part, int64_t block)
{
    return k->sums + part * k->x.heads * k->x.max_qt + block;
}

float *back_dqt(const struct back *k, int64_t part, int64_t block)
{
    float   *dqt = back_dqt_of(k, part, block);
    uint8_t *begun = met(k, part, block);

    if (!*begun) {
        memset(dqt, 0, (size_t)k->x.ldq * LANES * sizeof *dqt);
        if (k->sums) *back_sums_of(k, part, block) = (struct row_sums){ 0 };
        exact_shaw_begin_back(&k->x, &k->shaw, part, block);
        exact_txl_begin_back(&k->x, &k->txl, part, block);
        exact_source_begin_back(&k->x, &k->from, part, block);
    }
    *begun = 1;
    return dqt;
}

/* Factors of rows stay out of the gradients of logits: queries have them where dk is
 * summed, and dq has them at the end. */
static void times_rows(const struct exact *x, const struct back_rows *rows, float *q)
{
    for (int i = 0; x->score->n_rows && i < LANES; i++)
        for (int c = 0; c < x->dq; c++)
            q[(int64_t)i * x->ldq + c] *= rows->mul[i];
}

/* Bits of the lanes that see no key.  A sink leaves them a normaliser all the same; that
 * matters only where 0 times what stands in them is not 0. */
static uint64_t blind_lanes(const struct exact *x, const struct block *b,
                            const struct back_rows *rows)
{
    const bool ask = x->score->sink >= 0 && rows->bad;
    uint64_t   blind = 0;
    int64_t    visible[LANES] = { 0 };

    if (ask) exact_visible(x, b, visible);
    for (int i = 0; i < LANES; i++)
        if (exact_saw_nothing(x, rows->norm[i]) || (ask && !visible[i]))
            blind |= UINT64_C(1) << i;
    return blind;
}

/* The gradient of the output: rounded, packed, and delta = d_o . o. */
static void prepare_grad(const struct back *k, const struct block *b, float *delta,
                         unsigned *bad, struct back_room *r)
{
    const struct exact *x = &k->x;
    const size_t        piece = piece_of(k, b->at);
    char *gc = k->g_cols + piece * k->g_size, *gr = k->g_rows + piece * k->g_size;

    exact_load_block(x, b, k->g->d_o, &x->p->o, x->dv, x->ldv, r->tile);
    exact_round(x, r->tile, x->ldv, x->dv, r->tile2);
    exact_raise(x, r->tile, x->ldv, x->dv, r->tile2);
    exact_load_block(x, b, x->io->o, &x->p->o, x->dv, x->ldv, r->tile2);
    x->k->row_dot(delta, r->tile, r->tile2, x->ldv, LANES, x->dv);
    if (!exact_finite(x, r->tile, x->ldv, x->dv, LANES)) *bad |= BAD_GRAD;
    for (int i = 0; x->drops && i < LANES; i++)
        delta[i] /= x->kept;
    exact_shaw_prepare_g(x, b, &k->shaw, r->tile, r->tile2);
    if (back_as_stored(x, r)) return; /* packed with the queries */
    if (x->bf16) {
        x->k->pack_cols_bf16((uint32_t *)gc, r->tile, x->ldv, LANES, x->dv_pad);
        x->k->pack_pairs_bf16((uint32_t *)gr, r->tile, x->ldv, LANES, x->dv_pad);
    } else {
        x->k->pack_cols_f32((float *)gc, r->tile, x->ldv, LANES, x->dv);
        memcpy(gr, r->tile, k->g_size);
    }
}

/* The same of all sequences taken together, whose deltas add up. */
static void prepare_grads(const struct back *k, const struct block *b,
                          struct back_rows *rows, struct back_room *r)
{
    const int64_t      with = exact_with(&k->x, b->seq);
    _Alignas(64) float delta[LANES];

    prepare_grad(k, b, rows->delta, &rows->bad, r);
    for (int64_t f = 1; f < with; f++) {
        const struct block one = exact_follow(b, f);

        prepare_grad(k, &one, delta, &rows->bad, r);
        for (int i = 0; i < LANES; i++)
            rows->delta[i] += delta[i];
    }
}

/* Those in r->tile. */
static void pack_queries(const struct back *k, const struct block *b,
                         const struct back_rows *rows, struct back_room *r)
{
    const struct exact *x = &k->x;
    const size_t        piece = piece_of(k, b->at);
    char *qc = k->q_cols + piece * k->q_size, *qr = k->q_rows + piece * k->q_size;

    if (x->bf16)
        x->k->pack_cols_bf16((uint32_t *)qc, r->tile, x->ldq, LANES, x->dq_pad);
    else
        x->k->pack_cols_f32((float *)qc, r->tile, x->ldq, LANES, x->dq);
    times_rows(x, rows, r->tile);
    if (x->bf16)
        x->k->pack_pairs_bf16((uint32_t *)qr, r->tile, x->ldq, LANES, x->dq_pad);
    else
        memcpy(qr, r->tile, k->q_size);
    if (r->panel) back_tile_block(k, b, r->tile);
}

void back_prepare(struct back *k, const struct block *b, struct back_room *r)
{
    struct exact     *x = &k->x;
    struct back_rows *rows = &k->rows[b->at];
    int64_t           visible[LANES];
    struct mapped     mapped;

    rows->bad = 0;
    prepare_grads(k, b, rows, r);
    /* Lanes without a query weigh nothing. */
    for (int i = 0; i < LANES; i++)
        rows->norm[i] = i >= b->r0 && i < b->r1 ? k->saved[exact_saved_at(x, b) + i]
                        : x->kind == FOCI_RELU2 ? 0
                                                : INFINITY;
    const bool stored = back_as_stored(x, r);
    if (stored) {
        back_take_block(k, b, r->tile2);
    } else {
        exact_load_queries(x, b, r->tile, &mapped);
        if (!exact_finite(x, r->tile, x->ldq, x->dq, LANES)) rows->bad |= BAD_QUERY;
    }
    if (!exact_source_prepare(x, b, &k->from, blind_lanes(x, b, rows), &r->from))
        rows->bad |= BAD_QUERY;
    if (x->score->n_rows) exact_visible(x, b, visible);
    exact_factors(x, b, visible, rows->plain, rows->f, rows->mul);
    if (x->order) order_factors(x, rows->mul);
    exact_shaw_prepare_q(x, b, &k->shaw, r->tile, r->tile2);
    exact_txl_prepare(x, b, &k->txl, blind_lanes(x, b, rows), rows->mul, r->tile,
                      &r->txl);
    if (!stored) pack_queries(k, b, rows, r);

    for (int i = b->r0; x->order && i < b->r1; i++)
        order_note(x, b, i,
                   (struct order_row){ rows->plain[i], rows->f[i], rows->mul[i],
                                       rows->norm[i], rows->delta[i] });
    for (int64_t part = 0; part < k->parts; part++)
        *met(k, part, b->at) = 0;
}

static void add_sums(struct row_sums *to, const struct row_sums *more)
{
    for (int i = 0; i < LANES; i++) {
        to->ds[i] += more->ds[i];
        to->mean[i] += more->mean[i];
    }
}

static void add_parts(const struct back *k, const struct block *b)
{
    const struct exact *x = &k->x;
    float              *dqt = back_dqt_of(k, 0, b->at);

    back_dqt(k, 0, b->at);
    if (!exact_natural(x)) memset(dqt, 0, (size_t)x->ldq * LANES * sizeof *dqt);
    for (int64_t part = 1; part < k->parts; part++) {
        const float *more = back_dqt_of(k, part, b->at);
        if (!*met(k, part, b->at)) continue;
        for (int64_t i = 0; i < (int64_t)x->dq * LANES; i++)
            dqt[i] += more[i];
        if (k->sums) add_sums(back_sums_of(k, 0, b->at), back_sums_of(k, part, b->at));
    }
    if (x->order) order_add_dq(x, b, dqt);
}

/* The weight of the sink in row i of a block. */
static double sink_weight(const struct exact *x, const struct block *b,
                          const struct back_rows *rows, int i)
{
    if (x->score->sink < 0 || rows->norm[i] == INFINITY) return 0;
    const double sink = (double)x->io->params[x->score->sink + b->h - x->head0];
    return exp2(sink * LOG2_E - (double)rows->norm[i]);
}

/* What the rounding of delta brought into the gradient of factors in row i.  Delta enters
 * as minus itself times each weight, so an error e of it moves the sum of the row's
 * gradients by -e, and that of its gradients times scores by -e times their mean; where
 * attention is peaked, that is more than all that should be left of the latter sum.  The
 * sum of all gradients, the sink's among them, is 0 and so gives e. */
static double rounding_of(const struct row_sums *sums, const struct back_rows *rows,
                          int i, double sink)
{
    const double e = sink * (double)rows->delta[i] - (double)sums->ds[i];

    return -e * (double)sums->mean[i] * (double)rows->mul[i];
}

/* The block's share of the gradients of what multiplies the logits and of the sink.
 * A row that sees nothing has none, whatever stands in it.  q[LANES][ldq]; d_factor is
 * what vectors added to queries bring. */
static void share_params(const struct back *k, const struct block *b, const float *q,
                         double d_factor)
{
    const struct exact *x = &k->x;
    struct back_rows   *rows = &k->rows[b->at];
    const float        *dqt = back_dqt_of(k, 0, b->at);
    int64_t             visible[LANES];

    rows->d_factor = d_factor;
    rows->d_sink = 0;
    exact_visible(x, b, visible);
    for (int i = b->r0; i < b->r1; i++) {
        if (!visible[i]) continue;
        for (int c = 0; has_factors(x) && c < x->dq; c++)
            rows->d_factor += (double)dqt[c * LANES + i] *
                              (double)q[(int64_t)i * x->ldq + c] * (double)rows->mul[i];
        const double sink = sink_weight(x, b, rows, i);
        if (k->sums)
            rows->d_factor -= rounding_of(back_sums_of(k, 0, b->at), rows, i, sink);
        rows->d_sink -= sink * (double)rows->delta[i];
    }
}

/* Of rows d[LANES][ldq] that were projected; they are left for the gradient of their
 * matrix in place of dqt. */
static void store_projected(const struct back *k, const struct block *b, const float *d,
                            float *dqt)
{
    const struct exact *x = &k->x;
    float              *wide = exact_wide(x);

    memcpy(dqt, d, (size_t)x->ldq * LANES * sizeof *dqt);
    if (!k->g->dq) return;
    exact_project_back(x, b->h - x->head0, false, d, LANES, wide);
    exact_store_rows(x, b, k->g->dq, &x->p->q, wide, x->given, x->ld_given);
}

void back_project(const struct back *k, int64_t head, bool keys)
{
    const struct exact *x = &k->x;
    float              *wide = exact_wide(x);

    for (int64_t qt = 0; !keys && qt < x->n_qt; qt++) {
        const struct block b = exact_block(x, head, qt);

        exact_load_block(x, &b, x->io->q, &x->p->q, x->given, x->ld_given, wide);
        exact_project_sum(x, head, false, wide, back_dqt_of(k, 0, b.at), LANES);
    }
    for (int64_t i = 0; keys && i < x->n_seqs; i++) {
        const struct exact_seq *s = &x->seqs[i];

        for (int64_t j = 0; j < s->s.nk; j += TILE) {
            const int n = (int)min64(TILE, s->s.nk - j);

            exact_load_rows(x, s, head, j, n, x->io->k, &x->p->k, x->given, x->ld_given,
                            wide);
            exact_project_sum(x, head, true, wide,
                              x->dk_rows + back_collected(x, s, head, j) * x->ldq, n);
        }
    }
}

void back_finish(const struct back *k, const struct block *b, struct back_room *r)
{
    const struct exact *x = &k->x;
    float              *dqt = back_dqt_of(k, 0, b->at);
    const bool          learned = learns(x);
    const struct places at = { b->pos, NULL };
    struct mapped       mapped;
    _Alignas(64) float  scale[LANES], ones[LANES];

    add_parts(k, b);
    exact_source_finish(x, b, &k->from, met(k, 0, b->at));
    const double more = exact_txl_finish(x, b, &k->txl, met(k, 0, b->at),
                                         k->rows[b->at].mul, &r->txl, dqt);
    exact_shaw_finish(x, b, &k->shaw, met(k, 0, b->at), dqt);
    if (learned || exact_maps(x)) exact_load_queries(x, b, r->tile, &mapped);
    if (learned && k->g->dparams) share_params(k, b, r->tile, more);
    if (!x->dq || (!k->g->dq && !exact_projects(x))) return;

    for (int i = 0; i < LANES; i++) {
        scale[i] = (float)(exact_head_scale(x, b->h) * (double)k->rows[b->at].mul[i]);
        ones[i] = 1;
    }
    if (!exact_maps(x)) {
        exact_store_block(x, b, k->g->dq, &x->p->q, dqt, x->dq, x->ldq, scale, r->tile);
        return;
    }
    x->k->store_cols(r->tile2, x->ldq, FOCI_F32, dqt, scale, LANES, x->dq);
    exact_map_back(x, r->tile2, r->tile, LANES, at, false, &mapped);
    if (exact_projects(x)) {
        store_projected(k, b, r->tile2, dqt);
        return;
    }
    if (x->order) order_add_keys(x, b, r->tile2, r->tile, r->tile3);
    x->k->pack_cols_f32(dqt, r->tile2, x->ldq, LANES, x->dq);
    exact_store_block(x, b, k->g->dq, &x->p->q, dqt, x->dq, x->ldq, ones, r->tile);
}

void back_vectors(const struct back *k, int64_t head, struct back_room *r)
{
    const struct exact *x = &k->x;
    struct mapped       mapped;

    exact_shaw_clear(x, &k->shaw, head);
    for (int64_t qt = 0; qt < x->n_qt; qt++) {
        const struct block b = exact_block(x, head, qt);
        const uint64_t     blind = blind_lanes(x, &b, &k->rows[b.at]);

        exact_load_queries(x, &b, r->tile, &mapped);
        times_rows(x, &k->rows[b.at], r->tile);
        exact_load_block(x, &b, k->g->d_o, &x->p->o, x->dv, x->ldv, r->tile2);
        exact_raise(x, r->tile2, x->ldv, x->dv, r->dv);
        for (int i = 0; i < LANES; i++) {
            if (!(blind >> i & 1)) continue;
            memset(r->tile + (int64_t)i * x->ldq, 0, (size_t)x->ldq * sizeof(float));
            memset(r->tile2 + (int64_t)i * x->ldv, 0, (size_t)x->ldv * sizeof(float));
        }
        exact_shaw_vectors(x, &b, &k->shaw, r->tile, r->tile2);
    }
}

/* What q.k is multiplied by before it is weighed among other sources. */
static double plain_scale(const struct exact *x, int64_t h)
{
    double f = x->score->scale;

    for (int i = 0; i < x->score->n_factors; i++)
        f *= (double)x->io->params[x->score->factor[i] + h];
    return f;
}

void back_params(const struct back *k)
{
    const struct exact *x = &k->x;
    const struct score *s = x->score;

    for (int64_t h = 0; h < x->heads; h++) {
        double d_factor = 0, d_sink = 0;
        for (int64_t i = 0; learns(x) && i < exact_leads(x); i++) {
            const struct back_rows *rows = &k->rows[exact_lead(x, h, i).at];
            d_factor += rows->d_factor;
            d_sink += rows->d_sink;
        }
        if (x->order) d_sink += order_sink(x, h);
        if (s->sink >= 0) k->g->dparams[s->sink + h] += (float)d_sink;
        for (int i = 0; i < s->n_factors; i++) {
            double others = s->scale * exact_source_share(x, h, OF_QK);
            for (int j = 0; j < s->n_factors; j++)
                if (j != i) others *= (double)x->io->params[s->factor[j] + h];
            k->g->dparams[s->factor[i] + h] += (float)(d_factor * others);
        }
        exact_source_mix(x, &k->from, h, d_factor * plain_scale(x, h), k->g->dparams);
    }
    exact_position_params(x, k->parts, k->g->dparams);
    exact_shaw_params(x, &k->shaw, k->g->dparams);
    exact_txl_params(x, &k->txl, k->g->dparams);
    exact_project_params(x, k->g->dparams);
}
