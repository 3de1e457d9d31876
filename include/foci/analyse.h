/* analyse.h -- what a mechanism does with numbers, looked at from outside: how good the
 * estimates of random features are, how far outputs are from those of softmax, how evenly
 * heads spread their weights, what the heads of a model weigh on a text, and what frozen
 * projections keep of hidden states. */
#ifndef FOCI_ANALYSE_H
#define FOCI_ANALYSE_H

#include "foci/foci.h"
#include "foci/layer.h"
#include "foci/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pairs x, y whose kernel, e^(x.y) or e^(-|x-y|^2/2), one head of a plan estimates by
 * random features.  An estimate is what one draw of omega gives, of as many rows as the
 * plan has. */
typedef struct foci_estimator_io {
    size_t        size;
    int64_t       head;
    int64_t       n;      /* pairs */
    const double *x, *y;  /* [n][dim_qk], with the scale in them: x = sqrt(s) q */
    const float  *params; /* all of the plan, of which statistics are read; those that
                           * are NaN, or NULL: found in x and y */
    int64_t       draws;  /* of omega; each pair meets them all */
    uint64_t      seed;   /* of the first draw; draws follow one another as heads do */
    const float  *omega;  /* [draws][rows][dim_qk] in place of that; NULL: drawn */

    /* Results, [n] each; NULL: not wanted. */
    double *exact;           /* the kernel */
    double *mean, *variance; /* of the estimates drawn; NaN where there are too few */
    /* The same two in closed form, for rows that are independent of each other, and the
     * second moment of what one row gives.  NaN: there is no such formula. */
    double *expected, *predicted, *second;
} foci_estimator_io;

/* Estimate, and predict.  FOCI_ERR_UNSUP: the features of that head are not random. */
FOCI_API foci_status foci_estimator_run(const foci_plan         *plan,
                                        const foci_estimator_io *io);

/* Write the statistics of these pairs to those of the head in `params`: what
 * foci_params_calibrate() does with rows of q and k. */
FOCI_API foci_status foci_estimator_calibrate(const foci_plan         *plan,
                                              const foci_estimator_io *io,
                                              float                   *params);

/* Execute a plan, as foci_forward() does, and write for each head how far its output is
 * from that of softmax on the same q, k and v, without modifiers:
 *
 *     errors[h] = sqrt(sum over rows of |o - o'|^2 / sum over rows of |o'|^2)
 *
 * where o' is softmax's; 0 where both are zero.  The scale of its logits is
 * 1/sqrt(dim_qk).  Memory is allocated. */
FOCI_API foci_status foci_softmax_errors(const foci_plan *plan, const foci_io *io,
                                         double *errors);

/* The same of weights, those of foci_ref_weights(), over `rows` rows of each sequence, evenly
 * spaced; 0: all.  NaN: heads that have none.  FOCI_ERR_UNSUP: packed documents. */
FOCI_API foci_status foci_softmax_weight_errors(const foci_plan *plan, const foci_io *io,
                                                int64_t rows, double *errors);

/* As foci_softmax_errors(), of the heads of a layer on these hidden states, but with the
 * modifiers of the heads on both sides: what the mechanism alone changes.  io is that of a forward call, and
 * io->y is left alone.  NaN: heads that do not read one query, key and value each, as
 * softmax does. */
FOCI_API foci_status foci_layer_softmax_errors(const foci_layer    *layer,
                                               const foci_layer_io *io, double *errors);

/* How evenly weights are spread: S = |a|_1 / (sqrt(n) |a|_2), from 1 / sqrt(n) where one of
 * them is not zero to 1 where all have the same size.  Signs and a common factor do not
 * matter.  NaN: all are zero, or there are none. */
FOCI_API double foci_concentration(const float *weights, int64_t n);

/* The mean of S over the rows of each head of a layer on these hidden states, io as above.
 * The n weights of a row are those of all keys that the problem shows it: in a causal one as
 * many as there are up to its own.  Rows whose weights are all zero are left out; NaN: all
 * of them are.  Weights are those of foci_ref_weights(), which takes its time, and so do
 * failures come from there.  Memory is allocated. */
