/* core.c -- contexts, memory, random streams. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/ledger.h"

static void clear_environment(void)
{
    unsetenv("FOCI_CPU");
    unsetenv("FOCI_THREADS");
}

/* Contexts */

static void test_defaults(void **state)
{
    (void)state;
    foci_ctx *ctx = NULL;
    clear_environment();
    assert_int_equal(foci_ctx_create(NULL, &ctx), FOCI_OK);
    assert_int_equal(foci_ctx_threads(ctx), cpu_count());
    assert_in_range(foci_ctx_threads(ctx), 1, MAX_THREADS);
    assert_string_equal(foci_errmsg(ctx), "");
    foci_ctx_free(ctx);
    foci_ctx_free(NULL);
}

/* The message when no context comes of it. */
static const char *refused(const foci_options *options)
{
    foci_ctx *ctx = (foci_ctx *)8;
    assert_int_equal(foci_ctx_create(options, &ctx), FOCI_ERR_ARG);
    assert_null(ctx);
    return foci_errmsg(NULL);
}

static int threads_of(const foci_options *options)
{
    foci_ctx *ctx;
    assert_int_equal(foci_ctx_create(options, &ctx), FOCI_OK);
    const int n = foci_ctx_threads(ctx);
    foci_ctx_free(ctx);
    return n;
}

static void test_threads(void **state)
{
    (void)state;
    static const char *const bad[] = { "0", "-1", "1025", "2x",
                                       "x", " 2", "1.5",  "99999999999999999999" };
    foci_options             o = { FOCI_SIZED(foci_options), .threads = 3 };

    clear_environment();
    assert_int_equal(threads_of(&o), 3);
    setenv("FOCI_THREADS", "5", 1);
    assert_int_equal(threads_of(&o), 3); /* the option wins */
    assert_int_equal(threads_of(NULL), 5);
    setenv("FOCI_THREADS", "1024", 1);
    assert_int_equal(threads_of(NULL), 1024);
    setenv("FOCI_THREADS", "", 1);
    assert_int_equal(threads_of(NULL), cpu_count());
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("FOCI_THREADS", bad[i], 1);
        const char *message = refused(NULL);
        assert_non_null(strstr(message, "FOCI_THREADS="));
        assert_non_null(strstr(message, bad[i]));
        assert_non_null(strstr(message, "1 to 1024"));
    }
    clear_environment();
    o.threads = -1;
    assert_non_null(strstr(refused(&o), "threads=-1"));
    o.threads = 1025;
    assert_non_null(strstr(refused(&o), "threads=1025"));
}

/* The number of the level in use, which must be the only one "chosen". */
static int chosen_level(const foci_options *options)
{
    foci_ctx   *ctx;
    const char *name, *said;
    int         chosen = -1;

    assert_int_equal(foci_ctx_create(options, &ctx), FOCI_OK);
    for (int l = 0; (name = foci_cpu_level(ctx, l, &said)); l++) {
        assert_string_equal(name, level_names[l]);
        if (strcmp(said, "chosen") != 0) continue;
        assert_int_equal(chosen, -1);
        chosen = l;
    }
    assert_null(foci_cpu_level(ctx, -1, &said));
    foci_ctx_free(ctx);
    return chosen;
}

static void test_levels(void **state)
{
    (void)state;
    clear_environment();
    const int best = chosen_level(NULL);
    int       last = 0;

    for (int l = 0; l < N_LEVELS; l++) {
        const foci_options o = { FOCI_SIZED(foci_options), .cpu = level_names[l] };
        const int          got = chosen_level(&o);
        setenv("FOCI_CPU", level_names[l], 1);
        assert_int_equal(chosen_level(NULL), got);
        clear_environment();
        assert_true(got <= l);
        if (l > best && got == l) continue; /* slower, and asked for all the same */
        assert_true(got >= last && got <= best);
        if (l >= best) assert_int_equal(got, best);
        last = got;
    }
    setenv("FOCI_CPU", "sse9", 1);
    const char *message = refused(NULL);
    assert_non_null(strstr(message, "FOCI_CPU=sse9"));
    for (int l = 0; l < N_LEVELS; l++)
        assert_non_null(strstr(message, level_names[l]));
    clear_environment();
    assert_non_null(
        strstr(refused(&(foci_options){ FOCI_SIZED(foci_options), .cpu = "AVX2" }),
               "cpu=AVX2"));
}

