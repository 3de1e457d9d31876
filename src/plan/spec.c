/* spec.c -- what is done with a parsed spec: sharing heads out, freeing. */
#include "plan/spec.h"

/* Heads counted, and the group that is to take the rest. */
static int64_t sum_heads(const struct spec *spec, struct group **open)
{
    int64_t sum = 0;
    *open = NULL;
    for (int i = 0; i < spec->n_groups; i++) {
        struct group *g = &spec->groups[i];
        sum += g->heads;
        if (!g->heads) *open = g;
    }
    return sum;
}

/* An inner mechanism works on the head of the one around it. */
static void set_dims(foci_mech *m, const foci_dims *dims)
{
    for (; m; m = (foci_mech *)m->inner)
        m->dims = *dims;
}

foci_status spec_assign(foci_ctx *ctx, struct spec *spec, const foci_problem *p)
{
    struct group *open;
    const int64_t sum = sum_heads(spec, &open);

    if (open && sum >= p->heads)
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "column %d: no head is left for %s: counts take %lld, and there are %lld",
            open->column, open->mech.def->name, (long long)sum, (long long)p->heads);
    if (!open && sum != p->heads)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "the spec counts %lld heads, the problem has %lld",
                        (long long)sum, (long long)p->heads);
    if (open) open->heads = p->heads - sum;

    const foci_dims dims = { .qk = p->dim_qk,
                             .v = p->dim_v ? p->dim_v : p->dim_qk,
                             .x = p->dim_x,
                             .len = p->len_k };
    int64_t         head = 0;
    for (int i = 0; i < spec->n_groups; i++) {
        struct group *g = &spec->groups[i];
        g->head0 = head;
        head += g->heads;
        set_dims(&g->mech, &dims);
    }
    return FOCI_OK;
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
        struct group *g = &spec->groups[i];
        ctx_free(ctx, g->mod_param0, g->mech.n_mods, sizeof *g->mod_param0);
        free_parts(ctx, &g->mech);
    }
    ctx_free(ctx, spec->groups, (size_t)spec->n_groups, sizeof *spec->groups);
    *spec = (struct spec){ 0 };
}
