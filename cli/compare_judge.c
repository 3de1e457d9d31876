/* compare_judge.c -- statistics of a comparison's runs: means with intervals, differences to
 * the baseline by pairs of runs with the same seed, verdicts; and what tuning found.
 *
 * A difference of a metric whose margin is in percent is that of logarithms.  All
 * differences of one table are one family: their p values are adjusted together (Holm).
 * Runs without a number (crashed, not finite) are left out of means and counted; runs below
 * the floor of a task are counted as failed too, and stay in the mean, which would be too
 * good without them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/comparison.h"
#include "foci/stats.h"

/* JSON has no infinities. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* The runs of an arm with one number of examples. */
struct judged_arm {
    const json_t *arm;
    double       *value; /* [seeds] as the metric is; NAN: there is none */
    int64_t       seeds, done, failed, below;
    json_t       *runs;    /* [{"seed", "status", "value"}] */
    const char  **outputs; /* [seeds] files of test results; NULL: there is none */
    json_t       *values;  /* tuned */
    const json_t *costs;
    double        speed; /* training tokens a second, the mean */
    double        peak;  /* bytes, the most */
    foci_pairs    pairs;
};

struct judgement {
    const struct comparison     *c;
    const struct compare_metric *m;
    int64_t                      seed, seeds;
    const char                  *split;
    const json_t                *grid;
    double                      *mean; /* [points of the grid] */
    json_t                      *summary;
    double                      *p;     /* of all differences, in order */
    json_t                     **holds; /* the object that each p goes into */
    int64_t                      n_p;
};

/*
 * Runs
 */

static const json_t *record_of(const struct judgement *j, const char *sort,
                               const json_t *run)
{
    return results_get(j->c->results, sort,
                       json_string_value(json_object_get(run, "id")));
}

