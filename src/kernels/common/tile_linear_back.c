/* tile_linear_back.c -- fused backward pass of a chunk of linear attention on tiles.
 *
 * With f and g the features of queries and keys, n the gradient of the numerators, r that of
 * the divisors, S and z the state before the chunk, R and rho the sums after it:
 *
 *     a^T  = g f^T,  da^T = v n^T + 1 r^T         keys by queries, causally masked
 *     dv   = g R + a^T n
 *     dg   = v R^T + 1 rho^T + da^T f
 *     df   = n S^T + r z^T + da g
 *     R   += f^T n,  rho += f^T r
 *
 * Strips of 16 keys compute a^T, da^T, dv and dg; strips of queries then compute df from da,
 * which is transposed as pairs of two queries, then split into rows of pairs of two keys.
 */

/* Operands: tiles [16][16] of bf16 pairs.  "rows" are first operands, paired along features or
 * columns; "cols" are these transposed; "pairs" have rows r and r + 16 of 32 in each pair. */
struct chunk_back_operands {
    uint32_t *f_rows, *f_cols;  /* [4][d/32], [d/32][4] */
    uint32_t *f_sums;           /* [2][d/16] features by pairs of queries */
    uint32_t *f_pairs;          /* [2][d/16] */
    uint32_t *g_rows, *g_pairs; /* [4][d/32], [2][d/16] */
    uint32_t *n_rows, *n_cols;  /* [4][dv/32], [dv/32][4] */
    uint32_t *n_pairs;          /* [2][dv/16] */
    uint32_t *s_cols;           /* [dv/32][d/16] pairs of columns by features */
    uint32_t *r_cols;           /* the same of R, */
    uint32_t *r_pairs;          /* [d/32][dv/16] and pairs of features by columns */
    uint32_t *a;                /* [2] a strip of a^T, by pairs of queries */
    uint32_t *da_keys;          /* [4][2] da^T likewise */
    uint32_t *da;               /* [4][2] da, by pairs of keys */
    float    *scores, *slopes;  /* [2][16][CHUNK_SCORES] of two strips */
    float    *rows, *values; /* [2][16][width] of two strips, by features and columns */
    float    *r;             /* [64] */
    float    *rho;           /* [d] what the chunk adds */
};

static struct chunk_back_operands back_operands(const struct chunk_back *c)
{
    const int64_t d = CHUNK_TILE * (c->d / 32), dv = CHUNK_TILE * (c->dv / 32);
    uint32_t     *at = c->scratch;
    struct chunk_back_operands o;

#define CARVE(name, pairs) o.name = at, at += (pairs)
    CARVE(f_rows, 4 * d);
    CARVE(f_cols, 4 * d);
    CARVE(f_sums, 4 * d);
    CARVE(f_pairs, 4 * d);
    CARVE(g_rows, 4 * d);
    CARVE(g_pairs, 4 * d);
    CARVE(n_rows, 4 * dv);
    CARVE(n_cols, 4 * dv);
    CARVE(n_pairs, 4 * dv);
    CARVE(s_cols, c->dv / 32 * 2 * d);
    CARVE(r_cols, c->dv / 32 * 2 * d);
    CARVE(r_pairs, c->d / 32 * 2 * dv);
    CARVE(a, 2 * CHUNK_TILE);
    CARVE(da_keys, 8 * CHUNK_TILE);
    CARVE(da, 8 * CHUNK_TILE);
#undef CARVE
    o.scores = (float *)at;
    o.slopes = o.scores + 2 * T * CHUNK_SCORES;
    o.rows = o.slopes + 2 * T * CHUNK_SCORES;
    o.values = o.rows + 2 * T * CHUNK_WIDTH;
    o.r = o.values + 2 * T * CHUNK_WIDTH;
    o.rho = o.r + LANES;
    return o;
}

/*
 * Packing
 */

