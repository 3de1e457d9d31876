/* beside.c -- each mechanism beside another: it gives in a mix the bits it gives
 * alone, and at other heads the same, also those that not every mix can have. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

enum { LEN = 90, BATCH = 2, PER = 2, HEADS = 2 * PER, DIM = 16 };

static const char *const specs[] = {
    "fixed",
    "fixed(left, words=1)",
    "lightconv(width=5, heads=2)",
    "dynconv(width=4)",
    "synthesizer(random, max=100)",
    "synthesizer(dense+vanilla, max=100) sink",
    "linformer(rank=8, share=0)",
    "linformer(rank=3, block=10)",
    "lowrank(rank=4) rope",
    "nystrom(landmarks=8, conv=5)",
    "memformer(slots=3, segment=10)",
    "softmax alibi sink",
    "linear",
    "retention",
};

enum { N_SPECS = sizeof specs / sizeof *specs };

static foci_problem problem_of(int64_t heads, uint32_t flags, foci_dtype dtype)
{
    const foci_layout all = { .batch = LEN * HEADS * DIM,
                              .row = HEADS * DIM,
                              .head = DIM };

    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .dtype = dtype,
                           .batch = BATCH,
                           .heads = heads,
                           .len_q = LEN,
                           .len_k = LEN,
                           .dim_qk = DIM,
                           .dim_x = 6,
                           .q = all,
                           .k = all,
                           .v = all,
                           .o = all,
                           .flags = FOCI_FLAG_TRAIN | flags };
}

/* Where the parameters of a group begin. */
static int64_t params_of(const foci_plan *plan, int group)
{
    for (int i = 0; i < plan->n_params; i++)
        if (plan->params[i].group == group) return plan->params[i].offset;
    return 0;
}

static int64_t n_params_of(const foci_plan *plan, int group)
{
    int64_t n = 0;
    for (int i = 0; i < plan->n_params; i++)
        if (plan->params[i].group == group) n += plan->params[i].count;
    return n;
}

/* A head `h` of got, which has so many, against head `at` of want. */
static void same_head(const foci_plan *plan, const struct trial *t, const char *what,
                      const struct result *got, int64_t heads, int64_t h,
                      const struct result *want, int64_t wants, int64_t at)
{
    static const int parts[] = { PART_O, PART_DQ, PART_DK, PART_DV };

    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        for (int64_t i = 0; i < BATCH * LEN * DIM; i++) {
            const int64_t row = i / DIM, c = i % DIM;
            const double  x = got->x[parts[p]][(row * heads + h) * DIM + c];
            const double  y = want->x[parts[p]][(row * wants + at) * DIM + c];
            char          text[96];
            if (x == y) continue;
            snprintf(text, sizeof text, "%s: %s", what, part_names[parts[p]]);
            trial_fail(plan, t, text, i, x, y);
        }
}

/* Group g of the mix by itself, on its part of the same tensors. */
static void check_alone(foci_ctx *ctx, const foci_plan *mix, const struct trial *t,
                        const struct result *all, int g, const char *spec)
{
    foci_problem p = problem_of(PER, t->p.flags & FOCI_FLAG_CAUSAL, t->p.dtype);
    foci_plan   *plan = test_plan(ctx, spec, &p);
    const size_t skip = (size_t)(g * PER * DIM) * foci_dtype_bytes(p.dtype);
    struct trial own = *t;

    own.p = plan->p;
    own.q = (char *)t->q + skip;
    own.k = (char *)t->k + skip;
    own.v = (char *)t->v + skip;
    own.g = (char *)t->g + skip;
    own.params = t->params + params_of(mix, g);
    assert_int_equal(n_params_of(mix, g), plan->n_floats);
    struct result r = trial_run(plan, &own);

    for (int64_t h = 0; h < PER; h++)
        same_head(mix, t, spec, all, HEADS, g * PER + h, &r, PER, h);
    for (int64_t i = 0; i < plan->n_floats; i++) {
        const double x = all->x[PART_DPARAMS][params_of(mix, g) + i];
        if (x != r.x[PART_DPARAMS][i])
            trial_fail(mix, t, "dparams", i, x, r.x[PART_DPARAMS][i]);
    }
    result_free(&r);
    foci_plan_free(plan);
}

