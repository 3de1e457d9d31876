/* train.h -- models that learn: what they are made of, training, evaluation, use.
 *
 * A model is a stack of blocks with any mechanism of foci.h in each:
 *
 *     foci_model_config c = { FOCI_SIZED(foci_model_config), .task = FOCI_MODEL_LM,
 *                             .vocab = 256, .context = 256, .layers = 4, .width = 256,
 *                             .heads = 8, .ffn = 1024, .attention = "softmax" };
 *     foci_model *model;
 *     if (foci_model_create(ctx, &c, &model))
 *         die(foci_errmsg(ctx));
 *
 * A trained one is a folder: foci_model_load() reads it, foci_generate() writes with it.
 *
 * Blocks are pre-norm: x += attention(norm(x)), in decoders of translation x +=
 * cross-attention(norm(x), source), then x += feed-forward(norm(x)); a norm comes after
 * the last.  Rows are vectors, weights stand on their right, as in layer.h.
 *
 * Ownership, threads and errors are those of foci.h; a model serves one thread at a time.
 */
#ifndef FOCI_TRAIN_H
#define FOCI_TRAIN_H

#include "foci/data.h"
#include "foci/foci.h"
#include "foci/layer.h"
#include "foci/ops.h"
#include "foci/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Models
 */

/* What a model learns to do. */
typedef enum foci_model_kind {
    FOCI_MODEL_LM,        /* the next token from those before it */
    FOCI_MODEL_MLM,       /* masked tokens from those around them */
    FOCI_MODEL_TRANSLATE, /* a target token from those before it and a source */
    FOCI_MODEL_CLASSIFY   /* the class of a sequence, or of an image */
} foci_model_kind;

/* How positions are encoded. */
typedef enum foci_positions {
    FOCI_POSITIONS_LEARNED,  /* a row for each position, added to the embedding */
    FOCI_POSITIONS_SINUSOID, /* foci_sinusoid() is added; the embedding is scaled by
                              * sqrt(width) */
    FOCI_POSITIONS_ROPE, /* the modifier `rope` follows every mechanism that takes it
                              * and has no other positions */
    FOCI_POSITIONS_NONE
} foci_positions;

/* One block, where blocks differ. */
typedef struct foci_block_config {
    size_t          size;
    foci_layer_kind kind;      /* 0: FOCI_LAYER_ATTENTION */
    const char     *attention; /* NULL: that of the model */
    const char     *cross;     /* decoders of translation; NULL: that of the model */
} foci_block_config;

/* A model on paper.  Texts are copied.  What is left 0 takes the default beside it. */
typedef struct foci_model_config {
    size_t          size;
    foci_model_kind task;         /* 0: FOCI_MODEL_LM */
    int64_t         vocab;        /* tokens; must be given, but for images */
    int64_t         source_vocab; /* translate: 0: source and target share one
                                     * embedding */
    int64_t         classes;      /* classify: must be given; else 0 */
    int64_t         patch; /* classify images: numbers of a patch; 0: of tokens */
    int64_t         grid_rows, grid_cols; /* patches of an image; 0: one row of them */
    int64_t         context;              /* longest sequence; must be given */
    int64_t         source_context;       /* translate: longest source; 0: as context */
    int64_t         layers; /* blocks; translate: of the encoder; must be given */
    int64_t         decoder_layers; /* translate; 0: as layers */
    int64_t         width, heads;   /* must be given */
    int64_t         kv_heads;       /* 0: as many as heads, as in foci_problem */
    int64_t         head_dim;       /* 0: width / heads, as in foci_layer_problem */
    int64_t         value_dim;      /* 0: as head_dim, as in foci_layer_problem */
    int64_t         ffn;  /* width inside feed-forward layers; 0: there are none */
    int64_t         conv; /* taps of a causal convolution before q, k and v; 0: none */
    const char     *attention; /* of all; NULL: as foci_layer_create() takes it */
    const char     *encoder_attention; /* NULL: as attention */
    const char     *decoder_attention; /* NULL: as attention */
    const char     *cross_attention;   /* NULL: as foci_layer_create() takes it */
    foci_layer_kind kind;              /* of all; 0: FOCI_LAYER_ATTENTION */
    const foci_block_config *blocks; /* all blocks in order, the encoder's first; NULL: as
                                      * said above */
    int64_t                  n_blocks;   /* 0 without blocks */
    foci_positions           positions;  /* 0: FOCI_POSITIONS_LEARNED */
    foci_norm_kind           norm;       /* 0: FOCI_NORM_LAYER */
    foci_act                 activation; /* of feed-forward layers; 0: FOCI_ACT_GELU */
    int gated; /* 1: act(g) * u with [g, u] = x W1 + b1; 0: act(x W1 + b1) */
    foci_pooling_kind pooling; /* classify; 0: FOCI_POOLING_MEAN */
    int               untied;  /* 1: the output has a matrix of its own; 0: it is the
                                  * embedding, but in classify */
    int        no_biases; /* 1: projections and feed-forward layers add none; 0: all
                                  * do */
    double     dropout;   /* of what blocks add to the residual; 0: none */
    double     weight_dropout;    /* of attention weights; 0: none */
    double     embedding_dropout; /* of what the first block reads; 0: none */
    foci_dtype dtype;             /* of activations: FOCI_F32 (0) or FOCI_BF16 */
    uint64_t seed; /* of the parameters it starts with, and of frozen ones; below 2^63 */
    int32_t specials[FOCI_SPECIAL_COUNT]; /* ids of special tokens, as foci_special; all
                                           * 0: none are known; -1: there is none */
    uint64_t tokenizer;                   /* its fingerprint; 0: there is none */
    /* lm and mlm: 1: all labels of a row are answered from its last token alone: for label i
     * the sinusoid of position i is added to what the last block made of that token, and one
     * feed-forward layer more, which ffn may not be 0 for, reads the sum; 0: each from its own
     * position. */
    int     from_last;
    int64_t encoder_heads; /* translate: of encoder blocks; 0: heads and kv_heads */
} foci_model_config;

