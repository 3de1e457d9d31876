/* ref.h -- the judge: attention by its written-out formulas, in double precision.
 *
 * It reads plans and descriptors only, never data of an engine, and
 * walks one row of one head at a time, so it needs memory of order n, not n^2 (n times
 * slots for the weights of the second pass).
 * Tests call it with tensors of doubles (REF_F64), where nothing is rounded.
 */
#ifndef FOCI_REF_H
#define FOCI_REF_H

#include "plan/plan.h"

/* The type of an element: a foci_dtype, or this. */
enum { REF_F64 = FOCI_F16 + 1 };

double ref_load(int type, const void *p, int64_t i);
/* Rounds to nearest even; what is too large becomes infinite, NaN stays NaN. */
void ref_store(int type, void *p, int64_t i, double value);
/* The number of that type nearest to value. */
double ref_round(int type, double value);

static inline double ref_rounded(bool rounds, double value)
{
    return rounds ? ref_round(FOCI_BF16, value) : value;
}

/* Rows of the weights of one head of one sequence, each `step`-th from the first on. */
struct ref_slice {
    int64_t    batch, head;
    foci_range rows;
    int64_t    step;
};

/* An execution.  Tensors of io and grads have elements of `type` and the layouts
 * of the plan; io->lse, io->params and grads->dparams are not looked at. */
struct ref_call {
    const foci_plan  *plan;
    const foci_io    *io;
    const foci_grads *grads; /* NULL: forward only */
    int               type;
    const double     *params;  /* [n_floats] */
    double           *lse;     /* [batch][heads][len_q], or NULL */
    double           *dparams; /* [n_floats], added to; or NULL */
    float            *weights; /* [batch][heads][len_q][len_k], or NULL; of routes
                                * the sum by their gates */
    /* NULL: all is computed.  Else only these rows, and of them the weights alone,
     * [rows][len_k]: no gradients, and values are not read. */
    const struct ref_slice *slice;

    /* Round the operands of every product to bf16 first, and the o that backward reads to
     * the plan's type.  The error of this is the yardstick for engines that round the
     * same. */
    bool rounds;
};

/* The type to which operands are rounded: bf16, or, for problems in f32, floats where an
 * engine other than the exact one may round; REF_F64: nothing is rounded. */
static inline int ref_operand_type(const struct ref_call *c)
{
    const foci_problem *p = &c->plan->p;

    if (!c->rounds) return REF_F64;
    return p->dtype == FOCI_F32 && !(p->flags & FOCI_FLAG_FAST) ? FOCI_F32 : FOCI_BF16;
}

foci_status ref_run(const struct ref_call *call);

/* Width of the values that an execution reads. */
static inline int64_t ref_dim_v(const struct ref_call *c)
{
    return c->slice ? 0 : c->plan->p.dim_v;
}

/* judge.c: what foci_ref_weights() checks; then slices of the plan's weights, on any number
 * of threads at once, into weights[rows][len_k].  `params` are those of `io`. */
struct ref_weigher {
    const foci_plan *plan;
    foci_io          io;
    double          *params;
};
foci_status ref_weigher_open(struct ref_weigher *w, const foci_plan *plan,
                             const foci_io *io);
void        ref_weigher_close(struct ref_weigher *w);
foci_status ref_weigher_run(const struct ref_weigher *w, const struct ref_slice *slice,
                            float *weights);
/* Whether every slice of a head costs as much as all of its rows, or nearly: rows depend on
 * one another, or are sorted pair by pair. */
bool ref_whole(const foci_mech *m);

/*
 * Whole heads
 */

/* A mechanism on one head of one sequence.  Rows are packed. */
struct ref_part {
    const struct ref_call *call;
    const struct seq      *seq;
    const foci_mech       *mech; /* as planned */
    const int64_t         *param0;
    int64_t (*mod_param)[FOCI_MAX_TENSORS];
    int64_t        row;          /* of its tensors */
    int64_t        head;         /* of the problem */
    int64_t        index, heads; /* the same, and how many there are, in its group */
    const double  *q, *k, *v;    /* [nq][dqk], [nk][dqk], [nk][dv] */
    const double  *x;            /* [nq][dim_x] */
    const int32_t *word_of;      /* [nq]; NULL: not given */
    const double  *g;            /* gradient of o; NULL: forward only */
    double        *o;            /* [nq][dv], written */
    double        *lse;          /* [nq], written where a row has one; or NULL */
    foci_range     rows;         /* of q that are computed: without a slice all, */
    int64_t        step;         /* and each */
    float         *weights;      /* [rows][len_k], written; or NULL */
    double        *dq, *dk, *dv; /* added to, like all that follows */
    double        *dx;
    double        *dparams; /* [n_floats] */
    const uint8_t *mask;    /* [nq][len_k]; NULL: none */
    const float   *bias;    /* likewise */
    double        *dbias;   /* likewise */
};

