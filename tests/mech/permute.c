/* permute.c -- sequences and heads do not meet: in another order, or in another
 * layout, each gives the same bits. */
#include <math.h>

#include "support/trial.h"

/* A copy of `from`, a tensor of layout a or NULL, in layout b, with batch entry x at
 * batch[x] and head x at head[x]. */
static void *rearrange(int type, const void *from, foci_layout a, foci_layout b,
                       int64_t batches, int64_t rows, int64_t heads, int64_t dim,
                       const int64_t *batch, const int64_t *head)
{
    const int64_t room = trial_at(&b, batches - 1, rows - 1, heads - 1, dim);
    void         *to = from ? test_alloc((size_t)room, sizeof(float)) : NULL;

    for (int64_t x = 0; to && x < batches; x++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t c = 0; c < dim; c++)
                    ref_store(type, to, trial_at(&b, batch[x], i, head[h], c),
                              ref_load(type, from, trial_at(&a, x, i, h, c)));
    return to;
}

/* Packed results of a permuted trial, put back in order. */
static void put_back(double *x, int64_t batches, int64_t rows, int64_t heads,
                     int64_t dim, bool rows_inner, const int64_t *batch,
                     const int64_t *head)
{
    const int64_t n = batches * rows * heads * dim;
    double       *old = test_alloc((size_t)n, sizeof *old);

    memcpy(old, x, (size_t)n * sizeof *old);
    for (int64_t b = 0; b < batches; b++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t c = 0; c < dim; c++) {
                    if (rows_inner) /* lse: [batch][head][row] */
                        x[(b * heads + h) * rows + i] =
                            old[(batch[b] * heads + head[h]) * rows + i];
                    else
                        x[((b * rows + i) * heads + h) * dim + c] =
                            old[((batch[b] * rows + i) * heads + head[h]) * dim + c];
                }
    free(old);
}

enum { BATCH = 3, HEADS = 6, KV = 3, LEN = 70, DIM = 16, DIM_V = 9 };

static foci_layout heads_first(int64_t dim)
{
    const int64_t row = dim + 5, batch = LEN * row + 2;
    return (foci_layout){ .row = row, .batch = batch, .head = BATCH * batch };
}

/* Rows of a tensor are heads, of an inner mechanism by route. */
static void permute_params(const foci_plan *plan, const float *from,
                           const int64_t *head, float *to)
{
    for (int i = 0; i < plan->n_params; i++) {
        const struct param *p = &plan->params[i];
        const int64_t       n = p->count / p->shape[0];
        for (int64_t row = 0; row < p->shape[0]; row++)
            memcpy(to + p->offset + (row / HEADS * HEADS + head[row % HEADS]) * n,
                   from + p->offset + row * n, (size_t)n * sizeof *to);
    }
}

/* Heads are not alike: they fade by their number, or have patterns by turns. */
static bool goes_by_head(const foci_plan *plan)
{
    const foci_mech *m = &plan->spec.groups[0].mech;

    if (m->def->positional) {
        foci_positional zero = { 0 }, one = { 0 };
        m->def->positional(m, 0, &zero);
        m->def->positional(m, 1, &one);
        return zero.pattern != one.pattern;
    }
    if (!m->def->decay || plan->n_params) return false;
    return m->def->decay(m, 0, HEADS) != m->def->decay(m, 1, HEADS);
}

/* Heads move with their key/value heads, of which there are some for each route; those
 * that go by their number stay. */
struct places {
    int64_t head[HEADS], *kv;
};

static struct places places_of(const foci_plan *plan)
{
    static const int64_t groups[KV] = { 2, 0, 1 };
    const bool           stay = trial_does(plan, FOCI_MOD_SLOPE) || goes_by_head(plan);
    const int64_t        n = plan->p.kv_heads, routes = n / KV, share = HEADS / KV;
    struct places        m = { .kv = test_alloc((size_t)n, sizeof(int64_t)) };

    for (int64_t h = 0; h < HEADS; h++)
        m.head[h] = stay ? h : groups[h / share] * share + h % share;
    for (int64_t i = 0; i < n; i++)
        m.kv[i] = stay ? i : groups[i / routes] * routes + i % routes;
    return m;
}

static const int64_t batch[BATCH] = { 2, 0, 1 };

