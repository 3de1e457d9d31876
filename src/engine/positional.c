/* positional.c -- the positional engine: geometry, rows in and out, sizes, cost. */
#include "engine/positional.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

foci_positional positional_what(const struct positional *x, int64_t h)
{
    const foci_mech *m = &x->stage->group->mech;
    foci_positional  p = { 0 };

    m->def->positional(m, h, &p);
    return p;
}

void positional_geometry(struct positional *x, const foci_plan *plan,
                         const struct stage *s)
{
    const foci_problem *p = &plan->p;

    *x = (struct positional){
        .plan = plan,
        .p = p,
        .stage = s,
        .k = &plan->ctx->kernels,
        .dv = (int)p->dim_v,
        .ldv = (int)round_up(p->dim_v, 16),
        .ldx = (int)round_up(p->dim_x, 16),
        .el = foci_dtype_bytes(p->dtype),
        .heads = s->group->heads,
        .head0 = s->group->head0,
        .kv_heads = s->group->kv_heads,
        .kv0 = s->group->kv0,
        .per_kv = s->group->heads / s->group->kv_heads,
        .max_seqs = plan_max_seqs(plan),
        .causal = p->flags & FOCI_CAUSAL,
    };
    x->kind = positional_what(x, 0);
}

void positional_room(const struct positional *x, struct arena *a,
                     struct positional_room *r)
{
    r->tile = arena_take(a, (int64_t)ROWS * x->ldv, sizeof *r->tile);
    r->more = arena_take(a, (int64_t)ROWS * x->ldv, sizeof *r->more);
    r->state = arena_take(a, 4 * (int64_t)x->ldv, sizeof *r->state);
    r->part = arena_take(a, x->ldv, sizeof *r->part);
    r->base = arena_take(a, x->ldv, sizeof *r->base);
    r->factor = arena_take(a, (int64_t)ROWS * CUBES, sizeof *r->factor);
    taps_room(x, a, r);
}

void positional_room_of(const struct positional *x, int thread,
                        struct positional_room *r)
{
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };
    positional_room(x, &mine, r);
}

/* Everything an execution needs; on a null arena only sizes. */
static void open_work(struct positional *x, const foci_io *io, bool backward,
                      struct arena *a)
{
    struct arena           one = { 0 };
    struct positional_room room;

    x->io = io;
    x->seqs = arena_take(a, x->max_seqs, sizeof *x->seqs);
    if (backward && x->per_kv > 1)
        x->dv_rows = arena_take(a, x->kv_heads * x->p->batch * x->p->len_k,
                                (size_t)x->ldv * sizeof *x->dv_rows);
    taps_take(x, backward, a);
    positional_room(x, &one, &room);
    x->scratch_bytes = (one.used + 63) / 64 * 64;
    x->scratch = arena_take(a, x->plan->ctx->threads, x->scratch_bytes);
    if (!a->base) return;
    x->n_seqs = plan_seqs(x->plan, io, x->seqs);
}

/*
 * Rows
 */

static size_t row_at(const struct positional *x, const foci_layout *l,
                     const struct place *at, int64_t row, int64_t head)
{
    return (size_t)(at->s->b * l->batch + row * l->row + head * l->head + at->column) *
           x->el;
}

void positional_load_v(const struct positional *x, const struct place *at, int64_t i,
                       int n, float *tile)
{
    const foci_layout *l = &x->p->v;

    x->k->load_rows(tile, at->ld,
                    (const char *)x->io->v +
                        row_at(x, l, at, at->s->k0 + i, x->kv0 + at->kv),
                    l->row, (int)x->p->dtype, n, at->width);
}

void positional_load_g(const struct positional *x, const struct place *at, int64_t i,
                       int n, float *tile)
{
    const foci_layout *l = &x->p->o;

    x->k->load_rows(tile, at->ld,
                    (const char *)x->g->d_o +
                        row_at(x, l, at, at->s->q0 + i, x->head0 + at->h),
                    l->row, (int)x->p->dtype, n, at->width);
}

void positional_store_o(const struct positional *x, const struct place *at, int64_t i,
                        int n, const float *tile)
{
    const foci_layout *l = &x->p->o;

    x->k->store_rows((char *)x->io->o +
                         row_at(x, l, at, at->s->q0 + i, x->head0 + at->h),
                     l->row, (int)x->p->dtype, tile, at->ld, 1.0f, n, at->width);
}

