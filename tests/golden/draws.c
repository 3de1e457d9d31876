/* draws.c -- frozen projections against those that draws.py made (README.md). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "layer/frozen.h"
#include "test.h"

static const char *const kinds[] = { "orthogonal", "gaussian", "hadamard" };

static enum frozen_kind kind_of(const char *word)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(kinds[i], word) == 0) return (enum frozen_kind)i;
    fail_msg("no kind %s", word);
    return FROZEN_ORTHOGONAL;
}

/* The numbers of the line that follows, each to the last place of a float near 1. */
static void compare(FILE *file, const struct frozen *f)
{
    const int64_t n = f->width * f->heads * f->dim;
    float *const  out = test_alloc((size_t)n, sizeof *out);
    char          word[40];

    assert_int_equal(frozen_write(f, out), FOCI_OK);
    assert_int_equal(fscanf(file, "%39s", word), 1);
    assert_string_equal(word, "w");
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(fscanf(file, "%39s", word), 1);
        if (fabs(strtod(word, NULL) - (double)out[i]) > 2e-7)
            fail_msg("%s, block %d, %" PRId64 " to %" PRId64 " x %" PRId64
                     ": element %" PRId64 " is %.9g, not %s",
                     kinds[f->kind], f->block, f->width, f->heads, f->dim, i,
                     (double)out[i], word);
    }
    free(out);
}

static void test_draws(void **state)
{
    (void)state;
    FILE *const     file = fopen("tests/golden/draws.txt", "r");
    foci_ctx *const ctx = test_ctx(NULL, 1);
    int64_t         at[5];
    char            line[80], word[20];
    int             cases = 0, block;

    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    for (; fscanf(file, " draw %19s %d", word, &block) == 2; cases++) {
        for (int i = 0; i < 5; i++)
            assert_int_equal(fscanf(file, "%" SCNd64, &at[i]), 1);
        struct frozen f = { .kind = kind_of(word),
                            .block = block,
                            .width = at[0],
                            .heads = at[1],
                            .dim = at[2] };
        assert_int_equal(frozen_make(ctx, &f, (uint64_t)at[3], (uint64_t)at[4]),
                         FOCI_OK);
        compare(file, &f);
        frozen_free(ctx, &f);
    }
    assert_true(feof(file) && cases > 10);
    fclose(file);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_draws) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
