/* attend.c -- fused attention of a block of 64 queries on tiles.
 *
 * Queries are rows here and keys are columns.  The block processes one group of 32 keys
 * after the other, and the exponentials of a group are interleaved with the multiplies of
 * the next: tiles leave the vector units free, but out-of-order execution does not reach far
 * enough to overlap the two by itself.  The weights of all groups are kept as bf16 tiles in
 * the second-level cache, so that the sums of values stay in tiles over the whole list of
 * groups; loading and storing those sums would dominate otherwise.
 *
 * Weights are 2^(t - m), t = f s.  Of the 16-bit integer x = 1024 (t - m + 63), the upper 13
 * bits are a bf16 number except for its bias and for the difference between 2^fraction and
 * 1 + fraction, which a table of 64 entries supplies.  One multiply-add to a number whose
 * last place is 1 computes x.
 *
 * References m are whole numbers.  Weights relative to different m then differ by exact
 * powers of two, and a row has the same bits whichever reference was used.
 */

enum {
    HALF = 32,       /* queries whose sums are in tiles together */
    X_ONE = 1024,    /* x of an exponent of 1 */
    X_ZERO = 63,     /* exponent of which x is 0 */
    X_MOST = 0xfe00, /* a reference moves before x gets there */
    X_ROUND = 4,     /* half a unit in the last place of bf16 */
    MAGIC = 12288,   /* 1.5 2^23 in units of X_ONE */
    HEADROOM = 24    /* of a reference that has moved, above the largest logit */
};

/* 1024 (1 + f - 2^f) in the middle of 64 intervals of the fraction f. */
static const _Alignas(64) uint8_t curve[64] = {
    1,  6,  11, 15, 20, 24, 28, 32, 36, 40, 44, 47, 51, 54, 57, 60,
    63, 66, 68, 71, 73, 75, 77, 79, 80, 82, 83, 84, 85, 86, 87, 88,
    88, 88, 88, 88, 88, 87, 86, 86, 84, 83, 82, 80, 78, 76, 74, 72,
    69, 66, 63, 60, 57, 53, 49, 45, 41, 36, 32, 27, 22, 16, 10, 5,
};

/* Numbers of bits: from 4 on of each 16, to be its lower byte. */
static const uint64_t upper_fraction = UINT64_C(0x0034002400140004);

/* Row tiles of 16 queries, some of the four of a block, that meet a group. */
struct meeting {
    const struct attend_group *group; /* NULL: nothing to do */
    int                        first, end;
    float                     *s; /* [4][2][16][16] scores */
};

/* Scores to be made. */
struct scores {
    const uint32_t *q;     /* [64][ldq] */
    int64_t         ldq;   /* pairs of a row */
    const uint32_t *k;     /* [depth][2][16][16] */
    int             depth; /* multiplies along the width */
    int             first, end;
    float          *s;
};

/* Weights to be made, of scores that are there. */
struct weights {
    const float    *s;
    const float    *by, *off;  /* x + MAGIC = by s + off, [64] */
    const uint32_t *seen;      /* [64] */
    uint32_t       *p;         /* [64][16] */
    int             next, end; /* row tiles */
    __m512i         top;       /* largest x so far, of each column */
};

/* Every key is seen and x is in range; some are hidden; x may be anything. */
enum mode { PLAIN, MASKED, LAZY };

/* 32 scores of a query, x + MAGIC as floats, to numbers of 16 bits, saturated: 0 where
 * they are below 0. */
INLINE __m512i join_x(__m512 t0, __m512 t1)
{
    const __m512i base = (__m512i)_mm512_set1_ps((float)MAGIC * X_ONE);

    return _mm512_packus_epi32(_mm512_sub_epi32((__m512i)t0, base),
                               _mm512_sub_epi32((__m512i)t1, base));
}

