/* run.c -- foci run: attention on tensors from files. */
#include <stdlib.h>
#include <string.h>

#include "cli/device.h"
#include "cli/layer.h"
#include "cli/run.h"
#include "foci/mechanism.h"

foci_io run_io(const struct run_verb *r)
{
    return (foci_io){
        FOCI_SIZED(foci_io),
        .q = r->q.data,
        .k = r->k.data,
        .v = r->v.data,
        .x = r->x.data,
        .o = r->o.data,
        .len_q = r->len_q.ints,
        .len_k = r->len_k.ints,
        .docs = r->docs.ints,
        .n_docs = r->docs.path ? r->docs.count - 1 : 0,
        .params = r->params,
        .saved = r->saved,
        .work = r->work,
        .mask = r->mask,
        .bias = r->bias,
        .dropout_seed = (uint64_t)opt_int(r->a, "dropout-seed", 0),
        .words = r->words.ints,
    };
}

/* What a group reads has to be given. */
static int check_missing(const struct run_verb *r, bool values)
{
    const struct {
        const char *name;
        unsigned    read;
        bool        given;
    } tensors[] = {
        { "--q", FOCI_READ_Q, r->q.file.path },
        { "--k", FOCI_READ_K, r->k.file.path },
        { "--v", values ? FOCI_READ_V : 0, r->v.file.path },
        { "--x", FOCI_READ_X, r->x.file.path },
        { "--param words=FILE", FOCI_READ_WORDS, r->words.path },
    };
    const unsigned reads = run_reads(r->plan);

    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (reads & tensors[i].read && !tensors[i].given)
            return usage_error(r->a, "%s is missing, and %s reads it", tensors[i].name,
                               r->spec);
    return EXIT_OK;
}

static int calibrate(const struct run_verb *r)
{
    const foci_io io = run_io(r);
    bool          found = true;
    const int     code =
        opt_flag(r->a, "calibrate") ? run_calibrate(r, &io, NULL, &found) : EXIT_OK;

    if (code || found) return code;
    return usage_error(r->a, "--calibrate: %s has no statistics of q and k", r->spec);
}

static int check_io(const struct run_verb *r)
{
    char          text[512] = "";
    const foci_io io = run_io(r);
    const int     code = calibrate(r);

    if (code) return code;
    if (on_device(r->ctx)) return EXIT_OK; /* copies are looked at there */
    if (foci_io_check(r->plan, &io, NULL, text, sizeof text))
        return failure(r->a, "%s", text);
    return EXIT_OK;
}

/* If the heads of the keys are at fault, their file is named. */
static int plan_error(const struct run_verb *r, foci_status status)
{
    foci_problem p = r->p;
    foci_plan   *plan;

    p.kv_heads = 0;
    p.k = p.v = (foci_layout){ 0 };
    if (status == FOCI_ERR_ARG && !foci_plan_create(r->ctx, r->spec, &p, &plan)) {
        foci_plan_get_problem(plan, &p);
        foci_plan_free(plan);
        if (p.kv_heads % r->p.kv_heads) return run_refuse_heads(r, p.kv_heads);
    }
    return library_error(r->a, r->ctx, status, r->spec);
}

static int make_plan(struct run_verb *r)
{
    if (opt_flag(r->a, "causal")) r->p.flags |= FOCI_FLAG_CAUSAL;
    if (opt_text(r->a, "dout")) r->p.flags |= FOCI_FLAG_TRAIN;
    if (opt_word(r->a, "precision", 0)) r->p.flags |= FOCI_FLAG_FAST;
    r->p.seed = (uint64_t)opt_int(r->a, "seed", 0);
    r->p.dropout = opt_real(r->a, "dropout", 0);
    const int code = run_check_lists(r);
    if (code) return code;
    const foci_status status = foci_plan_create(r->ctx, r->spec, &r->p, &r->plan);
    return status ? plan_error(r, status) : EXIT_OK;
}

static void make_memory(struct run_verb *r)
{
    const foci_problem *p = &r->p;

    r->o.data = need((size_t)tensor_count(&r->o), foci_dtype_bytes(r->p.dtype));
    r->work = need(foci_plan_work_bytes(r->plan), 1);
    if (r->dout.data) {
        r->saved = need(foci_plan_saved_bytes(r->plan), 1);
        run_make_grad(r, &r->q, &r->dq);
        run_make_grad(r, &r->k, &r->dk);
        run_make_grad(r, &r->v, &r->dv);
        run_make_grad(r, &r->x, &r->dx);
    }
    if (r->dout.data && r->bias)
        r->dbias = need((size_t)(p->mask_batch * p->mask_heads),
                        (size_t)(p->len_q * p->len_k) * sizeof *r->dbias);
    if (opt_text(r->a, "weights")) {
        const size_t rows = (size_t)(p->batch * p->heads * p->len_q);
        r->weights = need(rows, (size_t)p->len_k * sizeof *r->weights);
    }
}

