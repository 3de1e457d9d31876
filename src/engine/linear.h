/* linear.h -- attention by sums over features, in chunks: what its files share.
 *
 * As in the exact engine 64 tokens are the lanes of a block, here called a chunk, and
 * everything lies turned over: features f[m][lane] of queries, g[m][lane] of keys.
 * Sums over the keys before a chunk are S [m][dv] = sum_j g_j v_j^T and z [m] = sum_j g_j.
 * All products are the one kernel c[i][n] += sum over t of a(i, t) b[t][n]:
 *
 *     a   [key][lane]  = g^T f              weights inside the chunk, causal: key <= lane
 *     ot  [dv][lane]   = S^T f + v^T a      numerators
 *     den [lane]       = z^T f + 1^T a      what a row is divided by
 *     S  += g v,   z += g 1
 *
 * and backward, with n = do/den and r = -(do.o)/den (0 where nothing is divided), and sums
 * R [m][dv] = sum_i f_i n_i^T, rho [m] = sum_i f_i r_i over the queries after the chunk:
 *
 *     da  [key][lane]  = v n^T + r          inside the chunk, masked as a is
 *     df  [m][lane]    = S n^T + z r + g da
 *     dg  [m][key]     = R v^T + rho + f da^T
 *     dv  [key][dv]    = g^T R + a n
 *     R  += f n,   rho += f r
 *
 * Where nothing is causal, S and z, R and rho are those of all chunks and a is not there.
 * With decay, a takes lam^(lane - key), S^T f lam^(lane + 1), g v lam^(n - 1 - key), and S
 * shrinks by lam^n; both ways round where the problem is not causal (the second way without
 * the diagonal).
 *
 * Logs.  Features of EXP and SOFTMAX are powers of e, which would overflow.  Sums are kept
 * in units e^c, one for each feature: c [m] is the largest log of a key so far, and S, z
 * shrink by e^(c - c') when it grows.  Keys are g = e^(l - c), queries f = e^(l + c - h), h
 * the largest exponent of the row, which cancels; saved is L = h + log den, so that backward
 * has f = e^(l + c - L) already divided.  R is in units e^-c: it shrinks as chunks go back to
 * smaller c.  Features of TRIG have one log for a key, not m.
 *
 * Steep chunks.  A causal row whose keys lie far below the c of its own chunk would
 * underflow, and a value that is not finite must reach only the rows that see it.  A
 * causal chunk in which a c grows by more than STEEP after the first key, or that has a row
 * that is not finite, is taken apart: into halves, and those again where they have to be,
 * down to one token, by the same code.
 *
 * Segments.  A sequence is cut into segments of equal numbers of chunks, by the problem and
 * never by the number of threads.  Where sums are needed before they can be used (backward,
 * no causality, few heads), every segment is summed first, all in parallel; then the sums
 * are added up along the sequence; then every segment is computed, in parallel again, from
 * the sums before it.  Backward keeps the sums before each chunk of its segment in scratch.
 * Nothing of order n m, and nothing of order n but one number a row, is ever stored.
 */
#ifndef FOCI_LINEAR_H
#define FOCI_LINEAR_H

#include "plan/moments.h"
#include "plan/plan.h"
#include "state/state.h"

enum { CHUNK = LANES };

/* Growth of a log inside a chunk that leaves sums of floats enough room. */
static const float STEEP = 40.0f;

/* Sums of weights of both signs below this are none. */
static const float LEAST_DIVISOR = 1e-30f;

/* Chunks start at multiples of 64 in position, of queries as of keys; where there are
 * more queries than keys some come before position 0 and have no keys. */
struct linear_seq {
    struct seq s;
    int64_t    pos0;         /* position of query 0: nk - nq */
    int64_t    first;        /* chunk 0 starts at position 64 first, 0 or less */
    int64_t    n_chunks;     /* 0: there are no queries, or no keys */
    int64_t    seg0, n_segs; /* its segments, counted over all sequences */
};

