/* landmarks.c -- attention through means of queries and keys: geometry, sizes, cost. */
#include "engine/landmarks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/rest.h"

static void geometry(struct landmarks *x, const foci_plan *plan, const struct stage *s)
{
    const foci_problem *p = &plan->p;
    const foci_mech    *m = &s->group->mech;

    *x = (struct landmarks){
        .plan = plan,
        .p = p,
        .stage = s,
        .k = &plan->ctx->kernels,
        .scale = (float)s->score.scale,
        .dq = (int)p->dim_qk,
        .dv = (int)p->dim_v,
        .ldq = (int)round_up(p->dim_qk, 16),
        .ldv = (int)round_up(p->dim_v, 16),
        .el = foci_dtype_bytes(p->dtype),
        .heads = s->group->heads,
        .head0 = s->group->head0,
        .kv_heads = s->group->kv_heads,
        .kv0 = s->group->kv0,
        .per_kv = s->group->heads / s->group->kv_heads,
        .max_seqs = plan_max_seqs(plan),
    };
    m->def->landmarks(m, &x->l);
    const int64_t shorter = min64(p->len_q, p->len_k);
    x->count = min64(x->l.count, shorter);
    x->wide = x->count >= MARK_WIDE;
    x->max_marks = min64(x->max_seqs * x->count, p->batch * shorter);
}

/*
 * Memory
 */

/* Chunks of `step` of rows, of which a sequence has at most len, all of them `rows`. */
static void take_chunks(const struct landmarks *x, struct arena *a, int64_t rows,
                        int64_t step, struct mark_chunks *c)
{
    c->max = rows / step + x->max_seqs;
    c->max_sums = x->max_marks + rows / step * x->count;
    c->chunk = arena_take(a, c->max, sizeof *c->chunk);
}

static float *take_rows(struct arena *a, int64_t heads, int64_t rows, int64_t ld)
{
    return arena_take(a, heads * rows, (size_t)ld * sizeof(float));
}

static void take_saved(struct landmarks *x, struct arena *a)
{
    x->mq = take_rows(a, x->heads, x->max_marks, x->ldq);
    x->mk = take_rows(a, x->kv_heads, x->max_marks, x->ldq);
    x->norm = take_rows(a, x->heads, x->max_marks, 1);
    x->bv = take_rows(a, x->heads, x->max_marks, x->ldv);
    x->y = take_rows(a, x->heads, x->max_marks, x->ldv);
}

static void take_room(const struct landmarks *x, struct arena *a, struct mark_room *r)
{
    const int64_t lanes = LANES, most = max64(LANES, x->count);

    r->q = arena_take(a, lanes * x->ldq, sizeof(float));
    r->g = arena_take(a, lanes * x->ldv, sizeof(float));
    r->k = arena_take(a, lanes * x->ldq, sizeof(float));
    r->v = arena_take(a, lanes * x->ldv, sizeof(float));
    r->qt = arena_take(a, lanes * x->ldq, sizeof(float));
    r->gt = arena_take(a, lanes * x->ldv, sizeof(float));
    r->s = arena_take(a, lanes * most, sizeof(float));
    r->ds = arena_take(a, lanes * most, sizeof(float));
    r->ot = arena_take(a, lanes * x->ldv, sizeof(float));
    r->dqt = arena_take(a, lanes * x->ldq, sizeof(float));
    r->rows = arena_take(a, lanes * x->ldv, sizeof(float));
    r->near =
        arena_take(a, x->l.width ? (lanes + x->l.width) * x->ldv : 0, sizeof(float));
    for (size_t i = 0; i < sizeof r->vec / sizeof *r->vec; i++)
        r->vec[i] = arena_take(a, lanes, sizeof(float));
    r->sum = arena_take(a, x->ldq, sizeof *r->sum);
}

void landmarks_room(const struct landmarks *x, int thread, struct mark_room *r)
{
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };
    take_room(x, &mine, r);
}

/* Floats of the matrices of one inverse: C, Z, room and, backward, dZ and dC. */
static int64_t matrix_floats(const struct landmarks *x, bool backward)
{
    const int64_t iters = x->l.iters;

    return x->count * inverse_ld(x->count) *
           (1 + inverse_kept(iters, backward) + inverse_room(iters, backward) +
            (backward ? 2 : 0));
}

static struct mark_matrices matrices_of(const struct landmarks *x, int thread, int m,
                                        bool backward)
{
    const int            ld = inverse_ld(m);
    const int64_t        one = (int64_t)m * ld, iters = x->l.iters;
    float               *at = x->matrices + (x->wide ? 0 : thread * x->matrix_floats);
    struct mark_matrices all = { .inverse = { .k = x->k,
                                              .wide = x->wide,
                                              .shared = x->plan->shared,
                                              .threads = x->plan->ctx->threads,
                                              .m = m,
                                              .ld = ld,
                                              .iters = iters,
                                              .keeps = backward } };

    all.inverse.c = at;
    all.inverse.z = at + one;
    all.inverse.room = all.inverse.z + inverse_kept(iters, backward) * one;
    all.dz = all.inverse.room + inverse_room(iters, backward) * one;
    all.dc = all.dz + one;
    return all;
}