/* A model with its parameters. */
typedef struct foci_model foci_model;

/* Build a model and draw its parameters.  A mechanism that would have to be causal, or have
 * a source, and cannot is refused by name, with some that can. */
FOCI_API foci_status foci_model_create(foci_ctx *ctx, const foci_model_config *config,
                                       foci_model **model);
FOCI_API void        foci_model_free(foci_model *model);

/* The configuration, with defaults filled in and every block spelled out; texts live as
 * long as the model. */
FOCI_API foci_status foci_model_get_config(const foci_model  *model,
                                           foci_model_config *config);

/* The parameters: tensors in one array of floats.  Frozen projections are named, with offset
 * -1: they follow from the seed. */
FOCI_API int64_t     foci_model_param_floats(const foci_model *model);
FOCI_API int64_t     foci_model_trained_floats(const foci_model *model);
FOCI_API int         foci_model_param_count(const foci_model *model);
FOCI_API foci_status foci_model_param(const foci_model *model, int index,
                                      foci_param *param);
FOCI_API float      *foci_model_params(foci_model *model);

/* Whether a mechanism of the model reads the words that tokens belong to: its batches have
 * them then (foci_data_options.words), and for writing it needs its tokenizer. */
FOCI_API int foci_model_reads_words(const foci_model *model);

/* The loss of a batch. */
typedef struct foci_loss {
    size_t  size;
    double  sum;    /* of -log p of all labels in nats, with label smoothing */
    int64_t labels; /* how many */
    int64_t hits;   /* labels that are the likeliest */
    /* Without gradients: sequences that have labels, and those all of whose labels are the
     * likeliest; of packed documents none are counted. */
    int64_t sequences, exact;
} foci_loss;

/* Rows of hidden states that mechanisms with a memory (xl) carry from a batch to the next. */
typedef struct foci_carry foci_carry;

/* Create a carry for `batch` rows; NULL, with FOCI_OK, where the model carries nothing. */
FOCI_API foci_status foci_carry_create(foci_model *model, int64_t batch,
                                       foci_carry **carry);
FOCI_API void        foci_carry_free(foci_carry *carry);

/* How to compute a loss.  All may be left 0. */
typedef struct foci_loss_options {
    size_t      size;
    double      smoothing;    /* share of each label that is spread over all tokens */
    double      scale;        /* of the gradients of the sum; 0: 1 */
    uint64_t    dropout_seed; /* with gradients only: elsewhere nothing is dropped */
    foci_carry *carry;        /* read where batch->carries says so, and written */
    int64_t calibrate; /* the training step, from 1: mechanisms whose frozen statistics are
                               * due take them from this batch; 0: none does */
    int     advance; /* 1: move the parameters that mechanisms move, once a step */
    /* Without gradients: of each label, in the order of batch->label_at (of classes, of
     * the rows), -log p with label smoothing, and what the model finds likeliest in its
     * place.  NULL: not wanted. */
    float   *nats; /* [labels] */
    int32_t *best; /* [labels] */
} foci_loss_options;

/* Compute the loss of a batch and, unless grads is NULL, its gradients, which are added and
 * laid out as the parameters. */
