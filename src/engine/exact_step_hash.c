/* exact_step_hash.c -- labels of single rows, by what they hold.
 *
 * As exact_labels.c finds them: products are floats, and where what rounding may have
 * moved decides, they are taken once more in double.  Here a row is alone, so vectors
 * are the lanes.
 */
#include <math.h>
#include <string.h>

#include "engine/exact_step.h"

/* Vectors that rows are compared with. */
static int64_t compared(const struct stage *s)
{
    const bool by =
        s->order.label == FOCI_LABEL_NEAREST || s->order.label == FOCI_LABEL_ANGULAR;
    return by ? vectors_count(s) : 0;
}

struct hash hash_take(const struct stepping *x, struct arena *a)
{
    const bool  hashed = x->rounds && x->stage->order.label != FOCI_LABEL_PLACE;
    struct hash h;

    h.row = arena_take(a, hashed ? x->ldq : 0, sizeof *h.row);
    h.exact = arena_take(a, hashed ? x->dq : 0, sizeof *h.exact);
    h.scores = arena_take(a, round_up(compared(x->stage), LANES), sizeof *h.scores);
    h.label = arena_take(a, x->rounds, sizeof *h.label);
    return h;
}

static struct vectors vectors_at(const struct stepping *x, int64_t head, int64_t round)
{
    return vectors_of(x->stage, x->dq, x->step->io->params, head, round);
}

/* No vector is longer than all together.  Nothing where there are none. */
void step_reach(const struct stepping *x, int64_t head)
{
    enum { WIDE = 16 };
    const struct exact_pool *own = x->step->pool->own[x->g];

    for (int64_t r = 0; compared(x->stage) && r < x->rounds; r++) {
        const struct vectors v = vectors_at(x, head, r);
        const int64_t        n = v.n * x->dq;
        float                some[WIDE] = { 0 };
        double               sum = 0;
        int64_t              i = 0;

        for (; i + WIDE <= n; i += WIDE)
            for (int t = 0; t < WIDE; t++)
                some[t] += v.at[i + t] * v.at[i + t];
        for (; i < n; i++)
            sum += (double)v.at[i] * (double)v.at[i];
        for (int t = 0; t < WIDE; t++)
            sum += (double)some[t];
        own->reach[head * x->rounds + r] = sqrt(sum) * (1 + 1e-2);
    }
}

/* The row as the mechanism's own map leaves it, in double and in float. */
static void load(const struct stepping *x, const char *row, struct hash *h)
{
    x->k->load_rows(h->row, x->ldq, row, x->dq, (int)x->plan->p.dtype, 1, x->dq);
    for (int c = 0; c < x->dq; c++)
        h->exact[c] = (double)h->row[c];
    if (x->score->map != FOCI_MAP_STANDARD) return;
    vectors_standard(h->exact, x->dq);
    for (int c = 0; c < x->dq; c++)
        h->row[c] = (float)h->exact[c];
}

/* Products of the row with all vectors.  Those that are columns are summed up row by
 * row, 64 at a time. */
static void products(const struct stepping *x, const struct vectors *v, struct hash *h)
{
    if (v->col == 1) {
        for (int64_t t = 0; t < v->n; t += LANES)
            x->k->dots_f32(h->scores + t, h->row, x->ldq, 1, v->at + t * v->row, v->row,
                           FOCI_F32, (int)min64(LANES, v->n - t), x->dq);
        return;
    }
    memset(h->scores, 0, (size_t)v->n * sizeof *h->scores);
    for (int c = 0; c < x->dq; c += LANES)
        x->k->sums_f32(h->scores, round_up(v->n, LANES), h->row + c, 1,
                       v->at + c * v->col, v->col, FOCI_F32,
                       (int)min64(LANES, x->dq - c), (int)v->n);
}

static int64_t best(const struct stepping *x, int64_t head, int64_t round,
                    struct hash *h, double norm)
{
    const struct exact_pool *own = x->step->pool->own[x->g];
    const struct vectors     v = vectors_at(x, head, round);
    const double             slack =
        norm * own->reach[head * x->rounds + round] * (x->dq + 8) * 0x1p-24;
    float   most = -INFINITY, next = -INFINITY;
    int64_t at = 0;

    products(x, &v, h);
    for (int64_t t = 0; t < v.n; t++) {
        const float s = h->scores[t], y = v.both ? fabsf(s) : s;
        if (y > most) {
            next = most;
            most = y;
            at = v.both && s < 0 ? v.n + t : t;
        } else if (y > next) {
            next = y;
        }
    }
    const double least = v.both ? fmax((double)next, -(double)most) : (double)next;
    if ((double)most - least > 2 * slack) return at;
    return vectors_best(&v, h->exact);
}

/* The number itself, as bits; zero has but one form here. */
static int64_t stripe(const struct stepping *x, int64_t head, int64_t round,
                      const double *row)
{
    const struct vectors v = vectors_at(x, head, round);
    const double         at = vectors_stripe(&v, row, x->stage->order.width) + 0.0;
    int64_t              bits;

    memcpy(&bits, &at, sizeof bits);
    return isnan(at) ? NO_LABEL : bits;
}

void step_hash(const struct stepping *x, int64_t head, const char *row, struct hash *h)
{
    double square = 0;

    load(x, row, h);
    for (int c = 0; c < x->dq; c++)
        square += h->exact[c] * h->exact[c];
    for (int64_t r = 0; r < x->rounds; r++)
        h->label[r] = x->stage->order.label == FOCI_LABEL_FLOOR
                          ? stripe(x, head, r, h->exact)
                          : best(x, head, r, h, sqrt(square));
}
