/* layer.c -- layers of any spec, kind and shape: made or refused with a reason, then run
 * forward, backward, by the judge and step by step.
 *
 * The bytes of the input are choices.  Buffers have not a byte more than was asked for,
 * and scratch memory holds rubbish before each pass: what comes out may not depend on it.
 */
#include "foci/layer.h"
#include "fuzz/choices.h"

enum { MOST_GROUPS = 3, LONGEST = 70, WIDEST = 40 };

/*
 * Specs and problems
 */

/* What speaks of a layer's projections is more common here than among all modifiers. */
static void put_projections(foci_ctx *ctx, struct choices *c, char *spec)
{
    static const char *const all[] = {
        " frozen(orthogonal)",
        " frozen(gaussian, sample=block)",
        " frozen(hadamard)",
        " frozen(hadamard, sample=block, shared=1)",
        " frozen(orthogonal, tie=1)",
        " init(orthogonal)",
        " txl",
    };
    const size_t used = strlen(spec);

    if (chance(c, 2)) return;
    strncat(spec, all[below(c, sizeof all / sizeof *all)], SPEC_CAP - used - 1);
    if (!parses(ctx, spec)) spec[used] = 0;
}

static void put_spec(foci_ctx *ctx, struct choices *c, int64_t heads, char *spec)
{
    *spec = 0;
    for (int g = 0; heads > 0; g++) {
        const int64_t n = g + 1 == MOST_GROUPS ? heads : 1 + below(c, heads);
        const size_t  used = strlen(spec);
        if (used || n < heads)
            snprintf(spec + used, SPEC_CAP - used, "%s%lld*", used ? " + " : "",
                     (long long)n);
        put_mech(ctx, c, spec);
        put_projections(ctx, c, spec);
        heads -= n;
    }
}

static foci_layer_problem draw_problem(struct choices *c, int64_t heads)
{
    foci_layer_problem p = { FOCI_SIZED(foci_layer_problem), .heads = heads };

    p.kind = (foci_layer_kind)(chance(c, 3) ? 1 + below(c, 2) : 0);
    p.dtype = (foci_dtype)below(c, 2);
    p.flags = chance(c, 2) ? FOCI_FLAG_TRAIN : 0;
    p.flags |= chance(c, 2) ? FOCI_FLAG_CAUSAL : 0;
    p.flags |= chance(c, 5) ? FOCI_FLAG_MASK : 0;
    p.flags |= chance(c, 5) ? FOCI_FLAG_BIAS : 0;
    p.flags |= chance(c, 4) ? FOCI_FLAG_FAST : 0;
    p.batch = chance(c, 16) ? 0 : 1 + below(c, 3);
    p.len = below(c, LONGEST);
    p.width =
        chance(c, 2) ? heads * (1 + below(c, WIDEST / heads)) : 1 + below(c, WIDEST);
    if (chance(c, 2) || p.kind == FOCI_LAYER_GAU) p.head_dim = 1 + below(c, 12);
    if (chance(c, 3) || p.kind == FOCI_LAYER_GAU) p.value_dim = 1 + below(c, 12);
    if (chance(c, 4)) p.kv_heads = 1 + below(c, heads);
    if (chance(c, 5)) p.len_source = 1 + below(c, LONGEST);
    if (p.len_source && chance(c, 2)) p.width_source = 1 + below(c, WIDEST);
    if (chance(c, 6)) p.memory = below(c, 20);
    if (chance(c, 6)) p.max_docs = 1 + below(c, 4);
    if (chance(c, 3)) p.mask_batch = p.batch;
    if (chance(c, 3)) p.mask_heads = p.heads;
    p.biases = chance(c, 2);
    if (chance(c, 5)) p.weight_dropout = 0.3;
    if (chance(c, 4)) p.output_dropout = 0.4;
    p.seed = (uint64_t)below(c, 256);
    p.index = (uint64_t)below(c, 4);
    return p;
}

/*
 * Executions
 */

struct world {
    foci_ctx          *ctx;
    struct choices    *c;
    foci_layer        *layer;
    foci_layer_problem p; /* filled in */
    int64_t            len_k;
    foci_layer_io      io;
    foci_layer_grads   g;
    int32_t           *lens, *lens_source, *docs, *words;
    size_t             n_x, n_source, n_floats, n_pairs; /* elements */
};

/* Not a byte more, for the sanitizers; rubbish inside. */
static void *room(size_t bytes)
{
    void *p = NULL;
    MUST(!posix_memalign(&p, 64, bytes + !bytes));
    memset(p, 0xff, bytes);
    return p;
}

