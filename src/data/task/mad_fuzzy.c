/* mad_fuzzy.c -- a stream of keys and values that are several symbols long.
 *
 *     k3 k1 v4 k2 v1 v7 v2 k3 k1 v4
 *
 * Half of the symbols are in keys, half in values.  A key has 1 to `key` symbols, in the test
 * split `key`, a value 1 to `value`; sizes are uniform, and no symbol is twice in one.  A key
 * keeps the value that it is first bound to, and from the second time on each symbol of the
 * value is the label of the position before it.  One pair, which is drawn first, is the last
 * of the sequence; it also stands at the first pair that begins at or behind a place that is
 * drawn.  Pairs are added as long as there is room for a longest one, so sequences have up to
 * `length` tokens.
 *
 * compat=mad, as published: the place of the first of these two pairs is uniform up to
 * `length` minus twice their size, where it can come too late, so that the question has no
 * answer; one symbol is taken from keys and values to fill sequences up to `length` in front;
 * in training every token is a label.
 */
#include <stdio.h>
#include <string.h>

#include "data/task/mad.h"

enum { VOCAB, LENGTH, KEY, VALUE, COMPAT };
enum { MOTIF = 8 };

static const foci_arg_def args[] = {
    MAD_VOCAB(16, "half of them in keys, half in values"),
    MAD_LENGTH(128),
    { .name = "key", .preset = 3, .min = 1, .max = MOTIF, .help = "symbols at most" },
    { .name = "value", .preset = 3, .min = 1, .max = MOTIF, .help = "symbols at most" },
    MAD_COMPAT("mad: fill in front; some questions have no answer; in training every "
               "token is a label"),
};

static const char *const slices[] = { "tokens", "distance", NULL };

/* A run of different symbols. */
struct motif {
    int32_t at[MOTIF];
    int     n;
};

struct binding {
    struct motif key, value;
    int64_t      last; /* place of the last symbol of the key, from 1; 0: not seen */
};

static bool as_published(const struct task *t)
{
    return t->arg[COMPAT] == MAD_COMPAT_MAD;
}

/* Symbols of keys are ids from 1, those of values follow. */
static int64_t n_keys(const struct task *t)
{
    return (task_int(t, VOCAB) - as_published(t)) / 2;
}

static int64_t n_values(const struct task *t)
{
    return task_int(t, VOCAB) - as_published(t) - n_keys(t);
}

static int64_t most(const struct task *t)
{
    return task_int(t, KEY) + task_int(t, VALUE);
}

static const char *plan(struct task *t)
{
    if (t->arg[LENGTH] < (double)(3 * most(t))) {
        snprintf(t->message, sizeof t->message,
                 "length=%.0f: three pairs of the longest keys and values take %lld",
                 t->arg[LENGTH], (long long)(3 * most(t)));
        return t->message;
    }
    if (n_keys(t) < task_int(t, KEY) || n_values(t) < task_int(t, VALUE)) {
        snprintf(t->message, sizeof t->message,
                 "vocab=%.0f has %lld symbols of keys and %lld of values: too few for "
                 "key=%.0f and value=%.0f different ones",
                 t->arg[VOCAB], (long long)n_keys(t), (long long)n_values(t),
                 t->arg[KEY], t->arg[VALUE]);
        return t->message;
    }
    t->kind = FOCI_DATA_LM;
    t->causal = true;
    t->vocab = task_int(t, VOCAB) + 1;
    t->len = task_int(t, LENGTH);
    t->chance = 1 / (double)n_values(t);
    t->scratch_bytes = (size_t)(t->len / 2 + 2) * sizeof(struct binding);
    return NULL;
}

/*
 * Drawing
 */

static bool has(const struct motif *m, int32_t id)
{
    for (int i = 0; i < m->n; i++)
        if (m->at[i] == id) return true;
    return false;
}

/* n symbols of `count` from `first` on, none twice. */
static struct motif draw(struct rng *r, int64_t n, int64_t first, int64_t count)
{
    struct motif m = { .n = 0 };

    while (m.n < n) {
        const int32_t id = (int32_t)(first + rng_below(r, count));
        if (!has(&m, id)) m.at[m.n++] = id;
    }
    return m;
}