/* What makes logs of a row of EXP, or angles of TRIG, for one head (and, where statistics
 * come from q and k themselves, one sequence): l = rows x + bias + x.quad x, scaled for q
 * and k as they are given.  linear_random.c */
struct projection {
    float *rows; /* [m][ldq]; TRIG: [m/2] */
    float *bias; /* [m] */
    float *quad; /* [dq][ldq], symmetric; NULL: times half * x.x */
    float  half;
};

/* Powers of the decay of one head: linear.c */
struct decay {
    double lam;
    float  power[CHUNK + 1]; /* lam^t */
    float  slope[CHUNK + 1]; /* t lam^(t - 1) */
    float *near;             /* [64][64] lam^|lane - key|; causal: 0 where key > lane */
};

/* What maps have once for an execution. */
struct maps {
    /* Products of elements, by degree r: features at[r] to at[r + 1] - 1, each with r
     * numbers of elements, and its factor. */
    int      at[FOCI_MAX_ORDER + 2];
    int32_t *elements[FOCI_MAX_ORDER + 1];
    float   *factors; /* [m] */

    /* Cosines and sines of 64 positions from 0 on: of RELU that is turned, for every
     * sequence or, where they are the same, for all; of each pair of features. */
    double *steps; /* [sequences][64][2] */
    bool    step_shared;
    double *speeds;  /* [m/2] angle of one position */
    float  *offsets; /* [m/2][2][64] */
};

/* One execution of one stage. */
struct linear {
    const foci_plan      *plan;
    const foci_problem   *p;
    const struct stage   *stage;
    const foci_linear    *l;
    const struct kernels *k;
    const foci_io        *io;
    bool                  bf16; /* products on words */
    bool                  causal;
    bool                  divides;   /* rows are divided by sums of weights */
    bool                  turns;     /* features are turned by positions: rope */
    bool                  whole;     /* one kernel does a whole chunk */
    bool                  logs;      /* features are powers of e, each with its own c */
    bool                  lane_logs; /* TRIG: one log for each row */
    double                scale;

    /* Widths as given and of rows of floats; features, and rows of tiles of features:
     * those from m to m_pad are 0. */
    int dq, dv, dv_pad, ldq, ldv, m, m_pad;
    int group;  /* keys, and lanes, at which weights of a causal chunk are cut */
    int m_room; /* rows that buffers of features have: a multiple of 64 */

    int64_t heads, head0, kv_heads, kv0, per_kv; /* of this stage */
    int64_t max_seqs, n_seqs;
    int64_t max_segs, n_segs; /* of all sequences */
    int64_t segment;          /* chunks of a segment */

    struct linear_seq *seqs;
    int32_t           *seq_of; /* [n_segs] */
    struct maps        maps;
    struct projection *proj;      /* [heads][proj_seqs][2]: queries, keys */
    int64_t            proj_seqs; /* 1, or max_seqs: each with its own */
    struct decay      *decay;     /* [heads] */

    int    threads;
    char  *scratch; /* [threads] pieces */
    size_t scratch_bytes;
};

/* Sums over keys, or over queries. */
struct sums_of {
    float *rows;  /* [m_pad][ldv] */
    float *total; /* [m_pad] */
    float *top;   /* [m_pad] the c; NULL: features have no logs */
};

/* A chunk, or a piece of one: its tokens are lanes from 0 on. */
struct chunk {
    const struct linear_seq *seq;
    int64_t                  s;     /* number of the sequence */
    int64_t                  h, kv; /* head, and key/value head, within the stage */
    int64_t                  pos;   /* of lane 0 */
    int                      n;     /* lanes that have a key */
    int r0, r1; /* lanes that have a query, number pos - pos0 + lane; equal: none */
};

/* Chunks begin to end - 1 of a sequence. */
struct segment {
    int64_t s, begin, end;
};

/* Rows of a chunk and their features. */
struct features {
    float *x;    /* [64][ldq] rows as floats, zero in lanes without one */
    float *cols; /* [ldq][64] turned over; scratch of the maps */
    float *f;    /* [m_pad][64] */
    float *lane; /* [64] logs of rows, where lane_logs */
};

