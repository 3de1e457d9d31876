/* mqar.c -- multi-query associative recall: keys and their values, then the keys again.
 *
 *     k1 v1 k2 v2 ... kp vp  . . k2 . k5 . . . k1 . ...
 *
 * Keys are 1 to V/2 - 1, values V/2 to V - 1, none twice in a sequence.  Behind the pairs
 * each key is asked once, at an even offset: key after key takes one of the places that are
 * still free, place i (from 1) with weight i^(power - 1), with gap=uniform all alike.  The
 * label at the place of a question is the value of the key.  What is left is filled by 0,
 * or by noise: tokens below V that are no key and no value of the sequence, with
 * compat=zoology any tokens.
 *
 * Arora et al., "Zoology: Measuring and Improving Recall in Efficient Language Models",
 * 2024.
 */
#include <math.h>
#include <stdio.h>

#include "data/task/task.h"

enum { VOCAB, LENGTH, PAIRS, POWER, FILLER, GAP, COMPAT };
enum { FILLER_ZERO, FILLER_NOISE };
enum { GAP_POWER, GAP_UNIFORM };
enum { COMPAT_NONE, COMPAT_ZOOLOGY };

static const foci_arg_def args[] = {
    { .name = "vocab",
      .preset = 8192,
      .min = 4,
      .max = 1 << 24,
      .help = "tokens; half of them are keys, half values" },
    { .name = "length", .preset = 64, .min = 4, .max = 1 << 20, .help = "of a sequence" },
    { .name = "pairs", .preset = 4, .min = 1, .max = 1 << 18, .help = "to be recalled" },
    { .name = "power",
      .preset = 0.01,
      .min = 0.001,
      .max = 4,
      .real = true,
      .help = "place i of a question has weight i^(power - 1)" },
    { .name = "filler", .choices = "zero|noise", .help = "between questions" },
    { .name = "gap", .choices = "power|uniform", .help = "how places are drawn" },
    { .name = "compat",
      .choices = "none|zoology",
      .help = "zoology: noise may be any token, keys too" },
};

static const char *const slices[] = { "pairs", "distance", NULL };

static int64_t n_places(const struct task *t)
{
    return (task_int(t, LENGTH) - 2 * task_int(t, PAIRS)) / 2;
}

static const char *plan(struct task *t)
{
    const int64_t vocab = task_int(t, VOCAB), pairs = task_int(t, PAIRS);

    if (n_places(t) < pairs) {
        snprintf(t->message, sizeof t->message,
                 "length=%.0f: %.0f pairs and a question for each take %.0f at least",
                 t->arg[LENGTH], t->arg[PAIRS], 4 * t->arg[PAIRS]);
        return t->message;
    }
    if (pairs > vocab / 2 - 1) {
        snprintf(t->message, sizeof t->message,
                 "pairs=%.0f: vocab=%.0f has only %lld keys", t->arg[PAIRS],
                 t->arg[VOCAB], (long long)(vocab / 2 - 1));
        return t->message;
    }
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = vocab;
    t->len = task_int(t, LENGTH);
    const int64_t values = vocab - vocab / 2;
    t->chance = 1 / (double)values;
    t->n_table = n_places(t);
    t->scratch_bytes = (size_t)(div_up(vocab, 8) + n_places(t));
    return NULL;
}

/*
 * Weights of places: x^a by operations that every machine rounds alike, as pow() is not.
 */

static double power_of(double x, double a)
{
    static const double ln2 = 0.69314718055994530942;
    int                 e;
    double              m = frexp(x, &e);

    if (m < 0.70710678118654752440) {
        m *= 2;
        e--;
    }
    const double z = (m - 1) / (m + 1);
    double       log_m = 0, exp_r = 1;
    for (int i = 27; i > 0; i -= 2) /* ln m = 2 (z + z^3/3 + z^5/5 + ...) */
        log_m = log_m * (z * z) + 2.0 / i;
    const double y = a * (e * ln2 + log_m * z), k = floor(y / ln2 + 0.5);
    const double r = y - k * ln2;
    for (int i = 20; i > 0; i--) /* e^r = 1 + r (1 + r/2 (1 + r/3 (...))) */
        exp_r = 1 + r / i * exp_r;
    return ldexp(exp_r, (int)k);
}

