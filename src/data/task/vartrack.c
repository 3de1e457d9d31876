/* vartrack.c -- variable tracking: chains of assignments hidden among words.
 *
 *     w1 x4 = v7 w3 w3 x2 = x4 w5 x9 = v1 ? v7      is asked for x4 and x2
 *
 * A chain begins with a variable that gets a value, and `hops` variables follow, each of
 * which gets the one before it.  The statements of all chains stand at uniform places, those
 * of a chain in order; no variable and no value comes twice.  The first chain is asked for:
 *
 *     ask=variables   ? v x1 x2 ... xh   from v on the label is the next variable
 *     ask=value       ? xh+1             the label is the value, all hops away
 *
 * Hsieh et al., "RULER: What's the Real Context Size of Your Long-Context Language Models?",
 * 2024, section 3.2: ask=variables, one chain of 4 hops, the variables in any order.
 */
#include <stdio.h>

#include "data/task/hay.h"

enum { HOPS, CHAINS, LENGTH, WORDS, SYMBOLS, ASK };
enum { ASK_VARIABLES, ASK_VALUE };
enum { EQUALS = 1, QUESTION, WORD };
enum { VARIABLE, VALUE };

static const foci_arg_def args[] = {
    { .name = "hops", .preset = 4, .min = 0, .max = 1024, .help = "of a chain" },
    { .name = "chains",
      .preset = 4,
      .min = 1,
      .max = 1024,
      .help = "in the text, of which one is asked for" },
    { .name = "length",
      .preset = 256,
      .min = 3,
      .max = 1 << 22,
      .help = "tokens before the question" },
    { .name = "words", .preset = 64, .min = 1, .max = 1 << 20, .help = "to fill it with" },
    { .name = "symbols",
      .preset = 64,
      .min = 1,
      .max = 1 << 20,
      .help = "to draw variables from, and as many for values" },
    { .name = "ask",
      .choices = "variables|value",
      .help = "all variables of a value, or the value of the last one" },
};

static const char *const slices[] = { "hop", "distance", NULL };

static struct hay hay_of(const struct task *t)
{
    return (struct hay){ .length = task_int(t, LENGTH),
                         .width = 3,
                         .groups = task_int(t, CHAINS),
                         .each = task_int(t, HOPS) + 1,
                         .first_word = WORD,
                         .words = task_int(t, WORDS),
                         .symbols = task_int(t, SYMBOLS) };
}

static int32_t first_value(const struct task *t)
{
    const struct hay hay = hay_of(t);
    return hay_symbol(&hay, VALUE);
}

static const char *plan(struct task *t)
{
    const struct hay hay = hay_of(t);
    const double     variables = t->arg[CHAINS] * (t->arg[HOPS] + 1);

    if (variables > t->arg[SYMBOLS])
        snprintf(t->message, sizeof t->message,
                 "symbols=%.0f: chains=%.0f of hops=%.0f take %.0f variables",
                 t->arg[SYMBOLS], t->arg[CHAINS], t->arg[HOPS], variables);
    else if (hay_statements(&hay) > hay.length)
        snprintf(t->message, sizeof t->message,
                 "length=%.0f: chains=%.0f of hops=%.0f take %.0f", t->arg[LENGTH],
                 t->arg[CHAINS], t->arg[HOPS], 3 * variables);
    if (*t->message) return t->message;
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = hay_symbol(&hay, 2);
    t->len = hay.length + 2 + (t->arg[ASK] == ASK_VARIABLES ? task_int(t, HOPS) : 0);
    t->chance = 1 / t->arg[SYMBOLS];
    t->scratch_bytes = hay_bytes(&hay) + 2 * (size_t)hay.symbols;
    return NULL;
}

/* The label at `at`, which stands in the text at `found`. */
static void label(const struct task *t, struct task_example *e, int64_t at,
                  int64_t found, int64_t hop)
{
    e->labels[at] = e->ids[found];
    e->slices[at] = (int32_t)hop;
    e->slices[t->len + at] = (int32_t)(at - found);
}