struct mark_head landmarks_head(const struct landmarks *x, int64_t seq, int64_t h,
                                int thread, bool backward)
{
    const struct mark_seq *s = &x->seqs[seq];

    return (struct mark_head){ .x = x,
                               .s = s,
                               .h = h,
                               .thread = thread,
                               .all = matrices_of(x, thread, (int)s->m, backward) };
}

void landmarks_blocks(struct mark_head *head, void (*job)(void *, int64_t, int))
{
    const struct landmarks *x = head->x;
    const int64_t           n = div_up(head->s->m, LANES);

    if (x->wide) {
        phases_run(x->k, x->plan->shared, x->plan->ctx->threads,
                   &(struct phase){ n, 1, job, head }, 1);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        job(head, i, head->thread);
}

void landmarks_heads(const struct landmarks *x, const struct phase *heads)
{
    if (!x->wide) {
        phases_run(x->k, x->plan->shared, x->plan->ctx->threads, heads, 1);
        return;
    }
    for (int64_t i = 0; i < heads->n; i++)
        heads->job(heads->arg, i, 0);
}

static void take_backward(struct landmarks *x, struct arena *a)
{
    x->part_k = take_rows(a, x->heads, x->queries.max_sums, x->ldq);
    x->part_v = take_rows(a, x->heads, x->queries.max_sums, x->ldv);
    x->part_q = take_rows(a, x->heads, x->keys.max_sums, x->ldq);
    x->dmq = take_rows(a, x->heads, x->max_marks, x->ldq);
    x->dmk = take_rows(a, x->heads, x->max_marks, x->ldq);
    x->dy = take_rows(a, x->heads, x->max_marks, x->ldv);
    x->dbv = take_rows(a, x->heads, x->max_marks, x->ldv);
    x->delta = take_rows(a, x->heads, x->max_marks, 1);
    x->dq_rows = take_rows(a, x->heads, x->p->batch * x->p->len_q, x->ldq);
    x->dw =
        arena_take(a, x->heads * x->queries.max, (size_t)x->l.width * sizeof *x->dw);
}

static void take_work(struct landmarks *x, struct arena *a, bool backward)
{
    struct arena     one = { 0 };
    struct mark_room room;

    x->plain = arena_take(a, x->max_seqs, sizeof *x->plain);
    x->seqs = arena_take(a, x->max_seqs, sizeof *x->seqs);
    take_chunks(x, a, x->p->batch * x->p->len_q, MARK_CHUNK, &x->queries);
    take_chunks(x, a, x->p->batch * x->p->len_k, MARK_CHUNK, &x->keys);
    take_chunks(x, a, x->max_marks, MARK_RUNS, &x->runs);
    x->f = arena_take(a, LANES, sizeof *x->f);
    x->taps = arena_take(a, x->l.width ? x->heads * (x->l.width + 2 * MARK_BAND) : 0,
                         sizeof *x->taps);
    if (backward) {
        take_backward(x, a);
    } else {
        x->part_m = take_rows(a, x->heads, x->keys.max_sums, 1);
        x->part_l = take_rows(a, x->heads, x->keys.max_sums, 1);
        x->part_v = take_rows(a, x->heads, x->keys.max_sums, x->ldv);
    }
    x->matrix_floats = matrix_floats(x, backward);
    x->matrices =
        take_rows(a, x->wide ? 1 : x->plan->ctx->threads, 1, x->matrix_floats);
    take_room(x, &one, &room);
    x->scratch_bytes = (one.used + 63) / 64 * 64;
    x->scratch = arena_take(a, x->plan->ctx->threads, x->scratch_bytes);
}

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    struct landmarks x;
    struct arena     a = { 0 }, b = { 0 };

    geometry(&x, plan, s);
    take_work(&x, &a, false);
    if (plan->p.flags & FOCI_TRAIN) take_work(&x, &b, true);
    take_saved(&x, &a); /* forward alone: a caller that trains may still not save */
    return a.used > b.used ? a.used : b.used;
}

static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    struct landmarks x;
    struct arena     a = { 0 };

    geometry(&x, plan, s);
    take_saved(&x, &a);
    return (int64_t)(a.used / sizeof(float));
}

/*
 * An execution
 */

enum cuts { OF_QUERIES, OF_KEYS, OF_LANDMARKS };

static void cut(const struct landmarks *x, enum cuts of, int64_t step,
                struct mark_chunks *c)
{
    int64_t at = 0;

    c->n = 0;
    for (int64_t i = 0; i < x->n_seqs; i++) {
        struct mark_seq *s = &x->seqs[i];
        const int64_t n = of == OF_QUERIES ? s->s.nq : of == OF_KEYS ? s->s.nk : s->m;

        if (of == OF_QUERIES) s->q_sums = at;
        if (of == OF_KEYS) s->k_sums = at;
        for (int64_t first = 0; first < n; first += step, at += s->m)
            c->chunk[c->n++] =
                (struct mark_chunk){ i, first, min64(step, n - first), at };
    }
}

