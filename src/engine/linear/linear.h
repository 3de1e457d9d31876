/* linear.h -- the linear engine: attention as sums over features of keys, in chunks.
 *
 *     w_ij = f(q_i).g(k_j) decay^|i - j|,   o_i = sum_j w_ij v_j / den_i
 *
 * Katharopoulos et al., "Transformers are RNNs" (2020); in chunks as in Sun et al.,
 * "Retentive Network" (2023), section 2.4.  Time O(n m dv), memory O(m dv) for m
 * features, and one number a row for the backward pass.
 *
 * 64 tokens are the lanes of a chunk, and everything in a chunk is stored transposed,
 * as in the exact engine: features f[m][lane] of queries, g[m][lane] of keys.  The sums
 * over the keys before a chunk are S [m][dv] = sum_j g_j v_j^T and z [m] = sum_j g_j.
 * A chunk adds what the sums give (inter-chunk) to what its own pairs give
 * (intra-chunk):
 *
 *     a   [key][lane]  = g^T f              weights inside the chunk, causal: key <= lane
 *     o^T [dv][lane]   = S^T f + v^T a      numerators
 *     den [lane]       = z^T f + 1^T a      denominators
 *     S  += g v,   z += g 1
 *
 * and backward, with n = do/den and r = -(do.o)/den (0 where rows are not divided), and
 * the sums R [m][dv] = sum_i f_i n_i^T, rho [m] = sum_i f_i r_i over the queries after
 * the chunk:
 *
 *     da  [key][lane]  = v n^T + r          inside the chunk, masked as a is
 *     df  [m][lane]    = S n^T + z r + g da
 *     dg  [m][key]     = R v^T + rho + f da^T
 *     dv  [key][dv]    = g^T R + a n
 *     R  += f n,   rho += f r
 *
 * Without causality S, z, R and rho are sums over the whole sequence and there is no a.
 * With decay, a takes lam^(lane - key), S^T f lam^(lane + 1), g v lam^(n - 1 - key),
 * and S shrinks by lam^n.  With decay but without causality the sequence is scanned in
 * both directions, and the second one leaves out the diagonal.
 *
 * Logs.  Features of EXP and SOFTMAX are exponentials, which would overflow, so each
 * keeps a running maximum c [m] of the logs of its keys.  S and z are in units of e^c
 * and are multiplied by e^(c - c') when c grows to c'.  Keys are g = e^(l - c), queries
 * f = e^(l + c - h) with h the largest exponent of the row, which cancels.  Saved for
 * the backward pass is L = h + log den, so that f = e^(l + c - L) is already divided.
 * R is in units of e^-c and shrinks as the backward scan returns to smaller c.  TRIG
 * has one log for each row instead of one for each feature.
 *
 * Steep chunks.  A causal row whose keys lie far below the maximum of its own chunk
 * would underflow, and a value that is not finite must reach only the rows that see
 * it.  A causal chunk in which some c grows by more than STEEP after the first key, or
 * that has a row that is not finite, is therefore split into halves, recursively down
 * to single tokens.
 *
 * Segments.  A sequence is cut into segments of equal numbers of chunks, by the problem
 * and never by the number of threads.  Where sums are needed before they can be
 * complete (the backward pass, no causality, few heads) all segments are summed in
 * parallel, then the sums are accumulated along the sequence, then all segments are
 * computed in parallel from the sums before them.  The backward pass keeps the sums
 * before each chunk of its segment in scratch.
 */
#ifndef FOCI_LINEAR_H
#define FOCI_LINEAR_H

#include "engine/engine.h"
#include "state/state.h"

enum { CHUNK = LANES };

/* How far a log may grow inside a chunk before sums in f32 could underflow. */
static const float STEEP = 40.0f;

/* With features of both signs, a divisor smaller than this counts as 0. */
static const float LEAST_DIVISOR = 1e-30f;

/* A sequence.  Chunks start at multiples of 64 in position, for queries as for keys.
 * With more queries than keys some chunks come before position 0 and have no keys. */
struct linear_seq {
    struct seq s;
    int64_t    pos0;         /* position of query 0: nk - nq */
    int64_t    first;        /* chunk 0 starts at position 64 first, 0 or less */
    int64_t    n_chunks;     /* 0: there are no queries, or no keys */
    int64_t    seg0, n_segs; /* its segments, numbered over all sequences */
};

/* Chunks begin to end - 1 of sequence s. */
struct segment {
    int64_t s, begin, end;
};

/* How logs of EXP, or angles of TRIG, follow from a row x of one head, and of one
 * sequence where the statistics come from q and k: l = rows x + bias + x.quad x.  The
 * scale of q and k is included.  Made by linear_random.c. */
struct linear_projection {
    float *rows; /* [m][ldq]; TRIG: [m/2] */
    float *bias; /* [m] */
    float *quad; /* [dq][ldq], symmetric; NULL: half * x.x instead */
    float  half;
};

