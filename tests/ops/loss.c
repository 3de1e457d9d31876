/* loss.c -- cross-entropy over the rows that have a label, and logits of picked rows. */
#include "ops/ops.h"

struct scene {
    foci_loss_io   io;
    struct tensor  h, w, bias, dh, dw, dbias, row_loss;
    int32_t       *labels, *best;
    foci_loss_sums sums;
    bool           words; /* products may be of bf16 */
};

static double logit(const struct scene *s, int64_t row, int64_t j)
{
    double sum = s->io.bias ? s->bias.x[j] : 0;

    for (int64_t c = 0; c < s->io.width; c++)
        sum += s->h.x[row * s->io.width + c] * s->w.x[j * s->io.width + c];
    return sum;
}

static double loss_of_row(const struct scene *s, int64_t row)
{
    const int64_t vocab = s->io.vocab;
    double        sum = 0, mean = 0;

    if (s->labels[row] < 0) return 0;
    for (int64_t j = 0; j < vocab; j++) {
        sum += exp(logit(s, row, j));
        mean += logit(s, row, j) / (double)vocab;
    }
    return log(sum) - (1 - s->io.smoothing) * logit(s, row, s->labels[row]) -
           s->io.smoothing * mean;
}

static int64_t one_row;

static double of_row(const void *arg) { return loss_of_row(arg, one_row); }

static double of_all(const void *arg)
{
    const struct scene *s = arg;
    double              sum = 0;

    for (int64_t r = 0; r < s->io.rows; r++)
        sum += loss_of_row(s, r);
    return sum;
}

/* What logits are off by where factors and gradients of logits are rounded to bf16. */
static double off_of(const struct scene *s, double exact, double rounded)
{
    return s->words ? rounded : exact;
}

static void judge_losses(const struct scene *s)
{
    int64_t count = 0, correct = 0;
    double  sum = 0;

    for (int64_t r = 0; r < s->io.rows; r++) {
        const double want = loss_of_row(s, r);
        const int    label = s->labels[r];

        near("row_loss", &s->row_loss, r, want, off_of(s, 4e-6, 2e-2));
        sum += want;
        if (label < 0) {
            assert_int_equal(s->best[r], -1);
            continue;
        }
        count++;
        correct += s->best[r] == label;
        for (int64_t j = 0; j < s->io.vocab; j++)
            assert_true(logit(s, r, j) <=
                        logit(s, r, s->best[r]) + off_of(s, 2e-6, 4e-2));
    }
    assert_int_equal(s->sums.count, count);
    assert_int_equal(s->sums.correct, correct);
    assert_true(fabs(s->sums.loss - sum) <= off_of(s, 4e-6, 2e-2) * (double)(count + 1));
}

static void forward(foci_ctx *ctx, void *arg)
{
    struct scene *s = arg;
    foci_loss_io  io = s->io;

    s->words =
        ctx->kernels.has_bf16 && (io.dtype != FOCI_F32 || io.flags & FOCI_LOSS_FAST);
    io.work = scratch(foci_loss_work_bytes(ctx, &io, 0));
    s->sums = (foci_loss_sums){ FOCI_SIZED(foci_loss_sums) };
    must(ctx, foci_loss_forward(ctx, &io, &s->sums));
    free(io.work);
}

static void judge_forward(const foci_ctx *ctx, void *arg)
{
    (void)ctx;
    judge_losses(arg);
}

static void backward(foci_ctx *ctx, void *arg)
{
    struct scene *s = arg;
    foci_loss_io  io = s->io;

    s->words =
        ctx->kernels.has_bf16 && (io.dtype != FOCI_F32 || io.flags & FOCI_LOSS_FAST);
    io.work = scratch(foci_loss_work_bytes(ctx, &io, 1));
    s->sums = (foci_loss_sums){ FOCI_SIZED(foci_loss_sums) };
    must(ctx, foci_loss_backward(ctx, &io, &s->sums));
    free(io.work);
}

