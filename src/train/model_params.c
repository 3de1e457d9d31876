/* model_params.c -- the tensors of a model: names, places, and how they start.
 *
 * Embeddings start as normals of variance 1/width where they are scaled by sqrt(width),
 * else of deviation 0.02; matrices as normals of variance 1/rows.  Matrices
 * whose products are added to the residual are divided by the root of the number of these
 * terms. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/model.h"

/*
 * The table
 */

static foci_status grow(foci_model *m)
{
    if (m->n_tensors < m->cap_tensors) return FOCI_OK;
    const int            cap = m->cap_tensors ? 2 * m->cap_tensors : 64;
    struct model_tensor *more = ctx_alloc(m->ctx, (size_t)cap, sizeof *more);

    if (!more) return FOCI_ERR_MEMORY;
    if (m->tensors) {
        memcpy(more, m->tensors, (size_t)m->n_tensors * sizeof *more);
        ctx_free(m->ctx, m->tensors, (size_t)m->cap_tensors, sizeof *more);
    }
    m->tensors = more;
    m->cap_tensors = cap;
    return FOCI_OK;
}

/* "encoder.0.ffn.W1", without the first part where there is one stack. */
static void name_tensor(struct model_tensor *t, const struct stack *s, const char *name)
{
    snprintf(t->name, sizeof t->name, "%s%s%s", s && *s->name ? s->name : "",
             s && *s->name ? "." : "", name);
}

static foci_status add(foci_model *m, const struct stack *s, const char *name,
                       int64_t rows, int64_t cols, int64_t *offset)
{
    TRY(grow(m));
    struct model_tensor *t = &m->tensors[m->n_tensors++];

    *t = (struct model_tensor){ .n_dims = rows ? 2 : 1,
                                .keep = FOCI_KEEP_TRAINED,
                                .decays = rows > 0 };
    t->shape[0] = rows ? rows : cols;
    t->shape[1] = rows ? cols : 0;
    t->count = rows ? rows * cols : cols;
    t->offset = m->floats;
    name_tensor(t, s, name);
    m->floats = round_up(m->floats + t->count, 16);
    if (offset) *offset = t->offset;
    return FOCI_OK;
}

/* Tensors of a layer: matrices of its own decay, what a mechanism owns does not. */
static foci_status add_layer(foci_model *m, const struct stack *s, struct attention *a,
                             const char *prefix)
{
    foci_param p = { FOCI_SIZED(foci_param) };
    char       name[96];

    a->params = m->floats;
    for (int i = 0; i < foci_layer_param_count(a->layer); i++) {
        TRY(foci_layer_param(a->layer, i, &p));
        TRY(grow(m));
        struct model_tensor *t = &m->tensors[m->n_tensors++];
        *t = (struct model_tensor){ .count = p.count,
                                    .n_dims = p.n_dims,
                                    .keep = p.keep };
        memcpy(t->shape, p.shape, sizeof t->shape);
        t->offset = p.offset < 0 ? -1 : a->params + p.offset;
        const char *last = strrchr(p.name, '.');
        t->decays = p.n_dims == 2 && (last ? last[1] : p.name[0]) == 'W';
        snprintf(name, sizeof name, "%.40s.%.48s", prefix, p.name);
        name_tensor(t, s, name);
    }
    m->floats = round_up(m->floats + foci_layer_param_floats(a->layer), 16);
    return FOCI_OK;
}

static foci_status add_norm(foci_model *m, const struct stack *s, const char *prefix,
                            int64_t *gain, int64_t *bias)
{
    const int64_t width = m->config.width;
    char          name[64];

    snprintf(name, sizeof name, "%s.gain", prefix);
    TRY(add(m, s, name, 0, width, gain));
    *bias = -1;
    if (m->config.norm == FOCI_NORM_RMS) return FOCI_OK;
    snprintf(name, sizeof name, "%s.bias", prefix);
    return add(m, s, name, 0, width, bias);
}

static foci_status add_attention(foci_model *m, const struct stack *s,
                                 struct attention *a, int64_t block, const char *what)
{
    char prefix[40], name[64];

