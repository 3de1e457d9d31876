/* data_alloc.c -- the n-th allocation fails, for every n, in data of every kind: while they
 * are opened, in batches, and while a position is restored. */
#include "support/datasets.h"
#include "support/failing.h"
#include "support/sized.h"

enum { N_BATCHES = 12 };

struct play {
    foci_ctx         *ctx;
    foci_data_options o;
    struct source     source[2];
    const char       *saved;
    size_t            bytes;
};

/* Open, go to a position, take batches; all is freed again. */
static foci_status play(const struct play *p)
{
    struct source     source[2] = { p->source[0], p->source[1] };
    foci_reader       r[2] = { source_reader(&source[0]), source_reader(&source[1]) };
    foci_data_options o = p->o;
    foci_data        *d = (foci_data *)&o;

    o.source = source[0].text ? &r[0] : NULL;
    o.target = source[1].text ? &r[1] : NULL;
    foci_status status = foci_data_open(p->ctx, &o, &d);
    if (status) assert_null(d);
    for (int i = 0; i < 2; i++)
        if (source[i].text && status) assert_int_equal(source[i].closed, 1);
    if (!status) status = foci_data_restore(d, p->saved, p->bytes);
    for (int i = 0; i < N_BATCHES && !status; i++) {
        foci_batch b = { FOCI_SIZED(foci_batch) };
        status = foci_data_next(d, &b);
    }
    foci_floor floor = { FOCI_SIZED(foci_floor) };
    if (!status && p->o.kind == FOCI_DATA_TASK)
        status = foci_data_floor(d, 2, 20, &floor);
    foci_data_free(d);
    return status;
}

static void every_allocation(const struct play *p, const char *name)
{
    const int64_t before = failing_live();

    failing_at(0, false);
    if (play(p)) fail_msg("%s: %s", name, foci_errmsg(p->ctx));
    const int64_t needed = failing_count();
    assert_int_equal(failing_live(), before);
    assert_true(needed > 5);
    for (int ever = 0; ever < 2; ever++)
        for (int64_t n = 1; n <= needed; n++) {
            ctx_fail(p->ctx, FOCI_OK, "%s", "");
            failing_at(n, ever);
            const foci_status status = play(p);
            failing_at(0, false);
            if (status != FOCI_ERR_MEMORY || !strstr(foci_errmsg(p->ctx), "memory"))
                fail_msg("%s: allocation %lld of %lld: status %d, \"%s\"", name,
                         (long long)n, (long long)needed, status, foci_errmsg(p->ctx));
            if (failing_live() != before)
                fail_msg("%s: allocation %lld leaks %lld blocks", name, (long long)n,
                         (long long)(failing_live() - before));
        }
}

static void data(void **state)
{
    const foci_options options = { FOCI_SIZED(foci_options), .threads = 1,
                                   .alloc = sized_alloc };
    const int          step = getenv("FOCI_TEST_SHORT") ? 3 : 1;
    foci_ctx          *ctx = NULL;

    (void)state;
    assert_int_equal(foci_ctx_create(&options, &ctx), FOCI_OK);
    for (int i = 0; i < N_DATASETS; i += step) {
        struct opened *o = datasets_open(ctx, &datasets[i], NULL, NULL);
        char           saved[1024];
        struct play    p = { .ctx = ctx, .o = datasets[i].options, .saved = saved };
        for (int b = 0; b < 7; b++)
            (void)datasets_next(o->data);
        p.bytes = foci_data_save(o->data, saved, sizeof saved);
        p.o.tokenizer = o->tokenizer;
        p.o.target_tokenizer = o->target_tokenizer;
        for (int s = 0; s < 2; s++) {
            p.source[s] = s ? o->target : o->source;
            p.source[s].at = p.source[s].closed = 0;
        }
        every_allocation(&p, datasets[i].name);
        datasets_close(o);
    }
    foci_ctx_free(ctx);
    assert_int_equal(failing_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(data) };
    failing_json();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
