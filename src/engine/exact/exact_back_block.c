/* exact_back_block.c -- blocks of queries in the backward pass: packed before they meet
 * keys, and finished after they have met all. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_back.h"
#include "engine/exact/exact_map.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/terms/exact_shaw.h"
#include "engine/exact/terms/exact_txl.h"

/* The number of a block's packed rows: all blocks have their own where there is a sweep
 * in natural order; elsewhere a thread has one. */
static size_t packed_at(const struct exact_back *k, int64_t block)
{
    return exact_natural(&k->x) ? (size_t)block : (size_t)exact_thread();
}

float *back_dqt_of(const struct exact_back *k, int64_t part, int64_t block)
{
    const struct exact *x = &k->x;

    if (!exact_natural(x)) return k->dqt + (int64_t)exact_thread() * x->d.ldq * LANES;
    return k->dqt + (part * x->heads * x->max.qt + block) * x->d.ldq * LANES;
}

static uint8_t *begun_at(const struct exact_back *k, int64_t part, int64_t block)
{
    return k->begun + part * k->x.heads * k->x.max.qt + block;
}

/* Whether a factor of q.k is learned. */
static bool has_factors(const struct exact *x)
{
    return x->score->n_factors || (exact_source_biases(x) && x->source.mix >= 0);
}

static bool is_learned(const struct exact *x)
{
    return has_factors(x) || x->score->sink >= 0;
}

/* Gradients of relu2 have no delta, and those of capped logits need not sum to 0. */
bool back_wants_sums(const struct exact *x)
{
    return has_factors(x) && x->kind != FOCI_WEIGH_RELU2 && !(x->score->cap > 0) &&
           !x->stage->order.label;
}

struct back_row_sums *back_sums_of(const struct exact_back *k, int64_t part,
                                   int64_t block)
{
    return k->sums + part * k->x.heads * k->x.max.qt + block;
}

float *back_dqt(const struct exact_back *k, int64_t part, int64_t block)
{
    float   *dqt = back_dqt_of(k, part, block);
    uint8_t *begun = begun_at(k, part, block);

    if (!*begun) {
        memset(dqt, 0, (size_t)k->x.d.ldq * LANES * sizeof *dqt);
        if (k->sums) *back_sums_of(k, part, block) = (struct back_row_sums){ 0 };
        exact_shaw_back_begin(&k->x, &k->shaw, part, block);
        exact_txl_back_begin(&k->x, &k->txl, part, block);
        exact_source_back_begin(&k->x, &k->source, part, block);
    }
    *begun = 1;
    return dqt;
}

/* Factors of rows are not part of the gradients of logits: queries are multiplied by
 * them for dk, and dq at the end. */
static void scale_rows(const struct exact *x, const struct back_rows *rows, float *q)
{
    for (int i = 0; x->score->n_rows && i < LANES; i++)
        for (int c = 0; c < x->d.q; c++)
            q[(int64_t)i * x->d.ldq + c] *= rows->mul[i];
}

/* Lanes that see no key.  With a sink they still have a normaliser, which matters only
 * where 0 times an element of theirs is not 0. */
static uint64_t blind_lanes(const struct exact *x, const struct exact_block *b,
                            const struct back_rows *rows)
{
    const bool needs_count = x->score->sink >= 0 && rows->nonfinite;
    uint64_t   blind = 0;
    int64_t    visible[LANES] = { 0 };

    if (needs_count) exact_count_visible(x, b, visible);
    for (int i = 0; i < LANES; i++)
        if (exact_is_empty_row(x, rows->norm[i]) || (needs_count && !visible[i]))
            blind |= UINT64_C(1) << i;
    return blind;
}

