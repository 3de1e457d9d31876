/* sequences.c -- a model token by token: each block has its states, convolutions the rows
 * before, and cross-attention the source as the encoder left it. */
#include <inttypes.h>
#include <string.h>

#include "train/sequences.h"

enum { FIRST_PAGES = 8 }; /* of each sequence, in every block */

static const struct stack *stack_of(const foci_sequences *s)
{
    return model_last(s->model);
}

static size_t taps_bytes(const foci_sequences *s)
{
    const foci_model_config *c = &s->model->config;

    return c->conv > 1 ? (size_t)((c->conv - 1) * c->width) * foci_dtype_bytes(c->dtype)
                       : 0;
}

/*
 * Making
 */

static foci_status make_block(foci_sequences *s, int64_t b)
{
    foci_ctx               *ctx = s->model->ctx;
    const struct attention *a = &stack_of(s)->blocks[b].self;

    TRY(foci_pool_create(foci_layer_plan(a->layer), s->cap * FIRST_PAGES, &s->pools[b]));
    s->states[b] = ctx_alloc(ctx, (size_t)s->cap, sizeof **s->states);
    if (!s->states[b]) return FOCI_ERR_MEMORY;
    for (int64_t i = 0; i < s->cap; i++)
        TRY(foci_state_create(s->pools[b], &s->states[b][i]));
    if (taps_bytes(s) && a->conv >= 0) {
        s->taps[b] = ctx_alloc(ctx, (size_t)s->cap, taps_bytes(s));
        if (!s->taps[b]) return FOCI_ERR_MEMORY;
    }
    return FOCI_OK;
}

static foci_status make(foci_sequences *s)
{
    foci_ctx    *ctx = s->model->ctx;
    const size_t blocks = (size_t)stack_of(s)->n, cap = (size_t)s->cap;

    s->pools = ctx_alloc(ctx, blocks, sizeof *s->pools);
    s->states = ctx_alloc(ctx, blocks, sizeof *s->states);
    s->made = ctx_alloc(ctx, blocks, sizeof *s->made);
    s->cross_made = ctx_alloc(ctx, blocks, sizeof *s->cross_made);
    s->packed = ctx_alloc(ctx, 2 * blocks + 1, sizeof *s->packed);
    s->taps = ctx_alloc(ctx, blocks, sizeof *s->taps);
    s->cross = ctx_alloc(ctx, blocks, sizeof *s->cross);
    s->kv = ctx_alloc(ctx, blocks, sizeof *s->kv);
    s->kv_bytes = ctx_alloc(ctx, blocks, sizeof *s->kv_bytes);
    s->spare = ctx_alloc(ctx, cap, sizeof *s->spare);
    s->lens = ctx_alloc(ctx, cap, sizeof *s->lens);
    s->of = ctx_alloc(ctx, cap, sizeof *s->of);
    if (!s->pools || !s->states || !s->made || !s->cross_made || !s->packed ||
        !s->taps || !s->cross || !s->kv || !s->kv_bytes || !s->spare || !s->lens ||
        !s->of)
        return FOCI_ERR_MEMORY;
    for (size_t b = 0; b < blocks; b++)
        TRY(make_block(s, (int64_t)b));
    return sequences_weights(s);
}

foci_status foci_sequences_create(foci_model *model, int64_t n,
                                  foci_sequences **sequences)
{
    if (!model || !sequences)
        return ctx_fail(model ? model->ctx : NULL, FOCI_ERR_ARG,
                        "foci_sequences_create: %s is NULL",
                        model ? "sequences" : "the model");
    *sequences = NULL;
    if (!model_last(model)->causal)
        return ctx_fail(model->ctx, FOCI_ERR_UNSUP,
                        "only models of task lm or translate write, token by token");
    if (n < 1 || n > INT32_MAX)
        return ctx_fail(model->ctx, FOCI_ERR_ARG,
                        "%" PRId64 " sequences: there may be 1 to %d", n, INT32_MAX);
    foci_sequences *s = ctx_alloc(model->ctx, 1, sizeof *s);
    if (!s) return FOCI_ERR_MEMORY;
    s->model = model;
    s->cap = n;
    s->n = model->n_stacks > 1 ? 0 : n;
    const foci_status status = make(s);
    if (status) {
        foci_sequences_free(s);
        return status;
    }
    *sequences = s;
    return FOCI_OK;
}

