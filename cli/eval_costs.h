/* eval_costs.h -- what the files of foci eval --costs share. */
#ifndef FOCI_CLI_EVAL_COSTS_H
#define FOCI_CLI_EVAL_COSTS_H

#include "cli/eval.h"

/* One attention of the model.  Sums over batches; why: there is no such number. */
struct cost_attention {
    char   name[64], *spec;
    double concentration, error; /* sums of the means over heads */
    int    n_concentrations, n_errors;
    char   no_concentration[400], no_error[400];
};

struct costs {
    int64_t len, source_len; /* tokens of the longest sequence, and of its source */
    int64_t trained, parameters;
    double  forward_flops, training_flops; /* a token */
    int64_t state_bytes, peak_bytes;
    double  decoding, forward; /* tokens a second */
    char    no_state[400];
    struct cost_attention *attention; /* [n] */
    size_t                 n, cap;
    foci_ctx              *ctx;
    foci_status            failed; /* looking at heads */
};

/* The next batch of this pass; of 0 rows behind the last. */
foci_status costs_next_batch(const struct judged *j, foci_batch *b);

/* eval_heads.c: look at heads while batches go through the model.  A mean over the attentions
 * that have a number, or of one; NaN: none has. */
foci_status heads_look(const struct judged *j, struct costs *c);
double      heads_concentration(const struct cost_attention *a);
double      heads_error(const struct cost_attention *a);
double heads_overall(const struct costs *c, double (*of)(const struct cost_attention *));

/* eval_costs_tell.c */
json_t *costs_json(const struct costs *c);
void    costs_print(const struct costs *c);

#endif
