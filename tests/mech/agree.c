/* agree.c -- engines agree with the judge: every spec, on problems of every kind, in
 * every type, at every CPU level, forward and backward. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

/* Spread out the rows of every tensor, heads outermost. */
enum { STRIDED = 1 << 8 };

static const struct kind {
    foci_problem p;
    unsigned     gives; /* TRIAL_ bits, STRIDED */
} kinds[] = {
/* batch, heads, key heads, queries, keys, widths, and what else there is */
#define P(b, h, kv, n, m, d, e, ...)                                                   \
    {                                                                                  \
        FOCI_SIZED(foci_problem), .batch = b, .heads = h, .kv_heads = kv, .len_q = n,  \
                                  .len_k = m, .dim_qk = d, .dim_v = e, __VA_ARGS__     \
    }
    { .p = P(1, 1, 1, 1, 1, 1, 1, .flags = 0) },
    { .p = P(1, 1, 1, 2, 2, 5, 3, .flags = 0) },
    { .p = P(1, 1, 1, 3, 3, 8, 1, .flags = FOCI_FLAG_CAUSAL) },
    { .p = P(1, 1, 1, 7, 7, 5, 72, .flags = 0) },
    { .p = P(2, 2, 2, 17, 17, 16, 8, .flags = FOCI_FLAG_CAUSAL) },
    { .p = P(1, 1, 1, 63, 63, 64, 64, .flags = FOCI_FLAG_CAUSAL) },
    { .p = P(1, 1, 1, 64, 64, 32, 48, .flags = 0) },
    { .p = P(1, 1, 1, 65, 65, 72, 80, .flags = 0) },
    { .p = P(1, 4, 2, 127, 127, 24, 40, .flags = FOCI_FLAG_CAUSAL) },
    { .p = P(1, 2, 1, 129, 129, 16, 16, .flags = 0) },
    { .p = P(1, 1, 1, 200, 200, 16, 16, .flags = FOCI_FLAG_CAUSAL) },
    { .p = P(1, 1, 1, 330, 330, 8, 8, .flags = FOCI_FLAG_CAUSAL) },
    { .p = P(1, 2, 1, 17, 200, 16, 5, .flags = 0) },
    { .p = P(1, 2, 1, 20, 1100, 8, 5, .flags = 0) },
    { .p = P(1, 2, 2, 17, 200, 8, 8, .flags = FOCI_FLAG_CAUSAL) },
    { .p = P(1, 1, 1, 1, 129, 64, 64, .flags = FOCI_FLAG_CAUSAL) },
    { .p = P(1, 1, 1, 200, 17, 5, 16, .flags = FOCI_FLAG_CAUSAL) },
    { .p = P(1, 1, 1, 129, 64, 16, 160, .flags = 0) },
    { .p = P(1, 1, 1, 65, 70, 512, 1, .flags = FOCI_FLAG_CAUSAL) },
    { .p = P(1, 1, 1, 20, 66, 160, 512, .flags = 0) },
    { .p = P(4, 2, 1, 70, 130, 16, 16, .flags = 0), .gives = TRIAL_LENS },
    { .p = P(4, 2, 2, 130, 130, 8, 16, .flags = FOCI_FLAG_CAUSAL), .gives = TRIAL_LENS },
    { .p = P(1, 2, 1, 200, 200, 16, 8, .max_docs = 7), .gives = TRIAL_DOCS },
    { .p = P(1, 2, 2, 200, 200, 16, 8, .max_docs = 5, .flags = FOCI_FLAG_CAUSAL),
      .gives = TRIAL_DOCS },
    { .p = P(2, 2, 1, 66, 130, 16, 16, .memory = 65, .flags = FOCI_FLAG_CAUSAL) },
    { .p = P(2, 2, 2, 65, 67, 16, 16, .flags = FOCI_FLAG_MASK, .mask_batch = 2,
             .mask_heads = 2) },
    { .p = P(2, 2, 1, 66, 130, 8, 8, .flags = FOCI_FLAG_MASK | FOCI_FLAG_CAUSAL) },
    { .p = P(2, 2, 2, 65, 67, 16, 16, .flags = FOCI_FLAG_BIAS, .mask_heads = 2) },
    { .p = P(2, 2, 1, 70, 70, 16, 16,
             .flags = FOCI_FLAG_MASK | FOCI_FLAG_BIAS | FOCI_FLAG_CAUSAL,
             .mask_batch = 2),
      .gives = TRIAL_LENS },
    { .p = P(1, 2, 2, 100, 100, 8, 8, .flags = FOCI_FLAG_BIAS, .max_docs = 3),
      .gives = TRIAL_DOCS },
    { .p = P(1, 2, 1, 70, 70, 6, 9, .flags = FOCI_FLAG_CAUSAL) },
    { .p = P(1, 1, 1, 66, 130, 6, 8, .flags = 0) },
    { .p = P(2, 4, 2, 66, 66, 17, 9, .flags = FOCI_FLAG_CAUSAL), .gives = STRIDED },
    { .p = P(3, 2, 2, 70, 70, 16, 16, .flags = 0), .gives = STRIDED | TRIAL_LENS },
    { .p = P(9, 1, 1, 2, 2, 4, 4, .flags = 0), .gives = TRIAL_LENS },
    { .p = P(9, 1, 1, 1, 3, 4, 4, .flags = FOCI_FLAG_CAUSAL), .gives = TRIAL_LENS },
    { .p = P(2, 2, 1, 70, 130, 16, 8, .dropout = 0.3) },
    { .p = P(1, 2, 2, 130, 130, 8, 16, .dropout = 0.1, .max_docs = 3,
             .flags = FOCI_FLAG_CAUSAL | FOCI_FLAG_BIAS),
      .gives = TRIAL_DOCS },
};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