/* About a chain whose statements stand at these places. */
static void ask(const struct task *t, struct task_example *e, const int32_t *chain)
{
    const int64_t hops = task_int(t, HOPS), at = task_int(t, LENGTH);

    e->ids[at] = QUESTION;
    if (t->arg[ASK] == ASK_VALUE) {
        e->ids[at + 1] = e->ids[chain[hops]];
        label(t, e, at + 1, chain[0] + 2, hops);
        return;
    }
    e->ids[at + 1] = e->ids[chain[0] + 2];
    for (int64_t i = 0; i <= hops; i++) {
        if (i) e->ids[at + 1 + i] = e->ids[chain[i - 1]];
        label(t, e, at + 1 + i, chain[i], i);
    }
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const struct hay hay = hay_of(t);
    const int32_t   *begin = hay_lay(&hay, r, e->scratch, e->ids);
    uint8_t         *variables = (uint8_t *)e->scratch + hay_bytes(&hay);
    uint8_t         *values = variables + hay.symbols;

    (void)split;
    e->n = t->len;
    for (int64_t c = 0; c < hay.groups; c++) {
        int32_t from =
            hay_symbol(&hay, VALUE) + (int32_t)draw_free(r, values, hay.symbols);
        for (int64_t i = 0; i < hay.each; i++) {
            int32_t *x = e->ids + begin[c * hay.each + i];
            x[0] = hay_symbol(&hay, VARIABLE) +
                   (int32_t)draw_free(r, variables, hay.symbols);
            x[1] = EQUALS;
            x[2] = from;
            from = x[0];
        }
    }
    ask(t, e, begin);
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    const struct hay hay = hay_of(t);

    (void)side;
    return hay_text(&hay, "=?", "xv", id, text, cap);
}

/*
 * Rules.  With ask=value they name values, else variables that are assigned.
 */

/* The last one before `end`, and TASK_PAD if there is none. */
static int64_t last_before(const struct task *t, const struct task_example *e,
                           int64_t end)
{
    const int64_t side = t->arg[ASK] == ASK_VALUE ? 1 : -1;

    for (int64_t i = end - 1; i > 0; i--)
        if (e->ids[i] == EQUALS && (side < 0 || e->ids[i + 1] >= first_value(t)))
            return e->ids[i + side];
    return TASK_PAD;
}

static int64_t last_assigned(const struct task *t, const struct task_example *e,
                             int64_t at)
{
    (void)at;
    return last_before(t, e, task_int(t, LENGTH));
}

/* The variable that is assigned next behind the token at `at`; the last value that was
 * assigned before the variable there. */
static int64_t nearest(const struct task *t, const struct task_example *e, int64_t at)
{
    const int64_t length = task_int(t, LENGTH);
    int64_t       i = 0;

    while (i + 1 < length &&
           !(e->ids[i] == e->ids[at] &&
             (e->ids[at] >= first_value(t) || e->ids[i + 1] == EQUALS)))
        i++;
    if (t->arg[ASK] == ASK_VALUE) return last_before(t, e, i + 2);
    if (e->ids[at] >= first_value(t)) return e->ids[i - 2];
    for (i += 2; i < length; i++)
        if (e->ids[i] == EQUALS) return e->ids[i - 1];
    return TASK_PAD;
}

static const struct task_rule rules[] = {
    { "last assignment", false, last_assigned },
    { "nearest assignment", false, nearest }, /* it solves one chain */
};

const struct task_def task_vartrack = {
    .name = "vartrack",
    .summary = "follow chains of assignments that are hidden in a long text",
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
    .preset = "--task vartrack(length=64) --layers 2 --dim 64 --heads 1 --ffn 0 "
              "--positions none --conv 4 --batch 64 --lr 2e-3 --steps 2500",
};