/* A tensor with its two groups of heads swapped. */
static void *swapped(const void *from, size_t size)
{
    const size_t half = PER * DIM * size;
    char        *to = test_alloc(BATCH * LEN, 2 * half);

    for (size_t i = 0; i < BATCH * LEN; i++) {
        memcpy(to + 2 * i * half, (const char *)from + (2 * i + 1) * half, half);
        memcpy(to + (2 * i + 1) * half, (const char *)from + 2 * i * half, half);
    }
    return to;
}

static void check_swapped(foci_ctx *ctx, const foci_plan *mix, const struct trial *t,
                          const struct result *all, const char *spec)
{
    const foci_problem p = problem_of(HEADS, t->p.flags & FOCI_FLAG_CAUSAL, t->p.dtype);
    const size_t       size = foci_dtype_bytes(p.dtype);
    foci_plan         *plan = test_plan(ctx, spec, &p);
    struct trial       own = *t;

    own.p = plan->p;
    own.q = swapped(t->q, size);
    own.k = swapped(t->k, size);
    own.v = swapped(t->v, size);
    own.g = swapped(t->g, size);
    own.params = test_alloc((size_t)plan->n_floats, sizeof *own.params);
    for (int g = 0; g < 2; g++)
        memcpy(own.params + params_of(plan, g), t->params + params_of(mix, 1 - g),
               (size_t)n_params_of(plan, g) * sizeof *own.params);
    struct result r = trial_run(plan, &own);

    for (int64_t h = 0; h < HEADS; h++)
        same_head(mix, t, spec, all, HEADS, h, &r, HEADS, (h + PER) % HEADS);
    result_free(&r);
    free(own.q);
    free(own.k);
    free(own.v);
    free(own.g);
    free(own.params);
    foci_plan_free(plan);
}

static bool can_be(foci_ctx *ctx, const char *spec, uint32_t flags)
{
    const foci_problem p = problem_of(PER, flags, FOCI_F32);
    foci_plan         *plan = trial_plan(ctx, spec, &p);
    foci_plan_free(plan);
    return plan != NULL;
}

static void run_pair(foci_ctx *ctx, const char *left, const char *right, uint32_t flags,
                     foci_dtype dtype)
{
    const foci_problem p = problem_of(HEADS, flags, dtype);
    char               spec[SPEC_CAP], back[SPEC_CAP];

    if (!can_be(ctx, left, flags) || !can_be(ctx, right, flags)) return;
    snprintf(spec, sizeof spec, "2*%s + 2*%s", left, right);
    snprintf(back, sizeof back, "2*%s + 2*%s", right, left);
    foci_plan   *mix = test_plan(ctx, spec, &p);
    struct trial t = trial_make(mix, spec, 2, 0); /* q and k are there */
    if (!t.words) t.words = test_alloc(BATCH * LEN, sizeof *t.words);
    struct result all = trial_run(mix, &t);

    check_alone(ctx, mix, &t, &all, 0, left);
    check_alone(ctx, mix, &t, &all, 1, right);
    check_swapped(ctx, mix, &t, &all, back);
    result_free(&all);
    trial_free(&t);
    foci_plan_free(mix);
}

static void beside(void **state)
{
    struct levels l = levels_make(2);

    (void)state;
    for (int i = 0; i < N_SPECS; i++)
        for (uint32_t causal = 0; causal <= FOCI_FLAG_CAUSAL; causal += FOCI_FLAG_CAUSAL)
            for (int far = 1; far < 3; far++)
                run_pair(l.ctx[i % l.n], specs[i], specs[(i + far) % N_SPECS], causal,
                         (foci_dtype)((i + far) % 3));
    levels_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(beside) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
