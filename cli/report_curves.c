/* report_curves.c -- the figures of a comparison: learning curves, quality over examples, over
 * costs, over what was tuned, and over the slices of a task. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report.h"

struct curves {
    struct report                  *r;
    const struct report_comparison *k;
    const struct compare_metric    *m;
    json_t                         *runs;    /* as report_runs() */
    const json_t                   *level;   /* of the most examples */
    char                           *quality; /* "accuracy, %" */
    char                            floor[96];
    double                          floor_at; /* as shown; NAN: there is none */
};

static const json_t *record_of(const struct curves *v, const char *sort,
                               const json_t *run)
{
    return results_get(v->k->c.results, sort, field_text(run, "id"));
}

/* A run of this arm with the most examples. */
static bool is_shown(const struct curves *v, const json_t *run, const json_t *arm)
{
    return json_equal(json_object_get(run, "arm"), json_object_get(arm, "arm")) &&
           json_equal(json_object_get(run, "examples"),
                      json_object_get(v->level, "examples"));
}

/* The best of the rules that learn nothing, of accuracies alone. */
static void find_floor(struct curves *v)
{
    size_t  i;
    json_t *run;

    v->floor_at = NAN;
    if (strcmp(v->m->key, "accuracy") != 0) return;
    json_array_foreach(v->runs, i, run)
    {
        const json_t *valid = json_object_get(record_of(v, "runs", run), "valid");
        const char   *name;
        json_t       *floor;
        json_object_foreach(json_object_get(valid, "floors"), name, floor)
        {
            const double at = v->m->scale * json_number_value(floor);
            if (isfinite(v->floor_at) && at <= v->floor_at) continue;
            v->floor_at = at;
            snprintf(v->floor, sizeof v->floor, "floor: %s", name);
        }
    }
}

static void add_floor(const struct curves *v, struct chart *c)
{
    if (isfinite(v->floor_at)) chart_level(c, v->floor, v->floor_at);
}

/*
 * Learning curves
 */

enum { STEP, LOSS, VALID_LOSS, VALID_ACCURACY };

/* What is drawn of validations: the metric where they have it, else the loss. */
static double validated(const struct curves *v, const json_t *point)
{
    const bool    hits = !strcmp(v->m->key, "accuracy");
    const json_t *value = json_array_get(point, hits ? VALID_ACCURACY : VALID_LOSS);

    if (!json_is_number(value)) return NAN; /* of a run that diverged it is null */
    const double x = json_number_value(value);
    return hits ? 100 * x : !strcmp(v->m->key, "perplexity") ? exp(x) : x;
}

static const char *validated_name(const struct curves *v)
{
    if (!strcmp(v->m->key, "accuracy")) return "validation accuracy, %";
    if (!strcmp(v->m->key, "perplexity")) return "validation perplexity";
    return "validation loss, nats";
}

/* A curve at a step, a straight line between its points; NAN outside of it. */
static double curve_at(const struct curves *v, const json_t *curve, double step)
{
    for (size_t i = 0; i < json_array_size(curve); i++) {
        const json_t *b = json_array_get(curve, i);
        const double  x = json_number_value(json_array_get(b, STEP));
        if (x < step) continue;
        if (x <= step) return validated(v, b);
        if (!i) return NAN;
        const json_t *a = json_array_get(curve, i - 1);
        const double  from = json_number_value(json_array_get(a, STEP));
        const double  share = (step - from) / (x - from);
        return (1 - share) * validated(v, a) + share * validated(v, b);
    }
    return NAN;
}

/* The curves of all runs of an arm, [{step...}], done or on their way; to be released. */
static json_t *curves_of(const struct curves *v, const json_t *arm)
{
    json_t *list = json_array(), *run;
    size_t  i;

    json_array_foreach(v->runs, i, run)
    {
        const json_t *record = record_of(v, "runs", run);
        json_t       *curve = json_object_get(record, "curve");
        if (!is_shown(v, run, arm)) continue;
        if (json_array_size(curve)) {
            json_array_append(list, curve);
        } else if (!record) {
            char *folder = report_find(v->k, run, "log.jsonl");
            if (folder) json_array_append_new(list, run_curve(folder));
            free(folder);
        }
    }
    return list;
}

