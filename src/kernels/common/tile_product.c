/* tile_product.c -- large products on tiles: a panel of rows by strips of b.
 *
 * A block of 3 x 2 tiles keeps its sums in tiles for the whole depth; operands come from the
 * second-level cache in the order in which they are loaded.  All other work of a product is
 * memory traffic, spread between the multiplies, which leave most of the core idle: the next
 * panel of a is packed into tile order, the results of the block before are stored, and cache
 * lines to be written soon are prefetched.
 *
 * Included by amx.c, whose tiles it uses.
 */

/*
 * Work beside the multiplications
 */

/* Eight rows of a panel for one step: 64 bytes of each, or zeros from n on. */
INLINE void copy_unit(uint16_t *out, const uint16_t *in, int64_t ld, int n)
{
    if (n >= TILE_UNIT) {
        UNROLL(8)
        for (int i = 0; i < TILE_UNIT; i++)
            vw_store(out + (ptrdiff_t)i * TILE_DEPTH, vw_stored(in + i * ld));
        return;
    }
    for (int i = 0; i < TILE_UNIT; i++)
        vw_store(out + (ptrdiff_t)i * TILE_DEPTH,
                 i < n ? vw_stored(in + i * ld) : vw_set1(0));
}

/* The unit of rows 8 group and on, and step t. */
INLINE void panel_unit(const struct tile_panel *p, int group, int t)
{
    const int                       r = group * TILE_UNIT;
    const struct tile_source *const from = p->from + t;

    copy_unit(p->out + ((ptrdiff_t)t * p->rows + r) * TILE_DEPTH,
              from->data + (p->row + r) * from->ld, from->ld, p->valid - r);
}

static void tile_panel_amx(const struct tile_panel *p)
{
    for (int group = 0; group < p->rows / TILE_UNIT; group++)
        for (int t = 0; t < p->steps; t++)
            panel_unit(p, group, t);
}

/* A row of results of 32 columns. */
INLINE void rest_row(struct tile_rest *r, const int dtype)
{
    const int64_t size = dtype == FOCI_F32 ? 4 : 2;
    vf            x = vf_load(r->in), y = vf_load(r->in + T);

    if (r->to.bias) {
        x = vf_add(x, vf_loadu(r->to.bias));
        y = vf_add(y, vf_loadu(r->to.bias + T));
    }
    if (r->to.more) {
        x = vf_add(vf_from(r->to.more, dtype), x);
        y = vf_add(vf_from(r->to.more + T * size, dtype), y);
        r->to.more += r->to.ld_more * size;
    }
    if (dtype == FOCI_F32) {
        vf_to(r->to.out, FOCI_F32, x);
        vf_to(r->to.out + T * size, FOCI_F32, y);
    } else {
        _mm512_storeu_si512(r->to.out, (__m512i)vw_row(x, y));
    }
    r->to.out += r->to.ld * size;
    r->in += TILE_STRIP;
}

/* At most n rows. */
INLINE void rest_rows(struct tile_rest *r, int dtype, int n)
{
    if (n > r->rows) n = r->rows;
    r->rows -= n;
    if (dtype == FOCI_F32)
        for (; n > 0; n--)
            rest_row(r, FOCI_F32);
    else
        for (; n > 0; n--)
            rest_row(r, FOCI_BF16);
}

static void tile_rest_amx(struct tile_rest *r, int dtype)
{
    rest_rows(r, dtype, r->rows);
}

/* Lines that will be written, one or two of each of so many rows. */
struct line_prefetch {
    const char *at;
    int64_t     ld; /* bytes */
    int         rows, lines;
};

/* Work to be done between the multiplies of a panel, and how much of it at each step. */
struct beside {
    const struct tile_panel *panel;
    int                      group, t, units; /* the next unit, and how many are left */
    int                  at_once, every, wait; /* so many units, every so many steps */
    struct tile_rest     rest;
    int                  dtype, rows; /* of the rest and of prefetches, at a step */
    struct line_prefetch out, sums;
};

static int shared_by(int n, int steps) { return (n + steps - 1) / steps; }

static struct beside plan_beside(const struct tile_multiply *x)
{
    const int     units = x->next ? x->next->rows / TILE_UNIT * x->next->steps : 0;
    const int     steps = x->steps > 0 ? x->steps : 1, all = steps * x->strips;
    struct beside s = { .panel = x->next,
                        .units = units,
                        .at_once = units > all ? shared_by(units, all) : 1,
                        .every = units > all ? 1
                                 : units > 0 ? all / units
                                             : all + 1,
                        .rest = *x->rest,
                        .dtype = x->dtype,
                        .rows = shared_by(TILE_PANEL, steps) };

    s.wait = units > 0 ? 1 : s.every;
    return s;
}

