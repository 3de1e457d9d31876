/* alloc.c -- the n-th allocation fails, for every n, in everything that allocates: a
 * status, a message, nothing leaked, no file half written.
 *
 * Blocks of a context carry their size, so that what it says of a block it frees is
 * seen to be true.
 */
#define _XOPEN_SOURCE 700

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "foci/analyse.h"
#include "foci/file.h"
#include "foci/stats.h"
#include "support/failing.h"
#include "support/folder.h"
#include "support/sized.h"
#include "support/texts.h"
#include "support/trial.h"

static const foci_options options = { FOCI_SIZED(foci_options), .threads = 1,
                                      .alloc = sized_alloc };

static foci_ctx *make_ctx(void)
{
    foci_ctx *ctx = NULL;
    assert_int_equal(foci_ctx_create(&options, &ctx), FOCI_OK);
    return ctx;
}

/*
 * The harness
 */

struct scene {
    foci_ctx      *ctx;
    foci_plan     *plan;
    foci_pool     *pool;
    foci_state    *state;
    const char    *spec, *path;
    foci_problem   p;
    const foci_io *io;
    int            tolerated; /* allocations it can do without */
};

static void scene_plan(struct scene *s, const char *spec)
{
    if (foci_plan_create(s->ctx, spec, &s->p, &s->plan))
        fail_msg("%s: %s", spec, foci_errmsg(s->ctx));
}

static void scene_close(struct scene *s)
{
    foci_plan_free(s->plan);
    foci_ctx_free(s->ctx);
    assert_int_equal(failing_live(), 0);
}

/* What is tried once; it cleans up after itself if all went well. */
typedef foci_status scene_fn(struct scene *s);

/* Every n, once alone and once with all that follow.  The result is the number of
 * allocations. */
static int64_t every_failure(scene_fn *play, struct scene *s)
{
    const int64_t before = failing_live();
    int64_t       n_needed = 0;

    failing_at(0, false);
    assert_int_equal(play(s), FOCI_OK);
    n_needed = failing_count();
    assert_int_equal(failing_live(), before);

    for (int ever = 0; ever < 2; ever++)
        for (int64_t n = 1; n <= n_needed; n++) {
            ctx_fail(s->ctx, FOCI_OK, "%s", "");
            ctx_fail(NULL, FOCI_OK, "%s", "");
            failing_at(n, ever);
            const foci_status status = play(s);
            failing_at(0, false);
            assert_int_equal(failing_live(), before);
            if (status == FOCI_OK && n > n_needed - s->tolerated) continue;
            /* jansson reads a text that it has no room for as no text. */
            if (status != FOCI_ERR_FILE) assert_int_equal(status, FOCI_ERR_MEMORY);
            if (!s->io) assert_true(strlen(foci_errmsg(s->ctx)) > 5);
        }
    return n_needed;
}

/*
 * Contexts and plans
 */

static foci_status play_ctx(struct scene *s)
{
    foci_ctx *ctx = (foci_ctx *)s;
    TRY(foci_ctx_create(&options, &ctx));
    foci_ctx_free(ctx);
    return FOCI_OK;
}

static void contexts(void **state)
{
    struct scene s = { .ctx = NULL };
    (void)state;
    assert_int_equal(every_failure(play_ctx, &s), 1);
}

static foci_status play_register(struct scene *s)
{
    static const foci_mech_def mechs[] = {
        { FOCI_SIZED(foci_mech_def), .name = "own_one", .summary = "one", .reads = 7 },
        { FOCI_SIZED(foci_mech_def), .name = "own_two", .summary = "two", .reads = 7 },
    };
    foci_ctx   *ctx;
    foci_status status = foci_ctx_create(&options, &ctx);

    for (int i = 0; i < 2 && !status; i++) {
        status = foci_mechanism_register(ctx, &mechs[i]);
        if (status) ctx_fail(NULL, status, "%s", foci_errmsg(ctx));
    }
    for (int i = 0; i < 2 && !status; i++) {
        foci_plan         *plan;
        const foci_problem p = { FOCI_SIZED(foci_problem),
                                 .batch = 1,
                                 .heads = 1,
                                 .len_q = 1,
                                 .len_k = 1,
                                 .dim_qk = 1 };
        status = foci_plan_create(ctx, mechs[i].name, &p, &plan);
        foci_plan_free(plan);
        if (status) ctx_fail(NULL, status, "%s", foci_errmsg(ctx));
    }
    foci_ctx_free(ctx);
    (void)s;
    return status;
}

