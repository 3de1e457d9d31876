/* few.c -- products of few rows, as in decoding: bound by reading b, once and as it lies.
 *
 * Weights are not packed, and not rounded either: floats cost nothing where memory
 * decides.  Columns of b are dealt out to threads, those of a plain b in strips.
 */
#include <string.h>

#include "product/inside.h"

enum {
    GROUP = 8,         /* rows that a kernel takes */
    STRIP = 1024,      /* columns of a plain b at most */
    LEAST = 64,        /* and at least */
    LD = STRIP + 32,   /* of sums, which would meet in the cache otherwise */
    DEEPEST = 1 << 16, /* terms of a transposed one at once */
    VECTOR = 16,       /* floats, on whose boundaries parts begin */
    LITTLE = 1 << 13,  /* elements of a */
};

struct few {
    const struct kernels *k;
    const struct product *p;
    int64_t               tiles, ld;
    float                *a;     /* plain b: [tiles][16][64]; transposed: [16][ld] */
    float               **sums;  /* [threads] of [16][LD], twice where b is gated */
    int                   width; /* of strips */
};

/* Pairs of bf16 are multiplied so much faster than floats that packing b pays for fewer
 * rows. */
bool few_can(const struct product *p, bool bf16)
{
    int64_t at = 0;

    if (p->m > (bf16 ? GROUP : FEW)) return false;
    for (int i = 0; p->b.transposed && i < p->b.n_parts; i++) {
        if (at % VECTOR && p->b.parts[i].cols) return false;
        at += p->b.parts[i].cols;
    }
    return true;
}

static void few_carve_parts(const foci_ctx *ctx, const struct product *p, struct few *x,
                            struct arena *a)
{
    *x = (struct few){ .k = &ctx->kernels, .p = p, .tiles = div_up(p->k, TILE) };
    x->ld = x->tiles * TILE;
    x->a = arena_alloc(a, x->ld, FEW * sizeof *x->a);
    x->sums = arena_alloc(a, ctx->threads, sizeof *x->sums);
    for (int t = 0; t < ctx->threads; t++) {
        float *const sums = arena_alloc(a, (int64_t)FEW * LD * 2, sizeof *sums);
        if (x->sums) x->sums[t] = sums;
    }
}

void few_carve(const foci_ctx *ctx, const struct product *p, struct arena *a)
{
    struct few x;
    few_carve_parts(ctx, p, &x, a);
}

/* Tile t of a, which is [m][64], and 0 where it has no columns. */
static void load_a(void *arg, int64_t t, int thread)
{
    const struct few     *x = arg;
    const struct product *p = x->p;
    const int64_t         t0 = t * TILE;
    const int             terms = (int)min64(TILE, p->k - t0), m = (int)p->m;
    const bool            transposed = p->b.transposed;
    float *const          out = transposed ? x->a + t0 : x->a + t0 * FEW;
    const int64_t         ld = transposed ? x->ld : TILE;
    float *const          piece = x->sums[thread]; /* of no use yet */
    _Alignas(64) float    tile[TILE * FEW];

    for (int i = 0; i < m; i++)
        memset(out + i * ld, 0, TILE * sizeof *out);
    if (!p->a.transposed) {
        load_cut(x->k, &p->a, (struct cut){ 0, t0, m, terms }, tile, TILE, piece);
        for (int i = 0; i < m; i++)
            memcpy(out + i * ld, tile + (int64_t)i * TILE, TILE * sizeof *out);
        return;
    }
    load_cut(x->k, &p->a, (struct cut){ t0, 0, terms, m }, tile, FEW, piece);
    for (int s = 0; s < terms; s++)
        for (int i = 0; i < m; i++)
            out[i * ld + s] = tile[s * FEW + i];
}

/* Columns of a part that are dealt out: of a gated b, which has one, those of the gates. */
static int64_t dealt(const struct few *x, const struct product_part *part)
{
    return gates(x->p) ? x->p->n : part->cols;
}

/* The columns of strip number i; none of them in another part. */
static struct product_piece strip_at(const struct few *x, int64_t i, int64_t *j0)
{
    const struct product_part *part = x->p->b.parts;
    int64_t                    n;

    *j0 = 0;
    while (i >= (n = div_up(dealt(x, part), x->width)))
        i -= n, *j0 += part++->cols;
    *j0 += i * x->width;
    return (struct product_piece){ part, i * x->width,
                                   (int)min64(x->width, dealt(x, part) - i * x->width) };
}

static void finish_few(const struct few *x, int64_t j0, int n, const float *sums,
                       const float *up, int64_t ld)
{
    for (int j = 0; j < n; j += TILE)
        product_epilogue(
            x->k, x->p,
            (struct product_block){ 0, j0 + j, (int)x->p->m, (int)min64(TILE, n - j) },
            sums + j, up + j, ld);
}

