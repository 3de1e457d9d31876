/* compare_length_exact.c -- the error of outputs against exact attention.
 *
 * Exact attention takes time that grows with the square of the length; some rows of it do
 * not.  Up to 256 rows, in blocks that are spread evenly over the sequence, are computed by
 * softmax in f32 on the same q, k and v, with all keys that they see.  All mechanisms are
 * held against the same rows.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/compare_length.h"
#include "cli/tensors.h"
#include "foci/mechanism.h"

enum { ROWS = 32, BLOCKS = 8 };

/* The first row of block b. */
static int64_t begin_of(const struct length_exact *e, int64_t b)
{
    return e->blocks > 1 ? b * (e->length - e->rows) / (e->blocks - 1) : 0;
}

/* In f32, the tensor of all heads; *owned is to be freed. */
static const float *floats_of(const struct lengths *w, struct bench_input **inputs,
                              size_t n, uint64_t seed, float **owned)
{
    const void *data = bench_input(inputs, w->problem.dtype, n, seed);

    *owned = NULL;
    if (w->problem.dtype == FOCI_F32) return data;
    *owned = need(n, sizeof(float));
    from_bf16(data, (int64_t)n, *owned);
    return *owned;
}

/* Rows begin to begin + e->rows of the whole problem. */
static foci_status block(const struct lengths *w, const struct length_exact *e,
                         int64_t begin, const float *q, const float *k, const float *v,
                         float *o)
{
    const int64_t width = w->problem.heads * w->problem.dim_qk;
    const bool    causal = w->problem.flags & FOCI_FLAG_CAUSAL;
    foci_problem  p = { FOCI_SIZED(foci_problem),
                        .flags = causal ? FOCI_FLAG_CAUSAL : 0,
                        .heads = w->problem.heads,
                        .len_q = e->rows,
                        .len_k = causal ? begin + e->rows : e->length,
                        .dim_qk = w->problem.dim_qk };
    foci_plan    *plan;

    foci_status status = foci_plan_create(w->judge, "softmax", &p, &plan);
    if (status) return status;
    const foci_io io = { FOCI_SIZED(foci_io),
                         .q = q + begin * width,
                         .k = k,
                         .v = v,
                         .o = o,
                         .work = need(foci_plan_work_bytes(plan), 1) };
    status = foci_forward(plan, &io);
    free(io.work);
    foci_plan_free(plan);
    return status;
}

foci_status length_exact_open(const struct lengths *w, int64_t length,
                              struct bench_input **inputs, struct length_exact *e)
{
    const int64_t width = w->problem.heads * w->problem.dim_qk;
    const size_t  n = (size_t)(length * width);
    const bool    all = length <= (int64_t)ROWS * BLOCKS;
    float        *owned[3];
    foci_status   status = FOCI_OK;

    *e = (struct length_exact){ .rows = all ? length : ROWS,
                                .blocks = all ? 1 : BLOCKS,
                                .length = length };
    const size_t floats = (size_t)(e->blocks * e->rows * width);
    const double scratch = 6 * (double)n * sizeof(float);
    if (scratch > memory_available()) return FOCI_ERR_MEMORY;
    const float *q = floats_of(w, inputs, n, BENCH_Q, &owned[0]);
    const float *k = floats_of(w, inputs, n, BENCH_K, &owned[1]);
    const float *v = floats_of(w, inputs, n, BENCH_V, &owned[2]);
    e->o = need(floats, sizeof *e->o);
    for (int64_t b = 0; b < e->blocks && !status; b++)
        status =
            block(w, e, begin_of(e, b), q, k, v, e->o + (size_t)(b * e->rows * width));
    for (int i = 0; i < 3; i++)
        free(owned[i]);
    return status;
}

void length_exact_close(struct length_exact *e)
{
    free(e->o);
    e->o = NULL;
}

double length_error(const struct lengths *w, const struct length_exact *e, const void *o)
{
    const size_t width = (size_t)(w->problem.heads * w->problem.dim_qk);
    const size_t n = (size_t)e->rows * width;
    const size_t bytes = foci_dtype_bytes(w->problem.dtype);
    const bool   bf16 = w->problem.dtype == FOCI_BF16;
    float       *rows = need(n, sizeof *rows);
    double       far = 0, all = 0;

    for (int64_t b = 0; b < e->blocks; b++) {
        const char  *from = (const char *)o + (size_t)begin_of(e, b) * width * bytes;
        const float *exact = e->o + (size_t)b * n;
        if (bf16)
            from_bf16((const uint16_t *)(const void *)from, (int64_t)n, rows);
        else
            memcpy(rows, from, n * sizeof *rows);
        for (size_t t = 0; t < n; t++) {
            const double d = (double)rows[t] - (double)exact[t];
            far += d * d;
            all += (double)exact[t] * (double)exact[t];
        }
    }
    free(rows);
    return sqrt(far / all);
}

/* A parameter that training has yet to give a value. */
static bool learns(const foci_plan *plan)
{
    for (int i = 0; i < foci_plan_param_count(plan); i++) {
        foci_param p = { FOCI_SIZED(foci_param) };
        if (!foci_plan_param(plan, i, &p) && p.keep == FOCI_KEEP_TRAINED) return true;
    }
    return false;
}

bool length_has_error(const struct lengths *w, const foci_plan *plan, bool *untrained)
{
    bool has = w->pass != PASS_STEP;

    *untrained = learns(plan);
    for (int i = 0; i < foci_plan_group_count(plan); i++) {
        foci_group     g = { FOCI_SIZED(foci_group) };
        const unsigned wanted = FOCI_READ_Q | FOCI_READ_K;
        if (foci_plan_group(plan, i, &g)) continue;
        has &= g.heads == g.kv_heads;
        *untrained |= (g.reads & (wanted | FOCI_READ_X)) != wanted;
    }
    return has;
}
