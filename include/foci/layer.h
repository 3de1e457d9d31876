/* layer.h -- attention from hidden states to hidden states.
 *
 * A layer owns the projections around a plan: those its heads read, and no others.
 *
 *     foci_layer_problem p = { FOCI_SIZED(foci_layer_problem), .batch = 4, .len = 1024,
 *                              .width = 512, .heads = 8 };
 *     foci_layer *layer;
 *     if (foci_layer_create(ctx, "4*softmax frozen(orthogonal) + 4*softmax", &p, &layer))
 *         die(foci_errmsg(ctx));
 *     float *params = calloc(foci_layer_param_floats(layer), sizeof *params);
 *     foci_layer_params_init(layer, 1, params);
 *     foci_layer_forward(layer, &(foci_layer_io){ FOCI_SIZED(foci_layer_io), .x = x,
 *                                                 .y = y, .params = params,
 *                                                 .work = work });
 *
 * Rows are vectors and weights stand on their right: q = x Wq + bq.  Ownership, threads
 * and errors are those of foci.h.
 */
#ifndef FOCI_LAYER_H
#define FOCI_LAYER_H

#include "foci/foci.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a layer computes from x. */
typedef enum foci_layer_kind {
    FOCI_LAYER_ATTENTION, /* y = [heads of x Wq, x Wk, x Wv] Wo */
    FOCI_LAYER_GAU,       /* y = (u * attention of z) Wo, u, v = silu(x Wu), silu(x Wv),
                           * q, k = z gamma + beta, z = silu(x Wz); one head */
    FOCI_LAYER_CONV       /* y = heads of (a * sigmoid(b)) Wo, [a, b] = x Wi */
} foci_layer_kind;

/* The shape of hidden states and heads.  Fields left 0 take the default that is named
 * beside them. */
typedef struct foci_layer_problem {
    size_t          size;
    foci_layer_kind kind;  /* 0: FOCI_LAYER_ATTENTION */
    foci_dtype      dtype; /* of x, source, y and all tensors between; 0: FOCI_F32 */
    uint32_t        flags; /* FOCI_FLAG_CAUSAL and so on, as in foci_problem; 0: none */
    int64_t         batch; /* sequences; 0: 1 */
    int64_t         len;   /* rows of x; must be given */
    int64_t         len_source;   /* cross-attention: rows that give keys and values; 0:
                                    * x gives them */
    int64_t         width;        /* of x and y; must be given */
    int64_t         width_source; /* 0: as width */
    int64_t         heads;        /* 0: 1 */
    int64_t         kv_heads;     /* 0: as many as heads, as in foci_problem */
    int64_t         head_dim;     /* 0: width / heads; of a GAU 128 */
    int64_t         value_dim;    /* 0: as head_dim; of a GAU 2 width */
    int64_t         memory; /* rows before x that give keys and values only; 0: as many
                                * as xl asks for, which by default is len */
    int64_t         max_docs; /* documents in one pack; 0: none are packed */
    int64_t         mask_batch, mask_heads; /* as in foci_problem; 0: 1 */
    const foci_list *lists;                 /* n_lists of them; 0 and NULL: none */
    int64_t          n_lists;
    int              biases;         /* 1: every projection adds one; 0: none does */
    double           weight_dropout; /* share of the attention weights that executions
                                      * drop, below 1: exact engine only */
    double           output_dropout; /* of the elements of what is projected out, before
                                      * the residual is added */
    uint64_t         seed;  /* of frozen projections and of supports that are drawn */
    uint64_t         index; /* of the layer in its model: frozen projections are drawn
                             * from seed + index */
} foci_layer_problem;

/* How to compute a layer.  It never changes, but for foci_layer_frozen_set(). */
typedef struct foci_layer foci_layer;

/* spec NULL: softmax, of a GAU relu2, of a convolution lightconv.  Arguments that follow
 * from a length take that of the layer.  On failure *layer is NULL and foci_errmsg(ctx)
 * says what to change. */
FOCI_API foci_status foci_layer_create(foci_ctx *ctx, const char *spec,
                                       const foci_layer_problem *problem,
                                       foci_layer              **layer);
FOCI_API void        foci_layer_free(foci_layer *layer);

/* The problem with what was left 0 filled in, and the plan of its heads. */
FOCI_API foci_status      foci_layer_get_problem(const foci_layer   *layer,
                                                 foci_layer_problem *problem);
