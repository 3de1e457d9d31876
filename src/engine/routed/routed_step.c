/* routed_step.c -- decoding with a mixture of attentions: a state for every route, and
 * outputs summed by gates as in routed.c. */
#include <string.h>

#include "engine/routed/routed.h"
#include "state/state.h"

static foci_status pool_make(foci_pool *pool, int g)
{
    const struct stage *s = &pool->plan->stages[g];

    pool->own[g] = ctx_alloc(pool->plan->ctx, 1, sizeof(struct inner_pools));
    if (!pool->own[g]) return FOCI_ERR_MEMORY;
    return inner_pools_make(pool, g, (const foci_plan *const *)s->inner, s->n_inner);
}

static void pool_free(foci_pool *pool, int g)
{
    if (!pool->own[g]) return;
    inner_pools_free(pool, g);
    ctx_free(pool->plan->ctx, pool->own[g], 1, sizeof(struct inner_pools));
    pool->own[g] = NULL;
}

static foci_status routed_step_check(const foci_pool *pool, int g,
                                     const foci_step_io *io)
{
    if (io->o && !io->x)
        return ctx_fail(pool->plan->ctx, FOCI_ERR_ARG,
                        "x of the step is NULL: the gates of %s read hidden states",
                        pool->plan->spec.groups[g].mech.def->name);
    return inner_check(pool, g, io);
}

/* The step of route i, which reads the i-th set of every key/value head of the
 * group. */
static struct state_step route_step(const struct state_step *step, int g, int64_t i,
                                    struct step_seq *seqs)
{
    const struct stage *s = &step->pool->plan->stages[g];
    struct state_step   route = inner_step(step, g, i, seqs);

    route.kv0 = step->kv0 + s->group->kv0 * step->kv_step + i * step->kv_step;
    route.kv_step = step->kv_step * s->n_inner;
    return route;
}

/* There may be no work memory, so sequences are appended one by one. */
static void append(const struct state_step *step, int g)
{
    for (int64_t s = 0; s < step->n_seqs; s++)
        for (int64_t i = 0; i < step->pool->plan->stages[g].n_inner; i++) {
            struct state_step one = *step;
            struct step_seq   seq;

            one.seqs = &step->seqs[s];
            one.n_seqs = 1;
            struct state_step route = route_step(&one, g, i, &seq);
            step_append(&route);
        }
}

/* Work memory of a step. */
struct routed_step {
    struct step_seq *seqs;
    char            *y;    /* [rows][heads of the problem][dv] of one route */
    float           *sum;  /* [rows][heads][dv] */
    float           *gate; /* [rows][heads][routes] */
};

static struct routed_step routed_step_carve(const foci_plan *plan, int g, int64_t n_seqs,
                                            int64_t rows, struct arena *a)
{
    const foci_problem *p = &plan->p;
    const struct stage *s = &plan->stages[g];
    struct routed_step  r;

    r.seqs = arena_alloc(a, n_seqs, sizeof *r.seqs);
    r.y =
        arena_alloc(a, rows * p->heads, (size_t)p->dim_v * foci_dtype_bytes(p->dtype));
    r.sum = arena_alloc(a, rows * s->group->heads, (size_t)p->dim_v * sizeof *r.sum);
    r.gate = arena_alloc(a, rows * s->group->heads * s->n_inner, sizeof *r.gate);
    return r;
}

static size_t step_bytes(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                         int64_t max_len)
{
    struct arena a = { 0 };

    routed_step_carve(pool->plan, g, n_seqs, tokens, &a);
    arena_alloc(&a, 1, step_scratch(inner_pool(pool, g, 0), 0, n_seqs, tokens, max_len));
    return a.used;
}

static int64_t rows_of(const struct state_step *step)
{
    int64_t n = 0;
    for (int64_t i = 0; i < step->n_seqs; i++)
        n += step->seqs[i].tokens;
    return n;
}

static void make_gates(const struct state_step *step, int g, int64_t rows,
                       struct routed_step *r)
{
    const foci_plan    *plan = step->pool->plan;
    const struct stage *s = &plan->stages[g];
    const size_t        x = (size_t)plan->p.dim_x * foci_dtype_bytes(plan->p.dtype);