INLINE void next_unit(struct beside *s)
{
    panel_unit(s->panel, s->group, s->t);
    s->units--;
    if (++s->t < s->panel->steps) return;
    s->t = 0;
    s->group++;
}

INLINE void some_units(struct beside *s)
{
    if (--s->wait) return;
    s->wait = s->every;
    for (int i = 0; i < s->at_once && s->units > 0; i++)
        next_unit(s);
}

INLINE void some_rows(struct beside *s)
{
    if (s->rest.rows) rest_rows(&s->rest, s->dtype, s->rows);
}

INLINE void some_lines(struct line_prefetch *f, int rows)
{
    if (!f->rows) return;
    for (int i = 0; i < rows && f->rows; i++, f->rows--, f->at += f->ld) {
        PREFETCH_WRITE(f->at);
        if (f->lines > 1) PREFETCH_WRITE(f->at + 64);
    }
}

INLINE void some_prefetches(struct beside *s)
{
    some_lines(&s->out, s->rows);
    some_lines(&s->sums, s->rows);
}

/*
 * Blocks
 */

enum { TILE_BYTES = T * TILE_DEPTH * (int)sizeof(uint16_t) };

/* A panel by a strip. */
struct tile_block {
    const uint16_t *a;
    const uint32_t *b;
    const float    *sums; /* NULL: none */
    float          *out;
    int             steps;
};

#define SUM(t, row, col)                                                               \
    do {                                                                               \
        if (x->sums)                                                                   \
            tile_load(t, x->sums + (row)*T * TILE_STRIP + (col)*T, 2 * LINE);          \
        else                                                                           \
            tile_zero(t);                                                              \
    } while (0)
#define STORE(t, row, col)                                                             \
    tile_store(t, x->out + (row)*T * TILE_STRIP + (col)*T, 2 * LINE)

/* 48 rows: sums in 0 to 5; a tile of b meets three of a, the last of which meets the
 * other tile of b first. */
static void block_3(const struct tile_block *x, struct beside *s)
{
    const char *a = (const char *)x->a, *b = (const char *)x->b;

    SUM(0, 0, 0);
    SUM(1, 1, 0);
    SUM(2, 2, 0);
    SUM(3, 2, 1);
    SUM(4, 1, 1);
    SUM(5, 0, 1);
    for (int t = 0; t < x->steps; t++, a += 3 * TILE_BYTES, b += 2 * TILE_BYTES) {
        tile_load(6, b, LINE);
        tile_load(7, a, LINE);
        tile_dp(0, 7, 6);
        tile_load(7, a + TILE_BYTES, LINE);
        tile_dp(1, 7, 6);
        some_units(s);
        tile_load(7, a + 2 * TILE_BYTES, LINE);
        tile_dp(2, 7, 6);
        tile_load(6, b + TILE_BYTES, LINE);
        tile_dp(3, 7, 6);
        some_rows(s);
        tile_load(7, a + TILE_BYTES, LINE);
        tile_dp(4, 7, 6);
        some_prefetches(s);
        tile_load(7, a, LINE);
        tile_dp(5, 7, 6);
    }
    STORE(0, 0, 0);
    STORE(1, 1, 0);
    STORE(2, 2, 0);
    STORE(3, 2, 1);
    STORE(4, 1, 1);
    STORE(5, 0, 1);
}

/* 32 rows, or 16. */
INLINE void block_2(const struct tile_block *x, struct beside *s, const bool tall)
{
    const char *a = (const char *)x->a, *b = (const char *)x->b;
    const int   high = tall ? 2 : 1;

    SUM(0, 0, 0);
    SUM(1, 0, 1);
    if (tall) SUM(2, 1, 0);
    if (tall) SUM(3, 1, 1);
    for (int t = 0; t < x->steps;
         t++, a += (ptrdiff_t)high * TILE_BYTES, b += 2 * TILE_BYTES) {
        tile_load(4, a, LINE);
        tile_load(6, b, LINE);
        tile_dp(0, 4, 6);
        some_units(s);
        tile_load(7, b + TILE_BYTES, LINE);
        tile_dp(1, 4, 7);
        some_rows(s);
        if (tall) tile_load(5, a + TILE_BYTES, LINE);
        if (tall) tile_dp(2, 5, 6);
        some_prefetches(s);
        if (tall) tile_dp(3, 5, 7);
    }
    STORE(0, 0, 0);
    STORE(1, 0, 1);
    if (tall) STORE(2, 1, 0);
    if (tall) STORE(3, 1, 1);
}

#undef SUM
#undef STORE

