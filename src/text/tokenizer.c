/* tokenizer.c -- making, freeing and querying tokenizers. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "foci/file.h"
#include "text/text.h"

const char *const special_names[FOCI_SPECIAL_COUNT] = { "<pad>", "<bos>", "<eos>",
                                                        "<unk>", "<mask>" };

static const char *const kinds[] = {
    [TEXT_BYTES] = "bytes", [TEXT_CHARS] = "chars", [TEXT_WORDS] = "words", [TEXT_BPE] = "bpe"
};

foci_status text_fail(foci_ctx *ctx, foci_status status, const char *name,
                      const char *format, ...)
{
    va_list args;

    va_start(args, format);
    ctx_fail_in(ctx, status, name, format, args);
    va_end(args);
    return status;
}

void foci_tokenizer_free(foci_tokenizer *t)
{
    if (!t) return;
    foci_ctx *ctx = t->ctx;
    if (t->json) ctx_free(ctx, t->json, (size_t)t->json_cap, 1);
    ctx_free(ctx, t->tokens, (size_t)t->n_tokens, sizeof *t->tokens);
    ctx_free(ctx, t->added, (size_t)t->cap_added, sizeof *t->added);
    dict_free(&t->vocab);
    pair_free(&t->merges);
    if (t->early.nodes)
        ctx_free(ctx, t->early.nodes, (size_t)t->early.cap, sizeof *t->early.nodes);
    if (t->late.nodes)
        ctx_free(ctx, t->late.nodes, (size_t)t->late.cap, sizeof *t->late.nodes);
    ctx_free(ctx, t, 1, sizeof *t);
}

foci_status tokenizer_take(foci_ctx *ctx, const char *name, struct text_buffer *json,
                           foci_tokenizer **tokenizer)
{
    struct foci_tokenizer *t = ctx_alloc(ctx, 1, sizeof *t);

    if (!t) return FOCI_ERR_MEMORY;
    t->ctx = t->vocab.ctx = t->merges.ctx = ctx;
    t->json = json->at;
    t->json_bytes = json->used;
    t->json_cap = json->cap;
    *json = (struct text_buffer){ .ctx = ctx };

    foci_status status = tokenizer_read(t, name);
    if (!status) status = tokenizer_finish(t, name);
    if (status)
        foci_tokenizer_free(t);
    else
        *tokenizer = t;
    return status;
}

foci_status foci_tokenizer_parse(foci_ctx *ctx, const char *name, const char *json,
                                 size_t bytes, foci_tokenizer **tokenizer)
{
    struct text_buffer b = { .ctx = ctx };

    if (tokenizer) *tokenizer = NULL;
    if (!ctx || !tokenizer || !name || !json || bytes > INT64_MAX)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "a tokenizer needs a context, a name, its text and a place");
    foci_status status = buffer_add(&b, json, (int64_t)bytes);
    if (!status) status = tokenizer_take(ctx, name, &b, tokenizer);
    buffer_free(&b);
    return status;
}

/*
 * Files
 */

/* "DIR/tokenizer.json" for a directory, else the path, zero-terminated. */
static foci_status file_of(foci_ctx *ctx, const char *path, struct text_buffer *name)
{
    struct stat st;

    *name = (struct text_buffer){ .ctx = ctx };
    TRY(buffer_text(name, path));
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        TRY(buffer_text(name, "/tokenizer.json"));
    return buffer_add(name, "", 1);
}

static foci_status read_all(const foci_reader *r, struct text_buffer *b)
{
    enum { PIECE = 1 << 16 };

    for (int64_t n = 1; n > 0;) {
        TRY(grow(b->ctx, &b->at, &b->cap, b->used + PIECE, 1));
        n = r->read(r->user, b->at + b->used, b->cap - b->used);
        if (n < 0)
            return text_fail(b->ctx, FOCI_ERR_FILE, r->name, "cannot be read: %s",
                             r->error(r->user));
        b->used += n;
    }
    return FOCI_OK;
}

static foci_status load(foci_ctx *ctx, const char *path, foci_tokenizer **tokenizer)
{
    foci_reader        reader = { FOCI_SIZED(foci_reader) };
    struct text_buffer json = { .ctx = ctx };

    TRY(foci_reader_open(ctx, path, &reader));
    foci_status status = read_all(&reader, &json);
    if (!status) status = tokenizer_take(ctx, path, &json, tokenizer);
    buffer_free(&json);
    foci_reader_close(&reader);
    return status;
}