static void mechanisms(void **state)
{
    struct scene s = { .ctx = NULL };
    (void)state;
    assert_true(every_failure(play_register, &s) > 3);
}

static foci_status play_plan(struct scene *s)
{
    foci_plan        *plan = (foci_plan *)s;
    const foci_status status = foci_plan_create(s->ctx, s->spec, &s->p, &plan);
    if (status) assert_null(plan);
    foci_plan_free(plan);
    return status;
}

/* Masks of many kinds, parameters, mixes, long lists of tiles. */
static void plans(void **state)
{
    static const char *const specs[] = {
        "softmax",
        "softmax sink cap(3) temper logn",
        "3*softmax sink + 2*relu2 temper qknorm + l2norm",
        "test_window(window=100, first=3)",
        "test_chance",
        "2*test_chance(percent=3) sink + 6*test_window + 1*relu2(4)",
        "8L",
    };
    struct scene         s = { .ctx = make_ctx(),
                               .p = { FOCI_SIZED(foci_problem), .batch = 2, .len_q = 2100,
                                      .len_k = 2100, .dim_qk = 8, .flags = FOCI_FLAG_TRAIN } };
    static const int64_t heads[] = { 1, 4, 6, 1, 1, 9, 8 };

    (void)state;
    specs_register(s.ctx);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        s.spec = specs[i];
        s.p.heads = heads[i];
        assert_true(every_failure(play_plan, &s) > 2);
    }
    foci_ctx_free(s.ctx);
    assert_int_equal(failing_live(), 0);
}

/*
 * Parameters
 */

static void square(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)arg;
    shape[0] = m->dims.qk;
    shape[1] = m->dims.qk;
}

static const foci_tensor_def tensors[] = {
    { .name = "frame",
      .n_dims = 2,
      .shape = square,
      .init = FOCI_INIT_ORTHOGONAL,
      .stream = 3 },
    { .name = "spread",
      .n_dims = 2,
      .shape = square,
      .init = FOCI_INIT_NORMAL,
      .value = 2,
      .stream = 3 },
};

static const foci_mech_def owner = {
    FOCI_SIZED(foci_mech_def), .name = "owner",
    .summary = "has tensors",  .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .tensors = tensors,        .n_tensors = 2,
};

static foci_status play_params(struct scene *s)
{
    float params[256];
    assert_in_range(foci_plan_param_floats(s->plan), 1, 256);
    return foci_params_init(s->plan, 5, params);
}

static void parameters(void **state)
{
    struct scene s = { .ctx = make_ctx(),
                       .p = { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2,
                              .len_q = 3, .len_k = 3, .dim_qk = 4 } };

    (void)state;
    assert_int_equal(foci_mechanism_register(s.ctx, &owner), FOCI_OK);
    scene_plan(&s, "owner");
    assert_true(every_failure(play_params, &s) > 0);
    scene_close(&s);
}

/* Statistics, and fresh directions with statistics anew. */
static foci_status play_moves(struct scene *s)
{
    float params[256];
    assert_in_range(foci_plan_param_floats(s->plan), 1, 256);
    memcpy(params, s->io->params,
           (size_t)foci_plan_param_floats(s->plan) * sizeof *params);
    TRY(foci_params_calibrate(s->plan, s->io, params));
    foci_io known = *s->io;
    known.params = params;
    return foci_params_advance(s->plan, &known, params);
}

