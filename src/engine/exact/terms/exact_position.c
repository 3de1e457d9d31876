/* exact_position.c -- biases by distance.
 *
 * Biases are expanded once for each head into an array over distances.  The distances
 * of the lanes of a block to one key are consecutive, so their biases are contiguous,
 * and those of the next key start one element earlier.  Gradients are summed along
 * diagonals into an array of the same kind, and from there into the tables.
 */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/slots/exact_slots.h"

/*
 * Memory
 */

static bool has_rel(const struct exact *x)
{
    return x->score->slope || x->score->n_tables;
}

void exact_position_carve(struct exact *x, struct arena *a)
{
    struct position_tables *p = &x->position;

    if (x->score->rope_base > 0) {
        p->n_angles = max64(x->p->len_q, x->p->len_k) + LANES;
        p->cos_sin = arena_alloc(a, p->n_angles * x->d.q, sizeof *p->cos_sin);
    }
    if (!has_rel(x)) return;
    p->rel0 = x->p->len_q + LANES;
    p->n_rel = p->rel0 + x->p->len_k + LANES;
    p->rel = arena_alloc(a, x->heads * p->n_rel, sizeof *p->rel);
    for (int i = 0; i < x->score->n_tables; i++)
        p->entry[i] = arena_alloc(a, p->n_rel, sizeof *p->entry[i]);
}

/*
 * Biases by distance
 */

double exact_bias_unit(const struct exact *x)
{
    return x->score->cap > 0 ? 1 : exact_logit_unit(x);
}

static void make_biases(const struct exact *x, const struct position_tables *p)
{
    const struct score *s = x->score;
    const bool          causal = x->p->flags & FOCI_FLAG_CAUSAL;

    for (int i = 0; i < s->n_tables; i++)
        for (int64_t d = 0; d < p->n_rel; d++)
            p->entry[i][d] =
                (int32_t)s->table[i]->def->entry(s->table[i], causal, p->rel0 - d);
    for (int64_t h = 0; h < x->heads; h++) {
        float       *rel = p->rel + h * p->n_rel;
        const double slope = s->slope ? s->slope->def->slope(s->slope, h, x->heads) : 0;

        for (int64_t d = 0; d < p->n_rel; d++) {
            double bias = -slope * fabs((double)(d - p->rel0));
            for (int i = 0; i < s->n_tables; i++)
                bias += (double)x->io->params[s->table_at[i] + h * s->table_size[i] +
                                              p->entry[i][d]];
            rel[d] = (float)(bias * exact_bias_unit(x));
        }
    }
}

void exact_position_prepare(const struct exact *x)
{
    if (x->position.cos_sin) exact_rope_prepare(x, &x->position);
    if (x->position.rel) make_biases(x, &x->position);
}

/* The bias of a head at distance 0. */
static const float *bias_row(const struct exact *x, int64_t h)
{
    return x->position.rel + (h - x->head0) * x->position.n_rel + x->position.rel0;
}

struct bias_rows exact_tile_bias(const struct exact *x, const struct exact_block *b,
                                 int64_t t, int n, float *scratch)
{
    const float *rel = x->position.rel ? bias_row(x, b->h) + b->pos - t * TILE : NULL;

    if (exact_slot_level(b->seq, t) >= 0) rel = NULL; /* slots have no position */
    if (!exact_has_bias(x)) return (struct bias_rows){ rel, -1 };
    exact_fill_bias(x, b, t, n, scratch);
    for (int j = 0; rel && j < n; j++)
        for (int i = 0; i < LANES; i++)
            scratch[j * LANES + i] += rel[i - j];
    return (struct bias_rows){ scratch, LANES };
}

void exact_position_bias_gathered(const struct exact *x, int64_t h, struct positions q,
                                  struct positions k, int n, float *bias)
{
    const float *rel = x->position.rel ? bias_row(x, h) : NULL;

    for (int j = 0; rel && j < n; j++)
        for (int i = 0; i < LANES; i++)
            bias[j * LANES + i] += rel[position_at(q, i) - position_at(k, j)];
}

/* The largest of n numbers, in four independent chains. */
static float largest(const float *a, int64_t n)
{
    float   top[4] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY };
    int64_t i = 0;

    for (; i + 4 <= n; i += 4)
        for (int s = 0; s < 4; s++)
            top[s] = a[i + s] > top[s] ? a[i + s] : top[s];
    for (; i < n; i++)
        top[0] = a[i] > top[0] ? a[i] : top[0];
    return fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
}

