/* run_inputs.c -- the input files of `foci run`, and the problem given by their shapes.
 *
 * The axes of tensors are batch, heads, rows and width here, whatever their order in files
 * (--layout).  Queries give batch, heads, their number and their width; keys and values, of which
 * there may be fewer heads (or more, for mechanisms with routes), the rest.  What a
 * mechanism does not read may be missing: then the others stand in for it.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/run.h"

static int load_tensor(struct run_verb *r, const char *option, struct run_tensor *t)
{
    const char *path = opt_text(r->a, option);
    if (!path) return EXIT_OK;

    int code = array_load(r->a, r->ctx, option, option, path, &t->file);
    if (!code)
        code = array_axes(r->a, &t->file,
                          r->rows_first ? "N x d, N x H x d and B x N x H x d"
                                        : "N x d, H x N x d and B x H x N x d",
                          t->axes);
    t->n_dims = t->file.n_dims;
    if (!code && t->n_dims > 2) run_in_file_order(r, 4, t->axes);
    if (!code) memcpy(t->shape, t->file.shape, sizeof t->shape);
    return code;
}

int run_load_states(struct run_verb *r, const char *option, struct run_tensor *t)
{
    const char *path = opt_text(r->a, option);
    char        text[SHAPE_TEXT];

    if (!path) return EXIT_OK;
    const int code = array_load(r->a, r->ctx, option, option, path, &t->file);
    if (code) return code;
    const int n = t->n_dims = t->file.n_dims;
    if (n < 2 || n > 3)
        return failure(r->a,
                       "--%s %s: its shape is %s; accepted are N x d and B x N x d",
                       option, path, shape_text(n, t->file.shape, "", text));
    memcpy(t->shape, t->file.shape, sizeof t->shape);
    memcpy(t->axes,
           (int64_t[]){ n == 3 ? t->shape[0] : 1, 1, t->shape[n - 2], t->shape[n - 1] },
           sizeof t->axes);
    return EXIT_OK;
}

static int load_array(struct run_verb *r, const char *option, bool ints, struct array *x)
{
    const char *path = opt_text(r->a, option);
    if (!path) return EXIT_OK;
    return ints ? array_load_ints(r->a, r->ctx, option, option, path, x)
                : array_load(r->a, r->ctx, option, option, path, x);
}

bool run_is_words(const char *name) { return strcmp(name, "words") == 0; }

static int load_words(struct run_verb *r)
{
    char        name[PARAM_NAME];
    const char *text, *path = NULL;

    for (int i = 0; (text = opt_nth(r->a, "param", i)); i++) {
        const int code = run_param_name(r, text, name, &path);
        if (code) return code;
        if (!run_is_words(name)) continue;
        array_free(&r->words);
        return array_load_ints(r->a, r->ctx, "param", "words", path, &r->words);
    }
    return EXIT_OK;
}

int run_load_rest(struct run_verb *r)
{
    int code = load_array(r, "mask", false, &r->mask_file);

    if (!code) code = load_array(r, "bias", false, &r->bias_file);
    if (!code) code = load_array(r, "len-q", true, &r->len_q);
    if (!code) code = load_array(r, "len-k", true, &r->len_k);
    if (!code) code = load_array(r, "docs", true, &r->docs);
    return code;
}

static int load_all(struct run_verb *r)
{
    struct run_tensor *const tensors[] = { &r->q, &r->k, &r->v, &r->dout };
    static const char *const names[] = { "q", "k", "v", "dout" };
    int                      code = EXIT_OK;

    for (int i = 0; i < 4 && !code; i++)
        code = load_tensor(r, names[i], tensors[i]);
    if (!code) code = run_load_states(r, "x", &r->x);
    return code ? code : run_load_rest(r);
}

/* The axes of x must be `want`, where that is not negative. */
static int expect(const struct run_verb *r, const struct array *x,
                  const int64_t axes[4], const int64_t want[4], const char *because)
{
    const char *const letters = r->rows_first ? "BNHd" : "BHNd";
    int64_t           shape[4];
    char              seen[SHAPE_TEXT], wanted[SHAPE_TEXT];
    int               bad = 0;

    for (int i = 0; i < 4; i++)
        bad += want[i] >= 0 && want[i] != axes[i];
    if (!bad) return EXIT_OK;
    memcpy(shape, want, sizeof shape);
    run_in_file_order(r, 4, shape);

    /* As many axes as the file has, or as it should have. */
    int skip = 4 - x->n_dims;
    if (skip > 1 && want[1] != 1 && want[1] >= 0) skip = 1;
    if (skip > 0 && want[0] != 1 && want[0] >= 0) skip = 0;
    return failure(r->a, "--%s %s: its shape is %s; %s needs %s", x->option, x->path,
                   shape_text(x->n_dims, x->shape, "", seen), because,
                   shape_text(4 - skip, shape + skip, letters + skip, wanted));
}

