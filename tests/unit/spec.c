/* spec.c -- specs: what is read, what is printed, what is refused and in which
 * words. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/spec.h"
#include "support/ledger.h"

/* Mechanisms with the kinds of argument that the built-in ones lack. */

static const foci_arg_def pick_args[] = {
    { .name = "kind",
      .choices = "favor+|favor++|random+dense|1",
      .preset = 1,
      .help = "" },
    { .name = "width", .preset = 0.1, .min = -2.5, .max = 1e300, .real = true, .help = "" },
    { .name = "big", .preset = 0x1p53, .max = 0x1p53, .help = "" },
};

static const foci_arg_def nest_args[] = {
    { .name = "inner", .mech = true, .choices = "softmax logn", .help = "" },
    { .name = "routes", .preset = 2, .min = 1, .max = 64, .help = "" },
};

static const foci_arg_def loop_args[] = {
    { .name = "inner", .mech = true, .choices = "loop", .help = "" },
};

static const foci_arg_def wordy_args[] = {
    { .name = "word",
      .choices = "a_word_that_is_longer_than_any_word_should_be_and_then_some|"
                 "b_word_that_is_longer_than_any_word_should_be_and_then_some|"
                 "c_word_that_is_longer_than_any_word_should_be_and_then_some|"
                 "d_word_that_is_longer_than_any_word_should_be_and_then_some|"
                 "e_word_that_is_longer_than_any_word_should_be_and_then_some",
      .help = "" },
};

static const foci_arg_def plain_args[] = {
    { .name = "inner", .mech = true, .help = "" },
};

static const foci_arg_def spoilt_args[] = {
    { .name = "inner", .mech = true, .choices = "softmax )", .help = "" },
};

#define COMMON                                                                         \
    .size = sizeof(foci_mech_def), .summary = "", .engine = FOCI_ENGINE_EXACT,         \
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V, .weigh = FOCI_WEIGH_SOFTMAX

static const foci_mech_def own[] = {
    { .name = "pick", .args = pick_args, .n_args = 3, COMMON },
    { .name = "nest", .args = nest_args, .n_args = 2, COMMON },
    { .name = "loop", .args = loop_args, .n_args = 1, COMMON },
    { .name = "wordy", .args = wordy_args, .n_args = 1, COMMON },
    { .name = "plain", .args = plain_args, .n_args = 1, COMMON },
    { .name = "spoilt", .args = spoilt_args, .n_args = 1, COMMON },
};

static int make_ctx(void **state)
{
    foci_ctx *ctx;
    if (foci_ctx_create(NULL, &ctx)) return -1;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (foci_mechanism_register(ctx, &own[i])) return -1;
    *state = ctx;
    return 0;
}

static int free_ctx(void **state)
{
    foci_ctx_free(*state);
    return 0;
}

static void parse(foci_ctx *ctx, const char *text, struct spec *spec)
{
    if (spec_parse(ctx, text, spec)) fail_msg("\"%s\": %s", text, foci_errmsg(ctx));
}

/* What is read and printed */

