/* nystrom.c -- attention through landmarks: geometry, memory, cost. */
#include "engine/nystrom/nystrom.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/shared/padding.h"

static void geometry(struct nystrom *x, const foci_plan *plan, const struct stage *s)
{
    const foci_problem *p = &plan->p;
    const foci_mech    *m = &s->group->mech;

    *x = (struct nystrom){
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
    m->def->nystrom(m, &x->l);
    const int64_t shorter = min64(p->len_q, p->len_k);
    x->n_landmarks = min64(x->l.count, shorter);
    x->shared_inverse = x->n_landmarks >= NYSTROM_SHARED;
    x->max_landmarks = min64(x->max_seqs * x->n_landmarks, p->batch * shorter);
}

/*
 * Memory
 */

/* Chunks of `step` rows; all sequences together have at most `rows`. */
static void carve_chunks(const struct nystrom *x, struct arena *a, int64_t rows,
                         int64_t step, struct nystrom_chunks *c)
{
    c->max = rows / step + x->max_seqs;
    c->max_sums = x->max_landmarks + rows / step * x->n_landmarks;
    c->chunk = arena_alloc(a, c->max, sizeof *c->chunk);
}

static float *carve_rows(struct arena *a, int64_t heads, int64_t rows, int64_t ld)
{
    return arena_alloc(a, heads * rows, (size_t)ld * sizeof(float));
}

static void carve_saved(struct nystrom *x, struct arena *a)
{
    x->mq = carve_rows(a, x->heads, x->max_landmarks, x->ldq);
    x->mk = carve_rows(a, x->kv_heads, x->max_landmarks, x->ldq);
    x->norm = carve_rows(a, x->heads, x->max_landmarks, 1);
    x->bv = carve_rows(a, x->heads, x->max_landmarks, x->ldv);
    x->y = carve_rows(a, x->heads, x->max_landmarks, x->ldv);
}

static void carve_scratch(const struct nystrom *x, struct arena *a,
                          struct nystrom_scratch *r)
{
    const int64_t lanes = LANES, most = max64(LANES, x->n_landmarks);

    r->q = arena_alloc(a, lanes * x->ldq, sizeof(float));
    r->g = arena_alloc(a, lanes * x->ldv, sizeof(float));
    r->k = arena_alloc(a, lanes * x->ldq, sizeof(float));
    r->v = arena_alloc(a, lanes * x->ldv, sizeof(float));
    r->qt = arena_alloc(a, lanes * x->ldq, sizeof(float));
    r->gt = arena_alloc(a, lanes * x->ldv, sizeof(float));
    r->s = arena_alloc(a, lanes * most, sizeof(float));
    r->ds = arena_alloc(a, lanes * most, sizeof(float));
    r->ot = arena_alloc(a, lanes * x->ldv, sizeof(float));
    r->dqt = arena_alloc(a, lanes * x->ldq, sizeof(float));
    r->rows = arena_alloc(a, lanes * x->ldv, sizeof(float));
    r->window =
        arena_alloc(a, x->l.width ? (lanes + x->l.width) * x->ldv : 0, sizeof(float));
    for (size_t i = 0; i < sizeof r->vec / sizeof *r->vec; i++)
        r->vec[i] = arena_alloc(a, lanes, sizeof(float));
    r->sum = arena_alloc(a, x->ldq, sizeof *r->sum);
}

void nystrom_thread_scratch(const struct nystrom *x, int thread,
                            struct nystrom_scratch *r)
{
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };
    carve_scratch(x, &mine, r);
}

/* Floats of the matrices of one inverse: C, Z, scratch and, backward, dZ and dC. */
static int64_t matrix_floats(const struct nystrom *x, bool backward)
{
    const int64_t iters = x->l.iters;

    return x->n_landmarks * inverse_ld(x->n_landmarks) *
           (1 + inverse_kept(iters, backward) + inverse_scratch(iters, backward) +
            (backward ? 2 : 0));
}

static struct nystrom_matrices matrices_of(const struct nystrom *x, int thread, int m,
                                           bool backward)
{
    const int     ld = inverse_ld(m);
    const int64_t one = (int64_t)m * ld, iters = x->l.iters;
    float *at = x->matrices + (x->shared_inverse ? 0 : thread * x->matrix_floats);
    struct nystrom_matrices all = { .inverse = { .k = x->k,
                                                 .parallel = x->shared_inverse,
                                                 .shared = x->exec.shared,
                                                 .threads = x->plan->ctx->threads,
                                                 .m = m,
                                                 .ld = ld,
                                                 .iters = iters,
                                                 .keep_all = backward } };

    all.inverse.c = at;
    all.inverse.z = at + one;
    all.inverse.scratch = all.inverse.z + inverse_kept(iters, backward) * one;
    all.dz = all.inverse.scratch + inverse_scratch(iters, backward) * one;
    all.dc = all.dz + one;
    return all;
}

