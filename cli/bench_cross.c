/* bench_cross.c -- bench --crossover: the length from which on a mechanism is faster than
 * softmax on all pairs.
 *
 * Lengths are doubled until the spec wins at a length and at twice that length, as a single
 * win may be noise; then the gap between the last loss and the first win is bisected down to
 * an eighth of its end.  At each length the two alternate, and the median ratio counts.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

enum { MAX_LENGTHS = 64, MAX_PAIRS = 10000, FINE = 8, GRAIN = 16 };

struct point {
    int64_t length;
    double  seconds, softmax; /* medians */
    double  ratio;            /* median of softmax's time over that of the spec */
};

struct crossing {
    const char  *text;              /* as given, SPEC or SPEC/PROBLEM/DTYPE/PASS */
    char        *spec, *head, *end; /* of the case before n, behind it */
    struct point points[MAX_LENGTHS];
    int          n;
    int64_t      from; /* 0: it never wins */
};

struct cross {
    const struct args *a;
    foci_ctx          *ctx;
    struct progress    progress;
    int64_t            done; /* cases */
    int                reps;
    double             time;
    int64_t            limit;
};

static const char default_problem[] = "/h8d64/bf16/fwd";

static const char *const default_specs[] = {
    "linear",
    "cosformer",
    "efficient",
    "retention",
    "performer(features=256)",
    "performer(kind=aderf, features=256)",
    "local",
    "strided(stride=128)",
    "bigbird",
    "lsh(buckets=256, rounds=4)",
    "segmented(length=64, back=1)",
    "pooled(block=64)",
};

/*
 * Cases of a length
 */

/* "/h8" "d64c/bf16/fwd": the length stands before the width. */
static int read_crossing(const struct args *a, const char *text, struct crossing *x)
{
    const char  *slash = strchr(text, '/'), *rest = slash ? slash : default_problem;
    const size_t spec = slash ? (size_t)(slash - text) : strlen(text);
    const size_t head = strcspn(rest + 1, "d/nmw") + 1;

    *x = (struct crossing){ .text = text };
    if (rest[head] == 'n' || rest[head] == 'm')
        return usage_error(
            a,
            "case \"%s\" has a length, which is what --crossover looks for; leave it "
            "out, as in linear/h8d64c/bf16/fwd",
            text);
    if (rest[head] == 'w')
        return usage_error(
            a,
            "case \"%s\" is a layer; --crossover compares mechanisms, as "
            "in linear/h8d64c/bf16/fwd",
            text);
    x->spec = need(spec + 1, 1);
    memcpy(x->spec, text, spec);
    x->head = need(head + 1, 1);
    memcpy(x->head, rest, head);
    x->end = need(strlen(rest + head) + 1, 1);
    strcpy(x->end, rest + head);
    return EXIT_OK;
}

static char *case_text(const struct crossing *x, const char *spec, int64_t length)
{
    assert(spec && x->head && x->end);
    const size_t n = strlen(spec) + strlen(x->head) + strlen(x->end) + 24;
    char        *text = need(n, 1);

    snprintf(text, n, "%s%sn%lld%s", spec, x->head, (long long)length, x->end);
    return text;
}

/* One of the two that take turns. */
struct cross_side {
    char             *text;
    struct bench_case c;
    foci_plan        *plan;
    struct bench_job  job;
    bool              open;
};

static int open_side(const struct cross *w, const struct crossing *x, const char *spec,
                     int64_t length, struct cross_side *s)
{
    const struct run_verb none = { .a = w->a, .ctx = w->ctx };

    *s = (struct cross_side){ .text = case_text(x, spec, length) };
    const int code = bench_prepare(&none, s->text, &s->c);
    if (code) return code;
    if (s->c.pass == PASS_STEP)
        return usage_error(w->a,
                           "case \"%s\": --crossover compares fwd, bwd or both, not "
                           "steps",
                           x->text);
    foci_status status = bench_plan(w->ctx, &s->c, &s->plan);
    if (status) return library_error(w->a, w->ctx, status, s->text);
    s->open = true;
    status = bench_job_open(w->ctx, s->plan, &s->c, &s->job);
    return status ? failure(w->a, "%s: execution failed: %s", s->text,
                            foci_status_text(status))
                  : EXIT_OK;
}

