/* train_config.c -- options of `foci train`, and the model they describe. */
#include <string.h>

#include "cli/train.h"

const struct option train_options[] = {
    OPTIONS_DATA,
    { .name = "valid",
      .arg = "FILE",
      .help = "the same to validate by (default the last tenth of the lines)",
      .kind = KIND_TEXT },
    { .name = "valid-target",
      .arg = "FILE",
      .help = "translations or labels of --valid",
      .kind = KIND_TEXT },
    { .name = "examples",
      .arg = "N",
      .help = "train on the first so many lines or images (default all); of a "
              "generator, on so many over and over (default fresh ones for ever)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = MOST_WHOLE },
    { .name = "patch",
      .arg = "N",
      .help = "images: side of a patch (default 1)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 65536 },
    { .name = "documents",
      .arg = "HOW",
      .help = "lm, mlm: texts stand in lines, in paragraphs, or are one (default)",
      .kind = KIND_WORD,
      .words = "none|lines|paragraphs" },
    { .name = "out",
      .arg = "DIR",
      .help = "folder of the model (default foci-TASK)",
      .kind = KIND_TEXT },
    { .name = "resume", .help = "go on with the training in --out, with its options" },
    { .name = "check", .help = "make the model, train nothing and write nothing" },
    { .name = "config",
      .arg = "FILE",
      .help = "the model as in a config.json; options below then change it",
      .kind = KIND_TEXT },
    { .name = "attention",
      .arg = "SPEC",
      .help = "of all blocks (default softmax)",
      .kind = KIND_TEXT },
    { .name = "encoder-attention",
      .arg = "SPEC",
      .help = "of encoders",
      .kind = KIND_TEXT },
    { .name = "decoder-attention",
      .arg = "SPEC",
      .help = "of decoders",
      .kind = KIND_TEXT },
    { .name = "cross-attention",
      .arg = "SPEC",
      .help = "of a decoder to the source (default softmax)",
      .kind = KIND_TEXT },
    { .name = "layer",
      .arg = "KIND",
      .help = "attention (default), gau, conv",
      .kind = KIND_WORD,
      .words = "attention|gau|conv" },
    { .name = "layers",
      .arg = "N",
      .help = "blocks; translate: of the encoder (default 4, 3)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 4096 },
    { .name = "decoder-layers",
      .arg = "N",
      .help = "translate: blocks of the decoder (default as --layers)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 4096 },
    { .name = "dim",
      .arg = "N",
      .help = "width (default 128)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 24 },
    { .name = "heads",
      .arg = "N",
      .help = "heads (default 4)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 24 },
    { .name = "kv-heads",
      .arg = "N",
      .help = "heads of keys and values (default as --heads)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 24 },
    { .name = "ffn",
      .arg = "N",
      .help = "width inside feed-forward layers, 0 for none (default 4 times --dim)",
      .kind = KIND_WHOLE,
      .min = 0,
      .max = 1 << 24 },
    { .name = "conv",
      .arg = "N",
      .help = "taps of a causal convolution before q, k and v (default 0)",
      .kind = KIND_WHOLE,
      .min = 0,
      .max = 64 },
    { .name = "context",
      .arg = "N",
      .help = "tokens of the longest sequence (default 128)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 30 },
    { .name = "tokenizer",
      .arg = "KIND",
      .help = "bytes, chars, words, bpe:N, or a folder or file (default chars; "
              "translate and mlm bpe:4000; classify words)",
      .kind = KIND_TEXT },
    { .name = "positions",
      .arg = "KIND",
      .help = "learned, sinusoid, rope, none (default learned; translate sinusoid)",
      .kind = KIND_WORD,
      .words = "learned|sinusoid|rope|none" },
    { .name = "norm",
      .arg = "KIND",
      .help = "layer (default) or rms",
      .kind = KIND_WORD,
      .words = "layer|rms" },
    { .name = "activation",
      .arg = "KIND",
      .help = "gelu (default), relu, swiglu",
      .kind = KIND_WORD,
      .words = "gelu|relu|swiglu" },
    { .name = "pooling",
      .arg = "HOW",
      .help = "classify: mean (default) or first",
      .kind = KIND_WORD,
      .words = "mean|first" },
    { .name = "untied", .help = "the output has a matrix of its own" },
    { .name = "no-biases", .help = "projections add none" },
    { .name = "dropout",
      .arg = "X",
      .help = "of what blocks add (default 0; translate 0.1)",
      .kind = KIND_REAL,
      .max = 1,
      .below = true },
    { .name = "weight-dropout",
      .arg = "X",
      .help = "of attention weights (default 0)",
      .kind = KIND_REAL,
      .max = 1,
      .below = true },
    { .name = "embedding-dropout",
      .arg = "X",
      .help = "of embeddings (default 0)",
      .kind = KIND_REAL,
      .max = 1,
      .below = true },
    { .name = "dtype",
      .arg = "TYPE",
      .help = "of activations: f32 (default) or bf16",
      .kind = KIND_WORD,
      .words = "f32|bf16" },
    { .name = "steps",
      .arg = "N",
      .help = "training steps (default 1000, unless something else ends it)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = MOST_WHOLE },
    { .name = "tokens",
      .arg = "N",
      .help = "end after so many tokens",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = MOST_WHOLE },
    { .name = "time-limit",
      .arg = "S",
      .help = "end after so many seconds",
      .kind = KIND_REAL,
      .min = 0.001,
      .max = 1e9 },
    { .name = "patience",
      .arg = "N",
      .help = "end after so many validations without a better one",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = MOST_WHOLE },
    { .name = "batch",
      .arg = "N",
      .help = "sequences of a batch (default 16; translate: as many as fit)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 24 },
    { .name = "batch-tokens",
      .arg = "N",
      .help = "tokens of a batch at most, padding included (translate: default 4096)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 30 },
    { .name = "accumulate",
      .arg = "N",
      .help = "batches of a step (default 1)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 24 },
    { .name = "lr",
      .arg = "X",
      .help = "learning rate (default 0.001)",
      .kind = KIND_REAL,
      .min = 1e-12,
      .max = 1e3 },
    { .name = "schedule",
      .arg = "KIND",
      .help = "cosine (default), root, constant, behind the warm-up",
      .kind = KIND_WORD,
      .words = "cosine|root|constant" },
    { .name = "warmup",
      .arg = "N",
      .help = "steps in which the rate rises (default a twentieth, 100 at most)",
      .kind = KIND_WHOLE,
      .min = 0,
      .max = MOST_WHOLE },
    { .name = "decay",
      .arg = "X",
      .help = "of weights, by AdamW (default 0.1)",
      .kind = KIND_REAL,
      .max = 10 },
    { .name = "clip",
      .arg = "X",
      .help = "norm of gradients at most, 0 for any (default 1)",
      .kind = KIND_REAL,
      .max = 1e9 },
    { .name = "smoothing",
      .arg = "X",
      .help = "of labels (default 0; translate 0.1)",
      .kind = KIND_REAL,
      .max = 1,
      .below = true },
    { .name = "valid-every",
      .arg = "N",
      .help = "steps from validation to validation (default a twentieth of all)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = MOST_WHOLE },
    { .name = "valid-batches",
      .arg = "N",
      .help = "of a validation (default all)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = MOST_WHOLE },
    { .name = "average",
      .arg = "N",
      .help = "try the mean of the parameters of the last so many validations",
      .kind = KIND_WHOLE,
      .min = 2,
      .max = 1000 },
    { .name = "readout",
      .arg = "HOW",
      .help = "train (default), or ridge: only the output layer, in closed form",
      .kind = KIND_WORD,
      .words = "train|ridge" },
    { .name = "seed",
      .arg = "N",
      .help = "of parameters, data and dropout (default 1)",
      .kind = KIND_WHOLE,
      .min = 0,
      .max = MOST_WHOLE },
    { .name = "log", .arg = "FILE", .help = "JSON lines, one a step", .kind = KIND_TEXT },
    { .name = "tensorboard",
      .arg = "DIR",
      .help = "event files for TensorBoard",
      .kind = KIND_TEXT },
    OPTION_THREADS,
    { .name = NULL },
};

static void read_shape(const struct args *a, foci_model_config *c)
{
    const bool    translates = c->task == FOCI_MODEL_TRANSLATE;
    const int64_t layers = translates ? 3 : 4;

    c->layers = opt_int(a, "layers", c->layers ? c->layers : layers);
    c->decoder_layers = opt_int(a, "decoder-layers", c->decoder_layers);
    c->width = opt_int(a, "dim", c->width ? c->width : 128);
    c->heads = opt_int(a, "heads", c->heads ? c->heads : 4);
    c->kv_heads = opt_int(a, "kv-heads", c->kv_heads);
    c->ffn = opt_int(a, "ffn", opt_text(a, "config") ? c->ffn : 4 * c->width);
    c->conv = opt_int(a, "conv", c->conv);
    c->context = opt_int(a, "context", c->context ? c->context : 128);
    c->dropout =
        opt_real(a, "dropout", translates && c->dropout == 0 ? 0.1 : c->dropout);
    c->weight_dropout = opt_real(a, "weight-dropout", c->weight_dropout);
    c->embedding_dropout = opt_real(a, "embedding-dropout", c->embedding_dropout);
    c->seed = (uint64_t)opt_int(a, "seed", 1);
}

static void read_kinds(const struct args *a, foci_model_config *c)
{
    const bool translates = c->task == FOCI_MODEL_TRANSLATE && !opt_text(a, "config");
    const int  activation = opt_word(a, "activation", -1);

    c->kind = (foci_layer_kind)opt_word(a, "layer", (int)c->kind);
    c->positions = (foci_positions)opt_word(
        a, "positions", translates ? FOCI_POSITIONS_SINUSOID : (int)c->positions);
    c->norm = (foci_norm_kind)opt_word(a, "norm", (int)c->norm);
    c->pooling = (foci_pooling_kind)opt_word(a, "pooling", (int)c->pooling);
    c->dtype = (foci_dtype)opt_word(a, "dtype", (int)c->dtype);
    if (activation >= 0) {
        static const foci_act all[] = { FOCI_ACT_GELU, FOCI_ACT_RELU, FOCI_ACT_SILU };
        c->activation = all[activation];
        c->gated = all[activation] == FOCI_ACT_SILU;
    }
    if (opt_flag(a, "untied")) c->untied = 1;
    if (opt_flag(a, "no-biases")) c->no_biases = 1;
    if (opt_word(a, "readout", 0)) c->untied = 1;
}

static void read_text(const struct args *a, const char *name, const char **text)
{
    if (opt_text(a, name)) *text = opt_text(a, name);
}

int config_read(const struct args *a, foci_model_kind task, foci_model_config *c)
{
    c->task = task;
    read_shape(a, c);
    read_kinds(a, c);
    read_text(a, "attention", &c->attention);
    read_text(a, "encoder-attention", &c->encoder_attention);
    read_text(a, "decoder-attention", &c->decoder_attention);
    read_text(a, "cross-attention", &c->cross_attention);
    return EXIT_OK;
}
