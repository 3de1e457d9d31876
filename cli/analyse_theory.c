/* analyse_theory.c -- foci analyse --theory: how evenly weights of random keys are spread, in
 * closed form, beside the same number by integration and from random draws.
 *
 * Each kind of weights has two numbers: curves run over the first, and each value of the
 * second has its own.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/analyse.h"
#include "cli/plot.h"
#include "foci/analyse.h"

enum { DRAWS = 100000, FINE = 121 }; /* points of a line */

enum axis_id { BETA, GAMMA, RATIO, FEATURES, LAMBDA, LENGTHS, N_AXES };

static const struct axis {
    const char *option, *title;
    double      min, max;
    bool        whole;
} axes[N_AXES] = {
    [BETA] = { "beta", "beta, the mean of the logits", -1000, 1000, false },
    [GAMMA] = { "gamma", "gamma, the standard deviation of the logits", 0, 1000, false },
    [RATIO] = { "ratio", "standard deviation of a feature over its mean", 0, 1000,
                false },
    [FEATURES] = { "features", NULL, 1, 65536, true },
    [LAMBDA] = { "lambda", NULL, 0, 1, false },
    [LENGTHS] = { "lengths", "keys", 1, MOST_KEYS, true },
};

static const struct kind_of_weights {
    const char  *name, *text;
    enum axis_id x, each; /* what curves run over, and what each has its own of */
    const char  *preset_x, *preset_each;
} kinds[FOCI_CONCENTRATION_COUNT] = {
    [FOCI_CONCENTRATION_EXP] = { "exp", "weights e^x of normal logits x, as of softmax",
                                 GAMMA, BETA, "0..4:9", "0" },
    [FOCI_CONCENTRATION_RELU2] = { "relu2", "weights max(x, 0)^2 of normal logits x",
                                   BETA, GAMMA, "-4..4:9", "0.5,1,2" },
    [FOCI_CONCENTRATION_IDENTITY] = { "identity",
                                      "weights x of normal logits x, of either sign",
                                      BETA, GAMMA, "-4..4:9", "0.5,1,2" },
    [FOCI_CONCENTRATION_LINEAR] = { "linear",
                                    "weights q.k of features >= 0, all q the same",
                                    RATIO, FEATURES, "0..4:9", "1,4,16,64" },
    [FOCI_CONCENTRATION_DECAY] = { "decay", "weights lambda^(n-1), ..., lambda, 1",
                                   LENGTHS, LAMBDA, "1,4,16,64,256,1024,4096",
                                   "0.5,0.9,0.99,0.999" },
};

struct row {
    double x, each;
    double s, quadrature, sample, error;
};

struct theory {
    const struct args            *a;
    const struct kind_of_weights *kind;
    struct values                 x, each;
    int64_t                       draws;
    uint64_t                      seed;
    struct row                   *rows; /* [each.n][x.n] */
};

/*
 * Numbers
 */

static foci_concentration_law law_of(const struct theory *t, double x, double each)
{
    double at[N_AXES] = { 0 };

    at[t->kind->x] = x;
    at[t->kind->each] = each;
    return (foci_concentration_law){ FOCI_SIZED(foci_concentration_law),
                                     .kind = (foci_concentration_kind)(t->kind - kinds),
                                     .beta = at[BETA],
                                     .gamma = at[GAMMA],
                                     .dim = (int64_t)at[FEATURES],
                                     .ratio = at[RATIO],
                                     .lambda = at[LAMBDA],
                                     .n = (int64_t)at[LENGTHS] };
}

static foci_status compute(const struct theory *t)
{
    const int       n = t->each.n * t->x.n;
    foci_status     status = FOCI_OK;
    struct progress progress;

    progress_begin(&progress, t->a, "rows", n);
    for (int i = 0; i < n && !status; i++) {
        struct row *r = &t->rows[i];

        progress_tick(&progress, i, t->kind->name);

        r->x = t->x.x[i % t->x.n];
        r->each = t->each.x[i / t->x.n];
        const foci_concentration_law law = law_of(t, r->x, r->each);
        status = foci_concentration_theory(&law, &r->s);
        if (!status) status = foci_concentration_quadrature(&law, &r->quadrature);
        if (!status)
            status = foci_concentration_sample(&law, t->draws, t->seed + (uint64_t)i,
                                               &r->sample, &r->error);
    }
    progress_end(&progress);
    return status;
}

/*
 * Results
 */

/* For people, or for a file with all digits. */
static struct output_table *make_table(const struct theory *t, bool file)
{
    struct output_table *out = table_headed("rrrrrr");

    table_pair(out, axes[t->kind->each].option, "%s", axes[t->kind->x].option);
    table_pair(out, file ? "closed_form" : "closed form", "integrated");
    table_pair(out, "drawn", "error");
    for (int i = 0; i < t->each.n * t->x.n; i++) {
        const struct row *r = &t->rows[i];
        number_cell(out, "%g", r->each, file);
        number_cell(out, "%g", r->x, file);
        number_cell(out, "%.7g", r->s, file);
        number_cell(out, "%.7g", r->quadrature, file);
        number_cell(out, "%.5g", r->sample, file);
        number_cell(out, "%.1e", r->error, file);
    }
    return out;
}

static json_t *json_theory(const struct theory *t)
{
    json_t *list = json_array();

    for (int i = 0; i < t->each.n * t->x.n; i++) {
        const struct row *r = &t->rows[i];
        json_array_append_new(
            list, json_pack("{s:f, s:f, s:o, s:o, s:o, s:f}", axes[t->kind->each].option,
                            r->each, axes[t->kind->x].option, r->x, "closed_form",
                            json_number(r->s), "integrated", json_number(r->quadrature),
                            "drawn", json_number(r->sample), "error", r->error));
    }
    return json_pack("{s:s, s:I, s:I, s:o}", "theory", t->kind->name, "draws",
                     (json_int_t)t->draws, "seed", (json_int_t)t->seed, "results", list);
}

