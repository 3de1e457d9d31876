/* evaluate.c -- the loss of a model over a data set, in the usual units. */
#include <math.h>

#include "train/model.h"

struct evaluation {
    foci_model    *m;
    foci_carry    *carry;
    foci_labels_fn labels;
    void          *user;
    foci_loss      loss;
    int64_t        characters, words;
    float         *nats; /* [cap] of a batch */
    int32_t       *best; /* [cap] */
    int64_t        cap;
};

static void free_labels(struct evaluation *e)
{
    if (e->nats) ctx_free(e->m->ctx, e->nats, (size_t)e->cap, sizeof *e->nats);
    if (e->best) ctx_free(e->m->ctx, e->best, (size_t)e->cap, sizeof *e->best);
    e->nats = NULL;
    e->best = NULL;
}

static foci_status reserve_labels(struct evaluation *e, int64_t n)
{
    if (!e->labels || n <= e->cap) return FOCI_OK;
    free_labels(e);
    e->cap = n;
    e->nats = ctx_alloc(e->m->ctx, (size_t)n, sizeof *e->nats);
    e->best = ctx_alloc(e->m->ctx, (size_t)n, sizeof *e->best);
    return e->nats && e->best ? FOCI_OK : FOCI_ERR_MEMORY;
}

static foci_status add_batch(struct evaluation *e, const foci_batch *batch, bool *ends)
{
    foci_loss loss = { FOCI_SIZED(foci_loss) };

    TRY(reserve_labels(e, batch->n_labels));
    const foci_loss_options o = { FOCI_SIZED(foci_loss_options), .carry = e->carry,
                                  .nats = e->nats, .best = e->best };
    TRY(foci_model_loss(e->m, batch, &o, NULL, &loss));
    e->loss.sum += loss.sum;
    e->loss.labels += loss.labels;
    e->loss.hits += loss.hits;
    e->loss.sequences += loss.sequences;
    e->loss.exact += loss.exact;
    e->characters += batch->n_chars;
    e->words += batch->n_words;
    *ends = e->labels && e->labels(e->user, batch, e->nats, e->best);
    return FOCI_OK;
}

/* Batches that go on from one another have the same rows in each. */
static foci_status pass_over(struct evaluation *e, foci_data *data, int64_t batches)
{
    int64_t rows = 0;
    bool    ends = false;

    TRY(foci_data_rewind(data, 0));
    for (int64_t i = 0; !ends && (!batches || i < batches); i++) {
        foci_batch batch = { FOCI_SIZED(foci_batch) };
        TRY(foci_data_next(data, &batch));
        if (!batch.batch) break;
        if (batch.batch != rows) {
            foci_carry_free(e->carry);
            e->carry = NULL;
            TRY(foci_carry_create(e->m, batch.batch, &e->carry));
            rows = batch.batch;
        }
        TRY(add_batch(e, &batch, &ends));
    }
    return FOCI_OK;
}

static double exp_of(double nats, int64_t n) { return n ? exp(nats / (double)n) : 0; }

static foci_scores scores_of(const struct evaluation *e)
{
    const double  nats = e->loss.sum, bit = log(2);
    const int64_t n = e->loss.labels, all = e->loss.sequences;

    return (foci_scores){
        .tokens = n,
        .characters = e->characters,
        .words = e->words,
        .nats = nats,
        .loss = n ? nats / (double)n : 0,
        .perplexity = exp_of(nats, n),
        .word_perplexity = exp_of(nats, e->words),
        .character_perplexity = exp_of(nats, e->characters),
        .bits_per_character = e->characters ? nats / bit / (double)e->characters : 0,
        .accuracy = n ? (double)e->loss.hits / (double)n : 0,
        .exact = all ? (double)e->loss.exact / (double)all : 0,
    };
}

foci_status foci_evaluate_labels(foci_model *model, foci_data *data, int64_t batches,
                                 foci_labels_fn labels, void *user, foci_scores *scores)
{
    struct evaluation e = { .m = model, .labels = labels, .user = user };

    if (!model || !data)
        return ctx_fail(model ? model->ctx : NULL, FOCI_ERR_ARG,
                        "foci_evaluate: the %s NULL", model ? "data are" : "model is");
    TRY(sized_check(model->ctx, "foci_scores", scores, sizeof *scores));
    const foci_status status = pass_over(&e, data, batches);
    foci_carry_free(e.carry);
    free_labels(&e);
    TRY(status);
    const foci_scores s = scores_of(&e);
    return sized_out(model->ctx, "foci_scores", scores, &s, sizeof s);
}

foci_status foci_evaluate(foci_model *model, foci_data *data, int64_t batches,
                          foci_scores *scores)
{
    return foci_evaluate_labels(model, data, batches, NULL, NULL, scores);
}
