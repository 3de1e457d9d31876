/* exact_position.c -- what positions do: rows that are turned, and biases by distance.
 *
 * The distance of a pair is the position of its query less that of its key.  Biases by
 * distance are laid out once for each head, so that the lanes of a block, whose
 * distances to one key follow one another, find theirs side by side; the next key has
 * them one place further back.  Gradients are summed along diagonals into an array of
 * the same kind, and from there into the tables.
 */
#include <math.h>
#include <string.h>

#include "engine/exact_score.h"
#include "engine/exact_slots.h"
#include "engine/exact_tiles.h"

/*
 * Room
 */

static bool has_rel(const struct exact *x)
{
    return x->score->slope || x->score->n_tables;
}

void exact_position_take(struct exact *x, struct arena *a)
{
    struct positions *p = &x->at;

    if (x->score->rope_base > 0) {
        p->n_turns = max64(x->p->len_q, x->p->len_k) + LANES;
        p->turns = arena_take(a, p->n_turns * x->dq, sizeof *p->turns);
    }
    if (!has_rel(x)) return;
    p->rel0 = x->p->len_q + LANES;
    p->n_rel = p->rel0 + x->p->len_k + LANES;
    p->rel = arena_take(a, x->heads * p->n_rel, sizeof *p->rel);
    for (int i = 0; i < x->score->n_tables; i++)
        p->entry[i] = arena_take(a, p->n_rel, sizeof *p->entry[i]);
}

/*
 * Turned rows
 */

/* Cosine and sine of position p times each speed, by the addition theorem from those
 * of the multiple of 64 below it and of what is left.  In double the angle of a large
 * position is good to 2^-53 of it, as if it were taken at once. */
static void make_turns(const struct exact *x, const struct positions *p)
{
    const int half = x->dq / 2;

    for (int t = 0; t < half; t++) {
        const double speed = pow(x->score->rope_base, -2 * (double)t / (double)x->dq);
        const int    cos_at = x->score->rope_half ? t : 2 * t;
        const int    sin_at = x->score->rope_half ? t + half : 2 * t + 1;
        double       re[TILE], im[TILE];

        for (int i = 0; i < TILE; i++) {
            re[i] = cos((double)i * speed);
            im[i] = sin((double)i * speed);
        }
        for (int64_t i = 0; i < p->n_turns; i += TILE) {
            const double c = cos((double)i * speed), s = sin((double)i * speed);
            const int    n = (int)min64(TILE, p->n_turns - i);

            for (int r = 0; r < n; r++) {
                float *row = p->turns + (i + r) * x->dq;
                row[cos_at] = (float)(c * re[r] - s * im[r]);
                row[sin_at] = (float)(s * re[r] + c * im[r]);
            }
        }
    }
}

/* n rows at positions that follow one another.  Before 0 angles change their sign. */
static void turn_run(const struct exact *x, float *rows, int64_t first, int n, bool back)
{
    const struct positions *p = &x->at;
    const int               before = (int)max64(0, min64(n, -first));
    const bool              half = x->score->rope_half;

    if (before)
        x->k->turn(rows, x->ldq, p->turns - first * x->dq, -x->dq, before, x->dq, half,
                   !back);
    if (before < n)
        x->k->turn(rows + (int64_t)before * x->ldq, x->ldq,
                   p->turns + (first + before) * x->dq, x->dq, n - before, x->dq, half,
                   back);
}

void exact_turn(const struct exact *x, float *tile, int n, struct places at, bool back)
{
    if (!at.list) {
        turn_run(x, tile, at.first, n, back);
        return;
    }
    for (int i = 0; i < n; i++)
        turn_run(x, tile + (int64_t)i * x->ldq, at.first + at.list[i], 1, back);
}

/*
 * Biases by distance
 */

double exact_bias_unit(const struct exact *x)
{
    return x->score->cap > 0 ? 1 : exact_unit_of(x);
}

