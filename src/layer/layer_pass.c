/* layer_pass.c -- the memory of an execution of a layer, and its runs of rows. */
#include "layer/layer.h"

/* Of all products side by side. */
static int64_t columns(const foci_layer *layer)
{
    int64_t cols = layer->p.width;

    for (int i = 0; i < layer->n_projections; i++)
        cols += layer->projections[i].heads * layer->projections[i].dim;
    return cols;
}

/* Of the widest row. */
static int64_t row_floats(const foci_layer *layer)
{
    const foci_layer_problem *p = &layer->p;
    const int64_t             dim = max64(p->head_dim, p->value_dim);

    return round_up(max64(dim, max64(p->width, p->width_source)), FOCI_TILE);
}

static bool transforms(const foci_layer *layer)
{
    for (int i = 0; i < layer->n_frozen; i++)
        if (!layer->frozen[i].dense) return true;
    return false;
}

/*
 * Memory
 */

foci_layout layer_layout(const struct layer_buffer *b, int64_t batch)
{
    return (foci_layout){ .batch = b->len * b->dim,
                          .row = b->dim,
                          .head = batch * b->len * b->dim };
}

struct layer_view layer_carve_place(const foci_layer          *layer,
                                    const struct layer_buffer *b, int64_t batch,
                                    struct arena *a)
{
    const foci_layout l = layer_layout(b, batch);
    struct layer_view s = { .row = l.row, .head = l.head, .first = b->first };
    int64_t           n = 0;

    if (__builtin_mul_overflow(l.head, b->heads, &n))
        a->used = SIZE_MAX;
    else
        s.data = arena_alloc(a, n, foci_dtype_bytes(layer->p.dtype));
    return s;
}

