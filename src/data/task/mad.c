/* mad.c -- what the tasks of MAD have in common. */
#include "data/task/mad.h"

void mad_label(const struct task *t, struct task_example *e, int64_t at, int64_t load,
               int64_t distance)
{
    e->labels[at - 1] = e->ids[at];
    e->slices[at - 1] = (int32_t)load;
    e->slices[t->len + at - 1] = (int32_t)distance;
}

void mad_label_all(struct task_example *e)
{
    for (int64_t at = 1; at < e->n; at++)
        e->labels[at - 1] = e->ids[at];
}
