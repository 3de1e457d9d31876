/* product.c -- products of matrices, cut into blocks for threads and caches.
 *
 * A block of c is summed tile by tile: its part of a is packed, at most BLOCK_TERMS terms
 * at a time, and meets the panels of b.  Sums of c stay in a thread's memory until all
 * terms are in, and are finished there.
 */
#include <string.h>

#include "product/inside.h"
#include "product/tiled.h"

/* A second cache that holds two panels of b and a block of a, of floats, and results. */
enum {
    AHEAD_BYTES = 4 * BLOCK_TERMS * (2 * TILE + BLOCK_ROWS) * 5 / 4,
};

struct multiply {
    struct packing x;
    struct room   *rooms;      /* [threads] */
    int64_t        rows, cols; /* of blocks of c */
    int64_t        across;     /* blocks side by side */
    int            threads;
};

static bool in_words(const foci_ctx *ctx, const struct product *p)
{
    return ctx->kernels.has_bf16 && (p->a.dtype != FOCI_F32 || p->fast);
}

static size_t element_bytes(bool words)
{
    return words ? sizeof(uint16_t) : sizeof(float);
}

/* Rows and columns of packed blocks are padded for the kernels that pack 64 rows. */
static void take_room(struct room *r, struct arena *a)
{
    enum { ROWS = BLOCK_ROWS + TILE, TERMS = BLOCK_TERMS + TILE };

    r->tile = arena_take(a, (int64_t)TILE * TERMS, sizeof *r->tile);
    r->piece = arena_take(a, (int64_t)BLOCK_TERMS * ROWS, sizeof *r->piece);
    r->a = arena_take(a, (int64_t)TERMS * ROWS, sizeof(float));
    r->c = arena_take(a, (int64_t)BLOCK_COLS * ROWS, sizeof *r->c);
}

static void take_packed(const foci_ctx *ctx, const struct product *p,
                        struct multiply *x, struct arena *a)
{
    x->x = (struct packing){ .k = &ctx->kernels,
                             .p = p,
                             .words = in_words(ctx, p),
                             .tiles = div_up(p->k, TILE),
                             .panels = div_up(p->n, TILE) };
    x->x.tile_bytes = (size_t)TILE * TILE * element_bytes(x->x.words);

    int64_t n = 0;
    if (__builtin_mul_overflow(x->x.tiles, x->x.panels, &n)) a->used = SIZE_MAX;
    x->x.b = arena_take(a, n, x->x.tile_bytes);
    x->rooms = arena_take(a, ctx->threads, sizeof *x->rooms);
    for (int t = 0; t < ctx->threads; t++) {
        struct room r;

        take_room(&r, a);
        if (x->rooms) x->rooms[t] = r;
    }
}

size_t product_bytes(const foci_ctx *ctx, const struct product *p)
{
    struct arena    many = { 0 }, few = { 0 };
    struct multiply x;
    struct tiled    t;

    if (tiled_can(ctx, in_words(ctx, p)))
        tiled_take(ctx, p, &t, &many);
    else
        take_packed(ctx, p, &x, &many);
    few_take(ctx, p, &few);
    return many.used > few.used ? many.used : few.used;
}

static void pack_job(void *arg, int64_t i, int thread)
{
    const struct multiply *x = arg;
    const struct room     *r = &x->rooms[thread];
    const int64_t          panels = x->x.panels, tiles = x->x.tiles;

    /* Along the rows as they are stored. */
    if (x->x.p->b.turned)
        pack_b(&x->x, i / tiles, i % tiles, r);
    else
        pack_b(&x->x, i % panels, i / panels, r);
}

static char *panel_at(const struct packing *x, int64_t panel, int64_t tile)
{
    return x->b + (size_t)(panel * x->tiles + tile) * x->tile_bytes;
}

/* A block of a against one panel of b, from tile t on, as words. */
static void multiply_words(const struct packing *x, const struct left *a,
                           struct block b, int64_t t, int terms, float *c)
{
    const uint32_t *const left = (const uint32_t *)(const void *)a->data;
    const uint32_t *const right =
        (const uint32_t *)(const void *)panel_at(x, b.j / TILE, t);

    x->k->gemm_bf16(c, TILE, left, a->rows, a->terms, right, TILE, b.m,
                    (int)round_up(b.n, 16), (int)round_up(terms, x->k->depth) / 2,
                    t > 0);
}

/* Where the sums of a block of 64 columns are the result; NULL: something follows. */
static float *result_of(const struct product *p, struct block b, int64_t *ld)
{
    enum { LINE = 64, FLOATS = 16 };

    if (p->c.dtype != FOCI_F32 || b.n < TILE || p->add) return NULL;
    if (p->bias || p->residual || p->drop > 0 || p->act != PRODUCT_PLAIN) return NULL;

    const struct piece c = piece_at(&p->c, b.j, TILE);
    float *const       out = (float *)(void *)piece_row(&p->c, c, b.i);

    if (c.cols < TILE || c.part->ld % FLOATS || (uintptr_t)out % LINE) return NULL;
    *ld = c.part->ld;
    return out;
}