/* "--q q.npy of 2x5x8" */
static const char *origin(const struct run_tensor *t, char *text, size_t cap)
{
    char shape[SHAPE_TEXT];
    snprintf(text, cap, "--%s %s of %s", t->file.option, t->file.path,
             shape_text(t->file.n_dims, t->file.shape, "", shape));
    return text;
}

static const struct run_tensor *first_given(const struct run_tensor *a,
                                            const struct run_tensor *b,
                                            const struct run_tensor *c)
{
    return a->file.path ? a : b->file.path ? b : c;
}

int run_refuse_heads(const struct run_verb *r, int64_t sets)
{
    const struct run_tensor *lead = first_given(&r->q, &r->v, &r->k);
    const struct run_tensor *keys = first_given(&r->k, &r->v, &r->q);
    const long long          heads = r->p.heads, kv = r->p.kv_heads;

    if (sets == r->p.heads)
        return failure(
            r->a, "--%s %s: it has %lld heads, which must divide the %lld of --%s %s",
            keys->file.option, keys->file.path, kv, heads, lead->file.option,
            lead->file.path);
    return failure(
        r->a,
        "--%s %s: it has %lld heads, which must divide the %lld sets of keys "
        "that the %lld heads of --%s %s have",
        keys->file.option, keys->file.path, kv, (long long)sets, heads,
        lead->file.option, lead->file.path);
}

void run_tell_heads(const struct run_verb *r)
{
    const struct run_tensor *lead = first_given(&r->q, &r->v, &r->k);
    const struct run_tensor *keys = first_given(&r->k, &r->v, &r->q);
    const long long heads = r->p.heads, kv = r->p.kv_heads, rows = lead->axes[2];
    const bool      given = opt_flag(r->a, "layout");
    char            q[512], k[512];

    if (kv < heads)
        note(r->a, "%s has %lld head%s for the %lld of %s: each serves %lld%s",
             origin(keys, k, sizeof k), kv, kv == 1 ? "" : "s", heads,
             origin(lead, q, sizeof q), heads / kv,
             keys->n_dims > 2 && !given ? "; rows before heads are --layout bnhd" : "");
    if (heads > rows && rows > 1 && !given)
        note(r->a,
             "%s is read as %lld heads of %lld rows; --layout bnhd reads %lld heads of "
             "%lld rows",
             origin(lead, q, sizeof q), heads, rows, rows, heads);
}

static int check_against(const struct run_verb *r, const struct run_tensor *t,
                         const struct run_tensor *lead, int64_t heads, int64_t rows,
                         int64_t width)
{
    char          text[512];
    const int64_t want[4] = { lead->axes[0], heads, rows, width };

    if (!t->file.path || t == lead) return EXIT_OK;
    return expect(r, &t->file, t->axes, want, origin(lead, text, sizeof text));
}

bool run_countable(const int64_t axes[4])
{
    int64_t most = INT64_MAX / 16;
    for (int i = 0; i < 4; i++)
        most /= axes[i] > 0 ? axes[i] : 1;
    return most > 0;
}

static void set_layout(const struct run_verb *r, foci_layout *l, int64_t heads,
                       int64_t rows, int64_t width)
{
    *l = (foci_layout){ .batch = heads * rows * width,
                        .row = r->rows_first ? heads * width : width,
                        .head = r->rows_first ? width : rows * width };
}

/* A row of x for every query. */
static int check_x(struct run_verb *r, const struct run_tensor *lead)
{
    const struct run_tensor *x = &r->x;
    const int64_t            want[3] = { r->p.batch, r->p.len_q, -1 };
    char                     seen[SHAPE_TEXT], wanted[SHAPE_TEXT], text[512];

    if (!x->file.path) {
        assume_x(&r->p);
        return EXIT_OK;
    }
    const int skip = x->n_dims == 2 && want[0] == 1;
    if (x->axes[0] != want[0] || x->axes[2] != want[1])
        return failure(r->a, "--x %s: its shape is %s; %s needs %s", x->file.path,
                       shape_text(x->n_dims, x->shape, "", seen),
                       origin(lead, text, sizeof text),
                       shape_text(3 - skip, want + skip, &"BNd"[skip], wanted));
    r->p.dim_x = x->axes[3];
    set_layout(r, &r->p.x, 1, x->axes[2], x->axes[3]);
    return EXIT_OK;
}