/* The weights of row r of the next row tile. */
INLINE void weigh_row(struct weights *w, const int r, const enum mode mode)
{
    const int          row = w->next * T + r;
    const float *const s = w->s + w->next * 2 * T * T + r * T;
    const __m512       by = _mm512_set1_ps(w->by[row]);
    const __m512       off = _mm512_set1_ps(w->off[row]);
    const __m512i      x = join_x(_mm512_fmadd_ps(_mm512_load_ps(s), by, off),
                                  _mm512_fmadd_ps(_mm512_load_ps(s + T * T), by, off));
    const __m512i      at =
        _mm512_multishift_epi64_epi8(_mm512_set1_epi64((int64_t)upper_fraction), x);
    const __m512i less = _mm512_maskz_permutexvar_epi8(UINT64_C(0x5555555555555555), at,
                                                       _mm512_load_si512(curve));
    const __m512i y = _mm512_sub_epi16(x, less), one = _mm512_set1_epi16(1);
    __mmask32     some = 0xffffffff;

    if (mode != PLAIN) some = w->seen[row];
    if (mode == LAZY) {
        some = _mm512_mask_test_epi16_mask(some, x, x);
        w->top = _mm512_mask_max_epu16(w->top, some, w->top, x);
    }
    _mm512_store_si512(w->p + row * T, _mm512_maskz_shrdi_epi16(some, y, one, 3));
}

/* n rows from r on, if there is work. */
INLINE void weigh_rows(struct weights *w, const bool work, const int r, const int n,
                       const enum mode mode)
{
    if (!work) return;
    UNROLL(8)
    for (int i = r; i < r + n; i++)
        if (i < T) weigh_row(w, i, mode);
}

/* Scores of one row tile at a width of 64, keys in tiles 4 to 7; and the weights of
 * another. */
INLINE void row_64(const uint32_t *q, int64_t ldq, float *s, struct weights *w,
                   const bool work, const enum mode mode)
{
    tile_zero(0);
    tile_load(2, q, 4 * ldq);
    tile_dp(0, 2, 4);
    weigh_rows(w, work, 0, 4, mode);
    tile_zero(1);
    tile_dp(1, 2, 5);
    weigh_rows(w, work, 4, 4, mode);
    tile_load(3, q + T, 4 * ldq);
    tile_dp(0, 3, 6);
    weigh_rows(w, work, 8, 4, mode);
    tile_dp(1, 3, 7);
    weigh_rows(w, work, 12, 4, mode);
    tile_store(0, s, 4 * T);
    tile_store(1, s + T * T, 4 * T);
}

INLINE void step_64(const struct scores *a, struct weights *w, const enum mode mode)
{
    if (a->first < a->end) {
        tile_load(4, a->k, 4 * T);
        tile_load(5, a->k + T * T, 4 * T);
        tile_load(6, a->k + 2 * T * T, 4 * T);
        tile_load(7, a->k + 3 * T * T, 4 * T);
    }
    for (int i = a->first; i < a->end; i++) {
        const uint32_t *q = a->q + i * T * a->ldq;
        float          *s = a->s + i * 2 * T * T;

        if (w->next < w->end) {
            row_64(q, a->ldq, s, w, true, mode);
            w->next++;
        } else
            row_64(q, a->ldq, s, w, false, mode);
    }
}

/* Add the products of 32 more columns for two row tiles at other widths; `per` rows of weights
 * follow each multiply. */
INLINE void deepen(const uint32_t *q, int64_t ldq, const uint32_t *k, struct weights *w,
                   const bool work, const int r, const int per, const enum mode mode)
{
    tile_load(4, q, 4 * ldq);
    tile_load(6, k, 4 * T);
    tile_dp(0, 4, 6);
    weigh_rows(w, work, r, per, mode);
    tile_load(7, k + T * T, 4 * T);
    tile_dp(1, 4, 7);
    weigh_rows(w, work, r + per, per, mode);
    tile_load(5, q + T * ldq, 4 * ldq);
    tile_dp(2, 5, 6);
    weigh_rows(w, work, r + 2 * per, per, mode);
    tile_dp(3, 5, 7);
    weigh_rows(w, work, r + 3 * per, per, mode);
}

/* Two row tiles from i on.  The weights of a row tile go between the multiplies of up to
 * two steps along the width, and those of another between the next ones. */
