/* panels.h -- checkers of kernels that do a whole panel of keys and queries. */
#ifndef FOCI_TESTS_KERN_PANELS_H
#define FOCI_TESTS_KERN_PANELS_H

#include "kern/run.h"

struct panel_case {
    int tiles, blocks, dq, dv;
    int units; /* all are seen, a causal diagonal, or anything */
};

static const struct panel_case panel_cases[] = {
    { 4, 4, 64, 64, 0 },   { 4, 4, 128, 128, 0 }, { 1, 1, 32, 32, 0 },
    { 2, 3, 96, 64, 1 },   { 3, 2, 64, 32, 2 },   { 4, 4, 64, 64, 1 },
    { 4, 1, 128, 128, 2 }, { 1, 4, 160, 256, 2 }, { 4, 4, 64, 64, 2 },
};

static uint32_t *panel_pairs(struct run *r, int64_t n)
{
    uint32_t *const x = take(r, (size_t)n * sizeof *x, false, BYTES);

    for (int64_t i = 0; i < 2 * n; i++) {
        const float    f = draw(r, NORMAL);
        uint32_t       u;
        const uint16_t h = (memcpy(&u, &f, sizeof u), (uint16_t)(u >> 16));
        memcpy((uint16_t *)(void *)x + i, &h, sizeof h);
    }
    return x;
}

/* Operands of all tiles in one buffer each, and of all blocks. */
static void panel_operands(struct run *r, const struct panel_case *c,
                           struct grad_panel *p)
{
    const int64_t   k = LANES * c->dq / 2, v = LANES * c->dv / 2;
    uint32_t *const keys = panel_pairs(r, c->tiles * k);
    uint32_t *const sum = panel_pairs(r, c->tiles * k);
    uint32_t *const values = panel_pairs(r, c->tiles * v);
    uint32_t *const q_cols = panel_pairs(r, c->blocks * k);
    uint32_t *const q_rows = panel_pairs(r, c->blocks * k);
    uint32_t *const g_cols = panel_pairs(r, c->blocks * v);
    uint32_t *const g_rows = panel_pairs(r, c->blocks * v);
    float *const    rows = floats(r, (int64_t)3 * c->blocks * LANES, NORMAL);

    for (int t = 0; t < c->tiles; t++)
        p->tile[t] = (struct panel_tile){ keys + t * k, values + t * v, sum + t * k };
    for (int b = 0; b < c->blocks; b++) {
        float *const f = rows + (int64_t)3 * b * LANES;

        for (int i = 0; i < LANES; i++) {
            f[i] = 0.1f + 0.01f * (float)(i % 7);
            f[LANES + i] = i % 17 == 3 ? INFINITY : 16 + f[LANES + i];
        }
        p->block[b] = (struct panel_block){ q_cols + b * k,
                                            g_cols + b * v,
                                            q_rows + b * k,
                                            g_rows + b * v,
                                            f,
                                            f + LANES,
                                            f + 2 * LANES,
                                            NULL };
    }
}

static void panel_seen(struct run *r, const struct panel_case *c, struct grad_panel *p)
{
    const size_t    n = (size_t)c->tiles * (size_t)c->blocks * LANES;
    uint64_t *const seen = take(r, n * sizeof *seen, false, BYTES);

    for (size_t i = 0; i < n; i++) {
        const int t = (int)i / LANES / c->blocks, b = (int)i / LANES % c->blocks;
        const int key =
            t * LANES + (int)i % LANES - b * LANES; /* from the first query */

        p->seen[t][b] = seen + i / LANES * LANES;
        seen[i] = c->units == 2 ? bits(r)
                  : key <= 0    ? UINT64_MAX
                  : key < LANES ? UINT64_MAX << key
                                : 0;
    }
    for (int i = 0; i < 2 * c->tiles; i++)
        for (int j = 0; j < 2 * c->blocks; j++)
            p->unit[i][j] = (uint8_t)(c->units == 0   ? PANEL_ALL
                                      : c->units == 2 ? below(r, 3)
                                      : i < j         ? PANEL_ALL
                                      : i == j        ? PANEL_SOME
                                                      : PANEL_NONE);
}

static double panel_half(const uint32_t *x, int64_t pair, int half)
{
    return (double)of_bf16((uint16_t)(x[pair] >> 16 * (half & 1)));
}

/* Where pair j of row i of a matrix of so many columns lies among tiles. */
static int64_t panel_at(int i, int j, int cols)
{
    return (int64_t)(i / 16 * (cols / 16) + j / 16) * 256 + i % 16 * 16 + j % 16;
}

static double panel_sum(const uint32_t *rows, const uint32_t *cols, int d, int j, int i)
{
    double sum = 0;

    for (int t = 0; t < d; t++)
        sum += panel_half(rows, panel_at(j, t / 2, d / 2), t) *
               panel_half(cols, panel_at(t / 2, i, LANES), t);
    return sum;
}

/* Adds what a pair may be off by to the bounds of all that it is added to.  Weights may
 * fall to either side of a rounding boundary, and so may gradients, which have their
 * error too; FAR is what norms of +inf leave of weights. */
