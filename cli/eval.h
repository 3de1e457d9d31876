/* eval.h -- what the files of foci eval share: a model, the data that judge it, and what is
 * told of labels on the way. */
#ifndef FOCI_CLI_EVAL_H
#define FOCI_CLI_EVAL_H

#include "cli/train.h"
#include "cli/translations.h"

struct judged {
    const struct args   *a;
    foci_ctx            *ctx;
    foci_model          *model;
    foci_model_config    config;
    foci_tokenizer      *tokenizer;
    foci_data           *data;
    json_t              *notes;   /* train.json of the folder; NULL: not read */
    struct args          trained; /* the command in it; verb NULL: not read */
    struct train_sources sources; /* of that command */
    const char         **classes;
    struct train_source  from;
};

/* eval_open.c: the model in the folder that is the first word, and the data that the options say,
 * which are those of `foci eval`.  EXIT_OK, or a status with the message printed; eval_close() in
 * both cases. */
extern const char *const eval_splits[];
int                      eval_open(const struct args *a, struct judged *j);
void                     eval_close(struct judged *j);

/* The label that number i of a batch should have been, and the row that it is in. */
static inline int32_t batch_label(const foci_batch *b, int64_t i)
{
    return b->classes ? b->classes[i] : b->labels[b->label_at[i]];
}

static inline int64_t batch_row(const foci_batch *b, int64_t i)
{
    return b->classes ? i : b->label_at[i] / b->len;
}

/* Labels that have something in common. */
struct tally {
    int64_t labels, hits;
    double  nats;
};

static inline void tally_add(struct tally *t, bool hit, double nats)
{
    t->labels++;
    t->hits += hit;
    t->nats += nats;
}

/* eval_state.c: scores of all data, with --state by decoding.  EXIT_OK, or a status with the
 * message printed. */
int eval_scores(const struct judged *j, foci_labels_fn labels, void *user,
                foci_scores *scores);

/* eval_weights.c: the weights of all heads on the first sequence, as JSON.  EXIT_OK, or a
 * status with the message printed. */
int weights_write(const struct judged *j, const char *path);

/*
 * eval_slices.c: labels by the slices of a task.  A slice of more than 16 values is told in
 * powers of two: 0 and less as they are, then 1, 2 to 3, 4 to 7 and so on.
 */

struct slices;
struct slices *slices_open(const foci_data *data);
void           slices_add(struct slices *s, const foci_batch *b, const float *nats,
                          const int32_t *best);
json_t        *slices_json(const struct slices *s);
void           slices_print(const struct slices *s, FILE *out);
void           slices_free(struct slices *s);

/*
 * eval_outputs.c: a line of JSON for each example, sentence or window, in their order.
 */

struct outputs;
struct outputs *outputs_open(void);
/* The rows of a batch. */
void outputs_add_rows(struct outputs *o, const foci_batch *b, const float *nats,
                      const int32_t *best);
void outputs_add_translation(struct outputs *o, const struct translation *t);
int  outputs_write(const struct args *a, foci_ctx *ctx, struct outputs *o,
                   const char *path);
void outputs_free(struct outputs *o);

/*
 * eval_costs.c: what the model costs.
 */

/* What was seen of the data that the model was judged by. */
struct seen {
    int64_t rows, tokens, labels; /* tokens of rows, without sources */
    int64_t len, source_len;      /* of the longest */
};
void seen_add(struct seen *s, const foci_batch *b);

/* Measure and count, and print a table or put "costs" into o. */
int costs_tell(const struct judged *j, const struct seen *seen, json_t *o);

#endif
