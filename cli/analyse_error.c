/* analyse_error.c -- foci analyse --error: the distance of the outputs and of the weights of
 * mechanisms from those of softmax, along the spread of the logits, the length, the width, or an
 * argument of the mechanisms.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/analyse_error.h"
#include "cli/bench.h"
#include "cli/plot.h"
#include "foci/analyse.h"
#include "foci/mechanism.h"

enum { LENGTH = 512, ROWS = 16, SPEC_TEXT = 1024, UNTRAINED_TEXT = 1024 };

struct error_point error_point(const struct errors *e, int i)
{
    const double x = e->values.x[i];

    return (struct error_point){ e->axis == AXIS_LENGTH ? (int64_t)x : e->length,
                                 e->axis == AXIS_DIM ? (int64_t)x : e->dim,
                                 e->axis == AXIS_SPREAD ? x : e->spread };
}

/*
 * Specs along the axis
 */

static int too_long(const struct errors *e, const char *spec)
{
    return usage_error(e->a, "'%.64s...' is too long a spec", spec);
}

static int copy_spec(const struct errors *e, const char *spec, char text[SPEC_TEXT])
{
    return snprintf(text, SPEC_TEXT, "%s", spec) < SPEC_TEXT ? EXIT_OK
                                                             : too_long(e, spec);
}

/* Where the arguments of the first mechanism end, and where they begin; the same where it has
 * none.  NULL: a parenthesis is not closed. */
static const char *find_arguments(const char *spec, const char **begin)
{
    const char *star = strchr(spec, '*'), *at = star ? star + 1 : spec;
    int         depth = 0;

    at += strspn(at, " ");
    at += strcspn(at, " (+");
    if (at[strspn(at, " ")] != '(') return *begin = at;
    for (at = *begin = strchr(at, '('); *at; at++) {
        depth += (*at == '(') - (*at == ')');
        if (!depth) return at;
    }
    return NULL;
}

/* The spec of one group with one more argument, which goes behind those it has. */
static int add_argument(const struct errors *e, const char *spec, double value,
                        char text[SPEC_TEXT])
{
    const char *begin, *end = find_arguments(spec, &begin);

    if (!end) /* the library says what is wrong */
        return copy_spec(e, spec, text);
    if (strchr(end, '+'))
        return usage_error(e->a,
                           "--axis %s needs a spec of one group, and '%s' has more",
                           e->name, spec);
    const bool has = end > begin, any = has && end > begin + 1 + strspn(begin + 1, " ");
    const int  n =
        snprintf(text, SPEC_TEXT, "%.*s%s%s%s=%.17g%s%s", (int)(end - spec), spec,
                 has ? "" : "(", any ? ", " : "", e->name, value, has ? "" : ")", end);
    return n < SPEC_TEXT ? EXIT_OK : too_long(e, spec);
}

static int spec_at(const struct errors *e, const char *spec, int i, char text[SPEC_TEXT])
{
    if (e->axis == AXIS_ARGUMENT) return add_argument(e, spec, e->values.x[i], text);
    return copy_spec(e, spec, text);
}

/*
 * Errors
 */

/* The root mean square of the heads, NaN if one has none. */
static double over_heads(const double *errors, int64_t n)
{
    double squares = 0;

    for (int64_t h = 0; h < n; h++)
        squares += errors[h] * errors[h] / (double)n;
    return sqrt(squares);
}

