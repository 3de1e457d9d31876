/* positional.h -- rows that are sums of others by their places: what its files share.
 *
 * Nothing is multiplied with anything but a few numbers a row, so that reading v and
 * writing o is all there is to do.  Cubic patterns are running means, scanned from the far
 * end and never as differences of sums:
 *
 *     M_m = M_(m-1) + a_m (v_(m-1) - M_(m-1)),   a_m = 4m/(m + 1)^2
 *
 * in doubles, for at a million rows the steps are smaller than what floats round away.
 * Rows of adjacent heads that do the same are one wide row; right and start are left and
 * end from the other side.
 */
#ifndef FOCI_POSITIONAL_H
#define FOCI_POSITIONAL_H

#include "engine/rest.h"
#include "plan/plan.h"
#include "state/state.h"

enum { ROWS = 64 };                         /* of a tile, at most */
enum { TILE_FLOATS = 8192, COLUMNS = 512 }; /* of a tile of several heads, at most */
enum { MAX_TAPS = 4096 };

/* One execution of one stage. */
struct positional {
    const foci_plan      *plan;
    const foci_problem   *p;
    const struct stage   *stage;
    const struct kernels *k;
    const foci_io        *io;
    const foci_grads     *g; /* backward */
    int                   dv, ldv;
    size_t                el; /* bytes of an element */
    int64_t               heads, head0, kv_heads, kv0, per_kv;
    int64_t               abreast; /* heads of a job */
    int64_t               max_seqs, n_seqs;
    bool                  causal;
    bool                  streams; /* results are more than caches hold */
    struct seq           *seqs;
    foci_positional       kind; /* of the first head */
    int                   ldx;  /* of rows of floats of x */

    /* Backward of taps: sums of the gradients of weights by sequence; where x makes them,
     * gradients of logits [batch len_q][taps of all heads], W and its gradient in rows. */
    double *sums;
    float  *logits, *net_rows, *net_sums;

    /* Backward, where several heads share values: [kv_heads][batch len_k][ldv]. */
    float *dv_rows;

    char  *scratch; /* [threads] pieces */
    size_t scratch_bytes;
};

/* A head of a sequence; or several that do the same and whose rows are adjacent, as if
 * they were one. */
struct place {
    const struct seq *s;
    foci_positional   what;
    int64_t           h, kv;     /* within the stage */
    bool              first;     /* of the heads that share the values */
    int               width, ld; /* columns of it, and in tiles */
    int               rows;      /* of a tile */
    int64_t           column;    /* the first */
};

/* Of one thread. */
struct positional_room {
    float        *tile, *more; /* [rows][ld] */
    double       *state;       /* [4][ld] */
    double       *part, *base; /* [ldv] */
    double       *factor;      /* [ROWS] of means */
    struct cubes *cubes;       /* of kernel cube_rows, for ROWS rows */

    /* Taps: windows of rows of v and of its gradient, products, weights, what makes them
     * of x, rows of x. */
    float *window, *slide, *dots, *taps, *net, *xs;
    float *lanes; /* sums of products of constant taps */
};

/* positional.c */
foci_positional positional_what(const struct positional *x, int64_t h);
void            positional_geometry(struct positional *x, const foci_plan *plan,
                                    const struct stage *s);
void            positional_room(const struct positional *x, struct arena *a,
                                struct positional_room *r);
void            positional_room_of(const struct positional *x, int thread,
                                   struct positional_room *r);
/* The head n further on. */
struct place positional_beside(const struct positional *x, const struct place *at,
                               int64_t n);
/* Row i. */
const char *positional_v_at(const struct positional *x, const struct place *at,
                            int64_t i);
const char *positional_g_at(const struct positional *x, const struct place *at,
                            int64_t i);
char *positional_o_at(const struct positional *x, const struct place *at, int64_t i);
char *positional_dv_at(const struct positional *x, const struct place *at, int64_t i);

/* n rows from i on: of v or d_o as floats, zero in columns from width to ld; to o or dv.  The
 * gradients of values that several heads share are added up. */
void positional_load_v(const struct positional *x, const struct place *at, int64_t i,
                       int n, float *tile);
void positional_load_g(const struct positional *x, const struct place *at, int64_t i,
                       int n, float *tile);
void positional_store_o(const struct positional *x, const struct place *at, int64_t i,
                        int n, const float *tile);
void positional_store_dv(const struct positional *x, const struct place *at, int64_t i,
                         int n, const float *tile);

/* The same with rows of floats anywhere: where they are, and how far apart.  Those of v
 * and d_o are left where they lie if they are floats, and else loaded into the tile, and
 * those `ahead` further on, which come next, are asked for. */
struct rows {
    const float *at;
    int64_t      ld;
};

struct rows positional_v(const struct positional *x, const struct place *at, int64_t i,
                         int n, int ahead, float *tile);
struct rows positional_g(const struct positional *x, const struct place *at, int64_t i,
                         int n, int ahead, float *tile);
void positional_put_o(const struct positional *x, const struct place *at, int64_t i,
                      int n, struct rows from);
/* n rows of v from `from` on to o as they are. */
void positional_copy_o(const struct positional *x, const struct place *at, int64_t from,
                       int64_t to, int n);
/* The same of d_o to dv; false, and nothing, where those are added up. */
bool positional_copy_dv(const struct positional *x, const struct place *at,
                        int64_t from, int64_t to, int n);
void positional_put_dv(const struct positional *x, const struct place *at, int64_t i,
                       int n, struct rows from);

/* positional_scan.c: the seven patterns, of tokens. */
void scan_forward(const struct positional *x, const struct place *at,
                  struct positional_room *r);
void scan_backward(const struct positional *x, const struct place *at,
                   struct positional_room *r);

/* The factors of kernel cube_rows for n rows from t on. */
void positional_cubes(struct cubes *f, int64_t t, int n);

/* positional_taps.c: convolutions.  Room, gradients of W and x after those of v, tokens one
 * by one (o NULL: it is only kept). */
bool    positional_is_taps(const foci_positional *p);
int64_t positional_taps_of(const struct positional *x); /* of a head */
void    taps_take(struct positional *x, bool backward, struct arena *a);
void taps_room(const struct positional *x, struct arena *a, struct positional_room *r);
void taps_forward(const struct positional *x, const struct place *at, int64_t heads,
                  struct positional_room *r);
void taps_backward(const struct positional *x, const struct place *at, int64_t heads,
                   struct positional_room *r);
void taps_finish(struct positional *x);
size_t taps_state_bytes(const struct positional *x);
void taps_token(const struct positional *x, const float *params, int64_t h, float *kept,
                const float *v, const float *xs, float *o, struct positional_room *r);

/* positional_words.c: the same, of words. */
void words_forward(const struct positional *x, const struct place *at,
                   struct positional_room *r);
void words_backward(const struct positional *x, const struct place *at,
                    struct positional_room *r);

#endif
