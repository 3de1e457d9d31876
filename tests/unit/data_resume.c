/* data_resume.c -- over one set of every kind: positions that are saved and restored, the
 * same batches for any number of threads, others for another seed. */
#include <stdio.h>

#include "support/datasets.h"

enum { SAVED = 1024, N_BATCHES = 40 };

static foci_data_order order_of(const struct dataset *set)
{
    return set->options.order;
}

static bool is_random(const struct dataset *set)
{
    return order_of(set) == FOCI_DATA_ORDER_SHUFFLED ||
           set->options.kind == FOCI_DATA_MLM || set->options.kind == FOCI_DATA_TASK;
}

/* From every batch of some passes on, in a new object and in one that is elsewhere. */
static void resumes(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 2);

    (void)state;
    for (int i = 0; i < N_DATASETS; i++) {
        struct opened *first = datasets_open(ctx, &datasets[i], NULL, NULL);
        struct opened *other = datasets_open(ctx, &datasets[i], NULL, NULL);
        uint64_t       sums[N_BATCHES + 5];
        char           saved[N_BATCHES + 1][SAVED];
        size_t         bytes = 0;

        for (int b = 0; b < N_BATCHES + 5; b++) {
            if (b <= N_BATCHES) bytes = foci_data_save(first->data, saved[b], SAVED);
            assert_in_range(bytes, 1, SAVED);
            const foci_batch batch = datasets_next(first->data);
            sums[b] = datasets_sum(&batch);
        }
        for (int b = N_BATCHES; b >= 0; b -= 3) {
            if (foci_data_restore(other->data, saved[b], bytes))
                fail_msg("%s, batch %d: %s", datasets[i].name, b, foci_errmsg(ctx));
            for (int c = b; c < b + 5; c++) {
                const foci_batch batch = datasets_next(other->data);
                if (datasets_sum(&batch) != sums[c])
                    fail_msg("%s: batch %d is another one after %d", datasets[i].name,
                             c, b);
            }
        }
        /* Beginning a pass is a position too. */
        assert_int_equal(foci_data_rewind(other->data, 0), FOCI_OK);
        for (int c = 0; c < 5; c++) {
            const foci_batch batch = datasets_next(other->data);
            assert_int_equal(datasets_sum(&batch), sums[c]);
        }
        datasets_close(first);
        datasets_close(other);
    }
    foci_ctx_free(ctx);
}

static void refuse(struct opened *o, const char *from, size_t bytes, const char *reason)
{
    assert_int_equal(foci_data_restore(o->data, from, bytes), FOCI_ERR_FILE);
    if (!strstr(foci_errmsg(o->ctx), reason))
        fail_msg("\"%s\" should speak of \"%s\"", foci_errmsg(o->ctx), reason);
}

/* Refused without a change: the next batch is what it would have been. */
static void refuses(void **state)
{
    foci_ctx      *ctx = test_ctx(NULL, 1);
    struct opened *o = datasets_open(ctx, &datasets[1], NULL, NULL);
    char           saved[SAVED], bad[SAVED];
    const size_t   bytes = foci_data_save(o->data, NULL, 0);

    (void)state;
    assert_int_equal(foci_data_save(o->data, saved, bytes - 1), bytes);
    assert_int_equal(foci_data_save(o->data, saved, SAVED), bytes);
    foci_batch     batch = datasets_next(o->data);
    const uint64_t first = datasets_sum(&batch);
    batch = datasets_next(o->data);

    refuse(o, saved, bytes - 1, "has");
    refuse(o, saved, 0, "has");
    for (size_t i = 0; i < bytes; i++) {
        memcpy(bad, saved, bytes);
        bad[i] = (char)(bad[i] ^ 4);
        refuse(o, bad, bytes, "the position");
    }
    for (int i = 0; i < N_DATASETS; i++) {
        struct opened *other = datasets_open(ctx, &datasets[i], NULL, NULL);
        if (i != 1) refuse(other, saved, bytes, "one in other data");
        datasets_close(other);
    }
    foci_data_options changed = datasets[1].options;
    changed.seed++;
    struct opened *other = datasets_open(ctx, &datasets[1], &changed, NULL);
    refuse(other, saved, bytes, "one in other data");
    datasets_close(other);

    /* After all this it goes on as if nothing had been, and can go back. */
    struct opened *same = datasets_open(ctx, &datasets[1], NULL, NULL);
    (void)datasets_next(same->data);
    (void)datasets_next(same->data);
    const foci_batch a = datasets_next(o->data), b = datasets_next(same->data);
    assert_int_equal(datasets_sum(&a), datasets_sum(&b));
    assert_int_equal(foci_data_restore(o->data, saved, bytes), FOCI_OK);
    batch = datasets_next(o->data);
    assert_int_equal(datasets_sum(&batch), first);
    datasets_close(same);
    datasets_close(o);
    foci_ctx_free(ctx);
}