/* Mean, lowest and highest over the runs at every step of the longest one. */
static void add_learning(const struct curves *v, struct chart *c, const json_t *arm)
{
    json_t       *list = curves_of(v, arm);
    const json_t *longest = NULL;
    size_t        i, k;
    json_t       *curve, *point;

    json_array_foreach(list, i, curve)
    {
        if (json_array_size(curve) > json_array_size(longest)) longest = curve;
    }
    struct chart_series *s =
        longest ? chart_add(c, field_text(arm, "arm"),
                            report_number(v->r, field_text(arm, "arm")))
                : NULL;
    json_array_foreach(longest, k, point)
    {
        const double step = json_number_value(json_array_get(point, STEP));
        double       sum = 0, low = INFINITY, high = -INFINITY;
        int          n = 0;
        json_array_foreach(list, i, curve)
        {
            const double y = curve_at(v, curve, step);
            if (!isfinite(y)) continue;
            sum += y;
            n++;
            low = fmin(low, y);
            high = fmax(high, y);
        }
        if (n) chart_put(s, step, sum / n, n > 1 ? low : NAN, n > 1 ? high : NAN);
    }
    if (s) s->joined = s->band = true;
    json_decref(list);
}

static void put_learning(const struct curves *v)
{
    struct chart *c = chart_create("learning", "Learning curves", "training steps",
                                   validated_name(v));
    size_t        i;
    json_t       *arm;

    if (strcmp(v->m->key, "accuracy") != 0) c->y = CHART_TENS;
    json_array_foreach(json_object_get(v->level, "arms"), i, arm)
    {
        add_learning(v, c, arm);
    }
    chart_note(c,
               "Lines are means over seeds, bands reach from the lowest to the highest "
               "seed.");
    add_floor(v, c);
    report_figure(v->r, c);
}

/*
 * Quality over examples, costs, tuned values
 */

static void add_quality(const struct curves *v, struct chart_series *s, double x,
                        const json_t *arm)
{
    const double scale = v->m->scale;
    chart_put(s, x, scale * field_real(arm, "mean"), scale * field_real(arm, "low"),
              scale * field_real(arm, "high"));
}

static const char *const intervals = "Bars are 95 % t intervals over seeds; where they "
                                     "leave the frame they are cut.";

static void put_examples(const struct curves *v)
{
    const json_t *levels = json_object_get(v->k->summary, "levels");
    struct chart *c = chart_create("examples", "Quality over training examples",
                                   "examples to train on", v->quality);
    size_t        i, k;
    json_t       *level, *arm;
    char          text[32];

    c->x = CHART_NAMES;
    json_array_foreach(levels, i, level)
    {
        const double n = field_real(level, "examples");
        chart_name(c, n > 0 ? chart_number(n, text) : "all");
    }
    json_array_foreach(json_object_get(v->level, "arms"), k, arm)
    {
        const char          *name = field_text(arm, "arm");
        struct chart_series *s = chart_add(c, name, report_number(v->r, name));
        s->joined = s->marked = true;
        json_array_foreach(levels, i, level)
        {
            add_quality(v, s, (double)i,
                        json_array_get(json_object_get(level, "arms"), k));
        }
    }
    chart_note(c, "%s", intervals);
    add_floor(v, c);
    if (json_array_size(levels) > 1)
        report_figure(v->r, c);
    else
        chart_free(c);
}

/* Seconds of training, the mean over the runs of an arm. */
static double seconds_of(const struct curves *v, const json_t *arm)
{
    double  sum = 0;
    int     n = 0;
    size_t  i;
    json_t *run;

    json_array_foreach(v->runs, i, run)
    {
        const double x =
            field_real(json_object_get(record_of(v, "runs", run), "train"), "seconds");
        if (!is_shown(v, run, arm) || !(x > 0)) continue;
        sum += x;
        n++;
    }
    return n ? sum / n : NAN;
}

