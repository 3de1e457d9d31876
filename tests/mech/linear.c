/* linear.c -- sums over features where they are hardest: logs that rise and fall by
 * thousands, divisors that are 0 or cancel, decays of 0 and 1, lengths around a chunk;
 * features that are the same by other words; what is refused. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

static foci_problem problem_of(int64_t n, uint32_t flags)
{
    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .batch = 1,
                           .heads = 2,
                           .kv_heads = 1,
                           .len_q = n,
                           .len_k = n,
                           .dim_qk = 10,
                           .dim_v = 7,
                           .flags = FOCI_FLAG_TRAIN | flags };
}

/* Every kernel in its plainest form. */
static const char *const all[] = {
    "linear",
    "linear(relu)",
    "linear(poly)",
    "linear(taylor)",
    "linear(powers)",
    "linear(cos)",
    "cosformer(length=500)",
    "efficient",
    "identity",
    "retention",
    "retention(norm=sum, decay=0.8)",
    "retention(norm=retnet, content=0)",
    "performer",
    "performer(favor++)",
    "performer(sderf)",
    "performer(aderf)",
    "performer(trig)",
    "performer(hyp)",
    "performer(kernel=gaussian)",
};

enum { N_SPECS = sizeof all / sizeof *all };

/* A trial of its own kind, whose inputs may be changed before it is run. */
struct scene {
    foci_plan   *plan;
    struct trial t;
};

static struct scene scene_make(foci_ctx *ctx, const char *spec, const foci_problem *p,
                               uint64_t seed)
{
    struct scene s = { .plan = trial_plan(ctx, spec, p) };

    if (!s.plan) fail_msg("%s: %s", spec, foci_errmsg(ctx));
    s.t = trial_make(s.plan, spec, seed, TRIAL_FROZEN);
    return s;
}

static void scene_free(struct scene *s)
{
    trial_free(&s->t);
    foci_plan_free(s->plan);
}

/* Engine and judge on it. */
static void scene_check(const struct scene *s)
{
    struct result got = trial_run(s->plan, &s->t);
    struct result want = trial_judge(s->plan, &s->t, false);
    struct result rounded = trial_judge(s->plan, &s->t, true);

    trial_close(s->plan, &s->t, &got, &want, &rounded);
    result_free(&got);
    result_free(&want);
    result_free(&rounded);
}

/* Element by element, x <- a x + b, of row i of n. */
static void change_rows(float *x, int64_t rows, int64_t per_row, double a, double b)
{
    for (int64_t i = 0; i < rows * per_row; i++) {
        const double part = (double)(i / per_row) / (double)max64(1, rows - 1);
        x[i] = (float)((1 + (a - 1) * part) * (double)x[i] + b * part);
    }
}

/* With sanitizers, which see nothing new in it, every other scene. */
static bool left_out(int number) { return test_sanitized() && number % 2; }

static void lengths(void **state)
{
    static const int64_t lens[] = { 1, 2, 3, 7, 17, 64, 65, 129 };
    struct levels        l = levels_make(1);

    (void)state;
    for (int k = 0; k < N_SPECS; k++)
        for (size_t n = 0; n < sizeof lens / sizeof *lens; n++)
            for (uint32_t causal = 0; causal <= FOCI_FLAG_CAUSAL;
                 causal += FOCI_FLAG_CAUSAL) {
                if (left_out(k + (int)n + (causal != 0))) continue;
                const foci_problem p = problem_of(lens[n], causal);
                struct scene       s = scene_make(l.ctx[(k + (int)n) % l.n], all[k], &p,
                                                  (uint64_t)(10 * k) + n);
                scene_check(&s);
                scene_free(&s);
            }
    levels_free(&l);
}

/* Keys that grow, or shrink, along the sequence: to so many times what they were, and by
 * so much.  20 is e^20 in the logs of `efficient`; thousands are more than floats have. */
static void steep(void **state)
{
    static const struct {
        double times, plus;
    } ways[] = { { 1, 20 },    { 1, -20 }, { 1, 2000 },
                 { 1, -2000 }, { 12, 0 },  { 0.01, 0 } };
    static const char *const specs[] = {
        "efficient",
        "performer",
        "performer(favor++)",
        "performer(sderf)",
        "performer(aderf)",
        "performer(hyp)",
        "performer(kernel=gaussian)",
    };
    struct levels l = levels_make(1);

    (void)state;
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            for (uint32_t causal = 0; causal <= FOCI_FLAG_CAUSAL;
                 causal += FOCI_FLAG_CAUSAL) {
                if (test_sanitized() && w != k % (sizeof ways / sizeof *ways)) continue;
                const foci_problem p = problem_of(150, causal);
                struct scene       s =
                    scene_make(l.ctx[(k + w) % (size_t)l.n], specs[k], &p, k + 10 * w);
                change_rows(s.t.k, p.len_k, p.dim_qk, ways[w].times, ways[w].plus);
                scene_check(&s);
                scene_free(&s);
            }
    levels_free(&l);
}

