/* analyse_dilution.c -- foci analyse --dilution: how the weight on one relevant key falls as
 * keys of noise are added.
 *
 * One query stands at the end of N keys, one of which, `distance` keys before it, is relevant.
 * The logits of the others are normal, with mean beta and standard deviation gamma; that of
 * the relevant one is beta + margin:
 *
 *     q = gamma sqrt(d) u,   k_j = (beta / gamma) u + z_j,   logits q.k_j / sqrt(d)
 *
 * with u of length 1 and z standard normal, its part along u set to margin / gamma for the
 * relevant key.  The value of that key is 1 and those of all others are 0: the output is the
 * weight of the key, in whatever way a mechanism computes it.  The gradient of values of
 * width 1 is the row of all weights.  Both take memory of N d, not N x N.  Weights that do
 * not sum to 1 are divided by the sum of their sizes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/analyse.h"
#include "cli/bench.h"
#include "cli/plot.h"
#include "foci/analyse.h"
#include "foci/mechanism.h"
#include "foci/stats.h"

enum { DIM = 64, DRAWS = 16, DISTANCE = 8, LOWEST = -6 /* power of ten on the axis */ };

static const double preset_margin = 6;

static const char lengths_preset[] = "16,64,256,1024,4096,16384,65536";

static const char *const specs_preset[] = { "softmax",          "softmax logn",
                                            "local(window=64)", "relu2",
                                            "linear",           "performer",
                                            "retention" };

enum { N_PRESETS = sizeof specs_preset / sizeof *specs_preset };

/* What is told of a row, and of one number of it over the draws. */
enum measure_id { WEIGHT, CONCENTRATION, N_MEASURES };

struct sample {
    int64_t n; /* draws that have such a number */
    double  mean, squares /* of differences from the mean */;
};

/* A mechanism on one number of keys. */
struct dilution_cell {
    foci_plan    *plan;
    float        *params;
    int64_t       queries; /* the last is the one that counts */
    struct sample of[N_MEASURES];
    double        theory; /* NaN: there is none */
};

struct dilution {
    const struct args    *a;
    foci_ctx             *ctx;
    struct values         lengths;
    const char          **specs;
    int                   n_specs;
    int64_t               dim, draws, most, distance;
    double                beta, gamma, margin;
    uint64_t              seed;
    struct dilution_cell *cells; /* [spec][length] */
    float                *q, *k, *v, *o, *d_o, *dq, *dk, *dv, *dparams;
    void                 *work, *saved;
};

static struct dilution_cell *cell_of(const struct dilution *d, int spec, int length)
{
    return &d->cells[spec * d->lengths.n + length];
}

/*
 * Samples (Welford)
 */

static void add(struct sample *s, double x)
{
    if (isnan(x)) return;
    const double far = x - s->mean;
    s->n++;
    s->mean += far / (double)s->n;
    s->squares += far * (x - s->mean);
}

/* Half the width of the 95 % interval of the mean. */
static double interval(const struct sample *s)
{
    const double n = (double)s->n;
    return s->n > 1 ? foci_t_quantile(0.975, n - 1) * sqrt(s->squares / (n - 1) / n)
                    : NAN;
}

static double mean_of(const struct sample *s) { return s->n ? s->mean : NAN; }

/*
 * What theory says: the weight of the key over the sum of all, their expectations in place of
 * those of noise
 */

static double predict(const struct dilution *d, const foci_plan *plan, double keys)
{
    foci_group   g = { FOCI_SIZED(foci_group) };
    const double x = d->beta + d->margin, t = d->beta / d->gamma,
                 gg = d->gamma * d->gamma;

    if (foci_plan_group(plan, 0, &g) || g.mech->n_mods) return NAN;
    if (!strcmp(g.mech->def->name, "softmax"))
        return 1 / (1 + (keys - 1) * exp(gg / 2 - d->margin));
    if (strcmp(g.mech->def->name, "relu2") != 0 || x <= 0) return NAN;
    const double below = erfc(-t / sqrt(2)) / 2;
    const double density = exp(-t * t / 2) / sqrt(2 * 3.14159265358979323846);
    const double noise =
        (d->beta * d->beta + gg) * below + d->beta * d->gamma * density;
    return x * x / (x * x + (keys - 1) * fmax(noise, 0));
}

