/* device_exact.c -- the exact engine on a device: what planning uploads, and the order of
 * passes and kernels of an execution.
 *
 *     sequences -> cleared rows -> numbers of heads, biases by distance, counts
 *       -> mapped rows -> kernels -> gradients of given rows and of parameters
 *
 * Passes that have nothing to do are left out: a plain softmax is one launch.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "device/device_exact.h"

static const double log2_e = 1.44269504088896340736;

/*
 * An execution: the launch and its pieces of the work memory.
 */

struct device_run {
    struct cuda_exact          x;
    const struct cuda_calls   *calls;
    const struct device_stage *on;
    const foci_plan           *plan;
    const struct stage        *stage;
    const foci_io             *io;

    struct cuda_seq *seqs;
    float           *head_scale, *rel;
    void            *q, *k;   /* mapped rows */
    float           *dq, *dk; /* gradients of mapped rows */
    float           *sums;    /* [heads][n_bands][64] of ds, by distance */
};

/* Bands of 64 distances between queries and keys. */
static int first_band(const foci_problem *p)
{
    return p->flags & FOCI_FLAG_CAUSAL ? 0 : -(int)div_up(p->len_q, FOCI_TILE);
}

static int n_bands(const foci_problem *p)
{
    return (int)div_up(p->len_k, FOCI_TILE) - first_band(p);
}

bool device_maps(const struct stage *s)
{
    const struct cuda_map *m = &s->device->map;
    return m->standard || m->unit || m->rope_base > 0;
}

/* Elements of a mapped row: chunks of 16 bytes. */
static int64_t mapped_width(const foci_problem *p)
{
    return round_up(p->dim_qk, 16 / (int64_t)foci_dtype_bytes(p->dtype));
}

foci_layout device_rows(const struct stage *s, const foci_problem *p, bool keys)
{
    const int64_t wide = mapped_width(p);
    const int64_t rows = keys ? p->len_k : p->len_q;
    const int64_t heads = keys ? s->group->kv_heads : s->group->heads;

    if (!device_maps(s)) return keys ? p->k : p->q;
    return (foci_layout){ rows * heads * wide, heads * wide, wide };
}

static bool counts_keys(const struct stage *s)
{
    return s->score.n_rows || s->group->mech.def->weigh == FOCI_WEIGH_RELU2;
}

/* The pieces, from an arena that may be null: sizes and uses cannot disagree. */
static void device_exact_carve(struct device_run *r, struct arena *a, bool backward)
{
    const foci_problem      *p = &r->plan->p;
    const struct plan_group *g = r->stage->group;
    const struct score      *score = &r->stage->score;
    const int64_t            rows = g->heads * p->batch * p->len_q;
    const int64_t            wide = mapped_width(p);
    const size_t             el = foci_dtype_bytes(p->dtype);

    r->seqs = arena_alloc(a, plan_max_seqs(r->plan) + 1, sizeof *r->seqs);
    if (score->n_factors) r->head_scale = arena_alloc(a, g->heads, sizeof(float));
    if (score->n_tables)
        r->rel = arena_alloc(a, g->heads * r->on->n_rel, sizeof(float));
    if (counts_keys(r->stage)) r->x.visible = arena_alloc(a, rows, sizeof(int32_t));
    if (device_maps(r->stage)) {
        r->q = arena_alloc(a, p->batch * p->len_q * g->heads * wide, el);
        r->k = arena_alloc(a, p->batch * p->len_k * g->kv_heads * wide, el);
    }
    if (backward) {
        r->x.delta = arena_alloc(a, rows, sizeof(float));
        if (score->n_factors) r->x.row_ds = arena_alloc(a, rows, sizeof(float));
        if (score->n_tables)
            r->sums = arena_alloc(a, g->heads * n_bands(p) * FOCI_TILE, sizeof(float));
        if (device_maps(r->stage)) {
            r->dq =
                arena_alloc(a, p->batch * p->len_q * g->heads * wide, sizeof(float));
            r->dk =
                arena_alloc(a, p->batch * p->len_k * g->kv_heads * wide, sizeof(float));
        }
    }
    r->x.work_bytes = r->on->kernel_bytes[backward];
    r->x.work = r->x.work_bytes ? arena_alloc(a, (int64_t)r->x.work_bytes, 1) : NULL;
}

static struct device_run run_of(const foci_plan *plan, const struct stage *s,
                                const foci_io *io)
{
    struct device_run r = { .x = s->device->x,
                            .calls = plan->ctx->device->calls,
                            .on = s->device,
                            .plan = plan,
                            .stage = s,
                            .io = io };

    r.x.row_ds = NULL; /* until it has a place */
    return r;
}