/* linear_maps.c: features of rows x of queries or keys.  Where `logs` they are logs, -inf
 * in lanes without a row; else 0 there.  With lane_logs they are yet to be multiplied by
 * e^lane; lanes without a row have -inf there. */
void linear_map(const struct linear *x, const struct chunk *c, bool keys,
                struct features *t);
/* From the gradient df[m_pad][64] of features, which is spoilt, to dx[64][ldq], of which
 * columns from dq on may be anything.  f are features as the engine has scaled them
 * (e^(l - c), and so on), df the gradient of these; where `logs`, times them: that of
 * logs.  x is read again, cols is spoilt. */
void linear_map_back(const struct linear *x, const struct chunk *c, bool keys,
                     const struct features *t, float *df, float *dx);
/* Features turned by their positions, for numerators under `rope`: to out, which may be f;
 * the gradient the way back with `back`.  Pairs share their c where `logs`. */
void linear_turn(const struct linear *x, const struct chunk *c, const float *f,
                 float *out, bool back);

/* Take room for all the maps need in `a`, and where that has memory, fill it: when
 * sequences are known. */
void linear_maps_take(struct linear *x, struct arena *a);

/* 0 in lanes that have a row, else -inf. */
void linear_set_logs(const struct chunk *c, bool keys, float *lane);

/* linear_products.c: POWERS and PRODUCTS. */
void linear_products_take(struct linear *x, struct arena *a);
void linear_products_map(const struct linear *x, const struct chunk *c, bool keys,
                         struct features *t);
/* Of one row, to f[m]. */
void linear_products_row(const struct linear *x, bool keys, const float *row, float *f);
void linear_products_back(const struct linear *x, bool keys, const struct features *t,
                          const float *df, float *dx);

/* linear_random.c: EXP and TRIG.  Statistics that the parameters do not have are found in
 * q and k. */
void linear_random_take(struct linear *x, struct arena *a);
void linear_random_map(const struct linear *x, const struct chunk *c, bool keys,
                       struct features *t);
void linear_random_back(const struct linear *x, const struct chunk *c, bool keys,
                        const struct features *t, float *df, float *dx);

/* linear_moments.c: moments of q and k of one head, and the exponents that they give. */
struct linear_stats {
    int64_t          ld;         /* of sums */
    int64_t          n[2];       /* queries and keys so far */
    float           *tile;       /* rows as they are loaded, */
    double          *rows;       /* and a few of them */
    double          *squares[2]; /* [dq][ld] sums of products, from the diagonal on */
    double          *sums[2];    /* [ld] */
    struct moments   m;
    double          *room;
    struct exponents e;
};
void linear_stats_take(const struct linear *x, struct arena *a, struct linear_stats *r);
void linear_stats_clear(const struct linear *x, struct linear_stats *r);
void linear_stats_add(const struct linear *x, const foci_io *io, const struct seq *s,
                      int64_t h, struct linear_stats *r);
void linear_stats_solve(const struct linear *x, struct linear_stats *r);

/* Lanes that have a row, from *begin to *end. */
static inline void linear_lanes(const struct chunk *c, bool keys, int *begin, int *end)
{
    *begin = keys ? 0 : c->r0;
    *end = keys ? c->n : c->r1;
}

/* linear.c */
void linear_geometry(struct linear *x, const foci_plan *plan, const struct stage *s);
/* Sequences, decays and projections of an execution; on a null arena only sizes. */
void linear_open(struct linear *x, const foci_io *io, struct arena *a);
/* Of these, decays and projections: what depends on parameters. */
void linear_params_take(struct linear *x, struct arena *a);
/* Chunk number t of sequence s, of head h; segment number i of all. */
struct chunk   linear_chunk(const struct linear *x, int64_t s, int64_t h, int64_t t);
struct segment linear_segment(const struct linear *x, int64_t i);
/* Where what is saved of lane 0 stands: [heads][batch][len_q]. */
int64_t linear_saved_at(const struct linear *x, const struct chunk *c);
int     linear_threads(const struct linear *x, int64_t jobs, double flops);
/* The decay of head h, of 1 where nothing fades; 1 + lam + ... of n terms. */
double linear_decay(const struct linear *x, int64_t h);
double linear_series(double lam, int64_t n);
/* The sum of the decays of all keys that lane `lane` sees. */
double linear_fade(const struct linear *x, const struct chunk *c, int lane);
/* The keys that it sees. */
int64_t linear_visible(const struct linear *x, const struct chunk *c, int lane);

