/* mechanisms.c -- descriptors: the built-in ones are sound, those of a program are
 * checked as they come in. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"

static int make_ctx(void **state) { return foci_ctx_create(NULL, (foci_ctx **)state); }

static int free_ctx(void **state)
{
    foci_ctx_free(*state);
    return 0;
}

static void test_lists(void **state)
{
    const char *meaning;
    int         n = 0;

    for (; foci_mechanism(*state, n); n++) {
        const foci_mech_def *def = foci_mechanism(*state, n);
        assert_ptr_equal(def, mech_list[n]);
        assert_true(def->summary && def->formula && def->source && def->cost);
        for (size_t a = 0; a < def->n_args; a++)
            assert_non_null(def->args[a].help);
        for (size_t t = 0; t < def->n_tensors; t++)
            assert_non_null(def->tensors[t].help);
    }
    assert_true(n >= 3);
    assert_null(mech_list[n]);
    assert_null(foci_mechanism(*state, -1));
    assert_ptr_equal(foci_mechanism(NULL, 0), mech_list[0]);
    assert_null(foci_mechanism(NULL, n));

    for (n = 0; foci_modifier(*state, n); n++) {
        const foci_mod_def *def = foci_modifier(*state, n);
        assert_true(def->summary && def->formula && def->source);
        assert_true(def->does || def->row_factor);
        if (def->does & (FOCI_MOD_FACTOR | FOCI_MOD_SINK))
            assert_true(def->n_tensors > 0);
        if (def->does & (FOCI_MOD_SCALE | FOCI_MOD_CAP)) assert_true(def->n_args > 0);
        for (size_t a = 0; a < def->n_args; a++)
            assert_non_null(def->args[a].help);
    }
    assert_true(n >= 6);
    assert_null(foci_modifier(*state, -1));

    assert_string_equal(foci_alias(4, &meaning), "8L");
    assert_string_equal(meaning, "8*softmax");
    assert_null(foci_alias(-1, &meaning));
    assert_null(foci_alias(100, &meaning));
}

/* What a program may bring, the library's own must be too: under another name they
 * pass the same checks. */
static void test_own_rules(void **state)
{
    foci_mech_def copies[64];
    char          names[64][64];
    foci_ctx     *ctx;
    (void)state;

    assert_int_equal(foci_ctx_create(NULL, &ctx), FOCI_OK);
    int n = 0;
    for (; n < 64 && mech_list[n]; n++) {
        copies[n] = *mech_list[n];
        snprintf(names[n], sizeof names[n], "my_%s", mech_list[n]->name);
        copies[n].name = names[n];
        if (foci_mechanism_register(ctx, &copies[n])) fail_msg("%s", foci_errmsg(ctx));
    }
    for (int i = 0; mech_list[i] && i < n; i++) {
        struct spec spec;
        assert_int_equal(spec_parse(ctx, names[i], &spec), FOCI_OK);
        assert_string_equal(spec.groups[0].mech.def->name, names[i]);
        spec_free(ctx, &spec);
    }
    foci_ctx_free(ctx);
}

/* Modifiers have the same kinds of arguments and tensors as mechanisms. */
static void test_modifier_rules(void **state)
{
    foci_ctx *ctx;
    char      name[64];
    (void)state;

    for (int i = 0; mod_list[i]; i++) {
        snprintf(name, sizeof name, "my_%s", mod_list[i]->name);
        const foci_mech_def def = {
            FOCI_SIZED(foci_mech_def),
            .name = name,
            .summary = "",
            .args = mod_list[i]->args,
            .n_args = mod_list[i]->n_args,
            .tensors = mod_list[i]->tensors,
            .n_tensors = mod_list[i]->n_tensors,
            .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
        };
        assert_int_equal(foci_ctx_create(NULL, &ctx), FOCI_OK);
        if (foci_mechanism_register(ctx, &def)) fail_msg("%s", foci_errmsg(ctx));
        foci_ctx_free(ctx);
    }
}

/* Faulty descriptors */

static double   count(const foci_mech *m) { return m->arg[0]; }
static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    return (uint64_t)(m->arg[0] + (double)i + (double)j0);
}
static void tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    (void)m;
    foci_tiles_cover(out, rows, rows);
}
static void shape(const foci_mech *m, const double *arg, int64_t *s)
{
    (void)arg;
    s[0] = m->dims.qk;
}

