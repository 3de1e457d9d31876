/* product.c -- products of matrices, cut into blocks for threads and caches.
 *
 * A block of c is summed tile by tile: its part of a is packed, at most BLOCK_TERMS terms
 * at a time, and meets the panels of b.  Sums of c stay in a thread's memory until all
 * terms are in, and are finished there.
 */
#include <string.h>

#include "product/inside.h"
#include "product/tiled.h"

/* A second-level cache that holds two panels of b and a block of a, of floats, and results. */
enum {
    AHEAD_BYTES = 4 * BLOCK_TERMS * (2 * TILE + BLOCK_ROWS) * 5 / 4,
};

struct multiply {
    struct packing  x;
    struct scratch *scratch;    /* [threads] */
    int64_t         rows, cols; /* of blocks of c */
    int64_t         across;     /* blocks side by side */
    int             threads;
};

double product_flops(const struct product *p)
{
    return (gates(p) ? 4 : 2) * (double)p->m * (double)p->n * (double)p->k;
}

static bool in_bf16(const foci_ctx *ctx, const struct product *p)
{
    return ctx->kernels.has_bf16 && (p->a.dtype != FOCI_F32 || p->fast);
}

static size_t element_bytes(bool bf16)
{
    return bf16 ? sizeof(uint16_t) : sizeof(float);
}

/* Rows and columns of packed blocks are padded for the kernels that pack 64 rows. */
static void carve_scratch(struct scratch *r, struct arena *a)
{
    enum { ROWS = BLOCK_ROWS + TILE, TERMS = BLOCK_TERMS + TILE };

    r->tile = arena_alloc(a, (int64_t)TILE * TERMS, sizeof *r->tile);
    r->piece = arena_alloc(a, (int64_t)BLOCK_TERMS * ROWS, sizeof *r->piece);
    r->a = arena_alloc(a, (int64_t)TERMS * ROWS, sizeof(float));
    r->c = arena_alloc(a, (int64_t)BLOCK_COLS * ROWS, sizeof *r->c);
}

/* Whether c takes the sum in pieces of BLOCK_TERMS terms, which are rows of both operands:
 * gradients of weights, where b is longer than caches and c is not.  A piece of b is packed
 * and used before the next. */
static bool in_pieces(const struct product *p)
{
    return p->add && p->a.transposed && !p->b.transposed && p->k > BLOCK_TERMS;
}

/* Tiles of b. */
static int64_t tiles_of(const struct packing *x, struct arena *a)
{
    int64_t n = 0;

    if (__builtin_mul_overflow(x->tiles, x->panels, &n)) a->used = SIZE_MAX;
    return n;
}

static void carve_packed(const foci_ctx *ctx, const struct product *p,
                         struct multiply *x, struct arena *a)
{
    x->x = (struct packing){ .k = &ctx->kernels,
                             .p = p,
                             .bf16 = in_bf16(ctx, p),
                             .tiles = div_up(in_pieces(p) ? BLOCK_TERMS : p->k, TILE),
                             .panels = cols_count(p, TILE) };
    x->x.tile_bytes = (size_t)TILE * TILE * element_bytes(x->x.bf16);

    x->x.b = p->packed ? (char *)p->packed
                       : arena_alloc(a, tiles_of(&x->x, a), x->x.tile_bytes);
    x->scratch = arena_alloc(a, ctx->threads, sizeof *x->scratch);
    for (int t = 0; t < ctx->threads; t++) {
        struct scratch r;

        carve_scratch(&r, a);
        if (x->scratch) x->scratch[t] = r;
    }
}

size_t product_bytes(const foci_ctx *ctx, const struct product *p)
{
    struct arena    many = { 0 }, few = { 0 };
    struct multiply x;
    struct tiled    t;

    if (tiled_can(ctx, in_bf16(ctx, p)))
        tiled_carve(ctx, p, &t, &many);
    else
        carve_packed(ctx, p, &x, &many);
    few_carve(ctx, p, &few);
    return many.used > few.used ? many.used : few.used;
}

static void pack_job(void *arg, int64_t i, int thread)
{
    const struct multiply *x = arg;
    const struct scratch  *r = &x->scratch[thread];
    const int64_t          panels = x->x.panels, tiles = x->x.tiles;

    /* Along the rows as they are stored. */
    if (x->x.p->b.transposed)
        pack_b(&x->x, i / tiles, i % tiles, r);
    else
        pack_b(&x->x, i % panels, i / panels, r);
}

static char *panel_at(const struct packing *x, int64_t panel, int64_t tile)
{
    return x->b + (size_t)(panel * x->tiles + tile) * x->tile_bytes;
}

/* A block of a against a panel of b, from tile t on, as bf16 pairs. */
static void multiply_pairs(const struct packing *x, const struct left_operand *a,
                           struct product_block b, const char *panel, int64_t t,
                           int terms, float *c)
{
    const uint32_t *const left = (const uint32_t *)(const void *)a->data;
    const uint32_t *const right = (const uint32_t *)(const void *)panel;

    x->k->gemm_bf16(c, TILE, left, a->rows, a->terms, right, TILE, b.m,
                    (int)round_up(b.n, 16), (int)round_up(terms, x->k->depth) / 2,
                    t > 0);
}