enum cost { COST_STATE, COST_SECONDS, COST_DECODING };

static double cost_of(const struct curves *v, const json_t *arm, enum cost cost)
{
    const json_t *costs = json_object_get(arm, "costs");

    switch (cost) {
    case COST_STATE: return field_real(costs, "state_bytes");
    case COST_SECONDS: return seconds_of(v, arm);
    default: return 1e6 / field_real(costs, "decoding_tokens_per_second");
    }
}

static void put_cost(const struct curves *v, enum cost cost)
{
    static const char *const words[][3] = {
        { "state", "Quality over the state of decoding", "bytes of state" },
        { "seconds", "Quality over time of training", "seconds a run" },
        { "decoding", "Quality over time of decoding", "microseconds a token" },
    };
    struct chart *c =
        chart_create(words[cost][0], words[cost][1], words[cost][2], v->quality);
    double  least = INFINITY, most = 0;
    size_t  i;
    json_t *arm;

    json_array_foreach(json_object_get(v->level, "arms"), i, arm)
    {
        const double x = cost_of(v, arm, cost);
        const char  *name = field_text(arm, "arm");
        if (!(x > 0) || !isfinite(x)) continue;
        struct chart_series *s = chart_add(c, name, report_number(v->r, name));
        s->marked = true;
        add_quality(v, s, x, arm);
        least = fmin(least, x);
        most = fmax(most, x);
    }
    c->x = most > 4 * least ? CHART_TENS : CHART_EVEN;
    c->front = true;
    c->lower = v->m->lower;
    chart_note(
        c, "The dashed line is the Pareto front: at this cost nothing is better. %s",
        intervals);
    add_floor(v, c);
    report_figure(v->r, c);
}

static double number_of(const json_t *text)
{
    const char *start = json_string_value(text);
    char       *end;

    if (!start || !*start) return NAN;
    const double x = strtod(start, &end);
    return *end ? NAN : x;
}

/* The best that each value of an option reaches, whatever the others are. */
static void add_tuned(const struct curves *v, struct chart *c, const json_t *curve,
                      const char *option)
{
    const json_t *values =
        json_object_get(json_object_get(v->k->c.definition, "tune"), option);
    const char          *name = field_text(curve, "arm");
    struct chart_series *s = chart_add(c, name, report_number(v->r, name));
    size_t               i, k;
    json_t              *value, *point;

    s->joined = s->marked = true;
    json_array_foreach(values, i, value)
    {
        double best = NAN;
        json_array_foreach(json_object_get(curve, "points"), k, point)
        {
            const double mean = v->m->scale * field_real(point, "mean");
            if (!json_equal(json_object_get(json_object_get(point, "values"), option),
                            value) ||
                !isfinite(mean))
                continue;
            if (!isfinite(best) || (v->m->lower ? mean < best : mean > best))
                best = mean;
        }
        chart_put(s, number_of(value), best, NAN, NAN);
    }
}

static void put_tuned(const struct curves *v, const char *option, const json_t *values)
{
    char         *id = compare_text("tune-%s", option);
    char         *title = compare_text("Quality over --%s", option);
    char         *quality = compare_text("%s, validation", v->quality);
    struct chart *c = chart_create(id, title, option, quality);
    double        least = INFINITY, most = -INFINITY;
    bool          numbers = true;
    size_t        i;
    json_t       *one;

    json_array_foreach(values, i, one)
    {
        numbers = numbers && isfinite(number_of(one));
        least = fmin(least, number_of(one));
        most = fmax(most, number_of(one));
    }
    c->x = least > 0 && most > 5 * least ? CHART_TENS : CHART_EVEN;
    json_array_foreach(json_object_get(v->k->summary, "tuning"), i, one)
    {
        if (numbers && json_equal(json_object_get(one, "examples"),
                                  json_object_get(v->level, "examples")))
            add_tuned(v, c, one, option);
    }
    chart_note(c, "The whole curve that tuning saw, on validation, of the seeds it was "
                  "judged by; runs that failed have no point.");
    add_floor(v, c);
    report_figure(v->r, c);
    free(id);
    free(title);
    free(quality);
}