foci_status ref_part_run(const struct ref_part *p);
/* Where the weights of row i go. */
static inline float *ref_weights_at(const struct ref_part *p, int64_t i)
{
    return p->weights + (i - p->rows.begin) / p->step * p->call->plan->p.len_k;
}
/* linear.c: the same where weights are products of features.  lse is 0, or -inf where a
 * row is empty. */
foci_status ref_linear_run(const struct ref_part *p);
/* positional.c, landmarks.c, recall.c: those of other engines, which have no lse; nor has
 * recall weights, and taps of several parts give those of the first. */
foci_status ref_positional_run(const struct ref_part *p);
foci_status ref_landmarks_run(const struct ref_part *p);
foci_status ref_recall_run(const struct ref_part *p);

/* rows times dim numbers; on overflow the arena fails (arena_ok()). */
double *ref_doubles(struct arena *a, int64_t rows, int64_t dim);

/* The scale of a mechanism whose only modifier may be `scale`. */
double ref_scale(const struct ref_part *p);

/* Sums and softmaxes that all use, rounded to `type` after every term. */
double ref_dot(int type, const double *a, const double *b, int64_t n);
/* y += by x */
void ref_add_row(int type, double *y, double by, const double *x, int64_t n);
void ref_softmax(double *x, int64_t n);
/* From the gradients da of weights a to those of logits, in place. */
void ref_softmax_back(const double *a, double *da, int64_t n);

/* Leading keys that take no gradient. */
int64_t ref_memory(const struct ref_part *p);

/* The offset in the parameters of this head's part of tensor t of modifier `mod` (-1: of the
 * mechanism); -1: the tensor is left out. */
int64_t ref_tensor(const struct ref_part *p, int mod, size_t t);
/* The shape of that tensor, of one head. */
void ref_shape(const struct ref_part *p, int mod, size_t t, int64_t shape[3]);

/* Several parts, summed by gates that are read from x. */
struct ref_routes {
    struct ref_part  part; /* of the head; k, v, dk and dv are those of a route */
    const foci_mech *inner;
    const int64_t   *param0; /* of the inner mechanism */
    int64_t (*mod_param)[FOCI_MAX_TENSORS];
    int64_t       n, dim_x;
    int64_t       top; /* gates kept; 0: all */
    const double *x;   /* [nq][dim_x] */
    double       *dx;  /* added to */
    /* Sets k, v, dk and dv of the part to those of route j. */
    void (*pick)(void *user, int64_t j, struct ref_part *part);
    void *user;
};

foci_status ref_routes_run(const struct ref_routes *r);

/*
 * One head of one sequence, opened
 */

/* One row of attention.  Columns are keys, and after them slots; what belongs to a
 * column that is not seen is not defined. */
struct ref_row {
    uint32_t *times; /* a column is seen; 0: not at all */
    uint8_t  *held;  /* a column takes no gradient from the row */
    double   *s;     /* x = cap(mix f s + other sources + bias) + log(times) */
    double   *x;     /* logits */
    double   *slope; /* of the cap */
    double   *a;     /* weights */
    double   *keep;  /* dropout factors of the weights: o = sum a keep v */
    double   *da, *dx;
    int64_t   visible;
    double    factor; /* product of the row factors */
    double    f;
    double    a_sink; /* weight that the sink took */
    double    lse;    /* log of the divisor; -inf where it would be 0 */
    double    n;      /* the divisor of relu2 */
};

enum { REF_SOURCES = 5 }; /* of logits */

struct ref_head {
    const struct ref_part *p;
    foci_mech              mech; /* of this sequence: dims are its lengths */
    bool                   causal, rounds;
    int64_t                nq, nk, dqk, dv;
    int64_t                du; /* width of rows as the logits read them */
    int64_t                cols;
    int64_t                ld; /* of what has [nq][len_k] */

    /* Settings of the modifiers for all rows.  Parameters are offsets, -1: none. */
    bool            unit;
    double          scale, cap; /* cap 0: none */
    const foci_mod *rope;
    int64_t         sink, clip, shaw_k, shaw_v, txl_u, txl_w, txl_r;
    double         *far, *dfar; /* bias and its gradient by distance, [nq + nk] */

    /* Levels of slots; those of one are columns first[l] to first[l + 1]. */
    foci_slots levels[FOCI_MAX_LEVELS];
    int64_t    first[FOCI_MAX_LEVELS + 1];
    int        n_levels;
    bool       two_pass; /* two passes: slots are seen in the second only */

    foci_order order;
    double    *label_q, *label_k; /* [rounds][nq], [rounds][nk] */
    int64_t   *chunk;             /* [rounds][nk] */
    int64_t    n_labels;          /* where each takes some */
    uint8_t   *topk_q, *topk_k;   /* [n_labels][nq], [n_labels][nk] */

    /* sources.c: logits of one row that do not come from q and k, each source by itself
     * [sources][nk], and their gradient [nk]; one row of nets. */
    unsigned sources;
    double  *mix, *dmix; /* how much of each there is */
    double  *given, *dgiven;
    double  *net, *dnet;

