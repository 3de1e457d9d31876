/* growth.c -- costs against length on logarithmic axes. */
#include "cli/growth.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

double growth_predict(const double *lengths, const double *costs, int n, double length)
{
    int last = -1, before = -1;

    for (int i = 0; i < n && lengths[i] < length; i++)
        if (!isnan(costs[i])) {
            before = last;
            last = i;
        }
    if (before < 0) return NAN;
    const double power =
        log(costs[last] / costs[before]) / log(lengths[last] / lengths[before]);
    return costs[last] * pow(length / lengths[last], fmax(power, 0));
}

/* The length at the share t of the way from one to another. */
static double between(double from, double to, double t)
{
    return from * pow(to / from, t);
}

double growth_crossing(const double *lengths, const double *costs, const double *others,
                       int n)
{
    int right = -1; /* the nearest length so far at which costs are below */

    for (int i = n - 1; i >= 0; i--) {
        if (isnan(costs[i]) || isnan(others[i])) continue;
        const double above = log(costs[i] / others[i]);
        if (above >= 0) {
            if (right < 0) return INFINITY;
            const double below = log(costs[right] / others[right]);
            return between(lengths[i], lengths[right], above / (above - below));
        }
        right = i;
    }
    return right < 0 ? NAN : 0;
}

/*
 * The lower envelope
 */

struct envelope {
    const double        *lengths, *costs;
    int                  n, n_curves;
    struct growth_range *ranges;
    int                  n_ranges;
};

static double cost_of(const struct envelope *e, int curve, int i)
{
    return e->costs[curve * e->n + i];
}

static void add(struct envelope *e, int curve, double from, double to)
{
    assert(e->ranges);
    struct growth_range *last = e->n_ranges ? &e->ranges[e->n_ranges - 1] : NULL;

    if (last && last->curve == curve && last->to >= from)
        last->to = to;
    else
        e->ranges[e->n_ranges++] = (struct growth_range){ curve, from, to };
}

/* The lowest at length i; -1: none is known.  `to` above i: of those known at both, and of
 * equal ones that which is lower at `to`. */
static int lowest_at(const struct envelope *e, int i, int to)
{
    int best = -1;

    for (int c = 0; c < e->n_curves; c++) {
        const double cost = cost_of(e, c, i), then = cost_of(e, c, to);
        if (isnan(cost) || isnan(then)) continue;
        const double least = best < 0 ? INFINITY : cost_of(e, best, i);
        if (cost < least || (cost <= least && then < cost_of(e, best, to))) best = c;
    }
    return best;
}

/* From length i to the next: the share of the way at which curve c meets one that grows
 * more slowly, the first at or behind `t`.  1: none does. */
static double next_crossing(const struct envelope *e, int i, int c, double t, int *other)
{
    const double left = log(cost_of(e, c, i)), right = log(cost_of(e, c, i + 1));
    double       first = 1, slowest = right - left;

    for (int k = 0; k < e->n_curves; k++) {
        const double at = log(cost_of(e, k, i)), to = log(cost_of(e, k, i + 1));
        if (isnan(at) || isnan(to) || to - at >= right - left) continue;
        const double meet = fmax((at - left) / (right - left - (to - at)), t);
        if (meet < first || (meet <= first && meet < 1 && to - at < slowest)) {
            first = meet;
            slowest = to - at;
            *other = k;
        }
    }
    return first;
}

static void walk(struct envelope *e, int i)
{
    const double left = e->lengths[i], right = e->lengths[i + 1];
    int          c = lowest_at(e, i, i + 1);

    for (double t = 0; c >= 0 && t < 1;) {
        int          other = c;
        const double meet = next_crossing(e, i, c, t, &other);
        add(e, c, between(left, right, t),
            meet < 1 ? between(left, right, meet) : right);
        c = other;
        t = meet;
    }
}

int growth_lowest(const double *lengths, int n, const double *costs, int n_curves,
                  struct growth_range *ranges)
{
    struct envelope e = { lengths, costs, n, n_curves, ranges, 0 };

    for (int i = 0; i < n; i++) {
        const int  best = lowest_at(&e, i, i);
        const int  last = e.n_ranges ? ranges[e.n_ranges - 1].curve : -1;
        const bool reached = last >= 0 && ranges[e.n_ranges - 1].to >= lengths[i];
        const int  next = i + 1 < n ? lowest_at(&e, i, i + 1) : -1;

        /* One that is known here alone. */
        if (best >= 0 && !(reached && cost_of(&e, last, i) <= cost_of(&e, best, i)) &&
            !(next >= 0 && cost_of(&e, next, i) <= cost_of(&e, best, i)))
            add(&e, best, lengths[i], lengths[i]);
        if (i + 1 < n) walk(&e, i);
    }
    return e.n_ranges;
}