static int execution_error(const struct run_verb *r, const char *pass,
                           foci_status status)
{
    return failure(r->a, "%s: the %s pass failed: %s", r->a->words[0], pass,
                   device_reason(r->ctx, status));
}

/* The same on a device, from and to memory of the host. */
static int execute_there(struct run_verb *r, const foci_io *io, const foci_grads *grads)
{
    struct device_copy c;
    char               text[512] = "";
    const char        *pass = "forward";
    foci_status        status =
        device_send(r->ctx, r->plan, io, r->dout.data ? grads : NULL, &c);

    double start = seconds();
    if (!status) status = foci_forward(r->plan, &c.io);
    if (!status) status = foci_device_wait(r->ctx, NULL);
    r->forward_s = seconds() - start;
    if (!status && r->dout.data) {
        pass = "backward";
        start = seconds();
        status = foci_backward(r->plan, &c.io, &c.grads);
        if (!status) status = foci_device_wait(r->ctx, NULL);
        r->backward_s = seconds() - start;
    }
    if (!status) status = device_fetch(&c);
    if (status == FOCI_ERR_ARG)
        foci_io_check(r->plan, &c.io, r->dout.data ? &c.grads : NULL, text, sizeof text);
    device_release(&c);
    if (*text) return failure(r->a, "%s", text);
    return status ? execution_error(r, pass, status) : EXIT_OK;
}

static int execute(struct run_verb *r)
{
    const bool       ref = opt_flag(r->a, "ref"), step = opt_flag(r->a, "step");
    const foci_io    io = run_io(r);
    const foci_grads grads = {
        FOCI_SIZED(foci_grads), .d_o = r->dout.data, .dq = r->dq.data,
        .dk = r->dk.data,       .dv = r->dv.data,    .dx = r->dx.data,
        .dparams = r->dparams,  .dbias = r->dbias,
    };

    foci_status status =
        r->weights ? foci_ref_weights(r->plan, &io, r->weights) : FOCI_OK;
    if (status == FOCI_ERR_UNSUP)
        return failure(r->a,
                       "%s has no weights: its output is not one matrix times the "
                       "values",
                       r->spec);
    if (status) return execution_error(r, "weights", status);

    if (on_device(r->ctx) && !ref && !step) return execute_there(r, &io, &grads);
    double start = seconds();
    if (step) {
        const int code = run_steps(r);
        if (code) return code;
    } else
        status = ref ? foci_ref_forward(r->plan, &io) : foci_forward(r->plan, &io);
    r->forward_s = seconds() - start;
    if (status) return execution_error(r, "forward", status);
    if (r->dout.data) {
        start = seconds();
        status = ref ? foci_ref_backward(r->plan, &io, &grads)
                     : foci_backward(r->plan, &io, &grads);
        r->backward_s = seconds() - start;
        if (status) return execution_error(r, "backward", status);
    }
    return EXIT_OK;
}

void run_close(struct run_verb *r)
{
    struct run_tensor *const tensors[] = { &r->q,      &r->k,    &r->v,      &r->x,
                                           &r->o,      &r->dq,   &r->dk,     &r->dv,
                                           &r->dx,     &r->dout, &r->source, &r->memory,
                                           &r->dsource };
    struct array *const      arrays[] = { &r->mask_file, &r->bias_file, &r->len_q,
                                          &r->len_k,     &r->docs,      &r->words };
    void *const              blocks[] = { r->mask,    r->bias,    r->dbias, r->params,
                                          r->dparams, r->weights, r->work,  r->saved };

    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        array_free(&tensors[i]->file);
        free(tensors[i]->data);
    }
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        array_free(arrays[i]);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
    free(r->given);
    json_decref(r->written);
    json_decref(r->not_finite);
    run_lists_free(r);
    foci_plan_free(r->plan);
    foci_layer_free(r->layer);
    foci_ctx_free(r->ctx);
}

int run_open(struct run_verb *r)
{
    int code = run_inputs(r);

    if (!code) code = run_lists(r);
    return code ? code : make_plan(r);
}

