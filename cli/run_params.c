/* run_params.c -- the parameters of a plan or a layer: drawn from the seed, then replaced by
 * those in the file of --params and those that --param names. */
#include <stdlib.h>
#include <string.h>

#include "cli/array_file.h"
#include "cli/run.h"

/* "--param sink=s.npy" or "--params all.npz:sink": where an array comes from. */
enum { ORIGIN = 400 };
static const char *origin(const struct array *x, const char *name, char text[ORIGIN])
{
    const bool one = strcmp(x->option, "param") == 0;

    snprintf(text, ORIGIN, "--%s %.128s%s%.200s", x->option, one ? name : x->path,
             one ? "=" : ":", one ? x->path : name);
    return text;
}

/* A layer's own tensors come before those of its plan, and have no axis of heads. */
static bool is_own(const struct run_verb *r, int index)
{
    return r->layer && index < run_n_params(r) - foci_plan_param_count(run_heads(r));
}

static int no_such_param(const struct run_verb *r, const struct array *x,
                         const char *name)
{
    char         hint[96], from[ORIGIN];
    struct guess n = { .word = name };
    const char  *last = strrchr(name, '.');

    if (x->path)
        origin(x, name, from);
    else
        snprintf(from, sizeof from, "--param %s", name);
    if (last && run_is_words(last + 1))
        return usage_error(r->a,
                           "--param %s: tokens have words, not heads: "
                           "--param words=FILE",
                           name);
    if (!run_n_params(r))
        return usage_error(r->a, "%s: %s has no tensors", from, r->spec);
    for (int i = 0; i < run_n_params(r); i++) {
        foci_param p = { FOCI_SIZED(foci_param) };
        if (!run_param(r, i, &p)) guess_offer(&n, p.name);
    }
    return usage_error(
        r->a, "%s: no such tensor%s; see foci plan '%s' PROBLEM%s --json", from,
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
    char seen[SHAPE_TEXT], full[SHAPE_TEXT], shared[SHAPE_TEXT], from[ORIGIN];

    if (!all && !one)
        return failure(
            r->a, "%s: its shape is %s; accepted are %s, or %s for all heads",
            origin(x, p->name, from), shape_text(x->n_dims, x->shape, "", seen),
            shape_text(p->n_dims, p->shape, "", full),
            shape_text(p->n_dims - 1, p->shape + 1, "", shared));
    for (int64_t h = 0; h < (all ? 1 : heads); h++)
        if (x->count)
            memcpy(r->params + p->offset + h * x->count, x->data,
                   (size_t)x->count * sizeof(float));
    return EXIT_OK;
}

/* [out][in], as Linear of PyTorch has its weight, to [in][out]; to be freed. */
static float *transposed(const struct array *x)
{
    const int64_t n = x->shape[0], m = x->shape[1];
    float        *out = need((size_t)x->count, sizeof *out);

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++)
            out[j * n + i] = x->data[i * m + j];
    return out;
}

static int refuse_own(const struct run_verb *r, const foci_param *p,
                      const int64_t *wanted, bool turned, const struct array *x)
{
    const bool other = p->n_dims == 2 && x->n_dims == 2 && x->shape[0] == wanted[1] &&
                       x->shape[1] == wanted[0];
    char seen[SHAPE_TEXT], full[SHAPE_TEXT], from[ORIGIN];

    return failure(r->a, "%s: its shape is %s; accepted is %s%s%s",
                   origin(x, p->name, from), shape_text(x->n_dims, x->shape, "", seen),
                   shape_text(p->n_dims, wanted, "", full),
                   turned && p->n_dims == 2 ? " with --transposed" : "",
                   other && turned ? "; without it, as it is"
                   : other         ? "; --transposed takes [out][in]"
                                   : "");
}

