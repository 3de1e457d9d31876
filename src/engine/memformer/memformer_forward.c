/* memformer_forward.c -- reading and writing slots, segment by segment. */
#include <math.h>
#include <string.h>

#include "engine/memformer/memformer.h"

static double norm_of(const float *x, int d)
{
    double sum = 0;
    for (int c = 0; c < d; c++)
        sum += (double)x[c] * (double)x[c];
    return sqrt(sum);
}

static void divide(float *to, const float *x, double norm, int d)
{
    for (int c = 0; c < d; c++)
        to[c] = (float)((double)x[c] / norm);
}

void memformer_start(const struct memformer *x, int64_t h, struct memformer_scratch *r)
{
    const float *beta = memformer_beta(x, h);

    memset(r->m, 0, (size_t)x->padded * (size_t)x->ld * sizeof *r->m);
    for (int64_t t = 0; t < x->slots; t++) {
        const double norm = norm_of(beta + t * x->d, x->d);
        if (norm != 0) divide(r->m + t * x->ld, beta + t * x->d, norm, x->d);
    }
}

/*
 * Reading
 */

struct few_keys memformer_few_keys(const struct memformer *x, const float *slots)
{
    return (struct few_keys){ .keys = slots,
                              .values = slots,
                              .n = x->slots,
                              .d = x->d,
                              .dv = x->d,
                              .ldk = x->ld,
                              .ldv = x->ld };
}

static void read_rows(const struct memformer *x, const struct memformer_rows *rows,
                      int64_t i, int64_t n, struct memformer_scratch *r)
{
    const struct few_keys few = memformer_few_keys(x, r->m);
    const int             dtype = (int)x->p->dtype;

    for (int64_t t = 0; t < n; t += LANES) {
        const int m = (int)min64(LANES, n - t);

        x->k->load_rows(r->q, x->ld, rows->q + (size_t)((i + t) * rows->q_step) * x->el,
                        rows->q_step, dtype, m, x->d);
        x->k->pack_cols_f32(r->qt, r->q, x->ld, m, x->d);
        few_keys_attend(x->k, &few, x->f, r->qt, m, r->s, r->out, r->share);
        x->k->store_cols(rows->o + (size_t)((i + t) * rows->o_step) * x->el,
                         rows->o_step, dtype, r->out, r->share, m, x->d);
    }
}

/*
 * Writing
 */

void memformer_transpose(const struct memformer *x, const float *rows, float *transposed)
{
    for (int t = 0; t < x->padded; t += LANES)
        x->k->pack_cols_f32(transposed + (int64_t)t * x->d, rows + (int64_t)t * x->ld,
                            x->ld, (int)min64(LANES, x->slots - t), x->d);
}

void memformer_begin_segment(const struct memformer *x, struct memformer_scratch *r)
{
    memformer_transpose(x, r->m, r->mt);
    memcpy(r->ot, r->mt, (size_t)x->padded * (size_t)x->d * sizeof *r->ot);
    for (int t = 0; t < x->padded; t++) {
        const double norm = t < x->slots ? norm_of(r->m + (int64_t)t * x->ld, x->d) : 0;
        r->max[t] = (float)((double)x->write_f[0] * norm * norm);
        r->sum[t] = 1;
    }
}

struct key_tile memformer_key_tile(const struct memformer      *x,
                                   const struct memformer_rows *rows, int64_t j, int n,
                                   struct memformer_scratch *r)
{
    x->k->load_rows(r->k, x->ld, rows->k + (size_t)(j * rows->k_step) * x->el,
                    rows->k_step, (int)x->p->dtype, n, x->d);
    x->k->load_rows(r->v, x->ld, rows->v + (size_t)(j * rows->v_step) * x->el,
                    rows->v_step, (int)x->p->dtype, n, x->d);
    return (struct key_tile){ .keys = r->k,
                              .values = r->v,
                              .n = n,
                              .d = x->d,
                              .dv = x->d,
                              .ldk = x->ld,
                              .ldv = x->ld };
}

void memformer_write(const struct memformer *x, const struct memformer_rows *rows,
                     int64_t i, int64_t n, struct memformer_scratch *r)
{
    for (int64_t j = 0; j < n; j += LANES) {
        const struct key_tile tile =
            memformer_key_tile(x, rows, i + j, (int)min64(LANES, n - j), r);

        for (int t = 0; t < x->slots; t += LANES) {
            const int64_t            at = (int64_t)t * x->d;
            const struct few_queries sums = { r->max + t, r->sum + t, r->ot + at };
            few_queries_add(x->k, &tile, x->write_f, r->mt + at,
                            (int)min64(LANES, x->slots - t), r->s, &sums);
        }
    }
}

/* m = y/|y|; a slot whose y is 0 stays as it is. */
void memformer_end_segment(const struct memformer *x, int64_t h,
                           struct memformer_scratch *r, float *norms, float *sizes)
{
    const float *beta = memformer_beta(x, h);

    for (int t = 0; t < x->slots; t += LANES) {
        for (int i = 0; i < LANES; i++)
            r->share[i] = 1 / r->sum[t + i];
        x->k->store_cols(r->y + (int64_t)t * x->ld, x->ld, FOCI_F32,
                         r->ot + (int64_t)t * x->d, r->share,
                         (int)min64(LANES, x->slots - t), x->d);
    }
    for (int t = 0; t < x->slots; t++) {
        float *y = r->y + (int64_t)t * x->ld;

        for (int c = 0; c < x->d; c++)
            y[c] += beta[t * x->d + c];
        const double norm = norm_of(y, x->d);
        if (norm != 0) divide(r->m + (int64_t)t * x->ld, y, norm, x->d);
        if (norms) norms[t] = (float)((double)r->max[t] + log2((double)r->sum[t]));
        if (sizes) sizes[t] = (float)norm;
    }
}

void memformer_tokens(const struct memformer *x, const struct memformer_rows *rows,
                      int64_t h, int64_t pos, int64_t i, int64_t n, int64_t written,
                      struct memformer_scratch *r)
{
    while (n > 0) {
        const int64_t in = pos % x->r.segment, run = min64(n, x->r.segment - in);

        if (in == 0 && pos < written) memformer_begin_segment(x, r);
        if (rows->o) read_rows(x, rows, i, run, r);
        if (pos < written) {
            memformer_write(x, rows, i, run, r);
            if (in + run == x->r.segment) memformer_end_segment(x, h, r, NULL, NULL);
        }
        pos += run;
        i += run;
        n -= run;
    }
}