/* sums[m][LD] of the columns of a plain b from c on. */
static void plain_sums(const struct few *x, struct product_piece c, float *sums)
{
    const struct matrix *b = &x->p->b;
    const int            m = (int)x->p->m;
    const int64_t        step = c.part->ld * (int64_t)foci_dtype_bytes(b->dtype);
    /* Rows of b at a time, along which the hardware looks ahead: sums of one row of c are
     * cheap to take up again, those of several are not. */
    const int deep = m == 1 ? 8 : 16;

    memset(sums, 0, (size_t)m * LD * sizeof *sums);
    for (int64_t t = 0; t < x->tiles; t++) {
        const int         n = (int)min64(TILE, x->p->k - t * TILE);
        const char *const rows = piece_row(b, c, t * TILE);
        const float      *a = x->a + t * TILE * FEW;

        for (int s = 0; s < n; s += deep)
            for (int64_t r = 0; r < m; r += GROUP)
                x->k->sums_f32(sums + r * LD, LD, a + r * TILE + s,
                               (int)min64(GROUP, m - r), rows + s * step, c.part->ld,
                               (int)b->dtype, (int)min64(deep, n - s), c.cols);
    }
}

static void plain_job(void *arg, int64_t i, int thread)
{
    const struct few *x = arg;
    float *const sums = x->sums[thread], *const up = sums + (ptrdiff_t)FEW * LD;
    int64_t                    j0;
    const struct product_piece c = strip_at(x, i, &j0);

    plain_sums(x, c, sums);
    if (gates(x->p))
        plain_sums(x, (struct product_piece){ c.part, x->p->n + c.col, c.cols }, up);
    finish_few(x, j0, c.cols, sums, up, LD);
}

/* sums[m][64] of n columns of a transposed b, which are rows as it is stored, from j0 on. */
static void transposed_sums(const struct few *x, int64_t j0, int n, float *sums)
{
    const struct matrix *b = &x->p->b;
    const int            m = (int)x->p->m;
    float *const         some = sums + (ptrdiff_t)FEW * TILE;

    memset(sums, 0, (size_t)m * TILE * sizeof *sums);
    for (int64_t t = 0; t < x->p->k;) {
        const struct product_piece c = piece_at(b, t, min64(x->p->k - t, DEEPEST));
        const char *const          rows = piece_row(b, c, j0);

        for (int64_t r = 0; r < m; r += GROUP)
            x->k->dots_f32(some + r * TILE, x->a + r * x->ld + t, x->ld,
                           (int)min64(GROUP, m - r), rows, c.part->ld, (int)b->dtype, n,
                           c.cols);
        for (int i = 0; i < m; i++)
            for (int s = 0; s < n; s++)
                sums[i * TILE + s] += some[i * TILE + s];
        t += c.cols;
    }
}

static void transposed_job(void *arg, int64_t i, int thread)
{
    const struct few *x = arg;
    const int64_t     j0 = i * TILE;
    const int         n = (int)min64(TILE, x->p->n - j0);
    float *const sums = x->sums[thread], *const up = sums + (ptrdiff_t)FEW * LD;

    transposed_sums(x, j0, n, sums);
    if (gates(x->p)) transposed_sums(x, x->p->n + j0, n, up);
    finish_few(x, j0, n, sums, up, TILE);
}

static int64_t count_strips(const struct few *x)
{
    int64_t n = 0;

    for (int i = 0; i < x->p->b.n_parts; i++)
        n += div_up(dealt(x, &x->p->b.parts[i]), x->width);
    return n;
}

void few_run(const foci_ctx *ctx, const struct product *p, void *work)
{
    struct arena  a = { .base = work };
    const int64_t share = div_up(p->n, ctx->threads);
    struct few    x;

    few_carve_parts(ctx, p, &x, &a);
    x.width = (int)max64(LEAST, min64(STRIP, round_up(share, LEAST)));

    /* Little of it is loaded before another thread would be awake. */
    const bool little = p->m * p->k <= LITTLE;
    for (int64_t t = 0; little && t < x.tiles; t++)
        load_a(&x, t, 0);

    const int64_t      jobs = p->b.transposed ? div_up(p->n, TILE) : count_strips(&x);
    const double       flops = product_flops(p);
    const struct phase phases[] = {
        { .n = little ? 0 : x.tiles, .chunk = 1, .job = load_a, .arg = &x },
        { .n = jobs,
          .chunk = 1,
          .job = p->b.transposed ? transposed_job : plain_job,
          .arg = &x },
    };
    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, jobs, flops), phases, 2);
}
