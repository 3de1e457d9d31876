/* sequences.h -- sequences that a model writes, token by token. */
#ifndef FOCI_SEQUENCES_H
#define FOCI_SEQUENCES_H

#include "train/pass.h"

struct foci_sequences {
    foci_model   *model;
    int64_t       cap, n; /* sequences that there is room for, and that there are */
    int64_t       n_sources, source_len;
    foci_pool   **pools;  /* [blocks] */
    foci_state ***states; /* [blocks][cap]; of a stack that decodes */
    foci_state  **spare;  /* [cap] */
    void        **made; /* [blocks] what steps need of parameters alone; may be NULL */
    size_t       *made_bytes;
    char        **taps;  /* [blocks][cap][conv - 1][width] rows before a convolution */
    int64_t      *lens;  /* [cap] tokens so far */
    int64_t      *of;    /* [cap] source of each */
    foci_layer  **cross; /* [blocks] for the queries of n_sources sources */
    char        **kv;    /* [blocks] keys and values of the sources */
    size_t       *kv_bytes;    /* [blocks] */
    int32_t      *source_lens; /* [source_count] */
    size_t        source_count;
    uint16_t     *params_bf16; /* of a model of bf16: what products read; NULL */
    char         *memory;      /* of a step */
    size_t        memory_bytes;
};

#endif