/*
 * Plans
 */

/* A query at the end sees all keys, causal or not; mechanisms that need a query for each key
 * get keys for the others. */
static foci_status make_plan(const struct dilution *d, const char *spec, int64_t keys,
                             struct dilution_cell *c)
{
    foci_status status = FOCI_ERR_UNSUP;

    for (int i = 0; i < 4 && status == FOCI_ERR_UNSUP; i++) {
        const foci_problem p = { FOCI_SIZED(foci_problem),
                                 .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_MEMORY_GRADS |
                                          (i % 2 ? 0 : FOCI_FLAG_CAUSAL),
                                 .len_q = i < 2 ? 1 : keys,
                                 .len_k = keys,
                                 .dim_qk = d->dim,
                                 .dim_v = 1,
                                 .seed = d->seed };
        status = foci_plan_create(d->ctx, spec, &p, &c->plan);
        c->queries = p.len_q;
    }
    return status;
}

static void grow(size_t *most, size_t bytes)
{
    if (bytes > *most) *most = bytes;
}

static int make_plans(struct dilution *d)
{
    size_t work = 64, saved = 64, params = 1;

    for (int s = 0; s < d->n_specs; s++)
        for (int i = 0; i < d->lengths.n; i++) {
            struct dilution_cell *c = cell_of(d, s, i);
            const foci_status     status =
                make_plan(d, d->specs[s], (int64_t)d->lengths.x[i], c);
            if (status) return library_error(d->a, d->ctx, status, d->specs[s]);
            const size_t floats = (size_t)foci_plan_param_floats(c->plan);
            c->params = need(floats, sizeof *c->params);
            c->theory = predict(d, c->plan, d->lengths.x[i]);
            grow(&work, foci_plan_work_bytes(c->plan));
            grow(&saved, foci_plan_saved_bytes(c->plan));
            grow(&params, floats);
        }
    const size_t rows = (size_t)d->most, width = (size_t)d->dim;
    d->work = need(work, 1);
    d->saved = need(saved, 1);
    d->dparams = need(params, sizeof(float));
    d->q = need(rows * width, sizeof(float));
    d->dq = need(rows * width, sizeof(float));
    d->dk = need(rows * width, sizeof(float));
    d->v = need(rows, sizeof(float));
    d->dv = need(rows, sizeof(float));
    d->o = need(rows, sizeof(float));
    d->d_o = need(rows, sizeof(float));
    d->d_o[d->most - 1] = 1;
    d->v[d->most - 1 - d->distance] = 1;
    return EXIT_OK;
}

static void close_dilution(struct dilution *d)
{
    void *const blocks[] = { d->q,  d->k,  d->v,    d->o,     d->d_o,    d->dq,
                             d->dk, d->dv, d->work, d->saved, d->dparams };

    for (int i = 0; i < d->n_specs * d->lengths.n; i++) {
        foci_plan_free(d->cells[i].plan);
        free(d->cells[i].params);
    }
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
    free(d->cells);
    free(d->specs);
    foci_ctx_free(d->ctx);
}

/*
 * Draws
 */

/* A query behind others, and keys of which shorter rows take the last. */
static void draw_keys(struct dilution *d, uint64_t seed)
{
    const int64_t n = d->dim, relevant = d->most - 1 - d->distance;
    float        *u = bench_draw(FOCI_F32, (size_t)n, 2 * seed);
    double        length = 0;

    free(d->k);
    d->k = bench_draw(FOCI_F32, (size_t)(d->most * n), 2 * seed + 1);
    memcpy(d->q, d->k, (size_t)(d->most * n) * sizeof *d->q);
    for (int64_t t = 0; t < n; t++)
        length += (double)u[t] * (double)u[t];
    for (int64_t t = 0; t < n; t++) {
        u[t] /= (float)sqrt(length);
        d->q[(d->most - 1) * n + t] = (float)(d->gamma * sqrt((double)n)) * u[t];
    }
    for (int64_t j = 0; j < d->most; j++) {
        float *k = d->k + j * n;
        double along = 0;

        for (int64_t t = 0; j == relevant && t < n; t++)
            along += (double)k[t] * (double)u[t];
        const double shift =
            (d->beta + (j == relevant ? d->margin : 0)) / d->gamma - along;
        for (int64_t t = 0; t < n; t++)
            k[t] += (float)shift * u[t];
    }
    free(u);
}