/* A tile of pairs, rows `step` pairs apart, transposed to 16 rows of 16. */
INLINE void back_transpose(uint32_t *out, const uint32_t *in, int64_t step)
{
    vf x[T];

    UNROLL(16)
    for (int i = 0; i < T; i++)
        x[i] = (vf)_mm512_load_si512(in + i * step);
    vf_transpose(x);
    UNROLL(16)
    for (int i = 0; i < T; i++)
        vw_store(out + T * i, (vw)x[i]);
}

/* Pairs of rows r and r + 16, from the rows of two tiles of 32 columns each. */
INLINE void back_pairs_of(uint32_t *out, const uint32_t *first, const uint32_t *second)
{
    for (int r = 0; r < T; r++) {
        const vw a = vw_load(first + T * r), b = vw_load(second + T * r);

        vw_store(out + T * r, vw_zip_low(a, b));
        vw_store(out + CHUNK_TILE + T * r, vw_zip_high(a, b));
    }
}

/* From rows [4][wide] of tiles to pairs [2][2 wide]. */
static void back_pair_rows(uint32_t *out, const uint32_t *rows, int wide)
{
    for (int p = 0; p < CHUNK_PAIRS; p++)
        for (int h = 0; h < wide; h++) {
            const uint32_t *const at = rows + CHUNK_TILE * (2 * p * wide + h);
            back_pairs_of(out + CHUNK_TILE * (2 * wide * p + 2 * h), at,
                          at + CHUNK_TILE * wide);
        }
}

/* From rows [4][wide] to cols [wide][4]. */
static void back_transpose_rows(uint32_t *out, const uint32_t *rows, int wide)
{
    for (int i = 0; i < CHUNK_KEYS; i++)
        for (int h = 0; h < wide; h++)
            back_transpose(out + CHUNK_TILE * (CHUNK_KEYS * h + i),
                           rows + CHUNK_TILE * (i * wide + h), T);
}

/* Features as rows of queries by pairs of these, from cols [wide][4] to [2][2 wide]. */
static void back_pair_cols(uint32_t *out, const uint32_t *cols, int wide)
{
    for (int p = 0; p < CHUNK_PAIRS; p++)
        for (int h = 0; h < wide; h++) {
            const uint32_t *const x = cols + CHUNK_TILE * (CHUNK_KEYS * h + 2 * p);
            uint32_t *const       to = out + CHUNK_TILE * (2 * wide * p + 2 * h);

            for (int i = 0; i < T; i++)
                chunk_pair_keys(to + 2 * T * i, to + 2 * T * i + T,
                                _mm512_load_si512(x + T * i),
                                _mm512_load_si512(x + CHUNK_TILE + T * i));
        }
}

/* Sums [d][ld] as pairs of columns by features: [dv/32][d/16]. */
static void back_transpose_sums(const struct chunk_back *c, uint32_t *out,
                                const float *sums)
{
    for (int i = 0; i < c->d; i += T)
        for (int h = 0; h < c->dv; h += 32) {
            vf x[T];

            UNROLL(16)
            for (int r = 0; r < T; r++) {
                const float *const at = sums + (i + r) * c->ld_sums + h;
                x[r] = (vf)vw_row(vf_load(at), vf_load(at + T));
            }
            vf_transpose(x);
            uint32_t *const to = out + CHUNK_TILE * (h / 32 * (c->d / T) + i / T);
            UNROLL(16)
            for (int r = 0; r < T; r++)
                vw_store(to + T * r, (vw)x[r]);
        }
}

/* Pack bf16 pairs of features, by columns, in tiles [d/32][dv/16]. */
static void back_pair_sums(const struct chunk_back *c, uint32_t *out, const float *sums)
{
    for (int t = 0; t < c->d / 2; t++) {
        const float *low = sums + 2 * t * c->ld_sums, *high = low + c->ld_sums;
        uint32_t    *to = out + CHUNK_TILE * (t / T) * (c->dv / T) + t % T * T;

        for (int j = 0; j < c->dv; j += T, to += CHUNK_TILE)
            vw_store(to, vw_pair(vf_load(low + j), vf_load(high + j)));
    }
}