INLINE void rows_deep(const struct scores *a, int i, struct weights *w, const bool work,
                      const enum mode mode)
{
    const uint32_t *q = a->q + i * T * a->ldq, *k = a->k;
    float          *s = a->s + i * 2 * T * T;
    int             t = 0;

    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    if (work && a->depth >= 4)
        for (; t < 4; t += 2, w->next++) {
            deepen(q + t * T, a->ldq, k + t * 2 * T * T, w, true, 0, 2, mode);
            deepen(q + (t + 1) * T, a->ldq, k + (t + 1) * 2 * T * T, w, true, 8, 2,
                   mode);
        }
    else if (work)
        for (; t < 2 && t < a->depth; t++, w->next++)
            deepen(q + t * T, a->ldq, k + t * 2 * T * T, w, true, 0, 4, mode);
    for (; t < a->depth; t++)
        deepen(q + t * T, a->ldq, k + t * 2 * T * T, w, false, 0, 0, mode);
    tile_store(0, s, 4 * T);
    tile_store(1, s + T * T, 4 * T);
    tile_store(2, s + 2 * T * T, 4 * T);
    tile_store(3, s + 3 * T * T, 4 * T);
}

INLINE void step_deep(const struct scores *a, struct weights *w, const enum mode mode)
{
    for (int i = a->first; i < a->end; i += 2)
        if (w->next + 2 <= w->end)
            rows_deep(a, i, w, true, mode);
        else
            rows_deep(a, i, w, false, mode);
}

/* The scores of one meeting, and the weights of another.  Both are copied, for the
 * compiler to see that no weight overwrites what they point to. */
INLINE void step(const struct scores *next, struct weights *now, const enum mode mode)
{
    const struct scores a = *next;
    struct weights      w = *now;

    tile_barrier();
    if (a.depth == 2)
        step_64(&a, &w, mode);
    else
        step_deep(&a, &w, mode);
    tile_barrier();
    for (; w.next < w.end; w.next++)
        weigh_rows(&w, true, 0, T, mode);
    if (mode == LAZY) now->top = w.top;
}

/* Out of line, since each is long. */
static __attribute__((noinline)) void step_plain(const struct scores *a,
                                                 struct weights      *w)
{
    step(a, w, PLAIN);
}

static __attribute__((noinline)) void step_masked(const struct scores *a,
                                                  struct weights      *w)
{
    step(a, w, MASKED);
}

static __attribute__((noinline)) void step_lazy(const struct scores *a,
                                                struct weights      *w)
{
    step(a, w, LAZY);
}

/*
 * Values
 */

/* The weights and the values of a group that was met. */
struct met {
    const uint32_t *p, *v;
};

/* A product of the weights of 32 queries with values. */
struct attend_sums {
    float            *o; /* 32 rows */
    int64_t           ldo;
    float            *parts; /* [32][16] */
    const struct met *met;   /* [n] */
    int               n;
    bool              add;
};

/* Add 16 queries' weights of one group to their sums, some of them. */
INLINE void add_rows(vf l[T], const uint32_t *p, const int from, const int to)
{
    UNROLL(16)
    for (int i = from; i < to; i++)
        l[i] = vw_dot(vw_load(p + i * T), vw_ones(), l[i]);
}

/* The sums of `wide` tiles of columns, in tiles 0 to 2 for the first 16 queries and 3 to
 * 5 for the others. */
INLINE void open_sums(const struct attend_sums *a, int c, const int wide)
{
    const int64_t so = 4 * a->ldo;
    float *const low = a->o + c * T, *const high = low + T * a->ldo;

    if (a->add) {
        tile_load(0, low, so);
        tile_load(3, high, so);
        if (wide > 1) tile_load(1, low + T, so);
        if (wide > 1) tile_load(4, high + T, so);
        if (wide > 2) tile_load(2, low + 2 * T, so);
        if (wide > 2) tile_load(5, high + 2 * T, so);
    } else {
        tile_zero(0);
        tile_zero(3);
        if (wide > 1) tile_zero(1);
        if (wide > 1) tile_zero(4);
        if (wide > 2) tile_zero(2);
        if (wide > 2) tile_zero(5);
    }
}

INLINE void close_sums(const struct attend_sums *a, int c, const int wide)
{
    const int64_t so = 4 * a->ldo;
    float *const low = a->o + c * T, *const high = low + T * a->ldo;

    tile_store(0, low, so);
    tile_store(3, high, so);
    if (wide > 1) tile_store(1, low + T, so);
    if (wide > 1) tile_store(4, high + T, so);
    if (wide > 2) tile_store(2, low + 2 * T, so);
    if (wide > 2) tile_store(5, high + 2 * T, so);
}

