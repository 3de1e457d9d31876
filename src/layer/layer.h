/* layer.h -- the data of a layer, and what its files share. */
#ifndef FOCI_LAYER_INSIDE_H
#define FOCI_LAYER_INSIDE_H

#include "core/core.h"
#include "foci/layer.h"
#include "layer/frozen.h"
#include "product/product.h"

/* The extents of a place, [heads][batch len][dim]; its first head is head number `first` of
 * the plan. */
struct layer_buffer {
    int64_t first, heads, len, dim;
};

/* Tensors between x and y, in the order of computation. */
enum place {
    PLACE_U, /* gau: gates before their activation; conv: a, then b */
    PLACE_W, /* gau: values before their activation */
    PLACE_Z, /* gau: the input of q and k, before its activation */
    PLACE_Q,
    PLACE_K,
    PLACE_V,
    PLACE_O,
    PLACE_H, /* gau: gated heads */
    LAYER_PLACES
};

/* How a tensor starts. */
enum start { START_ZERO, START_ONE, START_NORMAL, START_FRAME };

struct layer_param {
    char       name[64];
    int        n_dims;
    int64_t    shape[4];
    int64_t    offset, count;
    foci_keep  keep;
    enum start start;
    uint64_t   stream;
    int64_t    heads;  /* side by side, drawn one after another */
    int        frozen; /* number of the frozen projection it is; -1: stored */
};

/* Rows of x, or of the source, times weights, to some heads of a place. */
struct projection {
    enum place to;
    int64_t    head0, heads; /* of the place */
    int64_t    dim;
    bool       source;  /* of keys and values in cross-attention */
    int        weights; /* a parameter, stored or frozen */
    int        bias;    /* -1: none */
};

/* Rows for distances that a modifier reads as a parameter, R [heads][rows][dim]: a layer
 * computes them as waves times weights WR. */
struct distances {
    int     weights;
    int64_t offset, heads, rows, dim; /* where R is among the plan's floats */
};

struct foci_layer {
    foci_ctx           *ctx;
    foci_layer_problem  p; /* with what was left 0 filled in; no lists */
    foci_plan          *plan;
    int64_t             len_k; /* rows that give keys */
    struct layer_buffer places[LAYER_PLACES];
    struct layer_param *params; /* the layer's own; the plan's follow */
    int                 n_params, cap_params;
    int64_t             own_floats, n_floats;
    struct projection  *projections;
    int                 n_projections, cap_projections;
    struct frozen      *frozen;
    int                 n_frozen, cap_frozen;
    struct distances   *distances;
    int                 n_distances;
    float              *waves;         /* [len_k][width], if there are distances */
    int                 out, out_bias; /* parameters Wo and bo */
    int                 gamma[4];      /* gau: gamma_q, beta_q, gamma_k, beta_k */
    bool                reads_x;
    int                 cols; /* parts of the widest product */
    size_t              work_bytes, saved_bytes;
};

/* layer_params.c */
foci_status                params_add(foci_layer *layer, const struct layer_param *like,
                                      const char *format, ...) PRINTF_LIKE(3, 4);
foci_status                layer_params_plan(foci_layer *layer);
static inline const float *layer_tensor(const foci_layer *layer, int param,
                                        const float *params)
{
    return params + layer->params[param].offset;
}

/* layer_project.c: the projections of every kind of layer. */
foci_status layer_projections(foci_layer *layer);

/* layer_distances.c: find the tensors of the plan that the layer computes. */
foci_status layer_distances(foci_layer *layer);
void        layer_distances_free(foci_layer *layer);
/* How many of the plan's floats before `offset` are not stored; whether that one is. */
int64_t layer_made_before(const foci_layer *layer, int64_t offset);
bool    layer_makes(const foci_layer *layer, int64_t offset);
/* Copy the stored floats out of all floats of the plan. */
void layer_keep_stored(const foci_layer *layer, const float *all, float *stored);

