/* plan.h -- what a plan is made of.  Engines and the interpreter read it. */
#ifndef FOCI_PLAN_H
#define FOCI_PLAN_H

#include "plan/groups.h"

/* The most rows of a sequence: tiles of 64 of them are counted in 32 bits. */
#define MAX_LEN ((int64_t)1 << 36)

/* The most of one that is sorted by labels, which number cells in 31 bits. */
#define MAX_ORDERED ((int64_t)1 << 29)

/* lists.c: give the groups copies of the lists they ask for. */
foci_status lists_copy(foci_ctx *ctx, struct spec *spec, const foci_problem *p);

/* problem_check.c: check and copy a caller's problem, as far as possible before the spec is
 * known; and complete the layouts of its tensors, once the heads are distributed. */
foci_status problem_copy(foci_ctx *ctx, const foci_problem *problem, foci_problem *p);
foci_status problem_complete(foci_ctx *ctx, foci_problem *p);

/* tiles.c: which key tiles each query tile needs, once for all executions.
 *
 * Positions are cut into tiles of 64, queries as keys.  Row t of the table lists
 * the runs of key tiles that query tile t needs.  A partial run names, for its
 * one tile, an entry of the dictionary of masks. */
struct tile_run {
    int32_t begin, end; /* key tiles (in `cols`: query tiles), half open */
    int32_t mask; /* -1: all pairs visible; else dictionary entry, end = begin + 1 */
};

struct support {
    bool             all;         /* every pair: no table */
    int64_t          len;         /* queries */
    int64_t          n_tiles;     /* rows of the table */
    int64_t          n_key_tiles; /* columns */
    int64_t         *row0;        /* [n_tiles + 1] into rows */
    int64_t         *col0;        /* [n_key_tiles + 1] into cols */
    struct tile_run *rows, *cols;
    int64_t          n_rows, n_cols;
    int64_t          cap_rows;
    int32_t          cap_masks;
    uint64_t (*masks)[FOCI_TILE]; /* by key: bit r is query r of the tile */
    int32_t n_masks;
};

/* The key tiles of one query tile while a mechanism lists them. */
enum tile_kind { TILE_SKIP, TILE_PART, TILE_FULL };

struct foci_tile_list {
    int64_t            len;        /* keys, or slots, there are */
    uint8_t           *kind;       /* [div_up(len, FOCI_TILE)], TILE_SKIP at first */
    int64_t            begin, end; /* tiles listed lie from begin to end */
    struct tile_spans *spans;      /* not NULL: they go here instead */
};

/* Tiles as disjoint ranges in ascending order; with more ranges than `cap`, tiles between two
 * of them are listed too. */
struct tile_spans {
    foci_range *span; /* [cap], at least 1 */
    int         n, cap;
};

void spans_add(struct tile_spans *s, foci_range tiles);

/* The next tile listed from t on; list->end where there is none. */
int64_t tiles_next(const foci_tile_list *list, int64_t t);
/* Fill the list, empty or of an earlier call, with the tiles that queries `rows` need of
 * the keys (level -1) or of the slots of a level. */
void tiles_list(const foci_mech *m, int level, foci_range rows, foci_tile_list *list);
/* Which pairs of queries `rows`, 64 at most, and keys (or slots) from j0 on of `len` are
 * visible, by key: bit r of by_key[t] is query rows.begin + r. */
enum tile_kind tiles_look(const foci_mech *m, int level, foci_range rows, int64_t j0,
                          int64_t len, uint64_t by_key[FOCI_TILE]);

/* Make the support of `len` keys (level -1), or of the slots of a level of `len` keys. */
foci_status support_make(foci_ctx *ctx, const foci_mech *m, int level, int64_t len,
                         struct support *s);
void        support_free(foci_ctx *ctx, struct support *s);

/* The *n runs of query tile t, and, in support_col(), of key tile t. */
const struct tile_run *support_row(const struct support *s, int64_t t, int64_t *n);
const struct tile_run *support_col(const struct support *s, int64_t t, int64_t *n);

/* One parameter tensor of the whole plan. */
struct param {
    char                   name[64];
    const foci_tensor_def *def;
    const foci_mech       *mech; /* that it belongs to, itself or by a modifier */
    int                    group;
    int                    n_dims;
    int64_t                shape[4]; /* shape[0]: heads of the group */
    int64_t                offset, count;
    double                 value;
    foci_keep              keep;
};