static void judge_backward(const foci_ctx *ctx, void *arg)
{
    struct scene *const s = arg;
    const double        scale = s->io.scale == 0 ? 1 : s->io.scale;
    const double        off = off_of(s, 1e-6, 2e-2) * scale;

    (void)ctx;
    judge_losses(s);
    for (int64_t i = 0; i < s->h.n; i++) {
        one_row = i / s->io.width;
        const double want = slope(of_row, s, &s->h.x[i]);
        if (s->labels[one_row] < 0) assert_true(tensor_get(&s->dh, i) == 0);
        near("dh", &s->dh, i, scale * want, off + 1e-8);
    }
    for (int64_t i = 0; i < s->w.n; i++)
        near("dw", &s->dw, i, 0.5 + scale * slope(of_all, s, &s->w.x[i]),
             3 * off + 1e-7);
    for (int64_t j = 0; j < s->io.vocab && s->io.bias; j++)
        near("dbias", &s->dbias, j, 0.5 + scale * slope(of_all, s, &s->bias.x[j]),
             3 * off + 1e-7);
}

static struct tensor halves(int64_t n)
{
    struct tensor t = tensor_of(FOCI_F32, n);

    for (int64_t i = 0; i < n; i++)
        t.x[i] = 0.5;
    tensor_write(&t);
    return t;
}

/* `share` of the rows have a label. */
static struct scene scene_make(foci_dtype dtype, int64_t rows, int64_t width,
                               int64_t vocab, double share, double smoothing, bool bias)
{
    struct scene s = { .h = tensor_draw(dtype, rows * width, 1),
                       .w = tensor_draw(FOCI_F32, vocab * width,
                                        1 / sqrt((double)width)),
                       .bias = tensor_draw(FOCI_F32, vocab, 1),
                       .dh = tensor_of(dtype, rows * width),
                       .dw = halves(vocab * width),
                       .dbias = halves(vocab),
                       .row_loss = tensor_of(FOCI_F32, rows),
                       .labels = test_alloc((size_t)rows, sizeof(int32_t)),
                       .best = test_alloc((size_t)rows, sizeof(int32_t)) };

    for (int64_t i = 0; i < rows; i++)
        s.labels[i] =
            rng_uniform(&dice) < share ? (int32_t)rng_below(&dice, vocab) : -1;
    s.io = (foci_loss_io){ FOCI_SIZED(foci_loss_io),
                           .dtype = dtype,
                           .rows = rows,
                           .width = width,
                           .vocab = vocab,
                           .h = s.h.data,
                           .w = s.w.data,
                           .bias = bias ? s.bias.data : NULL,
                           .labels = s.labels,
                           .smoothing = smoothing,
                           .row_loss = s.row_loss.data,
                           .best = s.best,
                           .scale = 0.125,
                           .dh = s.dh.data,
                           .dw = s.dw.data,
                           .dbias = bias ? s.dbias.data : NULL };
    return s;
}

static void scene_free(struct scene *s)
{
    struct tensor *const all[] = { &s->h,  &s->w,     &s->bias,    &s->dh,
                                   &s->dw, &s->dbias, &s->row_loss };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    free(s->labels);
    free(s->best);
}

static void try_scene(struct scene *s)
{
    struct outs o = { .n = 0 };

    outs_add(&o, &s->row_loss);
    each_level(&o, s, forward, judge_forward, "loss");
    outs_add(&o, &s->dh);
    outs_add(&o, &s->dw);
    outs_add(&o, &s->dbias);
    each_level(&o, s, backward, judge_backward, "loss backward");
    outs_free(&o);
    scene_free(s);
}

static void try(foci_dtype dtype, int64_t rows, int64_t width, int64_t vocab,
                double share, double smoothing, bool bias)
{
    struct scene s = scene_make(dtype, rows, width, vocab, share, smoothing, bias);
    try_scene(&s);
}

static void shapes(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++) {
        try(types[t], 11, 5, 13, 1, 0, false);
        try(types[t], 12, 6, 17, 0.5, 0.1, true);
        try(types[t], 30, 3, 4, 0.7, 0, true);
        try(types[t], 3, 8, 33, 0.5, 0.3, false);
    }
}

/* bf16 products of floats. */
static void fast(void **state)
{
    struct scene s = scene_make(FOCI_F32, 20, 8, 19, 0.6, 0, true);

    (void)state;
    s.io.flags = FOCI_LOSS_FAST;
    try_scene(&s);
}

