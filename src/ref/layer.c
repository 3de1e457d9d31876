/* layer.c -- foci_ref_layer_*(): a layer written out, around the interpreter of its
 * plan. */

#include "ref/layer.h"

/*
 * Rows
 */

foci_range ref_valid(const struct ref_pass *x, enum ref_at at, int64_t b)
{
    const foci_layer_io *io = x->call->io;

    if (at == REF_MEMORY) return (foci_range){ 0, x->p.memory };
    if (io->docs) return (foci_range){ io->docs[0], io->docs[io->n_docs] };
    if (at == REF_SOURCE)
        return (foci_range){ 0, io->lens_source ? io->lens_source[b] : x->p.len_source };
    return (foci_range){ 0, io->lens ? io->lens[b] : x->p.len };
}

static void carve_place(const struct ref_pass *x, struct ref_place *p,
                        struct arena *scratch)
{
    const bool    none = !x->p.batch || !p->rows || !p->heads;
    const int64_t n = none ? 0
                           : (x->p.batch - 1) * p->l.batch + (p->rows - 1) * p->l.row +
                                 (p->heads - 1) * p->l.head + p->dim;

    p->x = arena_alloc(scratch, n, sizeof *p->x);
    p->d = arena_alloc(scratch, n, sizeof *p->d);
}

static struct ref_place heads_of(foci_layout l, int64_t rows, int64_t heads, int64_t dim)
{
    return (struct ref_place){ .l = l, .rows = rows, .heads = heads, .dim = dim };
}

/* Rows of heads side by side. */
static struct ref_place packed(int64_t rows, int64_t heads, int64_t dim)
{
    return heads_of((foci_layout){ rows * heads * dim, heads * dim, dim }, rows, heads,
                    dim);
}

static void set_places(struct ref_pass *x)
{
    const foci_layer_problem *p = &x->p;
    const foci_problem       *h = &x->plan->p;
    struct ref_place         *at = x->at;

    at[REF_X] = packed(p->len, 1, p->width);
    at[REF_SOURCE] = packed(p->len_source, 1, p->width_source);
    at[REF_MEMORY] = packed(p->memory, 1, p->width);
    at[REF_Q] = heads_of(h->q, h->len_q, h->heads, h->dim_qk);
    at[REF_K] = heads_of(h->k, h->len_k, h->kv_heads, h->dim_qk);
    at[REF_V] = heads_of(h->v, h->len_k, h->kv_heads, h->dim_v);
    at[REF_O] = heads_of(h->o, h->len_q, h->heads, h->dim_v);
    at[REF_Y] = packed(p->len, 1, p->width);
    if (p->kind == FOCI_LAYER_CONV)
        at[REF_U] = packed(p->len, 2 * h->kv_heads, h->dim_v);
    if (p->kind != FOCI_LAYER_GAU) return;
    at[REF_U] = at[REF_W] = at[REF_G] = packed(p->len, 1, h->dim_v);
    at[REF_Z] = packed(p->len, 1, h->dim_qk);
}

/* All of an execution's memory; with an arena that only counts, its size. */
static void carve_all(struct ref_pass *x, struct arena *scratch)
{
    for (int i = 0; i < REF_PLACES; i++)
        carve_place(x, &x->at[i], scratch);
    x->lens_k = arena_alloc(scratch, x->p.batch, sizeof *x->lens_k);
    x->plan_params = arena_alloc(scratch, x->plan->n_floats, sizeof *x->plan_params);
    x->dplan = arena_alloc(scratch, x->plan->n_floats, sizeof *x->dplan);
    ref_links_carve(x, scratch);
}

/* Rows that are not there stay zero, whatever the caller's hold. */
static void load(const struct ref_pass *x, enum ref_at at, const void *from, double *to)
{
    const struct ref_place *p = &x->at[at];

    for (int64_t b = 0; from && b < x->p.batch; b++) {
        const foci_range rows = ref_valid(x, at, b);
        for (int64_t t = rows.begin * p->l.row; t < rows.end * p->l.row; t++)
            to[b * p->l.batch + t] = ref_load(x->call->type, from, b * p->l.batch + t);
    }
}

