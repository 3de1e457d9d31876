/* train.h -- declarations that the files of training tokenizers share. */
#ifndef FOCI_TRAIN_TEXT_H
#define FOCI_TRAIN_TEXT_H

#include "text/text.h"

/* A kind as text, "bpe:8000". */
struct kind {
    enum text_kind kind;
    int64_t        size; /* tokens in all; 0: no bound */
};

enum { MOST_TOKENS = 10000000, N_BYTE_SPECIALS = 4 };

foci_status kind_parse(foci_ctx *ctx, const char *text, struct kind *kind);

/* Count characters, words, or pieces that byte pair encoding does not merge across, of all
 * that readers give, into an empty dictionary (count.c).  Texts are UTF-8 but for bpe, and
 * without zero bytes, which a file could not hold. */
foci_status count_texts(foci_ctx *ctx, enum text_kind kind, const foci_reader *readers,
                        int n, struct dict *counts);

/* Pairs that were merged, in order; a pair may occur twice.  Merge i makes token made[i],
 * which is new or not. */
struct merge_list {
    foci_ctx *ctx;
    uint64_t *pairs; /* [n] pair_key() */
    int64_t   n, cap;
};

/* Learn merges of counted words until there are `size` tokens (train_bpe.c).  Entries of
 * `tokens` are the tokens in the order of their ids, special ones first. */
foci_status train_merges(foci_ctx *ctx, const struct dict *counts, int64_t size,
                         int64_t min_count, struct dict *tokens,
                         struct merge_list *merges);

/* Write a tokenizer.json: entries of `tokens` are the tokens in the order of their ids,
 * the first n_special are special (save.c). */
foci_status json_write(struct text_buffer *out, enum text_kind kind,
                       const struct dict *tokens, int n_special,
                       const struct merge_list *merges);

#endif
