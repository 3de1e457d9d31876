/* two_pass_step.c -- decoding with attention in two passes: see two_pass.c.
 *
 * A sequence has two inner states: one with keys and values for the first pass, and one
 * with keys and the outputs y of the first pass, of which it keeps means.  The second
 * has a key/value head for every query head.  A step without outputs is refused, since
 * outputs are part of the state.
 */
#include <string.h>

#include "engine/engine.h"
#include "engine/shared/call_sums.h"
#include "state/state.h"

enum { FIRST, MEANS, PASSES };

struct two_pass_pool {
    struct inner_pools inner; /* must be first: see state/state.h */
    struct foci_plan   plan[PASSES];
    struct stage       stage[PASSES];
    struct plan_group  group[PASSES];
    foci_mech_def      def[PASSES];
};

static uint64_t mask_all(const foci_mech *m, int64_t i, int64_t j0)
{
    (void)m;
    (void)i;
    (void)j0;
    return 0;
}

static void tiles_none(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    (void)m;
    (void)rows;
    (void)out;
}

/* Plans of the two passes: the first without slots, the second with slots only. */
static void make_plans(const foci_plan *plan, int g, struct two_pass_pool *own)
{
    for (int i = 0; i < PASSES; i++) {
        own->plan[i] = *plan;
        own->stage[i] = plan->stages[g];
        own->group[i] = *plan->stages[g].group;
        own->def[i] = *own->group[i].mech.def;
        own->def[i].two_pass = NULL;
        own->group[i].mech.def = &own->def[i];
        own->stage[i].group = &own->group[i];
        own->stage[i].engine = &engine_exact;
        own->stage[i].decoder = engine_exact.decoder;
        own->plan[i].spec = (struct spec){ &own->group[i], 1 };
        own->plan[i].stages = &own->stage[i];
    }
    own->stage[FIRST].n_levels = 0;
    own->def[MEANS].mask = mask_all;
    own->def[MEANS].tiles = tiles_none;
    own->group[MEANS].kv0 = own->group[MEANS].head0;
    own->group[MEANS].kv_heads = own->group[MEANS].heads;
    own->plan[MEANS].p.kv_heads = plan->p.heads;
}

static foci_status pool_make(foci_pool *pool, int g)
{
    struct two_pass_pool *own = ctx_alloc(pool->plan->ctx, 1, sizeof *own);

    pool->own[g] = own;
    if (!own) return FOCI_ERR_MEMORY;
    make_plans(pool->plan, g, own);
    return inner_pools_make(
        pool, g, (const foci_plan *const[]){ &own->plan[FIRST], &own->plan[MEANS] },
        PASSES);
}

static void pool_free(foci_pool *pool, int g)
{
    if (!pool->own[g]) return;
    inner_pools_free(pool, g);
    ctx_free(pool->plan->ctx, pool->own[g], 1, sizeof(struct two_pass_pool));
    pool->own[g] = NULL;
}

static foci_status two_pass_step_check(const foci_pool *pool, int g,
                                       const foci_step_io *io)
{
    if (!io->o)
        return ctx_fail(pool->plan->ctx, FOCI_ERR_UNSUP,
                        "o of the step is NULL: %s keeps means of outputs, so its "
                        "tokens cannot be only appended",
                        pool->plan->spec.groups[g].mech.def->name);
    return inner_check(pool, g, io);
}

static void append(const struct state_step *step, int g)
{
    for (int64_t s = 0; s < step->n_seqs; s++) {
        struct state_step one = *step;
        struct step_seq   seq;

        one.seqs = &step->seqs[s];
        one.n_seqs = 1;
        struct state_step first = inner_step(&one, g, FIRST, &seq);
        step_append(&first);
    }
}

/* Work memory of a step: rows [rows][heads of the problem] of keys and of both
 * outputs. */
struct two_pass_step {
    struct step_seq *seqs;
    char            *k, *y, *z;
};

static struct two_pass_step two_pass_step_carve(const foci_plan *plan, int64_t n_seqs,
                                                int64_t rows, struct arena *a)
{
    const foci_problem  *p = &plan->p;
    const size_t         el = foci_dtype_bytes(p->dtype);
    struct two_pass_step r;

    r.seqs = arena_alloc(a, n_seqs, sizeof *r.seqs);
    r.k = arena_alloc(a, rows * p->heads, (size_t)p->dim_qk * el);
    r.y = arena_alloc(a, rows * p->heads, (size_t)p->dim_v * el);
    r.z = arena_alloc(a, rows * p->heads, (size_t)p->dim_v * el);
    return r;
}

