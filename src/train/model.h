/* model.h -- the data of a model, shared by the files of src/train. */
#ifndef FOCI_MODEL_H
#define FOCI_MODEL_H

#include "core/core.h"
#include "foci/train.h"

/* A tensor of the model. */
struct model_tensor {
    char      name[112];
    int64_t   offset, count; /* offset -1: frozen, not among the floats */
    int       n_dims;
    int64_t   shape[4];
    foci_keep keep;
    bool      decays; /* weight decay applies: matrices */
};

/* x + layer(conv(norm(x))). */
struct attention {
    int64_t            gain, bias; /* of the norm: offsets; -1: none */
    int64_t            conv;       /* [taps][width] */
    int64_t            params;     /* the layer's floats */
    char              *spec;       /* with every argument spelled out */
    foci_layer_problem problem;    /* of one sequence as long as the context */
    foci_layer        *layer;      /* of that problem, for decoding: no dropout */
    int64_t            index;      /* among all attentions of the model */
    bool               moves;      /* has parameters that it moves itself */
    bool               calibrates; /* has statistics that have to be frozen */
    int64_t            redraw;     /* steps between draws; 0: never */
    bool               words;      /* reads which word a token belongs to */
};

/* x + act(norm(x) W1 + b1) W2 + b2. */
struct feed_forward {
    int64_t gain, bias, w1, b1, w2, b2;
};

struct model_block {
    struct attention    self, cross;
    struct feed_forward ffn;
};

/* Blocks one after another, from embeddings to a last norm. */
struct stack {
    const char         *name; /* in names of tensors; "": the only one */
    bool                causal, cross;
    int64_t             context, vocab;
    struct model_block *blocks;
    int64_t             n;
    int64_t             embedding, positions, gain, bias;
    int64_t             patch, patch_bias; /* of images */
    float              *waves;  /* [context][width] positions that are not learned */
    struct feed_forward reader; /* of what is answered from the last token */
    float *codes; /* [context][width] which label it is; NULL: each is answered
                                 * from its own position */
};

/* model.c: rows of the sinusoid from position `first` on. */
foci_status model_waves(int64_t first, int64_t n, int64_t width, float *rows);

struct foci_model {
    foci_ctx               *ctx;
    const struct train_ops *ops;
    foci_model_config       config;
    struct stack            stacks[2]; /* the last one makes the output */
    int                     n_stacks;
    int64_t                 n_attentions;
    bool length_bound; /* tensors depend on lengths: batches are padded to
                                           * the context */
    struct model_tensor *tensors;
    int                  n_tensors, cap_tensors;
    int64_t              floats, trained;
    int64_t              out, out_bias; /* [vocab][width]; the embedding, where tied */
    float               *params;
    foci_segment        *segments; /* [n_segments] of floats that learn */
    int64_t              n_segments;
    struct pass_shape   *shapes[16]; /* the latest first */
    char                *memory;     /* of activations and scratch */
    size_t               memory_bytes, most_bytes;
    int32_t *padded[8]; /* arrays of a batch that is padded to the context */
    size_t   padded_count[8];
};

/* config.c: copy a config and its texts, fill in defaults, check extents. */
foci_status config_take(foci_ctx *ctx, const foci_model_config *given,
                        foci_model_config *c);
bool        config_biases(const foci_model_config *c);

/* words.c: the words of n tokens, those of `state` before them, if the model reads any; their
 * tokenizer then has to be there. */
foci_status words_check(const foci_model *m, const foci_tokenizer *tokenizer);
foci_status words_find(const foci_model *m, const foci_tokenizer *tokenizer,
                       const int32_t *ids, int64_t n, foci_word_state *state,
                       int32_t *words);

/* model_spec.c: the spec that an attention is planned by, and its layer. */
struct spec_want {
    const char     *given; /* NULL: the default of the kind */
    foci_layer_kind kind;
    const char     *where; /* "block 2", for messages */
    bool            causal, rope;
};
foci_status attention_plan(foci_model *m, struct attention *a,
                           const struct spec_want *want);
void        attention_free(foci_ctx *ctx, struct attention *a);
/* A layer of the same spec for other extents; NULL in *layer with the status. */
foci_status attention_layer(const foci_model *m, const struct attention *a,
                            int64_t batch, int64_t len, int64_t source, bool train,
                            foci_layer **layer);

/* model_params.c */
foci_status model_tensors(foci_model *m);
foci_status model_init(foci_model *m);
foci_status model_segments(foci_model *m);

/* Columns of the first product of a feed-forward layer. */
static inline int64_t ffn_columns(const foci_model_config *c)
{
    return c->gated ? 2 * c->ffn : c->ffn;
}

/* The stack whose last norm the output reads. */
static inline struct stack *model_last(const foci_model *m)
{
    return (struct stack *)&m->stacks[m->n_stacks - 1];
}

/* A parameter, or its gradient; NULL where there is none. */
static inline float *at_offset(float *floats, int64_t offset)
{
    return !floats || offset < 0 ? NULL : floats + offset;
}

/* The seed of each place that draws, from the seed of a step (docs/random.md). */
enum draw_site { DRAW_EMBEDDING, DRAW_LAYER, DRAW_FFN, DRAW_SITES };
static inline uint64_t draw_seed(uint64_t seed, enum draw_site site, int64_t index)
{
    return rng_absorb(seed, (uint64_t)index * DRAW_SITES + (uint64_t)site + 1);
}

#endif