static void free_cross(foci_sequences *s)
{
    for (int64_t b = 0; s->cross && b < stack_of(s)->n; b++) {
        foci_layer_free(s->cross[b]);
        s->cross[b] = NULL;
    }
}

static void free_sources(foci_sequences *s)
{
    foci_ctx *ctx = s->model->ctx;

    free_cross(s);
    for (int64_t b = 0; s->kv && b < stack_of(s)->n; b++) {
        if (s->kv[b]) ctx_free(ctx, s->kv[b], s->kv_bytes[b], 1);
        s->kv[b] = NULL;
    }
    if (s->source_lens)
        ctx_free(ctx, s->source_lens, s->source_count, sizeof *s->source_lens);
    s->source_lens = NULL;
}

static void free_block(foci_sequences *s, int64_t b)
{
    foci_ctx *ctx = s->model->ctx;

    for (int64_t i = 0; s->states && s->states[b] && i < s->cap; i++)
        foci_state_free(s->states[b][i]);
    if (s->states && s->states[b])
        ctx_free(ctx, s->states[b], (size_t)s->cap, sizeof **s->states);
    if (s->pools) foci_pool_free(s->pools[b]);
    if (s->taps && s->taps[b]) ctx_free(ctx, s->taps[b], (size_t)s->cap, taps_bytes(s));
}

void foci_sequences_free(foci_sequences *s)
{
    if (!s) return;
    foci_ctx    *ctx = s->model->ctx;
    const size_t blocks = (size_t)stack_of(s)->n, cap = (size_t)s->cap;

    for (size_t b = 0; b < blocks; b++)
        free_block(s, (int64_t)b);
    free_sources(s);
    sequences_weights_free(s);
    const struct {
        void  *p;
        size_t n, size;
    } all[] = {
        { s->pools, blocks, sizeof *s->pools },
        { s->states, blocks, sizeof *s->states },
        { s->taps, blocks, sizeof *s->taps },
        { s->cross, blocks, sizeof *s->cross },
        { s->kv, blocks, sizeof *s->kv },
        { s->kv_bytes, blocks, sizeof *s->kv_bytes },
        { s->spare, cap, sizeof *s->spare },
        { s->lens, cap, sizeof *s->lens },
        { s->of, cap, sizeof *s->of },
        { s->memory, s->memory_bytes, 1 },
        { s, 1, sizeof *s },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].p) ctx_free(ctx, all[i].p, all[i].n, all[i].size);
}

/*
 * Sources
 */

static foci_status make_cross(foci_sequences *s, int64_t queries)
{
    for (int64_t b = 0; b < stack_of(s)->n; b++)
        TRY(attention_layer(s->model, &stack_of(s)->blocks[b].cross, s->n_sources,
                            queries, s->source_len, false, &s->cross[b]));
    return FOCI_OK;
}

/* Keys and values of one block, of the rows that the encoder made. */
static foci_status project(foci_sequences *s, int64_t block, const void *rows)
{
    const foci_model *m = s->model;
    const foci_layer *layer = s->cross[block];
    const size_t      bytes = foci_layer_work_bytes(layer);
    foci_layer_io     io = {
            FOCI_SIZED(foci_layer_io),
            .source = rows,
            .lens_source = s->source_lens,
            .params = m->params + stack_of(s)->blocks[block].cross.params,
    };

    s->kv_bytes[block] = foci_layer_source_bytes(layer);
    s->kv[block] = ctx_alloc(m->ctx, s->kv_bytes[block], 1);
    if (!s->kv[block]) return FOCI_ERR_MEMORY;
    io.work = ctx_alloc(m->ctx, bytes, 1);
    if (!io.work) return FOCI_ERR_MEMORY;
    const foci_status status = foci_layer_source_project(layer, &io, s->kv[block]);
    ctx_free(m->ctx, io.work, bytes, 1);
    return status;
}

