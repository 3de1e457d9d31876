/* load_tokens.c -- the tokens and merges of a tokenizer.json.
 *
 * Vocabularies of byte-level models spell bytes in characters of their own; tokens are
 * kept, and found, by the bytes they stand for.
 */
#include <string.h>

#include "text/loader.h"
#include "text/utf8.h"

/* Whether every character of a token stands for a byte. */
static bool stands_for_bytes(const char *key, int64_t bytes)
{
    const char *end = key + bytes;
    uint32_t    c;

    for (; key < end; key += utf8_next(key, end, &c)) {
        utf8_next(key, end, &c);
        if (char_to_byte(c) < 0) return false;
    }
    return true;
}

/* The bytes that a token of the file stands for, into l->text. */
static foci_status bytes_of(struct loader *l, const char *key, int64_t bytes)
{
    const char *end = key + bytes;
    uint32_t    c;

    l->text.used = 0;
    if (!l->byte_level || !stands_for_bytes(key, bytes))
        return buffer_add(&l->text, key, bytes);
    TRY(buffer_add(&l->text, "", 0)); /* not NULL, even of an empty token */
    while (key < end) {
        key += utf8_next(key, end, &c);
        const char byte = (char)char_to_byte(c);
        TRY(buffer_add(&l->text, &byte, 1));
    }
    return FOCI_OK;
}

static foci_status check_id(const struct loader *l, const char *key, json_int_t id)
{
    if (id < 0 || id >= l->limit)
        return text_fail(l->ctx, FOCI_ERR_FILE, l->name,
                         "token '%.60s' has id %lld; with so many tokens ids go from 0 "
                         "to %lld",
                         key, (long long)id, (long long)l->limit - 1);
    return FOCI_OK;
}

static foci_status set_token(const struct loader *l, const char *key, int64_t id,
                             const char *text, int64_t bytes)
{
    struct token *token = &l->t->tokens[id];

    if (token->text)
        return text_fail(l->ctx, FOCI_ERR_FILE, l->name,
                         "id %lld of token '%.60s' is that of another one too",
                         (long long)id, key);
    *token = (struct token){ .text = text, .bytes = (int32_t)bytes };
    return FOCI_OK;
}

/* Tokens that words can be made of are found by their bytes; names with blanks and the
 * like, in byte-level files, are not. */
static foci_status read_token(struct loader *l, const char *key, int64_t id)
{
    const int64_t bytes = (int64_t)strlen(key);
    struct dict  *d = &l->t->vocab;

    TRY(bytes_of(l, key, bytes));
    if (l->byte_level && !stands_for_bytes(key, bytes)) {
        const char *copy = dict_copy(d, key, bytes);
        return copy ? set_token(l, key, id, copy, bytes) : FOCI_ERR_MEMORY;
    }
    struct dict_entry *e =
        dict_add(d, l->text.at, l->text.used, text_hash(l->text.at, l->text.used));
    if (!e) return FOCI_ERR_MEMORY;
    e->value = id + 1;
    return set_token(l, key, id, e->text, e->bytes);
}

/* The highest id in the file + 1. */
static foci_status count_tokens(const struct loader *l, int64_t *n)
{
    const char   *key;
    json_t       *value;
    size_t        i;
    const json_t *added = json_object_get(l->root, "added_tokens");

    *n = 0;
    json_object_foreach((json_t *)l->vocab, key, value)
    {
        if (!json_is_integer(value))
            return text_fail(l->ctx, FOCI_ERR_FILE, l->name,
                             "the id of token '%.60s' is not a whole number", key);
        TRY(check_id(l, key, json_integer_value(value)));
        *n = max64(*n, json_integer_value(value) + 1);
    }
    json_array_foreach(added, i, value)
    {
        const json_t *id = json_object_get(value, "id");
        const char   *content = json_string_value(json_object_get(value, "content"));
        if (!content || !json_is_integer(id))
            return loader_malformed(l, "an added token has no content or no id");
        TRY(check_id(l, content, json_integer_value(id)));
        *n = max64(*n, json_integer_value(id) + 1);
    }
    return FOCI_OK;
}

static foci_status read_vocab(struct loader *l)
{
    struct foci_tokenizer *t = l->t;
    const char            *key;
    json_t                *value;
    int64_t                n;

    /* A few ids may be missing, so that tables by id are not longer than the file. */
    l->limit =
        1024 + 2 * (int64_t)(json_object_size(l->vocab) +
                             json_array_size(json_object_get(l->root, "added_tokens")));
    TRY(count_tokens(l, &n));
    t->tokens = ctx_alloc(l->ctx, (size_t)n, sizeof *t->tokens);
    if (!t->tokens) return FOCI_ERR_MEMORY;
    t->n_tokens = n;
    json_object_foreach((json_t *)l->vocab, key, value)
        TRY(read_token(l, key, json_integer_value(value)));
    return FOCI_OK;
}

