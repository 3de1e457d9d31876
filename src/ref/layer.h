/* layer.h -- the judge of layers: the projections around a plan, in double precision.
 *
 * It uses the layer's problem, its plan and its tensors by name, and nothing else of it.
 * Everything is a place: rows of heads side by side.  Projections lead from one place to
 * another, the plan from q, k and v to o.
 */
#ifndef FOCI_REF_LAYER_H
#define FOCI_REF_LAYER_H

#include "foci/layer.h"
#include "ref/ref.h"

/* An execution, as ref_call: tensors have elements of `type`; io->params and
 * grads->dparams are not looked at. */
struct ref_layer_call {
    const foci_layer       *layer;
    const foci_layer_io    *io;
    const foci_layer_grads *grads; /* NULL: forward only */
    int                     type;
    const double           *params;  /* as foci_layer_param() lays them out */
    double                 *dparams; /* added to; or NULL */

    /* Round all tensors between x and y to the layer's type, and the operands of products as
     * engines do. */
    bool rounds;

    /* Rows of q, k and v, laid out as in the plan, of the layer's type, in place of the
     * projections of x: labels are chosen by the rounded rows of a layer.  NULL: none. */
    const void *rows[3];
};

foci_status ref_layer_run(const struct ref_layer_call *call);

enum ref_at {
    REF_X,
    REF_SOURCE,
    REF_MEMORY,
    REF_U, /* gau: the gates, conv: a and b; before their activations */
    REF_W, /* gau: values, likewise */
    REF_Z, /* gau: the input of q and k, likewise */
    REF_Q,
    REF_K,
    REF_V,
    REF_O,
    REF_G, /* gau: o behind its gates */
    REF_Y,
    REF_PLACES
};

/* Rows, and their gradients: element t of row i of head h of entry b of the batch is at
 * x[b l.batch + i l.row + h l.head + t]. */
struct ref_place {
    foci_layout l;
    int64_t     rows, heads, dim;
    double     *x, *d;
};

/* to = from W + bias, for some heads of `to`; row 0 of `from` makes row row0 of `to`. */
struct ref_link {
    enum ref_at from, to;
    int64_t     row0, head0, heads;
    int         weights, bias; /* tensors of the layer; bias -1: none */
    double     *w;             /* [columns of from][cols] */
    int64_t     cols;
};

struct ref_pass {
    const struct ref_layer_call *call;
    foci_ctx                    *ctx;
    foci_layer_problem           p;
    const foci_plan             *plan;
    int                          own; /* tensors before those of the plan */
    int64_t                      own_floats;
    int                          place, operand; /* types that each is rounded to */
    struct ref_place             at[REF_PLACES];
    struct ref_link             *links; /* the output's is the last */
    int                          n_links, cap_links;
    int64_t  gamma[2], beta[2]; /* gau: offsets of those of q and of k; -1: none */
    float   *drawn;             /* scratch for a frozen tensor */
    int32_t *lens_k;
    double  *plan_params, *dplan; /* those of the plan, zero at first */
};

static inline double *ref_element(const struct ref_place *p, double *x, int64_t b,
                                  int64_t i, int64_t col)
{
    return x + b * p->l.batch + i * p->l.row + col / p->dim * p->l.head + col % p->dim;
}

/* The valid rows of a place, of entry b. */
foci_range ref_valid(const struct ref_pass *x, enum ref_at at, int64_t b);

/* layer_links.c: the tensor of that name, in a mix of that group, and its offset; -1:
 * none, or none stored.  All links; memory for their weights, and these as products
 * read them.  One link forward; and back, which adds. */
int         ref_find(const struct ref_pass *x, int group, const char *name);
int64_t     ref_offset(const struct ref_pass *x, int tensor);
foci_status ref_links_open(struct ref_pass *x);
void        ref_links_carve(struct ref_pass *x, struct arena *scratch);
foci_status ref_links_load(const struct ref_pass *x);
void        ref_link_run(const struct ref_pass *x, const struct ref_link *l);
void        ref_link_back(const struct ref_pass *x, const struct ref_link *l);

/* layer_made.c: tensors and floats before those of the plan; the plan's from the layer's,
 * and their gradients back. */
void ref_made_count(struct ref_pass *x);
void ref_made_fill(const struct ref_pass *x);
void ref_made_back(const struct ref_pass *x);

/* layer_gates.c: between products and plan, and back. */
void ref_gates_in(const struct ref_pass *x);
void ref_gates_out(const struct ref_pass *x);
void ref_gates_out_back(const struct ref_pass *x);
void ref_gates_in_back(const struct ref_pass *x);
/* The dropout factor of element c of row i of y. */
double ref_keep_out(const struct ref_pass *x, int64_t b, int64_t i, int64_t c);

#endif
