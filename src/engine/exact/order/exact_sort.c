/* exact_sort.c -- sort rows by label, and turn labels into small numbers.
 *
 * A radix sort of eight bits a pass: stable, so that rows of one label keep their
 * order, and linear in the rows, with one pass for labels below 256.
 */
#include <math.h>
#include <string.h>

#include "engine/exact/order/exact_order.h"

enum { DIGITS = 256 };

struct sort_scratch sort_scratch(const struct exact *x, struct arena *a)
{
    const int64_t       n = x->p->len_q + x->p->len_k;
    struct sort_scratch r;

    for (int i = 0; i < 2; i++) {
        r.key[i] = arena_alloc(a, n, sizeof(uint64_t));
        r.row[i] = arena_alloc(a, n, sizeof(int32_t));
    }
    return r;
}

void sort_rows(struct sort_scratch *r, int64_t n, uint64_t most)
{
    for (int shift = 0; shift < 64 && most >> shift; shift += 8) {
        int64_t at[DIGITS] = { 0 }, sum = 0;

        for (int64_t i = 0; i < n; i++)
            at[r->key[0][i] >> shift & (DIGITS - 1)]++;
        for (int d = 0; d < DIGITS; d++) {
            const int64_t count = at[d];
            at[d] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++) {
            const int64_t to = at[r->key[0][i] >> shift & (DIGITS - 1)]++;
            r->key[1][to] = r->key[0][i];
            r->row[1][to] = r->row[0][i];
        }
        uint64_t *const key = r->key[0];
        int32_t *const  row = r->row[0];
        r->key[0] = r->key[1];
        r->row[0] = r->row[1];
        r->key[1] = key;
        r->row[1] = row;
    }
}

/*
 * Labels that are any numbers
 */

uint64_t sort_bits(double y)
{
    uint64_t u;

    y += 0.0;
    memcpy(&u, &y, sizeof u);
    return u >> 63 ? ~u : u | UINT64_C(1) << 63;
}

/* Append n labels; NaN is none. */
static int64_t collect_raw(const double *raw, int64_t n, int32_t first,
                           struct sort_scratch *r, int64_t used, double *least,
                           double *most)
{
    for (int64_t i = 0; i < n; i++) {
        if (isnan(raw[i])) continue;
        *least = fmin(*least, raw[i]);
        *most = fmax(*most, raw[i]);
        memcpy(&r->key[0][used], &raw[i], sizeof *raw);
        r->row[0][used++] = first + (int32_t)i;
    }
    return used;
}

/* Number the labels of a sequence upwards, those of queries and keys together. */
static void number_labels(const struct exact *x, const struct exact_seq *s,
                          int64_t at_q, int64_t at_k, struct sort_scratch *r)
{
    const struct order *o = x->order;
    const int64_t       nq = s->s.nq, nk = o->how.shared_qk ? 0 : s->s.nk;
    double              least = INFINITY, most = -INFINITY;
    int64_t             n = collect_raw(o->raw_q + at_q, nq, 0, r, 0, &least, &most);

    if (nk) n = collect_raw(o->raw_k + at_k, nk, (int32_t)nq, r, n, &least, &most);
    const bool small = most - least < 0x1p53 && fabs(least) < 0x1p53;
    for (int64_t i = 0; i < n; i++) {
        double y;
        memcpy(&y, &r->key[0][i], sizeof y);
        r->key[0][i] = small ? (uint64_t)(y - least) : sort_bits(y);
    }
    sort_rows(r, n, small ? (uint64_t)(n ? most - least : 0) : UINT64_MAX);

    for (int64_t i = 0; i < nq; i++)
        o->label_q[at_q + i] = -1;
    for (int64_t j = 0; j < nk; j++)
        o->label_k[at_k + j] = -1;
    int32_t number = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = r->row[0][i];
        if (i && r->key[0][i] != r->key[0][i - 1]) number++;
        if (row < nq)
            o->label_q[at_q + row] = number;
        else
            o->label_k[at_k + row - nq] = number;
    }
}

/*
 * Sorted lists
 */

int64_t sort_labels(const int32_t *label, int64_t n, struct sort_scratch *r,
                    int32_t *list)
{
    int64_t  used = 0;
    uint64_t most = 0;

    for (int64_t i = 0; i < n; i++) {
        if (label[i] < 0) continue;
        const uint64_t key = (uint64_t)label[i];
        if (key > most) most = key;
        r->key[0][used] = key;
        r->row[0][used++] = (int32_t)i;
    }
    sort_rows(r, used, most);
    memcpy(list, r->row[0], (size_t)used * sizeof *list);
    return used;
}

/* Number the cells of rows that are cut into chunks. */
static void number_chunks(const struct exact *x, const struct exact_seq *s, int64_t at,
                          struct sort_scratch *r, int32_t *list)
{
    const struct order *o = x->order;
    int32_t            *label = o->label_q + at;
    const int64_t       n = sort_labels(label, s->s.nq, r, list);
    int32_t             cell = -1, last = -1;

    for (int64_t i = 0; i < n; i++) {
        const int32_t now = label[list[i]];
        const bool    first = now != last;

        if (first || i % o->how.chunk == 0) cell++;
        /* A cell has the mark of its first row. */
        const bool marked =
            first || (i % o->how.chunk != 0 && (label[list[i - 1]] & 1) != 0);
        label[list[i]] = 2 * cell + marked;
        last = now;
    }
}

/* Number the labels of one round, once. */
static void number_seq(const struct exact *x, int64_t set, const struct exact_seq *s,
                       int64_t round, struct sort_scratch *r, int32_t *list)
{
    const struct order *o = x->order;
    const int64_t at_q = (set * o->rounds + round) * o->q_rows + order_q_row(x, s);
    const int64_t at_k = (set * o->rounds + round) * o->k_rows + order_k_row(x, s);

    if (o->raw_q) number_labels(x, s, at_q, at_k, r);
    if (o->how.chunk) number_chunks(x, s, at_q, r, list);
}

struct sort_scratch sort_scratch_of(const struct exact *x, int thread)
{
    struct arena mine = order_scratch(x, thread);

    return sort_scratch(x, &mine);
}

static void number_job(void *arg, int64_t i, int thread)
{
    struct exact           *x = arg;
    struct order           *o = x->order;
    const int64_t           set = i / x->n.seqs;
    const struct exact_seq *s = &x->seqs[i % x->n.seqs];
    int32_t                *list = o->list_q + set * o->q_rows + order_q_row(x, s);
    struct sort_scratch     scratch = sort_scratch_of(x, thread);

    for (int64_t round = 0; round < o->rounds; round++)
        number_seq(x, set, s, round, &scratch, list);
}

void order_number_labels(struct exact *x)
{
    const int64_t jobs = x->order->sets * x->n.seqs;
    const int     threads =
        exact_threads(x, jobs * x->order->rounds, x->plan->cost.forward_flops);

    phases_run(x->k, x->exec.shared, threads, &(struct phase){ jobs, 1, number_job, x },
               1);
}
