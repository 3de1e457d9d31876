/* mqar_update.c -- associative recall in which some keys are bound anew.
 *
 *     k1 v1 k2 v2 ... kp vp  k4 w1 k1 w2 ... . . k2 . k1 . ...
 *
 * Keys and values are those of mqar.c.  Behind the pairs `updates` of the keys come again
 * with other values, and the last value of a key is what counts: to find a key is not
 * enough, the later of two places has to be found.  Questions and filler are those of
 * mqar.c, behind the updates.
 */
#include <stdio.h>

#include "data/task/recall.h"

enum { VOCAB, LENGTH, PAIRS, UPDATES, POWER, FILLER, GAP };
enum { FILLER_ZERO, FILLER_NOISE };
enum { GAP_POWER, GAP_UNIFORM };

static const foci_arg_def args[] = {
    RECALL_VOCAB,
    { .name = "length", .preset = 64, .min = 6, .max = 1 << 20, .help = "of a sequence" },
    { .name = "pairs", .preset = 8, .min = 1, .max = 1 << 17, .help = "to be recalled" },
    { .name = "updates",
      .preset = 4,
      .min = 0,
      .max = 1 << 17,
      .help = "keys that get another value later" },
    RECALL_POWER,
    RECALL_FILLER("zero|noise"),
    RECALL_GAP,
};

static const char *const slices[] = { "updated", "distance", NULL };

/* Where questions begin. */
static int64_t bound(const struct task *t)
{
    return 2 * (task_int(t, PAIRS) + task_int(t, UPDATES));
}

/* A sentence with two numbers. */
static const char *wrong(struct task *t, const char *format, int64_t a, int64_t b)
{
    snprintf(t->message, sizeof t->message, format, (long long)a, (long long)b);
    return t->message;
}

static const char *plan(struct task *t)
{
    const int64_t vocab = task_int(t, VOCAB), pairs = task_int(t, PAIRS);
    const int64_t updates = task_int(t, UPDATES);
    const int64_t least = max64(bound(t) - 1, 2 * pairs + 2);
    const int64_t places = (task_int(t, LENGTH) - bound(t)) / 2;

    if (updates > pairs)
        return wrong(t, "updates=%lld is above pairs=%lld: no key is left to bind anew",
                     updates, pairs);
    if (places < pairs)
        return wrong(
            t,
            "length=%lld: pairs, updates and a question for each key take %lld "
            "at least",
            task_int(t, LENGTH), bound(t) + 2 * pairs);
    if (vocab < least)
        return wrong(t, "vocab=%lld: keys and values take %lld tokens at least", vocab,
                     least);
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = vocab;
    t->len = task_int(t, LENGTH);
    t->chance = recall_chance(vocab);
    t->n_table = places;
    /* Two sets of tokens, places, and where each key was bound last. */
    t->scratch_bytes = 2 * recall_set_bytes(vocab) + (size_t)places +
                       (size_t)(pairs + 1) * sizeof(int64_t);
    return NULL;
}

static void mqar_update_fill(const struct task *t, double *table)
{
    recall_weights(table, t->n_table, t->arg[POWER], t->arg[GAP] == GAP_UNIFORM);
}

/* Pairs and updates; last[p]: where key p stands last. */
static void bind(const struct task *t, struct rng *r, struct task_example *e,
                 uint8_t *set, int64_t *last)
{
    const int64_t pairs = task_int(t, PAIRS), half = t->vocab / 2;
    uint8_t      *again = set + recall_set_bytes(t->vocab);

    for (int64_t p = 0; p < pairs; p++) {
        e->ids[2 * p] = recall_new(r, set, 1, half - 1);
        last[p] = 2 * p;
    }
    for (int64_t at = 2 * pairs; at < bound(t); at += 2) {
        const int64_t p = recall_new(r, again, 0, pairs);
        e->ids[at] = e->ids[2 * p];
        last[p] = at;
    }
    for (int64_t at = 0; at < bound(t); at += 2)
        e->ids[at + 1] = recall_new(r, set, half, t->vocab - half);
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const int64_t pairs = task_int(t, PAIRS);
    int64_t      *last = e->scratch;
    uint8_t      *set = (uint8_t *)(last + pairs);
    uint8_t      *taken = set + 2 * recall_set_bytes(t->vocab);

    (void)split;
    e->n = t->len;
    bind(t, r, e, set, last);
    for (int64_t p = 0; p < pairs; p++) {
        const int64_t at = bound(t) + 2 * recall_place(r, t->table, t->n_table, taken);
        e->ids[at] = e->ids[2 * p];
        e->labels[at] = e->ids[last[p] + 1];
        e->slices[at] = last[p] >= 2 * pairs;
        e->slices[t->len + at] = (int32_t)(at - last[p]);
    }
    if (t->arg[FILLER] == FILLER_NOISE) recall_noise(r, e, bound(t), set, t->vocab);
}

/*
 * Rules
 */

static int64_t last_value(const struct task *t, const struct task_example *e, int64_t at)
{
    (void)at;
    return e->ids[bound(t) - 1];
}

/* Right where the key was not bound anew. */
static int64_t first_value(const struct task *t, const struct task_example *e,
                           int64_t at)
{
    int64_t i = 0;

    (void)t;
    while (e->ids[i] != e->ids[at])
        i += 2;
    return e->ids[i + 1];
}

static const struct task_rule rules[] = {
    { "last value", false, last_value },
    { "first value of the key", false, first_value },
};

const struct task_def task_mqar_update = {
    .name = "mqar-update",
    .summary = "recall the last value of keys, some of which were bound anew",
    .source = "after Arora et al., Zoology, 2024",
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .fill = mqar_update_fill,
    .make = make,
    .symbol = recall_symbol,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
    .preset = "--task mqar-update(vocab=256) --layers 2 --dim 64 --heads 1 "
              "--ffn 0 --batch 64 --lr 0.004 --dtype bf16 --steps 4000",
};