/* Of words, what is not in the vocabulary has to be some token. */
static foci_status read_unknown(struct loader *l)
{
    const char   *name = json_string_value(json_object_get(l->model, "unk_token"));
    const json_t *id = name ? json_object_get(l->vocab, name) : NULL;

    l->t->unknown = -1;
    if (id)
        l->t->unknown = (int32_t)json_integer_value(id);
    else if (name || l->t->kind == TEXT_WORDS)
        return text_fail(l->ctx, FOCI_ERR_FILE, l->name,
                         "unk_token '%.60s' is not in the vocabulary", name ? name : "");
    return FOCI_OK;
}

/*
 * Added tokens
 */

static foci_status check_added(const struct loader *l, const json_t *value,
                               const char *content, int64_t id)
{
    const json_t *known = json_object_get(l->vocab, content);

    if (!*content || strlen(content) > ADDED_LONGEST)
        return text_fail(l->ctx, FOCI_ERR_FILE, l->name,
                         "added token '%.60s' has %zu bytes; accepted are 1 to %d",
                         content, strlen(content), ADDED_LONGEST);
    if (loader_flag(value, "single_word", false))
        return text_fail(l->ctx, FOCI_ERR_UNSUP, l->name,
                         "added token '%.60s' is a single_word; this library takes "
                         "added tokens wherever they stand",
                         content);
    if (known && json_integer_value(known) != id)
        return text_fail(l->ctx, FOCI_ERR_FILE, l->name,
                         "added token '%.60s' has id %lld, and %lld in the vocabulary",
                         content, (long long)id, (long long)json_integer_value(known));
    return FOCI_OK;
}

/* The id of an added token that is not in the vocabulary is the next one behind the
 * vocabulary and the tokens added before: `tokenizers` gives it that, whatever the file
 * says. */
static foci_status read_added(struct loader *l, const json_t *value)
{
    const char   *content = json_string_value(json_object_get(value, "content"));
    const int64_t id = json_integer_value(json_object_get(value, "id"));
    const int64_t bytes = (int64_t)strlen(content), next = l->next_added;
    struct added *a = &l->t->added[l->t->n_added];

    TRY(check_added(l, value, content, id));
    struct dict_entry *name =
        dict_add(&l->names, content, bytes, text_hash(content, bytes));
    if (!name) return FOCI_ERR_MEMORY;
    if (name->value++)
        return text_fail(l->ctx, FOCI_ERR_FILE, l->name,
                         "added token '%.60s' is listed twice", content);
    a->text = dict_copy(&l->t->vocab, content, bytes + 1);
    if (!a->text) return FOCI_ERR_MEMORY;
    a->bytes = bytes;
    a->id = (int32_t)id;
    a->special = loader_flag(value, "special", false);
    a->late = loader_flag(value, "normalized", !a->special);
    a->lstrip = loader_flag(value, "lstrip", false);
    a->rstrip = loader_flag(value, "rstrip", false);
    l->t->n_added++;
    l->next_added = max64(next, id + 1);
    if (json_object_get(l->vocab, content)) return FOCI_OK;

    if (id != next)
        return text_fail(l->ctx, FOCI_ERR_FILE, l->name,
                         "added token '%.60s' has id %lld; ids go on behind the "
                         "vocabulary, so it has to be %lld",
                         content, (long long)id, (long long)next);
    TRY(bytes_of(l, content, bytes));
    const char *copy = dict_copy(&l->t->vocab, l->text.at, l->text.used);
    return copy ? set_token(l, content, id, copy, l->text.used) : FOCI_ERR_MEMORY;
}

static foci_status read_all_added(struct loader *l)
{
    json_t      *list = json_object_get(l->root, "added_tokens");
    const size_t n = json_array_size(list);
    json_t      *value;
    size_t       i;

    if (list && !json_is_array(list) && !json_is_null(list))
        return loader_malformed(l, "added_tokens is not a list");
    l->t->added = ctx_alloc(l->ctx, n, sizeof *l->t->added);
    if (!l->t->added) return FOCI_ERR_MEMORY;
    l->t->cap_added = (int64_t)n;
    l->next_added = (int64_t)json_object_size(l->vocab);
    json_array_foreach(list, i, value) TRY(read_added(l, value));
    return FOCI_OK;
}

