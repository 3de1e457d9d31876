/* second.c -- attention twice: once among neighbours, once over the means of runs.
 *
 *     y_i = attention by the mask
 *     z_i = softmax over runs t of (s q_i . mean of k in t) (mean of y in t)
 *     o_i = (1 - gamma) y_i + gamma z_i,  y_i where no run is seen
 *
 * Both are calls of the exact engine: the first without slots, the second with nothing
 * but slots and y for values.  y belongs to a head of queries, so keys are copied for
 * every one of them.  gamma is tensor 0, one number a head.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/sums.h"
#include "state/state.h"

struct second {
    struct sums         all;  /* rows of queries; there are as many keys */
    struct foci_plan    plan; /* the problem of both calls: outputs packed */
    struct foci_plan    over; /* and of the second: keys and values too */
    struct group        group;
    struct stage        first, means;
    const foci_plan    *outer;
    const struct stage *stage;
    const foci_io      *io;

    /* Saved: y and z, packed [batch][len][heads of the problem][dv], and what the two
     * calls save. */
    char   *y, *z;
    size_t  y_bytes, k_bytes;
    float  *saved_y, *saved_z;
    int64_t floats_y;

    struct seq *seqs;
    uint8_t    *valid;
    int64_t    *place; /* [rows] of a query in its sequence */
    char       *k, *dk, *dy, *gz;
    float      *lse, *gamma; /* gamma: [rows][heads], 0 where no run is seen */
    float      *dq;          /* [rows][heads][d] sums */
    double     *d_gamma;     /* [heads] */
    char       *rest;
};

static foci_layout packed(const foci_problem *p, int64_t d)
{
    return (foci_layout){ p->len_q * p->heads * d, p->heads * d, d };
}

static void geometry(struct second *s, const foci_plan *plan, const struct stage *stage)
{
    const foci_problem *p = &plan->p;
    const size_t        el = foci_dtype_bytes(p->dtype);

    *s = (struct second){
        .all = { .plan = plan,
                 .k = &plan->ctx->kernels,
                 .len = p->len_q,
                 .rows = p->batch * p->len_q,
                 .head0 = stage->group->head0,
                 .heads = stage->group->heads,
                 .el = el },
        .plan = *plan,
        .group = *stage->group,
        .first = *stage,
        .means = *stage,
        .outer = plan,
        .stage = stage,
    };
    const int64_t rows = s->all.rows * p->heads;
    s->y_bytes = (size_t)round_up(rows * p->dim_v, 32) * el;
    s->k_bytes = (size_t)round_up(rows * p->dim_qk, 32) * el;
    s->first.n_levels = 0;
    s->plan.p.o = packed(p, p->dim_v);
    s->over = s->plan;
    s->over.p.k = packed(p, p->dim_qk);
    s->over.p.v = packed(p, p->dim_v);
    s->group.kv0 = s->group.head0;
    s->group.kv_heads = s->group.heads;
    s->means.group = &s->group;
    s->means.memory = 0; /* y is nobody's memory: see keys_job() */
    s->means.support = (struct support){ .len = stage->support.len };
}

static int64_t take_saved(struct second *s, float *base)
{
    const int64_t y = (int64_t)(s->y_bytes / sizeof(float));

    s->floats_y = round_up(engine_exact.saved_floats(&s->plan, &s->first), 16);
    const int64_t z = round_up(engine_exact.saved_floats(&s->over, &s->means), 16);
    if (base) {
        s->y = (char *)base;
        s->z = (char *)(base + y);
        s->saved_y = base + 2 * y;
        s->saved_z = s->saved_y + s->floats_y;
    }
    return 2 * y + s->floats_y + z;
}

