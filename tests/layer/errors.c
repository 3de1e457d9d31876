/* errors.c -- what cannot be a layer, or an execution of one, is refused with a sentence
 * that names what was wrong. */
#include "support/layers.h"

static const struct {
    const char        *spec;
    foci_layer_problem p;
    foci_status        status;
    const char        *says[3]; /* parts of the sentence */
} refused[] = {
#define P(w, h, ...)                                                                   \
    {                                                                                  \
        FOCI_SIZED(foci_layer_problem), .batch = 1, .len = 4, .width = w, .heads = h,  \
                                        __VA_ARGS__                                    \
    }
    { "softmax", P(10, 4, .flags = 0), FOCI_ERR_ARG, { "10", "4 heads", "divisible" } },
    { "3*softmax + 2*fixed", P(12, 4, .flags = 0), FOCI_ERR_ARG, { "5", "4", "heads" } },
    { "softmax frozen(orthogonal, sample=block)",
      P(16, 4, .head_dim = 8),
      FOCI_ERR_ARG,
      { "frozen", "4 heads of 8", "16" } },
    { "softmax frozen(orthogonal)",
      P(8, 2, .head_dim = 12),
      FOCI_ERR_ARG,
      { "frozen", "12", "8" } },
    { "softmax frozen(hadamard)",
      P(15, 3, .flags = 0),
      FOCI_ERR_ARG,
      { "frozen", "hadamard", "15" } },
    { "softmax frozen(tie=1)",
      P(16, 4, .kv_heads = 2),
      FOCI_ERR_ARG,
      { "tie=1", "2", "4" } },
    { "softmax frozen(tie=1)",
      P(16, 4, .len_source = 5, .width_source = 24),
      FOCI_ERR_ARG,
      { "tie=1", "24", "16" } },
    { "softmax init(orthogonal)",
      P(8, 2, .head_dim = 12),
      FOCI_ERR_ARG,
      { "init", "12", "8" } },
    { "relu2", P(16, 2, .kind = FOCI_LAYER_GAU), FOCI_ERR_ARG, { "gau", "2", "one" } },
    { "relu2",
      P(16, 1, .kind = FOCI_LAYER_GAU, .len_source = 3),
      FOCI_ERR_ARG,
      { "gau", "source" } },
    { "softmax frozen", P(16, 1, .kind = FOCI_LAYER_GAU), FOCI_ERR_UNSUP, { "gau" } },
    { "routed(routes=2)", P(16, 1, .kind = FOCI_LAYER_GAU), FOCI_ERR_UNSUP, { "gau" } },
    { "softmax",
      P(16, 2, .kind = FOCI_LAYER_CONV),
      FOCI_ERR_UNSUP,
      { "conv", "softmax", "lightconv" } },
    { "lightconv",
      P(16, 2, .kind = FOCI_LAYER_CONV, .memory = 3),
      FOCI_ERR_ARG,
      { "conv", "memory" } },
    { "softmax", P(16, 2, .kind = (foci_layer_kind)7), FOCI_ERR_ARG, { "kind", "7" } },
    { "softmax",
      P(16, 2, .memory = 3, .len_source = 4),
      FOCI_ERR_ARG,
      { "memory", "source" } },
    { "softmax",
      P(16, 2, .memory = 3, .max_docs = 4),
      FOCI_ERR_ARG,
      { "documents", "memory" } },
    { "softmax", P(16, 2, .width_source = 24), FOCI_ERR_ARG, { "24", "len_source" } },
    { "softmax", P(16, 2, .output_dropout = 1), FOCI_ERR_ARG, { "output_dropout", "1" } },
    { "softmax",
      P(16, 2, .output_dropout = -0.5),
      FOCI_ERR_ARG,
      { "output_dropout", "-0.5" } },
    { "softmax", P(0, 2, .flags = 0), FOCI_ERR_ARG, { "width", "0" } },
    { "softmax", P(16, -1, .flags = 0), FOCI_ERR_ARG, { "heads", "-1" } },
    { "softmax", P(16, 4, .kv_heads = 3), FOCI_ERR_ARG, { "3", "4" } },
    { "softmaks", P(16, 2, .flags = 0), FOCI_ERR_SPEC, { "softmaks" } },
    { "linear", P(16, 2, .weight_dropout = 0.1), FOCI_ERR_UNSUP, { "dropout" } },
};

static void layers(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        foci_layer       *layer = (foci_layer *)ctx;
        const foci_status status =
            foci_layer_create(ctx, refused[i].spec, &refused[i].p, &layer);
        if (status != refused[i].status)
            fail_msg("%s, number %zu: %s (%s)", refused[i].spec, i,
                     foci_status_text(status), foci_errmsg(ctx));
        assert_null(layer);
        for (int t = 0; t < 3 && refused[i].says[t]; t++)
            if (!strstr(foci_errmsg(ctx), refused[i].says[t]))
                fail_msg("%s, number %zu: \"%s\" does not name %s", refused[i].spec, i,
                         foci_errmsg(ctx), refused[i].says[t]);
    }
    foci_ctx_free(ctx);
}

