/* shapes.c -- batches of the same extents share their layers and the size of their
 * memory. */
#include <inttypes.h>
#include <string.h>

#include "train/pass.h"

enum { ALIGN = 64 };
enum { N_SHAPES = sizeof((foci_model *)0)->shapes / sizeof(struct pass_shape *) };

/*
 * Batches
 */

static foci_status check_stack(foci_model *m, const char *what, int64_t len,
                               int64_t context, const int32_t *ids)
{
    if (len < 1 || len > context)
        return ctx_fail(m->ctx, FOCI_ERR_ARG,
                        "%s of the batch are %" PRId64 " long; the model takes 1 to "
                        "%" PRId64,
                        what, len, context);
    if (!ids)
        return ctx_fail(m->ctx, FOCI_ERR_ARG, "the batch has no ids for %s", what);
    return FOCI_OK;
}

static foci_status check_kind(foci_model *m, const foci_batch *b)
{
    const foci_model_config *c = &m->config;
    const bool               classifies = c->task == FOCI_MODEL_CLASSIFY;

    if (classifies ? !b->classes : !b->labels)
        return ctx_fail(m->ctx, FOCI_ERR_ARG,
                        "the batch has no %s, which the model learns",
                        classifies ? "classes" : "labels");
    if (b->docs)
        return ctx_fail(m->ctx, FOCI_ERR_UNSUP,
                        "models take no packed documents: leave `pack` of the data 0");
    if (c->patch && (!b->patches || b->patch_width != c->patch))
        return ctx_fail(m->ctx, FOCI_ERR_ARG,
                        "patches of the batch have %" PRId64
                        " numbers; those of the model %" PRId64,
                        b->patches ? b->patch_width : 0, c->patch);
    return FOCI_OK;
}

/* Rows of len int32 to rows of `longer`, filled up with `pad`. */
static foci_status pad_rows(foci_model *m, int place, int64_t rows, int64_t len,
                            int64_t longer, int32_t pad, const int32_t **data)
{
    const size_t n = (size_t)(rows * longer);

    if (!*data) return FOCI_OK;
    if (m->padded_count[place] < n) {
        if (m->padded[place])
            ctx_free(m->ctx, m->padded[place], m->padded_count[place], sizeof(int32_t));
        m->padded_count[place] = 0;
        m->padded[place] = ctx_alloc(m->ctx, n, sizeof(int32_t));
        if (!m->padded[place]) return FOCI_ERR_MEMORY;
        m->padded_count[place] = n;
    }
    int32_t *to = m->padded[place];
    for (int64_t r = 0; r < rows; r++) {
        memcpy(to + r * longer, *data + r * len, (size_t)len * sizeof *to);
        for (int64_t i = len; i < longer; i++)
            to[r * longer + i] = pad;
    }
    *data = to;
    return FOCI_OK;
}

/* Lengths, which every padded batch has. */
static foci_status pad_lens(foci_model *m, int place, int64_t rows, int64_t len,
                            const int32_t **lens)
{
    int32_t full = (int32_t)len;

    if (*lens) return FOCI_OK;
    TRY(pad_rows(m, place, rows, 0, 1, full, &(const int32_t *){ &full }));
    *lens = m->padded[place];
    return FOCI_OK;
}

foci_status batch_pad(foci_model *m, foci_batch *b)
{
    const int64_t context = model_last(m)->context, source = m->stacks[0].context;

    if (!m->length_bound || m->config.patch) return FOCI_OK;
    if (b->len < context) {
        TRY(pad_lens(m, 3, b->batch, b->len, &b->lens));
        TRY(pad_rows(m, 0, b->batch, b->len, context, 0, &b->ids));
        TRY(pad_rows(m, 1, b->batch, b->len, context, -1, &b->labels));
        TRY(pad_rows(m, 2, b->batch, b->len, context, 0, &b->words));
        b->len = context;
    }
    if (m->n_stacks < 2 || b->source_len >= source) return FOCI_OK;
    TRY(pad_lens(m, 6, b->batch, b->source_len, &b->source_lens));
    TRY(pad_rows(m, 4, b->batch, b->source_len, source, 0, &b->source_ids));
    TRY(pad_rows(m, 5, b->batch, b->source_len, source, 0, &b->source_words));
    b->source_len = source;
    return FOCI_OK;
}

foci_status batch_check(foci_model *m, const foci_batch *given, foci_batch *batch)
{
    TRY(sized_in(m->ctx, "foci_batch", batch, given, sizeof *batch));
    if (batch->batch < 1)
        return ctx_fail(m->ctx, FOCI_ERR_ARG,
                        "the batch has %" PRId64 " rows; 1 is the "
                        "least",
                        batch->batch);
    TRY(check_kind(m, batch));
    const int32_t *const some =
        m->config.patch ? (const int32_t *)batch->patches : batch->ids;
    TRY(check_stack(m, "rows", batch->len, model_last(m)->context, some));
    if (m->n_stacks > 1)
        TRY(check_stack(m, "sources", batch->source_len, m->stacks[0].context,
                        batch->source_ids));
    return batch_pad(m, batch);
}