FOCI_API foci_status foci_layer_concentration(const foci_layer    *layer,
                                              const foci_layer_io *io, double *heads);

/* A text that a model with a tokenizer is to read. */
typedef struct foci_reading_options {
    size_t      size;
    foci_string text;   /* in translation the target, which may be empty */
    foci_string source; /* translate: must be given; else NULL */
    int64_t most; /* tokens of each, up to the context; 0: 256.  The end is cut off */
} foci_reading_options;

/* Its tokens, with those that training put around it. */
typedef struct foci_reading_side {
    int64_t            n;      /* that are read, 1 or more */
    int64_t            whole;  /* of the whole text; above n: its end was cut off */
    const int32_t     *ids;    /* [n] */
    const char *const *tokens; /* [n] by foci_token_display() */
} foci_reading_side;

/* The text as the model reads it. */
typedef struct foci_reading {
    size_t                   size;
    const foci_reading_side *sides; /* [2] the text, and the source of a translation, which
                                     * has 0 tokens elsewhere */
    const foci_batch        *batch; /* of one row, no label of which counts */
} foci_reading;

/* A classified text begins with <bos>, where there is one, and so does a target; a source
 * ends with <eos>.  The names of special tokens are read as these tokens, so <mask> may stand
 * in a text for a masked model. */
FOCI_API foci_status foci_reading_create(foci_model                 *model,
                                         const foci_tokenizer       *tokenizer,
                                         const foci_reading_options *options,
                                         foci_reading              **reading);
/* NULL is accepted. */
FOCI_API void foci_reading_free(foci_reading *reading);

/* The weights of one attention on a sequence. */
typedef struct foci_attention_weights {
    size_t            size;
    const char       *name; /* this and what follows as in foci_observation */
    int64_t           index;
    const char       *spec;
    const foci_layer *layer;
    int64_t           heads, queries, keys;
    int64_t           memory; /* so many keys stand before those of the sequence (xl) */
    int          query_side, key_side; /* 1: tokens of the source; 0: of the text */
    const float *weights; /* [heads][queries][keys]; NULL: there are none */
    const char  *why;     /* there are none; else NULL */
} foci_attention_weights;

/* Called with each attention, while it is as said; a result other than 0: no more are
 * wanted. */
typedef int (*foci_attention_fn)(void *user, const foci_attention_weights *weights);

/* Run the first row of a batch through a model, its first `len` positions (0: all), and tell
 * the weights of every attention, which are those of foci_ref_weights().  Slow; memory for the
 * weights of one attention is allocated. */
FOCI_API foci_status foci_model_attentions(foci_model *model, const foci_batch *batch,
                                           int64_t len, foci_attention_fn attention,
                                           void *user);

/* What is measured of the weights of a head, row by row.  Entropy and what follows from it,
 * and the shares, are those of rows that are not negative and sum to 1. */
typedef enum foci_head_figure {
    FOCI_HEAD_CONCENTRATION, /* S, as foci_concentration() */
    FOCI_HEAD_ENTROPY,       /* H = -sum of a log a, in nats */
    FOCI_HEAD_NORMALISED,    /* H / log n; 0 for n = 1 */
    FOCI_HEAD_PERPLEXITY,    /* e^H */
    FOCI_HEAD_TOP,           /* share of the largest |a| in the sum of all */
    FOCI_HEAD_DISTANCE, /* mean of |i - j|, weighed by |a|, where the last query stands at
                         * the last key */
    /* The sum over keys of min(a, p), p the row of a pattern of `fixed`: 1 where the head
     * does what the pattern does.  Rows that a pattern leaves empty do not count. */
    FOCI_HEAD_CURRENT,
    FOCI_HEAD_PREVIOUS,
    FOCI_HEAD_NEXT,
    FOCI_HEAD_LEFT,
    FOCI_HEAD_RIGHT,
    FOCI_HEAD_END,
    FOCI_HEAD_START,
    FOCI_HEAD_ROW_FIGURES,
    /* Of the matrix: e to the entropy of sigma / sum of sigma (Roy and Vetterli, 2007), and
     * how many sigma are above 1e-6 times the largest. */
    FOCI_HEAD_EFFECTIVE_RANK = FOCI_HEAD_ROW_FIGURES,
    FOCI_HEAD_NUMERICAL_RANK,
    FOCI_HEAD_FIGURES
} foci_head_figure;

