/* linear_step.h -- sums over features, token by token: what its files share.
 *
 * A state keeps S [m][dv] and, where rows are divided by them, z [m], in double: a million
 * tokens are then added one at a time without loss.  Where features are powers of e both
 * are in units e^c, c [m], or one c for all.  There is a set of these for every head, or,
 * where features are the same for all of them, for every key/value head.
 *
 * A token is a row of features g of its key and f of each query that reads the set:
 *
 *     S = keep S + g v,   z = keep z + g,   o = f S / f z
 *
 * with keep = lam, or e^(c - c') where c moves.  Features lie along the row here, not
 * across 64 lanes: a step is mostly of one token.
 */
#ifndef FOCI_LINEAR_STEP_H
#define FOCI_LINEAR_STEP_H

#include "engine/linear.h"

/* Offsets of what a set has, after its S [m][lds]. */
struct set_layout {
    bool    shared; /* one for the heads of a key/value head */
    int64_t sets;
    int     lds, room;       /* columns, and features rounded up to 64 */
    size_t  total, top, all; /* bytes; all 64-byte aligned */
    bool    has_total;
};

/* The set in the memory of a state. */
struct set {
    double *rows, *total;
    float  *top; /* [room], or one; NULL: no logs */
};

/* What all states of a pool share: what the maps have once, and cosine and sine of the
 * angle of one position, by pairs [m]. */
struct linear_pool {
    struct maps       maps;
    struct linear_seq seq; /* stands for all */
    char             *tables;
    size_t            bytes;
    double           *turns;
};

/* Tokens from which on chunks are worth it. */
enum { MANY = 16 };

/* One set of one sequence. */
struct item {
    int64_t                q; /* number of the sequence */
    const struct step_seq *seq;
    struct set             set;
    int64_t                h, heads, kv; /* heads that read it, and where it is from */
    double                 lam;
};

/* Memory of one thread. */
struct step_room {
    float      *rows; /* [8][ldx] rows of a key and of a query, and what they become */
    float      *dots; /* [8][64] */
    float      *key, *query;   /* [room] features */
    float      *keyt, *queryt; /* [room] turned; those above where nothing is turned */
    float      *top, *shrink;  /* [room] */
    float      *angles;  /* [room] cosines and sines of this token, as `turn` wants */
    double     *turns;   /* [m] the same in double, by pairs */
    double     *keep;    /* [room] */
    float      *v, *out; /* [lds] */
    double     *o;       /* [lds] */
    struct scan scan;    /* where there are chunks */
};

struct stepping {
    struct linear      x;
    struct set_layout  set;
    const struct step *step;
    int                g;
    bool               chunks; /* some sequence has many tokens */
    foci_io            io;     /* rows and parameters */
    foci_problem       p;      /* with the layouts of a step */
    int64_t            ldx;    /* of rows: widths rounded up to 64 */
    float             *bias;   /* [heads][room] w.Aw; NULL: 0 */
    double            *turns;  /* [sequences][m] of the first new token */
    char              *scratch;
    size_t             scratch_bytes;
};

/* linear_step_maps.c.  Features of a row, rows[row] of the room, at position `pos`; in row
 * 0 is the key and in row 1 a query, if any.  Logs where the engine has them. */
void step_map(const struct stepping *s, bool keys, int64_t pos,
              const struct step_room *r);
/* EXP and TRIG, which have parameters of head h: of both rows at once.  The result is the
 * log of the key of TRIG. */
float step_project(const struct stepping *s, int64_t h, bool query,
                   const struct step_room *r);
bool  step_projects(const struct linear *x);
/* Fill bias of head h. */
bool step_has_bias(const struct linear *x);
void step_bias(const struct stepping *s, int64_t h, const struct step_room *r);

/* linear_step_chunks.c: sequences and tensors as chunks see them; then tokens of the item
 * in chunks, and how many of them that were. */
void    step_chunks_open(struct stepping *s);
int64_t step_chunks(const struct stepping *s, const struct item *i, bool attend,
                    struct step_room *r);

#endif
