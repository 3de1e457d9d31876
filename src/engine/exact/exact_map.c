/* exact_map.c -- row maps of q and k: project, standardise, normalise, rotate; and
 * back, for their gradients. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_map.h"
#include "engine/exact/exact_score.h"

static const float least_norm = 1e-12f;

/* The norm from the sum of squares; from the row itself where that overflows. */
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

/* Divide the rows by their norms, stored in norm[]. */
static void unit(const struct exact *x, float *tile, int ld, int d, int n, float *norm)
{
    x->k->row_dot(norm, tile, tile, ld, n, d);
    for (int i = 0; i < n; i++) {
        norm[i] = norm_of(tile + (int64_t)i * ld, d, norm[i]);
        for (int c = 0; c < d; c++)
            tile[(int64_t)i * ld + c] /= norm[i];
    }
}

/* Whether row i, divided by `by` in a map, is not finite and has a gradient g[d] of
 * zero.  The backward of the map would turn 0 * inf into NaN. */
static bool is_blind(const float *g, int d, float by)
{
    if (isfinite(by)) return false;
    for (int c = 0; c < d; c++)
        if (g[c] != 0) return false;
    return true;
}

/* In place, from the gradient of u = x/|x| to that of x; u[n][ld]. */
static void unit_back(float *du, const float *u, int ld, int d, int n, const float *norm)
{
    for (int i = 0; i < n; i++) {
        float       *g = du + (int64_t)i * ld;
        const float *e = u + (int64_t)i * ld;
        double       dot = 0;

        if (is_blind(g, d, norm[i])) continue;
        for (int c = 0; c < d; c++)
            dot += (double)g[c] * (double)e[c];
        if (norm[i] <= least_norm) dot = 0; /* the norm was a constant */
        for (int c = 0; c < d; c++)
            g[c] = (g[c] - e[c] * (float)dot) / norm[i];
    }
}

/* Added to variances. */
static const double least_variance = 1e-5;

/* The sum of x - mean, or of its squares, over d elements, in independent chains. */
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

void exact_standardise(float *tile, int ld, int d, int n, float *sd)
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

/* In place, from the gradient of u = (x - mean) / sd to that of x. */
static void standard_back(float *du, const float *u, int ld, int d, int n,
                          const float *sd)
{
    for (int i = 0; i < n; i++) {
        float       *g = du + (int64_t)i * ld;
        const float *e = u + (int64_t)i * ld;
        double       mean = 0, dot = 0;

        if (is_blind(g, d, sd[i])) continue;
        for (int c = 0; c < d; c++) {
            mean += (double)g[c];
            dot += (double)g[c] * (double)e[c];
        }
        for (int c = 0; c < d; c++)
            g[c] = (float)(((double)g[c] - mean / d - (double)e[c] * dot / d) /
                           (double)sd[i]);
    }
}

/* Where queries are keys too, the keys are normalised. */
static bool unit_rows(const struct exact *x, bool keys)
{
    return x->score->unit || (keys && x->stage->order.shared_qk);
}

bool exact_has_map(const struct exact *x)
{
    return unit_rows(x, true) || x->score->rope_base > 0 ||
           x->score->map != FOCI_MAP_NONE;
}

void exact_map(const struct exact *x, float *tile, int n, struct positions at,
               bool keys, struct mapped *m)
{
    if (x->score->map == FOCI_MAP_STANDARD)
        exact_standardise(tile, x->d.ldq, x->d.q, n, m->sd);
    if (unit_rows(x, keys)) unit(x, tile, x->d.ldq, x->d.q, n, m->norm);
    if (x->score->rope_base > 0) exact_rope(x, tile, n, at, false);
}

void exact_load_queries(const struct exact *x, const struct exact_block *b, float *tile,
                        struct mapped *m)
{
    const bool projects = exact_has_project(x);
    float     *rows = projects ? exact_project_input(x) : tile;

    if (!x->d.q) return; /* q is not read */
    exact_load_block(x, b, x->io->q, &x->p->q, x->d.in,
                     projects ? x->d.ld_in : x->d.ldq, rows);
    if (projects) exact_project(x, b->h - x->head0, false, rows, LANES, tile);
    exact_map(x, tile, LANES, (struct positions){ b->pos, NULL }, false, m);
}

void exact_load_key_rows(const struct exact *x, const struct exact_seq *s, int64_t kv,
                         int64_t j, int n, float *tile, struct mapped *m)
{
    const bool projects = exact_has_project(x);
    float     *rows = projects ? exact_project_input(x) : tile;

    if (!x->d.q) return;
    exact_load_rows(x, s, kv, j, n, x->io->k, &x->p->k, x->d.in,
                    projects ? x->d.ld_in : x->d.ldq, rows);
    if (projects) exact_project(x, kv, true, rows, n, tile);
    exact_map(x, tile, n, (struct positions){ j, NULL }, true, m);
}

/* The maps are undone in `tile` step by step, as their gradients need the rows before. */
void exact_map_back(const struct exact *x, float *d, float *tile, int n,
                    struct positions at, bool keys, const struct mapped *m)
{
    const bool rotate_rows = unit_rows(x, keys) || x->score->map == FOCI_MAP_STANDARD;

    if (x->score->rope_base > 0) {
        exact_rope(x, d, n, at, true);
        if (rotate_rows) exact_rope(x, tile, n, at, true);
    }
    if (unit_rows(x, keys)) {
        unit_back(d, tile, x->d.ldq, x->d.q, n, m->norm);
        for (int i = 0; x->score->map == FOCI_MAP_STANDARD && i < n; i++)
            for (int c = 0; c < x->d.q; c++)
                tile[(int64_t)i * x->d.ldq + c] *= m->norm[i];
    }
    if (x->score->map == FOCI_MAP_STANDARD)
        standard_back(d, tile, x->d.ldq, x->d.q, n, m->sd);
}
