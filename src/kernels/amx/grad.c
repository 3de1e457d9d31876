/* grad.c -- fused backward pass of a panel: up to 256 keys against up to 256 queries.
 *
 * Scores and dp are computed in units of 32 keys x 32 queries, 2 x 2 tiles each.  The weights
 * of a unit and the gradients of its scores are interleaved with the multiplies of the next
 * unit, as in attend.c.  Both are kept as bf16 tiles: weights and gradients with keys as rows,
 * for dv and dk, and gradients a second time as pairs of two keys, for dq.  After each tile of
 * keys its dv and dk are summed over all queries of the panel, and at the end dq over all of
 * its keys: the longer these sums, the fewer loads and stores of their tiles.
 *
 * dp starts from -delta, so that it comes out as dp - delta.
 *
 * Weights are 2^(f s - norm).  They are computed from the 16-bit integer x =
 * 1024 (f s - norm + 63) as in attend.c; weights below 2^-63 become 2^-63.
 */

enum {
    UNIT = 32,         /* keys, and queries, of a unit */
    UNIT_TILE = T * T, /* floats, or pairs, of a tile */
    PAIRS = UNIT / 2, /* pairs of keys of a unit: the vector work of one goes together */
    EXP_ONE = 1024,   /* x of an exponent of 1 */
    EXP_ZERO = 63,    /* minus the exponent of which x is 0 */
    EXP_ROUND = 4,    /* x of half a unit in the last place of a bf16 */
    EXP_BASE = 12582912 /* 1.5 2^23, whose last place is 1 */
};

/* 1024 (1 + f - 2^f) in the middle of 64 intervals of the fraction f. */
static const _Alignas(64) uint8_t exp_curve[64] = {
    1,  6,  11, 15, 20, 24, 28, 32, 36, 40, 44, 47, 51, 54, 57, 60,
    63, 66, 68, 71, 73, 75, 77, 79, 80, 82, 83, 84, 85, 86, 87, 88,
    88, 88, 88, 88, 88, 87, 86, 86, 84, 83, 82, 80, 78, 76, 74, 72,
    69, 66, 63, 60, 57, 53, 49, 45, 41, 36, 32, 27, 22, 16, 10, 5,
};

/* Where the operands and results of a unit lie. */
struct unit {
    const uint32_t *key, *value;  /* rows of 32 keys: two rows of tiles */
    const uint32_t *query, *grad; /* columns of 32 queries: two of four of tiles */
    const float    *by, *off;     /* of the queries: x + EXP_BASE = by s + off */
    const float    *minus;        /* -delta of the queries */
    const uint64_t *seen;         /* of the keys, from the first query on; NULL: all */
    int             shift;        /* to the bits of the queries */
    float          *s;            /* [2][2][2] tiles: scores, then dp - delta */
    uint32_t       *w, *ds;       /* two tiles, `next` pairs apart */
    uint32_t       *pairs;        /* likewise, `next_pairs` */
    int64_t         next, next_pairs;
};

/* Registers of the vector work of a unit. */
struct grad_slopes {
    __m512  by[2], off[2];
    __m512i curve;
};

INLINE struct grad_slopes slopes_of(const struct unit *u)
{
    return (struct grad_slopes){
        { _mm512_load_ps(u->by), _mm512_load_ps(u->by + T) },
        { _mm512_load_ps(u->off), _mm512_load_ps(u->off + T) },
        _mm512_load_si512(exp_curve),
    };
}

/* The weights of a key as bf16, in the order of _mm512_packus_epi32: four queries, then
 * four that are 16 further on, and so on. */
