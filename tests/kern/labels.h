/* labels.h -- checkers of what finds labels and compares them. */
#ifndef FOCI_TESTS_KERN_LABELS_H
#define FOCI_TESTS_KERN_LABELS_H

#include "kern/scores.h"

/* Nothing seen before, or as much as normal numbers have brought. */
static void try_best(struct run *r, int n, int scores, int both, bool fresh)
{
    name_scores(r, n, both, scores, fresh ? ", fresh" : "");
    r->work = 4.0 * n * LANES;
    float *const s = floats(r, (int64_t)n * LANES, NORMAL);
    float *const most = inout(r, LANES, NORMAL), *const next_best =
                                                     inout(r, LANES, NORMAL);
    float *const at = inout(r, LANES, NORMAL);

    fill_scores(r, s, n, scores);
    if (n > 1) memcpy(s + LANES, s, LANES * sizeof *s); /* the first of equals */
    for (int i = 0; i < LANES; i++) {
        most[i] = fresh ? -INFINITY : fabsf(most[i]) + 1.0f;
        next_best[i] = fresh ? -INFINITY : most[i] - 0.5f;
    }
    while (next(r))
        r->k->best(s, n, 100, both, most, next_best, at);
}

static void check_best(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(key_counts)); i++)
        for (int scores = 0; scores < cases(r, 1, N_SCORES); scores++)
            for (int form = 0; form < cases(r, 2, 4); form++)
                try_best(r, key_counts[i], scores, form & 1, form & 2);
}

static void check_match(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(key_counts)); i++)
        for (int labels = 2; labels < cases(r, 3, 100); labels += 7) {
            const int n = key_counts[i];

            snprintf(r->label, sizeof r->label, "%d keys, %d labels", n, labels);
            r->is_flops = false;
            r->work = 4.0 * n * LANES;
            uint64_t *const seen = output(r, n, sizeof *seen, BYTES);
            int32_t *const  lane = take(r, LANES * sizeof *lane, false, BYTES);
            int32_t *const  key = take(r, (size_t)n * sizeof *key, false, BYTES);

            for (int t = 0; t < LANES; t++)
                lane[t] = below(r, labels) - 1;
            for (int j = 0; j < n; j++)
                key[j] = below(r, labels) - 1;
            while (next(r))
                r->k->match(seen, lane, key, n);
        }
}

#endif