static void close_side(struct cross_side *s)
{
    if (s->open) bench_job_close(&s->job);
    foci_plan_free(s->plan);
    bench_case_free(&s->c);
    free(s->text);
}

/*
 * Times
 */

static foci_status timed(struct cross_side *s, double *took)
{
    const double      begin = seconds();
    const foci_status status = bench_job_run(&s->job);
    *took = seconds() - begin;
    return status;
}

/* The first pair warms caches, clocks and threads. */
static foci_status take_turns(const struct cross *w, struct cross_side *spec,
                              struct cross_side *softmax, struct point *p)
{
    double     *times = need(3 * (size_t)MAX_PAIRS, sizeof *times);
    double     *ours = times, *theirs = times + MAX_PAIRS, *ratios = theirs + MAX_PAIRS;
    double      total = 0;
    int         n = -1;
    foci_status status = FOCI_OK;

    for (; !status && n < MAX_PAIRS && (n < w->reps || total < w->time); n++) {
        const int at = n < 0 ? 0 : n;
        status = timed(n % 2 ? spec : softmax, n % 2 ? &ours[at] : &theirs[at]);
        if (!status)
            status = timed(n % 2 ? softmax : spec, n % 2 ? &theirs[at] : &ours[at]);
        ratios[at] = theirs[at] / ours[at];
        if (n >= 0) total += ours[at] + theirs[at];
    }
    if (!status) {
        p->seconds = bench_median(ours, n);
        p->softmax = bench_median(theirs, n);
        p->ratio = bench_median(ratios, n);
    }
    free(times);
    return status;
}

/* Is the spec faster at this length? */
static int compare(struct cross *w, struct crossing *x, int64_t length, bool *wins)
{
    struct cross_side spec, softmax = { 0 };
    struct point     *p = &x->points[x->n];
    int               code = open_side(w, x, x->spec, length, &spec);

    if (!code) code = open_side(w, x, "softmax", length, &softmax);
    if (!code && w->progress.terminal) progress_at(&w->progress, w->done, spec.text);
    if (!code) {
        const foci_status status = take_turns(w, &spec, &softmax, p);
        if (status)
            code = failure(w->a, "%s: execution failed: %s", spec.text,
                           foci_status_text(status));
    }
    if (!code) {
        p->length = length;
        *wins = p->ratio > 1;
        x->n++;
    }
    close_side(&spec);
    close_side(&softmax);
    return code;
}

/* Halve until the gap is small. */
static int narrow(struct cross *w, struct crossing *x, int64_t loses)
{
    int code = EXIT_OK;

    while (!code && x->from - loses > GRAIN && (x->from - loses) * FINE > x->from) {
        const int64_t middle = (loses + x->from) / 2 / GRAIN * GRAIN;
        bool          wins = false;
        code = compare(w, x, middle, &wins);
        if (wins)
            x->from = middle;
        else
            loses = middle;
    }
    return code;
}

static int cross(struct cross *w, struct crossing *x)
{
    int64_t first = 0, loses = 0; /* of the wins in a row, and before them */
    int     code = EXIT_OK, row = 0;

    for (int64_t n = BENCH_SHORTEST; n <= w->limit && row < 2 && !code; n *= 2) {
        bool wins = false;
        code = compare(w, x, n, &wins);
        row = wins ? row + 1 : 0;
        if (row == 1) first = n;
        if (!row) loses = n;
    }
    if (code || !row) return code;
    x->from = first;
    return first > BENCH_SHORTEST ? narrow(w, x, loses) : EXIT_OK;
}

/*
 * Results
 */

/* Of the length it wins from, or the longest. */
static const struct point *last_point(const struct crossing *x)
{
    const struct point *best = &x->points[0];

    for (int i = 0; i < x->n; i++) {
        const struct point *p = &x->points[i];
        if (x->from ? p->length == x->from : p->length > best->length) best = p;
    }
    return best;
}

