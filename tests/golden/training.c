/* training.c -- ten training steps against losses made by NumPy from the definitions. */
#include <math.h>

#include "foci/train.h"
#include "golden/lines.h"
#include "train/model.h"

enum { STEPS = 10, BATCH = 2, LEN = 6, VOCAB = 11, WIDTH = 8, HEADS = 2, FFN = 12 };

static foci_model *make(foci_ctx *ctx, bool plain)
{
    foci_model_config c = { FOCI_SIZED(foci_model_config),
                            .vocab = VOCAB,
                            .context = LEN,
                            .layers = 2,
                            .width = WIDTH,
                            .heads = HEADS,
                            .ffn = FFN,
                            .activation = FOCI_ACT_GELU_TANH };
    foci_model       *m = NULL;

    if (!plain) {
        c.positions = FOCI_POSITIONS_SINUSOID;
        c.norm = FOCI_NORM_RMS;
        c.activation = FOCI_ACT_SILU;
        c.gated = c.untied = c.no_biases = 1;
    }
    if (foci_model_create(ctx, &c, &m)) fail_msg("%s", foci_errmsg(ctx));
    return m;
}

/* Tensor number t of the case starts as stream t says; every tensor of the model is named. */
static void start(foci_model *m, const struct lines *c)
{
    char *names = strdup(need(c, "tensors"));
    int   t = 0;

    for (char *at, *name = strtok_r(names, " ", &at); name;
         name = strtok_r(NULL, " ", &at)) {
        foci_param p = { FOCI_SIZED(foci_param) };
        struct rng r;
        int        i = 0;
        while (!foci_model_param(m, i, &p) && strcmp(p.name, name) != 0)
            i++;
        if (i == foci_model_param_count(m)) fail_msg("no tensor %s", name);
        const size_t len = strlen(name);
        const bool   gain = len > 4 && strcmp(name + len - 4, "gain") == 0;
        rng_seed(&r, 1, (uint64_t)t++);
        for (int64_t k = 0; k < p.count; k++) {
            const float x = (float)(0.3 * rng_normal(&r));
            m->params[p.offset + k] = gain ? (float)((double)x + 1) : x;
        }
    }
    assert_int_equal(t, foci_model_param_count(m));
    free(names);
}

static void draw(int step, int32_t *ids, int32_t *labels)
{
    struct rng r;

    rng_seed(&r, 1, 1000 + (uint64_t)step);
    for (int i = 0; i < BATCH * LEN; i++)
        ids[i] = (int32_t)rng_below(&r, VOCAB);
    for (int i = 0; i < BATCH * LEN; i++)
        labels[i] = (int32_t)rng_below(&r, VOCAB);
}

struct moments {
    float *grads, *m, *v;
    void  *work;
};

static double step(foci_ctx *ctx, foci_model *m, struct moments *x, int number,
                   double smoothing)
{
    int32_t                 ids[BATCH * LEN], labels[BATCH * LEN];
    const foci_loss_options o = { FOCI_SIZED(foci_loss_options),
                                  .smoothing = smoothing };
    const foci_batch        b = { FOCI_SIZED(foci_batch), .batch = BATCH, .len = LEN,
                                  .ids = ids, .labels = labels };
    foci_loss               loss = { FOCI_SIZED(foci_loss) };
    double                  squares = 0;

    draw(number, ids, labels);
    if (foci_model_loss(m, &b, &o, x->grads, &loss) ||
        foci_squares(ctx, m->segments, m->n_segments, x->grads, x->work, &squares))
        fail_msg("%s", foci_errmsg(ctx));
    const double        n = (double)loss.labels;
    const foci_adamw_io io = { FOCI_SIZED(foci_adamw_io),
                               .segments = m->segments,
                               .n_segments = m->n_segments,
                               .params = m->params,
                               .grads = x->grads,
                               .m = x->m,
                               .v = x->v,
                               .rate = 0.01,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-8,
                               .decay = 0.1,
                               .scale = fmin(1, n / sqrt(squares)) / n,
                               .step = number,
                               .clear = 1 };
    if (foci_adamw(ctx, &io)) fail_msg("%s", foci_errmsg(ctx));
    return loss.sum / n;
}

static void check(void *user, const char *file, const struct lines *c)
{
    foci_ctx      *ctx = user;
    const bool     plain = strcmp(need(c, "case"), "plain") == 0;
    foci_model    *m = make(ctx, plain);
    const size_t   n = (size_t)m->floats;
    struct moments x = { test_alloc(n, sizeof(float)), test_alloc(n, sizeof(float)),
                         test_alloc(n, sizeof(float)),
                         test_alloc(foci_squares_work_bytes(m->floats), 1) };
    double         got[STEPS];

    start(m, c);
    for (int s = 0; s < STEPS; s++)
        got[s] = step(ctx, m, &x, s + 1, plain ? 0 : 0.1);
    free(exactly(c, "losses", STEPS));
    compare(file, c, "losses", got, 2e-5);
    free(x.grads), free(x.m), free(x.v), free(x.work);
    foci_model_free(m);
}

static void training(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 2);

    (void)state;
    each_case("tests/golden", "training", check, ctx);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(training) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