/* Structs that are missing, too short or from another time. */
static void structs(void **state)
{
    foci_ctx          *ctx = test_ctx(NULL, 1);
    foci_layer_problem p = P(8, 2, .flags = FOCI_FLAG_TRAIN);
    foci_layer        *layer = NULL;
    foci_param         param = { FOCI_SIZED(foci_param) };

    (void)state;
    assert_int_equal(foci_layer_create(ctx, "softmax", &p, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_create(NULL, "softmax", &p, &layer), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_create(ctx, "softmax", NULL, &layer), FOCI_ERR_ARG);
    p.size = 0;
    assert_int_equal(foci_layer_create(ctx, "softmax", &p, &layer), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "FOCI_SIZED"));
    p.size = sizeof p + 8;
    assert_int_equal(foci_layer_create(ctx, "softmax", &p, &layer), FOCI_ERR_ARG);
    p.size = offsetof(foci_layer_problem, kv_heads); /* all else is 0 */
    assert_int_equal(foci_layer_create(ctx, "softmax", &p, &layer), FOCI_OK);
    foci_layer_problem got = { FOCI_SIZED(foci_layer_problem) };
    assert_int_equal(foci_layer_get_problem(layer, &got), FOCI_OK);
    assert_int_equal(got.kv_heads, 2);
    assert_int_equal(got.head_dim, 4);
    assert_int_equal(got.width_source, 8);
    got.size = 0;
    assert_int_equal(foci_layer_get_problem(layer, &got), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_get_problem(NULL, &got), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_param(layer, -1, &param), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_param(layer, foci_layer_param_count(layer), &param),
                     FOCI_ERR_ARG);
    assert_int_equal(foci_layer_param(layer, 0, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_params_init(layer, 1, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_params_init(NULL, 1, NULL), FOCI_ERR_ARG);
    foci_layer_free(layer);
    foci_layer_free(NULL);
    foci_ctx_free(ctx);
}

enum { LEN = 6, WIDTH = 8, ROOM = 1 << 26 };

static _Alignas(64) char work[ROOM], saved[ROOM];
static float rows[2 * LEN * WIDTH], out[2 * LEN * WIDTH], params[1 << 12];

/* One thing wrong with arguments that are right otherwise. */
static void says(const foci_layer *layer, foci_layer_io io, const foci_layer_grads *g,
                 const char *part)
{
    char text[256] = "";

    assert_int_equal(foci_layer_io_check(layer, &io, g, text, sizeof text),
                     FOCI_ERR_ARG);
    if (!strstr(text, part)) fail_msg("\"%s\" does not name %s", text, part);
    assert_int_equal(g ? foci_layer_backward(layer, &io, g)
                       : foci_layer_forward(layer, &io),
                     FOCI_ERR_ARG);
    if (strstr(part, "work") || strstr(part, "saved")) return; /* not for the judge */
    assert_int_equal(g ? foci_ref_layer_backward(layer, &io, g)
                       : foci_ref_layer_forward(layer, &io),
                     FOCI_ERR_ARG);
}

static foci_layer *small(foci_ctx *ctx, foci_layer_problem p)
{
    foci_layer *layer = NULL;

    p.size = sizeof p;
    p.batch = 2;
    p.len = LEN;
    p.width = WIDTH;
    p.heads = 2;
    p.flags |= FOCI_FLAG_TRAIN;
    if (foci_layer_create(ctx, "softmax", &p, &layer)) fail_msg("%s", foci_errmsg(ctx));
    assert_in_range(foci_layer_work_bytes(layer), 1, ROOM);
    assert_in_range(foci_layer_saved_bytes(layer), 1, ROOM);
    return layer;
}

/* Right arguments, and these with one of them changed. */
static const foci_layer_io good = {
    FOCI_SIZED(foci_layer_io), .x = rows,    .y = out,
    .params = params,          .work = work, .saved = saved
};

#define SAYS(layer, field, value, g, part)                                             \
    do {                                                                               \
        foci_layer_io wrong = good;                                                    \
        wrong.field = value;                                                           \
        says(layer, wrong, g, part);                                                   \
    } while (0)

static void executions(void **state)
{
    static const int32_t long_lens[] = { 3, LEN + 1 }, short_lens[] = { -1, 2 };
    foci_ctx            *ctx = test_ctx(NULL, 1);
    foci_layer          *layer = small(ctx, (foci_layer_problem){ .biases = 1 });
    foci_layer_grads     g = { FOCI_SIZED(foci_layer_grads), .dy = rows, .dx = out };

    (void)state;
    assert_int_equal(foci_layer_forward(layer, &good), FOCI_OK);
    assert_int_equal(foci_layer_backward(layer, &good, &g), FOCI_OK);
    SAYS(layer, x, NULL, NULL, "io.x");
    SAYS(layer, y, NULL, NULL, "io.y");
    SAYS(layer, params, NULL, NULL, "io.params");
    SAYS(layer, work, NULL, NULL, "io.work");
    SAYS(layer, work, work + 4, NULL, "io.work");
    SAYS(layer, saved, saved + 4, NULL, "io.saved");
    SAYS(layer, lens, long_lens, NULL, "7");
    SAYS(layer, lens, short_lens, NULL, "-1");
    SAYS(layer, lens_source, long_lens, NULL, "source");
    SAYS(layer, saved, NULL, &g, "io.saved");
    SAYS(layer, size, 0, NULL, "FOCI_SIZED");
    SAYS(layer, size, sizeof good + 8, NULL, "FOCI_SIZED");
    g.dy = NULL;
    says(layer, good, &g, "grads.dy");
    g.dy = rows;
    g.dsource = out;
    says(layer, good, &g, "dsource");
    g.size = 0;
    says(layer, good, &g, "FOCI_SIZED");
    assert_int_equal(foci_layer_backward(layer, &good, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_ref_layer_backward(layer, &good, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_forward(layer, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_ref_layer_forward(layer, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_forward(NULL, &good), FOCI_ERR_ARG);
    foci_layer_free(layer);
    layer = small(ctx, (foci_layer_problem){ .len_source = 5 });
    says(layer, good, NULL, "io.source");
    foci_layer_free(layer);
    layer = small(ctx, (foci_layer_problem){ .memory = 5 });
    says(layer, good, NULL, "io.memory");
    foci_layer_free(layer);
    foci_ctx_free(ctx);
}

/* Decoding: a source has no states, and what is missing is named. */
static void steps(void **state)
{
    foci_ctx   *ctx = test_ctx(NULL, 1);
    foci_layer *layer = small(ctx, (foci_layer_problem){ .flags = FOCI_FLAG_CAUSAL });
    foci_pool  *pool;
    foci_state *s;

    (void)state;
    assert_int_equal(foci_pool_create(foci_layer_plan(layer), 4, &pool), FOCI_OK);
    assert_int_equal(foci_state_create(pool, &s), FOCI_OK);
    assert_in_range(foci_layer_step_work_bytes(layer, pool, 1, 1, 1), 1, ROOM);
    const foci_layer_step_io good = { FOCI_SIZED(foci_layer_step_io),
                                      .states = &s,
                                      .n_states = 1,
                                      .x = rows,
                                      .y = out,
                                      .params = params,
                                      .work = work };
    foci_layer_step_io       io = good;
    const int32_t            less = -1;

    assert_int_equal(foci_layer_step(layer, pool, &io), FOCI_OK);
    assert_int_equal(foci_state_len(s), 1);
    io.x = NULL;
    assert_int_equal(foci_layer_step(layer, pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "x is NULL"));
    io = good;
    io.params = NULL;
    assert_int_equal(foci_layer_step(layer, pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "params"));
    io = good;
    io.work = work + 4;
    assert_int_equal(foci_layer_step(layer, pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "work"));
    io = good;
    io.tokens = &less;
    assert_int_equal(foci_layer_step(layer, pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "-1"));
    io = good;
    io.states = NULL;
    assert_int_equal(foci_layer_step(layer, pool, &io), FOCI_ERR_ARG);
    io = good;
    io.n_states = -1;
    assert_int_equal(foci_layer_step(layer, pool, &io), FOCI_ERR_ARG);
    io.size = 0;
    assert_int_equal(foci_layer_step(layer, pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "io.size is 0"));
    foci_layer *other = small(ctx, (foci_layer_problem){ .flags = FOCI_FLAG_CAUSAL });
    assert_int_equal(foci_layer_step(other, pool, &good), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "of another plan"));
    foci_layer_free(other);
    assert_int_equal(foci_layer_step(layer, pool, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_step(NULL, pool, &good), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_step(layer, NULL, &good), FOCI_ERR_ARG);
    assert_int_equal(foci_state_len(s), 1); /* nothing was changed */
    foci_layer *cross = small(ctx, (foci_layer_problem){ .len_source = 6 });
    assert_int_equal(foci_layer_step(cross, pool, &good), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(ctx), "source"));
    foci_layer_free(cross);
    foci_state_free(s);
    foci_pool_free(pool);
    foci_layer_free(layer);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),
        cmocka_unit_test(structs),
        cmocka_unit_test(executions),
        cmocka_unit_test(steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
