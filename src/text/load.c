/* load.c -- read a tokenizer.json.
 *
 * The file says what happens to a text step by step: normalizer, pre_tokenizer, model,
 * post_processor, decoder.  Three combinations of these are ours:
 *
 *     pre_tokenizer     model                       decoder
 *     ByteLevel         BPE, tokens in the          ByteLevel    bytes, bpe
 *                       characters of byte_to_char()
 *     none              BPE without merges          Fuse         chars
 *     WhitespaceSplit   WordLevel                   none         words
 *
 * All else is refused by its name: to read it half would give other ids than those that
 * a model was trained on.
 */
#include <limits.h>
#include <string.h>

#include "text/loader.h"

foci_status loader_unsupported(const struct loader *l, const char *what,
                               const char *value, const char *accepted)
{
    return text_fail(l->ctx, FOCI_ERR_UNSUP, l->name,
                     "%s is %.60s; this library reads tokenizers with %s", what, value,
                     accepted);
}

foci_status loader_malformed(const struct loader *l, const char *what)
{
    return text_fail(l->ctx, FOCI_ERR_FILE, l->name, "%s", what);
}

/* The "type" of a step: "none" for null or nothing, "" for what has none. */
static const char *type_of(const json_t *step)
{
    if (!step || json_is_null(step)) return "none";
    const char *type = json_string_value(json_object_get(step, "type"));
    return type ? type : "";
}

static bool is_type(const json_t *step, const char *type)
{
    return strcmp(type_of(step), type) == 0;
}

bool loader_flag(const json_t *object, const char *name, bool preset)
{
    const json_t *value = json_object_get(object, name);
    return json_is_boolean(value) ? json_is_true(value) : preset;
}

/*
 * Which kind it is
 */

static foci_status check_nothing(const struct loader *l, const char *step)
{
    const json_t *value = json_object_get(l->root, step);
    if (is_type(value, "none")) return FOCI_OK;
    return loader_unsupported(l, step, *type_of(value) ? type_of(value) : "given",
                              "none");
}

static foci_status read_byte_level(struct loader *l, const json_t *pre)
{
    struct foci_tokenizer *t = l->t;
    const json_t          *prefix = json_object_get(pre, "add_prefix_space");

    if (!json_is_boolean(prefix))
        return loader_malformed(l,
                                "the pre_tokenizer ByteLevel has no add_prefix_space");
    if (!is_type(json_object_get(l->root, "decoder"), "ByteLevel"))
        return loader_unsupported(l, "decoder",
                                  type_of(json_object_get(l->root, "decoder")),
                                  "ByteLevel behind a pre_tokenizer ByteLevel");
    t->kind = TEXT_BPE;
    t->split = loader_flag(pre, "use_regex", true);
    t->prefix = json_is_true(prefix);
    l->byte_level = true;
    return FOCI_OK;
}

/* The model of older files has no type. */
static bool is_model(const struct loader *l, const char *type)
{
    const char *given = type_of(l->model);
    return strcmp(*given ? given : "BPE", type) == 0;
}

static foci_status read_kind(struct loader *l)
{
    const json_t *pre = json_object_get(l->root, "pre_tokenizer");
    const json_t *decoder = json_object_get(l->root, "decoder");

    if (is_model(l, "BPE") && is_type(pre, "ByteLevel")) return read_byte_level(l, pre);
    if (is_model(l, "BPE") && is_type(pre, "none") && is_type(decoder, "Fuse"))
        l->t->kind = TEXT_CHARS;
    else if (is_model(l, "WordLevel") && is_type(pre, "WhitespaceSplit") &&
             is_type(decoder, "none"))
        l->t->kind = TEXT_WORDS;
    else
        return text_fail(
            l->ctx, FOCI_ERR_UNSUP, l->name,
            "model %.40s with pre_tokenizer %.40s and decoder %.40s; this "
            "library reads BPE with ByteLevel and ByteLevel, BPE with none "
            "and Fuse, WordLevel with WhitespaceSplit and none",
            type_of(l->model), type_of(pre), type_of(decoder));
    return FOCI_OK;
}

static foci_status check_affix(const struct loader *l, const char *name)
{
    const char *value = json_string_value(json_object_get(l->model, name));
    return value && *value ? loader_unsupported(l, name, value, "none") : FOCI_OK;
}