#define ARGS(...)                                                                      \
    .args = (const foci_arg_def[]){ __VA_ARGS__ },                                     \
    .n_args = sizeof((const foci_arg_def[]){ __VA_ARGS__ }) / sizeof(foci_arg_def)
#define TENSORS(...)                                                                   \
    .tensors = (const foci_tensor_def[]){ __VA_ARGS__ },                               \
    .n_tensors =                                                                       \
        sizeof((const foci_tensor_def[]){ __VA_ARGS__ }) / sizeof(foci_tensor_def)
#define QKV                                                                            \
    .size = sizeof(foci_mech_def), .summary = "",                                      \
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V

static const struct {
    foci_mech_def def;
    const char   *says;
} faulty[] = {
    { { QKV }, "mechanism \"\": a name is a letter" },
    { { .name = "", QKV }, "a name is a letter" },
    { { .name = "2x", QKV }, "mechanism \"2x\": a name" },
    { { .name = "a b", QKV }, "a name is a letter" },
    { { .name = "a+b", QKV }, "a name is a letter" },
    { { .name = "abcdefghijklmnopqrstuvwxyzabcdef", QKV }, "31 at most" },
    { { .name = "softmax", QKV }, "softmax: the name is taken" },
    { { .name = "cap", QKV }, "cap: the name is taken" },
    { { .name = "orthogonal", QKV }, "orthogonal: the name is taken" },
    { { FOCI_SIZED(foci_mech_def), .name = "m", .reads = 7 }, "a summary is wanted" },
    { { .name = "m", QKV, .engine = FOCI_ENGINE_LINEAR }, "needs the features" },
    { { .name = "m", QKV, .engine = FOCI_ENGINE_POSITIONAL }, "needs a pattern" },
    { { .name = "m", QKV, .engine = FOCI_ENGINE_NYSTROM },
      "landmarks need their number" },
    { { .name = "m", QKV, .engine = FOCI_ENGINE_MEMFORMER }, "need their number" },
    { { .name = "m", QKV, .engine = (foci_engine)9 }, "its engine is unknown" },
    { { FOCI_SIZED(foci_mech_def), .name = "m", .summary = "" },
      "reads must name q, k and v" },
    { { FOCI_SIZED(foci_mech_def), .name = "m", .summary = "",
        .reads = FOCI_READ_Q | FOCI_READ_V },
      "reads must name" },
    { { FOCI_SIZED(foci_mech_def), .name = "m", .summary = "", .reads = 7 | 64 },
      "reads must name" },
    { { .name = "m", QKV, .weigh = (foci_weigh)9 }, "weigh is unknown" },
    { { .name = "m", QKV, .weigh = FOCI_WEIGH_RELU2, .stochastic = true },
      "only softmax weights sum" },
    { { .name = "m", QKV, .divisor = count }, "only relu2 weights" },
    { { .name = "m", QKV, .tiles = tiles }, "tiles need a mask" },
    { { .name = "m", QKV, .n_args = 13, .args = (const foci_arg_def[13]){ { 0 } } },
      "13 arguments" },
    { { .name = "m", QKV, .n_args = 1 }, "1 arguments" },
    { { .name = "m", QKV, ARGS({ .max = 1 }) }, "argument 0 has no proper name" },
    { { .name = "m", QKV, ARGS({ .name = "a=" }) }, "argument 0 has no proper name" },
    { { .name = "m", QKV, ARGS({ .name = "a" }, { .name = "a" }) },
      "two arguments are called a" },
    { { .name = "m", QKV, ARGS({ .name = "a", .min = 1 }) },
      "argument a has bounds that hold nothing" },
    { { .name = "m", QKV, ARGS({ .name = "a", .max = INFINITY }) },
      "has bounds that hold nothing" },
    { { .name = "m", QKV, ARGS({ .name = "a", .max = NAN }) },
      "has bounds that hold nothing" },
    { { .name = "m", QKV, ARGS({ .name = "a", .max = 0.5 }) },
      "is whole with bounds that are not" },
    { { .name = "m", QKV, ARGS({ .name = "a", .max = 1e17 }) },
      "is whole with bounds that are not" },
    { { .name = "m", QKV, ARGS({ .name = "a", .max = 5, .preset = 6 }) },
      "preset out of its bounds" },
    { { .name = "m", QKV, ARGS({ .name = "a", .max = 5, .preset = 0.5 }) },
      "preset that is not" },
    { { .name = "m", QKV, ARGS({ .name = "a", .choices = "" }) }, "malformed choices" },
    { { .name = "m", QKV, ARGS({ .name = "a", .choices = "x||y" }) },
      "malformed choices" },
    { { .name = "m", QKV, ARGS({ .name = "a", .choices = "x|y|" }) },
      "malformed choices" },
    { { .name = "m", QKV, ARGS({ .name = "a", .choices = "x|y,z" }) },
      "malformed choices" },
    { { .name = "m", QKV, ARGS({ .name = "a", .choices = "x|y", .preset = 2 }) },
      "preset out of" },
    { { .name = "m",
        QKV,
        ARGS({ .name = "a", .mech = true }, { .name = "b", .mech = true }) },
      "2 arguments are mechanisms" },
    { { .name = "m",
        QKV,
        .n_tensors = 17,
        .tensors = (const foci_tensor_def[17]){ { 0 } } },
      "17 tensors" },
    { { .name = "m", QKV, .n_tensors = 1 }, "1 tensors" },
    { { .name = "m", QKV, TENSORS({ .help = "" }) }, "tensor 0 has no proper name" },
    { { .name = "m", QKV, TENSORS({ .name = "t" }, { .name = "t" }) },
      "two tensors are called t" },
    { { .name = "m", QKV, TENSORS({ .name = "t", .n_dims = 4, .shape = shape }) },
      "0 to 3" },
    { { .name = "m", QKV, TENSORS({ .name = "t", .n_dims = -1 }) }, "0 to 3" },
    { { .name = "m", QKV, TENSORS({ .name = "t", .n_dims = 1 }) },
      "dimensions without shape" },
    { { .name = "m", QKV, TENSORS({ .name = "t", .shape = shape }) },
      "shape without dimensions" },
    { { .name = "m", QKV, TENSORS({ .name = "t", .init = (foci_init)7 }) },
      "unknown kind of start" },
    { { .name = "m", QKV, TENSORS({ .name = "t", .preset = 1 }) },
      "argument that is not there" },
    { { .name = "m", QKV, TENSORS({ .name = "t", .preset = -1 }) },
      "argument that is not there" },
    { { .name = "m",
        QKV,
        ARGS({ .name = "a" }),
        TENSORS({ .name = "t", .preset = 1, .init = FOCI_INIT_NORMAL }) },
      "but is drawn" },
    { { .name = "m", QKV, TENSORS({ .name = "t", .value = NAN }) }, "impossible value" },
    { { .name = "m",
        QKV,
        TENSORS({ .name = "t", .init = FOCI_INIT_NORMAL, .value = -1 }) },
      "impossible value" },
    { { .name = "m", QKV, TENSORS({ .name = "t", .init = FOCI_INIT_ORTHOGONAL }) },
      "without being a matrix" },
    { { .name = "m", QKV, TENSORS({ .name = "t", .keep = (foci_keep)5 }) },
      "neither frozen" },
    { { .name = "m", QKV, TENSORS({ .name = "t", .role = FOCI_ROLE_MIX + 1 }) },
      "unknown role" },
    { { .name = "m", QKV, TENSORS({ .name = "t", .role = FOCI_ROLE_R }) },
      "another number of dimensions" },
};

