/* exact_topk_lists.c -- the rows of top-k labels: for each label the queries, and the
 * keys, with the largest products with its vector.
 *
 * Products are floats.  Rows so near the threshold that rounding may have moved them
 * are decided in double.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/exact/order/exact_order.h"

enum { LABELS_AT_ONCE = 64 }; /* labels that are compared with all rows together */

/*
 * Lists
 */

/* Scratch of one thread. */
struct topk_scratch {
    struct label_scratch label;
    struct sort_scratch  sort;
    float               *scores; /* [LABELS_AT_ONCE][rows] */
};

static struct topk_scratch topk_scratch_carve(const struct exact *x, struct arena *a)
{
    const int64_t rows = max64(x->p->len_q, x->p->len_k);

    return (struct topk_scratch){ .label = label_scratch(x, a),
                                  .sort = sort_scratch(x, a),
                                  .scores = arena_alloc(a, LABELS_AT_ONCE * rows,
                                                        sizeof(float)) };
}

size_t topk_scratch_bytes(const struct exact *x)
{
    struct arena one = { 0 };
    topk_scratch_carve(x, &one);
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

/* The w-th largest of n numbers, by radix selection from the top digit. */
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

/* One label, and the scores of n rows with error bound `slack`. */
struct topk_pick {
    const struct exact_seq *seq;
    int64_t                 set, label, n;
    bool                    keys;
    float                  *score, slack;
};

/* Decide in double about the rows near the threshold: their scores become inf if taken,
 * -inf if not. */
static void decide(const struct exact *x, const struct topk_pick *p, float edge,
                   int64_t need, struct topk_scratch *r)
{
    const struct vectors v = label_vectors(x, p->set, 0);
    int64_t              n = 0;

    for (int64_t i = 0; i < p->n; i++) {
        if (!(p->score[i] <= edge + p->slack && p->score[i] >= edge - p->slack))
            continue;
        label_load_double(x, p->seq, p->set, p->keys, i, &r->label);
        const double y = vectors_dot(&v, r->label.exact, p->label);
        r->sort.key[0][n] = ~sort_bits(isnan(y) ? -INFINITY : y);
        r->sort.row[0][n++] = (int32_t)i;
    }
    sort_rows(&r->sort, n, UINT64_MAX);
    for (int64_t i = 0; i < n; i++)
        p->score[r->sort.row[0][i]] = i < need ? INFINITY : -INFINITY;
}

/* The w rows with the largest scores, in their order; ties go to the earlier row. */
static void pick_rows(const struct exact *x, const struct topk_pick *p, int64_t w,
                      struct topk_scratch *r, int32_t *list)
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

/* Lists of up to LABELS_AT_ONCE labels, from `label` on. */
static void pick_labels(struct exact *x, struct topk_pick p, int64_t w,
                        struct topk_scratch *r, int32_t *list)
{
    const struct order  *o = x->order;
    const struct vectors v = label_vectors(x, p.set, 0);
    const int64_t n = min64(LABELS_AT_ONCE, o->labels - p.label), first = p.label;
    float         slack[LANES], most = 0;

    for (int64_t i = 0; i < p.n; i += LANES) {
        const int rows = (int)min64(LANES, p.n - i);

        label_load_tile(x, p.seq, p.set, p.keys, i, rows, &r->label, slack);
        x->k->gemm_f32(r->label.s, LANES, v.at + first * v.row, v.row, v.col,
                       r->label.cols, LANES, (int)n, LANES, x->d.q, 0);
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
    p.slack = 2 * most * o->vector_norm[p.set];
    if (!isfinite(p.slack)) p.slack = INFINITY;
    for (int64_t t = 0; t < n; t++) {
        p.label = first + t;
        p.score = r->scores + t * p.n;
        pick_rows(x, &p, w, r, list + p.label * w);
    }
}

void topk_set_seq(struct exact *x, int64_t i)
{
    struct order           *o = x->order;
    const struct exact_seq *s = &x->seqs[i];
    foci_order              how = o->how;

    s->mech->def->order(s->mech, &how);
    o->seq0 = i;
    o->topk_q = min64(how.topk, s->s.nq);
    o->topk_k = min64(how.topk, s->s.nk);
    o->list_q =
        o->lists + (o->all_lists ? i : 0) * x->heads * (o->entries_q + o->entries_k);
    o->list_k = o->list_q + x->heads * o->entries_q;
}

void topk_count_chosen(const struct exact *x)
{
    const struct order *o = x->order;
    const int64_t       first = order_q_row(x, &x->seqs[o->seq0]);

    for (int64_t h = 0; h < x->heads; h++) {
        int32_t *chosen = o->chosen + h * o->q_rows + first;
        memset(chosen, 0, (size_t)x->seqs[o->seq0].s.nq * sizeof *chosen);
        for (int64_t e = 0; e < o->labels * o->topk_q; e++)
            chosen[o->list_q[h * o->entries_q + e]]++;
    }
}

/* A group of labels of a head: of queries and of keys in alternate jobs. */
static void pick_job(void *arg, int64_t i, int thread)
{
    struct exact           *x = arg;
    const struct order     *o = x->order;
    const struct exact_seq *s = &x->seqs[o->seq0];
    const int64_t groups = div_up(o->labels, LABELS_AT_ONCE), set = i / 2 / groups;
    const bool    keys = i & 1;
    struct arena  mine = order_scratch(x, thread);
    struct topk_scratch scratch = topk_scratch_carve(x, &mine);
    struct topk_pick    p = { .seq = s,
                              .set = set,
                              .label = i / 2 % groups * LABELS_AT_ONCE,
                              .n = keys ? s->s.nk : s->s.nq,
                              .keys = keys };

    pick_labels(x, p, keys ? o->topk_k : o->topk_q, &scratch,
                keys ? o->list_k + set * o->entries_k : o->list_q + set * o->entries_q);
}

static void make_lists(struct exact *x)
{
    const int64_t jobs = 2 * x->heads * div_up(x->order->labels, LABELS_AT_ONCE);
    const int     threads = exact_threads(x, jobs, x->plan->cost.forward_flops);

    phases_run(x->k, x->exec.shared, threads, &(struct phase){ jobs, 1, pick_job, x },
               1);
}

void topk_lists(struct exact *x, int64_t i)
{
    label_vector_norms(x);
    topk_set_seq(x, i);
    make_lists(x);
}
