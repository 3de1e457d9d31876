/* ridge.c -- the output layer in closed form.
 *
 * With h the rows that the output is computed of (a 1 behind them for the bias) and Y their
 * labels as unit vectors, W = (H^T H + ridge I)^-1 H^T Y.  Both products are summed in
 * double over one pass; Huang et al., "Extreme learning machine" (2006).  What W gives are
 * estimates of probabilities, between 0 and 1 for the most part, and as logits nearly all
 * alike.  So W is multiplied by one factor: the likeliest label stays, and the loss, which is
 * convex in the factor, is the least on validation data that this W can have. */
#include <math.h>
#include <string.h>

#include "train/pass.h"

struct ridge {
    foci_model *m;
    int64_t     d, vocab; /* width and 1, if there is a bias; labels */
    double     *gram;     /* [d][d], lower triangle */
    double     *right;    /* [vocab][d] */
    double     *factor;   /* [d][d] */
    double     *row;      /* [d] */
    float      *best;     /* [vocab][width] and [vocab] */
    double      diagonal;
};

static void row_of(const struct ridge *r, const void *h, int64_t i)
{
    const foci_model_config *c = &r->m->config;

    for (int64_t t = 0; t < c->width; t++) {
        const int64_t at = i * c->width + t;
        float         x;
        if (c->dtype == FOCI_F32) {
            x = ((const float *)h)[at];
        } else {
            const uint32_t bits = (uint32_t)((const uint16_t *)h)[at] << 16;
            memcpy(&x, &bits, sizeof x);
        }
        r->row[t] = (double)x;
    }
    if (r->d > c->width) r->row[c->width] = 1;
}

/* What one row adds to both sides of the equations. */
static void add_row(const struct ridge *r, int32_t label)
{
    for (int64_t i = 0; i < r->d; i++) {
        for (int64_t j = 0; j <= i; j++)
            r->gram[i * r->d + j] += r->row[i] * r->row[j];
        r->right[label * r->d + i] += r->row[i];
    }
}

static foci_status add_batch(struct ridge *r, const foci_batch *given, int64_t step)
{
    foci_model              *m = r->m;
    const foci_loss_options  o = { FOCI_SIZED(foci_loss_options), .calibrate = step };
    const struct pass_shape *shape;
    struct output_rows       rows;
    foci_batch               batch;
    struct model_pass        x;

    TRY(batch_check(m, given, &batch));
    TRY(shape_find(m, &batch, EXTENT_LOSS, &shape));
    pass_begin(&x, m, &batch, shape);
    x.o = &o;
    TRY(pass_memory(&x));
    TRY(pass_forward(&x));
    TRY(pass_output_rows(&x, &rows));
    for (int64_t i = 0; i < rows.rows; i++) {
        const int32_t label = rows.labels[i];
        if (label < 0) continue;
        if (label >= r->vocab)
            return ctx_fail(m->ctx, FOCI_ERR_ARG, "label %d is not below %lld", label,
                            (long long)r->vocab);
        row_of(r, rows.h, i);
        add_row(r, label);
    }
    return FOCI_OK;
}

/* Generated data that never ends is taken for so many batches. */
static foci_status gather(struct ridge *r, foci_data *data)
{
    enum { MOST = 1000 };
    foci_data_info info = { FOCI_SIZED(foci_data_info) };

    TRY(foci_data_get_info(data, &info));
    const int64_t most = info.n_batches > 0 ? info.n_batches : MOST;
    TRY(foci_data_rewind(data, 0));
    for (int64_t i = 0; i < most; i++) {
        foci_batch batch = { FOCI_SIZED(foci_batch) };
        TRY(foci_data_next(data, &batch));
        if (!batch.batch) break;
        TRY(add_batch(r, &batch, i == 0));
    }
    for (int64_t t = 0; t < r->d; t++)
        r->diagonal += r->gram[t * r->d + t] / (double)r->d;
    return FOCI_OK;
}

