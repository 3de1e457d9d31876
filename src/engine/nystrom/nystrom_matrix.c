/* nystrom_matrix.c -- products of square matrices in blocks, one job for each block of
 * rows. */
#include "engine/nystrom/nystrom_matrix.h"

#include <assert.h>

enum { DEPTH = 256 }; /* terms summed at a time */

size_t matrix_bytes(const struct inverse *x)
{
    return (size_t)x->m * (size_t)x->ld * sizeof(float);
}

float *matrix_scratch(const struct inverse *x, int64_t i)
{
    return x->scratch + i * x->m * x->ld;
}

void matrix_jobs(const struct inverse *x, int64_t n, void (*job)(void *, int64_t, int),
                 void *arg)
{
    if (x->parallel) {
        phases_run(x->k, x->shared, x->threads, &(struct phase){ n, 1, job, arg }, 1);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        job(arg, i, 0);
}

static void product_block(const struct matrix_product *p, int row, int n, int col,
                          int cols)
{
    const struct inverse *x = p->x;
    _Alignas(64) float    sum[MATRIX_BLOCK * MATRIX_BLOCK];
    const int64_t ra = p->transposed ? 1 : x->ld, ca = p->transposed ? x->ld : 1;

    assert(x->m > 0);
    for (int t = 0; t < x->m; t += DEPTH)
        x->k->gemm_f32(sum, MATRIX_BLOCK, p->a + row * ra + t * ca, ra, ca,
                       p->b + (int64_t)t * x->ld + col, x->ld, n, cols,
                       (int)min64(DEPTH, x->m - t), t > 0);
    for (int i = 0; i < n; i++) {
        float *to = p->to + (int64_t)(row + i) * x->ld + col;
        for (int j = 0; j < cols; j++)
            to[j] = (p->add ? to[j] : 0) + p->by * sum[i * MATRIX_BLOCK + j];
        if (row + i >= col && row + i < col + cols) to[row + i - col] += (float)p->unit;
    }
}

static void product_job(void *arg, int64_t i, int thread)
{
    const struct matrix_product *p = arg;
    const int row = (int)i * MATRIX_BLOCK, wide = (int)round_up(p->x->m, 16);

    (void)thread;
    for (int col = 0; col < wide; col += MATRIX_BLOCK)
        product_block(p, row, (int)min64(MATRIX_BLOCK, p->x->m - row), col,
                      (int)min64(MATRIX_BLOCK, wide - col));
}

void matrix_multiply(const struct inverse *x, struct matrix_product p)
{
    assert(p.to != p.a && p.to != p.b);
    p.x = x;
    matrix_jobs(x, div_up(x->m, MATRIX_BLOCK), product_job, &p);
}

void matrix_ab(const struct inverse *x, float *to, const float *a, const float *b)
{
    matrix_multiply(x, (struct matrix_product){ .to = to, .by = 1, .a = a, .b = b });
}

void matrix_unit_minus_ab(const struct inverse *x, float *to, double unit,
                          const float *a, const float *b)
{
    matrix_multiply(
        x, (struct matrix_product){ .to = to, .unit = unit, .by = -1, .a = a, .b = b });
}

void matrix_atb(const struct inverse *x, float *to, float by, const float *a,
                const float *b)
{
    matrix_multiply(x, (struct matrix_product){
                           .to = to, .by = by, .a = a, .transposed = true, .b = b });
}

void matrix_add_abt(const struct inverse *x, float *to, float by, const float *a,
                    const float *b, float *spare)
{
    matrix_transpose(x, b, spare);
    matrix_multiply(x, (struct matrix_product){
                           .to = to, .by = by, .a = a, .b = spare, .add = true });
}

/* A map of elements from one matrix to another. */
struct matrix_map {
    const struct inverse *x;
    const float          *from;
    float                *to;
    float                 unit;
};

static void transpose_job(void *arg, int64_t row, int thread)
{
    const struct matrix_map *t = arg;

    (void)thread;
    for (int j = 0; j < t->x->m; j++)
        t->to[row * t->x->ld + j] = t->from[(int64_t)j * t->x->ld + row];
    for (int j = t->x->m; j < t->x->ld; j++)
        t->to[row * t->x->ld + j] = 0;
}

void matrix_transpose(const struct inverse *x, const float *from, float *to)
{
    matrix_jobs(x, x->m, transpose_job,
                &(struct matrix_map){ .x = x, .from = from, .to = to });
}

static void unit_minus_job(void *arg, int64_t row, int thread)
{
    const struct matrix_map *t = arg;
    const float             *from = t->from + row * t->x->ld;
    float                   *to = t->to + row * t->x->ld;

    (void)thread;
    for (int j = 0; j < t->x->ld; j++)
        to[j] = -from[j];
    to[row] += t->unit;
}

void matrix_unit_minus(const struct inverse *x, float *to, float unit, const float *from)
{
    matrix_jobs(x, x->m, unit_minus_job,
                &(struct matrix_map){ .x = x, .from = from, .to = to, .unit = unit });
}