/* A vocabulary of one is known; no label at all costs and changes nothing. */
static void little(void **state)
{
    struct scene s = scene_make(FOCI_BF16, 7, 4, 5, 0, 0.1, true);

    (void)state;
    try(FOCI_F32, 6, 3, 1, 1, 0, true);
    try(FOCI_BF16, 6, 3, 1, 1, 0.2, false);
    backward(best_ctx(), &s);
    assert_int_equal(s.sums.count, 0);
    assert_true(s.sums.loss == 0);
    for (int64_t i = 0; i < s.dw.n; i++)
        assert_true(tensor_get(&s.dw, i) == 0.5);
    for (int64_t i = 0; i < s.dh.n; i++)
        assert_true(tensor_get(&s.dh, i) == 0);
    s.io.rows = 0;
    backward(best_ctx(), &s);
    assert_int_equal(s.sums.count, 0);
    scene_free(&s);
}

/* More rows than are at hand at once: each row by itself, and the sums of all. */
static void pieces(void **state)
{
    enum { ROWS = 300, VOCAB = 1 << 16, WIDTH = 2, CHOSEN = 5 };
    foci_ctx *const ctx = levels[1].ctx[levels[1].n - 1];
    struct scene    s = scene_make(FOCI_F32, ROWS, WIDTH, VOCAB, 0.9, 0, false);
    double          sum = 0;

    (void)state;
    s.io.scale = 0;
    backward(ctx, &s);
    assert_true(foci_loss_work_bytes(ctx, &s.io, 1) <
                (size_t)ROWS * VOCAB * sizeof(float));
    for (int64_t r = 0; r < ROWS; r++)
        sum += tensor_get(&s.row_loss, r);
    assert_true(fabs(sum - s.sums.loss) < 1e-2);
    for (int64_t i = 0; i < CHOSEN; i++) {
        one_row = i * (ROWS - 1) / (CHOSEN - 1);
        near("row_loss", &s.row_loss, one_row, loss_of_row(&s, one_row), 1e-4);
        for (int64_t c = one_row * WIDTH; c < (one_row + 1) * WIDTH; c++)
            near("dh", &s.dh, c, slope(of_row, &s, &s.h.x[c]), 1e-4); /* 2^16 terms */
    }
    scene_free(&s);
}

/* NaN stays in its row, and is counted as a loss that is NaN. */
static void not_finite(void **state)
{
    struct scene s = scene_make(FOCI_F32, 5, 3, 8, 1, 0.1, false);

    (void)state;
    s.h.x[2 * 3] = NAN;
    tensor_write(&s.h);
    for (int l = 0; l < levels[0].n; l++) {
        backward(levels[0].ctx[l], &s);
        assert_true(isnan(s.sums.loss));
        for (int64_t r = 0; r < 5; r++) {
            assert_int_equal(isnan(tensor_get(&s.row_loss, r)), r == 2);
            assert_int_equal(isnan(tensor_get(&s.dh, r * 3)), r == 2);
        }
    }
    scene_free(&s);
}

/* Logits that are far apart: the loss is their difference, and nothing overflows. */
static void far_apart(void **state)
{
    float         h[] = { 1, 1 }, w[] = { 1e4f, 0, -1e4f }, row[2], dh[2];
    const int32_t labels[] = { 0, 2 };
    int32_t       best[2];

    (void)state;
    for (int l = 0; l < levels[0].n; l++) {
        foci_ctx *const ctx = levels[0].ctx[l];
        foci_loss_sums  sums = { FOCI_SIZED(foci_loss_sums) };
        foci_loss_io    io = { FOCI_SIZED(foci_loss_io),
                               .rows = 2,
                               .width = 1,
                               .vocab = 3,
                               .h = h,
                               .w = w,
                               .labels = labels,
                               .row_loss = row,
                               .best = best,
                               .dh = dh };

        io.work = scratch(foci_loss_work_bytes(ctx, &io, 1));
        must(ctx, foci_loss_backward(ctx, &io, &sums));
        assert_true(row[0] == 0 && row[1] == 2e4f && sums.loss == 2e4);
        assert_true(dh[0] == 0 && dh[1] == 2e4f);
        assert_int_equal(sums.correct, 1);
        assert_int_equal(best[1], 0);
        free(io.work);
    }
}

