/* analyse_weights.c -- foci analyse --weights FILE, and SPEC --q --k: heads of matrices and of
 * tensors from files. */
#include <stdlib.h>
#include <string.h>

#include "cli/analyse_heads.h"
#include "cli/run.h"

const struct verb *verb_named(const char *name)
{
    for (int i = 0; verbs[i]; i++)
        if (!strcmp(verbs[i]->name, name)) return verbs[i];
    return NULL;
}

int heads_check(const struct args *a)
{
    const char *csv = opt_text(a, "csv"), *out = opt_text(a, "out");

    if (check_out(a)) return EXIT_USAGE;
    if (opt_flag(a, "rows") && !a->json && !csv)
        return usage_error(a, "--rows needs --json or --csv FILE, where rows go");
    const int code = csv ? check_output(a, csv) : EXIT_OK;
    return !code && out ? check_output(a, out) : code;
}

/*
 * Matrices
 */

enum { MOST_HEADS = 1024 }; /* as foci_heads_create() has it */

/* Matrices of a batch are added one after another. */
static int add_matrices(struct heads_view *v, const struct array *x,
                        const int64_t axes[4])
{
    struct heads_layer *l;
    foci_status         status = heads_layer(v, NULL, NULL, 0, axes[1], &l);

    for (int64_t b = 0; b < axes[0] && !status; b++, l->first++)
        status =
            foci_heads_add_weights(l->heads, x->data + b * axes[1] * axes[2] * axes[3],
                                   axes[2], axes[3], opt_flag(v->a, "causal"));
    return status ? library_error(v->a, v->ctx, status, x->path) : EXIT_OK;
}

static int look_at_matrices(const struct args *a, foci_ctx *ctx, const char *path)
{
    const char       *accepted = "N x N, H x N x N and B x H x N x N";
    struct heads_view v;
    struct array      x = { 0 };
    int64_t           axes[4];
    int               code = array_load(a, ctx, "weights", "weights", path, &x);

    if (!code) code = array_axes(a, &x, accepted, axes);
    heads_open(&v, a, ctx, path);
    if (!code && axes[1] > MOST_HEADS)
        code = failure(a, "--weights %s: it has %lld heads; accepted are up to %d",
                       path, (long long)axes[1], MOST_HEADS);
    if (!code && x.count == 0)
        code = failure(a, "--weights %s: it has no weights; accepted are %s", path,
                       accepted);
    if (!code) code = add_matrices(&v, &x, axes);
    if (!code) code = heads_show(&v);
    heads_close(&v);
    array_free(&x);
    return code;
}

int analyse_weights(const struct args *a)
{
    int code = heads_check(a);

    if (code) return code;
    foci_ctx *ctx = open_ctx(a, (int)opt_int(a, "threads", 0));
    if (!ctx) return EXIT_FAILED;
    code = look_at_matrices(a, ctx, opt_text(a, "weights"));
    foci_ctx_free(ctx);
    return code;
}

/*
 * Tensors
 */

static int look_at_tensors(const struct args *a, const struct run_verb *r)
{
    struct heads_view   v;
    struct heads_layer *l;
    const foci_io       io = run_io(r);
    foci_problem        p = { FOCI_SIZED(foci_problem) };
    int                 code;

    (void)foci_plan_get_problem(r->plan, &p);
    heads_open(&v, a, r->ctx, r->spec);
    foci_status status = heads_layer(&v, NULL, r->spec, 0, p.heads, &l);
    if (!status) status = foci_heads_add(l->heads, r->plan, &io);
    code = status ? library_error(a, r->ctx, status, NULL) : heads_show(&v);
    heads_close(&v);
    return code;
}

/* The options are those of `foci run`. */
int analyse_tensors(const struct args *a)
{
    struct verb     like = *verb_named("run");
    struct args     of_run = *a;
    struct run_verb r = { .a = &of_run,
                          .spec = a->words[0],
                          .p = { FOCI_SIZED(foci_problem) } };
    int             code = heads_check(a);

    if (code) return code;
    like.name = a->verb->name;
    of_run.verb = &like;
    r.ctx = open_ctx(a, (int)opt_int(a, "threads", 0));
    if (!r.ctx) return EXIT_FAILED;
    r.p.dtype = opt_word(&of_run, "dtype", 0) ? FOCI_BF16 : FOCI_F32;
    code = run_open_weights(&r);
    if (!code) code = look_at_tensors(a, &r);
    run_close(&r);
    return code;
}
