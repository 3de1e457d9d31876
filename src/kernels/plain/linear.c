/* linear.c -- the fused chunk of linear attention and its backward pass. */

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

/*
 * Gradients
 */

struct back_plain {
    float f[LANES][CHUNK_WIDTH], g[LANES][CHUNK_WIDTH];
    float n[LANES][CHUNK_WIDTH], r[LANES];   /* of rows divided, of what divides */
    float a[LANES][LANES], da[LANES][LANES]; /* [query][key], rounded */
};

static bool back_rows(const struct chunk_back *c, struct back_plain *x)
{
    bool finite = true;

    for (int i = 0; i < LANES; i++) {
        const float by = c->by[i];
        float       dot = 0.0f;

        for (int t = 0; t < c->dv; t++) {
            const float g = from_bf16(c->d_o[i * c->ldo + t]);

            finite = finite && isfinite(g) && isfinite(from_bf16(c->v[i * c->ldv + t]));
            if (c->divides) dot += g * from_bf16(c->o[i * c->ldo + t]);
            x->n[i][t] = by == 0.0f ? 0.0f : rounded(g / by);
        }
        x->r[i] = c->divides && by != 0.0f ? -dot / by : 0.0f;
        for (int t = 0; t < c->d; t++)
            finite = finite && isfinite(from_bf16(c->q[i * c->ldq + t])) &&
                     isfinite(from_bf16(c->k[i * c->ldk + t]));
    }
    chunk_features(x->f, c->q, c->ldq, c->d, c->kind, c->scale);
    chunk_features(x->g, c->k, c->ldk, c->d, c->kind, 1.0f);
    return finite;
}

static void back_near(const struct chunk_back *c, struct back_plain *x)
{
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < LANES; j++) {
            float a = 0.0f, da = x->r[i];

            for (int t = 0; t < c->d; t++)
                a += rounded(x->f[i][t]) * rounded(x->g[j][t]);
            for (int t = 0; t < c->dv; t++)
                da += x->n[i][t] * from_bf16(c->v[j * c->ldv + t]);
            x->a[i][j] = j <= i ? rounded(a) : 0.0f;
            x->da[i][j] = j <= i ? rounded(da) : 0.0f;
        }
}

static float phi_slope(float x, float f, int kind)
{
    if (kind == FOCI_FEATURE_ELU) return f > 1.0f ? x : x * f;
    return kind == FOCI_FEATURE_RELU && f <= 0.0f ? 0.0f : x;
}

/* dq, and dk, of token i. */
static void back_row(const struct chunk_back *c, const struct back_plain *x, int i)
{
    for (int t = 0; t < c->d; t++) {
        const float *s = c->sums + t * c->ld_sums, *after = c->after + t * c->ld_sums;
        float        df = x->r[i] * c->total[t], dg = c->rho[t];

        for (int j = 0; j < c->dv; j++) {
            df += x->n[i][j] * rounded(s[j]);
            dg += from_bf16(c->v[i * c->ldv + j]) * rounded(after[j]);
        }
        for (int j = 0; j < LANES; j++) {
            df += x->da[i][j] * rounded(x->g[j][t]);
            dg += x->da[j][i] * rounded(x->f[j][t]);
        }
        if (c->dq)
            c->dq[i * c->ldq + t] =
                to_bf16(c->scale * phi_slope(df, x->f[i][t], c->kind));
        if (c->dk) c->dk[i * c->ldk + t] = to_bf16(phi_slope(dg, x->g[i][t], c->kind));
    }
    for (int j = 0; j < c->dv && c->d_v; j++) {
        float sum = 0.0f;

        for (int t = 0; t < c->d; t++)
            sum += rounded(x->g[i][t]) * rounded(c->after[t * c->ld_sums + j]);
        for (int q = 0; q < LANES; q++)
            sum += x->a[q][i] * x->n[q][j];
        c->d_v[i * c->ldv + j] = to_bf16(sum);
    }
}

static int chunk_back(const struct chunk_back *c)
{
    struct back_plain x;

    if (!back_rows(c, &x)) return 0;
    back_near(c, &x);
    for (int i = 0; i < LANES; i++)
        back_row(c, &x, i);
    for (int t = 0; t < c->d; t++)
        for (int i = 0; i < LANES; i++) {
            c->rho[t] += x.f[i][t] * x.r[i];
            for (int j = 0; j < c->dv; j++)
                c->after[t * c->ld_sums + j] += rounded(x.f[i][t]) * x.n[i][j];
        }
    return 1;
}
