/* examples.c -- examples of generators, and their counts. */
#include "support/examples.h"

#include <math.h>

struct examples *examples_open(const char *text)
{
    struct examples *m = test_alloc(1, sizeof *m);

    m->ctx = test_ctx(NULL, 2);
    if (task_parse(m->ctx, text, &m->t)) fail_msg("%s: %s", text, foci_errmsg(m->ctx));
    assert_int_equal(task_memory_make(m->ctx, &m->t, EXAMPLES_AT_ONCE, &m->memory),
                     FOCI_OK);
    return m;
}

void examples_close(struct examples *m)
{
    task_memory_free(m->ctx, &m->memory);
    task_free(m->ctx, &m->t);
    foci_ctx_free(m->ctx);
    free(m);
}

void examples_make(struct examples *m, foci_data_split split, int64_t first)
{
    task_make(m->ctx, &m->memory, EXAMPLES_SEED, split, first, EXAMPLES_AT_ONCE, m->e);
}

void examples_each(struct examples *m, foci_data_split split, int64_t n,
                   examples_fn *look, void *user)
{
    for (int64_t i = 0; i < n; i++) {
        if (i % EXAMPLES_AT_ONCE == 0) examples_make(m, split, i);
        look(m, &m->e[i % EXAMPLES_AT_ONCE], user);
    }
}

void examples_about(const char *what, double seen, double share, double of)
{
    const double mean = share * of, spread = 4 * sqrt(mean * (1 - share)) + 1;
    if (fabs(seen - mean) > spread)
        fail_msg("%s: %.0f of %.0f, expected %.1f +- %.1f", what, seen, of, mean,
                 spread);
}