static void moves(void **state)
{
    static const float       x[24] = { 1, 2, 3 };
    static _Alignas(64) char work[1 << 18];
    float                    o[24], params[256];
    const foci_io io = { FOCI_SIZED(foci_io), .q = x,          .k = x, .v = x, .o = o,
                         .work = work,        .params = params };
    struct scene  s = { .ctx = make_ctx(),
                        .io = &io,
                        .p = { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2,
                               .len_q = 3, .len_k = 3, .dim_qk = 4 } };

    (void)state;
    scene_plan(&s, "performer(kind=favor++, redraw=1)");
    assert_in_range(foci_plan_work_bytes(s.plan), 0, sizeof work);
    assert_int_equal(foci_params_init(s.plan, 5, params), FOCI_OK);
    assert_int_equal(every_failure(play_moves, &s), 4);
    scene_close(&s);
}

/*
 * Decoding
 */

static foci_status play_pool(struct scene *s)
{
    foci_pool  *pool = (foci_pool *)s;
    foci_status status = foci_pool_create(s->plan, 3, &pool);
    if (status) assert_null(pool);
    if (!status) status = foci_pool_grow(pool, 5);
    if (pool) assert_int_equal(foci_pool_page_count(pool), status ? 3 : 8);
    foci_pool_free(pool);
    return status;
}

static foci_status play_state(struct scene *s)
{
    foci_state *one, *two = NULL, *three = NULL;
    char        saved[1 << 14];
    foci_status status = foci_state_create(s->pool, &one);
    if (!status) status = foci_state_copy(s->state, &two);
    if (!status) {
        const size_t n = foci_state_save(s->state, saved, sizeof saved);
        assert_in_range(n, 1, sizeof saved);
        status = foci_state_restore(s->pool, saved, n, &three);
    }
    foci_state_free(one);
    foci_state_free(two);
    foci_state_free(three);
    return status;
}

static const float zeros[1 << 14]; /* whatever tensor or parameters */

static foci_status play_step(struct scene *s)
{
    float         o[200];
    const int32_t tokens = 100;
    foci_state   *copy;
    foci_state   *it;
    foci_step_io  io = { FOCI_SIZED(foci_step_io),
                         .states = &it,
                         .n_states = 1,
                         .tokens = &tokens,
                         .q = zeros,
                         .k = zeros,
                         .v = zeros,
                         .x = zeros,
                         .o = o,
                         .params = zeros };

    TRY(foci_state_copy(s->state, &copy));
    it = copy;
    io.work = aligned_alloc(64, foci_step_work_bytes(s->pool, 1, 100, 200));
    foci_status status = FOCI_ERR_MEMORY;
    if (io.work)
        status = foci_step(s->pool, &io);
    else
        ctx_fail(s->ctx, status, "no memory");
    if (status) assert_int_equal(foci_state_len(copy), 2);
    free(io.work);
    foci_state_free(copy);
    return status;
}

static void decode(const char *spec)
{
    float         o[4];
    const int32_t tokens = 2;
    struct scene  s = { .ctx = make_ctx(),
                        .p = { FOCI_SIZED(foci_problem), .batch = 1, .heads = 1,
                               .len_q = 3, .len_k = 3, .dim_qk = 2, .dim_x = 2,
                               .flags = FOCI_FLAG_CAUSAL } };

    scene_plan(&s, spec);
    assert_in_range(foci_plan_param_floats(s.plan), 0, sizeof zeros / sizeof *zeros);
    assert_true(every_failure(play_pool, &s) >= 7);

    assert_int_equal(foci_pool_create(s.plan, 20, &s.pool), FOCI_OK);
    assert_int_equal(foci_state_create(s.pool, &s.state), FOCI_OK);
    const foci_step_io io = { FOCI_SIZED(foci_step_io),
                              .states = &s.state,
                              .n_states = 1,
                              .tokens = &tokens,
                              .q = zeros,
                              .k = zeros,
                              .v = zeros,
                              .x = zeros,
                              .o = o,
                              .params = zeros,
                              .work = aligned_alloc(
                                  64, foci_step_work_bytes(s.pool, 1, 2, 2)) };
    assert_int_equal(foci_step(s.pool, &io), FOCI_OK);
    const int64_t left = foci_pool_free_count(s.pool);
    assert_true(every_failure(play_state, &s) >= 3);
    assert_true(every_failure(play_step, &s) >= 2);
    assert_int_equal(foci_pool_free_count(s.pool), left);

    free(io.work);
    foci_state_free(s.state);
    foci_pool_free(s.pool);
    scene_close(&s);
}