/* The gradient of the output of one sequence: round, pack, and delta = d_o . o. */
static void prepare_grad(const struct exact_back *k, const struct exact_block *b,
                         float *delta, unsigned *bad, struct back_scratch *r)
{
    const struct exact *x = &k->x;
    const size_t        piece = packed_at(k, b->at);
    char *gc = k->g_cols + piece * k->g_size, *gr = k->g_rows + piece * k->g_size;

    exact_load_block(x, b, k->g->d_o, &x->p->o, x->d.v, x->d.ldv, r->tile);
    exact_round(x, r->tile, x->d.ldv, x->d.v, r->tile2);
    exact_dropout_scale(x, r->tile, x->d.ldv, x->d.v, r->tile2);
    exact_load_block(x, b, x->io->o, &x->p->o, x->d.v, x->d.ldv, r->tile2);
    x->k->row_dot(delta, r->tile, r->tile2, x->d.ldv, LANES, x->d.v);
    if (!exact_finite(x, r->tile, x->d.ldv, x->d.v, LANES)) *bad |= NONFINITE_GRAD;
    for (int i = 0; x->dropout.on && i < LANES; i++)
        delta[i] /= x->dropout.scale;
    exact_shaw_back_grads(x, b, &k->shaw, r->tile, r->tile2);
    if (back_packs_stored(x, r)) return; /* packed together with the queries */
    if (x->bf16) {
        x->k->pack_cols_bf16((uint32_t *)gc, r->tile, x->d.ldv, LANES, x->d.v_pad);
        x->k->pack_pairs_bf16((uint32_t *)gr, r->tile, x->d.ldv, LANES, x->d.v_pad);
    } else {
        x->k->pack_cols_f32((float *)gc, r->tile, x->d.ldv, LANES, x->d.v);
        memcpy(gr, r->tile, k->g_size);
    }
}

/* Those of all folded sequences, whose deltas add up. */
static void prepare_grads(const struct exact_back *k, const struct exact_block *b,
                          struct back_rows *rows, struct back_scratch *r)
{
    const int64_t      fold = exact_fold_size(&k->x, b->seq);
    _Alignas(64) float delta[LANES];

    prepare_grad(k, b, rows->delta, &rows->nonfinite, r);
    for (int64_t f = 1; f < fold; f++) {
        const struct exact_block one = exact_fold_member(b, f);

        prepare_grad(k, &one, delta, &rows->nonfinite, r);
        for (int i = 0; i < LANES; i++)
            rows->delta[i] += delta[i];
    }
}

/* Pack the queries in r->tile. */
static void back_pack_queries(const struct exact_back *k, const struct exact_block *b,
                              const struct back_rows *rows, struct back_scratch *r)
{
    const struct exact *x = &k->x;
    const size_t        piece = packed_at(k, b->at);
    char *qc = k->q_cols + piece * k->q_size, *qr = k->q_rows + piece * k->q_size;

    if (x->bf16)
        x->k->pack_cols_bf16((uint32_t *)qc, r->tile, x->d.ldq, LANES, x->d.q_pad);
    else
        x->k->pack_cols_f32((float *)qc, r->tile, x->d.ldq, LANES, x->d.q);
    scale_rows(x, rows, r->tile);
    if (x->bf16)
        x->k->pack_pairs_bf16((uint32_t *)qr, r->tile, x->d.ldq, LANES, x->d.q_pad);
    else
        memcpy(qr, r->tile, k->q_size);
    if (r->panel) back_panel_pack_block(k, b, r->tile);
}

void back_prepare(struct exact_back *k, const struct exact_block *b,
                  struct back_scratch *r)
{
    struct exact     *x = &k->x;
    struct back_rows *rows = &k->rows[b->at];
    int64_t           visible[LANES];
    struct mapped     mapped;