/* L L^T = gram + ridge I, lower triangle; false: it is not positive. */
static bool cholesky(struct ridge *r, double ridge)
{
    const int64_t d = r->d;

    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = r->gram[i * d + j] + (i == j ? ridge : 0);
            for (int64_t k = 0; k < j; k++)
                sum -= r->factor[i * d + k] * r->factor[j * d + k];
            if (i == j && !(sum > 0)) return false;
            r->factor[i * d + j] = i == j ? sqrt(sum) : sum / r->factor[j * d + j];
        }
    return true;
}

/* One label: factor, then its transpose; the result is its row of the output layer. */
static void solve_label(const struct ridge *r, int64_t label, double *x)
{
    const int64_t            d = r->d;
    const foci_model_config *c = &r->m->config;

    for (int64_t i = 0; i < d; i++) {
        x[i] = r->right[label * d + i];
        for (int64_t k = 0; k < i; k++)
            x[i] -= r->factor[i * d + k] * x[k];
        x[i] /= r->factor[i * d + i];
    }
    for (int64_t i = d - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < d; k++)
            x[i] -= r->factor[k * d + i] * x[k];
        x[i] /= r->factor[i * d + i];
    }
    for (int64_t t = 0; t < c->width; t++)
        r->m->params[r->m->out + label * c->width + t] = (float)x[t];
    if (r->d > c->width) r->m->params[r->m->out_bias + label] = (float)x[c->width];
}

/* The output layer of the model, and the best one. */
struct output {
    float *weights, *bias; /* bias NULL: there is none */
};

static struct output output_of(const struct ridge *r, bool best)
{
    const foci_model *m = r->m;
    float            *own_bias = m->out_bias < 0 ? NULL : m->params + m->out_bias;

    return (struct output){
        .weights = best ? r->best : m->params + m->out,
        .bias = best && own_bias ? r->best + r->vocab * m->config.width : own_bias,
    };
}

static void keep_output(const struct ridge *r)
{
    const struct output own = output_of(r, false), best = output_of(r, true);
    const size_t        n = (size_t)(r->vocab * r->m->config.width);

    memcpy(best.weights, own.weights, n * sizeof *own.weights);
    if (own.bias) memcpy(best.bias, own.bias, (size_t)r->vocab * sizeof *own.bias);
}

/* The best output layer times a factor becomes that of the model. */
static void put_output(const struct ridge *r, float factor)
{
    const struct output own = output_of(r, false), best = output_of(r, true);

    for (int64_t i = 0; i < r->vocab * r->m->config.width; i++)
        own.weights[i] = factor * best.weights[i];
    for (int64_t i = 0; own.bias && i < r->vocab; i++)
        own.bias[i] = factor * best.bias[i];
}

/* The ridge that is best on validation data; where there are none, the smallest. */
static foci_status choose(struct ridge *r, foci_data *valid,
                          const foci_ridge_options *o, double *best)
{
    double most = -1;

    for (int i = 0; i < o->n_ridges; i++) {
        foci_scores s = { FOCI_SIZED(foci_scores) };
        if (!cholesky(r, o->ridges[i] * r->diagonal)) continue;
        for (int64_t v = 0; v < r->vocab; v++)
            solve_label(r, v, r->row);
        if (valid) TRY(foci_evaluate(r->m, valid, 0, &s));
        if (!(s.accuracy > most)) continue;
        most = s.accuracy;
        *best = o->ridges[i];
        keep_output(r);
    }
    if (most < 0)
        return ctx_fail(r->m->ctx, FOCI_ERR_ARG,
                        "no ridge makes the equations solvable: give larger ones");
    return FOCI_OK;
}

static foci_status loss_at(struct ridge *r, foci_data *valid, double exponent,
                           double *loss)
{
    foci_scores s = { FOCI_SIZED(foci_scores) };

    put_output(r, (float)exp2(exponent));
    TRY(foci_evaluate(r->m, valid, 0, &s));
    *loss = s.loss;
    return FOCI_OK;
}