/* The binding of a drawn key, which is made if there is none. */
static struct binding *draw_binding(const struct task *t, struct rng *r,
                                    foci_data_split split, struct binding *all,
                                    int64_t *n)
{
    const int64_t key = task_int(t, KEY), value = task_int(t, VALUE);
    const int64_t size = split == FOCI_DATA_SPLIT_TEST ? key : 1 + rng_below(r, key);
    struct motif  m = draw(r, size, 1, n_keys(t));

    for (int64_t i = 0; i < *n; i++)
        if (all[i].key.n == m.n && !memcmp(all[i].key.at, m.at, sizeof m.at))
            return &all[i];
    struct binding *b = &all[(*n)++];
    b->key = m;
    b->value = draw(r, 1 + rng_below(r, value), 1 + n_keys(t), n_values(t));
    return b;
}

/* A pair at the end of the sequence, with labels if it is asked for. */
static void put(const struct task *t, struct task_example *e, struct binding *b,
                bool asked)
{
    memcpy(e->ids + e->n, b->key.at, (size_t)b->key.n * sizeof *e->ids);
    e->n += b->key.n;
    const int64_t distance = b->last ? e->n - b->last : 0;
    b->last = e->n;
    for (int i = 0; i < b->value.n; i++) {
        e->ids[e->n] = b->value.at[i];
        if (asked) mad_label(t, e, e->n, b->key.n, distance);
        e->n++;
    }
}

/* Fill up in front with the symbol that is left. */
static void fill_front(const struct task *t, struct task_example *e)
{
    const int64_t by = t->len - e->n;
    int32_t      *rows[] = { e->ids, e->labels, e->slices, e->slices + t->len };

    for (int i = 0; i < 4; i++)
        memmove(rows[i] + by, rows[i], (size_t)e->n * sizeof *rows[i]);
    for (int64_t i = 0; i < by; i++) {
        e->ids[i] = (int32_t)(t->vocab - 1);
        e->labels[i] = -1;
    }
    e->n = t->len;
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    const bool      compat = as_published(t);
    struct binding *all = e->scratch;
    int64_t         n = 0;
    struct binding *asked = draw_binding(t, r, split, all, &n);
    const int64_t   size = asked->key.n + asked->value.n, room = t->len - size;
    const int64_t   place = rng_below(r, compat ? room - size : room - 2 * most(t) + 1);

    while (e->n + most(t) <= room) {
        const bool      now = e->n >= place && !asked->last;
        struct binding *b = now ? asked : draw_binding(t, r, split, all, &n);
        put(t, e, b, b->last > 0);
    }
    put(t, e, asked, true);
    if (!compat) return;
    fill_front(t, e);
    if (split == FOCI_DATA_SPLIT_TRAIN) mad_label_all(e);
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    const int keys = (int)n_keys(t), values = (int)n_values(t);

    (void)side;
    if (!id) return snprintf(text, cap, "%s", "");
    if (id <= keys) return snprintf(text, cap, "k%d", id);
    if (id <= keys + values) return snprintf(text, cap, "v%d", id - keys);
    return snprintf(text, cap, "%s", ".");
}

/*
 * Rules
 */

static int64_t followed(const struct task *t, const struct task_example *e, int64_t at)
{
    int64_t i = at - 1;

    (void)t;
    while (i >= 0 && e->ids[i] != e->ids[at])
        i--;
    return i < 0 ? -1 : e->ids[i + 1];
}

static const struct task_rule rules[] = {
    { "what followed the token last time", false, followed },
};

const struct task_def task_mad_fuzzy = {
    .name = "mad-fuzzy",
    .summary = "recall values where keys and values are several symbols long",
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
    .preset = "--layers 2 --dim 64 --heads 4 --activation swiglu --ffn 176 "
              "--positions rope --conv 3 --batch 64 --lr 0.003 --dtype bf16 "
              "--steps 2000",
    .published = "--task mad-fuzzy(compat=mad) --layers 2 --dim 128 --heads 16 "
                 "--activation swiglu --ffn 352 --positions rope --untied "
                 "--batch 128 --epochs 200 --lr 0.0005 --decay 0 --clip 0 "
                 "--final-rate 0.002 --examples 12800",
};
