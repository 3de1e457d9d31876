/* exact_pack.c -- rows in, rows out: convert, normalise, pack, and back. */
#include <math.h>
#include <string.h>

#include "engine/exact_fused.h"
#include "engine/exact_pack.h"
#include "engine/exact_score.h"
#include "engine/exact_slots.h"
#include "engine/exact_tiles.h"

static const char *at(const struct exact *x, const void *base, const foci_layout *l,
                      int64_t b, int64_t row, int64_t head)
{
    const int64_t offset = b * l->batch + row * l->row + head * l->head;
    return (const char *)base + (size_t)offset * foci_dtype_bytes(x->p->dtype);
}

/* Zero the rows of a tile that n rows from row r0 on do not fill. */
static void clear_rest(float *tile, int ld, int r0, int r1)
{
    memset(tile, 0, (size_t)r0 * (size_t)ld * sizeof *tile);
    memset(tile + (int64_t)r1 * ld, 0, (size_t)(TILE - r1) * (size_t)ld * sizeof *tile);
}

void exact_load_block(const struct exact *x, const struct block *b, const void *base,
                      const foci_layout *l, int d, int ld, float *tile)
{
    const char *rows = at(x, base, l, b->seq->s.b, b->seq->s.q0 + b->i0 + b->r0, b->h);

    x->k->load_rows(tile + (int64_t)b->r0 * ld, ld, rows, l->row, (int)x->p->dtype,
                    b->r1 - b->r0, d);
    clear_rest(tile, ld, b->r0, b->r1);
}

bool exact_as_stored(const struct exact *x)
{
    return x->bf16 && x->p->dtype == FOCI_BF16 && !exact_maps(x) && !x->stage->n_levels;
}

const uint16_t *exact_stored_block(const struct exact *x, const struct block *b,
                                   const void *base, const foci_layout *l, int d,
                                   void *room, int64_t *ld)
{
    const char  *rows = at(x, base, l, b->seq->s.b, b->seq->s.q0 + b->i0 + b->r0, b->h);
    const size_t bytes = (size_t)d * sizeof(uint16_t);

    *ld = l->row;
    if (b->r0 == 0) return (const void *)rows;
    *ld = d;
    memset(room, 0, (size_t)b->r0 * bytes);
    for (int r = b->r0; r < b->r1; r++)
        memcpy((char *)room + (size_t)r * bytes,
               rows + (size_t)((r - b->r0) * l->row) * sizeof(uint16_t), bytes);
    return room;
}

const uint16_t *exact_stored_tile(const struct exact *x, const struct exact_seq *s,
                                  int64_t kv, int64_t t, const void *base,
                                  const foci_layout *l)
{
    return (const void *)at(x, base, l, s->s.b, s->s.k0 + t * TILE,
                            exact_given_head(x, kv));
}

void exact_load_tile(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t t, const void *base, const foci_layout *l, int d, int ld,
                     float *tile)
{
    const int n = exact_keys_in(s, t);

    exact_load_rows(x, s, kv, t * TILE, n, base, l, d, ld, tile);
    clear_rest(tile, ld, 0, n);
}

void exact_load_rows(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t j, int n, const void *base, const foci_layout *l, int d,
                     int ld, float *tile)
{
    if (!d) return;
    const char *rows = at(x, base, l, s->s.b, s->s.k0 + j, exact_given_head(x, kv));

    x->k->load_rows(tile, ld, rows, l->row, (int)x->p->dtype, n, d);
}

void exact_store_rows(const struct exact *x, const struct block *b, void *base,
                      const foci_layout *l, const float *tile, int d, int ld)
{
    char *rows =
        (char *)at(x, base, l, b->seq->s.b, b->seq->s.q0 + b->i0 + b->r0, b->h);

    x->k->store_rows(rows, l->row, (int)x->p->dtype, tile + (int64_t)b->r0 * ld, ld,
                     1.0f, b->r1 - b->r0, d);
}

void exact_store_rows_by(const struct exact *x, const struct block *b, void *base,
                         const foci_layout *l, const float *tile, const float *factor)
{
    char *rows =
        (char *)at(x, base, l, b->seq->s.b, b->seq->s.q0 + b->i0 + b->r0, b->h);

    x->k->store_rows_by(rows, l->row, (int)x->p->dtype, tile + (int64_t)b->r0 * x->ldv,
                        x->ldv, factor + b->r0, b->r1 - b->r0, x->dv);
}

