/* texts.h -- readers of texts in memory, and tokenizers trained on them. */
#ifndef FOCI_TEST_TEXTS_H
#define FOCI_TEST_TEXTS_H

#include "foci/text.h"
#include "test.h"

/* A text that is read in pieces of at most `piece` bytes; after `fails` of them, unless
 * that is 0, reading fails. */
struct memory_text {
    const char *text;
    int64_t     bytes, at, piece, fails;
};

static inline int64_t memory_read(void *user, void *to, int64_t bytes)
{
    struct memory_text *m = user;
    const int64_t       n = min64(min64(bytes, m->piece), m->bytes - m->at);

    if (m->fails && m->at >= m->fails) return -1;
    if (n) memcpy(to, m->text + m->at, (size_t)n);
    m->at += n;
    return n;
}

static inline const char *memory_error(void *user)
{
    (void)user;
    return "the memory is on fire";
}

static inline foci_reader memory_reader(struct memory_text *m)
{
    return (foci_reader){ FOCI_SIZED(foci_reader), .name = "memory", .user = m,
                          .read = memory_read, .error = memory_error };
}

/* Train on a text of so many bytes. */
static inline foci_tokenizer *train_on(foci_ctx *ctx, const char *kind,
                                       const char *text, int64_t bytes)
{
    struct memory_text m = { .text = text, .bytes = bytes, .piece = 1 << 20 };
    const foci_reader  reader = memory_reader(&m);
    foci_tokenizer    *t = NULL;

    if (foci_tokenizer_train(ctx, kind, NULL, &reader, 1, &t))
        fail_msg("%s: %s", kind, foci_errmsg(ctx));
    return t;
}

static inline foci_tokenizer *train_text(foci_ctx *ctx, const char *kind,
                                         const char *text)
{
    return train_on(ctx, kind, text, (int64_t)strlen(text));
}

/* The ids of one text, to be freed. */
static inline int32_t *ids_of(const foci_tokenizer *t, const char *text, int64_t bytes,
                              unsigned flags, int64_t *n)
{
    const foci_string s = { text, bytes };
    foci_encoder     *e;
    int64_t           offsets[2];

    assert_int_equal(foci_encoder_create(t, &e), FOCI_OK);
    const int64_t most = foci_encoder_most(e, &s, 1);
    int32_t      *ids = test_alloc((size_t)most + 1, sizeof *ids);
    assert_int_equal(foci_encode(e, &s, 1, flags, ids, most, offsets), FOCI_OK);
    assert_true(offsets[0] == 0 && offsets[1] <= most);
    *n = offsets[1];
    foci_encoder_free(e);
    return ids;
}

/* A text to train on, and one of each kind. */
static const char text_prose[] =
    "It is a truth universally acknowledged, that a single man in possession of a good "
    "fortune, must be in want of a wife.\nHowever little known the feelings or views "
    "of such a man may be on his first entering a neighbourhood, this truth is so well "
    "fixed in the minds of the surrounding families, that he is considered as the "
    "rightful property of some one or other of their daughters.\n"
    "Gr\xc3\xbc\xc3\x9f\x65 aus K\xc3\xb6ln; ti\xe1\xba\xbfng Vi\xe1\xbb\x87t!\n";

static const char *const text_kinds[] = { "bytes",    "chars",    "words",   "bpe:300",
                                          "bpe:1000", "chars:20", "words:30" };
enum { N_TEXT_KINDS = sizeof text_kinds / sizeof *text_kinds };

/* The same file. */
static inline void expect_same_tokenizer(const foci_tokenizer *a,
                                         const foci_tokenizer *b)
{
    size_t      n_a, n_b;
    const char *x = foci_tokenizer_json(a, &n_a), *y = foci_tokenizer_json(b, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(x, y, n_a);
    assert_true(foci_tokenizer_fingerprint(a) == foci_tokenizer_fingerprint(b));
}

#endif
