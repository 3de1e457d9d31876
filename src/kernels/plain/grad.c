/* grad.c -- the backward pass of a panel, pair by pair. */

enum { SIDE = 16 }; /* rows of a tile, and pairs of a row */

/* Where pair j of row i of a matrix of so many columns lies among tiles. */
static int64_t tiled(int i, int j, int cols)
{
    return ((int64_t)(i / SIDE) * (cols / SIDE) + j / SIDE) * SIDE * SIDE +
           i % SIDE * SIDE + j % SIDE;
}

/* The half of a pair that element t of a row is. */
static float of_pair(uint32_t pair, int t)
{
    return from_bf16(pair >> 16 * (t & 1) & 0xffff);
}

static void pairs_to_tiles(uint32_t *out, const uint32_t *in, int64_t ld, int rows,
                           int cols)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            out[tiled(i, j, cols)] = in[i * ld + j];
}

static void pack_block_from_bf16(uint32_t *cols, uint32_t *rows, const uint16_t *in,
                                 int64_t ld, int n, int d, int wide)
{
    memset(cols, 0, (size_t)wide * LANES / 2 * sizeof *cols);
    memset(rows, 0, (size_t)wide * LANES / 2 * sizeof *rows);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++) {
            const uint32_t x = in[i * ld + c];
            cols[tiled(c / 2, i, LANES)] |= x << 16 * (c & 1);
            rows[tiled(i / 2, c, wide)] |= x << 16 * (i & 1);
        }
}

/* rows[64][d / 2] by key times cols[d / 2][64] by query. */
static float panel_dot(const uint32_t *rows, const uint32_t *cols, int d, int j, int i)
{
    float sum = 0.0f;

    for (int t = 0; t < d; t++)
        sum += of_pair(rows[tiled(j, t / 2, d / 2)], t) *
               of_pair(cols[tiled(t / 2, i, LANES)], t);
    return sum;
}

/* sum[d] += x times query i of rows of pairs. */
static void panel_add(float *sum, float x, const uint32_t *rows, int d, int i)
{
    for (int c = 0; c < d; c++)
        sum[c] += x * of_pair(rows[tiled(i / 2, c, d)], i);
}

/* Key j of tile t meets query i of block b. */
static void panel_pair(const struct grad_panel *p, int t, int j, int b, int i)
{
    const struct panel_tile  *k = &p->tile[t];
    const struct panel_block *q = &p->block[b];
    const float               s = panel_dot(k->keys, q->q_cols, p->dq, j, i);
    const float               dp = panel_dot(k->values, q->g_cols, p->dv, j, i);
    const float               w = from_bf16(to_bf16(exp2f(q->f[i] * s - q->norm[i])));
    const float               ds = from_bf16(to_bf16(w * (dp - q->delta[i])));
    const int64_t             row = (int64_t)t * LANES + j;

    panel_add(p->dv_sum + row * p->dv, w, q->g_rows, p->dv, i);
    panel_add(p->dk_sum + row * p->dq, ds, q->q_rows, p->dq, i);
    for (int c = 0; c < p->dq; c++)
        q->dqt[c * LANES + i] += ds * of_pair(k->sum[c * LANES / 2 + j / 2], j);
}

static void grad_panel_bf16(const struct grad_panel *p)
{
    for (int j = 0; j < p->n_tiles * LANES; j++)
        for (int i = 0; i < p->n_blocks * LANES; i++) {
            const int t = j / LANES, b = i / LANES, bit = i % LANES;
            const int unit = p->unit[j / PANEL_UNIT][i / PANEL_UNIT];

            if (unit == PANEL_ALL ||
                (unit == PANEL_SOME && p->seen[t][b][j % LANES] >> bit & 1))
                panel_pair(p, t, j % LANES, b, bit);
        }
}
