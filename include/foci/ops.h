/* ops.h -- the operations of a transformer beside attention and products.
 *
 * Each is a pair, forward and backward, on one struct: backward needs the fields that
 * forward had, and reads its own as well.
 *
 *     foci_norm_io n = { FOCI_SIZED(foci_norm_io), .dtype = FOCI_BF16, .rows = batch * len,
 *                        .width = 512, .gain = gain, .bias = bias,
 *                        .x = x, .y = y, .stats = stats };
 *     n.work = aligned_alloc(64, foci_norm_work_bytes(ctx, &n));
 *     foci_norm_forward(ctx, &n);
 *     ...
 *     n.dy = dy, n.dx = dx, n.dgain = dgain, n.dbias = dbias;
 *     foci_norm_backward(ctx, &n);
 *
 * Tensors of activations are packed rows, [rows][width], of f32, bf16 or f16, and may lie
 * anywhere; parameters and gradients of parameters are f32.  Gradients of activations are
 * written, those of parameters are added to, and a NULL says that one is not wanted.
 * Arithmetic is f32 and sums over rows are the same bits for every number of threads.
 * Unless a comment says otherwise an output overlaps no input.
 *
 * Every call checks its arguments, and foci_errmsg(ctx) has the sentence where it refuses.
 * Nothing is allocated: scratch memory is the caller's, 64-byte aligned, and the bytes that
 * *_work_bytes() answers follow from extents, types and flags alone, whatever the pointers are;
 * SIZE_MAX says that the operation is refused.  What has no such function needs none.
 *
 * Dropout draws by counting (docs/random.md, operations): whether element (row, column) of a
 * tensor is dropped follows from the seed and these two, so that backward draws the same
 * once more.  Each place in a model needs a seed of its own in every step.
 */
#ifndef FOCI_OPS_H
#define FOCI_OPS_H

#include "foci/foci.h"
#include "foci/product.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Normalisation
 */

/* How rows are normalised. */
typedef enum foci_norm_kind {
    FOCI_NORM_LAYER, /* y = (x - mean) / sqrt(variance + eps) gain + bias */
    FOCI_NORM_RMS    /* y = x / sqrt(mean of x^2 + eps) gain + bias */
} foci_norm_kind;

/* Rows, each normalised by itself. */
typedef struct foci_norm_io {
    size_t         size;
    foci_norm_kind kind;
    foci_dtype     dtype; /* of x, y, dy, more and dx */
    int64_t        rows, width;
    double         eps; /* 0: 1e-5 */
    const void    *x;
    const float   *gain, *bias; /* [width]; NULL: 1 and 0 */
    void          *y;           /* may be x where there is no backward */
    float      *stats; /* [rows][2] mean (0 with FOCI_NORM_RMS) and 1 / deviation, from
                           * forward to backward; forward NULL: not wanted */
    const void *dy;
    const void *more; /* added to dx: the gradient that goes past the norm; may be dx; NULL:
                       * nothing */
    void       *dx;            /* may be dy */
    float      *dgain, *dbias; /* [width] */
    void       *work;          /* of backward */
} foci_norm_io;

/* Bytes of work, for backward; forward needs none. */
FOCI_API size_t foci_norm_work_bytes(const foci_ctx *ctx, const foci_norm_io *io);
/* Compute y, and stats where they are wanted. */
FOCI_API foci_status foci_norm_forward(foci_ctx *ctx, const foci_norm_io *io);
/* Compute dx = more + the gradient of x, and add to dgain and dbias. */
FOCI_API foci_status foci_norm_backward(foci_ctx *ctx, const foci_norm_io *io);

/*
 * Activations, gates, dropout, residuals
 */

/* y = residual + drop(act(x)), or gated y = residual + drop(act(g) * u) where a row of x is
 * g and then u.  With FOCI_ACT_NONE it is dropout, or an addition, alone. */
typedef struct foci_act_io {
    size_t      size;
    foci_act    act;
    int         gated;       /* 1: rows of x, and dx, are 2 width long */
    foci_dtype  dtype;       /* of all tensors */
    int64_t     rows, width; /* of y */
    const void *x;
    const void *residual; /* NULL: nothing; may be y */
    void       *y;        /* may be x unless it is gated, or backward needs x */
    double      dropout;  /* below 1 */
    uint64_t    dropout_seed;
    const void *dy;
    const void *more; /* added to dx, may be dx; not where it is gated; NULL: nothing */
    void       *dx;   /* may be dy unless it is gated */
} foci_act_io;

/* Compute y. */
FOCI_API foci_status foci_act_forward(foci_ctx *ctx, const foci_act_io *io);
/* Compute dx = more + the gradient of x; x is read unless act is FOCI_ACT_NONE.  That of the
 * residual is dy. */
FOCI_API foci_status foci_act_backward(foci_ctx *ctx, const foci_act_io *io);

/*
 * Embeddings
 */

/* y = drop(scale table[id] + x + positions[first + i]) in row i of a batch entry; what is NULL
 * is not added. */
