/* given.c -- what mechanisms become when their tensors, or words, are given: their parents;
 * and what is refused of words, lengths, ranks and widths. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

enum { N = 70, DIM = 16 };

static foci_problem problem_of(int64_t n, uint32_t flags, foci_dtype dtype)
{
    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .dtype = dtype,
                           .batch = 2,
                           .heads = 2,
                           .len_q = n,
                           .len_k = n,
                           .dim_qk = DIM,
                           .dim_v = 8,
                           .flags = FOCI_FLAG_TRAIN | flags };
}

static void near(const foci_plan *plan, const struct trial *t, const char *what,
                 const struct result *got, const struct result *want, double tolerance)
{
    static const int parts[] = { PART_O, PART_DQ, PART_DK, PART_DV };

    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        const int    part = parts[p];
        const double size = rms(want->x[part], want->n[part]);
        char         text[96];
        snprintf(text, sizeof text, "%s: %s", what, part_names[part]);
        for (int64_t i = 0; i < want->n[part]; i++)
            if (!(fabs(got->x[part][i] - want->x[part][i]) <= tolerance * size))
                trial_fail(plan, t, text, i, got->x[part][i], want->x[part][i]);
    }
}

/* Sets the parameters of a trial. */
typedef void (*setter)(const foci_plan *plan, struct trial *t);

/* `left` with parameters set is `right`, by the judge and by the engine. */
static void same_as(foci_ctx *ctx, const char *left, setter set, const char *right,
                    const foci_problem *p, double judged, double engine)
{
    foci_plan *a = test_plan(ctx, left, p), *b = test_plan(ctx, right, p);
    /* The left one has what both read, or more. */
    struct trial t = trial_make(a, left, 4, 0);
    if (set) set(a, &t);
    struct trial other = t;
    other.p = b->p;
    struct result got = trial_judge(a, &t, false), run = trial_run(a, &t);
    struct result want = trial_judge(b, &other, false);

    near(a, &t, "the judge", &got, &want, judged);
    near(a, &t, "the engine", &run, &want, engine);
    result_free(&got);
    result_free(&run);
    result_free(&want);
    trial_free(&t);
    foci_plan_free(a);
    foci_plan_free(b);
}

/* Every matrix the unit matrix, and every number 1. */
static void set_units(const foci_plan *plan, struct trial *t)
{
    for (int i = 0; i < plan->n_params; i++) {
        const struct param *p = &plan->params[i];
        const int64_t       cols = p->n_dims > 2 ? p->shape[2] : 1;
        const int64_t       rows = p->n_dims > 2 ? p->shape[1] : 1;
        for (int64_t e = 0; e < p->count; e++)
            t->params[p->offset + e] = e / cols % rows == e % cols;
    }
}

static void mixtures(void **state)
{
    struct levels l = levels_make(2);

    (void)state;
    for (int i = 0; i < 2 * l.n; i++) {
        const foci_dtype   dtype = i / l.n ? FOCI_BF16 : FOCI_F32;
        const double       far = dtype == FOCI_F32 ? 1e-4 : 0.1;
        const foci_problem p = problem_of(N, 0, dtype);
        const foci_problem causal = problem_of(N, FOCI_FLAG_CAUSAL, dtype);
        foci_ctx          *ctx = l.ctx[i % l.n];

        same_as(ctx, "linformer(rank=70)", set_units, "softmax", &p, 1e-11, far);
        same_as(ctx, "linformer(rank=70, share=0) temper", set_units, "softmax", &p,
                1e-11, far);
        same_as(ctx, "linformer(rank=16, block=16)", set_units, "softmax", &causal,
                1e-11, far);
        same_as(ctx, "linformer(rank=1, block=1, share=0)", set_units, "softmax",
                &causal, 1e-11, far);
        same_as(ctx, "lowrank(rank=16)", set_units, "softmax", &p, 1e-11, far);
        same_as(ctx, "lowrank(rank=16) rope", set_units, "softmax rope", &causal, 1e-11,
                far);
    }
    levels_free(&l);
}

/* An inverse of the weights themselves; in floats it is as far off as they are near to
 * having none. */
static void landmarks(void **state)
{
    struct levels l = levels_make(2);

    (void)state;
    for (int i = 0; i < l.n; i++) {
        const foci_problem p = problem_of(24, 0, FOCI_F32);
        same_as(l.ctx[i], "nystrom(landmarks=24, iters=0)", NULL, "softmax", &p, 1e-7,
                0.02);
        same_as(l.ctx[i], "nystrom(landmarks=4096, iters=0)", NULL, "softmax", &p, 1e-7,
                0.02);
    }
    levels_free(&l);
}

