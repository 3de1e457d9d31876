/* examples.h -- examples of generators, straight from task.h, and their counts. */
#ifndef FOCI_TEST_EXAMPLES_H
#define FOCI_TEST_EXAMPLES_H

#include "data/task/task.h"
#include "test.h"

enum { EXAMPLES_AT_ONCE = 16, EXAMPLES_SEED = 9 };

/* A generator and the examples that were made last. */
struct examples {
    foci_ctx           *ctx;
    struct task         t;
    struct task_memory  memory;
    struct task_example e[EXAMPLES_AT_ONCE];
};

struct examples *examples_open(const char *text);
void             examples_close(struct examples *m);

/* Make examples first to first + EXAMPLES_AT_ONCE. */
void examples_make(struct examples *m, foci_data_split split, int64_t first);

/* Call `look` with each of n examples. */
typedef void examples_fn(const struct examples *m, const struct task_example *e,
                         void *user);
void         examples_each(struct examples *m, foci_data_split split, int64_t n,
                           examples_fn *look, void *user);

/* Fail unless `seen` of `of` is within four standard errors of a share, and one. */
void examples_about(const char *what, double seen, double share, double of);

#endif