/* How the exact engine computes logits from q.k, gathered from the modifiers.  Offsets are
 * those of parameter tensors of all heads of the group. */
struct score {
    double          scale;     /* of all heads: 1/sqrt(dim), or as asked */
    int64_t         factor[4]; /* multiply it, one number a head */
    int             n_factors;
    const foci_mod *row[4]; /* modifiers with a factor for each row */
    int             n_rows;
    bool            unit; /* q and k are normalised first */
    foci_map        map;  /* the mechanism's own, before that */
    double          cap;  /* 0: none */
    int64_t         sink; /* one logit a head; -1: none */

    /* Positions. */
    double          rope_base; /* 0: rows are not rotated */
    bool            rope_half; /* pairs (t, t + d/2), not (2t, 2t + 1) */
    const foci_mod *slope;     /* bias -slope |rel|; NULL: none */
    const foci_mod *table[2];  /* bias by a table over rel */
    int64_t         table_at[2], table_size[2]; /* entries of a head */
    int             n_tables;
    int64_t         clip;                /* of Shaw's tables */
    int64_t         shaw_k, shaw_v;      /* [heads][2 clip + 1][d]; -1: none */
    int64_t         txl_u, txl_w, txl_r; /* [heads][d], [heads][len][d]; -1: none */
};

/* Slots of one level. */
struct slot_level {
    foci_slots     slots;
    struct support support; /* by slots, for the length the plan is for */
};

/* labelled.c: an estimate of the pairs that labels make visible, in one head of one
 * sequence. */
struct labelled {
    int64_t labels;     /* 0: not known */
    double  pairs, met; /* met: pairs of several rounds count in each */
    double  full, part; /* tiles of 64 rows of a label by 64 keys of it */
    double  row_flops;  /* to find the label of a row */
};
foci_status labelled_make(foci_ctx *ctx, const foci_mech *m, const foci_order *o,
                          struct labelled *l);

struct stage { /* one group of heads, ready to run */
    const struct plan_group *group;
    const struct engine     *engine;  /* engine/engine.h */
    const struct decoder    *decoder; /* state/state.h; NULL: there is no decoding */
    struct score             score;
    struct support           support;
    struct slot_level        levels[FOCI_MAX_LEVELS];
    int                      n_levels;
    foci_order               order; /* label FOCI_LABEL_NONE: none */
    struct labelled          labelled;
    int64_t                  memory; /* leading keys that take no gradient */
    foci_plan              **inner;  /* [n_inner] the plans of its routes */
    int64_t                  n_inner;
    foci_linear              linear;   /* of the linear engine */
    int64_t                  features; /* number of them */
    int64_t                  saved0;   /* floats before its part of the saved memory */
    size_t                   work0;    /* bytes before its part of the work memory */
    double                   flops;    /* of its forward pass */
    struct device_stage     *device; /* its data on the context's device; NULL: none */
};

/* linear.c: the description of a mechanism of the linear engine, and its number of
 * features. */
foci_linear linear_of(const foci_mech *m);
int64_t     linear_features(const foci_mech *m, const foci_linear *l);
/* Features that can be of both signs. */
bool linear_signed(const foci_linear *l);
/* Rows of weights sum to one or are empty, with these arguments. */
bool mech_stochastic(const foci_mech *m);
/* What the engine does not support in it; NULL: it supports all. */
const char *linear_fault(const foci_linear *l);
/* Why a modifier cannot follow a mechanism of the linear engine; NULL: it can. */
const char *linear_against(const struct stage *s, const foci_mod_def *mod);

/* What a mechanism reads with these arguments. */
static inline unsigned mech_reads(const foci_mech *m)
{
    return m->def->reads_of ? m->def->reads_of(m) : m->def->reads;
}

/* Where its logits come from: flags FOCI_SOURCE. */
static inline unsigned mech_sources(const foci_mech *m)
{
    return m->def->sources ? m->def->sources(m) : (unsigned)FOCI_SOURCE_QK;
}

/* The number of the tensor with this role; -1: there is none. */
static inline int mech_tensor(const foci_mech *m, foci_role role)
{
    for (size_t t = 0; t < m->def->n_tensors; t++)
        if (m->def->tensors[t].role == role) return (int)t;
    return -1;
}

/* Elements of a row of q or k as the logits read it. */
static inline int64_t mech_width(const foci_mech *m)
{
    return m->def->map == FOCI_MAP_PROJECT ? m->def->width(m) : m->dims.qk;
}

