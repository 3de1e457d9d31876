/* exact_take.c -- labels that take rows: each the queries and the keys nearest to it.
 *
 * Every label is a cell, and a query may be in several.  So what is summed is summed for
 * each entry of the lists, one sequence after the other, and rows get the mean of their
 * entries at the end.  Backward, the entries of a sequence are computed once more: to
 * keep them all would take as much memory as their number, in place of their lists.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/exact_score.h"
#include "engine/exact_sweep.h"

enum { AT_ONCE = 64 }; /* labels compared with all rows */

/*
 * Lists
 */

/* Scratch of one thread. */
struct room {
    struct label_room label;
    struct sorting    sort;
    float            *scores; /* [AT_ONCE][rows] */
};

static struct room room_take(const struct exact *x, struct arena *a)
{
    const int64_t rows = max64(x->p->len_q, x->p->len_k);

    return (struct room){ .label = label_room_take(x, a),
                          .sort = sorting_take(x, a),
                          .scores = arena_take(a, AT_ONCE * rows, sizeof(float)) };
}

size_t take_scratch(const struct exact *x)
{
    struct arena one = { 0 };
    room_take(x, &one);
    return one.used;
}

/* Bits that sort as the number does. */
static uint32_t bits_of(float y)
{
    uint32_t u;

    memcpy(&u, &y, sizeof u);
    return u >> 31 ? ~u : u | UINT32_C(1) << 31;
}

static float float_of(uint32_t u)
{
    float y;

    u = u >> 31 ? u & ~(UINT32_C(1) << 31) : ~u;
    memcpy(&y, &u, sizeof y);
    return y;
}

/* The w-th largest of n numbers, digit by digit from the top. */
static float nth_largest(const float *s, int64_t n, int64_t w)
{
    uint32_t found = 0;

    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t count[256] = { 0 };
        int     digit = 255;

        for (int64_t i = 0; i < n; i++) {
            const uint32_t u = bits_of(s[i]);
            if (shift == 24 || u >> (shift + 8) == found >> (shift + 8))
                count[u >> shift & 255]++;
        }
        for (; count[digit] < w; digit--)
            w -= count[digit];
        found |= (uint32_t)digit << shift;
    }
    return float_of(found);
}

/* What is computed for one label: scores of n rows, good to `slack`. */
struct pick {
    const struct exact_seq *seq;
    int64_t                 set, label, n;
    bool                    keys;
    float                  *score, slack;
};

/* Of the rows near the edge, decide in double: those that are in get the score inf, the
 * others -inf. */
static void decide(const struct exact *x, const struct pick *p, float edge,
                   int64_t need, struct room *r)
{
    const struct vectors v = label_vectors(x, p->set, 0);
    int64_t              n = 0;

    for (int64_t i = 0; i < p->n; i++) {
        if (!(p->score[i] <= edge + p->slack && p->score[i] >= edge - p->slack))
            continue;
        label_load_exactly(x, p->seq, p->set, p->keys, i, &r->label);
        const double y = vectors_dot(&v, r->label.exact, p->label);
        r->sort.key[0][n] = ~sort_bits(isnan(y) ? -INFINITY : y);
        r->sort.row[0][n++] = (int32_t)i;
    }
    sort_rows(&r->sort, n, UINT64_MAX);
    for (int64_t i = 0; i < n; i++)
        p->score[r->sort.row[0][i]] = i < need ? INFINITY : -INFINITY;
}

/* The w rows that are nearest, in their order; ties go to the earlier. */
static void pick_rows(const struct exact *x, const struct pick *p, int64_t w,
                      struct room *r, int32_t *list)
{
    const float edge = w ? nth_largest(p->score, p->n, w) : 0;
    int64_t     above = 0, near = 0, used = 0;

    for (int64_t i = 0; i < p->n; i++) {
        above += p->score[i] > edge + p->slack;
        near += p->score[i] <= edge + p->slack && p->score[i] >= edge - p->slack;
    }
    const bool close = above + near > w;
    if (close) decide(x, p, edge, w - above, r);
    for (int64_t i = 0; i < p->n && used < w; i++) {
        const float y = p->score[i];
        if (close ? y == INFINITY || y > edge + p->slack : y >= edge - p->slack)
            list[used++] = (int32_t)i;
    }
}

