/* sequences_step.c -- new tokens through all blocks. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "train/sequences.h"

/* A step on its way.  Rows are the new tokens, those of the first sequence first. */
struct sequences_step {
    foci_sequences *s;
    foci_model     *m;
    const int32_t  *tokens; /* NULL: one each */
    const int32_t  *ids, *words;
    int64_t         rows, longest;
    struct arena    arena;
    bool            dry;
    size_t          work_bytes;
    void           *work;
    void           *x, *y, *n, *a; /* [rows][width], a [rows][ffn] */
    int32_t        *first, *last;  /* [rows] positions; [n] last row of each */
    float          *waves; /* [rows][width] positions beyond the context; NULL */
    float          *logits;
};

static foci_status need(struct sequences_step *p, size_t bytes)
{
    if (bytes > p->work_bytes) p->work_bytes = bytes;
    return FOCI_OK;
}

/* Rows through pass_*: they know the model's parameters and scratch only. */
static struct model_pass as_pass(const struct sequences_step *p)
{
    return (struct model_pass){ .m = p->m, .dry = p->dry, .work = p->work };
}

static foci_status embed(struct sequences_step *p)
{
    const foci_model_config *c = &p->m->config;
    const struct stack      *s = model_last(p->m);
    const bool               scaled = c->positions == FOCI_POSITIONS_SINUSOID;
    const float *table = s->waves ? s->waves : at_offset(p->m->params, s->positions);
    const foci_embed_io io = {
        FOCI_SIZED(foci_embed_io),
        .dtype = c->dtype,
        .batch = p->rows,
        .len = 1,
        .width = c->width,
        .vocab = s->vocab,
        .n_positions = p->waves ? p->rows
                       : table  ? s->context
                                : 0,
        .ids = p->ids,
        .first = p->first,
        .table = p->m->params + s->embedding,
        .positions = p->waves ? p->waves : table,
        .scale = scaled ? sqrt((double)c->width) : 1,
        .y = p->x,
    };
    return p->dry ? FOCI_OK : p->m->ops->embed_forward(p->m->ctx, &io);
}

/* Of one token each all sequences are a batch; else each is one. */
static foci_status convolve(struct sequences_step *p, const struct attention *a,
                            int64_t block)
{
    const foci_model_config *c = &p->m->config;
    const int64_t            runs = p->tokens ? p->s->n : 1;
    const size_t             size = foci_dtype_bytes(c->dtype);
    const size_t row = (size_t)c->width * size, taps = (size_t)(c->conv - 1) * row;
    int64_t      at = 0;

    if (a->conv < 0 || p->dry) return FOCI_OK;
    for (int64_t i = 0; i < runs; i++) {
        char        *before = taps ? p->s->taps[block] + (size_t)i * taps : NULL;
        foci_conv_io io = {
            FOCI_SIZED(foci_conv_io),
            .dtype = c->dtype,
            .batch = p->tokens ? 1 : p->s->n,
            .len = p->tokens ? p->tokens[i] : 1,
            .width = c->width,
            .taps = c->conv,
            .w = p->m->params + a->conv,
            .x = (char *)p->n + (size_t)at * row,
            .y = (char *)p->y + (size_t)at * row,
            .before = before,
            .after = before,
        };
        if (io.len) TRY(p->m->ops->conv_forward(p->m->ctx, &io));
        at += io.len;
    }
    void *n = p->n;
    p->n = p->y;
    p->y = n;
    return FOCI_OK;
}

/* A pool that is full grows and the step is taken once more. */
static foci_status step_layer(struct sequences_step *p, const struct attention *a,
                              int64_t block)
{
    foci_sequences          *s = p->s;
    foci_pool               *pool = s->pools[block];
    const foci_layer_step_io io = {
        FOCI_SIZED(foci_layer_step_io),
        .states = s->states[block],
        .n_states = s->n,
        .tokens = p->tokens,
        .x = p->n,
        .residual = p->x,
        .y = p->y,
        .words = p->words,
        .params = p->m->params + a->params,
        .work = p->work,
        .precomputed = s->made[block].data,
        .params_bf16 = sequences_rounded(s, a->params),
    };
    if (p->dry)
        return need(
            p, foci_layer_step_work_bytes(a->layer, pool, s->n, p->rows, p->longest));
    foci_status status;
    while ((status = foci_layer_step(a->layer, pool, &io)) == FOCI_ERR_FULL)
        TRY(foci_pool_grow(pool, max64(foci_pool_page_count(pool), 1)));
    return status;
}