/* The weight of the relevant key over all, and S, of one row. */
static foci_status execute(const struct dilution *d, const struct dilution_cell *c,
                           int64_t keys, double result[N_MEASURES])
{
    const int64_t    first = d->most - keys, ahead = d->most - c->queries;
    const foci_io    io = { FOCI_SIZED(foci_io),
                            .q = d->q + ahead * d->dim,
                            .k = d->k + first * d->dim,
                            .v = d->v + first,
                            .o = d->o,
                            .params = c->params,
                            .saved = d->saved,
                            .work = d->work };
    const foci_grads grads = { FOCI_SIZED(foci_grads),
                               .d_o = d->d_o + ahead,
                               .dq = d->dq,
                               .dk = d->dk,
                               .dv = d->dv,
                               .dparams = d->dparams };

    /* Statistics of random features, which causal plans want frozen, are those of the row. */
    foci_status status = foci_params_calibrate(c->plan, &io, c->params);
    if (!status) status = foci_forward(c->plan, &io);
    if (!status) status = foci_backward(c->plan, &io, &grads);
    if (status) return status;
    double sum = 0;
    for (int64_t j = 0; j < keys; j++)
        sum += fabs((double)d->dv[j]);
    result[WEIGHT] =
        (double)d->o[c->queries - 1] / sum; /* NaN: no key weighs anything */
    result[CONCENTRATION] = foci_concentration(d->dv, keys);
    return FOCI_OK;
}

static int measure_all(struct dilution *d)
{
    struct progress progress;
    foci_status     status = FOCI_OK;
    const char     *spec = NULL;

    progress_begin(&progress, d->a, "draws", d->draws);
    for (int64_t draw = 0; draw < d->draws && !status; draw++) {
        const uint64_t seed = d->seed + (uint64_t)draw;

        progress_tick(&progress, draw, "keys of noise");
        draw_keys(d, seed);
        for (int i = 0; i < d->n_specs * d->lengths.n && !status; i++) {
            struct dilution_cell *c = &d->cells[i];
            double                result[N_MEASURES];

            spec = d->specs[i / d->lengths.n];
            status = foci_params_init(c->plan, seed, c->params);
            if (!status)
                status = execute(d, c, (int64_t)d->lengths.x[i % d->lengths.n], result);
            for (int m = 0; m < N_MEASURES && !status; m++)
                add(&c->of[m], result[m]);
        }
    }
    progress_end(&progress);
    return status ? library_error(d->a, d->ctx, status, spec) : EXIT_OK;
}

/*
 * Results
 */

/* For people, or for a file with all digits. */
static struct output_table *make_table(const struct dilution *d, bool file)
{
    struct output_table *t = table_headed("lrrrrrr");

    table_pair(t, "mechanism", "keys");
    table_pair(t, "weight", file ? "weight_95" : "95 %%");
    table_pair(t, "S", file ? "S_95" : "95 %%");
    table_cell(t, "theory");
    for (int i = 0; i < d->n_specs * d->lengths.n; i++) {
        const struct dilution_cell *c = &d->cells[i];
        const int                   at = i % d->lengths.n;

        table_pair(t, at && !file ? "" : d->specs[i / d->lengths.n], "%.0f",
                   d->lengths.x[at]);
        for (int m = 0; m < N_MEASURES; m++) {
            number_cell(t, "%.3g", mean_of(&c->of[m]), file);
            number_cell(t, "%.2g", interval(&c->of[m]), file);
        }
        number_cell(t, "%.3g", c->theory, file);
    }
    return t;
}

