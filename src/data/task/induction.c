/* induction.c -- induction heads: what followed a special token when it stood there before?
 *
 *     3 1 4 * 1 5 9 2 6 *      the last token is asked for 1
 *
 * Tokens 1 to V - 1, all as likely; at a uniform place stands the special token, V, and it
 * stands once more at the end, where the token behind its first place is the label.  A
 * sequence has `length` tokens, in the test split `test`, which may be far longer.
 *
 * Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023:
 * trained at 256, tested at 2^6 to 2^20; at 1024 attention with absolute positions 26.6 %,
 * RoPE 31.3 %, xPos 67.6 %, Mamba 100 %.
 */
#include <stdio.h>

#include "data/task/task.h"

enum { VOCAB, LENGTH, TEST };
enum { MOST_VOCAB = 1024 };

static const foci_arg_def args[] = {
    { .name = "vocab",
      .preset = 16,
      .min = 2,
      .max = MOST_VOCAB,
      .help = "tokens, of which one is special" },
    { .name = "length", .preset = 256, .min = 3, .max = 1 << 22, .help = "of a sequence" },
    { .name = "test",
      .preset = 256,
      .min = 3,
      .max = 1 << 22,
      .help = "length in the test split" },
};

static const char *const slices[] = { "length", "distance", NULL };

static const char *plan(struct task *t)
{
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = 1 + task_int(t, VOCAB);
    t->len = max64(task_int(t, LENGTH), task_int(t, TEST));
    t->chance = 1 / (t->arg[VOCAB] - 1);
    return NULL;
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const int64_t n = task_int(t, split == FOCI_DATA_SPLIT_TEST ? TEST : LENGTH);
    const int64_t others = task_int(t, VOCAB) - 1, special = others + 1;
    const int64_t place = rng_below(r, n - 2);

    e->n = n;
    for (int64_t i = 0; i < n; i++)
        e->ids[i] =
            (int32_t)(i == place || i == n - 1 ? special : 1 + rng_below(r, others));
    e->labels[n - 1] = e->ids[place + 1];
    e->slices[n - 1] = (int32_t)n;
    e->slices[t->len + n - 1] = (int32_t)(n - 1 - place);
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    (void)side;
    if (!id) return snprintf(text, cap, "%s", "");
    return id == t->vocab - 1 ? snprintf(text, cap, "*")
                              : snprintf(text, cap, "%d", id);
}

/*
 * Rules
 */

static int64_t token_before(const struct task *t, const struct task_example *e,
                            int64_t at)
{
    (void)t;
    return e->ids[at - 1];
}

/* Of the sequence; of equals the smallest. */
static int64_t most_frequent(const struct task *t, const struct task_example *e,
                             int64_t at)
{
    int64_t count[MOST_VOCAB] = { 0 };
    int32_t best = 1;

    for (int64_t i = 0; i < at; i++)
        if (e->ids[i] < t->vocab - 1) count[e->ids[i]]++;
    for (int32_t v = 2; v < t->vocab - 1; v++)
        if (count[v] > count[best]) best = v;
    return best;
}

static const struct task_rule rules[] = {
    { "token before", false, token_before },
    { "most frequent in context", false, most_frequent },
};

const struct task_def task_induction = {
    .name = "induction",
    .summary = "say what followed the special token when it stood in the text before",
    .source = "Gu and Dao, Mamba, 2023; Olsson et al., 2022",
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .make = make,
    .symbol = symbol,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
    .preset = "--task induction(length=64) --layers 2 --dim 64 --heads 1 --ffn 0 "
              "--positions none --conv 4 --batch 64 --lr 4e-3 --steps 1000",
    .published =
        "--layers 2 --dim 128 --heads 8 --batch 8 --lr 2e-4 --schedule constant "
        "--warmup 0 --decay 0 --steps 204800",
};