struct nystrom_head nystrom_head(const struct nystrom *x, int64_t seq, int64_t h,
                                 int thread, bool backward)
{
    const struct nystrom_seq *s = &x->seqs[seq];

    return (struct nystrom_head){ .x = x,
                                  .s = s,
                                  .h = h,
                                  .thread = thread,
                                  .all = matrices_of(x, thread, (int)s->m, backward) };
}

void nystrom_blocks(struct nystrom_head *head, void (*job)(void *, int64_t, int))
{
    const struct nystrom *x = head->x;
    const int64_t         n = div_up(head->s->m, LANES);

    if (x->shared_inverse) {
        phases_run(x->k, x->exec.shared, x->plan->ctx->threads,
                   &(struct phase){ n, 1, job, head }, 1);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        job(head, i, head->thread);
}

void nystrom_heads(const struct nystrom *x, const struct phase *heads)
{
    if (!x->shared_inverse) {
        phases_run(x->k, x->exec.shared, x->plan->ctx->threads, heads, 1);
        return;
    }
    for (int64_t i = 0; i < heads->n; i++)
        heads->job(heads->arg, i, 0);
}

static void carve_backward(struct nystrom *x, struct arena *a)
{
    x->part_k = carve_rows(a, x->heads, x->queries.max_sums, x->ldq);
    x->part_v = carve_rows(a, x->heads, x->queries.max_sums, x->ldv);
    x->part_q = carve_rows(a, x->heads, x->keys.max_sums, x->ldq);
    x->dmq = carve_rows(a, x->heads, x->max_landmarks, x->ldq);
    x->dmk = carve_rows(a, x->heads, x->max_landmarks, x->ldq);
    x->dy = carve_rows(a, x->heads, x->max_landmarks, x->ldv);
    x->dbv = carve_rows(a, x->heads, x->max_landmarks, x->ldv);
    x->delta = carve_rows(a, x->heads, x->max_landmarks, 1);
    x->dq_rows = carve_rows(a, x->heads, x->p->batch * x->p->len_q, x->ldq);
    x->dw =
        arena_alloc(a, x->heads * x->queries.max, (size_t)x->l.width * sizeof *x->dw);
}

static void carve_work(struct nystrom *x, struct arena *a, bool backward)
{
    struct arena           one = { 0 };
    struct nystrom_scratch r;

    x->plain = arena_alloc(a, x->max_seqs, sizeof *x->plain);
    x->seqs = arena_alloc(a, x->max_seqs, sizeof *x->seqs);
    carve_chunks(x, a, x->p->batch * x->p->len_q, NYSTROM_CHUNK, &x->queries);
    carve_chunks(x, a, x->p->batch * x->p->len_k, NYSTROM_CHUNK, &x->keys);
    carve_chunks(x, a, x->max_landmarks, NYSTROM_RUNS, &x->runs);
    x->f = arena_alloc(a, LANES, sizeof *x->f);
    x->taps =
        arena_alloc(a, x->l.width ? x->heads * nystrom_taps(x) : 0, sizeof *x->taps);
    if (backward) {
        carve_backward(x, a);
    } else {
        x->part_m = carve_rows(a, x->heads, x->keys.max_sums, 1);
        x->part_l = carve_rows(a, x->heads, x->keys.max_sums, 1);
        x->part_v = carve_rows(a, x->heads, x->keys.max_sums, x->ldv);
    }
    x->matrix_floats = matrix_floats(x, backward);
    x->matrices = carve_rows(a, x->shared_inverse ? 1 : x->plan->ctx->threads, 1,
                             x->matrix_floats);
    carve_scratch(x, &one, &r);
    x->scratch_bytes = (one.used + 63) / 64 * 64;
    x->scratch = arena_alloc(a, x->plan->ctx->threads, x->scratch_bytes);
}

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    struct nystrom x;
    struct arena   a = { 0 }, b = { 0 };

    geometry(&x, plan, s);
    carve_work(&x, &a, false);
    if (plan->p.flags & FOCI_FLAG_TRAIN) carve_work(&x, &b, true);
    carve_saved(&x, &a); /* forward alone: a caller that trains may still not save */
    return a.used > b.used ? a.used : b.used;
}

static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    struct nystrom x;
    struct arena   a = { 0 };

    geometry(&x, plan, s);
    carve_saved(&x, &a);
    return (int64_t)(a.used / sizeof(float));
}

/*
 * An execution
 */

enum cuts { OF_QUERIES, OF_KEYS, OF_LANDMARKS };

static void cut(const struct nystrom *x, enum cuts of, int64_t step,
                struct nystrom_chunks *c)
{
    int64_t at = 0;

    c->n = 0;
    for (int64_t i = 0; i < x->n_seqs; i++) {
        struct nystrom_seq *s = &x->seqs[i];
        const int64_t n = of == OF_QUERIES ? s->s.nq : of == OF_KEYS ? s->s.nk : s->m;

        if (of == OF_QUERIES) s->q_sums = at;
        if (of == OF_KEYS) s->k_sums = at;
        for (int64_t first = 0; first < n; first += step, at += s->m)
            c->chunk[c->n++] =
                (struct nystrom_chunk){ i, first, min64(step, n - first), at };
    }
}