/*
 * The picture: closed forms as lines, what was drawn as squares on them
 */

static void draw_line(struct picture *to, const struct theory *t, const struct frame *f,
                      int curve)
{
    const bool   whole = axes[t->kind->x].whole;
    const double least = least_of(&t->x), most = most_of(&t->x);
    double       x[FINE], y[FINE];

    for (int i = 0; i < FINE; i++) {
        const double share = (double)i / (FINE - 1);
        x[i] = f->even_x ? least + share * (most - least)
                         : least * pow(most / least, share);
        if (whole) x[i] = round(x[i]);
        const foci_concentration_law law = law_of(t, x[i], t->each.x[curve]);
        if (foci_concentration_theory(&law, &y[i])) y[i] = NAN;
    }
    frame_curve(to, f, x, y, FINE, false, curve_colours[curve]);
    for (int i = 0; i < t->x.n; i++) {
        const struct row *r = &t->rows[curve * t->x.n + i];
        frame_marks(to, f, &r->x, &r->sample, 1, curve_colours[curve]);
    }
}

static foci_status draw(const struct theory *t, foci_ctx *ctx, const char *path)
{
    const struct axis *x = &axes[t->kind->x], *each = &axes[t->kind->each];
    struct frame       f = { .x = MARGIN + LEFT, .y = HEAD };
    struct picture    *to =
        picture_create(2 * MARGIN + LEFT + PANEL_WIDTH + GUTTER,
                       HEAD + PANEL_HEIGHT + BELOW + LEGEND * (t->each.n + 1) + MARGIN,
                       "Concentration of weights");
    const double y = HEAD + PANEL_HEIGHT + BELOW + 12;
    const double least = least_of(&t->x), most = most_of(&t->x);
    char         name[64];

    frame_axes(&f, fmax(least, 1), fmax(most, 1), 0.5, 1);
    if (!x->whole) frame_even_x(&f, least, most);
    frame_even_y(&f, 0, 1);
    picture_text(to, MARGIN, 32, AT_START, STYLE_TITLE, INK, "S = E|a| / sqrt(E a^2)");
    picture_text(to, MARGIN, 51, AT_START, STYLE_PLAIN, SOFT, "%s", t->kind->text);
    frame_grid(to, &f, true, x->title, "concentration S");
    for (int c = 0; c < t->each.n; c++) {
        draw_line(to, t, &f, c);
        snprintf(name, sizeof name, "%s %g", each->option, t->each.x[c]);
        frame_legend(to, y + LEGEND * c, curve_colours[c], name);
    }
    picture_text(to, MARGIN + LEFT, y + LEGEND * t->each.n, AT_START, STYLE_PLAIN, SOFT,
                 "lines: closed form; squares: %lld random draws", (long long)t->draws);
    const foci_status status = picture_write(ctx, to, path);
    picture_free(to);
    return status;
}

static int show(const struct theory *t)
{
    const char          *out = opt_text(t->a, "out"), *csv = opt_text(t->a, "csv");
    struct output_table *table = make_table(t, false), *file = make_table(t, true);
    foci_ctx            *ctx = open_ctx(t->a, 1);
    foci_status          status = FOCI_OK;
    int                  code = EXIT_OK;

    if (ctx) {
        hold_signals();
        if (out) status = draw(t, ctx, out);
        if (csv && !status) status = table_write_csv(ctx, file, csv);
        release_signals();
    }
    if (!ctx || status)
        code = ctx ? library_error(t->a, ctx, status, NULL) : EXIT_FAILED;
    else if (t->a->json)
        code = print_json(t->a, json_theory(t));
    else
        table_print(table, stdout);
    table_free(table);
    table_free(file);
    foci_ctx_free(ctx);
    return code;
}

/*
 * The command line
 */

static int read_axis(const struct args *a, const struct axis *x, const char *preset,
                     struct values *v)
{
    return (x->whole ? read_whole : read_values)(a, x->option, preset, x->min, x->max,
                                                 v);
}

static int check(const struct theory *t)
{
    for (int i = 0; i < N_AXES; i++)
        if (opt_text(t->a, axes[i].option) && i != (int)t->kind->x &&
            i != (int)t->kind->each)
            return usage_error(t->a, "--theory %s has no --%s; it has --%s and --%s",
                               t->kind->name, axes[i].option, axes[t->kind->x].option,
                               axes[t->kind->each].option);
    return check_out(t->a);
}

int analyse_theory(const struct args *a)
{
    struct theory t = { .a = a,
                        .kind = &kinds[opt_word(a, "theory", 0)],
                        .draws = opt_int(a, "draws", DRAWS),
                        .seed = (uint64_t)opt_int(a, "seed", 0) };
    int           code = check(&t);

    if (!code) code = read_axis(a, &axes[t.kind->x], t.kind->preset_x, &t.x);
    if (!code) code = read_axis(a, &axes[t.kind->each], t.kind->preset_each, &t.each);
    if (code) return code;
    if (opt_text(a, "out") && t.each.n > MAX_CURVES)
        return usage_error(a, "--%s has %d values; a picture has room for %d",
                           axes[t.kind->each].option, t.each.n, MAX_CURVES);
    t.rows = need((size_t)(t.x.n * t.each.n), sizeof *t.rows);
    const foci_status status = compute(&t);
    code = status ? library_error(a, NULL, status, NULL) : show(&t);
    free(t.rows);
    return code;
}
