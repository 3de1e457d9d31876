/* observe.c -- a batch on its way through the blocks, looked at before every attention. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "train/pass.h"

static bool has(const struct model_block *b, const struct attention *a)
{
    return &b->self == a || &b->cross == a;
}

static void print_name(const struct stack *s, const struct attention *a, char *name,
                       size_t cap)
{
    int64_t b = 0;

    while (b < s->n - 1 && !has(&s->blocks[b], a))
        b++;
    snprintf(name, cap, "%s%sblock %" PRId64 "%s", s->name, *s->name ? " " : "", b,
             &s->blocks[b].cross == a ? " cross" : "");
}

void pass_show(struct model_pass *x, const struct pass_side *s,
               const struct attention *a, const foci_layer_io *io)
{
    char                   name[64];
    const foci_observation o = {
        FOCI_SIZED(foci_observation),
        .name = name,
        .index = a->index,
        .spec = a->spec,
        .layer = x->shape->layers[a->index],
        .io = io,
    };

    print_name(s->stack, a, name, sizeof name);
    if (x->observe(x->user, &o)) x->observe = NULL;
}

/*
 * The part of a batch that is looked at
 */

/* One side: rows of `len` of which `keep` are kept. */
struct cut_side {
    int64_t         len, keep;
    const int32_t **rows[3]; /* [batch][len]: ids and the like */
    const int32_t **lens;
};

static size_t side_bytes(const struct cut_side *s, int64_t batch)
{
    return (size_t)batch * (3 * (size_t)s->keep + 1) * sizeof(int32_t);
}

static const void *cut_rows(const void *from, int64_t batch, size_t row, size_t keep,
                            char **to)
{
    char *const out = *to;

    for (int64_t b = 0; b < batch; b++)
        memcpy(out + (size_t)b * keep, (const char *)from + (size_t)b * row, keep);
    *to += (size_t)batch * keep;
    return out;
}

static void cut_side(const struct cut_side *s, int64_t batch, char **to)
{
    const size_t size = sizeof(int32_t);

    if (s->keep == s->len) return;
    for (int i = 0; i < 3; i++)
        if (s->rows[i] && *s->rows[i])
            *s->rows[i] = cut_rows(*s->rows[i], batch, (size_t)s->len * size,
                                   (size_t)s->keep * size, to);
    int32_t *const lens = (int32_t *)(void *)*to;
    for (int64_t b = 0; *s->lens && b < batch; b++)
        lens[b] = (int32_t)min64((*s->lens)[b], s->keep);
    if (*s->lens) *s->lens = lens;
    *to += (size_t)batch * size;
}

static int64_t at_most(int64_t n, int64_t most) { return most ? min64(n, most) : n; }

/* Copy what is kept of a batch; *memory, of *bytes, is what it lies in. */
static foci_status cut(foci_model *m, foci_batch *b, int64_t rows, int64_t len,
                       char **memory, size_t *bytes)
{
    const struct cut_side side = {
        b->len, at_most(b->len, len), { &b->ids, &b->labels, &b->words }, &b->lens
    };
    const struct cut_side source = { b->source_len,
                                     at_most(b->source_len, len),
                                     { &b->source_ids, &b->source_words, NULL },
                                     &b->source_lens };
    const size_t          size = sizeof *b->patches, patch = (size_t)b->patch_width;

    b->batch = at_most(b->batch, rows);
    b->label_at = NULL;
    b->slices = NULL;
    if (side.keep == side.len && source.keep == source.len) return FOCI_OK;
    *bytes = side_bytes(&side, b->batch) + side_bytes(&source, b->batch) +
             (size_t)(b->batch * side.keep) * patch * size;
    char *to = *memory = ctx_alloc(m->ctx, *bytes, 1);
    if (!to) return FOCI_ERR_MEMORY;
    cut_side(&side, b->batch, &to);
    cut_side(&source, b->batch, &to);
    if (b->patches)
        b->patches = cut_rows(b->patches, b->batch, (size_t)side.len * patch * size,
                              (size_t)side.keep * patch * size, &to);
    b->len = side.keep;
    b->source_len = source.keep;
    return FOCI_OK;
}

static foci_status observe_run(foci_model *m, foci_batch *batch,
                               foci_observe_fn observe, void *user)
{
    static const foci_loss_options none = { FOCI_SIZED(foci_loss_options) };
    const struct pass_shape       *shape;
    struct model_pass              x;
    foci_batch                     whole;

    batch->size = sizeof *batch;
    TRY(batch_check(m, batch, &whole));
    TRY(shape_find(m, &whole, EXTENT_LOSS, &shape));
    pass_begin(&x, m, &whole, shape);
    x.o = &none;
    x.observe = observe;
    x.user = user;
    TRY(pass_memory(&x));
    return pass_forward(&x);
}

foci_status foci_model_observe(foci_model *model, const foci_batch *batch, int64_t rows,
                               int64_t len, foci_observe_fn observe, void *user)
{
    char      *memory = NULL;
    size_t     bytes = 0;
    foci_batch b;

    if (!model || !observe)
        return ctx_fail(model ? model->ctx : NULL, FOCI_ERR_ARG,
                        "foci_model_observe: the %s is NULL",
                        model ? "callback" : "model");
    if (rows < 0 || len < 0)
        return ctx_fail(model->ctx, FOCI_ERR_ARG,
                        "foci_model_observe: rows is %" PRId64 " and len %" PRId64
                        ": they may be 0 (all) or more",
                        rows, len);
    TRY(sized_in(model->ctx, "foci_batch", &b, batch, sizeof b));
    foci_status status = cut(model, &b, rows, len, &memory, &bytes);
    if (!status) status = observe_run(model, &b, observe, user);
    if (memory) ctx_free(model->ctx, memory, bytes, 1);
    return status;
}

/*
 * A head alone
 */

static const struct attention *find_attention(const foci_model *m, int64_t index)
{
    for (int i = 0; i < m->n_stacks; i++)
        for (int64_t b = 0; b < m->stacks[i].n; b++) {
            const struct model_block *block = &m->stacks[i].blocks[b];
            if (block->self.index == index) return &block->self;
            if (m->stacks[i].cross && block->cross.index == index) return &block->cross;
        }
    return NULL;
}

foci_status foci_model_head_floats(const foci_model *model, int64_t attention,
                                   int64_t head, int64_t *first, int64_t *count)
{
    foci_layer_problem p = { FOCI_SIZED(foci_layer_problem) };
    foci_param         w = { FOCI_SIZED(foci_param) };

    if (!model || !first || !count)
        return ctx_fail(model ? model->ctx : NULL, FOCI_ERR_ARG,
                        "foci_model_head_floats: %s is NULL",
                        model ? "first or count" : "the model");
    const struct attention *a = find_attention(model, attention);
    if (a) TRY(foci_layer_get_problem(a->layer, &p));
    if (!a || head < 0 || head >= p.heads)
        return ctx_fail(model->ctx, FOCI_ERR_ARG,
                        "there is no head %" PRId64 " of attention %" PRId64, head,
                        attention);
    for (int i = 0; i < foci_layer_param_count(a->layer); i++) {
        TRY(foci_layer_param(a->layer, i, &w));
        if (!strcmp(w.name, "Wo")) break;
    }
    *count = w.count / p.heads;
    *first = a->params + w.offset + head * *count;
    return FOCI_OK;
}