/* The metric on the split that is judged. */
static double quality_of(const struct judgement *j, const json_t *run)
{
    const bool    test = !strcmp(j->split, "test");
    const json_t *record = record_of(j, test ? "tests" : "runs", run);
    const json_t *value = json_object_get(json_object_get(record, j->split), j->m->key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void take_run(struct judgement *j, struct judged_arm *x, int64_t s,
                     const json_t *run)
{
    const json_t *record = record_of(j, "runs", run);
    const json_t *costs = record_of(j, "costs", run);
    const char   *status = json_string_value(json_object_get(record, "status"));
    const bool    ok = status && !strcmp(status, "ok");
    const json_t *train = json_object_get(record, "train");

    json_t *floors = json_object_get(
        json_object_get(record_of(j, !strcmp(j->split, "test") ? "tests" : "runs", run),
                        j->split),
        "floors");

    if (floors) json_object_set(j->summary, "floors", floors);
    if (costs) x->costs = json_object_get(json_object_get(costs, "costs"), "costs");
    x->value[s] = ok ? quality_of(j, run) : NAN;
    x->outputs[s] = json_string_value(json_object_get(
        json_object_get(record_of(j, "tests", run), "test"), "outputs"));
    if (!record) return;
    x->done++;
    x->failed += !ok;
    x->below += ok && json_is_true(json_object_get(record, "below_floor"));
    x->speed += json_number_value(json_object_get(train, "tokens_per_second"));
    x->peak = fmax(x->peak, json_number_value(json_object_get(record, "peak_bytes")));
    json_t *one = json_pack("{s:I, s:s, s:o}", "seed", (json_int_t)(j->seed + s),
                            "status", status, "value", number(x->value[s]));
    if (!ok) json_object_set(one, "reason", json_object_get(record, "reason"));
    json_array_append_new(x->runs, one);
}

static void take_arm(struct judgement *j, struct judged_arm *x, const json_t *arm,
                     int64_t examples)
{
    const int at = plan_choice(j->c, arm, examples, j->grid, j->mean);

    *x = (struct judged_arm){ .arm = arm, .seeds = j->seeds, .runs = json_array() };
    x->pairs.size = sizeof x->pairs;
    x->value = need((size_t)j->seeds, sizeof *x->value);
    x->outputs = need((size_t)j->seeds, sizeof *x->outputs);
    x->values = json_incref(json_array_get(j->grid, (size_t)(at < 0 ? 0 : at)));
    for (int64_t s = 0; s < j->seeds; s++) {
        x->value[s] = NAN;
        if (at < 0) continue;
        json_t *run = plan_run(j->c, arm, j->seed + s, examples, x->values);
        take_run(j, x, s, run);
        json_decref(run);
    }
    if (x->done) x->speed /= (double)x->done;
}

static void free_arm(struct judged_arm *x)
{
    json_decref(x->runs);
    json_decref(x->values);
    free(x->value);
    free(x->outputs);
}

/* An arm has its costs from one of its runs, whatever the number of examples. */
static const json_t *costs_of(struct judgement *j, const json_t *arm)
{
    const json_t *sizes = json_object_get(j->c->definition, "examples");
    const json_t *found = NULL;

    for (size_t i = 0; !found && i < json_array_size(sizes); i++) {
        struct judged_arm x;
        take_arm(j, &x, arm, json_integer_value(json_array_get(sizes, i)));
        found = x.costs;
        free_arm(&x);
    }
    return found;
}

/*
 * Statistics
 */

static foci_better direction(const struct judgement *j)
{
    return j->m->lower ? FOCI_BETTER_LOWER : FOCI_BETTER_HIGHER;
}

/* What is computed with: the value in the unit of margins, or its logarithm. */
static double inner(const struct judgement *j, double value)
{
    return j->m->ratio ? log(value) : value * j->m->scale;
}

/* A difference of such values, in the unit of margins. */
static double shown(const struct judgement *j, double difference)
{
    return j->m->ratio ? 100 * expm1(difference) : difference;
}

static double margin_of(const struct judgement *j)
{
    const double margin =
        json_number_value(json_object_get(j->c->definition, "margin"));
    return j->m->ratio ? log1p(margin / 100) : margin;
}

/* Mean and interval of an arm; of ratios those of the logarithms, so a geometric mean. */
static foci_status add_mean(const struct judgement *j, const struct judged_arm *x,
                            json_t *to)
{
    double      *values = need((size_t)x->seeds, sizeof *values);
    foci_summary s = { FOCI_SIZED(foci_summary) };
    int64_t      n = 0;

    for (int64_t i = 0; i < x->seeds; i++)
        if (isfinite(inner(j, x->value[i]))) values[n++] = inner(j, x->value[i]);
    const foci_status status = foci_summary_of(j->c->ctx, values, n, 0, &s);
    free(values);
    if (status || !n) return status;
    const double one = j->m->ratio ? 1 : 1 / j->m->scale;
    json_object_set_new(to, "mean", number(j->m->ratio ? exp(s.mean) : s.mean * one));
    json_object_set_new(to, "iqm", number(j->m->ratio ? exp(s.iqm) : s.iqm * one));
    json_object_set_new(to, "low", number(j->m->ratio ? exp(s.low) : s.low * one));
    json_object_set_new(to, "high", number(j->m->ratio ? exp(s.high) : s.high * one));
    return FOCI_OK;
}

/* The values of pairs, in the order of seeds, and the files of both runs of each, to be
 * released; the result is how many there are. */
static int64_t pair(const struct judgement *j, const struct judged_arm *x,
                    const struct judged_arm *base, double *a, double *b,
                    json_t *outputs[2])
{
    int64_t n = 0;

    outputs[0] = json_array();
    outputs[1] = json_array();
    for (int64_t i = 0; i < x->seeds; i++) {
        a[n] = inner(j, x->value[i]);
        b[n] = inner(j, base->value[i]);
        if (!isfinite(a[n]) || !isfinite(b[n])) continue;
        n++;
        if (!x->outputs[i] || !base->outputs[i]) continue;
        json_array_append_new(outputs[0], json_string(x->outputs[i]));
        json_array_append_new(outputs[1], json_string(base->outputs[i]));
    }
    return n;
}

static json_t *difference_of(const struct judgement *j, const foci_pairs *t)
{
    const foci_verdict verdict =
        foci_verdict_of(t->low, t->high, margin_of(j), direction(j));

    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "pairs",
                     (json_int_t)t->n, "mean", number(shown(j, t->difference)), "low",
                     number(shown(j, t->low)), "high", number(shown(j, t->high)),
                     "bootstrap_low", number(shown(j, t->bootstrap_low)),
                     "bootstrap_high", number(shown(j, t->bootstrap_high)), "p",
                     number(t->p), "verdict", foci_verdict_name(verdict));
}

static foci_status add_difference(struct judgement *j, struct judged_arm *x,
                                  const struct judged_arm *base, json_t *to)
{
    double       *a = need(2 * (size_t)x->seeds, sizeof *a);
    json_t       *outputs[2];
    const int64_t n = pair(j, x, base, a, a + x->seeds, outputs);
    foci_status   status =
        foci_pairs_test(j->c->ctx, a, a + x->seeds, n, NULL, &x->pairs);

    free(a);
    if (!status && n) {
        json_t *o = difference_of(j, &x->pairs);
        json_object_set_new(to, "difference", o);
        j->holds[j->n_p] = o;
        j->p[j->n_p++] = x->pairs.p;
        if (!strcmp(j->split, "test"))
            status = sentences_judge(j->c->ctx, j->m, outputs[0], outputs[1], o);
    }
    json_decref(outputs[0]);
    json_decref(outputs[1]);
    return status;
}

/*
 * Arms and levels
 */

static foci_status add_arm(struct judgement *j, struct judged_arm *x,
                           const struct judged_arm *base, json_t *list)
{
    const json_t *costs = costs_of(j, x->arm);
    json_t       *o = json_pack(
              "{s:O, s:O, s:O, s:I, s:I, s:I, s:I, s:O, s:o, s:o}", "arm",
              json_object_get(x->arm, "name"), "options", json_object_get(x->arm, "options"),
              "values", x->values, "seeds", (json_int_t)x->seeds, "done", (json_int_t)x->done,
              "failed", (json_int_t)x->failed, "below_floor", (json_int_t)x->below, "runs",
              x->runs, "tokens_per_second", number(x->speed), "peak_bytes", number(x->peak));

    if (costs) json_object_set(o, "costs", (json_t *)costs);
    json_array_append_new(list, o);
    const foci_status status = add_mean(j, x, o);
    return status || x == base ? status : add_difference(j, x, base, o);
}

/* The arm that others are compared with: one that can do the task, by preference the one
 * that was named. */
static size_t find_baseline(const struct comparison *c)
{
    const json_t *name = json_object_get(c->definition, "baseline");
    size_t        i, first;
    json_t       *arm;

    json_array_foreach(c->arms, i, arm)
    {
        if (!plan_is_able(c, arm)) continue;
        if (json_equal(json_object_get(arm, "name"), name) ||
            json_equal(json_object_get(arm, "base"), name))
            return i;
    }
    for (first = 0; first < json_array_size(c->arms); first++)
        if (plan_is_able(c, json_array_get(c->arms, first))) break;
    return first;
}

static foci_status add_level(struct judgement *j, int64_t examples, size_t baseline)
{
    const size_t       n = json_array_size(j->c->arms);
    struct judged_arm *all = need(n, sizeof *all);
    json_t            *list = json_array();
    foci_status        status = FOCI_OK;

    json_array_append_new(
        json_object_get(j->summary, "levels"),
        json_pack("{s:I, s:o}", "examples", (json_int_t)examples, "arms", list));
    for (size_t i = 0; i < n; i++)
        take_arm(j, &all[i], json_array_get(j->c->arms, i), examples);
    for (size_t i = 0; !status && i < n; i++)
        if (plan_is_able(j->c, all[i].arm))
            status = add_arm(j, &all[i], &all[baseline], list);
    for (size_t i = 0; i < n; i++) {
        free_arm(&all[i]);
    }
    free(all);
    return status;
}

/*
 * Tuning
 */

/* The value of an option at a point of the grid. */
static double value_at(const struct judgement *j, size_t point, const char *option)
{
    const char *text = field_text(json_array_get(j->grid, point), option);
    return strtod(text, NULL);
}

/* Whether the one option that is tuned has values beyond the chosen one on one side alone, in
 * whatever order they were given. */
static bool is_at_edge(const struct judgement *j, size_t best)
{
    json_t *tune = json_object_get(j->c->definition, "tune");
    size_t  below = 0, above = 0;

    if (json_object_size(tune) != 1) return false;
    const char  *option = json_object_iter_key(json_object_iter(tune));
    const double chosen = value_at(j, best, option);
    for (size_t i = 0; i < json_array_size(j->grid); i++) {
        below += value_at(j, i, option) < chosen;
        above += value_at(j, i, option) > chosen;
    }
    return !below != !above;
}

/* The curve of an arm over the grid, the point chosen, and how many points work: those with
 * a number that is within the margin of the best. */
static void add_curve(struct judgement *j, const json_t *arm, int64_t examples)
{
    const int    best = plan_choice(j->c, arm, examples, j->grid, j->mean);
    const size_t n = json_array_size(j->grid);
    json_t      *points = json_array();
    int64_t      works = 0;

    for (size_t i = 0; i < n; i++) {
        const double d = inner(j, j->mean[i]) - inner(j, j->mean[best < 0 ? 0 : best]);
        works += isfinite(d) && fabs(d) <= margin_of(j);
        json_array_append_new(points, json_pack("{s:O, s:o}", "values",
                                                json_array_get(j->grid, i), "mean",
                                                number(j->mean[i])));
    }
    json_t *o = json_pack("{s:O, s:I, s:o, s:I}", "arm", json_object_get(arm, "name"),
                          "examples", (json_int_t)examples, "points", points, "works",
                          (json_int_t)works);
    if (best >= 0) {
        json_object_set(o, "chosen", json_array_get(j->grid, (size_t)best));
        json_object_set_new(o, "at_edge", json_boolean(is_at_edge(j, (size_t)best)));
    }
    json_array_append_new(json_object_get(j->summary, "tuning"), o);
}

static void add_tuning(struct judgement *j)
{
    const json_t *sizes = json_object_get(j->c->definition, "examples");
    size_t        i, k;
    json_t       *arm, *size;

    if (json_array_size(j->grid) < 2) return;
    json_object_set_new(j->summary, "tuning", json_array());
    json_array_foreach(sizes, i, size)
    {
        json_array_foreach(j->c->arms, k, arm)
        {
            if (plan_is_able(j->c, arm)) add_curve(j, arm, json_integer_value(size));
        }
    }
}

/*
 * The whole
 */

static void add_refused(struct judgement *j)
{
    json_t *list = json_array(), *arm;
    size_t  i;

    json_array_foreach(j->c->arms, i, arm)
    {
        if (plan_is_able(j->c, arm)) continue;
        json_t       *run = plan_check(j->c, arm);
        const json_t *check = record_of(j, "checks", run);
        json_array_append_new(list, json_pack("{s:O, s:O}", "arm",
                                              json_object_get(arm, "name"), "reason",
                                              json_object_get(check, "reason")));
        json_decref(run);
    }
    json_object_set_new(j->summary, "refused", list);
}

/* Test results, if all runs that went well have one. */
static const char *find_split(const struct comparison *c, json_t *summary)
{
    bool          complete;
    json_t       *list = plan_runs(c, &complete), *run;
    size_t        i;
    int64_t       tests = 0, ok = 0, done = 0;
    const int64_t all = (int64_t)json_array_size(list);

    json_array_foreach(list, i, run)
    {
        const char   *id = json_string_value(json_object_get(run, "id"));
        const json_t *record = results_get(c->results, "runs", id);
        const char   *status = json_string_value(json_object_get(record, "status"));
        const json_t *test = results_get(c->results, "tests", id);
        done += record != NULL;
        ok += status && !strcmp(status, "ok");
        tests += json_object_get(test, "test") != NULL;
    }
    json_decref(list);
    json_object_set_new(summary, "runs",
                        json_pack("{s:I, s:I, s:b}", "done", (json_int_t)done, "of",
                                  (json_int_t)all, "tuned", complete));
    return done == all && complete && ok > 0 && tests == ok ? "test" : "valid";
}

static foci_status adjust(struct judgement *j)
{
    const foci_status status = foci_holm(j->c->ctx, j->p, j->n_p, j->p);

    for (int64_t i = 0; !status && i < j->n_p; i++)
        json_object_set_new(j->holds[i], "p_holm", number(j->p[i]));
    json_object_set_new(j->summary, "comparisons", json_integer((json_int_t)j->n_p));
    return status;
}

static foci_status add_all(struct judgement *j)
{
    const json_t *sizes = json_object_get(j->c->definition, "examples");
    const size_t  baseline = find_baseline(j->c), n = json_array_size(j->c->arms);
    foci_status   status = FOCI_OK;

    j->p = need(n * json_array_size(sizes) + 1, sizeof *j->p);
    j->holds = need(n * json_array_size(sizes) + 1, sizeof *j->holds);
    add_refused(j);
    if (baseline < n) {
        json_object_set(j->summary, "baseline",
                        json_object_get(json_array_get(j->c->arms, baseline), "name"));
        for (size_t i = 0; !status && i < json_array_size(sizes); i++)
            status =
                add_level(j, json_integer_value(json_array_get(sizes, i)), baseline);
    }
    if (!status && j->n_p) status = adjust(j);
    free(j->p);
    free(j->holds);
    if (!status) add_tuning(j);
    return status;
}

json_t *judge(const struct comparison *c)
{
    const json_t    *d = c->definition;
    json_t          *grid = plan_grid(d);
    struct judgement j = {
        .c = c,
        .m = compare_metric_of(d),
        .seed = json_integer_value(json_object_get(d, "seed")),
        .seeds = json_integer_value(json_object_get(d, "seeds")),
        .grid = grid,
        .mean = need(json_array_size(grid), sizeof *j.mean),
    };
    j.summary = json_pack(
        "{s:O, s:O, s:O, s:O, s:s, s:O, s:O, s:[]}", "version",
        json_object_get(d, "version"), "task", json_object_get(d, "task"), "options",
        json_object_get(d, "options"), "metric", json_object_get(d, "metric"), "unit",
        j.m->unit, "margin", json_object_get(d, "margin"), "seeds",
        json_object_get(d, "seeds"), "levels");
    j.split = find_split(c, j.summary);
    json_object_set_new(j.summary, "split", json_string(j.split));
    const foci_status status = add_all(&j);
    free(j.mean);
    json_decref(grid);
    if (!status) return j.summary;
    library_error(c->a, c->ctx, status, NULL);
    json_decref(j.summary);
    return NULL;
}