/* Logits of up to 1e4 and more in size. */
static void huge(void **state)
{
    static const char *const specs[] = { "linear",   "linear(relu)", "linear(taylor)",
                                         "identity", "retention",    "efficient",
                                         "performer" };
    struct levels            l = levels_make(1);

    (void)state;
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++)
        for (uint32_t causal = 0; causal <= FOCI_FLAG_CAUSAL;
             causal += FOCI_FLAG_CAUSAL) {
            const foci_problem p = problem_of(130, causal);
            struct scene       s = scene_make(l.ctx[k % (size_t)l.n], specs[k], &p, k);
            float             *q = s.t.q, *key = s.t.k;

            for (int64_t i = 0; i < p.len_q * p.heads * p.dim_qk; i++)
                q[i] *= 60;
            for (int64_t i = 0; i < p.len_k * p.dim_qk; i++)
                key[i] *= 60;
            scene_check(&s);
            scene_free(&s);
        }
    levels_free(&l);
}

/* One key over and over: its values are averaged, or faded. */
static void equal_keys(void **state)
{
    struct levels l = levels_make(1);

    (void)state;
    for (int k = 0; k < N_SPECS; k++)
        for (uint32_t causal = 0; causal <= FOCI_FLAG_CAUSAL;
             causal += FOCI_FLAG_CAUSAL) {
            if (left_out(k + (causal != 0))) continue;
            const foci_problem p = problem_of(100, causal);
            struct scene       s = scene_make(l.ctx[k % l.n], all[k], &p, (uint64_t)k);
            float             *q = s.t.q, *key = s.t.k;

            /* Of one sign, or a kernel may be next to nothing for all keys at once. */
            for (int64_t i = 0; i < p.len_q * p.heads * p.dim_qk; i++)
                q[i] = fabsf(q[i]);
            for (int64_t i = 0; i < p.len_k * p.dim_qk; i++)
                key[i] = fabsf(key[i % p.dim_qk]);
            scene_check(&s);
            scene_free(&s);
        }
    levels_free(&l);
}

/* Rows without a feature in common with any key are empty, to the bit: no output, no
 * gradient. */
static void nothing_to_divide_by(void **state)
{
    static const char *const specs[] = { "linear(relu)", "cosformer(length=500)",
                                         "linear(relu) rope" };
    struct levels            l = levels_make(1);

    (void)state;
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++)
        for (int kind = 0; kind < 4; kind++) {
            foci_problem p = problem_of(90, kind % 2 ? FOCI_FLAG_CAUSAL : 0);
            p.dtype = kind / 2 ? FOCI_BF16 : FOCI_F32;
            struct scene s = scene_make(l.ctx[k % (size_t)l.n], specs[k], &p, k);
            for (int64_t i = 0; i < p.len_k * p.dim_qk; i++)
                ref_store((int)p.dtype, s.t.k, i,
                          -fabs(ref_load((int)p.dtype, s.t.k, i)));
            struct result got = trial_run(s.plan, &s.t);
            for (int part = 0; part < N_PARTS; part++)
                for (int64_t i = 0; i < got.n[part]; i++)
                    if (got.x[part][i] != 0)
                        trial_fail(s.plan, &s.t, part_names[part], i, got.x[part][i], 0);
            result_free(&got);
            scene_free(&s);
        }
    levels_free(&l);
}

/* Kernels of both signs on rows of both: divisors cancel.  What a row is off by is then
 * what its weights add up to in size, sum |a|, times what sums of floats are off by. */