/*
 * Rows
 */

/* Whether all is finite so far: a number times 0 is 0. */
INLINE vf back_check(vf x, vf bad) { return vf_fma(x, vf_zero(), bad); }

/* Gradients of rows, divided, as rows; and those of what divides them. */
static bool back_rows_of(const struct chunk_back *c, const struct chunk_back_operands *o)
{
    vf bad = vf_zero();

    for (int i = 0; i < LANES; i++) {
        const uint16_t *g = c->d_o + i * c->ldo, *row = c->o + i * c->ldo;
        uint32_t   *to = o->n_rows + CHUNK_TILE * (i / T) * (c->dv / 32) + i % T * T;
        const float by = c->by[i], part = by == 0 ? 0 : 1 / by;
        const vm    keep = by == 0 ? 0 : 0xffff;
        vf          dot = vf_zero();

        chunk_prefetch(c->next_d_o, i * c->ldo, c->dv);
        if (c->divides) chunk_prefetch(c->next_o, i * c->ldo, c->dv);
        for (int h = 0; h < c->dv; h += 32, to += CHUNK_TILE) {
            const vf a = chunk_load(g + h), b = chunk_load(g + h + T);

            bad = back_check(b, back_check(a, bad));
            if (c->divides)
                dot = vf_fma(a, chunk_load(row + h),
                             vf_fma(b, chunk_load(row + h + T), dot));
            vw_store(to, vw_row(_mm512_maskz_mul_ps(keep, a, vf_set1(part)),
                                _mm512_maskz_mul_ps(keep, b, vf_set1(part))));
        }
        o->r[i] = c->divides && by != 0 ? -vf_sum(dot) * part : 0;
    }
    return vm_all(vf_eq(bad, vf_zero()));
}

/* Features of 64 rows as rows; sums of them times w[64] in total[d], w NULL: 1. */
INLINE bool back_features_of(const struct chunk_back *c, uint32_t *out,
                             const uint16_t *x, int64_t ld, const uint16_t *next,
                             const float *w, float scale, float *total, const int kind)
{
    vf sum[CHUNK_WIDTH / T], bad = vf_zero();

    for (int h = 0; h < c->d; h += T)
        sum[h / T] = vf_zero();
    for (int i = 0; i < LANES; i++) {
        uint32_t *to = out + CHUNK_TILE * (i / T) * (c->d / 32) + i % T * T;
        const vf  by = vf_set1(w ? w[i] : 1.0f);

        chunk_prefetch(next, i * ld, c->d);
        for (int h = 0; h < c->d; h += 32, to += CHUNK_TILE) {
            const vf u = chunk_load(x + i * ld + h), v = chunk_load(x + i * ld + h + T);
            vf       a = chunk_phi(u, kind), b = chunk_phi(v, kind);

            if (kind == FOCI_FEATURE_ROW) {
                a = vf_mul(a, vf_set1(scale));
                b = vf_mul(b, vf_set1(scale));
            }
            bad = back_check(v, back_check(u, bad));
            sum[h / T] = vf_fma(a, by, sum[h / T]);
            sum[h / T + 1] = vf_fma(b, by, sum[h / T + 1]);
            vw_store(to, vw_row(a, b));
        }
    }
    for (int h = 0; h < c->d; h += T)
        vf_store(total + h, sum[h / T]);
    return vm_all(vf_eq(bad, vf_zero()));
}

static bool back_features(const struct chunk_back *c, uint32_t *out, const uint16_t *x,
                          int64_t ld, const uint16_t *next, const float *w, float scale,
                          float *total)
{
    switch (c->kind) {
    case FOCI_FEATURE_ELU:
        return back_features_of(c, out, x, ld, next, w, scale, total, FOCI_FEATURE_ELU);
    case FOCI_FEATURE_RELU:
        return back_features_of(c, out, x, ld, next, w, scale, total, FOCI_FEATURE_RELU);
    default:
        return back_features_of(c, out, x, ld, next, w, scale, total, FOCI_FEATURE_ROW);
    }
}

