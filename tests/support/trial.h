/* trial.h -- executions to compare: inputs drawn from a seed, results as doubles.
 *
 * A property test names specs and problems; this runs the engine and the judge on
 * them and says where two results part.
 */
#ifndef FOCI_TRIAL_H
#define FOCI_TRIAL_H

#include "plan/plan.h"
#include "ref/ref.h"
#include "support/levels.h"
#include "test.h"

enum { SPEC_CAP = 384 };

/*
 * Specs (specs.c)
 */

/* Make known to ctx mechanisms that the library does not have: masks with and
 * without tiles, over each kind of weights. */
void specs_register(foci_ctx *ctx);
/* The same of mechanisms whose decoding keeps less than all tokens, or more (kept.c). */
void kept_register(foci_ctx *ctx);

/* Spec number i of all that the lists of ctx offer: each mechanism alone, with each
 * modifier it takes, with as many as go together; arguments at their presets in one,
 * drawn in another; fewer with FOCI_TEST_SHORT.  false beyond the last. */
bool specs_next(foci_ctx *ctx, int i, char spec[SPEC_CAP]);
/* FOCI_TEST_SPECS is not set, or the spec starts so. */
bool specs_wanted(const char *spec);

/* A plan of `spec` on the problem, with what the spec asks for besides: lists, hidden
 * states, key/value heads for routes, values as wide as keys where slots are both.  NULL where the mechanism refuses this problem
 * (causal, unequal lengths...); any other failure fails the test. */
foci_plan *trial_plan(foci_ctx *ctx, const char *spec, const foci_problem *p);

/*
 * Trials (trial.c)
 */

/* What a trial gives at execution. */
enum {
    TRIAL_LENS = 1,  /* random len_q and len_k */
    TRIAL_DOCS = 2,  /* random documents; problem.max_docs of them */
    TRIAL_FROZEN = 4 /* statistics as parameters, also where q and k would give them */
};

/* Inputs.  Tensors have the layouts of the problem. */
struct trial {
    char         spec[SPEC_CAP];
    foci_problem p; /* as planned */
    uint64_t     seed;
    void        *q, *k, *v, *x, *g; /* q and k: NULL in every other trial that
                                     * reads none */
    float       *params;
    int32_t     *len_q, *len_k, *docs, *words;
    uint8_t     *mask;
    float       *bias;
    float       *seen; /* the judge's weights, where trial_sees() needed them */
};

/* What an execution on it is given: all but results, scratch and saved memory. */
foci_io trial_io(const struct trial *t);

/* What it draws: parameters near where training would find them; lengths up to `most`, the
 * last one so long; documents that leave a gap in front and behind, some of them empty;
 * words of one token and more, counted from 0 in every sequence, and numbers beyond a
 * length that are not for reading. */
void trial_params(const foci_plan *plan, uint64_t seed, struct rng *r, float *params);
int32_t *trial_lens(struct rng *r, int64_t n, int64_t most);
int32_t *trial_docs(struct rng *r, int64_t n, int64_t len);
int32_t *trial_words(const foci_plan *plan, const foci_io *io, struct rng *r);

struct trial trial_make(const foci_plan *plan, const char *spec, uint64_t seed,
                        unsigned gives);
void         trial_free(struct trial *t);

/* Element t of a row: where it lies. */
int64_t trial_at(const foci_layout *l, int64_t b, int64_t row, int64_t head, int64_t t);

/* Whether query i of head h sees key j, both counted in the tensors; of slots, labels,
 * patterns and landmarks, whether the judge gives it any weight. */
bool trial_sees(const foci_plan *plan, struct trial *t, int64_t b, int64_t h, int64_t i,
                int64_t j);

enum part {
    PART_O,
    PART_LSE,
    PART_DQ,
    PART_DK,
    PART_DV,
    PART_DX,
    PART_DBIAS,
    PART_DPARAMS,
    N_PARTS
};
extern const char *const part_names[N_PARTS];

/* Results, packed as [batch][row][head][dim]; lse as [batch][head][row]; dx where x is
 * read, dbias where a bias is given. */
struct result {
    double *x[N_PARTS];
    int64_t n[N_PARTS];
};

/* Forward and, if planned so, backward.  Scratch is poisoned first; what lies
 * between the rows of results must stay as it was. */
struct result trial_run(const foci_plan *plan, const struct trial *t);
/* By the judge, without rounding; `rounds` as in ref_call. */
struct result trial_judge(const foci_plan *plan, const struct trial *t, bool rounds);
void          result_free(struct result *r);

/* The error that rounding of operands makes in the judge, root mean squares over trials
 * beside t. */
void trial_roundings(const foci_plan *plan, const struct trial *t, double off[N_PARTS]);

/* Fail with all that is needed to run the case again. */
void trial_fail(const foci_plan *plan, const struct trial *t, const char *what,
                int64_t index, double got, double want);

/* Same bits in all parts. */
void trial_equal(const foci_plan *plan, const struct trial *t, const char *what,
                 const struct result *got, const struct result *want);

/* Close enough to `want`, the judge's, for the problem's dtype and flags; `rounded` is
 * the judge's with rounded operands, read where the engine may round too. */
void trial_close(const foci_plan *plan, const struct trial *t, const struct result *got,
                 const struct result *want, const struct result *rounded);

/* Whether it is read there; else any will do, and `want` is at hand. */
bool trial_needs_words(const foci_plan *plan);

/* Within `slack` times what that allows, for cases that were not chosen: of very many
 * some are further off than their yardstick says. */
void trial_close_within(const foci_plan *plan, const struct trial *t, double slack,
                        const struct result *got, const struct result *want,
                        const struct result *rounded);

double rms(const double *x, int64_t n);

/* Whether a group, or what it routes, goes by this engine; by another than the exact one,
 * and then has no lse. */
bool               trial_is(const foci_plan *plan, foci_engine engine);
bool               trial_is_other(const foci_plan *plan);
static inline bool trial_is_linear(const foci_plan *plan)
{
    return trial_is(plan, FOCI_ENGINE_LINEAR);
}

/* Whether some matrix A has o = A v. */
bool trial_has_weights(const foci_plan *plan);

/* What a plan reads: flags FOCI_READ. */
unsigned trial_reads(const foci_plan *plan);

/* Whether a modifier of the first group does any of this. */
bool trial_does(const foci_plan *plan, unsigned does);

/* The head of the problem that float i of the parameters belongs to. */
int64_t trial_param_head(const foci_plan *plan, int64_t i);

#endif