/* linear_rows.c: rows of tensors.  Tensors as q is (q, o, d_o), and as k is (k, v), to
 * tile[64][ld] of floats, zero in lanes without a row; and the way back. */
void linear_load_q(const struct linear *x, const struct chunk *c, const void *base,
                   const foci_layout *l, int d, int ld, float *tile);
void linear_load_k(const struct linear *x, const struct chunk *c, const void *base,
                   const foci_layout *l, int d, int ld, float *tile);
/* Ask for a part of a chunk's rows of q, k and v, which will be read soon: asked for at
 * once they would wait for one another. */
enum { LINEAR_PARTS = 8 };
void linear_ask(const struct linear *x, const struct chunk *c, int part);
/* Column i of cols[d][64], times factor[i], as row i; tile[64][ld] is scratch. */
void linear_store_q(const struct linear *x, const struct chunk *c, void *base,
                    const foci_layout *l, const float *cols, int d, int ld,
                    const float *factor, float *tile);

/* linear_chunk.c: keys and queries of a chunk as products take them, and sums.
 *
 * Operands are floats as they are, or words.  Words that are summed over features are
 * packed in blocks of 64 features, each as if there were no other. */

/* Rows [rows][ld] as first operand (column, row) of products that sum over rows. */
struct across {
    const float *f;
    int64_t      ld;
    int          rows, width; /* of words: columns packed */
    uint32_t    *words;       /* [blocks of 64 rows][32 width] */
};

/* Rows of 64 lanes [rows][64] as second operand of products that sum over rows. */
struct along {
    const float *f;
    int          rows;
    uint32_t    *words; /* [blocks][32][64] */
};

/* Rows of 64 lanes as first operand (row, lane) of products that sum over lanes. */
struct beside {
    const float *f;
    int          rows;
    uint32_t    *words; /* [rows][32] */
};

/* With room for words, where the execution has them, of so many rows. */
struct across across_take(const struct linear *x, const float *f, int64_t ld, int rows,
                          int width, struct arena *a);
struct along  along_take(const struct linear *x, const float *f, int rows,
                         struct arena *a);
struct beside beside_take(const struct linear *x, const float *f, int rows,
                          struct arena *a);
/* Make the words; `n` rows (lanes of `beside`) are there, the rest counts as 0. */
void across_pack(const struct linear *x, const struct across *s, int n);
void along_pack(const struct linear *x, const struct along *s);
void beside_pack(const struct linear *x, const struct beside *s);

/* c[m][64 - lane] (+)= columns i0 to i0 + m of `a` by lanes from `lane` to `end` of b,
 * summed over all rows. */
void linear_meet(const struct linear *x, float *c, const struct across *a, int i0,
                 int m, const struct along *b, int lane, int end, int add);

/* ot += values by weights w[key][64], n keys from j on, for lanes from `lane` to `end`. */
void linear_weigh(const struct linear *x, float *ot, const struct across *values,
                  const void *w, int j, int n, int lane, int end);

struct keys {
    struct features t;
    float          *turned;    /* [m_room][64] for numerators; without rope t.f */
    float          *v, *faded; /* [64][ldv]; times lam^(n - 1 - key), or v itself */
    float          *sum;       /* [m_room] of t.f over the keys, faded */
    float          *top;       /* [m_room] largest logs, so far */
    int             n_pad;     /* keys as products count them */
    struct across   plain, by; /* t.f (under rope only) and `turned`, by keys */
    struct beside   to;        /* turned, by features */
    struct across   values;    /* v, by columns */
    uint32_t       *v_pairs;   /* [32][ldv] faded v, as second operand */
};

