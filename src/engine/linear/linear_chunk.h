/* linear_chunk.h -- the parts of one chunk: rows, features, operands of products,
 * sums. */
#ifndef FOCI_LINEAR_CHUNK_H
#define FOCI_LINEAR_CHUNK_H

#include "engine/linear/features/linear_features.h"

/*
 * Chunks (linear_chunk.c)
 */

/* Chunk number t of sequence s, for head h. */
struct feature_chunk linear_chunk(const struct linear *x, int64_t s, int64_t h,
                                  int64_t t);
/* Lanes b to e of a chunk, as a chunk of its own. */
struct feature_chunk linear_subchunk(const struct feature_chunk *c, int b, int e);
/* The row of lane 0 in what forward saves: [heads][batch][len_q]. */
int64_t linear_saved_at(const struct linear *x, const struct feature_chunk *c);

/* Keys that lane `lane` sees, and the sum of their decays (linear_decay.c). */
int64_t linear_visible(const struct linear *x, const struct feature_chunk *c, int lane);
double linear_decay_sum(const struct linear *x, const struct feature_chunk *c, int lane);

/*
 * Rows of the caller's tensors (linear_rows.c)
 */

/* Rows of a tensor laid out as q (q, o, d_o) or as k (k, v), to tile[64][ld] of floats,
 * zero in lanes without a row. */
void linear_load_q(const struct linear *x, const struct feature_chunk *c,
                   const void *base, const foci_layout *l, int d, int ld, float *tile);
void linear_load_k(const struct linear *x, const struct feature_chunk *c,
                   const void *base, const foci_layout *l, int d, int ld, float *tile);
/* Row i of o is column i of cols[d][64] times factor[i]; tile[64][ld] is scratch. */
void linear_store_q(const struct linear *x, const struct feature_chunk *c, void *base,
                    const foci_layout *l, const float *cols, int d, int ld,
                    const float *factor, float *tile);

/* Prefetch one part of a chunk's rows of q, k, v and o.  Parts are spread over the
 * products of the chunk before, since all at once would exceed the loads a core has in
 * flight. */
enum { PREFETCH_PARTS = 8 };
void linear_prefetch(const struct linear *x, const struct feature_chunk *c, int part);

/*
 * Operands (linear_pack.c)
 *
 * Products are C += A B.  Operands are f32 as they are, or bf16 pairs: two consecutive
 * values of the summed index in one 32-bit word, the lower index in the low half.  What is
 * summed over features is packed in blocks of 64 features, each a product of its own.
 */

/* A = M^T of rows M [rows][ld]: element (column, row). */
struct linear_operand_at {
    const float *f;
    int64_t      ld;
    int          rows, width; /* columns that are packed */
    uint32_t    *pairs;       /* [blocks of 64 rows][32 width]; NULL: f32 */
};

/* B = M of rows of 64 lanes M [rows][64]. */
struct linear_operand_b {
    const float *f;
    int          rows;
    uint32_t    *pairs; /* [blocks][32][64] */
};

/* A = M of rows of 64 lanes M [rows][64], to be summed over lanes. */
struct linear_operand_a {
    const float *f;
    int          rows;
    uint32_t    *pairs; /* [rows][32] */
};

/* Carve the pairs, where the execution has bf16 operands. */
struct linear_operand_at linear_operand_at_carve(const struct linear *x, const float *f,
                                                 int64_t ld, int rows, int width,
                                                 struct arena *a);
struct linear_operand_b  linear_operand_b_carve(const struct linear *x, const float *f,
                                                int rows, struct arena *a);
struct linear_operand_a  linear_operand_a_carve(const struct linear *x, const float *f,
                                                int rows, struct arena *a);
/* Round and pack; of operand_at the first n rows, the others count as 0. */
void linear_operand_at_pack(const struct linear *x, const struct linear_operand_at *s,
                            int n);
void linear_operand_b_pack(const struct linear *x, const struct linear_operand_b *s);
void linear_operand_a_pack(const struct linear *x, const struct linear_operand_a *s);

/* c[m][64 - lane] (+)= rows i0 to i0 + m of `a` by lanes `lane` to `end` of `b`. */
void linear_gemm_features(const struct linear *x, float *c,
                          const struct linear_operand_at *a, int i0, int m,
                          const struct linear_operand_b *b, int lane, int end, int add);

