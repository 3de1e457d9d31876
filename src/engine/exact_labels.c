/* exact_labels.c -- labels of rows: by place, or by what the rows hold.
 *
 *     nearest   t of the largest x.c_t
 *     angular   t of the largest of [xR, -xR]
 *     floor     floor((x.a + b) / width)
 *
 * x is a row as the mechanism's own map leaves it.  64 rows are lanes and the vectors
 * they are compared with the first operand of a product, read where they are.  Products
 * are floats; where what rounding may have moved decides, it is done once more in
 * double, row by row, so that a label never depends on the order of a sum.
 */
#include <math.h>
#include <string.h>

#include "engine/exact_order.h"
#include "engine/exact_pack.h"

struct label_room label_room_take(const struct exact *x, struct arena *a)
{
    struct label_room r;

    r.tile = arena_take(a, (int64_t)TILE * x->ldq, sizeof(float));
    r.cols = arena_take(a, (int64_t)LANES * x->ldq, sizeof(float));
    r.s = arena_take(a, (int64_t)TILE * LANES, sizeof(float));
    r.exact = arena_take(a, x->dq, sizeof(double));
    return r;
}

size_t order_labels_scratch(const struct exact *x)
{
    struct arena one = { 0 };
    label_room_take(x, &one);
    return one.used;
}

struct vectors label_vectors(const struct exact *x, int64_t set, int64_t round)
{
    return vectors_of(x->stage, x->dq, x->io->params, set, round);
}

