/* text.h -- tokenizers, and scores of translations.
 *
 * A tokenizer turns text into ids and back.  There are four kinds:
 *
 *     bytes      one token for each byte
 *     chars      one token for each character (Unicode code point)
 *     words      one token for each word; words stand between white space
 *     bpe:N      byte-level byte pair encoding with N tokens in all, as in GPT-2
 *
 * A tokenizer is trained on text or read from a file, and never changes afterwards.  Its
 * file is a tokenizer.json, which the `tokenizers` library of Hugging Face reads too, to
 * the same ids:
 *
 *     foci_tokenizer *t;
 *     foci_encoder   *e;
 *     if (foci_tokenizer_load(ctx, "tokenizer.json", &t) || foci_encoder_create(t, &e))
 *         die(foci_errmsg(ctx));
 *     const foci_string text = { line, strlen(line) };
 *     int64_t cap = foci_encoder_most(e, &text, 1), offsets[2];
 *     int32_t *ids = malloc(cap * sizeof *ids);
 *     foci_encode(e, &text, 1, 0, ids, cap, offsets);
 *
 * Text that is not UTF-8.  Kinds bytes and bpe take any bytes and decode to the same
 * bytes.  Kinds chars and words read each ill-formed sequence (the longest beginning of a
 * character, or a single byte, as Unicode recommends) as U+FFFD, the replacement
 * character.  Scores do the same.
 *
 * Special tokens.  Trained tokenizers have <pad> (id 0), <bos>, <eos>, <unk> and <mask>,
 * in this order; kinds bytes and bpe, to which nothing is unknown, have no <unk>.  Text
 * that spells the name of a special token is read as this token, as `tokenizers` does;
 * FOCI_ENCODE_PLAIN reads it as ordinary text.  Nothing is put around a text: what a
 * "post_processor" of a file would add is not.
 */
#ifndef FOCI_TEXT_H
#define FOCI_TEXT_H

#include "foci/foci.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Readers
 */

/* A source of text, opened by its maker and closed by whoever was given it.  Functions of
 * the library that take a const foci_reader read it from its present place to its end
 * and do not close it. */
typedef struct foci_reader {
    size_t      size;
    const char *name; /* for messages, usually the path; NULL: "text" */
    void       *user; /* given to the functions */

    /* Bytes put to `to`: 1 to `bytes`, 0 at the end, or -1 for a failure. */
    int64_t (*read)(void *user, void *to, int64_t bytes);

    /* Go on reading at the start.  0, or -1 for a failure; NULL: it cannot. */
    int (*rewind)(void *user);

    /* Release everything; may be NULL. */
    void (*close)(void *user);

    /* Why the last call failed, as the end of a sentence ("is not a gzip file"); may be
     * NULL. */
    const char *(*error)(void *user);
} foci_reader;

/* A reader of a plain file.  Close it by foci_reader_close(). */
FOCI_API foci_status foci_reader_open(foci_ctx *ctx, const char *path,
                                      foci_reader *reader);

/* Call close() if there is one.  A reader of zeros is accepted. */
FOCI_API void foci_reader_close(foci_reader *reader);

/*
 * Tokenizers
 */

/* Any number of threads may use a tokenizer at once. */
typedef struct foci_tokenizer foci_tokenizer;

/* A text: any bytes, zeros too. */
typedef struct foci_string {
    const char *text;
    int64_t     bytes;
} foci_string;

typedef struct foci_tokenizer_options {
    size_t size;
    /* Characters and words that occur less often are left out, and become <unk>; pairs
     * that do are not merged.  0: 1 for chars and words, 2 for bpe. */
    int64_t min_count;
} foci_tokenizer_options;

/* Train on all that n readers give.  `kind` is "bytes", "chars", "words", "bpe:N", or
 * "chars:N" or "words:N" for the N - 5 most frequent ones only.  Text is taken line by
 * line; the end of a line ('\n') belongs to it and no token goes across it.  Of equally
 * frequent pairs the one with the smaller ids is merged first, as `tokenizers` does; the
 * result does not depend on the number of threads.  When text has not enough pairs or
 * words the tokenizer has fewer tokens than asked for.  Kind bytes reads no text.
 * `options` may be NULL. */
FOCI_API foci_status foci_tokenizer_train(foci_ctx *ctx, const char *kind,
                                          const foci_tokenizer_options *options,
                                          const foci_reader *readers, int n,
                                          foci_tokenizer **tokenizer);

/* Whether `kind` is one that foci_tokenizer_train() takes; if not, foci_errmsg(ctx) says
 * what it takes. */
FOCI_API foci_status foci_tokenizer_check(foci_ctx *ctx, const char *kind);

