/* linear_step_state.c -- the sums that a decoding state keeps: made, copied, saved. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/linear/decode/linear_step.h"

/* Bytes in whole cache lines. */
static size_t lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

static struct linear_sums_layout layout_of(const struct linear *x)
{
    const size_t              m = (size_t)x->m;
    struct linear_sums_layout l = {
        .shared = !linear_step_projects(x) && !x->l->decays,
        .lds = (int)round_up(x->dv, 8),
        .m_full = (int)round_up(x->m, LANES),
        .has_total = x->divides || x->l->norm == FOCI_LINEAR_NORM_FEATURE,
    };

    l.sets = l.shared ? x->kv_heads : x->heads;
    l.total = lines(m * (size_t)l.lds * sizeof(double));
    l.max_log = l.total + (l.has_total ? lines(m * sizeof(double)) : 0);
    l.all = l.max_log + (x->logs        ? (size_t)l.m_full * sizeof(float)
                         : x->lane_logs ? lines(sizeof(float))
                                        : 0);
    return l;
}

struct linear_step_sums linear_step_sums_at(const struct linear_step *s, void *sets,
                                            int64_t i)
{
    char *at = (char *)sets + (size_t)i * s->layout.all;

    return (struct linear_step_sums){ (double *)(void *)at,
                                      (double *)(void *)(at + s->layout.total),
                                      (float *)(void *)(at + s->layout.max_log) };
}

struct linear_step linear_step_geometry(const foci_plan *plan, int g)
{
    struct linear_step s = { 0 };

    linear_geometry(&s.x, plan, &plan->stages[g]);
    s.layout = layout_of(&s.x);
    s.ldx = round_up(s.x.dq, LANES);
    return s;
}

/* No tokens yet: the largest log of none is -inf. */
static void clear(const struct linear_step *s, void *sets)
{
    memset(sets, 0, s->layout.all * (size_t)s->layout.sets);
    for (int64_t i = 0; i < s->layout.sets; i++) {
        float    *max_log = linear_step_sums_at(s, sets, i).max_log;
        const int n = s->x.logs ? s->layout.m_full : s->x.lane_logs;
        for (int t = 0; t < n; t++)
            max_log[t] = -INFINITY;
    }
}

/* The tables of the maps; a null arena counts. */
static void fill_pool(const foci_plan *plan, int g, struct linear_pool *own,
                      struct arena *a)
{
    struct linear x;

    linear_geometry(&x, plan, &plan->stages[g]);
    x.seqs = &own->seq;
    x.n_seqs = 1;
    linear_maps_carve(&x, a);
    own->maps = x.maps;
    own->rotation = arena_alloc(a, x.rope ? x.m : 0, sizeof *own->rotation);
    for (int64_t t = 0; a->base && x.rope && t < x.m / 2; t++) {
        own->rotation[2 * t] = cos(x.maps.speeds[t]);
        own->rotation[2 * t + 1] = sin(x.maps.speeds[t]);
    }
}

foci_status linear_step_pool_make(foci_pool *pool, int g)
{
    foci_ctx           *ctx = pool->plan->ctx;
    struct linear_pool *own = ctx_alloc(ctx, 1, sizeof *own);
    struct arena        a = { 0 };

    pool->own[g] = own;
    if (!own) return FOCI_ERR_MEMORY;
    fill_pool(pool->plan, g, own, &a);
    own->bytes = a.used;
    own->tables = ctx_alloc(ctx, own->bytes, 1);
    if (!own->tables) return FOCI_ERR_MEMORY;
    a = (struct arena){ .base = own->tables };
    fill_pool(pool->plan, g, own, &a);
    return FOCI_OK;
}

void linear_step_pool_free(foci_pool *pool, int g)
{
    struct linear_pool *own = pool->own[g];

    if (!own) return;
    ctx_free(pool->plan->ctx, own->tables, own->bytes, 1);
    ctx_free(pool->plan->ctx, own, 1, sizeof *own);
    pool->own[g] = NULL;
}

foci_status linear_step_state_make(foci_state *state, int g)
{
    const foci_plan         *plan = state->pool->plan;
    const struct linear_step s = linear_step_geometry(plan, g);

    state->own[g] = ctx_alloc(plan->ctx, (size_t)s.layout.sets, s.layout.all);
    if (!state->own[g]) return FOCI_ERR_MEMORY;
    clear(&s, state->own[g]);
    return FOCI_OK;
}

size_t linear_step_state_bytes(const foci_state *state, int g)
{
    const struct linear_step s = linear_step_geometry(state->pool->plan, g);
    return s.layout.all * (size_t)s.layout.sets;
}

foci_status linear_step_state_copy(const foci_state *from, foci_state *to, int g)
{
    memcpy(to->own[g], from->own[g], linear_step_state_bytes(from, g));
    return FOCI_OK;
}

void linear_step_state_free(foci_state *state, int g)
{
    const foci_plan         *plan = state->pool->plan;
    const struct linear_step s = linear_step_geometry(plan, g);

    ctx_free(plan->ctx, state->own[g], (size_t)s.layout.sets, s.layout.all);
    state->own[g] = NULL;
}

void linear_step_state_save(const foci_state *state, int g, struct state_writer *w)
{
    write_bytes(w, state->own[g], linear_step_state_bytes(state, g));
}

foci_status linear_step_state_restore(foci_state *state, int g, struct state_reader *r)
{
    return read_bytes(r, state->own[g], linear_step_state_bytes(state, g))
               ? FOCI_OK
               : state_damaged(state->pool);
}

foci_status linear_step_state_truncate(foci_state *state, int g, int64_t len,
                                       bool really)
{
    const foci_plan *plan = state->pool->plan;

    if (len)
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP,
                        "the state cannot be cut back to %" PRId64
                        " tokens: %s keeps sums over all of them, which forget none",
                        len, plan->spec.groups[g].mech.def->name);
    if (really) {
        const struct linear_step s = linear_step_geometry(plan, g);
        clear(&s, state->own[g]);
    }
    return FOCI_OK;
}