static void *draw(const struct world *w, size_t n, uint64_t stream)
{
    void      *x = room(n * foci_dtype_bytes(w->p.dtype));
    struct rng rng;

    rng_seed(&rng, w->p.seed, stream);
    for (size_t i = 0; i < n; i++)
        ref_store((int)w->p.dtype, x, (int64_t)i, rng_normal(&rng));
    return x;
}

/* Lengths that may be none. */
static int32_t *draw_lens(const struct world *w, int64_t most)
{
    int32_t *lens = room((size_t)w->p.batch * sizeof *lens);
    for (int64_t b = 0; b < w->p.batch; b++)
        lens[b] = (int32_t)(chance(w->c, 32) ? most + 1 - 2 * below(w->c, 2) * most
                                             : below(w->c, most + 1));
    return lens;
}

static void draw_rest(struct world *w)
{
    const size_t rows = (size_t)(w->p.batch * w->p.len);

    if (!w->p.max_docs && chance(w->c, 3)) w->lens = draw_lens(w, w->p.len);
    if (w->p.len_source && chance(w->c, 3))
        w->lens_source = draw_lens(w, w->p.len_source);
    if (w->p.max_docs) {
        w->docs = room((size_t)(w->p.max_docs + 1) * sizeof *w->docs);
        w->docs[0] = chance(w->c, 8) ? (int32_t)below(w->c, 4) : 0;
        for (int64_t i = 1; i <= w->p.max_docs; i++)
            w->docs[i] = w->docs[i - 1] + (int32_t)below(w->c, w->p.len + 1);
        w->io.docs = w->docs;
        w->io.n_docs = 1 + below(w->c, w->p.max_docs);
    }
    w->words = room(rows * sizeof *w->words);
    for (size_t i = 0; i < rows; i++)
        w->words[i] = (int32_t)i / 3;
    w->io.words = w->words;
    w->io.lens = w->lens;
    w->io.lens_source = w->lens_source;
    w->io.dropout_seed = (uint64_t)below(w->c, 256);
}

static void draw_pairs(struct world *w)
{
    const foci_layer_problem *p = &w->p;
    uint8_t                  *mask = NULL;
    float                    *bias = NULL;

    w->n_pairs = (size_t)(max64(p->mask_batch, 1) * max64(p->mask_heads, 1)) *
                 (size_t)(p->len * w->len_k);
    if (p->flags & FOCI_FLAG_MASK) mask = room(w->n_pairs);
    if (p->flags & FOCI_FLAG_BIAS) bias = room(w->n_pairs * sizeof *bias);
    for (size_t i = 0; mask && i < w->n_pairs; i++)
        mask[i] = i % 5 != 0;
    for (size_t i = 0; bias && i < w->n_pairs; i++)
        bias[i] = (float)(i % 7) * 0.25f;
    w->io.mask = mask;
    w->io.bias = bias;
}

static void open_world(struct world *w)
{
    const foci_layer_problem *p = &w->p;

    w->p.size = sizeof w->p;
    MUST(foci_layer_get_problem(w->layer, &w->p) == FOCI_OK);
    w->len_k = p->len_source ? p->len_source : p->memory + p->len;
    w->n_x = (size_t)(p->batch * p->len * p->width);
    w->n_source = (size_t)(p->batch * p->len_source * p->width_source);
    w->n_floats = (size_t)foci_layer_param_floats(w->layer);
    w->io = (foci_layer_io){ FOCI_SIZED(foci_layer_io) };
    w->io.x = draw(w, w->n_x, 1);
    w->io.source = p->len_source ? draw(w, w->n_source, 2) : NULL;
    w->io.memory =
        p->memory ? draw(w, (size_t)(p->batch * p->memory * p->width), 3) : NULL;
    w->io.residual = chance(w->c, 4) ? draw(w, w->n_x, 4) : NULL;
    w->io.y = room(w->n_x * foci_dtype_bytes(p->dtype));
    float *params = room(w->n_floats * sizeof *params);
    MUST(foci_layer_params_init(w->layer, p->seed, params) == FOCI_OK);
    w->io.params = params;
    w->io.work = room(foci_layer_work_bytes(w->layer));
    if (p->flags & FOCI_FLAG_TRAIN)
        w->io.saved = room(foci_layer_saved_bytes(w->layer));
    draw_rest(w);
    draw_pairs(w);
}