static void run_block(const struct tile_block *x, int rows, struct beside *s)
{
    if (rows == 3 * T)
        block_3(x, s);
    else if (rows == 2 * T)
        block_2(x, s, true);
    else
        block_2(x, s, false);
    rest_rows(&s->rest, s->dtype, s->rest.rows);
}

/* Row x->row of where strip j goes. */
static struct tile_result result_at(const struct tile_multiply *x, int j)
{
    const int64_t      size = x->dtype == FOCI_F32 ? 4 : 2;
    struct tile_result to = x->to[j];

    to.out += x->row * to.ld * size;
    if (to.more) to.more += x->row * to.ld_more * size;
    return to;
}

static struct line_prefetch prefetch_sums(const float *sums)
{
    return (struct line_prefetch){ (const char *)sums, 2 * LINE, TILE_PANEL, 2 };
}

static void tile_multiply_amx(const struct tile_multiply *x)
{
    struct beside s = plan_beside(x);
    const int64_t size = x->dtype == FOCI_F32 ? 4 : 2;
    const float  *rest = s.rest.in;
    int           at = s.rest.rows && rest >= x->c[0] && rest < x->c[0] + TILE_BLOCK;
    struct tile_block b = { .a = x->a, .b = x->b, .steps = x->steps };

    tile_barrier(); /* operands are made by vector code */
    for (int j = 0; j < x->strips; j++) {
        float *const       sums = x->sums + (ptrdiff_t)j * TILE_BLOCK;
        const bool         written = x->to && x->to[j].out;
        struct tile_result to = { .out = NULL };

        b.out = written ? x->c[at] : sums;
        b.sums = x->add ? sums : NULL;
        if (written) {
            to = result_at(x, j);
            s.out =
                (struct line_prefetch){ to.out, to.ld * size, x->valid, (int)size / 2 };
        } else if (!x->add) {
            s.out = prefetch_sums(sums);
        }
        if (x->add && j + 1 < x->strips) s.sums = prefetch_sums(sums + TILE_BLOCK);
        run_block(&b, x->rows, &s);
        if (written) {
            s.rest = (struct tile_rest){ b.out, to, x->valid };
            at ^= 1;
        }
        b.b += (ptrdiff_t)x->steps * 2 * T * T;
    }
    while (s.units > 0)
        next_unit(&s);
    *x->rest = s.rest;
}

/*
 * Packing
 */

/* Four times eight columns of rows that are eight apart. */
INLINE __m512i quarters(const uint16_t *in, int64_t ld)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i_u *)in));

    x = _mm512_mask_broadcast_i32x4(x, 0x00f0,
                                    _mm_loadu_si128((const __m128i_u *)(in + 8 * ld)));
    x = _mm512_mask_broadcast_i32x4(x, 0x0f00,
                                    _mm_loadu_si128((const __m128i_u *)(in + 16 * ld)));
    return _mm512_mask_broadcast_i32x4(
        x, 0xf000, _mm_loadu_si128((const __m128i_u *)(in + 24 * ld)));
}

/* 32 rows of eight.  The loads put rows 0-7, 8-15, 16-23 and 24-31 into the quarters of a register, so that
 * three rounds within quarters do the rest. */
static __attribute__((noinline)) void transpose_unit(uint16_t *out, int64_t ld_out,
                                                     const uint16_t *in, int64_t ld)
{
    __m512i a[8], b[8], c[8];

    UNROLL(8)
    for (int i = 0; i < 8; i++)
        a[i] = quarters(in + i * ld, ld);
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        b[i] = _mm512_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
        b[i + 4] = _mm512_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
    }
    UNROLL(2)
    for (int i = 0; i < 8; i += 4) {
        c[i] = _mm512_unpacklo_epi32(b[i], b[i + 1]);
        c[i + 1] = _mm512_unpacklo_epi32(b[i + 2], b[i + 3]);
        c[i + 2] = _mm512_unpackhi_epi32(b[i], b[i + 1]);
        c[i + 3] = _mm512_unpackhi_epi32(b[i + 2], b[i + 3]);
    }
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        uint16_t *const to = out + (ptrdiff_t)2 * i * ld_out;

        _mm512_storeu_si512(to, _mm512_unpacklo_epi64(c[2 * i], c[2 * i + 1]));
        _mm512_storeu_si512(to + ld_out, _mm512_unpackhi_epi64(c[2 * i], c[2 * i + 1]));
    }
}

static void transpose_bf16_amx(uint16_t *out, int64_t ld_out, const uint16_t *in,
                               int64_t ld, int n, int d)
{
    if (n == TILE_DEPTH) {
        for (int i = 0; i < d; i += TILE_UNIT)
            transpose_unit(out + i * ld_out, ld_out, in + i, ld);
        return;
    }
    for (int i = 0; i < d; i++)
        for (int t = 0; t < TILE_DEPTH; t++)
            out[i * ld_out + t] = t < n ? in[t * ld + i] : 0;
}

