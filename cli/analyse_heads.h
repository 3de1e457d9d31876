/* analyse_heads.h -- between the files of `foci analyse` that look at the weights of heads. */
#ifndef FOCI_CLI_ANALYSE_HEADS_H
#define FOCI_CLI_ANALYSE_HEADS_H

#include "cli/analyse.h"
#include "foci/analyse.h"

enum { HEADS_TOP = 8 }; /* what foci_heads_options.top is left 0 */

struct heads_view;

/* Heads that belong together: those of an attention of a model, or all there are. */
struct heads_layer {
    struct heads_view *view;
    char              *name, *spec; /* NULL: there is none */
    int64_t            index, n;    /* place in the model; heads */
    int64_t            first;       /* sequences that were added before */
    foci_heads        *heads;       /* NULL: `why` */
    char               why[400];
    double *loss; /* [n] nats a label without the head; NULL: not asked for */
};

/* All that is looked at. */
struct heads_view {
    const struct args   *a;
    foci_ctx            *ctx;
    struct heads_layer **layers;
    size_t               n, cap;
    const char          *of;   /* "weights.npy", for people */
    double               loss; /* nats a label with all heads; NaN: not asked for */
    int64_t              labels;
    json_t              *rows;     /* of --rows */
    struct output_table *row_file; /* of --rows with --csv */
};

/* analyse_heads.c */
void heads_open(struct heads_view *v, const struct args *a, foci_ctx *ctx,
                const char *of);
void heads_close(struct heads_view *v);
/* The layer of this name, made when it is new: *layer, or its status and the message in ctx. */
foci_status heads_layer(struct heads_view *v, const char *name, const char *spec,
                        int64_t index, int64_t n, struct heads_layer **layer);
/* Write what --out, --csv and --json ask for, or print it. */
int heads_show(const struct heads_view *v);

/* analyse_heads_plot.c: S and entropy, a colour for each layer. */
foci_status heads_draw(const struct heads_view *v, const char *path);

/* analyse_weights.c: refuse files that cannot be written, and rows that go nowhere; EXIT_OK, or a
 * status with the message printed.  The verb of that name. */
int                heads_check(const struct args *a);
const struct verb *verb_named(const char *name);

/* analyse_model.c: the command line as `foci eval` would have it, for eval_open(). */
struct eval_line {
    struct verb verb;
    struct args args;
};
void eval_line_open(const struct args *a, int64_t batch, struct eval_line *l);
void eval_line_close(struct eval_line *l);

/* The mean of a figure over the heads that have it; NaN: none has. */
double heads_mean(const struct heads_layer *l, int figure);

/* The pattern that a head follows most, and its share; -1: there are no shares. */
int heads_pattern(const foci_head *h, double *share);

#endif
