/* product.c -- products of matrices, cut into blocks for threads and caches.
 *
 * A block of c is summed tile by tile: its part of a is packed, at most BLOCK_TERMS terms
 * at a time, and meets the panels of b.  Sums of c stay in a thread's memory until all
 * terms are in, and are finished there.
 */
#include <string.h>

#include "product/inside.h"

struct multiply {
    struct packing x;
    struct room   *rooms;      /* [threads] */
    int64_t        rows, cols; /* of blocks of c */
    int64_t        across;     /* blocks side by side */
};

static bool in_words(const foci_ctx *ctx, const struct product *p)
{
    return ctx->kernels.has_bf16 && (p->a.dtype != FOCI_F32 || p->fast);
}

static size_t element_bytes(bool words)
{
    return words ? sizeof(uint16_t) : sizeof(float);
}

/* Rows and columns of packed blocks are padded for the tiles of AMX and the kernels that
 * pack 64 rows. */
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

/* A block of a against one panel of b, from tile t on. */
static void multiply_panel(const struct packing *x, const struct left *a, int m,
                           int64_t panel, int64_t t, int terms, float *c)
{
    const struct kernels *k = x->k;
    const int             n = (int)round_up(min64(TILE, x->p->n - panel * TILE), 16);
    const char *const     b = x->b + (size_t)(panel * x->tiles + t) * x->tile_bytes;
    const bool            add = t > 0;

    if (!x->words) {
        k->gemm_f32(c, TILE, (const float *)(const void *)a->data, a->rows, a->terms,
                    (const float *)(const void *)b, TILE, m, n, terms, add);
        return;
    }
    const uint32_t *left = (const uint32_t *)(const void *)a->data;
    const uint32_t *right = (const uint32_t *)(const void *)b;
    const int       rows = (int)round_up(m, k->sum_by_rows ? 16 : 1);
    const int       step = a->apart ? TILE : terms;

    for (int done = 0; done < terms; done += step) {
        const int some = (int)min64(step, terms - done);

        k->gemm_bf16(c, TILE, left, a->rows, a->terms,
                     right + (ptrdiff_t)done / 2 * TILE, TILE, rows, n,
                     (int)round_up(some, k->depth) / 2, add || done > 0);
        left += round_up(m, 32) * TILE / 2;
    }
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

            if (terms) multiply_panel(&x->x, &a, m, b.j / TILE, t / TILE, terms, c);
            if (t + terms == p->k) finish(x->x.k, p, b, c, TILE);
        }
    }
}

/* What a thread takes for all its blocks, in products of one row, one column and all
 * terms: packing a costs so many columns, fetching b so many rows. */
static double cost_of(const struct product *p, int threads, int64_t rows, int64_t cols)
{
    static const double pack = 25, fetch = 3;
    const int64_t       jobs = div_up(p->m, rows) * div_up(p->n, cols);
    const double        r = (double)rows, c = (double)cols;

    return (double)div_up(jobs, threads) * (r * c + pack * r + fetch * c);
}

/* Blocks that are large, and as many for each thread. */
static void choose_blocks(const foci_ctx *ctx, struct multiply *x)
{
    enum { MOST = 32 }; /* blocks side by side */
    const struct product *p = x->x.p;
    const int64_t         step = ctx->kernels.sum_by_rows ? 32 : 12;
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
    else
        packed_run(ctx, p, work);
}
