/* mad.h -- what the tasks of MAD have in common (Poli et al., "Mechanistic Design and
 * Scaling of Hybrid Architectures", 2024). */
#ifndef FOCI_MAD_H
#define FOCI_MAD_H

#include "data/task/task.h"

#define MAD_SOURCE "Poli et al., MAD, 2024"

#define MAD_VOCAB(count, text)                                                         \
    {                                                                                  \
        .name = "vocab", .preset = count, .min = 4, .max = 1 << 20, .help = text       \
    }
#define MAD_LENGTH(count)                                                              \
    {                                                                                  \
        .name = "length", .preset = count, .min = 4, .max = 1 << 20,                   \
        .help = "of a sequence"                                                        \
    }
#define MAD_COMPAT(text)                                                               \
    {                                                                                  \
        .name = "compat", .choices = "none|mad", .help = text                          \
    }

enum { MAD_COMPAT_NONE, MAD_COMPAT_MAD };

/* Label the position before `at` with the token there. */
void mad_label(const struct task *t, struct task_example *e, int64_t at, int64_t load,
               int64_t distance);

/* As published, in training: every token is the label of the position before. */
void mad_label_all(struct task_example *e);

#endif
