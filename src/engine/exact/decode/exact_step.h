/* exact_step.h -- decoding: attention of new tokens to the pages of their sequences.
 *
 * Reading keys and values is the limit, so each page is read once for all rows that
 * share it: the heads of a group and the new tokens.  The rows of a sequence are cut
 * into bundles, and the tiles that a bundle needs, of tokens and then of slots, into
 * parts. Each (bundle, key/value head, part) is a piece; it leaves sums relative to its
 * own reference, and pieces are merged in the order of parts.  Keys found by labels are
 * one more part: every row walks the chains of tokens that share its labels and gathers
 * their rows.  The cut depends on lengths alone, so results do not depend on the number
 * of threads.  Bundles are processed in waves, which bounds the memory for the sums of
 * parts.
 *
 * The pages of a sequence are anywhere in memory, and a jump between them costs as much
 * as many cache lines.  So a job is one part of several heads, and reads each page from
 * its first byte to its last.
 */
#ifndef FOCI_EXACT_STEP_H
#define FOCI_EXACT_STEP_H

#include "engine/exact/decode/exact_step_state.h"
#include "engine/exact/order/exact_vectors.h"

enum {
    MIN_PART = 16,   /* tiles of a part, at least */
    MAX_PARTS = 64,  /* of a bundle */
    BUNDLE = 64,     /* rows */
    JOB_ROWS = 256,  /* rows of a job, unless one head has more */
    WAVE = 8192,     /* rows of sums of a head in one wave */
    KERNEL_ROWS = 8, /* rows that one call of a kernel takes */
    SPANS = 64       /* ranges of tiles of a bundle */
};

/* A wave has memory for all parts of a bundle, that of labels included. */
_Static_assert(WAVE / BUNDLE >= MAX_PARTS + 2, "bundles fit into a wave");

/*
 * A step
 */

struct tile_span {
    int        level; /* -1: tokens */
    foci_range tiles;
};

/* Rows of one sequence that are computed together.  Row r of a key/value head is token
 * r / per_kv of query head kv per_kv + r % per_kv. */
struct step_bundle {
    const struct step_seq *seq;
    const foci_mech       *mech; /* with the length of the sequence */
    int64_t                row0;
    int                    rows;
    struct tile_span       span[SPANS];
    int                    n_spans;
    int64_t                tiles, per_part;
    int64_t                parts; /* including that of labels, the last */
    int64_t                at;    /* number of the bundle */
    int64_t                first; /* number of its first part, in all */
    int64_t                slot;  /* and in its wave; 0: the bundle begins a wave */
};

/* What the rows of a bundle have after a part: references, sums of weights and of
 * values. */
struct step_sums {
    float *m, *l, *o; /* [bundle], [bundle], [bundle][ldo] */
};

/* The execution of one stage in a step. */
struct exact_step {
    /* The stage, its widths and its row maps, as elsewhere in the engine.  Heads are
     * those below; rows of floats are padded to what the kernels of decoding take; and
     * cos_sin is indexed by the number of a row in the step, not by its position. */
    struct exact             e;
    const struct state_step *step;
    int                      g; /* number of the stage */
    int                      ldo;
    bool                     dots_bf16; /* kernels take queries as bf16 pairs */
    bool                     counts; /* the number of visible keys of a row is needed */
    bool                     plain;  /* logits of tokens are q.k times a factor */
    size_t                   el;     /* bytes of an element */

    int64_t kv_heads, per_kv;
    int64_t kv_expand; /* key/value heads made of each head of the caller's tensors */
    int64_t sets, rounds; /* sets of keys of a key/value head; rounds of labels, or 0 */
    int64_t bundle;       /* rows that a bundle has memory for */
    int64_t job_heads;    /* key/value heads of a job */

    foci_mech          *mechs;   /* [n_seqs] */
    struct step_bundle *bundles; /* [n_bundles] */
    int64_t             n_bundles, parts;
    int64_t wave, in_wave; /* parts a wave has memory for; parts of the last */

    int64_t *visible; /* [n_bundles][kv_heads][bundle] number of visible keys */
    int32_t *labels;  /* likewise, [rounds] numbers of labels; -1: none */
    float   *sums;    /* [wave][kv_heads] pieces: [bundle][ldo + 2] */
    char    *scratch;
    size_t   scratch_bytes;
};

/* Scratch for the labels of one row. */
struct hash_scratch {
    float   *row;    /* [d.ldq] */
    double  *exact;  /* [d.q] */
    float   *scores; /* one for each vector */
    int64_t *label;  /* [rounds] */
};

