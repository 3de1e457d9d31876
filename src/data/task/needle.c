/* needle.c -- needles in a haystack: keys with values among words, some keys asked for.
 *
 *     w3 w9 k7 v2 w1 w4 k5 v8 w9 w2 ? k5      is asked for v8
 *
 * Each of `keys` keys stands with one of its values at as many uniform places of the text as
 * it has values.  Then `queries` keys come, each behind a question mark, with their values
 * in the order of the text but for the last; the label at each place from the key on is the
 * value that follows.  Words, keys and values are different tokens; no key and no value
 * comes twice.
 *
 * Hsieh et al., "RULER: What's the Real Context Size of Your Long-Context Language Models?",
 * 2024: single needles, and 4 keys, 4 values or 4 queries.  There the values of a key may be
 * given in any order.
 */
#include <stdio.h>

#include "data/task/hay.h"

enum { KEYS, VALUES, QUERIES, LENGTH, WORDS, SYMBOLS };
enum { QUESTION = 1, WORD };
enum { KEY, VALUE };

static const foci_arg_def args[] = {
    { .name = "keys", .preset = 1, .min = 1, .max = 1 << 16, .help = "in the text" },
    { .name = "values", .preset = 1, .min = 1, .max = 256, .help = "of each key" },
    { .name = "queries", .preset = 1, .min = 1, .max = 1 << 16, .help = "keys asked for" },
    { .name = "length",
      .preset = 256,
      .min = 2,
      .max = 1 << 22,
      .help = "tokens before the questions" },
    { .name = "words", .preset = 64, .min = 1, .max = 1 << 20, .help = "to fill it with" },
    { .name = "symbols",
      .preset = 64,
      .min = 1,
      .max = 1 << 20,
      .help = "to draw keys from, and as many for values" },
};

static const char *const slices[] = { "place", "distance", NULL };

static struct hay hay_of(const struct task *t)
{
    return (struct hay){ .length = task_int(t, LENGTH),
                         .width = 2,
                         .groups = task_int(t, KEYS),
                         .each = task_int(t, VALUES),
                         .first_word = WORD,
                         .words = task_int(t, WORDS),
                         .symbols = task_int(t, SYMBOLS) };
}

static const char *plan(struct task *t)
{
    const struct hay hay = hay_of(t);
    const double     needles = t->arg[KEYS] * t->arg[VALUES];

    if (t->arg[QUERIES] > t->arg[KEYS])
        snprintf(t->message, sizeof t->message, "queries=%.0f: there are only keys=%.0f",
                 t->arg[QUERIES], t->arg[KEYS]);
    else if (needles > t->arg[SYMBOLS])
        snprintf(t->message, sizeof t->message,
                 "symbols=%.0f: keys=%.0f with values=%.0f each take %.0f",
                 t->arg[SYMBOLS], t->arg[KEYS], t->arg[VALUES], needles);
    else if (hay_statements(&hay) > hay.length)
        snprintf(t->message, sizeof t->message,
                 "length=%.0f: keys=%.0f with values=%.0f each take %.0f",
                 t->arg[LENGTH], t->arg[KEYS], t->arg[VALUES], 2 * needles);
    if (*t->message) return t->message;
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = hay_symbol(&hay, 2);
    t->len = hay.length + task_int(t, QUERIES) * (2 + hay.each) - 1;
    t->chance = 1 / t->arg[SYMBOLS];
    t->scratch_bytes = hay_bytes(&hay) + 2 * (size_t)hay.symbols + (size_t)hay.groups;
    return NULL;
}

/* The question for a key, from place `at` on; the result is the place behind it. */
static int64_t ask(const struct task *t, struct task_example *e, const int32_t *needles,
                   int64_t at, int64_t *place)
{
    const int64_t values = task_int(t, VALUES);

    e->ids[at++] = QUESTION;
    e->ids[at] = e->ids[needles[0]];
    for (int64_t k = 0; k < values; k++, at++) {
        e->labels[at] = e->ids[needles[k] + 1];
        e->slices[at] = (int32_t)(*place)++;
        e->slices[t->len + at] = (int32_t)(at - needles[k]);
        if (at + 1 < e->n) e->ids[at + 1] = e->labels[at];
    }
    return at + 1;
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const struct hay hay = hay_of(t);
    const int32_t   *needles = hay_lay(&hay, r, e->scratch, e->ids);
    uint8_t         *keys = (uint8_t *)e->scratch + hay_bytes(&hay);
    uint8_t         *values = keys + hay.symbols, *asked = values + hay.symbols;
    int64_t          at = hay.length, place = 0;

    (void)split;
    e->n = t->len;
    for (int64_t g = 0; g < hay.groups; g++) {
        const int32_t key =
            hay_symbol(&hay, KEY) + (int32_t)draw_free(r, keys, hay.symbols);
        for (int64_t k = 0; k < hay.each; k++) {
            int32_t *needle = e->ids + needles[g * hay.each + k];
            needle[0] = key;
            needle[1] =
                hay_symbol(&hay, VALUE) + (int32_t)draw_free(r, values, hay.symbols);
        }
    }
    for (int64_t q = 0; q < task_int(t, QUERIES); q++) {
        const int64_t g = draw_free(r, asked, hay.groups);
        at = ask(t, e, needles + g * hay.each, at, &place);
    }
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    const struct hay hay = hay_of(t);

    (void)side;
    return hay_text(&hay, "?", "kv", id, text, cap);
}

/*
 * Rules
 */

/* Value number n of the text, from 0; the last if there are fewer. */
static int64_t value_number(const struct task *t, const struct task_example *e,
                            int64_t n)
{
    const struct hay hay = hay_of(t);
    int64_t          value = TASK_PAD;

    for (int64_t i = 0; i < hay.length && n >= 0; i++) {
        if (e->ids[i] < hay_symbol(&hay, VALUE)) continue;
        value = e->ids[i];
        n--;
    }
    return value;
}

static int64_t last_value(const struct task *t, const struct task_example *e, int64_t at)
{
    (void)at;
    return value_number(t, e, INT64_MAX);
}

static int64_t in_order(const struct task *t, const struct task_example *e, int64_t at)
{
    return value_number(t, e, e->slices[at]);
}

static const struct task_rule rules[] = {
    { "last value", false, last_value }, /* it solves one needle */
    { "values in order", false, in_order },
};

const struct task_def task_needle = {
    .name = "needle",
    .summary = "find the values of keys that are hidden in a long text",
    .source = "Hsieh et al., RULER, 2024",
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .make = make,
    .symbol = symbol,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
    .preset = "--task needle(keys=4) --layers 2 --dim 64 --heads 1 --ffn 0 "
              "--positions none --conv 4 --batch 32 --lr 4e-3 --steps 800",
};