static int make_problem(struct run_verb *r)
{
    foci_problem            *p = &r->p;
    const struct run_tensor *lead = first_given(&r->q, &r->v, &r->k);
    const struct run_tensor *keys = first_given(&r->k, &r->v, &r->q);
    const struct run_tensor *width = first_given(&r->q, &r->k, &r->v);
    char                     text[SHAPE_TEXT];

    if (!lead->file.path)
        return usage_error(r->a, "needs the tensors that %s reads: --q, --k, --v%s",
                           r->spec,
                           r->x.file.path ? "; or, for a whole layer, --heads" : "");
    p->batch = lead->axes[0];
    p->heads = lead->axes[1];
    p->kv_heads = keys->axes[1];
    p->len_q = lead->axes[2];
    p->len_k = keys->axes[2];
    p->dim_qk = width->axes[3];
    p->dim_v = r->v.file.path ? r->v.axes[3] : p->dim_qk;

    int code = check_against(r, &r->k, lead, -1, -1, p->dim_qk);
    if (!code) code = check_against(r, &r->v, lead, -1, -1, -1);
    if (!code) code = check_against(r, &r->v, keys, p->kv_heads, p->len_k, -1);
    if (!code) code = check_x(r, lead);
    if (code) return code;
    if (p->heads < 1 || p->kv_heads < 1) return run_refuse_heads(r, p->heads);

    r->o.n_dims = lead->n_dims;
    memcpy(r->o.axes, (int64_t[]){ p->batch, p->heads, p->len_q, p->dim_v },
           sizeof r->o.axes);
    memcpy(r->o.shape, r->o.axes + 4 - r->o.n_dims,
           (size_t)r->o.n_dims * sizeof *r->o.shape);
    run_in_file_order(r, r->o.n_dims, r->o.shape);
    if (!run_countable(r->o.axes))
        return failure(r->a, "an output of %s has more elements than can be counted",
                       shape_text(4, r->o.axes, "", text));

    set_layout(r, &p->q, p->heads, p->len_q, p->dim_qk);
    set_layout(r, &p->k, p->kv_heads, p->len_k, p->dim_qk);
    set_layout(r, &p->v, p->kv_heads, p->len_k, p->dim_v);
    set_layout(r, &p->o, p->heads, p->len_q, p->dim_v);
    if (!r->dout.file.path) return EXIT_OK;
    return expect(r, &r->dout.file, r->dout.axes, r->o.axes, "the output");
}

/* Copy [b][h][rows * keys] to [batch][heads][rows * keys], repeating single ones. */
static void spread(const float *in, int64_t b, int64_t h, int64_t batch, int64_t heads,
                   int64_t n, float *out)
{
    for (int64_t i = 0; i < batch; i++)
        for (int64_t j = 0; j < heads; j++) {
            const int64_t from = (b > 1 ? i : 0) * h + (h > 1 ? j : 0);
            if (n)
                memcpy(out + (i * heads + j) * n, in + from * n,
                       (size_t)n * sizeof *out);
        }
}

/* Batch and heads of a mask or bias may be 1; the rest must fit the problem. */
static int check_pairs(const struct run_verb *r, const struct array *x, int64_t axes[4])
{
    const foci_problem *p = &r->p;

    if (!x->path) return EXIT_OK;
    const long long nq = p->len_q, nk = p->len_k, h = p->heads;
    char            accepted[240];
    snprintf(accepted, sizeof accepted,
             "%lldx%lld, %lldx%lldx%lld and %lldx%lldx%lldx%lld; a 1 serves all", nq,
             nk, h, nq, nk, (long long)p->batch, h, nq, nk);
    const int code = array_axes(r->a, x, accepted, axes);
    if (code) return code;
    const bool fits = (axes[0] == 1 || axes[0] == p->batch) &&
                      (axes[1] == 1 || axes[1] == p->heads) && axes[2] == p->len_q &&
                      axes[3] == p->len_k;
    char seen[SHAPE_TEXT];
    return fits ? EXIT_OK
                : failure(r->a, "--%s %s: its shape is %s; accepted are %s", x->option,
                          x->path, shape_text(x->n_dims, x->shape, "", seen), accepted);
}