/* Score sources other than q.k, of the rows of a bundle. */
struct step_source {
    float *rows; /* [bundle] rows of factors and hidden values, times their weights */
    float *ab;   /* [bundle] of outer: a times its weight, then b */
    double (*weight)[N_SOURCES]; /* [bundle] */
    float *x, *h;         /* of one row: its hidden state, hidden values of a net */
    float *logits, *more; /* [LANES] */
};

/* The rows of a piece after their maps. */
struct step_queries {
    float    *q;                   /* [bundle][d.ldq] */
    uint32_t *pairs;               /* [bundle][d.ldq / 2] the same, bf16 pairs */
    float    *f;                   /* [bundle][LANES] the factor of q.k, repeated */
    float *by_place, *by_distance; /* [bundle][d.ldq] as Shaw's table meets them, and as
                                       * txl's R does; or NULL */
    float *far; /* [bundle] products with the first row of Shaw's table */
    struct step_source source;
};

/* A bundle's rows of one key/value head, and their sums in one part. */
struct step_piece {
    const struct step_bundle *b;
    int64_t                   kv;
    struct step_queries       rows;
    struct step_sums          sums;
};

/* Scratch of one thread. */
struct step_scratch {
    struct step_piece  *pieces; /* [job_heads] of a job */
    float              *input;  /* [d.ld_in] a row before projection */
    float              *s;      /* [KERNEL_ROWS][LANES] */
    float              *bias;   /* [LANES] */
    float              *near;   /* [KERNEL_ROWS][LANES] products with rows of tables */
    float              *tile;   /* [PAGE][ldo] */
    char               *keys;   /* [PAGE][d.q] gathered */
    char               *values; /* [PAGE][d.v] gathered */
    int32_t            *chain;  /* [rounds] */
    struct hash_scratch hash;
};

/* Up to PAGE keys. */
struct step_keys {
    const char    *k, *v;
    int            n;
    int64_t        j0;    /* position of the first key */
    const int64_t *list;  /* positions of all keys, or NULL: they follow the first */
    bool           slots; /* slots, which have no position */
    float          count; /* bias: the log of how many keys a slot stands for */
    const float   *each;  /* [n] added to logits, in base 2; or NULL */
};

static inline int64_t head_of(const struct exact_step *x, const struct step_piece *p,
                              int r)
{
    return p->kv * x->per_kv + (p->b->row0 + r) % x->per_kv;
}

/* The set of keys that row r meets. */
static inline int64_t set_of(const struct exact_step *x, const struct step_piece *p,
                             int r)
{
    return x->sets > 1 ? head_of(x, p, r) % x->per_kv : 0;
}

/* The position of row r in its sequence. */
static inline int64_t position_of(const struct exact_step  *x,
                                  const struct step_bundle *b, int r)
{
    return b->seq->state->len - b->seq->tokens + (b->row0 + r) / x->per_kv;
}

/* The row of q and o that row r of a piece is. */
static inline size_t row_of(const struct exact_step *x, const struct step_piece *p,
                            int r)
{
    const int64_t token = p->b->seq->row0 + (p->b->row0 + r) / x->per_kv;
    return (size_t)(token * x->e.plan->p.heads + x->e.stage->group->head0 +
                    head_of(x, p, r));
}

/* Row r of a piece in x->visible and x->labels. */
static inline int64_t row_index(const struct exact_step *x, const struct step_piece *p,
                                int r)
{
    return (p->b->at * x->kv_heads + p->kv) * x->bundle + r;
}

static inline const struct exact_state *state_of(const struct exact_step  *x,
                                                 const struct step_bundle *b)
{
    return b->seq->state->own[x->g];
}

static inline const struct stream *stream_of(const struct exact_step  *x,
                                             const struct step_bundle *b, int level)
{
    return level < 0 ? &b->seq->state->tokens : &state_of(x, b)->level[level];
}

/*
 * Geometry and visibility (exact_step_seen.c)
 */

struct exact_step step_geometry(const foci_plan *plan, int g);
/* Find the tiles that a bundle needs. */
void step_spans(const struct exact_step *x, struct step_bundle *b);
/* Keys, or slots, of tile t that a row at `pos` sees; and how many in all tiles. */
uint64_t step_seen(const struct exact_step *x, const struct step_bundle *b, int level,
                   int64_t pos, int64_t t);
int64_t step_count(const struct exact_step *x, const struct step_bundle *b, int64_t pos);

/*
 * Bundles, parts and jobs (exact_step_cut.c)
 */

/* Heads kv0 to kv0 + heads of one part. */
struct step_job {
    const struct step_bundle *b;
    int64_t                   part, kv0, heads;
};

