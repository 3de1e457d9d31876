/* decode.c -- ids to text, and to indices of words. */
#include <string.h>

#include "text/text.h"
#include "text/utf8.h"

/* Text that is given out: all is counted, what fits is there. */
struct sink {
    char   *text;
    int64_t cap, used;
};

static void give(struct sink *s, const char *text, int64_t bytes)
{
    if (bytes && bytes <= s->cap - s->used)
        memcpy(s->text + s->used, text, (size_t)bytes);
    s->used += bytes;
}

/* Give out one sequence of what is held: a character, or what is not UTF-8. */
static void release(struct sink *s, foci_decoder *d, unsigned flags)
{
    const char *held = (const char *)d->held;
    char        unknown[UTF8_MOST];
    uint32_t    c;
    const int   n = utf8_next(held, held + d->n_held, &c);

    if (c == UTF8_BAD && flags & FOCI_DECODE_REPLACE)
        give(s, unknown, utf8_put(UTF8_UNKNOWN, unknown));
    else
        give(s, held, n);
    d->n_held -= n;
    memmove(d->held, d->held + n, (size_t)d->n_held);
}

static void add_bytes(struct sink *s, foci_decoder *d, unsigned flags, const char *text,
                      int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) {
        d->held[d->n_held++] = (unsigned char)text[i];
        while (d->n_held && !utf8_begins((const char *)d->held, d->n_held))
            release(s, d, flags);
    }
}

static void add_token(const struct foci_tokenizer *t, const struct token *token,
                      struct sink *s, foci_decoder *d, unsigned flags)
{
    if (token->flags & TOKEN_SPECIAL && !(flags & FOCI_DECODE_SPECIALS)) return;
    if (t->kind == TEXT_WORDS && d->begun) give(s, " ", 1);
    d->begun = 1;
    if (token->flags & TOKEN_ASCII && !d->n_held)
        give(s, token->text, token->bytes);
    else
        add_bytes(s, d, flags, token->text, token->bytes);
}

static foci_status no_such_id(const struct foci_tokenizer *t, int64_t at, int32_t id)
{
    return ctx_fail(t->ctx, FOCI_ERR_ARG,
                    "id %lld is %d; this tokenizer has ids from 0 to %lld",
                    (long long)at, (int)id, (long long)t->n_tokens - 1);
}

/* Only what the library put there may be in the state. */
static bool decoder_ok(const foci_decoder *d)
{
    return d->n_held == 0 || (d->n_held > 0 && d->n_held < UTF8_MOST &&
                              utf8_begins((const char *)d->held, d->n_held));
}

foci_status foci_decode(const foci_tokenizer *t, foci_decoder *decoder,
                        const int32_t *ids, int64_t n, unsigned flags, char *text,
                        int64_t cap, int64_t *bytes)
{
    const unsigned known = FOCI_DECODE_SPECIALS | FOCI_DECODE_END | FOCI_DECODE_REPLACE;

    foci_decoder d;

    if (!t) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_decode: the tokenizer is NULL");
    TRY(sized_in(t->ctx, "foci_decoder", &d, decoder, sizeof d));
    if (n < 0 || (n && !ids) || cap < 0 || (cap && !text) || !bytes || flags & ~known ||
        !decoder_ok(&d))
        return ctx_fail(t->ctx, FOCI_ERR_ARG,
                        "decoding needs ids, room, a place for the length, known flags "
                        "and a decoder of zeros or as it was left");

    struct sink s = { .text = text, .cap = cap };
    for (int64_t i = 0; i < n; i++) {
        const struct token *token = token_of(t, ids[i]);
        if (!token) return no_such_id(t, i, ids[i]);
        add_token(t, token, &s, &d, flags);
    }
    while (flags & FOCI_DECODE_END && d.n_held)
        release(&s, &d, flags);
    *bytes = s.used;
    return s.used > cap ? FOCI_OK
                        : sized_out(t->ctx, "foci_decoder", decoder, &d, sizeof d);
}

/* What foci_word_state.inside says of the last word. */
enum {
    INSIDE_BEGUN = 1,  /* there is a word */
    INSIDE_SOLID = 2,  /* it has more than white space */
    INSIDE_CLOSED = 4, /* and white space after that */
    INSIDE_ALONE = 8   /* it was a token that is a word by itself */
};

/* Whether a token begins a word, where others stand before it. */
static bool begins_word(const struct token *token, int inside)
{
    if ((inside & INSIDE_ALONE) || token->flags & TOKEN_ALONE) return true;
    if (inside & INSIDE_CLOSED) return true;
    return inside & INSIDE_SOLID && token->flags & TOKEN_SPACE;
}

static void step_word(const struct token *token, foci_word_state *state)
{
    if (state->inside & INSIDE_BEGUN && begins_word(token, state->inside)) {
        state->word++;
        state->inside = 0;
    }
    state->inside |= INSIDE_BEGUN;
    if (token->flags & TOKEN_ALONE) state->inside |= INSIDE_ALONE;
    if (token->flags & TOKEN_SOLID) {
        state->inside |= INSIDE_SOLID;
        state->inside &= ~INSIDE_CLOSED;
    }
    if (token->flags & TOKEN_CLOSES) state->inside |= INSIDE_CLOSED;
}

foci_status foci_token_words(const foci_tokenizer *t, const int32_t *ids, int64_t n,
                             foci_word_state *state, int32_t *words)
{
    foci_word_state now;

    if (!t)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_token_words: the tokenizer is NULL");
    TRY(sized_in(t->ctx, "foci_word_state", &now, state, sizeof now));
    if (n < 0 || (n && (!ids || !words)) || now.word < 0 || now.word > INT32_MAX - n)
        return ctx_fail(t->ctx, FOCI_ERR_ARG,
                        "indices of words need ids and a place, and end at %d",
                        INT32_MAX);
    for (int64_t i = 0; i < n; i++) {
        const struct token *token = token_of(t, ids[i]);
        if (!token) return no_such_id(t, i, ids[i]);
        step_word(token, &now);
        words[i] = (int32_t)now.word;
    }
    return sized_out(t->ctx, "foci_word_state", state, &now, sizeof now);
}
