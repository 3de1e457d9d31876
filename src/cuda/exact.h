/* exact.h -- one launch of exact attention on a device, described in plain data.
 *
 *     s_ij = f_i (q_i . k_j) + bias_ij                 f_i = scale of the head and the row
 *     x_ij = cap tanh(s_ij / cap), or s_ij             hidden pairs: -inf
 *     o_i  = sum over j of a_ij keep_ij v_j            a: softmax, l2norm or relu2 of x_i
 *
 * The host fills a struct cuda_exact, at planning what does not change, at execution the
 * pointers, and calls an entry point below.  Launching allocates nothing and never waits
 * for the device, so that all of it can be captured in a graph.  All pointers are of the
 * device but for `stream` and the struct itself.  Row maps (rope, unit rows, projections)
 * are passes of their own: kernels see rows as they meet.
 *
 * Exponents are in base 2: where weights are exponentials and logits are not capped,
 * log2(e) is part of scale, slope and rel; given biases are multiplied by `unit`.
 *
 * Positions.  Query i of a sequence of nq queries and nk keys stands at position
 * pos = i + nk - nq, key j at j.  Causal: j <= pos.  Tiles of the support are by
 * positions, 64 x 64; blocks of queries start at multiples of their size in positions
 * where there is a table (`tiles.row0`), so that a first block may lead with rows that
 * have no query, and at query 0 where there is none.
 *
 * Rows that a sequence does not have (i >= nq, or outside all documents) are written as
 * zeros by cuda_exact_clear(), before; kernels write rows of sequences only.
 */
#ifndef FOCI_CUDA_EXACT_H
#define FOCI_CUDA_EXACT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_TILE = 64 }; /* queries and keys of a tile, as FOCI_TILE */

/* As foci_dtype, foci_weigh. */
enum { CUDA_F32, CUDA_BF16, CUDA_F16 };
enum { CUDA_SOFTMAX, CUDA_L2NORM, CUDA_RELU2 };

/* Rows of a tensor, the first head of the stage first.  Element c of row r of head h of
 * batch entry b is at[b seq + r row + h head + c]; distances in elements. */
struct cuda_in {
    const void *at;
    int64_t     seq, row, head;
};

struct cuda_out {
    void   *at; /* NULL: not wanted */
    int64_t seq, row, head;
};

/* A sequence of an execution, made on the device from lengths or documents by
 * cuda_exact_seqs().  The q_block and k_block of sequence s count the blocks of the
 * sequences before it, by the block sizes of CUDA_BLOCKS; entry n_seqs has the totals, so
 * that a block finds its sequence by bisection. */
enum { CUDA_N_BLOCKS = 3 };
#define CUDA_BLOCKS                                                                    \
    {                                                                                  \
        64, 128, 192                                                                   \
    }

struct cuda_seq {
    int32_t b;      /* batch entry */
    int32_t nq, nk; /* its rows */
    int32_t pad;
    int64_t q0, k0; /* its first rows in the tensors */
    int32_t q_block[CUDA_N_BLOCKS], k_block[CUDA_N_BLOCKS];
};

/* Key tiles of query tiles, and the other way round, in runs as the plan has them
 * (struct tile_run).  mask -1: all pairs are visible; else the run is one tile, and that
 * entry of the dictionary says which pairs are.  Causality is not in it. */
struct cuda_run {
    int32_t begin, end, mask;
};

struct cuda_tiles {
    const int64_t *row0, *col0; /* [n_rows + 1], [n_cols + 1]; NULL: all pairs */
    const struct cuda_run *rows, *cols;
    const uint64_t (*by_query)[CUDA_TILE]; /* bit j of word i: query i sees key j */
    const uint64_t (*by_key)[CUDA_TILE];   /* bit i of word j: the same */
    int32_t n_rows, n_cols; /* tiles of positions; rows beyond see nothing */
};

/* From q.k to logits. */
struct cuda_score {
    float        scale;      /* of all heads, with log2(e) as said above */
    const float *head_scale; /* [heads] in place of it; NULL: none */
    const float *row_scale;  /* [len_k + 1] more, by the keys a row sees; NULL: none */
    float        unit;       /* log2(e), or 1 for relu2 */
    float        cap;        /* 0: none.  x = cap tanh(s / cap), then times unit */
    const float *slope;      /* [heads] bias -slope |pos - j|; NULL: none, or in rel */
    const float *rel;        /* [heads][n_rel] bias of distance pos - j at
                              * rel0 + pos - j; NULL: none */
    int64_t      n_rel, rel0;
    const float *sink;  /* [heads] a logit, natural, that is only summed; NULL: none */
    const float *share; /* relu2: [len_k + 1] 1/n by the keys a row sees */
};