static foci_layout spread(int64_t batch, int64_t rows, int64_t dim)
{
    const int64_t row = dim + 3, head = rows * row + 5;
    return (foci_layout){ .row = row, .batch = head, .head = batch * head + 1 };
}

static foci_problem problem_of(const struct kind *k)
{
    foci_problem p = k->p;

    p.flags |= FOCI_FLAG_TRAIN;
    if (k->gives & STRIDED) {
        p.q = spread(p.batch, p.len_q, p.dim_qk);
        p.k = spread(p.batch, p.len_k, p.dim_qk);
        p.v = spread(p.batch, p.len_k, p.dim_v);
        p.o = spread(p.batch, p.len_q, p.dim_v);
    }
    return p;
}

/* Eigenvectors of very wide rows take seconds. */
static bool is_long(const foci_plan *plan)
{
    return plan->stages[0].linear.moments > FOCI_MOMENTS_NORM && plan->p.dim_qk > 256;
}

/* Kernels of features that are rotated in pairs may be divided by next to nothing.  What
 * is beyond the type then is infinite, and nothing that is made of it can be compared. */
static bool fits(const struct trial *t, const struct result *r)
{
    static const int parts[] = { PART_O, PART_DQ, PART_DK, PART_DV, PART_DX };

    for (size_t n = 0; n < sizeof parts / sizeof *parts; n++)
        for (int64_t i = 0; i < r->n[parts[n]]; i++) {
            const double x = r->x[parts[n]][i];
            if (isfinite(x) && !isfinite(ref_round((int)t->p.dtype, x))) return false;
        }
    return true;
}

/* At level `only`, or at all where that is -1. */
static void run_case(struct levels *l, int only, const char *spec,
                     const foci_problem *p, unsigned gives, uint64_t seed)
{
    foci_plan *plan = trial_plan(l->ctx[0], spec, p);
    if (!plan) return;
    if (is_long(plan)) {
        foci_plan_free(plan);
        return;
    }
    struct trial  t = trial_make(plan, spec, seed, gives);
    struct result want = trial_judge(plan, &t, false);
    struct result rounded = trial_judge(plan, &t, true);
    const bool    compares = fits(&t, &want);

    for (int i = 0; compares && i < l->n; i++) {
        if (only >= 0 && i != only) continue;
        foci_plan    *at = trial_plan(l->ctx[i], spec, p);
        struct result got = trial_run(at, &t);
        trial_close(at, &t, &got, &want, &rounded);
        result_free(&got);
        foci_plan_free(at);
    }
    result_free(&want);
    result_free(&rounded);
    trial_free(&t);
    foci_plan_free(plan);
}

/* For runs under sanitizers and emulation, which take ten times as long and more. */
static bool brief(void) { return getenv("FOCI_TEST_SHORT") != NULL; }

/* Of all pairs of specs and kinds about FEW are run then, however many mechanisms there
 * are.  The step from one to the next shares no divisor with the number of kinds, so
 * that these take turns. */
static int brief_every(foci_ctx *ctx)
{
    enum { FEW = 200 };
    char spec[SPEC_CAP];
    int  n = 0;

    while (specs_next(ctx, n, spec))
        n++;
    int every = n * N_KINDS / FEW + 1;
    for (int i = 2; i <= N_KINDS; i++)
        if (every % i == 0 && N_KINDS % i == 0) every++, i = 1;
    return every;
}