static void store(const struct ref_pass *x, enum ref_at at, const double *from, void *to)
{
    const struct ref_place *p = &x->at[at];

    for (int64_t t = 0; to && t < x->p.batch * p->l.batch; t++)
        ref_store(x->call->type, to, t, from[t]);
}

/*
 * Executions
 */

/* Pairs are rounded to bf16 where they are rounded at all: of floats, only what engines
 * other than the exact one do. */
static bool is_exact(const foci_plan *plan)
{
    foci_group g = { FOCI_SIZED(foci_group) };

    for (int i = 0; i < foci_plan_group_count(plan); i++) {
        (void)foci_plan_group(plan, i, &g);
        for (const foci_mech *m = g.mech; m; m = m->inner)
            if (m->def->engine == FOCI_ENGINE_EXACT) return true;
    }
    return false;
}

static foci_status run_heads(const struct ref_pass *x, bool back)
{
    const struct ref_layer_call *c = x->call;
    const foci_layer_io         *io = c->io;
    const struct ref_place      *at = x->at;
    const bool                   cross = x->p.len_source > 0;

    for (int64_t b = 0; b < x->p.batch; b++)
        x->lens_k[b] = (int32_t)(x->p.memory + (io->lens ? io->lens[b] : x->p.len));
    const foci_io plan_io = {
        FOCI_SIZED(foci_io),
        .q = at[REF_Q].x,
        .k = at[REF_K].x,
        .v = at[REF_V].x,
        .x = at[REF_X].x,
        .o = at[REF_O].x,
        .len_q = io->lens,
        .len_k = cross ? io->lens_source : io->lens ? x->lens_k : NULL,
        .docs = io->docs,
        .n_docs = io->n_docs,
        .words = io->words,
        .mask = io->mask,
        .bias = io->bias,
        .dropout_seed = io->dropout_seed,
    };
    const foci_grads grads = { FOCI_SIZED(foci_grads),
                               .d_o = at[REF_O].d,
                               .dq = at[REF_Q].d,
                               .dk = at[REF_K].d,
                               .dv = at[REF_V].d,
                               .dx = at[REF_X].d,
                               .dbias = back ? c->grads->dbias : NULL };
    return ref_run(&(struct ref_call){
        .plan = x->plan,
        .io = &plan_io,
        .grads = back ? &grads : NULL,
        .type = REF_F64,
        .params = x->plan_params,
        .dparams = back ? x->dplan : NULL,
        .rounds = c->rounds && (x->operand == FOCI_BF16 || !is_exact(x->plan)) });
}

/* Outputs that are kept, and the residual, in rows that are there. */
static void finish(const struct ref_pass *x)
{
    const foci_layer_io *io = x->call->io;
    double              *y = x->at[REF_Y].x;

    for (int64_t b = 0; b < x->p.batch; b++) {
        const foci_range rows = ref_valid(x, REF_X, b);
        for (int64_t i = rows.begin; i < rows.end; i++)
            for (int64_t c = 0; c < x->p.width; c++) {
                const int64_t at = (b * x->p.len + i) * x->p.width + c;
                y[at] *= ref_keep_out(x, b, i, c);
                if (io->residual) y[at] += ref_load(x->call->type, io->residual, at);
            }
    }
}

static void round_place(const struct ref_pass *x, const struct ref_place *p)
{
    for (int64_t b = 0; b < x->p.batch; b++)
        for (int64_t i = 0; i < p->rows; i++)
            for (int64_t c = 0; c < p->heads * p->dim; c++) {
                double *const e = ref_element(p, p->x, b, i, c);
                *e = ref_round(x->place, *e);
            }
}

/* The last rows of memory and x together, which may take the place of the memory. */
static void remember(const struct ref_pass *x)
{
    const foci_layer_io *io = x->call->io;
    const int64_t        m = x->p.memory, width = x->p.width;

    for (int64_t b = 0; io->memory_next && b < x->p.batch; b++) {
        const int64_t n = ref_valid(x, REF_X, b).end;
        for (int64_t t = 0; t < m * width; t++) {
            const int64_t from = t + n * width;
            const double  value =
                from < m * width
                     ? ref_load(x->call->type, io->memory, b * m * width + from)
                     : x->at[REF_X].x[b * x->at[REF_X].l.batch + from - m * width];
            ref_store(x->call->type, io->memory_next, b * m * width + t, value);
        }
    }
}

