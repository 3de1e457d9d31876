/* made.h -- examples of a generator, some at a time, and shares that should be. */
#ifndef FOCI_MADE_H
#define FOCI_MADE_H

#include "data/task/task.h"
#include "test.h"

enum { AT_ONCE = 16 };

struct made {
    foci_ctx           *ctx;
    struct task         t;
    struct task_memory  memory;
    struct task_example e[AT_ONCE];
};

/* The task of a text, which has to be right. */
struct made *open_task(const char *text);
void         close_task(struct made *m);

/* Examples first to first + AT_ONCE of a split, seed 9. */
void make(struct made *m, foci_data_split split, int64_t first);

/* `seen` of `of` is within four standard deviations of a share. */
void about(const char *what, double seen, double share, double of);

#endif