/* ot += v^T w for the n keys from j on, weights w[key][64], lanes `lane` to `end`. */
void linear_gemm_values(const struct linear *x, float *ot,
                        const struct linear_operand_at *values, const void *w, int j,
                        int n, int lane, int end);

/*
 * Sums over keys, or over queries (linear_sums.c)
 */

struct linear_sums {
    float *rows;    /* [m_pad][ldv] S, or R */
    float *total;   /* [m_pad] z, or rho */
    float *max_log; /* [m_pad] c; NULL: features are no exponentials */
};

/* n sums; number i of them. */
struct linear_sums linear_sums_carve(const struct linear *x, int64_t n, struct arena *a);
struct linear_sums linear_sums_at(const struct linear *x, struct linear_sums all,
                                  int64_t i);
void               linear_sums_clear(const struct linear *x, struct linear_sums s);
void               linear_sums_copy(const struct linear *x, struct linear_sums to,
                                    struct linear_sums from);
/* to = by to + from, in the units of the larger max_log. */
void linear_sums_add(const struct linear *x, struct linear_sums to, float by,
                     struct linear_sums from);
/* To the units e^max_log. */
void linear_sums_rescale(const struct linear *x, struct linear_sums s,
                         const float *max_log);
/* e^(from - to), and 0 where `from` is -inf: nothing was summed yet. */
float linear_log_ratio(float from, float to);

/*
 * Keys and queries of a chunk (linear_load.c)
 */

struct linear_keys {
    struct features t;
    float          *rotated;     /* [m_full][64] of numerators; without rope t.f */
    float          *v, *decayed; /* [64][ldv]; times lam^(n - 1 - key), or v itself */
    float          *sum;         /* [m_full] decayed t.f summed over the keys */
    float          *max_log;     /* [m_full] largest logs so far */
    int             n_pad;       /* keys, padded to what products take at once */
    struct linear_operand_at den, num; /* t.f (under rope only) and `rotated` */
    struct linear_operand_a  for_sums; /* `rotated`, to be multiplied by values */
    struct linear_operand_at values;   /* v */
    uint32_t                *v_pairs;  /* [32][ldv] `decayed` as operand B */
};

struct linear_queries {
    struct features         t;
    float                  *rotated;
    struct linear_operand_b den, num;
    float                  *max_log; /* [64] h, where features are exponentials */
};

struct linear_keys    linear_keys_carve(const struct linear *x, struct arena *a);
struct linear_queries linear_queries_carve(const struct linear *x, struct arena *a);

/* Load the keys and values of a chunk, make their features, and rescale the sums to
 * units that hold them.  false: with `may_split`, the chunk is steep or not finite, and
 * sums are unchanged. */
bool linear_load_keys(const struct linear *x, const struct feature_chunk *c,
                      bool may_split, struct linear_sums s, struct linear_keys *k);
/* s = lam^n s + sum over keys of lam^(n - 1 - key) g v. */
void linear_sums_update(const struct linear *x, const struct feature_chunk *c,
                        const struct linear_keys *k, struct linear_sums s);
/* out[64][ldv] = rows of v times decay[64]. */
void linear_decay_values(const struct linear *x, const float *decay, const float *v,
                         float *out);
/* Pack the keys and values for the products with queries. */
void linear_pack_keys(const struct linear *x, const struct feature_chunk *c,
                      const struct linear_keys *k);
/* Load queries and make their features in the units of s.  With FOCI_LINEAR_NORM_FEATURE k are
 * the keys of a causal chunk, else NULL. */
void linear_load_queries(const struct linear *x, const struct feature_chunk *c,
                         struct linear_sums s, const struct linear_keys *k,
                         struct linear_queries *q);

/*
 * A whole chunk by one kernel (linear_fused.c)
 */

/* What the kernel does: outputs of the queries from sums s, the update of s by the
 * keys; both together are a causal chunk. */
enum { LINEAR_OUTPUTS = 1, LINEAR_UPDATE = 2 };
bool linear_can_fuse(const struct linear *x);
/* Prefetches the rows of `next` unless that is NULL.  false: the chunk is short or not
 * finite, and nothing was done. */
bool linear_fused_chunk(const struct linear *x, const struct feature_chunk *c,
                        unsigned parts, struct linear_sums s,
                        const struct feature_chunk *next, float *saved, void *scratch);

#endif