/* n consecutive rows of an execution: from row x of x (or of the source) on, which are rows
 * from q on of queries and from k on of keys. */
struct layer_run {
    int64_t x, n, q, k;
};

/* A place in memory: element c of row i of head h is at (h - first) head + i row + c. */
struct layer_view {
    char   *data;
    int64_t row, head, first;
};

/* An execution. */
struct layer_pass {
    const foci_layer *layer;
    foci_layer_io     io;
    foci_layer_grads  g;
    struct layer_run *runs; /* [n_runs] of x */
    int64_t           n_runs;
    struct layer_run *others; /* of the source, or of the memory */
    int64_t           n_others;
    int32_t          *lens_k;           /* [batch], where memory makes them longer */
    struct layer_view at[LAYER_PLACES]; /* saved or not */
    struct layer_view d[LAYER_PLACES];  /* gradients */
    char             *plan_work, *plan_saved;
    float *plan_params, *plan_dparams; /* where the layer makes some of them */
    char  *product_work;
    void  *packed_own, *packed_out; /* weights for rows of x, and Wo; NULL */
    bool   active; /* u, w and z of a gau are behind their activation */
    float *bias;   /* [columns] of a product, side by side */
    struct product_part *a, *b, *c;  /* [cols] room for parts */
    float               *rows;       /* [threads][GATE_ROWS][row_floats] */
    int64_t              row_floats; /* the widest row */
    bool        padded[2]; /* x, source: one run of all rows, padding among them */
    char       *clean;     /* [rows][width] dy, x or source, without padding */
    const void *dy;        /* that of the caller, or clean */
    char       *dx_plan;   /* what the plan adds to the gradient of x */
    float      *dx_sum;    /* where transforms add to it */
};

/* Hidden states that are projected together: x, the source or the memory. */
struct hidden {
    const void *data;
    void   *d; /* their gradient; NULL: not wanted, and of the memory there is none */
    int64_t width;
    const struct layer_run *runs;
    int64_t                 n_runs;
    bool                    source, memory;
};

enum { GATE_ROWS = 6 }; /* that a thread has in floats at once */

static inline float *layer_scratch(const struct layer_pass *x, int thread)
{
    return x->rows + (int64_t)thread * GATE_ROWS * x->row_floats;
}

/* Whether a row of a place is one of queries; else of keys. */
static inline bool by_query(enum place place)
{
    return place != PLACE_K && place != PLACE_V;
}

/* Whether the projection applies to these rows: rows of the memory have keys and values
 * only. */
static inline bool hidden_gives(const struct hidden *r, const struct projection *to)
{
    return to->source == r->source && (!r->memory || !by_query(to->to));
}

static inline char *view_at(const foci_layer *layer, const struct layer_view *s,
                            int64_t head, int64_t row)
{
    const int64_t at = (head - s->first) * s->head + row * s->row;
    return s->data + (size_t)at * foci_dtype_bytes(layer->p.dtype);
}

/* layer_pass.c: carve the memory of an execution; a null arena counts.  saved NULL: nothing
 * is saved. */
void layer_carve(const foci_layer *layer, struct layer_pass *x, struct arena *work,
                 struct arena *saved, bool backward);
struct layer_view layer_carve_place(const foci_layer          *layer,
                                    const struct layer_buffer *b, int64_t batch,
                                    struct arena *a);
/* The scratch that steps need too, for products of `rows` rows. */
void layer_carve_scratch(const foci_layer *layer, struct layer_pass *x, int64_t rows,
                         bool backward, struct arena *a);
/* Set the pointers into the caller's memory, and the runs. */
void layer_open(const foci_layer *layer, const foci_layer_io *io,
                const foci_layer_grads *g, struct layer_pass *x);
/* The rows of x; and the rows of memory or source that give keys and values beside them or
 * in their place. */