/* For weights alone values need not be there: then they are zeros. */
int run_open_weights(struct run_verb *r)
{
    int code = run_open(r);

    if (!code) code = check_missing(r, false);
    if (!code) code = run_params(r);
    if (code) return code;
    if (!r->v.data) {
        memcpy(r->v.axes,
               (int64_t[]){ r->p.batch, r->p.kv_heads, r->p.len_k, r->p.dim_v },
               sizeof r->v.axes);
        r->v.data = need((size_t)tensor_count(&r->v), foci_dtype_bytes(r->p.dtype));
    }
    if (opt_flag(r->a, "calibrate")) {
        r->o.data = need((size_t)tensor_count(&r->o), foci_dtype_bytes(r->p.dtype));
        r->work = need(foci_plan_work_bytes(r->plan), 1);
    }
    return calibrate(r);
}

static int run_plan(struct run_verb *r)
{
    int code = run_open(r);

    if (!code) code = check_missing(r, true);
    if (!code) run_tell_heads(r);
    if (!code) code = run_params(r);
    if (!code) {
        make_memory(r);
        code = run_check_grads(r);
        if (!code) code = check_io(r);
    }
    return code ? code : execute(r);
}

static int run(const struct args *a)
{
    struct run_verb r = { .a = a,
                          .spec = a->words[0],
                          .rows_first = opt_word(a, "layout", 0) == 1,
                          .params_file = opt_text(a, "params"),
                          .transposed = opt_flag(a, "transposed"),
                          .p = { FOCI_SIZED(foci_problem) } };

    int code = run_check_options(a);
    if (code) return code;
    r.ctx = open_device_ctx(a, (int)opt_int(a, "threads", 0));
    if (!r.ctx) return EXIT_FAILED;

    r.p.dtype = opt_word(a, "dtype", 0) ? FOCI_BF16 : FOCI_F32;
    code = run_outputs(&r);
    if (!code) code = run_is_layer(a) ? run_layer(&r) : run_plan(&r);
    if (!code) code = run_write(&r);
    if (!code) code = run_report(&r);
    run_close(&r);
    return code;
}

#define FILE_OPTION(name_, help_)                                                      \
    {                                                                                  \
        .name = name_, .arg = "FILE", .help = help_, .kind = KIND_TEXT                 \
    }

#define EXTENT_OPTION(name_, arg_, help_)                                              \
    {                                                                                  \
        .name = name_, .arg = arg_, .help = help_, .kind = KIND_WHOLE, .min = 1,       \
        .max = LAYER_WIDEST                                                            \
    }

static const struct option options[] = {
    FILE_OPTION("q", "queries: N x d, H x N x d or B x H x N x d"),
    FILE_OPTION("k", "keys, likewise; fewer heads are shared, and routes have more"),
    FILE_OPTION("v", "values, likewise"),
    FILE_OPTION("x",
                "hidden states, of a layer or where they are read: N x d or B x N x d"),
    { .name = "layout",
      .arg = "ORDER",
      .help = "axes of q, k, v, o and gradients: bhnd (default), or bnhd, heads by row",
      .kind = KIND_WORD,
      .words = "bhnd|bnhd" },
    EXTENT_OPTION("heads", "N", "a whole layer from --x, with so many heads"),
    { .name = "layer",
      .arg = "KIND",
      .help = "of a layer: attention (default), gau (one head) or conv",
      .kind = KIND_WORD,
      .words = LAYER_KINDS },
    EXTENT_OPTION("head-dim", "D",
                  "width of a head (default that of x by heads; gau 128)"),
    EXTENT_OPTION("value-dim", "D",
                  "of its values (default as --head-dim; gau twice x)"),
    EXTENT_OPTION("kv-heads", "N",
                  "key and value heads of a layer (default one a head)"),
    { .name = "biases", .help = "every projection of the layer adds one" },
    FILE_OPTION("source",
                "hidden states that give the layer's keys and values, likewise"),
    FILE_OPTION("memory", "hidden states before x, which give keys and values only"),
    { .name = "index",
      .arg = "N",
      .help = "place of the layer in its model: frozen projections differ (default 0)",
      .kind = KIND_WHOLE,
      .max = MOST_WHOLE },
    FILE_OPTION("out", "where the output goes, as .npy of f4; - is standard output"),
    { .name = "causal", .help = "query i sees the keys up to i, counted from the end" },
    { .name = "dtype",
      .arg = "TYPE",
      .help = "f32 (default), or bf16, which rounds the inputs",
      .kind = KIND_WORD,
      .words = "f32|bf16" },
    OPTION_PRECISION,
    { .name = "seed",
      .arg = "N",
      .help = "draw parameters and random blocks from this seed (default 0)",
      .kind = KIND_WHOLE,
      .max = MOST_WHOLE },
    OPTION_THREADS,
    OPTION_DEVICE,
    { .name = "param",
      .arg = "NAME=FILE",
      .help = "a parameter, for each head or for all; a list that planning asks for",
      .kind = KIND_TEXT,
      .many = true },
    FILE_OPTION("params", "parameters by their names, as --dump-params writes them"),
    { .name = "transposed",
      .help = "matrices of a layer are given as [out][in], as in Linear of PyTorch" },
    FILE_OPTION("dump-params", "where the parameters go, as .safetensors"),
    FILE_OPTION("weights", "where the matrix A of o = A v goes, as .npy"),
    FILE_OPTION("dout", "gradient of the output"),
    { .name = "grads",
      .arg = "PREFIX",
      .help =
          "write PREFIX.dq.npy, .dk, .dv, .dx, .dsource, .dbias, .dNAME of parameters",
      .kind = KIND_TEXT },
    { .name = "calibrate",
      .help = "statistics of this q and k first, then frozen; allows --causal" },
    { .name = "ref", .help = "by the written-out formulas, in double precision; slow" },
    { .name = "step", .help = "token by token, through decoding states; with --causal" },
    FILE_OPTION("mask",
                "pairs that are seen (not 0): Nq x Nk, with H or B x H before it"),
    FILE_OPTION("bias", "added to the logits: Nq x Nk, with H or B x H before it"),
    { .name = "dropout",
      .arg = "P",
      .help = "drop this share of the weights (default 0)",
      .kind = KIND_REAL,
      .max = 1,
      .below = true },
    { .name = "output-dropout",
      .arg = "P",
      .help = "drop this share of what a layer gives (default 0)",
      .kind = KIND_REAL,
      .max = 1,
      .below = true },
    { .name = "dropout-seed",
      .arg = "N",
      .help = "seed that decides which are dropped (default 0)",
      .kind = KIND_WHOLE,
      .max = MOST_WHOLE },
    FILE_OPTION("len-q", "queries (of a layer rows of x) of each sequence that count"),
    FILE_OPTION("len-k", "keys (of a layer rows of the source) of each that count"),
    FILE_OPTION("docs", "offsets of packed documents: 0, ..., N"),
    { 0 },
};

