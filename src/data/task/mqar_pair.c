/* mqar_pair.c -- associative recall in which a key is two tokens.
 *
 *     a2 b1 v1  a1 b1 v2 ... a1 b2 v9  . . . a1 b2 .  . . . a2 b1 . ...
 *
 * `grid` first tokens and `grid` second tokens make grid^2 keys, all of which come, in an
 * order of their own, each with a value.  So every token belongs to `grid` keys, and neither
 * half of a key says its value: the two have to be joined.  Tokens and values are those of
 * mqar.c, no token twice.  Behind them each key is asked once, at an offset that 3 divides,
 * at places that are drawn as in mqar.c; the label stands at the second token.
 */
#include <stdio.h>

#include "data/task/recall.h"

enum { VOCAB, LENGTH, GRID, POWER, FILLER, GAP };
enum { FILLER_ZERO, FILLER_NOISE };
enum { GAP_POWER, GAP_UNIFORM };

static const foci_arg_def args[] = {
    RECALL_VOCAB,
    { .name = "length", .preset = 64, .min = 6, .max = 1 << 20, .help = "of a sequence" },
    { .name = "grid",
      .preset = 3,
      .min = 1,
      .max = 256,
      .help = "first and second tokens, which make the square of it of keys" },
    RECALL_POWER,
    RECALL_FILLER("zero|noise"),
    RECALL_GAP,
};

static const char *const slices[] = { "pairs", "distance", NULL };

static int64_t n_keys(const struct task *t)
{
    return task_int(t, GRID) * task_int(t, GRID);
}

static const char *plan(struct task *t)
{
    const int64_t vocab = task_int(t, VOCAB), keys = n_keys(t);
    const int64_t places = (task_int(t, LENGTH) - 3 * keys) / 3;

    if (places < keys) {
        snprintf(
            t->message, sizeof t->message,
            "length=%.0f: %lld keys of two tokens and a question for each take %lld "
            "at least",
            t->arg[LENGTH], (long long)keys, 6 * (long long)keys);
        return t->message;
    }
    if (2 * task_int(t, GRID) > vocab / 2 - 1 || keys > vocab - vocab / 2) {
        snprintf(t->message, sizeof t->message,
                 "grid=%.0f takes a vocab of %lld at least", t->arg[GRID],
                 (long long)max64(2 * keys - 1, 4 * task_int(t, GRID) + 2));
        return t->message;
    }
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = vocab;
    t->len = task_int(t, LENGTH);
    t->chance = recall_chance(vocab);
    t->n_table = places;
    t->scratch_bytes = (size_t)(keys + 2 * task_int(t, GRID)) * sizeof(int32_t) +
                       recall_set_bytes(vocab) + (size_t)places;
    return NULL;
}

static void mqar_pair_fill(const struct task *t, double *table)
{
    recall_weights(table, t->n_table, t->arg[POWER], t->arg[GAP] == GAP_UNIFORM);
}

/* Numbers of all keys in an order of their own: Fisher and Yates from the front. */
static void draw_order(struct rng *r, int32_t *order, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = (int32_t)i;
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = i + rng_below(r, n - i);
        const int32_t drawn = order[j];
        order[j] = order[i];
        order[i] = drawn;
    }
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const int64_t grid = task_int(t, GRID), keys = n_keys(t), half = t->vocab / 2;
    int32_t      *order = e->scratch, *tokens = order + keys;
    uint8_t      *set = (uint8_t *)(tokens + 2 * grid);
    uint8_t      *taken = set + recall_set_bytes(t->vocab);

    (void)split;
    e->n = t->len;
    for (int64_t i = 0; i < 2 * grid; i++)
        tokens[i] = recall_new(r, set, 1, half - 1);
    draw_order(r, order, keys);
    for (int64_t k = 0; k < keys; k++) {
        int32_t *key = e->ids + 3 * k;
        key[0] = tokens[order[k] / grid];
        key[1] = tokens[grid + order[k] % grid];
        key[2] = recall_new(r, set, half, t->vocab - half);
    }
    for (int64_t k = 0; k < keys; k++) {
        const int64_t at =
            3 * (keys + recall_place(r, t->table, t->n_table, taken)) + 1;
        e->ids[at - 1] = e->ids[3 * k];
        e->ids[at] = e->ids[3 * k + 1];
        e->labels[at] = e->ids[3 * k + 2];
        e->slices[at] = (int32_t)keys;
        e->slices[t->len + at] = (int32_t)(at - (3 * k + 1));
    }
    if (t->arg[FILLER] == FILLER_NOISE) recall_noise(r, e, 3 * keys, set, t->vocab);
}

/*
 * Rules
 */

static int64_t last_value(const struct task *t, const struct task_example *e, int64_t at)
{
    (void)at;
    return e->ids[3 * n_keys(t) - 1];
}

/* The last value of a key with the same token at its place `half`. */
static int64_t by_half(const struct task *t, const struct task_example *e, int64_t at,
                       int64_t half)
{
    int64_t k = n_keys(t) - 1;

    while (e->ids[3 * k + half] != e->ids[at - 1 + half])
        k--;
    return e->ids[3 * k + 2];
}

static int64_t by_first(const struct task *t, const struct task_example *e, int64_t at)
{
    return by_half(t, e, at, 0);
}

static int64_t by_second(const struct task *t, const struct task_example *e, int64_t at)
{
    return by_half(t, e, at, 1);
}

static const struct task_rule rules[] = {
    { "last value", false, last_value },
    { "last value of the first token", false, by_first },
    { "last value of the second token", false, by_second },
};

const struct task_def task_mqar_pair = {
    .name = "mqar-pair",
    .summary = "recall the values of keys of two tokens, neither of which suffices",
    .source = "after Arora et al., Zoology, 2024",
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .fill = mqar_pair_fill,
    .make = make,
    .symbol = recall_symbol,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
    .preset = "--task mqar-pair(vocab=256) --layers 2 --dim 64 --heads 1 "
              "--ffn 0 --conv 3 --batch 64 --lr 0.004 --dtype bf16 --steps "
              "4000",
};
