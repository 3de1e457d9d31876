/* run_write.c -- the results of `foci run`: its files, and its summary. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/run.h"

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* One name in one folder, however it is spelled. */
static bool same_place(const char *a, const char *b)
{
    char       *of_a = folder_of(a), *of_b = folder_of(b);
    struct stat s, t;
    const bool  same = strcmp(last_name(a), last_name(b)) == 0 && !stat(of_a, &s) &&
                      !stat(of_b, &t) && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
    free(of_a);
    free(of_b);
    return same;
}

static bool ends_in(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

/* A name that says something else than what is written would mislead whoever reads it. */
static int check_name(const struct run_verb *r, const char *option, const char *path)
{
    static const char npy[] = ".npy", tensors[] = ".safetensors";
    const bool        many = strcmp(option, "dump-params") == 0;

    return ends_in(path, many ? npy : tensors)
               ? usage_error(r->a, "--%s is '%s'; what it writes is a %s file", option,
                             path, many ? tensors : npy)
               : EXIT_OK;
}

static bool is_stdout(const char *path) { return path && strcmp(path, "-") == 0; }

/* An array goes to standard output alone, and not onto a screen. */
static int check_stdout(const struct run_verb *r, const char *option)
{
    if (strcmp(option, "out") != 0)
        return usage_error(r->a,
                           "--%s is '-'; --out alone can be standard output: the name "
                           "of a file is needed",
                           option);
    if (r->a->json)
        return usage_error(r->a, "--json and --out - do not go together: both are "
                                 "written to standard output");
    if (isatty(STDOUT_FILENO) == 1)
        return usage_error(r->a,
                           "--out -: standard output is a terminal; an array goes "
                           "to a file or a pipe");
    return EXIT_OK;
}

static int check_path(const struct run_verb *r, const char *option, const char *path)
{
    if (is_stdout(path)) return check_stdout(r, option);
    const int code = check_name(r, option, path);
    return code ? code : check_output(r->a, path);
}

int run_outputs(const struct run_verb *r)
{
    static const char *const names[] = { "out", "weights", "dump-params", "grads" };
    int                      code = EXIT_OK;

    for (int i = 0; i < 4 && !code; i++) {
        const char *path = opt_text(r->a, names[i]);
        if (path) code = check_path(r, names[i], path);
        for (int j = 0; j < i && path && !code; j++) {
            const char *other = opt_text(r->a, names[j]);
            if (other && same_place(path, other))
                code = usage_error(r->a, "--%s and --%s are both '%s'", names[j],
                                   names[i], path);
        }
    }
    return code;
}

/* Remember what was written, for the report. */
static void tell_written(const struct run_verb *r, const char *path, json_t *what,
                         const char *name)
{
    json_array_append_new(r->written, json_pack("{s:s, s:o}", "file", path, name, what));
}

static json_t *json_shape(int n_dims, const int64_t *shape)
{
    json_t *list = json_array();

    for (int i = 0; i < n_dims; i++)
        json_array_append_new(list, json_integer(shape[i]));
    return list;
}

static int write_npy(const struct run_verb *r, const char *path, int n_dims,
                     const int64_t *shape, const float *data)
{
    const foci_status status =
        is_stdout(path) ? foci_npy_send(r->ctx, STDOUT_FILENO, n_dims, shape, data)
                        : foci_npy_write(r->ctx, path, n_dims, shape, data);
    if (status) return library_error(r->a, r->ctx, status, NULL);
    tell_written(r, path, json_shape(n_dims, shape), "shape");
    return EXIT_OK;
}

static int write_tensor(const struct run_verb *r, const char *path,
                        const struct run_tensor *t)
{
    const int64_t n = tensor_count(t);

    if (r->p.dtype == FOCI_F32) return write_npy(r, path, t->n_dims, t->shape, t->data);
    float *data = need((size_t)n, sizeof *data);
    from_bf16(t->data, n, data);
    const int code = write_npy(r, path, t->n_dims, t->shape, data);
    free(data);
    return code;
}

/* PREFIX.dNAME.npy, to be freed. */
static char *grad_path(const struct run_verb *r, const char *name)
{
    const char  *prefix = opt_text(r->a, "grads");
    const size_t cap = strlen(prefix) + strlen(name) + 8;
    char        *path = need(cap, 1);
    snprintf(path, cap, "%s.d%s.npy", prefix, name);
    return path;
}

/* In the shape of the bias's file: what it serves several times is summed. */
static int write_dbias(const struct run_verb *r)
{
    const struct array *f = &r->bias_file;
    const int64_t       n = r->p.len_q * r->p.len_k;
    const int64_t       heads = f->n_dims > 2 ? f->shape[f->n_dims - 3] : 1;
    const int64_t       batch = f->n_dims > 3 ? f->shape[0] : 1;
    float              *sums = need((size_t)f->count, sizeof *sums);

    for (int64_t b = 0; b < r->p.mask_batch; b++)
        for (int64_t h = 0; h < r->p.mask_heads; h++) {
            const float *from = r->dbias + (b * r->p.mask_heads + h) * n;
            float *to = sums + ((batch > 1 ? b : 0) * heads + (heads > 1 ? h : 0)) * n;
            for (int64_t i = 0; i < n; i++)
                to[i] += from[i];
        }
    char     *path = grad_path(r, "bias");
    const int code = write_npy(r, path, f->n_dims, f->shape, sums);
    free(path);
    free(sums);
    return code;
}

/* A gradient that is written: of a tensor, of a parameter, or else of the bias. */
struct grad {
    const char              *name;
    const struct run_tensor *tensor;
    const foci_param        *param;
};

static int each_grad(const struct run_verb *r,
                     int (*act)(const struct run_verb *r, const struct grad *g))
{
    const struct run_tensor *const tensors[] = { &r->dq, &r->dk, &r->dv, &r->dx,
                                                 &r->dsource };
    static const char *const       names[] = { "q", "k", "v", "x", "source" };
    int                            code = EXIT_OK;

    if (r->dbias) code = act(r, &(struct grad){ .name = "bias" });
    for (int i = 0; i < 5 && !code; i++)
        if (tensors[i]->data)
            code = act(r, &(struct grad){ names[i], .tensor = tensors[i] });
    for (int i = 0; i < run_n_params(r) && !code; i++) {
        foci_param p = { FOCI_SIZED(foci_param) };
        if (run_param(r, i, &p) || p.keep != FOCI_KEEP_TRAINED) continue;
        code = act(r, &(struct grad){ p.name, .param = &p });
    }
    return code;
}

static int write_grad(const struct run_verb *r, const struct grad *g)
{
    const foci_param *p = g->param;

    if (!g->tensor && !p) return write_dbias(r);
    char     *path = grad_path(r, g->name);
    const int code =
        g->tensor ? write_tensor(r, path, g->tensor)
                  : write_npy(r, path, p->n_dims, p->shape, r->dparams + p->offset);
    free(path);
    return code;
}

/* No gradient may replace another result. */
static int check_grad(const struct run_verb *r, const struct grad *g)
{
    static const char *const others[] = { "out", "weights", "dump-params" };
    char                    *path = grad_path(r, g->name);
    int                      code = EXIT_OK;

    for (int i = 0; i < 3 && !code; i++) {
        const char *other = opt_text(r->a, others[i]);
        if (other && same_place(path, other))
            code = usage_error(r->a, "--%s is '%s', which is where --grads puts d%s",
                               others[i], other, g->name);
    }
    free(path);
    return code;
}

int run_check_grads(const struct run_verb *r)
{
    return opt_text(r->a, "grads") ? each_grad(r, check_grad) : EXIT_OK;
}

/* Where parameter `index` lies; a frozen projection is written out first, to memory that
 * the caller frees by *drawn. */
static const float *values_of(const struct run_verb *r, int index, const foci_param *p,
                              float **drawn)
{
    if (p->offset >= 0) return r->params + p->offset;
    *drawn = need((size_t)p->count, sizeof **drawn);
    foci_layer_frozen_get(r->layer, index, *drawn);
    return *drawn;
}

static int write_params(const struct run_verb *r, const char *path)
{
    const int   n = run_n_params(r);
    foci_param *params = need((size_t)n, sizeof *params);
    foci_named *named = need((size_t)n, sizeof *named);
    float     **drawn = need((size_t)n, sizeof *drawn);

    for (int i = 0; i < n; i++) {
        foci_param *p = &params[i];
        p->size = sizeof *p;
        run_param(r, i, p);
        named[i] =
            (foci_named){ p->name, p->n_dims, p->shape, values_of(r, i, p, &drawn[i]) };
    }
    const foci_status status = foci_safetensors_write(r->ctx, path, named, n);
    for (int i = 0; i < n; i++)
        free(drawn[i]);
    free(drawn);
    free(params);
    free(named);
    if (status) return library_error(r->a, r->ctx, status, NULL);
    tell_written(r, path, json_integer(n), "arrays");
    return EXIT_OK;
}

int run_write(struct run_verb *r)
{
    const char   *out = opt_text(r->a, "out"), *weights = opt_text(r->a, "weights");
    const char   *params = opt_text(r->a, "dump-params");
    const int64_t shape[4] = { r->p.batch, r->p.heads, r->p.len_q, r->p.len_k };
    const int     skip = 4 - r->o.n_dims;
    int           code = EXIT_OK;

    r->written = json_array();
    hold_signals();
    if (out) code = write_tensor(r, out, &r->o);
    if (!code && weights)
        code = write_npy(r, weights, r->o.n_dims, shape + skip, r->weights);
    if (!code && opt_text(r->a, "grads")) code = each_grad(r, write_grad);
    if (!code && params) code = write_params(r, params);
    release_signals();
    return code;
}

static json_t *json_report(const struct run_verb *r, const char *spec,
                           const char *problem, const char *lines)
{
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:i, s:f}", "spec", spec, "problem",
                  problem, "dtype", r->p.dtype == FOCI_F32 ? "f32" : "bf16", "by",
                  opt_flag(r->a, "ref") ? "reference" : "engine", "shape",
                  json_shape(r->o.n_dims, r->o.shape), "stages", json_lines(lines),
                  "threads", foci_ctx_threads(r->ctx), "forward_seconds", r->forward_s);
    if (r->dout.file.path)
        json_object_set_new(o, "backward_seconds", json_real(r->backward_s));
    json_object_set(o, "written", r->written);
    json_object_set(o, "not_finite", r->not_finite);
    run_json_kind(r, o);
    return o;
}