/* Where the sums of a block of 64 columns are the result; NULL: something follows. */
static float *result_of(const struct product *p, struct product_block b, int64_t *ld)
{
    enum { LINE = 64, FLOATS = 16 };

    if (p->c.dtype != FOCI_F32 || b.n < TILE || p->add) return NULL;
    if (p->bias || p->residual || !is_bare(p)) return NULL;

    const struct product_piece c = piece_at(&p->c, b.j, TILE);
    float *const               out = (float *)(void *)piece_row(&p->c, c, b.i);

    if (c.cols < TILE || c.part->ld % FLOATS || (uintptr_t)out % LINE) return NULL;
    *ld = c.part->ld;
    return out;
}

/* Panels of b that block i meets. */
static int panels_of(const struct multiply *x, int64_t i)
{
    return (int)min64(x->cols / TILE, x->x.panels - i % x->across * x->cols / TILE);
}

/* The panel of b that a thread wants after number `panel` of block i, from term t on. */
static const char *panel_after(const struct multiply *x, int64_t i, int panel, int64_t t)
{
    const bool    deeper = t + BLOCK_TERMS < x->x.p->k;
    const int64_t next = deeper ? i : i + x->threads;
    const int64_t col = next % x->across * x->cols;

    if (panel + 1 < panels_of(x, i))
        return panel_at(&x->x, i % x->across * x->cols / TILE + panel + 1, t / TILE);
    return panel_at(&x->x, col / TILE, deeper ? (t + BLOCK_TERMS) / TILE : 0);
}

/* The same in floats, to c or, where that is all, to the result: then the answer is
 * true.  The lines of a panel are asked for once, by the rows of a block; without that
 * it is those of the panel at hand. */
static bool multiply_floats(const struct multiply *x, const struct left_operand *a,
                            struct product_block b, const char *panel, int64_t t,
                            int terms, float *c, const char *ahead)
{
    int64_t      ld = TILE;
    float *const out = t * TILE + terms == x->x.p->k ? result_of(x->x.p, b, &ld) : NULL;
    const float *const left = (const float *)(const void *)a->data;
    const float *const right = (const float *)(const void *)panel;

    if (b.n <= TILE - 16) {
        x->x.k->gemm_f32(c, TILE, left, a->rows, a->terms, right, TILE, b.m,
                         (int)round_up(b.n, 16), terms, t > 0);
        return false;
    }
    x->x.k->panel_f32(&(struct panel_f32){ .out = out ? out : c,
                                           .sums = t > 0 ? c : NULL,
                                           .a = left,
                                           .b = right,
                                           .ldo = ld,
                                           .lds = TILE,
                                           .ra = a->rows,
                                           .ca = a->terms,
                                           .m = b.m,
                                           .k = terms,
                                           .ahead = x->x.large ? ahead : panel });
    return out != NULL;
}

enum { PANEL = (BLOCK_ROWS + TILE) * TILE }; /* floats of c */

/* Where all terms are packed at once a panel is finished when it is multiplied, in the
 * first-level cache, and a gate when what it gates is there too; otherwise sums of all of them
 * wait. */
static float *sums_of(const struct multiply *x, const struct scratch *r, int panel)
{
    if (x->x.p->k > BLOCK_TERMS) return r->c + (ptrdiff_t)panel * PANEL;
    return gates(x->x.p) ? r->c + (ptrdiff_t)(panel % 2) * PANEL : r->c;
}

/* Panel number `panel` of block i, from term t on; true: the result is written. */
static bool multiply_panel(const struct multiply *x, int64_t i, struct product_block b,
                           int panel, const struct left_operand *a, int64_t t,
                           int terms, const struct scratch *r)
{
    const int64_t     at = i % x->across * x->cols / TILE + panel;
    const char *const packed = panel_at(&x->x, at, t / TILE);
    float *const      c = sums_of(x, r, panel);

    if (!x->x.bf16)
        return multiply_floats(x, a, b, packed, t / TILE, terms, c,
                               panel_after(x, i, panel, t));
    multiply_pairs(&x->x, a, b, packed, t / TILE, terms, c);
    return false;
}

static void finish_panel(const struct multiply *x, struct product_block b, int panel,
                         const struct scratch *r)
{
    const float *const c = sums_of(x, r, panel);

    if (!gates(x->x.p)) {
        product_epilogue(x->x.k, x->x.p, b, c, NULL, TILE);
    } else if (panel % 2) {
        b.j -= x->x.p->n;
        product_epilogue(x->x.k, x->x.p, b, sums_of(x, r, panel - 1), c, TILE);
    }
}