    rows->nonfinite = 0;
    prepare_grads(k, b, rows, r);
    /* Lanes without a query have weights of zero. */
    for (int i = 0; i < LANES; i++)
        rows->norm[i] = i >= b->r0 && i < b->r1 ? k->saved[exact_saved_at(x, b) + i]
                        : x->kind == FOCI_WEIGH_RELU2 ? 0
                                                      : INFINITY;
    const bool stored = back_packs_stored(x, r);
    if (stored) {
        back_panel_pack_stored(k, b, r->tile2);
    } else {
        exact_load_queries(x, b, r->tile, &mapped);
        if (!exact_finite(x, r->tile, x->d.ldq, x->d.q, LANES))
            rows->nonfinite |= NONFINITE_QUERY;
    }
    if (!exact_source_back_queries(x, b, &k->source, blind_lanes(x, b, rows),
                                   &r->source))
        rows->nonfinite |= NONFINITE_QUERY;
    if (x->score->n_rows) exact_count_visible(x, b, visible);
    exact_factors(x, b, visible, rows->plain, rows->f, rows->mul);
    if (x->order) order_clear_factors(x, rows->mul);
    exact_shaw_back_queries(x, b, &k->shaw, r->tile, r->tile2);
    exact_txl_back_queries(x, b, &k->txl, blind_lanes(x, b, rows), rows->mul, r->tile,
                           &r->txl);
    if (!stored) back_pack_queries(k, b, rows, r);

    for (int i = b->r0; x->order && i < b->r1; i++)
        order_save_row(x, b, i,
                       (struct order_row){ rows->plain[i], rows->f[i], rows->mul[i],
                                           rows->norm[i], rows->delta[i] });
    for (int64_t part = 0; part < k->parts; part++)
        *begun_at(k, part, b->at) = 0;
}

static void add_sums(struct back_row_sums *to, const struct back_row_sums *from)
{
    for (int i = 0; i < LANES; i++) {
        to->ds[i] += from->ds[i];
        to->mean[i] += from->mean[i];
    }
}

static void add_parts(const struct exact_back *k, const struct exact_block *b)
{
    const struct exact *x = &k->x;
    float              *dqt = back_dqt_of(k, 0, b->at);

    back_dqt(k, 0, b->at);
    if (!exact_natural(x)) memset(dqt, 0, (size_t)x->d.ldq * LANES * sizeof *dqt);
    for (int64_t part = 1; part < k->parts; part++) {
        const float *from = back_dqt_of(k, part, b->at);
        if (!*begun_at(k, part, b->at)) continue;
        for (int64_t i = 0; i < (int64_t)x->d.q * LANES; i++)
            dqt[i] += from[i];
        if (k->sums) add_sums(back_sums_of(k, 0, b->at), back_sums_of(k, part, b->at));
    }
    if (x->order) order_add_dq(x, b, dqt);
}

/* The weight of the sink in row i of a block. */
static double sink_weight(const struct exact *x, const struct exact_block *b,
                          const struct back_rows *rows, int i)
{
    if (x->score->sink < 0 || rows->norm[i] == INFINITY) return 0;
    const double sink = (double)x->io->params[x->score->sink + b->h - x->head0];
    return exp2(sink * LOG2_E - (double)rows->norm[i]);
}

/* The error that rounding of delta brings into the gradient of factors, in row i.  Each
 * gradient of a logit has the term -delta times its weight, so an error e of delta
 * moves their sum by -e and the sum of gradients times scores by -e times the mean
 * score.  Where attention is peaked, that is more than the true value of the latter.
 * The sum of all gradients, including the sink's, is 0, which gives e. */
static double rounding_of(const struct back_row_sums *sums,
                          const struct back_rows *rows, int i, double sink)
{
    const double e = sink * (double)rows->delta[i] - (double)sums->ds[i];

    return -e * (double)sums->mean[i] * (double)rows->mul[i];
}

/* The block's share in the gradients of the factors of q.k and of the sink.  A row that
 * sees nothing has none, whatever its elements are.  q[LANES][d.ldq]; d_factor is the
 * share of vectors that were added to queries. */