static void take_work(struct second *s, struct arena *a, bool train, bool saves)
{
    const foci_problem *p = &s->plan.p;
    const int64_t       rows = s->all.rows * s->all.heads;
    const size_t        one = engine_exact.work_bytes(&s->plan, &s->first);
    const size_t        two = engine_exact.work_bytes(&s->over, &s->means);

    s->seqs = arena_take(a, plan_max_seqs(s->outer), sizeof *s->seqs);
    s->all.valid = s->valid = arena_take(a, s->all.rows, 1);
    s->place = arena_take(a, s->all.rows, sizeof *s->place);
    s->gamma = arena_take(a, rows, sizeof *s->gamma);
    s->all.sum = arena_take(a, rows * max64(p->dim_v, p->dim_qk), sizeof *s->all.sum);
    s->lse = arena_take(a, p->batch * p->heads * p->len_q, sizeof *s->lse);
    s->k = arena_take(a, 1, s->k_bytes);
    if (!saves) {
        s->y = arena_take(a, 1, s->y_bytes);
        s->z = arena_take(a, 1, s->y_bytes);
    }
    if (train) {
        s->dk = arena_take(a, 1, s->k_bytes);
        s->dy = arena_take(a, 1, s->y_bytes);
        s->gz = arena_take(a, 1, s->y_bytes);
        s->d_gamma = arena_take(a, s->all.heads, sizeof *s->d_gamma);
        s->dq = arena_take(a, rows * p->dim_qk, sizeof *s->dq);
    }
    s->rest = arena_take(a, 1, one > two ? one : two);
}

/* Every head of queries gets the keys it reads. */
static void copy_job(void *arg, int64_t i, int thread)
{
    const struct second *s = arg;
    const foci_problem  *p = &s->outer->p;
    const struct group  *g = s->stage->group;
    const int64_t        per = g->heads / g->kv_heads;

    (void)thread;
    for (int64_t h = 0; s->valid[i] && h < g->heads; h++)
        memcpy(s->k + sums_at(&s->all, &s->over.p.k, i, g->head0 + h),
               (const char *)s->io->k + sums_at(&s->all, &p->k, i, g->kv0 + h / per),
               (size_t)p->dim_qk * s->all.el);
}

static bool sees_run(const struct second *s, int64_t i)
{
    return !s->stage->group->mech.causal ||
           s->place[i] >= s->stage->levels[0].slots.every;
}

/* Shares of z: gamma, and 0 for rows that see no run. */
static void set_rows(struct second *s)
{
    const float  *gamma = s->io->params + s->stage->group->param0[0];
    const int64_t n = plan_seqs(s->outer, s->io, s->seqs);

    sums_valid(s->outer, s->io, true, s->seqs, s->valid);
    for (int64_t q = 0; q < n; q++)
        for (int64_t i = 0; i < s->seqs[q].nq; i++)
            s->place[s->seqs[q].b * s->all.len + s->seqs[q].q0 + i] = i;
    for (int64_t i = 0; i < s->all.rows; i++)
        for (int64_t h = 0; s->valid[i] && h < s->all.heads; h++)
            s->gamma[i * s->all.heads + h] = sees_run(s, i) ? gamma[h] : 0;
}

static foci_io call_one(const struct second *s)
{
    foci_io io = *s->io;

    io.o = s->y;
    io.work = s->rest;
    return io;
}

static foci_io call_two(const struct second *s)
{
    foci_io io = *s->io;

    io.k = s->k;
    io.v = s->y;
    io.o = s->z;
    io.lse = NULL;
    io.work = s->rest;
    return io;
}

static void forward(const foci_plan *plan, const struct stage *stage, const foci_io *io,
                    float *saved)
{
    struct second s;
    struct arena  a = { .base = io->work };

    geometry(&s, plan, stage);
    s.io = io;
    take_saved(&s, saved);
    take_work(&s, &a, false, saved);
    set_rows(&s);
    sums_rows(&s.all, copy_job, &s);

    foci_io one = call_one(&s);
    one.lse = io->lse ? s.lse : NULL;
    engine_exact.forward(&s.plan, &s.first, &one, saved ? s.saved_y : NULL);
    const foci_io two = call_two(&s);
    engine_exact.forward(&s.over, &s.means, &two, saved ? s.saved_z : NULL);

    const foci_layout *l = &s.plan.p.o;
    const int          d = (int)plan->p.dim_v;
    sums_add(&s.all, s.z, l, d, s.gamma, 1, true);
    for (int64_t i = 0; i < s.all.rows * s.all.heads; i++)
        s.gamma[i] = 1 - s.gamma[i];
    sums_add(&s.all, s.y, l, d, s.gamma, 1, false);
    sums_store(&s.all, io->o, &plan->p.o, d);
    if (io->lse) sums_lse(&s.all, s.lse, io->lse, true);
}