static float *shared_row(const struct positional *x, const struct place *at, int64_t i)
{
    const int64_t rows = x->p->batch * x->p->len_k;
    return x->dv_rows +
           (at->kv * rows + at->s->b * x->p->len_k + at->s->k0 + i) * x->ldv;
}

static void add_shared(const struct positional *x, const struct place *at, int64_t i,
                       int n, const float *tile)
{
    for (int64_t t = 0; t < n; t++) {
        float *to = shared_row(x, at, i + t) + at->column;
        for (int c = 0; c < at->width; c++)
            to[c] = tile[t * at->ld + c] + (at->first ? 0 : to[c]);
    }
}

void positional_store_dv(const struct positional *x, const struct place *at, int64_t i,
                         int n, const float *tile)
{
    const foci_layout *l = &x->p->v;

    if (!x->g->dv) return;
    if (x->dv_rows) {
        add_shared(x, at, i, n, tile);
        return;
    }
    x->k->store_rows((char *)x->g->dv + row_at(x, l, at, at->s->k0 + i, x->kv0 + at->kv),
                     l->row, (int)x->p->dtype, tile, at->ld, 1.0f, n, at->width);
}

/*
 * Passes
 */

static struct place place_of(const struct positional *x, int64_t seq, int64_t h)
{
    return (struct place){ .s = &x->seqs[seq],
                           .what = positional_what(x, h),
                           .h = h,
                           .kv = h / x->per_kv,
                           .first = h % x->per_kv == 0,
                           .width = x->dv,
                           .ld = x->ldv };
}

static void forward_job(void *arg, int64_t i, int thread)
{
    const struct positional *x = arg;
    const struct place       at = place_of(x, i / x->heads, i % x->heads);
    struct positional_room   room;

    positional_room_of(x, thread, &room);
    if (!at.s->nq) return;
    if (positional_is_taps(&at.what))
        taps_forward(x, &at, &room);
    else if (at.what.words)
        words_forward(x, &at, &room);
    else
        scan_forward(x, &at, &room);
}

static void run(struct positional *x, int64_t                         jobs,
                void (*job)(void *arg, int64_t i, int thread), double flops)
{
    phases_run(x->k, x->plan->shared, jobs_threads(x->plan->ctx->threads, jobs, flops),
               &(struct phase){ jobs, 1, job, x }, 1);
}

static void forward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                    float *saved)
{
    struct positional x;
    struct arena      a = { .base = io->work };

    (void)saved;
    positional_geometry(&x, plan, s);
    if (!x.max_seqs) return;
    open_work(&x, io, false, &a);
    rest_clear(plan, io, io->o, &x.p->o, x.head0, x.heads, x.dv, true, false);
    run(&x, x.n_seqs * x.heads, forward_job, plan->cost.forward_flops);
}

/* Leading keys that take no gradient; and sums over heads to where they go. */
static void finish_dv(const struct positional *x, int64_t seq, int64_t kv,
                      struct positional_room *r)
{
    struct place      at = place_of(x, seq, kv * x->per_kv);
    const int64_t     held = min64(x->stage->memory, at.s->nk);
    struct positional plain = *x;

    plain.dv_rows = NULL;
    for (int64_t i = 0; x->dv_rows && i < at.s->nk; i += ROWS)
        positional_store_dv(&plain, &at, i, (int)min64(ROWS, at.s->nk - i),
                            shared_row(x, &at, i));
    memset(r->tile, 0, (size_t)ROWS * (size_t)x->ldv * sizeof *r->tile);
    for (int64_t i = 0; i < held; i += ROWS)
        positional_store_dv(&plain, &at, i, (int)min64(ROWS, held - i), r->tile);
}

static void backward_job(void *arg, int64_t i, int thread)
{
    const struct positional *x = arg;
    const int64_t            seq = i / x->kv_heads, kv = i % x->kv_heads;
    struct positional_room   room;

    positional_room_of(x, thread, &room);
    if (!x->seqs[seq].nk) return;
    for (int64_t h = kv * x->per_kv; h < (kv + 1) * x->per_kv; h++) {
        const struct place at = place_of(x, seq, h);
        if (positional_is_taps(&at.what))
            taps_backward(x, &at, &room);
        else if (at.what.words)
            words_backward(x, &at, &room);
        else
            scan_backward(x, &at, &room);
    }
    finish_dv(x, seq, kv, &room);
}

