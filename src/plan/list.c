/* list.c -- the lists of mechanisms, modifiers and aliases. */
#include "plan/plan.h"

#include "mech/mech.h"

const foci_mech_def *const mech_list[] = {
#define MECH(name) &mech_##name,
#define MODIFIER(name)
#include "mech/mechanisms.def"
#undef MECH
#undef MODIFIER
    NULL,
};

const foci_mod_def *const mod_list[] = {
#define MECH(name)
#define MODIFIER(name) &mod_##name,
#include "mech/mechanisms.def"
#undef MECH
#undef MODIFIER
    NULL,
};

static const struct {
    const char *text, *meaning;
} aliases[] = {
    { "orthogonal", "softmax frozen(orthogonal)" },
    { "7F+1L", "7*fixed + 1*softmax" },
    { "7F_token+1L", "7*fixed + 1*softmax" },
    { "7F_word+1L", "7*fixed(words=1) + 1*softmax" },
    { "8L", "8*softmax" },
    { "1L", "1*softmax" },
};

int foci_mechanism_count(const foci_ctx *ctx)
{
    return (int)N_ELEMENTS(mech_list) - 1 + (ctx ? ctx->n_own : 0);
}

int foci_modifier_count(const foci_ctx *ctx)
{
    (void)ctx;
    return N_MODS;
}

int foci_alias_count(void) { return (int)N_ELEMENTS(aliases); }

const foci_mech_def *foci_mechanism(const foci_ctx *ctx, int i)
{
    const int n = (int)N_ELEMENTS(mech_list) - 1;
    if (i < 0) return NULL;
    if (i < n) return mech_list[i];
    return ctx && i - n < ctx->n_own ? ctx->own[i - n] : NULL;
}

const foci_mod_def *foci_modifier(const foci_ctx *ctx, int i)
{
    (void)ctx;
    return i >= 0 && i < N_MODS ? mod_list[i] : NULL;
}

const char *foci_alias(int i, const char **meaning)
{
    if (i < 0 || i >= (int)N_ELEMENTS(aliases)) return NULL;
    if (meaning) *meaning = aliases[i].meaning;
    return aliases[i].text;
}
