/* layers.h -- executions of layers to compare: inputs drawn from a seed, results as
 * doubles, from the library and from the judge. */
#ifndef FOCI_TESTS_LAYERS_H
#define FOCI_TESTS_LAYERS_H

#include "ref/layer.h"
#include "support/trial.h"

/* What an execution is given beside x. */
enum {
    LAYER_LENS = 1,    /* random lengths */
    LAYER_DOCS = 2,    /* random documents; problem.max_docs of them */
    LAYER_RESIDUAL = 4 /* something to add to */
};

/* Inputs.  x, source, memory, residual and dy have elements of the problem's type. */
struct layer_case {
    char               spec[SPEC_CAP];
    foci_layer_problem p; /* as the layer has it */
    uint64_t           seed;
    void              *x, *source, *memory, *residual, *dy;
    int32_t           *lens, *lens_source, *docs, *words;
    uint8_t           *mask;
    float             *bias, *params;
};

enum layer_part {
    LAYER_Y,
    LAYER_DX,
    LAYER_DSOURCE,
    LAYER_DBIAS,
    LAYER_DPARAMS,
    LAYER_PARTS
};
extern const char *const layer_part_names[LAYER_PARTS];

struct layer_result {
    double     *x[LAYER_PARTS];
    int64_t     n[LAYER_PARTS];
    const void *rows[3]; /* of a layer that keeps them: q, k and v, somewhere in saved */
    void       *saved;
    bool        given; /* the judge was handed these rows */
};

/* A layer, with the lists that the spec asks for; NULL where it is not offered.  Any
 * other failure fails the test. */
foci_layer *layers_make(foci_ctx *ctx, const char *spec, const foci_layer_problem *p);

/* False: refused, as layer/errors.c sees.  Slots, keys and values at once, of two widths;
 * keys tied to queries of another number or width; frames of more columns than rows;
 * transforms of an odd width. */
bool layers_fit(const char *spec, const foci_layer_problem *p);

/* Mixes of 8 heads: groups that read different things, with gaps between those that read
 * the same. */
struct layer_mix {
    const char *spec;
    int64_t     kv_heads;
};
enum { N_LAYER_MIXES = 11 };
extern const struct layer_mix layer_mixes[N_LAYER_MIXES];

struct layer_case layers_draw(const foci_layer *layer, const char *spec, uint64_t seed,
                              unsigned gives);
void              layer_case_free(struct layer_case *c);

/* What an execution is given: all but y, scratch and saved memory. */
foci_layer_io layer_case_io(const struct layer_case *c);

/* Forward and, if it was made so, backward.  Scratch is poisoned first; gradients of
 * parameters are seen to be added. */
struct layer_result layers_run(const foci_layer *layer, const struct layer_case *c);
/* By the judge; `rounds` as in ref_layer_call. */
struct layer_result layers_judge(const foci_layer *layer, const struct layer_case *c,
                                 bool rounds);
/* By the rows of another execution: labels, gates and the like are then chosen alike. */
struct layer_result layers_judge_by(const foci_layer *layer, const struct layer_case *c,
                                    bool rounds, const struct layer_result *by);
/* Whether there is anything to choose that rounded rows may choose otherwise. */
bool layers_choose(const foci_layer *layer, const struct layer_case *c);
void layer_result_free(struct layer_result *r);

/* Fail with all that is needed to run the case again. */
void layers_fail(const foci_layer *layer, const struct layer_case *c, const char *what,
                 int64_t index, double got, double want);

/* Same bits. */
void layers_equal(const foci_layer *layer, const struct layer_case *c, const char *what,
                  const struct layer_result *got, const struct layer_result *want);

/* Close enough to the judge for the type of the problem, every tensor of parameters by
 * itself; `rounded` is the yardstick. */
void layers_close(const foci_layer *layer, const struct layer_case *c,
                  const struct layer_result *got, const struct layer_result *want,
                  const struct layer_result *rounded);

/* n numbers that two executions of the library made, with sums in another order: within
 * 2e-5 of their root mean square, or of 16 bits within 2^-6, and no one of them off by
 * more than 16 times that. */
void layers_near(const foci_layer *layer, const struct layer_case *c, const char *what,
                 const double *got, const double *want, int64_t n);

/* The tensor of that name, and its number; -1: there is none. */
int layers_find(const foci_layer *layer, const char *name, foci_param *param);

/* Tensors before those of the plan. */
int layers_own(const foci_layer *layer);

/* For runs under sanitizers and emulation. */
static inline bool layers_brief(void) { return getenv("FOCI_TEST_SHORT") != NULL; }

#endif