/* What is given for pairs: element (b, h, i, j) at at[b seq + h head + i row + j], i and j
 * counted in the tensors (q0 and k0 of a document included). */
struct cuda_pairs {
    const void *at; /* NULL: nothing */
    int64_t     seq, head, row;
};

/* Keys and values in pages of 64 tokens: row j of sequence s is row j % 64 of page
 * table[s max_pages + j / 64], which starts `page` elements after the one before in k.at
 * and v.at; their seq is then unused. */
struct cuda_pages {
    const int32_t *table; /* NULL: not in pages */
    int64_t        max_pages, k_page, v_page;
};

struct cuda_exact {
    void *stream; /* a cudaStream_t */
    int   sm;     /* 80, 90, ...: of the device */
    int   n_sm;   /* multiprocessors */

    int dtype, weigh, causal;

    int64_t batch, len_q, len_k; /* as planned; lengths below 2^31 */
    int     heads, kv_heads;     /* of this stage; heads / kv_heads share a head of k */
    int     head0;               /* number of its first head, for dropout alone */
    int     d, dv;               /* up to 256 */

    /* NULL: sequence s is batch entry s, len_q and len_k long.  `packed`: they are
     * documents of batch entry 0, with nq = nk, len_q rows in all at most. */
    const struct cuda_seq *seqs;
    int                    n_seqs, packed;

    struct cuda_in    q, k, v;
    struct cuda_out   o; /* backward reads it */
    struct cuda_tiles tiles;
    struct cuda_score score;
    struct cuda_pages pages;

    struct cuda_pairs mask; /* uint8_t, 0: hidden */
    struct cuda_pairs bias; /* float, natural logits */

    /* A weight is dropped where the hash of (seed, b, head, i, j) is below drop_bound;
     * the others are multiplied by `kept`.  0: none are. */
    uint64_t drop_seed, drop_bound;
    float    kept;

    /* Of rows: [h][b][len_q], row q0 + i.  visible: keys a row sees, by
     * cuda_exact_visible(), wanted by row_scale, share and gradients of parameters.
     * norm: log2 of the divisor, +inf where a row sees nothing; for relu2 1/n, or 0
     * there.  Forward writes it if not NULL, backward reads it. */
    int32_t *visible;
    float   *norm;
    float   *lse; /* [b][heads of the plan][len_q], natural, as foci_io; NULL: none */
    int64_t  lse_seq, lse_head;

    /* Backward.  Gradients of q and k may be floats where a row map follows. */
    struct cuda_in  d_o;
    struct cuda_out dq, dk, dv_out;
    int             dq_f32, dk_f32;
    int64_t         memory; /* leading keys whose dk and dv are zero */
    float          *delta;  /* [h][b][len_q] sum of a da, by cuda_exact_delta() */
    float *row_ds; /* [h][b][len_q] sum over j of ds_ij (q_i . k_j), the gradient of
                             * f_i; NULL: not wanted */

    void  *work; /* cuda_exact_work_bytes() of the kernel that takes it */
    size_t work_bytes;
};

/* Which kernels take it: the first family whose `fits` says yes.  `what` is one of the
 * enum; families answer NULL from `names` where they have nothing for it. */
enum { CUDA_FORWARD, CUDA_BACKWARD, CUDA_DECODE, CUDA_N_PASSES };

struct cuda_family {
    const char *name; /* "hopper", "mma" */
    int (*fits)(const struct cuda_exact *x, int what);
    size_t (*work_bytes)(const struct cuda_exact *x, int what);
    /* 0, or a cudaError_t. */
    int (*forward)(const struct cuda_exact *x);
    int (*backward)(const struct cuda_exact *x); /* delta has been made */
    int (*decode)(const struct cuda_exact *x);   /* few queries, many keys */
};

/* In order of preference; families that are not compiled in have fits == NULL. */
extern const struct cuda_family cuda_family_hopper, cuda_family_mma;

const struct cuda_family *cuda_exact_family(const struct cuda_exact *x, int what);
size_t                    cuda_exact_work_bytes(const struct cuda_exact *x, int what);
int                       cuda_exact_forward(const struct cuda_exact *x);
int                       cuda_exact_backward(const struct cuda_exact *x);

/* Launches that each family has taken in this process, by pass: tests tell what they saw. */
struct cuda_launches {
    long hopper[CUDA_N_PASSES], mma[CUDA_N_PASSES];
};

void cuda_exact_launches(struct cuda_launches *launches);

#ifdef __cplusplus
}
#endif
#endif