static void decoding(void **state)
{
    (void)state;
    decode("softmax t5 rope");
    decode("local(window=3)");
    decode("pooled(block=4, levels=2)");
    decode("linear rope");
    decode("performer(features=4)");
    decode("sparse_fixed(stride=4)");
    decode("lsh(buckets=2, rounds=2)");
    decode("strided(stride=3)");
    decode("routed(inner=pooled(block=4))");
    decode("segmented(length=4, integrate=second)");
}

/*
 * Files
 */

static char folder[64];

static const int64_t shape[] = { 2, 3 };
static const float   data[] = { 1, 2, 3, 4, 5, 6 };

static foci_status play_npy(struct scene *s)
{
    const int         there = folder_entries(folder);
    const foci_status status = foci_npy_write(s->ctx, s->path, 2, shape, data);
    assert_int_equal(folder_entries(folder), status ? there : 1);
    return status;
}

static foci_status play_tensors(struct scene *s)
{
    const foci_named named[] = { { "one", 2, shape, data }, { "two", 1, shape, data } };
    const int        there = folder_entries(folder);
    const foci_status status = foci_safetensors_write(s->ctx, s->path, named, 2);
    assert_int_equal(folder_entries(folder), status ? there : 1);
    return status;
}

/* Whole, whether an earlier run wrote it or a later one. */
static foci_status play_open(struct scene *s)
{
    foci_file  *file = (foci_file *)s;
    foci_status status = foci_file_open(s->ctx, s->path, &file);
    if (status) {
        assert_null(file);
        return status;
    }
    for (int i = 0; i < foci_file_count(file); i++) {
        foci_array a = { FOCI_SIZED(foci_array) };
        float      x[6];
        assert_int_equal(foci_file_array(file, i, &a), FOCI_OK);
        assert_in_range(a.count, 1, 6);
        foci_array_to_f32(&a, x);
        assert_memory_equal(x, data, (size_t)a.count * sizeof *x);
    }
    foci_file_free(file);
    return FOCI_OK;
}