static void add_param_shares(const struct exact_back *k, const struct exact_block *b,
                             const float *q, double d_factor)
{
    const struct exact *x = &k->x;
    struct back_rows   *rows = &k->rows[b->at];
    const float        *dqt = back_dqt_of(k, 0, b->at);
    int64_t             visible[LANES];

    rows->d_factor = d_factor;
    rows->d_sink = 0;
    exact_count_visible(x, b, visible);
    for (int i = b->r0; i < b->r1; i++) {
        if (!visible[i]) continue;
        for (int c = 0; has_factors(x) && c < x->d.q; c++)
            rows->d_factor += (double)dqt[c * LANES + i] *
                              (double)q[(int64_t)i * x->d.ldq + c] *
                              (double)rows->mul[i];
        const double sink = sink_weight(x, b, rows, i);
        if (k->sums)
            rows->d_factor -= rounding_of(back_sums_of(k, 0, b->at), rows, i, sink);
        rows->d_sink -= sink * (double)rows->delta[i];
    }
}

/* Store dq of projected rows d[LANES][d.ldq]; d stays in dqt for the gradient of the
 * matrix. */
static void store_projected(const struct exact_back *k, const struct exact_block *b,
                            const float *d, float *dqt)
{
    const struct exact *x = &k->x;
    float              *input = exact_project_input(x);

    memcpy(dqt, d, (size_t)x->d.ldq * LANES * sizeof *dqt);
    if (!k->g->dq) return;
    exact_project_back(x, b->h - x->head0, false, d, LANES, input);
    exact_store_rows(x, b, k->g->dq, &x->p->q, input, x->d.in, x->d.ld_in);
}

void back_project(const struct exact_back *k, int64_t head, bool keys)
{
    const struct exact *x = &k->x;
    float              *input = exact_project_input(x);

    for (int64_t qt = 0; !keys && qt < x->n.qt; qt++) {
        const struct exact_block b = exact_block(x, head, qt);

        exact_load_block(x, &b, x->io->q, &x->p->q, x->d.in, x->d.ld_in, input);
        exact_project_sum(x, head, false, input, back_dqt_of(k, 0, b.at), LANES);
    }
    for (int64_t i = 0; keys && i < x->n.seqs; i++) {
        const struct exact_seq *s = &x->seqs[i];

        for (int64_t j = 0; j < s->s.nk; j += TILE) {
            const int n = (int)min64(TILE, s->s.nk - j);

            exact_load_rows(x, s, head, j, n, x->io->k, &x->p->k, x->d.in, x->d.ld_in,
                            input);
            exact_project_sum(x, head, true, input,
                              x->grads.dk + back_key_row(x, s, head, j) * x->d.ldq, n);
        }
    }
}

void back_finish(const struct exact_back *k, const struct exact_block *b,
                 struct back_scratch *r)
{
    const struct exact    *x = &k->x;
    float                 *dqt = back_dqt_of(k, 0, b->at);
    const bool             learned = is_learned(x);
    const struct positions at = { b->pos, NULL };
    struct mapped          mapped;
    _Alignas(64) float     scale[LANES], ones[LANES];

    add_parts(k, b);
    exact_source_back_finish(x, b, &k->source, begun_at(k, 0, b->at));
    const double d_vectors = exact_txl_back_finish(x, b, &k->txl, begun_at(k, 0, b->at),
                                                   k->rows[b->at].mul, &r->txl, dqt);
    exact_shaw_back_finish(x, b, &k->shaw, begun_at(k, 0, b->at), dqt);
    if (learned || exact_has_map(x)) exact_load_queries(x, b, r->tile, &mapped);
    if (learned && k->g->dparams) add_param_shares(k, b, r->tile, d_vectors);
    if (!x->d.q || (!k->g->dq && !exact_has_project(x))) return;