/* The weights p and values v of one group, three tiles of columns: each is read twice,
 * there and back, since only two tiles are left for both. */
INLINE void group_3(const uint32_t *p, const uint32_t *v, vf l[T], const uint32_t *row)
{
    tile_load(6, p, 4 * T);
    tile_load(7, v, 4 * T);
    tile_dp(0, 6, 7);
    if (l) add_rows(l, row, 0, 3);
    tile_load(7, v + T * T, 4 * T);
    tile_dp(1, 6, 7);
    if (l) add_rows(l, row, 3, 6);
    tile_load(7, v + 2 * T * T, 4 * T);
    tile_dp(2, 6, 7);
    if (l) add_rows(l, row, 6, 9);
    tile_load(6, p + T * T, 4 * T);
    tile_dp(5, 6, 7);
    if (l) add_rows(l, row, 9, 12);
    tile_load(7, v + T * T, 4 * T);
    tile_dp(4, 6, 7);
    if (l) add_rows(l, row, 12, 14);
    tile_load(7, v, 4 * T);
    tile_dp(3, 6, 7);
    if (l) add_rows(l, row, 14, 16);
}

/* Two tiles of columns, or one. */
INLINE void group_2(const uint32_t *p, const uint32_t *v, const int wide, vf l[T],
                    const uint32_t *row)
{
    tile_load(6, p, 4 * T);
    tile_load(7, v, 4 * T);
    tile_dp(0, 6, 7);
    if (l) add_rows(l, row, 0, 4);
    if (wide > 1) {
        tile_load(5, v + T * T, 4 * T);
        tile_dp(1, 6, 5);
    }
    if (l) add_rows(l, row, 4, 8);
    tile_load(2, p + T * T, 4 * T);
    tile_dp(3, 2, 7);
    if (l) add_rows(l, row, 8, 12);
    if (wide > 1) tile_dp(4, 2, 5);
    if (l) add_rows(l, row, 12, 16);
}

/* `wide` tiles of columns from c on; and beside them, with `sums`, the weights of the 16
 * queries from r on. */
INLINE void sum_columns(const struct attend_sums *a, int c, const int wide,
                        const bool sums, int r)
{
    float *const at = a->parts + r * T;
    vf           l[T];

    UNROLL(16)
    for (int i = 0; i < T; i++)
        l[i] = sums ? vf_load(at + i * T) : vf_zero();
    open_sums(a, c, wide);
    for (int g = 0; g < a->n; g++) {
        const uint32_t *p = a->met[g].p, *v = a->met[g].v + c * T * T;

        if (wide == 3)
            group_3(p, v, sums ? l : NULL, p + r * T);
        else
            group_2(p, v, wide, sums ? l : NULL, p + r * T);
    }
    close_sums(a, c, wide);
    if (!sums) return;
    UNROLL(16)
    for (int i = 0; i < T; i++)
        vf_store(at + i * T, l[i]);
}

#define SUM_COLUMNS(wide)                                                              \
    static __attribute__((noinline)) void sum_##wide(const struct attend_sums *a,      \
                                                     int c, int r)                     \
    {                                                                                  \
        if (r < HALF)                                                                  \
            sum_columns(a, c, wide, true, r);                                          \
        else                                                                           \
            sum_columns(a, c, wide, false, 0);                                         \
    }
SUM_COLUMNS(1)
SUM_COLUMNS(2)
SUM_COLUMNS(3)
#undef SUM_COLUMNS

/* The weights of the 16 queries from r on, with no product beside them. */
static void sum_weights(const struct attend_sums *a, int r)
{
    float *const at = a->parts + r * T;
    vf           l[T];

    UNROLL(16)
    for (int i = 0; i < T; i++)
        l[i] = vf_load(at + i * T);
    for (int g = 0; g < a->n; g++)
        add_rows(l, a->met[g].p + r * T, 0, T);
    UNROLL(16)
    for (int i = 0; i < T; i++)
        vf_store(at + i * T, l[i]);
}

