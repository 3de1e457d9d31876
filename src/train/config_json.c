/* config_json.c -- config.json: a model configuration as text.
 *
 * Blocks are spelled out in the lists "encoder" and "decoder".  A text written by hand may
 * have "layers" (and "decoder_layers") and "attention" in their place. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "train/model.h"

enum { VERSION = 1 };

static const char *const kinds[] = { "lm", "mlm", "translate", "classify", NULL };
static const char *const layer_kinds[] = { "attention", "gau", "conv", NULL };
static const char *const positions[] = { "learned", "sinusoid", "rope", "none", NULL };
static const char *const norms[] = { "layer", "rms", NULL };
static const char *const acts[] = { "none", "relu", "gelu", "gelu_tanh", "silu", NULL };
static const char *const poolings[] = { "mean", "first", NULL };
static const char *const dtypes[] = { "f32", "bf16", NULL };
static const char *const specials[] = { "pad", "bos", "eos", "unk", "mask" };

enum field_kind { FIELD_INT, FIELD_BOOL, FIELD_REAL, FIELD_WORD, FIELD_TEXT };

struct field {
    const char        *name;
    enum field_kind    kind;
    size_t             at;
    const char *const *words;
};

#define AT(member) offsetof(foci_model_config, member)

static const struct field fields[] = {
    { "task", FIELD_WORD, AT(task), kinds },
    { "vocab", FIELD_INT, AT(vocab), NULL },
    { "source_vocab", FIELD_INT, AT(source_vocab), NULL },
    { "classes", FIELD_INT, AT(classes), NULL },
    { "patch", FIELD_INT, AT(patch), NULL },
    { "grid_rows", FIELD_INT, AT(grid_rows), NULL },
    { "grid_cols", FIELD_INT, AT(grid_cols), NULL },
    { "context", FIELD_INT, AT(context), NULL },
    { "source_context", FIELD_INT, AT(source_context), NULL },
    { "layers", FIELD_INT, AT(layers), NULL },
    { "decoder_layers", FIELD_INT, AT(decoder_layers), NULL },
    { "width", FIELD_INT, AT(width), NULL },
    { "heads", FIELD_INT, AT(heads), NULL },
    { "kv_heads", FIELD_INT, AT(kv_heads), NULL },
    { "head_dim", FIELD_INT, AT(head_dim), NULL },
    { "value_dim", FIELD_INT, AT(value_dim), NULL },
    { "ffn", FIELD_INT, AT(ffn), NULL },
    { "conv", FIELD_INT, AT(conv), NULL },
    { "kind", FIELD_WORD, AT(kind), layer_kinds },
    { "attention", FIELD_TEXT, AT(attention), NULL },
    { "encoder_attention", FIELD_TEXT, AT(encoder_attention), NULL },
    { "decoder_attention", FIELD_TEXT, AT(decoder_attention), NULL },
    { "cross_attention", FIELD_TEXT, AT(cross_attention), NULL },
    { "positions", FIELD_WORD, AT(positions), positions },
    { "norm", FIELD_WORD, AT(norm), norms },
    { "activation", FIELD_WORD, AT(activation), acts },
    { "gated", FIELD_BOOL, AT(gated), NULL },
    { "pooling", FIELD_WORD, AT(pooling), poolings },
    { "untied", FIELD_BOOL, AT(untied), NULL },
    { "no_biases", FIELD_BOOL, AT(no_biases), NULL },
    { "dropout", FIELD_REAL, AT(dropout), NULL },
    { "weight_dropout", FIELD_REAL, AT(weight_dropout), NULL },
    { "embedding_dropout", FIELD_REAL, AT(embedding_dropout), NULL },
    { "dtype", FIELD_WORD, AT(dtype), dtypes },
    { "seed", FIELD_INT, AT(seed), NULL },
    { "from_last", FIELD_BOOL, AT(from_last), NULL },
    { "encoder_heads", FIELD_INT, AT(encoder_heads), NULL },
};

enum { N_FIELDS = sizeof fields / sizeof *fields };

/*
 * Printing
 */