/*
 * Shapes
 */

static void shape_free(foci_model *m, struct pass_shape *s)
{
    if (!s) return;
    for (int64_t i = 0; s->layers && i < m->n_attentions; i++)
        foci_layer_free(s->layers[i]);
    if (s->layers)
        ctx_free(m->ctx, s->layers, (size_t)m->n_attentions, sizeof *s->layers);
    ctx_free(m->ctx, s, 1, sizeof *s);
}

void shapes_free(foci_model *m)
{
    for (int i = 0; i < N_SHAPES; i++)
        shape_free(m, m->shapes[i]);
    if (m->memory) ctx_free(m->ctx, m->memory, m->memory_bytes, 1);
    for (size_t i = 0; i < sizeof m->padded / sizeof *m->padded; i++)
        if (m->padded[i])
            ctx_free(m->ctx, m->padded[i], m->padded_count[i], sizeof(int32_t));
}

static foci_status make_layers(foci_model *m, struct pass_shape *s)
{
    s->layers = ctx_alloc(m->ctx, (size_t)m->n_attentions, sizeof *s->layers);
    if (!s->layers) return FOCI_ERR_MEMORY;
    const bool train = s->extent == EXTENT_GRADIENTS;
    const int  stacks = s->extent == EXTENT_ENCODER ? 1 : m->n_stacks;

    for (int i = 0; i < stacks; i++)
        for (int64_t b = 0; b < m->stacks[i].n; b++) {
            const struct attention *a = &m->stacks[i].blocks[b].self;
            TRY(attention_layer(m, a, s->batch, s->len[i], 0, train,
                                &s->layers[a->index]));
            if (!m->stacks[i].cross) continue;
            a = &m->stacks[i].blocks[b].cross;
            TRY(attention_layer(m, a, s->batch, s->len[i], s->len[0], train,
                                &s->layers[a->index]));
        }
    return FOCI_OK;
}

static foci_status measure(foci_model *m, const foci_batch *batch, struct pass_shape *s)
{
    static const foci_loss_options none = { FOCI_SIZED(foci_loss_options) };
    struct model_pass              x;

    pass_begin(&x, m, batch, s);
    x.dry = true;
    x.o = &none;
    x.grads = x.train ? m->params : NULL; /* any that are there: nothing is written */
    TRY(pass_run(&x));
    const size_t most = SIZE_MAX / 8;
    if (x.keep.used > most || x.temp_peak > most || x.work_bytes > most)
        return ctx_fail(
            m->ctx, FOCI_ERR_ARG,
            "the activations of such a batch do not fit into this machine's "
            "address space");
    s->keep_bytes = (size_t)round_up((int64_t)x.keep.used, ALIGN);
    s->temp_bytes = (size_t)round_up((int64_t)x.temp_peak, ALIGN);
    s->work_bytes = x.work_bytes;
    return FOCI_OK;
}

static foci_status shape_make(foci_model *m, const foci_batch *b, enum extent extent,
                              struct pass_shape **shape)
{
    struct pass_shape *s = *shape = ctx_alloc(m->ctx, 1, sizeof *s);

    if (!s) return FOCI_ERR_MEMORY;
    s->batch = b->batch;
    s->len[m->n_stacks - 1] = b->len;
    if (m->n_stacks > 1) s->len[0] = b->source_len;
    s->extent = extent;
    TRY(make_layers(m, s));
    return measure(m, b, s);
}

static bool fits(const foci_model *m, const struct pass_shape *s, const foci_batch *b,
                 enum extent extent)
{
    return s->batch == b->batch && s->len[m->n_stacks - 1] == b->len &&
           (m->n_stacks == 1 || s->len[0] == b->source_len) && s->extent == extent;
}

foci_status shape_find(foci_model *m, const foci_batch *batch, enum extent extent,
                       const struct pass_shape **shape)
{
    struct pass_shape *found = NULL;
    int                at = 0;

    while (at < N_SHAPES - 1 && m->shapes[at] && !fits(m, m->shapes[at], batch, extent))
        at++;
    if (m->shapes[at] && fits(m, m->shapes[at], batch, extent)) {
        found = m->shapes[at];
    } else {
        const foci_status status = shape_make(m, batch, extent, &found);
        if (status) {
            shape_free(m, found);
            return status;
        }
        shape_free(m, m->shapes[at]);
    }
    memmove(m->shapes + 1, m->shapes, (size_t)at * sizeof *m->shapes);
    m->shapes[0] = found;
    *shape = found;
    return FOCI_OK;
}
