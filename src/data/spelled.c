/* spelled.c -- words and characters that each token of a text spells, so that the loss of
 * tokens is one of words or characters too, whatever the tokens are.
 *
 * A word counts where its last byte is, a character where its first one is; the end of a
 * line is one of each.  Where the tokens are not the bytes of the text (kind words leaves
 * out white space, an unknown character is one token) they are taken for its characters or
 * for its words if there are as many, and else the last token has all: sums over a text are
 * exact in every case.
 */
#include <string.h>

#include "data/data.h"

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool begins_char(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

/* What byte i counts. */
static struct spelled count(foci_string text, int64_t i)
{
    const char c = text.text[i];
    const bool goes_on = i + 1 < text.bytes && !is_space(text.text[i + 1]);

    return (struct spelled){ c == '\n' || (!is_space(c) && !goes_on), begins_char(c) };
}

static void add(struct spelled *sum, struct spelled x)
{
    sum->words += x.words;
    sum->chars += x.chars;
}

/* The bytes of all tokens; -1 if one has none. */
static int64_t token_bytes(const foci_tokenizer *t, const int32_t *ids, int64_t n)
{
    int64_t sum = 0, bytes;

    for (int64_t i = 0; i < n; i++) {
        if (!foci_tokenizer_token(t, ids[i], &bytes)) return -1;
        sum += bytes;
    }
    return sum;
}

/* What tokens are taken for. */
enum unit { BYTES, CHARS, WORDS, TEXT };

static enum unit unit_of(const foci_tokenizer *t, foci_string text, const int32_t *ids,
                         int64_t n)
{
    struct spelled sum = { 0 };

    if (token_bytes(t, ids, n) == text.bytes) return BYTES;
    for (int64_t i = 0; i < text.bytes; i++)
        add(&sum, count(text, i));
    return sum.chars == n ? CHARS : sum.words == n ? WORDS : TEXT;
}

void spell_out(const foci_tokenizer *t, foci_string text, bool eos, const int32_t *ids,
               int64_t n, struct spelled *out)
{
    const enum unit unit = unit_of(t, text, ids, n - eos);
    int64_t         at = unit == TEXT ? n - 1 : unit == WORDS ? 0 : -1;
    int64_t         end = 0, length = 0;

    if (n <= 0) return;
    memset(out, 0, (size_t)n * sizeof *out);
    for (int64_t i = 0; i < text.bytes; i++) {
        const struct spelled x = count(text, i);

        if (unit == CHARS) at += x.chars;
        while (unit == BYTES && i >= end) {
            (void)foci_tokenizer_token(t, ids[++at], &length);
            end += length;
        }
        add(&out[max64(0, min64(at, n - 1))], x);
        if (unit == WORDS) at += x.words;
    }
    if (eos) add(&out[n - 1], (struct spelled){ 1, 1 });
}
