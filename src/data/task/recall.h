/* recall.h -- what tasks of keys, values and questions have in common: sets of tokens,
 * places of questions, noise between them. */
#ifndef FOCI_RECALL_H
#define FOCI_RECALL_H

#include "data/task/task.h"

/* Arguments that several of them have. */
#define RECALL_VOCAB                                                                   \
    {                                                                                  \
        .name = "vocab", .preset = 8192, .min = 4, .max = 1 << 24,                     \
        .help = "tokens; half of them are keys, half values"                           \
    }
#define RECALL_POWER                                                                   \
    {                                                                                  \
        .name = "power", .preset = 0.01, .min = 0.001, .max = 4, .real = true,         \
        .help = "place i of a question has weight i^(power - 1)"                       \
    }
#define RECALL_GAP                                                                     \
    {                                                                                  \
        .name = "gap", .choices = "power|uniform", .help = "how places are drawn"      \
    }
#define RECALL_FILLER(words)                                                           \
    {                                                                                  \
        .name = "filler", .choices = words, .help = "between questions"                \
    }
#define RECALL_COMPAT                                                                  \
    {                                                                                  \
        .name = "compat", .choices = "none|zoology",                                   \
        .help = "zoology: noise may be any token, keys too"                            \
    }

/* Of a guess among the values, which are those tokens that are no keys. */
static inline double recall_chance(int64_t vocab)
{
    const int64_t values = vocab - vocab / 2;
    return 1 / (double)values;
}

/* A set of tokens, a bit each, and the bytes of one. */
static inline size_t recall_set_bytes(int64_t vocab)
{
    return (size_t)div_up(vocab, 8);
}

static inline bool recall_has(const uint8_t *set, int64_t token)
{
    return set[token >> 3] >> (token & 7) & 1;
}

/* A token that is not in the set, first + an integer below n, which then is in it. */
int32_t recall_new(struct rng *r, uint8_t *set, int64_t first, int64_t n);

/* Weights of n places: of place i, from 1, i^(power - 1), or all alike. */
void recall_weights(double *weights, int64_t n, double power, bool uniform);

/* One of n places that is not taken, which it then is. */
int64_t recall_place(struct rng *r, const double *weights, int64_t n, uint8_t *taken);

/* Noise from `begin` to the end of the example where no question stands: tokens below vocab
 * that are not in the set (NULL: any). */
void recall_noise(struct rng *r, struct task_example *e, int64_t begin,
                  const uint8_t *set, int64_t vocab);

/* An id as a number. */
int recall_symbol(const struct task *t, int side, int32_t id, char *text, size_t cap);

#endif
