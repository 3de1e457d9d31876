/* layer_rows.c -- row-wise operations of a layer: sums of columns, dropped gradients, rows
 * that no sequence has. */
#include <string.h>

#include "layer/layer.h"

enum { COLS = FOCI_TILE }; /* of a job */

struct sum_job {
    const struct layer_pass *x;
    const struct layer_sums *s;
    float                   *out;
};

/* One thread has some columns and goes through all rows, in their order. */
static void sum_job(void *arg, int64_t i, int thread)
{
    const struct sum_job    *j = arg;
    const struct layer_pass *x = j->x;
    const struct layer_sums *s = j->s;
    const struct kernels    *k = &x->layer->ctx->kernels;
    const foci_dtype         type = x->layer->p.dtype;
    const int64_t            col = i * COLS;
    const int                cols = (int)min64(COLS, s->cols - col);
    const struct layer_run  *runs = s->others ? x->others : x->runs;
    float                   *rows = layer_scratch(x, thread);
    double                   sums[COLS] = { 0 };

    for (int64_t r = 0; r < (s->others ? x->n_others : x->n_runs); r++) {
        const int64_t row0 = s->keys ? runs[r].k : runs[r].q;
        for (int64_t at = 0; at < runs[r].n; at += GATE_ROWS) {
            const int n = (int)min64(GATE_ROWS, runs[r].n - at);
            k->load_rows(rows, COLS,
                         s->data + (size_t)((row0 + at) * s->ld + col) *
                                       foci_dtype_bytes(type),
                         s->ld, (int)type, n, cols);
            for (int t = 0; t < n; t++)
                for (int c = 0; c < cols; c++)
                    sums[c] += (double)rows[(int64_t)t * COLS + c];
        }
    }
    for (int c = 0; c < cols; c++)
        j->out[col + c] += (float)sums[c];
}

static int64_t rows_in(const struct layer_run *runs, int64_t n)
{
    int64_t rows = 0;

    for (int64_t i = 0; i < n; i++)
        rows += runs[i].n;
    return rows;
}

void layer_sum_rows(const struct layer_pass *x, const struct layer_sums *s, float *out)
{
    const foci_ctx *ctx = x->layer->ctx;
    struct sum_job  job = { x, s, out };
    const int64_t   jobs = div_up(s->cols, COLS);
    const int64_t   rows =
        s->others ? rows_in(x->others, x->n_others) : rows_in(x->runs, x->n_runs);
    const struct phase all = { jobs, 1, sum_job, &job };

    phases_run(&ctx->kernels, false,
               jobs_threads(ctx->threads, jobs, (double)rows * (double)s->cols), &all,
               1);
}

/* Apply the dropout of the output product (head -1) to a row of its gradient. */
static void drop_row(const struct layer_pass *x, int64_t row, float *values)
{
    const foci_layer_problem *p = &x->layer->p;
    const uint64_t            key =
        rng_drop_key(x->io.dropout_seed, row / p->len, -1, row % p->len);
    const float kept = (float)(1 / (1 - p->output_dropout));

    for (int64_t c = 0; c < p->width; c++) {
        const uint64_t z = rng_absorb(key, (uint64_t)c + 1);
        const bool     drops = (double)(z >> 11) * 0x1p-53 < p->output_dropout;
        values[c] = drops ? 0 : values[c] * kept;
    }
}

static void drop_job(void *arg, int64_t row, int thread)
{
    const struct layer_pass  *x = arg;
    const foci_layer_problem *p = &x->layer->p;
    const struct kernels     *k = &x->layer->ctx->kernels;
    const size_t at = (size_t)(row * p->width) * foci_dtype_bytes(p->dtype);
    float       *values = layer_scratch(x, thread);

    k->load_rows(values, x->row_floats, (const char *)x->g.dy + at, p->width,
                 (int)p->dtype, 1, (int)p->width);
    drop_row(x, row, values);
    k->store_rows(x->clean + at, p->width, (int)p->dtype, values, x->row_floats, 1, 1,
                  (int)p->width);
}

void layer_drop_back(struct layer_pass *x)
{
    const foci_layer_problem *p = &x->layer->p;
    const foci_ctx           *ctx = x->layer->ctx;
    const int64_t             rows = p->batch * p->len;
    const struct phase        all = { rows, 16, drop_job, x };

    x->dy = x->g.dy;
    if (p->output_dropout > 0) {
        phases_run(&ctx->kernels, false,
                   jobs_threads(ctx->threads, rows, (double)rows * (double)p->width),
                   &all, 1);
        x->dy = x->clean;
    }
    x->dy = layer_clean(x, x->dy, false);
}

struct clean_job {
    const struct layer_pass *x;
    const char              *from;
    const int32_t           *lens;
    int64_t                  len;
    size_t                   bytes; /* of a row */
};

static void clean_job(void *arg, int64_t b, int thread)
{
    const struct clean_job *j = arg;
    const size_t            at = (size_t)(b * j->len) * j->bytes;
    const size_t            n = (size_t)j->lens[b] * j->bytes;
    char                   *to = j->x->clean + at;

    (void)thread;
    if (j->from + at != to) memcpy(to, j->from + at, n);
    memset(to + n, 0, (size_t)j->len * j->bytes - n);
}

