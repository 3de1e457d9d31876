/* train.c -- training of tokenizers: their vocabularies. */
#include <stdlib.h>
#include <string.h>

#include "text/train.h"

enum { N_BYTES = 256 };

static foci_status bad_kind(foci_ctx *ctx, const char *text)
{
    return ctx_fail(
        ctx, FOCI_ERR_ARG,
        "'%.60s' is no kind of tokenizer; accepted are bytes, chars, words, "
        "bpe:N with N from %d to %d, chars:N and words:N with N from %d",
        text, N_BYTE_SPECIALS + N_BYTES, MOST_TOKENS, FOCI_SPECIAL_COUNT + 1);
}

/* A whole number, digits only; -1: none, or too large. */
static int64_t read_number(const char *text)
{
    int64_t n = 0;

    if (!*text) return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || n > MOST_TOKENS) return -1;
        n = 10 * n + (*text - '0');
    }
    return n;
}

foci_status kind_parse(foci_ctx *ctx, const char *text, struct kind *kind)
{
    static const char *const names[] = {
        [TEXT_BYTES] = "bytes", [TEXT_CHARS] = "chars", [TEXT_WORDS] = "words", [TEXT_BPE] = "bpe"
    };
    const size_t len = strcspn(text, ":");

    for (int k = TEXT_BYTES; k <= TEXT_BPE; k++) {
        if (strlen(names[k]) != len || memcmp(names[k], text, len) != 0) continue;
        *kind = (struct kind){ .kind = (enum text_kind)k };
        if (!text[len]) return k == TEXT_BPE ? bad_kind(ctx, text) : FOCI_OK;

        const int64_t least =
            k == TEXT_BPE ? N_BYTE_SPECIALS + N_BYTES : FOCI_SPECIAL_COUNT + 1;
        kind->size = read_number(text + len + 1);
        if (k == TEXT_BYTES || kind->size < least || kind->size > MOST_TOKENS)
            return bad_kind(ctx, text);
        return FOCI_OK;
    }
    return bad_kind(ctx, text);
}

foci_status foci_tokenizer_check(foci_ctx *ctx, const char *kind)
{
    struct kind k;

    if (!ctx || !kind)
        return ctx_fail(ctx, FOCI_ERR_ARG, "a kind of tokenizer needs a name");
    return kind_parse(ctx, kind, &k);
}

/*
 * Which tokens there are
 */

static foci_status add_token(struct dict *tokens, const char *text, int64_t bytes)
{
    return dict_add(tokens, text, bytes, text_hash(text, bytes)) ? FOCI_OK
                                                                 : FOCI_ERR_MEMORY;
}

/* To bytes and byte pair encoding nothing is unknown.  The result is how many there
 * are. */
static foci_status add_specials(struct dict *tokens, enum text_kind kind, int *n)
{
    *n = 0;
    for (int s = 0; s < FOCI_SPECIAL_COUNT; s++) {
        if (s == FOCI_SPECIAL_UNK && (kind == TEXT_BYTES || kind == TEXT_BPE)) continue;
        const char *name = special_names[s];
        TRY(add_token(tokens, name, (int64_t)strlen(name)));
        ++*n;
    }
    return FOCI_OK;
}

/* All bytes: in order, or in that of the characters that stand for them, as `tokenizers`
 * has them. */
static foci_status add_bytes(struct dict *tokens, bool in_order)
{
    for (uint32_t c = 0; c < 2 * N_BYTES; c++) {
        const int  b = in_order ? (c < N_BYTES ? (int)c : -1) : char_to_byte(c);
        const char byte = (char)b;
        if (b >= 0) TRY(add_token(tokens, &byte, 1));
    }
    return FOCI_OK;
}