void exact_store_block(const struct exact *x, const struct block *b, void *base,
                       const foci_layout *l, const float *cols, int d, int ld,
                       const float *factor, float *tile)
{
    char *rows =
        (char *)at(x, base, l, b->seq->s.b, b->seq->s.q0 + b->i0 + b->r0, b->h);
    const int dtype = (int)x->p->dtype;

    if (b->r0 == 0) {
        x->k->store_cols(rows, l->row, dtype, cols, factor, b->r1, d);
        return;
    }
    x->k->store_cols(tile, ld, FOCI_F32, cols, factor, b->r1, d);
    exact_store_rows(x, b, base, l, tile, d, ld);
}

static const float least_norm = 1e-12f;

/* From the sum of its squares, or from the row itself where that is beyond floats. */
static float norm_of(const float *row, int d, float squares)
{
    double sum = (double)squares;

    if (isinf(squares)) {
        sum = 0;
        for (int c = 0; c < d; c++)
            sum += (double)row[c] * (double)row[c];
    }
    const float norm = (float)sqrt(sum);
    return norm < least_norm ? least_norm : norm;
}

/* Divide the rows by their norms, which go to norm[]. */
static void unit(const struct exact *x, float *tile, int ld, int d, int n, float *norm)
{
    x->k->row_dot(norm, tile, tile, ld, n, d);
    for (int i = 0; i < n; i++) {
        norm[i] = norm_of(tile + (int64_t)i * ld, d, norm[i]);
        for (int c = 0; c < d; c++)
            tile[(int64_t)i * ld + c] /= norm[i];
    }
}

/* From the gradient of u = x/|x| to that of x, in place; u[n][ld]. */
static void unit_back(float *du, const float *u, int ld, int d, int n, const float *norm)
{
    for (int i = 0; i < n; i++) {
        float       *g = du + (int64_t)i * ld;
        const float *e = u + (int64_t)i * ld;
        double       dot = 0;

        for (int c = 0; c < d; c++)
            dot += (double)g[c] * (double)e[c];
        if (norm[i] <= least_norm) dot = 0; /* divided by a constant */
        for (int c = 0; c < d; c++)
            g[c] = (g[c] - e[c] * (float)dot) / norm[i];
    }
}

/* Added to variances. */
static const double least_variance = 1e-5;

/* The sum of x - mean, or of its squares, over d elements, in strands that do not wait for one
 * another. */