static bool back_finite(const uint16_t *x, int64_t ld, int d)
{
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    __m512i       most = _mm512_setzero_si512();

    for (int i = 0; i < LANES; i++)
        for (int h = 0; h < d; h += 32)
            most = _mm512_max_epu16(
                most, _mm512_and_si512((__m512i)vw_stored(x + i * ld + h), exponent));
    return !_mm512_cmpeq_epu16_mask(most, exponent);
}

/* All operands that do not depend on others; false: something is not finite. */
static bool back_pack(const struct chunk_back *c, const struct chunk_back_operands *o)
{
    const int          d = c->d / 32, dv = c->dv / 32;
    _Alignas(64) float total[CHUNK_WIDTH]; /* of keys: of no use */

    if (!back_rows_of(c, o) || !back_finite(c->v, c->ldv, c->dv) ||
        !back_features(c, o->f_rows, c->q, c->ldq, c->next_q, o->r, c->scale, o->rho) ||
        !back_features(c, o->g_rows, c->k, c->ldk, c->next_k, NULL, 1.0f, total))
        return false;
    back_transpose_rows(o->f_cols, o->f_rows, d);
    back_pair_cols(o->f_sums, o->f_cols, d);
    back_pair_rows(o->f_pairs, o->f_rows, d);
    back_pair_rows(o->g_pairs, o->g_rows, d);
    back_transpose_rows(o->n_cols, o->n_rows, dv);
    back_pair_rows(o->n_pairs, o->n_rows, dv);
    back_transpose_sums(c, o->s_cols, c->sums);
    back_transpose_sums(c, o->r_cols, c->after);
    back_pair_sums(c, o->r_pairs, c->after);
    return true;
}

/*
 * Strips of keys
 */

/* 16 keys by queries from their own on: n tiles. */
INLINE void back_scores_of(const struct chunk_back          *c,
                           const struct chunk_back_operands *o, int i, const int n)
{
    const int       d = c->d / 32, at = i % 2 * T * CHUNK_SCORES + T * i;
    const uint32_t *v = (const uint32_t *)(const void *)(c->v + T * i * c->ldv);

    strip_zero(n);
    strip_add(o->g_rows + CHUNK_TILE * i * d, 64, CHUNK_TILE,
              o->f_cols + CHUNK_TILE * i, CHUNK_KEYS * CHUNK_TILE, d, n);
    strip_store(o->scores + at, CHUNK_SCORES, n);
    strip_zero(n);
    strip_add(v, 2 * c->ldv, T, o->n_cols + CHUNK_TILE * i, CHUNK_KEYS * CHUNK_TILE,
              c->dv / 32, n);
    strip_store(o->slopes + at, CHUNK_SCORES, n);
}

static void back_scores(const struct chunk_back *c, const struct chunk_back_operands *o,
                        int i)
{
    switch (i) {
    case 0: back_scores_of(c, o, i, 4); break;
    case 1: back_scores_of(c, o, i, 3); break;
    case 2: back_scores_of(c, o, i, 2); break;
    default: back_scores_of(c, o, i, 1); break;
    }
}