/* The name of a figure, for instance "normalised_entropy"; NULL beyond the last. */
FOCI_API const char *foci_head_figure_name(int figure);

/* A row whose weights are not all zero. */
typedef struct foci_head_row {
    size_t        size;
    int64_t       batch, head, row; /* counted in what was added last */
    int64_t       keys;             /* n: those that the problem shows it */
    const double *figures;          /* [FOCI_HEAD_ROW_FIGURES]; NaN: does not apply */
} foci_head_row;

/* Called with each row, in order; a result other than 0: no more are wanted. */
typedef int (*foci_head_row_fn)(void *user, const foci_head_row *row);

/* How to look at heads.  What is left 0 takes the default beside it. */
typedef struct foci_heads_options {
    size_t  size;
    int64_t heads; /* must be given */
    int64_t top;   /* weights that FOCI_HEAD_TOP adds up; 0: 8 */
    int64_t rows;  /* so many of each sequence, evenly spaced; 0: all */
    int64_t rank; /* longest sequence whose ranks are computed; 0: 512, negative: none */
    foci_head_row_fn row; /* NULL: nobody looks */
    void            *user;
} foci_heads_options;

/* Means of what the weights of some heads do, over all that is added to it. */
typedef struct foci_heads foci_heads;

/* Begin with nothing added. */
FOCI_API foci_status foci_heads_create(foci_ctx *ctx, const foci_heads_options *options,
                                       foci_heads **heads);
/* NULL is accepted. */
FOCI_API void foci_heads_free(foci_heads *heads);

/* Add the weights of the heads of a plan, those of foci_ref_weights(), which are computed some
 * rows at a time, by all threads of the context: memory grows with the length, not with its
 * square.  Mechanisms whose rows depend on one another are computed whole, and FOCI_ERR_ARG
 * says where that would take more than 1 GiB.  FOCI_ERR_UNSUP: heads without weights, packed
 * documents. */
FOCI_API foci_status foci_heads_add(foci_heads *heads, const foci_plan *plan,
                                    const foci_io *io);

/* The same of the heads of a layer on these hidden states, io as in
 * foci_layer_concentration().  Cross-attention has neither distances nor shares. */
FOCI_API foci_status foci_heads_add_layer(foci_heads *heads, const foci_layer *layer,
                                          const foci_layer_io *io);

/* The same of matrices, [heads][len_q][len_k]; `causal`: a row has as many weights as there
 * are keys up to its own. */
FOCI_API foci_status foci_heads_add_weights(foci_heads *heads, const float *weights,
                                            int64_t len_q, int64_t len_k, int causal);

/* What was found of a head. */
typedef struct foci_head {
    size_t  size;
    int64_t rows, zero; /* looked at; of these, without a weight that is not zero */
    double figures[FOCI_HEAD_FIGURES]; /* means over rows, ranks over sequences; NaN: see
                                         * foci_heads_reason() */
} foci_head;

/* What was found of head number `head`, into the fields that out->size covers. */
FOCI_API foci_status foci_heads_get(const foci_heads *heads, int64_t head,
                                    foci_head *out);

/* Why a figure of a head is NaN, a clause; NULL: it is a number. */
FOCI_API const char *foci_heads_reason(const foci_heads *heads, int64_t head,
                                       int figure);

/* How alike two heads are: the mean over rows of the sum over keys of min(a, b).  NaN: one of
 * them has rows that are negative or do not sum to 1. */
FOCI_API double foci_heads_likeness(const foci_heads *heads, int64_t a, int64_t b);