static size_t step_bytes(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                         int64_t max_len)
{
    struct arena a = { 0 };
    size_t       most = 0;

    two_pass_step_carve(pool->plan, n_seqs, tokens, &a);
    for (int64_t i = 0; i < PASSES; i++) {
        const size_t n = exact_decoder.step_bytes(inner_pool(pool, g, i), 0, n_seqs,
                                                  tokens, max_len);
        if (n > most) most = n;
    }
    arena_alloc(&a, 1, most);
    return a.used;
}

/* A copy of the keys for every query head. */
static void copy_keys(const struct state_step *step, const struct plan_group *g,
                      int64_t row, char *k)
{
    const foci_problem *p = &step->pool->plan->p;
    const size_t        bytes = (size_t)p->dim_qk * foci_dtype_bytes(p->dtype);
    const int64_t       per = g->heads / g->kv_heads;

    for (int64_t h = 0; h < g->heads; h++) {
        const int64_t kv = step->kv0 + (g->kv0 + h / per) * step->kv_step;
        memcpy(k + (size_t)(row * p->heads + g->head0 + h) * bytes,
               (const char *)step->io->k + (size_t)(row * p->kv_heads + kv) * bytes,
               bytes);
    }
}

/* o = (1 - gamma) y + gamma z of one row; gamma is 0 where no run is seen. */
static void mix(const foci_plan *plan, double gamma, const char *y, const char *z,
                char *o)
{
    const struct kernels *k = &plan->ctx->kernels;
    const int64_t         d = plan->p.dim_v;
    const int             dtype = (int)plan->p.dtype;
    _Alignas(64) float    a[SUM_COLUMNS], b[SUM_COLUMNS];

    for (int64_t c = 0; c < d; c += SUM_COLUMNS) {
        const int    n = (int)min64(SUM_COLUMNS, d - c);
        const size_t at = (size_t)c * foci_dtype_bytes(plan->p.dtype);
        k->load_rows(a, SUM_COLUMNS, y + at, d, dtype, 1, n);
        k->load_rows(b, SUM_COLUMNS, z + at, d, dtype, 1, n);
        for (int t = 0; gamma != 0 && t < n; t++)
            a[t] = (float)((1 - gamma) * (double)a[t] + gamma * (double)b[t]);
        k->store_rows(o + at, d, dtype, a, SUM_COLUMNS, 1.0f, 1, n);
    }
}

/* The rows of one sequence. */
static void mix_rows(const struct state_step *step, int g, const struct step_seq *seq,
                     const struct two_pass_step *r)
{
    const foci_plan    *plan = step->pool->plan;
    const struct stage *s = &plan->stages[g];
    const size_t        bytes = (size_t)plan->p.dim_v * foci_dtype_bytes(plan->p.dtype);
    const float        *gamma = step->io->params + s->group->param0[0];

    for (int64_t t = 0; t < seq->tokens; t++)
        for (int64_t h = 0; h < s->group->heads; h++) {
            const int64_t position = seq->state->len - seq->tokens + t;
            const bool    sees = position >= s->levels[0].slots.run_len;
            const size_t  at =
                (size_t)((seq->row0 + t) * plan->p.heads + s->group->head0 + h) * bytes;
            mix(plan, sees ? (double)gamma[h] : 0, r->y + at, r->z + at,
                (char *)step->io->o + at);
        }
}

static void step_all(const struct state_step *step, int g, struct arena work)
{
    const foci_plan         *plan = step->pool->plan;
    const struct plan_group *group = plan->stages[g].group;
    int64_t                  rows = 0;
    foci_step_io             io = *step->io;

    for (int64_t i = 0; i < step->n_seqs; i++)
        rows += step->seqs[i].tokens;
    struct two_pass_step r = two_pass_step_carve(plan, step->n_seqs, rows, &work);

    io.o = r.y;
    struct state_step first = inner_step(step, g, FIRST, r.seqs);
    first.io = &io;
    exact_decoder.step(&first, 0, work);

    for (int64_t i = 0; i < rows; i++)
        copy_keys(step, group, i, r.k);
    io.k = r.k;
    io.v = r.y;
    io.o = r.z;
    struct state_step means = inner_step(step, g, MEANS, r.seqs);
    means.io = &io;
    means.kv0 = 0;
    means.kv_step = 1;
    step_append(&means);
    exact_decoder.step(&means, 0, work);
    for (int64_t i = 0; i < step->n_seqs; i++)
        mix_rows(step, g, &step->seqs[i], &r);
}

const struct decoder two_pass_decoder = {
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
    .check = two_pass_step_check,
    .reserve = inner_reserve,
    .append = append,
    .step_bytes = step_bytes,
    .step = step_all,
    .drop = inner_drop,
};
