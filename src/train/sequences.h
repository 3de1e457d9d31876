/* sequences.h -- sequences that a model writes, token by token. */
#ifndef FOCI_SEQUENCES_H
#define FOCI_SEQUENCES_H

#include "train/pass.h"

/* What products need of weights, in memory of its own; NULL: nothing. */
struct packed {
    void  *data;
    size_t bytes;
};

struct foci_sequences {
    foci_model    *model;
    int64_t        cap, n;  /* sequences that there is room for, and that there are */
    int64_t        longest; /* tokens that one may have */
    int64_t        n_sources, source_len;
    foci_pool    **pools;  /* [blocks] */
    foci_state  ***states; /* [blocks][cap]; of a stack that decodes */
    foci_state   **spare;  /* [cap] */
    struct packed *made;   /* [blocks] what steps need of parameters alone */
    char         **taps;  /* [blocks][cap][conv - 1][width] rows before a convolution */
    int64_t       *lens;  /* [cap] tokens so far */
    int64_t       *of;    /* [cap] source of each */
    foci_layer   **cross; /* [blocks] for the queries of n_sources sources */
    char         **kv;    /* [blocks] keys and values of the sources */
    size_t        *kv_bytes;    /* [blocks] */
    int32_t       *source_lens; /* [source_count] */
    size_t         source_count;
    uint16_t      *params_bf16; /* of a model of bf16: what products read; NULL */
    struct packed *packed; /* [2 blocks + 1] W1 and W2 of each, then of the output */
    struct packed *cross_made; /* [blocks] of cross-attention, as `made` */
    char          *memory;     /* of a step */
    size_t         memory_bytes;
};

/* sequences_weights.c: rounded and packed once, when the sequences are made. */
foci_status sequences_weights(foci_sequences *s);
foci_status sequences_cross_weights(foci_sequences *s);
void        sequences_weights_free(foci_sequences *s);
/* Parameters from an offset on, rounded; NULL: they are not. */
const void *sequences_rounded(const foci_sequences *s, int64_t offset);
/* A product of any rows with weights of the feed-forward layer of a block, W1 or W2; and
 * logits of any rows. */
foci_product_io sequences_ffn(const foci_sequences *s, int64_t block, bool second);
foci_logits_io  sequences_logits(const foci_sequences *s);

#endif