static void test_capped_level_says_why(void **state)
{
    (void)state;
    const foci_options o = { FOCI_SIZED(foci_options), .cpu = level_names[0] };
    foci_ctx          *ctx;
    const char        *said, *level;

    clear_environment();
    assert_int_equal(foci_ctx_create(&o, &ctx), FOCI_OK);
    for (int l = 1; foci_cpu_level(ctx, l, &said); l++) {
        assert_string_not_equal(said, "chosen");
        assert_string_not_equal(said, "available");
        assert_true(*said);
    }
    for (int i = 0; foci_kernel(ctx, i, &level); i++)
        assert_string_equal(level, level_names[0]);
    foci_ctx_free(ctx);
}

/* A kernel is said to come from the first level whose table has it. */
static void test_kernel_levels(void **state)
{
    (void)state;
    foci_ctx   *ctx;
    const char *level, *name;
    int         n = 0;

    clear_environment();
    assert_int_equal(foci_ctx_create(NULL, &ctx), FOCI_OK);
    for (; (name = foci_kernel(ctx, n, &level)); n++) {
        assert_string_equal(name, kernel_names[n]);
        struct kernels table;
        int            l = 0;
        while (strcmp(level_names[l], level) != 0)
            l++;
        kernels_init(&table, ctx->levels & ((2u << l) - 1));
        assert_ptr_equal(kernels_slot(&table, n), kernels_slot(&ctx->kernels, n));
        if (l == 0) continue;
        kernels_init(&table, ctx->levels & ((1u << l) - 1));
        assert_ptr_not_equal(kernels_slot(&table, n), kernels_slot(&ctx->kernels, n));
    }
    assert_int_equal(n, N_KERNELS);
    assert_null(foci_kernel(ctx, -1, &level));
    foci_ctx_free(ctx);
}

static void test_struct_sizes(void **state)
{
    (void)state;
    foci_options o = { .threads = 2 };
    clear_environment();
    assert_non_null(strstr(refused(&o), "FOCI_SIZED"));

    /* A program compiled when threads was the only option. */
    o = (foci_options){ .size = offsetof(foci_options, cpu),
                        .threads = 2,
                        .cpu = "none" };
    assert_int_equal(threads_of(&o), 2);
    assert_int_equal(foci_ctx_create(NULL, NULL), FOCI_ERR_ARG);
}

static void test_messages(void **state)
{
    (void)state;
    foci_ctx *ctx;
    char      text[2000];
    clear_environment();
    assert_int_equal(foci_ctx_create(NULL, &ctx), FOCI_OK);
    assert_int_equal(ctx_fail(ctx, FOCI_ERR_FILE, "%s=%d", "a", 1), FOCI_ERR_FILE);
    assert_string_equal(foci_errmsg(ctx), "a=1");
    ctx_fail(ctx, FOCI_ERR_ARG, "of %s", foci_errmsg(ctx)); /* quoting itself */
    assert_string_equal(foci_errmsg(ctx), "of a=1");
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    ctx_fail(ctx, FOCI_ERR_ARG, "%s", text);
    assert_int_equal(strlen(foci_errmsg(ctx)), 511);
    ctx_fail(NULL, FOCI_ERR_ARG, "lost");
    assert_string_equal(foci_errmsg(NULL), "lost");
    foci_ctx_free(ctx);
}

static void test_names(void **state)
{
    (void)state;
    for (int s = FOCI_OK; s >= FOCI_ERR_FULL; s--) {
        const char *text = foci_status_text((foci_status)s);
        assert_string_not_equal(text, "unknown status");
        for (int t = FOCI_OK; t > s; t--)
            assert_string_not_equal(text, foci_status_text((foci_status)t));
    }
    assert_string_equal(foci_status_text((foci_status)77), "unknown status");
    assert_int_equal(foci_dtype_bytes(FOCI_F32), 4);
    assert_int_equal(foci_dtype_bytes(FOCI_BF16), 2);
    assert_int_equal(foci_dtype_bytes(FOCI_F16), 2);
    assert_in_range(foci_version()[0], '0', '9');
}