/* Norms of the longest vectors, not less. */
void label_reach(struct exact *x)
{
    struct order *o = x->order;

    for (int64_t i = 0; i < o->sets * o->rounds; i++) {
        const struct vectors v = label_vectors(x, i / o->rounds, i % o->rounds);
        double               most = 0;

        for (int64_t t = 0; t < v.n; t++) {
            double sum = 0;
            for (int64_t c = 0; c < x->dq; c++) {
                const double y = (double)v.at[t * v.row + c * v.col];
                sum += y * y;
            }
            if (!(sum <= most)) most = sum; /* NaN stays */
        }
        o->reach[i] = (float)(sqrt(most) * (1 + 1e-6));
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

void label_load_exactly(const struct exact *x, const struct exact_seq *s, int64_t set,
                        bool keys, int64_t i, struct label_room *r)
{
    float part[TILE];

    for (int c = 0; c < x->dq; c += TILE) {
        const int n = (int)min64(TILE, x->dq - c);
        x->k->load_rows(part, TILE,
                        row_of(x, s, set, keys, i) +
                            (size_t)c * foci_dtype_bytes(x->p->dtype),
                        0, (int)x->p->dtype, 1, n);
        for (int t = 0; t < n; t++)
            r->exact[c + t] = (double)part[t];
    }
    if (x->score->map == FOCI_MAP_STANDARD) vectors_standard(r->exact, x->dq);
}

void label_load_tile(const struct exact *x, const struct exact_seq *s, int64_t set,
                     bool keys, int64_t first, int n, struct label_room *r, float *slack)
{
    const foci_layout *l = keys ? &x->p->k : &x->p->q;
    _Alignas(64) float square[TILE];

    x->k->load_rows(r->tile, x->ldq, row_of(x, s, set, keys, first), l->row,
                    (int)x->p->dtype, n, x->dq);
    memset(r->tile + (int64_t)n * x->ldq, 0,
           (size_t)(TILE - n) * (size_t)x->ldq * sizeof(float));
    if (x->score->map == FOCI_MAP_STANDARD)
        exact_standard(r->tile, x->ldq, x->dq, n, square);
    x->k->row_dot(square, r->tile, r->tile, x->ldq, LANES, x->dq);
    for (int i = 0; i < LANES; i++)
        slack[i] = sqrtf(square[i]) * (float)(x->dq + 8) * 0x1p-24f;
    x->k->pack_cols_f32(r->cols, r->tile, x->ldq, LANES, x->dq);
}

/*
 * Labels
 */

/* What is computed of a tile, and where its labels go. */
struct target {
    const struct exact_seq *seq;
    int64_t                 set, first;
    int                     n;
    bool                    keys;
    float                   slack[LANES]; /* of a product, by rounding */
};

static void find_best(const struct exact *x, const struct target *t, int64_t round,
                      struct label_room *r, int32_t *label)
{
    const struct order  *o = x->order;
    const struct vectors v = label_vectors(x, t->set, round);
    const float          reach = o->reach[t->set * o->rounds + round];
    _Alignas(64) float   most[LANES], next[LANES], at[LANES] = { 0 };

    for (int i = 0; i < LANES; i++)
        most[i] = next[i] = -INFINITY;
    for (int64_t first = 0; first < v.n; first += TILE) {
        const int n = (int)min64(TILE, v.n - first);
        x->k->gemm_f32(r->s, LANES, v.at + first * v.row, v.row, v.col, r->cols, LANES,
                       n, LANES, x->dq, 0);
        x->k->best(r->s, n, (int)first, v.both, most, next, at);
    }
    for (int i = 0; i < t->n; i++) {
        float gap = most[i] - next[i];

        if (v.both && !(gap < 2 * most[i])) gap = 2 * most[i]; /* to its own negative */
        if (!(gap > 2 * t->slack[i] * reach)) {
            label_load_exactly(x, t->seq, t->set, t->keys, t->first + i, r);
            label[i] = vectors_best(&v, r->exact);
        } else if (v.both)
            label[i] = (int32_t)(fabsf(at[i]) - 1) + (at[i] < 0 ? (int32_t)v.n : 0);
        else
            label[i] = (int32_t)at[i];
    }
}

static void find_floor(const struct exact *x, const struct target *t, int64_t round,
                       struct label_room *r, double *label)
{
    const struct order  *o = x->order;
    const struct vectors v = label_vectors(x, t->set, round);
    const double reach = (double)o->reach[t->set * o->rounds + round] / o->how.width;

    x->k->gemm_f32(r->s, LANES, v.at, v.row, v.col, r->cols, LANES, 1, LANES, x->dq, 0);
    for (int i = 0; i < t->n; i++) {
        const double y = ((double)r->s[i] + v.shift) / o->how.width;
        const double slack = (double)t->slack[i] * reach;

        label[i] = floor(y);
        if (y - label[i] > slack && label[i] + 1 - y > slack) continue;
        label_load_exactly(x, t->seq, t->set, t->keys, t->first + i, r);
        label[i] = vectors_stripe(&v, r->exact, o->how.width);
    }
}

/* Labels of up to 64 rows, in all rounds. */
static void label_tile(const struct exact *x, struct target *t, struct label_room *r)
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

/* Queries before the first key have no place, and no label. */
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

/* The tiles of queries of all sets, then those of keys. */
static void tile_job(void *arg, int64_t i, int thread)
{
    const struct exact     *x = arg;
    const struct order     *o = x->order;
    const int64_t           q_jobs = o->sets * x->n_qt;
    const bool              keys = i >= q_jobs;
    const int64_t           n_t = keys ? x->n_kt : x->n_qt, j = keys ? i - q_jobs : i;
    const struct exact_seq *s =
        &x->seqs[keys ? x->seq_of_k[j % n_t] : x->seq_of_q[j % n_t]];
    struct target     t = { .seq = s, .set = j / n_t, .keys = keys };
    struct arena      mine = { .base = o->scratch + (size_t)thread * o->scratch_bytes };
    struct label_room room = label_room_take(x, &mine);

    t.first = (j % n_t - (keys ? s->kt0 : s->qt0)) * TILE;
    t.n = (int)min64(TILE, (keys ? s->s.nk : s->s.nq) - t.first);
    if (t.n > 0) label_tile(x, &t, &room);
}

void order_labels(struct exact *x)
{
    const struct order *o = x->order;
    const int64_t       jobs = o->sets * (x->n_qt + (o->how.shared ? 0 : x->n_kt));
    const int           threads = exact_threads(x, jobs, x->plan->cost.forward_flops);

    if (order_by_place(o)) {
        for (int64_t i = 0; i < x->n_seqs; i++)
            label_places(x, &x->seqs[i]);
        return;
    }
    label_reach(x);
    phases_run(x->k, x->plan->shared, threads, &(struct phase){ jobs, 4, tile_job, x },
               1);
}