foci_status foci_tokenizer_load(foci_ctx *ctx, const char *path,
                                foci_tokenizer **tokenizer)
{
    struct text_buffer name;

    if (tokenizer) *tokenizer = NULL;
    if (!ctx || !tokenizer || !path)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "a tokenizer needs a context, a path and a place");
    foci_status status = file_of(ctx, path, &name);
    if (!status) status = load(ctx, name.at, tokenizer);
    buffer_free(&name);
    return status;
}

foci_status foci_tokenizer_save(const foci_tokenizer *t, const char *path)
{
    struct text_buffer name;

    if (!t) return ctx_fail(NULL, FOCI_ERR_ARG, "there is no tokenizer to save");
    if (!path) return ctx_fail(t->ctx, FOCI_ERR_ARG, "a file to write needs a name");
    foci_status status = file_of(t->ctx, path, &name);
    if (!status)
        status = foci_file_write(t->ctx, name.at, t->json, (size_t)t->json_bytes);
    buffer_free(&name);
    return status;
}

const char *foci_tokenizer_json(const foci_tokenizer *t, size_t *bytes)
{
    *bytes = (size_t)t->json_bytes;
    return t->json;
}

/*
 * What follows from the file
 */

/* Special tokens as others call them, by rising preference from the end. */
static const char *const known_names[FOCI_SPECIAL_COUNT][8] = {
    [FOCI_SPECIAL_PAD] = { "<pad>", "[PAD]", "<|pad|>", "<|padding|>" },
    [FOCI_SPECIAL_BOS] = { "<bos>", "<s>", "[CLS]", "[BOS]", "<|begin_of_text|>",
                           "<|startoftext|>", "<|endoftext|>" },
    [FOCI_SPECIAL_EOS] = { "<eos>", "</s>", "[SEP]", "[EOS]", "<|end_of_text|>",
                           "<|endoftext|>" },
    [FOCI_SPECIAL_UNK] = { "<unk>", "[UNK]" },
    [FOCI_SPECIAL_MASK] = { "<mask>", "[MASK]", "<|mask|>" },
};

static int32_t special_called(const struct foci_tokenizer *t, const char *name)
{
    const int64_t bytes = (int64_t)strlen(name);

    for (int64_t i = 0; i < t->n_added; i++)
        if (t->added[i].special && t->added[i].bytes == bytes &&
            memcmp(t->added[i].text, name, (size_t)bytes) == 0)
            return t->added[i].id;
    return -1;
}

static void find_specials(struct foci_tokenizer *t)
{
    for (int s = 0; s < FOCI_SPECIAL_COUNT; s++) {
        t->special[s] = -1;
        for (int n = 0; n < 8 && known_names[s][n] && t->special[s] < 0; n++)
            t->special[s] = special_called(t, known_names[s][n]);
    }
    if (t->unknown >= 0) t->special[FOCI_SPECIAL_UNK] = t->unknown;
}

static bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* White space that separates words is that of ASCII, which no other character has a byte
 * of: a token may be a part of a character. */
static void find_flags(struct token *token)
{
    token->flags |= TOKEN_ASCII;
    for (int32_t i = 0; i < token->bytes; i++) {
        const char c = token->text[i];
        if ((unsigned char)c >= 0x80) token->flags &= (unsigned char)~TOKEN_ASCII;
        if (!is_white(c)) {
            token->flags |= TOKEN_SOLID;
            token->flags &= (unsigned char)~TOKEN_CLOSES;
        } else if (token->flags & TOKEN_SOLID) {
            token->flags |= TOKEN_CLOSES;
        }
        if (i == 0 && is_white(c)) token->flags |= TOKEN_SPACE;
    }
}

/* What is unknown in a text of characters may be a part of a word. */
static void find_all_flags(struct foci_tokenizer *t)
{
    for (int64_t id = 0; id < t->n_tokens; id++) {
        struct token *token = &t->tokens[id];
        if (!token->text) continue;
        find_flags(token);
        if (t->kind == TEXT_WORDS) token->flags |= TOKEN_ALONE;
        t->longest = max64(t->longest, token->bytes);
    }
    for (int64_t i = 0; i < t->n_added; i++) {
        const struct added *a = &t->added[i];
        if (!a->special) continue;
        t->tokens[a->id].flags |= TOKEN_SPECIAL;
        if (a->id != t->unknown) t->tokens[a->id].flags |= TOKEN_ALONE;
    }
}