FOCI_API foci_status foci_model_loss(foci_model *model, const foci_batch *batch,
                                     const foci_loss_options *options, float *grads,
                                     foci_loss *loss);

/* Bytes that foci_model_loss() has allocated for activations so far. */
FOCI_API size_t foci_model_activation_bytes(const foci_model *model);

/* An attention of a model that is about to be computed. */
typedef struct foci_observation {
    size_t      size;
    const char *name; /* "block 0"; of a translation "encoder block 0", "decoder block 0",
                        * "decoder block 0 cross" */
    int64_t     index;         /* among all attentions, in the order of computation */
    const char          *spec; /* with every argument spelled out */
    const foci_layer    *layer;
    const foci_layer_io *io; /* what foci_layer_forward() will be called with: io->x is the
                              * block's input behind its norm (and convolution), and
                              * io->work is free until then */
} foci_observation;

/* Called with each attention, while it is as said; a result other than 0: no more are
 * wanted. */
typedef int (*foci_observe_fn)(void *user, const foci_observation *observation);

/* Run a batch through the blocks, without a loss, and show what their attentions read:
 * for analysis of layers (foci_layer_heads()).  Of the batch the first `rows` rows are used,
 * and their first `len` positions, of sources likewise; 0: all. */
FOCI_API foci_status foci_model_observe(foci_model *model, const foci_batch *batch,
                                        int64_t rows, int64_t len,
                                        foci_observe_fn observe, void *user);

/* The parameters that read what one head of an attention gives, the head's rows of Wo: `count` of
 * them from `first` on.  With zeros there the model computes as if the head's output were zero.
 * `attention` is foci_observation.index. */
FOCI_API foci_status foci_model_head_floats(const foci_model *model, int64_t attention,
                                            int64_t head, int64_t *first,
                                            int64_t *count);

/* Count the flops of one sequence of `len` tokens, in translation with a source of
 * source_len, whose output is computed at `labels` positions (0: at all of them, of classes
 * once): those of foci_layer_cost() of every attention, and of every other product of m rows
 * of k with n columns 2 m n k forward, twice as many backward.  Norms, activations and the
 * softmax of the loss are not counted, nor is what backward computes anew.  Of the cost only
 * flops, pairs and tiles are filled in, the others are 0. */
FOCI_API foci_status foci_model_cost(foci_model *model, int64_t len, int64_t source_len,
                                     int64_t labels, foci_cost *cost);

/*
 * Folders: config.json, model.safetensors, tokenizer.json and, of training that may go on,
 * state.safetensors.  Every file is written under another name, synced and renamed.
 */

/* Write the first three; without a tokenizer the first two. */
FOCI_API foci_status foci_model_save(foci_model *model, const foci_tokenizer *tokenizer,
                                     const char *folder);

/* Read them.  tokenizer may be NULL: not wanted.  A file that is truncated or changed, or a
 * tokenizer of another model, is refused. */
FOCI_API foci_status foci_model_load(foci_ctx *ctx, const char *folder,
                                     foci_model **model, foci_tokenizer **tokenizer);

/* A config as JSON, to be freed by free(); and one read from such a text, which lives in
 * *model_config until foci_config_free(). */
FOCI_API foci_status foci_config_print(foci_ctx *ctx, const foci_model_config *config,
                                       char **text);
FOCI_API foci_status foci_config_parse(foci_ctx *ctx, const char *text,
                                       foci_model_config *config);
FOCI_API void        foci_config_free(foci_ctx *ctx, foci_model_config *config);

/*
 * Training
 */

/* How the learning rate falls after the warmup. */
typedef enum foci_schedule {
    FOCI_SCHEDULE_COSINE, /* to final_rate times the rate at the last step */
    FOCI_SCHEDULE_ROOT,   /* as sqrt(warmup / step) */
    FOCI_SCHEDULE_CONSTANT
} foci_schedule;

/* Reported after each training step. */
typedef struct foci_progress {
    size_t  size;
    int64_t step, steps;    /* done, and in all; 0: not known */
    int64_t tokens;         /* seen in all */
    double  loss;           /* mean of this step's labels, nats */
    double  rate, gradient; /* learning rate; norm of the gradient before clipping */
    double  seconds;        /* of this run */
    double  tokens_per_second;
    double  seconds_left; /* negative: not known */
    int     validated;    /* 1: the next three are of this step */
    double  valid_loss, valid_accuracy;
    int     best; /* 1: the best so far */
} foci_progress;

/* Called after each step; a result other than 0 stops training, in good order. */
typedef int (*foci_progress_fn)(void *user, const foci_progress *progress);

