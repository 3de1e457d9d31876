/* positional.h -- the positional engine: rows that are sums of others by their
 * positions.
 *
 * Cost is reading v and writing o: a row takes a few multiplications by numbers that do
 * not depend on v.  Patterns with cubic weights (foci_pattern) are running means,
 *
 *     M_m = M_(m-1) + a_m (v_(m-1) - M_(m-1)),   a_m = 4m/(m + 1)^2
 *
 * scanned from the end that weighs least and never as differences of sums, which would
 * cancel.  Means are doubles: after a million rows a step is smaller than f32 rounds.
 * `right` and `start` are `left` and `end` scanned from the other side.  Rows of
 * adjacent heads with the same pattern are processed as one wide row.
 */
#ifndef FOCI_POSITIONAL_H
#define FOCI_POSITIONAL_H

#include "engine/engine.h"
#include "engine/shared/padding.h"
#include "state/state.h"

enum { ROWS = 64 };                         /* of a tile, at most */
enum { TILE_FLOATS = 8192, COLUMNS = 512 }; /* of a tile of merged heads, at most */
enum { MAX_TAPS = 4096 };

/* One execution of one stage. */
struct positional {
    const foci_plan      *plan;
    struct execution      exec; /* zero in dry runs */
    const foci_problem   *p;
    const struct stage   *stage;
    const struct kernels *k;
    const foci_io        *io;
    const foci_grads     *g; /* backward */
    int                   dv, ldv, ldx;
    size_t                el; /* bytes of an element */
    int64_t               heads, head0, kv_heads, kv0, per_kv;
    int64_t               job_heads; /* heads of a job */
    int64_t               max_seqs, n_seqs;
    bool                  causal;
    bool            non_temporal; /* results exceed the caches: stores bypass them */
    struct seq     *seqs;
    foci_positional kind; /* of the first head */

    /* Backward of taps: gradients of constant weights [max_seqs][taps of all heads]; of
     * taps made of x, gradients of logits [batch len_q][taps of all heads], and W and
     * its gradient padded [taps of all heads][ldx]. */
    double *sums;
    float  *logits, *w_rows, *dw_rows;

    /* Backward, where several heads share values: [kv_heads][batch len_k][ldv]. */
    float *dv_rows;

    char  *scratch; /* [threads] of scratch_bytes */
    size_t scratch_bytes;
};

/* A head of one sequence, or several heads with one pattern whose rows are adjacent,
 * taken as one. */
struct positional_head {
    const struct seq *s;
    foci_positional   kind;
    int64_t           h, kv;     /* within the stage; of several the first */
    bool              first;     /* of the heads that share the values */
    int               width, ld; /* columns, and the leading dimension of tiles */
    int               rows;      /* of a tile */
    int64_t           column;    /* the first */
};

/* Scratch of one thread. */
struct positional_scratch {
    float        *tile, *tile2;  /* [rows][ld] */
    double       *mean;          /* [4][ld] */
    double       *word, *offset; /* [ldv] of words: see positional_words.h */
    double       *factor;        /* [ROWS] of running means */
    struct cubes *cubes;         /* of kernel cube_rows, for ROWS rows */

    /* Taps: windows of rows of v and of its gradient [ROWS + width - 1][ldv], products
     * [ROWS][width], weights, W transposed [dim_x][width], rows of x [ROWS][ldx]. */
    float *window, *dv_window, *dots, *taps, *w_cols, *x_rows;
    float *lanes; /* [taps][TAPS_LANES] partial sums of products of constant taps */
};

/* positional.c */
foci_positional positional_kind(const struct positional *x, int64_t h);
void            positional_geometry(struct positional *x, const foci_plan *plan,
                                    const struct stage *s);
void            positional_scratch_carve(const struct positional *x, struct arena *a,
                                         struct positional_scratch *r);
void            positional_thread_scratch(const struct positional *x, int thread,
                                          struct positional_scratch *r);
struct positional_head positional_head_of(const struct positional *x, int64_t seq,
                                          int64_t h);

/* positional_describe.c */
foci_status positional_check(const foci_plan *plan, const struct stage *s,
                             const foci_io *io, char *text, size_t cap);