/* Rows of a place of the heads that are there, of entry b: of queries, or of keys. */
static foci_range rows_there(const struct ref_pass *x, enum ref_at at, int64_t b)
{
    if (at != REF_Q && x->p.len_source) return ref_valid(x, REF_SOURCE, b);
    foci_range rows = ref_valid(x, REF_X, b);
    if (at != REF_Q) rows.end += x->p.memory;
    return rows;
}

static void take_heads(const struct ref_pass *x, enum ref_at at, const void *from,
                       int64_t head0, int64_t heads)
{
    const struct ref_place *p = &x->at[at];

    for (int64_t b = 0; b < x->p.batch; b++) {
        const foci_range rows = rows_there(x, at, b);
        for (int64_t i = rows.begin; i < rows.end; i++)
            for (int64_t c = head0 * p->dim; c < (head0 + heads) * p->dim; c++) {
                double *const to = ref_element(p, p->x, b, i, c);
                *to = ref_load((int)x->p.dtype, from, to - p->x);
            }
    }
}

/* Those that were handed over, of heads that read them. */
static void take_rows(const struct ref_pass *x)
{
    const void *const *rows = x->call->rows;
    foci_group         g = { FOCI_SIZED(foci_group) };

    for (int i = 0; i < foci_plan_group_count(x->plan); i++) {
        (void)foci_plan_group(x->plan, i, &g);
        if (rows[0] && g.reads & FOCI_READ_Q)
            take_heads(x, REF_Q, rows[0], g.head0, g.heads);
        if (rows[1] && g.reads & FOCI_READ_K)
            take_heads(x, REF_K, rows[1], g.kv0, g.kv_heads);
        if (rows[2] && g.reads & FOCI_READ_V)
            take_heads(x, REF_V, rows[2], g.kv0, g.kv_heads);
    }
}

static foci_status forward(struct ref_pass *x)
{
    const foci_layer_io *io = x->call->io;

    ref_made_fill(x);
    load(x, REF_X, io->x, x->at[REF_X].x);
    load(x, REF_SOURCE, io->source, x->at[REF_SOURCE].x);
    load(x, REF_MEMORY, io->memory, x->at[REF_MEMORY].x);
    for (int i = 0; i < x->n_links - 1; i++)
        ref_link_run(x, &x->links[i]);
    ref_gates_in(x);
    take_rows(x);
    TRY(run_heads(x, false));
    round_place(x, &x->at[REF_O]);
    ref_gates_out(x);
    return FOCI_OK;
}

static foci_status backward(struct ref_pass *x)
{
    const foci_layer_grads *g = x->call->grads;
    double                 *dy = x->at[REF_Y].d;

    load(x, REF_X, g->dy, dy);
    for (int64_t t = 0; t < x->p.batch * x->p.len * x->p.width; t++)
        dy[t] *= ref_keep_out(x, t / x->p.width / x->p.len, t / x->p.width % x->p.len,
                              t % x->p.width);
    ref_link_back(x, &x->links[x->n_links - 1]);
    ref_gates_out_back(x);
    TRY(run_heads(x, true));
    ref_made_back(x);
    ref_gates_in_back(x);
    for (int i = 0; i < x->n_links - 1; i++)
        ref_link_back(x, &x->links[i]);
    store(x, REF_X, x->at[REF_X].d, g->dx);
    store(x, REF_SOURCE, x->at[REF_SOURCE].d, g->dsource);
    return FOCI_OK;
}

static foci_status run_open(struct ref_pass *x)
{
    struct arena dry = { 0 }, scratch = { 0 };

    set_places(x);
    for (int k = 0; k < 2; k++) {
        x->gamma[k] = ref_offset(x, ref_find(x, -1, k ? "gamma_k" : "gamma_q"));
        x->beta[k] = ref_offset(x, ref_find(x, -1, k ? "beta_k" : "beta_q"));
    }
    TRY(ref_links_open(x));
    carve_all(x, &dry);
    if (!arena_ok(&dry)) return ctx_fail(x->ctx, FOCI_ERR_MEMORY, "out of memory");
    scratch.base = ctx_alloc(x->ctx, dry.used ? dry.used : 1, 1);
    if (!scratch.base) return FOCI_ERR_MEMORY;
    carve_all(x, &scratch);

    foci_status status = ref_links_load(x);
    if (!status) status = forward(x);
    if (!status && x->call->grads) {
        status = backward(x);
    } else if (!status) {
        ref_link_run(x, &x->links[x->n_links - 1]);
        finish(x);
        store(x, REF_Y, x->at[REF_Y].x, x->call->io->y);
        remember(x);
    }
    ctx_free(x->ctx, scratch.base, dry.used ? dry.used : 1, 1);
    return status;
}