static json_t *field_value(const struct field *f, const foci_model_config *c)
{
    const char *at = (const char *)c + f->at;
    int64_t     whole;
    int         small;
    double      real;
    const char *text;

    switch (f->kind) {
    case FIELD_INT: memcpy(&whole, at, sizeof whole); return json_integer(whole);
    case FIELD_BOOL: memcpy(&small, at, sizeof small); return json_boolean(small);
    case FIELD_WORD:
        memcpy(&small, at, sizeof small);
        return json_string(f->words[small]);
    case FIELD_REAL: memcpy(&real, at, sizeof real); return json_real(real);
    case FIELD_TEXT:
        memcpy(&text, at, sizeof text);
        return text ? json_string(text) : NULL;
    }
    return NULL;
}

static int set_text(json_t *object, const char *name, const char *text)
{
    return text ? json_object_set_new(object, name, json_string(text)) : 0;
}

/* Blocks [begin, end) as a list. */
static json_t *blocks_json(const foci_model_config *c, int64_t begin, int64_t end)
{
    json_t *list = json_array();
    int     failed = !list;

    for (int64_t i = begin; i < end && !failed; i++) {
        const foci_block_config *b = &c->blocks[i];
        json_t                  *block = json_object();
        failed |= set_text(block, "kind", layer_kinds[b->kind]);
        failed |= set_text(block, "attention", b->attention);
        failed |= set_text(block, "cross", b->cross);
        failed |= json_array_append_new(list, block);
    }
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static int print_blocks(json_t *root, const foci_model_config *c)
{
    const bool decodes = c->task == FOCI_MODEL_LM;

    if (!c->blocks) return 0;
    int failed = json_object_set_new(root, decodes ? "decoder" : "encoder",
                                     blocks_json(c, 0, c->layers));
    if (c->task == FOCI_MODEL_TRANSLATE)
        failed |= json_object_set_new(root, "decoder",
                                      blocks_json(c, c->layers, c->n_blocks));
    return failed;
}

static int print_tokenizer(json_t *root, const foci_model_config *c)
{
    char    number[17];
    json_t *tokens = json_object();
    int     failed = 0;

    for (int i = 0; i < FOCI_SPECIAL_COUNT; i++)
        if (c->specials[i] >= 0)
            failed |=
                json_object_set_new(tokens, specials[i], json_integer(c->specials[i]));
    failed |= json_object_set_new(root, "special_tokens", tokens);
    snprintf(number, sizeof number, "%016" PRIx64, c->tokenizer);
    if (c->tokenizer) failed |= set_text(root, "tokenizer", number);
    return failed;
}

/* Specs of blocks say all; those of the model are for texts by hand. */
static bool printed(const struct field *f, const foci_model_config *c)
{
    return !c->blocks || (f->kind != FIELD_TEXT && strcmp(f->name, "kind") != 0);
}

foci_status foci_config_print(foci_ctx *ctx, const foci_model_config *config,
                              char **text)
{
    foci_model_config c;

    if (!text) return ctx_fail(ctx, FOCI_ERR_ARG, "foci_config_print: text is NULL");
    TRY(sized_in(ctx, "foci_model_config", &c, config, sizeof c));
    json_t *root = json_object();
    int     failed = json_object_set_new(root, "foci", json_integer(VERSION));
    for (int i = 0; i < N_FIELDS; i++) {
        json_t *value = printed(&fields[i], &c) ? field_value(&fields[i], &c) : NULL;
        if (value) failed |= json_object_set_new(root, fields[i].name, value);
    }
    failed |= print_blocks(root, &c);
    failed |= print_tokenizer(root, &c);
    *text = failed ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    json_decref(root);
    return *text ? FOCI_OK : ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory for a config");
}

/*
 * Parsing
 */

static foci_status wrong(foci_ctx *ctx, const char *name, const char *wanted)
{
    return ctx_fail(ctx, FOCI_ERR_FILE, "'%.64s' of the config is not %s", name, wanted);
}

static foci_status read_word(foci_ctx *ctx, const struct field *f, const json_t *value,
                             int *out)
{
    const char *text = json_string_value(value);
    char        known[160] = "";

    for (int i = 0; f->words[i]; i++) {
        if (text && strcmp(text, f->words[i]) == 0) {
            *out = i;
            return FOCI_OK;
        }
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "one of ",
                 f->words[i]);
    }
    return wrong(ctx, f->name, known);
}

