/* analyse.c -- foci analyse: the quality of estimates by random features; outputs are in
 * analyse_error.c, frozen projections in analyse_orthogonality.c, how evenly weights are
 * spread in analyse_theory.c and analyse_dilution.c.
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
        table_cell(t, "%.3e", c->predicted);
        table_cell(t, "%.3f", c->variance / c->predicted);
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

static int analyse_estimator(const struct args *a)
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

/* Forms of the verb, and the options that each takes. */
static const struct form {
    const char *name;
    int (*run)(const struct args *a);
    const char *needs; /* NULL: nothing */
    const char *takes[12];
} forms[] = {
    { "estimator", analyse_estimator, "dim", { "draws", "norms", "cosines", "pairs" } },
    { "error", analyse_error, "dim", { "length", "keys", "spreads", "out", "threads" } },
    { "orthogonality",
      analyse_orthogonality,
      "width",
      { "heads", "head-dim", "draws", "x", "out" } },
    { "theory",
      analyse_theory,
      NULL,
      { "beta", "gamma", "ratio", "features", "lambda", "lengths", "draws", "out",
        "csv" } },
    { "dilution",
      analyse_dilution,
      NULL,
      { "attention", "beta", "gamma", "margin", "distance", "lengths", "dim", "draws",
        "out", "csv", "threads" } },
};

enum { N_FORMS = sizeof forms / sizeof *forms };

static bool takes(const struct form *f, const char *name)
{
    for (int i = 0; f->takes[i]; i++)
        if (!strcmp(f->takes[i], name)) return true;
    return f->needs && !strcmp(f->needs, name);
}

/* Refuse an option of other forms, and name them. */
static int foreign(const struct args *a, const char *name)
{
    char text[160] = "";
    int  left = 0;

    for (int i = 0; i < N_FORMS; i++)
        left += takes(&forms[i], name);
    for (int i = 0; i < N_FORMS; i++)
        if (takes(&forms[i], name)) {
            left--;
            snprintf(text + strlen(text), sizeof text - strlen(text), "--%s%s",
                     forms[i].name,
                     left > 1 ? ", "
                     : left   ? " and "
                              : "");
        }
    return usage_error(a, "--%s belongs to %s", name, text);
}

/* An option that belongs to other forms only. */
static int check_options(const struct args *a, const struct form *f)
{
    for (int i = 0; i < N_FORMS; i++)
        if (&forms[i] != f && opt_flag(a, forms[i].name))
            return usage_error(a, "--%s and --%s do not go together", f->name,
                               forms[i].name);
    if (f->needs && !opt_text(a, f->needs))
        return usage_error(a, "--%s is missing; usage: foci analyse --%s SPEC --%s N",
                           f->needs, f->name, f->needs);
    for (int i = 0; i < N_FORMS; i++) {
        for (int t = forms[i].needs ? -1 : 0; t < 0 || forms[i].takes[t]; t++) {
            const char *name = t < 0 ? forms[i].needs : forms[i].takes[t];
            if (opt_text(a, name) && !takes(f, name)) return foreign(a, name);
        }
    }
    return EXIT_OK;
}