static const struct {
    const char *text, *printed;
} good[] = {
    { "softmax", "softmax" },
    { " \t softmax \r\n", "softmax" },
    { "softmax cap(1E1)", "softmax cap(c=10)" },
    { "plain", "plain(inner=softmax)" },
    { "2*softmax+6*l2norm", "2*softmax + 6*l2norm" },
    { "2 * softmax + l2norm", "2*softmax + l2norm" },
    { "007*softmax", "7*softmax" },
    { "2147483647*softmax", "2147483647*softmax" },
    { "relu2", "relu2(n=0)" },
    { "relu2(5)", "relu2(n=5)" },
    { "relu2 ( n = 5 ) cap ( 2 )", "relu2(n=5) cap(c=2)" },
    { "relu2(n=1e3)", "relu2(n=1000)" },
    { "relu2(n=+5.0)", "relu2(n=5)" },
    { "softmax scale(0.125)", "softmax scale(s=0.125)" },
    { "softmax scale(-.5e-3)", "softmax scale(s=-0.0005)" },
    { "softmax scale(0.1)", "softmax scale(s=0.1)" },
    { "softmax scale(0.30000000000000004)", "softmax scale(s=0.30000000000000004)" },
    { "softmax scale(1e30)", "softmax scale(s=1e+30)" },
    { "softmax cap sink logn temper",
      "softmax cap(c=30) sink logn(n0=512, clamp=0) temper" },
    { "softmax logn(clamp=1, n0=2)", "softmax logn(n0=2, clamp=1)" },
    { "softmax logn(64, 1)", "softmax logn(n0=64, clamp=1)" },
    { "softmax logn(64, clamp=1)", "softmax logn(n0=64, clamp=1)" },
    { "local(256, 2)", "local(window=256, dilation=2)" },
    { "softmax qknorm temper", "softmax qknorm(tau=10) temper" },
    { "1*relu2 cap + 1*softmax", "1*relu2(n=0) cap(c=30) + 1*softmax" },
    { "8L", "8*softmax" },
    { " 8 L ", "8*softmax" },
    { "1L", "1*softmax" },
    { "orthogonal",
      "softmax frozen(kind=orthogonal, sample=perhead, tie=0, shared=0)" },
    { "softmax frozen(hadamard, sample=block, tie=1) rope",
      "softmax frozen(kind=hadamard, sample=block, tie=1, shared=0) "
      "rope(base=10000, layout=interleaved)" },
    { "softmax init(gaussian)", "softmax init(kind=gaussian)" },
    { "7F+1L", "7*fixed(pattern=all, words=0, empty=zero) + 1*softmax" },
    { "7F_token+1L", "7*fixed(pattern=all, words=0, empty=zero) + 1*softmax" },
    { "7F_word + 1L", "7*fixed(pattern=all, words=1, empty=zero) + 1*softmax" },
    { "pick", "pick(kind=favor++, width=0.1, big=9007199254740992)" },
    { "pick(random+dense)",
      "pick(kind=random+dense, width=0.1, big=9007199254740992)" },
    { "pick( favor+ ,width=1e300)",
      "pick(kind=favor+, width=1e+300, big=9007199254740992)" },
    { "pick(1, big=0, width=-2.5)", "pick(kind=1, width=-2.5, big=0)" },
    { "2*pick(favor++) + pick(favor+)",
      "2*pick(kind=favor++, width=0.1, big=9007199254740992) + "
      "pick(kind=favor+, width=0.1, big=9007199254740992)" },
    { "nest", "nest(inner=softmax logn(n0=512, clamp=0), routes=2)" },
    { "nest(relu2)", "nest(inner=relu2(n=0), routes=2)" },
    { "nest(relu2(n=3) cap, routes=4)", "nest(inner=relu2(n=3) cap(c=30), routes=4)" },
    { "nest(routes=4, inner=nest(softmax sink, routes=1) cap) temper",
      "nest(inner=nest(inner=softmax sink, routes=1) cap(c=30), routes=4) temper" },
};

static void print(const struct spec *spec, char *text, size_t cap)
{
    const int n = spec_print(spec, text, cap);
    assert_in_range(n, 1, cap - 1);
    assert_int_equal(strlen(text), n);
}

static void check_good(foci_ctx *ctx, const char *text, const char *printed)
{
    struct spec spec;
    char        once[1000], twice[1000];

    parse(ctx, text, &spec);
    print(&spec, once, sizeof once);
    assert_string_equal(once, printed);
    spec_free(ctx, &spec);

    parse(ctx, once, &spec);
    print(&spec, twice, sizeof twice);
    assert_string_equal(twice, once);
    spec_free(ctx, &spec);
    spec_free(ctx, &spec); /* once more does no harm */
}

static void test_good(void **state)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        check_good(*state, good[i].text, good[i].printed);
}

/* Numbers keep their meaning in a locale that writes 0,5, which is made if there is
 * none. */
static void test_locale(void **state)
{
    char folder[] = "/tmp/foci-locale-XXXXXX", command[200];

    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && mkdtemp(folder)) {
        snprintf(command, sizeof command,
                 "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1", folder,
                 folder);
        if (system(command) == 0) setenv("LOCPATH", folder, 1);
        setlocale(LC_NUMERIC, "de_DE.UTF-8");
        unsetenv("LOCPATH");
        snprintf(command, sizeof command, "rm -r %s", folder);
        assert_int_equal(system(command), 0);
    }
    if (strcmp(localeconv()->decimal_point, ",") == 0) {
        test_good(state);
        setlocale(LC_NUMERIC, "C");
    } else {
        skip();
    }
}

