/* config.c -- model configurations: defaults filled in, extents checked, texts copied. */
#include <inttypes.h>
#include <string.h>

#include "train/model.h"

bool config_biases(const foci_model_config *c) { return !c->no_biases; }

/*
 * Checks
 */

static foci_status outside(foci_ctx *ctx, const char *what, int64_t is, int64_t least,
                           int64_t most)
{
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "%s of a model is %" PRId64 ": it may be %" PRId64 " to %" PRId64,
                    what, is, least, most);
}

static foci_status check_extents(foci_ctx *ctx, const foci_model_config *c)
{
    enum { MOST_LAYERS = 4096, MOST_TAPS = 64 };
    const int64_t most = (int64_t)1 << 24, most_context = (int64_t)1 << 30;
    const bool    translates = c->task == FOCI_MODEL_TRANSLATE;
    const struct {
        const char *name;
        int64_t     is, least, most;
    } all[] = {
        { "the task", c->task, 0, FOCI_MODEL_CLASSIFY },
        { "vocab", c->vocab, c->patch ? 0 : 1, most },
        { "source_vocab", c->source_vocab, 0, translates ? most : 0 },
        { "classes", c->classes, c->task == FOCI_MODEL_CLASSIFY,
          c->task == FOCI_MODEL_CLASSIFY ? most : 0 },
        { "patch", c->patch, 0, c->task == FOCI_MODEL_CLASSIFY ? most : 0 },
        { "grid_rows", c->grid_rows, 0, c->patch ? most_context : 0 },
        { "grid_cols", c->grid_cols, 0, c->patch ? most_context : 0 },
        { "context", c->context, 1, most_context },
        { "source_context", c->source_context, 0, translates ? most_context : 0 },
        { "layers", c->layers, 1, MOST_LAYERS },
        { "decoder_layers", c->decoder_layers, 0, translates ? MOST_LAYERS : 0 },
        { "width", c->width, 1, most },
        { "heads", c->heads, 1, most },
        { "ffn", c->ffn, 0, most },
        { "conv", c->conv, 0, MOST_TAPS },
        { "positions", c->positions, 0, FOCI_POSITIONS_NONE },
        { "norm", c->norm, 0, FOCI_NORM_RMS },
        { "activation", c->activation, 0, FOCI_ACT_SILU },
        { "pooling", c->pooling, 0, FOCI_POOLING_FIRST },
        { "the kind of layers", c->kind, 0, FOCI_LAYER_CONV },
        { "dtype", c->dtype, 0, FOCI_BF16 },
        { "encoder_heads", c->encoder_heads, 0, translates ? most : 0 },
        { "from_last", c->from_last, 0, c->task <= FOCI_MODEL_MLM },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].is < all[i].least || all[i].is > all[i].most)
            return outside(ctx, all[i].name, all[i].is, all[i].least, all[i].most);
    if (c->from_last && !c->ffn)
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "ffn of a model is 0: one that answers from its last token reads "
            "it by a feed-forward layer, which has a width");
    if (c->seed > INT64_MAX)
        return ctx_fail(ctx, FOCI_ERR_ARG, "the seed of a model is below 2^63");
    return FOCI_OK;
}

static foci_status check_shares(foci_ctx *ctx, const foci_model_config *c)
{
    const struct {
        const char *name;
        double      is;
    } all[] = {
        { "dropout", c->dropout },
        { "weight_dropout", c->weight_dropout },
        { "embedding_dropout", c->embedding_dropout },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(all[i].is >= 0 && all[i].is < 1))
            return ctx_fail(ctx, FOCI_ERR_ARG, "%s is %g: it may be 0 or more, below 1",
                            all[i].name, all[i].is);
    return FOCI_OK;
}

static int64_t count_blocks(const foci_model_config *c)
{
    return c->layers + (c->task == FOCI_MODEL_TRANSLATE ? c->decoder_layers : 0);
}

static foci_status check_blocks(foci_ctx *ctx, const foci_model_config *c)
{
    if (!c->blocks) return FOCI_OK;
    if (c->n_blocks != count_blocks(c))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "%" PRId64 " blocks are given, and layers say %" PRId64,
                        c->n_blocks, count_blocks(c));
    for (int64_t i = 0; i < c->n_blocks; i++)
        if (c->blocks[i].size != sizeof *c->blocks ||
            c->blocks[i].kind > FOCI_LAYER_CONV)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "block %" PRId64 ": start it with "
                            "FOCI_SIZED(foci_block_config), and give one of the kinds",
                            i);
    return FOCI_OK;
}