INLINE __m512i unit_weights(const float *s, const struct grad_slopes *c)
{
    const __m512i base = _mm512_castps_si512(_mm512_set1_ps(EXP_BASE));
    const __m512  x0 = _mm512_fmadd_ps(_mm512_load_ps(s), c->by[0], c->off[0]);
    const __m512  x1 =
        _mm512_fmadd_ps(_mm512_load_ps(s + UNIT_TILE), c->by[1], c->off[1]);
    const __m512i x = _mm512_packus_epi32(_mm512_sub_epi32((__m512i)x0, base),
                                          _mm512_sub_epi32((__m512i)x1, base));
    /* Bits 4 to 9 of each 16 choose the entry; those above them are not looked at. */
    const __m512i less = _mm512_maskz_permutexvar_epi8(
        UINT64_C(0x5555555555555555), _mm512_srli_epi16(x, 4), c->curve);

    return _mm512_shrdi_epi16(_mm512_subs_epu16(x, less), _mm512_set1_epi16(1), 3);
}

/* Gradients of a key's scores, 32 queries in their order, as bf16; `seen` where some are
 * hidden. */
INLINE __m512i unit_slopes(__m512i w, const float *dp, uint32_t seen, const bool masked)
{
    const __m512i none = _mm512_setzero_si512();
    const __m512  w0 = (__m512)_mm512_unpacklo_epi16(none, w);
    const __m512  w1 = (__m512)_mm512_unpackhi_epi16(none, w);
    const __m512  dp0 = _mm512_load_ps(dp), dp1 = _mm512_load_ps(dp + UNIT_TILE);

    if (masked)
        return (__m512i)_mm512_cvtne2ps_pbh(
            _mm512_maskz_mul_ps((__mmask16)(seen >> 16), w1, dp1),
            _mm512_maskz_mul_ps((__mmask16)seen, w0, dp0));
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(w1, dp1), _mm512_mul_ps(w0, dp0));
}

/* Weights and gradients of keys 2g and 2g + 1 of a unit. */
INLINE void unit_pair(const struct unit *u, int g, const struct grad_slopes *c,
                      const bool masked)
{
    const __m512i  in_order = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
    const int      half = g / (T / 2), row = g % (T / 2) * 2 * T;
    const float   *s = u->s + 2 * UNIT_TILE * half + row, *dp = s + 4 * UNIT_TILE;
    uint32_t      *w = u->w + half * u->next + row, *ds = u->ds + half * u->next + row;
    const uint32_t seen0 = masked ? (uint32_t)(u->seen[2 * g] >> u->shift) : 0;
    const uint32_t seen1 = masked ? (uint32_t)(u->seen[2 * g + 1] >> u->shift) : 0;
    const __m512i  w0 = unit_weights(s, c), w1 = unit_weights(s + T, c);
    const __m512i  d0 = unit_slopes(w0, dp, seen0, masked);
    const __m512i  d1 = unit_slopes(w1, dp + T, seen1, masked);
    const __m512i  row0 = _mm512_permutexvar_epi64(in_order, w0);
    const __m512i  row1 = _mm512_permutexvar_epi64(in_order, w1);

    _mm512_store_si512(w, masked ? _mm512_maskz_mov_epi16(seen0, row0) : row0);
    _mm512_store_si512(w + T, masked ? _mm512_maskz_mov_epi16(seen1, row1) : row1);
    _mm512_store_si512(ds, d0);
    _mm512_store_si512(ds + T, d1);
    vw_store(u->pairs + g * T, vw_zip_low((vw)d0, (vw)d1));
    vw_store(u->pairs + u->next_pairs + g * T, vw_zip_high((vw)d0, (vw)d1));
}

/* Prefetch the lines that pair g of a unit will write.  They were last written a tile or a
 * panel ago; stores that miss, one after the other, take as long as all multiplies of the
 * unit. */
INLINE void unit_prefetch(const struct unit *u, int g)
{
    const int   half = g / (T / 2), row = g % (T / 2) * 2 * T;
    const char *w = (const char *)(u->w + half * u->next + row);
    const char *ds = (const char *)(u->ds + half * u->next + row);

    __builtin_prefetch(w, 1);
    __builtin_prefetch(w + LINE, 1);
    __builtin_prefetch(ds, 1);
    __builtin_prefetch(ds + LINE, 1);
    __builtin_prefetch(u->pairs + g * T, 1);
    __builtin_prefetch(u->pairs + u->next_pairs + g * T, 1);
}

/* How much vector work of the unit before is left, and how it is spread: `every` counts
 * multiplies for PAIRS pairs. */