static void backward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                     const float *saved, const foci_grads *g)
{
    struct positional x;
    struct arena      a = { .base = io->work };

    (void)saved;
    positional_geometry(&x, plan, s);
    rest_clear(plan, io, g->dq, &x.p->q, x.head0, x.heads, x.p->dim_qk, true, true);
    rest_clear(plan, io, g->dk, &x.p->k, x.kv0, x.kv_heads, x.p->dim_qk, false, true);
    if (!x.max_seqs || !(g->dv || positional_is_taps(&x.kind))) return;
    open_work(&x, io, true, &a);
    x.g = g;
    rest_clear(plan, io, g->dv, &x.p->v, x.kv0, x.kv_heads, x.dv, false, false);
    run(&x, x.n_seqs * x.kv_heads, backward_job, plan->cost.backward_flops);
    if (positional_is_taps(&x.kind)) taps_finish(&x);
}

/*
 * Planning
 */

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    struct positional x;
    struct arena      a = { 0 };

    positional_geometry(&x, plan, s);
    open_work(&x, NULL, plan->p.flags & FOCI_TRAIN, &a);
    return a.used;
}

static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    (void)plan;
    (void)s;
    return 0;
}

/* Words of a sequence start at 0 and go up by one at most. */
static foci_status check_words(const foci_plan *plan, const struct stage *s,
                               const foci_io *io, char *text, size_t cap)
{
    const foci_problem *p = &plan->p;

    if (!(mech_reads(&s->group->mech) & FOCI_READ_WORDS)) return FOCI_OK;
    for (int64_t b = 0; b < (io->docs ? io->n_docs : p->batch); b++) {
        const int64_t from = io->docs ? io->docs[b] : b * p->len_q;
        const int64_t n = io->docs    ? io->docs[b + 1] - from
                          : io->len_q ? io->len_q[b]
                                      : p->len_q;

        for (int64_t i = 0; i < n; i++) {
            const int64_t word = io->words[from + i];
            const int64_t before = i ? io->words[from + i - 1] : 0;

            if (word == before || (i && word == before + 1)) continue;
            snprintf(text, cap,
                     "words: token %" PRId64 " of sequence %" PRId64
                     " is in word %" PRId64
                     "%s: words are numbered from 0, each token in the same as the one "
                     "before or in the next",
                     i, b, word, i ? " after another" : "");
            return FOCI_ERR_ARG;
        }
    }
    return FOCI_OK;
}

static foci_status check(const foci_plan *plan, const struct stage *s,
                         const foci_io *io, char *text, size_t cap)
{
    TRY(check_words(plan, s, io, text, cap));
    if (!io->lse) return FOCI_OK;
    snprintf(text, cap, "io.lse is given, but %s has no logits: leave it NULL",
             s->group->mech.def->name);
    return FOCI_ERR_ARG;
}

/* A multiply and an add for each element and row. */
static void cost(const foci_plan *plan, const struct stage *s, foci_cost *cost)
{
    const foci_problem *p = &plan->p;
    const double rows = (double)p->batch * (double)s->group->heads * (double)p->len_q;
    const double flops = 2 * rows * (double)p->dim_v;
    const double bytes = rows * (double)p->dim_v * (double)foci_dtype_bytes(p->dtype);

    cost->forward_flops += flops;
    cost->backward_flops += flops;
    cost->forward_bytes += 2 * bytes;
    cost->backward_bytes += 2 * bytes;
}

static int describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap)
{
    struct positional x;

    positional_geometry(&x, plan, s);
    if (positional_is_taps(&x.kind))
        return snprintf(text, cap, "    taps     %" PRId64 " a head, in f32\n",
                        positional_taps_of(&x));
    return snprintf(text, cap, "    scan     %s, means in doubles\n",
                    x.kind.words ? "words" : "tokens");
}

const struct engine engine_positional = {
    .name = "positional",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = forward,
    .backward = backward,
    .check = check,
    .cost = cost,
    .describe = describe,
    .decoder = &positional_decoder,
};
