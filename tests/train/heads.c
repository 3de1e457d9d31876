/* heads.c -- a model without one head: zeros in the parameters that foci_model_head_floats() names
 * are as good as values of zero, and nothing else changes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/training.h"

enum { HEADS = 2, WIDTH = 16, DIM = WIDTH / HEADS };

static double loss_of(struct training *t, const foci_batch *b)
{
    const foci_loss_options o = { FOCI_SIZED(foci_loss_options) };
    foci_loss               loss = { FOCI_SIZED(foci_loss) };

    assert_int_equal(foci_model_loss(t->model, b, &o, NULL, &loss), FOCI_OK);
    return loss.sum;
}

/* Make the values of a head zero: its columns of Wv and elements of bv. */
static void clear_values(foci_model *m, int64_t block, int64_t head)
{
    float *params = foci_model_params(m);
    char   wv[64], bv[64];

    snprintf(wv, sizeof wv, "%d.attention.Wv", (int)block);
    snprintf(bv, sizeof bv, "%d.attention.bv", (int)block);
    int found = 0;
    for (int i = 0; i < foci_model_param_count(m); i++) {
        foci_param p = { FOCI_SIZED(foci_param) };
        assert_int_equal(foci_model_param(m, i, &p), FOCI_OK);
        const bool matrix = strcmp(p.name, wv) == 0, bias = strcmp(p.name, bv) == 0;
        found += matrix || bias;
        for (int64_t r = 0; (matrix || bias) && r < p.count / WIDTH; r++)
            memset(params + p.offset + r * WIDTH + head * DIM, 0, DIM * sizeof *params);
    }
    assert_int_equal(found, 2);
}

static void without_a_head(foci_dtype dtype)
{
    struct training t = { .task = "copy(form=row)",
                          .config = training_small("softmax"),
                          .options = { FOCI_SIZED(foci_train_options), .steps = 1 } };
    foci_batch      b = { FOCI_SIZED(foci_batch) };

    t.config.dtype = dtype;
    t.config.heads = HEADS;
    training_open(&t, 1);
    assert_int_equal(foci_data_next(t.train, &b), FOCI_OK);
    const size_t bytes = (size_t)foci_model_param_floats(t.model) * sizeof(float);
    float *const params = foci_model_params(t.model), *kept = test_alloc(1, bytes);
    memcpy(kept, params, bytes);
    const double all = loss_of(&t, &b);
    for (int64_t block = 0; block < 2; block++)
        for (int64_t head = 0; head < HEADS; head++) {
            int64_t first, count;
            assert_int_equal(
                foci_model_head_floats(t.model, block, head, &first, &count), FOCI_OK);
            assert_int_equal(count, DIM * WIDTH);
            memset(params + first, 0, (size_t)count * sizeof *params);
            const double without = loss_of(&t, &b);
            memcpy(params, kept, bytes);
            clear_values(t.model, block, head);
            const double want = loss_of(&t, &b);
            memcpy(params, kept, bytes);
            assert_true(fabs(without - want) <= 1e-6 * want);
            assert_true(fabs(without - all) > 1e-4);
        }
    assert_true(loss_of(&t, &b) == all);
    free(kept);
    training_close(&t);
}

static void losses(void **state)
{
    (void)state;
    without_a_head(FOCI_F32);
    without_a_head(FOCI_BF16);
}

static void refusals(void **state)
{
    struct training t = { .task = "copy(form=row)",
                          .config = training_small("softmax"),
                          .options = { FOCI_SIZED(foci_train_options), .steps = 1 } };
    int64_t         first, count;

    (void)state;
    training_open(&t, 1);
    assert_int_equal(foci_model_head_floats(t.model, 2, 0, &first, &count),
                     FOCI_ERR_ARG);
    assert_int_equal(foci_model_head_floats(t.model, 0, 99, &first, &count),
                     FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(t.ctx), "no head 99 of attention 0"));
    training_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
