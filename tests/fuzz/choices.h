/* choices.h -- inputs read as choices, one byte after the other, zeros beyond the end;
 * and specs drawn that way. */
#ifndef FOCI_FUZZ_CHOICES_H
#define FOCI_FUZZ_CHOICES_H

#include <math.h>

#include "fuzz/fuzz.h"
#include "support/trial.h"

struct choices {
    const uint8_t *at, *end;
};

/* 0 to n - 1. */
static inline int64_t below(struct choices *c, int64_t n)
{
    return n > 0 && c->at < c->end ? *c->at++ % n : 0;
}

static inline bool chance(struct choices *c, int64_t in)
{
    return below(c, in) == in - 1;
}

/* Near to 0, to the end of a range, or anything. */
static inline int64_t draw_any(struct choices *c, int64_t usual)
{
    switch (below(c, 8)) {
    case 0: return below(c, 256) - 128;
    case 1: return INT64_MAX - below(c, 3);
    case 2: return INT64_MIN + below(c, 3);
    case 3: return (INT64_C(1) << below(c, 63)) - below(c, 3);
    default: return usual;
    }
}

/* A context of one of the CPU levels. */
static inline foci_ctx *draw_level(struct choices *c)
{
    static struct levels levels;
    if (!levels.n) levels = levels_make(1);
    return levels.ctx[below(c, levels.n)];
}

static inline void put_args(struct choices *c, char *spec, const foci_arg_def *args,
                            size_t n)
{
    const char *sep = "(";

    for (size_t i = 0; i < n; i++) {
        const foci_arg_def *a = &args[i];
        const size_t        used = strlen(spec);
        if (a->mech || a->choices || (!isnan(a->preset) && !chance(c, 2))) continue;
        const double whole =
            a->min + (double)below(c, (int64_t)fmin(a->max - a->min, 40) + 1);
        const double real =
            fmin(fmax(0.3 + (double)below(c, 256) / 128, a->min), a->max);
        snprintf(spec + used, SPEC_CAP - used, "%s%s=%.9g", sep, a->name,
                 a->real ? real : whole);
        sep = ", ";
    }
    if (*sep == ',') strncat(spec, ")", SPEC_CAP - strlen(spec) - 1);
}

static inline bool parses(foci_ctx *ctx, const char *text)
{
    struct spec spec;
    if (spec_parse(ctx, text, &spec) != FOCI_OK) return false;
    spec_free(ctx, &spec);
    return true;
}

/* A mechanism with up to three modifiers; those it does not take are left out. */
static inline void put_mech(foci_ctx *ctx, struct choices *c, char *spec)
{
    int n_mechs = 0, n_mods = 0;
    while (foci_mechanism(ctx, n_mechs))
        n_mechs++;
    while (foci_modifier(ctx, n_mods))
        n_mods++;

    const foci_mech_def *mech = foci_mechanism(ctx, (int)below(c, n_mechs));
    strncat(spec, mech->name, SPEC_CAP - strlen(spec) - 1);
    put_args(c, spec, mech->args, mech->n_args);
    for (int64_t i = below(c, 4); i > 0; i--) {
        const size_t        used = strlen(spec);
        const foci_mod_def *mod = foci_modifier(ctx, (int)below(c, n_mods));
        snprintf(spec + used, SPEC_CAP - used, " %s", mod->name);
        put_args(c, spec, mod->args, mod->n_args);
        if (!parses(ctx, spec)) spec[used] = 0;
    }
}

#endif