static foci_status keep_sources(foci_sequences *s, const foci_batch *b, const void *rows)
{
    free_sources(s);
    s->n = 0; /* until all is there */
    s->n_sources = b->batch;
    s->source_len = b->source_len;
    s->source_count = (size_t)b->batch;
    s->source_lens = ctx_alloc(s->model->ctx, s->source_count, sizeof *s->source_lens);
    if (!s->source_lens) return FOCI_ERR_MEMORY;
    for (int64_t i = 0; i < b->batch; i++)
        s->source_lens[i] = b->source_lens ? b->source_lens[i] : (int32_t)b->source_len;
    TRY(make_cross(s, s->cap / s->n_sources));
    TRY(sequences_cross_weights(s));
    for (int64_t block = 0; block < stack_of(s)->n; block++)
        TRY(project(s, block, rows));
    return FOCI_OK;
}

static foci_status encode(foci_sequences *s, const foci_batch *sources)
{
    static const foci_loss_options none = { FOCI_SIZED(foci_loss_options) };
    foci_model                    *m = s->model;
    foci_batch                     b;
    const struct pass_shape       *shape;
    struct model_pass              x;

    TRY(sized_in(m->ctx, "foci_batch", &b, sources, sizeof b));
    if (b.batch < 1 || b.source_len < 1 || !b.source_ids ||
        b.source_len > m->stacks[0].context || s->cap % b.batch)
        return ctx_fail(m->ctx, FOCI_ERR_ARG,
                        "a batch of sources is needed, of 1 to %" PRId64
                        " tokens, and as many that %" PRId64
                        " sequences are shared out",
                        m->stacks[0].context, s->cap);
    b.len = model_last(m)->context;
    TRY(batch_pad(m, &b));
    TRY(shape_find(m, &b, EXTENT_ENCODER, &shape));
    pass_begin(&x, m, &b, shape);
    x.o = &none;
    TRY(pass_memory(&x));
    TRY(pass_encode(&x));
    return keep_sources(s, &b, x.acts[0].out);
}

foci_status foci_sequences_start(foci_sequences *s, const foci_batch *sources)
{
    if (!s)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_sequences_start: sequences is NULL");
    if (s->model->n_stacks > 1) TRY(encode(s, sources));
    s->n = s->cap;
    const int64_t each = s->model->n_stacks > 1 ? s->n / s->n_sources : 1;
    for (int64_t i = 0; i < s->n; i++) {
        s->lens[i] = 0;
        s->of[i] = i / each;
    }
    for (int64_t b = 0; b < stack_of(s)->n; b++) {
        for (int64_t i = 0; i < s->cap; i++)
            foci_state_reset(s->states[b][i]);
        if (s->taps[b]) memset(s->taps[b], 0, (size_t)s->cap * taps_bytes(s));
    }
    return FOCI_OK;
}

size_t foci_sequences_bytes(const foci_sequences *s)
{
    size_t bytes = 0;

    for (int64_t b = 0; s && b < stack_of(s)->n; b++) {
        for (int64_t i = 0; i < s->n; i++)
            bytes += foci_state_bytes(s->states[b][i]);
        if (s->taps[b]) bytes += (size_t)s->n * taps_bytes(s);
        if (s->kv[b]) bytes += s->kv_bytes[b];
    }
    return bytes;
}

/*
 * Reordering
 */

static bool among(foci_state *const *states, int64_t n, const foci_state *state)
{
    for (int64_t i = 0; i < n; i++)
        if (states[i] == state) return true;
    return false;
}

/* What the places hold afterwards: the first that continues a sequence takes its state,
 * others get a copy, and places that are left over an empty one. */
static foci_status choose_states(foci_sequences *s, int64_t b, const int64_t *from,
                                 int64_t n)
{
    foci_state *const *states = s->states[b];

    for (int64_t i = 0; i < s->cap; i++)
        s->spare[i] = NULL;
    for (int64_t i = 0; i < n; i++)
        if (!among(s->spare, i, states[from[i]])) s->spare[i] = states[from[i]];
    for (int64_t i = 0; i < s->cap; i++) {
        if (s->spare[i]) continue;
        TRY(i < n ? foci_state_copy(states[from[i]], &s->spare[i])
                  : foci_state_create(s->pools[b], &s->spare[i]));
    }
    return FOCI_OK;
}