/* One token a word. */
static void set_tokens(const foci_plan *plan, struct trial *t)
{
    (void)plan;
    for (int64_t i = 0; i < t->p.batch * t->p.len_q; i++)
        t->words[i] = (int32_t)(i % t->p.len_q);
}

static void tokens(void **state)
{
    static const char *const patterns[] = { "current", "previous", "next", "left",
                                            "right",   "end",      "start" };
    struct levels            l = levels_make(2);

    (void)state;
    for (size_t i = 0; i < 4 * sizeof patterns / sizeof *patterns; i++) {
        const foci_problem p =
            problem_of(i % 3 ? 131 : 7, i % 2 ? FOCI_FLAG_CAUSAL : 0, FOCI_F32);
        const char *empty = i / 2 % 2 ? "self" : "zero";
        char        words[SPEC_CAP], plain[SPEC_CAP];

        snprintf(words, sizeof words, "fixed(%s, words=1, empty=%s)", patterns[i / 4],
                 empty);
        snprintf(plain, sizeof plain, "fixed(%s, empty=%s)", patterns[i / 4], empty);
        same_as(l.ctx[i % (size_t)l.n], words, set_tokens, plain, &p, 1e-12, 1e-6);
    }
    levels_free(&l);
}

/* A convolution of one tap is its values. */
static void one_tap(void **state)
{
    static const char *const specs[] = { "lightconv(width=1)",
                                         "dynconv(width=1, heads=2)" };
    struct levels            l = levels_make(1);

    (void)state;
    for (int i = 0; i < 4 * l.n; i++) {
        const foci_problem p =
            problem_of(N, i / 2 % 2 ? FOCI_FLAG_CAUSAL : 0, (foci_dtype)(i % 3));
        foci_plan    *plan = trial_plan(l.ctx[i % l.n], specs[i % 2], &p);
        struct trial  t = trial_make(plan, specs[i % 2], 1, 0);
        struct result r = trial_run(plan, &t);

        for (int64_t e = 0; e < r.n[PART_O]; e++) {
            const double v = ref_load((int)p.dtype, t.v, e);
            const double g = ref_load((int)p.dtype, t.g, e);
            if (r.x[PART_O][e] != v) trial_fail(plan, &t, "o", e, r.x[PART_O][e], v);
            if (r.x[PART_DV][e] != g) trial_fail(plan, &t, "dv", e, r.x[PART_DV][e], g);
        }
        result_free(&r);
        trial_free(&t);
        foci_plan_free(plan);
    }
    levels_free(&l);
}

/* Logits that are all 0 make means, causal ones running means. */
static void flat(void **state)
{
    static const char *const specs[] = { "synthesizer(random, max=80)",
                                         "synthesizer(fixed_random, max=80)",
                                         "synthesizer(dense, max=80)",
                                         "synthesizer(fdense, max=80)",
                                         "synthesizer(frandom, max=80)" };
    struct levels            l = levels_make(1);

    (void)state;
    for (size_t i = 0; i < 2 * sizeof specs / sizeof *specs; i++) {
        const bool         causal = i % 2;
        const foci_problem p = problem_of(N, causal ? FOCI_FLAG_CAUSAL : 0, FOCI_F32);
        foci_plan         *plan = trial_plan(l.ctx[i % (size_t)l.n], specs[i / 2], &p);
        struct trial       t = trial_make(plan, specs[i / 2], 1, 0);
        memset(t.params, 0, (size_t)plan->n_floats * sizeof *t.params);
        struct result r = trial_run(plan, &t);

        for (int64_t e = 0; e < r.n[PART_O]; e++) {
            const int64_t per = p.heads * p.dim_v, row = e / per % N;
            const int64_t first = e - row * per, n = causal ? row + 1 : N;
            double        sum = 0;
            for (int64_t j = 0; j < n; j++)
                sum += ref_load(FOCI_F32, t.v, first + j * per);
            if (!(fabs(r.x[PART_O][e] - sum / (double)n) <= 1e-5))
                trial_fail(plan, &t, "mean", e, r.x[PART_O][e], sum / (double)n);
        }
        result_free(&r);
        trial_free(&t);
        foci_plan_free(plan);
    }
    levels_free(&l);
}

