/* mad_compress.c -- a random string, of which everything has to be in its last token.
 *
 *     7 3 9 1 <mark>     labels 7 3 9 1, all answered from the mark
 *
 * The labels stand at the symbols themselves, and a model answers them from the hidden state
 * of the last token alone, by a net of two layers that is told the place
 * (foci_model_config.from_last): that is what makes the task one of compression, and no
 * sequence could say it, since every position sees its own token.  Of the vocabulary the last
 * is the mark.
 *
 * compat=mad: the mark, which is always the same, has a label too, as published.
 */
#include <stdio.h>

#include "data/task/mad.h"

enum { VOCAB, LENGTH, COMPAT };

static const foci_arg_def args[] = {
    MAD_VOCAB(16, "symbols and the mark"),
    MAD_LENGTH(32),
    MAD_COMPAT("mad: the mark has a label too"),
};

static const char *const slices[] = { "place", "distance", NULL };

static const char *plan(struct task *t)
{
    t->kind = FOCI_DATA_LM;
    t->causal = t->from_last = true;
    t->vocab = task_int(t, VOCAB) + 1;
    t->len = task_int(t, LENGTH);
    t->chance = 1 / (double)(t->vocab - 2);
    return NULL;
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const int64_t labels = t->len - (t->arg[COMPAT] != MAD_COMPAT_MAD);

    (void)split;
    e->n = t->len;
    for (int64_t i = 0; i < t->len - 1; i++)
        e->ids[i] = (int32_t)(1 + rng_below(r, t->vocab - 2));
    e->ids[t->len - 1] = (int32_t)(t->vocab - 1);
    for (int64_t i = 0; i < labels; i++) {
        e->labels[i] = e->ids[i];
        e->slices[i] = (int32_t)i;
        e->slices[t->len + i] = (int32_t)(t->len - 1 - i);
    }
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    (void)side;
    if (id == t->vocab - 1) return snprintf(text, cap, "%s", "<mark>");
    return id ? snprintf(text, cap, "%d", id) : snprintf(text, cap, "%s", "");
}

static int64_t last_symbol(const struct task *t, const struct task_example *e,
                           int64_t at)
{
    (void)at;
    return e->ids[t->len - 2];
}

static const struct task_rule rules[] = { { "last symbol", false, last_symbol } };

const struct task_def task_mad_compress = {
    .name = "mad-compress",
    .summary = "give a whole string back from its last token",
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
    .preset = "--layers 2 --dim 128 --heads 4 --activation swiglu --ffn 352 "
              "--batch 64 --lr 0.002 --dtype bf16 --steps 4000",
    .published = "--task mad-compress(compat=mad) --layers 2 --dim 128 --heads 16 "
                 "--activation swiglu --ffn 352 --positions rope --untied "
                 "--batch 128 --epochs 200 --lr 0.0005 --decay 0 --clip 0 "
                 "--final-rate 0.002 --examples 12800",
};