static foci_status measure_plan(const struct errors *e, const foci_plan *plan,
                                const struct error_source *s, int i, struct curve *c)
{
    foci_problem p = { FOCI_SIZED(foci_problem) };

    (void)foci_plan_get_problem(plan, &p);
    const size_t n = (size_t)(p.len_q * p.heads * p.dim_v);
    double      *errors = need((size_t)p.heads, sizeof *errors);
    float       *params = need((size_t)foci_plan_param_floats(plan), sizeof *params);
    foci_io      io = { FOCI_SIZED(foci_io),
                        .q = s->q,
                        .k = s->k,
                        .v = s->v,
                        .x = bench_draw_x(plan, &p, (size_t)p.len_q),
                        .o = need(n, sizeof(float)),
                        .params = params,
                        .work = need(foci_plan_work_bytes(plan), 1) };
    foci_status  status = foci_params_init(plan, e->seed, params);

    if (!status) status = foci_softmax_errors(plan, &io, errors);
    if (!status) c->errors[i] = over_heads(errors, p.heads);
    if (!status) status = foci_softmax_weight_errors(plan, &io, ROWS, errors);
    if (!status) c->weight_errors[i] = over_heads(errors, p.heads);
    free(errors);
    free(params);
    free((void *)io.x);
    free(io.o);
    free(io.work);
    return status;
}

/* Whether parameters that a mechanism moves itself learn: centres of keys do, random features
 * are only drawn anew. */
static bool moves_centres(const foci_plan *plan)
{
    foci_group g = { FOCI_SIZED(foci_group) };
    bool       any = false;

    for (int i = 0; i < foci_plan_group_count(plan); i++) {
        foci_order order = { .label = FOCI_LABEL_NONE };
        if (!foci_plan_group(plan, i, &g) && g.mech->def->order)
            g.mech->def->order(g.mech, &order);
        any = any || order.label == FOCI_LABEL_NEAREST;
    }
    return any;
}

/* Tensors that training would change. */
static void find_untrained(const foci_plan *plan, char **text)
{
    const bool moved = moves_centres(plan);
    foci_param p = { FOCI_SIZED(foci_param) };

    if (*text) return;
    *text = need(UNTRAINED_TEXT, 1);
    for (int i = 0; i < foci_plan_param_count(plan); i++) {
        if (foci_plan_param(plan, i, &p)) continue;
        if (p.keep == FOCI_KEEP_FROZEN || (p.keep == FOCI_KEEP_MOVED && !moved))
            continue;
        const size_t used = strlen(*text);
        snprintf(*text + used, UNTRAINED_TEXT - used, "%s%s", used ? ", " : "", p.name);
    }
}

static int measure_point(struct errors *e, int spec, int i, struct curve *c)
{
    struct error_source     *s = &e->sources[c->source];
    const struct error_point at = error_point(e, i);
    char                     text[SPEC_TEXT];
    foci_plan               *plan;
    const int                code = spec_at(e, c->spec, i, text);

    if (code) return code;
    error_source_set(e, &at, s);
    foci_problem p = s->p;
    assume_x(&p);
    if (p.kv_heads == p.heads) p.kv_heads = 0; /* what is more shows */
    if (opt_flag(e->a, "causal")) p.flags |= FOCI_FLAG_CAUSAL;
    foci_status status = foci_plan_create(e->ctx, text, &p, &plan);
    if (!status) status = foci_plan_get_problem(plan, &p);
    if (!status && p.kv_heads != s->p.kv_heads) {
        foci_plan_free(plan);
        return usage_error(e->a,
                           "%s: it reads keys of %lld heads for %lld of queries, where "
                           "softmax has none to be compared with",
                           text, (long long)p.kv_heads, (long long)p.heads);
    }
    if (!status) status = measure_plan(e, plan, s, i, c);
    if (!status) find_untrained(plan, &e->untrained[spec]);
    foci_plan_free(plan);
    return status ? library_error(e->a, e->ctx, status, text) : EXIT_OK;
}

static int measure_spec(struct errors *e, int spec)
{
    int code = EXIT_OK;

    for (int source = 0; source < e->n_sources && !code; source++) {
        struct curve *c = &e->curves[e->n++];
        *c = (struct curve){ .spec = opt_nth(e->a, "error", spec), .source = source };
        for (int i = 0; i < e->values.n && !code; i++)
            code = measure_point(e, spec, i, c);
    }
    return code;
}

static int measure_all(struct errors *e, int n)
{
    struct progress progress;
    int             code = EXIT_OK;

    progress_begin(&progress, e->a, "specs", n);
    for (int i = 0; i < n && !code; i++) {
        progress_at(&progress, i, opt_nth(e->a, "error", i));
        code = measure_spec(e, i);
    }
    progress_end(&progress);
    return code;
}