/* Memory */

static void test_allocator(void **state)
{
    (void)state;
    unsigned char *p = default_alloc(NULL, NULL, 0, 100);
    assert_non_null(p);
    for (int i = 0; i < 100; i++)
        p[i] = (unsigned char)i;
    p = default_alloc(NULL, p, 100, 1000);
    assert_int_equal((uintptr_t)p % 64, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(p[i], i);
    p = default_alloc(NULL, p, 1000, 10);
    for (int i = 0; i < 10; i++)
        assert_int_equal(p[i], i);
    assert_null(default_alloc(NULL, p, 10, SIZE_MAX)); /* and p is still there */
    assert_int_equal(p[9], 9);
    assert_null(default_alloc(NULL, p, 10, 0));
}

static void test_ctx_alloc(void **state)
{
    (void)state;
    struct ledger      l = { 0, 3 };
    const foci_options o = { FOCI_SIZED(foci_options), .alloc = counted, .user = &l };
    foci_ctx          *ctx;

    clear_environment();
    assert_int_equal(foci_ctx_create(&o, &ctx), FOCI_OK);
    unsigned char *p = ctx_alloc(ctx, 7, 9);
    for (int i = 0; i < 63; i++)
        assert_int_equal(p[i], 0);
    void *none = ctx_alloc(ctx, 0, 9);
    assert_non_null(none);
    assert_null(ctx_alloc(ctx, 5, 5));
    assert_non_null(strstr(foci_errmsg(ctx), "25 bytes"));
    assert_null(ctx_alloc(ctx, SIZE_MAX / 2, 3));
    assert_non_null(strstr(foci_errmsg(ctx), "overflow"));
    ctx_free(ctx, p, 7, 9);
    ctx_free(ctx, none, 0, 9);
    ctx_free(ctx, NULL, 3, 3);
    foci_ctx_free(ctx);
    assert_int_equal(l.held, 0);

    l.left = 0;
    assert_int_equal(foci_ctx_create(&o, &ctx), FOCI_ERR_MEMORY);
    assert_null(ctx);
    assert_non_null(strstr(foci_errmsg(NULL), "memory"));

    l.left = 9; /* a context that fails half way is given back */
    assert_int_equal(
        foci_ctx_create(&(foci_options){ FOCI_SIZED(foci_options), .cpu = "none",
                                         .alloc = counted, .user = &l },
                        &ctx),
        FOCI_ERR_ARG);
    assert_int_equal(l.held, 0);
}

static void test_sizes(void **state)
{
    (void)state;
    size_t out = 1;
    assert_true(mul_size(6, 7, &out));
    assert_int_equal(out, 42);
    assert_true(mul_size(SIZE_MAX, 0, &out));
    assert_int_equal(out, 0);
    assert_false(mul_size(SIZE_MAX, 2, &out));
    assert_false(mul_size(SIZE_MAX / 2 + 1, 2, &out));
    assert_int_equal(out, 0);
    assert_int_equal(round_up(65, 64), 128);
    assert_int_equal(div_up(0, 64), 0);
}

static void test_arena(void **state)
{
    (void)state;
    _Alignas(64) char block[256];
    struct arena      dry = { 0 }, wet = { .base = block };

    assert_null(arena_alloc(&dry, 3, 5));
    assert_null(arena_alloc(&dry, 65, 1));
    assert_int_equal(dry.used, 64 + 128);
    assert_ptr_equal(arena_alloc(&wet, 3, 5), block);
    assert_ptr_equal(arena_alloc(&wet, 65, 1), block + 64);
    assert_ptr_equal(arena_alloc(&wet, 0, 8), block + 192);
    assert_int_equal(wet.used, dry.used);

    static const struct {
        int64_t n;
        size_t  size;
    } bad[] = { { -1, 1 }, { INT64_MAX, 4 }, { 1, SIZE_MAX }, { 1, SIZE_MAX - 100 } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct arena a = { .used = 64 };
        assert_null(arena_alloc(&a, bad[i].n, bad[i].size));
        assert_false(arena_ok(&a));
        assert_null(arena_alloc(&a, 1, 1)); /* and stays so */
        assert_false(arena_ok(&a));
    }
}

/* Random streams: the numbers of docs/random.md */

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12)) fail_msg("%.15g, expected %.15g", got, want);
}

