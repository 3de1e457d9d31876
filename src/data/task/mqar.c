/* mqar.c -- multi-query associative recall: keys and their values, then the keys again; by
 * itself, and as a mixture of lengths and numbers of pairs.
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
 * The mixture trains on few pairs, mostly, and is judged by as many as there is room for:
 * which setting an example is of follows from its number.  Examples are put into runs, and
 * each run has every setting as often as its share says, in an order drawn for the run; so
 * 180,000 examples of training have exactly the published counts.
 *
 * Arora et al., "Zoology: Measuring and Improving Recall in Efficient Language Models",
 * 2024; the mixture: Arora et al., "Simple Linear Attention Language Models Balance the
 * Recall-Throughput Tradeoff", 2024.
 */
#include <assert.h>
#include <stdio.h>

#include "data/task/recall.h"

enum { FILLER_ZERO, FILLER_NOISE };
enum { GAP_POWER, GAP_UNIFORM };
enum { COMPAT_NONE, COMPAT_ZOOLOGY };

/* What an example is made by. */
struct form {
    int64_t length, pairs;
    bool    noise, any; /* between questions; of any token */
};

static int64_t n_places(int64_t length, int64_t pairs)
{
    return (length - 2 * pairs) / 2;
}

/* What length, keys and values have to be. */
static const char *mqar_check(struct task *t, int64_t vocab, int64_t length,
                              int64_t pairs)
{
    if (n_places(length, pairs) < pairs) {
        snprintf(t->message, sizeof t->message,
                 "length=%lld: %lld pairs and a question for each take %lld at least",
                 (long long)length, (long long)pairs, 4 * (long long)pairs);
        return t->message;
    }
    if (pairs > vocab / 2 - 1) {
        snprintf(t->message, sizeof t->message,
                 "pairs=%lld: vocab=%lld has only %lld keys", (long long)pairs,
                 (long long)vocab, (long long)(vocab / 2 - 1));
        return t->message;
    }
    return NULL;
}

static void plan_for(struct task *t, int64_t vocab, int64_t length, int64_t places)
{
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = vocab;
    t->len = length;
    t->chance = recall_chance(vocab);
    t->n_table = places;
    t->scratch_bytes = recall_set_bytes(vocab) + (size_t)places;
}

static void make_form(const struct task *t, struct rng *r, const struct form *f,
                      struct task_example *e)
{
    const int64_t vocab = t->vocab, pairs = f->pairs, half = vocab / 2;
    const int64_t places = n_places(f->length, pairs);
    uint8_t      *set = e->scratch, *taken = set + recall_set_bytes(vocab);

    e->n = f->length;
    for (int64_t p = 0; p < pairs; p++)
        e->ids[2 * p] = recall_new(r, set, 1, half - 1);
    for (int64_t p = 0; p < pairs; p++)
        e->ids[2 * p + 1] = recall_new(r, set, half, vocab - half);
    for (int64_t p = 0; p < pairs; p++) {
        const int64_t at = 2 * (pairs + recall_place(r, t->table, places, taken));
        e->ids[at] = e->ids[2 * p];
        e->labels[at] = e->ids[2 * p + 1];
        e->slices[at] = (int32_t)pairs;
        e->slices[t->len + at] = (int32_t)(at - 2 * p);
    }
    if (f->noise) recall_noise(r, e, 2 * pairs, f->any ? NULL : set, vocab);
}

/*
 * Rules
 */

