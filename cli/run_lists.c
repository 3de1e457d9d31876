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

static int load(struct run *r, const char *name, const char *path)
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

int run_lists(struct run *r)
{
    char        name[PARAM_NAME];
    const char *text, *path = NULL;
    int         n = 0, code = EXIT_OK;

    while (opt_nth(r->a, "param", n))
        n++;
    r->lists = need((size_t)n, sizeof *r->lists);
    r->p.lists = r->lists;
    for (int i = 0; (text = opt_nth(r->a, "param", i)) && !code; i++) {
        code = run_param_name(r, text, name, &path);
        if (!code && run_is_list(r->ctx, name)) code = load(r, name, path);
    }
    return code;
}

void run_lists_free(struct run *r)
{
    for (int64_t i = 0; r->lists && i < r->p.n_lists; i++) {
        free((void *)r->lists[i].name);
        free((void *)r->lists[i].data);
    }
    free(r->lists);
}