    for (int i = 0; i < LANES; i++) {
        scale[i] = (float)(exact_head_scale(x, b->h) * (double)k->rows[b->at].mul[i]);
        ones[i] = 1;
    }
    if (!exact_has_map(x)) {
        exact_store_block(x, b, k->g->dq, &x->p->q, dqt, x->d.q, x->d.ldq, scale,
                          r->tile);
        return;
    }
    x->k->store_cols(r->tile2, x->d.ldq, FOCI_F32, dqt, scale, LANES, x->d.q);
    exact_map_back(x, r->tile2, r->tile, LANES, at, false, &mapped);
    if (exact_has_project(x)) {
        store_projected(k, b, r->tile2, dqt);
        return;
    }
    if (x->order) order_add_shared_keys(x, b, r->tile2, r->tile, r->tile3);
    x->k->pack_cols_f32(dqt, r->tile2, x->d.ldq, LANES, x->d.q);
    exact_store_block(x, b, k->g->dq, &x->p->q, dqt, x->d.q, x->d.ldq, ones, r->tile);
}

void back_shaw_vectors(const struct exact_back *k, int64_t head, struct back_scratch *r)
{
    const struct exact *x = &k->x;
    struct mapped       mapped;

    exact_shaw_back_clear(x, &k->shaw, head);
    for (int64_t qt = 0; qt < x->n.qt; qt++) {
        const struct exact_block b = exact_block(x, head, qt);
        const uint64_t           blind = blind_lanes(x, &b, &k->rows[b.at]);

        exact_load_queries(x, &b, r->tile, &mapped);
        scale_rows(x, &k->rows[b.at], r->tile);
        exact_load_block(x, &b, k->g->d_o, &x->p->o, x->d.v, x->d.ldv, r->tile2);
        exact_dropout_scale(x, r->tile2, x->d.ldv, x->d.v, r->dv);
        for (int i = 0; i < LANES; i++) {
            if (!(blind >> i & 1)) continue;
            memset(r->tile + (int64_t)i * x->d.ldq, 0, (size_t)x->d.ldq * sizeof(float));
            memset(r->tile2 + (int64_t)i * x->d.ldv, 0,
                   (size_t)x->d.ldv * sizeof(float));
        }
        exact_shaw_back_vectors(x, &b, &k->shaw, r->tile, r->tile2);
    }
}

/* The factor of q.k without its weight among score sources. */
static double plain_scale(const struct exact *x, int64_t h)
{
    double f = x->score->scale;

    for (int i = 0; i < x->score->n_factors; i++)
        f *= (double)x->io->params[x->score->factor[i] + h];
    return f;
}

void back_params(const struct exact_back *k)
{
    const struct exact *x = &k->x;
    const struct score *s = x->score;

    for (int64_t h = 0; h < x->heads; h++) {
        double d_factor = 0, d_sink = 0;
        for (int64_t i = 0; is_learned(x) && i < exact_fold_blocks(x); i++) {
            const struct back_rows *rows = &k->rows[exact_fold_block(x, h, i).at];
            d_factor += rows->d_factor;
            d_sink += rows->d_sink;
        }
        if (x->order) d_sink += order_sink(x, h);
        if (s->sink >= 0) k->g->dparams[s->sink + h] += (float)d_sink;
        for (int i = 0; i < s->n_factors; i++) {
            double others = s->scale * exact_source_weight(x, h, SOURCE_QK);
            for (int j = 0; j < s->n_factors; j++)
                if (j != i) others *= (double)x->io->params[s->factor[j] + h];
            k->g->dparams[s->factor[i] + h] += (float)(d_factor * others);
        }
        exact_source_back_weights(x, &k->source, h, d_factor * plain_scale(x, h),
                                  k->g->dparams);
    }
    exact_position_params(x, k->parts, k->g->dparams);
    exact_shaw_params(x, &k->shaw, k->g->dparams);
    exact_txl_params(x, &k->txl, k->g->dparams);
    exact_project_params(x, k->g->dparams);
}