struct queries {
    struct features t;
    float          *turned;
    struct along    plain, by;
    float          *top; /* [64] h, where `logs` */
};

struct keys    linear_keys_take(const struct linear *x, struct arena *a);
struct queries linear_queries_take(const struct linear *x, struct arena *a);
/* Room for n sums; number i of them. */
struct sums_of linear_sums_take(const struct linear *x, int64_t n, struct arena *a);
struct sums_of linear_sums_at(const struct linear *x, struct sums_of all, int64_t i);
void           linear_sums_clear(const struct linear *x, struct sums_of s);
void linear_sums_copy(const struct linear *x, struct sums_of to, struct sums_of from);
/* to = by to + from, in units that hold both. */
void linear_sums_add(const struct linear *x, struct sums_of to, float by,
                     struct sums_of from);

/* Load keys and values of a chunk, and move sums to units that hold them.  false: with
 * `apart`, the chunk is steep or not finite, and sums are untouched. */
bool linear_keys(const struct linear *x, const struct chunk *c, bool apart,
                 struct sums_of s, struct keys *k);
/* s = lam^n s + sum over keys of lam^(n - 1 - key) g v. */
void linear_absorb(const struct linear *x, const struct chunk *c, const struct keys *k,
                   struct sums_of s);
/* out[64][ldv] = rows of v times fade[64]. */
void linear_fade_values(const struct linear *x, const float *fade, const float *v,
                        float *out);
/* Pack the keys for the products of queries with them. */
void linear_show(const struct linear *x, const struct chunk *c, const struct keys *k);
/* Load queries, in units of s.  Where every feature is divided by its own sum, k are the
 * keys of a causal chunk, else NULL. */
void linear_queries(const struct linear *x, const struct chunk *c, struct sums_of s,
                    const struct keys *k, struct queries *q);
/* Lanes b to e of a chunk as one of its own. */
struct chunk linear_piece(const struct chunk *c, int b, int e);

/* linear_whole.c: whether one kernel does whole chunks, and one of them: its rows by sums s
 * and with both by its keys, which are added to sums then.  Rows of `next` are asked for
 * where that is not NULL.  false: the chunk is short or not finite; nothing was done. */
enum { LINEAR_ROWS = 1, LINEAR_KEYS = 2 };
bool linear_takes_whole(const struct linear *x);
bool linear_whole(const struct linear *x, const struct chunk *c, unsigned parts,
                  struct sums_of s, const struct chunk *next, float *saved,
                  void *scratch);

/* linear_forward.c, for steps of many tokens: memory of one thread, sums before a causal
 * chunk, and what its keys add to them. */
struct scan {
    struct sums_of before, more;
    struct room   *room;
};
struct scan linear_scan_take(const struct linear *x, struct arena *a);
/* Move `before` to units that hold the keys of the chunk, and write its rows, if it has
 * any.  false: nothing was done, and the chunk is to be taken apart. */
bool linear_scan(const struct linear *x, const struct chunk *c, struct scan *s);
/* After that: more = the sums of the chunk's keys alone. */
void linear_scan_absorb(const struct linear *x, const struct chunk *c, struct scan *s);

/* linear_forward.c, linear_backward.c, linear_advance.c: functions of the engine; sizes by
 * a dry run. */
size_t linear_forward_bytes(const foci_plan *plan, const struct stage *s);
void   linear_forward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                      float *saved);
size_t linear_backward_bytes(const foci_plan *plan, const struct stage *s);
void   linear_backward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                       const float *saved, const foci_grads *g);
foci_status linear_advance(const foci_plan *plan, const struct stage *s,
                           const foci_io *io, float *params);
foci_status linear_calibrate(const foci_plan *plan, const struct stage *s,
                             const foci_io *io, float *params);
foci_status linear_check(const foci_plan *plan, const struct stage *s,
                         const foci_io *io, char *text, size_t cap);

#endif
