/* analyse_error.c -- foci analyse --error: the distance of the outputs of mechanisms from
 * those of softmax, by the spread of the logits.
 *
 * Values are standard normal.  Queries and keys are standard normal too, or clustered around
 * centres, as those of trained projections tend to be.  Both are then scaled by one factor,
 * so that the logits s q.k of all pairs of a head have the wanted standard deviation: near 0
 * all keys weigh the same, and the larger it is, the fewer keys count.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/analyse.h"
#include "cli/bench.h"
#include "cli/plot.h"
#include "foci/analyse.h"

enum { HEADS = 8, CENTRES = 16, LENGTH = 512 };

static const double around = 0.5; /* how far tokens are from their centre, which is 1 */

static const char *const keys_names[] = { "gaussian", "clustered" };

/* Rows of [length][HEADS][dim] for spread 1, and the same for another one. */
struct error_rows {
    float *q0, *k0, *q, *k, *v;
};

static size_t row_floats(const struct errors *e)
{
    return (size_t)e->length * HEADS * (size_t)e->dim;
}

/*
 * Tensors
 */

/* Draw x towards one of the centres of its head, each row to one at random. */
static void gather(const struct errors *e, const float *centres, uint64_t seed, float *x)
{
    const float share = (float)around, unit = sqrtf(1 + share * share);

    for (int64_t i = 0; i < e->length; i++)
        for (int64_t h = 0; h < HEADS; h++, x += e->dim) {
            const int64_t kind = (int64_t)(CENTRES * bench_uniform(&seed));
            const float  *centre = centres + (h * CENTRES + kind) * e->dim;
            for (int64_t t = 0; t < e->dim; t++)
                x[t] = (centre[t] + share * x[t]) / unit;
        }
}

/* Sums over the rows of a head: [dim] of x, and [dim][dim] of x x. */
static void add_up(const struct errors *e, const float *x, double *sums)
{
    const int64_t d = e->dim;
    double       *squares = sums + d;

    memset(sums, 0, (size_t)(d + d * d) * sizeof *sums);
    for (int64_t i = 0; i < e->length; i++, x += HEADS * d)
        for (int64_t a = 0; a < d; a++) {
            sums[a] += (double)x[a];
            for (int64_t b = 0; b < d; b++)
                squares[a * d + b] += (double)x[a] * (double)x[b];
        }
}

/* The standard deviation of s q.k over all pairs, from sums of q and of k. */
static double spread_of(const struct errors *e, const double *q, const double *k)
{
    const int64_t d = e->dim;
    const double  n = (double)e->length, s = 1 / sqrt((double)d);
    double        mean = 0, square = 0;

    for (int64_t t = 0; t < d; t++)
        mean += q[t] * k[t] / n / n;
    for (int64_t t = d; t < d + d * d; t++)
        square += q[t] * k[t] / n / n;
    return s * sqrt(square - mean * mean);
}

static void scale_head(const struct errors *e, float *x, double factor)
{
    for (int64_t i = 0; i < e->length; i++, x += HEADS * e->dim)
        for (int64_t t = 0; t < e->dim; t++)
            x[t] *= (float)factor;
}

static void scale_rows(const struct errors *e, struct error_rows *r)
{
    const size_t n = (size_t)(e->dim + e->dim * e->dim);
    double      *q = need(n, sizeof *q), *k = need(n, sizeof *k);

    for (int64_t h = 0; h < HEADS; h++) {
        add_up(e, r->q0 + h * e->dim, q);
        add_up(e, r->k0 + h * e->dim, k);
        const double factor = 1 / sqrt(spread_of(e, q, k));
        scale_head(e, r->q0 + h * e->dim, factor);
        scale_head(e, r->k0 + h * e->dim, factor);
    }
    free(q);
    free(k);
}