/*
 * Refusals
 */

static void planning(void **state)
{
    static const struct {
        const char *spec;
        uint32_t    flags;
        const char *says;
    } cases[] = {
        { "synthesizer(random, max=69)", 0, "max=69 is less than the 70 tokens" },
        { "synthesizer(dense, max=69)", FOCI_FLAG_CAUSAL, "max=69 is less than the 70" },
        { "synthesizer(random)", FOCI_FLAG_CAUSAL, "a causal problem needs max" },
        { "synthesizer(random) temper", 0, "do not come from queries and keys" },
        { "synthesizer(random) rope", 0, "do not come from queries and keys" },
        { "synthesizer(frandom) logn", 0, "do not come from queries and keys" },
        { "linformer(rank=71)", 0, "rank=71 is more than the 70 keys" },
        { "linformer(rank=9, block=8)", FOCI_FLAG_CAUSAL,
          "rank=9 is more than the 8 keys" },
        { "linformer", FOCI_FLAG_CAUSAL, "cannot be causal" },
        { "linformer(rank=2, block=8)", 0, "block= is for causal problems" },
        { "linformer alibi", 0, "a slot stands for many keys" },
        { "lowrank(rank=17)", 0, "rank=17 is more than the 16 elements" },
        { "lowrank(rank=3) rope", 0, "the width of q and k is odd" },
        { "lowrank shaw", 0, "projected to another width" },
        { "lightconv(heads=3)", 0, "heads=3 does not divide the value width 8" },
        { "dynconv(heads=16)", 0, "heads=16 does not divide the value width 8" },
        { "lightconv scale(2)", 0, "there are no logits to change" },
        { "memformer", 0, "keys have 16, values 8" },
        { "nystrom", FOCI_FLAG_CAUSAL, "cannot be causal: landmarks are means" },
        { "nystrom sink", 0, "only the scale can be changed" },
        { "fixed temper", 0, "there are no logits to change" },
        { "fixed", FOCI_FLAG_MASK, "cannot have a mask" },
        { "nystrom", FOCI_FLAG_BIAS, "cannot have a bias" },
    };
    foci_ctx *ctx = test_ctx("portable", 1);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        foci_problem p = problem_of(N, cases[i].flags, FOCI_F32);
        foci_plan   *plan;
        p.dim_x = 4;
        assert_int_equal(foci_plan_create(ctx, cases[i].spec, &p, &plan),
                         FOCI_ERR_UNSUP);
        if (!strstr(foci_errmsg(ctx), cases[i].says))
            fail_msg("%s: %s; expected: %s", cases[i].spec, foci_errmsg(ctx),
                     cases[i].says);
    }
    foci_ctx_free(ctx);
}

/* Rows that are their positions: as many queries as keys, planned and given. */
static void crossing(void **state)
{
    static const char *const specs[] = { "fixed",       "lightconv", "dynconv",
                                         "synthesizer", "memformer", "nystrom(conv=3)" };
    foci_ctx                *ctx = test_ctx("portable", 1);
    const int32_t            len_q[2] = { 3, N }, len_k[2] = { 4, N };

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        foci_problem p = problem_of(N, 0, FOCI_F32);
        foci_plan   *none;
        char         text[160] = "";

        p.dim_x = 4;
        p.dim_v = DIM;
        foci_plan   *plan = test_plan(ctx, specs[i], &p);
        struct trial t = trial_make(plan, specs[i], 0, 0);
        foci_io      io = trial_io(&t);
        io.o = t.g;
        io.work = test_alloc(foci_plan_work_bytes(plan), 1);
        io.saved = test_alloc(foci_plan_saved_bytes(plan), 1);
        io.len_q = len_q;
        io.len_k = len_k;
        assert_int_equal(foci_io_check(plan, &io, NULL, text, sizeof text),
                         FOCI_ERR_ARG);
        assert_non_null(strstr(text, "3 queries and 4 keys"));
        io.len_k = len_q;
        assert_int_equal(foci_io_check(plan, &io, NULL, text, sizeof text), FOCI_OK);
        p.len_q = N - 1;
        assert_int_equal(foci_plan_create(ctx, specs[i], &p, &none), FOCI_ERR_UNSUP);
        assert_non_null(strstr(foci_errmsg(ctx), "as many queries as keys"));
        free(io.work);
        free(io.saved);
        trial_free(&t);
        foci_plan_free(plan);
    }
    foci_ctx_free(ctx);
}

