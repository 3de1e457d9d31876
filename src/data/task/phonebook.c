/* phonebook.c -- lines of a name and a number, then one of the names again.
 *
 *     k q : 4 1 9 ; b m : 5 0 2 ; z u : 7 7 1 ; b m : 5 0      is asked for 5 0 2
 *
 * Names are random letters, no two of a book alike, numbers random digits; all entries are
 * as likely to be asked for.  Behind the name the number stands without its last digit, and
 * the label at each place is the digit that follows: all of them right is the exact match
 * of the paper.
 *
 * Jelassi, Brandfonbrener, Kakade and Malach, "Repeat After Me: Transformers are Better than
 * State Space Models at Copying", 2024, section 4.2, with letters in place of real names.
 */
#include <stdio.h>
#include <string.h>

#include "data/task/task.h"

enum { ENTRIES, LETTERS, DIGITS };
enum { DIGIT = 1, LETTER = DIGIT + 10, COLON = LETTER + 26, END, VOCAB };

static const foci_arg_def args[] = {
    { .name = "entries", .preset = 16, .min = 1, .max = 4096, .help = "of a book" },
    { .name = "letters", .preset = 3, .min = 1, .max = 64, .help = "of a name" },
    { .name = "digits", .preset = 4, .min = 1, .max = 64, .help = "of a number" },
};

static const char *const slices[] = { "place", "distance", NULL };

/* Tokens of a name and its colon, and of an entry. */
static int64_t head(const struct task *t) { return task_int(t, LETTERS) + 1; }

static int64_t entry(const struct task *t) { return head(t) + task_int(t, DIGITS) + 1; }

static const char *plan(struct task *t)
{
    double names = 1;

    for (int64_t i = 0; i < task_int(t, LETTERS); i++)
        names *= 26;
    if (2 * t->arg[ENTRIES] > names) {
        snprintf(t->message, sizeof t->message,
                 "entries=%.0f: letters=%.0f make %.0f names, which is less than twice "
                 "as many",
                 t->arg[ENTRIES], t->arg[LETTERS], names);
        return t->message;
    }
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = VOCAB;
    t->len = (task_int(t, ENTRIES) + 1) * entry(t) - 2;
    t->chance = 0.1;
    return NULL;
}

/* A name that no entry before it has. */
static void draw_name(const struct task *t, struct rng *r, int32_t *ids, int64_t at)
{
    const int64_t letters = task_int(t, LETTERS), each = entry(t);
    bool          there;

    do {
        there = false;
        for (int64_t i = 0; i < letters; i++)
            ids[at + i] = LETTER + (int32_t)rng_below(r, 26);
        for (int64_t i = 0; i < at && !there; i += each)
            there = !memcmp(ids + i, ids + at, (size_t)letters * sizeof *ids);
    } while (there);
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const int64_t digits = task_int(t, DIGITS), name = head(t), each = entry(t);
    const int64_t end = task_int(t, ENTRIES) * each;

    (void)split;
    e->n = t->len;
    for (int64_t at = 0; at < end; at += each) {
        draw_name(t, r, e->ids, at);
        e->ids[at + name - 1] = COLON;
        for (int64_t i = 0; i < digits; i++)
            e->ids[at + name + i] = DIGIT + (int32_t)rng_below(r, 10);
        e->ids[at + each - 1] = END;
    }
    const int64_t asked = rng_below(r, task_int(t, ENTRIES)) * each;
    for (int64_t i = 0; end + i < e->n; i++)
        e->ids[end + i] = e->ids[asked + i];
    for (int64_t i = 0; i < digits; i++) {
        const int64_t at = end + name - 1 + i;
        e->labels[at] = e->ids[asked + name + i];
        e->slices[at] = (int32_t)i;
        e->slices[t->len + at] = (int32_t)(end - asked);
    }
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    (void)t;
    (void)side;
    if (id == TASK_PAD) return snprintf(text, cap, "%s", "");
    return snprintf(text, cap, "%c",
                    id < LETTER  ? '0' + id - DIGIT
                    : id < COLON ? 'a' + id - LETTER
                    : id < END   ? ':'
                                 : ';');
}

/*
 * Rules
 */

static int64_t last_number(const struct task *t, const struct task_example *e,
                           int64_t at)
{
    const int64_t end = task_int(t, ENTRIES) * entry(t);
    return e->ids[end - entry(t) + head(t) + e->slices[at]];
}

/* The digit that stands most often at this place of the numbers; of equals the smallest. */
static int64_t most_frequent(const struct task *t, const struct task_example *e,
                             int64_t at)
{
    const int64_t end = task_int(t, ENTRIES) * entry(t);
    int64_t       count[LETTER] = { 0 };
    int32_t       best = DIGIT;

    for (int64_t i = head(t) + e->slices[at]; i < end; i += entry(t))
        count[e->ids[i]]++;
    for (int32_t d = DIGIT; d < LETTER; d++)
        if (count[d] > count[best]) best = d;
    return best;
}

static const struct task_rule rules[] = {
    { "last number", false, last_number },
    { "most frequent in the book", false, most_frequent },
};

const struct task_def task_phonebook = {
    .name = "phonebook",
    .summary = "look up the number of a name",
    .source = "Jelassi et al., Repeat After Me, 2024",
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .make = make,
    .symbol = symbol,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
    .preset = "--task phonebook(entries=8) --layers 2 --dim 64 --heads 1 --ffn 0 "
              "--positions none --conv 8 --batch 64 --lr 4e-3 --steps 1500",
};
