/* spec.c -- any text may be given as a spec; it is refused with a reason or planned.
 *
 * Input: a spec and, behind a newline, a problem.  What is parsed must print, and what
 * it prints must parse to the same text again.
 */
#include <math.h>

#include "fuzz/fuzz.h"
#include "plan/plan.h"

enum { CAP = 4096, LONGEST = 10000 };

/* Kinds of arguments that no built-in mechanism may have. */
static const foci_arg_def args[] = {
    { .name = "kind", .choices = "elu|relu|poly", .help = "a word" },
    { .name = "of", .mech = true, .choices = "softmax cap(3)", .help = "a mechanism" },
    { .name = "must", .preset = NAN, .min = -1, .max = 9, .real = true, .help = "given" },
};

static const foci_mech_def every_kind = {
    FOCI_SIZED(foci_mech_def),
    .name = "every_kind",
    .summary = "arguments of every kind",
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
};

static foci_ctx *context(void)
{
    static foci_ctx *ctx;
    if (!ctx) {
        ctx = fuzz_ctx();
        MUST(foci_mechanism_register(ctx, &every_kind) == FOCI_OK);
    }
    return ctx;
}

/* Lengths that would only make planning slow are not what is looked for. */
static bool too_large(const foci_problem *p)
{
    return p->len_q > LONGEST || p->len_k > LONGEST || p->heads > 64 || p->batch > 64;
}

static void check_print(foci_ctx *ctx, const struct spec *spec)
{
    static char once[1 << 16], twice[1 << 16];
    struct spec again;

    const int n = spec_print(spec, once, sizeof once);
    MUST(n > 0 && (size_t)n < sizeof once && strlen(once) == (size_t)n);
    MUST(spec_parse(ctx, once, &again) == FOCI_OK);
    MUST(spec_print(&again, twice, sizeof twice) == n && strcmp(once, twice) == 0);
    spec_free(ctx, &again);
}

static void check_plan(foci_ctx *ctx, const char *text, const foci_problem *p)
{
    foci_plan *plan;
    char       lines[CAP];

    if (too_large(p)) return;
    if (foci_plan_create(ctx, text, p, &plan) == FOCI_OK) {
        foci_plan_describe(plan, lines, sizeof lines);
        foci_plan_free(plan);
    } else {
        MUST(!plan);
        fuzz_message(ctx);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    foci_ctx    *ctx = context();
    foci_problem p = { FOCI_SIZED(foci_problem),
                       .batch = 1,
                       .heads = 8,
                       .len_q = 5,
                       .len_k = 5,
                       .dim_qk = 4 };
    char         text[CAP];

    if (size >= sizeof text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    char *problem = strchr(text, '\n');
    if (problem) {
        *problem++ = '\0';
        if (foci_problem_parse(ctx, problem, &p) != FOCI_OK) fuzz_message(ctx);
    }
    struct spec spec;
    if (spec_parse(ctx, text, &spec) == FOCI_OK) {
        check_print(ctx, &spec);
        spec_free(ctx, &spec);
        check_plan(ctx, text, &p);
    } else {
        MUST(!spec.groups);
        fuzz_message(ctx);
    }
    return 0;
}
