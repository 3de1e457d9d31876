/* listops.c -- nested lists of operations on digits; the class is the value.
 *
 *     [MAX 4 [MIN 2 9 ] [SM 7 8 5 ] 3 ]   is 4
 *
 * MIN and MAX are what they say, MED is the median, of an even number the mean of the two
 * middle values rounded down, SM the sum modulo 10.  A list is drawn from the root down: at
 * a level below `depth` it is an operation with probability 0.25, else a digit; an
 * operation has 2 to `arguments` arguments, each number being as likely, then one of the
 * four operators.  Lists of less than `least` or more than `most` tokens, brackets
 * included, are thrown away; one that grows too long is not drawn to its end.
 *
 * Nangia and Bowman, "ListOps: A Diagnostic Dataset for Latent Tree Learning", 2018; with
 * these presets: Tay et al., "Long Range Arena", 2020.
 */
#include <stdio.h>
#include <string.h>

#include "data/task/task.h"

enum { DEPTH, ARGUMENTS, LEAST, MOST };

static const foci_arg_def args[] = {
    { .name = "depth",
      .preset = 10,
      .min = 2,
      .max = 64,
      .help = "levels, of which the last has digits only" },
    { .name = "arguments",
      .preset = 10,
      .min = 2,
      .max = 64,
      .help = "of an operation, at most" },
    { .name = "least", .preset = 501, .min = 1, .max = 1e6, .help = "fewest tokens" },
    { .name = "most", .preset = 1999, .min = 1, .max = 1e6, .help = "most tokens" },
};

static const char *const slices[] = { "length", "depth", NULL };

enum { DIGIT = 1, OPERATOR = 11, MIN = OPERATOR, MAX, MED, SM, CLOSE, VOCAB };

/*
 * Drawing a list
 */

struct growth {
    struct rng *r;
    int64_t     depth, arguments, most;
    int32_t    *ids; /* [most]; NULL: tokens are counted only */
    int64_t     n;
    int64_t     deepest; /* level, counted from 1 */
};

/* False: it has become too long. */
static bool put(struct growth *g, int32_t id)
{
    if (g->n == g->most) return false;
    if (g->ids) g->ids[g->n] = id;
    g->n++;
    return true;
}

static bool grow(struct growth *g, int64_t level)
{
    g->deepest = max64(g->deepest, level);
    if (level == g->depth || rng_uniform(g->r) > 0.25)
        return put(g, DIGIT + (int32_t)rng_below(g->r, 10));

    const int64_t at = g->n, n = 2 + rng_below(g->r, g->arguments - 1);
    if (!put(g, OPERATOR)) return false;
    for (int64_t i = 0; i < n; i++)
        if (!grow(g, level + 1)) return false;
    const int64_t op = rng_below(g->r, 4);
    if (g->ids) g->ids[at] += (int32_t)op;
    return put(g, CLOSE);
}

/* Lists up to one that is long enough; false: so many tokens were drawn without one. */
static bool draw(const struct task *t, struct growth *g, int64_t tokens)
{
    g->depth = task_int(t, DEPTH);
    g->arguments = task_int(t, ARGUMENTS);
    g->most = task_int(t, MOST);
    while (tokens > 0) {
        g->n = 0;
        g->deepest = 0;
        const bool whole = grow(g, 1);
        if (whole && g->n >= task_int(t, LEAST)) return true;
        tokens -= g->n;
    }
    return false;
}

/*
 * Values
 */

/* What an operator makes of digits, of which there is at least one. */
static int32_t apply(int32_t op, const int64_t *count)
{
    int64_t n = 0, sum = 0, seen = 0;
    int32_t low = 9, high = 0, middle[2] = { -1, -1 };

    for (int32_t d = 0; d < 10; d++) {
        n += count[d];
        sum += d * count[d];
        if (count[d]) low = d < low ? d : low, high = d;
    }
    for (int32_t d = 0; d < 10; d++) {
        seen += count[d];
        if (middle[0] < 0 && seen > (n - 1) / 2) middle[0] = d;
        if (middle[1] < 0 && seen > n / 2) middle[1] = d;
    }
    if (op == MIN) return low;
    if (op == MAX) return high;
    if (op == MED) return (middle[0] + middle[1]) / 2;
    return (int32_t)(sum % 10);
}

