/* recall.c -- what tasks of keys, values and questions have in common. */
#include "data/task/recall.h"

#include <math.h>
#include <stdio.h>

int32_t recall_new(struct rng *r, uint8_t *set, int64_t first, int64_t n)
{
    int64_t token;

    do
        token = first + rng_below(r, n);
    while (recall_has(set, token));
    set[token >> 3] |= (uint8_t)(1u << (token & 7));
    return (int32_t)token;
}

/*
 * Places: x^a by operations that every machine rounds alike, as pow() is not.
 */

static double power_of(double x, double a)
{
    static const double ln2 = 0.69314718055994530942;
    int                 e;
    double              m = frexp(x, &e);

    if (m < 0.70710678118654752440) {
        m *= 2;
        e--;
    }
    const double z = (m - 1) / (m + 1);
    double       log_m = 0, exp_r = 1;
    for (int i = 27; i > 0; i -= 2) /* ln m = 2 (z + z^3/3 + z^5/5 + ...) */
        log_m = log_m * (z * z) + 2.0 / i;
    const double y = a * (e * ln2 + log_m * z), k = floor(y / ln2 + 0.5);
    const double r = y - k * ln2;
    for (int i = 20; i > 0; i--) /* e^r = 1 + r (1 + r/2 (1 + r/3 (...))) */
        exp_r = 1 + r / i * exp_r;
    return ldexp(exp_r, (int)k);
}

void recall_weights(double *weights, int64_t n, double power, bool uniform)
{
    for (int64_t i = 0; i < n; i++)
        weights[i] = uniform ? 1 : power_of((double)(i + 1), power - 1);
}

int64_t recall_place(struct rng *r, const double *weights, int64_t n, uint8_t *taken)
{
    double  total = 0, sum = 0;
    int64_t last = 0;

    for (int64_t i = 0; i < n; i++)
        if (!taken[i]) total += weights[i];
    const double u = rng_uniform(r) * total;
    for (int64_t i = 0; i < n && sum <= u; i++)
        if (!taken[i]) {
            sum += weights[i];
            last = i;
        }
    taken[last] = 1;
    return last;
}

void recall_noise(struct rng *r, struct task_example *e, int64_t begin,
                  const uint8_t *set, int64_t vocab)
{
    for (int64_t i = begin; i < e->n; i++) {
        if (e->ids[i]) continue;
        do
            e->ids[i] = (int32_t)rng_below(r, vocab);
        while (set && recall_has(set, e->ids[i]));
    }
}

int recall_symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    (void)t;
    (void)side;
    return snprintf(text, cap, "%d", id);
}