void exact_position_max_bias(const struct exact *x, const struct exact_block *b,
                             float *top)
{
    const float  *rel = bias_row(x, b->h);
    const int64_t nk = b->seq->s.nk;
    const bool    causal = x->p->flags & FOCI_FLAG_CAUSAL;
    const int64_t from =
        causal ? 0
               : b->pos + b->r1 -
                     nk; /* the distances up to here are of keys that all lanes see */
    const int64_t common = b->pos + b->r0 + 1 - from;
    const float   common_max = common > 0 ? largest(rel + from, common) : -INFINITY;
    float         more = common_max, less = common_max;

    for (int i = 0; i < LANES; i++)
        top[i] = 0;
    for (int i = b->r0; i < b->r1;
         i++) { /* each lane sees one distance more than the lane before */
        const int64_t d = b->pos + i;
        if (common > 0 && i > b->r0) more = fmaxf(more, rel[d]);
        top[i] = common > 0
                     ? more
                     : largest(rel + (causal ? 0 : d - nk + 1), causal ? d + 1 : nk);
    }
    for (int i = b->r1 - 2; !causal && common > 0 && i >= b->r0; i--) {
        less = fmaxf(less, rel[b->pos + i + 1 - nk]);
        top[i] = fmaxf(top[i], less);
    }
    for (int i = b->r0; i < b->r1; i++)
        if (top[i] == -INFINITY) top[i] = 0; /* the row sees nothing */
}

/*
 * Gradients of the tables: sums over diagonals
 */

/* The array of a sequence has its distances, and as many more as a block may reach
 * beyond. */
enum { REL_BEFORE = 2 * LANES, REL_PADDING = 3 * LANES };

static int64_t sums_size(const struct exact *x)
{
    return x->p->batch * (x->p->len_q + x->p->len_k) + x->max.seqs * REL_PADDING;
}

/* The sum of distance 0. */
static float *sums_of(const struct exact *x, int64_t part, int64_t h,
                      const struct exact_seq *s)
{
    const int64_t at = s->s.b * (x->p->len_q + x->p->len_k) + s->s.q0 + s->s.k0 +
                       (s - x->seqs) * REL_PADDING;

    return x->position.sums + (part * x->heads + h - x->head0) * sums_size(x) + at +
           s->s.nq + REL_BEFORE;
}

void exact_position_back_carve(struct exact *x, int64_t parts, struct arena *a)
{
    if (!x->score->n_tables) return;
    x->position.sums =
        arena_alloc(a, parts * x->heads * sums_size(x), sizeof *x->position.sums);
    x->position.by_distance =
        arena_alloc(a, x->position.n_rel, sizeof *x->position.by_distance);
}

void exact_position_back_clear(const struct exact *x, int64_t parts)
{
    if (x->position.sums)
        memset(x->position.sums, 0,
               (size_t)(parts * x->heads * sums_size(x)) * sizeof *x->position.sums);
}

void exact_position_back_tile(const struct exact *x, const struct exact_block *b,
                              int64_t t, int n, const void *ds, int dtype, int64_t part)
{
    if (!x->position.sums) return;
    float *sums = sums_of(x, part, b->h, b->seq) + b->pos - t * TILE - LANES;
    x->k->diagonals(sums, ds, dtype, n, exact_lanes(b));
}

void exact_position_back_gathered(const struct exact *x, int64_t h,
                                  const struct exact_seq *s, struct positions q,
                                  uint64_t lanes, struct positions k, int n,
                                  const float *ds, int64_t part)
{
    if (!x->position.sums) return;
    float *sums = sums_of(x, part, h, s);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            if (lanes >> i & 1)
                sums[position_at(q, i) - position_at(k, j)] += ds[j * LANES + i];
}

/* Consecutive distances mostly share an entry. */
static void add_table(const struct exact *x, int i, int64_t h, float *dparams)
{
    const struct position_tables *p = &x->position;
    float *table = dparams + x->score->table_at[i] + h * x->score->table_size[i];
    double sum = 0;

    for (int64_t d = 0; d < p->n_rel; d++) {
        sum += p->by_distance[d];
        if (d + 1 < p->n_rel && p->entry[i][d + 1] == p->entry[i][d]) continue;
        table[p->entry[i][d]] += (float)sum;
        sum = 0;
    }
}

void exact_position_params(const struct exact *x, int64_t parts, float *dparams)
{
    const struct position_tables *p = &x->position;

    if (!p->sums) return;
    for (int64_t h = 0; h < x->heads; h++) {
        memset(p->by_distance, 0, (size_t)p->n_rel * sizeof *p->by_distance);
        for (int64_t part = 0; part < parts; part++)
            for (int64_t i = 0; i < x->n.seqs; i++) {
                const struct exact_seq *s = &x->seqs[i];
                const float            *sums = sums_of(x, part, x->head0 + h, s);

                for (int64_t d = 1 - s->s.nq; d < s->s.nk; d++)
                    p->by_distance[p->rel0 + d] += (double)sums[d];
            }
        for (int i = 0; i < x->score->n_tables; i++)
            add_table(x, i, h, dparams);
    }
}