/* Without special tokens all ids would be 0, which is one token at most. */
static void fill_specials(foci_model_config *c)
{
    bool none = true;

    for (int i = 0; i < FOCI_SPECIAL_COUNT; i++)
        none &= c->specials[i] == 0;
    for (int i = 0; i < FOCI_SPECIAL_COUNT; i++)
        if (none) c->specials[i] = -1;
}

static void config_fill(foci_model_config *c)
{
    const bool translates = c->task == FOCI_MODEL_TRANSLATE;

    if (translates && !c->source_context) c->source_context = c->context;
    if (translates && !c->decoder_layers) c->decoder_layers = c->layers;
    if (!c->activation) c->activation = FOCI_ACT_GELU;
    if (!c->encoder_attention) c->encoder_attention = c->attention;
    if (!c->decoder_attention) c->decoder_attention = c->attention;
    if (!c->blocks) c->n_blocks = count_blocks(c);
    if (c->task == FOCI_MODEL_CLASSIFY) c->untied = 1;
    fill_specials(c);
}

/*
 * Copies
 */

static foci_status copy_text(foci_ctx *ctx, const char **text)
{
    if (!*text) return FOCI_OK;
    const size_t bytes = strlen(*text) + 1;
    char        *copy = ctx_alloc(ctx, bytes, 1);
    if (!copy) {
        *text = NULL;
        return FOCI_ERR_MEMORY;
    }
    memcpy(copy, *text, bytes);
    *text = copy;
    return FOCI_OK;
}

static void free_text(foci_ctx *ctx, const char **text)
{
    if (*text) ctx_free(ctx, (void *)*text, strlen(*text) + 1, 1);
    *text = NULL;
}

/* What a block has of the model where it does not say itself. */
static foci_block_config model_block(const foci_model_config *c, int64_t i)
{
    const bool translates = c->task == FOCI_MODEL_TRANSLATE;
    const bool decodes = translates ? i >= c->layers : c->task == FOCI_MODEL_LM;

    return (foci_block_config){
        FOCI_SIZED(foci_block_config),
        .kind = c->kind,
        .attention = decodes ? c->decoder_attention : c->encoder_attention,
        .cross = translates && decodes ? c->cross_attention : NULL,
    };
}

static foci_status copy_blocks(foci_ctx *ctx, foci_model_config *c)
{
    const foci_block_config *given = c->blocks;
    foci_block_config       *b =
        ctx_alloc(ctx, (size_t)c->n_blocks, sizeof(foci_block_config));
    foci_status status = b ? FOCI_OK : FOCI_ERR_MEMORY;

    c->blocks = b;
    for (int64_t i = 0; b && i < c->n_blocks; i++) {
        const foci_block_config preset = model_block(c, i);
        b[i] = given ? given[i] : preset;
        if (!b[i].attention && b[i].kind == c->kind) b[i].attention = preset.attention;
        if (!b[i].cross) b[i].cross = preset.cross;
        if (status) b[i].attention = b[i].cross = NULL;
        if (!status) status = copy_text(ctx, &b[i].attention);
        if (status) b[i].cross = NULL;
        if (!status) status = copy_text(ctx, &b[i].cross);
    }
    return status;
}

foci_status config_take(foci_ctx *ctx, const foci_model_config *given,
                        foci_model_config *c)
{
    TRY(sized_in(ctx, "foci_model_config", c, given, sizeof *c));
    const foci_model_config whole = *c;
    memset(c, 0, sizeof *c);
    foci_model_config full = whole;
    full.size = sizeof full;
    config_fill(&full);
    TRY(check_extents(ctx, &full));
    TRY(check_shares(ctx, &full));
    TRY(check_blocks(ctx, &full));
    *c = full;

    const char **texts[] = { &c->attention, &c->encoder_attention,
                             &c->decoder_attention, &c->cross_attention };
    foci_status  status = copy_blocks(ctx, c);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (status) *texts[i] = NULL;
        if (!status) status = copy_text(ctx, texts[i]);
    }
    if (status) foci_config_free(ctx, c);
    return status;
}

void foci_config_free(foci_ctx *ctx, foci_model_config *config)
{
    if (!config) return;
    const char **texts[] = { &config->attention, &config->encoder_attention,
                             &config->decoder_attention, &config->cross_attention };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free_text(ctx, texts[i]);
    foci_block_config *b = (foci_block_config *)config->blocks;
    for (int64_t i = 0; b && i < config->n_blocks; i++) {
        free_text(ctx, &b[i].attention);
        free_text(ctx, &b[i].cross);
    }
    if (b) ctx_free(ctx, b, (size_t)config->n_blocks, sizeof *b);
    config->blocks = NULL;
    config->n_blocks = 0;
}