/* A layer's own: one that is frozen is not among the floats. */
static int place_own(const struct run_verb *r, int index, const foci_param *p,
                     const struct array *x)
{
    const bool           turned = r->transposed && p->n_dims == 2;
    const int64_t        turn[2] = { p->shape[1], p->shape[0] };
    const int64_t *const wanted = turned ? turn : p->shape;

    if (x->n_dims != p->n_dims || !same(p->n_dims, x->shape, wanted))
        return refuse_own(r, p, wanted, turned, x);
    float *const data = turned ? transposed(x) : x->data;
    foci_status  status = FOCI_OK;
    if (p->offset < 0)
        status = foci_layer_frozen_set(r->layer, index, data);
    else if (x->count)
        memcpy(r->params + p->offset, data, (size_t)x->count * sizeof(float));
    if (turned) free(data);
    return status ? library_error(r->a, r->ctx, status, p->name) : EXIT_OK;
}

static int place_any(const struct run_verb *r, int index, const foci_param *p,
                     const struct array *x)
{
    r->given[index] = true;
    return is_own(r, index) ? place_own(r, index, p, x) : place(r, p, x);
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
    struct array x = { .option = "param" };

    int code = run_param_name(r, text, name, &path);
    if (code || run_is_list(r->ctx, name) || run_is_words(name)) return code;
    const int index = find_param(r, name, &p);
    if (index < 0) return no_such_param(r, &x, name);

    code = array_load(r->a, r->ctx, "param", name, path, &x);
    if (!code) code = place_any(r, index, &p, &x);
    array_free(&x);
    return code;
}

/* Array number i of the file of --params. */
static int take_of_file(const struct run_verb *r, struct array_file *f, int i)
{
    struct array x = { .option = "params", .path = f->path };
    foci_param   p = { FOCI_SIZED(foci_param) };
    foci_array   in = { FOCI_SIZED(foci_array) };
    const char  *name = array_file_name(f, i);
    const int    index = find_param(r, name, &p);

    if (!*name)
        return failure(r->a,
                       "--params %s: a .npy file does not name its array; a "
                       ".safetensors or .npz file is needed, or --param NAME=%s",
                       f->path, f->path);
    if (index < 0) return no_such_param(r, &x, name);
    int code = array_file_get(f, i, &in);
    if (!code) {
        array_of(&in, &x);
        code = place_any(r, index, &p, &x);
    }
    array_free(&x);
    return code;
}

/* Those that the file lacks are told: they are drawn as if there were none. */
static void tell_drawn(const struct run_verb *r, const char *path)
{
    char   names[160] = "";
    size_t n = 0;
    int    left = 0;

    for (int i = 0; i < run_n_params(r); i++) {
        foci_param p = { FOCI_SIZED(foci_param) };
        if (r->given[i] || run_param(r, i, &p)) continue;
        if (n < 100)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%.40s", n ? ", " : "",
                                  p.name);
        else
            left++;
    }
    if (left) snprintf(names + n, sizeof names - n, " and %d more", left);
    if (n) note(r->a, "--params %s: has no %s: drawn from the seed", path, names);
}

/* The inverse of --dump-params. */
static int take_file(const struct run_verb *r)
{
    const char *const path = r->params_file;
    struct array_file f;

    if (!path) return EXIT_OK;
    int code = array_file_open(r->a, r->ctx, "--params ", path, &f);
    if (!code && f.wanted)
        code = usage_error(r->a,
                           "--params %s: all arrays of a file are taken; one is taken "
                           "by --param NAME=%s",
                           path, path);
    for (int i = 0; i < f.n && !code; i++)
        code = take_of_file(r, &f, i);
    array_file_close(&f);
    return code;
}

/* Those that were given. */
static int take_params(const struct run_verb *r)
{
    const char *text;
    int         code = take_file(r);

    for (int i = 0; !code && (text = opt_nth(r->a, "param", i)); i++)
        code = take_param(r, text);
    if (!code && r->params_file) tell_drawn(r, r->params_file);
    return code;
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
    r->given = need((size_t)run_n_params(r), sizeof *r->given);
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
    for (int i = 0; i < run_n_params(r); i++) {
        foci_param p = { FOCI_SIZED(foci_param) };
        if (r->given[i] && !run_param(r, i, &p) && p.offset >= 0 && p.count)
            memcpy(r->params + p.offset, before + p.offset,
                   (size_t)p.count * sizeof *before);
    }
    free(before);
    return status ? failure(r->a, "%s", text) : EXIT_OK;
}