/* The number of slots of n keys. */
static inline int64_t slots_of(const foci_slots *s, int64_t n)
{
    const int64_t rest = n % s->run_len;
    if (s->learned) return div_up(n, s->run_len) * s->learned;
    if (!s->tail) return div_up(n, s->run_len);
    return n / s->run_len * s->tail + max64(0, rest - (s->run_len - s->tail));
}

/* The keys that slot number t stands for, of n keys. */
static inline foci_range slot_keys(const foci_slots *s, int64_t t, int64_t n)
{
    const int64_t run = s->learned ? t / s->learned : t;
    if (!s->tail)
        return (foci_range){ run * s->run_len, min64((run + 1) * s->run_len, n) };
    const int64_t j = t / s->tail * s->run_len + s->run_len - s->tail + t % s->tail;
    return (foci_range){ j, j + 1 };
}

/* Whether slots are learned sums.  They are a stage's only ones then. */
static inline bool stage_learned(const struct stage *s)
{
    return s->n_levels && s->levels[0].slots.learned;
}

/* Whether every query head has keys of its own, computed from the given ones. */
static inline bool stage_own_keys(const struct stage *s)
{
    return s->score.map == FOCI_MAP_PROJECT || stage_learned(s);
}

/* What the stage reads; shared keys are the queries, so k is not read. */
static inline unsigned stage_reads(const struct stage *s)
{
    const unsigned all = mech_reads(&s->group->mech);
    return s->order.shared_qk ? all & ~(unsigned)FOCI_READ_K : all;
}

/* stage.c: make the stage of a group of the spec, except for its engine, the plans of its
 * routes and its data on a device. */
foci_status stage_make(foci_plan *plan, const struct plan_group *g, struct stage *s);
void        stage_free(foci_ctx *ctx, struct stage *s);

static inline int64_t mech_routes(const foci_mech *m)
{
    return m->def->routes ? m->def->routes(m) : 1;
}

/* Gates that count for a token, the largest (top-k); 0: all. */
static inline int64_t mech_top_routes(const foci_mech *m)
{
    return m->def->top_routes ? m->def->top_routes(m) : 0;
}

/* Whether each row is both a query and a key, so that sequences have equally many. */
static inline bool mech_paired(const foci_mech *m)
{
    foci_order   order = { 0 };
    foci_nystrom marks = { 0 };

    if (m->def->order) m->def->order(m, &order);
    if (m->def->nystrom) m->def->nystrom(m, &marks);
    return order.shared_qk || (m->def->two_pass && m->def->two_pass(m)) ||
           m->def->engine == FOCI_ENGINE_POSITIONAL ||
           m->def->engine == FOCI_ENGINE_MEMFORMER ||
           mech_sources(m) != FOCI_SOURCE_QK || marks.width ||
           (m->inner && mech_paired(m->inner));
}

/* A plan never changes once it is made. */
struct foci_plan {
    foci_ctx     *ctx;
    foci_problem  p; /* layouts and defaults filled in */
    struct spec   spec;
    struct stage *stages; /* [spec.n_groups] */
    struct param *params;
    int           n_params, cap_params;
    int64_t       n_floats;
    size_t        work_bytes, saved_bytes;
    foci_cost     cost;
    int          *by_cost; /* [spec.n_groups] stages, the most expensive first */
};

/* params.c: lay out the tensors of the spec's groups. */
foci_status params_make(foci_plan *plan);
/* Draw only the tensor that starts at `offset`, as foci_params_init() would from this seed.
 * Nothing is drawn if none starts there: tensors of routes are drawn with that of the first
 * route. */
foci_status params_draw(const foci_plan *plan, int64_t offset, uint64_t seed,
                        float *params);
/* Rows of FOCI_INIT_ROWS of one head; frame [d][d] is scratch. */
void rows_draw(foci_rows kind, struct rng *r, int64_t rows, int64_t d, double *frame,
               float *out);

/* A sequence of an execution: a batch entry or a document. */
struct seq {
    int64_t b;
    int64_t q0, k0; /* first row in the tensors */
    int64_t nq, nk; /* rows */
};

/* seqs.c: the most sequences of an execution. */
int64_t plan_max_seqs(const foci_plan *plan);
/* Fill seqs[plan_max_seqs]; the result is their number. */
int64_t plan_seqs(const foci_plan *plan, const foci_io *io, struct seq *seqs);

/* list.c: the built-in descriptors, ending in NULL. */
extern const foci_mech_def *const mech_list[];
extern const foci_mod_def *const  mod_list[];

#endif
