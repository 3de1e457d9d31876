/* frozen_limits.c -- logits and weights of frozen projections are as far from their limits as
 * foci_limits_run() says theory has them. */
#include <math.h>
#include <string.h>

#include "foci/analyse.h"
#include "test.h"

enum { WIDTH = 48, ROWS = 40, HEADS = 4, DRAWS = 12 };

static foci_limits_io io_of(foci_limit *limits, int64_t n)
{
    return (foci_limits_io){ FOCI_SIZED(foci_limits_io),
                             .width = WIDTH,
                             .heads = HEADS,
                             .draws = DRAWS,
                             .seed = 3,
                             .rows = ROWS,
                             .limits = limits,
                             .n_limits = n };
}

static void near(const foci_figure *f, double within, const foci_limit *at,
                 const char *what)
{
    const double off = fabs(f->measured - f->expected);

    if (!(off <= 5 * f->error + within * f->expected))
        fail_msg("%s of kind %d, dim %d, tied %d: %g +- %g, in theory %g", what,
                 at->kind, (int)at->dim, at->tied, f->measured, f->error, f->expected);
}

/* The transforms of `hadamard` are not uniform among frames, but nearly. */
static void as_in_theory(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int i = 0; i < 12; i++) {
        foci_limit at = { .kind = i % 3, .tied = i / 3 % 2, .dim = i / 6 ? WIDTH : 12 };
        const foci_limits_io io = io_of(&at, 1);
        const double         off = at.kind == 2 ? 0.05 : 0;

        assert_int_equal(foci_limits_run(ctx, &io), FOCI_OK);
        if (at.tied && at.kind != 1 && at.dim == WIDTH) {
            /* All of x.y is kept: the weights are the kernel's. */
            assert_true(at.logits[0].measured < 1e-5 && at.logits[0].expected == 0);
            assert_true(at.weights[1].measured < 1e-5);
            continue;
        }
        near(&at.logits[0], off, &at, "logits");
        near(&at.logits[1], off, &at, "mean logits");
        if (at.tied) {
            near(&at.spread, off, &at, "spread");
            assert_true(isnan(at.weights[0].expected));
            assert_true(at.weights[1].measured < at.weights[0].measured);
        } else {
            near(&at.weights[0], 0.12, &at, "weights");
            near(&at.weights[1], 0.12, &at, "mean weights");
        }
    }
    foci_ctx_free(ctx);
}

/* Zero hidden states have no logits, and any head weighs all of them the same. */
static void given_states(void **state)
{
    static const float zeros[2 * WIDTH];
    foci_ctx          *ctx = test_ctx(NULL, 1);
    foci_limit         at = { .dim = 3 };
    foci_limits_io     io = io_of(&at, 1);

    (void)state;
    io.x = zeros;
    io.rows = 2;
    assert_int_equal(foci_limits_run(ctx, &io), FOCI_OK);
    assert_true(at.logits[0].measured == 0 && at.weights[0].measured == 0);
    foci_ctx_free(ctx);
}

static void refusals(void **state)
{
    foci_ctx      *ctx = test_ctx(NULL, 1);
    foci_limit     odd = { .kind = 2, .tied = 1, .dim = 3 }, wide = { .dim = 49 };
    foci_limits_io io = io_of(&wide, 1);

    (void)state;
    assert_int_equal(foci_limits_run(ctx, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "1 to 48"));
    io = io_of(&odd, 1);
    io.draws = 1;
    assert_int_equal(foci_limits_run(ctx, &io), FOCI_ERR_ARG);
    io.draws = 2;
    io.width = 7; /* no power of two divides it */
    assert_int_equal(foci_limits_run(ctx, &io), FOCI_OK);
    assert_true(isnan(odd.logits[0].measured) && isnan(odd.spread.expected));
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_in_theory),
        cmocka_unit_test(given_states),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
