/* classes.c -- the names of classes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/classes.h"

/* Labels longer than that, and more classes, are texts in the wrong column. */
enum { LABEL_MOST = 255, CLASSES_MOST = 1 << 16 };

/* As memcmp, a shorter name before those that it begins. */
static int order(const char *name, foci_string label)
{
    const size_t n = strlen(name), m = (size_t)label.bytes;
    const int    by_bytes = memcmp(name, label.text, n < m ? n : m);

    return by_bytes ? by_bytes : (n > m) - (n < m);
}

static const char *name_at(const foci_data *d, int64_t rank)
{
    return VEC(char *, &d->classes.names, rank);
}

/* The rank of the first name that is not before the label. */
static int64_t rank_of(const foci_data *d, foci_string label, bool *there)
{
    const int64_t n = d->classes.names.n;
    int64_t       low = 0, high = n;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (order(name_at(d, middle), label) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *there = low < n && !order(name_at(d, low), label);
    return low;
}

/* Put the name of class `number` where it belongs. */
static foci_status insert(foci_data *d, foci_string label, int64_t rank, int64_t number)
{
    struct classes *c = &d->classes;
    const size_t    behind = (size_t)(c->names.n - rank);

    TRY(vec_reserve(d->ctx, &c->names, 1, sizeof(char *)));
    TRY(vec_reserve(d->ctx, &c->numbers, 1, sizeof(int64_t)));
    char *name = ctx_alloc(d->ctx, (size_t)label.bytes + 1, 1);
    if (!name) return FOCI_ERR_MEMORY;
    memcpy(name, label.text, (size_t)label.bytes);

    char   **names = (char **)c->names.at + rank;
    int64_t *numbers = (int64_t *)c->numbers.at + rank;
    memmove(names + 1, names, behind * sizeof *names);
    memmove(numbers + 1, numbers, behind * sizeof *numbers);
    *names = name;
    *numbers = number;
    c->names.n++;
    c->numbers.n++;
    return FOCI_OK;
}

/* Where the name of each class stands. */
static foci_status settle(foci_data *d)
{
    struct classes *c = &d->classes;

    TRY(vec_reserve(d->ctx, &c->ranks, c->names.n, sizeof(int64_t)));
    c->ranks.n = c->names.n;
    for (int64_t i = 0; i < c->names.n; i++)
        VEC(int64_t, &c->ranks, VEC(int64_t, &c->numbers, i)) = i;
    return FOCI_OK;
}

foci_status classes_take(foci_data *d)
{
    for (int64_t i = 0; i < d->o.n_classes; i++) {
        const char *name = d->o.classes[i];
        bool        there;

        if (!name || !*name)
            return ctx_fail(d->ctx, FOCI_ERR_ARG, "class %lld has no name",
                            (long long)i);
        const foci_string label = { name, (int64_t)strlen(name) };
        const int64_t     rank = rank_of(d, label, &there);
        if (there)
            return ctx_fail(d->ctx, FOCI_ERR_ARG, "class '%.40s' is given twice", name);
        TRY(insert(d, label, rank, i));
    }
    return settle(d);
}

foci_status classes_add(foci_data *d, const struct data_line *line, foci_string label)
{
    bool          there;
    const int64_t rank = rank_of(d, label, &there);

    if (there) return FOCI_OK;
    if (label.bytes > LABEL_MOST)
        return lines_fail(&d->lines[0], line,
                          "has a label of %lld bytes; labels have %d at most",
                          (long long)label.bytes, LABEL_MOST);
    if (memchr(label.text, 0, (size_t)label.bytes) ||
        !utf8_valid(label.text, label.bytes))
        return lines_fail(&d->lines[0], line, "has a label that is not UTF-8 text");
    if (d->classes.names.n == CLASSES_MOST)
        return lines_fail(&d->lines[0], line,
                          "has another label than %d before it; there are so many "
                          "classes at most",
                          CLASSES_MOST);
    return insert(d, label, rank, 0);
}

foci_status classes_number_all(foci_data *d)
{
    for (int64_t i = 0; i < d->classes.names.n; i++)
        VEC(int64_t, &d->classes.numbers, i) = i;
    return settle(d);
}

foci_status classes_count(foci_data *d, int64_t n)
{
    if (n > CLASSES_MOST)
        return ctx_fail(d->ctx, FOCI_ERR_ARG, "%lld classes: there are %d at most",
                        (long long)n, CLASSES_MOST);
    for (int64_t i = 0; i < n; i++) {
        char name[24];
        bool there;
        snprintf(name, sizeof name, "%lld", (long long)i);
        const foci_string label = { name, (int64_t)strlen(name) };
        TRY(insert(d, label, rank_of(d, label, &there), i));
    }
    return settle(d);
}

foci_status classes_find(foci_data *d, const struct data_line *line, foci_string label,
                         int32_t *answer)
{
    bool          there;
    const int64_t rank = rank_of(d, label, &there);

    if (!there)
        return lines_fail(
            &d->lines[0], line,
            "has the label '%.*s', which is none of the %lld classes that "
            "are known, '%.40s' and so on",
            (int)min64(label.bytes, 40), label.text, (long long)d->classes.names.n,
            name_at(d, 0));
    *answer = (int32_t)VEC(int64_t, &d->classes.numbers, rank);
    return FOCI_OK;
}

int64_t foci_data_class_count(const foci_data *d) { return d ? d->classes.ranks.n : 0; }

const char *foci_data_class(const foci_data *d, int64_t i)
{
    if (i < 0 || i >= foci_data_class_count(d)) return NULL;
    return name_at(d, VEC(int64_t, &d->classes.ranks, i));
}

void classes_free(foci_data *d)
{
    for (int64_t i = 0; i < d->classes.names.n; i++) {
        char *name = VEC(char *, &d->classes.names, i);
        ctx_free(d->ctx, name, strlen(name) + 1, 1);
    }
    vec_free(d->ctx, &d->classes.names);
    vec_free(d->ctx, &d->classes.numbers);
    vec_free(d->ctx, &d->classes.ranks);
}
