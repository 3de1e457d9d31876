/* memformer_step.c -- decoding, token by token.
 *
 * A head keeps its slots and, of the segment that is not complete yet, the softmax of
 * each slot over its tokens: maximum, sum of weights and weighted sum of values.
 * Nothing grows with the length.
 */
#include <inttypes.h>
#include <string.h>

#include "engine/memformer/memformer.h"

/* The state of one head. */
struct memformer_state {
    float *m, *values; /* [slots][d] slots, and weighted sums of values */
    float *max, *sum;  /* [slots] */
};

static size_t head_floats(const struct memformer *x)
{
    return (size_t)x->slots * (size_t)(2 * x->d + 2);
}

static struct memformer_state head_state(const struct memformer *x,
                                         const foci_state *state, int g, int64_t h)
{
    float       *at = (float *)state->own[g] + (size_t)h * head_floats(x);
    const size_t all = (size_t)x->slots * (size_t)x->d;

    return (struct memformer_state){ at, at + all, at + 2 * all,
                                     at + 2 * all + x->slots };
}

static size_t state_bytes(const foci_plan *plan, int g)
{
    struct memformer x;

    memformer_geometry(&x, plan, &plan->stages[g]);
    return (size_t)x.heads * head_floats(&x) * sizeof(float);
}

static foci_status make(foci_state *state, int g)
{
    const foci_plan *plan = state->pool->plan;

    state->own[g] = ctx_alloc(plan->ctx, state_bytes(plan, g), 1);
    return state->own[g] ? FOCI_OK : FOCI_ERR_MEMORY;
}

static size_t bytes(const foci_state *state, int g)
{
    return state_bytes(state->pool->plan, g);
}

static foci_status copy(const foci_state *from, foci_state *to, int g)
{
    memcpy(to->own[g], from->own[g], bytes(from, g));
    return FOCI_OK;
}

static void release(foci_state *state, int g)
{
    const foci_plan *plan = state->pool->plan;

    ctx_free(plan->ctx, state->own[g], state_bytes(plan, g), 1);
    state->own[g] = NULL;
}

static void save(const foci_state *state, int g, struct state_writer *w)
{
    write_bytes(w, state->own[g], bytes(state, g));
}

static foci_status restore(foci_state *state, int g, struct state_reader *r)
{
    if (!read_bytes(r, state->own[g], bytes(state, g)))
        return state_damaged(state->pool);
    return FOCI_OK;
}

/* The first token of a sequence starts its slots, so length 0 needs nothing. */
static foci_status truncate(foci_state *state, int g, int64_t len, bool really)
{
    const foci_plan *plan = state->pool->plan;

    (void)really;
    if (len)
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP,
                        "the state cannot be cut back to %" PRId64
                        " tokens: %s writes them into slots, which forget none",
                        len, plan->spec.groups[g].mech.def->name);
    return FOCI_OK;
}

static foci_status memformer_step_check(const foci_pool *pool, int g,
                                        const foci_step_io *io)
{
    if (io->params) return FOCI_OK;
    return ctx_fail(pool->plan->ctx, FOCI_ERR_ARG,
                    "params of the step is NULL, and slots of %s are drawn to beta",
                    pool->plan->spec.groups[g].mech.def->name);
}

/*
 * A step
 */

struct memformer_step {
    struct memformer         x;
    foci_io                  io; /* parameters alone */
    const struct state_step *step;
    int                      g;
    bool                     attend;
};

/* A state to the scratch of a thread, and back.  `partial`: of a segment that is not
 * complete there are sums, too. */
static void load_state(const struct memformer *x, const struct memformer_state *own,
                       bool partial, struct memformer_scratch *r)
{
    x->k->load_rows(r->m, x->ld, own->m, x->d, FOCI_F32, x->slots, x->d);
    if (!partial) return;
    memformer_transpose(x, r->m, r->mt);
    x->k->load_rows(r->y, x->ld, own->values, x->d, FOCI_F32, x->slots, x->d);
    memformer_transpose(x, r->y, r->ot);
    memcpy(r->max, own->max, (size_t)x->slots * sizeof *r->max);
    memcpy(r->sum, own->sum, (size_t)x->slots * sizeof *r->sum);
    for (int t = x->slots; t < x->padded; t++) {
        r->max[t] = 0;
        r->sum[t] = 1;
    }
}