static void test_faulty(void **state)
{
    for (size_t i = 0; i < sizeof faulty / sizeof *faulty; i++) {
        const foci_status want = FOCI_ERR_ARG;
        const foci_status got = foci_mechanism_register(*state, &faulty[i].def);
        if (got != want || !strstr(foci_errmsg(*state), faulty[i].says))
            fail_msg("%d, %s; expected %d, %s", got, foci_errmsg(*state), want,
                     faulty[i].says);
    }
    assert_int_equal(foci_mechanism_register(*state, NULL), FOCI_ERR_ARG);

    /* None was let in, and the name is still free, once. */
    const foci_mech_def good = { .name = "m",
                                 QKV,
                                 .mask = mask,
                                 .tiles = tiles,
                                 ARGS({ .name = "a", .preset = NAN }),
                                 TENSORS({ .name = "t", .n_dims = 1, .shape = shape }) };
    assert_int_equal(foci_mechanism_register(*state, &good), FOCI_OK);
    assert_int_equal(foci_mechanism_register(*state, &good), FOCI_ERR_ARG);
    int n = 0;
    while (foci_mechanism(*state, n))
        n++;
    assert_string_equal(foci_mechanism(*state, n - 1)->name, good.name);
    assert_null(mech_list[n - 1]);
}