/* Lists of AT_ONCE labels, from `label` on. */
static void pick_labels(struct exact *x, struct pick p, int64_t w, struct room *r,
                        int32_t *list)
{
    const struct order  *o = x->order;
    const struct vectors v = label_vectors(x, p.set, 0);
    const int64_t        n = min64(AT_ONCE, o->labels - p.label), first = p.label;
    float                slack[LANES], most = 0;

    for (int64_t i = 0; i < p.n; i += LANES) {
        const int rows = (int)min64(LANES, p.n - i);

        label_load_tile(x, p.seq, p.set, p.keys, i, rows, &r->label, slack);
        x->k->gemm_f32(r->label.s, LANES, v.at + first * v.row, v.row, v.col,
                       r->label.cols, LANES, (int)n, LANES, x->dq, 0);
        for (int64_t t = 0; t < n; t++)
            for (int c = 0; c < rows; c++) {
                const float y = r->label.s[t * LANES + c];
                r->scores[t * p.n + i + c] = !(y > -FLT_MAX) ? -FLT_MAX
                                             : y > FLT_MAX   ? FLT_MAX
                                                             : y;
            }
        for (int c = 0; c < rows; c++)
            most = fmaxf(most, slack[c]);
    }
    p.slack = 2 * most * o->reach[p.set];
    if (!isfinite(p.slack)) p.slack = INFINITY;
    for (int64_t t = 0; t < n; t++) {
        p.label = first + t;
        p.score = r->scores + t * p.n;
        pick_rows(x, &p, w, r, list + p.label * w);
    }
}

/* Where the lists of the sequence at hand lie, and how many rows labels take. */
static void set_lists(struct exact *x, int64_t i)
{
    struct order           *o = x->order;
    const struct exact_seq *s = &x->seqs[i];
    foci_order              how = o->how;

    s->mech->def->order(s->mech, &how);
    o->seq0 = i;
    o->take_q = min64(how.take, s->s.nq);
    o->take_k = min64(how.take, s->s.nk);
    o->list_q =
        o->lists + (o->all_lists ? i : 0) * x->heads * (o->entries_q + o->entries_k);
    o->list_k = o->list_q + x->heads * o->entries_q;
}

/* Labels that took each row. */
static void count_taken(const struct exact *x)
{
    const struct order *o = x->order;
    const int64_t       first = order_q_row(x, &x->seqs[o->seq0]);

    for (int64_t h = 0; h < x->heads; h++) {
        int32_t *taken = o->taken + h * o->q_rows + first;
        memset(taken, 0, (size_t)x->seqs[o->seq0].s.nq * sizeof *taken);
        for (int64_t e = 0; e < o->labels * o->take_q; e++)
            taken[o->list_q[h * o->entries_q + e]]++;
    }
}

/* Some labels of a head: of queries and of keys in turn. */
static void pick_job(void *arg, int64_t i, int thread)
{
    struct exact           *x = arg;
    const struct order     *o = x->order;
    const struct exact_seq *s = &x->seqs[o->seq0];
    const int64_t           groups = div_up(o->labels, AT_ONCE), set = i / 2 / groups;
    const bool              keys = i & 1;
    struct arena mine = { .base = o->scratch + (size_t)thread * o->scratch_bytes };
    struct room  room = room_take(x, &mine);
    struct pick  p = { .seq = s,
                       .set = set,
                       .label = i / 2 % groups * AT_ONCE,
                       .n = keys ? s->s.nk : s->s.nq,
                       .keys = keys };

    pick_labels(x, p, keys ? o->take_k : o->take_q, &room,
                keys ? o->list_k + set * o->entries_k : o->list_q + set * o->entries_q);
}

static void make_lists(struct exact *x)
{
    const int64_t jobs = 2 * x->heads * div_up(x->order->labels, AT_ONCE);
    const int     threads = exact_threads(x, jobs, x->plan->cost.forward_flops);

    phases_run(x->k, x->plan->shared, threads, &(struct phase){ jobs, 1, pick_job, x },
               1);
}

/*
 * Entries
 */

/* The softmax of the entries of the sequence at hand. */
static void attend(struct exact *x)
{
    struct order *o = x->order;

    if (o->visible) {
        memset(o->visible, 0, (size_t)(x->heads * o->sums_q) * sizeof *o->visible);
        order_cells(x, 0, false);
        sweep_count(x, 0);
    }
    order_start(x);
    order_cells(x, 0, false);
    sweep_forward(x, 0);
}