static json_t *json_dilution(const struct dilution *d)
{
    json_t *list = json_array();

    for (int i = 0; i < d->n_specs * d->lengths.n; i++) {
        const struct dilution_cell *c = &d->cells[i];
        json_array_append_new(
            list, json_pack("{s:s, s:f, s:o, s:o, s:o, s:o, s:o}", "spec",
                            d->specs[i / d->lengths.n], "keys",
                            d->lengths.x[i % d->lengths.n], "weight",
                            json_number(mean_of(&c->of[WEIGHT])), "weight_95",
                            json_number(interval(&c->of[WEIGHT])), "S",
                            json_number(mean_of(&c->of[CONCENTRATION])), "S_95",
                            json_number(interval(&c->of[CONCENTRATION])), "theory",
                            json_number(c->theory)));
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o}", "dim",
                     (json_int_t)d->dim, "draws", (json_int_t)d->draws, "seed",
                     (json_int_t)d->seed, "distance", (json_int_t)d->distance, "beta",
                     d->beta, "gamma", d->gamma, "margin", d->margin, "results", list);
}

/*
 * The picture: a panel for the weight and one for S, both axes logarithmic
 */

static void set_axes(const struct dilution *d, struct frame *f)
{
    double low = 0.1;

    for (int i = 0; i < d->n_specs * d->lengths.n; i++)
        for (int m = 0; m < N_MEASURES; m++)
            if (d->cells[i].of[m].mean > 0) low = fmin(low, d->cells[i].of[m].mean);
    frame_axes(f, least_of(&d->lengths), most_of(&d->lengths), low, 1);
    f->bottom = fmax(floor(log10(low)), LOWEST);
}

static void draw_curve(struct picture *to, const struct dilution *d,
                       const struct frame *f, int spec, enum measure_id m)
{
    double mean[MAX_VALUES], theory[MAX_VALUES];

    for (int i = 0; i < d->lengths.n; i++) {
        const struct dilution_cell *c = cell_of(d, spec, i);
        const double                at[] = { d->lengths.x[i], d->lengths.x[i] },
                     half = interval(&c->of[m]);

        mean[i] = mean_of(&c->of[m]);
        theory[i] = c->theory;
        const double ends[] = { mean[i] - half, mean[i] + half };
        frame_curve(to, f, at, ends, 2, false, curve_colours[spec]);
    }
    frame_curve(to, f, d->lengths.x, mean, d->lengths.n, true, curve_colours[spec]);
    if (m == WEIGHT) frame_curve(to, f, d->lengths.x, theory, d->lengths.n, false, INK);
}

static foci_status draw(const struct dilution *d, const char *path)
{
    static const char *const panels[] = { "weight of the relevant key",
                                          "concentration S of the row" };
    struct frame             f = { .x = MARGIN + LEFT, .y = HEAD };
    struct picture          *to =
        picture_create(2 * MARGIN + LEFT + N_MEASURES * (PANEL_WIDTH + GUTTER) - GUTTER,
                       HEAD + PANEL_HEIGHT + BELOW + LEGEND * (d->n_specs + 1) + MARGIN,
                       "Dilution of one relevant key");
    const double y = HEAD + PANEL_HEIGHT + BELOW + 12;

    set_axes(d, &f);
    picture_text(to, MARGIN, 32, AT_START, STYLE_TITLE, INK,
                 "one relevant key among keys of noise");
    picture_text(
        to, MARGIN, 51, AT_START, STYLE_PLAIN, SOFT,
        "noise: logits of mean %g, deviation %g; relevant: %g above, %lld keys "
        "back; %lld draws",
        d->beta, d->gamma, d->margin, (long long)d->distance, (long long)d->draws);
    for (int m = 0; m < N_MEASURES; m++, f.x += PANEL_WIDTH + GUTTER) {
        picture_text(to, f.x, f.y - 10, AT_START, STYLE_PLAIN, INK, "%s", panels[m]);
        frame_grid(to, &f, !m, "keys", "share, and S");
        for (int s = 0; s < d->n_specs; s++)
            draw_curve(to, d, &f, s, (enum measure_id)m);
    }
    for (int s = 0; s < d->n_specs; s++)
        frame_legend(to, y + LEGEND * s, curve_colours[s], d->specs[s]);
    frame_legend(to, y + LEGEND * d->n_specs, INK, "theory of softmax and relu2");
    const foci_status status = picture_write(d->ctx, to, path);
    picture_free(to);
    return status;
}