static void test_fields(void **state)
{
    struct spec spec;
    parse(*state, "3*relu2(7) logn(n0=100) temper + nest(softmax cap)", &spec);
    assert_int_equal(spec.n_groups, 2);

    const struct plan_group *g = spec.groups;
    assert_int_equal(g[0].heads, 3);
    assert_int_equal(g[0].column, 1);
    assert_string_equal(g[0].mech.def->name, "relu2");
    assert_int_equal(foci_arg_int(&g[0].mech, 0), 7);
    assert_int_equal(g[0].mech.n_mods, 2);
    assert_string_equal(g[0].mech.mods[0].def->name, "logn");
    assert_true(g[0].mech.mods[0].arg[0] == 100);
    assert_true(g[0].mech.mods[0].arg[1] == 0);
    assert_null(g[0].mech.inner);

    assert_int_equal(g[1].heads, 0);
    assert_int_equal(g[1].column, 34);
    assert_string_equal(g[1].mech.inner->def->name, "softmax");
    assert_int_equal(g[1].mech.inner->n_mods, 1);

    foci_problem p = { FOCI_SIZED(foci_problem),
                       .heads = 8,
                       .len_q = 5,
                       .len_k = 9,
                       .dim_qk = 64,
                       .dim_v = 32,
                       .dim_x = 10 };
    assert_int_equal(spec_assign(*state, &spec, &p), FOCI_OK);
    assert_int_equal(g[0].head0, 0);
    assert_int_equal(g[1].head0, 3);
    assert_int_equal(g[1].heads, 5);
    const foci_dims want = {
        .qk = 64, .v = 32, .x = 10, .len = 9, .len_q = 5, .planned = 9
    };
    assert_memory_equal(&g[0].mech.dims, &want, sizeof want);
    assert_memory_equal(&g[1].mech.inner->dims, &want, sizeof want);
    spec_free(*state, &spec);
}

/* A value of an argument as text: its preset, or a bound. */
static void arg_text(const foci_arg_def *a, bool upper, char text[64])
{
    struct text_span word;
    if (a->choices) {
        for (int i = 0; word_at(a->choices, i, &word) && (upper || i == 0); i++)
            snprintf(text, 64, "%.*s", (int)word.len, word.s);
        return;
    }
    number_print(upper ? a->max : a->min, text);
}

/* " name(arg=value, ...)" with every argument at a bound. */
static void bound_text(const char *name, const foci_arg_def *args, size_t n, bool upper,
                       char text[512])
{
    int len = snprintf(text, 512, "%s", name);
    for (size_t i = 0; i < n; i++) {
        char value[64];
        arg_text(&args[i], upper, value);
        len += snprintf(text + len, 512 - (size_t)len, "%s%s=%s%s", i ? ", " : "(",
                        args[i].name, value, i + 1 == n ? ")" : "");
    }
}

static void test_every_mechanism(void **state)
{
    for (int i = 0; mech_list[i]; i++) {
        for (int upper = 0; upper < 2; upper++) {
            char text[512];
            bound_text(mech_list[i]->name, mech_list[i]->args, mech_list[i]->n_args,
                       upper, text);
            check_good(*state, text, text);
        }
    }
}

static void test_every_modifier(void **state)
{
    for (int i = 0; mod_list[i]; i++) {
        for (int upper = 0; upper < 2; upper++) {
            char mod[512], text[600];
            bound_text(mod_list[i]->name, mod_list[i]->args, mod_list[i]->n_args, upper,
                       mod);
            snprintf(text, sizeof text, "softmax %s", mod);
            check_good(*state, text, text);
        }
    }
}

/* One beyond each bound is refused by name, and so is a fraction of a whole. */
static void test_every_bound(void **state)
{
    for (int i = 0; mod_list[i]; i++) {
        for (size_t a = 0; a < mod_list[i]->n_args; a++) {
            const foci_arg_def *arg = &mod_list[i]->args[a];
            const double        beyond[] = { nextafter(arg->min, -INFINITY),
                                             nextafter(arg->max, INFINITY), arg->max - 0.5 };
            for (int b = 0; b < (arg->real ? 2 : 3); b++) {
                struct spec spec;
                char        value[32], text[200], says[100];
                number_print(beyond[b], value);
                snprintf(text, sizeof text, "softmax %s(%s=%s)", mod_list[i]->name,
                         arg->name, value);
                snprintf(says, sizeof says, ": %s takes ", mod_list[i]->name);
                assert_int_equal(spec_parse(*state, text, &spec), FOCI_ERR_SPEC);
                assert_non_null(strstr(foci_errmsg(*state), says));
            }
        }
    }
}

