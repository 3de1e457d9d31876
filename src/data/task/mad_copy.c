/* mad_copy.c -- symbols among blanks, to be given back in their order.
 *
 *     . . 7 . 3 . . . 9 . <mark> . . .     the last three are 7 3 9
 *
 * `tokens` symbols stand at places between blanks, a marker follows, then as many blanks, at
 * which the symbols are the labels.  Of the vocabulary the last two are the blank and the
 * marker.  Places are a uniform subset.  positions=mad, as published: each blank goes in front
 * of a symbol that is drawn for it, so gaps are nearly equal, and the last symbol stands right
 * before the marker: to count is nearly enough.
 */
#include <math.h>
#include <stdio.h>

#include "data/task/mad.h"

enum { VOCAB, LENGTH, TOKENS, POSITIONS };
enum { POSITIONS_UNIFORM, POSITIONS_MAD };

static const foci_arg_def args[] = {
    MAD_VOCAB(16, "symbols, the blank and the marker"),
    MAD_LENGTH(256),
    { .name = "tokens", .preset = 16, .min = 1, .max = 1 << 18, .help = "to be copied" },
    { .name = "positions",
      .choices = "uniform|mad",
      .help = "of symbols; mad: as published, nearly fixed" },
};

static const char *const slices[] = { "place", "distance", NULL };

/* Symbols and blanks before the marker. */
static int64_t n_before(const struct task *t)
{
    return t->len - task_int(t, TOKENS) - 1;
}

static const char *plan(struct task *t)
{
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = task_int(t, VOCAB) + 1;
    t->len = task_int(t, LENGTH);
    t->chance = 1 / (double)(t->vocab - 3);
    t->scratch_bytes = (size_t)task_int(t, TOKENS) * sizeof(int32_t);
    if (n_before(t) >= task_int(t, TOKENS)) return NULL;
    snprintf(t->message, sizeof t->message,
             "length=%.0f: %.0f tokens, a marker and as many blanks take %.0f at least",
             t->arg[LENGTH], t->arg[TOKENS], 2 * t->arg[TOKENS] + 1);
    return t->message;
}

/* Places in ascending order: each that is left is taken with the probability that makes all
 * subsets equally likely. */
static void draw_places(struct rng *r, int64_t places, int64_t n, int32_t *place)
{
    for (int64_t i = 0, taken = 0; taken < n; i++)
        if (rng_below(r, places - i) < n - taken) place[taken++] = (int32_t)i;
}

/* The published way: place[i] is first the number of blanks in front of symbol i. */
static void draw_gaps(struct rng *r, int64_t places, int64_t n, int32_t *place)
{
    int64_t at = -1;

    for (int64_t i = n; i < places; i++)
        place[rng_below(r, n)]++;
    for (int64_t i = 0; i < n; i++) {
        at += place[i] + 1;
        place[i] = (int32_t)at;
    }
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const int64_t n = task_int(t, TOKENS), before = n_before(t);
    int32_t      *place = e->scratch;

    (void)split;
    e->n = t->len;
    for (int64_t i = 0; i < t->len; i++)
        e->ids[i] = (int32_t)t->vocab - 2;
    e->ids[before] = (int32_t)t->vocab - 1;
    if (t->arg[POSITIONS] == POSITIONS_MAD)
        draw_gaps(r, before, n, place);
    else
        draw_places(r, before, n, place);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = before + 1 + i;
        e->ids[place[i]] = (int32_t)(1 + rng_below(r, t->vocab - 3));
        e->labels[at] = e->ids[place[i]];
        e->slices[at] = (int32_t)i;
        e->slices[t->len + at] = (int32_t)(at - place[i]);
    }
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    (void)side;
    if (id == t->vocab - 1) return snprintf(text, cap, "%s", "<mark>");
    if (id == t->vocab - 2) return snprintf(text, cap, "%s", ".");
    return id ? snprintf(text, cap, "%d", id) : snprintf(text, cap, "%s", "");
}

/*
 * Rules
 */

/* The symbol that is nearest to where this one stands on average. */
static int64_t positional(const struct task *t, const struct task_example *e, int64_t at)
{
    const double  n = t->arg[TOKENS], before = (double)n_before(t);
    const double  i = e->slices[at] + 1;
    const bool    mad = t->arg[POSITIONS] == POSITIONS_MAD;
    const int64_t mean = (int64_t)floor(mad ? i * before / n - 1 + 0.5
                                            : i * (before + 1) / (n + 1) - 0.5);

    for (int64_t d = 0; d < (int64_t)before; d++)
        for (int side = -1; side <= 1; side += 2) {
            const int64_t p = mean + side * d;
            if (p >= 0 && p < (int64_t)before && e->ids[p] != t->vocab - 2)
                return e->ids[p];
        }
    return -1;
}

static const struct task_rule rules[] = { { "by place alone", false, positional } };

const struct task_def task_mad_copy = {
    .name = "mad-copy",
    .summary = "say symbols that stood among blanks again",
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
    .preset = "--task mad-copy(length=128) --layers 2 --dim 64 --heads 4 "
              "--activation swiglu --ffn 176 --positions rope --batch 64 --lr "
              "0.003 --dtype bf16 --steps 2000",
    .published = "--task mad-copy(positions=mad) --layers 2 --dim 128 --heads 16 "
                 "--activation swiglu --ffn 352 --positions rope --untied "
                 "--batch 128 --epochs 200 --lr 0.0005 --decay 0 --clip 0 "
                 "--final-rate 0.002 --examples 12800",
};
