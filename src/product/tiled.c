/* tiled.c -- products on tiles, cut into jobs for threads and caches. */
#include <sched.h>

#include "product/tiled.h"

bool tiled_can(const foci_ctx *ctx, bool bf16)
{
    return bf16 && ctx->kernels.sum_by_rows;
}

/*
 * Memory
 */

static void carve_scratch(struct tiled_scratch *r, int64_t sums, struct arena *a)
{
    enum { FLOATS = TILE * MOST_STEPS * TILE_DEPTH };

    for (int i = 0; i < 2; i++) {
        r->a[i] = arena_alloc(a, (int64_t)TILE_PANEL * MOST_STEPS * TILE_DEPTH,
                              sizeof *r->a[i]);
        r->c[i] = arena_alloc(a, TILE_BLOCK, sizeof *r->c[i]);
    }
    r->sums = arena_alloc(a, sums, sizeof *r->sums);
    r->to = arena_alloc(a, MOST_STRIPS, sizeof *r->to);
    r->tile = arena_alloc(a, FLOATS, sizeof *r->tile);
    r->piece = arena_alloc(a, FLOATS, sizeof *r->piece);
}

/* Sums of a panel, or of a job where it is cut: no more of them than c has. */
static int64_t most_sums(const struct tiled *x)
{
    const int64_t rows = round_up(x->p->m, TILE_PANEL), cols = x->strips * TILE_STRIP;
    const int64_t panel = TILE_BLOCK * min64(x->strips, MOST_STRIPS);

    if (x->steps <= MOST_STEPS / 2) return panel;
    return max64(panel, rows > MOST_SUMS / cols ? MOST_SUMS : rows * cols);
}

void tiled_carve(const foci_ctx *ctx, const struct product *p, struct tiled *x,
                 struct arena *a)
{
    int64_t pairs = 0, transposed = 0;

    *x = (struct tiled){ .k = &ctx->kernels,
                         .p = p,
                         .steps = div_up(p->k, TILE_DEPTH),
                         .strips = cols_count(p, TILE_STRIP) };
    x->ld = (x->steps + 1) * TILE_DEPTH; /* no power of two, where rows would meet */
    if (__builtin_mul_overflow(x->steps, x->strips, &pairs)) a->used = SIZE_MAX;
    if (__builtin_mul_overflow(x->ld, p->m, &transposed)) a->used = SIZE_MAX;
    x->b = arena_alloc(a, pairs, TILE_PAIR_SIZE * sizeof *x->b);
    x->transpose =
        arena_alloc(a, p->a.transposed ? transposed : 0, sizeof *x->transpose);
    x->sources = arena_alloc(a, x->steps, sizeof *x->sources);
    x->shares = arena_alloc(a, pairs + 1, sizeof *x->shares);
    x->scratch = arena_alloc(a, ctx->threads, sizeof *x->scratch);
    for (int t = 0; t < ctx->threads; t++) {
        struct tiled_scratch r;

        carve_scratch(&r, most_sums(x), a);
        if (x->scratch) x->scratch[t] = r;
    }
}

/*
 * Jobs
 */

/* The cost of all jobs of one thread, in units of a product of two tiles.  Packing a pair of
 * tiles of b costs `pack`, fetching a pair that another thread has packed `fetch`; copying a
 * tile of a costs `line`, before the first panel `first`; a block costs `border` to begin
 * and end, and as much again where partial sums are stored.  Threads start late and cores are
 * not equally fast: the last job counts for a little more. */
static double cost_of(const struct tiled *x, int threads)
{
    static const double pack = 24, fetch = 12, line = 1, first = 6, border = 6;
    static const double last = 0.25;
    const double        rows = (double)div_up(x->rows, 16), cols = (double)x->cols;
    const double        steps = (double)x->steps, cuts = x->cuts;
    const int64_t       jobs = x->across * x->down;
    const double        blocks = (double)div_up(x->rows, x->high) * cols * cuts;
    const double        all = (double)x->strips * steps;
    double              job = 2 * rows * cols * steps + line * rows * steps;

    job += blocks * (x->cuts > 1 ? 2 * border : border) + 3 * first * steps;
    if (x->own) job += cols * steps * pack;
    return (double)div_up(jobs, threads) * job + (threads > 1 ? last * job : 0) +
           (x->own ? 0 : all * (pack / threads + (threads > 1 ? fetch : 0)));
}

/* Strips that a job has a multiple of: gates come with what they gate. */
static int64_t unit_of(const struct tiled *x) { return gates(x->p) ? 2 : 1; }

/* A job's part of b fits into the second-level cache, its sums where they wait, and what jobs
 * pack for themselves into the memory of b. */
static bool fits(const struct tiled *x, int threads)
{
    const int64_t block = x->cols * x->depth;
    const int64_t used = min64(threads, x->across * x->down);

    if (block > BLOCK_PAIRS && x->cols > unit_of(x)) return false;
    if (x->cuts > 1 && round_up(x->rows, TILE_PANEL) * x->cols * TILE_STRIP > MOST_SUMS)
        return false;
    return !x->own || used * block <= x->steps * x->strips;
}

