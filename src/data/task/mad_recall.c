/* mad_recall.c -- a stream of keys and values, as it stands or among noise.
 *
 *     k3 v1 k1 v4 k3 v1 n5 n2 k2 v1 k1 v4
 *
 * Half of the symbols are keys, half values.  A key is drawn anew for each pair; the first
 * time it is bound to a value, which it keeps in this sequence, and from the second time on
 * the value is the label of the key's position.  The key of the last pair is one of those
 * before it, so there is a label in every sequence.  In mad-noisy the place of a pair is
 * taken by two symbols of noise with probability `noise`, but at one place that is drawn and
 * at the last.
 *
 * compat=mad: in training every token is a label, as published.
 */
#include <stdio.h>

#include "data/task/mad.h"

enum { VOCAB, LENGTH, COMPAT, NOISE, SYMBOLS };

static const foci_arg_def args[] = {
    MAD_VOCAB(16, "half of them keys, half values"),
    MAD_LENGTH(128),
    MAD_COMPAT("mad: in training every token is a label"),
};

static const foci_arg_def noisy_args[] = {
    MAD_VOCAB(32, "in all: noise, and the rest half keys, half values"),
    MAD_LENGTH(128),
    MAD_COMPAT("mad: in training every token is a label"),
    { .name = "noise",
      .preset = 0.2,
      .max = 0.999,
      .real = true,
      .help = "share of pairs that are noise" },
    { .name = "symbols",
      .preset = 16,
      .min = 1,
      .max = 1 << 20,
      .help = "of noise, among vocab" },
};

static const char *const slices[] = { "keys", "distance", NULL };

static bool is_noisy(const struct task *t) { return t->def == &task_mad_noisy; }

/* Symbols of noise; keys, which are ids from 1; values, which follow. */
static int64_t n_noise(const struct task *t)
{
    return is_noisy(t) ? task_int(t, SYMBOLS) : 0;
}

static int64_t n_keys(const struct task *t)
{
    return (task_int(t, VOCAB) - n_noise(t)) / 2;
}

static int64_t n_values(const struct task *t)
{
    return task_int(t, VOCAB) - n_noise(t) - n_keys(t);
}

static const char *plan(struct task *t)
{
    if (task_int(t, LENGTH) % 2) return "length is odd: the sequence is made of pairs";
    if (n_keys(t) < 1) {
        snprintf(t->message, sizeof t->message,
                 "vocab=%.0f has no keys and values beside %lld symbols of noise",
                 t->arg[VOCAB], (long long)n_noise(t));
        return t->message;
    }
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = task_int(t, VOCAB) + 1;
    t->len = task_int(t, LENGTH);
    t->chance = 1 / (double)n_values(t);
    /* Of each key its value and last place; keys in the order they came in. */
    t->scratch_bytes = (size_t)(3 * n_keys(t)) * sizeof(int32_t);
    return NULL;
}

/* What was bound so far; places count from 1, 0: not yet. */
struct bindings {
    int32_t *value, *last, *order;
    int64_t  n;
};

static void put_pair(const struct task *t, struct rng *r, struct task_example *e,
                     struct bindings *b, int64_t key)
{
    const int64_t at = e->n;

    if (!b->last[key]) {
        b->order[b->n++] = (int32_t)key;
        b->value[key] = (int32_t)(1 + n_keys(t) + rng_below(r, n_values(t)));
    }
    e->ids[at] = (int32_t)(1 + key);
    e->ids[at + 1] = b->value[key];
    if (b->last[key]) mad_label(t, e, at + 1, b->n, at + 1 - b->last[key]);
    b->last[key] = (int32_t)at + 1;
    e->n += 2;
}

static void put_noise(const struct task *t, struct rng *r, struct task_example *e)
{
    for (int i = 0; i < 2; i++)
        e->ids[e->n++] = (int32_t)(t->vocab - n_noise(t) + rng_below(r, n_noise(t)));
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const int64_t   pairs = t->len / 2;
    const double    noise = is_noisy(t) ? t->arg[NOISE] : 0;
    struct bindings b = { .value = e->scratch };

    b.last = b.value + n_keys(t);
    b.order = b.last + n_keys(t);
    const int64_t kept = is_noisy(t) ? rng_below(r, pairs - 1) : 0;
    for (int64_t i = 0; i < pairs - 1; i++) {
        if (noise > 0 && i != kept && rng_uniform(r) < noise)
            put_noise(t, r, e);
        else
            put_pair(t, r, e, &b, rng_below(r, n_keys(t)));
    }
    put_pair(t, r, e, &b, b.order[rng_below(r, b.n)]);
    if (t->arg[COMPAT] == MAD_COMPAT_MAD && split == FOCI_DATA_SPLIT_TRAIN)
        mad_label_all(e);
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    const int keys = (int)n_keys(t), values = (int)n_values(t);

    (void)side;
    if (!id) return snprintf(text, cap, "%s", "");
    if (id <= keys) return snprintf(text, cap, "k%d", id);
    if (id <= keys + values) return snprintf(text, cap, "v%d", id - keys);
    return snprintf(text, cap, "n%d", id - keys - values);
}

static int64_t last_value(const struct task *t, const struct task_example *e, int64_t at)
{
    const int64_t keys = n_keys(t), values = n_values(t);

    while (at >= 0 && (e->ids[at] <= keys || e->ids[at] > keys + values))
        at--;
    return at < 0 ? -1 : e->ids[at];
}

static const struct task_rule rules[] = { { "last value", false, last_value } };

const struct task_def task_mad_recall = {
    .name = "mad-recall",
    .summary = "recall values in a stream of keys and values",
    .source = MAD_SOURCE,
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .make = make,
    .symbol = symbol,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
    .preset = "--layers 2 --dim 64 --heads 4 --activation swiglu --ffn 176 "
              "--positions rope --conv 3 --batch 64 --lr 0.003 --dtype bf16 "
              "--steps 1000",
    .published = "--task mad-recall(compat=mad) --layers 2 --dim 128 --heads 16 "
                 "--activation swiglu --ffn 352 --positions rope --untied "
                 "--batch 128 --epochs 200 --lr 0.0005 --decay 0 --clip 0 "
                 "--final-rate 0.002 --examples 12800",
};

const struct task_def task_mad_noisy = {
    .name = "mad-noisy",
    .summary = "recall values in a stream of keys, values and noise",
    .source = MAD_SOURCE,
    .version = 1,
    .args = noisy_args,
    .n_args = sizeof noisy_args / sizeof *noisy_args,
    .slices = slices,
    .plan = plan,
    .make = make,
    .symbol = symbol,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
    .preset = "--layers 2 --dim 64 --heads 4 --activation swiglu --ffn 176 "
              "--positions rope --conv 3 --batch 64 --lr 0.003 --dtype bf16 "
              "--steps 1000",
    .published = "--task mad-noisy(compat=mad) --layers 2 --dim 128 --heads 16 "
                 "--activation swiglu --ffn 352 --positions rope --untied "
                 "--batch 128 --epochs 200 --lr 0.0005 --decay 0 --clip 0 "
                 "--final-rate 0.002 --examples 12800",
};