    for (int64_t i = 0; i < rows * s->group->heads; i++) {
        double gate[MAX_ROUTES];

        routed_gates(plan, s, step->io->params,
                     (const char *)step->io->x + (size_t)(i / s->group->heads) * x,
                     i % s->group->heads, gate);
        for (int64_t t = 0; t < s->n_inner; t++)
            r->gate[i * s->n_inner + t] = (float)gate[t];
    }
}

/* Byte offset of row i of the group among the rows of all heads. */
static size_t row_at(const foci_plan *plan, const struct plan_group *g, int64_t i)
{
    const int64_t row = i / g->heads * plan->p.heads + g->head0 + i % g->heads;
    return (size_t)(row * plan->p.dim_v) * foci_dtype_bytes(plan->p.dtype);
}

/* sum += gate of the route times its output.  Outputs with gate 0 are not read: they
 * may be unspecified. */
static void add_route(const foci_plan *plan, const struct stage *s, int64_t rows,
                      int64_t route, struct routed_step *r)
{
    const int64_t      d = plan->p.dim_v;
    const size_t       el = foci_dtype_bytes(plan->p.dtype);
    _Alignas(64) float part[SUM_COLUMNS];

    for (int64_t i = 0; i < rows * s->group->heads; i++) {
        const float gate = r->gate[i * s->n_inner + route];
        const char *y = r->y + row_at(plan, s->group, i);

        for (int64_t c = 0; gate != 0 && c < d; c += SUM_COLUMNS) {
            const int n = (int)min64(SUM_COLUMNS, d - c);
            plan->ctx->kernels.load_rows(part, SUM_COLUMNS, y + (size_t)c * el, d,
                                         (int)plan->p.dtype, 1, n);
            for (int t = 0; t < n; t++)
                r->sum[i * d + c + t] += gate * part[t];
        }
    }
}

static void store(const foci_plan *plan, const struct stage *s, int64_t rows,
                  const struct routed_step *r, char *o)
{
    const int64_t      d = plan->p.dim_v;
    const size_t       el = foci_dtype_bytes(plan->p.dtype);
    _Alignas(64) float part[SUM_COLUMNS];

    for (int64_t i = 0; i < rows * s->group->heads; i++)
        for (int64_t c = 0; c < d; c += SUM_COLUMNS) {
            const int n = (int)min64(SUM_COLUMNS, d - c);
            memcpy(part, r->sum + i * d + c, (size_t)n * sizeof *part);
            plan->ctx->kernels.store_rows(
                o + row_at(plan, s->group, i) + (size_t)c * el, d, (int)plan->p.dtype,
                part, SUM_COLUMNS, 1.0f, 1, n);
        }
}

static void step_all(const struct state_step *step, int g, struct arena work)
{
    const foci_plan    *plan = step->pool->plan;
    const struct stage *s = &plan->stages[g];
    const int64_t       rows = rows_of(step);
    struct routed_step  r = routed_step_carve(plan, g, step->n_seqs, rows, &work);
    foci_step_io        io = *step->io;

    io.o = r.y;
    make_gates(step, g, rows, &r);
    memset(r.sum, 0, (size_t)(rows * s->group->heads * plan->p.dim_v) * sizeof *r.sum);
    for (int64_t i = 0; i < s->n_inner; i++) {
        struct state_step route = route_step(step, g, i, r.seqs);
        route.io = &io;
        decoder_of(s->inner[i], 0)->step(&route, 0, work);
        add_route(plan, s, rows, i, &r);
    }
    store(plan, s, rows, &r, step->io->o);
}

const struct decoder routed_decoder = {
    .pool_make = pool_make,
    .pool_grow = inner_pools_grow,
    .pool_pages = inner_pools_pages,
    .pool_free = pool_free,
    .make = inner_make,
    .copy = inner_copy,
    .free = inner_free,
    .bytes = inner_bytes,
    .save = inner_save,
    .restore = inner_restore,
    .truncate = inner_truncate,
    .check = routed_step_check,
    .reserve = inner_reserve,
    .append = append,
    .step_bytes = step_bytes,
    .step = step_all,
    .drop = inner_drop,
};
