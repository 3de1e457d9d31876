/* text.c -- any bytes may be text: tokenizers are trained on it, encode it and decode it to
 * what it was, and scores of it are numbers.
 *
 * Input: a byte that chooses the kind, and the text.
 */
#include <math.h>

#include "foci/text.h"
#include "fuzz/fuzz.h"

enum { LONGEST = 1 << 12 };

struct memory {
    const uint8_t *data;
    size_t         size, at, piece;
};

static int64_t read_memory(void *user, void *to, int64_t bytes)
{
    struct memory *m = user;
    size_t         n = m->size - m->at;

    if (n > m->piece) n = m->piece;
    if (n > (size_t)bytes) n = (size_t)bytes;
    if (n) memcpy(to, m->data + m->at, n);
    m->at += n;
    return (int64_t)n;
}

static foci_tokenizer *train(foci_ctx *ctx, const char *kind, const uint8_t *data,
                             size_t size, size_t piece)
{
    struct memory     m = { data, size, 0, piece };
    const foci_reader reader = { FOCI_SIZED(foci_reader), .user = &m,
                                 .read = read_memory };
    foci_tokenizer   *t;

    MUST(foci_tokenizer_train(ctx, kind, NULL, &reader, 1, &t) == FOCI_OK);
    return t;
}

/* Bytes and pairs of them come back whatever they were; others where they are UTF-8 and
 * known, which is not looked at here. */
static void round_trip(const foci_tokenizer *t, const uint8_t *data, size_t size,
                       bool lossless)
{
    static int32_t    ids[LONGEST];
    static char       text[3 * LONGEST + 8];
    const foci_string s = { (const char *)data, (int64_t)size };
    foci_encoder     *e;
    foci_decoder      d = { FOCI_SIZED(foci_decoder) };
    int64_t           offsets[2], bytes;

    MUST(foci_encoder_create(t, &e) == FOCI_OK);
    for (int round = 0; round < 2; round++) /* the second time words are remembered */
        MUST(foci_encode(e, &s, 1, FOCI_ENCODE_PLAIN, ids, LONGEST, offsets) == FOCI_OK);
    MUST(foci_decode(t, &d, ids, offsets[1], FOCI_DECODE_SPECIALS | FOCI_DECODE_END,
                     text, lossless ? (int64_t)sizeof text : 0, &bytes) == FOCI_OK);
    if (lossless) MUST(bytes == (int64_t)size && memcmp(text, data, size) == 0);
    foci_encoder_free(e);
}

static void scores(foci_ctx *ctx, const uint8_t *data, size_t size)
{
    const size_t      half = size / 2;
    const foci_string a = { (const char *)data, (int64_t)half };
    const foci_string b = { (const char *)data + half, (int64_t)(size - half) };
    foci_bleu_counts  counts = { .length = 0 };
    foci_chrf_counts  chars = { .match = { 0 } };
    foci_bleu         bleu = { FOCI_SIZED(foci_bleu) };

    MUST(foci_bleu_add(ctx, a, b, &counts) == FOCI_OK);
    MUST(foci_chrf_add(ctx, a, b, &chars) == FOCI_OK);
    for (int sentence = 0; sentence < 2; sentence++) {
        MUST(foci_bleu_score(&counts, sentence, &bleu) == FOCI_OK);
        MUST(bleu.score >= 0 && bleu.score <= 100 + 1e-9);
    }
    const double chrf = foci_chrf_score(&chars);
    MUST(chrf >= 0 && chrf <= 100 + 1e-9);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const kinds[] = { "bytes", "bpe:270", "bpe:1000", "chars",
                                         "words", "chars:9", "words:9" };
    enum { N_KINDS = sizeof kinds / sizeof *kinds };
    foci_ctx *ctx = fuzz_ctx();

    if (size < 1 || size > LONGEST) return 0;
    const int       kind = data[0] % N_KINDS;
    foci_tokenizer *t = train(ctx, kinds[kind], data + 1, size - 1, LONGEST);
    foci_tokenizer *u =
        train(ctx, kinds[kind], data + 1, size - 1, 1 + data[0] / N_KINDS);

    MUST(foci_tokenizer_fingerprint(t) == foci_tokenizer_fingerprint(u));
    round_trip(t, data + 1, size - 1, kind < 3);
    scores(ctx, data + 1, size - 1);
    foci_tokenizer_free(t);
    foci_tokenizer_free(u);
    return 0;
}