/* States of one block.  On failure they are as they were. */
static foci_status reorder_states(foci_sequences *s, int64_t b, const int64_t *from,
                                  int64_t n)
{
    const foci_status status = choose_states(s, b, from, n);
    foci_state      **kept = status ? s->states[b] : s->spare;
    foci_state      **others = status ? s->spare : s->states[b];

    for (int64_t i = 0; i < s->cap; i++)
        if (others[i] && !among(kept, s->cap, others[i])) foci_state_free(others[i]);
    if (!status) memcpy(s->states[b], s->spare, (size_t)s->cap * sizeof *s->spare);
    return status;
}

static foci_status reorder_rows(foci_sequences *s, char *rows, const int64_t *from,
                                int64_t n, size_t bytes)
{
    char *copy = ctx_alloc(s->model->ctx, (size_t)n, bytes);

    if (!copy) return FOCI_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        memcpy(copy + (size_t)i * bytes, rows + (size_t)from[i] * bytes, bytes);
    memcpy(rows, copy, (size_t)n * bytes);
    ctx_free(s->model->ctx, copy, (size_t)n, bytes);
    return FOCI_OK;
}

/* Sources whose sequences are all gone are left out; the others have as many as before. */
static foci_status drop_sources(foci_sequences *s, int64_t n)
{
    const int64_t each = s->n / s->n_sources, left = n / each;
    int64_t      *was = ctx_alloc(s->model->ctx, (size_t)left, sizeof *was);
    foci_status   status = was ? FOCI_OK : FOCI_ERR_MEMORY;

    for (int64_t i = 0; i < left && !status; i++) {
        was[i] = s->of[i * each];
        s->source_lens[i] = s->source_lens[was[i]];
    }
    for (int64_t b = 0; b < stack_of(s)->n && !status; b++)
        status = foci_layer_source_select(s->cross[b], was, left, s->kv[b]);
    if (was) ctx_free(s->model->ctx, was, (size_t)left, sizeof *was);
    TRY(status);
    s->n_sources = left;
    for (int64_t i = 0; i < n; i++)
        s->of[i] = i / each;
    free_cross(s);
    return make_cross(s, each);
}

/* Which sequences take the places 0, 1, ... */
static foci_status check_places(const foci_sequences *s, const int64_t *from, int64_t n)
{
    foci_ctx *ctx = s->model->ctx;

    if (!from)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_sequences_reorder: from is NULL");
    if (n < 1 || n > s->n)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "foci_sequences_reorder: n is %" PRId64
                        ": it may be 1 to %" PRId64,
                        n, s->n);
    for (int64_t i = 0; i < n; i++)
        if (from[i] < 0 || from[i] >= s->n)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "foci_sequences_reorder: from[%" PRId64 "] is %" PRId64
                            ": it may be 0 to %" PRId64,
                            i, from[i], s->n - 1);
    return FOCI_OK;
}

/* Sources keep their order, with all of their sequences or none. */
static foci_status check_sources(const foci_sequences *s, const int64_t *from, int64_t n)
{
    const int64_t each = s->n / s->n_sources;

    bool good = n % each == 0;
    for (int64_t i = 0; good && i < n; i++)
        good = from[i] / each == from[i / each * each] / each &&
               (i < each || from[i] / each > from[i - each] / each);
    return good ? FOCI_OK
                : ctx_fail(s->model->ctx, FOCI_ERR_ARG,
                           "foci_sequences_reorder: of a source all sequences go on or "
                           "none, and sources keep their order");
}

foci_status foci_sequences_reorder(foci_sequences *s, const int64_t *from, int64_t n)
{
    if (!s)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_sequences_reorder: sequences is NULL");
    TRY(check_places(s, from, n));
    if (s->model->n_stacks > 1) TRY(check_sources(s, from, n));
    for (int64_t b = 0; b < stack_of(s)->n; b++) {
        TRY(reorder_states(s, b, from, n));
        if (s->taps[b]) TRY(reorder_rows(s, s->taps[b], from, n, taps_bytes(s)));
    }
    TRY(reorder_rows(s, (char *)s->lens, from, n, sizeof *s->lens));
    TRY(reorder_rows(s, (char *)s->of, from, n, sizeof *s->of));
    const foci_status status =
        s->model->n_stacks > 1 && n < s->n ? drop_sources(s, n) : FOCI_OK;
    s->n = status ? 0 : n; /* without sources there is nothing to go on with */
    return status;
}