static foci_status check_model(struct loader *l)
{
    struct foci_tokenizer *t = l->t;

    if (json_number_value(json_object_get(l->model, "dropout")) != 0)
        return loader_unsupported(l, "dropout", "not 0", "none");
    if (loader_flag(l->model, "byte_fallback", false))
        return loader_unsupported(l, "byte_fallback", "true", "none");
    TRY(check_affix(l, "continuing_subword_prefix"));
    TRY(check_affix(l, "end_of_word_suffix"));
    t->fuse = loader_flag(l->model, "fuse_unk", false);
    t->whole = loader_flag(l->model, "ignore_merges", false);
    if (t->kind == TEXT_CHARS && (t->whole || t->fuse))
        return loader_unsupported(l, t->whole ? "ignore_merges" : "fuse_unk", "true",
                                  "ByteLevel if it is");
    return FOCI_OK;
}

static foci_status read_root(struct loader *l)
{
    l->model = json_object_get(l->root, "model");
    l->vocab = json_object_get(l->model, "vocab");
    if (!json_is_object(l->vocab))
        return loader_malformed(l,
                                "has no model with a vocabulary; a tokenizer.json is "
                                "needed");
    TRY(check_nothing(l, "normalizer"));
    TRY(check_nothing(l, "truncation"));
    TRY(check_nothing(l, "padding"));
    TRY(read_kind(l));
    TRY(check_model(l));
    return loader_tokens(l);
}

/* The most bytes from one quotation mark to the next, but for those with a backslash. */
static size_t longest_text(const char *json, size_t bytes)
{
    size_t longest = 0, start = 0;

    for (size_t i = 0; i <= bytes; i++) {
        if (i < bytes && (json[i] != '"' || (i && json[i - 1] == '\\'))) continue;
        if (i - start > longest) longest = i - start;
        start = i;
    }
    return longest;
}

/* What jansson has no memory for in the buffer of the text it reads, it leaves out without
 * a word: a token would lose a letter.  The buffer does not shrink, so a list is read of a
 * text that is longer than any in the file, and of the file. */
static foci_status wrap(struct text_buffer *b, const char *json, size_t bytes,
                        size_t *filler)
{
    *filler = longest_text(json, bytes) + 16;
    TRY(grow(b->ctx, &b->at, &b->cap, (int64_t)(bytes + *filler + 8), 1));
    TRY(buffer_text(b, "[\""));
    memset(b->at + b->used, ' ', *filler);
    b->used += (int64_t)*filler;
    TRY(buffer_text(b, "\","));
    TRY(buffer_add(b, json, (int64_t)bytes));
    return buffer_text(b, "]");
}

static foci_status parse(struct loader *l, const char *json, size_t bytes, json_t **list)
{
    struct text_buffer b = { .ctx = l->ctx };
    json_error_t       error = { .line = 0 };
    size_t             filler;

    *list = NULL;
    const foci_status status = wrap(&b, json, bytes, &filler);
    if (!status)
        *list = json_loadb(b.at, (size_t)b.used, JSON_REJECT_DUPLICATES, &error);
    buffer_free(&b);
    if (status) return status;
    if (!*list && *error.text)
        return text_fail(l->ctx, FOCI_ERR_FILE, l->name, "is not JSON: %s at line %d",
                         error.text, error.line);
    if (!*list || json_string_length(json_array_get(*list, 0)) != filler)
        return ctx_fail(l->ctx, FOCI_ERR_MEMORY, "no memory for a tokenizer");
    if (json_array_size(*list) != 2)
        return loader_malformed(l, "is not JSON: more than one value");
    l->root = json_array_get(*list, 1);
    return FOCI_OK;
}

foci_status tokenizer_read(struct foci_tokenizer *t, const char *name)
{
    json_t       *list;
    struct loader l = { .ctx = t->ctx,
                        .t = t,
                        .name = name,
                        .text = { .ctx = t->ctx },
                        .names = { .ctx = t->ctx } };

    if (t->json_bytes > INT_MAX / 4)
        return text_fail(t->ctx, FOCI_ERR_FILE, name,
                         "has %lld bytes; accepted are up to %d",
                         (long long)t->json_bytes, INT_MAX / 4);
    foci_status status =
        parse(&l, t->json ? t->json : "", (size_t)t->json_bytes, &list);
    if (!status) status = read_root(&l);
    buffer_free(&l.text);
    dict_free(&l.names);
    json_decref(list);
    return status;
}