static double sum_from(const float *row, int d, double mean, bool square)
{
    double sum[4] = { 0 };
    int    c = 0;

    for (; c + 4 <= d; c += 4)
        for (int s = 0; s < 4; s++) {
            const double y = (double)row[c + s] - mean;
            sum[s] += square ? y * y : y;
        }
    for (; c < d; c++) {
        const double y = (double)row[c] - mean;
        sum[0] += square ? y * y : y;
    }
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

void exact_standard(float *tile, int ld, int d, int n, float *sd)
{
    for (int i = 0; i < n; i++) {
        float       *row = tile + (int64_t)i * ld;
        const double mean = sum_from(row, d, 0, false) / d;
        const double by = sqrt(sum_from(row, d, mean, true) / d + least_variance);

        for (int c = 0; c < d; c++)
            row[c] = (float)(((double)row[c] - mean) * (1 / by));
        sd[i] = (float)by;
    }
}

/* From the gradient of u = (x - mean) / sd to that of x, in place. */
static void standard_back(float *du, const float *u, int ld, int d, int n,
                          const float *sd)
{
    for (int i = 0; i < n; i++) {
        float       *g = du + (int64_t)i * ld;
        const float *e = u + (int64_t)i * ld;
        double       mean = 0, dot = 0;

        for (int c = 0; c < d; c++) {
            mean += (double)g[c];
            dot += (double)g[c] * (double)e[c];
        }
        for (int c = 0; c < d; c++)
            g[c] = (float)(((double)g[c] - mean / d - (double)e[c] * dot / d) /
                           (double)sd[i]);
    }
}

/* Shared keys are the unit vectors of the queries. */
static bool unit_rows(const struct exact *x, bool keys)
{
    return x->score->unit || (keys && x->stage->order.shared);
}

bool exact_maps(const struct exact *x)
{
    return unit_rows(x, true) || x->score->rope_base > 0 ||
           x->score->map != FOCI_MAP_NONE;
}

void exact_map(const struct exact *x, float *tile, int n, struct places at, bool keys,
               struct mapped *m)
{
    if (x->score->map == FOCI_MAP_STANDARD)
        exact_standard(tile, x->ldq, x->dq, n, m->sd);
    if (unit_rows(x, keys)) unit(x, tile, x->ldq, x->dq, n, m->norm);
    if (x->score->rope_base > 0) exact_turn(x, tile, n, at, false);
}

void exact_load_queries(const struct exact *x, const struct block *b, float *tile,
                        struct mapped *m)
{
    const bool wide = exact_projects(x);
    float     *rows = wide ? exact_wide(x) : tile;

    if (!x->dq) return; /* not read */
    exact_load_block(x, b, x->io->q, &x->p->q, x->given, wide ? x->ld_given : x->ldq,
                     rows);
    if (wide) exact_project(x, b->h - x->head0, false, rows, LANES, tile);
    exact_map(x, tile, LANES, (struct places){ b->pos, NULL }, false, m);
}

void exact_load_mapped(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t j, int n, float *tile, struct mapped *m)
{
    const bool wide = exact_projects(x);
    float     *rows = wide ? exact_wide(x) : tile;

    if (!x->dq) return;
    exact_load_rows(x, s, kv, j, n, x->io->k, &x->p->k, x->given,
                    wide ? x->ld_given : x->ldq, rows);
    if (wide) exact_project(x, kv, true, rows, n, tile);
    exact_map(x, tile, n, (struct places){ j, NULL }, true, m);
}

/* The rows of the tile are taken back as their gradients are. */
void exact_map_back(const struct exact *x, float *d, float *tile, int n,
                    struct places at, bool keys, const struct mapped *m)
{
    const bool earlier = unit_rows(x, keys) || x->score->map == FOCI_MAP_STANDARD;

    if (x->score->rope_base > 0) {
        exact_turn(x, d, n, at, true);
        if (earlier) exact_turn(x, tile, n, at, true);
    }
    if (unit_rows(x, keys)) {
        unit_back(d, tile, x->ldq, x->dq, n, m->norm);
        for (int i = 0; x->score->map == FOCI_MAP_STANDARD && i < n; i++)
            for (int c = 0; c < x->dq; c++)
                tile[(int64_t)i * x->ldq + c] *= m->norm[i];
    }
    if (x->score->map == FOCI_MAP_STANDARD)
        standard_back(d, tile, x->ldq, x->dq, n, m->sd);
}

/* What products on words make of a tile, so that sums taken without them agree. */
void exact_round(const struct exact *x, float *tile, int ld, int d, void *room)
{
    if (!x->bf16 || x->p->dtype == FOCI_BF16) return;
    x->k->store_rows(room, ld, FOCI_BF16, tile, ld, 1.0f, TILE, d);
    x->k->load_rows(tile, ld, room, ld, FOCI_BF16, TILE, d);
}

void exact_raise(const struct exact *x, float *tile, int ld, int d, void *room)
{
    if (!x->drops) return;
    for (int64_t i = 0; i < (int64_t)TILE * ld; i++)
        tile[i] *= x->kept;
    if (!x->bf16) return;
    x->k->store_rows(room, ld, FOCI_BF16, tile, ld, 1.0f, TILE, d);
    x->k->load_rows(tile, ld, room, ld, FOCI_BF16, TILE, d);
}

static bool all_finite(const float *x, int n)
{
    int odd = 0;

    for (int i = 0; i < n; i++)
        odd += !isfinite(x[i]);
    return !odd;
}

/* Squares overflow before anything is infinite, which costs a slow tile, no more. */
bool exact_finite(const struct exact *x, const float *tile, int ld, int d, int n)
{
    _Alignas(64) float square[TILE];

    x->k->row_dot(square, tile, tile, ld, n, d);
    return all_finite(square, n);
}

void exact_pack(const struct exact *x, const float *tile, int ld, int d_pad, int n,
                char *rows, char *sum, size_t size, size_t at)
{
    if (rows && !x->bf16)
        memcpy(rows + at * size, tile, TILE * (size_t)ld * sizeof *tile);
    if (rows && x->bf16)
        x->k->pack_rows_bf16((void *)(rows + at * size), tile, ld, n, d_pad);
    if (sum) x->k->pack_sum_bf16((void *)(sum + at * size), tile, ld, n, d_pad);
}

bool exact_finite_stored(const struct exact *x, const uint16_t *rows, int64_t ld, int d,
                         int n)
{
    _Alignas(64) float square[TILE];

    x->k->squares_bf16(square, rows, ld, n, d);
    return all_finite(square, n);
}

bool exact_measure_keys(const struct exact *x, int n, size_t at)
{
    float *norm = x->norms + at * TILE;
    float  top = 0;

    for (int j = 0; j < n; j++) {
        norm[j] = isfinite(norm[j]) ? sqrtf(norm[j]) : INFINITY;
        top = norm[j] > top ? norm[j] : top;
    }
    x->top[at] = top;
    return isfinite(top);
}

/* Whether no block needs a tile, by the plan's table. */
static bool unused(const struct exact *x, const struct exact_seq *s, int64_t t)
{
    int64_t runs = 1;

    if (!s->kinds && exact_level(s, t) < 0) support_col(x->support, t, &runs);
    return !runs;
}

/* Rows of bf16 that nothing is done to, `at` of rows and sums of that size. */
static void take_tile(const struct exact *x, const uint16_t *in, int64_t ld, int n,
                      int d, int wide, char *rows, char *sum, size_t size, size_t at)
{
    if (rows) x->k->take_rows_bf16((void *)(rows + at * size), in, ld, n, d, wide);
    if (sum) x->k->take_sum_bf16((void *)(sum + at * size), in, ld, n, d, wide);
}

bool exact_minds_values(const struct exact *x)
{
    return x->values || x->drops || !x->support->all ||
           x->p->flags & (FOCI_CAUSAL | FOCI_MASK);
}

/* false: a key is not finite. */
static bool keys_stored(const struct exact *x, const struct exact_seq *s, int64_t kv,
                        int64_t t, size_t to)
{
    const foci_layout *l = &x->p->k;
    const uint16_t    *k = exact_stored_tile(x, s, kv, t, x->io->k, l);
    const int          n = exact_keys_in(s, t);

    x->k->squares_bf16(x->norms + to * TILE, k, l->row, n, x->dq);
    take_tile(x, k, l->row, n, x->dq, x->dq_pad, x->keys, x->keys_sum, x->key_size, to);
    return exact_measure_keys(x, n, to);
}

static unsigned pack_stored(const struct exact *x, const struct exact_seq *s,
                            int64_t kv, int64_t t, size_t to)
{
    const foci_layout *lv = &x->p->v;
    const uint16_t    *v = exact_stored_tile(x, s, kv, t, x->io->v, lv);
    const int          n = exact_keys_in(s, t);
    unsigned           bad = 0;

    if (x->dq && !keys_stored(x, s, kv, t, to)) bad |= BAD_KEY;
    if (exact_minds_values(x) && !exact_finite_stored(x, v, lv->row, x->dv, n))
        bad |= BAD_VALUE;
    take_tile(x, v, lv->row, n, x->dv, x->dv_pad, x->values, x->values_sum,
              x->value_size, to);
    return bad;
}

void exact_pack_tile(const struct exact *x, int64_t kv, int64_t kt, float *tile,
                     float *room)
{
    const struct exact_seq *s = &x->seqs[x->seq_of_k[kt]];
    const int64_t           t = kt - s->kt0;
    const int               n = exact_keys_in(s, t);
    const size_t            at = (size_t)(kv * x->max_kt + kt);
    unsigned                bad = 0;

    if (unused(x, s, t)) return;
    if (x->fused) {
        x->bad_k[at] = (uint8_t)exact_fused_pack(x, s, kv, t, at, tile, room);
        return;
    }
    if (exact_as_stored(x)) {
        x->bad_k[at] = (uint8_t)pack_stored(x, s, kv, t, at);
        return;
    }
    if (x->dq) {
        exact_load_keys(x, s, kv, t, tile, room);
        x->k->row_dot(x->norms + at * TILE, tile, tile, x->ldq, n, x->dq);
        if (!exact_measure_keys(x, n, at)) bad |= BAD_KEY;
        exact_pack(x, tile, x->ldq, x->dq_pad, n, x->keys, x->keys_sum, x->key_size, at);
    }
    exact_load_values(x, s, kv, t, tile, room);
    if (!exact_finite(x, tile, x->ldv, x->dv, n)) bad |= BAD_VALUE;
    exact_pack(x, tile, x->ldv, x->dv_pad, n, x->values, x->values_sum, x->value_size,
               at);
    x->bad_k[at] = (uint8_t)bad;
}