/* FNV-1a of what decides about ids, whatever the byte order of the machine. */
static void mix(uint64_t *h, const void *data, int64_t bytes)
{
    const unsigned char *p = data;
    for (int64_t i = 0; i < bytes; i++)
        *h = (*h ^ p[i]) * 0x100000001b3u;
}

static void mix_number(uint64_t *h, int64_t x)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)x >> (8 * i));
    mix(h, bytes, 8);
}

/* Merges are a table without order, so each is mixed by itself. */
static uint64_t of_merges(const struct pair_map *m)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < m->n_slots; i++) {
        uint64_t h = 0xcbf29ce484222325u;
        if (!m->slots[i].key) continue;
        mix_number(&h, (int64_t)m->slots[i].key);
        mix_number(&h, m->slots[i].value);
        sum += h ^ h >> 29;
    }
    return sum;
}

static uint64_t fingerprint_of(const struct foci_tokenizer *t)
{
    uint64_t h = 0xcbf29ce484222325u;

    mix_number(&h, t->kind);
    if (t->kind == TEXT_BPE)
        mix_number(&h, t->split | t->prefix << 1 | t->whole << 2 | t->fuse << 3);
    mix_number(&h, t->unknown);
    mix_number(&h, t->n_tokens);
    for (int64_t id = 0; id < t->n_tokens; id++) {
        if (!t->tokens[id].text) continue;
        mix_number(&h, id);
        mix_number(&h, t->tokens[id].bytes);
        mix(&h, t->tokens[id].text, t->tokens[id].bytes);
    }
    for (int64_t i = 0; i < t->n_added; i++) {
        const struct added *a = &t->added[i];
        mix_number(&h, a->id);
        mix_number(&h, a->special | a->late << 1 | a->lstrip << 2 | a->rstrip << 3);
    }
    mix_number(&h, (int64_t)of_merges(&t->merges));
    return h ^ h >> 32;
}

foci_status tokenizer_finish(struct foci_tokenizer *t, const char *name)
{
    for (int64_t i = 0; i < t->n_added; i++)
        TRY(added_insert(t->ctx, t->added[i].late ? &t->late : &t->early, &t->added[i],
                         i));
    find_specials(t);
    find_all_flags(t);
    t->fingerprint = fingerprint_of(t);
    if (t->n_tokens == 0)
        return text_fail(t->ctx, FOCI_ERR_FILE, name, "has no tokens; one is needed");
    return FOCI_OK;
}

/*
 * What a tokenizer says of itself
 */

int64_t  foci_tokenizer_size(const foci_tokenizer *t) { return t->n_tokens; }
uint64_t foci_tokenizer_fingerprint(const foci_tokenizer *t) { return t->fingerprint; }

foci_status foci_tokenizer_get_info(const foci_tokenizer *t, foci_tokenizer_info *info)
{
    if (!t)
        return ctx_fail(NULL, FOCI_ERR_ARG,
                        "foci_tokenizer_get_info: the tokenizer is NULL");
    const foci_tokenizer_info whole = { sizeof whole,
                                        .kind = kinds[t->kind],
                                        .tokens = t->n_tokens,
                                        .merges = t->merges.n,
                                        .added = t->n_added,
                                        .longest = t->longest,
                                        .fingerprint = t->fingerprint };
    return sized_out(t->ctx, "foci_tokenizer_info", info, &whole, sizeof whole);
}

int32_t foci_tokenizer_special(const foci_tokenizer *t, foci_special which)
{
    return (int)which < 0 || which >= FOCI_SPECIAL_COUNT ? -1 : t->special[which];
}

int foci_tokenizer_is_special(const foci_tokenizer *t, int32_t id)
{
    const struct token *token = token_of(t, id);
    return token && token->flags & TOKEN_SPECIAL;
}

const char *foci_tokenizer_token(const foci_tokenizer *t, int32_t id, int64_t *bytes)
{
    const struct token *token = token_of(t, id);
    *bytes = token ? token->bytes : 0;
    return token ? token->text : NULL;
}

int32_t foci_tokenizer_id(const foci_tokenizer *t, const char *text, int64_t bytes)
{
    for (int64_t i = 0; i < t->n_added; i++)
        if (t->added[i].bytes == bytes &&
            memcmp(t->added[i].text, text, (size_t)bytes) == 0)
            return t->added[i].id;
    const struct dict_entry *e =
        dict_find(&t->vocab, text, bytes, text_hash(text, bytes));
    return e ? (int32_t)(e->value - 1) : -1;
}