FOCI_API const foci_plan *foci_layer_plan(const foci_layer *layer);

/* Bytes of scratch memory and of what forward keeps for backward (0 without
 * FOCI_FLAG_TRAIN), in multiples of 64. */
FOCI_API size_t foci_layer_work_bytes(const foci_layer *layer);
FOCI_API size_t foci_layer_saved_bytes(const foci_layer *layer);

/* The projections, line by line, with the cost and memory of all, then the plan of the
 * heads with its own, as snprintf would. */
FOCI_API int foci_layer_describe(const foci_layer *layer, char *text, size_t cap);

/* What an execution costs, products included. */
FOCI_API foci_status foci_layer_cost(const foci_layer *layer, foci_cost *cost);

/*
 * Parameters: those of the layer first, then those of the plan.
 *
 * In a mix the tensors of a group are "GROUP.NAME", groups from 0: "1.Wq".  Projections
 * are [width][heads of the group times their width], heads side by side; Wo is
 * [heads times value_dim][width].  A frozen projection (shape and name as if it were
 * learned) is not among the floats: its offset is -1, and it follows from the seed.
 */

/* How many floats and tensors there are, and tensor number `index`. */
FOCI_API int64_t foci_layer_param_floats(const foci_layer *layer); /* floats in all */
FOCI_API int     foci_layer_param_count(const foci_layer *layer);  /* tensors */
FOCI_API foci_status foci_layer_param(const foci_layer *layer, int index,
                                      foci_param *param);

/* Draw all stored parameters from a seed. */
FOCI_API foci_status foci_layer_params_init(const foci_layer *layer, uint64_t seed,
                                            float *params);

/* Write out frozen tensor number `index`, [width][heads times head_dim]; and replace it by
 * `data`, before any execution. */
FOCI_API foci_status foci_layer_frozen_get(const foci_layer *layer, int index,
                                           float *out);
FOCI_API foci_status foci_layer_frozen_set(foci_layer *layer, int index,
                                           const float *data);

/*
 * Execution
 */

/* One execution. */
typedef struct foci_layer_io {
    size_t         size;
    const void    *x;           /* [batch][len][width] */
    const void    *source;      /* [batch][len_source][width_source], if there is one */
    const void    *memory;      /* [batch][memory][width] rows before x, which take no
                                 * gradient, though the weights that they meet do; zeros
                                 * where a sequence begins */
    void          *memory_next; /* likewise: the last rows of memory and x together, for
                                 * the call that follows; NULL: not wanted */
    const void    *residual;    /* added to y, laid out as it; NULL: nothing */
    void          *y;           /* [batch][len][width]; zero in rows beyond a length */
    const int32_t *lens, *lens_source; /* [batch] valid rows; NULL: all */
    const int32_t *docs;               /* as in foci_io */
    int64_t        n_docs;
    const int32_t *words;
    const float   *params;
    void *saved; /* forward to backward, 64-byte aligned; NULL: inference only */
    void *work;  /* 64-byte aligned scratch */
    const uint8_t *mask;
    const float   *bias;
    uint64_t       dropout_seed;
    const void    *source_kv; /* by foci_layer_source_project(): the source is not read;
                               * inference only; NULL: keys and values are projected */
    const void    *params_bf16; /* params rounded by foci_convert(): products read their
                                 * weights here, half the bytes; inference only; NULL */
    const void    *precomputed; /* by foci_layer_precompute(), from the same params, for
                                 * inference; NULL: weights are packed by each call */
} foci_layer_io;

/* Gradients.  Those of x, source and bias are written, those of parameters added; that of
 * the residual is dy.  NULL: not wanted. */
typedef struct foci_layer_grads {
    size_t      size;
    const void *dy;
    void       *dx, *dsource;
    float      *dparams;
    float      *dbias;
} foci_layer_grads;

/* Compute io->y, which must not overlap x, source or memory; it may be the residual. */
FOCI_API foci_status foci_layer_forward(const foci_layer    *layer,
                                        const foci_layer_io *io);

/* Project io->source to keys and values once, for calls that attend to the same source
 * again and again, as a decoder does for every token.  Of io, source, lens_source, params
 * and work are read.  source_kv is 64-byte aligned, and any layer of the same projections,
 * batch and len_source may read it. */
