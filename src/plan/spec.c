/* spec.c -- operations on a parsed spec: distributing heads, freeing. */
#include "plan/spec.h"

#include <inttypes.h>

/* Heads counted, and the group that is to take the rest. */
static int64_t sum_heads(const struct spec *spec, struct plan_group **open)
{
    int64_t sum = 0;
    *open = NULL;
    for (int i = 0; i < spec->n_groups; i++) {
        struct plan_group *g = &spec->groups[i];
        sum += g->heads;
        if (!g->heads) *open = g;
    }
    return sum;
}

/* An inner mechanism works on the head of the one around it. */
static void set_dims(foci_mech *m, const foci_problem *p, int group)
{
    for (; m; m = (foci_mech *)m->inner) {
        m->dims = (foci_dims){ .qk = p->dim_qk,
                               .v = p->dim_v ? p->dim_v : p->dim_qk,
                               .x = p->dim_x,
                               .len = p->len_k,
                               .len_q = p->len_q,
                               .planned = p->len_k };
        m->causal = p->flags & FOCI_FLAG_CAUSAL;
        m->seed = p->seed;
        m->stream = (uint64_t)group << 32;
    }
}

static foci_status refuse_kv(foci_ctx *ctx, const foci_problem *p, int64_t all)
{
    if (all == p->heads)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "kv_heads is %" PRId64 ": it must divide the %" PRId64 " heads",
                        p->kv_heads, all);
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "kv_heads is %" PRId64 ": it must divide the %" PRId64
                    " sets of keys and values that the %" PRId64 " heads have",
                    p->kv_heads, all, p->heads);
}

/* Key/value heads: every head has one, or one for each of its routes, and so many
 * neighbouring heads share them. */
static foci_status share_kv(foci_ctx *ctx, struct spec *spec, foci_problem *p)
{
    int64_t all = 0, at = 0;

    for (int i = 0; i < spec->n_groups; i++)
        all += spec->groups[i].heads * mech_routes(&spec->groups[i].mech);
    if (!p->kv_heads) p->kv_heads = all;
    if (p->kv_heads < 1 || all % p->kv_heads) return refuse_kv(ctx, p, all);
    const int64_t per = all / p->kv_heads;
    for (int i = 0; i < spec->n_groups; i++) {
        struct plan_group *g = &spec->groups[i];
        const int64_t      n = g->heads * mech_routes(&g->mech);

        if (g->heads % per && spec->n_groups == 1)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "kv_heads is %" PRId64 ": a head of %s has %" PRId64
                            " sets of keys and values, so that it must be a multiple "
                            "of %" PRId64 " that divides %" PRId64,
                            p->kv_heads, g->mech.def->name, n / g->heads, n / g->heads,
                            n);
        if (g->heads % per)
            return ctx_fail(ctx, FOCI_ERR_UNSUP,
                            "column %d: %s has heads %" PRId64 " to %" PRId64
                            ", which cuts through the %" PRId64
                            " heads that share a key/value head; counts must be "
                            "multiples of %" PRId64,
                            g->column, g->mech.def->name, g->head0,
                            g->head0 + g->heads - 1, per, per);
        g->kv0 = at / per;
        g->kv_heads = n / per;
        at += n;
    }
    return FOCI_OK;
}

foci_status spec_share(foci_ctx *ctx, struct spec *spec, foci_problem *p)
{
    struct plan_group *open;
    const int64_t      sum = sum_heads(spec, &open);

    if (open && sum >= p->heads)
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "column %d: no head is left for %s: counts take %lld, and there are %lld",
            open->column, open->mech.def->name, (long long)sum, (long long)p->heads);
    if (!open && sum != p->heads)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "the spec counts %lld head%s, the problem has %lld",
                        (long long)sum, sum == 1 ? "" : "s", (long long)p->heads);
    if (open) open->heads = p->heads - sum;

    int64_t head = 0;
    for (int i = 0; i < spec->n_groups; i++) {
        struct plan_group *g = &spec->groups[i];
        g->head0 = head;
        head += g->heads;
        set_dims(&g->mech, p, i);
    }
    return share_kv(ctx, spec, p);
}

foci_status spec_assign(foci_ctx *ctx, struct spec *spec, foci_problem *p)
{
    TRY(spec_share(ctx, spec, p));
    return lists_copy(ctx, spec, p);
}

static void free_parts(foci_ctx *ctx, foci_mech *m)
{
    ctx_free(ctx, (void *)m->mods, m->n_mods, sizeof *m->mods);
    if (!m->inner) return;
    free_parts(ctx, (foci_mech *)m->inner);
    ctx_free(ctx, (void *)m->inner, 1, sizeof *m->inner);
}

void spec_free(foci_ctx *ctx, struct spec *spec)
{
    for (int i = 0; i < spec->n_groups; i++) {
        struct plan_group *g = &spec->groups[i];
        ctx_free(ctx, g->mod_param, g->mech.n_mods, sizeof *g->mod_param);
        ctx_free(ctx, g->list, (size_t)g->mech.n_list, sizeof *g->list);
        if (g->mech.inner) {
            ctx_free(ctx, g->inner_mod, g->mech.inner->n_mods, sizeof *g->inner_mod);
            ctx_free(ctx, g->inner_list, (size_t)g->mech.inner->n_list,
                     sizeof *g->inner_list);
        }
        free_parts(ctx, &g->mech);
    }
    ctx_free(ctx, spec->groups, (size_t)spec->n_groups, sizeof *spec->groups);
    *spec = (struct spec){ 0 };
}