/* a^T and da^T of strip i, by pairs of queries; what is not seen is 0. */
static void back_near(const struct chunk_back_operands *o, int i)
{
    uint32_t *const da = o->da_keys + CHUNK_TILE * 2 * i;
    const int       at = i % 2 * T * CHUNK_SCORES;

    for (int p = i / 2; p < CHUNK_PAIRS; p++) {
        const vf r0 = vf_load(o->r + 32 * p), r1 = vf_load(o->r + 32 * p + T);

        for (int key = 0; key < T; key++) {
            const float *const s = o->scores + at + CHUNK_SCORES * key + 32 * p;
            const float *const t = o->slopes + at + CHUNK_SCORES * key + 32 * p;
            const vm           own = (vm)(0xffffu << key);
            const vm           low = 2 * p == i ? own : 2 * p > i ? 0xffff : 0;
            const vm           high = 2 * p + 1 == i ? own : 0xffff;
            const vf           a = _mm512_maskz_load_ps(low, s);
            const vf           b = _mm512_maskz_load_ps(high, s + T);
            const vf           u = _mm512_maskz_add_ps(low, vf_load(t), r0);
            const vf           v = _mm512_maskz_add_ps(high, vf_load(t + T), r1);

            vw_store(o->a + CHUNK_TILE * p + T * key, vw_pair(a, b));
            vw_store(da + CHUNK_TILE * p + T * key, vw_pair(u, v));
        }
    }
}

/* n tiles of columns from j on: dv = g R + a^T n, and dg = v R^T + da^T f. */
INLINE void back_dv_part(const struct chunk_back          *c,
                         const struct chunk_back_operands *o, int i, int j, const int n)
{
    const int64_t step = CHUNK_TILE * (c->dv / T), p = i / 2;

    strip_zero(n);
    strip_add(o->g_rows + CHUNK_TILE * i * (c->d / 32), 64, CHUNK_TILE,
              o->r_pairs + T * j, step, c->d / 32, n);
    strip_add(o->a + CHUNK_TILE * p, 64, CHUNK_TILE, o->n_pairs + step * p + T * j,
              step, CHUNK_PAIRS - (int)p, n);
    strip_store(o->values + i % 2 * T * c->dv + j, c->dv, n);
}

INLINE void back_dg_part(const struct chunk_back          *c,
                         const struct chunk_back_operands *o, int i, int j, const int n)
{
    const int64_t   step = CHUNK_TILE * (c->d / T), p = i / 2;
    const uint32_t *v = (const uint32_t *)(const void *)(c->v + T * i * c->ldv);

    strip_zero(n);
    strip_add(v, 2 * c->ldv, T, o->r_cols + T * j, step, c->dv / 32, n);
    strip_add(o->da_keys + CHUNK_TILE * (2 * i + p), 64, CHUNK_TILE,
              o->f_pairs + step * p + T * j, step, CHUNK_PAIRS - (int)p, n);
    strip_store(o->rows + i % 2 * T * c->d + j, c->d, n);
}

/* phi' from features. */
INLINE vf back_slope(vf x, vf f, const int kind)
{
    const vf one = vf_set1(1.0f);

    if (kind == FOCI_FEATURE_ELU) return vf_mul(x, _mm512_min_ps(f, one));
    if (kind == FOCI_FEATURE_RELU) return _mm512_maskz_mov_ps(vf_gt(f, vf_zero()), x);
    return x;
}

/* Gradients of features rows[16][d] of a strip, plus w[16] by more[d], to rows. */
INLINE void back_give_of(const struct chunk_back *c, const float *rows, uint16_t *to,
                         int64_t ld, const uint32_t *features, const float *w,
                         const float *more, float scale, const int kind)
{
    for (int i = 0; i < T; i++, to += ld)
        for (int h = 0; h < c->d; h += 32) {
            const float *const    x = rows + i * c->d + h;
            const uint16_t *const f =
                (const uint16_t *)(const void *)(features + CHUNK_TILE * (h / 32) +
                                                 T * i);
            const vf by = vf_set1(w ? w[i] : 1.0f);
            vf       a = vf_fma(by, vf_load(more + h), vf_load(x));
            vf       b = vf_fma(by, vf_load(more + h + T), vf_load(x + T));

            a = back_slope(a, chunk_load(f), kind);
            b = back_slope(b, chunk_load(f + T), kind);
            if (kind == FOCI_FEATURE_ROW) {
                a = vf_mul(a, vf_set1(scale));
                b = vf_mul(b, vf_set1(scale));
            }
            vw_storeu((uint32_t *)(void *)(to + h), vw_row(a, b));
        }
}