static size_t bytes_of(const foci_plan *plan, const struct stage *s, bool backward)
{
    struct device_run r = run_of(plan, s, NULL);
    struct arena      a = { 0 };

    device_exact_carve(&r, &a, backward);
    return a.used;
}

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    const size_t forward = bytes_of(plan, s, false);
    const size_t backward =
        plan->p.flags & FOCI_FLAG_TRAIN ? bytes_of(plan, s, true) : 0;
    return forward > backward ? forward : backward;
}

static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    return s->group->heads * plan->p.batch * plan->p.len_q;
}

/*
 * Tensors
 */

static struct cuda_in rows_in(const void *at, const foci_layout *l, int64_t head0,
                              size_t el)
{
    const char *first = at ? (const char *)at + (size_t)(head0 * l->head) * el : NULL;
    return (struct cuda_in){ first, l->batch, l->row, l->head };
}

static struct cuda_out rows_out(void *at, const foci_layout *l, int64_t head0, size_t el)
{
    char *first = at ? (char *)at + (size_t)(head0 * l->head) * el : NULL;
    return (struct cuda_out){ first, l->batch, l->row, l->head };
}

static struct cuda_pairs pairs_of(const struct device_run *r, const void *at, size_t el)
{
    const foci_problem *p = &r->plan->p;
    const int64_t       head = p->len_q * p->len_k, head0 = r->stage->group->head0;
    struct cuda_pairs   pairs = { .at = at, .row = p->len_k };

    if (!at) return pairs;
    if (p->mask_heads > 1) {
        pairs.head = head;
        pairs.at = (const char *)at + (size_t)(head0 * head) * el;
    }
    if (p->mask_batch > 1) pairs.seq = p->mask_heads * head;
    return pairs;
}

static void set_tensors(struct device_run *r)
{
    const foci_problem      *p = &r->plan->p;
    const foci_io           *io = r->io;
    const struct plan_group *g = r->stage->group;
    struct cuda_exact       *x = &r->x;
    const size_t             el = foci_dtype_bytes(p->dtype);

    x->stream = io->stream;
    x->q = rows_in(io->q, &p->q, g->head0, el);
    x->k = rows_in(io->k, &p->k, g->kv0, el);
    x->v = rows_in(io->v, &p->v, g->kv0, el);
    x->o = rows_out(io->o, &p->o, g->head0, el);
    x->mask = pairs_of(r, io->mask, 1);
    x->bias = pairs_of(r, io->bias, sizeof(float));
    x->drop_seed = io->dropout_seed;
    x->lse = io->lse ? io->lse + g->head0 * p->len_q : NULL;
    x->lse_seq = p->heads * p->len_q;
    x->lse_head = p->len_q;
    if (r->stage->score.sink >= 0) x->score.sink = io->params + r->stage->score.sink;
}

/*
 * Passes
 */

#define STEP(call)                                                                     \
    do {                                                                               \
        const int step_error = (call);                                                 \
        if (step_error) return step_error;                                             \
    } while (0)

static int make_seqs(struct device_run *r)
{
    const foci_io            *io = r->io;
    const struct cuda_lengths lengths = { io->len_q, io->len_k, io->docs };

    r->x.n_seqs = (int)(io->docs ? io->n_docs : r->plan->p.batch);
    r->x.packed = io->docs != NULL;
    if (!io->docs && !io->len_q && !io->len_k) return 0;
    STEP(r->calls->seqs(&r->x, &lengths, r->seqs));
    r->x.seqs = r->seqs;
    return 0;
}

static struct cuda_factors factors_of(const struct device_run *r)
{
    const struct score *s = &r->stage->score;
    struct cuda_factors f = { .params = r->io->params, .n = s->n_factors };

    for (int i = 0; i < s->n_factors; i++)
        f.at[i] = s->factor[i];
    return f;
}

static struct cuda_tables tables_of(const struct device_run *r)
{
    const struct score *s = &r->stage->score;
    struct cuda_tables  t = { .params = r->io->params,
                              .slope = r->on->x.score.slope,
                              .n = s->n_tables,
                              .unit = (float)r->on->bias_unit };

    for (int i = 0; i < s->n_tables; i++) {
        t.entry[i] = r->on->entry[i];
        t.at[i] = s->table_at[i];
        t.size[i] = s->table_size[i];
    }
    return t;
}

