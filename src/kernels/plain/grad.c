/* grad.c -- gradients of a panel, pair by pair. */

/* Element t of a dot product of words, in row i of `rows` and column j of `cols`. */
static float of_words(uint32_t word, int t)
{
    return from_bf16((uint16_t)(word >> 16 * (t & 1)));
}

/* rows[64][d / 2] by key times cols[d / 2][64] by query. */
static float panel_dot(const uint32_t *rows, const uint32_t *cols, int d, int j, int i)
{
    float sum = 0.0f;

    for (int t = 0; t < d; t++)
        sum +=
            of_words(rows[j * d / 2 + t / 2], t) * of_words(cols[t / 2 * LANES + i], t);
    return sum;
}

/* sum[d] of key j += x times query i of rows of pairs. */
static void panel_add(float *sum, float x, const uint32_t *rows, int d, int i)
{
    for (int c = 0; c < d; c++)
        sum[c] += x * of_words(rows[i / 2 * d + c], i);
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
        q->dqt[c * LANES + i] += ds * of_words(k->sum[c * LANES / 2 + j / 2], j);
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