static void both_signs(void **state)
{
    static const char *const specs[] = {
        "linear(poly, power=3)", "linear(powers)",      "linear(cos)",
        "performer(trig)",       "retention(norm=sum)", "linear(taylor, order=3)",
    };
    static const double unit = 0x1p-24, terms = 256; /* features and keys of a chunk */
    struct levels       l = levels_make(1);

    (void)state;
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++)
        for (uint32_t causal = 0; causal <= FOCI_FLAG_CAUSAL;
             causal += FOCI_FLAG_CAUSAL) {
            const foci_problem p = problem_of(100, causal);
            struct scene       s = scene_make(l.ctx[k % (size_t)l.n], specs[k], &p, k);
            const int64_t      rows = p.heads * p.len_q;
            float             *a = test_alloc((size_t)(rows * p.len_k), sizeof *a);
            struct rng         r;

            rng_seed(&r, k, 8);
            for (int64_t i = 0; i < p.len_k * p.dim_qk; i++)
                ((float *)s.t.k)[i] = (float)rng_normal(&r);
            const foci_io io = trial_io(&s.t);
            assert_int_equal(foci_ref_weights(s.plan, &io, a), FOCI_OK);
            struct result got = trial_run(s.plan, &s.t);
            struct result want = trial_judge(s.plan, &s.t, false);
            for (int64_t i = 0; i < got.n[PART_O]; i++) {
                const int64_t row = i / p.dim_v / p.heads, h = i / p.dim_v % p.heads;
                const double  x = got.x[PART_O][i], y = want.x[PART_O][i];
                double        size = 0;
                for (int64_t j = 0; j < p.len_k; j++)
                    size += fabs((double)a[(h * p.len_q + row) * p.len_k + j]);
                if (!(fabs(x - y) <= terms * unit * fmax(1, size) * (4 + fabs(y))))
                    trial_fail(s.plan, &s.t, "o", i, x, y);
            }
            free(a);
            result_free(&got);
            result_free(&want);
            scene_free(&s);
        }
    levels_free(&l);
}

/* Rows divided by their sum know nothing of their scale, to the bit: were queries rounded
 * with it, sums next to nothing would have another sign. */
static void scale_cancels(void **state)
{
    struct levels l = levels_make(1);

    (void)state;
    for (int kind = 0; kind < 4 * l.n; kind++) {
        foci_problem p = problem_of(150, kind % 2 ? FOCI_FLAG_CAUSAL : 0);
        p.dtype = kind / 2 % 2 ? FOCI_BF16 : FOCI_F32;
        p.dim_qk = 40;
        foci_ctx     *ctx = l.ctx[kind / 4];
        struct scene  s = scene_make(ctx, "retention(norm=sum) scale(0.3)", &p, 3);
        foci_plan    *other = trial_plan(ctx, "retention(norm=sum) scale(-1e-30)", &p);
        struct result got = trial_run(s.plan, &s.t), want = trial_run(other, &s.t);

        assert_true(got.n[PART_O] > 0 && got.n[PART_DQ] > 0);
        for (int part = PART_O; part <= PART_DV; part++)
            for (int64_t i = 0; i < got.n[part]; i++)
                if (part != PART_LSE && got.x[part][i] != want.x[part][i])
                    trial_fail(s.plan, &s.t, part_names[part], i, got.x[part][i],
                               want.x[part][i]);
        result_free(&got);
        result_free(&want);
        foci_plan_free(other);
        scene_free(&s);
    }
    levels_free(&l);
}

/* Decays of 0 and 1, as arguments and as what is learned becomes: theta far out. */
static void decays(void **state)
{
    static const struct {
        const char *spec;
        float       theta;
    } cases[] = {
        { "retention(learn=1)", -1e4F },
        { "retention(learn=1)", 1e4F },
        { "retention(learn=1)", -90 },
        { "retention(learn=1) rope", -1e4F },
        { "retention(learn=1, norm=sum)", -1e4F },
        { "retention(learn=1, norm=sum)", 1e4F },
        { "retention(learn=1, norm=retnet)", -1e4F },
        { "retention(learn=1, norm=retnet)", 1e4F },
        { "retention(learn=1, content=0)", -1e4F },
        { "retention(learn=1, content=0, norm=sum)", 1e4F },
        { "retention(decay=1)", NAN },
        { "retention(decay=1e-30)", NAN },
        { "retention(decay=1e-30, norm=sum)", NAN },
    };
    struct levels l = levels_make(1);

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (uint32_t causal = 0; causal <= FOCI_FLAG_CAUSAL;
             causal += FOCI_FLAG_CAUSAL) {
            const foci_problem p = problem_of(130, causal);
            struct scene s = scene_make(l.ctx[k % (size_t)l.n], cases[k].spec, &p, k);
            for (int64_t i = 0; i < s.plan->n_floats; i++)
                s.t.params[i] = cases[k].theta;
            scene_check(&s);
            scene_free(&s);
        }
    levels_free(&l);
}