void positional_cost(const foci_plan *plan, const struct stage *s, foci_cost *cost);
int  positional_describe(const foci_plan *plan, const struct stage *s, char *text,
                         size_t cap);

/*
 * Rows (positional_rows.c)
 */

/* Row i of a tensor. */
const char *positional_v_at(const struct positional      *x,
                            const struct positional_head *at, int64_t i);
const char *positional_do_at(const struct positional      *x,
                             const struct positional_head *at, int64_t i);
char *positional_o_at(const struct positional *x, const struct positional_head *at,
                      int64_t i);
char *positional_dv_at(const struct positional *x, const struct positional_head *at,
                       int64_t i);

/* n rows of v or d_o from i on as floats, zero in columns from width to ld. */
void positional_load_v(const struct positional *x, const struct positional_head *at,
                       int64_t i, int n, float *tile);
void positional_load_do(const struct positional *x, const struct positional_head *at,
                        int64_t i, int n, float *tile);
/* A tile to n rows of o or dv from i on.  dv of values that several heads share is
 * summed over them. */
void positional_store_o(const struct positional *x, const struct positional_head *at,
                        int64_t i, int n, const float *tile);
void positional_store_dv(const struct positional *x, const struct positional_head *at,
                         int64_t i, int n, const float *tile);

/* Rows of floats anywhere. */
struct positional_rows {
    const float *at;
    int64_t      ld;
};

/* n rows of v or d_o from i on: in place where they are floats without padding, else
 * loaded into the tile, while the rows `ahead` rows further on are prefetched. */
struct positional_rows positional_rows_v(const struct positional      *x,
                                         const struct positional_head *at, int64_t i,
                                         int n, int ahead, float *tile);
struct positional_rows positional_rows_do(const struct positional      *x,
                                          const struct positional_head *at, int64_t i,
                                          int n, int ahead, float *tile);
void                   positional_store_rows_o(const struct positional      *x,
                                               const struct positional_head *at, int64_t i, int n,
                                               struct positional_rows from);
void                   positional_store_rows_dv(const struct positional      *x,
                                                const struct positional_head *at, int64_t i, int n,
                                                struct positional_rows from);
/* Copy n rows of v from `from` on to o, or of d_o to dv.  The latter does nothing and
 * is false where dv is summed over heads. */
void positional_copy_o(const struct positional *x, const struct positional_head *at,
                       int64_t from, int64_t to, int n);
bool positional_copy_dv(const struct positional *x, const struct positional_head *at,
                        int64_t from, int64_t to, int n);
/* A row of dv_rows. */
float *positional_shared_dv(const struct positional      *x,
                            const struct positional_head *at, int64_t i);

/*
 * Patterns
 */

/* positional_scan.c: the seven patterns of tokens. */
void positional_scan_forward(const struct positional      *x,
                             const struct positional_head *at,
                             struct positional_scratch    *r);
void positional_scan_backward(const struct positional      *x,
                              const struct positional_head *at,
                              struct positional_scratch    *r);

/* positional_means.c: factors of running means.  a_m, and of kernel cube_rows for n
 * rows from row t on. */
double positional_mean_factor(int64_t m);
void   positional_cubes(struct cubes *f, int64_t t, int n);

/* positional_words.c, positional_words_back.c: the seven patterns of words. */
void positional_words_forward(const struct positional      *x,
                              const struct positional_head *at,
                              struct positional_scratch    *r);
void positional_words_backward(const struct positional      *x,
                               const struct positional_head *at,
                               struct positional_scratch    *r);

/* positional_taps.c: convolutions, of so many heads from `at` on. */
bool    positional_is_taps(const foci_positional *p);
int64_t positional_tap_count(const struct positional *x); /* of a head */
void    positional_taps_carve(struct positional *x, bool backward, struct arena *a);
void    positional_taps_scratch_carve(const struct positional *x, struct arena *a,
                                      struct positional_scratch *r);
void    positional_taps_forward(const struct positional      *x,
                                const struct positional_head *at, int64_t heads,
                                struct positional_scratch *r);
/* positional_taps_back.c */
void positional_taps_backward(const struct positional      *x,
                              const struct positional_head *at, int64_t heads,
                              struct positional_scratch *r);
/* positional_taps_params.c: gradients of W and x, after those of all values. */
void positional_taps_params_backward(struct positional *x);

#endif