/*
 * Slices
 */

/* The middle of what a value stands for. */
static double slice_at(const json_t *value)
{
    const double from = field_real(value, "from"), to = field_real(value, "to");

    if (isfinite(field_real(value, "value"))) return field_real(value, "value");
    return from > 0 && to > 0 ? sqrt(from * to) : (from + to) / 2;
}

static const json_t *slices_of(const struct curves *v, const json_t *run)
{
    const char *split = field_text(v->k->summary, "split");
    const bool  test = !strcmp(split, "test");

    return json_object_get(
        json_object_get(record_of(v, test ? "tests" : "runs", run), split), "slices");
}

/* Number `at` of a slice over the runs of an arm. */
static void add_slice(const struct curves *v, struct chart_series *s, const char *name,
                      const json_t *arm, size_t at)
{
    double  sum = 0, low = INFINITY, high = -INFINITY, x = NAN;
    int     n = 0;
    size_t  i;
    json_t *run;

    json_array_foreach(v->runs, i, run)
    {
        const json_t *value =
            json_array_get(json_object_get(slices_of(v, run), name), at);
        const double y = 100 * field_real(value, "accuracy");
        if (!is_shown(v, run, arm) || !isfinite(y)) continue;
        if (!isfinite(x)) x = slice_at(value);
        sum += y;
        n++;
        low = fmin(low, y);
        high = fmax(high, y);
    }
    if (n) chart_put(s, x, sum / n, n > 1 ? low : NAN, n > 1 ? high : NAN);
}

static void put_slice(const struct curves *v, const char *name, const json_t *values)
{
    char         *id = compare_text("slice-%s", name);
    char         *title = compare_text("Accuracy over %s", name);
    struct chart *c = chart_create(id, title, name, "accuracy, %");
    const size_t  n = json_array_size(values);
    const double  least = slice_at(json_array_get(values, 0));
    const double  most = slice_at(json_array_get(values, n - 1));
    size_t        i;
    json_t       *arm;

    c->x = least > 0 && most >= 8 * least ? CHART_TWOS : CHART_EVEN;
    json_array_foreach(json_object_get(v->level, "arms"), i, arm)
    {
        const char          *of = field_text(arm, "arm");
        struct chart_series *s = chart_add(c, of, report_number(v->r, of));
        s->joined = s->band = s->marked = true;
        for (size_t k = 0; k < n; k++)
            add_slice(v, s, name, arm, k);
    }
    chart_note(c, "Means over seeds, bands reach from the lowest to the highest seed.");
    add_floor(v, c);
    report_figure(v->r, c);
    free(id);
    free(title);
}

static void put_slices(const struct curves *v)
{
    const json_t *slices = NULL;
    size_t        i;
    json_t       *run, *values;
    const char   *name;

    json_array_foreach(v->runs, i, run)
    {
        if (!slices) slices = slices_of(v, run);
    }
    json_object_foreach((json_t *)slices, name, values)
    {
        if (json_array_size(values) > 1) put_slice(v, name, values);
    }
}

/*
 * All
 */

void report_put_curves(struct report *r, struct report_comparison *k)
{
    const json_t *levels = json_object_get(k->summary, "levels");
    struct curves v = { .r = r,
                        .k = k,
                        .m = compare_metric_of(k->c.definition),
                        .runs = report_runs(k),
                        .level = json_array_get(levels, json_array_size(levels) - 1) };
    const char   *option;
    json_t       *values;

    v.quality = v.m->scale > 1 ? compare_text("%s, %%", v.m->name)
                               : compare_text("%s", v.m->name);
    find_floor(&v);
    put_learning(&v);
    put_examples(&v);
    put_cost(&v, COST_STATE);
    put_cost(&v, COST_SECONDS);
    put_cost(&v, COST_DECODING);
    json_object_foreach(json_object_get(k->c.definition, "tune"), option, values)
    {
        put_tuned(&v, option, values);
    }
    put_slices(&v);
    free(v.quality);
    json_decref(v.runs);
}