static int make_numbers(struct device_run *r)
{
    const struct score *s = &r->stage->score;
    struct cuda_exact  *x = &r->x;

    if (s->n_factors) {
        const struct cuda_factors f = factors_of(r);
        STEP(r->calls->heads(x->stream, &f, r->on->scale, x->heads, r->head_scale));
        x->score.head_scale = r->head_scale;
    }
    if (s->n_tables) {
        const struct cuda_tables t = tables_of(r);
        x->score.n_rel = r->on->n_rel;
        x->score.rel0 = r->on->rel0;
        STEP(r->calls->rel(x->stream, &t, x->heads, r->on->n_rel, r->on->rel0, r->rel));
        x->score.rel = r->rel;
        x->score.slope = NULL;
    }
    return counts_keys(r->stage) ? r->calls->visible(x) : 0;
}

static int map_rows(struct device_run *r, bool keys)
{
    const foci_problem   *p = &r->plan->p;
    struct cuda_exact    *x = &r->x;
    const foci_layout     l = device_rows(r->stage, p, keys);
    const struct cuda_out to = { keys ? r->k : r->q, l.batch, l.row, l.head };
    struct cuda_in       *rows = keys ? &x->k : &x->q;

    STEP(r->calls->map(x, &r->on->map, keys, rows, &to, (int)mapped_width(p)));
    *rows = (struct cuda_in){ to.at, to.seq, to.row, to.head };
    return 0;
}

static int prepare(struct device_run *r)
{
    STEP(make_seqs(r));
    STEP(make_numbers(r));
    if (!device_maps(r->stage)) return 0;
    STEP(map_rows(r, false));
    return map_rows(r, true);
}

/*
 * Forward
 */

static int run_forward(struct device_run *r)
{
    struct cuda_exact *x = &r->x;
    const size_t       el = foci_dtype_bytes(r->plan->p.dtype);

    STEP(prepare(r));
    if (x->seqs) {
        STEP(r->calls->clear(x, &x->o, x->heads, x->dv * (int)el, (int)el, 0));
        STEP(r->calls->clear_lse(x));
    }
    return r->calls->exact_forward(x);
}

/* The first error counts. */
static void report(const struct execution *exec, int error)
{
    if (error && exec->fault && !*exec->fault) *exec->fault = error;
}

static void run_on(const struct execution *exec, struct device_run *r,
                   int (*pass)(struct device_run *))
{
    const struct device *d = exec->plan->ctx->device;
    int                  before = 0;
    int                  error = d->calls->enter(d->index, &before);

    if (!error) error = pass(r);
    d->calls->leave(before);
    report(exec, error);
}

static void forward(const struct execution *exec, const struct stage *s,
                    const foci_io *io, float *saved)
{
    struct device_run r = run_of(exec->plan, s, io);
    struct arena      a = { .base = io->work };

    set_tensors(&r);
    r.x.norm = saved;
    device_exact_carve(&r, &a, false);
    run_on(exec, &r, run_forward);
}

/*
 * Backward
 */

struct device_back {
    struct device_run r; /* first: passes are given the run */
    const foci_grads *g;
};

static int clear_grads(struct device_run *r)
{
    struct cuda_exact *x = &r->x;
    const int          el = (int)foci_dtype_bytes(r->plan->p.dtype);

    if (!x->seqs) return 0;
    STEP(r->calls->clear(x, &x->dq, x->heads, x->d * el, el, 0));
    STEP(r->calls->clear(x, &x->dk, x->kv_heads, x->d * el, el, 1));
    return r->calls->clear(x, &x->dv_out, x->kv_heads, x->dv * el, el, 1);
}

/* Gradients of mapped rows go to work memory, as floats. */
static struct cuda_out aside(struct device_run *r, bool keys)
{
    const foci_layout l = device_rows(r->stage, &r->plan->p, keys);

    return (struct cuda_out){ keys ? r->dk : r->dq, l.batch, l.row, l.head };
}

static int map_back(struct device_run *r, bool keys, const struct cuda_in *given,
                    const struct cuda_out *to)
{
    const struct cuda_out made = aside(r, keys);
    const struct cuda_in  from = { made.at, made.seq, made.row, made.head };

    if (!to->at) return 0;
    return r->calls->map_back(&r->x, &r->on->map, keys, given, &from, to);
}

