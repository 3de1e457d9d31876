/* spec_args.c -- arguments of mechanisms and modifiers: finding them by name or place, and
 * checking their values. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/spec.h"

/* The value at r->at: to the next comma or closing parenthesis of its own level. */
static struct text_span value_span(const struct spec_reader *r)
{
    const char *s = r->at;
    for (int level = 0; s < r->end; s++) {
        if (*s == '(') level++;
        if (level == 0 && (*s == ',' || *s == ')')) break;
        if (*s == ')') level--;
    }
    struct text_span v = { r->at, (size_t)(s - r->at) };
    while (v.len && strchr(" \t\r\n", v.s[v.len - 1]))
        v.len--;
    return v;
}

static foci_status bad_word(const struct spec_reader *r, const struct owner *o,
                            const foci_arg_def *a, struct text_span v)
{
    struct nearest   near = { .word = v };
    struct text_span word;
    char             all[200] = "";
    size_t           len = 0;

    for (int i = 0; word_at(a->choices, i, &word); i++) {
        nearest_offer(&near, word);
        if (len < sizeof all)
            len += (size_t)snprintf(all + len, sizeof all - len, "%s%.*s",
                                    i ? ", " : "", (int)word.len, word.s);
    }
    return reader_fail(r, v.s, "%s=%s: %s takes %s%s", a->name, span_bare(v).text,
                       o->name, all, nearest_hint(&near, "").text);
}

static foci_status read_word(const struct spec_reader *r, const struct owner *o,
                             const foci_arg_def *a, struct text_span v, double *out)
{
    struct text_span word;
    for (int i = 0; word_at(a->choices, i, &word); i++) {
        if (word.len != v.len || memcmp(word.s, v.s, v.len) != 0) continue;
        *out = i;
        return FOCI_OK;
    }
    return bad_word(r, o, a, v);
}

static foci_status read_number(const struct spec_reader *r, const struct owner *o,
                               const foci_arg_def *a, struct text_span v, double *out)
{
    double      x;
    const char *kind = a->real ? "a number, " : "a whole number, ";

    if (a->preset_word && span_is(v, a->preset_word)) {
        *out = a->preset;
        return FOCI_OK;
    }
    if (number_parse(v, &x) && (a->real || x == floor(x))) kind = "";
    if (*kind || x < a->min || x > a->max) {
        char min[32], max[32];
        number_print(a->min, min);
        number_print(a->max, max);
        return reader_fail(r, v.s, "%s=%s: %s takes %s%s%s%s to %s", a->name,
                           span_bare(v).text, o->name,
                           a->preset_word ? a->preset_word : "",
                           a->preset_word ? ", or " : "", kind, min, max);
    }
    *out = x;
    return FOCI_OK;
}

/* A mechanism as the value. */
static foci_status read_inner(struct spec_reader *r, const struct owner *o)
{
    foci_mech *inner = ctx_alloc(r->ctx, 1, sizeof *inner);
    if (!inner) return FOCI_ERR_MEMORY;
    o->mech->inner = inner; /* freed with its owner, half made or not */
    return reader_mech(r, inner, o->depth + 1);
}

static foci_status read_preset_inner(const struct spec_reader *r, const struct owner *o,
                                     const foci_arg_def *a)
{
    const char        *text = a->choices ? a->choices : mech_list[0]->name;
    char               label[120];
    struct spec_reader preset = { r->ctx, text, text, text + strlen(text), label };

    snprintf(label, sizeof label, "%s of %s is \"%.40s\" unless given: ", a->name,
             o->name, text);
    TRY(read_inner(&preset, o));
    reader_blanks(&preset);
    return preset.at == preset.end
               ? FOCI_OK
               : reader_fail(&preset, preset.at, "the mechanism should end here");
}

/* The arguments of a list that have been read so far. */
struct list {
    unsigned given;      /* a bit for each argument */
    size_t   positional; /* values without a name, which all come first */
    bool     named;
};

/* The argument that a value without a name gives: the next by position, as in Python. */
static foci_status positional(const struct spec_reader *r, const struct owner *o,
                              struct list *list, size_t *which)
{
    if (list->named)
        return reader_fail(r, r->at,
                           "%s has no name, but follows an argument with one; "
                           "write NAME=%s, or put it first",
                           span_quote(value_span(r)).text,
                           span_bare(value_span(r)).text);
    if (list->positional == o->n_args)
        return reader_fail(r, r->at, "%s takes %zu argument%s at most", o->name,
                           o->n_args, o->n_args == 1 ? "" : "s");
    *which = list->positional++;
    return FOCI_OK;
}