static void try_jobs(struct tiled *best, double *least, struct tiled x, int threads)
{
    for (int own = 0; own < 2; own++) {
        x.own = own;
        if (!fits(&x, threads)) continue;
        const double cost = cost_of(&x, threads);
        if (*least > 0 && cost >= *least) continue;
        *least = cost;
        *best = x;
    }
}

/* Few ways to cut are worth a try: from as little as must be to a few times more. */
static void choose_jobs(struct tiled *x, int threads)
{
    enum { MORE = 6, JOBS = 4 }; /* of columns, and for each thread */
    const int64_t most = x->p->m;
    double        least = 0;

    for (int steps = MOST_STEPS; steps >= MOST_STEPS / 2; steps /= 2) {
        struct tiled y = *x;

        y.cuts = (int)max64(1, div_up(x->steps, steps));
        y.depth = (int)max64(1, div_up(x->steps, y.cuts));
        y.cuts = (int)max64(1, div_up(x->steps, y.depth));
        y.high = y.depth <= SHALLOW ? 32 : TILE_PANEL;
        const int64_t cols = min64(MOST_STRIPS, max64(1, BLOCK_PAIRS / y.depth));
        const int64_t across = div_up(x->strips, cols);

        for (int64_t i = across; i < min64(across + MORE, x->strips + 1); i++) {
            y.cols = round_up(div_up(x->strips, i), unit_of(x));
            y.across = div_up(x->strips, y.cols);
            int64_t down = div_up(most, MOST_ROWS);
            if (y.cuts > 1) {
                const int64_t rows = MOST_SUMS / (y.cols * TILE_STRIP) / TILE_PANEL;
                down = max64(down, div_up(most, rows * TILE_PANEL));
            }
            for (int64_t j = down; j < down + JOBS * (int64_t)threads; j++) {
                y.rows = round_up(div_up(most, j), 16);
                y.down = div_up(most, y.rows);
                try_jobs(x, &least, y, threads);
            }
        }
    }
}

/*
 * Blocks
 */

/* Two halves rather than 48 and a rest of 16. */
static int panel_rows(const struct tiled *x, int left)
{
    if (left > TILE_PANEL && left <= 64) return 32;
    return left < x->high ? left : x->high;
}

/* Where row i of a strip of 32 columns from j on goes, if the kernel can write it. */
static struct tile_result result_at(const struct product *p, int64_t i, int64_t j)
{
    const int64_t size = (int64_t)foci_dtype_bytes(p->c.dtype);

    if (p->c.dtype == FOCI_F16 || p->n - j < TILE_STRIP || !is_bare(p))
        return (struct tile_result){ .out = NULL };

    const struct product_piece c = piece_at(&p->c, j, TILE_STRIP);
    struct tile_result         to = { .out = piece_row(&p->c, c, i),
                                      .ld = c.part->ld,
                                      .ld_more = p->ld_residual && !p->add ? p->ld_residual
                                                                           : c.part->ld };

    if (c.cols < TILE_STRIP) return (struct tile_result){ .out = NULL };
    if (p->add)
        to.more = to.out;
    else if (p->residual)
        to.more = (const char *)p->residual + (i * to.ld_more + c.col) * size;
    if (!p->add && p->bias) to.bias = p->bias + j;
    return to;
}

/* Apply the epilogue to blocks that the kernel has not written. */
static void finish_sums(const struct tiled *x, const struct tile_multiply *run,
                        struct tiled_span s, int64_t i0)
{
    const struct product *p = x->p;

    for (int j = 0; j < s.strips; j++) {
        const struct cols    cols = cols_at(p, s.strip + j, TILE_STRIP);
        const float *const   sums = run->sums + (ptrdiff_t)j * TILE_BLOCK;
        struct product_block b = { i0 + run->row, cols.at, run->valid, cols.n };

        if (run->to[j].out) continue;
        if (!gates(p)) {
            product_epilogue(x->k, p, b, sums, NULL, TILE_STRIP);
        } else if (j % 2) {
            b.j -= p->n;
            product_epilogue(x->k, p, b, sums - TILE_BLOCK, sums, TILE_STRIP);
        }
    }
}

/* All panels of m rows from i0 on by the strips and steps of s, packed in b. */
static void run_panels(const struct tiled *x, const struct tiled_scratch *r,
                       struct tiled_span s, const uint32_t *b, int64_t i0, int m,
                       struct tile_rest *rest)
{
    const bool              last = s.step + s.steps == x->steps;
    int                     rows = panel_rows(x, m), at = 0;
    struct tile_multiply    run = { .b = b,
                                    .steps = s.steps,
                                    .strips = s.strips,
                                    .to = last ? r->to : NULL,
                                    .dtype = (int)x->p->c.dtype,
                                    .sums = r->sums,
                                    .add = s.step > 0,
                                    .rest = rest,
                                    .c = { r->c[0], r->c[1] } };
    const struct tile_panel first =
        tiled_panel(x, i0, rows, s.step, s.steps, r->a[0], r);

