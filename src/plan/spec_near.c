/* spec_near.c -- what a name that is not known may have meant: the nearest of those that are,
 * unless it is far off, or what the literature calls so (papers.def). */
#include <stdio.h>
#include <string.h>

#include "mech/mech.h"
#include "plan/spec.h"

enum { EDIT_MAX = 32 }; /* longer words differ anyway */

static int min3(int a, int b, int c)
{
    const int m = a < b ? a : b;
    return m < c ? m : c;
}

static char small(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* The part of a word that is compared. */
static int compared(struct text_span a)
{
    return (int)(a.len < EDIT_MAX ? a.len : EDIT_MAX);
}

/* Levenshtein's distance; capitals are no mistake. */
static int edits(struct text_span a, struct text_span b)
{
    const int m = compared(a), n = compared(b);
    int       row[EDIT_MAX + 1] = { 0 };

    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; i <= m; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            const int change = corner + (small(a.s[i - 1]) != small(b.s[j - 1]));
            corner = row[j];
            row[j] = min3(change, row[j] + 1, row[j - 1] + 1);
        }
    }
    return row[n];
}

static struct text_span span(const char *text)
{
    return (struct text_span){ text, strlen(text) };
}

static bool begins_with(struct text_span a, struct text_span b)
{
    for (size_t i = 0; i < b.len; i++)
        if (i == a.len || small(a.s[i]) != small(b.s[i])) return false;
    return true;
}

/* Up to a third of the letters may be wrong, but not all; -1: more are.  The beginning of a name is near
 * as well, and a name with more behind it is what the word is nearest to. */
static int distance(struct text_span word, struct text_span name)
{
    enum { WORD_LEAST = 3, NAME_LEAST = 4 };
    const int d = edits(word, name);

    if (d > 1 && word.len >= WORD_LEAST && begins_with(name, word)) return 1;
    if (name.len >= NAME_LEAST && begins_with(word, name)) return d;
    const bool far = d > ((int)name.len + 2) / 3 || d >= (int)name.len;
    return d && far ? -1 : d;
}

int foci_name_distance(const char *word, const char *name)
{
    return word && name ? distance(span(word), span(name)) : -1;
}

void nearest_offer(struct nearest *n, struct text_span name)
{
    const int d = distance(n->word, name);

    if (d < 0 || (n->name.s && d >= n->edits)) return;
    n->name = name;
    n->edits = d;
}

void nearest_offer_text(struct nearest *n, const char *name)
{
    nearest_offer(n, span(name));
}

struct near_hint nearest_hint(const struct nearest *n, const char *otherwise)
{
    struct near_hint h;

    if (n->name.s)
        snprintf(h.text, sizeof h.text, "; the nearest is %s", span_quote(n->name).text);
    else
        snprintf(h.text, sizeof h.text, "%s", otherwise);
    return h;
}

/*
 * Papers
 */

static const struct paper {
    const char *name;
    const char *spec; /* NULL: there is none, and `how` says why */
    const char *how;  /* the spec differs; NULL: it does not */
} papers[] = {
#define SAME(name, spec)      { name, spec, NULL },
#define LIKE(name, spec, how) { name, spec, how },
#define NONE(name, why)       { name, NULL, why },
#include "plan/papers.def"
#undef SAME
#undef LIKE
#undef NONE
};

static const char *skip_lines(const char *s, const char *end)
{
    while (s < end && *s == '_')
        s++;
    return s;
}

/* The rest of the word behind the name, whatever the capitals and underscores; NULL: it
 * begins in another way. */
static const char *rest_behind(const char *s, const char *end, const char *name)
{
    for (; *name; name++) {
        if (*name == '_') continue;
        s = skip_lines(s, end);
        if (s == end || small(*s) != *name) return NULL;
        s++;
    }
    return skip_lines(s, end);
}

static bool is_called(struct text_span word, const char *name)
{
    static const char *const endings[] = { "attention", "attn", "transformer", "" };
    const char *const        end = word.s + word.len;
    const char *const        rest = rest_behind(word.s, end, name);

    for (size_t i = 0; rest && i < N_ELEMENTS(endings); i++) {
        const char *s = rest_behind(rest, end, endings[i]);
        while (s && s < end && *s >= '0' && *s <= '9')
            s++;
        if (s == end) return true;
    }
    return false;
}

static const struct paper *find_paper(struct text_span word)
{
    for (size_t i = 0; i < N_ELEMENTS(papers); i++)
        if (is_called(word, papers[i].name)) return &papers[i];
    return NULL;
}

static struct near_hint tell_paper(const struct paper *p)
{
    struct near_hint h;

    if (!p->how)
        snprintf(h.text, sizeof h.text, "; it is \"%s\" here", p->spec);
    else if (p->spec)
        snprintf(h.text, sizeof h.text, "; the nearest is \"%s\", which %s", p->spec,
                 p->how);
    else
        snprintf(h.text, sizeof h.text, "; %s", p->how);
    return h;
}

struct near_hint paper_hint(struct nearest *n, const char *otherwise)
{
    const struct paper *p = find_paper(n->word);
    struct near_hint    h;

    if (p) return tell_paper(p);
    for (size_t i = 0; i < N_ELEMENTS(papers); i++)
        if (!papers[i].how) nearest_offer_text(n, papers[i].name);
    if (!n->name.s || !(p = find_paper(n->name))) return nearest_hint(n, otherwise);
    snprintf(h.text, sizeof h.text, "; the nearest is %s, which is \"%s\" here",
             span_quote(n->name).text, p->spec);
    return h;
}

int foci_name_hint(const foci_ctx *ctx, const char *word, char *out, size_t cap)
{
    struct nearest       near = { .word = span(word ? word : "") };
    const foci_mech_def *mech;
    const foci_mod_def  *mod;
    const char          *alias;

    for (int i = 0; (mech = foci_mechanism(ctx, i)); i++)
        nearest_offer_text(&near, mech->name);
    for (int i = 0; (mod = foci_modifier(ctx, i)); i++)
        nearest_offer_text(&near, mod->name);
    for (int i = 0; (alias = foci_alias(i, NULL)); i++)
        nearest_offer_text(&near, alias);
    return snprintf(out, cap, "%s", paper_hint(&near, "").text);
}