/*
 * The same features by other words
 */

static float *tensor_of(const struct scene *s, const char *name)
{
    for (int i = 0; i < s->plan->n_params; i++)
        if (strcmp(s->plan->params[i].name, name) == 0)
            return s->t.params + s->plan->params[i].offset;
    fail_msg("%s has no tensor %s", s->t.spec, name);
    return NULL;
}

/* Outputs and gradients of q, k and v of two scenes with equal inputs. */
static void same_results(const struct scene *s, const struct scene *like)
{
    struct result got = trial_run(s->plan, &s->t),
                  want = trial_run(like->plan, &like->t);

    for (int part = 0; part < PART_DX; part++) {
        const double size = rms(want.x[part], want.n[part]);
        for (int64_t i = 0; i < want.n[part]; i++) {
            const double x = got.x[part][i], y = want.x[part][i];
            if (!(fabs(x - y) <= 1e-4 * (size + fabs(y))))
                trial_fail(s->plan, &s->t, part_names[part], i, x, y);
        }
    }
    result_free(&got);
    result_free(&want);
}

/* hyp has of every direction its opposite. */
static void opposites(void **state)
{
    enum { ROWS = 6, DIM = 10, HEADS = 2 };
    const foci_problem p = problem_of(100, FOCI_FLAG_CAUSAL);
    foci_ctx          *ctx = test_ctx(NULL, 1);
    struct scene       s = scene_make(ctx, "performer(hyp, features=6)", &p, 1);
    struct scene       like = scene_make(ctx, "performer(features=12)", &p, 1);
    const float       *w = tensor_of(&s, "omega");
    float             *both = tensor_of(&like, "omega");

    (void)state;
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < 2 * ROWS * DIM; i++) {
            const float x = w[h * ROWS * DIM + i % (ROWS * DIM)];
            both[2 * h * ROWS * DIM + i] = i < ROWS * DIM ? x : -x;
        }
    same_results(&s, &like);
    scene_free(&s);
    scene_free(&like);
    foci_ctx_free(ctx);
}

/* Statistics that say a, and nothing else. */
static void given_statistics(void **state)
{
    enum { DIM = 10, HEADS = 2 };
    static const char *const kinds[] = { "performer(favor++)", "performer(sderf)",
                                         "performer(aderf)" };
    static const char *const names[] = { "Bx", "By", "Cx", "Cy" };
    const float              a = -0.3F, b = sqrtf(1 - 4 * a);
    foci_ctx                *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (uint32_t causal = 0; causal <= FOCI_FLAG_CAUSAL;
             causal += FOCI_FLAG_CAUSAL) {
            const foci_problem p = problem_of(100, causal);
            struct scene       s = scene_make(ctx, kinds[k], &p, 1);
            struct scene like = scene_make(ctx, "performer(favor++, a=-0.3)", &p, 1);

            memcpy(tensor_of(&s, "omega"), tensor_of(&like, "omega"),
                   (size_t)(HEADS * 2 * DIM * DIM) * sizeof(float));
            for (int i = 0; i < HEADS * DIM; i++)
                tensor_of(&s, "A")[i] = a;
            for (int t = 0; k && t < 4; t++)
                for (int i = 0; i < HEADS * DIM * DIM; i++)
                    tensor_of(&s, names[t])[i] = i % (DIM * DIM) % (DIM + 1) ? 0
                                                 : t < 2                     ? b
                                                                             : -0.5F;
            same_results(&s, &like);
            scene_free(&s);
            scene_free(&like);
        }
    foci_ctx_free(ctx);
}

/* What q and k say of themselves is what calibrating on them says, as floats. */
static void own_statistics(void **state)
{
    static const char *const specs[] = { "performer(favor++)", "performer(sderf)",
                                         "performer(aderf)" };
    foci_ctx                *ctx = test_ctx(NULL, 1);
    foci_problem             p = problem_of(100, 0);

    (void)state;
    p.heads = 1;
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
        struct scene s = scene_make(ctx, specs[k], &p, 4);
        struct scene like = scene_make(ctx, specs[k], &p, 4);

        assert_true(isfinite(tensor_of(&like, "A")[0]) != 0);
        for (int64_t i = 2 * p.dim_qk * p.dim_qk; i < s.plan->n_floats; i++)
            s.t.params[i] = NAN;
        same_results(&s, &like);
        scene_free(&s);
        scene_free(&like);
    }
    foci_ctx_free(ctx);
}