/* Read a tokenizer.json, or the one in a directory.  Accepted are our own files and those
 * of byte-level BPE that `tokenizers` writes: no normalizer, pre-tokenizer ByteLevel,
 * decoder ByteLevel, added tokens that are not single_word.  Others are refused with
 * FOCI_ERR_UNSUP and a message that names what is not supported. */
FOCI_API foci_status foci_tokenizer_load(foci_ctx *ctx, const char *path,
                                         foci_tokenizer **tokenizer);

/* The same from memory; `name` stands for the path in messages. */
FOCI_API foci_status foci_tokenizer_parse(foci_ctx *ctx, const char *name,
                                          const char *json, size_t bytes,
                                          foci_tokenizer **tokenizer);

/* Write tokenizer.json at `path`, whole or not at all.  What was read from a file is
 * written as it was. */
FOCI_API foci_status foci_tokenizer_save(const foci_tokenizer *tokenizer,
                                         const char           *path);

/* The text of that file; it lives as long as the tokenizer. */
FOCI_API const char *foci_tokenizer_json(const foci_tokenizer *tokenizer, size_t *bytes);

/* NULL is accepted.  Encoders of the tokenizer are freed first. */
FOCI_API void foci_tokenizer_free(foci_tokenizer *tokenizer);

/* Tokens that have a meaning of their own. */
typedef enum foci_special {
    FOCI_SPECIAL_PAD,
    FOCI_SPECIAL_BOS,
    FOCI_SPECIAL_EOS,
    FOCI_SPECIAL_UNK,
    FOCI_SPECIAL_MASK,
    FOCI_SPECIAL_COUNT
} foci_special;

/* A description of a tokenizer. */
typedef struct foci_tokenizer_info {
    size_t      size;
    const char *kind;        /* "bytes", "chars", "words" or "bpe" */
    int64_t     tokens;      /* all ids are below */
    int64_t     merges;      /* of bpe */
    int64_t     added;       /* special tokens and others looked for in raw text */
    int64_t     longest;     /* bytes of the longest token */
    uint64_t    fingerprint; /* as foci_tokenizer_fingerprint() */
} foci_tokenizer_info;

/* Describe the tokenizer, into the fields that info->size covers. */
FOCI_API foci_status foci_tokenizer_get_info(const foci_tokenizer *tokenizer,
                                             foci_tokenizer_info  *info);

/* How many ids there are: all are from 0 to this, half open. */
FOCI_API int64_t foci_tokenizer_size(const foci_tokenizer *tokenizer);

/* A number that two tokenizers share only if they turn every text into the same ids (up
 * to accident, one in 2^64), however their files are laid out.  A model keeps that of its
 * own tokenizer and refuses another. */
FOCI_API uint64_t foci_tokenizer_fingerprint(const foci_tokenizer *tokenizer);

/* The id of a special token; -1: there is none.  In files of others it is recognised by
 * its name: for instance [PAD], <s>, </s>, [CLS], <|endoftext|>. */
FOCI_API int32_t foci_tokenizer_special(const foci_tokenizer *tokenizer,
                                        foci_special          which);

/* Whether an id is a special token: one that decoding leaves out. */
FOCI_API int foci_tokenizer_is_special(const foci_tokenizer *tokenizer, int32_t id);

/* The bytes that a token stands for: not terminated, not always UTF-8.  NULL: there is no
 * such id. */
FOCI_API const char *foci_tokenizer_token(const foci_tokenizer *tokenizer, int32_t id,
                                          int64_t *bytes);

/* The id of the token that stands for these bytes; -1: there is none. */
FOCI_API int32_t foci_tokenizer_id(const foci_tokenizer *tokenizer, const char *text,
                                   int64_t bytes);

/* A token as it is shown to people, in one line, as snprintf would: a blank is U+2423 (an open
 * box); control characters, other blanks, characters that are not seen and bytes that are no
 * UTF-8 are spelled as in C, "\n", "\x1b", "\u{202e}", "\xe2".  Without a tokenizer, or
 * where there is no such id, its number. */
FOCI_API int foci_token_display(const foci_tokenizer *tokenizer, int32_t id, char *text,
                                size_t cap);

/*
 * Text to ids
 */

/* The state of encoding: a cache of recent words and their ids.  An encoder serves one
 * thread at a time, and uses the threads of its context. */
typedef struct foci_encoder foci_encoder;

/* An encoder of the tokenizer, which has to outlive it. */
FOCI_API foci_status foci_encoder_create(const foci_tokenizer *tokenizer,
                                         foci_encoder        **encoder);
/* NULL is accepted. */
FOCI_API void foci_encoder_free(foci_encoder *encoder);

/* The most ids that these texts can become. */
FOCI_API int64_t foci_encoder_most(const foci_encoder *encoder,
                                   const foci_string *texts, int64_t n);

/* Read the names of special tokens in text as ordinary text. */
#define FOCI_ENCODE_PLAIN 1u

