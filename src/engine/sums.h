/* sums.h -- rows of several calls added up: what engines that run others share. */
#ifndef FOCI_SUMS_H
#define FOCI_SUMS_H

#include "plan/plan.h"

enum { SUMS_CHUNK = 256, SUMS_ROWS = 64 }; /* columns of a row, rows at a time */

/* Rows of all heads of a group, [rows][heads][d], rows being batch times length. */
struct sums {
    const foci_plan      *plan;
    const struct kernels *k;
    int64_t               len, rows, head0, heads; /* queries, or keys */
    size_t                el;
    const uint8_t        *valid; /* [rows] whether a sequence has the row */
    float                *sum;
};

/* job(i) for all rows. */
void sums_rows(const struct sums *s, void (*job)(void *arg, int64_t i, int thread),
               void              *arg);

/* valid[batch len]: 1 for rows of queries (or keys) that sequences have.  seqs: room for
 * plan_max_seqs(). */
void sums_valid(const foci_plan *plan, const foci_io *io, bool queries,
                struct seq *seqs, uint8_t *valid);

/* Bytes before row i of head h of the problem, in a tensor. */
static inline size_t sums_at(const struct sums *s, const foci_layout *l, int64_t i,
                             int64_t h)
{
    const int64_t b = i / s->len, row = i % s->len;
    return (size_t)(b * l->batch + row * l->row + h * l->head) * s->el;
}

/* sum (first: =, else +=) by rows of d columns, times by[i heads + h] where that is not
 * NULL; `step` apart.  What is times 0 is not looked at. */
void sums_add(const struct sums *s, const char *from, const foci_layout *l, int d,
              const float *by, int64_t step, bool first);

/* The sums to a tensor; rows that no sequence has become zero. */
void sums_store(const struct sums *s, char *to, const foci_layout *l, int d);

/* lse of what was normalised already: 0, and -inf where `lse` of all calls was.  Both
 * are [batch][heads of the problem][len]. */
void sums_lse(const struct sums *s, const float *lse, float *out, bool first);

#endif