/* What is measured of frozen projections W, [width d][dim k] a head.  x and y are random
 * hidden states of length 1 with the cosine 1/2. */
typedef enum foci_figure_id {
    FOCI_FIGURE_GRAM, /* the largest entry of |W'W - I|, of a block over all heads */
    FOCI_FIGURE_SMALLEST,          /* singular value of W, over all heads */
    FOCI_FIGURE_LARGEST,           /* likewise */
    FOCI_FIGURE_CONDITION,         /* the largest ratio of the two in one head */
    FOCI_FIGURE_GAUSSIAN_SMALLEST, /* the same three of gaussian projections */
    FOCI_FIGURE_GAUSSIAN_LARGEST,
    FOCI_FIGURE_GAUSSIAN_CONDITION,
    FOCI_FIGURE_OVERLAP,         /* |W1'W2|^2 (Frobenius), mean over neighbours */
    FOCI_FIGURE_LENGTH_MEAN,     /* of |xW|^2 */
    FOCI_FIGURE_LENGTH_VARIANCE, /* likewise */
    FOCI_FIGURE_TIED_MEAN,       /* of xW . yW */
    FOCI_FIGURE_TIED_VARIANCE,
    FOCI_FIGURE_UNTIED_MEAN, /* of xW_Q . yW_K, drawn apart */
    FOCI_FIGURE_UNTIED_VARIANCE,
    FOCI_FIGURE_GRADIENT,        /* |G W'| / |G| (Frobenius) of random rows G */
    FOCI_FIGURE_GRADIENT_SPREAD, /* the standard deviation of that over rows */
    FOCI_FIGURE_PARAMETERS,      /* that need not be learned */
    FOCI_FIGURE_FILE_BYTES,      /* of them as floats */
    FOCI_FIGURE_TRAINING_BYTES,  /* with a gradient and the two moments of Adam */
    FOCI_FIGURE_COUNT
} foci_figure_id;

/* A number that was measured, and its expectation by theory. */
typedef struct foci_figure {
    double measured; /* NaN: there is no such number */
    double error;    /* standard error, of what is a mean over draws; else 0 */
    double expected; /* NaN: no formula */
} foci_figure;

/* How |xW - yW|^2 d/k differs from |x - y|^2, as a share of it, over all pairs of rows. */
typedef struct foci_distortion {
    int64_t dim;           /* k; the only field that is read */
    double  rms, worst;    /* root mean square, and the largest */
    double  rms_expected;  /* sqrt(2 (d - k) / (k (d + 2))) of frames */
    double worst_expected; /* what Johnson and Lindenstrauss leave: all pairs are within
                             * it with probability 1/rows at least; NaN: above 1 */
} foci_distortion;

/* Frozen projections of a group of a plan, as a layer around it would draw them. */
typedef struct foci_orthogonality_io {
    size_t   size;
    int      group;
    int64_t  width; /* of hidden states */
    uint64_t seed;  /* of the layer with index 0 */
    int64_t  draws; /* layers, by index from 0, whose heads are looked at; 2 at least */
    const float *x; /* [rows][width] hidden states whose distances count; NULL: normal */
    int64_t      rows;

    /* Results; NULL: not wanted. */
    foci_figure     *figures;     /* [FOCI_FIGURE_COUNT] */
    foci_distortion *distortions; /* [n_distortions], dims from 1 to width, upward */
    int64_t          n_distortions;
} foci_orthogonality_io;

/* Draw, and measure.  FOCI_ERR_UNSUP: the group has no frozen projections, or there are
 * none of that width.  Memory is allocated. */
FOCI_API foci_status foci_orthogonality_run(const foci_plan             *plan,
                                            const foci_orthogonality_io *io);

/* How far heads with frozen projections are from what they tend to.  Their logits are s q.k with
 * s = 1/sqrt(dim), whose mean over draws is s (dim / width) x.y if W_K = W_Q (tied), and else
 * 0; weights are the softmax of logits, and their limit that of the mean: the kernel of the
 * hidden states, or the same weight for all keys. */
