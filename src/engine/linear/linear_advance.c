/* linear_advance.c -- parameters that performer moves itself: new random directions
 * every so many training steps, and statistics of a batch, which are then frozen. */
#include <math.h>
#include <stdio.h>

#include "engine/linear/features/linear_features.h"

enum { OMEGA, A, BX, BY, CX, CY, N_STATS = CY - A + 1 };

static void write(const double *from, int64_t n, int64_t at, int64_t h, float *params)
{
    for (int64_t t = 0; at >= 0 && t < n; t++)
        params[at + h * n + t] = (float)from[t];
}

static void calibrate_head(const struct linear *x, const foci_io *io,
                           const struct seq *seqs, int64_t h, struct linear_stats *r,
                           float *params)
{
    const int64_t *at = x->stage->group->param0, d = x->dq;

    linear_stats_clear(x, r);
    for (int64_t i = 0; i < x->n_seqs; i++)
        linear_stats_add(x, io, &seqs[i], h, r);
    linear_stats_solve(x, r);
    write(r->e.a, d, at[A], h, params);
    write(r->e.bx, d * d, at[BX], h, params);
    write(r->e.by, d * d, at[BY], h, params);
    write(r->e.cx, d * d, at[CX], h, params);
    write(r->e.cy, d * d, at[CY], h, params);
}

foci_status linear_calibrate(const foci_plan *plan, const struct stage *s,
                             const foci_io *io, float *params)
{
    struct linear       x;
    struct linear_stats r;
    struct arena        size = { 0 };

    linear_geometry(&x, plan, s);
    if (!x.l->moments) return FOCI_OK;
    linear_stats_carve(&x, &size, &r);
    arena_alloc(&size, x.max_seqs, sizeof(struct seq));
    char *scratch = ctx_alloc(plan->ctx, size.used, 1);
    if (!scratch) return FOCI_ERR_MEMORY;

    struct arena a = { .base = scratch };
    linear_stats_carve(&x, &a, &r);
    struct seq *seqs = arena_alloc(&a, x.max_seqs, sizeof *seqs);
    x.n_seqs = plan_seqs(plan, io, seqs);
    for (int64_t h = 0; h < x.heads; h++)
        calibrate_head(&x, io, seqs, h, &r, params);
    ctx_free(plan->ctx, scratch, size.used, 1);
    return FOCI_OK;
}

/* The seed of draw number n: a splitmix64 sequence, so that no two draws share
 * numbers. */
static uint64_t seed_of(const foci_plan *plan, int64_t n)
{
    return plan->p.seed + (uint64_t)n * UINT64_C(0x9E3779B97F4A7C15);
}

/* Statistics that are NaN, and so are found in each sequence, stay NaN. */
static foci_status redraw(const foci_plan *plan, const struct stage *s,
                          const foci_io *io, int64_t n, float *params)
{
    const int64_t *at = s->group->param0;

    TRY(params_draw(plan, at[OMEGA], seed_of(plan, n), params));
    if (!s->linear.moments || isnan(io->params[at[A]])) return FOCI_OK;
    return linear_calibrate(plan, s, io, params);
}

/* A step that fails leaves the parameters unchanged. */
foci_status linear_advance(const foci_plan *plan, const struct stage *s,
                           const foci_io *io, float *params)
{
    const struct plan_group *g = s->group;
    const foci_linear       *l = &s->linear;

    if (l->redraw <= 0) return FOCI_OK;
    const int64_t at = g->param0[g->mech.def->n_tensors - 1];
    const int64_t steps = (int64_t)io->params[at] + 1;

    if (steps % l->redraw == 0) TRY(redraw(plan, s, io, steps / l->redraw, params));
    for (int64_t h = 0; h < g->heads; h++)
        params[at + h] = (float)steps;
    return FOCI_OK;
}

/*
 * Checks
 */

/* How many of the statistics are NaN; *all: of how many. */
static int64_t count_unknown(const struct linear *x, const float *params, int64_t *all)
{
    const int64_t d = x->dq;
    int64_t       n = 0;

    *all = 0;
    for (int t = 0; t < N_STATS; t++) {
        const int64_t at = x->stage->group->param0[A + t];
        const int64_t count = at < 0 ? 0 : x->heads * (t ? d * d : d);

        for (int64_t i = 0; i < count; i++)
            n += isnan(params[at + i]);
        *all += count;
    }
    return n;
}

foci_status linear_check(const foci_plan *plan, const struct stage *s,
                         const foci_io *io, char *text, size_t cap)
{
    const char   *name = s->group->mech.def->name;
    struct linear x;
    int64_t       all = 0;

    linear_geometry(&x, plan, s);
    if (io->lse) {
        snprintf(
            text, cap,
            "io.lse is given, but %s has no logits to sum the powers of: give NULL",
            name);
        return FOCI_ERR_ARG;
    }
    const int64_t unknown = x.l->moments ? count_unknown(&x, io->params, &all) : 0;
    if (unknown && unknown < all) {
        snprintf(text, cap,
                 "%lld of the %lld numbers of %s's statistics, from A on, are NaN: "
                 "give all of them, or none",
                 (long long)unknown, (long long)all, name);
        return FOCI_ERR_ARG;
    }
    if (unknown && x.causal) {
        snprintf(text, cap,
                 "%s that is causal needs statistics that are frozen: calibrate by "
                 "foci_params_calibrate() or run --calibrate, or give A and what "
                 "follows it",
                 name);
        return FOCI_ERR_ARG;
    }
    return FOCI_OK;
}