static void print_crossings(const struct cross *w, const struct crossing *all, int n)
{
    static const char *const heads[] = { "case",      "faster from", "at",
                                         "median ms", "softmax ms",  "ratio" };
    struct output_table     *t = table_create("lrrrrr");

    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < n; i++) {
        const struct crossing *x = &all[i];
        const struct point    *p = last_point(x);
        table_cell(t, "%s%s%s", x->spec, x->head, x->end);
        if (x->from)
            table_cell(t, "%lld", (long long)x->from);
        else
            table_cell(t, "never");
        table_cell(t, "%lld", (long long)p->length);
        table_cell(t, "%.3f", 1e3 * p->seconds);
        table_cell(t, "%.3f", 1e3 * p->softmax);
        table_cell(t, "%.2f", p->ratio);
    }
    table_print(t, stdout);
    table_free(t);
    printf("\n%d threads; lengths from %d to %lld; ratio: softmax's time over that of "
           "the case\n",
           foci_ctx_threads(w->ctx), BENCH_SHORTEST, (long long)w->limit);
}

static json_t *json_crossing(const struct crossing *x)
{
    json_t *list = json_array();

    for (int i = 0; i < x->n; i++)
        json_array_append_new(list, json_pack("{s:I, s:f, s:f, s:f}", "length",
                                              (json_int_t)x->points[i].length,
                                              "seconds", x->points[i].seconds,
                                              "softmax_seconds", x->points[i].softmax,
                                              "ratio", x->points[i].ratio));
    return json_pack("{s:o, s:o, s:o}", "case",
                     json_sprintf("%s%s%s", x->spec, x->head, x->end), "faster_from",
                     x->from ? json_integer(x->from) : json_null(), "lengths", list);
}

static int show(const struct cross *w, const struct crossing *all, int n)
{
    if (!w->a->json) {
        print_crossings(w, all, n);
        return EXIT_OK;
    }
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_crossing(&all[i]));
    return print_json(w->a, json_pack("{s:s, s:i, s:I, s:o}", "version", foci_version(),
                                      "threads", foci_ctx_threads(w->ctx), "limit",
                                      (json_int_t)w->limit, "crossings", list));
}

/* Each is refused before time is spent on others: all must do the shortest length. */
static int try_first(const struct cross *w, const struct crossing *x)
{
    struct cross_side s;
    const int         code = open_side(w, x, x->spec, BENCH_SHORTEST, &s);
    close_side(&s);
    return code;
}

static int run_all(struct cross *w, const char *const *texts, int n)
{
    struct crossing *all = need((size_t)n, sizeof *all);
    int              code = EXIT_OK;

    for (int i = 0; i < n && !code; i++) {
        code = read_crossing(w->a, texts[i], &all[i]);
        if (!code) code = try_first(w, &all[i]);
    }
    progress_begin(&w->progress, w->a, "cases", n);
    for (int i = 0; i < n && !code; i++) {
        w->done = i;
        progress_at(&w->progress, i, texts[i]);
        code = cross(w, &all[i]);
    }
    progress_end(&w->progress);
    if (!code) code = show(w, all, n);
    for (int i = 0; i < n; i++) {
        free(all[i].spec);
        free(all[i].head);
        free(all[i].end);
    }
    free(all);
    return code;
}

int bench_crossover(const struct args *a, foci_ctx *ctx)
{
    static const char *const apart[] = { "compare", "param" };
    struct cross             w = { .a = a,
                                   .ctx = ctx,
                                   .reps = (int)opt_int(a, "reps", 5),
                                   .time = opt_real(a, "time", 0.2),
                                   .limit = opt_int(a, "limit", 16384) };
    enum { N_DEFAULT = sizeof default_specs / sizeof *default_specs };

    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        if (opt_text(a, apart[i]))
            return usage_error(a, "--crossover and --%s do not go together", apart[i]);
    return a->n_words ? run_all(&w, a->words, a->n_words)
                      : run_all(&w, default_specs, N_DEFAULT);
}
