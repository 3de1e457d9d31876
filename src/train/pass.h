/* pass.h -- forward and backward passes of a batch through a model.
 *
 * Memory is one block of the model:
 *
 *     kept (from forward to backward) | temporary, a stack | scratch of operations
 *
 * A dry pass of the same code finds the size of each part, once for each shape of a batch;
 * nothing is allocated while a pass computes.  Between forward and backward only the residual
 * stream, what layers save and what feed-forward layers have before their
 * activation are kept: norms and activations are computed once more. */
#ifndef FOCI_PASS_H
#define FOCI_PASS_H

#include "train/model.h"
#include "train/ops.h"

/* How much of a model a pass computes. */
enum extent { EXTENT_ENCODER, EXTENT_LOSS, EXTENT_GRADIENTS };

/* Batches of the same extents, and the layers that compute them. */
struct pass_shape {
    int64_t      batch, len[2]; /* of each stack */
    enum extent  extent;
    foci_layer **layers; /* [n_attentions] by index; NULL: that of the model */
    size_t       keep_bytes, temp_bytes, work_bytes;
};

/* The side of a batch that a stack reads. */
struct pass_side {
    const struct stack *stack;
    int64_t             batch, len, rows, source_len;
    const int32_t      *ids, *lens, *words, *source_lens;
    const float        *patches;
    const void         *source; /* [batch][source_len][width], with cross-attention */
    void               *d_source;
    void               *d_source_part; /* of one block */
};

struct attention_acts {
    void  *in; /* [rows][width] */
    float *stats;
    void  *saved;
};

struct block_acts {
    struct attention_acts self, cross;
    void                 *ffn_in;
    float                *ffn_stats;
    void                 *pre; /* [rows][ffn_columns] */
};

struct stack_acts {
    struct block_acts *blocks;
    struct block_acts  reader;
    void              *last; /* [rows][width] before the last norm */
    float             *stats;
    void              *out; /* behind it */
};

struct model_pass {
    foci_model              *m;
    const struct pass_shape *shape;
    const foci_batch        *batch;
    const foci_loss_options *o;
    float                   *grads; /* NULL: forward alone */
    bool                     dry, train;
    struct arena             keep, temp;
    size_t                   temp_peak, work_bytes;
    void                    *work;
    void                    *flow[2]; /* the residual stream where nothing is kept */
    struct pass_side         sides[2];
    struct stack_acts        acts[2];
    foci_loss_sums           sums;
    int64_t                  sequences, exact; /* with labels; all of them right */
    foci_observe_fn          observe;          /* NULL: nobody looks */
    void                    *user;
};

/* Rows of hidden states of each attention that has a memory. */
struct foci_carry {
    foci_model *model;
    int64_t     batch;
    void      **rows, **next; /* [n_attentions] of [batch][memory][width]; NULL: none */
};
size_t carry_bytes(const struct attention *a, int64_t batch);

/* carry.c: check that a carry fits the batch; swap, so that the next batch reads what this one
 * wrote. */
struct model_pass;
foci_status carry_check(const struct model_pass *x);
void        carry_swap(foci_carry *carry);

/* shapes.c: the shape of a batch, made when it is new.  A batch whose tensors depend on
 * lengths is padded first. */
foci_status shape_find(foci_model *m, const foci_batch *batch, enum extent extent,
                       const struct pass_shape **shape);
void        shapes_free(foci_model *m);
foci_status batch_check(foci_model *m, const foci_batch *given, foci_batch *batch);
/* Pad the arrays to the contexts, for models whose tensors depend on lengths. */
foci_status batch_pad(foci_model *m, foci_batch *b);

/* pass.c */
void        pass_begin(struct model_pass *x, foci_model *m, const foci_batch *batch,
                       const struct pass_shape *shape);
foci_status pass_memory(struct model_pass *x);
/* Run only the first stack; its rows are x->acts[0].out. */
foci_status pass_encode(struct model_pass *x);
foci_status pass_forward(struct model_pass *x);
foci_status pass_backward(struct model_pass *x);
/* Run as much of the model as the shape's extent says. */
foci_status pass_run(struct model_pass *x);
/* Rows that the output is computed of and their labels, after pass_forward(). */
struct output_rows {
    const void    *h; /* [rows][width] */
    int64_t        rows, vocab;
    const int32_t *labels;
};
foci_status pass_output_rows(struct model_pass *x, struct output_rows *o);

/* Memory of a pass, kept or temporary.  In a dry pass it must not be accessed. */
void              *pass_keep(struct model_pass *x, int64_t n, size_t size);
void              *pass_temp(struct model_pass *x, int64_t n, size_t size);
static inline void pass_release(struct model_pass *x, size_t mark)
{
    x->temp.used = mark;
}
/* Memory for rows of the residual stream, other than `current`. */
void *pass_flow(struct model_pass *x, const struct pass_side *s, const void *current);
/* In a dry pass: record the scratch that an operation needs. */
foci_status pass_needs(struct model_pass *x, size_t bytes);

/* observe.c: show an attention to the one who looks. */
void pass_show(struct model_pass *x, const struct pass_side *s,
               const struct attention *a, const foci_layer_io *io);

/* pass_attention.c, pass_ffn.c: in -> out, and d in place. */
foci_status attention_forward(struct model_pass *x, const struct pass_side *s,
                              const struct attention *a, struct attention_acts *k,
                              void *in, void *out);
foci_status attention_backward(struct model_pass *x, const struct pass_side *s,
                               const struct attention      *a,
                               const struct attention_acts *k, void *d);
foci_status ffn_forward(struct model_pass *x, const struct pass_side *s,
                        const struct feed_forward *f, int64_t index,
                        struct block_acts *k, void *in, void *out);
foci_status ffn_backward(struct model_pass *x, const struct pass_side *s,
                         const struct feed_forward *f, int64_t index,
                         const struct block_acts *k, void *d);

/* pass_last.c: what is answered from the last token alone. */
foci_status last_forward(struct model_pass *x, const struct pass_side *s,
                         struct stack_acts *k, void **flow);
foci_status last_backward(struct model_pass *x, const struct pass_side *s,
                          const struct stack_acts *k, void *d);

/* pass_ends.c: embeddings, and the loss. */
foci_status embed_stack(struct model_pass *x, const struct pass_side *s, void *out);
foci_status embed_back(struct model_pass *x, const struct pass_side *s, void *d);
foci_status norm_rows(struct model_pass *x, int64_t rows, int64_t gain, int64_t bias,
                      const void *in, void *out, float *stats);
foci_status norm_back(struct model_pass *x, int64_t rows, int64_t gain, int64_t bias,
                      const void *in, float *stats, const void *dy, void *more,
                      void *dx);
/* Compute the loss, and the gradient of the rows of the last stack before its norm. */
foci_status head_run(struct model_pass *x, void *d);

static inline size_t act_bytes(const struct model_pass *x)
{
    return foci_dtype_bytes(x->m->config.dtype);
}

#endif