static void swap(struct sequences_step *p)
{
    void *x = p->x;
    p->x = p->y;
    p->y = x;
}

static foci_status self(struct sequences_step *p, const struct attention *a,
                        int64_t block)
{
    struct model_pass x = as_pass(p);

    TRY(norm_rows(&x, p->rows, a->gain, a->bias, p->x, p->n, NULL));
    TRY(convolve(p, a, block));
    TRY(step_layer(p, a, block));
    swap(p);
    return FOCI_OK;
}

/* All sequences of a source are queries of it. */
static foci_status cross(struct sequences_step *p, const struct attention *a,
                         int64_t block)
{
    foci_sequences   *s = p->s;
    struct model_pass x = as_pass(p);

    TRY(norm_rows(&x, p->rows, a->gain, a->bias, p->x, p->n, NULL));
    const foci_layer_io io = {
        FOCI_SIZED(foci_layer_io),
        .x = p->n,
        .residual = p->x,
        .y = p->y,
        .lens_source = s->source_lens,
        .words = p->words,
        .params = p->m->params + a->params,
        .work = p->work,
        .source_kv = s->kv[block],
        .precomputed = s->cross_made[block].data,
        .params_bf16 = sequences_rounded(s, a->params),
    };
    if (p->dry) return need(p, foci_layer_work_bytes(s->cross[block]));
    TRY(p->m->ops->layer_forward(s->cross[block], &io));
    swap(p);
    return FOCI_OK;
}

static foci_status product(struct sequences_step *p, foci_product_io *io)
{
    io->work = p->work;
    if (p->dry) return need(p, foci_product_work_bytes(p->m->ctx, io));
    return p->m->ops->product(p->m->ctx, io);
}

static foci_status feed(struct sequences_step *p, const struct feed_forward *f,
                        int64_t block)
{
    struct model_pass x = as_pass(p);
    foci_product_io   first = sequences_ffn(p->s, block, false);
    foci_product_io   second = sequences_ffn(p->s, block, true);

    first.m = second.m = p->rows;
    first.a = p->n;
    first.c = p->a;
    second.a = p->a;
    second.c = p->y;
    second.residual = p->x;
    TRY(norm_rows(&x, p->rows, f->gain, f->bias, p->x, p->n, NULL));
    TRY(product(p, &first));
    TRY(product(p, &second));
    swap(p);
    return FOCI_OK;
}

static foci_status give_logits(struct sequences_step *p)
{
    const struct stack *s = model_last(p->m);
    struct model_pass   x = as_pass(p);
    foci_logits_io      io = sequences_logits(p->s);

    if (!p->logits) return FOCI_OK;
    io.rows = p->rows;
    io.n = p->s->n;
    io.pick = p->last;
    io.h = p->n;
    io.logits = p->logits;
    io.work = p->work;
    TRY(norm_rows(&x, p->rows, s->gain, s->bias, p->x, p->n, NULL));
    if (p->dry) return need(p, foci_logits_work_bytes(p->m->ctx, &io));
    return p->m->ops->logits(p->m->ctx, &io);
}

static foci_status sequences_step_run(struct sequences_step *p)
{
    const struct stack *s = model_last(p->m);

    TRY(embed(p));
    for (int64_t b = 0; b < s->n; b++) {
        TRY(self(p, &s->blocks[b].self, b));
        if (s->cross) TRY(cross(p, &s->blocks[b].cross, b));
        if (p->m->config.ffn) TRY(feed(p, &s->blocks[b].ffn, b));
    }
    return give_logits(p);
}

/* Whether there are positions that the model has no rows for. */
static bool beyond(const struct sequences_step *p)
{
    const struct stack *s = model_last(p->m);
    return s->waves && p->longest > s->context;
}

