/* nonfinite.c -- a NaN or an infinity reaches only what it flows to.
 *
 * One row of one tensor is spoilt.  Of key or value j, queries that see j may feel it,
 * and in the backward pass j and keys that such queries see.  Of query or gradient i,
 * its own row, and keys that it sees.  Everything else must come out as without it, up to
 * rounding: tiles with such numbers are computed in another way.
 *
 * Where who sees whom depends on the numbers themselves, labels, routes and summaries
 * that attend, the judge says what is reached: it takes pairs one by one, and what it
 * leaves as it was the engine must leave. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

enum { Q, K, V, G, N_TENSORS };
static const char *const tensor_names[N_TENSORS] = { "q", "k", "v", "d_o" };

/* Row `row` of head `head` of batch entry `b` of tensor `tensor`. */
struct spot {
    int           tensor;
    int64_t       b, row, head;
    const double *off; /* [N_PARTS] by which parts may be apart anyway */
};

static void spoil(struct trial *t, const struct spot *s, double value)
{
    const foci_problem *p = &t->p;
    const foci_layout  *l[] = { &p->q, &p->k, &p->v, &p->o };
    void *const         x[] = { t->q, t->k, t->v, t->g };
    const int64_t       dim = s->tensor == Q || s->tensor == K ? p->dim_qk : p->dim_v;

    ref_store((int)p->dtype, x[s->tensor],
              trial_at(l[s->tensor], s->b, s->row, s->head, dim / 2), value);
}

/* Who may feel it. */
struct reach {
    uint8_t *o, *dq; /* [batch][heads][len_q] */
    uint8_t *keys;   /* [batch][kv_heads][len_k], dk and dv */
    uint8_t *head;   /* [heads], gradients of parameters */
};

static struct reach reach_of(const foci_plan *plan, struct trial *t,
                             const struct spot *s)
{
    const foci_problem *p = &t->p;
    const int64_t       share = p->heads / p->kv_heads;
    const bool          by_key = s->tensor == K || s->tensor == V;
    const size_t        rows = (size_t)(p->batch * p->heads * p->len_q);
    struct reach        r = { test_alloc(rows, 1), test_alloc(rows, 1),
                              test_alloc((size_t)(p->batch * p->kv_heads * p->len_k), 1),
                              test_alloc((size_t)p->heads, 1) };

    if (s->tensor == K) r.keys[(s->b * p->kv_heads + s->head) * p->len_k + s->row] = 1;
    for (int64_t h = 0; h < p->heads; h++) {
        if (by_key ? h / share != s->head : h != s->head) continue;
        for (int64_t i = 0; i < p->len_q; i++) {
            const bool feels =
                by_key ? trial_sees(plan, t, s->b, h, i, s->row) : i == s->row;
            if (!feels) continue;
            const int64_t at = (s->b * p->heads + h) * p->len_q + i;
            r.o[at] = s->tensor != G;
            r.dq[at] = 1;
            for (int64_t j = 0; j < p->len_k; j++) {
                if (!trial_sees(plan, t, s->b, h, i, j)) continue;
                r.keys[(s->b * p->kv_heads + h / share) * p->len_k + j] = 1;
                r.head[h] = 1;
            }
        }
    }
    return r;
}

static void reach_free(struct reach *r)
{
    free(r->o);
    free(r->dq);
    free(r->keys);
    free(r->head);
}

static void compare(const foci_plan *plan, const struct trial *t, const struct spot *s,
                    int part, int64_t i, const struct result *got,
                    const struct result *want, double size)
{
    const double tolerance =
        t->p.dtype == FOCI_F32 && !(t->p.flags & FOCI_FLAG_FAST) ? 2e-5 : 0.06;
    const double x = got->x[part][i], y = want->x[part][i];
    char         text[96];

    if (x == y || fabs(x - y) <= tolerance * (fabs(y) + size) + 10 * s->off[part])
        return;
    snprintf(text, sizeof text, "beside %s(%d, %d, %d): %s", tensor_names[s->tensor],
             (int)s->b, (int)s->row, (int)s->head, part_names[part]);
    trial_fail(plan, t, text, i, x, y);
}

/* A part packed as [batch][row][head][dim] against flags [batch][head][row]. */
static void check_part(const foci_plan *plan, const struct trial *t,
                       const struct spot *s, int part, int64_t rows, int64_t heads,
                       int64_t dim, const uint8_t *flags, const struct result *got,
                       const struct result *want)
{
    const double size = rms(want->x[part], want->n[part]);

    for (int64_t i = 0; i < got->n[part]; i++) {
        const int64_t h = i / dim % heads, row = i / dim / heads % rows;
        const int64_t b = i / dim / heads / rows;
        if (!flags[(b * heads + h) * rows + row])
            compare(plan, t, s, part, i, got, want, size);
    }
}

