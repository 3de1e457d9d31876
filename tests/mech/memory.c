/* memory.c -- twice the length takes at most twice the memory, and executing takes none.
 *
 * The linker sends every allocation of the library and of this program through the
 * counters below (--wrap), so that what a plan keeps for itself counts too.  Executing
 * at the full lengths takes minutes on a small CPU and waits for FOCI_TEST_LONG.
 */
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>

#include "support/trial.h"

static atomic_size_t live, peak, calls;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
int   __real_posix_memalign(void **p, size_t align, size_t n);
void  __real_free(void *p);

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
int   __wrap_posix_memalign(void **p, size_t align, size_t n);
void  __wrap_free(void *p);

static void *add(void *p)
{
    calls++;
    if (!p) return p;
    const size_t n = malloc_usable_size(p);
    const size_t now = atomic_fetch_add(&live, n) + n;
    size_t       old = peak;
    while (now > old && !atomic_compare_exchange_weak(&peak, &old, now))
        continue;
    return p;
}

void *__wrap_malloc(size_t n) { return add(__real_malloc(n)); }

void *__wrap_calloc(size_t n, size_t size) { return add(__real_calloc(n, size)); }

void *__wrap_realloc(void *p, size_t n)
{
    if (p) live -= malloc_usable_size(p);
    return add(__real_realloc(p, n));
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return add(__real_aligned_alloc(align, n));
}

int __wrap_posix_memalign(void **p, size_t align, size_t n)
{
    const int status = __real_posix_memalign(p, align, n);
    if (status == 0) add(*p);
    return status;
}

void __wrap_free(void *p)
{
    if (p) live -= malloc_usable_size(p);
    __real_free(p);
}

enum { DIM = 32 };

static void *zeros(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 64) / 64 * 64);
    assert_non_null(p);
    memset(p, 0, bytes);
    return p;
}

/* Forward and, if planned for, backward; no allocation may happen. */
static void execute(const foci_plan *plan, void *work, void *saved)
{
    const foci_problem *p = &plan->p;
    const size_t bytes = (size_t)(p->len_q * max64(p->heads, p->kv_heads) * p->dim_qk) *
                         foci_dtype_bytes(p->dtype);
    void         *x = zeros(bytes), *y = zeros(bytes);
    float        *params = zeros((size_t)foci_plan_param_floats(plan) * sizeof(float));
    const foci_io io = {
        FOCI_SIZED(foci_io), .q = x,       .k = x,        .v = x, .x = x, .o = y,
        .params = params,    .work = work, .saved = saved
    };
    const foci_grads grads = { FOCI_SIZED(foci_grads), .d_o = x, .dq = zeros(bytes),
                               .dk = zeros(bytes), .dv = zeros(bytes) };

    assert_int_equal(foci_params_init(plan, 1, params), FOCI_OK);
    const size_t before = calls;
    assert_int_equal(foci_forward(plan, &io), FOCI_OK);
    if (saved) assert_int_equal(foci_backward(plan, &io, &grads), FOCI_OK);
    assert_int_equal(calls, before);

    free(grads.dq);
    free(grads.dk);
    free(grads.dv);
    free(params);
    free(x);
    free(y);
}

/* The most memory that planning and executing holds, the tensors left out. */
static size_t peak_of(foci_ctx *ctx, const char *spec, foci_problem p, int64_t len,
                      bool run)
{
    p.len_q = p.len_k = len;
    const size_t base = live;
    peak = base;

    foci_plan *plan = trial_plan(ctx, spec, &p);
    if (!plan) return 0;
    void *work = aligned_alloc(64, foci_plan_work_bytes(plan) + 64);
    void *saved = NULL;
    if (p.flags & FOCI_FLAG_TRAIN)
        saved = aligned_alloc(64, foci_plan_saved_bytes(plan) + 64);
    assert_non_null(work);
    const size_t most = peak - base;
    if (run) execute(plan, work, saved);
    free(saved);
    free(work);
    foci_plan_free(plan);
    assert_int_equal(live, base);
    return most;
}