foci_status ref_layer_run(const struct ref_layer_call *call)
{
    const foci_layer *layer = call->layer;
    struct ref_pass   x = { .call = call,
                            .p = { FOCI_SIZED(foci_layer_problem) },
                            .plan = foci_layer_plan(layer) };

    TRY(foci_layer_get_problem(layer, &x.p));
    x.ctx = x.plan->ctx;
    ref_made_count(&x);
    x.place = call->rounds ? (int)x.p.dtype : REF_F64;
    x.operand = !call->rounds                                            ? REF_F64
                : x.p.dtype == FOCI_F32 && !(x.p.flags & FOCI_FLAG_FAST) ? FOCI_F32
                                                                         : FOCI_BF16;
    const foci_status status = run_open(&x);
    if (x.links) ctx_free(x.ctx, x.links, (size_t)x.cap_links, sizeof *x.links);
    return status;
}

/*
 * The public face
 */

/* As layers check, but without scratch memory; y may be missing where it is not
 * written. */
static foci_status layer_check(const foci_layer *layer, const foci_layer_io *io,
                               const foci_layer_grads *grads, foci_layer_io *whole)
{
    static _Alignas(64) char nowhere[64];

    if (!layer) return ctx_fail(NULL, FOCI_ERR_ARG, "the layer is NULL");
    TRY(sized_in(foci_layer_plan(layer)->ctx, "foci_layer_io", whole, io,
                 sizeof *whole));
    foci_layer_io it = *whole;
    it.work = it.saved = nowhere;
    if (grads) it.y = nowhere;
    return foci_layer_io_check(layer, &it, grads, NULL, 0);
}

/* Parameters and their gradients are floats outside and doubles inside. */
static foci_status layer_run(const foci_layer *layer, const foci_layer_io *io,
                             const foci_layer_grads *grads)
{
    foci_ctx          *ctx = foci_layer_plan(layer)->ctx;
    const size_t       n = (size_t)foci_layer_param_floats(layer) + 1;
    foci_layer_problem p = { FOCI_SIZED(foci_layer_problem) };
    double            *params = ctx_alloc(ctx, n, sizeof *params);
    double            *dparams = ctx_alloc(ctx, n, sizeof *dparams);
    foci_status        status = FOCI_ERR_MEMORY;

    if (params && dparams) {
        for (size_t t = 0; t + 1 < n; t++)
            params[t] = (double)io->params[t];
        (void)foci_layer_get_problem(layer, &p);
        status = ref_layer_run(&(struct ref_layer_call){ .layer = layer,
                                                         .io = io,
                                                         .grads = grads,
                                                         .type = (int)p.dtype,
                                                         .params = params,
                                                         .dparams = dparams });
    }
    for (size_t t = 0; !status && grads && grads->dparams && t + 1 < n; t++)
        grads->dparams[t] += (float)dparams[t];
    if (params) ctx_free(ctx, params, n, sizeof *params);
    if (dparams) ctx_free(ctx, dparams, n, sizeof *dparams);
    return status;
}

foci_status foci_ref_layer_forward(const foci_layer *layer, const foci_layer_io *io)
{
    foci_layer_io whole;

    TRY(layer_check(layer, io, NULL, &whole));
    return layer_run(layer, &whole, NULL);
}

foci_status foci_ref_layer_backward(const foci_layer *layer, const foci_layer_io *io,
                                    const foci_layer_grads *grads)
{
    foci_layer_io    whole;
    foci_layer_grads all;

    if (!layer) return ctx_fail(NULL, FOCI_ERR_ARG, "the layer is NULL");
    TRY(sized_in(foci_layer_plan(layer)->ctx, "foci_layer_grads", &all, grads,
                 sizeof all));
    TRY(layer_check(layer, io, &all, &whole));
    return layer_run(layer, &whole, &all);
}
