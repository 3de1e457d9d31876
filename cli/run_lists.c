/* run_lists.c -- lists of whole numbers that mechanisms are planned with, a layout or
 * the tokens that all see: those that --param names. */
#include <stdlib.h>
#include <string.h>

#include "cli/run.h"
#include "foci/mechanism.h"

bool run_is_list(const foci_ctx *ctx, const char *name)
{
    const char          *dot = strrchr(name, '.'); /* behind the group, in a mix */
    const foci_mech_def *mech;

    for (int i = 0; (mech = foci_mechanism(ctx, i)); i++)
        if (mech->list && strcmp(mech->list->name, dot ? dot + 1 : name) == 0)
            return true;
    return false;
}

static int load(struct run_verb *r, const char *name, const char *path)
{
    struct array file;
    const int    code = array_load_ints(r->a, r->ctx, "param", name, path, &file);

    if (!code) {
        int64_t *data = need((size_t)file.count, sizeof *data);
        char    *copy = need(strlen(name) + 1, 1);
        for (int64_t i = 0; i < file.count; i++)
            data[i] = file.ints[i];
        r->lists[r->p.n_lists++] = (foci_list){ strcpy(copy, name), data, file.count };
    }
    array_free(&file);
    return code;
}

/* A name that is given twice; the number of them all in *n. */
static int refuse_twice(const struct run_verb *r, int *n)
{
    const char *text, *other;

    for (*n = 0; (text = opt_nth(r->a, "param", *n)); ++*n) {
        const size_t len = strcspn(text, "=");
        for (int i = 0; i < *n && (other = opt_nth(r->a, "param", i)); i++)
            if (strcspn(other, "=") == len && memcmp(text, other, len) == 0)
                return usage_error(r->a, "--param %.*s is given twice: %s and %s",
                                   (int)len, text, other, text);
    }
    return EXIT_OK;
}

int run_lists(struct run_verb *r)
{
    char        name[PARAM_NAME];
    const char *text, *path = NULL;
    int         n, code = refuse_twice(r, &n);

    r->lists = need((size_t)n, sizeof *r->lists);
    r->p.lists = r->lists;
    for (int i = 0; !code && (text = opt_nth(r->a, "param", i)); i++) {
        code = run_param_name(r, text, name, &path);
        if (!code && run_is_list(r->ctx, name)) code = load(r, name, path);
    }
    return code;
}

/* Say which lists there are. */
static int no_list(const struct run_verb *r, const char *name)
{
    char        text[160] = "";
    const char *last = NULL;

    for (int i = 0; foci_mechanism(r->ctx, i); i++) {
        const foci_list_def *list = foci_mechanism(r->ctx, i)->list;
        if (!list || (last && strcmp(last, list->name) == 0)) continue;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s",
                 last ? ", " : "", list->name);
        last = list->name;
    }
    return usage_error(r->a,
                       "--param %s: planning reads no such list, but %s; parameters "
                       "are given to foci run",
                       name, text);
}

int run_lists_only(struct run_verb *r)
{
    char        name[PARAM_NAME];
    const char *text, *path;
    int         code = run_lists(r);

    for (int i = 0; !code && (text = opt_nth(r->a, "param", i)); i++) {
        code = run_param_name(r, text, name, &path);
        if (!code && !run_is_list(r->ctx, name)) code = no_list(r, name);
    }
    return code;
}

static const foci_list *find(const struct run_verb *r, const char *name)
{
    for (int64_t i = 0; i < r->p.n_lists; i++)
        if (strcmp(r->lists[i].name, name) == 0) return &r->lists[i];
    return NULL;
}

static int check_list(const struct run_verb *r, const foci_list_want *want)
{
    const foci_list *list = find(r, want->name);

    if (!list && want->count > 0)
        return usage_error(r->a,
                           "%s needs a list of %lld whole numbers from 0 to %lld; give "
                           "--param %s=FILE",
                           r->spec, (long long)want->count, (long long)want->most,
                           want->name);
    if (list && want->count >= 0 && want->count != list->count)
        return failure(r->a, "--param %s: it has %lld entries, and %s needs %lld",
                       want->name, (long long)list->count, r->spec,
                       (long long)want->count);
    return EXIT_OK;
}

/* All that the spec asks for; *wanted is to be freed. */
static foci_status collect(const struct run_verb *r, foci_list_want **wanted, int *n)
{
    foci_problem p = r->p;

    p.kv_heads = 0; /* the plan judges them */
    *wanted = NULL;
    foci_status status = foci_list_wanted_count(r->ctx, r->spec, &p, n);
    if (*n) *wanted = need((size_t)*n, sizeof **wanted);
    for (int i = 0; i < *n && !status; i++) {
        (*wanted)[i].size = sizeof **wanted;
        status = foci_list_wanted(r->ctx, r->spec, &p, i, &(*wanted)[i]);
    }
    return status;
}

/* A list that nobody reads was meant for somebody. */
static int check_wanted(const struct run_verb *r, const char *name,
                        const foci_list_want *wanted, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(wanted[i].name, name) == 0) return EXIT_OK;
    return usage_error(r->a, "--param %s: %s asks for no such list%s%s%s", name,
                       r->spec, n ? ", but for " : "", n ? wanted[0].name : "",
                       n > 1 ? " and others" : "");
}

int run_check_lists(const struct run_verb *r)
{
    foci_list_want *wanted;
    int             n;

    const foci_status status = collect(r, &wanted, &n);
    int code = status ? library_error(r->a, r->ctx, status, r->spec) : EXIT_OK;
    for (int64_t i = 0; i < r->p.n_lists && !code; i++)
        code = check_wanted(r, r->lists[i].name, wanted, n);
    for (int i = 0; i < n && !code; i++)
        code = check_list(r, &wanted[i]);
    free(wanted);
    return code;
}

/* How long they are to be, and whether there can be a plan, depends on what the layer
 * makes of its spec. */
int run_check_layer_lists(const struct run_verb *r)
{
    foci_list_want *wanted;
    int             n, code = EXIT_OK;

    if (!collect(r, &wanted, &n))
        for (int64_t i = 0; i < r->p.n_lists && !code; i++)
            code = check_wanted(r, r->lists[i].name, wanted, n);
    free(wanted);
    return code;
}

void run_lists_free(struct run_verb *r)
{
    for (int64_t i = 0; r->lists && i < r->p.n_lists; i++) {
        free((void *)r->lists[i].name);
        free((void *)r->lists[i].data);
    }
    free(r->lists);
}
