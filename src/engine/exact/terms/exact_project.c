/* exact_project.c -- projection of q and k, before any other row map, by matrices of
 * each head.
 *
 * Products are of floats at all levels: they are few beside those of pairs.  The
 * gradient of a matrix is summed over the rows of its head in order, by one thread.
 */
#include <string.h>

#include "engine/exact/terms/exact_project.h"

bool exact_has_project(const struct exact *x)
{
    return x->score->map == FOCI_MAP_PROJECT;
}

/* Floats of a matrix, and of its transpose. */
static int64_t matrix_floats(const struct exact *x)
{
    return (int64_t)x->d.in * x->d.ldq;
}

static int64_t transposed_floats(const struct exact *x)
{
    return (int64_t)x->d.q * x->d.ld_in;
}

void exact_project_carve(struct exact *x, struct arena *a, bool back)
{
    struct project_matrices *p = &x->project;

    if (!exact_has_project(x)) return;
    for (int i = 0; i < 2; i++)
        p->matrix[i] =
            arena_alloc(a, x->heads * matrix_floats(x), sizeof *p->matrix[i]);
    for (int i = 0; back && i < 2; i++) {
        p->back[i] =
            arena_alloc(a, x->heads * transposed_floats(x), sizeof *p->back[i]);
        p->d[i] = arena_alloc(a, x->heads * matrix_floats(x), sizeof *p->d[i]);
    }
    p->input =
        arena_alloc(a, (int64_t)x->threads * TILE * x->d.ld_in, sizeof *p->input);
}

void exact_project_prepare(const struct exact *x, bool back)
{
    const struct project_matrices *p = &x->project;
    const size_t                   floats = (size_t)(x->heads * matrix_floats(x));

    for (int i = 0; exact_has_project(x) && i < 2; i++) {
        memset(p->matrix[i], 0, floats * sizeof *p->matrix[i]);
        if (back) memset(p->d[i], 0, floats * sizeof *p->d[i]);
        for (int64_t h = 0; h < x->heads; h++) {
            const float *from = x->io->params + x->stage->group->param0[i] +
                                h * x->d.in * (int64_t)x->d.q;
            float *matrix = p->matrix[i] + h * matrix_floats(x);

            x->k->load_rows(matrix, x->d.ldq, from, x->d.q, FOCI_F32, x->d.in, x->d.q);
            for (int c = 0; back && c < x->d.q; c++) {
                float *row =
                    p->back[i] + h * transposed_floats(x) + (int64_t)c * x->d.ld_in;
                memset(row, 0, (size_t)x->d.ld_in * sizeof *row);
                for (int t = 0; t < x->d.in; t++)
                    row[t] = matrix[(int64_t)t * x->d.ldq + c];
            }
        }
    }
}

float *exact_project_input(const struct exact *x)
{
    return x->project.input + (int64_t)exact_thread() * TILE * x->d.ld_in;
}

void exact_project(const struct exact *x, int64_t head, bool keys, const float *input,
                   int n, float *to)
{
    x->k->gemm_f32(to, x->d.ldq, input, x->d.ld_in, 1,
                   x->project.matrix[keys] + head * matrix_floats(x), x->d.ldq, n,
                   x->d.ldq, x->d.in, 0);
}

void exact_project_back(const struct exact *x, int64_t head, bool keys, const float *d,
                        int n, float *input)
{
    x->k->gemm_f32(input, x->d.ld_in, d, x->d.ldq, 1,
                   x->project.back[keys] + head * transposed_floats(x), x->d.ld_in, n,
                   x->d.ld_in, x->d.q, 0);
}

/* Zero the rows that have no gradient: whatever their elements are, they contribute
 * none. */
static void clear_blind(const struct exact *x, float *input, const float *d, int n)
{
    for (int i = 0; i < n; i++) {
        const float *row = d + (int64_t)i * x->d.ldq;
        int          moves = 0;

        for (int c = 0; c < x->d.q; c++)
            moves += row[c] != 0;
        if (!moves)
            memset(input + (int64_t)i * x->d.ld_in, 0,
                   (size_t)x->d.ld_in * sizeof *input);
    }
}

void exact_project_sum(const struct exact *x, int64_t head, bool keys, float *input,
                       const float *d, int n)
{
    clear_blind(x, input, d, n);
    x->k->gemm_f32(x->project.d[keys] + head * matrix_floats(x), x->d.ldq, input, 1,
                   x->d.ld_in, d, x->d.ldq, x->d.in, x->d.ldq, n, 1);
}

void exact_project_params(const struct exact *x, float *dparams)
{
    for (int i = 0; exact_has_project(x) && i < 2; i++)
        for (int64_t row = 0; row < x->heads * x->d.in; row++) {
            const float *from = x->project.d[i] + row * x->d.ldq;
            float       *to = dparams + x->stage->group->param0[i] + row * x->d.q;

            for (int c = 0; c < x->d.q; c++)
                to[c] += from[c];
        }
}
