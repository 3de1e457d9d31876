/* run_layer.c -- foci run --heads: a whole layer on hidden states from files.
 *
 * The problem of the plan inside, as far as files and options determine it, is in r->p, which
 * masks, lengths, words and lists are checked against.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/layer.h"
#include "cli/run.h"

/* Rows of the same batch and, where it says so, of the same width as x. */
static int check_states(const struct run_verb *r, const struct run_tensor *t,
                        int64_t rows, int64_t width)
{
    const int64_t want[3] = { r->x.axes[0], rows, width };
    const int     skip = r->x.n_dims == 2;
    char          seen[SHAPE_TEXT], wanted[SHAPE_TEXT], x[SHAPE_TEXT];

    if (!t->file.path) return EXIT_OK;
    if (t->axes[0] == want[0] && (rows < 0 || t->axes[2] == rows) &&
        (width < 0 || t->axes[3] == width))
        return EXIT_OK;
    return failure(r->a, "--%s %s: its shape is %s; --x %s of %s needs %s",
                   t->file.option, t->file.path,
                   shape_text(t->n_dims, t->shape, "", seen), r->x.file.path,
                   shape_text(r->x.n_dims, r->x.shape, "", x),
                   shape_text(3 - skip, want + skip, &"BNd"[skip], wanted));
}

static int load(struct run_verb *r)
{
    int code = run_load_states(r, "x", &r->x);

    if (!code) code = run_load_states(r, "source", &r->source);
    if (!code) code = run_load_states(r, "memory", &r->memory);
    if (!code) code = run_load_states(r, "dout", &r->dout);
    if (!code) code = run_load_rest(r);
    if (!code) code = check_states(r, &r->source, -1, -1);
    if (!code) code = check_states(r, &r->memory, -1, r->x.axes[3]);
    if (!code) code = check_states(r, &r->dout, r->x.axes[2], r->x.axes[3]);
    return code;
}

/* Sizes that nothing else bounds are refused here, before they are multiplied. */
static int make_problem(struct run_verb *r)
{
    foci_problem *p = &r->p;
    const int64_t width = r->x.axes[3];
    char          text[SHAPE_TEXT];

    p->batch = r->x.axes[0];
    p->heads = opt_int(r->a, "heads", 1);
    p->len_q = r->x.axes[2];
    p->memory = r->memory.file.path ? r->memory.axes[2] : 0;
    p->len_k = r->source.file.path ? r->source.axes[2] : p->len_q + p->memory;
    p->dim_qk = opt_int(r->a, "head-dim", width >= p->heads ? width / p->heads : 1);
    p->dim_v = opt_int(r->a, "value-dim", p->dim_qk);
    p->dim_x = width;

    const int64_t pairs[4] = { p->batch, p->heads, p->len_q, p->len_k };
    if (!run_countable(r->x.axes) || !run_countable(pairs))
        return failure(r->a, "--x %s of %s: its rows are more than can be counted",
                       r->x.file.path, shape_text(r->x.n_dims, r->x.shape, "", text));
    r->o.n_dims = r->x.n_dims;
    memcpy(r->o.axes, r->x.axes, sizeof r->o.axes);
    memcpy(r->o.shape, r->x.shape, sizeof r->o.shape);
    return EXIT_OK;
}

static int read_inputs(struct run_verb *r)
{
    int code = load(r);

    if (!code) code = make_problem(r);
    if (!code) code = run_fit_rest(r);
    if (code) return code;
    run_make_data(r, &r->x);
    run_make_data(r, &r->source);
    run_make_data(r, &r->memory);
    run_make_data(r, &r->dout);
    return EXIT_OK;
}

static foci_layer_problem problem_of(const struct run_verb *r)
{
    const struct args  *a = r->a;
    const foci_problem *p = &r->p;

    return (foci_layer_problem){
        FOCI_SIZED(foci_layer_problem),
        .kind = (foci_layer_kind)opt_word(a, "layer", FOCI_LAYER_ATTENTION),
        .dtype = p->dtype,
        .flags = p->flags,
        .batch = p->batch,
        .len = p->len_q,
        .len_source = r->source.file.path ? p->len_k : 0,
        .width = p->dim_x,
        .width_source = r->source.file.path ? r->source.axes[3] : 0,
        .heads = p->heads,
        .kv_heads = opt_int(a, "kv-heads", 0),
        .head_dim = opt_int(a, "head-dim", 0),
        .value_dim = opt_int(a, "value-dim", 0),
        .memory = p->memory,
        .max_docs = p->max_docs,
        .mask_batch = p->mask_batch,
        .mask_heads = p->mask_heads,
        .lists = p->lists,
        .n_lists = p->n_lists,
        .biases = opt_flag(a, "biases"),
        .weight_dropout = opt_real(a, "dropout", 0),
        .output_dropout = opt_real(a, "output-dropout", 0),
        .seed = (uint64_t)opt_int(a, "seed", 0),
        .index = (uint64_t)opt_int(a, "index", 0),
    };
}