static void files(void **state)
{
    scene_fn *const writers[] = { play_npy, play_tensors };
    char            path[96];
    struct scene    s = { .ctx = make_ctx(), .path = path };

    (void)state;
    snprintf(folder, sizeof folder, "/tmp/foci-alloc-XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, i);
        s.tolerated = 1; /* the name of the folder, which is synced */
        assert_true(every_failure(writers[i], &s) >= 3); /* the last run left it */
        assert_true(every_failure(writers[i], &s) >= 3);
        s.tolerated = 0;
        assert_true(every_failure(play_open, &s) >= 3);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
    foci_ctx_free(s.ctx);
}

/*
 * The judge
 */

static foci_status play_judge(struct scene *s)
{
    float            weights[9], d[12], dparams[2];
    const foci_grads grads = {
        FOCI_SIZED(foci_grads), .d_o = s->io->q, .dq = d, .dk = d, .dv = d,
        .dparams = dparams
    };

    TRY(foci_ref_forward(s->plan, s->io));
    TRY(foci_ref_backward(s->plan, s->io, &grads));
    return foci_ref_weights(s->plan, s->io, weights);
}

static void judge(void **state)
{
    static const float x[12] = { 1, 2, 3 };
    float              o[12], lse[3], params[1] = { 0 };
    const foci_io io = { FOCI_SIZED(foci_io), .q = x,          .k = x, .v = x, .o = o,
                         .lse = lse,          .params = params };
    struct scene  s = { .ctx = make_ctx(),
                        .io = &io,
                        .p = { FOCI_SIZED(foci_problem), .batch = 1, .heads = 1,
                               .len_q = 3, .len_k = 3, .dim_qk = 4,
                               .flags = FOCI_FLAG_TRAIN } };

    (void)state;
    scene_plan(&s, "softmax sink");
    assert_true(every_failure(play_judge, &s) > 40);
    scene_close(&s);
}

static foci_status play_estimator(struct scene *s)
{
    static const double     x[8] = { 0.5, 0, 0.25, 1, 0, 0, 1, 0.5 };
    double                  mean[2], variance[2];
    float                   params[2 * 4 * 4 * 8] = { 0 };
    const foci_estimator_io io = {
        FOCI_SIZED(foci_estimator_io), .n = 2, .x = x, .y = x, .draws = 2, .mean = mean,
        .variance = variance
    };

    TRY(foci_estimator_calibrate(s->plan, &io, params));
    return foci_estimator_run(s->plan, &io);
}

static void estimators(void **state)
{
    struct scene s = { .ctx = make_ctx(),
                       .p = { FOCI_SIZED(foci_problem), .batch = 1, .heads = 1,
                              .len_q = 3, .len_k = 3, .dim_qk = 4 } };

    (void)state;
    scene_plan(&s, "performer(kind=aderf)");
    assert_int_equal(every_failure(play_estimator, &s), 2);
    scene_close(&s);
}

static foci_status play_errors(struct scene *s)
{
    static _Alignas(64) char work[1 << 16];
    static const float       x[3 * 4] = { 1, 0, 2, 1 };
    float                    o[3 * 4];
    double                   error;
    const foci_io            io = { FOCI_SIZED(foci_io), .q = x, .k = x, .v = x, .o = o,
                                    .work = work };

    if (foci_plan_work_bytes(s->plan) > sizeof work) return FOCI_ERR_FULL;
    return foci_softmax_errors(s->plan, &io, &error);
}

static void errors(void **state)
{
    struct scene s = { .ctx = make_ctx(),
                       .p = { FOCI_SIZED(foci_problem), .batch = 1, .heads = 1,
                              .len_q = 3, .len_k = 3, .dim_qk = 4 } };

    (void)state;
    scene_plan(&s, "relu2");
    assert_true(every_failure(play_errors, &s) > 1);
    scene_close(&s);
}

static foci_status play_heads(struct scene *s)
{
    static const float       x[3 * 4];
    const foci_heads_options o = { FOCI_SIZED(foci_heads_options), .heads = 1 };
    const foci_io            io = { FOCI_SIZED(foci_io), .q = x, .k = x, .v = x };
    foci_heads              *h;
    double                   error;

    foci_status status = foci_heads_create(s->ctx, &o, &h);
    if (!status) status = foci_heads_add(h, s->plan, &io);
    foci_heads_free(h);
    if (!status) status = foci_softmax_weight_errors(s->plan, &io, 2, &error);
    return status;
}

static void heads(void **state)
{
    struct scene s = { .ctx = make_ctx(),
                       .p = { FOCI_SIZED(foci_problem), .batch = 1, .heads = 1,
                              .len_q = 3, .len_k = 3, .dim_qk = 4 } };

    (void)state;
    scene_plan(&s, "relu2");
    assert_true(every_failure(play_heads, &s) > 5);
    scene_close(&s);
}

static foci_status play_limits(struct scene *s)
{
    foci_limit limits[] = { { .dim = 3 }, { .kind = 2, .tied = 1, .dim = 4 } };
    const foci_limits_io io = {
        FOCI_SIZED(foci_limits_io), .width = 4,   .heads = 2, .draws = 2, .rows = 2,
        .limits = limits,           .n_limits = 2
    };

    return foci_limits_run(s->ctx, &io);
}

static void limits(void **state)
{
    struct scene s = { .ctx = make_ctx() };

    (void)state;
    assert_true(every_failure(play_limits, &s) > 4);
    foci_ctx_free(s.ctx);
}

static foci_status play_orthogonality(struct scene *s)
{
    foci_figure                 figures[FOCI_FIGURE_COUNT];
    foci_distortion             distortions[2] = { { .dim = 2 }, { .dim = 6 } };
    const foci_orthogonality_io io = { FOCI_SIZED(foci_orthogonality_io),
                                       .width = 6,
                                       .draws = 2,
                                       .rows = 3,
                                       .figures = figures,
                                       .distortions = distortions,
                                       .n_distortions = 2 };

    return foci_orthogonality_run(s->plan, &io);
}

static void orthogonality(void **state)
{
    static const char *const specs[] = { "orthogonal", "softmax frozen(hadamard)" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct scene s = { .ctx = make_ctx(),
                           .p = { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2,
                                  .len_q = 1, .len_k = 1, .dim_qk = 3 } };

        scene_plan(&s, specs[i]);
        assert_true(every_failure(play_orthogonality, &s) > 10);
        scene_close(&s);
    }
}

/* Measuring takes seconds when it gets what it wants. */
static void measuring(void **state)
{
    foci_ctx    *ctx = make_ctx();
    foci_machine machine = { FOCI_SIZED(foci_machine) };
    const int    n = getenv("FOCI_TEST_SHORT") ? 1 : 2;

    (void)state;
    for (int i = 1; i <= n; i++) {
        const int64_t before = failing_live();
        failing_at(i, true);
        assert_int_equal(foci_ctx_measure(ctx, &machine), FOCI_ERR_MEMORY);
        failing_at(0, false);
        assert_non_null(strstr(foci_errmsg(ctx), "no memory"));
        assert_int_equal(failing_live(), before);
    }
    foci_ctx_free(ctx);
}

/*
 * Texts
 */

/* Encode and decode. */
static foci_status use_tokenizer(const foci_tokenizer *t)
{
    const foci_string text = { "abc<eos>abd \xff xyz", 17 };
    foci_decoder      d = { FOCI_SIZED(foci_decoder) };
    foci_encoder     *e;
    int32_t           ids[64];
    char              back[256];
    int64_t           offsets[2], bytes;

    TRY(foci_encoder_create(t, &e));
    const foci_status status = foci_encode(e, &text, 1, 0, ids, 64, offsets);
    foci_encoder_free(e);
    TRY(status);
    return foci_decode(t, &d, ids, offsets[1], FOCI_DECODE_END, back, sizeof back,
                       &bytes);
}

static foci_status play_train(struct scene *s)
{
    struct memory_text m = { .text = "abc abc abd\nabd \xff x\n",
                             .bytes = 20,
                             .piece = 5 };
    const foci_reader  reader = memory_reader(&m);
    foci_tokenizer    *t;

    TRY(foci_tokenizer_train(s->ctx, s->spec, NULL, &reader, 1, &t));
    foci_status status = use_tokenizer(t);
    if (!status) status = foci_tokenizer_save(t, s->path);
    foci_tokenizer_free(t);
    return status;
}

static foci_status play_load(struct scene *s)
{
    foci_tokenizer *t;

    TRY(foci_tokenizer_load(s->ctx, s->path, &t));
    foci_tokenizer_free(t);
    return FOCI_OK;
}

static void tokenizers(void **state)
{
    static const char *const kinds[] = { "bytes", "chars", "words", "bpe:262" };
    char                     path[] = "/tmp/foci-alloc-XXXXXX";
    struct scene             s = { .ctx = make_ctx(), .path = path };

    (void)state;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        s.spec = kinds[i];
        s.tolerated = 1; /* the name of the directory that is synced */
        assert_true(every_failure(play_train, &s) > 20);
        s.tolerated = 0;
        assert_true(every_failure(play_load, &s) > 20);
    }
    unlink(path);
    scene_close(&s);
}

