/* run.h -- one execution of `foci run`, from its files to its files. */
#ifndef FOCI_CLI_RUN_H
#define FOCI_CLI_RUN_H

#include "cli/tensors.h"
#include "foci/layer.h"

/* One of q, k, v, x, o or a gradient; hidden states have one head. */
struct run_tensor {
    struct array file;   /* path NULL: not from a file */
    int          n_dims; /* 2 to 4, and shape: of its file */
    int64_t      shape[4];
    int64_t      axes[4]; /* batch, heads, rows, width */
    void        *data;    /* in the dtype of the problem */
};

struct run_verb {
    const struct args *a;
    const char        *spec;
    foci_ctx          *ctx;
    bool               rows_first;  /* files have [batch][rows][heads][width] */
    const char        *params_file; /* NULL: none */
    bool               transposed;  /* matrices of a layer are given as [out][in] */
    foci_problem       p;
    foci_list         *lists; /* [p.n_lists] what p.lists is */
    foci_plan         *plan;  /* NULL: that of the layer */
    foci_layer        *layer; /* NULL: q, k and v are given */
    struct run_tensor  q, k, v, x, o, dout, dq, dk, dv, dx;
    struct run_tensor  source, memory, dsource; /* of a layer */
    struct array       mask_file, bias_file, len_q, len_k, docs, words;
    uint8_t           *mask;         /* [mask_batch][mask_heads][len_q][len_k] */
    float             *bias, *dbias; /* likewise */
    float             *params, *dparams;
    bool              *given;   /* [run_n_params()] by a file, not drawn */
    float             *weights; /* [batch][heads][len_q][len_k] */
    void              *work, *saved;
    double             forward_s, backward_s;
    json_t            *written;    /* { file, shape or arrays } of what was written */
    json_t            *not_finite; /* numbers that are not, by result */
};

/* run.c: read the files and plan; what foci_ref_weights() and its like read, with parameters.
 * EXIT_OK, or a status with the message printed; run_close() in both cases. */
int     run_open(struct run_verb *r);
int     run_open_weights(struct run_verb *r);
foci_io run_io(const struct run_verb *r);
void    run_close(struct run_verb *r);

/* run_forms.c: whether a whole layer is run, from x, or heads, from q, k and v; and check
 * for options that exclude each other.  No file is opened. */
bool run_is_layer(const struct args *a);
int  run_check_options(const struct args *a);
/* run_inputs.c: read the files and make the problem of their shapes. */
int run_inputs(struct run_verb *r);
/* Shapes alone do not tell heads from rows, so what was made of them is told where it may not
 * be what was meant: keys with fewer heads than queries, or more heads than rows. */
void run_tell_heads(const struct run_verb *r);
/* Load hidden states, N x d or B x N x d. */
int run_load_states(struct run_verb *r, const char *option, struct run_tensor *t);
/* Read masks, biases, lengths and documents; then check that they fit the problem. */
int run_load_rest(struct run_verb *r);
int run_fit_rest(struct run_verb *r);
/* The tensor's values in the dtype of the problem. */
void run_make_data(const struct run_verb *r, struct run_tensor *t);
/* Make a gradient with the shape and layout of its tensor. */
void run_make_grad(const struct run_verb *r, const struct run_tensor *of,
                   struct run_tensor *grad);
/* Whether the product of these axes does not overflow: files without elements may have any
 * shape. */
bool run_countable(const int64_t axes[4]);
/* Refuse a number of key heads that does not divide the sets of keys of all heads, one for
 * each head or route. */
int run_refuse_heads(const struct run_verb *r, int64_t sets);
/* Whether the name is that of word numbers: given by --param, but no parameter. */
bool run_is_words(const char *name);
/* Read word numbers, if given, and check that there is one for each token. */
int run_words(struct run_verb *r);
/* run_lists.c: read the lists that planning needs into r->p, before there is a plan.
 * run_lists_free() in any case. */
int run_lists(struct run_verb *r);
/* The same where a plan is made but not executed: all names of --param are lists. */
int  run_lists_only(struct run_verb *r);
void run_lists_free(struct run_verb *r);
bool run_is_list(const foci_ctx *ctx, const char *name);
/* Check that they are the lists that the spec needs on r->p. */
int run_check_lists(const struct run_verb *r);
/* For a layer: refuse lists that its spec does not need. */
int run_check_layer_lists(const struct run_verb *r);
/* run_either.c: tensors, description and problem of the layer or, without one, of the
 * plan; texts are to be freed.  In JSON a layer has its kind. */
int         run_n_params(const struct run_verb *r);
foci_status run_param(const struct run_verb *r, int index, foci_param *p);
/* What the groups of a plan read: FOCI_READ_Q and so on. */
unsigned run_reads(const foci_plan *plan);
char    *run_text(const struct run_verb *r);
char    *run_problem_text(const struct run_verb *r);
void     run_json_kind(const struct run_verb *r, json_t *o);
/* run_params.c: draw the parameters, and put those of --params and --param in their place. */
int run_params(struct run_verb *r);
/* Fill in those that are statistics of q and k from the tensors of the one or the other:
 * are there such? */
int run_calibrate(const struct run_verb *r, const foci_io *io,
                  const foci_layer_io *of_layer, bool *found);
/* The two sides of NAME=FILE. */
enum { PARAM_NAME = 96 };
int run_param_name(const struct run_verb *r, const char *text, char name[PARAM_NAME],
                   const char **path);
/* run_finite.c: warn of results that hold infinities or NaN. */
void run_warn_not_finite(struct run_verb *r);
/* run_step.c: the forward pass through decoding states, token by token. */
int run_steps(struct run_verb *r);
/* run_layer.c: run a layer up to its results; run_layer_step.c: its forward pass token by
 * token. */
int run_layer(struct run_verb *r);
int run_layer_steps(struct run_verb *r);
/* run_write.c: check, before anything is computed, that the files can be written, and, once
 * gradients are allocated, that no two results share a file; write the results that were
 * requested; print a summary. */
int run_outputs(const struct run_verb *r);
int run_check_grads(const struct run_verb *r);
int run_write(struct run_verb *r);
int run_report(struct run_verb *r);

/* Swap heads and rows of a shape where files have rows first. */
static inline void run_in_file_order(const struct run_verb *r, int n_dims,
                                     int64_t *shape)
{
    if (!r->rows_first || n_dims < 3) return;
    const int64_t heads = shape[n_dims - 3];
    shape[n_dims - 3] = shape[n_dims - 2];
    shape[n_dims - 2] = heads;
}

/* The plan of the heads. */
static inline const foci_plan *run_heads(const struct run_verb *r)
{
    return r->layer ? foci_layer_plan(r->layer) : r->plan;
}

static inline int64_t tensor_count(const struct run_tensor *t)
{
    return t->axes[0] * t->axes[1] * t->axes[2] * t->axes[3];
}

#endif