static void close_world(struct world *w)
{
    void *const all[] = {
        (void *)w->io.x,
        (void *)w->io.source,
        (void *)w->io.memory,
        w->io.y,
        (void *)w->io.params,
        (void *)w->io.residual,
        w->io.work,
        w->io.saved,
        (void *)w->io.mask,
        (void *)w->io.bias,
        w->lens,
        w->lens_source,
        w->docs,
        w->words,
        w->g.dx,
        w->g.dsource,
        w->g.dparams,
        w->g.dbias,
        (void *)w->g.dy,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    foci_layer_free(w->layer);
}

static void spoil_work(struct world *w, int byte)
{
    memset(w->io.work, byte, foci_layer_work_bytes(w->layer));
}

/* The same bits, whatever was in the scratch memory; rows beyond a length are zero. */
static void forward(struct world *w)
{
    const size_t row = (size_t)w->p.width * foci_dtype_bytes(w->p.dtype);
    const size_t bytes = w->n_x * foci_dtype_bytes(w->p.dtype);
    char        *first = room(bytes);

    spoil_work(w, 0xff);
    MUST(foci_layer_forward(w->layer, &w->io) == FOCI_OK);
    memcpy(first, w->io.y, bytes);
    spoil_work(w, 0x3f);
    MUST(foci_layer_forward(w->layer, &w->io) == FOCI_OK);
    MUST(!bytes || !memcmp(first, w->io.y, bytes));
    for (int64_t b = 0; w->lens && b < w->p.batch; b++)
        for (int64_t i = w->lens[b]; i < w->p.len; i++)
            for (size_t t = 0; t < row; t++)
                MUST(first[(size_t)(b * w->p.len + i) * row + t] == 0);
    free(first);
}

static void backward(struct world *w)
{
    const size_t el = foci_dtype_bytes(w->p.dtype);
    char         text[512] = "";

    w->g = (foci_layer_grads){ FOCI_SIZED(foci_layer_grads), .dy = draw(w, w->n_x, 5) };
    w->g.dx = chance(w->c, 4) ? NULL : room(w->n_x * el);
    if (w->p.len_source) w->g.dsource = room(w->n_source * el);
    if (w->p.flags & FOCI_FLAG_BIAS) w->g.dbias = room(w->n_pairs * sizeof(float));
    float *twice = room(w->n_floats * sizeof *twice);
    w->g.dparams = room(w->n_floats * sizeof(float));
    for (int pass = 0; pass < 2; pass++) {
        memset(w->g.dparams, 0, w->n_floats * sizeof(float));
        spoil_work(w, pass ? 0x3f : 0xff);
        const foci_status status =
            foci_layer_io_check(w->layer, &w->io, &w->g, text, sizeof text);
        MUST(status == FOCI_OK || *text);
        MUST(foci_layer_backward(w->layer, &w->io, &w->g) == status);
        if (!pass) memcpy(twice, w->g.dparams, w->n_floats * sizeof *twice);
    }
    MUST(!w->n_floats || !memcmp(twice, w->g.dparams, w->n_floats * sizeof *twice));
    free(twice);
}

/* A frozen projection may be replaced; what is none may not. */
static void give(struct world *w)
{
    const int   n = foci_layer_param_count(w->layer), i = (int)below(w->c, n + 1);
    foci_param  p = { FOCI_SIZED(foci_param) };
    const float none = 0;

    if (foci_layer_param(w->layer, i, &p)) {
        MUST(i == n);
        return;
    }
    if (p.offset >= 0) {
        MUST(foci_layer_frozen_set(w->layer, i, &none) != FOCI_OK);
        return;
    }
    float *data = room((size_t)p.count * sizeof *data);
    MUST(foci_layer_frozen_get(w->layer, i, data) == FOCI_OK);
    MUST(foci_layer_frozen_set(w->layer, i, data) == FOCI_OK);
    free(data);
}

/* Rows of x for each of two states, some at a time. */
static void step(struct world *w)
{
    foci_pool  *pool = NULL;
    foci_state *states[2] = { NULL, NULL };

    if (foci_pool_create(foci_layer_plan(w->layer), 1, &pool)) {
        fuzz_message(w->ctx);
        return;
    }
    for (int s = 0; s < 2; s++)
        MUST(foci_state_create(pool, &states[s]) == FOCI_OK);
    for (int64_t at = 0; at < w->p.len * w->p.batch;) {
        const int64_t n = min64(1 + below(w->c, 5), w->p.len * w->p.batch - at);
        const int32_t tokens[2] = { (int32_t)(n - n / 2), (int32_t)(n / 2) };
        const size_t  row = (size_t)w->p.width * foci_dtype_bytes(w->p.dtype);
        char         *y = room((size_t)n * row);
        void         *work = room(foci_layer_step_work_bytes(
                    w->layer, pool, 2, n, w->p.len * 2 + n + w->p.batch * w->p.len));
        const foci_layer_step_io io = { FOCI_SIZED(foci_layer_step_io),
                                        .states = states,
                                        .n_states = 2,
                                        .tokens = tokens,
                                        .x = (const char *)w->io.x + (size_t)at * row,
                                        .y = y,
                                        .words = w->words + at,
                                        .params = w->io.params,
                                        .work = work };
        foci_status              status;
        while ((status = foci_layer_step(w->layer, pool, &io)) == FOCI_ERR_FULL) {
            fuzz_message(w->ctx);
            MUST(foci_pool_grow(pool, 2) == FOCI_OK);
        }
        free(y);
        free(work);
        if (status) {
            fuzz_message(w->ctx);
            break;
        }
        at += n;
    }
    for (int s = 0; s < 2; s++)
        foci_state_free(states[s]);
    foci_pool_free(pool);
}

static void execute(struct world *w)
{
    char text[4096] = "";

    open_world(w);
    if (chance(w->c, 4))
        foci_layer_params_calibrate(w->layer, &w->io, (float *)w->io.params);
    if (chance(w->c, 8))
        foci_layer_params_advance(w->layer, &w->io, (float *)w->io.params);
    if (foci_layer_io_check(w->layer, &w->io, NULL, text, sizeof text)) {
        MUST(*text && foci_layer_forward(w->layer, &w->io) == FOCI_ERR_ARG);
        return;
    }
    give(w);
    forward(w);
    if (w->p.flags & FOCI_FLAG_TRAIN) backward(w);
    if (chance(w->c, 4)) MUST(foci_ref_layer_forward(w->layer, &w->io) == FOCI_OK);
    if (w->p.flags & FOCI_FLAG_CAUSAL && !w->p.len_source) step(w);
    MUST(foci_layer_describe(w->layer, text, sizeof text) > 0);
}

/*
 * Absurd numbers
 */

static void absurd(foci_ctx *ctx, struct choices *c)
{
    foci_layer_problem p = { FOCI_SIZED(foci_layer_problem) };
    char               spec[SPEC_CAP] = "softmax", text[2048];
    foci_layer        *layer;
    int64_t *const     fields[] = { &p.batch,     &p.len,        &p.width,
                                    &p.heads,     &p.kv_heads,   &p.head_dim,
                                    &p.value_dim, &p.len_source, &p.width_source,
                                    &p.memory,    &p.max_docs,   &p.mask_batch,
                                    &p.mask_heads };

    if (chance(c, 2)) {
        *spec = 0;
        put_mech(ctx, c, spec);
    }
    p.kind = (foci_layer_kind)draw_any(c, below(c, 3));
    p.dtype = (foci_dtype)draw_any(c, FOCI_F32);
    p.flags = (uint32_t)draw_any(c, FOCI_FLAG_TRAIN);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        *fields[i] = draw_any(c, i < 4);
    p.weight_dropout = (double)draw_any(c, 0);
    p.output_dropout = (double)draw_any(c, 0);
    p.size = (size_t)draw_any(c, sizeof p);
    if (p.size > sizeof p) p.size = sizeof p + 1;
    /* Frozen projections are drawn, and tables of masks made, when the layer is: large
     * ones take long, and are not what is looked for here. */
    if (strstr(spec, "frozen") || strncmp(spec, "test_", 5) == 0)
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
            *fields[i] = min64(*fields[i], 64);

    const foci_status status = foci_layer_create(ctx, spec, &p, &layer);
    if (status != FOCI_OK) {
        MUST(!layer);
        fuzz_message(ctx);
        return;
    }
    foci_cost           cost = { FOCI_SIZED(foci_cost) };
    const foci_layer_io io = { FOCI_SIZED(foci_layer_io) };
    foci_layer_describe(layer, text, sizeof text);
    MUST(foci_layer_cost(layer, &cost) == FOCI_OK && cost.forward_flops >= 0);
    *text = 0;
    if (foci_layer_io_check(layer, &io, NULL, text, sizeof text) != FOCI_OK)
        MUST(*text);
    foci_layer_free(layer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices c = { data, data + size };
    foci_ctx      *ctx = draw_level(&c);
    char           spec[SPEC_CAP];

    if (chance(&c, 8)) {
        absurd(ctx, &c);
        return 0;
    }
    struct world  w = { .ctx = ctx, .c = &c };
    const int64_t heads = 1 + below(&c, 4);
    put_spec(ctx, &c, heads, spec);
    w.p = draw_problem(&c, heads);
    if (foci_layer_create(ctx, spec, &w.p, &w.layer) != FOCI_OK) {
        MUST(!w.layer);
        fuzz_message(ctx);
        return 0;
    }
    execute(&w);
    close_world(&w);
    return 0;
}
