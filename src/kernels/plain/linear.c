/* linear.c -- a whole chunk of linear attention. */

struct chunk_plain {
    float f[LANES][CHUNK_WIDTH], g[LANES][CHUNK_WIDTH]; /* features of queries, keys */
    float total[CHUNK_WIDTH];                           /* of keys */
};

static float rounded(float x) { return from_bf16(to_bf16(x)); }

static void chunk_features(float f[LANES][CHUNK_WIDTH], const uint16_t *x, int64_t ld,
                           int d, int kind, float scale)
{
    for (int i = 0; i < LANES; i++)
        for (int c = 0; c < d; c++)
            f[i][c] = scale * phi(from_bf16(x[i * ld + c]), kind);
}

/* Sums of features over the keys; false: these, or values, are not finite. */
static bool chunk_keys(const struct chunk_rows *c, struct chunk_plain *x)
{
    bool finite = true;

    chunk_features(x->g, c->k, c->ldk, c->d, c->kind, 1.0f);
    for (int r = 0; r < c->d; r++) {
        x->total[r] = 0.0f;
        for (int j = 0; j < LANES; j++)
            x->total[r] += x->g[j][r];
        finite = finite && isfinite(x->total[r]);
    }
    for (int j = 0; j < LANES; j++)
        for (int t = 0; t < c->dv; t++)
            finite = finite && isfinite(from_bf16(c->v[j * c->ldv + t]));
    return finite;
}

static void chunk_row(const struct chunk_rows *c, const struct chunk_plain *x, int i)
{
    float o[CHUNK_WIDTH] = { 0 }, by = 0.0f;

    for (int r = 0; r < c->d; r++) {
        by += x->f[i][r] * c->total[r];
        for (int t = 0; t < c->dv; t++)
            o[t] += rounded(x->f[i][r]) * rounded(c->sums[r * c->ld_sums + t]);
    }
    for (int j = 0; c->k && j <= i; j++) {
        float w = 0.0f;

        for (int r = 0; r < c->d; r++)
            w += rounded(x->f[i][r]) * rounded(x->g[j][r]);
        by += w;
        for (int t = 0; t < c->dv; t++)
            o[t] += rounded(w) * from_bf16(c->v[j * c->ldv + t]);
    }
    by = c->by ? c->by[i] : by + c->eps;
    if (fabsf(by) < c->least) by = 0.0f;
    if (c->saved) c->saved[i] = by;
    for (int t = 0; t < c->dv; t++)
        c->o[i * c->ldo + t] = to_bf16(by == 0.0f ? 0.0f : o[t] / by);
}

static int chunk_rows(const struct chunk_rows *c)
{
    struct chunk_plain x;

    if (c->k && !chunk_keys(c, &x)) return 0;
    if (c->q) chunk_features(x.f, c->q, c->ldq, c->d, c->kind, c->scale);
    for (int i = 0; c->q && i < LANES; i++)
        chunk_row(c, &x, i);
    for (int r = 0; c->k && r < c->d; r++) {
        c->total[r] += x.total[r];
        for (int j = 0; j < LANES; j++)
            for (int t = 0; t < c->dv; t++)
                c->sums[r * c->ld_sums + t] +=
                    rounded(x.g[j][r]) * from_bf16(c->v[j * c->ldv + t]);
    }
    return 1;
}
