/* eval_slices.c -- accuracy and loss by load, distance, length: by the slices of a task. */
#include <stdlib.h>
#include <string.h>

#include "cli/eval.h"

enum { MOST_VALUES = 16 };

/* Labels whose slice has a value from `from` to `to`. */
struct slice_value {
    int64_t      from, to;
    struct tally tally;
};

struct slice {
    const char         *name;
    struct slice_value *value; /* [n], ascending */
    size_t              n, cap;
};

struct slices {
    struct slice *slice; /* [n] */
    int           n;
};

struct slices *slices_open(const foci_data *data)
{
    struct slices *s = need(1, sizeof *s);

    s->n = foci_data_slice_count(data);
    s->slice = need((size_t)s->n + 1, sizeof *s->slice);
    for (int i = 0; i < s->n; i++)
        s->slice[i].name = foci_data_slice(data, i);
    return s;
}

void slices_free(struct slices *s)
{
    for (int i = 0; s && i < s->n; i++)
        free(s->slice[i].value);
    if (s) free(s->slice);
    free(s);
}

/* The entry of a value, in its place. */
static struct tally *tally_of(struct slice *s, int64_t value)
{
    size_t begin = 0, end = s->n;

    while (begin < end) {
        const size_t middle = (begin + end) / 2;
        if (s->value[middle].from < value)
            begin = middle + 1;
        else
            end = middle;
    }
    if (begin < s->n && s->value[begin].from == value) return &s->value[begin].tally;
    s->value = need_one_more(s->value, s->n, &s->cap, sizeof *s->value);
    memmove(s->value + begin + 1, s->value + begin, (s->n - begin) * sizeof *s->value);
    s->value[begin] = (struct slice_value){ .from = value, .to = value };
    s->n++;
    return &s->value[begin].tally;
}

void slices_add(struct slices *s, const foci_batch *b, const float *nats,
                const int32_t *best)
{
    for (int k = 0; k < s->n && k < b->n_slices; k++)
        for (int64_t i = 0; i < b->n_labels; i++)
            tally_add(tally_of(&s->slice[k], b->slices[k * b->n_labels + i]),
                      best[i] == batch_label(b, i), (double)nats[i]);
}

/* The power of two that a value is told with: from, and behind the last. */
static void group_of(int64_t value, int64_t *from, int64_t *behind)
{
    *from = value;
    *behind = value + 1;
    if (value < 1) return;
    for (*from = 1; 2 * *from <= value;)
        *from *= 2;
    *behind = 2 * *from;
}

/* Entry number `at` and those that are told with it; the result is the next one. */
static size_t next(const struct slice *s, size_t at, struct slice_value *all)
{
    const bool grouped = s->n > MOST_VALUES;
    int64_t    behind;

    *all = s->value[at++];
    if (!grouped) return at;
    group_of(all->from, &all->from, &behind);
    all->to = behind - 1;
    for (; at < s->n && s->value[at].from < behind; at++) {
        all->tally.labels += s->value[at].tally.labels;
        all->tally.hits += s->value[at].tally.hits;
        all->tally.nats += s->value[at].tally.nats;
    }
    return at;
}

static double accuracy_of(const struct tally *t)
{
    return (double)t->hits / (double)t->labels;
}

static double loss_of(const struct tally *t) { return t->nats / (double)t->labels; }

json_t *slices_json(const struct slices *s)
{
    json_t *all = json_object();

    for (int i = 0; i < s->n; i++) {
        const struct slice *one = &s->slice[i];
        json_t             *list = json_array();
        struct slice_value  v;
        for (size_t at = 0; at < one->n;) {
            at = next(one, at, &v);
            json_t *o = json_object();
            if (one->n > MOST_VALUES) {
                json_object_set_new(o, "from", json_integer(v.from));
                json_object_set_new(o, "to", json_integer(v.to));
            } else {
                json_object_set_new(o, "value", json_integer(v.from));
            }
            json_object_set_new(o, "labels", json_integer(v.tally.labels));
            json_object_set_new(o, "accuracy", json_real(accuracy_of(&v.tally)));
            json_object_set_new(o, "loss", json_real(loss_of(&v.tally)));
            json_array_append_new(list, o);
        }
        json_object_set_new(all, one->name, list);
    }
    return all;
}

void slices_print(const struct slices *s, FILE *out)
{
    for (int i = 0; i < s->n; i++) {
        const struct slice  *one = &s->slice[i];
        struct output_table *t = table_headed("lrrr");
        struct slice_value   v;
        char                 name[48];
        table_pair(t, one->name, "labels");
        table_pair(t, "accuracy", "nats");
        for (size_t at = 0; at < one->n;) {
            at = next(one, at, &v);
            snprintf(name, sizeof name, v.from == v.to ? "%lld" : "%lld to %lld",
                     (long long)v.from, (long long)v.to);
            table_pair(t, name, "%lld", (long long)v.tally.labels);
            table_cell(t, "%.4f", accuracy_of(&v.tally));
            table_cell(t, "%.4f", loss_of(&v.tally));
        }
        fputc('\n', out);
        table_print(t, out);
        table_free(t);
    }
}