/* Of every form that there is, the widest: parts of them need no more. */
size_t layer_product_bytes(const foci_layer *layer, int64_t rows, bool backward)
{
    const foci_layer_problem *p = &layer->p;
    const int64_t             out = p->heads * p->value_dim, cols = columns(layer);
    const int64_t             wide = max64(p->width, p->width_source);
    const int64_t             far = layer->n_distances ? layer->len_k : 0;
    const struct {
        int64_t    m, n, k;
        bool       back, a_transposed, b_transposed;
        foci_dtype a, b, c;
    } all[] = {
        { rows, cols, wide, false, false, false, p->dtype, FOCI_F32, p->dtype },
        { rows, p->width, out, false, false, false, p->dtype, FOCI_F32, p->dtype },
        { rows, out, p->width, true, false, true, p->dtype, FOCI_F32, p->dtype },
        { rows, wide, cols, true, false, true, p->dtype, FOCI_F32, p->dtype },
        { wide, cols, rows, true, true, false, p->dtype, p->dtype, FOCI_F32 },
        { out, p->width, rows, true, true, false, p->dtype, p->dtype, FOCI_F32 },
        { far, cols, p->width, false, false, false, FOCI_F32, FOCI_F32, FOCI_F32 },
        { p->width, cols, far, true, true, false, FOCI_F32, FOCI_F32, FOCI_F32 },
    };
    size_t most = 0;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].back && !backward) continue;
        const struct product one = {
            .m = all[i].m,
            .n = all[i].n,
            .k = all[i].k,
            .a = { .dtype = all[i].a, .transposed = all[i].a_transposed },
            .b = { .dtype = all[i].b, .transposed = all[i].b_transposed },
            .c = { .dtype = all[i].c },
            .fast = p->flags & FOCI_FLAG_FAST
        };
        const size_t bytes = product_bytes(layer->ctx, &one);
        if (bytes > most) most = bytes;
    }
    for (int i = 0; i < layer->n_frozen; i++) {
        const size_t bytes = hadamard_bytes(layer->ctx, &layer->frozen[i]);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Gradients of places, and what lies between them and those of the inputs. */
static void carve_back(const foci_layer *layer, struct layer_pass *x, struct arena *a)
{
    const foci_layer_problem *p = &layer->p;
    const size_t              el = foci_dtype_bytes(p->dtype);
    const int64_t             rows = p->batch * max64(p->len, p->len_source);
    const int64_t             wide = max64(p->width, p->width_source);

    for (int i = 0; i < LAYER_PLACES; i++)
        x->d[i] = layer_carve_place(layer, &layer->places[i], p->batch, a);
    x->clean = arena_alloc(a, rows * wide, el);
    if (layer->reads_x) x->dx_plan = arena_alloc(a, p->batch * p->len * p->width, el);
    if (transforms(layer)) x->dx_sum = arena_alloc(a, rows * wide, sizeof *x->dx_sum);
}

void layer_carve_scratch(const foci_layer *layer, struct layer_pass *x, int64_t rows,
                         bool backward, struct arena *a)
{
    const int64_t made = layer->n_distances ? foci_plan_param_floats(layer->plan) : 0;

    x->plan_params = arena_alloc(a, made, sizeof *x->plan_params);
    x->plan_dparams = arena_alloc(a, backward ? made : 0, sizeof *x->plan_dparams);
    x->product_work =
        arena_alloc(a, (int64_t)layer_product_bytes(layer, rows, backward), 1);
    x->bias = arena_alloc(a, columns(layer), sizeof *x->bias);
    x->a = arena_alloc(a, layer->cols, sizeof *x->a);
    x->b = arena_alloc(a, layer->cols, sizeof *x->b);
    x->c = arena_alloc(a, layer->cols, sizeof *x->c);
    x->row_floats = row_floats(layer);
    x->rows = arena_alloc(a, (int64_t)layer->ctx->threads * GATE_ROWS * x->row_floats,
                          sizeof *x->rows);
}

/* Where nothing is kept for backward, places are work memory as all else. */
void layer_carve(const foci_layer *layer, struct layer_pass *x, struct arena *work,
                 struct arena *saved, bool backward)
{
    const foci_layer_problem *p = &layer->p;
    struct arena             *kept = saved ? saved : work;
    const int64_t             rows = p->batch * max64(p->len, layer->len_k);

    for (int i = 0; i < LAYER_PLACES; i++)
        x->at[i] = layer_carve_place(layer, &layer->places[i], p->batch, kept);
    if (saved)
        x->plan_saved =
            arena_alloc(saved, (int64_t)foci_plan_saved_bytes(layer->plan), 1);
    x->runs = arena_alloc(work, p->batch, sizeof *x->runs);
    x->others = arena_alloc(work, p->batch, sizeof *x->others);
    x->lens_k = arena_alloc(work, p->batch, sizeof *x->lens_k);
    x->plan_work = arena_alloc(work, (int64_t)foci_plan_work_bytes(layer->plan), 1);
    layer_carve_scratch(layer, x, rows, backward, work);
    if (backward) carve_back(layer, x, work);
}

/*
 * Rows
 */

/* From the first document to the last; they are of x and of the source alike. */
static struct layer_run documents(const foci_layer_io *io)
{
    const int64_t first = io->docs[0];
    return (struct layer_run){ first, io->docs[io->n_docs] - first, first, first };
}

/* Whether products go over all rows: they are cheaper than one for each sequence, which packs
 * weights anew and has few rows, unless most rows are padding. */
static bool in_one(const foci_layer *layer, const int32_t *lens, int64_t len,
                   bool *padded)
{
    const int64_t all = layer->p.batch * len;
    int64_t       rows = 0;

    *padded = false;
    if (!lens) return true;
    for (int64_t b = 0; b < layer->p.batch; b++)
        rows += lens[b];
    if (rows == all) return true;
    return *padded = layer->p.kind == FOCI_LAYER_ATTENTION && 2 * rows >= all;
}

/* Of x; those that are valid. */
static void find_runs(struct layer_pass *x)
{
    const foci_layer_problem *p = &x->layer->p;
    const foci_layer_io      *io = &x->io;

    if (!p->batch || !p->len) return;
    if (io->docs) {
        x->runs[x->n_runs++] = documents(io);
        return;
    }
    if (!p->memory && in_one(x->layer, io->lens, p->len, &x->padded[0])) {
        x->runs[x->n_runs++] = (struct layer_run){ .n = p->batch * p->len };
        return;
    }
    for (int64_t b = 0; b < p->batch; b++)
        x->runs[x->n_runs++] =
            (struct layer_run){ .x = b * p->len,
                                .n = io->lens ? io->lens[b] : p->len,
                                .q = b * p->len,
                                .k = b * x->layer->len_k + p->memory };
}

/* Of the source, if it is still to be projected, or of the memory. */
static void find_others(struct layer_pass *x)
{
    const foci_layer_problem *p = &x->layer->p;
    const foci_layer_io      *io = &x->io;
    const int64_t             len = p->len_source ? p->len_source : p->memory;

    if (!p->batch || !len || io->source_kv) return;
    if (io->docs) {
        x->others[x->n_others++] = documents(io);
        return;
    }
    if (p->len_source && in_one(x->layer, io->lens_source, len, &x->padded[1])) {
        x->others[x->n_others++] = (struct layer_run){ .n = p->batch * len };
        return;
    }
    for (int64_t b = 0; b < p->batch; b++)
        x->others[x->n_others++] = (struct layer_run){
            .x = b * len,
            .n = p->len_source ? io->lens_source[b] : len,
            .k = b * x->layer->len_k,
        };
}

void layer_open(const foci_layer *layer, const foci_layer_io *io,
                const foci_layer_grads *g, struct layer_pass *x)
{
    struct arena work = { .base = io->work }, saved = { .base = io->saved };
    struct arena source_kv = { .base = (void *)io->source_kv };
    const bool   saves = layer->saved_bytes && io->saved;

    *x = (struct layer_pass){ .layer = layer, .io = *io };
    if (g) x->g = *g;
    layer_carve(layer, x, &work, saves ? &saved : NULL, g != NULL);
    if (io->source_kv) layer_carve_source(layer, layer->p.batch, x->at, &source_kv);
    x->active = layer->p.kind == FOCI_LAYER_GAU && !saves;
    find_runs(x);
    find_others(x);
    layer_open_made(x);
    for (int64_t b = 0; layer->p.memory && b < layer->p.batch; b++)
        x->lens_k[b] =
            (int32_t)(layer->p.memory + (io->lens ? io->lens[b] : layer->p.len));
}

struct hidden layer_own(const struct layer_pass *x)
{
    return (struct hidden){ .data = x->io.x,
                            .d = x->g.dx,
                            .width = x->layer->p.width,
                            .runs = x->runs,
                            .n_runs = x->n_runs };
}

struct hidden layer_others(const struct layer_pass *x)
{
    const foci_layer_problem *p = &x->layer->p;
    const bool                cross = p->len_source > 0;

    return (struct hidden){ .data = cross ? x->io.source : x->io.memory,
                            .d = cross ? x->g.dsource : NULL,
                            .width = cross ? p->width_source : p->width,
                            .runs = x->others,
                            .n_runs = x->n_others,
                            .source = cross,
                            .memory = !cross };
}

/* Where head 0 of a place is, or would be: heads before the first that is there are never
 * asked for, and the address of theirs is a number and no more. */
static void *base_of(const foci_layer *layer, enum place place,
                     const struct layer_view *s)
{
    const int64_t before = s->first * s->head;

    if (!layer->places[place].heads) return NULL;
    return (void *)((uintptr_t)s->data -
                    (uintptr_t)before * foci_dtype_bytes(layer->p.dtype));
}

foci_io layer_plan_io(const struct layer_pass *x)
{
    const foci_layer    *layer = x->layer;
    const foci_layer_io *io = &x->io;
    const bool           cross = layer->p.len_source > 0;

    return (foci_io){
        FOCI_SIZED(foci_io),
        .q = base_of(layer, PLACE_Q, &x->at[PLACE_Q]),
        .k = base_of(layer, PLACE_K, &x->at[PLACE_K]),
        .v = base_of(layer, PLACE_V, &x->at[PLACE_V]),
        .x = io->x,
        .o = x->at[PLACE_O].data,
        .len_q = io->lens,
        .len_k = cross             ? io->lens_source
                 : layer->p.memory ? x->lens_k
                                   : io->lens,
        .docs = io->docs,
        .n_docs = io->n_docs,
        .words = io->words,
        .params = layer->n_distances ? x->plan_params : io->params + layer->own_floats,
        .saved = x->plan_saved,
        .work = x->plan_work,
        .mask = io->mask,
        .bias = io->bias,
        .dropout_seed = io->dropout_seed,
    };
}

foci_grads layer_plan_grads(const struct layer_pass *x)
{
    const foci_layer *layer = x->layer;

    return (foci_grads){
        FOCI_SIZED(foci_grads),
        .d_o = x->d[PLACE_O].data,
        .dq = base_of(layer, PLACE_Q, &x->d[PLACE_Q]),
        .dk = base_of(layer, PLACE_K, &x->d[PLACE_K]),
        .dv = base_of(layer, PLACE_V, &x->d[PLACE_V]),
        .dx = layer->reads_x ? x->dx_plan : NULL,
        .dparams = !x->g.dparams        ? NULL
                   : layer->n_distances ? x->plan_dparams
                                        : x->g.dparams + layer->own_floats,
        .dbias = x->g.dbias,
        .skip_unread = 1,
    };
}
