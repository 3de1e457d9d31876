/* passes.h -- what an execution does on the device before and after the kernels of exact
 * attention: sequences, factors, biases by distance, rows that are mapped, gradients of
 * parameters.  Functions launch on x->stream, or the stream given, and return 0 or a
 * cudaError_t. */
#ifndef FOCI_CUDA_PASSES_H
#define FOCI_CUDA_PASSES_H

#include "cuda/exact.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lengths of batch entries, or offsets of documents; what is out of range is clipped. */
struct cuda_lengths {
    const int32_t *len_q, *len_k; /* [batch]; NULL: all */
    const int32_t *docs;          /* [n_docs + 1]; NULL: none */
};

/* Fill seqs[x->n_seqs + 1] from lengths and from batch, len_q and len_k of x. */
int cuda_pass_seqs(const struct cuda_exact *x, const struct cuda_lengths *lengths,
                   struct cuda_seq *seqs);

/* Zero the rows of a tensor that belong to no sequence of x; `keys`: rows are keys. */
int cuda_pass_clear(const struct cuda_exact *x, const struct cuda_out *rows, int heads,
                    int width_bytes, int element_bytes, int keys);
/* The same of lse, which is -inf there, and of what rows of x have: `norm` if not NULL. */
int cuda_pass_clear_lse(const struct cuda_exact *x);

/* Zero bytes, in the order of the stream. */
int cuda_pass_zero(void *stream, void *at, size_t bytes);

/* Numbers of heads: params[at[i] + h] multiply what is common to all heads. */
struct cuda_factors {
    const float *params;
    int64_t      at[4];
    int          n;
};

/* out[heads] = by times the factors of each head. */
int cuda_pass_heads(void *stream, const struct cuda_factors *f, double by, int heads,
                    float *out);

/* Biases by distance, of tables with entry[t][rel0 + distance], and of a slope. */
struct cuda_tables {
    const float   *params;
    const float   *slope; /* [heads] in units of rel; NULL: none */
    const int32_t *entry[2];
    int64_t        at[2], size[2]; /* table t of head h starts at at[t] + h size[t] */
    int            n;
    float          unit; /* of rel */
};

/* rel[heads][n_rel]. */
int cuda_pass_rel(void *stream, const struct cuda_tables *t, int heads, int64_t n_rel,
                  int64_t rel0, float *rel);

/* x->visible: the keys that each row sees. */
int cuda_pass_visible(const struct cuda_exact *x);

/* What becomes of rows of q and k before they meet, in this order. */
struct cuda_map {
    int    standard;  /* mean 0 and variance 1 */
    int    unit;      /* length 1 */
    double rope_base; /* 0: none */
    int    rope_half;
};

/* From rows of x (queries, or keys) as they are given to rows of the same type packed
 * for the kernels; elements from d to ld of a row become zeros. */
int cuda_pass_map(const struct cuda_exact *x, const struct cuda_map *m, int keys,
                  const struct cuda_in *from, const struct cuda_out *to, int ld);

/* From gradients of mapped rows, floats, to gradients of the rows `of`. */
int cuda_pass_map_back(const struct cuda_exact *x, const struct cuda_map *m, int keys,
                       const struct cuda_in *of, const struct cuda_in *d_mapped,
                       const struct cuda_out *to);

/* x->delta, from o and d_o. */
int cuda_pass_delta(const struct cuda_exact *x);

/* dbias += the gradient of x->bias, laid out as it is. */
int cuda_pass_bias_back(const struct cuda_exact *x, float *dbias);

/* dparams += the gradients of the tables.  sums[heads][n_bands][64] is scratch, of the
 * distances from 64 first_band on, which must be all there are. */
int cuda_pass_tables_back(const struct cuda_exact *x, const struct cuda_tables *t,
                          int64_t rel0, int first_band, int n_bands, float *sums,
                          float *dparams);

/* dparams[at + h] += the gradient of the sink, from norm and delta of x. */
int cuda_pass_sink_back(const struct cuda_exact *x, float *dparams, int64_t at);

/* The same of the factors, from row_ds; `by` as in cuda_pass_heads(), natural. */
int cuda_pass_factors_back(const struct cuda_exact *x, const struct cuda_factors *f,
                           double by, float *dparams);

#ifdef __cplusplus
}
#endif
#endif