/* Sources of logits */

enum { LEN = 5, DIM = 4, FLOATS = 1 << 12 };

/* The outputs of a plan and of its judge, and the gradients of its parameters. */
struct outcome {
    foci_plan *plan;
    float      params[FLOATS], dparams[FLOATS], o[LEN * DIM], judged[LEN * DIM];
};

static void outcome_plan(foci_ctx *ctx, const char *spec, struct outcome *out)
{
    const foci_problem p = { FOCI_SIZED(foci_problem), .flags = FOCI_FLAG_TRAIN,
                             .len_q = LEN, .dim_qk = DIM, .dim_x = DIM };
    if (foci_plan_create(ctx, spec, &p, &out->plan)) fail_msg("%s", foci_errmsg(ctx));
    assert_in_range(foci_plan_param_floats(out->plan), 1, FLOATS);
}

static void *aligned(size_t bytes)
{
    void *memory = aligned_alloc(64, bytes + 64);
    assert_non_null(memory);
    return memset(memory, 0, bytes + 64);
}

static void outcome_run(struct outcome *out)
{
    float q[LEN * DIM], k[LEN * DIM], v[LEN * DIM], x[LEN * DIM];
    void *work = aligned(foci_plan_work_bytes(out->plan));
    void *saved = aligned(foci_plan_saved_bytes(out->plan));
    for (int i = 0; i < LEN * DIM; i++) {
        q[i] = (float)(i % 7) - 3;
        k[i] = (float)(i % 5) - 2;
        v[i] = (float)(i % 11) - 5;
        x[i] = (float)(i % 3) - 1;
    }
    foci_io io = {
        FOCI_SIZED(foci_io),   .q = q,       .k = k,        .v = v, .x = x, .o = out->o,
        .params = out->params, .work = work, .saved = saved
    };
    const foci_grads g = { FOCI_SIZED(foci_grads), .d_o = v, .dparams = out->dparams };

    assert_int_equal(foci_forward(out->plan, &io), FOCI_OK);
    assert_int_equal(foci_backward(out->plan, &io, &g), FOCI_OK);
    io.o = out->judged;
    assert_int_equal(foci_ref_forward(out->plan, &io), FOCI_OK);
    free(work);
    free(saved);
}

/* One array of parameters from another, tensor by tensor of the same name. */
static void by_name(const foci_plan *from, const float *a, const foci_plan *to, float *b)
{
    for (int i = 0; i < foci_plan_param_count(from); i++)
        for (int j = 0; j < foci_plan_param_count(to); j++) {
            foci_param s = { FOCI_SIZED(foci_param) }, t = { FOCI_SIZED(foci_param) };
            assert_int_equal(foci_plan_param(from, i, &s), FOCI_OK);
            assert_int_equal(foci_plan_param(to, j, &t), FOCI_OK);
            if (strcmp(s.name, t.name)) continue;
            assert_int_equal(s.count, t.count);
            memcpy(b + t.offset, a + s.offset, (size_t)s.count * sizeof *a);
        }
}