static void run_spot(const foci_plan *plan, struct trial *t, const struct result *clean,
                     const struct spot *s, double value)
{
    const foci_problem *p = &t->p;
    const foci_layout  *l[] = { &p->q, &p->k, &p->v, &p->o };
    void *const         x[] = { t->q, t->k, t->v, t->g };
    const int64_t       dim = s->tensor == Q || s->tensor == K ? p->dim_qk : p->dim_v;
    const double        old = ref_load((int)p->dtype, x[s->tensor],
                                       trial_at(l[s->tensor], s->b, s->row, s->head, dim / 2));
    struct reach        r = reach_of(plan, t, s);

    spoil(t, s, value);
    struct result got = trial_run(plan, t);
    check_part(plan, t, s, PART_O, p->len_q, p->heads, p->dim_v, r.o, &got, clean);
    check_part(plan, t, s, PART_DQ, p->len_q, p->heads, p->dim_qk, r.dq, &got, clean);
    check_part(plan, t, s, PART_DK, p->len_k, p->kv_heads, p->dim_qk, r.keys, &got,
               clean);
    check_part(plan, t, s, PART_DV, p->len_k, p->kv_heads, p->dim_v, r.keys, &got,
               clean);
    for (int64_t i = 0; i < got.n[PART_LSE]; i++)
        if (!r.o[i]) compare(plan, t, s, PART_LSE, i, &got, clean, 1);
    for (int64_t i = 0; i < got.n[PART_DPARAMS]; i++)
        if (!r.head[trial_param_head(plan, i)])
            compare(plan, t, s, PART_DPARAMS, i, &got, clean, 1);
    result_free(&got);
    reach_free(&r);
    spoil(t, s, old);
}

/* The row of a result that element i belongs to; of parameters, the head. */
static int64_t row_of(const foci_plan *plan, int part, int64_t i)
{
    const foci_problem *p = &plan->p;

    switch (part) {
    case PART_O:
    case PART_DV: return i / p->dim_v;
    case PART_DQ:
    case PART_DK: return i / p->dim_qk;
    case PART_DX: return i / p->dim_x;
    case PART_DPARAMS: return trial_param_head(plan, i);
    default: return i;
    }
}

/* Rows in which the judge's results part, NaN from what was a number too. */
static uint8_t *parted(const foci_plan *plan, int part, const struct result *a,
                       const struct result *b)
{
    const double size = rms(b->x[part], b->n[part]);
    uint8_t     *rows = test_alloc((size_t)(b->n[part] + plan->p.heads), 1);

    for (int64_t i = 0; i < b->n[part]; i++) {
        const double x = a->x[part][i], y = b->x[part][i];
        if (x != y && !(fabs(x - y) <= 1e-12 * (fabs(y) + size)))
            rows[row_of(plan, part, i)] = 1;
    }
    return rows;
}

/* By the judge's results without and with the spoilt row. */
static void run_judged(const foci_plan *plan, struct trial *t,
                       const struct result *clean, const struct result *judged,
                       const struct spot *s, double value)
{
    const foci_problem *p = &t->p;
    const foci_layout  *l[] = { &p->q, &p->k, &p->v, &p->o };
    void *const         x[] = { t->q, t->k, t->v, t->g };
    const int64_t       dim = s->tensor == Q || s->tensor == K ? p->dim_qk : p->dim_v;
    const double        old = ref_load((int)p->dtype, x[s->tensor],
                                       trial_at(l[s->tensor], s->b, s->row, s->head, dim / 2));
    int64_t             same = 0;

    spoil(t, s, value);
    struct result got = trial_run(plan, t), want = trial_judge(plan, t, false);
    for (int part = 0; part < N_PARTS; part++) {
        const double size = rms(clean->x[part], clean->n[part]);
        uint8_t     *reached = parted(plan, part, &want, judged);

        for (int64_t i = 0; i < got.n[part]; i++) {
            if (reached[row_of(plan, part, i)]) continue;
            compare(plan, t, s, part, i, &got, clean, size);
            same++;
        }
        free(reached);
    }
    if (!same) trial_fail(plan, t, "rows that the judge leaves", s->row, 0, 1);
    result_free(&got);
    result_free(&want);
    spoil(t, s, old);
}

/* A chunk that is taken apart rounds words of other features, which may cancel: what
 * roundings do to each part, in the judge's hands. */
static void measure(const foci_plan *plan, const struct trial *t, double off[N_PARTS])
{
    struct result exact = trial_judge(plan, t, false),
                  rounded = trial_judge(plan, t, true);

    for (int part = 0; part < N_PARTS; part++) {
        double sum = 0;
        for (int64_t i = 0; i < exact.n[part]; i++) {
            const double by = rounded.x[part][i] - exact.x[part][i];
            sum += isfinite(by) ? by * by : 0;
        }
        off[part] = exact.n[part] ? sqrt(sum / (double)exact.n[part]) : 0;
    }
    result_free(&exact);
    result_free(&rounded);
}

