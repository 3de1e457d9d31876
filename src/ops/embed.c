/* embed.c -- embeddings of ids and positions, forward and backward.
 *
 * Backward adds to rows of the tables that several ids share.  Threads have columns of their
 * own and go through all rows in order: nothing is sorted, nothing is locked, and each sum
 * has one order.
 */
#include <inttypes.h>
#include <string.h>

#include "ops/check.h"
#include "product/product.h"

enum {
    TILE = 64,      /* rows at once; columns of a word of bits */
    SPAN = 16 * 64, /* columns of floats on their way */
    LEAST = 16      /* columns of a thread's own */
};

static const char op[] = "embed";

struct embed_run {
    const struct kernels *k;
    foci_embed_io         io;
    int64_t               rows;
    int64_t               cols; /* of a job of backward */
};

/*
 * Checks
 */

static foci_status open_embed(foci_ctx *ctx, const foci_embed_io *given,
                              struct embed_run *x)
{
    foci_embed_io *const io = &x->io;

    TRY(sized_in(ctx, "foci_embed_io", io, given, sizeof *io));
    TRY(check_batch(ctx, op, io->dtype, io->batch, io->len, io->width, &x->rows));
    TRY(check_extent(ctx, op, "vocab", io->vocab, io->ids ? 1 : 0, INT32_MAX));
    TRY(check_extent(ctx, op, "n_positions", io->n_positions, 0, INT32_MAX));
    if (io->scale == 0) io->scale = 1;
    return check_share(ctx, op, "dropout", io->dropout);
}

static int64_t len_of(const foci_embed_io *io, int64_t b)
{
    return io->lens ? io->lens[b] : io->len;
}

static int64_t first_of(const foci_embed_io *io, int64_t b)
{
    return io->first ? io->first[b] : 0;
}

static foci_status check_ids(foci_ctx *ctx, const foci_embed_io *io, int64_t b)
{
    const int32_t *const ids = io->ids + b * io->len;

    for (int64_t i = 0; i < len_of(io, b); i++)
        if (ids[i] < 0 || ids[i] >= io->vocab)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "embed: id %" PRId32 " in row %" PRId64 " of entry %" PRId64
                            " is not 0 to %" PRId64,
                            ids[i], i, b, io->vocab - 1);
    return FOCI_OK;
}

/* With positions wanted: each entry's fit into their table. */
static foci_status check_places(foci_ctx *ctx, const foci_embed_io *io, int64_t b)
{
    const int64_t first = first_of(io, b), end = first + len_of(io, b);

    if (!len_of(io, b) || (first >= 0 && end <= io->n_positions)) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "embed: positions %" PRId64 " to %" PRId64 " of entry %" PRId64
                    " are not below %" PRId64,
                    first, end - 1, b, io->n_positions);
}

static foci_status check_entries(foci_ctx *ctx, const foci_embed_io *io, bool places)
{
    TRY(check_lens(ctx, op, io->lens, io->batch, io->len));
    for (int64_t b = 0; b < io->batch; b++) {
        if (io->ids) TRY(check_ids(ctx, io, b));
        if (places) TRY(check_places(ctx, io, b));
    }
    return FOCI_OK;
}

/*
 * Forward
 */

/* A row of the batch. */
struct embed_row {
    int64_t at, b, i;
    bool    valid;
};

static struct embed_row row_number(const foci_embed_io *io, int64_t at)
{
    struct embed_row r = { .at = at, .b = at / io->len, .i = at % io->len };

    r.valid = r.i < len_of(io, r.b);
    return r;
}

static const float *table_row(const struct embed_run *x, const struct embed_row *r,
                              int64_t c)
{
    return x->io.table + x->io.ids[r->at] * x->io.width + c;
}

static int64_t place_of(const struct embed_run *x, const struct embed_row *r)
{
    return first_of(&x->io, r->b) + r->i;
}

/* Element c of a row. */
static void *cell(const struct embed_run *x, const void *rows,
                  const struct embed_row *r, int64_t c)
{
    return rows ? (char *)row_at(rows, x->io.dtype, r->at, x->io.width) +
                      c * (int64_t)foci_dtype_bytes(x->io.dtype)
                : NULL;
}

/* The sum of what there is, without dropout, to out of a type. */
static void add_up(const struct embed_run *x, const struct embed_row *r, int64_t c,
                   int d, void *out, foci_dtype type)
{
    const foci_embed_io *io = &x->io;
    const float *const   place =
        io->positions ? io->positions + place_of(x, r) * io->width + c : NULL;
    const void *const in = cell(x, io->x, r, c);
    float             some[SPAN];

    if (!io->ids && in)
        x->k->add_scaled(out, (int)type, in, (int)io->dtype, 1, place, FOCI_F32, d);
    else if (!io->ids)
        x->k->add_scaled(out, (int)type, place, FOCI_F32, 1, NULL, FOCI_F32, d);
    else if (!in)
        x->k->add_scaled(out, (int)type, table_row(x, r, c), FOCI_F32, (float)io->scale,
                         place, FOCI_F32, d);
    else {
        x->k->add_scaled(some, FOCI_F32, table_row(x, r, c), FOCI_F32, (float)io->scale,
                         place, FOCI_F32, d);
        x->k->add_scaled(out, (int)type, some, FOCI_F32, 1, in, (int)io->dtype, d);
    }
}

