/* evaluate.c -- the loss of a model over a data set, in the usual units. */
#include <math.h>
#include <string.h>

#include "train/evaluate.h"

static foci_status add_batch(foci_model *m, const foci_batch *batch, foci_carry *carry,
                             struct evaluate_totals *t)
{
    const foci_loss_options o = { FOCI_SIZED(foci_loss_options), .carry = carry };
    foci_loss               loss = { FOCI_SIZED(foci_loss) };

    TRY(foci_model_loss(m, batch, &o, NULL, &loss));
    t->loss.sum += loss.sum;
    t->loss.labels += loss.labels;
    t->loss.hits += loss.hits;
    t->loss.sequences += loss.sequences;
    t->loss.exact += loss.exact;
    t->characters += batch->n_chars;
    t->words += batch->n_words;
    return FOCI_OK;
}

/* Batches that go on from one another have the same rows in each. */
static foci_status pass_over(foci_model *m, foci_data *data, int64_t batches,
                             foci_carry **carry, struct evaluate_totals *t)
{
    int64_t rows = 0;

    TRY(foci_data_rewind(data, 0));
    for (int64_t i = 0; !batches || i < batches; i++) {
        foci_batch batch = { FOCI_SIZED(foci_batch) };
        TRY(foci_data_next(data, &batch));
        if (!batch.batch) break;
        if (batch.batch != rows) {
            foci_carry_free(*carry);
            *carry = NULL;
            TRY(foci_carry_create(m, batch.batch, carry));
            rows = batch.batch;
        }
        TRY(add_batch(m, &batch, *carry, t));
    }
    return FOCI_OK;
}

static double exp_of(double nats, int64_t n) { return n ? exp(nats / (double)n) : 0; }

foci_status evaluate_scores(const foci_model *m, const struct evaluate_totals *t,
                            foci_scores *scores)
{
    const double      nats = t->loss.sum, bit = log(2);
    const int64_t     n = t->loss.labels, sequences = t->loss.sequences;
    const foci_scores s = {
        .tokens = n,
        .characters = t->characters,
        .words = t->words,
        .nats = nats,
        .loss = n ? nats / (double)n : 0,
        .perplexity = exp_of(nats, n),
        .word_perplexity = exp_of(nats, t->words),
        .character_perplexity = exp_of(nats, t->characters),
        .bits_per_character = t->characters ? nats / bit / (double)t->characters : 0,
        .accuracy = n ? (double)t->loss.hits / (double)n : 0,
        .exact = sequences ? (double)t->loss.exact / (double)sequences : 0,
    };
    return sized_out(m->ctx, "foci_scores", scores, &s, sizeof s);
}

foci_status foci_evaluate(foci_model *model, foci_data *data, int64_t batches,
                          foci_scores *scores)
{
    struct evaluate_totals t;
    foci_carry            *carry = NULL;

    if (!model || !data)
        return ctx_fail(model ? model->ctx : NULL, FOCI_ERR_ARG,
                        "foci_evaluate: the %s NULL", model ? "data are" : "model is");
    TRY(sized_check(model->ctx, "foci_scores", scores, sizeof *scores));
    memset(&t, 0, sizeof t);
    const foci_status status = pass_over(model, data, batches, &carry, &t);
    foci_carry_free(carry);
    TRY(status);
    return evaluate_scores(model, &t, scores);
}