/* All columns, and all weights. */
static void sum_values(const struct attend_sums *a, int tiles)
{
    int r = 0;

    tile_barrier();
    for (int c = 0, wide; c < tiles; c += wide, r += T) {
        const int left = tiles - c;

        wide = left == 4 || left == 2 ? 2 : left < 3 ? 1 : 3;
        if (wide == 1)
            sum_1(a, c, r);
        else if (wide == 2)
            sum_2(a, c, r);
        else
            sum_3(a, c, r);
    }
    tile_barrier();
    for (; r < HALF; r += T)
        sum_weights(a, r);
}

/*
 * The block
 */

/* A half of the block on its way. */
struct half {
    int        n;   /* groups whose weights wait for their values */
    bool       add; /* there are sums already */
    struct met met[ATTEND_GROUPS];
};

struct passage {
    const struct attend *a;
    struct half          half[2];
    _Alignas(64) float by[LANES], off[LANES];
    _Alignas(64) float parts[LANES * T]; /* of the sums of weights */
    _Alignas(64) float s[2][LANES * ATTEND_KEYS];
};

static vf offsets_of(vf m)
{
    const vf from = vf_sub(vf_set1(MAGIC + X_ZERO), m);
    const vf off = vf_fma(from, vf_set1(X_ONE), vf_set1(X_ROUND));

    /* No reference yet: whatever comes is far beyond it. */
    return vf_select(vf_eq(m, vf_set1(-INFINITY)), vf_set1(0x1p31f), off);
}

/* Sum the values of what half h has met. */
static void flush_half(struct passage *b, int h)
{
    const struct attend     *a = b->a;
    struct half             *half = &b->half[h];
    const struct attend_sums sums = {
        .o = a->o + (int64_t)h * HALF * a->ldo,
        .ldo = a->ldo,
        .parts = b->parts + h * HALF * T,
        .met = half->met,
        .n = half->n,
        .add = half->add,
    };

    if (half->add && !half->n) return;
    sum_values(&sums, a->dv / T);
    half->n = 0;
    half->add = true;
}

/* Multiply the sums of query r by 2^e, e <= 0. */
static void rescale(struct passage *b, int r, float e)
{
    const struct attend *a = b->a;
    const vf             by = _mm512_scalef_ps(vf_set1(1.0f), vf_set1(e));
    float *const o = a->o + r * a->ldo, *const parts = b->parts + r * T;

    for (int c = 0; c < a->dv; c += T)
        vf_store(o + c, vf_mul(vf_load(o + c), by));
    vf_store(parts, vf_mul(vf_load(parts), by));
    if (a->add) a->l[r] *= _mm512_cvtss_f32(by);
}

/* The sums of the weights, of all parts. */
static void sum_parts(struct passage *b)
{
    const struct attend *a = b->a;

    for (int r = 0; r < LANES; r += T) {
        vf x[T];

        UNROLL(16)
        for (int i = 0; i < T; i++)
            x[i] = vf_load(b->parts + (r + i) * T);
        vf_transpose(x);
        UNROLL(4)
        for (int n = T / 2; n; n /= 2) {
            UNROLL(8)
            for (int i = 0; i < n; i++)
                x[i] = vf_add(x[i], x[i + n]);
        }
        vf_store(a->l + r, a->add ? vf_add(vf_load(a->l + r), x[0]) : x[0]);
    }
}

/* The largest logit of query r, or -inf where its x are in range. */
static float logit_beyond(const struct weights *w, int r)
{
    const float *const s = w->s + r / T * 2 * T * T + r % T * T;
    const __m512       by = _mm512_set1_ps(w->by[r]), off = _mm512_set1_ps(w->off[r]);
    const __m512       most = _mm512_set1_ps((float)(MAGIC * X_ONE + X_MOST));
    const uint32_t     seen = w->seen[r];
    __mmask16          beyond = 0;
    __m512             top = _mm512_set1_ps(-INFINITY);

    /* Four neighbours are in one tile of keys, the next four in the other. */
    for (int i = 0; i < 2; i++) {
        const __m512    x = _mm512_load_ps(s + i * T * T);
        const __mmask16 some =
            (__mmask16)_pext_u32(seen, UINT32_C(0x0f0f0f0f) << 4 * i);

        beyond |= _mm512_mask_cmp_ps_mask(some, _mm512_fmadd_ps(x, by, off), most,
                                          _CMP_GE_OQ);
        top = _mm512_mask_max_ps(top, some, top, _mm512_mul_ps(x, by));
    }
    return beyond ? _mm512_reduce_max_ps(top) / X_ONE : -INFINITY;
}