INLINE vf some_floats(const float *in, int n)
{
    return n >= T ? vf_loadu(in) : n > 0 ? vf_from_n(in, FOCI_F32, n) : vf_zero();
}

INLINE vw some_halves(const uint16_t *in, int n)
{
    return n >= 2 * T ? vw_stored(in) : n > 0 ? vw_stored_n(in, n) : vw_set1(0);
}

/* Two rows side by side: 32 columns of them, of which n are there, make a row of each
 * of the two tiles. */
INLINE void zip_rows(char *out, const char *low, const char *high, int dtype, int n)
{
    if (dtype == FOCI_F32) {
        const float *const x = (const float *)(const void *)low;
        const float *const y = (const float *)(const void *)high;

        for (int i = 0; i < 2; i++) {
            const int at = i * T, m = n - at;
            const vf  odd = high ? some_floats(y + at, m) : vf_zero();
            vw_store(out + (ptrdiff_t)i * TILE_BYTES,
                     vw_pair(some_floats(x + at, m), odd));
        }
    } else {
        const vw x = some_halves((const uint16_t *)(const void *)low, n);
        const vw y =
            high ? some_halves((const uint16_t *)(const void *)high, n) : vw_set1(0);

        vw_store(out, vw_zip_low(x, y));
        vw_store(out + TILE_BYTES, vw_zip_high(x, y));
    }
}

/* Along the rows, as they lie in memory; those of several steps make no stream for the
 * hardware to follow. */
static void tile_pairs_amx(uint32_t *out, int64_t ld_out, const void *in, int64_t ld,
                           int dtype, int n, int d)
{
    enum { AHEAD = 8 }; /* rows */
    const int64_t size = dtype == FOCI_F32 ? 4 : 2;

    for (int t = 0; t < T; t++) {
        const char *const low = (const char *)in + 2 * t * ld * size;
        const char *const high = 2 * t + 1 < n ? low + ld * size : NULL;
        char             *to = (char *)out + (ptrdiff_t)t * 64;

        for (int j = 0; j < d; j += TILE_STRIP, to += 4 * ld_out) {
            if (2 * t >= n) {
                vw_store(to, vw_set1(0));
                vw_store(to + TILE_BYTES, vw_set1(0));
                continue;
            }
            prefetch_bytes(low + j * size, AHEAD * ld * size, (int)(TILE_STRIP * size));
            prefetch_bytes(low + j * size, (AHEAD + 1) * ld * size,
                           (int)(TILE_STRIP * size));
            zip_rows(to, low + j * size, high ? high + j * size : NULL, dtype, d - j);
        }
    }
}

/* 16 columns, which are rows as they are stored, for one step, as bf16 pairs and transposed. */
INLINE void transpose_tile(char *out, const char *in, int64_t ld, int dtype, int n,
                           int d)
{
    vf x[T];

    UNROLL(16)
    for (int i = 0; i < T; i++) {
        const char *const row = in + i * ld * (dtype == FOCI_F32 ? 4 : 2);

        if (i >= n) {
            x[i] = vf_zero();
        } else if (dtype == FOCI_F32) {
            const float *const f = (const float *)(const void *)row;
            x[i] = (vf)vw_row(some_floats(f, d), some_floats(f + T, d - T));
        } else {
            x[i] = (vf)some_halves((const uint16_t *)(const void *)row, d);
        }
    }
    vf_transpose(x);
    UNROLL(16)
    for (int i = 0; i < T; i++)
        vf_store((float *)(void *)(out + (ptrdiff_t)64 * i), x[i]);
}

static __attribute__((noinline)) void transpose_floats(char *out, const char *in,
                                                       int64_t ld, int n, int d)
{
    transpose_tile(out, in, ld, FOCI_F32, n, d);
}

static __attribute__((noinline)) void transpose_halves(char *out, const char *in,
                                                       int64_t ld, int n, int d)
{
    transpose_tile(out, in, ld, FOCI_BF16, n, d);
}

static void tile_strip_amx(uint32_t *out, const void *in, int64_t ld, int dtype, int n,
                           int d)
{
    const int64_t size = dtype == FOCI_F32 ? 4 : 2;
    char         *to = (char *)out;

    for (int t = 0; t < d; t += TILE_DEPTH)
        for (int i = 0; i < TILE_STRIP; i += T, to += TILE_BYTES) {
            const char *const from = (const char *)in + (i * ld + t) * size;

            if (dtype == FOCI_F32)
                transpose_floats(to, from, ld, n - i, d - t);
            else
                transpose_halves(to, from, ld, n - i, d - t);
        }
}
