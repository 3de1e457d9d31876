/* made.c -- examples of a generator, some at a time, and shares that should be. */
#include "support/made.h"

#include <math.h>

struct made *open_task(const char *text)
{
    struct made *m = test_alloc(1, sizeof *m);

    m->ctx = test_ctx(NULL, 2);
    if (task_parse(m->ctx, text, &m->t)) fail_msg("%s: %s", text, foci_errmsg(m->ctx));
    assert_int_equal(task_memory_make(m->ctx, &m->t, AT_ONCE, &m->memory), FOCI_OK);
    return m;
}

void close_task(struct made *m)
{
    task_memory_free(m->ctx, &m->memory);
    task_free(m->ctx, &m->t);
    foci_ctx_free(m->ctx);
    free(m);
}

void make(struct made *m, foci_data_split split, int64_t first)
{
    task_make(m->ctx, &m->memory, 9, split, first, AT_ONCE, m->e);
}

void about(const char *what, double seen, double share, double of)
{
    const double mean = share * of, spread = 4 * sqrt(mean * (1 - share));
    if (fabs(seen - mean) > spread)
        fail_msg("%s: %.0f of %.0f, expected %.1f +- %.1f", what, seen, of, mean,
                 spread);
}