/* A long word, what is put before it, and the merges of a file of another library. */
static foci_status play_file(struct scene *s)
{
    static const char json[] =
        "{\"added_tokens\": [{\"id\": 3, \"content\": \"zz\"}], "
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true}, "
        "\"decoder\": {\"type\": \"ByteLevel\"}, "
        "\"model\": {\"vocab\": {\"a\": 0, \"aa\": 1, \"aaaa\": 2}, "
        "\"merges\": [\"a a\", [\"aa\", \"aa\"]]}}";
    static char       word[100];
    const foci_string text = { memset(word, 'a', sizeof word), sizeof word };
    foci_tokenizer   *t;
    foci_encoder     *e;
    int32_t           ids[256];
    int64_t           offsets[2];

    TRY(foci_tokenizer_parse(s->ctx, "a file", json, sizeof json - 1, &t));
    foci_status status = foci_encoder_create(t, &e);
    if (!status) status = foci_encode(e, &text, 1, 0, ids, 256, offsets);
    if (!status) assert_int_equal(offsets[1], 25);
    foci_encoder_free(e);
    foci_tokenizer_free(t);
    return status;
}

static void tokenizer_files(void **state)
{
    struct scene s = { .ctx = make_ctx() };

    (void)state;
    assert_true(every_failure(play_file, &s) > 10);
    scene_close(&s);
}

