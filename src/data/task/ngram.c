/* ngram.c -- in-context language learning: a text of a random n-gram model, to be predicted
 * from what the text itself shows of the model.
 *
 * Every sequence has a model of its own: for each context of n - 1 symbols the
 * probabilities of the next symbol, drawn from the flat Dirichlet distribution.  The first
 * n - 1 symbols are uniform, and every later one is a label at the place before it.
 *
 * The gaps between k - 1 sorted uniforms in (0, 1) are a flat Dirichlet draw of k
 * probabilities, and how many of the k - 1 lie below another uniform is a symbol with these
 * probabilities.  So a model is a table of uniforms, and nothing has to be computed.
 *
 * The best accuracy there can be, of one who knows the model, is the mean of the largest of
 * k gaps: (1 + 1/2 + ... + 1/k) / k.
 *
 * Edelman et al., "The Evolution of Statistical Induction Heads: In-Context Learning Markov
 * Chains", 2024, section 2 and, for n > 2, section 5; Akyürek et al., "In-Context Language
 * Learning: Architectures and Algorithms", 2024.
 */
#include <stdio.h>
#include <string.h>

#include "data/task/task.h"

enum { N, SYMBOLS, LENGTH };
enum { MOST_SYMBOLS = 64, MOST_TABLE = 1 << 14 };

static const foci_arg_def args[] = {
    { .name = "n",
      .preset = 3,
      .min = 2,
      .max = 8,
      .help = "a symbol depends on the n - 1 before it" },
    { .name = "symbols",
      .preset = 4,
      .min = 2,
      .max = MOST_SYMBOLS,
      .help = "to draw from" },
    { .name = "length", .preset = 256, .min = 2, .max = 1 << 20, .help = "of a sequence" },
};

static const char *const slices[] = { "place", "seen", NULL };

/* Contexts there are; no more than are counted here have a table that is accepted. */
static int64_t n_contexts(const struct task *t)
{
    int64_t n = 1;

    for (int64_t i = 1; i < task_int(t, N) && n <= MOST_TABLE; i++)
        n *= task_int(t, SYMBOLS);
    return n;
}

static int64_t table_size(const struct task *t)
{
    return n_contexts(t) * (task_int(t, SYMBOLS) - 1);
}

static const char *plan(struct task *t)
{
    if (table_size(t) > MOST_TABLE) {
        snprintf(t->message, sizeof t->message,
                 "n=%.0f: symbols=%.0f makes a model of more than %d numbers; take a "
                 "smaller n or fewer symbols",
                 t->arg[N], t->arg[SYMBOLS], MOST_TABLE);
        return t->message;
    }
    if (t->arg[LENGTH] < t->arg[N]) {
        snprintf(t->message, sizeof t->message,
                 "length=%.0f is below n=%.0f: no symbol has a context", t->arg[LENGTH],
                 t->arg[N]);
        return t->message;
    }
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = 1 + task_int(t, SYMBOLS);
    t->len = task_int(t, LENGTH);
    t->chance = 1 / t->arg[SYMBOLS];
    t->scratch_bytes = (size_t)table_size(t) * sizeof(double) +
                       (size_t)n_contexts(t) * sizeof(int32_t);
    return NULL;
}

/* The symbol behind a context, from 0. */
static int64_t next_symbol(const struct task *t, struct rng *r, const double *table,
                           int64_t context)
{
    const int64_t cuts = task_int(t, SYMBOLS) - 1;
    const double  u = rng_uniform(r);
    int64_t       symbol = 0;

    for (int64_t i = 0; i < cuts; i++)
        symbol += table[context * cuts + i] < u;
    return symbol;
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const int64_t k = task_int(t, SYMBOLS), first = task_int(t, N) - 1;
    const int64_t contexts = n_contexts(t), n = table_size(t);
    double       *table = e->scratch;
    int32_t      *seen = (int32_t *)(table + n);
    int64_t       context = 0;

    (void)split;
    e->n = t->len;
    for (int64_t i = 0; i < n; i++)
        table[i] = rng_uniform(r);
    for (int64_t i = 0; i <= t->len; i++) {
        const int64_t x =
            i < first ? rng_below(r, k) : next_symbol(t, r, table, context);
        if (i < t->len) e->ids[i] = (int32_t)(1 + x);
        if (i >= first) {
            e->labels[i - 1] = (int32_t)(1 + x);
            e->slices[i - 1] = (int32_t)(i - 1);
            e->slices[t->len + i - 1] = seen[context]++;
        }
        context = (context * k + x) % contexts;
    }
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    (void)t;
    (void)side;
    return id ? snprintf(text, cap, "%d", id) : snprintf(text, cap, "%s", "");
}

/*
 * Rules: what followed most often where the last symbols were the same
 */

/* By the last `width` symbols up to place `at`, or as many of them as have stood there
 * before; of equals the smallest. */
static int64_t by_context(const struct task *t, const struct task_example *e,
                          int64_t at, int64_t width)
{
    const int32_t *last = e->ids + at + 1 - width;
    int32_t        count[MOST_SYMBOLS + 1] = { 0 }, best = 0;

    for (int64_t i = width; i <= at; i++)
        if (!memcmp(e->ids + i - width, last, (size_t)width * sizeof *last))
            count[e->ids[i]]++;
    for (int32_t v = 1; v < t->vocab; v++)
        if (count[v] > count[best]) best = v;
    return best || !width ? best : by_context(t, e, at, width - 1);
}

static int64_t unigram(const struct task *t, const struct task_example *e, int64_t at)
{
    return by_context(t, e, at, 0);
}

static int64_t bigram(const struct task *t, const struct task_example *e, int64_t at)
{
    return by_context(t, e, at, 1);
}

static int64_t ngram(const struct task *t, const struct task_example *e, int64_t at)
{
    return by_context(t, e, at, task_int(t, N) - 1);
}

static const struct task_rule rules[] = {
    { "unigram in context", false, unigram },
    { "bigram in context", false, bigram },
    { "n-gram in context", false, ngram },
};

const struct task_def task_ngram = {
    .name = "ngram",
    .summary = "predict a text whose n-gram model only the text itself shows",
    .source = "Edelman et al., 2024; Akyürek et al., 2024",
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .make = make,
    .symbol = symbol,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
    .preset =
        "--layers 2 --dim 64 --heads 2 --ffn 0 --positions none --conv 4 --batch 16 "
        "--lr 4e-3 --steps 1000",
};