static foci_status write_files(const struct dilution *d)
{
    const char *out = opt_text(d->a, "out"), *csv = opt_text(d->a, "csv");
    foci_status status = FOCI_OK;

    hold_signals();
    if (out) status = draw(d, out);
    if (csv && !status) {
        struct output_table *t = make_table(d, true);
        status = table_write_csv(d->ctx, t, csv);
        table_free(t);
    }
    release_signals();
    return status;
}

static int show(const struct dilution *d)
{
    const foci_status status = write_files(d);

    if (status) return library_error(d->a, d->ctx, status, NULL);
    if (d->a->json) return print_json(d->a, json_dilution(d));
    struct output_table *t = make_table(d, false);
    table_print(t, stdout);
    table_free(t);
    return EXIT_OK;
}

/*
 * The command line
 */

static void set_specs(struct dilution *d)
{
    int n = 0;

    while (opt_nth(d->a, "attention", n))
        n++;
    d->n_specs = n ? n : N_PRESETS;
    d->specs = need((size_t)d->n_specs, sizeof *d->specs);
    for (int i = 0; i < d->n_specs; i++)
        d->specs[i] = n ? opt_nth(d->a, "attention", i) : specs_preset[i];
}

static int read_one(const struct args *a, const char *name, const char *preset,
                    double min, double max, double *value)
{
    struct values v;
    const int     code = read_values(a, name, preset, min, max, &v);

    if (!code && v.n > 1)
        return usage_error(a, "--%s is '%s'; --dilution takes one number", name,
                           opt_text(a, name));
    *value = code ? 0 : v.x[0];
    return code;
}

static int read_options(struct dilution *d)
{
    int code = check_out(d->a);

    if (!code) code = read_one(d->a, "beta", "0", -1000, 1000, &d->beta);
    if (!code) code = read_one(d->a, "gamma", "1", 0.01, 100, &d->gamma);
    if (!code)
        code = read_whole(d->a, "lengths", lengths_preset, 2, MOST_KEYS, &d->lengths);
    if (code) return code;
    d->most = (int64_t)most_of(&d->lengths);
    if ((double)d->distance >= least_of(&d->lengths))
        return usage_error(
            d->a, "--distance is %lld; of %.0f keys the first is %.0f back",
            (long long)d->distance, least_of(&d->lengths), least_of(&d->lengths) - 1);
    set_specs(d);
    if (opt_text(d->a, "out") && d->n_specs > MAX_CURVES)
        return usage_error(d->a,
                           "--attention is given %d times; a picture has room for %d",
                           d->n_specs, MAX_CURVES);
    return EXIT_OK;
}

int analyse_dilution(const struct args *a)
{
    struct dilution d = { .a = a,
                          .dim = opt_int(a, "dim", DIM),
                          .draws = opt_int(a, "draws", DRAWS),
                          .distance = opt_int(a, "distance", DISTANCE),
                          .margin = opt_real(a, "margin", preset_margin),
                          .seed = (uint64_t)opt_int(a, "seed", 0) };
    int             code = read_options(&d);

    if (!code && !(d.ctx = open_ctx(a, (int)opt_int(a, "threads", 0))))
        code = EXIT_FAILED;
    if (!code) {
        d.cells = need((size_t)(d.n_specs * d.lengths.n), sizeof *d.cells);
        code = make_plans(&d);
    }
    if (!code) code = measure_all(&d);
    if (!code) code = show(&d);
    close_dilution(&d);
    return code;
}