/* "  wrote     o.npy, 2x5x8", a row for each file. */
static void list_written(const struct run_verb *r, struct output_table *t)
{
    size_t  i, d;
    json_t *file, *length;

    json_array_foreach(r->written, i, file)
    {
        const char   *path = json_string_value(json_object_get(file, "file"));
        const json_t *shape = json_object_get(file, "shape");
        int64_t       lengths[FOCI_MAX_DIMS];
        char          text[SHAPE_TEXT];

        json_array_foreach(shape, d, length) lengths[d] = json_integer_value(length);
        if (shape)
            shape_text((int)json_array_size(shape), lengths, "", text);
        else
            snprintf(text, sizeof text, "arrays: %lld",
                     (long long)json_integer_value(json_object_get(file, "arrays")));
        table_pair(t, i ? "" : "  wrote", "%s, %s",
                   is_stdout(path) ? "standard output" : path, text);
    }
}

/* The plan's own first line, then what came of it. */
static void print_report(const struct run_verb *r, const char *spec, const char *lines)
{
    const bool           array = is_stdout(opt_text(r->a, "out"));
    FILE                *out = array ? stderr : stdout;
    char                 text[SHAPE_TEXT];
    struct output_table *t = table_create("ll");

    if (array && r->a->quiet) {
        table_free(t);
        return;
    }
    fprintf(out, "%.*s\n", (int)strcspn(lines, "\n"), lines);
    table_pair(t, "  spec", "%s", spec);
    table_pair(t, "  output", "%s", shape_text(r->o.n_dims, r->o.shape, "", text));
    table_pair(t, "  forward", "%.3f ms%s", 1e3 * r->forward_s,
               opt_flag(r->a, "ref") ? ", by the reference" : "");
    if (r->dout.file.path) table_pair(t, "  backward", "%.3f ms", 1e3 * r->backward_s);
    list_written(r, t);
    table_print(t, out);
    table_free(t);
}

int run_report(struct run_verb *r)
{
    char *problem = run_problem_text(r);
    char *spec = plan_text(foci_plan_spec, run_heads(r));
    char *lines = run_text(r);
    int   code = EXIT_OK;

    run_warn_not_finite(r);
    if (r->a->json)
        code = print_json(r->a, json_report(r, spec, problem, lines));
    else
        print_report(r, spec, lines);
    free(problem);
    free(spec);
    free(lines);
    return code;
}
