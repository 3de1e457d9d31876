/* map_label.c -- the part of a spec that belongs to a head. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/map.h"
#include "foci/mechanism.h"

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

/* The fixed pattern of head number `head` of its group; NULL: it has none. */
static const char *pattern_of(const foci_mech *mech, int64_t head)
{
    static const char *const names[] = {
        [FOCI_PATTERN_CURRENT] = "current", [FOCI_PATTERN_PREVIOUS] = "previous",
        [FOCI_PATTERN_NEXT] = "next",       [FOCI_PATTERN_LEFT] = "left",
        [FOCI_PATTERN_RIGHT] = "right",     [FOCI_PATTERN_END] = "end",
        [FOCI_PATTERN_START] = "start",
    };
    foci_positional p = { .width = 0 };

    if (!mech->def->positional) return NULL;
    mech->def->positional(mech, head, &p);
    return (size_t)p.pattern < sizeof names / sizeof *names ? names[p.pattern] : NULL;
}

static void label_head(const foci_mech *mech, int64_t head, char **label)
{
    const char *name = mech->def->name, *pattern = pattern_of(mech, head);

    if (*label && (!pattern || strstr(*label, pattern))) return;
    free(*label);
    const size_t bytes = strlen(name) + (pattern ? strlen(pattern) + 2 : 0) + 1;
    *label = need(bytes, 1);
    snprintf(*label, bytes, "%s%s%s", name, pattern ? ": " : "", pattern ? pattern : "");
}

char **map_label_heads(const foci_plan *plan, int64_t heads, char **labels)
{
    foci_group g = { FOCI_SIZED(foci_group) };

    if (!labels) labels = need((size_t)heads, sizeof *labels);
    for (int i = 0; i < foci_plan_group_count(plan); i++) {
        if (foci_plan_group(plan, i, &g)) continue;
        for (int64_t h = 0; h < g.heads && g.head0 + h < heads; h++)
            label_head(g.mech, h, &labels[g.head0 + h]);
    }
    return labels;
}