static void run_case(foci_ctx *ctx, const char *spec, const foci_problem *problem,
                     unsigned gives, uint64_t seed)
{
    foci_plan *plan = trial_plan(ctx, spec, problem);
    if (!plan) return;
    const foci_mech_def *def = plan->spec.groups[0].mech.def;
    const bool judge = def->order || def->routes || def->two_pass || def->positional ||
                       def->nystrom || def->memformer;
    const foci_problem *p = &plan->p;
    struct trial        t = trial_make(plan, spec, seed, gives | TRIAL_FROZEN);
    struct result       clean = trial_run(plan, &t), judged = { 0 };
    struct rng          r;
    double              off[N_PARTS] = { 0 };

    if (trial_is_linear(plan)) measure(plan, &t, off);
    if (judge) judged = trial_judge(plan, &t, false);

    rng_seed(&r, seed, 3);
    for (int tensor = 0; tensor < N_TENSORS; tensor++) {
        const bool   by_key = tensor == K || tensor == V;
        const double value = (seed + (uint64_t)tensor) % 3 ? NAN : INFINITY;
        for (int n = test_sanitized(); n < 2; n++) {
            const struct spot s = { tensor, rng_below(&r, p->batch),
                                    rng_below(&r, by_key ? p->len_k : p->len_q),
                                    rng_below(&r, by_key ? p->kv_heads : p->heads),
                                    off };
            if ((tensor == Q && !t.q) || (tensor == K && !t.k)) continue;
            if (judge)
                run_judged(plan, &t, &clean, &judged, &s, value);
            else
                run_spot(plan, &t, &clean, &s, value);
        }
    }
    result_free(&judged);
    result_free(&clean);
    trial_free(&t);
    foci_plan_free(plan);
}

static void nonfinite(void **state)
{
    static const struct {
        foci_problem p;
        unsigned     gives;
    } kinds[] = {
        { { FOCI_SIZED(foci_problem), .batch = 2, .heads = 4, .kv_heads = 2, .len_q = 70,
            .len_k = 70, .dim_qk = 8, .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL },
          TRIAL_LENS },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2, .len_q = 150, .len_k = 150,
            .dim_qk = 8, .dim_v = 5, .max_docs = 4, .flags = FOCI_FLAG_TRAIN },
          TRIAL_DOCS },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2, .len_q = 30, .len_k = 100,
            .dim_qk = 8, .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_MASK },
          0 },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2, .len_q = 130, .len_k = 130,
            .dim_qk = 8, .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL | FOCI_FLAG_FAST },
          0 },
    };
    struct levels l = levels_make(1);
    char          spec[SPEC_CAP];

    (void)state;
    for (int i = 0; specs_next(l.ctx[0], i, spec); i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            foci_problem p = kinds[k].p;
            if (k == 1 && i % 2) p.dtype = FOCI_BF16;
            if (strchr(spec, ' ') && ((size_t)i + k) % 3) continue;
            run_case(l.ctx[((size_t)i + k) % (size_t)l.n], spec, &p, kinds[k].gives,
                     (uint64_t)i);
        }
    levels_free(&l);
}

/* Causal queries before the first key see nothing: what stands in them reaches no gradient
 * of a parameter. */
static void unseen(void **state)
{
    static const char *const specs[] = {
        "retention(learn=1)",
        "retention(decay=0.7, learn=1, norm=sum)",
        "retention(decay=0.7, learn=1, norm=retnet) rope",
        "linear rope",
        "softmax sink temper txl",
    };
    const foci_problem  p = { FOCI_SIZED(foci_problem),
                              .batch = 1,
                              .heads = 2,
                              .len_q = 70,
                              .len_k = 70,
                              .dim_qk = 8,
                              .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL };
    static const double off[N_PARTS];
    struct levels       l = levels_make(1);

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        foci_plan *plan = trial_plan(l.ctx[i % (size_t)l.n], specs[i], &p);
        if (!plan) continue; /* not on a device */
        struct trial t = trial_make(plan, specs[i], i, TRIAL_LENS | TRIAL_FROZEN);

        t.len_k[0] = 44;
        struct result clean = trial_run(plan, &t);

        run_spot(plan, &t, &clean, &(struct spot){ Q, 0, 13, 1, off }, NAN);
        run_spot(plan, &t, &clean, &(struct spot){ G, 0, 24, 0, off }, INFINITY);
        result_free(&clean);
        trial_free(&t);
        foci_plan_free(plan);
    }
    levels_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonfinite),
        cmocka_unit_test(unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
