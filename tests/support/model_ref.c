/* model_ref.c -- a model written out in double.  Layers take and give floats. */
#include <math.h>

#include "support/model_ref.h"
#include "test.h"

/* A batch in one stack. */
struct ref {
    const foci_model   *m;
    const float        *params;
    const struct stack *s;
    int64_t             batch, len, rows, width, source_len;
    const int32_t      *ids, *lens, *words, *source_lens;
    const float        *patches;
    const double       *source;
};

static double *room(int64_t n) { return test_alloc((size_t)n, sizeof(double)); }

static bool valid(const struct ref *r, int64_t row)
{
    return !r->lens || row % r->len < r->lens[row / r->len];
}

static double *embed(const struct ref *r)
{
    const foci_model_config *c = &r->m->config;
    const bool               waves = c->positions == FOCI_POSITIONS_SINUSOID;
    double                  *x = room(r->rows * r->width);

    for (int64_t i = 0; i < r->rows; i++)
        for (int64_t t = 0; t < r->width && valid(r, i); t++) {
            double sum = 0;
            if (c->patch) {
                sum = (double)r->params[r->s->patch_bias + t];
                for (int64_t k = 0; k < c->patch; k++)
                    sum += (double)r->patches[i * c->patch + k] *
                           (double)r->params[r->s->patch + k * r->width + t];
            } else {
                sum = (double)r->params[r->s->embedding + r->ids[i] * r->width + t] *
                      (waves ? sqrt((double)r->width) : 1);
            }
            if (r->s->positions >= 0)
                sum += (double)r->params[r->s->positions + i % r->len * r->width + t];
            if (waves) sum += (double)r->s->waves[i % r->len * r->width + t];
            x[i * r->width + t] = sum;
        }
    return x;
}

static double *norm(const struct ref *r, const double *x, int64_t gain, int64_t bias)
{
    const bool rms = r->m->config.norm == FOCI_NORM_RMS;
    double    *y = room(r->rows * r->width);

    for (int64_t i = 0; i < r->rows; i++) {
        const double *from = x + i * r->width;
        double        mean = 0, square = 0;
        for (int64_t t = 0; t < r->width && !rms; t++)
            mean += from[t] / (double)r->width;
        for (int64_t t = 0; t < r->width; t++)
            square += (from[t] - mean) * (from[t] - mean) / (double)r->width;
        for (int64_t t = 0; t < r->width; t++)
            y[i * r->width + t] =
                (from[t] - mean) / sqrt(square + 1e-5) * (double)r->params[gain + t] +
                (bias >= 0 ? (double)r->params[bias + t] : 0);
    }
    return y;
}

static double *convolve(const struct ref *r, double *x, int64_t w)
{
    double *y = room(r->rows * r->width);

    for (int64_t i = 0; i < r->rows; i++)
        for (int64_t t = 0; t < r->width && valid(r, i); t++)
            for (int64_t k = 0; k < r->m->config.conv && k <= i % r->len; k++)
                y[i * r->width + t] +=
                    (double)r->params[w + k * r->width + t] * x[(i - k) * r->width + t];
    free(x);
    return y;
}

static float *floats(const double *x, int64_t n)
{
    float *y = test_alloc((size_t)n, sizeof *y);
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)x[i];
    return y;
}

static foci_layer *ref_layer(const struct ref *r, const struct attention *a)
{
    foci_layer_problem p = a->problem;
    foci_layer        *layer = NULL;

    p.dtype = FOCI_F32;
    p.batch = r->batch;
    p.len = r->len;
    if (p.len_source) p.len_source = r->source_len;
    if (foci_layer_create(r->m->ctx, a->spec, &p, &layer))
        fail_msg("%s: %s", a->spec, foci_errmsg(r->m->ctx));
    return layer;
}

/* x += layer(conv(norm(x))) */
static void attend(const struct ref *r, const struct attention *a, double *x)
{
    const int64_t n = r->rows * r->width;
    const int64_t rest = a->problem.memory * r->batch * r->width;
    const bool    cross = a->problem.len_source > 0;
    double       *rows = norm(r, x, a->gain, a->bias);
    foci_layer   *layer = ref_layer(r, a);

    if (a->conv >= 0) rows = convolve(r, rows, a->conv);
    float *in = floats(rows, n), *out = test_alloc((size_t)n, sizeof *out);
    float *memory = test_alloc((size_t)rest, sizeof *memory);
    float *source =
        cross ? floats(r->source, r->batch * r->source_len * r->width) : NULL;
    void               *work = test_alloc(foci_layer_work_bytes(layer), 1);
    const foci_layer_io io = { FOCI_SIZED(foci_layer_io),
                               .x = in,
                               .source = source,
                               .y = out,
                               .lens = r->lens,
                               .memory = rest ? memory : NULL,
                               .lens_source = cross ? r->source_lens : NULL,
                               .words = r->words,
                               .params = r->params + a->params,
                               .work = work };
    if (foci_ref_layer_forward(layer, &io))
        fail_msg("%s: %s", a->spec, foci_errmsg(r->m->ctx));
    for (int64_t i = 0; i < n; i++)
        x[i] += (double)out[i];
    foci_layer_free(layer);
    free(rows), free(in), free(out), free(memory), free(source), free(work);
}

static double activate(foci_act act, double x)
{
    const double pi = 3.14159265358979323846;

    switch (act) {
    case FOCI_ACT_RELU: return x > 0 ? x : 0;
    case FOCI_ACT_GELU: return x * (1 + erf(x / sqrt(2))) / 2;
    case FOCI_ACT_GELU_TANH:
        return x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x))) / 2;
    case FOCI_ACT_SILU: return x / (1 + exp(-x));
    case FOCI_ACT_NONE: break;
    }
    return x;
}

