/* bench_lists.c -- the lists that a case's spec asks for: from the files of --param, or
 * made up.  A list of a fixed length is a square layout of which a quarter is seen, the
 * diagonal included; one of any length names tokens spread evenly. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

enum { ONE_IN = 4, TOKENS = 16 };

static int64_t *make_layout(int64_t n, int64_t most)
{
    const int64_t side = llround(sqrt((double)n));
    int64_t      *data = need((size_t)n, sizeof *data);
    uint64_t      seed = 1;

    for (int64_t i = 0; i < n; i++)
        if (i / side == i % side || bench_uniform(&seed) * ONE_IN < 1) data[i] = most;
    return data;
}

static int64_t *make_tokens(int64_t n, int64_t most)
{
    int64_t *data = need((size_t)n, sizeof *data);

    for (int64_t i = 0; i < n; i++)
        data[i] = i * (most + 1) / n;
    return data;
}

/* `file` is what was given under its name, or NULL. */
static foci_list make_list(const foci_list_want *want, const foci_list *file)
{
    char     *name = need(strlen(want->name) + 1, 1);
    foci_list list = { strcpy(name, want->name), NULL, want->count };

    if (file) {
        int64_t *data = need((size_t)file->count, sizeof *data);
        list.count = file->count;
        list.data = file->count
                        ? memcpy(data, file->data, (size_t)file->count * sizeof *data)
                        : data;
    } else if (want->count < 0) {
        list.count = want->most < TOKENS ? want->most + 1 : TOKENS;
        list.data = make_tokens(list.count, want->most);
    } else {
        list.data = make_layout(want->count, want->most);
    }
    return list;
}

static const foci_list *find(const foci_list *lists, int64_t n, const char *name)
{
    for (int64_t i = 0; i < n; i++)
        if (strcmp(lists[i].name, name) == 0) return &lists[i];
    return NULL;
}

foci_status bench_lists(const struct run_verb *given, struct bench_case *c)
{
    foci_problem  *p = &c->problem;
    foci_list_want want = { FOCI_SIZED(foci_list_want) };
    int            n = 0;

    foci_status status = foci_list_wanted_count(given->ctx, c->spec, p, &n);
    if (status && c->is_layer) return FOCI_OK; /* the layer may know better */
    if (n) c->lists = need((size_t)n, sizeof *c->lists);
    for (int i = 0; i < n && !status; i++) {
        status = foci_list_wanted(given->ctx, c->spec, p, i, &want);
        if (status) break;
        c->lists[p->n_lists++] =
            make_list(&want, find(given->lists, given->p.n_lists, want.name));
        p->lists = c->lists;
    }
    return status;
}

bool bench_has_list(const struct bench_case *c, const char *name)
{
    return find(c->lists, c->problem.n_lists, name) != NULL;
}

void bench_lists_free(struct bench_case *c)
{
    for (int64_t i = 0; i < c->problem.n_lists; i++) {
        free((void *)c->lists[i].name);
        free((void *)c->lists[i].data);
    }
    free(c->lists);
}