/* The trial with its sequences and heads at other places, in the layout of o. */
static struct trial move(const foci_plan *plan, const struct trial *t,
                         const foci_problem *o, const struct places *m)
{
    static const int64_t one[1] = { 0 };
    const foci_problem  *p = &t->p;
    const int            type = (int)p->dtype;
    struct trial         u = { .p = *o, .seed = t->seed };

    u.params = test_alloc((size_t)plan->n_floats, sizeof *u.params);
    permute_params(plan, t->params, m->head, u.params);
    if (t->len_q) u.len_q = test_alloc(BATCH, sizeof *u.len_q);
    if (t->len_k) u.len_k = test_alloc(BATCH, sizeof *u.len_k);
    for (int b = 0; t->len_q && b < BATCH; b++) {
        u.len_q[batch[b]] = t->len_q[b];
        u.len_k[batch[b]] = t->len_k[b];
    }
    if (t->words) u.words = test_alloc(BATCH * LEN, sizeof *u.words);
    for (int64_t i = 0; t->words && i < BATCH * LEN; i++)
        u.words[batch[i / LEN] * LEN + i % LEN] = t->words[i];
    u.q = rearrange(type, t->q, p->q, o->q, BATCH, LEN, HEADS, DIM, batch, m->head);
    u.k = rearrange(type, t->k, p->k, o->k, BATCH, LEN, p->kv_heads, DIM, batch, m->kv);
    u.v = rearrange(type, t->v, p->v, o->v, BATCH, LEN, p->kv_heads, p->dim_v, batch,
                    m->kv);
    u.g =
        rearrange(type, t->g, p->o, o->o, BATCH, LEN, HEADS, p->dim_v, batch, m->head);
    if (p->dim_x)
        u.x = rearrange(type, t->x, p->x, o->x, BATCH, LEN, 1, p->dim_x, batch, one);
    return u;
}

/* dx adds up what heads bring, in another order now. */
static void check_dx(const foci_plan *plan, const struct trial *t, struct result *got,
                     struct result *want)
{
    static const int64_t one[1] = { 0 };
    const double         size = rms(want->x[PART_DX], want->n[PART_DX]);
    const double         slack = t->p.dtype == FOCI_F32 ? 1e-5 : 0.01;

    if (!t->p.dim_x) return;
    put_back(got->x[PART_DX], BATCH, LEN, 1, t->p.dim_x, false, batch, one);
    for (int64_t i = 0; i < got->n[PART_DX]; i++) {
        const double x = got->x[PART_DX][i], y = want->x[PART_DX][i];
        if (!(fabs(x - y) <= slack * (fabs(y) + size)))
            trial_fail(plan, t, "permuted: dx", i, x, y);
    }
    got->n[PART_DX] = want->n[PART_DX] = 0;
}

static void run_case(foci_ctx *ctx, const char *spec, foci_dtype dtype, uint64_t seed)
{
    const foci_problem plain = { FOCI_SIZED(foci_problem),
                                 .dtype = dtype,
                                 .batch = BATCH,
                                 .heads = HEADS,
                                 .kv_heads = KV,
                                 .len_q = LEN,
                                 .len_k = LEN,
                                 .dim_qk = DIM,
                                 .dim_v = DIM_V,
                                 .flags = FOCI_FLAG_TRAIN };
    foci_problem       other = plain;
    other.q = other.k = other.v = other.o = heads_first(DIM);

    foci_plan *plan = trial_plan(ctx, spec, &plain);
    if (!plan) return;
    foci_plan    *other_plan = trial_plan(ctx, spec, &other);
    struct places m = places_of(plan);
    struct trial  t = trial_make(plan, spec, seed, TRIAL_LENS);
    struct trial  moved = move(plan, &t, &other_plan->p, &m);
    struct result want = trial_run(plan, &t), got = trial_run(other_plan, &moved);
    const int64_t kv = plan->p.kv_heads;

    put_back(got.x[PART_O], BATCH, LEN, HEADS, plan->p.dim_v, false, batch, m.head);
    if (got.n[PART_LSE])
        put_back(got.x[PART_LSE], BATCH, LEN, HEADS, 1, true, batch, m.head);
    put_back(got.x[PART_DQ], BATCH, LEN, HEADS, DIM, false, batch, m.head);
    put_back(got.x[PART_DK], BATCH, LEN, kv, DIM, false, batch, m.kv);
    put_back(got.x[PART_DV], BATCH, LEN, kv, plan->p.dim_v, false, batch, m.kv);
    check_dx(plan, &t, &got, &want);

    /* Gradients of parameters are sums over the batch, in another order now. */
    got.n[PART_DPARAMS] = want.n[PART_DPARAMS] = 0;
    trial_equal(plan, &t, "permuted", &got, &want);

    free(m.kv);
    result_free(&want);
    result_free(&got);
    trial_free(&t);
    trial_free(&moved);
    foci_plan_free(plan);
    foci_plan_free(other_plan);
}

static void permute(void **state)
{
    struct levels l = levels_make(1);
    char          spec[SPEC_CAP];

    (void)state;
    for (int i = 0; specs_next(l.ctx[0], i, spec); i++)
        run_case(l.ctx[i % l.n], spec, (foci_dtype)(i / 4 % 3), (uint64_t)i);
    levels_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(permute) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
