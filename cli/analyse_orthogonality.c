/* analyse_orthogonality.c -- foci analyse --orthogonality: measures of frozen projections and
 * of hidden states after them, beside those of theory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/analyse_limits.h"
#include "cli/plot.h"
#include "cli/tensors.h"
#include "foci/analyse.h"
#include "foci/mechanism.h"

enum { DRAWS = 32, ROWS = 256, MAX_ROWS = 1024, LEAST_DIM = 4, MAX_DIMS = 32 };

static const struct {
    const char *key, *text;
} names[FOCI_FIGURE_COUNT] = {
    [FOCI_FIGURE_GRAM] = { "gram", "largest entry of |W'W - I|" },
    [FOCI_FIGURE_SMALLEST] = { "smallest", "smallest singular value" },
    [FOCI_FIGURE_LARGEST] = { "largest", "largest singular value" },
    [FOCI_FIGURE_CONDITION] = { "condition", "condition number" },
    [FOCI_FIGURE_GAUSSIAN_SMALLEST] = { "gaussian_smallest",
                                        "  the same of gaussian: smallest" },
    [FOCI_FIGURE_GAUSSIAN_LARGEST] = { "gaussian_largest", "  largest" },
    [FOCI_FIGURE_GAUSSIAN_CONDITION] = { "gaussian_condition", "  condition number" },
    [FOCI_FIGURE_OVERLAP] = { "overlap", "overlap of two heads |W1'W2|^2" },
    [FOCI_FIGURE_LENGTH_MEAN] = { "length_mean", "|xW|^2: mean" },
    [FOCI_FIGURE_LENGTH_VARIANCE] = { "length_variance", "  variance" },
    [FOCI_FIGURE_TIED_MEAN] = { "tied_mean", "xW.yW, tied: mean" },
    [FOCI_FIGURE_TIED_VARIANCE] = { "tied_variance", "  variance" },
    [FOCI_FIGURE_UNTIED_MEAN] = { "untied_mean", "xWq.yWk, not tied: mean" },
    [FOCI_FIGURE_UNTIED_VARIANCE] = { "untied_variance", "  variance" },
    [FOCI_FIGURE_GRADIENT] = { "gradient", "gradient |GW'| / |G|" },
    [FOCI_FIGURE_GRADIENT_SPREAD] = { "gradient_spread",
                                      "  standard deviation of rows" },
    [FOCI_FIGURE_PARAMETERS] = { "parameters", "parameters saved" },
    [FOCI_FIGURE_FILE_BYTES] = { "file_bytes", "  bytes of a file" },
    [FOCI_FIGURE_TRAINING_BYTES] = { "training_bytes",
                                     "  bytes of training, with Adam" },
};

/* Of a frozen group of a spec. */
struct result {
    const char     *spec;
    int             group; /* -1: the spec has no other */
    foci_figure     figures[FOCI_FIGURE_COUNT];
    foci_distortion distortions[MAX_DIMS];
};

struct looks {
    const struct args  *a;
    foci_ctx           *ctx;
    int64_t             width, heads, dim, draws, rows;
    uint64_t            seed;
    struct array        x;
    int64_t             dims[MAX_DIMS];
    int                 n_dims;
    struct result      *results;
    int                 n;
    struct limits_view *limits; /* NULL: not wanted */
};

/*
 * Measuring
 */

static foci_status measure_group(const struct looks *l, const foci_plan *plan,
                                 int group, struct result *r)
{
    for (int i = 0; i < l->n_dims; i++)
        r->distortions[i].dim = l->dims[i];
    const foci_orthogonality_io io = { FOCI_SIZED(foci_orthogonality_io),
                                       .group = group,
                                       .width = l->width,
                                       .seed = l->seed,
                                       .draws = l->draws,
                                       .x = l->x.data,
                                       .rows = l->rows,
                                       .figures = r->figures,
                                       .distortions = r->distortions,
                                       .n_distortions = l->n_dims };
    return foci_orthogonality_run(plan, &io);
}

static bool is_frozen(const foci_group *g)
{
    for (size_t i = 0; i < g->mech->n_mods; i++)
        if (g->mech->mods[i].def->does & FOCI_MOD_FROZEN) return true;
    return false;
}