static void test_print_fits(void **state)
{
    struct spec spec;
    char        text[8] = "???????";
    parse(*state, "2*softmax cap", &spec);
    assert_int_equal(spec_print(&spec, NULL, 0), 19);
    assert_int_equal(spec_print(&spec, text, 1), 19);
    assert_string_equal(text, "");
    assert_int_equal(spec_print(&spec, text, 6), 19);
    assert_string_equal(text, "2*sof");
    assert_int_equal(text[6], '?');
    spec_free(*state, &spec);
}

/* What is refused */

#define HALVES                                                                         \
    "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"

static const struct {
    const char *text;
    int         column;
    const char *says;
} bad[] = {
    /* names */
    { "sofmax", 1, "unknown mechanism \"sofmax\"; the nearest is \"softmax\"" },
    { "  l2nrm", 3, "unknown mechanism \"l2nrm\"; the nearest is \"l2norm\"" },
    { "Softmax", 1, "the nearest is \"softmax\"" },
    { "relu3", 1, "the nearest is \"relu2\"" },
    { "softmax + x", 11, "unknown mechanism \"x\"" },
    { "softmax + xyz", 11,
      "unknown mechanism \"xyz\"; \"foci list\" names all there are" },
    { "4*reformer", 3, "unknown mechanism \"reformer\"; it is \"lsh\" here" },
    { "softmax softcap", 9, "unknown modifier \"softcap\"; it is \"cap\" here" },
    { "relu2(width=3)", 7, "unknown argument \"width\" of relu2; it takes n" },
    { "softmax cup", 9, "unknown modifier \"cup\"; the nearest is \"cap\"" },
    { "softmax qk_norm", 9, "unknown modifier \"qk_norm\"; the nearest is \"qknorm\"" },
    { "softmax logm(n0=2)", 9, "the nearest is \"logn\"" },
    { "softmaxlogn", 1, "unknown mechanism \"softmaxlogn\"" },
    { "logn", 1, "\"logn\" is a modifier; it follows a mechanism" },
    { "2*cap", 3, "\"cap\" is a modifier" },
    { "softmax relu2", 9, "\"relu2\" is a mechanism; \"+\" joins groups" },
    { "orthogonal cap", 1,
      "stands for a whole spec; write \"softmax frozen(orthogonal)\"" },
    { "4*orthogonal", 3, "stands for a whole spec" },
    { "softmax \x01max", 9, "\"?max\" is not expected" },
    { "\xc3\xa9", 1, "a mechanism is wanted here" },
    { "softmax \xe2\x82\xac", 9, "\"\xe2\x82\xac\" is not expected" },
    { "softmax \xf0\x9f\x98\x80", 9, "\"\xf0\x9f\x98\x80\" is not expected" },
    /* half a character, none, and so many halves that none can be where it is cut */
    { "softmax \xc3z", 9, "\"?z\" is not expected" },
    { "softmax \xc1z", 9, "\"?z\" is not expected" },
    { "softmax \xf5z", 9, "\"?z\" is not expected" },
    { "softmax " HALVES HALVES HALVES HALVES, 9, "\"...\" is not expected" },
    { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 1,
      "aaaa...\";" },
    /* aliases */
    { "8L+1L", 2, "\"*\" is wanted after the count \"8\"" },
    /* nothing where something is wanted */
    { "", 1, "a mechanism is wanted here" },
    { "  ", 3, "a mechanism is wanted here" },
    { "+", 1, "a mechanism is wanted here" },
    { "softmax +", 10, "a mechanism is wanted here" },
    { "softmax + + l2norm", 11, "a mechanism is wanted here" },
    { "2*", 3, "a mechanism is wanted here" },
    { "2*3*softmax", 3, "a mechanism is wanted here" },
    { "(softmax)", 1, "a mechanism is wanted here" },
    /* counts */
    { "0*softmax", 1, "\"0\" heads: a group has 1 to 2147483647" },
    { "-2*softmax", 1, "a mechanism is wanted here" },
    { "2147483648*softmax", 1, "\"2147483648\" heads" },
    { "99999999999999999999999999*softmax", 1, "heads: a group has 1 to" },
    { "2 softmax", 3, "\"*\" is wanted after the count \"2\"" },
    { "2", 2, "\"*\" is wanted after the count \"2\"" },
    { "2.5*softmax", 2, "\"*\" is wanted" },
    { "softmax + l2norm", 11, "l2norm has no count, nor has softmax at column 1" },
    { "2*softmax + relu2 + 1*softmax + l2norm", 33, "nor has relu2 at column 13" },
    /* parentheses and joints */
    { "relu2(n=3", 6, "this \"(\" has no \")\"" },
    { "relu2(n=3 + 4*softmax", 6, "this \"(\" has no \")\"" },
    { "softmax cap((3)", 12, "this \"(\" has no \")\"" },
    { "relu2(n=3))", 11, "this \")\" has no \"(\"" },
    { "softmax)", 8, "this \")\" has no \"(\"" },
    { "softmax, l2norm", 8, "\", l2norm\" is not expected; \"+\" joins" },
    { "softmax cap = 3", 13, "\"= 3\" is not expected" },
    { "softmax 4*relu2", 9, "\"4*relu2\" is not expected" },
    { "relu2(1)(2)", 9, "\"(2)\" is not expected" },
    { "softmax cap(1)(2)", 15, "\"(2)\" is not expected" },
    { "softmax*2", 8, "\"*2\" is not expected" },
    /* arguments */
    { "softmax()", 8, "softmax takes no arguments" },
    { "softmax(3)", 8, "softmax takes no arguments" },
    { "softmax sink(1)", 13, "sink takes no arguments" },
    { "relu2()", 7, "an argument of relu2 is missing here" },
    { "relu2(n=1,)", 11, "an argument of relu2 is missing here" },
    { "relu2(,n=1)", 7, "an argument of relu2 is missing here" },
    { "relu2(n=)", 9, "n of relu2 has no value" },
    { "relu2(m=3)", 7, "unknown argument \"m\" of relu2; it takes n" },
    { "softmax logn(clmp=1)", 14,
      "unknown argument \"clmp\" of logn; the nearest is \"clamp\"" },
    { "softmax logn(N0=1)", 14, "the nearest is \"n0\"" },
    { "relu2(n=1, n=2)", 12, "n of relu2 is given twice" },
    { "relu2(1, 2)", 10, "relu2 takes 1 argument at most" },
    { "relu2(1, n=2)", 10, "n of relu2 is given twice" },
    { "softmax logn(clamp=1, 64)", 23,
      "\"64\" has no name, but follows an argument with one; write NAME=64, or put it "
      "first" },
    { "local(1, 2, 3)", 13, "local takes 2 arguments at most" },
    { "softmax logn(clamp=1, clamp=1)", 23, "clamp of logn is given twice" },
    { "relu2(n=-3)", 9, "n=-3: relu2 takes 0 to 2147483647" },
    { "relu2(n=2147483648)", 9, "relu2 takes 0 to 2147483647" },
    { "relu2(2.5)", 7, "n=2.5: relu2 takes a whole number, 0 to 2147483647" },
    { "performer(a=x)", 13, "a=x: performer takes auto, or a number, -1000000 to 0.12" },
    { "relu2(many)", 7, "n=many: relu2 takes a whole number" },
    { "relu2(n==3)", 9, "n==3: relu2 takes a whole number" },
    { "relu2(0x10)", 7, "takes a whole number" },
    { "relu2(1 2)", 7, "n=1 2: relu2 takes a whole number" },
    { "softmax logn(n0=1)", 17, "n0=1: logn takes 2 to 2147483647" },
    { "softmax logn(clamp=2)", 20, "clamp=2: logn takes 0 to 1" },
    { "softmax cap(0)", 13, "c=0: cap takes 1e-30 to 1e+30" },
    { "softmax cap(-1)", 13, "c=-1: cap takes" },
    { "softmax cap(inf)", 13, "cap takes a number" },
    { "softmax cap(nan)", 13, "cap takes a number" },
    { "softmax cap(1e999)", 13, "cap takes a number" },
    { "softmax cap(1e)", 13, "cap takes a number" },
    { "softmax cap(.)", 13, "cap takes a number" },
    { "softmax cap(0,5)", 13, "c=0: cap takes" },
    { "softmax cap(softmax)", 13, "cap takes a number" },
    { "softmax scale", 9, "scale needs its argument s: write scale(s=...)" },
    { "softmax scale(1e31)", 15, "scale takes -1e+30 to 1e+30" },
    { "softmax qknorm(tau=-1)", 20, "qknorm takes 0 to" },
    /* words */
    { "pick(favour+)", 6,
      "kind=favour+: pick takes favor+, favor++, random+dense, 1; the nearest is "
      "\"favor+\"" },
    { "pick(kind=randomdense)", 11, "the nearest is \"random+dense\"" },
    { "pick(kind=0)", 11, "pick takes favor+, " },
    { "pick(width=-2.6)", 12, "pick takes -2.5 to 1e+300" },
    { "pick(big=9007199254740993.5)", 10, "pick takes" },
    /* modifiers together */
    { "softmax cap cap", 13, "cap is given twice" },
    { "softmax sink temper sink", 21, "sink is given twice" },
    { "softmax scale(1) qknorm", 18,
      "qknorm contradicts scale: both set the scale of the logits" },
    { "softmax qknorm cap scale(1)", 20, "scale contradicts qknorm" },
    { "l2norm sink", 8,
      "sink cannot follow l2norm: its weights are not divided by their sum" },
    { "relu2 cap sink", 11, "sink cannot follow relu2" },
    { "softmax frozen init", 16,
      "init contradicts frozen: both say how projections start" },
    { "softmax frozen(random)", 16, "orthogonal" },
    /* mechanisms as values */
    { "nest(3)", 6, "a mechanism is wanted here" },
    { "nest(inner=sofmax)", 12, "unknown mechanism \"sofmax\"" },
    { "nest(softmax + relu2)", 14,
      "\",\" or \")\" is wanted after the mechanism in inner" },
    { "nest(softmax cap cap, routes=2)", 18, "cap is given twice" },
    { "nest(2*softmax)", 6, "a mechanism is wanted here" },
    { "nest(softmax, softmax)", 15, "routes=softmax: nest takes" },
    { "nest(softmax, inner=softmax)", 15, "inner of nest is given twice" },
    { "nest(relu2(n=-1), routes=2)", 14, "relu2 takes 0 to" },
    { "nest(nest(nest(nest(nest(nest(nest(nest(nest))))))))", 41,
      "nested more than 8 deep" },
    { "spoilt", 9,
      "inner of spoilt is \"softmax )\" unless given: column 9: the mechanism should "
      "end here" },
    { "wordy(x)", 7, "word=x: wordy takes a_word_that_is_longer_than" },
    { "softmax * + relu2", 9, "\"* + relu2\" is not expected" },
    { "softmax \x7f\xff", 9, "\"??\" is not expected" },
    { "softmax \xef\xbc\x8crope", 9, "\"\xef\xbc\x8crope\" is not expected" },
    { "softmax \xef\xbc", 9, "\"??\" is not expected" },
    { "softmax cap(0000000000000000000000000000000000000000000000000000000000000001)",
      13, "cap takes a number" },
    { "loop", 1,
      "inner of loop is \"loop\" unless given: column 1: mechanisms are nested" },
};