struct hidden layer_own(const struct layer_pass *x);
struct hidden layer_others(const struct layer_pass *x);
foci_io       layer_plan_io(const struct layer_pass *x);
foci_grads    layer_plan_grads(const struct layer_pass *x);
/* The layout of a place in an execution of whole sequences. */
foci_layout layer_layout(const struct layer_buffer *b, int64_t batch);
/* Bytes that products of so many rows need. */
size_t layer_product_bytes(const foci_layer *layer, int64_t rows, bool backward);

/* layer_source.c: where the keys and values of a source are, if they are projected once. */
void layer_carve_source(const foci_layer *layer, int64_t batch,
                        struct layer_view at[LAYER_PLACES], struct arena *a);

/* layer_precompute.c: what of an execution follows from parameters alone, computed before or
 * now. */
void layer_open_made(struct layer_pass *x);

/* layer_distances.c: the plan's parameters, and what becomes of their gradients. */
void layer_make_params(struct layer_pass *x);
void layer_make_back(struct layer_pass *x);

/* layer_forward.c: x, source and memory to places; the heads to y. */
void layer_project(struct layer_pass *x);
void layer_project_others(struct layer_pass *x);
void layer_output(struct layer_pass *x);
/* The two products of so many rows, their weights in x->b: what they read and where it goes is
 * the caller's to add. */
struct product layer_projections_of(const struct layer_pass *x, const struct hidden *r,
                                    int64_t rows);
struct product layer_output_of(const struct layer_pass *x, int64_t rows);
/* Heads of a projection, and all heads on their way to y, as parts of a matrix; the result
 * is how many parts there are then. */
int layer_head_parts(const foci_layer *layer, const struct layer_view *at,
                     const struct projection *to, const struct layer_run *run,
                     struct product_part *parts, int n);
int layer_out_parts(const foci_layer *layer, const struct layer_view *at, int64_t row,
                    struct product_part *parts);
const float *layer_weights(const struct layer_pass *x, const struct projection *to);
/* NULL: it is a matrix. */
const struct frozen *layer_transform(const foci_layer        *layer,
                                     const struct projection *to);

/* layer_gate.c: the activations and gates of gau and conv, forward and backward. */
void layer_gate(struct layer_pass *x);
void layer_gate_out(struct layer_pass *x);
void layer_gate_back(struct layer_pass *x);
void layer_gate_out_back(struct layer_pass *x);

/* layer_rows.c: row-wise operations.  Sums of columns over the rows of an execution, of x or,
 * with `others`, of the source or the memory; rows are numbered as queries or as keys. */
struct layer_sums {
    const char *data; /* row 0, rows ld apart */
    int64_t     ld, cols;
    bool        keys, others;
};
/* out[cols] += the sums. */
void layer_sum_rows(const struct layer_pass *x, const struct layer_sums *s, float *out);
/* Apply the dropout mask of forward to dy. */
void layer_drop_back(struct layer_pass *x);
/* Rows of x, or of the source, with zeros as padding, for products that sum over rows: where
 * they are, or in x->clean. */
const void *layer_clean(const struct layer_pass *x, const void *rows, bool source);
/* The same of the gradients of heads, in place. */
void layer_clean_heads(const struct layer_pass *x);
/* Zero the rows of `to`, [batch][len][width] of x or of the source, that no run has. */
void layer_clear_rest(const struct layer_pass *x, void *to, bool source);
/* Store memory_next, for the next call. */
void layer_remember(const struct layer_pass *x);
/* to = dx_sum + plan (which may be NULL), in the rows of a run. */
void layer_store_sum(const struct layer_pass *x, const char *plan, void *to,
                     int64_t width, const struct layer_run *run);

/* layer_check.c */
/* Check and complete the structs of a call; without `engines` the checks of engines are left
 * out, for executions that change parameters. */
foci_status layer_open_call(const foci_layer *layer, const foci_layer_io *io,
                            const foci_layer_grads *grads, bool engines,
                            foci_layer_io *whole, foci_layer_grads *whole_grads);

#endif
