/* spec_print.c -- a spec as text, every argument spelled out. */
#include <assert.h>
#include <limits.h>
#include <stdio.h>

#include "plan/spec.h"

/* Writes what fits and counts the rest, as snprintf does. */
struct print_out {
    char  *text;
    size_t cap, len;
};

static void emit(struct print_out *out, const char *format, ...) PRINTF_LIKE(2, 3);

static void emit(struct print_out *out, const char *format, ...)
{
    const size_t left = out->len < out->cap ? out->cap - out->len : 0;
    va_list      args;
    va_start(args, format);
    const int n = vsnprintf(left ? out->text + out->len : NULL, left, format, args);
    va_end(args);
    if (n > 0) out->len += (size_t)n;
}

static void print_mech(struct print_out *out, const foci_mech *m);

static void print_args(struct print_out *out, const foci_arg_def *args, size_t n_args,
                       const double *arg, const foci_mech *inner)
{
    for (size_t i = 0; i < n_args; i++) {
        struct text_span word;
        emit(out, "%s%s=", i ? ", " : "(", args[i].name);
        if (args[i].mech) {
            assert(inner); /* modifiers take no mechanisms */
            print_mech(out, inner);
        } else if (args[i].choices && word_at(args[i].choices, (int)arg[i], &word)) {
            emit(out, "%.*s", (int)word.len, word.s);
        } else if (args[i].preset_word && arg[i] == args[i].preset) {
            emit(out, "%s", args[i].preset_word);
        } else {
            char number[32];
            number_print(arg[i], number);
            emit(out, "%s", number);
        }
    }
    if (n_args) emit(out, ")");
}

static void print_mech(struct print_out *out, const foci_mech *m)
{
    emit(out, "%s", m->def->name);
    print_args(out, m->def->args, m->def->n_args, m->arg, m->inner);
    for (size_t i = 0; i < m->n_mods; i++) {
        const foci_mod *mod = &m->mods[i];
        emit(out, " %s", mod->def->name);
        print_args(out, mod->def->args, mod->def->n_args, mod->arg, NULL);
    }
}

int spec_print(const struct spec *spec, char *text, size_t cap)
{
    struct print_out out = { text, cap, 0 };
    if (cap) *text = 0;
    for (int i = 0; i < spec->n_groups; i++) {
        const struct plan_group *g = &spec->groups[i];
        if (i) emit(&out, " + ");
        if (g->heads) emit(&out, "%lld*", (long long)g->heads);
        print_mech(&out, &g->mech);
    }
    return out.len < INT_MAX ? (int)out.len : INT_MAX;
}

int foci_plan_spec(const foci_plan *plan, char *text, size_t cap)
{
    return spec_print(&plan->spec, text, cap);
}
