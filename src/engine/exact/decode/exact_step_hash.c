/* exact_step_hash.c -- labels of single rows, by content.
 *
 * As in exact_labels.c, products are floats, and a row is compared once more in double
 * where rounding may have decided.  A row is alone here, so the vectors are the lanes.
 */
#include <math.h>
#include <string.h>

#include "engine/exact/decode/exact_step.h"

/* Vectors that rows are compared with. */
static int64_t compared(const struct stage *s)
{
    const bool by =
        s->order.label == FOCI_LABEL_NEAREST || s->order.label == FOCI_LABEL_ANGULAR;
    return by ? vectors_count(s) : 0;
}

struct hash_scratch hash_scratch(const struct exact_step *x, struct arena *a)
{
    const bool hashed = x->rounds && x->e.stage->order.label != FOCI_LABEL_PLACE;
    struct hash_scratch h;

    h.row = arena_alloc(a, hashed ? x->e.d.ldq : 0, sizeof *h.row);
    h.exact = arena_alloc(a, hashed ? x->e.d.q : 0, sizeof *h.exact);
    h.scores = arena_alloc(a, round_up(compared(x->e.stage), LANES), sizeof *h.scores);
    h.label = arena_alloc(a, x->rounds, sizeof *h.label);
    return h;
}

static struct vectors vectors_at(const struct exact_step *x, int64_t head, int64_t round)
{
    return vectors_of(x->e.stage, x->e.d.q, x->step->io->params, head, round);
}

/* The norm of all vectors together bounds that of each. */
void step_vector_norms(const struct exact_step *x, int64_t head)
{
    enum { WIDE = 16 };
    const struct exact_pool *own = x->step->pool->own[x->g];

    for (int64_t r = 0; compared(x->e.stage) && r < x->rounds; r++) {
        const struct vectors v = vectors_at(x, head, r);
        const int64_t        n = v.n * x->e.d.q;
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
        own->norm[head * x->rounds + r] = sqrt(sum) * (1 + 1e-2);
    }
}

/* Load the row after the mechanism's own map, in double and in float. */
static void load(const struct exact_step *x, const char *row, struct hash_scratch *h)
{
    x->e.k->load_rows(h->row, x->e.d.ldq, row, x->e.d.q, (int)x->e.plan->p.dtype, 1,
                      x->e.d.q);
    for (int c = 0; c < x->e.d.q; c++)
        h->exact[c] = (double)h->row[c];
    if (x->e.score->map != FOCI_MAP_STANDARD) return;
    vectors_standard(h->exact, x->e.d.q);
    for (int c = 0; c < x->e.d.q; c++)
        h->row[c] = (float)h->exact[c];
}

/* Products of the row with all vectors.  Vectors that are columns are summed row by
 * row, 64 at a time. */
static void hash_products(const struct exact_step *x, const struct vectors *v,
                          struct hash_scratch *h)
{
    if (v->col == 1) {
        for (int64_t t = 0; t < v->n; t += LANES)
            x->e.k->dots_f32(h->scores + t, h->row, x->e.d.ldq, 1, v->at + t * v->row,
                             v->row, FOCI_F32, (int)min64(LANES, v->n - t), x->e.d.q);
        return;
    }
    memset(h->scores, 0, (size_t)v->n * sizeof *h->scores);
    for (int c = 0; c < x->e.d.q; c += LANES)
        x->e.k->sums_f32(h->scores, round_up(v->n, LANES), h->row + c, 1,
                         v->at + c * v->col, v->col, FOCI_F32,
                         (int)min64(LANES, x->e.d.q - c), (int)v->n);
}

static int64_t best(const struct exact_step *x, int64_t head, int64_t round,
                    struct hash_scratch *h, double norm)
{
    const struct exact_pool *own = x->step->pool->own[x->g];
    const struct vectors     v = vectors_at(x, head, round);
    const double             slack =
        norm * own->norm[head * x->rounds + round] * (x->e.d.q + 8) * 0x1p-24;
    float   most = -INFINITY, next = -INFINITY;
    int64_t at = 0;

    hash_products(x, &v, h);
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

/* The number as bits, of which zero has only one form. */
static int64_t stripe(const struct exact_step *x, int64_t head, int64_t round,
                      const double *row)
{
    const struct vectors v = vectors_at(x, head, round);
    const double         at = vectors_stripe(&v, row, x->e.stage->order.width) + 0.0;
    int64_t              bits;

    memcpy(&bits, &at, sizeof bits);
    return isnan(at) ? NO_LABEL : bits;
}

void step_hash(const struct exact_step *x, int64_t head, const char *row,
               struct hash_scratch *h)
{
    double square = 0;

    load(x, row, h);
    for (int c = 0; c < x->e.d.q; c++)
        square += h->exact[c] * h->exact[c];
    for (int64_t r = 0; r < x->rounds; r++)
        h->label[r] = x->e.stage->order.label == FOCI_LABEL_FLOOR
                          ? stripe(x, head, r, h->exact)
                          : best(x, head, r, h, sqrt(square));
}
