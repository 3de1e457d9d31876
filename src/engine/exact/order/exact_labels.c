/* exact_labels.c -- labels of rows, by position or by content.
 *
 *     nearest   the t of the largest x.c_t
 *     angular   the t of the largest element of [xR, -xR]
 *     floor     floor((x.a + b) / width)
 *
 * x is a row after the mechanism's own map.  64 rows are lanes, and the vectors are the
 * first operand of a product, read in place.  Products are floats.  Where rounding may
 * have decided, the row is compared once more in double, so that a label never depends
 * on the order of a sum.
 */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_map.h"
#include "engine/exact/order/exact_order.h"

struct label_scratch label_scratch(const struct exact *x, struct arena *a)
{
    struct label_scratch r;

    r.tile = arena_alloc(a, (int64_t)TILE * x->d.ldq, sizeof(float));
    r.cols = arena_alloc(a, (int64_t)LANES * x->d.ldq, sizeof(float));
    r.s = arena_alloc(a, (int64_t)TILE * LANES, sizeof(float));
    r.exact = arena_alloc(a, x->d.q, sizeof(double));
    return r;
}

size_t order_labels_bytes(const struct exact *x)
{
    struct arena one = { 0 };
    label_scratch(x, &one);
    return one.used;
}

struct vectors label_vectors(const struct exact *x, int64_t set, int64_t round)
{
    return vectors_of(x->stage, x->d.q, x->io->params, set, round);
}

/* Upper bounds of the norms of the longest vectors. */
void label_vector_norms(struct exact *x)
{
    struct order *o = x->order;

    for (int64_t i = 0; i < o->sets * o->rounds; i++) {
        const struct vectors v = label_vectors(x, i / o->rounds, i % o->rounds);
        double               most = 0;

        for (int64_t t = 0; t < v.n; t++) {
            double sum = 0;
            for (int64_t c = 0; c < x->d.q; c++) {
                const double y = (double)v.at[t * v.row + c * v.col];
                sum += y * y;
            }
            if (!(sum <= most)) most = sum; /* NaN stays NaN */
        }
        o->vector_norm[i] = (float)(sqrt(most) * (1 + 1e-6));
    }
}

/*
 * Rows
 */

/* Row i of the queries, or of the keys that head `set` sees. */
static const char *row_of(const struct exact *x, const struct exact_seq *s, int64_t set,
                          bool keys, int64_t i)
{
    const foci_layout *l = keys ? &x->p->k : &x->p->q;
    const int64_t      head = keys ? x->kv0 + set / x->per_kv : x->head0 + set;
    const int64_t      row = (keys ? s->s.k0 : s->s.q0) + i;
    const int64_t      at = s->s.b * l->batch + row * l->row + head * l->head;

    return (const char *)(keys ? x->io->k : x->io->q) +
           (size_t)at * foci_dtype_bytes(x->p->dtype);
}

void label_load_double(const struct exact *x, const struct exact_seq *s, int64_t set,
                       bool keys, int64_t i, struct label_scratch *r)
{
    float part[TILE];

    for (int c = 0; c < x->d.q; c += TILE) {
        const int n = (int)min64(TILE, x->d.q - c);
        x->k->load_rows(part, TILE,
                        row_of(x, s, set, keys, i) +
                            (size_t)c * foci_dtype_bytes(x->p->dtype),
                        0, (int)x->p->dtype, 1, n);
        for (int t = 0; t < n; t++)
            r->exact[c + t] = (double)part[t];
    }
    if (x->score->map == FOCI_MAP_STANDARD) vectors_standard(r->exact, x->d.q);
}

void label_load_tile(const struct exact *x, const struct exact_seq *s, int64_t set,
                     bool keys, int64_t first, int n, struct label_scratch *r,
                     float *slack)
{
    const foci_layout *l = keys ? &x->p->k : &x->p->q;
    _Alignas(64) float square[TILE];

    x->k->load_rows(r->tile, x->d.ldq, row_of(x, s, set, keys, first), l->row,
                    (int)x->p->dtype, n, x->d.q);
    memset(r->tile + (int64_t)n * x->d.ldq, 0,
           (size_t)(TILE - n) * (size_t)x->d.ldq * sizeof(float));
    if (x->score->map == FOCI_MAP_STANDARD)
        exact_standardise(r->tile, x->d.ldq, x->d.q, n, square);
    x->k->row_dot(square, r->tile, r->tile, x->d.ldq, LANES, x->d.q);
    for (int i = 0; i < LANES; i++)
        slack[i] = sqrtf(square[i]) * (float)(x->d.q + 8) * 0x1p-24f;
    x->k->pack_cols_f32(r->cols, r->tile, x->d.ldq, LANES, x->d.q);
}

/*
 * Labels
 */

/* A tile of rows whose labels are to be found. */
struct label_tile {
    const struct exact_seq *seq;
    int64_t                 set, first;
    int                     n;
    bool                    keys;
    float slack[LANES]; /* rounding error of a product with a vector of norm 1 */
};

static void find_best(const struct exact *x, const struct label_tile *t, int64_t round,
                      struct label_scratch *r, int32_t *label)
{
    const struct order  *o = x->order;
    const struct vectors v = label_vectors(x, t->set, round);
    const float          reach = o->vector_norm[t->set * o->rounds + round];
    _Alignas(64) float   most[LANES], next[LANES], at[LANES] = { 0 };