static void fill_taps(const struct landmarks *x)
{
    const int64_t width = x->l.width, ld = width + 2 * MARK_BAND;

    if (!width) return;
    memset(x->taps, 0, (size_t)(x->heads * ld) * sizeof *x->taps);
    for (int64_t h = 0; h < x->heads; h++)
        memcpy(x->taps + h * ld + MARK_BAND,
               x->io->params + x->stage->group->param0[0] + h * width,
               (size_t)width * sizeof *x->taps);
}

static void open_call(struct landmarks *x, const foci_io *io, float *saved,
                      bool backward)
{
    struct arena a = { .base = io->work }, kept = { .base = (char *)saved };
    int64_t      at = 0;

    x->io = io;
    take_work(x, &a, backward);
    take_saved(x, saved ? &kept : &a);
    for (int i = 0; i < LANES; i++)
        x->f[i] = (float)(x->stage->score.scale * LANES_LOG2_E);
    fill_taps(x);

    x->n_seqs = plan_seqs(x->plan, io, x->plain);
    for (int64_t i = 0; i < x->n_seqs; i++) {
        const struct seq *s = &x->plain[i];
        const int64_t     m = min64(x->l.count, min64(s->nq, s->nk));
        x->seqs[i] = (struct mark_seq){ .s = *s, .m = m, .at = at };
        at += m;
    }
    cut(x, OF_QUERIES, MARK_CHUNK, &x->queries);
    cut(x, OF_KEYS, MARK_CHUNK, &x->keys);
    cut(x, OF_LANDMARKS, MARK_RUNS, &x->runs);
}

static void forward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                    float *saved)
{
    struct landmarks x;

    geometry(&x, plan, s);
    if (!x.max_seqs) return;
    open_call(&x, io, saved, false);
    rest_clear(plan, io, io->o, &x.p->o, x.head0, x.heads, x.dv, true, false);
    landmarks_forward(&x);
}

static void backward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                     const float *saved, const foci_grads *g)
{
    struct landmarks x;

    geometry(&x, plan, s);
    if (!x.max_seqs) return;
    open_call(&x, io, (float *)saved, true);
    x.g = g;
    rest_clear(plan, io, g->dq, &x.p->q, x.head0, x.heads, x.dq, true, false);
    rest_clear(plan, io, g->dk, &x.p->k, x.kv0, x.kv_heads, x.dq, false, false);
    rest_clear(plan, io, g->dv, &x.p->v, x.kv0, x.kv_heads, x.dv, false, false);
    landmarks_backward(&x);
}

void landmarks_load(const struct landmarks *x, const void *base, const foci_layout *l,
                    int64_t b, int64_t row, int64_t head, int n, int d, int ld,
                    float *tile)
{
    x->k->load_rows(tile, ld,
                    (const char *)base +
                        (size_t)(b * l->batch + row * l->row + head * l->head) * x->el,
                    l->row, (int)x->p->dtype, n, d);
}

void *landmarks_place(const struct landmarks *x, void *base, const foci_layout *l,
                      int64_t b, int64_t row, int64_t head)
{
    return (char *)base + (size_t)(b * l->batch + row * l->row + head * l->head) * x->el;
}

/*
 * Planning
 */

static foci_status check(const foci_plan *plan, const struct stage *s,
                         const foci_io *io, char *text, size_t cap)
{
    (void)plan;
    if (!io->lse) return FOCI_OK;
    snprintf(text, cap, "io.lse is given, but %s has several sums a row: leave it NULL",
             s->group->mech.def->name);
    return FOCI_ERR_ARG;
}

/* Rows of queries and of keys meet landmarks in two products each, five on the way back;
 * an iteration is four products of matrices, and eleven. */
static void cost(const foci_plan *plan, const struct stage *s, foci_cost *cost)
{
    const foci_problem *p = &plan->p;
    struct landmarks    x;

    geometry(&x, plan, s);
    const double all = (double)p->batch * (double)x.heads, m = (double)x.count;
    const double rows = (double)(p->len_q + p->len_k), w = (double)(x.dq + x.dv);
    const double pairs = all * rows * m * w + all * m * m * w;
    const double conv = all * (double)p->len_q * (double)x.l.width * (double)x.dv;
    const double cube = all * m * m * m * (double)max64(x.l.iters, 1);
    const double bytes = all * (double)x.el * (double)(x.dq + x.dv);

    cost->forward_flops += 2 * (pairs + conv) + 8 * cube;
    cost->backward_flops += 5 * pairs + 4 * conv + 30 * cube;
    cost->forward_bytes += bytes * rows;
    cost->backward_bytes += 2 * bytes * rows;
}

static int describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap)
{
    struct landmarks x;
    char             how[48] = "exactly";

    geometry(&x, plan, s);
    if (x.l.iters) snprintf(how, sizeof how, "in %" PRId64 " steps", x.l.iters);
    return snprintf(text, cap,
                    "    landmarks %" PRId64 ", inverted %s%s\n"
                    "    products  f32\n",
                    x.count, how, x.wide ? " by all threads" : "");
}

const struct engine engine_landmarks = {
    .name = "landmarks",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = forward,
    .backward = backward,
    .check = check,
    .cost = cost,
    .describe = describe,
};