typedef struct foci_embed_io {
    size_t         size;
    foci_dtype     dtype; /* of x, y, dy and dx */
    int64_t        batch, len, width;
    int64_t        vocab;       /* rows of table */
    int64_t        n_positions; /* rows of positions */
    const int32_t *ids;         /* [batch][len], 0 to vocab - 1; NULL: no table */
    const int32_t *lens; /* [batch] valid rows; those beyond are 0 in y, have no gradient,
                           * and their ids are not looked at; NULL: all are valid */
    const int32_t *first;             /* [batch] position of row 0; NULL: 0 */
    const float   *table, *positions; /* [vocab][width], [n_positions][width] */
    double         scale;             /* of the table; 0: 1 */
    const void    *x; /* [batch][len][width] rows that are given, such as patches */
    void          *y; /* [batch][len][width]; may be x */
    double         dropout; /* below 1; row b len + i of all rows */
    uint64_t       dropout_seed;
    const void    *dy;
    float         *dtable, *dpositions; /* as table and positions */
    void          *dx;                  /* [batch][len][width]; may be dy */
} foci_embed_io;

/* Compute y.  An id or a position that is not in its table is refused before anything is
 * written. */
FOCI_API foci_status foci_embed_forward(foci_ctx *ctx, const foci_embed_io *io);
/* Add to dtable and dpositions, rows in the order of the batch; compute dx. */
FOCI_API foci_status foci_embed_backward(foci_ctx *ctx, const foci_embed_io *io);

/*
 * Loss
 */

/* How the loss is computed. */
enum {
    FOCI_LOSS_FAST = 1 << 0 /* bf16 products, also where h is f32 */
};

/* Cross-entropy of logits = h w^T + bias against labels.  Of a row with label t, and p the
 * softmax of its logits,
 *
 *     loss = -(1 - smoothing) log p_t - smoothing / vocab (sum over j of log p_j)
 *
 * Rows whose label is -1 cost nothing but the zeros in dh.  Logits are computed and used some
 * rows at a time and never stored as a whole. */
typedef struct foci_loss_io {
    size_t       size;
    foci_dtype   dtype; /* of h and dh */
    uint32_t     flags;
    int64_t      rows, width, vocab;
    const void  *h; /* [rows][width] */
    const float *w; /* [vocab][width]: the table of the embedding, or one of its own */
    const float *bias;        /* [vocab]; NULL: none */
    const int32_t *labels;    /* [rows], -1: none, or 0 to vocab - 1 */
    double         smoothing; /* 0 to below 1 */
    float         *row_loss;  /* [rows], 0 without a label; NULL: not wanted */
    int32_t *best; /* [rows] the label of the largest logit, the first of equals, -1 without
                    * a label; NULL: not wanted */
    double scale; /* of gradients, for instance 1 / labels; 0: 1 */
    void  *dh;    /* [rows][width], 0 in rows without a label */
    float *dw;    /* [vocab][width] */
    float *dbias; /* [vocab] */
    void  *work;
} foci_loss_io;

/* Sums over the rows of a call. */
typedef struct foci_loss_sums {
    size_t  size;
    double  loss;    /* summed over rows with a label, without `scale` */
    int64_t count;   /* such rows */
    int64_t correct; /* such rows whose largest logit is that of the label */
} foci_loss_sums;

/* Bytes of work, that of backward with `backward`. */
FOCI_API size_t foci_loss_work_bytes(const foci_ctx *ctx, const foci_loss_io *io,
                                     int backward);
/* Compute the loss alone, to judge a model.  sums may be NULL. */
FOCI_API foci_status foci_loss_forward(foci_ctx *ctx, const foci_loss_io *io,
                                       foci_loss_sums *sums);
/* Compute the loss and, in the same pass, dh; add to dw and dbias.  No forward call is
 * needed before. */
FOCI_API foci_status foci_loss_backward(foci_ctx *ctx, const foci_loss_io *io,
                                        foci_loss_sums *sums);

/* Logits of some rows, to choose the next token by: logits[i] = h[pick[i]] w^T + bias. */
typedef struct foci_logits_io {
    size_t         size;
    foci_dtype     dtype; /* of h */
    uint32_t       flags; /* as in foci_loss_io */
    int64_t        rows, width, vocab;
    int64_t        n;    /* rows of logits; without pick as many as `rows` */
    const int32_t *pick; /* [n] rows of h; NULL: all of them */
    const void    *h, *w;
    const float   *bias;
    float         *logits; /* [n][vocab] */
    void          *work;
    foci_dtype     type_w; /* f32 or bf16 */
    const void    *packed; /* w by foci_product_pack(), as b of a product with
                            * FOCI_PRODUCT_TRANSPOSE_B, n = vocab and k = width, of type_a =
                            * dtype and type_c f32; NULL: it is packed by each call */
} foci_logits_io;

/* Bytes of work. */
FOCI_API size_t foci_logits_work_bytes(const foci_ctx *ctx, const foci_logits_io *io);
/* Compute the logits. */
FOCI_API foci_status foci_logits(foci_ctx *ctx, const foci_logits_io *io);