    for (int i = 0; i < LANES; i++)
        most[i] = next[i] = -INFINITY;
    for (int64_t first = 0; first < v.n; first += TILE) {
        const int n = (int)min64(TILE, v.n - first);
        x->k->gemm_f32(r->s, LANES, v.at + first * v.row, v.row, v.col, r->cols, LANES,
                       n, LANES, x->d.q, 0);
        x->k->best(r->s, n, (int)first, v.both, most, next, at);
    }
    for (int i = 0; i < t->n; i++) {
        float gap = most[i] - next[i];

        if (v.both && !(gap < 2 * most[i]))
            gap = 2 * most[i]; /* distance to its own negative */
        if (!(gap > 2 * t->slack[i] * reach)) {
            label_load_double(x, t->seq, t->set, t->keys, t->first + i, r);
            label[i] = vectors_best(&v, r->exact);
        } else if (v.both)
            label[i] = (int32_t)(fabsf(at[i]) - 1) + (at[i] < 0 ? (int32_t)v.n : 0);
        else
            label[i] = (int32_t)at[i];
    }
}

static void find_floor(const struct exact *x, const struct label_tile *t, int64_t round,
                       struct label_scratch *r, double *label)
{
    const struct order  *o = x->order;
    const struct vectors v = label_vectors(x, t->set, round);
    const double         reach =
        (double)o->vector_norm[t->set * o->rounds + round] / o->how.width;

    x->k->gemm_f32(r->s, LANES, v.at, v.row, v.col, r->cols, LANES, 1, LANES, x->d.q, 0);
    for (int i = 0; i < t->n; i++) {
        const double y = ((double)r->s[i] + v.shift) / o->how.width;
        const double slack = (double)t->slack[i] * reach;

        label[i] = floor(y);
        if (y - label[i] > slack && label[i] + 1 - y > slack) continue;
        label_load_double(x, t->seq, t->set, t->keys, t->first + i, r);
        label[i] = vectors_stripe(&v, r->exact, o->how.width);
    }
}

/* Find the labels of up to 64 rows, in all rounds. */
static void label_tile(const struct exact *x, struct label_tile *t,
                       struct label_scratch *r)
{
    const struct order *o = x->order;
    const int64_t       rows = t->keys ? o->k_rows : o->q_rows;
    const int64_t       row =
        t->first + (t->keys ? order_k_row(x, t->seq) : order_q_row(x, t->seq));

    label_load_tile(x, t->seq, t->set, t->keys, t->first, t->n, r, t->slack);
    for (int64_t round = 0; round < o->rounds; round++) {
        const int64_t at = (t->set * o->rounds + round) * rows + row;

        if (o->how.label == FOCI_LABEL_FLOOR)
            find_floor(x, t, round, r, (t->keys ? o->raw_k : o->raw_q) + at);
        else
            find_best(x, t, round, r, (t->keys ? o->label_k : o->label_q) + at);
    }
}

/* Queries before the first key have no position, so no label. */
static void label_places(const struct exact *x, const struct exact_seq *s)
{
    const struct order *o = x->order;
    const foci_mech    *m = s->mech;

    for (int64_t i = 0; i < s->s.nq; i++)
        o->raw_q[order_q_row(x, s) + i] =
            i + s->pos0 < 0 ? NAN : (double)m->def->place(m, i + s->pos0);
    for (int64_t j = 0; j < s->s.nk; j++)
        o->raw_k[order_k_row(x, s) + j] = (double)m->def->place(m, j);
}

/* Jobs: the tiles of queries of all sets, then those of keys. */
static void tile_job(void *arg, int64_t i, int thread)
{
    const struct exact     *x = arg;
    const struct order     *o = x->order;
    const int64_t           q_jobs = o->sets * x->n.qt;
    const bool              keys = i >= q_jobs;
    const int64_t           n_t = keys ? x->n.kt : x->n.qt, j = keys ? i - q_jobs : i;
    const struct exact_seq *s =
        &x->seqs[keys ? x->seq_of_k[j % n_t] : x->seq_of_q[j % n_t]];
    struct label_tile    t = { .seq = s, .set = j / n_t, .keys = keys };
    struct arena         mine = order_scratch(x, thread);
    struct label_scratch scratch = label_scratch(x, &mine);

    t.first = (j % n_t - (keys ? s->kt0 : s->qt0)) * TILE;
    t.n = (int)min64(TILE, (keys ? s->s.nk : s->s.nq) - t.first);
    if (t.n > 0) label_tile(x, &t, &scratch);
}

void order_labels(struct exact *x)
{
    const struct order *o = x->order;
    const int64_t       jobs = o->sets * (x->n.qt + (o->how.shared_qk ? 0 : x->n.kt));
    const int           threads = exact_threads(x, jobs, x->plan->cost.forward_flops);

    if (order_by_place(o)) {
        for (int64_t i = 0; i < x->n.seqs; i++)
            label_places(x, &x->seqs[i]);
        return;
    }
    label_vector_norms(x);
    phases_run(x->k, x->exec.shared, threads, &(struct phase){ jobs, 4, tile_job, x },
               1);
}
