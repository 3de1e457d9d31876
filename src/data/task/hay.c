/* hay.c -- statements hidden among words that mean nothing.
 *
 * Seen from afar the text is a row of slots, each a word or a statement.  Statement after
 * statement takes a slot that is free, all being as likely; words are uniform.
 */
#include "data/task/hay.h"

#include <stdio.h>

static int64_t slots(const struct hay *h)
{
    return h->length - hay_statements(h) + h->groups * h->each;
}

int32_t hay_symbol(const struct hay *h, int kind)
{
    return (int32_t)(h->first_word + h->words + kind * h->symbols);
}

int hay_text(const struct hay *h, const char *marks, const char *kinds, int32_t id,
             char *text, size_t cap)
{
    if (id == TASK_PAD) return snprintf(text, cap, "%s", "");
    if (id < h->first_word) return snprintf(text, cap, "%c", marks[id - 1]);
    for (int kind = 1; kind >= 0; kind--)
        if (id >= hay_symbol(h, kind))
            return snprintf(text, cap, "%c%d", kinds[kind], id - hay_symbol(h, kind));
    return snprintf(text, cap, "w%d", (int)(id - h->first_word));
}

int64_t hay_statements(const struct hay *h) { return h->groups * h->each * h->width; }

/* Where statements begin, the group of each slot (0: a word), and how many statements of
 * each group were met. */
size_t hay_bytes(const struct hay *h)
{
    return sizeof(int32_t) * (size_t)(h->groups * h->each + slots(h) + h->groups);
}

const int32_t *hay_lay(const struct hay *h, struct rng *r, void *scratch, int32_t *ids)
{
    const int64_t n = slots(h), statements = h->groups * h->each;
    int32_t      *begin = scratch, *group = begin + statements, *met = group + n;
    int64_t       at = 0;

    for (int64_t s = 0; s < statements; s++) {
        int64_t slot;
        do
            slot = rng_below(r, n);
        while (group[slot]);
        group[slot] = (int32_t)(1 + s / h->each);
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t g = group[i] - 1;
        if (g < 0) {
            ids[at++] = (int32_t)(h->first_word + rng_below(r, h->words));
            continue;
        }
        begin[g * h->each + met[g]++] = (int32_t)at;
        at += h->width;
    }
    return begin;
}

int64_t draw_free(struct rng *r, uint8_t *taken, int64_t n)
{
    int64_t i;

    do
        i = rng_below(r, n);
    while (taken[i]);
    taken[i] = 1;
    return i;
}