/* Kind k in f32, and in one of the other types by turns. */
static void run_kind(struct levels *l, const char *spec, int i, int k)
{
    static const struct {
        foci_dtype dtype;
        uint32_t   flags;
    } types[] = { { FOCI_BF16, 0 }, { FOCI_F32, FOCI_FLAG_FAST }, { FOCI_F16, 0 } };
    const int      turn = (i + k / 3) % 3;
    const uint64_t seed = (uint64_t)(1000 * i + k);
    const int      only = strchr(spec, ' ') || brief() ? (i + k / 5) % l->n : -1;
    foci_problem   p = problem_of(&kinds[k]);

    run_case(l, only, spec, &p, kinds[k].gives & 0xff, seed);
    p.dtype = types[turn].dtype;
    p.flags |= types[turn].flags;
    run_case(l, only, spec, &p, kinds[k].gives & 0xff, seed);
}

/* Mechanisms without modifiers take every kind at every level, the others some of
 * both, by turns. */
static void agree(void **state)
{
    struct levels l = levels_make(1);
    char          spec[SPEC_CAP];

    (void)state;
    const int few = brief() ? brief_every(l.ctx[0]) : 1;
    for (int i = 0; specs_next(l.ctx[0], i, spec); i++) {
        const int every = brief() || !strchr(spec, ' ') ? 1 : 5;
        for (int k = 0; k < N_KINDS; k++)
            if ((i + k) % every == 0 && (i * N_KINDS + k) % few == 0)
                run_kind(&l, spec, i, k);
    }
    levels_free(&l);
}

/* Heads of several groups share one call. */
static void mixes(void **state)
{
    static const char *const specs[] = {
        "2*softmax sink + 2*relu2 temper + l2norm",
        "2*softmax qknorm logn(n0=9) + 2*test_window(window=5) + 4*test_chance cap(2)",
        "2*linear rope + 2*softmax temper + 2*retention(learn=1) + 2*performer(sderf)",
    };
    struct levels      l = levels_make(1);
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 2,
                             .heads = 8,
                             .kv_heads = 4,
                             .len_q = 70,
                             .len_k = 70,
                             .dim_qk = 16,
                             .dim_v = 24,
                             .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL };

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++) {
            const int    only = brief() ? (int)(i + (size_t)dtype) % l.n : -1;
            foci_problem typed = p;
            typed.dtype = (foci_dtype)dtype;
            run_case(&l, only, specs[i], &typed, 0, i);
            typed.flags |= FOCI_FLAG_MASK | FOCI_FLAG_BIAS; /* another for each head */
            typed.mask_heads = typed.heads;
            run_case(&l, only, specs[i], &typed, TRIAL_LENS, i);
        }
    levels_free(&l);
}

/* Long enough for a block to meet several tiles of keys one after the other, with and
 * without tiles between them that it does not see. */
static void runs(void **state)
{
    static const char *const specs[] = {
        "softmax txl",
        "softmax txl cap(3) temper",
        "local(window=70) txl",
        "local(window=3, dilation=64) txl",
        "segmented(length=64, back=2) txl logn",
        "test_chance txl",
    };
    struct levels      l = levels_make(1);
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 3,
                             .heads = 4,
                             .len_q = 390,
                             .len_k = 390,
                             .dim_qk = 12,
                             .dim_v = 5,
                             .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL };

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++) {
            const int    only = ((int)i + dtype) % l.n;
            foci_problem typed = p;

            if (brief() && (i + (size_t)dtype) % 4) continue;
            typed.dtype = (foci_dtype)dtype;
            run_case(&l, i ? only : -1, specs[i], &typed, i % 2 ? TRIAL_LENS : 0, i);
        }
    levels_free(&l);
}

/* More keys than one call of a kernel takes, by several blocks of queries: plain, far apart
 * in their logits, and few of many. */
static void stripes(void **state)
{
    static const char *const specs[] = {
        "softmax",           "softmax scale(3) sink", "softmax rope qknorm temper",
        "local(window=700)", "test_chance",
    };
    struct levels      l = levels_make(1);
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 2,
                             .kv_heads = 1,
                             .len_q = 330,
                             .len_k = 2500,
                             .dim_qk = 40,
                             .dim_v = 24 };

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int causal = 0; causal < 2; causal++) {
            foci_problem typed = p;

            if (brief() && (i + (size_t)causal) % 2) continue;
            typed.dtype = FOCI_BF16;
            typed.flags = causal ? FOCI_FLAG_CAUSAL : 0;
            run_case(&l, l.n - 1, specs[i], &typed, 0, i);
        }
    levels_free(&l);
}

/* Words of 16 bits where rows for distances, which are as large as they like, weigh more
 * than keys that are scaled to length one. */