/* What the sum of an entry is multiplied by. */
static float factor_of(const struct exact *x, int64_t at)
{
    const struct order *o = x->order;
    const float         l = o->l[at];
    int64_t             visible[LANES] = { o->visible ? o->visible[at] : 0 };
    float               share[LANES];

    if (x->kind == FOCI_RELU2) {
        exact_shares(x, visible, share);
        return share[0] * (x->drops ? x->kept : 1);
    }
    if (l == 0) return 0;
    return (x->drops ? x->kept : 1) / (x->kind == FOCI_L2NORM ? sqrtf(l) : l);
}

/* The logarithm of the normaliser, as backward wants it. */
static float norm_of(const struct exact *x, int64_t at)
{
    const struct order *o = x->order;
    const double        half = x->kind == FOCI_L2NORM ? 0.5 : 1;

    if (x->kind == FOCI_RELU2) return factor_of(x, at) / (x->drops ? x->kept : 1);
    if (o->l[at] == 0) return INFINITY;
    return (float)((double)o->m[at] + log2((double)o->l[at]) * half);
}

static char *row_at(const struct exact *x, const void *base, const foci_layout *l,
                    int64_t h, int64_t i)
{
    const struct seq *s = &x->seqs[x->order->seq0].s;
    const int64_t     at =
        s->b * l->batch + (s->q0 + i) * l->row + (x->head0 + h) * l->head;

    return (char *)base + (size_t)at * foci_dtype_bytes(x->p->dtype);
}

/* The mean of a row's entries goes out. */
static void store_head(const struct exact *x, int64_t h, float *saved)
{
    const struct order     *o = x->order;
    const struct exact_seq *s = &x->seqs[o->seq0];
    const int64_t           first = order_q_row(x, s);
    float                  *mean = o->mean + h * x->p->len_q * x->ldv;
    const int32_t          *taken = o->taken + h * o->q_rows + first;
    float                  *lse = x->io->lse;

    if (lse) lse += (s->s.b * x->p->heads + x->head0 + h) * x->p->len_q + s->s.q0;
    memset(mean, 0, (size_t)(s->s.nq * x->ldv) * sizeof *mean);
    for (int64_t e = 0; e < o->labels * o->take_q; e++) {
        const int64_t at = h * o->sums_q + e, i = o->list_q[h * o->entries_q + e];
        const float   by = factor_of(x, at);

        for (int c = 0; c < x->dv; c++)
            mean[i * x->ldv + c] += by * o->o[at * x->ldv + c];
        if (lse && by != 0) lse[i] = 0;
    }
    for (int64_t i = 0; i < s->s.nq; i++) {
        const float share = taken[i] ? 1 / (float)taken[i] : 0;
        x->k->store_rows(row_at(x, x->io->o, &x->p->o, h, i), 0, (int)x->p->dtype,
                         mean + i * x->ldv, 0, share, 1, x->dv);
        if (saved) saved[h * o->q_rows + first + i] = INFINITY;
    }
}

void take_lists(struct exact *x, int64_t i)
{
    label_reach(x);
    set_lists(x, i);
    make_lists(x);
}

/* A pass over heads, for its jobs. */
struct taking {
    struct exact *x;
    float        *saved;
    int64_t       turn; /* of the heads that share keys */
};

static void store_job(void *arg, int64_t h, int thread)
{
    const struct taking *t = arg;

    (void)thread;
    store_head(t->x, h, t->saved);
}

void take_forward(struct exact *x, float *saved)
{
    struct taking t = { .x = x, .saved = saved };

    for (int64_t i = 0; i < x->n_seqs; i++) {
        const int threads = exact_threads(x, x->heads, x->plan->cost.forward_flops);

        if (!x->seqs[i].s.nq) continue;
        take_lists(x, i);
        count_taken(x);
        attend(x);
        phases_run(x->k, x->plan->shared, threads,
                   &(struct phase){ x->heads, 1, store_job, &t }, 1);
    }
}

/*
 * Backward
 */

void take_begin_back(struct exact *x)
{
    for (int64_t i = 0; i < x->n_seqs; i++) {
        set_lists(x, i);
        if (x->seqs[i].s.nq) count_taken(x);
    }
}

/* Factors, normalisers and d_o . o of the entries of a head; its share of the gradient of
 * the sink. */