static void back_give(const struct chunk_back *c, const float *rows, uint16_t *to,
                      int64_t ld, const uint32_t *features, const float *w,
                      const float *more, float scale)
{
    switch (c->kind) {
    case FOCI_FEATURE_ELU:
        back_give_of(c, rows, to, ld, features, w, more, scale, FOCI_FEATURE_ELU);
        break;
    case FOCI_FEATURE_RELU:
        back_give_of(c, rows, to, ld, features, w, more, scale, FOCI_FEATURE_RELU);
        break;
    default:
        back_give_of(c, rows, to, ld, features, w, more, scale, FOCI_FEATURE_ROW);
        break;
    }
}

static void back_give_values(const struct chunk_back          *c,
                             const struct chunk_back_operands *o, int i)
{
    uint16_t *to = c->d_v + T * i * c->ldv;

    for (int r = 0; r < T; r++, to += c->ldv)
        for (int h = 0; h < c->dv; h += 32) {
            const float *const x = o->values + (i % 2 * T + r) * c->dv + h;
            vw_storeu((uint32_t *)(void *)(to + h), vw_row(vf_load(x), vf_load(x + T)));
        }
}

/* Prefetch rows of the next chunk: of v, and those that will be written. */
static void back_prefetch_rows(const struct chunk_back *c, int row0)
{
    for (int64_t i = row0; i < row0 + T; i++) {
        chunk_prefetch(c->next_v, i * c->ldv, c->dv);
        chunk_prefetch(c->next_dq, i * c->ldq, c->d);
        chunk_prefetch(c->next_dk, i * c->ldk, c->d);
        chunk_prefetch(c->next_dv, i * c->ldv, c->dv);
    }
}

/* dv and dg of strip i, as floats. */
static void back_products(const struct chunk_back          *c,
                          const struct chunk_back_operands *o, int i)
{
    for (int j = 0; j < c->dv; j += 4 * T)
        if (c->dv - j >= 4 * T)
            back_dv_part(c, o, i, j, 4);
        else
            back_dv_part(c, o, i, j, 2);
    for (int j = 0; j < c->d; j += 4 * T)
        if (c->d - j >= 4 * T)
            back_dg_part(c, o, i, j, 4);
        else
            back_dg_part(c, o, i, j, 2);
}

static void back_give_keys(const struct chunk_back          *c,
                           const struct chunk_back_operands *o, int i)
{
    if (c->d_v) back_give_values(c, o, i);
    if (c->dk)
        back_give(c, o->rows + i % 2 * T * c->d, c->dk + T * i * c->ldk, c->ldk,
                  o->g_rows + CHUNK_TILE * i * (c->d / 32), NULL, c->rho, 1.0f);
}

/*
 * Strips of queries
 */

/* da by pairs of keys, from da^T by pairs of queries. */
static void back_transpose_slopes(const struct chunk_back_operands *o)
{
    for (int p = 0; p < CHUNK_PAIRS; p++)
        for (int k = 0; k <= p; k++) {
            const uint32_t *const at = o->da_keys + CHUNK_TILE * (4 * k + p);
            uint32_t *const       to = o->da + CHUNK_TILE * (4 * p + k);
            vf                    x[T], y[T];

            UNROLL(16)
            for (int i = 0; i < T; i++) {
                x[i] = (vf)vw_load(at + T * i);
                y[i] = (vf)vw_load(at + 2 * CHUNK_TILE + T * i);
            }
            vf_transpose(x);
            vf_transpose(y);
            UNROLL(16)
            for (int i = 0; i < T; i++)
                chunk_pair_keys(to + T * i, to + 2 * CHUNK_TILE + T * i, (__m512i)x[i],
                                (__m512i)y[i]);
        }
}