static const char with_param[] = "foci run 'softmax sink' --q q.npy --k k.npy "
                                 "--v v.npy --out o.npy --param sink=s.npy";

static const char with_statistics[] =
    "foci run 'performer(kind=aderf)' --q q.npy --k k.npy --v v.npy --out o.npy "
    "--causal --calibrate";

static const char with_gradients[] =
    "foci run softmax --x x.npy --source s.npy --heads 8 --param Wq=w.npy --out y.npy "
    "--dout dy.npy --grads g";

static const char *const examples[] = {
    "foci run softmax --q q.npy --k k.npy --v v.npy --out o.npy --causal",
    with_param,
    "foci run softmax --q q.npy --k k.npy --v v.npy --out o.npy --causal --step",
    "foci run relu2 --q q.npy --k k.npy --v v.npy --out o.npy --dout do.npy --grads g",
    "foci run block --q q.npy --k k.npy --v v.npy --out o.npy --param layout=l.npy",
    with_statistics,
    "foci run routed --q q.npy --k k.npy --v v.npy --x x.npy --out o.npy",
    "foci run softmax --x x.npy --heads 8 --out y.npy --dump-params p.safetensors",
    "foci run '4*softmax frozen + 4*softmax' --x x.npy --heads 8 --causal --out y.npy",
    with_gradients,
    NULL,
};

const struct verb verb_run = {
    .name = "run",
    .run = run,
    .summary = "attention on tensors from files, or a whole layer",
    .usage = "SPEC",
    .min_words = 1,
    .max_words = 1,
    .options = options,
    .examples = examples,
    .notes =
        "Files are .npy, .safetensors or .npz; FILE:NAME is one array of several, and "
        "FILE\n"
        "alone the one named as the option or the parameter.  - is standard input, "
        "once.\n"
        "With --out - the array is all that is written to standard output, and the "
        "summary\n"
        "goes to stderr.  Tensors that the mechanism does not read may be left out.  "
        "Keys\n"
        "with fewer heads than queries are shared, and a line says so.  Lists of "
        "whole\n"
        "numbers, such as the layout of blocks, may have any shape with the right "
        "number\n"
        "of entries.  With routes, key head h J + r is route r of head h.\n\n"
        "With --heads a whole layer is run, from hidden states x to hidden states: it "
        "owns\n"
        "Wq, Wk, Wv (of the groups that read them; in a mix 0.Wq and so on) and Wo, "
        "and "
        "draws\n"
        "them from the seed.  foci plan SPEC PROBLEM --width W --json lists them.",
};