    snprintf(prefix, sizeof prefix, "%lld.%s", (long long)block, what);
    snprintf(name, sizeof name, "%s.norm", prefix);
    TRY(add_norm(m, s, name, &a->gain, &a->bias));
    a->conv = -1;
    snprintf(name, sizeof name, "%s.conv", prefix);
    if (m->config.conv && !a->problem.len_source)
        TRY(add(m, s, name, m->config.conv, m->config.width, &a->conv));
    return add_layer(m, s, a, prefix);
}

static foci_status add_ffn(foci_model *m, const struct stack *s, struct feed_forward *f,
                           const char *prefix)
{
    const foci_model_config *c = &m->config;
    const int64_t            columns = ffn_columns(c);
    char                     name[64];
    const struct {
        const char *name;
        int64_t     rows, cols;
        int64_t    *offset;
    } all[] = {
        { "W1", c->width, columns, &f->w1 },
        { "b1", 0, columns, &f->b1 },
        { "W2", c->ffn, c->width, &f->w2 },
        { "b2", 0, c->width, &f->b2 },
    };

    snprintf(name, sizeof name, "%s.norm", prefix);
    TRY(add_norm(m, s, name, &f->gain, &f->bias));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i].offset = -1;
        if (!all[i].rows && !config_biases(c)) continue;
        snprintf(name, sizeof name, "%s.%s", prefix, all[i].name);
        TRY(add(m, s, name, all[i].rows, all[i].cols, all[i].offset));
    }
    return FOCI_OK;
}

/* Of translation with one vocabulary the embedding is that of the encoder. */
static foci_status add_inputs(foci_model *m, struct stack *s)
{
    const foci_model_config *c = &m->config;
    const bool               shares = s != m->stacks && !c->source_vocab;

    s->embedding = s->positions = s->patch = s->patch_bias = -1;
    if (c->patch) {
        TRY(add(m, s, "patch.W", c->patch, c->width, &s->patch));
        TRY(add(m, s, "patch.bias", 0, c->width, &s->patch_bias));
    } else if (shares) {
        s->embedding = m->stacks[0].embedding;
    } else {
        TRY(add(m, c->source_vocab ? s : NULL, "embedding", s->vocab, c->width,
                &s->embedding));
    }
    if (c->positions != FOCI_POSITIONS_LEARNED) return FOCI_OK;
    return add(m, s, "positions", s->context, c->width, &s->positions);
}

static foci_status add_output(foci_model *m)
{
    const foci_model_config *c = &m->config;
    const struct stack      *last = model_last(m);
    const bool               classifies = c->task == FOCI_MODEL_CLASSIFY;
    const int64_t            rows = classifies ? c->classes : last->vocab;

    m->out = last->embedding;
    m->out_bias = -1;
    if (c->untied) TRY(add(m, NULL, "output.W", rows, c->width, &m->out));
    if (c->untied && config_biases(c))
        TRY(add(m, NULL, "output.bias", 0, rows, &m->out_bias));
    return FOCI_OK;
}

foci_status model_tensors(foci_model *m)
{
    char prefix[40];

    for (int i = 0; i < m->n_stacks; i++) {
        struct stack *s = &m->stacks[i];
        TRY(add_inputs(m, s));
        for (int64_t b = 0; b < s->n; b++) {
            TRY(add_attention(m, s, &s->blocks[b].self, b, "attention"));
            if (s->cross) TRY(add_attention(m, s, &s->blocks[b].cross, b, "cross"));
            snprintf(prefix, sizeof prefix, "%lld.ffn", (long long)b);
            if (m->config.ffn) TRY(add_ffn(m, s, &s->blocks[b].ffn, prefix));
        }
        if (m->config.from_last) TRY(add_ffn(m, s, &s->reader, "reader"));
        TRY(add_norm(m, s, "norm", &s->gain, &s->bias));
    }
    return add_output(m);
}

/* Runs of floats that learn, neighbours of the same decay together. */
foci_status model_segments(foci_model *m)
{
    m->segments = ctx_alloc(m->ctx, (size_t)m->n_tensors, sizeof *m->segments);
    if (!m->segments) return FOCI_ERR_MEMORY;
    for (int i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *t = &m->tensors[i];
        if (t->keep != FOCI_KEEP_TRAINED || t->offset < 0 || !t->count) continue;
        m->segments[m->n_segments++] =
            (foci_segment){ t->offset, t->offset + t->count, t->decays };
        m->trained += t->count;
    }
    return FOCI_OK;
}