/* References of half h that a meeting would leave behind move up, and what was summed by
 * them shrinks. */
static void move_references(struct passage *b, int h, const struct weights *w)
{
    const struct attend *a = b->a;
    const bool           sums = b->half[h].n || b->half[h].add;

    if (sums) flush_half(b, h);
    for (int r = h * HALF; r < (h + 1) * HALF; r++) {
        const float top = logit_beyond(w, r);
        if (top == -INFINITY) continue;

        const float m = ceilf(top) + HEADROOM;
        if (sums && a->m[r] != -INFINITY) rescale(b, r, a->m[r] - m);
        a->m[r] = m;
    }
    for (int r = h * HALF; r < (h + 1) * HALF; r += T)
        vf_store(b->off + r, offsets_of(vf_load(a->m + r)));
}

static const _Alignas(64) uint32_t all_seen[LANES] = {
    ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u,
    ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u,
    ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u,
    ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u,
};

/* Whether half h sees a key of the group. */
static bool sees(const struct attend_group *g, int h)
{
    if (!g->seen) return true;
    const __m512i any = _mm512_or_si512(_mm512_load_si512(g->seen + h * HALF),
                                        _mm512_load_si512(g->seen + h * HALF + T));
    return _mm512_test_epi32_mask(any, any);
}

/* The weights of one meeting, and the scores of the next if there is one. */
static void meet(struct passage *b, const struct meeting *now,
                 const struct meeting *next)
{
    const struct attend *a = b->a;
    const struct scores  scores = {
         .q = a->q,
         .ldq = a->dq / 2,
         .k = next->group ? next->group->keys : NULL,
         .depth = a->dq / (2 * T),
         .first = next->first,
         .end = next->end,
         .s = next->s,
    };
    const uint32_t *seen = now->group ? now->group->seen : NULL;
    struct weights  w = {
         .s = now->s,
         .by = b->by,
         .off = b->off,
         .seen = seen ? seen : all_seen,
         .p = now->group ? a->p + (now->group - a->group) * LANES * T : NULL,
         .next = now->first,
         .end = now->end,
         .top = _mm512_setzero_si512(),
    };

    if (!a->held)
        step_lazy(&scores, &w);
    else if (seen)
        step_masked(&scores, &w);
    else
        step_plain(&scores, &w);
    const bool behind =
        _mm512_cmpge_epu16_mask(w.top, _mm512_set1_epi16((short)X_MOST));
    for (int h = now->first / 2; h < now->end / 2; h++)
        if (behind) move_references(b, h, &w);
    if (behind) step_lazy(&(struct scores){ .depth = 2 }, &w);
    for (int h = now->first / 2; h < now->end / 2; h++)
        b->half[h].met[b->half[h].n++] =
            (struct met){ w.p + h * HALF * T, now->group->values };
}

static void attend_bf16_amx(const struct attend *a)
{
    struct passage b;
    struct meeting last = { .group = NULL };

    b.a = a;
    for (int h = 0; h < 2; h++) {
        b.half[h].n = 0;
        b.half[h].add = a->add;
    }
    for (int r = 0; r < LANES; r += T) {
        vf_store(b.by + r, vf_mul(vf_load(a->f + r), vf_set1(X_ONE)));
        vf_store(b.off + r, offsets_of(vf_load(a->m + r)));
    }
    for (int r = 0; r < LANES; r++)
        vf_store(b.parts + r * T, vf_zero());
    for (int i = 0, turn = 0; i < a->n; i++) {
        const struct meeting now = {
            .group = &a->group[i],
            .first = sees(&a->group[i], 0) ? 0 : 2,
            .end = sees(&a->group[i], 1) ? 4 : 2,
            .s = b.s[turn],
        };
        if (now.first == now.end) continue;
        meet(&b, &last, &now);
        last = now;
        turn ^= 1;
    }
    meet(&b, &last, &(struct meeting){ .group = NULL });
    flush_half(&b, 0);
    flush_half(&b, 1);
    sum_parts(&b);
}