/*
 * Merges
 */

/* "left right" or ["left", "right"]: both parts, and false for all else. */
static bool parts_of(const json_t *merge, const char *part[2], int64_t bytes[2])
{
    const char *text = json_string_value(merge);

    if (text) {
        const char *blank = strchr(text, ' ');
        if (!blank || strchr(blank + 1, ' ')) return false;
        part[0] = text;
        part[1] = blank + 1;
        bytes[0] = blank - text;
        bytes[1] = (int64_t)strlen(part[1]);
        return true;
    }
    for (size_t i = 0; i < 2; i++) {
        part[i] = json_string_value(json_array_get(merge, i));
        if (!part[i]) return false;
        bytes[i] = (int64_t)strlen(part[i]);
    }
    return json_array_size(merge) == 2;
}

/* The id of a text of the file; -1: it is no token, or none that words are made of. */
static foci_status id_of(struct loader *l, const char *key, int64_t bytes, int32_t *id)
{
    *id = -1;
    if (!stands_for_bytes(key, bytes)) return FOCI_OK;
    TRY(bytes_of(l, key, bytes));
    const struct dict_entry *e = dict_find(&l->t->vocab, l->text.at, l->text.used,
                                           text_hash(l->text.at, l->text.used));
    if (e) *id = (int32_t)(e->value - 1);
    return FOCI_OK;
}

static foci_status read_merge(struct loader *l, const json_t *merge, int64_t rank)
{
    const char *part[2];
    int64_t     bytes[2];
    int32_t     id[2], both = -1;

    if (!parts_of(merge, part, bytes))
        return text_fail(l->ctx, FOCI_ERR_FILE, l->name,
                         "merge %lld is not two tokens with a blank between them",
                         (long long)rank);
    TRY(id_of(l, part[0], bytes[0], &id[0]));
    TRY(id_of(l, part[1], bytes[1], &id[1]));
    if (id[0] >= 0 && id[1] >= 0) {
        const struct token *left = &l->t->tokens[id[0]], *right = &l->t->tokens[id[1]];
        l->text.used = 0;
        TRY(buffer_add(&l->text, left->text, left->bytes));
        TRY(buffer_add(&l->text, right->text, right->bytes));
        const struct dict_entry *e = dict_find(&l->t->vocab, l->text.at, l->text.used,
                                               text_hash(l->text.at, l->text.used));
        if (e) both = (int32_t)(e->value - 1);
    }
    if (both < 0)
        return text_fail(l->ctx, FOCI_ERR_FILE, l->name,
                         "merge %lld joins '%.*s' and '%.*s'; these two and what they "
                         "make have to be in the vocabulary",
                         (long long)rank, (int)min64(bytes[0], 40), part[0],
                         (int)min64(bytes[1], 40), part[1]);
    struct pair_slot *slot = pair_add(&l->t->merges, pair_key(id[0], id[1]));
    if (!slot) return FOCI_ERR_MEMORY;
    slot->value = rank << 32 | both;
    return FOCI_OK;
}

/* A pair that is listed twice has the rank of the last. */
static foci_status read_merges(struct loader *l)
{
    json_t *list = json_object_get(l->model, "merges");
    json_t *merge;
    size_t  i;

    if (l->t->kind == TEXT_WORDS) return FOCI_OK;
    if (!json_is_array(list))
        return loader_malformed(l, "the model has no list of merges");
    if (l->t->kind == TEXT_CHARS && json_array_size(list))
        return loader_unsupported(l, "pre_tokenizer", "none",
                                  "ByteLevel if there are merges");
    json_array_foreach(list, i, merge) TRY(read_merge(l, merge, (int64_t)i));
    return FOCI_OK;
}

/* Tokens of single bytes; where these are all and there are no merges, the kind is
 * bytes. */
static void read_alphabet(struct foci_tokenizer *t)
{
    bool all = true;

    if (t->kind != TEXT_BPE) return;
    for (int b = 0; b < 256; b++) {
        const char               byte = (char)b;
        const struct dict_entry *e =
            dict_find(&t->vocab, &byte, 1, text_hash(&byte, 1));
        t->byte_id[b] = e ? (int32_t)(e->value - 1) : -1;
        all = all && e;
    }
    if (all && !t->merges.n && !t->whole && !t->prefix) t->kind = TEXT_BYTES;
}

foci_status loader_tokens(struct loader *l)
{
    TRY(read_vocab(l));
    TRY(read_unknown(l));
    TRY(read_all_added(l));
    TRY(read_merges(l));
    read_alphabet(l->t);
    return FOCI_OK;
}
