/* run_params.c -- the parameters of a plan or a layer: drawn from the seed, then replaced by
 * those that --param names. */
#include <stdlib.h>
#include <string.h>

#include "cli/run.h"

/* A layer's own tensors come before those of its plan, and have no axis of heads. */
static bool is_own(const struct run_verb *r, int index)
{
    return r->layer && index < run_n_params(r) - foci_plan_param_count(run_heads(r));
}

static int no_such_param(const struct run_verb *r, const char *name)
{
    char         hint[96];
    struct guess n = { .word = name };
    const char  *last = strrchr(name, '.');

    if (last && run_is_words(last + 1))
        return usage_error(r->a,
                           "--param %s: tokens have words, not heads: "
                           "--param words=FILE",
                           name);
    if (!run_n_params(r))
        return usage_error(r->a, "--param %s: %s has no tensors", name, r->spec);
    for (int i = 0; i < run_n_params(r); i++) {
        foci_param p = { FOCI_SIZED(foci_param) };
        if (!run_param(r, i, &p)) guess_offer(&n, p.name);
    }
    return usage_error(
        r->a, "--param %s: no such tensor%s; see foci plan '%s' PROBLEM%s --json", name,
        guess_hint(&n, hint, sizeof hint), r->spec, r->layer ? " --width W" : "");
}

/* Its number; -1: there is none. */
static int find_param(const struct run_verb *r, const char *name, foci_param *p)
{
    for (int i = 0; i < run_n_params(r); i++)
        if (!run_param(r, i, p) && strcmp(p->name, name) == 0) return i;
    return -1;
}

static bool same(int n, const int64_t *a, const int64_t *b)
{
    for (int i = 0; i < n; i++)
        if (a[i] != b[i]) return false;
    return true;
}

/* One for each head, or one for all. */
static int place(const struct run_verb *r, const foci_param *p, const struct array *x)
{
    const int64_t heads = p->shape[0];
    const bool    all = x->n_dims == p->n_dims && same(p->n_dims, x->shape, p->shape);
    const bool    one =
        (x->n_dims == p->n_dims - 1 && same(x->n_dims, x->shape, p->shape + 1)) ||
        (x->n_dims == p->n_dims && x->shape[0] == 1 &&
         same(p->n_dims - 1, x->shape + 1, p->shape + 1));
    char seen[SHAPE_TEXT], full[SHAPE_TEXT], shared[SHAPE_TEXT];

    if (!all && !one)
        return failure(
            r->a, "--param %s=%s: its shape is %s; accepted are %s, or %s for all heads",
            p->name, x->path, shape_text(x->n_dims, x->shape, "", seen),
            shape_text(p->n_dims, p->shape, "", full),
            shape_text(p->n_dims - 1, p->shape + 1, "", shared));
    for (int64_t h = 0; h < (all ? 1 : heads); h++)
        if (x->count)
            memcpy(r->params + p->offset + h * x->count, x->data,
                   (size_t)x->count * sizeof(float));
    return EXIT_OK;
}

/* A layer's own: one that is frozen is not among the floats. */
static int place_own(const struct run_verb *r, int index, const foci_param *p,
                     const struct array *x)
{
    char seen[SHAPE_TEXT], full[SHAPE_TEXT];

    if (x->n_dims != p->n_dims || !same(p->n_dims, x->shape, p->shape))
        return failure(r->a, "--param %s=%s: its shape is %s; accepted is %s", p->name,
                       x->path, shape_text(x->n_dims, x->shape, "", seen),
                       shape_text(p->n_dims, p->shape, "", full));
    if (p->offset < 0) {
        const foci_status status = foci_layer_frozen_set(r->layer, index, x->data);
        return status ? library_error(r->a, r->ctx, status, p->name) : EXIT_OK;
    }
    if (x->count)
        memcpy(r->params + p->offset, x->data, (size_t)x->count * sizeof(float));
    return EXIT_OK;
}

int run_param_name(const struct run_verb *r, const char *text, char name[PARAM_NAME],
                   const char **path)
{
    const char *equals = strchr(text, '=');

    if (!equals || equals == text || !equals[1] || equals - text >= PARAM_NAME)
        return usage_error(r->a, "--param is '%s'; it takes NAME=FILE", text);
    snprintf(name, PARAM_NAME, "%.*s", (int)(equals - text), text);
    *path = equals + 1;
    return EXIT_OK;
}

static int take_param(const struct run_verb *r, const char *text)
{
    char         name[PARAM_NAME];
    const char  *path = NULL;
    foci_param   p = { FOCI_SIZED(foci_param) };
    struct array x;

    int code = run_param_name(r, text, name, &path);
    if (code || run_is_list(r->ctx, name) || run_is_words(name)) return code;
    const int index = find_param(r, name, &p);
    if (index < 0) return no_such_param(r, name);

    code = array_load(r->a, r->ctx, "param", name, path, &x);
    if (!code) code = is_own(r, index) ? place_own(r, index, &p, &x) : place(r, &p, &x);
    array_free(&x);
    return code;
}

/* Those that were given. */
static int take_params(const struct run_verb *r)
{
    const char *text;

    for (int i = 0; (text = opt_nth(r->a, "param", i)); i++) {
        const int code = take_param(r, text);
        if (code) return code;
    }
    return EXIT_OK;
}

static foci_status draw(const struct run_verb *r)
{
    const uint64_t seed = (uint64_t)opt_int(r->a, "seed", 0);

    return r->layer ? foci_layer_params_init(r->layer, seed, r->params)
                    : foci_params_init(r->plan, seed, r->params);
}

int run_params(struct run_verb *r)
{
    const int64_t n =
        r->layer ? foci_layer_param_floats(r->layer) : foci_plan_param_floats(r->plan);

    r->params = need((size_t)n, sizeof *r->params);
    r->dparams = need((size_t)n, sizeof *r->dparams);
    if (n) {
        const foci_status status = draw(r);
        if (status)
            return library_error(r->a, r->ctx, status, "drawing the parameters");
    }
    return take_params(r);
}

static foci_status calibrate(const struct run_verb *r, const foci_io *io,
                             const foci_layer_io *of_layer, char *text, size_t cap)
{
    const foci_status status =
        of_layer ? foci_layer_params_calibrate(r->layer, of_layer, r->params)
                 : foci_params_calibrate(r->plan, io, r->params);

    if (status == FOCI_ERR_ARG && of_layer)
        foci_layer_io_check(r->layer, of_layer, NULL, text, cap);
    else if (status == FOCI_ERR_ARG)
        foci_io_check(r->plan, io, NULL, text, cap);
    return status;
}

/* Statistics that were given stay as they are. */
int run_calibrate(const struct run_verb *r, const foci_io *io,
                  const foci_layer_io *of_layer, bool *found)
{
    const size_t n = (size_t)(r->layer ? foci_layer_param_floats(r->layer)
                                       : foci_plan_param_floats(r->plan));
    float       *before = need(n, sizeof *before);
    char         text[512] = "not enough memory";

    if (n) memcpy(before, r->params, n * sizeof *before);
    const foci_status status = calibrate(r, io, of_layer, text, sizeof text);
    *found = n && memcmp(before, r->params, n * sizeof *before) != 0;
    free(before);
    return status ? failure(r->a, "%s", text) : take_params(r);
}