static void store_state(const struct memformer *x, const struct memformer_state *own,
                        bool partial, struct memformer_scratch *r)
{
    x->k->store_rows(own->m, x->d, FOCI_F32, r->m, x->ld, 1.0f, x->slots, x->d);
    if (!partial) return;
    for (int i = 0; i < LANES; i++)
        r->share[i] = 1;
    for (int t = 0; t < x->slots; t += LANES)
        x->k->store_cols(own->values + (int64_t)t * x->d, x->d, FOCI_F32,
                         r->ot + (int64_t)t * x->d, r->share,
                         (int)min64(LANES, x->slots - t), x->d);
    memcpy(own->max, r->max, (size_t)x->slots * sizeof *r->max);
    memcpy(own->sum, r->sum, (size_t)x->slots * sizeof *r->sum);
}

static struct memformer_rows rows_of(const struct memformer_step *s,
                                     const struct step_seq *q, int64_t h)
{
    const struct memformer *x = &s->x;
    const foci_problem     *p = x->p;
    const foci_step_io     *io = s->step->io;
    const int64_t           head = q->row0 * p->heads + x->head0 + h;
    const int64_t           kv = x->kv0 + h / x->per_kv;
    const int64_t from = q->row0 * p->kv_heads + s->step->kv0 + kv * s->step->kv_step;
    const size_t  row = (size_t)x->d * x->el;

    return (struct memformer_rows){
        .q = s->attend ? (const char *)io->q + (size_t)head * row : NULL,
        .k = (const char *)io->k + (size_t)from * row,
        .v = (const char *)io->v + (size_t)from * row,
        .o = s->attend ? (char *)io->o + (size_t)head * row : NULL,
        .q_step = p->heads * x->d,
        .k_step = p->kv_heads * x->d,
        .v_step = p->kv_heads * x->d,
        .o_step = p->heads * x->d,
    };
}

static void job(void *arg, int64_t i, int thread)
{
    const struct memformer_step *s = arg;
    const struct memformer      *x = &s->x;
    const struct step_seq       *q = &s->step->seqs[i / x->heads];
    const int64_t                h = i % x->heads, len = q->state->len;
    const int64_t                pos = len - q->tokens;
    const struct memformer_state own = head_state(x, q->state, s->g, h);
    const struct memformer_rows  rows = rows_of(s, q, h);
    struct memformer_scratch     r;

    memformer_thread_scratch(x, thread, false, &r);
    if (pos)
        load_state(x, &own, pos % x->r.segment != 0, &r);
    else
        memformer_start(x, h, &r);
    memformer_tokens(x, &rows, h, pos, 0, q->tokens, len, &r);
    store_state(x, &own, len % x->r.segment != 0, &r);
}

static void memformer_step_carve(struct memformer *x, struct arena *a)
{
    struct arena             one = { 0 };
    struct memformer_scratch r;

    x->f = arena_alloc(a, LANES, sizeof *x->f);
    x->write_f = arena_alloc(a, LANES, sizeof *x->write_f);
    memformer_scratch_carve(x, &one, false, &r);
    x->scratch_bytes = (one.used + 63) / 64 * 64;
    x->scratch = arena_alloc(a, x->plan->ctx->threads, x->scratch_bytes);
}

/* With fewer multiplications, waking threads costs more than they save. */
static const double least_shared = 1 << 20;

static void run_step(const struct state_step *step, int g, bool attend, struct arena *a)
{
    const foci_plan      *plan = step->pool->plan;
    struct memformer_step s = { .step = step, .g = g, .attend = attend };
    int64_t               tokens = 0;

    memformer_geometry(&s.x, plan, &plan->stages[g]);
    s.io.params = step->io->params;
    s.x.io = &s.io;
    memformer_step_carve(&s.x, a);
    memformer_factors(&s.x);
    for (int64_t i = 0; i < step->n_seqs; i++)
        tokens += step->seqs[i].tokens;
    const double flops =
        (double)(tokens * s.x.heads) * (double)s.x.slots * (double)s.x.d;
    phases_run(s.x.k, false, flops < least_shared ? 1 : plan->ctx->threads,
               &(struct phase){ step->n_seqs * s.x.heads, 1, job, &s }, 1);
}

static size_t append_bytes(const foci_pool *pool, int g)
{
    struct memformer x;
    struct arena     a = { 0 };

    memformer_geometry(&x, pool->plan, &pool->plan->stages[g]);
    memformer_step_carve(&x, &a);
    return a.used;
}

/* A step with outputs writes its tokens while its queries read: see step_all(). */
static void append(const struct state_step *step, int g)
{
    struct arena a = { .base = step->pool->scratch };

    if (!step->io->o) run_step(step, g, false, &a);
}

static void step_all(const struct state_step *step, int g, struct arena work)
{
    run_step(step, g, true, &work);
}

const struct decoder memformer_decoder = {
    .make = make,
    .copy = copy,
    .free = release,
    .bytes = bytes,
    .save = save,
    .restore = restore,
    .truncate = truncate,
    .check = memformer_step_check,
    .append_bytes = append_bytes,
    .append = append,
    .step = step_all,
};
