/* stats.h -- declarations that the files of statistics share. */
#ifndef FOCI_STATS_PRIVATE_H
#define FOCI_STATS_PRIVATE_H

#include "core/core.h"
#include "foci/stats.h"

/* The default of a level, and a check of one that is given. */
foci_status level_check(foci_ctx *ctx, const char *name, double *level);

/* n values that are finite and not too large. */
foci_status values_check(foci_ctx *ctx, const char *name, const double *values,
                         int64_t n);

/* In ascending order. */
void   values_sort(double *values, int64_t n);
double values_mean(const double *values, int64_t n);

/* The interval that leaves (1 - level)/2 of n sorted values out on each side. */
struct interval {
    double low, high;
};

struct interval percentiles(const double *sorted, int64_t n, double level);

/* P(T > t), t >= 0. */
double t_tail(double t, double df);

/* The generator PCG64 as numpy.random.default_rng(seed) starts it (pcg64.c). */
struct pcg64 {
    uint64_t state_high, state_low;
    uint64_t step_high, step_low;
    uint32_t kept; /* the upper half of a word whose lower half was given out */
    bool     has_kept;
    uint32_t bits; /* those of a word that are left to be tossed */
    int      n_bits;
};

void pcg64_seed(struct pcg64 *r, uint64_t seed);

/* As Generator.integers(n) and .integers(2, dtype=bool), 0 < n < 2^32. */
uint32_t pcg64_below(struct pcg64 *r, uint32_t n);
bool     pcg64_coin(struct pcg64 *r);

#endif