    /* Rows as the logits read them, values with those of slots, and gradients. */
    double *uq, *duq;       /* [nq][du] */
    double *uk, *duk;       /* [cols][du] */
    double *v, *dv_cols;    /* [cols][dv] */
    double *maps;           /* scratch of maps.c */
    double *project[2];     /* rounded matrices that project q and k; NULL: none */
    double *spread;         /* [nk] weights of one row, by key */
    double *o, *g;          /* [dv] one row's output, and its gradient */
    double *y, *dy, *paths; /* of two_pass.c: [nq][dv] twice, [slots][nk] */

    struct ref_row row;
};

/* maps.c: maps of rows of q and k before their product: projected or standardised, divided
 * by their norms, rotated by their place. */
enum { REF_MAPS = 5 };
void ref_map_open(struct ref_head *h);
void ref_map(const struct ref_head *h, bool key, int64_t place, const double *x,
             double *u);
/* Add the gradients that follow from du to dx (NULL: not wanted) and to those of
 * parameters. */
void ref_map_back(const struct ref_head *h, bool key, int64_t place, const double *x,
                  const double *du, double *dx);
/* The row after the mechanism's own map alone. */
void ref_map_own(const struct ref_head *h, const double *x, double *u);

/* slots.c: fill uk and v of the slots from those of the keys; the way back.  Only uk
 * with two passes. */
void ref_slots_count(struct ref_head *h);
void ref_slots_fill(struct ref_head *h);
void ref_slots_fold(struct ref_head *h);
/* The weight of key j in a slot: one over their number, or a learned number. */
double ref_slot_share(const struct ref_head *h, bool value, int64_t column, int64_t j);
foci_range ref_slot_keys(const struct ref_head *h, int64_t column);
int        ref_slot_level(const struct ref_head *h, int64_t column);

/* labels.c: read the mechanism's order; find the labels of all rows. */
void ref_labels_count(struct ref_head *h);
void ref_labels_find(struct ref_head *h);
/* In how many rounds query i and key j have the same label. */
uint32_t ref_labels_agree(const struct ref_head *h, int64_t i, int64_t j);

/* sees.c: which columns query i sees; of the keys that label t took; of the slots
 * alone, with two passes. */
void ref_see(const struct ref_head *h, int64_t i, struct ref_row *r);
void ref_see_topk(const struct ref_head *h, int64_t i, int64_t t, struct ref_row *r);
void ref_see_slots(const struct ref_head *h, int64_t i, struct ref_row *r);

/* logits.c: read the modifiers; compute the logits of columns that are seen; and backward,
 * from r->dx, add to duq, duk, dfar and gradients of parameters. */
void ref_modifiers(struct ref_head *h);
void ref_distances(struct ref_head *h);
void ref_distances_back(const struct ref_head *h);
void ref_logits(const struct ref_head *h, int64_t i, struct ref_row *r);
void ref_logits_back(const struct ref_head *h, int64_t i, const struct ref_row *r);
/* The parameters that are added to value j for row i; -1: none. */
int64_t ref_value_row(const struct ref_head *h, int64_t i, int64_t j);

/* sources.c: find the sources, and the scratch for them; compute those of row i; backward,
 * from dgiven. */
void    ref_sources_open(struct ref_head *h);
int64_t ref_sources_scratch(const struct ref_head *h);
void    ref_sources_fill(const struct ref_head *h, int64_t i);
void    ref_sources_back(const struct ref_head *h, int64_t i);
/* The share of all sources but q.k in logit j; and the factor of q.k. */
double ref_sources_sum(const struct ref_head *h, int64_t j);
double ref_sources_pairs(const struct ref_head *h);
/* Backward through the weights of the mixture. */
void ref_sources_close(const struct ref_head *h);

/* weights.c: a, a_sink and lse; the way back, from r->da to r->dx, where mean is
 * sum a da.  The result is the gradient of the sink's logit. */
void   ref_weigh(const struct ref_head *h, struct ref_row *r);
double ref_weigh_back(const struct ref_head *h, const struct ref_row *r, double mean);

/* drop.c: the dropout factors of the weights of row i. */
void ref_drop(const struct ref_head *h, int64_t i, struct ref_row *r);

/* rows.c: output of row i, whose columns are set, to `o`; the way back. */
void ref_attend(const struct ref_head *h, int64_t i, struct ref_row *r, double *o);
void ref_attend_back(const struct ref_head *h, int64_t i, const struct ref_row *r,
                     const double *o, const double *g);
/* Add `by` times the weights of a row, those of slots shared out, to to[nk]. */
void ref_spread(const struct ref_head *h, const struct ref_row *r, double by,
                double *to);
/* Write h->spread as the weights of row i, and clear it. */
void ref_report(const struct ref_head *h, int64_t i);

/* All rows, forward and, with a gradient, backward. */
void ref_rows_plain(struct ref_head *h);
void ref_rows_topk(struct ref_head *h);
void ref_rows_two_pass(struct ref_head *h); /* two_pass.c */

#endif