static void logits(void **state)
{
    enum { ROWS = 9, WIDTH = 17, VOCAB = 21 };
    const int32_t pick[] = { 8, 0, 3, 3 };
    struct scene  s = scene_make(FOCI_BF16, ROWS, WIDTH, VOCAB, 1, 0, true);

    (void)state;
    for (int with = 0; with < 2; with++)
        for (int l = 0; l < levels[0].n; l++) {
            foci_ctx *const ctx = levels[1].ctx[l];
            struct tensor   out = tensor_of(FOCI_F32, (with ? 4 : ROWS) * VOCAB);
            foci_logits_io  io = { FOCI_SIZED(foci_logits_io),
                                   .dtype = FOCI_BF16,
                                   .rows = ROWS,
                                   .width = WIDTH,
                                   .vocab = VOCAB,
                                   .n = with ? 4 : ROWS,
                                   .pick = with ? pick : NULL,
                                   .h = s.h.data,
                                   .w = s.w.data,
                                   .bias = s.bias.data,
                                   .logits = out.data };

            io.work = scratch(foci_logits_work_bytes(ctx, &io));
            must(ctx, foci_logits(ctx, &io));
            for (int64_t i = 0; i < out.n; i++)
                near("logits", &out, i,
                     logit(&s, with ? pick[i / VOCAB] : i / VOCAB, i % VOCAB), 3e-2);
            tensor_check_guard(&out, "logits");
            free(io.work);
            tensor_free(&out);
        }
    scene_free(&s);
}

static void refused(void **state)
{
    foci_ctx *const ctx = best_ctx();
    struct scene    s = scene_make(FOCI_F32, 4, 3, 5, 1, 0, false);
    foci_loss_io    io = s.io;
    foci_loss_sums  sums = { .size = 3 };
    foci_logits_io  l = { FOCI_SIZED(foci_logits_io),
                          .rows = 4,
                          .width = 3,
                          .vocab = 5,
                          .n = 2,
                          .h = s.h.data,
                          .w = s.w.data,
                          .logits = s.dh.data };
    const int32_t   pick[] = { 0, 4 };

    (void)state;
    s.labels[2] = 5;
    REFUSED(ctx, foci_loss_forward(ctx, &io, NULL), "label 5 of row 2");
    s.labels[2] = -2;
    REFUSED(ctx, foci_loss_backward(ctx, &io, NULL), "neither -1 nor 0 to 4");
    s.labels[2] = -1;
    REFUSED(ctx, foci_loss_forward(ctx, &io, NULL), "work is missing");
    REFUSED(ctx, foci_loss_forward(ctx, &io, &sums), "foci_loss_sums.size is 3");
    io.smoothing = 1;
    REFUSED(ctx, foci_loss_forward(ctx, &io, NULL), "smoothing is 0 to below 1");
    io = s.io, io.flags = 8;
    REFUSED(ctx, foci_loss_forward(ctx, &io, NULL), "0x8");
    assert_true(foci_loss_work_bytes(ctx, &io, 1) == SIZE_MAX);
    io = s.io, io.vocab = 0;
    REFUSED(ctx, foci_loss_forward(ctx, &io, NULL), "vocab is 1");
    io = s.io, io.w = NULL;
    REFUSED(ctx, foci_loss_forward(ctx, &io, NULL), "h, w or labels");
    assert_int_equal(foci_loss_forward(NULL, &io, NULL), FOCI_ERR_ARG);
    REFUSED(ctx, foci_logits(ctx, &l), "n is 2 and rows 4");
    l.pick = pick;
    l.work = scratch(foci_logits_work_bytes(ctx, &l));
    REFUSED(ctx, foci_logits(ctx, &l), "pick 4 is not 0 to 3");
    free(l.work);
    l.work = NULL;
    REFUSED(ctx, foci_logits(ctx, &l), "work");
    l.flags = 2;
    REFUSED(ctx, foci_logits(ctx, &l), "0x2");
    assert_int_equal(foci_logits(NULL, &l), FOCI_ERR_ARG);
    scene_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),     cmocka_unit_test(fast),
        cmocka_unit_test(little),     cmocka_unit_test(pieces),
        cmocka_unit_test(not_finite), cmocka_unit_test(far_apart),
        cmocka_unit_test(logits),     cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_levels, close_levels);
}
