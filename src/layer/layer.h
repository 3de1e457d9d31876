/* layer.h -- what a layer is made of. */
#ifndef FOCI_LAYER_INSIDE_H
#define FOCI_LAYER_INSIDE_H

#include "core/core.h"
#include "foci/layer.h"
#include "layer/frozen.h"
#include "product/product.h"

/* Rows of one kind and all heads of them, [heads][batch len][dim].  The plan's head
 * number `first` is the first that is there. */
struct buffer {
    int64_t first, heads, len, dim;
    bool    saved; /* backward reads it */
};

/* What lies between x and y, in the order of computation. */
enum place {
    PLACE_U, /* gau: gates before their activation; conv: a, then b */
    PLACE_W, /* gau: values before theirs */
    PLACE_Z, /* gau: what q and k are made of, before its activation */
    PLACE_Q,
    PLACE_K,
    PLACE_V,
    PLACE_O,
    N_PLACES
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

/* Sizes that a plan leaves to the layer, beside R of txl (layer_distances.c). */
struct distances {
    int     weights; /* parameter WR */
    int     param;   /* R among the plan's */
    int64_t rows;
};

struct foci_layer {
    foci_ctx           *ctx;
    foci_layer_problem  p; /* with what was left 0 filled in; no lists */
    foci_plan          *plan;
    int64_t             len_k; /* rows that give keys */
    struct buffer       places[N_PLACES];
    struct layer_param *params; /* the layer's own; the plan's follow */
    int                 n_params, cap_params;
    int64_t             own_floats, n_floats;
    struct projection  *projections;
    int                 n_projections, cap_projections;
    struct frozen      *frozen;
    int                 n_frozen, cap_frozen;
    int                 out, out_bias; /* parameters Wo and bo */
    int                 gamma[4];      /* gau: gamma_q, beta_q, gamma_k, beta_k */
    bool                reads_x, reads_words;
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

/* Rows of an execution that follow one another: from x (or the source), to rows of
 * queries and of keys. */
struct run {
    int64_t x, n, q, k;
};

/* An execution. */
struct pass {
    const foci_layer *layer;
    foci_layer_io     io;
    foci_layer_grads  g;
    struct run       *runs; /* [n_runs] of x */
    int64_t           n_runs;
    struct run       *others; /* of the source, or of the memory */
    int64_t           n_others;
    int32_t          *lens_k;         /* [batch], where memory makes them longer */
    char             *at[N_PLACES];   /* saved or not */
    char             *d_at[N_PLACES]; /* gradients */
    char             *plan_work, *plan_saved;
    void             *product_work;
    float            *bias;      /* [columns] of a product, side by side */
    struct part      *a, *b, *c; /* [cols] room for parts */
    char             *dy;        /* without what was dropped */
    char             *dx_plan;   /* what the plan adds to the gradient of x */
    float            *dx_sum;    /* where transforms add to it */
    float            *sums;      /* [threads][widest] of columns */
};

/* layer_pass.c: lay out what an execution needs; with base NULL, its size. */
void layer_take(const foci_layer *layer, struct pass *x, struct arena *work,
                struct arena *saved, bool backward);
/* Runs, and pointers into the caller's memory. */
void        layer_open(const foci_layer *layer, const foci_layer_io *io,
                       const foci_layer_grads *g, struct pass *x);
foci_io     layer_plan_io(const struct pass *x);
foci_layout layer_layout(const struct buffer *b, int64_t batch);
/* Where row 0 of the plan's head 0 is, or would be. */
char *layer_base(const foci_layer *layer, char *at, enum place place);

/* layer_gate.c: what gau and conv do between products and plan, and back. */
void layer_gate(struct pass *x);
void layer_gate_out(struct pass *x, char *to);
void layer_gate_back(struct pass *x);
void layer_gate_out_back(struct pass *x);

/* layer_check.c */
foci_status layer_whole_io(const foci_layer_io *io, const foci_layer_grads *grads,
                           foci_layer_io *whole, foci_layer_grads *whole_grads);
foci_status layer_check_all(const foci_layer *layer, const foci_layer_io *io,
                            const foci_layer_grads *grads, char *text, size_t cap);

#endif