/* Groups that are frozen; of a spec with none the library says so. */
static foci_status measure_groups(struct looks *l, const foci_plan *plan,
                                  const char *spec)
{
    const int   before = l->n;
    foci_group  g = { FOCI_SIZED(foci_group) };
    foci_status status = FOCI_OK;

    const int groups = foci_plan_group_count(plan);
    for (int i = 0; i <= groups && !status; i++) {
        const bool last = i == groups;

        if (last && l->n > before) break;
        if (!last && (foci_plan_group(plan, i, &g) || !is_frozen(&g))) continue;
        struct result *r = need((size_t)l->n + 1, sizeof *r);
        if (l->n) memcpy(r, l->results, (size_t)l->n * sizeof *r);
        free(l->results);
        l->results = r;
        r[l->n] = (struct result){ .spec = spec, .group = groups > 1 ? i : -1 };
        status = measure_group(l, plan, last ? 0 : i, &r[l->n++]);
    }
    return status;
}

static int measure_spec(struct looks *l, const char *spec)
{
    foci_problem p = { FOCI_SIZED(foci_problem),
                       .batch = 1,
                       .heads = l->heads,
                       .len_q = 1,
                       .len_k = 1,
                       .dim_qk = l->dim,
                       .dim_v = l->dim };
    foci_plan   *plan;

    assume_x(&p);
    foci_status status = foci_plan_create(l->ctx, spec, &p, &plan);
    if (!status) {
        status = measure_groups(l, plan, spec);
        foci_plan_free(plan);
    }
    return status ? library_error(l->a, l->ctx, status, spec) : EXIT_OK;
}

static int measure_all(struct looks *l)
{
    struct progress progress;
    const char     *spec;
    int             n = 0, code = EXIT_OK;

    while (opt_nth(l->a, "orthogonality", n))
        n++;
    progress_begin(&progress, l->a, "specs", n);
    for (int i = 0; !code && (spec = opt_nth(l->a, "orthogonality", i)); i++) {
        progress_at(&progress, i, spec);
        code = measure_spec(l, spec);
    }
    progress_end(&progress);
    return code;
}

static int measure_limits(struct looks *l)
{
    l->limits = need(1, sizeof *l->limits);
    const foci_status status =
        limits_measure(l->ctx, l->a, l->width, l->dim, l->x.data, l->rows, l->limits);
    return status ? library_error(l->a, l->ctx, status, NULL) : EXIT_OK;
}

/*
 * Results
 */

static void result_name(const struct result *r, char *text, size_t cap)
{
    if (r->group < 0)
        snprintf(text, cap, "%s", r->spec);
    else
        snprintf(text, cap, "group %d of %s", r->group, r->spec);
}

static void table_number(struct output_table *t, int id, double x)
{
    if (isnan(x))
        table_cell(t, "-");
    else if (id >= FOCI_FIGURE_PARAMETERS)
        table_cell(t, "%.0f", x);
    else
        table_cell(t, "%.5g", x);
}

static void print_figures(const struct result *r)
{
    struct output_table *t = table_headed("lrrr");

    table_pair(t, "figure", "measured");
    table_pair(t, "error", "theory");
    for (int i = 0; i < FOCI_FIGURE_COUNT; i++) {
        const foci_figure *f = &r->figures[i];

        table_cell(t, "%s", names[i].text);
        table_number(t, i, f->measured);
        if (f->error > 0)
            table_cell(t, "%.1e", f->error);
        else
            table_cell(t, "%s", "");
        table_number(t, i, f->expected);
    }
    table_print(t, stdout);
    table_free(t);
}

static void print_distortions(const struct looks *l, const struct result *r)
{
    static const char *const heads[] = { "dim", "rms", "theory", "worst", "bound" };
    struct output_table     *t = table_headed("rrrrr");

    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < l->n_dims; i++) {
        const foci_distortion *d = &r->distortions[i];

        table_cell(t, "%lld", (long long)d->dim);
        table_cell(t, "%.4f", d->rms);
        table_cell(t, "%.4f", d->rms_expected);
        table_cell(t, "%.4f", d->worst);
        if (isnan(d->worst_expected))
            table_cell(t, "-");
        else
            table_cell(t, "%.4f", d->worst_expected);
    }
    table_print(t, stdout);
    table_free(t);
}

