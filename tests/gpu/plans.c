/* plans.c -- what can be seen of the library of kernels without a device: that it loads,
 * what it says where there is none, and which kernels take which plans.  Its own calls
 * choose the kernels and count their work memory; those that need a device are stood in
 * for. */
#include <dlfcn.h>
#include <stdio.h>

#include "device/device.h"
#include "test.h"

#ifndef FOCI_TEST_CUDA
#define FOCI_TEST_CUDA NULL /* it was not built */
#endif

static int capability; /* of the device that is stood in for */

static int count(int *n) { return *n = 1, 0; }
static int info(int device, struct cuda_info *to)
{
    *to =
        (struct cuda_info){ .name = "stand-in", .sm = capability, .n_sm = 132 + device };
    return 0;
}
static int  enter(int device, int *before) { return *before = device, 0; }
static void leave(int before) { (void)before; }
static int  alloc(void **memory, size_t bytes)
{
    return *memory = test_alloc(bytes, 1), 0;
}
static int release(void *memory) { return free(memory), 0; }
static int copy(void *to, const void *from, size_t bytes)
{
    return memcpy(to, from, bytes), 0;
}

static const struct cuda_calls *open_kernels(void **library)
{
    const struct cuda_calls *(*calls)(void);
    const char *path = FOCI_TEST_CUDA;

    *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!path) {
        print_message("skipped: there is no nvcc\n");
        skip();
    }
    if (!*library) fail_msg("%s", dlerror());
    *(void **)&calls = dlsym(*library, "foci_cuda_calls");
    assert_non_null(calls);
    return calls();
}

static foci_ctx *open_ctx(int sm, void **library, struct cuda_calls *calls)
{
    foci_ctx *ctx = test_ctx("portable", 1);

    *calls = *open_kernels(library);
    calls->count = count;
    calls->info = info;
    calls->enter = enter;
    calls->leave = leave;
    calls->alloc = alloc;
    calls->release = release;
    calls->copy = copy;
    capability = sm;
    assert_int_equal(device_use(ctx, "cuda", calls, NULL), FOCI_OK);
    return ctx;
}

/* Where there is no driver, or no device, the library says so. */
static void nobody(void **state)
{
    void *library;
    int   n = -1;

    (void)state;
    const struct cuda_calls *calls = open_kernels(&library);
    assert_string_equal(calls->version, FOCI_VERSION);
    assert_int_equal(calls->size, sizeof *calls);
    const int error = calls->count(&n);
    if (error) {
        foci_ctx *ctx = test_ctx("portable", 1);
        assert_true(strlen(calls->error_text(error)) > 10);
        assert_int_equal(device_use(ctx, "cuda", calls, NULL), FOCI_ERR_DEVICE);
        assert_non_null(
            strstr(foci_errmsg(NULL), "device cuda: no driver or no device"));
        foci_ctx_free(ctx);
    } else
        assert_true(n > 0);
    dlclose(library);
}

static const struct {
    int         sm;
    const char *spec, *problem;
    foci_dtype  dtype;
    uint32_t    flags;
    const char *forward, *backward;
} cases[] = {
    { 90, "softmax", "b1h8n512d128c", FOCI_BF16, 0, "hopper", "hopper" },
    { 90, "softmax", "b1h8n512d64", FOCI_F16, 0, "hopper", "hopper" },
    { 90, "softmax", "b1h8n512d72", FOCI_BF16, 0, "hopper", "hopper" },
    { 90, "softmax", "b1h8n512d192", FOCI_BF16, 0, "hopper", "mma" },
    { 90, "softmax", "b1h8n512d60", FOCI_BF16, 0, "mma", "mma" },
    { 90, "softmax", "b1h8n512d64", FOCI_F32, 0, "mma", "mma" },
    { 90, "softmax", "b1h8n512d64", FOCI_BF16, FOCI_FLAG_MASK, "mma", "mma" },
    { 90, "softmax rope", "b1h8n512d64c", FOCI_BF16, 0, "hopper", "hopper" },
    { 90, "softmax rope", "b1h8n512d60c", FOCI_BF16, 0, "mma", "mma" },
    { 90, "softmax alibi", "b1h8n512d128c", FOCI_BF16, 0, "hopper", "hopper" },
    { 90, "softmax cap(20)", "b1h8n512d128c", FOCI_BF16, 0, "hopper", "hopper" },
    { 90, "softmax sink", "b1h8n512d128c", FOCI_BF16, 0, "hopper", "hopper" },
    { 90, "softmax t5", "b1h8n512d128c", FOCI_BF16, 0, "mma", "mma" },
    { 90, "softmax temper", "b1h8n512d128c", FOCI_BF16, 0, "hopper", "mma" },
    { 90, "relu2", "b1h8n512d128c", FOCI_BF16, 0, "mma", "mma" },
    { 90, "local(window=100)", "b1h8n512d128c", FOCI_BF16, 0, "hopper", "hopper" },
    { 90, "bigbird(block=64)", "b1h8n512d64", FOCI_BF16, 0, "hopper", "hopper" },
    { 90, "softmax", "b1h32k8n1m4096d128c", FOCI_BF16, 0, "hopper (keys split)",
      "hopper" },
    { 80, "softmax", "b1h8n512d128c", FOCI_BF16, 0, "mma", "mma" },
    { 80, "softmax", "b1h32k8n1m4096d128c", FOCI_BF16, 0, "mma (keys split)", "mma" },
};

/* Which kernels a plan names, and that it has work memory for them. */
static void kernels(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void             *library;
        struct cuda_calls calls;
        foci_ctx         *ctx = open_ctx(cases[i].sm, &library, &calls);
        foci_problem      p = { FOCI_SIZED(foci_problem), .dtype = cases[i].dtype };
        char              words[2000], want[200];

        assert_int_equal(foci_problem_parse(ctx, cases[i].problem, &p), FOCI_OK);
        p.flags |= cases[i].flags | FOCI_FLAG_TRAIN;
        foci_plan *plan = test_plan(ctx, cases[i].spec, &p);
        foci_plan_describe(plan, words, sizeof words);
        snprintf(want, sizeof want, "kernels  %s forward, %s backward on cuda:0\n",
                 cases[i].forward, cases[i].backward);
        if (!strstr(words, want))
            fail_msg("%s on %s: not %sin %s", cases[i].spec, cases[i].problem, want,
                     words);
        /* The sums of dQ in f32. */
        const size_t dq = (size_t)(p.heads * p.len_q * p.dim_qk) * sizeof(float);
        if (strcmp(cases[i].backward, "hopper") == 0)
            assert_true(foci_plan_work_bytes(plan) >= dq);
        foci_plan_free(plan);
        foci_ctx_free(ctx);
        dlclose(library);
    }
}

/* Without kernels for its capability a device is refused. */
static void too_old(void **state)
{
    void             *library;
    struct cuda_calls calls;
    foci_ctx         *ctx = open_ctx(75, &library, &calls);
    foci_problem      p = { FOCI_SIZED(foci_problem), .dtype = FOCI_BF16 };
    foci_plan        *plan;

    (void)state;
    assert_int_equal(foci_problem_parse(ctx, "h2n64d64", &p), FOCI_OK);
    assert_int_equal(foci_plan_create(ctx, "softmax", &p, &plan), FOCI_ERR_UNSUP);
    assert_string_equal(foci_errmsg(ctx), "cuda:0: stand-in has capability 7.5, and "
                                          "kernels need 8.0");
    foci_ctx_free(ctx);
    dlclose(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody),
        cmocka_unit_test(kernels),
        cmocka_unit_test(too_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