static void fill_taps(const struct nystrom *x)
{
    const int64_t width = x->l.width, ld = nystrom_taps(x);

    if (!width) return;
    memset(x->taps, 0, (size_t)(x->heads * ld) * sizeof *x->taps);
    for (int64_t h = 0; h < x->heads; h++)
        memcpy(x->taps + h * ld + NYSTROM_BAND,
               x->io->params + x->stage->group->param0[0] + h * width,
               (size_t)width * sizeof *x->taps);
}

static void begin_execution(struct nystrom *x, const foci_io *io, float *saved,
                            bool backward)
{
    struct arena a = { .base = io->work }, kept = { .base = (char *)saved };
    int64_t      at = 0;

    x->io = io;
    carve_work(x, &a, backward);
    carve_saved(x, saved ? &kept : &a);
    for (int i = 0; i < LANES; i++)
        x->f[i] = (float)(x->stage->score.scale * LOG2_E);
    fill_taps(x);

    x->n_seqs = plan_seqs(x->plan, io, x->plain);
    for (int64_t i = 0; i < x->n_seqs; i++) {
        const struct seq *s = &x->plain[i];
        const int64_t     m = min64(x->l.count, min64(s->nq, s->nk));
        x->seqs[i] = (struct nystrom_seq){ .s = *s, .m = m, .at = at };
        at += m;
    }
    cut(x, OF_QUERIES, NYSTROM_CHUNK, &x->queries);
    cut(x, OF_KEYS, NYSTROM_CHUNK, &x->keys);
    cut(x, OF_LANDMARKS, NYSTROM_RUNS, &x->runs);
}

static void forward(const struct execution *exec, const struct stage *s,
                    const foci_io *io, float *saved)
{
    const foci_plan *plan = exec->plan;
    struct nystrom   x;

    geometry(&x, plan, s);
    x.exec = *exec;
    if (!x.max_seqs) return;
    begin_execution(&x, io, saved, false);
    padding_clear(plan, io, io->o, &x.p->o, x.head0, x.heads, x.dv, true, false);
    nystrom_forward(&x);
}

static void backward(const struct execution *exec, const struct stage *s,
                     const foci_io *io, const float *saved, const foci_grads *g)
{
    const foci_plan *plan = exec->plan;
    struct nystrom   x;

    geometry(&x, plan, s);
    x.exec = *exec;
    if (!x.max_seqs) return;
    begin_execution(&x, io, (float *)saved, true);
    x.g = g;
    padding_clear(plan, io, g->dq, &x.p->q, x.head0, x.heads, x.dq, true, false);
    padding_clear(plan, io, g->dk, &x.p->k, x.kv0, x.kv_heads, x.dq, false, false);
    padding_clear(plan, io, g->dv, &x.p->v, x.kv0, x.kv_heads, x.dv, false, false);
    nystrom_backward(&x);
}

void nystrom_load(const struct nystrom *x, const void *base, const foci_layout *l,
                  int64_t b, int64_t row, int64_t head, int n, int d, int ld,
                  float *tile)
{
    x->k->load_rows(tile, ld,
                    (const char *)base +
                        (size_t)(b * l->batch + row * l->row + head * l->head) * x->el,
                    l->row, (int)x->p->dtype, n, d);
}

void *nystrom_address(const struct nystrom *x, void *base, const foci_layout *l,
                      int64_t b, int64_t row, int64_t head)
{
    return (char *)base + (size_t)(b * l->batch + row * l->row + head * l->head) * x->el;
}

/*
 * Planning
 */

static foci_status nystrom_check(const foci_plan *plan, const struct stage *s,
                                 const foci_io *io, char *text, size_t cap)
{
    (void)plan;
    if (!io->lse) return FOCI_OK;
    snprintf(text, cap, "io.lse is given, but %s has several sums a row: leave it NULL",
             s->group->mech.def->name);
    return FOCI_ERR_ARG;
}

/* Queries and keys take two products each with the landmarks, and five in the backward
 * pass; an iteration of the inverse takes four products of matrices, and eleven. */
static void cost(const foci_plan *plan, const struct stage *s, foci_cost *cost)
{
    const foci_problem *p = &plan->p;
    struct nystrom      x;

    geometry(&x, plan, s);
    const double all = (double)p->batch * (double)x.heads, m = (double)x.n_landmarks;
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
    struct nystrom x;
    char           how[48] = "exactly";

    geometry(&x, plan, s);
    if (x.l.iters) snprintf(how, sizeof how, "in %" PRId64 " steps", x.l.iters);
    return snprintf(text, cap,
                    "    landmarks %" PRId64 ", inverted %s%s\n"
                    "    products  f32\n",
                    x.n_landmarks, how, x.shared_inverse ? " by all threads" : "");
}

const struct engine engine_nystrom = {
    .name = "nystrom",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = forward,
    .backward = backward,
    .check = nystrom_check,
    .cost = cost,
    .describe = describe,
};