/*
 * Pooling
 */

/* How the rows of a batch entry become one. */
typedef enum foci_pooling_kind {
    FOCI_POOLING_MEAN, /* the mean of its valid rows */
    FOCI_POOLING_FIRST /* its first row */
} foci_pooling_kind;

/* An entry without valid rows pools to zeros and has no gradient. */
typedef struct foci_pooling_io {
    size_t            size;
    foci_pooling_kind kind;
    foci_dtype        dtype; /* of all tensors */
    int64_t           batch, len, width;
    const int32_t    *lens; /* [batch] valid rows; NULL: all */
    const void       *x;    /* [batch][len][width] */
    void             *y;    /* [batch][width] */
    const void       *dy;
    void             *dx; /* 0 in rows that are not valid, or not first */
} foci_pooling_io;

/* Compute y. */
FOCI_API foci_status foci_pooling_forward(foci_ctx *ctx, const foci_pooling_io *io);
/* Compute dx. */
FOCI_API foci_status foci_pooling_backward(foci_ctx *ctx, const foci_pooling_io *io);

/*
 * Short convolutions
 */

/* A causal convolution of each column by itself: y[i] = bias + sum over t < taps of
 * w[t] x[i - t], where rows before the first are those of `before`, or 0.  One token more of a
 * sequence is len 1 with `before` and `after` the same memory. */
typedef struct foci_conv_io {
    size_t     size;
    foci_dtype dtype; /* of all but parameters */
    int64_t    batch, len, width;
    int64_t    taps; /* 1 to 64 */
    const int32_t *lens; /* [batch] valid rows; y and dx are 0 beyond; NULL: all are valid */
    const float *w;      /* [taps][width] */
    const float *bias; /* [width]; NULL: none */
    const void  *x;
    void        *y;      /* [batch][len][width] */
    const void  *before; /* [batch][taps - 1][width], which have no gradient; NULL: 0 */
    void *after; /* likewise: the last taps - 1 rows of before and the valid rows of x; may
                   * be before; NULL: not wanted */
    const void *dy;
    void       *dx;
    float      *dw, *dbias;
    void       *work; /* of backward */
} foci_conv_io;

/* Bytes of work, for backward; forward needs none. */
FOCI_API size_t foci_conv_work_bytes(const foci_ctx *ctx, const foci_conv_io *io);
/* Compute y, and after where it is wanted. */
FOCI_API foci_status foci_conv_forward(foci_ctx *ctx, const foci_conv_io *io);
/* Compute dx, add to dw and dbias; needs `before` as forward had it. */
FOCI_API foci_status foci_conv_backward(foci_ctx *ctx, const foci_conv_io *io);

/*
 * The optimiser
 */

/* Floats [begin, end) of flat arrays that are laid out alike, and what weight decay is
 * multiplied by there: 1 for weights, 0 for gains and biases.  Segments are in rising order
 * and do not overlap; what none of them covers is frozen.  The struct is complete and never
 * grows. */
typedef struct foci_segment {
    int64_t begin, end;
    double  decay;
} foci_segment;

/* One step of AdamW (Loshchilov and Hutter, 2019).  With g = scale grads,
 *
 *     m += (1 - beta1) (g - m)      v += (1 - beta2) (g^2 - v)
 *     p -= rate (decay p + (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps)) */
typedef struct foci_adamw_io {
    size_t              size;
    const foci_segment *segments; /* n_segments of them; 0 and NULL: nothing moves */
    int64_t             n_segments;
    float              *params, *grads; /* must be given */
    float              *m, *v;          /* zeros before the first step; must be given */
    double              rate; /* 0: no step is made; m and v move all the same */
    double              beta1, beta2; /* below 1; 0: what it averages is the last one */
    double              eps;          /* above 0; must be given */
    double              decay;        /* of weights; 0: none */
    double  scale; /* 1 / labels times what clipping asks for; must be given:
                                * 0 makes all gradients 0 */
    int64_t step;  /* from 1; must be given */
    int clear; /* 1: grads become 0 in the segments, for the next batch; 0: they stay */
} foci_adamw_io;

/* Take a step. */
FOCI_API foci_status foci_adamw(foci_ctx *ctx, const foci_adamw_io *io);

/* The sum of the squares of x in segments, in double; for clipping, whether gradients are
 * finite, and the norm of parameters.  work: foci_squares_work_bytes() of the number of floats
 * in all segments. */
FOCI_API size_t      foci_squares_work_bytes(int64_t n);
FOCI_API foci_status foci_squares(foci_ctx *ctx, const foci_segment *segments,
                                  int64_t n_segments, const float *x, void *work,
                                  double *sum);

/* mean[n] += weight (x - mean): with weight 1/k for array number k it becomes the mean of all
 * so far, with a constant weight an exponential moving average. */
FOCI_API foci_status foci_average(foci_ctx *ctx, int64_t n, float *mean, const float *x,
                                  double weight);

#ifdef __cplusplus
}
#endif
#endif