FOCI_API size_t      foci_layer_source_bytes(const foci_layer *layer);
FOCI_API foci_status foci_layer_source_project(const foci_layer    *layer,
                                               const foci_layer_io *io, void *source_kv);
/* Compact source_kv to the sequences from[n], in ascending order, for a layer whose batch
 * is n. */
FOCI_API foci_status foci_layer_source_select(const foci_layer *layer,
                                              const int64_t *from, int64_t n,
                                              void *source_kv);

/* Compute the gradients.  Needs the io of the forward call, with saved as forward left
 * it. */
FOCI_API foci_status foci_layer_backward(const foci_layer       *layer,
                                         const foci_layer_io    *io,
                                         const foci_layer_grads *grads);

/* As foci_params_advance() and foci_params_calibrate(), from hidden states. */
FOCI_API foci_status foci_layer_params_advance(const foci_layer    *layer,
                                               const foci_layer_io *io, float *params);
FOCI_API foci_status foci_layer_params_calibrate(const foci_layer    *layer,
                                                 const foci_layer_io *io, float *params);

/* Project io->x, and write into *heads what foci_layer_forward() then executes the plan of the
 * heads with: q, k, v, their lengths and the plan's parameters, for instance for
 * foci_ref_weights().  Tensors are in io->work, up to the next call that uses it; those that
 * some heads do not read hold nothing for these. */
FOCI_API foci_status foci_layer_heads(const foci_layer *layer, const foci_layer_io *io,
                                      foci_io *heads);

/* Check the arguments of these calls, as foci_io_check() does. */
FOCI_API foci_status foci_layer_io_check(const foci_layer       *layer,
                                         const foci_layer_io    *io,
                                         const foci_layer_grads *grads, char *text,
                                         size_t cap);

/* Decoding: states are those of the plan, from foci_pool_create(foci_layer_plan(layer),
 * ...); rows of x and y lie one after another, the tokens of states[0] first. */
typedef struct foci_layer_step_io {
    size_t             size;
    foci_state *const *states; /* [n_states], no state twice */
    int64_t            n_states;
    const int32_t     *tokens; /* [n_states] new tokens of each; NULL: one */
    const void        *x;
    const void        *residual;
    void              *y;
    const int32_t     *words;
    const float       *params;
    void              *work; /* 64-byte aligned, foci_layer_step_work_bytes() */
    const void *precomputed; /* by foci_layer_precompute(), from the same params; NULL:
                              * every step computes it */
    const void *params_bf16; /* as in foci_layer_io */
} foci_layer_step_io;

/* What follows from the parameters alone: weights in the layout that kernels read, and with
 * txl the rows for all distances.  Packing weights costs a step of some tens of tokens as
 * much as multiplying by them.  Computed once, it serves all steps and calls of the layer
 * until parameters change.  Its bytes, 0 where there is nothing to compute; and write it to
 * `precomputed`, 64-byte aligned. */
FOCI_API size_t      foci_layer_precompute_bytes(const foci_layer *layer);
FOCI_API foci_status foci_layer_precompute(const foci_layer *layer, const float *params,
                                           void *precomputed);

/* Work memory of a step, as foci_step_work_bytes(). */
FOCI_API size_t foci_layer_step_work_bytes(const foci_layer *layer,
                                           const foci_pool *pool, int64_t n_states,
                                           int64_t tokens, int64_t max_len);

/* Append the tokens to their states and compute io->y: row i of a sequence comes out as
 * the causal forward over the whole sequence gives it.  y NULL: append only.
 * FOCI_ERR_FULL and other failures are those of foci_step(). */
FOCI_API foci_status foci_layer_step(const foci_layer *layer, foci_pool *pool,
                                     const foci_layer_step_io *io);

/* The judge: products written out in double precision around foci_ref_forward() and
 * foci_ref_backward().  Slow; memory is allocated. */
FOCI_API foci_status foci_ref_layer_forward(const foci_layer    *layer,
                                            const foci_layer_io *io);
FOCI_API foci_status foci_ref_layer_backward(const foci_layer       *layer,
                                             const foci_layer_io    *io,
                                             const foci_layer_grads *grads);

/* out[rows][width]: the sinusoidal encoding of positions first, first + 1, ..., to be
 * added to embeddings; base is usually 10000. */
FOCI_API foci_status foci_sinusoid(int64_t first, int64_t rows, int64_t width,
                                   double base, float *out);

#ifdef __cplusplus
}
#endif
#endif