static void test_refused(void **state)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct spec spec = { 0 };
        char        column[32];
        if (spec_parse(*state, bad[i].text, &spec) != FOCI_ERR_SPEC)
            fail_msg("\"%s\" was not refused", bad[i].text);
        assert_null(spec.groups);
        assert_int_equal(spec.n_groups, 0);

        const char *message = foci_errmsg(*state);
        snprintf(column, sizeof column, "column %d: ", bad[i].column);
        if (!strstr(message, bad[i].says) || !strstr(message, column))
            fail_msg("\"%s\": %s; expected: %s%s", bad[i].text, message, column,
                     bad[i].says);
    }
    struct spec spec;
    assert_int_equal(spec_parse(*state, NULL, &spec), FOCI_ERR_ARG);
}

/* "unit+unit+...+unit" */
static char *repeat(const char *unit, size_t n)
{
    const size_t len = strlen(unit);
    char        *text = malloc(n * (len + 1));
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) {
        memcpy(text + i * (len + 1), unit, len);
        text[i * (len + 1) + len] = '+';
    }
    text[n * (len + 1) - 1] = 0;
    return text;
}

static void test_lengths(void **state)
{
    static const struct {
        const char *unit;
        size_t      n;
        const char *says; /* NULL: it will do */
    } cases[] = {
        { "1*relu2", 4000, NULL },
        { "1*relu2", 4097, "4097 groups: a spec has 4096 at most" },
        { "1*softmax logn", 4000, "spelled out the spec has more than 65535" },
        { "1*softmax", 6554, "the spec has more than 65535 characters" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spec       spec;
        char             *text = repeat(cases[i].unit, cases[i].n);
        const foci_status status = spec_parse(*state, text, &spec);
        free(text);
        if (cases[i].says) {
            assert_int_equal(status, FOCI_ERR_SPEC);
            assert_non_null(strstr(foci_errmsg(*state), cases[i].says));
        } else {
            assert_int_equal(status, FOCI_OK);
            assert_int_equal(spec.n_groups, cases[i].n);
            spec_free(*state, &spec);
        }
    }
}

/* Heads */

static const struct {
    const char *text;
    int64_t     heads;
    const char *says; /* NULL: it will do */
} shares[] = {
    { "softmax", 1, NULL },
    { "8*softmax", 8, NULL },
    { "7*softmax + relu2", 8, NULL },
    { "relu2 + 7*softmax", 8, NULL },
    { "8*softmax", 4, "the spec counts 8 heads, the problem has 4" },
    { "8*softmax", 9, "the spec counts 8 heads, the problem has 9" },
    { "8L", 4, "the spec counts 8 heads, the problem has 4" },
    { "8*softmax + relu2", 8,
      "column 13: no head is left for relu2: counts take 8, and there are 8" },
    { "2147483647*softmax + 2147483647*softmax + relu2", 8, "counts take 4294967294" },
};

static void test_shares(void **state)
{
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        foci_problem p = { FOCI_SIZED(foci_problem), .heads = shares[i].heads,
                           .len_q = 1, .len_k = 1, .dim_qk = 4 };
        struct spec  spec;
        parse(*state, shares[i].text, &spec);
        const foci_status status = spec_assign(*state, &spec, &p);
        if (shares[i].says) {
            assert_int_equal(status, FOCI_ERR_ARG);
            if (!strstr(foci_errmsg(*state), shares[i].says))
                fail_msg("\"%s\": %s", shares[i].text, foci_errmsg(*state));
        } else {
            assert_int_equal(status, FOCI_OK);
            int64_t sum = 0;
            for (int g = 0; g < spec.n_groups; g++) {
                assert_int_equal(spec.groups[g].head0, sum);
                sum += spec.groups[g].heads;
                assert_int_equal(spec.groups[g].mech.dims.v, 4); /* 0: as dim_qk */
            }
            assert_int_equal(sum, shares[i].heads);
        }
        spec_free(*state, &spec);
    }
}

