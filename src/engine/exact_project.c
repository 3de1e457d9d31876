/* exact_project.c -- rows of q and k that are projected before anything else is done to
 * them: each head has a matrix of its own for its queries and one for its keys.
 *
 * Products are of floats on every level: they are few beside those of pairs.  Gradients
 * of the matrices are summed over the rows of a head in their order, by one thread.
 */
#include <string.h>

#include "engine/exact_pack.h"

bool exact_projects(const struct exact *x) { return x->score->map == FOCI_MAP_PROJECT; }

/* Floats of a matrix, and of a transposed one. */
static int64_t floats_of(const struct exact *x) { return (int64_t)x->given * x->ldq; }

static int64_t floats_back(const struct exact *x)
{
    return (int64_t)x->dq * x->ld_given;
}

void exact_project_take(struct exact *x, struct arena *a, bool back)
{
    struct projections *p = &x->projected;

    if (!exact_projects(x)) return;
    for (int i = 0; i < 2; i++)
        p->by[i] = arena_take(a, x->heads * floats_of(x), sizeof *p->by[i]);
    for (int i = 0; back && i < 2; i++) {
        p->back[i] = arena_take(a, x->heads * floats_back(x), sizeof *p->back[i]);
        p->d[i] = arena_take(a, x->heads * floats_of(x), sizeof *p->d[i]);
    }
    p->wide = arena_take(a, (int64_t)x->threads * TILE * x->ld_given, sizeof *p->wide);
}

void exact_project_make(const struct exact *x, bool back)
{
    const struct projections *p = &x->projected;
    const size_t              floats = (size_t)(x->heads * floats_of(x));

    for (int i = 0; exact_projects(x) && i < 2; i++) {
        memset(p->by[i], 0, floats * sizeof *p->by[i]);
        if (back) memset(p->d[i], 0, floats * sizeof *p->d[i]);
        for (int64_t h = 0; h < x->heads; h++) {
            const float *from = x->io->params + x->stage->group->param0[i] +
                                h * x->given * (int64_t)x->dq;
            float *by = p->by[i] + h * floats_of(x);

            x->k->load_rows(by, x->ldq, from, x->dq, FOCI_F32, x->given, x->dq);
            for (int c = 0; back && c < x->dq; c++) {
                float *row = p->back[i] + h * floats_back(x) + (int64_t)c * x->ld_given;
                memset(row, 0, (size_t)x->ld_given * sizeof *row);
                for (int t = 0; t < x->given; t++)
                    row[t] = by[(int64_t)t * x->ldq + c];
            }
        }
    }
}

float *exact_wide(const struct exact *x)
{
    return x->projected.wide + (int64_t)exact_thread() * TILE * x->ld_given;
}

void exact_project(const struct exact *x, int64_t head, bool keys, const float *wide,
                   int n, float *to)
{
    x->k->gemm_f32(to, x->ldq, wide, x->ld_given, 1,
                   x->projected.by[keys] + head * floats_of(x), x->ldq, n, x->ldq,
                   x->given, 0);
}

void exact_project_back(const struct exact *x, int64_t head, bool keys, const float *d,
                        int n, float *wide)
{
    x->k->gemm_f32(wide, x->ld_given, d, x->ldq, 1,
                   x->projected.back[keys] + head * floats_back(x), x->ld_given, n,
                   x->ld_given, x->dq, 0);
}

/* A row without a gradient brings none, whatever stands in it. */
static void clear_still(const struct exact *x, float *wide, const float *d, int n)
{
    for (int i = 0; i < n; i++) {
        const float *row = d + (int64_t)i * x->ldq;
        int          moves = 0;

        for (int c = 0; c < x->dq; c++)
            moves += row[c] != 0;
        if (!moves)
            memset(wide + (int64_t)i * x->ld_given, 0,
                   (size_t)x->ld_given * sizeof *wide);
    }
}

void exact_project_sum(const struct exact *x, int64_t head, bool keys, float *wide,
                       const float *d, int n)
{
    clear_still(x, wide, d, n);
    x->k->gemm_f32(x->projected.d[keys] + head * floats_of(x), x->ldq, wide, 1,
                   x->ld_given, d, x->ldq, x->given, x->ldq, n, 1);
}

void exact_project_params(const struct exact *x, float *dparams)
{
    for (int i = 0; exact_projects(x) && i < 2; i++)
        for (int64_t row = 0; row < x->heads * x->given; row++) {
            const float *from = x->projected.d[i] + row * x->ldq;
            float       *to = dparams + x->stage->group->param0[i] + row * x->dq;

            for (int c = 0; c < x->dq; c++)
                to[c] += from[c];
        }
}