/*
 * Initial values
 */

/* Each tensor has a stream of its own, by its place (docs/random.md). */
static void draw(foci_model *m, int64_t offset, int64_t n, double deviation)
{
    const uint64_t first_stream = UINT64_C(1) << 40;
    struct rng     r;

    rng_seed(&r, m->config.seed, first_stream + (uint64_t)offset);
    for (int64_t i = 0; i < n; i++)
        m->params[offset + i] = (float)(deviation * rng_normal(&r));
}

/* Terms that the residual of a stack is the sum of. */
static double residual_terms(const foci_model *m, const struct stack *s)
{
    return (double)s->n * (1 + s->cross + (m->config.ffn > 0));
}

/* Wo of the layer, by name: that is what is added to the residual. */
static foci_status shrink_output(const foci_model *m, const struct attention *a,
                                 double factor)
{
    foci_param p = { FOCI_SIZED(foci_param) };

    for (int i = 0; i < foci_layer_param_count(a->layer); i++) {
        TRY(foci_layer_param(a->layer, i, &p));
        if (strcmp(p.name, "Wo") != 0) continue;
        float *w = m->params + a->params + p.offset;
        for (int64_t t = 0; t < p.count; t++)
            w[t] = (float)((double)w[t] * factor);
    }
    return FOCI_OK;
}

/* Every layer has a seed of its own, and the first tap of a convolution is the row itself. */
static foci_status init_attention(foci_model *m, const struct attention *a,
                                  double factor)
{
    const foci_model_config *c = &m->config;

    TRY(foci_layer_params_init(a->layer, c->seed + (uint64_t)a->index,
                               m->params + a->params));
    for (int64_t i = 0; a->conv >= 0 && i < c->width; i++)
        m->params[a->conv + i] = 1;
    return shrink_output(m, a, factor);
}

static void init_ffn(foci_model *m, const struct feed_forward *f, double factor)
{
    const foci_model_config *c = &m->config;

    draw(m, f->w1, c->width * ffn_columns(c), 1 / sqrt((double)c->width));
    draw(m, f->w2, c->ffn * c->width, factor / sqrt((double)c->ffn));
}

static foci_status init_stack(foci_model *m, struct stack *s)
{
    const foci_model_config *c = &m->config;
    const double             factor = 1 / sqrt(residual_terms(m, s)), little = 0.02;
    const bool               scaled = c->positions == FOCI_POSITIONS_SINUSOID;

    if (s->patch >= 0)
        draw(m, s->patch, c->patch * c->width, 1 / sqrt((double)c->patch));
    else
        draw(m, s->embedding, s->vocab * c->width,
             scaled ? 1 / sqrt((double)c->width) : little);
    if (s->positions >= 0) draw(m, s->positions, s->context * c->width, little);
    for (int64_t b = 0; b < s->n; b++) {
        TRY(init_attention(m, &s->blocks[b].self, factor));
        if (s->cross) TRY(init_attention(m, &s->blocks[b].cross, factor));
        if (c->ffn) init_ffn(m, &s->blocks[b].ffn, factor);
    }
    if (c->from_last) init_ffn(m, &s->reader, 1);
    return FOCI_OK;
}

/* Gains start at 1. */
static void init_gains(foci_model *m)
{
    for (int i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *t = &m->tensors[i];
        const size_t               len = strlen(t->name);
        if (len < 9 || strcmp(t->name + len - 9, "norm.gain") != 0) continue;
        for (int64_t k = 0; k < t->count; k++)
            m->params[t->offset + k] = 1;
    }
}

foci_status model_init(foci_model *m)
{
    const foci_model_config *c = &m->config;

    m->params = ctx_alloc(m->ctx, (size_t)m->floats, sizeof *m->params);
    if (!m->params) return FOCI_ERR_MEMORY;
    for (int i = 0; i < m->n_stacks; i++)
        TRY(init_stack(m, &m->stacks[i]));
    init_gains(m);
    if (!c->untied) return FOCI_OK;
    const int64_t rows =
        c->task == FOCI_MODEL_CLASSIFY ? c->classes : model_last(m)->vocab;
    draw(m, m->out, rows * c->width, 1 / sqrt((double)c->width));
    return FOCI_OK;
}