/* Texts stay those of the JSON. */
static foci_status read_field(foci_ctx *ctx, const struct field *f, const json_t *value,
                              foci_model_config *c)
{
    char   *at = (char *)c + f->at;
    int64_t whole = json_integer_value(value);
    int     small = json_is_true(value);
    double  real = json_number_value(value);

    switch (f->kind) {
    case FIELD_INT:
        if (!json_is_integer(value)) return wrong(ctx, f->name, "a whole number");
        memcpy(at, &whole, sizeof whole);
        return FOCI_OK;
    case FIELD_BOOL:
        if (!json_is_boolean(value)) return wrong(ctx, f->name, "true or false");
        memcpy(at, &small, sizeof small);
        return FOCI_OK;
    case FIELD_REAL:
        if (!json_is_number(value)) return wrong(ctx, f->name, "a number");
        memcpy(at, &real, sizeof real);
        return FOCI_OK;
    case FIELD_WORD:
        TRY(read_word(ctx, f, value, &small));
        memcpy(at, &small, sizeof small);
        return FOCI_OK;
    case FIELD_TEXT: break;
    }
    if (!json_is_string(value)) return wrong(ctx, f->name, "a text");
    const char *text = json_string_value(value);
    memcpy(at, &text, sizeof text);
    return FOCI_OK;
}

static foci_status read_block(foci_ctx *ctx, json_t *object, foci_block_config *b)
{
    static const struct field kind = { "kind", FIELD_WORD, 0, layer_kinds };
    const char               *name;
    json_t                   *value;

    *b = (foci_block_config){ FOCI_SIZED(foci_block_config) };
    if (!json_is_object(object)) return wrong(ctx, "a block", "an object");
    json_object_foreach(object, name, value)
    {
        int word = 0;
        if (strcmp(name, "kind") == 0) {
            TRY(read_word(ctx, &kind, value, &word));
            b->kind = (foci_layer_kind)word;
        } else if (strcmp(name, "attention") == 0 && json_is_string(value)) {
            b->attention = json_string_value(value);
        } else if (strcmp(name, "cross") == 0 && json_is_string(value)) {
            b->cross = json_string_value(value);
        } else {
            return wrong(ctx, name, "a text 'kind', 'attention' or 'cross' of a block");
        }
    }
    return FOCI_OK;
}

static foci_status read_specials(foci_ctx *ctx, const json_t *object,
                                 foci_model_config *c)
{
    for (int i = 0; i < FOCI_SPECIAL_COUNT; i++) {
        const json_t *id = json_object_get(object, specials[i]);
        c->specials[i] = -1;
        if (!id) continue;
        const json_int_t n = json_integer_value(id);
        if (!json_is_integer(id) || n < 0 || n > INT32_MAX)
            return wrong(ctx, specials[i], "an id, from 0 to 2147483647");
        c->specials[i] = (int32_t)n;
    }
    return FOCI_OK;
}

static foci_status read_tokenizer(foci_ctx *ctx, const json_t *value,
                                  foci_model_config *c)
{
    const char *text = json_string_value(value);
    char       *end;

    if (!text || strlen(text) != 16)
        return wrong(ctx, "tokenizer", "16 digits of base 16");
    c->tokenizer = strtoull(text, &end, 16);
    return *end ? wrong(ctx, "tokenizer", "16 digits of base 16") : FOCI_OK;
}

