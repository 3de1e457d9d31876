/* spec_parse.c -- from the text of a spec to groups of heads (docs/specs.md).
 *
 *     spec      = group { "+" group }
 *     group     = [ count "*" ] mechanism { modifier }
 *     mechanism = name [ "(" arg { "," arg } ")" ]
 *     modifier  = name [ "(" arg { "," arg } ")" ]
 *     arg       = [ name "=" ] value
 *
 * Recursive descent, one function a rule.  Whatever was allocated hangs on the
 * spec, so that spec_free() clears up after any failure.
 */
#include <stdio.h>
#include <string.h>

#include "mech/mech.h"
#include "plan/spec.h"

foci_status reader_fail(const struct spec_reader *r, const char *at, const char *format,
                        ...)
{
    char    text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ctx_fail(r->ctx, FOCI_ERR_SPEC, "%scolumn %d: %s", r->label,
                    (int)(at - r->text) + 1, text);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

void reader_blanks(struct spec_reader *r)
{
    while (r->at < r->end && is_blank(*r->at))
        r->at++;
}

struct text_span reader_name(struct spec_reader *r)
{
    const char *start = r->at;
    if (r->at < r->end && is_letter(*r->at))
        while (r->at < r->end && (is_letter(*r->at) || is_digit(*r->at)))
            r->at++;
    return (struct text_span){ start, (size_t)(r->at - start) };
}

/* Finding names */

static const foci_mech_def *find_mech(const foci_ctx *ctx, struct text_span name)
{
    const foci_mech_def *def;
    for (int i = 0; (def = foci_mechanism(ctx, i)) && !span_is(name, def->name);)
        i++;
    return def;
}

static const foci_mod_def *find_mod(const foci_ctx *ctx, struct text_span name)
{
    const foci_mod_def *def;
    for (int i = 0; (def = foci_modifier(ctx, i)) && !span_is(name, def->name);)
        i++;
    return def;
}

static const char list_names[] = "; \"foci list\" names all there are";

static foci_status unknown_mech(const struct spec_reader *r, struct text_span name)
{
    struct nearest       near = { .word = name };
    const foci_mech_def *def;
    const char          *alias, *meaning;

    for (int i = 0; (def = foci_mechanism(r->ctx, i)); i++)
        nearest_offer_text(&near, def->name);
    for (int i = 0; (alias = foci_alias(i, &meaning)); i++) {
        if (span_is(name, alias))
            return reader_fail(r, name.s,
                               "\"%s\" stands for a whole spec; write \"%s\" here",
                               alias, meaning);
        nearest_offer_text(&near, alias);
    }
    if (find_mod(r->ctx, name))
        return reader_fail(r, name.s, "%s is a modifier; it follows a mechanism",
                           span_quote(name).text);
    return reader_fail(r, name.s, "unknown mechanism %s%s", span_quote(name).text,
                       paper_hint(&near, list_names).text);
}

static foci_status unknown_mod(const struct spec_reader *r, struct text_span name)
{
    struct nearest      near = { .word = name };
    const foci_mod_def *def;

    if (find_mech(r->ctx, name))
        return reader_fail(r, name.s, "%s is a mechanism; \"+\" joins groups of heads",
                           span_quote(name).text);
    for (int i = 0; (def = foci_modifier(r->ctx, i)); i++)
        nearest_offer_text(&near, def->name);
    return reader_fail(r, name.s, "unknown modifier %s%s", span_quote(name).text,
                       paper_hint(&near, list_names).text);
}

/* Modifiers */

/* The effect that two modifiers of one mechanism have in common and must not; NULL: none. */
static const char *conflict(const foci_mod_def *a, const foci_mod_def *b)
{
    const unsigned scales = FOCI_MOD_SCALE | FOCI_MOD_UNIT;
    const unsigned layers = FOCI_MOD_FROZEN | FOCI_MOD_INIT;
    if ((a->does & scales) && (b->does & scales)) return "set the scale of the logits";
    if (a->does & b->does & FOCI_MOD_CAP) return "cap the logits";
    if (a->does & b->does & FOCI_MOD_ROPE) return "rotate queries and keys";
    if (a->does & b->does & FOCI_MOD_SLOPE) return "fall off with the distance";
    if (a->does & b->does & FOCI_MOD_SINK) return "add to the sum of weights";
    if ((a->does & layers) && (b->does & layers)) return "say how projections start";
    return NULL;
}

static foci_status check_mod(const struct spec_reader *r, const char *at,
                             const foci_mech *m, const foci_mod *mods, size_t n)
{
    const foci_mod_def *def = mods[n].def;
    for (size_t i = 0; i < n; i++) {
        const foci_mod_def *other = mods[i].def;
        if (other == def) return reader_fail(r, at, "%s is given twice", def->name);
        const char *both = conflict(other, def);
        if (both)
            return reader_fail(r, at, "%s contradicts %s: both %s", def->name,
                               other->name, both);
    }
    const char *reason = def->refuse ? def->refuse(m) : NULL;
    if (reason)
        return reader_fail(r, at, "%s cannot follow %s: %s", def->name, m->def->name,
                           reason);
    return FOCI_OK;
}

static foci_status read_mods(struct spec_reader *r, foci_mech *m, int depth)
{
    foci_mod mods[N_MODS + 1]; /* none comes twice; one more to say so */
    size_t   n = 0;

    for (;; n++) {
        reader_blanks(r);
        const struct text_span name = reader_name(r);
        if (!name.len) break;

        memset(&mods[n], 0, sizeof mods[n]);
        mods[n].def = find_mod(r->ctx, name);
        if (!mods[n].def) return unknown_mod(r, name);
        TRY(check_mod(r, name.s, m, mods, n));

        const foci_mod_def *def = mods[n].def;
        const struct owner  owner = { def->name,   def->args, def->n_args,
                                      mods[n].arg, NULL,      depth };
        TRY(reader_args(r, name.s, &owner));
    }
    if (!n) return FOCI_OK;
    foci_mod *kept = ctx_alloc(r->ctx, n, sizeof *kept);
    if (!kept) return FOCI_ERR_MEMORY;
    memcpy(kept, mods, n * sizeof *kept);
    m->mods = kept;
    m->n_mods = n;
    return FOCI_OK;
}

/* Mechanisms and groups */

foci_status reader_mech(struct spec_reader *r, foci_mech *m, int depth)
{
    reader_blanks(r);
    const struct text_span name = reader_name(r);
    if (!name.len)
        return reader_fail(r, name.s,
                           "a mechanism is wanted here, softmax for instance");
    if (depth > SPEC_DEPTH)
        return reader_fail(r, name.s, "mechanisms are nested more than %d deep",
                           SPEC_DEPTH);

    m->def = find_mech(r->ctx, name);
    if (!m->def) return unknown_mech(r, name);

    const struct owner owner = { m->def->name, m->def->args, m->def->n_args, m->arg, m,
                                 depth };
    TRY(reader_args(r, name.s, &owner));
    return read_mods(r, m, depth);
}

static foci_status read_count(struct spec_reader *r, int64_t *count)
{
    const char *start = r->at;
    int64_t     n = 0;
    for (; r->at < r->end && is_digit(*r->at); r->at++)
        if (n <= INT32_MAX) n = 10 * n + (*r->at - '0');
    const struct text_span text = { start, (size_t)(r->at - start) };
    if (n < 1 || n > INT32_MAX)
        return reader_fail(r, start, "%s heads: a group has 1 to %d",
                           span_quote(text).text, INT32_MAX);
    reader_blanks(r);
    if (r->at == r->end || *r->at != '*')
        return reader_fail(r, r->at, "\"*\" is wanted after the count %s",
                           span_quote(text).text);
    r->at++;
    *count = n;
    return FOCI_OK;
}

static foci_status read_group(struct spec_reader *r, struct plan_group *g)
{
    reader_blanks(r);
    g->column = (int)(r->at - r->text) + 1;
    if (r->at < r->end && is_digit(*r->at)) TRY(read_count(r, &g->heads));
    TRY(reader_mech(r, &g->mech, 1));

    g->mod_param = ctx_alloc(r->ctx, g->mech.n_mods, sizeof *g->mod_param);
    if (!g->mod_param) return FOCI_ERR_MEMORY;
    if (!g->mech.inner) return FOCI_OK;
    g->inner_mod = ctx_alloc(r->ctx, g->mech.inner->n_mods, sizeof *g->inner_mod);
    return g->inner_mod ? FOCI_OK : FOCI_ERR_MEMORY;
}

static foci_status read_join(struct spec_reader *r, bool last)
{
    reader_blanks(r);
    if (r->at == r->end) return FOCI_OK; /* the last group: none but it ends here */
    if (!last && *r->at == '+') {
        r->at++;
        return FOCI_OK;
    }
    const struct text_span rest = { r->at, (size_t)(r->end - r->at) };
    if (*r->at == ')') return reader_fail(r, r->at, "this \")\" has no \"(\"");
    return reader_fail(r, r->at, "%s is not expected; \"+\" joins groups of heads",
                       span_quote(rest).text);
}

/* Plus signs outside of parentheses, and one. */
static int count_groups(const struct spec_reader *r)
{
    int n = 1, level = 0;
    for (const char *s = r->at; s < r->end; s++) {
        level += (*s == '(') - (*s == ')');
        n += *s == '+' && level == 0;
    }
    return n;
}

static foci_status read_spec(struct spec_reader *r, struct spec *spec)
{
    const int n = count_groups(r);
    if (n > SPEC_GROUPS)
        return ctx_fail(r->ctx, FOCI_ERR_SPEC, "%d groups: a spec has %d at most", n,
                        SPEC_GROUPS);
    spec->groups = ctx_alloc(r->ctx, (size_t)n, sizeof *spec->groups);
    if (!spec->groups) return FOCI_ERR_MEMORY;
    spec->n_groups = n;

    const struct plan_group *open = NULL;
    for (int i = 0; i < n; i++) {
        struct plan_group *g = &spec->groups[i];
        TRY(read_group(r, g));
        TRY(read_join(r, i == n - 1));
        if (g->heads) continue;
        if (open)
            return reader_fail(r, r->text + g->column - 1,
                               "%s has no count, nor has %s at column %d; one group at "
                               "most may take the remaining heads",
                               g->mech.def->name, open->mech.def->name, open->column);
        open = g;
    }
    if (spec_print(spec, NULL, 0) >
        SPEC_MAX - 32) /* room for the count of an open group */
        return ctx_fail(
            r->ctx, FOCI_ERR_SPEC,
            "with its arguments spelled out the spec has more than %d characters",
            SPEC_MAX);
    return FOCI_OK;
}

/* Whether the text is the alias, which has no blanks, but for blanks. */
static bool is_alias(const char *text, const char *alias)
{
    for (;; text++, alias++) {
        while (is_blank(*text))
            text++;
        if (*text != *alias) return false;
        if (!*text) return true;
    }
}

foci_status spec_parse(foci_ctx *ctx, const char *text, struct spec *spec)
{
    *spec = (struct spec){ 0 };
    if (!text) return ctx_fail(ctx, FOCI_ERR_ARG, "no spec is given");
    if (!memchr(text, 0, SPEC_MAX + 1))
        return ctx_fail(ctx, FOCI_ERR_SPEC, "the spec has more than %d characters",
                        SPEC_MAX);

    const char *alias, *meaning;
    for (int i = 0; (alias = foci_alias(i, &meaning)); i++)
        if (is_alias(text, alias)) {
            text = meaning;
            break;
        }
    struct spec_reader r = { ctx, text, text, text + strlen(text), "" };
    const foci_status  status = read_spec(&r, spec);
    if (status) spec_free(ctx, spec);
    return status;
}
