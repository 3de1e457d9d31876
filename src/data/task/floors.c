/* floors.c -- the accuracy of rules that know nothing of a task.
 *
 * A rule that counts puts every label into a group (task_rule.look).  The labels of groups
 * are counted in examples of the training split; the rule then predicts the most frequent
 * label of a group, and is wrong in groups that did not occur there.
 */
#include <stdlib.h>

#include "data/task/floors.h"

enum { AT_ONCE = 64 };

/* A label in its group, or how often it stands there. */
struct seen {
    int64_t group;
    int32_t label;
    int64_t count;
};

struct tally {
    struct seen *at;
    int64_t      n, cap;
};

/* Rule 0 is the most frequent label: one group. */
static int64_t look(const struct task *t, const struct task_example *e, int64_t at,
                    int rule)
{
    return rule ? t->def->rules[rule - 1].look(t, e, at) : 0;
}

static bool counts(const struct task *t, int rule)
{
    return !rule || t->def->rules[rule - 1].counts;
}

/* What is done with each label of an example. */
struct visit {
    foci_ctx          *ctx;
    const struct task *t;
    int                rule;
    struct tally      *tally;
    int64_t            right, labels;
};

typedef foci_status visit_fn(struct visit *v, const struct task_example *e, int64_t at,
                             int32_t label);

static foci_status visit_example(struct visit *v, const struct task_example *e,
                                 visit_fn *fn)
{
    if (!e->labels) return fn(v, e, 0, e->answer);
    for (int64_t i = 0; i < e->n; i++)
        if (e->labels[i] >= 0) TRY(fn(v, e, i, e->labels[i]));
    return FOCI_OK;
}

static foci_status visit_all(struct visit *v, uint64_t seed, foci_data_split split,
                             int64_t n, visit_fn *fn)
{
    struct task_example examples[AT_ONCE];
    struct task_memory  memory;
    foci_status         status = FOCI_OK;

    TRY(task_memory_make(v->ctx, v->t, AT_ONCE, &memory));
    for (int64_t first = 0; first < n && !status; first += AT_ONCE) {
        const int64_t some = min64(AT_ONCE, n - first);
        task_make(v->ctx, &memory, seed, split, first, some, examples);
        for (int64_t i = 0; i < some && !status; i++)
            status = visit_example(v, &examples[i], fn);
    }
    task_memory_free(v->ctx, &memory);
    return status;
}

/*
 * Counting
 */

static foci_status remember(struct visit *v, const struct task_example *e, int64_t at,
                            int32_t label)
{
    struct tally *y = v->tally;

    if (y->n == y->cap) {
        const int64_t cap = max64(1024, 2 * y->cap);
        const size_t  each = sizeof *y->at;
        struct seen  *bigger = ctx_alloc(v->ctx, (size_t)cap, each);
        if (!bigger) return FOCI_ERR_MEMORY;
        for (int64_t i = 0; i < y->n; i++)
            bigger[i] = y->at[i];
        if (y->at) ctx_free(v->ctx, y->at, (size_t)y->cap, each);
        y->at = bigger;
        y->cap = cap;
    }
    y->at[y->n++] = (struct seen){ look(v->t, e, at, v->rule), label, 1 };
    return FOCI_OK;
}

static int by_group(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;

    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    return (x->label > y->label) - (x->label < y->label);
}

/* Leave one of each group: its most frequent label, of equals the smallest. */
static void reduce(struct tally *y)
{
    int64_t groups = 0, kinds = 0;

    if (y->n) qsort(y->at, (size_t)y->n, sizeof *y->at, by_group);
    for (int64_t i = 0; i < y->n; i++) {
        if (kinds && !by_group(&y->at[kinds - 1], &y->at[i]))
            y->at[kinds - 1].count++;
        else
            y->at[kinds++] = y->at[i];
    }
    for (int64_t i = 0; i < kinds; i++) {
        if (!groups || y->at[groups - 1].group != y->at[i].group)
            y->at[groups++] = y->at[i];
        else if (y->at[groups - 1].count < y->at[i].count)
            y->at[groups - 1] = y->at[i];
    }
    y->n = groups;
}

/* The label of a group, -1 if it was never seen. */
static int64_t label_of(const struct tally *y, int64_t group)
{
    int64_t low = 0, high = y->n;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (y->at[middle].group < group)
            low = middle + 1;
        else
            high = middle;
    }
    return low < y->n && y->at[low].group == group ? y->at[low].label : -1;
}

/*
 * Judging
 */

static foci_status judge(struct visit *v, const struct task_example *e, int64_t at,
                         int32_t label)
{
    const int64_t said = look(v->t, e, at, v->rule);

    v->right += (counts(v->t, v->rule) ? label_of(v->tally, said) : said) == label;
    v->labels++;
    return FOCI_OK;
}

int task_floor_count(const struct task *t) { return (int)t->def->n_rules + 2; }

foci_status task_floor(foci_ctx *ctx, const struct task *t, uint64_t seed,
                       foci_data_split split, int i, int64_t examples,
                       const char **name, double *accuracy)
{
    const int    rule = i - 1;
    struct tally tally = { 0 };
    struct visit v = { .ctx = ctx, .t = t, .rule = rule, .tally = &tally };
    foci_status  status = FOCI_OK;

    *accuracy = t->chance;
    *name = i == 0      ? "chance"
            : rule == 0 ? "most frequent"
                        : t->def->rules[rule - 1].name;
    if (i == 0) return FOCI_OK;
    if (counts(t, rule)) {
        status = visit_all(&v, seed, FOCI_DATA_SPLIT_TRAIN, examples, remember);
        reduce(&tally);
    }
    if (!status) status = visit_all(&v, seed, split, examples, judge);
    if (!status) *accuracy = v.labels ? (double)v.right / (double)v.labels : 0;
    if (tally.at) ctx_free(ctx, tally.at, (size_t)tally.cap, sizeof *tally.at);
    return status;
}