/* Engine and judge find the tensors of sources by role, in any order. */
static void test_order_of_tensors(void **state)
{
    static const char *const kinds[] = { "random",  "dense",        "fdense",
                                         "frandom", "random+dense", "dense+vanilla" };
    static struct outcome    a, b;
    foci_tensor_def          turned[FOCI_MAX_TENSORS];
    foci_mech_def            def;
    char                     spec[80];
    float                    sorted[FLOATS];

    for (int i = 0; mech_list[i]; i++)
        if (!strcmp(mech_list[i]->name, "synthesizer")) def = *mech_list[i];
    for (size_t t = 0; t < def.n_tensors; t++)
        turned[t] = def.tensors[def.n_tensors - 1 - t];
    def.name = "turned";
    def.tensors = turned;
    assert_int_equal(foci_mechanism_register(*state, &def), FOCI_OK);

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        snprintf(spec, sizeof spec, "synthesizer(kind=%s)", kinds[i]);
        outcome_plan(*state, spec, &a);
        snprintf(spec, sizeof spec, "turned(kind=%s)", kinds[i]);
        outcome_plan(*state, spec, &b);
        assert_int_equal(foci_params_init(a.plan, i, a.params), FOCI_OK);
        by_name(a.plan, a.params, b.plan, b.params);
        outcome_run(&a);
        outcome_run(&b);
        assert_memory_equal(a.o, b.o, sizeof a.o);
        assert_memory_equal(a.judged, b.judged, sizeof a.judged);
        memset(sorted, 0, sizeof sorted);
        by_name(b.plan, b.dparams, a.plan, sorted);
        assert_memory_equal(a.dparams, sorted, sizeof sorted);
        foci_plan_free(a.plan);
        foci_plan_free(b.plan);
    }
}

static unsigned from_net(const foci_mech *m)
{
    (void)m;
    return FOCI_SOURCE_NET;
}

static unsigned reads_x(const foci_mech *m)
{
    (void)m;
    return FOCI_READ_V | FOCI_READ_X;
}

static void matrix(const foci_mech *m, const double *arg, int64_t *s)
{
    (void)arg;
    s[0] = s[1] = m->dims.qk;
}

/* A source without one of its tensors is refused when it is planned. */
static void test_missing_tensor(void **state)
{
    const foci_problem  p = { FOCI_SIZED(foci_problem), .len_q = LEN, .dim_qk = DIM,
                              .dim_x = DIM };
    const foci_mech_def def = {
        .name = "headless",
        QKV,
        .reads_of = reads_x,
        .sources = from_net,
        TENSORS({ .name = "t", .n_dims = 2, .shape = matrix, .role = FOCI_ROLE_W1 })
    };
    foci_plan *plan;

    assert_int_equal(foci_mechanism_register(*state, &def), FOCI_OK);
    assert_int_equal(foci_plan_create(*state, "headless", &p, &plan), FOCI_ERR_ARG);
    if (!strstr(foci_errmsg(*state),
                "headless: a source of its logits needs a tensor with "
                "the role FOCI_ROLE_B1"))
        fail_msg("%s", foci_errmsg(*state));
}

/* The factor of logn: 1 at n0, never a NaN or infinity, monotone. */
static void test_row_factors(void **state)
{
    for (int i = 0; foci_modifier(*state, i); i++) {
        foci_mod mod = { .def = foci_modifier(*state, i) };
        if (!mod.def->row_factor) continue;
        for (size_t a = 0; a < mod.def->n_args; a++)
            mod.arg[a] = mod.def->args[a].preset;
        for (int64_t n = 0; n < INT64_C(1) << 40; n = 3 * n + 1)
            assert_true(isfinite(mod.def->row_factor(&mod, n)));
        if (strcmp(mod.def->name, "logn") != 0) continue;

        assert_true(mod.def->row_factor(&mod, 512) == 1);
        assert_true(mod.def->row_factor(&mod, 1) == 0);
        assert_true(fabs(mod.def->row_factor(&mod, 3) - log(3) / log(512)) < 1e-15);
        mod.arg[1] = 1; /* clamp */
        assert_true(mod.def->row_factor(&mod, 3) == 1);
        assert_true(mod.def->row_factor(&mod, 0) == 1);
        assert_true(fabs(mod.def->row_factor(&mod, 512 * 512) - 2) < 1e-15);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),          cmocka_unit_test(test_own_rules),
        cmocka_unit_test(test_modifier_rules), cmocka_unit_test(test_row_factors),
        cmocka_unit_test(test_faulty),         cmocka_unit_test(test_order_of_tensors),
        cmocka_unit_test(test_missing_tensor),
    };
    return cmocka_run_group_tests(tests, make_ctx, free_ctx);
}