/* One row times a matrix, plus a bias. */
static void times(const struct ref *r, const double *x, int64_t k, int64_t w,
                  int64_t bias, int64_t n, double *y)
{
    for (int64_t c = 0; c < n; c++) {
        y[c] = bias >= 0 ? (double)r->params[bias + c] : 0;
        for (int64_t t = 0; t < k; t++)
            y[c] += x[t] * (double)r->params[w + t * n + c];
    }
}

/* x += act(norm(x) W1 + b1) W2 + b2 */
static void feed(const struct ref *r, const struct feed_forward *f, double *x)
{
    const foci_model_config *c = &r->m->config;
    double                  *rows = norm(r, x, f->gain, f->bias);
    double *pre = room(ffn_columns(c)), *a = room(c->ffn), *y = room(r->width);

    for (int64_t i = 0; i < r->rows; i++) {
        times(r, rows + i * r->width, r->width, f->w1, f->b1, ffn_columns(c), pre);
        for (int64_t t = 0; t < c->ffn; t++)
            a[t] = activate(c->activation, pre[t]) * (c->gated ? pre[c->ffn + t] : 1);
        times(r, a, c->ffn, f->w2, f->b2, r->width, y);
        for (int64_t t = 0; t < r->width; t++)
            x[i * r->width + t] += y[t];
    }
    free(rows), free(pre), free(a), free(y);
}

/* Every row is the last one and the sinusoid of its own place, through one more layer. */
static void read_last(const struct ref *r, double *x)
{
    double *last = room(r->width);

    for (int64_t b = 0; b < r->batch; b++) {
        double *rows = x + b * r->len * r->width;
        memcpy(last, rows + (r->lens[b] - 1) * r->width,
               (size_t)r->width * sizeof *last);
        for (int64_t i = 0; i < r->len * r->width; i++) {
            const int64_t c = i % r->width;
            const double  angle = (double)(i / r->width) /
                                 pow(10000, (double)(c - c % 2) / (double)r->width);
            rows[i] = last[c] + (c % 2 ? cos(angle) : sin(angle));
        }
    }
    feed(r, &r->s->reader, x);
    free(last);
}

/* Rows behind the last norm. */
static double *run(const struct ref *r)
{
    double *x = embed(r);

    for (int64_t b = 0; b < r->s->n; b++) {
        const struct model_block *block = &r->s->blocks[b];
        attend(r, &block->self, x);
        if (r->s->cross) attend(r, &block->cross, x);
        if (r->m->config.ffn) feed(r, &block->ffn, x);
    }
    if (r->m->config.from_last) read_last(r, x);
    double *y = norm(r, x, r->s->gain, r->s->bias);
    free(x);
    return y;
}

static double row_loss(const struct ref *r, const double *h, int64_t vocab,
                       int32_t label, double smoothing)
{
    double *logits = room(vocab), most = -INFINITY, sum = 0, loss = 0;

    for (int64_t v = 0; v < vocab; v++) {
        if (r->m->out_bias >= 0) logits[v] = (double)r->params[r->m->out_bias + v];
        for (int64_t t = 0; t < r->width; t++)
            logits[v] += h[t] * (double)r->params[r->m->out + v * r->width + t];
        most = fmax(most, logits[v]);
    }
    for (int64_t v = 0; v < vocab; v++)
        sum += exp(logits[v] - most);
    for (int64_t v = 0; v < vocab; v++)
        loss -= (logits[v] - most - log(sum)) *
                (smoothing / (double)vocab + (v == label ? 1 - smoothing : 0));
    free(logits);
    return loss;
}

/* One row for each sequence. */
static double *pool(const struct ref *r, const double *h)
{
    const bool first = r->m->config.pooling == FOCI_POOLING_FIRST;
    double    *y = room(r->batch * r->width);

    for (int64_t b = 0; b < r->batch; b++) {
        const int64_t n = first ? 1 : r->lens ? r->lens[b] : r->len;
        for (int64_t i = 0; i < n; i++)
            for (int64_t t = 0; t < r->width; t++)
                y[b * r->width + t] += h[(b * r->len + i) * r->width + t] / (double)n;
    }
    return y;
}

double model_ref_loss(const foci_model *m, const foci_batch *batch, const float *params,
                      double smoothing)
{
    const bool classifies = m->config.task == FOCI_MODEL_CLASSIFY;
    struct ref r = { .m = m,
                     .params = params,
                     .s = &m->stacks[m->n_stacks - 1],
                     .batch = batch->batch,
                     .len = batch->len,
                     .rows = batch->batch * batch->len,
                     .width = m->config.width,
                     .ids = batch->ids,
                     .lens = batch->lens,
                     .words = batch->words,
                     .patches = batch->patches };
    double    *source = NULL, loss = 0;

    if (m->n_stacks > 1) {
        struct ref e = r;
        e.s = &m->stacks[0];
        e.len = batch->source_len;
        e.rows = e.batch * e.len;
        e.ids = batch->source_ids;
        e.lens = batch->source_lens;
        e.words = batch->source_words;
        r.source = source = run(&e);
        r.source_len = e.len;
        r.source_lens = e.lens;
    }
    double *h = run(&r);
    if (classifies) {
        double *pooled = pool(&r, h);
        free(h);
        h = pooled;
    }
    const int32_t *labels = classifies ? batch->classes : batch->labels;
    for (int64_t i = 0; i < (classifies ? r.batch : r.rows); i++)
        if (labels[i] >= 0)
            loss += row_loss(&r, h + i * r.width,
                             classifies ? m->config.classes : m->config.vocab,
                             labels[i], smoothing);
    free(h), free(source);
    return loss;
}