/* Allocations that fail */

static void test_memory(void **state)
{
    (void)state;
    const char *text =
        "2*nest(relu2 cap) sink + nest(nest(softmax temper)) cap + 1*relu2";
    struct ledger      l = { 0, 100 };
    const foci_options o = { FOCI_SIZED(foci_options), .alloc = counted, .user = &l };
    foci_ctx          *ctx;
    struct spec        spec;
    foci_status        status = FOCI_ERR_MEMORY;
    int                n = 0;

    assert_int_equal(foci_ctx_create(&o, &ctx), FOCI_OK);
    assert_int_equal(foci_mechanism_register(ctx, &own[1]), FOCI_OK);
    const int64_t before = l.held;
    for (; n < 50 && status; n++) {
        l.left = n;
        ctx_fail(ctx, FOCI_OK, "none");
        status = spec_parse(ctx, text, &spec);
        if (!status) break;
        assert_int_equal(status, FOCI_ERR_MEMORY);
        assert_non_null(strstr(foci_errmsg(ctx), "memory"));
        assert_int_equal(l.held, before);
    }
    assert_in_range(n, 8, 49);
    spec_free(ctx, &spec);
    assert_int_equal(l.held, before);

    l.left = 0;
    assert_int_equal(foci_mechanism_register(ctx, &own[0]), FOCI_ERR_MEMORY);
    foci_ctx_free(ctx);
    assert_int_equal(l.held, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),           cmocka_unit_test(test_locale),
        cmocka_unit_test(test_fields),         cmocka_unit_test(test_every_mechanism),
        cmocka_unit_test(test_every_modifier), cmocka_unit_test(test_every_bound),
        cmocka_unit_test(test_print_fits),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_lengths),        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, make_ctx, free_ctx);
}
