/* attentions.c -- the weights of all heads of a model on a sequence, attention by attention.
 *
 * They are those of the judge, foci_ref_weights(), of queries and keys that a layer projected.
 * Models whose tensors are as long as the context read padded rows: of these nothing is told.
 */
#include <stdio.h>
#include <string.h>

#include "foci/analyse.h"
#include "train/model.h"

#define MOST_WEIGHTS 0x1p28

struct looking {
    foci_model             *model;
    foci_attention_fn       told;
    void                   *user;
    foci_status             status;
    foci_attention_weights *a; /* of the attention that is looked at */
    float                  *weights;
    size_t                  n;
    char                    why[400];
};

/* What is there, beside weights. */
static void describe(const struct looking *l, const foci_observation *o,
                     const foci_layer_problem *p, foci_attention_weights *a)
{
    const foci_layer_io *io = o->io;
    const int64_t        len = io->lens ? io->lens[0] : p->len;
    const bool           two = l->model->n_stacks > 1;
    const bool           source = p->len_source > 0;

    a->name = o->name;
    a->spec = o->spec;
    a->index = o->index;
    a->layer = o->layer;
    a->heads = p->heads;
    a->queries = len;
    a->memory = p->memory;
    a->keys = p->memory + len;
    a->query_side = two && o->index < l->model->stacks[0].n;
    a->key_side = a->query_side || source;
    if (source) a->keys = io->lens_source ? io->lens_source[0] : p->len_source;
}

/* Leave out rows and columns that are padding. */
static void crop(float *weights, int64_t heads, int64_t len_q, int64_t len_k,
                 int64_t queries, int64_t keys)
{
    float *to = weights;

    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < queries; i++, to += keys)
            memmove(to, weights + (h * len_q + i) * len_k, (size_t)keys * sizeof *to);
}

static foci_status weigh(struct looking *l, const foci_observation *o)
{
    const foci_plan *plan = foci_layer_plan(o->layer);
    foci_ctx        *ctx = l->model->ctx;
    foci_problem     p = { FOCI_SIZED(foci_problem) };
    foci_io          heads = { FOCI_SIZED(foci_io) };

    TRY(foci_plan_get_problem(plan, &p));
    const double all = (double)p.heads * (double)p.len_q * (double)p.len_k;
    if (all > MOST_WEIGHTS)
        return ctx_fail(ctx, FOCI_ERR_UNSUP,
                        "its tensors are as long as the context, and %.3g weights are "
                        "more than the %.3g that are computed",
                        all, MOST_WEIGHTS);
    l->n = (size_t)(p.heads * p.len_q * p.len_k);
    l->weights = ctx_alloc(ctx, l->n, sizeof *l->weights);
    if (!l->weights) return FOCI_ERR_MEMORY;
    TRY(foci_layer_heads(o->layer, o->io, &heads));
    TRY(foci_ref_weights(plan, &heads, l->weights));
    crop(l->weights, p.heads, p.len_q, p.len_k, l->a->queries, l->a->keys);
    l->a->heads = p.heads;
    l->a->weights = l->weights;
    return FOCI_OK;
}

static int look(void *user, const foci_observation *o)
{
    struct looking        *l = user;
    foci_ctx              *ctx = l->model->ctx;
    foci_attention_weights a = { FOCI_SIZED(foci_attention_weights) };
    foci_layer_problem     p = { FOCI_SIZED(foci_layer_problem) };
    int                    enough = 0;

    l->a = &a;
    l->weights = NULL;
    l->status = foci_layer_get_problem(o->layer, &p);
    if (!l->status) {
        describe(l, o, &p, &a);
        l->status = weigh(l, o);
    }
    if (l->status == FOCI_ERR_UNSUP) {
        snprintf(l->why, sizeof l->why, "%s", foci_errmsg(ctx));
        a.why = l->why;
        l->status = FOCI_OK;
    }
    if (!l->status) enough = l->told(l->user, &a);
    if (l->weights) ctx_free(ctx, l->weights, l->n, sizeof *l->weights);
    return enough || l->status;
}

foci_status foci_model_attentions(foci_model *model, const foci_batch *batch,
                                  int64_t len, foci_attention_fn attention, void *user)
{
    struct looking l = { .model = model, .told = attention, .user = user };

    if (!model || !attention)
        return ctx_fail(model ? model->ctx : NULL, FOCI_ERR_ARG,
                        "foci_model_attentions: %s is NULL",
                        model ? "attention" : "the model");
    TRY(foci_model_observe(model, batch, 1, len, look, &l));
    return l.status;
}