static void drop_row(const struct embed_run *x, const struct embed_row *r, int64_t c,
                     int d, const float *in, void *out, foci_dtype type)
{
    const struct product p = { .drop = x->io.dropout, .drop_seed = x->io.dropout_seed };
    uint64_t             bits;
    const struct epilogue f = { .dropout_mask = &bits,
                                .factor = (float)(1 / (1 - p.drop)) };
    const int64_t         bytes = (int64_t)foci_dtype_bytes(type);

    for (int j = 0; j < d; j += TILE) {
        product_dropout_mask(x->k, &p, r->at, 1, c + j, &bits);
        x->k->gemm_epilogue((char *)out + j * bytes, 0, (int)type, in + j, 0, &f, 1,
                            (int)min64(TILE, d - j));
    }
}

static void forward_row(const struct embed_run *x, const struct embed_row *r)
{
    const foci_embed_io *io = &x->io;
    float                some[SPAN];

    for (int64_t c = 0; c < io->width; c += SPAN) {
        const int   d = (int)min64(SPAN, io->width - c);
        void *const out = cell(x, io->y, r, c);

        if (io->dropout == 0) {
            add_up(x, r, c, d, out, io->dtype);
            continue;
        }
        add_up(x, r, c, d, some, FOCI_F32);
        drop_row(x, r, c, d, some, out, io->dtype);
    }
}

static void forward_job(void *arg, int64_t job, int thread)
{
    const struct embed_run *x = arg;
    const size_t            bytes = (size_t)x->io.width * foci_dtype_bytes(x->io.dtype);

    (void)thread;
    for (int64_t i = job * TILE; i < min64(x->rows, (job + 1) * TILE); i++) {
        const struct embed_row r = row_number(&x->io, i);

        if (r.valid)
            forward_row(x, &r);
        else
            memset(cell(x, x->io.y, &r, 0), 0, bytes);
    }
}

static double work_of(const struct embed_run *x)
{
    return 4 * (double)x->rows * (double)x->io.width;
}

foci_status foci_embed_forward(foci_ctx *ctx, const foci_embed_io *given)
{
    struct embed_run x = { .rows = 0 };

    TRY(check_ctx(ctx, "foci_embed_forward"));
    TRY(open_embed(ctx, given, &x));
    x.k = &ctx->kernels;
    if (!x.rows) return FOCI_OK;
    TRY(check_there(ctx, op, x.io.y, "y"));
    TRY(check_there(ctx, op, !x.io.ids || x.io.table, "table"));
    TRY(check_there(ctx, op, x.io.ids || x.io.x || x.io.positions,
                    "all of ids, x and positions"));
    TRY(check_entries(ctx, &x.io, x.io.positions != NULL));

    const int64_t jobs = div_up(x.rows, TILE);
    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, jobs, work_of(&x)),
               &(struct phase){ .n = jobs, .chunk = 1, .job = forward_job, .arg = &x },
               1);
    return FOCI_OK;
}

/*
 * Backward
 */

/* A row's gradient, columns c to c + d, in floats: nothing of rows that are not valid. */
static void backward_row(const struct embed_run *x, const struct embed_row *r,
                         int64_t c, int d)
{
    const foci_embed_io *io = &x->io;
    float                some[TILE], kept[TILE];
    const float         *g = some;

    x->k->load_rows(some, d, cell(x, io->dy, r, c), d, (int)io->dtype, 1, d);
    if (io->dropout > 0) {
        drop_row(x, r, c, d, some, kept, FOCI_F32);
        g = kept;
    }
    if (io->dtable) {
        float *const to = io->dtable + io->ids[r->at] * io->width + c;
        x->k->add_scaled(to, FOCI_F32, g, FOCI_F32, (float)io->scale, to, FOCI_F32, d);
    }
    if (io->dpositions) {
        float *const to = io->dpositions + place_of(x, r) * io->width + c;
        x->k->add_scaled(to, FOCI_F32, g, FOCI_F32, 1, to, FOCI_F32, d);
    }
    if (io->dx)
        x->k->store_rows(cell(x, io->dx, r, c), d, (int)io->dtype, g, d, 1, 1, d);
}

static void backward_job(void *arg, int64_t job, int thread)
{
    const struct embed_run *x = arg;
    const int64_t           c = job * x->cols;
    const int               d = (int)min64(x->cols, x->io.width - c);
    const size_t            bytes = (size_t)d * foci_dtype_bytes(x->io.dtype);

    (void)thread;
    for (int64_t i = 0; i < x->rows; i++) {
        const struct embed_row r = row_number(&x->io, i);

        if (r.valid)
            backward_row(x, &r, c, d);
        else if (x->io.dx)
            memset(cell(x, x->io.dx, &r, c), 0, bytes);
    }
}

foci_status foci_embed_backward(foci_ctx *ctx, const foci_embed_io *given)
{
    struct embed_run x = { .rows = 0, .cols = TILE };

    TRY(check_ctx(ctx, "foci_embed_backward"));
    TRY(open_embed(ctx, given, &x));
    x.k = &ctx->kernels;
    if (!x.rows) return FOCI_OK;
    TRY(check_there(ctx, op, x.io.dy, "dy"));
    TRY(check_there(ctx, op, !x.io.dtable || x.io.ids,
                    "ids, whose table has a gradient,"));
    TRY(check_entries(ctx, &x.io, x.io.dpositions != NULL));

    while (x.cols > LEAST && div_up(x.io.width, x.cols) < ctx->threads)
        x.cols /= 2;
    const int64_t jobs = div_up(x.io.width, x.cols);
    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, jobs, work_of(&x)),
               &(struct phase){ .n = jobs, .chunk = 1, .job = backward_job, .arg = &x },
               1);
    return FOCI_OK;
}
