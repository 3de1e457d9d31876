/* analyse_estimator.c -- foci analyse --estimator: the quality of estimates by random features.
 *
 * Pairs x, y of given lengths and angles, in random directions, are estimated many times;
 * bias and variance are printed beside those of theory for independent rows.  Statistics
 * that a kind needs are those of many random rows of the same length.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/analyse.h"
#include "cli/bench.h"
#include "foci/analyse.h"

enum { ROWS_PER_AXIS = 8 };

struct estimator {
    const char *spec;
    foci_plan  *plan;
    float      *params;
};

/* Results of a norm and a cosine, means over the pairs. */
struct analyse_cell {
    double exact, mean, error, variance, predicted, second;
};

struct work {
    const struct args *a;
    foci_ctx          *ctx;
    struct values      norms, cosines;
    int64_t            dim, pairs, draws;
    uint64_t           seed;
    struct progress   *progress;
};

/*
 * Pairs
 */

static double dot(const double *x, const double *y, int64_t d)
{
    double sum = 0;
    for (int64_t t = 0; t < d; t++)
        sum += x[t] * y[t];
    return sum;
}

/* x /= its length / norm. */
static void set_norm(double *x, int64_t d, double norm)
{
    const double length = sqrt(dot(x, x, d));
    for (int64_t t = 0; t < d; t++)
        x[t] *= norm / length;
}

static double *draw_rows(int64_t rows, int64_t d, uint64_t seed)
{
    const size_t n = (size_t)(rows * d);
    float       *normals = bench_draw(FOCI_F32, n, seed);
    double      *x = need(n, sizeof *x);

    for (size_t t = 0; t < n; t++)
        x[t] = (double)normals[t];
    free(normals);
    return x;
}

/* Turn random directions y into such as have this cosine with x, all of one length. */
static void set_angle(double *x, double *y, int64_t d, double norm, double cosine)
{
    set_norm(x, d, 1);
    const double along = dot(x, y, d);
    for (int64_t t = 0; t < d; t++)
        y[t] -= along * x[t];
    set_norm(y, d, sqrt(1 - cosine * cosine));
    for (int64_t t = 0; t < d; t++)
        y[t] += cosine * x[t];
    set_norm(x, d, norm);
    set_norm(y, d, norm);
}

/*
 * Estimates
 */

/* Statistics of random rows of this length. */
static foci_status calibrate(const struct work *w, const struct estimator *e,
                             double norm)
{
    const int64_t d = w->dim, rows = ROWS_PER_AXIS * d;
    double       *x = draw_rows(rows, d, w->seed + 1);
    double       *y = draw_rows(rows, d, w->seed + 2);

    for (int64_t i = 0; i < rows; i++) {
        set_norm(x + i * d, d, norm);
        set_norm(y + i * d, d, norm);
    }
    const foci_estimator_io io = { FOCI_SIZED(foci_estimator_io), .n = rows, .x = x,
                                   .y = y };
    const foci_status       status = foci_estimator_calibrate(e->plan, &io, e->params);
    free(x);
    free(y);
    return status;
}

/* The mean over the pairs of each cosine. */
static void fold(const struct work *w, const foci_estimator_io *io,
                 struct analyse_cell *cells)
{
    const double share = 1 / (double)w->pairs;

    for (int64_t i = 0; i < io->n; i++) {
        struct analyse_cell *c = &cells[i / w->pairs];
        c->exact += share * io->exact[i];
        c->mean += share * io->mean[i];
        c->variance += share * io->variance[i];
        c->predicted += share * io->predicted[i];
        c->second += share * io->second[i];
        /* All pairs meet the same draws: their errors may add up. */
        c->error += share * sqrt(io->variance[i] / (double)w->draws);
    }
}

/* The cells of one length. */
static foci_status estimate(const struct work *w, const struct estimator *e,
                            double norm, struct analyse_cell *cells)
{
    const int64_t d = w->dim, n = w->cosines.n * w->pairs;
    double       *x = draw_rows(n, d, w->seed + 3), *y = draw_rows(n, d, w->seed + 4);
    double       *out = need(5 * (size_t)n, sizeof *out);

    for (int64_t i = 0; i < n; i++)
        set_angle(x + i * d, y + i * d, d, norm, w->cosines.x[i / w->pairs]);
    const foci_estimator_io io = { FOCI_SIZED(foci_estimator_io),
                                   .n = n,
                                   .x = x,
                                   .y = y,
                                   .params = e->params,
                                   .draws = w->draws,
                                   .seed = w->seed,
                                   .exact = out,
                                   .mean = out + n,
                                   .variance = out + 2 * n,
                                   .predicted = out + 3 * n,
                                   .second = out + 4 * n };
    const foci_status       status = foci_estimator_run(e->plan, &io);
    if (!status) fold(w, &io, cells);
    free(x);
    free(y);
    free(out);
    return status;
}