    if (x->direct) x->k->tile_panel(&first);
    for (int i = 0; i < m; at ^= 1) {
        const int         after = panel_rows(x, m - i - rows);
        struct tile_panel next = { .rows = 0 };

        if (after)
            next =
                tiled_panel(x, i0 + i + rows, after, s.step, s.steps, r->a[at ^ 1], r);
        run.a = r->a[at];
        run.rows = (int)round_up(rows, 16);
        run.valid = rows;
        run.row = i;
        run.next = after && x->direct ? &next : NULL;
        x->k->tile_multiply(&run);
        if (last) finish_sums(x, &run, s, i0);
        if (x->cuts > 1) run.sums += (ptrdiff_t)s.strips * TILE_BLOCK;
        i += rows;
        rows = after;
    }
}

/* Where the shared b of a span lies. */
static uint32_t *packed_at(const struct tiled *x, struct tiled_span s)
{
    return x->b + (s.strip * x->steps + s.step * s.strips) * TILE_PAIR_SIZE;
}

static struct tiled_span span_at(const struct tiled *x, int64_t job, int cut)
{
    const int64_t strip = job * x->cols, step = (int64_t)cut * x->depth;

    return (struct tiled_span){ strip, step, (int)min64(x->cols, x->strips - strip),
                                (int)min64(x->depth, x->steps - step) };
}

static void transpose_part(const struct tiled *x, struct tiled_span s, int64_t part,
                           const struct tiled_scratch *r)
{
    (void)s;
    tiled_transpose(x, part, r);
}

static void pack_part(const struct tiled *x, struct tiled_span s, int64_t part,
                      const struct tiled_scratch *r)
{
    tiled_pack_part(x, s, (int)part, packed_at(x, s), r);
}

/* All parts are done when this returns. */
static void do_shared(const struct tiled *x, struct tiled_share *share,
                      struct tiled_span s, int64_t parts,
                      void (*part)(const struct tiled *, struct tiled_span, int64_t,
                                   const struct tiled_scratch *),
                      const struct tiled_scratch *r)
{
    int64_t i;

    while ((i = atomic_fetch_add(&share->begun, 1)) < parts) {
        part(x, s, i, r);
        atomic_fetch_add(&share->done, 1);
    }
    while (atomic_load(&share->done) < parts)
        sched_yield();
}

/* The part of b of a job, packed. */
static const uint32_t *packed(const struct tiled *x, struct tiled_span s, int64_t job,
                              int cut, int thread)
{
    const struct tiled_scratch *r = &x->scratch[thread];
    uint32_t *const own = x->b + thread * x->cols * x->depth * TILE_PAIR_SIZE;
    const int       parts = tiled_parts(x, s);

    if (!x->own) {
        do_shared(x, &x->shares[1 + job * x->cuts + cut], s, parts, pack_part, r);
        return packed_at(x, s);
    }
    for (int i = 0; i < parts; i++)
        tiled_pack_part(x, s, i, own, r);
    return own;
}

/* Jobs of the same columns follow one another. */
static void tiled_job(void *arg, int64_t i, int thread)
{
    const struct tiled         *x = arg;
    const struct tiled_scratch *r = &x->scratch[thread];
    const int64_t               i0 = i % x->down * x->rows, job = i / x->down;
    const int                   m = (int)min64(x->rows, x->p->m - i0);
    struct tile_rest            rest = { .rows = 0 };

    do_shared(x, &x->shares[0], (struct tiled_span){ 0 }, tiled_transposes(x),
              transpose_part, r);
    for (int cut = 0; cut < x->cuts; cut++) {
        const struct tiled_span s = span_at(x, job, cut);
        const uint32_t *const   b = packed(x, s, job, cut, thread);

        for (int j = 0; j < s.strips; j++)
            r->to[j] = result_at(x->p, i0, cols_at(x->p, s.strip + j, TILE_STRIP).at);
        run_panels(x, r, s, b, i0, m, &rest);
    }
    x->k->tile_rest(&rest, (int)x->p->c.dtype);
}

void tiled_run(const foci_ctx *ctx, const struct product *p, void *work)
{
    struct arena a = { .base = work };
    struct tiled x;

    tiled_carve(ctx, p, &x, &a);
    x.direct = tiled_sources(&x);
    choose_jobs(&x, ctx->threads);

    const int64_t      jobs = x.across * x.down;
    const double       flops = product_flops(p);
    const struct phase phase = { .n = jobs, .chunk = 1, .job = tiled_job, .arg = &x };

    for (int64_t i = 0; i <= x.across * x.cuts; i++) {
        atomic_init(&x.shares[i].begun, 0);
        atomic_init(&x.shares[i].done, 0);
    }
    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, jobs, flops), &phase, 1);
}