const void *layer_clean(const struct layer_pass *x, const void *rows, bool source)
{
    const foci_layer_problem *p = &x->layer->p;
    const foci_ctx           *ctx = x->layer->ctx;
    const int64_t             width = source ? p->width_source : p->width;
    struct clean_job          job = { x, rows, source ? x->io.lens_source : x->io.lens,
                             source ? p->len_source : p->len,
                                      (size_t)width * foci_dtype_bytes(p->dtype) };
    const struct phase        all = { p->batch, 1, clean_job, &job };

    if (!x->padded[source]) return rows;
    phases_run(&ctx->kernels, false,
               jobs_threads(ctx->threads, p->batch,
                            (double)(p->batch * job.len) * (double)width),
               &all, 1);
    return x->clean;
}

static void clean_place(const struct layer_pass *x, enum place place)
{
    const foci_layer_problem  *p = &x->layer->p;
    const struct layer_buffer *at = &x->layer->places[place];
    const bool                 source = !by_query(place) && p->len_source;
    const int32_t             *lens = source ? x->io.lens_source : x->io.lens;

    if (!x->padded[source]) return;
    for (int64_t h = at->first; h < at->first + at->heads; h++)
        for (int64_t b = 0; b < p->batch; b++)
            memset(view_at(x->layer, &x->d[place], h, b * at->len + lens[b]), 0,
                   (size_t)((at->len - lens[b]) * at->dim) * foci_dtype_bytes(p->dtype));
}

void layer_clean_heads(const struct layer_pass *x)
{
    clean_place(x, PLACE_Q);
    clean_place(x, PLACE_K);
    clean_place(x, PLACE_V);
}

void layer_clear_rest(const struct layer_pass *x, void *to, bool source)
{
    const foci_layer_problem *p = &x->layer->p;
    const int64_t             len = source ? p->len_source : p->len;
    const size_t              bytes =
        (size_t)(source ? p->width_source : p->width) * foci_dtype_bytes(p->dtype);
    const int32_t *lens = source ? x->io.lens_source : x->io.lens;

    if (x->io.docs) {
        const int64_t end = x->io.docs[x->io.n_docs];
        memset(to, 0, (size_t)x->io.docs[0] * bytes);
        memset((char *)to + (size_t)end * bytes, 0, (size_t)(len - end) * bytes);
    }
    for (int64_t b = 0; lens && b < p->batch; b++)
        memset((char *)to + (size_t)(b * len + lens[b]) * bytes, 0,
               (size_t)(len - lens[b]) * bytes);
}

/* The memory's rows that stay, then rows of x. */
void layer_remember(const struct layer_pass *x)
{
    const foci_layer_problem *p = &x->layer->p;
    const size_t              bytes = (size_t)p->width * foci_dtype_bytes(p->dtype);

    for (int64_t b = 0; x->io.memory_next && b < p->batch; b++) {
        const int64_t n = x->io.lens ? x->io.lens[b] : p->len;
        const int64_t stay = max64(0, p->memory - n), take = p->memory - stay;
        char         *to = (char *)x->io.memory_next + (size_t)(b * p->memory) * bytes;
        const char *from = (const char *)x->io.memory + (size_t)(b * p->memory) * bytes;

        memmove(to, from + (size_t)(p->memory - stay) * bytes, (size_t)stay * bytes);
        memcpy(to + (size_t)stay * bytes,
               (const char *)x->io.x + (size_t)(b * p->len + n - take) * bytes,
               (size_t)take * bytes);
    }
}

struct store_job {
    const struct layer_pass *x;
    const char              *plan;
    char                    *to;
    int64_t                  width, row0;
};

static void store_job(void *arg, int64_t i, int thread)
{
    const struct store_job  *j = arg;
    const struct layer_pass *x = j->x;
    const struct kernels    *k = &x->layer->ctx->kernels;
    const int                type = (int)x->layer->p.dtype;
    const int64_t            row = j->row0 + i;
    const size_t at = (size_t)(row * j->width) * foci_dtype_bytes(x->layer->p.dtype);
    const float *sum = x->dx_sum + row * j->width;
    float       *more = layer_scratch(x, thread);

    memset(more, 0, (size_t)j->width * sizeof *more);
    if (j->plan)
        k->load_rows(more, x->row_floats, j->plan + at, j->width, type, 1,
                     (int)j->width);
    for (int64_t c = 0; c < j->width; c++)
        more[c] += sum[c];
    k->store_rows(j->to + at, j->width, type, more, x->row_floats, 1, 1, (int)j->width);
}

void layer_store_sum(const struct layer_pass *x, const char *plan, void *to,
                     int64_t width, const struct layer_run *run)
{
    const foci_ctx    *ctx = x->layer->ctx;
    struct store_job   job = { x, plan, to, width, run->x };
    const struct phase all = { run->n, 16, store_job, &job };

    phases_run(&ctx->kernels, false,
               jobs_threads(ctx->threads, run->n, (double)run->n * (double)width), &all,
               1);
}