typedef struct foci_limit {
    /* What is asked: the numbers of frozen() in its order of kinds, 0 orthogonal, 1 gaussian, 2
     * hadamard; the rest as in a layer. */
    int     kind, tied;
    int64_t dim;

    /* Results: root mean squares over pairs of rows, of a head, [0], and of the mean of
     * foci_limits_io.heads of them, [1].  NaN: there are no projections of that kind. */
    foci_figure logits[2]; /* how far they are from their mean */
    foci_figure weights[2]; /* the same over the root mean square of the limit.  Untied, the
                             * theory is that of many keys in random directions:
                             * sqrt((e^v - 1) / heads), v the variance of a logit */
    foci_figure spread; /* tied: of (width / dim) xW . yW about x.y, over that of |x| |y| */
} foci_limit;

typedef struct foci_limits_io {
    size_t       size;
    int64_t      width; /* of hidden states */
    int64_t      heads; /* that are averaged */
    int64_t      draws; /* of so many heads each, 2 at least */
    uint64_t     seed;
    const float *x; /* [rows][width] hidden states; NULL: normal */
    int64_t      rows;
    foci_limit  *limits; /* [n_limits] */
    int64_t      n_limits;
} foci_limits_io;

/* Draw, and measure.  Memory is allocated. */
FOCI_API foci_status foci_limits_run(foci_ctx *ctx, const foci_limits_io *io);

/* How evenly the weights a of random keys are spread, of infinitely many keys:
 *
 *     S = E|a| / sqrt(E a^2)
 *
 * 1 where all are the same, towards 0 where few of them have nearly all.  Of n equal keys one
 * of which has it all it would be 1 / sqrt(n). */
typedef enum foci_concentration_kind {
    FOCI_CONCENTRATION_EXP,      /* a = e^x, as softmax weighs */
    FOCI_CONCENTRATION_RELU2,    /* a = max(x, 0)^2 */
    FOCI_CONCENTRATION_IDENTITY, /* a = x, of either sign */
    FOCI_CONCENTRATION_LINEAR,   /* a = q.k of features k, none of them negative */
    FOCI_CONCENTRATION_DECAY, /* a = lambda^(n-1), ..., lambda, 1: n keys, not random */
    FOCI_CONCENTRATION_COUNT
} foci_concentration_kind;

/* What weights are made of. */
typedef struct foci_concentration_law {
    size_t                  size;
    foci_concentration_kind kind;

    /* exp, relu2, identity: x is normal.  With keys mu + sigma z, z standard normal, and the
     * query q it has the mean beta = q.mu and the standard deviation gamma = sigma |q|. */
    double beta, gamma;

    /* linear: `dim` features, none of q negative. */
    int64_t       dim;
    const double *q;          /* [dim]; NULL: 1 each */
    const double *mean;       /* [dim] of k; NULL: as `ratio` says */
    const double *covariance; /* [dim][dim] of k, with mean */
    double ratio; /* without mean: the standard deviation of each feature over its mean, the
                   * same for all; they are independent */

    /* decay */
    double  lambda; /* 0 to 1 */
    int64_t n;
} foci_concentration_law;

/* S in closed form; NaN: all weights are zero. */
FOCI_API foci_status foci_concentration_theory(const foci_concentration_law *law,
                                               double                       *s);

/* The same number by numerical integration, to 12 digits, which knows no closed form; of decay
 * by adding up.  FOCI_ERR_UNSUP: features with a covariance, more than 2^24 keys. */
FOCI_API foci_status foci_concentration_quadrature(const foci_concentration_law *law,
                                                   double                       *s);

/* The same number from random draws, 2 or more, and its standard error.  They are drawn where
 * weights count and weighed for it, since where few keys have nearly all a plain sample would
 * miss them.  FOCI_ERR_UNSUP: features with a covariance. */
FOCI_API foci_status foci_concentration_sample(const foci_concentration_law *law,
                                               int64_t draws, uint64_t seed, double *s,
                                               double *error);

#ifdef __cplusplus
}
#endif
#endif