static void make_rel(const struct exact *x, const struct positions *p)
{
    const struct score *s = x->score;
    const bool          causal = x->p->flags & FOCI_CAUSAL;

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

void exact_position_make(const struct exact *x)
{
    if (x->at.turns) make_turns(x, &x->at);
    if (x->at.rel) make_rel(x, &x->at);
}

/* The bias of distance 0 for a head. */
static const float *rel_of(const struct exact *x, int64_t h)
{
    return x->at.rel + (h - x->head0) * x->at.n_rel + x->at.rel0;
}

struct bias_rows exact_tile_bias(const struct exact *x, const struct block *b,
                                 int64_t t, int n, float *room)
{
    const float *rel = x->at.rel ? rel_of(x, b->h) + b->pos - t * TILE : NULL;

    if (exact_level(b->seq, t) >= 0) rel = NULL; /* slots have no position */
    if (!exact_biased(x)) return (struct bias_rows){ rel, -1 };
    exact_bias(x, b, t, n, room);
    for (int j = 0; rel && j < n; j++)
        for (int i = 0; i < LANES; i++)
            room[j * LANES + i] += rel[i - j];
    return (struct bias_rows){ room, LANES };
}

void exact_bias_pairs(const struct exact *x, int64_t h, struct places q,
                      struct places k, int n, float *bias)
{
    const float *rel = x->at.rel ? rel_of(x, h) : NULL;

    for (int j = 0; rel && j < n; j++)
        for (int i = 0; i < LANES; i++)
            bias[j * LANES + i] += rel[places_at(q, i) - places_at(k, j)];
}

/* The largest of n numbers, in four strands that do not wait for one another. */
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

void exact_bias_top(const struct exact *x, const struct block *b, float *top)
{
    const float  *rel = rel_of(x, b->h);
    const int64_t nk = b->seq->s.nk;
    const bool    causal = x->p->flags & FOCI_CAUSAL;
    const int64_t from = causal ? 0 : b->pos + b->r1 - nk; /* all lanes see these */
    const int64_t shared = b->pos + b->r0 + 1 - from;
    const float   common = shared > 0 ? largest(rel + from, shared) : -INFINITY;
    float         more = common, less = common;

    for (int i = 0; i < LANES; i++)
        top[i] = 0;
    for (int i = b->r0; i < b->r1; i++) { /* nearer lanes see more behind */
        const int64_t d = b->pos + i;
        if (shared > 0 && i > b->r0) more = fmaxf(more, rel[d]);
        top[i] = shared > 0
                     ? more
                     : largest(rel + (causal ? 0 : d - nk + 1), causal ? d + 1 : nk);
    }
    for (int i = b->r1 - 2; !causal && shared > 0 && i >= b->r0; i--) {
        less = fmaxf(less, rel[b->pos + i + 1 - nk]);
        top[i] = fmaxf(top[i], less);
    }
    for (int i = b->r0; i < b->r1; i++)
        if (top[i] == -INFINITY) top[i] = 0; /* sees nothing */
}

/*
 * Gradients of the tables: sums over diagonals
 */

/* Distances a sequence has, and as many more as a block may reach beyond. */
enum { REL_BEFORE = 2 * LANES, REL_ROOM = 3 * LANES };

static int64_t sums_size(const struct exact *x)
{
    return x->p->batch * (x->p->len_q + x->p->len_k) + x->max_seqs * REL_ROOM;
}

/* The sum of distance 0. */
static float *sums_of(const struct exact *x, int64_t part, int64_t h,
                      const struct exact_seq *s)
{
    const int64_t at = s->s.b * (x->p->len_q + x->p->len_k) + s->s.q0 + s->s.k0 +
                       (s - x->seqs) * REL_ROOM;

    return x->at.sums + (part * x->heads + h - x->head0) * sums_size(x) + at + s->s.nq +
           REL_BEFORE;
}

void exact_position_take_back(struct exact *x, int64_t parts, struct arena *a)
{
    if (!x->score->n_tables) return;
    x->at.sums = arena_take(a, parts * x->heads * sums_size(x), sizeof *x->at.sums);
    x->at.fold = arena_take(a, x->at.n_rel, sizeof *x->at.fold);
}

void exact_position_clear(const struct exact *x, int64_t parts)
{
    if (x->at.sums)
        memset(x->at.sums, 0,
               (size_t)(parts * x->heads * sums_size(x)) * sizeof *x->at.sums);
}

void exact_bias_back(const struct exact *x, const struct block *b, int64_t t, int n,
                     const void *ds, int dtype, int64_t part)
{
    if (!x->at.sums) return;
    float *sums = sums_of(x, part, b->h, b->seq) + b->pos - t * TILE - LANES;
    x->k->diagonals(sums, ds, dtype, n, exact_lanes(b));
}

void exact_bias_pairs_back(const struct exact *x, int64_t h, const struct exact_seq *s,
                           struct places q, uint64_t lanes, struct places k, int n,
                           const float *ds, int64_t part)
{
    if (!x->at.sums) return;
    float *sums = sums_of(x, part, h, s);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            if (lanes >> i & 1)
                sums[places_at(q, i) - places_at(k, j)] += ds[j * LANES + i];
}

/* Distances that follow one another mostly share an entry. */
static void fold_table(const struct exact *x, int i, int64_t h, float *dparams)
{
    const struct positions *p = &x->at;
    float *table = dparams + x->score->table_at[i] + h * x->score->table_size[i];
    double sum = 0;

    for (int64_t d = 0; d < p->n_rel; d++) {
        sum += p->fold[d];
        if (d + 1 < p->n_rel && p->entry[i][d + 1] == p->entry[i][d]) continue;
        table[p->entry[i][d]] += (float)sum;
        sum = 0;
    }
}

void exact_position_params(const struct exact *x, int64_t parts, float *dparams)
{
    const struct positions *p = &x->at;

    if (!p->sums) return;
    for (int64_t h = 0; h < x->heads; h++) {
        memset(p->fold, 0, (size_t)p->n_rel * sizeof *p->fold);
        for (int64_t part = 0; part < parts; part++)
            for (int64_t i = 0; i < x->n_seqs; i++) {
                const struct exact_seq *s = &x->seqs[i];
                const float            *sums = sums_of(x, part, x->head0 + h, s);

                for (int64_t d = 1 - s->s.nq; d < s->s.nk; d++)
                    p->fold[p->rel0 + d] += (double)sums[d];
            }
        for (int i = 0; i < x->score->n_tables; i++)
            fold_table(x, i, h, dparams);
    }
}
