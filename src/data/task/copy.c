/* copy.c -- a sequence of symbols, to be repeated as it is or backward.
 *
 *     form=pairs    source x1 .. xn <eos>, target y1 .. yn <eos>, of a translation
 *     form=row      x1 .. xn <mark> y1 .. yn, every y and the end from what is before it
 *     form=masked   x1 .. xn <mark> and n masks, which hide y1 .. yn
 *
 * The length is uniform from `least` to `longest`, in the test split to `test`; symbols are
 * uniform.  y is x (copy) or x backward (reverse).
 */
#include <stdio.h>

#include "data/task/task.h"

enum { SYMBOLS, LEAST, LONGEST, TEST, FORM };
enum { PAIRS, ROW, MASKED };
enum { BOS = 1, EOS, MARK, MASK, FIRST };

static const foci_arg_def args[] = {
    { .name = "symbols", .preset = 50, .min = 1, .max = 1 << 20, .help = "to draw from" },
    { .name = "least", .preset = 1, .min = 1, .max = 1 << 20, .help = "symbols" },
    { .name = "longest", .preset = 25, .min = 1, .max = 1 << 20, .help = "symbols" },
    { .name = "test",
      .preset = 30,
      .min = 1,
      .max = 1 << 20,
      .help = "symbols of the longest in the test split" },
    { .name = "form",
      .choices = "pairs|row|masked",
      .help = "to translate, to continue, or to fill in" },
};

static const char *const slices[] = { "length", "place", NULL };

static const char *plan(struct task *t)
{
    const double  least = t->arg[LEAST];
    const int64_t most = max64(task_int(t, LONGEST), task_int(t, TEST));

    for (int a = LONGEST; a <= TEST; a++)
        if (t->arg[a] < least) {
            snprintf(t->message, sizeof t->message,
                     "%s=%.0f is below least=%.0f: no length is left", args[a].name,
                     t->arg[a], least);
            return t->message;
        }
    t->causal = t->arg[FORM] != MASKED;
    t->vocab = FIRST + task_int(t, SYMBOLS);
    t->chance = 1 / (t->arg[SYMBOLS] + t->causal); /* the end can be guessed too */
    if (t->arg[FORM] == PAIRS) {
        t->kind = FOCI_DATA_TRANSLATE;
        t->source_vocab = t->vocab;
        t->len = t->source_len = most + 1;
    } else {
        t->kind = t->causal ? FOCI_DATA_LM : FOCI_DATA_MLM;
        t->len = 2 * most + 1;
    }
    return NULL;
}

/* The label at `at`, which is place number `place` of the answer. */
static void label(const struct task *t, struct task_example *e, int64_t at,
                  int32_t wanted, int64_t length, int64_t place)
{
    e->labels[at] = wanted;
    e->slices[at] = (int32_t)length;
    e->slices[t->len + at] = (int32_t)place;
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e, bool backward)
{
    const int64_t least = task_int(t, LEAST);
    const int64_t most = task_int(t, split == FOCI_DATA_SPLIT_TEST ? TEST : LONGEST);
    const int64_t n = least + rng_below(r, most - least + 1);
    const bool    pairs = t->arg[FORM] == PAIRS, masked = t->arg[FORM] == MASKED;
    int32_t      *x = pairs ? e->source : e->ids;
    const int64_t begin = pairs ? 0 : n; /* where the answer begins to be asked */

    for (int64_t i = 0; i < n; i++)
        x[i] = FIRST + (int32_t)rng_below(r, t->vocab - FIRST);
    if (pairs) {
        x[n] = EOS;
        e->n_source = n + 1;
    }
    e->ids[begin] = pairs ? BOS : MARK;
    e->n = begin + n + 1;
    for (int64_t i = 0; i < n; i++) {
        const int32_t y = x[backward ? n - 1 - i : i];
        e->ids[begin + 1 + i] = masked ? MASK : y;
        label(t, e, begin + i + masked, y, n, i);
    }
    if (!masked) label(t, e, begin + n, EOS, n, n);
}

static void make_copy(const struct task *t, struct rng *r, foci_data_split split,
                      struct task_example *e)
{
    make(t, r, split, e, false);
}

static void make_reverse(const struct task *t, struct rng *r, foci_data_split split,
                         struct task_example *e)
{
    make(t, r, split, e, true);
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    (void)t;
    (void)side;
    if (id >= FIRST) return snprintf(text, cap, "%d", id - FIRST);
    return snprintf(text, cap, "%s",
                    id == MARK   ? "<mark>"
                    : id == MASK ? "<mask>"
                                 : "");
}

/*
 * Rules
 */

static const int32_t *sequence(const struct task *t, const struct task_example *e)
{
    return t->arg[FORM] == PAIRS ? e->source : e->ids;
}

static int64_t last_symbol(const struct task *t, const struct task_example *e,
                           int64_t at)
{
    return sequence(t, e)[e->slices[at] - 1];
}

static int64_t same_place(const struct task *t, const struct task_example *e, int64_t at)
{
    const int32_t place = e->slices[t->len + at];
    return place < e->slices[at] ? sequence(t, e)[place] : EOS;
}

static const struct task_rule rules[] = {
    { "last symbol", false, last_symbol },
    { "symbol at the same place", false, same_place }, /* it solves copy */
};

const struct task_def task_copy = {
    .name = "copy",
    .summary = "say a sequence of symbols again",
    .source = "folklore",
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .make = make_copy,
    .symbol = symbol,
    .rules = rules,
    .n_rules = 1,
    .preset = "--layers 1 --dim 64 --heads 4 --ffn 256 --dropout 0 "
              "--smoothing 0 --batch 64 --lr 0.003 --dtype bf16 --steps 2000",
};

const struct task_def task_reverse = {
    .name = "reverse",
    .summary = "say a sequence of symbols from its end",
    .source = "folklore",
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .make = make_reverse,
    .symbol = symbol,
    .rules = rules,
    .n_rules = 2,
    .preset = "--layers 1 --dim 64 --heads 4 --ffn 256 --dropout 0 "
              "--smoothing 0 --batch 64 --lr 0.003 --dtype bf16 --steps 2000",
};