/*
 * Refusals
 */

static void plans(void **state)
{
    static const struct {
        const char *spec;
        uint32_t    flags;
        double      dropout;
        const char *why;
    } cases[] = {
        { "linear", FOCI_FLAG_MASK, 0, "cannot have a mask" },
        { "efficient", FOCI_FLAG_BIAS, 0, "cannot have a bias" },
        { "performer", 0, 0.1, "cannot have dropout" },
        { "linear scale(2)", 0, 0, "not scaled" },
        { "performer scale(-1)", 0, 0, "above 0" },
        { "linear(poly) rope", 0, 0, "rotated" },
        { "efficient rope", 0, 0, "own sum" },
        { "identity temper", 0, 0, "never form" },
        { "cosformer", FOCI_FLAG_CAUSAL, 0, "needs length" },
        { "cosformer(length=20)", 0, 0, "less than" },
        { "linear(taylor, order=8)", 0, 0, "features" },
    };
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        foci_problem p = problem_of(30, cases[i].flags);
        foci_plan   *plan;
        p.dim_qk = 16;
        p.dropout = cases[i].dropout;
        assert_int_equal(foci_plan_create(ctx, cases[i].spec, &p, &plan),
                         FOCI_ERR_UNSUP);
        if (!strstr(foci_errmsg(ctx), cases[i].why))
            fail_msg("%s: \"%s\" says nothing of \"%s\"", cases[i].spec,
                     foci_errmsg(ctx), cases[i].why);
    }
    foci_ctx_free(ctx);
}

/* What an execution, and the judge, say to io, and that the check says the same. */
static void refused(const struct scene *s, foci_io *io, const char *why)
{
    char text[256] = "";

    assert_int_equal(foci_forward(s->plan, io), FOCI_ERR_ARG);
    assert_int_equal(foci_ref_forward(s->plan, io), FOCI_ERR_ARG);
    assert_int_equal(foci_io_check(s->plan, io, NULL, text, sizeof text), FOCI_ERR_ARG);
    if (!strstr(text, why)) fail_msg("\"%s\" says nothing of \"%s\"", text, why);
}

static void executions(void **state)
{
    const foci_problem p = problem_of(30, FOCI_FLAG_CAUSAL);
    foci_ctx          *ctx = test_ctx(NULL, 1);
    struct scene       s = scene_make(ctx, "performer(sderf)", &p, 1);
    foci_io            io = trial_io(&s.t);
    float             *o = test_alloc((size_t)(p.len_q * p.heads * p.dim_v), sizeof *o);
    float             *lse = test_alloc((size_t)(p.len_q * p.heads), sizeof *lse);
    float             *a = tensor_of(&s, "A");

    (void)state;
    io.o = o;
    io.work = test_alloc(foci_plan_work_bytes(s.plan), 1);
    io.saved = test_alloc(foci_plan_saved_bytes(s.plan), 1);
    assert_int_equal(foci_forward(s.plan, &io), FOCI_OK);
    io.lse = lse;
    refused(&s, &io, "lse");
    io.lse = NULL;
    a[1] = NAN;
    refused(&s, &io, "NaN");
    for (int64_t i = a - s.t.params; i < s.plan->n_floats; i++)
        s.t.params[i] = NAN;
    refused(&s, &io, "calibrate");
    assert_int_equal(foci_params_calibrate(s.plan, &io, s.t.params), FOCI_OK);
    assert_int_equal(foci_forward(s.plan, &io), FOCI_OK);
    free(io.work);
    free(io.saved);
    free(o);
    free(lse);
    scene_free(&s);
    foci_ctx_free(ctx);
}

/*
 * Chunks that one kernel may do: features element by element, widths multiples of 32
 */

static const char *const whole_specs[] = {
    "linear",          "linear(relu)", "linear(normalise=0)",
    "linear(eps=0.5)", "identity",     "identity(norm=n)"
};

