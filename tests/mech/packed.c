/* packed.c -- a sequence gives the same whether it stands in a batch of sequences of
 * unequal lengths, in a row with others as packed documents, or alone.
 *
 * Packed and alone, under one plan, it gives the same bits.  A batch is planned in other
 * pieces, in which gradients are summed in another order. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

enum { LEN = 215, SEQS = 5, HEADS = 4, KV = 2, DIM = 8, DIM_V = 5 };

/* Where the documents begin: of one tile and a part, of one row, of none, of a tile, of
 * two and a part. */
static const int32_t docs[SEQS + 1] = { 0, 70, 71, 71, 135, LEN };

static const foci_problem problem = { FOCI_SIZED(foci_problem),
                                      .batch = 1,
                                      .heads = HEADS,
                                      .kv_heads = KV,
                                      .len_q = LEN,
                                      .len_k = LEN,
                                      .dim_qk = DIM,
                                      .dim_v = DIM_V,
                                      .max_docs = SEQS,
                                      .flags = FOCI_FLAG_TRAIN };

/* Rows of one tensor of one batch entry. */
static void copy_rows(int type, const void *from, foci_layout a, int64_t row, void *to,
                      foci_layout b, int64_t batch, int64_t n, int64_t heads,
                      int64_t dim)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t c = 0; c < dim; c++)
                ref_store(type, to, trial_at(&b, batch, i, h, c),
                          ref_load(type, from, trial_at(&a, 0, row + i, h, c)));
}

/* Documents `first` on, n of them, of the packed trial as batch entries of their own. */
static struct trial unpacked(const struct trial *t, const foci_plan *plan, int first,
                             int n)
{
    struct trial        u = trial_make(plan, t->spec, t->seed, 0);
    const foci_problem *p = &t->p, *o = &u.p;
    const int           type = (int)p->dtype;

    memcpy(u.params, t->params, (size_t)plan->n_floats * sizeof *u.params);
    u.len_q = test_alloc((size_t)n, sizeof *u.len_q);
    u.len_k = test_alloc((size_t)n, sizeof *u.len_k);
    for (int s = 0; s < n; s++) {
        const int64_t row = docs[first + s], rows = docs[first + s + 1] - row;

        u.len_q[s] = u.len_k[s] = (int32_t)rows;
        if (t->q) copy_rows(type, t->q, p->q, row, u.q, o->q, s, rows, p->heads, DIM);
        if (t->k)
            copy_rows(type, t->k, p->k, row, u.k, o->k, s, rows, p->kv_heads, DIM);
        if (t->words)
            memcpy(u.words + s * o->len_q, t->words + row,
                   (size_t)rows * sizeof *u.words);
        copy_rows(type, t->v, p->v, row, u.v, o->v, s, rows, p->kv_heads, p->dim_v);
        copy_rows(type, t->g, p->o, row, u.g, o->o, s, rows, p->heads, p->dim_v);
        if (p->dim_x) copy_rows(type, t->x, p->x, row, u.x, o->x, s, rows, 1, p->dim_x);
    }
    return u;
}

/* How far parts may be off: not at all, or by so much of the number and of the whole. */
struct slack {
    double exact, sums; /* results of rows; gradients, which are sums */
};

/* Element c of a row and head of a part that has so many heads. */
static double element(const struct result *r, int part, int64_t len, int64_t batch,
                      int64_t row, int64_t h, int64_t heads, int64_t dim, int64_t c)
{
    if (part == PART_LSE) return r->x[part][(batch * heads + h) * len + row];
    return r->x[part][((batch * len + row) * heads + h) * dim + c];
}

/* Batch entry `batch` of got against document number doc of the packed result. */
static void check_part(const foci_plan *plan, const struct trial *t, const char *what,
                       int part, int64_t heads, int64_t dim, const struct result *got,
                       int64_t len, int64_t batch, int doc, const struct result *want,
                       double slack)
{
    const double size = slack > 0 ? rms(want->x[part], want->n[part]) : 0;
    char         text[96];

    for (int64_t i = 0; i < docs[doc + 1] - docs[doc]; i++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t c = 0; c < dim; c++) {
                const double u = element(got, part, len, batch, i, h, heads, dim, c);
                const double v =
                    element(want, part, LEN, 0, docs[doc] + i, h, heads, dim, c);

                if (u == v || fabs(u - v) <= slack * (fabs(v) + size)) continue;
                snprintf(text, sizeof text, "%s, document %d: %s", what, doc,
                         part_names[part]);
                trial_fail(plan, t, text, (i * heads + h) * dim + c, u, v);
            }
}

static void check(const foci_plan *plan, const struct trial *t, const char *what,
                  const struct result *got, int64_t len, int64_t batch, int doc,
                  const struct result *want, struct slack s)
{
    const struct {
        int     part;
        int64_t heads, dim;
        double  slack;
    } parts[] = {
        { PART_O, t->p.heads, t->p.dim_v, s.exact },
        { PART_LSE, t->p.heads, 1, s.exact },
        { PART_DQ, t->p.heads, DIM, s.sums },
        { PART_DK, t->p.kv_heads, DIM, s.sums },
        { PART_DV, t->p.kv_heads, t->p.dim_v, s.sums },
        { PART_DX, 1, t->p.dim_x, s.sums },
    };

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (want->n[parts[i].part])
            check_part(plan, t, what, parts[i].part, parts[i].heads, parts[i].dim, got,
                       len, batch, doc, want, parts[i].slack);
}