static foci_status play_scores(struct scene *s)
{
    const foci_string a = { "the cat, a dog", 14 }, b = { "the dog, a cat.", 15 };
    foci_bleu_counts  bleu = { .length = 0 };
    foci_chrf_counts  chrf = { .match = { 0 } };

    TRY(foci_bleu_add(s->ctx, a, b, &bleu));
    return foci_chrf_add(s->ctx, a, b, &chrf);
}

static void scores(void **state)
{
    struct scene s = { .ctx = make_ctx() };

    (void)state;
    assert_true(every_failure(play_scores, &s) > 5);
    scene_close(&s);
}

static foci_status play_statistics(struct scene *s)
{
    const double         a[] = { 1, 2, 4, 7 }, b[] = { 0.1, 0.2, 0.3, 0.3 };
    const foci_sentences sentences = { FOCI_SIZED(foci_sentences),
                                       .n = 2,
                                       .n_counts = FOCI_RATIO_N_COUNTS,
                                       .a = a,
                                       .b = b,
                                       .score = foci_score_ratio };
    foci_summary         summary = { FOCI_SIZED(foci_summary) };
    foci_pairs           pairs = { FOCI_SIZED(foci_pairs) };
    foci_bootstrap       bootstrap = { FOCI_SIZED(foci_bootstrap) };
    double               adjusted[4];

    TRY(foci_summary_of(s->ctx, a, 4, 0, &summary));
    TRY(foci_pairs_test(s->ctx, a, b, 4, NULL, &pairs));
    TRY(foci_holm(s->ctx, b, 4, adjusted));
    return foci_sentences_bootstrap(s->ctx, &sentences, &bootstrap);
}

static void statistics(void **state)
{
    struct scene s = { .ctx = make_ctx() };

    (void)state;
    assert_int_equal(every_failure(play_statistics, &s), 5);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts),   cmocka_unit_test(mechanisms),
        cmocka_unit_test(plans),      cmocka_unit_test(parameters),
        cmocka_unit_test(decoding),   cmocka_unit_test(files),
        cmocka_unit_test(judge),      cmocka_unit_test(estimators),
        cmocka_unit_test(measuring),  cmocka_unit_test(moves),
        cmocka_unit_test(errors),     cmocka_unit_test(orthogonality),
        cmocka_unit_test(heads),      cmocka_unit_test(limits),
        cmocka_unit_test(tokenizers), cmocka_unit_test(tokenizer_files),
        cmocka_unit_test(scores),     cmocka_unit_test(statistics),
    };
    failing_json();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