static void print_results(const struct looks *l)
{
    for (int i = 0; i < l->n; i++) {
        char name[512];

        result_name(&l->results[i], name, sizeof name);
        printf("%s%s: width %lld, heads of %lld\n\n", i ? "\n" : "", name,
               (long long)l->width, (long long)l->dim);
        print_figures(&l->results[i]);
        printf("\nsquared distances of %lld %s, relative change\n\n",
               (long long)l->rows, l->x.data ? "hidden states" : "random states");
        print_distortions(l, &l->results[i]);
    }
    if (l->limits) limits_print(l->limits);
}

static json_t *json_result(const struct looks *l, const struct result *r)
{
    json_t *figures = json_object(), *list = json_array();

    for (int i = 0; i < FOCI_FIGURE_COUNT; i++)
        json_object_set_new(figures, names[i].key,
                            json_pack("{s:o, s:o, s:o}", "measured",
                                      json_number(r->figures[i].measured), "error",
                                      json_number(r->figures[i].error), "theory",
                                      json_number(r->figures[i].expected)));
    for (int i = 0; i < l->n_dims; i++) {
        const foci_distortion *d = &r->distortions[i];
        json_array_append_new(
            list, json_pack("{s:I, s:o, s:o, s:o, s:o}", "dim", (json_int_t)d->dim,
                            "rms", json_number(d->rms), "theory",
                            json_number(d->rms_expected), "worst", json_number(d->worst),
                            "bound", json_number(d->worst_expected)));
    }
    return json_pack("{s:s, s:i, s:o, s:o}", "spec", r->spec, "group",
                     r->group < 0 ? 0 : r->group, "figures", figures, "distances", list);
}

static json_t *json_results(const struct looks *l)
{
    json_t *list = json_array();

    for (int i = 0; i < l->n; i++)
        json_array_append_new(list, json_result(l, &l->results[i]));
    json_t *limits = l->limits ? limits_json(l->limits) : NULL;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o*}", "width",
                     (json_int_t)l->width, "heads", (json_int_t)l->heads, "head_dim",
                     (json_int_t)l->dim, "draws", (json_int_t)l->draws, "rows",
                     (json_int_t)l->rows, "seed", (json_int_t)l->seed, "results", list,
                     "limits", limits);
}

/*
 * The picture: changes of distances over the dimension, as they are and at the worst
 */

static const double kept = 1e-4; /* less is not drawn: all columns keep all distances */

static double value_of(const foci_distortion *d, bool worst, bool theory)
{
    const double x = worst ? (theory ? d->worst_expected : d->worst)
                           : (theory ? d->rms_expected : d->rms);
    return x > kept ? x : NAN;
}

static void draw_lines(struct picture *to, const struct looks *l, const struct frame *f,
                       bool worst)
{
    double x[MAX_DIMS], y[MAX_DIMS];

    for (int theory = 0; theory < 2; theory++)
        for (int c = 0; c < l->n; c++) {
            for (int i = 0; i < l->n_dims; i++) {
                x[i] = (double)l->dims[i];
                y[i] = value_of(&l->results[c].distortions[i], worst, theory);
            }
            frame_curve(to, f, x, y, l->n_dims, !theory,
                        theory ? (uint32_t)SOFT : curve_colours[c]);
        }
}

static void set_axes(const struct looks *l, struct frame *f)
{
    double low = 1, high = 1;

    for (int c = 0; c < l->n; c++)
        for (int i = 0; i < l->n_dims; i++)
            for (int form = 0; form < 4; form++) {
                const double y =
                    value_of(&l->results[c].distortions[i], form % 2, form / 2);
                low = fmin(low, y); /* NaN does not count */
                high = fmax(high, y);
            }
    frame_axes(f, (double)l->dims[0], (double)l->width, low, high);
}

