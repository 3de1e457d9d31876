/* call_sums.h -- outputs of several calls of an engine, added up with weights: what
 * engines that call others share. */
#ifndef FOCI_CALL_SUMS_H
#define FOCI_CALL_SUMS_H

#include "engine/engine.h"

/* Columns that fit a buffer on the stack, and rows of one job. */
enum { SUM_COLUMNS = 256, SUM_ROWS = 64 };

/* Sums of rows [rows][heads][d], of all heads of a group and batch times length
 * rows. */
struct call_sums {
    const foci_plan      *plan;
    bool                  shared; /* as in struct execution */
    const struct kernels *k;
    int64_t               len, rows, head0, heads; /* queries, or keys */
    size_t                el;
    const uint8_t        *valid; /* [rows] whether a sequence has the row */
    float                *sum;
};

/* Run job(i) for all rows. */
void call_sums_each_row(const struct call_sums *s,
                        void (*job)(void *arg, int64_t i, int thread), void *arg);

/* valid[batch len] = 1 for rows of queries (or keys) that a sequence has.  seqs is
 * scratch for plan_max_seqs() of them. */
void call_sums_valid(const foci_plan *plan, const foci_io *io, bool queries,
                     struct seq *seqs, uint8_t *valid);

/* Byte offset of row i of head h of the problem in a tensor. */
static inline size_t call_sums_at(const struct call_sums *s, const foci_layout *l,
                                  int64_t i, int64_t h)
{
    const int64_t b = i / s->len, row = i % s->len;
    return (size_t)(b * l->batch + row * l->row + h * l->head) * s->el;
}

/* sum += (first: =) rows of d columns of a tensor, times by[(i heads + h) step] unless
 * `by` is NULL.  A row with factor 0 adds nothing, whatever it holds. */
void call_sums_add(const struct call_sums *s, const char *from, const foci_layout *l,
                   int d, const float *by, int64_t step, bool first);

/* Round the sums to a tensor, with zeros in rows that no sequence has. */
void call_sums_store(const struct call_sums *s, char *to, const foci_layout *l, int d);

/* The log of the sum of weights of a sum of calls: 0, since each call is normalised,
 * and -inf where it was -inf in all calls.  Both are [batch][heads of the
 * problem][len]. */
void call_sums_lse(const struct call_sums *s, const float *lse, float *out, bool first);

#endif