static void panel_pair_bounds(const struct grad_panel *p, int j, int i, double *dk,
                              double *dv, double *dqt)
{
    static const double       far = 0x1p-60;
    const struct panel_tile  *t = &p->tile[j / LANES];
    const struct panel_block *b = &p->block[i / LANES];
    const int                 key = j % LANES, lane = i % LANES;
    const double              s = panel_sum(t->keys, b->q_cols, p->dq, key, lane);
    const double              dp = panel_sum(t->values, b->g_cols, p->dv, key, lane);
    const double              w = exp2((double)b->f[lane] * s - (double)b->norm[lane]);
    const double              ew = 1.5 * BF16 * w + far,
                 eds = 3 * BF16 * w * fabs(dp - (double)b->delta[lane]) +
                       1e-5 * w * (1 + fabs(dp)) + far * (1 + fabs(dp));

    for (int c = 0; c < p->dv; c++)
        dv[(int64_t)j * p->dv + c] +=
            ew * fabs(panel_half(b->g_rows, panel_at(lane / 2, c, p->dv), lane));
    for (int c = 0; c < p->dq; c++) {
        dk[(int64_t)j * p->dq + c] +=
            eds * fabs(panel_half(b->q_rows, panel_at(lane / 2, c, p->dq), lane));
        dqt[(int64_t)i / LANES * p->dq * LANES + c * LANES + lane] +=
            eds * fabs(panel_half(t->sum, (int64_t)c * LANES / 2 + key / 2, key));
    }
}

static void panel_bounds(struct run *r, const struct grad_panel *p)
{
    const int64_t keys = (int64_t)p->n_tiles * LANES,
                  lanes = (int64_t)p->n_blocks * LANES;
    double *const dk = calloc((size_t)(keys * p->dq), sizeof *dk);
    double *const dv = calloc((size_t)(keys * p->dv), sizeof *dv);
    double *const dqt = calloc((size_t)(lanes * p->dq), sizeof *dqt);

    assert_true(dk && dv && dqt);
    for (int j = 0; j < keys; j++)
        for (int i = 0; i < lanes; i++)
            panel_pair_bounds(p, j, i, dk, dv, dqt);
    for (int64_t i = 0; i < keys * p->dq; i++)
        allow(r, p->dk_sum, i, dk[i] + 1e-5);
    for (int64_t i = 0; i < keys * p->dv; i++)
        allow(r, p->dv_sum, i, dv[i] + 1e-5);
    for (int64_t i = 0; i < lanes * p->dq; i++)
        allow(r, p->block[0].dqt, i, dqt[i] + 1e-5);
    free(dk);
    free(dv);
    free(dqt);
}

static void check_pairs_to_tiles(struct run *r)
{
    static const int sizes[][2] = { { 64, 64 }, { 32, 128 }, { 16, 16 }, { 64, 48 } };

    for (int i = 0; i < cases(r, 1, COUNT(sizes)); i++) {
        const int     rows = sizes[i][0], cols = sizes[i][1];
        const int64_t ld = cols + 16 * (i % 2);

        snprintf(r->label, sizeof r->label, "%d x %d pairs", rows, cols);
        r->is_flops = false;
        r->work = 8.0 * rows * cols;
        const uint32_t *const in = panel_pairs(r, rows * ld);
        uint32_t *const       out = output(r, (int64_t)rows * cols, sizeof *out, BYTES);

        while (next(r))
            r->k->pairs_to_tiles(out, in, ld, rows, cols);
    }
}

static void check_pack_block_from_bf16(struct run *r)
{
    static const int sizes[][3] = { { 64, 64, 64 }, { 64, 128, 128 }, { 63, 64, 64 },
                                    { 1, 7, 32 },   { 33, 72, 96 },   { 64, 33, 64 } };

    for (int i = 0; i < cases(r, 2, COUNT(sizes)); i++) {
        const int     n = sizes[i][0], d = sizes[i][1], wide = sizes[i][2];
        const int64_t ld = d + i % 3;

        snprintf(r->label, sizeof r->label, "%d rows of %d", n, d);
        r->is_flops = false;
        r->work = 2.0 * n * d + 4.0 * LANES * wide;
        uint16_t *const in = take(r, (size_t)((n - 1) * ld + d) * 2, false, BYTES);
        for (int64_t t = 0; t < (n - 1) * ld + d; t++)
            in[t] = (uint16_t)bits(r);
        uint32_t *const cols = output(r, LANES / 2 * wide, sizeof *cols, BYTES);
        uint32_t *const rows = output(r, LANES / 2 * wide, sizeof *rows, BYTES);

        while (next(r))
            r->k->pack_block_from_bf16(cols, rows, in, ld, n, d, wide);
    }
}

static void check_grad_panel_bf16(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(panel_cases)); i++) {
        const struct panel_case *c = &panel_cases[i];
        struct grad_panel        p = {
                   .n_tiles = c->tiles, .n_blocks = c->blocks, .dq = c->dq, .dv = c->dv
        };
        const int64_t rows = (int64_t)c->tiles * LANES;
        const int64_t lanes = (int64_t)c->blocks * LANES;

        snprintf(r->label, sizeof r->label, "%d x %d tiles, widths %d and %d, units %d",
                 c->tiles, c->blocks, c->dq, c->dv, c->units);
        r->is_flops = true;
        r->work = 2.0 * (double)(rows * lanes) * (3 * c->dq + 2 * c->dv);
        panel_operands(r, c, &p);
        panel_seen(r, c, &p);
        p.dk_sum = inout(r, rows * c->dq, NORMAL);
        p.dv_sum = inout(r, rows * c->dv, NORMAL);
        float *const dqt = inout(r, lanes * c->dq, NORMAL);
        for (int b = 0; b < c->blocks; b++)
            p.block[b].dqt = dqt + (int64_t)b * c->dq * LANES;
        p.scratch = take(r, (size_t)panel_bytes(c->tiles, c->blocks), false, BYTES);
        if (!r->bench) panel_bounds(r, &p);
        struct thread_state before;
        if (r->now->begin) r->now->begin(&before);
        while (next(r))
            r->k->grad_panel_bf16(&p);
        if (r->now->end) r->now->end(&before);
    }
}

#endif