static void draw_rows(const struct errors *e, enum keys keys, struct error_rows *r)
{
    const size_t   n = row_floats(e);
    const uint64_t seed = 8 * e->seed;

    *r = (struct error_rows){ .q0 = bench_draw(FOCI_F32, n, seed + 1),
                              .k0 = bench_draw(FOCI_F32, n, seed + 2),
                              .v = bench_draw(FOCI_F32, n, seed + 3),
                              .q = need(n, sizeof *r->q),
                              .k = need(n, sizeof *r->k) };
    if (keys == KEYS_CLUSTERED) {
        const size_t count = HEADS * (size_t)CENTRES * (size_t)e->dim;
        float       *centres = bench_draw(FOCI_F32, count, seed + 4);
        gather(e, centres, seed + 5, r->q0);
        gather(e, centres, seed + 6, r->k0);
        free(centres);
    }
    scale_rows(e, r);
}

static void free_rows(struct error_rows *r)
{
    free(r->q0);
    free(r->k0);
    free(r->q);
    free(r->k);
    free(r->v);
}

static void set_spread(const struct errors *e, struct error_rows *r, double spread)
{
    const float factor = (float)sqrt(spread);

    for (size_t t = 0; t < row_floats(e); t++) {
        r->q[t] = factor * r->q0[t];
        r->k[t] = factor * r->k0[t];
    }
}

/*
 * Errors
 */

static foci_problem problem_of(const struct errors *e)
{
    foci_problem p = { FOCI_SIZED(foci_problem), .batch = 1,         .heads = HEADS,
                       .len_q = e->length,       .len_k = e->length, .dim_qk = e->dim,
                       .dim_v = e->dim,          .seed = e->seed };
    assume_x(&p);
    return p;
}

/* All spreads of a curve. */
static foci_status measure(const struct errors *e, const foci_plan *plan,
                           struct error_rows *r, struct curve *c)
{
    const foci_problem p = problem_of(e);
    float      *params = need((size_t)foci_plan_param_floats(plan), sizeof *params);
    foci_io     io = { FOCI_SIZED(foci_io),
                       .q = r->q,
                       .k = r->k,
                       .v = r->v,
                       .x = bench_draw_x(plan, &p, (size_t)e->length),
                       .o = need(row_floats(e), sizeof(float)),
                       .params = params,
                       .work = need(foci_plan_work_bytes(plan), 1) };
    double      errors[HEADS];
    foci_status status = foci_params_init(plan, e->seed, params);

    for (int i = 0; i < e->spreads.n && !status; i++) {
        double squares = 0;
        set_spread(e, r, e->spreads.x[i]);
        status = foci_softmax_errors(plan, &io, errors);
        for (int h = 0; h < HEADS && !status; h++)
            squares += errors[h] * errors[h] / HEADS;
        c->errors[i] = sqrt(squares);
    }
    free(params);
    free((void *)io.x);
    free(io.o);
    free(io.work);
    return status;
}

static int measure_spec(struct errors *e, const char *spec, struct error_rows *rows)
{
    foci_problem p = problem_of(e);
    foci_plan   *plan;
    foci_status  status = foci_plan_create(e->ctx, spec, &p, &plan);

    if (!status) status = foci_plan_get_problem(plan, &p);
    if (!status && p.kv_heads != HEADS) {
        foci_plan_free(plan);
        return usage_error(e->a,
                           "%s: it reads keys of %lld heads for %d of queries, where "
                           "softmax has none to be compared with",
                           spec, (long long)p.kv_heads, HEADS);
    }
    for (int keys = 0; keys < N_KEYS && !status; keys++) {
        if (!e->draws[keys]) continue;
        struct curve *c = &e->curves[e->n++];
        *c = (struct curve){ .spec = spec, .keys = (enum keys)keys };
        status = measure(e, plan, &rows[keys], c);
    }
    foci_plan_free(plan);
    return status ? library_error(e->a, e->ctx, status, spec) : EXIT_OK;
}

