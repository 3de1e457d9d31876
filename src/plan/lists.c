/* lists.c -- lists of whole numbers that mechanisms are planned with: which are needed,
 * checks, and copies. */
#include "plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    struct plan_group *g = &spec->groups[i];
    char               prefix[32];

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
static foci_status check_names(foci_ctx *ctx, const struct spec *spec,
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

foci_status lists_copy(foci_ctx *ctx, struct spec *spec, const foci_problem *p)
{
    for (int i = 0; i < spec->n_groups; i++)
        TRY(copy_lists(ctx, spec, i, p));
    return check_names(ctx, spec, p);
}

/* The result is their number; that with `index`, in the order of the groups, goes to
 * *want, which may be NULL. */
static int find_wanted(const struct spec *spec, int index, foci_list_want *want)
{
    char prefix[32];
    int  n = 0;

    for (int i = 0; i < spec->n_groups; i++)
        for (const foci_mech *m = &spec->groups[i].mech; m; m = m->inner) {
            const foci_list_def *def = m->def->list;
            if (!def || n++ != index || !want) continue;
            list_prefix(spec, i, m != &spec->groups[i].mech, prefix);
            snprintf(want->name, sizeof want->name, "%s%s", prefix, def->name);
            want->count = def->count(m);
            want->most = def->most(m);
        }
    return n;
}

/* Parse the spec and share out the heads, which the numbers of some lists depend on. */
static foci_status look(foci_ctx *ctx, const char *spec, const foci_problem *problem,
                        int index, foci_list_want *want, int *count)
{
    struct spec  parsed = { 0 };
    foci_problem p;

    if (!ctx)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_list_wanted: the context is NULL");
    if (!spec || !problem)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_list_wanted: %s is NULL",
                        spec ? "problem" : "spec");
    TRY(problem_copy(ctx, problem, &p));
    foci_status status = spec_parse(ctx, spec, &parsed);
    if (!status) status = spec_share(ctx, &parsed, &p);
    if (!status) *count = find_wanted(&parsed, index, want);
    spec_free(ctx, &parsed);
    return status;
}

foci_status foci_list_wanted_count(foci_ctx *ctx, const char *spec,
                                   const foci_problem *problem, int *count)
{
    if (!count)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_list_wanted_count: count is NULL");
    *count = 0;
    return look(ctx, spec, problem, -1, NULL, count);
}

foci_status foci_list_wanted(foci_ctx *ctx, const char *spec,
                             const foci_problem *problem, int index,
                             foci_list_want *want)
{
    foci_list_want found = { FOCI_SIZED(foci_list_want) };
    int            count = 0;

    TRY(look(ctx, spec, problem, index, &found, &count));
    if (index < 0 || index >= count)
        return ctx_fail(ctx, FOCI_ERR_ARG, "list %d: this spec asks for %d", index,
                        count);
    return sized_out(ctx, "foci_list_want", want, &found, sizeof found);
}