static void note_head(const struct exact *x, int64_t h)
{
    const struct order *o = x->order;
    const int64_t       first = order_q_row(x, &x->seqs[o->seq0]);
    const struct block  b = { .h = x->head0 + h };
    float              *g = o->mean + h * x->p->len_q * x->ldv;

    for (int64_t e = 0; e < o->labels * o->take_q; e++) {
        const int64_t at = h * o->sums_q + e, i = o->list_q[h * o->entries_q + e];
        const float   by = factor_of(x, at);
        float         plain[LANES], f[LANES], mul[LANES];
        int64_t       visible[LANES] = { o->visible ? o->visible[at] : 0 };
        double        delta = 0;

        x->k->load_rows(g, x->ldv, row_at(x, o->d_o, &x->p->o, h, i), 0,
                        (int)x->p->dtype, 1, x->dv);
        order_share_row(x, g, 1 / (float)o->taken[h * o->q_rows + first + i]);
        for (int c = 0; c < x->dv; c++)
            delta += (double)g[c] * (double)(by * o->o[at * x->ldv + c]);
        exact_factors(x, &b, visible, plain, f, mul);
        o->rows[at] =
            (struct order_row){ plain[0], f[0], mul[0], norm_of(x, at), (float)delta };
        if (x->score->sink < 0 || o->rows[at].norm == INFINITY) continue;
        o->d_sink[h] -= exp2((double)x->io->params[x->score->sink + h] * LOG2_E -
                             (double)o->rows[at].norm) *
                        delta;
    }
}

/* Gradients of the entries, added to those of their rows. */
static void add_head(const struct exact *x, int64_t h)
{
    const struct order     *o = x->order;
    const struct exact_seq *s = &x->seqs[o->seq0];
    const int64_t           kv = h / x->per_kv;

    for (int64_t e = 0; e < o->labels * o->take_q; e++) {
        const int64_t i = order_q_row(x, s) + o->list_q[h * o->entries_q + e];
        const int64_t at = h * o->sums_q + e;
        for (int c = 0; c < x->dq; c++)
            o->dq_rows[(h * o->q_rows + i) * x->ldq + c] +=
                o->rows[at].mul * o->dq[at * x->ldq + c];
    }
    for (int64_t e = 0; e < o->labels * o->take_k; e++) {
        const int64_t j = order_k_row(x, s) + o->list_k[h * o->entries_k + e];
        const int64_t at = h * o->entries_k + e;
        for (int c = 0; c < x->dq; c++)
            x->dk_rows[(kv * o->k_rows + j) * x->ldq + c] += o->dk[at * x->ldq + c];
        for (int c = 0; c < x->dv; c++)
            x->dv_rows[(kv * o->k_rows + j) * x->ldv + c] += o->dv[at * x->ldv + c];
    }
}

static void note_job(void *arg, int64_t h, int thread)
{
    const struct taking *t = arg;

    (void)thread;
    note_head(t->x, h);
}

static void add_job(void *arg, int64_t kv, int thread)
{
    const struct taking *t = arg;

    (void)thread;
    add_head(t->x, kv * t->x->per_kv + t->turn);
}

void take_backward(struct exact *x)
{
    struct order *o = x->order;
    const size_t  size = sizeof(float), heads = (size_t)x->heads;
    const int     threads = exact_threads(x, x->heads, x->plan->cost.backward_flops);
    struct taking t = { .x = x };

    memset(o->d_sink, 0, heads * sizeof *o->d_sink);
    for (int64_t i = 0; i < x->n_seqs; i++) {
        set_lists(x, i);
        if (!x->seqs[i].s.nq) continue;
        attend(x);
        memset(o->dq, 0, heads * (size_t)(o->entries_q * x->ldq) * size);
        memset(o->dk, 0, heads * (size_t)(o->entries_k * x->ldq) * size);
        memset(o->dv, 0, heads * (size_t)(o->entries_k * x->ldv) * size);
        phases_run(x->k, x->plan->shared, threads,
                   &(struct phase){ x->heads, 1, note_job, &t }, 1);
        order_cells(x, 0, true);
        sweep_backward(x, 0);
        /* Heads that share keys take turns. */
        for (t.turn = 0; t.turn < x->per_kv; t.turn++)
            phases_run(x->k, x->plan->shared, threads,
                       &(struct phase){ x->kv_heads, 1, add_job, &t }, 1);
    }
}
