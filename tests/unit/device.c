/* device.c -- what needs no accelerator of contexts that have one: names, planning, the
 * tables that are uploaded, refusals, the order of passes, errors.  A table of calls
 * stands in for the library of the device; its memory is the host's. */
#include "device/device_exact.h"
#include "test.h"

enum { OUT_OF_MEMORY = 2, LAUNCH_FAILED = 719 };

static struct {
    char              passes[256]; /* what was launched, a letter each */
    int               n_alloc, fail_alloc, fail_launch;
    char              host[64]; /* memory that is not the device's */
    struct cuda_exact last;
} fake;

static void note(char letter)
{
    const size_t n = strlen(fake.passes);
    if (n + 1 < sizeof fake.passes) fake.passes[n] = letter;
}

static const char *error_text(int error)
{
    return error == OUT_OF_MEMORY ? "out of memory" : "the launch failed";
}
static int count(int *n) { return *n = 2, 0; }
static int info(int device, struct cuda_info *to)
{
    *to = (struct cuda_info){ .name = "stand-in", .sm = 90, .n_sm = 100 + device };
    return 0;
}
static int  enter(int device, int *before) { return *before = 0, (void)device, 0; }
static void leave(int before) { (void)before; }
static int  alloc(void **memory, size_t bytes)
{
    if (++fake.n_alloc == fake.fail_alloc) return OUT_OF_MEMORY;
    *memory = test_alloc(bytes, 1);
    return 0;
}
static int release(void *memory) { return free(memory), 0; }
static int copy(void *to, const void *from, size_t bytes)
{
    return memcpy(to, from, bytes), 0;
}
static int wait(void *stream) { return (void)stream, 0; }
static int place(const void *memory, int *device)
{
    *device = 1;
    return memory == fake.host ? CUDA_ON_HOST : CUDA_ON_DEVICE;
}
static int stream_device(void *stream, int *device)
{
    *device = stream == fake.host ? 0 : -1;
    return 0;
}
static const char *exact_name(const struct cuda_exact *x, int what)
{
    return (void)x, what == CUDA_FORWARD ? "one" : "two";
}
static size_t exact_work_bytes(const struct cuda_exact *x, int what)
{
    return (void)x, what == CUDA_BACKWARD ? 4096 : 0;
}
static int launched(const struct cuda_exact *x, char letter)
{
    fake.last = *x;
    note(letter);
    return fake.fail_launch ? LAUNCH_FAILED : 0;
}
static int  forward(const struct cuda_exact *x) { return launched(x, 'F'); }
static int  backward(const struct cuda_exact *x) { return launched(x, 'B'); }
static void launches(struct cuda_launches *n) { *n = (struct cuda_launches){ 0 }; }
static int  seqs(const struct cuda_exact *x, const struct cuda_lengths *l,
                 struct cuda_seq *to)
{
    return (void)x, (void)l, (void)to, note('s'), 0;
}
static int clear(const struct cuda_exact *x, const struct cuda_out *rows, int heads,
                 int width, int element, int keys)
{
    return (void)x, (void)rows, (void)heads, (void)width, (void)element, (void)keys,
           note('c'), 0;
}
static int clear_lse(const struct cuda_exact *x) { return (void)x, note('l'), 0; }
static int zero(void *stream, void *at, size_t bytes)
{
    return (void)stream, memset(at, 0, bytes), note('z'), 0;
}
static int heads(void *stream, const struct cuda_factors *f, double by, int n,
                 float *out)
{
    return (void)stream, (void)f, (void)by, (void)n, (void)out, note('h'), 0;
}
static int rel(void *stream, const struct cuda_tables *t, int n, int64_t n_rel,
               int64_t rel0, float *to)
{
    return (void)stream, (void)t, (void)n, (void)n_rel, (void)rel0, (void)to, note('r'),
           0;
}
static int visible(const struct cuda_exact *x) { return (void)x, note('v'), 0; }
static int map(const struct cuda_exact *x, const struct cuda_map *m, int keys,
               const struct cuda_in *from, const struct cuda_out *to, int ld)
{
    return (void)x, (void)m, (void)from, (void)to, (void)ld, note(keys ? 'K' : 'Q'), 0;
}
static int map_back(const struct cuda_exact *x, const struct cuda_map *m, int keys,
                    const struct cuda_in *of, const struct cuda_in *d,
                    const struct cuda_out *to)
{
    return (void)x, (void)m, (void)of, (void)d, (void)to, note(keys ? 'k' : 'q'), 0;
}
static int bias_back(const struct cuda_exact *x, float *dbias)
{
    return (void)x, (void)dbias, note('b'), 0;
}
static int tables_back(const struct cuda_exact *x, const struct cuda_tables *t,
                       int64_t rel0, int first, int n, float *sums, float *dparams)
{
    return (void)x, (void)t, (void)rel0, (void)first, (void)n, (void)sums,
           (void)dparams, note('t'), 0;
}
static int sink_back(const struct cuda_exact *x, float *dparams, int64_t at)
{
    return (void)x, (void)dparams, (void)at, note('S'), 0;
}
static int factors_back(const struct cuda_exact *x, const struct cuda_factors *f,
                        double by, float *dparams)
{
    return (void)x, (void)f, (void)by, (void)dparams, note('f'), 0;
}