/* df = n S^T + da g. */
INLINE void back_df_part(const struct chunk_back          *c,
                         const struct chunk_back_operands *o, int i, int j, const int n)
{
    const int64_t step = CHUNK_TILE * (c->d / T);

    strip_zero(n);
    strip_add(o->n_rows + CHUNK_TILE * i * (c->dv / 32), 64, CHUNK_TILE,
              o->s_cols + T * j, step, c->dv / 32, n);
    strip_add(o->da + CHUNK_TILE * 2 * i, 64, CHUNK_TILE, o->g_pairs + T * j, step,
              i / 2 + 1, n);
    strip_store(o->rows + i % 2 * T * c->d + j, c->d, n);
}

static void back_df(const struct chunk_back *c, const struct chunk_back_operands *o,
                    int i)
{
    for (int j = 0; j < c->d; j += 4 * T)
        if (c->d - j >= 4 * T)
            back_df_part(c, o, i, j, 4);
        else
            back_df_part(c, o, i, j, 2);
}

static void back_give_queries(const struct chunk_back          *c,
                              const struct chunk_back_operands *o, int i)
{
    back_give(c, o->rows + i % 2 * T * c->d, c->dq + T * i * c->ldq, c->ldq,
              o->f_rows + CHUNK_TILE * i * (c->d / 32), o->r + T * i, c->total,
              c->scale);
}

/* R += f^T n, 16 features from i on by n tiles of columns from j on. */
INLINE void back_absorb_part(const struct chunk_back          *c,
                             const struct chunk_back_operands *o, int i, int j,
                             const int n)
{
    float *const to = c->after + i * c->ld_sums + j;

    strip_load(to, c->ld_sums, n);
    strip_add(o->f_sums + T * i, 64, CHUNK_TILE * (c->d / T), o->n_pairs + T * j,
              CHUNK_TILE * (c->dv / T), CHUNK_PAIRS, n);
    strip_store(to, c->ld_sums, n);
}

/* The part of strip number i, one of four. */
static void back_absorb(const struct chunk_back *c, const struct chunk_back_operands *o,
                        int i)
{
    const int end = (i + 1) * (c->d / T) / CHUNK_KEYS;

    for (int t = i * (c->d / T) / CHUNK_KEYS; t < end; t++)
        for (int j = 0; j < c->dv; j += 4 * T)
            if (c->dv - j >= 4 * T)
                back_absorb_part(c, o, T * t, j, 4);
            else
                back_absorb_part(c, o, T * t, j, 2);
}

/* Strips of keys, then of queries.  What vectors do not wait for the tiles before them
 * stands after these, and runs beside them. */
static void back_keys(const struct chunk_back *c, const struct chunk_back_operands *o)
{
    tile_barrier();
    back_scores(c, o, 0);
    for (int i = 0; i < CHUNK_KEYS; i++) {
        if (i + 1 < CHUNK_KEYS) back_scores(c, o, i + 1);
        tile_barrier();
        back_prefetch_rows(c, T * i);
        back_near(o, i);
        tile_barrier();
        back_products(c, o, i);
        back_absorb(c, o, i);
        tile_barrier();
        if (i) back_give_keys(c, o, i - 1);
    }
}

static void back_queries(const struct chunk_back *c, const struct chunk_back_operands *o)
{
    back_transpose_slopes(o);
    tile_barrier();
    for (int i = 0; i < CHUNK_KEYS; i++) {
        back_df(c, o, i);
        tile_barrier();
        if (i) back_give_queries(c, o, i - 1);
    }
    back_give_queries(c, o, CHUNK_KEYS - 1);
}

static int chunk_back_amx(const struct chunk_back *c)
{
    const struct chunk_back_operands o = back_operands(c);

    if (!back_pack(c, &o)) return 0;
    back_keys(c, &o);
    back_give_keys(c, &o, CHUNK_KEYS - 1);
    if (c->dq) back_queries(c, &o);
    for (int i = 0; i < c->d; i += T)
        vf_store(c->rho + i, vf_add(vf_load(c->rho + i), vf_load(o.rho + i)));
    return 1;
}
