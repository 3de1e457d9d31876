/* exact_step.h -- exact attention of new tokens to what their states hold: what its
 * files share.
 *
 * Bound by reading keys and values: each page is read once for all rows that share it,
 * the heads of a group and the new tokens.  The rows of a sequence are cut into bundles
 * of BUNDLE, and the tiles a bundle needs, of tokens and then of slots, into parts;
 * each (bundle, key/value head, part) is a piece that leaves sums relative to its own
 * reference, and the parts are merged in order.  Keys that labels show are one more
 * part: every row walks the tokens that have its labels, and their rows are gathered.
 * The cut depends on lengths alone, so results do not depend on the number of threads.
 * Bundles are taken in waves, so that the memory for parts does not grow with the tokens
 * of a step times the keys.
 *
 * Pages of a sequence lie anywhere, and each jump between them costs as much as many
 * lines: a job is a part of several heads together, which reads a page from its begin to
 * its end.
 */
#ifndef FOCI_EXACT_STEP_H
#define FOCI_EXACT_STEP_H

#include "engine/exact.h"
#include "engine/exact_vectors.h"

enum {
    PART = 16,       /* tiles of a part, at least */
    MOST_PARTS = 64, /* of a bundle */
    BUNDLE = 64,     /* rows */
    TOGETHER = 256,  /* rows of a job, unless one head has more */
    WAVE = 8192,     /* rows of sums of a head at the same time */
    FEW = 8,         /* rows that kernels take at a time */
    SPANS = 64,      /* ranges of tiles of a bundle */
    FAR = 1 << 16    /* distances whose entries of a table are known beforehand */
};

/*
 * What is kept of a sequence beside its pages (exact_step_state.c)
 */

/* Which tokens have which label, in one round of one head.  Labels are numbered as they
 * come; tokens of equal label form a chain, the last one first. */
struct label_map {
    int64_t *label; /* [cap_labels] by number */
    int32_t *last;  /* [cap_labels] token; -1: none */
    int32_t *table; /* [n_table] open hashing: numbers, -1: free */
    int32_t *before,
        *what; /* [cap] token before it in its chain; number of its label */
    int64_t n_labels, cap_labels, n_table, cap;
};

struct exact_own {
    struct stream     level[FOCI_MAX_LEVELS]; /* finished slots */
    float            *sums[FOCI_MAX_LEVELS];  /* of the open run: keys, then values */
    struct label_map *maps;                   /* [n_maps] */
    int64_t           n_maps;
};

/* Shared by the states of a pool: the entries of tables by distance; by which angles
 * rows are turned from token to token; and how long the vectors are that rows are
 * compared with for their labels, as of the last append. */
struct exact_pool {
    int32_t *entry[2]; /* [FAR] */
    double  *speed;    /* [dq / 2] */
    double  *reach;    /* [heads][rounds] */
};

/*
 * Labels (exact_step_labels.c)
 */

/* Of rows that are not numbers, which share theirs with nobody. */
#define NO_LABEL INT64_MIN

int64_t labels_maps(const struct stage *s); /* how many a state has */
/* Make room for so many tokens and labels. */
foci_status labels_reserve(foci_ctx *ctx, struct label_map *m, int64_t tokens,
                           int64_t labels);
/* Token `at` has this label; tokens come in order. */
void labels_add(struct label_map *m, int64_t at, int64_t label);
void labels_cut(struct label_map *m, int64_t len, int64_t new_len);
/* Into one that is empty. */
foci_status labels_copy(foci_ctx *ctx, const struct label_map *from, int64_t len,
                        struct label_map *to);
void        labels_free(foci_ctx *ctx, struct label_map *m);
size_t      labels_bytes(const struct label_map *m);
void        labels_save(const struct label_map *m, int64_t len, struct writer *w);
/* Into one that has room for len tokens. */
foci_status labels_restore(const foci_pool *pool, struct label_map *m, int64_t len,
                           int64_t most, struct reader *r);
/* Different labels that there can be; INT32_MAX: any number. */
int64_t labels_most(const struct stage *s);

/*
 * A step
 */

/* A wave has room for all parts of a bundle, that of labels included. */
_Static_assert(WAVE / BUNDLE >= MOST_PARTS + 2, "bundles fit into a wave");

struct span {
    int        level; /* -1: tokens */
    foci_range tiles;
};

/* Rows of one sequence that are computed together: row r of a key/value head is token
 * r / per_kv of query head kv per_kv + r % per_kv. */
struct bundle {
    const struct step_seq *seq;
    const foci_mech       *mech; /* that knows the length of the sequence */
    int64_t                row0;
    int                    rows;
    struct span            span[SPANS];
    int                    n_spans;
    int64_t                tiles, per_part;
    int64_t                parts; /* that of labels, the last, included */
    int64_t                at;    /* number of the bundle */
    int64_t                first; /* number of its first part */
    int64_t                slot;  /* and in its wave, which it begins if that is 0 */
};

/* The rows of a bundle after a part. */
struct sums {
    float *m, *l, *o; /* [bundle], [bundle], [bundle][ldo] */
};