size_t exact_step_bytes(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                        int64_t max_len);
/* Cut all sequences of x->step; and the threads that are worth it, with the heads of a
 * job so chosen that each has a few jobs. */
void step_cut(struct exact_step *x, struct arena work);
int  step_threads(struct exact_step *x);
/* The scratch of a thread. */
struct step_scratch step_scratch_of(const struct exact_step *x, int thread);
/* The bundle after the last one of the wave that begins with bundle i. */
int64_t         step_wave_end(const struct exact_step *x, int64_t i);
int64_t         step_jobs_of_part(const struct exact_step *x);
struct step_job step_job_of(const struct exact_step *x, int64_t i);
/* The sums of head kv in a part of a bundle. */
struct step_sums step_sums_of(const struct exact_step *x, const struct step_bundle *b,
                              int64_t kv, int64_t part);

/*
 * Rows (exact_step_rows.c) and their logits (exact_step_logits.c)
 */

/* Cosines and sines that rotate a row at `pos`. */
void step_cos_sin(const struct exact_step *x, int64_t pos, float *row);
/* to[d.ldq] = input[d.in] times the matrix of a head of the stage for queries or keys. */
void step_project_row(const struct exact_step *x, int64_t head, bool keys,
                      const float *input, float *to);
/* Load the queries of a piece and apply their maps. */
void step_load(const struct exact_step *x, struct step_piece *p,
               const struct step_scratch *r);
/* Rows first to first + rows, at most KERNEL_ROWS, attend to some keys. */
void step_attend(const struct exact_step *x, const struct step_piece *p,
                 struct step_scratch *r, const struct step_keys *keys, int first,
                 int rows, const uint64_t *seen);

/* From products to logits in s[LANES], in base 2 where they are exponents; the result
 * is the factor that is still to be applied. */
float step_logits(const struct exact_step *x, const struct step_piece *p,
                  struct step_scratch *r, const struct step_keys *m, int row,
                  const uint64_t *seen, float *s);
/* o += rows of Shaw's table of values, by the weights w[LANES] of their keys. */
void step_shaw_values(const struct exact_step *x, const struct step_keys *m,
                      int64_t pos, int64_t h, const float *w, float *o);
/* Shaw's table of keys of head h of the stage. */
const float *step_shaw_keys(const struct exact_step *x, int64_t h);

static inline double step_unit(const struct exact_step *x)
{
    return exact_logit_unit(&x->e);
}

/*
 * Labels (exact_step_labels.c, exact_step_hash.c)
 */

/* Find the numbers of the labels of a row; count the keys that share one; attend to
 * them. */
void    step_label(const struct exact_step *x, const struct step_piece *p, int row,
                   struct step_scratch *r);
int64_t step_label_count(const struct exact_step *x, const struct step_piece *p,
                         int row, struct step_scratch *r);
void step_label_attend(const struct exact_step *x, const struct step_piece *p, int row,
                       struct step_scratch *r);

/* Labels of one row of the caller's tensors, for a head of the stage.  The norms of the
 * vectors must have been found in the same step. */
struct hash_scratch hash_scratch(const struct exact_step *x, struct arena *a);
void                step_vector_norms(const struct exact_step *x, int64_t head);
void                step_hash(const struct exact_step *x, int64_t head, const char *row,
                              struct hash_scratch *h);

/*
 * Score sources other than q.k (exact_step_source.c)
 */

struct step_source step_source_scratch(const struct exact_step *x, struct arena *a);
void               step_source_load(const struct exact_step *x, struct step_piece *p);
/* logits[LANES] of a row for n keys from j0 on. */
const float *step_source(const struct exact_step *x, const struct step_piece *p,
                         int row, int64_t j0, int n);
/* The most tokens that the tensors serve; whether the mechanism refuses so many. */
int64_t step_source_longest(const foci_plan *plan, const struct stage *stage);
bool step_source_refuses(const struct stage *stage, int64_t len, char *why, size_t cap);

/*
 * Appending (exact_step_append.c, exact_step_learned.c)
 */

/* Row `at` of a stream, of the keys of a set; of set number `sets`, of the values. */
char *step_row_in(const foci_pool *pool, int g, const struct stream *s, int64_t at,
                  int64_t kv, int64_t set);

/* Make the learned slots of run number `run` of a state, which is finished: the keys or
 * values of a key/value head. */
struct step_learned_scratch {
    float *tile, *sum; /* [PAGE][ld] */
};
struct step_learned_scratch step_learned_scratch(const struct exact_step *x,
                                                 struct arena            *a);
void step_learned(const struct exact_step *x, const foci_state *state, int64_t run,
                  int64_t kv, bool values, const struct step_learned_scratch *scratch);

#endif
