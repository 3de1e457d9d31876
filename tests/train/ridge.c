/* ridge.c -- the output layer in closed form solves its equations, and is better than none. */
#include <math.h>
#include <stdio.h>

#include "support/training.h"
#include "train/pass.h"

enum { WIDTH = 16, MOST = 4096, BATCHES = 40 };

/* Rows and labels of the first batches, by the model itself. */
static int gather(struct training *t, double (*h)[WIDTH + 1], int32_t *labels)
{
    static const foci_loss_options none = { FOCI_SIZED(foci_loss_options) };
    int                            n = 0;

    foci_data_rewind(t->train, 0);
    for (int b = 0; b < BATCHES; b++) {
        foci_batch               batch = { FOCI_SIZED(foci_batch) }, whole;
        const struct pass_shape *shape;
        struct output_rows       rows;
        struct model_pass        x;
        assert_int_equal(foci_data_next(t->train, &batch), FOCI_OK);
        assert_int_equal(batch_check(t->model, &batch, &whole), FOCI_OK);
        assert_int_equal(shape_find(t->model, &whole, EXTENT_LOSS, &shape), FOCI_OK);
        pass_begin(&x, t->model, &whole, shape);
        x.o = &none;
        assert_int_equal(pass_memory(&x), FOCI_OK);
        assert_int_equal(pass_forward(&x), FOCI_OK);
        assert_int_equal(pass_output_rows(&x, &rows), FOCI_OK);
        for (int64_t i = 0; i < rows.rows && n < MOST; i++) {
            if (rows.labels[i] < 0) continue;
            for (int k = 0; k < WIDTH; k++)
                h[n][k] = (double)((const float *)rows.h)[i * WIDTH + k];
            h[n][WIDTH] = 1;
            labels[n++] = rows.labels[i];
        }
    }
    return n;
}

/* (H^T H + ridge d I) w = factor H^T y of each label, d the mean of the diagonal; the factor,
 * which is one for all labels, is that of the first one by least squares. */
static void check_equations(struct training *t, double ridge)
{
    static double  h[MOST][WIDTH + 1];
    static int32_t labels[MOST];
    const int      n = gather(t, h, labels);
    const float   *w = t->model->params + t->model->out;
    const float   *bias = t->model->params + t->model->out_bias;
    double         diagonal = 0, factor = 0;

    for (int i = 0; i < n; i++)
        for (int k = 0; k <= WIDTH; k++)
            diagonal += h[i][k] * h[i][k] / (WIDTH + 1);
    for (int64_t v = 0; v < t->config.classes; v++) {
        double left[WIDTH + 1], right[WIDTH + 1] = { 0 }, size[WIDTH + 1] = { 0 };
        double both = 0, squares = 0;
        for (int k = 0; k <= WIDTH; k++) {
            left[k] =
                ridge * diagonal * (double)(k < WIDTH ? w[v * WIDTH + k] : bias[v]);
            for (int i = 0; i < n; i++) {
                double y = (double)bias[v];
                for (int c = 0; c < WIDTH; c++)
                    y += h[i][c] * (double)w[v * WIDTH + c];
                left[k] += h[i][k] * y;
                right[k] += labels[i] == v ? h[i][k] : 0;
                size[k] += fabs(h[i][k] * y);
            }
            both += left[k] * right[k];
            squares += right[k] * right[k];
        }
        if (v == 0) factor = both / squares;
        assert_true(factor >= 1 && factor <= 256);
        for (int k = 0; k <= WIDTH; k++)
            assert_true(fabs(left[k] - factor * right[k]) <=
                        1e-4 * (size[k] + factor * fabs(right[k])) + 1e-9);
    }
}

static double loss_times(struct training *t, float factor)
{
    foci_scores   s = { FOCI_SIZED(foci_scores) };
    float        *w = t->model->params + t->model->out;
    float        *bias = t->model->params + t->model->out_bias;
    const int64_t n = t->config.classes;

    for (int64_t i = 0; i < n * WIDTH; i++)
        w[i] *= factor;
    for (int64_t i = 0; i < n; i++)
        bias[i] *= factor;
    assert_int_equal(foci_evaluate(t->model, t->valid, 0, &s), FOCI_OK);
    return s.loss;
}

/* No other factor has a smaller loss on validation data. */
static void check_factor(struct training *t)
{
    const double best = loss_times(t, 1);

    assert_true(loss_times(t, 1.25f) > best);
    assert_true(loss_times(t, 0.64f) > best);
    (void)loss_times(t, 1.25f);
}

static void ridge(void **state)
{
    struct training    t = { .task = "listops(depth=2, arguments=3, least=3, most=12)",
                             .validates = true,
                             .batch = 16,
                             .config = training_small("softmax init(orthogonal)") };
    const double       given[] = { 1e-3 };
    foci_ridge_options o = { FOCI_SIZED(foci_ridge_options), .ridges = given,
                             .n_ridges = 1 };
    foci_scores        before = { FOCI_SIZED(foci_scores) }, after = before;
    double             chosen = 0;

    (void)state;
    t.options = (foci_train_options){ .steps = 1 };
    training_open(&t, 2);
    foci_data              *many = t.train;
    const foci_data_options d = { FOCI_SIZED(foci_data_options),
                                  .kind = FOCI_DATA_TASK,
                                  .task = t.task,
                                  .batch = 16,
                                  .examples = 16 * BATCHES,
                                  .seed = 3 };
    t.train = NULL;
    if (foci_data_open(t.ctx, &d, &t.train)) fail_msg("%s", foci_errmsg(t.ctx));
    assert_int_equal(foci_evaluate(t.model, t.train, BATCHES, &before), FOCI_OK);
    if (foci_model_ridge(t.model, t.train, t.valid, &o, &chosen))
        fail_msg("%s", foci_errmsg(t.ctx));
    assert_true(chosen == given[0]);
    check_equations(&t, chosen);
    check_factor(&t);
    assert_int_equal(foci_model_ridge(t.model, t.train, t.valid, NULL, &chosen),
                     FOCI_OK);
    assert_int_equal(foci_evaluate(t.model, t.train, BATCHES, &after), FOCI_OK);
    if (!(after.accuracy > before.accuracy))
        fail_msg("accuracy %g, before %g", after.accuracy, before.accuracy);
    foci_data_free(t.train);
    t.train = many;
    training_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ridge) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