static void distances(void **state)
{
    static const char *const specs[] = { "softmax txl qknorm", "l2norm txl",
                                         "softmax txl scale(0.3)" };
    struct levels            l = levels_make(1);

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int k = 0; k < N_KINDS; k++)
            for (int dtype = FOCI_BF16; dtype <= FOCI_F16; dtype++) {
                foci_problem p = problem_of(&kinds[k]);
                const int    turn = (int)i + k + dtype;

                if (brief() && turn % 8 != 2) continue;
                p.dtype = (foci_dtype)dtype;
                run_case(&l, l.n - 1 - turn % 2, specs[i], &p, kinds[k].gives & 0xff,
                         5000 + 1000 * i + (uint64_t)k);
            }
    levels_free(&l);
}

/* A last query in the middle of a block: it sees all of its tile, so that no mask hides
 * the lanes before it. */
static void last(void **state)
{
    static const char *const specs[] = {
        "softmax txl",
        "softmax txl shaw(clip=5) alibi sink cap(2)",
        "l2norm txl temper",
        "relu2 txl rope",
    };
    struct levels      l = levels_make(1);
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 2,
                             .kv_heads = 1,
                             .len_q = 1,
                             .dim_qk = 8,
                             .dim_v = 5,
                             .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL };

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++) {
            foci_problem typed = p;

            typed.dtype = (foci_dtype)dtype;
            typed.len_k = i % 2 ? 113 : 49;
            run_case(&l, -1, specs[i], &typed, 0, i);
        }
    levels_free(&l);
}

/* Tokens that share a bucket with no other see themselves, in as many rounds as there
 * are. */
static void alone(void **state)
{
    static const char *const specs[] = {
        "lsh(hash=floor, width=0.05, rounds=3, dedup=0, shared=1)",
        "lsh(hash=floor, width=0.05, rounds=3, dedup=0, shared=1) sink cap(2) temper",
        "lsh(hash=floor, width=0.2, rounds=7, dedup=0, shared=1, chunk=4) sink",
        "lsh(hash=floor, width=0.2, rounds=7, shared=1) sink",
    };
    struct levels      l = levels_make(1);
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 2,
                             .len_q = 20,
                             .len_k = 20,
                             .dim_qk = 8,
                             .dim_v = 5,
                             .flags = FOCI_FLAG_TRAIN };

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++) {
            foci_problem typed = p;

            typed.dtype = (foci_dtype)dtype;
            run_case(&l, -1, specs[i], &typed, 0, i);
        }
    levels_free(&l);
}

/* Rows whose scale hangs on how many keys they see: a key that is met in several ways,
 * or weighs several times, is one. */
static void counts(void **state)
{
    static const char *const specs[] = {
        "lsh(buckets=4, rounds=3) logn(n0=9)",
        "lsh(buckets=4, rounds=3, dedup=0) logn(n0=9)",
        "lsh(buckets=2, rounds=9, dedup=0) logn(n0=11, clamp=1)",
        "lsh(hash=floor, rounds=3, dedup=0) logn(n0=4) sink",
        "lsh(buckets=6, rounds=3, dedup=0, shared=1) logn(n0=9)",
        "lsh(hash=floor, rounds=2, dedup=0, shared=1) logn(n0=3)",
        "lsh(buckets=4, rounds=3, dedup=0, shared=1, chunk=5) logn(n0=3) sink temper",
        "routing(clusters=3) logn(n0=5)",
        "routing(clusters=3, pick=topk, take=30) logn(n0=5)",
        "strided(stride=6) logn(n0=5)",
        "sparse_fixed(stride=6, summary=2) logn(n0=5)",
        "global(window=3, first=2) logn(n0=5)",
        "bigbird(block=8) logn(n0=5)",
        "pooled(block=4, levels=2) logn(n0=5)",
        "routed(lsh(buckets=4, rounds=3, dedup=0) logn(n0=9), routes=2)",
    };
    struct levels      l = levels_make(1);
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 2,
                             .heads = 2,
                             .kv_heads = 1,
                             .len_q = 70,
                             .len_k = 70,
                             .dim_qk = 8,
                             .dim_v = 5,
                             .flags = FOCI_FLAG_TRAIN };

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (unsigned t = 0; t < 4; t++) {
            foci_problem one = p;

            if (t & 1) one.flags |= FOCI_FLAG_CAUSAL;
            if (t & 2) one.flags |= FOCI_FLAG_MASK;
            run_case(&l, (int)(i + t) % l.n, specs[i], &one, 0, i);
        }
    levels_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agree),   cmocka_unit_test(mixes),     cmocka_unit_test(runs),
        cmocka_unit_test(stripes), cmocka_unit_test(distances), cmocka_unit_test(last),
        cmocka_unit_test(alone),   cmocka_unit_test(counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