struct stepping {
    struct exact          e; /* for the maps of rows; ldq as here.  Rows are turned by
                              * their number in the step, not by their position. */
    const foci_plan      *plan;
    int                   g;
    const struct stage   *stage;
    const struct score   *score;
    const struct step    *step;
    const struct kernels *k;
    int                   kind, dq, dv, ldq, ldo;
    int                   given, ld_given; /* widths of q and k as they are given */
    bool                  bf16;
    bool                  counts; /* the keys that rows see are counted */
    bool                  plain;  /* logits of tokens are q.k times a factor */
    size_t                el;
    int64_t               per_kv, kv_heads, sets, rounds, bundle;
    int64_t               together; /* key/value heads of a job */
    int64_t        own;   /* key/value heads that are made of each one that is given */
    foci_mech     *mechs; /* [n_seqs] */
    struct bundle *bundles; /* [n_bundles] */
    int64_t        n_bundles, parts;
    int64_t  wave, in_wave; /* parts that a wave may have; that the last one has */
    int64_t *visible;       /* [n_bundles][kv_heads][bundle] */
    int32_t *labels;        /* likewise, [rounds] numbers of labels; -1: none */
    float   *sums;          /* [wave][kv_heads] pieces: [bundle][ldo + 2] */
    char    *scratch;
    size_t   scratch_bytes;
};

/* Scratch for the labels of a row. */
struct hash {
    float   *row;    /* [ldq] */
    double  *exact;  /* [dq] */
    float   *scores; /* one for each vector */
    int64_t *label;  /* [rounds] */
};

/* Scratch of sources other than q and k (exact_source_step.c). */
struct step_source {
    float *rows; /* [bundle] rows of factors and what is inside a net, weighed */
    float *ab;   /* [bundle] of outer: a weighed, then b */
    double (*share)[N_SOURCES]; /* [bundle] */
    float *x, *h;               /* hidden states of a row, what is inside */
    float *logits, *more;       /* [LANES] */
};

/* The rows of a piece as they go into scores. */
struct queries {
    float    *q;                      /* [bundle][ldq] */
    uint32_t *words;                  /* [bundle][ldq / 2] */
    float    *f;                      /* [bundle][LANES], each row one number */
    float    *by_place, *by_distance; /* [bundle][ldq] queries that meet tables of Shaw
                                       * and of txl, or NULL */
    float    *far; /* [bundle] products with the first row of Shaw's table */
    struct step_source from;
};

/* A bundle's rows of one key/value head. */
struct piece {
    const struct bundle *b;
    int64_t              kv;
    struct queries       rows; /* once they are loaded */
    struct sums          sums; /* of one part */
};

/* Scratch of one thread. */
struct room {
    struct piece *pieces; /* [together] of a job */
    float        *wide;   /* [ld_given] a row as it is given */
    float        *s;      /* [FEW][LANES] */
    float        *bias;   /* [LANES] */
    float        *near;   /* [FEW][LANES] products with rows of tables */
    float        *tile;   /* [PAGE][ldo], for pages that are not finite */
    char         *keys;   /* [PAGE][dq] gathered */
    char         *values; /* [PAGE][dv] */
    int32_t      *chain;  /* [rounds] */
    struct hash   hash;
};

/* Keys that rows meet, at most PAGE. */
struct meeting {
    const char    *k, *v;
    int            n;
    int64_t        j0;    /* the first key, */
    const int64_t *list;  /* or, where not NULL, where each stands */
    bool           slots; /* they stand nowhere */
    float          count; /* the log of how many keys a slot is of, a bias */
    const float   *each;  /* [n] added to logits, in base 2, or NULL */
};

static inline int64_t head_of(const struct stepping *x, const struct piece *p, int r)
{
    return p->kv * x->per_kv + (p->b->row0 + r) % x->per_kv;
}

/* The set of keys that row r meets. */
static inline int64_t set_of(const struct stepping *x, const struct piece *p, int r)
{
    return x->sets > 1 ? head_of(x, p, r) % x->per_kv : 0;
}

/* Where row r stands in its sequence, and where it lies in q and o. */
static inline int64_t place_of(const struct stepping *x, const struct bundle *b, int r)
{
    return b->seq->state->len - b->seq->tokens + (b->row0 + r) / x->per_kv;
}

static inline size_t row_of(const struct stepping *x, const struct piece *p, int r)
{
    const int64_t token = p->b->seq->row0 + (p->b->row0 + r) / x->per_kv;
    return (size_t)(token * x->plan->p.heads + x->stage->group->head0 +
                    head_of(x, p, r));
}

/* Row r of a piece in what is known of all rows. */
static inline int64_t known_at(const struct stepping *x, const struct piece *p, int r)
{
    return (p->b->at * x->kv_heads + p->kv) * x->bundle + r;
}

static inline const struct exact_own *own_of(const struct stepping *x,
                                             const struct bundle   *b)
{
    return b->seq->state->own[x->g];
}

