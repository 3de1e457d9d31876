/* mad_memorise.c -- values of keys that nothing in the sequence says.
 *
 *     k7 ? k2 ? k7 ?     the labels of the question marks are values of the keys
 *
 * The value of each key is the same in all sequences of all splits, whatever the seed of the
 * data: map number `map`, which has to be learned over training.  Of the vocabulary the last is the insert
 * token, at which the value of the key before it is the label; the others are half keys, half
 * values, and no two keys have the same value.
 */
#include <stdio.h>

#include "data/task/mad.h"

enum { VOCAB, LENGTH, MAP };

static const foci_arg_def args[] = {
    MAD_VOCAB(256, "keys, values and the insert token"),
    MAD_LENGTH(32),
    { .name = "map", .preset = 1, .max = 1 << 20, .help = "which of the maps there are" },
};

static const char *const slices[] = { "place", NULL };

/* Keys are ids from 1, values follow. */
static int64_t n_keys(const struct task *t) { return (task_int(t, VOCAB) - 1) / 2; }

static int64_t n_values(const struct task *t)
{
    return task_int(t, VOCAB) - 1 - n_keys(t);
}

static const char *plan(struct task *t)
{
    if (task_int(t, LENGTH) % 2) return "length is odd: the sequence is made of pairs";
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = task_int(t, VOCAB) + 1;
    t->len = task_int(t, LENGTH);
    t->chance = 1 / (double)n_values(t);
    t->scratch_bytes = (size_t)n_values(t) * sizeof(int32_t);
    return NULL;
}

/* The map: values in the order of Fisher and Yates, from the front, as many as keys. */
static void draw_map(const struct task *t, int32_t *value)
{
    struct rng r = task_table_stream((uint64_t)task_int(t, MAP));

    for (int64_t i = 0; i < n_values(t); i++)
        value[i] = (int32_t)(1 + n_keys(t) + i);
    for (int64_t i = 0; i < n_keys(t); i++) {
        const int64_t j = i + rng_below(&r, n_values(t) - i);
        const int32_t drawn = value[j];
        value[j] = value[i];
        value[i] = drawn;
    }
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    int32_t *value = e->scratch;

    (void)split;
    draw_map(t, value);
    for (e->n = 0; e->n < t->len; e->n += 2) {
        const int64_t key = rng_below(r, n_keys(t));
        e->ids[e->n] = (int32_t)(1 + key);
        e->ids[e->n + 1] = (int32_t)(t->vocab - 1);
        e->labels[e->n + 1] = value[key];
        e->slices[e->n + 1] = (int32_t)(e->n / 2);
    }
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    const int keys = (int)n_keys(t);

    (void)side;
    if (!id) return snprintf(text, cap, "%s", "");
    if (id <= keys) return snprintf(text, cap, "k%d", id);
    if (id < t->vocab - 1) return snprintf(text, cap, "v%d", id - keys);
    return snprintf(text, cap, "%s", "?");
}

const struct task_def task_mad_memorise = {
    .name = "mad-memorise",
    .summary = "learn a fixed map from keys to values",
    .source = MAD_SOURCE,
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .make = make,
    .symbol = symbol,
    .preset = "--layers 2 --dim 64 --heads 4 --activation swiglu --ffn 176 "
              "--positions rope --batch 64 --lr 0.003 --dtype bf16 --steps "
              "1000",
    .published = "--layers 2 --dim 128 --heads 16 --activation swiglu --ffn 352 "
                 "--positions rope --untied --batch 128 --epochs 200 --lr 0.0005 "
                 "--decay 0 --clip 0 --final-rate 0.002 --examples 256",
};