static int param_grads(struct device_back *b)
{
    struct device_run        *r = &b->r;
    const struct score       *s = &r->stage->score;
    const struct cuda_factors f = factors_of(r);
    const foci_problem       *p = &r->plan->p;

    if (b->g->dbias) {
        const int64_t at =
            p->mask_heads > 1 ? r->stage->group->head0 * p->len_q * p->len_k : 0;
        STEP(r->calls->bias_back(&r->x, b->g->dbias + at));
    }
    if (!b->g->dparams) return 0;
    if (s->sink >= 0) STEP(r->calls->sink_back(&r->x, b->g->dparams, s->sink));
    if (s->n_factors) STEP(r->calls->factors_back(&r->x, &f, s->scale, b->g->dparams));
    if (s->n_tables) {
        const struct cuda_tables t = tables_of(r);
        STEP(r->calls->tables_back(&r->x, &t, r->on->rel0, first_band(p), n_bands(p),
                                   r->sums, b->g->dparams));
    }
    return 0;
}

static int run_backward(struct device_run *r)
{
    struct device_back   *b = (struct device_back *)r;
    struct cuda_exact    *x = &r->x;
    const struct cuda_in  q = x->q, k = x->k;
    const struct cuda_out dq = x->dq, dk = x->dk;
    const bool            mapped = device_maps(r->stage);

    STEP(prepare(r));
    STEP(clear_grads(r));
    if (mapped) {
        if (dq.at) x->dq = aside(r, false);
        if (dk.at) x->dk = aside(r, true);
        x->dq_f32 = x->dk_f32 = 1;
    }
    STEP(r->calls->exact_backward(x));
    if (mapped) {
        STEP(map_back(r, false, &q, &dq));
        STEP(map_back(r, true, &k, &dk));
    }
    return param_grads(b);
}

static void backward(const struct execution *exec, const struct stage *s,
                     const foci_io *io, const float *saved, const foci_grads *g)
{
    const foci_problem *p = &exec->plan->p;
    const size_t        el = foci_dtype_bytes(p->dtype);
    struct device_back  b = { run_of(exec->plan, s, io), g };
    struct cuda_exact  *x = &b.r.x;
    struct arena        a = { .base = io->work };

    set_tensors(&b.r);
    x->norm = (float *)saved; /* backward reads it */
    x->d_o = rows_in(g->d_o, &p->o, s->group->head0, el);
    x->dq = rows_out(g->dq, &p->q, s->group->head0, el);
    x->dk = rows_out(g->dk, &p->k, s->group->kv0, el);
    x->dv_out = rows_out(g->dv, &p->v, s->group->kv0, el);
    device_exact_carve(&b.r, &a, true);
    if (!g->dparams) x->row_ds = NULL;
    run_on(exec, &b.r, run_backward);
}

foci_status device_clear_dbias(const foci_plan *plan, const foci_io *io,
                               const foci_grads *grads)
{
    const struct device *d = plan->ctx->device;
    const foci_problem  *p = &plan->p;
    const int64_t        n = p->mask_batch * p->mask_heads * p->len_q * p->len_k;
    int                  before = 0;

    if (!grads->dbias) return FOCI_OK;
    int error = d->calls->enter(d->index, &before);
    if (!error)
        error = d->calls->zero(io->stream, grads->dbias, (size_t)n * sizeof(float));
    d->calls->leave(before);
    return device_status(plan->ctx, error, "launching");
}

/*
 * Cost and words
 */

static void cost(const foci_plan *plan, const struct stage *s, foci_cost *c)
{
    engine_exact.cost(plan, s, c);
}

static int describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap)
{
    const struct cuda_calls *calls = plan->ctx->device->calls;
    const struct cuda_exact *x = &s->device->x;
    const char              *backward = calls->exact_name(x, CUDA_BACKWARD);
    struct printer           t = { text, cap, 0 };
    foci_cost                c = { 0 };

    cost(plan, s, &c);
    if (device_maps(s)) printer_add(&t, "    map      rows of q and k, once\n");
    printer_add(&t,
                "    exact    tiles %" PRId64 " full, %" PRId64 " partial, %" PRId64
                " skipped; %d mask%s\n",
                c.tiles_full, c.tiles_part, c.tiles_skipped, (int)s->support.n_masks,
                s->support.n_masks == 1 ? "" : "s");
    printer_add(&t, "    kernels  %s forward", calls->exact_name(x, CUDA_FORWARD));
    if (plan->p.flags & FOCI_FLAG_TRAIN) printer_add(&t, ", %s backward", backward);
    printer_add(&t, " on %s\n", plan->ctx->device->name);
    return t.used;
}

const struct engine engine_exact_device = {
    .name = "exact",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = forward,
    .backward = backward,
    .cost = cost,
    .describe = describe,
};

/* log2(e) where weights are exponentials. */
double device_unit(const struct stage *s)
{
    return s->group->mech.def->weigh == FOCI_WEIGH_RELU2 ? 1 : log2_e;
}