static foci_status draw(const struct looks *l, const char *path)
{
    static const char *const panels[] = { "root mean square over pairs",
                                          "the worst of all pairs" };
    const int                legend = LEGEND * (l->n + 1);
    struct frame             f = { .x = MARGIN + LEFT, .y = HEAD };
    struct picture          *to = picture_create(
                 2 * MARGIN + LEFT + 2 * (PANEL_WIDTH + GUTTER) - GUTTER,
                 HEAD + PANEL_HEIGHT + BELOW + legend + MARGIN, "Distances after projection");
    char name[512];

    set_axes(l, &f);
    picture_text(to, MARGIN, 32, AT_START, STYLE_TITLE, INK, "what projections keep");
    picture_text(to, MARGIN, 51, AT_START, STYLE_PLAIN, SOFT,
                 "squared distances of %lld %s of width %lld, scaled, seed %lld",
                 (long long)l->rows, l->x.data ? "hidden states" : "random states",
                 (long long)l->width, (long long)l->seed);
    for (int worst = 0; worst < 2; worst++, f.x += PANEL_WIDTH + GUTTER) {
        picture_text(to, f.x, f.y - 10, AT_START, STYLE_PLAIN, INK, "%s", panels[worst]);
        frame_grid(to, &f, !worst, "columns of W", "relative change");
        draw_lines(to, l, &f, worst);
    }
    const double y = HEAD + PANEL_HEIGHT + BELOW + 12;
    for (int c = 0; c < l->n; c++) {
        result_name(&l->results[c], name, sizeof name);
        frame_legend(to, y + LEGEND * c, curve_colours[c], name);
    }
    frame_legend(to, y + LEGEND * l->n, SOFT, "theory, and the bound for all pairs");
    const foci_status status = picture_write(l->ctx, to, path);
    picture_free(to);
    return status;
}

static int show(const struct looks *l)
{
    const char *out = opt_text(l->a, "out");
    foci_status status = FOCI_OK;

    if (out && l->n > MAX_CURVES)
        return usage_error(l->a, "there are %d groups; a picture has room for %d", l->n,
                           MAX_CURVES);
    if (out) {
        hold_signals();
        status = draw(l, out);
        release_signals();
    }
    if (status) return library_error(l->a, l->ctx, status, NULL);
    if (l->a->json) return print_json(l->a, json_results(l));
    print_results(l);
    return EXIT_OK;
}

/*
 * The command line
 */

/* 4, 8, 16, ... up to the width, and that of a head. */
static void set_dims(struct looks *l)
{
    for (int64_t dim = LEAST_DIM; dim < l->width; dim *= 2) {
        if (l->n_dims && l->dim > dim / 2 && l->dim < dim)
            l->dims[l->n_dims++] = l->dim;
        l->dims[l->n_dims++] = dim;
    }
    l->dims[l->n_dims++] = l->width;
}

static int read_x(struct looks *l, const char *path)
{
    char text[SHAPE_TEXT];
    int  code = array_load(l->a, l->ctx, "x", "x", path, &l->x);

    if (code) return code;
    if (l->x.n_dims < 2 || l->x.shape[l->x.n_dims - 1] != l->width)
        return failure(l->a, "%s is %s; --x takes rows of %lld numbers, N x %lld", path,
                       shape_text(l->x.n_dims, l->x.shape, "", text),
                       (long long)l->width, (long long)l->width);
    l->rows = l->x.count / l->width;
    if (l->rows < 2)
        return failure(l->a, "%s has %lld rows; distances need two", path,
                       (long long)l->rows);
    if (l->rows > MAX_ROWS) {
        note(l->a, "of %lld rows of %s the first %d count", (long long)l->rows, path,
             MAX_ROWS);
        l->rows = MAX_ROWS;
    }
    return EXIT_OK;
}

static int check(const struct looks *l)
{
    if (check_out(l->a)) return EXIT_USAGE;
    if (!opt_text(l->a, "head-dim") && l->width % l->heads)
        return usage_error(
            l->a,
            "--width %lld is no multiple of --heads %lld; --head-dim says "
            "how wide a head is",
            (long long)l->width, (long long)l->heads);
    return EXIT_OK;
}

int analyse_orthogonality(const struct args *a)
{
    struct looks l = { .a = a,
                       .width = opt_int(a, "width", 0),
                       .heads = opt_int(a, "heads", 1),
                       .draws = opt_int(a, "draws", DRAWS),
                       .rows = ROWS,
                       .seed = (uint64_t)opt_int(a, "seed", 0) };
    int          code = check(&l);

    if (code) return code;
    l.dim = opt_int(a, "head-dim", l.width / l.heads);
    set_dims(&l);
    l.ctx = open_ctx(a, 1);
    if (!l.ctx) return EXIT_FAILED;
    if (opt_text(a, "x")) code = read_x(&l, opt_text(a, "x"));
    if (!code) code = measure_all(&l);
    if (!code && opt_flag(a, "limits")) code = measure_limits(&l);
    if (!code) code = show(&l);
    free(l.limits);
    array_free(&l.x);
    free(l.results);
    foci_ctx_free(l.ctx);
    return code;
}