static const struct cuda_calls calls = {
    .version = FOCI_VERSION,
    .size = sizeof calls,
    .error_text = error_text,
    .count = count,
    .info = info,
    .enter = enter,
    .leave = leave,
    .alloc = alloc,
    .release = release,
    .copy = copy,
    .wait = wait,
    .place = place,
    .stream_device = stream_device,
    .exact_name = exact_name,
    .exact_work_bytes = exact_work_bytes,
    .exact_forward = forward,
    .exact_backward = backward,
    .exact_launches = launches,
    .seqs = seqs,
    .clear = clear,
    .clear_lse = clear_lse,
    .zero = zero,
    .heads = heads,
    .rel = rel,
    .visible = visible,
    .map = map,
    .map_back = map_back,
    .bias_back = bias_back,
    .tables_back = tables_back,
    .sink_back = sink_back,
    .factors_back = factors_back,
};

static foci_ctx *make_ctx(void)
{
    foci_ctx *ctx = test_ctx("portable", 1);
    memset(&fake, 0, sizeof fake);
    assert_int_equal(device_use(ctx, "cuda:1", &calls, NULL), FOCI_OK);
    return ctx;
}

/* Bytes between tensors of `small`, more than each has. */
enum { SPAN = 1 << 16 };

static const foci_problem small = { FOCI_SIZED(foci_problem),
                                    .dtype = FOCI_BF16,
                                    .batch = 2,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .len_q = 150,
                                    .len_k = 150,
                                    .dim_qk = 16,
                                    .dim_v = 24,
                                    .flags = FOCI_FLAG_CAUSAL | FOCI_FLAG_TRAIN };

static void names(void **state)
{
    static const char *const wrong[] = { "gpu",     "cuda:", "cuda:x",   "cuda:1x",
                                         "cuda:-1", "CUDA",  "cuda:4096" };
    foci_ctx                *ctx = test_ctx("portable", 1);
    foci_device              d = { FOCI_SIZED(foci_device) };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(device_use(ctx, wrong[i], &calls, NULL), FOCI_ERR_ARG);
    assert_int_equal(device_use(ctx, "cuda:2", &calls, NULL), FOCI_ERR_DEVICE);
    assert_string_equal(foci_errmsg(NULL), "device cuda:2: this machine has 2 devices");
    struct cuda_calls old = calls;
    old.version = "0.0.0";
    assert_int_equal(device_use(ctx, "cuda", &old, NULL), FOCI_ERR_DEVICE);
    assert_int_equal(foci_ctx_get_device(ctx, &d), FOCI_OK);
    assert_null(d.name);
    assert_int_equal(device_use(ctx, "cuda:1", &calls, NULL), FOCI_OK);
    d.size = sizeof d;
    assert_int_equal(foci_ctx_get_device(ctx, &d), FOCI_OK);
    assert_string_equal(d.name, "cuda:1");
    assert_string_equal(d.model, "stand-in");
    assert_int_equal(d.processors, 101);
    foci_ctx_free(ctx);
}

/* Without a driver, or without the library, there is no context, and a sentence. */
static void nobody(void **state)
{
    const foci_options options = { FOCI_SIZED(foci_options), .device = "cuda:1023" };
    foci_ctx          *ctx;

    (void)state;
    assert_int_equal(foci_ctx_create(&options, &ctx), FOCI_ERR_DEVICE);
    assert_null(ctx);
    assert_non_null(strstr(foci_errmsg(NULL), "device cuda:1023: "));
}

/* Tiles and masks, read as the kernels read them, show the pairs that mask() shows. */
static bool shown(const struct cuda_tiles *t, int64_t i, int64_t j, bool by_key)
{
    const int64_t row = (by_key ? j : i) / CUDA_TILE,
                  col = (by_key ? i : j) / CUDA_TILE;
    const int64_t         *first = by_key ? t->col0 : t->row0;
    const struct cuda_run *runs = by_key ? t->cols : t->rows;

    for (int64_t r = first[row]; r < first[row + 1]; r++) {
        if (col < runs[r].begin || col >= runs[r].end) continue;
        if (runs[r].mask < 0) return true;
        return by_key ? t->by_key[runs[r].mask][j % CUDA_TILE] >> i % CUDA_TILE & 1
                      : t->by_query[runs[r].mask][i % CUDA_TILE] >> j % CUDA_TILE & 1;
    }
    return false;
}