static int run(const struct args *a)
{
    for (int i = 0; i < N_FORMS; i++)
        if (opt_flag(a, forms[i].name)) {
            const int code = check_options(a, &forms[i]);
            return code ? code : forms[i].run(a);
        }
    return usage_error(
        a, "--estimator, --error, --orthogonality, --theory or --dilution is "
           "missing; usage: foci analyse --estimator SPEC --dim D, for "
           "instance");
}
static const struct option options[] = {
    { .name = "estimator",
      .arg = "SPEC",
      .help = "random features to look at, each in rows of its own",
      .kind = KIND_TEXT,
      .many = true },
    { .name = "error",
      .arg = "SPEC",
      .help = "mechanisms whose outputs are held against those of softmax",
      .kind = KIND_TEXT,
      .many = true },
    { .name = "orthogonality",
      .arg = "SPEC",
      .help = "frozen projections to look at",
      .kind = KIND_TEXT,
      .many = true },
    { .name = "theory",
      .arg = "KIND",
      .help = "how evenly weights of random keys are spread: exp, relu2, ...",
      .kind = KIND_WORD,
      .words = "exp|relu2|identity|linear|decay" },
    { .name = "dilution",
      .help = "the weight of one relevant key as keys of noise are added" },
    { .name = "attention",
      .arg = "SPEC",
      .help = "mechanisms of --dilution (default seven)",
      .kind = KIND_TEXT,
      .many = true },
    { .name = "beta",
      .arg = "LIST",
      .help = "means of the logits of noise (--theory: -4 to 4, --dilution: 0)",
      .kind = KIND_TEXT },
    { .name = "gamma",
      .arg = "LIST",
      .help = "their standard deviations (--dilution: 1)",
      .kind = KIND_TEXT },
    { .name = "margin",
      .arg = "M",
      .help = "how far the logit of the relevant key is above beta (default 6)",
      .kind = KIND_REAL,
      .min = -1000,
      .max = 1000 },
    { .name = "distance",
      .arg = "N",
      .help = "keys from the query back to the relevant one (default 8)",
      .kind = KIND_WHOLE,
      .max = MOST_KEYS },
    { .name = "lengths",
      .arg = "LIST",
      .help = "keys of --theory decay (1 to 4096) and --dilution (16 to 65536)",
      .kind = KIND_TEXT },
    { .name = "lambda",
      .arg = "LIST",
      .help = "decays of --theory decay (default 0.5,0.9,0.99,0.999)",
      .kind = KIND_TEXT },
    { .name = "ratio",
      .arg = "LIST",
      .help = "standard deviations of features over their means (default 0..4:9)",
      .kind = KIND_TEXT },
    { .name = "features",
      .arg = "LIST",
      .help = "how many there are, for --theory linear (default 1,4,16,64)",
      .kind = KIND_TEXT },
    { .name = "dim",
      .arg = "D",
      .help = "width of queries and keys (--dilution: 64)",
      .kind = KIND_WHOLE,
      .min = 2,
      .max = MAX_DIM },
    { .name = "draws",
      .arg = "N",
      .help = "random draws (1000; projections 32, --theory 100000, --dilution 16)",
      .kind = KIND_WHOLE,
      .min = 2,
      .max = 1e9 },
    { .name = "norms",
      .arg = "LIST",
      .help = "lengths of x and y (default 0.25,0.5,1)",
      .kind = KIND_TEXT },
    { .name = "cosines",
      .arg = "LIST",
      .help = "of the angles between them (default -0.5,0,0.5)",
      .kind = KIND_TEXT },
    { .name = "pairs",
      .arg = "N",
      .help = "random pairs of each length and angle (default 4)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 10000 },
    { .name = "seed",
      .arg = "N",
      .help = "draw everything from this seed (default 0)",
      .kind = KIND_WHOLE,
      .max = MOST_WHOLE },
    { .name = "length",
      .arg = "N",
      .help = "tokens of --error (default 512)",
      .kind = KIND_WHOLE,
      .min = 2,
      .max = 65536 },
    { .name = "keys",
      .arg = "KIND",
      .help = "q and k of --error: gaussian, clustered, or both (default)",
      .kind = KIND_WORD,
      .words = "gaussian|clustered|both" },
    { .name = "spreads",
      .arg = "LIST",
      .help = "standard deviations of the logits (default 0.25 to 8)",
      .kind = KIND_TEXT },
    { .name = "out",
      .arg = "FILE",
      .help = "where a picture goes: .svg or .png; not of --estimator",
      .kind = KIND_TEXT },
    { .name = "csv",
      .arg = "FILE",
      .help = "where the table of --theory or --dilution goes with all digits",
      .kind = KIND_TEXT },
    { .name = "width",
      .arg = "W",
      .help = "of the hidden states of --orthogonality",
      .kind = KIND_WHOLE,
      .min = 2,
      .max = 16384 },
    { .name = "heads",
      .arg = "H",
      .help = "of --orthogonality (default 1)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1024 },
    { .name = "head-dim",
      .arg = "D",
      .help = "width of a head (default W / H)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 16384 },
    { .name = "x",
      .arg = "FILE",
      .help = "hidden states whose distances count: N x W (default normal ones)",
      .kind = KIND_TEXT },
    OPTION_THREADS,
    { 0 },
};

static const char *const examples[] = {
    "foci analyse --estimator performer --dim 64",
    "foci analyse --estimator performer --estimator 'performer(kind=hyp)' --dim 16",
    "foci analyse --estimator 'performer(rows=unit)' --dim 8 --norms 1 --draws 9999",
    "foci analyse --error linear --error performer --dim 64 --out errors.svg",
    "foci analyse --orthogonality orthogonal --width 256 --heads 4",
    "foci analyse --orthogonality orthogonal --width 512 --x x.npy --out kept.svg",
    "foci analyse --theory relu2 --beta -6..6:13 --gamma 1 --out relu2.svg",
    "foci analyse --theory decay --lambda 0.9,0.99 --lengths 50,500",
    "foci analyse --dilution --attention softmax --attention relu2 --out d.svg",
    NULL,
};

const struct verb verb_analyse = {
    .name = "analyse",
    .run = run,
    .summary = "random features, errors, frozen projections, concentration of weights",
    .usage = "--estimator|--error|--orthogonality SPEC, --theory KIND or --dilution",
    .options = options,
    .examples = examples,
    .notes =
        "x = sqrt(s) q and y = sqrt(s) k are random pairs of equal length; exact is "
        "e^(x.y),\n"
        "or e^(-|x-y|^2/2) with kernel=gaussian.  mean, with its standard error, and "
        "variance\n"
        "are those of the estimates that draws of omega give; closed form is the "
        "variance of\n"
        "independent rows, and ratio the measured one over it: below 1 where "
        "orthogonal rows\n"
        "help.  Statistics that a kind needs are those of random rows of that "
        "length.\n\n"
        "--error prints |o - o'| / |o'| over all rows, o' of softmax, for q and k "
        "scaled so that\n"
        "the logits s q.k of all pairs have the standard deviation at the head of the "
        "column.\n"
        "q, k and v are standard normal; clustered q and k are drawn around 16 "
        "centres.  The\n"
        "number is the root mean square of 8 heads, each with tensors of its own.\n\n"
        "--orthogonality draws the frozen query and key projections of layers, W of W "
        "x "
        "D a\n"
        "head, and prints what they do to hidden states x and y of length 1 with the "
        "cosine 1/2,\n"
        "with the standard error of what is a mean over draws, beside what theory "
        "says: "
        "of\n"
        "frames, or of normal entries with frozen(gaussian).  The second table is the "
        "change of\n"
        "squared distances, scaled by W/D, of all pairs of hidden states; bound is "
        "that "
        "of Johnson\n"
        "and Lindenstrauss, for all pairs at once, - where it says nothing.\n\n"
        "--theory prints S = E|a| / sqrt(E a^2) of weights a: 1 where all are the "
        "same, "
        "near 0\n"
        "where few keys have nearly all.  exp, relu2 and identity weigh normal logits "
        "of "
        "mean\n"
        "--beta and standard deviation --gamma; linear sums --features of them that "
        "are "
        "not\n"
        "negative; decay is lambda^(n-1), ..., 1.  Beside it stands the same number "
        "by\n"
        "integration and from random draws, with its standard error.\n\n"
        "--dilution puts a query behind N keys: one relevant, with the logit beta + "
        "margin, the\n"
        "others noise around beta.  weight is that of the relevant key over the sum of "
        "all sizes\n"
        "of weights, S that of the row; both are means over draws with half the width "
        "of "
        "their\n"
        "95 % interval.  theory takes expectations in place of the sum over noise: "
        "e^m / (e^m +\n"
        "(N - 1) e^(gamma^2 / 2)) for softmax with the margin m.\n\n"
        "A LIST is 1,2,5 or 0..1:11, eleven numbers from 0 to 1, or both with commas.",
};