static const struct whole_case {
    int64_t  heads, kv_heads, len_q, len_k, d, dv;
    uint32_t flags;
    unsigned gives;
} whole_cases[] = {
    { 8, 8, 200, 200, 64, 64, FOCI_FLAG_CAUSAL, 0 },
    { 2, 2, 300, 300, 64, 32, FOCI_FLAG_CAUSAL, 0 },
    { 2, 1, 130, 130, 32, 96, FOCI_FLAG_CAUSAL, 0 },
    { 2, 2, 128, 128, 128, 128, 0, 0 },
    { 1, 1, 70, 330, 64, 64, FOCI_FLAG_CAUSAL, 0 },
    { 1, 1, 200, 136, 32, 32, FOCI_FLAG_CAUSAL, 0 },
    { 4, 4, 400, 400, 32, 32, FOCI_FLAG_CAUSAL, TRIAL_DOCS },
    { 2, 2, 260, 260, 64, 64, FOCI_FLAG_CAUSAL, TRIAL_LENS },
};

static foci_problem whole_problem(const struct whole_case *x)
{
    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .dtype = FOCI_BF16,
                           .batch = x->gives & TRIAL_LENS ? 2 : 1,
                           .heads = x->heads,
                           .kv_heads = x->kv_heads,
                           .len_q = x->len_q,
                           .len_k = x->len_k,
                           .dim_qk = x->d,
                           .dim_v = x->dv,
                           .max_docs = x->gives & TRIAL_DOCS ? 3 : 0,
                           .flags = FOCI_FLAG_TRAIN | x->flags };
}

/* Against the judge, and with three threads the same. */
static void whole_chunks(void **state)
{
    struct levels one = levels_make(1), three = levels_make(3);

    (void)state;
    for (size_t k = 0; k < sizeof whole_specs / sizeof *whole_specs; k++)
        for (size_t i = 0; i < sizeof whole_cases / sizeof *whole_cases; i++) {
            const foci_problem p = whole_problem(&whole_cases[i]);
            const int          level = one.n - 1 - (int)((i + k) % 2);
            struct scene s = { .plan = trial_plan(one.ctx[level], whole_specs[k], &p) };
            foci_plan   *many = trial_plan(three.ctx[level], whole_specs[k], &p);

            if (!s.plan || !many) fail_msg("%s is refused", whole_specs[k]);
            s.t = trial_make(s.plan, whole_specs[k], 10 * k + i, whole_cases[i].gives);
            scene_check(&s);
            struct result want = trial_run(s.plan, &s.t), got = trial_run(many, &s.t);
            trial_equal(many, &s.t, "3 threads", &got, &want);
            result_free(&want);
            result_free(&got);
            foci_plan_free(many);
            scene_free(&s);
        }
    levels_free(&one);
    levels_free(&three);
}

/* A key that is NaN is felt from its row on, a query in its own. */
static void whole_spoilt(void **state)
{
    struct levels l = levels_make(1);

    (void)state;
    for (int key = 0; key < 2; key++) {
        const int64_t      n = 256, at = 100, d = 64;
        const foci_problem p = whole_problem(
            &(struct whole_case){ 1, 1, n, n, d, d, FOCI_FLAG_CAUSAL, 0 });
        struct scene  s = scene_make(l.ctx[l.n - 1], "linear", &p, 7);
        struct result want = trial_run(s.plan, &s.t);

        ref_store(FOCI_BF16, key ? s.t.k : s.t.q,
                  trial_at(key ? &s.t.p.k : &s.t.p.q, 0, at, 0, 3), (double)NAN);
        struct result got = trial_run(s.plan, &s.t);
        for (int64_t i = 0; i < n * d; i++) {
            const int64_t row = i / d;
            const bool    felt = key ? row >= at : row == at;
            for (int part = PART_O; part <= PART_DQ; part += PART_DQ - PART_O) {
                const double x = got.x[part][i], y = want.x[part][i];
                if (felt ? !isnan(x) : !(fabs(x - y) <= 0.02 * (1 + fabs(y))))
                    fail_msg("row %d: %g, %g without NaN", (int)row, x, y);
            }
        }
        result_free(&want);
        result_free(&got);
        scene_free(&s);
    }
    levels_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths),
        cmocka_unit_test(steep),
        cmocka_unit_test(huge),
        cmocka_unit_test(equal_keys),
        cmocka_unit_test(nothing_to_divide_by),
        cmocka_unit_test(both_signs),
        cmocka_unit_test(scale_cancels),
        cmocka_unit_test(decays),
        cmocka_unit_test(opposites),
        cmocka_unit_test(given_statistics),
        cmocka_unit_test(own_statistics),
        cmocka_unit_test(plans),
        cmocka_unit_test(executions),
        cmocka_unit_test(whole_chunks),
        cmocka_unit_test(whole_spoilt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