static void check(foci_ctx *ctx, const char *spec, foci_dtype dtype, uint32_t flags)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .dtype = dtype,
                             .flags = flags,
                             .batch = 1,
                             .heads = 2,
                             .dim_qk = DIM };
    const bool         full = getenv("FOCI_TEST_LONG") != NULL;
    const size_t       once = peak_of(ctx, spec, p, 16384, full);
    const size_t       longer = peak_of(ctx, spec, p, 65536, false);
    /* Both lengths are squares of powers of 2: strides found by the length fall on the
     * borders of tiles in both. */
    if ((double)longer > 4.08 * (double)once)
        fail_msg("%s, dtype %d, flags %u: %zu bytes at 16384, %zu at 65536", spec,
                 (int)dtype, (unsigned)flags, once, longer);
    peak_of(ctx, spec, p, 200, true);
}

/* A mechanism as it stands, but for layouts, which are lists of the square of the
 * number of blocks: a few large ones. */
static void spec_of(const foci_mech_def *m, char spec[SPEC_CAP])
{
    const bool layout = m->list && strcmp(m->list->name, "layout") == 0;
    snprintf(spec, SPEC_CAP, "%s%s", m->name, layout ? "(block=2048)" : "");
}

/* Every mechanism, in every type, forward and backward. */
static void test_growth(void **state)
{
    static const uint32_t flags[] = { 0, FOCI_FLAG_CAUSAL, FOCI_FLAG_TRAIN,
                                      FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL,
                                      FOCI_FLAG_TRAIN | FOCI_FLAG_FAST };
    foci_ctx             *ctx;
    (void)state;
    assert_int_equal(foci_ctx_create(NULL, &ctx), FOCI_OK);
    int n = 0;
    for (const foci_mech_def *m; (m = foci_mechanism(ctx, n)) != NULL; n++)
        for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
            char spec[SPEC_CAP];
            spec_of(m, spec);
            check(ctx, spec, FOCI_F32, flags[f]);
            if (!(flags[f] & FOCI_FLAG_FAST)) check(ctx, spec, FOCI_BF16, flags[f]);
        }
    assert_true(n > 0);
    foci_ctx_free(ctx);
}

/* Sums over features need a number for each row that backward divides by, and sums for
 * segments that grow with the length as slowly: far from a feature for each row. */
static void test_features(void **state)
{
    enum { SHORT = 1 << 16, LONG = 1 << 20, MOST = 32 }; /* bytes of a row */
    static const char *const specs[] = {
        "linear",
        "linear(poly)",
        "linear rope",
        "cosformer(length=2000000)",
        "efficient",
        "identity",
        "retention",
        "performer",
        "performer(hyp, features=256)",
        "performer(sderf) rope",
    };
    static const uint32_t flags[] = { 0, FOCI_FLAG_CAUSAL, FOCI_FLAG_TRAIN,
                                      FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL };
    foci_ctx             *ctx;

    (void)state;
    /* Each thread has sums of a segment of its own, whose length is the root of N. */
    const foci_options two = { FOCI_SIZED(foci_options), .threads = 2 };
    assert_int_equal(foci_ctx_create(&two, &ctx), FOCI_OK);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
            const foci_problem p = { FOCI_SIZED(foci_problem), .flags = flags[f],
                                     .batch = 1, .heads = 2, .dim_qk = DIM };
            const size_t       once = peak_of(ctx, specs[i], p, SHORT, false);
            const size_t       longer = peak_of(ctx, specs[i], p, LONG, false);

            if (longer - once > (size_t)(p.heads * (LONG - SHORT) * MOST))
                fail_msg("%s, flags %u: %zu bytes at %d, %zu at %d", specs[i],
                         (unsigned)flags[f], once, SHORT, longer, LONG);
        }
    foci_ctx_free(ctx);
}

/* Work memory of a step that takes a whole sequence; 0: it has no decoding state. */
static size_t step_of(foci_ctx *ctx, const char *spec, foci_dtype dtype, int64_t len)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .dtype = dtype,
                             .flags = FOCI_FLAG_CAUSAL,
                             .batch = 1,
                             .heads = 2,
                             .len_q = len,
                             .len_k = len,
                             .dim_qk = DIM };
    foci_plan         *plan = trial_plan(ctx, spec, &p);
    foci_pool         *pool;
    size_t             bytes = 0;

    if (plan && foci_pool_create(plan, 0, &pool) == FOCI_OK) {
        bytes = foci_step_work_bytes(pool, 1, len, len);
        foci_pool_free(pool);
    }
    foci_plan_free(plan);
    return bytes;
}