/*
 * The command line
 */

/* Without an axis columns are spreads, or of given tensors one. */
static int read_columns(struct errors *e)
{
    const bool drawn = e->sources[0].drawn;
    const char preset[] = "0.25,0.354,0.5,0.707,1,1.41,2,2.83,4,5.66,8";

    if (!opt_text(e->a, "axis")) {
        e->axis = drawn ? AXIS_SPREAD : AXIS_NONE;
        e->values.n = 1;
        return drawn ? read_values(e->a, "spreads", preset, 0.001, 1000, &e->values)
                     : EXIT_OK;
    }
    int code = read_values(e->a, "spreads", "1", 0.001, 1000, &e->values);
    if (!code && e->values.n > 1)
        return usage_error(e->a, "--spreads takes one number beside --axis, which has "
                                 "the columns");
    e->spread = e->values.x[0];
    if (!code) code = read_named(e->a, e->name, &e->values);
    if (code) return code;
    e->axis = !strcmp(e->name, "length") ? AXIS_LENGTH
              : !strcmp(e->name, "dim")  ? AXIS_DIM
                                         : AXIS_ARGUMENT;
    return EXIT_OK;
}

static int check_axis(const struct errors *e)
{
    const double  least = least_of(&e->values), most = most_of(&e->values);
    const int64_t given = e->sources[0].drawn ? 65536 : e->sources[0].p.len_q;

    if (e->axis == AXIS_DIM && !e->sources[0].drawn)
        return usage_error(e->a,
                           "--axis dim is of random tensors, and these are given");
    if (e->axis == AXIS_LENGTH && (least < 2 || most > (double)given))
        return usage_error(e->a, "--axis length has %g to %g; it takes 2 to %lld",
                           least, most, (long long)given);
    if (e->axis == AXIS_DIM && (least < 2 || most > MAX_DIM))
        return usage_error(e->a, "--axis dim has %g to %g; it takes 2 to %d", least,
                           most, MAX_DIM);
    if (!e->sources[0].drawn || e->axis == AXIS_DIM || opt_text(e->a, "dim"))
        return EXIT_OK;
    return usage_error(e->a,
                       "--dim is missing; usage: foci analyse --error SPEC --dim N");
}

static int check(const struct args *a, int n)
{
    if (check_out(a)) return EXIT_USAGE;
    if (opt_text(a, "out") && n > MAX_CURVES)
        return usage_error(a, "--error is given %d times; a picture has room for %d", n,
                           MAX_CURVES);
    return EXIT_OK;
}

static int analyse_specs(struct errors *e, int n)
{
    int code = error_sources_open(e);

    if (!code) code = read_columns(e);
    if (!code) code = check_axis(e);
    if (!code && opt_text(e->a, "out") && e->n_sources > ERROR_PANELS)
        code = usage_error(e->a, "there are %d attentions; a picture has room for %d",
                           e->n_sources, ERROR_PANELS);
    if (code) return code;
    e->curves = need((size_t)(e->n_sources * n), sizeof *e->curves);
    e->untrained = need((size_t)n, sizeof *e->untrained);
    code = measure_all(e, n);
    if (!code) code = errors_show(e);
    for (int i = 0; i < n; i++)
        free(e->untrained[i]);
    free(e->untrained);
    free(e->curves);
    return code;
}

int analyse_error(const struct args *a)
{
    int           n = 0;
    struct errors e = { .a = a,
                        .dim = opt_int(a, "dim", 0),
                        .length = opt_int(a, "length", LENGTH),
                        .seed = (uint64_t)opt_int(a, "seed", 0) };

    while (opt_nth(a, "error", n))
        n++;
    int code = check(a, n);
    if (code) return code;
    e.ctx = open_ctx(a, (int)opt_int(a, "threads", 0));
    if (!e.ctx) return EXIT_FAILED;
    code = analyse_specs(&e, n);
    error_sources_close(&e);
    foci_ctx_free(e.ctx);
    return code;
}