struct back {
    const struct second *s;
    const char          *d_o;
    char                *dk;
};

/* gz = gamma g of a head, and the gradient of gamma: sum of g (z - y) over rows that see
 * a run. */
static void gamma_job(void *arg, int64_t h, int thread)
{
    const struct back   *k = arg;
    const struct second *s = k->s;
    const foci_problem  *p = &s->outer->p;
    const int            d = (int)p->dim_v, dtype = (int)p->dtype;
    const int64_t        head = s->all.head0 + h;
    double               sum = 0;

    (void)thread;
    for (int64_t i = 0; i < s->all.rows; i++) {
        const size_t       at = sums_at(&s->all, &s->plan.p.o, i, head);
        const char        *g = k->d_o + sums_at(&s->all, &p->o, i, head);
        const float        f = s->valid[i] ? s->gamma[i * s->all.heads + h] : 0;
        const bool         sees = s->valid[i] && sees_run(s, i);
        _Alignas(64) float x[SUMS_CHUNK], y[SUMS_CHUNK], z[SUMS_CHUNK];

        for (int c = 0; c < d; c += SUMS_CHUNK) {
            const int    m = (int)min64(SUMS_CHUNK, d - c);
            const size_t to = (size_t)c * s->all.el;
            s->all.k->load_rows(x, SUMS_CHUNK, g + to, d, dtype, 1, m);
            s->all.k->load_rows(y, SUMS_CHUNK, s->y + at + to, d, dtype, 1, m);
            s->all.k->load_rows(z, SUMS_CHUNK, s->z + at + to, d, dtype, 1, m);
            for (int t = 0; sees && t < m; t++)
                sum += (double)x[t] * ((double)z[t] - (double)y[t]);
            for (int t = 0; t < m; t++)
                x[t] = f == 0 ? 0 : f * x[t];
            s->all.k->store_rows(s->gz + at + to, d, dtype, x, SUMS_CHUNK, 1.0f, 1, m);
        }
    }
    s->d_gamma[h] = sum;
}

/* dk of the first call lies in its place: add the copies of each head. */
static void keys_job(void *arg, int64_t i, int thread)
{
    const struct back   *k = arg;
    const struct second *s = k->s;
    const foci_problem  *p = &s->outer->p;
    const struct group  *g = s->stage->group;
    const int64_t        per = g->heads / g->kv_heads, d = p->dim_qk;

    (void)thread;
    if (!s->valid[i] || s->place[i] < s->stage->memory) return;
    for (int64_t kv = 0; kv < g->kv_heads; kv++) {
        char *to = k->dk + sums_at(&s->all, &p->k, i, g->kv0 + kv);
        for (int64_t c = 0; c < d; c += SUMS_CHUNK) {
            const int          m = (int)min64(SUMS_CHUNK, d - c);
            const size_t       skip = (size_t)c * s->all.el;
            _Alignas(64) float sum[SUMS_CHUNK], part[SUMS_CHUNK];

            s->all.k->load_rows(sum, SUMS_CHUNK, to + skip, d, (int)p->dtype, 1, m);
            for (int64_t h = kv * per; h < (kv + 1) * per; h++) {
                const char *from =
                    s->dk + sums_at(&s->all, &s->over.p.k, i, g->head0 + h);
                s->all.k->load_rows(part, SUMS_CHUNK, from + skip, d, (int)p->dtype, 1,
                                    m);
                for (int t = 0; t < m; t++)
                    sum[t] += part[t];
            }
            s->all.k->store_rows(to + skip, d, (int)p->dtype, sum, SUMS_CHUNK, 1.0f, 1,
                                 m);
        }
    }
}