static void lay_out(struct sequences_step *p)
{
    const foci_model_config *c = &p->m->config;
    const size_t             size = foci_dtype_bytes(c->dtype);

    p->x = arena_alloc(&p->arena, p->rows * c->width, size);
    p->y = arena_alloc(&p->arena, p->rows * c->width, size);
    p->n = arena_alloc(&p->arena, p->rows * c->width, size);
    p->a = arena_alloc(&p->arena, p->rows * c->ffn, size);
    p->first = arena_alloc(&p->arena, p->rows, sizeof *p->first);
    p->last = arena_alloc(&p->arena, p->s->n, sizeof *p->last);
    if (beyond(p)) p->waves = arena_alloc(&p->arena, p->rows * c->width, sizeof(float));
    p->work = arena_alloc(&p->arena, (int64_t)p->work_bytes, 1);
}

/* Twice through the same code: for the size of the scratch memory, and to compute. */
static foci_status reserve(struct sequences_step *p)
{
    foci_sequences *s = p->s;
    foci_ctx       *ctx = p->m->ctx;

    p->dry = true;
    lay_out(p);
    TRY(sequences_step_run(p));
    p->arena = (struct arena){ 0 };
    lay_out(p);
    if (!arena_ok(&p->arena))
        return ctx_fail(ctx, FOCI_ERR_ARG, "so many tokens do not fit into memory");
    if (p->arena.used > s->memory_bytes) {
        if (s->memory) ctx_free(ctx, s->memory, s->memory_bytes, 1);
        s->memory_bytes = 0;
        s->memory = ctx_alloc(ctx, p->arena.used, 1);
        if (!s->memory) return FOCI_ERR_MEMORY;
        s->memory_bytes = p->arena.used;
    }
    p->dry = false;
    p->arena = (struct arena){ .base = s->memory };
    lay_out(p);
    return FOCI_OK;
}

/* Positions of rows, and where each sequence ends. */
static foci_status number_rows(struct sequences_step *p)
{
    const int64_t width = p->m->config.width;
    int64_t       row = 0;

    for (int64_t i = 0; i < p->s->n; i++) {
        const int64_t n = p->tokens ? p->tokens[i] : 1, before = p->s->lens[i];
        if (p->waves) TRY(model_waves(before, n, width, p->waves + row * width));
        for (int64_t t = 0; t < n; t++, row++)
            p->first[row] = (int32_t)(p->waves ? row : before + t);
        p->last[i] = (int32_t)(row - 1);
    }
    return FOCI_OK;
}

static foci_status count(struct sequences_step *p)
{
    const foci_sequences *s = p->s;
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t n = p->tokens ? p->tokens[i] : 1;
        if (n < (p->logits ? 1 : 0) || s->lens[i] + n > s->longest)
            return ctx_fail(
                p->m->ctx, FOCI_ERR_ARG,
                "sequence %" PRId64 " has %" PRId64 " tokens and gets %" PRId64
                " more: it gets 1 at least, and the %s is %" PRId64,
                i, s->lens[i], n,
                s->longest > model_last(p->m)->context ? "longest" : "context",
                s->longest);
        p->rows += n;
        p->longest = max64(p->longest, s->lens[i] + n);
    }
    return FOCI_OK;
}

static foci_status step_all(struct sequences_step *p)
{
    TRY(count(p));
    TRY(reserve(p));
    TRY(number_rows(p));
    TRY(sequences_step_run(p));
    for (int64_t i = 0; i < p->s->n; i++)
        p->s->lens[i] += p->tokens ? p->tokens[i] : 1;
    return FOCI_OK;
}

foci_status foci_sequences_step(foci_sequences *s, const int32_t *tokens,
                                const int32_t *ids, const int32_t *words, float *logits)
{
    if (!s)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_sequences_step: sequences is NULL");
    struct sequences_step p = { .s = s,
                                .m = s->model,
                                .tokens = tokens,
                                .ids = ids,
                                .words = words,
                                .logits = logits };

    if (!ids || !s->n)
        return ctx_fail(
            s->model->ctx, FOCI_ERR_ARG,
            ids ? "sequences of a translation start with their sources: see "
                  "foci_sequences_start()"
                : "ids is NULL: what do the sequences go on with?");
    if (s->model->n_stacks > 1 && tokens)
        return ctx_fail(s->model->ctx, FOCI_ERR_UNSUP,
                        "a translation goes on by one token in each step");
    return step_all(&p);
}