/* The panel of b that a thread wants after that of column j of block i, from term t on. */
static const char *panel_after(const struct multiply *x, int64_t i, int64_t j, int n,
                               int64_t t)
{
    const bool    deeper = t + BLOCK_TERMS < x->x.p->k;
    const int64_t next = deeper ? i : i + x->threads;
    const int64_t col = next % x->across * x->cols;

    if (j + TILE < n)
        return panel_at(&x->x, (i % x->across * x->cols + j) / TILE + 1, t / TILE);
    return panel_at(&x->x, col / TILE, deeper ? (t + BLOCK_TERMS) / TILE : 0);
}

/* The same in floats, to c or, where that is all, to the result: then the answer is
 * true.  The lines of a panel are asked for once, by the rows of a block; without that
 * it is those of the panel at hand. */
static bool multiply_floats(const struct multiply *x, const struct left *a,
                            struct block b, int64_t t, int terms, float *c,
                            const char *ahead)
{
    const char *const panel = panel_at(&x->x, b.j / TILE, t);
    int64_t           ld = TILE;
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
 * first cache; otherwise sums of all of them wait. */
static void block_job(void *arg, int64_t i, int thread)
{
    const struct multiply *x = arg;
    const struct product  *p = x->x.p;
    const struct room     *r = &x->rooms[thread];
    const int64_t          i0 = i / x->across * x->rows, j0 = i % x->across * x->cols;
    const int              m = (int)min64(x->rows, p->m - i0);
    const int              n = (int)min64(x->cols, p->n - j0);
    const int64_t          step = p->k > BLOCK_TERMS ? PANEL : 0;

    if (!p->k) memset(r->c, 0, sizeof *r->c * PANEL);
    for (int64_t t = 0; t < max64(p->k, 1); t += BLOCK_TERMS) {
        const int   terms = (int)min64(BLOCK_TERMS, p->k - t);
        struct left a = { 0 };

        if (terms) a = pack_a(&x->x, i0, m, t, terms, r);
        for (int j = 0; j < n; j += TILE) {
            float *const       c = r->c + j / TILE * step;
            const struct block b = { i0, j0 + j, m, (int)min64(TILE, n - j) };
            bool               done = false;

            if (terms && x->x.words)
                multiply_words(&x->x, &a, b, t / TILE, terms, c);
            else if (terms)
                done = multiply_floats(x, &a, b, t / TILE, terms, c,
                                       panel_after(x, i, j, n, t));
            if (t + terms == p->k && !done) finish(x->x.k, p, b, c, TILE);
        }
    }
}

/* What a thread takes for all its blocks, in products of one row, one column and all
 * terms: packing a costs so many columns, fetching b so many rows. */
static double cost_of(const struct product *p, int threads, int64_t rows, int64_t cols)
{
    static const double pack = 25, fetch = 3;
    const int64_t       across = div_up(p->n, cols), whole = (p->m - 1) / rows;
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
    const int64_t         step = 12;
    const int64_t         most = min64(BLOCK_ROWS, round_up(p->m, step));
    double                best = 0;

    for (int64_t cut = 1; cut <= min64(MOST, x->x.panels); cut++)
        for (int64_t rows = most; rows > 0; rows -= step) {
            const int64_t cols = min64(BLOCK_COLS, div_up(x->x.panels, cut) * TILE);
            const double  cost = cost_of(p, ctx->threads, rows, cols);

            if (best > 0 && cost >= best) continue;
            best = cost;
            x->rows = rows;
            x->cols = cols;
        }
    x->across = div_up(p->n, x->cols);
}

static void packed_run(const foci_ctx *ctx, const struct product *p, void *work)
{
    struct arena    a = { .base = work };
    struct multiply x;

    take_packed(ctx, p, &x, &a);
    choose_blocks(ctx, &x);
    x.threads = ctx->threads;
    x.x.large = ctx->l2_bytes >= AHEAD_BYTES;

    const int64_t      jobs = div_up(p->m, x.rows) * x.across;
    const double       flops = 2 * (double)p->m * (double)p->n * (double)p->k;
    const struct phase phases[] = {
        { .n = x.x.panels * x.x.tiles, .chunk = 8, .job = pack_job, .arg = &x },
        { .n = jobs, .chunk = 1, .job = block_job, .arg = &x },
    };
    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, jobs, flops), phases, 2);
}

void product_run(const foci_ctx *ctx, const struct product *p, void *work)
{
    if (!p->m || !p->n) return;
    if (few_can(p, in_words(ctx, p)))
        few_run(ctx, p, work);
    else if (tiled_can(ctx, in_words(ctx, p)))
        tiled_run(ctx, p, work);
    else
        packed_run(ctx, p, work);
}