static int measure_all(struct errors *e, int n)
{
    struct error_rows rows[N_KEYS] = { { 0 } };
    struct progress   progress;
    int               code = EXIT_OK;

    for (int keys = 0; keys < N_KEYS; keys++)
        if (e->draws[keys]) draw_rows(e, (enum keys)keys, &rows[keys]);
    progress_begin(&progress, e->a, "specs", n);
    for (int i = 0; i < n && !code; i++) {
        const char *spec = opt_nth(e->a, "error", i);
        progress_at(&progress, i, spec);
        code = measure_spec(e, spec, rows);
    }
    progress_end(&progress);
    for (int keys = 0; keys < N_KEYS; keys++)
        free_rows(&rows[keys]);
    return code;
}

/*
 * Results
 */

static void print_errors(const struct errors *e)
{
    char                 columns[MAX_VALUES + 3] = "ll";
    struct output_table *t;

    memset(columns + 2, 'r', (size_t)e->spreads.n);
    t = table_headed(columns);
    table_pair(t, "mechanism", "keys");
    for (int i = 0; i < e->spreads.n; i++)
        table_cell(t, "%.3g", e->spreads.x[i]);
    for (int c = 0; c < e->n; c++) {
        const struct curve *at = &e->curves[c];
        const bool          again = c && at[-1].spec == at->spec;
        table_pair(t, again ? "" : at->spec, "%s", keys_names[at->keys]);
        for (int i = 0; i < e->spreads.n; i++)
            table_cell(t, at->errors[i] < 9.9995 ? "%.3f" : "%.3g", at->errors[i]);
    }
    table_print(t, stdout);
    table_free(t);
}

static json_t *json_values(const double *x, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_number(x[i]));
    return list;
}

static json_t *json_errors(const struct errors *e)
{
    json_t *list = json_array();

    for (int c = 0; c < e->n; c++)
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:o}", "spec", e->curves[c].spec, "keys",
                            keys_names[e->curves[c].keys], "errors",
                            json_values(e->curves[c].errors, e->spreads.n)));
    return json_pack("{s:I, s:I, s:i, s:I, s:o, s:o}", "dim", (json_int_t)e->dim,
                     "length", (json_int_t)e->length, "heads", HEADS, "seed",
                     (json_int_t)e->seed, "spreads",
                     json_values(e->spreads.x, e->spreads.n), "curves", list);
}

static int show(const struct errors *e)
{
    const char *out = opt_text(e->a, "out");
    foci_status status = FOCI_OK;

    if (out) {
        hold_signals();
        status = errors_draw(e, out);
        release_signals();
    }
    if (status) return library_error(e->a, e->ctx, status, NULL);
    if (e->a->json) return print_json(e->a, json_errors(e));
    print_errors(e);
    return EXIT_OK;
}

static int check(const struct args *a, int n)
{
    if (check_out(a)) return EXIT_USAGE;
    if (opt_text(a, "out") && n > MAX_CURVES)
        return usage_error(a, "--error is given %d times; a picture has room for %d", n,
                           MAX_CURVES);
    return EXIT_OK;
}

int analyse_error(const struct args *a)
{
    const int     keys = opt_word(a, "keys", N_KEYS);
    int           n = 0;
    struct errors e = { .a = a,
                        .dim = opt_int(a, "dim", 0),
                        .length = opt_int(a, "length", LENGTH),
                        .seed = (uint64_t)opt_int(a, "seed", 0),
                        .draws = { keys != KEYS_CLUSTERED, keys != KEYS_GAUSSIAN } };

    while (opt_nth(a, "error", n))
        n++;
    int code = check(a, n);
    if (!code)
        code = read_values(a, "spreads", "0.25,0.354,0.5,0.707,1,1.41,2,2.83,4,5.66,8",
                           0.001, 1000, &e.spreads);
    if (code) return code;
    e.ctx = open_ctx(a, (int)opt_int(a, "threads", 0));
    if (!e.ctx) return EXIT_FAILED;
    e.curves = need((size_t)(N_KEYS * n), sizeof *e.curves);
    code = measure_all(&e, n);
    if (!code) code = show(&e);
    free(e.curves);
    foci_ctx_free(e.ctx);
    return code;
}