/* The library knows one extent for both, so the smaller of the two is spread out. */
static int make_pairs(struct run_verb *r)
{
    foci_problem *p = &r->p;
    int64_t       m[4] = { 1, 1, 0, 0 }, b[4] = { 1, 1, 0, 0 };

    int code = check_pairs(r, &r->mask_file, m);
    if (!code) code = check_pairs(r, &r->bias_file, b);
    if (code) return code;
    p->mask_batch = m[0] > b[0] ? m[0] : b[0];
    p->mask_heads = m[1] > b[1] ? m[1] : b[1];

    if (!r->mask_file.path && !r->bias_file.path) return EXIT_OK;

    const int64_t n = p->len_q * p->len_k, extent = p->mask_batch * p->mask_heads;
    if (r->bias_file.path) {
        p->flags |= FOCI_FLAG_BIAS;
        r->bias = need((size_t)extent, (size_t)n * sizeof *r->bias);
        spread(r->bias_file.data, b[0], b[1], p->mask_batch, p->mask_heads, n, r->bias);
    }
    if (r->mask_file.path) {
        float *all = need((size_t)extent, (size_t)n * sizeof *all);
        p->flags |= FOCI_FLAG_MASK;
        r->mask = need((size_t)extent, (size_t)n);
        spread(r->mask_file.data, m[0], m[1], p->mask_batch, p->mask_heads, n, all);
        for (int64_t i = 0; i < extent * n; i++)
            r->mask[i] = all[i] != 0;
        free(all);
    }
    return EXIT_OK;
}

static int check_vector(const struct run_verb *r, const struct array *x, int64_t want)
{
    char seen[SHAPE_TEXT];

    if (!x->path || (x->n_dims == 1 && (want < 0 ? x->count > 0 : x->count == want)))
        return EXIT_OK;
    shape_text(x->n_dims, x->shape, "", seen);
    if (want < 0)
        return failure(r->a, "--%s %s: its shape is %s; a list of offsets is needed",
                       x->option, x->path, seen);
    return failure(
        r->a,
        "--%s %s: its shape is %s; one length for each of %lld sequences is needed",
        x->option, x->path, seen, (long long)want);
}

static int make_lengths(struct run_verb *r)
{
    if (r->docs.path && (r->len_q.path || r->len_k.path))
        return usage_error(r->a, "--docs and --%s exclude each other",
                           r->len_q.path ? "len-q" : "len-k");
    int code = check_vector(r, &r->len_q, r->p.batch);
    if (!code) code = check_vector(r, &r->len_k, r->p.batch);
    if (!code) code = check_vector(r, &r->docs, -1);
    if (!code && r->docs.path)
        r->p.max_docs = r->docs.count > 1 ? r->docs.count - 1 : 1;
    return code;
}

/* A word for every token: N, or B x N. */
static int check_words(const struct run_verb *r)
{
    const struct array *w = &r->words;
    const int64_t       want[2] = { r->p.batch, r->p.len_q };
    const int           skip = r->p.batch == 1;
    char                seen[SHAPE_TEXT], wanted[SHAPE_TEXT];

    if (!w->path) return EXIT_OK;
    const bool one = w->n_dims == 1 && skip && w->shape[0] == want[1];
    const bool all = w->n_dims == 2 && w->shape[0] == want[0] && w->shape[1] == want[1];
    if (one || all) return EXIT_OK;
    return failure(r->a,
                   "--param words=%s: its shape is %s; a word for each token is "
                   "needed: %s",
                   w->path, shape_text(w->n_dims, w->shape, "", seen),
                   shape_text(2 - skip, want + skip, &"BN"[skip], wanted));
}

int run_words(struct run_verb *r)
{
    const int code = load_words(r);
    return code ? code : check_words(r);
}

void run_make_grad(const struct run_verb *r, const struct run_tensor *of,
                   struct run_tensor *grad)
{
    if (!of->data) return;
    memcpy(grad->axes, of->axes, sizeof grad->axes);
    memcpy(grad->shape, of->shape, sizeof grad->shape);
    grad->n_dims = of->n_dims;
    grad->data = need((size_t)tensor_count(of), foci_dtype_bytes(r->p.dtype));
}

void run_make_data(const struct run_verb *r, struct run_tensor *t)
{
    const int64_t n = t->file.count;
    if (!t->file.path) return;
    if (r->p.dtype == FOCI_F32) {
        t->data = t->file.data;
        t->file.data = NULL;
        return;
    }
    t->data = need((size_t)n, sizeof(uint16_t));
    to_bf16(t->file.data, n, t->data);
}

int run_fit_rest(struct run_verb *r)
{
    int code = make_pairs(r);
    if (!code) code = make_lengths(r);
    return code ? code : run_words(r);
}

int run_inputs(struct run_verb *r)
{
    int code = load_all(r);
    if (!code) code = make_problem(r);
    if (!code) code = run_fit_rest(r);
    if (code) return code;
    run_make_data(r, &r->q);
    run_make_data(r, &r->k);
    run_make_data(r, &r->v);
    run_make_data(r, &r->x);
    run_make_data(r, &r->dout);
    return EXIT_OK;
}
