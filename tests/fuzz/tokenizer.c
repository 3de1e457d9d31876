/* tokenizer.c -- any bytes may be a tokenizer.json; it is refused with a reason, or it
 * encodes, decodes and is read back.
 *
 * Input: a file and, behind the last zero byte, a text to encode; without a zero byte
 * the file is the text too.
 */
#include "foci/text.h"
#include "fuzz/fuzz.h"

enum { LARGEST = 1 << 16, LONGEST = 1 << 10 };

/* All ids exist, and no text becomes more of them than was said. */
static void encode(const foci_tokenizer *t, const foci_string *text, unsigned flags,
                   int32_t *ids, int64_t *n)
{
    foci_encoder *e;
    int64_t       offsets[2];

    MUST(foci_encoder_create(t, &e) == FOCI_OK);
    const int64_t most = foci_encoder_most(e, text, 1);
    MUST(most <= 2 * LONGEST + 1);
    MUST(foci_encode(e, text, 1, flags, ids, most, offsets) == FOCI_OK);
    MUST(offsets[0] == 0 && offsets[1] >= 0 && offsets[1] <= most);
    *n = offsets[1];
    for (int64_t i = 0; i < *n; i++)
        MUST(ids[i] >= 0 && ids[i] < foci_tokenizer_size(t));
    foci_encoder_free(e);
}

/* The text of ids in one piece is that in pieces. */
static void decode(const foci_tokenizer *t, const int32_t *ids, int64_t n,
                   unsigned flags)
{
    foci_decoder whole = { FOCI_SIZED(foci_decoder) }, d = { FOCI_SIZED(foci_decoder) },
                 one = { FOCI_SIZED(foci_decoder) };
    int64_t bytes, used = 0, piece;

    MUST(foci_decode(t, &d, ids, n, flags, NULL, 0, &bytes) == FOCI_OK);
    char *text = malloc((size_t)bytes + 1), *pieces = malloc((size_t)bytes + 1);
    MUST(text && pieces);
    MUST(foci_decode(t, &whole, ids, n, flags, text, bytes, &piece) == FOCI_OK);
    MUST(piece == bytes);
    for (int64_t i = 0; i < n; i++, used += piece)
        MUST(foci_decode(t, &one, ids + i, 1, flags & ~FOCI_DECODE_END, pieces + used,
                         bytes - used, &piece) == FOCI_OK);
    MUST(foci_decode(t, &one, NULL, 0, flags, pieces + used, bytes - used, &piece) ==
         FOCI_OK);
    MUST(used + piece == bytes && memcmp(text, pieces, (size_t)bytes) == 0);
    free(text);
    free(pieces);
}

static void words(const foci_tokenizer *t, const int32_t *ids, int64_t n)
{
    static int32_t  word[2 * LONGEST + 1];
    foci_word_state s = { FOCI_SIZED(foci_word_state) };

    MUST(foci_token_words(t, ids, n, &s, word) == FOCI_OK);
    for (int64_t i = 0; i < n; i++)
        MUST(i ? word[i] == word[i - 1] || word[i] == word[i - 1] + 1 : word[i] == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int32_t  ids[2 * LONGEST + 1];
    foci_ctx       *ctx = fuzz_ctx();
    foci_tokenizer *t, *again;
    size_t          cut = size, bytes;
    int64_t         n;

    if (size > LARGEST) return 0;
    while (cut > 0 && data[cut - 1] != 0)
        cut--;
    const size_t      file = cut ? cut - 1 : size;
    const foci_string text = { (const char *)data + cut,
                               (int64_t)(size - cut < LONGEST ? size - cut : LONGEST) };
    if (foci_tokenizer_parse(ctx, "input", (const char *)data, file, &t)) {
        MUST(!t);
        fuzz_message(ctx);
        return 0;
    }
    for (unsigned flags = 0; flags <= FOCI_ENCODE_PLAIN; flags++) {
        encode(t, &text, flags, ids, &n);
        words(t, ids, n);
        decode(t, ids, n, FOCI_DECODE_END);
        decode(t, ids, n, FOCI_DECODE_END | FOCI_DECODE_REPLACE | FOCI_DECODE_SPECIALS);
    }
    const char *json = foci_tokenizer_json(t, &bytes);
    MUST(foci_tokenizer_parse(ctx, "again", json, bytes, &again) == FOCI_OK);
    MUST(foci_tokenizer_fingerprint(again) == foci_tokenizer_fingerprint(t));
    foci_tokenizer_free(again);
    foci_tokenizer_free(t);
    return 0;
}