static void test_words(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 0, 0);
    assert_true(rng_u64(&r) == UINT64_C(0xf4a90164c4749e1a));
    assert_true(rng_u64(&r) == UINT64_C(0xbfa9ae8d44b45a35));
    assert_true(rng_u64(&r) == UINT64_C(0xd424f2654f316ee0));
    rng_seed(&r, 1, 5);
    assert_true(rng_u64(&r) == UINT64_C(0xec1ae5fb49e6e2e5));
    assert_true(rng_u64(&r) == UINT64_C(0x21284631f76ad955));
}

static void test_uniforms(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 0, 0);
    assert_true(rng_uniform(&r) == 0.9557038184179469);
    assert_true(rng_uniform(&r) == 0.7486828894513606);

    /* The state before the word of all ones: the formula alone would give 1. */
    const uint64_t before = UINT64_C(0x31628af67b2131ab);
    r.state = before;
    assert_true(rng_u64(&r) == UINT64_MAX);
    r.state = before;
    assert_true(rng_uniform(&r) < 1);
    for (int64_t n = 1; n < 100; n++) {
        r.state = before;
        assert_int_equal(rng_below(&r, n), n - 1);
    }
}

static void test_normals(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 0, 0);
    near(rng_normal(&r), -0.002491127061);
    near(rng_normal(&r), -0.301012041108);
    near(rng_normal(&r), 0.243157365443);
    near(rng_normal(&r), -0.562757278471);

    /* The second of a pair is kept while words are drawn. */
    rng_seed(&r, 0, 0);
    near(rng_normal(&r), -0.002491127061);
    assert_true(rng_u64(&r) == UINT64_C(0xd424f2654f316ee0));
    near(rng_normal(&r), -0.301012041108);
}

static void check_frame(const double *q, int d, int k)
{
    for (int s = 0; s < k; s++)
        for (int t = 0; t <= s; t++) {
            double dot = 0;
            for (int i = 0; i < d; i++)
                dot += q[i * k + s] * q[i * k + t];
            assert_true(fabs(dot - (s == t)) < 1e-14);
        }
}

/* Wider than a panel; and the definition: Q^T G is upper triangular with a positive
 * diagonal, G the normals that Q was made of. */
static void test_wide_frames(void **state)
{
    (void)state;
    enum { D = 131, K = 101 };
    static double q[D * K], g[D * K], square[D * D];
    struct rng    r;

    rng_seed(&r, 3, 10);
    rng_haar(&r, D, K, q);
    check_frame(q, D, K);
    rng_haar(&r, D, D, square);
    check_frame(square, D, D);

    rng_seed(&r, 3, 10);
    for (int i = 0; i < D * K; i++)
        g[i] = rng_normal(&r);
    for (int s = 0; s < K; s++)
        for (int t = 0; t <= s; t++) {
            double dot = 0;
            for (int i = 0; i < D; i++)
                dot += q[i * K + s] * g[i * K + t];
            assert_true(s == t ? dot > 0 : fabs(dot) < 1e-12);
        }
}

static void test_frames(void **state)
{
    (void)state;
    enum { D = 33, K = 17 };
    struct rng    r;
    double        q[D * K];
    static double square[D * D];

    rng_seed(&r, 0, 10);
    rng_haar(&r, 2, 2, q);
    near(q[0], 0.974820733237);
    near(q[1], -0.222989995407);
    near(q[2], -0.222989995407);
    near(q[3], -0.974820733237);

    rng_haar(&r, D, K, q);
    check_frame(q, D, K);

    /* Uniform: no entry leans to one sign.  400 frames: 5 standard deviations of
     * the mean of an entry are 5 / sqrt(400 D). */
    double mean = 0;
    for (int f = 0; f < 400; f++) {
        rng_haar(&r, D, D, square);
        mean += square[0] / 400;
    }
    assert_true(fabs(mean) < 5 / sqrt(400.0 * D));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_capped_level_says_why),
        cmocka_unit_test(test_kernel_levels),
        cmocka_unit_test(test_struct_sizes),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_allocator),
        cmocka_unit_test(test_ctx_alloc),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_uniforms),
        cmocka_unit_test(test_normals),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_wide_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