/* How to train.  What is left 0 takes the default beside it. */
typedef struct foci_train_options {
    size_t  size;
    int64_t steps;      /* 0: until something else ends it */
    int64_t tokens;     /* end after so many; 0: no end */
    double  time_limit; /* seconds of this run; 0: none */
    double  rate;       /* 0: 1e-3 */
    double  final_rate; /* share of rate that cosine ends at; 0: 0.1; negative: 0 */
    int64_t warmup;     /* steps; 0: a twentieth of them, 100 at most; -1: none */
    foci_schedule schedule;
    double        beta1, beta2, epsilon; /* 0: 0.9, 0.95, 1e-8 */
    double        decay;      /* of weights, matrices only; 0: 0.1; negative: 0 */
    double        clip;       /* norm of gradients; 0: 1; negative: no clipping */
    int64_t       accumulate; /* batches in a step; 0: 1 */
    double        smoothing;
    uint64_t      seed;          /* of dropout */
    int64_t       valid_every;   /* steps; 0: a twentieth of all of them, or 500 */
    int64_t       valid_batches; /* at most; 0: all */
    int64_t       save_every;    /* steps; 0: as valid_every */
    int64_t       patience;      /* validations without a better one; 0: no early end */
    int64_t     average; /* weights of so many last validations are averaged; 0: none */
    const char *folder;  /* of checkpoints; NULL: none */
    const char *log;     /* JSON lines; NULL: none */
    const char *events;  /* folder of TensorBoard event files; NULL: none */
    foci_progress_fn progress; /* NULL: none */
    void            *user;
} foci_train_options;

/* Training that is going on. */
typedef struct foci_trainer foci_trainer;

/* The model, the data and the tokenizer (which may be NULL where there is none) stay the
 * caller's and outlive the trainer; valid NULL: no validation. */
FOCI_API foci_status foci_trainer_create(foci_model *model, foci_data *train,
                                         foci_data                *valid,
                                         const foci_tokenizer     *tokenizer,
                                         const foci_train_options *options,
                                         foci_trainer            **trainer);
FOCI_API void        foci_trainer_free(foci_trainer *trainer);

/* Go on from the state in the options' folder, as if it had never been interrupted.
 * FOCI_ERR_FILE, with the reason, if there is none or it belongs to other training. */
FOCI_API foci_status foci_trainer_resume(foci_trainer *trainer);

/* Train until the end, which is written as a checkpoint.  The model then has the best
 * parameters, which foci_model_save() would write. */
FOCI_API foci_status foci_trainer_run(foci_trainer *trainer);

/* A checksum of parameters, moments and position: the same for the same training. */
FOCI_API uint64_t foci_trainer_checksum(const foci_trainer *trainer);

/* The output layer in closed form: blocks stay as drawn, and the output layer, which must be
 * untied, is solved by ridge regression over one pass of `train`.  Of the given ridges, in
 * units of the mean of the diagonal (NULL: 1e-6 to 10, by tens), the one with the best
 * accuracy on `valid` is used; the solution is then multiplied by the factor, from 1 to 256,
 * of the least loss on `valid` (NULL: the smallest ridge, and 1). */
typedef struct foci_ridge_options {
    size_t        size;
    const double *ridges;
    int           n_ridges;
} foci_ridge_options;

/* Solve, and put the ridge that was chosen into *ridge (NULL: not wanted). */
FOCI_API foci_status foci_model_ridge(foci_model *model, foci_data *train,
                                      foci_data                *valid,
                                      const foci_ridge_options *options, double *ridge);

/*
 * Evaluation
 */

/* Scores over a data set. */
typedef struct foci_scores {
    size_t  size;
    int64_t tokens, characters, words;                         /* predicted */
    double  nats;                                              /* -log p, in all */
    double  loss;                                              /* nats a token */
    double  perplexity, word_perplexity, character_perplexity; /* 0: not counted */
    double  bits_per_character;
    double  accuracy; /* of labels, 0 to 1 */
    double  exact;    /* sequences all of whose labels are right, which greedy decoding
                       * writes as they are, 0 to 1 */
} foci_scores;

/* Loss and accuracy of a model over one pass of the data, which starts from its beginning.
 * batches 0: all. */
FOCI_API foci_status foci_evaluate(foci_model *model, foci_data *data, int64_t batches,
                                   foci_scores *scores);

/* Called with each batch and what became of its labels, [batch->n_labels] as in
 * foci_loss_options; a result other than 0 ends the evaluation behind this batch. */