/* The factor of the least loss, between 1 and 256, by golden section over its logarithm.
 * Without validation data it is 1. */
static foci_status stretch(struct ridge *r, foci_data *valid)
{
    enum { SECTIONS = 12 }; /* to 1 % */
    const double golden = 0.61803398874989485;
    double       low = 0, high = 8, at[2], loss[2];

    put_output(r, 1);
    if (!valid) return FOCI_OK;
    at[0] = high - golden * (high - low);
    at[1] = low + golden * (high - low);
    for (int k = 0; k < 2; k++)
        TRY(loss_at(r, valid, at[k], &loss[k]));
    for (int i = 0; i < SECTIONS; i++) {
        const int kept = loss[0] < loss[1] ? 0 : 1, other = 1 - kept;
        if (kept == 0)
            high = at[1];
        else
            low = at[0];
        at[other] = at[kept];
        loss[other] = loss[kept];
        at[kept] =
            kept == 0 ? high - golden * (high - low) : low + golden * (high - low);
        TRY(loss_at(r, valid, at[kept], &loss[kept]));
    }
    put_output(r, (float)exp2((low + high) / 2));
    return FOCI_OK;
}

static foci_status take_memory(struct ridge *r)
{
    foci_ctx    *ctx = r->m->ctx;
    const size_t d = (size_t)r->d, vocab = (size_t)r->vocab;

    r->gram = ctx_alloc(ctx, d * d, sizeof *r->gram);
    r->factor = ctx_alloc(ctx, d * d, sizeof *r->factor);
    r->right = ctx_alloc(ctx, vocab * d, sizeof *r->right);
    r->row = ctx_alloc(ctx, d, sizeof *r->row);
    r->best = ctx_alloc(ctx, vocab * (d + 1), sizeof *r->best);
    return r->gram && r->factor && r->right && r->row && r->best ? FOCI_OK
                                                                 : FOCI_ERR_MEMORY;
}

static void free_memory(struct ridge *r)
{
    foci_ctx    *ctx = r->m->ctx;
    const size_t d = (size_t)r->d, vocab = (size_t)r->vocab;

    if (r->gram) ctx_free(ctx, r->gram, d * d, sizeof *r->gram);
    if (r->factor) ctx_free(ctx, r->factor, d * d, sizeof *r->factor);
    if (r->right) ctx_free(ctx, r->right, vocab * d, sizeof *r->right);
    if (r->row) ctx_free(ctx, r->row, d, sizeof *r->row);
    if (r->best) ctx_free(ctx, r->best, vocab * (d + 1), sizeof *r->best);
}

foci_status foci_model_ridge(foci_model *model, foci_data *train, foci_data *valid,
                             const foci_ridge_options *options, double *ridge)
{
    static const double presets[] = { 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10 };
    foci_ridge_options  o = { FOCI_SIZED(foci_ridge_options) };
    double              best = 0;

    if (!model || !train)
        return ctx_fail(model ? model->ctx : NULL, FOCI_ERR_ARG,
                        "foci_model_ridge: the %s NULL",
                        model ? "data are" : "model is");
    if (options) TRY(sized_in(model->ctx, "foci_ridge_options", &o, options, sizeof o));
    if (!model->config.untied)
        return ctx_fail(model->ctx, FOCI_ERR_UNSUP,
                        "the output layer is the embedding: make the model untied");
    if (!o.ridges) {
        o.ridges = presets;
        o.n_ridges = sizeof presets / sizeof *presets;
    }
    struct ridge r = { .m = model, .d = model->config.width + (model->out_bias >= 0) };
    r.vocab = model->config.task == FOCI_MODEL_CLASSIFY ? model->config.classes
                                                        : model_last(model)->vocab;
    foci_status status = take_memory(&r);
    if (!status) status = gather(&r, train);
    if (!status) status = choose(&r, valid, &o, &best);
    if (!status) status = stretch(&r, valid);
    free_memory(&r);
    if (!status && ridge) *ridge = best;
    return status;
}