/* Steps, too: four times the tokens on four times the keys. */
static void test_steps(void **state)
{
    foci_ctx *ctx;
    int       n = 0;

    (void)state;
    assert_int_equal(foci_ctx_create(NULL, &ctx), FOCI_OK);
    for (const foci_mech_def *m; (m = foci_mechanism(ctx, n / 3)) != NULL; n++) {
        const foci_dtype dtype = (foci_dtype)(n % 3);
        char             spec[SPEC_CAP];
        spec_of(m, spec);
        const size_t once = step_of(ctx, spec, dtype, 16384);
        const size_t longer = step_of(ctx, spec, dtype, 65536);
        if ((double)longer > 4.08 * (double)once)
            fail_msg("%s, dtype %d: a step takes %zu bytes at 16384, %zu at 65536",
                     spec, (int)dtype, once, longer);
    }
    assert_true(step_of(ctx, "softmax", FOCI_F32, 16384) > 0);
    foci_ctx_free(ctx);
}

/* Steps of a state with room in its tables take pages of the pool and allocate nothing. */
static void steps_of(foci_ctx *ctx, const char *spec)
{
    enum { TOKENS = 200, PAGES = 64 };
    const foci_problem p = { FOCI_SIZED(foci_problem), .flags = FOCI_FLAG_CAUSAL,
                             .heads = 2, .len_q = TOKENS, .dim_qk = DIM };
    foci_plan         *plan = trial_plan(ctx, spec, &p);
    foci_pool         *pool;
    foci_state        *state;

    if (!plan || foci_pool_create(plan, PAGES, &pool)) {
        foci_plan_free(plan);
        return;
    }
    const int64_t heads = max64(p.heads, plan->p.kv_heads);
    const size_t  row = (size_t)(heads * DIM) * sizeof(float);
    float        *x = zeros(row), *y = zeros(row);
    float        *params = zeros((size_t)foci_plan_param_floats(plan) * sizeof(float));
    void         *work = zeros(foci_step_work_bytes(pool, 1, 1, TOKENS));
    const foci_step_io io = { FOCI_SIZED(foci_step_io),
                              .states = &state,
                              .n_states = 1,
                              .q = x,
                              .k = x,
                              .v = x,
                              .x = x,
                              .o = y,
                              .params = params,
                              .work = work };

    assert_int_equal(foci_params_init(plan, 1, params), FOCI_OK);
    assert_int_equal(foci_state_create(pool, &state), FOCI_OK);
    assert_int_equal(foci_state_reserve(state, TOKENS), FOCI_OK);
    const size_t before = calls;
    for (int i = 0; i < TOKENS; i++)
        if (foci_step(pool, &io)) fail_msg("%s: %s", spec, foci_errmsg(ctx));
    if (calls != before)
        fail_msg("%s: %zu allocations in %d steps", spec, calls - before, (int)TOKENS);
    foci_state_free(state);
    foci_pool_free(pool);
    foci_plan_free(plan);
    free(x), free(y), free(params), free(work);
}

static void test_reserved(void **state)
{
    foci_ctx *ctx;

    (void)state;
    assert_int_equal(foci_ctx_create(NULL, &ctx), FOCI_OK);
    for (int i = 0; i < foci_mechanism_count(ctx); i++) {
        char spec[SPEC_CAP];
        spec_of(foci_mechanism(ctx, i), spec);
        steps_of(ctx, spec);
    }
    foci_ctx_free(ctx);
}

/* The counters see what the library allocates, or the test above says nothing. */
static void test_counters(void **state)
{
    foci_ctx    *ctx;
    const size_t before = calls;
    (void)state;
    assert_int_equal(foci_ctx_create(NULL, &ctx), FOCI_OK);
    assert_true(calls > before);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters), cmocka_unit_test(test_growth),
        cmocka_unit_test(test_features), cmocka_unit_test(test_steps),
        cmocka_unit_test(test_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