static int64_t last_value(const struct task *t, const struct task_example *e, int64_t at)
{
    (void)t;
    return e->ids[2 * e->slices[at] - 1];
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

/*
 * One setting
 */

enum { VOCAB, LENGTH, PAIRS, POWER, FILLER, GAP, COMPAT };

static const foci_arg_def args[] = {
    RECALL_VOCAB,
    { .name = "length", .preset = 64, .min = 4, .max = 1 << 20, .help = "of a sequence" },
    { .name = "pairs", .preset = 4, .min = 1, .max = 1 << 18, .help = "to be recalled" },
    RECALL_POWER,
    RECALL_FILLER("zero|noise"),
    RECALL_GAP,
    RECALL_COMPAT,
};

static const char *const slices[] = { "pairs", "distance", NULL };

static const char *plan(struct task *t)
{
    const int64_t length = task_int(t, LENGTH), pairs = task_int(t, PAIRS);

    plan_for(t, task_int(t, VOCAB), length, n_places(length, pairs));
    return mqar_check(t, t->vocab, length, pairs);
}

static void mqar_fill(const struct task *t, double *table)
{
    recall_weights(table, t->n_table, t->arg[POWER], t->arg[GAP] == GAP_UNIFORM);
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const struct form f = { .length = task_int(t, LENGTH),
                            .pairs = task_int(t, PAIRS),
                            .noise = t->arg[FILLER] == FILLER_NOISE,
                            .any = t->arg[COMPAT] == COMPAT_ZOOLOGY };

    (void)split;
    make_form(t, r, &f, e);
}

const struct task_def task_mqar = {
    .name = "mqar",
    .summary = "recall the values of keys that stood in the text before",
    .source = "Arora et al., Zoology, 2024",
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .fill = mqar_fill,
    .make = make,
    .symbol = recall_symbol,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
    .preset = "--layers 2 --dim 64 --heads 1 --ffn 0 --batch 128 --lr 0.004 "
              "--dtype bf16 --steps 8000",
    .published = "--layers 2 --dim 64 --heads 1 --ffn 0 --examples 100000 "
                 "--epochs 64 --batch 512 --lr 0.0022 --decay 0.1 --final-rate 0",
};

/*
 * The mixture
 */

enum { MIX_VOCAB, MIX_FORM, MIX_POWER, MIX_FILLER, MIX_GAP, MIX_COMPAT };
enum { MIX_SHORT, MIX_PUBLISHED };
enum { MIX_NOISE };

static const foci_arg_def mix_args[] = {
    RECALL_VOCAB,
    { .name = "form",
      .choices = "short|published",
      .help = "short: tests have 256 tokens at most, else 1024" },
    RECALL_POWER,
    RECALL_FILLER("noise|zero"),
    RECALL_GAP,
    RECALL_COMPAT,
};

static const char *const mix_slices[] = { "pairs", "distance", "length", NULL };

/* A setting, and how many examples of a run have it. */
struct setting {
    int64_t length, pairs, share;
};

/* By 20,000: the published numbers of examples. */
static const struct setting mix_train[] = {
    { 64, 4, 5 }, { 128, 8, 1 }, { 256, 16, 1 }, { 256, 32, 1 }, { 256, 64, 1 }, { 0 },
};

/* By 1,000.  Validation has the same settings. */
static const struct setting mix_tests[][8] = {
    { { 64, 4, 1 }, { 64, 8, 1 }, { 64, 16, 1 }, { 128, 32, 1 }, { 256, 64, 1 } },
    { { 64, 4, 1 },
      { 64, 8, 1 },
      { 64, 16, 1 },
      { 128, 32, 1 },
      { 256, 64, 1 },
      { 512, 128, 1 },
      { 1024, 256, 1 } },
};

static const struct setting *mix_settings(const struct task *t, foci_data_split split)
{
    return split == FOCI_DATA_SPLIT_TRAIN ? mix_train
                                          : mix_tests[(int)t->arg[MIX_FORM]];
}

static const char *mix_plan(struct task *t)
{
    int64_t length = 0, places = 0, pairs = 0;

    for (int split = 0; split < 3; split++)
        for (const struct setting *s = mix_settings(t, (foci_data_split)split);
             s->share; s++) {
            length = max64(length, s->length);
            pairs = max64(pairs, s->pairs);
            places = max64(places, n_places(s->length, s->pairs));
        }
    plan_for(t, task_int(t, MIX_VOCAB), length, places);
    return mqar_check(t, t->vocab, length, pairs);
}

static void mix_fill(const struct task *t, double *table)
{
    recall_weights(table, t->n_table, t->arg[MIX_POWER], t->arg[MIX_GAP] == GAP_UNIFORM);
}

/* The setting of an example: its place in an order of all settings of its run, each as often
 * as its share, which is drawn for the run. */
static const struct setting *mix_setting(const struct setting      *all,
                                         foci_data_split            split,
                                         const struct task_example *e)
{
    enum { MOST = 16 };
    const struct setting *order[MOST];
    int64_t               n = 0;

    for (; all->share; all++)
        for (int64_t i = 0; i < all->share; i++)
            order[n++] = all;
    assert(0 < n && n <= MOST);
    struct rng r = task_run_stream(e->seed, split, e->number / n);
    for (int64_t i = 0; i < n; i++) { /* Fisher and Yates from the front */
        const int64_t         j = i + rng_below(&r, n - i);
        const struct setting *drawn = order[j];
        order[j] = order[i];
        order[i] = drawn;
    }
    return order[e->number % n];
}

static void mix_make(const struct task *t, struct rng *r, foci_data_split split,
                     struct task_example *e)
{
    const struct setting *s = mix_setting(mix_settings(t, split), split, e);
    const struct form     f = { .length = s->length,
                                .pairs = s->pairs,
                                .noise = t->arg[MIX_FILLER] == MIX_NOISE,
                                .any = t->arg[MIX_COMPAT] == COMPAT_ZOOLOGY };

    make_form(t, r, &f, e);
    for (int64_t i = 0; i < e->n; i++)
        if (e->labels[i] >= 0) e->slices[2 * t->len + i] = (int32_t)f.length;
}

const struct task_def task_mqar_mix = {
    .name = "mqar-mix",
    .summary = "recall of few pairs in training and of many in the test",
    .source = "Arora et al., Based, 2024",
    .version = 1,
    .args = mix_args,
    .n_args = sizeof mix_args / sizeof *mix_args,
    .slices = mix_slices,
    .plan = mix_plan,
    .fill = mix_fill,
    .make = mix_make,
    .symbol = recall_symbol,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
    .preset = "--task mqar-mix(vocab=1024) --layers 2 --dim 64 --heads 1 "
              "--ffn 0 --conv 3 --positions none --batch 64 --lr 0.004 "
              "--dtype bf16 --steps 2000",
    .published =
        "--task mqar-mix(form=published,compat=zoology) --layers 2 --dim 64 --heads 1 "
        "--ffn 0 --conv 3 --positions none --examples 180000 --epochs "
        "32 --batch 256 --lr 0.0032 --decay 0.1 --final-rate 0",
};
