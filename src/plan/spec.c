/* spec.c -- what is done with a parsed spec: sharing heads out, freeing. */
#include "plan/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static void set_dims(foci_mech *m, const foci_problem *p, int group)
{
    for (; m; m = (foci_mech *)m->inner) {
        m->dims = (foci_dims){ .qk = p->dim_qk,
                               .v = p->dim_v ? p->dim_v : p->dim_qk,
                               .x = p->dim_x,
                               .len = p->len_k,
                               .len_q = p->len_q,
                               .planned = p->len_k };
        m->causal = p->flags & FOCI_CAUSAL;
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
        struct group *g = &spec->groups[i];
        const int64_t n = g->heads * mech_routes(&g->mech);

        if (g->head0 % per || g->heads % per)
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

/* The list of that name among those of the problem. */
static const foci_list *find_list(const foci_problem *p, const char *name)
{
    for (int64_t i = 0; i < p->n_lists; i++)
        if (p->lists[i].name && strcmp(p->lists[i].name, name) == 0)
            return &p->lists[i];
    return NULL;
}

static foci_status check_list(foci_ctx *ctx, const foci_mech *m, const foci_list *a)
{
    const foci_list_def *def = m->def->list;
    const int64_t        want = def->count(m), most = def->most(m);

    if (a->count < 0 || (a->count && !a->data) || (want >= 0 && a->count != want))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "%s has %" PRId64 " entries%s; %s wants %" PRId64, a->name,
                        a->count, a->count && !a->data ? " at NULL" : "", m->def->name,
                        want);
    for (int64_t i = 0; i < a->count; i++)
        if (a->data[i] < 0 || a->data[i] > most)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "%s[%" PRId64 "] is %" PRId64 ": it may be 0 to %" PRId64,
                            a->name, i, a->data[i], most);
    return FOCI_OK;
}

static int upward(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* *kept is the copy, freed with the group. */
static foci_status copy_list(foci_ctx *ctx, foci_mech *m, const char *prefix,
                             int column, const foci_problem *p, int64_t **kept)
{
    const foci_list_def *def = m->def->list;
    char                 name[96];

    if (!def) return FOCI_OK;
    snprintf(name, sizeof name, "%s%s", prefix, def->name);
    const foci_list *a = find_list(p, name);
    if (!a && def->count(m) > 0)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "column %d: %s needs its %s, a list of %" PRId64
                        " whole numbers from 0 to %" PRId64 " called \"%s\"",
                        column, m->def->name, def->name, def->count(m), def->most(m),
                        name);
    if (!a || !a->count) return FOCI_OK;
    TRY(check_list(ctx, m, a));
    *kept = ctx_alloc(ctx, (size_t)a->count, sizeof **kept);
    if (!*kept) return FOCI_ERR_MEMORY;
    memcpy(*kept, a->data, (size_t)a->count * sizeof **kept);
    if (def->sorted) qsort(*kept, (size_t)a->count, sizeof **kept, upward);
    m->list = *kept;
    m->n_list = a->count;
    return FOCI_OK;
}

/* What stands before the names of lists: in a mix the group's number. */
static void list_prefix(const struct spec *spec, int group, bool inner, char prefix[32])
{
    char number[16] = "";

    if (spec->n_groups > 1) snprintf(number, sizeof number, "%d.", group);
    snprintf(prefix, 32, "%s%s", number, inner ? "inner." : "");
}

static foci_status copy_lists(foci_ctx *ctx, struct spec *spec, int i,
                              const foci_problem *p)
{
    struct group *g = &spec->groups[i];
    char          prefix[32];

    list_prefix(spec, i, false, prefix);
    TRY(copy_list(ctx, &g->mech, prefix, g->column, p, &g->list));
    if (!g->mech.inner) return FOCI_OK;
    list_prefix(spec, i, true, prefix);
    return copy_list(ctx, (foci_mech *)g->mech.inner, prefix, g->column, p,
                     &g->inner_list);
}

static bool asked_for(const struct spec *spec, const char *name)
{
    char prefix[32];

    for (int i = 0; i < spec->n_groups; i++)
        for (const foci_mech *m = &spec->groups[i].mech; m; m = m->inner) {
            list_prefix(spec, i, m != &spec->groups[i].mech, prefix);
            const size_t n = strlen(prefix);
            if (m->def->list && strncmp(name, prefix, n) == 0 &&
                strcmp(name + n, m->def->list->name) == 0)
                return true;
        }
    return false;
}

/* A list that nobody reads was meant for somebody. */
static foci_status check_lists(foci_ctx *ctx, const struct spec *spec,
                               const foci_problem *p)
{
    for (int64_t i = 0; i < p->n_lists; i++) {
        const char *name = p->lists[i].name ? p->lists[i].name : "";
        if (!asked_for(spec, name))
            return ctx_fail(ctx, FOCI_ERR_ARG, "no mechanism asks for a list \"%.64s\"",
                            name);
    }
    return FOCI_OK;
}

foci_status spec_assign(foci_ctx *ctx, struct spec *spec, foci_problem *p)
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

    int64_t head = 0;
    for (int i = 0; i < spec->n_groups; i++) {
        struct group *g = &spec->groups[i];
        g->head0 = head;
        head += g->heads;
        set_dims(&g->mech, p, i);
    }
    TRY(share_kv(ctx, spec, p));
    for (int i = 0; i < spec->n_groups; i++)
        TRY(copy_lists(ctx, spec, i, p));
    return check_lists(ctx, spec, p);
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