static bool is_list(const char *name)
{
    return strcmp(name, "encoder") == 0 || strcmp(name, "decoder") == 0;
}

static foci_status read_entry(foci_ctx *ctx, const char *name, const json_t *value,
                              foci_model_config *c)
{
    if (is_list(name)) return FOCI_OK;
    if (strcmp(name, "special_tokens") == 0) return read_specials(ctx, value, c);
    if (strcmp(name, "tokenizer") == 0) return read_tokenizer(ctx, value, c);
    if (strcmp(name, "foci") == 0)
        return json_integer_value(value) == VERSION
                   ? FOCI_OK
                   : wrong(ctx, name, "1, the version that is known here");
    for (int i = 0; i < N_FIELDS; i++)
        if (strcmp(name, fields[i].name) == 0)
            return read_field(ctx, &fields[i], value, c);
    return ctx_fail(ctx, FOCI_ERR_FILE, "'%.64s' is nothing that a config has", name);
}

/* Lists of blocks, one behind the other, and what they say of the numbers of layers. */
static foci_status read_blocks(foci_ctx *ctx, const json_t *root, foci_model_config *c,
                               foci_block_config **blocks)
{
    const json_t *encoder = json_object_get(root, "encoder");
    const json_t *decoder = json_object_get(root, "decoder");
    const size_t  n_first = json_array_size(encoder), n_last = json_array_size(decoder);
    const bool    translates = c->task == FOCI_MODEL_TRANSLATE;

    if (n_first + n_last == 0) return FOCI_OK;
    if ((!translates && n_first && n_last) || (translates && (!n_first || !n_last)))
        return wrong(ctx, "encoder", "a list of blocks as the task has them");
    *blocks = ctx_alloc(ctx, n_first + n_last, sizeof **blocks);
    if (!*blocks) return FOCI_ERR_MEMORY;
    c->blocks = *blocks;
    c->n_blocks = (int64_t)(n_first + n_last);
    c->layers = translates ? (int64_t)n_first : c->n_blocks;
    c->decoder_layers = translates ? (int64_t)n_last : 0;
    for (size_t i = 0; i < n_first; i++)
        TRY(read_block(ctx, json_array_get(encoder, i), &(*blocks)[i]));
    for (size_t i = 0; i < n_last; i++)
        TRY(read_block(ctx, json_array_get(decoder, i), &(*blocks)[n_first + i]));
    return FOCI_OK;
}

static foci_status read_root(foci_ctx *ctx, json_t *root, foci_model_config *config)
{
    foci_model_config  c = { FOCI_SIZED(foci_model_config) };
    foci_block_config *blocks = NULL;
    const char        *name;
    json_t            *value;
    foci_status        status = FOCI_OK;

    if (!json_is_object(root)) return wrong(ctx, "the whole", "an object");
    json_object_foreach(root, name, value) if (!status) status =
        read_entry(ctx, name, value, &c);
    if (!status) status = read_blocks(ctx, root, &c, &blocks);
    if (!status) status = config_take(ctx, &c, config);
    if (blocks) ctx_free(ctx, blocks, (size_t)c.n_blocks, sizeof *blocks);
    return status;
}

foci_status foci_config_parse(foci_ctx *ctx, const char *text, foci_model_config *config)
{
    json_error_t error;

    if (!ctx || !text || !config)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_config_parse: %s is NULL",
                        !ctx   ? "the context"
                        : text ? "config"
                               : "text");
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root && !*error.text)
        return ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory for a config");
    if (!root)
        return ctx_fail(ctx, FOCI_ERR_FILE, "the config is not JSON: line %d: %s",
                        error.line, error.text);
    const foci_status status = read_root(ctx, root, config);
    json_decref(root);
    return status;
}