typedef int (*foci_labels_fn)(void *user, const foci_batch *batch, const float *nats,
                              const int32_t *best);

/* As foci_evaluate(), label by label. */
FOCI_API foci_status foci_evaluate_labels(foci_model *model, foci_data *data,
                                          int64_t batches, foci_labels_fn labels,
                                          void *user, foci_scores *scores);

/* The same of a model of task lm by decoding (labels NULL: not wanted): tokens go through states, as in
 * foci_sequences_step(), many at once where nothing is asked between them.  Sequences may be
 * longer than the context, as foci_sequences_extend() says, and no more memory is needed
 * for them than the states take. */
FOCI_API foci_status foci_evaluate_steps(foci_model *model, foci_data *data,
                                         int64_t batches, foci_labels_fn labels,
                                         void *user, foci_scores *scores);

/*
 * Decoding: token by token, through states
 */

/* Sequences being written by a model of task lm or translate. */
typedef struct foci_sequences foci_sequences;

/* Create n empty sequences; those of a translation begin with foci_sequences_start(). */
FOCI_API foci_status foci_sequences_create(foci_model *model, int64_t n,
                                           foci_sequences **sequences);
/* NULL is accepted. */
FOCI_API void foci_sequences_free(foci_sequences *sequences);

/* Let sequences have up to `longest` tokens, more than the context.  Learned positions end
 * there and are refused; a mechanism that cannot go on is refused by its name in the step
 * that would need it. */
FOCI_API foci_status foci_sequences_extend(foci_sequences *sequences, int64_t longest);

/* Append tokens[i] tokens to sequence i (NULL: one each), ids one after another, and compute
 * the logits after the last token of each, [sequences][vocab]; NULL: not wanted.  words are
 * those of the tokens, as foci_token_words() tells them, where foci_model_reads_words(). */
FOCI_API foci_status foci_sequences_step(foci_sequences *sequences,
                                         const int32_t *tokens, const int32_t *ids,
                                         const int32_t *words, float *logits);

/* Reorder, as beam search needs: sequence i continues from[i].  Either all sequences of a
 * source continue or none does, and sources stay in order.  After FOCI_ERR_MEMORY the
 * sequences have to be started anew. */
FOCI_API foci_status foci_sequences_reorder(foci_sequences *sequences,
                                            const int64_t *from, int64_t n);

/* Start anew with all sequences empty.  In a translation each row of `sources` gets the same
 * number of sequences; an lm has none, and sources is not read. */
FOCI_API foci_status foci_sequences_start(foci_sequences   *sequences,
                                          const foci_batch *sources);

/* Bytes that the sequences hold of what they have seen: the states of all blocks
 * (foci_state_bytes()), the rows before convolutions, and keys and values of sources. */
FOCI_API size_t foci_sequences_bytes(const foci_sequences *sequences);

/* How tokens are drawn. */
typedef struct foci_sample_options {
    size_t  size;
    double  temperature; /* 0: the likeliest token; 1: the probabilities of the model */
    int64_t top_k;       /* among so many; 0: all */
    double  top_p;       /* among the likeliest, of this share together; 0: all */
    uint64_t              seed;
    const foci_tokenizer *tokenizer; /* needed where foci_model_reads_words() */
} foci_sample_options;

/* Called with each token; a result other than 0 stops. */
typedef int (*foci_token_fn)(void *user, int32_t token);

/* Continue ids[0..n) by up to `count` tokens. */
FOCI_API foci_status foci_generate(foci_model *model, const int32_t *ids, int64_t n,
                                   int64_t count, const foci_sample_options *options,
                                   foci_token_fn token, void *user);

/* Beam search. */
typedef struct foci_translate_options {
    size_t  size;
    int64_t beam; /* 0: 1, greedy */
    double penalty; /* scores are divided by ((5 + length) / 6)^penalty; 0: 0.6; negative: 0 */
    int64_t longest; /* tokens; 0: twice the source and 10 more, at most the context */
    int64_t batch;   /* sentences at once; 0: 16 */
    const foci_tokenizer *tokenizer; /* needed where foci_model_reads_words() */
} foci_translate_options;

/* Called with each translation, in the order of the sentences. */
typedef int (*foci_translation_fn)(void *user, int64_t sentence, const int32_t *ids,
                                   int64_t n, double score);

/* Translate n sources, ids one after another, lens[i] of each. */
FOCI_API foci_status foci_translate(foci_model *model, int64_t n, const int32_t *ids,
                                    const int64_t                *lens,
                                    const foci_translate_options *options,
                                    foci_translation_fn translation, void *user);

#ifdef __cplusplus
}
#endif
#endif