static void fill(const struct task *t, double *table)
{
    for (int64_t i = 0; i < t->n_table; i++)
        table[i] = t->arg[GAP] == GAP_UNIFORM
                       ? 1
                       : power_of((double)(i + 1), t->arg[POWER] - 1);
}

/*
 * The generator
 */

/* Whether a token is in the set, which it then is. */
static bool add(uint8_t *set, int64_t token)
{
    const uint8_t bit = (uint8_t)(1u << (token & 7));
    const bool    was = set[token >> 3] & bit;

    set[token >> 3] |= bit;
    return was;
}

static int32_t draw_new(struct rng *r, uint8_t *set, int64_t first, int64_t n)
{
    int64_t token;

    do
        token = first + rng_below(r, n);
    while (add(set, token));
    return (int32_t)token;
}

/* A place that is not taken, which it then is. */
static int64_t draw_place(const struct task *t, struct rng *r, uint8_t *taken)
{
    double  total = 0, sum = 0;
    int64_t last = 0;

    for (int64_t i = 0; i < t->n_table; i++)
        if (!taken[i]) total += t->table[i];
    const double u = rng_uniform(r) * total;
    for (int64_t i = 0; i < t->n_table && sum <= u; i++)
        if (!taken[i]) {
            sum += t->table[i];
            last = i;
        }
    taken[last] = 1;
    return last;
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const int64_t vocab = t->vocab, pairs = task_int(t, PAIRS), half = vocab / 2;
    const bool    any = t->arg[COMPAT] == COMPAT_ZOOLOGY;
    uint8_t      *set = e->scratch, *taken = set + div_up(vocab, 8);

    (void)split;
    e->n = t->len;
    for (int64_t p = 0; p < pairs; p++)
        e->ids[2 * p] = draw_new(r, set, 1, half - 1);
    for (int64_t p = 0; p < pairs; p++)
        e->ids[2 * p + 1] = draw_new(r, set, half, vocab - half);
    for (int64_t p = 0; p < pairs; p++) {
        const int64_t at = 2 * pairs + 2 * draw_place(t, r, taken);
        e->ids[at] = e->ids[2 * p];
        e->labels[at] = e->ids[2 * p + 1];
        e->slices[at] = (int32_t)pairs;
        e->slices[t->len + at] = (int32_t)(at - 2 * p);
    }
    if (t->arg[FILLER] == FILLER_ZERO) return;
    for (int64_t i = 2 * pairs; i < t->len; i++) {
        if (e->labels[i] >= 0) continue;
        do
            e->ids[i] = (int32_t)rng_below(r, vocab);
        while (!any && set[e->ids[i] >> 3] >> (e->ids[i] & 7) & 1);
    }
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    (void)t;
    (void)side;
    return snprintf(text, cap, "%d", id);
}

/*
 * Rules
 */

static int64_t last_value(const struct task *t, const struct task_example *e, int64_t at)
{
    (void)at;
    return e->ids[2 * task_int(t, PAIRS) - 1];
}

/* The first question asks the first key, the second the second... */
static int64_t in_order(const struct task *t, const struct task_example *e, int64_t at)
{
    int64_t asked = 0;

    (void)t;
    for (int64_t i = 0; i < at; i++)
        asked += e->labels[i] >= 0;
    return e->ids[2 * asked + 1];
}

static const struct task_rule rules[] = {
    { "last value", false, last_value },
    { "values in order", false, in_order },
};

const struct task_def task_mqar = {
    .name = "mqar",
    .summary = "recall the values of keys that stood in the text before",
    .source = "Arora et al., Zoology, 2024",
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .fill = fill,
    .make = make,
    .symbol = symbol,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
};