/* The text was changed between saving and restoring. */
static void notices_other_text(void **state)
{
    foci_ctx      *ctx = test_ctx(NULL, 1);
    struct dataset changed = datasets[0];
    char           text[2048], saved[SAVED];

    (void)state;
    snprintf(text, sizeof text, "%s", changed.source);
    text[100] = text[100] == 'x' ? 'y' : 'x';
    changed.source = text;
    struct opened *o = datasets_open(ctx, &datasets[0], NULL, NULL);
    struct opened *other = datasets_open(ctx, &changed, NULL, NULL);
    const size_t   bytes = foci_data_save(o->data, saved, sizeof saved);
    foci_batch     batch = { FOCI_SIZED(foci_batch) };

    refuse(other, saved, bytes, "is not what it was");
    assert_int_equal(foci_data_next(other->data, &batch), FOCI_ERR_FILE);
    assert_non_null(strstr(foci_errmsg(ctx), "rewind"));
    assert_int_equal(foci_data_rewind(other->data, 0), FOCI_OK);
    assert_int_equal(foci_data_next(other->data, &batch), FOCI_OK);
    datasets_close(o);
    datasets_close(other);
    foci_ctx_free(ctx);
}

static void threads(void **state)
{
    foci_ctx *one = test_ctx(NULL, 1), *many = test_ctx(NULL, 7);

    (void)state;
    for (int i = 0; i < N_DATASETS; i++) {
        struct opened *a = datasets_open(one, &datasets[i], NULL, NULL);
        struct opened *b = datasets_open(many, &datasets[i], NULL, NULL);
        for (int n = 0; n < N_BATCHES; n++) {
            const foci_batch x = datasets_next(a->data), y = datasets_next(b->data);
            if (datasets_sum(&x) != datasets_sum(&y))
                fail_msg("%s: batch %d differs between threads", datasets[i].name, n);
        }
        datasets_close(a);
        datasets_close(b);
    }
    foci_ctx_free(one);
    foci_ctx_free(many);
}

static void seeds(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int i = 0; i < N_DATASETS; i++) {
        foci_data_options changed = datasets[i].options;
        changed.seed = 6;
        struct opened *a = datasets_open(ctx, &datasets[i], NULL, NULL);
        struct opened *b = datasets_open(ctx, &datasets[i], &changed, NULL);
        int            differ = 0;
        for (int n = 0; n < 10; n++) {
            const foci_batch x = datasets_next(a->data), y = datasets_next(b->data);
            differ += datasets_sum(&x) != datasets_sum(&y);
        }
        if (is_random(&datasets[i]) != (differ > 0))
            fail_msg("%s: %d of 10 batches differ for another seed", datasets[i].name,
                     differ);
        datasets_close(a);
        datasets_close(b);
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumes),
        cmocka_unit_test(refuses),
        cmocka_unit_test(notices_other_text),
        cmocka_unit_test(threads),
        cmocka_unit_test(seeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