static int open_estimator(const struct work *w, struct estimator *e)
{
    const foci_problem p = {
        FOCI_SIZED(foci_problem), .batch = 1, .heads = 1, .len_q = 1, .len_k = 1,
        .dim_qk = w->dim
    };
    const foci_status status = foci_plan_create(w->ctx, e->spec, &p, &e->plan);

    if (status) return library_error(w->a, w->ctx, status, e->spec);
    e->params = need((size_t)foci_plan_param_floats(e->plan), sizeof *e->params);
    return EXIT_OK;
}

/* `done` lengths are those of the estimators before. */
static int measure(const struct work *w, struct estimator *e, int64_t done,
                   struct analyse_cell *cells)
{
    int code = open_estimator(w, e);

    for (int i = 0; i < w->norms.n && !code; i++) {
        progress_tick(w->progress, done + i, e->spec);
        foci_status status = calibrate(w, e, w->norms.x[i]);
        if (!status) status = estimate(w, e, w->norms.x[i], cells);
        cells += w->cosines.n;
        if (status) code = library_error(w->a, w->ctx, status, e->spec);
    }
    return code;
}

/*
 * Results
 */

static json_t *json_cells(const struct work *w, const struct analyse_cell *cells)
{
    json_t *list = json_array();

    for (int i = 0; i < w->norms.n * w->cosines.n; i++) {
        const struct analyse_cell *c = &cells[i];
        json_array_append_new(
            list, json_pack("{s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "norm",
                            w->norms.x[i / w->cosines.n], "cosine",
                            w->cosines.x[i % w->cosines.n], "exact",
                            json_number(c->exact), "mean", json_number(c->mean), "error",
                            json_number(c->error), "variance", json_number(c->variance),
                            "closed_form", json_number(c->predicted), "ratio",
                            json_number(c->variance / c->predicted), "second_moment",
                            json_number(c->second)));
    }
    return list;
}

static void table_cells(const struct work *w, const char *spec,
                        const struct analyse_cell *cells, struct output_table *t)
{
    for (int i = 0; i < w->norms.n * w->cosines.n; i++) {
        const struct analyse_cell *c = &cells[i];
        table_cell(t, "%s", i ? "" : spec);
        table_cell(t, "%g", w->norms.x[i / w->cosines.n]);
        table_cell(t, "%g", w->cosines.x[i % w->cosines.n]);
        table_cell(t, "%.4f", c->exact);
        table_cell(t, "%.4f", c->mean);
        table_cell(t, "%.1e", c->error);
        table_cell(t, "%.3e", c->variance);
        number_cell(t, "%.3e", c->predicted, false);
        number_cell(t, "%.3f", c->variance / c->predicted, false);
    }
}

static int run_all(const struct work *w, struct output_table *t, json_t *list)
{
    const size_t n = (size_t)(w->norms.n * w->cosines.n);
    const char  *spec;
    int          code = EXIT_OK;

    for (int i = 0; !code && (spec = opt_nth(w->a, "estimator", i)); i++) {
        struct estimator     e = { .spec = spec };
        struct analyse_cell *cells = need(n, sizeof *cells);
        code = measure(w, &e, (int64_t)i * w->norms.n, cells);
        if (!code && w->a->json) {
            char *full = plan_text(foci_plan_spec, e.plan);
            json_array_append_new(list, json_pack("{s:s, s:o}", "spec", full, "results",
                                                  json_cells(w, cells)));
            free(full);
        } else if (!code) {
            table_cells(w, spec, cells, t);
        }
        free(cells);
        free(e.params);
        foci_plan_free(e.plan);
    }
    return code;
}

static int show(const struct work *w)
{
    static const char *const heads[] = { "estimator", "norm",        "cosine",
                                         "exact",     "mean",        "error",
                                         "variance",  "closed form", "ratio" };
    struct output_table     *t = table_headed("lrrrrrrrr");
    json_t                  *list = json_array();

    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    int code = run_all(w, t, list);
    progress_end(w->progress);
    if (!code && w->a->json)
        code = print_json(
            w->a, json_pack("{s:I, s:I, s:I, s:I, s:O}", "dim", (json_int_t)w->dim,
                            "draws", (json_int_t)w->draws, "pairs", (json_int_t)w->pairs,
                            "seed", (json_int_t)w->seed, "estimators", list));
    else if (!code)
        table_print(t, stdout);
    json_decref(list);
    table_free(t);
    return code;
}

int analyse_estimator(const struct args *a)
{
    struct work w = { .a = a,
                      .dim = opt_int(a, "dim", 0),
                      .pairs = opt_int(a, "pairs", 4),
                      .draws = opt_int(a, "draws", 1000),
                      .seed = (uint64_t)opt_int(a, "seed", 0) };

    int code = read_values(a, "norms", "0.25,0.5,1", 0.001, 100, &w.norms);
    if (!code) code = read_values(a, "cosines", "-0.5,0,0.5", -1, 1, &w.cosines);
    if (code) return code;
    w.ctx = open_ctx(a, 1);
    if (!w.ctx) return EXIT_FAILED;
    struct progress progress;
    int             n = 0;
    while (opt_nth(a, "estimator", n))
        n++;
    progress_begin(&progress, a, "lengths", (int64_t)n * w.norms.n);
    w.progress = &progress;
    code = show(&w);
    foci_ctx_free(w.ctx);
    return code;
}