static int make_layer(struct run_verb *r)
{
    if (opt_flag(r->a, "causal")) r->p.flags |= FOCI_FLAG_CAUSAL;
    if (opt_text(r->a, "dout")) r->p.flags |= FOCI_FLAG_TRAIN;
    if (opt_word(r->a, "precision", 0)) r->p.flags |= FOCI_FLAG_FAST;
    const int code = run_check_layer_lists(r);
    if (code) return code;
    foci_layer_problem l = problem_of(r);
    const foci_status  status = foci_layer_create(r->ctx, r->spec, &l, &r->layer);
    if (status) return library_error(r->a, r->ctx, status, r->spec);
    foci_layer_get_problem(r->layer, &l);
    if (l.memory && !r->memory.file.path)
        return usage_error(
            r->a,
            "--memory is missing, and %s reads %lld rows before those of "
            "--x",
            r->spec, (long long)l.memory);
    return EXIT_OK;
}

static void make_memory(struct run_verb *r)
{
    const foci_problem *p = &r->p;

    r->o.data = need((size_t)tensor_count(&r->o), foci_dtype_bytes(p->dtype));
    r->work = need(foci_layer_work_bytes(r->layer), 1);
    if (!r->dout.data) return;
    r->saved = need(foci_layer_saved_bytes(r->layer), 1);
    run_make_grad(r, &r->x, &r->dx);
    run_make_grad(r, &r->source, &r->dsource);
    if (r->bias)
        r->dbias = need((size_t)(p->mask_batch * p->mask_heads),
                        (size_t)(p->len_q * p->len_k) * sizeof *r->dbias);
}

static foci_layer_io make_io(const struct run_verb *r)
{
    return (foci_layer_io){
        FOCI_SIZED(foci_layer_io),
        .x = r->x.data,
        .source = r->source.data,
        .memory = r->memory.data,
        .y = r->o.data,
        .lens = r->len_q.ints,
        .lens_source = r->len_k.ints,
        .docs = r->docs.ints,
        .n_docs = r->docs.path ? r->docs.count - 1 : 0,
        .words = r->words.ints,
        .params = r->params,
        .saved = r->saved,
        .work = r->work,
        .mask = r->mask,
        .bias = r->bias,
        .dropout_seed = (uint64_t)opt_int(r->a, "dropout-seed", 0),
    };
}

static int calibrate(const struct run_verb *r, const foci_layer_io *io)
{
    bool found;

    if (!opt_flag(r->a, "calibrate")) return EXIT_OK;
    const int code = run_calibrate(r, NULL, io, &found);
    if (code || found) return code;
    return usage_error(r->a, "--calibrate: %s has no statistics of q and k", r->spec);
}

/* Words that are missing are those without which the layer refuses what it takes with
 * them. */
static int check_words(const struct run_verb *r, const foci_layer_io *io)
{
    char          text[512];
    foci_layer_io with = *io;

    if (r->words.path) return EXIT_OK;
    int32_t *words = need((size_t)(r->p.batch * r->p.len_q), sizeof *words);
    with.words = words;
    const bool missing =
        !foci_layer_io_check(r->layer, &with, NULL, text, sizeof text) &&
        foci_layer_io_check(r->layer, io, NULL, text, sizeof text);
    free(words);
    return missing
               ? usage_error(r->a, "--param words=FILE is missing, and %s reads words",
                             r->spec)
               : EXIT_OK;
}

static int check_io(const struct run_verb *r)
{
    char                text[512] = "";
    const foci_layer_io io = make_io(r);

    int code = check_words(r, &io);
    if (!code) code = calibrate(r, &io);
    if (code) return code;
    return foci_layer_io_check(r->layer, &io, NULL, text, sizeof text)
               ? failure(r->a, "%s", text)
               : EXIT_OK;
}

static int pass_failed(const struct run_verb *r, const char *pass, foci_status status)
{
    return failure(r->a, "%s: the %s pass failed: %s", r->spec, pass,
                   foci_status_text(status));
}

static int execute(struct run_verb *r)
{
    const bool             ref = opt_flag(r->a, "ref");
    const foci_layer_io    io = make_io(r);
    const foci_layer_grads grads = {
        FOCI_SIZED(foci_layer_grads), .dy = r->dout.data,    .dx = r->dx.data,
        .dsource = r->dsource.data,   .dparams = r->dparams, .dbias = r->dbias
    };
    foci_status status = FOCI_OK;

    double start = seconds();
    if (opt_flag(r->a, "step")) {
        const int code = run_layer_steps(r);
        if (code) return code;
    } else
        status = ref ? foci_ref_layer_forward(r->layer, &io)
                     : foci_layer_forward(r->layer, &io);
    r->forward_s = seconds() - start;
    if (status) return pass_failed(r, "forward", status);
    if (!r->dout.data) return EXIT_OK;
    start = seconds();
    status = ref ? foci_ref_layer_backward(r->layer, &io, &grads)
                 : foci_layer_backward(r->layer, &io, &grads);
    r->backward_s = seconds() - start;
    return status ? pass_failed(r, "backward", status) : EXIT_OK;
}

int run_layer(struct run_verb *r)
{
    int code = read_inputs(r);

    if (!code) code = run_lists(r);
    if (!code) code = make_layer(r);
    if (!code) code = run_params(r);
    if (!code) {
        make_memory(r);
        code = run_check_grads(r);
        if (!code) code = check_io(r);
    }
    return code ? code : execute(r);
}
