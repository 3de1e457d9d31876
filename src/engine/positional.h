/* positional.h -- rows that are sums of others by their places: what its files share.
 *
 * Nothing is multiplied with anything but a few numbers a row, so that reading v and
 * writing o is all there is to do.  Cubic patterns are running means, scanned from the far
 * end and never as differences of sums:
 *
 *     M_m = M_(m-1) + a_m (v_(m-1) - M_(m-1)),   a_m = 4m/(m + 1)^2
 *
 * in doubles, for at a million rows the steps are smaller than what floats round away.
 * Rows go through tiles of 64 floats; right and start are left and end from the other side.
 */
#ifndef FOCI_POSITIONAL_H
#define FOCI_POSITIONAL_H

#include "engine/rest.h"
#include "plan/plan.h"
#include "state/state.h"

enum { ROWS = 64 };  /* of a tile */
enum { CUBES = 14 }; /* factors of a row of causal start: kernel cube_rows */

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
    int64_t               max_seqs, n_seqs;
    bool                  causal;
    struct seq           *seqs;
    foci_positional      *what; /* [heads] */

    /* Backward, where several heads share values: [kv_heads][batch len_k][ldv]. */
    float *dv_rows;

    char  *scratch; /* [threads] pieces */
    size_t scratch_bytes;
};

/* A head of a sequence. */
struct place {
    const struct seq      *s;
    const foci_positional *what;
    int64_t                h, kv; /* within the stage */
    bool                   first; /* of the heads that share the values */
};

/* Of one thread. */
struct positional_room {
    float  *tile, *more; /* [ROWS][ldv] */
    double *state;       /* [4][ldv] */
    double *part, *base; /* [ldv] */
    double *factor;      /* [ROWS][CUBES] */
};

/* positional.c */
void positional_geometry(struct positional *x, const foci_plan *plan,
                         const struct stage *s);
void positional_room(const struct positional *x, struct arena *a,
                     struct positional_room *r);
/* n rows from i on: of v or d_o as floats, zero in columns from dv to ldv; to o or dv.  The
 * gradients of values that several heads share are added up. */
void positional_load_v(const struct positional *x, const struct place *at, int64_t i,
                       int n, float *tile);
void positional_load_g(const struct positional *x, const struct place *at, int64_t i,
                       int n, float *tile);
void positional_store_o(const struct positional *x, const struct place *at, int64_t i,
                        int n, const float *tile);
void positional_store_dv(const struct positional *x, const struct place *at, int64_t i,
                         int n, const float *tile);

/* positional_scan.c: the seven patterns, of tokens. */
void scan_forward(const struct positional *x, const struct place *at,
                  struct positional_room *r);
void scan_backward(const struct positional *x, const struct place *at,
                   struct positional_room *r);

/* The factors of kernel cube_rows for n rows from t on. */
void positional_cubes(double *f, int64_t t, int n);

/* positional_words.c: the same, of words. */
void words_forward(const struct positional *x, const struct place *at,
                   struct positional_room *r);
void words_backward(const struct positional *x, const struct place *at,
                    struct positional_room *r);

#endif