struct spread {
    const struct unit *unit, *now;
    int                next, due, every;
};

INLINE void unit_one(struct spread *p, const struct grad_slopes *c, const bool masked)
{
    unit_prefetch(p->now, p->next);
    unit_pair(p->unit, p->next++, c, masked);
}

/* After a multiply.  A constant `step` other than 0 is the number of pairs that are due
 * in four. */
INLINE void unit_work(struct spread *p, const struct grad_slopes *c, const int step,
                      const int number, const bool masked)
{
    if (step) {
        if ((number + 1) * step % 4 < step) unit_one(p, c, masked);
        return;
    }
    for (p->due += PAIRS; p->due >= p->every && p->next < PAIRS; p->due -= p->every)
        unit_one(p, c, masked);
}

/* a (32 rows) times b (32 columns), from depth d on, to four tiles of c that start from
 * `start`, or from 0 where that is NULL. */
INLINE void unit_product(float *to, const uint32_t *a, const uint32_t *b, int d,
                         const float *start, struct spread *p,
                         const struct grad_slopes *c, const int step, const bool masked)
{
    const int64_t row = 4 * T;

    if (start) {
        tile_load(0, start, 0);
        tile_load(1, start + T, 0);
        tile_load(2, start, 0);
        tile_load(3, start + T, 0);
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    for (int t = 0; t < d; t += 2 * T, a += UNIT_TILE, b += 4 * UNIT_TILE) {
        tile_load(4, a, row);
        tile_load(6, b, row);
        tile_dp(0, 4, 6);
        unit_work(p, c, step, 0, masked);
        tile_load(7, b + UNIT_TILE, row);
        tile_dp(1, 4, 7);
        unit_work(p, c, step, 1, masked);
        tile_load(5, a + T * d / 2, row);
        tile_dp(2, 5, 6);
        unit_work(p, c, step, 2, masked);
        tile_dp(3, 5, 7);
        unit_work(p, c, step, 3, masked);
    }
    tile_store(0, to, row);
    tile_store(1, to + UNIT_TILE, row);
    tile_store(2, to + 2 * UNIT_TILE, row);
    tile_store(3, to + 3 * UNIT_TILE, row);
}

/* Scores and dp of a unit, between them the vector work of the one before. */
INLINE void unit_step(const struct unit *u, const struct unit *before, int dq, int dv,
                      const int step, const bool masked)
{
    const struct grad_slopes c = slopes_of(before ? before : u);
    struct spread p = { before, u, before ? 0 : PAIRS, 0, (dq + dv) / (2 * T) * 4 };

    for (int g = 0; g < PAIRS && !before; g++)
        unit_prefetch(u, g);
    tile_barrier();
    unit_product(u->s, u->key, u->query, dq, NULL, &p, &c, step, masked);
    unit_product(u->s + 4 * UNIT_TILE, u->value, u->grad, dv, u->minus, &p, &c, step,
                 masked);
}

static void unit_rest(const struct unit *u)
{
    const struct grad_slopes c = slopes_of(u);

    tile_barrier();
    for (int g = 0; g < PAIRS; g++)
        if (u->seen)
            unit_pair(u, g, &c, true);
        else
            unit_pair(u, g, &c, false);
}

/* Widths of 64 and of 128 have their own code, in which nothing is counted. */
static void unit_next(const struct unit *u, const struct unit *before, int dq, int dv)
{
    if (before && before->seen)
        unit_step(u, before, dq, dv, 0, true);
    else if (before && dq == 64 && dv == 64)
        unit_step(u, before, 64, 64, 4, false);
    else if (before && dq == 128 && dv == 128)
        unit_step(u, before, 128, 128, 2, false);
    else
        unit_step(u, before, dq, dv, 0, false);
}

/*
 * Panels
 */

/* Scratch of a panel. */
struct grad_scratch {
    float    *s;                /* of two units */
    uint32_t *w, *ds;           /* [4][queries / 32] tiles of 64 keys */
    uint32_t *pairs;            /* [queries / 16][keys / 32] tiles of all keys */
    float    *by, *off, *minus; /* of all queries */
};

/* All are whole KiB apart: a load waits for a store before it whose address ends in the
 * same 12 bits, and rows of a unit are written in the order in which they are read. */
static struct grad_scratch grad_scratch_of(const struct grad_panel *p)
{
    const int64_t       lanes = (int64_t)PANEL_TILES * LANES;
    const int64_t       strip = (int64_t)8 * PANEL_TILES * UNIT_TILE;
    struct grad_scratch r;

    r.by = p->scratch;
    r.off = r.by + lanes;
    r.minus = r.off + lanes;
    r.s = r.minus + lanes;
    r.w = (uint32_t *)(void *)(r.s + 16 * UNIT_TILE);
    r.ds = r.w + strip;
    r.pairs = r.ds + strip;
    return r;
}

static void grad_rows_of(const struct grad_panel *p, const struct grad_scratch *r)
{
    const __m512 one = _mm512_set1_ps(EXP_ONE);
    const __m512 base = _mm512_set1_ps(EXP_BASE + EXP_ROUND + EXP_ZERO * EXP_ONE);

    for (int i = 0; i < p->n_blocks * LANES; i += T) {
        const struct panel_block *b = &p->block[i / LANES];
        const int                 at = i % LANES;
        const __m512              norm = _mm512_load_ps(b->norm + at);

        _mm512_store_ps(r->by + i, _mm512_mul_ps(_mm512_load_ps(b->f + at), one));
        _mm512_store_ps(r->off + i, _mm512_fnmadd_ps(norm, one, base));
        _mm512_store_ps(r->minus + i, _mm512_sub_ps(_mm512_setzero_ps(),
                                                    _mm512_load_ps(b->delta + at)));
    }
}

/* Unit of keys 32 i and queries 32 j on. */
static struct unit grad_unit(const struct grad_panel *p, const struct grad_scratch *r,
                             int i, int j, int number)
{
    const struct panel_tile  *t = &p->tile[i / 2];
    const struct panel_block *b = &p->block[j / 2];
    const int64_t             across = 2 * p->n_blocks, down = 2 * p->n_tiles;
    const uint64_t           *seen =
        p->unit[i][j] == PANEL_SOME ? p->seen[i / 2][j / 2] + i % 2 * UNIT : NULL;

    return (struct unit){
        .key = t->keys + i % 2 * UNIT * p->dq / 2,
        .value = t->values + i % 2 * UNIT * p->dv / 2,
        .query = b->q_cols + j % 2 * 2 * UNIT_TILE,
        .grad = b->g_cols + j % 2 * 2 * UNIT_TILE,
        .by = r->by + j * UNIT,
        .off = r->off + j * UNIT,
        .minus = r->minus + j * UNIT,
        .seen = seen,
        .shift = j % 2 * UNIT,
        .s = r->s + number % 2 * 8 * UNIT_TILE,
        .w = r->w + (i % 2 * 2 * across + j) * UNIT_TILE,
        .ds = r->ds + (i % 2 * 2 * across + j) * UNIT_TILE,
        .pairs = r->pairs + (2 * j * down + i) * UNIT_TILE,
        .next = across * UNIT_TILE,
        .next_pairs = down * UNIT_TILE,
    };
}

/* Weights and gradients of a tile of keys, which stays in the first level of the cache
 * while queries go by. */
static void grad_units(const struct grad_panel *p, const struct grad_scratch *r,
                       int tile)
{
    struct unit u[2];
    int         n = 0; /* so far */

    for (int at = 0; at < 4 * p->n_blocks; at++) {
        const int i = 2 * tile + at % 2, j = at / 2;

        if (p->unit[i][j] == PANEL_NONE) continue;
        u[n % 2] = grad_unit(p, r, i, j, n);
        unit_next(&u[n % 2], n ? &u[(n + 1) % 2] : NULL, p->dq, p->dv);
        n++;
    }
    if (n) unit_rest(&u[(n + 1) % 2]);
}

/*
 * Prefetch of the operands of the next panel into the second-level cache
 */

struct ahead {
    const struct panel_block *block;
    int                       n, part; /* blocks left, operand of the first */
    int64_t                   at;      /* bytes into it */
    int                       dq, dv;
};

static const char *ahead_part(const struct ahead *a, int64_t *bytes)
{
    const struct panel_block *b = a->block;
    const void *const at[] = { b->q_cols, b->g_cols, b->q_rows, b->g_rows, b->dqt };
    const int         d[] = { a->dq, a->dv, a->dq, a->dv, 2 * a->dq };

    *bytes = (int64_t)d[a->part] * LANES * 2;
    return at[a->part];
}

enum { AHEAD_LINES = 8 }; /* at a step of a sum: as many as there are */

INLINE void ahead_step(struct ahead *a)
{
    int64_t     bytes;
    const char *p;

    if (!a->n) return;
    p = ahead_part(a, &bytes) + a->at;
    UNROLL(8)
    for (int i = 0; i < AHEAD_LINES; i++)
        _mm_prefetch(p + i * LINE, _MM_HINT_T1);
    a->at += AHEAD_LINES * LINE;
    if (a->at < bytes) return;
    a->at = 0;
    if (++a->part < 5) return;
    a->part = 0;
    a->block++;
    a->n--;
}

/*
 * Sums
 */

/* An operand of a sum.  Step t of 32 along the summed index is at at[t / 2] + t % 2 half. */
struct grad_operand {
    const uint32_t *at[PANEL_TILES];
    int64_t         half, row, next; /* pairs: to the second step, row and tile */
};

INLINE const uint32_t *grad_at(const struct grad_operand *a, int t, int64_t i)
{
    return a->at[t / 2] + t % 2 * a->half + i;
}

/* Two by two tiles: c += a b over the steps whose bits are set. */
INLINE void grad_block(float *c, int64_t ldc, const struct grad_operand *a, int64_t ia,
                       const struct grad_operand *b, int64_t ib, unsigned steps,
                       struct ahead *ahead)
{
    const int64_t sa = 4 * a->row, sb = 4 * b->row, sc = 4 * ldc;

    tile_load(0, c, sc);
    tile_load(1, c + T, sc);
    tile_load(2, c + T * ldc, sc);
    tile_load(3, c + T * ldc + T, sc);
    for (; steps; steps &= steps - 1) {
        const uint32_t *at = grad_at(a, __builtin_ctz(steps), ia);
        const uint32_t *bt = grad_at(b, __builtin_ctz(steps), ib);

        tile_load(4, at, sa);
        tile_load(6, bt, sb);
        tile_dp(0, 4, 6);
        tile_load(7, bt + b->next, sb);
        tile_dp(1, 4, 7);
        ahead_step(ahead);
        tile_load(5, at + a->next, sa);
        tile_dp(2, 5, 6);
        tile_dp(3, 5, 7);
    }
    tile_store(0, c, sc);
    tile_store(1, c + T, sc);
    tile_store(2, c + T * ldc, sc);
    tile_store(3, c + T * ldc + T, sc);
}

/* Bits of the units of 32 queries that some of keys 32 i see, or with `keys` of the units
 * of keys that queries 32 i see. */
static unsigned grad_steps(const struct grad_panel *p, int i, bool keys)
{
    const int n = 2 * (keys ? p->n_tiles : p->n_blocks);
    unsigned  steps = 0;

    for (int t = 0; t < n; t++)
        if ((keys ? p->unit[t][i] : p->unit[i][t]) != PANEL_NONE) steps |= 1u << t;
    return steps;
}

/* c[64][d] += units of tile t of the keys times rows of queries. */
static void sum_keys(const struct grad_panel *p, int t, float *c, const uint32_t *units,
                     const struct grad_operand *rows, int d, struct ahead *ahead)
{
    const int64_t       across = 2 * p->n_blocks;
    struct grad_operand a = { .half = UNIT_TILE, .row = T, .next = across * UNIT_TILE };

    for (int b = 0; b < p->n_blocks; b++)
        a.at[b] = units + b * 2 * UNIT_TILE;
    for (int j = 0; j < d / T; j += 2)
        for (int i = 0; i < 2; i++) {
            const unsigned steps = grad_steps(p, 2 * t + i, false);

            if (steps)
                grad_block(c + i * UNIT * d + j * T, d, &a, 2 * i * a.next, rows,
                           j * UNIT_TILE, steps, ahead);
        }
}

/* dqt[d][64] of each block += keys times units. */
static void sum_queries(const struct grad_panel *p, const struct grad_scratch *r,
                        struct ahead *ahead)
{
    const int64_t       down = 2 * p->n_tiles;
    struct grad_operand a = { .half = T, .row = UNIT, .next = T * UNIT };
    struct grad_operand b = { .half = UNIT_TILE, .row = T, .next = down * UNIT_TILE };

    for (int t = 0; t < p->n_tiles; t++) {
        a.at[t] = p->tile[t].sum;
        b.at[t] = r->pairs + t * 2 * UNIT_TILE;
    }
    for (int j = 0; j < 2 * p->n_blocks; j++) {
        const unsigned steps = grad_steps(p, j, true);
        float         *c = p->block[j / 2].dqt + j % 2 * UNIT;

        for (int i = 0; i < p->dq && steps; i += 2 * T)
            grad_block(c + i * LANES, LANES, &a, i * UNIT, &b, 2 * j * b.next, steps,
                       ahead);
    }
}

static void grad_panel_bf16_amx(const struct grad_panel *p)
{
    const struct grad_scratch r = grad_scratch_of(p);
    struct grad_operand q = { .half = (int64_t)T * p->dq, .row = T, .next = UNIT_TILE };
    struct grad_operand g = { .half = (int64_t)T * p->dv, .row = T, .next = UNIT_TILE };
    struct ahead ahead = { .block = p->next, .n = p->n_next, .dq = p->dq, .dv = p->dv };

    for (int t = 0; t < p->n_blocks; t++) {
        q.at[t] = p->block[t].q_rows;
        g.at[t] = p->block[t].g_rows;
    }
    grad_rows_of(p, &r);
    for (int t = 0; t < p->n_tiles; t++) {
        const int64_t row = (int64_t)t * LANES;

        grad_units(p, &r, t);
        tile_barrier();
        sum_keys(p, t, p->dv_sum + row * p->dv, r.w, &g, p->dv, &ahead);
        sum_keys(p, t, p->dk_sum + row * p->dq, r.ds, &q, p->dq, &ahead);
    }
    sum_queries(p, &r, &ahead);
}

/* 16 pairs from column c on of row i; zeros from n and d on. */
INLINE vf stored_row(const uint16_t *in, int64_t ld, int i, int n, int c, int d)
{
    const int left = i < n && c < d ? d - c : 0;

    if (left >= UNIT) return (vf)vw_stored(in + i * ld + c);
    return left ? (vf)vw_stored_n(in + i * ld + c, left) : vf_zero();
}

static void pack_block_from_bf16_amx(uint32_t *cols, uint32_t *rows, const uint16_t *in,
                                     int64_t ld, int n, int d, int wide)
{
    for (int c = 0; c < wide; c += UNIT)
        for (int i = 0; i < LANES; i += T, cols += UNIT_TILE) {
            vf x[T];

            for (int t = 0; t < T; t++)
                x[t] = stored_row(in, ld, i + t, n, c, d);
            vf_transpose(x);
            for (int t = 0; t < T; t++)
                vw_store(cols + t * T, (vw)x[t]);
        }
    for (int i = 0; i < LANES / 2; i += T)
        for (int c = 0; c < wide; c += T, rows += UNIT_TILE)
            for (int t = 0; t < T; t++)
                vw_store(rows + t * T, (vw)stored_pair(in, ld, i + t, n, c, d));
}

static void pairs_to_tiles_amx(uint32_t *out, const uint32_t *in, int64_t ld, int rows,
                               int cols)
{
    for (int i = 0; i < rows; i += T)
        for (int j = 0; j < cols; j += T)
            for (int row = i; row < i + T; row++, out += T)
                vw_store(out, vw_load(in + row * ld + j));
}