static foci_status unknown_arg(const struct spec_reader *r, struct text_span name,
                               const struct owner *o)
{
    struct nearest near = { .word = name };
    char           all[200] = "";
    size_t         len = 0;

    for (size_t i = 0; i < o->n_args; i++) {
        nearest_offer_text(&near, o->args[i].name);
        if (len < sizeof all)
            len += (size_t)snprintf(all + len, sizeof all - len, "%s%s",
                                    i ? ", " : "; it takes ", o->args[i].name);
    }
    return reader_fail(r, name.s, "unknown argument %s of %s%s", span_quote(name).text,
                       o->name, nearest_hint(&near, all).text);
}

/* Finds the argument that "name =" at r->at names, and moves past it; a value without a
 * name goes by its position. */
static foci_status read_which(struct spec_reader *r, const struct owner *o,
                              struct list *list, size_t *which)
{
    const char            *start = r->at;
    const struct text_span name = reader_name(r);
    reader_blanks(r);

    if (!name.len || r->at == r->end || *r->at != '=') {
        r->at = start;
        return positional(r, o, list, which);
    }
    r->at++;
    list->named = true;
    for (size_t i = 0; i < o->n_args; i++)
        if (span_is(name, o->args[i].name)) {
            *which = i;
            return FOCI_OK;
        }
    return unknown_arg(r, name, o);
}

static foci_status read_arg(struct spec_reader *r, const struct owner *o,
                            struct list *list)
{
    reader_blanks(r);
    const char *start = r->at;
    size_t      which = 0;
    if (!value_span(r).len)
        return reader_fail(r, start, "an argument of %s is missing here", o->name);
    TRY(read_which(r, o, list, &which));

    const foci_arg_def *a = &o->args[which];
    if (list->given >> which & 1)
        return reader_fail(r, start, "%s of %s is given twice", a->name, o->name);
    list->given |= 1u << which;

    reader_blanks(r);
    const struct text_span v = value_span(r);
    if (!v.len) return reader_fail(r, r->at, "%s of %s has no value", a->name, o->name);
    if (a->mech) {
        TRY(read_inner(r, o));
        reader_blanks(r);
        if (r->at == r->end || (*r->at != ',' && *r->at != ')'))
            return reader_fail(r, r->at,
                               "\",\" or \")\" is wanted after the mechanism in %s",
                               a->name);
        return FOCI_OK;
    }
    r->at = v.s + v.len;
    reader_blanks(r);
    return a->choices ? read_word(r, o, a, v, &o->arg[which])
                      : read_number(r, o, a, v, &o->arg[which]);
}

static bool is_closed(const struct spec_reader *r)
{
    int level = 0;
    for (const char *s = r->at; s < r->end; s++) {
        level += (*s == '(') - (*s == ')');
        if (level == 0) return true;
    }
    return false;
}

static foci_status read_list(struct spec_reader *r, const struct owner *o,
                             struct list *list)
{
    if (!is_closed(r)) return reader_fail(r, r->at, "this \"(\" has no \")\"");
    if (!o->n_args) return reader_fail(r, r->at, "%s takes no arguments", o->name);
    do {
        r->at++;
        TRY(read_arg(r, o, list));
    } while (*r->at == ',');
    r->at++;
    return FOCI_OK;
}

foci_status reader_args(struct spec_reader *r, const char *at, const struct owner *o)
{
    struct list list = { 0 };

    for (size_t i = 0; i < o->n_args; i++)
        o->arg[i] = o->args[i].preset;
    reader_blanks(r);
    if (r->at < r->end && *r->at == '(') TRY(read_list(r, o, &list));

    for (size_t i = 0; i < o->n_args; i++) {
        const foci_arg_def *a = &o->args[i];
        if (list.given >> i & 1) continue;
        if (a->mech)
            TRY(read_preset_inner(r, o, a));
        else if (isnan(a->preset))
            return reader_fail(r, at, "%s needs its argument %s: write %s(%s=...)",
                               o->name, a->name, o->name, a->name);
    }
    return FOCI_OK;
}