/* The value of the list at *at, which is moved behind it. */
static int32_t value(const int32_t *ids, int64_t *at)
{
    const int32_t id = ids[(*at)++];
    int64_t       count[10] = { 0 };

    if (id < OPERATOR) return id - DIGIT;
    while (ids[*at] != CLOSE)
        count[value(ids, at)]++;
    ++*at;
    return apply(id, count);
}

int32_t listops_value(const int32_t *ids)
{
    int64_t at = 0;
    return value(ids, &at);
}

/*
 * The generator
 */

static const char *plan(struct task *t)
{
    /* So many tokens are drawn in an instant, and lists that are much rarer than one in as
     * many would take for ever. */
    static const int64_t patience = 1 << 22;
    struct growth        g = { 0 };
    struct rng           r;

    if (t->arg[LEAST] > t->arg[MOST]) {
        snprintf(t->message, sizeof t->message,
                 "least=%.0f is above most=%.0f: no list has so many tokens",
                 t->arg[LEAST], t->arg[MOST]);
        return t->message;
    }
    rng_seed(&r, 0, 0);
    g.r = &r;
    if (!draw(t, &g, patience)) {
        snprintf(t->message, sizeof t->message,
                 "lists of %.0f to %.0f tokens are too rare with depth=%.0f and "
                 "arguments=%.0f; allow more of one",
                 t->arg[LEAST], t->arg[MOST], t->arg[DEPTH], t->arg[ARGUMENTS]);
        return t->message;
    }
    t->kind = FOCI_DATA_CLASSIFY;
    t->vocab = VOCAB;
    t->len = task_int(t, MOST);
    t->n_classes = 10;
    t->chance = 0.1;
    return NULL;
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    struct growth g = { .r = r, .ids = e->ids };

    (void)split;
    draw(t, &g, INT64_MAX);
    e->n = g.n;
    memset(e->ids + g.n, TASK_PAD, (size_t)(t->len - g.n) * sizeof *e->ids);
    e->answer = listops_value(e->ids);
    e->slices[0] = (int32_t)g.n;
    e->slices[1] = (int32_t)g.deepest;
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    static const char *const words[] = { "[MIN", "[MAX", "[MED", "[SM", "]" };

    (void)t;
    (void)side;
    if (id < OPERATOR) return snprintf(text, cap, "%d", id - DIGIT);
    return snprintf(text, cap, "%s", words[id - OPERATOR]);
}

/*
 * Rules
 */

static int64_t root(const struct task *t, const struct task_example *e, int64_t at)
{
    (void)t;
    (void)at;
    return e->ids[0];
}

/* What the first operator makes of the digits that stand right in its list. */
static int64_t root_digits(const struct task *t, const struct task_example *e,
                           int64_t at)
{
    int64_t count[10] = { 0 }, level = 0, n = 0;

    (void)t;
    (void)at;
    for (int64_t i = 0; i < e->n; i++) {
        const int32_t id = e->ids[i];
        if (id >= OPERATOR) level += id == CLOSE ? -1 : 1;
        if (id >= OPERATOR || level > 1) continue;
        count[id - DIGIT]++;
        n++;
    }
    return e->ids[0] * 16 + (n && e->ids[0] >= OPERATOR ? apply(e->ids[0], count) : 10);
}

static const struct task_rule rules[] = {
    { "root operator", true, root },
    { "root operator on its digits", true, root_digits },
};

const struct task_def task_listops = {
    .name = "listops",
    .summary = "the value of nested lists of operations on digits",
    .source = "Nangia and Bowman 2018; Tay et al., Long Range Arena, 2020",
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .make = make,
    .symbol = symbol,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
    .preset = "--task listops(depth=6,arguments=6,least=16,most=199) "
              "--examples 40000 --layers 6 --dim 128 --heads 8 --pooling "
              "first --positions rope --batch 64 --dtype bf16 --time-limit "
              "420 --valid-every 400",
    .published = "--layers 4 --dim 512 --heads 8 --ffn 1024 --positions sinusoid "
                 "--pooling first --dropout 0.1 --weight-dropout 0.1 "
                 "--embedding-dropout 0.1 --batch 32 --lr 1.58e-3 --schedule root "
                 "--warmup 1000 --decay 0.1 --steps 5000",
};
