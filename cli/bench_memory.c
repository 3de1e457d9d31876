/* bench_memory.c -- the memory that a case takes, counted before it is measured: a process that
 * takes more than there is would be killed, and what was measured before lost. */
#include <stdlib.h>

#include "bench.h"
#include "foci/product.h"

static const double most_memory = 0.9; /* share of what is available */

double bench_most_memory(void) { return most_memory * memory_available(); }

bool bench_fits(double bytes)
{
    if (!(bytes < bench_most_memory()) || bytes > 0x1p62) return false;
    void *const all = malloc((size_t)bytes + 1);
    free(all);
    return all != NULL;
}

/* States with all their keys, and the rows that fill them a page at a time. */
static foci_status steps_bytes(const foci_plan *plan, const foci_layer *layer,
                               const struct bench_case *c, double *bytes)
{
    const int64_t n = c->problem.len_q > FOCI_PAGE ? c->problem.len_q : FOCI_PAGE;
    const int64_t pages = c->problem.len_k / FOCI_PAGE + 2;
    foci_problem  p = { FOCI_SIZED(foci_problem) };
    foci_pool    *pool = NULL;

    foci_plan_get_problem(plan, &p);
    const foci_status status = foci_pool_create(plan, 0, &pool);
    if (status) return status;
    const double rows = (double)p.batch * (double)n;
    const double row = (double)p.dim_x +
                       (double)p.heads * (double)(p.dim_qk + p.dim_v) +
                       (double)p.kv_heads * (double)(p.dim_qk + p.dim_v);
    const size_t work =
        layer ? foci_layer_step_work_bytes(layer, pool, p.batch, p.batch * n, p.len_k)
              : foci_step_work_bytes(pool, p.batch, p.batch * n, p.len_k);
    *bytes = (double)p.batch * (double)pages * (double)foci_pool_page_bytes(pool) +
             rows * row * (double)foci_dtype_bytes(p.dtype) + (double)work;
    if (layer)
        *bytes += (double)foci_layer_precompute_bytes(layer) +
                  (double)sizeof(float) * (double)foci_layer_param_floats(layer);
    foci_pool_free(pool);
    return FOCI_OK;
}

foci_status bench_plan_bytes(const foci_plan *plan, const struct bench_case *c,
                             bool device, const struct bench_input *drawn, double *bytes)
{
    if (c->pass == PASS_STEP && !device) return steps_bytes(plan, NULL, c, bytes);
    *bytes = (double)bench_job_bytes(plan, c->pass, drawn) +
             (double)foci_plan_work_bytes(plan) +
             (c->pass == PASS_FWD ? 0 : (double)foci_plan_saved_bytes(plan));
    return FOCI_OK;
}

foci_status bench_layer_bytes(const foci_layer *layer, const struct bench_case *c,
                              double *bytes)
{
    const bool         back = c->pass != PASS_FWD;
    foci_layer_problem p = { FOCI_SIZED(foci_layer_problem) };

    if (c->pass == PASS_STEP)
        return steps_bytes(foci_layer_plan(layer), layer, c, bytes);
    foci_layer_get_problem(layer, &p);
    const double rows = (double)p.batch * (double)(p.len + p.memory) * (double)p.width +
                        (double)p.batch * (double)p.len_source * (double)p.width_source;
    const double floats = (double)foci_layer_param_floats(layer) * sizeof(float);
    *bytes = (back ? 4 : 2) * rows * (double)foci_dtype_bytes(p.dtype) +
             (back ? 2 : 1) * floats + (double)foci_layer_work_bytes(layer) +
             (back ? (double)foci_layer_saved_bytes(layer) : 0);
    return FOCI_OK;
}

double bench_product_bytes(foci_ctx *ctx, const struct bench_case *c)
{
    const struct bench_product *p = &c->product;
    const double                m = (double)p->m, n = (double)p->n, k = (double)p->k;
    const foci_dtype            type = c->problem.dtype;
    const foci_product_io       io = { FOCI_SIZED(foci_product_io),
                                       .m = p->m,
                                       .n = p->n,
                                       .k = p->k,
                                       .type_a = type,
                                       .type_b = type,
                                       .type_c = type,
                                       .flags = p->flags };

    return (m * k + k * n + m * n) * (double)foci_dtype_bytes(type) +
           (double)foci_product_work_bytes(ctx, &io);
}

int bench_refuse_memory(const struct args *a, const struct bench_case *c, double bytes)
{
    char needs[16], had[16];

    if (bench_fits(bytes)) return EXIT_OK;
    return failure(a, "case \"%s\" needs %sB of memory, and %sB can be had", c->text,
                   thousands(bytes, needs), thousands(bench_most_memory(), had));
}