static void block_job(void *arg, int64_t i, int thread)
{
    const struct multiply *x = arg;
    const struct product  *p = x->x.p;
    const struct scratch  *r = &x->scratch[thread];
    const int64_t          i0 = i / x->across * x->rows;
    const int64_t          first = i % x->across * x->cols / TILE;
    const int              m = (int)min64(x->rows, p->m - i0);
    const int              panels = panels_of(x, i);

    if (!p->k) memset(r->c, 0, sizeof *r->c * 2 * PANEL);
    for (int64_t t = 0; t < max64(p->k, 1); t += BLOCK_TERMS) {
        const int           terms = (int)min64(BLOCK_TERMS, p->k - t);
        struct left_operand a = { 0 };

        if (terms) a = pack_a(&x->x, i0, m, t, terms, r);
        for (int j = 0; j < panels; j++) {
            const struct cols          cols = cols_at(p, first + j, TILE);
            const struct product_block b = { i0, cols.at, m, cols.n };
            bool                       done = false;

            if (terms) done = multiply_panel(x, i, b, j, &a, t, terms, r);
            if (t + terms == p->k && !done) finish_panel(x, b, j, r);
        }
    }
}

/* The cost of all blocks of one thread, in units of a product of one row, one column and all
 * terms: packing a costs as much as some columns, fetching b as much as some rows. */
static double cost_of(const struct product *p, int64_t all, int threads, int64_t rows,
                      int64_t cols)
{
    static const double pack = 25, fetch = 3;
    const int64_t       across = div_up(all, cols), whole = (p->m - 1) / rows;
    const double        r = (double)rows, c = (double)cols;
    const double        rest = (double)(p->m - whole * rows); /* of the last ones */

    return (double)div_up(whole * across, threads) * (r * c + pack * r + fetch * c) +
           (double)div_up(across, threads) * (rest * c + pack * rest + fetch * c);
}

/* Blocks that are large, and as many for each thread. */
static void choose_blocks(const foci_ctx *ctx, struct multiply *x)
{
    enum { MOST = 32 }; /* blocks side by side */
    const struct product *p = x->x.p;
    const int64_t         step = 12, all = x->x.panels * TILE;
    const int64_t         unit = gates(p) ? 2 * TILE : TILE;
    const int64_t         most = min64(BLOCK_ROWS, round_up(p->m, step));
    double                best = 0;

    for (int64_t cut = 1; cut <= min64(MOST, x->x.panels); cut++)
        for (int64_t rows = most; rows > 0; rows -= step) {
            const int64_t cols = min64(BLOCK_COLS, round_up(div_up(all, cut), unit));
            const double  cost = cost_of(p, all, ctx->threads, rows, cols);

            if (best > 0 && cost >= best) continue;
            best = cost;
            x->rows = rows;
            x->cols = cols;
        }
    x->across = div_up(all, x->cols);
}

/* The sum from term0 on. */
static void packed_once(const foci_ctx *ctx, const struct product *p, int64_t term0,
                        void *work)
{
    struct arena    a = { .base = work };
    struct multiply x;

    carve_packed(ctx, p, &x, &a);
    x.x.term0 = term0;
    choose_blocks(ctx, &x);
    x.threads = ctx->threads;
    x.x.large = ctx->l2_bytes >= AHEAD_BYTES;

    const int64_t      jobs = div_up(p->m, x.rows) * x.across;
    const double       flops = product_flops(p);
    const struct phase phases[] = {
        { .n = p->packed ? 0 : x.x.panels * x.x.tiles,
          .chunk = 8,
          .job = pack_job,
          .arg = &x },
        { .n = jobs, .chunk = 1, .job = block_job, .arg = &x },
    };
    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, jobs, flops), phases, 2);
}

static void packed_run(const foci_ctx *ctx, const struct product *p, void *work)
{
    struct product q = *p;

    if (!in_pieces(p)) {
        packed_once(ctx, p, 0, work);
        return;
    }
    for (int64_t t = 0; t < p->k; t += q.k) {
        q.k = min64(BLOCK_TERMS, p->k - t);
        packed_once(ctx, &q, t, work);
    }
}

size_t product_pack_bytes(const foci_ctx *ctx, const struct product *p)
{
    struct arena    a = { 0 }, scratch = { 0 };
    struct multiply x;

    if (tiled_can(ctx, in_bf16(ctx, p))) return 0;
    carve_packed(ctx, p, &x, &scratch);
    arena_alloc(&a, tiles_of(&x.x, &a), x.x.tile_bytes);
    return a.used;
}

void product_pack(const foci_ctx *ctx, const struct product *p, void *packed, void *work)
{
    struct arena    a = { .base = work };
    struct product  q = *p;
    struct multiply x;

    q.packed = packed;
    carve_packed(ctx, &q, &x, &a);

    const int64_t n = x.x.panels * x.x.tiles;
    phases_run(&ctx->kernels, false,
               jobs_threads(ctx->threads, n, (double)n * TILE * TILE),
               &(struct phase){ .n = n, .chunk = 8, .job = pack_job, .arg = &x }, 1);
}

void product_run(const foci_ctx *ctx, const struct product *p, void *work)
{
    if (!p->m || !p->n) return;
    if (few_can(p, in_bf16(ctx, p)))
        few_run(ctx, p, work);
    else if (tiled_can(ctx, in_bf16(ctx, p)))
        tiled_run(ctx, p, work);
    else
        packed_run(ctx, p, work);
}
