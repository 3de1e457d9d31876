/* layer_step.c -- new tokens of several sequences, through the states of the plan. */
#include <inttypes.h>

#include "layer/layer.h"
#include "state/state.h"

/* Rows lie as a step of the plan wants them: all heads of a token together. */
static struct layer_view carve_place(const foci_layer *layer, int64_t heads,
                                     int64_t dim, int64_t tokens, struct arena *a)
{
    const int64_t     row = heads * dim;
    int64_t           n = 0;
    struct layer_view s = { .row = row, .head = dim };

    if (__builtin_mul_overflow(row, tokens, &n))
        a->used = SIZE_MAX;
    else
        s.data = arena_alloc(a, n, foci_dtype_bytes(layer->p.dtype));
    return s;
}

static void layer_step_carve(const foci_layer *layer, struct layer_pass *x,
                             int64_t tokens, struct arena *a)
{
    const foci_layer_problem *p = &layer->p;

    for (int i = 0; i < LAYER_PLACES; i++) {
        const struct layer_buffer *b = &layer->places[i];
        const int64_t              all = i == PLACE_Q                   ? p->heads
                                         : i == PLACE_K || i == PLACE_V ? p->kv_heads
                                                                        : b->heads;
        x->at[i] = carve_place(layer, b->heads ? all : 0, b->dim, tokens, a);
    }
    x->runs = arena_alloc(a, 1, sizeof *x->runs);
    layer_carve_scratch(layer, x, tokens, false, a);
}

size_t foci_layer_step_work_bytes(const foci_layer *layer, const foci_pool *pool,
                                  int64_t n_states, int64_t tokens, int64_t max_len)
{
    struct layer_pass x = { .layer = layer };
    struct arena      a = { 0 };

    if (!layer || !pool || n_states < 0 || tokens < 0 || max_len < 0) return SIZE_MAX;
    const size_t bytes = foci_step_work_bytes(pool, n_states, tokens, max_len);
    layer_step_carve(layer, &x, tokens, &a);
    return bytes > SIZE_MAX - a.used ? SIZE_MAX : a.used + bytes;
}

static foci_status count_tokens(const foci_layer *layer, const foci_layer_step_io *io,
                                int64_t *tokens)
{
    *tokens = io->tokens ? 0 : io->n_states;
    for (int64_t i = 0; io->tokens && i < io->n_states; i++) {
        if (io->tokens[i] < 0)
            return ctx_fail(layer->ctx, FOCI_ERR_ARG,
                            "tokens[%" PRId64 "] is %" PRId32 ": it may be 0 or more",
                            i, io->tokens[i]);
        *tokens += io->tokens[i];
    }
    return FOCI_OK;
}

static foci_status layer_step_check(const foci_layer *layer, const foci_pool *pool,
                                    const foci_layer_step_io *io, int64_t tokens)
{
    const char *what = NULL;

    if (layer->p.len_source)
        return ctx_fail(layer->ctx, FOCI_ERR_UNSUP,
                        "a layer with a source has its keys from there and needs no "
                        "state: give the new rows to foci_layer_forward()");
    if (tokens && !io->x) what = "x is NULL: hidden states are what a layer reads";
    if (!io->params) what = "params is NULL: draw them by foci_layer_params_init()";
    if (!io->work || (uintptr_t)io->work % 64)
        what = "work is NULL or not 64-byte aligned: see foci_layer_step_work_bytes()";
    if (io->n_states < 0) what = "n_states is negative";
    if (pool->plan != layer->plan)
        what = "the pool is of another plan: make it from foci_layer_plan()";
    return what ? ctx_fail(layer->ctx, FOCI_ERR_ARG, "%s", what) : FOCI_OK;
}

/* As an execution of one sequence, but for the plan. */
static void open_pass(const foci_layer *layer, const foci_layer_step_io *io,
                      int64_t tokens, struct arena *work, struct layer_pass *x)
{
    *x = (struct layer_pass){
        .layer = layer,
        .active = layer->p.kind == FOCI_LAYER_GAU,
        .io = { FOCI_SIZED(foci_layer_io), .x = io->x, .residual = io->residual,
                .y = io->y, .params = io->params, .params_bf16 = io->params_bf16,
                .precomputed = io->precomputed }
    };
    layer_step_carve(layer, x, tokens, work);
    x->runs[0] = (struct layer_run){ .n = tokens };
    x->n_runs = tokens ? 1 : 0;
    layer_open_made(x);
}

foci_status foci_layer_step(const foci_layer *layer, foci_pool *pool,
                            const foci_layer_step_io *io)
{
    foci_layer_step_io whole;
    struct layer_pass  x;
    int64_t            tokens;

    if (!layer || !pool)
        return ctx_fail(layer ? layer->ctx : NULL, FOCI_ERR_ARG,
                        "foci_layer_step: the %s is NULL", layer ? "pool" : "layer");
    TRY(sized_in(layer->ctx, "foci_layer_step_io", &whole, io, sizeof whole));
    if (whole.n_states && !whole.states)
        return ctx_fail(layer->ctx, FOCI_ERR_ARG, "states is NULL");
    TRY(count_tokens(layer, &whole, &tokens));
    TRY(layer_step_check(layer, pool, &whole, tokens));

    struct arena work = { .base = whole.work };
    open_pass(layer, &whole, tokens, &work, &x);
    layer_project(&x);
    layer_gate(&x);
    const foci_step_io step = {
        FOCI_SIZED(foci_step_io),
        .states = whole.states,
        .n_states = whole.n_states,
        .tokens = whole.tokens,
        .q = x.at[PLACE_Q].data,
        .k = x.at[PLACE_K].data,
        .v = x.at[PLACE_V].data,
        .o = whole.y ? x.at[PLACE_O].data : NULL,
        .params = layer->n_distances ? x.plan_params : whole.params + layer->own_floats,
        .work = (char *)whole.work + work.used,
        .x = whole.x,
        .words = whole.words,
    };
    TRY(foci_step(pool, &step));
    if (!whole.y) return FOCI_OK;
    layer_gate_out(&x);
    layer_output(&x);
    return FOCI_OK;
}