static inline const struct stream *stream_of(const struct stepping *x,
                                             const struct bundle *b, int level)
{
    return level < 0 ? &b->seq->state->tokens : &own_of(x, b)->level[level];
}

/* Slots of a level that n tokens finish. */
static inline int64_t slots_done(const foci_slots *s, int64_t n)
{
    return s->take ? slots_of(s, n) : n / s->every * max64(1, s->learned);
}

/* exact_step_seen.c */
struct stepping step_geometry(const foci_plan *plan, int g);
/* The tiles a bundle needs. */
void step_spans(const struct stepping *x, struct bundle *b);
/* Keys, or slots, of tile t that the row at `place` sees. */
uint64_t step_seen(const struct stepping *x, const struct bundle *b, int level,
                   int64_t place, int64_t t);
/* Those of all tiles together. */
int64_t step_count(const struct stepping *x, const struct bundle *b, int64_t place);

/* exact_step_rows.c: cosines and sines that turn a row at `place`; queries as they go into
 * scores, and the meeting of rows first to first + rows (at most FEW) with keys. */
void step_turn(const struct stepping *x, int64_t place, float *row);
/* to[ldq] = wide[given] times the matrix of a head of the stage for queries or keys. */
void step_project_row(const struct stepping *x, int64_t head, bool keys,
                      const float *wide, float *to);
void step_load(const struct stepping *x, struct piece *p, const struct room *r);
void step_meet(const struct stepping *x, const struct piece *p, struct room *r,
               const struct meeting *keys, int first, int rows, const uint64_t *seen);

/* exact_step_labels.c: the numbers of the labels of a row; the keys it shares one
 * with, counted, and met. */
void    step_label(const struct stepping *x, const struct piece *p, int row,
                   struct room *r);
int64_t step_label_count(const struct stepping *x, const struct piece *p, int row,
                         struct room *r);
void    step_label_meet(const struct stepping *x, const struct piece *p, int row,
                        struct room *r);

/* exact_step_hash.c: labels of a row, as it is given, for a head of the stage.  Lengths
 * of vectors first, in every step. */
struct hash hash_take(const struct stepping *x, struct arena *a);
void        step_reach(const struct stepping *x, int64_t head);
void step_hash(const struct stepping *x, int64_t head, const char *row, struct hash *h);

/* exact_source_step.c: rows of a bundle; logits[LANES] of a row for n keys from j0 on; the
 * most tokens that tensors serve; whether the mechanism refuses so many. */
struct step_source step_source_take(const struct stepping *x, struct arena *a);
void               step_source_load(const struct stepping *x, struct piece *p);
const float       *step_source(const struct stepping *x, const struct piece *p, int row,
                               int64_t j0, int n);
int64_t step_source_longest(const foci_plan *plan, const struct stage *stage);
bool step_source_refuses(const struct stage *stage, int64_t len, char *why, size_t cap);

/* exact_step_mix.c: the learned slots of run number `run` of a state, which is finished:
 * those of keys or of values of a key/value head. */
struct mixing {
    float *tile, *sum; /* [PAGE][ld] */
};
struct mixing mixing_take(const struct stepping *x, struct arena *a);
void          step_mix(const struct stepping *x, const foci_state *state, int64_t run,
                       int64_t kv, bool values, const struct mixing *room);

/* exact_step_append.c: where row `at` of a stream lies, of the keys of a set or, of set
 * number `sets`, of the values. */
char  *step_row_in(const foci_pool *pool, int g, const struct stream *s, int64_t at,
                   int64_t kv, int64_t set);
size_t exact_append_bytes(const foci_pool *pool, int g);
void   exact_append(const struct step *step, int g);
/* The sums of the open run of a level of slots, from its tokens. */
void exact_sum_open(const foci_state *state, int g, int level, int64_t len, float *sums);

/* exact_step_state.c: the other functions of the decoder. */
foci_status exact_pool_make(foci_pool *pool, int g);
void        exact_pool_free(foci_pool *pool, int g);
foci_status exact_state_make(foci_state *state, int g);
foci_status exact_state_copy(const foci_state *from, foci_state *to, int g);
void        exact_state_free(foci_state *state, int g);
size_t      exact_state_bytes(const foci_state *state, int g);
void        exact_state_save(const foci_state *state, int g, struct writer *w);
foci_status exact_state_restore(foci_state *state, int g, struct reader *r);
foci_status exact_state_truncate(foci_state *state, int g, int64_t len, bool really);
foci_status exact_state_check(const foci_pool *pool, int g, const foci_step_io *io);
foci_status exact_state_reserve(foci_state *state, int g, int64_t tokens,
                                int64_t *pages);
void        exact_state_drop(foci_state *state, int g);

/* Floats of a row of sums, and of all of one level: of keys [kv_heads][sets], then of
 * values. */
static inline int64_t sum_row(int64_t d) { return round_up(d, 16); }

static inline int64_t sum_floats(const foci_pool *pool, int g)
{
    const struct page_part *t = &pool->parts[g];
    return t->kv_heads * (t->sets * sum_row(t->dim_qk) + sum_row(pool->plan->p.dim_v));
}

#endif