/* Encode n texts, each by itself.  The ids of text i are ids[offsets[i]] to
 * ids[offsets[i + 1]], half open; offsets has n + 1 entries.  `cap` is how many ids there
 * is room for, at least foci_encoder_most().  The ids do not depend on the number of
 * threads, nor on what was encoded before. */
FOCI_API foci_status foci_encode(foci_encoder *encoder, const foci_string *texts,
                                 int64_t n, unsigned flags, int32_t *ids, int64_t cap,
                                 int64_t *offsets);

/* Where in a text foci_token_words() stands.  At the start all but the size is 0. */
typedef struct foci_word_state {
    size_t  size;
    int64_t word;   /* of the last token */
    int     inside; /* how far into this word; private */
} foci_word_state;

/* The index of the word that each token belongs to, for word-level patterns: from 0,
 * never falling, and rising by at most 1 from token to token.  A word takes the white
 * space before it (blanks, tabs, line breaks), so that the index of a token does not
 * depend on what follows; white space at the very end is a word of its own.  A special
 * token is a word of its own, and so is every token of kind words.  State goes on from
 * call to call; FOCI_ERR_ARG if an id does not exist. */
FOCI_API foci_status foci_token_words(const foci_tokenizer *tokenizer,
                                      const int32_t *ids, int64_t n,
                                      foci_word_state *state, int32_t *words);

/*
 * Ids to text
 */

/* Where in a text foci_decode() stands.  At the start all but the size is 0. */
typedef struct foci_decoder {
    size_t        size;
    unsigned char held[8]; /* bytes of a character that is not complete */
    int           n_held;
    int           begun; /* something was decoded */
} foci_decoder;

/* Give special tokens by their names; otherwise they are left out. */
#define FOCI_DECODE_SPECIALS 1u
/* The text ends with these ids: hold nothing back. */
#define FOCI_DECODE_END 2u
/* Give U+FFFD for what is not UTF-8, so that the result always is. */
#define FOCI_DECODE_REPLACE 4u

/* The text of n ids, which goes on where the call before ended.  Bytes at the end that
 * begin a character and do not complete it are held back for the next call, so that each
 * piece can be shown at once; FOCI_DECODE_END gives them out.  Kind words puts a blank
 * between words.  *bytes is how long the text is; if that is more than `cap`, the
 * decoder is as before and `text` is void: call again with more room.  FOCI_ERR_ARG if an
 * id does not exist. */
FOCI_API foci_status foci_decode(const foci_tokenizer *tokenizer, foci_decoder *decoder,
                                 const int32_t *ids, int64_t n, unsigned flags,
                                 char *text, int64_t cap, int64_t *bytes);

/*
 * Scores of translations, as sacrebleu computes them
 */

/* The counts that BLEU is computed from, of one sentence or summed over many: matches and
 * n-grams of 1 to 4 words, and the lengths in words of translation and reference.  A
 * bootstrap needs those of each sentence. */
typedef struct foci_bleu_counts {
    int64_t match[4], total[4];
    int64_t length, reference;
} foci_bleu_counts;

/* Compare a translation with its reference, one line each, by the tokenisation called
 * 13a (mteval-v13a).  The counts are added to those in *counts. */
FOCI_API foci_status foci_bleu_add(foci_ctx *ctx, foci_string translation,
                                   foci_string reference, foci_bleu_counts *counts);

typedef struct foci_bleu {
    size_t size;
    double score;        /* 0 to 100 */
    double precision[4]; /* of n-grams in percent, smoothed where there is no match */
    double brevity;      /* the penalty, 0 to 1 */
    double ratio;        /* of lengths: translation by reference */
} foci_bleu;

/* Score these counts, into the fields that bleu->size covers; smoothing is "exp".  For a
 * single sentence set `sentence`: n-grams longer than the sentence then do not count. */
FOCI_API foci_status foci_bleu_score(const foci_bleu_counts *counts, int sentence,
                                     foci_bleu *bleu);

/* The settings of the score, as sacrebleu prints its signature. */
FOCI_API const char *foci_bleu_signature(void);

/* The counts that chrF is computed from: n-grams of 1 to 6 characters of the translation,
 * of the reference, and shared by both. */
typedef struct foci_chrf_counts {
    int64_t translation[6], reference[6], match[6];
} foci_chrf_counts;

/* Compare a translation with its reference; white space does not count.  The counts are
 * added to those in *counts. */
FOCI_API foci_status foci_chrf_add(foci_ctx *ctx, foci_string translation,
                                   foci_string reference, foci_chrf_counts *counts);

/* chrF2 of these counts, 0 to 100. */
FOCI_API double foci_chrf_score(const foci_chrf_counts *counts);

/* The settings of the score, as sacrebleu prints its signature. */
FOCI_API const char *foci_chrf_signature(void);

#ifdef __cplusplus
}
#endif
#endif