/* dy = (1 - gamma) g + what came through the means. */
static void grad_of_y(struct second *s, const char *d_o)
{
    const int d = (int)s->outer->p.dim_v;

    sums_add(&s->all, s->dy, &s->plan.p.o, d, NULL, 0, true);
    for (int64_t i = 0; i < s->all.rows * s->all.heads; i++)
        s->gamma[i] = 1 - s->gamma[i];
    sums_add(&s->all, d_o, &s->outer->p.o, d, s->gamma, 1, false);
    sums_store(&s->all, s->dy, &s->plan.p.o, d);
}

static void backward(const foci_plan *plan, const struct stage *stage,
                     const foci_io *io, const float *saved, const foci_grads *g)
{
    struct second s;
    struct arena  a = { .base = io->work };
    const int     d = (int)plan->p.dim_qk;

    geometry(&s, plan, stage);
    s.io = io;
    take_saved(&s, (float *)saved);
    take_work(&s, &a, true, true);
    set_rows(&s);
    sums_rows(&s.all, copy_job, &s);
    struct back k = { &s, g->d_o, g->dk };
    phases_run(s.all.k, plan->shared, plan->ctx->threads,
               &(struct phase){ s.all.heads, 1, gamma_job, &k }, 1);

    const foci_io two = call_two(&s), one = call_one(&s);
    foci_grads    mine = *g;
    struct sums   dq = s.all;
    dq.sum = s.dq;
    mine.d_o = s.gz;
    mine.dk = s.dk;
    mine.dv = s.dy;
    engine_exact.backward(&s.over, &s.means, &two, s.saved_z, &mine);
    if (g->dq) sums_add(&dq, g->dq, &plan->p.q, d, NULL, 0, true);

    grad_of_y(&s, g->d_o);
    mine = *g;
    mine.d_o = s.dy;
    engine_exact.backward(&s.plan, &s.first, &one, s.saved_y, &mine);
    if (g->dq) {
        sums_add(&dq, g->dq, &plan->p.q, d, NULL, 0, false);
        sums_store(&dq, g->dq, &plan->p.q, d);
    }
    if (g->dk) sums_rows(&s.all, keys_job, &k);
    for (int64_t h = 0; g->dparams && h < s.all.heads; h++)
        g->dparams[stage->group->param0[0] + h] += (float)s.d_gamma[h];
}

static size_t work_bytes(const foci_plan *plan, const struct stage *stage)
{
    struct second s;
    struct arena  a = { 0 }, b = { 0 };

    geometry(&s, plan, stage);
    take_work(&s, &a, false, false);
    if (plan->p.flags & FOCI_TRAIN) take_work(&s, &b, true, true);
    return a.used > b.used ? a.used : b.used;
}

static int64_t saved_floats(const foci_plan *plan, const struct stage *stage)
{
    struct second s;

    geometry(&s, plan, stage);
    return take_saved(&s, NULL);
}

static void cost(const foci_plan *plan, const struct stage *stage, foci_cost *c)
{
    struct second s;

    geometry(&s, plan, stage);
    engine_exact.cost(&s.plan, &s.first, c);
    engine_exact.cost(&s.over, &s.means, c);
}

static int describe(const foci_plan *plan, const struct stage *stage, char *text,
                    size_t cap)
{
    struct second s;

    geometry(&s, plan, stage);
    const int n = engine_exact.describe(&s.plan, &s.first, text, cap);
    if (n < 0 || (size_t)n >= cap) return n;
    const int m = snprintf(text + n, cap - (size_t)n, "    again    over means:\n");
    if (m < 0 || (size_t)(n + m) >= cap) return n + m;
    return n + m +
           engine_exact.describe(&s.over, &s.means, text + n + m, cap - (size_t)(n + m));
}

const struct engine engine_second = {
    .decoder = &second_decoder,
    .name = "second",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = forward,
    .backward = backward,
    .cost = cost,
    .describe = describe,
};
