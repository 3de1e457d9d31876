/* exact_guess.c -- what labels come to, before there are any: for plans and their cost.
 *
 * Labels that depend on data are taken to be spread evenly over those there are; those
 * of a floor, of which there is no number, over as many as the root of the length.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "engine/exact_order.h"

/* Places that are looked at. */
enum { SAMPLE = 1 << 16 };

/* The share of the keys that has the label of the first. */
static double share_of_places(const foci_mech *m, int64_t n)
{
    int64_t       same = 0;
    const int64_t looked = min64(n, SAMPLE);

    for (int64_t j = 0; j < looked; j++)
        same += m->def->place(m, j) == m->def->place(m, 0);
    return looked ? (double)same / (double)looked : 0;
}

static double share_seen(const struct exact *x)
{
    const foci_order *o = &x->stage->order;
    const int64_t     n = x->p->len_k;

    switch (o->label) {
    case FOCI_LABEL_PLACE: return share_of_places(&x->stage->group->mech, n);
    case FOCI_LABEL_ANGULAR: return 0.5 / (double)order_labels_of(x);
    case FOCI_LABEL_NEAREST: return 1 / (double)order_labels_of(x);
    default: return n ? 1 / sqrt((double)n) : 0;
    }
}

double order_expect(const struct exact *x, double *pairs)
{
    const foci_order *o = &x->stage->order;
    const double      nq = (double)x->p->len_q, nk = (double)x->p->len_k;
    const double      rounds = (double)max64(1, o->rounds);
    const double      labels = (double)order_labels_of(x);
    const double      some = share_seen(x);
    double keys = nk * (o->again ? rounds * some : 1 - pow(1 - some, rounds));

    if (o->chunk) keys = fmin(keys, 2 * rounds * (double)o->chunk);
    if (x->p->flags & FOCI_CAUSAL) keys /= 2;
    if (o->take)
        *pairs += labels * fmin((double)o->take, nq) * fmin((double)o->take, nk);
    else
        *pairs += nq * keys;
    if (o->label == FOCI_LABEL_PLACE) return 0;
    return 2 * rounds * labels * x->dq * (o->shared ? nq : nq + nk);
}

void order_describe(const struct exact *x, char *text, size_t cap)
{
    static const char *const by[] = { "none", "place", "the nearest vector",
                                      "the nearest direction", "stripes" };
    const foci_order        *o = &x->stage->order;
    const int64_t            rounds = max64(1, o->rounds);
    double                   pairs = 0;

    order_expect(x, &pairs);
    snprintf(text, cap,
             "    order    by %s%s, %" PRId64 " round%s, some %.4g pairs a head\n",
             by[o->label], o->take ? ", which takes rows" : "", rounds,
             rounds == 1 ? "" : "s", pairs);
}
