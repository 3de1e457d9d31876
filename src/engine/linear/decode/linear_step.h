/* linear_step.h -- decoding with the linear engine, token by token: what its files
 * share.
 *
 * A state keeps S [m][dv] and, where rows are divided by them, z [m].  They are
 * doubles, so that a million tokens can be added one at a time without loss.  Where
 * features are exponentials both are in units of e^c, with c [m], or one c for all
 * features.  Every head has such sums of its own, or every key/value head where
 * features do not depend on the query head.
 *
 * A token is a row of features g of its key, and f of each query that reads the sums:
 *
 *     S = retain S + g v,   z = retain z + g,   o = f S / f z
 *
 * with retain = lam, or e^(c - c') where c grows to c'.  A step has mostly one token,
 * so features lie along a row here, not across 64 lanes.  Steps of many tokens
 * (prefill) use the chunks of the forward pass.
 */
#ifndef FOCI_LINEAR_STEP_H
#define FOCI_LINEAR_STEP_H

#include "engine/linear/linear_forward.h"

/* From so many new tokens on, chunks are faster. */
enum { PREFILL_TOKENS = 16 };

/* Where the sums of one head lie in the memory of a state, after S [m][lds]. */
struct linear_sums_layout {
    bool    shared; /* between the query heads of a key/value head */
    int64_t sets;   /* sums of a sequence */
    int     lds, m_full;
    bool    has_total;
    size_t  total, max_log, all; /* offsets and size in bytes, multiples of 64 */
};

/* The sums of one head of one sequence. */
struct linear_step_sums {
    double *rows, *total;
    float  *max_log; /* [m_full], or one for all; NULL: no logs */
};

/* What all states of a pool share. */
struct linear_pool {
    struct linear_maps maps;
    struct linear_seq  seq; /* stands for every sequence */
    double *rotation; /* [m/2][2] cosine and sine of RoPE's angle of one position */
    char   *tables;
    size_t  bytes;
};

/* Sums of one sequence, and the heads that read them. */
struct linear_step_item {
    int64_t                 q; /* number of the sequence */
    const struct step_seq  *seq;
    struct linear_step_sums sums;
    int64_t                 h, heads, kv;
    double                  lam;
};

/* Scratch of one thread. */
struct linear_step_scratch {
    float *rows; /* [8][ldx] rows of a key and of a query, and projections of them */
    float *dots; /* [8][64] */

    float *key, *query;                 /* [m_full] features */
    float *rotated_key, *rotated_query; /* [m_full]; without RoPE those above */
    float *max_log, *shrink;            /* [m_full] */

    float  *angles; /* [m_full] cosines and sines of this token, for kernel `rotate` */
    double *rotation; /* [m/2][2] the same in double */

    double *retain;  /* [m_full] */
    float  *v, *out; /* [lds] */
    double *o;       /* [lds] */

    struct linear_prefill prefill;
};

/* One step of one stage. */
struct linear_step {
    struct linear             x;
    struct linear_sums_layout layout;
    int64_t                   ldx; /* of rows: widths rounded up to 64 */

    const struct state_step *step;
    int                      g;

    /* The tensors of the step, as chunks of the forward pass see them. */
    bool         prefills; /* some sequence has many tokens */
    foci_io      io;
    foci_problem p;

    /* Tables of this step. */
    float  *bias;      /* [heads][m_full] w.Aw; NULL: 0 */
    double *rotations; /* [sequences][m] of the first new token */

    char  *scratch; /* [threads] of scratch_bytes */
    size_t scratch_bytes;
};

/* linear_step_state.c: geometry, and the sums of head number i (of a key/value head
 * where they are shared) in the memory of a state. */
struct linear_step      linear_step_geometry(const foci_plan *plan, int g);
struct linear_step_sums linear_step_sums_at(const struct linear_step *s, void *state,
                                            int64_t i);
foci_status             linear_step_pool_make(foci_pool *pool, int g);
void                    linear_step_pool_free(foci_pool *pool, int g);
foci_status             linear_step_state_make(foci_state *state, int g);
foci_status linear_step_state_copy(const foci_state *from, foci_state *to, int g);
void        linear_step_state_free(foci_state *state, int g);
size_t      linear_step_state_bytes(const foci_state *state, int g);
void linear_step_state_save(const foci_state *state, int g, struct state_writer *w);
foci_status linear_step_state_restore(foci_state *state, int g, struct state_reader *r);
foci_status linear_step_state_truncate(foci_state *state, int g, int64_t len,
                                       bool really);

/* linear_step_token.c: one token of a sequence into its sums, and with `attend` its
 * rows. */
void linear_step_token(const struct linear_step *s, const struct linear_step_item *i,
                       int64_t t, bool attend, const struct linear_step_scratch *r);
/* RoPE's cosines and sines of new token number t of a sequence. */
void linear_step_rotation(const struct linear_step *s, const struct step_seq *seq,
                          int64_t t, double *rotation);
/* retain[m_full] = by. */
void linear_step_retain(const struct linear_step *s, double by,
                        const struct linear_step_scratch *r);

/* linear_step_maps.c: features of a row at position `pos`, of the key (row 0 of
 * r->rows) or the query (row 1).  Logs where features are exponentials. */
void linear_step_map(const struct linear_step *s, bool keys, int64_t pos,
                     const struct linear_step_scratch *r);
/* EXP and TRIG, whose projections are parameters of head h: features of the key, and
 * with `query` of both rows.  The result is the log of the key of TRIG. */
float linear_step_project(const struct linear_step *s, int64_t h, bool query,
                          const struct linear_step_scratch *r);
bool  linear_step_projects(const struct linear *x);
/* Fill bias of head h. */
bool linear_step_has_bias(const struct linear *x);
void linear_step_bias(const struct linear_step *s, int64_t h,
                      const struct linear_step_scratch *r);

/* linear_step_prefill.c: sequences and tensors as chunks see them; then tokens of an
 * item in chunks.  The result is how many tokens that were. */
void    linear_step_prefill_open(struct linear_step *s);
int64_t linear_step_prefill(const struct linear_step      *s,
                            const struct linear_step_item *i, bool attend,
                            struct linear_step_scratch *r);

#endif