static void tables(void **state)
{
    static const char *const specs[] = { "local(window=40)", "blocklocal(block=24)",
                                         "bigbird(block=16)",
                                         "local(window=3, dilation=7)",
                                         "global(window=9, first=2)" };
    foci_ctx                *ctx = make_ctx();

    (void)state;
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        foci_plan               *plan = test_plan(ctx, specs[s], &small);
        const foci_mech         *m = &plan->stages[0].group->mech;
        const struct cuda_tiles *t = &plan->stages[0].device->x.tiles;

        assert_non_null(t->row0);
        for (int64_t i = 0; i < small.len_k; i++)
            for (int64_t j = 0; j < small.len_k; j++) {
                const bool want = m->def->mask(m, i, j / 64 * 64) >> j % 64 & 1;
                assert_int_equal(shown(t, i, j, false), want);
                assert_int_equal(shown(t, i, j, true), want);
            }
        foci_plan_free(plan);
    }
    foci_ctx_free(ctx);
}

static void refusals(void **state)
{
    static const struct {
        const char *spec, *text;
    } cases[] = {
        { "linear", "column 1: linear on cuda:1: only exact attention" },
        { "lsh", "column 1: lsh on cuda:1: labels" },
        { "pooled", "column 1: pooled on cuda:1: slots" },
        { "lowrank", "column 1: lowrank on cuda:1: projected rows" },
        { "softmax shaw", "column 1: shaw has no form on cuda:1" },
        { "2*softmax + 2*relu2 txl", "column 13: txl has no form on cuda:1" },
    };
    foci_ctx    *ctx = make_ctx();
    foci_plan   *plan;
    foci_problem wide = small;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(foci_plan_create(ctx, cases[i].spec, &small, &plan),
                         FOCI_ERR_UNSUP);
        if (!strstr(foci_errmsg(ctx), cases[i].text))
            fail_msg("%s: %s", cases[i].spec, foci_errmsg(ctx));
    }
    wide.dim_v = 257;
    assert_int_equal(foci_plan_create(ctx, "softmax", &wide, &plan), FOCI_ERR_UNSUP);
    wide.dim_v = 129;
    wide.dtype = FOCI_F32;
    assert_int_equal(foci_plan_create(ctx, "softmax", &wide, &plan), FOCI_ERR_UNSUP);

    foci_pool *pool;
    plan = test_plan(ctx, "softmax", &small);
    assert_int_equal(foci_pool_create(plan, 4, &pool), FOCI_ERR_UNSUP);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

/* What an execution launches. */
static void check_passes(foci_ctx *ctx, const char *spec, unsigned flags,
                         const char *forward_passes, const char *backward_passes)
{
    foci_problem p = small;
    p.flags |= flags;
    foci_plan *plan = test_plan(ctx, spec, &p);
    char       tensor[7 * SPAN] = "", *work = test_alloc(1, 64);
    foci_io    io = { FOCI_SIZED(foci_io),
                      .q = tensor,
                      .k = tensor,
                      .v = tensor,
                      .o = tensor + SPAN,
                      .work = work,
                      .saved = work,
                      .params = (const float *)work,
                      .bias = flags & FOCI_FLAG_BIAS ? (const float *)work : NULL };
    foci_grads g = { FOCI_SIZED(foci_grads),  .d_o = tensor + 2 * SPAN,
                     .dq = tensor + 3 * SPAN, .dk = tensor + 4 * SPAN,
                     .dv = tensor + 5 * SPAN, .dparams = (float *)work };

    memset(fake.passes, 0, sizeof fake.passes);
    assert_int_equal(foci_forward(plan, &io), FOCI_OK);
    assert_string_equal(fake.passes, forward_passes);
    memset(fake.passes, 0, sizeof fake.passes);
    assert_int_equal(foci_backward(plan, &io, &g), FOCI_OK);
    assert_string_equal(fake.passes, backward_passes);
    free(work);
    foci_plan_free(plan);
}

static void passes(void **state)
{
    foci_ctx *ctx = make_ctx();

    (void)state;
    check_passes(ctx, "softmax", 0, "F", "B");
    check_passes(ctx, "softmax alibi cap(5)", 0, "F", "B");
    check_passes(ctx, "softmax rope sink", 0, "QKF", "QKBqkS");
    check_passes(ctx, "softmax temper logn", 0, "hvF", "hvBf");
    check_passes(ctx, "relu2 t5", FOCI_FLAG_BIAS, "rvF", "rvBt");
    check_passes(ctx, "2*softmax + 2*local(window=9) qknorm", 0, "FhQKF", "BhQKBqkf");
    foci_ctx_free(ctx);
}