/* Words start at 0 and never skip or go back; those beyond a length are not read.  The
 * judge says the same. */
static void words(void **state)
{
    static const struct {
        int32_t     words[10]; /* of two sequences of 5 */
        int32_t     len;
        const char *says; /* NULL: they may be */
    } cases[] = {
        { { 0, 0, 1, 2, 2, 0, 1, 2, 3, 4 }, 5, NULL },
        { { 1, 1, 1, 2, 2, 0, 1, 2, 3, 4 }, 5, "token 0 of sequence 0 is in word 1" },
        { { -1, 0, 1, 2, 2, 0, 1, 2, 3, 4 }, 5, "token 0 of sequence 0 is in word -1" },
        { { 0, 0, 1, 2, 2, 3, 3, 3, 3, 3 }, 5, "token 0 of sequence 1 is in word 3" },
        { { 0, 2, 3, 3, 3, 0, 0, 0, 0, 0 }, 5, "token 1 of sequence 0 is in word 2" },
        { { 0, 1, 2, 2, 1, 0, 0, 0, 0, 0 }, 5, "token 4 of sequence 0 is in word 1" },
        { { 0, 1, 2, 2, 1, 0, 0, 0, 0, 0 }, 4, NULL },
        { { 0, 0, 1, 9, 9, 0, 1, 2, -3, 4 }, 3, NULL },
        { { 0, 0, 1, 9, 9, 0, 1, 3, -3, 4 }, 3, "token 2 of sequence 1 is in word 3" },
    };
    foci_ctx          *ctx = test_ctx("portable", 1);
    const foci_problem p = problem_of(5, 0, FOCI_F32);
    foci_plan         *plan = test_plan(ctx, "fixed(words=1)", &p);
    struct trial       t = trial_make(plan, "fixed(words=1)", 1, 0);
    foci_io            io = trial_io(&t);

    (void)state;
    io.o = t.g;
    io.work = test_alloc(foci_plan_work_bytes(plan), 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int32_t     len[2] = { cases[i].len, cases[i].len };
        const foci_status want = cases[i].says ? FOCI_ERR_ARG : FOCI_OK;
        char              text[256] = "";

        io.words = cases[i].words;
        io.len_q = io.len_k = len;
        assert_int_equal(foci_io_check(plan, &io, NULL, text, sizeof text), want);
        if (cases[i].says) assert_non_null(strstr(text, cases[i].says));
        assert_int_equal(foci_forward(plan, &io), want);
        assert_int_equal(foci_ref_forward(plan, &io), want);
    }
    char text[256] = "";
    io.words = NULL;
    assert_int_equal(foci_io_check(plan, &io, NULL, text, sizeof text), FOCI_ERR_ARG);
    assert_non_null(strstr(text, "io.words is NULL"));
    free(io.work);
    trial_free(&t);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

/* Only logits have a log of their sum; one group without is enough. */
static void no_lse(void **state)
{
    static const char *const specs[] = { "fixed", "lightconv", "nystrom", "memformer",
                                         "1*softmax + 1*fixed" };
    foci_ctx                *ctx = test_ctx("portable", 1);
    foci_problem             p = problem_of(9, 0, FOCI_F32);
    float                    lse[4 * 9];

    (void)state;
    p.dim_v = DIM;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        foci_plan   *plan = test_plan(ctx, specs[i], &p);
        struct trial t = trial_make(plan, specs[i], 0, 0);
        foci_io      io = trial_io(&t);
        char         text[256] = "";

        io.o = t.g;
        io.work = test_alloc(foci_plan_work_bytes(plan), 1);
        io.saved = test_alloc(foci_plan_saved_bytes(plan), 1);
        assert_int_equal(foci_io_check(plan, &io, NULL, text, sizeof text), FOCI_OK);
        io.lse = lse;
        assert_int_equal(foci_io_check(plan, &io, NULL, text, sizeof text),
                         FOCI_ERR_ARG);
        assert_non_null(strstr(text, "lse"));
        free(io.work);
        free(io.saved);
        trial_free(&t);
        foci_plan_free(plan);
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixtures), cmocka_unit_test(landmarks),
        cmocka_unit_test(tokens),   cmocka_unit_test(one_tap),
        cmocka_unit_test(flat),     cmocka_unit_test(planning),
        cmocka_unit_test(crossing), cmocka_unit_test(words),
        cmocka_unit_test(no_lse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
