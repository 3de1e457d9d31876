/* gradients.c -- loss and gradients of whole models against finite differences of the same
 * model in double. */
#include <math.h>
#include <stdio.h>

#include "support/model_ref.h"
#include "test.h"
#include "train/pass.h"

enum { BATCH = 2, LEN = 7, SOURCE = 5, VOCAB = 11, CLASSES = 3, PATCH = 6 };

struct arrays {
    int32_t ids[BATCH * LEN], labels[BATCH * LEN], lens[BATCH], words[BATCH * LEN];
    int32_t source[BATCH * SOURCE], source_lens[BATCH], classes[BATCH];
    float   patches[BATCH * LEN * PATCH];
};

static void fill(struct arrays *a, foci_batch *b)
{
    struct rng r;

    rng_seed(&r, 3, 0);
    for (int i = 0; i < BATCH * LEN; i++) {
        a->ids[i] = (int32_t)rng_below(&r, VOCAB);
        a->labels[i] = i % 3 ? (int32_t)rng_below(&r, VOCAB) : -1;
        a->words[i] = i % LEN / 2;
    }
    for (int i = 0; i < BATCH * SOURCE; i++)
        a->source[i] = (int32_t)rng_below(&r, VOCAB);
    for (int i = 0; i < BATCH * LEN * PATCH; i++)
        a->patches[i] = (float)rng_normal(&r);
    for (int i = 0; i < BATCH; i++)
        a->classes[i] = (int32_t)rng_below(&r, CLASSES);
    a->lens[0] = LEN, a->lens[1] = LEN - 2;
    a->source_lens[0] = SOURCE - 2, a->source_lens[1] = SOURCE;
    for (int i = LEN - 2; i < LEN; i++)
        a->labels[LEN + i] = -1;
    *b = (foci_batch){ FOCI_SIZED(foci_batch),
                       .batch = BATCH,
                       .len = LEN,
                       .ids = a->ids,
                       .labels = a->labels,
                       .lens = a->lens,
                       .words = a->words,
                       .classes = a->classes,
                       .source_len = SOURCE,
                       .source_ids = a->source,
                       .source_lens = a->source_lens,
                       .patches = a->patches,
                       .patch_width = PATCH };
}

static foci_model_config small(foci_model_kind task, const char *spec)
{
    foci_model_config c = { FOCI_SIZED(foci_model_config),
                            .task = task,
                            .vocab = VOCAB,
                            .context = LEN + 1,
                            .layers = 2,
                            .width = 8,
                            .heads = 2,
                            .ffn = 12,
                            .attention = spec,
                            .seed = 5 };
    if (task == FOCI_MODEL_CLASSIFY) c.classes = CLASSES;
    if (task == FOCI_MODEL_TRANSLATE)
        c.source_context = SOURCE, c.cross_attention = "softmax";
    return c;
}

static foci_model *make(foci_ctx *ctx, const foci_model_config *c)
{
    foci_model *m = NULL;
    if (foci_model_create(ctx, c, &m)) fail_msg("%s", foci_errmsg(ctx));
    return m;
}

/* Multiples of 2^-18, whose sums and differences are exact in floats. */
static float grid(double x) { return (float)(round(x * 0x1p18) * 0x1p-18); }

/* Parameters that start at 0 or 1 are moved away from there. */
static void stir(foci_model *m)
{
    struct rng r;

    rng_seed(&r, 9, 0);
    for (int i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *t = &m->tensors[i];
        if (t->offset < 0 || t->keep != FOCI_KEEP_TRAINED) continue;
        for (int64_t k = t->offset; k < t->offset + t->count; k++)
            m->params[k] = grid((double)m->params[k] + 0.4 * rng_normal(&r));
    }
}

static double rms(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)n);
}

/* The loss at params + times step. */
static double loss_at(const foci_model *m, const foci_batch *b, const float *step,
                      double times, double smoothing)
{
    float *params = test_alloc((size_t)m->floats, sizeof *params);

    for (int64_t i = 0; i < m->floats; i++)
        params[i] = m->params[i] + (float)times * step[i];
    const double loss = model_ref_loss(m, b, params, smoothing);
    free(params);
    return loss;
}

/* The derivative within one tensor, along a direction that is half the gradient's own, so
 * that the loss changes by more than rounding, and half random; by differences of the
 * fourth order. */
static void check_tensor(foci_model *m, const struct model_tensor *t,
                         const foci_batch *b, const float *grads, double smoothing,
                         double floor)
{
    float       *step = test_alloc((size_t)m->floats, sizeof *step);
    const double size = fmax(rms(grads + t->offset, t->count), 1e-30);
    const double h = fmin(4e-3, 0.01 / ((double)t->count * size));
    double       along = 0;
    struct rng   r;

    rng_seed(&r, 77, (uint64_t)t->offset);
    for (int64_t k = t->offset; k < t->offset + t->count; k++) {
        step[k] = grid(h * (rng_normal(&r) + (double)grads[k] / size));
        along += (double)grads[k] * (double)step[k];
    }
    const double near =
        loss_at(m, b, step, 1, smoothing) - loss_at(m, b, step, -1, smoothing);
    const double far =
        loss_at(m, b, step, 2, smoothing) - loss_at(m, b, step, -2, smoothing);
    const double change = (8 * near - far) / 12;
    if (!(fabs(change - along) <= 1e-3 * fabs(change) + floor))
        fail_msg("%s of %s: the loss changes by %g, by its gradient it would by %g",
                 t->name, m->stacks[m->n_stacks - 1].blocks[0].self.spec, change, along);
    free(step);
}

