/* map_label.c -- the part of a spec that belongs to a head. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/map.h"

struct label_part {
    const char *text; /* without its count */
    int         len;
    int64_t     count; /* -1: none given */
};

static const char *skip_blanks(const char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    return s;
}

/* Read a part and step over the + behind it; false at the end of the spec.  A + inside
 * parentheses belongs to a word. */
static bool next(const char **spec, struct label_part *p)
{
    const char *s = skip_blanks(*spec), *end = s;
    int         depth = 0;

    if (!*s) return false;
    for (; *end && (*end != '+' || depth > 0); end++)
        depth += (*end == '(') - (*end == ')');
    *spec = *end ? end + 1 : end;

    *p = (struct label_part){ .count = -1 };
    if (isdigit((unsigned char)*s)) {
        char         *after;
        const int64_t count = strtoll(s, &after, 10);
        after += strspn(after, " \t\n");
        if (*after == '*') {
            p->count = count;
            s = skip_blanks(after + 1);
        }
    }
    while (end > s && isspace((unsigned char)end[-1]))
        end--;
    p->text = s;
    p->len = (int)(end - s);
    return true;
}

/* The heads that the part without a count takes; -1: the counts do not add up. */
static int64_t rest(const char *spec, int64_t heads)
{
    struct label_part p;
    int64_t           sum = 0;
    int               open = 0;

    while (next(&spec, &p)) {
        sum += p.count > 0 ? p.count : 0;
        open += p.count < 0;
    }
    return open > 1 || sum > heads || (!open && sum < heads) ? -1 : heads - sum;
}

char **map_labels(const char *written, const char *full, int64_t heads)
{
    const char       *spec = rest(written, heads) < 0 ? full : written;
    const int64_t     open = rest(spec, heads);
    char            **labels = need((size_t)heads, sizeof *labels);
    int64_t           h = 0;
    struct label_part p;

    while (next(&spec, &p))
        for (int64_t n = p.count < 0 ? open : p.count; n > 0 && h < heads; n--, h++) {
            labels[h] = need((size_t)p.len + 1, 1);
            memcpy(labels[h], p.text, (size_t)p.len);
        }
    return labels;
}