static void check_params(const foci_plan *plan, const struct trial *t, const char *what,
                         const double *got, const struct result *want, double slack)
{
    const double size = rms(want->x[PART_DPARAMS], want->n[PART_DPARAMS]);

    for (int64_t i = 0; i < want->n[PART_DPARAMS]; i++) {
        const double v = want->x[PART_DPARAMS][i];
        if (!(fabs(got[i] - v) <= slack * (fabs(v) + size)))
            trial_fail(plan, t, what, i, got[i], v);
    }
}

/* Sums over features are added up by segments, which another problem has others of. */
static struct slack slack_of(const foci_plan *plan, double slack)
{
    return (struct slack){ trial_is_linear(plan) ? slack : 0, slack };
}

/* Each document by itself, under the plan that packs them; their gradients of
 * parameters add up. */
static void run_alone(const foci_plan *plan, const struct trial *t,
                      const struct result *want, double slack)
{
    double *sum = test_alloc((size_t)plan->n_floats, sizeof *sum);

    for (int doc = 0; doc < SEQS; doc++) {
        struct trial  u = unpacked(t, plan, doc, 1);
        struct result got = trial_run(plan, &u);

        check(plan, t, "alone", &got, LEN, 0, doc, want, (struct slack){ 0, 0 });
        for (int64_t i = 0; i < plan->n_floats; i++)
            sum[i] += got.x[PART_DPARAMS][i];
        result_free(&got);
        trial_free(&u);
    }
    check_params(plan, t, "sum of dparams of documents alone", sum, want, slack);
    free(sum);
}

/* Each document under a plan of its own length, where neither lists nor parameters are
 * of the length that was planned. */
static void run_own(foci_ctx *ctx, const foci_plan *packed, const struct trial *t,
                    const struct result *want, double slack)
{
    for (int doc = 0; doc < SEQS && !packed->p.n_lists; doc++) {
        foci_problem p = problem;

        p.dtype = t->p.dtype;
        p.flags = t->p.flags;
        p.max_docs = 0;
        p.len_q = p.len_k = docs[doc + 1] - docs[doc];
        if (!p.len_q) continue; /* there is no plan without rows */
        foci_plan *plan = trial_plan(ctx, t->spec, &p);
        if (plan && plan->n_floats == packed->n_floats) {
            struct trial  u = unpacked(t, plan, doc, 1);
            struct result got = trial_run(plan, &u);

            check(packed, t, "planned alone", &got, p.len_q, 0, doc, want,
                  slack_of(packed, slack));
            result_free(&got);
            trial_free(&u);
        }
        foci_plan_free(plan);
    }
}

static void run_batch(foci_ctx *ctx, const foci_plan *packed, const struct trial *t,
                      const struct result *want, double slack)
{
    foci_problem p = problem;

    p.dtype = t->p.dtype;
    p.flags = t->p.flags;
    p.batch = SEQS;
    p.max_docs = 0;
    foci_plan    *plan = trial_plan(ctx, t->spec, &p);
    struct trial  u = unpacked(t, plan, 0, SEQS);
    struct result got = trial_run(plan, &u);

    for (int doc = 0; doc < SEQS; doc++)
        check(packed, t, "in a batch", &got, LEN, doc, doc, want,
              slack_of(packed, slack));
    check_params(packed, t, "dparams of a batch", got.x[PART_DPARAMS], want, slack);
    result_free(&got);
    trial_free(&u);
    foci_plan_free(plan);
}

static void run_case(foci_ctx *ctx, const char *spec, foci_dtype dtype, uint32_t flags,
                     uint64_t seed)
{
    foci_problem p = problem;

    p.dtype = dtype;
    p.flags |= flags;
    foci_plan *plan = trial_plan(ctx, spec, &p);
    if (!plan) return;
    const double slack = dtype == FOCI_F32 ? 2e-5 : 0.02;
    struct trial t = trial_make(plan, spec, seed, 0);
    t.docs = test_alloc(SEQS + 1, sizeof *t.docs);
    memcpy(t.docs, docs, sizeof docs);
    for (int s = 0; t.words && s < SEQS; s++)
        for (int32_t i = docs[s]; i < docs[s + 1]; i++) /* some of them long */
            t.words[i] = i == docs[s] ? 0 : t.words[i - 1] + (i % 3 < 2 && i % 70 < 50);
    struct result want = trial_run(plan, &t);

    run_alone(plan, &t, &want, slack);
    run_own(ctx, plan, &t, &want, slack);
    run_batch(ctx, plan, &t, &want, slack);
    result_free(&want);
    trial_free(&t);
    foci_plan_free(plan);
}

static void packed(void **state)
{
    struct levels l = levels_make(1);
    char          spec[SPEC_CAP];

    (void)state;
    for (int i = 0; specs_next(l.ctx[0], i, spec); i++)
        for (uint32_t causal = 0; causal <= FOCI_FLAG_CAUSAL; causal += FOCI_FLAG_CAUSAL)
            run_case(l.ctx[i % l.n], spec, i % 3 == 1 ? FOCI_BF16 : FOCI_F32, causal,
                     (uint64_t)i);
    levels_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(packed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