static void check(foci_ctx *ctx, const foci_model_config *c, double smoothing)
{
    struct arrays     a;
    foci_batch        b, whole;
    foci_loss         loss = { FOCI_SIZED(foci_loss) }, alone = loss;
    foci_model       *m = make(ctx, c);
    foci_loss_options o = { FOCI_SIZED(foci_loss_options), .smoothing = smoothing,
                            .calibrate = 1 };
    float            *grads = test_alloc((size_t)m->floats, sizeof *grads);

    fill(&a, &b);
    stir(m);
    if (foci_model_loss(m, &b, &o, NULL, &alone) ||
        foci_model_loss(m, &b, &o, grads, &loss))
        fail_msg("%s: %s", c->attention, foci_errmsg(ctx));
    assert_int_equal(batch_check(m, &b, &whole), FOCI_OK); /* padded, if it has to be */
    const double ref = model_ref_loss(m, &whole, m->params, smoothing);
    if (!(fabs(loss.sum - ref) <= 2e-5 * ref))
        fail_msg("%s: the loss is %.9g, in double %.9g", c->attention, loss.sum, ref);
    if (!(fabs(alone.sum - ref) <= 2e-5 * ref) || alone.labels != loss.labels)
        fail_msg("%s: forward alone gives %.9g, in double %.9g", c->attention,
                 alone.sum, ref);
    for (int i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *t = &m->tensors[i];
        if (t->offset >= 0 && t->keep == FOCI_KEEP_TRAINED)
            check_tensor(m, t, &whole, grads, smoothing, 1e-6 * ref);
    }
    free(grads);
    foci_model_free(m);
}

static void lm(void **state)
{
    foci_ctx         *ctx = test_ctx(NULL, 2);
    foci_model_config c = small(FOCI_MODEL_LM, "softmax");

    (void)state;
    check(ctx, &c, 0);
    check(ctx, &c, 0.1);
    c.positions = FOCI_POSITIONS_ROPE;
    c.norm = FOCI_NORM_RMS;
    c.activation = FOCI_ACT_SILU;
    c.gated = c.untied = c.no_biases = 1;
    c.conv = 3;
    check(ctx, &c, 0);
    c.positions = FOCI_POSITIONS_SINUSOID;
    c.activation = FOCI_ACT_GELU_TANH;
    c.gated = c.no_biases = 0;
    c.attention = "1*fixed(previous, words=1) + 1*softmax frozen(orthogonal)";
    check(ctx, &c, 0);
    c.attention = "linear";
    c.ffn = 0;
    check(ctx, &c, 0);
    c.attention = NULL;
    c.kind = FOCI_LAYER_GAU;
    check(ctx, &c, 0);
    c.kind = FOCI_LAYER_CONV;
    check(ctx, &c, 0);
    foci_ctx_free(ctx);
}

/* All labels from the last token. */
static void from_last(void **state)
{
    foci_ctx         *ctx = test_ctx(NULL, 2);
    foci_model_config c = small(FOCI_MODEL_LM, "softmax");

    (void)state;
    c.from_last = 1;
    check(ctx, &c, 0);
    c.task = FOCI_MODEL_MLM;
    c.positions = FOCI_POSITIONS_SINUSOID;
    c.activation = FOCI_ACT_SILU;
    c.gated = c.no_biases = 1;
    check(ctx, &c, 0.1);
    c.attention = "linformer(rank=3)";
    check(ctx, &c, 0);
    foci_ctx_free(ctx);
}

static void mlm(void **state)
{
    foci_ctx         *ctx = test_ctx(NULL, 2);
    foci_model_config c = small(FOCI_MODEL_MLM, "local(window=2)");

    (void)state;
    check(ctx, &c, 0);
    c.attention = "linformer(rank=3)"; /* its tensors are as long as the context */
    check(ctx, &c, 0);
    c.attention = "nystrom(landmarks=3)";
    check(ctx, &c, 0);
    foci_ctx_free(ctx);
}

static void translate(void **state)
{
    foci_ctx         *ctx = test_ctx(NULL, 2);
    foci_model_config c = small(FOCI_MODEL_TRANSLATE, "softmax");

    (void)state;
    check(ctx, &c, 0.1);
    c.source_vocab = VOCAB + 2;
    c.conv = 2;
    c.cross_attention = "linear";
    c.encoder_heads = 1;
    c.encoder_attention = "1L";
    check(ctx, &c, 0);
    foci_ctx_free(ctx);
}

static void classify(void **state)
{
    foci_ctx         *ctx = test_ctx(NULL, 2);
    foci_model_config c = small(FOCI_MODEL_CLASSIFY, "softmax");

    (void)state;
    check(ctx, &c, 0);
    c.pooling = FOCI_POOLING_FIRST;
    c.patch = PATCH;
    c.grid_rows = 2, c.grid_cols = 4;
    c.positions = FOCI_POSITIONS_SINUSOID;
    check(ctx, &c, 0);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lm),        cmocka_unit_test(from_last), cmocka_unit_test(mlm),
        cmocka_unit_test(translate), cmocka_unit_test(classify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