static int by_text(const void *x, const void *y)
{
    const struct dict_entry *a = x, *b = y;
    const int order = memcmp(a->text, b->text, (size_t)min64(a->bytes, b->bytes));
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int by_count(const void *x, const void *y)
{
    const struct dict_entry *a = x, *b = y;
    return a->value != b->value ? (a->value < b->value) - (a->value > b->value)
                                : by_text(x, y);
}

/* The most frequent ones; characters then by their code points, which is the order of
 * their bytes.  A word may spell a special token, which it then is. */
static foci_status add_counted(struct dict *tokens, struct dict *counts,
                               const struct kind *kind, int64_t min_count)
{
    int64_t n = 0;

    if (!counts->n) return FOCI_OK;
    qsort(counts->entries, (size_t)counts->n, sizeof *counts->entries, by_count);
    while (n < counts->n && counts->entries[n].value >= min_count)
        n++;
    if (kind->kind == TEXT_CHARS) {
        if (kind->size) n = min64(n, kind->size - tokens->n);
        qsort(counts->entries, (size_t)n, sizeof *counts->entries, by_text);
    }
    for (int64_t i = 0; i < n && (!kind->size || tokens->n < kind->size); i++)
        TRY(add_token(tokens, counts->entries[i].text, counts->entries[i].bytes));
    return FOCI_OK;
}

struct training {
    struct kind        kind;
    int64_t            min_count;
    int                n_special;
    struct dict        counts, tokens;
    struct merge_list  merges;
    struct text_buffer json;
};

static foci_status find_tokens(foci_ctx *ctx, struct training *t,
                               const foci_reader *readers, int n)
{
    const enum text_kind kind = t->kind.kind;

    TRY(add_specials(&t->tokens, kind, &t->n_special));
    if (kind == TEXT_BYTES) return add_bytes(&t->tokens, true);
    TRY(count_texts(ctx, kind, readers, n, &t->counts));
    if (kind != TEXT_BPE)
        return add_counted(&t->tokens, &t->counts, &t->kind, t->min_count);
    TRY(add_bytes(&t->tokens, false));
    return train_merges(ctx, &t->counts, t->kind.size, t->min_count, &t->tokens,
                        &t->merges);
}

static foci_status train(foci_ctx *ctx, struct training *t, const foci_reader *readers,
                         int n, foci_tokenizer **tokenizer)
{
    TRY(find_tokens(ctx, t, readers, n));
    TRY(json_write(&t->json, t->kind.kind, &t->tokens, t->n_special, &t->merges));
    return tokenizer_take(ctx, "a new tokenizer", &t->json, tokenizer);
}

static foci_status check_call(foci_ctx *ctx, const char *kind,
                              const foci_reader *readers, int n,
                              foci_tokenizer **tokenizer)
{
    if (!ctx || !kind || !tokenizer || n < 0 || (n && !readers))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "training a tokenizer takes a context, a kind, readers and a "
                        "place");
    for (int i = 0; i < n; i++)
        if (!readers[i].read)
            return ctx_fail(ctx, FOCI_ERR_ARG, "reader %d has no function that reads",
                            i);
    return FOCI_OK;
}

foci_status foci_tokenizer_train(foci_ctx *ctx, const char *kind,
                                 const foci_tokenizer_options *options,
                                 const foci_reader *readers, int n,
                                 foci_tokenizer **tokenizer)
{
    foci_tokenizer_options o = { 0 };
    struct training        t = { .counts = { .ctx = ctx },
                                 .tokens = { .ctx = ctx },
                                 .merges = { .ctx = ctx },
                                 .json = { .ctx = ctx } };

    if (tokenizer) *tokenizer = NULL;
    TRY(check_call(ctx, kind, readers, n, tokenizer));
    TRY(kind_parse(ctx, kind, &t.kind));
    if (options) TRY(sized_in(ctx, "foci_tokenizer_options", &o, options, sizeof o));
    if (o.min_count < 0)
        return ctx_fail(ctx, FOCI_ERR_ARG, "min_count is %lld: it may be 0 or more",
                        (long long)o.min_count);
    t.min_count = o.min_count ? o.min_count : t.kind.kind == TEXT_BPE ? 2 : 1;

    const foci_status status = train(ctx, &t, readers, n, tokenizer);
    dict_free(&t.counts);
    dict_free(&t.tokens);
    if (t.merges.pairs)
        ctx_free(ctx, t.merges.pairs, (size_t)t.merges.cap, sizeof *t.merges.pairs);
    buffer_free(&t.json);
    return status;
}