/* Powers of the decay of one head. */
struct decay {
    double lam;
    float  power[CHUNK + 1]; /* lam^t */
    float  slope[CHUNK + 1]; /* t lam^(t - 1) */
    float *mask;             /* [64][64] lam^|lane - key|; causal: 0 where key > lane */
};

/* Tables of the feature maps, made once for an execution. */
struct linear_maps {
    /* PRODUCTS and POWERS, by degree r: features at[r] to at[r + 1] - 1, each with the
     * numbers of its r elements, and a factor. */
    int      at[FOCI_MAX_ORDER + 2];
    int32_t *elements[FOCI_MAX_ORDER + 1];
    float   *factors; /* [m] */

    /* Cosine and sine of cosFormer's angle at positions 0 to 63, for each sequence, or
     * once where the length is given. */
    double *steps; /* [sequences][64][2] */
    bool    step_shared;

    /* RoPE on features: the angle of one position, and the cosines and sines of 64. */
    double *speeds;  /* [m/2] */
    float  *offsets; /* [m/2][2][64] */
};

/* One execution of one stage. */
struct linear {
    const foci_plan      *plan;
    struct execution      exec; /* zero in dry runs */
    const foci_problem   *p;
    const struct stage   *stage;
    const foci_linear    *l;
    const struct kernels *k;
    const foci_io        *io;
    bool                  bf16; /* operands of products are bf16 pairs */
    bool                  causal;
    bool                  divides; /* rows are divided by sums of weights */
    bool                  rope;    /* features of numerators are rotated by position */
    bool                  fused;   /* one kernel computes a whole chunk */
    bool                  logs;    /* features are exponentials, each with its own c */
    bool                  lane_logs; /* TRIG: one log for each row */
    double                scale;
    int64_t               el; /* bytes of an element of the tensors */

    /* Widths as given, and leading dimensions of rows of floats.  m features are padded
     * with zeros to m_pad for products, and buffers have m_full rows, a multiple of
     * 64. */
    int dq, dv, dv_pad, ldq, ldv, m, m_pad, m_full;
    int group; /* keys, and lanes, of one cell of the intra-chunk weights */

    int64_t heads, head0, kv_heads, kv0, per_kv; /* of this stage */
    int64_t max_seqs, n_seqs;
    int64_t max_segs, n_segs; /* of all sequences */
    int64_t segment;          /* chunks of a segment */

    struct linear_seq        *seqs;
    int32_t                  *seq_of; /* [n_segs] */
    struct linear_maps        maps;
    struct linear_projection *proj;      /* [heads][proj_seqs][2]: queries, keys */
    int64_t                   proj_seqs; /* 1, or max_seqs: each with its own */
    struct decay             *decay;     /* [heads] */

    int    threads;
    char  *scratch; /* [threads] of scratch_bytes */
    size_t scratch_bytes;
};

/* linear.c */
void linear_geometry(struct linear *x, const foci_plan *plan, const struct stage *s);
/* Carve and fill sequences, maps and what depends on parameters; a null arena
 * counts. */
void linear_open(struct linear *x, const foci_io *io, struct arena *a);
/* The part of these that depends on parameters: decays and projections. */
void           linear_params_carve(struct linear *x, struct arena *a);
struct segment linear_segment(const struct linear *x, int64_t i);
int            linear_threads(const struct linear *x, int64_t jobs, double flops);

/* linear_decay.c */
void linear_decay_carve(struct linear *x, struct arena *a);
/* The decay lam of head h, and lam^0 + ... + lam^(n - 1). */
double linear_lambda(const struct linear *x, int64_t h);
double linear_geometric_sum(double lam, int64_t n);

/* linear_forward.c, linear_backward.c, linear_advance.c, linear_describe.c: the
 * functions of the engine. */
size_t      linear_forward_bytes(const foci_plan *plan, const struct stage *s);
void        linear_forward(const struct execution *exec, const struct stage *s,
                           const foci_io *io, float *saved);
size_t      linear_backward_bytes(const foci_plan *plan, const struct stage *s);
void        linear_backward(const struct execution *exec, const struct stage *s,
                            const foci_io *io, const float *saved, const foci_grads *g);
foci_status linear_advance(const foci_plan *plan, const struct stage *s,
                           const foci_io *io, float *params);
foci_status linear_calibrate(const foci_plan *plan, const struct stage *s,
                             const foci_io *io, float *params);
foci_status linear_check(const foci_plan *plan, const struct stage *s,
                         const foci_io *io, char *text, size_t cap);
void        linear_cost(const foci_plan *plan, const struct stage *s, foci_cost *c);
int         linear_describe(const foci_plan *plan, const struct stage *s, char *text,
                            size_t cap);

#endif