static void lengths(void **state)
{
    foci_ctx     *ctx = make_ctx();
    foci_plan    *plan = test_plan(ctx, "softmax", &small);
    const int32_t lens[2] = { 3, 4 };
    char          tensor[2 * SPAN] = "", *work = test_alloc(1, 64), text[200];
    foci_io       io = { FOCI_SIZED(foci_io), .q = tensor,  .k = tensor,  .v = tensor,
                         .o = tensor + SPAN,  .work = work, .len_q = lens };

    (void)state;
    assert_int_equal(foci_forward(plan, &io), FOCI_OK);
    assert_string_equal(fake.passes, "sclF");
    assert_ptr_equal(fake.last.stream, NULL);
    io.docs = lens;
    assert_int_equal(foci_forward(plan, &io), FOCI_ERR_ARG);
    io.docs = NULL;
    io.k = fake.host;
    assert_int_equal(foci_forward(plan, &io), FOCI_ERR_ARG);
    foci_io_check(plan, &io, NULL, text, sizeof text);
    assert_string_equal(text,
                        "io.k is memory of the host, and this plan runs on cuda:1");
    io.k = tensor;
    io.stream = fake.host;
    assert_int_equal(foci_forward(plan, &io), FOCI_ERR_ARG);
    foci_io_check(plan, &io, NULL, text, sizeof text);
    assert_string_equal(text, "io.stream is of cuda:0, and this plan runs on cuda:1");
    io.stream = tensor;
    fake.fail_launch = 1;
    assert_int_equal(foci_forward(plan, &io), FOCI_ERR_DEVICE);
    assert_ptr_equal(fake.last.stream, tensor);
    free(work);
    foci_plan_free(plan);

    plan = test_plan(ctx, "bigbird(block=16)", &small);
    assert_int_equal(foci_io_check(plan, &io, NULL, text, sizeof text), FOCI_ERR_ARG);
    assert_non_null(strstr(text, "the mask of bigbird depends on the length"));
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

/* Memory for programs that know no device; what fails leaves nothing behind. */
static void memory(void **state)
{
    foci_ctx   *ctx = make_ctx();
    foci_plan  *plan;
    void       *block;
    float       there[4] = { 0 };
    const float here[4] = { 1, 2, 3, 4 };

    (void)state;
    assert_int_equal(foci_device_alloc(ctx, sizeof here, &block), FOCI_OK);
    assert_int_equal(foci_device_write(ctx, block, here, sizeof here), FOCI_OK);
    assert_int_equal(foci_device_read(ctx, there, block, sizeof here), FOCI_OK);
    assert_memory_equal(here, there, sizeof here);
    assert_int_equal(foci_device_wait(ctx, NULL), FOCI_OK);
    foci_device_free(ctx, block, sizeof here);
    foci_device_free(ctx, NULL, 0);
    fake.fail_alloc = fake.n_alloc + 1;
    assert_int_equal(foci_device_alloc(ctx, 64, &block), FOCI_ERR_MEMORY);
    assert_string_equal(foci_errmsg(ctx),
                        "cuda:1: no memory for 64 bytes: out of memory");
    fake.fail_alloc = fake.n_alloc + 1;
    assert_int_equal(foci_plan_create(ctx, "local(window=9)", &small, &plan),
                     FOCI_ERR_MEMORY);
    assert_null(plan);
    foci_ctx_free(ctx);

    ctx = test_ctx("portable", 1); /* the same calls without a device */
    assert_int_equal(foci_device_alloc(ctx, sizeof here, &block), FOCI_OK);
    assert_int_equal(foci_device_write(ctx, block, here, sizeof here), FOCI_OK);
    assert_memory_equal(here, block, sizeof here);
    assert_int_equal(foci_device_wait(ctx, NULL), FOCI_OK);
    foci_device_free(ctx, block, sizeof here);
    foci_ctx_free(ctx);
}

static void words(void **state)
{
    foci_ctx  *ctx = make_ctx();
    foci_plan *plan = test_plan(ctx, "softmax rope", &small);
    char       text[2000];

    (void)state;
    foci_plan_describe(plan, text, sizeof text);
    assert_non_null(strstr(text, "on cuda:1, stand-in\n"));
    assert_non_null(strstr(text, "kernels  one forward, two backward on cuda:1\n"));
    assert_true(foci_plan_work_bytes(plan) >= 4096);
    assert_int_equal(foci_plan_saved_bytes(plan), 2 * 4 * 150 * sizeof(float));
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),    cmocka_unit_test(nobody), cmocka_unit_test(tables),
        cmocka_unit_test(refusals), cmocka_unit_test(passes), cmocka_unit_test(lengths),
        cmocka_unit_test(memory),   cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
